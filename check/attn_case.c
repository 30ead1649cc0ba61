/* The cases of attn, and its row in the table of families. */
#include <stdio.h>
#include <string.h>

#include "check_attn.h"

static const char *const scale_words[KGEN__SCALE_COUNT + 1] = {
    [KGEN__SCALE_AUTO] = "auto", [KGEN__SCALE_ONE] = "one",     [KGEN__SCALE_HEAD] = "head",
    [KGEN__SCALE_SEQ] = "seq",   [KGEN__SCALE_TOKEN] = "token", [KGEN__SCALE_HTOKEN] = "htoken"};

enum { LENGTH_MAX = KGEN__CASE_LENGTH_MAX };

#define AT(field) KGEN__CASE_AT(attn, field)
#define INTEGER(name, low, high, initial) KGEN__CASE_INTEGER(attn, name, name, low, high, initial)
#define DECIMAL(name, initial) KGEN__CASE_DECIMAL(attn, name, name, initial)
#define SPANS(name, high) KGEN__CASE_SPANS(attn, name, name, high)
#define WORD(name, words, list) KGEN__CASE_WORD(attn, name, name, words, list)
#define SCALE_LIST "auto, one, head, seq, token or htoken"

static const kgen__case_key keys[] = {
    KGEN__CASE_SEQS(1, 0),
    SPANS(lens, LENGTH_MAX),
    SPANS(qlens, LENGTH_MAX),
    INTEGER(hkv, 1, 1024, 1),
    INTEGER(page, 1, 65536, 16),
    INTEGER(window, 1, LENGTH_MAX, 16),
    INTEGER(right, 1, LENGTH_MAX, 16),
    INTEGER(keep, 1, LENGTH_MAX, 4),
    INTEGER(tail, 0, 4096, 0),
    INTEGER(extra, 0, LENGTH_MAX, 0),
    INTEGER(cols, 0, LENGTH_MAX, 0),
    INTEGER(rowpad, 0, 65536, 0),
    INTEGER(packed, 0, 3, 0),
    INTEGER(pad, 0, 4096, 0),
    INTEGER(qpad, 0, 4096, 0),
    INTEGER(off, 0, 2, 0),
    INTEGER(poison, 0, 1, 1),
    INTEGER(bad, 0, 16, 0),
    INTEGER(share, 1, KGEN__CASE_SEQS_MAX, 2),
    INTEGER(prefix, 0, LENGTH_MAX, 64),
    WORD(kds, scale_words, SCALE_LIST),
    WORD(vds, scale_words, SCALE_LIST),
    WORD(qds, scale_words, SCALE_LIST),
    DECIMAL(scale, 0),
    DECIMAL(softcap, 2),
    DECIMAL(oscale, 0),
    DECIMAL(sink, 0),
    KGEN__CASE_SEED,
};

static int implied(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    if (key->offset == AT(lens)) return 0;
    *out = (kgen__span){c->spec.attn.q_tokens, c->spec.attn.q_tokens};
    return 1;
}

static kgen_status settle(const kgen__case *drawn, kgen_error *err) {
    const kgen_attn_spec *spec = &drawn->spec.attn;
    const kgen__attn_case *c = &drawn->attn;
    const kgen_attn_phase *phase = kgen_attn_phase_of(spec->phase);
    int32_t least = phase->ragged ? 0 : 1;
    int32_t most = phase->bounded ? spec->q_tokens : LENGTH_MAX;
    KGEN_TRY(kgen__settle_tokens(c->qlens, drawn->seqs, least, most, err));
    if (!phase->ragged) KGEN_TRY(kgen__settle_tail(c->tail, phase->name, err));
    if (c->scale < 0 || c->oscale < 0 || c->softcap <= 0)
        return kgen_fail(err, KGEN_E_ARG, "scale, oscale, softcap: must be positive");
    return kgen__settle_page(spec->page, c->page, err);
}

/* Short, middling, and past one page. */
static void alone(char *out, size_t size, const kgen_spec *spec, int heads) {
    enum { MOST_HEADS = 4, MANY_TOKENS = 60 };
    int bounded = kgen_attn_phase_of(spec->attn.phase)->bounded;
    int page = spec->attn.page < 128 ? 128 : spec->attn.page;
    snprintf(out, size, "lens=rand:16..40,rand:60..120,rand:%d..%d qlens=rand:1..%d hkv=%d",
             page + 1, page + 64, bounded ? spec->attn.q_tokens : MANY_TOKENS,
             heads < MOST_HEADS ? heads : MOST_HEADS);
}

const kgen__check_family kgen__check_family_attn = {
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .implied = implied,
    .settle = settle,
    .random = kgen__attn_random,
    .alone = alone,
    .shape = kgen__attn_shape,
    .fill = kgen__attn_fill,
    .refill = kgen__attn_refill,
    .compare = kgen__attn_check,
    .sound = kgen__attn_sound,
};

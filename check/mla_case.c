/* The cases of mla, and its row in the table of families. */
#include <stdio.h>

#include "check_mla.h"

enum { LENGTH_MAX = KGEN__CASE_LENGTH_MAX };

#define AT(field) KGEN__CASE_AT(mla, field)
#define INTEGER(name, low, high, initial) KGEN__CASE_INTEGER(mla, name, name, low, high, initial)
#define DECIMAL(name, initial) KGEN__CASE_DECIMAL(mla, name, name, initial)
#define SPANS(name, high) KGEN__CASE_SPANS(mla, name, name, high)

static const kgen__case_key keys[] = {
    KGEN__CASE_SEQS(1, 0),
    SPANS(lens, LENGTH_MAX),
    SPANS(qlens, LENGTH_MAX),
    INTEGER(page, 1, 65536, 16),
    INTEGER(window, 1, LENGTH_MAX, 16),
    INTEGER(tail, 0, 4096, 0),
    INTEGER(extra, 0, LENGTH_MAX, 0),
    INTEGER(cols, 0, LENGTH_MAX, 0),
    INTEGER(rowpad, 0, 65536, 0),
    INTEGER(pad, 0, 4096, 0),
    INTEGER(qpad, 0, 4096, 0),
    INTEGER(off, 0, 1, 0),
    INTEGER(poison, 0, 1, 1),
    INTEGER(bad, 0, 16, 0),
    DECIMAL(scale, 0),
    DECIMAL(oscale, 0),
    DECIMAL(sink, 0),
    KGEN__CASE_SEED,
};

static int implied(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    if (key->offset == AT(lens)) return 0;
    *out = (kgen__span){c->spec.mla.q_tokens, c->spec.mla.q_tokens};
    return 1;
}

static kgen_status settle(const kgen__case *drawn, kgen_error *err) {
    const kgen_mla_spec *spec = &drawn->spec.mla;
    const kgen__mla_case *c = &drawn->mla;
    int decode = spec->phase == KGEN_MLA_DECODE;
    KGEN_TRY(kgen__settle_tokens(c->qlens, drawn->seqs, decode, spec->q_tokens, err));
    if (decode) KGEN_TRY(kgen__settle_tail(c->tail, "decode", err));
    if (c->scale < 0 || c->oscale < 0)
        return kgen_fail(err, KGEN_E_ARG, "scale, oscale: must be positive");
    return kgen__settle_page(spec->page, c->page, err);
}

/* Short, middling, and past one page. */
static void alone(char *out, size_t size, const kgen_spec *spec, int heads) {
    int page = spec->mla.page < 128 ? 128 : spec->mla.page;
    (void)heads;
    snprintf(out, size, "lens=rand:16..40,rand:60..120,rand:%d..%d qlens=rand:1..%d", page + 1,
             page + 64, spec->mla.q_tokens);
}

const kgen__check_family kgen__check_family_mla = {
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .implied = implied,
    .settle = settle,
    .random = kgen__mla_random,
    .alone = alone,
    .shape = kgen__mla_shape,
    .fill = kgen__mla_fill,
    .refill = kgen__mla_refill,
    .answer = kgen__mla_answer,
    .sound = kgen__mla_sound,
};

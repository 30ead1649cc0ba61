/* The cases of mla, and its row in the table of families. */
#include <stdio.h>

#include "check_mla.h"

enum { LENGTH_MAX = KGEN__CASE_LENGTH_MAX };

#define AT(field) offsetof(kgen__case, mla.field)
#define INTEGER(name, low, high, initial) \
    {#name, AT(name), KGEN__KEY_INTEGER, low, high, initial, NULL, NULL}
#define DECIMAL(name, initial) {#name, AT(name), KGEN__KEY_DECIMAL, 0, 0, initial, NULL, NULL}
#define SPANS(name, high) {#name, AT(name), KGEN__KEY_SPANS, 0, high, 0, NULL, NULL}

static const kgen__case_key keys[] = {
    {"seqs", offsetof(kgen__case, seqs), KGEN__KEY_INTEGER, 1, KGEN__CASE_SEQS_MAX, 0, NULL, NULL},
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
    {"seed", offsetof(kgen__case, seed), KGEN__KEY_SEED, 0, 0, 0, NULL, NULL},
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
    for (int32_t i = 0; i < drawn->seqs; i++)
        if (c->qlens[i].high > spec->q_tokens || c->qlens[i].low < decode)
            return kgen_fail(err, KGEN_E_ARG, "qlens: %d..%d of sequence %d is not in %d..%d",
                             c->qlens[i].low, c->qlens[i].high, i, decode, spec->q_tokens);
    if (decode && c->tail)
        return kgen_fail(err, KGEN_E_ARG, "tail=%d: phase=decode has a token for each sequence",
                         c->tail);
    if (c->scale < 0 || c->oscale < 0)
        return kgen_fail(err, KGEN_E_ARG, "scale, oscale: must be positive");
    if (spec->page == KGEN_PAGE_X16 && c->page % 16)
        return kgen_fail(err, KGEN_E_ARG, "page=%d: must be a multiple of 16", c->page);
    return KGEN_OK;
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

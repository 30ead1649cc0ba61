/* The cases of attn_merge, and its row in the table of families. */
#include <stdio.h>
#include <string.h>

#include "check_attn_merge.h"

#define AT(field) KGEN__CASE_AT(attn_merge, field)
#define INTEGER(name, low, high, initial) \
    KGEN__CASE_INTEGER(attn_merge, name, name, low, high, initial)

static const kgen__case_key keys[] = {
    INTEGER(tokens, 0, 1 << 20, 1),
    INTEGER(heads, 1, 1024, 1),
    INTEGER(parts, 1, 1024, 3),
    INTEGER(tail, 0, 1 << 20, 0),
    INTEGER(rowpad, 0, 4096, 0),
    INTEGER(headpad, 0, 4096, 0),
    INTEGER(lsepad, 0, 4096, 0),
    INTEGER(swap, 0, 1, 0),
    INTEGER(off, 0, 1, 0),
    INTEGER(inplace, 0, 1024, 0),
    INTEGER(inlse, 0, 1024, 0),
    INTEGER(nolse, 0, 1, 0),
    INTEGER(empty, 0, 8, 2),
    INTEGER(garbage, 0, 1, 1),
    {"spread", AT(spread), KGEN__KEY_DECIMAL, 0, 0, 3, NULL, NULL},
    KGEN__CASE_SEED,
};

/* No list is a key here. */
static int implied(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    (void)out, (void)c, (void)key;
    return 0;
}

static kgen_status settle(const kgen__case *c, kgen_error *err) {
    const kgen__attn_merge_case *m = &c->attn_merge;
    const kgen_attn_merge_spec *s = &c->spec.attn_merge;
    int32_t parts = s->parts == KGEN_PARTS_STACK ? m->parts : 2;
    if (m->tail > m->tokens)
        return kgen_fail(err, KGEN_E_ARG, "tail=%d: at most tokens=%d", m->tail, m->tokens);
    if (m->inplace > parts || m->inlse > parts)
        return kgen_fail(err, KGEN_E_ARG, "inplace=%d, inlse=%d: of %d parts", m->inplace, m->inlse,
                         parts);
    if (m->inplace && s->out && s->out != s->x)
        return kgen_fail(err, KGEN_E_ARG, "inplace=%d: o=%s is not x=%s", m->inplace,
                         kgen_dtype_name((kgen_dtype)s->out), kgen_dtype_name((kgen_dtype)s->x));
    if (m->inlse && m->nolse) return kgen_fail(err, KGEN_E_ARG, "inlse=%d: nolse=1", m->inlse);
    return KGEN_OK;
}

static void alone(char *out, size_t size, const kgen_spec *spec, int heads) {
    snprintf(out, size, "tokens=37 heads=%d tail=5%s", heads < 4 ? heads : 4,
             spec->attn_merge.parts == KGEN_PARTS_STACK ? " parts=5" : "");
}

/* ---- random ------------------------------------------------------------------ */

#define M(field, often, ...) KGEN__CHOICE(attn_merge.field, often, __VA_ARGS__)

/* clang-format off */
static const kgen__choice choices[] = {
    M(x, 5, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_F32),
    M(out, 4, 0, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_F32, KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN,
      KGEN_DTYPE_E4M3FNUZ, KGEN_DTYPE_E5M2),
    M(head_dim, 7, 16, 32, 48, 64, 72, 80, 96, 112, 128, 192, 256, 512, 8, 24),
    M(parts, 5, KGEN_PARTS_PAIR, KGEN_PARTS_STACK), M(lse, 4, 1, KGEN_LSE_TH),
    M(waves, 2, 0, 2, 3, 8), M(turns, 2, 0, 1, 2, 4),
};
/* clang-format on */

static void random_places(kgen__attn_merge_case *m, kgen__rng *rng, const kgen_spec *spec) {
    const kgen_attn_merge_spec *s = &spec->attn_merge;
    int32_t parts = s->parts == KGEN_PARTS_STACK ? m->parts : 2;
    if ((!s->out || s->out == s->x) && kgen__chance(rng, 3))
        m->inplace = (int32_t)kgen__rng_range(rng, 1, parts);
    m->nolse = kgen__chance(rng, 2);
    if (!m->nolse && kgen__chance(rng, 3)) m->inlse = (int32_t)kgen__rng_range(rng, 1, parts);
    m->rowpad = KGEN__PICK(rng, 0, 0, 1, 7);
    m->headpad = KGEN__PICK(rng, 0, 0, 1, 8);
    m->lsepad = KGEN__PICK(rng, 0, 0, 1, 5);
    m->swap = kgen__chance(rng, 2);
    m->off = kgen__chance(rng, 3);
}

kgen_status kgen__attn_merge_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                    int64_t budget, kgen_error *err) {
    enum { DEFAULT_BUDGET = 400 }; /* rows of 128 dims */
    kgen__case c;
    memset(&c, 0, sizeof c);
    kgen__attn_merge_case *m = &c.attn_merge;
    KGEN_TRY(kgen_spec_parse(&c.spec, "attn_merge:", err));
    KGEN_TRY(kgen__random_spec(&c.spec, choices, sizeof choices / sizeof choices[0], NULL, rng,
                               target, err));
    int64_t rows = (budget > 0 ? budget : DEFAULT_BUDGET) * 128 / c.spec.attn_merge.head_dim;
    m->heads = KGEN__PICK(rng, 1, 2, 3, 5, 8, 16);
    m->tokens = (int32_t)kgen__rng_range(rng, kgen__chance(rng, 1) ? 0 : 1, rows / m->heads + 1);
    m->parts = KGEN__PICK(rng, 1, 2, 3, 4, 5, 8, 11, 16);
    m->tail = kgen__chance(rng, 3) ? (int32_t)kgen__rng_range(rng, 0, m->tokens) : 0;
    m->empty = KGEN__PICK(rng, 0, 2, 2, 5, 8);
    m->garbage = 1;
    m->spread = KGEN__PICK(rng, 1, 3, 3, 40, 1000);
    random_places(m, rng, &c.spec);
    *out = c;
    return KGEN_OK;
}

const kgen__check_family kgen__check_family_attn_merge = {
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .implied = implied,
    .settle = settle,
    .random = kgen__attn_merge_random,
    .alone = alone,
    .shape = kgen__attn_merge_shape,
    .fill = kgen__attn_merge_fill,
    .refill = kgen__attn_merge_refill,
    .answer = kgen__attn_merge_reference,
};

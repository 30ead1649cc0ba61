/* The cases of the indexer, drawn at random too, and its row in the table of families. */
#include <stdio.h>
#include <string.h>

#include "check_indexer.h"

enum { LENGTH_MAX = KGEN__CASE_LENGTH_MAX };

#define AT(field) KGEN__CASE_AT(indexer, field)
#define INTEGER(name, low, high, initial) \
    KGEN__CASE_INTEGER(indexer, name, name, low, high, initial)
#define SPANS(name, high) KGEN__CASE_SPANS(indexer, name, name, high)

static const kgen__case_key keys[] = {
    KGEN__CASE_SEQS(0, -1),      SPANS(lens, LENGTH_MAX),   SPANS(qlens, 4096),
    INTEGER(page, 1, 65536, 16), INTEGER(tail, 0, 4096, 0), INTEGER(extra, 0, 65536, 0),
    INTEGER(cols, 0, 65536, 0),  INTEGER(pad, 0, 64, 0),    INTEGER(rowpad, 0, 64, 0),
    INTEGER(off, 0, 1, 0),       INTEGER(apart, 0, 1, 0),   INTEGER(poison, 0, 1, 1),
    INTEGER(bad, 0, 16, 0),      INTEGER(k, 0, 65536, 8),   INTEGER(values, 0, 65536, 0),
    INTEGER(named, 0, 1, 0),     KGEN__CASE_SEED,
};

static int implied(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    (void)c;
    *out = (kgen__span){1, 1};
    return key->offset == AT(qlens);
}

static kgen_status settle(const kgen__case *c, kgen_error *err) {
    return kgen__settle_page(c->spec.indexer.page, c->indexer.page, err);
}

static void alone(char *out, size_t size, const kgen_spec *spec, int heads) {
    (void)spec, (void)heads;
    snprintf(out, size, "lens=rand:1..30,rand:60..140,rand:17..70 qlens=rand:0..3 cols=3 k=20");
}

/* ---- random ------------------------------------------------------------------ */

#define I(field, often, ...) KGEN__CHOICE(indexer.field, often, __VA_ARGS__)

/* clang-format off */
static const kgen__choice choices[] = {
    I(op, 8, KGEN_INDEX_WRITE, KGEN_INDEX_GATHER, KGEN_INDEX_DECODE, KGEN_INDEX_PREFILL, KGEN_INDEX_TOPK,
      KGEN_INDEX_DECODE, KGEN_INDEX_TOPK),
    I(x, 4, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_F32),
    I(kv, 4, KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN, KGEN_DTYPE_E4M3FNUZ),
    I(head_dim, 3, 128, 64, 256), I(to, 5, KGEN_TO_INDEX, KGEN_TO_COLUMN, KGEN_TO_SLOT), I(page, 6, 64, 1, 2, 4, 8, 16, 48, 64, KGEN_PAGE_X16),
    I(pow2, 4, 0, 1), I(clean, 3, 1, 0), I(ranges, 4, 0, 1),
    I(slots, 2, 1, 0), I(table, 2, 0, 1),
    I(len, 2, 0, 1), I(offsets, 2, 0, 1), I(tiles, 1, 0, 1, 2), I(together, 1, 0, 1, 2),
    I(waves, 2, 0, 2, 3, 4),
};
enum { CHOICES = sizeof choices / sizeof choices[0] };
/* clang-format on */

/* Keys one at a time: all together are valid for no op. Any number of heads. */
static void random_keys(kgen_spec *spec, kgen__rng *rng, const kgen_target *target) {
    for (size_t i = 1; i < CHOICES; i++) {
        kgen_spec next = *spec;
        if (!kgen__chance(rng, choices[i].often)) continue;
        *(int32_t *)((char *)&next + choices[i].offset) =
            kgen__pick(rng, choices[i].values, (size_t)choices[i].count);
        if (kgen_spec_validate(&next, target, NULL) == KGEN_OK) *spec = next;
    }
    kgen_spec next = *spec;
    next.indexer.heads = (int32_t)kgen__rng_range(rng, 1, kgen__chance(rng, 2) ? 128 : 40);
    if (kgen_spec_validate(&next, target, NULL) == KGEN_OK) *spec = next;
    next = *spec;
    next.indexer.q_tokens = KGEN__PICK(rng, 1, 2, 3, 5);
    if (kgen_spec_validate(&next, target, NULL) == KGEN_OK) *spec = next;
}

static void random_rows(kgen__case *c, kgen__rng *rng, int64_t budget) {
    kgen__indexer_case *i = &c->indexer;
    int topk = c->spec.indexer.op == KGEN_INDEX_TOPK;
    int64_t left = topk ? 8 * budget : budget;
    c->seqs = KGEN__PICK(rng, 0, 1, 1, 2, 3, 5);
    for (int32_t n = 0; n < c->seqs; n++) {
        int32_t length = (int32_t)kgen__rng_range(rng, 0, left / (c->seqs - n));
        int32_t fresh = (int32_t)kgen__rng_range(rng, 0, 3);
        if (kgen__chance(rng, 1)) length = KGEN__PICK(rng, 0, 1, 2);
        i->lens[n] = (kgen__span){length, length};
        i->qlens[n] = (kgen__span){fresh, fresh};
        left -= length;
    }
}

kgen_status kgen__indexer_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                 int64_t budget, kgen_error *err) {
    enum { DEFAULT_BUDGET = 300 }; /* keys */
    kgen__case c;
    memset(&c, 0, sizeof c);
    kgen__indexer_case *i = &c.indexer;
    KGEN_TRY(kgen_spec_parse(&c.spec, "indexer:op=write", err));
    c.spec.indexer.op = kgen__pick(rng, choices[0].values, (size_t)choices[0].count);
    random_keys(&c.spec, rng, target);
    KGEN_TRY(kgen_spec_validate(&c.spec, target, err));
    random_rows(&c, rng, budget > 0 ? budget : DEFAULT_BUDGET);
    i->page = KGEN__PICK(rng, 16, 32, 48);
    i->tail = KGEN__PICK(rng, 0, 0, 1, 5);
    i->extra = KGEN__PICK(rng, 0, 1, 3);
    i->cols = KGEN__PICK(rng, 0, 1, 7, 70);
    i->pad = KGEN__PICK(rng, 0, 0, 1, 3);
    i->rowpad = KGEN__PICK(rng, 0, 0, 1, 5);
    i->off = KGEN__PICK(rng, 0, 1);
    i->apart = KGEN__PICK(rng, 0, 0, 1);
    i->poison = 1;
    i->bad = KGEN__PICK(rng, 0, 0, 2, 8);
    i->k = KGEN__PICK(rng, 0, 1, 8, 100, 512, 2048);
    i->values = KGEN__PICK(rng, 0, 0, 1, 3, 50);
    i->named = KGEN__PICK(rng, 0, 1);
    *out = c;
    return KGEN_OK;
}

const kgen__check_family kgen__check_family_indexer = {
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .implied = implied,
    .settle = settle,
    .random = kgen__indexer_random,
    .alone = alone,
    .shape = kgen__indexer_shape,
    .fill = kgen__indexer_fill,
    .refill = kgen__indexer_refill,
    .answer = kgen__indexer_reference,
};

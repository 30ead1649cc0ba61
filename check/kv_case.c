/* The cases of the kv families, and their rows in the table of families. */
#include <stdio.h>

#include "check_kv.h"

static const char *const scale_words[KGEN__SCALE_COUNT + 1] = {
    [KGEN__SCALE_AUTO] = "auto", [KGEN__SCALE_ONE] = "one",     [KGEN__SCALE_HEAD] = "head",
    [KGEN__SCALE_SEQ] = "seq",   [KGEN__SCALE_TOKEN] = "token", [KGEN__SCALE_HTOKEN] = "htoken"};

#define AT(family, field) KGEN__CASE_AT(family, field)
#define INTEGER(family, name, field, low, high, initial) \
    KGEN__CASE_INTEGER(family, name, field, low, high, initial)
#define DECIMAL(family, name, initial) KGEN__CASE_DECIMAL(family, name, name, initial)
#define SPANS(family, name) KGEN__CASE_SPANS(family, name, name, KGEN__CASE_LENGTH_MAX)
#define WORD(family, name, field, words, list) KGEN__CASE_WORD(family, name, field, words, list)
#define SCALE_LIST "auto, one, head, seq, token or htoken"

#define COMMON(family)                                                                           \
    KGEN__CASE_SEQS(0, -1), SPANS(family, lens), SPANS(family, cached),                          \
        INTEGER(family, hkv, kv.hkv, 1, 1024, 1), INTEGER(family, page, kv.page, 1, 65536, 16),  \
        INTEGER(family, tail, kv.tail, 0, 4096, 0),                                              \
        INTEGER(family, extra, kv.extra, 0, KGEN__CASE_LENGTH_MAX, 0),                           \
        INTEGER(family, packed, kv.packed, 0, 3, 0), INTEGER(family, pad, kv.pad, 0, 4096, 0),   \
        INTEGER(family, rowpad, kv.rowpad, 0, 4096, 0),                                          \
        INTEGER(family, headpad, kv.headpad, 0, 4096, 0), INTEGER(family, off, kv.off, 0, 1, 0), \
        INTEGER(family, poison, kv.poison, 0, 1, 1),                                             \
        WORD(family, kds, kv.kds, scale_words, SCALE_LIST),                                      \
        WORD(family, vds, kv.vds, scale_words, SCALE_LIST), KGEN__CASE_SEED

static const kgen__case_key write_keys[] = {
    COMMON(kv_write),
    INTEGER(kv_write, qh, qh, 1, 64, 2),
    INTEGER(kv_write, skips, skips, 0, 8, 0),
    INTEGER(kv_write, reserved, reserved, 0, 64, 0),
    INTEGER(kv_write, rows, rows, 0, 4096, 0),
    INTEGER(kv_write, spread, spread, 0, 1, 0),
    INTEGER(kv_write, inplace, inplace, 0, 1, 0),
    INTEGER(kv_write, extremes, extremes, 0, 1, 1),
    INTEGER(kv_write, positions, positions, 1, 65536, 64),
    INTEGER(kv_write, onescale, onescale, 0, 1, 0),
    DECIMAL(kv_write, xstd, 1),
};

static const kgen__case_key gather_keys[] = {
    COMMON(kv_gather),
    SPANS(kv_gather, starts),
    INTEGER(kv_gather, cols, cols, 0, KGEN__CASE_LENGTH_MAX, 0),
    INTEGER(kv_gather, idxpad, idxpad, 0, 65536, 0),
    INTEGER(kv_gather, nostart, nostart, 0, 1, 0),
};

/* One token, before which nothing is cached; a gather takes it. */
static int implied_write(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    int32_t term = key->offset == AT(kv_write, lens);
    (void)c;
    *out = (kgen__span){term, term};
    return 1;
}

static int implied_gather(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    int32_t term = key->offset != AT(kv_gather, starts);
    (void)c;
    *out = (kgen__span){term, term};
    return 1;
}

static kgen_status settle_cache(const kgen__kv_case *c, int32_t page, int32_t layout,
                                kgen_error *err) {
    KGEN_TRY(kgen__settle_page(page, c->page, err));
    if (c->packed > 1 && !kgen__cache_is_plain((kgen_layout)layout))
        return kgen_fail(err, KGEN_E_ARG, "packed=%d: only 0 and 1 with layout=%s", c->packed,
                         kgen_layout_name((kgen_layout)layout));
    return KGEN_OK;
}

static kgen_status settle_write(const kgen__case *c, kgen_error *err) {
    const kgen_kv_write_spec *s = &c->spec.kv_write;
    if (c->kv_write.xstd <= 0) return kgen_fail(err, KGEN_E_ARG, "xstd: must be positive");
    return settle_cache(&c->kv_write.kv, s->page, s->layout, err);
}

static kgen_status settle_gather(const kgen__case *c, kgen_error *err) {
    const kgen_kv_gather_spec *s = &c->spec.kv_gather;
    return settle_cache(&c->kv_gather.kv, s->page, s->layout, err);
}

static int at_most_four(int heads) { return heads < 4 ? heads : 4; }

/* Runs within a page and across pages, at places that are no multiple of 16. */
static void alone_write(char *out, size_t size, const kgen_spec *spec, int heads) {
    (void)spec;
    snprintf(out, size, "lens=1,rand:2..40,rand:17..70,1 cached=rand:0..40 hkv=%d skips=1 tail=3",
             at_most_four(heads));
}

/* The last rows of a sequence have no start. */
static void alone_gather(char *out, size_t size, const kgen_spec *spec, int heads) {
    snprintf(out, size, "cached=rand:1..20,rand:40..90,rand:17..70 lens=rand:0..30 %shkv=%d tail=3",
             spec->kv_gather.from == KGEN_FROM_END ? "" : "starts=rand:0..20 ",
             at_most_four(heads));
}

const kgen__check_family kgen__check_family_kv_write = {
    .keys = write_keys,
    .key_count = sizeof write_keys / sizeof write_keys[0],
    .implied = implied_write,
    .settle = settle_write,
    .random = kgen__kv_write_random,
    .alone = alone_write,
    .shape = kgen__kv_write_shape,
    .fill = kgen__kv_write_fill,
    .refill = kgen__kv_write_refill,
    .answer = kgen__kv_write_reference,
};

const kgen__check_family kgen__check_family_kv_gather = {
    .keys = gather_keys,
    .key_count = sizeof gather_keys / sizeof gather_keys[0],
    .implied = implied_gather,
    .settle = settle_gather,
    .random = kgen__kv_gather_random,
    .alone = alone_gather,
    .shape = kgen__kv_gather_shape,
    .fill = kgen__kv_gather_fill,
    .refill = kgen__kv_gather_refill,
    .answer = kgen__kv_gather_reference,
};

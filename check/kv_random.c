/* Random cases of the kv families over their grids. */
#include <string.h>

#include "check_kv.h"

enum { DEFAULT_BUDGET = 400 }; /* rows x KV heads of 128 dims */

#define W(field, often, ...) KGEN__CHOICE(kv_write.field, often, __VA_ARGS__)
#define G(field, often, ...) KGEN__CHOICE(kv_gather.field, often, __VA_ARGS__)
#define KV_TYPES                                                                              \
    KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN, KGEN_DTYPE_E4M3FNUZ, \
        KGEN_DTYPE_E5M2, KGEN_DTYPE_I8, KGEN_DTYPE_I4, KGEN_DTYPE_FP8
#define DIMS 64, 128, 128, 80, 96, 112, 192, 256, 48, 16, 32, 160, 512
#define PAGES 16, 16, 64, KGEN_PAGE_X16, KGEN_PAGE_X16, 1, 2, 4, 8, 48, 544
#define LAYOUTS \
    KGEN_LAYOUT_NHD, KGEN_LAYOUT_HND, KGEN_LAYOUT_SHUFFLE, KGEN_LAYOUT_XPACKED, KGEN_LAYOUT_SHUFFLE

/* clang-format off */
static const kgen__choice write_choices[] = {
    W(x, 4, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_F32), W(kv, 8, KV_TYPES), W(head_dim, 8, DIMS),
    W(v_dim, 3, 0, DIMS),
    W(page, 8, PAGES), W(layout, 8, LAYOUTS), W(slots, 3, 1, 0),
    W(scale, 6, 0, KGEN_DESCALE_NONE, KGEN_DESCALE_HEAD, KGEN_DESCALE_TOKEN, KGEN_DESCALE_TOKEN,
      KGEN_DESCALE_ROW, KGEN_DESCALE_BLOCK),
    W(remap, 3, 0, 1, 2), W(rope, 4, 0, KGEN_ROPE_NEOX, KGEN_ROPE_INTERLEAVED),
    W(waves, 1, 0, 1, 2, 3), W(turns, 1, 0, 1, 2, 4), W(few, 4, 0, 1), W(align, 3, 16, 4, 2),
};
/* clang-format on */

/* clang-format off */
static const kgen__choice gather_choices[] = {
    G(kv, 8, KV_TYPES), G(out, 4, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16), G(head_dim, 8, DIMS),
    G(v_dim, 3, 0, DIMS), G(page, 8, PAGES), G(layout, 8, LAYOUTS), G(table, 3, 0, 1),
    G(descale, 6, 0, KGEN_DESCALE_NONE, KGEN_DESCALE_HEAD, KGEN_DESCALE_TOKEN,
      KGEN_DESCALE_BLOCK),
    G(len_type, 3, 0, 1), G(cu_type, 3, 0, 1), G(align, 3, 16, 4, 2), G(from, 3, 0, 1), G(waves, 1, 0, 1, 2, 3), G(turns, 1, 0, 1, 2, 4),
};
/* clang-format on */

static void finish_write(kgen_spec *spec, kgen__rng *rng) {
    kgen_kv_write_spec *s = &spec->kv_write;
    if (s->scale == KGEN_DESCALE_BLOCK) s->pow2 = KGEN__PICK(rng, 0, 1);
    if (!s->rope) return;
    s->rope_dim = KGEN__PICK(rng, 0, 32, 64, 96);
    s->rope_q = KGEN__PICK(rng, 0, 1);
    s->table = KGEN__PICK(rng, KGEN_DTYPE_F32, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16);
    s->positions = KGEN__PICK(rng, 0, 1);
    s->table_full = KGEN__PICK(rng, 0, 0, 1);
}

/* Of a cache that has `scales` (its family's granularity). */
static void random_cache(kgen__kv_case *c, kgen__rng *rng, int32_t layout, int32_t scales) {
    int plain = kgen__cache_is_plain((kgen_layout)layout);
    int token = scales == KGEN_DESCALE_TOKEN || scales == KGEN_DESCALE_ROW;
    c->hkv = KGEN__PICK(rng, 1, 1, 2, 3, 4, 8);
    c->page = KGEN__PICK(rng, 16, 32, 48, 96);
    c->tail = KGEN__PICK(rng, 0, 0, 1, 5);
    c->extra = KGEN__PICK(rng, 0, 1, 3);
    c->packed = plain ? KGEN__PICK(rng, 0, 0, 1, 2, 3) : KGEN__PICK(rng, 0, 0, 1);
    if (scales == KGEN_DESCALE_BLOCK) c->packed = KGEN__PICK(rng, 0, 1);
    c->pad = KGEN__PICK(rng, 0, 0, 1, 3);
    c->rowpad = KGEN__PICK(rng, 0, 0, 1, 7);
    c->headpad = KGEN__PICK(rng, 0, 0, 1);
    c->off = KGEN__PICK(rng, 0, 1);
    c->poison = 1;
    c->kds = token ? KGEN__PICK(rng, KGEN__SCALE_TOKEN, KGEN__SCALE_HTOKEN)
                   : KGEN__PICK(rng, KGEN__SCALE_AUTO, KGEN__SCALE_ONE, KGEN__SCALE_HEAD);
    c->vds = token ? KGEN__PICK(rng, KGEN__SCALE_TOKEN, KGEN__SCALE_HTOKEN)
                   : KGEN__PICK(rng, KGEN__SCALE_AUTO, KGEN__SCALE_ONE, KGEN__SCALE_HEAD);
}

static kgen__span fixed(int64_t n) { return (kgen__span){(int32_t)n, (int32_t)n}; }

static int32_t seqs_of(kgen__rng *rng) { return KGEN__PICK(rng, 0, 1, 1, 2, 2, 3, 5, 9); }

kgen_status kgen__kv_write_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                  int64_t budget, kgen_error *err) {
    kgen__case c;
    memset(&c, 0, sizeof c);
    kgen__kv_write_case *w = &c.kv_write;
    KGEN_TRY(kgen_spec_parse(&c.spec, "kv_write:", err));
    KGEN_TRY(kgen__random_spec(&c.spec, write_choices,
                               sizeof write_choices / sizeof write_choices[0], finish_write, rng,
                               target, err));
    random_cache(&w->kv, rng, c.spec.kv_write.layout, c.spec.kv_write.scale);
    int64_t left = (budget > 0 ? budget : DEFAULT_BUDGET) / w->kv.hkv;
    c.seqs = seqs_of(rng);
    for (int32_t n = 0; n < c.seqs; n++) {
        int64_t most = left / (c.seqs - n);
        int64_t length = kgen__chance(rng, 3) ? 1 : kgen__rng_range(rng, 0, most);
        w->lens[n] = fixed(length);
        w->cached[n] = fixed(kgen__rng_range(rng, 0, 40));
        left -= length;
    }
    w->qh = KGEN__PICK(rng, 1, 2, 3);
    w->skips = KGEN__PICK(rng, 0, 0, 1, 4);
    w->reserved = KGEN__PICK(rng, 0, 1);
    w->rows = KGEN__PICK(rng, 0, 2);
    w->spread = KGEN__PICK(rng, 0, 0, 0, 1);
    w->inplace = KGEN__PICK(rng, 0, 1);
    w->extremes = 1;
    w->positions = 64;
    w->onescale = KGEN__PICK(rng, 0, 1);
    w->xstd = KGEN__PICK(rng, 1, 10, 10, 100, 1000) / 10.0;
    *out = c;
    return KGEN_OK;
}

kgen_status kgen__kv_gather_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                   int64_t budget, kgen_error *err) {
    kgen__case c;
    memset(&c, 0, sizeof c);
    kgen__kv_gather_case *g = &c.kv_gather;
    KGEN_TRY(kgen_spec_parse(&c.spec, "kv_gather:", err));
    KGEN_TRY(kgen__random_spec(&c.spec, gather_choices,
                               sizeof gather_choices / sizeof gather_choices[0], NULL, rng, target,
                               err));
    random_cache(&g->kv, rng, c.spec.kv_gather.layout, c.spec.kv_gather.descale);
    int64_t left = (budget > 0 ? budget : DEFAULT_BUDGET) / g->kv.hkv;
    c.seqs = seqs_of(rng);
    for (int32_t n = 0; n < c.seqs; n++) {
        int64_t cached = kgen__rng_range(rng, 0, left / (c.seqs - n));
        int64_t start = kgen__chance(rng, 4) ? 0 : kgen__rng_range(rng, 0, cached);
        int64_t most = kgen__chance(rng, 6) ? cached - start : cached + 8;
        g->cached[n] = fixed(cached);
        g->starts[n] = fixed(start);
        g->lens[n] = fixed(kgen__chance(rng, 4) ? most : kgen__rng_range(rng, 0, most));
        left -= cached;
    }
    if (c.spec.kv_gather.descale != KGEN_DESCALE_TOKEN && c.seqs && kgen__chance(rng, 2))
        g->kv.kds = g->kv.vds = KGEN__SCALE_SEQ;
    g->cols = KGEN__PICK(rng, 0, 1, 3);
    g->idxpad = KGEN__PICK(rng, 0, 1, 5);
    g->nostart = c.spec.kv_gather.from == KGEN_FROM_END || kgen__chance(rng, 1);
    *out = c;
    return KGEN_OK;
}

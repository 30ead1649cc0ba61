/* Random cases of attn over the grid: every choice is a row of a table, and
 * what contradicts itself is left to kgen_spec_validate to throw out. */
#include <string.h>

#include "check_attn.h"

enum { DEFAULT_BUDGET = 600 };

static const kgen__choice choices[] = {
    KGEN__CHOICE(attn.q, 8, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16,
                 KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN, KGEN_DTYPE_E4M3FNUZ, KGEN_DTYPE_E5M2,
                 KGEN_DTYPE_F32),
    KGEN__CHOICE(attn.kv, 8, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN,
                 KGEN_DTYPE_E4M3FNUZ, KGEN_DTYPE_E5M2, KGEN_DTYPE_I8, KGEN_DTYPE_I4),
    KGEN__CHOICE(attn.out, 3, 0, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_FP8,
                 KGEN_DTYPE_E4M3FN, KGEN_DTYPE_E4M3FNUZ, KGEN_DTYPE_E5M2, KGEN_DTYPE_F32),
    KGEN__CHOICE(attn.head_dim, 8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512),
    KGEN__CHOICE(attn.v_dim, 2, 0, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512),
    KGEN__CHOICE(attn.group, 8, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48, 64, 71, 128),
    KGEN__CHOICE(attn.page, 8, 1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 144, 272, 528, 544, 672, 784,
                 1056, 1568, 1600, KGEN_PAGE_X16),
    KGEN__CHOICE(attn.layout, 8, KGEN_LAYOUT_NHD, KGEN_LAYOUT_HND, KGEN_LAYOUT_SHUFFLE,
                 KGEN_LAYOUT_XPACKED),
    KGEN__CHOICE(attn.table, 4, 0, 1),
    KGEN__CHOICE(attn.flat, 3, 0, 1),
    KGEN__CHOICE(attn.len, 3, 0, 1),
    KGEN__CHOICE(attn.offsets, 3, 0, 1),
    KGEN__CHOICE(attn.window, 6, 0, 1, 2, 15, 16, 17, 33, 64, 100, 128, KGEN_WINDOW_RT),
    KGEN__CHOICE(attn.causal, 3, 1, 0, KGEN_CAUSAL_SEQ),
    KGEN__CHOICE(attn.right, 2, 0, 1, 2, 16, 33, 100, KGEN_WINDOW_RT),
    KGEN__CHOICE(attn.chunk, 2, 0, 1, 16, 20, 33, 64),
    KGEN__CHOICE(attn.lookback, 2, 0, 1, 3),
    KGEN__CHOICE(attn.keep, 3, 0, 1, 4, 16, 17, 50, KGEN_WINDOW_RT),
    KGEN__CHOICE(attn.spans, 2, 0, 1),
    KGEN__CHOICE(attn.softcap, 4, 0, 1),
    KGEN__CHOICE(attn.alibi, 4, 0, 1, KGEN_ALIBI_SQRT),
    KGEN__CHOICE(attn.cap_last, 4, 0, 1),
    KGEN__CHOICE(attn.sinks, 4, 0, 1),
    KGEN__CHOICE(attn.gate, 2, 0, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_F32),
    KGEN__CHOICE(attn.lse, 6, 0, 1, KGEN_LSE_TH),
    KGEN__CHOICE(attn.invariant, 2, 0, 1, 512),
    KGEN__CHOICE(attn.cascade, 4, 0, 1),
    KGEN__CHOICE(attn.descale, 8, KGEN_DESCALE_AUTO, KGEN_DESCALE_NONE, KGEN_DESCALE_HEAD,
                 KGEN_DESCALE_TOKEN, KGEN_DESCALE_IGNORE),
};

static void draw_phase(kgen_spec *spec, kgen__rng *rng) {
    spec->attn.phase = (int32_t)kgen__rng_range(rng, 0, KGEN_PHASE_COUNT - 1);
    const kgen_attn_phase *phase = kgen_attn_phase_of(spec->attn.phase);
    int32_t usual = phase->most_tokens < 16 || kgen__chance(rng, 1) ? phase->most_tokens : 16;
    spec->attn.q_tokens = (int32_t)kgen__rng_range(rng, 1, usual);
    if (phase->dense) {
        spec->attn.page = 1;
        spec->attn.layout = KGEN_LAYOUT_NHD;
        spec->attn.flat = spec->attn.table = 0;
    }
    if (!phase->ragged || phase->tree) spec->attn.causal = 1;
    if (phase->tree) {
        spec->attn.word =
            KGEN__PICK(rng, KGEN_DTYPE_U8, KGEN_DTYPE_U16, KGEN_DTYPE_I32, KGEN_DTYPE_I64);
        int32_t bits = 8 * (int32_t)kgen_dtype_size((kgen_dtype)spec->attn.word);
        if (spec->attn.q_tokens > bits) spec->attn.q_tokens = bits;
    }
    if (spec->attn.causal == 1) spec->attn.right = 0;
}

/* Lengths love edges: of tiles, of pages, none, all. */
static int32_t random_length(kgen__rng *rng, int32_t page, int32_t most) {
    int32_t edge = KGEN__PICK(rng, 0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129,
                              page - 1, page, page + 1, 2 * page, most);
    return kgen__chance(rng, 4) && edge <= most ? edge : (int32_t)kgen__rng_range(rng, 1, most);
}

/* Query tokens of a sequence, at most. */
static int32_t most_fresh(const kgen__case *c, kgen__rng *rng) {
    if (kgen_attn_phase_of(c->spec.attn.phase)->bounded) return c->spec.attn.q_tokens;
    return KGEN__PICK(rng, 1, 2, 7, 16, 17, 33, 64, 100);
}

/* Keys that a case may have in all, so that the emulated GPU takes its time
 * for `budget` keys of 128-wide heads. */
static int64_t affordable(const kgen__case *c, int64_t fresh, int64_t budget) {
    const kgen_attn_spec *s = &c->spec.attn;
    int64_t tiles = (s->group * fresh + 15) / 16;
    int64_t width = s->head_dim + (s->v_dim ? s->v_dim : s->head_dim);
    int64_t keys = budget * 256 / (c->attn.hkv * tiles * width);
    return keys < 4 ? 4 : keys;
}

static int32_t page_of(const kgen__case *c) {
    return c->spec.attn.page == KGEN_PAGE_X16 ? c->attn.page : c->spec.attn.page;
}

/* A page of everything, in elements. */
static int64_t page_size(const kgen__case *c) {
    return (int64_t)page_of(c) * c->attn.hkv * 2 * c->spec.attn.head_dim;
}

/* Pages are filled whole, with poison: large ones are kept few. */
static void limit_pages(kgen__case *c) {
    while (c->attn.hkv > 1 && page_size(c) > 1 << 18) c->attn.hkv /= 2;
    if (page_size(c) > 1 << 18) c->attn.extra = 0;
}

static void random_sequences(kgen__case *c, kgen__rng *rng, int32_t most, int64_t keys) {
    int32_t page = page_of(c);
    int64_t left = keys;
    int ragged = kgen_attn_phase_of(c->spec.attn.phase)->ragged;
    c->seqs = page_size(c) > 1 << 18 ? KGEN__PICK(rng, 1, 2) : KGEN__PICK(rng, 1, 1, 2, 3, 4, 5, 7);
    for (int32_t i = 0; i < c->seqs; i++) {
        int32_t length = left > 0 ? random_length(rng, page, (int32_t)left) : 0;
        int32_t fresh = most;
        if (ragged && kgen__chance(rng, 6)) fresh = (int32_t)kgen__rng_range(rng, 0, fresh);
        /* A prefix shows where there are more of its length. */
        if (c->spec.attn.cascade && length < 100 && kgen__chance(rng, 8)) length += 32 + fresh;
        left -= length;
        c->attn.lens[i] = (kgen__span){length, length};
        c->attn.qlens[i] = (kgen__span){fresh, fresh};
    }
    if (ragged) {
        c->attn.tail = KGEN__PICK(rng, 0, 0, 1, 3);
        if (c->attn.qlens[0].low == 0) c->attn.qlens[0] = (kgen__span){1, 1};
    }
}

static void random_tensors(kgen__case *c, kgen__rng *rng) {
    kgen_layout layout = (kgen_layout)c->spec.attn.layout;
    int plain = layout == KGEN_LAYOUT_NHD || layout == KGEN_LAYOUT_HND;
    c->attn.packed = plain ? KGEN__PICK(rng, 0, 0, 1, 2, 3) : KGEN__PICK(rng, 0, 1);
    c->attn.extra = KGEN__PICK(rng, 0, 1, 3);
    c->attn.cols = KGEN__PICK(rng, 0, 0, 1, 5);
    c->attn.rowpad = KGEN__PICK(rng, 0, 0, 1, 7);
    c->attn.pad = KGEN__PICK(rng, 0, 0, 1, 3);
    c->attn.qpad = KGEN__PICK(rng, 0, 0, 1, 5);
    c->attn.off = KGEN__PICK(rng, 0, 0, 1, 2);
}

static int32_t random_scale_shape(const kgen__case *c, kgen__rng *rng) {
    switch (c->spec.attn.descale) {
    case KGEN_DESCALE_TOKEN:
        return KGEN__PICK(rng, KGEN__SCALE_TOKEN, KGEN__SCALE_HTOKEN);
    case KGEN_DESCALE_IGNORE:
    case KGEN_DESCALE_HEAD:
        return KGEN__PICK(rng, KGEN__SCALE_ONE, KGEN__SCALE_HEAD, KGEN__SCALE_SEQ);
    case KGEN_DESCALE_AUTO:
        if (kgen_dtype_size((kgen_dtype)c->spec.attn.kv) == 1 && c->spec.attn.kv != KGEN_DTYPE_I4)
            return KGEN__PICK(rng, KGEN__SCALE_AUTO, KGEN__SCALE_ONE, KGEN__SCALE_HEAD,
                              KGEN__SCALE_SEQ);
        return KGEN__SCALE_AUTO;
    default:
        return KGEN__SCALE_AUTO;
    }
}

static void random_scalars(kgen__case *c, kgen__rng *rng) {
    int32_t cap = KGEN__PICK(rng, 1, 2, 5, 30);
    c->attn.softcap = c->spec.attn.softcap ? cap : 2;
    c->attn.poison = 1;
    c->attn.bad = KGEN__PICK(rng, 0, 0, 0, 2, 8);
    c->attn.scale = KGEN__PICK(rng, 0, 0, 0, 1) * 0.25;
    c->attn.kds = random_scale_shape(c, rng);
    c->attn.vds = random_scale_shape(c, rng);
    if (kgen_dtype_size((kgen_dtype)c->spec.attn.q) == 1)
        c->attn.qds =
            KGEN__PICK(rng, KGEN__SCALE_AUTO, KGEN__SCALE_ONE, KGEN__SCALE_HEAD, KGEN__SCALE_SEQ);
    c->attn.share = KGEN__PICK(rng, 1, 2, 3, 7);
    c->attn.prefix = KGEN__PICK(rng, 0, 32, 50, 96, 1000);
    c->attn.page = c->attn.window = c->attn.right = 16;
    c->attn.keep = KGEN__PICK(rng, 1, 4, 31, 100);
    if (c->spec.attn.page == KGEN_PAGE_X16)
        c->attn.page = 16 * (int32_t)kgen__rng_range(rng, 1, 40);
    if (c->spec.attn.window == KGEN_WINDOW_RT)
        c->attn.window = KGEN__PICK(rng, 1, 3, 16, 31, 65, 4096);
    if (c->spec.attn.right == KGEN_WINDOW_RT)
        c->attn.right = KGEN__PICK(rng, 1, 3, 16, 31, 65, 4096);
}

kgen_status kgen__attn_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                              int64_t budget, kgen_error *err) {
    kgen__case c;
    memset(&c, 0, sizeof c);
    KGEN_TRY(kgen_spec_parse(&c.spec, "attn:", err));
    KGEN_TRY(kgen__random_spec(&c.spec, choices, sizeof choices / sizeof choices[0], draw_phase,
                               rng, target, err));
    c.attn.hkv = KGEN__PICK(rng, 1, 1, 2, 2, 3, 4, 5, 8);
    random_scalars(&c, rng);
    random_tensors(&c, rng);
    limit_pages(&c);
    int32_t fresh = most_fresh(&c, rng);
    int64_t keys = affordable(&c, fresh, budget > 0 ? budget : DEFAULT_BUDGET);
    int64_t page = page_of(&c);
    if (keys < page && keys > page / 8 && kgen__chance(rng, 1)) keys = page + 33;
    random_sequences(&c, rng, fresh, keys);
    *out = c;
    return KGEN_OK;
}

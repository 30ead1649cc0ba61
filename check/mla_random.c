/* Random cases of mla over the grid. */
#include <string.h>

#include "check_mla.h"

enum { DEFAULT_BUDGET = 600 };

static const kgen__choice choices[] = {
    KGEN__CHOICE(mla.phase, 6, KGEN_MLA_DECODE, KGEN_MLA_VERIFY, KGEN_MLA_TREE),
    KGEN__CHOICE(mla.q, 8, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16),
    KGEN__CHOICE(mla.kv, 8, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN,
                 KGEN_DTYPE_E4M3FNUZ, KGEN_DTYPE_E5M2),
    KGEN__CHOICE(mla.rows, 3, 0, KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN, KGEN_DTYPE_E4M3FNUZ),
    KGEN__CHOICE(mla.out, 3, 0, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_FP8, KGEN_DTYPE_E4M3FN,
                 KGEN_DTYPE_E4M3FNUZ, KGEN_DTYPE_E5M2),
    KGEN__CHOICE(mla.latent, 8, 512, 512, 256, 16, 48, 128, 192, 320, 640),
    KGEN__CHOICE(mla.rope, 8, 64, 64, 0, 16, 32, 80, 128),
    KGEN__CHOICE(mla.page, 8, 1, 2, 4, 8, 16, 32, 48, 64, 128, 1024, KGEN_PAGE_X16),
    KGEN__CHOICE(mla.table, 4, 0, 1),
    KGEN__CHOICE(mla.flat, 3, 0, 1),
    KGEN__CHOICE(mla.len, 3, 0, 1),
    KGEN__CHOICE(mla.offsets, 3, 0, 1),
    KGEN__CHOICE(mla.window, 4, 0, 1, 2, 15, 16, 17, 33, 64, 100, KGEN_WINDOW_RT),
    KGEN__CHOICE(mla.sparse, 3, 0, 1),
    KGEN__CHOICE(mla.invariant, 2, 0, 1, 512),
    KGEN__CHOICE(mla.sinks, 4, 0, 1),
    KGEN__CHOICE(mla.lse, 6, 0, 1, KGEN_LSE_TH),
    KGEN__CHOICE(mla.descale, 8, KGEN_DESCALE_AUTO, KGEN_DESCALE_NONE, KGEN_DESCALE_HEAD),
};

/* Every head count is as likely as another, as far as rows go. */
static void draw_rows(kgen_spec *spec, kgen__rng *rng) {
    spec->mla.heads = (int32_t)kgen__rng_range(rng, 1, 128);
    spec->mla.q_tokens = 1;
    if (spec->mla.phase == KGEN_MLA_DECODE)
        spec->mla.offsets = 0;
    else
        spec->mla.q_tokens = (int32_t)kgen__rng_range(rng, 1, 16);
    spec->mla.word = KGEN_DTYPE_I32;
    if (spec->mla.rows) {
        spec->mla.latent = KGEN__PICK(rng, 128, 128, 256, 512, 640);
        spec->mla.kv = KGEN__PICK(rng, KGEN_DTYPE_BF16, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16);
        spec->mla.descale = KGEN_DESCALE_AUTO;
    }
    spec->mla.sparse &= spec->mla.phase == KGEN_MLA_DECODE;
    if (spec->mla.sparse) spec->mla.page = 1, spec->mla.flat = spec->mla.window = 0;
    if (spec->mla.phase != KGEN_MLA_TREE) return;
    spec->mla.word = KGEN__PICK(rng, KGEN_DTYPE_U8, KGEN_DTYPE_U16, KGEN_DTYPE_I32, KGEN_DTYPE_I64);
    if (spec->mla.word == KGEN_DTYPE_U8 && spec->mla.q_tokens > 8) spec->mla.q_tokens = 8;
}

static int32_t random_length(kgen__rng *rng, int32_t page, int32_t most) {
    int32_t edge =
        KGEN__PICK(rng, 0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, page - 1, page, page + 1, most);
    return kgen__chance(rng, 4) && edge <= most ? edge : (int32_t)kgen__rng_range(rng, 1, most);
}

/* Keys that a case may have in all: as attention counts them. */
static int32_t affordable(const kgen__case *c, int64_t budget) {
    const kgen_mla_spec *s = &c->spec.mla;
    int64_t tiles = (s->heads * s->q_tokens + 15) / 16;
    int64_t keys = budget * 256 / (tiles * (2 * s->latent + s->rope));
    return keys < 4 ? 4 : (int32_t)keys;
}

static void random_sequences(kgen__case *c, kgen__rng *rng, int64_t budget) {
    const kgen_mla_spec *s = &c->spec.mla;
    int32_t page = s->page == KGEN_PAGE_X16 ? c->mla.page : s->page, left = affordable(c, budget);
    int verify = s->phase != KGEN_MLA_DECODE;
    if (left < page && left > page / 8 && kgen__chance(rng, 1)) left = page + 33;
    c->seqs = page > 256 ? 1 : KGEN__PICK(rng, 1, 1, 2, 3, 4, 5, 7);
    for (int32_t i = 0; i < c->seqs; i++) {
        int32_t length = left > 0 ? random_length(rng, page, left) : 0, fresh = s->q_tokens;
        if (verify && i && kgen__chance(rng, 6)) fresh = (int32_t)kgen__rng_range(rng, 0, fresh);
        left -= length;
        c->mla.lens[i] = (kgen__span){length, length};
        c->mla.qlens[i] = (kgen__span){fresh, fresh};
    }
    if (verify) c->mla.tail = KGEN__PICK(rng, 0, 0, 1, 3);
}

static void random_tensors(kgen__case *c, kgen__rng *rng) {
    c->mla.extra = KGEN__PICK(rng, 0, 1, 3);
    c->mla.cols = KGEN__PICK(rng, 0, 0, 1, 5);
    c->mla.rowpad = KGEN__PICK(rng, 0, 0, 1, 7);
    c->mla.pad = KGEN__PICK(rng, 0, 0, 1, 3);
    c->mla.qpad = KGEN__PICK(rng, 0, 0, 1, 5);
    c->mla.off = KGEN__PICK(rng, 0, 0, 0, 1);
    c->mla.poison = 1;
    c->mla.bad = KGEN__PICK(rng, 0, 0, 0, 2, 8);
    c->mla.scale = KGEN__PICK(rng, 0, 0, 0, 1) * 0.0625;
    c->mla.page = c->mla.window = 16;
    if (c->spec.mla.page == KGEN_PAGE_X16) c->mla.page = 16 * (int32_t)kgen__rng_range(rng, 1, 8);
    if (c->spec.mla.window == KGEN_WINDOW_RT)
        c->mla.window = KGEN__PICK(rng, 1, 3, 16, 31, 65, 4096);
}

kgen_status kgen__mla_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                             int64_t budget, kgen_error *err) {
    kgen__case c;
    memset(&c, 0, sizeof c);
    KGEN_TRY(kgen_spec_parse(&c.spec, "mla:", err));
    KGEN_TRY(kgen__random_spec(&c.spec, choices, sizeof choices / sizeof choices[0], draw_rows, rng,
                               target, err));
    random_tensors(&c, rng);
    random_sequences(&c, rng, budget > 0 ? budget : DEFAULT_BUDGET);
    *out = c;
    return KGEN_OK;
}

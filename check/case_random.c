/* Random cases over the grid: every choice is a row of a table, and what
 * contradicts itself is left to kgen_spec_validate to throw out.            */
#include "check.h"

#include <stddef.h>
#include <string.h>

enum { TRIES = 2000, DEFAULT_BUDGET = 600 };

/* `often` of 8 draws take one of the values; the rest keep the first. */
typedef struct choice {
    size_t offset; /* in kgen_attn_spec                                      */
    int32_t often;
    int32_t count;
    const int32_t *values;
} choice;

#define CHOICE(field, often, ...)                                          \
    {offsetof(kgen_attn_spec, field), often,                               \
     sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (const int32_t[]){__VA_ARGS__}}

static const choice choices[] = {
    CHOICE(phase, 8, KGEN_DECODE, KGEN_VERIFY),
    CHOICE(q, 8, KGEN_BF16, KGEN_FP16),
    CHOICE(kv, 8, KGEN_BF16, KGEN_FP16, KGEN_FP8, KGEN_E4M3FN, KGEN_E4M3FNUZ, KGEN_E5M2),
    CHOICE(out, 3, 0, KGEN_BF16, KGEN_FP16, KGEN_FP8, KGEN_E4M3FN, KGEN_E4M3FNUZ, KGEN_E5M2),
    CHOICE(head_dim, 8, 64, 80, 96, 112, 128, 192, 256, 512),
    CHOICE(v_dim, 2, 0, 64, 80, 96, 112, 128, 192, 256),
    CHOICE(group, 8, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32),
    CHOICE(page, 8, 1, 16, 32, 64, 128, 256, 1024, 144, 272, 528, 544, 672, 784, 1056, 1568, 1600,
           KGEN_PAGE_X16),
    CHOICE(layout, 8, KGEN_NHD, KGEN_HND, KGEN_SHUFFLE, KGEN_XPACKED),
    CHOICE(table, 4, 0, 1),
    CHOICE(window, 6, 0, 1, 2, 15, 16, 17, 33, 64, 100, 128, KGEN_WINDOW_RT),
    CHOICE(softcap, 4, 0, 1),
    CHOICE(alibi, 4, 0, 1),
    CHOICE(sinks, 4, 0, 1),
    CHOICE(lse, 6, 0, 1),
    CHOICE(descale, 8, KGEN_DESCALE_AUTO, KGEN_DESCALE_NONE, KGEN_DESCALE_HEAD,
           KGEN_DESCALE_TOKEN),
};

static int32_t pick(kgen_rng *rng, const int32_t *values, size_t count) {
    return values[kgen_rng_range(rng, 0, (int64_t)count - 1)];
}

#define PICK(rng, ...)                                                     \
    pick(rng, (const int32_t[]){__VA_ARGS__},                              \
         sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static int chance(kgen_rng *rng, int64_t in_eight) { return kgen_rng_range(rng, 0, 7) < in_eight; }

static kgen_status random_spec(kgen_spec *spec, kgen_rng *rng, const kgen_target *target,
                               kgen_error *err) {
    kgen_error last = {KGEN_OK, ""};
    KGEN_TRY(kgen_spec_parse(spec, "attn:", err));
    for (int n = 0; n < TRIES; n++) {
        for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
            const choice *c = &choices[i];
            int32_t value = chance(rng, c->often) ? pick(rng, c->values, (size_t)c->count)
                                                  : c->values[0];
            *(int32_t *)((char *)&spec->attn + c->offset) = value;
        }
        spec->attn.q_tokens =
            spec->attn.phase == KGEN_VERIFY ? (int32_t)kgen_rng_range(rng, 1, 16) : 1;
        if (kgen_spec_validate(spec, target, &last) == KGEN_OK) return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_INTERNAL, "no valid spec in %d draws; last: %.600s", TRIES,
                     last.text);
}

/* Lengths love edges: of tiles, of pages, none, all. */
static int32_t random_length(kgen_rng *rng, int32_t page, int32_t most) {
    int32_t edge = PICK(rng, 0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, page - 1,
                        page, page + 1, 2 * page, most);
    return chance(rng, 4) && edge <= most ? edge : (int32_t)kgen_rng_range(rng, 1, most);
}

/* Keys that a case may have in all, so that the emulated GPU takes its time
 * for `budget` keys of 128-wide heads. */
static int64_t affordable(const kgen_case *c, int64_t budget) {
    const kgen_attn_spec *s = &c->spec.attn;
    int64_t tiles = (s->group * s->q_tokens + 15) / 16;
    int64_t width = s->head_dim + (s->v_dim ? s->v_dim : s->head_dim);
    int64_t keys = budget * 256 / (c->hkv * tiles * width);
    return keys < 4 ? 4 : keys;
}

static int32_t page_of(const kgen_case *c) {
    return c->spec.attn.page == KGEN_PAGE_X16 ? c->page : c->spec.attn.page;
}

/* A page of everything, in elements. */
static int64_t page_size(const kgen_case *c) {
    return (int64_t)page_of(c) * c->hkv * 2 * c->spec.attn.head_dim;
}

/* Pages are filled whole, with poison: large ones are kept few. */
static void limit_pages(kgen_case *c) {
    while (c->hkv > 1 && page_size(c) > 1 << 18) c->hkv /= 2;
    if (page_size(c) > 1 << 18) c->extra = 0;
}

static void random_sequences(kgen_case *c, kgen_rng *rng, int64_t keys) {
    int32_t page = page_of(c);
    int64_t left = keys;
    c->seqs = page_size(c) > 1 << 18 ? PICK(rng, 1, 2) : PICK(rng, 1, 1, 2, 3, 4, 5, 7);
    for (int32_t i = 0; i < c->seqs; i++) {
        int32_t length = left > 0 ? random_length(rng, page, (int32_t)left) : 0;
        int32_t fresh = c->spec.attn.q_tokens;
        if (c->spec.attn.phase == KGEN_VERIFY && chance(rng, 6))
            fresh = (int32_t)kgen_rng_range(rng, 0, fresh);
        left -= length;
        c->lens[i] = (kgen_span){length, length};
        c->qlens[i] = (kgen_span){fresh, fresh};
    }
    if (c->spec.attn.phase == KGEN_VERIFY) {
        c->tail = PICK(rng, 0, 0, 1, 3);
        if (c->qlens[0].low == 0) c->qlens[0] = (kgen_span){1, 1};
    }
}

static void random_tensors(kgen_case *c, kgen_rng *rng) {
    kgen_layout layout = (kgen_layout)c->spec.attn.layout;
    int plain = layout == KGEN_NHD || layout == KGEN_HND;
    c->packed = plain ? PICK(rng, 0, 0, 1, 2, 3) : PICK(rng, 0, 1);
    c->extra = PICK(rng, 0, 1, 3);
    c->cols = PICK(rng, 0, 0, 1, 5);
    c->rowpad = PICK(rng, 0, 0, 1, 7);
    c->pad = PICK(rng, 0, 0, 1, 3);
    c->qpad = PICK(rng, 0, 0, 1, 5);
    c->off = PICK(rng, 0, 0, 0, 1);
}

static int32_t random_scale_shape(const kgen_case *c, kgen_rng *rng) {
    switch (c->spec.attn.descale) {
    case KGEN_DESCALE_TOKEN:
        return PICK(rng, KGEN_SCALE_TOKEN, KGEN_SCALE_HTOKEN);
    case KGEN_DESCALE_HEAD:
        return PICK(rng, KGEN_SCALE_ONE, KGEN_SCALE_HEAD, KGEN_SCALE_SEQ);
    case KGEN_DESCALE_AUTO:
        if (kgen_dtype_size((kgen_dtype)c->spec.attn.kv) == 1)
            return PICK(rng, KGEN_SCALE_AUTO, KGEN_SCALE_ONE, KGEN_SCALE_HEAD, KGEN_SCALE_SEQ);
        return KGEN_SCALE_AUTO;
    default:
        return KGEN_SCALE_AUTO;
    }
}

static void random_scalars(kgen_case *c, kgen_rng *rng) {
    int32_t cap = PICK(rng, 1, 2, 5, 30);
    c->softcap = c->spec.attn.softcap ? cap : 2;
    c->poison = 1;
    c->scale = PICK(rng, 0, 0, 0, 1) * 0.25;
    c->kds = random_scale_shape(c, rng);
    c->vds = random_scale_shape(c, rng);
    c->page = c->spec.attn.page == KGEN_PAGE_X16 ? 16 * (int32_t)kgen_rng_range(rng, 1, 40) : 16;
    c->window = c->spec.attn.window == KGEN_WINDOW_RT ? PICK(rng, 1, 3, 16, 31, 65, 4096) : 16;
}

kgen_status kgen_case_random(kgen_case *out, kgen_rng *rng, const kgen_target *target,
                             int64_t budget, kgen_error *err) {
    kgen_case c;
    memset(&c, 0, sizeof c);
    KGEN_TRY(random_spec(&c.spec, rng, target, err));
    c.hkv = PICK(rng, 1, 1, 2, 2, 3, 4, 5, 8);
    random_scalars(&c, rng);
    random_tensors(&c, rng);
    limit_pages(&c);
    int64_t keys = affordable(&c, budget > 0 ? budget : DEFAULT_BUDGET);
    if (keys < page_of(&c) && keys > page_of(&c) / 8 && chance(rng, 1)) keys = page_of(&c) + 33;
    random_sequences(&c, rng, keys);
    *out = c;
    return KGEN_OK;
}

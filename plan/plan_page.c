/* The page of attention layers, as engines choose it.
 *
 * vLLM keeps the recurrent state of a layer in a page of the same pool, so it
 * raises the attention page until it holds one state
 * (Platform._align_hybrid_block_size):
 *     page = 16 * ceil(state / (16 * bytes of one token's K and V))
 * all of one rank. Without a draft: Qwen3.5-35B-A3B 1056 (tp 1, 2), 528, 272
 * (tp 4, 8); Qwen3-Next 544, 272, 144; Qwen3.5-27B 784, with 8-bit KV 1568;
 * Granite-4.0-H-Tiny 400. */
#include "profile.h"

/* A convolution keeps its window and the draft tokens. */
static int64_t conv_bytes(const kgen__profile *p, int64_t channels, int64_t width) {
    return channels * (width - 1 + p->options.spec_width) * kgen_dtype_size(p->x);
}

static int64_t delta_bytes(const kgen__profile *p) {
    const kgen__delta *d = &p->model->delta;
    int64_t channels = 2 * d->k_heads * d->k_dim + d->v_heads * d->v_dim;
    return (conv_bytes(p, channels, d->conv) +
            d->v_heads * d->k_dim * d->v_dim * kgen_dtype_size(kgen__gdn_state(p))) /
           p->options.tp;
}

static int64_t state_size(const kgen__profile *p) {
    const kgen_dtype dtypes[] = {p->options.state, p->model->recurrent.dtype, p->x};
    size_t i = 0;
    while (!dtypes[i]) i++;
    return kgen_dtype_size(dtypes[i]);
}

/* Groups that the ranks do not divide are repeated, one a rank. Mamba has no heads. */
static int64_t mamba_bytes(const kgen__profile *p) {
    const kgen__recurrent *s = &p->model->recurrent;
    int64_t tp = p->options.tp, groups = s->groups % tp ? tp : s->groups;
    int64_t channels = s->inner + (s->heads ? 2 * groups * s->state : 0);
    return conv_bytes(p, channels / tp, s->conv) + s->inner / tp * s->state * state_size(p);
}

static int64_t lightning_bytes(const kgen__profile *p) {
    const kgen__recurrent *s = &p->model->recurrent;
    return s->lightning_heads / p->options.tp * s->lightning_dim * s->lightning_dim * state_size(p);
}

static int64_t short_conv_bytes(const kgen__profile *p) {
    const kgen__recurrent *s = &p->model->recurrent;
    return conv_bytes(p, s->conv_channels / p->options.tp, s->conv_width);
}

static int has_mamba(const kgen__model *m) {
    int found = 0;
    for (int64_t i = 0; i < m->count; i++)
        found |= m->layer[i].mix == KGEN__MIX_MAMBA || m->layer[i].mamba;
    return found;
}

/* The largest state of any kind of layer; 0: none has one. */
static int64_t state_bytes(const kgen__profile *p) {
    const kgen__model *m = p->model;
    const struct {
        int present;
        int64_t (*bytes)(const kgen__profile *);
    } rows[] = {{kgen__model_layers(m, KGEN__MIX_DELTA) > 0, delta_bytes},
                {has_mamba(m), mamba_bytes},
                {kgen__model_layers(m, KGEN__MIX_LIGHTNING) > 0, lightning_bytes},
                {kgen__model_layers(m, KGEN__MIX_SHORT_CONV) > 0, short_conv_bytes}};
    int64_t most = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t bytes = rows[i].present ? rows[i].bytes(p) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Without DeltaNet's fields there is no kernel of it either: said before. */
static kgen_status check_state(const kgen__profile *p, kgen_error *err) {
    const kgen__recurrent *s = &p->model->recurrent;
    if (kgen__model_layers(p->model, KGEN__MIX_DELTA))
        KGEN_TRY(kgen__gdn_check(p->model, p->options.tp, err));
    if (has_mamba(p->model) && (!s->inner || !s->state || !s->conv))
        return kgen_fail(err, KGEN_E_CONFIG,
                         "%s: missing, and the model has Mamba layers, whose state decides the "
                         "page; give --page-size",
                         !s->inner   ? "mamba_num_heads"
                         : !s->state ? "ssm_state_size"
                                     : "conv_kernel");
    return KGEN_OK;
}

/* vLLM: 16, or what a hybrid model's state asks for. SGLang on AMD: 1. */
kgen_status kgen__page_choose(int *out, const kgen__profile *p, kgen_error *err) {
    const kgen__model *m = p->model;
    int64_t first = 0;
    kgen__rank rank;
    *out = p->options.engine == KGEN_ENGINE_SGLANG ? 1 : 16;
    while (first < m->count && m->layer[first].mix != KGEN__MIX_ATTENTION) first++;
    if (p->options.engine == KGEN_ENGINE_SGLANG || first == m->count) return KGEN_OK;
    KGEN_TRY(check_state(p, err));
    int64_t state = state_bytes(p);
    if (!state) return KGEN_OK;
    KGEN_TRY(kgen__rank_of(p, &m->layer[first], &rank, err));
    int64_t token = 16 * rank.kv_heads * (m->layer[first].head_dim + m->layer[first].v_dim) *
                    kgen_dtype_size(p->kv) / kgen_dtype_values(p->kv);
    int64_t page = (state + token - 1) / token * 16;
    if (page > INT32_MAX)
        return kgen_fail(err, KGEN_E_CONFIG,
                         "a recurrent state of %lld bytes needs pages of %lld tokens",
                         (long long)state, (long long)page);
    if (page > *out) *out = (int)page;
    return KGEN_OK;
}

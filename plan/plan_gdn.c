/* Gated DeltaNet and KDA layers of a plan: the fused step (fuse=e), in the form
 * in which each engine keeps its states. */
#include <stdio.h>
#include <string.h>

#include "profile.h"

/* vLLM writes a draft's states to slots of their own and finds the kept one by
 * the accepted count; slot 0 is its null block. SGLang keeps a draft's states
 * in a buffer beside the pool and copies the kept one. */
typedef struct engine_row {
    kgen_layout conv, kda_conv; /* order of the convolution state */
    kgen_gdn_sentinel sentinel;
    kgen_gdn_index index; /* of a verify kernel, as the rest */
    kgen_gdn_save save;
    int accept, varlen;
} engine_row;

static const engine_row engines[] = {
    [KGEN_ENGINE_VLLM] = {KGEN_CONV_SD, KGEN_CONV_SD, KGEN_SENTINEL_NONPOS, KGEN_INDEX_SPEC,
                          KGEN_SAVE_SLOTS, 1, 1},
    [KGEN_ENGINE_SGLANG] = {KGEN_CONV_DS, KGEN_CONV_SD, KGEN_SENTINEL_NEG, KGEN_INDEX_ONE,
                            KGEN_SAVE_BUFFER, 0, 0},
};

static int is_kda(const kgen__model *m) { return m->delta.gate != KGEN_GATE_GDN; }

kgen_status kgen__gdn_check(const kgen__model *m, int tp, kgen_error *err) {
    const kgen__delta *d = &m->delta;
    int kda = is_kda(m) || d->layout == KGEN_ROWS_PRESPLIT;
    const struct {
        const char *key, *kda_key;
        int64_t value;
        int split;
    } rows[] = {
        {"linear_num_key_heads", "linear_attn_config.num_heads", d->k_heads, 1},
        {"linear_num_value_heads", "linear_attn_config.num_heads", d->v_heads, 1},
        {"linear_key_head_dim", "linear_attn_config.head_dim", d->k_dim, 0},
        {"linear_value_head_dim", "linear_attn_config.head_dim", d->v_dim, 0},
        {"linear_conv_kernel_dim", "linear_attn_config.short_conv_kernel_size", d->conv, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *key = kda ? rows[i].kda_key : rows[i].key;
        if (!rows[i].value)
            return kgen_fail(err, KGEN_E_CONFIG,
                             "%s: missing, and the model has linear_attention layers", key);
        if (rows[i].split && rows[i].value % tp)
            return kgen_fail(err, KGEN_E_CONFIG, "%s=%lld: not divisible by tp=%d", key,
                             (long long)rows[i].value, tp);
    }
    return KGEN_OK;
}

/* The config's, else: KDA and SGLang f32, vLLM the model's own type. */
kgen_dtype kgen__gdn_state(const kgen__profile *p) {
    if (p->options.state) return p->options.state;
    if (is_kda(p->model)) return KGEN_DTYPE_F32;
    if (p->model->delta.state) return p->model->delta.state;
    return p->options.engine == KGEN_ENGINE_SGLANG ? KGEN_DTYPE_F32 : p->x;
}

static void set_model(kgen_gdn_spec *s, const kgen__profile *p) {
    const kgen__delta *d = &p->model->delta;
    s->fuse = KGEN_FUSE_E;
    s->x = (int32_t)p->x;
    s->k_heads = (int32_t)(d->k_heads / p->options.tp);
    s->v_heads = (int32_t)(d->v_heads / p->options.tp);
    s->k_dim = (int32_t)d->k_dim;
    s->v_dim = (int32_t)d->v_dim;
    s->conv_width = (int32_t)d->conv;
    s->state = (int32_t)kgen__gdn_state(p);
    s->gate = (int32_t)d->gate;
    s->out_gate = d->sigmoid;
    if (is_kda(p->model))
        s->dt_bias = s->conv_weight = KGEN_DTYPE_F32; /* as both engines load them */
}

static void set_engine(kgen_gdn_spec *s, const kgen__profile *p, kgen_phase phase) {
    const engine_row *row = &engines[p->options.engine];
    s->conv_layout = (int32_t)(is_kda(p->model) ? row->kda_conv : row->conv);
    s->sentinel = (int32_t)row->sentinel;
    if (kgen__phase_tokens(p, phase) == 1) return;
    s->tokens = kgen__phase_tokens(p, phase);
    s->index = (int32_t)row->index;
    s->save = (int32_t)row->save;
    s->accept = row->accept;
    s->varlen = row->varlen;
}

kgen_status kgen__gdn_spec(kgen_spec *out, const kgen__profile *p, kgen_phase phase,
                           kgen_error *err) {
    const kgen__delta *d = &p->model->delta;
    char line[64];
    KGEN_TRY(kgen__gdn_check(p->model, p->options.tp, err));
    snprintf(line, sizeof line, "gdn:layout=%s", kgen_layout_name(d->layout));
    KGEN_TRY(kgen_spec_parse(out, line, err));
    if (strcmp(d->act, "silu") && strcmp(d->act, "swish"))
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "hidden_act=%s: the convolution's activation must be silu or swish",
                         d->act);
    set_model(&out->gdn, p);
    set_engine(&out->gdn, p, phase);
    return kgen_spec_validate(out, NULL, err);
}

/* Gated DeltaNet and KDA layers of a plan: the fused step (fuse=e), in the form
 * in which each engine keeps its states. */
#include <stdio.h>
#include <string.h>

#include "plan_model.h"

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

static int is_kda(const kgen__model *m) { return m->gdn_gate != KGEN_GATE_GDN; }

kgen_status kgen__gdn_check(const kgen__model *m, int tp, kgen_error *err) {
    const struct {
        const char *key;
        int64_t value;
        int split;
    } rows[] = {
        {is_kda(m) ? "linear_attn_config.num_heads" : "linear_num_key_heads", m->gdn_k_heads, 1},
        {"linear_num_value_heads", m->gdn_v_heads, 1},
        {"linear_key_head_dim", m->gdn_k_dim, 0},
        {"linear_value_head_dim", m->gdn_v_dim, 0},
        {"linear_conv_kernel_dim", m->gdn_conv, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].value)
            return kgen_fail(err, KGEN_E_CONFIG,
                             "%s: missing, and the model has linear_attention layers", rows[i].key);
        if (rows[i].split && rows[i].value % tp)
            return kgen_fail(err, KGEN_E_CONFIG, "%s=%lld: not divisible by tp=%d", rows[i].key,
                             (long long)rows[i].value, tp);
    }
    return KGEN_OK;
}

/* The config's, else: KDA and SGLang f32, vLLM the model's own type. */
kgen_dtype kgen__gdn_state(const kgen__model *m, kgen_engine engine) {
    if (is_kda(m)) return KGEN_DTYPE_F32;
    if (m->gdn_state) return m->gdn_state;
    return engine == KGEN_ENGINE_SGLANG ? KGEN_DTYPE_F32 : m->dtype;
}

static void set_model(kgen_gdn_spec *s, const kgen__model *m, const kgen_plan_options *options) {
    s->fuse = KGEN_FUSE_E;
    s->x = (int32_t)m->dtype;
    s->k_heads = (int32_t)(m->gdn_k_heads / options->tp);
    s->v_heads = (int32_t)(m->gdn_v_heads / options->tp);
    s->k_dim = (int32_t)m->gdn_k_dim;
    s->v_dim = (int32_t)m->gdn_v_dim;
    s->conv_width = (int32_t)m->gdn_conv;
    s->state = (int32_t)kgen__gdn_state(m, options->engine);
    s->gate = (int32_t)m->gdn_gate;
    s->out_gate = m->gdn_sigmoid;
    if (is_kda(m)) s->dt_bias = s->conv_weight = KGEN_DTYPE_F32; /* as both engines load them */
}

static void set_engine(kgen_gdn_spec *s, const kgen__model *m, const kgen_plan_options *options,
                       kgen_phase phase) {
    const engine_row *row = &engines[options->engine];
    s->conv_layout = (int32_t)(is_kda(m) ? row->kda_conv : row->conv);
    s->sentinel = (int32_t)row->sentinel;
    if (phase == KGEN_PHASE_DECODE) return;
    s->tokens = options->spec_width + 1;
    s->index = (int32_t)row->index;
    s->save = (int32_t)row->save;
    s->accept = row->accept;
    s->varlen = row->varlen;
}

kgen_status kgen__gdn_spec(kgen_spec *out, const kgen__model *m, const kgen_plan_options *options,
                           kgen_phase phase, kgen_error *err) {
    char line[64];
    KGEN_TRY(kgen__gdn_check(m, options->tp, err));
    snprintf(line, sizeof line, "gdn:layout=%s", kgen_layout_name(m->gdn_layout));
    KGEN_TRY(kgen_spec_parse(out, line, err));
    if (strcmp(m->gdn_act, "silu") && strcmp(m->gdn_act, "swish"))
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "hidden_act=%s: the convolution's activation must be silu or swish",
                         m->gdn_act);
    set_model(&out->gdn, m, options);
    set_engine(&out->gdn, m, options, phase);
    return kgen_spec_validate(out, NULL, err);
}

/* config.json -> the neutral list of layers. The rows of model_types.c say what
 * each class does with its fields; here they are read. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model_types.h"

int64_t kgen__model_layers(const kgen__model *m, kgen__mechanism mix) {
    int64_t count = 0;
    for (int64_t i = 0; i < m->count; i++) count += m->layer[i].mix == mix;
    return count;
}

int kgen__latent_is_known(const kgen__model *m) {
    return m->kv_lora_rank > 0 && m->rope_dim > 0 && kgen__model_layers(m, KGEN__MIX_MLA) > 0;
}

/* --- types --------------------------------------------------------------- */

/* float32 checkpoints are served in bf16. */
static kgen_status dtype_of(const kgen__config *c, const char *key, const char *name,
                            kgen_dtype *out) {
    static const struct {
        const char *name;
        kgen_dtype dtype;
    } rows[] = {{"bfloat16", KGEN_DTYPE_BF16},
                {"float16", KGEN_DTYPE_FP16},
                {"half", KGEN_DTYPE_FP16},
                {"float32", KGEN_DTYPE_F32},
                {"auto", KGEN_DTYPE_BF16}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name)) continue;
        *out = rows[i].dtype;
        return KGEN_OK;
    }
    return kgen_fail(c->err, KGEN_E_CONFIG, "%s=%s: must be bfloat16, float16 or float32", key,
                     name);
}

static kgen_status read_state_dtype(const kgen__config *c, const char *key, kgen_dtype *out) {
    char name[32];
    KGEN_TRY(kgen__config_name(c, kgen__config_field(c, key), key, name, sizeof name));
    return name[0] ? dtype_of(c, key, name, out) : KGEN_OK;
}

static kgen_status read_dtypes(const kgen__config *c, kgen__model *m) {
    char name[32];
    const char *key = kgen__config_outer(c, "torch_dtype") ? "torch_dtype" : "dtype";
    m->dtype = KGEN_DTYPE_BF16;
    KGEN_TRY(kgen__config_name(c, kgen__config_outer(c, key), key, name, sizeof name));
    if (name[0]) KGEN_TRY(dtype_of(c, key, name, &m->dtype));
    if (m->dtype == KGEN_DTYPE_F32) m->dtype = KGEN_DTYPE_BF16;
    KGEN_TRY(read_state_dtype(c, "mamba_ssm_dtype", &m->delta.state));
    return read_state_dtype(c, "mamba_ssm_cache_dtype", &m->recurrent.dtype);
}

/* --- shapes -------------------------------------------------------------- */

/* The same number under the names that classes give it; two different ones
 * leave nothing to believe. */
static kgen_status read_alias(const kgen__config *c, const char *const *keys, int64_t high,
                              int64_t *out) {
    const char *first = NULL;
    for (; *keys; keys++) {
        int64_t value = 0;
        KGEN_TRY(kgen__config_int(c, *keys, 1, high, &value));
        if (!value) continue;
        if (first && value != *out)
            return kgen_fail(c->err, KGEN_E_CONFIG, "%s=%lld, %s=%lld: must be equal", first,
                             (long long)*out, *keys, (long long)value);
        first = *keys;
        *out = value;
    }
    return KGEN_OK;
}

static const char *const layer_keys[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers",
                                         NULL};
static const char *const head_keys[] = {"num_attention_heads", "n_head",          "n_heads",
                                        "num_heads",           "attention_heads", NULL};
static const char *const hidden_keys[] = {"hidden_size", "n_embd", "n_embed", "d_model", NULL};
static const char *const kv_keys[] = {"num_key_value_heads", "num_kv_heads", "n_head_kv",
                                      "num_attention_groups", NULL};
static const char *const dim_keys[] = {"head_dim", "attention_head_dim", "kv_channels", NULL};

/* A whole file has these; a part may leave them to its class. */
static kgen_status read_counts(kgen__reading *r, int64_t *hidden) {
    const kgen__config *c = r->config;
    const kgen__model_type *t = r->type;
    int nested = c->text != c->root;
    kgen__model *m = r->model;
    int64_t heads = nested ? t->heads : 0;
    json_t *blocks = json_object_get(c->text, "layers_block_type");
    m->count = nested ? t->layers : 0;
    if (json_is_array(blocks) && json_array_size(blocks) <= KGEN__LAYERS_MAX)
        m->count = (int64_t)json_array_size(blocks); /* which then is the number */
    *hidden = nested ? t->hidden : 0;
    KGEN_TRY(read_alias(c, layer_keys, KGEN__LAYERS_MAX, &m->count));
    KGEN_TRY(read_alias(c, head_keys, KGEN__HEADS_MAX, &heads));
    KGEN_TRY(read_alias(c, hidden_keys, KGEN__DIM_MAX, hidden));
    if (!m->count) return kgen__config_missing(c, "num_hidden_layers", "");
    if (!heads) return kgen__config_missing(c, "num_attention_heads", "");
    r->common.heads = heads;
    return KGEN_OK;
}

/* attn_config of MPT and DBRX. */
static kgen_status read_parts(kgen__reading *r) {
    kgen__config part;
    char kind[32];
    int found, prefix = 0;
    int64_t window = -1;
    double scale = 0;
    KGEN_TRY(kgen__config_part(r->config, "attn_config", &part, &found));
    if (!found) return KGEN_OK;
    KGEN_TRY(kgen__config_int(&part, "kv_n_heads", 1, KGEN__HEADS_MAX, &r->common.kv_heads));
    KGEN_TRY(kgen__config_int(&part, "sliding_window_size", -1, 1 << 30, &window));
    KGEN_TRY(kgen__config_bool(&part, "alibi", &r->common.alibi));
    KGEN_TRY(kgen__config_bool(&part, "prefix_lm", &prefix));
    KGEN_TRY(kgen__config_number(&part, "softmax_scale", 1e-6, 1e6, &scale));
    KGEN_TRY(kgen__config_name(&part, kgen__config_field(&part, "attn_type"),
                               "attn_config.attn_type", kind, sizeof kind));
    if (strcmp(kind, "multiquery_attention") == 0) r->common.kv_heads = 1;
    if (scale > 0) r->common.scale = scale;
    if (window > 0) r->window = window;
    return prefix ? kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                              "attn_config.prefix_lm=true: the kernels are causal")
                  : KGEN_OK;
}

static kgen_status read_kv_heads(kgen__reading *r) {
    const kgen__config *c = r->config;
    kgen__layer *l = &r->common;
    int multi = r->type->multi_query, all_keys = 0;
    int64_t key = 0, group = 0;
    l->kv_heads = r->type->kv_heads ? r->type->kv_heads : l->heads;
    KGEN_TRY(read_alias(c, kv_keys, KGEN__HEADS_MAX, &key));
    if (key)
        l->kv_heads = key;
    else if (kgen__config_given(c, "num_key_value_heads"))
        l->kv_heads = l->heads; /* null: one a query head */
    switch (r->type->kv) {
    case KGEN__KV_FALCON:
        KGEN_TRY(kgen__config_bool(c, "new_decoder_architecture", &all_keys));
        /* fall through */
    case KGEN__KV_MULTI_QUERY:
        KGEN_TRY(kgen__config_bool(c, "multi_query", &multi));
        if (!all_keys) l->kv_heads = multi ? 1 : l->heads;
        break;
    case KGEN__KV_GROUP:
        KGEN_TRY(kgen__config_bool(c, "multi_query_attention", &multi));
        KGEN_TRY(kgen__config_int(c, "multi_query_group_num", 1, KGEN__HEADS_MAX, &group));
        l->kv_heads = multi && group ? group : l->heads;
        break;
    case KGEN__KV_KEY:
    case KGEN__KV_PARTS:
        break;
    }
    return KGEN_OK;
}

static kgen_status read_head_dim(kgen__reading *r, int64_t hidden) {
    const kgen__config *c = r->config;
    kgen__layer *l = &r->common;
    l->head_dim = kgen__config_given(c, "head_dim") ? 0 : r->type->head_dim;
    KGEN_TRY(read_alias(c, dim_keys, KGEN__DIM_MAX, &l->head_dim));
    if (!l->head_dim) {
        if (!hidden) return kgen__config_missing(c, "hidden_size", ", and there is no head_dim");
        if (hidden % l->heads && l->mix == KGEN__MIX_ATTENTION)
            return kgen_fail(c->err, KGEN_E_CONFIG,
                             "hidden_size=%lld: no multiple of num_attention_heads=%lld, and there "
                             "is no head_dim",
                             (long long)hidden, (long long)l->heads);
        l->head_dim = hidden / l->heads;
    }
    l->v_dim = l->head_dim;
    return kgen__config_int(c, "v_head_dim", 1, KGEN__DIM_MAX, &l->v_dim);
}

/* null is "none": only a field that is not there is left to the class. */
static kgen_status read_window(kgen__reading *r) {
    const kgen__config *c = r->config;
    int use = !r->type->opt_in;
    r->window = kgen__config_given(c, "sliding_window") ? 0 : r->type->window;
    int64_t again = 0;
    KGEN_TRY(kgen__config_int(c, "sliding_window", 0, 1 << 30, &r->window));
    KGEN_TRY(kgen__config_int(c, "sliding_window_size", 0, 1 << 30, &again));
    if (again && r->window && again != r->window)
        return kgen_fail(c->err, KGEN_E_CONFIG,
                         "sliding_window=%lld, sliding_window_size=%lld: must be equal",
                         (long long)r->window, (long long)again);
    if (again) r->window = again;
    KGEN_TRY(kgen__config_bool(c, "use_sliding_window", &use));
    if (!use) r->window = 0;
    return KGEN_OK;
}

static kgen_status read_softcap(kgen__reading *r) {
    static const char key[] = "attn_logit_softcapping";
    r->common.softcap = kgen__config_given(r->config, key) ? 0 : r->type->softcap;
    return kgen__config_number(r->config, key, 1e-6, 1e6, &r->common.softcap);
}

static kgen_status read_alibi(kgen__reading *r, int64_t hidden) {
    const kgen__config *c = r->config;
    static const char key[] = "position_embedding_type";
    char name[32];
    KGEN_TRY(kgen__config_name(c, kgen__config_field(c, key), key, name, sizeof name));
    KGEN_TRY(kgen__config_bool(c, "alibi", &r->common.alibi));
    r->common.alibi |= r->type->alibi == KGEN__ALIBI_PARTS;
    r->common.alibi |= strcmp(name, "alibi") == 0 || r->type->alibi == KGEN__ALIBI_ALWAYS ||
                       (r->type->alibi == KGEN__ALIBI_BAICHUAN && hidden != 4096);
    return KGEN_OK;
}

/* --- scales -------------------------------------------------------------- */

/* What the rows of model_types.c call for, of a layer of this head_dim. */
typedef struct scale_terms {
    double query_scalar, multiplier;
    int weights, by_layer, mup;
} scale_terms;

static kgen_status read_scale_terms(const kgen__reading *r, scale_terms *t) {
    const kgen__config *c = r->config;
    *t = (scale_terms){r->type->query_scalar, r->type->multiplier, 1, 0, 0};
    switch (r->type->scale) {
    case KGEN__SCALE_QUERY:
        return kgen__config_number(c, "query_pre_attn_scalar", 1e-6, 1e6, &t->query_scalar);
    case KGEN__SCALE_MULTIPLIER:
        return kgen__config_number(c, "attention_multiplier", 1e-6, 1e6, &t->multiplier);
    case KGEN__SCALE_JAIS:
        KGEN_TRY(kgen__config_bool(c, "mup_scale_qk_dot_by_d", &t->mup));
        /* fall through */
    case KGEN__SCALE_GPT2:
        KGEN_TRY(kgen__config_bool(c, "scale_attn_weights", &t->weights));
        return kgen__config_bool(c, "scale_attn_by_inverse_layer_idx", &t->by_layer);
    case KGEN__SCALE_ONE:
        kgen__config_given(c, "query_pre_attn_scalar"); /* of no use there */
        break;
    case KGEN__SCALE_DIM:
    case KGEN__SCALE_PARTS:
        break;
    }
    return KGEN_OK;
}

static double scale_of(const kgen__reading *r, const scale_terms *t, int64_t i) {
    double dim = (double)r->model->layer[i].head_dim, plain = 1 / sqrt(dim);
    switch (r->type->scale) {
    case KGEN__SCALE_QUERY:
        return t->query_scalar > 0 ? 1 / sqrt(t->query_scalar) : plain;
    case KGEN__SCALE_MULTIPLIER:
        return t->multiplier > 0 ? t->multiplier : plain;
    case KGEN__SCALE_ONE:
        return 1;
    case KGEN__SCALE_GPT2:
    case KGEN__SCALE_JAIS:
        return (t->weights ? t->mup ? 1 / dim : plain : 1) / (t->by_layer ? (double)i + 1 : 1);
    case KGEN__SCALE_PARTS:
        return r->common.scale > 0 ? r->common.scale : plain;
    case KGEN__SCALE_DIM:
        break;
    }
    return plain;
}

static kgen_status set_scales(kgen__reading *r) {
    scale_terms terms;
    KGEN_TRY(read_scale_terms(r, &terms));
    for (int64_t i = 0; i < r->model->count; i++) {
        kgen__layer *l = &r->model->layer[i];
        l->scale = scale_of(r, &terms, i);
        if (l->mix == KGEN__MIX_MLA && r->yarn > 0) l->scale *= r->yarn * r->yarn;
    }
    return KGEN_OK;
}

/* --- Gated DeltaNet and KDA ---------------------------------------------- */

/* The engines' convolution of KDA is always followed by silu, its norm's gate
 * is always a sigmoid. Other models name both. */
static kgen_status read_gate(const kgen__config *c, kgen__delta *d) {
    char gate[32];
    json_t *act = kgen__config_field(c, "hidden_act");
    if (act) KGEN_TRY(kgen__config_name(c, act, "hidden_act", d->act, sizeof d->act));
    KGEN_TRY(kgen__config_name(c, kgen__config_field(c, "output_gate_type"), "output_gate_type",
                               gate, sizeof gate));
    d->sigmoid = strcmp(gate, "sigmoid") == 0;
    if (gate[0] && !d->sigmoid && strcmp(gate, "silu") && strcmp(gate, "swish"))
        return kgen_fail(c->err, KGEN_E_CONFIG,
                         "output_gate_type=%s: must be silu, swish or sigmoid", gate);
    return KGEN_OK;
}

static kgen_status read_delta_dims(const kgen__config *c, kgen__delta *d) {
    if (c->text != c->root) { /* all classes leave these to a part */
        d->k_heads = 16;
        d->v_heads = 32;
        d->k_dim = d->v_dim = 128;
        d->conv = 4;
    }
    KGEN_TRY(kgen__config_int(c, "linear_num_key_heads", 1, KGEN__HEADS_MAX, &d->k_heads));
    KGEN_TRY(kgen__config_int(c, "linear_num_value_heads", 1, KGEN__HEADS_MAX, &d->v_heads));
    KGEN_TRY(kgen__config_int(c, "linear_key_head_dim", 1, 4096, &d->k_dim));
    KGEN_TRY(kgen__config_int(c, "linear_value_head_dim", 1, 4096, &d->v_dim));
    return kgen__config_int(c, "linear_conv_kernel_dim", 1, 64, &d->conv);
}

/* In an object of its own, or under linear_*, as newer files have it. */
static kgen_status read_kda(const kgen__config *c, kgen__delta *d) {
    kgen__config part = *c;
    int found;
    KGEN_TRY(kgen__config_part(c, "linear_attn_config", &part, &found));
    const char *heads = found ? "num_heads" : "linear_num_heads",
               *dim = found ? "head_dim" : "linear_head_dim",
               *conv = found ? "short_conv_kernel_size" : "linear_conv_kernel_dim";
    KGEN_TRY(kgen__config_int(&part, heads, 1, KGEN__HEADS_MAX, &d->v_heads));
    KGEN_TRY(kgen__config_int(&part, dim, 1, 4096, &d->v_dim));
    KGEN_TRY(kgen__config_int(&part, conv, 1, 64, &d->conv));
    KGEN_TRY(kgen__config_number(&part, "gate_lower_bound", -1e6, -1e-6, &d->bound));
    d->gate = d->bound < 0 ? KGEN_GATE_KDA_BOUND : KGEN_GATE_KDA;
    d->sigmoid = 1;
    d->k_heads = d->v_heads;
    d->k_dim = d->v_dim;
    return KGEN_OK;
}

static kgen_status read_delta(const kgen__reading *r) {
    kgen__delta *d = &r->model->delta;
    d->layout = r->type->rows;
    if (!d->layout) return KGEN_OK;
    d->norm_eps = 1e-6;
    memcpy(d->act, "silu", sizeof "silu");
    KGEN_TRY(kgen__config_number(r->config, "rms_norm_eps", 0, 1, &d->norm_eps));
    if (d->layout == KGEN_ROWS_PRESPLIT) return read_kda(r->config, d);
    KGEN_TRY(read_delta_dims(r->config, d));
    return read_gate(r->config, d);
}

/* --- all ----------------------------------------------------------------- */

/* YaRN multiplies the logits of long contexts by the square of this. */
static kgen_status read_yarn(const kgen__config *c, double *out) {
    kgen__config part;
    double factor = 1, all_dim = 0;
    int found;
    *out = 1;
    KGEN_TRY(kgen__config_part(c, "rope_scaling", &part, &found));
    if (!found) return KGEN_OK;
    KGEN_TRY(kgen__config_number(&part, "factor", 1e-6, 1e6, &factor));
    KGEN_TRY(kgen__config_number(&part, "mscale_all_dim", 0, 1e3, &all_dim));
    if (factor > 1) *out = 0.1 * all_dim * log(factor) + 1;
    return KGEN_OK;
}

/* What latent attention has beside the rank that tells it. Before queries are absorbed
 * each head has keys of its own, of which a part carries the position. */
static kgen_status read_latent(kgen__reading *r) {
    const kgen__config *c = r->config;
    int64_t nope = 0;
    kgen__config_given(c, "q_lora_rank");
    kgen__config_given(c, "qk_head_dim");
    KGEN_TRY(kgen__config_int(c, "qk_nope_head_dim", 0, KGEN__DIM_MAX, &nope));
    KGEN_TRY(kgen__config_int(c, "qk_rope_head_dim", 0, KGEN__DIM_MAX, &r->model->rope_dim));
    if (!r->model->kv_lora_rank || !r->model->rope_dim) return KGEN_OK;
    r->common.head_dim = nope + r->model->rope_dim;
    r->common.kv_heads = r->common.heads;
    return read_yarn(c, &r->yarn);
}

/* An indexer picks rows of a latent cache. */
static kgen_status read_lists(kgen__reading *r) {
    kgen__model *m = r->model;
    if (r->common.mix != KGEN__MIX_SPARSE || !m->kv_lora_rank) return KGEN_OK;
    KGEN_TRY(kgen__config_int(r->config, "index_topk", 0, KGEN__DIM_MAX, &m->topk));
    if (!m->topk) return KGEN_OK;
    KGEN_TRY(kgen__config_int(r->config, "index_head_dim", 0, KGEN__DIM_MAX, &m->index_dim));
    KGEN_TRY(kgen__config_int(r->config, "index_n_heads", 0, KGEN__DIM_MAX, &m->index_heads));
    kgen__config_given(r->config, "indexer_rope_interleave");
    r->common.mix = KGEN__MIX_MLA;
    return KGEN_OK;
}

static kgen_status read_common(kgen__reading *r) {
    const kgen__config *c = r->config;
    kgen__model *m = r->model;
    int64_t hidden;
    KGEN_TRY(kgen__config_int(c, "kv_lora_rank", 0, KGEN__DIM_MAX, &m->kv_lora_rank));
    r->common.mix = m->kv_lora_rank && !r->dense ? KGEN__MIX_MLA : KGEN__MIX_ATTENTION;
    if (r->type->common && !r->dense) r->common.mix = r->type->common;
    KGEN_TRY(read_lists(r));
    r->common.sinks = r->type->sinks;
    KGEN_TRY(read_counts(r, &hidden));
    KGEN_TRY(read_kv_heads(r));
    KGEN_TRY(read_head_dim(r, hidden));
    if (r->common.mix == KGEN__MIX_MLA) KGEN_TRY(read_latent(r));
    KGEN_TRY(read_window(r));
    KGEN_TRY(read_softcap(r));
    KGEN_TRY(read_alibi(r, hidden));
    return r->type->kv == KGEN__KV_PARTS ? read_parts(r) : KGEN_OK;
}

static kgen_status read_layers(kgen__reading *r) {
    KGEN_TRY(read_dtypes(r->config, r->model));
    KGEN_TRY(read_common(r));
    KGEN_TRY(read_delta(r));
    KGEN_TRY(kgen__layers_read(r));
    KGEN_TRY(kgen__recurrent_read(r));
    if (kgen__model_layers(r->model, KGEN__MIX_CHUNKED))
        KGEN_TRY(kgen__config_int(r->config, "attention_chunk_size", 1, 1 << 30, &r->model->chunk));
    KGEN_TRY(set_scales(r));
    int planned = kgen__model_layers(r->model, KGEN__MIX_ATTENTION) ||
                  kgen__model_layers(r->model, KGEN__MIX_DELTA) || kgen__latent_is_known(r->model);
    return planned ? kgen__unread_check(r) : KGEN_OK;
}

/* The language model of a config with several. */
static kgen_status find_text(kgen__config *c) {
    static const char *const outer[] = {"thinker_config"};
    static const char *const inner[] = {"text_config", "llm_config", "language_config"};
    kgen__config part;
    int found;
    c->text = c->root;
    KGEN_TRY(kgen__config_part(c, outer[0], &part, &found));
    if (found) c->text = part.text;
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        KGEN_TRY(kgen__config_part(c, inner[i], &part, &found));
        if (!found) continue;
        c->text = part.text;
        return KGEN_OK;
    }
    return KGEN_OK;
}

/* type: names the row; the outer one is shown. */
static kgen_status read_type(const kgen__config *c, kgen__model *m, char *type, size_t size) {
    json_t *outer = json_object_get(c->root, "model_type");
    KGEN_TRY(kgen__config_name(c, outer, "model_type", m->type, sizeof m->type));
    KGEN_TRY(kgen__config_name(c, kgen__config_field(c, "model_type"), "model_type", type, size));
    if (!type[0] && c->text != c->root && m->type[0]) {
        const char *inner = kgen__model_type_inner(m->type);
        snprintf(type, size, "%s", inner ? inner : m->type);
    }
    if (!type[0]) return kgen__config_missing(c, "model_type", "");
    if (!m->type[0]) snprintf(m->type, sizeof m->type, "%s", type);
    return KGEN_OK;
}

static kgen_status check_type(const kgen__reading *r, const char *type) {
    const char *what = kgen__model_type_refused(type);
    int both = 0;
    if (what) return kgen_fail(r->config->err, KGEN_E_UNSUPPORTED, "model_type=%s: %s", type, what);
    if (!r->type)
        return kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                         "model_type=%s is not known to this version; --assume dense takes its "
                         "layers as plain causal attention",
                         type);
    KGEN_TRY(kgen__config_bool(r->config, "is_encoder_decoder", &both));
    return both ? kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                            "is_encoder_decoder=true: this version has no cross attention")
                : KGEN_OK;
}

static kgen_status read_model(kgen__config *c, kgen__model *m, int dense) {
    static const kgen__model_type plain = {.type = "dense", .rule = kgen__rule_full};
    kgen__reading r = {.config = c, .model = m, .dense = dense};
    char type[sizeof m->type];
    KGEN_TRY(find_text(c));
    KGEN_TRY(read_type(c, m, type, sizeof type));
    r.type = kgen__model_type_find(type);
    if (!dense)
        KGEN_TRY(check_type(&r, type));
    else if (!r.type)
        r.type = &plain;
    return read_layers(&r);
}

kgen_status kgen__model_read(kgen__model *out, const char *json, size_t size, int dense,
                             kgen_error *err) {
    kgen__fields_read read = {.count = 0};
    kgen__config c = {.read = &read, .err = err};
    memset(out, 0, sizeof *out);
    KGEN_TRY(kgen__config_parse(&c.root, json, size, err));
    kgen_status status = read_model(&c, out, dense);
    json_decref(c.root);
    return status;
}

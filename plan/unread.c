/* Fields that nobody asked for. One whose name speaks of how tokens are mixed
 * is refused by name: passed over, the plan would be wrong in silence. */
#include <stdio.h>
#include <string.h>

#include "model_types.h"

/* clang-format off */
static const char *const words[] = {
    "alibi", "attention", "attn", "bidirectional", "block_config", "block_type", "causal", "chunk",
    "cla_", "use_cla", "use_mla", "compress", "conv", "cross", "decoder_layers", "encoder",
    "global", "head", "hybrid", "index_", "indexer", "kv_channels", "kv_lora", "kv_shar",
    "layer_ids", "layer_type", "layers_block", "latent", "local", "lora_rank", "lru", "mamba",
    "mixer", "multi_query", "no_rope", "num_kv", "pattern", "prefix_lm", "query_group",
    "query_pre", "recurrent", "retention", "sink", "sliding", "softcap", "soft_cap", "sparse",
    "ssm", "state_size", "swa", "window",
};

/* Names with such a word that change no kernel of attention or of its cache. */
static const char *const harmless[] = {
    /* weights and norms, and what is done to queries and keys before they come */
    "attention_bias", "attention_out_bias", "attention_qkv_bias", "attention_in_multiplier",
    "attention_out_multiplier", "attention_value_scale", "attn_temperature_tuning", "attn_scale",
    "apply_query_key_layer_scaling", "conv_bias", "use_conv_bias", "use_logn_attn",
    "attn_rotary_emb", "offset_alibi", "parallel_attn", "local_rope_theta", "rope_local_base_freq",
    "swa_rope_theta",
    /* after attention: gates, residuals, other layers of the model */
    "attn_output_gate", "attn_res_block_size", "use_head_wise_attn_gate",
    "activation_sparsity_pattern", "final_logit_softcapping", "cla_share_factor",
    "latent_moe_use_norm", "moe_latent_size", "moe_layer_pattern", "mlp_layer_types",
    "decoder_sparse_step", "num_local_experts", "lm_head_bias", "lm_head_multiplier",
    "full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor",
    "linear_attn_beta_factor", "layernorm_full_attention_alpha", "layernorm_full_attention_beta",
    "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", "ssm_multipliers",
    "ssm_in_multiplier", "ssm_out_multiplier",
    /* recurrent blocks, beside the state that recurrent.c reads */
    "chunk_size", "mamba_chunk_size", "mamba_conv_bias", "mamba_dt_init_floor", "mamba_dt_limit",
    "mamba_dt_max", "mamba_dt_min", "mamba_dt_rank", "mamba_hidden_act", "mamba_inner_layernorms",
    "mamba_norm_before_gate", "mamba_use_mlp", "mamba_proj_bias", "mamba_rms_norm",
    "use_mamba_kernels", "conv_dim", "conv_dim_out", "conv_use_xavier_init",
    /* draft layers, which are planned from a config of their own */
    "mtp_hybrid_override_pattern", "mtp_layers_block_type",
    /* training, and how a program computes the same */
    "attention_dropout", "attention_probs_dropout_prob", "attn_dropout_checkpoint",
    "attn_dropout_prob", "attn_pdrop", "attention_softmax_in_fp32",
    "scale_attention_softmax_in_fp32", "reorder_and_upcast_attn", "chunk_size_feed_forward",
    "use_flash_attn", "_attn_implementation_autoset", "attn_implementation",
    "encoder_no_repeat_ngram_size", "_attn_implementation",
};

/* Values that say "as usual" of fields with such a word. */
static const struct {
    const char *key, *value;
} usual[] = {
    {"use_bidirectional_attention", "vision"}, /* of images, which are prefilled */
    {"attention_type", "full"},
    {"kv_cache_dtype", "auto"},
};
/* clang-format on */

static int is_neutral(json_t *value) {
    if (!value || json_is_null(value) || json_is_false(value)) return 1;
    if (json_is_number(value)) return json_number_value(value) == 0;
    if (json_is_string(value)) return json_string_length(value) == 0;
    if (json_is_array(value)) return !json_array_size(value);
    return json_is_object(value) && !json_object_size(value);
}

static int was_read(const kgen__fields_read *read, const char *key) {
    for (size_t i = 0; i < read->count; i++)
        if (strcmp(read->names[i], key) == 0) return 1;
    return 0;
}

static int is_harmless(const char *key, json_t *value) {
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
        if (strcmp(harmless[i], key) == 0) return 1;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (strcmp(usual[i].key, key) == 0 && json_is_string(value) &&
            strcmp(usual[i].value, json_string_value(value)) == 0)
            return 1;
    return 0;
}

/* Token ids, and the parts of a model that reads more than text. */
static int is_of_input(const char *key) {
    size_t length = strlen(key);
    static const char *const ends[] = {"_token_id", "_token_index", "vision_config", "audio_config",
                                       "quantization_config"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t end = strlen(ends[i]);
        if (length >= end && strcmp(key + length - end, ends[i]) == 0) return 1;
    }
    return 0;
}

/* Of these, false is what is unusual. */
static int is_true_by_custom(const char *key) {
    static const char *const names[] = {"is_causal", "causal", "scale_attn_weights"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], key) == 0) return 1;
    return 0;
}

static int is_telling(const char *key, json_t *value) {
    if (json_is_boolean(value) && is_true_by_custom(key)) return json_is_false(value);
    if (is_neutral(value) || is_of_input(key) || is_harmless(key, value)) return 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(key, words[i])) return 1;
    return 0;
}

/* A key is shown on a terminal. */
static void show(char *out, size_t size, const char *key) {
    size_t used = 0;
    for (; *key && used + 1 < size; key++) out[used++] = *key > ' ' && *key < 127 ? *key : '?';
    out[used] = 0;
}

static void assume(kgen__model *m, const char *name) {
    size_t used = strlen(m->assumed);
    snprintf(m->assumed + used, sizeof m->assumed - used, "%s%s", used ? ", " : "", name);
}

kgen_status kgen__unread_check(kgen__reading *r) {
    const char *key;
    json_t *value;
    json_object_foreach(r->config->text, key, value) {
        char name[KGEN__FIELD_NAME_MAX];
        if (was_read(r->config->read, key) || !is_telling(key, value)) continue;
        show(name, sizeof name, key);
        if (!r->dense)
            return kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                             "%s: this version does not know what it does in model_type=%s; "
                             "--assume dense passes it over",
                             name, r->model->type);
        assume(r->model, name);
    }
    return KGEN_OK;
}

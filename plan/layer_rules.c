/* Which layer is what: lists that a config spells out, and the rules of the
 * classes that only give a period, an offset or indices. */
#include <stdio.h>
#include <string.h>

#include "model_types.h"

/* What layers are called. OWN: only where the row of the model_type says
 * that it has such layers; ANY_LINEAR: of whatever kind those are. */
static const struct {
    const char *name;
    kgen__mechanism mix;
    enum { ANYWHERE, OWN, ANY_LINEAR } of;
    int sliding;
} kinds[] = {
    {"full_attention", KGEN__MIX_ATTENTION, ANYWHERE, 0},
    {"attention", KGEN__MIX_ATTENTION, ANYWHERE, 0},
    {"sliding_attention", KGEN__MIX_ATTENTION, ANYWHERE, 1},
    {"linear_attention", KGEN__MIX_NONE, ANY_LINEAR, 0},
    {"mamba", KGEN__MIX_MAMBA, OWN, 0},
    {"conv", KGEN__MIX_SHORT_CONV, OWN, 0},
    {"chunked_attention", KGEN__MIX_CHUNKED, ANYWHERE, 0},
    {"indexed_attention", KGEN__MIX_SPARSE, ANYWHERE, 0},
    {"deepseek_sparse_attention", KGEN__MIX_SPARSE, ANYWHERE, 0},
    {"compressed_sparse_attention", KGEN__MIX_SPARSE, ANYWHERE, 0},
    {"heavily_compressed_attention", KGEN__MIX_SPARSE, ANYWHERE, 0},
    {"moe", KGEN__MIX_NONE, ANYWHERE, 0},
    {"mlp", KGEN__MIX_NONE, ANYWHERE, 0},
};

static kgen_status set_sliding(kgen__reading *r, int64_t i) {
    if (!r->window)
        return kgen__config_missing(r->config, "sliding_window",
                                    ", and the model has sliding_attention layers");
    r->model->layer[i].window = r->window;
    return KGEN_OK;
}

/* An attention layer of another kind keeps the common one's heads. */
static kgen_status set_kind(kgen__reading *r, int64_t i, const char *key, const char *name) {
    kgen__layer *layer = &r->model->layer[i];
    for (size_t n = 0; n < sizeof kinds / sizeof kinds[0]; n++) {
        if (strcmp(kinds[n].name, name)) continue;
        int linear = kinds[n].of == ANY_LINEAR;
        kgen__mechanism mix = linear ? r->type->linear : kinds[n].mix;
        if ((linear && !mix) || (kinds[n].of == OWN && mix != r->type->linear)) break;
        if (mix != KGEN__MIX_ATTENTION) layer->mix = mix;
        return kinds[n].sliding ? set_sliding(r, i) : KGEN_OK;
    }
    return kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                     "%s=%s: a layer that this version does not know in model_type=%s", key, name,
                     r->model->type);
}

/* --- lists --------------------------------------------------------------- */

static kgen_status by_names(kgen__reading *r, const char *key, json_t *list) {
    for (int64_t i = 0; i < r->model->count; i++) {
        char entry[48], name[40];
        snprintf(entry, sizeof entry, "%s[%lld]", key, (long long)i);
        KGEN_TRY(kgen__config_name(r->config, json_array_get(list, (size_t)i), entry, name,
                                   sizeof name));
        if (!name[0]) return kgen__config_wrong(r->config, entry, "a name");
        KGEN_TRY(set_kind(r, i, entry, name));
    }
    return KGEN_OK;
}

/* 1 attention, 0 linear attention: MiniMax. */
static kgen_status by_numbers(kgen__reading *r, const char *key, json_t *list) {
    for (int64_t i = 0; i < r->model->count; i++) {
        char entry[48];
        json_t *value = json_array_get(list, (size_t)i);
        snprintf(entry, sizeof entry, "%s[%lld]", key, (long long)i);
        if (!json_is_integer(value)) return kgen__config_wrong(r->config, entry, "0 or 1");
        int64_t number = json_integer_value(value);
        if (number != 0 && number != 1) return kgen__config_wrong(r->config, entry, "0 or 1");
        KGEN_TRY(set_kind(r, i, entry, number ? "full_attention" : "linear_attention"));
    }
    return KGEN_OK;
}

/* A letter a layer: Nemotron-H. */
static kgen_status by_letters(kgen__reading *r, const char *key, json_t *value) {
    static const struct {
        char letter;
        const char *kind;
    } letters[] = {{'M', "mamba"}, {'*', "attention"}, {'-', "mlp"}, {'E', "moe"}};
    const char *text = json_string_value(value);
    if (!text) return kgen__config_wrong(r->config, key, "a text of M, *, - and E");
    if (json_string_length(value) != (size_t)r->model->count)
        return kgen_fail(r->config->err, KGEN_E_CONFIG, "%s: %zu layers, num_hidden_layers=%lld",
                         key, json_string_length(value), (long long)r->model->count);
    for (int64_t i = 0; i < r->model->count; i++) {
        size_t n = 0;
        while (n < 4 && letters[n].letter != text[i]) n++;
        if (n == 4)
            return kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                             "%s: layer %lld is of a kind that this version does not know", key,
                             (long long)i);
        KGEN_TRY(set_kind(r, i, key, letters[n].kind));
    }
    return KGEN_OK;
}

static kgen_status by_letters_of(kgen__reading *r, int *found) {
    static const char key[] = "hybrid_override_pattern";
    json_t *value = kgen__config_field(r->config, key);
    *found = value != NULL;
    return value ? by_letters(r, key, value) : KGEN_OK;
}

/* A config that spells out its layers is believed, whatever its class does. */
static kgen_status by_lists(kgen__reading *r, int *found) {
    static const struct {
        const char *key;
        kgen_status (*read)(kgen__reading *, const char *, json_t *);
    } lists[] = {
        {"layer_types", by_names}, {"layers_block_type", by_names}, {"attn_type_list", by_numbers}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        json_t *list;
        KGEN_TRY(kgen__config_list(r->config, lists[i].key, r->model->count, &list));
        *found = list != NULL;
        if (list) return lists[i].read(r, lists[i].key, list);
    }
    return by_letters_of(r, found);
}

/* --- rules of classes ---------------------------------------------------- */

static kgen_status read_period(kgen__reading *r, int64_t *period) {
    *period = r->type->period;
    return r->type->period_key
               ? kgen__config_int(r->config, r->type->period_key, 1, KGEN__LAYERS_MAX, period)
               : KGEN_OK;
}

/* L is sliding, G is full: EXAONE writes its period so. */
static kgen_status by_pattern_text(kgen__reading *r, const char *text) {
    size_t length = strlen(text);
    if (!length || strspn(text, "LG") != length)
        return kgen__config_wrong(r->config, r->type->period_key, "a number, or letters L and G");
    for (int64_t i = 0; i < r->model->count; i++)
        if (text[(size_t)i % length] == 'L' && r->window) KGEN_TRY(set_sliding(r, i));
    return KGEN_OK;
}

/* Classes whose other layers are linear or chunked say so in their rows. */
static const char *local_kind(const kgen__reading *r) {
    return r->type->linear ? "linear_attention" : "sliding_attention";
}

static kgen_status by_period(kgen__reading *r, int64_t phase) {
    int64_t period;
    const char *key = r->type->period_key;
    json_t *text = key ? kgen__config_field(r->config, key) : NULL;
    if (json_is_string(text)) return by_pattern_text(r, json_string_value(text));
    if (key && !text && kgen__config_given(r->config, key)) return KGEN_OK; /* null: none slides */
    KGEN_TRY(read_period(r, &period));
    if (!r->window && !r->type->linear) return KGEN_OK; /* no window: all are full */
    for (int64_t i = 0; i < r->model->count; i++)
        if ((i + phase) % period) KGEN_TRY(set_kind(r, i, "layer_types", local_kind(r)));
    return KGEN_OK;
}

/* Classes of full layers do nothing with a window: the config means another. */
kgen_status kgen__rule_full(kgen__reading *r) {
    kgen__config_given(r->config, "max_window_layers"); /* of no window */
    return r->window ? kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                                 "sliding_window=%lld: model_type=%s has none that this version "
                                 "knows",
                                 (long long)r->window, r->model->type)
                     : KGEN_OK;
}

kgen_status kgen__rule_windows(kgen__reading *r) {
    if (!r->window) kgen__config_given(r->config, "max_window_layers"); /* of no window */
    for (int64_t i = 0; i < r->model->count && r->window; i++) KGEN_TRY(set_sliding(r, i));
    return KGEN_OK;
}

kgen_status kgen__rule_listed(kgen__reading *r) {
    return kgen__config_missing(r->config, "layer_types",
                                ", and nothing else says which layers are attention");
}

kgen_status kgen__rule_period(kgen__reading *r) { return by_period(r, 1); }
kgen_status kgen__rule_first(kgen__reading *r) { return by_period(r, 0); }

kgen_status kgen__rule_qwen(kgen__reading *r) {
    int64_t first = r->type->period;
    KGEN_TRY(kgen__config_int(r->config, "max_window_layers", 0, KGEN__LAYERS_MAX, &first));
    for (int64_t i = first; i < r->model->count && r->window; i++) KGEN_TRY(set_sliding(r, i));
    return KGEN_OK;
}

/* Every other one of the first layers. */
kgen_status kgen__rule_qwen2_moe(kgen__reading *r) {
    int64_t end = 28;
    KGEN_TRY(kgen__config_int(r->config, "max_window_layers", 0, KGEN__LAYERS_MAX, &end));
    for (int64_t i = 0; i < r->model->count && i < end && r->window; i += 2)
        KGEN_TRY(set_sliding(r, i));
    return KGEN_OK;
}

/* 1: the layer rotates. Llama 4 chunks those, SmolLM3 may give the others a window. */
kgen_status kgen__rule_no_rope(kgen__reading *r) {
    json_t *list = NULL, *given = kgen__config_field(r->config, "no_rope_layers");
    int64_t period;
    KGEN_TRY(read_period(r, &period));
    if (!json_is_array(given) || json_array_size(given)) /* []: by the period */
        KGEN_TRY(kgen__config_list(r->config, "no_rope_layers", r->model->count, &list));
    for (int64_t i = 0; i < r->model->count; i++) {
        json_t *entry = list ? json_array_get(list, (size_t)i) : NULL;
        if (list && !json_is_integer(entry))
            return kgen__config_wrong(r->config, "no_rope_layers", "a list of 0 and 1");
        int rotates = list ? json_integer_value(entry) != 0 : (i + 1) % period != 0;
        if (r->type->opt_in && !rotates && r->window) KGEN_TRY(set_sliding(r, i));
        if (!r->type->opt_in && rotates) r->model->layer[i].mix = KGEN__MIX_CHUNKED;
    }
    return KGEN_OK;
}

/* The last layers read the cache of earlier ones. */
static kgen_status share_last(kgen__reading *r) {
    int64_t shared = 0;
    KGEN_TRY(kgen__config_int(r->config, "num_kv_shared_layers", 0, r->model->count, &shared));
    for (int64_t i = r->model->count - shared; i < r->model->count; i++)
        r->model->layer[i].shared = 1;
    return KGEN_OK;
}

kgen_status kgen__rule_offset(kgen__reading *r) {
    int64_t period = r->type->period, offset = 4;
    KGEN_TRY(kgen__config_int(r->config, "attn_layer_period", 1, KGEN__LAYERS_MAX, &period));
    KGEN_TRY(kgen__config_int(r->config, "attn_layer_offset", 0, period - 1, &offset));
    for (int64_t i = 0; i < r->model->count; i++)
        if (i % period != offset) KGEN_TRY(set_kind(r, i, "attn_layer_period", "linear_attention"));
    return KGEN_OK;
}

/* Layers of a list, once each. base: the number of the first layer. */
static kgen_status mark_listed(const kgen__config *c, const char *key, int64_t count, int base,
                               char *marked, int *found) {
    json_t *list = kgen__config_field(c, key);
    memset(marked, 0, (size_t)count);
    *found = list != NULL;
    if (!list) return KGEN_OK;
    if (!json_is_array(list)) return kgen__config_wrong(c, key, "a list");
    for (size_t n = 0; n < json_array_size(list); n++) {
        json_t *entry = json_array_get(list, n);
        int64_t layer = json_is_integer(entry) ? json_integer_value(entry) - base : -1;
        if (layer < 0 || layer >= count || marked[layer])
            return kgen_fail(c->err, KGEN_E_CONFIG,
                             "%s[%zu]: a layer from %d to %lld, once, expected", key, n, base,
                             (long long)(count - 1 + base));
        marked[layer] = 1;
    }
    return KGEN_OK;
}

/* The listed layers are attention, the others of the row's linear kind. */
kgen_status kgen__rule_indices(kgen__reading *r) {
    char marked[KGEN__LAYERS_MAX];
    int found;
    const char *key = r->type->period_key;
    KGEN_TRY(mark_listed(r->config, key, r->model->count, 0, marked, &found));
    if (!found) return kgen__config_missing(r->config, key, ", and there are no layer_types");
    for (int64_t i = 0; i < r->model->count; i++)
        if (!marked[i]) r->model->layer[i].mix = r->type->linear;
    return KGEN_OK;
}

/* Layer numbers begin with 1; layers that are not listed are full. */
kgen_status kgen__rule_kda(kgen__reading *r) {
    kgen__config part;
    char marked[KGEN__LAYERS_MAX];
    int found;
    KGEN_TRY(kgen__config_part(r->config, "linear_attn_config", &part, &found));
    if (!found) return kgen__config_missing(r->config, "linear_attn_config", "");
    KGEN_TRY(mark_listed(&part, "kda_layers", r->model->count, 1, marked, &found));
    if (!found) return kgen__config_missing(r->config, "linear_attn_config.kda_layers", "");
    for (int64_t i = 0; i < r->model->count; i++)
        if (marked[i]) r->model->layer[i].mix = KGEN__MIX_DELTA;
    return KGEN_OK;
}

/* MiMo: what its sliding layers have of their own. The window counts the tokens
 * before the query, and has a second name. */
static kgen_status read_swa(kgen__reading *r, kgen__layer *local) {
    int64_t before = 0, chunk = 0;
    local->kv_heads *= 2;
    local->sinks = 1;
    const struct {
        const char *key;
        int64_t high, *out;
    } rows[] = {{"swa_num_attention_heads", KGEN__HEADS_MAX, &local->heads},
                {"swa_num_key_value_heads", KGEN__HEADS_MAX, &local->kv_heads},
                {"swa_head_dim", KGEN__DIM_MAX, &local->head_dim},
                {"swa_v_head_dim", KGEN__DIM_MAX, &local->v_dim},
                {"sliding_window_size", 1 << 30, &before},
                {"attention_chunk_size", 1 << 30, &chunk}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        KGEN_TRY(kgen__config_int(r->config, rows[i].key, 1, rows[i].high, rows[i].out));
    KGEN_TRY(kgen__config_bool(r->config, "add_swa_attention_sink_bias", &local->sinks));
    if (before) r->window = before + 1;
    return chunk && chunk + 1 != r->window
               ? kgen_fail(r->config->err, KGEN_E_UNSUPPORTED,
                           "attention_chunk_size=%lld: this version knows it as "
                           "sliding_window_size",
                           (long long)chunk)
               : KGEN_OK;
}

/* 1: sliding, with heads, dims and sinks of its own. */
kgen_status kgen__rule_mimo(kgen__reading *r) {
    static const char key[] = "hybrid_layer_pattern";
    json_t *list;
    kgen__layer local = r->common;
    int full_sinks = 0;
    KGEN_TRY(read_swa(r, &local));
    KGEN_TRY(kgen__config_bool(r->config, "add_full_attention_sink_bias", &full_sinks));
    KGEN_TRY(kgen__config_list(r->config, key, r->model->count, &list));
    if (!list && !kgen__config_given(r->config, "layer_types"))
        return kgen__config_missing(r->config, key, "");
    for (int64_t i = 0; i < r->model->count; i++) {
        json_t *entry = list ? json_array_get(list, (size_t)i) : NULL;
        if (list && !json_is_integer(entry))
            return kgen__config_wrong(r->config, key, "a list of 0 and 1");
        int slides = list ? json_integer_value(entry) != 0 : r->model->layer[i].window > 0;
        r->model->layer[i].sinks = full_sinks;
        if (!slides) continue;
        r->model->layer[i] = local;
        KGEN_TRY(set_sliding(r, i));
    }
    return KGEN_OK;
}

/* What a block's attention may be beside plain: all must be off. */
static kgen_status check_block(const kgen__config *attn, size_t index) {
    static const char *const off[] = {"window_length",
                                      "num_sink_tokens",
                                      "sparsify",
                                      "unshifted_sink",
                                      "use_prefill_window_in_sink_attention",
                                      "llama4"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        json_t *value = kgen__config_field(attn, off[i]);
        if (value && !json_is_false(value))
            return kgen_fail(attn->err, KGEN_E_UNSUPPORTED,
                             "block_configs[%zu].attention.%s: this version does not know it",
                             index, off[i]);
    }
    return KGEN_OK;
}

kgen_status kgen__rule_blocks(kgen__reading *r) {
    json_t *list;
    KGEN_TRY(kgen__config_list(r->config, "block_configs", r->model->count, &list));
    if (!list) return kgen__config_missing(r->config, "block_configs", "");
    for (int64_t i = 0; i < r->model->count; i++) {
        kgen__layer *layer = &r->model->layer[i];
        kgen__config block = {r->config->root, json_array_get(list, (size_t)i), NULL,
                              r->config->err},
                     attn;
        int found, none = 0, linear = 0;
        int64_t group = 0;
        KGEN_TRY(kgen__config_part(&block, "attention", &attn, &found));
        if (!found) return kgen__config_missing(r->config, "block_configs[].attention", "");
        KGEN_TRY(check_block(&attn, (size_t)i));
        KGEN_TRY(kgen__config_bool(&attn, "no_op", &none));
        KGEN_TRY(kgen__config_bool(&attn, "replace_with_linear", &linear));
        KGEN_TRY(kgen__config_int(&attn, "n_heads_in_group", 1, layer->heads, &group));
        if (none || linear)
            layer->mix = KGEN__MIX_NONE;
        else if (!group)
            return kgen__config_missing(r->config, "block_configs[].attention.n_heads_in_group",
                                        "");
        else
            layer->kv_heads = layer->heads / group;
    }
    return KGEN_OK;
}

kgen_status kgen__rule_cross(kgen__reading *r) {
    char marked[KGEN__LAYERS_MAX];
    int found;
    KGEN_TRY(mark_listed(r->config, "cross_attention_layers", r->model->count, 0, marked, &found));
    if (!found) return kgen__config_missing(r->config, "cross_attention_layers", "");
    for (int64_t i = 0; i < r->model->count; i++)
        if (marked[i]) r->model->layer[i].mix = KGEN__MIX_CROSS;
    return KGEN_OK;
}

kgen_status kgen__rule_beside(kgen__reading *r) {
    for (int64_t i = 0; i < r->model->count; i++) r->model->layer[i].mamba = 1;
    return KGEN_OK;
}

/* "local" layers see window_size tokens. */
kgen_status kgen__rule_neo(kgen__reading *r) {
    json_t *list;
    r->window = 256;
    kgen__config_given(r->config, "attention_types"); /* the same, folded up */
    KGEN_TRY(kgen__config_int(r->config, "window_size", 1, 1 << 30, &r->window));
    KGEN_TRY(kgen__config_list(r->config, "attention_layers", r->model->count, &list));
    if (!list) return kgen__config_missing(r->config, "attention_layers", "");
    for (int64_t i = 0; i < r->model->count; i++) {
        const char *name = json_string_value(json_array_get(list, (size_t)i));
        int local = name && strcmp(name, "local") == 0;
        if (!local && (!name || strcmp(name, "global")))
            return kgen__config_wrong(r->config, "attention_layers", "a list of local and global");
        if (local) KGEN_TRY(set_sliding(r, i));
    }
    return KGEN_OK;
}

/* Sliding layers have query heads of their own. */
kgen_status kgen__rule_step(kgen__reading *r) {
    kgen__config part;
    int found;
    int64_t heads = r->common.heads;
    KGEN_TRY(kgen__config_part(r->config, "attention_other_setting", &part, &found));
    if (found) KGEN_TRY(kgen__config_int(&part, "num_attention_heads", 1, KGEN__HEADS_MAX, &heads));
    KGEN_TRY(
        kgen__config_int(r->config, "num_sliding_attention_heads", 1, KGEN__HEADS_MAX, &heads));
    for (int64_t i = 0; i < r->model->count; i++)
        if (r->model->layer[i].window) r->model->layer[i].heads = heads;
    return KGEN_OK;
}

/* --- all ----------------------------------------------------------------- */

/* Full layers of Gemma 4 have a head_dim, and with attention_k_eq_v KV heads, of
 * their own. */
static kgen_status set_global(kgen__reading *r) {
    int64_t dim = r->type->global_head_dim, kv_heads = 0;
    int equal = 0;
    KGEN_TRY(kgen__config_int(r->config, "global_head_dim", 1, KGEN__DIM_MAX, &dim));
    KGEN_TRY(
        kgen__config_int(r->config, "num_global_key_value_heads", 1, KGEN__HEADS_MAX, &kv_heads));
    KGEN_TRY(kgen__config_bool(r->config, "attention_k_eq_v", &equal));
    for (int64_t i = 0; i < r->model->count; i++) {
        kgen__layer *layer = &r->model->layer[i];
        if (layer->mix != KGEN__MIX_ATTENTION || layer->window) continue;
        if (dim) layer->head_dim = layer->v_dim = dim;
        if (kv_heads && equal) layer->kv_heads = kv_heads;
    }
    return KGEN_OK;
}

/* These say more than the names of the layers do. */
static int adds_to_lists(kgen__layer_rule rule) {
    return rule == kgen__rule_step || rule == kgen__rule_beside || rule == kgen__rule_mimo;
}

/* Where the layers are listed, what else tells them apart repeats it. */
static void pass_over(const kgen__reading *r) {
    static const char *const keys[] = {
        "no_rope_layers",          "no_rope_layer_interval",    "full_attn_idxs",
        "attn_layer_indices",      "attn_layer_period",         "attn_layer_offset",
        "max_window_layers",       "sliding_window_pattern",    "_sliding_window_pattern",
        "full_attention_interval", "global_attn_every_n_layers"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        kgen__config_given(r->config, keys[i]);
}

kgen_status kgen__layers_read(kgen__reading *r) {
    int found;
    for (int64_t i = 0; i < r->model->count; i++) r->model->layer[i] = r->common;
    if (r->dense) return KGEN_OK;
    KGEN_TRY(by_lists(r, &found));
    if (found) pass_over(r);
    if (!found || adds_to_lists(r->type->rule)) KGEN_TRY(r->type->rule(r));
    KGEN_TRY(share_last(r));
    return set_global(r);
}

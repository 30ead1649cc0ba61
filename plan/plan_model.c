#include "plan_model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX_BYTES = 4 << 20, MAX_LAYERS = 1024, MAX_HEADS = 1024, MAX_DIM = 1 << 20 };

typedef struct reader {
    json_t *root; /* the whole file */
    json_t *text; /* the language model's part, or root */
    kgen_error *err;
} reader;

/* What a family's config leaves unsaid: Hugging Face's defaults. Layers with
 * (index + 1) % period == 0 are full, the others are of the kind `local`;
 * period 0: all are sliding where a window is given, else full. */
typedef struct family_row {
    const char *type; /* model_type without "_text" and "_moe" */
    int64_t head_dim; /* 0: hidden_size / num_attention_heads */
    kgen__layer_kind local;
    const char *period_key;
    int64_t period;
    int64_t window;      /* sliding layers, when the config is silent */
    double query_scalar; /* softmax scale is this ^ -0.5; 0: head_dim */
    double softcap;
    int sinks;
    int window_opt_in;      /* sliding_window counts only with use_sliding_window */
    kgen_layout gdn_layout; /* of linear layers' in-projection, 0: not GDN */
} family_row;

#define FULL KGEN__LAYER_FULL
#define SLIDING KGEN__LAYER_SLIDING
#define CHUNKED KGEN__LAYER_CHUNKED
#define LINEAR KGEN__LAYER_LINEAR

static const family_row families[] = {
    {"llama", 0, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"llama4", 128, CHUNKED, "no_rope_layer_interval", 4, 0, 0, 0, 0, 0, 0},
    {"mistral", 0, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"mixtral", 0, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"qwen2", 0, FULL, NULL, 0, 0, 0, 0, 0, 1, 0},
    {"qwen3", 128, FULL, NULL, 0, 0, 0, 0, 0, 1, 0},
    {"qwen3_next", 256, LINEAR, "full_attention_interval", 4, 0, 0, 0, 0, 1, KGEN_ROWS_INTERLEAVED},
    {"qwen3_5", 256, LINEAR, "full_attention_interval", 4, 0, 0, 0, 0, 1, KGEN_ROWS_FLAT},
    {"kimi_linear", 0, FULL, NULL, 0, 0, 0, 0, 0, 0, KGEN_ROWS_PRESPLIT},
    {"gemma", 256, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"gemma2", 256, SLIDING, "sliding_window_pattern", 2, 4096, 256, 50, 0, 0, 0},
    {"gemma3", 256, SLIDING, "sliding_window_pattern", 6, 4096, 256, 0, 0, 0, 0},
    {"gpt_oss", 64, SLIDING, "sliding_window_pattern", 2, 128, 0, 0, 1, 0, 0},
    {"phi3", 0, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"glm4", 128, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"granite", 0, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"minimax_m2", 128, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"deepseek_v2", 128, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
    {"deepseek_v3", 128, FULL, NULL, 0, 0, 0, 0, 0, 0, 0},
};

/* clang-format off */
static const struct {
    const char *name;
    kgen__layer_kind kind;
} layer_names[] = {
    {"full_attention", FULL},     {"sliding_attention", SLIDING}, {"chunked_attention", CHUNKED},
    {"linear_attention", LINEAR}, {"attention", FULL},
};
/* clang-format on */

static int is_name(const char *s, size_t length) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return length > 0 && strlen(s) == length && strspn(s, allowed) == length;
}

/* JSON null means the same as a missing field. */
static json_t *field(const reader *r, const char *key) {
    json_t *value = json_object_get(r->text, key);
    return json_is_null(value) ? NULL : value;
}

static kgen_status wrong_type(const reader *r, const char *key, const char *expected) {
    return kgen_fail(r->err, KGEN_E_CONFIG, "%s: %s expected", key, expected);
}

static kgen_status read_int(const reader *r, const char *key, int64_t low, int64_t high,
                            int64_t *out) {
    json_t *value = field(r, key);
    if (!value) return KGEN_OK;
    if (!json_is_integer(value)) return wrong_type(r, key, "an integer");
    int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return kgen_fail(r->err, KGEN_E_CONFIG, "%s=%lld: must be %lld to %lld", key,
                         (long long)number, (long long)low, (long long)high);
    *out = number;
    return KGEN_OK;
}

static kgen_status read_number(const reader *r, const char *key, double low, double high,
                               double *out) {
    json_t *value = field(r, key);
    if (!value) return KGEN_OK;
    if (!json_is_number(value)) return wrong_type(r, key, "a number");
    double number = json_number_value(value);
    if (!isfinite(number) || number < low || number > high)
        return kgen_fail(r->err, KGEN_E_CONFIG, "%s=%g: must be %g to %g", key, number, low, high);
    *out = number;
    return KGEN_OK;
}

static kgen_status read_bool(const reader *r, const char *key, int *out) {
    json_t *value = field(r, key);
    if (!value) return KGEN_OK;
    if (!json_is_boolean(value)) return wrong_type(r, key, "true or false");
    *out = json_is_true(value);
    return KGEN_OK;
}

/* A name short enough to print, and safe on a terminal. "" when missing. */
static kgen_status read_name(const reader *r, json_t *value, const char *key, char *out,
                             size_t size) {
    out[0] = 0;
    if (!value || json_is_null(value)) return KGEN_OK;
    size_t length = json_string_length(value);
    if (!json_is_string(value) || length >= size || !is_name(json_string_value(value), length))
        return kgen_fail(r->err, KGEN_E_CONFIG, "%s: a name of at most %zu letters, digits, _ - .",
                         key, size - 1);
    memcpy(out, json_string_value(value), length + 1);
    return KGEN_OK;
}

/* Looked up in the language model's part first, then in the whole file. */
static json_t *outer_field(const reader *r, const char *key) {
    json_t *value = field(r, key);
    return value ? value : json_object_get(r->root, key);
}

static void strip_suffix(char *name, const char *suffix) {
    size_t length = strlen(name), cut = strlen(suffix);
    if (length > cut && strcmp(name + length - cut, suffix) == 0) name[length - cut] = 0;
}

static const family_row *family_of(const char *model_type) {
    char name[64];
    snprintf(name, sizeof name, "%s", model_type);
    strip_suffix(name, "_text");
    strip_suffix(name, "_moe");
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].type, name) == 0) return &families[i];
    return NULL;
}

/* float32 checkpoints are served in bf16. */
static kgen_status dtype_of(const reader *r, const char *key, const char *name, kgen_dtype *out) {
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
    return kgen_fail(r->err, KGEN_E_CONFIG, "%s=%s: must be bfloat16, float16 or float32", key,
                     name);
}

static kgen_status read_dtypes(const reader *r, kgen__model *m) {
    char name[32];
    const char *key = outer_field(r, "torch_dtype") ? "torch_dtype" : "dtype";
    m->dtype = KGEN_DTYPE_BF16;
    KGEN_TRY(read_name(r, outer_field(r, key), key, name, sizeof name));
    if (name[0]) KGEN_TRY(dtype_of(r, key, name, &m->dtype));
    if (m->dtype == KGEN_DTYPE_F32) m->dtype = KGEN_DTYPE_BF16;

    KGEN_TRY(read_name(r, field(r, "mamba_ssm_dtype"), "mamba_ssm_dtype", name, sizeof name));
    return name[0] ? dtype_of(r, "mamba_ssm_dtype", name, &m->gdn_state) : KGEN_OK;
}

static kgen_status read_integers(const reader *r, kgen__model *m) {
    const struct {
        const char *key;
        int64_t low, high;
        int64_t *out;
    } rows[] = {
        {"num_hidden_layers", 1, MAX_LAYERS, &m->layers},
        {"num_attention_heads", 1, MAX_HEADS, &m->q_heads},
        {"num_key_value_heads", 1, MAX_HEADS, &m->kv_heads},
        {"hidden_size", 1, MAX_DIM, &m->hidden_size},
        {"head_dim", 1, MAX_DIM, &m->head_dim},
        {"v_head_dim", 1, MAX_DIM, &m->v_dim},
        {"global_head_dim", 1, MAX_DIM, &m->global_head_dim},
        {"num_global_key_value_heads", 1, MAX_HEADS, &m->global_kv_heads},
        {"sliding_window", 0, 1 << 30, &m->window},
        {"attention_chunk_size", 1, 1 << 30, &m->chunk},
        {"kv_lora_rank", 0, MAX_DIM, &m->kv_lora_rank},
        {"max_window_layers", 0, MAX_LAYERS, &m->max_window_layers},
        {"linear_num_key_heads", 1, MAX_HEADS, &m->gdn_k_heads},
        {"linear_num_value_heads", 1, MAX_HEADS, &m->gdn_v_heads},
        {"linear_key_head_dim", 1, 4096, &m->gdn_k_dim},
        {"linear_value_head_dim", 1, 4096, &m->gdn_v_dim},
        {"linear_conv_kernel_dim", 1, 64, &m->gdn_conv},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        KGEN_TRY(read_int(r, rows[i].key, rows[i].low, rows[i].high, rows[i].out));
    return KGEN_OK;
}

static kgen_status missing(const reader *r, const char *key, const char *why) {
    return kgen_fail(r->err, KGEN_E_CONFIG, "%s: missing%s", key, why);
}

static kgen_status check_heads(const reader *r, kgen__model *m) {
    if (!m->layers) return missing(r, "num_hidden_layers", "");
    if (!m->q_heads) return missing(r, "num_attention_heads", "");
    if (!m->kv_heads) m->kv_heads = m->q_heads;
    if (!m->head_dim) {
        if (!m->hidden_size) return missing(r, "hidden_size", ", and there is no head_dim");
        if (m->hidden_size % m->q_heads)
            return kgen_fail(r->err, KGEN_E_CONFIG,
                             "hidden_size=%lld: no multiple of num_attention_heads=%lld, and there "
                             "is no head_dim",
                             (long long)m->hidden_size, (long long)m->q_heads);
        m->head_dim = m->hidden_size / m->q_heads;
    }
    return KGEN_OK;
}

static kgen_status read_shapes(const reader *r, const family_row *family, kgen__model *m) {
    int use_window = !family || !family->window_opt_in;
    if (family) {
        m->head_dim = family->head_dim;
        m->window = family->window;
        m->query_scalar = family->query_scalar;
        m->softcap_value = family->softcap;
        m->sinks = family->sinks;
    }
    m->max_window_layers = use_window ? 0 : 28;
    KGEN_TRY(read_integers(r, m));
    KGEN_TRY(read_bool(r, "use_sliding_window", &use_window));
    KGEN_TRY(read_bool(r, "alibi", &m->alibi));
    KGEN_TRY(read_number(r, "attn_logit_softcapping", 1e-6, 1e6, &m->softcap_value));
    KGEN_TRY(read_number(r, "attention_multiplier", 1e-6, 1e6, &m->multiplier));
    if (m->query_scalar > 0)
        KGEN_TRY(read_number(r, "query_pre_attn_scalar", 1e-6, 1e6, &m->query_scalar));
    if (!use_window) m->window = 0;
    return check_heads(r, m);
}

/* --- Gated DeltaNet and KDA ---------------------------------------------- */

/* The engines' convolution of KDA is always followed by silu, its norm's gate
 * is always a sigmoid. Other models name both. */
static kgen_status read_gdn(const reader *r, const family_row *family, kgen__model *m) {
    char gate[32];
    m->gdn_layout = family ? family->gdn_layout : KGEN_LAYOUT_NONE;
    m->gdn_norm_eps = 1e-6;
    memcpy(m->gdn_act, "silu", sizeof "silu");
    KGEN_TRY(read_number(r, "rms_norm_eps", 0, 1, &m->gdn_norm_eps));
    m->gdn_sigmoid = m->gdn_layout == KGEN_ROWS_PRESPLIT;
    if (!m->gdn_layout || m->gdn_sigmoid) return KGEN_OK;
    if (field(r, "hidden_act"))
        KGEN_TRY(read_name(r, field(r, "hidden_act"), "hidden_act", m->gdn_act, sizeof m->gdn_act));
    KGEN_TRY(read_name(r, field(r, "output_gate_type"), "output_gate_type", gate, sizeof gate));
    m->gdn_sigmoid = strcmp(gate, "sigmoid") == 0;
    if (gate[0] && !m->gdn_sigmoid && strcmp(gate, "silu") && strcmp(gate, "swish"))
        return kgen_fail(r->err, KGEN_E_CONFIG,
                         "output_gate_type=%s: must be silu, swish or sigmoid", gate);
    return KGEN_OK;
}

/* Layer numbers begin with 1; layers that are not listed are full. */
static kgen_status count_kda_layers(const reader *r, kgen__model *m) {
    char seen[MAX_LAYERS + 1] = {0};
    json_t *list = field(r, "kda_layers");
    if (!json_is_array(list)) return wrong_type(r, "kda_layers", "a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *entry = json_array_get(list, i);
        int64_t layer = json_is_integer(entry) ? json_integer_value(entry) : 0;
        if (layer < 1 || layer > m->layers || seen[layer])
            return kgen_fail(r->err, KGEN_E_CONFIG,
                             "kda_layers[%zu]: a layer from 1 to %lld, once, expected", i,
                             (long long)m->layers);
        seen[layer] = 1;
        m->layer_count[LINEAR]++;
    }
    m->layer_count[FULL] = m->layers - m->layer_count[LINEAR];
    return KGEN_OK;
}

static kgen_status read_kda(const reader *outer, kgen__model *m) {
    static const char key[] = "linear_attn_config";
    json_t *part = field(outer, key);
    if (!part) return missing(outer, key, "");
    if (!json_is_object(part)) return wrong_type(outer, key, "an object");
    const reader r = {outer->root, part, outer->err};
    KGEN_TRY(read_int(&r, "num_heads", 1, MAX_HEADS, &m->gdn_v_heads));
    KGEN_TRY(read_int(&r, "head_dim", 1, 4096, &m->gdn_v_dim));
    KGEN_TRY(read_int(&r, "short_conv_kernel_size", 1, 64, &m->gdn_conv));
    if (!m->gdn_v_heads) return missing(&r, "linear_attn_config.num_heads", "");
    if (!m->gdn_v_dim) return missing(&r, "linear_attn_config.head_dim", "");
    if (!m->gdn_conv) return missing(&r, "linear_attn_config.short_conv_kernel_size", "");
    KGEN_TRY(read_number(&r, "gate_lower_bound", -1e6, -1e-6, &m->gdn_bound));
    m->gdn_gate = m->gdn_bound < 0 ? KGEN_GATE_KDA_BOUND : KGEN_GATE_KDA;
    m->gdn_k_heads = m->gdn_v_heads;
    m->gdn_k_dim = m->gdn_v_dim;
    return count_kda_layers(&r, m);
}

/* --- layers -------------------------------------------------------------- */

static kgen_status count_listed_layers(const reader *r, json_t *list, kgen__model *m) {
    if (!json_is_array(list)) return wrong_type(r, "layer_types", "a list");
    if (json_array_size(list) != (size_t)m->layers)
        return kgen_fail(r->err, KGEN_E_CONFIG, "layer_types: %zu entries, num_hidden_layers=%lld",
                         json_array_size(list), (long long)m->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char key[48], name[sizeof m->other];
        snprintf(key, sizeof key, "layer_types[%zu]", i);
        KGEN_TRY(read_name(r, json_array_get(list, i), key, name, sizeof name));
        if (!name[0]) return wrong_type(r, key, "a name");
        kgen__layer_kind kind = KGEN__LAYER_OTHER;
        for (size_t n = 0; n < sizeof layer_names / sizeof layer_names[0]; n++)
            if (strcmp(layer_names[n].name, name) == 0) kind = layer_names[n].kind;
        if (kind == KGEN__LAYER_OTHER && !m->other[0]) memcpy(m->other, name, sizeof name);
        m->layer_count[kind]++;
    }
    return KGEN_OK;
}

static kgen_status count_layers_by_rule(const reader *r, const family_row *family, kgen__model *m) {
    m->period = family ? family->period : 0;
    if (family && family->period_key)
        KGEN_TRY(read_int(r, family->period_key, 1, MAX_LAYERS, &m->period));
    kgen__layer_kind local = m->period ? family->local : m->window ? SLIDING : FULL;
    for (int64_t i = 0; i < m->layers; i++) {
        int full = m->period ? (i + 1) % m->period == 0 : i < m->max_window_layers;
        m->layer_count[full ? FULL : local]++;
    }
    return KGEN_OK;
}

static kgen_status count_layers(const reader *r, const family_row *family, kgen__model *m) {
    json_t *list = field(r, "layer_types");
    if (m->gdn_layout == KGEN_ROWS_PRESPLIT)
        KGEN_TRY(read_kda(r, m));
    else if (list)
        KGEN_TRY(count_listed_layers(r, list, m));
    else
        KGEN_TRY(count_layers_by_rule(r, family, m));
    if (m->layer_count[SLIDING] && !m->window)
        return missing(r, "sliding_window", ", and the model has sliding_attention layers");
    if (m->kv_lora_rank) {
        m->layer_count[KGEN__LAYER_MLA] = m->layer_count[FULL];
        m->layer_count[FULL] = 0;
    }
    return KGEN_OK;
}

static kgen_status read_model(reader *r, kgen__model *m) {
    static const char *const nested[] = {"text_config", "llm_config", "language_config"};
    r->text = r->root;
    for (size_t i = 0; i < sizeof nested / sizeof nested[0] && r->text == r->root; i++) {
        json_t *part = json_object_get(r->root, nested[i]);
        if (!part || json_is_null(part)) continue;
        if (!json_is_object(part)) return wrong_type(r, nested[i], "an object");
        r->text = part;
    }
    char inner[sizeof m->type]; /* names the family; the outer one is shown */
    json_t *outer = json_object_get(r->root, "model_type");
    KGEN_TRY(read_name(r, outer_field(r, "model_type"), "model_type", inner, sizeof inner));
    KGEN_TRY(read_name(r, outer, "model_type", m->type, sizeof m->type));
    if (!inner[0]) return missing(r, "model_type", "");
    if (!m->type[0]) memcpy(m->type, inner, sizeof inner);
    const family_row *family = family_of(inner);
    m->known = family != NULL;
    KGEN_TRY(read_dtypes(r, m));
    KGEN_TRY(read_shapes(r, family, m));
    KGEN_TRY(read_gdn(r, family, m));
    return count_layers(r, family, m);
}

/* The parser quotes the input: keep only what a terminal may be shown. */
static kgen_status parse_error(const json_error_t *from, kgen_error *err) {
    char text[sizeof from->text];
    size_t used = 0;
    for (const char *c = from->text; *c && used + 1 < sizeof text; c++)
        text[used++] = *c >= ' ' && *c < 127 ? *c : '?';
    text[used] = 0;
    return kgen_fail(err, KGEN_E_CONFIG, "not valid JSON: line %d, column %d: %s", from->line,
                     from->column, text);
}

kgen_status kgen__model_read(kgen__model *out, const char *json, size_t size, kgen_error *err) {
    memset(out, 0, sizeof *out);
    if (size > CONFIG_MAX_BYTES)
        return kgen_fail(err, KGEN_E_CONFIG, "%zu bytes: a config.json has at most %d", size,
                         CONFIG_MAX_BYTES);
    json_error_t why;
    reader r = {json_loadb(json, size, JSON_REJECT_DUPLICATES, &why), NULL, err};
    if (!r.root) return parse_error(&why, err);
    kgen_status status = json_is_object(r.root)
                             ? read_model(&r, out)
                             : kgen_fail(err, KGEN_E_CONFIG, "an object expected, not a list");
    json_decref(r.root);
    return status;
}

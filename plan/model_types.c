/* The model types that are known, a row each, and what their configs leave unsaid. */
#include "model_types.h"

#include <string.h>

#define PERIOD(n) .rule = kgen__rule_period, .period_key = "sliding_window_pattern", .period = (n)
#define QWEN .rule = kgen__rule_qwen, .period = 28, .opt_in = 1
#define DELTA(layout)                                                                             \
    .rule = kgen__rule_period, .period_key = "full_attention_interval", .period = 4, .opt_in = 1, \
    .linear = KGEN__MIX_DELTA, .rows = (layout)
#define MULTIPLIER(dflt) .scale = KGEN__SCALE_MULTIPLIER, .multiplier = (dflt)
#define QUERY(dflt) .scale = KGEN__SCALE_QUERY, .query_scalar = (dflt)
#define SPARSE .common = KGEN__MIX_SPARSE
#define LATENT .common = KGEN__MIX_MLA
#define LISTED .rule = kgen__rule_listed

/* model_type, then what its class takes for layers, heads, KV heads (0: one a
 * query head), hidden_size, head_dim (0: hidden_size / heads), sliding_window. */
/* clang-format off */
static const kgen__model_type types[] = {
    /* full attention in every layer */
    {"llama", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"qwen", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"internlm", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"internlm2", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"internlm3", 48, 32, 2, 4096, 128, 0, .rule = kgen__rule_full},
    {"ministral3", 34, 32, 8, 4096, 128, 0, .rule = kgen__rule_windows},
    {"mimo", 36, 32, 8, 4096, 128, 0, .rule = kgen__rule_full, .opt_in = 1},
    {"deepseek", 30, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"minicpm", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"orion", 40, 40, 0, 5120, 0, 0, .rule = kgen__rule_full},
    {"exaone", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"bailing_moe", 28, 16, 0, 2048, 0, 0, .rule = kgen__rule_full},
    {"bailing_moe_v2", 28, 16, 0, 2048, 0, 0, .rule = kgen__rule_full},
    {"baichuan", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full, .alibi = KGEN__ALIBI_BAICHUAN},
    {"aria_text", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"phi", 24, 32, 0, 2048, 0, 0, .rule = kgen__rule_full},
    {"glm", 40, 32, 2, 4096, 128, 0, .rule = kgen__rule_full},
    {"glm4", 40, 32, 2, 4096, 128, 0, .rule = kgen__rule_full},
    {"glm4_moe", 46, 96, 8, 4096, 0, 0, .rule = kgen__rule_full},
    {"glm4v", 40, 32, 2, 4096, 0, 0, .rule = kgen__rule_full},
    {"glm4v_moe", 46, 96, 8, 4096, 0, 0, .rule = kgen__rule_full},
    {"chatglm", 28, 32, 0, 4096, 0, 0, .rule = kgen__rule_full, .kv = KGEN__KV_GROUP},
    {"cohere", 40, 64, 0, 8192, 0, 0, .rule = kgen__rule_full},
    {"olmo", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"olmo2", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"olmoe", 16, 16, 0, 2048, 0, 0, .rule = kgen__rule_full},
    {"flex_olmo", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"stablelm", 32, 32, 0, 2560, 0, 0, .rule = kgen__rule_full},
    {"stablelm_epoch", 32, 32, 0, 2560, 0, 0, .rule = kgen__rule_full},
    {"arcee", 32, 32, 0, 2560, 0, 0, .rule = kgen__rule_full},
    {"apertus", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"seed_oss", 64, 80, 8, 4096, 128, 0, .rule = kgen__rule_full},
    {"ernie4_5", 18, 16, 2, 1024, 128, 0, .rule = kgen__rule_full},
    {"ernie4_5_moe", 28, 20, 4, 2560, 0, 0, .rule = kgen__rule_full},
    {"hunyuan", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"hunyuan_v1_dense", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"hunyuan_v1_moe", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"hy_v3", 80, 64, 8, 4096, 128, 0, .rule = kgen__rule_full},
    {"helium", 24, 20, 0, 2560, 128, 0, .rule = kgen__rule_full},
    {"nemotron", 32, 48, 0, 6144, 0, 0, .rule = kgen__rule_full},
    {"bitnet", 30, 20, 5, 2560, 0, 0, .rule = kgen__rule_full},
    {"persimmon", 36, 64, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"minimax_m2", 62, 48, 8, 3072, 128, 0, .rule = kgen__rule_full},
    {"solar_open", 48, 64, 8, 4096, 128, 0, .rule = kgen__rule_full},
    {"jais2", 32, 26, 0, 3328, 0, 0, .rule = kgen__rule_full},
    {"step3_text", 61, 64, 1, 7168, 256, 0, .rule = kgen__rule_full},
    {"gemma", 28, 16, 0, 3072, 256, 0, .rule = kgen__rule_full},
    {"granite", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full, MULTIPLIER(1)},
    {"granitemoe", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full, MULTIPLIER(1)},
    {"granitemoeshared", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full, MULTIPLIER(1)},
    {"nanochat", 12, 6, 0, 768, 0, 0, .rule = kgen__rule_full},
    {"hyperclovax", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full, MULTIPLIER(0)},
    {"nemotron-nas", 80, 64, 0, 8192, 0, 0, .rule = kgen__rule_blocks},
    {"mllama_text_model", 40, 32, 8, 4096, 0, 0, .rule = kgen__rule_cross},

    /* older names, position biases, one KV head */
    {"gpt2", 12, 12, 0, 768, 0, 0, .rule = kgen__rule_full, .scale = KGEN__SCALE_GPT2},
    {"gpt_bigcode", 12, 12, 0, 768, 0, 0, .rule = kgen__rule_full, .scale = KGEN__SCALE_GPT2,
     .kv = KGEN__KV_MULTI_QUERY, .multi_query = 1},
    {"gptj", 28, 16, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"codegen", 28, 16, 0, 4096, 0, 0, .rule = kgen__rule_full},
    {"gpt_neox", 44, 64, 0, 6144, 0, 0, .rule = kgen__rule_full},
    {"gpt_neo", 24, 16, 0, 2048, 0, 0, .rule = kgen__rule_neo, .scale = KGEN__SCALE_ONE},
    {"opt", 12, 12, 0, 768, 0, 0, .rule = kgen__rule_full},
    {"biogpt", 24, 16, 0, 1024, 0, 0, .rule = kgen__rule_full},
    {"xglm", 24, 16, 0, 1024, 0, 0, .rule = kgen__rule_full},
    {"jais", 40, 40, 0, 5120, 0, 0, .rule = kgen__rule_full, .scale = KGEN__SCALE_JAIS},
    {"bloom", 2, 8, 0, 64, 0, 0, .rule = kgen__rule_full, .alibi = KGEN__ALIBI_ALWAYS},
    {"falcon", 32, 71, 0, 4544, 0, 0, .rule = kgen__rule_full, .kv = KGEN__KV_FALCON,
     .multi_query = 1},
    {"RefinedWeb", 32, 71, 0, 4544, 0, 0, .rule = kgen__rule_full, .kv = KGEN__KV_KEY},
    {"RefinedWebModel", 32, 71, 0, 4544, 0, 0, .rule = kgen__rule_full,
     .kv = KGEN__KV_MULTI_QUERY},
    {"mpt", 24, 16, 0, 2048, 0, 0, .rule = kgen__rule_full, .kv = KGEN__KV_PARTS,
     .scale = KGEN__SCALE_PARTS, .alibi = KGEN__ALIBI_PARTS},
    {"dbrx", 24, 16, 1, 2048, 0, 0, .rule = kgen__rule_full, .kv = KGEN__KV_PARTS},

    /* a window in every layer, where the config has one */
    {"mistral", 32, 32, 8, 4096, 0, 4096, .rule = kgen__rule_windows},
    {"mixtral", 32, 32, 8, 4096, 0, 0, .rule = kgen__rule_windows},
    {"ministral", 32, 32, 8, 4096, 0, 4096, .rule = kgen__rule_windows},
    {"phi3", 32, 32, 0, 3072, 0, 0, .rule = kgen__rule_windows},
    {"phi4mm", 32, 24, 8, 3072, 0, 0, .rule = kgen__rule_windows},
    {"phi4_multimodal", 32, 32, 8, 3072, 0, 0, .rule = kgen__rule_windows},
    {"phimoe", 32, 32, 8, 4096, 0, 0, .rule = kgen__rule_windows},
    {"starcoder2", 30, 24, 2, 3072, 0, 0, .rule = kgen__rule_windows},
    {"qwen3_moe", 24, 32, 4, 2048, 0, 0, .rule = kgen__rule_windows, .opt_in = 1},

    /* a window in some layers */
    {"qwen2", 32, 32, 0, 4096, 0, 0, QWEN},
    {"qwen2_moe", 24, 16, 0, 2048, 0, 0, .rule = kgen__rule_qwen2_moe, .opt_in = 1},
    {"qwen3", 32, 32, 0, 4096, 128, 0, QWEN},
    {"qwen2_vl", 80, 64, 8, 8192, 0, 0, QWEN},
    {"qwen2_5_vl", 80, 64, 8, 8192, 0, 0, QWEN},
    {"qwen2_5_omni", 28, 28, 4, 3584, 0, 0, QWEN},
    {"qwen3_vl", 32, 32, 0, 4096, 128, 0, .rule = kgen__rule_full},
    {"qwen3_vl_moe", 24, 16, 0, 2048, 128, 0, .rule = kgen__rule_full},
    {"qwen3_omni_moe", 28, 28, 4, 2048, 0, 0, .rule = kgen__rule_windows, .opt_in = 1},
    {"dots1", 62, 32, 0, 4608, 0, 4096, .rule = kgen__rule_qwen, .period = 62},
    {"gemma2", 26, 8, 4, 2304, 256, 4096, PERIOD(2), QUERY(256), .softcap = 50},
    {"vaultgemma", 26, 8, 4, 2304, 256, 4096, PERIOD(2), QUERY(256), .softcap = 50},
    {"gemma3", 26, 8, 4, 2304, 256, 4096, PERIOD(6), QUERY(256)},
    {"gemma3n", 35, 8, 2, 2048, 256, 512, PERIOD(5), .scale = KGEN__SCALE_ONE},
    {"gemma4", 30, 8, 4, 2304, 256, 512, PERIOD(6), .scale = KGEN__SCALE_ONE,
     .global_head_dim = 512},
    {"gemma4_unified", 30, 8, 4, 2304, 256, 1024, PERIOD(6), .scale = KGEN__SCALE_ONE,
     .global_head_dim = 512},
    {"gpt_oss", 36, 64, 8, 2880, 64, 128, PERIOD(2), .sinks = 1},
    {"cohere2", 40, 64, 0, 8192, 0, 4096, PERIOD(4)},
    {"olmo3", 32, 32, 0, 4096, 0, 4096, PERIOD(4)},
    {"exaone4", 32, 32, 0, 4096, 0, 4096, PERIOD(4)},
    {"exaone_moe", 32, 32, 0, 4096, 0, 4096, PERIOD(4)},
    {"cwm", 64, 48, 8, 6144, 128, 8192, .rule = kgen__rule_first, .period = 4},
    {"granite_swa", 24, 20, 4, 2560, 0, 128, .rule = kgen__rule_first, .period = 4, MULTIPLIER(1),
     .sinks = 1},
    {"afmoe", 32, 16, 0, 2048, 128, 1024, .rule = kgen__rule_period,
     .period_key = "global_attn_every_n_layers", .period = 4},
    {"smollm3", 36, 16, 4, 2048, 0, 0, .rule = kgen__rule_no_rope,
     .period_key = "no_rope_layer_interval", .period = 4, .opt_in = 1},
    {"mimo_v2_flash", 48, 64, 4, 4096, 192, 129, .rule = kgen__rule_mimo},
    {"step3p5", 45, 64, 8, 4096, 128, 0, .rule = kgen__rule_step, QUERY(0)},

    /* beside attention: Gated DeltaNet, KDA */
    {"qwen3_next", 48, 16, 2, 2048, 256, 0, DELTA(KGEN_ROWS_INTERLEAVED)},
    {"qwen3_5", 32, 16, 4, 4096, 256, 0, DELTA(KGEN_ROWS_FLAT)},
    {"qwen3_5_moe", 40, 16, 2, 2048, 256, 0, DELTA(KGEN_ROWS_FLAT)},
    {"kimi_linear", 27, 32, 0, 2304, 0, 0, .rule = kgen__rule_kda, .linear = KGEN__MIX_DELTA,
     .rows = KGEN_ROWS_PRESPLIT, LATENT},

    /* beside attention: what this version has no kernel for */
    {"llama4", 48, 40, 8, 5120, 128, 0, .rule = kgen__rule_no_rope,
     .period_key = "no_rope_layer_interval", .period = 4},
    {"jamba", 32, 32, 8, 4096, 0, 0, .rule = kgen__rule_offset, .period = 8,
     .linear = KGEN__MIX_MAMBA},
    {"bamba", 32, 32, 8, 4096, 0, 0, .rule = kgen__rule_indices,
     .period_key = "attn_layer_indices", .linear = KGEN__MIX_MAMBA},
    {"granitemoehybrid", 32, 32, 0, 4096, 0, 0, LISTED, .linear = KGEN__MIX_MAMBA, MULTIPLIER(1)},
    {"nemotron_h", 52, 32, 8, 4096, 128, 0, LISTED, .linear = KGEN__MIX_MAMBA},
    {"falcon_h1", 32, 32, 8, 4096, 0, 0, .rule = kgen__rule_beside},
    {"minimax", 32, 32, 8, 4096, 0, 0, LISTED, .linear = KGEN__MIX_LIGHTNING},
    {"minimax_text_01", 80, 64, 8, 6144, 128, 0, LISTED, .linear = KGEN__MIX_LIGHTNING},
    {"minimax_m1", 80, 64, 8, 6144, 128, 0, LISTED, .linear = KGEN__MIX_LIGHTNING},
    {"lfm2", 32, 32, 8, 2560, 0, 0, .rule = kgen__rule_indices,
     .period_key = "full_attn_idxs", .linear = KGEN__MIX_SHORT_CONV},
    {"lfm2_moe", 32, 32, 8, 2048, 0, 0, LISTED, .linear = KGEN__MIX_SHORT_CONV},

    /* latent and sparse attention */
    {"deepseek_v2", 32, 32, 0, 4096, 0, 0, .rule = kgen__rule_full, LATENT},
    {"deepseek_v3", 61, 128, 0, 7168, 0, 0, .rule = kgen__rule_full, LATENT},
    {"kimi_k2", 61, 64, 0, 7168, 0, 0, .rule = kgen__rule_full, LATENT},
    {"glm4_moe_lite", 47, 20, 0, 2048, 0, 0, .rule = kgen__rule_full, LATENT},
    {"longcat_flash", 28, 64, 0, 6144, 0, 0, .rule = kgen__rule_full, LATENT},
    {"minicpm3", 62, 40, 0, 2560, 0, 0, .rule = kgen__rule_full, LATENT},
    {"deepseek_v32", 61, 128, 0, 7168, 0, 0, .rule = kgen__rule_windows, SPARSE},
    {"glm_moe_dsa", 78, 64, 0, 6144, 0, 0, .rule = kgen__rule_windows, SPARSE},
    {"deepseek_v4", 43, 64, 1, 4096, 512, 0, .rule = kgen__rule_windows, SPARSE},
};

/* A language part that names no model_type, after the model_type around it. */
static const char *const inner[][2] = {
    {"llava", "llama"}, {"llava_next", "llama"}, {"vipllava", "llama"}, {"idefics3", "llama"},
    {"smolvlm", "llama"}, {"mistral3", "mistral"}, {"llava_onevision", "qwen2"},
    {"internvl", "qwen2"}, {"paligemma", "gemma"}, {"aya_vision", "cohere2"},
};

static const char encoder[] = "an encoder: there is no cache that a kernel could read";
static const char both[] = "an encoder and a decoder: this version has no cross attention";
static const char recurrent[] = "recurrent: there is no attention layer and no cache";

static const char *const refused[][2] = {
    {"albert", encoder}, {"bert", encoder}, {"camembert", encoder}, {"deberta", encoder},
    {"deberta-v2", encoder}, {"distilbert", encoder}, {"electra", encoder}, {"ernie", encoder},
    {"gte", encoder}, {"longformer", encoder}, {"modernbert", encoder}, {"mpnet", encoder},
    {"new", encoder}, {"nomic_bert", encoder}, {"roberta", encoder}, {"xlm-roberta", encoder},
    {"clip", encoder}, {"siglip", encoder}, {"vit", encoder}, {"wav2vec2", encoder},
    {"bart", both}, {"blenderbot", both}, {"led", both}, {"m2m_100", both}, {"marian", both},
    {"mbart", both}, {"mt5", both}, {"pegasus", both}, {"t5", both}, {"t5gemma", both},
    {"umt5", both}, {"whisper", both},
    {"falcon_mamba", recurrent}, {"mamba", recurrent}, {"mamba2", recurrent}, {"rwkv", recurrent},
    {"rwkv7", recurrent}, {"xlstm", recurrent},
};
/* clang-format on */

static int same(const char *a, const char *b, size_t length) {
    return strlen(b) == length && strncmp(a, b, length) == 0;
}

/* A language part is called as the whole, with "_text" behind. */
static size_t stem(const char *model_type) {
    size_t length = strlen(model_type);
    return length > 5 && strcmp(model_type + length - 5, "_text") == 0 ? length - 5 : length;
}

const kgen__model_type *kgen__model_type_find(const char *model_type) {
    size_t length = strlen(model_type), cut = stem(model_type);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (same(model_type, types[i].type, length) || same(model_type, types[i].type, cut))
            return &types[i];
    return NULL;
}

static const char *look_up(const char *const (*rows)[2], size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i][0], key) == 0) return rows[i][1];
    return NULL;
}

const char *kgen__model_type_inner(const char *outer) {
    return look_up(inner, sizeof inner / sizeof inner[0], outer);
}

const char *kgen__model_type_refused(const char *model_type) {
    return look_up(refused, sizeof refused / sizeof refused[0], model_type);
}

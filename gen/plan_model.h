/* What a model's config.json says about its attention layers. Private to gen. */
#ifndef KGEN_GEN_PLAN_MODEL_H
#define KGEN_GEN_PLAN_MODEL_H

#include <kgen/plan.h>

typedef enum kgen__layer_kind {
    KGEN__LAYER_FULL,
    KGEN__LAYER_SLIDING,
    KGEN__LAYER_CHUNKED,
    KGEN__LAYER_LINEAR,
    KGEN__LAYER_MLA,
    KGEN__LAYER_OTHER, /* a kind this version has no name for                */
    KGEN__LAYER_KINDS
} kgen__layer_kind;

/* Heads of the whole model, before tensor parallelism. */
typedef struct kgen__model {
    char type[64];
    int known; /* model_type has a row in the table of families              */
    kgen_dtype dtype;
    int64_t layers, q_heads, hidden_size;
    int64_t kv_heads, head_dim, v_dim;
    int64_t global_kv_heads, global_head_dim; /* full layers, 0: as the rest */
    int64_t window, chunk, kv_lora_rank;
    int64_t period, max_window_layers;
    double query_scalar, multiplier, softcap_value; /* 0: not given          */
    int alibi, sinks;
    int64_t layer_count[KGEN__LAYER_KINDS];
    char other[32]; /* name of the first layer of kind OTHER                 */
    /* Gated DeltaNet */
    int64_t gdn_k_heads, gdn_v_heads, gdn_k_dim, gdn_v_dim, gdn_conv;
    int64_t gdn_state_bytes; /* of one element of the recurrent state        */
} kgen__model;

/* KGEN_E_CONFIG names the field, its value and the bound. */
kgen_status kgen__model_read(kgen__model *out, const char *json, size_t size, kgen_error *err);

#endif

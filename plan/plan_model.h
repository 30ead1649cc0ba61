/* What a model's config.json says about its layers. Private to gen. */
#ifndef KGEN_PLAN_PLAN_MODEL_H
#define KGEN_PLAN_PLAN_MODEL_H

#include <kgen/plan.h>

typedef enum kgen__layer_kind {
    KGEN__LAYER_FULL,
    KGEN__LAYER_SLIDING,
    KGEN__LAYER_CHUNKED,
    KGEN__LAYER_LINEAR,
    KGEN__LAYER_MLA,
    KGEN__LAYER_OTHER, /* a kind this version has no name for */
    KGEN__LAYER_KINDS
} kgen__layer_kind;

/* Heads of the whole model, before tensor parallelism. */
typedef struct kgen__model {
    char type[64];
    int known; /* model_type has a row in the table of families */
    kgen_dtype dtype;
    int64_t layers, q_heads, hidden_size;
    int64_t kv_heads, head_dim, v_dim;
    int64_t global_kv_heads, global_head_dim; /* full layers, 0: as the rest */
    int64_t window, chunk, kv_lora_rank;
    int64_t period, max_window_layers;
    double query_scalar, multiplier, softcap_value; /* 0: not given */
    int alibi, sinks;
    int64_t layer_count[KGEN__LAYER_KINDS];
    char other[32]; /* name of the first layer of kind OTHER */
    /* Gated DeltaNet and KDA */
    int64_t gdn_k_heads, gdn_v_heads, gdn_k_dim, gdn_v_dim, gdn_conv;
    kgen_layout gdn_layout; /* of the in-projection; 0: not known */
    kgen_dtype gdn_state;   /* of the recurrent state; 0: the engine's choice */
    kgen_gdn_gate gdn_gate;
    double gdn_bound;    /* kda_bound: the lower bound of the log decay */
    double gdn_norm_eps; /* of the gated norm */
    int gdn_sigmoid;     /* 1: the norm's gate is sigmoid(z), else z sigmoid(z) */
    char gdn_act[32];    /* activation after the convolution */
} kgen__model;

/* KGEN_E_CONFIG names the field, its value and the bound. */
kgen_status kgen__model_read(kgen__model *out, const char *json, size_t size, kgen_error *err);

/* plan_gdn.c. check: what Gated DeltaNet needs is there, and tp divides it.
 * Decode is one token, verify spec_width + 1. */
kgen_status kgen__gdn_check(const kgen__model *m, int tp, kgen_error *err);
kgen_dtype kgen__gdn_state(const kgen__model *m, kgen_engine engine);
kgen_status kgen__gdn_spec(kgen_spec *out, const kgen__model *m, const kgen_plan_options *options,
                           kgen_phase phase, kgen_error *err);

/* Row `index` of the cache kernels, for an engine's layers of a kind whose attention
 * is `attn`: same pages, types and dims. *wanted 0: not of this engine or kind. */
size_t kgen__cache_rows(void);
kgen_status kgen__cache_item(kgen_plan_item *out, size_t index, kgen_engine engine,
                             kgen__layer_kind kind, const kgen_attn_spec *attn, int *wanted,
                             kgen_error *err);

/* Row `index` of the metadata kernels, for an engine and its page size; `windowed`:
 * the model has sliding windows. *wanted 0: another engine's. */
size_t kgen__metadata_rows(void);
kgen_status kgen__metadata_item(kgen_plan_item *out, size_t index, kgen_engine engine, int page,
                                int windowed, int *wanted, kgen_error *err);

#endif

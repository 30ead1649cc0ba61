/* Model config -> manifest: which kernels a deployment needs. */
#ifndef KGEN_PLAN_H
#define KGEN_PLAN_H

#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kgen_engine { KGEN_ENGINE_VLLM, KGEN_ENGINE_SGLANG } kgen_engine;

/* What is planned for prompts. ENGINE: as the engine launches them; EXTEND: over pages,
 * in one launch with the decodes; NONE: nothing, of an instance that only decodes. */
typedef enum kgen_prompts {
    KGEN_PROMPTS_ENGINE,
    KGEN_PROMPTS_EXTEND,
    KGEN_PROMPTS_NONE
} kgen_prompts;

typedef struct kgen_plan_options {
    size_t size;         /* sizeof(kgen_plan_options) */
    int tp;              /* tensor-parallel width, >= 1 */
    kgen_dtype kv_dtype; /* 0: the model's; KGEN_DTYPE_FP8, KGEN_DTYPE_BF16 ... */
    int page;            /* 0: the engine's choice for this model */
    kgen_engine engine;
    int spec_width;       /* draft tokens of speculative decoding, 0..15 */
    kgen_layout layout;   /* 0: the engine's */
    kgen_dtype x;         /* of activations; 0: the model's */
    kgen_dtype state;     /* of recurrent states; 0: the model's, else the engine's */
    kgen_dtype table;     /* of block tables: KGEN_DTYPE_I32 (0) or KGEN_DTYPE_I64 */
    kgen_descale descale; /* of 8-bit caches; 0: as the engine passes them */
    int alibi;            /* 1: attention takes ALiBi slopes, whatever the config says */
    int dense;            /* 1: a model_type or a field that is not known is passed over, and
                  every layer is plain causal attention of the config's shapes */
    kgen_prompts prompts;
    int cascade; /* 1: also kernels for sequences that share a prefix's pages */
} kgen_plan_options;

typedef struct kgen_plan_item {
    kgen_spec spec;
    int layers;      /* layers of the model that use it; 0: once a step */
    int q_heads;     /* of a rank; gdn: key heads, which are the query heads;
                        kv_write, kv_gather, attn_merge: 0 */
    int kv_heads;    /* of a rank; gdn: value heads, those of the state; attn_merge: query
                        heads */
    double scale;    /* attn, mla: softmax_scale; gdn: q_scale; else 0 */
    double norm_eps; /* gdn: as kgen_gdn_args, 0 in attn */
    double l2_eps;
    double lower_bound;
    char note[160]; /* "full attention", "Gated DeltaNet" ... */
} kgen_plan_item;

enum { KGEN_PLAN_LAYER_MAX = 16 };

/* One layer of the model, from the first to the last. */
typedef struct kgen_plan_layer {
    const char *kind;                    /* "attention", "MLA" ...; static text */
    uint32_t items[KGEN_PLAN_LAYER_MAX]; /* indices of kgen_plan.items */
    uint32_t count;                      /* 0: kgen has none of its kernels */
} kgen_plan_layer;

typedef struct kgen_plan {
    char model_type[64];
    kgen_plan_item *items;
    size_t count;
    kgen_plan_layer *layers;
    size_t layer_count;
    char **unsupported; /* one sentence each: what the model needs that kgen
                           does not have */
    size_t unsupported_count;
} kgen_plan;

/* json: a Hugging Face config.json, at most 4 MiB, not NUL-terminated.
 * Missing or malformed fields are KGEN_E_CONFIG naming the field; a model_type
 * that is not known, or a field that speaks of attention and is not known, is
 * KGEN_E_UNSUPPORTED naming it. What the model needs and kgen lacks is listed in
 * `unsupported`; a model with nothing left is KGEN_E_UNSUPPORTED. Pure, thread-safe.
 * Release: kgen_plan_free. */
KGEN_API kgen_status kgen_plan_make(kgen_plan *out, const char *json, size_t size,
                                    const kgen_plan_options *options, kgen_error *err);
KGEN_API void kgen_plan_free(kgen_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

/* Model config -> manifest: which kernels a deployment needs. */
#ifndef KGEN_PLAN_H
#define KGEN_PLAN_H

#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kgen_engine { KGEN_ENGINE_VLLM, KGEN_ENGINE_SGLANG } kgen_engine;

typedef struct kgen_plan_options {
    int tp;              /* tensor-parallel width, >= 1 */
    kgen_dtype kv_dtype; /* 0: the model's; KGEN_DTYPE_FP8, KGEN_DTYPE_BF16 ... */
    int page;            /* 0: the engine's choice for this model */
    kgen_engine engine;
    int spec_width;     /* draft tokens of speculative decoding, 0..15 */
    kgen_layout layout; /* 0: the engine's */
} kgen_plan_options;

typedef struct kgen_plan_item {
    kgen_spec spec;
    int layers;      /* layers of the model that use it; 0: once a step */
    int q_heads;     /* of a rank; gdn: key heads, which are the query heads;
                        kv_write, kv_gather: 0 */
    int kv_heads;    /* of a rank; gdn: value heads, those of the state */
    double scale;    /* attn: softmax_scale; gdn: q_scale; else 0 */
    double norm_eps; /* gdn: as kgen_gdn_args, 0 in attn */
    double l2_eps;
    double lower_bound;
    char note[160]; /* "full attention", "Gated DeltaNet" ... */
} kgen_plan_item;

typedef struct kgen_plan {
    char model_type[64];
    kgen_plan_item *items;
    size_t count;
    char **unsupported; /* one sentence each: what the model needs that kgen
                           does not have */
    size_t unsupported_count;
} kgen_plan;

/* json: a Hugging Face config.json, at most 4 MiB, not NUL-terminated.
 * Missing or malformed fields are KGEN_E_CONFIG naming the field. What the
 * model needs and kgen lacks is listed in `unsupported`; a model with nothing
 * left is KGEN_E_UNSUPPORTED. Pure, thread-safe. Release: kgen_plan_free. */
KGEN_API kgen_status kgen_plan_make(kgen_plan *out, const char *json, size_t size,
                                    const kgen_plan_options *options, kgen_error *err);
KGEN_API void kgen_plan_free(kgen_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

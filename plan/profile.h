/* From the list of layers to spec lines: what an engine launches. Private to plan. */
#ifndef KGEN_PLAN_PROFILE_H
#define KGEN_PLAN_PROFILE_H

#include "model.h"

/* What one rank of a deployment is: options, with the model's answers in their
 * gaps. */
typedef struct kgen__profile {
    const kgen__model *model;
    kgen_plan_options options;
    kgen_dtype x, kv; /* of activations and cache */
    int page;
} kgen__profile;

/* plan_attn.c. Heads of one rank; KGEN_E_CONFIG where tp does not divide them. */
typedef struct kgen__rank {
    int64_t heads, kv_heads;
} kgen__rank;
kgen_status kgen__rank_of(const kgen__profile *p, const kgen__layer *layer, kgen__rank *out,
                          kgen_error *err);
/* Query tokens of a sequence: 1, or in phases of several spec_width + 1. */
int32_t kgen__phase_tokens(const kgen__profile *p, kgen_phase phase);
kgen_status kgen__attn_spec(kgen_spec *out, const kgen__profile *p, const kgen__layer *layer,
                            const kgen__rank *rank, kgen_phase phase, kgen_error *err);

/* plan_prompt.c. Row `index` of the kernels that prompts need in a layer; `decode` is its
 * spec for one token. *wanted 0: not of this engine, layer or option. */
size_t kgen__prompt_rows(void);
kgen_status kgen__prompt_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                              const kgen__layer *layer, const kgen_spec *decode,
                              const kgen__rank *rank, int *wanted, kgen_error *err);

/* plan_page.c. The page that the engine chooses for this model. */
kgen_status kgen__page_choose(int *out, const kgen__profile *p, kgen_error *err);

/* plan_gdn.c. check: what Gated DeltaNet needs is there, and tp divides it. */
kgen_status kgen__gdn_check(const kgen__model *m, int tp, kgen_error *err);
kgen_dtype kgen__gdn_state(const kgen__profile *p);
kgen_status kgen__gdn_spec(kgen_spec *out, const kgen__profile *p, kgen_phase phase,
                           kgen_error *err);

/* plan_kv.c. Row `index` of the cache kernels of layers whose attention is
 * `attn`: same pages, types and dims. *wanted 0: not of this engine or kind. */
size_t kgen__cache_rows(void);
kgen_status kgen__cache_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                             const kgen_attn_spec *attn, int *wanted, kgen_error *err);

/* plan_mla.c. A rank has all of a layer's cache and some of its heads. Row `index` of the
 * kernels of a latent cache: *wanted 0: not of this engine. */
kgen_status kgen__mla_spec(kgen_spec *out, const kgen__profile *p, const kgen__layer *layer,
                           kgen_phase phase, kgen_error *err);
int32_t kgen__latent_page(const kgen__profile *p);
size_t kgen__latent_rows(void);
kgen_status kgen__latent_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                              const kgen_mla_spec *mla, int *wanted, kgen_error *err);

/* plan_index.c. Row `index` of the kernels of the indexer that picks rows of a latent cache.
 * *wanted 0: of draft tokens, or of prompts, which nobody asked for. */
size_t kgen__index_rows(void);
kgen_status kgen__index_item(kgen_plan_item *out, size_t index, const kgen__profile *p, int *wanted,
                             kgen_error *err);

/* plan_scatter.c. Row `index` of the metadata kernels; `windowed`: the model has
 * sliding windows. *wanted 0: another engine's, or of draft tokens only. */
size_t kgen__metadata_rows(void);
kgen_status kgen__metadata_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                                int windowed, int *wanted, kgen_error *err);

#endif

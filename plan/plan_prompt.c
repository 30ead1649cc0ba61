/* What prompts need of attention: tokens over pages, tokens beside each other, and the
 * pieces that an engine merges. */
#include <stdio.h>

#include "profile.h"

enum { FULL = 1, SLIDING = 2 };

static void over_pages(kgen_spec *spec) { spec->attn.phase = KGEN_PHASE_EXTEND; }

/* Keys of the model's type, as the layer has just computed them, or gathered. */
static void without_pages(kgen_spec *spec) {
    kgen_attn_spec *s = &spec->attn;
    s->phase = KGEN_PHASE_PREFILL;
    s->kv = s->q;
    s->page = 1;
    s->layout = KGEN_LAYOUT_NHD;
    s->table = 0;
    s->descale = KGEN_DESCALE_AUTO;
}

static void new_tokens(kgen_spec *spec) {
    without_pages(spec);
    spec->attn.lse = 1;
}

/* The sink is in the new tokens' sum, once. */
static void context_chunk(kgen_spec *spec) {
    new_tokens(spec);
    spec->attn.causal = 0;
    spec->attn.sinks = 0;
}

static void merge(kgen_spec *spec) {
    const kgen_attn_spec attn = spec->attn;
    *spec = (kgen_spec){.family = KGEN_FAMILY_ATTN_MERGE};
    spec->attn_merge.x = attn.q;
    spec->attn_merge.head_dim = attn.v_dim ? attn.v_dim : attn.head_dim;
    spec->attn_merge.lse = 1;
}

/* SGLang and vLLM's Triton back end read prompts over pages. vLLM's AITER back end
 * attends to the new tokens beside each other; to the context of a full layer in
 * chunks that are gathered and merged, to that of a sliding one with its window. Slopes
 * begin at the wrong key in a chunk. Layers that share a cache have no keys of their own. */
static const struct {
    kgen_engine engine;
    int kinds, merged; /* merged: a piece of the whole */
    void (*set)(kgen_spec *spec);
    const char *note;
} rows[] = {
    {KGEN_ENGINE_VLLM, FULL | SLIDING, 0, over_pages, "prompts over pages"},
    {KGEN_ENGINE_VLLM, FULL | SLIDING, 0, without_pages, "prompts without pages"},
    {KGEN_ENGINE_VLLM, FULL, 1, new_tokens, "new tokens, to be merged"},
    {KGEN_ENGINE_VLLM, FULL, 1, context_chunk, "a chunk of the context, to be merged"},
    {KGEN_ENGINE_VLLM, FULL, 1, merge, "chunks and new tokens as one"},
    {KGEN_ENGINE_SGLANG, FULL | SLIDING, 0, over_pages, "prompts over pages"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

size_t kgen__prompt_rows(void) { return ROWS; }

/* Pages of latent attention hold latents: both engines expand new tokens and chunks of the
 * context into heads, which are pieces as vLLM's AITER back end has them. With lists of
 * rows prompts go the way of decodes. */
static int is_wanted(size_t index, const kgen__profile *p, const kgen__layer *layer) {
    int pages = rows[index].set == over_pages, latent = layer->mix == KGEN__MIX_MLA;
    if (rows[index].engine != (latent ? KGEN_ENGINE_VLLM : p->options.engine)) return 0;
    if (latent && (pages || p->model->topk)) return 0;
    if (!(rows[index].kinds & (layer->window ? SLIDING : FULL))) return 0;
    if (p->options.prompts != KGEN_PROMPTS_ENGINE && !pages) return 0;
    if (rows[index].merged && (layer->alibi || p->options.alibi)) return 0;
    return p->options.prompts != KGEN_PROMPTS_NONE && (pages || !layer->shared);
}

kgen_status kgen__prompt_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                              const kgen__layer *layer, const kgen_spec *decode,
                              const kgen__rank *rank, int *wanted, kgen_error *err) {
    *wanted = is_wanted(index, p, layer);
    if (!*wanted) return KGEN_OK;
    out->spec = *decode;
    rows[index].set(&out->spec);
    int attention = out->spec.family == KGEN_FAMILY_ATTN;
    out->scale = attention ? layer->scale : 0;
    out->q_heads = attention ? (int)rank->heads : 0;
    out->kv_heads = (int)(attention ? rank->kv_heads : rank->heads);
    snprintf(out->note, sizeof out->note, "%s", rows[index].note);
    return kgen_spec_validate(&out->spec, NULL, err);
}

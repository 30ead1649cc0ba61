/* Model config -> manifest: the kernels one rank of a deployment needs.
 * model.c makes a list of layers of the config; here equal layers become one
 * item, and each layer learns which items are its own. */
#include <kgen/plan.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"

enum { MAX_TP = 1024, MAX_SPEC_WIDTH = 15, MAX_SENTENCES = 32, SENTENCE = 800 };

typedef struct planner {
    kgen__model model;
    kgen__profile profile;
    kgen_plan *plan;
    size_t room; /* for items */
    kgen_error *err;
} planner;

static kgen_status add_sentence(planner *p, const char *fmt, ...) KGEN_PRINTF(2, 3);

static kgen_status add_sentence(planner *p, const char *fmt, ...) {
    char text[SENTENCE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (p->plan->unsupported_count >= MAX_SENTENCES) return KGEN_OK;
    char *copy = strdup(text);
    if (!copy) return kgen_fail(p->err, KGEN_E_NOMEM, "plan: no memory for a sentence");
    p->plan->unsupported[p->plan->unsupported_count++] = copy;
    return KGEN_OK;
}

/* --- options ------------------------------------------------------------- */

static int is_kv_dtype(kgen_dtype dtype) {
    return (dtype >= KGEN_DTYPE_NONE && dtype <= KGEN_DTYPE_FP8) || dtype == KGEN_DTYPE_I8 ||
           dtype == KGEN_DTYPE_I4;
}

/* 0 is the engine's choice. */
static kgen_status check_page(int32_t page, kgen_error *err) {
    static const int32_t small[] = {1, 2, 4, 8};
    int32_t nearest = (int32_t)(((int64_t)page + 8) / 16 * 16);
    if (page == 0) return KGEN_OK;
    for (int i = 3; i >= 0 && page < 12; i--)
        if (i == 3 || page <= small[i] + small[i] / 2) nearest = small[i];
    if (page == nearest) return KGEN_OK;
    return kgen_fail(err, KGEN_E_ARG,
                     "page=%d: must be 1, 2, 4, 8 or a multiple of 16; nearest is %d", page,
                     nearest);
}

static kgen_status check_options(const kgen_plan_options *o, kgen_error *err) {
    if (o->tp < 1 || o->tp > MAX_TP)
        return kgen_fail(err, KGEN_E_ARG, "tp=%d: must be 1 to %d", o->tp, MAX_TP);
    if (o->spec_width < 0 || o->spec_width > MAX_SPEC_WIDTH)
        return kgen_fail(err, KGEN_E_ARG, "spec_width=%d: must be 0 to %d", o->spec_width,
                         MAX_SPEC_WIDTH);
    KGEN_TRY(check_page(o->page, err));
    if (!is_kv_dtype(o->kv_dtype))
        return kgen_fail(err, KGEN_E_ARG, "kv_dtype=%s: must be a 16-bit, 8-bit or 4-bit type",
                         kgen_dtype_name(o->kv_dtype));
    if (o->engine != KGEN_ENGINE_VLLM && o->engine != KGEN_ENGINE_SGLANG)
        return kgen_fail(err, KGEN_E_ARG, "engine=%d: must be vllm or sglang", (int)o->engine);
    if (o->layout < KGEN_LAYOUT_NONE || o->layout > KGEN_LAYOUT_XPACKED)
        return kgen_fail(err, KGEN_E_ARG, "layout=%d: unknown", (int)o->layout);
    if (o->table && o->table != KGEN_DTYPE_I32 && o->table != KGEN_DTYPE_I64)
        return kgen_fail(err, KGEN_E_ARG, "table=%s: must be i32 or i64",
                         kgen_dtype_name(o->table));
    if (o->x > KGEN_DTYPE_FP16)
        return kgen_fail(err, KGEN_E_ARG, "x=%s: must be bf16 or fp16", kgen_dtype_name(o->x));
    if (o->state > KGEN_DTYPE_FP16 && o->state != KGEN_DTYPE_F32)
        return kgen_fail(err, KGEN_E_ARG, "state=%s: must be bf16, fp16 or f32",
                         kgen_dtype_name(o->state));
    if (o->descale && o->descale != KGEN_DESCALE_HEAD && o->descale != KGEN_DESCALE_TOKEN)
        return kgen_fail(err, KGEN_E_ARG, "descale=%d: must be head or token", (int)o->descale);
    if (o->prompts < KGEN_PROMPTS_ENGINE || o->prompts > KGEN_PROMPTS_NONE)
        return kgen_fail(err, KGEN_E_ARG, "prompts=%d: must be engine, extend or none",
                         (int)o->prompts);
    return KGEN_OK;
}

/* --- items --------------------------------------------------------------- */

static kgen_status push_item(planner *p, const kgen_plan_item *item) {
    kgen_plan *plan = p->plan;
    if (plan->count == p->room) {
        size_t room = p->room ? 2 * p->room : 16;
        kgen_plan_item *grown = realloc(plan->items, room * sizeof *grown);
        if (!grown) return kgen_fail(p->err, KGEN_E_NOMEM, "plan: no memory for the list");
        plan->items = grown;
        p->room = room;
    }
    plan->items[plan->count++] = *item;
    return KGEN_OK;
}

static int same_item(const kgen_plan_item *a, const kgen_plan_item *b) {
    return kgen_spec_equal(&a->spec, &b->spec) && a->kv_heads == b->kv_heads &&
           a->scale == b->scale && strcmp(a->note, b->note) == 0;
}

/* Layers of several kinds may share a kernel: they are one item then. */
static kgen_status place_item(planner *p, const kgen_plan_item *item, size_t *index) {
    for (*index = 0; *index < p->plan->count; ++*index) {
        if (!same_item(&p->plan->items[*index], item)) continue;
        p->plan->items[*index].layers += item->layers;
        return KGEN_OK;
    }
    return push_item(p, item);
}

/* --- groups of equal layers ---------------------------------------------- */

static int same_layer(const kgen__layer *a, const kgen__layer *b) {
    return a->mix == b->mix && a->mamba == b->mamba && a->shared == b->shared &&
           a->alibi == b->alibi && a->sinks == b->sinks && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->v_dim == b->v_dim &&
           a->window == b->window && a->scale == b->scale && a->softcap == b->softcap;
}

/* Of equal layers, the first speaks for all. */
static int is_first(const kgen__model *m, int64_t i) {
    for (int64_t n = 0; n < i; n++)
        if (same_layer(&m->layer[n], &m->layer[i])) return 0;
    return 1;
}

static int count_equal(const kgen__model *m, int64_t first) {
    int count = 0;
    for (int64_t i = first; i < m->count; i++) count += same_layer(&m->layer[i], &m->layer[first]);
    return count;
}

/* A kernel of the layers that equal layer `first`. */
static kgen_status add_layers_item(planner *p, int64_t first, const kgen_plan_item *item) {
    const kgen__model *m = &p->model;
    size_t index;
    KGEN_TRY(place_item(p, item, &index));
    for (int64_t i = first; i < m->count; i++) {
        kgen_plan_layer *layer = &p->plan->layers[i];
        if (same_layer(&m->layer[i], &m->layer[first]) && layer->count < KGEN_PLAN_LAYER_MAX)
            layer->items[layer->count++] = (uint32_t)index;
    }
    return KGEN_OK;
}

static const char *phase_name(kgen_phase phase) { return kgen_attn_phase_of(phase)->name; }

/* What an engine launches for a layer in a step. */
typedef kgen_status add_phase(planner *p, int64_t first, kgen_phase phase);
static const struct {
    kgen_phase phase;
    int draft; /* where it decodes speculatively */
} steps[] = {{KGEN_PHASE_DECODE, 0}, {KGEN_PHASE_VERIFY, 1}};

static kgen_status add_steps(planner *p, int64_t first, add_phase *add) {
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (!steps[i].draft || p->profile.options.spec_width)
            KGEN_TRY(add(p, first, steps[i].phase));
    return KGEN_OK;
}

/* --- attention ----------------------------------------------------------- */

static void describe_draft(char *out, size_t size, const planner *p, kgen_phase phase) {
    int32_t tokens = kgen__phase_tokens(&p->profile, phase);
    out[0] = 0;
    if (tokens > 1) snprintf(out, size, ", %d draft tokens", tokens - 1);
}

static void describe(char *out, size_t size, const planner *p, const kgen_attn_spec *spec,
                     const kgen__layer *layer) {
    char window[48], softcap[32] = "", verify[48];
    int alibi = layer->alibi || p->profile.options.alibi;
    if (layer->window)
        snprintf(window, sizeof window, "sliding window %lld", (long long)layer->window);
    else
        snprintf(window, sizeof window, "full attention");
    if (layer->softcap > 0) snprintf(softcap, sizeof softcap, ", softcap %g", layer->softcap);
    describe_draft(verify, sizeof verify, p, spec->phase);
    snprintf(out, size, "%s%s%s%s%s%s", window, softcap, layer->sinks ? ", sinks" : "",
             alibi ? ", ALiBi" : "", spec->cascade ? ", prefixes in common" : "", verify);
}

static kgen_status add_attention_item(planner *p, int64_t first, kgen_phase phase, int cascade) {
    const kgen__layer *layer = &p->model.layer[first];
    kgen_plan_item item = {.layers = count_equal(&p->model, first), .scale = layer->scale};
    kgen__rank rank;
    kgen_error why;
    KGEN_TRY(kgen__rank_of(&p->profile, layer, &rank, p->err));
    KGEN_TRY(kgen__attn_spec(&item.spec, &p->profile, layer, &rank, phase, p->err));
    item.spec.attn.cascade = cascade;
    describe(item.note, sizeof item.note, p, &item.spec.attn, layer);
    if (kgen_spec_validate(&item.spec, NULL, &why) != KGEN_OK)
        return add_sentence(p, "%d layers (%s, %s): %s", item.layers, item.note, phase_name(phase),
                            why.text);
    item.q_heads = (int)rank.heads;
    item.kv_heads = (int)rank.kv_heads;
    return add_layers_item(p, first, &item);
}

static kgen_status add_attention(planner *p, int64_t first, kgen_phase phase) {
    return add_attention_item(p, first, phase, 0);
}

static kgen_status add_prefix(planner *p, int64_t first, kgen_phase phase) {
    return add_attention_item(p, first, phase, 1);
}

/* Of layers that have a kernel for one token; what has none leaves a sentence. */
static kgen_status add_prompts(planner *p, int64_t first) {
    const kgen__layer *layer = &p->model.layer[first];
    kgen__rank rank;
    kgen_spec decode;
    KGEN_TRY(kgen__rank_of(&p->profile, layer, &rank, p->err));
    KGEN_TRY(kgen__attn_spec(&decode, &p->profile, layer, &rank, KGEN_PHASE_DECODE, p->err));
    for (size_t i = 0; i < kgen__prompt_rows(); i++) {
        kgen_error why;
        int wanted = kgen_spec_validate(&decode, NULL, &why) == KGEN_OK;
        kgen_plan_item item = {.layers = count_equal(&p->model, first)};
        kgen_status status = !wanted ? KGEN_OK
                                     : kgen__prompt_item(&item, i, &p->profile, layer, &decode,
                                                         &rank, &wanted, &why);
        if (status != KGEN_OK)
            KGEN_TRY(add_sentence(p, "%d layers (%s): %s", item.layers, item.note, why.text));
        else if (wanted)
            KGEN_TRY(add_layers_item(p, first, &item));
    }
    return KGEN_OK;
}

/* What no cache kernel takes leaves a sentence. */
static kgen_status add_cache(planner *p, int64_t first) {
    const kgen__layer *layer = &p->model.layer[first];
    kgen__rank rank;
    kgen_spec attn;
    KGEN_TRY(kgen__rank_of(&p->profile, layer, &rank, p->err));
    KGEN_TRY(kgen__attn_spec(&attn, &p->profile, layer, &rank, KGEN_PHASE_DECODE, p->err));
    for (size_t i = 0; i < kgen__cache_rows(); i++) {
        int wanted;
        kgen_error why;
        kgen_plan_item item = {.layers = count_equal(&p->model, first),
                               .kv_heads = (int)rank.kv_heads};
        kgen_status status = kgen__cache_item(&item, i, &p->profile, &attn.attn, &wanted, &why);
        if (status != KGEN_OK)
            KGEN_TRY(add_sentence(p, "%d layers (%s): %s", item.layers, item.note, why.text));
        else if (wanted)
            KGEN_TRY(add_layers_item(p, first, &item));
    }
    return KGEN_OK;
}

static int is_kind(const kgen__layer *layer, int sliding) {
    return layer->mix == KGEN__MIX_ATTENTION && (layer->window > 0) == sliding;
}

/* Full layers stand before sliding ones. */
static kgen_status add_all_attention(planner *p) {
    const kgen__model *m = &p->model;
    for (int sliding = 0; sliding < 2; sliding++)
        for (int64_t i = 0; i < m->count; i++) {
            if (!is_kind(&m->layer[i], sliding) || !is_first(m, i)) continue;
            KGEN_TRY(add_steps(p, i, add_attention));
        }
    return KGEN_OK;
}

static kgen_status add_all_prompts(planner *p) {
    const kgen__model *m = &p->model;
    for (int sliding = 0; sliding < 2; sliding++)
        for (int64_t i = 0; i < m->count; i++)
            if (is_kind(&m->layer[i], sliding) && is_first(m, i)) KGEN_TRY(add_prompts(p, i));
    return KGEN_OK;
}

/* Layers with a window do not see a prefix whole. */
static kgen_status add_all_prefixes(planner *p) {
    const kgen__model *m = &p->model;
    const kgen_plan_options *o = &p->profile.options;
    for (int64_t i = 0; o->cascade && i < m->count; i++) {
        if (!is_kind(&m->layer[i], 0) || !is_first(m, i)) continue;
        KGEN_TRY(add_steps(p, i, add_prefix));
        if (o->prompts != KGEN_PROMPTS_NONE) KGEN_TRY(add_prefix(p, i, KGEN_PHASE_EXTEND));
    }
    return KGEN_OK;
}

static kgen_status add_all_caches(planner *p) {
    const kgen__model *m = &p->model;
    for (int sliding = 0; sliding < 2; sliding++)
        for (int64_t i = 0; i < m->count; i++)
            if (is_kind(&m->layer[i], sliding) && !m->layer[i].shared && is_first(m, i))
                KGEN_TRY(add_cache(p, i));
    return KGEN_OK;
}

/* --- latent attention ---------------------------------------------------- */

static kgen_status add_latent(planner *p, int64_t first, kgen_phase phase) {
    const kgen__layer *layer = &p->model.layer[first];
    kgen_plan_item item = {.layers = count_equal(&p->model, first), .scale = layer->scale};
    char verify[48];
    kgen_error why;
    if (p->model.topk && phase != KGEN_PHASE_DECODE) return KGEN_OK; /* a list a token */
    KGEN_TRY(kgen__mla_spec(&item.spec, &p->profile, layer, phase, p->err));
    describe_draft(verify, sizeof verify, p, phase);
    snprintf(item.note, sizeof item.note, "latent attention%s%s",
             p->model.topk ? " to listed rows" : "", verify);
    item.q_heads = item.spec.mla.heads;
    item.kv_heads = 1;
    if (kgen_spec_validate(&item.spec, NULL, &why) != KGEN_OK)
        return add_sentence(p, "%d layers (%s, %s): %s", item.layers, item.note, phase_name(phase),
                            why.text);
    return add_layers_item(p, first, &item);
}

static kgen_status add_latent_cache(planner *p, int64_t first) {
    kgen_spec mla;
    KGEN_TRY(kgen__mla_spec(&mla, &p->profile, &p->model.layer[first], KGEN_PHASE_DECODE, p->err));
    for (size_t i = 0; i < kgen__latent_rows(); i++) {
        int wanted;
        kgen_error why;
        kgen_plan_item item = {.layers = count_equal(&p->model, first), .kv_heads = 1};
        kgen_status status = kgen__latent_item(&item, i, &p->profile, &mla.mla, &wanted, &why);
        if (status != KGEN_OK)
            KGEN_TRY(add_sentence(p, "%d layers (%s): %s", item.layers, item.note, why.text));
        else if (wanted)
            KGEN_TRY(add_layers_item(p, first, &item));
    }
    return KGEN_OK;
}

/* Of layers whose rows an indexer picks, which says how large it is. */
static kgen_status add_indexer(planner *p, int64_t first) {
    const kgen__model *m = &p->model;
    for (size_t i = 0; m->topk && m->index_heads && m->index_dim && i < kgen__index_rows(); i++) {
        int wanted;
        kgen_error why;
        kgen_plan_item item = {.layers = count_equal(m, first), .kv_heads = 1};
        kgen_status status = kgen__index_item(&item, i, &p->profile, &wanted, &why);
        if (status != KGEN_OK)
            KGEN_TRY(add_sentence(p, "%d layers (%s): %s", item.layers, item.note, why.text));
        else if (wanted)
            KGEN_TRY(add_layers_item(p, first, &item));
    }
    return KGEN_OK;
}

/* Once for each kind of its layers. */
static kgen_status add_all_latent(planner *p, kgen_status (*add)(planner *p, int64_t first)) {
    const kgen__model *m = &p->model;
    for (int64_t i = 0; kgen__latent_is_known(m) && i < m->count; i++)
        if (m->layer[i].mix == KGEN__MIX_MLA && is_first(m, i)) KGEN_TRY(add(p, i));
    return KGEN_OK;
}

static kgen_status add_latent_steps(planner *p, int64_t first) {
    return add_steps(p, first, add_latent);
}

/* --- Gated DeltaNet and KDA ---------------------------------------------- */

static kgen_status add_delta(planner *p, int64_t first, kgen_phase phase) {
    const kgen__delta *d = &p->model.delta;
    kgen_plan_item item = {.layers = count_equal(&p->model, first)};
    kgen_error why;
    char verify[48];
    describe_draft(verify, sizeof verify, p, phase);
    snprintf(item.note, sizeof item.note, "%s%s",
             d->gate == KGEN_GATE_GDN ? "Gated DeltaNet" : "Kimi Delta Attention", verify);
    kgen_status status = kgen__gdn_spec(&item.spec, &p->profile, phase, &why);
    if (status == KGEN_E_CONFIG) return kgen_fail(p->err, status, "%s", why.text);
    if (status != KGEN_OK)
        return add_sentence(p, "%d layers (%s, %s): %s", item.layers, item.note, phase_name(phase),
                            why.text);
    item.q_heads = item.spec.gdn.k_heads;
    item.kv_heads = item.spec.gdn.v_heads;
    item.scale = 1.0 / sqrt((double)d->k_dim);
    item.norm_eps = d->norm_eps;
    item.l2_eps = 1e-6; /* of every known model, none of which names it */
    item.lower_bound = d->bound;
    return add_layers_item(p, first, &item);
}

static kgen_status add_all_delta(planner *p) {
    const kgen__model *m = &p->model;
    for (int64_t i = 0; i < m->count; i++) {
        if (m->layer[i].mix != KGEN__MIX_DELTA || !is_first(m, i)) continue;
        KGEN_TRY(add_steps(p, i, add_delta));
    }
    return KGEN_OK;
}

/* --- metadata ------------------------------------------------------------ */

/* A page that no metadata kernel takes leaves a sentence. */
static kgen_status add_metadata(planner *p) {
    int windowed = 0, wanted = 0;
    for (int64_t i = 0; i < p->model.count; i++) windowed |= p->model.layer[i].window > 0;
    for (size_t i = 0; i < kgen__metadata_rows(); i++) {
        kgen_plan_item item = {0};
        kgen_error why;
        kgen_status status = kgen__metadata_item(&item, i, &p->profile, windowed, &wanted, &why);
        if (status != KGEN_OK)
            KGEN_TRY(add_sentence(p, "%s: %s", item.note, why.text));
        else if (wanted)
            KGEN_TRY(push_item(p, &item));
    }
    return KGEN_OK;
}

/* --- what is missing ----------------------------------------------------- */

/* kind: in the map of layers. missing: what there is no kernel for. */
static const struct {
    const char *kind, *missing;
} mechanisms[KGEN__MIX_COUNT] = {
    [KGEN__MIX_ATTENTION] = {"attention", NULL},
    [KGEN__MIX_DELTA] = {"linear attention", NULL},
    [KGEN__MIX_MLA] = {"MLA", "multi-head latent attention"},
    [KGEN__MIX_CHUNKED] = {"chunked attention", "chunked attention"},
    [KGEN__MIX_SPARSE] = {"sparse attention", "sparse attention, whose keys an indexer picks"},
    [KGEN__MIX_CROSS] = {"cross attention", "cross attention"},
    [KGEN__MIX_MAMBA] = {"Mamba", "Mamba"},
    [KGEN__MIX_LIGHTNING] = {"lightning attention", "lightning attention"},
    [KGEN__MIX_SHORT_CONV] = {"short convolution", "short convolutions"},
    [KGEN__MIX_NONE] = {"none", NULL},
};

static void describe_field(char *out, size_t size, const kgen__model *m, kgen__mechanism mix) {
    out[0] = 0;
    if (mix == KGEN__MIX_MLA && m->kv_lora_rank)
        snprintf(out, size, " (kv_lora_rank=%lld)", (long long)m->kv_lora_rank);
    if (mix == KGEN__MIX_CHUNKED && m->chunk)
        snprintf(out, size, " (attention_chunk_size=%lld)", (long long)m->chunk);
}

static kgen_status add_missing_layers(planner *p) {
    const kgen__model *m = &p->model;
    int beside = 0;
    for (int mix = 0; mix < KGEN__MIX_COUNT; mix++) {
        char field[48];
        long long layers = kgen__model_layers(m, (kgen__mechanism)mix);
        if (!layers || !mechanisms[mix].missing) continue;
        if (mix == KGEN__MIX_MLA && kgen__latent_is_known(m)) continue;
        describe_field(field, sizeof field, m, (kgen__mechanism)mix);
        KGEN_TRY(add_sentence(p, "%lld of %lld layers are %s%s: this version has no kernel for it",
                              layers, (long long)m->count, mechanisms[mix].missing, field));
    }
    if (m->topk && (!m->index_heads || !m->index_dim))
        KGEN_TRY(add_sentence(p,
                              "%lld of %lld layers see %lld rows that an indexer picks: %s is "
                              "missing, and without it no kernel of the indexer is known",
                              (long long)kgen__model_layers(m, KGEN__MIX_MLA), (long long)m->count,
                              (long long)m->topk,
                              m->index_heads ? "index_head_dim" : "index_n_heads"));
    for (int64_t i = 0; i < m->count; i++) beside += m->layer[i].mamba;
    return beside ? add_sentence(p,
                                 "%d of %lld layers have a Mamba block beside their attention: "
                                 "this version has no kernel for it",
                                 beside, (long long)m->count)
                  : KGEN_OK;
}

/* Engines that read prompts over pages find latents there. */
static kgen_status add_latent_limits(planner *p) {
    const kgen_plan_options *o = &p->profile.options;
    if (!kgen__latent_is_known(&p->model) || p->model.topk || o->prompts == KGEN_PROMPTS_ENGINE ||
        o->prompts == KGEN_PROMPTS_NONE)
        return KGEN_OK;
    return add_sentence(p,
                        "%lld of %lld layers: prompts of latent attention over pages need another "
                        "kernel: this version has decode and verify",
                        (long long)kgen__model_layers(&p->model, KGEN__MIX_MLA),
                        (long long)p->model.count);
}

static kgen_status add_limits(planner *p) {
    KGEN_TRY(add_latent_limits(p));
    if (p->profile.options.dense)
        KGEN_TRY(add_sentence(p,
                              "model_type=%s: as asked, every layer is taken as plain causal "
                              "attention%s%s",
                              p->model.type, p->model.assumed[0] ? "; passed over: " : "",
                              p->model.assumed));
    long long linear = kgen__model_layers(&p->model, KGEN__MIX_DELTA);
    if (!linear || p->profile.options.prompts == KGEN_PROMPTS_NONE) return KGEN_OK;
    return add_sentence(p,
                        "%lld of %lld layers are linear attention, whose prefill needs another "
                        "kernel: this version has decode and verify",
                        linear, (long long)p->model.count);
}

/* --- all ----------------------------------------------------------------- */

static kgen_status start(planner *p) {
    kgen_plan *plan = p->plan;
    const kgen__model *m = &p->model;
    plan->unsupported = calloc(MAX_SENTENCES, sizeof *plan->unsupported);
    plan->layers = calloc((size_t)m->count, sizeof *plan->layers);
    if (!plan->unsupported || !plan->layers)
        return kgen_fail(p->err, KGEN_E_NOMEM, "plan: no memory for the list");
    plan->layer_count = (size_t)m->count;
    for (int64_t i = 0; i < m->count; i++) plan->layers[i].kind = mechanisms[m->layer[i].mix].kind;
    memcpy(plan->model_type, m->type, sizeof plan->model_type);
    return KGEN_OK;
}

static kgen_status choose(planner *p) {
    kgen__profile *f = &p->profile;
    f->model = &p->model;
    f->x = f->options.x ? f->options.x : p->model.dtype;
    f->kv = f->options.kv_dtype ? f->options.kv_dtype : f->x;
    if (f->options.descale && kgen_dtype_size(f->kv) != 1)
        return kgen_fail(p->err, KGEN_E_ARG, "descale: a cache of %s has no scales",
                         kgen_dtype_name(f->kv));
    f->page = f->options.page;
    return f->page ? KGEN_OK : kgen__page_choose(&f->page, f, p->err);
}

static kgen_status fill(planner *p) {
    kgen_plan *plan = p->plan;
    KGEN_TRY(start(p));
    KGEN_TRY(add_missing_layers(p));
    KGEN_TRY(choose(p));
    KGEN_TRY(add_all_attention(p));
    KGEN_TRY(add_all_latent(p, add_latent_steps));
    size_t attention = plan->count;
    KGEN_TRY(add_all_delta(p));
    if (!plan->count)
        return kgen_fail(p->err, KGEN_E_UNSUPPORTED, "model_type=%s: %s", p->model.type,
                         plan->unsupported_count ? plan->unsupported[0] : "no attention layers");
    KGEN_TRY(add_all_prompts(p));
    KGEN_TRY(add_all_latent(p, add_prompts));
    KGEN_TRY(add_all_prefixes(p));
    if (attention) KGEN_TRY(add_all_caches(p));
    KGEN_TRY(add_all_latent(p, add_latent_cache));
    KGEN_TRY(add_all_latent(p, add_indexer));
    if (attention || p->profile.options.spec_width) KGEN_TRY(add_metadata(p));
    return add_limits(p);
}

kgen_status kgen_plan_make(kgen_plan *out, const char *json, size_t size,
                           const kgen_plan_options *options, kgen_error *err) {
    kgen_plan_options chosen;
    memset(out, 0, sizeof *out);
    KGEN_TRY(kgen_struct_take(&chosen, sizeof chosen, options, "kgen_plan_options", err));
    if (!options) chosen.tp = 1;
    KGEN_TRY(check_options(&chosen, err));
    planner *p = calloc(1, sizeof *p);
    if (!p) return kgen_fail(err, KGEN_E_NOMEM, "plan: no memory for a model");
    p->plan = out;
    p->err = err;
    p->profile.options = chosen;
    kgen_status status = kgen__model_read(&p->model, json, size, chosen.dense, err);
    if (status == KGEN_OK) status = fill(p);
    if (status != KGEN_OK) kgen_plan_free(out);
    free(p);
    return status;
}

void kgen_plan_free(kgen_plan *plan) {
    if (!plan) return;
    for (size_t i = 0; i < plan->unsupported_count; i++) free(plan->unsupported[i]);
    free(plan->unsupported);
    free(plan->layers);
    free(plan->items);
    memset(plan, 0, sizeof *plan);
}

/* Model config -> manifest: the kernels one rank of a deployment needs.
 * plan_model.c reads the config; here it meets the engine's choices. */
#include <kgen/plan.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_model.h"

enum { MAX_TP = 1024, MAX_SPEC_WIDTH = 15, MAX_ITEMS = 24, MAX_SENTENCES = 16, SENTENCE = 400 };

typedef struct planner {
    kgen__model model;
    kgen_plan_options options;
    kgen_dtype kv_dtype;
    int page;
    kgen_plan *plan;
    kgen_error *err;
} planner;

/* Heads of one rank for layers of one kind. */
typedef struct rank_shape {
    int64_t q_heads, kv_heads, head_dim, v_dim, window;
} rank_shape;

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
    return dtype >= KGEN_DTYPE_NONE && dtype <= KGEN_DTYPE_FP8;
}

static kgen_status check_options(const kgen_plan_options *o, kgen_error *err) {
    if (o->tp < 1 || o->tp > MAX_TP)
        return kgen_fail(err, KGEN_E_ARG, "tp=%d: must be 1 to %d", o->tp, MAX_TP);
    if (o->spec_width < 0 || o->spec_width > MAX_SPEC_WIDTH)
        return kgen_fail(err, KGEN_E_ARG, "spec_width=%d: must be 0 to %d", o->spec_width,
                         MAX_SPEC_WIDTH);
    if (o->page < 0 || (o->page != 1 && o->page % 16))
        return kgen_fail(err, KGEN_E_ARG, "page=%d: must be 1 or a multiple of 16; nearest is %d",
                         o->page, o->page < 9 ? 1 : (int)(((int64_t)o->page + 8) / 16 * 16));
    if (!is_kv_dtype(o->kv_dtype))
        return kgen_fail(err, KGEN_E_ARG, "kv_dtype=%s: must be a 16-bit or 8-bit type",
                         kgen_dtype_name(o->kv_dtype));
    if (o->engine != KGEN_ENGINE_VLLM && o->engine != KGEN_ENGINE_SGLANG)
        return kgen_fail(err, KGEN_E_ARG, "engine=%d: must be vllm or sglang", (int)o->engine);
    if (o->layout < KGEN_LAYOUT_NONE || o->layout > KGEN_LAYOUT_XPACKED)
        return kgen_fail(err, KGEN_E_ARG, "layout=%d: unknown", (int)o->layout);
    return KGEN_OK;
}

/* --- one rank ------------------------------------------------------------ */

/* More ranks than KV heads: each KV head is replicated and its group shared
 * out, so the group of a rank shrinks. */
static kgen_status split_heads(const planner *p, int64_t kv_heads, rank_shape *out) {
    int64_t q_heads = p->model.q_heads, tp = p->options.tp;
    if (q_heads % tp)
        return kgen_fail(p->err, KGEN_E_CONFIG,
                         "num_attention_heads=%lld: not divisible by tp=%lld", (long long)q_heads,
                         (long long)tp);
    if (q_heads % kv_heads)
        return kgen_fail(p->err, KGEN_E_CONFIG,
                         "num_attention_heads=%lld: not divisible by num_key_value_heads=%lld",
                         (long long)q_heads, (long long)kv_heads);
    if (kv_heads % tp && tp % kv_heads)
        return kgen_fail(p->err, KGEN_E_CONFIG,
                         "num_key_value_heads=%lld: neither a multiple nor a divisor of tp=%lld",
                         (long long)kv_heads, (long long)tp);
    out->q_heads = q_heads / tp;
    out->kv_heads = kv_heads > tp ? kv_heads / tp : 1;
    return KGEN_OK;
}

static kgen_status shape_of(const planner *p, kgen__layer_kind kind, rank_shape *out) {
    const kgen__model *m = &p->model;
    int full = kind == KGEN__LAYER_FULL;
    int64_t kv_heads = full && m->global_kv_heads ? m->global_kv_heads : m->kv_heads;
    KGEN_TRY(split_heads(p, kv_heads, out));
    out->head_dim = full && m->global_head_dim ? m->global_head_dim : m->head_dim;
    out->v_dim = m->v_dim && !(full && m->global_head_dim) ? m->v_dim : out->head_dim;
    out->window = full ? 0 : m->window;
    return KGEN_OK;
}

/* --- page ---------------------------------------------------------------- */

/* vLLM keeps the recurrent state of a linear-attention layer in a page of the
 * same pool, so it raises the attention page until it holds one state
 * (Platform._align_hybrid_block_size):
 *     page = 16 * ceil(state / (16 * bytes of one token's K and V))
 *     state = conv_dim * (conv_kernel - 1 + draft tokens) * 2
 *           + v_heads * k_dim * v_dim * state element
 * all of one rank.
 * Without a draft: Qwen3.5-35B-A3B 1056 (tp 1, 2), 528, 272 (tp 4, 8);
 * Qwen3-Next 544, 272, 144; Qwen3.5-27B 784, with 8-bit KV 1568. */
static int64_t hybrid_page(const planner *p, const rank_shape *shape) {
    const kgen__model *m = &p->model;
    int64_t conv_dim = 2 * m->gdn_k_heads * m->gdn_k_dim + m->gdn_v_heads * m->gdn_v_dim;
    int64_t conv = conv_dim * (m->gdn_conv - 1 + p->options.spec_width) * 2;
    int64_t recurrent = m->gdn_v_heads * m->gdn_k_dim * m->gdn_v_dim *
                        kgen_dtype_size(kgen__gdn_state(m, KGEN_ENGINE_VLLM));
    int64_t state = (conv + recurrent) / p->options.tp;
    int64_t token =
        shape->kv_heads * (shape->head_dim + shape->v_dim) * kgen_dtype_size(p->kv_dtype);
    return 16 * ((state + 16 * token - 1) / (16 * token));
}

/* vLLM: 16, or what a hybrid model's state asks for. SGLang on AMD: 1. */
static kgen_status choose_page(planner *p) {
    p->page = p->options.page;
    if (p->page) return KGEN_OK;
    p->page = p->options.engine == KGEN_ENGINE_SGLANG ? 1 : 16;
    const int64_t *count = p->model.layer_count;
    int hybrid =
        count[KGEN__LAYER_LINEAR] && (count[KGEN__LAYER_FULL] || count[KGEN__LAYER_SLIDING]);
    if (p->options.engine == KGEN_ENGINE_SGLANG || !hybrid) return KGEN_OK;
    rank_shape shape;
    KGEN_TRY(kgen__gdn_check(&p->model, p->options.tp, p->err));
    KGEN_TRY(shape_of(p, KGEN__LAYER_FULL, &shape));
    int64_t page = hybrid_page(p, &shape);
    if (page > INT32_MAX)
        return kgen_fail(p->err, KGEN_E_CONFIG,
                         "linear_num_value_heads=%lld: needs pages of %lld tokens",
                         (long long)p->model.gdn_v_heads, (long long)page);
    p->page = (int)page;
    return KGEN_OK;
}

/* --- items --------------------------------------------------------------- */

static double scale_of(const kgen__model *m, int64_t head_dim) {
    if (m->multiplier > 0) return m->multiplier;
    return 1.0 / sqrt(m->query_scalar > 0 ? m->query_scalar : (double)head_dim);
}

static kgen_status spec_of(const planner *p, kgen_phase phase, const rank_shape *shape,
                           kgen_spec *out) {
    const kgen__model *m = &p->model;
    KGEN_TRY(kgen_spec_parse(out, "attn:", p->err));
    kgen_attn_spec *spec = &out->attn;
    spec->phase = phase;
    spec->q_tokens = phase == KGEN_PHASE_VERIFY ? p->options.spec_width + 1 : 1;
    spec->q = (int32_t)m->dtype;
    spec->kv = (int32_t)p->kv_dtype;
    spec->head_dim = (int32_t)shape->head_dim;
    spec->v_dim = shape->v_dim == shape->head_dim ? 0 : (int32_t)shape->v_dim;
    spec->group = (int32_t)(shape->q_heads / shape->kv_heads);
    spec->page = p->page;
    spec->layout = (int32_t)(p->options.layout ? p->options.layout : KGEN_LAYOUT_NHD);
    spec->window = (int32_t)shape->window;
    spec->softcap = m->softcap_value > 0;
    spec->alibi = m->alibi;
    spec->sinks = m->sinks;
    return KGEN_OK;
}

static void describe(char *out, size_t size, const kgen__model *m, kgen_phase phase,
                     const rank_shape *shape, int spec_width) {
    char window[48], softcap[32] = "", verify[48] = "";
    if (shape->window)
        snprintf(window, sizeof window, "sliding window %lld", (long long)shape->window);
    else
        snprintf(window, sizeof window, "full attention");
    if (m->softcap_value > 0) snprintf(softcap, sizeof softcap, ", softcap %g", m->softcap_value);
    if (phase == KGEN_PHASE_VERIFY)
        snprintf(verify, sizeof verify, ", %d draft tokens", spec_width);
    snprintf(out, size, "%s%s%s%s%s", window, softcap, m->sinks ? ", sinks" : "",
             m->alibi ? ", ALiBi" : "", verify);
}

static kgen_status add_item(planner *p, kgen__layer_kind kind, kgen_phase phase) {
    int64_t layers = p->model.layer_count[kind];
    rank_shape shape;
    kgen_spec spec;
    kgen_error why;
    kgen_plan_item item = {0};
    KGEN_TRY(shape_of(p, kind, &shape));
    KGEN_TRY(spec_of(p, phase, &shape, &spec));
    describe(item.note, sizeof item.note, &p->model, phase, &shape, p->options.spec_width);
    if (kgen_spec_validate(&spec, NULL, &why) != KGEN_OK)
        return add_sentence(p, "%lld layers (%s, %s): %s", (long long)layers, item.note,
                            phase == KGEN_PHASE_DECODE ? "decode" : "verify", why.text);
    item.spec = spec;
    item.layers = (int)layers;
    item.q_heads = (int)shape.q_heads;
    item.kv_heads = (int)shape.kv_heads;
    item.scale = scale_of(&p->model, shape.head_dim);
    p->plan->items[p->plan->count++] = item;
    return KGEN_OK;
}

static kgen_status add_gdn(planner *p, kgen_phase phase) {
    const kgen__model *m = &p->model;
    kgen_plan_item item = {.layers = (int)m->layer_count[KGEN__LAYER_LINEAR]};
    kgen_error why;
    char verify[48] = "";
    if (phase == KGEN_PHASE_VERIFY)
        snprintf(verify, sizeof verify, ", %d draft tokens", p->options.spec_width);
    snprintf(item.note, sizeof item.note, "%s%s",
             m->gdn_gate == KGEN_GATE_GDN ? "Gated DeltaNet" : "Kimi Delta Attention", verify);
    kgen_status status = kgen__gdn_spec(&item.spec, m, &p->options, phase, &why);
    if (status == KGEN_E_CONFIG) return kgen_fail(p->err, status, "%s", why.text);
    if (status != KGEN_OK)
        return add_sentence(p, "%d layers (%s, %s): %s", item.layers, item.note,
                            phase == KGEN_PHASE_DECODE ? "decode" : "verify", why.text);
    item.q_heads = item.spec.gdn.k_heads;
    item.kv_heads = item.spec.gdn.v_heads;
    item.scale = 1.0 / sqrt((double)m->gdn_k_dim);
    item.norm_eps = m->gdn_norm_eps;
    item.l2_eps = 1e-6; /* of every known model, none of which names it */
    item.lower_bound = m->gdn_bound;
    p->plan->items[p->plan->count++] = item;
    return KGEN_OK;
}

/* Full and sliding layers may share a kernel: they are one item then. */
static void add_or_merge(planner *p, const kgen_plan_item *item) {
    char line[KGEN_SPEC_LINE_MAX], other[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &item->spec);
    for (size_t i = 0; i < p->plan->count; i++) {
        kgen_plan_item *same = &p->plan->items[i];
        kgen_spec_print(other, &same->spec);
        if (strcmp(line, other) || same->kv_heads != item->kv_heads) continue;
        same->layers += item->layers;
        return;
    }
    p->plan->items[p->plan->count++] = *item;
}

/* What no cache kernel takes leaves a sentence. */
static kgen_status add_cache(planner *p, kgen__layer_kind kind) {
    int64_t layers = p->model.layer_count[kind];
    rank_shape shape;
    kgen_spec attn;
    KGEN_TRY(shape_of(p, kind, &shape));
    KGEN_TRY(spec_of(p, KGEN_PHASE_DECODE, &shape, &attn));
    for (size_t i = 0; i < kgen__cache_rows(); i++) {
        int wanted;
        kgen_error why;
        kgen_plan_item item = {.layers = (int)layers, .kv_heads = (int)shape.kv_heads};
        kgen_status status =
            kgen__cache_item(&item, i, p->options.engine, kind, &attn.attn, &wanted, &why);
        if (status != KGEN_OK)
            KGEN_TRY(
                add_sentence(p, "%lld layers (%s): %s", (long long)layers, item.note, why.text));
        else if (wanted)
            add_or_merge(p, &item);
    }
    return KGEN_OK;
}

static kgen_status add_caches(planner *p) {
    static const kgen__layer_kind kinds[] = {KGEN__LAYER_FULL, KGEN__LAYER_SLIDING};
    for (size_t i = 0; i < 2; i++)
        if (p->model.layer_count[kinds[i]]) KGEN_TRY(add_cache(p, kinds[i]));
    return KGEN_OK;
}

/* A page that no metadata kernel takes leaves a sentence. */
static kgen_status add_metadata(planner *p) {
    int windowed = p->model.layer_count[KGEN__LAYER_SLIDING] > 0, wanted = 0;
    for (size_t i = 0; i < kgen__metadata_rows(); i++) {
        kgen_plan_item item = {0};
        kgen_error why;
        kgen_status status =
            kgen__metadata_item(&item, i, p->options.engine, p->page, windowed, &wanted, &why);
        if (status != KGEN_OK)
            KGEN_TRY(add_sentence(p, "%s: %s", item.note, why.text));
        else if (wanted)
            p->plan->items[p->plan->count++] = item;
    }
    return KGEN_OK;
}

static kgen_status add_layers(planner *p) {
    static const kgen__layer_kind kinds[] = {KGEN__LAYER_FULL, KGEN__LAYER_SLIDING};
    for (size_t i = 0; i < 2; i++) {
        if (!p->model.layer_count[kinds[i]]) continue;
        KGEN_TRY(add_item(p, kinds[i], KGEN_PHASE_DECODE));
        if (p->options.spec_width) KGEN_TRY(add_item(p, kinds[i], KGEN_PHASE_VERIFY));
    }
    if (!p->model.layer_count[KGEN__LAYER_LINEAR] || !p->model.gdn_layout) return KGEN_OK;
    KGEN_TRY(add_gdn(p, KGEN_PHASE_DECODE));
    return p->options.spec_width ? add_gdn(p, KGEN_PHASE_VERIFY) : KGEN_OK;
}

/* --- what is missing ----------------------------------------------------- */

static kgen_status add_missing_layers(planner *p) {
    const kgen__model *m = &p->model;
    const int64_t *count = m->layer_count;
    if (count[KGEN__LAYER_MLA])
        KGEN_TRY(add_sentence(p,
                              "%lld of %lld layers are multi-head latent attention "
                              "(kv_lora_rank=%lld): this version has no MLA kernel",
                              (long long)count[KGEN__LAYER_MLA], (long long)m->layers,
                              (long long)m->kv_lora_rank));
    if (count[KGEN__LAYER_LINEAR] && !m->gdn_layout)
        KGEN_TRY(add_sentence(p,
                              "%lld of %lld layers are linear attention whose in-projection "
                              "this version does not know; the engine's own kernel stays in "
                              "use for them",
                              (long long)count[KGEN__LAYER_LINEAR], (long long)m->layers));
    if (count[KGEN__LAYER_CHUNKED])
        KGEN_TRY(add_sentence(p,
                              "%lld of %lld layers are chunked attention "
                              "(attention_chunk_size=%lld): this version has no kernel for them",
                              (long long)count[KGEN__LAYER_CHUNKED], (long long)m->layers,
                              (long long)m->chunk));
    if (count[KGEN__LAYER_OTHER])
        KGEN_TRY(add_sentence(p,
                              "%lld of %lld layers are of a kind that this version does not "
                              "know (the first: %s)",
                              (long long)count[KGEN__LAYER_OTHER], (long long)m->layers, m->other));
    return KGEN_OK;
}

static kgen_status add_limits(planner *p) {
    if (!p->model.known)
        KGEN_TRY(add_sentence(p,
                              "model_type=%s is not known to this version: its layers are taken "
                              "as plain causal attention of the shapes in the config",
                              p->model.type));
    return add_sentence(p, "prefill and chunked prefill need another kernel: this version has "
                           "decode, and verify of tokens in a chain (a plan has no token trees)");
}

static kgen_status fill(planner *p) {
    kgen_plan *plan = p->plan;
    plan->items = calloc(MAX_ITEMS, sizeof *plan->items);
    plan->unsupported = calloc(MAX_SENTENCES, sizeof *plan->unsupported);
    if (!plan->items || !plan->unsupported)
        return kgen_fail(p->err, KGEN_E_NOMEM, "plan: no memory for the list");
    memcpy(plan->model_type, p->model.type, sizeof plan->model_type);
    KGEN_TRY(add_missing_layers(p));
    KGEN_TRY(choose_page(p));
    KGEN_TRY(add_layers(p));
    if (p->plan->count) KGEN_TRY(add_caches(p));
    if (p->plan->count && p->options.spec_width) KGEN_TRY(add_metadata(p));
    if (!plan->count)
        return kgen_fail(p->err, KGEN_E_UNSUPPORTED, "model_type=%s: %s", p->model.type,
                         plan->unsupported_count ? plan->unsupported[0] : "no attention layers");
    return add_limits(p);
}

kgen_status kgen_plan_make(kgen_plan *out, const char *json, size_t size,
                           const kgen_plan_options *options, kgen_error *err) {
    static const kgen_plan_options plain = {.tp = 1};
    planner p = {.options = options ? *options : plain, .plan = out, .err = err};
    memset(out, 0, sizeof *out);
    KGEN_TRY(check_options(&p.options, err));
    KGEN_TRY(kgen__model_read(&p.model, json, size, err));
    p.kv_dtype = p.options.kv_dtype ? p.options.kv_dtype : p.model.dtype;
    kgen_status status = fill(&p);
    if (status != KGEN_OK) kgen_plan_free(out);
    return status;
}

void kgen_plan_free(kgen_plan *plan) {
    if (!plan) return;
    for (size_t i = 0; i < plan->unsupported_count; i++) free(plan->unsupported[i]);
    free(plan->unsupported);
    free(plan->items);
    memset(plan, 0, sizeof *plan);
}

/* The tensors of a case. Every allocation ends with its last element, and all
 * that no row may look at is poison: NaN and infinities in dead slots and in
 * pages of nobody, table entries past the end that lead to such pages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_attn.h"
#include "attn_extent.h"
#include "attn_layout.h"

/* ---- shapes --------------------------------------------------------------- */

/* Sequences of a group; mla's cases have none. */
static int32_t share_of(const kgen__attn_case *c) { return c->share > 0 ? c->share : 1; }

typedef struct extents {
    int64_t seqs, tokens, pages, page, columns, entries, hkv, hq, d, dv, groups;
} extents;

static int64_t pages_of(int64_t length, int64_t page) { return (length + page - 1) / page; }

static extents measure(const kgen__case *drawn, const kgen_attn_spec *spec) {
    const kgen__attn_case *c = &drawn->attn;
    extents e = {.seqs = drawn->seqs,
                 .page = spec->page == KGEN_PAGE_X16 ? c->page : spec->page,
                 .pages = 1 + c->extra,
                 .hkv = c->hkv,
                 .hq = (int64_t)c->hkv * spec->group,
                 .d = spec->head_dim,
                 .dv = spec->v_dim ? spec->v_dim : spec->head_dim};
    int ragged = kgen_attn_phase_of(spec->phase)->ragged;
    for (int32_t s = 0; s < drawn->seqs; s++) {
        int64_t pages = pages_of(c->lens[s].high, e.page);
        e.tokens += ragged ? c->qlens[s].high : 1;
        e.pages += pages;
        e.entries += pages + c->cols;
        if (pages > e.columns) e.columns = pages;
    }
    if (ragged) e.tokens += c->tail;
    e.columns += c->cols;
    if (e.columns == 0) e.columns = 1;
    e.groups = (e.seqs + share_of(c) - 1) / share_of(c);
    return e;
}

static kgen__cache_plan plan_of(const kgen__data *data, const extents *e) {
    const kgen__attn_case *c = &data->shape.attn;
    return (kgen__cache_plan){e->pages, e->page, e->hkv, e->d, e->dv, c->pad, c->packed};
}

static void shape_cache(kgen__data *data, const extents *e) {
    const kgen__attn_case *c = &data->shape.attn;
    int32_t granularity = data->spec.attn.descale;
    kgen_attn_args *a = data->args.attn;
    kgen__cache_plan plan = plan_of(data, e);
    kgen__scale_shape first =
        granularity == KGEN_DESCALE_TOKEN ? KGEN__SCALE_TOKEN : KGEN__SCALE_ONE;
    kgen__cache_shape(&a->k, &plan, KGEN__SIDE_K);
    kgen__cache_shape(&a->v, &plan, KGEN__SIDE_V);
    if (kgen_dtype_size((kgen_dtype)data->spec.attn.q) == 1)
        kgen__descale_shape(&a->q_descale, &plan,
                            c->qds ? (kgen__scale_shape)c->qds : KGEN__SCALE_ONE, e->seqs);
    if (granularity == KGEN_DESCALE_NONE) return;
    kgen__descale_shape(&a->k_descale, &plan, c->kds ? (kgen__scale_shape)c->kds : first, e->seqs);
    kgen__descale_shape(&a->v_descale, &plan, c->vds ? (kgen__scale_shape)c->vds : first, e->seqs);
}

static void pad_rows(kgen_tensor *t, int32_t pad) {
    kgen__tensor_pad(t, (int64_t[]){pad * (16 / kgen_dtype_size(t->dtype)), 0, 0});
}

static kgen_status shape_tensors(kgen__data *data, const extents *e, kgen_error *err) {
    const kgen__attn_case *c = &data->shape.attn;
    kgen_attn_args *a = data->args.attn;
    const kgen_arg_size sizes[] = {{"T", e->tokens}, {"S", e->seqs},        {"S+1", e->seqs + 1},
                                   {"Hq", e->hq},    {"pages", e->columns}, {"entries", e->entries},
                                   {"P", e->groups}, {"P+1", e->groups + 1}};
    KGEN_TRY(kgen__data_shape(data, sizes, sizeof sizes / sizeof sizes[0],
                              c->bad ? 0 : (uint64_t)1 << ERROR, err));
    shape_cache(data, e);
    pad_rows(&a->q, c->qpad);
    pad_rows(&a->out, c->qpad);
    if (a->gate.rank) pad_rows(&a->gate, c->qpad);
    kgen__tensor_pad(&a->block_table, (int64_t[]){c->rowpad, 0});
    kgen__tensor_pad(&a->words, (int64_t[]){c->rowpad, 0});
    return KGEN_OK;
}

static void choose_numbers(kgen__data *data) {
    const kgen__attn_case *c = &data->shape.attn;
    const kgen_attn_spec *spec = &data->spec.attn;
    kgen_attn_args *a = data->args.attn;
    a->softmax_scale = (float)(c->scale > 0 ? c->scale : 1 / sqrt((double)spec->head_dim));
    if (spec->softcap) a->softcap = (float)c->softcap;
    if (spec->window == KGEN_WINDOW_RT) a->window = c->window;
    if (spec->right == KGEN_WINDOW_RT) a->right = c->right;
    if (spec->keep == KGEN_WINDOW_RT) a->keep = c->keep;
}

/* Where V is a part of K's allocation, that holds both. */
static void pack_values(kgen__data *data, const extents *e) {
    kgen__cache_plan plan = plan_of(data, e);
    for (int i = Q; i <= V; i++) data->slot[i].offset = data->shape.attn.off ? 16 : 0;
    data->slot[OUT].offset = data->shape.attn.off > 1 ? 4 : 0;
    kgen__cache_pack(data, &plan, K, V);
}

/* What the shapes can not express is refused before anything is sized. */
static kgen_status check_shape(const kgen__case *drawn, const kgen_attn_spec *spec,
                               const extents *e, kgen_error *err) {
    const kgen__attn_case *c = &drawn->attn;
    int token = spec->descale == KGEN_DESCALE_TOKEN;
    if (c->qds >= KGEN__SCALE_TOKEN)
        return kgen_fail(err, KGEN_E_ARG, "qds: queries have one, head or seq");
    if (spec->descale == KGEN_DESCALE_HEAD || token) {
        int32_t shapes[2] = {c->kds, c->vds};
        for (int i = 0; i < 2; i++)
            if (shapes[i] != KGEN__SCALE_AUTO && (shapes[i] >= KGEN__SCALE_TOKEN) != token)
                return kgen_fail(err, KGEN_E_ARG, "%s: shape does not fit descale=%s",
                                 i ? "vds" : "kds", token ? "token" : "head");
    }
    if (c->packed > 1 && !kgen__cache_is_plain((kgen_layout)spec->layout))
        return kgen_fail(err, KGEN_E_ARG, "packed=%d: only 0 and 1 with layout=%s", c->packed,
                         kgen_layout_name((kgen_layout)spec->layout));
    if (e->page < 1 || e->tokens < 1)
        return kgen_fail(err, KGEN_E_ARG, "page=%lld, %lld query tokens: both must be at least 1",
                         (long long)e->page, (long long)e->tokens);
    return KGEN_OK;
}

kgen_status kgen__attn_shape(kgen__data *data, kgen_error *err) {
    const kgen_attn_spec *spec = &data->spec.attn;
    extents e = measure(&data->shape, spec);
    KGEN_TRY(check_shape(&data->shape, spec, &e, err));
    KGEN_TRY(shape_tensors(data, &e, err));
    choose_numbers(data);
    pack_values(data, &e);
    return KGEN_OK;
}

/* ---- contents ------------------------------------------------------------- */

typedef struct filler {
    kgen__data *data;
    const int32_t *lens, *qlens;
    uint64_t seed;
    int64_t page_tokens, pages, heads;
    int64_t *order; /* pages in random order */
    int64_t used;   /* of them, so far */
    double spread;  /* of what is cached, before its scale */
} filler;

static kgen__rng stream(const filler *f, int slot) {
    kgen__rng rng;
    kgen__rng_seed(&rng, f->seed, (uint64_t)slot + 1);
    return rng;
}

/* Elements that no live row overwrites keep what is written here: numbers where
 * something out of bounds may make rows see them. */
static void cover(filler *f, int index) {
    const kgen__attn_case *c = &f->data->shape.attn;
    kgen__rng rng = stream(f, KGEN__ATTN_SLOTS + index);
    kgen__slot_cover(f->data, index, &rng, c->poison && !c->bad);
}

static void fill_lengths(filler *f) {
    kgen_attn_args *a = f->data->args.attn;
    int64_t tokens = 0, keys = 0;
    for (int32_t s = 0; s < f->data->shape.seqs; s++) {
        if (a->seq_lens.data) kgen__int_store(&a->seq_lens, s, f->lens[s]);
        if (a->cu_seqlens_k.data) kgen__int_store(&a->cu_seqlens_k, s, keys);
        if (a->cu_seqlens_q.data) kgen__int_store(&a->cu_seqlens_q, s, tokens);
        tokens += f->qlens[s];
        keys += f->lens[s];
    }
    if (a->cu_seqlens_k.data) kgen__int_store(&a->cu_seqlens_k, f->data->shape.seqs, keys);
    if (a->cu_seqlens_q.data) kgen__int_store(&a->cu_seqlens_q, f->data->shape.seqs, tokens);
}

/* Trees in order of slots; of some sequences any word that has bit 0 and its own. */
static void fill_masks(filler *f) {
    kgen_tensor *t = &f->data->args.attn->words;
    kgen__rng rng = stream(f, MASKS);
    for (int64_t s = 0; t->data && s < t->shape[0]; s++) {
        uint64_t mask[64] = {1};
        int any = kgen__chance(&rng, 2);
        for (int64_t i = 0; i < t->shape[1]; i++) {
            if (i > 0) mask[i] = mask[kgen__rng_range(&rng, 0, i - 1)] | (uint64_t)1 << i;
            if (any) mask[i] |= kgen__rng_next(&rng);
            kgen__int_store(t, s * t->stride[0] + i, (int64_t)mask[i]);
        }
    }
}

/* Any byte but 0 says yes. */
static void fill_flags(filler *f) {
    kgen_tensor *t = &f->data->args.attn->causal;
    kgen__rng rng = stream(f, CAUSAL);
    for (int64_t i = 0; t->data && i < t->shape[0]; i++)
        ((uint8_t *)t->data)[i] = (uint8_t)KGEN__PICK(&rng, 0, 0, 1, 1, 255);
}

/* Spans of some tokens; of the others any position up to their own, or far away. */
static void fill_spans(filler *f) {
    kgen_tensor *t = &f->data->args.attn->span_ends;
    kgen__rng rng = stream(f, SPAN_ENDS);
    int64_t token = 0;
    for (int64_t i = 0; t->data && i < t->shape[0]; i++) kgen__int_store(t, i, INT32_MIN);
    for (int32_t s = 0; t->data && s < f->data->shape.seqs; s++) {
        int64_t context = f->lens[s] - f->qlens[s], end = -1;
        for (int32_t i = 0; i < f->qlens[s]; i++, token++) {
            if (end < context + i && kgen__chance(&rng, 2))
                end = context + i + kgen__rng_range(&rng, 0, 40);
            int32_t other = KGEN__PICK(&rng, -1, 0, INT32_MIN, (int32_t)(context + i));
            kgen__int_store(t, token, end >= context + i ? end : other);
        }
        if (token > 0 && f->qlens[s] && kgen__chance(&rng, 1))
            kgen__int_store(t, token - 1, INT32_MAX);
    }
}

/* Of group `p`: before all queries of those that have some, and its first sequence has them. */
static int64_t shared_pages(const filler *f, int64_t p) {
    const kgen__attn_case *c = &f->data->shape.attn;
    int64_t pages = c->prefix / f->page_tokens;
    for (int64_t s = p * c->share; s < (p + 1) * c->share && s < f->data->shape.seqs; s++) {
        int64_t own = (f->lens[s] - f->qlens[s]) / f->page_tokens;
        if ((f->qlens[s] > 0 || s == p * c->share) && own < pages) pages = own > 0 ? own : 0;
    }
    return pages;
}

static void fill_prefixes(filler *f) {
    const kgen_attn_args *a = f->data->args.attn;
    int64_t seqs = f->data->shape.seqs, share = share_of(&f->data->shape.attn);
    for (int64_t p = 0; a->prefix_lens.data && p <= a->prefix_lens.shape[0]; p++) {
        kgen__int_store(&a->prefix_seqs, p, p * share < seqs ? p * share : seqs);
        if (p < a->prefix_lens.shape[0])
            kgen__int_store(&a->prefix_lens, p, shared_pages(f, p) * f->page_tokens);
    }
}

/* Does the column hold keys that the sequence shares? */
static int is_shared(const filler *f, int32_t seq, int64_t column) {
    int32_t group = seq / share_of(&f->data->shape.attn);
    return f->data->args.attn->prefix_lens.data && column < shared_pages(f, group);
}

static void shuffle_pages(filler *f) {
    kgen__rng rng = stream(f, TABLE);
    for (int64_t i = 0; i < f->pages; i++) f->order[i] = i;
    for (int64_t i = f->pages - 1; i > 0; i--) {
        int64_t j = kgen__rng_range(&rng, 0, i), page = f->order[i];
        f->order[i] = f->order[j];
        f->order[j] = page;
    }
    f->used = 0;
}

/* First key that some row of the sequence sees behind the kept ones; its length if there
 * is none. */
static int64_t first_live(const filler *f, int32_t seq) {
    int64_t length = f->lens[seq];
    if (f->qlens[seq] == 0) return length;
    return kgen__attn_first(&f->data->spec.attn, f->data->args.attn, length - f->qlens[seq]);
}

/* Keys of a sequence before all others that its rows see. */
static int64_t kept_live(const filler *f, int32_t seq) {
    int64_t kept = kgen__attn_kept(&f->data->spec.attn, f->data->args.attn);
    if (f->qlens[seq] == 0) return 0;
    return kept < f->lens[seq] ? kept : f->lens[seq];
}

static void fill_indptr(filler *f) {
    kgen_tensor *t = &f->data->args.attn->kv_indptr;
    int64_t at = 0, cols = f->data->shape.attn.cols;
    for (int32_t s = 0; t->data && s <= f->data->shape.seqs; s++) {
        kgen__int_store(t, s, at);
        if (s < f->data->shape.seqs) at += pages_of(f->lens[s], f->page_tokens) + cols;
    }
}

/* Live pages are dealt in random order; every other entry leads to a page of
 * nobody, and what lies between two rows leads nowhere. */
static void fill_table(filler *f) {
    kgen_attn_args *a = f->data->args.attn;
    kgen_tensor *t = a->block_table.data ? &a->block_table : &a->kv_indices;
    kgen__rng rng = stream(f, LSE);
    if (a->cu_seqlens_k.data) return;
    fill_indptr(f);
    int64_t nowhere = t->dtype == KGEN_DTYPE_I64 ? (int64_t)1 << 40 : INT32_MAX;
    size_t entries = kgen__tensor_bytes(t) / (size_t)kgen_dtype_size(t->dtype);
    for (size_t i = 0; i < entries; i++) kgen__int_store(t, (int64_t)i, nowhere);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t s = 0; s < f->data->shape.seqs; s++) {
            int64_t first = first_live(f, s), kept = kept_live(f, s);
            kgen__attn_pages own = kgen__attn_pages_of(a, s);
            for (int64_t column = 0; column < own.count; column++) {
                int seen = column * f->page_tokens < kept || column >= first / f->page_tokens;
                int live =
                    first < f->lens[s] && seen && column < pages_of(f->lens[s], f->page_tokens);
                int32_t leader = s - s % share_of(&f->data->shape.attn);
                if (s == leader) live |= is_shared(f, s, column);
                if (live != (pass == 0)) continue;
                if (live && s != leader && is_shared(f, s, column)) {
                    kgen__int_store(t, own.first + column, kgen__attn_page(a, leader, column));
                    continue;
                }
                int64_t pick = live ? f->used++ : kgen__rng_range(&rng, f->used, f->pages - 1);
                kgen__int_store(t, own.first + column, f->order[pick]);
            }
        }
    }
}

/* Codes use the whole range of theirs, as who writes a cache has them, and scales make up for it;
 * those of floats in half of the cases, as small ones have conversions of their own. */
static double draw_spread(const kgen_attn_spec *spec, kgen__rng *rng) {
    enum { SIGMAS = 4 };
    int scaled = spec->descale == KGEN_DESCALE_HEAD || spec->descale == KGEN_DESCALE_TOKEN;
    int integer = spec->kv == KGEN_DTYPE_I8 || spec->kv == KGEN_DTYPE_I4;
    int whole = integer || (kgen_dtype_size((kgen_dtype)spec->kv) == 1 && kgen__chance(rng, 4));
    return scaled && whole ? kgen__number_max((kgen_dtype)spec->kv) / SIGMAS : 1;
}

static void fill_row(filler *f, kgen__rng *rng, kgen__cache_side side, kgen__cache_at at) {
    const kgen_tensor *t = side == KGEN__SIDE_K ? &f->data->args.attn->k : &f->data->args.attn->v;
    const kgen_attn_spec *spec = &f->data->spec.attn;
    int64_t d = side == KGEN__SIDE_K ? spec->head_dim : f->data->args.attn->out.shape[2];
    for (int64_t i = 0; i < d; i++)
        kgen__number_store(t->dtype, t->data, kgen__cache_index(t, side, at, i),
                           f->spread * kgen__rng_normal(rng));
}

/* Of numbers of that spread. */
static double random_scale(double spread, kgen__rng *rng) {
    return (0.5 + kgen__rng_uniform(rng)) / spread;
}

/* Nobody promised that a head's is positive: then the greatest product is the least score. */
static double head_scale(double spread, kgen__rng *rng) {
    enum { ONE_IN = 8 };
    double size = random_scale(spread, rng);
    return kgen__rng_range(rng, 0, ONE_IN - 1) ? size : -size;
}

/* Scales of tokens: those that no row sees stay poison, like the tokens. Values are as small as
 * models have them, and some tokens' far smaller than others', as a sink's are: weights that are
 * rounded with their scales in them must not end among the last steps of 16 bits. */
static double values_level(kgen__rng *rng) {
    enum { STEPS = 3, BITS = 5 };
    return ldexp(1, -BITS * (int)kgen__rng_range(rng, 0, STEPS));
}
static double token_scale(const filler *f, kgen__rng *rng) {
    enum { ONE_IN = 8, LEAST = 8 };
    double scale = random_scale(f->spread, rng);
    return kgen__rng_range(rng, 0, ONE_IN - 1) ? scale
                                               : ldexp(scale, -(int)kgen__rng_range(rng, 1, LEAST));
}
static void fill_token_scale(const filler *f, kgen_tensor *t, kgen__cache_at at, double scale) {
    if (t->rank != 3 || f->data->spec.attn.descale == KGEN_DESCALE_IGNORE) return;
    kgen__number_store(KGEN_DTYPE_F32, t->data, kgen__descale_index(t, at, 0), scale);
}

static void cover_scales(filler *f, int index, kgen__rng *rng) {
    kgen_tensor *t = kgen__slot_tensor(&f->data->args, index);
    int ignored = index != Q_DESCALE && f->data->spec.attn.descale == KGEN_DESCALE_IGNORE;
    double spread = index == Q_DESCALE ? 1 : f->spread;
    if (t->rank == 3 || ignored) cover(f, index);
    for (int64_t i = 0; t->data && t->rank < 3 && !ignored && i < t->shape[0] * t->stride[0]; i++)
        kgen__number_store(KGEN_DTYPE_F32, t->data, i, head_scale(spread, rng));
}

static void fill_cache(filler *f) {
    kgen_attn_args *a = f->data->args.attn;
    kgen__rng k = stream(f, K), v = stream(f, V), ks = stream(f, K_DESCALE);
    kgen__rng vs = stream(f, V_DESCALE), qs = stream(f, Q_DESCALE);
    double level = values_level(&vs);
    f->spread = draw_spread(&f->data->spec.attn, &vs);
    for (int index = K; index <= V; index++) cover(f, index);
    cover_scales(f, K_DESCALE, &ks);
    cover_scales(f, V_DESCALE, &vs);
    cover_scales(f, Q_DESCALE, &qs);
    for (int32_t s = 0; s < f->data->shape.seqs; s++) {
        for (int64_t key = 0; key < f->lens[s]; key++) {
            if (key >= kept_live(f, s) && key < first_live(f, s)) continue;
            kgen__cache_at at = {kgen__attn_page(a, s, key / f->page_tokens), key % f->page_tokens,
                                 0};
            for (; at.head < f->heads; at.head++) {
                fill_row(f, &k, KGEN__SIDE_K, at);
                fill_row(f, &v, KGEN__SIDE_V, at);
                fill_token_scale(f, &a->k_descale, at, random_scale(f->spread, &ks));
                fill_token_scale(f, &a->v_descale, at, level * token_scale(f, &vs));
            }
        }
    }
}

static void fill_token(const kgen_tensor *t, int64_t token, kgen__rng *rng) {
    for (int64_t n = 0; t->rank && n < t->shape[1] * t->shape[2]; n++)
        kgen__number_store(t->dtype, t->data, token * t->stride[0] + n, kgen__rng_normal(rng));
}

/* Rows that see a key hold numbers; the others stay poison. */
static void fill_queries(filler *f) {
    const kgen_attn_args *a = f->data->args.attn;
    kgen__rng rng = stream(f, Q), gates = stream(f, GATE);
    int64_t token = 0;
    cover(f, Q);
    cover(f, GATE);
    for (int32_t s = 0; s < f->data->shape.seqs; s++) {
        for (int32_t i = 0; i < f->qlens[s]; i++, token++) {
            kgen__attn_sight see = kgen__attn_sight_of(&f->data->spec.attn, a, s, token,
                                                       f->lens[s] - f->qlens[s] + i, f->lens[s]);
            if (see.end <= see.first) continue;
            fill_token(&a->q, token, &rng);
            fill_token(&a->gate, token, &gates);
        }
    }
}

/* A sink near the log of the number of keys takes a real share of the row. */
static void fill_scalars(filler *f) {
    kgen_attn_args *a = f->data->args.attn;
    kgen__rng rng = stream(f, SINKS);
    double keys = 0;
    for (int32_t s = 0; s < f->data->shape.seqs; s++)
        keys += (double)(f->lens[s] - first_live(f, s)) / f->data->shape.seqs;
    for (int64_t h = 0; a->sinks.data && h < a->sinks.shape[0]; h++)
        kgen__number_store(KGEN_DTYPE_F32, a->sinks.data, h,
                           f->data->shape.attn.sink + log(1 + keys) + kgen__rng_uniform(&rng));
    for (int64_t h = 0; a->alibi_slopes.data && h < a->alibi_slopes.shape[0]; h++)
        kgen__number_store(KGEN_DTYPE_F32, a->alibi_slopes.data, h,
                           0.02 + 0.3 * kgen__rng_uniform(&rng));
    double scale = 0.25 + kgen__rng_uniform(&rng);
    if (f->data->shape.attn.oscale > 0) scale = f->data->shape.attn.oscale;
    if (a->out_scale.data) kgen__number_store(KGEN_DTYPE_F32, a->out_scale.data, 0, scale);
}

/* ---- out of bounds --------------------------------------------------------- */

static void spoil_length(filler *f, kgen__rng *rng, int32_t seq) {
    kgen_attn_args *a = f->data->args.attn;
    int64_t over = kgen__attn_pages_of(a, seq).count * f->page_tokens + 1, far = (int64_t)1 << 40;
    int64_t wrong[] = {over, 1 << 30, INT32_MAX, -1, INT32_MIN, 1 + far, 1 - far};
    kgen_tensor *cu = &a->cu_seqlens_k;
    if (cu->data) {
        kgen__int_store(cu, seq + 1,
                        KGEN__PICK(rng, -1, (int32_t)f->pages + 1, INT32_MAX, INT32_MIN));
        return;
    }
    int kinds = a->seq_lens.dtype == KGEN_DTYPE_I64 ? 7 : 5;
    kgen__int_store(&a->seq_lens, seq, wrong[kgen__rng_range(rng, 0, kinds - 1)]);
}

/* One of the pages that the sequence has, seen or not. */
static void spoil_page(filler *f, kgen__rng *rng, int32_t seq) {
    kgen_attn_args *a = f->data->args.attn;
    kgen_tensor *t = a->block_table.data ? &a->block_table : &a->kv_indices;
    kgen__attn_pages own = kgen__attn_pages_of(a, seq);
    int64_t wrong[] = {f->pages, -1, INT32_MAX, INT32_MIN, (int64_t)1 << 32};
    int kinds = t->dtype == KGEN_DTYPE_I64 ? 5 : 4;
    int64_t last = pages_of(f->lens[seq], f->page_tokens) - 1;
    int64_t column = kgen__rng_range(rng, 0, last < 0 ? 0 : last);
    if (!own.table || column >= own.count) return;
    kgen__int_store(t, own.first + column, wrong[kgen__rng_range(rng, 0, kinds - 1)]);
}

/* Where its pages end, and the next one's begin. */
static void spoil_indptr(filler *f, kgen__rng *rng, int32_t seq) {
    kgen_tensor *t = &f->data->args.attn->kv_indptr;
    int64_t far = t->dtype == KGEN_DTYPE_I64 ? (int64_t)1 << 40 : 0;
    int64_t wrong[] = {-1 - far, f->data->args.attn->kv_indices.shape[0] + 1 + far, INT32_MAX,
                       INT32_MIN};
    if (t->data) kgen__int_store(t, seq + 1, wrong[kgen__rng_range(rng, 0, 3)]);
}

/* The end of the sequence, where the next one begins. One that lies in q would
 * give tokens to two sequences, except behind the last. */
static void spoil_rows(filler *f, kgen__rng *rng, int32_t seq) {
    kgen_tensor *cu = &f->data->args.attn->cu_seqlens_q;
    int64_t tokens = f->data->args.attn->q.shape[0], begin = kgen__int_load(cu, seq);
    int64_t far = cu->dtype == KGEN_DTYPE_I64 ? (int64_t)1 << 40 : 0;
    int64_t wrong[] = {-1 - far, tokens + 1 + far, INT32_MAX, INT32_MIN, begin - 1};
    int kinds = seq + 1 == f->data->shape.seqs && begin > INT32_MIN ? 5 : 4;
    kgen__int_store(cu, seq + 1, wrong[kgen__rng_range(rng, 0, kinds - 1)]);
}

/* All tokens that are left. */
static void spoil_tokens(filler *f, kgen__rng *rng, int32_t seq) {
    kgen_attn_args *a = f->data->args.attn;
    (void)rng;
    for (int32_t i = seq + 1; i <= f->data->shape.seqs; i++)
        kgen__int_store(&a->cu_seqlens_q, i, a->q.shape[0]);
}

/* Of the sequence's group: how many keys it shares, or where the last one ends. */
static void spoil_prefix(filler *f, kgen__rng *rng, int32_t seq) {
    kgen_attn_args *a = f->data->args.attn;
    int64_t groups = a->prefix_lens.shape[0], p = seq / share_of(&f->data->shape.attn);
    int64_t keys = kgen__int_load(&a->prefix_lens, p);
    int64_t wrong[] = {-1, INT32_MIN, INT32_MAX, keys + 64, f->lens[seq] + 1};
    int64_t ends[] = {-1, f->data->shape.seqs + 1, INT32_MAX, INT32_MIN};
    if (p + 1 == groups && kgen__chance(rng, 3))
        kgen__int_store(&a->prefix_seqs, groups, ends[kgen__rng_range(rng, 0, 3)]);
    else
        kgen__int_store(&a->prefix_lens, p, wrong[kgen__rng_range(rng, 0, 4)]);
}

static void spoil(filler *f) {
    static void (*const spoilers[])(filler *, kgen__rng *, int32_t) = {
        spoil_length, spoil_page, spoil_indptr, spoil_rows, spoil_tokens};
    kgen_tensor *error = &f->data->args.attn->error;
    int kinds = f->data->args.attn->cu_seqlens_q.data ? 5 : 3;
    kgen__rng rng = stream(f, ERROR);
    for (int32_t s = 0; s < f->data->shape.seqs; s++) {
        if (error->data) kgen__int_store(error, s, KGEN__PICK(&rng, 0, 0, 1, 1 << 30));
        if (kgen__rng_range(&rng, 0, 15) >= f->data->shape.attn.bad) continue;
        if (f->data->args.attn->prefix_lens.data && kgen__chance(&rng, 4)) {
            spoil_prefix(f, &rng, s);
            continue;
        }
        spoilers[kgen__rng_range(&rng, 0, kinds - 1)](f, &rng, s);
    }
}

static kgen_status fits(const filler *f, kgen_error *err) {
    const kgen__attn_case *c = &f->data->shape.attn;
    int64_t tokens = 0;
    for (int32_t s = 0; s < f->data->shape.seqs; s++) {
        tokens += f->qlens[s];
        if (f->lens[s] < 0 || f->lens[s] > c->lens[s].high)
            return kgen_fail(err, KGEN_E_ARG, "lens[%d]=%d: 0..%d was made", s, f->lens[s],
                             c->lens[s].high);
    }
    if (tokens <= f->data->args.attn->q.shape[0]) return KGEN_OK;
    return kgen_fail(err, KGEN_E_ARG, "qlens: %lld tokens, %lld were made", (long long)tokens,
                     (long long)f->data->args.attn->q.shape[0]);
}

kgen_status kgen__attn_data_fill(kgen__data *data, const int32_t *lens, const int32_t *qlens,
                                 uint64_t seed, kgen_error *err) {
    filler f = {.data = data,
                .lens = lens,
                .qlens = qlens,
                .seed = seed,
                .page_tokens = kgen__cache_page(&data->args.attn->k),
                .pages = data->args.attn->k.shape[0],
                .heads = kgen__cache_heads(&data->args.attn->k)};
    KGEN_TRY(fits(&f, err));
    f.order = malloc((size_t)f.pages * sizeof *f.order);
    if (!f.order)
        return kgen_fail(err, KGEN_E_NOMEM, "%lld pages: out of memory", (long long)f.pages);
    fill_lengths(&f);
    fill_prefixes(&f);
    fill_flags(&f);
    fill_masks(&f);
    fill_spans(&f);
    shuffle_pages(&f);
    fill_table(&f);
    fill_cache(&f);
    fill_queries(&f);
    fill_scalars(&f);
    spoil(&f);
    kgen__data_remember(data);
    kgen__data_poison_outputs(data);
    free(f.order);
    return KGEN_OK;
}

kgen_status kgen__attn_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX], qlens[KGEN__CASE_SEQS_MAX];
    for (int32_t s = 0; s < data->shape.seqs; s++) {
        lens[s] = data->shape.attn.lens[s].high;
        qlens[s] = data->shape.attn.qlens[s].high;
    }
    return kgen__attn_data_fill(data, lens, qlens, seed, err);
}

kgen_status kgen__attn_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX], qlens[KGEN__CASE_SEQS_MAX];
    const kgen__attn_case *c = &data->shape.attn;
    int64_t left = data->args.attn->q.shape[0];
    const kgen_attn_phase *phase = kgen_attn_phase_of(data->spec.attn.phase);
    for (int32_t s = 0; s < data->shape.seqs; s++) {
        int64_t most = phase->bounded ? data->spec.attn.q_tokens : left;
        if (left < most) most = left;
        lens[s] = (int32_t)kgen__rng_range(rng, 0, c->lens[s].high);
        if (kgen__rng_range(rng, 0, 3) == 0) lens[s] = c->lens[s].high;
        qlens[s] = phase->ragged ? (int32_t)kgen__rng_range(rng, 0, most) : 1;
        left -= qlens[s];
    }
    return kgen__attn_data_fill(data, lens, qlens, kgen__rng_next(rng), err);
}

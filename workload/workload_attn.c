/* Workloads of attention: sequences of one length over pages in random order, every
 * set with pages of its own.
 *
 * Only pages that a window has in sight are made; what a table names before
 * them belongs to others, as in an engine that gives such pages back. Counted
 * are keys, values and scales of tokens in sight, their table entries, queries,
 * outputs and lse; not vectors of a number a sequence or head. */
#include <math.h>
#include <stdlib.h>

#include "workload_family.h"

enum { RUN_TIME_WINDOW = 1024, RUN_TIME_KEPT = 4 };

typedef struct attn_shape {
    int64_t seqs, heads, q_heads, tokens; /* tokens: of all sequences */
    int64_t fresh;                        /* query tokens of a sequence */
    int64_t context, keys;                /* cached; in sight of a sequence */
    int64_t page, columns, live;          /* live: columns in sight */
    int32_t *pages;                       /* of all sets, in random order */
    kgen__workload *work;
} attn_shape;

static int64_t window_of(const kgen_attn_spec *s) {
    if (s->chunk) return (int64_t)s->chunk * (s->lookback + 1);
    return s->window == KGEN_WINDOW_RT ? RUN_TIME_WINDOW : s->window;
}

static attn_shape shape_of(kgen__workload *work) {
    const kgen_attn_spec *s = &work->spec.attn;
    const kgen_problem *p = &work->problem;
    attn_shape n = {.seqs = p->batch,
                    .heads = p->heads,
                    .q_heads = (int64_t)p->heads * s->group,
                    .fresh = kgen_attn_fresh_tokens(s, p->context),
                    .tokens = (int64_t)p->batch * kgen_attn_fresh_tokens(s, p->context),
                    .context = p->context,
                    .keys = p->context,
                    .page = kgen__workload_page(s->page),
                    .work = work};
    int64_t sight = window_of(s) + n.fresh - 1; /* of the first token, to the last */
    if (window_of(s) && sight < n.keys) n.keys = sight;
    n.columns = (n.context + n.page - 1) / n.page;
    n.live = n.columns - (n.context - n.keys) / n.page;
    return n;
}

/* Of a sequence and head, a query and a key that it sees: what has to be computed. */
static double pairs_of(const attn_shape *n, const kgen_attn_spec *s) {
    double pairs = (double)n->fresh * (double)n->keys;
    if (kgen_attn_phase_of(s->phase)->bounded) return pairs;
    for (int64_t i = pairs = 0; i < n->fresh; i++) {
        int64_t seen = s->causal ? n->context - n->fresh + i + 1 : n->context;
        pairs += (double)(window_of(s) && window_of(s) < seen ? window_of(s) : seen);
    }
    return pairs;
}

static double size_of(int32_t dtype) {
    return kgen_dtype_size((kgen_dtype)dtype) / (double)kgen_dtype_values((kgen_dtype)dtype);
}
static kgen_dtype index_type(int32_t wide) { return wide ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32; }

/* One prefix of all, of fifteen sixteenths of the context, in whole pages. */
static int64_t shared_columns(const attn_shape *n) {
    return n->work->spec.attn.cascade ? n->context * 15 / 16 / n->page : 0;
}

static kgen_status plan(kgen__workload *work, kgen_error *err) {
    const kgen_attn_spec *s = &work->spec.attn;
    KGEN_TRY(kgen__workload_bound("context", work->problem.context, s->q_tokens, err));
    KGEN_TRY(kgen__workload_bound("heads", work->problem.heads, 1, err));
    attn_shape n = shape_of(work);
    int64_t shared = shared_columns(&n) * n.page;
    double places = (double)((n.keys - shared) * n.seqs + shared) * (double)n.heads;
    double rows = (double)n.tokens * (double)n.q_heads, dims = s->head_dim + s->v_dim;
    double scales = s->descale == KGEN_DESCALE_TOKEN ? 2 * sizeof(float) : 0;
    work->read_bytes = places * (dims * size_of(s->kv) + scales) +
                       rows * s->head_dim * size_of(s->q) +
                       (double)n.live * (double)n.seqs * size_of((int32_t)index_type(s->table));
    if (s->gate) work->read_bytes += rows * s->v_dim * size_of(s->gate);
    work->bytes =
        work->read_bytes + rows * s->v_dim * size_of(s->out) + (s->lse ? rows * sizeof(float) : 0);
    work->flops = 2 * pairs_of(&n, s) * (double)n.seqs * (double)n.q_heads * dims;
    return KGEN_OK;
}

/* ---- tensors -------------------------------------------------------------------- */

static void fill_table(int64_t *values, int64_t count, int set, void *user) {
    const attn_shape *n = user;
    int64_t dealt = (int64_t)set * n->seqs * n->live, pages = n->seqs * n->live * n->work->sets;
    for (int64_t i = 0; i < count; i++) {
        int64_t column = i % n->columns;
        if (column < shared_columns(n) && i > column) {
            values[i] = values[column];
            continue;
        }
        values[i] = column < n->columns - n->live
                        ? n->pages[kgen__workload_random(n->work, (uint64_t)pages)]
                        : n->pages[dealt++];
    }
}

static void fill_indptr(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i * ((const attn_shape *)user)->columns;
}

static void fill_lengths(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = ((const attn_shape *)user)->context;
}

static void fill_ends(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i * ((const attn_shape *)user)->fresh;
}

static void fill_keys(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i * ((const attn_shape *)user)->keys;
}

/* A chain. */
static void fill_masks(int64_t *values, int64_t count, int set, void *user) {
    int64_t tokens = ((const attn_shape *)user)->work->spec.attn.q_tokens;
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = (int64_t)(((uint64_t)2 << i % tokens) - 1);
}

static void fill_prefix(int64_t *values, int64_t count, int set, void *user) {
    const attn_shape *n = user;
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = shared_columns(n) * n->page;
}

static void fill_group(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i ? ((const attn_shape *)user)->seqs : 0;
}

/* No span reaches past its token. */
static void fill_spans(int64_t *values, int64_t count, int set, void *user) {
    (void)set, (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = -1;
}

static void fill_flags(int64_t *values, int64_t count, int set, void *user) {
    (void)set, (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = 1;
}

static kgen_status make_sequences(kgen__workload *work, attn_shape *n, kgen_error *err) {
    kgen_attn_args *a = work->args.attn;
    const kgen__fill_row rows[] = {
        {&a->block_table, KGEN__EACH_SET, fill_table}, {&a->kv_indices, KGEN__EACH_SET, fill_table},
        {&a->kv_indptr, KGEN__SHARED, fill_indptr},    {&a->seq_lens, KGEN__SHARED, fill_lengths},
        {&a->span_ends, KGEN__SHARED, fill_spans},     {&a->words, KGEN__SHARED, fill_masks},
        {&a->causal, KGEN__SHARED, fill_flags},        {&a->cu_seqlens_k, KGEN__SHARED, fill_keys},
        {&a->cu_seqlens_q, KGEN__SHARED, fill_ends},   {&a->prefix_lens, KGEN__SHARED, fill_prefix},
        {&a->prefix_seqs, KGEN__SHARED, fill_group},
    };
    return kgen__workload_rows_ints(work, rows, sizeof rows / sizeof rows[0], n, err);
}

static kgen_status make_cache(kgen__workload *work, const attn_shape *n, kgen_error *err) {
    const kgen_attn_spec *s = &work->spec.attn;
    kgen_attn_args *a = work->args.attn;
    const kgen__workload_cache c = {(kgen_layout)s->layout,
                                    (kgen_dtype)s->kv,
                                    n->seqs * n->live * work->sets,
                                    n->page,
                                    n->heads,
                                    s->head_dim,
                                    s->v_dim};
    const int64_t one = 1;
    if (kgen_dtype_size((kgen_dtype)s->q) == 1)
        KGEN_TRY(
            kgen__workload_tensor(work, &a->q_descale, KGEN__SHARED, 1, &one, KGEN__POSITIVE, err));
    KGEN_TRY(kgen__workload_caches(work, &a->k, &a->v, &c, KGEN__SIGNED, err));
    return kgen__workload_scales(work, &a->k_descale, &a->v_descale, &c, s->descale, KGEN__POSITIVE,
                                 err);
}

static kgen_status make_rows(kgen__workload *work, kgen_error *err) {
    kgen_attn_args *a = work->args.attn;
    const kgen__content_row rows[] = {
        {&a->q, KGEN__EACH_SET, KGEN__SIGNED},
        {&a->out, KGEN__EACH_SET, KGEN__NOTHING},
        {&a->lse, KGEN__EACH_SET, KGEN__NOTHING},
        {&a->gate, KGEN__EACH_SET, KGEN__SIGNED},
        {&a->out_scale, KGEN__SHARED, KGEN__POSITIVE},
        {&a->alibi_slopes, KGEN__SHARED, KGEN__POSITIVE},
        {&a->sinks, KGEN__SHARED, KGEN__SIGNED},
    };
    return kgen__workload_rows(work, rows, sizeof rows / sizeof rows[0], err);
}

static void set_numbers(kgen_attn_args *a, const kgen_attn_spec *s) {
    a->softmax_scale = (float)(1 / sqrt((double)s->head_dim));
    if (s->softcap) a->softcap = 30;
    if (s->window == KGEN_WINDOW_RT) a->window = RUN_TIME_WINDOW;
    if (s->right == KGEN_WINDOW_RT) a->right = RUN_TIME_WINDOW;
    if (s->keep == KGEN_WINDOW_RT) a->keep = RUN_TIME_KEPT;
}

static kgen_status make(kgen__workload *work, kgen_error *err) {
    attn_shape n = shape_of(work);
    const kgen_arg_size sizes[] = {{"T", n.tokens},
                                   {"S", n.seqs},
                                   {"S+1", n.seqs + 1},
                                   {"Hq", n.q_heads},
                                   {"pages", n.columns},
                                   {"entries", n.seqs * n.columns},
                                   {"P", 1},
                                   {"P+1", 2}};
    work->sizes = sizes;
    work->size_count = sizeof sizes / sizeof sizes[0];
    KGEN_TRY(make_cache(work, &n, err)); /* the largest first: it may not fit */
    KGEN_TRY(kgen__workload_shuffled(&n.pages, work, work->args.attn->k.shape[0], err));
    kgen_status status = make_sequences(work, &n, err);
    if (status == KGEN_OK) status = make_rows(work, err);
    set_numbers(work->args.attn, &work->spec.attn);
    free(n.pages);
    return status;
}

static int32_t group(const kgen_spec *spec) { return spec->attn.group; }

static const kgen_problem problems[] = {{1, 2048, 0}, {1, 8192, 0},  {8, 2048, 0},
                                        {8, 8192, 0}, {64, 2048, 0}, {64, 8192, 0}};

const kgen__workload_family kgen__workload_attn = {
    .plan = plan,
    .make = make,
    .reads = 1,
    .batch = "seq_lens",
    .lengths = "seq_lens",
    .heads = "q",
    .group = group,
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .usual_heads = 8,
};

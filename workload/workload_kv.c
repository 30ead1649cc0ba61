/* Workloads of kv_write and kv_gather, and the caches that attn reads too.
 *
 * Every set has rows and pages of its own, pages in random order, tokens of a
 * page one after another. Counted are rows, cached elements, scales of tokens,
 * slots, positions, remap and table entries, once each; not the rotation's
 * tables, which all tokens share. */
#include <stdlib.h>

#include "workload_family.h"

enum {
    DEFAULT_HEADS = 8,
    GROUP = 8,
    POSITIONS = 4096,
    DEFAULT_CONTEXT = 1024,
    X16_PAGE = 16,
    BLOCK = 128
};

static double size_of(int32_t dtype) {
    return kgen_dtype_size((kgen_dtype)dtype) / (double)kgen_dtype_values((kgen_dtype)dtype);
}
static kgen_dtype index_type(int32_t i64) { return i64 ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32; }

/* ---- caches ------------------------------------------------------------------- */

int64_t kgen__workload_page(int32_t page) { return page == KGEN_PAGE_X16 ? X16_PAGE : page; }

typedef struct cache_shape {
    int32_t rank;
    int64_t shape[KGEN_TENSOR_RANK_MAX];
} cache_shape;

static cache_shape shape_of(const kgen__workload_cache *c, int is_v) {
    int64_t x = 16 / kgen_dtype_size(c->dtype);
    int64_t dim = (is_v ? c->v_dim : c->dim) / kgen_dtype_values(c->dtype);
    const cache_shape k_packed = {5, {c->pages, c->heads, dim / x, c->page, x}};
    const cache_shape shapes[][2] = {
        [KGEN_LAYOUT_NHD] = {{4, {c->pages, c->page, c->heads, dim}},
                             {4, {c->pages, c->page, c->heads, dim}}},
        [KGEN_LAYOUT_HND] = {{4, {c->pages, c->heads, c->page, dim}},
                             {4, {c->pages, c->heads, c->page, dim}}},
        [KGEN_LAYOUT_SHUFFLE] = {k_packed, {5, {c->pages, c->heads, c->page / x, dim, x}}},
        [KGEN_LAYOUT_XPACKED] = {k_packed, {4, {c->pages, c->heads, dim, c->page}}},
    };
    return shapes[c->layout][is_v];
}

kgen_status kgen__workload_caches(kgen__workload *work, kgen_tensor *k, kgen_tensor *v,
                                  const kgen__workload_cache *c, kgen__content content,
                                  kgen_error *err) {
    kgen_tensor *const sides[] = {k, v};
    for (int is_v = 0; is_v < 2; is_v++) {
        cache_shape s = shape_of(c, is_v);
        KGEN_TRY(
            kgen__workload_tensor(work, sides[is_v], KGEN__SHARED, s.rank, s.shape, content, err));
        sides[is_v]->layout = c->layout;
    }
    return KGEN_OK;
}

static int of_tokens(int32_t granularity) {
    return granularity == KGEN_DESCALE_TOKEN || granularity == KGEN_DESCALE_ROW;
}

kgen_status kgen__workload_scales(kgen__workload *work, kgen_tensor *k, kgen_tensor *v,
                                  const kgen__workload_cache *c, int32_t granularity,
                                  kgen__content content, kgen_error *err) {
    kgen_tensor *const sides[] = {k, v};
    int token = of_tokens(granularity);
    if (granularity == KGEN_DESCALE_NONE || granularity == KGEN_DESCALE_IGNORE) return KGEN_OK;
    const int64_t one = 1, all[] = {c->pages, c->page, c->heads};
    const int64_t blocks[] = {c->pages, c->page, c->heads, c->v_dim / BLOCK};
    if (granularity == KGEN_DESCALE_BLOCK)
        return kgen__workload_tensor(work, v, KGEN__SHARED, 4, blocks, content, err);
    for (int is_v = 0; is_v < 2; is_v++) {
        KGEN_TRY(kgen__workload_tensor(work, sides[is_v], KGEN__SHARED, token ? 3 : 1,
                                       token ? all : &one, content, err));
        if (token) sides[is_v]->layout = KGEN_LAYOUT_NHD;
    }
    return KGEN_OK;
}

/* ---- what both families have in common ------------------------------------------ */

typedef struct kv_shape {
    kgen__workload_cache cache;
    int64_t rows;          /* of a set */
    int64_t seqs, columns; /* of a set's block table */
    int32_t *pages;        /* of all sets, in random order */
} kv_shape;

/* Tokens, K and V: elements outside and in the cache, scales of tokens. */
typedef struct kv_bytes {
    double outside, cached, scales;
} kv_bytes;

static kv_bytes bytes_of(const kgen__workload *work, int32_t x, int32_t kv, int32_t dim,
                         int32_t v_dim, int32_t granularity) {
    double places = (double)work->problem.batch * work->problem.heads;
    int32_t dims = dim + v_dim;
    if (granularity == KGEN_DESCALE_BLOCK)
        return (kv_bytes){places * dims * size_of(x),
                          places * (dim * size_of(x) + v_dim * size_of(kv)),
                          places * v_dim / BLOCK * sizeof(float)};
    return (kv_bytes){places * dims * size_of(x), places * dims * size_of(kv),
                      of_tokens(granularity) ? places * 2 * sizeof(float) : 0};
}

static void default_heads(kgen__workload *work) {
    if (!work->problem.heads) work->problem.heads = DEFAULT_HEADS;
}

/* ---- kv_write --------------------------------------------------------------------- */

static kgen_status plan_write(kgen__workload *work, kgen_error *err) {
    const kgen_kv_write_spec *s = &work->spec.kv_write;
    (void)err;
    default_heads(work);
    double rows = work->problem.batch;
    kv_bytes b = bytes_of(work, s->x, s->kv, s->head_dim, s->v_dim, s->scale);
    double queries =
        s->rope_q ? rows * work->problem.heads * GROUP * s->head_dim * size_of(s->x) : 0;
    double indices = size_of(index_type(s->slots)) +
                     (s->remap ? size_of(index_type(s->remap == 2)) : 0) +
                     (s->rope ? size_of(index_type(s->positions)) : 0);
    work->read_bytes = b.outside + queries + rows * indices;
    work->bytes = work->read_bytes + b.cached + b.scales + queries;
    return KGEN_OK;
}

static int64_t slot_of(const kv_shape *n, int64_t set, int64_t row) {
    int64_t pages = kgen__divide_up(n->rows, n->cache.page);
    return n->pages[set * pages + row / n->cache.page] * n->cache.page + row % n->cache.page;
}

static void fill_slots(int64_t *values, int64_t count, int set, void *user) {
    for (int64_t i = 0; i < count; i++) values[i] = slot_of(user, set, i);
}

/* With a table in between: the numbers of tokens over all sets. */
static void fill_tokens(int64_t *values, int64_t count, int set, void *user) {
    (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = set * count + i;
}

static void fill_remap(int64_t *values, int64_t count, int set, void *user) {
    const kv_shape *n = user;
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = slot_of(n, i / n->rows, i % n->rows);
}

static void fill_positions(int64_t *values, int64_t count, int set, void *user) {
    (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = (set * count + i) % POSITIONS;
}

static kgen_status make_slots(kgen__workload *work, kv_shape *n, kgen_error *err) {
    const kgen_kv_write_spec *s = &work->spec.kv_write;
    kgen_kv_write_args *a = work->args.kv_write;
    KGEN_TRY(kgen__workload_row_ints(work, &a->slots, KGEN__EACH_SET,
                                     s->remap ? fill_tokens : fill_slots, n, err));
    return kgen__workload_row_ints(work, &a->remap, KGEN__SHARED, fill_remap, n, err);
}

/* Queries go to rows of their own: turned in place again and again they would
 * grow, for the tables are no real rotation. */
static kgen_status make_rope(kgen__workload *work, kv_shape *n, kgen_error *err) {
    kgen_kv_write_args *a = work->args.kv_write;
    KGEN_TRY(kgen__workload_row_ints(work, &a->positions, KGEN__EACH_SET, fill_positions, n, err));
    KGEN_TRY(kgen__workload_row(work, &a->cos, KGEN__SHARED, KGEN__SIGNED, err));
    KGEN_TRY(kgen__workload_row(work, &a->sin, KGEN__SHARED, KGEN__SIGNED, err));
    KGEN_TRY(kgen__workload_row(work, &a->q, KGEN__EACH_SET, KGEN__SIGNED, err));
    return kgen__workload_row(work, &a->q_out, KGEN__EACH_SET, KGEN__NOTHING, err);
}

static kgen_status make_write_tensors(kgen__workload *work, kv_shape *n, kgen_error *err) {
    const kgen_kv_write_spec *s = &work->spec.kv_write;
    kgen_kv_write_args *a = work->args.kv_write;
    kgen__content scale = s->scale == KGEN_DESCALE_HEAD ? KGEN__POSITIVE : KGEN__NOTHING;
    KGEN_TRY(kgen__workload_caches(work, &a->k_cache, &a->v_cache, &n->cache, KGEN__NOTHING, err));
    KGEN_TRY(
        kgen__workload_scales(work, &a->k_scale, &a->v_scale, &n->cache, s->scale, scale, err));
    KGEN_TRY(kgen__workload_row(work, &a->k, KGEN__EACH_SET, KGEN__SIGNED, err));
    return kgen__workload_row(work, &a->v, KGEN__EACH_SET, KGEN__SIGNED, err);
}

static kgen_status make_write(kgen__workload *work, kgen_error *err) {
    const kgen_kv_write_spec *s = &work->spec.kv_write;
    int64_t page = kgen__workload_page(s->page), rows = work->problem.batch;
    kv_shape n = {.cache = {(kgen_layout)s->layout, (kgen_dtype)s->kv,
                            kgen__divide_up(rows, page) * work->sets, page, work->problem.heads,
                            s->head_dim, s->v_dim},
                  .rows = rows};
    const kgen_arg_size sizes[] = {{"T", rows},
                                   {"Hkv", work->problem.heads},
                                   {"Hq", (int64_t)work->problem.heads * GROUP},
                                   {"entries", rows * work->sets},
                                   {"positions", POSITIONS}};
    work->sizes = sizes;
    work->size_count = sizeof sizes / sizeof sizes[0];
    KGEN_TRY(make_write_tensors(work, &n, err)); /* the largest first: they may not fit */
    KGEN_TRY(kgen__workload_shuffled(&n.pages, work, n.cache.pages, err));
    kgen_status status = make_slots(work, &n, err);
    if (status == KGEN_OK) status = make_rope(work, &n, err);
    free(n.pages);
    return status;
}

static const kgen_problem problems[] = {{64, 0, 0}, {2048, 0, 0}};

const kgen__workload_family kgen__workload_kv_write = {
    .plan = plan_write,
    .make = make_write,
    .batch = "slots",
    .heads = "k",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .usual_heads = 8,
};

/* ---- kv_gather: sequences of `context` tokens; the last one has the rest --------- */

static kv_shape gather_shape(const kgen__workload *work) {
    const kgen_kv_gather_spec *s = &work->spec.kv_gather;
    int64_t page = kgen__workload_page(s->page), rows = work->problem.batch;
    int64_t length = work->problem.context < rows ? work->problem.context : rows;
    kv_shape n = {.rows = rows, .seqs = kgen__divide_up(rows, length)};
    n.columns = kgen__divide_up(length, page);
    n.cache = (kgen__workload_cache){(kgen_layout)s->layout,
                                     (kgen_dtype)s->kv,
                                     n.seqs * n.columns * work->sets,
                                     page,
                                     work->problem.heads,
                                     s->head_dim,
                                     s->v_dim};
    return n;
}

static kgen_status plan_gather(kgen__workload *work, kgen_error *err) {
    const kgen_kv_gather_spec *s = &work->spec.kv_gather;
    (void)err;
    default_heads(work);
    if (!work->problem.context) work->problem.context = DEFAULT_CONTEXT;
    kv_bytes b = bytes_of(work, s->out, s->kv, s->head_dim, s->v_dim, s->descale);
    kv_shape n = gather_shape(work);
    double entries = (double)n.seqs * (double)n.columns;
    work->read_bytes = b.cached + b.scales + entries * size_of(index_type(s->table));
    work->bytes = work->read_bytes + b.outside;
    return KGEN_OK;
}

static void fill_table(int64_t *values, int64_t count, int set, void *user) {
    const kv_shape *n = user;
    for (int64_t i = 0; i < count; i++) values[i] = n->pages[set * count + i];
}

static int64_t length_of(const kgen__workload *work, int64_t seq) {
    int64_t left = work->problem.batch - seq * work->problem.context;
    return left < work->problem.context ? left : work->problem.context;
}

static void fill_ends(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    values[0] = 0;
    for (int64_t i = 1; i < count; i++) values[i] = values[i - 1] + length_of(user, i - 1);
}

static void fill_lengths(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = length_of(user, i);
}

static kgen_status make_gather_tensors(kgen__workload *work, kv_shape *n, kgen_error *err) {
    const kgen_kv_gather_spec *s = &work->spec.kv_gather;
    kgen_kv_gather_args *a = work->args.kv_gather;
    KGEN_TRY(kgen__workload_caches(work, &a->k_cache, &a->v_cache, &n->cache, KGEN__SIGNED, err));
    KGEN_TRY(kgen__workload_scales(work, &a->k_descale, &a->v_descale, &n->cache, s->descale,
                                   KGEN__POSITIVE, err));
    KGEN_TRY(kgen__workload_row(work, &a->k, KGEN__EACH_SET, KGEN__NOTHING, err));
    return kgen__workload_row(work, &a->v, KGEN__EACH_SET, KGEN__NOTHING, err);
}

static kgen_status make_sequences(kgen__workload *work, kv_shape *n, kgen_error *err) {
    kgen_kv_gather_args *a = work->args.kv_gather;
    KGEN_TRY(kgen__workload_row_ints(work, &a->block_table, KGEN__EACH_SET, fill_table, n, err));
    KGEN_TRY(kgen__workload_row_ints(work, &a->cu_seqlens, KGEN__SHARED, fill_ends, work, err));
    return kgen__workload_row_ints(work, &a->seq_lens, KGEN__SHARED, fill_lengths, work, err);
}

static kgen_status make_gather(kgen__workload *work, kgen_error *err) {
    kv_shape n = gather_shape(work);
    const kgen_arg_size sizes[] = {{"S", n.seqs},
                                   {"S+1", n.seqs + 1},
                                   {"R", n.rows},
                                   {"Hkv", work->problem.heads},
                                   {"pages", n.columns}};
    work->sizes = sizes;
    work->size_count = sizeof sizes / sizeof sizes[0];
    KGEN_TRY(make_gather_tensors(work, &n, err));
    KGEN_TRY(kgen__workload_shuffled(&n.pages, work, n.cache.pages, err));
    kgen_status status = make_sequences(work, &n, err);
    free(n.pages);
    return status;
}

const kgen__workload_family kgen__workload_kv_gather = {
    .plan = plan_gather,
    .make = make_gather,
    .batch = "k",
    .heads = "k",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .usual_heads = 8,
};

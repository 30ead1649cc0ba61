/* Workloads of the indexer. `batch` is new keys, gathered keys, sequences (decode), query
 * tokens (prefill) or rows (topk); `context` the keys of a sequence, or of a row. Pages are
 * in random order, each set has its own. Counted is what one launch must read and write. */
#include <stdlib.h>

#include "workload_family.h"

enum { DEFAULT_CONTEXT = 1024, CHOSEN = 2048 };

typedef struct index_shape {
    int64_t seqs, tokens, rows; /* of a set; rows: gathered keys */
    int64_t page, pages;        /* pages of a set */
    int64_t columns, width, length;
    int32_t *order; /* pages of all sets */
} index_shape;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static index_shape shape_of(const kgen__workload *work) {
    const kgen_indexer_spec *s = &work->spec.indexer;
    int64_t batch = work->problem.batch, context = work->problem.context;
    index_shape n = {.tokens = batch, .page = kgen__workload_page(s->page), .length = context};
    switch ((kgen_index_op)s->op) {
    case KGEN_INDEX_WRITE:
        n.pages = kgen__divide_up(batch, n.page);
        return n;
    case KGEN_INDEX_GATHER:
        n.length = least(context, batch);
        n.seqs = kgen__divide_up(batch, n.length);
        n.rows = batch;
        break;
    case KGEN_INDEX_PREFILL:
        n.rows = n.width = context;
        return n;
    default:
        n.seqs = batch;
        n.tokens = batch * s->q_tokens;
        n.width = context;
    }
    n.columns = kgen__divide_up(n.length, n.page);
    n.pages = n.seqs * n.columns;
    return n;
}

/* Of a key and its scale. */
static double key_bytes(const kgen_indexer_spec *s) { return s->head_dim + sizeof(float); }

static double tables(const kgen_indexer_spec *s, const index_shape *n) {
    return (double)n->pages * (s->table ? 8 : 4);
}

static void count_logits(kgen__workload *work, const index_shape *n) {
    const kgen_indexer_spec *s = &work->spec.indexer;
    double keys = (double)(s->op == KGEN_INDEX_DECODE ? n->seqs * n->length : n->rows);
    double pairs = (double)n->tokens * (double)n->width;
    work->read_bytes = keys * key_bytes(s) +
                       (double)n->tokens * s->heads * ((double)s->head_dim + (double)sizeof(float));
    if (s->op == KGEN_INDEX_DECODE) work->read_bytes += tables(s, n);
    work->bytes = work->read_bytes + pairs * sizeof(float);
    work->flops = 2 * pairs * s->heads * s->head_dim;
}

static kgen_status plan(kgen__workload *work, kgen_error *err) {
    const kgen_indexer_spec *s = &work->spec.indexer;
    if (!work->problem.context) work->problem.context = DEFAULT_CONTEXT;
    if (s->op == KGEN_INDEX_DECODE || s->op == KGEN_INDEX_TOPK)
        KGEN_TRY(kgen__workload_bound("context", work->problem.context, s->q_tokens, err));
    index_shape n = shape_of(work);
    double batch = work->problem.batch, x = kgen_dtype_size((kgen_dtype)s->x);
    work->read_bytes = batch * (s->head_dim * x + (s->slots ? 8 : 4));
    work->bytes = work->read_bytes + batch * key_bytes(s);
    if (s->op == KGEN_INDEX_GATHER) {
        work->read_bytes = batch * key_bytes(s) + tables(s, &n);
        work->bytes = work->read_bytes + batch * key_bytes(s);
    }
    if (s->op == KGEN_INDEX_TOPK) {
        work->read_bytes = (double)n.tokens * (double)n.width * sizeof(float);
        work->bytes = work->read_bytes + (double)n.tokens * CHOSEN * sizeof(int32_t);
    }
    if (s->op == KGEN_INDEX_DECODE || s->op == KGEN_INDEX_PREFILL) count_logits(work, &n);
    return KGEN_OK;
}

/* ---- tensors -------------------------------------------------------------------- */

static void fill_slots(int64_t *values, int64_t count, int set, void *user) {
    const index_shape *n = user;
    for (int64_t i = 0; i < count; i++)
        values[i] = n->order[set * n->pages + i / n->page] * n->page + i % n->page;
}

static void fill_table(int64_t *values, int64_t count, int set, void *user) {
    const index_shape *n = user;
    for (int64_t i = 0; i < count; i++) values[i] = n->order[set * n->pages + i];
}

static void fill_offsets(int64_t *values, int64_t count, int set, void *user) {
    const index_shape *n = user;
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = least(i * n->length, n->rows);
}

static void fill_lengths(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = ((const index_shape *)user)->length;
}

static void fill_zeros(int64_t *values, int64_t count, int set, void *user) {
    (void)set, (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = 0;
}

static kgen_status make_integers(kgen__workload *work, index_shape *n, kgen_error *err) {
    kgen_indexer_args *a = work->args.indexer;
    const kgen__fill_row rows[] = {
        {&a->slots, KGEN__EACH_SET, fill_slots},      {&a->block_table, KGEN__EACH_SET, fill_table},
        {&a->cu_seqlens, KGEN__SHARED, fill_offsets}, {&a->seq_lens, KGEN__SHARED, fill_lengths},
        {&a->starts, KGEN__SHARED, fill_zeros},       {&a->ends, KGEN__SHARED, fill_lengths},
    };
    return kgen__workload_rows_ints(work, rows, sizeof rows / sizeof rows[0], n, err);
}

static kgen_status make_numbers(kgen__workload *work, kgen_error *err) {
    kgen_indexer_args *a = work->args.indexer;
    int32_t op = work->spec.indexer.op;
    int writes = op == KGEN_INDEX_WRITE, gathers = op == KGEN_INDEX_GATHER;
    int chooses = op == KGEN_INDEX_TOPK;
    const kgen__content_row rows[] = {
        {&a->cache, KGEN__SHARED, writes ? KGEN__NOTHING : KGEN__SIGNED},
        {&a->scales, KGEN__SHARED, writes ? KGEN__NOTHING : KGEN__POSITIVE},
        {&a->k, KGEN__EACH_SET, KGEN__SIGNED},
        {&a->q, KGEN__EACH_SET, KGEN__SIGNED},
        {&a->weights, KGEN__EACH_SET, KGEN__SIGNED},
        {&a->keys, KGEN__EACH_SET, gathers ? KGEN__NOTHING : KGEN__SIGNED},
        {&a->key_scales, KGEN__EACH_SET, gathers ? KGEN__NOTHING : KGEN__POSITIVE},
        {&a->logits, KGEN__EACH_SET, chooses ? KGEN__SIGNED : KGEN__NOTHING},
        {&a->indices, KGEN__EACH_SET, KGEN__NOTHING},
    };
    return kgen__workload_rows(work, rows, sizeof rows / sizeof rows[0], err);
}

static kgen_status make(kgen__workload *work, kgen_error *err) {
    index_shape n = shape_of(work);
    int64_t pages = n.pages * work->sets;
    const kgen_arg_size sizes[] = {{"T", n.tokens},      {"S", n.seqs},  {"S+1", n.seqs + 1},
                                   {"R", n.rows},        {"NB", pages},  {"page", n.page},
                                   {"pages", n.columns}, {"L", n.width}, {"K", CHOSEN}};
    work->sizes = sizes;
    work->size_count = sizeof sizes / sizeof sizes[0];
    KGEN_TRY(make_numbers(work, err)); /* the largest first: they may not fit */
    KGEN_TRY(kgen__workload_shuffled(&n.order, work, pages, err));
    kgen_status status = make_integers(work, &n, err);
    free(n.order);
    return status;
}

static const kgen_problem problems[] = {{1, 8192, 0}, {32, 8192, 0}, {64, 2048, 0}};

const kgen__workload_family kgen__workload_indexer = {
    .plan = plan,
    .make = make,
    .reads = 1,
    .batch = "logits",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
};

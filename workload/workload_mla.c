/* Workloads of mla: sequences of one length over pages in random order, every set with
 * pages of its own. Counted are rows in sight, their table entries, queries, outputs and
 * lse. */
#include <math.h>
#include <stdlib.h>

#include "workload_family.h"

enum { RUN_TIME_WINDOW = 1024 };

typedef struct mla_shape {
    int64_t seqs, tokens, fresh; /* tokens of all, of one */
    int64_t context, keys;       /* cached; in sight of a sequence */
    int64_t page, columns, live; /* live: columns in sight */
    int32_t *pages;              /* of all sets, in random order */
} mla_shape;

static mla_shape shape_of(const kgen__workload *work) {
    const kgen_mla_spec *s = &work->spec.mla;
    const kgen_problem *p = &work->problem;
    mla_shape n = {.seqs = p->batch,
                   .fresh = s->q_tokens,
                   .tokens = (int64_t)p->batch * s->q_tokens,
                   .context = p->context,
                   .keys = p->context,
                   .page = kgen__workload_page(s->page)};
    int64_t window = s->window == KGEN_WINDOW_RT ? RUN_TIME_WINDOW : s->window;
    if (window && window + n.fresh - 1 < n.keys) n.keys = window + n.fresh - 1;
    n.columns = kgen__divide_up(n.context, n.page);
    n.live = n.columns - (n.context - n.keys) / n.page;
    return n;
}

static double size_of(int32_t dtype) { return kgen_dtype_size((kgen_dtype)dtype); }

static kgen_status plan(kgen__workload *work, kgen_error *err) {
    const kgen_mla_spec *s = &work->spec.mla;
    KGEN_TRY(kgen__workload_bound("context", work->problem.context, s->q_tokens, err));
    mla_shape n = shape_of(work);
    double width = s->latent + s->rope, rows = (double)n.tokens * s->heads;
    double keys = (double)n.keys * (double)n.seqs;
    double row = s->rows ? s->latent * (1 + 4.0 / 128) + s->rope * 2 : width * size_of(s->kv);
    work->read_bytes = keys * row + rows * width * size_of(s->q) +
                       (double)n.live * (double)n.seqs * (s->table ? 8 : 4);
    work->bytes =
        work->read_bytes + rows * s->latent * size_of(s->out) + (s->lse ? rows * sizeof(float) : 0);
    work->flops = 2 * keys * (double)n.fresh * s->heads * (width + s->latent);
    return KGEN_OK;
}

/* ---- tensors -------------------------------------------------------------------- */

static void fill_table(int64_t *values, int64_t count, int set, void *user) {
    const mla_shape *n = user;
    int64_t first = (int64_t)set * n->seqs * n->live;
    for (int64_t i = 0; i < count; i++) {
        int64_t behind = i % n->columns - (n->columns - n->live);
        int64_t at = i / n->columns * n->live + (behind > 0 ? behind : 0);
        values[i] = n->pages[first + at];
    }
}

static void fill_indptr(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i * ((const mla_shape *)user)->columns;
}

static void fill_lengths(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = ((const mla_shape *)user)->context;
}

static void fill_ends(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i * ((const mla_shape *)user)->fresh;
}

/* A chain. */
static void fill_masks(int64_t *values, int64_t count, int set, void *user) {
    int64_t fresh = ((const mla_shape *)user)->fresh;
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = ((int64_t)2 << i % fresh) - 1;
}

static kgen_status make_integers(kgen__workload *work, mla_shape *n, kgen_error *err) {
    kgen_mla_args *a = work->args.mla;
    const kgen__fill_row rows[] = {
        {&a->block_table, KGEN__EACH_SET, fill_table}, {&a->slots, KGEN__EACH_SET, fill_table},
        {&a->kv_indices, KGEN__EACH_SET, fill_table},  {&a->kv_indptr, KGEN__SHARED, fill_indptr},
        {&a->seq_lens, KGEN__SHARED, fill_lengths},    {&a->cu_seqlens_q, KGEN__SHARED, fill_ends},
        {&a->words, KGEN__SHARED, fill_masks},
    };
    return kgen__workload_rows_ints(work, rows, sizeof rows / sizeof rows[0], n, err);
}

static kgen_status make_numbers(kgen__workload *work, kgen_error *err) {
    kgen_mla_args *a = work->args.mla;
    const kgen__content_row rows[] = {
        {&a->q, KGEN__EACH_SET, KGEN__SIGNED},         {&a->out, KGEN__EACH_SET, KGEN__NOTHING},
        {&a->lse, KGEN__EACH_SET, KGEN__NOTHING},      {&a->descale, KGEN__SHARED, KGEN__POSITIVE},
        {&a->out_scale, KGEN__SHARED, KGEN__POSITIVE}, {&a->sinks, KGEN__SHARED, KGEN__SIGNED},
    };
    KGEN_TRY(kgen__workload_rows(work, rows, sizeof rows / sizeof rows[0], err));
    a->softmax_scale = (float)(1 / sqrt(work->spec.mla.latent + work->spec.mla.rope));
    if (work->spec.mla.window == KGEN_WINDOW_RT) a->window = RUN_TIME_WINDOW;
    return KGEN_OK;
}

static kgen_status make(kgen__workload *work, kgen_error *err) {
    mla_shape n = shape_of(work);
    int64_t pages = n.seqs * n.live * work->sets;
    const kgen_arg_size sizes[] = {{"T", n.tokens},     {"S", n.seqs},
                                   {"S+1", n.seqs + 1}, {"NB", pages},
                                   {"page", n.page},    {"pages", n.columns},
                                   {"list", n.columns}, {"entries", n.seqs * n.columns}};
    work->sizes = sizes;
    work->size_count = sizeof sizes / sizeof sizes[0];
    KGEN_TRY(kgen__workload_row(work, &work->args.mla->cache, KGEN__SHARED, KGEN__SIGNED, err));
    KGEN_TRY(kgen__workload_shuffled(&n.pages, work, pages, err));
    kgen_status status = make_integers(work, &n, err);
    if (status == KGEN_OK) status = make_numbers(work, err);
    free(n.pages);
    return status;
}

static const kgen_problem problems[] = {{1, 2048, 0}, {1, 8192, 0},  {8, 2048, 0},
                                        {8, 8192, 0}, {64, 2048, 0}, {64, 8192, 0}};

const kgen__workload_family kgen__workload_mla = {
    .plan = plan,
    .make = make,
    .reads = 1,
    .batch = "seq_lens",
    .lengths = "seq_lens",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
};

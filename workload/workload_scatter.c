/* Workloads of scatter: requests of 57/64 to all of `context` committed tokens and
 * four new ones, in random order. Every set has slots and outputs of its own, so
 * slots come from memory, as after the layers of a model.
 *
 * Counted are the slots, mapping entries and table cells that a launch must read
 * and write, and all other tensors whole. With delta=1 that is the steady state:
 * the requests of the launch before, and only blocks that may have changed. */
#include <string.h>

#include "workload_family.h"

enum { NEW = 4, STEPS = 3, STARTS = 4, FORM_TOPK = 1 };

#define OP(name) (1u << KGEN_OP_##name)

enum {
    TABLES = OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE),
    MADE = TABLES | OP(DRAFT_LENS) | OP(CACHE_LOCS),
};

typedef struct scatter_shape {
    const kgen_scatter_spec *s;
    kgen__workload *work;
    int64_t rows, context, columns, width, pages, flat, locs;
} scatter_shape;

static int is(const kgen_scatter_spec *s, uint32_t ops) { return ops >> s->op & 1; }

/* ---- lengths ---------------------------------------------------------------------- */

static int64_t committed(const scatter_shape *n, int64_t row) {
    return n->context - row % 8 * (n->context / 64);
}

static int64_t accepted(int64_t row) { return 1 + row % NEW; }
static int64_t fresh(const scatter_shape *n, int64_t row) {
    return n->s->ragged ? 1 + row % NEW : NEW;
}

/* Tokens of a row's table, and those before that a delta has already written. */
static int64_t tokens_of(const scatter_shape *n, int64_t row) {
    if (is(n->s, OP(PAGE_TABLE_RAGGED))) return committed(n, row);
    return committed(n, row) + (n->s->accept ? accepted(row) : 0) + fresh(n, row);
}

static int64_t known_of(const scatter_shape *n, int64_t row) {
    return n->s->delta ? tokens_of(n, row) - fresh(n, row) : 0;
}

static scatter_shape shape_of(kgen__workload *work) {
    const kgen_scatter_spec *s = &work->spec.scatter;
    scatter_shape n = {
        .s = s, .work = work, .rows = work->problem.batch, .context = work->problem.context};
    n.columns = n.context + STARTS * (int64_t)s->page + 2 * NEW + STEPS;
    n.width = kgen__divide_up(n.context + 2 * NEW, s->page) + s->unaligned;
    n.pages = n.rows * kgen__divide_up(n.columns, s->page);
    n.locs = n.rows * NEW;
    if (s->form == KGEN_FORM_DRAFT) n.locs = n.rows * FORM_TOPK * STEPS;
    if (s->form == KGEN_FORM_LAST) n.locs = n.rows;
    for (int64_t row = 0; row < n.rows && is(s, OP(PAGE_TABLE_RAGGED)); row++)
        n.flat += committed(&n, row);
    return n;
}

/* ---- contents ---------------------------------------------------------------------- */

#define FILL(name, value)                                                          \
    static void fill_##name(int64_t *values, int64_t count, int set, void *user) { \
        const scatter_shape *n = user;                                             \
        (void)set, (void)n;                                                        \
        for (int64_t i = 0; i < count; i++) values[i] = (value);                   \
    }

FILL(lens, committed(n, i) + (n->s->op == KGEN_OP_DRAFT_LENS ? NEW : 0))
FILL(valid, committed(n, i))
FILL(accepted, accepted(i))
FILL(q_lens, fresh(n, i))
FILL(requests, (i * 37 + 11) % count)
FILL(nobody, -1)

/* Of tables a few pages in; of new tokens the column where they begin. */
static void fill_starts(int64_t *values, int64_t count, int set, void *user) {
    const scatter_shape *n = user;
    int ragged = n->s->form == KGEN_FORM_RAGGED;
    (void)set;
    for (int64_t i = 0; i < count; i++) {
        int64_t length = committed(n, i), begin = length > NEW ? length - NEW : 0;
        values[i] = is(n->s, OP(CACHE_LOCS)) ? (ragged ? begin : length) : i % STARTS * n->s->page;
    }
}

static void fill_indptr(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    values[0] = 0;
    for (int64_t i = 1; i < count; i++) values[i] = values[i - 1] + committed(user, i - 1);
}

/* Slots of one request after the other: pages at random places. */
static void deal_slots(int64_t *values, int64_t count, const scatter_shape *n) {
    int64_t page = n->s->page;
    for (int64_t i = 0; i < count; i++)
        values[i] = i % page ? values[i - 1] + 1
                             : (int64_t)kgen__workload_random(n->work, (uint64_t)n->pages) * page;
}

static void fill_req_to_token(int64_t *values, int64_t count, int set, void *user) {
    const scatter_shape *n = user;
    (void)set;
    for (int64_t at = 0; at < count; at += n->columns) deal_slots(values + at, n->columns, n);
}

static void fill_slots(int64_t *values, int64_t count, int set, void *user) {
    const scatter_shape *n = user;
    int64_t at = 0;
    (void)set, (void)count;
    for (int64_t row = 0; row < n->rows; at += committed(n, row++))
        deal_slots(values + at, committed(n, row), n);
}

/* Another page of as many, whole pages to whole pages. */
static void fill_mapping(int64_t *values, int64_t count, int set, void *user) {
    const scatter_shape *n = user;
    int64_t page = n->s->page;
    (void)set;
    for (int64_t i = 0; i < count; i++)
        values[i] = (i / page * 7919 + 3) % n->pages * page + i % page;
}

/* ---- tensors ------------------------------------------------------------------------ */

typedef enum role { READ = 1, WRITTEN = 2, BOTH = 3, PARTLY = 0 } role;

/* What the tensors of an op hold; a tensor that may be missing is. */
static const struct {
    const char *name;
    kgen__owner owner;
    role counted;
    kgen__integers *fill; /* NULL: nothing reads it */
} contents[] = {
    {"lens", KGEN__SHARED, READ, fill_lens},
    {"starts", KGEN__SHARED, READ, fill_starts},
    {"valid", KGEN__SHARED, READ, fill_valid},
    {"q_lens", KGEN__SHARED, READ, fill_q_lens},
    {"accepted", KGEN__SHARED, READ, fill_accepted},
    {"requests", KGEN__SHARED, READ, fill_requests},
    {"ids", KGEN__SHARED, READ, fill_requests},
    {"state", KGEN__EACH_SET, BOTH, fill_nobody},
    {"indptr", KGEN__SHARED, READ, fill_indptr},
    {"slots", KGEN__EACH_SET, PARTLY, fill_slots},
    {"req_to_token", KGEN__EACH_SET, PARTLY, fill_req_to_token},
    {"mapping", KGEN__SHARED, PARTLY, fill_mapping},
    {"table", KGEN__EACH_SET, PARTLY, NULL},
    {"swa_table", KGEN__EACH_SET, PARTLY, NULL},
};
enum { CONTENTS = sizeof contents / sizeof contents[0] };

/* A tensor of the launch; others than those above are outputs. */
typedef struct tensor_row {
    int index;
    kgen_dtype dtype;
    int32_t rank;
    int64_t shape[KGEN_TENSOR_RANK_MAX];
    kgen__owner owner;
    role counted;
    kgen__integers *fill;
} tensor_row;

enum { ROWS_MAX = 24 };

static tensor_row row_of(const kgen_arg *arg, int index) {
    tensor_row row = {.index = index,
                      .dtype = arg->dtype,
                      .rank = arg->rank,
                      .owner = KGEN__EACH_SET,
                      .counted = WRITTEN};
    for (int i = 0; i < CONTENTS; i++) {
        if (strcmp(contents[i].name, arg->name) != 0) continue;
        row.owner = contents[i].owner;
        row.counted = contents[i].counted;
        row.fill = contents[i].fill;
    }
    return row;
}

static kgen_status list_tensors(tensor_row list[ROWS_MAX], int *count, const scatter_shape *n,
                                kgen_error *err) {
    const kgen_args *args = &n->work->args;
    const kgen_arg_size sizes[] = {{"N", n->rows},
                                   {"N+1", n->rows + 1},
                                   {"R", n->rows},
                                   {"C", n->columns},
                                   {"M", n->pages * n->s->page},
                                   {"W", n->width},
                                   {"W2", n->width},
                                   {"F", n->flat},
                                   {"T", n->locs},
                                   {"S", STEPS}};
    kgen_arg arg;
    *count = 0;
    for (int i = 0; kgen_args_name(args, i); i++) {
        tensor_row *row = &list[*count];
        if (!kgen_args_want(&arg, &n->work->spec, i) || arg.optional) continue;
        *row = row_of(&arg, i);
        KGEN_TRY(kgen_arg_shape(row->shape, &arg, sizes, sizeof sizes / sizeof sizes[0], err));
        ++*count;
    }
    return KGEN_OK;
}

static double wide(int32_t i64) { return i64 ? 8 : 4; }

/* ---- what is counted ------------------------------------------------------------------ */

/* Slots that become pages, and the cells that they are written to. */
static void count_tables(kgen__workload *work, const scatter_shape *n) {
    const kgen_scatter_spec *s = n->s;
    double blocks = 0, cells, pools = 1 + s->swa;
    if (!is(s, TABLES) || !s->pages) return;
    for (int64_t row = 0; row < n->rows; row++)
        blocks +=
            (double)(kgen__divide_up(tokens_of(n, row), s->page) - known_of(n, row) / s->page);
    cells = s->delta || s->tail == KGEN_TAIL_KEEP ? blocks : (double)n->rows * (double)n->width;
    double read = blocks * (wide(s->slot) + (s->swa ? wide(s->map) : 0));
    work->read_bytes += read;
    work->bytes += read + cells * pools * wide(s->table);
}

/* Slots of new tokens. */
static void count_locs(kgen__workload *work, const scatter_shape *n) {
    const kgen_scatter_spec *s = n->s;
    int prepare = is(s, OP(SPEC_PREPARE));
    double tokens = prepare ? 0 : (double)n->locs;
    if (!is(s, OP(CACHE_LOCS)) && !(prepare && s->locs)) return;
    for (int64_t row = 0; row < n->rows && prepare; row++) tokens += (double)fresh(n, row);
    double read = tokens * (wide(s->slot) + (s->swa ? wide(s->map) : 0));
    work->read_bytes += read;
    work->bytes += read;
}

static kgen_status check_op(const kgen__workload *work, kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX];
    if (is(&work->spec.scatter, MADE)) return KGEN_OK;
    kgen_spec_print(line, &work->spec);
    const char *op = strstr(line, "op="); /* the first key, always printed */
    return kgen_fail(err, KGEN_E_UNSUPPORTED,
                     "%.*s: no load; there are loads of spec_prepare, page_table_requests, "
                     "page_table_ragged, draft_lens and cache_locs",
                     (int)strcspn(op, ","), op);
}

static kgen_status plan(kgen__workload *work, kgen_error *err) {
    tensor_row list[ROWS_MAX];
    KGEN_TRY(check_op(work, err));
    KGEN_TRY(kgen__workload_bound("context", work->problem.context, 1, err));
    scatter_shape n = shape_of(work);
    if (n.pages > INT32_MAX / work->spec.scatter.page)
        return kgen_fail(err, KGEN_E_ARG,
                         "problem: batch=%d, context=%d: %lld pages of %d, at most 2^31-1 slots",
                         work->problem.batch, work->problem.context, (long long)n.pages,
                         work->spec.scatter.page);
    int count;
    KGEN_TRY(list_tensors(list, &count, &n, err));
    for (int i = 0; i < count; i++) {
        double bytes = kgen_dtype_size(list[i].dtype) * (double)list[i].shape[0];
        if (list[i].rank == 2) bytes *= (double)list[i].shape[1];
        work->read_bytes += list[i].counted & READ ? bytes : 0;
        work->bytes +=
            (list[i].counted & READ ? bytes : 0) + (list[i].counted & WRITTEN ? bytes : 0);
    }
    count_tables(work, &n);
    count_locs(work, &n);
    return KGEN_OK;
}

/* ---- make ---------------------------------------------------------------------------------- */

static kgen_status make_tensor(kgen__workload *work, const tensor_row *row, scatter_shape *n,
                               kgen_error *err) {
    kgen_tensor *t = kgen_args_tensor(&work->args, row->index);
    if (!row->fill)
        return kgen__workload_tensor(work, t, row->owner, row->rank, row->shape, KGEN__NOTHING,
                                     err);
    return kgen__workload_ints(work, t, row->owner, row->rank, row->shape, row->fill, n, err);
}

static void set_numbers(kgen_scatter_args *a, const scatter_shape *n) {
    switch (a->op) {
    case KGEN_OP_PAGE_TABLE_REQUESTS:
        a->page_table_requests.tokens = NEW;
        break;
    case KGEN_OP_SPEC_PREPARE:
        a->spec_prepare.tokens = NEW;
        a->spec_prepare.pad_len = NEW;
        break;
    case KGEN_OP_DRAFT_LENS:
        a->draft_lens.tokens = NEW;
        a->draft_lens.pad_len = NEW;
        a->draft_lens.steps = STEPS;
        a->draft_lens.max_len = n->columns;
        break;
    case KGEN_OP_CACHE_LOCS:
        a->cache_locs.tokens = NEW;
        a->cache_locs.steps = n->s->form == KGEN_FORM_DRAFT ? STEPS : 0;
        a->cache_locs.topk = n->s->form == KGEN_FORM_DRAFT ? FORM_TOPK : 0;
        break;
    default:
        break;
    }
}

static kgen_status make(kgen__workload *work, kgen_error *err) {
    tensor_row list[ROWS_MAX];
    scatter_shape n = shape_of(work);
    int count;
    KGEN_TRY(list_tensors(list, &count, &n, err));
    for (int i = 0; i < count; i++) KGEN_TRY(make_tensor(work, &list[i], &n, err));
    set_numbers(work->args.scatter, &n);
    return KGEN_OK;
}

static const kgen_problem problems[] = {{32, 32768, 0}, {256, 32768, 0}};

const kgen__workload_family kgen__workload_scatter = {
    .plan = plan,
    .make = make,
    .batch = "lens",
    .lengths = "lens",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
};

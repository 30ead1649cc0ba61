/* Workloads: memory, contents, the table of families. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "workload_family.h"

static const kgen__workload_family *const families[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = &kgen__workload_##name,
#include <kgen/families.def>
};

const kgen__workload_family *kgen__workload_family_of(kgen_family_id family) {
    return (unsigned)family < KGEN_FAMILY_COUNT ? families[family] : NULL;
}

int kgen__workload_reads(kgen_family_id family) {
    const kgen__workload_family *row = kgen__workload_family_of(family);
    return row && row->reads;
}

size_t kgen__workload_problems(const kgen_problem **problems, kgen_family_id family) {
    const kgen__workload_family *row = kgen__workload_family_of(family);
    *problems = row ? row->problems : NULL;
    return row ? row->problem_count : 0;
}

int32_t kgen__workload_heads(kgen_family_id family, int32_t heads) {
    const kgen__workload_family *row = kgen__workload_family_of(family);
    int32_t usual = row ? row->usual_heads : 0;
    return usual && heads ? heads : usual;
}

static const double COLD_BYTES = 1e9; /* more than any last-level cache */

/* ---- random numbers --------------------------------------------------------- */

static uint64_t next_random(kgen__workload *work) { /* splitmix64 */
    uint64_t z = work->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t kgen__workload_random(kgen__workload *work, uint64_t below) {
    return next_random(work) % below;
}

static uint64_t fresh_seed(void) {
    uint64_t seed = (uint64_t)time(NULL);
    ssize_t got = getrandom(&seed, sizeof seed, GRND_NONBLOCK);
    return got > 0 && seed ? seed : 1;
}

/* ---- memory ------------------------------------------------------------------ */

/* malloc promises more than the machine has, and the emulated device writes all
 * of it; drivers of GPUs say themselves when they are full. */
static double memory_limit(const kgen_context *ctx) {
    if (kgen_context_target(ctx)->vendor != KGEN_VENDOR_CPU) return 1e15;
    return 0.5 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static kgen_status grow_list(kgen__workload *work, kgen_error *err) {
    if (work->memory_count < work->memory_capacity) return KGEN_OK;
    size_t capacity = work->memory_capacity ? 2 * work->memory_capacity : 32;
    void **memory = realloc(work->memory, capacity * sizeof *memory);
    if (!memory) return kgen_fail(err, KGEN_E_NOMEM, "workload: out of memory");
    work->memory = memory;
    work->memory_capacity = capacity;
    return KGEN_OK;
}

/* bytes is a double because a product of sizes may be above any integer. */
static kgen_status allocate(kgen__workload *work, void **out, double bytes, kgen_error *err) {
    work->memory_bytes += bytes;
    *out = NULL;
    if (work->measuring) return KGEN_OK;
    KGEN_TRY(grow_list(work, err));
    size_t size = bytes > 0 ? (size_t)bytes : 1; /* an empty tensor has an address */
    KGEN_TRY(kgen_memory_alloc(work->ctx, out, size, err));
    work->memory[work->memory_count++] = *out;
    return KGEN_OK;
}

/* Sizes of the rows are the family's, and known no longer than it makes its tensors. */
static kgen_status make_tensors(kgen__workload *work, const kgen__workload_family *family,
                                kgen_error *err) {
    kgen_status status = family->make(work, err);
    work->sizes = NULL;
    work->size_count = 0;
    return status;
}

/* Makes the workload in numbers only: what cannot fit is refused before it has cost
 * anything. */
static kgen_status check_memory(kgen__workload *work, const kgen__workload_family *family,
                                kgen_error *err) {
    double limit = memory_limit(work->ctx);
    work->measuring = 1;
    KGEN_TRY(make_tensors(work, family, err));
    work->measuring = work->turns = 0;
    if (work->memory_bytes <= limit) return KGEN_OK;
    return kgen_fail(err, KGEN_E_NOMEM,
                     "workload: batch=%d, context=%d, heads=%d in %d sets needs %.3g GB; there are "
                     "%.3g",
                     work->problem.batch, work->problem.context, work->problem.heads, work->sets,
                     work->memory_bytes * 1e-9, limit * 1e-9);
}

/* ---- contents ---------------------------------------------------------------- */

/* Codes of positive numbers rise with them in every format: from the code of
 * `low` to that of 1, a power of two is `step` codes. */
typedef struct format {
    uint32_t low, one, step, sign;
} format;

static const format formats[] = {
    [KGEN_DTYPE_BF16] = {0x3c00, 0x3f80, 0x80, 0x8000},
    [KGEN_DTYPE_FP16] = {0x2000, 0x3c00, 0x400, 0x8000},
    [KGEN_DTYPE_E4M3FN] = {0x08, 0x38, 0x08, 0x80},
    [KGEN_DTYPE_E4M3FNUZ] = {0x08, 0x40, 0x08, 0x80},
    [KGEN_DTYPE_E5M2] = {0x20, 0x3c, 0x04, 0x80},
    [KGEN_DTYPE_F32] = {0x3c000000, 0x3f800000, 0x800000, 0x80000000},
    [KGEN_DTYPE_I8] = {0x01, 0x80, 0, 0x80},
    [KGEN_DTYPE_U8] = {0x30, 0x3f, 0, 0}, /* below 2, whatever floats they are parts of */
    [KGEN_DTYPE_I4] = {0x00, 0x80, 0, 0x80},
};

static uint32_t random_code(kgen__workload *work, const format *f, kgen__content content) {
    uint64_t bits = next_random(work);
    uint32_t code = f->low + (uint32_t)((bits & 0xffffffffu) % (f->one - f->low));
    if (content == KGEN__SMALL) code -= 4 * f->step;
    int negative = content == KGEN__NEGATIVE || (content != KGEN__POSITIVE && bits >> 63);
    return negative ? code | f->sign : code;
}

static void fill_block(kgen__workload *work, uint8_t *block, size_t bytes, kgen_dtype dtype,
                       kgen__content content) {
    size_t size = (size_t)kgen_dtype_size(dtype);
    for (size_t at = 0; at + size <= bytes; at += size) {
        uint32_t code = random_code(work, &formats[dtype], content);
        memcpy(block + at, &code, size); /* little-endian, as every device is */
    }
}

/* Large tensors repeat a block: random numbers cost more than copies. */
static kgen_status fill_memory(kgen__workload *work, void *memory, size_t bytes, kgen_dtype dtype,
                               kgen__content content, kgen_error *err) {
    enum { BLOCK = 1 << 22 };
    if (content == KGEN__NOTHING) return KGEN_OK;
    size_t unit = bytes < BLOCK ? bytes : BLOCK;
    uint8_t *block = malloc(unit ? unit : 1);
    if (!block) return kgen_fail(err, KGEN_E_NOMEM, "workload: out of memory");
    fill_block(work, block, unit, dtype, content);
    kgen_status status = KGEN_OK;
    for (size_t at = 0; status == KGEN_OK && at < bytes; at += unit)
        status = kgen_memory_write(work->ctx, (uint8_t *)memory + at, block,
                                   bytes - at < unit ? bytes - at : unit, err);
    free(block);
    return status;
}

/* ---- tensors ------------------------------------------------------------------ */

enum { SET_ALIGNMENT = 256 };

/* What the spec wants of a tensor of work->args; 0: nothing. */
static int find_arg(kgen_arg *arg, const kgen__workload *work, const kgen_tensor *t) {
    int i = 0;
    while (kgen_args_tensor(&work->args, i) != t) i++;
    return kgen_args_want(arg, &work->spec, i);
}

/* Memory of all sets, and the step from one to the next. */
static kgen_status place(kgen__workload *work, kgen_tensor *t, kgen__owner owner, int32_t rank,
                         const int64_t *shape, double *total, kgen_error *err) {
    kgen_arg arg;
    find_arg(&arg, work, t);
    double each = kgen_dtype_size(arg.dtype), all;
    void *memory;
    for (int32_t i = 0; i < rank; i++) each *= (double)shape[i];
    double step = (double)((uint64_t)(each < 1e18 ? each : 0) / SET_ALIGNMENT + 1) * SET_ALIGNMENT;
    all = owner == KGEN__EACH_SET ? (work->sets - 1) * step + each : each;
    KGEN_TRY(allocate(work, &memory, all, err));
    if (work->measuring) return KGEN_OK; /* its strides may be above any integer */
    *t = kgen_tensor_dense(memory, arg.dtype, rank, shape);
    t->layout = arg.layout;
    *total = all;
    if (owner == KGEN__SHARED) return KGEN_OK;
    if (work->turns == KGEN__TURNS_MAX)
        return kgen_fail(err, KGEN_E_INTERNAL, "workload: more than %d tensors", KGEN__TURNS_MAX);
    work->turn[work->turns++] =
        (kgen__turn){(size_t)((char *)t - (char *)work->args.any), (size_t)step};
    return KGEN_OK;
}

kgen_status kgen__workload_tensor(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                                  int32_t rank, const int64_t *shape, kgen__content content,
                                  kgen_error *err) {
    double bytes;
    KGEN_TRY(place(work, t, owner, rank, shape, &bytes, err));
    if (work->measuring) return KGEN_OK;
    return fill_memory(work, t->data, (size_t)bytes, t->dtype, content, err);
}

kgen_status kgen__workload_row(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                               kgen__content content, kgen_error *err) {
    int64_t shape[KGEN_TENSOR_RANK_MAX];
    kgen_arg arg;
    if (!find_arg(&arg, work, t)) return KGEN_OK;
    KGEN_TRY(kgen_arg_shape(shape, &arg, work->sizes, work->size_count, err));
    return kgen__workload_tensor(work, t, owner, arg.rank, shape, content, err);
}

kgen_status kgen__workload_rows(kgen__workload *work, const kgen__content_row *rows, size_t count,
                                kgen_error *err) {
    for (size_t i = 0; i < count; i++)
        KGEN_TRY(kgen__workload_row(work, rows[i].t, rows[i].owner, rows[i].content, err));
    return KGEN_OK;
}

static kgen_status write_ints(kgen__workload *work, const kgen_tensor *t, size_t at,
                              int64_t *values, int64_t count, kgen_error *err) {
    size_t size = (size_t)kgen_dtype_size(t->dtype);
    for (int64_t i = 0; i < count; i++) /* in place; hosts are little-endian */
        memmove((char *)values + (size_t)i * size, &values[i], size);
    return kgen_memory_write(work->ctx, (char *)t->data + at, values, (size_t)count * size, err);
}

kgen_status kgen__workload_ints(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                                int32_t rank, const int64_t *shape, kgen__integers *fill,
                                void *user, kgen_error *err) {
    int64_t count = 1;
    double bytes;
    KGEN_TRY(place(work, t, owner, rank, shape, &bytes, err));
    if (work->measuring) return KGEN_OK;
    for (int32_t i = 0; i < rank; i++) count *= shape[i];
    int64_t *values = malloc((size_t)(count ? count : 1) * sizeof *values);
    if (!values) return kgen_fail(err, KGEN_E_NOMEM, "workload: out of memory");
    int sets = owner == KGEN__EACH_SET ? work->sets : 1;
    size_t step = owner == KGEN__EACH_SET ? work->turn[work->turns - 1].bytes : 0;
    kgen_status status = KGEN_OK;
    for (int set = 0; set < sets && status == KGEN_OK; set++) {
        fill(values, count, set, user);
        status = write_ints(work, t, (size_t)set * step, values, count, err);
    }
    free(values);
    return status;
}

kgen_status kgen__workload_row_ints(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                                    kgen__integers *fill, void *user, kgen_error *err) {
    int64_t shape[KGEN_TENSOR_RANK_MAX];
    kgen_arg arg;
    if (!find_arg(&arg, work, t)) return KGEN_OK;
    KGEN_TRY(kgen_arg_shape(shape, &arg, work->sizes, work->size_count, err));
    return kgen__workload_ints(work, t, owner, arg.rank, shape, fill, user, err);
}

kgen_status kgen__workload_rows_ints(kgen__workload *work, const kgen__fill_row *rows, size_t count,
                                     void *user, kgen_error *err) {
    for (size_t i = 0; i < count; i++)
        KGEN_TRY(kgen__workload_row_ints(work, rows[i].t, rows[i].owner, rows[i].fill, user, err));
    return KGEN_OK;
}

kgen_status kgen__workload_shuffled(int32_t **out, kgen__workload *work, int64_t count,
                                    kgen_error *err) {
    *out = NULL;
    if (work->measuring) return KGEN_OK;
    if (count > INT32_MAX)
        return kgen_fail(err, KGEN_E_NOMEM, "workload: %lld places in %d sets, at most 2^31-1",
                         (long long)count, work->sets);
    int32_t *values = malloc(((size_t)count + 1) * sizeof *values);
    if (!values) return kgen_fail(err, KGEN_E_NOMEM, "workload: out of memory");
    for (int32_t i = 0; i < (int32_t)count; i++) values[i] = i;
    for (int32_t i = (int32_t)count - 1; i > 0; i--) {
        int32_t j = (int32_t)kgen__workload_random(work, (uint64_t)i + 1), kept = values[i];
        values[i] = values[j];
        values[j] = kept;
    }
    *out = values;
    return KGEN_OK;
}

kgen_status kgen__workload_bound(const char *field, int32_t value, int32_t low, kgen_error *err) {
    if (value >= low) return KGEN_OK;
    return kgen_fail(err, KGEN_E_ARG, "problem: %s=%d, at least %d expected", field, value, low);
}

/* ---- make ----------------------------------------------------------------------- */

int kgen__workload_sets_for(double bytes, double cold_bytes, int most) {
    double cold = cold_bytes > 0 ? cold_bytes : COLD_BYTES, sets = cold / bytes;
    if (sets > most) return most;
    return sets > 1 ? (int)sets + (sets > (int)sets) : 1;
}

static kgen_status fill_workload(kgen__workload *work, const kgen__workload_options *o,
                                 kgen_error *err) {
    const kgen__workload_family *family = kgen__workload_family_of(work->spec.family);
    KGEN_TRY(kgen__workload_bound("batch", work->problem.batch, 1, err));
    KGEN_TRY(kgen__workload_bound("context", work->problem.context, 0, err));
    KGEN_TRY(kgen__workload_bound("heads", work->problem.heads, 0, err));
    kgen_args_init(&work->args, &work->room, &work->spec);
    KGEN_TRY(family->plan(work, err));
    work->sets = kgen__workload_sets_for(work->bytes, o->cold_bytes, KGEN__WORKLOAD_SETS_MAX);
    KGEN_TRY(check_memory(work, family, err));
    KGEN_TRY(kgen_stream_create(work->ctx, &work->stream, err));
    return make_tensors(work, family, err);
}

kgen_status kgen__workload_make(kgen__workload **out, kgen_context *ctx, const kgen_spec *spec,
                                const kgen_problem *problem, const kgen__workload_options *options,
                                kgen_error *err) {
    kgen__workload_options o = {0};
    if (options) o = *options;
    kgen__workload *work = calloc(1, sizeof *work);
    if (!work) return kgen_fail(err, KGEN_E_NOMEM, "workload: out of memory");
    work->ctx = ctx;
    work->problem = *problem;
    work->random = o.seed ? o.seed : fresh_seed();
    kgen_status status = kgen_spec_resolve(&work->spec, spec, kgen_context_target(ctx), err);
    if (status == KGEN_OK) status = fill_workload(work, &o, err);
    if (status == KGEN_OK)
        *out = work;
    else
        kgen__workload_free(work);
    return status;
}

void kgen__workload_free(kgen__workload *work) {
    if (!work) return;
    for (size_t i = 0; i < work->memory_count; i++) kgen_memory_free(work->ctx, work->memory[i]);
    for (int i = 0; work->uploads && i < work->sets; i++) kgen_upload_free(work->uploads[i]);
    if (work->stream) kgen_stream_destroy(work->ctx, work->stream);
    free(work->uploads);
    free(work->memory);
    free(work);
}

double kgen__workload_bytes(const kgen__workload *work) { return work->bytes; }
double kgen__workload_read_bytes(const kgen__workload *work) { return work->read_bytes; }
double kgen__workload_flops(const kgen__workload *work) { return work->flops; }
int kgen__workload_sets(const kgen__workload *work) { return work->sets; }

void kgen__workload_args(kgen_args *args, kgen_args_room *room, const kgen__workload *work,
                         int set) {
    kgen_args own = work->uploads ? kgen_upload_args(work->uploads[set]) : work->args;
    kgen_args_copy(args, room, &own);
    for (int i = 0; i < work->turns; i++) {
        kgen_tensor *t = (kgen_tensor *)((char *)args->any + work->turn[i].offset);
        t->data = (char *)t->data + (size_t)set * work->turn[i].bytes;
    }
}

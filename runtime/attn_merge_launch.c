/* attn_merge launches: arguments against spec, the packed argument struct.
 * Nothing here allocates, locks or waits. */
#include "checks.h"
#include "kv_pack.h"
#include "templates/kg/attn_merge/attn_merge_packed.h"
#include "templates/kg/attn_merge/attn_merge_shape.h"

typedef struct kg_attn_merge_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

enum { MOST_ROWS = INT32_MAX / 2 };

#define FAMILY attn_merge
#define SPEC kgen_attn_merge_spec
#define ARGS kgen_attn_merge_args
#define ARGS_DEF <kgen/attn_merge_args.def>
#include "args_table.h"

#define TO(name) (offsetof(device_args, name) + 1)

static const kgen__place places[TENSORS] = {
    [TENSOR_PREFIX] = {TO(part[0].x), {TO(part[0].token), TO(part[0].head), 0}, 1},
    [TENSOR_PREFIX_LSE] = {TO(part[0].lse), {TO(part[0].lse_row), 0, 0}, 0},
    [TENSOR_SUFFIX] = {TO(part[1].x), {TO(part[1].token), TO(part[1].head), 0}, 1},
    [TENSOR_SUFFIX_LSE] = {TO(part[1].lse), {TO(part[1].lse_row), 0, 0}, 0},
    [TENSOR_STACKED] = {TO(part[0].x), {TO(next), TO(part[0].token), TO(part[0].head)}, 1},
    [TENSOR_STACKED_LSE] = {TO(part[0].lse), {TO(next_lse), TO(part[0].lse_row), 0}, 0},
    [TENSOR_OUT] = {TO(out), {TO(out_token), TO(out_head), 0}, 1},
    [TENSOR_LSE] = {TO(lse), {TO(lse_row), 0, 0}, 0},
    [TENSOR_OUT_SCALE] = {TO(out_scale), {0, 0, 0}, 0},
};

static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    (void)size, (void)spec, (void)err;
    return KGEN_OK;
}

static const kgen__args_rows args_rows = {ARGS_ROWS, .places = places, .derive = derive};

static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    (void)spec;
    return &args_rows;
}

/* --- what may lie on what -------------------------------------------------- */

typedef struct named {
    const char *name;
    const kgen_tensor *t;
} named;

/* Dimensions of one element have no stride. */
static int same_strides(const kgen_tensor *out, const kgen_tensor *in) {
    int at = in->rank - out->rank;
    for (int i = 0; i < out->rank; i++)
        if (out->shape[i] != in->shape[i + at] ||
            (out->shape[i] > 1 && out->stride[i] != in->stride[i + at]))
            return 0;
    return 1;
}

/* `out` is `in`, or one part of it where it has a dimension more. */
static int is_part(const kgen_tensor *out, const kgen_tensor *in) {
    if (out->dtype != in->dtype || !same_strides(out, in)) return 0;
    int64_t size = kgen_dtype_size(in->dtype), bytes = (char *)out->data - (char *)in->data;
    if (in->rank == out->rank) return bytes == 0;
    int64_t step = in->stride[0] * size;
    if (step == 0 || in->shape[0] == 1) return bytes == 0;
    return bytes % step == 0 && bytes / step >= 0 && bytes / step < in->shape[0];
}

/* An input shares no memory with what is written, or the output is a part of it;
 * then its parts must not lie in each other. */
static kgen_status check_input(named out, named in, int may_hold, kgen_error *err) {
    kgen__stretch a = kgen__tensor_memory(out.t), b = kgen__tensor_memory(in.t);
    if (a.end <= b.first || b.end <= a.first) return KGEN_OK;
    NEED(may_hold && is_part(out.t, in.t),
         "%s: overlaps %s, which the kernel writes; in place it has the same address, type and "
         "strides",
         in.name, out.name);
    return kgen__check_distinct(in.name, in.t, err);
}

/* out and lse against the parts' rows and sums, and each other. */
static kgen_status check_overlap(const kgen_attn_merge_args *a, int stacked, kgen_error *err) {
    const named pair[] = {{"prefix", &a->prefix},
                          {"suffix", &a->suffix},
                          {"prefix_lse", &a->prefix_lse},
                          {"suffix_lse", &a->suffix_lse}};
    const named stack[] = {{"stacked", &a->stacked}, {"stacked_lse", &a->stacked_lse}};
    const named *in = stacked ? stack : pair;
    int count = stacked ? 2 : 4;
    named out = {"out", &a->out}, lse = {"lse", &a->lse};
    for (int i = 0; i < count; i++) {
        KGEN_TRY(check_input(out, in[i], i < count / 2, err));
        if (a->lse.data) KGEN_TRY(check_input(lse, in[i], i >= count / 2, err));
    }
    if (a->lse.data) KGEN_TRY(kgen__check_apart("lse", &a->lse, "out", &a->out, err));
    if (!a->out_scale.data) return KGEN_OK;
    if (a->lse.data) KGEN_TRY(kgen__check_apart("out_scale", &a->out_scale, "lse", &a->lse, err));
    return kgen__check_apart("out_scale", &a->out_scale, "out", &a->out, err);
}

/* --- packing ------------------------------------------------------------------ */

static kgen_status check_counts(const int64_t *size, const kgen_attn_merge_args *a, int stacked,
                                kgen_error *err) {
    int64_t rows, tokens = size[SIZE_T], heads = size[SIZE_H];
    const char *name = stacked ? "stacked" : "prefix";
    NEED(heads >= 1, "%s: shape[%d]=%lld heads, at least 1", name, 1 + stacked, (long long)heads);
    NEED(!__builtin_mul_overflow(tokens, heads, &rows) && rows <= MOST_ROWS,
         "%s: %lld tokens of %lld heads, at most %d rows", name, (long long)tokens,
         (long long)heads, MOST_ROWS);
    NEED(!stacked || size[SIZE_N] >= 1, "stacked: shape[0]=%lld parts, at least 1",
         (long long)size[SIZE_N]);
    NEED(a->tail <= tokens, "tail=%d: the batch has %lld tokens", a->tail, (long long)tokens);
    return KGEN_OK;
}

static void pack_numbers(device_args *d, uint32_t *grid, const int64_t *size,
                         const kgen_attn_merge_args *a, const kgen_kernel *kernel) {
    const kgen_attn_merge_spec *s = &kernel->spec.attn_merge;
    int lanes = s->waves * kernel->ctx->target->wave_size;
    int64_t each = (int64_t)s->turns * kg_merge_rows(s->head_dim, lanes);
    d->parts = s->parts == KGEN_PARTS_STACK ? (int)size[SIZE_N] : 2;
    d->heads = (int)size[SIZE_H];
    d->rows = (int)(size[SIZE_T] * size[SIZE_H]);
    d->merged = (int)size[SIZE_T] - a->tail;
    d->by_heads = kgen__divisor(size[SIZE_H]);
    *grid = (uint32_t)((d->rows + each - 1) / each);
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_attn_merge_args *a = args->attn_merge;
    int stacked = kernel->spec.attn_merge.parts == KGEN_PARTS_STACK;
    int64_t size[KGEN__SIZES_MAX];
    KGEN_TRY(kgen__args_take(packed, size, &kernel->binding, &kernel->spec, a, err));
    KGEN_TRY(check_counts(size, a, stacked, err));
    if (kgen_dtype_size((kgen_dtype)kernel->spec.attn_merge.out) == 1)
        KGEN_TRY(kgen__check_alignment("out", &a->out, 2, KG_MERGE_DIMS, err));
    KGEN_TRY(check_overlap(a, stacked, err));
    pack_numbers(packed, grid, size, a, kernel);
    return KGEN_OK;
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    (void)kernel, (void)args, (void)err;
    *bytes = 0;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_attn_merge = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .workspace_bytes = workspace_bytes,
    .pack = pack,
};

/* kv_write launches: arguments against spec, the packed argument struct.
 * Nothing here allocates, locks or waits. */
#include <string.h>

#include "checks.h"
#include "kv_pack.h"

typedef struct kg_kv_write_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

enum { MOST_ROWS = INT32_MAX / 64, MOST_HEADS = 65535 };

static kgen_dtype index_type(int32_t i64) { return i64 ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32; }

static kgen_status check_inputs(const kgen_kv_write_spec *s, const kgen_kv_write_args *a,
                                int64_t rows, kgen_error *err) {
    int64_t heads = a->k.shape[1];
    NEED(rows <= MOST_ROWS, "slots: shape[0]=%lld rows, at most %d", (long long)rows, MOST_ROWS);
    NEED(heads >= 1 && heads <= MOST_HEADS, "k: shape[1]=%lld heads, 1 to %d expected",
         (long long)heads, MOST_HEADS);
    KGEN_TRY(kgen__check_rows("k", &a->k, s->x, rows, heads, s->head_dim, err));
    KGEN_TRY(kgen__check_rows("v", &a->v, s->x, rows, heads, s->v_dim, err));
    NEED(a->first_slot >= 0, "first_slot=%lld: at least 0", (long long)a->first_slot);
    if (!s->remap) return KGEN_OK;
    KGEN_TRY(kgen__check_type("remap", &a->remap, index_type(s->remap == 2), 1, err));
    return kgen__check_unit_stride("remap", &a->remap, 0, 1, err);
}

static kgen_status check_caches(kgen__kv *kv, const kgen_kv_write_spec *s,
                                const kgen_kv_write_args *a, kgen_error *err) {
    KGEN_TRY(kgen__check_cache(kv, "k_cache", 0, &a->k_cache, s->head_dim, err));
    KGEN_TRY(kgen__check_cache(kv, "v_cache", 1, &a->v_cache, s->v_dim, err));
    KGEN_TRY(kgen__check_dim("v_cache", &a->v_cache, 0, a->k_cache.shape[0], err));
    KGEN_TRY(kgen__check_span("k_cache", &a->k_cache, err));
    KGEN_TRY(kgen__check_span("v_cache", &a->v_cache, err));
    KGEN_TRY(kgen__check_distinct("k_cache", &a->k_cache, err));
    KGEN_TRY(kgen__check_distinct("v_cache", &a->v_cache, err));
    NEED(a->k_cache.shape[0] <= INT32_MAX / kv->page,
         "k_cache: %lld pages of %lld tokens, at most 2^31-1 slots", (long long)a->k_cache.shape[0],
         (long long)kv->page);
    NEED(a->v_cache.data != a->k_cache.data, "v_cache: the address of k_cache");
    KGEN_TRY(kgen__check_apart("k", &a->k, "k_cache", &a->k_cache, err));
    KGEN_TRY(kgen__check_apart("k", &a->k, "v_cache", &a->v_cache, err));
    KGEN_TRY(kgen__check_apart("v", &a->v, "k_cache", &a->k_cache, err));
    return kgen__check_apart("v", &a->v, "v_cache", &a->v_cache, err);
}

static kgen_status check_table(const kgen_kv_write_spec *s, const char *name, const kgen_tensor *t,
                               int64_t rows, kgen_error *err) {
    KGEN_TRY(kgen__check_type(name, t, (kgen_dtype)s->table, 2, err));
    KGEN_TRY(kgen__check_dim(name, t, 0, rows, err));
    KGEN_TRY(kgen__check_dim(name, t, 1, s->rope_dim / 2, err));
    KGEN_TRY(kgen__check_span(name, t, err));
    KGEN_TRY(kgen__check_unit_stride(name, t, 1, 1, err));
    return kgen__check_alignment(name, t, 1, 16, err);
}

/* Queries that share elements with what is written must be those of q_out. */
static kgen_status check_queries(const kgen_kv_write_spec *s, const kgen_kv_write_args *a,
                                 int64_t rows, kgen_error *err) {
    const kgen_tensor *q = &a->q, *out = &a->q_out;
    int64_t heads = q->shape[1];
    NEED(heads >= 1 && heads <= MOST_HEADS, "q: shape[1]=%lld heads, 1 to %d expected",
         (long long)heads, MOST_HEADS);
    NEED(rows * heads <= INT32_MAX / (s->head_dim / 16) - 1024,
         "q: %lld rows of %lld heads, too many for one launch", (long long)rows, (long long)heads);
    KGEN_TRY(kgen__check_rows("q", q, s->x, rows, heads, s->head_dim, err));
    KGEN_TRY(kgen__check_rows("q_out", out, s->x, rows, heads, s->head_dim, err));
    KGEN_TRY(kgen__check_distinct("q_out", out, err));
    if (q->data == out->data) {
        NEED(q->stride[0] == out->stride[0] && q->stride[1] == out->stride[1],
             "q_out: stride %lld, %lld, in place q has %lld, %lld", (long long)out->stride[0],
             (long long)out->stride[1], (long long)q->stride[0], (long long)q->stride[1]);
        return KGEN_OK;
    }
    return kgen__check_apart("q", q, "q_out", out, err);
}

static kgen_status check_rope(const kgen_kv_write_spec *s, const kgen_kv_write_args *a,
                              int64_t rows, kgen_error *err) {
    if (!s->rope) return KGEN_OK;
    KGEN_TRY(kgen__check_vector("positions", &a->positions, index_type(s->positions), rows, err));
    KGEN_TRY(check_table(s, "cos", &a->cos, a->cos.shape[0], err));
    KGEN_TRY(check_table(s, "sin", &a->sin, a->cos.shape[0], err));
    return s->rope_q ? check_queries(s, a, rows, err) : KGEN_OK;
}

static kgen_status check_scale(const kgen__kv *kv, const kgen_kv_write_spec *s, const char *name,
                               const kgen_tensor *t, int64_t pages, struct kg_kv_side *side,
                               kgen_error *err) {
    long long stride[3];
    kgen_tensor one_head = *t;
    KGEN_TRY(kgen__check_descale(kv, s->scale, name, t, pages, -1, stride, err));
    kgen__pack_scale(side, t, stride);
    if (s->scale != KGEN_DESCALE_TOKEN && s->scale != KGEN_DESCALE_ROW) return KGEN_OK;
    if (s->scale == KGEN_DESCALE_ROW && stride[2] == 0)
        one_head.shape[t->layout == KGEN_LAYOUT_HND ? 1 : 2] = 1;
    KGEN_TRY(kgen__check_span(name, t, err));
    return kgen__check_distinct(name, &one_head, err);
}

static void pack_numbers(device_args *d, const kgen_kv_write_spec *s, const kgen_kv_write_args *a,
                         const kgen__kv *kv, int64_t rows) {
    int size = kgen_dtype_size((kgen_dtype)s->x), table = kgen_dtype_size((kgen_dtype)s->table);
    d->slots = a->slots.data;
    if (s->remap) d->remap = a->remap.data, d->remap_size = a->remap.shape[0];
    d->first_slot = a->first_slot;
    d->slot_end = (int)(a->k_cache.shape[0] * kv->page);
    d->rows = (int)rows;
    d->heads = (int)kv->heads;
    d->page = (int)kv->page;
    d->by_page = kgen__divisor(kv->page);
    d->by_heads = kgen__divisor(kv->heads);
    if (!s->rope) return;
    d->positions = a->positions.data;
    d->positions_end = a->cos.shape[0];
    d->cos = a->cos.data;
    d->sin = a->sin.data;
    d->cos_row = a->cos.stride[0] * table;
    d->sin_row = a->sin.stride[0] * table;
    if (!s->rope_q) return;
    d->q = a->q.data;
    d->q_out = a->q_out.data;
    d->q_row = a->q.stride[0] * size;
    d->q_head = a->q.stride[1] * size;
    d->q_out_row = a->q_out.stride[0] * size;
    d->q_out_head = a->q_out.stride[1] * size;
    d->q_heads = (int)a->q.shape[1];
    d->by_q_heads = kgen__divisor(d->q_heads);
}

/* kg/kv/kv_row_scale.h: X rows of both, or a wave for each row of K and of V. */
static int64_t row_groups(const kgen_kv_write_spec *s, const kgen__kv_shape *shape, int64_t rows) {
    int64_t x = kgen__kv_x(shape);
    return kgen__kv_packed(shape) ? (rows + x - 1) / x : (2 * rows + s->waves - 1) / s->waves;
}

static kgen_status count_groups(device_args *d, uint32_t *grid, const kgen_kernel *kernel,
                                kgen_error *err) {
    const kgen_kv_write_spec *s = &kernel->spec.kv_write;
    const kgen_target *target = kernel->ctx->target;
    kgen__kv_shape shape = kgen__kv_write_geometry(s);
    int64_t k, v, q = 0, threads = (int64_t)s->waves * target->wave_size;
    int64_t x = kgen__kv_x(&shape); /* kv_write.hip: a row, or a block of rows */
    int64_t tokens = !kgen__kv_packed(&shape) ? 0 : d->rows > s->few ? x : 1;
    KGEN_TRY(kgen__count_groups(&k, &shape, target, 0, 0, d->rows, d->heads, err));
    KGEN_TRY(kgen__count_groups(&v, &shape, target, 1, tokens, d->rows, d->heads, err));
    if (s->scale == KGEN_DESCALE_ROW) k = row_groups(s, &shape, d->rows), v = 0;
    if (s->rope_q) q = ((int64_t)d->rows * d->q_heads * (s->head_dim / 16) + threads - 1) / threads;
    NEED(k + v + q <= INT32_MAX, "k: %d rows need %lld workgroups, at most 2^31-1", d->rows,
         (long long)(k + v + q));
    d->by_slices = kgen__divisor(kgen__kv_slices(&shape, target, d->heads));
    d->group_end[0] = (int)k;
    d->group_end[1] = (int)(k + v);
    *grid = (uint32_t)(k + v + q);
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_kv_write_spec *s = &kernel->spec.kv_write;
    const kgen_kv_write_args *a = &args->kv_write;
    device_args *d = packed;
    int64_t rows = a->slots.shape[0], pages = a->k_cache.shape[0];
    kgen__kv kv = kgen__kv_of(s->layout, s->kv, s->page, a->k.shape[1]);
    memset(d, 0, sizeof *d);
    KGEN_TRY(kgen__check_vector("slots", &a->slots, index_type(s->slots), rows, err));
    KGEN_TRY(check_inputs(s, a, rows, err));
    KGEN_TRY(check_caches(&kv, s, a, err));
    KGEN_TRY(check_scale(&kv, s, "k_scale", &a->k_scale, pages, &d->side[0], err));
    KGEN_TRY(check_scale(&kv, s, "v_scale", &a->v_scale, pages, &d->side[1], err));
    KGEN_TRY(check_rope(s, a, rows, err));
    kgen__pack_side(&d->side[0], &kv, 0, &a->k, &a->k_cache);
    kgen__pack_side(&d->side[1], &kv, 1, &a->v, &a->v_cache);
    pack_numbers(d, s, a, &kv, rows);
    return count_groups(d, grid, kernel, err);
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    (void)kernel, (void)args, (void)err;
    *bytes = 0;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_kv_write = {sizeof(device_args), workspace_bytes, pack};

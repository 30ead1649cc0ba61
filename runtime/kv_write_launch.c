/* kv_write launches: arguments against spec, the packed argument struct.
 * Nothing here allocates, locks or waits. */
#include <string.h>

#include "checks.h"
#include "kv_pack.h"
#include "templates/kg/kv/kv_shape.h"

typedef struct kg_kv_write_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

enum { MOST_ROWS = INT32_MAX / 64, MOST_HEADS = 65535 };

#define FAMILY kv_write
#define SPEC kgen_kv_write_spec
#define ARGS kgen_kv_write_args
#define ARGS_DEF <kgen/kv_write_args.def>
#include "args_table.h"

#define TO(name) (offsetof(device_args, name) + 1)

/* The sides of K and V are packed by kgen__pack_side. */
static const kgen__place places[TENSORS] = {
    [TENSOR_SLOTS] = {TO(slots), {0}, 0},
    [TENSOR_REMAP] = {TO(remap), {0}, 0},
    [TENSOR_POSITIONS] = {TO(positions), {0}, 0},
    [TENSOR_COS] = {TO(cos), {TO(cos_row)}, 1},
    [TENSOR_SIN] = {TO(sin), {TO(sin_row)}, 1},
    [TENSOR_Q] = {TO(q), {TO(q_row), TO(q_head)}, 1},
    [TENSOR_Q_OUT] = {TO(q_out), {TO(q_out_row), TO(q_out_head)}, 1},
};

static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    (void)spec;
    NEED(size[SIZE_T] <= MOST_ROWS, "slots: shape[0]=%lld rows, at most %d",
         (long long)size[SIZE_T], MOST_ROWS);
    return KGEN_OK;
}

static const kgen__args_rows args_rows = {ARGS_ROWS, .places = places, .derive = derive};

static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    (void)spec;
    return &args_rows;
}

static kgen_status check_heads(const char *name, int64_t heads, kgen_error *err) {
    NEED(heads >= 1 && heads <= MOST_HEADS, "%s: shape[1]=%lld heads, 1 to %d expected", name,
         (long long)heads, MOST_HEADS);
    return KGEN_OK;
}

static kgen_status say_rows_meet(const kgen_kv_write_args *a, kgen_error *err) {
    KGEN_TRY(kgen__check_apart("k", &a->k, "k_cache", &a->k_cache, err));
    KGEN_TRY(kgen__check_apart("k", &a->k, "v_cache", &a->v_cache, err));
    KGEN_TRY(kgen__check_apart("v", &a->v, "k_cache", &a->k_cache, err));
    return kgen__check_apart("v", &a->v, "v_cache", &a->v_cache, err);
}

static int meet(const kgen__stretch *a, const kgen__stretch *b) {
    return (a->end > b->first) & (b->end > a->first);
}

static int rows_meet(const kgen__stretch *k, const kgen__stretch *v, const kgen__stretch *k_cache,
                     const kgen__stretch *v_cache) {
    return meet(k, k_cache) | meet(k, v_cache) | meet(v, k_cache) | meet(v, v_cache);
}

static kgen_status check_rows_apart(const kgen_kv_write_args *a, kgen_error *err) {
    const kgen__stretch k = kgen__tensor_memory(&a->k), v = kgen__tensor_memory(&a->v);
    const kgen__stretch k_cache = kgen__tensor_memory(&a->k_cache),
                        v_cache = kgen__tensor_memory(&a->v_cache);
    return rows_meet(&k, &v, &k_cache, &v_cache) ? say_rows_meet(a, err) : KGEN_OK;
}

/* Of keys; beside values with a scale a block they are copied. */
static kgen__kv keys_of(const kgen_kv_write_spec *s, int64_t heads) {
    int32_t type = s->scale == KGEN_DESCALE_BLOCK ? s->x : s->kv;
    kgen__kv kv = kgen__kv_of(s->layout, type, s->page, heads);
    kv.align = s->align;
    return kv;
}

static kgen_status check_caches(kgen__kv *keys, kgen__kv *kv, const kgen_kv_write_spec *s,
                                const kgen_kv_write_args *a, kgen_error *err) {
    KGEN_TRY(kgen__check_caches(keys, kv, &a->k_cache, &a->v_cache, s->head_dim, s->v_dim, err));
    KGEN_TRY(kgen__check_distinct("k_cache", &a->k_cache, err));
    KGEN_TRY(kgen__check_distinct("v_cache", &a->v_cache, err));
    NEED(a->k_cache.shape[0] <= INT32_MAX / kv->page,
         "k_cache: %lld pages of %lld tokens, at most 2^31-1 slots", (long long)a->k_cache.shape[0],
         (long long)kv->page);
    NEED(a->v_cache.data != a->k_cache.data || a->k_cache.shape[0] == 0,
         "v_cache: the address of k_cache");
    return check_rows_apart(a, err);
}

/* Queries that share elements with what is written must be those of q_out. */
static kgen_status check_queries(const kgen_kv_write_spec *s, const kgen_kv_write_args *a,
                                 const int64_t *size, kgen_error *err) {
    const kgen_tensor *q = &a->q, *out = &a->q_out;
    int64_t heads = size[SIZE_HQ], rows = size[SIZE_T];
    if (!s->rope || !s->rope_q) return KGEN_OK;
    KGEN_TRY(check_heads("q", heads, err));
    NEED(rows * heads <= INT32_MAX / (s->head_dim / 16) - 1024,
         "q: %lld rows of %lld heads, too many for one launch", (long long)rows, (long long)heads);
    if (rows == 0) return KGEN_OK; /* two tensors of no elements may have one address, NULL */
    if (q->data == out->data) {
        NEED((rows == 1 || q->stride[0] == out->stride[0]) &&
                 (heads == 1 || q->stride[1] == out->stride[1]),
             "q_out: stride %lld, %lld, in place q has %lld, %lld", (long long)out->stride[0],
             (long long)out->stride[1], (long long)q->stride[0], (long long)q->stride[1]);
        return KGEN_OK;
    }
    return kgen__check_apart("q", q, "q_out", out, err);
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

static kgen_status check_scales(device_args *d, const kgen__kv *kv, const kgen_kv_write_spec *s,
                                const kgen_kv_write_args *a, kgen_error *err) {
    int64_t pages = a->k_cache.shape[0];
    long long stride[3];
    if (s->scale != KGEN_DESCALE_BLOCK) {
        KGEN_TRY(check_scale(kv, s, "k_scale", &a->k_scale, pages, &d->side[0], err));
        return check_scale(kv, s, "v_scale", &a->v_scale, pages, &d->side[1], err);
    }
    KGEN_TRY(kgen__check_block_scale(kv, "v_scale", &a->v_scale, pages, s->v_dim / KG_KV_BLOCK,
                                     stride, err));
    kgen__pack_scale(&d->side[1], &a->v_scale, stride);
    KGEN_TRY(kgen__check_span("v_scale", &a->v_scale, err));
    return kgen__check_distinct("v_scale", &a->v_scale, err);
}

static void pack_numbers(device_args *d, const kgen_kv_write_spec *s, const kgen_kv_write_args *a,
                         const kgen__kv *kv, const int64_t *size) {
    if (s->remap) d->remap_size = size[SIZE_ENTRIES];
    d->first_slot = a->first_slot;
    d->slot_end = (int)(a->k_cache.shape[0] * kv->page);
    d->rows = (int)size[SIZE_T];
    d->heads = (int)kv->heads;
    d->page = (int)kv->page;
    d->by_page = kgen__divisor(kv->page);
    d->by_heads = kgen__divisor(kv->heads);
    if (s->rope) d->positions_end = size[SIZE_POSITIONS];
    if (!s->rope || !s->rope_q) return;
    d->q_heads = (int)size[SIZE_HQ];
    d->by_q_heads = kgen__divisor(d->q_heads);
}

static void settle(kgen_kernel *kernel) {
    kgen__kv_shape shape = kgen__kv_write_geometry(&kernel->spec.kv_write);
    kernel->counts.kv = kgen__kv_counts_of(&shape, kernel->ctx->target);
}

/* kg/kv/kv_row_scale.h: X rows of both, or a wave for each row of K and of V. */
static int64_t row_groups(const kgen_kv_write_spec *s, const kgen__kv_counts *counts,
                          int64_t rows) {
    int64_t x = counts->x;
    return counts->packed ? (rows + x - 1) / x : (2 * rows + s->waves - 1) / s->waves;
}

static kgen_status count_groups(device_args *d, uint32_t *grid, const kgen_kernel *kernel,
                                kgen_error *err) {
    const kgen_kv_write_spec *s = &kernel->spec.kv_write;
    const kgen__kv_counts *counts = &kernel->counts.kv;
    int64_t k, v, q = 0, threads = counts->threads;
    /* kv_write.hip: a row, or a block of rows */
    int64_t tokens = !counts->packed ? 0 : d->rows > s->few ? counts->x : 1;
    KGEN_TRY(kgen__count_groups(&k, counts, 0, 0, d->rows, d->heads, err));
    KGEN_TRY(kgen__count_groups(&v, counts, 1, tokens, d->rows, d->heads, err));
    if (s->scale == KGEN_DESCALE_ROW) k = row_groups(s, counts, d->rows), v = 0;
    if (s->rope_q) q = ((int64_t)d->rows * d->q_heads * (s->head_dim / 16) + threads - 1) / threads;
    NEED(k + v + q <= INT32_MAX, "k: %d rows need %lld workgroups, at most 2^31-1", d->rows,
         (long long)(k + v + q));
    d->by_slices = kgen__divisor(kgen__kv_count_slices(counts, d->heads));
    d->group_end[0] = (int)k;
    d->group_end[1] = (int)(k + v);
    *grid = (uint32_t)(k + v + q);
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_kv_write_spec *s = &kernel->spec.kv_write;
    const kgen_kv_write_args *a = args->kv_write;
    device_args *d = packed;
    int64_t size[KGEN__SIZES_MAX];
    KGEN_TRY(kgen__args_take(d, size, &kernel->binding, &kernel->spec, a, err));
    KGEN_TRY(check_heads("k", size[SIZE_HKV], err));
    kgen__kv kv = kgen__kv_of(s->layout, s->kv, s->page, size[SIZE_HKV]);
    kgen__kv keys = keys_of(s, size[SIZE_HKV]);
    kv.align = s->align;
    KGEN_TRY(check_caches(&keys, &kv, s, a, err));
    KGEN_TRY(check_scales(d, &kv, s, a, err));
    KGEN_TRY(check_queries(s, a, size, err));
    kgen__pack_side(&d->side[0], &keys, 0, &a->k, &a->k_cache);
    kgen__pack_side(&d->side[1], &kv, 1, &a->v, &a->v_cache);
    pack_numbers(d, s, a, &kv, size);
    return count_groups(d, grid, kernel, err);
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    (void)kernel, (void)args, (void)err;
    *bytes = 0;
    return KGEN_OK;
}

static int queries_fit(const kgen_kv_write_args *a, const kgen__stretch *q,
                       const kgen__stretch *q_out) {
    if (a->q.data != a->q_out.data) return !meet(q, q_out);
    return a->q.stride[0] == a->q_out.stride[0] && a->q.stride[1] == a->q_out.stride[1];
}

static int again(void *packed, const kgen_kernel *kernel, const kgen_args *args,
                 const kgen__stretch *at) {
    const kgen_kv_write_args *a = args->kv_write;
    device_args *d = packed;
    struct kg_kv_side *k = &d->side[0], *v = &d->side[1];
    const uint8_t *i = kernel->binding.index_of;
    if (kernel->spec.kv_write.rope_q && !queries_fit(a, &at[i[TENSOR_Q]], &at[i[TENSOR_Q_OUT]]))
        return 0;
    k->rows = a->k.data, k->cache = a->k_cache.data, k->scale = a->k_scale.data;
    v->rows = a->v.data, v->cache = a->v_cache.data, v->scale = a->v_scale.data;
    return k->cache != v->cache && !rows_meet(&at[i[TENSOR_K]], &at[i[TENSOR_V]],
                                              &at[i[TENSOR_K_CACHE]], &at[i[TENSOR_V_CACHE]]);
}

const kgen__launcher kgen__launch_kv_write = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .settle = settle,
    .workspace_bytes = workspace_bytes,
    .pack = pack,
    .again = again,
};

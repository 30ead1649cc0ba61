/* kv_gather launches: arguments against spec, the packed argument struct.
 * Nothing here allocates, locks or waits. */
#include <string.h>

#include "checks.h"
#include "kv_pack.h"
#include "templates/kg/kv/kv_shape.h"

typedef struct kg_kv_gather_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

enum { MOST_ROWS = INT32_MAX / 64, MOST_SEQS = INT32_MAX / 2, MOST_HEADS = 65535 };

#define FAMILY kv_gather
#define SPEC kgen_kv_gather_spec
#define ARGS kgen_kv_gather_args
#define ARGS_DEF <kgen/kv_gather_args.def>
#include "args_table.h"

#define TO(name) (offsetof(device_args, name) + 1)

/* The sides of K and V are packed by kgen__pack_side. */
static const kgen__place places[TENSORS] = {
    [TENSOR_TABLE] = {TO(table), {TO(table_row)}, 0},
    [TENSOR_CU] = {TO(cu_seqlens), {0}, 0},
    [TENSOR_SEQ_LENS] = {TO(seq_lens), {0}, 0},
    [TENSOR_STARTS] = {TO(starts), {0}, 0},
};

static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    (void)spec;
    NEED(size[SIZE_S] <= MOST_SEQS, "seq_lens: shape[0]=%lld sequences, at most %d",
         (long long)size[SIZE_S], MOST_SEQS);
    size[SIZE_ENDS] = size[SIZE_S] + 1;
    return KGEN_OK;
}

static const kgen__args_rows args_rows = {ARGS_ROWS, .places = places, .derive = derive};

static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    (void)spec;
    return &args_rows;
}

/* Of keys; beside values with a scale a block they are copied. */
static kgen__kv keys_of(const kgen_kv_gather_spec *s, int64_t heads) {
    int32_t type = s->descale == KGEN_DESCALE_BLOCK ? s->out : s->kv;
    kgen__kv kv = kgen__kv_of(s->layout, type, s->page, heads);
    kv.align = s->align;
    return kv;
}

static kgen_status check_caches(kgen__kv *keys, kgen__kv *kv, const kgen_kv_gather_spec *s,
                                const kgen_kv_gather_args *a, kgen_error *err) {
    KGEN_TRY(kgen__check_caches(keys, kv, &a->k_cache, &a->v_cache, s->head_dim, s->v_dim, err));
    KGEN_TRY(kgen__check_apart("k_cache", &a->k_cache, "k", &a->k, err));
    KGEN_TRY(kgen__check_apart("k_cache", &a->k_cache, "v", &a->v, err));
    KGEN_TRY(kgen__check_apart("v_cache", &a->v_cache, "k", &a->k, err));
    return kgen__check_apart("v_cache", &a->v_cache, "v", &a->v, err);
}

static kgen_status check_counts(const int64_t *size, kgen_error *err) {
    NEED(size[SIZE_PAGES] >= 1, "block_table: shape[1]=%lld, 1 to 2^31-1",
         (long long)size[SIZE_PAGES]);
    NEED(size[SIZE_HKV] >= 1 && size[SIZE_HKV] <= MOST_HEADS,
         "k: shape[1]=%lld heads, 1 to %d expected", (long long)size[SIZE_HKV], MOST_HEADS);
    NEED(size[SIZE_R] <= MOST_ROWS, "k: shape[0]=%lld rows, at most %d", (long long)size[SIZE_R],
         MOST_ROWS);
    return KGEN_OK;
}

static void pack_numbers(device_args *d, const kgen_kv_gather_args *a, const kgen__kv *kv,
                         const int64_t *size) {
    d->rows = (int)size[SIZE_R];
    d->seqs = (int)size[SIZE_S];
    d->heads = (int)kv->heads;
    d->page = (int)kv->page;
    d->pages = (int)a->k_cache.shape[0];
    d->columns = (int)size[SIZE_PAGES];
    d->by_page = kgen__divisor(kv->page);
    d->by_heads = kgen__divisor(kv->heads);
}

static kgen_status pack_scales(device_args *d, const kgen_kv_gather_spec *s,
                               const kgen_kv_gather_args *a, const kgen__kv *kv, int64_t seqs,
                               kgen_error *err) {
    const kgen_tensor *const scales[] = {&a->k_descale, &a->v_descale};
    long long stride[3];
    if (s->descale == KGEN_DESCALE_BLOCK) {
        KGEN_TRY(kgen__check_block_scale(kv, "v_descale", &a->v_descale, a->k_cache.shape[0],
                                         s->v_dim / KG_KV_BLOCK, stride, err));
        kgen__pack_scale(&d->side[1], &a->v_descale, stride);
        return KGEN_OK;
    }
    for (int i = 0; i < 2; i++) {
        KGEN_TRY(kgen__check_descale(kv, s->descale, i ? "v_descale" : "k_descale", scales[i],
                                     a->k_cache.shape[0], seqs, stride, err));
        kgen__pack_scale(&d->side[i], scales[i], stride);
    }
    return KGEN_OK;
}

static void settle(kgen_kernel *kernel) {
    kgen__kv_shape shape = kgen__kv_gather_geometry(&kernel->spec.kv_gather);
    kernel->counts.kv = kgen__kv_counts_of(&shape, kernel->ctx->target);
}

static kgen_status count_groups(device_args *d, uint32_t *grid, const kgen_kernel *kernel,
                                kgen_error *err) {
    const kgen__kv_counts *counts = &kernel->counts.kv;
    int64_t k, v, tokens = counts->packed ? counts->x : 0;
    KGEN_TRY(kgen__count_groups(&k, counts, 0, 0, d->rows, d->heads, err));
    KGEN_TRY(kgen__count_groups(&v, counts, 1, tokens, d->rows, d->heads, err));
    NEED(k + v <= INT32_MAX, "k: %d rows need %lld workgroups, at most 2^31-1", d->rows,
         (long long)(k + v));
    d->by_slices = kgen__divisor(kgen__kv_count_slices(counts, d->heads));
    d->k_groups = (int)k;
    *grid = (uint32_t)(k + v);
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_kv_gather_spec *s = &kernel->spec.kv_gather;
    const kgen_kv_gather_args *a = args->kv_gather;
    device_args *d = packed;
    int64_t size[KGEN__SIZES_MAX];
    KGEN_TRY(kgen__args_take(d, size, &kernel->binding, &kernel->spec, a, err));
    KGEN_TRY(check_counts(size, err));
    kgen__kv kv = kgen__kv_of(s->layout, s->kv, s->page, size[SIZE_HKV]);
    kv.align = s->align;
    kgen__kv keys = keys_of(s, size[SIZE_HKV]);
    KGEN_TRY(check_caches(&keys, &kv, s, a, err));
    KGEN_TRY(pack_scales(d, s, a, &kv, size[SIZE_S], err));
    kgen__pack_side(&d->side[0], &keys, 0, &a->k, &a->k_cache);
    kgen__pack_side(&d->side[1], &kv, 1, &a->v, &a->v_cache);
    pack_numbers(d, a, &kv, size);
    return count_groups(d, grid, kernel, err);
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    (void)kernel, (void)args, (void)err;
    *bytes = 0;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_kv_gather = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .settle = settle,
    .workspace_bytes = workspace_bytes,
    .pack = pack,
};

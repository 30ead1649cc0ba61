/* kv_gather launches: arguments against spec, the packed argument struct.
 * Nothing here allocates, locks or waits. */
#include <string.h>

#include "checks.h"
#include "kv_pack.h"

typedef struct kg_kv_gather_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

enum { MOST_ROWS = INT32_MAX / 64, MOST_SEQS = INT32_MAX / 2, MOST_HEADS = 65535 };

static kgen_status check_caches(kgen__kv *kv, const kgen_kv_gather_spec *s,
                                const kgen_kv_gather_args *a, kgen_error *err) {
    KGEN_TRY(kgen__check_cache(kv, "k_cache", 0, &a->k_cache, s->head_dim, err));
    KGEN_TRY(kgen__check_cache(kv, "v_cache", 1, &a->v_cache, s->v_dim, err));
    KGEN_TRY(kgen__check_dim("v_cache", &a->v_cache, 0, a->k_cache.shape[0], err));
    KGEN_TRY(kgen__check_span("k_cache", &a->k_cache, err));
    return kgen__check_span("v_cache", &a->v_cache, err);
}

static kgen_status check_sequences(const kgen_kv_gather_spec *s, const kgen_kv_gather_args *a,
                                   int64_t seqs, kgen_error *err) {
    const kgen_tensor *t = &a->block_table;
    KGEN_TRY(kgen__check_vector("seq_lens", &a->seq_lens, KGEN_DTYPE_I32, seqs, err));
    NEED(seqs <= MOST_SEQS, "seq_lens: shape[0]=%lld sequences, at most %d", (long long)seqs,
         MOST_SEQS);
    KGEN_TRY(kgen__check_vector("cu_seqlens", &a->cu_seqlens, KGEN_DTYPE_I32, seqs + 1, err));
    if (s->from == KGEN_FROM_START && a->starts.data)
        KGEN_TRY(kgen__check_vector("starts", &a->starts, KGEN_DTYPE_I32, seqs, err));
    KGEN_TRY(
        kgen__check_type("block_table", t, s->table ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, 2, err));
    KGEN_TRY(kgen__check_dim("block_table", t, 0, seqs, err));
    NEED(t->shape[1] >= 1 && t->shape[1] <= INT32_MAX, "block_table: shape[1]=%lld, 1 to 2^31-1",
         (long long)t->shape[1]);
    KGEN_TRY(kgen__check_span("block_table", t, err));
    return kgen__check_unit_stride("block_table", t, 1, 1, err);
}

static kgen_status check_outputs(const kgen_kv_gather_spec *s, const kgen_kv_gather_args *a,
                                 int64_t heads, kgen_error *err) {
    int64_t rows = a->k.shape[0];
    NEED(heads >= 1 && heads <= MOST_HEADS, "k: shape[1]=%lld heads, 1 to %d expected",
         (long long)heads, MOST_HEADS);
    KGEN_TRY(kgen__check_rows("k", &a->k, s->out, 0, heads, s->head_dim, err));
    KGEN_TRY(kgen__check_rows("v", &a->v, s->out, 0, heads, s->v_dim, err));
    KGEN_TRY(kgen__check_dim("v", &a->v, 0, rows, err));
    NEED(rows <= MOST_ROWS, "k: shape[0]=%lld rows, at most %d", (long long)rows, MOST_ROWS);
    KGEN_TRY(kgen__check_distinct("k", &a->k, err));
    KGEN_TRY(kgen__check_distinct("v", &a->v, err));
    NEED(a->k.data != a->v.data, "v: the address of k");
    KGEN_TRY(kgen__check_apart("k_cache", &a->k_cache, "k", &a->k, err));
    KGEN_TRY(kgen__check_apart("k_cache", &a->k_cache, "v", &a->v, err));
    KGEN_TRY(kgen__check_apart("v_cache", &a->v_cache, "k", &a->k, err));
    return kgen__check_apart("v_cache", &a->v_cache, "v", &a->v, err);
}

static void pack_numbers(device_args *d, const kgen_kv_gather_spec *s, const kgen_kv_gather_args *a,
                         const kgen__kv *kv) {
    d->table = a->block_table.data;
    d->table_row = a->block_table.stride[0];
    d->cu_seqlens = a->cu_seqlens.data;
    d->seq_lens = a->seq_lens.data;
    d->starts = s->from == KGEN_FROM_START ? a->starts.data : NULL;
    d->rows = (int)a->k.shape[0];
    d->seqs = (int)a->seq_lens.shape[0];
    d->heads = (int)kv->heads;
    d->page = (int)kv->page;
    d->pages = (int)a->k_cache.shape[0];
    d->columns = (int)a->block_table.shape[1];
    d->by_page = kgen__divisor(kv->page);
    d->by_heads = kgen__divisor(kv->heads);
}

static kgen_status count_groups(device_args *d, uint32_t *grid, const kgen_kernel *kernel,
                                kgen_error *err) {
    const kgen_target *target = kernel->ctx->target;
    kgen__kv_shape shape = kgen__kv_gather_geometry(&kernel->spec.kv_gather);
    int64_t k, v;
    int64_t tokens = kgen__kv_packed(&shape) ? kgen__kv_x(&shape) : 0;
    KGEN_TRY(kgen__count_groups(&k, &shape, target, 0, 0, d->rows, d->heads, err));
    KGEN_TRY(kgen__count_groups(&v, &shape, target, 1, tokens, d->rows, d->heads, err));
    NEED(k + v <= INT32_MAX, "k: %d rows need %lld workgroups, at most 2^31-1", d->rows,
         (long long)(k + v));
    d->by_slices = kgen__divisor(kgen__kv_slices(&shape, target, d->heads));
    d->k_groups = (int)k;
    *grid = (uint32_t)(k + v);
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_kv_gather_spec *s = &kernel->spec.kv_gather;
    const kgen_kv_gather_args *a = &args->kv_gather;
    device_args *d = packed;
    long long stride[3];
    int64_t seqs = a->seq_lens.shape[0], pages = a->k_cache.shape[0];
    kgen__kv kv = kgen__kv_of(s->layout, s->kv, s->page, a->k.shape[1]);
    memset(d, 0, sizeof *d);
    KGEN_TRY(check_sequences(s, a, seqs, err));
    KGEN_TRY(check_caches(&kv, s, a, err));
    KGEN_TRY(check_outputs(s, a, kv.heads, err));
    KGEN_TRY(
        kgen__check_descale(&kv, s->descale, "k_descale", &a->k_descale, pages, seqs, stride, err));
    kgen__pack_scale(&d->side[0], &a->k_descale, stride);
    KGEN_TRY(
        kgen__check_descale(&kv, s->descale, "v_descale", &a->v_descale, pages, seqs, stride, err));
    kgen__pack_scale(&d->side[1], &a->v_descale, stride);
    kgen__pack_side(&d->side[0], &kv, 0, &a->k, &a->k_cache);
    kgen__pack_side(&d->side[1], &kv, 1, &a->v, &a->v_cache);
    pack_numbers(d, s, a, &kv);
    return count_groups(d, grid, kernel, err);
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    (void)kernel, (void)args, (void)err;
    *bytes = 0;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_kv_gather = {sizeof(device_args), workspace_bytes, pack};

/* Pools of kv_compact that are given by address: a capture has to know how much
 * memory stands behind each. */
#include "scatter_pools.h"

#include "checks.h"

/* Bytes from the start of a pool to the end of its slots. No stride is negative
 * (a launch refuses it), so a last slot or the end of the last whole page is the
 * furthest; the sum in double says whether the one in integers can be made. */
static kgen_status pool_bytes(size_t *out, const kgen_kv_compact_args *a, int64_t page,
                              kgen_error *err) {
    static const double most = 0x1p48;
    int64_t last = a->slot_count - 1, full = a->slot_count / page;
    *out = 0;
    if (a->slot_count == 0) return KGEN_OK;
    double sum = (double)(last / page) * (double)a->page_bytes +
                 (double)page * (double)a->token_bytes +
                 (double)a->pieces * (double)a->piece_stride + (double)a->piece_bytes;
    NEED(sum < most, "pools: a pool of %g bytes, at most %g in a capture", sum, most);
    int64_t far = last / page * a->page_bytes + last % page * a->token_bytes;
    int64_t whole = full ? (full - 1) * a->page_bytes + (page - 1) * a->token_bytes : 0;
    *out =
        (size_t)((far > whole ? far : whole) + (a->pieces - 1) * a->piece_stride + a->piece_bytes);
    return KGEN_OK;
}

/* Where no pool is given, pools holds addresses. */
kgen_status kgen__scatter_addresses(int *tensor, size_t *bytes, const kgen_kernel *kernel,
                                    const kgen_args *args, kgen_error *err) {
    const kgen_scatter_spec *s = &kernel->spec.scatter;
    *tensor = -1;
    if (s->op != KGEN_OP_KV_COMPACT || args->scatter->kv_compact.pool.data) return KGEN_OK;
    if (args->scatter->kv_compact.pools.shape[0] == 0) return KGEN_OK;
    KGEN_TRY(pool_bytes(bytes, &args->scatter->kv_compact, s->page, err));
    do ++*tensor;
    while (kgen_args_tensor(args, *tensor) != &args->scatter->kv_compact.pools);
    return KGEN_OK;
}

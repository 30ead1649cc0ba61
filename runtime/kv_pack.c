/* Divisions by page sizes as a product and a shift. */
#include "kv_pack.h"

#include "checks.h"

/* n by / 2^shift is exact for n below 2^31: ceil(2^(31+l) / d) with 2^l not
 * below d. */
struct kg_divisor kgen__divisor(int64_t by) {
    unsigned l = 0;
    while (((int64_t)1 << l) < by) l++;
    uint64_t power = (uint64_t)1 << (31 + l);
    return (struct kg_divisor){(unsigned)((power + (uint64_t)by - 1) / (uint64_t)by), 31 + l};
}

void kgen__pack_side(struct kg_kv_side *side, const kgen__kv *kv, int is_v, const kgen_tensor *rows,
                     const kgen_tensor *cache) {
    const kgen__kv_dims *dims = kgen__kv_dims_of(kv->layout, is_v);
    int row_size = kgen_dtype_size(rows->dtype), natural = dims->dim == dims->unit;
    int xpacked_v = is_v && kv->layout == KGEN_LAYOUT_XPACKED;
    side->rows = rows->data;
    side->row = rows->stride[0] * row_size;
    side->head = rows->stride[1] * row_size;
    side->cache = cache->data;
    side->cache_page = cache->stride[0] * kv->size;
    side->cache_head = cache->stride[dims->head] * kv->size;
    side->cache_slot = natural ? cache->stride[dims->page] * kv->size : 16;
    side->cache_dim = cache->stride[dims->dim] * kv->size;
    side->cache_chunk = natural || xpacked_v ? 16
                        : is_v               ? cache->stride[dims->page] * kv->size
                                             : side->cache_dim;
}

void kgen__pack_scale(struct kg_kv_side *side, const kgen_tensor *scale,
                      const long long stride[3]) {
    side->scale = scale->data;
    side->scale_page = stride[0];
    side->scale_slot = stride[1];
    side->scale_head = stride[2];
}

kgen_status kgen__count_groups(int64_t *groups, const kgen__kv_shape *shape,
                               const kgen_target *target, int is_v, int64_t tokens, int64_t rows,
                               int64_t heads, kgen_error *err) {
    int64_t threads = (int64_t)shape->waves * target->wave_size, per, places;
    if (tokens) {
        per = shape->waves;
        places = (rows + tokens - 1) / tokens * kgen__kv_slices(shape, target, heads);
    } else {
        int64_t block = kgen__kv_row_block(shape);
        per = threads * shape->turns;
        places =
            (rows + block - 1) / block * block * heads * kgen__kv_row_lanes(shape, target, is_v);
    }
    NEED(places <= INT32_MAX - per,
         "%s: %lld rows of %lld heads, %lld pieces of work, at most 2^31-1", is_v ? "v" : "k",
         (long long)rows, (long long)heads, (long long)places);
    *groups = (places + per - 1) / per;
    return KGEN_OK;
}

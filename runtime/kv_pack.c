/* Divisions by page sizes as a product and a shift. */
#include "kv_pack.h"

#include "templates/kg/kv/kv_shape.h"
#include "checks.h"

/* n by / 2^shift is exact for n below 2^31: ceil(2^(31+l) / d) with 2^l not
 * below d. */
struct kg_divisor kgen__divisor(int64_t by) {
    unsigned l = by > 1 ? 64 - (unsigned)__builtin_clzll((uint64_t)by - 1) : 0;
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

kgen__kv_counts kgen__kv_counts_of(const kgen__kv_shape *shape, const kgen_target *target) {
    return (kgen__kv_counts){
        .shape = *shape,
        .packed = kgen__kv_packed(shape),
        .x = kgen__kv_x(shape),
        .block = kgen__kv_row_block(shape),
        .lanes = {kgen__kv_row_lanes(shape, target, 0), kgen__kv_row_lanes(shape, target, 1)},
        .wave_heads = target->wave_size / kg_kv_pair_lanes(shape->v_dim, target->wave_size),
        .slices = (int32_t)kgen__kv_slices(shape, target, 1),
        .threads = (int64_t)shape->waves * target->wave_size,
    };
}

int64_t kgen__kv_count_slices(const kgen__kv_counts *counts, int64_t heads) {
    return (heads + counts->wave_heads - 1) / counts->wave_heads * counts->slices;
}

kgen_status kgen__count_groups(int64_t *groups, const kgen__kv_counts *counts, int is_v,
                               int64_t tokens, int64_t rows, int64_t heads, kgen_error *err) {
    int64_t per = counts->threads * counts->shape.turns, block = counts->block;
    int64_t blocks = block == 1 ? rows : (rows + block - 1) / block * block;
    int64_t places = blocks * heads * counts->lanes[is_v];
    if (tokens) {
        per = counts->shape.waves;
        places = (rows + tokens - 1) / tokens * kgen__kv_count_slices(counts, heads);
    }
    NEED(places <= INT32_MAX - per,
         "%s: %lld rows of %lld heads, %lld pieces of work, at most 2^31-1", is_v ? "v" : "k",
         (long long)rows, (long long)heads, (long long)places);
    *groups = (places + per - 1) / per;
    return KGEN_OK;
}

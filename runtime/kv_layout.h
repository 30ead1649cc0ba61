/* Paged caches and their scales, as attn, kv_write and kv_gather take them. */
#ifndef KGEN_RUNTIME_KV_LAYOUT_H
#define KGEN_RUNTIME_KV_LAYOUT_H

#include <kgen/tensor.h>

/* Which dimension of a cache tensor is what. `dim` is the one along head_dim,
 * `unit` the innermost. */
typedef struct kgen__kv_dims {
    int rank, page, head, dim, unit;
} kgen__kv_dims;

const kgen__kv_dims *kgen__kv_dims_of(int32_t layout, int is_v);

/* What a spec says of its caches, and what a launch finds. */
typedef struct kgen__kv {
    int32_t layout, dtype, spec_page;
    int64_t heads;
    int size;     /* bytes of an element */
    int x;        /* elements of 16 bytes */
    int64_t page; /* tokens; 0 before the first cache is checked */
    int align;    /* bytes, of addresses and strides */
} kgen__kv;

kgen__kv kgen__kv_of(int32_t layout, int32_t dtype, int32_t page, int64_t heads);

/* k first: v must have its pages. `name` is that of the argument. */
kgen_status kgen__check_cache(kgen__kv *kv, const char *name, int is_v, const kgen_tensor *t,
                              int64_t dim, kgen_error *err);

/* Of HEAD [1], [Hkv], and [seqs][Hkv] where seqs is not below 0; of TOKEN and
 * ROW [NB][page][Hkv] tagged nhd or [NB][Hkv][page] tagged hnd. Fills strides by
 * (page or sequence, slot, head). */
kgen_status kgen__check_descale(const kgen__kv *kv, int32_t descale, const char *name,
                                const kgen_tensor *t, int64_t pages, int64_t seqs,
                                long long stride[3], kgen_error *err);

/* Both, of which keys may have a type of their own. */
kgen_status kgen__check_caches(kgen__kv *keys, kgen__kv *kv, const kgen_tensor *k_cache,
                               const kgen_tensor *v_cache, int32_t head_dim, int32_t v_dim,
                               kgen_error *err);

/* Scales of blocks of values: [NB][page][Hkv][blocks]. */
kgen_status kgen__check_block_scale(const kgen__kv *kv, const char *name, const kgen_tensor *t,
                                    int64_t pages, int64_t blocks, long long stride[3],
                                    kgen_error *err);

/* No two elements of a tensor that is written are the same one. */
kgen_status kgen__check_distinct(const char *name, const kgen_tensor *t, kgen_error *err);

#endif

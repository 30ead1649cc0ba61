/* Where things are in the cache tensors and in their descales. */
#ifndef KGEN_CHECK_ATTN_LAYOUT_H
#define KGEN_CHECK_ATTN_LAYOUT_H

#include "check_family.h"

typedef enum kgen__cache_side { KGEN__SIDE_K, KGEN__SIDE_V } kgen__cache_side;

typedef struct kgen__cache_at {
    int64_t page, slot, head;
} kgen__cache_at;

/* How the two tensors of a cache lie. packed, for nhd and hnd: 1 both in one
 * allocation, a token's row of K and then of V; 2 the same with all tokens of a
 * head together; 3 all pages of a head together. For the others only 1: the K
 * block of a page, then its V block. */
typedef struct kgen__cache_plan {
    int64_t pages, page, hkv, d, dv;
    int32_t pad; /* 16-byte units between two tokens, or two heads */
    int32_t packed;
} kgen__cache_plan;

static inline int kgen__cache_is_plain(kgen_layout layout) {
    return layout == KGEN_LAYOUT_NHD || layout == KGEN_LAYOUT_HND;
}

/* Shape and strides of a cache, of a descale: the row has said type and layout.
 * shape: not AUTO. */
void kgen__cache_shape(kgen_tensor *t, const kgen__cache_plan *plan, kgen__cache_side side);
void kgen__descale_shape(kgen_tensor *t, const kgen__cache_plan *plan, kgen__scale_shape shape,
                         int64_t seqs);
/* Makes slot v a view of slot k where the plan is packed. Both tensors are
 * shaped, the offset of both slots is that of the first element. */
void kgen__cache_pack(kgen__data *data, const kgen__cache_plan *plan, int k, int v);

/* Of element e along head_dim. */
static inline int64_t kgen__cache_element(const kgen_tensor *t, kgen__cache_side side,
                                          kgen__cache_at at, int64_t e) {
    const int64_t *s = t->stride;
    int64_t x = t->shape[4] ? t->shape[4] : 1;
    int64_t base = at.page * s[0];
    switch (t->layout) {
    case KGEN_LAYOUT_HND:
        return base + at.head * s[1] + at.slot * s[2] + e * s[3];
    case KGEN_LAYOUT_SHUFFLE:
    case KGEN_LAYOUT_XPACKED:
        base += at.head * s[1];
        if (side == KGEN__SIDE_K) return base + e / x * s[2] + at.slot * s[3] + e % x * s[4];
        if (t->layout == KGEN_LAYOUT_XPACKED) return base + e * s[2] + at.slot * s[3];
        return base + at.slot / x * s[2] + e * s[3] + at.slot % x * s[4];
    default:
        return base + at.slot * s[1] + at.head * s[2] + e * s[3];
    }
}

/* Element index of dimension d of one cached row; of i4 that of the value. */
static inline int64_t kgen__cache_index(const kgen_tensor *t, kgen__cache_side side,
                                        kgen__cache_at at, int64_t d) {
    int64_t values = kgen_dtype_values(t->dtype);
    return kgen__cache_element(t, side, at, d / values) * values + d % values;
}

/* Element index in lse of either shape. */
static inline int64_t kgen__lse_index(const kgen_attn_spec *spec, const kgen_tensor *lse,
                                      int64_t token, int64_t head) {
    return spec->lse == KGEN_LSE_TH ? token * lse->stride[0] + head : head * lse->stride[0] + token;
}

/* Tokens of a page and KV heads, read off the K tensor. */
static inline int64_t kgen__cache_page(const kgen_tensor *k) {
    return k->shape[k->layout == KGEN_LAYOUT_NHD ? 1 : k->layout == KGEN_LAYOUT_HND ? 2 : 3];
}

static inline int64_t kgen__cache_heads(const kgen_tensor *k) {
    return k->shape[k->layout == KGEN_LAYOUT_NHD ? 2 : 1];
}

/* Element index in a descale of any of its shapes; scales of tokens carry the
 * tag nhd or hnd. */
static inline int64_t kgen__descale_index(const kgen_tensor *t, kgen__cache_at at, int64_t seq) {
    const int64_t *s = t->stride;
    if (t->rank == 1) return t->shape[0] == 1 ? 0 : at.head * s[0];
    if (t->rank == 2) return seq * s[0] + at.head * s[1];
    if (t->layout == KGEN_LAYOUT_NHD) return at.page * s[0] + at.slot * s[1] + at.head * s[2];
    return at.page * s[0] + at.head * s[1] + at.slot * s[2];
}

#endif

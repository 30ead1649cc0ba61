/* Shapes and strides of the paged caches, a function a kind of layout, and K and
 * V packed into one allocation. */
#include "attn_layout.h"

/* NHD and HND: a row of `content` elements a token and head. */
static kgen_tensor plain_cache(const kgen_tensor *t, const kgen__cache_plan *p, int64_t d,
                               int64_t content) {
    int64_t pad = (int64_t)p->pad * (16 / kgen_dtype_size(t->dtype));
    int64_t token = content + pad, head = token * p->page, block = head * p->hkv;
    if (t->layout == KGEN_LAYOUT_NHD && p->packed < 2) {
        head = content;
        token = head * p->hkv + pad;
        block = token * p->page;
    } else if (p->packed == 3) {
        block = head;
        head = block * p->pages;
    }
    return t->layout == KGEN_LAYOUT_NHD
               ? kgen__tensor_strided(t->dtype, 4, (int64_t[]){p->pages, p->page, p->hkv, d},
                                      (int64_t[]){block, token, head, 1})
               : kgen__tensor_strided(t->dtype, 4, (int64_t[]){p->pages, p->hkv, p->page, d},
                                      (int64_t[]){block, head, token, 1});
}

/* SHUFFLE and XPACKED: a dense block of page x d a page and head. */
static kgen_tensor vector_cache(const kgen_tensor *t, const kgen__cache_plan *p, int64_t d,
                                kgen__cache_side side) {
    int64_t x = 16 / kgen_dtype_size(t->dtype), pad = p->pad * x;
    int64_t head = p->page * d + pad, block = head * p->hkv;
    if (p->packed) block = (p->page * (p->d + p->dv) + 2 * pad) * p->hkv;
    if (side == KGEN__SIDE_K)
        return kgen__tensor_strided(t->dtype, 5, (int64_t[]){p->pages, p->hkv, d / x, p->page, x},
                                    (int64_t[]){block, head, p->page * x, x, 1});
    if (t->layout == KGEN_LAYOUT_SHUFFLE)
        return kgen__tensor_strided(t->dtype, 5, (int64_t[]){p->pages, p->hkv, p->page / x, d, x},
                                    (int64_t[]){block, head, d * x, x, 1});
    return kgen__tensor_strided(t->dtype, 4, (int64_t[]){p->pages, p->hkv, d, p->page},
                                (int64_t[]){block, head, p->page, 1});
}

void kgen__cache_shape(kgen_tensor *t, const kgen__cache_plan *p, kgen__cache_side side) {
    int64_t d = side == KGEN__SIDE_K ? p->d : p->dv, values = kgen_dtype_values(t->dtype);
    int64_t content = p->packed ? p->d + p->dv : d;
    kgen_layout layout = t->layout;
    *t = kgen__cache_is_plain(layout) ? plain_cache(t, p, d / values, content / values)
                                      : vector_cache(t, p, d, side);
    t->layout = layout;
}

void kgen__descale_shape(kgen_tensor *t, const kgen__cache_plan *p, kgen__scale_shape shape,
                         int64_t seqs) {
    const struct {
        int32_t rank;
        int64_t shape[3];
    } shapes[KGEN__SCALE_COUNT] = {
        [KGEN__SCALE_ONE] = {1, {1}},
        [KGEN__SCALE_HEAD] = {1, {p->hkv}},
        [KGEN__SCALE_SEQ] = {2, {seqs, p->hkv}},
        [KGEN__SCALE_TOKEN] = {3, {p->pages, p->page, p->hkv}},
        [KGEN__SCALE_HTOKEN] = {3, {p->pages, p->hkv, p->page}},
    };
    *t = kgen_tensor_dense(NULL, t->dtype, shapes[shape].rank, shapes[shape].shape);
    if (t->rank == 3) t->layout = shape == KGEN__SCALE_TOKEN ? KGEN_LAYOUT_NHD : KGEN_LAYOUT_HND;
}

void kgen__cache_pack(kgen__data *data, const kgen__cache_plan *p, int k, int v) {
    const kgen_tensor *tk = kgen__slot_tensor(&data->args, k);
    const kgen_tensor *tv = kgen__slot_tensor(&data->args, v);
    int64_t row = p->d / kgen_dtype_values(tk->dtype);
    int64_t elements = kgen__cache_is_plain(tk->layout) ? row : tk->stride[1] * p->hkv;
    size_t distance = (size_t)elements * (size_t)kgen_dtype_size(tk->dtype);
    if (!p->packed) return;
    data->slot[v].view_of = k;
    data->slot[v].offset += distance;
    data->slot[k].size = kgen__tensor_bytes(tv) + distance;
}

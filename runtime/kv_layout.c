/* The checks of paged caches: dimensions by layout, strides that the packed
 * arguments can hold, tensors that a kernel writes without overlap. */
#include "kv_layout.h"

#include <string.h>

#include "checks.h"

/* One row a layout, K first. */
static const kgen__kv_dims layout_rows[][2] = {
    [KGEN_LAYOUT_NHD] = {{4, 1, 2, 3, 3}, {4, 1, 2, 3, 3}},
    [KGEN_LAYOUT_HND] = {{4, 2, 1, 3, 3}, {4, 2, 1, 3, 3}},
    [KGEN_LAYOUT_SHUFFLE] = {{5, 3, 1, 2, 4}, {5, 2, 1, 3, 4}},
    [KGEN_LAYOUT_XPACKED] = {{5, 3, 1, 2, 4}, {4, 3, 1, 2, 3}},
};

const kgen__kv_dims *kgen__kv_dims_of(int32_t layout, int is_v) {
    return &layout_rows[layout][is_v];
}

kgen__kv kgen__kv_of(int32_t layout, int32_t dtype, int32_t page, int64_t heads) {
    int size = kgen_dtype_size((kgen_dtype)dtype);
    return (kgen__kv){layout, dtype, page, heads, size, 16 / size, 0, 16};
}

static int is_packed(const kgen__kv *kv) {
    return kv->layout == KGEN_LAYOUT_SHUFFLE || kv->layout == KGEN_LAYOUT_XPACKED;
}

/* Steps inside a page travel to the device as 32-bit bytes. */
static kgen_status check_step(const char *name, const kgen_tensor *t, int i, kgen_error *err) {
    int64_t most = INT32_MAX / kgen_dtype_size(t->dtype);
    NEED(t->stride[i] >= -most && t->stride[i] <= most,
         "%s: stride[%d]=%lld elements, at most %lld", name, i, (long long)t->stride[i],
         (long long)most);
    return KGEN_OK;
}

static kgen_status check_page(kgen__kv *kv, const char *name, int is_v, const kgen_tensor *t,
                              kgen_error *err) {
    const kgen__kv_dims *dims = &layout_rows[kv->layout][is_v];
    int shuffled_v = is_v && kv->layout == KGEN_LAYOUT_SHUFFLE;
    int64_t page = t->shape[dims->page] * (shuffled_v ? kv->x : 1);
    if (kv->spec_page != KGEN_PAGE_X16)
        NEED(page == kv->spec_page, "%s: pages of %lld tokens, kernel built for page=%d", name,
             (long long)page, kv->spec_page);
    NEED((kv->spec_page > 0 && kv->spec_page < 16) ||
             (page >= 16 && page % 16 == 0 && page <= 65536),
         "%s: pages of %lld tokens, a multiple of 16 up to 65536 expected", name, (long long)page);
    NEED(!is_v || page == kv->page, "%s: pages of %lld tokens, k has %lld", name, (long long)page,
         (long long)kv->page);
    kv->page = page;
    KGEN_TRY(check_step(name, t, dims->page, err));
    KGEN_TRY(check_step(name, t, dims->dim, err));
    NEED(t->shape[0] <= INT32_MAX, "%s: shape[0]=%lld pages, at most 2^31-1", name,
         (long long)t->shape[0]);
    int64_t span = t->stride[dims->page] * t->shape[dims->page] * kv->size;
    NEED(span >= 0 && span <= INT32_MAX, "%s: a page spans %lld bytes of one head, at most 2^31-1",
         name, (long long)span);
    return KGEN_OK;
}

/* Engines keep 8-bit floats, and two values of 4 bits, as bytes. */
static int is_bytes(const kgen__kv *kv, const kgen_tensor *t) {
    return t->dtype == KGEN_DTYPE_U8 && kv->size == 1 && kv->dtype != KGEN_DTYPE_I8;
}

/* All of kgen__check_cache without its words, for pages of nhd and hnd that hold
 * something. What does not pass is looked at again. */
static int cache_is_usual(kgen__kv *kv, int is_v, const kgen_tensor *t, int64_t dim) {
    const kgen__kv_dims *dims = &layout_rows[kv->layout][is_v];
    uint64_t rest = (uint64_t)kv->align - 1, most = INT32_MAX, size = (uint64_t)kv->size;
    int64_t page = t->shape[dims->page];
    uint64_t step = (uint64_t)t->stride[dims->page];
    int same = t->data && t->layout == (kgen_layout)kv->layout && t->rank == 4 &&
               ((int32_t)t->dtype == kv->dtype || is_bytes(kv, t));
    int shaped = t->shape[dims->head] == kv->heads &&
                 t->shape[3] == dim >> (kgen_dtype_values((kgen_dtype)kv->dtype) - 1) &&
                 t->stride[3] == 1 && t->shape[0] > 0 && (uint64_t)t->shape[0] <= most;
    int paged = kv->spec_page != KGEN_PAGE_X16 && page == kv->spec_page && page <= 65536 &&
                (!is_v || page == kv->page) && step <= most && size * step * (uint64_t)page <= most;
    uint64_t bytes = (uintptr_t)t->data | (uint64_t)t->stride[0] * size |
                     (uint64_t)t->stride[1] * size | (uint64_t)t->stride[2] * size;
    if (!same || !shaped || !paged || (bytes & rest)) return 0;
    kv->page = page;
    return 1;
}

kgen_status kgen__check_cache(kgen__kv *kv, const char *name, int is_v, const kgen_tensor *t,
                              int64_t dim, kgen_error *err) {
    const kgen__kv_dims *dims = &layout_rows[kv->layout][is_v];
    int chunked = is_packed(kv) && !is_v;
    if (!is_packed(kv) && cache_is_usual(kv, is_v, t, dim)) return KGEN_OK;
    KGEN_TRY(kgen__check_layout(name, t, kv->layout, err));
    int bytes = is_bytes(kv, t);
    KGEN_TRY(kgen__check_type(name, t, bytes ? t->dtype : (kgen_dtype)kv->dtype, dims->rank, err));
    KGEN_TRY(kgen__check_dim(name, t, dims->head, kv->heads, err));
    int values = kgen_dtype_values((kgen_dtype)kv->dtype);
    KGEN_TRY(kgen__check_dim(name, t, dims->dim, chunked ? dim / kv->x : dim / values, err));
    KGEN_TRY(kgen__check_unit_stride(name, t, dims->unit, 1, err));
    if (dims->rank == 5) KGEN_TRY(kgen__check_dim(name, t, 4, kv->x, err));
    if (chunked) KGEN_TRY(kgen__check_unit_stride(name, t, dims->page, kv->x, err));
    KGEN_TRY(check_page(kv, name, is_v, t, err));
    return kgen__check_alignment(name, t, dims->unit, kv->align, err);
}

static kgen_status check_token_scale(const kgen__kv *kv, const char *name, const kgen_tensor *t,
                                     int64_t pages, long long stride[3], kgen_error *err) {
    int slot = t->layout == KGEN_LAYOUT_HND ? 2 : 1, head = 3 - slot;
    KGEN_TRY(kgen__check_type(name, t, KGEN_DTYPE_F32, 3, err));
    NEED(t->layout == KGEN_LAYOUT_NHD || t->layout == KGEN_LAYOUT_HND,
         "%s: layout is %s; tag it nhd for [NB][page][Hkv] or hnd for [NB][Hkv][page]", name,
         kgen_layout_name(t->layout));
    KGEN_TRY(kgen__check_dim(name, t, 0, pages, err));
    KGEN_TRY(kgen__check_dim(name, t, slot, kv->page, err));
    KGEN_TRY(kgen__check_dim(name, t, head, kv->heads, err));
    stride[0] = t->stride[0], stride[1] = t->stride[slot], stride[2] = t->stride[head];
    return KGEN_OK;
}

kgen_status kgen__check_descale(const kgen__kv *kv, int32_t descale, const char *name,
                                const kgen_tensor *t, int64_t pages, int64_t seqs,
                                long long stride[3], kgen_error *err) {
    memset(stride, 0, 3 * sizeof *stride);
    if (descale == KGEN_DESCALE_NONE || descale == KGEN_DESCALE_IGNORE) return KGEN_OK;
    if (descale != KGEN_DESCALE_HEAD) return check_token_scale(kv, name, t, pages, stride, err);
    if ((unsigned)t->rank <= 2 && (t->rank < 1 || t->shape[0] == 1) &&
        (t->rank < 2 || t->shape[1] == 1)) {
        kgen_tensor one = *t; /* a scalar of any rank */
        one.rank = 1, one.shape[0] = 1;
        return kgen__check_type(name, &one, KGEN_DTYPE_F32, 1, err);
    }
    int head = t->rank == 2 && seqs >= 0;
    KGEN_TRY(kgen__check_type(name, t, KGEN_DTYPE_F32, head + 1, err));
    if (head) KGEN_TRY(kgen__check_dim(name, t, 0, seqs, err));
    if (head || t->shape[0] != 1) KGEN_TRY(kgen__check_dim(name, t, head, kv->heads, err));
    stride[0] = head ? t->stride[0] : 0;
    stride[2] = t->shape[head] == 1 ? 0 : t->stride[head];
    return KGEN_OK;
}

kgen_status kgen__check_caches(kgen__kv *keys, kgen__kv *kv, const kgen_tensor *k_cache,
                               const kgen_tensor *v_cache, int32_t head_dim, int32_t v_dim,
                               kgen_error *err) {
    KGEN_TRY(kgen__check_cache(keys, "k_cache", 0, k_cache, head_dim, err));
    kv->page = keys->page;
    KGEN_TRY(kgen__check_cache(kv, "v_cache", 1, v_cache, v_dim, err));
    KGEN_TRY(kgen__check_dim("v_cache", v_cache, 0, k_cache->shape[0], err));
    KGEN_TRY(kgen__check_span("k_cache", k_cache, err));
    return kgen__check_span("v_cache", v_cache, err);
}

kgen_status kgen__check_block_scale(const kgen__kv *kv, const char *name, const kgen_tensor *t,
                                    int64_t pages, int64_t blocks, long long stride[3],
                                    kgen_error *err) {
    KGEN_TRY(kgen__check_type(name, t, KGEN_DTYPE_F32, 4, err));
    KGEN_TRY(kgen__check_dim(name, t, 0, pages, err));
    KGEN_TRY(kgen__check_dim(name, t, 1, kv->page, err));
    KGEN_TRY(kgen__check_dim(name, t, 2, kv->heads, err));
    KGEN_TRY(kgen__check_dim(name, t, 3, blocks, err));
    KGEN_TRY(kgen__check_unit_stride(name, t, 3, 1, err));
    for (int i = 0; i < 3; i++) stride[i] = t->stride[i];
    return KGEN_OK;
}

/* --- what is written ----------------------------------------------------- */

/* Each stride steps over all that lies in the dimensions behind it. */
static int is_distinct_in_order(const kgen_tensor *t) {
    int64_t below = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        if (t->shape[i] <= 1) continue;
        if (t->stride[i] < below) return 0;
        below += (t->shape[i] - 1) * t->stride[i];
    }
    return 1;
}

/* From the smallest stride up, each must step over all that lies below it. */
kgen_status kgen__check_distinct(const char *name, const kgen_tensor *t, kgen_error *err) {
    if (is_distinct_in_order(t)) return KGEN_OK;
    int64_t below = 1; /* elements from the first to the last of what is smaller */
    unsigned done = 0;
    for (int32_t n = 0; n < t->rank; n++) {
        int32_t least = -1;
        for (int32_t i = 0; i < t->rank; i++)
            if (!(done >> i & 1) && (least < 0 || t->stride[i] < t->stride[least])) least = i;
        done |= 1u << least;
        if (t->shape[least] <= 1) continue;
        NEED(t->stride[least] >= below, "%s: stride[%d]=%lld, at least %lld, or its parts overlap",
             name, least, (long long)t->stride[least], (long long)below);
        below += (t->shape[least] - 1) * t->stride[least];
    }
    return KGEN_OK;
}

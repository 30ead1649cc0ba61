/* Checks of one tensor against what a kernel was built for. */
#include "checks.h"

int64_t kgen__tensor_elements(const kgen_tensor *t) {
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank && i < KGEN_TENSOR_RANK_MAX && count; i++)
        if (t->shape[i] != 1 && __builtin_mul_overflow(count, t->shape[i], &count))
            return INT64_MAX;
    return count;
}

/* In unsigned numbers: a tensor that is refused later may have any strides. */
kgen__stretch kgen__tensor_memory(const kgen_tensor *t) {
    uint64_t low = 0, high = 0, size = (uint64_t)kgen_dtype_size(t->dtype);
    for (int32_t i = 0; i < t->rank && i < KGEN_TENSOR_RANK_MAX; i++) {
        if (t->shape[i] == 0) return (kgen__stretch){0, 0};
        uint64_t last = (uint64_t)(t->shape[i] - 1) * (uint64_t)t->stride[i];
        if (t->stride[i] < 0)
            low += last;
        else
            high += last;
    }
    uintptr_t base = (uintptr_t)t->data;
    return (kgen__stretch){base + (uintptr_t)(low * size), base + (uintptr_t)((high + 1) * size)};
}

kgen_status kgen__say_type(const char *name, const kgen_tensor *t, kgen_dtype dtype, int32_t rank,
                           kgen_error *err) {
    NEED(t->data || kgen__tensor_elements(t) == 0, "%s: no data", name);
    NEED(t->dtype == dtype, "%s: dtype %s, kernel built for %s", name, kgen_dtype_name(t->dtype),
         kgen_dtype_name(dtype));
    NEED(t->rank == rank, "%s: rank %d, %d expected", name, t->rank, rank);
    NEED(((uintptr_t)t->data & (unsigned)(kgen_dtype_size(dtype) - 1)) == 0,
         "%s: address %p is not a multiple of %d bytes", name, t->data, kgen_dtype_size(dtype));
    for (int32_t i = 0; i < rank; i++)
        NEED(t->shape[i] >= 0, "%s: shape[%d]=%lld, at least 0", name, i, (long long)t->shape[i]);
    return KGEN_OK;
}

kgen_status kgen__say_dim(const char *name, const kgen_tensor *t, int i, int64_t want,
                          kgen_error *err) {
    BAD("%s: shape[%d]=%lld, %lld expected", name, i, (long long)t->shape[i], (long long)want);
}

kgen_status kgen__say_stride(const char *name, const kgen_tensor *t, int i, int64_t want,
                             kgen_error *err) {
    BAD("%s: stride[%d]=%lld, %lld expected", name, i, (long long)t->stride[i], (long long)want);
}

kgen_status kgen__check_alignment(const char *name, const kgen_tensor *t, int dims, int bytes,
                                  kgen_error *err) {
    uint64_t size = (uint64_t)kgen_dtype_size(t->dtype), rest = (uint64_t)bytes - 1;
    NEED(((uintptr_t)t->data & rest) == 0, "%s: address %p is not a multiple of %d bytes", name,
         t->data, bytes);
    for (int i = 0; i < dims; i++)
        NEED(((uint64_t)t->stride[i] * size & rest) == 0 || t->shape[i] <= 1,
             "%s: stride[%d]=%lld elements is not a multiple of %d bytes", name, i,
             (long long)t->stride[i], bytes);
    return KGEN_OK;
}

kgen_status kgen__check_span(const char *name, const kgen_tensor *t, kgen_error *err) {
    int64_t most = INT64_MAX / kgen_dtype_size(t->dtype), all = 0, part;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] <= 1) continue;
        int over = __builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &part) ||
                   part == INT64_MIN || __builtin_add_overflow(all, part < 0 ? -part : part, &all);
        NEED(!over && all <= most,
             "%s: shape[%d]=%lld of stride %lld elements, at most %lld elements in all", name, i,
             (long long)t->shape[i], (long long)t->stride[i], (long long)most);
    }
    return KGEN_OK;
}

kgen_status kgen__check_vector(const char *name, const kgen_tensor *t, kgen_dtype dtype,
                               int64_t length, kgen_error *err) {
    KGEN_TRY(kgen__check_type(name, t, dtype, 1, err));
    KGEN_TRY(kgen__check_dim(name, t, 0, length, err));
    return kgen__check_unit_stride(name, t, 0, 1, err);
}

kgen_status kgen__check_layout(const char *name, const kgen_tensor *t, int32_t layout,
                               kgen_error *err) {
    NEED(t->layout == (kgen_layout)layout, "%s: layout is %s, kernel built for %s", name,
         kgen_layout_name(t->layout), kgen_layout_name((kgen_layout)layout));
    return KGEN_OK;
}

kgen_status kgen__check_apart(const char *name, const kgen_tensor *t, const char *other_name,
                              const kgen_tensor *other, kgen_error *err) {
    kgen__stretch a = kgen__tensor_memory(t), b = kgen__tensor_memory(other);
    NEED(a.end <= b.first || b.end <= a.first, "%s: overlaps %s, which the kernel writes", name,
         other_name);
    return KGEN_OK;
}

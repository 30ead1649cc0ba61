/* Checks of one tensor against what a kernel was built for. */
#include "checks.h"

kgen_status kgen__check_type(const char *name, const kgen_tensor *t, kgen_dtype dtype, int32_t rank,
                             kgen_error *err) {
    NEED(t->data, "%s: no data", name);
    NEED(t->dtype == dtype, "%s: dtype %s, kernel built for %s", name, kgen_dtype_name(t->dtype),
         kgen_dtype_name(dtype));
    NEED(t->rank == rank, "%s: rank %d, %d expected", name, t->rank, rank);
    NEED((uintptr_t)t->data % (unsigned)kgen_dtype_size(dtype) == 0,
         "%s: address %p is not a multiple of %d bytes", name, t->data, kgen_dtype_size(dtype));
    for (int32_t i = 0; i < rank; i++)
        NEED(t->shape[i] >= 0, "%s: shape[%d]=%lld, at least 0", name, i, (long long)t->shape[i]);
    return KGEN_OK;
}

kgen_status kgen__check_dim(const char *name, const kgen_tensor *t, int i, int64_t want,
                            kgen_error *err) {
    NEED(t->shape[i] == want, "%s: shape[%d]=%lld, %lld expected", name, i, (long long)t->shape[i],
         (long long)want);
    return KGEN_OK;
}

kgen_status kgen__check_unit_stride(const char *name, const kgen_tensor *t, int i, int64_t want,
                                    kgen_error *err) {
    NEED(t->stride[i] == want || t->shape[i] <= 1, "%s: stride[%d]=%lld, %lld expected", name, i,
         (long long)t->stride[i], (long long)want);
    return KGEN_OK;
}

kgen_status kgen__check_alignment(const char *name, const kgen_tensor *t, int dims, int bytes,
                                  kgen_error *err) {
    int size = kgen_dtype_size(t->dtype), elements = bytes > size ? bytes / size : 1;
    NEED((uintptr_t)t->data % (unsigned)bytes == 0, "%s: address %p is not a multiple of %d bytes",
         name, t->data, bytes);
    for (int i = 0; i < dims; i++)
        NEED(t->stride[i] % elements == 0 || t->shape[i] <= 1,
             "%s: stride[%d]=%lld elements is not a multiple of %d bytes", name, i,
             (long long)t->stride[i], bytes);
    return KGEN_OK;
}

kgen_status kgen__check_span(const char *name, const kgen_tensor *t, kgen_error *err) {
    int64_t all = INT64_MAX / kgen_dtype_size(t->dtype), most = all;
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t steps = t->shape[i] - 1;
        if (steps <= 0) continue;
        NEED(t->stride[i] >= -(most / steps) && t->stride[i] <= most / steps,
             "%s: shape[%d]=%lld of stride %lld elements, at most %lld elements in all", name, i,
             (long long)t->shape[i], (long long)t->stride[i], (long long)all);
        most -= (t->stride[i] < 0 ? -t->stride[i] : t->stride[i]) * steps;
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

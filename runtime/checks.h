/* Checks of launch arguments, shared by the families. Each names the tensor,
 * the value and the bound. */
#ifndef KGEN_RUNTIME_CHECKS_H
#define KGEN_RUNTIME_CHECKS_H

#include <kgen/tensor.h>

#define BAD(...) return kgen_fail(err, KGEN_E_ARG, __VA_ARGS__)
#define NEED(condition, ...)                \
    do {                                    \
        if (!(condition)) BAD(__VA_ARGS__); \
    } while (0)

/* 1 for a scalar; what does not fit is 2^63-1. */
int64_t kgen__tensor_elements(const kgen_tensor *t);

/* Bytes from the first to behind the last; both 0 where there are none. */
typedef struct kgen__stretch {
    uintptr_t first, end;
} kgen__stretch;

kgen__stretch kgen__tensor_memory(const kgen_tensor *t);

/* Has data, or no elements, of this type and rank, aligned to its elements, no
 * negative shape. say_: what does not pass the short test, and why. */
kgen_status kgen__say_type(const char *name, const kgen_tensor *t, kgen_dtype dtype, int32_t rank,
                           kgen_error *err);
kgen_status kgen__say_dim(const char *name, const kgen_tensor *t, int i, int64_t want,
                          kgen_error *err);
kgen_status kgen__say_stride(const char *name, const kgen_tensor *t, int i, int64_t want,
                             kgen_error *err);

static inline kgen_status kgen__check_type(const char *name, const kgen_tensor *t, kgen_dtype dtype,
                                           int32_t rank, kgen_error *err) {
    int64_t signs = 0;
    for (int32_t i = 0; i < rank; i++) signs |= t->shape[i];
    int usual = t->data && t->dtype == dtype && t->rank == rank && !((uintptr_t)t->data & 7);
    return usual && signs >= 0 ? KGEN_OK : kgen__say_type(name, t, dtype, rank, err);
}

static inline kgen_status kgen__check_dim(const char *name, const kgen_tensor *t, int i,
                                          int64_t want, kgen_error *err) {
    return t->shape[i] == want ? KGEN_OK : kgen__say_dim(name, t, i, want, err);
}

static inline kgen_status kgen__check_unit_stride(const char *name, const kgen_tensor *t, int i,
                                                  int64_t want, kgen_error *err) {
    int right = t->stride[i] == want || t->shape[i] <= 1;
    return right ? KGEN_OK : kgen__say_stride(name, t, i, want, err);
}

/* The address and the first `dims` strides are multiples of `bytes`. */
kgen_status kgen__check_alignment(const char *name, const kgen_tensor *t, int dims, int bytes,
                                  kgen_error *err);
/* No element is further than 2^63-1 bytes from the first. */
kgen_status kgen__check_span(const char *name, const kgen_tensor *t, kgen_error *err);
/* [length], contiguous. */
kgen_status kgen__check_vector(const char *name, const kgen_tensor *t, kgen_dtype dtype,
                               int64_t length, kgen_error *err);
kgen_status kgen__check_layout(const char *name, const kgen_tensor *t, int32_t layout,
                               kgen_error *err);
/* No byte of one lies between the first and the last of the other. */
kgen_status kgen__check_apart(const char *name, const kgen_tensor *t, const char *other_name,
                              const kgen_tensor *other, kgen_error *err);

#endif

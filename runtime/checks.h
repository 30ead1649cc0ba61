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

/* Has data of this type and rank, aligned to its elements, no negative shape. */
kgen_status kgen__check_type(const char *name, const kgen_tensor *t, kgen_dtype dtype, int32_t rank,
                             kgen_error *err);
kgen_status kgen__check_dim(const char *name, const kgen_tensor *t, int i, int64_t want,
                            kgen_error *err);
kgen_status kgen__check_unit_stride(const char *name, const kgen_tensor *t, int i, int64_t want,
                                    kgen_error *err);
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

#endif

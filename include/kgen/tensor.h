/* A tensor carries its type, layout tag, shape and strides; a launch refuses
 * what its kernel was not built for.
 *
 * All memory is device memory, owned by the caller, and must outlive the
 * launch (and every replay of a graph that holds it). */
#ifndef KGEN_TENSOR_H
#define KGEN_TENSOR_H

#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KGEN_TENSOR_RANK_MAX = 5 };

typedef struct kgen_tensor {
    void *data;
    kgen_dtype dtype;
    kgen_layout layout; /* where the spec has one; 0 elsewhere */
    int32_t rank;
    int64_t shape[KGEN_TENSOR_RANK_MAX];
    int64_t stride[KGEN_TENSOR_RANK_MAX]; /* elements */
} kgen_tensor;

/* A dense row-major tensor. */
static inline kgen_tensor kgen_tensor_dense(void *data, kgen_dtype dtype, int32_t rank,
                                            const int64_t *shape) {
    kgen_tensor t = {data, dtype, KGEN_LAYOUT_NONE, rank, {0}, {0}};
    int64_t stride = 1;
    for (int32_t i = rank - 1; i >= 0 && rank <= KGEN_TENSOR_RANK_MAX; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

#ifdef __cplusplus
}
#endif
#endif

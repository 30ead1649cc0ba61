/* The parts of scatter's row in the table of families, and where things are. */
#ifndef KGEN_CHECK_CHECK_SCATTER_H
#define KGEN_CHECK_CHECK_SCATTER_H

#include "check_family.h"
#include "scatter_all.h"

#define KGEN__OP(name) (1u << KGEN_OP_##name)

static inline int64_t kgen__divide_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

kgen_status kgen__scatter_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                 int64_t budget, kgen_error *err);
kgen_status kgen__scatter_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__scatter_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__scatter_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);

/* Sizes that tensors of a case have. */
typedef struct kgen__scatter_dims {
    int64_t n, d, s, k;
    int64_t requests, columns; /* of req_to_token */
    int64_t map, width;
    int64_t flat, entries; /* read, written */
    int64_t parents, accept, moves, pools, pool_bytes;
} kgen__scatter_dims;

kgen__scatter_dims kgen__scatter_dims_of(const kgen__case *c);
/* Requests of a batch, from the first tensor that has a row for each. */
int64_t kgen__scatter_rows(const kgen_args *args, const kgen_spec *spec);

#endif

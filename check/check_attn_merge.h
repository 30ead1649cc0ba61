/* The parts of attn_merge's row in the table of families. */
#ifndef KGEN_CHECK_CHECK_ATTN_MERGE_H
#define KGEN_CHECK_CHECK_ATTN_MERGE_H

#include "check_family.h"

enum {
#define KGEN_TENSOR(ID, ...) M_##ID,
#include <kgen/attn_merge_args.def>
    KGEN__ATTN_MERGE_SLOTS
};

/* Part n of either form: where a row of it begins, and its sum, in elements. */
typedef struct kgen__merge_part {
    const kgen_tensor *x, *lse;
    int64_t x_first, lse_first;
} kgen__merge_part;

int64_t kgen__merge_parts(const kgen_spec *spec, const kgen_attn_merge_args *a);
kgen__merge_part kgen__merge_part_of(const kgen_spec *spec, const kgen_attn_merge_args *a,
                                     int64_t n);
/* In a tensor of tokens and heads, a part's or the output. */
int64_t kgen__merge_row(const kgen_tensor *t, int64_t token, int64_t head);
int64_t kgen__merge_sum(const kgen_spec *spec, const kgen_tensor *t, int64_t token, int64_t head);

kgen_status kgen__attn_merge_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                    int64_t budget, kgen_error *err);
kgen_status kgen__attn_merge_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__attn_merge_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__attn_merge_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);
kgen_status kgen__attn_merge_reference(kgen__answer *answer, const kgen__data *data,
                                       kgen_error *err);

#endif

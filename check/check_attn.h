/* The parts of attn's row in the table of families. */
#ifndef KGEN_CHECK_CHECK_ATTN_H
#define KGEN_CHECK_CHECK_ATTN_H

#include "check_family.h"

enum {
#define KGEN_TENSOR(ID, ...) ID,
#include <kgen/attn_args.def>
    KGEN__ATTN_SLOTS
};

kgen_status kgen__attn_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                              int64_t budget, kgen_error *err);
kgen_status kgen__attn_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__attn_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__attn_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);
kgen_status kgen__attn_check(kgen__check_result *result, const kgen__data *data, kgen_error *err);
kgen_status kgen__attn_sound(const kgen_spec *spec, const kgen_args *args, kgen_error *err);

#endif

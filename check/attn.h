/* The parts of attn's row in the table of judges. */
#ifndef KGEN_CHECK_ATTN_H
#define KGEN_CHECK_ATTN_H

#include "judge.h"

enum {
#define KGEN_TENSOR(ID, field, use) ID,
#define KGEN_NUMBER(field)
#include <kgen/attn_args.def>
#undef KGEN_TENSOR
#undef KGEN_NUMBER
    KGEN__ATTN_SLOTS
};

kgen_status kgen__attn_random(kgen_case *out, kgen_rng *rng, const kgen_target *target,
                              int64_t budget, kgen_error *err);
kgen_status kgen__attn_shape(kgen_data *data, kgen_error *err);
kgen_status kgen__attn_fill(kgen_data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__attn_refill(kgen_data *data, kgen_rng *rng, kgen_error *err);
kgen_status kgen__attn_compare(kgen_check_result *result, const kgen_data *data, kgen_error *err);
kgen_status kgen__attn_sound(const kgen_spec *spec, const kgen_args *args, kgen_error *err);

#endif

/* The parts of attn's row in the table of judges. */
#ifndef KGEN_CHECK_ATTN_H
#define KGEN_CHECK_ATTN_H

#include "judge.h"

enum { KGEN__ATTN_SLOTS = 13 };
extern const kgen_slot_row kgen__attn_slots[KGEN__ATTN_SLOTS];

kgen_status kgen__attn_random(kgen_case *out, kgen_rng *rng, const kgen_target *target,
                              int64_t budget, kgen_error *err);
kgen_status kgen__attn_shape(kgen_data *data, kgen_error *err);
kgen_status kgen__attn_fill(kgen_data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__attn_refill(kgen_data *data, kgen_rng *rng, kgen_error *err);
kgen_status kgen__attn_compare(kgen_check_result *result, const kgen_data *data, kgen_error *err);

#endif

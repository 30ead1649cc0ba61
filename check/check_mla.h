/* The parts of mla's row in the table of families. */
#ifndef KGEN_CHECK_CHECK_MLA_H
#define KGEN_CHECK_CHECK_MLA_H

#include "check_family.h"

enum {
#define KGEN_TENSOR(ID, ...) MLA_##ID,
#include <kgen/mla_args.def>
    MLA_SLOTS
};

kgen_status kgen__mla_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                             int64_t budget, kgen_error *err);
kgen_status kgen__mla_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__mla_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__mla_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);
kgen_status kgen__mla_answer(kgen__answer *answer, const kgen__data *data, kgen_error *err);
kgen_status kgen__mla_sound(const kgen_spec *spec, const kgen_args *args, kgen_error *err);

/* The same launch as one of attention: one KV head, whose values are the first columns of
 * its keys. Tensors and slots of `out` are those of `data`. */
void kgen__mla_as_attn(kgen__data *out, const kgen__data *data);
void kgen__mla_attn_args(kgen_attn_args *out, const kgen_mla_spec *spec, const kgen_mla_args *a);
void kgen__mla_attn_spec(kgen_spec *out, const kgen_mla_spec *spec);

#endif

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
 * its keys. Tensors and slots of `out` are those of `data`; pool: rows as numbers, which is
 * the cache itself but with rows=fp8. */
void kgen__mla_as_attn(kgen__data *out, const kgen__data *data, const kgen_tensor *pool);
void kgen__mla_attn_args(kgen_attn_args *out, const kgen_mla_spec *spec, const kgen_mla_args *a,
                         const kgen_tensor *pool);
void kgen__mla_attn_spec(kgen_spec *out, const kgen_mla_spec *spec);

/* rows=fp8: room for the cache's rows as numbers, out->data, which free() releases; the cache
 * from such numbers, and the numbers that its rows are. */
kgen_status kgen__mla_pool(kgen_tensor *out, const kgen_mla_spec *spec, const kgen_tensor *cache,
                           kgen_error *err);
void kgen__mla_rows_write(kgen_tensor *cache, const kgen_mla_spec *spec, const kgen_tensor *pool,
                          uint64_t seed);
void kgen__mla_rows_read(const kgen_tensor *pool, const kgen_mla_spec *spec,
                         const kgen_tensor *cache);

#endif

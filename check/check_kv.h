/* The parts of the kv families' rows in the table of families. */
#ifndef KGEN_CHECK_CHECK_KV_H
#define KGEN_CHECK_CHECK_KV_H

#include "attn_layout.h"

enum {
#define KGEN_TENSOR(ID, ...) W_##ID,
#include <kgen/kv_write_args.def>
    KGEN__KV_WRITE_SLOTS
};
enum {
#define KGEN_TENSOR(ID, ...) G_##ID,
#include <kgen/kv_gather_args.def>
    KGEN__KV_GATHER_SLOTS
};

kgen_status kgen__kv_write_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                  int64_t budget, kgen_error *err);
kgen_status kgen__kv_write_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__kv_write_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__kv_write_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);

kgen_status kgen__kv_gather_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                   int64_t budget, kgen_error *err);
kgen_status kgen__kv_gather_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__kv_gather_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__kv_gather_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);

/* What both shape alike. */
void kgen__kv_pad_rows(kgen_tensor *t, const kgen__kv_case *c, int32_t align);
/* shape: kgen__scale_shape, AUTO for the first one that fits; rank 0 if none does. */
void kgen__kv_scale(kgen_tensor *t, const kgen__cache_plan *plan, int32_t descale, int32_t shape,
                    int64_t seqs);
/* Values with a scale a block: the scales, and where the plan is packed all of a token and
 * head in one row: codes, scales up to a multiple of 16 bytes, keys. */
void kgen__kv_blocks(kgen__data *data, const kgen__cache_plan *plan, int k, int v, int scale);
/* The pages 0 .. count - 1 in random order. *order: free(). */
kgen_status kgen__kv_shuffled(int64_t **order, kgen__rng *rng, int64_t count, kgen_error *err);

#endif

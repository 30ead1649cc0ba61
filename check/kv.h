/* The parts of the kv families' rows in the table of judges. */
#ifndef KGEN_CHECK_KV_H
#define KGEN_CHECK_KV_H

#include "attn_layout.h"

enum {
    W_K, W_V, W_SLOTS, W_K_CACHE, W_V_CACHE, W_K_SCALE, W_V_SCALE, W_REMAP, W_POSITIONS, W_COS,
    W_SIN, W_Q, W_Q_OUT,
    KGEN__KV_WRITE_SLOTS
};
enum {
    G_K_CACHE, G_V_CACHE, G_TABLE, G_CU, G_SEQ_LENS, G_STARTS, G_K_DESCALE, G_V_DESCALE, G_K, G_V,
    KGEN__KV_GATHER_SLOTS
};
extern const kgen_slot_row kgen__kv_write_slots[KGEN__KV_WRITE_SLOTS];
extern const kgen_slot_row kgen__kv_gather_slots[KGEN__KV_GATHER_SLOTS];

kgen_status kgen__kv_write_random(kgen_case *out, kgen_rng *rng, const kgen_target *target,
                                  int64_t budget, kgen_error *err);
kgen_status kgen__kv_write_shape(kgen_data *data, kgen_error *err);
kgen_status kgen__kv_write_fill(kgen_data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__kv_write_refill(kgen_data *data, kgen_rng *rng, kgen_error *err);

kgen_status kgen__kv_gather_random(kgen_case *out, kgen_rng *rng, const kgen_target *target,
                                   int64_t budget, kgen_error *err);
kgen_status kgen__kv_gather_shape(kgen_data *data, kgen_error *err);
kgen_status kgen__kv_gather_fill(kgen_data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__kv_gather_refill(kgen_data *data, kgen_rng *rng, kgen_error *err);

/* What both shape alike. */
kgen_tensor kgen__kv_rows(const kgen_kv_case *c, int32_t dtype, int64_t rows, int64_t heads,
                          int64_t dim);
/* shape: kgen_scale_shape, AUTO for the first one that fits; rank 0 if none does. */
kgen_tensor kgen__kv_scale(const kgen_cache_plan *plan, int32_t descale, int32_t shape,
                           int64_t seqs);
/* The pages 0 .. count - 1 in random order. *order: free().                 */
kgen_status kgen__kv_shuffled(int64_t **order, kgen_rng *rng, int64_t count, kgen_error *err);

/* The codes of an 8-bit cache, i8 included. */
uint32_t kgen__kv_encode(int32_t dtype, float value);
float kgen__kv_decode(int32_t dtype, uint32_t code);
double kgen__kv_max(int32_t dtype);

#endif

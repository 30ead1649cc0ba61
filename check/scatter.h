/* The parts of scatter's row in the table of judges, and where things are. */
#ifndef KGEN_CHECK_SCATTER_H
#define KGEN_CHECK_SCATTER_H

#include "judge.h"

/* One row a tensor of kgen_scatter_args. */
#define KGEN__SCATTER_TENSORS(X) \
    X(live) X(error) X(lens) X(starts) X(valid) X(q_lens) X(accepted) X(extends) X(requests) \
    X(req_to_token) X(mapping) X(indptr) X(slots) X(block_table) X(positions) X(rejected) X(ids) \
    X(state) X(table) X(swa_table) X(row_offsets) X(indices) X(seq_lens) X(step_lens) \
    X(qo_indptr) X(kv_indptr) X(locs) X(swa_locs) X(positions_out) X(source_locs) X(free_locs) \
    X(accept_index) X(accept_count) X(predicts) X(counts) X(draft_ends) X(sample_index) \
    X(tokens_in) X(targets_in) X(backup) X(next) X(discarded) X(selected) X(parents) \
    X(tree_index) X(next_token) X(next_sibling) X(words) X(mask) X(mask_out) X(probs) X(coins) \
    X(final_coins) X(pool) X(pools) X(sources) X(targets)

enum {
#define X(name) KGEN__SLOT_##name,
    KGEN__SCATTER_TENSORS(X)
#undef X
    KGEN__SCATTER_SLOTS
};
extern const kgen_slot_row kgen__scatter_slots[KGEN__SCATTER_SLOTS];

#define KGEN__OP(name) (1u << KGEN_##name)

kgen_status kgen__scatter_random(kgen_case *out, kgen_rng *rng, const kgen_target *target,
                                 int64_t budget, kgen_error *err);
kgen_status kgen__scatter_shape(kgen_data *data, kgen_error *err);
kgen_status kgen__scatter_fill(kgen_data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__scatter_refill(kgen_data *data, kgen_rng *rng, kgen_error *err);

/* Sizes that tensors of a case have. */
typedef struct kgen_scatter_dims {
    int64_t n, d, s, k;
    int64_t requests, columns; /* of req_to_token                            */
    int64_t map, width;
    int64_t flat, entries;     /* read, written                              */
    int64_t parents, accept, moves, pools, pool_bytes;
} kgen_scatter_dims;

kgen_scatter_dims kgen__scatter_dims(const kgen_case *c);

#endif

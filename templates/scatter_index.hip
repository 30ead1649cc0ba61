#include "kg/prelude/prelude_scatter.h"
// The small index kernels of the engines: one row a lane, or one a workgroup.
// Rules and arguments: <kgen/scatter_args.h>.
#include "kg/scatter/scatter_engine.h"
#include "kg/scatter/scatter_chunk.h"
#include "kg/scatter/scatter_gather.h"

namespace kg {

KG_DEV void run_lane(args_t a) {
    int n = (int)(group_id() * THREADS + thread_id());
    if (n >= a.rows) return;
    if constexpr (OP == OP_DRAFT_LENS) run_draft_lens(a, n);
    if constexpr (OP == OP_EAGLE_STEP) run_eagle_step(a, n);
    if constexpr (OP == OP_PADDED_INPUTS) run_padded_inputs(a, n);
    if constexpr (OP == OP_NEXT_TOKEN) run_next_token(a, n);
    if constexpr (OP == OP_BONUS_TOKENS) run_bonus_tokens(a, n);
    if constexpr (OP == OP_EVICT_MASK) run_evict_mask(a, n);
}

KG_DEV void run(args_t a, i64 *lds) {
    if constexpr (OP == OP_KV_INDICES)
        run_kv_indices(a);
    else if constexpr (OP == OP_DRAFT_KV_INDICES)
        run_draft_kv(a, lds);
    else if constexpr (OP == OP_CACHE_LOCS)
        run_cache_locs(a, lds);
    else if constexpr (OP == OP_ASSIGN_LOCS)
        run_assign(a, lds);
    else if constexpr (OP == OP_SLOT_MAPPING)
        run_slot_mapping(a);
    else if constexpr (OP == OP_ACCEPT_LOCS)
        run_accept_locs(a, lds);
    else if constexpr (OP == OP_KEEP_LOCS)
        run_keep_locs(a, lds);
    else if constexpr (OP == OP_KV_SPLITS)
        run_kv_splits(a, lds);
    else if constexpr (OP == OP_CHUNK_CONTEXT)
        run_chunk(a, lds);
    else if constexpr (OP == OP_WINDOW_LENS)
        run_window(a, lds);
    else
        run_lane(a);
}

} // namespace kg

KG_ENTRY(kg_scatter_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_scatter_args, args), (i64 *)lds);
}

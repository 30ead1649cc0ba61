#include "kg/prelude/prelude_indexer.h"
// How much each query token of the indexer makes of each key: a product with all its heads,
// of which what is above 0 is weighed and added up. Formula and arguments:
// <kgen/indexer_args.h>.
//
// A workgroup takes items in turn: a few query tokens, which it puts into LDS, and a chunk
// of columns, whose keys go through all heads of the tokens. Keys and queries are fp16 in the
// products, which holds 8-bit floats exactly.
#include "kg/indexer/index_way.h"

namespace kg {

KG_DEV void run(args_t a, u8 *lds) {
    int lane = (int)lane_id(), wave = (int)wave_id();
    KG_LOOP for (u32 number = group_id(); number < (u32)a.items; number += (u32)a.groups) {
        item_t item = item_at(a, number);
        bool inside = item.column < item.high && item.column_end > item.low;
        if (!inside && CLEAN == 0) continue;
        ahead_t ahead = bring_first(a, item, lds, wave, lane);
        barrier(); // the queries before have been read
        if (inside) stage_queries(a, lds, item);
        barrier();
        run_blocks(a, item, ahead, lds, wave, lane);
    }
}

} // namespace kg

KG_ENTRY(kg_indexer_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_indexer_args, args), lds);
}

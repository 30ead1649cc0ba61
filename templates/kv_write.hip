#include "kg/prelude/prelude_kv_write.h"
// New keys and values into a paged cache, quantised and rotated on the way, in
// one launch. Formula and arguments: <kgen/kv_write_args.h>.
//
// The grid is three parts: keys, values, queries that rotate along. Each element
// is read once and written once, 16 bytes at a time wherever the cache has 16
// contiguous bytes.
#include "kg/kv/kv_few.h"
#include "kg/kv/kv_query.h"
#include "kg/kv/kv_row_scale.h"

namespace kg {

KG_DEV void run(args_t a, u8 *lds) {
    u32 group = group_id();
    if (group < (u32)a.group_end[0]) {
        if constexpr (SCALE == DESCALE_ROW)
            write_scaled_rows(a, group, (float *)lds);
        else
            write_rows<0>(a, group);
    } else if (group < (u32)a.group_end[1]) {
        if constexpr (SCALE == DESCALE_ROW)
            return;
        else if constexpr (!PACKED)
            write_rows<1>(a, group - (u32)a.group_end[0]);
        else if (a.rows > FEW_ROWS)
            write_values(a, group - (u32)a.group_end[0]);
        else
            write_few(a, group - (u32)a.group_end[0]);
    } else if constexpr (ROPE_Q != 0) {
        write_queries(a, group - (u32)a.group_end[1]);
    }
}

} // namespace kg

KG_ENTRY(kg_kv_write_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_kv_write_args, args), lds);
}

#include "kg/prelude/prelude_kv_gather.h"
// Cached keys and values of some tokens of each sequence into dense rows,
// dequantised on the way, in one launch. Formula and arguments:
// <kgen/kv_gather_args.h>.
//
// The grid is two parts: keys, values. Each cached element is read once, 16
// bytes at a time.
#include "kg/kv/kv_gather_rows.h"
#include "kg/kv/kv_gather_tokens.h"

namespace kg {

KG_DEV void run(args_t a) {
    u32 group = group_id();
    if (group < (u32)a.k_groups)
        gather_rows<0>(a, group);
    else if constexpr (PACKED)
        gather_values(a, group - (u32)a.k_groups);
    else
        gather_rows<1>(a, group - (u32)a.k_groups);
}

} // namespace kg

KG_ENTRY(kg_kv_gather_args, args, kg::OCCUPANCY) { kg::run(KG_ARGS(kg_kv_gather_args, args)); }

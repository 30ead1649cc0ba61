// A shuffle is as good here as any instruction.
#pragma once
#include "kg/attn/parts_rows_nvidia.h"

namespace kg {

// Of one row a wave, registers hold as many parts.
constexpr bool MERGES_MANY = BY_MATRICES || (STAGED_MATRICES && ROWS > ALL_WAVES);

KG_DEV void merge_parts(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                        float amiss, u8 *lds) {
    if constexpr (MERGES_MANY)
        merge_many_rows(a, g, cut, share, wave, amiss, lds + LDS_STAGE);
    else
        merge_by_shuffles(a, g, cut, share, wave, amiss);
}

} // namespace kg

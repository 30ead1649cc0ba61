// Latent attention on sm_90: which way the groups of a workgroup go through a segment.
#pragma once
#include "kg/mla/mla_codes_nvidia.h"

namespace kg {

KG_DEV void run_segment(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    if constexpr (BRINGERS != 0)
        run_codes<ROW_TILES>(a, g, cut, lds, wave);
    else if constexpr (PAIRED)
        run_pairs<ROW_TILES>(a, g, cut, lds, wave);
    else
        run_matrices(a, g, cut, lds, wave);
}

} // namespace kg

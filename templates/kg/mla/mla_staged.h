// Latent attention whose rows come into LDS through registers.
#pragma once
#include "kg/mla/mla_blocks.h"

namespace kg {

KG_DEV void run_segment(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    run_segment_by<attend_staged>(a, g, cut, lds, wave);
}

} // namespace kg

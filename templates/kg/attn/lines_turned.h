// Values of a block that lie in LDS as lines, which turns them as it is read: sixteen lanes ask for
// 16 dims of four tokens, and each gets its dim of the four.
#pragma once
#include "kg/attn/lines_cdna.h"

namespace kg {

// Two groups of lanes are served together: lines of eight tokens that are read at once lie on
// different banks.
KG_DEV int v_line(int token) {
    return token % 4 + token / 8 % 2 * 4 + token / 4 % 2 * 8 + token / 16 * 16;
}

// O += V^T P of the block whose values begin at `v`.
KG_DEV void weigh_rows(values_t &o, const u8 *v, const u32 (&p)[ROW_TILES][P_WORDS]) {
    int i = lane_i((int)lane_id());
    v += v_line(TPL * lane_grp((int)lane_id()) + i / 4) * V_LINE + i % 4 * 8;
    KG_UNROLL for (int tile = 0; tile < O_TILES; tile++) {
        u32 low[2], high[2];
        read_turned(low, v + tile * 32);
        read_turned(high, v + 8 * V_LINE + tile * 32);
        u32 w[4] = {low[0], low[1], high[0], high[1]};
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mma_pv(o[t][tile], w, p[t]);
    }
}

} // namespace kg

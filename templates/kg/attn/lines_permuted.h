// Values of a block that lie in LDS as lines, read as from memory: the same dims of eight tokens,
// turned by byte permutes.
#pragma once
#include "kg/attn/lines_cdna.h"

namespace kg {

KG_DEV int v_line(int token) { return token; }

// O += V^T P of the block whose values begin at `v`.
KG_DEV void weigh_rows(values_t &o, const u8 *v, const u32 (&p)[ROW_TILES][P_WORDS]) {
    constexpr int WORDS = V_LANE_DIMS / 2;
    struct alignas(4 * WORDS) dims_t {
        u32 w[WORDS];
    };
    int i = lane_i((int)lane_id());
    v += TPL * lane_grp((int)lane_id()) * V_LINE;
    KG_UNROLL for (int part = 0; part < V_PARTS; part++) {
        int dim = part * CHUNK_DIMS + i * V_LANE_DIMS;
        if (V_DIM % CHUNK_DIMS != 0 && dim >= V_DIM) dim = 0; // not stored
        dims_t x[TPL];
        KG_UNROLL for (int n = 0; n < TPL; n++) x[n] = *(const dims_t *)(v + n * V_LINE + dim * 2);
        KG_UNROLL for (int tile = 0; tile < V_LANE_DIMS; tile++) {
            u32 w[4];
            KG_UNROLL for (int j = 0; j < 4; j++) w[j] = byte_perm(
                x[2 * j].w[tile / 2], x[2 * j + 1].w[tile / 2], tile % 2 ? 0x07060302 : 0x05040100);
            KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
                mma_pv(o[t][part * CHUNK_TILES + tile], w, p[t]);
        }
    }
}

} // namespace kg

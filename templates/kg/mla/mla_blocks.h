// Latent attention with a block of keys in LDS that has come through registers.
//
//   registers -> LDS   the block was on its way while the one before was computed
//   S = K Q^T          a row tile and a part of the width a wave
//   P = exp2(S - m)    a tile a wave, and P goes through LDS; where tiles are few, S
//                      goes through LDS and P is worked out in every wave
//   O += V^T P         a slice of the values a wave, from the same LDS
//
// Where LDS has room for two blocks, values of one and scores of the next are one step, and what
// is between them the other: half the barriers.
#pragma once
#include "kg/mla/mla_segment.h"

namespace kg {

// The workgroup's blocks of one segment: all waves go through them together.
KG_DEV void attend_in_step(column_t &m, column_t &l, values_t &o, const q_part_t &q,
                           const segment_t &g, const head_t &head, const keys_t &keys, u8 *stage,
                           share_of_scores_t mine, int wave, int lane) {
    bring_t b;
    own_t own = own_of(m, l);
    bring_first(b, head, keys, g.block, wave, lane);
    KG_LOOP for (int block = g.block; block < g.block_end; block++) {
        tile_scores_t s;
        weights_t p;
        barrier(); // the block before has been read
        put(stage, b.pieces, wave, lane);
        barrier();
        bring_next(b, head, keys, block + 1, g.block_end, wave, lane);
        score_stage(s, q, stage, staged_part(stage, mine), mine, wave);
        if constexpr (OWN_TILES) {
            if (PARTS > 1) barrier();
            if (mine.leads) weigh_own(own, s, q, head, keys, block * TOK, stage, mine.tile, wave);
        }
        barrier();
        if constexpr (OWN_TILES)
            hear_weights(p, o, stage);
        else
            weigh_tiles(p, m, l, o, head, keys, block * TOK, stage);
        weigh_stage(o, stage, p, wave);
    }
    if constexpr (OWN_TILES) own_to(m, l, own);
}

// The same with two blocks. What is said of weights lies apart from what is said of scores.
KG_DEV void attend_ahead(column_t &m, column_t &l, values_t &o, const q_part_t &q,
                         const segment_t &g, const head_t &head, const keys_t &keys, u8 *stage,
                         share_of_scores_t mine, int wave, int lane) {
    bring_t b;
    own_t own = own_of(m, l);
    tile_scores_t s;
    int at = 0; // of the block that is weighed
    bring_first(b, head, keys, g.block, wave, lane);
    barrier(); // the segment before is done with
    put(stage, b.pieces, wave, lane);
    bring_next(b, head, keys, g.block + 1, g.block_end, wave, lane);
    barrier();
    score_stage(s, q, stage, staged_part(stage, mine), mine, wave);
    barrier();
    KG_LOOP for (int block = g.block; block < g.block_end; block++) {
        weights_t p;
        bool more = block + 1 < g.block_end;
        if constexpr (!OWN_TILES) weigh_tiles(p, m, l, o, head, keys, block * TOK, stage);
        if (OWN_TILES && mine.leads)
            weigh_own(own, s, q, head, keys, block * TOK, stage, mine.tile, wave);
        if (more) put(stage + STAGE_KEYS - at, b.pieces, wave, lane);
        bring_next(b, head, keys, block + 2, g.block_end, wave, lane);
        barrier(); // weights are told, and the next block is there
        if constexpr (OWN_TILES) hear_weights(p, o, stage);
        weigh_stage(o, stage + at, p, wave);
        at = STAGE_KEYS - at;
        if (more) score_stage(s, q, stage, staged_part(stage + at, mine), mine, wave);
        // Scores are told, and the block has been read. At the head of the loop hipRTC 7.2 forgets
        // to wait for what went into LDS at its end.
        barrier();
    }
    if constexpr (OWN_TILES) own_to(m, l, own);
}

KG_DEV void attend_staged(column_t &m, column_t &l, values_t &o, const q_part_t &q,
                          const segment_t &g, const head_t &head, const keys_t &keys, u8 *stage,
                          share_of_scores_t mine, int wave, int lane) {
    if constexpr (STAGES > 1)
        attend_ahead(m, l, o, q, g, head, keys, stage, mine, wave, lane);
    else
        attend_in_step(m, l, o, q, g, head, keys, stage, mine, wave, lane);
}

} // namespace kg

// From scores in LDS to probabilities, and these to LDS.
#pragma once
#include "kg/mla/mla_products.h"

namespace kg {

// SPARSE: what no entry of the list has a slot for is not seen. Each lane asks for one.
KG_DEV void drop_missing(float (&s)[S_REGS], const keys_t &keys, int start) {
    constexpr u32 ALL = ~0u >> (32 - TOK);
    int lane = (int)opaque(lane_id());
    u32 there = (u32)ballot(page_number(keys, start + lane % TOK) >= 0) & ALL;
    if (there == ALL) return;
    KG_UNROLL for (int r = 0; r < S_REGS; r++) if (!(there >> s_token(lane, r) & 1)) s[r] =
        -INFINITE;
}

// From scores to probabilities, of tile `t` of those that the wave weighs.
KG_DEV void weigh_tile(u32 (&p)[P_WORDS], column_t &m, column_t &l, values_t &o,
                       const float (&dots)[S_REGS], const head_t &head, int t, const keys_t &keys,
                       int start) {
    const token_scale_t none = {};
    float s[S_REGS];
    finish_scores(s, dots, head, t, start, keys, none);
    if constexpr (SPARSE != 0) drop_missing(s, keys, start);
    raise_maximum(m, l, o, t, s);
    scores_to_p(m, l, t, s);
    pack_p(p, s);
}

// Maximum and sum of the wave's own tile, which stands first in its columns. All columns would wait
// in registers from block to block.
struct own_t {
    float maximum[COLS], sum[COLS];
};
KG_DEV own_t own_of(const column_t &m, const column_t &l) {
    own_t own;
    KG_UNROLL for (int c = 0; c < COLS; c++) own.maximum[c] = m[0][c], own.sum[c] = l[0][c];
    return own;
}
KG_DEV void own_to(column_t &m, column_t &l, const own_t &own) {
    KG_UNROLL for (int c = 0; c < COLS; c++) m[0][c] = own.maximum[c], l[0][c] = own.sum[c];
}

// What its maximum does to sums is done to ones, and told.
KG_DEV void weigh_own(own_t &own, const tile_scores_t &s, const q_part_t &q, const head_t &head,
                      const keys_t &keys, int start, u8 *stage, int tile, int wave) {
    float dots[S_REGS];
    u32 p[P_WORDS], factor[COLS];
    column_t m = {}, l = {};
    values_t ones = {};
    own_to(m, l, own);
    KG_UNROLL for (int c = 0; c < COLS; c++) ones[0][0][c] = 1;
    head_t h = head;
    float up[COLS];
    KG_UNROLL for (int c = 0; c < COLS; c++) {
        up[c] = SCALES_ONCE ? 1 : SCALED_Q ? spared(q.scale[0][c]) : q.scale[0][c];
        if constexpr (SCALES_ONCE) h.scale[0][c] = spared(h.scale[0][c]);
    }
    KG_UNROLL for (int r = 0; r < S_REGS; r++) dots[r] = score(s[0], r) * up[r % COLS];
    if constexpr (WAVE_TILES > 1)
        hear_other(dots, stage, wave);
    else
        hear_scores(dots, stage, tile, 1);
    weigh_tile(p, m, l, ones, dots, h, 0, keys, start);
    own = own_of(m, l);
    KG_UNROLL for (int c = 0; c < COLS; c++) {
        own.sum[c] = spared(own.sum[c]);
        factor[c] = bits_of(ones[0][0][c]);
    }
    tell(stage, 0, tile, p);
    tell(stage, SAID_COLUMNS, tile, factor);
    if constexpr (DIRECT) say_risen(stage, start, factor);
}

template <class P>
KG_DEV void score_stage(tile_scores_t &s, const q_part_t &q, u8 *stage, const P &part,
                        share_of_scores_t mine, int wave) {
    score_part(s, q, part);
    if (!OWN_TILES || WAVE_TILES > 1 || !mine.leads) tell_scores(stage, s, q, wave);
}

typedef u32 weights_t[ROW_TILES][P_WORDS];

KG_DEV void weigh_tiles(weights_t &p, column_t &m, column_t &l, values_t &o, const head_t &head,
                        const keys_t &keys, int start, u8 *stage) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        float dots[S_REGS];
        hear_scores(dots, stage, t, 0);
        weigh_tile(p[t], m, l, o, dots, head, t, keys, start);
    }
}

} // namespace kg

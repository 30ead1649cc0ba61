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
#include "kg/attn/attn_run.h"
#include "kg/mla/mla_products.h"

namespace kg {

// From scores to probabilities, of tile `t` of those that the wave weighs.
KG_DEV void weigh_tile(u32 (&p)[P_WORDS], column_t &m, column_t &l, values_t &o,
                       const float (&dots)[S_REGS], const head_t &head, int t, const keys_t &keys,
                       int start) {
    const token_scale_t none = {};
    float s[S_REGS];
    finish_scores(s, dots, head, t, start, keys, none);
    if constexpr (SPARSE != 0)
        KG_UNROLL for (int r = 0; r < S_REGS;
                       r++) if (page_number(keys, start + s_token((int)opaque(lane_id()), r)) < 0)
            s[r] = -INFINITE;
    raise_maximum(m, l, o, t, s);
    scores_to_p(m, l, t, s);
    pack_p(p, s);
}

// The wave's own tile stands first in its columns. What its maximum does to sums is
// done to ones, and told.
KG_DEV void weigh_own(column_t &m, column_t &l, const scores_t &s, const q_part_t &q,
                      const head_t &head, const keys_t &keys, int start, u8 *stage, int tile) {
    float dots[S_REGS];
    u32 p[P_WORDS], factor[COLS];
    values_t ones = {};
    KG_UNROLL for (int c = 0; c < COLS; c++) ones[0][0][c] = 1;
    KG_UNROLL for (int r = 0; r < S_REGS; r++) dots[r] = score(s, r) * q.scale[r % COLS];
    hear_scores(dots, stage, tile, 1);
    weigh_tile(p, m, l, ones, dots, head, 0, keys, start);
    KG_UNROLL for (int c = 0; c < COLS; c++) factor[c] = bits_of(ones[0][0][c]);
    tell(stage, 0, tile, p);
    tell(stage, SAID_COLUMNS, tile, factor);
}

KG_DEV void score_stage(scores_t &s, const q_part_t &q, u8 *stage, const u8 *block,
                        share_of_scores_t mine, int wave) {
    score_part(s, q, block, mine);
    if (!OWN_TILES || !mine.leads) tell_scores(stage, s, q, wave);
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

// The workgroup's blocks of one segment: all waves go through them together.
KG_DEV void attend_in_step(column_t &m, column_t &l, values_t &o, const q_part_t &q,
                           const segment_t &g, const head_t &head, const keys_t &keys, u8 *stage,
                           share_of_scores_t mine, int wave, int lane) {
    bring_t b;
    bring_first(b, head, keys, g.block, wave, lane);
    KG_LOOP for (int block = g.block; block < g.block_end; block++) {
        scores_t s;
        weights_t p;
        barrier(); // the block before has been read
        put(stage, b.pieces, wave, lane);
        barrier();
        bring_next(b, head, keys, block + 1, g.block_end, wave, lane);
        score_stage(s, q, stage, stage, mine, wave);
        if constexpr (OWN_TILES) {
            if (PARTS > 1) barrier();
            if (mine.leads) weigh_own(m, l, s, q, head, keys, block * TOK, stage, mine.tile);
        }
        barrier();
        if constexpr (OWN_TILES)
            hear_weights(p, o, stage);
        else
            weigh_tiles(p, m, l, o, head, keys, block * TOK, stage);
        weigh_stage(o, stage, p, wave);
    }
}

// The same with two blocks. What is said of weights lies apart from what is said of scores.
KG_DEV void attend_ahead(column_t &m, column_t &l, values_t &o, const q_part_t &q,
                         const segment_t &g, const head_t &head, const keys_t &keys, u8 *stage,
                         share_of_scores_t mine, int wave, int lane) {
    bring_t b;
    scores_t s;
    int at = 0; // of the block that is weighed
    bring_first(b, head, keys, g.block, wave, lane);
    barrier(); // the segment before is done with
    put(stage, b.pieces, wave, lane);
    bring_next(b, head, keys, g.block + 1, g.block_end, wave, lane);
    barrier();
    score_stage(s, q, stage, stage, mine, wave);
    barrier();
    KG_LOOP for (int block = g.block; block < g.block_end; block++) {
        weights_t p;
        bool more = block + 1 < g.block_end;
        if constexpr (!OWN_TILES) weigh_tiles(p, m, l, o, head, keys, block * TOK, stage);
        if (OWN_TILES && mine.leads)
            weigh_own(m, l, s, q, head, keys, block * TOK, stage, mine.tile);
        if (more) put(stage + STAGE_KEYS - at, b.pieces, wave, lane);
        bring_next(b, head, keys, block + 2, g.block_end, wave, lane);
        barrier(); // weights are told, and the next block is there
        if constexpr (OWN_TILES) hear_weights(p, o, stage);
        weigh_stage(o, stage + at, p, wave);
        at = STAGE_KEYS - at;
        if (more) score_stage(s, q, stage, stage + at, mine, wave);
        // Scores are told, and the block has been read. At the head of the loop hipRTC 7.2 forgets
        // to wait for what went into LDS at its end.
        barrier();
    }
}

KG_DEV void attend(column_t &m, column_t &l, values_t &o, const q_part_t &q, const segment_t &g,
                   const head_t &head, const keys_t &keys, u8 *stage, int wave) {
    if (g.block >= g.block_end || g.see.last < 0) return;
    int lane = (int)opaque(lane_id()); // no place is kept for the next segment
    share_of_scores_t mine = scores_of_wave(wave);
    if constexpr (STAGES > 1)
        attend_ahead(m, l, o, q, g, head, keys, stage, mine, wave, lane);
    else
        attend_in_step(m, l, o, q, g, head, keys, stage, mine, wave, lane);
}

// What waits for the end of a segment waits in vector registers, of which there are more.
struct waiting_t {
    u32 x[11];
};
KG_DEV waiting_t put_aside(const segment_t &g, cut_t cut) {
    waiting_t w = {{cut.each, cut.extra, g.item_start, PARTED ? g.part : g.item_end,
                    (u32)g.row_block, (u32)g.seq.index, (u32)g.seq.q_start, (u32)g.seq.q_len,
                    (u32)g.seq.kv_len, (u32)g.seq.context, g.whole ? 1u : 0u}};
    KG_UNROLL for (int i = 0; i < 11; i++) w.x[i] = opaque(w.x[i]);
    return w;
}
KG_DEV void take_back(segment_t &g, cut_t &cut, const waiting_t &w) {
    u32 x[11];
    KG_UNROLL for (int i = 0; i < 11; i++) x[i] = (u32)uniform((int)w.x[i]);
    cut.each = x[0], cut.extra = x[1];
    g.item_start = x[2], g.item_end = g.part = x[3];
    g.row_block = (int)x[4];
    g.seq.index = (int)x[5], g.seq.q_start = (int)x[6], g.seq.q_len = (int)x[7];
    g.seq.kv_len = (int)x[8], g.seq.context = (int)x[9];
    g.whole = x[10] != 0;
}

KG_DEV void prepare_stage(args_t, u8 *) {}

KG_DEV void run_segment(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    q_part_t q;
    column_t m, l;
    values_t o;
    wave = (int)opaque_uniform((u32)wave); // nothing of it is kept for the next segment
    g.kv_head = 0;                         // there is one
    role_t role = role_of(g, wave);
    if constexpr (OWN_TILES) role.row += scores_of_wave(wave).tile * NI;
    head_t head = head_of(a, g, role);
    keys_t keys = keys_of(a, g);
    head.window = (int)opaque((u32)head.window); // of edges: scalars are scarcer than vectors
    head.context = (int)opaque((u32)head.context);
    head.first_row = (int)opaque((u32)head.first_row);
    clear(m, l, o);
    load_part(q, a, g, scores_of_wave(wave));
    waiting_t waiting = put_aside(g, cut);
    attend(m, l, o, q, g, head, keys, lds + LDS_STAGE, wave);
    take_back(g, cut, waiting);
    if constexpr (OWN_TILES) exchange_sums(m, l, lds + LDS_STAGE, scores_of_wave(wave));
    reduce_and_store(m, l, o, reread(a), g, cut, lds, wave);
}

} // namespace kg

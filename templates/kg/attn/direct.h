// Each wave reads the keys and values that it needs straight from memory.
#pragma once
#include "kg/attn/softmax.h"

namespace kg {

// Behind the last block that a row of the wave sees.
KG_DEV int block_end_of(args_t a, const segment_t &g, const role_t &role) {
    if (OWN_ROWS && !row_exists(g, role.row)) return g.block;
    if constexpr (!UNBOUNDED || SPANS != 0) return g.block_end;
    int row = g.row_block * ROWS + role.row + WAVE_ROWS - 1;
    int last = last_key(a, g.seq, smaller(row / GROUP, g.seq.q_len - 1));
    return last < 0 ? g.block : smaller(g.block_end, last / TOK + 1);
}

// AMD: a wait names how many loads may still be under way. Behind a branch round some of them
// it must name none, so the last block is loaded again instead.
constexpr bool WAITS_COUNT = !IS_SM90;
// Conversions in integer arithmetic need all scalars, and any order.
constexpr bool ORDERED = !KV_8BIT || KV_INTEGER || NATIVE_FP8;

// RDNA: page numbers come before the next keys and become scalars behind this turn's values. At the
// head of a turn the compiler would wait for the keys as well, before it asks for values.
constexpr bool SETTLES_BEHIND = BY_PAGE && WAVE == 32;

// First token of the block `steps` on from the one at `start`.
KG_DEV int start_after(const keys_t &keys, int block, int start, int steps, int end) {
    if constexpr (!WAITS_COUNT) return block_after(keys, block, start, steps);
    return block_start(keys, smaller(block + steps, end - 1));
}

// What probabilities give with values of nothing but the excess, of each row tile.
typedef acc_t excess_t[EXCEEDS ? ROW_TILES : 1][1];
KG_DEV void weigh_excess(excess_t &sum, const u32 (&p)[P_WORDS], int t) {
    constexpr u32 values[4] = {EXCESS, EXCESS, EXCESS, EXCESS};
    if constexpr (EXCEEDS) mma_pv(sum[t][0], values, p);
}
KG_DEV void take_excess(values_t &o, const excess_t &sum) {
    if constexpr (EXCEEDS)
        KG_UNROLL for (int i = 0; i < ROW_TILES * O_TILES; i++)
            KG_UNROLL for (int r = 0; r < O_REGS; r++) o[i / O_TILES][i % O_TILES][r] -=
            sum[i / O_TILES][0][r];
}

// The wave's blocks of one segment.
KG_DEV void attend(column_t &m, column_t &l, values_t &o, q_frag_t &q, args_t a, const segment_t &g,
                   const role_t &role, head_t &head, const keys_t &keys, const u8 *lds) {
    ids_t ids, next_ids;
    k_tile_t k;
    int block = g.block + role.key, by = role.keys, end = block_end_of(a, g, role);
    if constexpr (PARKS_SEGMENT) end = uniform(end);
    // By their place in the sequence, wherever a window begins.
    if constexpr (INVARIANT) block += (role.key < g.block % by ? by : 0) - g.block % by;
    if (block >= end || g.see.last < 0) return;
    load_ids(ids, keys, block_start(keys, block));
    load_ids(next_ids, keys, start_after(keys, block, block_start(keys, block), by, end));
    settle_ids(ids, keys);
    if constexpr (SETTLES_BEHIND) settle_ids(next_ids, keys);
    load_k(k, head, keys, ids, block_start(keys, block), 0, K_AHEAD);
    split_q(q);
    if constexpr (SPLITS_LATE) scale_q(head, q);
    key_excess(q, lds);
    excess_t excess = {};
    KG_LOOP for (; block < end; block += by) {
        int start = block_start(keys, block);
        v_tile_t v;
        scores_t dots[ROW_TILES];
        token_scale_t scale;
        if constexpr (SPREADS_SCALES) load_page_scales(scale, a, head, keys, ids, start);
        load_v(v, head, keys, ids, start, role.v, 0, V_AHEAD);
        if constexpr (!SPREADS_SCALES) load_token_scales(scale, a, head, keys, ids, start);
        if constexpr (ORDERED) order_here(); // values before keys that the next turn needs
        score_block(dots, k, q, head, keys, ids, start, lds);
        ids_t far_ids;
        load_ids(far_ids, keys, start_after(keys, block, start, 2 * by, end));
        if constexpr (SETTLES_BEHIND)
            order_here();
        else
            settle_ids(next_ids, keys);
        if (WAITS_COUNT || block + by < end)
            load_k(k, head, keys, next_ids, start_after(keys, block, start, by, end), 0, K_AHEAD);
        spread_page_scales(scale);
        lifts_t lifts = lifts_of(scale);
        u32 p[ROW_TILES][P_WORDS];
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            block_scores_t s, place;
            finish_scores(s, dots[t], head, t, start, keys, scale);
            raise_maximum(m, l, o, t, lifted(place, s, lifts), excess[EXCEEDS ? t : 0]);
            scores_to_p(m, l, t, s);
            scale_p(s, scale);
            pack_p(p[t], s);
            weigh_excess(excess, p[t], t);
        }
        weigh_values(o, v, p, head, keys, ids, start, role.v);
        if constexpr (SETTLES_BEHIND) settle_ids(far_ids, keys);
        ids = next_ids;
        next_ids = far_ids;
    }
    take_excess(o, excess);
}

} // namespace kg

// Latent attention of 64 query rows on sm_90 (PAIRED): query rows are the rows of A. Two groups of
// four waves take sets of 64 keys in turn, and each weighs one half of the value columns of all
// sets, whose sums are 128 registers of a lane.
//
//   first group                  second group
//   S0 = Q K0^T                  S1 = Q K1^T
//   P0 = exp2(S0 - m)            O_right += P0 V0_right, while
//   O_left += P0 V0_left           P1 = exp2(S1 - m)
//   O_left += P1 V1_left         O_right += P1 V1_right
//
// So the units multiply for one group while the other has a softmax. Wave n of both groups has the
// same rows, lane by lane: P, and the maxima that it stands on, go from one to the other by one
// place in LDS, to and fro. The halves of a set are free at different times: who weighs a half
// brings the next set's in its place, by boxes where pages go so far, with a barrier in memory for
// each half. Otherwise as kg/mla/mla_matrices_nvidia.h, which has what is not paired. Codes:
// kg/mla/mla_codes_nvidia.h.
#pragma once
#include "kg/attn/probabilities_nvidia.h"
#include "kg/mla/mla_matrices_nvidia.h"

namespace kg {

constexpr int KEY_MATRICES = ceil_div(HEAD_DIM, 64), HALF_MATRICES = V_DIM / 128;
typedef u32 weights_t[SET_BLOCKS_OF][4];

// Of a set, those of a half: of the group that weighs it.
struct half_t {
    int first, end; // matrices
};
KG_DEV half_t half_of(int group) {
    return group == 0 ? half_t{0, HALF_MATRICES} : half_t{HALF_MATRICES, KEY_MATRICES};
}

// --- bringing ------------------------------------------------------------------------

// Rows of the wave's block one by one: pages are small, or some are not seen, for which those stand
// that are. A block of which none is seen is zeros.
KG_DEV void copy_half(u8 *set, half_t half, u64 row_of_lane, int part) {
    int end = smaller(half.end * 8, ROW_PIECES);
    KG_LOOP for (int first = 0; first < TOK; first += 4)
        KG_LOOP for (int piece = half.first * 8; piece < end; piece += WAVE)
            KG_UNROLL for (int row = first; row < first + 4; row++) {
        int column = smaller(piece + (int)lane_id(), end - 1);
        copy_16(place_of(set, part * TOK + row, column),
                (const u8 *)row_of(row_of_lane, row) + column * 16);
    }
}

// The wave's part of the next set, if there is one.
KG_DEV void bring_half(u8 *set, gate_t *there, bringer_t &b, half_t half, const head_t &h,
                       const keys_t &keys, args_t a) {
    if (b.block >= b.end) return;
    int start = block_start(keys, b.block + b.part);
    rows_seen_t seen = seen_of(keys, start);
    if (BOXED && seen != SEEN_PART) {
        bring_boxes(set, there, half.first, half.end, b, keys, start, seen, a);
    } else {
        copy_half(set, half, lane_row(b, h, keys), b.part);
        gate_arrive_copied(there);
    }
    go_on(b, keys);
}

// What a group knows of a segment.
struct pairs_t {
    u8 *stage;
    int part, group;
    bringer_t next;
};
KG_DEV u8 *set_of(u8 *stage, int slot) { return stage + SETS_AT + slot * SET_BYTES; }
KG_DEV u8 *set_at(const pairs_t &w, int slot) { return set_of(w.stage, slot); }
KG_DEV gate_t *there_of(const said_t &said, int slot, int half) {
    return said.there + 2 * slot + half;
}
KG_DEV void bring_next(pairs_t &w, args_t a, const said_t &said, int slot, const head_t &h,
                       const keys_t &keys) {
    bring_half(set_at(w, slot), there_of(said, slot, w.group), w.next, half_of(w.group), h, keys,
               a);
}

KG_DEV void ask_for_queries(const pairs_t &w, args_t a, const segment_t &g, int wave) {
    if constexpr (COPIES_Q) copy_queries(w.stage, a, g, wave);
}
KG_DEV void put_all_queries(const pairs_t &w, args_t a, const segment_t &g, head_t &head,
                            const said_t &said, int wave) {
    if constexpr (COPIES_Q)
        copies_done<0>();
    else
        put_queries(w.stage, said, a, g, wave);
    show_lds();
    barrier();
    if constexpr (SCALED_Q)
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) head.scale[t][0] *=
            said.up[w.part * WAVE_ROWS + t * NI + lane_column((int)lane_id(), 0)];
}
KG_DEV void start_pairs(pairs_t &w, args_t a, const segment_t &g, head_t &head, const keys_t &keys,
                        const said_t &said, int wave) {
    static_assert(KG_MLA_SLOTS >= 4, "halves of two sets");
    if (thread_id() == 0) {
        KG_UNROLL for (int n = 0; n < 4; n++) gate_begin(said.there + n, 4 * WAVE);
        show_lds();
    }
    ask_for_queries(w, a, g, wave);
    barrier();
    w.next.page = page_of_lane(keys, w.next);
    read_map_of(a);
    KG_LOOP for (int slot = 0; slot < 2; slot++) bring_next(w, a, said, slot, head, keys);
    put_all_queries(w, a, g, head, said, wave);
}

// --- products ------------------------------------------------------------------------

// Templates, so that no other kernel has them. T: row tiles.
template <int T, int N>
KG_DEV void score_half(acc_t (&s)[T][N], half_t half, const u8 *set, const u8 *queries) {
    matrix_t keys = matrix_at(set), rows = matrix_at(queries);
    products_begin();
    KG_UNROLL for (int step = 0; step < HEAD_DIM / 16; step++) {
        if (step / 4 < half.first || step / 4 >= half.end) continue;
        multiply<N, false>(s, 0, further(rows, (u32)(step / 4 * Q_MATRIX + step % 4 * 32)),
                           further(keys, (u32)(step / 4 * MATRIX_OF_SET + step % 4 * 32)),
                           step != 0);
    }
    products_end();
}

// o += P V of a set's half, on its way.
template <int T, int N>
KG_DEV void weigh_half(acc_t (&o)[T][N], const weights_t &p, const u8 *set, int group) {
    matrix_t values = matrix_at(set + group * HALF_MATRICES * MATRIX_OF_SET);
    products_begin();
    KG_UNROLL for (int b = 0; b < SET_BLOCKS_OF; b++) KG_UNROLL for (int n = 0; n < N; n += 4)
        multiply<4, true>(o, n, p[b],
                          further(values, (u32)(n / 4 * MATRIX_OF_SET + b * (TOK * 128))), true);
    products_end();
}
template <int T, int N> KG_DEV void weighed(acc_t (&o)[T][N], weights_t &p) {
    products_done<0>();
    settle_words(p);
    settle(o);
}

// --- what groups say -----------------------------------------------------------------

// Blocks of P, and where the lane's words lie.
KG_DEV line_t *place_of_weights(const pairs_t &w) {
    return (line_t *)(w.stage + P_AT) + w.part * WAVE + (int)lane_id();
}
KG_DEV void say_weights(const weights_t &p, const column_t &m, const pairs_t &w,
                        const said_t &said) {
    line_t *to = place_of_weights(w);
    int lane = (int)lane_id();
    KG_UNROLL for (int b = 0; b < SET_BLOCKS_OF; b++) to[b * (4 * WAVE)] =
        line_t{{p[b][0], p[b][1], p[b][2], p[b][3]}};
    if (is_speaker(lane))
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
            said.tops[w.part * WAVE_ROWS + t * NI + lane_column(lane, 0)] = m[t][0];
}

template <int T, int N> KG_DEV void scale_rows(acc_t (&o)[T][N], const float (&alpha)[T]) {
    KG_UNROLL for (int t = 0; t < T; t++) KG_UNROLL for (int n = 0; n < N; n++)
        KG_UNROLL for (int r = 0; r < O_REGS; r++) o[t][n][r] *= alpha[t];
}
KG_DEV void hear_weights(weights_t &p, const pairs_t &w) {
    const line_t *from = place_of_weights(w);
    KG_UNROLL for (int b = 0; b < SET_BLOCKS_OF; b++) {
        line_t line = from[b * (4 * WAVE)];
        KG_UNROLL for (int j = 0; j < 4; j++) p[b][j] = line.w[j];
    }
}
// Sums come to the other group's maxima, which are never below.
template <int T, int N>
KG_DEV void hear_tops(column_t &m, column_t &l, acc_t (&o)[T][N], const pairs_t &w,
                      const said_t &said) {
    float alpha[ROW_TILES];
    bool risen = false;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        float top = said.tops[w.part * WAVE_ROWS + t * NI + lane_column((int)lane_id(), 0)];
        risen |= top > m[t][0];
        alpha[t] = weight(m[t][0], top);
        m[t][0] = top;
        l[t][0] *= alpha[t];
    }
    if (any(risen)) scale_rows(o, alpha);
}

// --- the way through a segment ---------------------------------------------------------

// Scores of the group's own set, in two steps, as its halves come.
template <int WHOSE, int T, int N>
KG_DEV void score_own_set(acc_t (&s)[T][N], const pairs_t &w, const said_t &said, u32 time,
                          bool exists) {
    if constexpr (WHOSE == 1) take_turn(1);
    KG_UNROLL for (int half = 0; half < 2; half++) {
        await_there(there_of(said, WHOSE, half), time, exists);
        if (exists) score_half(s, half_of(half), set_at(w, WHOSE), w.stage);
    }
    if constexpr (WHOSE == 0) take_turn(0);
    products_done<0>();
    settle(s);
}

// What a pair of sets is to both groups. Products under way cross no branch that differs by wave:
// the compiler would wait for each.
struct at_t {
    int block, end; // of the first set; of the segment
    u32 time;
};

template <int T>
KG_DEV bool weigh_scores(weights_t &p, float (&alpha)[T], column_t &m, column_t &l,
                         const acc_t (&dots)[T][SET_BLOCKS_OF], const pairs_t &w, args_t a,
                         const head_t &head, const keys_t &keys, const said_t &said, int block,
                         const at_t &at) {
    float scores[SET_BLOCKS_OF][T][S_REGS];
    bool risen = to_probabilities(scores, alpha, m, l, dots, a, head, keys, block, at.end);
    pack_set(p, scores, weighs_set(block, at.end));
    say_weights(p, m, w, said);
    say(w.group, w.part);
    return risen;
}

template <int T>
KG_DEV void take_first(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], pairs_t &w, args_t a,
                       const head_t &head, const keys_t &keys, const said_t &said, const at_t &at) {
    acc_t dots[T][SET_BLOCKS_OF];
    weights_t p;
    float alpha[T];
    score_own_set<0>(dots, w, said, at.time, true);
    if (weigh_scores(p, alpha, m, l, dots, w, a, head, keys, said, at.block, at))
        scale_rows(o, alpha);
    weigh_half(o, p, set_at(w, 0), 0);
    weighed(o, p);
    meet_group(0); // the set's half has been read
    bring_next(w, a, said, 0, head, keys);
    hear(1, w.part);
    if (at.block + SET_BLOCKS_OF < at.end) {
        hear_weights(p, w);
        hear_tops(m, l, o, w, said);
        weigh_half(o, p, set_at(w, 1), 0);
        weighed(o, p);
    }
    meet_group(0);
    bring_next(w, a, said, 1, head, keys);
}

// Its own set may not be there.
template <int T>
KG_DEV void take_second(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], pairs_t &w, args_t a,
                        const head_t &head, const keys_t &keys, const said_t &said,
                        const at_t &at) {
    acc_t dots[T][SET_BLOCKS_OF];
    weights_t p, theirs;
    float alpha[T];
    int mine = at.block + SET_BLOCKS_OF;
    score_own_set<1>(dots, w, said, at.time, mine < at.end);
    hear(0, w.part);
    hear_weights(theirs, w);
    hear_tops(m, l, o, w, said);
    weigh_half(o, theirs, set_at(w, 0), 1);
    bool risen = weigh_scores(p, alpha, m, l, dots, w, a, head, keys, said, mine, at);
    weighed(o, theirs);
    meet_group(1);
    bring_next(w, a, said, 0, head, keys);
    if (risen) scale_rows(o, alpha);
    if (mine < at.end) {
        weigh_half(o, p, set_at(w, 1), 1);
        weighed(o, p);
    }
    meet_group(1);
    bring_next(w, a, said, 1, head, keys);
}

template <int T>
KG_DEV void attend_pairs(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], args_t a,
                         const segment_t &g, head_t &head, const keys_t &keys, const said_t &said,
                         u8 *stage, int wave) {
    if (is_empty(g)) return;
    int first = INVARIANT ? g.block / SET_BLOCKS_OF * SET_BLOCKS_OF : g.block;
    pairs_t w = {stage, wave % 4, wave / 4, {first, g.block_end, wave % 4, 0}};
    u32 time = 0;
    start_pairs(w, a, g, head, keys, said, wave);
    KG_LOOP for (int block = first; block < g.block_end;
                 block += 2 * SET_BLOCKS_OF) if (w.group == 0)
        take_first(m, l, o, w, a, head, keys, said, at_t{block, g.block_end, time++});
    else take_second(m, l, o, w, a, head, keys, said, at_t{block, g.block_end, time++});
    barrier();
    said_t late = said_in(lds_again(stage - LDS_STAGE)); // no place is kept
    if (thread_id() == 0) KG_UNROLL for (int n = 0; n < 4; n++) gate_end(late.there + n);
}

// Of a segment that has been gone through.
template <int T>
KG_DEV void emit_pairs(column_t &m, column_t &l, const acc_t (&o)[T][O_TILES], args_t a,
                       segment_t &g, cut_t &cut, const role_t &role, const said_t &said, u8 *lds,
                       int wave) {
    g = *said.segment;
    cut = parked_work(lds, wave).cut;
    float *sums = said.tops + role.row; // of the first group, then of the other
    int lane = (int)late_lane();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        l[t][0] = column_sum(l[t][0]);
        if (is_speaker(lane)) sums[role.v * ROWS + t * NI + lane_column(lane, 0)] = l[t][0];
    }
    barrier();
    u32 part = PARTED ? g.part : part_of(cut);
    auto total_of = [&](int t) {
        int row = t * NI + lane_column(lane, 0);
        return sums_t{m[t][0], sums[row] + sums[ROWS + row]};
    };
    emit_own(total_of, o, a, g, role, partial_slot(cut, part, g.item_start), lds);
}

template <int T> KG_DEV void run_pairs(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    column_t m, l;
    acc_t o[T][O_TILES];
    g.kv_head = 0; // there is one
    role_t role = role_of(g, wave);
    head_t head = head_of(a, g, role);
    keys_t keys = keys_of(a, g);
    clear(m, l, o);
    said_t said = said_in(lds);
    if (thread_id() == 0) *said.segment = g;
    attend_pairs(m, l, o, a, g, head, keys, said, lds + LDS_STAGE, wave);
    barrier(); // also of the segment
    emit_pairs(m, l, o, a, g, cut, role, said, lds, wave);
    finish_item(a, g, cut, lds, wave);
}

} // namespace kg

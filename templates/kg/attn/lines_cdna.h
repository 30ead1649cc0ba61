// Lines as CDNA's waves read them, 16 bytes a lane: an odd number of pieces from line to line, and
// k_line, put what is read at a time on each bank once, on the 32 banks of gfx942 as on the 64 of
// gfx950.
#pragma once
#include "kg/attn/lines_of_tokens.h"

namespace kg {

constexpr int V_LINE = SETS.v / SET_KEYS; // bytes
constexpr int V_BLOCK = TOK * V_LINE;
constexpr bool TOKENS_FOLLOW = false; // of the values that a lane brings

typedef q_frag_t queries_t;
KG_DEV const queries_t &queries_of(const q_frag_t &q) { return q; }

// Where a block's keys lie: those that begin rows of a score tile beside those that follow
// them, in both tiles.
KG_DEV int k_line(int token) {
    int i = 4 * (token / 8) + token % 4;
    return token / 4 % 2 + 2 * (i % 4 + i / 8 * 4 + (i / 8 ^ i / 4 % 2) * 8);
}
KG_DEV int v_line(int token); // of the isa

template <int DIM>
KG_DEV void put_values(u8 *lines, const rows_t<DIM> &rows, float scale, int wave) {
    put_lines<false, V_LINE>(lines, rows, scale, wave, [](int token) { return v_line(token); });
}

// s[t] = K Q^T of the block whose keys begin at `k`.
KG_DEV void score_rows(scores_t (&s)[ROW_TILES], const u8 *k, const queries_t &q) {
    int i = lane_i((int)lane_id()), grp = lane_grp((int)lane_id());
    k += k_line(k_token(i, 0)) * K_LINE + grp * 16;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) s[t] = scores_t{};
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
        bool inside = HEAD_DIM % K_DIMS == 0 || (c * NGRP + grp) * X < HEAD_DIM;
        const u8 *p = k + (inside ? c * K_DIMS * 2 : -grp * 16); // else it meets a zero of Q
        u32 w[KROWS][K_WORDS];
        KG_UNROLL for (int row = 0; row < KROWS; row++) {
            piece_t piece = *(const piece_t *)(p + row * K_LINE);
            KG_UNROLL for (int j = 0; j < K_WORDS; j++) w[row][j] = piece.w[j];
        }
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            u32 query[K_WORDS];
            KG_UNROLL for (int j = 0; j < K_WORDS; j++) query[j] = q.w[Q_IN_LDS ? 0 : t][c][j];
            mma_qk(s[t], w, query);
        }
    }
}

} // namespace kg

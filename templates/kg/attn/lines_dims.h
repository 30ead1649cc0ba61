// Lines of RDNA. Keys are read as operands of WMMA: the 16 dims of a step, of which a lane of gfx12
// has a half, one of gfx11 all. Values lie turned: a line is a dim's 8 tokens, of the block's first
// half, then of the second, so that they are read as they are multiplied. Whoever brings values has
// tokens that follow one another, and turns them once for all waves.
#pragma once
#include "kg/attn/lines_of_tokens.h"

namespace kg {

constexpr int V_BLOCK = SETS.v / SET_BLOCKS, V_HALF = V_BLOCK / 2; // bytes
constexpr bool TOKENS_FOLLOW = true; // of the values that a lane brings

struct operand_t {
    u32 w[OPERAND_WORDS];
};
// Of two halves so many bytes apart.
KG_DEV operand_t operand_at(const u8 *p, int apart) {
    operand_t x;
    KG_UNROLL for (int n = 0; n < OPERAND_WORDS; n += 4) {
        int half = OPERAND_WORDS == 8 ? n / 4 : lane_grp((int)lane_id());
        piece_t piece = *(const piece_t *)(p + half * apart);
        KG_UNROLL for (int j = 0; j < 4; j++) x.w[n + j] = piece.w[j];
    }
    return x;
}

// --- queries ------------------------------------------------------------------

// Whole where registers hold them; else they become so where they are multiplied.
constexpr bool Q_WHOLE = ROW_TILES * K_CHUNKS * OPERAND_WORDS <=
                         kg_attn_whole_words(KV_BITS, CASCADE, DESCALE == DESCALE_TOKEN);
struct queries_t {
    u32 w[ROW_TILES][K_CHUNKS][Q_WHOLE ? OPERAND_WORDS : 4];
};
// Templates: where half an operand is all of it, nothing is exchanged; no other kernel has them.
template <int OUT, int IN> KG_DEV void take_words(u32 (&out)[OUT], const u32 (&in)[IN]) {
    if constexpr (OUT == IN)
        KG_UNROLL for (int j = 0; j < OUT; j++) out[j] = in[j];
    else
        whole_of(out, in);
}
// Each time: else all of them are exchanged before the loop, and held.
template <int OUT, int IN> KG_DEV void whole_again(u32 (&out)[OUT], const u32 (&in)[IN]) {
    u32 words[IN];
    KG_UNROLL for (int j = 0; j < IN; j++) words[j] = opaque(in[j]);
    take_words(out, words);
}
template <class Q> KG_DEV queries_t queries_of(const Q &q) {
    queries_t all = {};
    if constexpr (BY_LINES != 0)
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < K_CHUNKS; c++)
            take_words(all.w[t][c], q.w[Q_IN_LDS ? 0 : t][c]);
    return all;
}

// --- keys ---------------------------------------------------------------------

// In the order in which lanes read them: an odd number of pieces apart, eight of them meet all
// banks.
KG_DEV int k_line(int token) { return k_place(token); }

// s[t] = K Q^T of the block whose keys begin at `k`. What is read next comes while this is
// multiplied with.
KG_DEV void score_rows(scores_t (&s)[ROW_TILES], const u8 *k, const queries_t &q) {
    k += lane_i((int)lane_id()) * K_LINE;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) s[t] = scores_t{};
    operand_t next = operand_at(k, 16);
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
        u32 w[KROWS][OPERAND_WORDS];
        KG_UNROLL for (int j = 0; j < OPERAND_WORDS; j++) w[0][j] = next.w[j];
        if (c + 1 < K_CHUNKS) next = operand_at(k + (c + 1) * 32, 16);
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            u32 query[OPERAND_WORDS];
            if constexpr (Q_WHOLE || OPERAND_WORDS == 4)
                take_words(query, q.w[t][c]);
            else
                whole_again(query, q.w[t][c]);
            mma_qk(s[t], w, query);
        }
    }
}

// --- values -------------------------------------------------------------------

// Where a dim's line lies among those of a half: eight lanes that have every eighth dim, which
// write, and eight that have dims in order, which read, meet all banks.
KG_DEV int v_line(int dim) { return dim + dim / 8; }

// Of one dim, tokens that follow one another.
template <int TOKENS> KG_DEV void put_dim(u8 *to, const u32 (&pairs)[8]) {
    if constexpr (TOKENS == 1)
        *(u16 *)to = (u16)pairs[0];
    else if constexpr (TOKENS == 2)
        *(u32 *)to = pairs[0];
    else if constexpr (TOKENS == 4)
        *(u64 *)to = (u64)pairs[1] << 32 | pairs[0];
    else
        KG_UNROLL for (int half = 0; half < TOKENS / 8; half++) * (piece_t *)(to + half * V_HALF) =
            piece_t{
                {pairs[4 * half], pairs[4 * half + 1], pairs[4 * half + 2], pairs[4 * half + 3]}};
}
template <int DIM> KG_DEV void put_values(u8 *values, const rows_t<DIM> &rows, float, int wave) {
    constexpr int PIECES = rows_t<DIM>::PIECES, TOKENS = WAVE_KEYS / rows_at_once(PIECES);
    constexpr int WORDS = rows_t<DIM>::WORDS * 16 / KV_BITS, DIMS = 2 * WORDS; // of a piece
    int first = wave * WAVE_KEYS, token = first % TOK + row_of_lane<PIECES>() * TOKENS;
    u8 *to = values + first / TOK * V_BLOCK + token / 8 * V_HALF + token % 8 * 2 +
             v_line((int)piece_of_lane<PIECES>(0) * DIMS) * 16;
    u32 w[TOKENS][WORDS];
    order_here(); // registers are for keys, then for values
    KG_UNROLL for (int n = 0; n < TOKENS; n++) convert_words<false>(w[n], rows.w[n]);
    KG_UNROLL for (int j = 0; j < DIMS; j++) {
        u32 pairs[8] = {};
        KG_UNROLL for (int n = 0; n < TOKENS; n += 2) pairs[n / 2] = byte_perm(
            w[n][j / 2], w[n + 1 < TOKENS ? n + 1 : n][j / 2], j % 2 ? 0x07060302 : 0x05040100);
        put_dim<TOKENS>(to + v_line(j) * 16, pairs); // a multiple of eight dims further on
    }
    order_here();
}

// O += V^T P of the block whose values begin at `v`.
KG_DEV void weigh_rows(values_t &o, const u8 *v, const u32 (&p)[ROW_TILES][P_WORDS]) {
    u32 weights[ROW_TILES][OPERAND_WORDS];
    int i = lane_i((int)lane_id());
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) take_words(weights[t], p[t]);
    v += v_line(i) * 16;
    operand_t next = operand_at(v, V_HALF);
    KG_UNROLL for (int tile = 0; tile < O_TILES; tile++) {
        operand_t x = next;
        if (tile + 1 < O_TILES) next = operand_at(v + v_line((tile + 1) * 16) * 16, V_HALF);
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mma_pv(o[t][tile], x.w, weights[t]);
    }
}

} // namespace kg

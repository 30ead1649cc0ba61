// Scores of a set of keys to probabilities on sm_90, where a lane has them of rows of its own
// (ROWS_OF_A in kg/core/frag_sm90.h): B blocks of a set, all or one.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/attn/softmax.h"

namespace kg {

template <int B>
KG_DEV void scale_set(float (&s)[B][ROW_TILES][S_REGS], token_scale_t (&scale)[B],
                      const acc_t (&dots)[ROW_TILES][B], args_t a, const head_t &head,
                      const keys_t &keys, int block) {
    KG_UNROLL for (int b = 0; b < B; b++) {
        int start = block_start(keys, block + b);
        if constexpr (DESCALE == DESCALE_TOKEN) {
            ids_t ids;
            load_ids(ids, keys, start);
            load_token_scales(scale[b], a, head, keys, ids, start);
        }
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
            scale_scores(s[b][t], dots[t][b].x, head, t, start, scale[b]);
    }
}

// Whether some row does not see some key of the blocks, of which the wave's rows see `seen`.
template <int B>
KG_DEV bool is_edge_set(const head_t &head, const keys_t &keys, int block, int seen) {
    bool edge = seen < B;
    if constexpr (KEEP == 0) return edge || is_edge(head, block_start(keys, block), B * TOK);
    KG_UNROLL for (int b = 0; b < B; b++) edge |= is_edge(head, block_start(keys, block + b), TOK);
    return edge;
}
template <int B>
KG_DEV void mask_set(float (&s)[B][ROW_TILES][S_REGS], const head_t &head, const keys_t &keys,
                     int block, int seen) {
    KG_UNROLL for (int b = 0; b < B; b++) {
        int start = block_start(keys, block + b);
        bool edge = is_edge(head, start, TOK); // a prefix has none, and its rows no positions
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            if (edge) mask_scores(s[b][t], head, t, start, keys);
            KG_UNROLL for (int r = 0; r < S_REGS; r++) s[b][t][r] =
                b < seen ? s[b][t][r] : -INFINITE;
        }
    }
}

template <int B> KG_DEV void clear_set(float (&s)[B][ROW_TILES][S_REGS]) {
    KG_UNROLL for (int b = 0; b < B; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
        KG_UNROLL for (int r = 0; r < S_REGS; r++) s[b][t][r] = 0;
}
// Of the blocks from `block` on; end: of the blocks that the wave's rows see. True: weighted
// values are to be multiplied with `alpha`.
template <int B>
KG_DEV bool to_probabilities(float (&s)[B][ROW_TILES][S_REGS], float (&alpha)[ROW_TILES],
                             column_t &m, column_t &l, const acc_t (&dots)[ROW_TILES][B], args_t a,
                             const head_t &head, const keys_t &keys, int block, int end) {
    token_scale_t scale[B];
    float top[ROW_TILES][COLS];
    bool exceeds = false;
    if (block >= end) {
        clear_set(s);
        return false;
    }
    scale_set(s, scale, dots, a, head, keys, block);
    if (is_edge_set<B>(head, keys, block, end - block)) mask_set(s, head, keys, block, end - block);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        top[t][0] = s[0][t][0];
        KG_UNROLL for (int b = 1; b < B; b++) raise_tops(top[t], s[b][t]);
        exceeds |= find_tops(top[t], m, t, s[0][t]);
    }
    exceeds = any(exceeds);
    if (exceeds)
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) alpha[t] =
            raise_column(m[t][0], l[t][0], top[t][0]);
    KG_UNROLL for (int b = 0; b < B; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        scores_to_p(m, l, t, s[b][t]);
        scale_p(s[b][t], scale[b]);
    }
    return exceeds;
}
// As the second product takes them.
template <int B> KG_DEV void pack_set(u32 (&p)[B][4], const float (&s)[B][ROW_TILES][S_REGS]) {
    KG_UNROLL for (int b = 0; b < B; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
        KG_UNROLL for (int n = 0; n < 2; n++) p[b][(t + 2 * n) % 4] =
            pack_compute(s[b][t][2 * n], s[b][t][2 * n + 1]);
}

} // namespace kg

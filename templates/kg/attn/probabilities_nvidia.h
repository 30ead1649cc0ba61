// Scores of a set of keys to probabilities on sm_90, where a lane has them of rows of its own
// (ROWS_OF_A in kg/core/frag_sm90.h): B blocks of a set, all or one.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/attn/softmax.h"

namespace kg {

// A lane asks for scales of one token of every two blocks, and has those of its scores from the
// others: an address takes ten times as long as a shuffle.
template <int B>
KG_DEV void load_set_scales(token_scale_t (&scale)[B], args_t a, const head_t &head,
                            const keys_t &keys, int block) {
    constexpr int AT_ONCE = WAVE / TOK;
    int lane = (int)lane_id();
    KG_UNROLL for (int b = 0; b < B; b += AT_ONCE) {
        int token = block_start(keys, block + smaller(b + lane / TOK, B - 1)) + lane % TOK;
        u32 id = (u32)inside_pool(keys, page_number(keys, token));
        u32 k = bits_of(scale_of_lane(a, head, keys, id, token, true));
        u32 v = bits_of(scale_of_lane(a, head, keys, id, token, false));
        KG_UNROLL for (int n = 0; n < smaller(AT_ONCE, B - b); n++)
            KG_UNROLL for (int r = 0; r < S_REGS; r++) {
            u32 at = (u32)(n * TOK + s_token(lane, r));
            scale[b + n].k[r] = float_of(shuffle(k, at));
            scale[b + n].v[r] = float_of(shuffle(v, at));
        }
    }
}
// BRINGS_SCALES: by those of a block's tokens that lie in LDS. Beside scores that are worked out
// further one at a time, or the compiler asks for all of a set early and spills.
KG_DEV void scale_by_lds(float (&s)[ROW_TILES][S_REGS], const float *scales) {
    if constexpr (!BRINGS_SCALES) return;
    scales += S_REGS * lane_grp((int)lane_id());
    if constexpr (SCALES_LATE) {
        quad_t x = *(const quad_t *)scales;
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int r = 0; r < S_REGS; r++)
            s[t][r] *= x.x[r];
    } else {
        KG_UNROLL for (int r = 0; r < S_REGS; r++) {
            float x = ((const volatile float *)scales)[r];
            KG_UNROLL for (int t = 0; t < ROW_TILES; t++) s[t][r] *= x;
        }
    }
}

// By what scores of a set are lifted (lift_of) where scales lie in LDS, those of values behind
// those of keys: of its tokens the greatest; of those that no row sees they are 0.
constexpr bool LIFTS_SET = LIFTS && BRINGS_SCALES;
static_assert(!LIFTS_SET || !INVARIANT, "what other rows see shows in a row's bits");
template <int B> KG_DEV float lift_of_set(const float *scales) {
    if constexpr (!LIFTS_SET) return 0;
    u32 most = 0; // bits, of which the sign does not count
    KG_UNROLL for (int n = 0; n < B * TOK; n += WAVE) {
        int at = (n + (int)lane_id()) % (B * TOK);
        u32 bits = bits_of(scales[SET_BLOCKS * TOK + at]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return lift_of(max_lanes(float_of(most))).by;
}
template <int B>
KG_DEV void scale_set(float (&s)[B][ROW_TILES][S_REGS], token_scale_t (&scale)[B], args_t a,
                      const head_t &head, const keys_t &keys, int block, const float *scales) {
    if constexpr (LANE_SCALES) load_set_scales(scale, a, head, keys, block);
    KG_UNROLL for (int b = 0; b < B; b++) {
        scale_by_lds(s[b], scales + b * TOK);
        if constexpr (!SCALES_LATE)
            KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
                scale_scores(s[b][t], s[b][t], head, t, block_start(keys, block + b), scale[b]);
    }
}

// Whether some row does not see some key of the blocks, of which the wave's rows see `seen`.
template <int B>
KG_DEV bool is_edge_set(const head_t &head, const keys_t &keys, int block, int seen) {
    if constexpr (RUNS_AHEAD && KEEP == 0) { // one comparison with what stays as it is
        int plain = smaller(block + seen, (head.safe_last + 1) / TOK);
        return block + B > plain || (!SEES_START && block * TOK < head.safe_first);
    }
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

// Several chains: each comparison waits for the one before it.
template <int B>
KG_DEV float top_of(const float (&s)[B][ROW_TILES][S_REGS], int t, const lifts_t (&lifts)[B]) {
    float top[S_REGS];
    KG_UNROLL for (int b = 0; b < B; b++) {
        block_scores_t place;
        const block_scores_t &x = lifted(place, s[b][t], lifts[b]);
        KG_UNROLL for (int r = 0; r < S_REGS; r++) top[r] = b == 0 ? x[r] : fmax(top[r], x[r]);
    }
    return fmax(fmax(top[0], top[1]), fmax(top[2], top[3]));
}

// What products of row tile t are multiplied with as they become probabilities.
KG_DEV float late_scale(const head_t &head, int t) { return SCALES_LATE ? head.scale[t][0] : 1.0f; }
KG_DEV void to_p(const column_t &m, column_t &l, int t, float (&s)[S_REGS], const head_t &head) {
    if constexpr (!SCALES_LATE) return scores_to_p(m, l, t, s);
    float top = m[t][0] == -INFINITE ? 0.0f : m[t][0];
    KG_UNROLL for (int r = 0; r < S_REGS; r++) {
        s[r] = exp2(fma(s[r], head.scale[t][0], -top));
        l[t][0] += s[r];
    }
}
// Whether a wave works out probabilities of a set. Rows of a bounded phase that there are not see
// none of it; where every wave has rows to the end of its row block, or nearly so, what they do not
// see is masked. A branch that is always taken, for the compiler puts what is not in one behind the
// wait for products that follows.
KG_DEV bool weighs_set(int block, int end) { return UNBOUNDED ? block >= 0 : block < end; }

// Of the blocks from `block` on; end: of the blocks that the wave's rows see, without any `s` are
// products. hide(s): of keys that are not there. scales: of tokens, in LDS. True: weighted values
// are to be multiplied with `alpha`.
template <int B, class F>
KG_DEV bool to_probabilities(float (&s)[B][ROW_TILES][S_REGS], float (&alpha)[ROW_TILES],
                             column_t &m, column_t &l, const acc_t (&dots)[ROW_TILES][B], args_t a,
                             const head_t &head, const keys_t &keys, int block, int end,
                             const float *scales, const F &hide) {
    token_scale_t scale[B];
    float top[ROW_TILES][COLS];
    bool exceeds = false;
    // Before any branch: else scores lie in registers of their own.
    KG_UNROLL for (int b = 0; b < B; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
        KG_UNROLL for (int r = 0; r < S_REGS; r++) s[b][t][r] = dots[t][b].x[r];
    if (!weighs_set(block, end)) return false;
    scale_set(s, scale, a, head, keys, block, scales);
    if (is_edge_set<B>(head, keys, block, end - block)) mask_set(s, head, keys, block, end - block);
    hide(s);
    float lift = lift_of_set<B>(scales);
    lifts_t lifts[B];
    if constexpr (LIFTS_EACH) KG_UNROLL for (int b = 0; b < B; b++) lifts[b] = lifts_of(scale[b]);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        top[t][0] = top_of(s, t, lifts) * late_scale(head, t);
        if constexpr (LIFTS_SET) top[t][0] += lift;
        exceeds |= top[t][0] > m[t][0] + RESCALE_AT;
    }
    exceeds = any(exceeds);
    if (exceeds)
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) alpha[t] =
            raise_column(m[t][0], l[t][0], top[t][0]);
    KG_UNROLL for (int b = 0; b < B; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        to_p(m, l, t, s[b][t], head);
        scale_p(s[b][t], scale[b]);
    }
    KG_UNROLL for (int b = 0; b < B; b++) scale_by_lds(s[b], scales + (SET_BLOCKS + b) * TOK);
    return exceeds;
}
template <int B>
KG_DEV bool to_probabilities(float (&s)[B][ROW_TILES][S_REGS], float (&alpha)[ROW_TILES],
                             column_t &m, column_t &l, const acc_t (&dots)[ROW_TILES][B], args_t a,
                             const head_t &head, const keys_t &keys, int block, int end,
                             const float *scales = nullptr) {
    return to_probabilities(s, alpha, m, l, dots, a, head, keys, block, end, scales,
                            [](float(&)[B][ROW_TILES][S_REGS]) {});
}
// As the second product takes them; zeros of a set that it does not weigh.
template <int B>
KG_DEV void pack_set(u32 (&p)[B][4], const float (&s)[B][ROW_TILES][S_REGS], bool weighs) {
    KG_UNROLL for (int b = 0; b < B; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
        KG_UNROLL for (int n = 0; n < 2; n++) p[b][(t + 2 * n) % 4] =
            pack_compute(s[b][t][2 * n], s[b][t][2 * n + 1]);
    if (!weighs) KG_UNROLL for (int n = 0; n < 4 * B; n++) p[n / 4][n % 4] = 0;
}

} // namespace kg

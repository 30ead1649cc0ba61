// Matrix products of the cpu device, by the persona's fragment geometry: lanes
// publish their operands, and each sums its own accumulators in float. See
// mma_amd.h for the contract.
#pragma once
#include "kg/core/frag.h"
#include "kg/attn/split.h"

namespace kg {

constexpr int P_WORDS = S_REGS / 2;
// A tile's accumulators of one lane.
template <int N> struct regs_t {
    float x[N];
    float &operator[](int i) { return x[i]; }
    float operator[](int i) const { return x[i]; }
};
typedef regs_t<O_REGS> acc_t;
typedef regs_t<S_REGS> scores_t;
KG_DEV float score(const scores_t &s, int reg) { return s[reg]; }
KG_DEV void set_score(scores_t &s, int reg, float x) { s[reg] = x; }

KG_DEV float compute_to_f32(u32 word, int half) {
    u32 x = half ? word >> 16 : word & 0xffffu;
    return COMPUTE_F16 ? f16_to_f32_soft(x) : bf16_to_f32(x);
}

// The (i, row) whose key row is `token`.
KG_DEV void owner_of(int token, int &i, int &row) {
    for (i = 0; i < NI; i++)
        for (row = 0; row < KROWS; row++)
            if (k_token(i, row) == token) return;
}

KG_DEV float dot_words(const u32 *a, const u32 *b, int words) {
    float sum = 0;
    for (int w = 0; w < words; w++)
        sum += compute_to_f32(a[w], 0) * compute_to_f32(b[w], 0) +
               compute_to_f32(a[w], 1) * compute_to_f32(b[w], 1);
    return sum;
}

KG_DEV void mma_qk(scores_t &s, const u32 (&k)[KROWS][K_WORDS], const u32 (&q)[K_WORDS]) {
    u32 words[(KROWS + 1) * K_WORDS];
    for (int w = 0; w < KROWS * K_WORDS; w++) words[w] = k[w / K_WORDS][w % K_WORDS];
    for (int w = 0; w < K_WORDS; w++) words[KROWS * K_WORDS + w] = q[w];
    const u32 *all = exchange(words, (KROWS + 1) * K_WORDS);
    int lane = (int)lane_id();
    for (int reg = 0; reg < S_REGS; reg++) {
        int i, row, column = lane_column(lane, reg % COLS);
        owner_of(s_token(lane, reg), i, row);
        for (int grp = 0; grp < NGRP; grp++)
            s[reg] +=
                dot_words(all + lane_at(i, grp) * EXCHANGE_WORDS + row * K_WORDS,
                          all + lane_at(column, grp) * EXCHANGE_WORDS + KROWS * K_WORDS, K_WORDS);
    }
    exchange_done();
}

// Of 16 dims.
KG_DEV float dot_codes(const u32 *key, const u32 *query) {
    float sum = 0;
    for (int w = 0; w < 4; w++) {
        float k[4], high[4], low[4];
        fp8_floats_soft<E4M3_DTYPE>(k, key[w]);
        fp8_floats_soft<E4M3_DTYPE>(high, query[w]);
        fp8_floats_soft<DTYPE_E5M2>(low, query[w + 4]);
        for (int j = 0; j < 4; j++) sum += k[j] * high[j] + k[j] * low[j];
    }
    return sum;
}
template <int N, int W>
KG_DEV void mma_codes(scores_t &s, const u32 (&k)[KROWS][N][W / 2], const u32 (&q)[N][W]) {
    for (int n = 0; n < N; n++) {
        u32 words[KROWS * 4 + 8];
        for (int w = 0; w < KROWS * 4; w++) words[w] = k[w / 4][n][w % 4];
        for (int w = 0; w < 8; w++) words[KROWS * 4 + w] = q[n][w];
        const u32 *all = exchange(words, KROWS * 4 + 8);
        int lane = (int)lane_id();
        for (int reg = 0; reg < S_REGS; reg++) {
            int i, row, column = lane_column(lane, reg % COLS);
            owner_of(s_token(lane, reg), i, row);
            for (int grp = 0; grp < NGRP; grp++)
                s[reg] += dot_codes(all + lane_at(i, grp) * EXCHANGE_WORDS + row * 4,
                                    all + lane_at(column, grp) * EXCHANGE_WORDS + KROWS * 4);
        }
        exchange_done();
    }
}

KG_DEV void mma_pv(acc_t &o, const u32 (&v)[4], const u32 (&p)[P_WORDS]) {
    u32 words[4 + P_WORDS];
    for (int w = 0; w < 4; w++) words[w] = v[w];
    for (int w = 0; w < P_WORDS; w++) words[4 + w] = p[w];
    const u32 *all = exchange(words, 4 + P_WORDS);
    int lane = (int)lane_id();
    for (int reg = 0; reg < O_REGS; reg++) {
        int dim = o_row(lane, reg), column = lane_column(lane, reg % COLS);
        for (int grp = 0; grp < NGRP; grp++)
            o[reg] += dot_words(all + lane_at(dim % NI, grp) * EXCHANGE_WORDS + dim / NI * TPL / 2,
                                all + lane_at(column, grp) * EXCHANGE_WORDS + 4, TPL / 2);
    }
    exchange_done();
}

// Whole operands, of which each lane's half wave has a half (OPERAND_WORDS of kg/core/frag_rdna.h).
KG_DEV void whole_of(u32 (&out)[8], const u32 (&half)[4]) {
    const u32 *all = exchange(half, 4);
    int i = lane_i((int)lane_id());
    for (int w = 0; w < 8; w++) out[w] = all[lane_at(i, w / 4) * EXCHANGE_WORDS + w % 4];
    exchange_done();
}
template <int W> KG_DEV void half_of(u32 (&out)[W / 2], const u32 (&whole)[W]) {
    for (int w = 0; w < W / 2; w++) out[w] = whole[W / 2 * lane_grp((int)lane_id()) + w];
}
template <int W> KG_DEV void mma_qk(scores_t &s, const u32 (&k)[1][W], const u32 (&q)[W]) {
    u32 keys[1][W / 2], query[W / 2];
    half_of<W>(query, q);
    half_of<W>(keys[0], k[0]);
    mma_qk(s, keys, query);
}
template <int W> KG_DEV void mma_qk(scores_t &s, const u32 (&k)[1][W], const u32 (&q)[2 * W]) {
    u32 query[W];
    half_of<2 * W>(query, q);
    mma_qk(s, k, query);
}
template <int W> KG_DEV void mma_pv(acc_t &o, const u32 (&v)[W], const u32 (&p)[W]) {
    u32 values[W / 2], weights[W / 2];
    half_of<W>(values, v);
    half_of<W>(weights, p);
    mma_pv(o, values, weights);
}

// Brings (token, columns) scores into the operand's (column, tokens).
KG_DEV void pack_p(u32 (&out)[P_WORDS], const float (&p)[S_REGS]) {
    u32 words[S_REGS];
    for (int reg = 0; reg < S_REGS; reg++) words[reg] = bits_of(p[reg]);
    const u32 *all = exchange(words, S_REGS);
    int lane = (int)lane_id();
    float mine[TPL] = {};
    for (int other = 0; other < WAVE; other++) {
        for (int reg = 0; reg < S_REGS; reg++) {
            int token = s_token(other, reg) - TPL * lane_grp(lane);
            if (lane_column(other, reg % COLS) == lane_i(lane) && token >= 0 && token < TPL)
                mine[token] = float_of(all[other * EXCHANGE_WORDS + reg]);
        }
    }
    exchange_done();
    for (int w = 0; w < P_WORDS; w++) out[w] = pack_compute(mine[2 * w], mine[2 * w + 1]);
}

} // namespace kg

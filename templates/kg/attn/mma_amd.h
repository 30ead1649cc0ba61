// Matrix products on AMD: MFMA (wave64) and WMMA (wave32).
//
// mma_qk: S[token][column] += K rows x Q columns over one step of head_dim.
// mma_pv: O[16 rows][column] += V^T x P over one block of tokens.
#pragma once
#include "kg/attn/mma_step.h"

namespace kg {

constexpr int P_WORDS = S_REGS / 2;

KG_DEV words4 as_words(const u32 (&x)[4]) { return words4{x[0], x[1], x[2], x[3]}; }
KG_DEV words8 as_words(const u32 (&x)[8]) {
    return words8{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
}

struct scores_t {
    acc_t tile[KROWS];
};
KG_DEV float score(const scores_t &s, int reg) { return s.tile[reg / O_REGS][reg % O_REGS]; }
KG_DEV void set_score(scores_t &s, int reg, float x) { s.tile[reg / O_REGS][reg % O_REGS] = x; }

// W: words of an operand, of which gfx11 takes whole ones as well (OPERAND_WORDS); of the keys KW.
template <int KW, int W>
KG_DEV void mma_qk(scores_t &s, const u32 (&k)[KROWS][KW], const u32 (&q)[W]) {
    KG_UNROLL for (int row = 0; row < KROWS; row++) s.tile[row] =
        mma_tile(s.tile[row], as_words(k[row]), as_words(q));
}

template <int N, int W>
KG_DEV void mma_codes(scores_t &s, const u32 (&k)[KROWS][N][W / 2], const u32 (&q)[N][W]) {
    KG_UNROLL for (int row = 0; row < KROWS; row++) s.tile[row] =
        mma_code_tile(s.tile[row], k[row], q);
}

template <int W> KG_DEV void mma_pv(acc_t &o, const u32 (&v)[W], const u32 (&p)[W]) {
    o = mma_tile(o, as_words(v), as_words(p));
}

// A NaN of a score is in its row's sum as well; one of a token's scale only here, BY_LINES without
// bits that a carry reaches.
KG_DEV void pack_p(u32 (&out)[P_WORDS], const float (&p)[S_REGS]) {
    KG_UNROLL for (int i = 0; i < P_WORDS; i++) out[i] =
        COMPUTE_F16 || (DESCALE == DESCALE_TOKEN && !BY_LINES)
            ? pack_compute(p[2 * i], p[2 * i + 1])
            : pack_bf16_near(p[2 * i], p[2 * i + 1]);
}

} // namespace kg

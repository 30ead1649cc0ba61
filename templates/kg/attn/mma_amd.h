// Matrix products on AMD: MFMA (wave64) and WMMA (wave32).
//
// mma_qk: S[token][column] += K rows x Q columns over one step of head_dim.
// mma_pv: O[16 rows][column] += V^T x P over one block of tokens.
#pragma once
#include "kg/core/frag.h"
#include "kg/attn/attn_num.h"

namespace kg {

constexpr int P_WORDS = S_REGS / 2;

typedef short s16x4_t __attribute__((ext_vector_type(4)));
typedef short s16x8_t __attribute__((ext_vector_type(8)));
typedef short s16x16_t __attribute__((ext_vector_type(16)));
typedef _Float16 f16x4_t __attribute__((ext_vector_type(4)));
typedef _Float16 f16x8_t __attribute__((ext_vector_type(8)));
typedef _Float16 f16x16_t __attribute__((ext_vector_type(16)));
typedef __bf16 bf16x8_t __attribute__((ext_vector_type(8)));
typedef float f32x8_t __attribute__((ext_vector_type(8)));

struct words4 {
    u32 w[4];
};
struct words2 {
    u32 w[2];
};
struct words8 {
    u32 w[8];
};

#if KG_CDNA4
// 16x16x32: lane (i, grp) holds k = 8 grp .. 8 grp + 7
KG_DEV f32x4_t mfma_32(f32x4_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(f16x8_t, a),
                                                      __builtin_bit_cast(f16x8_t, b), c, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8_t, a),
                                                       __builtin_bit_cast(bf16x8_t, b), c, 0, 0, 0);
}
#elif KG_CDNA
KG_DEV f32x4_t mfma_16(f32x4_t c, words2 a, words2 b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(f16x4_t, a),
                                                     __builtin_bit_cast(f16x4_t, b), c, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
            __builtin_bit_cast(s16x4_t, a), __builtin_bit_cast(s16x4_t, b), c, 0, 0, 0);
}
// Two 16x16x16: the same permutation of k in A and B.
KG_DEV f32x4_t mfma_32(f32x4_t c, const words4 &a, const words4 &b) {
    c = mfma_16(c, words2{a.w[0], a.w[1]}, words2{b.w[0], b.w[1]});
    return mfma_16(c, words2{a.w[2], a.w[3]}, words2{b.w[2], b.w[3]});
}
#elif KG_RDNA4
KG_DEV f32x8_t wmma_16(f32x8_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(f16x8_t, a),
                                                                __builtin_bit_cast(f16x8_t, b), c);
    else
        return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(s16x8_t, a),
                                                                 __builtin_bit_cast(s16x8_t, b), c);
}
#else
// gfx11 wants all 16 k in both half waves: fetch the other half's words. The
// order of the halves is free as long as A and B agree.
KG_DEV words8 both_halves(const words4 &x) {
    bool high = lane_id() >= 16;
    words8 all;
    KG_UNROLL for (int i = 0; i < 4; i++) {
        u32 other = __builtin_amdgcn_permlanex16(0, x.w[i], 0x76543210, 0xfedcba98, false, true);
        all.w[i] = high ? other : x.w[i];
        all.w[4 + i] = high ? x.w[i] : other;
    }
    return all;
}
KG_DEV f32x8_t wmma_16(f32x8_t c, const words4 &a, const words4 &b) {
    words8 a16 = both_halves(a), b16 = both_halves(b);
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(f16x16_t, a16),
                                                          __builtin_bit_cast(f16x16_t, b16), c);
    else
        return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(s16x16_t, a16),
                                                           __builtin_bit_cast(s16x16_t, b16), c);
}
#endif

KG_DEV words4 as_words(const u32 (&x)[4]) { return words4{x[0], x[1], x[2], x[3]}; }

// A tile's accumulators of one lane: a vector, so that they stay in adjacent
// registers from one block to the next.
#if KG_CDNA
typedef f32x4_t acc_t;
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) { return mfma_32(c, a, b); }
#else
typedef f32x8_t acc_t;
// The compiler would prepare the operands of many tiles at once, and move the
// products behind the next branch while their lane exchanges stay before it;
// this register file cannot hold that. So tile by tile, where written.
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    c = wmma_16(c, a, b);
    asm volatile("" : "+v"(c));
    __builtin_amdgcn_sched_barrier(0);
    return c;
}
#endif

struct scores_t {
    acc_t tile[KROWS];
};
KG_DEV float score(const scores_t &s, int reg) { return s.tile[reg / O_REGS][reg % O_REGS]; }

KG_DEV void mma_qk(scores_t &s, const u32 (&k)[KROWS][K_WORDS], const u32 (&q)[K_WORDS]) {
    KG_UNROLL for (int row = 0; row < KROWS; row++) s.tile[row] =
        mma_tile(s.tile[row], as_words(k[row]), as_words(q));
}

KG_DEV void mma_pv(acc_t &o, const u32 (&v)[4], const u32 (&p)[P_WORDS]) {
    o = mma_tile(o, as_words(v), as_words(p));
}

KG_DEV void pack_p(u32 (&out)[P_WORDS], const float (&p)[S_REGS]) {
    KG_UNROLL for (int i = 0; i < P_WORDS; i++) out[i] = pack_compute(p[2 * i], p[2 * i + 1]);
}

} // namespace kg

// MFMA of CDNA1.
#pragma once
#include "kg/attn/mma_words.h"

namespace kg {

typedef short s16x2_t __attribute__((ext_vector_type(2)));

// Products of fp16 have 16 k, those of bf16 8: the same permutation of k in A and B.
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16) {
        KG_UNROLL for (int i = 0; i < 4; i += 2) c = __builtin_amdgcn_mfma_f32_16x16x16f16(
            __builtin_bit_cast(f16x4_t, words2{a.w[i], a.w[i + 1]}),
            __builtin_bit_cast(f16x4_t, words2{b.w[i], b.w[i + 1]}), c, 0, 0, 0);
    } else {
        KG_UNROLL for (int i = 0; i < 4; i++) c = __builtin_amdgcn_mfma_f32_16x16x8bf16(
            __builtin_bit_cast(s16x2_t, a.w[i]), __builtin_bit_cast(s16x2_t, b.w[i]), c, 0, 0, 0);
    }
    return c;
}

} // namespace kg

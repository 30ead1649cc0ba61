// MFMA of CDNA2 and CDNA3.
#pragma once
#include "kg/attn/mma_codes_amd.h"

namespace kg {

KG_DEV acc_t mfma_16(acc_t c, words2 a, words2 b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(f16x4_t, a),
                                                     __builtin_bit_cast(f16x4_t, b), c, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
            __builtin_bit_cast(s16x4_t, a), __builtin_bit_cast(s16x4_t, b), c, 0, 0, 0);
}
// Two 16x16x16: the same permutation of k in A and B.
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    c = mfma_16(c, words2{a.w[0], a.w[1]}, words2{b.w[0], b.w[1]});
    return mfma_16(c, words2{a.w[2], a.w[3]}, words2{b.w[2], b.w[3]});
}

} // namespace kg

// MFMA of CDNA4.
#pragma once
#include "kg/attn/mma_words.h"

namespace kg {

// 16x16x32: lane (i, grp) holds k = 8 grp .. 8 grp + 7
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(f16x8_t, a),
                                                      __builtin_bit_cast(f16x8_t, b), c, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8_t, a),
                                                       __builtin_bit_cast(bf16x8_t, b), c, 0, 0, 0);
}

} // namespace kg

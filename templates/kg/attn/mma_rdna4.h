// WMMA of gfx12.
#pragma once
#include "kg/attn/mma_rdna.h"

namespace kg {

KG_DEV acc_t wmma_16(acc_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(f16x8_t, a),
                                                                __builtin_bit_cast(f16x8_t, b), c);
    else
        return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(s16x8_t, a),
                                                                 __builtin_bit_cast(s16x8_t, b), c);
}
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    return where_written(wmma_16(c, a, b));
}

} // namespace kg

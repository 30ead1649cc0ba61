// Four 8-bit floats of a word out of floats, where the isa has
// instructions for the format. They do not saturate: what is too large is
// clamped first, and NaN has no sign.
#pragma once
#include "kg/core/fp8_isa_amd.h"
#include "kg/kv/kv_fp8_soft.h"

namespace kg {

KG_DEV float clamp_fp8(float x) {
    constexpr float most = FP8_DTYPE == DTYPE_E5M2     ? 57344.0f
                           : FP8_DTYPE == DTYPE_E4M3FN ? 448.0f
                                                       : 240.0f;
    return x == x ? __builtin_amdgcn_fmed3f(x, -most, most) : float_of(0x7fc00000u);
}

KG_DEV u32 fp8_codes(const float (&x)[4]) {
#if KG_FP8_CONVERSIONS
    if constexpr (HAS_FP8<FP8_DTYPE>) {
        float c[4];
        KG_UNROLL for (int i = 0; i < 4; i++) c[i] = clamp_fp8(x[i]);
        return f32_to_fp8<FP8_DTYPE>(c);
    }
#endif
    return fp8_codes_soft(x);
}

} // namespace kg

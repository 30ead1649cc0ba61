// Four 8-bit floats of a word to floats and back, where the isa has
// instructions for the format. They do not saturate: what is too large is
// clamped first, and NaN has no sign.
#pragma once
#include "kg/kv/kv_fp8_soft.h"

namespace kg {

constexpr bool HAS_E4M3 =
    (KG_CDNA3 || KG_CDNA4 || KG_RDNA4) && FP8_DTYPE == (KG_CDNA3 ? DTYPE_E4M3FNUZ : DTYPE_E4M3FN);
constexpr bool HAS_E5M2 = (KG_CDNA4 || KG_RDNA4) && FP8_DTYPE == DTYPE_E5M2;

KG_DEV float clamp_fp8(float x) {
    constexpr float most = FP8_DTYPE == DTYPE_E5M2     ? 57344.0f
                           : FP8_DTYPE == DTYPE_E4M3FN ? 448.0f
                                                       : 240.0f;
    return x == x ? __builtin_amdgcn_fmed3f(x, -most, most) : float_of(0x7fc00000u);
}

KG_DEV u32 fp8_codes(const float (&x)[4]) {
#if KG_CDNA3 || KG_CDNA4 || KG_RDNA4
    float c[4];
    KG_UNROLL for (int i = 0; i < 4; i++) c[i] = clamp_fp8(x[i]);
    if constexpr (HAS_E4M3) {
        u32 lo = (u32)__builtin_amdgcn_cvt_pk_fp8_f32(c[0], c[1], 0, false);
        return (u32)__builtin_amdgcn_cvt_pk_fp8_f32(c[2], c[3], (i32)lo, true);
    } else if constexpr (HAS_E5M2) {
        u32 lo = (u32)__builtin_amdgcn_cvt_pk_bf8_f32(c[0], c[1], 0, false);
        return (u32)__builtin_amdgcn_cvt_pk_bf8_f32(c[2], c[3], (i32)lo, true);
    }
#endif
    return fp8_codes_soft(x);
}

KG_DEV void fp8_values(float (&out)[4], u32 word) {
#if KG_CDNA3 || KG_CDNA4 || KG_RDNA4
    if constexpr (HAS_E4M3 || HAS_E5M2) {
        f32x2_t lo, hi;
        if constexpr (HAS_E5M2) {
            lo = __builtin_amdgcn_cvt_pk_f32_bf8((i32)word, false);
            hi = __builtin_amdgcn_cvt_pk_f32_bf8((i32)word, true);
        } else {
            lo = __builtin_amdgcn_cvt_pk_f32_fp8((i32)word, false);
            hi = __builtin_amdgcn_cvt_pk_f32_fp8((i32)word, true);
        }
        out[0] = lo.x, out[1] = lo.y, out[2] = hi.x, out[3] = hi.y;
        return;
    }
#endif
    fp8_values_soft(out, word);
}

} // namespace kg

// 8-bit floats that an AMD isa has instructions for, four of a word at a time.
#pragma once
#include "kg/core/machine.h"

namespace kg {

template <int DTYPE>
constexpr bool HAS_E4M3 =
    (CONVERTS_E4M3FN && DTYPE == DTYPE_E4M3FN) || (CONVERTS_E4M3FNUZ && DTYPE == DTYPE_E4M3FNUZ);
template <int DTYPE> constexpr bool HAS_E5M2 = CONVERTS_E5M2 && DTYPE == DTYPE_E5M2;
template <int DTYPE> constexpr bool HAS_FP8 = HAS_E4M3<DTYPE> || HAS_E5M2<DTYPE>;

#if KG_FP8_CONVERSIONS
template <int DTYPE> KG_DEV void fp8_to_f32(float (&out)[4], u32 word) {
    f32x2_t lo, hi;
    if constexpr (HAS_E5M2<DTYPE>) {
        lo = __builtin_amdgcn_cvt_pk_f32_bf8((i32)word, false);
        hi = __builtin_amdgcn_cvt_pk_f32_bf8((i32)word, true);
    } else {
        lo = __builtin_amdgcn_cvt_pk_f32_fp8((i32)word, false);
        hi = __builtin_amdgcn_cvt_pk_f32_fp8((i32)word, true);
    }
    out[0] = lo.x, out[1] = lo.y, out[2] = hi.x, out[3] = hi.y;
}

#if KG_FP8_PAIRS
template <int DTYPE> KG_DEV void fp8_to_bf16(u32 (&out)[2], u32 word) {
    if constexpr (HAS_E5M2<DTYPE>) {
        out[0] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_bf8(word, 1, false));
        out[1] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_bf8(word, 1, true));
    } else {
        out[0] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1, false));
        out[1] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(word, 1, true));
    }
}
#endif

// They do not saturate, and NaN must have no sign: x is such.
template <int DTYPE> KG_DEV u32 f32_to_fp8(const float (&x)[4]) {
    if constexpr (HAS_E5M2<DTYPE>) {
        u32 lo = (u32)__builtin_amdgcn_cvt_pk_bf8_f32(x[0], x[1], 0, false);
        return (u32)__builtin_amdgcn_cvt_pk_bf8_f32(x[2], x[3], (i32)lo, true);
    } else {
        u32 lo = (u32)__builtin_amdgcn_cvt_pk_fp8_f32(x[0], x[1], 0, false);
        return (u32)__builtin_amdgcn_cvt_pk_fp8_f32(x[2], x[3], (i32)lo, true);
    }
}
#endif

} // namespace kg

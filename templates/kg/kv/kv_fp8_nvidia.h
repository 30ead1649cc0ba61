// Four 8-bit floats of a word to floats and back. The conversions saturate.
#pragma once
#include "kg/kv/kv_fp8_soft.h"

namespace kg {

KG_DEV u32 fp8_codes(const float (&x)[4]) {
    u16 lo, hi;
    if constexpr (FP8_DTYPE == DTYPE_E4M3FN) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(lo) : "f"(x[1]), "f"(x[0]));
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(hi) : "f"(x[3]), "f"(x[2]));
        return (u32)hi << 16 | lo;
    } else if constexpr (FP8_DTYPE == DTYPE_E5M2) {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(lo) : "f"(x[1]), "f"(x[0]));
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(hi) : "f"(x[3]), "f"(x[2]));
        return (u32)hi << 16 | lo;
    } else {
        return fp8_codes_soft(x);
    }
}

KG_DEV void fp8_values(float (&out)[4], u32 word) {
    u32 half[2];
    u16 lo = (u16)word, hi = (u16)(word >> 16);
    if constexpr (FP8_DTYPE == DTYPE_E4M3FNUZ) {
        fp8_values_soft(out, word);
        return;
    } else if constexpr (FP8_DTYPE == DTYPE_E5M2) {
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(half[0]) : "h"(lo));
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(half[1]) : "h"(hi));
    } else {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(half[0]) : "h"(lo));
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(half[1]) : "h"(hi));
    }
    KG_UNROLL for (int i = 0; i < 4; i++) out[i] =
        f16_to_f32(half[i / 2] >> 16 * (i % 2) & 0xffffu);
}

} // namespace kg

// Four 8-bit floats of a word out of floats. The conversions saturate.
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

} // namespace kg

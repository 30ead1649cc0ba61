// Four 8-bit floats of a word to floats, by way of fp16, which has all their values.
#pragma once
#include "kg/core/fp8_read_soft.h"

namespace kg {

template <int DTYPE> KG_DEV void fp8_values(float (&out)[4], u32 word) {
    u32 half[2];
    u16 lo = (u16)word, hi = (u16)(word >> 16);
    if constexpr (DTYPE == DTYPE_E4M3FNUZ) {
        fp8_values_soft<DTYPE>(out, word);
        return;
    } else if constexpr (DTYPE == DTYPE_E5M2) {
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

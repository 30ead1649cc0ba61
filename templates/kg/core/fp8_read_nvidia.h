// Four 8-bit floats of a word to floats, by way of fp16, which has all their values.
#pragma once
#include "kg/core/fp8_read_soft.h"

namespace kg {

// To pairs of fp16; not of e4m3fnuz. In one piece: the compiler then takes the upper half of a
// register where it lies.
#define KG_FP8_PAIRS_OF(TYPE)                                                            \
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2." TYPE " %0, low; " \
        "cvt.rn.f16x2." TYPE " %1, high;}"                                               \
        : "=r"(out[0]), "=r"(out[1])                                                     \
        : "r"(word))
template <int DTYPE> KG_DEV void fp8_pairs(u32 (&out)[2], u32 word) {
    if constexpr (DTYPE == DTYPE_E5M2)
        KG_FP8_PAIRS_OF("e5m2x2");
    else
        KG_FP8_PAIRS_OF("e4m3x2");
}

template <int DTYPE> KG_DEV void fp8_values(float (&out)[4], u32 word) {
    if constexpr (DTYPE == DTYPE_E4M3FNUZ) {
        fp8_values_soft<DTYPE>(out, word);
    } else {
        u32 half[2];
        fp8_pairs<DTYPE>(half, word);
        KG_UNROLL for (int i = 0; i < 4; i++) out[i] =
            f16_to_f32(half[i / 2] >> 16 * (i % 2) & 0xffffu);
    }
}

} // namespace kg

// Four 8-bit floats of a word to floats, in integer arithmetic.
#pragma once
#include "kg/core/machine.h"

namespace kg {

template <int DTYPE> KG_DEV void fp8_values_soft(float (&out)[4], u32 word) {
    KG_UNROLL for (int i = 0; i < 4; i++) out[i] = fp8_to_f32_soft<DTYPE>(word >> 8 * i & 255u);
}

} // namespace kg

// Four 8-bit floats of a word to floats and back, in integer arithmetic.
#pragma once
#include "kg/core/machine.h"
#include "kg/kv/kv_types.h"

namespace kg {

constexpr int FP8_DTYPE =
    KV_DTYPE == DTYPE_E4M3FNUZ || KV_DTYPE == DTYPE_E5M2 ? KV_DTYPE : DTYPE_E4M3FN;

KG_DEV u32 fp8_codes_soft(const float (&x)[4]) {
    return fp8_soft<FP8_DTYPE>(x[0]) | fp8_soft<FP8_DTYPE>(x[1]) << 8 |
           fp8_soft<FP8_DTYPE>(x[2]) << 16 | fp8_soft<FP8_DTYPE>(x[3]) << 24;
}

KG_DEV void fp8_values_soft(float (&out)[4], u32 word) {
    KG_UNROLL for (int i = 0; i < 4; i++) out[i] = fp8_to_f32_soft<FP8_DTYPE>(word >> 8 * i & 255u);
}

} // namespace kg

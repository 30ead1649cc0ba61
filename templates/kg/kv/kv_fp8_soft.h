// Four 8-bit floats of a word out of floats, in integer arithmetic.
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

} // namespace kg

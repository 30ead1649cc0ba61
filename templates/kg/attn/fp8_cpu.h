// Cached 8-bit floats to the COMPUTE type: always in integer arithmetic here. And what
// integers need.
#pragma once
#include "kg/attn/attn_types.h"
#include "kg/core/machine.h"

namespace kg {

constexpr bool NATIVE_FP8 = false;
KG_DEV u32 pack_exact(float a, float b) { return COMPUTE_F16 ? pack_f16(a, b) : pack_bf16(a, b); }

// Of pairs.
KG_DEV u32 add_f16(u32 a, u32 b) {
    return pack_f16(f16_to_f32(a & 0xffffu) + f16_to_f32(b & 0xffffu),
                    f16_to_f32(a >> 16) + f16_to_f32(b >> 16));
}

// a * b + c
KG_DEV u32 fma_f16(u32 a, u32 b, u32 c) {
    return pack_f16(f16_to_f32(a & 0xffffu) * f16_to_f32(b & 0xffffu) + f16_to_f32(c & 0xffffu),
                    f16_to_f32(a >> 16) * f16_to_f32(b >> 16) + f16_to_f32(c >> 16));
}
KG_DEV u32 add_bf16(u32 a, u32 b) {
    return pack_bf16(bf16_to_f32(a & 0xffffu) + bf16_to_f32(b & 0xffffu),
                     bf16_to_f32(a >> 16) + bf16_to_f32(b >> 16));
}

KG_DEV void fp8_native(u32 (&out)[2], u32 x) { out[0] = out[1] = x; }

constexpr bool TURNS_FLOATS = false; // values turn when they are COMPUTE pairs
KG_DEV void fp8_floats(float (&out)[4], u32 x) { fp8_floats_soft<KV_FLOAT>(out, x); }

// x = DTYPE + e5m2
template <int DTYPE> KG_DEV void split_floats(u32 &high, u32 &low, const float (&x)[4]) {
    high = low = 0;
    for (int i = 0; i < 4; i++) {
        u32 code = fp8_soft<DTYPE>(x[i]);
        high |= code << 8 * i;
        low |= fp8_soft<DTYPE_E5M2>(x[i] - fp8_to_f32_soft<DTYPE>(code)) << 8 * i;
    }
}

} // namespace kg

// Cached 8-bit floats to the COMPUTE type: fp16 here (kg/attn/attn_types.h). And what
// integers need.
#pragma once
#include "kg/attn/attn_types.h"
#include "kg/core/fp8_read.h"
#include "kg/core/machine.h"

namespace kg {

constexpr bool NATIVE_FP8 = KV_DTYPE == DTYPE_E4M3FN || KV_DTYPE == DTYPE_E5M2;

KG_DEV u32 pack_exact(float a, float b) { return COMPUTE_F16 ? pack_f16(a, b) : pack_bf16(a, b); }

// Of pairs.
KG_DEV u32 add_f16(u32 a, u32 b) {
    u32 x;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

// a * b + c
KG_DEV u32 fma_f16(u32 a, u32 b, u32 c) {
    u32 x;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
    return x;
}
KG_DEV u32 add_bf16(u32 a, u32 b) {
    u32 x;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

KG_DEV void fp8_native(u32 (&out)[2], u32 x) { fp8_pairs<KV_FLOAT>(out, x); }

constexpr bool TURNS_FLOATS = false; // values turn when they are COMPUTE pairs
KG_DEV void fp8_floats(float (&out)[4], u32 x) { fp8_floats_soft<KV_FLOAT>(out, x); }

} // namespace kg

// Cached integers to the COMPUTE type, which holds each of them exactly.
#pragma once
#include "kg/attn/fp8.h"

namespace kg {

// Four int8. What has wave64 takes a byte out of a word as it converts; elsewhere an
// integer becomes a number in the low bits of a power of two.
KG_DEV void int8_values(float (&out)[4], u32 x) {
    KG_UNROLL for (u32 i = 0; i < 4; i++) {
        if constexpr (WAVE == 64)
            out[i] = (float)((i32)(x << (24 - 8 * i)) >> 24);
        else // 2^23 + 128 + x
            out[i] = float_of(byte_perm(x ^ 0x80808080u, 0x4b000000u, 0x07040400 | i)) - 8388736.0f;
    }
}

// To two words of COMPUTE pairs, in order.
KG_DEV void int8_to_compute(u32 (&out)[2], u32 x) {
    if constexpr (COMPUTE_F16) {
        u32 u = x ^ 0x80808080u; // 1024 + 128 + x
        out[0] = add_f16(byte_perm(u, 0x64646464u, 0x04010400), 0xe480e480u);
        out[1] = add_f16(byte_perm(u, 0x64646464u, 0x04030402), 0xe480e480u);
    } else {
        float f[4];
        int8_values(f, x);
        out[0] = pack_exact(f[0], f[1]);
        out[1] = pack_exact(f[2], f[3]);
    }
}

} // namespace kg

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

// Eight int4, + 8 each, to four words of pairs: words have elements j and j + 4, which
// lie 16 bits apart. All that meet them are in this order, too.
KG_DEV void int4_to_compute(u32 (&out)[4], u32 x) {
    if constexpr (COMPUTE_F16) { // 1024 + 8 + x
        KG_UNROLL for (int j = 0; j < 4; j++) out[j] =
            add_f16((x >> 4 * j & 0x000f000fu) | 0x64006400u, 0xe408e408u);
    } else {
        u32 even = x & 0x0f0f0f0fu, odd = x >> 4 & 0x0f0f0f0fu;
        float f[8];
        KG_UNROLL for (u32 i = 0; i < 8; i++) {
            u32 from = i % 2 ? odd : even;
            if constexpr (WAVE == 64)
                f[i] = (float)(from >> i / 2 * 8 & 255u) - 8.0f;
            else // 2^23 + 8 + x
                f[i] = float_of(byte_perm(from, 0x4b000000u, 0x07040400 | i / 2)) - 8388616.0f;
        }
        KG_UNROLL for (int j = 0; j < 4; j++) out[j] = pack_exact(f[j], f[j + 4]);
    }
}

} // namespace kg

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

// Four int8 as pairs of fp16, 1024 + 128 too great, in order.
constexpr u32 INT8_ZEROS = 0x64806480;
KG_DEV void int8_biased(u32 (&out)[2], u32 x) {
    u32 u = x ^ 0x80808080u;
    out[0] = byte_perm(u, 0x64646464u, 0x04010400);
    out[1] = byte_perm(u, 0x64646464u, 0x04030402);
}

// To two words of COMPUTE pairs, in order.
KG_DEV void int8_to_compute(u32 (&out)[2], u32 x) {
    if constexpr (COMPUTE_F16) {
        int8_biased(out, x);
        KG_UNROLL for (int i = 0; i < 2; i++) out[i] = add_f16(out[i], INT8_ZEROS ^ 0x80008000u);
    } else if constexpr (BRINGERS != 0) {
        // 128 + the low bits, less 128, or 256 where the sign is set. Elsewhere it is slower.
        KG_UNROLL for (u32 i = 0; i < 2; i++) {
            u32 bits = byte_perm(x, 0, 0x04010400 | i * 0x00020002);
            out[i] =
                add_bf16((bits & 0x007f007fu) | 0x43004300u, (bits & 0x00800080u) | 0xc300c300u);
        }
    } else {
        float f[4];
        int8_values(f, x);
        out[0] = pack_exact(f[0], f[1]);
        out[1] = pack_exact(f[2], f[3]);
    }
}

// int4 enters products as bf16, 128 + 8 too great, where no instruction takes that off: sums are
// corrected instead, by what this word of two gives in place of keys, and of values.
constexpr bool EXCEEDS = KV_4BIT && !COMPUTE_F16 && !BUFFERED && !IS_SM90;
constexpr u32 EXCESS = 0x43084308;

// Eight int4, + 8 each, as floats, INT4_UP times as great: what has wave64 takes them as the
// upper halves of signed bytes.
constexpr bool INT4_IN_ORDER = BY_LINES && !COMPUTE_F16;
constexpr float INT4_UP = WAVE == 64 && KV_4BIT && INT4_IN_ORDER ? 16 : 1;
KG_DEV void int4_values(float (&out)[8], u32 x) {
    u32 odd = x >> 4 & 0x0f0f0f0fu, even = x & 0x0f0f0f0fu;
    if constexpr (WAVE == 64) {
        u32 s = x ^ 0x88888888u;
        odd = s & 0xf0f0f0f0u, even = s << 4 & 0xf0f0f0f0u;
    }
    KG_UNROLL for (u32 i = 0; i < 8; i++) {
        u32 from = i % 2 ? odd : even;
        if constexpr (WAVE == 64)
            out[i] = (float)((i32)(from << (24 - i / 2 * 8)) >> 24);
        else // 2^23 + 8 + x
            out[i] = float_of(byte_perm(from, 0x4b000000u, 0x07040400 | i / 2)) - 8388616.0f;
    }
}

// Eight int4, + 8 each, to four words of pairs: in order where that costs nothing, for lines;
// else words have elements j and j + 4, which lie 16 bits apart, and all that meet them are in
// this order, too.
KG_DEV void int4_to_compute(u32 (&out)[4], u32 x) {
    if constexpr (INT4_IN_ORDER) {
        float f[8];
        int4_values(f, x);
        KG_UNROLL for (int j = 0; j < 4; j++) out[j] = pack_exact(f[2 * j], f[2 * j + 1]);
        return;
    }
    if constexpr (COMPUTE_F16) { // 1024 + 8 + x, and 16 times the 64 + 8 + x above it
        KG_UNROLL for (int j = 0; j < 4; j += 2) {
            u32 bits = x >> 4 * j;
            out[j] = add_f16((bits & 0x000f000fu) | 0x64006400u, 0xe408e408u);
            out[j + 1] = fma_f16((bits & 0x00f000f0u) | 0x64006400u, 0x2c002c00u, 0xd480d480u);
        }
        return;
    }
    KG_UNROLL for (int j = 0; j < 4; j++) {
        u32 bits = x >> 4 * j & 0x000f000fu;
        if constexpr (EXCEEDS)
            out[j] = bits | 0x43004300u;
        else
            out[j] = add_bf16(bits | 0x43004300u, EXCESS ^ 0x80008000u);
    }
}

// The same in order, where an instruction takes pairs.
KG_DEV void int4_in_order(u32 (&out)[4], u32 x) {
    u32 odd = x >> 4;
    KG_UNROLL for (u32 j = 0; j < 4; j++) {
        u32 bits = byte_perm(x, odd, 0x04040000 | j * 0x01010101) & 0x000f000fu;
        out[j] = COMPUTE_F16 ? add_f16(bits | 0x64006400u, 0xe408e408u)
                             : add_bf16(bits | 0x43004300u, EXCESS ^ 0x80008000u);
    }
}

} // namespace kg

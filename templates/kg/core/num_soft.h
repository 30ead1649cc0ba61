// Conversions in integer arithmetic: for isas without the instruction, and for
// outputs, where every target must round alike.
#pragma once
#include "kg/core/types.h"
#include "kg/core/macros.h"

namespace kg {

KG_DEV u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
KG_DEV float float_of(u32 x) { return __builtin_bit_cast(float, x); }
KG_DEV float bf16_to_f32(u32 x) { return float_of(x << 16); }

// Round to nearest even; NaN stays NaN.
KG_DEV u32 bf16_soft(float x) {
    u32 u = bits_of(x);
    u32 rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : rounded;
}
// The same into the upper half, in two instructions: of a NaN with more than 16 bits it
// may make a number.
KG_DEV u32 round_to_upper(float x) { return bits_of(x) + 0x7fffu + (bits_of(x) >> 16 & 1); }
// The same in one: what lies in the middle goes away from zero.
KG_DEV u32 near_upper(float x) { return bits_of(x) + 0x8000u; }
constexpr u32 SHORT_NAN = 0x7fc00000u;
// A NaN that still is one when it is rounded by an addition.
KG_DEV float short_nan(float x) { return x == x ? x : float_of(SHORT_NAN); }
KG_DEV u32 pack_bf16_soft(float a, float b) { return bf16_soft(a) | bf16_soft(b) << 16; }

// A float rounded to `mant` mantissa bits of a format whose least normal
// exponent is `low`, as the integer (exponent, mantissa) code without sign.
// Rounding to nearest even happens by adding a power of two.
KG_DEV u32 small_float_code(float magnitude, int mant, int low) {
    u32 u = bits_of(magnitude);
    int exponent = (int)(u >> 23) - 127;
    if (exponent < low) {
        float scaled = magnitude * float_of((u32)(mant - low + 127) << 23);
        float rounded = scaled + 8388608.0f;
        return bits_of(rounded) & 0xffffu;
    }
    u32 shift = 23 - (u32)mant;
    u32 round = u + ((1u << (shift - 1)) - 1) + (u >> shift & 1);
    return (round >> shift) - ((u32)(low - 1 + 127) << mant);
}

KG_DEV u32 f16_soft(float x) {
    u32 sign = bits_of(x) >> 16 & 0x8000u;
    float magnitude = float_of(bits_of(x) & 0x7fffffffu);
    if (!(magnitude <= 3.4e38f)) return sign | (magnitude != magnitude ? 0x7e00u : 0x7c00u);
    u32 code = small_float_code(magnitude, 10, -14);
    return sign | (code > 0x7c00u ? 0x7c00u : code);
}

KG_DEV float f16_to_f32_soft(u32 x) {
    u32 sign = (x & 0x8000u) << 16, body = x & 0x7fffu;
    float magnitude = float_of(body << 13) * float_of((u32)(127 + 112) << 23);
    u32 special = 0x7f800000u | (body & 0x3ffu) << 13;
    return float_of(sign | (body >= 0x7c00u ? special : bits_of(magnitude)));
}

// 8-bit formats: mantissa bits, least normal exponent, greatest code, NaN code.
template <int DTYPE> struct fp8_format;
template <> struct fp8_format<DTYPE_E4M3FN> {
    static constexpr int mant = 3, low = -6;
    static constexpr u32 top = 0x7e, nan = 0x7f;
};
template <> struct fp8_format<DTYPE_E4M3FNUZ> {
    static constexpr int mant = 3, low = -7;
    static constexpr u32 top = 0x7f, nan = 0x80;
};
template <> struct fp8_format<DTYPE_E5M2> {
    static constexpr int mant = 2, low = -14;
    static constexpr u32 top = 0x7b, nan = 0x7f;
};

// Round to nearest even, saturating; fnuz has no negative zero.
template <int DTYPE> KG_DEV u32 fp8_soft(float x) {
    typedef fp8_format<DTYPE> format;
    u32 sign = bits_of(x) >> 24 & 0x80u;
    float magnitude = float_of(bits_of(x) & 0x7fffffffu);
    if (magnitude != magnitude) return format::nan;
    u32 code = magnitude < 1e6f ? small_float_code(magnitude, format::mant, format::low) : 0xffu;
    code = code > format::top ? format::top : code;
    return DTYPE == DTYPE_E4M3FNUZ && code == 0 ? 0 : sign | code;
}

template <int DTYPE> KG_DEV float fp8_to_f32_soft(u32 x) {
    typedef fp8_format<DTYPE> format;
    constexpr u32 bias = (u32)(127 + 126 + format::low);
    u32 body = x & 0x7fu;
    float magnitude = float_of(body << (23 - format::mant)) * float_of(bias << 23);
    u32 bits = (x & 0x80u) << 24 | bits_of(magnitude);
    if (DTYPE == DTYPE_E4M3FNUZ) return float_of(x == 0x80u ? 0x7fc00000u : bits);
    if (DTYPE == DTYPE_E4M3FN) return float_of(body == 0x7fu ? 0x7fc00000u : bits);
    u32 special = (x & 0x80u) << 24 | 0x7f800000u | (body & 3u) << 21;
    return float_of(body >= 0x7cu ? special : bits);
}
template <int DTYPE> KG_DEV void fp8_floats_soft(float (&out)[4], u32 x) {
    KG_UNROLL for (int i = 0; i < 4; i++) out[i] = fp8_to_f32_soft<DTYPE>(x >> 8 * i & 255u);
}

} // namespace kg

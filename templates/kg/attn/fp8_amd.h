// Cached 8-bit floats to the COMPUTE type, where an isa has instructions for it, and
// what integers need.
#pragma once
#include "kg/attn/attn_types.h"
#include "kg/core/fp8_isa_amd.h"

namespace kg {

constexpr bool NATIVE_FP8 = HAS_FP8<KV_DTYPE>;

KG_DEV u32 pack_exact(float a, float b) {
    if constexpr (COMPUTE_F16) return __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pkrtz(a, b));
    return byte_perm(__builtin_bit_cast(u32, a), __builtin_bit_cast(u32, b), 0x07060302);
}

// gfx950 makes bf16 of pairs at once.
constexpr bool CONVERTS_PAIRS = NATIVE_FP8 && !COMPUTE_F16 && KG_FP8_PAIRS;

// Of pairs.
KG_DEV u32 add_f16(u32 a, u32 b) {
    return __builtin_bit_cast(u32, __builtin_bit_cast(f16x2_t, a) + __builtin_bit_cast(f16x2_t, b));
}

// a * b + c
KG_DEV u32 fma_f16(u32 a, u32 b, u32 c) {
    return __builtin_bit_cast(u32, __builtin_elementwise_fma(__builtin_bit_cast(f16x2_t, a),
                                                             __builtin_bit_cast(f16x2_t, b),
                                                             __builtin_bit_cast(f16x2_t, c)));
}
// Of gfx1250 alone an instruction.
KG_DEV u32 add_bf16(u32 a, u32 b) {
    return __builtin_bit_cast(u32,
                              __builtin_bit_cast(bf16x2_t, a) + __builtin_bit_cast(bf16x2_t, b));
}

// Four 8-bit floats to two words of COMPUTE pairs.
KG_DEV void fp8_native(u32 (&out)[2], u32 x) {
    // From a copy, so that the four loaded together may lie anywhere.
    if constexpr (CONVERTS_LOW) asm("v_mov_b32 %0, %1" : "=v"(x) : "v"(x));
#if KG_FP8_PAIRS
    if constexpr (CONVERTS_PAIRS) return fp8_to_bf16<KV_DTYPE>(out, x);
#endif
#if KG_FP8_CONVERSIONS
    float f[4];
    fp8_to_f32<KV_DTYPE>(f, x);
    out[0] = pack_exact(f[0], f[1]);
    out[1] = pack_exact(f[2], f[3]);
#else
    out[0] = out[1] = x;
#endif
}

// Values are turned as floats: to pick a dim of two tokens packs it as well.
constexpr bool TURNS_FLOATS = NATIVE_FP8 && !COMPUTE_F16 && !CONVERTS_PAIRS && !CONVERTS_LOW;

// Two codes, each the upper byte of a half, as fp16: e5m2 is one without its lower bits;
// e4m3 has an exponent of fewer bits, so that what the bits say is 256 times too small, or 128
// times (fnuz).
KG_DEV u32 f16_of_bodies(u32 bodies, float up) {
    _Float16 by = (_Float16)up;
    f16x2_t value = __builtin_bit_cast(f16x2_t, bodies) * (f16x2_t){by, by};
    return __builtin_bit_cast(u32, value) & 0x7fff7fffu;
}
KG_DEV u32 f16_of_codes(u32 codes) {
    if constexpr (KV_FLOAT == DTYPE_E5M2) return codes;
    u32 body = codes >> 1 & 0x3f803f80u, sign = codes & 0x80008000u;
    if constexpr (KV_FLOAT == DTYPE_E4M3FNUZ) { // NaN is the zero that has a sign
        u32 some = (codes & 0x7f007f00u) + 0x7f007f00u, nan = sign & ~some;
        return sign | f16_of_bodies(body, 128) | (nan - (nan >> 6));
    }
    body |= (body + 0x00800080u) & 0x40004000u; // NaN is the greatest body: one more carries
    return sign | f16_of_bodies(body, 256);
}

KG_DEV void fp8_floats(float (&out)[4], u32 x) {
#if KG_FP8_CONVERSIONS
    if constexpr (NATIVE_FP8) return fp8_to_f32<KV_DTYPE>(out, x);
#endif
    u32 low = f16_of_codes(byte_perm(x, x, 0x010c000cu));
    u32 high = f16_of_codes(byte_perm(x, x, 0x030c020cu));
    out[0] = f16_to_f32(low), out[1] = f16_to_f32(low >> 16);
    out[2] = f16_to_f32(high), out[3] = f16_to_f32(high >> 16);
}

#if KG_FP8_PRODUCTS
// x = DTYPE + e5m2, on gfx942 that of its products.
template <int DTYPE> KG_DEV void split_floats(u32 &high, u32 &low, const float (&x)[4]) {
    float y[4];
    high = f32_to_fp8<DTYPE>(x);
    fp8_to_f32<DTYPE>(y, high);
    low = (u32)__builtin_amdgcn_cvt_pk_bf8_f32(x[0] - y[0], x[1] - y[1], 0, false);
    low = (u32)__builtin_amdgcn_cvt_pk_bf8_f32(x[2] - y[2], x[3] - y[3], (i32)low, true);
}
#endif

} // namespace kg

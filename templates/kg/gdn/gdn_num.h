// Elements of the tensors to float and back.
#pragma once
#include "kg/core/machine.h"
#include "kg/gdn/gdn_types.h"

namespace kg {

template <int DTYPE> KG_DEV float decode(u32 bits) {
    if constexpr (DTYPE == DTYPE_F32) return float_of(bits);
    if constexpr (DTYPE == DTYPE_BF16) return bf16_to_f32(bits);
    return f16_to_f32(bits);
}

template <int DTYPE> KG_DEV u32 encode(float x) {
    if constexpr (DTYPE == DTYPE_F32) return bits_of(x);
    if constexpr (DTYPE == DTYPE_BF16) return pack_bf16(x, 0.0f) & 0xffffu;
    if constexpr (DTYPE == DTYPE_FP16) return pack_f16(x, 0.0f) & 0xffffu;
    return fp8_soft < DTYPE == DTYPE_E4M3FNUZ ? DTYPE_E4M3FNUZ : DTYPE_E4M3FN > (x);
}

template <int DTYPE> KG_DEV float rounded(float x) { return decode<DTYPE>(encode<DTYPE>(x)); }

template <int DTYPE> KG_DEV u32 load_bits(const void *base, i64 i) {
    if constexpr (DTYPE == DTYPE_F32) return load((const u32 *)base + i);
    return load((const u16 *)base + i);
}
template <int DTYPE> KG_DEV float load_as(const void *base, i64 row, int i) {
    return decode<DTYPE>(load_bits<DTYPE>(base, row + i));
}

template <int DTYPE> KG_DEV void store_as(void *base, i64 row, int i, float x) {
    if constexpr (bytes_of(DTYPE) == 4) store((float *)base + row + i, x);
    if constexpr (bytes_of(DTYPE) == 2) store((u16 *)base + row + i, (u16)encode<DTYPE>(x));
    if constexpr (bytes_of(DTYPE) == 1) store((u8 *)base + row + i, (u8)encode<DTYPE>(x));
}

constexpr int PIECE = KG_GDN_PIECE;
constexpr int words_of(int dtype) { return PIECE * bytes_of(dtype) / 4; }

// Element i of words as loaded.
template <int DTYPE> KG_DEV float element(const u32 *words, int i) {
    if constexpr (DTYPE == DTYPE_F32) return float_of(words[i]);
    return decode<DTYPE>(words[i / 2] >> i % 2 * 16 & 0xffffu);
}
template <int DTYPE> KG_DEV const u8 *address(const void *base, i64 row, int i) {
    return (const u8 *)base + (row + i) * bytes_of(DTYPE);
}

// States of fp16 saturate: past 65504 they would be infinite, then NaN.
template <int DTYPE> KG_DEV float guarded(float x) {
    return DTYPE == DTYPE_FP16 ? fmin(fmax(x, -65504.0f), 65504.0f) : x;
}

template <int DTYPE> KG_DEV u32 pack_pair(float a, float b) {
    if constexpr (DTYPE == DTYPE_BF16) return pack_bf16(a, b);
    return pack_f16(a, b);
}
// States are rounded short where a NaN that comes in has only 16 bits: one of fp16 has 19, one
// of 32 bits is cut by with_short_nan.
KG_DEV u32 pack_state(float a, float b) {
    if constexpr (STATE_DTYPE == DTYPE_BF16 && X_DTYPE == DTYPE_BF16)
        return pack_bf16_numbers(a, b);
    return pack_pair<STATE_DTYPE>(guarded<STATE_DTYPE>(a), guarded<STATE_DTYPE>(b));
}
KG_DEV float with_short_nan(float x) {
    if constexpr (STATE_DTYPE != DTYPE_BF16 || CONVERTS_BF16) return x;
    return short_nan(x);
}

template <int DTYPE> KG_DEV void encode_piece(u32 (&w)[words_of(DTYPE)], const float (&x)[PIECE]) {
    KG_UNROLL for (int i = 0; i < words_of(DTYPE); i++) {
        if constexpr (DTYPE == DTYPE_F32)
            w[i] = bits_of(x[i]);
        else
            w[i] = pack_pair<DTYPE>(x[2 * i], x[2 * i + 1]);
    }
}

KG_DEV float exp(float x) { return exp2(x * LOG2E); }
KG_DEV float sigmoid(float x) { return rcp(1.0f + exp(-x)); }
KG_DEV float silu(float x) { return x * sigmoid(x); }

// log(1 + e^x), x itself above 20. The series serves where 1 + e^x loses e^x.
KG_DEV float softplus(float x) {
    float e = exp(x);
    float series = e * (1.0f - e * (0.5f - e * (1.0f / 3.0f)));
    float y = e < 1.0f / 256 ? series : log2(1.0f + e) * LN2;
    return x > 20.0f ? x : y;
}

} // namespace kg

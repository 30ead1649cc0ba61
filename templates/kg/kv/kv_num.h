// Elements as words of two 16-bit values or of one float, and words of four 8-bit codes.
#pragma once
#include "kg/core/fp8_read.h"
#include "kg/kv/kv_fp8.h"
#include "kg/kv/kv_packed.h"

namespace kg {

template <int DTYPE> KG_DEV void unpack(float (&out)[2], u32 word) {
    if constexpr (DTYPE == DTYPE_BF16) {
        out[0] = float_of(word << 16);
        out[1] = float_of(word & 0xffff0000u);
    } else {
        out[0] = f16_to_f32(word & 0xffffu);
        out[1] = f16_to_f32(word >> 16);
    }
}

template <int DTYPE> KG_DEV u32 pack(float a, float b) {
    return DTYPE == DTYPE_BF16 ? pack_bf16(a, b) : pack_f16(a, b);
}

// N elements outside.
template <int N> KG_DEV void unpack_words(float (&out)[N], const u32 (&words)[N * X_BYTES / 4]) {
    if constexpr (X_F32) {
        KG_UNROLL for (int i = 0; i < N; i++) out[i] = float_of(words[i]);
    } else {
        KG_UNROLL for (int i = 0; i < N / 2; i++) {
            float pair[2];
            unpack<X_DTYPE>(pair, words[i]);
            out[2 * i] = pair[0], out[2 * i + 1] = pair[1];
        }
    }
}

template <int N> KG_DEV void pack_words(u32 (&words)[N * X_BYTES / 4], const float (&x)[N]) {
    if constexpr (X_F32) {
        KG_UNROLL for (int i = 0; i < N; i++) words[i] = bits_of(x[i]);
    } else {
        KG_UNROLL for (int i = 0; i < N / 2; i++) words[i] = pack<X_DTYPE>(x[2 * i], x[2 * i + 1]);
    }
}

// Two of them in a 16-bit cache: a copy, or rounded.
KG_DEV u32 narrow(const u32 (&words)[PAIR_WORDS]) {
    if constexpr (!X_F32) return words[0];
    float pair[2];
    unpack_words(pair, words);
    return pack<KV_DTYPE>(pair[0], pair[1]);
}

constexpr float KV_MAX = KV_DTYPE == DTYPE_I4         ? 7.0f
                         : KV_DTYPE == DTYPE_I8       ? 127.0f
                         : KV_DTYPE == DTYPE_E4M3FNUZ ? 240.0f
                         : KV_DTYPE == DTYPE_E5M2     ? 57344.0f
                                                      : 448.0f;
constexpr float LARGEST = 3.4028234663852886e38f;
constexpr float LEAST_SCALE = 1e-6f;

constexpr bool COMPUTED = SCALE >= DESCALE_TOKEN; // by token, by row, by block

// The largest magnitudes of both halves of words, or of words, which order like
// integers; infinity and NaN are above all numbers.
constexpr u32 INF_BITS = X_F32 ? 0x7f800000u : X_DTYPE == DTYPE_BF16 ? 0x7f80u : 0x7c00u;
KG_DEV u32 max_top(u32 a, u32 b) {
    if constexpr (X_F32) return a > b ? a : b;
    return max_pair(a, b);
}
KG_DEV u32 top_word(u32 top, u32 word) {
    return max_top(top, word & (X_F32 ? 0x7fffffffu : 0x7fff7fffu));
}
// Of a word. Infinities count as the largest float, NaN not at all: where there is
// one, the caller looks again without it.
KG_DEV u32 top_of(u32 top) {
    if constexpr (X_F32) return top;
    return max_pair(top, top >> 16) & 0xffffu;
}
KG_DEV u32 without_nan(u32 word) {
    if constexpr (X_F32) return (word & 0x7fffffffu) > INF_BITS ? 0 : word;
    u32 low = word & 0x7fffu, high = word >> 16 & 0x7fffu;
    return (low > INF_BITS ? 0 : low) | (high > INF_BITS ? 0 : high) << 16;
}
KG_DEV float magnitude(u32 top) {
    if constexpr (X_F32) return float_of(top);
    return X_DTYPE == DTYPE_BF16 ? float_of(top << 16) : f16_to_f32(top);
}

// x / s as IEEE division has it, with r = 1 / s and s above 0: one correction of
// the product is exact (Markstein), and in this order of signs keeps that of a
// zero. Past 1e6 every format has long saturated. PLAIN: x is finite and s is the
// scale of its own maximum, so that nothing saturates.
template <bool PLAIN> KG_DEV float quotient(float x, float s, float r) {
    if constexpr (SCALE == DESCALE_NONE) return x;
    float q = PLAIN ? x * r : fmin(fmax(x * r, -1e6f), 1e6f);
    return fma(-fma(q, s, -x), r, q);
}

// 1 / s, rounded: one step from the instruction's result.
KG_DEV float reciprocal(float s) {
    float r = rcp(s);
    return fma(r, fma(-s, r, 1.0f), r);
}

// Divided like a quotient, without its bounds.
KG_DEV float scale_for(float amax) {
    constexpr float INVERSE = 1.0f / KV_MAX;
    float top = fmin(amax, LARGEST), q = top * INVERSE;
    return fmax(fma(-fma(q, KV_MAX, -top), INVERSE, q), LEAST_SCALE);
}

// In the low byte: rounds to nearest even by adding 1.5 * 2^23; NaN is 0.
template <bool PLAIN> KG_DEV u32 integer_code(float x) {
    if constexpr (PLAIN) return bits_of(x + 12582912.0f);
    float in = fmin(fmax(x, -KV_MAX), KV_MAX);
    return bits_of((x == x ? in : 0.0f) + 12582912.0f);
}

template <bool PLAIN> KG_DEV u32 codes(const float (&x)[4]) {
    if constexpr (KV_DTYPE == DTYPE_I8) {
        u32 low = byte_perm(integer_code<PLAIN>(x[0]), integer_code<PLAIN>(x[1]), 0x07030400);
        u32 high = byte_perm(integer_code<PLAIN>(x[2]), integer_code<PLAIN>(x[3]), 0x07030400);
        return byte_perm(low, high, 0x05040100);
    } else {
        return fp8_codes(x);
    }
}

// Eight 4-bit codes, + 8 each, the first lowest.
template <bool PLAIN> KG_DEV u32 int4_codes(const float (&x)[8]) {
    u32 word = 0;
    KG_UNROLL for (int i = 0; i < 8; i++) word |= (integer_code<PLAIN>(x[i]) & 15u) << 4 * i;
    return word ^ 0x88888888u;
}
template <bool PLAIN> KG_DEV u32 word_of(const float (&x)[4]) { return codes<PLAIN>(x); }
template <bool PLAIN> KG_DEV u32 word_of(const float (&x)[8]) { return int4_codes<PLAIN>(x); }
KG_DEV void int4_values(float (&out)[8], u32 word) {
    KG_UNROLL for (int i = 0; i < 8; i++) out[i] = (float)(word >> 4 * i & 15u) - 8.0f;
}

KG_DEV void values(float (&out)[4], u32 word) {
    if constexpr (KV_DTYPE == DTYPE_I8) {
        KG_UNROLL for (int i = 0; i < 4; i++) out[i] = (float)((i32)(word << (24 - 8 * i)) >> 24);
    } else {
        fp8_values<FP8_DTYPE>(out, word);
    }
}

// 16 bytes at an address that is a multiple of ROW_ALIGN.
KG_DEV void load_line(u32 (&out)[4], const u8 *p) {
    if constexpr (ROW_ALIGN == 16) load_plain(out, p);
    KG_UNROLL for (int i = 0; i < 4 && ROW_ALIGN < 16; i++) {
        if constexpr (ROW_ALIGN == 4)
            out[i] = load((const u32 *)p + i);
        else
            out[i] = load((const u16 *)p + 2 * i) | (u32)load((const u16 *)p + 2 * i + 1) << 16;
    }
}

KG_DEV void store_line(u8 *p, const u32 (&x)[4]) {
    if constexpr (ROW_ALIGN == 16) store_words(p, x);
    KG_UNROLL for (int i = 0; i < 4 && ROW_ALIGN < 16; i++) {
        if constexpr (ROW_ALIGN == 4) {
            store((u32 *)p + i, x[i]);
        } else {
            store((u16 *)p + 2 * i, (u16)x[i]);
            store((u16 *)p + 2 * i + 1, (u16)(x[i] >> 16));
        }
    }
}

KG_DEV u32 divide(u32 n, const KG_CONSTANT kg_divisor &by) {
    return (u32)((u64)n * by.magic >> by.shift);
}

} // namespace kg

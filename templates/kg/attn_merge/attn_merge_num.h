// Elements of a row as words.
#pragma once
#include "kg/attn_merge/attn_merge_packed.h"
#include "kg/attn_merge/attn_merge_shape.h"
#include "kg/core/machine.h"

namespace kg {

constexpr int bytes_of(int dtype) {
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_BF16 || dtype == DTYPE_FP16 ? 2 : 1;
}
constexpr int DIMS = KG_MERGE_DIMS; // of a lane
constexpr int X_BYTES = bytes_of(X_DTYPE), OUT_BYTES = bytes_of(OUT_DTYPE);
constexpr int X_WORDS = DIMS * X_BYTES / 4, OUT_WORDS = DIMS * OUT_BYTES / 4;
constexpr int FP8_DTYPE = OUT_BYTES == 1 ? OUT_DTYPE : DTYPE_E4M3FN;

KG_DEV void load_row(u32 (&out)[X_WORDS], const u8 *p) {
    KG_UNROLL for (int n = 0; n < X_WORDS; n += 4) {
        u32 quad[4];
        load_plain(quad, p + n * 4);
        KG_UNROLL for (int i = 0; i < 4; i++) out[n + i] = quad[i];
    }
}

// Element i.
KG_DEV float element(const u32 (&words)[X_WORDS], int i) {
    u32 word = words[i * X_BYTES / 4];
    if constexpr (X_DTYPE == DTYPE_F32) return float_of(word);
    if constexpr (X_DTYPE == DTYPE_BF16) return float_of(i % 2 ? word & 0xffff0000u : word << 16);
    return f16_to_f32(i % 2 ? word >> 16 : word & 0xffffu);
}

KG_DEV u32 out_word(const float *x) {
    if constexpr (OUT_DTYPE == DTYPE_F32) return bits_of(x[0]);
    if constexpr (OUT_DTYPE == DTYPE_BF16) return pack_bf16(x[0], x[1]);
    if constexpr (OUT_DTYPE == DTYPE_FP16) return pack_f16(x[0], x[1]);
    return fp8_soft<FP8_DTYPE>(x[0]) | fp8_soft<FP8_DTYPE>(x[1]) << 8 |
           fp8_soft<FP8_DTYPE>(x[2]) << 16 | fp8_soft<FP8_DTYPE>(x[3]) << 24;
}

KG_DEV void store_row(u8 *p, const float (&x)[DIMS]) {
    constexpr int most = OUT_WORDS < 4 ? OUT_WORDS : 4;
    KG_UNROLL for (int n = 0; n < OUT_WORDS; n += most) {
        u32 words[most];
        KG_UNROLL for (int i = 0; i < most; i++) words[i] = out_word(x + (n + i) * 4 / OUT_BYTES);
        store_words(p + n * 4, words);
    }
}

} // namespace kg

// Queries of 16 bits as sums of two 8-bit floats, for products with e4m3 keys as they are: an
// e4m3 has the upper four bits of a bf16's eight, and an e5m2 all of what is left, which has a
// sign. So it is exact down to 2^-13 of what is brought to 2^CODE_TOP, and within 2^-21 of that
// below.
#pragma once
#include "kg/attn/attn_num.h"

namespace kg {

// e4m3 as the isa knows it. CODE_TOP: twice this is a number yet, with its rounding.
constexpr int E4M3_DTYPE = CONVERTS_E4M3FN ? DTYPE_E4M3FN : DTYPE_E4M3FNUZ;
constexpr u32 CODE_TOP = E4M3_DTYPE == DTYPE_E4M3FN ? 7 : 6;

#if KG_FP8_PRODUCTS
// Pairs of bf16, times `by`: words of e4m3, and behind them of e5m2.
template <int W> KG_DEV void split_codes(u32 (&w)[W], float by) {
    u32 high[W / 2], low[W / 2];
    KG_UNROLL for (int n = 0; n < W / 2; n++) {
        float x[4];
        KG_UNROLL for (int j = 0; j < 2; j++) {
            x[2 * j] = bf16_to_f32(w[2 * n + j] & 0xffffu) * by;
            x[2 * j + 1] = float_of(w[2 * n + j] & 0xffff0000u) * by;
        }
        split_floats<E4M3_DTYPE>(high[n], low[n], x);
    }
    KG_UNROLL for (int n = 0; n < W / 2; n++) w[n] = high[n], w[W / 2 + n] = low[n];
}

// The same for products of bf16: `by` is a power of two.
template <int W> KG_DEV void scale_pairs(u32 (&w)[W], float by) {
    KG_UNROLL for (int n = 0; n < W; n++) w[n] =
        pack_exact(bf16_to_f32(w[n] & 0xffffu) * by, float_of(w[n] & 0xffff0000u) * by);
}
#endif

} // namespace kg

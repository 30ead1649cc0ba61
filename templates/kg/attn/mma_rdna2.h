// Matrix products of gfx10.3, which has no instructions for them: each lane sums 16
// rows over the k of its half wave, reading the others' operands by DPP row_share,
// and the half waves then exchange half of their sums.
#pragma once
#include "kg/attn/mma_rdna.h"

namespace kg {

KG_DEV float other_half(float x) {
    u32 bits = __builtin_bit_cast(u32, x);
    return __builtin_bit_cast(
        float, __builtin_amdgcn_permlanex16(0, bits, 0x76543210, 0xfedcba98, false, true));
}

// What a lane holds of a row of A or a column of B. fp16 has an instruction for two k;
// bf16 has none, and its words become floats once.
constexpr int DOT_WORDS = COMPUTE_F16 ? 4 : 8;
struct dot_words {
    u32 w[DOT_WORDS];
};
KG_DEV dot_words dot_words_of(const words4 &x) {
    dot_words out;
    KG_UNROLL for (int i = 0; i < DOT_WORDS; i++) out.w[i] = COMPUTE_F16 ? x.w[i % 4]
                                                             : i % 2     ? x.w[i / 2] & 0xffff0000u
                                                                         : x.w[i / 2] << 16;
    return out;
}

// Of row LANE of A and this lane's column of B. The compiler would read the row by
// moves, and hold many.
template <int LANE> KG_DEV float dot_row(const dot_words &a, const dot_words &b) {
    float sum = 0;
    KG_UNROLL for (int i = 0; i < DOT_WORDS; i++) {
        if constexpr (COMPUTE_F16)
            asm("v_dot2c_f32_f16_dpp %0, %1, %2 row_share:%3 row_mask:0xf bank_mask:0xf"
                : "+v"(sum)
                : "v"(a.w[i]), "v"(b.w[i]), "n"(LANE));
        else
            asm("v_fmac_f32_dpp %0, %1, %2 row_share:%3 row_mask:0xf bank_mask:0xf"
                : "+v"(sum)
                : "v"(a.w[i]), "v"(b.w[i]), "n"(LANE));
    }
    return sum;
}

// Rows REG and 8 + REG: the half wave that holds a row keeps its own sum of it.
template <int REG>
KG_DEV void add_rows(acc_t &c, const dot_words &a, const dot_words &b, bool high) {
    if constexpr (REG < O_REGS) {
        float low_sum = dot_row<REG>(a, b), high_sum = dot_row<8 + REG>(a, b);
        c[REG] += (high ? high_sum : low_sum) + other_half(high ? low_sum : high_sum);
        add_rows<REG + 1>(c, a, b, high);
    }
}
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    add_rows<0>(c, dot_words_of(a), dot_words_of(b), lane_id() >= 16);
    return where_written(c);
}

} // namespace kg

// WMMA of gfx11.
#pragma once
#include "kg/attn/mma_rdna.h"

namespace kg {

// gfx11 wants all 16 k in both half waves: fetch the other half's words. The
// order of the halves is free as long as A and B agree.
KG_DEV words8 both_halves(const words4 &x) {
    bool high = lane_id() >= 16;
    words8 all;
    KG_UNROLL for (int i = 0; i < 4; i++) {
        u32 other = __builtin_amdgcn_permlanex16(0, x.w[i], 0x76543210, 0xfedcba98, false, true);
        all.w[i] = high ? other : x.w[i];
        all.w[4 + i] = high ? x.w[i] : other;
    }
    return all;
}
KG_DEV acc_t wmma_16(acc_t c, const words8 &a16, const words8 &b16) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(f16x16_t, a16),
                                                          __builtin_bit_cast(f16x16_t, b16), c);
    else
        return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(s16x16_t, a16),
                                                           __builtin_bit_cast(s16x16_t, b16), c);
}
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    return where_written(wmma_16(c, both_halves(a), both_halves(b)));
}
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words8 &b) {
    return where_written(wmma_16(c, both_halves(a), b));
}
KG_DEV acc_t mma_tile(acc_t c, const words8 &a, const words8 &b) {
    return where_written(wmma_16(c, a, b));
}
KG_DEV void whole_of(u32 (&out)[OPERAND_WORDS], const u32 (&half)[4]) {
    words8 all = both_halves(words4{half[0], half[1], half[2], half[3]});
    KG_UNROLL for (int n = 0; n < OPERAND_WORDS; n++) out[n] = all.w[n];
}

} // namespace kg

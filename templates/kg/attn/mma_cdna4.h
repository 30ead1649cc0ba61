// MFMA of CDNA4, and the read from LDS that turns its operands.
#pragma once
#include "kg/attn/mma_words.h"

namespace kg {

// 16x16x32: lane (i, grp) holds k = 8 grp .. 8 grp + 7
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(f16x8_t, a),
                                                      __builtin_bit_cast(f16x8_t, b), c, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8_t, a),
                                                       __builtin_bit_cast(bf16x8_t, b), c, 0, 0, 0);
}

// Sixteen lanes, of which every four name a row of 16 numbers of 16 bits, four each; a lane gets
// its column of the four rows (docs/attention.md). All lanes must be active.
KG_DEV void read_turned(u32 (&out)[2], const u8 *lds) {
    typedef __attribute__((address_space(3))) s16x4_t *at_t;
    u32x2_t x = __builtin_bit_cast(u32x2_t, __builtin_amdgcn_ds_read_tr16_b64_v4i16((at_t)lds));
    out[0] = x.x, out[1] = x.y;
}

} // namespace kg

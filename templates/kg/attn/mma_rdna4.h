// WMMA of gfx12. That of gfx1250 sums 32 k, of which a lane holds two of the halves that the
// others' sum: the second is zero here.
#pragma once
#include "kg/attn/mma_rdna.h"

namespace kg {

#ifdef __gfx1250__
typedef __bf16 bf16x16_t __attribute__((ext_vector_type(16)));
// Made where it is used: kept from product to product, operands would take twice the registers.
template <class T> KG_DEV T with_zeros(const words4 &x) {
    u32 zero = opaque(0);
    return __builtin_bit_cast(T, words8{x.w[0], x.w[1], x.w[2], x.w[3], zero, zero, zero, zero});
}
KG_DEV acc_t wmma_16(acc_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_wmma_f32_16x16x32_f16(false, with_zeros<f16x16_t>(a), false,
                                                      with_zeros<f16x16_t>(b), 0, c, false, false);
    else
        return __builtin_amdgcn_wmma_f32_16x16x32_bf16(
            false, with_zeros<bf16x16_t>(a), false, with_zeros<bf16x16_t>(b), 0, c, false, false);
}
#else
KG_DEV acc_t wmma_16(acc_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(f16x8_t, a),
                                                                __builtin_bit_cast(f16x8_t, b), c);
    else
        return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(s16x8_t, a),
                                                                 __builtin_bit_cast(s16x8_t, b), c);
}
#endif
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    return where_written(wmma_16(c, a, b));
}

} // namespace kg

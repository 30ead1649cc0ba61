// Products of e4m3 keys with queries that are sums of an e4m3 and an e5m2 (kg/attn/split.h).
#pragma once
#include "kg/attn/mma_words.h"

namespace kg {

#if KG_FP8_PRODUCTS
// 64 dims: 16x16x32 twice for each.
KG_DEV acc_t mma_code_tile(acc_t c, const u32 (&k)[1][4], const u32 (&q)[1][8]) {
    KG_UNROLL for (int n = 0; n < 4; n += 2) {
        i64 key = __builtin_bit_cast(i64, words2{k[0][n], k[0][n + 1]});
        i64 high = __builtin_bit_cast(i64, words2{q[0][n], q[0][n + 1]});
        i64 low = __builtin_bit_cast(i64, words2{q[0][n + 4], q[0][n + 5]});
        c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(key, high, c, 0, 0, 0);
        c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(key, low, c, 0, 0, 0);
    }
    return c;
}
#endif

} // namespace kg

// Cached elements and probabilities to the COMPUTE type.
#pragma once
#include "kg/attn/fp8.h"
#include "kg/attn/integer.h"

namespace kg {

KG_DEV u32 pack_compute(float a, float b) { return COMPUTE_F16 ? pack_f16(a, b) : pack_bf16(a, b); }

// Two cached bf16 that meet fp16 queries.
KG_DEV u32 bf16_to_f16(u32 x) {
    return pack_f16(bf16_to_f32(x & 0xffffu), float_of(x & 0xffff0000u));
}

// Four elements of 8 bits.
KG_DEV void bytes_to_compute(u32 (&out)[2], u32 x) {
    if constexpr (KV_INTEGER) {
        int8_to_compute(out, x);
    } else if constexpr (NATIVE_FP8) {
        fp8_native(out, x);
    } else if constexpr (KV_8BIT) {
        float f[4];
        fp8_floats(f, x);
        out[0] = pack_exact(f[0], f[1]);
        out[1] = pack_exact(f[2], f[3]);
    }
}

// W words as loaded -> W * 16 / KV_BITS words of COMPUTE pairs: of neighbours, or as
// int4_to_compute has them.
template <int W> KG_DEV void to_compute(u32 (&out)[W * 16 / KV_BITS], const u32 (&in)[W]) {
    KG_UNROLL for (int i = 0; i < W; i++) {
        if constexpr (KV_4BIT) {
            u32 pairs[4];
            int4_to_compute(pairs, in[i]);
            KG_UNROLL for (int j = 0; j < 4; j++) out[(4 * i + j) % (W * 16 / KV_BITS)] = pairs[j];
        } else if constexpr (KV_8BIT) {
            u32 pair[2];
            bytes_to_compute(pair, in[i]);
            out[2 * i] = pair[0];
            out[2 * i + 1] = pair[1];
        } else if constexpr (KV_DTYPE == DTYPE_BF16 && COMPUTE_F16) {
            out[i] = bf16_to_f16(in[i]);
        } else {
            out[i] = in[i];
        }
    }
}

// Two outputs as 16-bit or 8-bit codes, the second above the first.
KG_DEV u32 pack_out(float a, float b) {
    if constexpr (OUT_8BIT)
        return fp8_soft<OUT_8BIT ? OUT_DTYPE : DTYPE_E4M3FN>(a) |
               fp8_soft<OUT_8BIT ? OUT_DTYPE : DTYPE_E4M3FN>(b) << 8;
    else if constexpr (OUT_DTYPE == DTYPE_FP16)
        return pack_f16(a, b);
    else
        return pack_bf16(a, b);
}

} // namespace kg

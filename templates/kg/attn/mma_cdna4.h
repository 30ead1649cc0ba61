// MFMA of CDNA4, and the read from LDS that turns its operands.
#pragma once
#include "kg/attn/mma_codes_amd.h"

namespace kg {

typedef int i32x2_t __attribute__((ext_vector_type(2)));
typedef int i32x8_t __attribute__((ext_vector_type(8)));

// 16x16x32: lane (i, grp) holds k = 8 grp .. 8 grp + 7
KG_DEV acc_t mma_tile(acc_t c, const words4 &a, const words4 &b) {
    if constexpr (COMPUTE_F16)
        return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(f16x8_t, a),
                                                      __builtin_bit_cast(f16x8_t, b), c, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8_t, a),
                                                       __builtin_bit_cast(bf16x8_t, b), c, 0, 0, 0);
}

// 128 dims: 16x16x128 once for each, with scales of one: emulators know no form without.
KG_DEV acc_t mma_code_tile(acc_t c, const u32 (&k)[2][4], const u32 (&q)[2][8]) {
    enum { E4M3, E5M2 };     // as the instruction counts
    constexpr int ONE = 127; // a scale is a power of two, biased
    i32x8_t key, high, low;
    KG_UNROLL for (int n = 0; n < 8; n++) {
        key[n] = (i32)k[n / 4][n % 4];
        high[n] = (i32)q[n / 4][n % 4], low[n] = (i32)q[n / 4][n % 4 + 4];
    }
    c = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(key, high, c, E4M3, E4M3, 0, ONE, 0, ONE);
    c = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(key, low, c, E4M3, E5M2, 0, ONE, 0, ONE);
    asm volatile("" : "+v"(c)); // here, not where it is wanted: no key waits for that
    return c;
}

// Sixteen lanes, of which every four name a row of 16 numbers of 16 bits, four each; a lane gets
// its column of the four rows (docs/attention.md). All lanes must be active.
KG_DEV void read_turned(u32 (&out)[2], const u8 *lds) {
    typedef __attribute__((address_space(3))) s16x4_t *at_t;
    u32x2_t x = __builtin_bit_cast(u32x2_t, __builtin_amdgcn_ds_read_tr16_b64_v4i16((at_t)lds));
    out[0] = x.x, out[1] = x.y;
}

// The same of codes: every two lanes name a row of 16, and a lane gets its column of eight.
KG_DEV void read_turned_codes(u32 (&out)[2], const u8 *lds) {
    typedef __attribute__((address_space(3))) i32x2_t *at_t;
    u32x2_t x = __builtin_bit_cast(u32x2_t, __builtin_amdgcn_ds_read_tr8_b64_v2i32((at_t)lds));
    out[0] = x.x, out[1] = x.y;
}

// 16 bytes a lane from memory into LDS, one lane's behind the other's from `lds` on, past the
// registers. By hand, or each read of LDS waits for all that are on their way. FURTHER: bytes,
// which the instruction counts in LDS as well.
template <int FURTHER> KG_DEV void copy_pieces(u8 *lds, const u8 *p) {
    u32 at = (u32)(__UINTPTR_TYPE__)(__attribute__((address_space(3))) u8 *)lds - FURTHER;
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %1, off offset:%2"
                 :
                 : "s"(at), "v"(p), "n"(FURTHER)
                 : "m0", "memory");
}
// What the wave has so asked for has come.
KG_DEV void meet_wave() {} // lanes go in step
KG_DEV void pieces_come() { asm volatile("s_waitcnt vmcnt(0)" : : : "memory"); }

} // namespace kg

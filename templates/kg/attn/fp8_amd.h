// Cached 8-bit floats to the COMPUTE type, where an isa has instructions for it.
#pragma once
#include "kg/attn/attn_types.h"
#include "kg/core/target.h"

namespace kg {

// Four 8-bit floats to two words of COMPUTE pairs; 0 where the isa has no
// conversion of that format.
constexpr bool HAS_E4M3 =
    (KG_CDNA3 || KG_CDNA4 || KG_RDNA4) && KV_DTYPE == (KG_CDNA3 ? DTYPE_E4M3FNUZ : DTYPE_E4M3FN);
constexpr bool HAS_E5M2 = (KG_CDNA4 || KG_RDNA4) && KV_DTYPE == DTYPE_E5M2;
constexpr bool NATIVE_FP8 = HAS_E4M3 || HAS_E5M2;

KG_DEV u32 pack_exact(float a, float b) {
    if constexpr (COMPUTE_F16) return __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pkrtz(a, b));
    return byte_perm(__builtin_bit_cast(u32, a), __builtin_bit_cast(u32, b), 0x07060302);
}

KG_DEV void fp8_native(u32 (&out)[2], u32 x) {
#if KG_RDNA4
    // These conversions read the lower 128 registers only: from a copy, so that
    // the four loaded together may lie anywhere.
    asm("v_mov_b32 %0, %1" : "=v"(x) : "v"(x));
#endif
#if KG_CDNA3 || KG_CDNA4 || KG_RDNA4
    f32x2_t lo, hi;
    if constexpr (HAS_E5M2) {
        lo = __builtin_amdgcn_cvt_pk_f32_bf8(x, false);
        hi = __builtin_amdgcn_cvt_pk_f32_bf8(x, true);
    } else {
        lo = __builtin_amdgcn_cvt_pk_f32_fp8(x, false);
        hi = __builtin_amdgcn_cvt_pk_f32_fp8(x, true);
    }
    out[0] = pack_exact(lo.x, lo.y);
    out[1] = pack_exact(hi.x, hi.y);
#else
    out[0] = out[1] = x;
#endif
}

} // namespace kg

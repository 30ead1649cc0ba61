// The scale of a new key, and what it is divided by.
#pragma once
#include "kg/kv/kv_num.h"

namespace kg {

constexpr float CODE_MAX = KV_DTYPE == DTYPE_E4M3FNUZ ? 224.0f : 448.0f; // as engines have it
constexpr float LEAST_AMAX = 1e-4f;

// NaN counts as nothing, infinity as the largest float.
KG_DEV u32 counted_magnitude(float x) {
    u32 size = bits_of(x) & 0x7fffffffu;
    return size > 0x7f800000u ? 0 : size == 0x7f800000u ? 0x7f7fffffu : size;
}

// One correction of the product is the quotient that is rounded once.
KG_DEV float index_scale(u32 top) {
    constexpr float INVERSE = 1.0f / CODE_MAX;
    float amax = fmax(float_of(top), LEAST_AMAX), q = amax * INVERSE;
    float scale = fma(-fma(q, CODE_MAX, -amax), INVERSE, q);
    return POW2 != 0 ? float_of((bits_of(scale) + 0x7fffffu) & 0xff800000u) : scale;
}

} // namespace kg

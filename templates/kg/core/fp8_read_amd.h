// Four 8-bit floats of a word to floats, by the isa's instructions where it has them.
#pragma once
#include "kg/core/fp8_isa_amd.h"
#include "kg/core/fp8_read_soft.h"

namespace kg {

template <int DTYPE> KG_DEV void fp8_values(float (&out)[4], u32 word) {
#if KG_FP8_CONVERSIONS
    if constexpr (HAS_FP8<DTYPE>) {
        fp8_to_f32<DTYPE>(out, word);
        return;
    }
#endif
    fp8_values_soft<DTYPE>(out, word);
}

} // namespace kg

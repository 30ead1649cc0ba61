// Four 8-bit floats of a word to floats: always in integer arithmetic here.
#pragma once
#include "kg/core/fp8_read_soft.h"

namespace kg {

template <int DTYPE> KG_DEV void fp8_values(float (&out)[4], u32 word) {
    fp8_values_soft<DTYPE>(out, word);
}

} // namespace kg

// Four 8-bit floats of a word to floats and back: always in integer arithmetic here.
#pragma once
#include "kg/kv/kv_fp8_soft.h"

namespace kg {

KG_DEV u32 fp8_codes(const float (&x)[4]) { return fp8_codes_soft(x); }
KG_DEV void fp8_values(float (&out)[4], u32 word) { fp8_values_soft(out, word); }

} // namespace kg

// Four 8-bit floats of a word out of floats: always in integer arithmetic here.
#pragma once
#include "kg/kv/kv_fp8_soft.h"

namespace kg {

KG_DEV u32 fp8_codes(const float (&x)[4]) { return fp8_codes_soft(x); }
} // namespace kg

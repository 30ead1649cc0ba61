// Fixed-width names and what every family computes with.
#pragma once
#include "kg/core/isa.h"
#include "kg/core/shape.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

namespace kg {

constexpr int WAVE = KG_WAVE; // lanes

constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000u);
constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;

} // namespace kg

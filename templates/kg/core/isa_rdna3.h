// What templates ask of an isa: RDNA3 (gfx11). Each kg/core/isa_*.h answers all of it.
#pragma once

#define KG_FP8_CONVERSIONS 0 // AMD's instructions between 8-bit floats and f32
#define KG_FP8_PAIRS 0       // the same to pairs of bf16
// e4m3 meets 8-bit floats in matrix products, this many chunks of 64 dims at once.
#define KG_FP8_PRODUCTS 0
#define KG_WAIT_LDS "s_waitcnt lgkmcnt(0)" // for what the wave has in LDS

namespace kg {

// 8-bit floats that those instructions know.
constexpr bool CONVERTS_E4M3FN = false;
constexpr bool CONVERTS_E4M3FNUZ = false;
constexpr bool CONVERTS_E5M2 = false;
constexpr bool CONVERTS_LOW = false;            // they read the lower 128 registers only
constexpr bool CONVERTS_BF16 = false;           // f32 to bf16 is an instruction
constexpr bool ROWS_INTERLEAVED_BY_HALF = true; // accumulators, over two half waves
constexpr int DIES = 1;         // that workgroups are dealt to in turn, each with an L2 of its own
constexpr bool IS_SM90 = false; // one workgroup a unit, 8-bit floats become fp16

} // namespace kg

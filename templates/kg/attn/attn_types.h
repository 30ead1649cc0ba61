// What follows from the attention family's constants.
#pragma once
#include "kg/attn/attn_shape.h"
#include "kg/core/types.h"

namespace kg {

// kgen_attn_error of <kgen/attn_args.h>
constexpr int BAD_TOKENS = 1, BAD_ROWS = 2, BAD_LENGTH = 4, BAD_PAGE = 8;
constexpr int BAD_WORKSPACE = 16, BAD_PREFIX = 32;

constexpr bool KV_8BIT = KV_DTYPE >= DTYPE_E4M3FN;
constexpr bool KV_INTEGER = KV_DTYPE == DTYPE_I8 || KV_DTYPE == DTYPE_I4;
constexpr bool KV_4BIT = KV_DTYPE == DTYPE_I4;
constexpr bool Q_8BIT = Q_DTYPE >= DTYPE_E4M3FN && Q_DTYPE <= DTYPE_E5M2;
constexpr bool Q_F32 = Q_DTYPE == DTYPE_F32;
constexpr bool OUT_8BIT = OUT_DTYPE >= DTYPE_E4M3FN && OUT_DTYPE <= DTYPE_E5M2;
constexpr int KV_BITS = KV_4BIT ? 4 : KV_8BIT ? 8 : 16;
constexpr bool PACKED = LAYOUT == LAYOUT_SHUFFLE || LAYOUT == LAYOUT_XPACKED;
// Keys and values come by way of LDS (kg/attn/buffer.h).
constexpr bool BUFFERED = BY_MATRICES != 0 || BY_LINES != 0;
constexpr bool TURNED = BY_LINES == 2; // LDS turns the values that are read from there
// Values; else by chunks.
constexpr bool BY_TILES = PACKED || BY_MATRICES || PAIRED || DIRECT || BY_LINES > 1;
// Elements of 16 bytes of what waves load operands from; BY_LINES are of 16-bit numbers.
constexpr int X = BY_LINES ? 8 : 128 / KV_BITS;
// The 16-bit type that enters the matrix units: fp16 where queries or keys are.
// sm_90 turns 8-bit floats into fp16 in one instruction, so it computes these
// in fp16 for either query type. bf16 queries are then scaled (q_to_f16). There, and by way of LDS
// on CDNA, integers become fp16 in fewer instructions than bf16; not with a scale a token, which
// enters probabilities and has a float's range.
// Queries of 8 and 32 bits take the type of the cache, fp16 where that has 8 bits.
constexpr bool COMPUTE_F16 = Q_DTYPE == DTYPE_FP16 || KV_DTYPE == DTYPE_FP16 ||
                             (KV_8BIT && ((IS_SM90 && !KV_INTEGER) || Q_8BIT || Q_F32)) ||
                             (KV_INTEGER && (BY_LINES || IS_SM90) && DESCALE != DESCALE_TOKEN);
constexpr bool SCALED_Q = COMPUTE_F16 && (Q_DTYPE == DTYPE_BF16 || Q_F32);

// By way of LDS keys and values lie there as the products take them.
constexpr bool CONVERTED = BUFFERED && (KV_8BIT || (KV_DTYPE == DTYPE_BF16 && COMPUTE_F16));

// Queries see all keys before them.
constexpr bool SEES_START = WINDOW == 0 && CHUNK == 0;

// 8-bit floats of the cache; where it has none, any.
constexpr int KV_FLOAT = KV_8BIT && !KV_INTEGER ? KV_DTYPE : DTYPE_E4M3FN;

} // namespace kg

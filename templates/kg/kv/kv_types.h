// What follows from the kv families' constants.
#pragma once
#include "kg/core/machine.h"
#include "kg/kv/kv_shape.h"

namespace kg {

constexpr bool BLOCKED = SCALE == DESCALE_BLOCK; // values by blocks, keys as they are
template <int SIDE> constexpr bool COPIED = BLOCKED && SIDE == 0;
constexpr int THREADS = KG_WORKGROUP;
constexpr bool KV_8BIT = KV_DTYPE != DTYPE_BF16 && KV_DTYPE != DTYPE_FP16;
constexpr bool KV_4BIT = KV_DTYPE == DTYPE_I4;
constexpr int KV_BYTES = KV_8BIT ? 1 : 2; // of packed caches, which have no 4-bit elements
constexpr int X = kg_kv_x(KV_4BIT ? 4 : 8 * KV_BYTES); // cached elements of 16 bytes
constexpr bool X_F32 = X_DTYPE != DTYPE_BF16 && X_DTYPE != DTYPE_FP16;
constexpr int X_BYTES = X_F32 ? 4 : 2;      // of an element outside
constexpr int OUT_WORDS = X * X_BYTES / 4;  // X elements outside, in words
constexpr int PAIR_WORDS = 2 * X_BYTES / 4; // two of them
constexpr bool PACKED = LAYOUT == LAYOUT_SHUFFLE || LAYOUT == LAYOUT_XPACKED;

// Rows of X-chunks: D elements in 16-byte pieces of the cache, shared by `lanes`
// lanes. HALVES is not 0 where a chunk rotates with the one HALVES further (neox):
// a lane then has both, one after the other.
template <int SIDE, int HALVES = 0> struct chunks {
    static constexpr int rows = kg_kv_row_block(PACKED);
    static constexpr int count = (SIDE ? V_DIM : HEAD_DIM) / X;
    static constexpr int lanes = kg_kv_row_lanes(count, HALVES != 0, rows, WAVE);
    static constexpr int each = count / lanes;
};

// Packed V: X tokens of 2 dims of a head are a lane's; a head has PARTS such
// parts of a wave.
constexpr int PAIRS = V_DIM / 2;
constexpr int PAIR_LANES = kg_kv_pair_lanes(V_DIM, WAVE);
constexpr int PARTS = kg_kv_parts(V_DIM, WAVE);
constexpr int WAVE_HEADS = WAVE / PAIR_LANES;
constexpr int BLOCK_CHUNKS = KG_KV_BLOCK / X; // neighbours of a row
constexpr int GROUP_WAVES = THREADS / WAVE;

} // namespace kg

// The codes of the kv families' constants, and what follows from them.
#pragma once
#include "kg/core/machine.h"
#include "kg/kv/kv_shape.h"

namespace kg {

// kgen_layout, kgen_descale, kgen_kv_rope, kgen_kv_from of <kgen/spec.h>
constexpr int LAYOUT_NHD = 1, LAYOUT_HND = 2, LAYOUT_SHUFFLE = 3, LAYOUT_XPACKED = 4;
constexpr int SCALE_NONE = 1, SCALE_HEAD = 2, SCALE_TOKEN = 3, SCALE_ROW = 4;
constexpr int ROPE_NEOX = 1, ROPE_INTERLEAVED = 2;
constexpr int FROM_START = 0, FROM_END = 1;
constexpr int REMAP_I32 = 1, REMAP_I64 = 2;
constexpr int PAGE_X16 = 0;
constexpr int DTYPE_I8 = 12;

constexpr int THREADS = KG_WORKGROUP;
constexpr bool KV_8BIT = KV_DTYPE != DTYPE_BF16 && KV_DTYPE != DTYPE_FP16;
constexpr int KV_BYTES = KV_8BIT ? 1 : 2;
constexpr int X = kg_kv_x(KV_BYTES); // cached elements of 16 bytes
constexpr int OUT_WORDS = X / 2;     // the same elements outside, in words
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
constexpr int GROUP_WAVES = THREADS / WAVE;

} // namespace kg

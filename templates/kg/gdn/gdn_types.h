// The codes of the gdn family's constants, and what follows from them.
#pragma once
#include "kg/core/types.h"
#include "kg/gdn/gdn_shape.h"

namespace kg {

// kgen_layout, kgen_gdn_* of <kgen/spec.h>
constexpr int LAYOUT_INTERLEAVED = 5, LAYOUT_FLAT = 6, LAYOUT_PRESPLIT = 7;
constexpr int LAYOUT_VK = 8, LAYOUT_KV = 9, LAYOUT_SD = 10, LAYOUT_DS = 11;
constexpr int FUSE_A = 1, FUSE_B = 2, FUSE_C = 3, FUSE_D = 4, FUSE_E = 5;
constexpr int INDEX_ONE = 0, INDEX_PAIR = 1, INDEX_SPEC = 2, INDEX_BLOCKS = 3;
constexpr int SAVE_FINAL = 0, SAVE_SLOTS = 1, SAVE_BUFFER = 2, SAVE_NONE = 3, SAVE_REPLAY = 4;
constexpr int SENTINEL_NEG = 0, SENTINEL_NONPOS = 1, SENTINEL_VALUE = 2;
constexpr int GATE_GDN = 0, GATE_KDA = 1, GATE_KDA_BOUND = 2;

constexpr bool HAS_CONV = FUSE >= FUSE_C;
constexpr bool HAS_STEP = FUSE != FUSE_C;
constexpr bool HAS_NORM = FUSE == FUSE_B || FUSE == FUSE_E;
constexpr bool PER_CHANNEL = GATE != GATE_GDN; // decays
constexpr bool REPLAY = SAVE == SAVE_REPLAY;
constexpr bool OUT_8BIT = OUT_DTYPE == DTYPE_E4M3FN || OUT_DTYPE == DTYPE_E4M3FNUZ;

constexpr int THREADS = KG_WORKGROUP;
constexpr int GROUP = V_HEADS / K_HEADS; // value heads of a key head
constexpr int KEY_DIMS = K_HEADS * K_DIM;
constexpr int VALUE_DIMS = V_HEADS * V_DIM;
constexpr int CHANNELS = kg_gdn_channels(K_HEADS, K_DIM, V_HEADS, V_DIM);
constexpr int GROUP_DIMS = 2 * K_DIM + 2 * GROUP * V_DIM; // of an interleaved row
constexpr int QUANT_GROUP = 128;                          // outputs that share a scale

constexpr int SPLITS = HAS_STEP ? V_BLOCKS : 1;
constexpr int V_BLOCK = V_DIM / SPLITS;            // values of a workgroup
constexpr int OLD = HAS_CONV ? CONV_WIDTH - 1 : 0; // inputs before this launch's
constexpr int HISTORY = OLD + TOKENS;

constexpr int bytes_of(int dtype) { return dtype == DTYPE_F32 ? 4 : dtype <= DTYPE_FP16 ? 2 : 1; }

} // namespace kg

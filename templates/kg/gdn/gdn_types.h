// What follows from the gdn family's constants.
#pragma once
#include "kg/core/types.h"
#include "kg/gdn/gdn_shape.h"

namespace kg {

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
constexpr int CHANNELS =
    CONV_CHANNELS ? CONV_CHANNELS : kg_gdn_channels(K_HEADS, K_DIM, V_HEADS, V_DIM);
// Channels of a convolution that is alone may not be whole pieces: their elements
// are loaded and stored one by one.
constexpr bool WHOLE_PIECES = CHANNELS % KG_GDN_PIECE == 0;
constexpr int GROUP_DIMS = 2 * K_DIM + 2 * GROUP * V_DIM; // of an interleaved row
constexpr int QUANT_GROUP = 128;                          // outputs that share a scale

constexpr int SPLITS = HAS_STEP ? V_BLOCKS : 1;
constexpr int V_BLOCK = V_DIM / SPLITS;            // values of a workgroup
constexpr int OLD = HAS_CONV ? CONV_WIDTH - 1 : 0; // inputs before this launch's
constexpr int HISTORY = OLD + TOKENS;

constexpr int bytes_of(int dtype) { return dtype == DTYPE_F32 ? 4 : dtype <= DTYPE_FP16 ? 2 : 1; }

} // namespace kg

// What follows from the scatter family's constants.
#pragma once
#include "kg/core/types.h"

namespace kg {

// kgen_scatter_error
constexpr int BAD_WIDTH = 1, BAD_REQUEST = 2, BAD_COLUMN = 4, BAD_MAPPING = 8, BAD_CAPACITY = 16;
constexpr int BAD_COUNT = 32, BAD_TREE = 64;

constexpr int THREADS = KG_WORKGROUP;
constexpr int TREE_MAX = 64; // nodes: bits of the widest word
constexpr int LDS_USED = OP == OP_TREE_VERIFY || OP == OP_REJECT ? 8192 : 2048;
constexpr int OCCUPANCY = 4; // workgroups of a compute unit

} // namespace kg

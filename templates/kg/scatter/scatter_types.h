// The codes of the scatter family's constants, and what follows from them.
#pragma once
#include "kg/core/types.h"

namespace kg {

// kgen_scatter_op and others of <kgen/scatter_spec.h>
constexpr int OP_PAGE_TABLE_RAGGED = 1, OP_PAGE_TABLE_REQUESTS = 2, OP_SPEC_PREPARE = 3;
constexpr int OP_DRAFT_PAGE_TABLE = 4, OP_DRAFT_KV_INDICES = 5, OP_KV_INDICES = 6;
constexpr int OP_DRAFT_LENS = 7, OP_CACHE_LOCS = 8, OP_ASSIGN_LOCS = 9, OP_SLOT_MAPPING = 10;
constexpr int OP_EAGLE_STEP = 11, OP_PADDED_INPUTS = 12, OP_NEXT_TOKEN = 13, OP_BONUS_TOKENS = 14;
constexpr int OP_ACCEPT_LOCS = 15, OP_KEEP_LOCS = 16, OP_EVICT_MASK = 17, OP_KV_SPLITS = 18;
constexpr int OP_TREE_BUILD = 19, OP_TREE_FROM_MASK = 20, OP_TREE_MASK = 21, OP_TREE_VERIFY = 22;
constexpr int OP_KV_COMPACT = 23;
constexpr int TAIL_ZERO = 0, TAIL_KEEP = 1, TAIL_VALUE = 2;
constexpr int FORM_UNIFORM = 0, FORM_RAGGED = 1, FORM_DRAFT = 2, FORM_LAST = 3;
constexpr int MASK_WORDS = 0, MASK_QLEN = 1, MASK_FULL = 2;

// kgen_scatter_error
constexpr int BAD_WIDTH = 1, BAD_REQUEST = 2, BAD_COLUMN = 4, BAD_MAPPING = 8, BAD_CAPACITY = 16;
constexpr int BAD_COUNT = 32, BAD_TREE = 64;

constexpr int THREADS = KG_WORKGROUP;
constexpr int TREE_MAX = 64; // nodes: bits of the widest word
constexpr int LDS_USED = OP == OP_TREE_VERIFY ? 8192 : 2048;
constexpr int OCCUPANCY = 4; // workgroups of a compute unit

} // namespace kg

// A pool of pages as boxes are brought out of it (kg/attn/boxes_nvidia.h), and how large they are.
#pragma once
#include "kg/core/types.h"

namespace kg {

constexpr int BOX_ROWS = 16, BOX_BYTES = BOX_ROWS * 128;

struct pool_t {
    const u8 *rows;
    i64 page_bytes, head_bytes, row_bytes; // from one to the next
    int columns;                           // bytes of a row
    int page, heads, pages;                // rows of a page, 16 or a multiple; how many there are
    int box_rows = BOX_ROWS, box_heads = 1;
};
constexpr int NO_ROW = 1 << 30; // of a box that is all zeros
constexpr int MAP_BYTES = 128;  // of what says so to a box
static_assert(sizeof(pool_t) <= MAP_BYTES, "room for it on the cpu device");

} // namespace kg

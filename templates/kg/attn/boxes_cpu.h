// Boxes on the cpu device; see boxes_nvidia.h. They come by themselves.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/attn/pool.h"
#include "kg/core/gates.h"

namespace kg {

KG_DEV void write_map(u8 *to, u8 *, const pool_t &pool) {
    if (lane_id() == 0) __builtin_memcpy(to, &pool, sizeof pool);
}
KG_DEV void read_map(const u8 *) {}

struct box_t {
    u8 *lds; // of the workgroup
    u32 at;
    int column, row, head;
    i32 page;
    gate_t *there;
    const u8 *map;
};
static_assert(sizeof(box_t) <= ERRAND_BYTES, "an errand has room for it");
inline void box_comes(const void *what) {
    const box_t &box = *(const box_t *)what;
    pool_t pool;
    __builtin_memcpy(&pool, box.map, sizeof pool);
    bool exists = (u32)box.page < (u32)pool.pages;
    const u8 *from = pool.rows + (exists ? box.page : 0) * pool.page_bytes + box.column;
    int rows = pool.box_rows * pool.box_heads;
    for (int n = 0; n < rows; n++) {
        int its = box.row + n % pool.box_rows, its_head = box.head + n / pool.box_rows;
        u32 at = box.at + (u32)n * 128;
        for (u32 piece = 0; piece < 8; piece++) {
            u8 *to = box.lds + (at + (piece ^ at / 128 % 8) * 16);
            bool inside = exists && box.column + (int)piece * 16 < pool.columns &&
                          its < pool.page && its_head < pool.heads;
            if (inside)
                __builtin_memcpy(
                    to, from + its_head * pool.head_bytes + its * pool.row_bytes + piece * 16, 16);
            else
                __builtin_memset(to, 0, 16);
        }
    }
    gate_change(box.there, 0, -rows / BOX_ROWS);
}
KG_DEV void bring_box(u8 *to, gate_t *there, const u8 *map, int column, int row, int head,
                      i32 page) {
    u8 *lds = kg_ops->self()->lds;
    box_t box = {lds, (u32)(to - lds), column, row, head, page, there, map};
    kg_ops->later(box_comes, &box, sizeof box);
}
KG_DEV void expect_boxes(gate_t *there, u32 boxes) { gate_change(there, 0, (int)boxes); }
KG_DEV void expect_boxes(gate_t *there, u32 boxes, u32 lanes) {
    gate_change(there, lanes, (int)boxes);
}

} // namespace kg

// Boxes: 16 rows of a page, or other rows, and 128 bytes of each, that the memory engine of sm_90
// brings into LDS by itself, as a piece of a matrix (kg/attn/lds_nvidia.h). A map in memory says
// what the pool is; the kernel writes it, from arguments alone, so all workgroups write the same.
// On the cpu device boxes_cpu.h stands for this file.
// Source: PTX ISA, tensormap.replace, cp.async.bulk.tensor, mbarrier.expect_tx.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/attn/pool.h"
#include "kg/core/gates.h"

namespace kg {

#define KG_MAP(field, value, ...)                                    \
    asm volatile("tensormap.replace.tile." field " [%0], " value ";" \
                 :                                                   \
                 : "r"(map), __VA_ARGS__                             \
                 : "memory")
#define KG_MAP_SIDE(n, size, box)                                     \
    KG_MAP("box_dim.shared::cta.b1024.b32", #n ", %1", "r"(box));     \
    KG_MAP("global_dim.shared::cta.b1024.b32", #n ", %1", "r"(size)); \
    KG_MAP("element_stride.shared::cta.b1024.b32", #n ", %1", "r"(1))
#define KG_MAP_KIND(field, n) KG_MAP(field ".shared::cta.b1024.b32", "%1", "n"(n))
// Bytes, zeros behind a row's last, swizzles of 128 bytes.
KG_DEV void describe_pool(u32 map, const pool_t &pool) {
    KG_MAP("global_address.shared::cta.b1024.b64", "%1", "l"(pool.rows));
    KG_MAP_KIND("rank", 4 - 1);
    KG_MAP_SIDE(0, pool.columns, 128);
    KG_MAP_SIDE(1, pool.page, pool.box_rows);
    KG_MAP_SIDE(2, pool.heads, pool.box_heads);
    KG_MAP_SIDE(3, pool.pages, 1);
    KG_MAP("global_stride.shared::cta.b1024.b64", "0, %1", "l"(pool.row_bytes));
    KG_MAP("global_stride.shared::cta.b1024.b64", "1, %1", "l"(pool.head_bytes));
    KG_MAP("global_stride.shared::cta.b1024.b64", "2, %1", "l"(pool.page_bytes));
    KG_MAP_KIND("elemtype", 0);
    KG_MAP_KIND("interleave_layout", 0);
    KG_MAP_KIND("swizzle_mode", 3);
    KG_MAP_KIND("fill_mode", 0);
}
#undef KG_MAP_KIND
#undef KG_MAP_SIDE
#undef KG_MAP

// By one wave, out of MAP_BYTES of LDS; then it meets who brings boxes.
KG_DEV void write_map(u8 *to, u8 *lds, const pool_t &pool) {
    ((u32 *)lds)[lane_id()] = 0;
    __syncwarp();
    if (lane_id() == 0) describe_pool(lds_address(lds), pool);
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
                 "aligned [%0], [%1], 128;"
                 :
                 : "l"(to), "r"(lds_address(lds))
                 : "memory");
}
// Who brings boxes has read it.
KG_DEV void read_map(const u8 *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" : : "l"(map) : "memory");
}

// A box of the lane's: from byte `column` of its rows on. What lies outside the pool is zeros.
KG_DEV void bring_box(u8 *lds, gate_t *there, const u8 *map, int column, int row, int head,
                      i32 page) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 :
                 : "r"(lds_address(lds)), "l"(map), "r"(column), "r"(row), "r"(head), "r"(page),
                   "r"(gate_address(there))
                 : "memory");
}
// Before boxes of so many times 16 rows are asked for, and before all that `there` counts have
// arrived.
KG_DEV void expect_boxes(gate_t *there, u32 boxes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(gate_address(there)), "r"(boxes * BOX_BYTES)
                 : "memory");
}
// The same for all `lanes` that `there` counts, who have nothing else to bring.
KG_DEV void expect_boxes(gate_t *there, u32 boxes, u32 lanes) {
    expect_boxes(there, boxes);
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(gate_address(there)), "r"(lanes)
                 : "memory");
}

} // namespace kg

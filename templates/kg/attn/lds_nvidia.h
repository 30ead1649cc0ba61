// LDS: filled past the registers, and multiplied from there by the four waves of a group, each
// with 16 rows. On the cpu device lds_cpu.h stands for this file.
//
// A matrix is rows of 128 bytes that follow each other, eight of them a multiple of 1024 bytes
// from the start of LDS; piece n of 16 bytes of row r lies where piece n ^ r % 8 would.
// Source: PTX ISA, wgmma.mma_async, matrix descriptors with swizzles of 128 bytes.
#pragma once
#include "kg/attn/mma.h"

namespace kg {

KG_DEV u32 lds_address(const u8 *p) { return (u32)__cvta_generic_to_shared(p); }

KG_DEV void copy_16(u8 *lds, const u8 *p) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
                 :
                 : "r"(lds_address(lds)), "l"(p)
                 : "memory");
}
KG_DEV void copy_4(void *lds, const void *p) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(lds_address((const u8 *)lds)), "l"(p)
                 : "memory");
}
// Brings what p points to into the L2, and its address to who looks addresses up: a prefetch may be
// dropped there, and a load has a register that others wait for. Four bytes of it, to where nobody
// reads.
KG_DEV void visit(u8 *lds, const u8 *p) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4;"
                 :
                 : "r"(lds_address(lds)), "l"((u64)p & ~(u64)3)
                 : "memory");
}

// Ends a group of this lane's copies; all groups but the last N are in LDS.
KG_DEV void copies_end() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int N> KG_DEV void copies_done() {
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}
// What this lane has written is there for products, after a barrier. What it has copied is
// without it: a fence would wait for all copies that are on their way.
KG_DEV void show_lds() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// Products are on their way from begin to done; what they read and write stays as it is.
KG_DEV void products_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
KG_DEV void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
// All but the last N that ended are done; settle() what they wrote.
template <int N> KG_DEV void products_done() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
}
template <int N> KG_DEV void settle(acc_t (&o)[2][N]) {
    KG_UNROLL for (int t = 0; t < 2; t++) KG_UNROLL for (int n = 0; n < N; n++)
        KG_UNROLL for (int r = 0; r < O_REGS;
                       r++) asm volatile("" : "+f"(o[t][n].x[r]) : : "memory");
}

// Where a matrix begins: the low word of its descriptor. The high word says how far apart
// eight rows are, and the swizzle. What a reduction leaves is a scalar, and so are descriptors that
// are worked out from it; else each of them moves there from a lane.
typedef u32 matrix_t;
KG_DEV matrix_t matrix_of_lane(const u8 *lds) { return (lds_address(lds) & 0x3ffffu) >> 4; }
KG_DEV matrix_t matrix_at(const u8 *lds) {
    return __reduce_or_sync(0xffffffffu, matrix_of_lane(lds));
}
// One that lasts, of which lanes keep hold.
KG_DEV matrix_t lasting_matrix_at(const u8 *lds) { return shuffle(matrix_of_lane(lds), 0); }
KG_DEV matrix_t further(matrix_t m, u32 bytes) { return m + bytes / 16; }
// Rows of more than 64 columns, each 64 of them so many bytes behind those before.
KG_DEV matrix_t widened(matrix_t m, u32 bytes) { return m + (bytes / 16 << 16); }
static_assert(KG_ATTN_SWIZZLE / 16 == 0x40, "as the high word says");
#define KG_DESCRIPTOR "0x40000040"

// Tiles `first` and following of o += A B, or = A B: accumulators, then A, the matrix b, whether
// something is added to, and whether b is turned. By number of tiles.
// clang-format off
#define KG_TILE(n)                                                                  \
    "+f"(o[0][n].x[0]), "+f"(o[0][n].x[1]), "+f"(o[1][n].x[0]), "+f"(o[1][n].x[1]), \
    "+f"(o[0][n].x[2]), "+f"(o[0][n].x[3]), "+f"(o[1][n].x[2]), "+f"(o[1][n].x[3])
#define KG_TILES_1(n) KG_TILE(n)
#define KG_TILES_2(n) KG_TILE(n), KG_TILE(n + 1)
#define KG_TILES_3(n) KG_TILES_2(n), KG_TILE(n + 2)
#define KG_TILES_4(n) KG_TILES_2(n), KG_TILES_2(n + 2)
#define KG_NAMES_1 "%0,%1,%2,%3,%4,%5,%6,%7"
#define KG_NAMES_2 KG_NAMES_1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define KG_NAMES_3 KG_NAMES_2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define KG_NAMES_4 KG_NAMES_3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define KG_TILES_8(n) KG_TILES_4(n), KG_TILES_4(n + 4)
#define KG_NAMES_8                                                                                \
    KG_NAMES_4 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51" \
               ",%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define KG_SHAPE_1 "m64n16k16"
#define KG_SHAPE_2 "m64n32k16"
#define KG_SHAPE_3 "m64n48k16"
#define KG_SHAPE_4 "m64n64k16"
#define KG_SHAPE_8 "m64n128k16"
#define KG_WGMMA(TYPE, TILES, SET_A, A, B, ADD, LAST, ...)                                     \
    asm volatile("{.reg .pred p; .reg .b64 a, b; setp.ne.b32 p, " ADD ", 0; " SET_A            \
                 "mov.b64 b, {" B ", " KG_DESCRIPTOR "}; wgmma.mma_async.sync.aligned."        \
                 KG_SHAPE_##TILES ".f32." TYPE "." TYPE " {" KG_NAMES_##TILES "}, " A          \
                 ", b, p, 1, 1, " LAST ";}" : KG_TILES_##TILES(first) : __VA_ARGS__)
#define KG_MULTIPLY(...)                  \
    if constexpr (COMPUTE_F16) {          \
        KG_WGMMA("f16", __VA_ARGS__);     \
    } else {                              \
        KG_WGMMA("bf16", __VA_ARGS__);    \
    }
#define KG_OPERANDS \
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"((u32)add), "n"((int)TURNED)
#define KG_DESCRIBE(a) "mov.b64 a, {" a ", " KG_DESCRIPTOR "}; "
#define KG_MATRICES "r"(a), "r"(b), "r"((u32)add), "n"((int)TURNED)

// a: the lane's words of 16 columns of its wave's rows. b: rows of which each is a column of B,
// or TURNED a row of it.
template <int TILES, bool TURNED, int N>
KG_DEV void multiply(acc_t (&o)[2][N], int first, const u32 (&a)[4], matrix_t b, bool add) {
    if constexpr (TILES == 8) {
        KG_MULTIPLY(8, "", "{%64,%65,%66,%67}", "%68", "%69", "%70", KG_OPERANDS)
    } else if constexpr (TILES == 4) {
        KG_MULTIPLY(4, "", "{%32,%33,%34,%35}", "%36", "%37", "%38", KG_OPERANDS)
    } else if constexpr (TILES == 3) {
        KG_MULTIPLY(3, "", "{%24,%25,%26,%27}", "%28", "%29", "%30", KG_OPERANDS)
    } else if constexpr (TILES == 2) {
        KG_MULTIPLY(2, "", "{%16,%17,%18,%19}", "%20", "%21", "%22", KG_OPERANDS)
    } else {
        KG_MULTIPLY(1, "", "{%8,%9,%10,%11}", "%12", "%13", "%14", KG_OPERANDS)
    }
}

// a: rows of A, 64 of them.
template <int TILES, bool TURNED, int N>
KG_DEV void multiply(acc_t (&o)[2][N], int first, matrix_t a, matrix_t b, bool add) {
    static_assert(TILES == 8 || TILES == 4 || TILES == 2 || TILES == 1, "a shape it has");
    if constexpr (TILES == 8) {
        KG_MULTIPLY(8, KG_DESCRIBE("%64"), "a", "%65", "%66", "0, %67", KG_MATRICES)
    } else if constexpr (TILES == 4) {
        KG_MULTIPLY(4, KG_DESCRIBE("%32"), "a", "%33", "%34", "0, %35", KG_MATRICES)
    } else if constexpr (TILES == 2) {
        KG_MULTIPLY(2, KG_DESCRIBE("%16"), "a", "%17", "%18", "0, %19", KG_MATRICES)
    } else {
        KG_MULTIPLY(1, KG_DESCRIBE("%8"), "a", "%9", "%10", "0, %11", KG_MATRICES)
    }
}
// clang-format on

// --- a wave by itself -----------------------------------------------------------

// Tiles of 16 x 16 of a matrix, four of 8 x 8 that lanes in turn name the rows of: where the lane's
// lie. Of rows of A or of a turned B, whose second 8 follow the first; and of rows that are columns
// of B. Other tiles lie at multiples of 8 rows, and of 32 bytes in a row, from there.
// Source: PTX ISA, ldmatrix and mma.m16n8k16.
typedef u32 tile_t;
KG_DEV tile_t tile_at(const u8 *matrix, u32 row, u32 piece) {
    return lds_address(matrix) + row * 128 + (piece ^ row % 8) * 16;
}
KG_DEV tile_t tile_of_rows(const u8 *matrix) {
    u32 lane = lane_id();
    return tile_at(matrix, lane % 16, lane / 16);
}
KG_DEV tile_t tile_of_columns(const u8 *matrix) {
    u32 lane = lane_id();
    return tile_at(matrix, lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
template <bool TURNED> KG_DEV void load_tile(u32 (&w)[4], tile_t tile, u32 offset) {
    u32 at = (tile + offset / 128 * 128) ^ offset % 128;
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(at)
                     : "memory");
}

// Tile n of o += A B, as `multiply` has it, of the wave's 16 rows.
template <bool TURNED, int N>
KG_DEV void multiply_alone(acc_t (&o)[2][N], int n, const u32 (&a)[4], tile_t b, u32 offset) {
    u32 w[4];
    load_tile<TURNED>(w, b, offset);
    KG_UNROLL for (int half = 0; half < 2; half++) {
        float sums[4];
        KG_UNROLL for (int r = 0; r < 4; r++) sums[r] = o[r / 2][n].x[2 * half + r % 2];
        mma_16816(sums, a[0], a[1], a[2], a[3], w[2 * half], w[2 * half + 1]);
        KG_UNROLL for (int r = 0; r < 4; r++) o[r / 2][n].x[2 * half + r % 2] = sums[r];
    }
}

} // namespace kg

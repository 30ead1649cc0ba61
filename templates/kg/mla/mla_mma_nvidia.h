// Products of latent attention on sm_90, by groups of four waves: keys of a set, or values turned,
// are the 64 rows of A, query rows the columns of B, and both lie in LDS (kg/attn/lds_nvidia.h).
// Each wave has 16 rows of A, and of the product what mma.h has a lane have. On the cpu device
// mla_mma_cpu.h stands for this file.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/core/gates.h"

namespace kg {

// Zeros where `there` is false.
KG_DEV void copy_16_of(u8 *lds, const u8 *p, bool there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(lds_address(lds)), "l"(p), "r"(there ? 16 : 0)
                 : "memory");
}

// 128 bytes of memory, into the L2.
KG_DEV void bring_near(const u8 *p) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(p) : "memory");
}

// Of a wave, whose products have read it.
KG_DEV void wave_has_read(gate_t *read) {
    if (lane_id() == 0) gate_arrive(read);
}
// waits: else another wave does.
KG_DEV void await_there(const gate_t *there, u32 time, bool waits) {
    u32 done = waits ? 0 : 1;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(gate_address(there)), "r"(time & 1)
                     : "memory");
}
// The same place, in a register of its own: what follows from it has none before.
KG_DEV u8 *lds_again(u8 *lds) {
    return (u8 *)__cvta_shared_to_generic((size_t)opaque(lds_address(lds)));
}
// Words that products have read, and may be others now.
template <int N> KG_DEV void settle_words(u32 (&w)[N][4]) {
    KG_UNROLL for (int n = 0; n < 4 * N; n++) asm volatile("" : "+r"(w[n / 4][n % 4]) : : "memory");
}
template <int T, int N> KG_DEV void settle_tiles(acc_t (&o)[T][N]) {
    KG_UNROLL for (int t = 0; t < T; t++) KG_UNROLL for (int n = 0; n < N; n++)
        KG_UNROLL for (int r = 0; r < O_REGS;
                       r++) asm volatile("" : "+f"(o[t][n].x[r]) : : "memory");
}

// clang-format off
#define KG_COLUMNS_1(t) \
    "+f"(o[t][n].x[0]), "+f"(o[t][n].x[1]), "+f"(o[t][n].x[2]), "+f"(o[t][n].x[3])
#define KG_COLUMNS_2(t) KG_COLUMNS_1(t), KG_COLUMNS_1(t + 1)
#define KG_COLUMNS_4(t) KG_COLUMNS_2(t), KG_COLUMNS_2(t + 2)
#define KG_COLUMNS_8(t) KG_COLUMNS_4(t), KG_COLUMNS_4(t + 4)
#define KG_FLOATS_1 "%0,%1,%2,%3"
#define KG_FLOATS_2 KG_NAMES_1
#define KG_FLOATS_4 KG_NAMES_2
#define KG_FLOATS_8 KG_NAMES_4
#define KG_WIDTH_1 "m64n8k16"
#define KG_WIDTH_2 "m64n16k16"
#define KG_WIDTH_4 "m64n32k16"
#define KG_WIDTH_8 "m64n64k16"
#define KG_MULTIPLY_ROWS(TYPE, TILES, SET_A, A, B, ADD, TURN, ...)                               \
    asm volatile("{.reg .pred p; .reg .b64 a, b; setp.ne.b32 p, " ADD ", 0; " SET_A              \
                 "mov.b64 b, {" B ", " KG_DESCRIPTOR "}; "                                       \
                 "wgmma.mma_async.sync.aligned." KG_WIDTH_##TILES ".f32." TYPE "." TYPE " {"     \
                 KG_FLOATS_##TILES "}, " A ", b, p, 1, 1, " TURN "0;}"                           \
                 : KG_COLUMNS_##TILES(0) : __VA_ARGS__, "r"(b), "r"((u32)add))
#define KG_MULTIPLY_TYPED(...)                 \
    if constexpr (COMPUTE_F16) {                       \
        KG_MULTIPLY_ROWS("f16", __VA_ARGS__);  \
    } else {                                   \
        KG_MULTIPLY_ROWS("bf16", __VA_ARGS__); \
    }
#define KG_ROWS_IN_LDS "r"(a), "n"((int)TURNED)
#define KG_ROWS_HERE "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

// Tile n of all row tiles: o += A B, or = A B, of 16 columns of A. b: a row for each column of B.
// a: a row for each of A, or TURNED one for each column of A.
template <bool TURNED, int T, int N>
KG_DEV void multiply_rows_of(acc_t (&o)[T][N], int n, matrix_t a, matrix_t b, bool add) {
    if constexpr (T == 8) {
        KG_MULTIPLY_TYPED(8, KG_DESCRIBE("%32"), "a", "%34", "%35", "%33, ", KG_ROWS_IN_LDS)
    } else if constexpr (T == 4) {
        KG_MULTIPLY_TYPED(4, KG_DESCRIBE("%16"), "a", "%18", "%19", "%17, ", KG_ROWS_IN_LDS)
    } else if constexpr (T == 2) {
        KG_MULTIPLY_TYPED(2, KG_DESCRIBE("%8"), "a", "%10", "%11", "%9, ", KG_ROWS_IN_LDS)
    } else {
        KG_MULTIPLY_TYPED(1, KG_DESCRIBE("%4"), "a", "%6", "%7", "%5, ", KG_ROWS_IN_LDS)
    }
}
// a: the lane's words of 16 columns of its wave's rows of A.
template <int T, int N>
KG_DEV void multiply_words(acc_t (&o)[T][N], int n, const u32 (&a)[4], matrix_t b, bool add) {
    if constexpr (T == 8) {
        KG_MULTIPLY_TYPED(8, "", "{%32,%33,%34,%35}", "%36", "%37", "", KG_ROWS_HERE)
    } else if constexpr (T == 4) {
        KG_MULTIPLY_TYPED(4, "", "{%16,%17,%18,%19}", "%20", "%21", "", KG_ROWS_HERE)
    } else if constexpr (T == 2) {
        KG_MULTIPLY_TYPED(2, "", "{%8,%9,%10,%11}", "%12", "%13", "", KG_ROWS_HERE)
    } else {
        KG_MULTIPLY_TYPED(1, "", "{%4,%5,%6,%7}", "%8", "%9", "", KG_ROWS_HERE)
    }
}
// clang-format on

// Values as rows of A, by pieces of 16 bytes of keys. Of numbers: 16 keys, the second 8 of which
// lanes 16 and following name, and two pieces. Of codes: 32 keys, and one piece. Word i of a lane
// is two keys' numbers of a column, or two keys' codes of two columns.
template <bool CODES> KG_DEV tile_t tile_of_values(const u8 *matrix) {
    u32 lane = opaque(lane_id());
    return CODES ? tile_at(matrix, lane, 0)
                 : tile_at(matrix, lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
template <bool CODES> KG_DEV void load_values(u32 (&w)[4], tile_t tile, u32 offset) {
    load_tile<true>(w, tile, offset);
}

// Scores of a wave's block as a B of 64 positions: a row of 128 bytes for each query row. w: of
// each row tile, pairs of query rows at one key.
template <int T> KG_DEV void put_turned(u8 *lds, const u32 (&w)[T][2], int block) {
    u32 lane = lane_id(), column = lane % 8, half = lane / 8 % 2, tile = lane / 16;
    u8 *at = lds + column * 128 + ((((u32)block * 2 + half) ^ column) * 16);
    if constexpr (T == 1) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};"
                     :
                     : "r"(lds_address(at)), "r"(w[0][0]), "r"(w[0][1])
                     : "memory");
    } else {
        KG_UNROLL for (int t = 0; t + 1 < T; t += 2) asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" : :
            "r"(lds_address(at + ((u32)t + tile) * 1024)), "r"(w[t][0]), "r"(w[t][1]),
            "r"(w[t + 1][0]), "r"(w[t + 1][1]) : "memory");
    }
}

} // namespace kg

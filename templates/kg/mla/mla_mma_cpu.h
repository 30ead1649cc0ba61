// Products of latent attention on the cpu device; see mla_mma_nvidia.h.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/core/gates.h"

namespace kg {

KG_DEV void copy_16_of(u8 *lds, const u8 *p, bool there) {
    if (there)
        copy_16(lds, p);
    else
        __builtin_memset(lds, 0, 16);
}
KG_DEV void bring_near(const u8 *) {}
KG_DEV void wave_has_read(gate_t *read) { gate_arrive_wave(read); }
KG_DEV void await_there(const gate_t *there, u32 time, bool waits) {
    if (waits) gate_await(there, time);
}
KG_DEV u8 *lds_again(u8 *lds) { return lds; }
template <int T, int N> KG_DEV void settle_tiles(acc_t (&)[T][N]) {}

template <int N> KG_DEV void settle_words(u32 (&)[N][4]) {}

template <int T, int N>
KG_DEV void multiply_row(acc_t (&o)[T][N], int n, int r, const row_of_a &row, matrix_t b,
                         bool add) {
    for (int t = 0; t < T; t++) {
        float &sum = o[t][n].x[r];
        int column = t * 8 + lane_column((int)lane_id(), r % COLS);
        sum = product_of<false>(row, b, column, add ? sum : 0.0f);
    }
}
template <bool TURNED, int T, int N>
KG_DEV void multiply_rows_of(acc_t (&o)[T][N], int n, matrix_t a, matrix_t b, bool add) {
    int lane = (int)lane_id();
    for (int r = 0; r < O_REGS; r++) {
        row_of_a row;
        int at = (int)wave_id() % 4 * 16 + lane_i(lane) + r / 2 * 8;
        for (int k = 0; k < 8; k++) {
            u32 low = TURNED ? matrix_element(a, 2 * k, at) : matrix_element(a, at, 2 * k);
            u32 high = TURNED ? matrix_element(a, 2 * k + 1, at) : matrix_element(a, at, 2 * k + 1);
            row.word[k] = low | high << 16;
        }
        multiply_row(o, n, r, row, b, add);
    }
}
template <int T, int N>
KG_DEV void multiply_words(acc_t (&o)[T][N], int n, const u32 (&a)[4], matrix_t b, bool add) {
    row_of_a rows[2];
    words_to_rows(rows, a);
    for (int r = 0; r < O_REGS; r++) multiply_row(o, n, r, rows[r / 2], b, add);
}

template <bool CODES> KG_DEV tile_t tile_of_values(const u8 *matrix) { return matrix_at(matrix); }
template <bool CODES> KG_DEV void load_values(u32 (&w)[4], tile_t tile, u32 offset) {
    int lane = (int)lane_id();
    for (int n = 0; n < 4; n++) {
        int row = 2 * lane_grp(lane) + (CODES ? n : n / 2) * 8;
        int column = lane_i(lane) + (CODES ? 0 : n % 2 * 8);
        w[n] = matrix_element(further(tile, offset), row, column) |
               matrix_element(further(tile, offset), row + 1, column) << 16;
    }
}

template <int T> KG_DEV void put_turned(u8 *lds, const u32 (&w)[T][2], int block) {
    int lane = (int)lane_id();
    for (int n = 0; n < T * 4; n++) {
        int column = n / 4 * 8 + lane_column(lane, n % 2), half = n / 2 % 2;
        u32 piece = (u32)(block * 2 + half) ^ (u32)column % 8;
        *(u16 *)(lds + column * 128 + piece * 16 + lane_i(lane) * 2) =
            (u16)(w[n / 4][half] >> 16 * (n % 2));
    }
}

} // namespace kg

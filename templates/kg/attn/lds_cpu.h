// LDS on the cpu device; see lds_nvidia.h. Products are done at once, copies are when they are
// waited for.
#pragma once
#include "kg/attn/mma.h"

namespace kg {

KG_DEV void copy_16(u8 *lds, const u8 *p) { kg_ops->copy(lds, p, 16); }
KG_DEV void copy_4(void *lds, const void *p) { kg_ops->copy(lds, p, 4); }
KG_DEV void visit(u8 *, const u8 *) {}
KG_DEV void copies_end() { kg_ops->copies_end(); }
template <int N> KG_DEV void copies_done() { kg_ops->copies_done(N); }
KG_DEV void show_lds() {}
KG_DEV void products_begin() {}
KG_DEV void products_end() {}
template <int N> KG_DEV void products_done() {}
template <int N> KG_DEV void settle(acc_t (&)[2][N]) {}

struct matrix_t {
    const u8 *at;
    u32 width; // bytes from 64 columns to the next
};
KG_DEV matrix_t matrix_at(const u8 *lds) { return matrix_t{lds, 128}; }
KG_DEV matrix_t lasting_matrix_at(const u8 *lds) { return matrix_at(lds); }
KG_DEV matrix_t further(matrix_t m, u32 bytes) { return matrix_t{m.at + bytes, m.width}; }
KG_DEV matrix_t widened(matrix_t m, u32 bytes) { return matrix_t{m.at, bytes}; }

// Column `column` of row `row`.
KG_DEV u32 matrix_element(matrix_t m, int row, int column) {
    const u8 *lds = kg_ops->self()->lds;
    u32 at = (u32)(m.at - lds) + (u32)(row * 128 + column % 64 * 2) + (u32)column / 64 * m.width;
    return *(const u16 *)(lds + (at ^ (at >> 7 & 7) << 4));
}

struct row_of_a {
    u32 word[8]; // 16 columns
};
template <bool TURNED>
KG_DEV float product_of(const row_of_a &a, matrix_t b, int column, float sum) {
    u32 words[8];
    for (int k = 0; k < 16; k += 2) {
        u32 low = TURNED ? matrix_element(b, k, column) : matrix_element(b, column, k);
        u32 high = TURNED ? matrix_element(b, k + 1, column) : matrix_element(b, column, k + 1);
        words[k / 2] = low | high << 16;
    }
    return sum + dot_words(a.word, words, 8);
}

// Of the words that lanes have of 16 columns.
KG_DEV void words_to_rows(row_of_a (&rows)[2], const u32 (&a)[4]) {
    const u32 *all = exchange(a, 4);
    int i = lane_i((int)lane_id());
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 8; k++)
            rows[t].word[k] = all[lane_at(i, k % 4) * EXCHANGE_WORDS + t + k / 4 * 2];
    exchange_done();
}

template <int TILES, bool TURNED, int N>
KG_DEV void multiply_rows(acc_t (&o)[2][N], int first, const row_of_a (&a)[2], matrix_t b,
                          bool add) {
    int grp = lane_grp((int)lane_id());
    for (int n = 0; n < TILES * 2 * O_REGS; n++) {
        int tile = n / (2 * O_REGS), t = n / O_REGS % 2, r = n % O_REGS;
        float &sum = o[t][first + tile].x[r];
        sum =
            product_of<TURNED>(a[t], b, tile * 16 + r / 2 * 8 + 2 * grp + r % 2, add ? sum : 0.0f);
    }
}

template <int TILES, bool TURNED, int N>
KG_DEV void multiply(acc_t (&o)[2][N], int first, const u32 (&a)[4], matrix_t b, bool add) {
    row_of_a rows[2];
    words_to_rows(rows, a);
    multiply_rows<TILES, TURNED>(o, first, rows, b, add);
}

template <int TILES, bool TURNED, int N>
KG_DEV void multiply(acc_t (&o)[2][N], int first, matrix_t a, matrix_t b, bool add) {
    row_of_a rows[2];
    int row = (int)wave_id() % 4 * 16 + lane_i((int)lane_id());
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 8; k++)
            rows[t].word[k] = matrix_element(a, row + 8 * t, 2 * k) |
                              matrix_element(a, row + 8 * t, 2 * k + 1) << 16;
    multiply_rows<TILES, TURNED>(o, first, rows, b, add);
}

// A wave by itself.
typedef matrix_t tile_t;
KG_DEV tile_t tile_of_rows(const u8 *matrix) { return matrix_at(matrix); }
KG_DEV tile_t tile_of_columns(const u8 *matrix) { return matrix_at(matrix); }
template <bool TURNED> KG_DEV void load_tile(u32 (&w)[4], tile_t tile, u32 offset) {
    static_assert(!TURNED, "rows of A");
    int lane = (int)lane_id();
    for (int n = 0; n < 4; n++) {
        int row = lane_i(lane) + n % 2 * 8, column = 2 * lane_grp(lane) + n / 2 * 8;
        w[n] = matrix_element(further(tile, offset), row, column) |
               matrix_element(further(tile, offset), row, column + 1) << 16;
    }
}
template <bool TURNED, int N>
KG_DEV void multiply_alone(acc_t (&o)[2][N], int n, const u32 (&a)[4], tile_t b, u32 offset) {
    multiply<1, TURNED>(o, n, a, further(b, offset), true);
}

} // namespace kg

// Cached rows: where they begin, and pieces of 16 bytes of them. Rows whose latent is
// quantised by blocks become numbers on the way into LDS, so that the products meet what
// they always meet.
#pragma once
#include "kg/attn/merge.h"
#include "kg/core/fp8_read.h"
#include "kg/mla/mla_shape.h"

namespace kg {

constexpr int KV_BYTES = KV_BITS / 8;
constexpr bool BLOCKED = ROW_DTYPE != 0;
constexpr int CODE_DTYPE = BLOCKED ? ROW_DTYPE : DTYPE_E4M3FN; // nobody reads others
constexpr int CODE_PIECES = BLOCKED ? V_DIM / 16 : 0;          // the first of a row
constexpr int ROW_PIECES = CODE_PIECES + (HEAD_DIM - CODE_PIECES * 16) * KV_BYTES / 16;

// Key k_token(i, row) of a block lies in row `row * NI + i` of LDS: the lanes
// of a key operand then have neighbours. PAIRED: in their own order.
KG_DEV int staged_token(int row) { return PAIRED ? row : k_token(row % NI, row / NI); }

// Where the cached row of a token begins; 0: it has none, and stays 0 in LDS, where no memory
// of nobody may become a NaN.
KG_DEV u64 cached_row(const head_t &h, const keys_t &keys, i32 page, int token) {
    if (SPARSE && page < 0) return 0;
    int slot = slot_of(keys, token, token);
    return (u64)h.k + (u64)(inside_pool(keys, page) * h.k_page) + (u64)((u32)slot * (u32)h.k_token);
}

// That lane `row` has.
KG_DEV u64 row_of(u64 row_of_lane, int row) {
    u32 low = shuffle((u32)row_of_lane, (u32)row);
    u32 high = shuffle((u32)(row_of_lane >> 32), (u32)row);
    return (u64)high << 32 | low;
}

// Behind the codes are scales.
KG_DEV int piece_place(int column) {
    return column * 16 + (BLOCKED && column >= CODE_PIECES ? kg_mla_scale_bytes(V_DIM) : 0);
}
KG_DEV float block_scale(const u8 *row, int column) {
    int block = smaller(column, CODE_PIECES - 1) / (KG_MLA_BLOCK / 16);
    return load((const float *)(row + V_DIM) + block);
}

KG_DEV void fetch_piece(u32 (&w)[4], float &scale, u64 from, int column) {
    KG_UNROLL for (int j = 0; j < 4 && SPARSE; j++) w[j] = 0;
    if constexpr (BLOCKED) scale = 0;
    if (SPARSE && !from) return;
    load_words(w, (const u8 *)from + piece_place(column));
    if constexpr (BLOCKED) scale = block_scale((const u8 *)from, column);
}

struct alignas(16) line_t {
    u32 w[4];
};

KG_DEV u32 pack_kv(float a, float b) {
    return KV_DTYPE == DTYPE_FP16 ? pack_f16(a, b) : pack_bf16_numbers(a, b);
}

// 4 codes with the scales of those at even and at odd places. A code that is no number is a short
// NaN.
KG_DEV void codes_to_pairs(u32 (&x)[2], u32 codes, float even, float odd) {
    float f[4];
    fp8_values<CODE_DTYPE>(f, codes);
    KG_UNROLL for (int j = 0; j < 2; j++) x[j] = pack_kv(f[2 * j] * even, f[2 * j + 1] * odd);
}
// 16 codes of one block.
KG_DEV void codes_to_kv(u32 (&x)[8], const u32 (&codes)[4], float scale_of_block) {
    float scale = short_nan(scale_of_block);
    KG_UNROLL for (int i = 0; i < 4; i++) {
        u32 pair[2];
        codes_to_pairs(pair, codes[i], scale, scale);
        KG_UNROLL for (int j = 0; j < 2; j++) x[2 * i + j] = pair[j];
    }
}

} // namespace kg

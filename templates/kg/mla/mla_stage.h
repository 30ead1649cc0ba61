// A block of cached rows on its way: from memory into registers while the block
// before is computed, then into LDS, where all waves of the workgroup read it. A
// wave brings some rows of the block; each lane has pieces of 16 bytes.
#pragma once
#include "kg/attn/merge.h"

namespace kg {

constexpr int KV_BYTES = KV_BITS / 8;
constexpr int ROW_PIECES = HEAD_DIM * KV_BYTES / 16;
constexpr int STAGE_ROWS = ceil_div(TOK, V_SPLIT); // of a wave
constexpr int STAGE_PIECES = STAGE_ROWS * ROW_PIECES;
constexpr int LANE_PIECES = ceil_div(STAGE_PIECES, WAVE);

struct pieces_t {
    u32 w[LANE_PIECES][4];
};

// Key k_token(i, row) of a block lies in row `row * NI + i` of the stage: the lanes
// of a key operand then have neighbours.
KG_DEV int staged_token(int row) { return k_token(row % NI, row / NI); }

// Where the cached row begins that row `lane` of the stage at `start` holds; 0: it has
// none, and stays 0 in the stage, where no memory of nobody may become a NaN.
KG_DEV i32 stage_page(const keys_t &keys, int start) {
    int row = (int)lane_id() % TOK;
    return page_number(keys, start + staged_token(row));
}
KG_DEV u64 stage_row(const head_t &h, const keys_t &keys, i32 page, int start) {
    int token = start + staged_token((int)lane_id() % TOK);
    if (SPARSE && page < 0) return 0;
    int slot = slot_of(keys, token, token);
    return (u64)h.k + (u64)(inside_pool(keys, page) * h.k_page) + (u64)((u32)slot * (u32)h.k_token);
}

// Of the wave's pieces, number `n` of the lane; those behind the last are the last.
struct piece_t {
    int row, column; // of the stage; of 16 bytes
};
KG_DEV piece_t piece_of(int wave, int lane, int n) {
    int at = smaller(lane + n * WAVE, STAGE_PIECES - 1);
    return piece_t{smaller(wave * STAGE_ROWS + at / ROW_PIECES, TOK - 1), at % ROW_PIECES};
}

KG_DEV void fetch(pieces_t &pieces, u64 row_of_lane, int wave, int lane) {
    KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
        piece_t p = piece_of(wave, lane, n);
        u32 low = shuffle((u32)row_of_lane, (u32)p.row);
        u32 high = shuffle((u32)(row_of_lane >> 32), (u32)p.row);
        u64 from = (u64)high << 32 | low;
        KG_UNROLL for (int j = 0; j < 4 && SPARSE; j++) pieces.w[n][j] = 0;
        if (!SPARSE || from) load_words(pieces.w[n], (const u8 *)from + p.column * 16);
    }
}

struct alignas(16) line_t {
    u32 w[4];
};

KG_DEV void put(u8 *stage, const pieces_t &pieces, int wave, int lane) {
    KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
        piece_t p = piece_of(wave, lane, n);
        line_t line = {{pieces.w[n][0], pieces.w[n][1], pieces.w[n][2], pieces.w[n][3]}};
        *(line_t *)(stage + p.row * STAGE_ROW + p.column * 16) = line;
    }
}

} // namespace kg

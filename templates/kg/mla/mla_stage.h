// A block of cached rows on its way: from memory into registers while the block
// before is computed, then into LDS, where all waves of the workgroup read it. A
// wave brings some rows of the block; each lane has pieces of 16 bytes. Rows whose latent
// is quantised by blocks become numbers on the way into LDS, so that the products meet
// what they always meet.
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
constexpr int STAGE_ROWS = ceil_div(TOK, V_SPLIT); // of a wave
constexpr int STAGE_PIECES = STAGE_ROWS * ROW_PIECES;
constexpr int LANE_PIECES = ceil_div(STAGE_PIECES, WAVE);

struct pieces_t {
    u32 w[LANE_PIECES][4];
    float scale[BLOCKED ? LANE_PIECES : 1];
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

// Behind the codes are scales.
KG_DEV int piece_place(int column) {
    return column * 16 + (BLOCKED && column >= CODE_PIECES ? kg_mla_scale_bytes(V_DIM) : 0);
}
KG_DEV float block_scale(const u8 *row, int column) {
    int block = smaller(column, CODE_PIECES - 1) / (KG_MLA_BLOCK / 16);
    return load((const float *)(row + V_DIM) + block);
}

KG_DEV void fetch(pieces_t &pieces, u64 row_of_lane, int wave, int lane) {
    KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
        piece_t p = piece_of(wave, lane, n);
        u32 low = shuffle((u32)row_of_lane, (u32)p.row);
        u32 high = shuffle((u32)(row_of_lane >> 32), (u32)p.row);
        u64 from = (u64)high << 32 | low;
        KG_UNROLL for (int j = 0; j < 4 && SPARSE; j++) pieces.w[n][j] = 0;
        if constexpr (BLOCKED) pieces.scale[n] = 0;
        if (SPARSE && !from) continue;
        load_words(pieces.w[n], (const u8 *)from + piece_place(p.column));
        if constexpr (BLOCKED) pieces.scale[n] = block_scale((const u8 *)from, p.column);
    }
}

struct alignas(16) line_t {
    u32 w[4];
};

KG_DEV u32 pack_kv(float a, float b) {
    return KV_DTYPE == DTYPE_FP16 ? pack_f16(a, b) : pack_bf16(a, b);
}

// 16 codes of one block.
KG_DEV void put_codes(u8 *to, const u32 (&codes)[4], float scale) {
    u32 x[8];
    KG_UNROLL for (int i = 0; i < 4; i++) {
        float f[4];
        fp8_values<CODE_DTYPE>(f, codes[i]);
        KG_UNROLL for (int j = 0; j < 2; j++) x[2 * i + j] =
            pack_kv(f[2 * j] * scale, f[2 * j + 1] * scale);
    }
    KG_UNROLL for (int i = 0; i < 2; i++)((line_t *)to)[i] =
        line_t{{x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]}};
}

KG_DEV void put(u8 *stage, const pieces_t &pieces, int wave, int lane) {
    KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
        piece_t p = piece_of(wave, lane, n);
        u8 *row = stage + p.row * STAGE_ROW;
        if constexpr (BLOCKED)
            if (p.column < CODE_PIECES) {
                put_codes(row + p.column * 32, pieces.w[n], pieces.scale[n]);
                continue;
            }
        line_t line = {{pieces.w[n][0], pieces.w[n][1], pieces.w[n][2], pieces.w[n][3]}};
        *(line_t *)(row + (p.column + CODE_PIECES) * 16) = line;
    }
}

} // namespace kg

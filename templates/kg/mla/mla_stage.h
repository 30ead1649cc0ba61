// A block of cached rows on its way: from memory into registers while the block
// before is computed, then into LDS, where all waves of the workgroup read it in the order of
// key operands. A wave brings some rows of the block; each lane has pieces of 16 bytes.
#pragma once
#include "kg/mla/mla_rows.h"

namespace kg {

constexpr int STAGE_ROWS = ceil_div(TOK, V_SPLIT); // of a wave
constexpr int STAGE_PIECES = STAGE_ROWS * ROW_PIECES;
constexpr int LANE_PIECES = ceil_div(STAGE_PIECES, WAVE);

struct pieces_t {
    u32 w[LANE_PIECES][4];
    float scale[BLOCKED ? LANE_PIECES : 1];
};

// A wave brings tokens that follow one another: of pages that hold sixteen they lie in one, which
// is a scalar, and so is where its rows begin. Of smaller ones each lane knows it of a token.
constexpr bool ROWS_OF_PAGE = !SMALL_PAGE && 16 % STAGE_ROWS == 0;
KG_DEV int first_of_page(int wave) { return wave * STAGE_ROWS / 16 * 16; }

KG_DEV i32 stage_page(const keys_t &keys, int start, int wave) {
    return page_number(keys, start + (ROWS_OF_PAGE ? first_of_page(wave) : (int)lane_id() % TOK));
}

// Of the wave's pieces, number `n` of the lane; those behind the last are the last.
struct stage_piece_t {
    int row, column; // a token of the block; of 16 bytes
};
KG_DEV stage_piece_t piece_of(int wave, int lane, int n) {
    int at = smaller(lane + n * WAVE, STAGE_PIECES - 1);
    return stage_piece_t{smaller(wave * STAGE_ROWS + at / ROW_PIECES, TOK - 1), at % ROW_PIECES};
}

// When it is there: nobody waits for it later, with the rows behind it on their way.
KG_DEV i32 settle_page(i32 page) { return ROWS_OF_PAGE ? uniform(page) : page; }

KG_DEV void fetch_rows(pieces_t &pieces, const head_t &h, const keys_t &keys, i32 page, int start,
                       int wave, int lane) {
    int first = first_of_page(wave);
    i32 id = (i32)inside_pool(keys, page);
    page_rows_t rows = page_rows(keys, id, h.k, h.k_page, h.k_token, start + first);
    KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
        stage_piece_t p = piece_of(wave, lane, n);
        fetch_piece(pieces.w[n], pieces.scale[BLOCKED ? n : 0],
                    (u64)row_in_page(rows, p.row - first, h.k_token, 0), p.column);
    }
}

// Of the block at `start`, whose page is `page` (stage_page).
KG_DEV void fetch(pieces_t &pieces, const head_t &h, const keys_t &keys, i32 page, int start,
                  int wave, int lane) {
    if constexpr (ROWS_OF_PAGE) return fetch_rows(pieces, h, keys, page, start, wave, lane);
    u64 row_of_lane = cached_row(h, keys, page, start + (int)lane_id() % TOK);
    KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
        stage_piece_t p = piece_of(wave, lane, n);
        fetch_piece(pieces.w[n], pieces.scale[BLOCKED ? n : 0], row_of(row_of_lane, p.row),
                    p.column);
    }
}

KG_DEV void put_codes(u8 *low, u8 *high, const u32 (&codes)[4], float scale) {
    u32 x[8];
    codes_to_kv(x, codes, scale);
    *(line_t *)low = line_t{{x[0], x[1], x[2], x[3]}};
    *(line_t *)high = line_t{{x[4], x[5], x[6], x[7]}};
}

KG_DEV void put(u8 *stage, const pieces_t &pieces, int wave, int lane) {
    KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
        stage_piece_t p = piece_of(wave, lane, n);
        u8 *row = stage + k_place(p.row) * STAGE_ROW;
        if constexpr (BLOCKED)
            if (p.column < CODE_PIECES) {
                u8 *to = row + p.column * 32;
                put_codes(to, to + 16, pieces.w[n], pieces.scale[n]);
                continue;
            }
        line_t line = {{pieces.w[n][0], pieces.w[n][1], pieces.w[n][2], pieces.w[n][3]}};
        *(line_t *)(row + (p.column + CODE_PIECES) * 16) = line;
    }
}

// Rows on their way, and the page of those behind them.
struct bring_t {
    pieces_t pieces;
    i32 next_page;
};
KG_DEV void bring_first(bring_t &b, const head_t &h, const keys_t &keys, int block, int wave,
                        int lane) {
    i32 page = stage_page(keys, block * TOK, wave);
    b.next_page = stage_page(keys, (block + 1) * TOK, wave);
    fetch(b.pieces, h, keys, settle_page(page), block * TOK, wave, lane);
}
// Where those on their way have come.
KG_DEV void bring_next(bring_t &b, const head_t &h, const keys_t &keys, int block, int end,
                       int wave, int lane) {
    i32 page = settle_page(b.next_page);
    b.next_page = stage_page(keys, (block + 1) * TOK, wave);
    if (block < end) fetch(b.pieces, h, keys, page, block * TOK, wave, lane);
}

} // namespace kg

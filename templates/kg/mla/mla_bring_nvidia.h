// How sets of keys come into LDS on sm_90: SET_ROWS cached rows lie there as matrices of 64 columns
// (kg/attn/lds_nvidia.h). Two sets have room: one is multiplied, the other comes. Each wave of the
// bringing group has one block of a set, lane n row n of it.
//
// Copies go past the registers. What the products take otherwise than it is cached lies beside the
// sets first, where each lane has what it copied, and is converted from there while the other group
// works out scores.
#pragma once
#include "kg/mla/mla_mma_nvidia.h"
#include "kg/mla/mla_rows.h"

namespace kg {

constexpr int SET_ROWS = KG_ATTN_STAGED_KEYS, SET_BLOCKS_OF = SET_ROWS / TOK;
constexpr int MATRIX_OF_SET = SET_ROWS * 128; // bytes
constexpr int SET_BYTES = ceil_div(HEAD_DIM, 64) * MATRIX_OF_SET;

constexpr bool CONVERTS = BLOCKED || KV_8BIT || (KV_DTYPE == DTYPE_BF16 && COMPUTE_F16);
// Halves of a wave's block that wait to be converted, of HALF_ROWS each.
constexpr int HALF_ROWS = TOK / 2;
constexpr int RAW_HALVES = KV_8BIT || BLOCKED ? 2 : 1;
constexpr int RAW_SCALES = BLOCKED ? kg_mla_scale_bytes(V_DIM) : 0; // of a row
constexpr int HALF_PIECES = kg_mla_pieces(ROW_PIECES, HALF_ROWS);
static_assert(STAGE_RAW == (CONVERTS ? kg_mla_raw_bytes(ROW_PIECES, RAW_HALVES, RAW_SCALES) : 0),
              "as gen/ counts it");

// Whole turns of the wave through a row, and what is left of several rows at once.
constexpr int ROW_TURNS = ROW_PIECES / WAVE, LEFT = ROW_PIECES % WAVE;
constexpr int LEFT_LANES = kg_attn_lanes_of_row(larger(LEFT, 1), WAVE);
constexpr int left_at_once(int rows) { return smaller(WAVE / LEFT_LANES, rows); }

// f(n, row, column): the lane's piece n of `ROWS_OF` rows from `first` on. A lane too many has one
// again.
template <int ROWS_OF, class F> KG_DEV void each_piece(int first, const F &f) {
    constexpr int AT_ONCE = left_at_once(ROWS_OF);
    int lane = (int)lane_id(), n = 0;
    KG_UNROLL for (int row = 0; row < ROWS_OF; row++)
        KG_UNROLL for (int turn = 0; turn < ROW_TURNS; turn++)
            f(n++, first + row, turn * WAVE + lane);
    KG_UNROLL for (int row = 0; row < ROWS_OF && LEFT != 0; row += AT_ONCE)
        f(n++, first + row + smaller(lane / LEFT_LANES, AT_ONCE - 1),
          ROW_TURNS * WAVE + smaller(lane % LEFT_LANES, LEFT - 1));
}

// 8 columns of a row of a set.
KG_DEV u8 *place_of(u8 *set, int row, int columns) {
    u32 piece = (u32)columns;
    return set + piece / 8 * MATRIX_OF_SET + (u32)row * 128 + ((piece ^ (u32)row) % 8) * 16;
}

// The token of the lane's row in the wave's block of a set that begins with `block`. Rows behind
// the segment are its last one: what its memory holds is a number.
KG_DEV int token_of_lane(int block, int part, int end) {
    int token = (block + part) * TOK + staged_token((int)lane_id() % TOK);
    return smaller(token, end * TOK - 1);
}

// What a wave of the bringing group knows of what comes next: set `block`.
struct bringer_t {
    int block, end, part; // end: of the segment
    i32 page;             // of the lane's row
    u64 row;              // CONVERTS: the lane's in what is copied
    bool more;            // there is a set that it is of
    u8 *raw;              // of the wave
};

KG_DEV i32 page_of_lane(const keys_t &keys, const bringer_t &b) {
    return page_number(keys, token_of_lane(b.block, b.part, b.end));
}
// Of set `block`, which then is the next.
KG_DEV u64 take_rows(bringer_t &b, const head_t &h, const keys_t &keys) {
    u64 row = cached_row(h, keys, b.page, token_of_lane(b.block, b.part, b.end));
    b.block += SET_BLOCKS_OF;
    b.page = page_of_lane(keys, b);
    return row;
}

// --- as they are ---------------------------------------------------------------------

// Of the next set, if there is one.
KG_DEV void copy_set(u8 *set, there_t *there, bringer_t &b, const head_t &h, const keys_t &keys) {
    if (b.block >= b.end) return;
    u64 row_of_lane = take_rows(b, h, keys);
    each_piece<TOK>(0, [&](int, int row, int column) {
        u64 from = row_of(row_of_lane, row);
        u8 *to = place_of(set, b.part * TOK + row, column);
        const u8 *p = (const u8 *)from + column * 16;
        if constexpr (SPARSE != 0)
            copy_16_of(to, from ? p : h.k, from != 0);
        else
            copy_16(to, p);
    });
    there_soon(there);
}

// --- converted ------------------------------------------------------------------------

KG_DEV void put_line(u8 *to, const u32 *w) { *(line_t *)to = line_t{{w[0], w[1], w[2], w[3]}}; }
KG_DEV void convert_to(u8 *set, int row, int column, const u32 (&w)[4], float scale) {
    constexpr int NEW = 16 / KV_BITS; // pieces that one becomes
    if (BLOCKED && column < CODE_PIECES) {
        u32 x[8];
        codes_to_kv(x, w, scale);
        KG_UNROLL for (int i = 0; i < 2; i++) {
            u32 in[4] = {x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]}, out[4 * NEW];
            to_compute<4>(out, in);
            put_line(place_of(set, row, 2 * column + i), out);
        }
        return;
    }
    u32 out[4 * NEW];
    to_compute<4>(out, w);
    KG_UNROLL for (int i = 0; i < NEW; i++)
        put_line(place_of(set, row, (column + CODE_PIECES) * NEW + i), out + 4 * i);
}

KG_DEV u8 *raw_piece(const bringer_t &b, int half, int n) {
    return b.raw + ((half % RAW_HALVES * HALF_PIECES + n) * WAVE + (int)lane_id()) * 16;
}
KG_DEV u8 *raw_scales(const bringer_t &b, int row) {
    return b.raw + RAW_HALVES * HALF_PIECES * WAVE * 16 + row * RAW_SCALES;
}
KG_DEV void copy_raw(u8 *to, u64 row, int place) {
    if constexpr (SPARSE != 0)
        copy_16_of(to, (const u8 *)row + (row ? place : 0), row != 0);
    else
        copy_16(to, (const u8 *)row + place);
}
KG_DEV void copy_half(const bringer_t &b, int half) {
    each_piece<HALF_ROWS>(half * HALF_ROWS, [&](int n, int row, int column) {
        copy_raw(raw_piece(b, half, n), row_of(b.row, row), piece_place(column));
    });
    int row = (int)lane_id();
    if (BLOCKED && row / HALF_ROWS == half)
        KG_UNROLL for (int at = 0; at < RAW_SCALES; at += 16)
            copy_raw(raw_scales(b, row) + at, b.row, V_DIM + at);
    copies_end();
}
// In its place comes the one RAW_HALVES behind it, of this set or of the next. Whoever multiplies
// makes the products see what was converted: a fence would wait here for what is on its way.
KG_DEV void convert_half(u8 *set, bringer_t &b, const head_t &h, const keys_t &keys, int half) {
    copies_done<RAW_HALVES - 1>();
    if constexpr (BLOCKED) meet_wave(); // scales are other lanes'
    each_piece<HALF_ROWS>(half * HALF_ROWS, [&](int n, int row, int column) {
        line_t line = *(const line_t *)raw_piece(b, half, n);
        int block = smaller(column, CODE_PIECES - 1) / (KG_MLA_BLOCK / 16);
        float scale = BLOCKED ? ((const float *)raw_scales(b, row))[block] : 0;
        convert_to(set, b.part * TOK + row, column, line.w, scale);
    });
    if constexpr (BLOCKED) meet_wave();
    int later = half + RAW_HALVES;
    if (later == 2) {
        b.more = b.block < b.end;
        if (b.more) b.row = take_rows(b, h, keys);
    }
    if (later < 2 || b.more)
        copy_half(b, later % 2);
    else
        copies_end();
}

// The first set, and what comes of the second.
KG_DEV void bring_first(u8 *sets, there_t *there, bringer_t &b, const head_t &h,
                        const keys_t &keys) {
    b.page = page_of_lane(keys, b);
    if constexpr (CONVERTS) {
        b.row = take_rows(b, h, keys);
        KG_UNROLL for (int half = 0; half < RAW_HALVES; half++) copy_half(b, half);
        KG_UNROLL for (int half = 0; half < 2; half++) convert_half(sets, b, h, keys, half);
    } else {
        KG_LOOP for (int n = 0; n < 2; n++) copy_set(sets + n * SET_BYTES, there + n, b, h, keys);
    }
}

} // namespace kg

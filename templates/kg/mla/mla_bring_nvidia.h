// How sets of keys come into LDS on sm_90: SET_ROWS rows lie there as they are cached, as matrices
// of 128 bytes a row (kg/attn/lds_nvidia.h), the scales of 656-byte rows behind them. One set is
// multiplied, the others come. Each wave of the bringing group has one block of a set, lane n row n
// of it. Copies go past the registers.
#pragma once
#include "kg/attn/boxes_nvidia.h"
#include "kg/mla/mla_mma_nvidia.h"
#include "kg/mla/mla_rows.h"

namespace kg {

// --- what waves tell each other ---------------------------------------------------------

// Of two groups of four waves. Those of the first meet, of which some may have nothing to say:
KG_DEV void meet_first(bool mine) {
    if (mine) meet_at<4 * WAVE>(1);
}
// What the other has written the first group reads, which waits for it.
KG_DEV void meet_others(bool first) {
    if (first)
        meet_at<8 * WAVE>(2);
    else
        say_at<8 * WAVE>(2);
}
// Who says something goes on, who hears it waits for that: two waves of one number in their groups.
// what: one of two things.
KG_DEV void say(int what, int wave) { say_at<2 * WAVE>(4 + what * 4 + wave); }
KG_DEV void hear(int what, int wave) { meet_at<2 * WAVE>(4 + what * 4 + wave); }
KG_DEV void meet_group(int group) { meet_at<4 * WAVE>(12 + group); }
// The first's products of scores are on their way, and the second's go behind them: each multiplies
// while the other has a softmax.
KG_DEV void take_turn(int group) {
    if (group == 0)
        say_at<8 * WAVE>(14);
    else
        meet_at<8 * WAVE>(14);
}

// --- sets ---------------------------------------------------------------------------------

constexpr bool CODES = (KV_8BIT || BLOCKED) && !PAIRED; // what values lie in LDS as
constexpr bool THROUGH_REGISTERS = CODES || (KV_DTYPE == DTYPE_BF16 && COMPUTE_F16);

constexpr int SET_ROWS = KG_MLA_SET_KEYS, SET_BLOCKS_OF = SET_ROWS / TOK;
constexpr int MATRIX_OF_SET = SET_ROWS * 128; // bytes
constexpr kg_mla_stage STAGE = kg_mla_stage_of(V_DIM, HEAD_DIM - V_DIM, KV_BITS, BLOCKED,
                                               THROUGH_REGISTERS, ROWS, OCCUPANCY, PAIRED);
constexpr int Q_MATRIX = ROWS * 128;
constexpr int SET_BYTES = STAGE.set, SLOTS = STAGE.slots;
constexpr int ROW_SCALES = BLOCKED ? kg_mla_scale_bytes(V_DIM) : 0; // bytes
constexpr int SCALES_OF_SET = SET_BYTES - SET_ROWS * ROW_SCALES;    // where they lie

// Whole turns of the wave through a row, and what is left of several rows at once.
constexpr int ROW_TURNS = ROW_PIECES / WAVE, LEFT = ROW_PIECES % WAVE;
constexpr int LEFT_LANES = kg_attn_lanes_of_row(larger(LEFT, 1), WAVE);
constexpr int LEFT_ROWS = smaller(WAVE / LEFT_LANES, TOK);

// Rows whose addresses have registers at once.
constexpr int ROWS_AT_ONCE = ROW_TILES < 8 ? TOK : THROUGH_REGISTERS ? 2 : 4;
constexpr int LEFT_AT_ONCE = smaller(TOK, larger(2 * LEFT_ROWS, ROWS_AT_ONCE));

// f(row, column): the lane's pieces of a block's rows. A lane too many has one again.
template <class F> KG_DEV void each_piece(const F &f) {
    int lane = (int)lane_id();
    KG_LOOP for (int first = 0; first < TOK; first += ROWS_AT_ONCE)
        KG_UNROLL for (int row = 0; row < ROWS_AT_ONCE; row++)
            KG_UNROLL for (int turn = 0; turn < ROW_TURNS; turn++)
                f(first + row, turn * WAVE + lane);
    KG_LOOP for (int first = 0; first < TOK && LEFT != 0; first += LEFT_AT_ONCE)
        KG_UNROLL for (int row = 0; row < LEFT_AT_ONCE; row += LEFT_ROWS)
            f(first + row + smaller(lane / LEFT_LANES, LEFT_ROWS - 1),
              ROW_TURNS * WAVE + smaller(lane % LEFT_LANES, LEFT - 1));
}

// 16 bytes of a row of a set.
KG_DEV u32 offset_in_set(int row, int column) {
    u32 piece = (u32)column;
    return piece / 8 * MATRIX_OF_SET + (u32)row * 128 + ((piece ^ (u32)row) % 8) * 16;
}
KG_DEV u8 *place_of(u8 *set, int row, int column) { return set + offset_in_set(row, column); }

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
};

KG_DEV i32 page_of_lane(const keys_t &keys, const bringer_t &b) {
    return page_number(keys, token_of_lane(b.block, b.part, b.end));
}
KG_DEV u64 lane_row(const bringer_t &b, const head_t &h, const keys_t &keys) {
    return cached_row(h, keys, b.page, token_of_lane(b.block, b.part, b.end));
}
KG_DEV void go_on(bringer_t &b, const keys_t &keys) {
    b.block += SET_BLOCKS_OF;
    b.page = page_of_lane(keys, b);
}

// 16 bytes of a row; zeros of one that is not there.
KG_DEV void copy_piece(u8 *to, u64 row, int place, const head_t &h) {
    if constexpr (SPARSE != 0)
        copy_16_of(to, row ? (const u8 *)row + place : h.k, row != 0);
    else
        copy_16(to, (const u8 *)row + place);
}

// --- boxes -------------------------------------------------------------------------------

// A map takes a launch a microsecond, more than few sets each give back.
constexpr bool FEW_SETS =
    !PAIRED && (CLUSTER == 16 || (CLUSTER != 0 && ROW_TILES == 1 && ROW_BLOCKS > 1));
constexpr bool MASKS_CROWD = TREE != 0 && OCCUPANCY > 1; // registers are short
constexpr bool BOXED = !BRINGERS && !BLOCKED && !SMALL_PAGE && !FEW_SETS && !MASKS_CROWD;
constexpr int ROW_MATRICES = ceil_div(ROW_PIECES, 8);

// One wave writes the map, out of where sets will be, while others find out what there is to do and
// ask for queries.
KG_DEV void prepare_stage(args_t a, u8 *lds) {
    if constexpr (!BOXED) return;
    int page = PAGE == PAGE_X16 ? a.page : PAGE;
    i64 page_bytes =
        a.last_page > 0 ? a.k_page : (i64)page * a.k_token; // of one page none is asked
    pool_t pool = {(const u8 *)a.k,     page_bytes, a.k_token, a.k_token,
                   HEAD_DIM * KV_BYTES, page,       1,         a.last_page + 1};
    u8 *aside = lds + LDS_STAGE + STAGE.queries;
    if (wave_id() == ALL_WAVES - 1) write_map(map_of(a, 0), aside, pool);
}
// Who brings boxes of a segment, once the workgroup has met.
KG_DEV void read_map_of(args_t a) {
    if (BOXED && is_elected()) read_map(map_of(a, 0));
}

// Matrices [first, end) of the wave's block of a set, which begins at `start`.
static_assert(BOX_ROWS == TOK, "a box has a block's rows of a matrix");
KG_DEV void bring_boxes(u8 *set, gate_t *there, int first, int end, const bringer_t &b,
                        const keys_t &keys, int start, rows_seen_t seen, args_t a) {
    if (!is_elected()) return;
    const u8 *map = map_of(a, 0);
    i32 page = page_of_box(keys, b.page, seen);
    int row = slot_of(keys, start, start);
    set += first * MATRIX_OF_SET + b.part * (TOK * 128);
    expect_boxes(there, (u32)(end - first), WAVE);
    KG_LOOP for (int n = first; n < end; n++, set += MATRIX_OF_SET)
        bring_box(set, there, map, n * 128, row, 0, page);
}

// --- the next set --------------------------------------------------------------------------

// Row by row: pages are small, or some of its rows are not seen.
KG_DEV void copy_rows(u8 *set, gate_t *there, const bringer_t &b, const head_t &h,
                      const keys_t &keys) {
    u64 row_of_lane = lane_row(b, h, keys);
    each_piece([&](int row, int column) {
        copy_piece(place_of(set, b.part * TOK + row, column), row_of(row_of_lane, row),
                   piece_place(column), h);
    });
    if (BLOCKED && (int)lane_id() < TOK) {
        u8 *scales = set + SCALES_OF_SET + (b.part * TOK + (int)lane_id()) * ROW_SCALES;
        KG_UNROLL for (int at = 0; at < ROW_SCALES; at += 16)
            copy_piece(scales + at, row_of_lane, V_DIM + at, h);
    }
    gate_arrive_copied(there);
}

// If there is one. The page of the one behind it is asked for first.
KG_DEV void bring_set(u8 *set, gate_t *there, bringer_t &b, const head_t &h, const keys_t &keys,
                      args_t a) {
    if (b.block >= b.end) return;
    bringer_t now = b;
    go_on(b, keys);
    int start = block_start(keys, now.block + now.part);
    rows_seen_t seen = seen_of(keys, start);
    if (BOXED && seen != SEEN_PART)
        bring_boxes(set, there, 0, ROW_MATRICES, now, keys, start, seen, a);
    else
        copy_rows(set, there, now, h, keys);
}

} // namespace kg

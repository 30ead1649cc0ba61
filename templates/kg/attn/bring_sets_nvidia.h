// Sets of keys and values on sm_90, as a group of waves brings them to others (BRINGERS): in boxes
// (kg/attn/boxes_nvidia.h), which come by themselves and are counted at a gate.
#pragma once
#include "kg/attn/boxes_nvidia.h"
#include "kg/attn/buffer_nvidia.h"
#include "kg/attn/output.h"

namespace kg {

// Queries in boxes: rows of a group of waves are heads of some tokens, or some heads of one.
constexpr bool BOXES_Q = BRINGS_Q && (GROUP_ROWS % GROUP == 0 || GROUP % GROUP_ROWS == 0);
constexpr int TURNS = BRINGERS ? ceil_div(SET_KEYS, BRINGERS *WAVE_KEYS) : 1;
static_assert(!BRINGERS || WAVE_KEYS == BOX_ROWS, "a box has a block's rows of a matrix");
static_assert(!BRINGERS || ((DENSE || !SMALL_PAGE) && !CASCADE), "a box is of one page");

// --- keys and values -----------------------------------------------------------------

// Of a cache, keys or values.
struct cache_t {
    const u8 *rows, *map; // of the KV head; of all
    i64 page_bytes;
    int token_bytes, head;
    bool weighed; // values
};
KG_DEV cache_t cache_of(args_t a, const head_t &h, int number) {
    if (number == 0) return {h.k, map_of(a, 0), h.k_page, h.k_token, h.index, false};
    return {h.v, map_of(a, 1), h.v_page, h.v_token, h.index, true};
}

// What boxes come out of. Tokens without pages are the rows of one. Where there is one of a thing,
// nothing is as far as from one to the next.
KG_DEV pool_t pool_of(args_t a, const void *rows, i64 page_bytes, i64 head_bytes, int token_bytes,
                      int columns) {
    int pages = a.last_page + 1, page = PAGE == PAGE_X16 ? a.page : PAGE;
    i64 row_bytes = DENSE ? page_bytes : token_bytes;
    if (DENSE) page = pages, pages = 1;
    if (pages == 1) page_bytes = row_bytes;
    if (a.kv_heads == 1) head_bytes = row_bytes;
    return {(const u8 *)rows, page_bytes, head_bytes, row_bytes, columns, page, a.kv_heads, pages};
}
KG_DEV pool_t pool_of_queries(args_t a) {
    constexpr int BOX_HEADS = smaller(GROUP, GROUP_ROWS);
    int heads = a.kv_heads * GROUP;
    i64 token_bytes = a.num_tokens > 1 ? a.q_token : 16, head_bytes = heads > 1 ? a.q_head : 16;
    return {(const u8 *)a.q, 16,           token_bytes, head_bytes, HEAD_DIM * 2,
            heads,           a.num_tokens, 1,           BOX_HEADS,  GROUP_ROWS / BOX_HEADS};
}
KG_DEV void meet_bringers() { meet_at<BRINGERS ? BRINGERS * WAVE : WAVE>(6); }
// Some of the waves with rows write them, who else would wait for work to be found.
constexpr int MAPS = BOXES_Q ? 3 : 2;
KG_DEV void write_maps(args_t a, gates_t *gates, u8 *lds, int wave) {
    if (wave >= MAPS) return;
    if (wave == 0)
        write_map(map_of(a, 0), lds, pool_of(a, a.k, a.k_page, a.k_head, a.k_token, K_PIECES * 16));
    if (wave == 1)
        write_map(map_of(a, 1), lds + MAP_BYTES,
                  pool_of(a, a.v, a.v_page, a.v_head, a.v_token, V_PIECES * 16));
    if (BOXES_Q && wave == 2) write_map(map_of(a, 2), lds + 2 * MAP_BYTES, pool_of_queries(a));
    gate_arrive_wave(&gates->maps);
}
KG_DEV void await_maps(args_t a, const gates_t *gates) {
    gate_await(&gates->maps, 0);
    KG_UNROLL for (int n = 0; n < MAPS; n++) read_map(map_of(a, n));
}

// Values that no row sees are zeros, for they are weighed with zeros; of a block with some of these
// each row comes by itself, the others of which are those that are seen. Scores of keys that nobody
// sees may be anything.
KG_DEV const u8 *row_of_token(const cache_t &c, const keys_t &keys, i32 page, int token,
                              int start) {
    if constexpr (DENSE) return c.rows + inside_pool(keys, page_number(keys, token)) * c.page_bytes;
    return c.rows + inside_pool(keys, page) * c.page_bytes +
           (u32)slot_of(keys, token, start) * (u32)c.token_bytes;
}
// Seldom: nothing of it has registers before.
template <int PIECES>
KG_DEV void copy_block(u8 *to, const cache_t &c, const keys_t &keys, i32 page, int block,
                       int wave) {
    constexpr int LANES = lanes_of_row(PIECES), AT_ONCE = rows_at_once(PIECES);
    int lane = (int)opaque(lane_id()), start = first_token(keys, block, wave);
    KG_LOOP for (int row = row_of_lane<PIECES>(lane); row < TOK; row += AT_ONCE) {
        const u8 *from = row_of_token(c, keys, page, start + row, start);
        u32 place = (u32)(wave * TOK + k_place(row));
        KG_UNROLL for (int n = 0; n < PIECES; n += LANES) {
            u32 piece = piece_of_lane<PIECES>(n, lane);
            copy_16(to + matrix_offset(place, piece, 0), from + piece * 16);
        }
    }
}

// Who multiplies waits for instructions that others are issued: lanes find a wave's blocks at once.
constexpr u32 ALL_TURNS = (1u << TURNS) - 1;
// Lane n has that of the n'th turn's.
KG_DEV int start_of_turn(const keys_t &keys, int block, int wave) {
    int turn = smaller((int)opaque(lane_id()), TURNS - 1); // no register waits for it
    return first_token(keys, block, wave + turn * BRINGERS);
}
KG_DEV i32 page_of_turn(const keys_t &keys, int block, int wave) {
    return page_number(keys, start_of_turn(keys, block, wave));
}

// Where they are in the pool, each with the lane of its turn; what no row sees lies outside. A page
// of one block has its rows from the first on.
constexpr bool ROW_IS_KNOWN = !DENSE && PAGE == TOK;
struct places_t {
    i32 page;
    int row;
    u32 in_part; // a bit for each of which only some rows are seen
};
// page: as page_of_turn has it.
KG_DEV places_t places_of(const keys_t &keys, i32 page, int block, int wave) {
    int start = start_of_turn(keys, block, wave);
    rows_seen_t seen = seen_of(keys, start);
    int row = DENSE ? keys.dense + start : ROW_IS_KNOWN ? 0 : start - page_start(keys, start);
    return {page_of_box(keys, page, seen), row, (u32)ballot(seen == SEEN_PART) & ALL_TURNS};
}
KG_DEV places_t place_of_turn(const places_t &p, int turn) {
    return {(i32)shuffle((u32)p.page, (u32)turn),
            ROW_IS_KNOWN ? 0 : (int)shuffle((u32)p.row, (u32)turn), 0};
}
template <int PIECES>
KG_DEV void bring_block(u8 *to, gate_t *there, const cache_t &c, const places_t &its, int block) {
    KG_UNROLL for (int matrix = 0; matrix < ceil_div(PIECES, 8); matrix++)
        bring_box(to + matrix * MATRIX_BYTES + block * (TOK * 128), there, c.map, matrix * 128,
                  its.row, c.head, its.page);
}
// A wave's part of a set, all in boxes.
template <int PIECES>
KG_DEV void bring_boxes(u8 *to, gate_t *there, const cache_t &c, const places_t &p, int wave) {
    places_t its[TURNS];
    KG_UNROLL for (int n = 0; n < TURNS; n++) its[n] = place_of_turn(p, n);
    if (is_elected()) {
        constexpr u32 BOXES = TURNS * ceil_div(PIECES, 8);
        if constexpr (BRINGS_SCALES)
            expect_boxes(there, BOXES);
        else
            expect_boxes(there, BOXES, WAVE);
        KG_UNROLL for (int n = 0; n < TURNS; n++)
            bring_block<PIECES>(to, there, c, its[n], wave + n * BRINGERS);
    }
    if constexpr (BRINGS_SCALES) gate_arrive_copied(there); // with scales of tokens
}
// Of values: seldom.
template <int PIECES>
KG_DEV void bring_in_part(u8 *to, gate_t *there, const cache_t &c, const keys_t &keys,
                          const places_t &p, int block, int wave) {
    bool speaks = is_elected();
    if (speaks) expect_boxes(there, (TURNS - bit_count(p.in_part)) * ceil_div(PIECES, 8));
    KG_LOOP for (int n = 0; n < TURNS; n++) {
        places_t its = place_of_turn(p, n);
        if (p.in_part >> n & 1)
            copy_block<PIECES>(to, c, keys, its.page, block, wave + n * BRINGERS);
        else if (speaks)
            bring_block<PIECES>(to, there, c, its, wave + n * BRINGERS);
    }
    gate_arrive_copied(there);
}
template <int PIECES>
KG_DEV void bring_blocks(u8 *to, gate_t *there, const cache_t &c, const keys_t &keys,
                         const places_t &p, int block, int wave) {
    if (c.weighed && p.in_part != 0)
        bring_in_part<PIECES>(to, there, c, keys, p, block, wave);
    else
        bring_boxes<PIECES>(to, there, c, p, wave);
}

// Once the set before this one has been read.
template <int PIECES>
KG_DEV void bring_part(u8 *to, gate_t *there, const gate_t *read, u32 time, const cache_t &c,
                       const keys_t &keys, i32 page, int block, int wave) {
    places_t p = places_of(keys, page, block, wave);
    gate_await(read, time + 1);
    bring_blocks<PIECES>(to, there, c, keys, p, block, wave);
}

// --- who brings ---------------------------------------------------------------------

struct bringer_t {
    int wave;     // number
    u32 sets;     // that have been brought
    u32 segments; // that have been
};

// Of a row block: those of 64 rows from `first` on that there are, or tokens behind them, to where
// those from `first` + `further` on are read.
KG_DEV void bring_query_boxes(args_t a, const segment_t &g, u8 *lds, gate_t *there, int first,
                              int further) {
    constexpr int MATRICES = ceil_div(HEAD_DIM, 64);
    int row = g.row_block * ROWS + first, token = g.seq.q_start + row / GROUP;
    if (row >= g.seq.q_len * GROUP || !is_elected()) return;
    expect_boxes(there, MATRICES * GROUP_ROWS / BOX_ROWS);
    KG_UNROLL for (int n = 0; n < MATRICES; n++)
        bring_box((u8 *)q_matrix(lds, first + further, n), there, map_of(a, 2), n * 128,
                  g.kv_head * GROUP + row % GROUP, token, 0);
}
// Rows `first` to `end` - 1 of it, of which there are `rows`. Those of a wave that there are not
// are the last: scores of what was there before would raise maxima, or not.
KG_DEV void copy_queries(args_t a, const segment_t &g, u8 *lds, int first, int end, int rows,
                         int further) {
    constexpr int PIECES = HEAD_DIM / 8;
    constexpr int LANES = lanes_of_row(PIECES), AT_ONCE = rows_at_once(PIECES);
    int lane = (int)opaque(lane_id());
    KG_LOOP for (int row = first + row_of_lane<PIECES>(lane); row < end; row += AT_ONCE) {
        const u8 *from = q_row(a, g, smaller(row, rows - 1));
        KG_UNROLL for (int n = 0; n < PIECES; n += LANES) {
            u32 piece = piece_of_lane<PIECES>(n, lane);
            u8 *to = (u8 *)q_matrix(lds, row + further, (int)piece / 8) + row % 64 * 128;
            copy_16(to + (piece ^ (u32)row) % 8 * 16, from + piece * 16);
        }
    }
}
// The segment's: of each group of waves two bring them, half of the rows each, or one all boxes.
// Each group has few rows, all of which both multiply with: a gate that not all who pass it await
// each time may open twice meanwhile, or not have opened for the time before.
KG_DEV void bring_queries(args_t a, u8 *lds, const bringer_t &b) {
    constexpr int EACH = GROUP_ROWS / 2;
    if constexpr (!BRINGS_Q) return;
    gates_t *gates = gates_of(lds);
    segment_t g = parked_segment(lds, park_of_segment(b.segments));
    int group = b.wave / 2, further = has_few_rows(g) ? group * GROUP_ROWS : 0;
    int first = b.wave * EACH - further;
    gate_await(&gates->q_read[group], b.segments + 1);
    int rows = g.seq.q_len * GROUP - g.row_block * ROWS,
        end = ceil_div(rows, WAVE_ROWS) * WAVE_ROWS;
    if constexpr (!BOXES_Q)
        copy_queries(a, g, lds, first, smaller(end, first + EACH), rows, further);
    else if (b.wave % 2 == 0)
        bring_query_boxes(a, g, lds, &gates->q_there[group], first, further);
    gate_arrive_copied(&gates->q_there[group]);
}

// Keys a set ahead of values, as they are taken; queries behind the first.
KG_DEV void bring_sets(bringer_t &b, args_t a, const segment_t &g, u8 *lds) {
    gates_t *gates = gates_of(lds);
    head_t h = head_of(a, g, role_of(g, 0));
    keys_t keys = keys_of(a, g);
    ring_t r = {lds + LDS_STAGE};
    int first = first_set(g), end = g.block_end, slot = (int)(b.sets % SLOTS), before = 0;
    u32 time = b.sets / SLOTS, time_before = 0;
    i32 page = page_of_turn(keys, first, b.wave), v_page = 0;
    i32 next = page_of_turn(keys, first + SET_BLOCKS, b.wave);
    KG_LOOP for (int block = first; block < end + SET_BLOCKS; block += SET_BLOCKS) {
        int k = slot;
        u32 k_time = time;
        if (block < end) {
            bring_part<K_PIECES>(k_slot(r, k), &gates->keys_there[k], &gates->keys_read[k], k_time,
                                 cache_of(a, h, 0), keys, page, block, b.wave);
            slot = slot_after(slot, SLOTS);
            time += slot == 0;
        }
        if (block == first)
            bring_queries(a, lds, b);
        else
            bring_part<V_PIECES>(v_slot(r, before), &gates->values_there[before],
                                 &gates->values_read[before], time_before, cache_of(a, h, 1), keys,
                                 v_page, block - SET_BLOCKS, b.wave);
        before = k, time_before = k_time;
        v_page = page, page = next;
        next = page_of_turn(keys, block + 2 * SET_BLOCKS, b.wave);
    }
    b.sets = time * SLOTS + (u32)slot;
}

} // namespace kg

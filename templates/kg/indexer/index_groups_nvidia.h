// Products of the indexer on sm_90, by groups of four waves: keys are the rows of A, 16 of each
// wave, which it has in registers; heads are the columns of B, which lies in LDS as matrices of 64
// dims (kg/attn/lds_nvidia.h).
//
// Keys come past the registers into LDS, where each lane has what it copied itself: no wave waits
// for another between blocks of keys. Two sets of a wave are on their way while it multiplies.
//
// A lane has 16 dims of a key side by side, so the dims of queries are in the order in which the
// lanes of a row then have words of them.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/indexer/index_item.h"
#include "kg/indexer/index_lds.h"

namespace kg {

constexpr int MATRICES = HEAD_DIM / 64, MATRIX = ALL_HEADS * 128;
constexpr int MATRIX_WORDS = KG_INDEX_PIECE / 2; // a lane's of a key
constexpr int HEAD_TILES = ALL_HEADS / 16;
constexpr int GROUP_WAVES = KG_INDEX_GROUP, ONE_GROUP_KEYS = GROUP_WAVES * WAVE_KEYS;
static_assert(WAVES % GROUP_WAVES == 0, "whole groups");

// --- queries ----------------------------------------------------------------------

// A unit is words 2 n and 2 n + 1 of the four lanes of a row: 4 dims of each of their pieces.
constexpr int PAIRS = MATRIX_WORDS / 2, UNITS = TOGETHER * ALL_HEADS * MATRICES * PAIRS;
constexpr int UNITS_AT_ONCE = smaller(ceil_div(UNITS, THREADS), 4); // a lane's that are waited for

struct unit_t {
    int n, matrix, row, token;
};
KG_DEV unit_t unit_at(int number) {
    int rows = number / (PAIRS * MATRICES);
    return unit_t{number % PAIRS, number / PAIRS % MATRICES, rows % ALL_HEADS, rows / ALL_HEADS};
}
KG_DEV void load_unit(u32 (&codes)[NGRP], args_t a, const item_t &item, unit_t u) {
    bool there = u.token < item.count && u.row < HEADS;
    const u8 *p = (const u8 *)a.q +
                  ((item.first + u.token) * a.q_token + u.row * a.q_head + u.matrix * 64 + u.n * 4);
    KG_UNROLL for (int lane = 0; lane < NGRP; lane++) codes[lane] =
        there ? load((const u32 *)(p + lane * CODES)) : 0;
}
KG_DEV void store_unit(u8 *lds, const u32 (&codes)[NGRP], unit_t u) {
    u32 words[2 * NGRP];
    u8 *row = lds + (u.token * MATRICES + u.matrix) * MATRIX + u.row * 128;
    to_compute<NGRP>(words, codes);
    KG_UNROLL for (int i = 0; i < 2; i++) *
        (quad_words_t *)(row + ((2 * u.n + i) ^ u.row % 8) * 16) =
        quad_words_t{{words[i], words[2 + i], words[4 + i], words[6 + i]}};
}

// What the tokens of an item see, beside their weights.
constexpr int RANGES_AT = WEIGHTS_AT + TOGETHER * ALL_HEADS * 4;
KG_DEV range_t *range_in(u8 *lds, int n) { return (range_t *)(lds + RANGES_AT) + n; }

// Of tokens behind the last, and of heads that nobody has, zeros.
KG_DEV void stage_queries(args_t a, u8 *lds, const item_t &item) {
    constexpr int STEP = UNITS_AT_ONCE * THREADS;
    KG_LOOP for (int first = (int)thread_id(); first < UNITS; first += STEP) {
        u32 codes[UNITS_AT_ONCE][NGRP];
        KG_UNROLL for (int i = 0; i < UNITS_AT_ONCE; i++) if (first + i * THREADS < UNITS)
            load_unit(codes[i], a, item, unit_at(first + i * THREADS));
        KG_UNROLL for (int i = 0; i < UNITS_AT_ONCE; i++) if (first + i * THREADS < UNITS)
            store_unit(lds, codes[i], unit_at(first + i * THREADS));
    }
    stage_weights(a, lds, item.first, item.count);
    if (thread_id() < (u32)item.count)
        *range_in(lds, (int)thread_id()) = range_of(a, item, (int)thread_id());
    show_lds();
}

// --- keys -------------------------------------------------------------------------

// A set, of which the lane has its own lines and scales.
constexpr int SET_BYTES = kg_index_set_bytes(TILES, HEAD_DIM, WAVE);
constexpr int SETS_AT = RANGES_AT + KG_INDEX_RANGES, SCALES_AT = TILES * TOK * HEAD_DIM;
constexpr int LDS_USED = kg_index_staged_bytes(HEADS, HEAD_DIM, TOGETHER, WAVES, SET_BYTES);
static_assert(TOGETHER * (int)sizeof(range_t) <= KG_INDEX_RANGES, "room for them");
static_assert(SETS_AT + WAVES * KG_INDEX_SETS * SET_BYTES == LDS_USED, "as gen/ counts it");

KG_DEV u8 *set_at(u8 *lds, int wave, u32 turn) {
    return lds + SETS_AT + (wave * KG_INDEX_SETS + (int)(turn % KG_INDEX_SETS)) * SET_BYTES;
}
KG_DEV u8 *line_at(u8 *set, int tile, int row, int matrix, int lane) {
    return set + (((tile * KROWS + row) * MATRICES + matrix) * WAVE + lane) * 16;
}
KG_DEV float *scale_in(u8 *set, int tile, int lane) {
    return (float *)(set + SCALES_AT) + tile * WAVE + lane;
}

// Where the next set to bring is, and whether there are the keys of those on their way that the
// lane stores: a bit a tile, the last ones lowest. Page numbers are asked for a set earlier than
// they are needed, and are looked at then.
template <int WIDE> struct entry_type {
    typedef i32 type;
};
template <> struct entry_type<1> {
    typedef i64 type;
};
typedef entry_type<TABLE_I64>::type entry_t;
// Keys that a page has side by side, at least: of a set, of a tile, or one by one.
constexpr bool IN_PAGES = OP == OP_DECODE, EVEN = PAGE == PAGE_X16 || PAGE % TOK == 0;
constexpr int LOOK_KEYS = PAGE != PAGE_X16 && PAGE % WAVE_KEYS == 0 ? WAVE_KEYS : EVEN ? TOK : 1;
constexpr int LOOKS = LOOK_KEYS == 1 ? TILES * KROWS : WAVE_KEYS / LOOK_KEYS;
struct ahead_t {
    entry_t page[LOOKS];
    u32 there;
};

// The key by which look n finds its page.
KG_DEV int looked_at(int start, int n, int lane) {
    if constexpr (LOOK_KEYS == 1) return start + n / KROWS * TOK + k_token(lane_i(lane), n % KROWS);
    return start + n * LOOK_KEYS;
}
KG_DEV void look_up(ahead_t &ahead, args_t a, const item_t &item, int start, int lane) {
    if constexpr (!IN_PAGES) return;
    KG_UNROLL for (int n = 0; n < LOOKS; n++) {
        int page = page_and_slot(a, (u32)looked_at(start, n, lane)).page;
        ahead.page[n] = -1;
        if (page < a.columns)
            ahead.page[n] = load((const entry_t *)a.table + (item.seq * a.table_row + page));
    }
}

// Row `row` of the lane in tile `tile`. Pages of whole tiles hold all of one if they hold any.
KG_DEV found_t find_row(args_t a, const item_t &item, const ahead_t &ahead, int start, int tile,
                        int row, int lane) {
    int first = start + tile * TOK, token = k_token(lane_i(lane), row), column = first + token;
    int known = EVEN && IN_PAGES ? first : column;
    if (known >= item.column_end) return found_t{nullptr, nullptr};
    if constexpr (!IN_PAGES) return find_key(a, item, column);
    int n = LOOK_KEYS == 1 ? tile * KROWS + row : tile * TOK / LOOK_KEYS;
    i64 page = ahead.page[n];
    if (known >= item.high || page < 0 || page >= a.pages) return found_t{nullptr, nullptr};
    place_t at = {(i32)page, page_and_slot(a, (u32)known).slot};
    int beside = EVEN ? token : 0;
    return found_t{key_at(a, at) + beside * a.cache_token, scale_at(a, at) + beside};
}

// Keys of pages of 1 and 2 begin at multiples of 4 bytes.
KG_DEV void copy_line(u8 *line, const u8 *codes) {
    if constexpr (!IN_PAGES || PAGE == PAGE_X16 || PAGE > 2)
        copy_16(line, codes);
    else
        KG_UNROLL for (int i = 0; i < 16; i += 4) copy_4(line + i, codes + i);
}

// Brings the set that begins with `start`, and asks for the page of the one after it. What is not
// there stays as it was, in its own rows of the products, whose sums nobody stores.
KG_DEV void bring(ahead_t &ahead, args_t a, const item_t &item, u8 *set, int start, int lane) {
    KG_UNROLL for (int t = 0; t < TILES; t++) {
        found_t own;
        KG_UNROLL for (int row = 0; row < KROWS; row++) {
            found_t f = find_row(a, item, ahead, start, t, row, lane);
            if (row == 0 || pick_of(lane) >= row) own = f;
            if (f.codes)
                KG_UNROLL for (int m = 0; m < MATRICES; m++) copy_line(
                    line_at(set, t, row, m, lane), f.codes + m * 64 + lane_grp(lane) * CODES);
        }
        if (own.scale) copy_4((u8 *)scale_in(set, t, lane), own.scale);
        ahead.there = ahead.there << 1 | (own.scale ? 1u : 0u);
    }
    copies_end();
    look_up(ahead, a, item, start + GROUP_KEYS, lane);
}

KG_DEV int start_of(const item_t &item, int wave) { return item.column + wave * WAVE_KEYS; }

KG_DEV ahead_t bring_first(args_t a, const item_t &item, u8 *lds, int wave, int lane) {
    ahead_t ahead = {};
    look_up(ahead, a, item, start_of(item, wave), lane);
    KG_UNROLL for (int n = 0; n < KG_INDEX_SETS; n++) bring(
        ahead, a, item, set_at(lds, wave, (u32)n), start_of(item, wave) + n * GROUP_KEYS, lane);
    return ahead;
}

struct keys_t {
    u32 w[TILES][MATRICES][KROWS][MATRIX_WORDS];
    stored_t stored;
};

// The set that was brought first of those on their way.
KG_DEV void take_keys(keys_t &keys, ahead_t ahead, u8 *set, int lane) {
    copies_done<KG_INDEX_SETS - 1>();
    KG_UNROLL for (int t = 0; t < TILES; t++) {
        KG_UNROLL for (int row = 0; row < KROWS; row++)
            KG_UNROLL for (int m = 0; m < MATRICES; m++) {
            quad_words_t line = *(const quad_words_t *)line_at(set, t, row, m, lane);
            to_compute<4>(keys.w[t][m][row], line.w);
        }
        keys.stored.scale[t] = *scale_in(set, t, lane);
        keys.stored.there[t] = (ahead.there >> (KG_INDEX_SETS * TILES - 1 - t) & 1) != 0;
    }
}

// --- scores -----------------------------------------------------------------------

// Of N tiles of 16 heads from `first` on: products of a block of keys, weighed.
template <int N>
KG_DEV void weigh_heads(float (&sum)[TILES * LANE_KEYS], const keys_t &keys, u8 *lds,
                        matrix_t queries, int token, int first, int lane) {
    matrix_t heads = further(queries, (u32)(token * MATRICES * MATRIX + first * 16 * 128));
    KG_UNROLL for (int t = 0; t < TILES; t++) {
        acc_t s[2][N];
        products_begin();
        KG_UNROLL for (int m = 0; m < MATRICES; m++)
            KG_UNROLL for (int n = 0; n < MATRIX_WORDS; n += 2) {
            const u32(&w)[KROWS][MATRIX_WORDS] = keys.w[t][m];
            const u32 a[4] = {w[0][n], w[1][n], w[0][n + 1], w[1][n + 1]};
            multiply<N, false>(s, 0, a, further(heads, (u32)(m * MATRIX + n * 16)), m + n != 0);
        }
        products_end();
        products_done<0>();
        settle(s);
        KG_UNROLL for (int n = 0; n < 2 * N * COLS; n++) {
            int tile = n / (2 * COLS), r = n % (2 * COLS); // 8 columns twice
            float w = *weight_at(lds, token,
                                 (first + tile) * 16 + r / COLS * NI + lane_column(lane, r % COLS));
            KG_UNROLL for (int row = 0; row < LANE_KEYS; row++) sum[t * LANE_KEYS + row] =
                fma(w, fmax(s[row][tile].x[r], 0.0f), sum[t * LANE_KEYS + row]);
        }
    }
}

// Of one token, over the heads that a lane has; then of all.
KG_DEV void weigh(float (&sum)[TILES * LANE_KEYS], const keys_t &keys, u8 *lds, matrix_t queries,
                  int token, int lane) {
    KG_LOOP for (int first = 0; first + 4 <= HEAD_TILES; first += 4)
        weigh_heads<4>(sum, keys, lds, queries, token, first, lane);
    if constexpr (HEAD_TILES % 4 != 0)
        weigh_heads<HEAD_TILES % 4>(sum, keys, lds, queries, token, HEAD_TILES / 4 * 4, lane);
    sum_lanes<1, COLUMN_LANES>(sum);
}

// --- the way through an item ------------------------------------------------------

// The waves of a group stay together, for they multiply together.
KG_DEV void run_blocks(args_t a, const item_t &item, ahead_t ahead, u8 *lds, int wave, int lane) {
    matrix_t queries = lasting_matrix_at(lds);
    u32 turn = 0;
    KG_LOOP for (int group = start_of(item, wave / GROUP_WAVES * GROUP_WAVES);
                 group < item.column_end; group += GROUP_KEYS, turn++) {
        int start = group + wave % GROUP_WAVES * WAVE_KEYS;
        u8 *set = set_at(lds, wave, turn);
        keys_t keys;
        take_keys(keys, ahead, set, lane);
        bring(ahead, a, item, set, start + KG_INDEX_SETS * GROUP_KEYS, lane);
        bool inside = group < item.high && group + ONE_GROUP_KEYS > item.low;
        KG_LOOP for (int n = 0; n < item.count; n++) {
            float sum[TILES * LANE_KEYS] = {};
            if (inside) weigh(sum, keys, lds, queries, n, lane);
            range_t r = inside ? *range_in(lds, n) : range_t{0, 0};
            store_logits(a, item, r, keys.stored, sum, start, n, lane);
        }
    }
}

} // namespace kg

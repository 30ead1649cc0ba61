// Rows that memory brings into LDS by itself, and the operands of both products there.
//
// A block lies as groups of 128 bytes of all its keys. Eight rows of a group are what one load of
// a wave brings: a lane the 16 bytes that stand at its place, which are not those of its number
// but `swizzle` of them. So keys that are read together, and values that are turned together, lie
// on different banks.
#pragma once
#include "kg/mla/mla_blocks.h"

namespace kg {

constexpr int GROUP_PIECES = KG_ATTN_GROUP_BYTES / 16;
constexpr int WHOLE_PIECES = HEAD_DIM * KV_BYTES / 16; // of a row as it lies there
constexpr int ROW_GROUPS = ceil_div(WHOLE_PIECES, GROUP_PIECES);
constexpr int GROUP_ROWS = TOK * KG_ATTN_GROUP_BYTES;    // bytes of a group
constexpr int OCTETS = TOK / 8;                          // of rows
constexpr int OCTET_WAVES = larger(1, V_SPLIT / OCTETS); // that bring one; DIRECT has no fewer
static_assert(!DIRECT || OCTET_WAVES * OCTETS == V_SPLIT, "each octet has as many waves");

// Of codes eight rows are turned together, of 16-bit numbers four.
KG_DEV int swizzle(int row) {
    if constexpr (KV_8BIT) return row / 8 % 2 + row / 2 % 2 * 2 + (row / 4 + row / 16) % 2 * 4;
    return row / 2 % 2 * 2 + row / 8 % 2 * 4 + row / 16 % 2;
}
KG_DEV int direct_place(int row, int piece) {
    return piece / GROUP_PIECES * GROUP_ROWS + row * KG_ATTN_GROUP_BYTES +
           (piece % GROUP_PIECES ^ swizzle(row)) * 16;
}

// --- on their way ------------------------------------------------------------

// The page of the rows behind those on their way: a scalar where an octet lies in one.
struct direct_t {
    i32 next_page;
    i32 page; // SPARSE: of those on their way
};
// BLOCKED: a wave brings rows of its own, a lane some pieces of one.
constexpr int RAW_ROWS = TOK / V_SPLIT, RAW_LANES = WAVE / RAW_ROWS;
// Of the block's rows the lane's; the first of the sixteen that are looked for together.
KG_DEV int direct_row(int wave, int lane) {
    if constexpr (BLOCKED) return wave * RAW_ROWS + lane / RAW_LANES;
    return wave % OCTETS * 8 + lane / 8;
}
KG_DEV int direct_first_row(int wave) { return direct_row(wave, 0) / 16 * 16; }

KG_DEV i32 direct_page(const keys_t &keys, int start, int wave, int lane) {
    return page_number(keys,
                       start + (SMALL_PAGE ? direct_row(wave, lane) : direct_first_row(wave)));
}

KG_DEV const u8 *direct_from(const head_t &h, const keys_t &keys, i32 page, int start, int wave,
                             int lane, u32 of_lane) {
    int row = direct_row(wave, lane), first = direct_first_row(wave);
    if constexpr (SMALL_PAGE) return (const u8 *)cached_row(h, keys, page, start + row) + of_lane;
    i32 id = (i32)inside_pool(keys, page);
    page_rows_t rows = page_rows(keys, id, h.k, h.k_page, h.k_token, start + first);
    return row_in_page(rows, row - first, h.k_token, of_lane);
}

// Every OCTET_WAVES-th group from `group` on; what is behind a row's end is its start.
template <int N> KG_DEV void bring_groups(u8 *to, const u8 *from, int group, int piece) {
    constexpr int FURTHER = N * OCTET_WAVES;
    if constexpr (FURTHER < ROW_GROUPS) {
        constexpr bool last = FURTHER + OCTET_WAVES >= ROW_GROUPS;
        if (last && group + FURTHER >= ROW_GROUPS) return;
        int at = last ? (group + FURTHER) * GROUP_PIECES + piece : 0;
        if (WHOLE_PIECES % GROUP_PIECES != 0) from -= opaque(at >= WHOLE_PIECES ? (u32)at * 16 : 0);
        copy_pieces<FURTHER * KG_ATTN_GROUP_BYTES>(to + FURTHER * GROUP_ROWS, from);
        bring_groups<N + 1>(to, from, group, piece);
    }
}

// The block at `start`, whose page is `page`, to `to`.
KG_DEV void direct_bring(const head_t &h, const keys_t &keys, i32 page, int start, u8 *to, int wave,
                         int lane) {
    int row = direct_row(wave, lane), piece = lane % GROUP_PIECES ^ swizzle(row);
    int group = wave / OCTETS;
    const u8 *from =
        direct_from(h, keys, page, start, wave, lane, (u32)(group * GROUP_PIECES + piece) * 16);
    bring_groups<0>(to + group * GROUP_ROWS + wave % OCTETS * 8 * KG_ATTN_GROUP_BYTES, from, group,
                    piece);
}

// --- rows with scales --------------------------------------------------------
//
// They come as they are cached, and the wave that asked for them makes numbers of them, in the
// order of a block. A lane finds in LDS the pieces that it asked for; scales lie with another's.

constexpr int SCALE_PIECES = kg_mla_scale_bytes(V_DIM) / 16;
constexpr int RAW_PIECES = ROW_PIECES + SCALE_PIECES;
constexpr int RAW_COPIES = ceil_div(RAW_PIECES, RAW_LANES); // of a lane
constexpr int RAW_COPY = WAVE * 16;                         // bytes
static_assert(!BLOCKED || !DIRECT || V_SPLIT * RAW_COPIES * RAW_COPY <= STAGE_KEYS,
              "raw rows take the place of a block");

KG_DEV u8 *raw_of_wave(u8 *raw, int wave) { return raw + wave * RAW_COPIES * RAW_COPY; }

// What is behind a row's end is its last piece.
template <int N> KG_DEV void bring_pieces(u8 *raw, const u8 *from, int piece) {
    if constexpr (N < RAW_COPIES) {
        int behind = piece + N * RAW_LANES - (RAW_PIECES - 1);
        if ((N + 1) * RAW_LANES > RAW_PIECES) from -= opaque(behind > 0 ? (u32)behind * 16 : 0);
        copy_pieces<N * RAW_LANES * 16>(raw + N * RAW_COPY, from);
        bring_pieces<N + 1>(raw, from, piece);
    }
}
// Of an entry of a list that has no slot: the pool's first row, of which nothing is used.
KG_DEV void bring_raw(const head_t &h, const keys_t &keys, i32 page, int start, u8 *raw, int wave,
                      int lane) {
    int piece = lane % RAW_LANES;
    if (SPARSE && page < 0) page = 0;
    const u8 *from = direct_from(h, keys, page, start, wave, lane, (u32)piece * 16);
    bring_pieces<0>(raw_of_wave(raw, wave), from, piece);
}

// Of a row that begins at `row` among the wave's.
KG_DEV const u8 *raw_piece(const u8 *row, int piece) {
    return row + piece / RAW_LANES * RAW_COPY + piece % RAW_LANES * 16;
}
KG_DEV float raw_scale(const u8 *row, int column) {
    int block = column / (KG_MLA_BLOCK / 16);
    return *(const float *)(raw_piece(row, CODE_PIECES + block / 4) + block % 4 * 4);
}

KG_DEV void make_numbers(const direct_t &d, u8 *to, u8 *raw, int wave, int lane) {
    int row = direct_row(wave, lane);
    const u8 *from = raw_of_wave(raw, wave) + lane / RAW_LANES * RAW_LANES * 16;
    bool none = SPARSE && d.page < 0;
    KG_UNROLL for (int n = 0; n < RAW_COPIES; n++) {
        int column = lane % RAW_LANES + n * RAW_LANES;
        line_t line = *(const line_t *)raw_piece(from, column);
        KG_UNROLL for (int j = 0; j < 4; j++) line.w[j] = none ? 0 : line.w[j];
        if (n * RAW_LANES < CODE_PIECES && column < CODE_PIECES) {
            u8 *low = to + direct_place(row, 2 * column);
            u8 *high = to + direct_place(row, 2 * column + 1);
            put_codes(low, high, line.w, none ? 0 : raw_scale(from, column));
        } else if (column >= CODE_PIECES + SCALE_PIECES && column < RAW_PIECES) {
            *(line_t *)(to + direct_place(row, CODE_PIECES - SCALE_PIECES + column)) = line;
        }
        if constexpr (CROWDED) order_here(); // registers are for one piece
    }
    meet_wave(); // scales have been read
}

// No place that follows from it is kept from turn to turn.
KG_DEV int placed_late(int lane) { return (int)(opaque((u32)lane) % WAVE); }

// --- the next block ----------------------------------------------------------

KG_DEV void direct_next(direct_t &d, const head_t &h, const keys_t &keys, int block, int end,
                        u8 *to, int wave, int lane) {
    i32 page = SMALL_PAGE ? d.next_page : uniform(d.next_page);
    if constexpr (CROWDED && SMALL_PAGE) lane = placed_late(lane);
    d.next_page = direct_page(keys, (block + 1) * TOK, wave, lane);
    if constexpr (SPARSE != 0) d.page = page;
    if (block >= end) return;
    if constexpr (BLOCKED)
        bring_raw(h, keys, page, block * TOK, to, wave, lane);
    else
        direct_bring(h, keys, page, block * TOK, to, wave, lane);
}

// What was asked for has come: the block at `to`, or raw rows that become it.
KG_DEV void direct_come(const direct_t &d, u8 *to, u8 *raw, int wave, int lane) {
    pieces_come();
    if constexpr (BLOCKED) make_numbers(d, to, raw, wave, placed_late(lane));
}

// --- keys --------------------------------------------------------------------

// A wave's part of the rows, of a lane: its even chunks, its odd ones, and the row's start.
struct direct_part_t {
    const u8 *chunks[2], *start;
    int dim; // of its first chunk
};
// Chunk `chunk` of the row whose start lies at `of_lane`.
KG_DEV const u8 *direct_chunk(const u8 *block, u32 of_lane, int chunk) {
    constexpr int OF_GROUP = GROUP_PIECES / NGRP;
    return block + chunk / OF_GROUP * GROUP_ROWS + (of_lane ^ (u32)(chunk % OF_GROUP * NGRP * 16));
}
KG_DEV direct_part_t direct_part(const u8 *block, share_of_scores_t mine) {
    int lane = (int)lane_id(), grp = lane_grp(lane);
    u32 of_lane = (u32)direct_place(k_token(lane_i(lane), 0), grp);
    if constexpr (CROWDED) of_lane = opaque(of_lane); // one place is kept, not two
    return direct_part_t{
        {direct_chunk(block, of_lane, mine.chunk), direct_chunk(block, of_lane, mine.chunk + 1)},
        block + of_lane,
        mine.chunk * K_DIMS + grp * X};
}
// Whether all chunks of all parts lie in groups, or some behind the last. BLOCKED: nothing is put
// behind a row's end.
constexpr bool WHOLE_GROUPS =
    PARTS * PART_CHUNKS * NGRP <= (BLOCKED ? WHOLE_PIECES : ROW_GROUPS * GROUP_PIECES);
KG_DEV words_t<4> staged_keys(const direct_part_t &part, int row, int c) {
    bool inside = WHOLE_GROUPS || part.dim + c * K_DIMS < HEAD_DIM;
    // Four rows on, codes of an even chunk stand where those of an odd one would.
    const u8 *chunk = part.chunks[KV_8BIT ? (c + row) % 2 : c % 2] + c / 2 * GROUP_ROWS;
    return *(const words_t<4> *)((inside ? chunk : part.start) +
                                 k_token(0, row) * KG_ATTN_GROUP_BYTES);
}

// --- values ------------------------------------------------------------------

// Of eight tokens a lane's value dim of a tile, turned by LDS as they are read: by one read of
// codes, two of 16-bit numbers.
constexpr int TILE_READS = KV_BITS / 8, ROW_LANES = 2 * TILE_READS; // of a row's 16 numbers
KG_DEV u32 direct_values_place() {
    int lane = (int)lane_id(), i = lane_i(lane), part = i % ROW_LANES;
    int token = TPL * lane_grp(lane) + i / ROW_LANES;
    return opaque((u32)(direct_place(token, part / 2) + part % 2 * 8));
}
KG_DEV void direct_values(u32 (&v)[4], const u8 *block, u32 of_lane, int v_wave, int tile) {
    constexpr int READS = TILE_READS;
    constexpr u32 BYTES = 2 * KV_BITS, OF_GROUP = KG_ATTN_GROUP_BYTES / BYTES; // of a tile
    u32 number = (u32)(v_wave * O_TILES + tile);
    if (V_DIM % (16 * V_SPLIT) != 0 && number * 16 >= V_DIM) number = 0; // not stored
    const u8 *from = block + number / OF_GROUP * GROUP_ROWS + (of_lane ^ number % OF_GROUP * BYTES);
    u32 w[2 * READS];
    KG_UNROLL for (int n = 0; n < READS; n++) {
        u32 x[2];
        if constexpr (KV_8BIT)
            read_turned_codes(x, from);
        else
            read_turned(x, from + n * 4 * KG_ATTN_GROUP_BYTES);
        w[2 * n] = x[0], w[2 * n + 1] = x[1];
    }
    to_compute<2 * READS>(v, w);
}

KG_DEV void weigh_direct(values_t &o, const u8 *block, const weights_t &p, int v_wave) {
    u32 of_lane = direct_values_place();
    KG_UNROLL for (int tile = 0; tile < O_TILES; tile++) {
        u32 v[4];
        direct_values(v, block, of_lane, v_wave, tile);
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mma_pv(o[t][tile], v, p[t]);
    }
}

// The same with the probabilities of all rows, of which a tile's come while another's are
// multiplied.
KG_DEV void weigh_told(values_t &o, u8 *stage, const u8 *block, int start, int v_wave) {
    const words_t<P_WORDS> *weights = said_by<P_WORDS>(stage, 0, 0);
    u32 v[O_TILES][4];
    if (has_risen(stage, start)) shrink_told(o, stage);
    u32 of_lane = direct_values_place();
    KG_UNROLL for (int tile = 0; tile < O_TILES; tile++)
        direct_values(v[tile], block, of_lane, v_wave, tile);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        u32 p[P_WORDS];
        hear(p, weights, t);
        KG_UNROLL for (int tile = 0; tile < O_TILES; tile++) mma_pv(o[t][tile], v[tile], p);
    }
}

// --- the loop ----------------------------------------------------------------

// As attend_ahead, with three blocks. BLOCKED: with two and the raw rows of the third.
KG_DEV void attend_direct(column_t &m, column_t &l, values_t &o, const q_part_t &q,
                          const segment_t &g, const head_t &head, const keys_t &keys, u8 *stage,
                          share_of_scores_t mine, int wave, int lane) {
    direct_t d = {direct_page(keys, g.block * TOK, wave, lane)};
    own_t own = own_of(m, l);
    tile_scores_t s;
    int at = 0, next = STAGE_KEYS, last = 2 * STAGE_KEYS; // the block that is weighed is at `at`
    barrier();                                            // the segment before is done with
    direct_next(d, head, keys, g.block, g.block_end, stage + (BLOCKED ? last : at), wave, lane);
    if constexpr (BLOCKED) direct_come(d, stage, stage + last, wave, lane);
    direct_next(d, head, keys, g.block + 1, g.block_end, stage + (BLOCKED ? last : next), wave,
                lane);
    if constexpr (OWN_TILES) say_steady(stage);
    if constexpr (!BLOCKED) pieces_come();
    barrier();
    score_stage(s, q, stage, direct_part(stage, mine), mine, wave);
    barrier();
    KG_LOOP for (int block = g.block; block < g.block_end; block++) {
        weights_t p;
        if constexpr (!OWN_TILES) weigh_tiles(p, m, l, o, head, keys, block * TOK, stage);
        if (OWN_TILES && mine.leads)
            weigh_own(own, s, q, head, keys, block * TOK, stage, mine.tile, wave);
        direct_come(d, stage + next, stage + last, wave, lane);
        direct_next(d, head, keys, block + 2, g.block_end, stage + last, wave, lane);
        barrier(); // weights are told, and the next block is there
        if constexpr (OWN_TILES)
            weigh_told(o, stage, stage + at, block * TOK, wave);
        else
            weigh_direct(o, stage + at, p, wave);
        int done = at;
        at = next, next = BLOCKED ? done : last, last = BLOCKED ? last : done;
        if (block + 1 < g.block_end)
            score_stage(s, q, stage, direct_part(stage + at, mine), mine, wave);
        barrier(); // scores are told, and the block has been read
    }
    if constexpr (OWN_TILES) own_to(m, l, own);
}

KG_DEV void run_segment(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    run_segment_by<(DIRECT ? attend_direct : attend_staged)>(a, g, cut, lds, wave);
}

} // namespace kg

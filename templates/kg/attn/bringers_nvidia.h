// Long queries on sm_90 of eight waves (BRINGERS). Two groups of four waves multiply, as
// kg/attn/buffer_nvidia.h has it, and a third brings them keys and values, as far ahead as LDS has
// slots. It goes through the workgroup's part of the line by itself, so the sets of a segment come
// while the rows of the one before go out, and has few registers, of which the others have more.
#pragma once
#include "kg/attn/attn_run.h"
#include "kg/attn/boxes_nvidia.h"
#include "kg/attn/buffer_nvidia.h"

namespace kg {

// Of a lane: of waves with rows, and of those that bring them keys.
constexpr int ROW_REGISTERS = 216, BRINGING_REGISTERS = 72;
constexpr int TURNS = BRINGERS ? ceil_div(SET_KEYS, BRINGERS *WAVE_KEYS) : 1;
static_assert(!BRINGERS || WAVE_KEYS == BOX_ROWS, "a box has a block's rows of a matrix");
static_assert(!BRINGERS || ((DENSE || !SMALL_PAGE) && !CASCADE), "a box is of one page");

// Where sets come there lie, too, what waves say of few rows and parts of a row that are merged.
KG_DEV bool uses_stage(const segment_t &g) { return !g.whole || has_few_rows(g); }

// --- waves with rows --------------------------------------------------------------

constexpr u32 STAGE_USED = 1u << 31; // beside a number of sets
KG_DEV u32 sets_of(const segment_t &g) {
    return is_empty(g) ? 0 : (u32)ceil_div(g.block_end - first_set(g), SET_BLOCKS);
}
// Who reads queries in LDS meets who writes them.
KG_DEV void meet_readers(const segment_t &g, int wave) {
    if (has_few_rows(g))
        meet_rows();
    else
        meet_at<4 * WAVE>(2 + wave / 4);
}
// As a segment begins: its first sets may be there.
KG_DEV ring_t begin_ring(const segment_t &g, u8 *lds, int wave) {
    gates_t *gates = (gates_t *)(lds + LDS_GATES);
    u32 sets = gates->sets[wave];
    if constexpr (!BRINGS_Q) meet_readers(g, wave);
    if (sets & STAGE_USED) {
        show_lds(); // boxes follow what was written there
        gate_arrive_wave(&gates->stage_free);
    }
    sets &= ~STAGE_USED;
    int slot = (int)(sets % SLOTS);
    ring_t r = {lds + LDS_STAGE, slot, slot_before(slot, SLOTS), 0, 0, 0};
    r.gates = gates;
    r.time = sets / SLOTS;
    r.segments = gates->segments[wave];
    return r;
}
KG_DEV void await_queries(const ring_t &r, const segment_t &g, int wave) {
    if constexpr (BRINGS_Q) {
        gate_await(&r.gates->q_there, r.segments);
    } else {
        show_lds();
        meet_readers(g, wave);
    }
}
// For the next segment.
KG_DEV void note_sets(const ring_t &r, const segment_t &g, int wave) {
    u32 sets = r.time * SLOTS + (u32)r.k + sets_of(g);
    r.gates->sets[wave] = sets | (uses_stage(g) ? STAGE_USED : 0);
    r.gates->segments[wave] = r.segments + 1;
}

// --- keys and values -----------------------------------------------------------------

// Of a cache, keys or values.
struct cache_t {
    const u8 *rows, *map; // of the KV head; of all
    i64 page_bytes;
    int token_bytes, head;
};
KG_DEV const u8 *map_of(args_t a, int number) {
    return (const u8 *)a.partial_ml - KG_ATTN_MAPS_BYTES + number * MAP_BYTES;
}
KG_DEV cache_t cache_of(args_t a, const head_t &h, int number) {
    if (number == 0) return {h.k, map_of(a, 0), h.k_page, h.k_token, h.index};
    return {h.v, map_of(a, 1), h.v_page, h.v_token, h.index};
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
KG_DEV void meet_bringers() { meet_at<BRINGERS ? BRINGERS * WAVE : WAVE>(6); }
KG_DEV void write_maps(args_t a, u8 *lds, int wave) {
    if (wave == 0)
        write_map((u8 *)map_of(a, 0), lds,
                  pool_of(a, a.k, a.k_page, a.k_head, a.k_token, HEAD_DIM * 2));
    if (wave == 1)
        write_map((u8 *)map_of(a, 1), lds + MAP_BYTES,
                  pool_of(a, a.v, a.v_page, a.v_head, a.v_token, V_DIM * 2));
    meet_bringers();
    read_map(map_of(a, 0));
    read_map(map_of(a, 1));
}

// A wave brings a block of a set in each of its turns. Rows of a block that are all seen come in
// boxes; else each row comes by itself, of which those nobody sees are others.
KG_DEV bool is_seen(const keys_t &keys, int start) {
    bool behind = start >= keys.first || (KEEP != 0 && start + TOK <= keys.keep);
    return behind && start + TOK - 1 <= keys.last;
}
KG_DEV const u8 *row_of_token(const cache_t &c, const keys_t &keys, i32 page, int token,
                              int start) {
    if constexpr (DENSE) return c.rows + inside_pool(keys, page_number(keys, token)) * c.page_bytes;
    return c.rows + inside_pool(keys, page) * c.page_bytes +
           (u32)slot_of(keys, token, start) * (u32)c.token_bytes;
}
template <int PIECES>
KG_DEV void copy_block(u8 *to, const cache_t &c, const keys_t &keys, i32 page, int block,
                       int wave) {
    share_of_rows<PIECES> mine = share_of_lane<PIECES>(wave);
    int start = first_token(keys, block, wave);
    KG_LOOP for (int n = 0; n < TOK; n += mine.AT_ONCE) {
        const u8 *row = row_of_token(c, keys, page, start + n + mine.row, start);
        KG_UNROLL for (int first = 0; first < PIECES; first += mine.LANES) {
            u32 piece = piece_of_lane<PIECES>(first);
            copy_16(to + matrix_offset(mine.place + (u32)n, piece, 0), row + piece * 16);
        }
    }
}

// The n'th turn's, of which lane n has the page.
template <int PIECES>
KG_DEV void bring_boxes(u8 *to, gate_t *there, const cache_t &c, const keys_t &keys, i32 page,
                        int start, int block) {
    KG_UNROLL for (int matrix = 0; matrix < ceil_div(PIECES, 8); matrix++)
        bring_box(to + matrix * MATRIX_BYTES + block * (TOK * 128), there, c.map, matrix * 128,
                  DENSE ? keys.dense + start : slot_of(keys, start, start), c.head,
                  DENSE ? 0 : (i32)inside_pool(keys, page));
}
// A wave's part of a set, keys or values.
template <int PIECES>
KG_DEV void bring_blocks(u8 *to, gate_t *there, const cache_t &c, const keys_t &keys, i32 page,
                         int block, int wave) {
    int start[TURNS];
    i32 its[TURNS];
    u32 seen = 0;
    KG_UNROLL for (int n = 0; n < TURNS; n++) {
        start[n] = first_token(keys, block, wave + n * BRINGERS);
        its[n] = (i32)shuffle((u32)page, (u32)n);
        seen |= (u32)is_seen(keys, start[n]) << n;
    }
    if (is_elected()) {
        expect_boxes(there, bit_count(seen) * ceil_div(PIECES, 8));
        KG_UNROLL for (int n = 0; n < TURNS; n++) if (seen >> n & 1)
            bring_boxes<PIECES>(to, there, c, keys, its[n], start[n], wave + n * BRINGERS);
    }
    if (seen == (1u << TURNS) - 1) return;
    KG_LOOP for (int n = 0; n < TURNS; n++) if (!(seen >> n & 1)) copy_block<PIECES>(
        to, c, keys, (i32)shuffle((u32)page, (u32)n), block, wave + n * BRINGERS);
}

// Lane n has that of the wave's n'th turn.
KG_DEV i32 page_of_turn(const keys_t &keys, int block, int wave) {
    int turn = smaller((int)lane_id(), TURNS - 1);
    return page_number(keys, first_token(keys, block, wave + turn * BRINGERS));
}
template <int PIECES>
KG_DEV void bring_part(u8 *to, gate_t *there, const gate_t *read, u32 time, const cache_t &c,
                       const keys_t &keys, i32 page, int block, int wave) {
    gate_await(read, time + 1); // the time before this one
    bring_blocks<PIECES>(to, there, c, keys, page, block, wave);
    gate_arrive_copied(there);
}

// --- who brings ---------------------------------------------------------------------

struct bringer_t {
    int wave;     // number
    int slot;     // of the next set of keys
    u32 time;     // that sets have been there
    u32 segments; // that have been
};

// Rows that there are of the segment's row block, each wave some that follow one another.
KG_DEV void bring_queries(args_t a, const segment_t &g, gates_t *gates, u8 *lds,
                          const bringer_t &b) {
    constexpr int PIECES = HEAD_DIM / 8, EACH = ROWS / KG_ATTN_BRINGERS;
    constexpr int LANES = lanes_of_row(PIECES), AT_ONCE = rows_at_once(PIECES);
    if constexpr (!BRINGS_Q) return;
    gate_await(&gates->q_read, b.segments + 1);
    int first = b.wave * EACH, rows = g.seq.q_len * GROUP - g.row_block * ROWS;
    int end = smaller(rows, first + EACH);
    KG_LOOP for (int row = first + row_of_lane<PIECES>(); row < end; row += AT_ONCE) {
        const u8 *from = q_row(a, g, row);
        KG_UNROLL for (int n = 0; n < PIECES; n += LANES) {
            u32 piece = piece_of_lane<PIECES>(n);
            u8 *to = (u8 *)q_matrix(lds, row, (int)piece / 8) + row % 64 * 128;
            copy_16(to + (piece ^ (u32)row) % 8 * 16, from + piece * 16);
        }
    }
    gate_arrive_copied(&gates->q_there);
}

// Keys a set ahead of values, as they are taken; queries behind the first.
KG_DEV void bring_sets(bringer_t &b, args_t a, const segment_t &g, gates_t *gates, u8 *lds) {
    head_t h = head_of(a, g, role_of(g, 0));
    keys_t keys = keys_of(a, g);
    ring_t r = {lds + LDS_STAGE};
    int first = first_set(g), before = 0, end = g.block_end;
    i32 page = page_of_turn(keys, first, b.wave), v_page = 0;
    i32 next = page_of_turn(keys, first + SET_BLOCKS, b.wave);
    u32 time_before = 0;
    KG_LOOP for (int block = first; block < end + SET_BLOCKS; block += SET_BLOCKS) {
        int slot = b.slot;
        u32 time = b.time;
        if (block < end) {
            bring_part<K_PIECES>(k_slot(r, slot), &gates->keys_there[slot], &gates->keys_read[slot],
                                 time, cache_of(a, h, 0), keys, page, block, b.wave);
            b.slot = slot_after(slot, SLOTS);
            b.time += b.slot == 0;
        }
        if (block == first)
            bring_queries(a, parked_segment(lds, ALL_WAVES), gates, lds, b);
        else
            bring_part<V_PIECES>(v_slot(r, before), &gates->values_there[before],
                                 &gates->values_read[before], time_before, cache_of(a, h, 1), keys,
                                 v_page, block - SET_BLOCKS, b.wave);
        before = slot, time_before = time;
        v_page = page, page = next;
        next = page_of_turn(keys, block + 2 * SET_BLOCKS, b.wave);
    }
}

KG_DEV void bring_all(args_t a, u8 *lds, int wave) {
    gates_t *gates = (gates_t *)(lds + LDS_GATES);
    bringer_t b = {wave - ALL_WAVES, 0, 0, 0};
    write_maps(a, lds + LDS_STAGE, b.wave);
    work_t work = first_work(a);
    u32 frees = 0;
    bool used = false;
    while (work.unit < work.end) {
        segment_t g = segment_at(work, a);
        parked_work(lds, ALL_WAVES) = work; // registers are few, and all put the same there
        parked_segment(lds, ALL_WAVES) = g;
        if (g.shares) {
            if (used) gate_await(&gates->stage_free, frees++);
            used = uses_stage(g);
            if (is_empty(g))
                bring_queries(a, g, gates, lds, b);
            else
                bring_sets(b, a, g, gates, lds);
            b.segments++;
        }
        work = parked_work(lds, ALL_WAVES);
        g = parked_segment(lds, ALL_WAVES);
        meet_bringers(); // before some put the next ones there
        work_advance(work, g, a);
    }
}

KG_DEV void begin_gates(u8 *lds) {
    gates_t *gates = (gates_t *)(lds + LDS_GATES);
    if (thread_id() == 0) {
        KG_UNROLL for (int n = 0; n < SLOTS; n++) {
            gate_begin(&gates->keys_there[n], BRINGERS * WAVE);
            gate_begin(&gates->values_there[n], BRINGERS * WAVE);
            gate_begin(&gates->keys_read[n], ALL_WAVES);
            gate_begin(&gates->values_read[n], ALL_WAVES);
        }
        gate_begin(&gates->q_there, BRINGERS * WAVE);
        gate_begin(&gates->q_read, ALL_WAVES);
        gate_begin(&gates->stage_free, ALL_WAVES);
        KG_UNROLL for (int n = 0; n < ALL_WAVES; n++) gates->sets[n] = gates->segments[n] = 0;
    }
    barrier();
}

template <void (*SEGMENT)(args_t, segment_t &, cut_t, u8 *, int)>
KG_DEV void run_groups(args_t a, u8 *lds) {
    begin_gates(lds);
    int wave = (int)wave_id();
    if (wave >= ALL_WAVES) {
        fewer_registers<BRINGING_REGISTERS>();
        bring_all(a, lds, wave);
    } else {
        more_registers<ROW_REGISTERS>();
        if (wave >= 4) pass_turn(together_t{}, wave);
        run<SEGMENT>(a, lds);
    }
}

} // namespace kg

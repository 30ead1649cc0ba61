// Long queries on sm_90 of eight waves (BRINGERS). Two groups of four waves multiply, as
// kg/attn/buffer_nvidia.h has it, and a third brings them keys and values, as far ahead as LDS has
// slots. It goes through the workgroup's part of the line by itself, so the sets of a segment come
// while the rows of the one before go out, and has few registers, of which the others have more.
#pragma once
#include "kg/attn/attn_run.h"
#include "kg/attn/buffer_nvidia.h"

namespace kg {

// Of a lane: of waves with rows, and of those that bring them keys.
constexpr int ROW_REGISTERS = 208, BRINGING_REGISTERS = 88;
constexpr int TURNS = BRINGERS ? ceil_div(SET_KEYS, BRINGERS * WAVE_KEYS) : 1;

// Where sets come there lie, too, what waves say of few rows and parts of a row that are merged.
KG_DEV bool uses_stage(const segment_t &g) { return CASCADE || !g.whole || has_few_rows(g); }

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
    if (sets & STAGE_USED) gate_arrive_wave(&gates->stage_free);
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

// --- who brings ---------------------------------------------------------------------

struct bringer_t {
    int slot, wave; // of the next set; number of the wave
    u32 time;       // that sets have been in the slot
    u32 segments;
};

// Rows that there are of the segment's row block, each wave some that follow one another.
KG_DEV void bring_queries(args_t a, const segment_t &g, gates_t *gates, u8 *lds, int wave,
                          u32 time) {
    constexpr int PIECES = HEAD_DIM / 8, EACH = ROWS / KG_ATTN_BRINGERS;
    constexpr int LANES = lanes_of_row(PIECES), AT_ONCE = rows_at_once(PIECES);
    int first = wave * EACH, end = g.seq.q_len * GROUP - g.row_block * ROWS;
    if constexpr (!BRINGS_Q) return;
    gate_await(&gates->q_read, time + 1); // the time before this one
    end = smaller(end, first + EACH);
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

template <int PIECES>
KG_DEV void bring_part(u8 *to, gate_t *there, const gate_t *read, const u8 *from, i64 page_bytes,
                       int token_bytes, const keys_t &keys, const i32 (&page)[TURNS], int block,
                       int wave, u32 time) {
    gate_await(read, time + 1); // the time before this one
    KG_UNROLL for (int n = 0; n < TURNS; n++) bring_rows<PIECES>(
        to, from, page_bytes, token_bytes, keys, page[n], block, wave + n * BRINGERS);
    gate_arrive_copied(there);
}

KG_DEV void bring_segment(bringer_t &b, args_t a, const segment_t &g, const head_t &h,
                          const keys_t &keys, gates_t *gates, u8 *lds) {
    ring_t r = {lds + LDS_STAGE};
    i32 page[TURNS], v_page[TURNS] = {};
    int v_slot_before = 0, first = first_set(g);
    u32 v_time = 0;
    KG_UNROLL for (int n = 0; n < TURNS; n++) page[n] =
        set_page(keys, first, b.wave + n * BRINGERS);
    KG_LOOP for (int block = first; block < g.block_end + SET_BLOCKS; block += SET_BLOCKS) {
        int slot = b.slot;
        u32 time = b.time;
        if (block < g.block_end) {
            bring_part<K_PIECES>(k_slot(r, slot), &gates->keys_there[slot], &gates->keys_read[slot],
                                 h.k, h.k_page, h.k_token, keys, page, block, b.wave, time);
            b.slot = slot_after(slot, SLOTS);
            b.time += b.slot == 0;
        }
        if (block == first)
            bring_queries(a, parked_segment(lds, b.wave + ALL_WAVES), gates, lds, b.wave,
                          b.segments);
        else
            bring_part<V_PIECES>(v_slot(r, v_slot_before), &gates->values_there[v_slot_before],
                                 &gates->values_read[v_slot_before], h.v, h.v_page, h.v_token, keys,
                                 v_page, block - SET_BLOCKS, b.wave, v_time);
        v_slot_before = slot, v_time = time;
        KG_UNROLL for (int n = 0; n < TURNS; n++) {
            v_page[n] = page[n];
            page[n] = set_page(keys, block + SET_BLOCKS, b.wave + n * BRINGERS);
        }
    }
}

KG_DEV void bring_all(args_t a, u8 *lds, int wave) {
    gates_t *gates = (gates_t *)(lds + LDS_GATES);
    work_t work = first_work(a);
    bringer_t b = {0, wave - ALL_WAVES, 0, 0};
    u32 frees = 0;
    bool used = false;
    while (work.unit < work.end) {
        segment_t g = segment_at(work, a);
        parked_work(lds, wave) = work; // registers are few
        parked_segment(lds, wave) = g;
        if (g.shares) {
            if (used) gate_await(&gates->stage_free, frees++);
            used = uses_stage(g);
            if (is_empty(g))
                bring_queries(a, g, gates, lds, b.wave, b.segments);
            else
                bring_segment(b, a, g, head_of(a, g, role_of(g, 0)), keys_of(a, g), gates, lds);
            b.segments++;
        }
        work = parked_work(lds, wave);
        work_advance(work, parked_segment(lds, wave), a);
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

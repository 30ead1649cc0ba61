// Long queries on sm_90 of eight waves (BRINGERS). Two groups of four waves multiply, as
// kg/attn/buffer_nvidia.h has it, and a third brings them keys and values, as far ahead as LDS has
// slots. It goes through the workgroup's part of the line, and says which segments there are, so
// both what they are and their sets are there while the rows of the one before go out. It has few
// registers, of which the others have more.
#pragma once
#include "kg/attn/attn_run.h"
#include "kg/attn/bring_codes_nvidia.h"

namespace kg {

// Of a lane: of waves with rows, and of those that bring them keys.
constexpr int ROW_REGISTERS = 208, BRINGING_REGISTERS = 88;

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
    gates_t *gates = gates_of(lds);
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
        gate_await(&r.gates->q_there[has_few_rows(g) ? 0 : wave / 4], r.segments);
    } else {
        show_lds();
        meet_readers(g, wave);
    }
}
// For the next segment.
KG_DEV void note_sets(const ring_t &r, const segment_t &g, int wave) {
    u32 sets = r.time * SLOTS + (u32)r.k + sets_of(g);
    r.gates->sets[wave] = sets | (uses_stage(g) ? STAGE_USED : 0);
}

// The wave's segment waits there, and what follows from it.
KG_DEV int park_of_wave(u8 *lds, int wave) {
    return park_of_segment(gates_of(lds)->segments[wave]);
}
// To the next segment, once it has been found.
KG_DEV segment_t await_segment(u8 *lds, int wave) {
    gates_t *gates = gates_of(lds);
    u32 n = gates->segments[wave];
    gate_await(&gates->found[park_of_segment(n)], n / KG_ATTN_FOUND);
    return parked_segment(lds, park_of_segment(n));
}
KG_DEV void leave_segment(u8 *lds, int wave) {
    gates_t *gates = gates_of(lds);
    u32 n = gates->segments[wave];
    gate_arrive_wave(&gates->left[park_of_segment(n)]);
    gates->segments[wave] = n + 1;
}

template <void (*SEGMENT)(args_t, segment_t &, cut_t, u8 *, int)>
KG_DEV void follow(args_t a, u8 *lds, int wave) {
    take_workspace(a);
    segment_t g = await_segment(lds, wave);
    while (g.shares) {
        SEGMENT(a, g, parked_work(lds, park_of_wave(lds, wave)).cut, lds, wave);
        wave = wave_again();
        leave_segment(lds, wave);
        g = await_segment(lds, wave);
    }
    finish(a, number_of(parked_work(lds, park_of_wave(lds, wave)).cut));
}

// --- who brings -----------------------------------------------------------------------

// Registers are few, so it waits there for who found it, too; all put the same there.
KG_DEV void put_segment(u8 *lds, int wave, const work_t &work, const segment_t &g) {
    gates_t *gates = gates_of(lds);
    u32 n = gates->segments[wave];
    int park = park_of_segment(n);
    gate_await(&gates->left[park], n / KG_ATTN_FOUND + 1); // the time before this one
    parked_work(lds, park) = work;
    parked_segment(lds, park) = g;
    if (g.shares || work.unit >= work.end) gate_arrive_wave(&gates->found[park]);
}

KG_DEV void bring_segment(args_t a, const segment_t &g, u8 *lds, int wave) {
    gates_t *gates = gates_of(lds);
    int number = (int)opaque((u32)(wave - ALL_WAVES)); // nothing that follows from it waits
    bringer_t b = {number, gates->sets[wave], gates->segments[wave]};
    u32 used = gates->used[wave];
    meet_wave(); // all lanes have read it
    gates->used[wave] = (used + 1) / 2 * 2 + uses_stage(g);
    gates->segments[wave] = b.segments + 1;
    if (used & 1) gate_await(&gates->stage_free, used / 2);
    if (is_empty(g))
        bring_queries(a, lds, b);
    else if (CONVERTED)
        bring_codes(b, a, g, lds);
    else
        bring_sets(b, a, g, lds);
    gates->sets[wave] = b.sets;
}

KG_DEV void bring_all(args_t a, u8 *lds, int wave) {
    write_maps(a, lds + LDS_STAGE, wave - ALL_WAVES);
    work_t work = first_work(a);
    while (work.unit < work.end) {
        segment_t g = segment_at(work, a);
        int park = park_of_wave(lds, wave);
        put_segment(lds, wave, work, g);
        if (g.shares) bring_segment(a, g, lds, wave);
        work = parked_work(lds, park);
        g = parked_segment(lds, park);
        meet_bringers(); // before some put others there
        work_advance(work, g, a);
    }
    put_segment(lds, wave, work, segment_t{}); // the last, which nobody shares
}

// --- all waves ------------------------------------------------------------------------

KG_DEV void begin_gates(u8 *lds) {
    gates_t *gates = gates_of(lds);
    if (thread_id() == 0) {
        KG_UNROLL for (int n = 0; n < SLOTS; n++) {
            gate_begin(&gates->keys_there[n], BRINGERS * WAVE);
            gate_begin(&gates->values_there[n], BRINGERS * WAVE);
            gate_begin(&gates->keys_read[n], ALL_WAVES);
            gate_begin(&gates->values_read[n], ALL_WAVES);
        }
        KG_UNROLL for (int n = 0; CONVERTED && n < RAW_SLOTS; n++) {
            gate_begin(&gates->raw_keys[n], BRINGERS * WAVE);
            gate_begin(&gates->raw_values[n], BRINGERS * WAVE);
        }
        KG_UNROLL for (int n = 0; n < 2; n++) {
            gate_begin(&gates->q_there[n], BRINGERS / 2 * WAVE);
            gate_begin(&gates->q_read[n], ALL_WAVES / 2);
        }
        gate_begin(&gates->stage_free, ALL_WAVES);
        KG_UNROLL for (int n = 0; n < KG_ATTN_FOUND; n++) {
            gate_begin(&gates->found[n], BRINGERS);
            gate_begin(&gates->left[n], ALL_WAVES);
        }
        KG_UNROLL for (int n = 0; n < LAUNCHED_WAVES; n++) gates->sets[n] = gates->segments[n] =
            gates->used[n] = 0;
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
        follow<SEGMENT>(a, lds, wave);
    }
}

} // namespace kg

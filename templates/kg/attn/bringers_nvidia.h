// Long queries on sm_90 of eight waves (BRINGERS). Two groups of four waves multiply, as
// kg/attn/buffer_nvidia.h has it, and a third brings them keys and values, as far ahead as LDS has
// slots. It goes through the workgroup's part of the line by itself, so the sets of a segment come
// while the rows of the one before go out, and has few registers, of which the others have more.
#pragma once
#include "kg/attn/attn_run.h"
#include "kg/attn/bring_codes_nvidia.h"

namespace kg {

// Of a lane: of waves with rows, and of those that bring them keys.
constexpr int ROW_REGISTERS = 216, BRINGING_REGISTERS = 72;

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

// --- all waves ------------------------------------------------------------------------

KG_DEV void bring_all(args_t a, u8 *lds, int wave) {
    gates_t *gates = (gates_t *)(lds + LDS_GATES);
    bringer_t b = {wave - ALL_WAVES, 0, 0};
    write_maps(a, lds + LDS_STAGE, b.wave);
    work_t work = first_work(a);
    u32 used = 0; // times that the stage has been; lowest bit: by the segment before
    while (work.unit < work.end) {
        segment_t g = segment_at(work, a);
        parked_work(lds, ALL_WAVES) = work; // registers are few, and all put the same there
        parked_segment(lds, ALL_WAVES) = g;
        if (g.shares) {
            if (used & 1) gate_await(&gates->stage_free, used / 2);
            used = (used + 1) / 2 * 2 + uses_stage(g);
            if (is_empty(g))
                bring_queries(a, g, gates, lds, b);
            else if (CONVERTED)
                bring_codes(b, a, g, gates, lds);
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
        KG_UNROLL for (int n = 0; CONVERTED && n < RAW_SLOTS; n++) {
            gate_begin(&gates->raw_keys[n], BRINGERS * WAVE);
            gate_begin(&gates->raw_values[n], BRINGERS * WAVE);
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

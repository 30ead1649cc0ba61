// Long queries on sm_90 of eight waves (BRINGERS). Two groups of four waves multiply, as
// kg/attn/buffer_nvidia.h has it, and a third brings them keys and values, as far ahead as LDS has
// slots. It goes through the workgroup's part of the line, and says which segments there are, so
// both what they are and their sets are there while the rows of the one before go out. It has few
// registers, of which the others have more.
#pragma once
#include "kg/attn/attn_run.h"
#include "kg/attn/bring_codes_nvidia.h"
#include "kg/attn/lots_nvidia.h"

namespace kg {

// Of a lane: of waves with rows, and of those that bring them keys.
constexpr int ROW_REGISTERS = 208, BRINGING_REGISTERS = 88;

// What waves say of few rows, and parts of a row that are merged, lie in the slot behind the
// segment's last set: nobody brings a set there, and the next ones come meanwhile.
constexpr u32 KEEPS_SLOT = 1u << 31; // beside a number of sets
KG_DEV bool keeps_slot(const segment_t &g) { return !g.whole || has_few_rows(g); }

// --- waves with rows --------------------------------------------------------------

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
// Sets before a segment, when what is said in a slot has been read.
KG_DEV u32 sets_before(gates_t *gates, int wave) {
    u32 sets = gates->sets[wave];
    if (!(sets & KEEPS_SLOT)) return sets;
    sets &= ~KEEPS_SLOT;
    u32 slot = sets % SLOTS, time = sets / SLOTS;
    show_lds();                                 // boxes follow what was written there
    gate_await(&gates->keys_there[slot], time); // all have read the set before
    gate_await(&gates->values_there[slot], time);
    gate_arrive_wave(&gates->keys_read[slot]);
    gate_arrive_wave(&gates->values_read[slot]);
    return sets + 1;
}
// As a segment begins: its first sets may be there.
KG_DEV ring_t begin_ring(const segment_t &g, u8 *lds, int wave) {
    gates_t *gates = gates_of(lds);
    if constexpr (!BRINGS_Q) meet_readers(g, wave);
    u32 sets = sets_before(gates, wave);
    int slot = (int)(sets % SLOTS);
    ring_t r = {lds + LDS_STAGE, slot, slot_before(slot, SLOTS), 0, 0, 0};
    r.gates = gates;
    r.time = sets / SLOTS;
    r.segments = gates->segments[wave];
    return r;
}
KG_DEV void await_queries(const ring_t &r, const segment_t &g, int wave) {
    if constexpr (BRINGS_Q) {
        gate_await(&r.gates->q_there[wave / 4], r.segments);
    } else {
        show_lds();
        meet_readers(g, wave);
    }
}
// For the next segment.
KG_DEV void note_sets(const ring_t &r, const segment_t &g, int wave) {
    u32 sets = r.time * SLOTS + (u32)r.k + sets_of(g);
    r.gates->sets[wave] = sets | (keeps_slot(g) ? KEEPS_SLOT : 0);
    place_of_parts(r.slots - LDS_STAGE, wave) = (int)(k_slot(r, (int)(sets % SLOTS)) - r.slots);
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

// The slot of a set that nobody brings.
KG_DEV void pass_slot(gates_t *gates, u32 set) {
    u32 slot = set % SLOTS, time = set / SLOTS, raw = set % (u32)RAW_SLOTS;
    gate_await(&gates->keys_read[slot], time + 1);
    gate_await(&gates->values_read[slot], time + 1);
    gate_arrive(&gates->keys_there[slot]);
    gate_arrive(&gates->values_there[slot]);
    if constexpr (!CONVERTED) return;
    gate_arrive(&gates->raw_keys[raw]);
    gate_arrive(&gates->raw_values[raw]);
    gate_await(&gates->raw_keys[raw], set / (u32)RAW_SLOTS); // codes of others come early
    gate_await(&gates->raw_values[raw], set / (u32)RAW_SLOTS);
}

KG_DEV void bring_segment(args_t a, const segment_t &g, u8 *lds, int wave) {
    gates_t *gates = gates_of(lds);
    int number = (int)opaque((u32)(wave - ALL_WAVES)); // nothing that follows from it waits
    bringer_t b = {number, gates->sets[wave], gates->segments[wave]};
    meet_wave(); // all lanes have read them
    gates->segments[wave] = b.segments + 1;
    if (b.sets & KEEPS_SLOT) {
        b.sets &= ~KEEPS_SLOT;
        pass_slot(gates, b.sets++);
    }
    if (is_empty(g))
        bring_queries(a, lds, b);
    else if (CONVERTED)
        bring_codes(b, a, g, lds);
    else
        bring_sets(b, a, g, lds);
    gates->sets[wave] = b.sets | (keeps_slot(g) ? KEEPS_SLOT : 0);
}

// The workgroup's part of a cut, or the lots that it draws.
KG_DEV work_t first_of_group(args_t a, u8 *lds, int wave) {
    gates_t *gates = gates_of(lds);
    account_t account = account_of(a, gates, wave - ALL_WAVES);
    lots_t lots = lots_of(a, gates, account, wave - ALL_WAVES);
    gates->lots = lots;
    return lots.all ? first_lot(a, lots) : work_begin(a, account.units);
}
KG_DEV segment_t segment_of_group(args_t a, u8 *lds, const work_t &work) {
    if (is_drawn(work.cut)) return segment_of_lot(work, a, gates_of(lds)->lots);
    return work_segment(work, a);
}
// The next lot is drawn once the sets of the one before are on their way.
KG_DEV void advance_group(args_t a, u8 *lds, int wave, work_t &work, int park) {
    gates_t *gates = gates_of(lds);
    u32 *drawn = &gates->drawn[gates->segments[wave] % 2];
    work = parked_work(lds, park);
    bool draws = is_drawn(work.cut);
    if (draws && wave == ALL_WAVES && lane_id() == 0) *drawn = draw_lot(a, work);
    segment_t g = parked_segment(lds, park);
    meet_bringers(); // before some put others there
    if (!draws) return work_advance(work, g, a);
    work.unit = *drawn;
    find_lot(work, a, gates->lots);
}

KG_DEV void bring_all(args_t a, u8 *lds, int wave) {
    work_t work = first_of_group(a, lds, wave);
    await_maps(a, gates_of(lds));
    while (work.unit < work.end) {
        segment_t g = segment_of_group(a, lds, work);
        int park = park_of_wave(lds, wave);
        put_segment(lds, wave, work, g);
        if (g.shares) bring_segment(a, g, lds, wave);
        advance_group(a, lds, wave, work, park);
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
        gate_begin(&gates->maps, MAPS);
        KG_UNROLL for (int n = 0; n < 2; n++) {
            gate_begin(&gates->q_there[n], BRINGERS / 2 * WAVE);
            gate_begin(&gates->q_read[n], ALL_WAVES / 2);
        }
        KG_UNROLL for (int n = 0; n < KG_ATTN_FOUND; n++) {
            gate_begin(&gates->found[n], BRINGERS);
            gate_begin(&gates->left[n], ALL_WAVES);
        }
        KG_UNROLL for (int n = 0; n < LAUNCHED_WAVES; n++) gates->sets[n] = gates->segments[n] = 0;
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
        write_maps(a, gates_of(lds), lds + LDS_STAGE, wave);
        if (wave >= 4) pass_turn(together_t{}, wave);
        follow<SEGMENT>(a, lds, wave);
    }
}

} // namespace kg

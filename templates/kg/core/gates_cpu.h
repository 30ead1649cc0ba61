// Gates on the cpu device; see gates_nvidia.h. A gate's low bits say how many it counts, the next
// which boxes are still to come, then how many have arrived.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV bool is_elected() { return lane_id() == 0; }

typedef u64 gate_t;
constexpr int GATE_PHASE = 63, GATE_ARRIVED = 32, GATE_BOXES = 16; // bits; see cpu_abi.h
KG_DEV void gate_begin(gate_t *gate, u32 count) { *gate = count; }
KG_DEV void gate_end(gate_t *) {}
KG_DEV u32 gate_time(const gate_t *gate) { return (u32)(*gate >> GATE_PHASE); }
// `arrived` more have, and of `boxes` more it is to wait.
KG_DEV void gate_change(gate_t *gate, u32 arrived, int boxes) {
    u64 count = *gate & 0xffffu, coming = (*gate >> GATE_BOXES & 0xffffu) + (u64)(i64)boxes;
    u64 all = (*gate >> GATE_ARRIVED & 0x7fffffffu) + arrived, phase = *gate >> GATE_PHASE;
    if (all == count && coming == 0) phase ^= 1, all = 0;
    *gate = phase << GATE_PHASE | all << GATE_ARRIVED | coming << GATE_BOXES | count;
}
KG_DEV void gate_arrive(gate_t *gate) { gate_change(gate, 1, 0); }
// Others may go on before copies come.
KG_DEV void gate_arrive_copied(gate_t *gate) {
    static const gate_t open = (gate_t)1 << GATE_PHASE;
    kg_ops->wave_sync();
    kg_ops->await(&open, 0);
    kg_ops->all_copies_done();
    gate_arrive(gate);
}
KG_DEV void gate_arrive_wave(gate_t *gate) {
    meet_wave();
    if (lane_id() == 0) gate_arrive(gate);
}
KG_DEV void gate_await(const gate_t *gate, u32 time) {
    kg_ops->wave_sync(); // all lanes find it as it is now
    kg_ops->await(gate, time & 1);
}

KG_DEV gate_t *named_gate(int n) { return kg_ops->self()->named + n; }
template <int THREADS> KG_DEV void say_at(int n) {
    kg_ops->wave_sync();
    if (lane_id() != 0) return;
    *named_gate(n) = (*named_gate(n) & ~(u64)0xffffu) | THREADS / WAVE;
    gate_arrive(named_gate(n));
}
template <int THREADS> KG_DEV void meet_at(int n) {
    u32 time = gate_time(named_gate(n));
    say_at<THREADS>(n);
    gate_await(named_gate(n), time);
}

template <int N> KG_DEV void fewer_registers() {}
template <int N> KG_DEV void more_registers() {}

} // namespace kg

// Waves of a workgroup that do different things: gates in LDS, barriers of some of them, and
// registers that one group has instead of another. On the cpu device gates_cpu.h stands for this
// file.
// Source: PTX ISA, mbarrier, bar, elect, setmaxnreg, cp.async.mbarrier.arrive.
#pragma once
#include "kg/core/machine.h"

namespace kg {

// What the wave's lanes have copied or read, all know.
KG_DEV void meet_wave() { __syncwarp(); }

// Of the wave's lanes, one: as the compiler knows, so what it asks for is not a loop over lanes.
KG_DEV bool is_elected() {
    u32 elected;
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}"
                 : "=r"(elected));
    return elected != 0;
}

// A gate opens when as many have arrived as it counts, time after time.
typedef u64 gate_t;
KG_DEV u32 gate_address(const gate_t *gate) { return (u32)__cvta_generic_to_shared(gate); }
KG_DEV void gate_begin(gate_t *gate, u32 count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;"
                 :
                 : "r"(gate_address(gate)), "r"(count)
                 : "memory");
}
// What lies there may be something else.
KG_DEV void gate_end(gate_t *gate) {
    asm volatile("mbarrier.inval.shared.b64 [%0];" : : "r"(gate_address(gate)) : "memory");
}
KG_DEV void gate_arrive(gate_t *gate) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
                 :
                 : "r"(gate_address(gate))
                 : "memory");
}
// Once all that this lane has copied so far has come.
KG_DEV void gate_arrive_copied(gate_t *gate) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"
                 :
                 : "r"(gate_address(gate))
                 : "memory");
}
// Once a wave: its lanes have read what lies behind the gate.
KG_DEV void gate_arrive_wave(gate_t *gate) {
    meet_wave();
    if (lane_id() == 0) gate_arrive(gate);
}
// Until it has opened for the time'th time, modulo 2; the time before the first has passed.
KG_DEV void gate_await(const gate_t *gate, u32 time) {
    u32 open = 0;
    while (!open)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(open)
                     : "r"(gate_address(gate)), "r"(time & 1)
                     : "memory");
}

// Barrier number `n`, from 1 on, of so many threads.
template <int THREADS> KG_DEV void meet_at(int n) {
    asm volatile("bar.sync %0, %1;" : : "r"(n), "n"(THREADS) : "memory");
}

// Who says something goes on, who hears it waits for that: of so many threads both.
template <int THREADS> KG_DEV void say_at(int n) {
    asm volatile("bar.arrive %0, %1;" : : "r"(n), "n"(THREADS) : "memory");
}

// The group's four waves have so many from here on.
template <int N> KG_DEV void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N));
}
template <int N> KG_DEV void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N));
}

} // namespace kg

// Workgroups that share a work item count themselves in the workspace; the last to
// arrive finishes the item and puts the counter back. Each adds 1 and, in the
// upper half, the ticket of its launch, which no other launch has: a counter that
// was not prepared, that an aborted launch left behind, or that another launch
// counts in as well says so to who comes next.
#pragma once
#include "kg/core/machine.h"
#include "kg/core/workspace_head.h"

namespace kg {

constexpr u64 COUNTER_AT_REST = KG_WORKSPACE_BYTE * 0x0101010101010101ull;

enum arrival_t { ARRIVED = 0, ARRIVED_LAST = 1, ARRIVED_AMISS = 2 };

KG_DEV u64 counted(u32 ticket) { return (u64)ticket << 32 | 1; }

// What a counter said `before` to one of `parts` workgroups.
KG_DEV arrival_t arrival_of(u64 before, u32 ticket, u32 parts) {
    u64 seen = before - COUNTER_AT_REST;
    u32 count = (u32)seen;
    if (count >= parts || (u32)(seen >> 32) != count * ticket) return ARRIVED_AMISS;
    return count + 1 == parts ? ARRIVED_LAST : ARRIVED;
}

KG_DEV void call_broken(kg_workspace *w) { atomic_store(&w->broken, 0); }

} // namespace kg

// Workgroups that share a work item count themselves in the workspace; the last to
// arrive finishes the item and puts the counter back. Each adds 1 and, above the
// bits of the count, the ticket of its launch, which no other launch has: a counter
// that was not prepared, that an aborted launch left behind, or that another launch
// counts in as well says so to who comes next. gdn counts in the lower half alone:
// what it holds until its states are written is one register.
#pragma once
#include "kg/core/machine.h"
#include "kg/core/workspace_head.h"

namespace kg {

template <class T> constexpr T COUNTER_AT_REST = (T)(KG_WORKSPACE_BYTE * 0x0101010101010101ull);
template <class T> constexpr int COUNT_BITS = sizeof(T) == 8 ? 32 : 12;

enum arrival_t { ARRIVED = 0, ARRIVED_LAST = 1, ARRIVED_AMISS = 2, ARRIVED_WITH_OTHERS = 3 };

template <class T> KG_DEV T counted(u32 ticket) { return (T)ticket << COUNT_BITS<T> | 1; }

// What a counter said `before` to one of `parts` workgroups.
template <class T> KG_DEV arrival_t arrival_of(T before, u32 ticket, u32 parts) {
    T seen = before - COUNTER_AT_REST<T>;
    u32 count = (u32)(seen & (((T)1 << COUNT_BITS<T>)-1));
    if (count >= parts || seen != count * counted<T>(ticket)) return ARRIVED_AMISS;
    return count + 1 == parts ? ARRIVED_LAST : ARRIVED;
}

// Counters that many dies add to: neighbours in lines of their own, as long as there are lines.
KG_DEV u64 *counter_at(kg_workspace *w, u64 number) {
    constexpr int COUNTERS = sizeof w->arrived / sizeof w->arrived[0];
    constexpr int EACH = 16, LINES = COUNTERS / EACH; // counters of a line
    if constexpr (DIES == 1) return w->arrived + number;
    return w->arrived + (number % LINES * EACH + number / LINES);
}

KG_DEV void call_broken(kg_workspace *w) { atomic_store(&w->broken, 0); }

} // namespace kg

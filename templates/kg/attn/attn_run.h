// A workgroup's part of the line of work, segment by segment.
#pragma once
#include "kg/attn/clusters.h"
#include "kg/attn/merge.h"

namespace kg {

// Where waves have keys in LDS, groups come before sequences or scalars are scarce, the place in
// the line waits there as well.
constexpr bool HOLDS = CASCADE || PARKS_SEGMENT;
KG_DEV void park(work_t &w) {
    if constexpr (!STAGED && !HOLDS && !BY_LINES) return;
    w.cut = cut_t{parked(w.cut.each), parked(w.cut.extra), w.cut.part};
    park(w.seq);
}
KG_DEV void fetch(work_t &w) {
    if constexpr (!STAGED && !HOLDS && !BY_LINES) return;
    w.cut = cut_t{fetched(w.cut.each), fetched(w.cut.extra), w.cut.part};
    fetch(w.seq);
}

// CASCADE: the compiler does not see that these are the same in all lanes.
KG_DEV void settle(work_t &w) {
    fetch(w);
    w.unit = fetched(w.unit), w.end = fetched(w.end), w.seq_start = fetched(w.seq_start);
}

// Where the arguments are, which PARKS_SEGMENT are two scalars less all along.
struct place_t {
    u32 low, high;
};
KG_DEV place_t place_of(args_t args) {
    if constexpr (!PARKS_SEGMENT) return place_t{0, 0};
    u64 at = (u64)&args;
    return place_t{parked((u32)at), parked((u32)(at >> 32))};
}
KG_DEV args_t args_again(args_t args, place_t place) {
    if constexpr (!PARKS_SEGMENT) return reread(args);
    return *(const KG_CONSTANT kg_attn_args *)((u64)fetched(place.high) << 32 | fetched(place.low));
}

// Unless it merges slices, the first workgroup of a cluster speaks for all. Instructions come from
// memory, too, and whole items are soon done: what they do not take stands behind them.
KG_DEV void go_on_together(work_t &w, const segment_t &g, args_t a, u8 *lds, int wave) {
    if (has_whole_items(w)) return next_item(w, a);
    if (g.shares && !g.whole && (MERGES_SLICES || cluster_rank() == 0))
        settle_item(a, g, w.cut, lds, wave);
    work_advance(w, g, a);
}

template <void (*SEGMENT)(args_t, segment_t &, cut_t, u8 *, int)>
KG_DEV void run(args_t args, u8 *lds) {
    touch(args);
    if constexpr (CLUSTER != 0) ask_ahead(args, lds);
    work_t work = first_work(args);
    if constexpr (CASCADE) settle(work);
    int wave = (int)wave_id();
    if constexpr (SENDS) open_inbox(lds, wave);
    // Or what each segment asks of it, a pair of scalars a condition, is worked out before.
    constexpr bool ASKS_AGAIN = CASCADE || (WAVE == 64 && !STAGED);
    u32 held = ASKS_AGAIN ? opaque((u32)wave) : 0;
    if (!has_whole_items(work)) take_workspace(args);
    place_t place = place_of(args);
    while (work.unit < work.end) {
        args_t a = args_again(args, place);
        segment_t g = segment_at(work, a, wave);
        g.next = parked(g.next);
        work.end = parked(work.end);
        work.seq_start = parked(work.seq_start);
        cut_t cut = work.cut;
        park(work);
        if constexpr (PARK_BYTES != 0) parked_work(lds, wave) = work;
        if constexpr (ASKS_AGAIN) wave = (int)opaque_uniform((u32)uniform((int)held));
        // Else a mask of lanes waits for the segment's end.
        bool shares = PARKS_SEGMENT ? uniform((int)g.shares) != 0 : g.shares;
        if (shares) SEGMENT(a, g, cut, lds, wave);
        if constexpr (BRINGERS != 0) wave = wave_again();
        if constexpr (PARK_BYTES != 0) work = parked_work(lds, wave);
        g.next = fetched(g.next);
        work.end = fetched(work.end);
        work.seq_start = fetched(work.seq_start);
        fetch(work);
        if constexpr (CASCADE)
            work_advance(work, g, args_again(args, place));
        else if constexpr (CLUSTER != 0)
            go_on_together(work, g, a, lds, wave);
        else
            work_advance(work, g, a);
    }
    finish(args_again(args, place), CLUSTER ? group_id() : number_of(work.cut));
}

} // namespace kg

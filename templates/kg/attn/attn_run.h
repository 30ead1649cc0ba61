// A workgroup's part of the line of work, segment by segment.
#pragma once
#include "kg/attn/merge.h"

namespace kg {

// Where waves have keys in LDS or groups come before sequences, the place in the line
// waits there as well.
KG_DEV void park(work_t &w) {
    if constexpr (!STAGED && !CASCADE && !BY_LINES) return;
    w.cut = cut_t{parked(w.cut.each), parked(w.cut.extra), w.cut.part};
    park(w.seq);
}
KG_DEV void fetch(work_t &w) {
    if constexpr (!STAGED && !CASCADE && !BY_LINES) return;
    w.cut = cut_t{fetched(w.cut.each), fetched(w.cut.extra), w.cut.part};
    fetch(w.seq);
}

// CASCADE: the compiler does not see that these are the same in all lanes.
KG_DEV void settle(work_t &w) {
    fetch(w);
    w.unit = fetched(w.unit), w.end = fetched(w.end), w.seq_start = fetched(w.seq_start);
}

template <void (*SEGMENT)(args_t, segment_t &, cut_t, u8 *, int)>
KG_DEV void run(args_t args, u8 *lds) {
    touch(args);
    work_t work = work_begin(args);
    if constexpr (CASCADE) settle(work);
    int wave = (int)wave_id();
    u32 held = CASCADE ? opaque((u32)wave) : 0; // or each segment's use of it is worked out before
    take_workspace(args);
    while (work.unit < work.end) {
        args_t a = reread(args);
        segment_t g = work_segment(work, a);
        g.next = parked(g.next);
        work.end = parked(work.end);
        work.seq_start = parked(work.seq_start);
        cut_t cut = work.cut;
        park(work);
        if constexpr (PARK_BYTES != 0) parked_work(lds, wave) = work;
        if constexpr (CASCADE) wave = (int)opaque_uniform((u32)uniform((int)held));
        if (g.shares) SEGMENT(a, g, cut, lds, wave);
        if constexpr (PARK_BYTES != 0) work = parked_work(lds, wave);
        g.next = fetched(g.next);
        work.end = fetched(work.end);
        work.seq_start = fetched(work.seq_start);
        fetch(work);
        if constexpr (CASCADE)
            work_advance(work, g, reread(args));
        else
            work_advance(work, g, a);
    }
    finish(reread(args), part_of(work.cut));
}

} // namespace kg

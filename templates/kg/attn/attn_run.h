// A workgroup's part of the line of work, segment by segment.
#pragma once
#include "kg/attn/merge.h"

namespace kg {

template <void (*SEGMENT)(args_t, segment_t &, cut_t, u8 *, int)>
KG_DEV void run(args_t args, u8 *lds) {
    work_t work = work_begin(args);
    int wave = (int)wave_id();
    take_workspace(args);
    while (work.unit < work.end) {
        args_t a = reread(args);
        segment_t g = work_segment(work, a);
        g.next = parked(g.next);
        work.end = parked(work.end);
        work.seq_start = parked(work.seq_start);
        if (g.shares) SEGMENT(a, g, work.cut, lds, wave);
        g.next = fetched(g.next);
        work.end = fetched(work.end);
        work.seq_start = fetched(work.seq_start);
        work_advance(work, g, a);
    }
    finish(reread(args));
}

} // namespace kg

// A workgroup's part of the line of work, segment by segment.
#pragma once
#include "kg/attn/merge.h"

namespace kg {

// Where waves stage their keys, the place in the line waits there as well.
KG_DEV void park(work_t &w) {
    if constexpr (!STAGED) return;
    seq_t &s = w.seq;
    w.cut = cut_t{parked(w.cut.each), parked(w.cut.extra)};
    s.index = (int)parked((u32)s.index), s.q_start = (int)parked((u32)s.q_start);
    s.q_len = (int)parked((u32)s.q_len), s.kv_len = (int)parked((u32)s.kv_len);
    s.context = (int)parked((u32)s.context), s.first_key = (int)parked((u32)s.first_key);
    s.blocks = parked(s.blocks), s.items = parked(s.items);
}
KG_DEV void fetch(work_t &w) {
    if constexpr (!STAGED) return;
    seq_t &s = w.seq;
    w.cut = cut_t{fetched(w.cut.each), fetched(w.cut.extra)};
    s.index = (int)fetched((u32)s.index), s.q_start = (int)fetched((u32)s.q_start);
    s.q_len = (int)fetched((u32)s.q_len), s.kv_len = (int)fetched((u32)s.kv_len);
    s.context = (int)fetched((u32)s.context), s.first_key = (int)fetched((u32)s.first_key);
    s.blocks = fetched(s.blocks), s.items = fetched(s.items);
}

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
        cut_t cut = work.cut;
        park(work);
        if (g.shares) SEGMENT(a, g, cut, lds, wave);
        g.next = fetched(g.next);
        work.end = fetched(work.end);
        work.seq_start = fetched(work.seq_start);
        fetch(work);
        work_advance(work, g, a);
    }
    finish(reread(args));
}

} // namespace kg

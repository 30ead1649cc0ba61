// What a workgroup does in a segment, whatever way it goes through its blocks.
#pragma once
#include "kg/attn/attn_run.h"
#include "kg/mla/mla_weigh.h"

namespace kg {

// What waits for the end of a segment waits in vector registers, of which there are more;
// with as many row tiles as waves in LDS, behind its work.
struct waiting_t {
    u32 x[11];
};
KG_DEV waiting_t put_aside(const segment_t &g, cut_t cut) {
    waiting_t w = {{cut.each, cut.extra, g.item_start, PARTED ? g.part : g.item_end,
                    (u32)g.row_block, (u32)g.seq.index, (u32)g.seq.q_start, (u32)g.seq.q_len,
                    (u32)g.seq.kv_len, (u32)g.seq.context, g.whole ? 1u : 0u}};
    KG_UNROLL for (int i = 0; i < 11; i++) w.x[i] = opaque(w.x[i]);
    return w;
}
KG_DEV void take_back(segment_t &g, cut_t &cut, const waiting_t &w) {
    u32 x[11];
    KG_UNROLL for (int i = 0; i < 11; i++) x[i] = (u32)uniform((int)w.x[i]);
    cut.each = x[0], cut.extra = x[1];
    g.item_start = x[2], g.item_end = g.part = x[3];
    g.row_block = (int)x[4];
    g.seq.index = (int)x[5], g.seq.q_start = (int)x[6], g.seq.q_len = (int)x[7];
    g.seq.kv_len = (int)x[8], g.seq.context = (int)x[9];
    g.whole = x[10] != 0;
}

static_assert(!CROWDED || sizeof(work_t) + sizeof(waiting_t) <= PARK_BYTES, "room for both");
KG_DEV waiting_t &waiting_of(u8 *lds, int wave) {
    return *(waiting_t *)(&parked_work(lds, wave) + 1);
}

KG_DEV void prepare_stage(args_t, u8 *) {}

// ATTEND: how the workgroup goes through the blocks of a segment.
template <void (*ATTEND)(column_t &, column_t &, values_t &, const q_part_t &, const segment_t &,
                         const head_t &, const keys_t &, u8 *, share_of_scores_t, int, int)>
KG_DEV void run_segment_by(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    q_part_t q;
    column_t m, l;
    values_t o;
    wave = (int)opaque_uniform((u32)wave); // nothing of it is kept for the next segment
    g.kv_head = 0;                         // there is one
    role_t role = role_of(g, wave);
    if constexpr (OWN_TILES) role.row += scores_of_wave(wave).tile * NI;
    head_t head = head_of(a, g, role);
    keys_t keys = keys_of(a, g);
    head.window = (int)opaque((u32)head.window); // of edges: scalars are scarcer than vectors
    head.context = (int)opaque((u32)head.context);
    head.first_row = (int)opaque((u32)head.first_row);
    clear(m, l, o);
    load_part(q, a, g, scores_of_wave(wave), lds + LDS_STAGE, wave);
    join_scales(head, q);
    waiting_t waiting = put_aside(g, cut);
    if constexpr (CROWDED) waiting_of(lds, wave) = waiting;
    int lane = (int)opaque(lane_id()); // no place is kept for the next segment
    if (g.block < g.block_end && g.see.last >= 0)
        ATTEND(m, l, o, q, g, head, keys, lds + LDS_STAGE, scores_of_wave(wave), wave, lane);
    take_back(g, cut, CROWDED ? waiting_of(lds, wave) : waiting);
    if constexpr (OWN_TILES) exchange_sums(m, l, lds + LDS_STAGE, scores_of_wave(wave));
    reduce_and_store(m, l, o, reread(a), g, cut, lds, wave);
}

} // namespace kg

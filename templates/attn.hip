#include "kg/prelude/prelude_attn.h"
// Paged attention: one launch, split over the keys, merged
// by the last workgroup to arrive. Formula and arguments: <kgen/args.h>.
//
// A wave takes rows, and of its workgroup's segment every n-th block of keys, as
// the n waves with the same rows share them:
//   S = K Q^T          keys straight from memory into matrix operands; where queries
//                      are many, on some targets, by way of LDS (kg/attn/buffer.h)
//   P = exp2(S - m)    m moves only when a score exceeds it by 2^8
//   O += V^T P^T       P is already where the second product wants it
#include "kg/attn/attn_run.h"
#include "kg/attn/key_loop.h"

namespace kg {

// Arguments are read again in each phase: held across all of them they would
// not fit the scalar registers.
KG_DEV void run_segment(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    q_frag_t q;
    column_t m, l;
    values_t o;
    role_t role = role_of(g, wave);
    if (has_few_rows(g)) role.row = 0;
    head_t head = head_of(a, g, role);
    u8 *queries = lds + role.group * Q_GROUP_BYTES;
    keys_t keys = keys_of(a, g);
    head.k = settled(head.k);
    head.v = settled(head.v);
    g.item_start = parked(g.item_start);
    g.item_end = parked(g.item_end);
    clear(m, l, o);
    if constexpr (SENDS) offer_inbox();
    ask_for_q(q, a, g, role);
    ring_t ring = look_ahead(g, head, keys, lds, wave);
    load_q(q, a, g, role, queries);
    scale_q(head, q);
    if constexpr (ALL_WAITS && !RUNS_AHEAD) parked_segment(lds, wave) = g;
    if constexpr (BY_LINES || PARKS_SEGMENT) park(g.seq);
    if constexpr (PARKS_SEGMENT) park(cut), park(g);
    walk(m, l, o, q, a, g, role, head, keys, queries, lds, wave, ring);
    if constexpr (BY_LINES || PARKS_SEGMENT) fetch(g.seq);
    if constexpr (PARKS_SEGMENT) fetch(cut), fetch(g);
    if constexpr (BRINGERS != 0) wave = wave_again(); // registers are few
    if constexpr (ALL_WAITS) {
        int park = park_of(lds, wave);
        g = parked_segment(lds, park), cut = parked_work(lds, park).cut;
    }
    g.item_start = fetched(g.item_start);
    g.item_end = fetched(g.item_end);
    reduce_and_store(m, l, o, reread(a), g, cut, lds, wave);
}

} // namespace kg

KG_ENTRY(kg_attn_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::enter<kg::run_segment>(KG_ARGS(kg_attn_args, args), lds);
}

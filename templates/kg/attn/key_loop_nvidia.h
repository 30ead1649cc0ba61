// Long queries by way of LDS, from which groups of waves multiply; codes by way of queues; others
// as they are.
#pragma once
#include "kg/attn/direct.h"
#include "kg/attn/bringers_nvidia.h"
#include "kg/attn/few_rows_nvidia.h"
#include "kg/attn/queue_nvidia.h"

namespace kg {

// Where a group's sets lie, or a wave's queue.
KG_DEV u8 *sets_at(u8 *lds, int wave) { return lds + LDS_STAGE + key_group(wave) * SETS.bytes; }
KG_DEV u8 *queue_at(u8 *lds, int wave) { return lds + LDS_STAGE + wave * (KEY_QUEUE * QUEUE_SLOT); }

// The first keys and values come while queries do. A fence for queries in LDS would wait for them.
KG_DEV ring_t look_ahead(const segment_t &g, const head_t &head, const keys_t &keys, u8 *lds,
                         int wave) {
    if constexpr (BRINGERS != 0) return begin_ring(g, lds, wave);
    if constexpr (KEY_QUEUE != 0) {
        ring_t r = {};
        r.page = fill_queue(queue_at(lds, wave), g, role_of(g, wave), head, keys);
        return r;
    }
    if (!BUFFERED || Q_IN_LDS || is_empty(g)) return ring_t{};
    return fill_ring(sets_at(lds, wave), g, head, keys, wave_of_group(wave));
}

KG_DEV void walk(column_t &m, column_t &l, values_t &o, q_frag_t &q, args_t a, const segment_t &g,
                 const role_t &role, head_t &head, const keys_t &keys, const u8 *queries, u8 *lds,
                 int wave, const ring_t &ring) {
    if constexpr (KEY_QUEUE != 0) {
        attend_queued(m, l, o, q, g, role, head, keys, ring.page, queries, queue_at(lds, wave));
        return;
    }
    if constexpr (!BUFFERED) {
        attend(m, l, o, q, a, g, role, head, keys, queries);
        return;
    }
    int end = block_end_of(a, g, role);
    if constexpr (BRINGERS != 0) {
        await_queries(ring, g, wave);
        note_sets(ring, g, wave);
        if (is_empty(g)) queries_are_read(ring, wave);
    }
    if constexpr (SHARES_SETS) {
        if (has_few_rows(g)) {
            attend_few(m, l, o, q, a, g, head, keys, queries, ring, lds, wave, end);
            return;
        }
    }
    if constexpr (BUFFERED)
        attend_buffered(together_t{}, m, l, o, q, a, g, head, keys, queries, ring,
                        sets_at(lds, wave), wave_of_group(wave), end);
}

// Where what is known of the wave's segment waits.
KG_DEV int park_of(u8 *lds, int wave) { return BRINGERS ? park_of_wave(lds, wave) : wave; }

template <void (*SEGMENT)(args_t, segment_t &, cut_t, u8 *, int)>
KG_DEV void enter(args_t a, u8 *lds) {
    if constexpr (BRINGERS != 0)
        run_groups<SEGMENT>(a, lds);
    else
        run<SEGMENT>(a, lds);
}

} // namespace kg

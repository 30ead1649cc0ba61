#include "kg/prelude/prelude_scatter.h"
// All that a step of speculative decoding reads beside the activations, in one
// launch: lengths, prefix sums, page tables, cache locations, positions. Rules
// and arguments: <kgen/scatter_args.h>.
//
// Workgroup 0 has the prefix sums; the next ones have the new tokens; then
// TILE columns of a table's row each, delta=1: a whole row each. Nobody waits
// for another: who needs a sum takes it itself.
#include "kg/scatter/scatter_table.h"

namespace kg {

struct row_t {
    i64 committed, fresh; // tokens
};

KG_DEV row_t row_at(args_t a, int n) {
    row_t r = {length_of(a.lens, n), a.tokens};
    if constexpr (ACCEPT) r.committed = most(sum_of(r.committed, accepted_of(a, n)), 0);
    if constexpr (RAGGED) r.fresh = length_of(a.q_lens, n);
    return r;
}

// --- workgroup 0 -------------------------------------------------------------

KG_DEV void write_sums(args_t a, int live, i64 *lds) {
    i64 qo = 0, kv = 0;
    for (int first = 0; first < a.rows; first += THREADS) {
        int n = first + (int)thread_id();
        i64 fresh = RAGGED ? 0 : a.tokens, length = a.pad_len;
        if (n < live) {
            row_t r = row_at(a, n);
            fresh = r.fresh;
            length = r.committed + r.fresh;
        }
        if (n >= a.rows) fresh = length = 0;
        if (SEQ && n < a.rows) store_int<OUT_I64>(a.seq_lens, n, length);
        if constexpr (QO) {
            sums_t s = sum_group(fresh, lds);
            if (n < a.rows) store_int<OUT_I64>(a.qo_indptr, n, qo + s.before);
            qo += s.all;
        }
        if constexpr (KV) {
            sums_t s = sum_group(length, lds);
            if (n < a.rows) store_int<OUT_I64>(a.kv_indptr, n, kv + s.before);
            kv += s.all;
        }
    }
    if (thread_id() != 0) return;
    if constexpr (QO) store_int<OUT_I64>(a.qo_indptr, a.rows, qo);
    if constexpr (KV) store_int<OUT_I64>(a.kv_indptr, a.rows, kv);
}

// --- new tokens ----------------------------------------------------------------

KG_DEV void write_token(args_t a, i64 at, i64 slot, i64 position) {
    if constexpr (LOCS) store_int<LOC_I64>(a.locs, at, slot);
    if constexpr (LOCS && SWA) store_int<LOC_I64>(a.swa_locs, at, slot);
    if constexpr (POS) store_int<LOC_I64>(a.positions_out, at, position);
}

KG_DEV void write_padding(args_t a, i64 at) { write_token(a, at, LOCS ? a.fill : 0, 0); }

KG_DEV void take_token(args_t a, i64 at, int n, i64 position) {
    i64 slot = 0;
    if constexpr (LOCS) slot = slot_at<SLOT_I64>(a, request_row(a, n, 0), position);
    write_token(a, at, slot, position);
    if constexpr (LOCS && SWA) store_int<LOC_I64>(a.swa_locs, at, mapped(a, slot));
}

KG_DEV void write_uniform(args_t a, int group, int live) {
    i64 at = (i64)group * THREADS + thread_id();
    if (at >= a.capacity) return;
    i64 n = a.tokens > 0 ? (i64)((u64)at / (u32)a.tokens) : a.rows;
    if (n < live)
        take_token(a, at, (int)n, row_at(a, (int)n).committed + at - n * a.tokens);
    else
        write_padding(a, at);
}

// Row `n`, or behind the last row all that is left.
KG_DEV void write_ragged(args_t a, int n, int live, i64 *lds) {
    i64 start = sum_rows(smaller(n, live), lds, [&](int m) { return length_of(a.q_lens, m); });
    if (n >= live) {
        if (n != a.rows) return;
        for (i64 at = start + thread_id(); at < a.capacity; at += THREADS) write_padding(a, at);
        return;
    }
    row_t r = row_at(a, n);
    if (start + r.fresh > a.capacity && thread_id() == 0) flag(a, BAD_CAPACITY);
    for (i64 t = thread_id(); t < r.fresh && start + t < a.capacity; t += THREADS)
        take_token(a, start + t, n, r.committed + t);
}

// --- tables --------------------------------------------------------------------

// A row's numbers are loaded together, whether it is live or not.
KG_DEV blocks_t find_row(args_t a, int n, const row_t &r, bool live) {
    blocks_t b = empty_row(a, n);
    set_tokens(a, b, request_row(a, n, 0, live), live ? r.committed + r.fresh : 0);
    return b;
}

KG_DEV void write_tile(args_t a, int group, int live) {
    int n = group / a.tiles, tile = group % a.tiles;
    blocks_t b = find_row(a, n, row_at(a, n), n < live);
    if (tile == 0 && thread_id() == 0) check_width(a, b);
    write_cells(a, b, (i64)tile * TILE + (i64)thread_id() * CELLS, 0, row_end(a, b));
}

// What changed since the launch that left `state`: blocks from the committed
// length of that time on, and those that have to be cleared.
KG_DEV void write_changes(args_t a, int n, int live) {
    i64 *state = a.state + 3 * (i64)n;
    i64 old_id = load(state), old_length = load(state + 1), old_blocks = load(state + 2);
    i64 id = load(a.ids + n), from = 0;
    row_t r = row_at(a, n);
    blocks_t b = find_row(a, n, r, n < live);
    i64 committed = n < live ? r.committed : 0;
    if (n >= live) id = -1;
    if (id >= 0 && id == old_id && old_length >= 0 && committed >= old_length)
        from = page_of(old_length);
    i64 cleared = old_blocks < 0 ? widest(a) : old_blocks;
    i64 end = least(TAIL == TAIL_KEEP ? b.blocks : most(b.blocks, cleared), widest(a));
    barrier();
    if (thread_id() == 0) {
        check_width(a, b);
        store(state, id);
        store(state + 1, committed);
        store(state + 2, b.blocks);
    }
    for (i64 j = from / CELLS * CELLS + (i64)thread_id() * CELLS; j < end; j += TILE)
        write_cells(a, b, j, from, end);
}

KG_DEV void run(args_t a, i64 *lds) {
    int group = (int)group_id() - 1, live = live_rows(a);
    if (group < 0) {
        write_sums(a, live, lds);
        return;
    }
    if (group < a.token_groups) {
        if constexpr (RAGGED)
            write_ragged(a, group, live, lds);
        else
            write_uniform(a, group, live);
        return;
    }
    if constexpr (PAGES && DELTA) write_changes(a, group - a.token_groups, live);
    if constexpr (PAGES && !DELTA) write_tile(a, group - a.token_groups, live);
}

} // namespace kg

KG_ENTRY(kg_scatter_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_scatter_args, args), (i64 *)lds);
}

// Slots of requests as flat indices and cache locations, and back.
#pragma once
#include "kg/scatter/scatter_num.h"

namespace kg {

// Slot of token t, where req_to_token may have pages instead of slots.
KG_DEV i64 entry_slot(args_t a, const source_t &s, i64 column, i64 start) {
    i64 entry = slot_at<SLOT_I64>(a, s, PAGE == 1 ? column - start : page_of(column));
    if (PAGE == 1 || entry < 0) return entry;
    return entry * PAGE + in_page(column);
}

// --- kv_indices --------------------------------------------------------------

// Whatever lengths and indptr say, a row ends where the output does.
KG_DEV void copy_row(args_t a, int n, int tile) {
    i64 start = STARTS ? length_of(a.starts, n) : 0, count = length_of(a.lens, n);
    i64 to = load_int<LEN_I64>(a.indptr, n);
    i64 room = to >= 0 ? most(a.flat - to, 0) : 0, end = least(count, room);
    source_t s = request_row(a, n, PAGE == 1 ? start : 0);
    if (count > room) flag(a, BAD_CAPACITY);
    for (i64 t = (i64)tile * THREADS + thread_id(); t < end; t += (i64)a.tiles * THREADS) {
        i64 slot = entry_slot(a, s, start + t, start);
        if constexpr (SWA) slot = mapped(a, slot);
        store_int<TABLE_I64>(a.indices, to + t, slot);
    }
}

KG_DEV void pad_indices(args_t a, int live) {
    i64 first = load_int<LEN_I64>(a.indptr, live);
    if (TAIL == TAIL_KEEP || first < 0) return;
    i64 end = least(first + a.padding, a.flat);
    for (i64 at = first + thread_id(); at < end; at += THREADS)
        store_int<TABLE_I64>(a.indices, at, TAIL == TAIL_VALUE ? a.fill : 0);
}

KG_DEV void run_kv_indices(args_t a) {
    int group = (int)group_id() - 1, live = live_rows(a);
    if (group < 0)
        pad_indices(a, live);
    else if (group / a.tiles < live)
        copy_row(a, group / a.tiles, group % a.tiles);
}

// --- draft_kv_indices ----------------------------------------------------------

// Where row z = n K + k of step i begins: `before` tokens are in the rows of
// earlier requests.
KG_DEV i64 draft_start(args_t a, i64 before, i64 length, int n, int k, i64 i) {
    return sum_of(sum_of(product_of(before, a.topk), (i64)n * a.topk * i),
                  product_of(k, sum_of(length, i)));
}

KG_DEV void write_draft_ends(args_t a, int live, i64 *lds) {
    i64 before = 0;
    for (int first = 0; first < a.rows; first += THREADS) {
        int n = first + (int)thread_id();
        bool mine = n < live;
        i64 length = mine ? length_of(a.lens, n) : 0;
        sums_t s = sum_group(length, lds);
        for (int z = 0; n < a.rows && z < a.topk * a.steps; z++) {
            int k = z % a.topk, i = z / a.topk + 1;
            i64 at = draft_start(a, before + s.before, length, mine ? n : live, mine ? k : 0, i);
            store_int<OUT_I64>(a.kv_indptr, (i - 1) * a.kv_indptr_step + (i64)n * a.topk + k, at);
        }
        before += s.all;
    }
    for (int i = 1 + (int)thread_id(); i <= a.steps; i += THREADS) {
        i64 all = draft_start(a, before, 0, live, 0, i);
        store_int<OUT_I64>(a.kv_indptr, (i - 1) * a.kv_indptr_step + (i64)a.rows * a.topk, all);
        if ((u64)all > (u64)a.flat) flag(a, BAD_CAPACITY);
    }
}

// Each slot of the prefix is read once and goes to all steps.
KG_DEV void copy_draft_row(args_t a, int n, int k, int tile, i64 before) {
    i64 length = length_of(a.lens, n);
    source_t s = request_row(a, n, 0);
    s.prefix = length;
    s.jump = draft_jump(a, length, k);
    i64 start = draft_start(a, before, length, n, k, 1);
    i64 room = start >= 0 ? a.flat - start : 0; // the first step's row is the first to end
    i64 end = least(sum_of(length, a.steps), room);
    for (i64 t = (i64)tile * THREADS + thread_id(); t < end; t += (i64)a.tiles * THREADS) {
        i64 slot = slot_at<SLOT_I64>(a, s, t);
        for (i64 i = most(t - length + 1, 1); i <= a.steps; i++) {
            i64 at = sum_of(draft_start(a, before, length, n, k, i), t);
            if ((u64)at < (u64)a.flat)
                store_int<TABLE_I64>(a.indices, (i - 1) * a.indices_step + at, slot);
        }
    }
}

KG_DEV void run_draft_kv(args_t a, i64 *lds) {
    int group = (int)group_id() - 1, live = live_rows(a);
    if (group < 0) {
        write_draft_ends(a, live, lds);
        return;
    }
    int tile = group % a.tiles, z = group / a.tiles, n = z / a.topk;
    if (n >= live) return;
    i64 before = sum_rows(n, lds, [&](int m) { return length_of(a.lens, m); });
    copy_draft_row(a, n, z % a.topk, tile, before);
}

// --- cache_locs, assign_locs -----------------------------------------------------

// The columns of row n, and where they are in locs.
struct span_t {
    i64 start, count, at;
};

KG_DEV i64 ragged_count(args_t a, int n) {
    return most(load_int<LEN_I64>(a.lens, n) - length_of(a.starts, n), 0);
}

KG_DEV span_t span_of(args_t a, int n, int live, i64 *lds) {
    if constexpr (FORM == FORM_RAGGED) {
        i64 at = sum_rows(smaller(n, live), lds, [&](int m) { return ragged_count(a, m); });
        if (n >= live) return span_t{0, 0, at};
        return span_t{length_of(a.starts, n), ragged_count(a, n), at};
    }
    if constexpr (FORM == FORM_UNIFORM)
        return span_t{n < live ? length_of(a.starts, n) : 0, a.tokens, (i64)n * a.tokens};
    if constexpr (FORM == FORM_DRAFT)
        return span_t{n < live ? length_of(a.lens, n) : 0, (i64)a.topk * a.steps,
                      (i64)n * a.topk * a.steps};
    return span_t{n < live ? length_of(a.lens, n) - 1 : 0, 1, n};
}

KG_DEV i64 location(args_t a, const source_t &s, const span_t &span, i64 t) {
    i64 column = span.start + t;
    if constexpr (FORM == FORM_DRAFT) {
        int k = (int)(t / a.steps);
        column = span.start + t % a.steps + draft_jump(a, span.start, k);
    }
    if (FORM == FORM_LAST && column < 0) return -1;
    return slot_at<SLOT_I64>(a, s, column);
}

KG_DEV void run_cache_locs(args_t a, i64 *lds) {
    int n = (int)group_id(), live = live_rows(a);
    if (FORM != FORM_RAGGED && n == a.rows) return;
    span_t span = span_of(a, n, live, lds);
    bool mine = n < live;
    if (FORM == FORM_RAGGED && n == a.rows)
        span.count = most(a.capacity - span.at, 0);
    else if (span.at + span.count > a.capacity && thread_id() == 0)
        flag(a, BAD_CAPACITY);
    source_t s = {nullptr, 0, NEVER, 0};
    if (mine) s = request_row(a, n, 0);
    for (i64 t = thread_id(); t < span.count && span.at + t < a.capacity; t += THREADS)
        store_int<LOC_I64>(a.locs, span.at + t, mine ? location(a, s, span, t) : a.fill);
}

KG_DEV void run_assign(args_t a, i64 *lds) {
    int n = (int)group_id(), live = live_rows(a);
    span_t span = span_of(a, n, live, lds);
    if (n >= live) return;
    source_t s = request_row(a, n, 0);
    for (i64 t = thread_id(); t < span.count; t += THREADS) {
        i64 column = span.start + t;
        if (column >= s.limit || span.at + t >= a.capacity)
            flag(a, BAD_COLUMN);
        else
            store_int<SLOT_I64>((void *)s.slots, column, load_int<LOC_I64>(a.locs, span.at + t));
    }
}

} // namespace kg

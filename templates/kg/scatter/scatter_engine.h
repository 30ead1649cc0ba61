// Lengths, slots and counts by the rules of the engines, a row each.
#pragma once
#include "kg/scatter/scatter_num.h"

namespace kg {

// --- draft_lens ------------------------------------------------------------------

KG_DEV void run_draft_lens(args_t a, int n) {
    int live = live_rows(a);
    i64 first = a.pad_len, base = -1;
    if (n < live) {
        i64 used = length_of(a.lens, n);
        first = base = used;
        if (!a.extends || n >= load(a.extends)) {
            i64 count = accepted_of(a, n), kept = within(count, 1, a.tokens);
            if (count != kept) flag(a, BAD_COUNT);
            first = SLICED         ? most(used - (a.tokens - kept), 1)
                    : a.tokens > 1 ? most(used, a.tokens)
                                   : used;
            base = length_of(a.valid, n) + kept;
        }
    }
    store_int<OUT_I64>(a.seq_lens, n, first);
    for (int i = 1; i <= a.steps; i++) {
        i64 length = base < 0 ? a.pad_len : least(base + i, a.max_len);
        i64 position = base < 0 ? 0 : least(base + i, a.max_len) - 1;
        store_int<OUT_I64>(a.step_lens, (i - 1) * a.step_lens_step + n, length);
        store_int<LOC_I64>(a.positions_out, (i - 1) * a.positions_out_step + n, position);
    }
}

// --- block tables ------------------------------------------------------------------

// Entry `column` of row n, -1 where there is none.
KG_DEV i64 block_at(args_t a, i64 n, i64 column) {
    if (column >= 0 && column < a.width)
        return load_int<SLOT_I64>(a.block_table, n * a.block_table_row + column);
    flag(a, BAD_COLUMN);
    return -1;
}

// The row of block_table that row n reads, -1: there is none.
KG_DEV i64 table_row(args_t a, i64 n) {
    if constexpr (!BY_REQUEST) return n;
    i64 r = load_int<REQ_I64>(a.requests, n);
    if (r >= 0 && r < a.request_rows) return r;
    flag(a, BAD_REQUEST);
    return -1;
}

KG_DEV i64 token_slot(args_t a, i64 n, i64 i) {
    i64 position = load_int<LOC_I64>(a.positions, i), each = (i64)PAGE * a.cp_size;
    if (a.rejected && load(a.rejected + i)) return -1;
    if (a.max_len > 0 && position >= a.max_len) return -1;
    if (position < 0) {
        flag(a, BAD_COLUMN);
        return -1;
    }
    i64 inside = position % each, chunk = a.cp_interleave;
    if (inside / chunk % a.cp_size != a.cp_rank) return -1;
    i64 block = block_at(a, n, position / each);
    if (block < 0) return -1;
    return block * PAGE + inside / (a.cp_size * chunk) * chunk + inside % chunk;
}

// Row n has its tokens, the last workgroup all that are no row's.
KG_DEV void run_slot_mapping(args_t a) {
    int n = (int)group_id(), live = live_rows(a);
    i64 first = load_int<LEN_I64>(a.indptr, smaller(n, live)), row = -1;
    if (n >= live && n != a.rows) return;
    if (n < live) row = table_row(a, n);
    i64 end = n < live ? load_int<LEN_I64>(a.indptr, n + 1) : a.capacity;
    if (end > a.capacity || first < 0) flag(a, BAD_CAPACITY);
    for (i64 i = most(first, 0) + thread_id(); i < least(end, a.capacity); i += THREADS)
        store_int<LOC_I64>(a.locs, i, row >= 0 ? token_slot(a, row, i) : -1);
}

KG_DEV void run_eagle_step(args_t a, int n) {
    i64 position = 0, slot = -1, length = 0;
    if (n < live_rows(a)) {
        i64 next = load_int<LOC_I64>(a.positions, n) + 1;
        bool exceeds = next >= a.max_len;
        position = exceeds ? 0 : most(next, 0);
        length = exceeds ? 1 : least(length_of(a.lens, n) + 1, a.max_len);
        i64 block = exceeds ? -1 : block_at(a, n, least(page_of(position), a.width - 1));
        if (block >= 0) slot = block * PAGE + in_page(position);
    }
    store_int<LOC_I64>(a.positions_out, n, position);
    store_int<LOC_I64>(a.locs, n, slot);
    store_int<OUT_I64>(a.seq_lens, n, length);
}

// --- after verify --------------------------------------------------------------------

KG_DEV void run_padded_inputs(args_t a, int n) {
    i64 rejected = 0, sample = 0;
    if (n < live_rows(a)) {
        i64 drafts = load_int<LEN_I64>(a.draft_ends, n);
        if (n > 0) drafts -= load_int<LEN_I64>(a.draft_ends, n - 1);
        i64 wanted = drafts > 0 ? difference(drafts + 1, accepted_of(a, n)) : 0;
        rejected = within(wanted, 0, most(drafts, 0));
        if (wanted != rejected) flag(a, BAD_COUNT);
        sample = load_int<LEN_I64>(a.indptr, n + 1) - 1 - rejected;
    }
    store_int<OUT_I64>(a.counts, n, rejected);
    store_int<OUT_I64>(a.sample_index, n, sample);
}

KG_DEV void run_next_token(args_t a, int n) {
    i64 next = 0, count = 0;
    if (n < live_rows(a)) {
        next = load_int<TOKEN_I64>(a.backup, n);
        bool dropped = a.discarded && load(a.discarded + n);
        for (int t = 0; t < a.tokens && !dropped; t++) {
            i64 token = load_int<TOKEN_I64>(a.tokens_in, n * a.tokens_in_row + t);
            if (token < 0 || token >= a.vocab) continue;
            next = token;
            count++;
        }
    }
    store_int<TOKEN_I64>(a.next, n, next);
    store_int<OUT_I64>(a.counts, n, count);
}

KG_DEV void run_bonus_tokens(args_t a, int n) {
    i64 next = 0;
    if (n < live_rows(a)) {
        i64 count = accepted_of(a, n);
        bool good = count >= 1 && count <= a.tokens;
        if (!good) flag(a, BAD_COUNT);
        next = good ? load_int<TOKEN_I64>(a.tokens_in, n * a.tokens_in_row + count - 1) : -1;
    }
    store_int<TOKEN_I64>(a.next, n, next);
}

// One workgroup: entries in order, THREADS at a time.
KG_DEV void run_accept_locs(args_t a, i64 *lds) {
    i64 live = (i64)live_rows(a) * a.accept_width, kept = 0;
    for (i64 first = 0; first < live; first += THREADS) {
        i64 e = first + thread_id(), index = -1;
        if (e < live)
            index = load_int<OUT_I64>(a.accept_index,
                                      e / a.accept_width * a.accept_index_row + e % a.accept_width);
        sums_t s = sum_group(index >= 0, lds);
        if (index >= a.flat) flag(a, BAD_COLUMN);
        if (index >= 0)
            store_int<LOC_I64>(a.locs, kept + s.before,
                               index < a.flat ? load_int<LOC_I64>(a.source_locs, index) : -1);
        kept += s.all;
    }
    for (i64 at = kept + thread_id(); at < a.capacity; at += THREADS)
        store_int<LOC_I64>(a.locs, at, a.fill);
    if (thread_id() == 0) store_int<OUT_I64>(a.counts, 0, kept);
}

// What is kept and freed of row n's D slots.
struct keep_t {
    i64 moved, freed;
};

KG_DEV keep_t kept_of(args_t a, int n) {
    i64 length = length_of(a.lens, n), count = accepted_of(a, n);
    i64 accepted = within(count, 0, a.tokens - 1);
    if (count != accepted) flag(a, BAD_COUNT);
    i64 end = divide_up(length + accepted + 1, PAGE) * PAGE;
    i64 keep = least(end - length, a.tokens);
    return keep_t{accepted + 1, a.tokens - keep};
}

KG_DEV void run_keep_locs(args_t a, i64 *lds) {
    int live = live_rows(a);
    i64 moved = 0, freed = 0, all = (i64)a.rows * a.tokens;
    for (int first = 0; first < live; first += THREADS) {
        int n = first + (int)thread_id();
        keep_t k = n < live ? kept_of(a, n) : keep_t{0, 0};
        sums_t m = sum_group(k.moved, lds), f = sum_group(k.freed, lds);
        for (i64 t = 0; t < k.moved; t++)
            store_int<LOC_I64>(a.locs, moved + m.before + t,
                               load_int<LOC_I64>(a.source_locs, (i64)n * a.tokens + t));
        for (i64 t = 0; t < k.freed; t++)
            store_int<LOC_I64>(
                a.free_locs, freed + f.before + t,
                load_int<LOC_I64>(a.source_locs, (i64)(n + 1) * a.tokens - k.freed + t));
        moved += m.all;
        freed += f.all;
    }
    for (i64 at = moved + thread_id(); at < all; at += THREADS)
        store_int<LOC_I64>(a.locs, at, a.fill);
    for (i64 at = freed + thread_id(); at < all; at += THREADS)
        store_int<LOC_I64>(a.free_locs, at, a.fill);
    if (thread_id() != 0) return;
    store_int<OUT_I64>(a.counts, 0, moved);
    store_int<OUT_I64>(a.counts, 1, freed);
}

KG_DEV void run_evict_mask(args_t a, int n) {
    bool live = n < live_rows(a);
    const u8 *in = a.mask + (i64)n * a.mask_row;
    u8 *out = a.mask_out + (i64)n * a.mask_out_row;
    i64 kept = 0, length = live ? length_of(a.lens, n) : 0;
    for (int t = 0; live && t < a.tokens; t++) kept += load(in + t) == 0;
    i64 first = length + kept > 0 ? page_of(length + kept - 1) * PAGE - length : -length - PAGE;
    for (int t = 0; t < a.tokens; t++) {
        bool shared = t >= first && t < first + PAGE;
        store(out + t, (u8)(live && !shared && load(in + t)));
    }
}

// --- kv_splits -----------------------------------------------------------------------

// log2(x / 64) in units of 2^-24, rounded down, for 1 <= x; exact for powers of
// two, and the same on every device.
KG_DEV i64 log2_of_64ths(i64 x) {
    int whole = (int)last_bit((u64)x);
    u64 m = whole > 31 ? (u64)x >> (whole - 31) : (u64)x << (31 - whole); // 2^31 .. 2^32 - 1
    i64 bits = whole - 6;
    for (int i = 0; i < 24; i++) {
        m = m * m >> 31;
        u64 above = m >> 32;
        m >>= above;
        bits = bits * 2 + (i64)above;
    }
    return bits;
}

// Longest (sign 1) or shortest (sign -1) of the lengths.
KG_DEV i64 extreme_length(args_t a, int live, i64 sign, i64 *lds) {
    i64 best = -NEVER;
    for (int n = (int)thread_id(); n < live; n += THREADS)
        best = most(best, sign * length_of(a.lens, n));
    KG_UNROLL for (u32 step = 1; step < (u32)WAVE; step *= 2) best =
        most(best, shuffle_i64(best, lane_id() ^ step));
    lds[wave_id()] = best;
    barrier();
    KG_UNROLL for (int w = 0; w < THREADS / WAVE; w++) best = most(best, lds[w]);
    barrier();
    return sign * best;
}

KG_DEV void run_kv_splits(args_t a, i64 *lds) {
    constexpr i64 ONE = 1 << 24;
    int live = live_rows(a), group = larger(a.heads / a.kv_heads, 1);
    i64 longest = live ? most(extreme_length(a, live, 1, lds), 1) : 1;
    i64 shortest = live ? most(extreme_length(a, live, -1, lds), 1) : 1;
    if (longest * 8 < shortest * 10) shortest = longest;
    i64 chunk = divide_up(longest, least(divide_up(longest, shortest), a.max_splits));
    i64 wanted = a.compute_units * most(log2_of_64ths(longest), ONE) / ONE;
    i64 grid =
        (i64)live * a.groups * (group == 1 ? a.heads : divide_up(a.heads, smaller(16, group)));
    i64 other = divide_up(longest, least(divide_up(wanted, most(grid, 1)), a.max_splits));
    for (int at = (int)thread_id(); at < a.rows * a.groups; at += THREADS) {
        int n = at / a.groups;
        i64 length = n < live ? length_of(a.lens, n) : 0;
        store_int<OUT_I64>(a.counts, at, most(divide_up(length, chunk), divide_up(length, other)));
    }
}

} // namespace kg

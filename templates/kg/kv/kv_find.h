// Which token a row of the output is, and where it is cached.
#pragma once
#include "kg/kv/kv_num.h"

namespace kg {

typedef const KG_CONSTANT kg_kv_gather_args &args_t;
typedef const KG_CONSTANT kg_kv_side &side_t;

// Numbers that the device holds may be anything: what overflows wraps, and is
// compared with a tensor's size before it is used.
KG_DEV int sum_of(int a, int b) { return (int)((u32)a + (u32)b); }
KG_DEV int difference(int a, int b) { return (int)((u32)a - (u32)b); }

// The rows of a sequence: first .. end - 1; row r is token r + shift. Rows before
// the first sequence are those of sequence -1.
struct sequence_t {
    int n, first, end, shift, cached;
};

KG_DEV int shift_of(const sequence_t &s, int start) {
    return FROM == FROM_END ? difference(s.cached, s.end) : difference(start, s.first);
}

// 64-bit numbers that 32 bits do not hold are the nearest that they do, which is
// beyond all rows and tokens too.
template <int I64> KG_DEV int load_number(const void *base, i64 i) {
    if constexpr (!I64) return load((const i32 *)base + i);
    i64 x = load((const i64 *)base + i);
    return x > 0x7fffffff ? 0x7fffffff : x < -0x7fffffff ? -0x7fffffff : (int)x;
}
KG_DEV int begin_of(args_t a, int n) { return load_number<CU_I64>(a.cu_seqlens, n); }
KG_DEV int cached_of(args_t a, int n) { return load_number<LEN_I64>(a.seq_lens, n); }
KG_DEV int start_of(args_t a, int n) {
    return FROM != FROM_END && a.starts ? load_number<LEN_I64>(a.starts, n) : 0;
}

KG_DEV bool exists(args_t a, const sequence_t &s) { return (u32)s.n < (u32)a.seqs; }

KG_DEV sequence_t sequence_at(args_t a, int n) {
    if (n >= a.seqs) return sequence_t{n, begin_of(a, a.seqs), a.rows, 0, 0};
    sequence_t s = {n, begin_of(a, n), begin_of(a, n + 1), 0, cached_of(a, n)};
    s.shift = shift_of(s, start_of(a, n));
    return s;
}

// Of count sequences from `low` on, low among them, the last that begins at or
// before `row`; each lane looks at another one. What is known of it is loaded
// beside its begin: one latency instead of two.
KG_DEV sequence_t pick_sequence(args_t a, int low, int count, int row) {
    int lane = (int)lane_id(), n = low + lane;
    sequence_t s = {n, 0x7fffffff, a.rows, 0, 0};
    int start = 0;
    if (lane < count && n <= a.seqs) s.first = begin_of(a, n);
    if (lane < count && n < a.seqs) {
        s.end = begin_of(a, n + 1);
        s.cached = cached_of(a, n);
        start = start_of(a, n);
    }
    u64 after = ~ballot(s.first <= row);
    u32 from = WAVE == 64 && after == 0 ? 63u : (u32)first_bit(after) - 1u;
    if (after & 1) return sequence_t{-1, 0, begin_of(a, 0), 0, 0};
    s.n = low + uniform((i32)from);
    s.first = uniform((i32)shuffle((u32)s.first, from));
    s.end = uniform((i32)shuffle((u32)s.end, from));
    s.cached = uniform((i32)shuffle((u32)s.cached, from));
    start = uniform((i32)shuffle((u32)start, from));
    s.shift = exists(a, s) ? shift_of(s, start) : 0;
    return s;
}

// The last sequence that begins at or before `row` (the one after all, where the
// row is nobody's), the same for all lanes.
KG_DEV sequence_t find_sequence(args_t a, int row) {
    int low = 0, count = a.seqs + 1;
    KG_LOOP while (count > WAVE) {
        int step = ceil_div(count, WAVE), at = low + ((int)lane_id() + 1) * step;
        bool before = at <= a.seqs && begin_of(a, at) <= row;
        u64 after = ~ballot(before);
        int past = WAVE == 64 && after == 0 ? 64 : (int)first_bit(after);
        low += past * step;
        count = step;
    }
    return pick_sequence(a, uniform(low), count, row);
}

// The same for a row that is not before the sequence.
KG_DEV void walk_to(sequence_t &s, args_t a, int row) {
    while (s.n < a.seqs && row >= s.end) s = sequence_at(a, s.n + 1);
}

struct place_t {
    i32 page; // -1: the row is zeros
    int slot;
};

KG_DEV place_t place_of(args_t a, const sequence_t &s, int row) {
    int token = sum_of(row, s.shift), index = token, slot = 0;
    if (!exists(a, s) || token < 0 || token >= s.cached) return place_t{-1, 0};
    if constexpr (PAGE == PAGE_X16) {
        index = (int)divide((u32)token, a.by_page);
        slot = token - index * a.page;
    } else if constexpr (PAGE != 1) {
        index = (int)((u32)token / PAGE);
        slot = (int)((u32)token % PAGE);
    }
    if (index >= a.columns) return place_t{-1, 0};
    i64 at = s.n * a.table_row + index, page;
    if constexpr (TABLE_I64 != 0)
        page = load((const i64 *)a.table + at);
    else
        page = load((const i32 *)a.table + at);
    return place_t{page < 0 || page >= a.pages ? -1 : (i32)page, slot};
}

KG_DEV float descale_of(side_t side, int seq, place_t at, int head) {
    if constexpr (SCALE == DESCALE_NONE) return 1;
    i64 line = SCALE == DESCALE_TOKEN ? at.page : seq;
    return load(side.scale +
                (line * side.scale_page + at.slot * side.scale_slot + head * side.scale_head));
}

} // namespace kg

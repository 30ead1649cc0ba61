// Integers of either width, the slots of a row, sums over the workgroup.
#pragma once
#include "kg/core/machine.h"
#include "kg/scatter/scatter_packed.h"
#include "kg/scatter/scatter_types.h"

namespace kg {

typedef const KG_CONSTANT kg_scatter_args &args_t;

template <int WIDE> KG_DEV i64 load_int(const void *p, i64 i) {
    if constexpr (WIDE)
        return load((const i64 *)p + i);
    else
        return load((const i32 *)p + i);
}
template <int WIDE> KG_DEV void store_int(void *p, i64 i, i64 x) {
    if constexpr (WIDE)
        store((i64 *)p + i, x);
    else
        store((i32 *)p + i, (i32)x);
}

KG_DEV i64 least(i64 a, i64 b) { return a < b ? a : b; }
KG_DEV i64 most(i64 a, i64 b) { return a > b ? a : b; }
KG_DEV i64 within(i64 x, i64 low, i64 high) { return most(low, least(x, high)); }
// Lengths that the device holds may be anything: what overflows wraps, and is
// compared with a tensor's size before it is used.
KG_DEV i64 sum_of(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
KG_DEV i64 difference(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
KG_DEV i64 product_of(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
KG_DEV i64 divide_up(i64 n, i64 d) { return (n + d - 1) / d; } // n >= 0

KG_DEV void flag(args_t a, int bits) {
    if (a.error) atomic_or(a.error, bits);
}

KG_DEV int live_rows(args_t a) {
    return a.live ? smaller(larger(load(a.live), 0), a.rows) : a.rows;
}

KG_DEV i64 length_of(const void *p, i64 n) { return most(load_int<LEN_I64>(p, n), 0); }

KG_DEV i64 accepted_of(args_t a, i64 n) { return load_int<ACCEPT_I64>(a.accepted, n); }

// n / P and n mod P for n >= 0 by shifts, where P is a power of two.
KG_DEV i64 page_of(i64 slot) { return (i64)((u64)slot / PAGE); }
KG_DEV i64 in_page(i64 slot) { return (i64)((u64)slot % PAGE); }

// --- rows of slots ---------------------------------------------------------

// Token t of a row is entry t of `slots`, from `prefix` on entry t + jump.
struct source_t {
    const void *slots;
    i64 limit; // entries that can be read: 0 .. limit - 1
    i64 prefix, jump;
};

KG_DEV i64 entry_of(const source_t &s, i64 t) { return t < s.prefix ? t : t + s.jump; }

template <int WIDE> KG_DEV i64 slot_at(args_t a, const source_t &s, i64 t) {
    i64 entry = entry_of(s, t);
    if (entry >= 0 && entry < s.limit) return load_int<WIDE>(s.slots, entry);
    flag(a, BAD_COLUMN);
    return -1;
}

template <int WIDE> KG_DEV const void *element(const void *p, i64 i) {
    return (const u8 *)p + i * (WIDE ? 8 : 4);
}

constexpr i64 NEVER = 0x7fffffffffffffffll;

// Request n's tokens from column `start` on. What a padded row has in requests is
// loaded like that of any other, beside its other numbers, but says nothing.
KG_DEV source_t request_row(args_t a, i64 n, i64 start, bool live = true) {
    source_t s = {a.req_to_token, 0, NEVER, 0};
    i64 r = load_int<REQ_I64>(a.requests, n);
    if (r < 0 || r >= a.request_rows) {
        if (live) flag(a, BAD_REQUEST);
        return s;
    }
    s.slots = element<SLOT_I64>(a.req_to_token, r * a.req_to_token_row + most(start, 0));
    s.limit = a.row_columns - most(start, 0);
    return s;
}

// Slot `slot` in the window pool, or -1.
KG_DEV i64 mapped(args_t a, i64 slot) {
    if (slot < 0) return -1;
    if (slot >= a.map_size) {
        flag(a, BAD_MAPPING);
        return -1;
    }
    return most(load_int<MAP_I64>(a.mapping, slot), -1);
}

// Where the drafts of branch k are, less the prefix: they are tokens from
// `length` on.
KG_DEV i64 draft_jump(args_t a, i64 length, int k) {
    if (PAGE == 1 || a.topk == 1) return (i64)k * a.steps;
    i64 last = in_page(length);
    return k * divide_up(last + a.steps, PAGE) * PAGE;
}

// --- sums ------------------------------------------------------------------

KG_DEV i64 shuffle_i64(i64 x, u32 from) {
    u32 low = shuffle((u32)x, from), high = shuffle((u32)((u64)x >> 32), from);
    return (i64)((u64)high << 32 | low);
}

struct sums_t {
    i64 before, all; // of the lanes before this one; of the workgroup
};

// All lanes of the workgroup call it; lds has room for THREADS / WAVE numbers
// and may be used again after the next barrier.
KG_DEV sums_t sum_group(i64 x, i64 *lds) {
    constexpr int COUNT = THREADS / WAVE;
    i64 sum = x;
    u32 lane = lane_id(), wave = wave_id(); // asked of all lanes at once
    KG_UNROLL for (u32 step = 1; step < (u32)WAVE; step *= 2) {
        i64 other = shuffle_i64(sum, lane >= step ? lane - step : lane);
        sum = sum_of(sum, lane >= step ? other : 0);
    }
    if (lane == (u32)WAVE - 1) lds[wave] = sum;
    barrier();
    sums_t out = {difference(sum, x), 0};
    KG_UNROLL for (int w = 0; w < COUNT; w++) {
        i64 part = lds[w];
        out.all = sum_of(out.all, part);
        if (w < (int)wave) out.before = sum_of(out.before, part);
    }
    barrier();
    return out;
}

// Sum of value(n) over the rows n < end.
template <class F> KG_DEV i64 sum_rows(int end, i64 *lds, F value) {
    i64 sum = 0;
    for (int n = (int)thread_id(); n < end; n += THREADS) sum = sum_of(sum, value(n));
    return sum_group(sum, lds).all;
}

} // namespace kg

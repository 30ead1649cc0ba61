// A token at random, by all lanes of a workgroup: from probabilities and a uniform,
// or as the largest of probabilities over noise.
#pragma once
#include "kg/scatter/scatter_num.h"

namespace kg {

struct draw_t {
    i64 blocks[THREADS]; // sums of parts of the probabilities
    i64 sums[THREADS / WAVE];
    i64 found_rest;
    i32 found;
};

// Units of 2^-36, so that sums do not depend on their order.
KG_DEV i64 units_of(float p) {
    return p > 0.0f ? (i64)((p < 1.0f ? p : 1.0f) * 68719476736.0f) : 0;
}

KG_DEV i64 sum_wave(i64 x) {
    KG_UNROLL for (u32 step = 1; step < (u32)WAVE; step *= 2) x += shuffle_i64(x, lane_id() ^ step);
    return x;
}

// The lane whose part of the running sum holds `rest` says so.
KG_DEV void claim(draw_t &d, const sums_t &s, i64 mine, i64 rest, i64 index) {
    if (s.before > rest || s.before + mine <= rest) return;
    d.found = (i32)index;
    d.found_rest = rest - s.before;
}

// The first token at which the running sum of units(token) exceeds coin times the
// sum of all; -1: no token has a probability. All lanes get it.
template <class F> KG_DEV i32 draw_token(draw_t &d, int vocab, float coin, F units) {
    i64 each = divide_up(vocab, THREADS);
    for (i64 b = wave_id(); b < THREADS; b += THREADS / WAVE) {
        i64 sum = 0, end = least((b + 1) * each, vocab);
        for (i64 v = b * each + lane_id(); v < end; v += WAVE) sum += units(v);
        sum = sum_wave(sum);
        if (lane_id() == 0) d.blocks[b] = sum;
    }
    if (thread_id() == 0) d.found = -1;
    barrier();
    i64 mine = d.blocks[thread_id()];
    sums_t s = sum_group(mine, d.sums);
    i64 parts = within((i64)(coin * 16777216.0f), 0, 16777215);
    claim(d, s, mine, (i64)((u64)s.all * (u64)parts >> 24), thread_id());
    barrier();
    i64 block = d.found, rest = d.found_rest;
    barrier();
    if (block < 0) return -1;
    for (i64 v = block * each; v < (block + 1) * each; v += THREADS) {
        i64 at = v + thread_id();
        i64 x = at < least((block + 1) * each, vocab) ? units(at) : 0;
        sums_t part = sum_group(x, d.sums);
        if (rest >= 0) claim(d, part, x, rest, at);
        rest = rest < part.all ? -1 : rest - part.all;
    }
    barrier();
    return d.found;
}

// The first token with the largest score(token), which is not negative; those that
// are NaN do not count, and -1 is where all are. All lanes get it.
template <class F> KG_DEV i32 largest_token(draw_t &d, int vocab, F score) {
    i64 best = -1; // a score's bits order like it; below them, the first token is the largest
    for (i64 v = thread_id(); v < vocab; v += THREADS) {
        float x = score(v);
        if (x >= 0.0f) best = most(best, (i64)bits_of(x) << 32 | (0x7fffffff - v));
    }
    KG_UNROLL for (u32 step = 1; step < (u32)WAVE; step *= 2) best =
        most(best, shuffle_i64(best, lane_id() ^ step));
    u32 wave = wave_id(); // asked of all lanes at once
    if (lane_id() == 0) d.sums[wave] = best;
    barrier();
    KG_UNROLL for (int w = 0; w < THREADS / WAVE; w++) best = most(best, d.sums[w]);
    return best < 0 ? -1 : (i32)(0x7fffffff - (best & 0x7fffffff));
}

} // namespace kg

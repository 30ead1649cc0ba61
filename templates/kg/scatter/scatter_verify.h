// tree_verify: one workgroup walks one tree, from LDS.
#pragma once
#include "kg/scatter/scatter_tree.h"

namespace kg {

struct walk_t {
    i64 token[TREE_MAX], target[TREE_MAX], predict[TREE_MAX];
    i64 tried[TREE_MAX]; // tokens of the last node's children that were refused
    i64 blocks[THREADS]; // sums of parts of the last node's probs
    i64 sums[THREADS / WAVE];
    i32 next[TREE_MAX], sibling[TREE_MAX], path[TREE_MAX];
    i32 accepted, tried_count, found;
    i64 found_rest;
};

static_assert(OP != OP_TREE_VERIFY || sizeof(walk_t) <= LDS_USED, "LDS");

// A link of the row: -1, or a node behind the root.
KG_DEV i32 read_link(args_t a, const void *links, i64 row, int n, int j) {
    i64 to = link_at(links, row, n, j);
    if (to >= -1 && to != 0 && to < a.tokens) return (i32)to;
    flag(a, BAD_TREE);
    return -1;
}

KG_DEV void load_walk(args_t a, walk_t &w, int n) {
    int j = (int)thread_id();
    if (j >= a.tokens) return;
    w.token[j] = load_int<TOKEN_I64>(a.tokens_in, n * a.tokens_in_row + j);
    if constexpr (!SAMPLING)
        w.target[j] = load_int<TOKEN_I64>(a.targets_in, n * a.targets_in_row + j);
    w.predict[j] = -1;
    w.next[j] = a.next_token       ? read_link(a, a.next_token, a.next_token_row, n, j)
                : j + 1 < a.tokens ? j + 1
                                   : -1;
    w.sibling[j] = a.next_sibling ? read_link(a, a.next_sibling, a.next_sibling_row, n, j) : -1;
}

KG_DEV const float *probs_of(args_t a, int n, int j) {
    return a.probs + n * a.probs_row + j * a.probs_step;
}

// Is child c of `last` accepted? `sum`: the probabilities of the children tried.
KG_DEV bool accepts(args_t a, walk_t &w, int n, int last, int c, float &sum) {
    if constexpr (!SAMPLING) return w.token[c] == w.target[last];
    i64 token = w.token[c];
    bool known = token >= 0 && token < a.vocab;
    float p = known ? load(probs_of(a, n, last) + token) : 0.0f;
    if (!known) flag(a, BAD_TREE);
    sum += p;
    float limit = load(a.coins + n * a.coins_row + last) * a.threshold_acc;
    if (limit <= sum || p >= a.threshold_single) return true;
    w.tried[w.tried_count++] = token;
    return false;
}

// One lane: the path of accepted nodes. Links that go in a circle end it.
KG_DEV void walk(args_t a, walk_t &w, int n) {
    int last = 0, visits = 0;
    w.accepted = w.tried_count = 0;
    w.path[0] = 0;
    while (w.accepted + 1 < a.accept_width) {
        float sum = 0;
        int c = w.next[last];
        while (c >= 0 && visits < a.tokens && !accepts(a, w, n, last, c, sum)) {
            c = w.sibling[c];
            visits++;
        }
        if (c < 0) break;
        if (visits++ >= a.tokens) {
            flag(a, BAD_TREE);
            break;
        }
        w.predict[last] = w.token[c];
        w.tried_count = 0;
        last = c;
        w.path[++w.accepted] = c;
    }
    if constexpr (!SAMPLING) w.predict[last] = w.target[last];
}

// --- the last token, drawn -----------------------------------------------------------

// Units of 2^-36, so that sums do not depend on their order.
KG_DEV i64 units_of(const walk_t &w, const float *probs, i64 v) {
    for (int i = 0; i < w.tried_count; i++)
        if (w.tried[i] == v) return 0;
    float p = load(probs + v);
    return p > 0.0f ? (i64)((p < 1.0f ? p : 1.0f) * 68719476736.0f) : 0;
}

KG_DEV i64 sum_wave(i64 x) {
    KG_UNROLL for (u32 step = 1; step < (u32)WAVE; step *= 2) x += shuffle_i64(x, lane_id() ^ step);
    return x;
}

// The lane whose part of the running sum holds `rest` says so.
KG_DEV void claim(walk_t &w, const sums_t &s, i64 mine, i64 rest, i64 index) {
    if (s.before > rest || s.before + mine <= rest) return;
    w.found = (i32)index;
    w.found_rest = rest - s.before;
}

KG_DEV void draw(args_t a, walk_t &w, int n) {
    int last = w.path[w.accepted];
    const float *probs = probs_of(a, n, last);
    i64 each = divide_up(a.vocab, THREADS);
    for (i64 b = wave_id(); b < THREADS; b += THREADS / WAVE) {
        i64 sum = 0, end = least((b + 1) * each, a.vocab);
        for (i64 v = b * each + lane_id(); v < end; v += WAVE) sum += units_of(w, probs, v);
        sum = sum_wave(sum);
        if (lane_id() == 0) w.blocks[b] = sum;
    }
    if (thread_id() == 0) w.found = -1;
    barrier();
    i64 mine = w.blocks[thread_id()];
    sums_t s = sum_group(mine, w.sums);
    i64 coin = (i64)(load(a.final_coins + n) * 16777216.0f);
    claim(w, s, mine, (i64)((u64)s.all * (u64)within(coin, 0, 16777215) >> 24), thread_id());
    barrier();
    i64 block = w.found, rest = w.found_rest;
    barrier();
    if (block < 0) return; // no token has a probability
    for (i64 v = block * each; v < (block + 1) * each; v += THREADS) {
        i64 at = v + thread_id();
        i64 x = at < least((block + 1) * each, a.vocab) ? units_of(w, probs, at) : 0;
        sums_t part = sum_group(x, w.sums);
        if (rest >= 0) claim(w, part, x, rest, at);
        rest = rest < part.all ? -1 : rest - part.all;
    }
    barrier();
    if (thread_id() == 0) w.predict[last] = w.found;
}

KG_DEV void write_walk(args_t a, const walk_t &w, int n, bool live) {
    int accepted = live ? w.accepted : -1;
    for (int j = (int)thread_id(); j < a.tokens; j += THREADS)
        store_int<OUT_I64>(a.predicts, n * a.predicts_row + j, live ? w.predict[j] : -1);
    for (int i = (int)thread_id(); i < a.accept_width; i += THREADS)
        store_int<OUT_I64>(a.accept_index, n * a.accept_index_row + i,
                           i <= accepted ? (i64)n * a.tokens + w.path[i] : -1);
    if (thread_id() == 0) store_int<OUT_I64>(a.accept_count, n, larger(accepted, 0));
}

KG_DEV void run_verify(args_t a, u8 *lds) {
    int n = (int)group_id();
    bool live = n < live_rows(a);
    walk_t &w = *(walk_t *)lds;
    if (live) load_walk(a, w, n);
    barrier();
    if (live && thread_id() == 0) walk(a, w, n);
    barrier();
    if constexpr (SAMPLING)
        if (live) draw(a, w, n);
    barrier();
    write_walk(a, w, n, live);
}

} // namespace kg

// tree_verify: one workgroup walks one tree, from LDS.
#pragma once
#include "kg/scatter/scatter_draw.h"
#include "kg/scatter/scatter_tree.h"

namespace kg {

struct walk_t {
    i64 token[TREE_MAX], target[TREE_MAX], predict[TREE_MAX];
    i64 tried[TREE_MAX]; // tokens of the last node's children that were refused
    i32 next[TREE_MAX], sibling[TREE_MAX], path[TREE_MAX];
    i32 accepted, tried_count;
    draw_t draw; // of the last node's probs
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

KG_DEV bool was_tried(const walk_t &w, i64 token) {
    for (int i = 0; i < w.tried_count; i++)
        if (w.tried[i] == token) return true;
    return false;
}

KG_DEV void draw(args_t a, walk_t &w, int n) {
    int last = w.path[w.accepted];
    const float *probs = probs_of(a, n, last);
    i32 token = draw_token(w.draw, a.vocab, load(a.final_coins + n),
                           [&](i64 v) { return was_tried(w, v) ? 0 : units_of(load(probs + v)); });
    if (thread_id() == 0 && token >= 0) w.predict[last] = token;
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

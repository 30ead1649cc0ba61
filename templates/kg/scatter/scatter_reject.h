// reject: chains of drafts against the target's tokens or probabilities; one
// workgroup has a request.
#pragma once
#include "kg/scatter/scatter_draw.h"

namespace kg {

struct chain_t {
    draw_t draw;
    i64 first, last; // first draft of the row; the token behind those that stay
    i32 kept;        // drafts that stay
    bool refused;    // draft `kept` was refused: another is drawn in its place
};

static_assert(OP != OP_REJECT || sizeof(chain_t) <= LDS_USED, "LDS");

// Drafts of row n, 0 where they do not lie in the tensors.
KG_DEV int drafts_of(args_t a, int n, i64 &first) {
    i64 begin = n > 0 ? load_int<LEN_I64>(a.draft_ends, n - 1) : 0;
    i64 end = load_int<LEN_I64>(a.draft_ends, n), count = difference(end, begin);
    first = begin;
    if (begin >= 0 && end <= a.capacity && count >= 0 && count < a.accept_width) return (int)count;
    flag(a, BAD_COUNT);
    return 0;
}

KG_DEV bool is_greedy(args_t a, int n) {
    if constexpr (!SAMPLING) return true;
    return a.greedy && load(a.greedy + n);
}

// Is the draft that stands at `at` accepted?
KG_DEV bool passes(args_t a, i64 at, i64 token) {
    if (token < 0 || token >= a.vocab) {
        flag(a, BAD_TREE);
        return false;
    }
    float p = load(a.probs + at * a.probs_row + token), q = 1.0f;
    if (a.draft_probs) q = load(a.draft_probs + at * a.draft_probs_row + token);
    return q > 0.0f && p / q >= load(a.coins + at);
}

KG_DEV void walk_chain(args_t a, chain_t &c, int n) {
    int count = drafts_of(a, n, c.first);
    bool greedy = is_greedy(a, n), stands = true;
    c.kept = 0;
    c.refused = false;
    while (c.kept < count && stands) {
        i64 at = c.first + c.kept, token = load_int<TOKEN_I64>(a.drafts, at);
        if (greedy) {
            c.last = load_int<TARGET_I64>(a.targets_in, at);
            stands = c.last == token;
        } else {
            stands = passes(a, at, token);
            c.refused = !stands;
        }
        c.kept += stands;
    }
    if (stands) c.last = load_int<TOKEN_I64>(a.bonus, n);
}

// In the place of draft `kept`: from what the target has more of than the draft.
KG_DEV i32 recover(args_t a, chain_t &c, int n) {
    i64 at = c.first + c.kept, token = load_int<TOKEN_I64>(a.drafts, at);
    const float *target = a.probs + at * a.probs_row;
    const float *draft = a.draft_probs ? a.draft_probs + at * a.draft_probs_row : nullptr;
    auto left = [&](i64 v) {
        float p = load(target + v);
        if (!draft) return v == token ? 0.0f : p;
        float more = p - load(draft + v);
        return more > 0.0f ? more : 0.0f;
    };
    if constexpr (RACE) {
        const float *noise = a.noise + n * a.noise_row;
        return largest_token(c.draw, a.vocab, [&](i64 v) { return left(v) / load(noise + v); });
    } else {
        return draw_token(c.draw, a.vocab, load(a.final_coins + n),
                          [&](i64 v) { return units_of(left(v)); });
    }
}

KG_DEV void run_reject(args_t a, u8 *lds) {
    int n = (int)group_id();
    bool live = n < live_rows(a);
    chain_t &c = *(chain_t *)lds;
    if (live && thread_id() == 0) walk_chain(a, c, n);
    barrier();
    int kept = live ? c.kept : -1;
    i64 last = live ? c.last : -1;
    if constexpr (SAMPLING)
        if (live && c.refused) last = recover(a, c, n);
    for (int i = (int)thread_id(); i < a.accept_width; i += THREADS) {
        i64 token = i == kept ? last : -1;
        if (i < kept) token = load_int<TOKEN_I64>(a.drafts, c.first + i);
        store_int<OUT_I64>(a.predicts, n * a.predicts_row + i, token);
    }
    if (thread_id() == 0) store_int<OUT_I64>(a.accept_count, n, larger(kept, 0));
}

} // namespace kg

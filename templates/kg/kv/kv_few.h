// Packed values of a launch of few rows, which rarely fill 16 bytes of tokens: a
// wave has a row of its heads and stores it an element at a time. Two lanes swap
// a dim, so that both together touch 32 contiguous bytes at a time.
#pragma once
#include "kg/kv/kv_tokens.h"

namespace kg {

struct few_t {
    u32 words[PASSES][PAIR_WORDS];
    float scale;
    bool plain;
};

KG_DEV void load_few(few_t &f, args_t a, const lane_t &l, int row) {
    side_t side = a.side[1];
    const u8 *p =
        (const u8 *)side.rows + (row * side.row + l.head * side.head + l.pair * (2 * X_BYTES));
    f.plain = false;
    f.scale = 1;
    if constexpr (SCALE == DESCALE_HEAD) f.scale = given_scale(side, l.head);
    KG_UNROLL for (int pass = 0; pass < PASSES; pass++) {
        u32 w[PAIR_WORDS] = {0};
        if (has_pair(l, pass)) load_words(w, p + pass * (PAIR_LANES * 2 * X_BYTES));
        KG_UNROLL for (int i = 0; i < PAIR_WORDS; i++) f.words[pass][i] = w[i];
    }
}

template <bool NAN> KG_DEV u32 top_few(const few_t &f) {
    u32 top = 0;
    KG_UNROLL for (int pass = 0; pass < PASSES; pass++)
        KG_UNROLL for (int i = 0; i < PAIR_WORDS; i++) {
        u32 word = f.words[pass][i];
        top = top_word(top, NAN ? without_nan(word) : word);
    }
    return top_of(top);
}

KG_DEV void scale_few(few_t &f) {
    u32 top = top_few<false>(f);
    f.plain = top < INF_BITS;
    if (top > INF_BITS) top = top_few<true>(f);
    f.scale = scale_for(max_lanes<1, PAIR_LANES>(magnitude(top)));
}

// The codes of two dims, one above the other in 16 bits each.
template <bool PLAIN>
KG_DEV u32 few_codes(const u32 (&words)[PAIR_WORDS], float scale, float inverse) {
    if constexpr (!KV_8BIT) return narrow(words);
    float pair[2];
    unpack_words(pair, words);
    float q[4] = {quotient<PLAIN>(pair[0], scale, inverse),
                  quotient<PLAIN>(pair[1], scale, inverse), 0, 0};
    u32 both = codes<PLAIN>(q);
    return (both & 0xffu) | (both & 0xff00u) << 8;
}

KG_DEV void store_code(u8 *to, u32 code) {
    if constexpr (KV_8BIT)
        store(to, (u8)code);
    else
        store((u16 *)to, (u16)code);
}

KG_DEV void store_few(const few_t &f, args_t a, const lane_t &l, i32 slot) {
    place_t at = place_of(a, slot);
    bool odd = lane_id() % 2 != 0;
    float inverse = reciprocal(f.scale);
    if constexpr (SCALE == DESCALE_TOKEN) write_token_scale(a, l, at, f.scale);
    KG_UNROLL for (int pass = 0; pass < PASSES; pass++) {
        u32 both = COMPUTED && f.plain ? few_codes<true>(f.words[pass], f.scale, inverse)
                                       : few_codes<false>(f.words[pass], f.scale, inverse);
        u32 got = shuffle(odd ? both : both >> 16, lane_id() ^ 1u);
        if (!has_pair(l, pass)) continue;
        u8 *to = value_at(a, l, at, swapped_dim(l, pass)) + at.slot % X * KV_BYTES;
        store_code(to, odd ? got : both);
        store_code(to + 2 * a.side[1].cache_dim, odd ? both >> 16 : got);
    }
}

// The wave's row and heads of all.
KG_DEV void write_few(args_t a, u32 group) {
    u32 task = group * (u32)GROUP_WAVES + wave_id(), row = divide(task, a.by_slices);
    if (row >= (u32)a.rows) return;
    lane_t l = lane_of<PASSES>(a.heads, (int)(task - row * (u32)slices_of<PASSES>(a.heads)));
    i32 slot = slot_of(a, (int)row);
    few_t f;
    load_few(f, a, l, (int)row);
    if (uniform(slot) < 0) return;
    if constexpr (SCALE == DESCALE_TOKEN) scale_few(f);
    store_few(f, a, l, slot);
}

} // namespace kg

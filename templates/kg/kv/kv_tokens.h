// Values whose cache has tokens innermost (shuffle, xpacked). A lane has X rows
// of 2 dims. X rows with the slots of one 16-byte group, in order, are stored 16
// bytes at a time (a whole group); other rows an element at a time. Groups need
// not begin at a multiple of X rows: the block of rows where a group begins
// writes all of it, the next block leaves its rows out.
#pragma once
#include "kg/kv/kv_pairs.h"
#include "kg/kv/kv_rows.h"

namespace kg {

constexpr int PASSES = kg_kv_passes(PARTS, kg_kv_write_parts(SCALE == DESCALE_TOKEN));

constexpr int FRAME = 3 * X - 2; // rows that a block must know: X - 1 on each side
constexpr int FRAME_WORDS = ceil_div(FRAME, WAVE);
constexpr int FRAME_BEFORE = X - 1;

struct frame_t {
    i32 slot[FRAME_WORDS]; // of the row FRAME_BEFORE before the block, plus lane
    i32 whole;             // row in the frame where the block's whole group begins, or -1
    u32 single;            // rows of the block that are written one by one, a bit each
};

// Bit r of the result: rows r .. r + X - 2 of the frame are linked to the next.
KG_DEV u64 runs_of(u64 link) {
    u64 run = link & link >> 1;
    run &= run >> 2;
    if constexpr (X == 16) run &= run >> 4;
    return run & run >> (X / 2 - 1);
}

KG_DEV void find_groups(frame_t &f, args_t a, int first_row) {
    u64 valid = 0, link = 0, begins = 0;
    KG_UNROLL for (int n = 0; n < FRAME_WORDS; n++) {
        int i = (int)lane_id() + n * WAVE, row = first_row - FRAME_BEFORE + i;
        f.slot[n] = i < FRAME && row >= 0 && row < a.rows ? slot_of(a, row) : -1;
    }
    KG_UNROLL for (int n = 0; n < FRAME_WORDS; n++) {
        i32 next = (i32)shuffle((u32)f.slot[n], (lane_id() + 1) % WAVE);
        if (n + 1 < FRAME_WORDS) {
            i32 far = (i32)shuffle((u32)f.slot[(n + 1) % FRAME_WORDS], 0);
            if (lane_id() == WAVE - 1) next = far;
        }
        bool is = f.slot[n] >= 0;
        valid |= ballot(is) << (n * WAVE);
        link |= ballot(is && next == f.slot[n] + 1) << (n * WAVE);
        begins |= ballot(is && f.slot[n] % X == 0) << (n * WAVE);
    }
    u64 whole = begins & runs_of(link), covered = whole;
    KG_UNROLL for (int by = 1; by < X; by *= 2) covered |= covered << by;
    u64 here = whole >> FRAME_BEFORE & ((1u << X) - 1);
    f.whole = here ? (i32)first_bit(here) + FRAME_BEFORE : -1;
    f.single = (u32)((valid & ~covered) >> FRAME_BEFORE) & ((1u << X) - 1);
}

KG_DEV i32 frame_slot(const frame_t &f, int i) {
    i32 slot = (i32)shuffle((u32)f.slot[0], (u32)i % WAVE);
    if constexpr (FRAME_WORDS > 1) {
        i32 far = (i32)shuffle((u32)f.slot[FRAME_WORDS - 1], (u32)i % WAVE);
        slot = i < WAVE ? slot : far;
    }
    return slot;
}

// X rows of a lane's dims, and what they are divided by.
struct tokens_t {
    u32 words[PASSES][X][PAIR_WORDS]; // 2 dims each
    float scale[X], inverse[X];
    bool plain; // neither infinity nor NaN, and divided by their own scale
};

// Rows first .. first + X - 1, those that there are.
KG_DEV void load_tokens(tokens_t &t, args_t a, const lane_t &l, int first) {
    side_t side = a.side[1];
    const u8 *p =
        (const u8 *)side.rows + (first * side.row + l.head * side.head + l.pair * (2 * X_BYTES));
    KG_UNROLL for (int pass = 0; pass < PASSES; pass++) KG_UNROLL for (int n = 0; n < X; n++) {
        u32 w[PAIR_WORDS] = {0};
        if (first + n < a.rows && has_pair(l, pass))
            load_words(w, p + (n * side.row + pass * (PAIR_LANES * 2 * X_BYTES)));
        KG_UNROLL for (int i = 0; i < PAIR_WORDS; i++) t.words[pass][n][i] = w[i];
    }
}

// Of COUNT words of each lane, the maximum over a head's lanes of one: lanes
// hand each other half of what they have, so lane l of PAIR_LANES gets that of
// word l * COUNT / PAIR_LANES.
template <int COUNT, int MASK> KG_DEV u32 scatter_max(const u32 (&x)[COUNT]) {
    if constexpr (COUNT == 1) {
        u32 top = x[0];
        KG_UNROLL for (int mask = 1; mask <= MASK; mask *= 2) top =
            max_top(top, shuffle(top, lane_id() ^ (u32)mask));
        return top;
    } else {
        bool upper = (lane_id() & (u32)MASK) != 0;
        u32 half[COUNT / 2];
        KG_UNROLL for (int i = 0; i < COUNT / 2; i++) {
            u32 keep = upper ? x[i + COUNT / 2] : x[i], give = upper ? x[i] : x[i + COUNT / 2];
            half[i] = max_top(keep, shuffle(give, lane_id() ^ (u32)MASK));
        }
        return scatter_max<COUNT / 2, MASK / 2>(half);
    }
}

// Tokens whose maxima share a word, and words of X tokens.
constexpr int SHARERS = 2 / PAIR_WORDS, TOPS = X / SHARERS;

template <bool NAN> KG_DEV u32 token_top(const tokens_t &t, int token) {
    u32 top = 0;
    KG_UNROLL for (int pass = 0; pass < PASSES; pass++)
        KG_UNROLL for (int i = 0; i < PAIR_WORDS; i++) {
        u32 word = t.words[pass][token][i];
        top = top_word(top, NAN ? without_nan(word) : word);
    }
    return top;
}

// The largest magnitudes of tokens 2i (low half) and 2i + 1 in a lane's dims; of
// floats, of token i.
template <bool NAN> KG_DEV void token_tops(u32 (&out)[TOPS], const tokens_t &t) {
    KG_UNROLL for (int i = 0; i < TOPS; i++) {
        if constexpr (X_F32) {
            out[i] = token_top<NAN>(t, i);
        } else {
            u32 top[2] = {token_top<NAN>(t, 2 * i), token_top<NAN>(t, 2 * i + 1)};
            out[i] = max_pair(byte_perm(top[0], top[1], 0x05040100),
                              byte_perm(top[0], top[1], 0x07060302));
        }
    }
}

KG_DEV float shared_top(u32 top, int n) {
    return magnitude(X_F32 ? top : top >> n % SHARERS * 16 & 0xffffu);
}

// True where a lane's tokens have neither infinity nor NaN.
KG_DEV bool find_tops(u32 (&top)[TOPS], const tokens_t &t) {
    u32 all = 0;
    token_tops<false>(top, t);
    KG_UNROLL for (int i = 0; i < TOPS; i++) all = max_top(all, top[i]);
    all = top_of(all);
    if (all > INF_BITS) token_tops<true>(top, t);
    return all < INF_BITS;
}

// A lane divides for the tokens of a word, and the others of its head hear of it.
KG_DEV void scale_by_maximum(tokens_t &t) {
    constexpr int SHARE = PAIR_LANES < TOPS ? 1 : PAIR_LANES / TOPS;
    u32 top[TOPS];
    t.plain = find_tops(top, t);
    if constexpr (PAIR_LANES < TOPS) {
        KG_UNROLL for (int n = 0; n < X; n++) {
            float most = max_lanes<1, PAIR_LANES>(shared_top(top[n / SHARERS], n));
            t.scale[n] = scale_for(most);
            t.inverse[n] = reciprocal(t.scale[n]);
        }
    } else {
        u32 mine = scatter_max<TOPS, PAIR_LANES / 2>(top);
        u32 first = lane_id() / PAIR_LANES * PAIR_LANES;
        float scale[SHARERS], inverse[SHARERS];
        KG_UNROLL for (int n = 0; n < SHARERS; n++) {
            scale[n] = scale_for(shared_top(mine, n));
            inverse[n] = reciprocal(scale[n]);
        }
        KG_UNROLL for (int n = 0; n < X; n++) {
            u32 from = first + (u32)(n / SHARERS * SHARE);
            t.scale[n] = float_of(shuffle(bits_of(scale[n % SHARERS]), from));
            t.inverse[n] = float_of(shuffle(bits_of(inverse[n % SHARERS]), from));
        }
    }
}

KG_DEV void scale_tokens(tokens_t &t, args_t a, const lane_t &l, const float *row_scale, int at) {
    t.plain = false;
    if constexpr (SCALE == DESCALE_HEAD) {
        float given = given_scale(a.side[1], l.head), inverse = reciprocal(given);
        KG_UNROLL for (int n = 0; n < X; n++) t.scale[n] = given, t.inverse[n] = inverse;
    } else if constexpr (SCALE == DESCALE_ROW) {
        KG_UNROLL for (int n = 0; n < X; n++) {
            t.scale[n] = row_scale[at + n];
            t.inverse[n] = reciprocal(t.scale[n]);
        }
    } else if constexpr (SCALE == DESCALE_TOKEN) {
        scale_by_maximum(t);
    } else {
        KG_UNROLL for (int n = 0; n < X; n++) t.scale[n] = t.inverse[n] = 1;
    }
}

// Turns words into codes: of the first dim in bytes 0..X-1 of out[0], of the
// second in out[1]; or 16-bit elements.
template <bool PLAIN> KG_DEV void turn_pass(u32 (&out)[2][4], const tokens_t &t, int pass) {
    KG_UNROLL for (int i = 0; i < 4; i++) {
        if constexpr (KV_8BIT) {
            float q[2][4];
            KG_UNROLL for (int n = 0; n < 4; n++) {
                int token = (4 * i + n) % X;
                float pair[2];
                unpack_words(pair, t.words[pass][token]);
                q[0][n] = quotient<PLAIN>(pair[0], t.scale[token], t.inverse[token]);
                q[1][n] = quotient<PLAIN>(pair[1], t.scale[token], t.inverse[token]);
            }
            out[0][i] = codes<PLAIN>(q[0]);
            out[1][i] = codes<PLAIN>(q[1]);
        } else {
            u32 low = narrow(t.words[pass][2 * i]), high = narrow(t.words[pass][2 * i + 1]);
            out[0][i] = byte_perm(low, high, 0x05040100);
            out[1][i] = byte_perm(low, high, 0x07060302);
        }
    }
}

KG_DEV void turn_tokens(u32 (&out)[PASSES][2][4], const tokens_t &t) {
    if (COMPUTED && t.plain) {
        KG_UNROLL for (int pass = 0; pass < PASSES; pass++) turn_pass<true>(out[pass], t, pass);
    } else {
        KG_UNROLL for (int pass = 0; pass < PASSES; pass++) turn_pass<false>(out[pass], t, pass);
    }
}

KG_DEV void write_token_scale(args_t a, const lane_t &l, place_t at, float scale) {
    if constexpr (SCALE == DESCALE_TOKEN)
        if (l.live && l.pair == 0) write_scale(a.side[1], at, l.head, scale);
}

KG_DEV u8 *value_at(args_t a, const lane_t &l, place_t at, int dim) {
    side_t side = a.side[1];
    return (u8 *)side.cache + (at.page * side.cache_page + l.head * side.cache_head +
                               at.slot / X * side.cache_chunk + dim * side.cache_dim);
}

KG_DEV void store_whole(const tokens_t &t, args_t a, const lane_t &l, i32 slot) {
    place_t at = place_of(a, slot);
    KG_UNROLL for (int n = 0; n < X && SCALE == DESCALE_TOKEN; n++)
        write_token_scale(a, l, place_t{at.page, at.slot + (u32)n}, t.scale[n]);
    u32 out[PASSES][2][4];
    turn_tokens(out, t);
    KG_UNROLL for (int pass = 0; pass < PASSES; pass++) {
        swap_dims(out[pass]);
        if (!has_pair(l, pass)) continue;
        u8 *to = value_at(a, l, at, swapped_dim(l, pass));
        store_words(to, out[pass][0]);
        store_words(to + 2 * a.side[1].cache_dim, out[pass][1]);
    }
}

// Element n of X.
KG_DEV void store_element(u8 *to, const u32 (&words)[4], int n) {
    u32 word = words[n * KV_BYTES / 4] >> n * KV_BYTES * 8 % 32;
    if constexpr (KV_8BIT)
        store(to, (u8)word);
    else
        store((u16 *)to, (u16)word);
}

KG_DEV void store_single(const tokens_t &t, args_t a, const lane_t &l, const frame_t &f) {
    u32 out[PASSES][2][4];
    turn_tokens(out, t);
    KG_UNROLL for (int n = 0; n < X; n++) {
        i32 slot = frame_slot(f, FRAME_BEFORE + n);
        if (!(f.single >> n & 1)) continue;
        place_t at = place_of(a, slot);
        if constexpr (SCALE == DESCALE_TOKEN) write_token_scale(a, l, at, t.scale[n]);
        KG_UNROLL for (int pass = 0; pass < PASSES; pass++) {
            if (!has_pair(l, pass)) continue;
            u8 *to = value_at(a, l, at, (l.pair + pass * PAIR_LANES) * 2) + at.slot % X * KV_BYTES;
            store_element(to, out[pass][0], n);
            store_element(to + a.side[1].cache_dim, out[pass][1], n);
        }
    }
}

// row_scale: of the block's first row and those after it, scale=row.
KG_DEV void write_tokens(args_t a, int first_row, int slice, const float *row_scale) {
    frame_t f;
    tokens_t t;
    lane_t l = lane_of<PASSES>(a.heads, slice);
    load_tokens(t, a, l, first_row); // mostly a whole group, or single rows
    find_groups(f, a, first_row);
    int begin = uniform(f.whole) < 0 ? 0 : uniform(f.whole) - FRAME_BEFORE;
    if (uniform((i32)f.single) != 0) {
        scale_tokens(t, a, l, row_scale, 0);
        store_single(t, a, l, f);
    }
    if (uniform(f.whole) < 0) return;
    if (begin != 0) load_tokens(t, a, l, first_row + begin);
    scale_tokens(t, a, l, row_scale, begin);
    store_whole(t, a, l, frame_slot(f, FRAME_BEFORE + begin));
}

// The wave's block and heads of all.
KG_DEV void write_values(args_t a, u32 group) {
    u32 task = group * (u32)GROUP_WAVES + wave_id(), block = divide(task, a.by_slices);
    u32 slices = (u32)slices_of<PASSES>(a.heads);
    int first_row = (int)(block * X);
    if (first_row < a.rows) write_tokens(a, first_row, (int)(task - block * slices), nullptr);
}

} // namespace kg

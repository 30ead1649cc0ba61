// Rows in X-chunks: K in every layout, V where a row's dims are contiguous in
// the cache (nhd, hnd).
#pragma once
#include "kg/kv/kv_rope.h"

namespace kg {

template <int SIDE> using row_chunks = chunks<SIDE, SIDE == 0 ? ROPE_HALVES : 0>;

// What a lane has of one row and head.
template <int SIDE> struct piece_t {
    typedef row_chunks<SIDE> c;
    u32 words[c::each][OUT_WORDS]; // as they came
    int row, head, first;          // first: of its chunks; then every c::lanes-th
    i32 slot;                      // -1: nothing to do
    i64 position;
    float given; // scale=head
};

template <int SIDE> constexpr bool ROTATES = ROPE != 0 && SIDE == 0;

// Chunk i of a lane. Where halves rotate, 2u and 2u + 1 of all are u and its other.
template <int SIDE> KG_DEV int chunk_at(int first, int i) {
    typedef row_chunks<SIDE> c;
    if constexpr (!ROTATES<SIDE> || ROPE_HALVES == 0) return first + i * c::lanes;
    int unit = first + i / 2 * c::lanes;
    return unit < ROPE_HALVES ? unit + i % 2 * ROPE_HALVES : 2 * unit + i % 2;
}

KG_DEV void load_chunk(u32 (&out)[OUT_WORDS], const u8 *p) {
    KG_UNROLL for (int i = 0; i < OUT_WORDS; i += 4) {
        u32 w[4];
        load_line(w, p + i * 4);
        KG_UNROLL for (int j = 0; j < 4; j++) out[i + j] = w[j];
    }
}

template <int SIDE> KG_DEV void find_slot(piece_t<SIDE> &p, args_t a) {
    p.slot = -1;
    p.position = 0;
    p.given = 1;
    if (p.row >= a.rows) return;
    p.slot = slot_of(a, p.row);
    if constexpr (ROTATES<SIDE>) {
        p.position = position_of(a, p.row);
        if (p.position < 0) p.slot = -1;
    }
}

// `place` runs over lanes: row in a block of rows, chunk, head, block of rows.
template <int SIDE> KG_DEV void locate(piece_t<SIDE> &p, args_t a, u32 place, int first_row = 0) {
    typedef row_chunks<SIDE> c;
    u32 task = place / (c::rows * c::lanes), block = divide(task, a.by_heads);
    p.head = (int)(task - block * (u32)a.heads);
    p.row = first_row + (int)(block * c::rows + place % c::rows);
    p.first = (int)(place / c::rows % c::lanes);
    find_slot(p, a);
}

template <int SIDE> KG_DEV void load_piece(piece_t<SIDE> &p, args_t a) {
    typedef row_chunks<SIDE> c;
    side_t side = a.side[SIDE];
    if (p.row >= a.rows) return;
    if constexpr (SCALE == DESCALE_HEAD) p.given = given_scale(side, p.head);
    const u8 *row = (const u8 *)side.rows + (p.row * side.row + p.head * side.head);
    KG_UNROLL for (int i = 0; i < c::each; i++)
        load_chunk(p.words[i], row + chunk_at<SIDE>(p.first, i) * (X * X_BYTES));
}

// After it words are the elements to be stored, rounded to x.
template <int SIDE> KG_DEV void rotate_piece(piece_t<SIDE> &p, args_t a) {
    typedef row_chunks<SIDE> c;
    if (!ROTATES<SIDE> || p.slot < 0) return;
    KG_UNROLL for (int i = 0; i < c::each; i++) {
        int chunk = chunk_at<SIDE>(p.first, i);
        float x[X], y[X];
        if constexpr (ROPE == ROPE_NEOX) {
            if (i % 2 != 0 || chunk >= ROPE_HALVES) continue;
            unpack_words(x, p.words[i]);
            unpack_words(y, p.words[(i + 1) % c::each]);
            rotate_halves(x, y, a, p.position, chunk * X);
            pack_words(p.words[i], x);
            pack_words(p.words[(i + 1) % c::each], y);
        } else {
            if (chunk >= ROPE_CHUNKS) continue;
            unpack_words(x, p.words[i]);
            rotate_pairs(x, a, p.position, chunk * X / 2);
            pack_words(p.words[i], x);
        }
    }
}

// The largest magnitude of COUNT chunks of a piece that is written; plain: they have
// neither infinity nor NaN.
template <int COUNT, int SIDE>
KG_DEV float chunks_amax(const piece_t<SIDE> &p, int first, bool &plain) {
    u32 top = 0;
    KG_UNROLL for (int i = 0; i < COUNT; i++) KG_UNROLL for (int n = 0; n < OUT_WORDS; n++) top =
        top_word(top, p.words[first + i][n]);
    top = top_of(top);
    plain = top < INF_BITS;
    if (top > INF_BITS) {
        top = 0;
        KG_UNROLL for (int i = 0; i < COUNT; i++) KG_UNROLL for (int n = 0; n < OUT_WORDS; n++)
            top = top_word(top, without_nan(p.words[first + i][n]));
        top = top_of(top);
    }
    return p.slot < 0 ? 0 : magnitude(top);
}
template <int SIDE> KG_DEV float piece_amax(const piece_t<SIDE> &p, bool &plain) {
    return chunks_amax<row_chunks<SIDE>::each>(p, 0, plain);
}

// Over the lanes that differ in bits LOW .. HIGH/2 of their number.
template <int LOW, int HIGH> KG_DEV float max_lanes(float x) {
    KG_UNROLL for (int mask = LOW; mask < HIGH; mask *= 2) x =
        fmax(x, float_of(shuffle(bits_of(x), lane_id() ^ (u32)mask)));
    return x;
}

// What a piece is divided by, given or of its own; then `plain` is of all its row
// and head.
template <int SIDE>
KG_DEV float piece_scale(const piece_t<SIDE> &p, args_t a, place_t at, bool &plain) {
    typedef row_chunks<SIDE> c;
    side_t side = a.side[SIDE];
    if constexpr (SCALE == DESCALE_HEAD) return p.given;
    if constexpr (SCALE == DESCALE_TOKEN) {
        float scale = scale_for(max_lanes<c::rows, c::rows * c::lanes>(piece_amax(p, plain)));
        if (p.slot >= 0 && p.first == 0) write_scale(side, at, p.head, scale);
        return scale;
    }
    return 1;
}

template <bool PLAIN>
KG_DEV void quantise(u32 (&out)[4], const u32 (&words)[OUT_WORDS], float scale, float inverse) {
    float x[X];
    unpack_words(x, words);
    KG_UNROLL for (int i = 0; i < 4; i++) {
        constexpr int COUNT = KV_4BIT ? 8 : 4; // of a word
        float q[COUNT];
        KG_UNROLL for (int n = 0; n < COUNT; n++) q[n] =
            quotient<PLAIN>(x[(COUNT * i + n) % X], scale, inverse);
        out[i] = word_of<PLAIN>(q);
    }
}

template <int SIDE, bool PLAIN>
KG_DEV void put_chunks(const piece_t<SIDE> &p, u8 *to, i64 step, float scale) {
    float inverse = reciprocal(scale);
    KG_UNROLL for (int i = 0; i < row_chunks<SIDE>::each; i++) {
        u32 out[4];
        if constexpr (KV_8BIT) {
            quantise<PLAIN>(out, p.words[i], scale, inverse);
        } else {
            KG_UNROLL for (int n = 0; n < 4; n++) {
                u32 pair[PAIR_WORDS];
                KG_UNROLL for (int j = 0; j < PAIR_WORDS; j++) pair[j] =
                    p.words[i][(n * PAIR_WORDS + j) % OUT_WORDS];
                out[n] = narrow(pair);
            }
        }
        store_line(to + chunk_at<SIDE>(p.first, i) * step, out);
    }
}

// Of a block. POW2: up to a power of two, which is an exponent alone.
KG_DEV float block_scale_for(float amax) {
    float scale = scale_for(amax);
    if constexpr (!POW2) return scale;
    return fmax(float_of((bits_of(scale) + 0x7fffffu) & 0x7f800000u), 1.0f / 8192);
}

// Values whose neighbouring lanes share a block.
KG_DEV void put_blocks(const piece_t<1> &p, args_t a, place_t at) {
    side_t side = a.side[1];
    u8 *to = (u8 *)side.cache +
             (at.page * side.cache_page + p.head * side.cache_head + at.slot * side.cache_slot);
    KG_UNROLL for (int i = 0; i < row_chunks<1>::each; i++) {
        bool plain = false;
        float scale = block_scale_for(max_lanes<1, BLOCK_CHUNKS>(chunks_amax<1>(p, i, plain)));
        int chunk = chunk_at<1>(p.first, i);
        u32 out[4];
        if (p.slot < 0) continue;
        if (plain)
            quantise<true>(out, p.words[i], scale, reciprocal(scale));
        else
            quantise<false>(out, p.words[i], scale, reciprocal(scale));
        store_line(to + chunk * side.cache_chunk, out);
        if (chunk % BLOCK_CHUNKS == 0)
            store(scale_at(side, at, p.head) + chunk / BLOCK_CHUNKS, scale);
    }
}

// Keys beside them.
KG_DEV void copy_piece(const piece_t<0> &p, args_t a, place_t at) {
    side_t side = a.side[0];
    u8 *to = (u8 *)side.cache +
             (at.page * side.cache_page + p.head * side.cache_head + at.slot * side.cache_slot);
    KG_UNROLL for (int i = 0; i < row_chunks<0>::each; i++)
        KG_UNROLL for (int n = 0; n < OUT_WORDS && p.slot >= 0; n += 4) {
        u32 line[4];
        KG_UNROLL for (int j = 0; j < 4; j++) line[j] = p.words[i][n + j];
        store_line(to + (chunk_at<0>(p.first, i) * (X * X_BYTES) + n * 4), line);
    }
}

template <int SIDE>
KG_DEV void put_piece(const piece_t<SIDE> &p, args_t a, place_t at, float scale, bool plain) {
    side_t side = a.side[SIDE];
    if (p.slot < 0) return;
    u8 *to = (u8 *)side.cache +
             (at.page * side.cache_page + p.head * side.cache_head + at.slot * side.cache_slot);
    if (COMPUTED && plain)
        put_chunks<SIDE, true>(p, to, side.cache_chunk, scale);
    else
        put_chunks<SIDE, false>(p, to, side.cache_chunk, scale);
}

template <int SIDE> KG_DEV void store_piece(piece_t<SIDE> &p, args_t a) {
    place_t at = place_of(a, p.slot < 0 ? 0 : p.slot);
    bool plain = false;
    rotate_piece(p, a);
    if constexpr (COPIED<SIDE>) {
        copy_piece(p, a, at);
    } else if constexpr (BLOCKED) {
        put_blocks(p, a, at);
    } else {
        float scale = piece_scale(p, a, at, plain);
        put_piece(p, a, at, scale, plain);
    }
}

// The workgroup's part of all rows.
template <int SIDE> KG_DEV void write_rows(args_t a, u32 group) {
    piece_t<SIDE> p[TURNS];
    u32 place = group * (u32)(THREADS * TURNS) + thread_id();
    KG_UNROLL for (int i = 0; i < TURNS; i++) {
        locate(p[i], a, place + (u32)(i * THREADS));
        load_piece(p[i], a);
    }
    KG_UNROLL for (int i = 0; i < TURNS; i++) store_piece(p[i], a);
}

} // namespace kg

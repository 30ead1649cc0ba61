// Rows out of X-chunks: K in every layout, V where a row's dims are contiguous
// in the cache (nhd, hnd).
#pragma once
#include "kg/kv/kv_find.h"

namespace kg {

template <int SIDE> struct piece_t {
    typedef chunks<SIDE> c;
    static constexpr int WORDS = COPIED<SIDE> ? OUT_WORDS : 4; // of a chunk
    u32 words[c::each][WORDS];                                 // as cached
    int row, head, first; // first: of its chunks; then every c::lanes-th
    place_t at;
    float scale[BLOCKED ? c::each : 1];
};

// Of 16-bit keys beside 8-bit values.
KG_DEV void load_copied(u32 (&out)[OUT_WORDS], const u8 *p) {
    KG_UNROLL for (int n = 0; n < OUT_WORDS; n += 4) {
        u32 line[4];
        load_line(line, p + n * 4);
        KG_UNROLL for (int j = 0; j < 4; j++) out[n + j] = line[j];
    }
}

template <int SIDE> KG_DEV void load_scales(piece_t<SIDE> &p, args_t a, const sequence_t &s) {
    side_t side = a.side[SIDE];
    if constexpr (COPIED<SIDE>) return;
    if constexpr (!BLOCKED) p.scale[0] = descale_of(side, s.n, p.at, p.head);
    KG_UNROLL for (int i = 0; i < chunks<SIDE>::each && BLOCKED; i++) p.scale[i] = load(
        side.scale +
        (p.at.page * side.scale_page + p.at.slot * side.scale_slot + p.head * side.scale_head) +
        (p.first + i * chunks<SIDE>::lanes) / BLOCK_CHUNKS);
}

template <int SIDE> KG_DEV void load_piece(piece_t<SIDE> &p, args_t a, sequence_t &s, u32 place) {
    typedef chunks<SIDE> c;
    side_t side = a.side[SIDE];
    u32 task = place / (c::rows * c::lanes), block = divide(task, a.by_heads);
    p.head = (int)(task - block * (u32)a.heads);
    p.row = (int)(block * c::rows + place % c::rows);
    p.first = (int)(place / c::rows % c::lanes);
    p.at = place_t{-1, 0};
    if (p.row >= a.rows) return;
    walk_to(s, a, p.row);
    p.at = place_of(a, s, p.row);
    if (p.at.page < 0) return;
    load_scales(p, a, s);
    const u8 *from =
        (const u8 *)side.cache +
        (p.at.page * side.cache_page + p.head * side.cache_head + p.at.slot * side.cache_slot);
    KG_UNROLL for (int i = 0; i < c::each; i++) {
        int chunk = p.first + i * c::lanes;
        if constexpr (COPIED<SIDE>)
            load_copied(p.words[i], from + chunk * (X * 2));
        else
            load_line(p.words[i], from + chunk * side.cache_chunk);
    }
}

KG_DEV void widen(u32 (&out)[OUT_WORDS], const u32 (&words)[4], float scale) {
    if constexpr (KV_4BIT) {
        KG_UNROLL for (int i = 0; i < 4; i++) {
            float x[8];
            int4_values(x, words[i]);
            KG_UNROLL for (int n = 0; n < 4; n++) out[(4 * i + n) % OUT_WORDS] =
                pack<X_DTYPE>(x[2 * n] * scale, x[2 * n + 1] * scale);
        }
    } else if constexpr (KV_8BIT) {
        KG_UNROLL for (int i = 0; i < 4; i++) {
            float x[4];
            values(x, words[i]);
            out[2 * i % OUT_WORDS] = pack<X_DTYPE>(x[0] * scale, x[1] * scale);
            out[(2 * i + 1) % OUT_WORDS] = pack<X_DTYPE>(x[2] * scale, x[3] * scale);
        }
    } else {
        KG_UNROLL for (int i = 0; i < 4; i++) out[i] = words[i];
    }
}

template <int SIDE> KG_DEV void store_piece(const piece_t<SIDE> &p, args_t a) {
    typedef chunks<SIDE> c;
    side_t side = a.side[SIDE];
    if (p.row >= a.rows) return;
    u8 *to = (u8 *)side.rows + (p.row * side.row + p.head * side.head);
    KG_UNROLL for (int i = 0; i < c::each; i++) {
        u32 out[OUT_WORDS];
        if constexpr (COPIED<SIDE>)
            KG_UNROLL for (int n = 0; n < OUT_WORDS; n++) out[n] = p.words[i][n];
        else
            widen(out, p.words[i], p.scale[BLOCKED ? i : 0]);
        KG_UNROLL for (int n = 0; n < OUT_WORDS; n += 4) {
            u32 quad[4];
            KG_UNROLL for (int j = 0; j < 4; j++) quad[j] = p.at.page < 0 ? 0 : out[n + j];
            store_line(to + ((p.first + i * c::lanes) * (X * 2) + n * 4), quad);
        }
    }
}

template <int SIDE> KG_DEV void gather_rows(args_t a, u32 group) {
    typedef chunks<SIDE> c;
    piece_t<SIDE> p[TURNS];
    u32 base = group * (u32)(THREADS * TURNS) + wave_id() * WAVE, place = base + lane_id();
    u32 block = divide(base / (c::rows * c::lanes), a.by_heads);
    sequence_t s = find_sequence(a, (int)block * c::rows);
    KG_UNROLL for (int i = 0; i < TURNS; i++) load_piece(p[i], a, s, place + (u32)(i * THREADS));
    KG_UNROLL for (int i = 0; i < TURNS; i++) store_piece(p[i], a);
}

} // namespace kg

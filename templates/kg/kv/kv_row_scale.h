// scale=row, one scale for all heads of a token. Natural layouts: a wave has a row,
// in registers as far as they hold it; what is more is read a second time, out of
// the caches. Packed ones, where rows must be written side by side: a workgroup
// has X rows, first their scales, into LDS, then the rows, out of the caches.
#pragma once
#include "kg/kv/kv_tokens.h"

namespace kg {

constexpr int K_SCALES = X;
constexpr int V_SCALES = 2 * X - 1; // X - 1 rows more: a whole group may begin in the last row
constexpr int LDS_USED = SCALE == DESCALE_ROW && PACKED ? (K_SCALES + V_SCALES) * 4 : 16;

// Pieces of a row that a lane holds.
template <int SIDE> constexpr int HELD = larger(1, 16 / (row_chunks<SIDE>::each * OUT_WORDS));

// Piece n of a row; beyond its end it has no slot.
template <int SIDE> KG_DEV void take_piece(piece_t<SIDE> &p, args_t a, int n) {
    typedef row_chunks<SIDE> c;
    p.head = n / c::lanes;
    p.first = n % c::lanes;
    if (p.head < a.heads) {
        load_piece(p, a);
    } else {
        p.slot = -1;
    }
}

struct row_top_t {
    float top;
    bool plain;
};

template <int SIDE> KG_DEV void add_piece(row_top_t &t, piece_t<SIDE> &p, args_t a) {
    bool plain = true;
    if (p.slot < 0) return;
    rotate_piece(p, a);
    t.top = fmax(t.top, piece_amax(p, plain));
    t.plain = t.plain && plain;
}

template <int SIDE>
KG_DEV float finish_row(const piece_t<SIDE> &row, args_t a, float top, bool writes) {
    side_t side = a.side[SIDE];
    float scale = scale_for(max_lanes<1, WAVE>(top));
    if (row.slot < 0 || !writes) return scale;
    place_t at = place_of(a, row.slot);
    int entries = side.scale_head != 0 ? a.heads : 1;
    for (int head = (int)lane_id(); head < entries; head += WAVE)
        write_scale(side, at, head, scale);
    return scale;
}

template <int SIDE> KG_DEV void write_row(args_t a, int row) {
    typedef row_chunks<SIDE> c;
    constexpr int MANY = HELD<SIDE>;
    piece_t<SIDE> p[MANY], more;
    row_top_t t = {0, true};
    more.row = row;
    find_slot(more, a);
    if (uniform(more.slot) < 0) return;
    place_t at = place_of(a, more.slot);
    KG_UNROLL for (int i = 0; i < MANY; i++) {
        p[i].row = row, p[i].slot = more.slot, p[i].position = more.position;
        take_piece(p[i], a, (int)lane_id() + i * WAVE);
    }
    KG_UNROLL for (int i = 0; i < MANY; i++) add_piece(t, p[i], a);
    int end = a.heads * c::lanes;
    KG_LOOP for (int n = (int)lane_id() + MANY * WAVE; n < end; n += WAVE) {
        take_piece(more, a, n);
        add_piece(t, more, a);
    }
    float scale = finish_row(more, a, t.top, true);
    KG_UNROLL for (int i = 0; i < MANY; i++) put_piece(p[i], a, at, scale, t.plain);
    KG_LOOP for (int n = (int)lane_id() + MANY * WAVE; n < end; n += WAVE) {
        take_piece(more, a, n);
        rotate_piece(more, a);
        put_piece(more, a, at, scale, t.plain);
    }
}

// The scale of a row whose elements others write.
template <int SIDE> KG_DEV void scale_row(args_t a, int row, float *out, bool writes) {
    piece_t<SIDE> p;
    row_top_t t = {0, true};
    p.row = row;
    find_slot(p, a);
    i32 slot = p.slot;
    int end = slot < 0 ? 0 : a.heads * row_chunks<SIDE>::lanes;
    KG_LOOP for (int n = (int)lane_id(); n < end; n += WAVE) {
        take_piece(p, a, n);
        add_piece(t, p, a);
    }
    p.slot = slot;
    float scale = finish_row(p, a, t.top, writes);
    if (lane_id() == 0) *out = scale;
}

// K of X rows from first_row on.
KG_DEV void write_block(args_t a, int first_row, const float *scales) {
    typedef row_chunks<0> c;
    u32 places = (u32)(X * c::lanes) * (u32)a.heads; // whole blocks of rows
    KG_LOOP for (u32 i = thread_id(); i < places; i += THREADS) {
        piece_t<0> p;
        locate(p, a, i, first_row);
        load_piece(p, a);
        rotate_piece(p, a);
        put_piece(p, a, place_of(a, p.slot < 0 ? 0 : p.slot), scales[p.row - first_row], false);
    }
}

KG_DEV void write_packed_rows(args_t a, int first_row, float *lds) {
    int wave = (int)wave_id(), slices = slices_of<PASSES>(a.heads);
    float *v_scales = lds + K_SCALES;
    KG_LOOP for (int n = wave; n < K_SCALES + V_SCALES; n += GROUP_WAVES) {
        int v = n - K_SCALES;
        if (v < 0)
            scale_row<0>(a, first_row + n, lds + n, true);
        else
            scale_row<1>(a, first_row + v, v_scales + v, v < X);
    }
    barrier();
    write_block(reread(a), first_row, lds); // all arguments at once are too many
    KG_LOOP for (int n = wave; n < slices; n += GROUP_WAVES)
        write_tokens(reread(a), first_row, n, v_scales);
}

KG_DEV void write_scaled_rows(args_t a, u32 group, float *lds) {
    if constexpr (PACKED) {
        write_packed_rows(a, (int)group * X, lds);
    } else {
        int task = (int)group * GROUP_WAVES + (int)wave_id();
        if (task >= 2 * a.rows) return;
        if (task % 2 == 0)
            write_row<0>(a, task / 2);
        else
            write_row<1>(a, task / 2);
    }
}

} // namespace kg

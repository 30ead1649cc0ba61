// fuse=c: unpack and convolution alone, PIECE channels a lane; copies of z, b, a.
#pragma once
#include "kg/gdn/gdn_conv.h"

namespace kg {

// Column of canonical channel f in a row of the in-projection.
KG_DEV int source_column(int f) {
    if (IN_LAYOUT != ROWS_INTERLEAVED) return f;
    if (f < 2 * KEY_DIMS) {
        int side = f / KEY_DIMS, r = f % KEY_DIMS;
        return r / K_DIM * GROUP_DIMS + side * K_DIM + r % K_DIM;
    }
    int r = f - 2 * KEY_DIMS;
    return r / (GROUP * V_DIM) * GROUP_DIMS + 2 * K_DIM + r % (GROUP * V_DIM);
}

// Elements first, first + step, ... of `count`; those of a group of `each` lie
// together in the row, groups `apart`.
KG_DEV void copy_part(void *out, i64 out_row, const void *in, i64 in_row, int offset, int each,
                      int apart, int count, int first, int step) {
    for (int i = first; i < count; i += step) {
        u16 x = load((const u16 *)in + in_row + offset + i / each * apart + i % each);
        store((u16 *)out + out_row + i, x);
    }
}

KG_DEV void copy_rest(args_t a, const seq_t &s, int first) {
    constexpr bool SPLIT = IN_LAYOUT == ROWS_INTERLEAVED;
    constexpr int EACH = SPLIT ? GROUP : V_HEADS, APART = SPLIT ? 2 * GROUP : 0;
    constexpr int LANES_IN_ALL = ceil_div(CHANNELS, THREADS * PIECE) * THREADS;
    for (int t = 0; t < s.count; t++) {
        i64 row = s.first + t;
        if (a.z_out)
            copy_part(a.z_out, row * a.z_out_row, a.z, row * a.z_row,
                      SPLIT ? 2 * K_DIM + GROUP * V_DIM : CHANNELS,
                      SPLIT ? GROUP * V_DIM : VALUE_DIMS, SPLIT ? GROUP_DIMS : 0, VALUE_DIMS, first,
                      LANES_IN_ALL);
        if (a.b_out)
            copy_part(a.b_out, row * a.b_out_row, a.b, row * a.b_row, 0, EACH, APART, V_HEADS,
                      first, LANES_IN_ALL);
        if (a.a_out)
            copy_part(a.a_out, row * a.a_out_row, a.a, row * a.a_row, EACH, EACH, APART, V_HEADS,
                      first, LANES_IN_ALL);
    }
}

// `lane`: of all lanes that share the sequence.
KG_DEV void run_unpack(args_t a, const seq_t &s, int lane, float *lds) {
    int f = lane * PIECE;
    if constexpr (IN_LAYOUT != ROWS_PRESPLIT) copy_rest(a, s, lane);
    if (f >= CHANNELS) return;
    channels_t c;
    float own[TREE ? 1 : TOKENS * PIECE];
    float *y = TREE ? lds + (int)thread_id() * PIECE : own;
    constexpr int STEP = TREE ? THREADS * PIECE : PIECE;
    load_channels(c, a, s, f, row_t{a.x, a.x_row, source_column(f)});
    convolve(y, STEP, c, a, s, f, true);
    KG_UNROLL for (int t = 0; t < TOKENS; t++)
        KG_UNROLL for (int e = 0; e < PIECE; e++) if (t < s.count && has_channel(f + e))
            store_as<OUT_DTYPE>(a.out, (s.first + t) * a.out_row, f + e, y[t * STEP + e]);
    move_window(c, a, s, f);
}

} // namespace kg

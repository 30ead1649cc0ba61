// Values whose cache has tokens innermost (shuffle, xpacked). A lane reads 2
// dims of X tokens, 16 bytes each, and turns them into X rows of 2 elements. A
// group of X tokens belongs to the block of rows where its first row is.
#pragma once
#include "kg/kv/kv_find.h"
#include "kg/kv/kv_pairs.h"

namespace kg {

constexpr int PASSES = kg_kv_passes(PARTS, KG_KV_GATHER_PARTS);

struct group_t {
    int row, count, skip; // rows row .. row + count - 1 are tokens skip, skip + 1 ...
    place_t at;           // of token 0 of the group; page -1: zeros
    int valid;            // rows that are cached
};

// words[n]: dims 2 of token n, from the X tokens of each dim.
KG_DEV void turn_tokens(u32 (&words)[X], const u32 (&in)[2][4], const float (&scale)[X]) {
    KG_UNROLL for (int i = 0; i < 4; i++) {
        if constexpr (KV_8BIT) {
            float x[4], y[4];
            values(x, in[0][i]);
            values(y, in[1][i]);
            KG_UNROLL for (int n = 0; n < 4; n++) {
                float by = SCALE == DESCALE_NONE ? 1.0f : scale[(4 * i + n) % X];
                words[(4 * i + n) % X] = pack<X_DTYPE>(x[n] * by, y[n] * by);
            }
        } else {
            words[2 * i] = byte_perm(in[0][i], in[1][i], 0x05040100);
            words[2 * i + 1] = byte_perm(in[0][i], in[1][i], 0x07060302);
        }
    }
}

KG_DEV void load_scales(float (&scale)[X], args_t a, const group_t &g, int seq, int head) {
    side_t side = a.side[1];
    KG_UNROLL for (int n = 0; n < X; n++) {
        place_t at = {g.at.page, g.at.slot + n};
        bool read = SCALE == DESCALE_TOKEN ? n >= g.skip && n < g.skip + g.valid : n == 0;
        scale[n] = read ? descale_of(side, seq, at, head) : scale[0];
    }
}

// Rows past the cached ones are zeros.
KG_DEV void copy_group(args_t a, const group_t &g, int seq, const lane_t &l) {
    side_t side = a.side[1];
    float scale[X] = {};
    u32 in[PASSES][2][4];
    const u8 *from =
        (const u8 *)side.cache +
        (g.at.page * side.cache_page + l.head * side.cache_head + g.at.slot / X * side.cache_chunk);
    u8 *to = (u8 *)side.rows + (g.row * side.row + l.head * side.head + l.pair * 4);
    if (g.valid > 0) {
        if constexpr (SCALE != DESCALE_NONE) load_scales(scale, a, g, seq, l.head);
        KG_UNROLL for (int pass = 0; pass < PASSES; pass++) {
            if (!has_pair(l, pass)) continue;
            const u8 *p = from + swapped_dim(l, pass) * side.cache_dim;
            load_plain(in[pass][0], p);
            load_plain(in[pass][1], p + 2 * side.cache_dim);
        }
    }
    KG_UNROLL for (int pass = 0; pass < PASSES; pass++) {
        u32 words[X];
        u8 *first = to + pass * (PAIR_LANES * 4);
        swap_dims(in[pass]);
        turn_tokens(words, in[pass], scale);
        if (!has_pair(l, pass)) continue;
        if (uniform(g.valid) == X) {
            KG_UNROLL for (int n = 0; n < X; n++) store((u32 *)(first + n * side.row), words[n]);
            continue;
        }
        KG_UNROLL for (int n = 0; n < X; n++) {
            int i = n - g.skip;
            if (i >= 0 && i < g.count)
                store((u32 *)(first + i * side.row), i < g.valid ? words[n] : 0u);
        }
    }
}

// The group of rows that `row` begins or is in; 0 rows where an earlier block
// has it. Returns the rows to step over.
KG_DEV int group_of(group_t &g, args_t a, const sequence_t &s, int row) {
    int token = sum_of(row, s.shift), left = smaller(s.end, a.rows) - row;
    bool nobody = !exists(a, s);
    g.skip = nobody ? 0 : token & (X - 1);
    g.row = row;
    g.count = smaller(X - g.skip, left);
    g.at = place_of(a, s, row);
    g.at.slot -= g.at.page < 0 ? 0 : g.skip;
    g.valid = g.at.page < 0 ? 0 : smaller(g.count, s.cached - token);
    int step = g.count;
    if (nobody) g.count = step = 1;
    if (g.skip != 0 && row != s.first) g.count = 0;
    return step;
}

// The wave's block of X rows and its heads.
KG_DEV void gather_values(args_t a, u32 group) {
    u32 task = group * (u32)GROUP_WAVES + wave_id(), block = divide(task, a.by_slices);
    u32 slices = (u32)slices_of<PASSES>(a.heads);
    int row = (int)(block * X), end = smaller(row + X, a.rows);
    if (row >= a.rows) return;
    lane_t l = lane_of<PASSES>(a.heads, (int)(task - block * slices));
    sequence_t s = find_sequence(a, row);
    KG_LOOP while (row < end) {
        group_t g;
        walk_to(s, a, row);
        int step = uniform(group_of(g, a, s, row));
        if (uniform(g.count) > 0) copy_group(a, g, s.n, l);
        row += step;
    }
}

} // namespace kg

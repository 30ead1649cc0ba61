// Merging the parts of an item whose rows are many: a wave takes several rows at a time, and
// brings their parts by way of LDS, where more of them are on their way than registers would
// hold. Parts are added in the same order as row by row.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/attn/parts_shuffled.h"

namespace kg {

// A lane reads what it has brought itself: 16 bytes of each row of a part, with wide rows so many
// times. They lie where keys did, a wave's apart from those of others.
template <int R> constexpr int part_bytes() { return R * WIDE_TURNS * WAVE * 16; }
template <int R> constexpr u32 parts_ahead() {
    return (u32)larger(smaller(8, PARTS_BYTES / (ALL_WAVES * part_bytes<R>())), 1);
}
template <int R> KG_DEV u8 *place_of_wave(u8 *lds, int wave) {
    return lds + wave * (int)parts_ahead<R>() * part_bytes<R>() + (int)late_lane() * 16;
}
// Of a wave at a time, ALL_WAVES apart: as many as registers hold, and LDS of two parts; so many
// that none is of another block.
constexpr int MOST_ROWS = BRINGERS                    ? (STAGED ? 1 : 4)
                          : WIDE_TURNS > 1 && !PAIRED ? 2
                          : V_DIM > 128               ? 4
                                                      : 8;
constexpr int many_rows(int rows) {
    bool crowded = 2 * ALL_WAVES * rows * WIDE_TURNS * WAVE * 16 > PARTS_BYTES;
    return rows > 1 && (crowded || ROWS % (rows * ALL_WAVES) != 0) ? many_rows(rows / 2) : rows;
}
constexpr int MANY_ROWS = many_rows(smaller(MOST_ROWS, ceil_div(ROWS, ALL_WAVES)));

// Lane n: of part `part` + n, or of the last; parts before `first` are none.
template <int R, int STEP>
KG_DEV void load_sums(sums_t (&sums)[R], args_t a, cut_t cut, u32 part, u32 count, u32 item_start,
                      int row, u32 first) {
    u32 lane = late_lane(), at = part + (lane < count ? lane : count - 1);
    bool is_one = lane < count && !(PARTED && at < first);
    if constexpr (PARTED) at = at < first ? first : at;
    const sums_t *p = partial_sums(a, partial_slot(cut, at, item_start)) + row;
    float x[R][2];
    KG_UNROLL for (int r = 0; r < R; r++) load_shared(x[r], &p[r * STEP].maximum);
    KG_UNROLL for (int r = 0; r < R; r++) sums[r] =
        is_one ? sums_t{x[r][0], x[r][1]} : sums_t{-INFINITE, 0.0f};
}

// Some parts of an item, for the dims of a pass: numbers begin to count - 1 from `first` on.
struct parts_t {
    u8 *lds; // the lane's
    cut_t cut;
    u32 first, begin, count, item_start;
    int row, dim;
};
template <int R, int STEP> KG_DEV void bring_part(args_t a, const parts_t &p, u32 n) {
    u8 *to = p.lds + (int)(n % parts_ahead<R>()) * part_bytes<R>();
    if (n < p.count) {
        const float *from = partial_row(a, partial_slot(p.cut, p.first + n, p.item_start), p.row);
        KG_UNROLL for (int r = 0; r < R; r++)
            KG_UNROLL for (int turn = 0; turn < WIDE_TURNS; turn++)
                copy_16(to + (r * WIDE_TURNS + turn) * (WAVE * 16),
                        (const u8 *)(from + r * STEP * V_DIM + dim_of_turn(p.dim, turn)));
    }
    copies_end();
}
template <int R, int STEP> KG_DEV void bring_parts(args_t a, const parts_t &p) {
    KG_LOOP for (u32 n = 0; n < parts_ahead<R>(); n++) bring_part<R, STEP>(a, p, p.begin + n);
}
// x += weight x partial row, of parts of which the first are on their way.
template <int R, int STEP>
KG_DEV void add_parts(float (&x)[R][WIDE_TURNS][4], args_t a, const parts_t &p,
                      const float (&weight_of_lane)[R]) {
    constexpr u32 AHEAD = parts_ahead<R>();
    KG_LOOP for (u32 n = p.begin; n < p.count; n++) {
        copies_done<(int)AHEAD - 1>();
        const u8 *from = p.lds + (int)(n % AHEAD) * part_bytes<R>();
        KG_UNROLL for (int r = 0; r < R; r++) {
            float w = float_of(shuffle(bits_of(weight_of_lane[r]), n));
            KG_UNROLL for (int turn = 0; turn < WIDE_TURNS; turn++) {
                quad_t y = *(const quad_t *)(from + (r * WIDE_TURNS + turn) * (WAVE * 16));
                KG_UNROLL for (int i = 0; i < 4; i++) x[r][turn][i] +=
                    w == 0.0f ? 0.0f : w * y.x[i];
            }
        }
        bring_part<R, STEP>(a, p, n + AHEAD);
    }
}

// Of all lanes' parts: into every lane. w: of the lane's, relative to the maximum.
template <int R> KG_DEV void sum_up(sums_t (&total)[R], float (&w)[R], float amiss) {
    sums_t mine[R];
    KG_UNROLL for (int r = 0; r < R; r++) mine[r] = total[r];
    KG_UNROLL for (u32 m = 1; m < (u32)WAVE; m *= 2) KG_UNROLL for (int r = 0; r < R; r++) {
        u32 other = shuffle(bits_of(total[r].maximum), late_lane() ^ m);
        total[r].maximum = fmax(total[r].maximum, float_of(other));
    }
    KG_UNROLL for (int r = 0; r < R; r++) {
        total[r].maximum += amiss;
        w[r] = weight(mine[r].maximum, total[r].maximum);
        total[r].sum = mine[r].sum * w[r];
    }
    KG_UNROLL for (u32 m = 1; m < (u32)WAVE; m *= 2) KG_UNROLL for (int r = 0; r < R; r++) total[r]
        .sum += float_of(shuffle(bits_of(total[r].sum), late_lane() ^ m));
}

KG_DEV void store_merged(args_t a, const segment_t &g, row_t at, float (&x)[4], int dim,
                         float factor) {
    if (!at.exists || dim >= V_DIM) return;
    if (is_joined(g)) {
        store_shared(joined_out(a, g, at) + dim, x);
        return;
    }
    KG_UNROLL for (int j = 0; j < 4; j++) x[j] = factor == 0.0f ? 0.0f : x[j] * factor;
    gate_out(a, at, dim, x);
    store_out(a, at, dim, x);
}
KG_DEV void store_merged(args_t a, const segment_t &g, row_t at, sums_t total) {
    if (!at.exists) return;
    if (is_joined(g))
        store_joined(a, g, at, total);
    else
        store_lse(a, at, total);
}

// `row` and those of the R - 1 behind it, each STEP further on, that exist. amiss: 0, or NaN, which
// everything then is. The first parts come while it is found out what they weigh. PARTED: a part's
// lane follows from its number, wherever a window begins.
template <int R, int STEP = ALL_WAVES>
KG_DEV void merge_rows(args_t a, const segment_t &g, cut_t cut, share_t share, int row, float amiss,
                       u8 *lds) {
    sums_t total[R], mine[R];
    float top[R], factor[R], w[R];
    row_t at[R];
    u32 begin = PARTED ? share.first / WAVE * WAVE : share.first, parts = share.last - begin + 1;
    u32 unseen = share.first - begin;
    parts_t some = {lds,
                    cut,
                    begin,
                    unseen,
                    (u32)smaller((int)parts, WAVE),
                    g.item_start,
                    row,
                    dim_of_turn((int)late_lane() * 4, 0)};
    bring_parts<R, STEP>(a, some);
    KG_UNROLL for (int r = 0; r < R; r++) total[r] = {-INFINITE, 0.0f};
    KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
        load_sums<R, STEP>(mine, a, cut, begin + n, parts - n, g.item_start, row, share.first);
        KG_UNROLL for (int r = 0; r < R; r++) add_sums(total[r], mine[r]);
    }
    sum_up(total, w, amiss);
    KG_UNROLL for (int r = 0; r < R; r++) {
        at[r] = row_at(g, row + r * STEP);
        top[r] = total[r].maximum;
        if (!is_joined(g) && at[r].exists) add_sink(total[r], a, at[r].head);
        factor[r] = output_factor(total[r], top[r], a, g);
    }
    KG_LOOP for (int dims = 0; dims < V_DIM; dims += WIDE_TURNS * WAVE * 4) {
        int dim = dims + (int)late_lane() * 4;
        float x[R][WIDE_TURNS][4] = {};
        KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
            some.first = begin + n, some.count = smaller((int)(parts - n), WAVE);
            some.begin = n == 0 ? unseen : 0, some.dim = dim_of_turn(dim, 0);
            if (dims + n > 0) bring_parts<R, STEP>(a, some);
            if (parts > (u32)WAVE) {
                load_sums<R, STEP>(mine, a, cut, some.first, some.count, g.item_start, row,
                                   share.first);
                KG_UNROLL for (int r = 0; r < R; r++) w[r] = weight(mine[r].maximum, top[r]);
            }
            add_parts<R, STEP>(x, a, some, w);
        }
        KG_UNROLL for (int r = 0; r < R; r++)
            KG_UNROLL for (int turn = 0; turn < WIDE_TURNS; turn++)
                store_merged(a, g, at[r], x[r][turn], dim + turn * WAVE * 4, factor[r]);
    }
    if (late_lane() == 0) KG_UNROLL for (int r = 0; r < R; r++) store_merged(a, g, at[r], total[r]);
}

// Whose parts come by way of LDS: of one row a wave registers hold as many. By turns of all waves,
// none of which has rows of another block.
constexpr bool MERGES_MANY = (BY_MATRICES || STAGED_MATRICES || KEY_QUEUE != 0) &&
                             ROWS > ALL_WAVES &&ROWS % (MANY_ROWS * ALL_WAVES) == 0;

// lds: where keys lay. BY_MATRICES: as far as a wave has more than one row; the last row by itself,
// of which more parts are on their way.
KG_DEV void merge_many_rows(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                            float amiss, u8 *lds) {
    constexpr int LAST = STAGED_MATRICES ? 0 : ALL_WAVES;
    static_assert(!MERGES_MANY || ALL_WAVES * part_bytes<MANY_ROWS>() <= PARTS_BYTES, "one part");
    int row = wave;
    lds = place_of_wave<MANY_ROWS>(lds, wave);
    KG_LOOP for (; row < ROWS && row_exists(g, row + LAST); row += MANY_ROWS * ALL_WAVES)
        merge_rows<MANY_ROWS>(a, g, cut, share, row, amiss, lds);
    if constexpr (!STAGED_MATRICES)
        if (row < ROWS && row_exists(g, row))
            merge_row(a, g, cut, share, row, row_at(g, row), amiss);
}
// As many rows as a wave has, by this one alone.
KG_DEV void merge_few_rows(args_t a, const segment_t &g, cut_t cut, share_t share, float amiss,
                           u8 *lds) {
    lds += (int)late_lane() * 16;
    KG_LOOP for (int row = 0; row < WAVE_ROWS && row_exists(g, row); row += MANY_ROWS)
        merge_rows<MANY_ROWS, 1>(a, g, cut, share, row, amiss, lds);
}

} // namespace kg

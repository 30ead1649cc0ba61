// Merging the parts of an item whose rows are many: a wave takes several rows at a time, so that
// the loads of all are on their way together. Parts are few then, and added in the same order as
// row by row.
#pragma once
#include "kg/attn/parts_shuffled.h"

namespace kg {

constexpr int MANY_ROWS = V_DIM > 128 ? 4 : 8; // of a wave at a time, ALL_WAVES apart
constexpr u32 ROWS_BATCH = 2;                  // parts

// Lane n: of part `part` + n, or of the last.
template <int R>
KG_DEV void load_sums(sums_t (&sums)[R], args_t a, cut_t cut, u32 part, u32 count, u32 item_start,
                      int row) {
    u32 lane = late_lane(), at = part + (lane < count ? lane : count - 1);
    const sums_t *p = partial_sums(a, partial_slot(cut, at, item_start)) + row;
    float x[R][2];
    KG_UNROLL for (int r = 0; r < R; r++) load_shared(x[r], &p[r * ALL_WAVES].maximum);
    KG_UNROLL for (int r = 0; r < R; r++) sums[r] =
        lane < count ? sums_t{x[r][0], x[r][1]} : sums_t{-INFINITE, 0.0f};
}

template <int R>
KG_DEV void add_parts(float (&x)[R][4], args_t a, cut_t cut, u32 part, u32 count, u32 item_start,
                      int row, int dim, const float (&weight_of_lane)[R]) {
    KG_LOOP for (u32 n = 0; n < count; n += ROWS_BATCH) {
        float y[ROWS_BATCH][R][4];
        KG_UNROLL for (u32 j = 0; j < ROWS_BATCH; j++) {
            u32 at = part + (n + j < count ? n + j : count - 1);
            u32 slot = partial_slot(cut, at, item_start);
            KG_UNROLL for (int r = 0; r < R; r++)
                load_shared(y[j][r], partial_row(a, slot, row + r * ALL_WAVES) + dim);
        }
        KG_UNROLL for (u32 j = 0; j < ROWS_BATCH; j++) KG_UNROLL for (int r = 0; r < R; r++) {
            float w = float_of(shuffle(bits_of(weight_of_lane[r]), (n + j) % WAVE));
            w = n + j < count ? w : 0.0f;
            KG_UNROLL for (int i = 0; i < 4; i++) x[r][i] += w == 0.0f ? 0.0f : w * y[j][r][i];
        }
    }
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

// `row` and those of the R - 1 behind it that exist. amiss: 0, or NaN, which everything then is.
template <int R>
KG_DEV void merge_rows(args_t a, const segment_t &g, cut_t cut, share_t share, int row,
                       float amiss) {
    sums_t total[R], mine[R];
    float top[R], factor[R], w[R];
    row_t at[R];
    u32 parts = parts_of(share);
    KG_UNROLL for (int r = 0; r < R; r++) total[r] = {-INFINITE, 0.0f};
    KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
        load_sums(mine, a, cut, share.first + n, parts - n, g.item_start, row);
        KG_UNROLL for (int r = 0; r < R; r++) add_sums(total[r], mine[r]);
    }
    KG_UNROLL for (int r = 0; r < R; r++) {
        at[r] = row_at(g, row + r * ALL_WAVES);
        total[r] = total_of(total[r]);
        total[r].maximum += amiss;
        top[r] = total[r].maximum;
        if (!is_joined(g) && at[r].exists) add_sink(total[r], a, at[r].head);
        factor[r] = output_factor(total[r], top[r], a, g);
    }
    KG_LOOP for (int dims = 0; dims < V_DIM; dims += WAVE * 4) {
        int dim = dims + (int)late_lane() * 4;
        float x[R][4] = {};
        KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
            u32 count = parts - n < (u32)WAVE ? parts - n : (u32)WAVE;
            if (parts > (u32)WAVE)
                load_sums(mine, a, cut, share.first + n, count, g.item_start, row);
            KG_UNROLL for (int r = 0; r < R; r++) w[r] = weight(mine[r].maximum, top[r]);
            add_parts(x, a, cut, share.first + n, count, g.item_start, row, dim < V_DIM ? dim : 0,
                      w);
        }
        KG_UNROLL for (int r = 0; r < R; r++) store_merged(a, g, at[r], x[r], dim, factor[r]);
    }
    if (late_lane() == 0) KG_UNROLL for (int r = 0; r < R; r++) store_merged(a, g, at[r], total[r]);
}

// As far as a wave has more than one row; the last row by itself, of which more parts are on
// their way.
KG_DEV void merge_many_rows(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                            float amiss) {
    static_assert(!BY_MATRICES || ROWS % (MANY_ROWS * ALL_WAVES) == 0, "no row of another block");
    int row = wave;
    KG_LOOP for (; row < ROWS && row_exists(g, row + ALL_WAVES); row += MANY_ROWS * ALL_WAVES)
        merge_rows<MANY_ROWS>(a, g, cut, share, row, amiss);
    if (row < ROWS && row_exists(g, row)) merge_row(a, g, cut, share, row, row_at(g, row), amiss);
}

} // namespace kg

// Merging the parts of an item in a few scalars: parts in batches, a weight from the lane
// that has it.
#pragma once
#include "kg/attn/join.h"

namespace kg {

// The sums of one row in `count` parts, one part a lane. Parts before `first` are none.
KG_DEV sums_t load_sums(args_t a, cut_t cut, u32 part, u32 count, u32 item_start, int row,
                        u32 first) {
    sums_t none = {-INFINITE, 0.0f};
    if (late_lane() >= count || (PARTED && part + late_lane() < first)) return none;
    const sums_t *p = partial_sums(a, partial_slot(cut, part + late_lane(), item_start)) + row;
    float x[2];
    load_shared(x, &p->maximum);
    return sums_t{x[0], x[1]};
}

// As sum_up of parts_rows_nvidia.h adds: rows have the same bits whoever merges them.
KG_DEV sums_t total_of(sums_t mine) {
    float top = mine.maximum;
    KG_UNROLL for (u32 m = 1; m < (u32)WAVE; m *= 2) top =
        fmax(top, float_of(shuffle(bits_of(top), late_lane() ^ m)));
    float sum = mine.sum * weight(mine.maximum, top);
    KG_UNROLL for (u32 m = 1; m < (u32)WAVE; m *= 2) sum +=
        float_of(shuffle(bits_of(sum), late_lane() ^ m));
    return sums_t{top, sum};
}

// Parts in batches, all of whose loads are in flight before the first is used: of many parts
// four dims a lane, or, where rows are wide and parts mostly few, of some parts more of them.
// sm_90: 18 workgroups share an eighth of the device's work; the first batch comes while it is
// found out what its parts weigh.
constexpr int WIDE_TURNS = STAGED_MATRICES ? smaller(4, ceil_div(V_DIM, WAVE * 4)) : 1;
constexpr u32 WIDE_BATCH = OCCUPANCY > 1 ? 2 : 8; // half the registers go a quarter as far
template <int TURNS>
constexpr u32 SHUFFLED_BATCH = STAGED_MATRICES ? WIDE_BATCH * (TURNS < WIDE_TURNS ? 2 : 1)
                               : IS_SM90 && OCCUPANCY == 1 && !MERGES_SLICES ? 18
                                                                             : 8;
constexpr bool BATCH_COMES_FIRST =
    IS_SM90 && (MERGES_SLICES || (OCCUPANCY == 1 && !STAGED_MATRICES));
KG_DEV int dim_of_turn(int dim, int turn) {
    dim += turn * WAVE * 4;
    return dim < V_DIM ? dim : 0; // not stored
}
template <int TURNS> struct brought_t {
    float x[SHUFFLED_BATCH<TURNS>][TURNS][4];
};
// `count` parts from `part` on, of which the batch's first is number n.
template <int TURNS>
KG_DEV void bring_some(brought_t<TURNS> &y, args_t a, cut_t cut, u32 part, u32 n, u32 count,
                       u32 item_start, int row, int dim) {
    KG_UNROLL for (u32 j = 0; j < SHUFFLED_BATCH<TURNS>; j++) {
        u32 at = part + (n + j < count ? n + j : count - 1);
        const float *from = partial_row(a, partial_slot(cut, at, item_start), row);
        KG_UNROLL for (int turn = 0; turn < TURNS; turn++)
            load_shared(y.x[j][turn], from + dim_of_turn(dim, turn));
    }
}
// x += sum of weight x partial row; lane n has the weight of part n.
template <int TURNS>
KG_DEV void add_some(float (&x)[TURNS][4], const brought_t<TURNS> &y, u32 n, u32 count,
                     float weight_of_lane) {
    KG_UNROLL for (u32 j = 0; j < SHUFFLED_BATCH<TURNS>; j++) {
        float w = float_of(shuffle(bits_of(weight_of_lane), n + j < WAVE ? n + j : 0));
        w = n + j < count ? w : 0.0f;
        KG_UNROLL for (int turn = 0; turn < TURNS; turn++) KG_UNROLL for (int i = 0; i < 4; i++)
            x[turn][i] += w == 0.0f ? 0.0f : w * y.x[j][turn][i];
    }
}

KG_DEV void store_row(args_t a, const segment_t &g, row_t at, int dim, int end, float (&x)[4],
                      float factor) {
    if (is_joined(g)) {
        if (dim < end) store_shared(joined_out(a, g, at) + dim, x);
        return;
    }
    KG_UNROLL for (int j = 0; j < 4; j++) x[j] = factor == 0.0f ? 0.0f : x[j] * factor;
    if (dim >= end) return;
    gate_out(a, at, dim, x);
    store_out(a, at, dim, x);
}

// A wave merges one row: parts in batches of a wave, dims four a lane. PARTED: a part's
// lane follows from its number, wherever a window begins. amiss: 0, or NaN, which
// everything then is. Dims from `from` to `to`, TURNS x WAVE x 4 at a time; only a slice may end
// within these.
template <int TURNS = WIDE_TURNS>
KG_DEV void merge_row(args_t a, const segment_t &g, cut_t cut, share_t share, int row, row_t at,
                      float amiss, int from = 0, int to = V_DIM) {
    sums_t total = {-INFINITE, 0.0f}, mine = total;
    u32 begin = PARTED ? share.first / WAVE * WAVE : share.first, parts = share.last - begin + 1;
    brought_t<TURNS> y;
    if constexpr (BATCH_COMES_FIRST)
        bring_some(y, a, cut, begin, 0, parts, g.item_start, row, from + (int)late_lane() * 4);
    KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
        mine = load_sums(a, cut, begin + n, parts - n, g.item_start, row, share.first);
        add_sums(total, mine);
    }
    total = total_of(total);
    total.maximum += amiss;
    float top = total.maximum;
    if (!is_joined(g)) add_sink(total, a, at.head);
    float factor = output_factor(total, top, a, g);
    KG_LOOP for (int dims = from; dims < to; dims += TURNS * WAVE * 4) {
        int dim = dims + (int)late_lane() * 4;
        float x[TURNS][4] = {};
        KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
            u32 count = parts - n < (u32)WAVE ? parts - n : (u32)WAVE;
            if (parts > (u32)WAVE)
                mine = load_sums(a, cut, begin + n, count, g.item_start, row, share.first);
            float w = weight(mine.maximum, top);
            KG_LOOP for (u32 m = 0; m < count; m += SHUFFLED_BATCH<TURNS>) {
                if (!BATCH_COMES_FIRST || dims - from + n + m > 0)
                    bring_some(y, a, cut, begin + n, m, count, g.item_start, row, dim);
                add_some(x, y, m, count, w);
            }
        }
        KG_UNROLL for (int turn = 0; turn < TURNS; turn++)
            store_row(a, g, at, dim + turn * WAVE * 4, MERGES_SLICES ? to : V_DIM, x[turn], factor);
    }
    if (late_lane() != 0 || from > 0) return;
    if (is_joined(g))
        store_joined(a, g, at, total);
    else
        store_lse(a, at, total);
}

// MERGES_SLICES: waves take the rows in turn, of a wide row as much as a wave has at once.
static_assert(!MERGES_SLICES || !BRINGERS, "all waves of a cluster have rows");
KG_DEV void merge_slice(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                        float amiss) {
    constexpr int DIMS = WAVE * 4, TURNS = ceil_div(V_DIM, DIMS), EACH = INBOX.quads * 4;
    int first = (int)cluster_rank() * EACH, end = smaller(first + EACH, ROWS * V_DIM);
    KG_LOOP for (int n = first / V_DIM * TURNS + wave; n / TURNS * V_DIM < end; n += ALL_WAVES) {
        int row = n / TURNS, dim = n % TURNS * DIMS;
        int from = larger(first - row * V_DIM, dim);
        int to = smaller(smaller(end - row * V_DIM, dim + DIMS), V_DIM);
        if (from < to && row_exists(g, row))
            merge_row<1>(a, g, cut, share, row, row_at(g, row), amiss, from, to);
    }
}

KG_DEV void merge_by_shuffles(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                              float amiss) {
    KG_LOOP for (int row = wave; row < ROWS; row += ALL_WAVES) {
        row_t at = row_at(g, row);
        if (at.exists) merge_row(a, g, cut, share, row, at, amiss);
    }
}

} // namespace kg

// Merging the parts of an item where a wave has scalars. What a part weighs and where it
// lies are the same in all lanes: each is read from the lane that worked it out. Lanes
// have as few dims as keep all of them busy, a wave may have two rows at a time, and three
// batches of loads are on their way while one is summed. Places are 32-bit offsets.
#pragma once
#include "kg/attn/parts_shuffled.h"

namespace kg {

constexpr int MERGE_DIMS = V_DIM > 2 * WAVE ? 4 : 2; // of a lane
// Of a wave at a time; wide rows leave no scalars for a second.
constexpr bool FEW_ROWS = !UNBOUNDED && GROUP * Q_TOKENS <= ALL_WAVES;
constexpr int MERGE_ROWS = FEW_ROWS || V_DIM / MERGE_DIMS > WAVE ? 1 : 2;
constexpr u32 MERGE_BATCH = 4, MERGE_SETS = 4; // parts of a batch; batches
static_assert(WAVE % (MERGE_BATCH * MERGE_SETS) == 0, "a batch reads lanes that there are");

constexpr u32 SLOT_BYTES = ROWS * V_DIM * 4;
static_assert(2ull * OCCUPANCY * SLOT_BYTES <= (1ull << 32) / 512, "of 512 compute units: 4 GiB");

struct batch_t {
    float x[MERGE_BATCH][MERGE_ROWS][MERGE_DIMS];
};

// The slot of part `from` + lane, or of the last where there are no more.
KG_DEV u32 slot_of_lane(cut_t cut, share_t share, u32 from, u32 item_start) {
    u32 part = share.first + from + late_lane();
    return partial_slot(cut, part < share.last ? part : share.last, item_start);
}

// Of part `from` + lane.
KG_DEV sums_t load_sums(args_t a, u32 slot, u32 from, u32 parts, int row) {
    bool there = from + late_lane() < parts;
    float x[2];
    load_shared(x, &partial_sums(a, slot)[row].maximum);
    return sums_t{there ? x[0] : -INFINITE, there ? x[1] : 0.0f};
}

// Lane n: where part n lies; behind the last lane, of the last batch again. at: the lane's
// dims in a row.
KG_DEV void load_batch(batch_t &y, const float *const (&row)[MERGE_ROWS], u32 place, u32 from,
                       u32 at) {
    u32 first = from < (u32)WAVE - MERGE_BATCH ? from : (u32)WAVE - MERGE_BATCH;
    KG_UNROLL for (u32 j = 0; j < MERGE_BATCH; j++) {
        u32 here = read_lane(place, first + j) + at;
        KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++)
            load_shared(y.x[j][r], (const float *)((const u8 *)row[r] + here));
    }
}

// x += weight x partial row, of `count` parts: lane n has place and weights of part n, and
// what a lane has that has no part weighs nothing.
KG_DEV void add_parts(float (&x)[MERGE_ROWS][MERGE_DIMS], const float *const (&row)[MERGE_ROWS],
                      u32 place, const float (&w)[MERGE_ROWS], u32 count, u32 at_dim) {
    batch_t y[MERGE_SETS];
    KG_UNROLL for (u32 k = 0; k + 1 < MERGE_SETS; k++)
        load_batch(y[k], row, place, k * MERGE_BATCH, at_dim);
    KG_LOOP for (u32 n = 0; n < count; n += MERGE_SETS * MERGE_BATCH)
        KG_UNROLL for (u32 k = 0; k < MERGE_SETS; k++) {
        u32 at = n + k * MERGE_BATCH;
        load_batch(y[(k + MERGE_SETS - 1) % MERGE_SETS], row, place,
                   at + (MERGE_SETS - 1) * MERGE_BATCH, at_dim);
        KG_UNROLL for (u32 j = 0; j < MERGE_BATCH; j++)
            KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++) {
            float weight = float_of(read_lane(bits_of(w[r]), at + j));
            KG_UNROLL for (int i = 0; i < MERGE_DIMS; i++) x[r][i] =
                fma(weight, y[k].x[j][r][i], x[r][i]);
        }
        if (at + MERGE_BATCH >= count) break;
    }
}

// Of all lanes' parts; weights relative to the maximum. amiss: 0, or NaN, which
// everything then is.
KG_DEV sums_t total_of(sums_t mine, float &w, float amiss) {
    float top = max_lanes(mine.maximum) + amiss, sum[1];
    w = weight(mine.maximum, top);
    sum[0] = mine.sum * w;
    sum_lanes<1, WAVE>(sum);
    return sums_t{top, sum[0]};
}

// Four dims a lane, of every second lane where each summed two.
KG_DEV void gather_dims(float (&quad)[4], const float (&x)[MERGE_DIMS]) {
    KG_UNROLL for (int j = 0; j < MERGE_DIMS; j++) {
        quad[j] = x[j];
        if constexpr (MERGE_DIMS == 2)
            quad[j + 2] = float_of(shuffle(bits_of(x[j]), late_lane() ^ 1));
    }
}

KG_DEV void store_merged(args_t a, row_t at, const float (&x)[MERGE_DIMS], int dim, float factor) {
    float quad[4];
    gather_dims(quad, x);
    if (dim >= V_DIM || dim % 4 != 0) return;
    KG_UNROLL for (int j = 0; j < 4; j++) quad[j] = factor == 0.0f ? 0.0f : quad[j] * factor;
    gate_out(a, at, dim, quad);
    store_out(a, at, dim, quad);
}

// Rows `first`, which exists, and those of the wave that follow it.
KG_DEV void merge_rows(args_t a, const segment_t &g, cut_t cut, share_t share, int first,
                       float amiss) {
    u32 parts = (u32)uniform((int)parts_of(share)),
        slot = slot_of_lane(cut, share, 0, g.item_start);
    int row[MERGE_ROWS],
        rows = row_exists(g, first + (MERGE_ROWS - 1) * ALL_WAVES) ? MERGE_ROWS : 1;
    sums_t mine[MERGE_ROWS], total[MERGE_ROWS];
    float w[MERGE_ROWS], top[MERGE_ROWS], factor[MERGE_ROWS];
    const float *from[MERGE_ROWS];
    KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++) {
        row[r] = first + (r < rows ? r * ALL_WAVES : 0);
        from[r] = partial_row(a, 0, row[r]);
        mine[r] = load_sums(a, slot, 0, parts, row[r]);
    }
    KG_LOOP for (u32 n = WAVE; n < parts; n += WAVE) {
        u32 far = slot_of_lane(cut, share, n, g.item_start);
        KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++)
            add_sums(mine[r], load_sums(a, far, n, parts, row[r]));
    }
    KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++) {
        total[r] = total_of(mine[r], w[r], amiss);
        top[r] = total[r].maximum;
        add_sink(total[r], a, row_at(g, row[r]).head);
        factor[r] = output_factor(total[r], top[r], a, g);
    }
    KG_LOOP for (int dims = 0; dims < V_DIM; dims += WAVE * MERGE_DIMS) {
        int dim = dims + (int)late_lane() * MERGE_DIMS;
        float x[MERGE_ROWS][MERGE_DIMS] = {};
        KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
            if (parts > (u32)WAVE) {
                slot = slot_of_lane(cut, share, n, g.item_start);
                KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++) w[r] =
                    weight(load_sums(a, slot, n, parts, row[r]).maximum, top[r]);
            }
            u32 count = parts - n < (u32)WAVE ? parts - n : (u32)WAVE;
            add_parts(x, from, slot * SLOT_BYTES, w, count, dim < V_DIM ? (u32)dim * 4 : 0);
        }
        args_t b = reread(a); // not held while parts are added
        KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++) if (r < rows)
            store_merged(b, row_at(g, row[r]), x[r], dim, factor[r]);
    }
    if (late_lane() != 0) return;
    args_t b = reread(a);
    KG_UNROLL for (int r = 0; r < MERGE_ROWS; r++) if (r < rows)
        store_lse(b, row_at(g, row[r]), total[r]);
}

// Rows that waves have at once (kg/attn/together.h).
constexpr u32 PIECES = ceil_div(ROWS, ALL_WAVES *MERGE_ROWS);
KG_DEV void merge_piece(args_t a, const segment_t &g, cut_t cut, share_t share, u32 n, int wave,
                        u8 *) {
    int row = (int)n * ALL_WAVES * MERGE_ROWS + wave;
    if (row < ROWS && row_exists(g, row)) merge_rows(a, g, cut, share, row, 0.0f);
}

// CASCADE has no scalars left for it, and reads arguments again for each row; of PARTED, a part
// has the lane of its number.
KG_DEV void merge_parts(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                        float amiss, u8 *) {
    constexpr bool SHUFFLED = CASCADE || PARTED;
    constexpr int ROWS_AT_ONCE = SHUFFLED ? 1 : MERGE_ROWS;
    KG_LOOP for (int row = wave; row < ROWS; row += ALL_WAVES * ROWS_AT_ONCE) {
        if (!row_exists(g, row)) continue;
        if constexpr (SHUFFLED)
            merge_row(reread(a), g, cut, share, row, row_at(g, row), amiss);
        else
            merge_rows(a, g, cut, share, row, amiss);
    }
}

// No workgroup reads another's LDS here.
KG_DEV void give_quad(u8 *, int, int, const float (&)[4]) {}
KG_DEV void give_sum(u8 *, int, sums_t) {}
KG_DEV void ask_ahead(args_t, u8 *) {}
KG_DEV void open_inbox(u8 *, int) {}
KG_DEV void offer_inbox() {}
KG_DEV void await_inboxes() {}
KG_DEV void merge_in_cluster(args_t, const segment_t &, u32, u8 *, int) {}

// RUNS_AHEAD: of sm_90.
KG_DEV void settle_few(args_t, const segment_t &, cut_t, u8 *, int) {}

} // namespace kg

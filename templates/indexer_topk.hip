#include "kg/prelude/prelude_indexer.h"
// The largest logits of each row: a workgroup a row. Formula and arguments:
// <kgen/indexer_args.h>.
//
// Three times the row is counted by the next bits of its numbers, as integers that have
// their order, so the smallest number that is still chosen is known to the last bit, and
// how many that are equal to it. Then each wave counts what it will write of its part of
// the row, and writes it: what comes out has one order and needs no atomics.
#include "kg/indexer/index_lds.h"
#include "kg/indexer/index_page.h"

namespace kg {

constexpr int THREADS = KG_WORKGROUP;
constexpr int BINS = KG_INDEX_BINS, LANE_BINS = ceil_div(BINS, THREADS);
constexpr int SUMS_AT = BINS, FOUND_AT = SUMS_AT + 2 * WAVES; // words of LDS
constexpr int LDS_USED = (FOUND_AT + 4) * 4;
// Loads of a lane in flight, while bins are counted and while waves go through their parts.
constexpr int AHEAD = IS_SM90 ? 8 : 4, PART_AHEAD = IS_SM90 ? 8 : 1;
// A table is asked when all is chosen, or a wave would wait for it time and again.
constexpr bool TOLD_LAST = IS_SM90 && TO == TO_SLOT;

struct row_t {
    const float *logits; // of its first column
    int start, length, number;
};

KG_DEV row_t row_at(args_t a, int number) {
    int start = 0, end;
    if constexpr (RANGES != 0) {
        start = within(load_int<LEN_I64>(a.starts, number), 0, a.width);
        end = within(load_int<LEN_I64>(a.ends, number), start, a.width);
    } else {
        i64 length = load_int<LEN_I64>(a.seq_lens, number / Q_TOKENS);
        end = within(length - Q_TOKENS + 1 + number % Q_TOKENS, 0, a.width);
    }
    return row_t{a.logits + (number * a.logits_row + start), start, end - start, number};
}

// In the order of the numbers; -0 is 0.
KG_DEV u32 order_of(float x) {
    u32 u = bits_of(x);
    if (u == 0x80000000u) u = 0;
    return u >> 31 ? ~u : u | 0x80000000u;
}

// A column of the row that was chosen, as the caller wants it; -1: none.
KG_DEV i32 told(args_t a, const row_t &row, int index) {
    if constexpr (TO == TO_COLUMN) return row.start + index;
    if constexpr (TO != TO_SLOT) return index;
    i64 m = a.requests ? (i64)load(a.requests + row.number) : (i64)(row.number / Q_TOKENS);
    if (m < 0 || m >= a.table_rows) return -1;
    place_t p = page_and_slot(a, (u32)index);
    i64 page = entry_of(a, m, p.page);
    return page < 0 ? -1 : (i32)((u64)page * (u32)a.page + (u32)p.slot);
}

KG_DEV void put(args_t a, const row_t &row, int at, i32 x) {
    store(a.indices + (row.number * a.indices_row + at), x);
}

KG_DEV void tell_all(args_t a, const row_t &row) {
    KG_LOOP for (int i = (int)thread_id(); i < a.chosen; i += THREADS)
        put(a, row, i, i < row.length ? told(a, row, i) : -1);
}

// A column, of those before `end`. On sm_90 the last one instead of those behind it: where loads
// hang on conditions each waits for the one before.
KG_DEV float number_at(const row_t &row, int i, int end) {
    if constexpr (IS_SM90) return load(row.logits + smaller(i, end - 1));
    return i < end ? load(row.logits + i) : 0.0f;
}
KG_DEV u32 order_at(const row_t &row, int i, int end) {
    if constexpr (IS_SM90) return order_of(number_at(row, i, end));
    return i < end ? order_of(load(row.logits + i)) : 0;
}

// --- the smallest that is chosen -------------------------------------------------

struct edge_t {
    u32 order; // its leading bits, and zeros
    int equal; // how many of those that have them are chosen
};

KG_DEV void count_bins(const row_t &row, u32 *bins, edge_t edge, u32 known, u32 shift, u32 most) {
    KG_LOOP for (int i = (int)thread_id(); i < BINS; i += THREADS) bins[i] = 0;
    barrier();
    KG_LOOP for (int first = (int)thread_id(); first < row.length; first += THREADS * AHEAD) {
        float x[AHEAD];
        u32 before = 0;
        KG_UNROLL for (int n = 0; n < AHEAD; n++) x[n] =
            number_at(row, first + n * THREADS, row.length);
        KG_UNROLL for (int n = 0; n < AHEAD; n++) {
            u32 order = order_of(x[n]);
            bool counts = first + n * THREADS < row.length && (order & known) == edge.order;
            if (counts) before += count_one(bins + (order >> shift & most));
        }
        returned(before);
    }
    barrier();
}

// Counts of the lanes before this one in the workgroup; all lanes call it.
KG_DEV u32 sum_before(u32 mine, u32 *sums, int wave) {
    u32 lane = lane_id(), sum = mine, before = 0;
    KG_UNROLL for (u32 step = 1; step < (u32)WAVE; step *= 2) {
        u32 other = shuffle(sum, lane >= step ? lane - step : lane);
        sum += lane >= step ? other : 0;
    }
    if (lane == (u32)WAVE - 1) sums[wave] = sum;
    barrier();
    KG_UNROLL for (int w = 0; w < WAVES; w++) before += w < wave ? sums[w] : 0;
    return before + sum - mine;
}

// The bin in which the number of the edge lies, from the largest down.
KG_DEV void narrow_edge(edge_t &edge, u32 *lds, u32 shift, int wave) {
    u32 *bins = lds, *found = lds + FOUND_AT, mine = 0;
    int first = BINS - 1 - (int)thread_id() * LANE_BINS;
    KG_UNROLL for (int n = 0; n < LANE_BINS; n++) mine += first - n >= 0 ? bins[first - n] : 0;
    u32 before = sum_before(mine, lds + SUMS_AT, wave), need = (u32)edge.equal;
    KG_UNROLL for (int n = 0; n < LANE_BINS; n++) {
        u32 here = first - n >= 0 ? bins[first - n] : 0;
        if (before < need && before + here >= need) {
            found[0] = (u32)(first - n);
            found[1] = need - before;
        }
        before += here;
    }
    barrier();
    edge.order |= found[0] << shift;
    edge.equal = (int)found[1];
    barrier();
}

KG_DEV edge_t find_edge(args_t a, const row_t &row, u32 *lds, int wave) {
    edge_t edge = {0, a.chosen};
    count_bins(row, lds, edge, 0, 21, 2047);
    narrow_edge(edge, lds, 21, wave);
    count_bins(row, lds, edge, 0xffe00000u, 10, 2047);
    narrow_edge(edge, lds, 10, wave);
    count_bins(row, lds, edge, 0xfffffc00u, 0, 1023);
    narrow_edge(edge, lds, 0, wave);
    return edge;
}

// --- what comes out ----------------------------------------------------------------

struct part_t {
    int first, end; // columns of a wave
};
KG_DEV part_t part_of(const row_t &row, int wave) {
    int each = ceil_div(ceil_div(row.length, WAVES), WAVE) * WAVE, first = wave * each;
    return part_t{smaller(first, row.length), smaller(first + each, row.length)};
}

// Of a wave's part: above the edge, and equal to it.
KG_DEV void count_part(const row_t &row, part_t part, u32 edge, u32 *sums, int wave) {
    u32 above = 0, equal = 0;
    KG_LOOP for (int first = part.first; first < part.end; first += PART_AHEAD * WAVE) {
        int i = first + (int)lane_id();
        u32 orders[PART_AHEAD];
        KG_UNROLL for (int n = 0; n < PART_AHEAD; n++) orders[n] =
            order_at(row, i + n * WAVE, part.end);
        KG_UNROLL for (int n = 0; n < PART_AHEAD; n++, i += WAVE) {
            u32 order = orders[n];
            above += bit_count(ballot(i < part.end && order > edge));
            equal += bit_count(ballot(i < part.end && order == edge));
        }
    }
    if (lane_id() == 0) {
        sums[2 * wave] = above;
        sums[2 * wave + 1] = equal;
    }
}

KG_DEV void tell_part(args_t a, const row_t &row, part_t part, edge_t edge, int above, int equal) {
    u32 lane = lane_id();
    u64 below = ((u64)1 << lane) - 1;
    int at = above + smaller(equal, edge.equal);
    KG_LOOP for (int first = part.first; first < part.end; first += PART_AHEAD * WAVE) {
        int i = first + (int)lane;
        u32 orders[PART_AHEAD];
        KG_UNROLL for (int n = 0; n < PART_AHEAD; n++) orders[n] =
            order_at(row, i + n * WAVE, part.end);
        KG_UNROLL for (int n = 0; n < PART_AHEAD; n++, i += WAVE) {
            u32 order = orders[n];
            u64 equals = ballot(i < part.end && order == edge.order);
            int rank = equal + (int)bit_count(equals & below);
            bool chosen =
                i < part.end && (order > edge.order || (order == edge.order && rank < edge.equal));
            u64 all = ballot(chosen);
            if (chosen)
                put(a, row, at + (int)bit_count(all & below), TOLD_LAST ? i : told(a, row, i));
            at += (int)bit_count(all);
            equal += (int)bit_count(equals);
        }
    }
}

// What was chosen is in memory; each lane looks up some.
KG_DEV void tell_slots(args_t a, const row_t &row) {
    barrier();
    KG_LOOP for (int i = (int)thread_id(); i < a.chosen; i += THREADS)
        put(a, row, i, told(a, row, load(a.indices + (row.number * a.indices_row + i))));
}

KG_DEV void run(args_t a, u32 *lds) {
    row_t row = row_at(a, (int)group_id());
    int wave = (int)wave_id();
    if (row.length <= a.chosen) {
        tell_all(a, row);
        return;
    }
    edge_t edge = find_edge(a, row, lds, wave);
    part_t part = part_of(row, wave);
    u32 *sums = lds + SUMS_AT;
    count_part(row, part, edge.order, sums, wave);
    barrier();
    int above = 0, equal = 0;
    KG_UNROLL for (int w = 0; w < WAVES; w++) {
        above += w < wave ? (int)sums[2 * w] : 0;
        equal += w < wave ? (int)sums[2 * w + 1] : 0;
    }
    tell_part(a, row, part, edge, above, equal);
    if constexpr (TOLD_LAST) tell_slots(a, row);
}

} // namespace kg

KG_ENTRY(kg_indexer_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_indexer_args, args), (u32 *)lds);
}

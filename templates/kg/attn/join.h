// Workgroups that count themselves, and CASCADE: the rows of a sequence that shares a
// prefix. Such a row has two results, that of its group's item, where it is one of many,
// and that of its sequence's own. Both go to the workspace, and who comes last joins them.
// Counted is for each row block of a sequence: it and the row blocks of the group that
// have some of its rows.
#pragma once
#include "kg/attn/clusters.h"
#include "kg/attn/output.h"
#include "kg/core/arrival.h"

namespace kg {

// Each workgroup says whose launch it is. Where launches overlap, those that did
// not say so last find it out.
KG_DEV void take_workspace(args_t a) {
    if (thread_id() == 0) atomic_store(&a.workspace->owner, a.ticket);
}

// Of an item that is cut among clusters each workgroup merges what it merges of its own cluster's
// parts, a slice: nobody waits for the cluster's others, and all of the last one's merge. As many
// rows as it has waves the first workgroup merges as soon; half the registers are too few.
constexpr bool MERGES_SLICES =
    CLUSTER != 0 && !PAIRED && ROWS > ALL_WAVES && !(STAGED && OCCUPANCY > 1);

// Where items are without number, that of the first workgroup to share it: it has one
// item that it begins and does not end. Of a slice, of the first cluster.
KG_DEV u64 *counter_of(args_t a, const segment_t &g, const share_t &share) {
    if constexpr (MERGES_SLICES)
        return counter_at(a.workspace, share.first * CLUSTER_SIZE + cluster_rank());
    if constexpr (UNBOUNDED || CASCADE) return counter_at(a.workspace, share.first);
    i64 number = ((i64)g.seq.index * a.kv_heads + g.kv_head) * ROW_BLOCKS + g.row_block;
    return counter_at(a.workspace, (u64)number);
}

// W: of whom the workgroup is one, parts_of it, who count at counter_of it. For one thread.
template <class W> KG_DEV arrival_t count_in(args_t a, const segment_t &g, const W &those) {
    u32 owner = atomic_load(&a.workspace->owner);
    u64 before = atomic_add(counter_of(a, g, those), counted<u64>(a.ticket));
    arrival_t how = arrival_of(before, a.ticket, parts_of(those));
    return owner == a.ticket ? how : ARRIVED_AMISS;
}
template <class W> KG_DEV arrival_t arrive(args_t a, const segment_t &g, const W &those, u8 *lds) {
    int *flag = (int *)(lds + LDS_FLAG);
    release_device();
    meet_rows();
    if (late_thread() == 0) *flag = count_in(a, g, those);
    meet_rows();
    arrival_t how = (arrival_t)*flag;
    if (how != ARRIVED) acquire_device();
    return how;
}

KG_DEV void report_workspace(args_t a, int seq) {
    call_broken(a.workspace);
    seq = (int)opaque((u32)seq); // or its place waits from where its length was read
    if (a.error) atomic_or(a.error + seq, BAD_WORKSPACE);
}

KG_DEV float *partial_row(args_t a, u32 slot, int row) {
    return a.partial_out + ((u64)slot * SLOT_ROWS + (u64)row) * V_DIM;
}
KG_DEV sums_t *partial_sums(args_t a, u32 slot) {
    return (sums_t *)a.partial_ml + (u64)slot * SLOT_ROWS;
}
KG_DEV u32 parts_of(const share_t &share) { return share.last - share.first + 1; }

// --- rows of two results ------------------------------------------------------

KG_DEV bool is_joined(const segment_t &g) { return CASCADE && asked((u32)g.seq.shared) != 0; }

// Of the prefix (0), or of what follows it (1).
KG_DEV i64 joined_row(args_t a, int half, row_t row) {
    i64 rows = (i64)a.kv_heads * GROUP;
    return (half * (i64)a.num_tokens + row.token) * rows + row.head;
}
KG_DEV float *joined_out(args_t a, const segment_t &g, row_t row) {
    return a.joined_out + joined_row(a, g.seq.shared > 0, row) * V_DIM;
}
KG_DEV void store_joined(args_t a, const segment_t &g, row_t row, sums_t total) {
    float *p = a.joined_ml + joined_row(a, g.seq.shared > 0, row) * 2;
    store_shared(p, total.maximum, total.sum);
}
KG_DEV sums_t joined_sums(args_t a, int half, row_t row) {
    float x[2];
    load_shared(x, a.joined_ml + joined_row(a, half, row) * 2);
    return sums_t{x[0], x[1]};
}

// --- what becomes of a row ------------------------------------------------------

// Four dims of it: left for the workgroups that merge, for a second result of the row, or
// final. factor(): what they are then multiplied by.
template <class F>
KG_DEV void pass_quad(args_t a, const segment_t &g, row_t row, u32 slot, int place, int dim,
                      float (&x)[4], const F &factor_of) {
    if (!is_whole(g)) {
        store_shared(partial_row(a, slot, place) + dim, x);
        return;
    }
    if (is_joined(g)) {
        store_shared(joined_out(a, g, row) + dim, x);
        return;
    }
    float factor = factor_of();
    KG_UNROLL for (int j = 0; j < 4; j++) x[j] = factor == 0.0f ? 0.0f : x[j] * factor;
    gate_out(a, row, dim, x);
    store_out(a, row, dim, x);
}
KG_DEV float factor_of_row(args_t a, const segment_t &g, row_t row, sums_t total) {
    float top = total.maximum;
    add_sink(total, a, row.head);
    return output_factor(total, top, a, g);
}
KG_DEV void pass_sum(args_t a, const segment_t &g, row_t row, u32 slot, int place, sums_t total) {
    if (!is_whole(g)) {
        store_shared(&partial_sums(a, slot)[place].maximum, total.maximum, total.sum);
        return;
    }
    if (is_joined(g)) {
        store_joined(a, g, row, total);
        return;
    }
    add_sink(total, a, row.head);
    store_lse(a, row, total);
}

// --- joining --------------------------------------------------------------------

// A wave joins a row. amiss: 0, or NaN, which everything then is.
KG_DEV void join_row(args_t a, const segment_t &g, row_t row, float amiss) {
    sums_t total = {-INFINITE, 0.0f}, half[2];
    KG_UNROLL for (int n = 0; n < 2; n++) {
        half[n] = joined_sums(a, n, row);
        add_sums(total, half[n]);
    }
    total.maximum += amiss;
    float top = total.maximum;
    add_sink(total, a, row.head);
    float factor = output_factor(total, top, a, g);
    KG_LOOP for (int dim = (int)late_lane() * 4; dim < V_DIM; dim += WAVE * 4) {
        float x[4] = {0, 0, 0, 0}, y[2][4];
        KG_UNROLL for (int n = 0; n < 2; n++)
            load_shared(y[n], a.joined_out + joined_row(a, n, row) * V_DIM + dim);
        KG_UNROLL for (int n = 0; n < 2; n++) {
            float w = weight(half[n].maximum, top);
            KG_UNROLL for (int j = 0; j < 4; j++) x[j] += w == 0.0f ? 0.0f : w * y[n][j];
        }
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] = factor == 0.0f ? 0.0f : x[j] * factor;
        gate_out(a, row, dim, x);
        store_out(a, row, dim, x);
    }
    if (late_lane() == 0) store_lse(a, row, total);
}

// A row block of a sequence: rows `from` to `end` of its own, which are `begin` and
// following of its group.
struct meeting_t {
    int seq, start, block, begin, from, end;
};
KG_DEV meeting_t meeting_of(const group_t &group, int seq, int start, int count, int block) {
    int rows = (UNBOUNDED ? count : smaller(count, Q_TOKENS)) * GROUP, from = block * ROWS;
    return meeting_t{
        seq, start, block, (start - group.start) * GROUP, from, smaller(from + ROWS, rows)};
}
KG_DEV u32 parts_of(const meeting_t &m) {
    return (u32)((m.begin + m.end - 1) / ROWS - (m.begin + m.from) / ROWS + 2);
}
// Row blocks of all sequences before take no more than that many numbers.
KG_DEV u64 *counter_of(args_t a, const segment_t &g, const meeting_t &m) {
    i64 block = UNBOUNDED ? (i64)m.start * GROUP / ROWS + m.seq : (i64)m.seq * ROW_BLOCKS;
    i64 number = a.workgroups + (block + m.block) * a.kv_heads + g.kv_head;
    return counter_at(a.workspace, (u64)number);
}

// Wave number `first` of `waves`.
KG_DEV void join_rows(args_t a, const segment_t &g, const meeting_t &m, int first, int waves,
                      arrival_t how) {
    segment_t of_seq = g;
    of_seq.seq.index = m.seq;
    float amiss = how == ARRIVED_LAST ? 0.0f : float_of(0x7fc00000);
    KG_LOOP for (int row = m.from + first; row < m.end; row += waves) {
        row_t at = {true, m.start + row / GROUP, g.kv_head * GROUP + row % GROUP};
        join_row(reread(a), of_seq, at, amiss);
    }
}

KG_DEV void join_sequence(args_t a, const segment_t &g, u8 *lds, int wave) {
    int number = uniform(group_of(a, (int)opaque((u32)g.seq.index)));
    group_t group = group_of_wave(a, number);
    meeting_t m = meeting_of(group, g.seq.index, g.seq.q_start, g.seq.q_len, g.row_block);
    arrival_t how = arrive(a, g, m, lds);
    if (how != ARRIVED) join_rows(a, g, m, wave, ALL_WAVES, how);
    if (how == ARRIVED_AMISS && late_thread() == 0) report_workspace(a, m.seq);
    meet_rows();
    if (how == ARRIVED_LAST && late_thread() == 0) store(counter_of(a, g, m), COUNTER_AT_REST<u64>);
}

// Of the lane's sequence, the row block numbered `n` of those that share rows with the
// group's row block: two at most.
KG_DEV bool meets(meeting_t &m, args_t a, const segment_t &g, const group_t &group, int seq,
                  int n) {
    if (seq >= group.end) return false;
    extent_t e = extent_of(a, seq);
    if (e.shared == 0 || e.group != g.seq.line) return false;
    int low = g.row_block * ROWS - (e.start - group.start) * GROUP;
    m = meeting_of(group, seq, e.start, e.count, larger(low, 0) / ROWS + n);
    return m.from < smaller(m.end, low + ROWS) && m.end > low;
}

KG_DEV arrival_t arrive_alone(args_t a, const segment_t &g, const meeting_t &m) {
    u64 before = atomic_add(counter_of(a, g, m), counted<u64>(a.ticket));
    arrival_t how = arrival_of(before, a.ticket, parts_of(m));
    return atomic_load(&a.workspace->owner) == a.ticket ? how : ARRIVED_AMISS;
}

// Not in scalars, of which the key loop leaves few.
KG_DEV int of_lane(int x, u32 lane) { return (int)shuffle((u32)x, lane); }

// Each wave has some of the group's sequences, one a lane, and joins those that are done.
KG_DEV void join_group(args_t args, const segment_t &g, int wave) {
    group_t group = group_of_wave(args, g.seq.line);
    release_device();
    meet_rows();
    KG_LOOP for (int base = group.first; base < group.end; base += WAVE * ALL_WAVES)
        KG_LOOP for (int n = 0; n < 2; n++) {
        args_t a = reread(args); // or all of them are held
        meeting_t mine = {0, 0, 0, 0, 0, 0};
        arrival_t how = ARRIVED;
        if (meets(mine, a, g, group, base + (int)late_lane() * ALL_WAVES + wave, n))
            how = arrive_alone(a, g, mine);
        u64 done = ballot(how != ARRIVED);
        if (done) acquire_device();
        KG_LOOP while (done) {
            u32 lane = first_bit(done);
            done &= done - 1;
            meeting_t m = {of_lane(mine.seq, lane),   of_lane(mine.start, lane),
                           of_lane(mine.block, lane), of_lane(mine.begin, lane),
                           of_lane(mine.from, lane),  of_lane(mine.end, lane)};
            arrival_t its = (arrival_t)of_lane((int)how, lane);
            join_rows(a, g, m, 0, 1, its);
            if (its == ARRIVED_LAST && late_lane() == 0)
                store(counter_of(a, g, m), COUNTER_AT_REST<u64>);
            if (its == ARRIVED_AMISS && late_lane() == 0) report_workspace(a, m.seq);
        }
    }
}

// All keys of the item are in the workspace.
KG_DEV void join(args_t a, const segment_t &g, u8 *lds, int wave) {
    if (g.seq.shared < 0)
        join_group(a, g, wave);
    else
        join_sequence(a, g, lds, wave);
}

} // namespace kg

// CLUSTER workgroups that read each other's LDS stand in the line as one: a part of it is theirs,
// they share the blocks of each of its segments, and merge them in LDS. Few items of about one
// length are not cut: clusters take whole ones in turn, nothing is looked for in the line, and
// nothing goes by way of memory. For few items, of which workgroups by themselves would merge for
// as long as they read.
#pragma once
#include "kg/attn/work.h"

namespace kg {

KG_DEV u32 cluster_rank() { return group_id() % CLUSTER_SIZE; }
// Who has a part of an item: a workgroup, or each of its KEY_GROUPS.
constexpr u32 MEMBERS = CLUSTER_SIZE * KEY_GROUPS;
KG_DEV u32 member(int wave) { return cluster_rank() * KEY_GROUPS + (u32)key_group(wave); }
KG_DEV u32 items_of_seq(args_t a) { return (u32)a.kv_heads * ROW_BLOCKS; }
KG_DEV u32 items_of(args_t a) { return (u32)a.num_seqs * items_of_seq(a); }

// --- whole items ------------------------------------------------------------

// Such work has no cut.
KG_DEV bool has_whole_items(const work_t &w) { return CLUSTER && w.cut.each == 0; }

// Cutting takes as long as a workgroup reads that many blocks for: the line is looked through, and
// parts go to memory and back, of many rows (BY_MATRICES) twice as long. Memory is as fast as that
// many units ask for, unless they convert.
constexpr u32 CUT_BYTES = (38 << 10) * WAVES * V_SPLIT * (BY_MATRICES ? 2 : 1);
constexpr u32 BLOCK_BYTES = TOK * (STAGED ? HEAD_DIM : HEAD_DIM + V_DIM) * KV_BITS / 8;
constexpr u32 CUT_COST = CUT_BYTES / BLOCK_BYTES * CLUSTER_SIZE;
constexpr u32 MOST_BUSY = (KV_BITS < 16 ? 132 : 80) * OCCUPANCY / CLUSTER_SIZE; // clusters

// Items of a cluster, where they are not cut.
KG_DEV u32 turns_of(args_t a) {
    u32 clusters = takers_of(a), items = items_of(a);
    return items > clusters ? divide(items + clusters - 1, clusters) : 1;
}
// Nobody waits for a length where no row of the table is long enough.
KG_DEV bool may_be_cut(args_t a, u32 turns) {
    return (u64)((u32)a.table_keys / TOK + 1) * turns > CUT_COST;
}
KG_DEV bool is_worth_cutting(args_t a, u32 turns) {
    u32 longest = 0, mine = 0, clusters = takers_of(a); // in blocks
    KG_LOOP for (int s = (int)lane_id(); s < a.num_seqs; s += WAVE) {
        seq_t seq = seq_at(a, s);
        if (seq.items && seq.blocks > longest) longest = seq.blocks;
        mine += seq.blocks * seq.items;
    }
    u64 most = (u64)longest * turns;
    if (!any(most > CUT_COST)) return false;
    u32 all = wave_sum(mine), busy = clusters < MOST_BUSY ? clusters : MOST_BUSY;
    return any(most > CUT_COST && (most - CUT_COST) * busy > all);
}

// A unit is an item here. The sequence of item `unit`, as each lane looks it up.
KG_DEV void find_item(work_t &w, args_t a) {
    u32 line = divide(w.unit, items_of_seq(a));
    w.seq_start = line * items_of_seq(a);
    w.seq = seq_at(a, (int)line);
}

KG_DEV segment_t item_of_cluster(const work_t &w, args_t a) {
    segment_t g = {};
    u32 at = w.unit - w.seq_start;
    int first = first_block(a, w.seq.first_key);
    g.seq = w.seq;
    g.kv_head = (int)(at / ROW_BLOCKS);
    g.row_block = (int)(at % ROW_BLOCKS);
    g.see = sight_t{w.seq.first_key, w.seq.kv_len - 1};
    g.block = first;
    g.block_end = first + (int)w.seq.blocks;
    g.whole = true;
    g.shares = g.row_block < row_blocks_of(w.seq.q_len);
    return g;
}

KG_DEV void next_item(work_t &w, args_t a) {
    w.unit += w.jump;
    if (w.unit >= w.end) return;
    find_item(w, a);
    w.seq = seq_of_lane(a, w.seq, 0); // no lane goes ahead of others, whose work waits in LDS
}

// --- of a cluster -----------------------------------------------------------

KG_DEV work_t cluster_begin(args_t a) {
    u32 turns = turns_of(a);
    if (may_be_cut(a, turns) && is_worth_cutting(a, turns)) return work_begin(a);
    work_t w = {};
    w.unit = taker();
    w.end = items_of(a);
    w.jump = takers_of(a);
    if (w.unit < w.end) find_item(w, a);
    return w;
}

// A member has some of the segment's blocks. They are cut where sets of them begin.
constexpr u32 CUT_BLOCKS = KG_ATTN_CUT_KEYS / TOK;
KG_DEV int share_from(u32 blocks, u32 n) {
    u32 sets = (blocks + CUT_BLOCKS - 1) / CUT_BLOCKS;
    u32 at = sets * n / MEMBERS * CUT_BLOCKS;
    return (int)(at < blocks ? at : blocks);
}
KG_DEV segment_t cluster_segment(const work_t &w, args_t a, int wave) {
    segment_t g = has_whole_items(w) ? item_of_cluster(w, a) : work_segment(w, a);
    u32 blocks = (u32)(g.block_end - g.block), n = member(wave);
    g.block_end = g.block + share_from(blocks, n + 1);
    g.block += share_from(blocks, n);
    return g;
}

// --- either way -------------------------------------------------------------

KG_DEV work_t first_work(args_t a) { return CLUSTER ? cluster_begin(a) : work_begin(a); }
KG_DEV segment_t segment_at(const work_t &w, args_t a, int wave) {
    return CLUSTER ? cluster_segment(w, a, wave) : work_segment(w, a);
}

} // namespace kg

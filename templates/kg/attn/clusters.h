// CLUSTER workgroups that read each other's LDS share each item, and merge its parts there: no
// trip to memory and no count of who came. For few items, of which others would merge for as long
// as they read. Nothing is looked for in the line: items go to clusters in turn, and an item's
// blocks to its workgroups alike.
#pragma once
#include "kg/attn/work.h"

namespace kg {

constexpr u32 CLUSTER_SIZE = larger(CLUSTER, 1);

// Blocks are cut where sets of them begin.
constexpr u32 CUT_BLOCKS = KG_ATTN_CUT_KEYS / TOK;
KG_DEV u32 cluster_cut(u32 blocks, u32 rank) {
    u32 sets = (blocks + CUT_BLOCKS - 1) / CUT_BLOCKS;
    u32 at = sets * rank / CLUSTER_SIZE * CUT_BLOCKS;
    return at < blocks ? at : blocks;
}

KG_DEV u32 cluster_rank() { return group_id() % CLUSTER_SIZE; }
KG_DEV u32 items_of_seq(args_t a) { return (u32)a.kv_heads * ROW_BLOCKS; }

// The sequence of item `unit`, as each lane looks it up.
KG_DEV void find_item(work_t &w, args_t a) {
    u32 line = divide(w.unit, items_of_seq(a));
    w.seq_start = line * items_of_seq(a);
    w.seq = seq_at(a, (int)line);
}

// A unit is an item here.
KG_DEV work_t cluster_begin(args_t a) {
    work_t w = {};
    w.cut.part = group_id();
    w.unit = group_id() / CLUSTER_SIZE;
    w.end = (u32)a.num_seqs * items_of_seq(a);
    w.jump = (u32)a.workgroups / CLUSTER_SIZE;
    if (w.unit < w.end) find_item(w, a);
    return w;
}

KG_DEV segment_t cluster_segment(const work_t &w, args_t a) {
    segment_t g = {};
    u32 at = w.unit - w.seq_start, rank = cluster_rank();
    int first = first_block(a, w.seq.first_key);
    g.seq = w.seq;
    g.kv_head = (int)(at / ROW_BLOCKS);
    g.row_block = (int)(at % ROW_BLOCKS);
    g.see = sight_t{w.seq.first_key, w.seq.kv_len - 1};
    g.block = first + (int)cluster_cut(w.seq.blocks, rank);
    g.block_end = first + (int)cluster_cut(w.seq.blocks, rank + 1);
    g.shares = g.row_block < row_blocks_of(w.seq.q_len);
    return g;
}

KG_DEV void cluster_advance(work_t &w, args_t a) {
    w.unit += w.jump;
    if (w.unit >= w.end) return;
    find_item(w, a);
    w.seq = seq_of_lane(a, w.seq, 0); // no lane goes ahead of others, whose work waits in LDS
}

// --- either way -------------------------------------------------------------

KG_DEV work_t first_work(args_t a) { return CLUSTER ? cluster_begin(a) : work_begin(a); }
KG_DEV segment_t segment_at(const work_t &w, args_t a) {
    return CLUSTER ? cluster_segment(w, a) : work_segment(w, a);
}
KG_DEV void go_on(work_t &w, const segment_t &g, args_t a) {
    if constexpr (CLUSTER != 0)
        cluster_advance(w, a);
    else
        work_advance(w, g, a);
}

} // namespace kg

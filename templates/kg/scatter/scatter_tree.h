// Trees of drafts: from parents to positions, links and masks. A node's parent
// has a smaller slot, so every walk ends at the root, slot 0.
#pragma once
#include "kg/scatter/scatter_num.h"

namespace kg {

constexpr i32 NO_PARENT = -1, ROOT = -2;

struct nodes_t {
    i64 ids[TREE_MAX]; // flat ids of the candidates
    i32 parent[TREE_MAX];
};

KG_DEV i64 link_at(const void *p, i64 row, i64 n, i64 i) {
    return load_int<LINK_I64>(p, n * row + i);
}
KG_DEV void set_link(void *p, i64 row, i64 n, i64 i, i64 x) {
    store_int<LINK_I64>(p, n * row + i, x);
}

// --- parents -----------------------------------------------------------------

// The slot before j with flat id `id`.
KG_DEV i32 slot_of(const nodes_t &t, i64 id, int j) {
    for (int i = 1; i < j; i++)
        if (t.ids[i] == id) return i;
    return NO_PARENT;
}

KG_DEV i32 parent_from_ids(args_t a, const nodes_t &t, int n, int j) {
    i64 group = t.ids[j] < 0 ? -1 : t.ids[j] / a.topk;
    if (group == 0) return 0;
    i32 parent = NO_PARENT;
    if (group > 0 && group < a.parents_width)
        parent = slot_of(t, link_at(a.parents, a.parents_row, n, group), j);
    if (parent < 0) flag(a, BAD_TREE);
    return parent;
}

KG_DEV u64 word_at(const void *p, i64 i) {
    if constexpr (WORD == 10)
        return load((const u8 *)p + i);
    else if constexpr (WORD == 11)
        return load((const u16 *)p + i);
    else if constexpr (WORD == 9)
        return load((const u64 *)p + i);
    else
        return load((const u32 *)p + i);
}
KG_DEV void store_word(void *p, i64 i, u64 x) {
    if constexpr (WORD == 10)
        store((u8 *)p + i, (u8)x);
    else if constexpr (WORD == 11)
        store((u16 *)p + i, (u16)x);
    else if constexpr (WORD == 9)
        store((u64 *)p + i, x);
    else
        store((u32 *)p + i, (u32)x);
}

// Row `at` of a mask of bytes as bits; only the first `count`.
KG_DEV u64 bits_of_row(const u8 *at, int count) {
    u64 bits = 0;
    for (int c = 0; c < count; c++) bits |= (u64)(load(at + c) != 0) << c;
    return bits;
}

KG_DEV i32 parent_from_mask(args_t a, int n, int j) {
    u64 bits;
    if constexpr (MASK == MASK_WORDS)
        bits = word_at(a.words, (i64)n * a.words_row + j);
    else
        bits = bits_of_row(a.mask + n * a.mask_row + j * a.mask_step, j);
    bits &= ((u64)1 << j) - 1;
    if (bits == 0) {
        flag(a, BAD_TREE);
        return NO_PARENT;
    }
    return (i32)last_bit(bits);
}

KG_DEV void find_parents(args_t a, nodes_t &t, int n, bool live) {
    int j = (int)thread_id();
    if (OP == OP_TREE_BUILD && live && j > 0 && j < a.tokens)
        t.ids[j] = link_at(a.selected, a.selected_row, n, j - 1);
    barrier();
    if (j < a.tokens) {
        i32 parent = j == 0 ? ROOT : NO_PARENT;
        if (live && j > 0)
            parent = OP == OP_TREE_BUILD ? parent_from_ids(a, t, n, j) : parent_from_mask(a, n, j);
        t.parent[j] = parent;
    }
    barrier();
}

// --- what follows from them ------------------------------------------------------

struct path_t {
    u64 bits; // own, ancestors', the root's
    int depth;
};

KG_DEV path_t path_of(const nodes_t &t, int j) {
    path_t p = {1, 0};
    for (int i = j; i > 0; i = t.parent[i]) {
        p.bits |= (u64)1 << i;
        p.depth++;
    }
    return p;
}

KG_DEV i32 child_after(args_t a, const nodes_t &t, i32 parent, int j) {
    for (int i = j + 1; i < a.tokens; i++)
        if (t.parent[i] == parent) return i;
    return -1;
}

KG_DEV void write_node(args_t a, const nodes_t &t, int n, int j, bool live) {
    i64 position = live ? length_of(a.lens, n) + path_of(t, j).depth : 0;
    i32 sibling = t.parent[j] >= 0 ? child_after(a, t, t.parent[j], j) : -1;
    store_int<LOC_I64>(a.positions_out, (i64)n * a.tokens + j, position);
    set_link(a.tree_index, a.tree_index_row, n, j, (i64)n * a.tokens + j);
    set_link(a.next_token, a.next_token_row, n, j, child_after(a, t, j, j));
    set_link(a.next_sibling, a.next_sibling_row, n, j, sibling);
}

// Bytes, all lanes of the workgroup along a row.
KG_DEV void write_rows(args_t a, const nodes_t &t, u8 *out, i64 stride, i64 prefix, i64 room) {
    i64 width = prefix + a.tokens;
    for (int j = 0; j < a.tokens; j++) {
        u64 bits = path_of(t, j).bits;
        for (i64 c = thread_id(); c < width && j * stride + c < room; c += THREADS)
            store(out + j * stride + c, (u8)(c < prefix || (bits >> (c - prefix) & 1)));
    }
}

// Where request n's rows begin in a flat mask.
KG_DEV i64 full_start(args_t a, int n, i64 *lds) {
    i64 before = sum_rows(n, lds, [&](int m) { return length_of(a.lens, m); });
    return a.tokens * before + (i64)n * a.tokens * a.tokens;
}

KG_DEV void write_mask(args_t a, const nodes_t &t, int n, bool live, i64 *lds) {
    if constexpr (MASK == MASK_WORDS) {
        int j = (int)thread_id();
        if (j < a.tokens) store_word(a.words, (i64)n * a.words_row + j, path_of(t, j).bits);
    } else if constexpr (MASK == MASK_QLEN) {
        u8 *out = a.mask_out + n * a.mask_out_row;
        write_rows(a, t, out, a.mask_out_step, 0, a.tokens * a.mask_out_step);
    } else {
        if (!live) return;
        i64 at = full_start(a, n, lds), length = length_of(a.lens, n), width = length + a.tokens;
        if (at + a.tokens * width > a.flat && thread_id() == 0) flag(a, BAD_CAPACITY);
        write_rows(a, t, a.mask_out + at, width, length, a.flat - at);
    }
}

KG_DEV void run_tree(args_t a, u8 *lds) {
    int n = (int)group_id();
    bool live = n < live_rows(a);
    nodes_t &t = *(nodes_t *)lds;
    find_parents(a, t, n, live);
    if ((int)thread_id() < a.tokens) write_node(a, t, n, (int)thread_id(), live);
    if constexpr (OP == OP_TREE_BUILD) write_mask(a, t, n, live, (i64 *)(lds + sizeof(nodes_t)));
}

// --- tree_mask ---------------------------------------------------------------------

// Padded rows see nothing.
KG_DEV void run_tree_mask(args_t a, i64 *lds) {
    int n = (int)group_id(), j = (int)thread_id();
    bool live = n < live_rows(a);
    i64 at = n * a.mask_row, stride = a.mask_step, room = NEVER;
    if constexpr (MASK == MASK_FULL) {
        i64 length = live ? length_of(a.lens, n) : 0;
        at = live ? full_start(a, n, lds) + length : 0;
        stride = length + a.tokens;
        room = a.flat;
    }
    if (j >= a.tokens) return;
    u64 bits = 0;
    if (live && at + j * stride + a.tokens <= room)
        bits = bits_of_row(a.mask + at + j * stride, a.tokens);
    else if (live)
        flag(a, BAD_CAPACITY);
    store_word(a.words, (i64)n * a.words_row + j, bits);
}

} // namespace kg

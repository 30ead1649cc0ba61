// Which rows a sequence has, and where its states are.
#pragma once
#include "kg/core/machine.h"
#include "kg/gdn/gdn_packed.h"
#include "kg/gdn/gdn_types.h"

namespace kg {

typedef const KG_CONSTANT kg_gdn_args &args_t;

struct seq_t {
    int index, first, count; // rows first .. first + count - 1
    bool live;               // its states exist: outputs are computed
    bool writes;             // the write slot exists
    bool fresh;              // no state yet: zeros
    i64 read, write;         // slots of the recurrent state
    i64 conv_read, conv_write;
    int offset; // column where the convolution's window begins; circular: ends
};

template <int I64> KG_DEV i64 load_index(const void *base, i64 i) {
    return I64 ? load((const i64 *)base + i) : load((const int *)base + i);
}
KG_DEV i64 load_slot(const void *slots, i64 i) { return load_index<INDEX_I64>(slots, i); }

KG_DEV bool is_slot(args_t a, i64 slot) {
    bool pad = SENTINEL == SENTINEL_VALUE && slot == a.pad_slot;
    return slot >= (SENTINEL == SENTINEL_NONPOS) && slot < a.slot_count && !pad;
}

// Entry `column` of the sequence's row of slots; -1 past its end.
KG_DEV i64 slot_at(args_t a, int n, int column) {
    if ((u32)column >= (u32)a.slot_columns) return -1;
    return load_slot(a.slots, n * a.slots_row + column * a.slots_col);
}

// The slot of the state after token `t`, save=slots.
KG_DEV i64 token_slot(args_t a, int n, int t) {
    if constexpr (INDEX == INDEX_SPEC) return slot_at(a, n, t);
    return load_slot(a.write_slots, n * a.write_row + t * a.write_step);
}

KG_DEV void find_slots(seq_t &s, args_t a, int accepted) {
    int n = s.index;
    s.read = s.write = slot_at(a, n, 0);
    if constexpr (INDEX == INDEX_PAIR) s.write = load_slot(a.write_slots, n * a.write_row);
    if constexpr (INDEX == INDEX_BLOCKS) {
        s.read = slot_at(a, n, load(a.read_col + n));
        s.write = slot_at(a, n, load(a.write_col + n));
    }
    s.conv_read = s.read;
    s.conv_write = s.write;
    if constexpr (INDEX == INDEX_SPEC) s.read = slot_at(a, n, accepted - 1);
}

// Where the rows of sequence n begin, inside of out's; n may be the number of
// sequences.
struct begin_t {
    int row;
    bool inside; // cu_seqlens says no other row
};

KG_DEV begin_t begin_of(args_t a, int n) {
    i64 at = load_index<CU_I64>(a.cu_seqlens, n), row = at < 0 ? 0 : at > a.rows ? a.rows : at;
    return begin_t{(int)row, at == row};
}

// What is out of bounds stays there: no sum with it leaves 32 bits.
KG_DEV int accepted_of(args_t a, int n) {
    constexpr int MOST = 1 << 30;
    i64 count = load_index<ACCEPT_I64>(a.accepted, n);
    return count < 0 ? 0 : count < MOST ? (int)count : MOST;
}

KG_DEV int modulo(int x, int by) {
    int rest = x % by;
    return rest < 0 ? rest + by : rest;
}

KG_DEV seq_t find_sequence(args_t a, int n) {
    seq_t s = {};
    int accepted = 1;
    bool inside = true;
    s.index = n;
    s.first = n * TOKENS;
    s.count = TOKENS;
    if constexpr (VARLEN) {
        begin_t begin = begin_of(a, n), end = begin_of(a, n + 1);
        s.first = begin.row;
        s.count = end.row - begin.row;
        inside = begin.inside && end.inside;
    }
    if constexpr (ACCEPT) accepted = accepted_of(a, n);
    s.offset = accepted - 1;
    find_slots(s, a, accepted);
    s.live = inside && accepted >= 1 && s.count <= TOKENS && is_slot(a, s.read);
    if constexpr (HAS_CONV) s.live &= s.offset + OLD <= a.conv_columns && is_slot(a, s.conv_read);
    if constexpr (REPLAY)
        s.live &= (u32)load(a.ring_len + n) <= RING && load(a.ring_start + n) >= 0;
    if constexpr (CIRCULAR) s.offset = modulo(load(a.read_col + n), a.conv_columns);
    s.writes = is_slot(a, s.write);
    if (a.has_initial) s.fresh = load(a.has_initial + n) == 0;
    return s;
}

// Row of token `t`, of the last one past it: rows are loaded without a branch.
KG_DEV i64 row_of(const seq_t &s, int t) {
    return s.first + (VARLEN && t >= s.count ? s.count - 1 : t);
}

// A line of the per-token buffers.
KG_DEV i64 line_of(args_t a, int n) { return a.lines ? load(a.lines + n) : n; }
KG_DEV bool is_line(args_t a, i64 line) { return line >= 0 && line < a.line_count; }

// The token that token `t` comes after; -1: the stored state.
KG_DEV int parent_of(args_t a, int n, int t) {
    if constexpr (!TREE) return t - 1;
    int parent = load(a.parents + n * a.parents_row + t);
    return parent < t ? parent : -1;
}

} // namespace kg

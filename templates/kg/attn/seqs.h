// What the device says of the sequences: their queries, their keys, and which of
// them a row block sees.
#pragma once
#include "kg/attn/attn_packed.h"
#include "kg/attn/attn_types.h"
#include "kg/core/frag.h"
#include "kg/core/machine.h"

namespace kg {

typedef const KG_CONSTANT kg_attn_args &args_t;

constexpr int WAVE_ROWS = kg_attn_rows(ROW_TILES, NI);
// Sequences have as many tokens as they like; each row block then has its own keys.
constexpr bool UNBOUNDED = !BOUNDED;
// A wave has others than the next.
constexpr bool OWN_ROWS = UNBOUNDED || BY_MATRICES != 0 || PAIRED != 0;
// Of waves that have the same rows, each with keys of its own (kg/attn/clusters.h).
constexpr int KEY_GROUPS = kg_attn_key_groups(WAVES, BY_MATRICES, BOUNDED);
constexpr int ROW_WAVES = WAVES / KEY_GROUPS;
constexpr int ROWS = kg_attn_block_rows(WAVE_ROWS, WAVES, OWN_ROWS, KEY_GROUPS); // of a row block
constexpr int ROW_BLOCKS = kg_attn_row_blocks(GROUP, Q_TOKENS, ROWS);

// STAGED as matrices (kg/mla/mla_matrices_nvidia.h, kg/mla/mla_pairs_nvidia.h).
constexpr bool STAGED_MATRICES = STAGED && IS_SM90;
constexpr bool STAGED_ROWS = STAGED && !STAGED_MATRICES;

// CDNA: rows of groups, kept keys, edges on both sides that differ by sequence, and spans beside
// gates of 8-bit outputs leave the key loop no scalars.
constexpr bool BOTH_EDGES = CAUSAL == CAUSAL_SEQ && !SEES_START;
constexpr bool PARKS_SEGMENT =
    WAVE == 64 && (CASCADE || KEEP != 0 || BOTH_EDGES || (SPANS != 0 && GATE != 0 && OUT_8BIT));

// A condition that waits is a pair of scalars, a number half of that.
template <bool> struct flag_of {
    typedef bool type;
};
template <> struct flag_of<true> {
    typedef u32 type;
};
typedef flag_of<CAUSAL == CAUSAL_SEQ || (CASCADE && UNBOUNDED) || PARKS_SEGMENT>::type flag_t;

struct seq_t {
    int index, q_start, q_len, kv_len; // q_len at most Q_TOKENS, unless UNBOUNDED
    int context;                       // keys before the first query
    int first_key;                     // that its first query sees
    flag_t causal;
    u32 blocks; // key blocks of an item, at least 1
    u32 items;  // 0: nothing to do
    // Instead, UNBOUNDED: units of two items, of a single one, and into how many
    // waves' rows a row block is cut, 2^ways; the other waves share their keys.
    u32 pair, middle, ways;
    int line;   // its place among all of them: `index`, or CASCADE: behind the groups
    int shared; // CASCADE: its first keys that its group's rows have seen; of a group -1
};

KG_DEV int window_of(args_t a) { return WINDOW == WINDOW_RT ? a.window : WINDOW; }
KG_DEV int right_of(args_t a) { return RIGHT == WINDOW_RT ? a.right : RIGHT; }

KG_DEV int keep_of(args_t a) { return KEEP == WINDOW_RT ? a.keep : KEEP; }

// Of a query's own chunk and those that it looks back to.
KG_DEV int chunk_start(int position) {
    constexpr int SIZE = CHUNK ? CHUNK : 1;
    return larger(position / SIZE - LOOKBACK, 0) * SIZE;
}
// Before which the query at `position` sees kept keys only.
KG_DEV int first_of(args_t a, int position) {
    if constexpr (CHUNK != 0) return chunk_start(position);
    return larger(position + 1 - window_of(a), 0);
}
// Keys that rows may see of those before their positions, at most, without kept ones.
KG_DEV int reach_of(args_t a) { return CHUNK != 0 ? CHUNK * (LOOKBACK + 1) : window_of(a); }

KG_DEV int row_blocks_of(int q_len) {
    return !RAGGED && !CASCADE ? ROW_BLOCKS : ceil_div(q_len * GROUP, ROWS);
}

// Numbers of 64 bits become the nearest of 32: none that is in bounds changes. The
// compiler does not see that they are halves, and compares in 32 bits.
KG_DEV int load_wide(const void *p, i64 index) {
    u64 x = load((const u64 *)p + index);
    int low = (int)x, high = (int)opaque((u32)(x >> 32));
    return high == low >> 31 ? low : high >> 31 ^ 0x7fffffff;
}
// Where the keys of a sequence begin that have no pages.
KG_DEV int dense_key(args_t a, int index, int step) {
    if constexpr (CU_I64) return load_wide(a.seq_lens, (i64)index + step);
    return load((const int *)a.seq_lens + index + step);
}
// -1: they lead out of k.
KG_DEV int dense_keys(args_t a, int index) {
    int first = dense_key(a, index, 0), end = dense_key(a, index, 1);
    return first < 0 || end < first || end > a.table_keys ? -1 : end - first;
}
KG_DEV int length_of(args_t a, int index) {
    if constexpr (DENSE) return dense_keys(a, index);
    if constexpr (LEN_I64) return load_wide(a.seq_lens, index);
    return load((const int *)a.seq_lens + index);
}
// Of entry index + step: neighbours share an address.
KG_DEV int offset_of(args_t a, int index, int step) {
    if constexpr (CU_I64) return load_wide(a.cu_seqlens, (i64)index + step);
    return load((const int *)a.cu_seqlens + index + step);
}

// Where a sequence's page numbers begin.
KG_DEV int first_page_of(args_t a, int index, int step) {
    if constexpr (TABLE_I64) return load_wide(a.indptr, (i64)index + step);
    return load((const int *)a.indptr + index + step);
}
KG_DEV const u8 *table_of(args_t a, int index) {
    constexpr int SIZE = TABLE_I64 ? 8 : 4;
    if constexpr (!FLAT) return (const u8 *)a.table + index * a.table_row * SIZE;
    return (const u8 *)a.table + (i64)uniform(first_page_of(a, index, 0)) * SIZE;
}
// Keys that its pages hold; pages that lead out of the list are none.
KG_DEV int keys_held(args_t a, int index) {
    if constexpr (!FLAT) return a.table_keys;
    int first = first_page_of(a, index, 0), end = first_page_of(a, index, 1);
    if (first < 0 || end < first || end > a.table_row) return 0;
    u64 keys = (u64)(end - first) * (u64)a.page;
    return keys < (u64)a.table_keys ? (int)keys : a.table_keys;
}

// What the device says of a sequence's queries and keys. What leads out of q or
// out of the block table counts as none.
struct extent_t {
    int start, count; // queries, perhaps too many
    int keys;
    flag_t causal;
    int seq, shared; // CASCADE: the sequence, or the first of a group; as in seq_t
    int group;
};
// Of a row of the batch, of a group of them: no more than what they share.
struct group_t {
    int first, end;    // sequences
    int start, tokens; // queries
    int keys;
};
constexpr int PREFIX_STEP = 32; // whole blocks, of as many keys on every target

// Where sequence `index` is the `end` of others: behind their queries.
KG_DEV int start_of(args_t a, int index) { return RAGGED ? offset_of(a, index, 0) : index; }

// No tokens: none, or one that leads out of the batch.
KG_DEV group_t group_at(args_t a, int group) {
    group_t g = {load(a.prefix_seqs + group), load(a.prefix_seqs + group + 1), 0, 0, 0};
    if (g.first < 0 || g.end <= g.first || g.end > a.num_seqs) return g;
    int end = start_of(a, g.end);
    g.start = start_of(a, g.first);
    g.tokens = g.start >= 0 && end >= g.start && end <= a.num_tokens ? end - g.start : 0;
    g.keys = load(a.prefix_lens + group) / PREFIX_STEP * PREFIX_STEP;
    return g;
}
// For a whole wave. Read as if lanes differed: the compiler makes copies that do not exist
// where a loop's scalars come from memory.
KG_DEV group_t group_of_wave(args_t a, int group) {
    group_t g = group_at(a, (int)opaque((u32)group));
    return group_t{uniform(g.first), uniform(g.end), uniform(g.start), uniform(g.tokens),
                   uniform(g.keys)};
}
// As many keys as its first sequence has pages for.
KG_DEV bool has_prefix(args_t a, const group_t &g) {
    return g.tokens > 0 && g.keys > 0 && g.keys <= keys_held(a, g.first);
}

// The last group that begins at or before a sequence.
KG_DEV int group_of(args_t a, int seq) {
    int low = 0, high = a.num_prefixes;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (load(a.prefix_seqs + middle) <= seq)
            low = middle;
        else
            high = middle;
    }
    return low;
}
KG_DEV bool is_member(const group_t &g, int seq) {
    return g.tokens > 0 && g.first <= seq && seq < g.end;
}

// A sequence that has not all of the prefix before its queries is computed alone.
KG_DEV void share_prefix(args_t a, extent_t &e) {
    if (a.num_prefixes < 1) return;
    e.group = group_of(a, e.seq);
    group_t g = group_at(a, e.group);
    bool inside = e.start >= g.start && e.start + e.count <= g.start + g.tokens;
    if (is_member(g, e.seq) && has_prefix(a, g) && inside && e.keys - e.count >= g.keys)
        e.shared = e.count > 0 ? g.keys : 0;
}

// The rows of a group and the keys that they share, as if it were a sequence.
KG_DEV extent_t extent_of_group(args_t a, int group) {
    group_t g = group_at(a, group);
    if (!has_prefix(a, g)) return extent_t{0, 0, 0, false, 0, -1, group};
    return extent_t{g.start, g.tokens, g.keys, false, g.first, -1, group};
}

// Groups come first in the line, then the sequences.
KG_DEV int lines_of(args_t a) { return CASCADE ? a.num_prefixes + a.num_seqs : a.num_seqs; }

KG_DEV extent_t extent_of(args_t a, int index) {
    extent_t e = {index, 1, length_of(a, index), CAUSAL != 0, index, 0, 0};
    if constexpr (RAGGED) {
        e.start = offset_of(a, index, 0);
        int end = offset_of(a, index, 1);
        bool inside = e.start >= 0 && end >= e.start && end <= a.num_tokens;
        e.count = inside ? end - e.start : 0;
    }
    if constexpr (CAUSAL == CAUSAL_SEQ) e.causal = load(a.causal + index) != 0;
    e.keys = (u32)e.keys <= (u32)keys_held(a, index) ? e.keys : 0;
    if constexpr (CASCADE) share_prefix(a, e);
    return e;
}

// That query `i` of a sequence sees.
KG_DEV int last_key(args_t a, const seq_t &s, int i) {
    if (CASCADE && s.shared < 0) return s.kv_len - 1;
    if (CAUSAL == 1 || s.causal) return s.context + i;
    if (RIGHT != 0 && right_of(a) < s.kv_len - s.context - i)
        return s.context + i + right_of(a) - 1;
    return s.kv_len - 1;
}

// The keys that some row of a row block sees; last < first where there are none.
struct sight_t {
    int first, last;
};

KG_DEV sight_t sight_of(args_t a, const seq_t &s, int row_block) {
    int low = row_block * ROWS / GROUP;
    int high = smaller(((row_block + 1) * ROWS - 1) / GROUP, s.q_len - 1);
    sight_t see = {0, SPANS != 0 ? s.kv_len - 1 : last_key(a, s, high)};
    if constexpr (CASCADE) see.first = larger(s.shared, 0);
    if constexpr (!SEES_START) see.first = first_of(a, larger(s.context + low, 0));
    return see;
}

// Number of the first block of rows that see keys from `first` on. Blocks of kept keys
// before that take the numbers right below, so that all numbers follow each other.
KG_DEV int first_block(args_t a, int first) {
    if constexpr (KEEP == 0) return first / TOK;
    return larger(first / TOK - ceil_div(keep_of(a), TOK), 0);
}

KG_DEV u32 blocks_in(args_t a, const sight_t &see) {
    return see.last < see.first ? 1 : (u32)(see.last / TOK - first_block(a, see.first) + 1);
}

} // namespace kg

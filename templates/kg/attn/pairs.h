// The line of units where each row block of a sequence has its own keys: under a
// causal mask the first sees the fewest. Item n and the last item but n see about as
// many together as any other two, so the line is made of such pairs, all of a
// sequence as long as the longest can be. What a pair does not fill stands for
// nothing: a block or two, and more where a window is wider than the first rows need.
//
// Item n: KV head n / row blocks, row block n % row blocks. An odd one in the middle
// comes last.
#pragma once
#include "kg/attn/seqs.h"

namespace kg {

// Units that stand for no keys: what starting and finishing an item costs.
constexpr int UNIT_WAVES = UNBOUNDED ? WAVES : 1; // for whose rows a block of keys counts
constexpr u32 CLUSTER_SIZE = larger(CLUSTER, 1);
constexpr u32 ITEM_COST =
    (BY_MATRICES       ? kg_attn_buffered_cost(UNIT_WAVES, HEAD_DIM + V_DIM, BRINGERS)
     : STAGED_MATRICES ? KG_ATTN_STAGED_COST
                       : kg_attn_item_cost(TOK, HEAD_DIM + V_DIM, KV_BITS)) *
    CLUSTER_SIZE;

// Waves that bring keys go their own way (kg/attn/bringers_nvidia.h); those of mla meet the others.
constexpr bool RUNS_AHEAD = BRINGERS != 0 && !STAGED;
// BRINGERS: few rows are soon multiplied with (SHARES_SETS), where registers are left, and a slot
// has room for what waves say of values. Measured.
constexpr bool SOON_FEW = BRINGERS != 0 && V_DIM <= 128 && V_DIM <= HEAD_DIM + 32 && !INVARIANT;
constexpr u32 FEW_UNITS = 5;
// A unit is a block of keys for one wave's rows, or 2^unit_shift of them where 32
// bits would not count them all.
KG_DEV u32 weighted(const seq_t &s, u32 blocks) {
    return BRINGERS && s.ways == 0 ? blocks * FEW_UNITS : blocks << s.ways;
}
KG_DEV u32 units_for(args_t a, const seq_t &s, u32 blocks) {
    return (weighted(s, blocks) + (1u << a.unit_shift) - 1) >> a.unit_shift;
}
KG_DEV int blocks_of_units(args_t a, const seq_t &s, int units, int blocks) {
    int all = larger(units, 0) << a.unit_shift;
    return smaller(BRINGERS && s.ways == 0 ? all / (int)FEW_UNITS : all >> s.ways, blocks);
}

// As many as the rows of a sequence fill, of those there are.
KG_DEV u32 ways_of(int q_len) {
    u32 ways = 0;
    if (SOON_FEW && q_len * GROUP <= WAVE_ROWS) return 0;
    while ((2 << ways) <= WAVES &&
           (INVARIANT || BY_MATRICES != 0 || (WAVE_ROWS << ways) < q_len * GROUP))
        ways++;
    return ways;
}

// Of two items together, at most.
KG_DEV u32 pair_blocks(args_t a, const seq_t &s) {
    int row_blocks = row_blocks_of(s.q_len);
    u32 most = 2 * (u32)larger(ceil_div(s.kv_len, TOK), 1);
    if (row_blocks == 1) return 2 * blocks_in(a, sight_of(a, s, 0));
    if (SPANS == 0 && s.causal && s.context >= 0) {
        u32 rows = (u32)((row_blocks + 1) * ROWS - 2);
        u32 seen = (2 * (u32)s.context + rows / GROUP) / TOK + 2;
        most = seen < most ? seen : most;
    }
    if (!SEES_START && SPANS == 0 && (s.causal || RIGHT != 0)) {
        u32 right = s.causal ? 0 : (u32)right_of(a);
        u32 seen = 2 * (((u32)reach_of(a) + right + (ROWS - 1) / GROUP) / TOK + 2);
        if constexpr (KEEP != 0) seen += 2 * (u32)ceil_div(keep_of(a), TOK);
        most = seen < most ? seen : most;
    }
    if constexpr (CASCADE) most -= 2 * (u32)(larger(s.shared, 0) / TOK);
    return most;
}

KG_DEV void measure_pairs(args_t a, seq_t &s) {
    u32 half = blocks_in(a, sight_of(a, s, row_blocks_of(s.q_len) / 2));
    s.ways = ways_of(s.q_len);
    u32 both = weighted(s, pair_blocks(a, s)) + (2u << a.unit_shift) - 2;
    s.pair = 2 * ITEM_COST + (both >> a.unit_shift);
    s.middle = s.items % 2 ? ITEM_COST + units_for(a, s, half) : 0;
}

// n / d for quotients below 2^21, where the estimate is at most one off: a third
// of the latency of the compiler's division, several times on the critical path.
KG_DEV u32 divide(u32 n, u32 d) {
    u32 q = (u32)uniform((int)((float)n * rcp((float)d)));
    i32 rest = (i32)(n - q * d);
    q -= rest < 0;
    rest += rest < 0 ? (i32)d : 0;
    return q + ((u32)rest >= d);
}

// What follows one another in the line is one workgroup's work; what workgroups do at the same
// time is to follow one another in the sequence, so that memory is read once for all of them.
// Pair `n` in the line is this one of the sequence: the first of each workgroup's, then the second
// of each, as far as a sequence fills workgroups. each: units of a workgroup.
KG_DEV u32 pair_in_turn(const seq_t &s, u32 n, u32 each) {
    if constexpr (!BY_MATRICES) return n; // AMD: its scalars are short
    u32 turns = divide(each, s.pair), groups = divide(s.items / 2 * s.pair, each);
    u32 group = divide(n * s.pair, each);
    if (turns == 0 || group >= groups) return n;
    u32 first = divide(group * each + s.pair - 1, s.pair); // that begins in the group's units
    u32 turn = n - first;
    return turn < turns ? turn * groups + group : turns * groups + first - turns * group;
}

// A place in the line: units from the first of its sequence.
struct item_t {
    u32 start, next; // next: where the item after it starts
    int kv_head, row_block;
};

KG_DEV item_t item_of_pairs(args_t a, const seq_t &s, u32 at, u32 each) {
    u32 row_blocks = (u32)row_blocks_of(s.q_len), pair = (u32)uniform((int)(at / s.pair));
    u32 n = pair_in_turn(s, pair, each), last = s.items - 1;
    item_t item;
    item.start = pair * s.pair;
    item.kv_head = uniform((int)(n / row_blocks));
    item.row_block = (int)(n - (u32)item.kv_head * row_blocks);
    item.next =
        item.start + ITEM_COST + units_for(a, s, blocks_in(a, sight_of(a, s, item.row_block)));
    if (at < item.next || n == last - n) return item;
    n = last - n;
    item.start = item.next;
    item.next = (pair + 1) * s.pair;
    item.kv_head = uniform((int)(n / row_blocks));
    item.row_block = (int)(n - (u32)item.kv_head * row_blocks);
    return item;
}

} // namespace kg

// Who does what. The keys of all sequences and heads form one line of units
// (a unit is one block of TOK keys for one item = sequence x KV head x row
// block); the workgroups cut that line into equal parts. So every workgroup
// has the same work whatever the lengths are, the grid never depends on them,
// and the number of query tokens does not change the cut. An item that spans
// several workgroups is merged by the last of them to arrive.
//
// Each item begins with ITEM_COST units that stand for no keys: what starting
// and finishing one more item costs a workgroup.
#pragma once
#include "kg/attn/pairs.h"

namespace kg {

// Who has a part of the line: a workgroup, or a cluster of them (kg/attn/clusters.h).
KG_DEV u32 taker() { return group_id() / CLUSTER_SIZE; }
KG_DEV u32 takers_of(args_t a) { return (u32)a.workgroups / CLUSTER_SIZE; }

constexpr u32 LEAST_PART =
    (BY_MATRICES ? kg_attn_least_buffered(UNIT_WAVES) : kg_attn_least_blocks(WAVES)) * CLUSTER_SIZE;

// INVARIANT, where sequences have few tokens: an item is cut at multiples of PART_KEYS of
// its sequence and nowhere else. Each part is a piece of the line by itself, has a partial
// result of its own, whoever computes it, and a number, from the sequence's first key on.
constexpr bool PARTED = PART_KEYS != 0;
constexpr u32 PART_BLOCKS = PARTED ? PART_KEYS / TOK : 1;

// Row blocks of latent attention read the same rows: they stand side by side, so that memory is
// asked for them once. The line has the keys of one row block; a workgroup's number is that of its
// part, times ROW_BLOCKS, and of its row block. A sequence may have fewer drafts than row blocks
// have room for, and a device fewer workgroups than they are: there they follow each other in the
// line.
constexpr bool SIDE_BY_SIDE =
    STAGED != 0 && !CLUSTER && !PARTED && !CASCADE && !UNBOUNDED && ROW_BLOCKS > 1;

// Many parts of an item are merged by all who had them (kg/attn/together.h): there they may be
// short, if that makes many. Of clusters those of 64 rows: the first workgroup of each.
constexpr bool MERGE_TOGETHER = STAGED != 0 && (!CLUSTER || PAIRED) && !PARTED;
constexpr u32 LEAST_TOGETHER = KG_ATTN_LEAST_TOGETHER / TOK;
constexpr int MANY_TOGETHER = kg_attn_many_together(KV_BITS);

// Where rows are wide, and on sm_90, the last to arrive merges for long. n parts of B
// blocks take B / n blocks and n times what one costs to merge: least where a part is
// the root of B times that. B: of an item, on average. What a wave has in flight at once
// (GATHERED parts) is not worth a longer part.
KG_DEV u32 least_part(args_t a, u32 total) {
    constexpr float COST =
        (float)(STAGED ? kg_attn_merge_blocks(ROWS, V_DIM, TOK, HEAD_DIM * KV_BITS / 8)
                       : kg_attn_merge_sm90(BY_MATRICES)) *
        CLUSTER_SIZE;
    constexpr bool LONG_MERGES = STAGED != 0 || (IS_SM90 && !UNBOUNDED);
    if (!LONG_MERGES || PARTED || total == 0) return LEAST_PART;
    constexpr bool BY_WAVE = !STAGED && !BY_MATRICES;
    constexpr float GATHERED = 16;
    float each = rcp((float)(a.num_seqs * a.kv_heads * ROW_BLOCKS)), item = (float)total * each;
    float square = item * COST, root = square * rsqrt(square);
    if constexpr (BY_WAVE) root = fmin(root, item * (1 / GATHERED));
    if constexpr (MERGE_TOGETHER && !CLUSTER) {
        float most = fmin((float)a.workgroups * each, item * (1.0f / LEAST_TOGETHER)); // parts
        if (PAIRED || most >= (float)MANY_TOGETHER) return LEAST_TOGETHER;
    }
    u32 least = (u32)uniform((int)root);
    return least > LEAST_PART ? least : LEAST_PART;
}

// What follows from it.
KG_DEV seq_t seq_from(args_t a, int line, const extent_t &e) {
    bool all = UNBOUNDED || (CASCADE && e.shared < 0);
    int count = all ? e.count : smaller(e.count, Q_TOKENS), index = CASCADE ? e.seq : line;
    seq_t s = {index, e.start, count, e.keys, e.keys - e.count,      0, e.causal, 1, 0,
               2,     0,       0,     line,   CASCADE ? e.shared : 0};
    if (line >= lines_of(a)) return s;
    int context = UNBOUNDED ? larger(s.context, 0) : s.context;
    if constexpr (!SEES_START) s.first_key = first_of(a, context);
    if constexpr (CASCADE) s.first_key = larger(s.shared, 0);
    s.blocks = (u32)larger(ceil_div(s.kv_len, TOK) - first_block(a, s.first_key), 1);
    s.items = s.q_len > 0 ? (u32)(a.kv_heads * row_blocks_of(s.q_len)) : 0;
    if constexpr (UNBOUNDED) measure_pairs(a, s);
    return s;
}

KG_DEV seq_t seq_at(args_t a, int line) {
    extent_t e = {line, 1, 0, true, line, 0, 0};
    int index = CASCADE ? line - a.num_prefixes : line;
    if (CASCADE && index < 0)
        e = extent_of_group(a, line);
    else if (index < a.num_seqs)
        e = extent_of(a, index);
    return seq_from(a, line, e);
}

// The sequence that lane `lane` looked up, for the whole wave: in scalar
// registers, where there are any.
KG_DEV seq_t seq_of_lane(args_t a, const seq_t &mine, u32 lane) {
    int line = (int)read_lane((u32)mine.line, lane);
    extent_t e = {line, 1, (int)read_lane((u32)mine.kv_len, lane), CAUSAL != 0, line, 0, 0};
    if constexpr (CASCADE) {
        e.seq = (int)read_lane((u32)mine.index, lane);
        e.shared = (int)read_lane((u32)mine.shared, lane);
    }
    if constexpr (RAGGED != 0 || CASCADE != 0) {
        e.start = (int)read_lane((u32)mine.q_start, lane);
        e.count = e.keys - (int)read_lane((u32)mine.context, lane);
    }
    if constexpr (CAUSAL == CAUSAL_SEQ) e.causal = (int)read_lane((u32)mine.causal, lane) != 0;
    if constexpr (CASCADE) e.causal = e.causal && e.shared >= 0;
    return seq_from(a, line, e);
}

// How `total` units are cut into `parts`: the first `extra` parts get one more. The
// workgroup has number `part`, which waits in a vector register; one without a part has its own.
struct cut_t {
    u32 each, extra, part;
};
// Workgroups are dealt to the dies in turn. A die has parts that follow one another, so that
// most items are shared behind one L2.
KG_DEV u32 part_of_group(u32 group, u32 parts) {
    u32 die = group % DIES, more = parts % DIES;
    return die * (parts / DIES) + (die < more ? die : more) + group / DIES;
}
// Units that are neighbours share a way to memory, of which decodes want more than prompts: parts
// that follow one another are spread, else the decodes of some units take half as long again.
constexpr u32 STRIDE = RUNS_AHEAD ? 53 : 1; // a prime
KG_DEV u32 number_of_group(u32 group, u32 parts) {
    if constexpr (STRIDE > 1) return parts % STRIDE ? group * STRIDE % parts : group;
    return DIES == 1 ? group : part_of_group(group, parts);
}
// CDNA: the workgroup's number would be two scalars all along. SIDED: that it is of a row block.
constexpr bool PART_WAITS = WAVE == 64 || SIDE_BY_SIDE || STRIDE > 1;
constexpr u32 SIDED = 1u << 31;
KG_DEV u32 waiting(cut_t c) { return PART_WAITS ? (u32)uniform((int)c.part) : taker(); }
KG_DEV bool is_sided(cut_t c) { return SIDE_BY_SIDE && (waiting(c) & SIDED) != 0; }
KG_DEV u32 number_of(cut_t c) { return SIDE_BY_SIDE ? waiting(c) & ~SIDED : waiting(c); }
KG_DEV u32 part_of(cut_t c) { return is_sided(c) ? number_of(c) / ROW_BLOCKS : number_of(c); }
KG_DEV u32 side_of(cut_t c) { return number_of(c) % ROW_BLOCKS; }
KG_DEV u32 cut_start(cut_t c, u32 part) {
    return part * c.each + (part < c.extra ? part : c.extra);
}
KG_DEV u32 cut_owner(cut_t c, u32 unit) {
    u32 big = c.extra * (c.each + 1);
    return unit < big ? divide(unit, c.each + 1) : c.extra + divide(unit - big, c.each);
}

// Items that are alike and whole are dealt out in turn: KV heads of a sequence are read at the same
// time then, whose rows of a token are neighbours in memory and may share a line of it.
constexpr bool EVENS = !UNBOUNDED && !PARTED && !CASCADE;
constexpr bool DEALS = EVENS && !STAGED && (!RAGGED || ROW_BLOCKS == 1);

struct work_t {
    cut_t cut;
    u32 unit, end; // what is left for this workgroup
    u32 jump;      // DEALS: over units of other workgroups, behind each of its items
    u32 seq_start; // first unit of `seq`
    seq_t seq;
};

// Blocks of the part that a sequence's first key is in, before that key.
KG_DEV u32 lead_of(const seq_t &s) { return (u32)s.first_key / TOK % PART_BLOCKS; }

// Of one item.
KG_DEV u32 item_units(const seq_t &s) {
    u32 parts = PARTED ? (lead_of(s) + s.blocks - 1) / PART_BLOCKS + 1 : 1;
    return parts * ITEM_COST + s.blocks;
}

struct part_t {
    u32 number;     // of those of the item
    u32 start, end; // units from the item's first
};
KG_DEV part_t part_at(const seq_t &s, u32 into) {
    constexpr u32 UNITS = ITEM_COST + PART_BLOCKS;
    u32 lead = lead_of(s), number = (into + lead) / UNITS, all = item_units(s);
    u32 start = number * UNITS, end = start + UNITS - lead;
    return part_t{number, number ? start - lead : 0, end < all ? end : all};
}

// A cut through a short item would cost more than it balances: such cuts move to
// the nearest end of the item, and with INVARIANT all do, or of the part. `unit` lies in
// the sequence that begins at `start`.
KG_DEV u32 snap(args_t a, const seq_t &s, u32 start, u32 unit, u32 each) {
    if constexpr (UNBOUNDED) {
        item_t item = item_of_pairs(a, s, unit - start, each);
        u32 length = item.next - item.start, into = unit - start - item.start;
        if (!INVARIANT && length > (BY_MATRICES ? 4 : 3) * ITEM_COST) return unit;
        return start + (2 * into < length ? item.start : item.next);
    }
    if constexpr (PARTED) {
        u32 length = item_units(s), into = unit - start;
        u32 item = (u32)uniform((int)divide(into, length)) * length;
        part_t part = part_at(s, into - item);
        return start + item + (2 * (into - item) < part.start + part.end ? part.start : part.end);
    }
    u32 length = ITEM_COST + s.blocks;
    if (!INVARIANT && s.blocks > 2 * ITEM_COST) return unit;
    return start + (unit - start + length / 2) / length * length;
}

// Of all row blocks, in the line or side by side.
KG_DEV u32 units_in_line(u32 units, bool sided) {
    return SIDE_BY_SIDE && sided ? units / ROW_BLOCKS : units;
}
KG_DEV u32 units_of(const seq_t &s, bool sided) {
    if constexpr (UNBOUNDED) return s.items / 2 * s.pair + s.middle;
    return units_in_line(s.items * item_units(s), sided);
}
KG_DEV bool lacks_row_blocks(args_t a, const seq_t &s) {
    return SIDE_BY_SIDE && RAGGED && s.items != 0 && s.items != (u32)(a.kv_heads * ROW_BLOCKS);
}

KG_DEV u32 wave_total(u32 prefix) { return read_lane(prefix, WAVE - 1); }

// To the sequence that has the next unit; past the end where there is none left.
KG_DEV void next_seq(work_t &w, args_t a) {
    bool sided = is_sided(w.cut);
    while (w.unit < w.end && w.unit - w.seq_start >= units_of(w.seq, sided)) {
        if ((UNBOUNDED || CASCADE) && w.seq.line >= lines_of(a))
            w.end = w.unit; // offsets that fall
        u32 units = units_of(w.seq, sided);
        u32 passed = DEALS && w.jump ? divide(w.unit - w.seq_start, units) : 1;
        w.seq_start += passed * units;
        int next = w.seq.line + (int)passed;
        if constexpr (CASCADE) next = (int)opaque((u32)next);
        w.seq = seq_of_lane(a, seq_at(a, next), 0);
    }
    if (w.end - w.seq_start < units_of(w.seq, sided))
        w.end = snap(a, w.seq, w.seq_start, w.end, w.cut.each);
}

// Items that are alike are cut into so many parts that each has whole items, or, where merging
// takes long, that all items have as many. What workgroups that are left out would have done may
// cost what that saves: a segment of each, merging, and a little, since memory is as busy without
// them.
KG_DEV u32 even_parts(u32 units, u32 items, u32 parts) {
    constexpr u32 SEGMENT = ITEM_COST / 2, LITTLE = 32;
    constexpr u32 MERGE = 4 * kg_attn_merge_blocks(ROWS, V_DIM, TOK, HEAD_DIM * KV_BITS / 8);
    u32 each = divide(items + parts - 1, parts), ways = divide(parts, items);
    if (!STAGED && ways > 1) return parts;
    u32 even = ways ? items * ways : divide(items, each);
    u32 longest = divide(units, even), average = divide(units, parts);
    u32 most = average + average / LITTLE + SEGMENT + (ways > 1 ? 0 : MERGE);
    return longest * even == units && longest <= most ? even : parts;
}

// The items of a workgroup lie `parts` apart.
constexpr u32 COUNTED = 1u << 31; // units; a jump leads past them, but not round 32 bits
KG_DEV void deal(work_t &w, u32 part, u32 parts, u32 item, u32 total) {
    w.unit = part * item;
    w.end = total;
    w.jump = (parts - 1) * item;
}

// The sequence that has the workgroup's first unit. mine, prefix: of the lane, among the first.
KG_DEV void find_seq(work_t &w, args_t a, seq_t mine, u32 prefix, bool sided) {
    KG_LOOP for (int base = 0; base < lines_of(a); base += WAVE) {
        if (base > 0) {
            mine = seq_at(a, base + (int)lane_id());
            prefix = sum_below(units_of(mine, false));
        }
        u32 before = units_in_line(prefix, sided);
        u64 beyond = ballot(w.seq_start + before > w.unit);
        u32 last = first_bit(beyond | 1ull << (WAVE - 1));
        w.seq_start += read_lane(before, last);
        if (!beyond) continue;
        w.seq = seq_of_lane(a, mine, last);
        w.seq_start -= units_of(w.seq, sided);
        break;
    }
}

// Every wave computes the same answer, so no barrier is needed. known: the line's units, if they
// are.
KG_DEV work_t work_begin(args_t a, u32 known = 0) {
    work_t w;
    int lane = (int)lane_id();
    seq_t mine = seq_at(a, lane);
    bool lacks = lacks_row_blocks(a, mine);
    u32 units = units_of(mine, false), first = read_lane(units, 0);
    u32 prefix = sum_below(units), all = wave_total(prefix);
    bool differs = units != first && lane < lines_of(a);
    if (known) {
        all = known;
    } else if (lines_of(a) > WAVE) {
        units = 0;
        KG_LOOP for (int s = lane + WAVE; s < lines_of(a); s += WAVE) {
            seq_t seq = seq_at(a, s);
            u32 its = units_of(seq, false);
            units += its, differs |= its != first, lacks |= lacks_row_blocks(a, seq);
        }
        all += wave_sum(units);
    }
    bool sided = SIDE_BY_SIDE && a.workgroups >= ROW_BLOCKS && !any(lacks);
    u32 total = units_in_line(all, sided), sides = sided ? ROW_BLOCKS : 1, group = taker();
    u32 least = least_part(a, all), wanted = (total + least - 1) / least;
    w.seq = seq_of_lane(a, mine, 0);
    u32 most = takers_of(a) / sides, parts = wanted < most ? wanted : most;
    bool dealt = false;
    if (EVENS && parts == most && !any(differs)) {
        u32 items = units_in_line((u32)lines_of(a) * w.seq.items, sided);
        parts = even_parts(total, items, parts);
        dealt = DEALS && total < COUNTED && divide(items, parts) * parts == items;
    }
    w.unit = w.end = w.seq_start = w.jump = 0;
    if constexpr (CLUSTER != 0) w.cut.each = 0; // of a cluster without a part
    if constexpr (PART_WAITS) w.cut.part = opaque(group);
    if (group >= parts * sides) return w;
    u32 number = number_of_group(group, parts * sides), part = number / sides;
    if constexpr (PART_WAITS) w.cut.part = opaque(number | (sided ? SIDED : 0));
    w.cut.each = total / parts;
    w.cut.extra = total - w.cut.each * parts;
    w.unit = cut_start(w.cut, part);
    w.end = cut_start(w.cut, part + 1);
    if (dealt) deal(w, part, parts, item_units(w.seq), total);
    if constexpr (PARKS_SEGMENT) w.cut.extra = opaque(w.cut.extra);
    find_seq(w, a, mine, prefix, sided);
    if ((UNBOUNDED || CASCADE) && w.unit - w.seq_start >= units_of(w.seq, sided)) {
        w.end = w.unit; // more units than 32 bits count: only where offsets fall
        return w;
    }
    w.unit = snap(a, w.seq, w.seq_start, w.unit, w.cut.each);
    next_seq(w, a);
    return w;
}

// One workgroup's part of one item.
struct segment_t {
    seq_t seq;
    int kv_head, row_block;
    sight_t see;          // keys of the row block
    int block, block_end; // key blocks [block, block_end), may be empty
    u32 item_start;       // first unit of the item; PARTED: place of its part 0's results
    u32 item_end;         // behind its last unit with keys; drawn: both are numbers of its parts
    u32 next;             // first unit of the next item
    flag_t whole;
    bool shares; // units with keys: a few of them may hold no whole block, but count
    u32 part;    // PARTED, or drawn
};

// Parts of an item end where its keys do; what follows them in a pair stands for nothing.
KG_DEV segment_t segment_of_pairs(const work_t &w, args_t a) {
    segment_t g;
    item_t item = item_of_pairs(a, w.seq, w.unit - w.seq_start, w.cut.each);
    sight_t see = sight_of(a, w.seq, item.row_block);
    int blocks = (int)blocks_in(a, see), first = first_block(a, see.first);
    u32 length = ITEM_COST + units_for(a, w.seq, (u32)blocks), left = w.end - w.unit;
    u32 from = w.unit - w.seq_start - item.start;
    u32 to = from + left < length ? from + left : length;
    g.seq = w.seq;
    g.kv_head = item.kv_head;
    g.row_block = item.row_block;
    g.see = see;
    g.block = first + blocks_of_units(a, w.seq, (int)(from - ITEM_COST), blocks);
    g.block_end = first + blocks_of_units(a, w.seq, (int)(to - ITEM_COST), blocks);
    g.item_start = w.seq_start + item.start;
    g.item_end = g.item_start + length;
    g.next = w.seq_start + item.next;
    g.whole = from <= ITEM_COST && to == length;
    g.shares = from < to && to > ITEM_COST;
    return g;
}

// Cuts lie where parts begin, so the segment is one. start, length: of the item.
KG_DEV void take_part(segment_t &g, args_t a, const part_t &part, u32 start, u32 length) {
    int first = g.seq.first_key / TOK;
    g.part = (u32)first / PART_BLOCKS + part.number;
    g.block = larger((int)(g.part * PART_BLOCKS), first);
    g.block_end = smaller((int)((g.part + 1) * PART_BLOCKS), first + (int)g.seq.blocks);
    u32 item = ((u32)g.seq.index * (u32)a.kv_heads + (u32)g.kv_head) * ROW_BLOCKS;
    g.item_start = (item + (u32)g.row_block) * (u32)kg_attn_parts(a.table_keys, PART_KEYS);
    g.next = start + part.end;
    g.whole = part.start == 0 && part.end == length;
    g.shares = true;
}

KG_DEV segment_t work_segment(const work_t &w, args_t a) {
    if constexpr (UNBOUNDED) return segment_of_pairs(w, a);
    segment_t g;
    u32 length = item_units(w.seq);
    u32 at = w.unit - w.seq_start, item = (u32)uniform((int)divide(at, length));
    bool sided = is_sided(w.cut);
    u32 row_blocks = sided ? 1 : (u32)row_blocks_of(w.seq.q_len);
    u32 from = at - item * length, left = w.end - w.unit;
    u32 to = length - from < left ? length : from + left;
    int first = first_block(a, w.seq.first_key);
    g.seq = w.seq;
    g.kv_head = uniform((int)(item / row_blocks));
    g.row_block = (int)(sided ? side_of(w.cut) : item - (u32)g.kv_head * row_blocks);
    g.see = sight_t{w.seq.first_key, w.seq.kv_len - 1};
    g.block = first + larger((int)(from - ITEM_COST), 0);
    g.block_end = first + larger((int)(to - ITEM_COST), 0);
    g.item_start = w.unit - from;
    g.item_end = g.next = g.item_start + length;
    g.whole = g.block_end - g.block == (int)w.seq.blocks;
    g.shares = g.block < g.block_end;
    if constexpr (PARTED) take_part(g, a, part_at(w.seq, from), w.unit - from, length);
    return g;
}

// To the item after the segment's, or to the end.
KG_DEV void work_advance(work_t &w, const segment_t &g, args_t a) {
    w.unit = g.next + (DEALS ? w.jump : 0);
    if constexpr (UNBOUNDED &&
                  !BY_MATRICES) { // again: it would sit in scalars all through the keys
        int keys = (int)opaque_uniform((u32)w.seq.kv_len);
        extent_t e = {w.seq.q_start, keys - w.seq.context, keys, w.seq.causal,
                      w.seq.index,   w.seq.shared,         0};
        w.seq = seq_from(a, w.seq.line, e);
    }
    next_seq(w, a);
}

// What waits for the end of a segment waits in vector registers: scalars are scarcer.
constexpr bool PARKS = UNBOUNDED || TREE || STAGED || CASCADE || PARKS_SEGMENT;
KG_DEV u32 parked(u32 x) { return PARKS ? opaque(x) : x; }
KG_DEV u32 fetched(u32 x) { return PARKS ? (u32)uniform((int)x) : x; }

KG_DEV void park(seq_t &s) {
    s.index = (int)parked((u32)s.index), s.q_start = (int)parked((u32)s.q_start);
    s.q_len = (int)parked((u32)s.q_len), s.kv_len = (int)parked((u32)s.kv_len);
    s.context = (int)parked((u32)s.context), s.first_key = (int)parked((u32)s.first_key);
    s.blocks = parked(s.blocks), s.items = parked(s.items);
    if constexpr (CAUSAL == CAUSAL_SEQ) s.causal = (flag_t)parked((u32)s.causal);
    if constexpr (!CASCADE) return;
    s.line = (int)parked((u32)s.line), s.shared = (int)parked((u32)s.shared);
    s.pair = parked(s.pair), s.middle = parked(s.middle), s.ways = parked(s.ways);
}
KG_DEV void fetch(seq_t &s) {
    s.index = (int)fetched((u32)s.index), s.q_start = (int)fetched((u32)s.q_start);
    s.q_len = (int)fetched((u32)s.q_len), s.kv_len = (int)fetched((u32)s.kv_len);
    s.context = (int)fetched((u32)s.context), s.first_key = (int)fetched((u32)s.first_key);
    s.blocks = fetched(s.blocks), s.items = fetched(s.items);
    if constexpr (CAUSAL == CAUSAL_SEQ) s.causal = (flag_t)fetched((u32)s.causal);
    if constexpr (!CASCADE) return;
    s.line = (int)fetched((u32)s.line), s.shared = (int)fetched((u32)s.shared);
    s.pair = fetched(s.pair), s.middle = fetched(s.middle), s.ways = fetched(s.ways);
}

KG_DEV void park(cut_t &c) { c.each = parked(c.each), c.extra = parked(c.extra); }
KG_DEV void fetch(cut_t &c) { c.each = fetched(c.each), c.extra = fetched(c.extra); }

KG_DEV void park(segment_t &g) {
    g.whole = (flag_t)parked((u32)g.whole), g.row_block = (int)parked((u32)g.row_block);
    g.kv_head = (int)parked((u32)g.kv_head);
}
KG_DEV void fetch(segment_t &g) {
    g.whole = (flag_t)fetched((u32)g.whole), g.row_block = (int)fetched((u32)g.row_block);
    g.kv_head = (int)fetched((u32)g.kv_head);
}

// Compared where it is asked for: a condition that waits is a pair of scalars.
KG_DEV u32 asked(u32 x) { return PARKS_SEGMENT ? opaque_uniform(x) : x; }
KG_DEV bool is_whole(const segment_t &g) {
    if constexpr (!PARKS_SEGMENT) return g.whole;
    return asked((u32)g.whole) != 0;
}

// What a wave does in a segment: `keys` waves share the keys of its rows, which
// begin at `row` of the row block; it is number `key` of them, and `v` of those
// that share the values.
struct role_t {
    int row, key, v, keys;
    int group; // of waves with the same rows, BY_MATRICES: that share keys
};
KG_DEV int wave_of_group(int wave) { return KEY_GROUPS > 1 ? wave % ROW_WAVES : wave; }
KG_DEV int key_group(int wave) { return KEY_GROUPS > 1 ? wave / ROW_WAVES : 0; }
KG_DEV role_t role_of(const segment_t &g, int wave) {
    if constexpr (PAIRED) return role_t{wave % WAVES * WAVE_ROWS, 0, wave / WAVES, 1, wave % WAVES};
    if constexpr (BY_MATRICES)
        return role_t{wave_of_group(wave) * WAVE_ROWS, 0, 0, 1, key_group(wave)};
    if constexpr (!UNBOUNDED) return role_t{0, wave / V_SPLIT, wave % V_SPLIT, WAVES, 0};
    int keys = WAVES >> g.seq.ways, group = uniform(wave / V_SPLIT / keys);
    return role_t{group * WAVE_ROWS, wave / V_SPLIT % keys, wave % V_SPLIT, keys, group};
}

// Work that is drawn (kg/attn/lots_nvidia.h) has no cut, and parts of an item their own numbers.
KG_DEV bool is_drawn(cut_t c) { return RUNS_AHEAD && c.each == 0; }

// The workgroups that share an item's keys; PARTED, or drawn: its parts.
struct share_t {
    u32 first, last;
};
KG_DEV share_t share_of(args_t a, cut_t cut, const segment_t &g) {
    if (is_drawn(cut)) return share_t{g.item_start, g.item_end - 1};
    if constexpr (PARTED) {
        int first = SEES_START ? 0 : first_of(a, g.seq.context);
        return share_t{(u32)(first / PART_KEYS), (u32)((g.seq.kv_len - 1) / PART_KEYS)};
    }
    return share_t{cut_owner(cut, g.item_start + ITEM_COST), cut_owner(cut, g.item_end - 1)};
}

// Where `part` keeps its partial result of the item: a workgroup has at most
// two unfinished items, the one it starts in and the one it ends in. A slot has room for so many
// rows; those of what is drawn are few.
constexpr int SLOT_ROWS = RUNS_AHEAD ? WAVE_ROWS : ROWS;
KG_DEV u32 partial_slot(cut_t cut, u32 part, u32 item_start) {
    if constexpr (PARTED) return item_start + part;
    if (is_drawn(cut)) return part;
    u32 slot = 2 * part + (cut_start(cut, part) < item_start);
    slot *= ROWS / SLOT_ROWS;
    return is_sided(cut) ? slot * ROW_BLOCKS + side_of(cut) : slot;
}

} // namespace kg

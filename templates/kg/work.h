// Who does what. The keys of all sequences and heads form one line of units
// (a unit is one block of TOK keys for one item = sequence x KV head x row
// block); the workgroups cut that line into equal parts. So every workgroup
// reads the same amount whatever the lengths are, the grid never depends on
// them, and the number of query tokens does not change the cut. An item that
// spans several workgroups is merged by the last of them to arrive.
namespace kg {

typedef const KG_CONSTANT kg_attn_args &args_t;

constexpr int ROWS = ROW_TILES * NI;                          // query rows of a row block
constexpr int ROW_BLOCKS = ceil_div(GROUP * Q_TOKENS, ROWS);  // of one KV head, at most
// Less than this is not worth another workgroup and its share of the merge.
constexpr u32 LEAST_PART = 2 * WAVES;

struct seq_t {
    int index, q_start, q_len, kv_len; // q_len clamped to Q_TOKENS
    int first_key;                     // of the widest window
    u32 blocks;                        // key blocks of an item, at least 1
    u32 items;                         // 0: nothing to do
};

KG_DEV int window_of(args_t a) {
    return WINDOW == WINDOW_RT ? a.window : WINDOW;
}

KG_DEV seq_t seq_at(args_t a, int index) {
    seq_t s = {index, index, 1, 0, 0, 1, 0};
    if (index >= a.num_seqs) return s;
    s.kv_len = larger(load(a.seq_lens + index), 0);
    if constexpr (PHASE == PHASE_VERIFY) {
        s.q_start = load(a.cu_seqlens + index);
        s.q_len = smaller(larger(load(a.cu_seqlens + index + 1) - s.q_start, 0), Q_TOKENS);
    }
    if constexpr (WINDOW != 0) s.first_key = larger(s.kv_len - s.q_len + 1 - window_of(a), 0);
    int blocks = ceil_div(s.kv_len, TOK) - s.first_key / TOK;
    s.blocks = (u32)larger(blocks, 1);
    s.items = (u32)(a.kv_heads * ceil_div(s.q_len * GROUP, ROWS));
    return s;
}

// Tells the compiler that every lane has the same sequence: it then lives in
// scalar registers.
KG_DEV seq_t uniform_seq_at(args_t a, int index) {
    seq_t s = seq_at(a, index);
    s.q_start = uniform(s.q_start);
    s.q_len = uniform(s.q_len);
    s.kv_len = uniform(s.kv_len);
    s.first_key = uniform(s.first_key);
    s.blocks = (u32)uniform((int)s.blocks);
    s.items = (u32)uniform((int)s.items);
    return s;
}

// How `total` units are cut into `parts`: the first `extra` parts get one more.
struct cut_t {
    u32 each, extra;
};
KG_DEV u32 cut_start(cut_t c, u32 part) { return part * c.each + (part < c.extra ? part : c.extra); }
KG_DEV u32 cut_owner(cut_t c, u32 unit) {
    u32 big = c.extra * (c.each + 1);
    return unit < big ? unit / (c.each + 1) : c.extra + (unit - big) / c.each;
}

struct work_t {
    cut_t cut;
    u32 unit, end;   // what is left for this workgroup
    u32 seq_start;   // first unit of `seq`
    seq_t seq;
};

KG_DEV u32 units_of(const seq_t &s) { return s.items * s.blocks; }

KG_DEV u32 wave_sum(u32 x) {
    u32 lane = lane_id();
    KG_UNROLL for (u32 m = 1; m < WAVE; m *= 2) x += shuffle(x, lane ^ m);
    return x;
}
KG_DEV u32 wave_prefix(u32 x) { // inclusive
    u32 lane = lane_id();
    KG_UNROLL for (u32 m = 1; m < WAVE; m *= 2) {
        u32 below = shuffle(x, lane >= m ? lane - m : lane);
        x += lane >= m ? below : 0;
    }
    return x;
}

// Every wave computes the same answer, so no barrier is needed.
KG_DEV work_t work_begin(args_t a) {
    work_t w;
    int lane = (int)lane_id();
    u32 mine = 0;
    KG_LOOP for (int s = lane; s < a.num_seqs; s += WAVE) mine += units_of(seq_at(a, s));
    u32 total = (u32)uniform((int)wave_sum(mine));
    u32 wanted = (total + LEAST_PART - 1) / LEAST_PART, part = group_id();
    u32 parts = wanted < (u32)a.workgroups ? wanted : (u32)a.workgroups;
    w.unit = w.end = w.seq_start = 0;
    w.seq = uniform_seq_at(a, a.num_seqs);
    if (part >= parts) return w;
    w.cut.each = total / parts;
    w.cut.extra = total - w.cut.each * parts;
    w.unit = cut_start(w.cut, part);
    w.end = cut_start(w.cut, part + 1);
    KG_LOOP for (int base = 0; base < a.num_seqs; base += WAVE) {
        u32 units = units_of(seq_at(a, base + lane));
        u32 prefix = wave_prefix(units);
        u64 beyond = ballot(w.seq_start + prefix > w.unit);
        u32 last = beyond ? first_bit(beyond) : WAVE - 1;
        u32 upto = (u32)uniform((int)shuffle(prefix, last));
        if (beyond) {
            w.seq_start += upto - (u32)uniform((int)shuffle(units, last));
            w.seq = uniform_seq_at(a, uniform(base + (int)last));
            break;
        }
        w.seq_start += upto;
    }
    return w;
}

// One workgroup's part of one item.
struct segment_t {
    seq_t seq;
    int kv_head, row_block;
    int block, block_end; // key blocks [block, block_end)
    u32 item_start;       // first unit of the item
    bool whole;
};

KG_DEV segment_t work_segment(const work_t &w) {
    segment_t g;
    u32 at = w.unit - w.seq_start, item = at / w.seq.blocks;
    u32 row_blocks = (u32)ceil_div(w.seq.q_len * GROUP, ROWS);
    u32 from = at - item * w.seq.blocks;
    u32 left = w.end - w.unit, length = w.seq.blocks - from;
    length = length < left ? length : left;
    g.seq = w.seq;
    g.kv_head = (int)(item / row_blocks);
    g.row_block = (int)(item - (u32)g.kv_head * row_blocks);
    g.block = w.seq.first_key / TOK + (int)from;
    g.block_end = g.block + (int)length;
    g.item_start = w.unit - from;
    g.whole = length == w.seq.blocks;
    return g;
}

KG_DEV void work_advance(work_t &w, const segment_t &g, args_t a) {
    w.unit += (u32)(g.block_end - g.block);
    while (w.unit < w.end && w.unit - w.seq_start >= units_of(w.seq)) {
        w.seq_start += units_of(w.seq);
        w.seq = uniform_seq_at(a, w.seq.index + 1);
    }
}

// The workgroups that share an item.
struct share_t {
    u32 first, last;
};
KG_DEV share_t share_of(cut_t cut, const segment_t &g) {
    return share_t{cut_owner(cut, g.item_start),
                   cut_owner(cut, g.item_start + g.seq.blocks - 1)};
}

// Where `part` keeps its partial result of the item: a workgroup has at most
// two unfinished items, the one it starts in and the one it ends in.
KG_DEV u32 partial_slot(cut_t cut, u32 part, u32 item_start) {
    return 2 * part + (cut_start(cut, part) < item_start);
}

}

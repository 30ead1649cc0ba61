// Which token a row of the output is, and where it is cached.
namespace kg {

typedef const KG_CONSTANT kg_kv_gather_args &args_t;
typedef const KG_CONSTANT kg_kv_side &side_t;

// The rows of a sequence: first .. end - 1; row r is token r + shift.
struct sequence_t {
    int n, first, end, shift, cached;
};

KG_DEV sequence_t sequence_at(args_t a, int n) {
    if (n >= a.seqs) return sequence_t{n, load(a.cu_seqlens + a.seqs), a.rows, 0, 0};
    sequence_t s = {n, load(a.cu_seqlens + n), load(a.cu_seqlens + n + 1), 0, load(a.seq_lens + n)};
    s.shift = FROM == FROM_END ? s.cached - s.end
                               : (a.starts ? load(a.starts + n) : 0) - s.first;
    return s;
}

// The last sequence that begins at or before `row` (the one after all, where the
// row is nobody's), the same for all lanes: each looks at another one.
KG_DEV int find_sequence(args_t a, int row) {
    int low = 0, count = a.seqs + 1;
    KG_LOOP while (count > 1) {
        int step = ceil_div(count, WAVE), at = low + ((int)lane_id() + 1) * step;
        bool before = at <= a.seqs && load(a.cu_seqlens + at) <= row;
        u64 after = ~ballot(before);
        int past = WAVE == 64 && after == 0 ? 64 : (int)first_bit(after);
        low += past * step;
        count = step;
    }
    return uniform(low);
}

// The same for a row that is not before the sequence.
KG_DEV void walk_to(sequence_t &s, args_t a, int row) {
    while (s.n < a.seqs && row >= s.end) s = sequence_at(a, s.n + 1);
}

struct place_t {
    i32 page; // -1: the row is zeros
    int slot;
};

KG_DEV place_t place_of(args_t a, const sequence_t &s, int row) {
    int token = row + s.shift, index = token, slot = 0;
    if (s.n >= a.seqs || token < 0 || token >= s.cached) return place_t{-1, 0};
    if constexpr (PAGE == PAGE_X16) {
        index = (int)divide((u32)token, a.by_page);
        slot = token - index * a.page;
    } else if constexpr (PAGE != 1) {
        index = (int)((u32)token / PAGE);
        slot = (int)((u32)token % PAGE);
    }
    if (index >= a.columns) return place_t{-1, 0};
    i64 at = s.n * a.table_row + index, page;
    if constexpr (TABLE_I64 != 0) page = load((const i64 *)a.table + at);
    else page = load((const i32 *)a.table + at);
    return place_t{page < 0 || page >= a.pages ? -1 : (i32)page, slot};
}

KG_DEV float descale_of(side_t side, int seq, place_t at, int head) {
    if constexpr (SCALE == SCALE_NONE) return 1;
    i64 line = SCALE == SCALE_TOKEN ? at.page : seq;
    return load(side.scale + (line * side.scale_page + at.slot * side.scale_slot +
                              head * side.scale_head));
}

}

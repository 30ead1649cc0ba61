// What a workgroup of the logits does at once, where its keys are, and who stores what of them.
#pragma once
#include "kg/attn/mma.h"
#include "kg/indexer/index_page.h"

namespace kg {

constexpr int THREADS = KG_WORKGROUP;
constexpr int CODES = KG_INDEX_PIECE; // of a lane's piece of a key or query
constexpr int ALL_HEADS = kg_index_heads(HEADS);
constexpr int WEIGHTS_AT = TOGETHER * kg_index_query_bytes(HEADS, HEAD_DIM); // in LDS

constexpr int LANE_KEYS = S_REGS / COLS; // of a block, whose scores a lane has
constexpr int COLUMN_LANES = NI / COLS;  // lanes with the same keys and other heads
constexpr int WAVE_KEYS = TILES * TOK;   // that a wave takes together
constexpr int GROUP_KEYS = WAVES * WAVE_KEYS;

// What the workgroup does at once.
struct item_t {
    int first, count;       // query tokens
    int seq;                // decode
    int column, column_end; // of the logits
    int low, high;          // what some of the tokens sees
};

struct range_t {
    int start, end;
};

KG_DEV range_t range_of(args_t a, const item_t &item, int n) {
    int token = item.first + n;
    if constexpr (OP == OP_PREFILL) {
        int start = within(load_int<LEN_I64>(a.starts, token), 0, a.rows);
        return range_t{start, within(load_int<LEN_I64>(a.ends, token), start, a.rows)};
    }
    i64 length = load_int<LEN_I64>(a.seq_lens, item.seq);
    return range_t{0, within(length - Q_TOKENS + 1 + (token - item.seq * Q_TOKENS), 0, a.width)};
}

KG_DEV item_t item_at(args_t a, u32 number) {
    constexpr int PARTS = ceil_div(Q_TOKENS, TOGETHER); // of a sequence's tokens
    u32 chunk = quotient_of(number, a.by_blocks);
    int block = (int)(number - chunk * (u32)a.blocks);
    item_t item;
    item.column = (int)chunk * a.chunk;
    item.column_end = smaller(item.column + a.chunk, a.width);
    item.seq = OP == OP_DECODE ? block / PARTS : 0;
    item.first = block * TOGETHER;
    int end = a.tokens;
    if constexpr (OP == OP_DECODE) {
        item.first = item.seq * Q_TOKENS + block % PARTS * TOGETHER;
        end = (item.seq + 1) * Q_TOKENS;
    }
    item.count = smaller(end - item.first, TOGETHER);
    item.low = a.width, item.high = 0;
    KG_LOOP for (int n = 0; n < item.count; n++) {
        range_t r = range_of(a, item, n);
        if (r.start >= r.end) continue;
        item.low = smaller(item.low, r.start);
        item.high = larger(item.high, r.end);
    }
    return item;
}

// --- queries --------------------------------------------------------------------

struct alignas(16) quad_words_t {
    u32 w[4];
};

KG_DEV float *weight_at(u8 *lds, int token, int head) {
    return (float *)(lds + WEIGHTS_AT) + token * ALL_HEADS + head;
}
// Of heads that nobody has, and of tokens behind the last of `count`, zeros.
KG_DEV void stage_weights(args_t a, u8 *lds, int first, int count) {
    KG_LOOP for (int n = (int)thread_id(); n < TOGETHER * ALL_HEADS; n += THREADS) {
        int token = n / ALL_HEADS, head = n % ALL_HEADS;
        bool there = token < count && head < HEADS;
        float w = there ? load(a.weights + ((first + token) * a.weights_row + head)) : 0.0f;
        *weight_at(lds, token, head) = w;
    }
}

// --- keys -----------------------------------------------------------------------

// Where a key and its scale are; null: nowhere.
struct found_t {
    const u8 *codes;
    const float *scale;
};

KG_DEV found_t find_key(args_t a, const item_t &item, int column) {
    if (column < item.low || column >= item.high) return found_t{nullptr, nullptr};
    if constexpr (OP == OP_PREFILL)
        return found_t{(const u8 *)a.keys + column * a.keys_row, a.key_scales + column};
    place_t at = place_of(a, item.seq, column);
    if (at.page < 0) return found_t{nullptr, nullptr};
    return found_t{key_at(a, at), scale_at(a, at)};
}

// --- logits ---------------------------------------------------------------------

// Of the key that the lane stores of each block.
struct stored_t {
    float scale[TILES];
    bool there[TILES];
};

// The lane's place among those with the same keys, and the key that it stores of a block.
KG_DEV int pick_of(int lane) { return COLS == 1 ? lane_i(lane) : lane_grp(lane); }
KG_DEV int stored_key(int lane) {
    return s_token(lane, smaller(pick_of(lane), LANE_KEYS - 1) * COLS);
}

// Of block `t`, that of the key which the lane stores. Hidden, or the compiler makes an index
// of the choice and puts the sums into memory.
KG_DEV float own_sum(const float (&sum)[TILES * LANE_KEYS], int t, int lane) {
    u32 x = bits_of(sum[t * LANE_KEYS]);
    KG_UNROLL for (int i = 1; i < LANE_KEYS; i++) {
        u32 other = opaque(bits_of(sum[t * LANE_KEYS + i]));
        x = pick_of(lane) == i ? other : x;
    }
    return float_of(x);
}

// Of token n, which sees r.
KG_DEV void store_logits(args_t a, const item_t &item, range_t r, const stored_t &keys,
                         const float (&sum)[TILES * LANE_KEYS], int start, int n, int lane) {
    float *row = a.logits + (item.first + n) * a.logits_row;
    KG_UNROLL for (int t = 0; t < TILES; t++) {
        int column = start + t * TOK + stored_key(lane);
        float x = own_sum(sum, t, lane);
        bool seen = keys.there[t] && column >= r.start && column < r.end;
        if (pick_of(lane) < LANE_KEYS && column < item.column_end && (seen || CLEAN != 0))
            store(row + column, seen ? x * keys.scale[t] : -INFINITE);
    }
}

} // namespace kg

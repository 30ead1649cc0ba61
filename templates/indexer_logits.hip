#include "kg/prelude/prelude_indexer.h"
// How much each query token of the indexer makes of each key: a product with all its heads,
// of which what is above 0 is weighed and added up. Formula and arguments:
// <kgen/indexer_args.h>.
//
// A workgroup takes items in turn: a few query tokens, which it puts into LDS, and a chunk
// of columns. Each of its waves takes some blocks of keys into registers and goes through
// all heads of the tokens with them, so that a key is read from memory once. Keys and
// queries are fp16 in the products, which holds 8-bit floats exactly.
#include "kg/indexer/index_query.h"

namespace kg {

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

struct keys_t {
    u32 w[TILES][PIECES][KROWS][PIECE_WORDS];
    float scale[TILES]; // of the key that the lane stores
    bool there[TILES];
};

// The lane's place among those with the same keys, and the key that it stores of a block.
KG_DEV int pick_of(int lane) { return COLS == 1 ? lane_i(lane) : lane_grp(lane); }
KG_DEV int stored_key(int lane) {
    return s_token(lane, smaller(pick_of(lane), LANE_KEYS - 1) * COLS);
}

KG_DEV void load_keys(keys_t &keys, args_t a, const item_t &item, int start, int lane) {
    u32 codes[TILES][KROWS][PIECES][4];
    KG_UNROLL for (int t = 0; t < TILES; t++) {
        KG_UNROLL for (int row = 0; row < KROWS; row++) {
            found_t f = find_key(a, item, start + t * TOK + k_token(lane_i(lane), row));
            KG_UNROLL for (int p = 0; p < PIECES; p++) {
                KG_UNROLL for (int i = 0; i < 4; i++) codes[t][row][p][i] = 0;
                if (f.codes)
                    load_codes(codes[t][row][p], f.codes + p * PIECE_DIMS + lane_grp(lane) * CODES);
            }
        }
        found_t f = find_key(a, item, start + t * TOK + stored_key(lane));
        keys.there[t] = f.scale != nullptr;
        keys.scale[t] = f.scale ? load(f.scale) : 0.0f;
    }
    KG_UNROLL for (int t = 0; t < TILES; t++) KG_UNROLL for (int row = 0; row < KROWS; row++)
        KG_UNROLL for (int p = 0; p < PIECES; p++)
            to_compute<4>(keys.w[t][p][row], codes[t][row][p]);
}

// --- scores ---------------------------------------------------------------------

KG_DEV void multiply(scores_t (&s)[TILES], const keys_t &keys, u8 *lds, int token, int tile,
                     int lane) {
    KG_UNROLL for (int p = 0; p < PIECES; p++) {
        quad_words_t lo = *query_quad(lds, token, tile, p, 0, lane);
        quad_words_t hi = *query_quad(lds, token, tile, p, 1, lane);
        KG_UNROLL for (int n = 0; n < STEPS; n++) {
            u32 qw[K_WORDS];
            KG_UNROLL for (int j = 0; j < K_WORDS; j++) {
                int at = n * K_WORDS + j;
                qw[j] = at < 4 ? lo.w[at % 4] : hi.w[at % 4];
            }
            KG_UNROLL for (int t = 0; t < TILES; t++) {
                u32 kw[KROWS][K_WORDS];
                KG_UNROLL for (int row = 0; row < KROWS; row++)
                    KG_UNROLL for (int j = 0; j < K_WORDS; j++) kw[row][j] =
                        keys.w[t][p][row][n * K_WORDS + j];
                mma_qk(s[t], kw, qw);
            }
        }
    }
}

// Of one token, over the heads that a lane has; then of all.
KG_DEV void weigh(float (&sum)[TILES * LANE_KEYS], const keys_t &keys, u8 *lds, int token,
                  int lane) {
    KG_UNROLL for (int i = 0; i < TILES * LANE_KEYS; i++) sum[i] = 0;
    KG_LOOP for (int tile = 0; tile < HEAD_TILES; tile++) {
        scores_t s[TILES];
        float w[COLS];
        KG_UNROLL for (int t = 0; t < TILES; t++) s[t] = scores_t{};
        multiply(s, keys, lds, token, tile, lane);
        KG_UNROLL for (int c = 0; c < COLS; c++) w[c] =
            *weight_at(lds, token, tile * NI + lane_column(lane, c));
        KG_UNROLL for (int t = 0; t < TILES; t++) KG_UNROLL for (int r = 0; r < S_REGS; r++)
            sum[t * LANE_KEYS + r / COLS] =
                fma(w[r % COLS], fmax(score(s[t], r), 0.0f), sum[t * LANE_KEYS + r / COLS]);
    }
    sum_lanes<1, COLUMN_LANES>(sum);
}

// --- logits ---------------------------------------------------------------------

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

KG_DEV void store_logits(args_t a, const item_t &item, const keys_t &keys,
                         const float (&sum)[TILES * LANE_KEYS], int start, int n, int lane) {
    range_t r = range_of(a, item, n);
    float *row = a.logits + (item.first + n) * a.logits_row;
    KG_UNROLL for (int t = 0; t < TILES; t++) {
        int column = start + t * TOK + stored_key(lane);
        float x = own_sum(sum, t, lane);
        bool seen = keys.there[t] && column >= r.start && column < r.end;
        if (pick_of(lane) < LANE_KEYS && column < item.column_end && (seen || CLEAN != 0))
            store(row + column, seen ? x * keys.scale[t] : -INFINITE);
    }
}

KG_DEV void run_blocks(args_t a, const item_t &item, u8 *lds, int wave, int lane) {
    KG_LOOP for (int start = item.column + wave * WAVE_KEYS; start < item.column_end;
                 start += GROUP_KEYS) {
        keys_t keys;
        load_keys(keys, a, item, start, lane);
        bool inside = start < item.high && start + WAVE_KEYS > item.low;
        KG_LOOP for (int n = 0; n < item.count; n++) {
            float sum[TILES * LANE_KEYS] = {};
            if (inside) weigh(sum, keys, lds, n, lane);
            store_logits(a, item, keys, sum, start, n, lane);
        }
    }
}

KG_DEV void run(args_t a, u8 *lds) {
    int lane = (int)lane_id(), wave = (int)wave_id();
    KG_LOOP for (u32 number = group_id(); number < (u32)a.items; number += (u32)a.groups) {
        item_t item = item_at(a, number);
        bool inside = item.column < item.high && item.column_end > item.low;
        if (!inside && CLEAN == 0) continue;
        barrier(); // the queries before have been read
        if (inside) stage_queries(a, lds, item.first, item.count);
        barrier();
        run_blocks(a, item, lds, wave, lane);
    }
}

} // namespace kg

KG_ENTRY(kg_indexer_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_indexer_args, args), lds);
}

// One block of keys and values in registers, and its two matrix products.
//
// Parts: K is loaded in chunks of 16 bytes a lane along head_dim, V in chunks of
// value dims (natural layouts) or tiles of 16 dims (packed layouts). Some parts
// are in flight before they are needed, the rest follow as registers come free.
#pragma once
#include "kg/attn/mma.h"
#include "kg/attn/page.h"
#include "kg/attn/split.h"
#include "kg/attn/tree.h"
#include "kg/attn/work.h"

namespace kg {

// --- geometry ---------------------------------------------------------------

constexpr int VROWS = 16 / NI;       // dims a lane holds in a V operand
constexpr int QX = BUFFERED ? 8 : X; // dims of a lane's part of a K chunk
constexpr int K_DIMS = NGRP * QX;    // head dims of a K chunk
constexpr int K_CHUNKS = ceil_div(HEAD_DIM, K_DIMS);
constexpr int Q_WORDS = QX / 2; // words of Q that meet one K chunk
constexpr int STEPS = Q_WORDS / K_WORDS;

constexpr int V_LANE_DIMS = kg_attn_lane_dims(V_DIM, V_SPLIT, NI, X, STAGED_ROWS);
constexpr int V_WORDS = larger(1, V_LANE_DIMS *KV_BITS / 32);
constexpr int CHUNK_DIMS = NI * V_LANE_DIMS;
constexpr int CHUNK_TILES = CHUNK_DIMS / 16;
constexpr int PACKED_WORDS = TPL * KV_BITS / 32;

constexpr int PART_DIMS = kg_attn_part_dims(V_DIM, V_SPLIT, NI, X, BY_TILES, STAGED_ROWS);
constexpr int SLICE_DIMS = kg_attn_slice_dims(V_DIM, V_SPLIT, PART_DIMS); // of a wave
constexpr int V_PARTS = SLICE_DIMS / PART_DIMS;
constexpr int PART_TILES = PART_DIMS / 16;
constexpr int PART_ROWS = PACKED ? VROWS : TPL;
constexpr int PART_WORDS = PACKED ? PACKED_WORDS : V_WORDS;
constexpr int O_TILES = V_PARTS * PART_TILES;

// Registers of K, and of V, in flight before use.
constexpr int ACC_REGS = kg_attn_acc_registers(ROW_TILES, SLICE_DIMS, NI, WAVE);
constexpr int AHEAD_WORDS = kg_attn_ahead(ACC_REGS, ROW_TILES, WAVE, IS_SM90);
constexpr int K_AHEAD = KEY_QUEUE ? K_CHUNKS : smaller(K_CHUNKS, AHEAD_WORDS / (KROWS * 4));
constexpr int V_AHEAD =
    KEY_QUEUE ? V_PARTS : smaller(V_PARTS, larger(1, AHEAD_WORDS / (PART_ROWS * PART_WORDS)));

constexpr int Q_REGS = kg_attn_q_registers(ROW_TILES, HEAD_DIM, NGRP, QX);
constexpr int Q_KEEPS =
    kg_attn_q_keeps(ACC_REGS, AHEAD_WORDS, WAVE, IS_SM90, BY_MATRICES, RUNS_AHEAD, Q_YIELDS);
constexpr bool Q_IN_LDS = !STAGED && !BY_LINES && Q_REGS > Q_KEEPS;
// Scores are scaled as they become probabilities, of which a row is turned whose scale is negative.
// Scales of tokens enter before that, where they lie in LDS.
constexpr bool TOKEN_SCALES = DESCALE == DESCALE_TOKEN, BRINGS_SCALES = TOKEN_SCALES && RUNS_AHEAD;
constexpr bool LANE_SCALES = TOKEN_SCALES && !BRINGS_SCALES; // a lane has those of its scores
constexpr bool LIFTS = TOKEN_SCALES && COMPUTE_F16;          // maxima of scores, see lift_of
constexpr bool MAY_TURN = (DESCALE != DESCALE_NONE && !TOKEN_SCALES) || Q_8BIT;
constexpr bool SCALES_LATE = (BY_MATRICES != 0 || PAIRED != 0) && SOFTCAP == 0 && ALIBI == 0 &&
                             (!TOKEN_SCALES || BRINGS_SCALES) &&
                             !(MAY_TURN && (Q_IN_LDS || PAIRED));
constexpr int Q_LDS_WORDS = // of the waves with the same rows
    kg_attn_q_registers(ROW_TILES, kg_attn_q_lds_dims(HEAD_DIM, BY_MATRICES), NGRP, QX) * WAVE;
// They are shared among waves, with what each row was divided by behind them.
constexpr bool SHARES_Q = Q_IN_LDS && KEY_QUEUE != 0;
constexpr int Q_LDS_BYTES =
    (Q_IN_LDS ? Q_LDS_WORDS * 4 * (OWN_ROWS ? WAVES : 1) : 0) + (SHARES_Q ? ROWS * 4 : 0);

constexpr int Q_GROUP_BYTES =
    Q_IN_LDS ? Q_LDS_WORDS * 4 * (BY_MATRICES ? ROW_WAVES : 1) : 0; // of role_t::group

// STAGED: a block of keys lies in LDS, two where there is room, and then the scores that each wave
// has of one; or sets of keys as matrices. One where conversions have the registers that two take.
constexpr int ROW_BYTES = HEAD_DIM * KV_BITS / 8, STAGE_ROW = kg_attn_stage_row(ROW_BYTES);
constexpr int STAGE_KEYS = DIRECT ? kg_attn_direct_keys(TOK, ROW_BYTES) : TOK * STAGE_ROW;
constexpr int SCORES_BYTES = V_SPLIT * WAVE * S_REGS * 4;
constexpr int SAID_BYTES = DIRECT ? kg_attn_said_bytes(ROW_TILES, NI, TOK, WAVE) : 0;
constexpr bool CROWDED = DIRECT != 0 && kg_attn_crowded(ROW_TILES, V_SPLIT) != 0;
constexpr int WAVE_TILES = kg_attn_wave_tiles(CROWDED, KV_BITS);
constexpr int ASIDE_BYTES = kg_attn_aside_bytes(CROWDED, WAVE_TILES, V_SPLIT, X, WAVE);
constexpr int STAGES = DIRECT ? KG_ATTN_DIRECT_STAGES
                       : KV_BITS == 8 && !CONVERTS_BF16 && ACC_REGS >= 64
                           ? 1
                           : kg_attn_stages(KG_LDS_BYTES, STAGE_KEYS, SCORES_BYTES);
constexpr int STAGE_SCORES = STAGES * STAGE_KEYS;

// BUFFERED: sets of some blocks of keys and values lie in LDS.
constexpr kg_attn_sets SETS =
    BY_LINES ? kg_attn_lines_of(KG_LDS_BYTES / OCCUPANCY, TOK, WAVES, WAVE, HEAD_DIM, V_DIM,
                                KV_BITS, BY_LINES - 1, TOKEN_SCALES)
             : kg_attn_matrices_of(kg_attn_most_blocks(ACC_REGS, TOKEN_SCALES, RUNS_AHEAD), TOK,
                                   HEAD_DIM, V_DIM, KV_BITS, OCCUPANCY *KEY_GROUPS,
                                   Q_LDS_BYTES / KEY_GROUPS, RUNS_AHEAD, TOKEN_SCALES);
constexpr int SET_BLOCKS = SETS.blocks;
constexpr int RING_SLOT_BYTES = SETS.k + SETS.v;

// KEY_QUEUE: blocks of a wave wait in LDS (kg/attn/queue_nvidia.h).
constexpr int QUEUE_SLOT = kg_attn_queue_slot(TOK, HEAD_DIM, V_DIM, KV_BITS);

constexpr int STAGE_BYTES = STAGED_MATRICES ? MATRICES_BYTES
                            : STAGED        ? STAGE_SCORES + SCORES_BYTES + SAID_BYTES + ASIDE_BYTES
                            : BUFFERED      ? SETS.bytes * KEY_GROUPS
                            : KEY_QUEUE     ? KEY_QUEUE * QUEUE_SLOT * WAVES
                                            : 0;

// Keys enter products as they are, and bf16 queries as sums of two 8-bit floats.
constexpr bool KEYS_AS_CODES = KG_FP8_PRODUCTS != 0 && !BUFFERED && !COMPUTE_F16 &&
                               Q_DTYPE == DTYPE_BF16 && KV_DTYPE == E4M3_DTYPE;
// Behind the first keys, which else would be asked for only when queries are there.
constexpr bool CONVERTS_LATE = IS_SM90 && SCALED_Q && !Q_F32 && !KV_4BIT && !BUFFERED && !KEY_QUEUE;
constexpr bool SPLITS_LATE = (KEYS_AS_CODES || CONVERTS_LATE) && !STAGED && !Q_IN_LDS;
constexpr int CODE_MOST = larger(1, KG_FP8_PRODUCTS),
              CODE_CHUNKS = K_CHUNKS % CODE_MOST ? 1 : CODE_MOST;

struct k_tile_t {
    u32 w[K_CHUNKS][KROWS][4];
};
struct v_tile_t {
    u32 w[V_PARTS][PART_ROWS][PART_WORDS];
};
struct q_frag_t {
    u32 w[Q_IN_LDS ? 1 : ROW_TILES][K_CHUNKS][Q_WORDS];
    float scale[ROW_TILES][COLS];          // what the queries were divided by
    float excess[EXCEEDS ? ROW_TILES : 1]; // of the products with keys
};

// What a workgroup knows of its KV head.
struct head_t {
    const u8 *k, *v;
    i64 k_page, v_page;
    int k_token, v_token, k_chunk, v_chunk, v_dim_stride;
    int index;                 // KV head
    int safe_first, safe_last; // keys that every row sees
    int context, first_row;    // keys before the queries; first row of the block
    float slope[ROW_TILES][COLS];
    float scale[ROW_TILES][COLS]; // of a score, in log2 units
    float softcap;
    int window, right;
    flag_t causal;
    const u8 *words; // of the sequence
    int words_end;   // tokens that have one
    mask_t mask[TREE ? ROW_TILES : 1][COLS];
    int span_end[SPANS ? ROW_TILES : 1][COLS];
};

struct alignas(16) piece_t {
    u32 w[4];
};

// --- queries ----------------------------------------------------------------

// Row `row` of the block: token row / GROUP, head row % GROUP.
KG_DEV bool row_exists(const segment_t &g, int row) {
    return (g.row_block * ROWS + row) / GROUP < g.seq.q_len;
}

// BY_MATRICES: all waves share the keys of a row block whose rows are one wave's
// (kg/attn/few_rows_nvidia.h). INVARIANT: a row's sums must not show how many rows there are.
// Smaller sets, and wide rows that are converted, are those of kernels with no register left.
constexpr bool SHARES_SETS = BY_MATRICES != 0 && UNBOUNDED && !INVARIANT && SET_BLOCKS >= 4 &&
                             (!CONVERTED || HEAD_DIM + V_DIM <= 256) && (!BRINGERS || SOON_FEW);
KG_DEV bool has_few_rows(const segment_t &g) { return SHARES_SETS && !row_exists(g, WAVE_ROWS); }

KG_DEV const u8 *q_row(args_t a, const segment_t &g, int row) {
    int at = g.row_block * ROWS + row;
    return (const u8 *)a.q + (g.seq.q_start + at / GROUP) * a.q_token +
           (g.kv_head * GROUP + at % GROUP) * a.q_head;
}

// N chunks from `first` on; what is outside is 0.
template <int N>
KG_DEV void load_q_row(u32 (&w)[N][Q_WORDS], args_t a, const segment_t &g, int row, int first) {
    int grp = lane_grp((int)opaque(lane_id()));
    const u8 *q = q_row(a, g, row);
    bool exists = row_exists(g, row);
    KG_UNROLL for (int c = 0; c < N; c++) {
        int dim = (first + c) * K_DIMS + grp * QX;
        KG_UNROLL for (int n = 0; n < Q_WORDS; n += 4) {
            u32 x[4] = {0, 0, 0, 0};
            if (exists && dim < HEAD_DIM) load_words(x, q + dim * 2 + n * 4);
            KG_UNROLL for (int j = 0; j < 4; j++) w[c][n + j] = x[j];
        }
    }
}

// The same as buffer_nvidia.h has them: of each 16 bytes the lane's word.
constexpr bool TURNED_Q = BY_MATRICES && !Q_8BIT && !Q_F32;
// Or they come to LDS past the registers, as keys do (kg/attn/bringers_nvidia.h).
constexpr bool BRINGS_Q = RUNS_AHEAD && TURNED_Q && !SCALED_Q;
KG_DEV void load_q_turned(u32 (&w)[K_CHUNKS][Q_WORDS], args_t a, const segment_t &g, int row) {
    const u8 *q = q_row(a, g, row) + lane_grp((int)opaque(lane_id())) * 4;
    bool exists = row_exists(g, row);
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++)
        KG_UNROLL for (int piece = 0; piece < NGRP; piece++) {
        int dim = c * K_DIMS + piece * QX;
        u32 x[1] = {};
        if (exists && dim < HEAD_DIM) load_near(x, q + dim * 2); // sectors are read four times
        w[c][piece] = x[0];
    }
}

// Codes of 8 bits, each of which the COMPUTE type holds exactly.
KG_DEV void load_q_codes(u32 (&w)[K_CHUNKS][Q_WORDS], args_t a, const segment_t &g, int row) {
    int grp = lane_grp((int)opaque(lane_id()));
    const u8 *q = q_row(a, g, row);
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
        int dim = c * K_DIMS + grp * QX;
        constexpr int STEP = smaller(4, Q_WORDS / 2), CODE = Q_8BIT ? Q_DTYPE : DTYPE_E4M3FN;
        KG_UNROLL for (int first = 0; first < Q_WORDS; first += 2 * STEP) {
            u32 x[STEP] = {};
            if (row_exists(g, row) && dim < HEAD_DIM) load_words(x, q + dim + 2 * first);
            KG_UNROLL for (int n = 0; n < 2 * STEP; n++) {
                u32 pair = x[n / 2] >> n % 2 * 16;
                w[c][first + n] = pack_compute(fp8_to_f32_soft<CODE>(pair & 255u),
                                               fp8_to_f32_soft<CODE>(pair >> 8 & 255u));
            }
        }
    }
}

// The greatest of a row's magnitudes, the upper halves of which a lane has in `top`.
KG_DEV u32 row_top(u32 top, int lane) {
    KG_UNROLL for (u32 grp = 1; grp < (u32)NGRP; grp *= 2) {
        u32 other = shuffle(top, (u32)lane_at(lane_i(lane), lane_grp(lane) ^ (int)grp));
        top = other > top ? other : top;
    }
    return top;
}
template <int N> KG_DEV u32 row_top(const u32 (&w)[N][Q_WORDS], int lane = (int)lane_id()) {
    u32 top = 0;
    KG_UNROLL for (int c = 0; c < N; c++) KG_UNROLL for (int n = 0; n < Q_WORDS; n++) {
        u32 lo = w[c][n] & 0x7fffu, hi = w[c][n] >> 16 & 0x7fffu;
        top = lo > top ? lo : top;
        top = hi > top ? hi : top;
    }
    return row_top(top, lane);
}

// The power of two at it: its exponent, biased.
KG_DEV u32 exponent_of(u32 top) {
    u32 exponent = top >> 7;
    return exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
}

// bf16 queries for an fp16 product: divided by a power of two that brings the
// row's greatest magnitude to 1..2, so nothing overflows and what underflows is
// far below the row's own rounding. Returns the power of two.
template <int N> KG_DEV float q_to_f16(u32 (&w)[N][Q_WORDS]) {
    u32 exponent = exponent_of(row_top(w));
    float down = float_of((254 - exponent) << 23), up = float_of(exponent << 23);
    KG_UNROLL for (int c = 0; c < N; c++) KG_UNROLL for (int n = 0; n < Q_WORDS; n++) w[c][n] =
        pack_f16(bf16_to_f32(w[c][n] & 0xffffu) * down, float_of(w[c][n] & 0xffff0000u) * down);
    return up;
}

// The same for products of 8-bit floats (kg/attn/split.h), to 2^CODE_TOP. What is not finite shows
// in the power of two. Chunks behind the CODED first stay bf16.
template <int N, int CODED = N>
KG_DEV float q_to_codes(u32 (&w)[N][Q_WORDS], int lane = (int)lane_id()) {
    u32 top = row_top(w, lane), exponent = top >> 7;
    exponent = exponent > CODE_TOP ? exponent : CODE_TOP + 1;
    float down = float_of((254 + CODE_TOP - exponent) << 23);
    KG_UNROLL for (int c = 0; c < CODED; c++) split_codes(w[c], down);
    KG_UNROLL for (int c = CODED; c < N; c++) scale_pairs(w[c], down);
    return float_of(top < 0x7f80u ? (exponent - CODE_TOP) << 23 : 0x7fc00000u);
}

// f32 queries, rounded to the COMPUTE type; for fp16 divided as bf16 ones are. Read
// twice, for the greatest magnitude first: a row of floats would fill the registers.
KG_DEV float load_q_floats(u32 (&w)[K_CHUNKS][Q_WORDS], args_t a, const segment_t &g, int row) {
    int grp = lane_grp((int)opaque(lane_id()));
    const u8 *q = q_row(a, g, row);
    bool exists = row_exists(g, row);
    u32 top = 0;
    KG_UNROLL for (int pass = SCALED_Q ? 0 : 1; pass < 2; pass++) {
        u32 exponent = pass && SCALED_Q ? exponent_of(row_top(top, (int)lane_id())) : 127;
        float down = float_of((254 - exponent) << 23);
        KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
            int dim = c * K_DIMS + grp * QX;
            KG_UNROLL for (int n = 0; n < Q_WORDS; n += 2) {
                u32 x[4] = {0, 0, 0, 0};
                if (exists && dim < HEAD_DIM) load_words(x, q + dim * 4 + n * 8);
                KG_UNROLL for (int j = 0; j < 4; j++) {
                    u32 size = x[j] >> 16 & 0x7fffu;
                    top = size > top ? size : top;
                }
                w[c][n] = pack_compute(float_of(x[0]) * down, float_of(x[1]) * down);
                w[c][n + 1] = pack_compute(float_of(x[2]) * down, float_of(x[3]) * down);
            }
        }
        if (pass) return float_of(exponent << 23);
    }
    return 1.0f;
}

// Pairs of dims as a word of 4-bit keys gives them (kg/attn/integer.h).
template <int N> KG_DEV void pair_q_as_int4(u32 (&w)[N][Q_WORDS]) {
    KG_UNROLL for (int c = 0; c < N; c++) KG_UNROLL for (int n = 0; n + 3 < Q_WORDS; n += 4) {
        u32 pairs[4];
        KG_UNROLL for (int j = 0; j < 4; j++) pairs[j] =
            byte_perm(w[c][n + j / 2], w[c][n + 2 + j / 2], j % 2 ? 0x07060302 : 0x05040100);
        KG_UNROLL for (int j = 0; j < 4; j++) w[c][n + j] = pairs[j];
    }
}

// BY_MATRICES: a lane has its word of each 16 bytes of a chunk instead of one of these 16 bytes.
KG_DEV void turn_q(u32 (&w)[Q_WORDS]) {
    u32 grp = lane_id() % 4, turned[4];
    KG_UNROLL for (u32 piece = 0; piece < 4; piece++)
        KG_UNROLL for (u32 part = 0; part < 4; part++) {
        u32 theirs = shuffle(w[part % Q_WORDS], lane_id() - grp + piece);
        turned[piece] = part == 0 || grp == part ? theirs : turned[piece];
    }
    KG_UNROLL for (int piece = 0; piece < 4; piece++) w[piece % Q_WORDS] = turned[piece];
}
// Matrix `number` of the 64 rows of a group of waves, of which `row` of the row block is one:
// 64 dims of each (kg/attn/lds_nvidia.h).
KG_DEV const u8 *q_matrix(const u8 *lds, int row, int number) {
    return lds + row / 64 * (4 * Q_LDS_WORDS * 4) + number * (64 * 128);
}
KG_DEV void put_q(u8 *lds, const u32 (&w)[Q_WORDS], int row, int chunk) {
    u32 i = (u32)row % 8;
    u8 *at = (u8 *)q_matrix(lds, row, chunk / 2) + row % 64 * 128 + lane_id() % 4 * 4;
    KG_UNROLL for (u32 piece = 0; piece < 4; piece++) *
        (u32 *)(at + (((u32)chunk % 2 * 4 + piece) ^ i) * 16) = w[piece % Q_WORDS];
}

// A lane's words of a chunk. sm_90: pieces of 16 bytes of all lanes side by side, of which eight
// lanes then read all banks.
constexpr int Q_SIDE = IS_SM90 ? 4 : Q_WORDS;
constexpr int q_word(int n) { return n / Q_SIDE * WAVE * Q_SIDE + n % Q_SIDE; }
KG_DEV u32 *q_lds(u8 *lds, int t, int c, int lane) {
    return (u32 *)lds + ((t * K_CHUNKS + c) * (Q_WORDS / Q_SIDE) * WAVE + lane) * Q_SIDE;
}
KG_DEV u32 *q_lds(u8 *lds, int t, int c) { return q_lds(lds, t, c, (int)lane_id()); }

// The lane's row of a tile; what f32 ones were divided by.
KG_DEV float load_q_words(u32 (&w)[K_CHUNKS][Q_WORDS], args_t a, const segment_t &g, int row) {
    if constexpr (Q_8BIT)
        load_q_codes(w, a, g, row);
    else if constexpr (Q_F32)
        return load_q_floats(w, a, g, row);
    else if constexpr (TURNED_Q)
        load_q_turned(w, a, g, row);
    else
        load_q_row(w, a, g, row, 0);
    return 1;
}
// As products have it; what it was divided by.
KG_DEV float convert_q(u32 (&w)[K_CHUNKS][Q_WORDS], float up) {
    if constexpr (SCALED_Q && !Q_F32 && !SPLITS_LATE) up = q_to_f16(w);
    if constexpr (KEYS_AS_CODES && !SPLITS_LATE) up = q_to_codes(w);
    if constexpr (KV_4BIT && !BUFFERED) pair_q_as_int4(w);
    return up;
}
KG_DEV float load_q_tile(u32 (&w)[K_CHUNKS][Q_WORDS], args_t a, const segment_t &g, int row) {
    float up = load_q_words(w, a, g, row);
    return convert_q(w, up);
}

// SHARES_Q: each wave loads some of the tiles for all, and says what their rows were divided by.
// One of them, which it asks for before it waits for page numbers.
constexpr bool ASKS_FIRST = SHARES_Q && !Q_8BIT && !Q_F32 && ROW_TILES <= WAVES;
KG_DEV void ask_for_q(q_frag_t &q, args_t a, const segment_t &g, const role_t &role) {
    if constexpr (ASKS_FIRST)
        load_q_words(q.w[0], a, g, role.key * NI + lane_i((int)opaque(lane_id())));
}
KG_DEV void share_tile(const u32 (&w)[K_CHUNKS][Q_WORDS], float up, int t, u8 *lds) {
    float *scales = (float *)(lds + Q_LDS_WORDS * 4);
    int lane = (int)opaque(lane_id());
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) KG_UNROLL for (int n = 0; n < Q_WORDS; n++)
        q_lds(lds, t, c)[q_word(n)] = w[c][n];
    if (lane_grp(lane) == 0) scales[t * NI + lane_i(lane)] = up;
}
KG_DEV void share_q(q_frag_t &q, args_t a, const segment_t &g, const role_t &role, u8 *lds) {
    const float *scales = (const float *)(lds + Q_LDS_WORDS * 4);
    int lane = (int)opaque(lane_id());
    if constexpr (ASKS_FIRST) {
        if (role.key < ROW_TILES) share_tile(q.w[0], convert_q(q.w[0], 1), role.key, lds);
    } else {
        KG_LOOP for (int t = role.key; t < ROW_TILES; t += role.keys) {
            u32 w[K_CHUNKS][Q_WORDS];
            float up = load_q_tile(w, a, g, t * NI + lane_i(lane));
            share_tile(w, up, t, lds);
        }
    }
    barrier();
    KG_UNROLL for (int n = 0; n < ROW_TILES * COLS; n++) q.scale[n / COLS][n % COLS] =
        scales[n / COLS * NI + lane_column(lane, n % COLS)];
}

// `lds`: of the waves with the same rows.
KG_DEV void load_q(q_frag_t &q, args_t a, const segment_t &g, const role_t &role, u8 *lds) {
    int lane = (int)opaque(lane_id());
    if constexpr (BRINGS_Q) {
        KG_UNROLL for (int n = 0; n < ROW_TILES * COLS; n++) q.scale[n / COLS][n % COLS] = 1.0f;
        return;
    }
    if constexpr (SHARES_Q) return share_q(q, a, g, role, lds);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        u32 w[K_CHUNKS][Q_WORDS];
        int row = role.row + t * NI + lane_i(lane);
        float up = load_q_tile(w, a, g, row);
        KG_UNROLL for (int c = 0; c < COLS; c++) q.scale[t][c] =
            (SCALED_Q || KEYS_AS_CODES) && !SPLITS_LATE
                ? float_of(shuffle(bits_of(up), (u32)lane_at(lane_column(lane, c), 0)))
                : 1.0f;
        if constexpr (BY_MATRICES) KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
                if constexpr (!TURNED_Q) turn_q(w[c]);
                if constexpr (Q_IN_LDS) put_q(lds, w[c], row, c);
            }
        KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) KG_UNROLL for (int n = 0; n < Q_WORDS; n++) {
            if constexpr (BY_MATRICES && Q_IN_LDS) break;
            if constexpr (!Q_IN_LDS)
                q.w[t][c][n] = w[c][n];
            else if (role.key * V_SPLIT + role.v == t % (role.keys * V_SPLIT))
                q_lds(lds, t, c)[q_word(n)] = w[c][n];
        }
    }
    if constexpr (Q_IN_LDS && !BY_MATRICES) barrier();
}

// SPLITS_LATE: the rest of load_q.
template <typename Q> KG_DEV void split_q(Q &q) {
    if constexpr (SPLITS_LATE) {
        int lane = (int)opaque(lane_id());
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            float up = 1;
            if constexpr (SCALED_Q)
                up = q_to_f16(q.w[t]);
            else
                up = q_to_codes(q.w[t]);
            KG_UNROLL for (int c = 0; c < COLS; c++) q.scale[t][c] =
                float_of(shuffle(bits_of(up), (u32)lane_at(lane_column(lane, c), 0)));
        }
    }
}

// --- keys -------------------------------------------------------------------

// Rows that share lines of 128 bytes with those of other heads, which another workgroup reads:
// nothing of a line comes before it is asked for.
constexpr bool ENDS_IN_LINE = HEAD_DIM * KV_BITS / 8 % 128 != 0 || V_DIM * KV_BITS / 8 % 128 != 0;
constexpr bool SHARES_LINES = IS_SM90 && LAYOUT == LAYOUT_NHD && ENDS_IN_LINE;

// Waves with rows of their own read the same keys and values, one after the other.
template <int N> KG_DEV void load_cached(u32 (&out)[N], const u8 *p) {
    if constexpr (SHARES_LINES && N > 1)
        load_plain(out, p);
    else if constexpr (UNBOUNDED)
        load_near(out, p);
    else
        load_words(out, p);
}

KG_DEV const u8 *k_row(const head_t &h, const keys_t &keys, const ids_t &ids, int start, int row) {
    int i = lane_i((int)lane_id()), n = SMALL_PAGE ? row : 0;
    int anchor = start + (SHARED_ID ? 0 : k_token(i, n));
    int slot = slot_of(keys, start + k_token(i, row), anchor);
    return h.k + inside_pool(keys, ids.k[n]) * h.k_page +
           (i64)((u32)slot * (u32)(PACKED ? 16 : h.k_token));
}

KG_DEV void load_k(k_tile_t &k, const head_t &h, const keys_t &keys, const ids_t &ids, int start,
                   int from, int to) {
    int grp = lane_grp((int)lane_id());
    i64 of_lane = BY_PAGE ? 0 : (i64)grp * (PACKED ? h.k_chunk : 16);
    KG_UNROLL for (int row = 0; row < KROWS; row++) {
        const u8 *p;
        if constexpr (BY_PAGE)
            p = row_in_page(
                page_rows(keys, ids.k[row % K_IDS], h.k, h.k_page, h.k_token, start + 16 * row),
                row_token(lane_i((int)lane_id())), h.k_token, (u32)grp * 16);
        else
            p = k_row(h, keys, ids, start, row);
        KG_UNROLL for (int c = from; c < to; c++) {
            int step = PACKED ? (int)opaque_uniform((u32)h.k_chunk) : 16;
            bool inside = HEAD_DIM % K_DIMS == 0 || (c * NGRP + grp) * X < HEAD_DIM;
            // what is outside meets a zero of Q
            if constexpr (BY_PAGE)
                load_cached(k.w[c][row], p + (inside ? c * NGRP * 16 : -grp * 16));
            else
                load_cached(k.w[c][row], p + (inside ? of_lane + (i64)(c * NGRP) * step : 0));
        }
    }
}

// KEYS_AS_CODES: s[t] += K Q^T. W: words of a chunk's queries.
template <int W>
KG_DEV void score_codes(scores_t (&s)[ROW_TILES], k_tile_t &k, const q_frag_t &q, const head_t &h,
                        const keys_t &keys, const ids_t &ids, int start, const u8 *lds) {
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c += CODE_CHUNKS) {
        u32 key[KROWS][CODE_CHUNKS][W / 2], query[CODE_CHUNKS][W];
        KG_UNROLL for (int n = 0; n < CODE_CHUNKS; n++) {
            KG_UNROLL for (int row = 0; row < KROWS; row++)
                KG_UNROLL for (int j = 0; j < W / 2; j++) key[row][n][j] = k.w[c + n][row][j];
            int next = c + n + K_AHEAD;
            if (next < K_CHUNKS) load_k(k, h, keys, ids, start, next, next + 1);
        }
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            KG_UNROLL for (int n = 0; n < CODE_CHUNKS; n++) {
                const u32 *from =
                    Q_IN_LDS ? q_lds((u8 *)lds, t, c + n) : q.w[Q_IN_LDS ? 0 : t][c + n];
                KG_UNROLL for (int j = 0; j < W; j++) query[n][j] = from[j];
            }
            mma_codes(s[t], key, query);
        }
    }
}

// Queries of a step. RDNA reads them from LDS as its products take them: of gfx11 each half wave
// all of them, which is less than to exchange halves.
constexpr bool Q_BY_PIECES = Q_IN_LDS && WAVE == 32 && K_WORDS == 4;
struct step_t {
    u32 w[Q_BY_PIECES ? OPERAND_WORDS : K_WORDS];
};
KG_DEV step_t step_of(const q_frag_t &q, const u8 *lds, int t, int c, int n) {
    step_t x;
    if constexpr (Q_BY_PIECES) {
        int lane = (int)lane_id();
        KG_UNROLL for (int j = 0; j < OPERAND_WORDS; j += 4) {
            int from = OPERAND_WORDS == K_WORDS ? lane : lane_at(lane_i(lane), j / 4);
            piece_t piece = *(const piece_t *)(q_lds((u8 *)lds, t, c, from) + n * K_WORDS);
            KG_UNROLL for (int i = 0; i < 4; i++) x.w[j + i] = piece.w[i];
        }
    } else {
        const u32 *query = Q_IN_LDS ? q_lds((u8 *)lds, t, c) : q.w[Q_IN_LDS ? 0 : t][c];
        KG_UNROLL for (int j = 0; j < K_WORDS; j++) x.w[j] =
            query[Q_IN_LDS ? q_word(n * K_WORDS + j) : n * K_WORDS + j];
    }
    return x;
}
// That of the step behind it, past the last the first.
KG_DEV step_t step_after(const q_frag_t &q, const u8 *lds, int t, int c, int n) {
    int next = ((c * ROW_TILES + t) * STEPS + n + 1) % (K_CHUNKS * ROW_TILES * STEPS);
    return step_of(q, lds, next / STEPS % ROW_TILES, next / STEPS / ROW_TILES, next % STEPS);
}

// Keys of nothing but the excess.
KG_DEV void key_excess(q_frag_t &q, const u8 *lds) {
    if constexpr (!EXCEEDS) return;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        scores_t s = {};
        KG_UNROLL for (int i = 0; i < K_CHUNKS * STEPS; i++) {
            u32 key[KROWS][K_WORDS];
            KG_UNROLL for (int j = 0; j < KROWS * K_WORDS; j++) key[j / K_WORDS][j % K_WORDS] =
                EXCESS;
            mma_qk(s, key, step_of(q, lds, t, i / STEPS, i % STEPS).w);
        }
        q.excess[EXCEEDS ? t : 0] = score(s, 0);
    }
}
KG_DEV scores_t no_scores(const q_frag_t &q, int t) {
    scores_t s = {};
    if constexpr (EXCEEDS)
        KG_UNROLL for (int r = 0; r < S_REGS; r++) set_score(s, r, -q.excess[EXCEEDS ? t : 0]);
    return s;
}

// s[t] = K Q^T for the block; refills k as its chunks are used up.
KG_DEV void score_block(scores_t (&s)[ROW_TILES], k_tile_t &k, const q_frag_t &q, const head_t &h,
                        const keys_t &keys, const ids_t &ids, int start, const u8 *lds) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) s[t] = no_scores(q, t);
    const u8 *here = lds + opaque(0);
    if constexpr (KEYS_AS_CODES) return score_codes<Q_WORDS>(s, k, q, h, keys, ids, start, here);
    step_t next = Q_BY_PIECES ? step_of(q, here, 0, 0, 0) : step_t{};
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
        u32 key[KROWS][64 / KV_BITS];
        KG_UNROLL for (int row = 0; row < KROWS; row++) to_compute<4>(key[row], k.w[c][row]);
        if (c + K_AHEAD < K_CHUNKS) load_k(k, h, keys, ids, start, c + K_AHEAD, c + K_AHEAD + 1);
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            KG_UNROLL for (int n = 0; n < STEPS; n++) {
                u32 kw[KROWS][K_WORDS];
                KG_UNROLL for (int j = 0; j < K_WORDS; j++)
                    KG_UNROLL for (int row = 0; row < KROWS; row++) kw[row][j] =
                        key[row][n * K_WORDS + j];
                step_t query = Q_BY_PIECES ? next : step_of(q, here, t, c, n);
                if constexpr (Q_BY_PIECES) next = step_after(q, here, t, c, n);
                mma_qk(s[t], kw, query.w);
            }
        }
    }
}

// --- values -----------------------------------------------------------------

// Value dim of an accumulator, in the wave's slice.
KG_DEV int o_dim(int tile, int row) {
    if constexpr (BY_TILES)
        return tile * 16 + row;
    else
        return tile / PART_TILES * CHUNK_DIMS + V_LANE_DIMS * (row % NI) +
               tile % PART_TILES * VROWS + row / NI;
}

template <int R, int W>
KG_DEV void load_v_natural(u32 (&w)[R][W], const head_t &h, const keys_t &keys, const ids_t &ids,
                           int start, int chunk) {
    int i = lane_i((int)lane_id()), token = start + TPL * lane_grp((int)lane_id());
    int dim = chunk * CHUNK_DIMS + i * V_LANE_DIMS;
    if (V_DIM % (CHUNK_DIMS * V_SPLIT) != 0 && dim >= V_DIM) dim = 0; // not stored
    if constexpr (BY_PAGE) {
        int first = ROW_TPL * lane_grp((int)lane_id());
        KG_UNROLL for (int n = 0; n < TPL; n += ROW_TPL) {
            page_rows_t rows = page_rows(keys, ids.k[n / ROW_TPL % K_IDS], h.v, h.v_page, h.v_token,
                                         start + n / ROW_TPL * 16);
            KG_UNROLL for (int j = 0; j < ROW_TPL; j++) load_cached(
                w[n + j], row_in_page(rows, first + j, h.v_token, (u32)(dim * KV_BITS / 8)));
        }
        return;
    }
    KG_UNROLL for (int n = 0; n < TPL; n++) {
        int anchor = SHARED_ID ? start : token + (SMALL_PAGE ? n : 0);
        int slot = slot_of(keys, token + n, anchor);
        load_cached(w[n], h.v + inside_pool(keys, ids.v[SMALL_PAGE ? n : 0]) * h.v_page +
                              (i64)((u32)slot * (u32)h.v_token) + dim * KV_BITS / 8);
    }
}

// Groups past the visible keys read a group that is in the page and are masked.
template <int R, int W>
KG_DEV void load_v_packed(u32 (&w)[R][W], const head_t &h, const keys_t &keys, const ids_t &ids,
                          int start, int tile) {
    int i = lane_i((int)lane_id()), token = start + TPL * lane_grp((int)lane_id());
    int slot = slot_of(keys, token, SHARED_ID ? start : token) / TPL * TPL;
    const u8 *p = h.v + inside_pool(keys, ids.v[0]) * h.v_page +
                  (LAYOUT == LAYOUT_SHUFFLE ? (i64)(slot / X) * h.v_chunk + slot % X * KV_BITS / 8
                                            : (i64)slot * KV_BITS / 8);
    i64 of_lane = (i64)i * h.v_dim_stride;
    int stride = (int)opaque_uniform((u32)h.v_dim_stride);
    KG_UNROLL for (int row = 0; row < VROWS; row++) {
        int first = tile * 16 + NI * row;
        bool inside = V_DIM % (16 * V_SPLIT) == 0 || first + i < V_DIM;
        load_cached(w[row], p + (inside ? of_lane + (i64)first * stride : 0));
    }
}

KG_DEV void load_v(v_tile_t &v, const head_t &h, const keys_t &keys, const ids_t &ids, int start,
                   int v_wave, int from, int to) {
    KG_UNROLL for (int part = from; part < to; part++) {
        if constexpr (PACKED)
            load_v_packed(v.w[part], h, keys, ids, start, v_wave * V_PARTS + part);
        else
            load_v_natural(v.w[part], h, keys, ids, start, v_wave * V_PARTS + part);
    }
}

// Tokens that no row sees hold whatever is in the page: the bits of a lane's
// packed words that stay.
struct seen_t {
    u32 w[TPL / 2];
};
KG_DEV seen_t seen_tokens(const keys_t &keys, int start) {
    seen_t seen;
    int token = start + TPL * lane_grp((int)lane_id());
    KG_UNROLL for (int j = 0; j < TPL / 2; j++) seen.w[j] = 0xffffffffu;
    if (start >= keys.first && start + TOK - 1 <= keys.last) return seen;
    KG_UNROLL for (int n = 0; n < TPL; n++) {
        bool visible = token + n >= keys.first && token + n <= keys.last;
        if constexpr (KEEP != 0) visible |= token + n < keys.keep && token + n <= keys.last;
        if (!visible) seen.w[n / 2] &= n % 2 ? 0x0000ffffu : 0xffff0000u;
    }
    return seen;
}

// Codes of two tokens change places before they are converted: half as many moves, of 4 bits a
// quarter. Bytes not of several row tiles, for which the compiler's registers made it slower.
constexpr bool TURNS_CODES = KV_4BIT || (IS_SM90 && KV_BITS == 8 && KEY_QUEUE == 0);
template <int R, int W>
KG_DEV void weigh_codes(acc_t (&o)[ROW_TILES][O_TILES], const u32 (&w)[R][W],
                        const u32 (&p)[ROW_TILES][P_WORDS], int part) {
    constexpr int HALF = 16 / KV_BITS, TILES = 2 * HALF / VROWS; // of a word
    constexpr u32 LOW = KV_4BIT ? 0x05040100 : 0x05010400;       // its dims, or nibbles
    KG_UNROLL for (int word = 0; word < W; word++) {
        u32 x[TPL / 2][2 * HALF]; // pairs of tokens, by dims
        KG_UNROLL for (int j = 0; j < TPL / 2; j++) KG_UNROLL for (int half = 0; half < 2; half++) {
            u32 pair[HALF], codes[1] = {byte_perm(w[2 * j][word], w[2 * j + 1][word],
                                                  half ? LOW + 0x02020202 : LOW)};
            to_compute<1>(pair, codes);
            KG_UNROLL for (int i = 0; i < HALF; i++) x[j][HALF * half + i] = pair[i];
        }
        KG_UNROLL for (int tile = 0; tile < TILES; tile++) {
            u32 v[4];
            KG_UNROLL for (int n = 0; n < 4; n++) v[n] =
                x[n % (TPL / 2)][tile * VROWS + n / (TPL / 2)];
            KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
                mma_pv(o[t][part * CHUNK_TILES + word * TILES + tile], v, p[t]);
        }
    }
}

template <int R, int W>
KG_DEV void weigh_part(acc_t (&o)[ROW_TILES][O_TILES], const u32 (&w)[R][W],
                       const u32 (&p)[ROW_TILES][P_WORDS], int part) {
    if constexpr (TURNS_CODES) return weigh_codes(o, w, p, part);
    constexpr int WORD_TILES = CHUNK_TILES / W; // one word of each token at a time
    KG_UNROLL for (int word = 0; word < W; word++) {
        u32 x[TPL][16 / KV_BITS];
        float f[TPL][4];
        KG_UNROLL for (int n = 0; n < TPL; n++) {
            const u32 in[1] = {w[n][word]};
            if constexpr (TURNS_FLOATS)
                fp8_floats(f[n], in[0]);
            else
                to_compute<1>(x[n], in);
        }
        KG_UNROLL for (int tile = 0; tile < WORD_TILES; tile++) {
            u32 v[4];
            KG_UNROLL for (int row = 0; row < VROWS; row++) {
                int dim = tile * VROWS + row, pair = dim / 2, high = dim % 2;
                KG_UNROLL for (int j = 0; j < TPL / 2; j++) {
                    u32 low, above;
                    if constexpr (TURNS_FLOATS)
                        low = bits_of(f[2 * j][dim % 4]), above = bits_of(f[2 * j + 1][dim % 4]);
                    else
                        low = x[2 * j][pair], above = x[2 * j + 1][pair];
                    v[row * (TPL / 2) + j] =
                        byte_perm(low, above, TURNS_FLOATS || high ? 0x07060302 : 0x05040100);
                }
            }
            KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
                mma_pv(o[t][part * CHUNK_TILES + word * WORD_TILES + tile], v, p[t]);
        }
    }
}

template <int R, int W>
KG_DEV void weigh_packed(acc_t (&o)[ROW_TILES][O_TILES], const u32 (&w)[R][W],
                         const u32 (&p)[ROW_TILES][P_WORDS], int part, const seen_t &seen) {
    u32 v[4];
    KG_UNROLL for (int row = 0; row < VROWS; row++) {
        u32 x[W * 16 / KV_BITS];
        to_compute<W>(x, w[row]);
        KG_UNROLL for (int j = 0; j < TPL / 2; j++) v[row * (TPL / 2) + j] = x[j] & seen.w[j];
    }
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mma_pv(o[t][part], v, p[t]);
}

// O += V^T P; refills v as its parts are used up.
KG_DEV void weigh_values(acc_t (&o)[ROW_TILES][O_TILES], v_tile_t &v,
                         const u32 (&p)[ROW_TILES][P_WORDS], const head_t &h, const keys_t &keys,
                         const ids_t &ids, int start, int v_wave) {
    seen_t seen;
    if constexpr (PACKED) seen = seen_tokens(keys, start);
    KG_UNROLL for (int part = 0; part < V_PARTS; part++) {
        if constexpr (PACKED)
            weigh_packed(o, v.w[part], p, part, seen);
        else
            weigh_part(o, v.w[part], p, part);
        if (part + V_AHEAD < V_PARTS)
            load_v(v, h, keys, ids, start, v_wave, part + V_AHEAD, part + V_AHEAD + 1);
    }
}

} // namespace kg

// What products on sm_90 do not take as it is cached becomes numbers on its way from LDS through
// registers, where each wave has its 16 rows of A: keys for scores, columns of values for sums.
#pragma once
#include "kg/mla/mla_bring_nvidia.h"

namespace kg {

constexpr int GROUPS = 2; // of four waves
static_assert(PAIRED || (V_SPLIT == 8 && WAVES == 1), "one brings keys, the other has scores");
constexpr int V_MATRICES = ceil_div(V_DIM, 64);       // of products
constexpr int V_TILES = ceil_div(V_MATRICES, GROUPS); // of 64 columns, of a group
typedef acc_t weighed_t[ROW_TILES][V_TILES];

// Words of so many products are made at once, while those of the batch before are multiplied, as
// far as registers go.
constexpr int BATCH = ROW_TILES < 8 && !(BLOCKED && OCCUPANCY > 1) ? 4 : 2;
constexpr int BATCHES = ROW_TILES < 8 || !BLOCKED ? 2 : 1;                 // that have registers
constexpr int PRODUCTS = HEAD_DIM / 16, V_BATCHES = SET_BLOCKS_OF / BATCH; // V: of a matrix
// Of scores both groups have some; the other, which also brings keys, has fewer.
constexpr bool BOTH_SCORE = STAGE.sums != 0;
constexpr int FIRST_PRODUCTS =
    BOTH_SCORE ? smaller(ceil_div(5 * PRODUCTS, 8 * 4) * 4, PRODUCTS) : PRODUCTS;
typedef u32 operands_t[BATCH][4];

KG_DEV u32 numbers_to_pair(u32 word) {
    return KV_DTYPE == DTYPE_BF16 && COMPUTE_F16 ? bf16_to_f16(word) : word;
}

// Scales of two keys, of whose codes a word has those at even and at odd places.
struct scales_t {
    float even, odd;
};
KG_DEV float scale_of(const u8 *set, int row, int column) {
    return BLOCKED
               ? ((const float *)(set + SCALES_OF_SET + row * ROW_SCALES))[column / KG_MLA_BLOCK]
               : 1.0f;
}
KG_DEV void word_of_codes(u32 (&pair)[2], u32 codes, const scales_t &scales) {
    if constexpr (BLOCKED) {
        codes_to_pairs(pair, codes, scales.even, scales.odd);
        KG_UNROLL for (int j = 0; j < 2; j++) pair[j] = numbers_to_pair(pair[j]);
    } else {
        bytes_to_compute(pair, codes);
    }
}

// --- keys ---------------------------------------------------------------------------

// 16 columns of a row of keys: where they lie.
KG_DEV u32 place_of_step(int step) {
    int piece = !CODES                          ? 2 * step
                : step < CODE_PIECES || KV_8BIT ? step
                                                : CODE_PIECES + 2 * (step - CODE_PIECES);
    return (u32)(piece / 8 * MATRIX_OF_SET + piece % 8 * 16);
}
KG_DEV bool has_codes(int step) { return KV_8BIT || (BLOCKED && step < CODE_PIECES); }

// Codes of 16 columns lie with a lane as 4 neighbours, of which the second two are columns 8 and
// following of a product: queries are put so (put_turned_columns).
KG_DEV void keys_of(operands_t &a, const u8 *set, tile_t keys, int part, int first) {
    int row = part * TOK + lane_i((int)opaque(lane_id()));
    KG_UNROLL for (int n = 0; n < BATCH; n += has_codes(first) ? 2 : 1) {
        u32 w[4];
        load_tile<false>(w, keys, place_of_step(first + n));
        KG_UNROLL for (int i = 0; i < 4; i++) {
            if (has_codes(first)) {
                float scale = scale_of(set, row + i % 2 * 8, first * 16);
                u32 pair[2];
                word_of_codes(pair, w[i], scales_t{scale, scale});
                KG_UNROLL for (int j = 0; j < 2; j++) a[n + i / 2][i % 2 + 2 * j] = pair[j];
            } else {
                a[n][i] = numbers_to_pair(w[i]);
            }
        }
    }
}

// Where a lane's words of 8 columns go in a row of queries: pairs at even places to the first 8
// of 16 columns, the others to the second.
KG_DEV void put_turned_columns(u8 *queries, int row, u32 piece, const u32 *w) {
    KG_UNROLL for (u32 odd = 0; odd < 2; odd++) {
        u32 to = piece / 2 * 2 + odd;
        u32 *at = (u32 *)(queries + to / 8 * Q_MATRIX + row * 128 + ((to ^ (u32)row) % 8) * 16 +
                          piece % 2 * 8);
        at[0] = w[odd];
        at[1] = w[odd + 2];
    }
}

// A batch of products, up to `end`. `before` are the words of the one before, if there is one.
KG_DEV void score_batch(acc_t (&s)[ROW_TILES][1], operands_t &now, operands_t &before, bool later,
                        const u8 *set, tile_t keys, matrix_t queries, int part, int first,
                        int end) {
    keys_of(now, set, keys, part, first);
    products_begin();
    KG_UNROLL for (int n = 0; n < BATCH; n++) {
        int step = first + n;
        if (step >= end) break;
        multiply_words(s, 0, now[n], further(queries, (u32)(step / 4 * Q_MATRIX + step % 4 * 32)),
                       later || n != 0);
    }
    products_end();
    products_done<BATCHES - 1>();
    if (later) settle_words(before);
}
// s = what products [BEGIN, END) make of the scores of the wave's block.
template <int BEGIN, int END>
KG_DEV void score_some(acc_t (&s)[ROW_TILES][1], const u8 *set, tile_t keys, matrix_t queries,
                       int part) {
    if constexpr (BEGIN == END) {
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) s[t][0] = acc_t{};
        return;
    }
    operands_t even, other, &odd = BATCHES == 2 ? other : even;
    KG_UNROLL for (int first = BEGIN; first < END; first += 2 * BATCH) {
        score_batch(s, even, odd, first != BEGIN, set, keys, queries, part, first, END);
        if (first + BATCH < END)
            score_batch(s, odd, even, true, set, keys, queries, part, first + BATCH, END);
    }
    products_done<0>();
    settle_words(even);
    if (END - BEGIN > BATCH) settle_words(odd);
    settle_tiles(s);
}

// What a lane has of a row tile's scores.
struct alignas(16) sums_of_tile_t {
    float x[S_REGS];
};

// s = the scores of the wave's block of a set, in the first group. Both have them of some columns;
// the other's come through LDS, by `sums`.
KG_DEV void score_through_registers(acc_t (&s)[ROW_TILES][1], const u8 *set, const u8 *queries,
                                    u8 *sums, int group, int part) {
    part = (int)opaque((u32)part); // places are worked out where they are needed
    tile_t keys = tile_of_rows(set + part * TOK * 128);
    matrix_t rows = matrix_at(queries);
    if (group == 0) score_some<0, FIRST_PRODUCTS>(s, set, keys, rows, part);
    if constexpr (!BOTH_SCORE) return;
    if (group != 0) score_some<FIRST_PRODUCTS, PRODUCTS>(s, set, keys, rows, part);
    sums_of_tile_t *mine = (sums_of_tile_t *)sums + part * ROW_TILES * WAVE + (int)lane_id();
    if (group != 0)
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mine[t * WAVE] =
            sums_of_tile_t{{s[t][0].x[0], s[t][0].x[1], s[t][0].x[2], s[t][0].x[3]}};
    meet_others(group == 0);
    if (group == 0) KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            sums_of_tile_t sum = mine[t * WAVE];
            KG_UNROLL for (int r = 0; r < S_REGS; r++) s[t][0].x[r] += sum.x[r];
        }
}

// --- values -------------------------------------------------------------------------

// Of two keys, columns n and n + 1 of 16 lie in a word of codes: rows n / 2 and n / 2 + 8 of a
// product.
KG_DEV int o_column(int lane, int reg) {
    return CODES ? 2 * lane_i(lane) + reg / 2 : o_row(lane, reg);
}

// 16 columns of keys of a set, from block `first` on.
KG_DEV void values_of(operands_t &a, const u8 *set, tile_t values, int column, int first) {
    u32 piece = (u32)column / (CODES ? 16 : 8);
    int grp = lane_grp((int)opaque(lane_id()));
    u32 at = piece / 8 * MATRIX_OF_SET + piece % 8 * 16 + (u32)(first * TOK * 128);
    KG_UNROLL for (int n = 0; n < BATCH; n += CODES ? 2 : 1) {
        u32 w[4];
        load_values<CODES>(w, values, at + (u32)(n * TOK * 128));
        KG_UNROLL for (int i = 0; i < 4; i++) {
            if constexpr (CODES) {
                int row = (first + n) * TOK + i * 8 + 2 * grp;
                scales_t scales = {scale_of(set, row, column), scale_of(set, row + 1, column)};
                u32 pair[2];
                word_of_codes(pair, byte_perm(w[i], w[i], 0x03010200), scales);
                KG_UNROLL for (int j = 0; j < 2; j++) a[n + i / 2][i % 2 * 2 + j] = pair[j];
            } else {
                a[n][i] = numbers_to_pair(w[i]);
            }
        }
    }
}

KG_DEV int matrix_of_values(int group, int tile) {
    return smaller(group * V_TILES + tile, V_MATRICES - 1); // behind the last: not stored
}
// Batch n of products, of the wave's 16 columns of a matrix of the group's.
KG_DEV void weigh_batch(weighed_t &o, operands_t &now, operands_t &before, const u8 *set,
                        tile_t values, matrix_t weights, int group, int part, int n) {
    int tile = n / V_BATCHES, first = n % V_BATCHES * BATCH;
    values_of(now, set, values, matrix_of_values(group, tile) * 64 + part * 16, first);
    products_begin();
    KG_UNROLL for (int b = 0; b < BATCH; b++)
        multiply_words(o, tile, now[b], further(weights, (u32)((first + b) * TOK * 2)), true);
    products_end();
    products_done<BATCHES - 1>();
    if (n != 0) settle_words(before);
}

// o += V^T P^T
KG_DEV void weigh_through_registers(weighed_t &o, const u8 *set, const u8 *p, int group, int part) {
    part = (int)opaque((u32)part);
    tile_t values = tile_of_values<CODES>(set);
    matrix_t weights = matrix_at(p);
    operands_t even, other, &odd = BATCHES == 2 ? other : even;
    KG_UNROLL for (int n = 0; n < V_TILES * V_BATCHES; n += 2) {
        weigh_batch(o, even, odd, set, values, weights, group, part, n);
        if (n + 1 < V_TILES * V_BATCHES)
            weigh_batch(o, odd, even, set, values, weights, group, part, n + 1);
    }
    products_done<0>();
    settle_words(even);
    if (V_TILES * V_BATCHES > 1) settle_words(odd);
    settle_tiles(o);
}

} // namespace kg

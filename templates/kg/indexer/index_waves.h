// Products of the indexer by waves: each takes some blocks of keys into registers and goes
// through all heads of the tokens with them, so that a key is read from memory once. Queries
// come out of LDS as the products take them. There is no barrier between blocks of keys.
#pragma once
#include "kg/indexer/index_query.h"

namespace kg {

struct keys_t {
    u32 w[TILES][PIECES][KROWS][PIECE_WORDS];
    stored_t stored;
};

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
        keys.stored.there[t] = f.scale != nullptr;
        keys.stored.scale[t] = f.scale ? load(f.scale) : 0.0f;
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

// --- the way through an item ---------------------------------------------------

struct ahead_t {}; // nothing is brought before queries are there
KG_DEV ahead_t bring_first(args_t, const item_t &, u8 *, int, int) { return ahead_t{}; }

KG_DEV void run_blocks(args_t a, const item_t &item, ahead_t, u8 *lds, int wave, int lane) {
    KG_LOOP for (int start = item.column + wave * WAVE_KEYS; start < item.column_end;
                 start += GROUP_KEYS) {
        keys_t keys;
        load_keys(keys, a, item, start, lane);
        bool inside = start < item.high && start + WAVE_KEYS > item.low;
        KG_LOOP for (int n = 0; n < item.count; n++) {
            float sum[TILES * LANE_KEYS] = {};
            if (inside) weigh(sum, keys, lds, n, lane);
            store_logits(a, item, range_of(a, item, n), keys.stored, sum, start, n, lane);
        }
    }
}

} // namespace kg

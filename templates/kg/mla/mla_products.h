// The two products of latent attention on a staged block. The scores of the
// workgroup's rows are split over its waves: each has one row tile and a part of the
// row's width; of the values each wave has a slice, for all rows.
//
// OWN_TILES: the wave with a tile's first part adds the others' and weighs the tile's
// keys alone; all waves read its probabilities and what its maximum did. Where tiles are
// few, all waves read all scores back, and each weighs the keys of all rows: that is less
// to wait for.
#pragma once
#include "kg/mla/mla_stage.h"

namespace kg {

constexpr int PARTS = V_SPLIT / ROW_TILES; // of the width
constexpr int PART_CHUNKS = ceil_div(K_CHUNKS, PARTS);
static_assert(PARTS * ROW_TILES == V_SPLIT, "each wave has one row tile and one part");
constexpr bool OWN_TILES = ROW_TILES > PARTS;

// A wave's share of the first product.
struct share_of_scores_t {
    int tile, chunk; // from which on
    bool leads;      // of those with the tile
};
KG_DEV share_of_scores_t scores_of_wave(int wave) {
    int part = PARTS > 1 ? wave / ROW_TILES : 0;
    return share_of_scores_t{wave % ROW_TILES, part * PART_CHUNKS, part == 0};
}

struct q_part_t {
    u32 w[PART_CHUNKS][Q_WORDS];
    float scale[COLS]; // what the queries were divided by
};

KG_DEV void load_part(q_part_t &q, args_t a, const segment_t &g, share_of_scores_t mine) {
    int lane = (int)opaque(lane_id());
    float up = 1;
    load_q_row(q.w, a, g, mine.tile * NI + lane_i(lane), mine.chunk);
    if constexpr (SCALED_Q) up = q_to_f16(q.w);
    if constexpr (KEYS_AS_CODES) up = q_to_codes(q.w);
    KG_UNROLL for (int c = 0; c < COLS; c++) q.scale[c] =
        SCALED_Q || KEYS_AS_CODES
            ? float_of(shuffle(bits_of(up), (u32)lane_at(lane_column(lane, c), 0)))
            : 1.0f;
}

template <int W> struct alignas(4 * W) words_t {
    u32 w[W];
};

// A wave's part of the staged rows, of a lane. Chunks behind the last meet zeros of Q, and so do
// dims behind the row's end.
struct staged_part_t {
    const u8 *row;
    int dim; // of its first chunk
};
KG_DEV words_t<4> staged_keys(const staged_part_t &part, int row, int c) {
    constexpr bool whole = HEAD_DIM % K_DIMS == 0 && PARTS * PART_CHUNKS == K_CHUNKS;
    bool inside = whole || part.dim + c * K_DIMS < HEAD_DIM;
    int at = inside ? c * K_DIMS * KV_BYTES : -part.dim * KV_BYTES;
    return *(const words_t<4> *)(part.row + row * NI * STAGE_ROW + at);
}

KG_DEV void score_chunk(scores_t &s, const q_part_t &q, const staged_part_t &part, int c) {
    u32 key[KROWS][Q_WORDS];
    KG_UNROLL for (int row = 0; row < KROWS; row++)
        to_compute<4>(key[row], staged_keys(part, row, c).w);
    KG_UNROLL for (int n = 0; n < STEPS; n++) {
        u32 kw[KROWS][K_WORDS], qw[K_WORDS];
        KG_UNROLL for (int j = 0; j < K_WORDS; j++) {
            qw[j] = q.w[c][n * K_WORDS + j];
            KG_UNROLL for (int row = 0; row < KROWS; row++) kw[row][j] = key[row][n * K_WORDS + j];
        }
        mma_qk(s, kw, qw);
    }
}

// KEYS_AS_CODES: N chunks as one product.
template <int N>
KG_DEV void score_codes(scores_t &s, const q_part_t &q, const staged_part_t &part, int c) {
    u32 key[KROWS][N][Q_WORDS / 2], query[N][Q_WORDS];
    KG_UNROLL for (int n = 0; n < N; n++) {
        KG_UNROLL for (int row = 0; row < KROWS; row++) {
            words_t<4> x = staged_keys(part, row, c + n);
            KG_UNROLL for (int j = 0; j < Q_WORDS / 2; j++) key[row][n][j] = x.w[j];
        }
        KG_UNROLL for (int j = 0; j < Q_WORDS; j++) query[n][j] = q.w[c + n][j];
    }
    mma_codes(s, key, query);
}

KG_DEV void score_part(scores_t &s, const q_part_t &q, const u8 *stage, share_of_scores_t mine) {
    constexpr int TOGETHER = PART_CHUNKS / CODE_MOST * CODE_MOST;
    int lane = (int)lane_id(), first = mine.chunk * K_DIMS + lane_grp(lane) * X;
    staged_part_t part = {stage + lane_i(lane) * STAGE_ROW + first * KV_BYTES, first};
    s = scores_t{};
    if constexpr (KEYS_AS_CODES) {
        KG_UNROLL for (int c = 0; c < TOGETHER; c += CODE_MOST)
            score_codes<CODE_MOST>(s, q, part, c);
        KG_UNROLL for (int c = TOGETHER; c < PART_CHUNKS; c++) score_codes<1>(s, q, part, c);
    } else
        KG_UNROLL for (int c = 0; c < PART_CHUNKS; c++) score_chunk(s, q, part, c);
}

// --- scores in LDS: as a lane has them, so it has them back --------------------

constexpr int LINES = S_REGS / 4; // of four scores

KG_DEV quad_t *score_line(u8 *stage, int wave, int line) {
    return (quad_t *)(stage + STAGE_SCORES) + (wave * LINES + line) * WAVE + (int)lane_id();
}

KG_DEV void tell_scores(u8 *stage, const scores_t &s, const q_part_t &q, int wave) {
    KG_UNROLL for (int line = 0; line < LINES; line++) {
        quad_t quad;
        KG_UNROLL for (int j = 0; j < 4; j++) quad.x[j] =
            score(s, line * 4 + j) * q.scale[(line * 4 + j) % COLS];
        *score_line(stage, wave, line) = quad;
    }
}

// Of the parts from `first` on; s has those before.
KG_DEV void hear_scores(float (&s)[S_REGS], u8 *stage, int tile, int first) {
    KG_UNROLL for (int part = first; part < PARTS; part++)
        KG_UNROLL for (int line = 0; line < LINES; line++) {
        quad_t quad = *score_line(stage, part * ROW_TILES + tile, line);
        KG_UNROLL for (int j = 0; j < 4; j++) s[line * 4 + j] =
            part ? s[line * 4 + j] + quad.x[j] : quad.x[j];
    }
}

// --- probabilities in LDS ----------------------------------------------------------

template <int N> KG_DEV words_t<N> *said_by(u8 *stage, int at, int tile) {
    return (words_t<N> *)(stage + STAGE_SCORES + at * WAVE * ROW_TILES) + tile * WAVE +
           (int)lane_id();
}

// What a lane says of its columns lies behind the probabilities of all tiles.
constexpr int SAID_COLUMNS = 4 * P_WORDS;
static_assert(!OWN_TILES || P_WORDS + COLS <= S_REGS, "said where scores of first parts would be");
static_assert(2 * COLS <= S_REGS, "sums are said there at the end");

template <int N> KG_DEV void tell(u8 *stage, int at, int tile, const u32 (&x)[N]) {
    words_t<N> said;
    KG_UNROLL for (int n = 0; n < N; n++) said.w[n] = x[n];
    *said_by<N>(stage, at, tile) = said;
}

template <int N> KG_DEV void hear(u32 (&x)[N], u8 *stage, int at, int tile) {
    words_t<N> said = *said_by<N>(stage, at, tile);
    KG_UNROLL for (int n = 0; n < N; n++) x[n] = said.w[n];
}

// All probabilities; where a maximum rose, what has been added up is brought to it.
KG_DEV void hear_weights(u32 (&p)[ROW_TILES][P_WORDS], values_t &o, u8 *stage) {
    float factor[ROW_TILES][COLS];
    bool rose = false;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        u32 x[COLS];
        hear(p[t], stage, 0, t);
        hear(x, stage, SAID_COLUMNS, t);
        KG_UNROLL for (int c = 0; c < COLS; c++) {
            factor[t][c] = float_of(x[c]);
            rose |= factor[t][c] != 1.0f;
        }
    }
    if (!any(rose)) return;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int n = 0; n < O_TILES; n++)
        KG_UNROLL for (int r = 0; r < O_REGS; r++) o[t][n][r] *= factor[t][r % COLS];
}

// At the end each wave learns of all tiles what their own waves know.
KG_DEV void exchange_sums(column_t &m, column_t &l, u8 *stage, share_of_scores_t mine) {
    u32 x[2 * COLS];
    KG_UNROLL for (int c = 0; c < COLS; c++) x[c] = bits_of(m[0][c]),
                                             x[COLS + c] = bits_of(l[0][c]);
    barrier(); // the last probabilities have been read
    if (mine.leads) tell(stage, 0, mine.tile, x);
    barrier();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        hear(x, stage, 0, t);
        KG_UNROLL for (int c = 0; c < COLS; c++) m[t][c] = float_of(x[c]),
                                                 l[t][c] = float_of(x[COLS + c]);
    }
}

// --- values ---------------------------------------------------------------------

// O += V^T P: the values are the first columns of the rows.
KG_DEV void weigh_stage(acc_t (&o)[ROW_TILES][O_TILES], const u8 *stage,
                        const u32 (&p)[ROW_TILES][P_WORDS], int v_wave) {
    int lane = (int)lane_id(), token = TPL * lane_grp(lane);
    KG_UNROLL for (int part = 0; part < V_PARTS; part++) {
        int dim = (v_wave * V_PARTS + part) * CHUNK_DIMS + lane_i(lane) * V_LANE_DIMS;
        if (V_DIM % (CHUNK_DIMS * V_SPLIT) != 0 && dim >= V_DIM) dim = 0; // not stored
        u32 w[TPL][V_WORDS];
        KG_UNROLL for (int n = 0; n < TPL; n++) {
            const u8 *from = stage + k_place(token + n) * STAGE_ROW + dim * KV_BYTES;
            words_t<V_WORDS> x = *(const words_t<V_WORDS> *)from;
            KG_UNROLL for (int j = 0; j < V_WORDS; j++) w[n][j] = x.w[j];
        }
        weigh_part(o, w, p, part);
    }
}

} // namespace kg

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

constexpr int TILE_SETS = ROW_TILES / WAVE_TILES;
constexpr int PARTS = V_SPLIT / TILE_SETS; // of the width
constexpr int PART_CHUNKS = ceil_div(K_CHUNKS, PARTS);
static_assert(PARTS * TILE_SETS == V_SPLIT, "each wave has a set of row tiles and one part");
constexpr bool OWN_TILES = ROW_TILES > PARTS;

// A wave's share of the first product. Of two tiles it weighs the first, the wave with the other
// part the second.
struct share_of_scores_t {
    int tile;   // which it weighs if it leads
    int chunk;  // from which on
    bool leads; // of those with the tile
};
KG_DEV share_of_scores_t scores_of_wave(int wave) {
    int part = PARTS > 1 ? wave / TILE_SETS : 0;
    int tile = wave % TILE_SETS * WAVE_TILES + (WAVE_TILES > 1 ? part : 0);
    return share_of_scores_t{tile, part * PART_CHUNKS, part < WAVE_TILES};
}

// Chunks whose keys enter products as codes. CROWDED, where products are what takes the time: one
// without another for its product enters as numbers, in half of that.
constexpr int TOGETHER = PART_CHUNKS / CODE_MOST * CODE_MOST;
constexpr int CODED_CHUNKS = !KEYS_AS_CODES ? 0 : CROWDED ? TOGETHER : PART_CHUNKS;
constexpr int KEPT_CHUNKS = PART_CHUNKS - CROWDED; // of queries in registers
typedef u32 query_t[Q_WORDS];
struct q_part_t {
    u32 w[WAVE_TILES][larger(1, KEPT_CHUNKS)][Q_WORDS];
    u8 *aside;                     // CROWDED: the last of each tile, of this wave
    float scale[WAVE_TILES][COLS]; // what the queries were divided by
};
typedef scores_t tile_scores_t[WAVE_TILES];

// CROWDED: places are worked out where they are needed, or each has a register all along.
KG_DEV int telling_lane() { return (int)(CROWDED ? opaque(lane_id()) : thread_id() % WAVE); }

KG_DEV piece_t *query_aside(const q_part_t &q, int t) {
    return (piece_t *)q.aside + t * (Q_WORDS / 4) * WAVE + telling_lane();
}
template <int N> KG_DEV void keep_queries(q_part_t &q, int t, const u32 (&w)[N][Q_WORDS]) {
    KG_UNROLL for (int c = 0; c < N; c++)
        KG_UNROLL for (int n = 0; n < Q_WORDS; n++) if (c < KEPT_CHUNKS)
            q.w[t][c % larger(1, KEPT_CHUNKS)][n] = w[c][n];
    else query_aside(q, t)[n / 4 * WAVE].w[n % 4] = w[c][n];
}
KG_DEV void query_of(u32 (&w)[Q_WORDS], const q_part_t &q, int t, int c) {
    KG_UNROLL for (int n = 0; n < Q_WORDS; n += 4) {
        if (c < KEPT_CHUNKS)
            KG_UNROLL for (int j = 0; j < 4; j++) w[n + j] =
                q.w[t][c % larger(1, KEPT_CHUNKS)][n + j];
        else {
            piece_t piece = query_aside(q, t)[n / 4 * WAVE];
            KG_UNROLL for (int j = 0; j < 4; j++) w[n + j] = piece.w[j];
        }
    }
}

// CROWDED: a factor of all scores of a column takes one register, not one for each of them; a sum
// is made now, or what is summed waits in registers for the turn's end.
KG_DEV float spared(float x) { return CROWDED ? float_of(opaque(bits_of(x))) : x; }

// stage: where what is put aside lies.
KG_DEV void load_part(q_part_t &q, args_t a, const segment_t &g, share_of_scores_t mine, u8 *stage,
                      int wave) {
    int lane = (int)opaque(lane_id());
    q.aside = stage + STAGE_BYTES - ASIDE_BYTES + wave * (ASIDE_BYTES / V_SPLIT);
    KG_UNROLL for (int t = 0; t < WAVE_TILES; t++) {
        u32 w[PART_CHUNKS][Q_WORDS];
        float up = 1;
        load_q_row(w, a, g, (mine.tile ^ t) * NI + lane_i(lane), mine.chunk);
        if constexpr (SCALED_Q) up = q_to_f16(w);
        if constexpr (KEYS_AS_CODES) up = q_to_codes<PART_CHUNKS, CODED_CHUNKS>(w, lane);
        keep_queries(q, t, w);
        KG_UNROLL for (int c = 0; c < COLS; c++) q.scale[t][c] =
            SCALED_Q || KEYS_AS_CODES
                ? float_of(shuffle(bits_of(up), (u32)lane_at(lane_column(lane, c), 0)))
                : 1.0f;
    }
}

// One part: what its queries were divided by comes with the scale of its scores.
constexpr bool SCALES_ONCE = OWN_TILES && PARTS == 1;
KG_DEV void join_scales(head_t &head, const q_part_t &q) {
    if constexpr (SCALES_ONCE)
        KG_UNROLL for (int c = 0; c < COLS; c++) head.scale[0][c] *= q.scale[0][c];
}

template <int W> struct alignas(4 * W) words_t {
    u32 w[W];
};

// A wave's part of the staged rows, of a lane. Chunks behind the last meet zeros of Q, and so do
// dims behind the row's end.
constexpr bool WHOLE_PARTS = HEAD_DIM % K_DIMS == 0 && PARTS * PART_CHUNKS == K_CHUNKS;
struct staged_part_t {
    const u8 *row;
    int dim; // of its first chunk
};
KG_DEV staged_part_t staged_part(const u8 *block, share_of_scores_t mine) {
    int lane = (int)lane_id(), first = mine.chunk * K_DIMS + lane_grp(lane) * X;
    return staged_part_t{block + lane_i(lane) * STAGE_ROW + first * KV_BYTES, first};
}
KG_DEV words_t<4> staged_keys(const staged_part_t &part, int row, int c) {
    bool inside = WHOLE_PARTS || part.dim + c * K_DIMS < HEAD_DIM;
    int at = inside ? c * K_DIMS * KV_BYTES : -part.dim * KV_BYTES;
    return *(const words_t<4> *)(part.row + row * NI * STAGE_ROW + at);
}

template <class P>
KG_DEV void score_chunk(tile_scores_t &s, const q_part_t &q, const P &part, int c) {
    u32 key[KROWS][Q_WORDS], query[WAVE_TILES][Q_WORDS];
    KG_UNROLL for (int row = 0; row < KROWS; row++)
        to_compute<4>(key[row], staged_keys(part, row, c).w);
    KG_UNROLL for (int t = 0; t < WAVE_TILES; t++) query_of(query[t], q, t, c);
    KG_UNROLL for (int n = 0; n < STEPS; n++) {
        u32 kw[KROWS][K_WORDS], qw[K_WORDS];
        KG_UNROLL for (int j = 0; j < K_WORDS; j++) KG_UNROLL for (int row = 0; row < KROWS; row++)
            kw[row][j] = key[row][n * K_WORDS + j];
        KG_UNROLL for (int t = 0; t < WAVE_TILES; t++) {
            KG_UNROLL for (int j = 0; j < K_WORDS; j++) qw[j] = query[t][n * K_WORDS + j];
            mma_qk(s[t], kw, qw);
        }
    }
}

// KEYS_AS_CODES: N chunks as one product.
template <int N, class P>
KG_DEV void score_codes(tile_scores_t &s, const q_part_t &q, const P &part, int c) {
    u32 key[KROWS][N][Q_WORDS / 2], query[N][Q_WORDS];
    KG_UNROLL for (int n = 0; n < N; n++) KG_UNROLL for (int row = 0; row < KROWS; row++) {
        words_t<4> x = staged_keys(part, row, c + n);
        KG_UNROLL for (int j = 0; j < Q_WORDS / 2; j++) key[row][n][j] = x.w[j];
    }
    KG_UNROLL for (int t = 0; t < WAVE_TILES; t++) {
        KG_UNROLL for (int n = 0; n < N; n++) query_of(query[n], q, t, c + n);
        mma_codes(s[t], key, query);
    }
}

// part: of the block, staged_part_t or direct_part_t.
template <class P> KG_DEV void score_part(tile_scores_t &s, const q_part_t &q, const P &part) {
    KG_UNROLL for (int t = 0; t < WAVE_TILES; t++) s[t] = scores_t{};
    if constexpr (KEYS_AS_CODES) {
        KG_UNROLL for (int c = 0; c < TOGETHER; c += CODE_MOST)
            score_codes<CODE_MOST>(s, q, part, c);
        KG_UNROLL for (int c = TOGETHER; c < CODED_CHUNKS; c++) score_codes<1>(s, q, part, c);
    }
    KG_UNROLL for (int c = CODED_CHUNKS; c < PART_CHUNKS; c++) score_chunk(s, q, part, c);
}

// --- scores in LDS: as a lane has them, so it has them back --------------------

constexpr int LINES = S_REGS / 4; // of four scores

// One behind the other, a wave's width apart.
KG_DEV quad_t *score_lines(u8 *stage, int wave) {
    return (quad_t *)(stage + STAGE_SCORES) + wave * LINES * WAVE + telling_lane();
}

// Of the tile that the wave does not weigh.
KG_DEV void tell_scores(u8 *stage, const tile_scores_t &s, const q_part_t &q, int wave) {
    constexpr int T = WAVE_TILES - 1;
    quad_t *lines = score_lines(stage, wave);
    float up[COLS];
    KG_UNROLL for (int c = 0; c < COLS; c++) up[c] =
        SCALED_Q ? spared(q.scale[T][c]) : q.scale[T][c];
    KG_UNROLL for (int line = 0; line < LINES; line++) {
        quad_t quad;
        KG_UNROLL for (int j = 0; j < 4; j++) quad.x[j] =
            score(s[T], line * 4 + j) * up[(line * 4 + j) % COLS];
        lines[line * WAVE] = quad;
    }
}

// Of the parts from `first` on; s has those before.
KG_DEV void hear_scores(float (&s)[S_REGS], u8 *stage, int tile, int first) {
    KG_UNROLL for (int part = first; part < PARTS; part++) {
        const quad_t *lines = score_lines(stage, part * ROW_TILES + tile);
        KG_UNROLL for (int line = 0; line < LINES; line++) {
            quad_t quad = lines[line * WAVE];
            KG_UNROLL for (int j = 0; j < 4; j++) s[line * 4 + j] =
                part ? s[line * 4 + j] + quad.x[j] : quad.x[j];
        }
    }
}

// Of two tiles: from the wave with the other part.
KG_DEV void hear_other(float (&s)[S_REGS], u8 *stage, int wave) {
    const quad_t *lines = score_lines(stage, wave ^ TILE_SETS);
    KG_UNROLL for (int line = 0; line < LINES; line++) {
        quad_t quad = lines[line * WAVE];
        KG_UNROLL for (int j = 0; j < 4; j++) s[line * 4 + j] += quad.x[j];
    }
}

// --- probabilities in LDS ----------------------------------------------------------

template <int N> KG_DEV words_t<N> *said_by(u8 *stage, int at, int tile) {
    constexpr int SAID = STAGE_SCORES + (DIRECT ? SCORES_BYTES : 0);
    return (words_t<N> *)(stage + SAID + at * WAVE * ROW_TILES) + tile * WAVE + telling_lane();
}

// What a lane says of its columns lies behind the probabilities of all tiles.
constexpr int SAID_COLUMNS = 4 * P_WORDS;
static_assert(!OWN_TILES || DIRECT || P_WORDS + COLS <= S_REGS,
              "said where scores of first parts would be");
static_assert(2 * COLS <= S_REGS, "sums are said there at the end");

template <int N> KG_DEV void tell(u8 *stage, int at, int tile, const u32 (&x)[N]) {
    words_t<N> said;
    KG_UNROLL for (int n = 0; n < N; n++) said.w[n] = x[n];
    *said_by<N>(stage, at, tile) = said;
}

template <int N> KG_DEV void hear(u32 (&x)[N], const words_t<N> *all, int tile) {
    words_t<N> said = all[tile * WAVE];
    KG_UNROLL for (int n = 0; n < N; n++) x[n] = said.w[n];
}

// What has been added up is brought to the maxima of today.
KG_DEV void shrink(values_t &o, const float (&factor)[ROW_TILES][COLS]) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int n = 0; n < O_TILES; n++)
        KG_UNROLL for (int r = 0; r < O_REGS; r++) o[t][n][r] *= factor[t][r % COLS];
}

// All probabilities; where a maximum rose, what has been added up is brought to it.
KG_DEV void hear_weights(u32 (&p)[ROW_TILES][P_WORDS], values_t &o, u8 *stage) {
    const words_t<P_WORDS> *weights = said_by<P_WORDS>(stage, 0, 0);
    const words_t<COLS> *factors = said_by<COLS>(stage, SAID_COLUMNS, 0);
    float factor[ROW_TILES][COLS];
    bool rose = false;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        u32 x[COLS];
        hear(p[t], weights, t);
        hear(x, factors, t);
        KG_UNROLL for (int c = 0; c < COLS; c++) {
            factor[t][c] = float_of(x[c]);
            rose |= factor[t][c] != 1.0f;
        }
    }
    if (any(rose)) shrink(o, factor);
}

// DIRECT: in which block some maximum rose last stands behind all that is said, so that one word
// tells whether factors are to be read.
KG_DEV u32 &risen(u8 *stage) {
    return *(u32 *)(stage + STAGE_SCORES + SCORES_BYTES + SAID_BYTES - 16);
}
KG_DEV void say_steady(u8 *stage) { risen(stage) = ~0u; }
KG_DEV void say_risen(u8 *stage, int start, const u32 (&factor)[COLS]) {
    if (any(float_of(factor[0]) != 1.0f)) risen(stage) = (u32)start;
}
KG_DEV bool has_risen(u8 *stage, int start) { return uniform((int)risen(stage)) == start; }
KG_DEV void shrink_told(values_t &o, u8 *stage) {
    const words_t<COLS> *factors = said_by<COLS>(stage, SAID_COLUMNS, 0);
    float factor[ROW_TILES][COLS];
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        u32 x[COLS];
        hear(x, factors, t);
        KG_UNROLL for (int c = 0; c < COLS; c++) factor[t][c] = float_of(x[c]);
    }
    shrink(o, factor);
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
        hear(x, said_by<2 * COLS>(stage, 0, 0), t);
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

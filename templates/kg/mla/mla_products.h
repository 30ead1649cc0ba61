// The two products of latent attention on a staged block. The scores of the
// workgroup's rows are split over its waves: each has one row tile and a part of the
// row's width. All waves read all of them back, so that each knows every row's
// maximum and has every row's probabilities where the second product wants them; of
// the values each wave has a slice.
#pragma once
#include "kg/mla/mla_stage.h"

namespace kg {

constexpr int PARTS = V_SPLIT / ROW_TILES; // of the width
constexpr int PART_CHUNKS = ceil_div(K_CHUNKS, PARTS);
static_assert(PARTS * ROW_TILES == V_SPLIT, "each wave has one row tile and one part");

// A wave's share of the first product.
struct share_of_scores_t {
    int tile, chunk; // from which on
};
KG_DEV share_of_scores_t scores_of_wave(int wave) {
    return share_of_scores_t{wave % ROW_TILES, PARTS > 1 ? wave / ROW_TILES * PART_CHUNKS : 0};
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
    KG_UNROLL for (int c = 0; c < COLS; c++) q.scale[c] =
        SCALED_Q ? float_of(shuffle(bits_of(up), (u32)lane_at(lane_column(lane, c), 0))) : 1.0f;
}

template <int W> struct alignas(4 * W) words_t {
    u32 w[W];
};

// Chunks behind the last meet zeros of Q, and so do dims behind the row's end.
KG_DEV void score_part(scores_t &s, const q_part_t &q, const u8 *stage, share_of_scores_t mine) {
    constexpr bool whole = HEAD_DIM % K_DIMS == 0 && PARTS * PART_CHUNKS == K_CHUNKS;
    int lane = (int)lane_id(), first = mine.chunk * K_DIMS + lane_grp(lane) * X;
    const u8 *row_of_lane = stage + lane_i(lane) * STAGE_ROW + first * KV_BYTES;
    s = scores_t{};
    KG_UNROLL for (int c = 0; c < PART_CHUNKS; c++) {
        bool inside = whole || first + c * K_DIMS < HEAD_DIM;
        int at = inside ? c * K_DIMS * KV_BYTES : -first * KV_BYTES;
        u32 key[KROWS][Q_WORDS];
        KG_UNROLL for (int row = 0; row < KROWS; row++) {
            words_t<4> x = *(const words_t<4> *)(row_of_lane + row * NI * STAGE_ROW + at);
            to_compute<4>(key[row], x.w);
        }
        KG_UNROLL for (int n = 0; n < STEPS; n++) {
            u32 kw[KROWS][K_WORDS], qw[K_WORDS];
            KG_UNROLL for (int j = 0; j < K_WORDS; j++) {
                qw[j] = q.w[c][n * K_WORDS + j];
                KG_UNROLL for (int row = 0; row < KROWS; row++) kw[row][j] =
                    key[row][n * K_WORDS + j];
            }
            mma_qk(s, kw, qw);
        }
    }
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

KG_DEV void hear_scores(float (&s)[S_REGS], u8 *stage, int tile) {
    KG_UNROLL for (int part = 0; part < PARTS; part++)
        KG_UNROLL for (int line = 0; line < LINES; line++) {
        quad_t quad = *score_line(stage, part * ROW_TILES + tile, line);
        KG_UNROLL for (int j = 0; j < 4; j++) s[line * 4 + j] =
            part ? s[line * 4 + j] + quad.x[j] : quad.x[j];
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

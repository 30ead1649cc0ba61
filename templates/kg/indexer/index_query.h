// Queries of a few tokens in LDS, as the products take them: all waves of the workgroup
// read them again for every block of keys.
#pragma once
#include "kg/attn/mma.h"
#include "kg/indexer/index_page.h"

namespace kg {

constexpr int THREADS = KG_WORKGROUP;
constexpr int CODES = KG_INDEX_PIECE;         // of a lane's piece of a key or query
constexpr int PIECE_DIMS = NGRP * CODES;      // of all lanes with a key
constexpr int PIECES = HEAD_DIM / PIECE_DIMS; // that a lane has of it
constexpr int PIECE_WORDS = CODES / 2;        // as 16-bit numbers
constexpr int STEPS = PIECE_WORDS / K_WORDS;  // products that consume one
constexpr int ALL_HEADS = kg_index_heads(HEADS);
constexpr int HEAD_TILES = ALL_HEADS / NI;
constexpr int QUERY_QUADS = HEAD_TILES * PIECES * 2 * WAVE; // of a token
constexpr int WEIGHTS_AT = TOGETHER * QUERY_QUADS * 16;     // in LDS
constexpr int LDS_USED = WEIGHTS_AT + TOGETHER * ALL_HEADS * 4;
static_assert(PIECES * PIECE_DIMS == HEAD_DIM && STEPS * K_WORDS == PIECE_WORDS, "whole pieces");

struct alignas(16) quad_words_t {
    u32 w[4];
};

KG_DEV quad_words_t *query_quad(u8 *lds, int token, int tile, int piece, int half, int lane) {
    return (quad_words_t *)lds +
           (((token * HEAD_TILES + tile) * PIECES + piece) * 2 + half) * WAVE + lane;
}
KG_DEV float *weight_at(u8 *lds, int token, int head) {
    return (float *)(lds + WEIGHTS_AT) + token * ALL_HEADS + head;
}

KG_DEV void load_query(u32 (&codes)[4], args_t a, int token, int head, int dim) {
    KG_UNROLL for (int i = 0; i < 4; i++) codes[i] = 0;
    if (token < 0 || head >= HEADS) return;
    load_words(codes, (const u8 *)a.q + (token * a.q_token + head * a.q_head + dim));
}

// Tokens first .. first + count - 1; of those behind them, and of heads that nobody has, zeros.
KG_DEV void stage_queries(args_t a, u8 *lds, int first, int count) {
    constexpr int UNITS = QUERY_QUADS / 2;
    KG_LOOP for (int n = (int)thread_id(); n < TOGETHER * UNITS; n += THREADS) {
        int lane = n % WAVE, piece = n / WAVE % PIECES, tile = n / (WAVE * PIECES) % HEAD_TILES;
        int token = n / UNITS;
        u32 codes[4], words[PIECE_WORDS];
        load_query(codes, a, token < count ? first + token : -1, tile * NI + lane_i(lane),
                   piece * PIECE_DIMS + lane_grp(lane) * CODES);
        to_compute<4>(words, codes);
        KG_UNROLL for (int half = 0; half < 2; half++) *
            query_quad(lds, token, tile, piece, half, lane) = quad_words_t{
            {words[4 * half], words[4 * half + 1], words[4 * half + 2], words[4 * half + 3]}};
    }
    KG_LOOP for (int n = (int)thread_id(); n < TOGETHER * ALL_HEADS; n += THREADS) {
        int token = n / ALL_HEADS, head = n % ALL_HEADS;
        bool there = token < count && head < HEADS;
        float w = there ? load(a.weights + ((first + token) * a.weights_row + head)) : 0.0f;
        *weight_at(lds, token, head) = w;
    }
}

} // namespace kg

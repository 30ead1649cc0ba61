// Queries of a few tokens in LDS, as the products take them: all waves of the workgroup
// read them again for every block of keys.
#pragma once
#include "kg/indexer/index_item.h"

namespace kg {

constexpr int PIECE_DIMS = NGRP * CODES;      // of all lanes with a key
constexpr int PIECES = HEAD_DIM / PIECE_DIMS; // that a lane has of it
constexpr int PIECE_WORDS = CODES / 2;        // as 16-bit numbers
constexpr int STEPS = PIECE_WORDS / K_WORDS;  // products that consume one
constexpr int HEAD_TILES = ALL_HEADS / NI;
constexpr int QUERY_QUADS = HEAD_TILES * PIECES * 2 * WAVE; // of a token
static_assert(WEIGHTS_AT == TOGETHER * QUERY_QUADS * 16, "behind the queries");
constexpr int LDS_USED = WEIGHTS_AT + TOGETHER * ALL_HEADS * 4;
static_assert(PIECES * PIECE_DIMS == HEAD_DIM && STEPS * K_WORDS == PIECE_WORDS, "whole pieces");

KG_DEV quad_words_t *query_quad(u8 *lds, int token, int tile, int piece, int half, int lane) {
    return (quad_words_t *)lds +
           (((token * HEAD_TILES + tile) * PIECES + piece) * 2 + half) * WAVE + lane;
}

KG_DEV void load_query(u32 (&codes)[4], args_t a, int token, int head, int dim) {
    KG_UNROLL for (int i = 0; i < 4; i++) codes[i] = 0;
    if (token < 0 || head >= HEADS) return;
    load_words(codes, (const u8 *)a.q + (token * a.q_token + head * a.q_head + dim));
}

// Of tokens behind the last, and of heads that nobody has, zeros.
KG_DEV void stage_queries(args_t a, u8 *lds, const item_t &item) {
    constexpr int UNITS = QUERY_QUADS / 2;
    KG_LOOP for (int n = (int)thread_id(); n < TOGETHER * UNITS; n += THREADS) {
        int lane = n % WAVE, piece = n / WAVE % PIECES, tile = n / (WAVE * PIECES) % HEAD_TILES;
        int token = n / UNITS;
        u32 codes[4], words[PIECE_WORDS];
        load_query(codes, a, token < item.count ? item.first + token : -1, tile * NI + lane_i(lane),
                   piece * PIECE_DIMS + lane_grp(lane) * CODES);
        to_compute<4>(words, codes);
        KG_UNROLL for (int half = 0; half < 2; half++) *
            query_quad(lds, token, tile, piece, half, lane) = quad_words_t{
            {words[4 * half], words[4 * half + 1], words[4 * half + 2], words[4 * half + 3]}};
    }
    stage_weights(a, lds, item.first, item.count);
}

} // namespace kg

/* Shape of the indexer's kernels, for gen/, the launcher, predict/ and kg/indexer/.
 * Plain C. */
#pragma once
#include "kg/core/shape.h"

/* Codes of a key that a lane moves at once. */
enum { KG_INDEX_PIECE = 16 };
/* LDS that queries may fill, and bins of the histogram of top-k. */
enum { KG_INDEX_QUERY_BYTES = 32768, KG_INDEX_QUERY_SM90 = 65536, KG_INDEX_BINS = 2048 };

/* Heads of a query token, in whole tiles of 16, which smaller ones divide. */
KG_SHAPE int kg_index_heads(int heads) { return ceil_div(heads, 16) * 16; }
/* Of a query token in LDS, 16 bits a dim. */
KG_SHAPE int kg_index_query_bytes(int heads, int head_dim) {
    return kg_index_heads(heads) * head_dim * 2;
}
/* Registers of a block of keys, of which a wave has all. */
KG_SHAPE int kg_index_key_registers(int keys, int head_dim, int wave) {
    return keys * head_dim / 2 / wave;
}

/* sm_90: groups of four waves multiply. In LDS lie queries, weights, what tokens see, and the two
 * sets of keys that are on their way to each wave: a block of 16 a tile as they are cached, and a
 * scale a lane. */
enum { KG_INDEX_GROUP = 4, KG_INDEX_SETS = 2, KG_INDEX_RANGES = 64 };
KG_SHAPE int kg_index_set_bytes(int tiles, int head_dim, int wave) {
    return tiles * (16 * head_dim + 4 * wave);
}
KG_SHAPE int kg_index_staged_bytes(int heads, int head_dim, int together, int waves,
                                   int set_bytes) {
    return together * (kg_index_query_bytes(heads, head_dim) + kg_index_heads(heads) * 4) +
           KG_INDEX_RANGES + waves * KG_INDEX_SETS * set_bytes;
}

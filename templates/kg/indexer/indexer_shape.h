/* Shape of the indexer's kernels, for gen/, the launcher, predict/ and kg/indexer/.
 * Plain C. */
#pragma once
#include "kg/core/shape.h"

/* Codes of a key that a lane moves at once. */
enum { KG_INDEX_PIECE = 16 };
/* LDS that queries may fill, and bins of the histogram of top-k. */
enum { KG_INDEX_QUERY_BYTES = 32768, KG_INDEX_BINS = 2048 };

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

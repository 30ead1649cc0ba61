/* The one argument of the indexer's kernels. Plain C: the launcher includes it as well.
 * Steps are bytes, those of floats and integers elements. */
#pragma once
#include "kg/core/divisor.h"

struct kg_indexer_args {
    const void *k, *slots;
    void *cache;
    float *scales;
    const void *table, *cu_seqlens, *seq_lens;
    const void *q;
    const float *weights;
    void *keys; /* gathered */
    float *key_scales;
    const void *starts, *ends; /* of what a query token sees */
    float *logits;
    const int *requests; /* or null */
    int *indices;
    long long k_row, cache_page, cache_token, scales_page, table_row, q_token, q_head;
    long long weights_row, keys_row, logits_row, indices_row;
    int tokens, seqs, rows;               /* rows: gathered keys */
    int page, pages, columns, table_rows; /* pages: of the pool; columns: of the table */
    int width, chosen;                    /* columns of logits and of indices */
    int blocks, chunk, items, groups;     /* logits: blocks of tokens; columns of an item */
    struct kg_divisor by_page, by_blocks;
};

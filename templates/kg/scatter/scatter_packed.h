/* The one argument of the scatter kernels, of which each op reads a part. Plain
 * C: runtime/scatter_launch.c includes it as well. Strides are elements. */
#pragma once

enum { KG_SCATTER_CELLS = 4 }; /* table columns of a lane: 16 bytes */

struct kg_scatter_args {
    const int *live, *extends; /* live, extends: or null */
    int *error;                /* or null */
    const void *accepted, *lens, *starts, *valid, *q_lens, *requests, *req_to_token, *mapping,
        *indptr;
    const void *slots, *block_table, *positions;
    const unsigned char *rejected, *discarded; /* or null */
    const long long *ids;
    long long *state;
    void *table, *swa_table, *indices, *seq_lens, *step_lens, *qo_indptr, *kv_indptr;
    int *row_offsets;
    void *locs, *swa_locs, *positions_out, *free_locs;
    const void *source_locs;
    void *accept_index, *accept_count, *predicts, *counts, *sample_index, *next;
    const void *draft_ends, *tokens_in, *targets_in, *backup;
    const void *selected, *parents;
    void *tree_index, *next_token, *next_sibling, *words;
    const unsigned char *mask;
    unsigned char *mask_out;
    const float *probs, *coins, *final_coins;
    unsigned char *pool; /* or null */
    const long long *pools;
    const void *sources, *targets;
    long long req_to_token_row, block_table_row, table_step, table_row, swa_table_row;
    long long indices_step, step_lens_step, kv_indptr_step, positions_out_step;
    long long accept_index_row, predicts_row, tokens_in_row, targets_in_row;
    long long selected_row, parents_row, tree_index_row, next_token_row, next_sibling_row;
    long long words_row, mask_row, mask_step, mask_out_row, mask_out_step, probs_row, probs_step;
    long long coins_row, sources_row, targets_row;
    long long request_rows, row_columns; /* R, C */
    long long map_size;                  /* M */
    long long width, swa_width;          /* of tables, of block_table */
    long long flat;                      /* elements of slots, source_locs, indices, mask */
    long long capacity;                  /* T of locs, positions */
    long long fill, pad_len, padding, max_len;
    long long slot_count, page_bytes, group_bytes, token_bytes, piece_bytes, piece_stride;
    long long pool_room; /* bytes into `pool` where the last pool may begin */
    int rows;            /* N */
    int tokens, steps, topk, vocab;
    int cp_size, cp_rank, cp_interleave;
    int groups, heads, kv_heads, max_splits, compute_units;
    int parents_width, accept_width, move_width, pool_count, pieces;
    int tiles;        /* workgroups of a table's row */
    int token_groups; /* workgroups that have new tokens */
    float threshold_single, threshold_acc;
    const void *row_index, *pairs;
    const unsigned char *rows_in;
    unsigned char *rows_out;
    void *step_starts, *starts_out;
    long long step_starts_step, pairs_row, rows_in_row, rows_out_row;
    long long rows_in_count, rows_out_count, row_bytes; /* RI, RO, RB */
    long long chunk, window;
    const void *drafts, *bonus;
    const unsigned char *greedy;      /* or null */
    const float *draft_probs, *noise; /* draft_probs: or null */
    long long draft_probs_row, noise_row;
};

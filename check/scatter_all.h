/* The tensors and numbers of all ops of scatter by name, for code that fills and
 * computes several ops alike. What an op does not have is zero. */
#ifndef KGEN_CHECK_SCATTER_ALL_H
#define KGEN_CHECK_SCATTER_ALL_H

#include <kgen/args.h>

typedef struct kgen__scatter_all {
    kgen_tensor live;
    kgen_tensor error;
    kgen_tensor lens;
    kgen_tensor starts;
    kgen_tensor valid;
    kgen_tensor q_lens;
    kgen_tensor accepted;
    kgen_tensor extends;
    kgen_tensor requests;
    kgen_tensor req_to_token;
    kgen_tensor mapping;
    kgen_tensor indptr;
    kgen_tensor slots;
    kgen_tensor block_table;
    kgen_tensor positions;
    kgen_tensor rejected;
    kgen_tensor ids;
    kgen_tensor state;
    kgen_tensor table;
    kgen_tensor swa_table;
    kgen_tensor row_offsets;
    kgen_tensor indices;
    kgen_tensor seq_lens;
    kgen_tensor step_lens;
    kgen_tensor qo_indptr;
    kgen_tensor kv_indptr;
    kgen_tensor locs;
    kgen_tensor swa_locs;
    kgen_tensor positions_out;
    kgen_tensor source_locs;
    kgen_tensor free_locs;
    kgen_tensor accept_index;
    kgen_tensor accept_count;
    kgen_tensor predicts;
    kgen_tensor counts;
    kgen_tensor draft_ends;
    kgen_tensor sample_index;
    kgen_tensor tokens_in;
    kgen_tensor targets_in;
    kgen_tensor backup;
    kgen_tensor next;
    kgen_tensor discarded;
    kgen_tensor selected;
    kgen_tensor parents;
    kgen_tensor tree_index;
    kgen_tensor next_token;
    kgen_tensor next_sibling;
    kgen_tensor words;
    kgen_tensor mask;
    kgen_tensor mask_out;
    kgen_tensor probs;
    kgen_tensor coins;
    kgen_tensor final_coins;
    kgen_tensor drafts;
    kgen_tensor bonus;
    kgen_tensor greedy;
    kgen_tensor draft_probs;
    kgen_tensor noise;
    kgen_tensor pool;
    kgen_tensor pools;
    kgen_tensor sources;
    kgen_tensor targets;
    kgen_tensor row_index;
    kgen_tensor pairs;
    kgen_tensor rows_in;
    kgen_tensor rows_out;
    kgen_tensor step_starts;
    kgen_tensor starts_out;
    int64_t fill, pad_len, padding, max_len, slot_count, page_bytes, token_bytes, piece_bytes,
        piece_stride, group_bytes, chunk, window;
    int32_t tokens, steps, topk, cp_size, cp_rank, cp_interleave, vocab, groups, heads, kv_heads,
        max_splits, compute_units, pieces;
    float threshold_single, threshold_acc;
} kgen__scatter_all;

void kgen__scatter_unpack(kgen__scatter_all *all, const kgen_scatter_args *args);
/* What a kernel of that spec takes, tagged with its op. */
void kgen__scatter_pack(kgen_scatter_args *args, const kgen_scatter_spec *s,
                        const kgen__scatter_all *all);

#endif

/* The one argument of the attention kernels. Plain C: runtime/attn_launch.c
 * includes it as well. Strides are bytes unless they say elements. */
#pragma once
#include "kg/core/workspace_head.h"

struct kg_attn_args {
    const void *q;          /* [T][Hq][D] */
    const void *k, *v;      /* pages */
    void *out;              /* [T][Hq][Dv] */
    float *lse;             /* [Hq][T] or [T][Hq] */
    const void *table;      /* [S][pages], or flat */
    const void *seq_lens;   /* [S] */
    const void *cu_seqlens; /* [S + 1] */
    int *error;             /* [S] or null: bits of kgen_attn_error */
    const float *k_descale, *v_descale, *out_scale;
    const float *alibi, *sinks; /* [Hq] */
    float *partial_out;         /* [2 * workgroups][rows][Dv] */
    /* [2 * workgroups][rows][2]: maximum, sum. Before it what comes in boxes has its
     * maps (kg/attn/pool.h). */
    float *partial_ml;
    struct kg_workspace *workspace; /* counters [S][Hkv][row blocks] */
    long long q_token, q_head, out_token, out_head;
    long long lse_row;   /* elements */
    long long table_row; /* elements; flat: how many there are */
    long long k_page, k_head, v_page, v_head;
    /* Descale strides in elements: HEAD (sequence, unused, head), TOKEN
     * (page, slot, head). */
    long long k_descale_stride[3], v_descale_stride[3];
    unsigned long long page_magic; /* ceil(2^36 / (page / 16)) */
    int k_token, v_token;          /* between slots of a page (packed V: unused) */
    int k_chunk;                   /* packed K: between 16-byte chunks of head_dim */
    int v_chunk;                   /* shuffle V: between groups of x tokens */
    int v_dim_stride;              /* packed V: between dims */
    int page;                      /* tokens */
    int num_seqs, num_tokens, kv_heads, workgroups;
    unsigned ticket; /* of the launch, never 0 */
    int last_page;   /* of the pool */
    int table_keys;  /* that a row of the table has pages for */
    int window;
    float scale;   /* softmax scale * log2(e) */
    float softcap; /* softcap * log2(e) */
    int right;
    const unsigned char *causal; /* [S] */
    int unit_shift;              /* units of 2^shift key blocks (kg/attn/pairs.h) */
    const void *indptr;          /* [S + 1], of a flat table */
    const void *words;           /* [S][t] masks */
    long long words_row;
    const float *q_descale;
    long long q_descale_stride[3];
    const void *gate; /* [T][Hq][Dv] */
    long long gate_token, gate_head;
    int keep;
    const int *span_ends; /* [T] */
    /* cascade: groups of sequences with a prefix, and rows that wait for each other */
    const int *prefix_seqs; /* [P + 1] */
    const int *prefix_lens; /* [P] */
    float *joined_out;      /* [2][T][Hq][Dv]: of prefixes, of what follows them */
    float *joined_ml;       /* [2][T][Hq][2] */
    int num_prefixes;
};

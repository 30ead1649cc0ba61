/* The one argument of the gdn kernels. Plain C: runtime/gdn_launch.c includes
 * it as well. Strides are elements. */
#pragma once
#include "kg/core/workspace_head.h"

struct kg_gdn_args {
    const void *x;                       /* in-projection rows (c, d, e), or [T][C] */
    const void *z;                       /* rows that hold z: the in-projection, or its own */
    const void *b, *a;                   /* rows that hold b and a: ba, or their own */
    const void *conv_weight, *conv_bias; /* [C][w], [C] */
    const void *a_log, *dt_bias, *norm_weight;
    void *conv_state, *state;
    const void *slots, *write_slots;
    const int *read_col; /* circular=1, which has no columns of slots: cache_seqlens */
    const int *write_col;
    const void *accepted, *cu_seqlens;
    const int *parents;
    const int *has_initial; /* or null */
    void *buffer;
    void *conv_windows; /* or null */
    const int *lines;   /* or null: the sequence's number */
    void *ring_k, *ring_u;
    float *ring_decay;
    const int *ring_start, *ring_len;
    void *out;
    float *out_scale;
    void *z_out, *b_out, *a_out;    /* or null */
    struct kg_workspace *workspace; /* counters [N][Hk], or null */
    long long x_row, z_row, b_row, a_row;
    long long conv_slot, conv_step; /* conv_step: between channels (ds) or times (sd) */
    long long state_slot;
    long long slots_row, write_row, parents_row;
    long long slots_col, write_step; /* between columns of slots, write_slots */
    long long buffer_line, buffer_token;
    long long window_line, window_token, window_step;    /* as conv_step */
    long long ring_k_slot, ring_u_slot, ring_decay_slot; /* dense inside */
    long long out_row, out_head, scale_row, scale_group;
    long long z_out_row, b_out_row, a_out_row;
    long long pad_slot;
    int seqs, rows;   /* N, rows of out */
    int slot_count;   /* slots in the pool */
    int slot_columns; /* columns of slots */
    int conv_columns; /* L */
    int line_count;
    int ring_rows;   /* P */
    unsigned ticket; /* of the launch, never 0 */
    float q_scale, l2_eps, norm_eps, lower_bound;
    const void *q, *k, *v; /* [T][Hk][K], [T][Hk][K], [T][Hv][V] in place of x */
    long long q_row, k_row, v_row, q_head, k_head, v_head;
};

/* The one argument of the attn_merge kernels. Plain C: the launcher includes it
 * as well. Steps are bytes, those of sums elements. */
#pragma once
#include "kg/core/divisor.h"

struct kg_merge_part {
    const void *x;    /* [T][H][D] */
    const float *lse; /* [H][T] or [T][H] */
    long long token, head, lse_row;
};

struct kg_attn_merge_args {
    struct kg_merge_part part[2]; /* pair: both; stack: the first */
    long long next, next_lse;     /* stack: from part to part */
    void *out;
    float *lse; /* or null */
    const float *out_scale;
    long long out_token, out_head, lse_row;
    int parts, rows, heads; /* rows: tokens x heads */
    int merged;             /* tokens before the tail */
    struct kg_divisor by_heads;
};

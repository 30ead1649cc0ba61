/* The one argument of the kv_write and kv_gather kernels. Plain C: the
 * launchers in runtime/ include it as well. Steps are bytes, those of scales
 * elements. */
#pragma once
#include "kg/core/divisor.h"

/* K or V: the rows outside, and where their elements are in the cache. */
struct kg_kv_side {
    void *rows; /* [T][Hkv][D]: read by kv_write, written by kv_gather */
    void *cache;
    float *scale;
    long long row, head;
    long long cache_page, cache_head, cache_slot; /* slot: natural and x-chunks */
    long long cache_chunk;                        /* of X dims; of X tokens in packed V */
    long long cache_dim;                          /* packed V */
    long long scale_page, scale_slot, scale_head; /* gather: page or sequence */
};

struct kg_kv_write_args {
    struct kg_kv_side side[2];
    const void *slots, *remap, *positions;
    const void *cos, *sin;
    const void *q;
    void *q_out;
    long long cos_row, sin_row;
    long long q_row, q_head, q_out_row, q_out_head;
    long long first_slot, remap_size, positions_end;
    int rows, heads, q_heads, page, slot_end;
    int group_end[2]; /* workgroups before the end of K, of V; then q */
    struct kg_divisor by_page, by_heads, by_slices, by_q_heads;
};

struct kg_kv_gather_args {
    struct kg_kv_side side[2];
    const void *table;
    const void *cu_seqlens, *seq_lens;
    const void *starts; /* or null */
    long long table_row;
    int rows, seqs, heads, page, pages, columns;
    int k_groups;
    struct kg_divisor by_page, by_heads, by_slices;
};

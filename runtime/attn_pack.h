/* What attn and mla pack alike: numbers that kernels count with, the workspace of parts
 * that several workgroups share. */
#ifndef KGEN_RUNTIME_ATTN_PACK_H
#define KGEN_RUNTIME_ATTN_PACK_H

#include "gen/attn.h"
#include "templates/kg/attn/attn_packed.h"
#include "launch.h"

#define KGEN__LOG2E 1.4426950408889634f

/* Keys that so many pages hold, as far as kernels count. */
int kgen__attn_most_keys(int64_t pages, int64_t page);
/* So that a position less the window is a number. */
int kgen__attn_window_of(int32_t window);
/* What a kernel of page=x16 multiplies by, to divide by the page. */
uint64_t kgen__attn_page_magic(int64_t page);

/* What the caller knows of lengths that the device holds. most_q: query tokens that the
 * kernel takes of a sequence; keys: of the tensor `pages`. */
kgen_status kgen__attn_check_lengths(int32_t max_q_len, int32_t most_q, int32_t max_kv_len,
                                     int keys, const char *pages, kgen_error *err);

/* What a workspace is sized by. */
typedef struct kgen__attn_work {
    int64_t seqs, tokens, kv_heads;
    int32_t keys; /* of a row of the table */
    int32_t group, v_dim;
} kgen__attn_work;

kgen_status kgen__attn_workspace_bytes(size_t *bytes, const kgen_kernel *kernel,
                                       const kgen__attn_work *work, kgen_error *err);
/* num_seqs, num_tokens and kv_heads are packed. */
kgen_status kgen__attn_pack_workspace(struct kg_attn_args *d, const kgen_kernel *kernel,
                                      int32_t group, int32_t v_dim, const kgen_args *args,
                                      kgen_error *err);

#endif

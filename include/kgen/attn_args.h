/* What a launch of the attention family takes.
 *
 * Letters: S sequences, T query tokens of the batch, Hq query heads, Hkv KV
 * heads, G = Hq/Hkv, D head_dim, Dv head_dim of values, NB pages. */
#ifndef KGEN_ATTN_ARGS_H
#define KGEN_ATTN_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bits that a launch may add to a sequence's error word; it never clears one. */
typedef enum kgen_attn_error {
    KGEN_ATTN_TOKENS = 1,     /* more query tokens than the kernel's t */
    KGEN_ATTN_ROWS = 2,       /* cu_seqlens_q falls, or leads out of q */
    KGEN_ATTN_LENGTH = 4,     /* more keys than its pages in the table hold */
    KGEN_ATTN_PAGE = 8,       /* a page number outside the pool */
    KGEN_ATTN_WORKSPACE = 16, /* its workspace is unfit: see kgen_workspace_init */
    KGEN_ATTN_PREFIX = 32,    /* it has not the prefix of its group before its queries, or in
                                 other pages */
} kgen_attn_error;

/* Paged attention.
 *
 * For query row (token i of sequence s, head h), with kvh = h / G,
 * ctx = seq_lens[s] - q_len[s], position p = ctx + i, keys k < seq_lens[s]:
 *   s_k = softmax_scale * qdescale * kdescale * dot(q, K[k])
 *   softcap:  s_k = c tanh(s_k / c)
 *   alibi:    s_k += slope[h] * (k - p), before the cap with order=alibi;
 *             alibi=sqrt: -= slope[h] * sqrt(max(p - k, 0))
 *   visible:  k <= p, or k <= span_ends[token], where the sequence is causal, else
 *             k - p < right; and
 *             p - k < window, p / chunk - k / chunk <= lookback (whole numbers),
 *             or k < keep for either. phase=tree: k < ctx, or bit k - ctx of words[s][i];
 *             token j then stands at ctx + bits of words[s][j] - 1, its depth, for
 *             the window and for alibi
 *   out = sigmoid(gate) sum softmax(s)_k vdescale V[k] / out_scale;  a sink adds
 *   exp(sink[h]) to the denominator;  lse = log(denominator), sink included.
 * Rows without a visible key give zeros and lse = -inf.
 *
 * Whatever lengths, cu_seqlens_q and table say, nothing outside a tensor is read or
 * written. Of a sequence with more than t query tokens the first t are computed,
 * the others are zeros, lse -inf. One of fewer than 0 keys, or of more than the
 * table has pages for, has none, and none has any where the pool has no pages;
 * one whose rows lead out of q is left out; a page outside the pool is the pool's
 * last; with table=i64 it may be the page that the number's lower half names. Tokens
 * from cu_seqlens_q[S] on are zeros. Where `error` is given, the launch says of each
 * sequence what was wrong, for which it reads the table once more. In an unfit workspace
 * the rows of a sequence that several workgroups share are NaN, lse too.
 *
 * cascade=1: of each group of sequences, those from prefix_seqs[p] on, before
 * prefix_seqs[p + 1], the first prefix_lens[p] keys lie in the same pages. Those that are
 * whole 32s are read through the table row of the group's first sequence, for the rows of
 * all at once; what comes out is what comes out without. A sequence that has fewer keys
 * before its queries, a group that leads out of the batch or has more keys than its first
 * sequence has pages for, are computed as if they shared nothing.
 *
 * Rows of a 16-byte multiple: the data pointer and every stride that steps
 * over rows of K, V (and Q) must be multiples of 16 bytes; the last dimension
 * is contiguous. */
typedef struct kgen_attn_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "attn_args.def"
} kgen_attn_args;

#ifdef __cplusplus
}
#endif
#endif

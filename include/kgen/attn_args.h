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

/* Paged attention, phases decode and verify.
 *
 * For query row (token i of sequence s, head h), with kvh = h / G,
 * ctx = seq_lens[s] - q_len[s], position p = ctx + i, keys k < seq_lens[s]:
 *   s_k = softmax_scale * kdescale * dot(q, K[k])
 *   softcap:  s_k = c tanh(s_k / c)
 *   alibi:    s_k += slope[h] * (k - p)
 *   visible:  k <= p, and p - k < window
 *   out = sum softmax(s)_k vdescale V[k] / out_scale;  a sink adds exp(sink[h])
 *   to the denominator;  lse = log(denominator), sink included.
 * Rows without a visible key give zeros and lse = -inf.
 *
 * Rows of a 16-byte multiple: the data pointer and every stride that steps
 * over rows of K, V (and Q) must be multiples of 16 bytes; the last dimension
 * is contiguous. */
typedef struct kgen_attn_args {
    kgen_tensor q;            /* [T][Hq][D] */
    kgen_tensor k;            /* by layout, see kgen_layout; own strides */
    kgen_tensor v;            /* by layout; own strides; packed K|V views are strides */
    kgen_tensor out;          /* [T][Hq][Dv] */
    kgen_tensor block_table;  /* [S][max pages] i32 or i64, page numbers; the
                                 last dimension contiguous */
    kgen_tensor seq_lens;     /* [S] i32: cached keys, new tokens included */
    kgen_tensor cu_seqlens_q; /* [S+1] i32, verify only */
    kgen_tensor k_descale;    /* f32, descale=head|token: see kgen_descale */
    kgen_tensor v_descale;
    kgen_tensor out_scale;    /* f32 [1], 8-bit output only */
    kgen_tensor alibi_slopes; /* f32 [Hq], alibi=1 */
    kgen_tensor sinks;        /* f32 [Hq], sinks=1, natural-log units */
    kgen_tensor lse;          /* f32 [Hq][T], lse=1 */
    float softmax_scale;      /* > 0 */
    float softcap;            /* > 0, softcap=1 */
    int32_t window;           /* >= 1, window=rt */
} kgen_attn_args;

#ifdef __cplusplus
}
#endif
#endif

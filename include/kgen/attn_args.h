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
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "attn_args.def"
} kgen_attn_args;

#ifdef __cplusplus
}
#endif
#endif

/* What a launch of the mla family takes.
 *
 * Letters: S sequences, T query tokens of the batch, H query heads, L and R widths of
 * latent and rope part, NB pages. */
#ifndef KGEN_MLA_ARGS_H
#define KGEN_MLA_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Multi-head latent attention over a paged cache, in its absorbed form: the cached
 * row C[k] of L + R numbers is the key of every head, its first L numbers the value.
 * rows=fp8: a row is bytes, and C[k] is read from it: L codes, a float for each block of
 * 128 of them, bytes of any value up to a multiple of 16, R numbers of type kv.
 * C[k][i] = code i * float i / 128, in f32 and then rounded to kv; the R numbers as they are.
 *
 * For query row (token i of sequence s, head h), with ctx = seq_lens[s] - q_len[s],
 * position p = ctx + i, keys k < seq_lens[s]:
 *   s_k = softmax_scale * descale * dot(q, C[k])     over L + R
 *   visible:  k <= p, and p - k < window
 *   phase=tree: of the sequence's own tokens c (key ctx + c) those whose bit its word
 *   words[s][i] has, and all keys before; p and k are then positions of the tree, as
 *   attention has them (kgen_attn_args)
 *   sparse=1: a sequence is one query token; its keys k are the rows C[slots[t][k]],
 *   k < seq_lens[t], all visible but those without a slot; one behind the pool is
 *   its last, and an error (KGEN_ATTN_PAGE)
 *   out = sum softmax(s)_k descale C[k] / out_scale  over L;  a sink adds
 *   exp(sink[h]) to the denominator;  lse = log(denominator), sink included.
 * Rows without a visible key give zeros and lse = -inf.
 *
 * Of lengths, cu_seqlens_q, tables, errors and the workspace holds what attention
 * says (kgen_attn_args); `error` takes the same bits. */
typedef struct kgen_mla_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "mla_args.def"
} kgen_mla_args;

#ifdef __cplusplus
}
#endif
#endif

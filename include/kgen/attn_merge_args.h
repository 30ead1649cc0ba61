/* What a launch of the attn_merge family takes.
 *
 * Letters: N parts, T query tokens of the batch, H query heads, D head_dim of values. */
#ifndef KGEN_ATTN_MERGE_ARGS_H
#define KGEN_ATTN_MERGE_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention over keys that were cut in parts, of which each gave an output and
 * the natural logarithm of its sum of exponentials. Of token t and head h:
 *
 *   l_n = the part's lse; of +inf, which some kernels say of no keys, -inf
 *   m = max l_n;  w_n = exp(l_n - m);  s = sum of w_n
 *   out = (sum of w_n x_n) / s / out_scale;  lse = m + log(s)
 *
 * A part with a weight of 0 counts nothing, whatever its data is, NaN too. Where
 * all l_n are -inf, out is 0 and lse -inf. An l_n of NaN makes both NaN. Of the
 * last `tail` tokens out is the last part's x / out_scale, and lse its lse as it
 * is: the others have no keys for them, and their lse is not looked at.
 * 8-bit outputs saturate.
 *
 * Last dimensions are contiguous; data pointers of parts and outputs, and their
 * strides of tokens, heads and parts, are multiples of 16 bytes (of 8-bit
 * outputs, of 8). An output may be one of the parts where type and strides are
 * the same, and lse the lse of one; otherwise they overlap nothing. */
typedef struct kgen_attn_merge_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "attn_merge_args.def"
} kgen_attn_merge_args;

#ifdef __cplusplus
}
#endif
#endif

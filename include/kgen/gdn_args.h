/* What a launch of the Gated DeltaNet family takes.
 *
 * Letters: N sequences, T rows (tokens) of the batch, t tokens of a sequence
 * at most (the spec's), Hk key heads, Hv value heads, G = Hv/Hk, K and V head
 * dims, w convolution width, C = 2 Hk K + Hv V channels, L time columns of a
 * convolution slot. All heads are of this rank. */
#ifndef KGEN_GDN_ARGS_H
#define KGEN_GDN_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sequence n has the rows n t .. n t + t - 1, or with varlen=1 the rows
 * cu_seqlens[n] .. cu_seqlens[n+1] - 1: T_n of them, 0 to t.
 *
 * Queries, keys and values are one row [q_all | k_all | v_all] of x or of the
 * in-projection, or with qkv=split three tensors, whose rows and heads have any
 * stride. ch: what fuse=c convolves has so many channels and no heads.
 *
 * For each of its tokens, in order (h = hv / G, or hv mod Hk when map=tiled):
 *   conv (c, d, e), per channel, on [q_all | k_all | v_all]:
 *     y = act(bias + sum_{j<w-1} W[j] hist[j] + W[w-1] x), hist the w-1 inputs
 *     before, oldest first; y is rounded to x (convr=1)
 *   norm (l2=1): q, k divided by sqrt(sum of squares + l2_eps); q *= q_scale
 *   decay = exp(-exp(A_log) softplus(a + dt_bias)), beta = sigmoid(b)
 *     raw=1: decay = exp(a), beta = b
 *   S = decay S;  u = beta (v - S k);  S = S + u k^T;  o = S q     S is [V][K]
 *   gated norm (b, e): o rounded to x (or=1), o *= rsqrt(mean(o^2) + norm_eps)
 *     * weight, then o *= z sigmoid(z), or sigmoid(z)
 *
 * Convolution state. A slot holds raw inputs.
 *   accept=0: hist is columns 0 .. w-2. The last w-1 inputs go there.
 *   accept=1: hist begins at column accepted[n] - 1. Columns 0 .. w-3+T_n become
 *     [hist[1:], x_0 .. x_{T_n-1}]: the next step finds its window there, however many
 *     of these tokens are accepted.
 *   circular=1: the input of token i goes to column (cache_seqlens[n] + i) mod L, and hist is
 *     in the w-1 columns before that of token 0. All other columns stay; where has_initial
 *     is 0, those of hist become zeros. Of tokens that share a column the last one stays.
 *     Any number is taken mod L, into 0 .. L-1.
 *   save=buffer: the pool stays as it is. The window that ends at token i goes to
 *     conv_windows[line][i].
 *   save=none: nothing is written.
 *   tree=1: token i comes after token parents[n][i] < i; -1 is the stored state. This
 *     holds for windows and states. A parent other than i - 1 is read back from the
 *     buffer: it has been rounded to the buffer's type.
 *
 * save=replay. The slot holds a state S0, the ring the tokens after it. s = ring_start[n],
 * l = ring_len[n], and a ring has P rows. The launch applies entries s .. s+l-1 (mod P) to
 * S0 first. Its own tokens become entries s+l and on. Where l + T_n > ring, it folds: the
 * state after entry l goes to the slot. Before the next launch, which keeps `accepted` of
 * these tokens, the caller sets
 *   s += folded ? l : 0;   l = (folded ? 0 : l) + accepted
 *
 * Sequences that are not computed. A sequence gives zeros when
 *   - its read slot is a sentinel or outside the pool,
 *   - its accepted count is not in 1 .. columns of slots, and of the convolution slot
 *     (64-bit counts are compared whole),
 *   - its cu_seqlens lead out of the rows of out: those rows that exist become zeros.
 * A write slot that is a sentinel or outside the pool is not written. Rows of out that
 * belong to no sequence become zeros, and so do their copies of z, b and a; their
 * out_scale is 0. Where all of a group is 0, its out_scale is 1. A sequence of no tokens
 * writes nothing. has_initial 0 stands for a state and a window of zeros.
 *
 * Slots. conv_state is written at the slot of the state; with index=spec or save=slots at
 * the slot of the first column. A slot that is written differs from all that other
 * sequences read or write. Several sequences may read one slot. The slots of one sequence
 * may coincide.
 *
 * Outputs share no memory with inputs, states or each other. Of fuse=c, layout=presplit,
 * out may be x itself, with its address and strides.
 *
 * Last dimensions are contiguous. Addresses and strides are multiples of
 *   16 bytes      of state, buffer and rings,
 *   4 elements    of qkvz, x, q, k, v, the convolution's weight and bias, and conv_state
 *                 in sd, unless ch is no multiple of 4,
 *   1 element     of all others. */
typedef struct kgen_gdn_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "gdn_args.def"
} kgen_gdn_args;

#ifdef __cplusplus
}
#endif
#endif

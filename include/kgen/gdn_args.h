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
 * Convolution state: a slot holds raw inputs. accept=0: hist is columns
 * 0..w-2, and the last w-1 inputs go there. accept=1: hist begins at column
 * accepted[n] - 1, and columns 0..w-3+T_n become [hist[1:], x_0 .. x_{T_n-1}],
 * so that the next step, knowing how many were accepted, finds its window.
 * save=buffer leaves the pool alone and writes the window that ends at token
 * i to conv_windows[line][i]; save=none writes nothing.
 * tree=1: token i comes after parents[n][i] < i (-1: after the stored state),
 * in window and recurrence alike; a parent other than i - 1 is read back from
 * the buffer, so rounded to its type.
 *
 * save=replay: the slot holds a state S0, the ring the tokens since. With
 * s = ring_start[n], l = ring_len[n], P rows in a ring, entries s .. s+l-1
 * (mod P) are applied to S0 first; this launch's tokens become entries s+l ...
 * When l + T_n > ring, the state after entry l is written to the slot. Before
 * the next launch, with `accepted` of this one's tokens kept, the caller sets
 *   s += folded ? l : 0;   l = (folded ? 0 : l) + accepted
 *
 * A row of N is not computed, and its outputs are zeros, when its read slot
 * is a sentinel or outside the pool, or its accepted count is out of bounds
 * (1 .. columns of slots, and of the convolution slot), or its cu_seqlens lead
 * out of out's rows (of which those that there are become zeros). 64-bit counts
 * are compared whole. A write slot that is
 * a sentinel or outside the pool is not written. Rows of `out` that belong to
 * no sequence are zeroed, copies of z, b and a included; their out_scale is 0,
 * and 1 where all of a group is 0. A sequence of no tokens writes nothing.
 * has_initial 0 stands for a state and a window of zeros. conv_state is written
 * at the slot of the state, with index=spec or save=slots at that of the first
 * column. Slots that are written differ from each other and from those that
 * other sequences read; several may read one, and those of one sequence may
 * coincide.
 *
 * Last dimensions are contiguous. Addresses and strides are multiples of 16
 * bytes for state, buffer and rings, of four elements for qkvz, x, q, k and v, the
 * convolution's weight and bias, and conv_state in sd; of the element elsewhere,
 * and where ch is no multiple of 4. */
typedef struct kgen_gdn_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "gdn_args.def"
} kgen_gdn_args;

#ifdef __cplusplus
}
#endif
#endif

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
 * For each of its tokens, in order (h = hv / G, or hv mod Hk when map=tiled):
 *   conv (c, d, e), per channel, on [q_all | k_all | v_all]:
 *     y = act(bias + sum_{j<w-1} W[j] hist[j] + W[w-1] x), hist the w-1 inputs
 *     before, oldest first; y is rounded to x (convr=1)
 *   norm (l2=1): q, k divided by sqrt(sum of squares + l2_eps); q *= q_scale
 *   decay = exp(-exp(A_log) softplus(a + dt_bias)), beta = sigmoid(b)
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
 * (1 .. columns of slots, and of the convolution slot). A write slot that is
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
 * bytes for state, buffer and rings, of four elements for qkvz and x, the
 * convolution's weight and bias, and conv_state in sd; of the element elsewhere. */
typedef struct kgen_gdn_args {
    /* in */
    kgen_tensor qkvz; /* [T][2 Hk K + 2 Hv V] interleaved or flat; b, c, d, e */
    kgen_tensor ba;   /* [T][2 Hv] interleaved or flat; c (copies), a, b, d, e */
    kgen_tensor x;    /* [T][C]; a, b: the convolution's output, no tag;
                         presplit c, d, e: its input, tagged */
    kgen_tensor z;    /* [T][Hv V], presplit; b, e */
    kgen_tensor b;    /* [T][Hv], presplit; a, b, d, e */
    kgen_tensor a;    /* [T][Hv], kda [T][Hv K]; presplit; a, b, d, e */
    /* weights */
    kgen_tensor conv_weight; /* [C][w], dense */
    kgen_tensor conv_bias;   /* [C], bias=1 */
    kgen_tensor a_log;       /* [Hv] */
    kgen_tensor dt_bias;     /* [Hv], kda [Hv K] */
    kgen_tensor norm_weight; /* [V] */
    /* state */
    kgen_tensor conv_state;          /* [slots][L][C] sd, [slots][C][L] ds */
    kgen_tensor state;               /* [slots][Hv][V][K] vk, [slots][Hv][K][V] kv;
                               dense inside a slot */
    kgen_tensor slots;               /* [N], spec and blocks [N][columns] */
    kgen_tensor write_slots;         /* [N], index=pair; with save=slots [N][>= t] */
    kgen_tensor read_col, write_col; /* [N] i32, index=blocks */
    kgen_tensor accepted;            /* [N] i32, accept=1 */
    kgen_tensor cu_seqlens;          /* [N+1] i32, varlen=1 */
    kgen_tensor parents;             /* [N][t] i32, tree=1 */
    kgen_tensor has_initial;         /* [N] i32 or no data: 0 takes a state of zeros */
    /* per-token states */
    kgen_tensor buffer;               /* [lines][>= t][Hv][V][K] or [Hv][K][V]; save=buffer */
    kgen_tensor conv_windows;         /* [lines][>= t][C][w-1] ds, [w-1][C] sd, or no data;
                                 save=buffer */
    kgen_tensor lines;                /* [N] i32 or no data: line n; save=buffer */
    kgen_tensor ring_k;               /* [slots][P][Hk][K], type of the state */
    kgen_tensor ring_u;               /* [slots][P][Hv][V], type of the state */
    kgen_tensor ring_decay;           /* [slots][P][Hv], kda [slots][P][Hv][K]; f32 */
    kgen_tensor ring_start, ring_len; /* [N] i32 */
    /* out */
    kgen_tensor out;          /* [T][Hv][V]; c: [T][C] */
    kgen_tensor out_scale;    /* [T][Hv V/128] f32, any strides; 8-bit output */
    kgen_tensor z_out;        /* [T][Hv V], c: copies of z, b, a out of */
    kgen_tensor b_out, a_out; /* [T][Hv]  interleaved or flat rows; or no data */
    float q_scale;            /* finite; K^-0.5 in every known model */
    float l2_eps;             /* >= 0, inside the square root */
    float norm_eps;           /* >= 0 */
    float lower_bound;        /* < 0, gate=kda_bound */
    int64_t pad_slot;         /* pad=value */
} kgen_gdn_args;

#ifdef __cplusplus
}
#endif
#endif

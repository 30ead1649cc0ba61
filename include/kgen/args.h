/* What a launch takes. A tensor carries its type, layout tag, shape and
 * strides; kgen_launch refuses what the kernel was not built for.
 *
 * Letters: S sequences, T query tokens of the batch, Hq query heads, Hkv KV
 * heads, G = Hq/Hkv, D head_dim, Dv head_dim of values, NB pages.
 * All memory is device memory, owned by the caller, and must outlive the
 * launch (and every replay of a graph that holds it).                       */
#ifndef KGEN_ARGS_H
#define KGEN_ARGS_H

#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KGEN_MAX_RANK = 5 };

typedef struct kgen_tensor {
    void *data;
    kgen_dtype dtype;
    kgen_layout layout; /* of cache tensors; 0 elsewhere                     */
    int32_t rank;
    int64_t shape[KGEN_MAX_RANK];
    int64_t stride[KGEN_MAX_RANK]; /* elements                               */
} kgen_tensor;

/* A dense row-major tensor. */
static inline kgen_tensor kgen_tensor_dense(void *data, kgen_dtype dtype, int32_t rank,
                                            const int64_t *shape) {
    kgen_tensor t = {data, dtype, KGEN_LAYOUT_NONE, rank, {0}, {0}};
    int64_t stride = 1;
    for (int32_t i = rank - 1; i >= 0 && rank <= KGEN_MAX_RANK; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    return t;
}

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
 * is contiguous.                                                            */
typedef struct kgen_attn_args {
    kgen_tensor q;   /* [T][Hq][D]                                           */
    kgen_tensor k;   /* by layout, see kgen_layout; own strides              */
    kgen_tensor v;   /* by layout; own strides; packed K|V views are strides */
    kgen_tensor out; /* [T][Hq][Dv]                                          */
    kgen_tensor block_table;  /* [S][max pages] i32 or i64, page numbers; the
                                 last dimension contiguous                   */
    kgen_tensor seq_lens;     /* [S] i32: cached keys, new tokens included    */
    kgen_tensor cu_seqlens_q; /* [S+1] i32, verify only                      */
    kgen_tensor k_descale;    /* f32, descale=head|token: see kgen_descale   */
    kgen_tensor v_descale;
    kgen_tensor out_scale;    /* f32 [1], 8-bit output only                  */
    kgen_tensor alibi_slopes; /* f32 [Hq], alibi=1                           */
    kgen_tensor sinks;        /* f32 [Hq], sinks=1, natural-log units        */
    kgen_tensor lse;          /* f32 [Hq][T], lse=1                          */
    float softmax_scale;      /* > 0                                         */
    float softcap;            /* > 0, softcap=1                              */
    int32_t window;           /* >= 1, window=rt                             */
    void *workspace;          /* kgen_workspace_size bytes, 256-byte aligned,
                                 prepared once by kgen_workspace_init        */
    size_t workspace_bytes;
} kgen_attn_args;

#ifdef __cplusplus
}
#endif
#endif

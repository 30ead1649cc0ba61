/* What a launch of the kv_gather family takes.
 *
 * Letters: S sequences, R rows that come out, Hkv KV heads, D and Dv head dims
 * of keys and values, NB pages. */
#ifndef KGEN_KV_GATHER_ARGS_H
#define KGEN_KV_GATHER_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sequence s has the rows cu_seqlens[s] .. cu_seqlens[s+1] - 1, n of them. Row
 * cu_seqlens[s] + i, every head, is the cached token
 *   from=start: starts[s] + i;  a chunk of a long context begins at its start
 *   from=end:   seq_lens[s] - n + i;  n = min(seq_len, q_len + W - 1) rows are
 *               what a window of W tokens sees
 * as round(float(code) * descale), in the type of the output; of 16-bit caches
 * the bits. descale=block: element i of a value has the descale i / 128 of its token and
 * head, and keys are cached in the type of the output. Codes of i4 are as kv_write_args.h has them.
 *
 * A token below 0 or not below seq_lens[s], one past the table's columns or on
 * a page outside the pool, and rows of no sequence (before cu_seqlens[0], from
 * cu_seqlens[S] on) give zeros. cu_seqlens never falls. Tokens that are not asked
 * for are not looked at.
 *
 * Last dimensions are contiguous; data pointers and strides that step over
 * rows, heads, pages and chunks are multiples of 16 bytes, or of what al says. The outputs do not
 * overlap themselves, each other or the caches. */
typedef struct kgen_kv_gather_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "kv_gather_args.def"
} kgen_kv_gather_args;

#ifdef __cplusplus
}
#endif
#endif

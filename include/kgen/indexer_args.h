/* What a launch of the indexer family takes.
 *
 * Letters: T tokens, S sequences, H heads of the indexer, D its head_dim, NB pages of the
 * pool, R gathered keys, L columns of the logits, K columns that are chosen. */
#ifndef KGEN_INDEXER_ARGS_H
#define KGEN_INDEXER_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A small attention of its own that says which cached rows a query token sees
 * (DeepSeek-V3.2, GLM-5: sparse=1 of mla). A page of its cache is page x D codes, then
 * page floats; cache and scales are two views of one pool, whose pages are page (D + 4)
 * bytes apart, or whatever their strides say.
 *
 * op=write   Row t of k goes to page n / page, place n % page, n = slots[t]; below 0 or
 *   behind the pool it is skipped. With amax over the row (NaN left out, infinity as the
 *   largest float),
 *     scale = max(amax, 1e-4) / M, M = 448 of e4m3fn, 224 of e4m3fnuz
 *   with pow2=1 the power of two that is not below it; code = k / scale in f32, rounded to
 *   nearest even; NaN stays NaN. Rows that are not skipped have different places.
 * op=gather  Row cu_seqlens[s] + i of keys and key_scales is token i of sequence s, as it
 *   is cached. Rows of no sequence, tokens past the table's columns or on a page outside
 *   the pool are zeros. cu_seqlens never falls.
 * op=decode  Sequence s has the t query tokens s t .. s t + t - 1, which are its last ones
 *   (T = S t), and token i of them sees the columns c < seq_lens[s] - t + 1 + i:
 *     logits[r][c] = scale(c) sum over h of weights[r][h] max(0, dot(q[r][h], key(c)))
 *   scales of queries are part of the weights. Columns from `pages` pages on or on a page
 *   outside the pool are not seen.
 * op=prefill The same with key c = keys[c], and token r sees starts[r] <= c < ends[r],
 *   c < R.
 *   Columns c < L that are not seen are minus infinity; clean=0: are not written.
 * op=topk    Of row r of logits, the columns starts[r] .. ends[r] - 1, within 0 .. L;
 *   ranges=0: 0 .. seq_lens[r / t] - t + r % t (T = S t). The K largest of them, those of
 *   lower columns first where they are equal (-0 is 0, NaN of either sign above infinity
 *   or below its negative), go to indices[r] in rising order; behind them -1.
 *     to=index   from the row's start;  to=column  of the logits
 *     to=slot    block_table[m][i / page] page + i % page of index i, m = requests[r] or
 *                r / t; -1 where the table has no such row, column or page (below 0)
 *
 * Last dimensions are contiguous. Addresses and strides of keys, queries and pages are
 * multiples of 16 bytes, those of a cache with page=1 or 2 of 4. Outputs overlap
 * nothing; k shares no memory with the pool. Nothing is kept after the launch. */
typedef struct kgen_indexer_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "indexer_args.def"
} kgen_indexer_args;

#ifdef __cplusplus
}
#endif
#endif

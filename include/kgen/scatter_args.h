/* What a launch of the scatter family takes.
 *
 * Letters: N rows (requests, padded ones included), R and C rows and columns of
 * req_to_token, M entries of mapping, W columns of a table, D tokens that are
 * verified of a request (the root, or bonus token, and the drafts), K = topk,
 * P = page, S steps. cdiv rounds up. Types are those of the spec's keys len,
 * req, slot, map, table, out, loc, token, link; others stand beside the tensor.
 *
 * A slot is the place of a token in the cache, its page is slot / P. */
#ifndef KGEN_SCATTER_ARGS_H
#define KGEN_SCATTER_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bits that a launch may add to the error word; it never clears one. */
typedef enum kgen_scatter_error {
    KGEN_SCATTER_WIDTH = 1,     /* a row did not fit its table and was cut */
    KGEN_SCATTER_REQUEST = 2,   /* a request outside req_to_token */
    KGEN_SCATTER_COLUMN = 4,    /* a column outside req_to_token, slots, table */
    KGEN_SCATTER_MAPPING = 8,   /* a slot outside mapping */
    KGEN_SCATTER_CAPACITY = 16, /* entries did not fit a flat output */
    KGEN_SCATTER_COUNT = 32,    /* an accepted count out of bounds */
    KGEN_SCATTER_TREE = 64,     /* a node without parent, a link out of bounds */
} kgen_scatter_error;

/* Rules of every op
 * - Rows n >= live[0] are padding (no data in live: none is). What they read is
 *   never looked at; what is written for them is said below.
 * - A slot that cannot be read (request, column or index out of bounds) is -1,
 *   and the error word says so. Nothing outside a tensor is read or written.
 * - Slot -1 has page -1. In the window pool a slot s is mapping[s]; -1 stays,
 *   a negative entry is -1, its page is -1. Entry 0, unmapped, is slot 0.
 * - Negative lengths and counts are 0.
 * - Every element of an output is written, unless tail=keep or the text says so.
 * - Outputs overlap neither inputs nor each other (copy_pages and eagle_step have
 *   rules of their own); rows of two tables may lie beside each other in one allocation. Inputs are
 *   only read.
 * - Last dimensions are contiguous, row strides are the caller's.
 * - Nothing is read on the host: lengths, requests, live may change between
 *   the replays of a graph.
 *
 * page_table_ragged     slots, indptr -> table
 *   Row n has the tokens slots[indptr[n] .. indptr[n+1] - 1].
 * page_table_requests   lens, requests, req_to_token, starts=1: starts -> table
 *   Row n has lens[n] + tokens tokens, a sum below 0 none, req_to_token[requests[n]][starts[n] ..].
 *   byreq=1: lens [R] is that of requests[n].
 * Both: with c tokens, nb = cdiv(c, P) blocks, table[n][j] for j < min(nb, W) is
 *   the page of token min((j+1)P, c) - 1, pick=first: of token jP. unaligned=1:
 *   off = slot of token 0 mod P goes to row_offsets[n], and block j has the
 *   tokens jP - off .. (j+1)P - off - 1. swa=1: swa_table from mapping, likewise.
 *   j >= nb: 0, fill (tail=value), or untouched (tail=keep); padded rows: all
 *   columns so, row_offsets 0.
 *
 * spec_prepare          lens, requests, req_to_token -> each that the spec names
 *   c = lens[n] + (accept=1: accepted[n]) is committed, q = tokens or q_lens[n]
 *   (ragged=1) are new.
 *   seq_lens[n]  c + q; padded rows pad_len, which is at least tokens
 *   qo_indptr    prefix sums of q, [N+1]; padded rows have `tokens`, ragged=1: 0
 *   kv_indptr    prefix sums of seq_lens, [N+1]
 *   table        of page_table_requests with c + q tokens; swa=1: swa_table
 *   locs         [T], at qo_indptr[n] + t the slot of column c + t; swa=1:
 *                swa_locs the same in the window pool; padded rows and the rest
 *                up to T: fill
 *   positions_out [T], there c + t; elsewhere 0
 *   delta=1: state [N][3] says what the launch before left in row n: request id,
 *   committed length, pages. The caller sets it to -1 once, and never writes the
 *   tables. Same ids[n] and c not smaller: only the blocks from that committed
 *   length on are written, and the tail where pages went away. Else the row is
 *   written anew. ids are never used again for another request. In swa_table
 *   pages that have left the window keep their old number.
 *
 * draft_page_table      lens, requests, req_to_token -> table [S][N K][W]
 *   Step i = 1..S, row n K + k: lens[n] tokens, then i drafts of branch k, which
 *   are at column B + t of the request:
 *     K = 1 or P = 1: B = L + k S
 *     else: last = L mod P, B = L + k P cdiv(last + S, P)
 *   (the engine has copied the prefix tail into each branch's first page).
 * draft_kv_indices      the same as indices [S][F] and kv_indptr [S][N K + 1]:
 *   row z of step i begins at kv_indptr[i-1][z]; padded rows have no entries;
 *   indices behind the last entry stay.
 * kv_indices            lens, requests, req_to_token, indptr -> indices [F]
 *   indices[indptr[n] + t] = slot of column starts[n] + t, t < lens[n]. P > 1:
 *   req_to_token has pages, slot = page P + column mod P. swa=1: mapped. Entries
 *   from indptr[live] on: `padding` of them 0 or fill, the others stay.
 *
 * draft_lens            lens, valid, accepted -> seq_lens, step_lens, positions_out
 *   lens is what the verify pass used (valid + tokens), valid the length before
 *   it, accepted the tokens that stay, bonus included, 1..tokens. Rows below
 *   extends[0] are prefills: accepted is not read, base = lens[n].
 *   seq_lens[n]       of the first draft pass. sliced=0: lens[n], at least
 *                     `tokens` if that is > 1; sliced=1: lens[n] - (tokens -
 *                     accepted[n]), at least 1; prefills: lens[n]
 *   step_lens[i-1][n]     base + i, at most max_len   (i = 1..S,
 *   positions_out[i-1][n] base + i - 1, below max_len  base = valid + accepted)
 *   Padded rows: pad_len, pad_len, 0. lens is an input and stays as it is.
 *
 * cache_locs            requests, req_to_token -> locs
 *   uniform: locs[n tokens + t] = slot of column starts[n] + t, t < tokens
 *   ragged:  columns starts[n] .. lens[n] - 1, packed; behind the last: fill
 *   draft:   locs[(n K + k) S + t] = draft t of branch k (draft_page_table)
 *   last:    locs[n] = slot of column lens[n] - 1, -1 for lens[n] = 0
 *   Padded rows: fill, in ragged nothing.
 * assign_locs           requests, locs (read) -> req_to_token (written)
 *   The inverse of uniform and ragged; requests of live rows differ. All other
 *   elements stay.
 *
 * slot_mapping          indptr (query starts), positions, block_table -> locs [T]
 *   Token i of row n: v = P cp_size, b = block_table[n][positions[i] / v], o =
 *   positions[i] mod v; its slot is b P + o / (cp_size I) I + o mod I where
 *   o / I mod cp_size = cp_rank, with I = cp_interleave; else -1. -1 also for
 *   rejected[i] != 0, positions from max_len on (max_len > 0), b < 0, and tokens
 *   of no row. byreq=1: block_table [R] is read at row requests[n].
 * eagle_step            lens, positions [N], block_table -> seq_lens,
 *                       positions_out [N], locs [N]
 *   p = positions[n] + 1. p >= max_len: position 0, slot -1, length 1. Else
 *   position p, slot block_table[n][min(p / P, W-1)] P + p mod P, length
 *   min(lens[n] + 1, max_len). Padded rows: 0, -1, 0. seq_lens may be lens itself, and
 *   positions_out positions.
 * padded_inputs         draft_ends (inclusive sums of drafts), indptr (query
 *                       starts), accepted -> sample_index, counts [N]
 *   d drafts: rejected = d + 1 - accepted[n] if d > 0, else 0, to counts;
 *   sample_index = indptr[n+1] - 1 - rejected. Padded rows: 0, 0.
 * next_token            tokens_in [N][D], backup, discarded -> next, counts
 *   Valid tokens are 0 .. vocab-1. counts: how many; next: the last valid one in
 *   the row, backup[n] if none. discarded[n] != 0: backup[n], 0. Padded: 0, 0.
 * bonus_tokens          tokens_in [N][D], accepted (bonus included) -> next
 *   next[n] = tokens_in[n][accepted[n] - 1]; -1 out of bounds; padded rows 0.
 * accept_locs           accept_index [N][S], source_locs [F] -> locs [N S], counts [1]
 *   locs: source_locs[i] for each i = accept_index >= 0, in order; the rest fill.
 *   counts: how many.
 * keep_locs             lens, accepted (bonus not included), source_locs [N D] ->
 *                       locs [N D], free_locs [N D], counts [2]
 *   keep = min(roundup(L + accepted + 1, P), L + D) - L slots of a row are kept.
 *   locs: the first accepted + 1 slots of every row, packed; free_locs: the last
 *   D - keep, packed; the rest fill. counts: how many of each.
 * evict_mask            lens, mask [N][D] -> mask_out [N][D]
 *   A copy, but the page in which the kept tokens end is not freed: with f zeros
 *   in row n, L + f > 0, at = (L + f - 1) / P P - L, elements at .. at + P - 1
 *   become 0.
 *   Padded rows: 0.
 * kv_splits             lens -> counts [N G]
 *   Splits of the keys of each request, so that the chunks of all are alike and
 *   fill compute_units. Padded rows: 0.
 *
 * tree_build            lens, selected [N][D-1], parents [N][PW] -> positions_out [N D],
 *                       tree_index, next_token, next_sibling [N][D], and words
 *                       [N][D] or mask_out
 *   Slot 0 is the root, slot j >= 1 the candidate selected[n][j-1], flat ids in
 *   ascending order; with g = id / K its parent is the root for g = 0, else the
 *   slot of the flat id parents[n][g]. positions: lens[n] + depth. tree_index: n D
 *   + j. next_token: the first child, next_sibling: the next child of the same
 *   parent, -1 if none. Mask: own bit, those of all ancestors, the root's.
 *   mask=qlen: [N][D][D]. mask=full: flat, row n begins at D sum of the lens
 *   before + n D^2, its rows are lens[n] + D wide, the prefix is ones.
 *   A node whose parent is not found before it hangs nowhere: depth 1, root's
 *   and own bit. Padded rows: such nodes, position 0; mask=full: nothing.
 * tree_from_mask        lens, mask [N][D][D] or words [N][D] -> positions_out,
 *                       tree_index, next_token, next_sibling. The parent of j is
 *                       the largest i < j that row j sees.
 * tree_mask             mask (qlen, or full with lens) -> words
 * tree_verify           tokens_in [N][D] (candidates), next_token and next_sibling
 *                       [N][D] (no data in both: a chain) -> predicts [N][D],
 *                       accept_index [N][S], accept_count [N]
 *   From the root, S - 1 times: the first child that is accepted, else stop.
 *   greedy: child c is accepted when it is targets[n][last]. sampling=1: with p =
 *   probs[n][last][c], sum over the children tried: coins[n][last] threshold_acc
 *   <= sum or p >= threshold_single; a threshold_acc
 *   below 1e-9 is 1e-9. predicts[n][last] = c and so on; of the last
 *   node it is targets[n][last], with sampling=1 drawn by final_coins[n] from its
 *   probs without the children tried: the first token at which the running sum
 *   exceeds final_coins[n] times the sum of all, probs being counted in units
 *   of 2^-36 (a row sums to less than 16), coins of 2^-24. accept_index: n D +
 *   slot of root and accepted nodes; accept_count: how many without the root.
 *   Everything else, padded rows too: -1, their count 0.
 *
 * reject                draft_ends (inclusive sums of drafts), drafts [T], bonus ->
 *                       predicts [N][S], accept_count [N]
 *   Row n has the drafts draft_ends[n-1] .. draft_ends[n] - 1, a chain. The first that
 *   is refused ends it. predicts: the drafts before it, then the token in its place,
 *   or where none is refused bonus[n]; the rest -1. accept_count: drafts that stay.
 *   sampling=0, and rows with greedy[n] not 0: draft i is refused when it is not
 *   targets_in[i], which takes its place.
 *   sampling=1: with p = probs[i][draft] and q = draft_probs[i][draft], or 1 without
 *   data in draft_probs (n-gram drafts), draft i stays when q > 0 and p / q >=
 *   coins[i]. Of a refused one, w = max(probs[i] - draft_probs[i], 0), or probs[i]
 *   without the draft, is what its replacement is drawn from: by final_coins[n] as
 *   in tree_verify, with race=1 the first token with the largest w / noise[n],
 *   noise being exponentials. -1 where nothing can be drawn.
 *   Ends that lead out of drafts or of S - 1: no draft (COUNT). A draft that is no
 *   token of V is refused (TREE). Padded rows: -1, their count 0.
 *
 * kv_compact            pool, pools [B] i64, sources, targets [N][A]
 *   Pool b begins pools[b] bytes into pool; one that does not lie in it with all
 *   of its slots is left alone (CAPACITY); if all are, no slot is looked at. Without
 *   data in pool, pools are addresses.
 *   For each pool and row, in the order of its columns: slot sources[n][a] goes to
 *   targets[n][a]; -1 and equal slots do nothing. Of a row, a target is no later
 *   source; rows share no slot. A slot lies at slot / P page_bytes + slot mod P
 *   token_bytes: `pieces` pieces of piece_bytes, piece_stride bytes apart. With
 *   pack=x, which divides P, it lies at slot / P page_bytes + slot mod P / x
 *   group_bytes + slot mod x token_bytes. With e bytes an element, x = 16 / e:
 *     layout          unit  page_bytes  token_bytes  piece_bytes  pieces  piece_stride
 *     nhd             16    P H D e     H D e        H D e        1       -
 *     hnd             16    P H D e     D e          D e          H       P D e
 *     K of xpacked    16    P H D e     16           16           H D/x   16 P
 *     V of xpacked    e     P H D e     e            e            H D     P e
 *     V of shuffle    e     P H D e     e            e            D       16
 *   K of shuffle is K of xpacked. Of shuffled V, whose heads lie apart, a pool is
 *   a head, P D e bytes from the one before; pack=x, group_bytes = 16 D.
 *
 * chunk_context         lens -> step_starts [S][N], step_lens [S][N], kv_indptr
 *                       [S][N+1]
 *   Contexts in chunks of `chunk` tokens, the host's arithmetic of chunked prefill:
 *   step_starts[i][n] = i chunk, step_lens[i][n] = lens[n] - i chunk, at least 0 and
 *   at most chunk, kv_indptr[i]: prefix sums of them. A context of more than S
 *   chunks is cut (CAPACITY). Padded rows: 0, 0.
 * window_lens           lens, q_lens -> starts_out, seq_lens, kv_indptr [N+1]
 *   What a sliding window leaves of a context: seq_lens[n] = min(lens[n], q_lens[n] +
 *   window), starts_out[n] = lens[n] - seq_lens[n]. Padded rows: 0, 0.
 * gather_rows           rows_in [RI][RB], row_index -> rows_out [N][RB]
 *   Row n is row row_index[n], bytes of any type: addresses, strides and RB are
 *   multiples of unit. Index -1, padded rows: zeros; out of bounds (COLUMN) too.
 * copy_pages            rows_in [RI][RB], pairs [N][2] -> rows_out [RO][RB]
 *   Page pairs[n][0] of one cache goes to page pairs[n][1] of another, or of the same
 *   (equal address and stride; then no target is a source); -1 in either does
 *   nothing, and out of bounds (COLUMN). No two rows have one target. Of rows_out all
 *   else stays. Memory of the host that the device reads may be either. */
#define KGEN_OP_ARGS(ID, op) typedef struct kgen_##op##_args {
#define KGEN_TENSOR(op, field, ...) kgen_tensor field;
#define KGEN_NUMBER(op, field, type, ...) type field;
#define KGEN_OP_END(ID, op) \
    }                       \
    kgen_##op##_args;
#include "scatter_args.def"

/* The arguments of one op, tagged with it. */
typedef struct kgen_scatter_args {
    kgen_scatter_op op; /* that of the kernel */
    kgen_tensor live;   /* [1] i32, or no data: rows that are no padding */
    kgen_tensor error;  /* [1] i32, or no data: bits of kgen_scatter_error */
    union {
#define KGEN_OP(ID, number, name) kgen_##name##_args name;
#include "scatter_ops.def"
    };
} kgen_scatter_args;

#ifdef __cplusplus
}
#endif
#endif

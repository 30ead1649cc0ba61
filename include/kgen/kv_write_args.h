/* What a launch of the kv_write family takes.
 *
 * Letters: T tokens that are written, Hkv KV heads, Hq query heads, D and Dv
 * head dims of keys and values, NB pages, x = 16 bytes / element of the cache. */
#ifndef KGEN_KV_WRITE_ARGS_H
#define KGEN_KV_WRITE_ARGS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes row t of k and v, every head, to the cache place of slots[t]:
 *
 *   n = slots[t];  below 0: the row is skipped
 *   remap: n outside the table: skipped; else n = remap[n]
 *   n below first_slot, or not below NB * page: skipped
 *   page n / page, place n % page
 *
 * slots says how many rows there are; k and v may have more (padded batches).
 * Rows of one launch that are not skipped have different places. What no row
 * writes stays as it is, byte for byte.
 *
 * A stored element, of float(k) or float(v) (16-bit caches: the bits of k, v; of x=f32
 * k, v rounded to nearest even):
 *   8-bit floats: k / scale, rounded to nearest even; past the largest finite
 *   number (infinity too) it is that number, NaN stays NaN
 *   i8: k / scale, rounded to nearest even, in -127 .. 127; NaN is 0
 *   i4: the same in -7 .. 7, stored + 8; dims 2i and 2i + 1 are the low and the
 *   high half of byte i, and the cache's last dimension is D / 2
 * and attention and kv_gather read code * scale. The quotient is that of f32
 * division. The scales:
 *   scale=head   k_scale and v_scale are given: normal numbers above 0, below
 *                2^126; [1] for the tensor or [Hkv]
 *   scale=token  written: per token and head, with amax over the head's elements
 *                (NaN left out), of keys after rotation,
 *                  scale = max(min(amax, FLT_MAX) / M, 1e-6)
 *                M the largest number of the type: 448 e4m3fn, 240 e4m3fnuz,
 *                57344 e5m2, 127 i8, 7 i4
 *   scale=row    the same with amax over all heads of the token; every head's
 *                entry is written, or one where the head stride is 0
 *   scale=block  written: v_scale[page][place][head][i] by the same formula with amax
 *                over elements 128 i .. 128 i + 127 of the head of v; keys are copied, so
 *                that k_cache has the type of k. pow2=1: scale is the least power of
 *                two that is not below amax / M, and at least 2^-13
 *
 * rope: the first rd dims of a key rotate by p = positions[t]:
 *   (a, b) -> (a cos - b sin, b cos + a sin), with entry i of row p of cos, sin,
 *   neox: a, b = dims i, i + rd/2;  interleaved: dims 2i, 2i + 1
 * or with tw=full, whose tables have an entry a dim, (a, b) -> (a cos_a - b sin_a,
 * b cos_b + a sin_b) with the entries of the dims that a and b are;
 * computed in f32 as fma(a, cos, -(b sin)) and fma(b, cos, a sin), and rounded
 * to x (f32: not at all) before it is stored or quantised. A key whose position is outside the
 * table is not written. rq=1: rows of q rotate alike into q_out, those that are
 * skipped too; where the position is outside the table they become zeros.
 *
 * Last dimensions are contiguous; data pointers and strides that step over
 * rows, heads, pages and chunks are multiples of 16 bytes, with al=4 or al=2 those of
 * k, v, q, q_out and the caches of that many (scales, slots and
 * positions: of their element). The parts of a cache do not overlap; k, v and q
 * do not overlap what is written, but q_out may be q itself. Packed K|V views
 * are two tensors with strides of their own. Nothing is kept after the launch. */
typedef struct kgen_kv_write_args {
#define KGEN_TENSOR(ID, field, ...) kgen_tensor field;
#define KGEN_NUMBER(field, type, ...) type field;
#include "kv_write_args.def"
} kgen_kv_write_args;

#ifdef __cplusplus
}
#endif
#endif

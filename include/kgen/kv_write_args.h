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
 * A stored element, of float(k) or float(v) (16-bit caches: the bits of k, v):
 *   8-bit floats: k / scale, rounded to nearest even; past the largest finite
 *   number (infinity too) it is that number, NaN stays NaN
 *   i8: k / scale, rounded to nearest even, in -127 .. 127; NaN is 0
 * and attention and kv_gather read code * scale. The quotient is that of f32
 * division. The scales:
 *   scale=head   k_scale and v_scale are given: normal numbers above 0, below
 *                2^126; [1] for the tensor or [Hkv]
 *   scale=token  written: per token and head, with amax over the head's elements
 *                (NaN left out), of keys after rotation,
 *                  scale = max(min(amax, FLT_MAX) / M, 1e-6)
 *                M the largest number of the type: 448 e4m3fn, 240 e4m3fnuz,
 *                57344 e5m2, 127 i8
 *   scale=row    the same with amax over all heads of the token; every head's
 *                entry is written, or one where the head stride is 0
 *
 * rope: the first rd dims of a key rotate by p = positions[t]:
 *   (a, b) -> (a cos - b sin, b cos + a sin), with entry i of row p of cos, sin,
 *   neox: a, b = dims i, i + rd/2;  interleaved: dims 2i, 2i + 1
 * computed in f32 as fma(a, cos, -(b sin)) and fma(b, cos, a sin), and rounded
 * to x before it is stored or quantised. A key whose position is outside the
 * table is not written. rq=1: rows of q rotate alike into q_out, those that are
 * skipped too; where the position is outside the table they become zeros.
 *
 * Last dimensions are contiguous; data pointers and strides that step over
 * rows, heads, pages and chunks are multiples of 16 bytes (scales, slots and
 * positions: of their element). The parts of a cache do not overlap; k, v and q
 * do not overlap what is written, but q_out may be q itself. Packed K|V views
 * are two tensors with strides of their own. Nothing is kept after the launch. */
typedef struct kgen_kv_write_args {
    kgen_tensor k;       /* [>= T][Hkv][D] */
    kgen_tensor v;       /* [>= T][Hkv][Dv] */
    kgen_tensor slots;   /* [T] i32 or i64 */
    kgen_tensor k_cache; /* by layout, see kgen_layout; own strides */
    kgen_tensor v_cache;
    kgen_tensor k_scale; /* f32; scale=head: [1] or [Hkv], read; token, row:
                              [NB][page][Hkv] tagged nhd or [NB][Hkv][page]
                              tagged hnd, written, as attn's descale=token
                              reads it */
    kgen_tensor v_scale;
    kgen_tensor remap;     /* [entries] i32 or i64, remap=i32, i64 */
    kgen_tensor positions; /* [T] i32 or i64, rope */
    kgen_tensor cos;       /* [positions][rd/2], rope */
    kgen_tensor sin;
    kgen_tensor q;      /* [>= T][Hq][D], type of x, rq=1 */
    kgen_tensor q_out;  /* [>= T][Hq][D]; may be q */
    int64_t first_slot; /* >= 0; slots below it are reserved */
} kgen_kv_write_args;

#ifdef __cplusplus
}
#endif
#endif

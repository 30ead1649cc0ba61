/* What kv_write and kv_gather share, and what their launchers must know of the
 * kernels' shape. */
#ifndef KGEN_GEN_KV_H
#define KGEN_GEN_KV_H

#include <kgen/spec.h>

/* What the specs of both families have. */
typedef struct kgen__kv_shape {
    int32_t kv, head_dim, v_dim, page, layout, scale, waves, turns;
    int32_t halves;     /* dims from a key's element to its other half, or 0 */
    int32_t parts;      /* packed V: most parts of a head that a wave takes */
    int32_t pair_words; /* packed V: of two elements outside */
} kgen__kv_shape;

kgen__kv_shape kgen__kv_write_geometry(const kgen_kv_write_spec *spec);
kgen__kv_shape kgen__kv_gather_geometry(const kgen_kv_gather_spec *spec);

/* x: the type outside the cache, which the spec calls x_key. */
kgen_status kgen__kv_applicable(const kgen__kv_shape *shape, int32_t x, const char *x_key,
                                kgen_error *err);
/* Values with a scale a block, keys of the type outside. */
kgen_status kgen__kv_check_blocks(const kgen__kv_shape *shape, int32_t x, const char *x_key,
                                  kgen_error *err);
/* Rows and pages that begin at a multiple of `align` bytes. */
kgen_status kgen__kv_check_align(const kgen__kv_shape *shape, int32_t align, kgen_error *err);
/* Instead of auto. */
int32_t kgen__kv_granularity(int32_t kv, int32_t scale);
/* Words of a lane's piece of a row, of K or V. words: those that a lane loads
 * from outside for 16 bytes of the cache, or stores for them. */
int32_t kgen__kv_piece_words(const kgen__kv_shape *shape, const kgen_target *target, int32_t words);
int32_t kgen__kv_turns(const kgen__kv_shape *shape, const kgen_target *target, int32_t words);
/* extra: registers beside those of a chunk. */
int32_t kgen__kv_occupancy(const kgen__kv_shape *shape, const kgen_target *target, int32_t words,
                           int32_t extra);

/* Of a resolved spec. x: elements of 16 bytes of the cache. */
int32_t kgen__kv_x(const kgen__kv_shape *shape);
int kgen__kv_packed(const kgen__kv_shape *shape);
/* Lanes that share a row of a head, and rows that stand side by side. */
int32_t kgen__kv_row_lanes(const kgen__kv_shape *shape, const kgen_target *target, int is_v);
int32_t kgen__kv_row_block(const kgen__kv_shape *shape);
/* Waves that share a block of x tokens of `heads` heads (packed V). */
int64_t kgen__kv_slices(const kgen__kv_shape *shape, const kgen_target *target, int64_t heads);

#endif

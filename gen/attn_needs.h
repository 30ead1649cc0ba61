/* What a kernel of attention needs of a target. Tuning keys that are open count as 0; whoever asks
 * for registers or LDS has set them. */
#ifndef KGEN_GEN_ATTN_NEEDS_H
#define KGEN_GEN_ATTN_NEEDS_H

#include <kgen/spec.h>

/* How keys and values of long queries come: to each wave by itself, or by way of LDS, as
 * matrices (kg/attn/buffer_nvidia.h) or as lines (kg/attn/buffer_lines.h). */
typedef enum kgen__attn_way { KGEN__BY_WAVE, KGEN__BY_MATRICES, KGEN__BY_LINES } kgen__attn_way;

/* What one isa gives a kernel. */
typedef struct kgen__attn_isa {
    int32_t columns;   /* query rows of a row tile */
    int32_t keys;      /* of a block */
    int32_t waves;     /* that share the keys, at most */
    int32_t all_waves; /* of a workgroup whose waves also share the values */
    int32_t v_split;   /* waves that share the values, at most */
    int32_t occupancy; /* workgroups of a compute unit, at most */
    kgen__attn_way by;
    int32_t values;      /* KG_ATTN_PERMUTED or another, as they come out of lines */
    int32_t line_waves;  /* of a SIMD, that share lines */
    int32_t line_groups; /* workgroups of a compute unit then, at most */
} kgen__attn_isa;

/* The row of a target's isa. */
const kgen__attn_isa *kgen__attn_isa_of(const kgen_target *target);

/* --- of a spec alone ------------------------------------------------------ */

/* Codes that are no floats. */
static inline int kgen__attn_is_integer(int32_t dtype) {
    return dtype == KGEN_DTYPE_I8 || dtype == KGEN_DTYPE_I4;
}
/* As wide as keys where the spec leaves it open. */
static inline int32_t kgen__attn_v_dim_of(const kgen_attn_spec *s) {
    return s->v_dim ? s->v_dim : s->head_dim;
}
/* Of a query, at most; 0: all. */
static inline int32_t kgen__attn_seen_keys(const kgen_attn_spec *s) {
    return s->chunk ? s->chunk * (s->lookback + 1) : s->window;
}

/* --- what kind of kernel it is -------------------------------------------- */

/* A KV head has so many that waves better have rows of their own than keys. */
int kgen__attn_has_many_rows(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* How its keys and values come, if it has many rows; else to each wave by itself. */
kgen__attn_way kgen__attn_way_of(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* Waves of a third group, which brings what two multiply; 0: there is none. */
int32_t kgen__attn_bringers_of(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* Blocks of keys and values that wait in LDS for each wave; 0: none do. */
int32_t kgen__attn_queue_of(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* Row tiles of a KV head whose rows each wave has all of, with a queue; 0: not so. */
int32_t kgen__attn_queued_tiles(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* The same, without one. */
int32_t kgen__attn_own_tiles(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* 1: queries lie in LDS, since there are no registers for them. */
int kgen__attn_yields_q(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* Query rows of a row block. */
int32_t kgen__attn_rows_of(const kgen_attn_spec *s, const kgen__attn_isa *isa);
/* 1: 8-bit floats become numbers in integer arithmetic, among the products. */
int32_t kgen__attn_mixes_conversions(const kgen_attn_spec *s, const kgen_target *target);

/* --- registers and LDS ---------------------------------------------------- */

/* Of a lane, at least: what a compiler may do one after another is not counted. */
int32_t kgen__attn_least_registers(const kgen_attn_spec *s, const kgen_target *target);
/* Of a workgroup. */
int32_t kgen__attn_lds_bytes(const kgen_attn_spec *s, const kgen_target *target);
/* Registers and KiB of LDS beyond what there is; 0: fits. */
int32_t kgen__attn_excess(const kgen_attn_spec *s, const kgen_target *target);

#endif

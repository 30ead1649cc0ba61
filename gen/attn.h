/* What the runtime must know of the attention kernels' shape. */
#ifndef KGEN_GEN_ATTN_H
#define KGEN_GEN_ATTN_H

#include <kgen/spec.h>

typedef struct kgen__attn_geometry {
    int32_t rows;       /* query rows of a row block */
    int32_t waves;      /* of a workgroup, those that share values aside */
    int32_t row_blocks; /* of one KV head and sequence, at most; 0: without bound */
    int32_t block_keys; /* of a unit of work, which stands for one block of keys (and one wave) */
    int32_t item_cost;  /* units */
    int32_t part_keys;  /* of each part of an item; 0: as work is cut */
    int32_t maps;       /* out of which boxes come, for all */
    int32_t own_maps;   /* ... for each workgroup */
    int32_t joins;      /* 1: rows have two results, of a prefix and of what follows */
} kgen__attn_geometry;

/* Keys of each part, of mla's items, too. cuts: whether the kernel cuts an item at all. */
int32_t kgen__attn_part_keys(int32_t invariant, int cuts);

/* Most keys of a sequence that a choice is for: any number that is known, and any. */
enum { KGEN__KNOWN_CONTEXT = INT32_MAX - 1, KGEN__ANY_CONTEXT = INT32_MAX };
static inline int kgen__fits_context(int32_t most, int32_t context) {
    return (context ? context : KGEN__ANY_CONTEXT) <= most;
}

/* Whether workgroups of a cluster can share items. */
kgen_status kgen__cluster_fits(int32_t cluster, int32_t invariant, const kgen_target *target,
                               kgen_error *err);

/* `spec` must be resolved for `target`. */
kgen__attn_geometry kgen__attn_geometry_of(const kgen_attn_spec *spec, const kgen_target *target);

#endif

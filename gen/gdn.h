/* What the runtime and the planner must know of the gdn kernels' shape. */
#ifndef KGEN_GEN_GDN_H
#define KGEN_GEN_GDN_H

#include <kgen/spec.h>

/* Which parts a fuse level has. */
typedef enum kgen__gdn_part {
    KGEN__GDN_CONV = 1,
    KGEN__GDN_RECURRENCE = 2,
    KGEN__GDN_NORM = 4,
} kgen__gdn_part;

int32_t kgen__gdn_parts(const kgen_gdn_spec *spec);

/* Channels of the convolution: 2 Hk K + Hv V, or those that the spec says. */
int64_t kgen__gdn_channels(const kgen_gdn_spec *spec);

/* Workgroups of one sequence, for a resolved spec. */
int64_t kgen__gdn_groups(const kgen_gdn_spec *spec, const kgen_target *target);

/* 1: several workgroups read the convolution window that one of them moves on,
 * so the launch needs a counter a sequence and key head. */
int kgen__gdn_needs_counters(const kgen_gdn_spec *spec);

#endif

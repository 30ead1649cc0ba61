/* A team runs one cluster of workgroups at a time, mostly of one: their lanes are
 * fibers that the team keeps and reuses. One thread uses a team at a time. */
#ifndef KGEN_DEVICE_CPU_TEAM_H
#define KGEN_DEVICE_CPU_TEAM_H

#include <kgen/status.h>
#include <kgen/target.h>

#include "cpu_abi.h"

enum { KGEN__CPU_BLOCK_MAX = 1024, KGEN__CPU_CLUSTER_MAX = 16 };

typedef void (*kgen__cpu_body)(const void *params);

typedef struct kgen__cpu_work {
    kgen__cpu_body body;
    const void *params;
    unsigned groups;  /* workgroups, a multiple of `cluster` */
    unsigned block;   /* lanes of one, 1 .. KGEN__CPU_BLOCK_MAX */
    unsigned cluster; /* workgroups that meet, 1 .. KGEN__CPU_CLUSTER_MAX */
} kgen__cpu_work;

typedef struct kgen__team kgen__team;

/* What a kernel is bound to. */
extern const kg_cpu_ops kgen__team_ops;

kgen_status kgen__team_create(kgen__team **out, const kgen_target *persona, kgen_error *err);
void kgen__team_free(kgen__team *team);
/* Workgroups first .. first + cluster - 1. `chance` decides the order in which waves and
 * lanes run. After a failure lanes hang in the middle of the kernel: the team can only be
 * freed. */
kgen_status kgen__team_run(kgen__team *team, const kgen__cpu_work *work, unsigned first,
                           uint64_t chance, kgen_error *err);

#endif

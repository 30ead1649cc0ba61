/* What a kernel compiled for the cpu device and the cpu device share. Plain C,
 * included by device/cpu and (through templates/kg/core/machine_cpu.h, which
 * repeats it by hand because generated text includes nothing) mirrored by the
 * kernels.
 *
 * The kernel's shared object exports
 *   extern "C" void kg_cpu_bind(const kg_cpu_ops *ops);      called once
 *   extern "C" void <symbol>(const void *params);            a lane's body
 * The engine runs a workgroup's lanes as fibers. Before it enters or resumes a
 * lane it stores that lane's record in *ops->lane (thread-local of the engine,
 * reached through ops->self()). */
#ifndef KGEN_DEVICE_CPU_CPU_ABI_H
#define KGEN_DEVICE_CPU_CPU_ABI_H

#include <stdint.h>

enum {
    KG_CPU_NAMED = 16,      /* gates that lie not in LDS */
    KG_CPU_ERRAND = 64,     /* bytes */
    KG_CPU_GATE_PHASE = 63, /* bit of a gate that turns when all have arrived */
};

typedef struct kg_cpu_lane {
    unsigned thread;         /* 0 .. block-1 */
    unsigned lane;           /* in its wave */
    unsigned wave;           /* in its workgroup */
    unsigned group;          /* workgroup number */
    unsigned groups;         /* workgroups of the launch */
    unsigned block;          /* lanes of the workgroup */
    unsigned char *lds;      /* the workgroup's LDS, lds_bytes of the persona */
    unsigned char *exchange; /* the wave's scratch: wave_size * 256 bytes */
    uint64_t *named;         /* the workgroup's, 0 as a launch begins */
} kg_cpu_lane;

typedef struct kg_cpu_ops {
    kg_cpu_lane *(*self)(void);                /* the running lane */
    void (*wave_sync)(void);                   /* all live lanes of the wave have arrived */
    void (*barrier)(void);                     /* all live lanes of the workgroup */
    void (*cluster_barrier)(void);             /* of all workgroups of the cluster */
    unsigned char *(*peer_lds)(unsigned rank); /* of the cluster's workgroup number `rank` */
    void (*await)(const uint64_t *gate, unsigned parity); /* the gate's phase is another */
    /* Of a lane: a copy that comes by itself, at once or when it is waited for; the end of a group
     * of them; until all have come but those of the last `groups` groups and of the one begun. */
    void (*copy)(void *to, const void *from, unsigned bytes);
    void (*copies_end)(void);
    void (*copies_done)(unsigned groups);
    void (*all_copies_done)(void); /* of the group begun, too */
    /* What the workgroup's memory engine does on its own, sooner or later: `run` with a copy of
     * `bytes` at `what`, at most KG_CPU_ERRAND. */
    void (*later)(void (*run)(const void *what), const void *what, unsigned bytes);
} kg_cpu_ops;

#endif

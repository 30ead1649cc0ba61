/* A prediction of a kernel's time from its code object, without the device.
 * The assumptions are in the result, so that they can be printed. */
#ifndef KGEN_PREDICT_PREDICT_H
#define KGEN_PREDICT_PREDICT_H

#include <kgen/kgen.h>
#include <kgen/tuning.h>

enum { KGEN__PACES = 8 };

/* What the disassembly says of the kernel's hottest loop, per wave and turn;
 * of a kernel that loads outside of loops, all of it, as one turn. */
typedef struct kgen__mix {
    int32_t looped; /* 1: a loop was found */
    int32_t instructions, valu, matrix, scalar, lds, wait;
    int32_t loads, load_bytes; /* global loads; bytes of a wave */
    int32_t stores, store_bytes;
    int32_t wide_loads;      /* of them, those of 16 bytes a lane */
    int32_t in_flight_bytes; /* of a wave: loads between two waits that need them, the most */
    double valu_cycles, matrix_cycles; /* of a SIMD */
    /* Of the way through a turn that most turns take, on the target's device, with 1, 2 ...
     * waves a SIMD (pace.c): how long each takes for it, and how many bytes the SIMD has under
     * way, on average. 0: not known. */
    double turn_us[KGEN__PACES], turn_flight[KGEN__PACES];
    double alone_us;    /* the same of one wave where no other SIMD asks for anything */
    int32_t turn_bytes; /* that the way loads, of load_bytes */
} kgen__mix;

typedef struct kgen__prediction {
    kgen__mix mix;
    double us; /* the largest of the parts, and fixed_us */
    double memory_us, valu_us, matrix_us, turns_us, fixed_us; /* turns: of waves that wait */
    double bytes;                                             /* that a launch must move */
    double in_flight_per_cu;                                  /* bytes, at most */
    double mean_in_flight;   /* bytes of a CU, on average; 0: not known */
    double in_flight_target; /* bytes a CU that reach `achievable` */
    double bandwidth;        /* bytes per us at that many in flight */
    double achievable, peak; /* bytes per us, of the device */
    int32_t waves_per_simd, workgroups;
    const char *bound;     /* "memory", "valu", "matrix", "waits", "latency" */
    char assumptions[512]; /* clock, bandwidth, latency, fixed cost */
} kgen__prediction;

/* entry: with code. KGEN_E_UNSUPPORTED: no prediction for this target or family.
 * It is kgen__predict_mix and kgen__predict_estimate; the mix does not depend on the
 * problem. */
kgen_status kgen__predict(kgen__prediction *out, const kgen_entry *entry, const kgen_spec *spec,
                          const kgen_target *target, const kgen_problem *problem, kgen_error *err);
kgen_status kgen__predict_mix(kgen__mix *out, const kgen_entry *entry, const kgen_target *target,
                              kgen_error *err);
kgen_status kgen__predict_estimate(kgen__prediction *out, const kgen__mix *mix,
                                   const kgen_resources *resources, const kgen_spec *spec,
                                   const kgen_target *target, const kgen_problem *problem,
                                   kgen_error *err);

/* Bytes that one launch must read and write: from the spec and the problem. */
kgen_status kgen__predict_bytes(double *read, double *written, const kgen_spec *spec,
                                const kgen_problem *problem, kgen_error *err);

#endif

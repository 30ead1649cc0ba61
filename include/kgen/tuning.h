/* Tuned choices: the database of what was measured, and its look-up.
 *
 * A spec leaves its tuning keys open ("auto"). The family's own rule fills
 * them in; a row of the database replaces that rule for a problem of about the
 * same size. Resolved when a kernel is prepared, never on the launch path. */
#ifndef KGEN_TUNING_H
#define KGEN_TUNING_H

#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How large a launch is. 0 everywhere: not known. A kernel is right for every size, and fastest
 * for about this one; what limits a launch are its tensors. */
typedef struct kgen_problem {
    int32_t batch;   /* sequences; of kv_write, kv_gather, attn_merge tokens */
    int32_t context; /* cached tokens of a sequence, as most have, not the most there may be; parts
                        of a stack. 0: any number, a graph for all lengths; families without */
    int32_t heads;   /* KV heads of this rank; 0 where the spec says */
} kgen_problem;

typedef struct kgen_tuning kgen_tuning;

/* Reads the layers, in order of precedence: the user's file (`path`, or
 * $KGEN_TUNING, or tuning.jsonl in the user's cache directory), the system's
 * (/etc/kgen/tuning.jsonl), and the rows shipped in the library. A file that is
 * not there is an empty layer; a bad line is skipped, counted, and told in
 * `kgen doctor`. The path "" stands for no database at all. *out:
 * kgen_tuning_close. The database is read-only after open and may be shared by
 * threads. */
KGEN_API kgen_status kgen_tuning_open(kgen_tuning **out, const char *path, kgen_error *err);
KGEN_API void kgen_tuning_close(kgen_tuning *db);

typedef enum kgen_match {
    KGEN_MATCH_DEFAULT, /* the family's own rule: no row, or a row in its favour */
    KGEN_MATCH_EXACT,   /* this device, this problem */
    KGEN_MATCH_NEAR,    /* this device, the nearest problem */
    KGEN_MATCH_ARCH,    /* another device of the architecture, or a prediction */
} kgen_match;

typedef struct kgen_tuning_match {
    kgen_match kind;
    kgen_problem problem;  /* of the row; 0: none */
    double us, default_us; /* of the row, in its own environment; 0: none */
    char reason[256];      /* one sentence: why this row, or why none */
} kgen_tuning_match;

/* spec -> *out: resolved (kgen_spec_resolve), its open tuning keys by the
 * nearest valid row. Keys the caller has set stay. A row whose kernel digest is
 * not that of the source it names today is stale and never used. problem may
 * be NULL (unknown: the family's rule), device (the label's name, "NVIDIA
 * H200") may be NULL (any). db may be NULL: the family's rule alone. */
KGEN_API kgen_status kgen_tuning_resolve(kgen_spec *out, kgen_tuning_match *match,
                                         const kgen_tuning *db, const kgen_spec *spec,
                                         const kgen_problem *problem, const kgen_target *target,
                                         const char *device, kgen_error *err);

/* Every distinct resolved spec that kgen_tuning_resolve can give for `spec` on
 * `target`, whatever the problem: what a cache must hold. *specs: free(). */
KGEN_API kgen_status kgen_tuning_variants(kgen_spec **specs, size_t *count, const kgen_tuning *db,
                                          const kgen_spec *spec, const kgen_target *target,
                                          kgen_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* What the files of the tuner share. */
#ifndef KGEN_TUNER_RUN_H
#define KGEN_TUNER_RUN_H

#include "journal.h"
#include "tuner.h"

/* Why a candidate is out once it has been looked at. */
typedef enum kgen__drop {
    KGEN__DROP_GATE,     /* spills, scratch */
    KGEN__DROP_COMPILE,  /* the compiler refuses it */
    KGEN__DROP_SLOW,     /* predicted to be far slower than the best */
    KGEN__DROP_MISMATCH, /* differs from the reference */
    KGEN__DROP_HUNG,     /* no answer in time */
    KGEN__DROP_CRASHED,  /* its worker ended, or the driver failed */
    KGEN__DROP_ERROR,    /* cannot be prepared or launched */
    KGEN__DROP_COUNT
} kgen__drop;

const char *kgen__drop_name(kgen__drop reason);
kgen__drop kgen__drop_find(const char *name); /* unknown: KGEN__DROP_ERROR */

double kgen__tuner_clock(void); /* seconds */
void kgen__date_now(char out[24]);

/* A run: what the watcher keeps, and every worker inherits. */
typedef struct kgen__run {
    const kgen__tuner_settings *set;
    const kgen__tuner_device *device;
    kgen__journal *journal;
    size_t *order;          /* of the jobs, smallest first */
    int *done;              /* by job */
    double start, deadline; /* deadline below 0: none */
} kgen__run;

/* In the worker; its value is the exit code. */
int kgen__worker(kgen__run *run, int fd);

/* ---- compiling ------------------------------------------------------------- */
/* results[count]: kgen__candidates_free. Fails when no candidate could have been
 * compiled (no toolchain, no memory); what is wrong with one is in its result. */
kgen_status kgen__candidates_build(kgen_job_result *results, kgen_cache *cache,
                                   const kgen__space *space, const int *candidates, int count,
                                   const kgen_target *target, const kgen_build_options *options,
                                   kgen_error *err);
void kgen__candidates_free(kgen_job_result *results, int count);
kgen__drop kgen__drop_of_build(const kgen_job_result *result);

/* ---- results ---------------------------------------------------------------- */
/* The "result" of a job. row: a line, or NULL. */
json_t *kgen__result_json(const char *id, const kgen__tuner_job *job, const kgen__space *space,
                          const kgen__search_result *found, const int dropped[KGEN__DROP_COUNT],
                          const char *row);
json_t *kgen__result_failed(const char *id, const kgen__tuner_job *job, const char *text);
/* The row of what was found. */
kgen_status kgen__result_row(char out[KGEN_TUNING_LINE_MAX], const kgen__tuner_job *job,
                             const kgen__space *space, const kgen__search_result *found,
                             uint64_t seed, const kgen_target *target,
                             const kgen_environment *environment, kgen_error *err);
/* Enough samples to decide by. */
int kgen__result_counts(const kgen__search_result *found);

#endif

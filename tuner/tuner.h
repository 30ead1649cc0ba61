/* kgen tune: kernels and problems in, rows of the tuning database out.
 *
 *   space    which kernels there are to choose from
 *   search   which of them are timed, and which one wins
 *   worker   compiles, verifies and times them, in a process of its own
 *   watch    ends a worker that hangs, and starts the next
 *   journal  what has been found out, so that a run can go on */
#ifndef KGEN_TUNER_TUNER_H
#define KGEN_TUNER_TUNER_H

#include <jansson.h>

#include <kgen/tuning_rows.h>
#include "search.h"

typedef struct kgen__tuner_job {
    kgen_spec spec; /* tuning keys that are set stay */
    kgen_problem problem;
    const kgen_capture *capture; /* to be timed on; NULL: a workload of our own */
} kgen__tuner_job;

/* What kernels are timed on. `make` may return KGEN_E_UNSUPPORTED. A workload and
 * its timers are those of workload/workload.h unless another table is given. */
typedef struct kgen__tuner_workloads {
    kgen_status (*make)(void **workload, kgen_context *ctx, const kgen__tuner_job *job,
                        kgen_error *err);
    void (*free)(void *workload);
    kgen_status (*timer_make)(void **timer, void *workload, const kgen_kernel *kernel,
                              kgen_error *err);
    kgen_status (*timer_sample)(double *us, void *timer, kgen_error *err);
    void (*timer_free)(void *timer);
} kgen__tuner_workloads;

extern const kgen__tuner_workloads kgen__tuner_own_workloads;

typedef struct kgen__tuner_progress {
    size_t jobs, done;
    const char *spec; /* of the job in work; NULL: none yet */
    kgen_problem problem;
    const char *stage; /* "compile", "verify", "time" ... */
    int candidates;    /* of the job */
    int tried;         /* compiled, verified */
    int dropped;
    int samples;
    double seconds, left; /* left: of the budget; below 0: there is none */
} kgen__tuner_progress;

typedef struct kgen__tuner_settings {
    const kgen__tuner_job *jobs;
    size_t count;
    const char *device, *cache_dir; /* as kgen_open */
    const char *out;                /* rows go here */
    const char *journal;            /* NULL: in memory only */
    kgen__search_options search;
    const kgen__tuner_workloads *workloads; /* NULL: our own */
    double budget;                          /* seconds for all; below 0: no limit */
    double timeout;                         /* seconds a candidate may be silent */
    int workers;                            /* compilers at a time; 0: as kgen_build */
    int keep_slow;                          /* 1: predicted times drop nothing */
    void (*progress)(const kgen__tuner_progress *progress, void *user); /* may be NULL */
    void (*say)(const char *text, void *user); /* what must not be missed; may be NULL */
    void *user;
} kgen__tuner_settings;

/* The device that --device names, asked by a process of its own: a process that
 * is to fork must not open one. With environment but for the toolchain where
 * none is found. */
typedef struct kgen__tuner_device {
    const kgen_target *target;
    kgen_environment environment;
} kgen__tuner_device;
kgen_status kgen__tuner_probe(kgen__tuner_device *out, const char *device, kgen_error *err);

/* Tunes every job, smallest first, and merges a row for each into `out`.
 * *report: {"device", "arch", "seconds", "results": [...]}; json_decref. A result
 * has "outcome": tuned, default (as fast, or no row changed), unfinished (time
 * ran out), failed (with "text"). */
kgen_status kgen__tuner_run(json_t **report, const kgen__tuner_settings *settings,
                            const kgen__tuner_device *device, kgen_error *err);

/* The same by the times of predict/predict.h, without a device: device "prediction". */
kgen_status kgen__tuner_predict(json_t **report, const kgen__tuner_settings *settings,
                                const kgen_target *target, kgen_error *err);

/* The candidates of every job, and what was pruned before compiling. */
kgen_status kgen__tuner_list(json_t **report, const kgen__tuner_settings *settings,
                             const kgen_target *target, kgen_error *err);

/* Every strategy on the times of a journal, `repeats` times each: how far its
 * choice is from the best, in what part of an exhaustive search's time. */
kgen_status kgen__tuner_simulate(json_t **report, const char *journal,
                                 const kgen__search_options *search, int repeats, kgen_error *err);

#endif

/* What a tuning run has found out, one line of JSON an event, appended as it
 * happens. A later run with the same journal takes samples from it before it
 * measures: a search that takes the same way goes on where it was stopped.
 *
 *   environment  where all that follows was measured
 *   job          a kernel and a problem: id, spec, default
 *   candidate    of a job: spec, seconds its compilation took
 *   begin, verified, dropped   of a kernel, whatever the job
 *   times        one sample of a candidate of a job
 *   result       of a job */
#ifndef KGEN_TUNER_JOURNAL_H
#define KGEN_TUNER_JOURNAL_H

#include <jansson.h>

#include <kgen/tuning_rows.h>

/* A failed allocation in uthash is an event less, not an exit. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->lost = 1)
#include <uthash.h>

typedef struct kgen__journal_kernel {
    UT_hash_handle hh;
    int lost; /* the table had no room for it */
    char kernel[65];
    int verified;
    double verify_s;
    char dropped[24]; /* why; empty: it is not */
} kgen__journal_kernel;

typedef struct kgen__journal_times {
    UT_hash_handle hh;
    int lost; /* the table had no room for it */
    char kernel[65];
    char spec[KGEN_SPEC_LINE_MAX];
    double compile_s;
    double *us;
    int count, capacity;
    double seconds; /* that the samples took */
} kgen__journal_times;

typedef struct kgen__journal_job {
    UT_hash_handle hh;
    int lost; /* the table had no room for it */
    char id[17];
    char spec[KGEN_SPEC_LINE_MAX], target[32], family_choice[65];
    kgen_problem problem;
    kgen__journal_times *times;
    json_t *result; /* the event; NULL: none yet */
} kgen__journal_job;

typedef struct kgen__journal {
    int fd; /* -1: in memory only */
    char path[1024];
    int any_environment; /* lines count wherever they were measured */
    int current;         /* the environment line read last is ours */
    json_t *environment; /* ours, without its date */
    kgen__journal_kernel *kernels;
    kgen__journal_job *jobs;
    int bad; /* lines that are none */
} kgen__journal;

/* Opens to append, alone: another run with it is KGEN_E_IO. A line that was cut
 * off at the end is dropped. path NULL: memory only. *out: kgen__journal_close. */
kgen_status kgen__journal_open(kgen__journal **out, const char *path,
                               const kgen_environment *environment, kgen_error *err);
/* To read only, whatever the environment. */
kgen_status kgen__journal_read(kgen__journal **out, const char *path, kgen_error *err);
void kgen__journal_close(kgen__journal *journal);
/* Leaves the file to the process that forked this one. */
void kgen__journal_detach(kgen__journal *journal);
/* Writes a line, and takes note of what it says. */
kgen_status kgen__journal_add(kgen__journal *journal, const char *line, kgen_error *err);

/* The name of a kernel and a problem in journals: 16 hex digits. */
void kgen__journal_id(char out[17], const kgen_spec *spec, const kgen_problem *problem,
                      const kgen_target *target);

/* NULL: nothing is known. */
const kgen__journal_kernel *kgen__journal_kernel_of(const kgen__journal *journal,
                                                    const char *kernel);
const kgen__journal_job *kgen__journal_job_of(const kgen__journal *journal, const char *id);
const kgen__journal_times *kgen__journal_times_of(const kgen__journal_job *job, const char *kernel);

#endif

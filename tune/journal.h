/* What a tuning run has found out, one line of JSON an event, appended as it
 * happens. A later run with the same journal takes samples from it before it
 * measures: a search that takes the same way goes on where it was stopped.
 *
 *   environment  where all that follows was measured
 *   job          a kernel and a problem: id, spec, default
 *   candidate    of a job: spec, seconds its compilation took
 *   begin, verified, dropped   of a kernel, whatever the job
 *   times        one sample of a candidate of a job
 *   result       of a job                                                   */
#ifndef KGEN_TUNE_JOURNAL_H
#define KGEN_TUNE_JOURNAL_H

#include <jansson.h>
#include <uthash.h>

#include "../tunedb/row.h"

typedef struct kgen_journal_kernel {
    UT_hash_handle hh;
    char kernel[65];
    int verified;
    double verify_s;
    char dropped[24]; /* why; empty: it is not                               */
} kgen_journal_kernel;

typedef struct kgen_journal_times {
    UT_hash_handle hh;
    char kernel[65];
    char spec[KGEN_SPEC_LINE_MAX];
    double compile_s;
    double *us;
    int count, capacity;
    double seconds; /* that the samples took                                 */
} kgen_journal_times;

typedef struct kgen_journal_job {
    UT_hash_handle hh;
    char id[17];
    char spec[KGEN_SPEC_LINE_MAX], target[32], family_choice[65];
    kgen_problem problem;
    kgen_journal_times *times;
    json_t *result; /* the event; NULL: none yet                             */
} kgen_journal_job;

typedef struct kgen_journal {
    int fd; /* -1: in memory only                                            */
    char path[1024];
    int any_environment; /* lines count wherever they were measured          */
    int current;         /* the environment line read last is ours           */
    json_t *environment; /* ours, without its date                           */
    kgen_journal_kernel *kernels;
    kgen_journal_job *jobs;
    int bad; /* lines that are none                                          */
} kgen_journal;

/* Opens to append, alone: another run with it is KGEN_E_IO. A line that was cut
 * off at the end is dropped. path NULL: memory only. *out: kgen_journal_close. */
kgen_status kgen_journal_open(kgen_journal **out, const char *path,
                              const kgen_environment *environment, kgen_error *err);
/* To read only, whatever the environment.                                   */
kgen_status kgen_journal_read(kgen_journal **out, const char *path, kgen_error *err);
void kgen_journal_close(kgen_journal *journal);
/* Leaves the file to the process that forked this one.                      */
void kgen_journal_detach(kgen_journal *journal);
/* Writes a line, and takes note of what it says.                            */
kgen_status kgen_journal_add(kgen_journal *journal, const char *line, kgen_error *err);

/* The name of a kernel and a problem in journals: 16 hex digits.            */
void kgen_journal_id(char out[17], const kgen_spec *spec, const kgen_problem *problem,
                     const kgen_target *target);

/* NULL: nothing is known.                                                   */
const kgen_journal_kernel *kgen_journal_kernel_of(const kgen_journal *journal, const char *kernel);
const kgen_journal_job *kgen_journal_job_of(const kgen_journal *journal, const char *id);
const kgen_journal_times *kgen_journal_times_of(const kgen_journal_job *job, const char *kernel);

#endif

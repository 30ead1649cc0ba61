/* A row of the tuning database: one line of JSON, one result. What it says of
 * time holds in its own environment only; times of two environments are never
 * compared.                                                                 */
#ifndef KGEN_TUNEDB_ROW_H
#define KGEN_TUNEDB_ROW_H

#include <kgen/tune.h>

enum { KGEN__ROW_LINE_MAX = 4096 };

/* Where a time was taken. Two rows are of one environment when all of it but
 * the date is the same.                                                     */
typedef struct kgen_environment {
    char device[128];    /* "NVIDIA H200"; "model" for a prediction          */
    char driver[64];
    char toolchain[160]; /* kgen_toolchain.id                                */
    int32_t compute_units;
    int32_t clock_mhz, memory_mhz; /* 0: not known                           */
    char date[24];       /* 2026-11-22T03:04:05Z                             */
} kgen_environment;

typedef struct kgen_tuning_row {
    kgen_spec spec; /* resolved, tuning keys included                        */
    const kgen_target *target;
    kgen_problem problem;
    char kernel[65];         /* digest of the tuned kernel's source          */
    char default_kernel[65]; /* of the family's own choice then              */
    double us, low, high;    /* median, 95 % interval                        */
    double default_us;       /* measured in turn with it                     */
    int32_t samples;
    uint64_t seed;
    kgen_environment environment;
} kgen_tuning_row;

/* Digest of the source text that `resolved` is written as, 64 hex digits.   */
kgen_status kgen__row_digest(char out[65], const kgen_spec *resolved, const kgen_target *target,
                             kgen_error *err);

kgen_status kgen__row_print(char out[KGEN__ROW_LINE_MAX], const kgen_tuning_row *row,
                            kgen_error *err);
/* KGEN_E_CONFIG names the field and the value.                              */
kgen_status kgen__row_parse(kgen_tuning_row *out, const char *line, kgen_error *err);

typedef struct kgen_merge_counts {
    size_t added, replaced, kept; /* kept: an incoming row that was older     */
} kgen_merge_counts;

/* Adds rows to a file: one row for each (spec without tuning keys, problem,
 * target, device, driver, toolchain), the newer date wins. All or nothing: one
 * bad line in `rows_text` changes nothing (the error names the line); the file
 * is replaced by renaming, under a lock that is waited for a bounded time.
 * Bad lines already in the file are kept at its end, as they are.           */
kgen_status kgen__rows_merge(kgen_merge_counts *counts, const char *path, const char *rows_text,
                             size_t size, kgen_error *err);

/* The user's file, as kgen_tuning_open finds it.                            */
kgen_status kgen__rows_user_path(char *out, size_t size, const char *path, kgen_error *err);

#endif

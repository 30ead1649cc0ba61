/* A row of the tuning database: one line of JSON, one result. What it says of
 * time holds in its own environment only; times of two environments are never
 * compared. Not installed, but the programs of this repository use it. */
#ifndef KGEN_TUNING_ROWS_H
#define KGEN_TUNING_ROWS_H

#include <kgen/tuning.h>

enum { KGEN_TUNING_LINE_MAX = 4096 };

/* Of the best kernel over the default, below which they count as equal: what a
 * median of one run cannot be sure of in the next. */
#define KGEN_TUNING_GAIN 1.03

/* Where a time was taken. Two rows are of one environment when all of it but
 * the date is the same. */
typedef struct kgen_environment {
    char device[128]; /* "NVIDIA H200"; "prediction": not measured */
    char driver[64];
    char toolchain[160]; /* kgen_toolchain.id */
    int32_t compute_units;
    int32_t clock_mhz, memory_mhz; /* 0: not known */
    char date[24];                 /* 2026-11-22T03:04:05Z */
} kgen_environment;

typedef struct kgen_tuning_row {
    kgen_spec spec; /* resolved, tuning keys included */
    const kgen_target *target;
    kgen_problem problem;
    char kernel[65];         /* digest of the tuned kernel's source */
    char default_kernel[65]; /* of the family's own choice then */
    double us, low, high;    /* median, 95 % interval */
    double default_us;       /* measured in turn with it */
    int32_t samples;
    uint64_t seed; /* at most 2^63-1, what JSON holds */
    kgen_environment environment;
} kgen_tuning_row;

/* kgen_source_digest of what `resolved` is written as, 64 hex digits. */
KGEN_API kgen_status kgen_tuning_row_digest(char out[65], const kgen_spec *resolved,
                                            const kgen_target *target, kgen_error *err);
/* *stale: row->kernel is not the digest of what row->spec is written as. */
KGEN_API kgen_status kgen_tuning_row_stale(int *stale, const kgen_tuning_row *row, kgen_error *err);

/* One line without its newline; times with nine digits. A row that parse would
 * not take is KGEN_E_CONFIG. */
KGEN_API kgen_status kgen_tuning_row_print(char out[KGEN_TUNING_LINE_MAX],
                                           const kgen_tuning_row *row, kgen_error *err);
/* KGEN_E_CONFIG names the field and the value. The spec is resolved for the
 * row's target; keys that are not known are passed over. */
KGEN_API kgen_status kgen_tuning_row_parse(kgen_tuning_row *out, const char *line, kgen_error *err);

typedef struct kgen_merge_counts {
    size_t added, replaced, kept; /* kept: an incoming row that was not newer */
} kgen_merge_counts;

/* Adds rows to a file: one row for each (spec without tuning keys, problem,
 * target, device, driver, toolchain), the newer date wins. All or nothing: one
 * bad line in `rows_text` changes nothing (the error names the line); the file
 * is replaced by renaming, under a lock that is waited for a bounded time.
 * Rows are kept as they were written, sorted by bytes. Bad lines already in the
 * file are kept at its end, as they are. */
KGEN_API kgen_status kgen_tuning_rows_merge(kgen_merge_counts *counts, const char *path,
                                            const char *rows_text, size_t size, kgen_error *err);
/* A whole file of at most 64 MiB, "-" for standard input. *text: free(). */
KGEN_API kgen_status kgen_tuning_rows_read(char **text, size_t *size, const char *path,
                                           kgen_error *err);

/* The user's file, as kgen_tuning_open finds it. */
KGEN_API kgen_status kgen_tuning_user_path(char *out, size_t size, const char *path,
                                           kgen_error *err);

/* What an open database holds, nearest layer first. */
typedef struct kgen_tuning_layer {
    const char *name; /* "user", "system", "shipped" */
    char *path;       /* "in the library" for what is shipped */
    kgen_tuning_row *rows;
    size_t count, bad; /* bad: lines that are no rows */
    char *why;         /* of the first bad line, or why the file is not read; NULL: all well */
} kgen_tuning_layer;

KGEN_API size_t kgen_tuning_layers(const kgen_tuning_layer **layers, const kgen_tuning *db);

#endif

/* What the commands of kgen share: options, jobs, tables, output. */
#ifndef KGEN_CLI_CLI_H
#define KGEN_CLI_CLI_H

#include <jansson.h>
#include <kgen/kgen.h>
#include <stdio.h>

/* sysexits' EX_USAGE; every other failure is kgen_status_exit_code. */
enum { KGEN__EXIT_USAGE = 64, KGEN__FILE_MAX_BYTES = 4 << 20, KGEN__ARCHS_MAX = 64 };

/* ---- commands: each takes its own argv and returns the exit code -------- */
int kgen__command_plan(int argc, char **argv);
int kgen__command_build(int argc, char **argv);
int kgen__command_list(int argc, char **argv);
int kgen__command_inspect(int argc, char **argv);
int kgen__command_source(int argc, char **argv);
int kgen__command_report(int argc, char **argv);
int kgen__command_explain(int argc, char **argv);
int kgen__command_tuning(int argc, char **argv);
int kgen__command_check(int argc, char **argv);
int kgen__command_bench(int argc, char **argv);
int kgen__command_tune(int argc, char **argv);
int kgen__command_doctor(int argc, char **argv);
int kgen__command_pack(int argc, char **argv);
int kgen__command_prune(int argc, char **argv);
int kgen__command_merge(int argc, char **argv);
int kgen__command_unpack(int argc, char **argv);
int kgen__command_verify(int argc, char **argv);

/* ---- messages ------------------------------------------------------------ */
/* `kgen: error: ...` in one line, safe for a terminal; returns the exit code. */
int kgen__cli_fail(const kgen_error *err);
/* kgen_open_options.log: a line on stderr. */
void kgen__cli_log(kgen_log_level level, const char *text, void *user);
int kgen__cli_usage(const char *command, const char *fmt, ...) KGEN_PRINTF(2, 3);

/* ---- verify_deep.c ------------------------------------------------------- */
typedef struct kgen__deep {
    size_t examined, current, rebuilt; /* current: of a source that this version writes */
    json_t *wrong;                     /* json_decref */
    int code;                          /* of the first that is wrong */
} kgen__deep;

/* Of a bundle or a folder; at most `wanted` of its kernels are compiled again. Failures are
 * printed. */
void kgen__verify_deep(kgen__deep *deep, const char *path, size_t wanted);
void kgen__deep_print(const kgen__deep *deep);
json_t *kgen__deep_json(const kgen__deep *deep);

/* report_diff.c: of two bundles or folders; the exit code. */
int kgen__report_diff(char **paths, int json);

/* ---- options ------------------------------------------------------------- */
typedef struct kgen__option kgen__option;

/* Reads `text` into option->out; KGEN_E_ARG is a usage error. */
typedef kgen_status kgen__option_reader(const kgen__option *option, const char *text,
                                        kgen_error *err);

struct kgen__option {
    const char *name;
    char letter;               /* 0: none */
    const char *value;         /* what the help calls the value; NULL: a flag */
    kgen__option_reader *read; /* NULL for a flag, whose `out` is an int */
    void *out;
    long low, high;
    const char *help;
};

kgen__option_reader kgen__read_int;     /* int, low..high */
kgen__option_reader kgen__read_u64;     /* uint64_t */
kgen__option_reader kgen__read_text;    /* const char *, not empty */
kgen__option_reader kgen__read_choice;  /* an enum: a word of the option's own */
kgen__option_reader kgen__read_archs;   /* kgen__archs */
kgen__option_reader kgen__read_problem; /* kgen_problem: batch=8,context=8192 */
kgen__option_reader kgen__read_seconds; /* double: 90, 90s, 5m, 1h */
kgen__option_reader kgen__read_shard;   /* kgen__shard: 2/8 */
kgen__option_reader kgen__read_bytes;   /* double: 1000000, 1M, 2G */

/* "batch=8,context=8192,heads=8", blanks between them will do; what is left out
 * stays as it is. */
kgen_status kgen__problem_parse(kgen_problem *problem, const char *text, kgen_error *err);
void kgen__problem_print(char out[64], const kgen_problem *problem);

typedef struct kgen__shard {
    int part, parts; /* parts 0: all of it */
} kgen__shard;

typedef struct kgen__archs {
    const kgen_target *list[KGEN__ARCHS_MAX];
    size_t count;
} kgen__archs;

/* `low` of an option: its help ends with what kgen__archs_default fills in. */
enum { KGEN__ARCHS_DEFAULT = 1 };

/* Puts today's digests into the rows of files whose code is that of the kernels
 * that were timed; the folder `before` is a cache that has those. */
kgen_status kgen__restamp(const char *before, char **files, int count, kgen_error *err);

/* Those of targets.def by default, when no --arch is given. */
void kgen__archs_default(kgen__archs *archs);

enum { KGEN__OPTIONS_MAX = 32 };

typedef struct kgen__syntax {
    const char *command;
    const char *arguments; /* as the help shows them */
    const char *about;
    int least, most; /* positional arguments; most < 0: any number */
    kgen__option options[KGEN__OPTIONS_MAX];
    size_t count;
} kgen__syntax;

void kgen__syntax_add(kgen__syntax *syntax, kgen__option option);
void kgen__syntax_add_cache_dir(kgen__syntax *syntax, const char **dir);
void kgen__syntax_add_json(kgen__syntax *syntax, int *json);

typedef enum kgen__parsed { KGEN__RUN, KGEN__STOP } kgen__parsed;

/* KGEN__STOP: help was shown or an error was printed; *code is the exit code.
 * Else the positional arguments are argv[*first] ... argv[argc - 1]. */
kgen__parsed kgen__syntax_parse(const kgen__syntax *syntax, int argc, char **argv, int *first,
                                int *code);

/* Without the blanks around it. */
char *kgen__trim(char *text);

/* ---- files --------------------------------------------------------------- */
/* A whole file of at most 4 MiB, "-" for standard input. *out: free(). */
kgen_status kgen__input_read(char **out, size_t *size, const char *path, kgen_error *err);

/* ---- jobs: (spec, arch), each once --------------------------------------- */
typedef struct kgen__job_name kgen__job_name;

typedef struct kgen__jobs {
    kgen_job *list;
    size_t count, capacity;
    kgen__job_name *names;
    int unchecked; /* 1: also what its target refuses */
} kgen__jobs;

kgen_status kgen__jobs_add(kgen__jobs *jobs, const kgen_spec *spec, const kgen_target *target,
                           kgen_error *err);
/* "<spec line>" for every arch, or "<spec line> @<arch>". */
kgen_status kgen__jobs_add_line(kgen__jobs *jobs, const char *line, const kgen__archs *archs,
                                kgen_error *err);
/* A manifest: a line a job, `#` begins a comment. */
kgen_status kgen__jobs_add_manifest(kgen__jobs *jobs, const char *path, const kgen__archs *archs,
                                    kgen_error *err);
/* The same part of the same jobs on every machine. */
void kgen__jobs_keep_shard(kgen__jobs *jobs, const kgen__shard *shard);
void kgen__jobs_free(kgen__jobs *jobs);

/* ---- rows of a benchmark ---------------------------------------------------- */
typedef struct kgen__row {
    char *name;
    kgen_spec spec;
    kgen_problem problem; /* 0: not given */
} kgen__row;

typedef struct kgen__rows {
    kgen__row *list;
    size_t count, capacity;
} kgen__rows;

/* A spec line, "SPEC | batch=8 context=8192 heads=8", or a file of rows
 * "NAME | SPEC | PROBLEM" (`#` begins a comment). tune: tuning keys for every
 * spec, or NULL. */
kgen_status kgen__rows_add(kgen__rows *rows, const char *argument, const char *tune,
                           kgen_error *err);
/* Keeps the rows whose name fits; none is KGEN_E_ARG. */
kgen_status kgen__rows_keep(kgen__rows *rows, const char *glob, kgen_error *err);
void kgen__rows_free(kgen__rows *rows);

/* ---- plans --------------------------------------------------------------- */
void kgen__syntax_add_plan(kgen__syntax *syntax, kgen_plan_options *options);
/* --kv-dtype 8bit, until it is known for which targets. */
enum { KGEN__KV_8BIT = 127 };
/* path: a config.json, or the folder that holds one. */
kgen_status kgen__plan_load(kgen_plan *plan, const char *path, const kgen_plan_options *options,
                            const kgen__archs *archs, kgen_error *err);
/* Behind each job what the tuning database may give instead of it. */
kgen_status kgen__jobs_add_variants(kgen__jobs *jobs, kgen_error *err);
/* Every (item, arch) that has a kernel. `skipped` (may be NULL) hears of the others. */
kgen_status kgen__jobs_add_plan(kgen__jobs *jobs, const kgen_plan *plan, const kgen__archs *archs,
                                void (*skipped)(const kgen_plan_item *item,
                                                const kgen_target *target, const char *why,
                                                void *user),
                                void *user, kgen_error *err);
/* What the model needs and no kernel covers, a line each, to standard error. */
void kgen__plan_note_missing(const kgen_plan *plan);

/* ---- what of a manifest a device can run ---------------------------------- */
json_t *kgen__planned_on(kgen_cache *cache, const char *manifest, const char *device,
                         const char *arch);
void kgen__planned_print(const json_t *list, const char *manifest);

/* ---- building with progress ---------------------------------------------- */
typedef struct kgen__build_settings {
    int workers;
    int quiet;         /* no progress */
    int hide_failures; /* the caller prints them */
    int allow_spills;
    double timeout_s;  /* a kernel; 0: the default */
    double budget_s;   /* all of them; 0: as long as it takes */
    int json;          /* the results instead of a summary */
    const char *ninja; /* not built, but written into this file */
} kgen__build_settings;

typedef struct kgen__build_counts {
    size_t compiled, cached, failed, left, unsaved; /* left: the budget was over */
    double seconds;
    kgen_error why_unsaved; /* the first */
} kgen__build_counts;

/* 1: nothing is wrong with it, but there was no time left. */
int kgen__is_left(const kgen_job_result *result);
/* Failures are printed as they come. results[count]: kgen__results_free. */
kgen_status kgen__build_jobs(kgen_cache *cache, const kgen__jobs *jobs,
                             const kgen__build_settings *settings, kgen_job_result *results,
                             kgen__build_counts *counts, kgen_error *err);
/* build_files.c; json: the exit code. ninja: `dir` is the cache folder. */
int kgen__build_json(const kgen__jobs *jobs, const kgen_job_result *results,
                     const kgen__build_counts *counts);
kgen_status kgen__build_ninja(const kgen__jobs *jobs, const char *path, const char *dir,
                              kgen_error *err);
void kgen__results_free(kgen_job_result *results, size_t count);
double kgen__clock(void); /* seconds */

/* ---- entries ------------------------------------------------------------- */
/* The one entry whose hex key starts with `prefix`, with code and source. */
kgen_status kgen__entry_find(kgen_entry **out, kgen_cache *cache, const char *prefix,
                             kgen_error *err);
int kgen__is_key_prefix(const char *text);
json_t *kgen__entry_json(const kgen_entry *entry);

/* ---- host costs ------------------------------------------------------------- */
typedef struct kgen__host_settings {
    const kgen__archs *archs; /* none: the device is measured too */
    const char *device;
    int json, csv;
} kgen__host_settings;

/* What each row's kernel costs the host. Returns the exit code. */
int kgen__bench_host(const kgen__rows *rows, const kgen__host_settings *set);

/* ---- captured launches ---------------------------------------------------- */
typedef struct kgen__replay_settings {
    const char *device, *cache_dir;
    int keep_tuning, quiet, json;
} kgen__replay_settings;

/* Runs every file, and goes on after a failure; the first one's exit code. */
int kgen__replay_files(const kgen__replay_settings *settings, char **files, size_t count);

/* ---- output -------------------------------------------------------------- */
typedef struct kgen__table {
    size_t columns, count, capacity;
    const char *align; /* a letter a column: l or r */
    char **cells;
} kgen__table;

/* heading: a name for each letter; it is the first row of cells. */
void kgen__table_init(kgen__table *table, const char *align, const char *const *heading);
void kgen__table_cell(kgen__table *table, const char *fmt, ...) KGEN_PRINTF(2, 3);
/* A cell for a number that may be unknown (-1). */
void kgen__table_number(kgen__table *table, long number);
void kgen__table_print(const kgen__table *table, FILE *stream);
void kgen__table_free(kgen__table *table);
void kgen__table_entry_heading(kgen__table *table);
void kgen__table_entry(kgen__table *table, const kgen_entry *entry);

/* Prints and releases; returns the exit code. */
int kgen__json_print(json_t *value);

/* What decides that two kernels of the cache are two. */
kgen_status kgen__explain_keys(const char *first, const char *second, const char *cache_dir,
                               int json, kgen_error *err);
/* The parameters and arguments of a family as JSON; an exit code. */
int kgen__explain_json(kgen_family_id family);

#endif

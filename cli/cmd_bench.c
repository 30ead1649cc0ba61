/* kgen bench: time kernels by graph replay over cold data, beside what the
 * memory of the device can do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload/workload.h"
#include "cli.h"

enum { SAMPLES = 15, LEAST_SAMPLES = 3, MOST_SAMPLES = 100000 };

/* What is timed where nothing else is said. The cpu device emulates a GPU, some
 * thousand times slower: there it also bounds what is said. */
static const kgen_problem usual = {64, 8192, 8}, emulated = {2, 64, 1};
static const double LIMIT_BYTES = 2e9, EMULATED_BYTES = 1e5;

typedef struct settings {
    const char *device, *cache_dir, *glob, *tune;
    kgen__archs archs;
    kgen_problem problem;
    double budget, cold;
    int samples, workers, any_context, host, json, csv, quiet;
} settings;

typedef struct result {
    const kgen__row *row;
    kgen_problem problem;
    kgen__timing timing;
    double bytes, flops, limit;
    int sets;
    const kgen_kernel *kernel;
} result;

typedef struct bench {
    const settings *set;
    kgen_context *ctx;
    kgen__limits limits;
    const kgen__rows *rows;
    double deadline; /* of the samples; 0: none */
    int width;       /* of the names */
    int is_cpu, terminal;
    size_t failed;
    kgen_status first_failure;
    json_t *list; /* --json */
} bench;

/* ---- problems ------------------------------------------------------------- */

static int32_t choose(const bench *b, int32_t asked, int32_t of_row, int32_t most, int32_t least) {
    if (asked) return asked;
    if (!b->is_cpu) return of_row ? of_row : most;
    return of_row && of_row < least ? of_row : least;
}

static kgen_problem problem_of(const bench *b, const kgen__row *row) {
    const kgen_problem *p = &b->set->problem, *r = &row->problem;
    return (kgen_problem){choose(b, p->batch, r->batch, usual.batch, emulated.batch),
                          choose(b, p->context, r->context, usual.context, emulated.context),
                          choose(b, p->heads, r->heads, usual.heads, emulated.heads)};
}

/* What the kernel is prepared for. */
static kgen_problem prepared_of(const bench *b, const kgen_problem *timed) {
    kgen_problem prepared = *timed;
    if (b->set->any_context) prepared.context = 0;
    return prepared;
}

/* ---- a row ------------------------------------------------------------------- */

/* Of the time that is left, the share of one of the rows that are left. */
static double row_deadline(const bench *b, size_t index) {
    double left = b->deadline - kgen__clock();
    if (b->deadline == 0) return INFINITY;
    return kgen__clock() + left / (double)(b->rows->count - index);
}

static kgen_status sample(result *r, kgen__timer *timer, int most, double deadline,
                          kgen_error *err) {
    double *us = malloc((size_t)most * sizeof *us);
    kgen_status status = us ? KGEN_OK : kgen_fail(err, KGEN_E_NOMEM, "no memory for samples");
    int count = 0;
    while (status == KGEN_OK && count < most && (count < LEAST_SAMPLES || kgen__clock() < deadline))
        status = kgen__timer_sample(&us[count++], timer, err);
    if (status == KGEN_OK) kgen__timing_of(&r->timing, us, count);
    free(us);
    return status;
}

static kgen_status time_row(bench *b, result *r, size_t index, kgen_error *err) {
    const kgen__workload_options options = {.cold_bytes = b->set->cold ? b->set->cold
                                                          : b->is_cpu  ? 1
                                                                       : 0};
    kgen__workload *work = NULL;
    kgen__timer *timer = NULL;
    r->row = &b->rows->list[index];
    r->problem = problem_of(b, r->row);
    kgen_request request = {
        .size = sizeof request, .spec = r->row->spec, .problem = prepared_of(b, &r->problem)};
    KGEN_TRY(kgen_prepare_for(b->ctx, &request, 1, NULL, err));
    KGEN_TRY(kgen__workload_make(&work, b->ctx, &r->row->spec, &r->problem, &options, err));
    r->kernel = request.kernel;
    r->bytes = kgen__workload_bytes(work);
    r->flops = kgen__workload_flops(work);
    r->sets = kgen__workload_sets(work);
    r->limit = kgen__workload_reads(r->row->spec.family) ? b->limits.read : b->limits.copy;
    kgen_status status = kgen__timer_make(&timer, work, r->kernel, err);
    if (status == KGEN_OK) status = sample(r, timer, b->set->samples, row_deadline(b, index), err);
    kgen__timer_free(timer);
    kgen__workload_free(work);
    return status;
}

/* ---- output -------------------------------------------------------------------- */

static const char *limit_name(const result *r) {
    return kgen__workload_reads(r->row->spec.family) ? "read" : "copy";
}

static void print_heading(const bench *b) {
    if (b->list) return;
    if (b->set->csv) {
        puts("row,batch,context,heads,us,low,high,best,samples,bytes,tb_s,limit,of_limit,registers,"
             "sets,spec");
        return;
    }
    printf("read %.3f TB/s, copy %.3f TB/s\n\n", b->limits.read * 1e-6, b->limits.copy * 1e-6);
    printf("%-*s  %10s  %21s  %8s  %12s  %9s\n", b->width, "ROW", "US", "95 % OF MEDIAN", "TB/S",
           "OF LIMIT", "REGISTERS");
}

static void print_csv(const result *r, const char *spec) {
    const kgen__timing *t = &r->timing;
    printf("\"%s\",%d,%d,%d,%.4f,%.4f,%.4f,%.4f,%d,%.0f,%.6f,%s,%.5f,%d,%d,\"%s\"\n", r->row->name,
           r->problem.batch, r->problem.context, r->problem.heads, t->us, t->low, t->high, t->best,
           t->samples, r->bytes, r->bytes / t->us * 1e-6, limit_name(r),
           r->bytes / t->us / r->limit, kgen_kernel_resources(r->kernel)->vgprs, r->sets, spec);
}

static json_t *result_json(const result *r, const char *spec) {
    const kgen__timing *t = &r->timing;
    return json_pack(
        "{s:s, s:s, s:{s:i, s:i, s:i}, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:s, s:f, s:i, s:i}",
        "row", r->row->name, "spec", spec, "problem", "batch", r->problem.batch, "context",
        r->problem.context, "heads", r->problem.heads, "us", t->us, "low", t->low, "high", t->high,
        "best", t->best, "samples", t->samples, "bytes", r->bytes, "flops", r->flops, "tb_s",
        r->bytes / t->us * 1e-6, "limit", limit_name(r), "of_limit", r->bytes / t->us / r->limit,
        "registers", kgen_kernel_resources(r->kernel)->vgprs, "sets", r->sets);
}

static void print_result(const bench *b, const result *r) {
    const kgen__timing *t = &r->timing;
    char spec[KGEN_SPEC_LINE_MAX], interval[48], share[32], registers[16] = "-";
    kgen_spec_print(spec, kgen_kernel_spec(r->kernel));
    if (b->list) {
        json_array_append_new(b->list, result_json(r, spec));
        return;
    }
    if (b->set->csv) {
        print_csv(r, spec);
        return;
    }
    snprintf(interval, sizeof interval, "%.2f - %.2f", t->low, t->high);
    snprintf(share, sizeof share, "%.3f %s", r->bytes / t->us / r->limit, limit_name(r));
    int32_t count = kgen_kernel_resources(r->kernel)->vgprs;
    if (count >= 0) snprintf(registers, sizeof registers, "%d", count);
    printf("%-*s  %10.2f  %21s  %8.3f  %12s  %9s\n", b->width, r->row->name, t->us, interval,
           r->bytes / t->us * 1e-6, share, registers);
}

static void show_progress(const bench *b, size_t index) {
    if (!b->terminal) return;
    fputs("\r\033[K", stderr);
    if (index < b->rows->count)
        fprintf(stderr, "[%zu/%zu] %s", index + 1, b->rows->count, b->rows->list[index].name);
    fflush(stderr);
}

static void report_failure(bench *b, const kgen__row *row, const kgen_error *why) {
    kgen_error err;
    kgen_fail(&err, why->status, "%s: %s", row->name, why->text);
    if (!b->failed++) b->first_failure = why->status;
    show_progress(b, b->rows->count);
    kgen__cli_fail(&err);
    if (b->list)
        json_array_append_new(b->list,
                              json_pack("{s:s, s:s}", "row", row->name, "error", why->text));
}

/* ---- the whole -------------------------------------------------------------------- */

/* Compiles everything first, in parallel; a row whose kernel fails says so later. */
static kgen_status build_all(bench *b, kgen_error *err) {
    kgen__jobs jobs = {0};
    kgen__build_counts counts;
    const kgen__build_settings how = {.quiet = b->set->quiet || !isatty(STDERR_FILENO),
                                      .hide_failures = 1,
                                      .workers = b->set->workers};
    const kgen_target *target = kgen_context_target(b->ctx);
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < b->rows->count && status == KGEN_OK; i++)
        if (kgen_spec_validate(&b->rows->list[i].spec, target, NULL) == KGEN_OK)
            status = kgen__jobs_add(&jobs, &b->rows->list[i].spec, target, err);
    kgen_job_result *results = calloc(jobs.count ? jobs.count : 1, sizeof *results);
    if (status == KGEN_OK && !results)
        status = kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", jobs.count);
    if (status == KGEN_OK && jobs.count > 1)
        kgen__build_jobs(kgen_context_cache(b->ctx), &jobs, &how, results, &counts, NULL);
    if (results) kgen__results_free(results, jobs.count);
    kgen__jobs_free(&jobs);
    return status;
}

static void time_rows(bench *b) {
    for (size_t i = 0; i < b->rows->count; i++) {
        result r = {0};
        kgen_error why = {KGEN_OK, ""};
        show_progress(b, i);
        kgen_status status = time_row(b, &r, i, &why);
        if (status == KGEN_OK) {
            show_progress(b, b->rows->count);
            print_result(b, &r);
        } else {
            why.status = status;
            report_failure(b, &b->rows->list[i], &why);
        }
    }
}

static int finish(bench *b) {
    int code = b->failed ? kgen_status_exit_code(b->first_failure) : 0;
    if (!b->list) return code;
    int printed = kgen__json_print(
        json_pack("{s:s, s:s, s:b, s:{s:f, s:f}, s:I, s:O}", "device", kgen_context_device(b->ctx),
                  "arch", kgen_context_target(b->ctx)->name, "emulated", b->is_cpu, "limits",
                  "read_tb_s", b->limits.read * 1e-6, "copy_tb_s", b->limits.copy * 1e-6, "failed",
                  (json_int_t)b->failed, "rows", b->list));
    return code ? code : printed;
}

static void say_emulated(const bench *b) {
    char most[64];
    if (!b->is_cpu) return;
    kgen__problem_print(most, &emulated);
    fprintf(stderr,
            "kgen: note: %s emulates a GPU: its times mean nothing; what --problem leaves "
            "open is cut to %s\n",
            kgen_context_target(b->ctx)->name, most);
}

static kgen_status start(bench *b, kgen_error *err) {
    const settings *set = b->set;
    b->is_cpu = kgen_context_target(b->ctx)->vendor == KGEN_VENDOR_CPU;
    b->terminal = !set->quiet && isatty(STDERR_FILENO);
    for (size_t i = 0; i < b->rows->count; i++)
        if ((int)strlen(b->rows->list[i].name) > b->width)
            b->width = (int)strlen(b->rows->list[i].name);
    say_emulated(b);
    if (!set->json && !set->csv) printf("%s\n", kgen_context_device(b->ctx));
    KGEN_TRY(build_all(b, err));
    KGEN_TRY(
        kgen__limits_measure(&b->limits, b->ctx, b->is_cpu ? EMULATED_BYTES : LIMIT_BYTES, err));
    if (set->budget > 0) b->deadline = kgen__clock() + set->budget;
    if (set->json) b->list = json_array();
    return KGEN_OK;
}

static int run(const settings *set, const kgen__rows *rows) {
    bench b = {.set = set, .rows = rows, .width = 3};
    const kgen_open_options options = {.size = sizeof options,
                                       .device = set->device,
                                       .cache_dir = set->cache_dir,
                                       .log = kgen__cli_log};
    kgen_error err;
    int code;
    kgen_status status = kgen_open(&b.ctx, &options, &err);
    if (status == KGEN_OK) status = start(&b, &err);
    if (status == KGEN_OK) {
        print_heading(&b);
        time_rows(&b);
        code = finish(&b);
    } else {
        code = kgen__cli_fail(&err);
    }
    json_decref(b.list);
    kgen_close(b.ctx);
    return code;
}

static int collect_and_run(const settings *set, char **arguments, size_t count) {
    const kgen__host_settings host = {&set->archs, set->device, set->json, set->csv};
    kgen__rows rows = {0};
    kgen_error err;
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < count && status == KGEN_OK; i++)
        status = kgen__rows_add(&rows, arguments[i], set->tune, &err);
    if (status == KGEN_OK && set->glob) status = kgen__rows_keep(&rows, set->glob, &err);
    int code = status != KGEN_OK ? kgen__cli_fail(&err)
               : set->host       ? kgen__bench_host(&rows, &host)
                                 : run(set, &rows);
    kgen__rows_free(&rows);
    return code;
}

static void add_options(kgen__syntax *s, settings *set) {
    const kgen__option options[] = {
        {"device", 'd', "NAME", kgen__read_text, &set->device, 0, 0,
         "hip:0, cuda:0, cpu:cdna3 ... (the first there is)"},
        {"problem", 'p', "SIZES", kgen__read_problem, &set->problem, 0, 0,
         "batch=N,context=N,heads=N, before those of rows"},
        {"any-context", 0, NULL, NULL, &set->any_context, 0, 0,
         "kernels for the batch alone, as for graphs of any length"},
        {"rows", 0, "GLOB", kgen__read_text, &set->glob, 0, 0, "only rows whose name fits"},
        {"tune", 0, "KEYS", kgen__read_text, &set->tune, 0, 0,
         "tuning keys for every spec: waves=4,occ=2"},
        {"samples", 'n', "N", kgen__read_int, &set->samples, 1, MOST_SAMPLES,
         "replays of a row (15)"},
        {"budget", 0, "TIME", kgen__read_seconds, &set->budget, 0, 0,
         "time for all samples: 60s, 5m; a row has at least 3"},
        {"cold", 0, "BYTES", kgen__read_bytes, &set->cold, 0, 0,
         "data in turn, more than the caches hold (1G); 1: warm"},
        {"host", 0, NULL, NULL, &set->host, 0, 0,
         "what each kernel costs the host instead: rendering, cache, launch"},
        {"arch", 0, "A,B", kgen__read_archs, &set->archs, 0, 0,
         "with --host: what needs no device, for these instead"},
        {"jobs", 'j', "N", kgen__read_int, &set->workers, 0, 256,
         "parallel compilers (0: what cores and memory allow)"},
        {"cache-dir", 0, "DIR", kgen__read_text, &set->cache_dir, 0, 0,
         "cache folder (KGEN_CACHE_DIR, else ~/.cache/kgen)"},
        {"quiet", 'q', NULL, NULL, &set->quiet, 0, 0, "no progress"},
        {"csv", 0, NULL, NULL, &set->csv, 0, 0, "print CSV"},
        {"json", 0, NULL, NULL, &set->json, 0, 0, "print JSON"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) kgen__syntax_add(s, options[i]);
}

int kgen__command_bench(int argc, char **argv) {
    settings set = {.samples = SAMPLES};
    int first, code;
    kgen__syntax s = {.command = "bench",
                      .arguments = "[ROWSFILE | SPEC ...]",
                      .about = "Times kernels by graph replay over data that is in no cache. Rows "
                               "come from files,\nNAME | SPEC | batch=8 context=8192 heads=8 a "
                               "line, and from the command line:\nSPEC or 'SPEC | batch=8'.",
                      .most = -1};
    add_options(&s, &set);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (first == argc)
        return kgen__cli_usage("bench", "nothing to time: give a spec or a file of rows");
    if (set.archs.count && !set.host)
        return kgen__cli_usage("bench", "--arch: only with --host, elsewhere the device says it");
    if (set.json && set.csv) return kgen__cli_usage("bench", "--json or --csv, not both");
    return collect_and_run(&set, argv + first, (size_t)(argc - first));
}

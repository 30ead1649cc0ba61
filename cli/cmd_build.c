/* kgen build: compile in parallel helpers, with a progress bar on a terminal. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { BAR_WIDTH = 24 };

double kgen__clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef struct progress {
    kgen__build_counts counts;
    double start;
    int terminal, quiet, hide_failures;
    size_t done, total;
    double said; /* when the last line was printed */
    double end;  /* when the budget is over, where there is one */
} progress;

enum { SILENCE_S = 30 }; /* then a line says that it goes on */

static void clear_bar(const progress *p) {
    if (p->terminal) fputs("\r\033[K", stderr);
}

static void draw_bar(const progress *p, size_t done, size_t total) {
    double elapsed = kgen__clock() - p->start;
    char bar[BAR_WIDTH + 1];
    size_t filled = total ? done * BAR_WIDTH / total : BAR_WIDTH;
    for (size_t i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    clear_bar(p);
    fprintf(stderr, "[%s] %zu/%zu  %zu cached  %zu failed  %.0f s", bar, done, total,
            p->counts.cached, p->counts.failed, elapsed);
    if (done && done < total)
        fprintf(stderr, ", about %.0f s left", elapsed * (double)(total - done) / (double)done);
    fflush(stderr);
}

static void draw_line(const kgen_job_result *result, const kgen_job *job, size_t done,
                      size_t total) {
    static const char *const words[] = {
        [KGEN_JOB_BUILT] = "compiled", [KGEN_JOB_CACHED] = "cached", [KGEN_JOB_FAILED] = "failed"};
    char line[KGEN_SPEC_LINE_MAX], took[32] = "";
    kgen_spec_print(line, &job->spec);
    if (result->outcome == KGEN_JOB_BUILT)
        snprintf(took, sizeof took, " (%u ms)", result->entry->record.compile_ms);
    fprintf(stderr, "[%zu/%zu] %s %s @%s%s\n", done, total, words[result->outcome], line,
            job->target->name, took);
}

static void report_failure(const progress *p, const kgen_job_result *result, const kgen_job *job) {
    kgen_error err;
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &job->spec);
    kgen_fail(&err, result->error.status, "%s @%s: %s", line, job->target->name,
              result->error.text);
    clear_bar(p);
    kgen__cli_fail(&err);
}

int kgen__is_left(const kgen_job_result *result) {
    return result->outcome == KGEN_JOB_FAILED && result->error.status == KGEN_E_CANCELLED;
}

static int is_over(void *user) {
    const progress *p = user;
    return kgen__clock() >= p->end;
}

static void on_progress(const kgen_job_result *result, const kgen_job *job, size_t done,
                        size_t total, void *user) {
    progress *p = user;
    p->counts.compiled += result->outcome == KGEN_JOB_BUILT;
    p->counts.cached += result->outcome == KGEN_JOB_CACHED;
    p->counts.left += (size_t)kgen__is_left(result);
    if (kgen__is_left(result)) return;
    p->counts.failed += result->outcome == KGEN_JOB_FAILED;
    if (result->outcome == KGEN_JOB_BUILT && result->error.status != KGEN_OK &&
        !p->counts.unsaved++)
        p->counts.why_unsaved = result->error;
    if (result->outcome == KGEN_JOB_FAILED && !p->hide_failures) report_failure(p, result, job);
    p->done = done;
    p->said = kgen__clock();
    if (p->quiet) return;
    if (p->terminal)
        draw_bar(p, done, total);
    else
        draw_line(result, job, done, total);
}

/* A kernel may take minutes, here or in another process: whoever waits sees that it goes on. */
static void on_heartbeat(size_t running, size_t waiting, void *user) {
    progress *p = user;
    double now = kgen__clock();
    if (p->quiet) return;
    if (p->terminal) {
        draw_bar(p, p->done, p->total);
        if (waiting) fprintf(stderr, ", %zu wait for another process", waiting);
        fflush(stderr);
    } else if (now - p->said >= SILENCE_S) {
        fprintf(stderr, "[%zu/%zu] %zu compile, %zu wait for another process, %.0f s\n", p->done,
                p->total, running, waiting, now - p->start);
        p->said = now;
    }
}

kgen_status kgen__build_jobs(kgen_cache *cache, const kgen__jobs *jobs,
                             const kgen__build_settings *settings, kgen_job_result *results,
                             kgen__build_counts *counts, kgen_error *err) {
    progress p = {
        .start = kgen__clock(), .quiet = settings->quiet, .hide_failures = settings->hide_failures};
    p.said = p.start;
    p.end = p.start + settings->budget_s;
    p.total = jobs->count;
    p.terminal = !p.quiet && isatty(STDERR_FILENO);
    kgen_build_options options = {.size = sizeof options,
                                  .workers = settings->workers,
                                  .allow_spills = settings->allow_spills,
                                  .timeout_s = (int)(settings->timeout_s + 0.999),
                                  .fresh_code_only = 1,
                                  .progress = on_progress,
                                  .heartbeat = on_heartbeat,
                                  .cancel = settings->budget_s > 0 ? is_over : NULL,
                                  .user = &p};
    if (p.terminal) draw_bar(&p, 0, jobs->count);
    kgen_status status = kgen_build(cache, jobs->list, jobs->count, &options, results, err);
    clear_bar(&p);
    p.counts.seconds = kgen__clock() - p.start;
    *counts = p.counts;
    return status;
}

void kgen__results_free(kgen_job_result *results, size_t count) {
    for (size_t i = 0; i < count; i++) kgen_entry_free(results[i].entry);
    free(results);
}

static kgen_status unsaved(const kgen_error *why, size_t kernels, kgen_error *err) {
    char count[64] = "";
    if (kernels)
        snprintf(count, sizeof count, ": %zu compiled kernels could not be saved", kernels);
    return kgen_fail(err, KGEN_E_IO,
                     "%.600s%s; choose another folder with --cache-dir or "
                     "KGEN_CACHE_DIR",
                     why->text, count);
}

static int are_cached(kgen_cache *cache, const kgen__jobs *jobs) {
    const kgen_build_options options = {.size = sizeof options, .only_cached = 1};
    kgen_job_result *results = calloc(jobs->count + 1, sizeof *results);
    int cached =
        results && kgen_build(cache, jobs->list, jobs->count, &options, results, NULL) == KGEN_OK;
    if (results) kgen__results_free(results, jobs->count);
    return cached;
}

/* A build exists to fill the folder: where it cannot, memory alone would be work for nothing,
 * unless there is no work. */
static kgen_status check_folder(kgen_cache *cache, const kgen__jobs *jobs, int compiles_later,
                                kgen_error *err) {
    kgen_cache_health health;
    const char *dir = kgen_cache_dir(cache);
    if (dir && (access(dir, W_OK) == 0 || errno == ENOENT)) return KGEN_OK;
    KGEN_TRY(kgen_cache_examine(cache, &health, err));
    if (health.cannot_save.status == KGEN_OK) return KGEN_OK;
    if (!compiles_later && are_cached(cache, jobs)) return KGEN_OK;
    return unsaved(&health.cannot_save, 0, err);
}

static kgen_status build(kgen_cache *cache, const kgen__jobs *jobs,
                         const kgen__build_settings *settings, kgen_error *err) {
    kgen__build_counts counts;
    KGEN_TRY(check_folder(cache, jobs, settings->ninja != NULL, err));
    if (settings->ninja)
        return kgen__build_ninja(jobs, settings->ninja, kgen_cache_dir(cache), err);
    /* a part may be empty */
    kgen_job_result *results = calloc(jobs->count + 1, sizeof *results);
    if (!results) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", jobs->count);
    kgen_status status = kgen__build_jobs(cache, jobs, settings, results, &counts, err);
    if (settings->json) kgen__build_json(jobs, results, &counts);
    kgen__results_free(results, jobs->count);
    if (!settings->json)
        printf("%zu compiled, %zu cached, %zu failed in %.1f s\n", counts.compiled, counts.cached,
               counts.failed, counts.seconds);
    if (counts.failed) err->text[0] = 0; /* each failure was printed as it came */
    if (counts.unsaved && !counts.failed) return unsaved(&counts.why_unsaved, counts.unsaved, err);
    if (counts.left && !counts.failed)
        return kgen_fail(
            err, KGEN_E_CANCELLED,
            "--budget: %zu of %zu kernels are left; the same command goes on with them",
            counts.left, jobs->count);
    return status;
}

typedef struct sources {
    const char *manifest, *model;
    kgen_plan_options options;
    kgen__archs archs;
    int no_variants;
    kgen__shard shard;
} sources;

static void say_skipped(const kgen_plan_item *item, const kgen_target *target, const char *why,
                        void *user) {
    (void)user;
    fprintf(stderr, "kgen: note: %s @%s: left out: %s\n", item->note, target->name, why);
}

static kgen_status add_model(kgen__jobs *jobs, const sources *from, kgen_error *err) {
    kgen_plan plan;
    KGEN_TRY(kgen__plan_load(&plan, from->model, &from->options, &from->archs, err));
    kgen__plan_note_missing(&plan);
    kgen_status status = kgen__jobs_add_plan(jobs, &plan, &from->archs, say_skipped, NULL, err);
    kgen_plan_free(&plan);
    return status;
}

static kgen_status collect(kgen__jobs *jobs, const sources *from, char **lines, size_t count,
                           kgen_error *err) {
    for (size_t i = 0; i < count; i++)
        KGEN_TRY(kgen__jobs_add_line(jobs, lines[i], &from->archs, err));
    if (from->manifest) KGEN_TRY(kgen__jobs_add_manifest(jobs, from->manifest, &from->archs, err));
    if (from->model) KGEN_TRY(add_model(jobs, from, err));
    if (!jobs->count) return kgen_fail(err, KGEN_E_UNSUPPORTED, "nothing to build");
    if (!from->no_variants) KGEN_TRY(kgen__jobs_add_variants(jobs, err));
    kgen__jobs_keep_shard(jobs, &from->shard);
    return KGEN_OK;
}

static int run_build(const sources *from, const char *cache_dir, char **lines, size_t count,
                     const kgen__build_settings *settings) {
    kgen_error err;
    kgen__jobs jobs = {0};
    kgen_cache *cache = NULL;
    kgen_status status = collect(&jobs, from, lines, count, &err);
    if (status == KGEN_OK) status = kgen_cache_open(&cache, cache_dir, &err);
    if (status == KGEN_OK) status = build(cache, &jobs, settings, &err);
    kgen_cache_close(cache);
    kgen__jobs_free(&jobs);
    if (status == KGEN_OK) return 0;
    return err.text[0] ? kgen__cli_fail(&err) : kgen_status_exit_code(status);
}

int kgen__command_build(int argc, char **argv) {
    sources from = {0};
    kgen__build_settings settings = {0};
    const char *cache_dir = NULL;
    int first, code;
    kgen__syntax s = {.command = "build",
                      .arguments = "[SPEC[@ARCH] ...]",
                      .about = "Compiles what is not cached yet. Kernels come from spec lines, a "
                               "manifest, a model,\nor all of them; of each, every variant that "
                               "kgen_prepare_for may choose.",
                      .most = -1};
    kgen__syntax_add(&s, (kgen__option){"manifest", 'm', "FILE", kgen__read_text, &from.manifest, 0,
                                        0, "lines `SPEC @ARCH`, as `kgen plan -o` writes them"});
    kgen__syntax_add(&s, (kgen__option){"model", 0, "FILE", kgen__read_text, &from.model, 0, 0,
                                        "a config.json, planned with the options below"});
    kgen__syntax_add_plan(&s, &from.options);
    kgen__syntax_add(&s, (kgen__option){"arch", 0, "A,B", kgen__read_archs, &from.archs,
                                        KGEN__ARCHS_DEFAULT, 0, "architectures"});
    kgen__syntax_add(&s, (kgen__option){"no-variants", 0, NULL, NULL, &from.no_variants, 0, 0,
                                        "only defaults, not what rows of the tuning database, or "
                                        "the size of a problem, may give instead"});
    kgen__syntax_add(&s, (kgen__option){"jobs", 'j', "N", kgen__read_int, &settings.workers, 0, 256,
                                        "parallel compilers (0: what cores and memory allow)"});
    kgen__syntax_add_cache_dir(&s, &cache_dir);
    kgen__syntax_add(&s, (kgen__option){"allow-spills", 0, NULL, NULL, &settings.allow_spills, 0, 0,
                                        "keep kernels that spill registers or use scratch"});
    kgen__syntax_add(&s, (kgen__option){"shard", 0, "I/N", kgen__read_shard, &from.shard, 0, 0,
                                        "of the kernels the I-th of N parts, for N machines"});
    kgen__syntax_add(&s,
                     (kgen__option){"timeout", 0, "TIME", kgen__read_seconds, &settings.timeout_s,
                                    0, 0, "a kernel may take so long: 90s, 5m, 1h (5m)"});
    kgen__syntax_add(&s, (kgen__option){"budget", 0, "TIME", kgen__read_seconds, &settings.budget_s,
                                        0, 0,
                                        "all may take so long; what is left, the same "
                                        "command builds later"});
    kgen__syntax_add(&s, (kgen__option){"ninja", 0, "FILE", kgen__read_text, &settings.ninja, 0, 0,
                                        "compile nothing: write a file for ninja that does"});
    kgen__syntax_add_json(&s, &settings.json);
    kgen__syntax_add(&s, (kgen__option){"quiet", 'q', NULL, NULL, &settings.quiet, 0, 0,
                                        "no progress, only failures and the summary"});
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (first == argc && !from.manifest && !from.model)
        return kgen__cli_usage("build", "nothing to build: give a spec, --manifest or --model");
    kgen__archs_default(&from.archs);
    return run_build(&from, cache_dir, argv + first, (size_t)(argc - first), &settings);
}

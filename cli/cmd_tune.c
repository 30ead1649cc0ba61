/* kgen tune: options, progress, tables. The work is in tune/. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check/check.h"
#include "tuner/tuner.h"
#include "cli.h"

enum { PROBLEMS_MAX = 64, CAPTURES_MAX = 64, BAR_WIDTH = 24, REPEATS = 20 };
static const double TIMEOUT_S = 30, REDRAW_S = 0.1, LINE_S = 30;

typedef struct problem_list {
    kgen_problem list[PROBLEMS_MAX];
    size_t count;
} problem_list;

typedef struct options {
    problem_list problems;
    kgen_plan_options plan;
    kgen__tuner_settings set;
    kgen__archs archs;
    const char *simulate;
    char out[1024], journal[1100];
    int predict, dry_run, json, quiet, replay;
    kgen__tuner_job *jobs;
    size_t capacity;
    kgen_capture *captures[CAPTURES_MAX];
    size_t capture_count;
} options;

/* ---- readers ------------------------------------------------------------------- */

static kgen_status read_problems(const kgen__option *option, const char *text, kgen_error *err) {
    problem_list *problems = option->out;
    kgen__option one = *option;
    if (problems->count == PROBLEMS_MAX)
        return kgen_fail(err, KGEN_E_ARG, "--problem: at most %d", PROBLEMS_MAX);
    one.out = &problems->list[problems->count++];
    return kgen__read_problem(&one, text, err);
}

/* "90", "90s", "10m", "2h" -> seconds */
static kgen_status read_seconds(const kgen__option *option, const char *text, kgen_error *err) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char *end;
    double number = strtod(text, &end);
    int known = end != text && isdigit((unsigned char)*text) && isfinite(number);
    for (size_t i = 0; known && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].unit, end) != 0 || number * units[i].seconds > 1e9) continue;
        *(double *)option->out = number * units[i].seconds;
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_ARG, "--%s %.40s: a time such as 90s, 10m or 2h expected",
                     option->name, text);
}

static kgen_status read_strategy(const kgen__option *option, const char *text, kgen_error *err) {
    return kgen__strategy_find(option->out, text, err);
}

/* ---- what is to be tuned --------------------------------------------------------- */

static kgen_status add_job(options *o, const kgen_spec *spec, const kgen_problem *problem,
                           int heads, kgen_error *err) {
    if (o->set.count == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 32;
        kgen__tuner_job *jobs = realloc(o->jobs, capacity * sizeof *jobs);
        if (!jobs) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", capacity);
        o->set.jobs = o->jobs = jobs;
        o->capacity = capacity;
    }
    kgen__tuner_job *job = &o->jobs[o->set.count++];
    *job = (kgen__tuner_job){*spec, *problem, NULL};
    if (!job->problem.heads) job->problem.heads = kgen__workload_heads(spec->family, heads);
    return KGEN_OK;
}

static kgen_status add_spec(options *o, const kgen_spec *spec, const kgen_target *target, int heads,
                            kgen_error *err) {
    const kgen_problem *problems = o->problems.list;
    size_t count = o->problems.count;
    KGEN_TRY(kgen_spec_validate(spec, target, err));
    if (!count) count = kgen__workload_problems(&problems, spec->family);
    for (size_t i = 0; i < count; i++) KGEN_TRY(add_job(o, spec, &problems[i], heads, err));
    return KGEN_OK;
}

static kgen_status add_model(options *o, const char *path, const kgen_target *target,
                             kgen_error *err) {
    const kgen__archs archs = {.list = {target}, .count = 1};
    kgen_plan plan;
    kgen_error why;
    KGEN_TRY(kgen__plan_load(&plan, path, &o->plan, &archs, err));
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < plan.count && status == KGEN_OK; i++) {
        const kgen_plan_item *item = &plan.items[i];
        if (kgen_spec_validate(&item->spec, target, &why) != KGEN_OK)
            fprintf(stderr, "kgen: note: %s @%s: left out: %s\n", item->note, target->name,
                    why.text);
        else
            status = add_spec(o, &item->spec, target, item->kv_heads, err);
    }
    kgen_plan_free(&plan);
    return status;
}

static kgen_status add_manifest(options *o, const char *path, const kgen_target *target,
                                kgen_error *err) {
    const kgen__archs archs = {{target}, 1};
    kgen__jobs jobs = {0};
    kgen_status status = kgen__jobs_add_manifest(&jobs, path, &archs, err);
    for (size_t i = 0; i < jobs.count && status == KGEN_OK; i++)
        if (jobs.list[i].target == target) status = add_spec(o, &jobs.list[i].spec, target, 0, err);
    kgen__jobs_free(&jobs);
    return status;
}

/* A captured launch is its own problem. */
static kgen_status add_capture(options *o, const char *path, const kgen_target *target,
                               kgen_error *err) {
    kgen_capture *capture;
    kgen_spec spec;
    kgen_problem problem;
    if (o->capture_count == CAPTURES_MAX)
        return kgen_fail(err, KGEN_E_ARG, "--replay: at most %d files", CAPTURES_MAX);
    KGEN_TRY(kgen_capture_load(&capture, path, err));
    o->captures[o->capture_count++] = capture;
    kgen_capture_spec(&spec, capture, target, -1);
    KGEN_TRY(kgen_spec_validate(&spec, target, err));
    kgen__workload_problem(&problem, capture);
    KGEN_TRY(add_job(o, &spec, &problem, problem.heads, err));
    o->jobs[o->set.count - 1].capture = capture;
    return KGEN_OK;
}

/* A config.json is an object; what is no file is a spec line. */
static int is_config(const char *path) {
    FILE *file = fopen(path, "r");
    int c = file ? fgetc(file) : EOF;
    while (c != EOF && isspace(c)) c = fgetc(file);
    if (file) fclose(file);
    return c == '{';
}

static kgen_status add_argument(options *o, const char *text, const kgen_target *target,
                                kgen_error *err) {
    struct stat info;
    kgen_spec spec;
    if (o->replay) return add_capture(o, text, target, err);
    if (stat(text, &info) == 0)
        return S_ISDIR(info.st_mode) || is_config(text) ? add_model(o, text, target, err)
                                                        : add_manifest(o, text, target, err);
    if (!strchr(text, ':'))
        return kgen_fail(err, KGEN_E_IO, "%.200s: no such file, and no spec line", text);
    KGEN_TRY(kgen_spec_parse(&spec, text, err));
    return add_spec(o, &spec, target, 0, err);
}

static kgen_status collect(options *o, char **arguments, size_t count, const kgen_target *target,
                           kgen_error *err) {
    o->set.count = 0;
    for (size_t i = 0; i < count; i++) KGEN_TRY(add_argument(o, arguments[i], target, err));
    if (o->set.count) return KGEN_OK;
    return kgen_fail(err, KGEN_E_UNSUPPORTED, "nothing to tune for %s", target->name);
}

/* ---- progress --------------------------------------------------------------------- */

typedef struct screen {
    int terminal, quiet;
    double drawn;
    size_t done;
} screen;

static void clear_bar(const screen *s) {
    if (s->terminal) fputs("\r\033[K", stderr);
}

static void say(const char *text, void *user) {
    kgen_error err;
    clear_bar(user);
    kgen_fail(&err, KGEN_OK, "%s", text);
    fputs("kgen: note: ", stderr);
    for (const unsigned char *c = (const unsigned char *)err.text; *c; c++)
        fputc(*c >= ' ' && *c != 127 ? *c : '?', stderr);
    fputc('\n', stderr);
}

static void problem_text(char *out, size_t size, const kgen_problem *p) {
    size_t used = (size_t)snprintf(out, size, "batch=%d", p->batch);
    if (p->context) used += (size_t)snprintf(out + used, size - used, ",context=%d", p->context);
    if (p->heads) snprintf(out + used, size - used, ",heads=%d", p->heads);
}

/* Of the budget, or of the time that the jobs took until now. */
static double seconds_left(const kgen__tuner_progress *p) {
    double by_jobs = p->done ? p->seconds / (double)p->done * (double)(p->jobs - p->done) : -1;
    if (p->left >= 0 && (by_jobs < 0 || by_jobs > p->left)) return p->left;
    return by_jobs;
}

static void draw_bar(const kgen__tuner_progress *p) {
    char bar[BAR_WIDTH + 1], problem[80];
    size_t filled = p->jobs ? p->done * BAR_WIDTH / p->jobs : BAR_WIDTH;
    for (size_t i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    problem_text(problem, sizeof problem, &p->problem);
    fprintf(stderr, "[%s] %zu/%zu  %s: %d verified, %d dropped of %d, %d samples  %s  %.0f s", bar,
            p->done, p->jobs, p->stage, p->tried, p->dropped, p->candidates, p->samples,
            p->spec ? problem : "", p->seconds);
    if (seconds_left(p) >= 0 && p->done < p->jobs)
        fprintf(stderr, ", about %.0f s left", seconds_left(p));
    fflush(stderr);
}

static void draw_line(const kgen__tuner_progress *p) {
    char problem[80];
    if (!p->spec) return;
    problem_text(problem, sizeof problem, &p->problem);
    fprintf(stderr, "[%zu/%zu] %s %s: %d verified, %d dropped of %d, %d samples\n", p->done,
            p->jobs, p->spec, problem, p->tried, p->dropped, p->candidates, p->samples);
}

static void on_progress(const kgen__tuner_progress *p, void *user) {
    screen *s = user;
    double now = kgen__clock();
    if (s->quiet) return;
    if (!s->terminal) {
        if (p->done == s->done && now - s->drawn < LINE_S) return;
        draw_line(p);
        s->drawn = now;
    } else if (now - s->drawn > REDRAW_S || p->done != s->done) {
        clear_bar(s);
        if (p->done < p->jobs) draw_bar(p);
        s->drawn = now;
    }
    s->done = p->done;
}

/* ---- reports ------------------------------------------------------------------------ */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void print_problem(kgen__table *table, const json_t *result) {
    const kgen_problem problem = {(int32_t)number_of(result, "batch"),
                                  (int32_t)number_of(result, "context"),
                                  (int32_t)number_of(result, "heads")};
    char text[80];
    problem_text(text, sizeof text, &problem);
    kgen__table_cell(table, "%s", text);
}

static void print_result(kgen__table *table, const json_t *result) {
    double us = number_of(result, "us"), base = number_of(result, "default_us");
    kgen__table_cell(table, "%s", text_of(result, "spec"));
    print_problem(table, result);
    kgen__table_cell(table, "%s%s", text_of(result, "outcome"),
                     json_is_false(json_object_get(result, "finished")) && us > 0 ? ", cut short"
                                                                                  : "");
    kgen__table_cell(table, us > 0 ? "%.2f" : "-", us);
    kgen__table_cell(table, base > 0 ? "%.2f" : "-", base);
    kgen__table_cell(table, us > 0 ? "%.3f" : "-", us > 0 ? base / us : 0);
    kgen__table_cell(table, "%.0f/%.0f", number_of(result, "tried"),
                     number_of(result, "candidates"));
    kgen__table_cell(table, "%s",
                     strcmp(text_of(result, "outcome"), "failed") == 0 ? text_of(result, "text")
                                                                       : text_of(result, "keys"));
}

static void add_dropped(json_t *sums, const json_t *result) {
    const char *reason;
    json_t *count;
    json_object_foreach(json_object_get(result, "dropped"), reason, count)
        json_object_set_new(sums, reason,
                            json_integer(json_integer_value(json_object_get(sums, reason)) +
                                         json_integer_value(count)));
}

static void print_counts(const char *title, const json_t *counts) {
    const char *reason, *separator = ": ";
    json_t *count;
    if (!json_object_size(counts)) return;
    fputs(title, stdout);
    json_object_foreach((json_t *)counts, reason, count) {
        printf("%s%" JSON_INTEGER_FORMAT " %s", separator, json_integer_value(count), reason);
        separator = ", ";
    }
    putchar('\n');
}

static void print_report(const json_t *report) {
    static const char *const heading[] = {"SPEC",    "PROBLEM", "OUTCOME", "US",
                                          "DEFAULT", "GAIN",    "TRIED",   "CHOICE"};
    json_t *sums = json_object(), *results = json_object_get(report, "results");
    kgen__table table;
    kgen__table_init(&table, "lllrrrrl", heading);
    for (size_t i = 0; i < json_array_size(results); i++) {
        print_result(&table, json_array_get(results, i));
        add_dropped(sums, json_array_get(results, i));
    }
    kgen__table_print(&table, stdout);
    kgen__table_free(&table);
    print_counts("dropped", sums);
    json_decref(sums);
}

/* One line; the exit code is that of what failed. */
static int conclude(const json_t *report) {
    static const char *const words[] = {"tuned", "default", "unfinished", "failed"};
    json_t *results = json_object_get(report, "results");
    size_t counts[4] = {0};
    for (size_t i = 0; i < json_array_size(results); i++)
        for (size_t w = 0; w < 4; w++)
            counts[w] += strcmp(text_of(json_array_get(results, i), "outcome"), words[w]) == 0;
    fprintf(stderr,
            "%s: %zu tuned, %zu best as they are, %zu unfinished, %zu failed in %.1f s, "
            "seed %.0f; rows: %s\n",
            text_of(report, "device"), counts[0], counts[1], counts[2], counts[3],
            number_of(report, "seconds"), number_of(report, "seed"), text_of(report, "out"));
    return counts[3] ? kgen_status_exit_code(KGEN_E_DEVICE) : 0;
}

static void print_list(const json_t *report) {
    json_t *jobs = json_object_get(report, "jobs");
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i), *list = json_object_get(job, "candidates");
        char problem[80];
        const kgen_problem p = {(int32_t)number_of(job, "batch"),
                                (int32_t)number_of(job, "context"),
                                (int32_t)number_of(job, "heads")};
        problem_text(problem, sizeof problem, &p);
        printf("%s @%s %s: %zu candidates of %.0f combinations\n", text_of(job, "spec"),
               text_of(report, "arch"), problem, json_array_size(list),
               number_of(job, "considered"));
        print_counts("  pruned", json_object_get(job, "pruned"));
        for (size_t c = 0; c < json_array_size(list); c++)
            printf("  %s%s\n", json_string_value(json_array_get(list, c)), c ? "" : "  (default)");
    }
}

static void print_simulation(const json_t *report) {
    static const char *const heading[] = {"SPEC",  "PROBLEM",   "SEARCH",        "GAP",
                                          "WORST", "WITHIN 3%", "SAMPLES' TIME", "ALL TIME"};
    json_t *results = json_object_get(report, "results");
    kgen__table table;
    kgen__table_init(&table, "lllrrrrr", heading);
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i);
        json_t *strategies = json_object_get(result, "strategies");
        for (size_t s = 0; s < json_array_size(strategies); s++) {
            const json_t *one = json_array_get(strategies, s);
            kgen__table_cell(&table, "%s", text_of(result, "spec"));
            print_problem(&table, result);
            kgen__table_cell(&table, "%s", text_of(one, "search"));
            kgen__table_cell(&table, "%.2f %%", 100 * number_of(one, "gap"));
            kgen__table_cell(&table, "%.2f %%", 100 * number_of(one, "worst_gap"));
            kgen__table_cell(&table, "%.0f %%", 100 * number_of(one, "within_3_percent"));
            kgen__table_cell(&table, "%.1f %%", 100 * number_of(one, "sample_time"));
            kgen__table_cell(&table, "%.1f %%", 100 * number_of(one, "all_time"));
        }
    }
    kgen__table_print(&table, stdout);
    kgen__table_free(&table);
    printf("\n%.0f runs each; GAP is from the fastest one found to the best of all candidates, "
           "times are parts of an exhaustive search's\n",
           number_of(report, "repeats"));
}

/* ---- runs --------------------------------------------------------------------------- */

static int give(json_t *report, const options *o, void (*print)(const json_t *report)) {
    if (o->json) return kgen__json_print(report);
    print(report);
    json_decref(report);
    return 0;
}

static int run_simulation(const options *o) {
    kgen_error err;
    json_t *report;
    if (kgen__tuner_simulate(&report, o->simulate, &o->set.search, REPEATS, &err) != KGEN_OK)
        return kgen__cli_fail(&err);
    return give(report, o, print_simulation);
}

static int finish(json_t *report, const options *o) {
    int code = conclude(report), printed = give(report, o, print_report);
    return code ? code : printed;
}

/* A capture has a journal of its own: its times are not those of a made load. */
static kgen_status files(options *o, const char *capture, kgen_error *err) {
    KGEN_TRY(kgen_tuning_user_path(o->out, sizeof o->out, o->set.out, err));
    o->set.out = o->out;
    if (!o->set.journal) {
        snprintf(o->journal, sizeof o->journal, "%s.journal", capture ? capture : o->out);
        o->set.journal = o->journal;
    }
    return KGEN_OK;
}

/* One architecture after the other. */
static int run_predicted(options *o, char **arguments, size_t count) {
    kgen_error err;
    if (files(o, NULL, &err) != KGEN_OK) return kgen__cli_fail(&err);
    int code = 0;
    for (size_t i = 0; i < o->archs.count && !code; i++) {
        const kgen_target *target = o->archs.list[i];
        json_t *report;
        kgen_status status = collect(o, arguments, count, target, &err);
        if (status == KGEN_OK) status = kgen__tuner_predict(&report, &o->set, target, &err);
        code = status == KGEN_OK ? finish(report, o) : kgen__cli_fail(&err);
    }
    return code;
}

static int run_list(options *o, char **arguments, size_t count) {
    kgen_error err;
    kgen__tuner_device device;
    json_t *report;
    int code = 0;
    kgen_status status = KGEN_OK;
    if (!o->archs.count) {
        status = kgen__tuner_probe(&device, o->set.device, &err);
        if (status == KGEN_OK) o->archs = (kgen__archs){{device.target}, 1};
    }
    for (size_t i = 0; i < o->archs.count && status == KGEN_OK && !code; i++) {
        status = collect(o, arguments, count, o->archs.list[i], &err);
        if (status == KGEN_OK) status = kgen__tuner_list(&report, &o->set, o->archs.list[i], &err);
        if (status == KGEN_OK) code = give(report, o, print_list);
    }
    return status == KGEN_OK ? code : kgen__cli_fail(&err);
}

static int run_device(options *o, char **arguments, size_t count) {
    kgen_error err;
    kgen__tuner_device device;
    json_t *report;
    kgen_status status = kgen__tuner_probe(&device, o->set.device, &err);
    if (status == KGEN_OK) status = collect(o, arguments, count, device.target, &err);
    if (status == KGEN_OK) status = files(o, o->replay ? arguments[0] : NULL, &err);
    if (status == KGEN_OK) status = kgen__tuner_run(&report, &o->set, &device, &err);
    return status == KGEN_OK ? finish(report, o) : kgen__cli_fail(&err);
}

static void add_options(kgen__syntax *s, options *o) {
    kgen__tuner_settings *set = &o->set;
    const kgen__option rows[] = {
        {"problem", 0, "batch=N,...", read_problems, &o->problems, 0, 0,
         "batch=, context=, heads=; again for more (some of each family)"},
        {"device", 'd', "NAME", kgen__read_text, &set->device, 0, 0,
         "hip:0, cuda:0, cpu:cdna3 ... (the first there is)"},
        {"budget", 0, "TIME", read_seconds, &set->budget, 0, 0,
         "for all of it: 90s, 10m, 2h (no limit)"},
        {"search", 0, "NAME", read_strategy, &set->search.strategy, 0, 0,
         "halving, random or exhaustive (halving)"},
        {"seed", 0, "N", kgen__read_u64, &set->search.seed, 0, 0,
         "of the search (fresh, and printed)"},
        {"samples", 0, "N", kgen__read_int, &set->search.samples, KGEN__SAMPLES_LEAST, 10000,
         "of a candidate, about as many as needed (30)"},
        {"out", 'o', "FILE", kgen__read_text, &set->out, 0, 0,
         "rows go there (KGEN_TUNING, else the user's file)"},
        {"journal", 0, "FILE", kgen__read_text, &set->journal, 0, 0,
         "what was measured; goes on from there (beside the rows)"},
        {"timeout", 0, "TIME", read_seconds, &set->timeout, 0, 0,
         "a candidate that is silent for so long is left out (30s)"},
        {"predict", 0, NULL, NULL, &o->predict, 0, 0,
         "no device: compile, and rank by predicted times"},
        {"arch", 0, "A,B", kgen__read_archs, &o->archs, KGEN__ARCHS_DEFAULT, 0,
         "of --dry-run (the device's) and --predict"},
        {"keep-slow", 0, NULL, NULL, &set->keep_slow, 0, 0,
         "time candidates that are predicted to be slow, too"},
        {"simulate", 0, "FILE", kgen__read_text, &o->simulate, 0, 0,
         "compare the strategies on the times of a journal"},
        {"replay", 0, NULL, NULL, &o->replay, 0, 0,
         "the arguments are captured launches: their tensors are timed on"},
        {"dry-run", 'n', NULL, NULL, &o->dry_run, 0, 0, "print the candidates"},
        {"jobs", 'j', "N", kgen__read_int, &set->workers, 0, 256,
         "parallel compilers (0: what cores and memory allow)"},
        {"cache-dir", 0, "DIR", kgen__read_text, &set->cache_dir, 0, 0,
         "cache folder (KGEN_CACHE_DIR, else ~/.cache/kgen)"},
        {"quiet", 'q', NULL, NULL, &o->quiet, 0, 0, "no progress"},
        {"json", 0, NULL, NULL, &o->json, 0, 0, "print JSON"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) kgen__syntax_add(s, rows[i]);
    kgen__syntax_add_plan(s, &o->plan);
}

/* A usage error, or NULL. */
static const char *contradiction(const options *o, int arguments) {
    if (o->simulate) return arguments ? "--simulate: takes no kernels" : NULL;
    if (!arguments) return "nothing to tune: give a model, a spec or a manifest";
    if (o->predict && o->set.device) return "--predict: there is no --device";
    if (o->archs.count && !o->predict && !o->dry_run)
        return "--arch: only with --predict or --dry-run; else the device says";
    if (o->replay && (o->predict || o->problems.count))
        return "--replay: a captured launch is its own --problem, and needs a device";
    if (o->set.timeout <= 0) return "--timeout: more than 0 expected";
    return NULL;
}

int kgen__command_tune(int argc, char **argv) {
    screen shown = {.terminal = isatty(STDERR_FILENO), .drawn = kgen__clock()};
    options o = {.set = {.budget = -1,
                         .timeout = TIMEOUT_S,
                         .progress = on_progress,
                         .say = say,
                         .user = &shown}};
    int first, code;
    kgen__syntax s = {.command = "tune",
                      .arguments = "MODEL|SPEC|MANIFEST|CAPTURE ...",
                      .about = "Searches the fastest tuning keys of kernels on a device and puts "
                               "them into the tuning\ndatabase. MODEL is a config.json, or the "
                               "folder that holds one.",
                      .most = -1};
    add_options(&s, &o);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    const char *wrong = contradiction(&o, argc - first);
    if (wrong) return kgen__cli_usage("tune", "%s", wrong);
    if (!o.set.search.seed) o.set.search.seed = kgen__seed_fresh();
    shown.quiet = o.quiet || o.json;
    if (o.predict) kgen__archs_default(&o.archs);
    if (o.simulate)
        code = run_simulation(&o);
    else if (o.dry_run)
        code = run_list(&o, argv + first, (size_t)(argc - first));
    else if (o.predict)
        code = run_predicted(&o, argv + first, (size_t)(argc - first));
    else
        code = run_device(&o, argv + first, (size_t)(argc - first));
    for (size_t i = 0; i < o.capture_count; i++) kgen_capture_free(o.captures[i]);
    free(o.jobs);
    return code;
}

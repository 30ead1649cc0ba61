/* kgen check: run kernels on a device against the double-precision reference. */
#include <stdlib.h>
#include <string.h>

#include <kgen/params.h>

#include "check/check.h"
#include "cli.h"
#include "tuner/space.h"

enum { CAPTURE_REPLAYS = 4 };

typedef struct settings {
    const char *device, *cases, *model, *cache_dir, *family;
    kgen_plan_options plan;
    uint64_t seed;
    int samples, capture, replays, quiet, json, workers, replay, keep_tuning;
} settings;

typedef struct case_list {
    kgen__case *list;
    size_t count;
} case_list;

typedef struct totals {
    size_t passed, failed;
    double worst_ratio, worst_abs;
    kgen_status first_failure;
    json_t *rows; /* NULL: text */
} totals;

/* ---- collecting ---------------------------------------------------------- */

static kgen_status append(case_list *cases, const kgen__case *from, size_t count, kgen_error *err) {
    kgen__case *list = realloc(cases->list, (cases->count + count) * sizeof *list);
    if (!list) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu cases", count);
    memcpy(list + cases->count, from, count * sizeof *list);
    cases->list = list;
    cases->count += count;
    return KGEN_OK;
}

static kgen_status add_file(case_list *cases, const char *path, kgen_error *err) {
    kgen__case *loaded;
    size_t count;
    KGEN_TRY(kgen__cases_load(&loaded, &count, path, err));
    kgen_status status = count ? append(cases, loaded, count, err)
                               : kgen_fail(err, KGEN_E_ARG, "%s: no case in it", path);
    free(loaded);
    return status;
}

static kgen_status add_case(case_list *cases, const char *line, kgen_error *err) {
    kgen__case *one = malloc(sizeof *one);
    if (!one) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a case");
    kgen_status status = kgen__case_read(one, line, err);
    if (status == KGEN_OK) status = append(cases, one, 1, err);
    free(one);
    return status;
}

/* A spec alone gets run-time shapes of its own. */
static kgen_status add_spec(case_list *cases, const kgen_spec *spec, int heads, kgen_error *err) {
    kgen__case *one = malloc(sizeof *one);
    if (!one) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a case");
    kgen_status status = kgen__case_default(one, spec, heads, err);
    if (status == KGEN_OK) status = append(cases, one, 1, err);
    free(one);
    return status;
}

static kgen_status add_model(case_list *cases, const settings *set, const kgen_target *target,
                             kgen_error *err) {
    const kgen__archs archs = {.list = {target}, .count = 1};
    kgen_plan plan;
    kgen_status status = kgen__plan_load(&plan, set->model, &set->plan, &archs, err);
    if (status != KGEN_OK) return status;
    kgen__plan_note_missing(&plan);
    for (size_t i = 0; i < plan.count && status == KGEN_OK; i++) {
        const kgen_spec *spec = &plan.items[i].spec;
        status = kgen_spec_validate(spec, target, err);
        if (status == KGEN_OK) status = add_spec(cases, spec, plan.items[i].kv_heads, err);
    }
    kgen_plan_free(&plan);
    return status;
}

/* Of the family that was asked for, else of all in turn. */
static kgen_status add_samples(case_list *cases, const settings *set, const kgen_target *target,
                               kgen_error *err) {
    kgen__rng rng;
    kgen_family_id family = (kgen_family_id)0;
    if (set->family) KGEN_TRY(kgen_family_find(&family, set->family, err));
    kgen__case *one = malloc(sizeof *one);
    kgen_status status = KGEN_OK;
    if (!one) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a case");
    kgen__rng_seed(&rng, set->seed, 0);
    for (int i = 0; i < set->samples && status == KGEN_OK; i++) {
        if (!set->family) family = (kgen_family_id)(i % KGEN_FAMILY_COUNT);
        status = kgen__case_random(one, family, &rng, target, 0, err);
        if (status == KGEN_OK) status = append(cases, one, 1, err);
    }
    free(one);
    return status;
}

static void take_tuning(kgen_spec *spec, const kgen_spec *from) {
    for (int i = 0; i < kgen_param_count(spec->family); i++) {
        const kgen_param *param = kgen_param_at(spec->family, i);
        if (param->role == KGEN_ROLE_TUNE) kgen_param_set(spec, param, kgen_param_get(from, param));
    }
}

/* What a size of problem has chosen. */
static kgen_status take_variant(kgen_spec *spec, const kgen_target *target, kgen__rng *rng,
                                kgen_error *err) {
    kgen_spec *variants = NULL;
    size_t count = 0;
    KGEN_TRY(kgen_tuning_variants(&variants, &count, NULL, spec, target, err));
    if (count > 1) take_tuning(spec, &variants[kgen__rng_next(rng) % count]);
    free(variants);
    return KGEN_OK;
}

static int32_t draw_value(const kgen_domain *domain, kgen__rng *rng) {
    int64_t steps = domain->step ? (domain->max - domain->min) / domain->step + 1 : 0;
    int64_t place = kgen__rng_range(rng, 0, domain->list_count + steps - 1);
    if (place < domain->list_count) return domain->list[place];
    return domain->min + (int32_t)(place - domain->list_count) * domain->step;
}

/* What someone may ask for. */
static void take_any(kgen_spec *spec, const kgen_target *target, kgen__rng *rng) {
    enum { TRIES = 400 };
    for (int n = 0; n < TRIES; n++) {
        kgen_spec drawn = *spec, resolved;
        kgen__prune why;
        for (int i = 0; i < kgen_param_count(spec->family); i++) {
            const kgen_param *param = kgen_param_at(spec->family, i);
            int open = kgen__space_searches(param) && !kgen_param_get(spec, param);
            if (open && kgen__rng_next(rng) & 1)
                kgen_param_set(&drawn, param, draw_value(param->domain, rng));
        }
        if (!kgen__space_allows(&resolved, &why, &drawn, target)) continue;
        *spec = drawn;
        return;
    }
}

/* Who prepares for a size of problem has another kernel, which must be as right at any size: half
 * of the cases have one of these. And so must one whose keys are set by hand: of random specs a
 * third has such. On a GPU the gate may refuse those. */
static kgen_status choose_kernel(kgen__case *c, int is_random, const kgen_target *target,
                                 kgen_error *err) {
    enum { STREAM = 2000 };
    kgen__rng rng;
    kgen__rng_seed(&rng, c->seed, STREAM);
    uint64_t draw = kgen__rng_next(&rng);
    if (kgen_spec_validate(&c->spec, target, NULL) != KGEN_OK) return KGEN_OK; /* run_case says */
    if (is_random && target->vendor == KGEN_VENDOR_CPU && draw / 2 % 3 == 0)
        take_any(&c->spec, target, &rng);
    else if (draw % 2 == 0)
        return take_variant(&c->spec, target, &rng, err);
    return KGEN_OK;
}

static kgen_status collect(case_list *cases, const settings *set, const kgen_target *target,
                           char **lines, size_t count, kgen_error *err) {
    for (size_t i = 0; i < count; i++) KGEN_TRY(add_case(cases, lines[i], err));
    if (set->model) KGEN_TRY(add_model(cases, set, target, err));
    if (set->cases) KGEN_TRY(add_file(cases, set->cases, err));
    size_t given = cases->count;
    if (set->samples) KGEN_TRY(add_samples(cases, set, target, err));
    for (size_t i = 0; i < cases->count; i++) {
        if (!cases->list[i].seed) cases->list[i].seed = set->seed + i;
        KGEN_TRY(choose_kernel(&cases->list[i], i >= given, target, err));
    }
    return KGEN_OK;
}

/* ---- running ------------------------------------------------------------- */

/* Builds every kernel in parallel first; run_case reports what failed. */
static kgen_status build_all(kgen_context *ctx, const case_list *cases, const settings *set,
                             kgen_error *err) {
    kgen__jobs jobs = {0};
    kgen__build_counts counts;
    const kgen__build_settings how = {
        .quiet = set->quiet || set->json, .hide_failures = 1, .workers = set->workers};
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < cases->count && status == KGEN_OK; i++)
        status = kgen__jobs_add(&jobs, &cases->list[i].spec, kgen_context_target(ctx), err);
    kgen_job_result *results = calloc(jobs.count ? jobs.count : 1, sizeof *results);
    if (status == KGEN_OK && !results)
        status = kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", jobs.count);
    if (status == KGEN_OK && jobs.count > 1)
        kgen__build_jobs(kgen_context_cache(ctx), &jobs, &how, results, &counts, NULL);
    if (results) kgen__results_free(results, jobs.count);
    kgen__jobs_free(&jobs);
    return status;
}

static void print_passed(const kgen__check_result *r, const char *line) {
    printf("ok    error %.3g, %.2f of the tolerance  %s\n", r->max_abs, r->max_ratio, line);
}

static void add_row(totals *t, const kgen__case *c, const kgen__check_result *r, kgen_status status,
                    const char *line, const char *message) {
    if (!t->rows) return;
    json_array_append_new(t->rows, json_pack("{s:s, s:I, s:b, s:s, s:f, s:f, s:f, s:s}", "spec",
                                             line, "seed", (json_int_t)c->seed, "passed",
                                             status == KGEN_OK, "status", kgen_status_name(status),
                                             "max_abs", r->max_abs, "max_ratio", r->max_ratio,
                                             "rms_ratio", r->rms_ratio, "message", message));
}

/* A mismatch names its command by itself. */
static void print_command(const kgen__case *c, const settings *set) {
    char *line = malloc(KGEN__CASE_LINE_MAX);
    if (!line) return;
    kgen__case seedless = *c;
    seedless.seed = 0;
    kgen__case_print(line, &seedless);
    fprintf(stderr, "  reproduce: kgen check '%s' --seed %llu%s%s%s\n", line,
            (unsigned long long)c->seed, set->device ? " --device " : "",
            set->device ? set->device : "", set->replays || set->capture ? " --capture" : "");
    free(line);
}

static void run_case(kgen_context *ctx, const kgen__case *c, const settings *set, totals *t) {
    const kgen__check_options options = {.replays = set->replays   ? set->replays
                                                    : set->capture ? CAPTURE_REPLAYS
                                                                   : 0};
    kgen__check_result result;
    kgen_error err;
    char line[KGEN_SPEC_LINE_MAX];
    err.text[0] = 0;
    memset(&result, 0, sizeof result);
    kgen_spec_print(line, &c->spec);
    kgen_status status = kgen__check_run(&result, ctx, c, &options, &err);
    add_row(t, c, &result, status, line, status == KGEN_OK ? "" : err.text);
    if (status == KGEN_OK) {
        t->passed++;
        if (result.max_ratio > t->worst_ratio) t->worst_ratio = result.max_ratio;
        if (result.max_abs > t->worst_abs) t->worst_abs = result.max_abs;
        if (!set->quiet && !t->rows) print_passed(&result, line);
        return;
    }
    if (!t->failed++) t->first_failure = status;
    kgen__cli_fail(&err);
    if (status != KGEN_E_MISMATCH) print_command(c, set);
}

static int finish(const totals *t, const settings *set, const char *device) {
    int code = t->failed ? kgen_status_exit_code(t->first_failure) : 0;
    if (t->rows) {
        int printed = kgen__json_print(json_pack(
            "{s:s, s:I, s:I, s:I, s:O}", "device", device, "seed", (json_int_t)set->seed, "passed",
            (json_int_t)t->passed, "failed", (json_int_t)t->failed, "cases", t->rows));
        return code ? code : printed;
    }
    printf("%zu passed, %zu failed on %s, seed %llu; largest error %.3g, %.2f of the tolerance\n",
           t->passed, t->failed, device, (unsigned long long)set->seed, t->worst_abs,
           t->worst_ratio);
    return code;
}

static int run_check(const settings *set, char **lines, size_t count) {
    kgen_error err;
    kgen_context *ctx = NULL;
    case_list cases = {0};
    const kgen_open_options options = {.size = sizeof options,
                                       .device = set->device,
                                       .cache_dir = set->cache_dir,
                                       .log = kgen__cli_log};
    kgen_status status = kgen_open(&ctx, &options, &err);
    if (status == KGEN_OK)
        status = collect(&cases, set, kgen_context_target(ctx), lines, count, &err);
    if (status == KGEN_OK) status = build_all(ctx, &cases, set, &err);
    int code = 0;
    if (status == KGEN_OK) {
        totals t = {.rows = set->json ? json_array() : NULL};
        for (size_t i = 0; i < cases.count; i++) run_case(ctx, &cases.list[i], set, &t);
        code = finish(&t, set, kgen_context_device(ctx));
        json_decref(t.rows);
    } else {
        code = kgen__cli_fail(&err);
    }
    free(cases.list);
    kgen_close(ctx);
    return code;
}

static int run_replay(const settings *set, char **files, size_t count) {
    const kgen__replay_settings how = {.device = set->device,
                                       .cache_dir = set->cache_dir,
                                       .keep_tuning = set->keep_tuning,
                                       .quiet = set->quiet,
                                       .json = set->json};
    if (set->samples || set->cases || set->model || set->seed || set->capture || set->replays)
        return kgen__cli_usage("check", "--replay: takes files, and no option that makes cases");
    if (!count) return kgen__cli_usage("check", "--replay: no file given");
    return kgen__replay_files(&how, files, count);
}

int kgen__command_check(int argc, char **argv) {
    settings set = {0};
    int first, code;
    kgen__syntax s = {.command = "check",
                      .arguments = "[SPEC | CASE ...]\n       kgen check --replay FILE ...",
                      .about = "Runs kernels on random data and compares them with a "
                               "double-precision reference.\nA CASE is a spec line with run-time "
                               "shapes: 'SPEC | seqs=2 lens=300,17 hkv=2'.",
                      .most = -1};
    kgen__syntax_add(&s, (kgen__option){"device", 'd', "NAME", kgen__read_text, &set.device, 0, 0,
                                        "hip:0, cuda:0, cpu:cdna3 ... (the first there is)"});
    kgen__syntax_add(&s, (kgen__option){"seed", 0, "N", kgen__read_u64, &set.seed, 0, 0,
                                        "of the random data (fresh, and printed)"});
    kgen__syntax_add(&s, (kgen__option){"samples", 'n', "N", kgen__read_int, &set.samples, 1,
                                        100000, "also this many random specs over the whole grid"});
    kgen__syntax_add(&s, (kgen__option){"family", 0, "NAME", kgen__read_text, &set.family, 0, 0,
                                        "of the random specs (all in turn)"});
    kgen__syntax_add(&s, (kgen__option){"cases", 0, "FILE", kgen__read_text, &set.cases, 0, 0,
                                        "also the cases of a file, one a line"});
    kgen__syntax_add(&s, (kgen__option){"model", 0, "FILE", kgen__read_text, &set.model, 0, 0,
                                        "also the kernels of a model, planned as below"});
    kgen__syntax_add_plan(&s, &set.plan);
    kgen__syntax_add(&s, (kgen__option){"capture", 0, NULL, NULL, &set.capture, 0, 0,
                                        "capture a graph, replay it with changing lengths"});
    kgen__syntax_add(&s, (kgen__option){"replays", 0, "N", kgen__read_int, &set.replays, 1, 1000000,
                                        "the same, with this many replays (4)"});
    kgen__syntax_add(&s, (kgen__option){"replay", 0, NULL, NULL, &set.replay, 0, 0,
                                        "the arguments are captured launches: run them again"});
    kgen__syntax_add(&s, (kgen__option){"keep-tuning", 0, NULL, NULL, &set.keep_tuning, 0, 0,
                                        "of captures, also on another architecture"});
    kgen__syntax_add(&s, (kgen__option){"jobs", 'j', "N", kgen__read_int, &set.workers, 0, 256,
                                        "parallel compilers (0: what cores and memory allow)"});
    kgen__syntax_add_cache_dir(&s, &set.cache_dir);
    kgen__syntax_add(&s, (kgen__option){"quiet", 'q', NULL, NULL, &set.quiet, 0, 0,
                                        "only failures and the summary"});
    kgen__syntax_add_json(&s, &set.json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (set.replay) return run_replay(&set, argv + first, (size_t)(argc - first));
    if (set.keep_tuning) return kgen__cli_usage("check", "--keep-tuning: only with --replay");
    if (first == argc && !set.samples && !set.cases && !set.model)
        return kgen__cli_usage("check", "nothing to check: give a spec, --model, --cases or "
                                        "--samples");
    if (set.family && !set.samples)
        return kgen__cli_usage("check", "--family: only with --samples");
    if (!set.seed) set.seed = kgen__seed_fresh();
    return run_check(&set, argv + first, (size_t)(argc - first));
}

/* kgen report: what each kernel costs, in registers or, with --predict, in time. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "predict/predict.h"

enum { PROBLEMS_MAX = 16 };

typedef struct problems {
    kgen_problem list[PROBLEMS_MAX];
    size_t count;
} problems;

/* What the command was asked. */
typedef struct request {
    kgen__archs archs;
    kgen__jobs jobs;
    problems problems;
    const char *cache_dir, *manifest, *object;
    int json, spills, predict, diff;
} request;

/* ---- resources ----------------------------------------------------------- */

static int print_report(const kgen_job_result *results, size_t count, int json) {
    kgen__table table;
    json_t *list = json ? json_array() : NULL;
    kgen__table_entry_heading(&table);
    for (size_t i = 0; i < count; i++) {
        if (!results[i].entry) continue;
        if (json)
            json_array_append_new(list, kgen__entry_json(results[i].entry));
        else
            kgen__table_entry(&table, results[i].entry);
    }
    if (!json) kgen__table_print(&table, stdout);
    kgen__table_free(&table);
    return json ? kgen__json_print(list) : 0;
}

/* ---- time ---------------------------------------------------------------- */

/* Without --problem: one sequence, and enough of them to fill a device. */
static const kgen_problem usual[] = {{1, 8192, 8}, {64, 8192, 8}};

static void problem_text(char *out, size_t size, const kgen_problem *p) {
    snprintf(out, size, "b%d", p->batch);
    if (p->context) snprintf(out + strlen(out), size - strlen(out), " c%d", p->context);
    if (p->heads) snprintf(out + strlen(out), size - strlen(out), " h%d", p->heads);
}

static double per_kib(const kgen__mix *mix) {
    return mix->load_bytes ? mix->instructions * 1024.0 / mix->load_bytes : 0;
}

static double wide_share(const kgen__mix *mix, const kgen_entry *entry) {
    double wide = 16.0 * mix->wide_loads * entry->resources.wave_size;
    return mix->load_bytes ? wide / mix->load_bytes : 0;
}

static void table_heading(kgen__table *table) {
    static const char *const names[] = {"ARCH",  "PROBLEM",  "US",      "BOUND", "OF BW", "KIB/CU",
                                        "NEEDS", "INST/KIB", "16 BYTE", "WAVES", "KERNEL"};
    kgen__table_init(table, "llrlrrrrrrl", names);
}

static void table_row(kgen__table *table, const kgen_entry *entry, const kgen_problem *problem,
                      const kgen__prediction *p) {
    char shape[64];
    problem_text(shape, sizeof shape, problem);
    kgen__table_cell(table, "%s", entry->target);
    kgen__table_cell(table, "%s", shape);
    kgen__table_cell(table, "%.1f", p->us);
    kgen__table_cell(table, "%s", p->bound);
    kgen__table_cell(table, "%.0f %%", 100 * p->bytes / p->us / p->achievable);
    kgen__table_cell(table, "%.1f",
                     (p->mean_in_flight > 0 ? p->mean_in_flight : p->in_flight_per_cu) / 1024);
    kgen__table_cell(table, "%.0f", p->in_flight_target / 1024);
    kgen__table_cell(table, "%.1f", per_kib(&p->mix));
    kgen__table_cell(table, "%.0f %%", 100 * wide_share(&p->mix, entry));
    kgen__table_number(table, p->waves_per_simd);
    kgen__table_cell(table, "%s", entry->symbol);
}

static json_t *mix_json(const kgen__mix *m) {
    return json_pack("{s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f}",
                     "loop", m->looped, "instructions", m->instructions, "valu", m->valu, "matrix",
                     m->matrix, "scalar", m->scalar, "lds", m->lds, "wait", m->wait, "loads",
                     m->loads, "load_bytes", m->load_bytes, "wide_loads", m->wide_loads, "stores",
                     m->stores, "store_bytes", m->store_bytes, "in_flight_bytes",
                     m->in_flight_bytes, "valu_cycles", m->valu_cycles, "matrix_cycles",
                     m->matrix_cycles);
}

static json_t *prediction_json(const kgen_entry *entry, const kgen_problem *problem,
                               const kgen__prediction *p) {
    json_t *shape = json_pack("{s:i, s:i, s:i}", "batch", problem->batch, "context",
                              problem->context, "heads", problem->heads);
    json_t *parts =
        json_pack("{s:f, s:f, s:f, s:f, s:f}", "memory", p->memory_us, "valu", p->valu_us, "matrix",
                  p->matrix_us, "turns", p->turns_us, "fixed", p->fixed_us);
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:f, s:o, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:o, "
        "s:s}",
        "spec", entry->spec, "arch", entry->target, "symbol", entry->symbol, "problem", shape, "us",
        p->us, "parts_us", parts, "bound", p->bound, "bytes", p->bytes, "of_bandwidth",
        p->bytes / p->us / p->achievable, "bandwidth_gb_s", p->bandwidth / 1000, "in_flight_per_cu",
        p->in_flight_per_cu, "mean_in_flight_per_cu", p->mean_in_flight, "in_flight_target",
        p->in_flight_target, "waves_per_simd", p->waves_per_simd, "workgroups", p->workgroups,
        "turn", mix_json(&p->mix), "assumptions", p->assumptions);
}

/* What is said below the table: each line once. */
typedef struct notes {
    char lines[64][1200];
    size_t count;
} notes;

static void note(notes *n, const char *line) {
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->lines[i], line) == 0) return;
    if (n->count < sizeof n->lines / sizeof n->lines[0])
        snprintf(n->lines[n->count++], sizeof n->lines[0], "%s", line);
}

typedef struct outlook {
    kgen__table table;
    json_t *json; /* NULL: the table */
    notes *notes;
    size_t rows;
    kgen_error first; /* of what was not predicted */
} outlook;

static void refuse(outlook *o, const kgen_entry *entry, const kgen_error *err) {
    char line[1200];
    snprintf(line, sizeof line, "not predicted: %s @%s: %s", entry->symbol, entry->target,
             err->text);
    note(o->notes, line);
    if (o->first.status == KGEN_OK) o->first = *err;
}

/* The listing is read once for all problems. */
static void predict(outlook *o, const kgen_entry *entry, const kgen_job *job,
                    const problems *list) {
    kgen_error err;
    kgen__mix mix;
    kgen__prediction p;
    if (kgen__predict_mix(&mix, entry, job->target, &err) != KGEN_OK) {
        refuse(o, entry, &err);
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (kgen__predict_estimate(&p, &mix, &entry->resources, &job->spec, job->target,
                                   &list->list[i], &err) != KGEN_OK) {
            refuse(o, entry, &err);
            continue;
        }
        if (o->json)
            json_array_append_new(o->json, prediction_json(entry, &list->list[i], &p));
        else
            table_row(&o->table, entry, &list->list[i], &p);
        if (!o->json) note(o->notes, p.assumptions);
        o->rows++;
    }
}

static int print_outlook(const request *r, const kgen_job_result *results) {
    outlook o = {.json = r->json ? json_array() : NULL, .notes = calloc(1, sizeof *o.notes)};
    kgen_error err;
    if (!o.notes) {
        json_decref(o.json);
        kgen_fail(&err, KGEN_E_NOMEM, "no memory for a report");
        return kgen__cli_fail(&err);
    }
    table_heading(&o.table);
    for (size_t i = 0; i < r->jobs.count; i++)
        if (results[i].entry) predict(&o, results[i].entry, &r->jobs.list[i], &r->problems);
    int code = 0;
    if (!o.rows && o.first.status != KGEN_OK)
        code = kgen__cli_fail(&o.first);
    else if (o.json)
        code = kgen__json_print(json_incref(o.json));
    else
        kgen__table_print(&o.table, stdout);
    for (size_t i = 0; o.rows && i < o.notes->count; i++)
        fprintf(o.json ? stderr : stdout, "%s%s\n", i || o.json ? "" : "\n", o.notes->lines[i]);
    json_decref(o.json);
    kgen__table_free(&o.table);
    free(o.notes);
    return code;
}

/* ---- objects of others ---------------------------------------------------- */

static void turn_heading(kgen__table *table) {
    static const char *const names[] = {"ARCH",      "INST",     "VALU",  "MATRIX",
                                        "LDS",       "LOADS",    "BYTES", "16 BYTE",
                                        "IN FLIGHT", "INST/KIB", "KERNEL"};
    kgen__table_init(table, "lrrrrrrrrrl", names);
}

static void turn_row(kgen__table *table, const kgen__mix *m, const kgen_entry *entry) {
    const int32_t counts[] = {m->instructions, m->valu, m->matrix, m->lds, m->loads, m->load_bytes};
    kgen__table_cell(table, "%s", entry->target);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        kgen__table_number(table, counts[i]);
    kgen__table_cell(table, "%.0f %%", 100 * wide_share(m, entry));
    kgen__table_number(table, m->in_flight_bytes);
    kgen__table_cell(table, "%.1f", per_kib(m));
    kgen__table_cell(table, "%s", entry->symbol);
}

/* A turn of the hot loop of kernels in a code object that kgen did not build. */
static int report_object(const request *r, char **symbols, int count) {
    const kgen_target *target = r->archs.list[0];
    kgen_entry entry = {.resources = {.wave_size = target->wave_size}};
    kgen__table table;
    kgen_error err;
    char *code;
    json_t *list = json_array();
    snprintf(entry.target, sizeof entry.target, "%s", target->name);
    turn_heading(&table);
    kgen_status status = kgen__input_read(&code, &entry.code_size, r->object, &err);
    entry.code = status == KGEN_OK ? (uint8_t *)code : NULL;
    for (int i = 0; i < count && status == KGEN_OK; i++) {
        kgen__mix mix;
        snprintf(entry.symbol, sizeof entry.symbol, "%s", symbols[i]);
        status = kgen__predict_mix(&mix, &entry, target, &err);
        if (status != KGEN_OK) break;
        turn_row(&table, &mix, &entry);
        json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "arch", entry.target, "symbol",
                                              entry.symbol, "turn", mix_json(&mix)));
    }
    int exit_code = status == KGEN_OK ? 0 : kgen__cli_fail(&err);
    if (status == KGEN_OK && r->json) exit_code = kgen__json_print(json_incref(list));
    if (status == KGEN_OK && !r->json) kgen__table_print(&table, stdout);
    kgen__table_free(&table);
    json_decref(list);
    free(entry.code);
    return exit_code;
}

/* ---- command ------------------------------------------------------------- */

static int report(kgen_cache *cache, const request *r) {
    kgen_error err;
    kgen__build_counts counts;
    const kgen__jobs *jobs = &r->jobs;
    const kgen__build_settings settings = {.quiet = 1, .allow_spills = r->spills};
    kgen_job_result *results = calloc(jobs->count, sizeof *results);
    if (!results) {
        kgen_fail(&err, KGEN_E_NOMEM, "no memory for %zu jobs", jobs->count);
        return kgen__cli_fail(&err);
    }
    kgen_status status = kgen__build_jobs(cache, jobs, &settings, results, &counts, &err);
    int code = kgen_status_exit_code(status);
    if (status != KGEN_OK && !counts.failed) code = kgen__cli_fail(&err);
    if (counts.failed < jobs->count && (status == KGEN_OK || counts.failed)) {
        int printed =
            r->predict ? print_outlook(r, results) : print_report(results, jobs->count, r->json);
        if (!code) code = printed;
    }
    kgen__results_free(results, jobs->count);
    return code;
}

static kgen_status read_problems(const kgen__option *option, const char *text, kgen_error *err) {
    problems *p = option->out;
    kgen__option one = *option;
    if (p->count == PROBLEMS_MAX)
        return kgen_fail(err, KGEN_E_ARG, "--%s: at most %d", option->name, PROBLEMS_MAX);
    one.out = &p->list[p->count];
    KGEN_TRY(kgen__read_problem(&one, text, err));
    p->count++;
    return KGEN_OK;
}

static void add_options(kgen__syntax *s, request *r) {
    const kgen__option options[] = {
        {"arch", 0, "A,B", kgen__read_archs, &r->archs, KGEN__ARCHS_DEFAULT, 0, "architectures"},
        {"manifest", 0, "FILE", kgen__read_text, &r->manifest, 0, 0,
         "specs from a file, one a line (- is standard input)"},
        {"predict", 0, NULL, NULL, &r->predict, 0, 0,
         "predict the time from the machine code (AMD)"},
        {"problem", 0, "P", read_problems, &r->problems, 0, 0,
         "batch=8,context=8192,heads=8; may be repeated"},
        {"diff", 0, NULL, NULL, &r->diff, 0, 0,
         "the arguments are two bundles or cache folders: which kernels came, went, changed"},
        {"object", 0, "FILE", kgen__read_text, &r->object, 0, 0,
         "a code object of others: the arguments are its kernels; with --predict and one --arch"},
        {"allow-spills", 0, NULL, NULL, &r->spills, 0, 0, "also show kernels that spill registers"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) kgen__syntax_add(s, options[i]);
    kgen__syntax_add_cache_dir(s, &r->cache_dir);
    kgen__syntax_add_json(s, &r->json);
}

static kgen_status add_jobs(request *r, char **lines, int count, kgen_error *err) {
    for (int i = 0; i < count; i++)
        KGEN_TRY(kgen__jobs_add_line(&r->jobs, lines[i], &r->archs, err));
    if (r->manifest) KGEN_TRY(kgen__jobs_add_manifest(&r->jobs, r->manifest, &r->archs, err));
    if (r->jobs.count == 0) return kgen_fail(err, KGEN_E_ARG, "%s: no spec in it", r->manifest);
    return KGEN_OK;
}

int kgen__command_report(int argc, char **argv) {
    request r = {.problems = {.count = 0}};
    int first, code;
    kgen__syntax s = {.command = "report",
                      .arguments = "SPEC[@ARCH] ...",
                      .about = "Builds what is not cached, and shows what each kernel costs.",
                      .most = -1};
    add_options(&s, &r);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (r.diff && (argc - first != 2 || r.predict || r.manifest || r.object))
        return kgen__cli_usage("report", "--diff: two bundles or cache folders, and --json");
    if (r.diff) return kgen__report_diff(argv + first, r.json);
    if (r.object && (!r.predict || r.archs.count != 1 || first == argc))
        return kgen__cli_usage("report",
                               "--object: with --predict, one --arch and its kernels' names");
    if (r.object) return report_object(&r, argv + first, argc - first);
    if (first == argc && !r.manifest)
        return kgen__cli_usage("report", "usage: kgen report [options] %s", s.arguments);
    if (r.problems.count && !r.predict)
        return kgen__cli_usage("report", "--problem: only with --predict");
    if (!r.problems.count) {
        memcpy(r.problems.list, usual, sizeof usual);
        r.problems.count = sizeof usual / sizeof usual[0];
    }
    kgen__archs_default(&r.archs);

    kgen_error err;
    kgen_cache *cache = NULL;
    kgen_status status = add_jobs(&r, argv + first, argc - first, &err);
    if (status == KGEN_OK) status = kgen_cache_open(&cache, r.cache_dir, &err);
    code = status == KGEN_OK ? report(cache, &r) : kgen__cli_fail(&err);
    kgen_cache_close(cache);
    kgen__jobs_free(&r.jobs);
    return code;
}

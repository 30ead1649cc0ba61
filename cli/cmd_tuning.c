/* kgen tuning: list, import, export and check rows of the tuning database. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include <kgen/tuning_rows.h>

enum { PATH_BYTES = 4096 };

typedef struct filter {
    kgen__archs archs;
    const char *family, *device, *layer; /* NULL: all */
    const char *before;                  /* cache folder of restamp */
    kgen_family_id family_id;
    int json;
} filter;

static int passes(const filter *f, const kgen_tuning_layer *layer, const kgen_tuning_row *row) {
    int arch = f->archs.count == 0;
    for (size_t i = 0; i < f->archs.count; i++) arch |= f->archs.list[i] == row->target;
    return arch && (!f->family || f->family_id == row->spec.family) &&
           (!f->device || strcmp(f->device, row->environment.device) == 0) &&
           (!f->layer || strcmp(f->layer, layer->name) == 0);
}

/* Calls `visit` for every row that passes, nearest layer first. */
static kgen_status each_row(const filter *f,
                            kgen_status (*visit)(const kgen_tuning_layer *layer,
                                                 const kgen_tuning_row *row, void *user,
                                                 kgen_error *err),
                            void *user, kgen_error *err) {
    const kgen_tuning_layer *layers;
    kgen_tuning *db;
    kgen_status status = KGEN_OK;
    KGEN_TRY(kgen_tuning_open(&db, NULL, err));
    size_t count = kgen_tuning_layers(&layers, db);
    for (size_t l = 0; l < count; l++)
        for (size_t i = 0; i < layers[l].count && status == KGEN_OK; i++)
            if (passes(f, &layers[l], &layers[l].rows[i]))
                status = visit(&layers[l], &layers[l].rows[i], user, err);
    kgen_tuning_close(db);
    return status;
}

/* A name that no layer has would leave no rows, without a word. */
static kgen_status check_layer(const char *name, kgen_error *err) {
    static const char *const names[] = {"user", "system", "shipped"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return KGEN_OK;
    return kgen_fail(err, KGEN_E_ARG, "layer=%.60s: user, system or shipped expected", name);
}

/* ---- list ----------------------------------------------------------------- */

static kgen_status list_row(const kgen_tuning_layer *layer, const kgen_tuning_row *row, void *user,
                            kgen_error *err) {
    kgen__table *table = user;
    const kgen_problem *p = &row->problem;
    char line[KGEN_SPEC_LINE_MAX];
    int stale;
    KGEN_TRY(kgen_tuning_row_stale(&stale, row, err));
    kgen_spec_print(line, &row->spec);
    kgen__table_cell(table, "%d", p->batch);
    kgen__table_number(table, p->context ? p->context : -1);
    kgen__table_number(table, p->heads ? p->heads : -1);
    kgen__table_cell(table, "%.1f", row->us);
    kgen__table_cell(table, "%.2f", row->default_us / row->us);
    kgen__table_cell(table, "%s", row->environment.device);
    kgen__table_cell(table, "%.10s", row->environment.date);
    kgen__table_cell(table, "%s", stale ? "stale" : "valid");
    kgen__table_cell(table, "%s", layer->name);
    kgen__table_cell(table, "%s @%s", line, row->target->name);
    return KGEN_OK;
}

/* Of the problem, what is not known is null. */
static json_t *known(int number) { return number ? json_integer(number) : json_null(); }

static kgen_status add_row_json(const kgen_tuning_layer *layer, const kgen_tuning_row *row,
                                void *user, kgen_error *err) {
    const kgen_problem *p = &row->problem;
    char line[KGEN_SPEC_LINE_MAX];
    int stale;
    KGEN_TRY(kgen_tuning_row_stale(&stale, row, err));
    kgen_spec_print(line, &row->spec);
    json_array_append_new(
        user, json_pack("{s:s, s:s, s:{s:i, s:o, s:o}, s:f, s:f, s:s, s:s, s:b, s:s}", "spec", line,
                        "arch", row->target->name, "problem", "batch", p->batch, "context",
                        known(p->context), "heads", known(p->heads), "us", row->us, "default_us",
                        row->default_us, "device", row->environment.device, "date",
                        row->environment.date, "stale", stale, "layer", layer->name));
    return KGEN_OK;
}

static kgen_status list_json(const filter *f, kgen_error *err) {
    json_t *rows = json_array();
    kgen_status status = each_row(f, add_row_json, rows, err);
    if (status == KGEN_OK && kgen__json_print(json_incref(rows)))
        status = kgen_fail(err, KGEN_E_IO, "standard output: cannot be written");
    json_decref(rows);
    return status;
}

static kgen_status list(const filter *f, kgen_error *err) {
    static const char *const heading[] = {"BATCH",  "CONTEXT", "HEADS", "US",    "GAIN",
                                          "DEVICE", "DATE",    "STATE", "LAYER", "SPEC"};
    kgen__table table;
    kgen__table_init(&table, "rrrrrlllll", heading);
    kgen_status status = each_row(f, list_row, &table, err);
    size_t rows = table.count / table.columns - 1;
    if (status == KGEN_OK && rows) kgen__table_print(&table, stdout);
    if (status == KGEN_OK) printf("%s%zu rows\n", rows ? "\n" : "", rows);
    kgen__table_free(&table);
    return status;
}

/* ---- export, import ------------------------------------------------------- */

static kgen_status export_row(const kgen_tuning_layer *layer, const kgen_tuning_row *row,
                              void *user, kgen_error *err) {
    char line[KGEN_TUNING_LINE_MAX];
    (void)layer, (void)user;
    KGEN_TRY(kgen_tuning_row_print(line, row, err));
    puts(line);
    return KGEN_OK;
}

static kgen_status import_file(const char *from, kgen_error *err) {
    char path[PATH_BYTES], *text;
    size_t size;
    kgen_merge_counts counts;
    kgen_error why;
    KGEN_TRY(kgen_tuning_user_path(path, sizeof path, NULL, err));
    KGEN_TRY(kgen_tuning_rows_read(&text, &size, from, err));
    kgen_status status = kgen_tuning_rows_merge(&counts, path, text, size, &why);
    free(text);
    if (status == KGEN_E_CONFIG) return kgen_fail(err, status, "%s: %s", from, why.text);
    if (status != KGEN_OK) return kgen_fail(err, status, "%s", why.text);
    printf("%zu added, %zu replaced, %zu kept, in %s\n", counts.added, counts.replaced, counts.kept,
           path);
    return KGEN_OK;
}

/* ---- check ---------------------------------------------------------------- */

static kgen_status count_row(const kgen_tuning_layer *layer, const kgen_tuning_row *row, void *user,
                             kgen_error *err) {
    size_t *counts = user;
    int stale;
    (void)layer;
    KGEN_TRY(kgen_tuning_row_stale(&stale, row, err));
    counts[stale]++;
    return KGEN_OK;
}

/* Bad lines of all layers, and why their files are not read. */
static kgen_status check_lines(size_t *bad, kgen_error *err) {
    const kgen_tuning_layer *layers;
    kgen_tuning *db;
    KGEN_TRY(kgen_tuning_open(&db, NULL, err));
    size_t count = kgen_tuning_layers(&layers, db);
    *bad = 0;
    err->text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        *bad += layers[i].bad + (layers[i].why && !layers[i].bad);
        if (layers[i].why && !err->text[0]) kgen_fail(err, KGEN_E_CONFIG, "%s", layers[i].why);
    }
    kgen_tuning_close(db);
    return KGEN_OK;
}

static kgen_status check(const filter *f, kgen_error *err) {
    size_t counts[2] = {0, 0}, bad;
    kgen_error first;
    KGEN_TRY(each_row(f, count_row, counts, err));
    KGEN_TRY(check_lines(&bad, &first));
    printf("%zu valid, %zu stale, %zu bad lines\n", counts[0], counts[1], bad);
    return bad ? kgen_fail(err, KGEN_E_CONFIG, "%s", first.text) : KGEN_OK;
}

/* ---- renew ---------------------------------------------------------------- */

/* Prints the search that a stale row came from. */
static kgen_status renew_row(const kgen_tuning_layer *layer, const kgen_tuning_row *row, void *user,
                             kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec spec = row->spec;
    int stale;
    (void)user;
    KGEN_TRY(kgen_tuning_row_stale(&stale, row, err));
    if (!stale) return KGEN_OK;
    kgen_spec_open_tuning(&spec);
    kgen_spec_print(line, &spec);
    printf("kgen tune '%s' --problem batch=%d", line, row->problem.batch);
    if (row->problem.context) printf(",context=%d", row->problem.context);
    if (row->problem.heads) printf(",heads=%d", row->problem.heads);
    if (strcmp(row->environment.device, "prediction") == 0)
        printf(" --predict --arch %s", row->target->name);
    if (strcmp(layer->name, "shipped") == 0)
        printf(" --out tuning/rows/%s.jsonl", row->target->name);
    putchar('\n');
    return KGEN_OK;
}

/* ---- the command ---------------------------------------------------------- */

static kgen_status run(const char *action, char **files, int count, const filter *f,
                       kgen_error *err) {
    if (strcmp(action, "restamp") == 0) return kgen__restamp(f->before, files, count, err);
    if (strcmp(action, "list") == 0) return f->json ? list_json(f, err) : list(f, err);
    if (strcmp(action, "export") == 0) return each_row(f, export_row, NULL, err);
    if (strcmp(action, "check") == 0) return check(f, err);
    if (strcmp(action, "renew") == 0) return each_row(f, renew_row, NULL, err);
    return import_file(files[0], err);
}

static int is_action(const char *word) {
    static const char *const words[] = {"list", "import", "export", "check", "renew", "restamp"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], word) == 0) return 1;
    return 0;
}

/* What stands behind the action is not what it takes: 1, and *why says so. */
static int is_misused(const char **why, const char *action, int files, const filter *f) {
    int lists = strcmp(action, "list") == 0;
    int imports = strcmp(action, "import") == 0, stamps = strcmp(action, "restamp") == 0;
    *why = imports && files != 1          ? "import: a FILE of rows expected, - for standard input"
           : stamps && !files             ? "restamp: FILEs of rows expected"
           : !imports && !stamps && files ? "only import and restamp take a FILE"
           : stamps != (f->before != NULL)
               ? "--before DIR belongs to restamp: the cache that has the kernels as timed"
           : f->json && !lists ? "--json belongs to list; export prints rows of JSON as they are"
                               : NULL;
    return *why != NULL;
}

int kgen__command_tuning(int argc, char **argv) {
    filter f = {0};
    int first, code;
    kgen__syntax s = {
        .command = "tuning",
        .arguments = "list|import FILE|export|check|renew|restamp FILE...",
        .about =
            "Lists rows, merges a file of rows into the user's (KGEN_TUNING, else tuning.jsonl in\n"
            "the cache folder) or not at all, prints rows as they are imported, counts what is\n"
            "valid, stale or no row, or prints the `kgen tune` of each stale row.\n"
            "restamp: a row of FILE whose source has changed is valid\n"
            "again where its code has not.",
        .least = 1,
        .most = -1};
    kgen__syntax_add(&s, (kgen__option){"arch", 0, "A,B", kgen__read_archs, &f.archs, 0, 0,
                                        "only these architectures"});
    kgen__syntax_add(&s, (kgen__option){"family", 0, "NAME", kgen__read_text, &f.family, 0, 0,
                                        "only this family"});
    kgen__syntax_add(&s,
                     (kgen__option){"device", 0, "NAME", kgen__read_text, &f.device, 0, 0,
                                    "only rows of this device, \"NVIDIA H200\" or \"prediction\""});
    kgen__syntax_add(&s, (kgen__option){"layer", 0, "NAME", kgen__read_text, &f.layer, 0, 0,
                                        "only this layer: user, system or shipped"});
    kgen__syntax_add(&s, (kgen__option){"before", 0, "DIR", kgen__read_text, &f.before, 0, 0,
                                        "restamp: a cache that has the kernels as timed"});
    kgen__syntax_add(&s, (kgen__option){"json", 0, NULL, NULL, &f.json, 0, 0, "list: print JSON"});
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    const char *action = argv[first], *why;
    char **files = argv + first + 1;
    int count = argc - first - 1;
    if (!is_action(action))
        return kgen__cli_usage(
            "tuning", "'%.60s': list, import, export, check, renew or restamp expected", action);
    if (is_misused(&why, action, count, &f)) return kgen__cli_usage("tuning", "%s", why);
    kgen_error err;
    kgen_status status = f.family ? kgen_family_find(&f.family_id, f.family, &err) : KGEN_OK;
    if (status == KGEN_OK && f.layer) status = check_layer(f.layer, &err);
    if (status == KGEN_OK) status = run(action, files, count, &f, &err);
    return status == KGEN_OK ? 0 : kgen__cli_fail(&err);
}

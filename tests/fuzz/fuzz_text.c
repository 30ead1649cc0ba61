/* Lines and JSON that a person or another program wrote. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include <kgen/kgen.h>
#include <kgen/tuning_rows.h>

#include "check/check.h"
#include "tuner/journal.h"
#include "tuning/db.h"

static char *text_of(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    return text;
}

/* ---- spec lines ------------------------------------------------------------------ */

/* Resolved again it is what it was; and it is written as text, or refused. */
static void try_target(const kgen_spec *spec, const kgen_target *target) {
    kgen_error err;
    kgen_spec resolved, again;
    kgen_source source;
    char line[KGEN_SPEC_LINE_MAX], symbol[KGEN_SYMBOL_MAX];
    if (kgen_spec_resolve(&resolved, spec, target, &err) != KGEN_OK) return;
    kgen_spec_print(line, &resolved);
    if (kgen_spec_resolve(&again, &resolved, target, &err) != KGEN_OK ||
        !kgen_spec_equal(&resolved, &again))
        fuzz_wrong("resolved twice", line);
    kgen_spec_symbol(symbol, &resolved);
    if (kgen_source_render(&source, &resolved, target, &err) != KGEN_OK)
        fuzz_wrong("resolved, but not written", line);
    if (strlen(source.text) != source.size) fuzz_wrong("length of a source", line);
    kgen_source_free(&source);
}

void fuzz_spec(const uint8_t *data, size_t size) {
    static size_t turn;
    char *text = text_of(data, size), line[KGEN_SPEC_LINE_MAX];
    kgen_error err;
    kgen_spec spec, again;
    if (kgen_spec_parse(&spec, text, &err) == KGEN_OK) {
        kgen_spec_print(line, &spec);
        if (kgen_spec_parse(&again, line, &err) != KGEN_OK || !kgen_spec_equal(&spec, &again))
            fuzz_wrong("printed and read", line);
        kgen_spec_validate(&spec, NULL, &err);
        try_target(&spec, kgen_target_at(turn++ % kgen_target_count()));
    }
    free(text);
}

/* ---- config.json: two bytes of options, then the file -------------------------------- */

/* What a plan names is a spec line. */
static void check_plan(const kgen_plan *plan) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_error err;
    kgen_spec spec;
    for (size_t i = 0; i < plan->count; i++) {
        kgen_spec_print(line, &plan->items[i].spec);
        if (kgen_spec_parse(&spec, line, &err) != KGEN_OK) fuzz_wrong("a plan's line", line);
        if (plan->items[i].q_heads < 0 || plan->items[i].kv_heads < 0 || plan->items[i].layers < 0)
            fuzz_wrong("a plan's count", line);
    }
}

void fuzz_config(const uint8_t *data, size_t size) {
    static const int widths[] = {1, 2, 8, 64, 1024, 3, 0, -1};
    kgen_plan_options options = {.size = sizeof options, .tp = 1};
    kgen_plan plan;
    kgen_error err;
    if (size < 2) return;
    options.tp = widths[data[0] & 7];
    options.engine = (kgen_engine)(data[0] >> 3 & 1);
    options.spec_width = data[0] >> 4;
    options.kv_dtype = (kgen_dtype)(data[1] % 16);
    options.dense = data[1] >> 4 & 1;
    options.page = data[1] >> 5 & 1 ? 32 : 0;
    char *text = malloc(size - 2 ? size - 2 : 1); /* no byte more than it says */
    memcpy(text, data + 2, size - 2);
    if (kgen_plan_make(&plan, text, size - 2, &options, &err) == KGEN_OK) {
        check_plan(&plan);
        kgen_plan_free(&plan);
    }
    free(text);
}

/* ---- rows of the tuning database ----------------------------------------------------- */

static void check_row(const kgen_tuning_row *row) {
    char line[KGEN_TUNING_LINE_MAX];
    kgen_error err;
    kgen_tuning_row again;
    int stale;
    kgen__verdict_of_row verdict;
    if (kgen_tuning_row_print(line, row, &err) == KGEN_OK &&
        kgen_tuning_row_parse(&again, line, &err) != KGEN_OK)
        fuzz_wrong("a row printed and read", line);
    if (row->seed % 8) return; /* the rest writes sources */
    kgen_tuning_row_stale(&stale, row, &err);
    kgen__row_verdict(&verdict, row, &err);
}

void fuzz_row(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *line;
    kgen__lines lines = {.next = text, .end = text + size};
    size_t length;
    kgen_error err;
    kgen_tuning_row row;
    while (kgen__lines_next(&lines, &line, &length))
        if (kgen__line_parse(&row, line, length, &err) == KGEN_OK) check_row(&row);
}

/* ---- cases, and the journal of a search ----------------------------------------------- */

void fuzz_case(const uint8_t *data, size_t size) {
    char *text = text_of(data, size), *line = malloc(KGEN__CASE_LINE_MAX);
    kgen__case *c = malloc(sizeof *c);
    kgen_error err;
    if (kgen__case_parse(c, text, &err) == KGEN_OK) kgen__case_print(line, c);
    free(c);
    free(line);
    free(text);
}

void fuzz_journal(const uint8_t *data, size_t size) {
    kgen__journal *journal;
    kgen_error err;
    if (kgen__journal_read(&journal, fuzz_file(data, size), &err) != KGEN_OK) return;
    kgen__journal_kernel_of(journal, "a");
    kgen__journal_close(journal);
}

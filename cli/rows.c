/* Rows of a benchmark: from files, and from the command line. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static kgen_status grow(kgen__rows *rows, kgen_error *err) {
    if (rows->count < rows->capacity) return KGEN_OK;
    size_t capacity = rows->capacity ? 2 * rows->capacity : 32;
    kgen__row *list = realloc(rows->list, capacity * sizeof *list);
    if (!list) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu rows", capacity);
    rows->list = list;
    rows->capacity = capacity;
    return KGEN_OK;
}

static kgen_status parse_spec(kgen_spec *spec, const char *text, const char *tune,
                              kgen_error *err) {
    char line[2 * KGEN_SPEC_LINE_MAX];
    if (strlen(text) + (tune ? strlen(tune) : 0) + 2 > sizeof line)
        return kgen_fail(err, KGEN_E_SPEC, "%.40s...: longer than %zu bytes", text, sizeof line);
    int bare = text[strlen(text) - 1] == ':';
    snprintf(line, sizeof line, "%s%s%s", text, tune && !bare ? "," : "", tune ? tune : "");
    return kgen_spec_parse(spec, line, err);
}

/* The parts of a row are trimmed; name "" is the spec's own line. */
static kgen_status add(kgen__rows *rows, const char *name, const char *spec, const char *problem,
                       const char *tune, kgen_error *err) {
    kgen__row row = {.name = NULL};
    char line[KGEN_SPEC_LINE_MAX];
    if (!*spec) return kgen_fail(err, KGEN_E_ARG, "row: no spec");
    KGEN_TRY(parse_spec(&row.spec, spec, tune, err));
    if (problem) KGEN_TRY(kgen__problem_parse(&row.problem, problem, err));
    KGEN_TRY(grow(rows, err));
    kgen_spec_print(line, &row.spec);
    row.name = strdup(*name ? name : line);
    if (!row.name) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a row");
    rows->list[rows->count++] = row;
    return KGEN_OK;
}

/* Cuts `text` at its bars. Returns how many parts there are, at most most + 1. */
static size_t split(char *text, char **parts, size_t most) {
    size_t count = 0;
    while (text && count <= most) {
        char *bar = strchr(text, '|');
        if (bar) *bar++ = 0;
        if (count < most) parts[count] = kgen__trim(text);
        count++;
        text = bar;
    }
    return count;
}

static kgen_status add_named(kgen__rows *rows, char *line, const char *tune, kgen_error *err) {
    char *parts[3];
    if (split(line, parts, 3) != 3 || !*parts[0])
        return kgen_fail(err, KGEN_E_ARG, "row: NAME | SPEC | batch=N context=N heads=N expected");
    return add(rows, parts[0], parts[1], parts[2], tune, err);
}

static kgen_status add_lines(kgen__rows *rows, char *text, const char *path, const char *tune,
                             kgen_error *err) {
    size_t number = 1, before = rows->count;
    for (char *line = text, *next; line; line = next, number++) {
        kgen_error why;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "#")] = 0;
        if (!*(line = kgen__trim(line))) continue;
        kgen_status status = add_named(rows, line, tune, &why);
        if (status != KGEN_OK) return kgen_fail(err, status, "%s:%zu: %s", path, number, why.text);
    }
    if (rows->count > before) return KGEN_OK;
    return kgen_fail(err, KGEN_E_ARG, "%s: no row in it", path);
}

static kgen_status add_file(kgen__rows *rows, const char *path, const char *tune, kgen_error *err) {
    char *text;
    size_t size;
    KGEN_TRY(kgen__input_read(&text, &size, path, err));
    kgen_status status = strlen(text) == size
                             ? add_lines(rows, text, path, tune, err)
                             : kgen_fail(err, KGEN_E_ARG, "%s: not a text file", path);
    free(text);
    return status;
}

static kgen_status add_line(kgen__rows *rows, const char *text, const char *tune, kgen_error *err) {
    char *parts[2], *line = strdup(text);
    if (!line) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a row");
    size_t count = split(line, parts, 2);
    kgen_status status = count > 2
                             ? kgen_fail(err, KGEN_E_ARG, "%.60s: SPEC | PROBLEM expected", text)
                             : add(rows, "", parts[0], count == 2 ? parts[1] : NULL, tune, err);
    free(line);
    return status;
}

/* A colon that is in no folder's name tells a spec from a file. */
kgen_status kgen__rows_add(kgen__rows *rows, const char *argument, const char *tune,
                           kgen_error *err) {
    return argument[strcspn(argument, ":/")] == ':' ? add_line(rows, argument, tune, err)
                                                    : add_file(rows, argument, tune, err);
}

kgen_status kgen__rows_keep(kgen__rows *rows, const char *glob, kgen_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < rows->count; i++) {
        if (fnmatch(glob, rows->list[i].name, 0) == 0)
            rows->list[kept++] = rows->list[i];
        else
            free(rows->list[i].name);
    }
    rows->count = kept;
    if (kept) return KGEN_OK;
    return kgen_fail(err, KGEN_E_ARG, "--rows %.60s: fits no row", glob);
}

void kgen__rows_free(kgen__rows *rows) {
    for (size_t i = 0; i < rows->count; i++) free(rows->list[i].name);
    free(rows->list);
    memset(rows, 0, sizeof *rows);
}

/* Tables for people, JSON for programs. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

void kgen__table_init(kgen__table *table, const char *align, const char *const *heading) {
    memset(table, 0, sizeof *table);
    table->align = align;
    table->columns = strlen(align);
    for (size_t i = 0; i < table->columns; i++) kgen__table_cell(table, "%s", heading[i]);
}

/* A cell that finds no memory stays empty. */
void kgen__table_cell(kgen__table *table, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        char **cells = realloc(table->cells, capacity * sizeof *cells);
        if (!cells) return;
        table->cells = cells;
        table->capacity = capacity;
    }
    table->cells[table->count++] = strdup(text);
}

void kgen__table_number(kgen__table *table, long number) {
    if (number < 0)
        kgen__table_cell(table, "-");
    else
        kgen__table_cell(table, "%ld", number);
}

static const char *cell(const kgen__table *table, size_t index) {
    return index < table->count && table->cells[index] ? table->cells[index] : "";
}

static size_t width_of(const kgen__table *table, size_t column) {
    size_t width = 0;
    for (size_t i = column; i < table->count; i += table->columns)
        if (strlen(cell(table, i)) > width) width = strlen(cell(table, i));
    return width;
}

void kgen__table_print(const kgen__table *table, FILE *stream) {
    size_t widths[32];
    for (size_t c = 0; c < table->columns && c < 32; c++) widths[c] = width_of(table, c);
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        int last = column + 1 == table->columns, width = (int)widths[column];
        if (table->align[column] == 'r')
            fprintf(stream, "%*s", width, cell(table, i));
        else
            fprintf(stream, "%-*s", last ? 0 : width, cell(table, i));
        fputs(last ? "\n" : "  ", stream);
    }
}

void kgen__table_free(kgen__table *table) {
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    memset(table, 0, sizeof *table);
}

int kgen__json_print(json_t *value) {
    kgen_error err;
    int failed = !value || json_dumpf(value, stdout, JSON_INDENT(2));
    json_decref(value);
    if (failed) {
        kgen_fail(&err, KGEN_E_IO, "JSON: cannot write");
        return kgen__cli_fail(&err);
    }
    putchar('\n');
    return 0;
}

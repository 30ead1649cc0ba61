/* What the files of tuning/ share. */
#ifndef KGEN_TUNING_DB_H
#define KGEN_TUNING_DB_H

#include <kgen/tuning_rows.h>

enum { KGEN__LAYERS = 3, KGEN__ROWS_TEXT_MAX = 64 << 20 };

struct kgen_tuning {
    kgen_tuning_layer layers[KGEN__LAYERS]; /* nearest first */
    size_t count;
};

/* The tables of kgen_tuning_open, from other files; NULL: an empty layer. */
kgen_status kgen__tuning_open_files(kgen_tuning **out, const char *user, const char *system,
                                    kgen_error *err);

/* What kgen_tuning_open takes `path` for today, to be opened later: "" stands
 * for no database. NULL: no place for a file, or no memory; then the default
 * holds. free() it. */
char *kgen__tuning_file(const char *path);

/* ---- lines.c: text, line by line ------------------------------------------ */
/* A file in its place: a pipe there must not hold us up. *text: free(). */
kgen_status kgen__rows_file_read(char **text, size_t *size, const char *path, kgen_error *err);

typedef struct kgen__lines {
    const char *next, *end;
    size_t number; /* of the line given last, from 1 */
} kgen__lines;

/* 0 at the end. The line has no newline, no blanks around it, and is not
 * NUL-terminated; empty lines are passed over. */
int kgen__lines_next(kgen__lines *lines, const char **line, size_t *length);
/* The row that the line says. */
kgen_status kgen__line_parse(kgen_tuning_row *out, const char *line, size_t length,
                             kgen_error *err);

/* ---- choice.c: specs with open tuning keys -------------------------------- */
/* 1: `spec` has the values of all tuning keys that are set in `given`. */
int kgen__spec_keeps(const kgen_spec *spec, const kgen_spec *given);
/* The family's own choice. problem may be NULL. */
kgen_status kgen__family_rule(kgen_spec *out, const kgen_spec *spec, const kgen_problem *problem,
                              const kgen_target *target, kgen_error *err);

/* What a row that is not stale says. */
typedef enum kgen__verdict_of_row {
    KGEN__ROW_SPEC,    /* take the row's spec */
    KGEN__ROW_DEFAULT, /* the family's rule is as good */
} kgen__verdict_of_row;

kgen_status kgen__row_verdict(kgen__verdict_of_row *out, const kgen_tuning_row *row,
                              kgen_error *err);

#endif

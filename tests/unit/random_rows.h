/* Rows for the tests of the tuning database. */
#ifndef KGEN_TESTS_UNIT_RANDOM_ROWS_H
#define KGEN_TESTS_UNIT_RANDOM_ROWS_H

#include "tuning/db.h"

enum { ROWS_PATH_BYTES = 600 };

extern char rows_folder[64]; /* fresh for each test */
extern uint64_t rows_seed;

int rows_start(void);         /* once: the seed, printed */
int rows_fresh(void **state); /* setup and teardown of a test */
int rows_remove(void **state);

uint32_t rows_random(uint32_t below);
const char *rows_path(const char *name); /* in the folder; one of four buffers */
void rows_write(const char *path, const void *bytes, size_t size);
char *rows_read_file(const char *path, size_t *size); /* free() */

kgen_spec rows_spec(const char *line);
const kgen_target *rows_target(const char *name);

/* A good row: `line` with its tuning keys, the default beside it. */
kgen_tuning_row rows_make(const char *line, const char *arch, kgen_problem problem);
kgen_tuning_row rows_any(void); /* of any family, everything random */
/* The text of the rows, a line each; free(). */
char *rows_text(const kgen_tuning_row *rows, size_t count);
void rows_save(const char *name, const kgen_tuning_row *rows, size_t count);
/* Over the folder's "user" and "system", where they are. */
kgen_tuning *rows_open(void);

#endif

/* The parameter table: what a row of a .def file means. A parameter is one row;
 * every loop over parameters (parse, print, check, constants, help) runs over
 * these tables and knows no parameter by name. */
#ifndef KGEN_GEN_PARAMS_H
#define KGEN_GEN_PARAMS_H

#include <kgen/spec.h>

typedef struct kgen__symbol {
    const char *name; /* NULL ends the list; the first name of a value prints */
    int32_t value;
} kgen__symbol;

/* Allowed numbers: a list, min..max in steps, both, or none. */
typedef struct kgen__domain {
    int32_t min, max, step;
    const int32_t *list;
    int32_t list_count;
} kgen__domain;

/* For the tables of a family. */
#define LIST(values) {0, 0, 0, values, sizeof values / sizeof values[0]}
#define RANGE(min, max, step) {min, max, step, NULL, 0}
#define LIST_AND_RANGE(values, min, max, step) \
    {min, max, step, values, sizeof values / sizeof values[0]}
#define SYMBOLS(name, ...) static const kgen__symbol symbols_##name[] = {__VA_ARGS__, {NULL, 0}}

/* A line of `applicable`. */
#define REQUIRE(condition, ...) \
    if (!(condition)) return kgen_fail(err, KGEN_E_SPEC, __VA_ARGS__)

typedef enum kgen__role { KGEN__SHAPE, KGEN__TUNE } kgen__role;
typedef enum kgen__print { KGEN__ALWAYS, KGEN__DIFFERS } kgen__print;

typedef struct kgen__param {
    const char *key;      /* in the spec line */
    const char *constant; /* in the kernel's source */
    size_t offset;        /* of the int32_t in kgen_spec */
    const kgen__domain *domain;
    const kgen__symbol *symbols;
    int32_t initial;
    kgen__role role;
    kgen__print print;
    const char *doc;
} kgen__param;

static inline int32_t kgen__param_get(const kgen_spec *spec, const kgen__param *param) {
    return *(const int32_t *)((const char *)spec + param->offset);
}

static inline void kgen__param_set(kgen_spec *spec, const kgen__param *param, int32_t value) {
    *(int32_t *)((char *)spec + param->offset) = value;
}

#endif

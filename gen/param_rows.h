/* For the tables of a family: what the columns of a .def file stand for. Every
 * loop over parameters (parse, print, check, constants, help) runs over these
 * tables and knows no parameter by name. */
#ifndef KGEN_GEN_PARAM_ROWS_H
#define KGEN_GEN_PARAM_ROWS_H

#include <kgen/params.h>

#define LIST(values) {0, 0, 0, values, sizeof values / sizeof values[0]}
#define RANGE(min, max, step) {min, max, step, NULL, 0}
#define LIST_AND_RANGE(values, min, max, step) \
    {min, max, step, values, sizeof values / sizeof values[0]}
#define VALUE(name, value) {name, value, NULL}
#define NAMED(name, enumerator) {name, KGEN_##enumerator, #enumerator} /* in kernels, too */
#define NO_SYMBOL {NULL, 0, NULL}
#define SYMBOLS(name, ...) static const kgen_symbol symbols_##name[] = {__VA_ARGS__, NO_SYMBOL}

/* A line of `applicable`. */
#define REQUIRE(condition, ...) \
    if (!(condition)) return kgen_fail(err, KGEN_E_SPEC, __VA_ARGS__)

#endif

/* What the words of <family>_args.def are in C, for the file of a family. */
#ifndef KGEN_RUNTIME_ARGS_WORDS_H
#define KGEN_RUNTIME_ARGS_WORDS_H

#include "args_rows.h"

#define FIXED(dtype) (KGEN__TYPE_FIXED, KGEN_DTYPE_##dtype, 0)
#define KEY(field) (KGEN__TYPE_KEY, offsetof(SPEC, field), 0)
#define EITHER(a, b) (KGEN__TYPE_EITHER, offsetof(SPEC, a), offsetof(SPEC, b))
#define WIDE(field, value) (KGEN__TYPE_WIDE, offsetof(SPEC, field), value)
#define NO_TAG KGEN__NO_TAG
#define TAG(field) (int32_t)offsetof(SPEC, field)
#define KGEN__RULE(rule, low, high) {KGEN__NUMBER_##rule, low, high}
#define ANY KGEN__RULE(ANY, 0, 0)
#define ABOVE_0 KGEN__RULE(ABOVE_0, 0, 0)
#define NOT_BELOW_0 KGEN__RULE(NOT_BELOW_0, 0, 0)
#define BELOW_0 KGEN__RULE(BELOW_0, 0, 0)
#define NOT_0 KGEN__RULE(NOT_0, 0, 0)
#define FROM_0 KGEN__RULE(RANGE, 0, INT64_MAX)
#define FROM_1 KGEN__RULE(RANGE, 1, INT64_MAX)
#define RANGE(low, high) KGEN__RULE(RANGE, low, high)

#define KGEN__COUNT_OF(a, b, c, d, e, n, ...) n
#define KGEN__COUNT(...) KGEN__COUNT_OF(__VA_ARGS__, 5, 4, 3, 2, 1, 0)
#define SIZE_MORE(size) (SIZE_##size | KGEN__MORE)
#define KGEN__DIMS1(a) SIZE_##a
#define KGEN__DIMS2(a, b) SIZE_##a, SIZE_##b
#define KGEN__DIMS3(a, b, c) SIZE_##a, SIZE_##b, SIZE_##c
#define KGEN__DIMS4(a, b, c, d) SIZE_##a, SIZE_##b, SIZE_##c, SIZE_##d
#define KGEN__DIMS5(a, b, c, d, e) SIZE_##a, SIZE_##b, SIZE_##c, SIZE_##d, SIZE_##e
#define KGEN__PASTE(a, b) a##b
#define KGEN__DIMS_OF(n) KGEN__PASTE(KGEN__DIMS, n)
#define KGEN__DIMS(...) KGEN__DIMS_OF(KGEN__COUNT(__VA_ARGS__))(__VA_ARGS__)

/* clang-format off */
#define KGEN__BRACED(...) {__VA_ARGS__}
/* A kgen__row. id and pointer: as there; more: flags beside those of the row. */
#define KGEN__ROW(name, member, id, pointer, more, type, tag, shape, strides, when, use, flags, doc) \
    {name, doc, offsetof(ARGS, member), when, id, tag, KGEN__BRACED type, KGEN_USE_##use,            \
     KGEN__COUNT shape, strides, (flags) | (more), {KGEN__DIMS shape}, pointer},
/* clang-format on */

enum {
    PLAIN = 0,
    FIRST = KGEN__ROW_FIRST,
    OPTIONAL = KGEN__ROW_OPTIONAL,
    BY_LAYOUT = KGEN__ROW_BY_LAYOUT,
    WORDS = KGEN__ROW_WORDS,
    PIECES = KGEN__ROW_PIECES,
    LINES = KGEN__ROW_LINES,
    LOOSE = KGEN__ROW_LOOSE,
    APART = KGEN__ROW_APART,
    IN_PLACE = KGEN__ROW_APART | KGEN__ROW_IN_PLACE,
    JOINED = KGEN__ROW_JOINED,
    SQUEEZED = KGEN__ROW_SQUEEZED,
};

#endif

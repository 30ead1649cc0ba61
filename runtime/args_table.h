/* The tables of one family, from its rows. A family's file defines FAMILY, SPEC,
 * ARGS and ARGS_DEF, and includes this once. */
#include "args_rows.h"

/* The words of the .def. */

#define FIXED(dtype) {KGEN__TYPE_FIXED, KGEN_DTYPE_##dtype, 0}
#define KEY(field) {KGEN__TYPE_KEY, offsetof(SPEC, field), 0}
#define EITHER(a, b) {KGEN__TYPE_EITHER, offsetof(SPEC, a), offsetof(SPEC, b)}
#define WIDE(field, value) {KGEN__TYPE_WIDE, offsetof(SPEC, field), value}
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
    JOINED = KGEN__ROW_JOINED,
    SQUEEZED = KGEN__ROW_SQUEEZED,
};

enum {
#define KGEN_SIZE(ID, ...) SIZE_##ID,
#include ARGS_DEF
    SIZES
};

/* When the rows of the .def hold; each is a bit. */
enum {
#define KGEN_WHEN(ID, ...) WHEN_##ID,
#include ARGS_DEF
    WHENS
};
enum {
    ALWAYS = 0,
#define KGEN_WHEN(ID, ...) ID = 1 << WHEN_##ID,
#include ARGS_DEF
};

enum {
#define KGEN_TENSOR(ID, ...) TENSOR_##ID,
#include ARGS_DEF
    TENSORS
};

static const kgen__size_row size_rows[] = {
#define KGEN_SIZE(ID, letters, from, value, doc) {letters, doc, KGEN__SIZE_##from},
#include ARGS_DEF
};

static const char *const when_texts[] = {
#define KGEN_WHEN(ID, text, condition) text,
#include ARGS_DEF
};

static const kgen__row tensor_rows[] = {
#define KGEN_TENSOR(ID, field, type, tag, shape, strides, when, use, flags, doc) \
    {#field,                                                                     \
     doc,                                                                        \
     offsetof(ARGS, field),                                                      \
     when,                                                                       \
     TENSOR_##ID,                                                                \
     tag,                                                                        \
     type,                                                                       \
     KGEN_USE_##use,                                                             \
     KGEN__COUNT shape,                                                          \
     strides,                                                                    \
     flags,                                                                      \
     {KGEN__DIMS shape}},
#define KGEN_FORM(ID, field, type, tag, shape, strides, when, use, flags, doc) \
    {#field,                                                                   \
     doc,                                                                      \
     offsetof(ARGS, field),                                                    \
     when,                                                                     \
     TENSOR_##ID,                                                              \
     tag,                                                                      \
     type,                                                                     \
     KGEN_USE_##use,                                                           \
     KGEN__COUNT shape,                                                        \
     strides,                                                                  \
     (flags) | KGEN__ROW_FORM,                                                 \
     {KGEN__DIMS shape}},
#include ARGS_DEF
};

static const kgen__number_row number_rows[] = {
#define KGEN_NUMBER(field, type, when, rule, doc) \
    {#field, #type, doc, offsetof(ARGS, field), sizeof(type), when, rule},
#include ARGS_DEF
    {NULL, NULL, NULL, 0, 0, 0, ANY}};

static uint32_t conditions_of(const kgen_spec *spec) {
    const SPEC *s = &spec->FAMILY;
    uint32_t conditions = 0;
#define KGEN_WHEN(ID, text, condition) conditions |= (condition) ? (uint32_t)ID : 0;
#include ARGS_DEF
    return conditions;
}

static void given_sizes(int64_t *size, const kgen_spec *spec) {
    const SPEC *s = &spec->FAMILY;
#define KGEN_SIZE(ID, letters, from, value, doc) size[SIZE_##ID] = value;
#include ARGS_DEF
}

#define ARGS_ROWS                                                                                \
    .args_bytes = sizeof(ARGS), .sizes = size_rows, .whens = when_texts, .rows = tensor_rows,    \
    .numbers = number_rows, .size_count = SIZES, .when_count = WHENS,                            \
    .row_count = sizeof tensor_rows / sizeof tensor_rows[0],                                     \
    .number_count = sizeof number_rows / sizeof number_rows[0] - 1, .conditions = conditions_of, \
    .given = given_sizes

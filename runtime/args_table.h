/* The tables of one family, from its rows. A family's file defines FAMILY, SPEC,
 * ARGS and ARGS_DEF, and includes this once; with ROWS_OF_OPS defined it makes
 * the tables of tensors and numbers itself. */
#include "args_words.h"

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

static const kgen__size_row size_rows[] = {
#define KGEN_SIZE(ID, letters, from, value, doc) {letters, doc, KGEN__SIZE_##from},
#include ARGS_DEF
};

static const char *const when_texts[] = {
#define KGEN_WHEN(ID, text, condition) text,
#include ARGS_DEF
};

static uint32_t conditions_of(const kgen_spec *spec) {
    const SPEC *s = &spec->FAMILY;
    uint32_t conditions = 0;
#define KGEN_WHEN(ID, text, condition) conditions |= (condition) ? (uint32_t)ID : 0;
#include ARGS_DEF
    return conditions;
}

static void given_sizes(int64_t *size, const kgen_spec *spec) {
    const SPEC *s = &spec->FAMILY;
    (void)s;
#define KGEN_SIZE(ID, letters, from, value, doc) size[SIZE_##ID] = value;
#include ARGS_DEF
}

#ifndef ROWS_OF_OPS
enum {
#define KGEN_TENSOR(ID, ...) TENSOR_##ID,
#include ARGS_DEF
    TENSORS
};

static const kgen__row tensor_rows[] = {
#define KGEN_TENSOR(ID, field, ...) KGEN__ROW(#field, field, TENSOR_##ID, 0, 0, __VA_ARGS__)
#define KGEN_FORM(ID, field, ...) \
    KGEN__ROW(#field, field, TENSOR_##ID, 0, KGEN__ROW_FORM, __VA_ARGS__)
#include ARGS_DEF
};

static const kgen__number_row number_rows[] = {
#define KGEN_NUMBER(field, type, when, rule, doc) \
    {#field, #type, doc, offsetof(ARGS, field), sizeof(type), when, rule, 0},
#include ARGS_DEF
    {NULL, NULL, NULL, 0, 0, 0, ANY, 0}};

#define ARGS_ROWS                                                                                \
    .args_bytes = sizeof(ARGS), .sizes = size_rows, .whens = when_texts, .rows = tensor_rows,    \
    .numbers = number_rows, .size_count = SIZES, .when_count = WHENS,                            \
    .row_count = sizeof tensor_rows / sizeof tensor_rows[0],                                     \
    .number_count = sizeof number_rows / sizeof number_rows[0] - 1, .conditions = conditions_of, \
    .given = given_sizes
#endif

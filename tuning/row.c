/* A row as a line of JSON. One table says the keys, their bounds and where the
 * values are kept; print and parse run over it. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"

enum { SCHEMA = 1, DATE_DIGITS = 20, REAL_DIGITS = 9 };

typedef enum field_kind { WHOLE32, WHOLE64, REAL, TEXT, DIGEST, DATE } field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    int needed;
    size_t offset, size; /* of a text with its NUL */
    double low, high;    /* of a number */
} field;

#define AT(member) offsetof(kgen_tuning_row, member)
#define SIZE(member) sizeof(((kgen_tuning_row *)0)->member)
#define NUMBER(name, kind, needed, member, low, high) {name, kind, needed, AT(member), 0, low, high}
#define STRING(name, kind, needed, member) {name, kind, needed, AT(member), SIZE(member), 0, 0}

static const field problem_fields[] = {
    NUMBER("batch", WHOLE32, 1, problem.batch, 1, 1 << 24),
    NUMBER("context", WHOLE32, 0, problem.context, 0, 1 << 28),
    NUMBER("heads", WHOLE32, 0, problem.heads, 0, 1 << 16),
};

/* In the order in which they are written: what names a row comes first, so that
 * sorted lines of one kernel stand together. */
static const field fields[] = {
    STRING("device", TEXT, 1, environment.device),
    STRING("driver", TEXT, 0, environment.driver),
    STRING("toolchain", TEXT, 0, environment.toolchain),
    STRING("date", DATE, 1, environment.date),
    STRING("kernel", DIGEST, 1, kernel),
    STRING("default_kernel", DIGEST, 1, default_kernel),
    NUMBER("us", REAL, 1, us, 1e-3, 1e9),
    NUMBER("low", REAL, 1, low, 1e-3, 1e9),
    NUMBER("high", REAL, 1, high, 1e-3, 1e9),
    NUMBER("default_us", REAL, 1, default_us, 1e-3, 1e9),
    NUMBER("samples", WHOLE32, 1, samples, 0, 1 << 24),
    NUMBER("seed", WHOLE64, 0, seed, 0, 9223372036854775807.0),
    NUMBER("compute_units", WHOLE32, 0, environment.compute_units, 0, 1 << 16),
    NUMBER("clock_mhz", WHOLE32, 0, environment.clock_mhz, 0, 1 << 16),
    NUMBER("memory_mhz", WHOLE32, 0, environment.memory_mhz, 0, 1 << 16),
};

enum {
    PROBLEM_FIELDS = sizeof problem_fields / sizeof problem_fields[0],
    FIELDS = sizeof fields / sizeof fields[0],
};

/* --- values ---------------------------------------------------------------- */

static kgen_status check_text(const field *f, const char *text, kgen_error *err) {
    size_t length = strlen(text);
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            return kgen_fail(err, KGEN_E_CONFIG, "%s: byte %d is 0x%02x, printable ASCII expected",
                             f->name, (int)(c - text), (unsigned char)*c);
    if (length >= f->size || (f->needed && !length))
        return kgen_fail(err, KGEN_E_CONFIG, "%s=%.40s: %zu bytes, %d to %zu expected", f->name,
                         text, length, f->needed, f->size - 1);
    return KGEN_OK;
}

static kgen_status check_digest(const field *f, const char *text, kgen_error *err) {
    enum { DIGITS = 64 };
    if (strspn(text, "0123456789abcdef") == DIGITS && !text[DIGITS]) return KGEN_OK;
    return kgen_fail(err, KGEN_E_CONFIG, "%s=%.70s: %d hex digits expected", f->name, text, DIGITS);
}

/* 2026-11-22T03:04:05Z. Dates are compared as text. */
static kgen_status check_date(const field *f, const char *text, kgen_error *err) {
    static const char form[] = "2000-00-00T00:00:00Z";
    static const struct {
        int at, low, high;
    } parts[] = {{2, 0, 99}, {5, 1, 12}, {8, 1, 31}, {11, 0, 23}, {14, 0, 59}, {17, 0, 60}};
    int good = strlen(text) == DATE_DIGITS && strncmp(text, "20", 2) == 0;
    for (int i = 0; good && i < DATE_DIGITS; i++)
        good = form[i] >= '0' && form[i] <= '9' ? text[i] >= '0' && text[i] <= '9'
                                                : text[i] == form[i];
    for (size_t i = 0; good && i < sizeof parts / sizeof parts[0]; i++) {
        int number = (text[parts[i].at] - '0') * 10 + text[parts[i].at + 1] - '0';
        good = number >= parts[i].low && number <= parts[i].high;
    }
    return good ? KGEN_OK
                : kgen_fail(err, KGEN_E_CONFIG,
                            "%s=%.40s: a date like 2026-11-22T03:04:05Z expected", f->name, text);
}

static kgen_status get_text(void *at, const field *f, const json_t *value, kgen_error *err) {
    const char *text = json_string_value(value);
    if (!text) return kgen_fail(err, KGEN_E_CONFIG, "%s: a text expected", f->name);
    KGEN_TRY(f->kind == DIGEST ? check_digest(f, text, err)
             : f->kind == DATE ? check_date(f, text, err)
                               : check_text(f, text, err));
    memcpy(at, text, strlen(text) + 1);
    return KGEN_OK;
}

/* The values of a row live in int32_t, uint64_t and double. */
static kgen_status get_number(void *at, const field *f, const json_t *value, kgen_error *err) {
    int whole = f->kind != REAL;
    double number = json_number_value(value);
    if (whole ? !json_is_integer(value) : !json_is_number(value))
        return kgen_fail(err, KGEN_E_CONFIG, "%s: a %snumber expected", f->name,
                         whole ? "whole " : "");
    if (!(number >= f->low && number <= f->high))
        return kgen_fail(err, KGEN_E_CONFIG, "%s=%.9g: must be %.9g to %.9g", f->name, number,
                         f->low, f->high);
    if (f->kind == REAL)
        *(double *)at = number;
    else if (f->kind == WHOLE64)
        *(uint64_t *)at = (uint64_t)json_integer_value(value);
    else
        *(int32_t *)at = (int32_t)json_integer_value(value);
    return KGEN_OK;
}

static kgen_status get_fields(kgen_tuning_row *row, const field *table, size_t count,
                              const json_t *object, kgen_error *err) {
    for (size_t i = 0; i < count; i++) {
        const field *f = &table[i];
        const json_t *value = json_object_get(object, f->name);
        void *at = (char *)row + f->offset;
        if (!value && f->needed) return kgen_fail(err, KGEN_E_CONFIG, "%s: missing", f->name);
        if (value) KGEN_TRY(f->size ? get_text(at, f, value, err) : get_number(at, f, value, err));
    }
    return KGEN_OK;
}

/* --- parse ----------------------------------------------------------------- */

static kgen_status check_schema(const json_t *object, kgen_error *err) {
    const json_t *schema = json_object_get(object, "kgen");
    if (!json_is_object(object))
        return kgen_fail(err, KGEN_E_CONFIG, "row: a JSON object expected");
    if (!json_is_integer(schema))
        return kgen_fail(err, KGEN_E_CONFIG, "kgen: the number of the row's format is missing");
    if (json_integer_value(schema) != SCHEMA)
        return kgen_fail(err, KGEN_E_CONFIG,
                         "kgen=%lld: this version reads rows of format %d; "
                         "they were written by another version of kgen",
                         (long long)json_integer_value(schema), SCHEMA);
    return KGEN_OK;
}

static kgen_status get_spec(kgen_tuning_row *row, const json_t *object, kgen_error *err) {
    const char *arch = json_string_value(json_object_get(object, "arch"));
    const char *line = json_string_value(json_object_get(object, "spec"));
    kgen_error why = {KGEN_OK, ""};
    kgen_spec spec;
    if (!arch || kgen_target_find(&row->target, arch, &why) != KGEN_OK)
        return kgen_fail(err, KGEN_E_CONFIG, "%s", arch ? why.text : "arch: a text expected");
    if (!line) return kgen_fail(err, KGEN_E_CONFIG, "spec: a text expected");
    kgen_status status = kgen_spec_parse(&spec, line, &why);
    if (status == KGEN_OK) status = kgen_spec_resolve(&row->spec, &spec, row->target, &why);
    return status == KGEN_OK ? KGEN_OK : kgen_fail(err, KGEN_E_CONFIG, "spec: %s", why.text);
}

static kgen_status check_times(const kgen_tuning_row *row, kgen_error *err) {
    if (row->low > row->us || row->us > row->high)
        return kgen_fail(err, KGEN_E_CONFIG,
                         "us=%.9g: not inside its interval, low=%.9g to high=%.9g", row->us,
                         row->low, row->high);
    return KGEN_OK;
}

static kgen_status get_row(kgen_tuning_row *row, const json_t *object, kgen_error *err) {
    const json_t *problem = json_object_get(object, "problem");
    KGEN_TRY(check_schema(object, err));
    KGEN_TRY(get_spec(row, object, err));
    if (!json_is_object(problem))
        return kgen_fail(err, KGEN_E_CONFIG, "problem: a JSON object expected");
    KGEN_TRY(get_fields(row, problem_fields, PROBLEM_FIELDS, problem, err));
    KGEN_TRY(get_fields(row, fields, FIELDS, object, err));
    return check_times(row, err);
}

kgen_status kgen_tuning_row_parse(kgen_tuning_row *out, const char *line, kgen_error *err) {
    json_error_t why;
    kgen_tuning_row row;
    memset(&row, 0, sizeof row);
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &why);
    if (!object)
        return kgen_fail(err, KGEN_E_CONFIG, "row: not valid JSON: byte %d: %s", why.position,
                         why.text);
    kgen_status status = get_row(&row, object, err);
    json_decref(object);
    if (status == KGEN_OK) *out = row;
    return status;
}

/* --- print ----------------------------------------------------------------- */

/* NaN and infinity are no JSON: parsed again, their key is missing. */
static void set_fields(json_t *object, const kgen_tuning_row *row, const field *table,
                       size_t count) {
    for (size_t i = 0; i < count; i++) {
        const field *f = &table[i];
        const void *at = (const char *)row + f->offset;
        json_t *value = f->size              ? json_stringn_nocheck(at, strnlen(at, f->size))
                        : f->kind == REAL    ? json_real(*(const double *)at)
                        : f->kind == WHOLE64 ? json_integer((json_int_t) * (const uint64_t *)at)
                                             : json_integer(*(const int32_t *)at);
        json_object_set_new(object, f->name, value);
    }
}

static char *dump(const kgen_tuning_row *row) {
    char line[KGEN_SPEC_LINE_MAX];
    json_t *object = json_object(), *problem = json_object();
    kgen_spec_print(line, &row->spec);
    json_object_set_new(object, "kgen", json_integer(SCHEMA));
    json_object_set_new(object, "arch", json_string(row->target->name));
    json_object_set_new(object, "spec", json_string(line));
    set_fields(problem, row, problem_fields, PROBLEM_FIELDS);
    json_object_set_new(object, "problem", problem);
    set_fields(object, row, fields, FIELDS);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(REAL_DIGITS));
    json_decref(object);
    return text;
}

kgen_status kgen_tuning_row_print(char out[KGEN_TUNING_LINE_MAX], const kgen_tuning_row *row,
                                  kgen_error *err) {
    kgen_tuning_row again;
    char *text = dump(row);
    if (!text)
        return kgen_fail(err, KGEN_E_CONFIG,
                         "row: cannot be written: a text that is not UTF-8, or no memory");
    /* What is longer than a line, or would not be read, is not written. */
    kgen_status status = kgen__line_parse(&again, text, strlen(text), err);
    if (status == KGEN_OK) memcpy(out, text, strlen(text) + 1);
    free(text);
    return status;
}

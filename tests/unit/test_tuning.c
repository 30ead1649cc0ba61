/* The tuning database as a file: rows, bad rows, merging, layers. */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "random_rows.h"

#define PLAIN "attn:d=128,g=8"
#define EIGHT ((kgen_problem){8, 8192, 8})

static kgen_status merge(kgen_merge_counts *counts, const char *path, const char *text, size_t size,
                         kgen_error *err) {
    memset(counts, 0, sizeof *counts);
    err->text[0] = 0;
    return kgen_tuning_rows_merge(counts, path, text, size, err);
}

static void must_merge(kgen_merge_counts *counts, const char *path, const char *text) {
    kgen_error err;
    if (merge(counts, path, text, strlen(text), &err) != KGEN_OK) fail_msg("%s", err.text);
}

/* ---- one row --------------------------------------------------------------- */

static void assert_same_row(const kgen_tuning_row *a, const kgen_tuning_row *b) {
    const kgen_environment *e = &a->environment, *f = &b->environment;
    assert_true(kgen_spec_equal(&a->spec, &b->spec));
    assert_ptr_equal(a->target, b->target);
    assert_memory_equal(&a->problem, &b->problem, sizeof a->problem);
    assert_string_equal(a->kernel, b->kernel);
    assert_string_equal(a->default_kernel, b->default_kernel);
    assert_true(a->us == b->us && a->low == b->low && a->high == b->high);
    assert_true(a->default_us == b->default_us && a->seed == b->seed);
    assert_int_equal(a->samples, b->samples);
    assert_string_equal(e->device, f->device);
    assert_string_equal(e->driver, f->driver);
    assert_string_equal(e->toolchain, f->toolchain);
    assert_string_equal(e->date, f->date);
    assert_int_equal(e->compute_units, f->compute_units);
    assert_int_equal(e->clock_mhz, f->clock_mhz);
    assert_int_equal(e->memory_mhz, f->memory_mhz);
}

static void rows_come_back(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        kgen_tuning_row written = rows_any(), row;
        char line[KGEN_TUNING_LINE_MAX], twice[KGEN_TUNING_LINE_MAX];
        kgen_error err;
        if (kgen_tuning_row_print(line, &written, &err) != KGEN_OK ||
            kgen_tuning_row_parse(&row, line, &err) != KGEN_OK)
            fail_msg("%s (seed %" PRIu64 ")", err.text, rows_seed);
        assert_null(strchr(line, '\n'));
        assert_same_row(&written, &row);
        assert_int_equal(kgen_tuning_row_print(twice, &row, NULL), KGEN_OK);
        assert_string_equal(line, twice);
    }
}

/* Every key with every kind of wrong value. */
static const struct {
    const char *key, *value; /* NULL: left out */
    const char *words;
} poisons[] = {
    {"kgen", NULL, "kgen: the number of the row's format is missing"},
    {"kgen", "2", "kgen=2: this version reads rows of format 1"},
    {"kgen", "\"1\"", "kgen: the number"},
    {"arch", NULL, "arch: a text expected"},
    {"arch", "\"gfx000\"", "arch=gfx000: unknown; known are"},
    {"spec", NULL, "spec: a text expected"},
    {"spec", "3", "spec: a text expected"},
    {"spec", "\"gemm:m=3\"", "spec: family=gemm: unknown; known are attn"},
    {"spec", "\"attn:d=100\"", "spec: d=100: out of bounds"},
    {"spec", "\"attn:colour=1\"", "spec: colour=1"},
    {"problem", NULL, "problem: a JSON object expected"},
    {"problem", "[8,8192]", "problem: a JSON object expected"},
    {"problem", "{\"context\":8}", "batch: missing"},
    {"problem", "{\"batch\":0}", "batch=0: must be 1 to"},
    {"problem", "{\"batch\":-8}", "batch=-8: must be 1 to"},
    {"problem", "{\"batch\":8.5}", "batch: a whole number expected"},
    {"problem", "{\"batch\":4294967304}", "batch=4.2949673e+09: must be"},
    {"problem", "{\"batch\":8,\"context\":-1}", "context=-1: must be 0 to"},
    {"kernel", NULL, "kernel: missing"},
    {"kernel", "\"12\"", "kernel=12: 64 hex digits expected"},
    {"kernel", "\"../../etc\"", "kernel=../../etc: 64 hex digits"},
    {"default_kernel", "null", "default_kernel: a text expected"},
    {"us", NULL, "us: missing"},
    {"us", "0", "us=0: must be"},
    {"us", "-3.5", "us=-3.5: must be"},
    {"us", "1e300", "us=1e+300: must be"},
    {"us", "\"70\"", "us: a number expected"},
    {"us", "70", "us=70: not inside its interval, low=49 to high=51"},
    {"low", "50.5", "us=50: not inside its interval, low=50.5"},
    {"default_us", "0", "default_us=0: must be"},
    {"samples", "-1", "samples=-1: must be 0 to"},
    {"samples", "1.5", "samples: a whole number expected"},
    {"seed", "-1", "seed=-1: must be 0 to"},
    {"device", NULL, "device: missing"},
    {"device", "\"\"", "device=: 0 bytes, 1 to 127 expected"},
    {"device", "\"a\\u001bb\"", "device: byte 1 is 0x1b, printable ASCII expected"},
    {"device", "\"\\u00e9\"", "device: byte 0 is 0xc3"},
    {"driver", "7", "driver: a text expected"},
    {"compute_units", "1e3", "compute_units: a whole number expected"},
    {"clock_mhz", "-1", "clock_mhz=-1: must be 0 to"},
    {"memory_mhz", "99999999", "memory_mhz=99999999: must be 0 to"},
    {"date", NULL, "date: missing"},
    {"date", "\"yesterday\"", "date=yesterday: a date like"},
    {"date", "\"2026-13-22T03:04:05Z\"", "date=2026-13-22T03:04:05Z: a date like"},
    {"date", "\"9999-11-22T03:04:05Z\"", "date=9999"},
    {"date", "\"2026-11-22T03:04:05Z \"", "date="},
};

/* The good row's line with one key changed; free(). */
static char *poisoned(const char *good, const char *key, const char *value) {
    json_t *row = json_loads(good, 0, NULL);
    assert_non_null(row);
    if (value)
        json_object_set_new(row, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(row, key);
    char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    return text;
}

static void assert_refused_row(const char *line, const char *words) {
    kgen_tuning_row row;
    kgen_error err = {KGEN_OK, ""};
    assert_int_equal(kgen_tuning_row_parse(&row, line, &err), KGEN_E_CONFIG);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void bad_rows_are_refused_by_field(void **state) {
    (void)state;
    kgen_tuning_row good = rows_make(PLAIN, "sm_90", EIGHT);
    char line[KGEN_TUNING_LINE_MAX];
    assert_int_equal(kgen_tuning_row_print(line, &good, NULL), KGEN_OK);
    for (size_t i = 0; i < sizeof poisons / sizeof poisons[0]; i++) {
        char *text = poisoned(line, poisons[i].key, poisons[i].value);
        assert_refused_row(text, poisons[i].words);
        free(text);
    }
}

/* What no JSON writer would write. */
static void bad_text_is_refused(void **state) {
    (void)state;
    static const char *const values[] = {
        "NaN", "Infinity", "-Infinity", "1e999", "nan", "0x10", "99999999999999999999999",
        "70,", "",         "'70'",      "70 70"};
    kgen_tuning_row good = rows_make(PLAIN, "sm_90", EIGHT), row;
    char line[KGEN_TUNING_LINE_MAX], text[KGEN_TUNING_LINE_MAX + 64];
    assert_int_equal(kgen_tuning_row_print(line, &good, NULL), KGEN_OK);
    char *at = strstr(line, "\"us\":50.0");
    assert_non_null(at);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        snprintf(text, sizeof text, "%.*s\"us\":%s%s", (int)(at - line), line, values[i],
                 at + strlen("\"us\":50.0"));
        assert_refused_row(text, "row: not valid JSON: byte");
    }
    snprintf(text, sizeof text, "{\"us\":50.0,%s", line + 1); /* given twice */
    assert_refused_row(text, "duplicate object key");
    size_t length = strlen(line);
    for (size_t i = 0; i < length; i++) { /* cut anywhere */
        memcpy(text, line, i);
        text[i] = 0;
        assert_refused_row(text, "row: not valid JSON");
    }
    assert_refused_row("[1]", "row: a JSON object expected");
    assert_int_equal(kgen_tuning_row_parse(&row, line, NULL), KGEN_OK);
}

static void unknown_keys_are_passed_over(void **state) {
    (void)state;
    kgen_tuning_row good = rows_make(PLAIN, "sm_90", EIGHT), row;
    char line[KGEN_TUNING_LINE_MAX];
    kgen_error err;
    assert_int_equal(kgen_tuning_row_print(line, &good, NULL), KGEN_OK);
    char *text = poisoned(line, "colour", "[{\"red\":1}]");
    if (kgen_tuning_row_parse(&row, text, &err) != KGEN_OK) fail_msg("%s", err.text);
    assert_same_row(&good, &row);
    free(text);
}

static void bad_rows_are_not_written(void **state) {
    (void)state;
    const kgen_tuning_row good = rows_make(PLAIN, "sm_90", EIGHT);
    kgen_tuning_row rows[6] = {good, good, good, good, good, good};
    char line[KGEN_TUNING_LINE_MAX] = "untouched";
    kgen_error err;
    rows[0].us = 0;
    rows[1].us = strtod("nan", NULL);
    rows[2].default_us = strtod("inf", NULL);
    rows[3].seed = UINT64_MAX;
    rows[4].environment.driver[0] = '\xff';
    rows[5].problem.batch = 0;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kgen_tuning_row_print(line, &rows[i], &err), KGEN_E_CONFIG);
        assert_string_equal(line, "untouched");
    }
}

/* ---- bad files --------------------------------------------------------------- */

static const kgen_tuning_layer *layer_of(const kgen_tuning *db, const char *name) {
    const kgen_tuning_layer *layers;
    size_t count = kgen_tuning_layers(&layers, db);
    for (size_t i = 0; i < count; i++)
        if (strcmp(layers[i].name, name) == 0) return &layers[i];
    return NULL;
}

/* A good row between a cut line, a line of 10 MB, random bytes and NULs. */
static char *poisoned_file(const char *line, size_t *size) {
    enum { LONG = 10 << 20, RANDOM = 5000 };
    size_t length = strlen(line), used = 0;
    char *bytes = malloc(4 * length + LONG + RANDOM + 100);
    assert_non_null(bytes);
    used += (size_t)sprintf(bytes, "\n  \r\n%.*s\n", (int)length / 2, line); /* line 3 */
    memset(bytes + used, '[', LONG);
    used += LONG;
    used += (size_t)sprintf(bytes + used, "\n\t%s \r\n", line);
    for (int i = 0; i < RANDOM; i++) {
        char c = (char)(1 + rows_random(255));
        bytes[used++] = c == '\n' ? 'x' : c;
    }
    bytes[used++] = '\n';
    memcpy(bytes + used, line, length);
    bytes[used + length / 2] = 0;
    used += length;
    *size = used;
    return bytes;
}

static void a_bad_line_costs_itself(void **state) {
    (void)state;
    kgen_tuning_row good = rows_make(PLAIN, "sm_90", EIGHT);
    char line[KGEN_TUNING_LINE_MAX];
    size_t size;
    assert_int_equal(kgen_tuning_row_print(line, &good, NULL), KGEN_OK);
    char *bytes = poisoned_file(line, &size);
    rows_write(rows_path("user"), bytes, size);
    free(bytes);
    kgen_tuning *db = rows_open();
    const kgen_tuning_layer *user = layer_of(db, "user");
    assert_int_equal(user->count, 1);
    assert_int_equal(user->bad, 4);
    assert_non_null(strstr(user->why, "user:3: row: not valid JSON"));
    assert_same_row(&user->rows[0], &good);
    assert_null(layer_of(db, "system")->why);
    kgen_tuning_close(db);
}

static void files_that_cannot_be_read_are_empty(void **state) {
    (void)state;
    assert_int_equal(mkdir(rows_path("user"), 0700), 0);
    assert_int_equal(mkfifo(rows_path("system"), 0600), 0); /* must not be waited for */
    kgen_tuning *db = rows_open();
    assert_int_equal(layer_of(db, "user")->count, 0);
    assert_non_null(strstr(layer_of(db, "user")->why, "Is a directory"));
    assert_int_equal(layer_of(db, "system")->count, 0);
    kgen_tuning_close(db);
    char *big = calloc(1, KGEN__ROWS_TEXT_MAX + 1);
    assert_non_null(big);
    memset(big, '\n', KGEN__ROWS_TEXT_MAX + 1);
    assert_int_equal(rmdir(rows_path("user")), 0);
    rows_write(rows_path("user"), big, KGEN__ROWS_TEXT_MAX + 1);
    free(big);
    db = rows_open();
    assert_non_null(strstr(layer_of(db, "user")->why, "more than 67108864 bytes"));
    kgen_tuning_close(db);
}

static void shipped_rows_are_good(void **state) {
    (void)state;
    kgen_tuning *db = rows_open();
    const kgen_tuning_layer *shipped = layer_of(db, "shipped");
    assert_non_null(shipped);
    if (shipped->why) fail_msg("tuning/%s", shipped->why);
    kgen_tuning_close(db);
}

static void shipped_rows_are_valid(void **state) {
    (void)state;
    kgen_tuning *db = rows_open();
    const kgen_tuning_layer *shipped = layer_of(db, "shipped");
    size_t stale = 0;
    for (size_t i = 0; i < shipped->count; i++) {
        kgen_error err;
        int is_stale;
        if (kgen_tuning_row_stale(&is_stale, &shipped->rows[i], &err) != KGEN_OK)
            fail_msg("%s", err.text);
        stale += is_stale;
    }
    if (stale)
        fail_msg("%zu of %zu shipped rows are stale. Where the machine code is as before: "
                 "kgen tuning restamp tuning/rows/*.jsonl --before DIR (docs/tuning.md). Where it "
                 "is not: what `kgen tuning renew --layer shipped` prints.",
                 stale, shipped->count);
    kgen_tuning_close(db);
}

/* ---- which file --------------------------------------------------------------- */

static void the_users_file_is_found(void **state) {
    (void)state;
    const char *cache = getenv("KGEN_CACHE_DIR");
    char *kept = cache ? strdup(cache) : NULL, out[ROWS_PATH_BYTES], small[4];
    kgen_tuning *db;
    kgen_error err;
    setenv("KGEN_CACHE_DIR", rows_folder, 1);
    assert_int_equal(kgen_tuning_user_path(out, sizeof out, NULL, &err), KGEN_OK);
    assert_string_equal(out, rows_path("tuning.jsonl"));
    setenv("KGEN_TUNING", rows_path("mine"), 1);
    assert_int_equal(kgen_tuning_user_path(out, sizeof out, NULL, &err), KGEN_OK);
    assert_string_equal(out, rows_path("mine"));
    assert_int_equal(kgen_tuning_user_path(out, sizeof out, "given", &err), KGEN_OK);
    assert_string_equal(out, "given");
    assert_int_equal(kgen_tuning_user_path(small, sizeof small, "given", &err), KGEN_E_IO);
    assert_int_equal(kgen_tuning_user_path(out, sizeof out, "", &err), KGEN_E_ARG);
    assert_int_equal(kgen_tuning_open(&db, NULL, &err), KGEN_OK);
    assert_string_equal(layer_of(db, "user")->path, rows_path("mine"));
    assert_non_null(layer_of(db, "shipped"));
    kgen_tuning_close(db);
    setenv("KGEN_TUNING", "", 1); /* none */
    assert_int_equal(kgen_tuning_open(&db, NULL, &err), KGEN_OK);
    assert_null(layer_of(db, "shipped"));
    kgen_tuning_close(db);
    unsetenv("KGEN_TUNING");
    setenv("KGEN_CACHE_DIR", "/dev/null/x", 1);
    assert_int_equal(kgen_tuning_user_path(out, sizeof out, NULL, &err), KGEN_E_IO);
    assert_non_null(strstr(err.text, "set KGEN_TUNING"));
    assert_int_equal(kgen_tuning_open(&db, NULL, &err), KGEN_OK);
    assert_null(layer_of(db, "user"));
    kgen_tuning_close(db);
    kgen_tuning_close(NULL);
    if (kept)
        setenv("KGEN_CACHE_DIR", kept, 1);
    else
        unsetenv("KGEN_CACHE_DIR");
    free(kept);
}

/* ---- merging --------------------------------------------------------------- */

static void merging_is_all_or_nothing(void **state) {
    (void)state;
    kgen_tuning_row rows[3];
    kgen_merge_counts counts;
    kgen_error err;
    for (int i = 0; i < 3; i++) rows[i] = rows_make(PLAIN, "sm_90", (kgen_problem){1 + i, 8192, 8});
    const char *path = rows_path("below/the/user");
    char *text = rows_text(rows, 3), *second = strchr(text, '\n') + 1;
    second[10] = '!';
    assert_int_equal(merge(&counts, path, text, strlen(text), &err), KGEN_E_CONFIG);
    assert_non_null(strstr(err.text, "line 2: row: not valid JSON"));
    assert_non_null(strstr(err.text, "nothing was changed"));
    assert_int_equal(access(rows_path("below"), F_OK), -1); /* nothing was made either */
    free(text);

    text = rows_text(rows, 2);
    must_merge(&counts, path, text);
    assert_int_equal(counts.added, 2);
    free(text);
    size_t size, size_after;
    char *before = rows_read_file(path, &size);
    text = rows_text(rows, 3);
    text[strlen(text) - 2] = 0; /* the last line is cut */
    assert_int_equal(merge(&counts, path, text, strlen(text), &err), KGEN_E_CONFIG);
    assert_non_null(strstr(err.text, "line 3: "));
    char *after = rows_read_file(path, &size_after);
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
    free(text);
}

static void the_newer_row_stays(void **state) {
    (void)state;
    static const struct {
        const char *date;
        kgen_merge_counts counts;
        double us;
    } steps[] = {
        {"2026-01-02T00:00:00Z", {1, 0, 0}, 50},
        {"2026-01-02T00:00:00Z", {0, 0, 1}, 50},
        {"2026-01-01T23:59:59Z", {0, 0, 1}, 50},
        {"2026-01-02T00:00:01Z", {0, 1, 0}, 50.5},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        kgen_tuning_row row = rows_make(PLAIN, "sm_90", EIGHT);
        kgen_merge_counts counts;
        strcpy(row.environment.date, steps[i].date);
        if (i > 1) row.us = 50.5; /* slower: dates decide, not times */
        char *text = rows_text(&row, 1);
        must_merge(&counts, rows_path("user"), text);
        free(text);
        assert_memory_equal(&counts, &steps[i].counts, sizeof counts);
        kgen_tuning *db = rows_open();
        assert_int_equal(layer_of(db, "user")->count, 1);
        assert_true(layer_of(db, "user")->rows[0].us == steps[i].us);
        kgen_tuning_close(db);
    }
}

/* What is another measurement, and what the same one again. */
static void keys_are_what_was_measured_where(void **state) {
    (void)state;
    const kgen_tuning_row first = rows_make(PLAIN, "sm_90", EIGHT);
    kgen_tuning_row rows[9] = {first,
                               rows_make(PLAIN ",waves=4", "sm_90", EIGHT),
                               rows_make(PLAIN ",kv=fp8", "sm_90", EIGHT),
                               rows_make(PLAIN, "gfx942", EIGHT),
                               first,
                               first,
                               first,
                               first,
                               first};
    kgen_merge_counts counts;
    rows[1].us = 49.5; /* other tuning keys: the same measurement again */
    rows[4].problem.context = 8193;
    rows[5].problem.heads = 7;
    strcpy(rows[6].environment.device, "Other GPU");
    strcpy(rows[7].environment.driver, "1.3");
    strcpy(rows[8].environment.toolchain, "compiler 4");
    char *text = rows_text(rows, 9);
    must_merge(&counts, rows_path("user"), text);
    free(text);
    assert_int_equal(counts.added, 8);
    assert_int_equal(counts.kept, 1);
}

/* Some rows of few keys, with few dates. */
static char *some_rows(size_t count) {
    kgen_tuning_row *rows = calloc(count, sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < count; i++) {
        rows[i] = rows_make(rows_random(2) ? PLAIN : PLAIN ",waves=4", "sm_90",
                            (kgen_problem){1 + (int32_t)rows_random(10), 8192, 8});
        rows[i].us = 49 + rows_random(2000) / 1000.0;
        snprintf(rows[i].environment.date, sizeof rows[i].environment.date,
                 "2026-01-%02uT00:00:00Z", 1 + rows_random(4));
    }
    char *text = rows_text(rows, count);
    free(rows);
    return text;
}

static void assert_sorted(const char *text) {
    const char *end = strchr(text, '\n');
    while (end && end[1]) {
        const char *next = strchr(end + 1, '\n');
        size_t a = (size_t)(end - text), b = (size_t)(next - end - 1);
        int order = memcmp(text, end + 1, a < b ? a : b);
        assert_true(order < 0 || (order == 0 && a < b));
        text = end + 1;
        end = next;
    }
}

static void merging_commutes(void **state) {
    (void)state;
    for (int round = 0; round < 10; round++) {
        kgen_merge_counts counts;
        char *a = some_rows(30), *b = some_rows(30);
        size_t size, other_size;
        unlink(rows_path("ab"));
        unlink(rows_path("ba"));
        must_merge(&counts, rows_path("ab"), a);
        assert_int_equal(counts.added + counts.replaced + counts.kept, 30);
        must_merge(&counts, rows_path("ab"), b);
        assert_int_equal(counts.added + counts.replaced + counts.kept, 30);
        must_merge(&counts, rows_path("ba"), b);
        must_merge(&counts, rows_path("ba"), a);
        must_merge(&counts, rows_path("ba"), b);
        char *ab = rows_read_file(rows_path("ab"), &size);
        char *ba = rows_read_file(rows_path("ba"), &other_size);
        if (size != other_size || memcmp(ab, ba, size) != 0)
            fail_msg("merged in two orders, two files (seed %" PRIu64 ")", rows_seed);
        assert_sorted(ab);
        free(a), free(b), free(ab), free(ba);
    }
}

static void bad_lines_of_the_file_stay(void **state) {
    (void)state;
    static const char bad[] = "{\"kgen\":99,\"of\":\"a later version\"}\nnonsense\n";
    kgen_tuning_row row = rows_make(PLAIN, "sm_90", EIGHT);
    kgen_merge_counts counts;
    size_t size;
    rows_write(rows_path("user"), bad, strlen(bad));
    assert_int_equal(chmod(rows_path("user"), 0640), 0);
    assert_int_equal(symlink("user", rows_path("link")), 0);
    char *text = rows_text(&row, 1);
    must_merge(&counts, rows_path("link"), text);
    char *file = rows_read_file(rows_path("user"), &size);
    assert_int_equal(size, strlen(text) + strlen(bad));
    assert_memory_equal(file, text, strlen(text));
    assert_string_equal(file + strlen(text), bad);
    struct stat info;
    assert_int_equal(lstat(rows_path("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(rows_path("user"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    free(text);
    free(file);
}

/* What a row of a later version says beside is not lost. */
static void rows_are_kept_as_written(void **state) {
    (void)state;
    kgen_tuning_row row = rows_make(PLAIN, "sm_90", EIGHT);
    kgen_merge_counts counts;
    size_t size;
    char *text = rows_text(&row, 1), *colour = poisoned(text, "colour", "\"red\"");
    must_merge(&counts, rows_path("user"), colour);
    row.problem.batch = 9;
    free(text);
    text = rows_text(&row, 1);
    must_merge(&counts, rows_path("user"), text);
    char *file = rows_read_file(rows_path("user"), &size);
    assert_non_null(strstr(file, colour));
    free(text), free(colour), free(file);
}

enum { PROCESSES = 4, ROWS_EACH = 25 };

static void merge_one_by_one(int process) {
    for (int i = 0; i < ROWS_EACH; i++) {
        kgen_tuning_row row = rows_make(PLAIN, "sm_90", (kgen_problem){1 + i, 1 + process, 8});
        kgen_merge_counts counts;
        kgen_error err;
        char *text = rows_text(&row, 1);
        if (merge(&counts, rows_path("user"), text, strlen(text), &err) != KGEN_OK) _exit(1);
        free(text);
        if (counts.added != 1) _exit(2);
    }
    _exit(0);
}

static void processes_that_merge_lose_nothing(void **state) {
    (void)state;
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) merge_one_by_one(i);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    kgen_tuning *db = rows_open();
    assert_int_equal(layer_of(db, "user")->count, PROCESSES * ROWS_EACH);
    assert_int_equal(layer_of(db, "user")->bad, 0);
    kgen_tuning_close(db);
    assert_int_equal(access(rows_path("user.tmp"), F_OK), -1);
}

static void a_lock_is_waited_for_so_long(void **state) {
    (void)state;
    kgen_tuning_row row = rows_make(PLAIN, "sm_90", EIGHT);
    kgen_merge_counts counts;
    kgen_error err;
    int fd = open(rows_path("user.lock"), O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    char *text = rows_text(&row, 1);
    assert_int_equal(merge(&counts, rows_path("user"), text, strlen(text), &err), KGEN_E_IO);
    assert_non_null(strstr(err.text, "user.lock: another process has held it for 5 s"));
    assert_int_equal(access(rows_path("user"), F_OK), -1);
    close(fd);
    must_merge(&counts, rows_path("user"), text);
    free(text);
}

static void places_that_cannot_be_written_are_named(void **state) {
    (void)state;
    enum { NOBODY = 65534 };
    kgen_tuning_row row = rows_make(PLAIN, "sm_90", EIGHT);
    kgen_merge_counts counts;
    kgen_error err, why;
    char *text = rows_text(&row, 1);
    assert_int_equal(merge(&counts, "/dev/null/x", text, strlen(text), &err), KGEN_E_IO);
    assert_non_null(strstr(err.text, "/dev/null/x"));
    must_merge(&counts, rows_path("user"), text);
    row.problem.batch = 9;
    free(text);
    text = rows_text(&row, 1);
    assert_int_equal(chmod(rows_folder, 0555), 0);
    if (geteuid() == 0) assert_int_equal(seteuid(NOBODY), 0); /* root writes everywhere */
    kgen_status again = merge(&counts, rows_path("user"), text, strlen(text), &err);
    kgen_status fresh = merge(&counts, rows_path("new"), text, strlen(text), &why);
    kgen_tuning *db = rows_open(); /* reading needs no more */
    assert_int_equal(seteuid(getuid()), 0);
    assert_int_equal(again, KGEN_E_IO);
    assert_int_equal(fresh, KGEN_E_IO);
    assert_non_null(strstr(err.text, "Permission denied"));
    assert_int_equal(layer_of(db, "user")->count, 1);
    kgen_tuning_close(db);
    assert_int_equal(chmod(rows_folder, 0700), 0);
    free(text);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, rows_fresh, rows_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(bad_rows_are_refused_by_field),
        cmocka_unit_test(bad_text_is_refused),
        cmocka_unit_test(unknown_keys_are_passed_over),
        cmocka_unit_test(bad_rows_are_not_written),
        FRESH(a_bad_line_costs_itself),
        FRESH(files_that_cannot_be_read_are_empty),
        FRESH(shipped_rows_are_good),
        FRESH(shipped_rows_are_valid),
        FRESH(the_users_file_is_found),
        FRESH(merging_is_all_or_nothing),
        FRESH(the_newer_row_stays),
        FRESH(keys_are_what_was_measured_where),
        FRESH(merging_commutes),
        FRESH(bad_lines_of_the_file_stay),
        FRESH(rows_are_kept_as_written),
        FRESH(processes_that_merge_lose_nothing),
        FRESH(a_lock_is_waited_for_so_long),
        FRESH(places_that_cannot_be_written_are_named),
    };
    if (rows_start() != 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

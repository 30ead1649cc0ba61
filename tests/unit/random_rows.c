/* A folder of row files for each test, and rows with random contents. */
#include "random_rows.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "seed.h"

char rows_folder[64];
uint64_t rows_seed;

static uint64_t state_of_random;

int rows_start(void) {
    state_of_random = rows_seed = test_seed();
    return unsetenv("KGEN_TUNING");
}

uint32_t rows_random(uint32_t below) {
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state_of_random >> 33) % below;
}

int rows_fresh(void **state) {
    (void)state;
    strcpy(rows_folder, "/tmp/kgen-tuning-XXXXXX");
    return mkdtemp(rows_folder) ? 0 : -1;
}

int rows_remove(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", rows_folder);
    return system(command);
}

const char *rows_path(const char *name) {
    static char paths[4][ROWS_PATH_BYTES];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, ROWS_PATH_BYTES, "%s/%s", rows_folder, name);
    return path;
}

void rows_write(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

char *rows_read_file(const char *path, size_t *size) {
    kgen_error err;
    char *text;
    if (kgen_tuning_rows_read(&text, size, path, &err) != KGEN_OK) fail_msg("%s", err.text);
    return text;
}

kgen_spec rows_spec(const char *line) {
    kgen_spec spec;
    kgen_error err;
    if (kgen_spec_parse(&spec, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    return spec;
}

const kgen_target *rows_target(const char *name) {
    const kgen_target *target = NULL;
    assert_int_equal(kgen_target_find(&target, name, NULL), KGEN_OK);
    return target;
}

static void digest(char out[65], const kgen_spec *spec, const kgen_target *target) {
    kgen_error err;
    if (kgen_tuning_row_digest(out, spec, target, &err) != KGEN_OK) fail_msg("%s", err.text);
}

kgen_tuning_row rows_make(const char *line, const char *arch, kgen_problem problem) {
    kgen_tuning_row row = {.target = rows_target(arch),
                           .problem = problem,
                           .us = 50,
                           .low = 49,
                           .high = 51,
                           .default_us = 60,
                           .samples = 15,
                           .seed = 7};
    kgen_spec spec = rows_spec(line), rule;
    kgen_error err;
    strcpy(row.environment.device, "Test GPU");
    strcpy(row.environment.driver, "1.2");
    strcpy(row.environment.toolchain, "compiler 3");
    strcpy(row.environment.date, "2026-11-22T03:04:05Z");
    if (kgen_spec_resolve(&row.spec, &spec, row.target, &err) != KGEN_OK) fail_msg("%s", err.text);
    kgen_spec_open_tuning(&spec);
    if (kgen__family_rule(&rule, &spec, &problem, row.target, &err) != KGEN_OK)
        fail_msg("%s", err.text);
    digest(row.kernel, &row.spec, row.target);
    digest(row.default_kernel, &rule, row.target);
    return row;
}

static void random_text(char *out, size_t size) {
    size_t length = 1 + rows_random((uint32_t)size - 1);
    for (size_t i = 0; i < length; i++) out[i] = (char)(' ' + rows_random('~' - ' ' + 1));
    out[length] = 0;
}

kgen_tuning_row rows_any(void) {
    static const char *const lines[] = {
        "attn:d=128,g=8",           "attn:d=80,g=3,waves=2,occ=1", "attn:d=64,kv=fp8,page=1,mt=2",
        "gdn:layout=flat",          "gdn:layout=flat,batch=few",   "gdn:layout=presplit,fuse=c",
        "kv_write:kv=fp8,waves=2",  "kv_gather:kv=fp8,turns=1",    "scatter:op=spec_prepare",
        "attn_merge:o=fp8,turns=2",
    };
    static const char *const archs[] = {"sm_90", "gfx942", "cpu:rdna3"};
    kgen_problem problem = {1 + (int32_t)rows_random(1 << 24), (int32_t)rows_random(1 << 28),
                            (int32_t)rows_random(1 << 16)};
    kgen_tuning_row row = rows_make(lines[rows_random(sizeof lines / sizeof lines[0])],
                                    archs[rows_random(3)], problem);
    kgen_environment *e = &row.environment;
    uint32_t us = 1 + rows_random(999999999); /* nine digits, as they are written */
    row.us = us / 1000.0;
    row.low = (1 + rows_random(us)) / 1000.0;
    row.high = (us + rows_random(1000000000 - us)) / 1000.0;
    row.default_us = (1 + rows_random(999999999)) / 1000.0;
    row.samples = (int32_t)rows_random(1 << 24);
    row.seed = (uint64_t)rows_random(1u << 30) << 33 | rows_random(1u << 30);
    random_text(e->device, sizeof e->device);
    random_text(e->driver, sizeof e->driver);
    random_text(e->toolchain, sizeof e->toolchain);
    e->compute_units = (int32_t)rows_random(1 << 16);
    e->clock_mhz = (int32_t)rows_random(1 << 16);
    e->memory_mhz = (int32_t)rows_random(1 << 16);
    snprintf(e->date, sizeof e->date, "20%02u-%02u-%02uT%02u:%02u:%02uZ", rows_random(100),
             1 + rows_random(12), 1 + rows_random(31), rows_random(24), rows_random(60),
             rows_random(60));
    return row;
}

char *rows_text(const kgen_tuning_row *rows, size_t count) {
    char *text = calloc(count, KGEN_TUNING_LINE_MAX), *at = text;
    kgen_error err;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) {
        if (kgen_tuning_row_print(at, &rows[i], &err) != KGEN_OK) fail_msg("%s", err.text);
        at += strlen(at);
        *at++ = '\n';
    }
    *at = 0;
    return text;
}

void rows_save(const char *name, const kgen_tuning_row *rows, size_t count) {
    char *text = rows_text(rows, count);
    rows_write(rows_path(name), text, strlen(text));
    free(text);
}

kgen_tuning *rows_open(void) {
    kgen_tuning *db = NULL;
    kgen_error err;
    if (kgen__tuning_open_files(&db, rows_path("user"), rows_path("system"), &err) != KGEN_OK)
        fail_msg("%s", err.text);
    return db;
}

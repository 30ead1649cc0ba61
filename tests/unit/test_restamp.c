/* A row is stamped again only where the code of the kernel that was timed is
 * what its spec is built to now. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/restamp.c"

static char folder[] = "/tmp/kgen-restamp-XXXXXX";
static const kgen_target *target;
static kgen_spec spec, other; /* resolved */

static kgen_spec resolved(const char *line) {
    kgen_spec parsed, out = {0};
    kgen_error err;
    if (kgen_spec_parse(&parsed, line, &err) != KGEN_OK ||
        kgen_spec_resolve(&out, &parsed, target, &err) != KGEN_OK)
        fail_msg("%s", err.text);
    return out;
}

/* Stores `named` as an older version might have built it: its source has a
 * token more, and its code is that of `code`. */
static void store_older(char digest[KGEN_KEY_HEX], const kgen_spec *named, const kgen_spec *code,
                        int number) {
    const kgen_build_options options = {.size = sizeof options, .workers = 1};
    const kgen_job jobs[] = {{*named, target}, {*code, target}};
    kgen_job_result built[2];
    kgen_cache *cache;
    kgen_key source;
    kgen_error err;
    if (kgen_cache_open(&cache, folder, &err) != KGEN_OK ||
        kgen_build(cache, jobs, 2, &options, built, &err) != KGEN_OK)
        fail_msg("%s", err.text);
    kgen_entry *e = built[0].entry, *from = built[1].entry;
    char *text = malloc(e->source_size + 64);
    assert_non_null(text);
    e->source_size = (size_t)sprintf(text, "#define KG_OLDER %d\n%s", number, e->source);
    free(e->source);
    e->source = text;
    e->key.bytes[0] ^= (uint8_t)number;
    uint8_t *kept = e->code;
    e->code = from->code, from->code = kept;
    size_t size = e->code_size;
    e->code_size = from->code_size, from->code_size = size;
    if (kgen_cache_put(cache, e, &err) != KGEN_OK) fail_msg("%s", err.text);
    kgen_source_digest(source.bytes, e->source, e->source_size);
    kgen_key_hex(digest, &source);
    kgen_entry_free(e);
    kgen_entry_free(from);
    kgen_cache_close(cache);
}

/* A file of one row of `spec`; restamp on it counts as given. */
static void expect(const char *kernel, const char *by_default, size_t valid, size_t stamped,
                   size_t stale) {
    char path[64], line[KGEN_TUNING_LINE_MAX];
    kgen_error err;
    restamp r = {0};
    kgen_tuning_row row = {.spec = spec, .target = target, .problem = {8, 0, 0}};
    row.us = row.low = row.high = 1, row.default_us = 2, row.samples = 9;
    row.environment = (kgen_environment){"d", "1", "t", 4, 0, 0, "2026-01-02T00:00:00Z"};
    memcpy(row.kernel, kernel, sizeof row.kernel);
    memcpy(row.default_kernel, by_default, sizeof row.default_kernel);
    if (kgen_tuning_row_print(line, &row, &err) != KGEN_OK) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/rows", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", line);
    assert_int_equal(fclose(file), 0);
    char *files[] = {path};
    kgen_status status = run(&r, folder, files, 1, &err);
    if (status != KGEN_OK) fail_msg("%s", err.text);
    assert_int_equal(r.valid, valid);
    assert_int_equal(r.stamped, stamped);
    assert_int_equal(r.stale, stale);
    free_kernels(&r);
    char *text;
    size_t size;
    int is_stale;
    assert_int_equal(kgen_tuning_rows_read(&text, &size, path, &err), KGEN_OK);
    text[strcspn(text, "\n")] = 0;
    assert_int_equal(kgen_tuning_row_parse(&row, text, &err), KGEN_OK);
    assert_int_equal(kgen_tuning_row_stale(&is_stale, &row, &err), KGEN_OK);
    assert_int_equal(is_stale, stale != 0);
    free(text);
}

static void test_restamp(void **state) {
    (void)state;
    kgen_toolchain tc;
    kgen_error err;
    char now[KGEN_KEY_HEX], same[KGEN_KEY_HEX], changed[KGEN_KEY_HEX], foreign[KGEN_KEY_HEX];
    static const char unknown[KGEN_KEY_HEX] =
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    assert_int_equal(kgen_target_find(&target, "cpu", &err), KGEN_OK);
    if (kgen_toolchain_find(&tc, target, &err) != KGEN_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    spec = resolved("kv_gather:d=64");
    other = resolved("kv_gather:d=64,from=end"); /* the same symbol, other code */
    store_older(same, &spec, &spec, 1);
    store_older(changed, &spec, &other, 2);
    store_older(foreign, &other, &other, 3);
    assert_int_equal(kgen_tuning_row_digest(now, &spec, target, &err), KGEN_OK);
    expect(now, now, 1, 0, 0);
    expect(same, same, 0, 1, 0);
    expect(same, foreign, 0, 1, 0); /* the default may be another spec */
    expect(changed, same, 0, 0, 1);
    expect(same, changed, 0, 0, 1);
    expect(foreign, same, 0, 0, 1);
    expect(unknown, same, 0, 0, 1);
}

static int set_up(void **state) {
    (void)state;
    return mkdtemp(folder) ? setenv("KGEN_CACHE_DIR", folder, 1) : -1;
}

static int tear_down(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_restamp)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

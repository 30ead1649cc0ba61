/* kgen check --replay: captured launches, run again. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check/check.h"
#include "cli.h"

typedef struct totals {
    size_t passed, failed;
    kgen_status first_failure;
    json_t *rows; /* NULL: text */
} totals;

static void when(char out[32], uint64_t seconds) {
    time_t time = (time_t)seconds;
    struct tm utc;
    gmtime_r(&time, &utc);
    strftime(out, 32, "%Y-%m-%d %H:%M:%S", &utc);
}

static void print_about(const kgen_capture *c, const char *file) {
    char line[KGEN_SPEC_LINE_MAX], key[KGEN_KEY_HEX], date[32];
    size_t bytes = 0;
    kgen_spec_print(line, &c->spec);
    kgen_key_hex(key, &c->key);
    when(date, c->unix_time);
    for (size_t i = 0; i < c->region_count; i++) bytes += c->regions[i].size;
    printf("%s\n  %s\n  %.12s of %s by kgen %s, %s; %s UTC, %zu bytes\n", file, line, key,
           c->device, c->version, c->toolchain, date, bytes);
}

static void print_passed(const kgen__replay_result *r) {
    const char *bits = r->same_bits ? "the captured bits" : "other bits than captured, both right";
    if (r->has_reference)
        printf("ok    %s; error %.3g, %.2f of the tolerance\n", bits, r->replay.max_abs,
               r->replay.max_ratio);
    else
        printf("ok    %s; no reference for negative strides\n", bits);
}

static void add_row(totals *t, const kgen_capture *c, const char *file,
                    const kgen__replay_result *r, kgen_status status, const char *message) {
    char line[KGEN_SPEC_LINE_MAX] = "";
    if (c) kgen_spec_print(line, &c->spec);
    json_array_append_new(
        t->rows,
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:b, s:b, s:b, s:f, s:s}", "file", file, "spec",
                  line, "captured_on", c ? c->device : "", "captured_by", c ? c->version : "",
                  "passed", status == KGEN_OK, "status", kgen_status_name(status), "same_bits",
                  r->same_bits, "captured_right", r->captured_right, "replay_right",
                  r->replay_right, "max_ratio", r->replay.max_ratio, "message", message));
}

static void replay_file(kgen_context *ctx, const char *file, const kgen__replay_settings *set,
                        totals *t) {
    const kgen__replay_options options = {.keep_tuning = set->keep_tuning};
    kgen__replay_result result;
    kgen_capture *capture = NULL;
    kgen_error why = {KGEN_OK, ""}, err = {KGEN_OK, ""};
    memset(&result, 0, sizeof result);
    kgen_status status = kgen_capture_load(&capture, file, &err);
    if (status == KGEN_OK) {
        if (!set->quiet && !t->rows) print_about(capture, file);
        status = kgen__replay_run(&result, ctx, capture, &options, &why);
        if (status != KGEN_OK) kgen_fail(&err, status, "%.300s: %.700s", file, why.text);
    }
    if (t->rows) add_row(t, capture, file, &result, status, err.text);
    kgen_capture_free(capture);
    if (status == KGEN_OK) {
        t->passed++;
        if (!set->quiet && !t->rows) print_passed(&result);
        return;
    }
    if (!t->failed++) t->first_failure = status;
    kgen__cli_fail(&err);
}

static int finish(const totals *t, const char *device) {
    int code = t->failed ? kgen_status_exit_code(t->first_failure) : 0;
    if (t->rows) {
        int printed = kgen__json_print(json_pack("{s:s, s:I, s:I, s:O}", "device", device, "passed",
                                                 (json_int_t)t->passed, "failed",
                                                 (json_int_t)t->failed, "captures", t->rows));
        return code ? code : printed;
    }
    printf("%zu passed, %zu failed on %s\n", t->passed, t->failed, device);
    return code;
}

int kgen__replay_files(const kgen__replay_settings *set, char **files, size_t count) {
    kgen_error err;
    kgen_context *ctx = NULL;
    const kgen_open_options options = {.size = sizeof options,
                                       .device = set->device,
                                       .cache_dir = set->cache_dir,
                                       .log = kgen__cli_log};
    if (kgen_open(&ctx, &options, &err) != KGEN_OK) return kgen__cli_fail(&err);
    totals t = {.rows = set->json ? json_array() : NULL};
    for (size_t i = 0; i < count; i++) replay_file(ctx, files[i], set, &t);
    int code = finish(&t, kgen_context_device(ctx));
    json_decref(t.rows);
    kgen_close(ctx);
    return code;
}

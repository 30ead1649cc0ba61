/* KGEN_CAPTURE: which launches are saved, and saving one. A capture waits for
 * the device and reads all of a launch's memory twice; that it fails is told to
 * the log and changes nothing about the launch. */
#define _GNU_SOURCE
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "capture_parts.h"
#include "capture_format.h"
#include "runtime/checks.h"

/* What is known of a kernel that was launched. */
typedef struct seen {
    const kgen_kernel *kernel;
    int matches, warned; /* warned: of a stream that captures */
    uint64_t launches;   /* that match */
    UT_hash_handle hh;
} seen;

struct kgen__capture {
    pthread_mutex_t lock; /* of all below */
    char *globs, *dir;    /* globs: each ends with 0, the list with "" */
    uint64_t skip, count, max;
    seen *kernels;
};

struct kgen__taking {
    kgen__capture *capture;
    const kgen_kernel *kernel;
    kgen_args args;
    kgen_args_room room;
    kgen_stream stream;
    kgen__regions regions;
    kgen__blobs blobs;
    uint8_t *buffer; /* of the largest region */
};

static void warn(const kgen_kernel *kernel, const char *why) {
    char symbol[KGEN_SYMBOL_MAX];
    kgen_spec_symbol(symbol, &kernel->spec);
    kgen__log(kernel->ctx, KGEN_LOG_WARNING, "capture of %s: %s", symbol, why);
}

/* ---- variables ----------------------------------------------------------------- */

static const char *variable(const char *name) {
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static int suffix_shift(const char *suffix) {
    static const char letters[] = "KMG";
    const char *at = *suffix ? strchr(letters, *suffix) : NULL;
    if (!*suffix) return 0;
    return at && !suffix[1] ? 10 * (int)(at - letters + 1) : -1;
}

/* A number; where `bytes`, K, M or G may follow. */
static kgen_status take_number(uint64_t *out, const char *name, uint64_t low, uint64_t high,
                               int bytes, kgen_error *err) {
    const char *text = variable(name);
    char *end;
    if (!text) return KGEN_OK;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    int shift = bytes ? suffix_shift(end) : *end ? -1 : 0;
    int bad = text[0] < '0' || text[0] > '9' || errno || shift < 0;
    NEED(!bad && number <= high >> shift && number << shift >= low,
         "%s=%.60s: a number %llu..%llu%s expected", name, text, (unsigned long long)low,
         (unsigned long long)high, bytes ? " of bytes, or with K, M or G behind it," : "");
    *out = number << shift;
    return KGEN_OK;
}

/* "a,b" -> "a\0b\0\0". */
static char *split(const char *text) {
    size_t length = strlen(text);
    char *list = calloc(1, length + 2);
    for (size_t i = 0; list && i < length; i++) list[i] = text[i] == ',' ? '\0' : text[i];
    return list;
}

static kgen_status check_globs(const char *text, kgen_error *err) {
    NEED(text[0] != ',' && !strstr(text, ",,") && text[strlen(text) - 1] != ',',
         "KGEN_CAPTURE=%.200s: an empty pattern; write glob[,glob]", text);
    return KGEN_OK;
}

static kgen_status take_dir(kgen__capture *c, kgen_error *err) {
    const char *dir = variable("KGEN_CAPTURE_DIR");
    struct stat st;
    if (!dir) dir = ".";
    NEED(strlen(dir) < KGEN__CAPTURE_PATH_MAX / 2, "KGEN_CAPTURE_DIR: %zu bytes, at most %d",
         strlen(dir), KGEN__CAPTURE_PATH_MAX / 2 - 1);
    NEED(stat(dir, &st) == 0, "KGEN_CAPTURE_DIR=%.200s: %s; an existing folder expected", dir,
         strerror(errno));
    NEED(S_ISDIR(st.st_mode) && access(dir, W_OK | X_OK) == 0,
         "KGEN_CAPTURE_DIR=%.200s: a folder that can be written to expected", dir);
    c->dir = strdup(dir);
    return c->dir ? KGEN_OK : kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
}

kgen_status kgen__capture_max(uint64_t *out, kgen_error *err) {
    *out = (uint64_t)2 << 30;
    return take_number(out, "KGEN_CAPTURE_MAX", 1, KGEN__CAPTURE_BYTES_MAX, 1, err);
}

static kgen_status take_variables(kgen__capture *c, const char *globs, kgen_error *err) {
    c->count = 1;
    KGEN_TRY(check_globs(globs, err));
    KGEN_TRY(take_number(&c->skip, "KGEN_CAPTURE_SKIP", 0, INT64_MAX, 0, err));
    KGEN_TRY(take_number(&c->count, "KGEN_CAPTURE_COUNT", 1, INT64_MAX, 0, err));
    KGEN_TRY(kgen__capture_max(&c->max, err));
    c->globs = split(globs);
    if (!c->globs) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    return take_dir(c, err);
}

kgen_status kgen__capture_open(kgen__capture **out, kgen_error *err) {
    const char *globs = variable("KGEN_CAPTURE");
    *out = NULL;
    if (!globs) return KGEN_OK;
    kgen__capture *c = calloc(1, sizeof *c);
    if (!c) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    pthread_mutex_init(&c->lock, NULL);
    kgen_status status = take_variables(c, globs, err);
    if (status == KGEN_OK)
        *out = c;
    else
        kgen__capture_close(c);
    return status;
}

void kgen__capture_close(kgen__capture *c) {
    seen *kernel, *next;
    if (!c) return;
    HASH_ITER(hh, c->kernels, kernel, next) {
        HASH_DEL(c->kernels, kernel);
        free(kernel);
    }
    pthread_mutex_destroy(&c->lock);
    free(c->globs);
    free(c->dir);
    free(c);
}

void kgen__capture_forget(kgen__capture *c, const kgen_kernel *kernel) {
    seen *found = NULL;
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    HASH_FIND_PTR(c->kernels, &kernel, found);
    if (found) HASH_DEL(c->kernels, found);
    free(found);
    pthread_mutex_unlock(&c->lock);
}

/* ---- which launch ----------------------------------------------------------------- */

static int matches(const kgen__capture *c, const kgen_kernel *kernel) {
    char symbol[KGEN_SYMBOL_MAX], line[KGEN_SPEC_LINE_MAX];
    kgen_spec_symbol(symbol, &kernel->spec);
    kgen_spec_print(line, &kernel->spec);
    for (const char *glob = c->globs; *glob; glob += strlen(glob) + 1)
        if (fnmatch(glob, symbol, 0) == 0 || fnmatch(glob, line, 0) == 0) return 1;
    return 0;
}

/* NULL: out of memory. */
static seen *seen_of(kgen__capture *c, const kgen_kernel *kernel) {
    seen *found;
    HASH_FIND_PTR(c->kernels, &kernel, found);
    if (found) return found;
    found = calloc(1, sizeof *found);
    if (!found) return NULL;
    found->kernel = kernel;
    found->matches = matches(c, kernel);
    HASH_ADD_PTR(c->kernels, kernel, found);
    if (found->hh.tbl) return found;
    free(found);
    return NULL;
}

/* A stream that records a graph runs nothing that could be read. The default
 * stream cannot be asked; nothing is read while any of ours records. */
static int records(const kgen_kernel *kernel, kgen_stream stream) {
    const kgen_context *ctx = kernel->ctx;
    return (stream && ctx->api->capturing(ctx->device, stream)) ||
           ctx->api->capturing(ctx->device, NULL);
}

static int is_wanted(kgen__capture *c, const kgen_kernel *kernel, kgen_stream stream) {
    seen *s = seen_of(c, kernel);
    if (!s || !s->matches) return 0;
    if (s->launches >= c->skip && s->launches - c->skip >= c->count) return 0;
    if (records(kernel, stream)) {
        if (!s->warned++)
            warn(kernel, "the stream captures a graph; capture an eager launch instead");
        return 0;
    }
    return s->launches++ >= c->skip;
}

/* ---- taking ------------------------------------------------------------------------- */

static kgen_status read_regions(kgen__taking *t, int after, kgen_error *err) {
    const kgen_context *ctx = t->kernel->ctx;
    KGEN_TRY(ctx->api->stream_sync(ctx->device, t->stream, err));
    for (size_t i = 0; i < t->regions.count; i++) {
        kgen__region *r = &t->regions.list[i];
        void *start;
        memcpy(&start, &r->start, sizeof start);
        KGEN_TRY(ctx->api->read(ctx->device, t->buffer, start, r->size, err));
        KGEN_TRY(
            kgen__blobs_add(&t->blobs, after ? &r->after : &r->before, t->buffer, r->size, err));
    }
    return KGEN_OK;
}

static kgen_status find_regions(kgen__taking *t, kgen_error *err) {
    size_t largest = 1;
    const kgen_context *ctx = t->kernel->ctx;
    KGEN_TRY(ctx->api->stream_sync(ctx->device, t->stream, err)); /* addresses are read */
    KGEN_TRY(kgen__regions_find(&t->regions, t->kernel, &t->args, err));
    NEED(t->regions.bytes <= t->capture->max,
         "%zu bytes, at most %llu; KGEN_CAPTURE_MAX raises that", t->regions.bytes,
         (unsigned long long)t->capture->max);
    for (size_t i = 0; i < t->regions.count; i++)
        if (t->regions.list[i].size > largest) largest = t->regions.list[i].size;
    t->buffer = malloc(largest);
    return t->buffer ? KGEN_OK : kgen_fail(err, KGEN_E_NOMEM, "no %zu bytes", largest);
}

static void release(kgen__taking *t) {
    kgen__capture *c = t->capture;
    kgen__regions_free(&t->regions);
    kgen__blobs_free(&t->blobs);
    free(t->buffer);
    free(t);
    pthread_mutex_unlock(&c->lock);
}

kgen__taking *kgen__capture_begin(const kgen_kernel *kernel, const kgen_args *args,
                                  kgen_stream stream) {
    kgen__capture *c = kernel->ctx->capture;
    kgen_error why = {KGEN_OK, "out of memory"};
    pthread_mutex_lock(&c->lock);
    if (!is_wanted(c, kernel, stream)) {
        pthread_mutex_unlock(&c->lock);
        return NULL;
    }
    kgen__taking *t = calloc(1, sizeof *t);
    if (t) {
        t->capture = c;
        t->kernel = kernel;
        kgen_args_copy(&t->args, &t->room, args);
        t->stream = stream;
        if (find_regions(t, &why) == KGEN_OK && read_regions(t, 0, &why) == KGEN_OK) return t;
    }
    warn(kernel, why.text);
    if (t)
        release(t);
    else
        pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* "<folder>/<symbol>-<UTC>-<process>-<number>.kgcap" */
static void name_file(char out[KGEN__CAPTURE_PATH_MAX], const kgen__taking *t) {
    static atomic_uint number;
    char symbol[KGEN_SYMBOL_MAX], date[32];
    time_t now = time(NULL);
    struct tm utc;
    kgen_spec_symbol(symbol, &t->kernel->spec);
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y%m%dT%H%M%S", &utc);
    snprintf(out, KGEN__CAPTURE_PATH_MAX, "%s/%s-%s-%ld-%u.kgcap", t->capture->dir, symbol, date,
             (long)getpid(), atomic_fetch_add(&number, 1));
}

void kgen__capture_end(kgen__taking *t, kgen_status launched) {
    char path[KGEN__CAPTURE_PATH_MAX];
    kgen_error why = {KGEN_OK, ""};
    if (launched == KGEN_OK) {
        name_file(path, t);
        if (read_regions(t, 1, &why) == KGEN_OK &&
            kgen__capture_write(path, t->kernel, &t->args, &t->regions, &t->blobs, &why) == KGEN_OK)
            kgen__log(t->kernel->ctx, KGEN_LOG_INFO, "captured %s", path);
        else
            warn(t->kernel, why.text);
    }
    release(t);
}

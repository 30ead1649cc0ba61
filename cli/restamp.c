/* kgen tuning restamp: a row whose source has changed is valid again where its
 * code has not. The code that was timed is looked for in a cache, by the digest
 * in the row; the code of today is built, and both are compared. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include <kgen/tuning_rows.h>

/* A failed allocation in uthash is a kernel less, not an exit. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->lost = 1)
#include <uthash.h>

/* A kernel of the cache: the digest of its source, and its entry. */
typedef struct timed_kernel {
    UT_hash_handle hh;
    int lost;      /* the table had no room for it */
    char name[96]; /* digest @target */
    char spec[KGEN_SPEC_LINE_MAX];
    kgen_key key;
} timed_kernel;

typedef struct restamp {
    kgen_cache *before, *now;
    timed_kernel *kernels; /* of `before` */
    size_t valid, stamped, stale;
} restamp;

/* ---- what was timed --------------------------------------------------------- */

static void name_kernel(char out[96], const char *digest, const char *target) {
    snprintf(out, 96, "%s @%s", digest, target);
}

static int add_kernel(const kgen_entry *entry, size_t file_bytes, void *user) {
    restamp *r = user;
    char digest[KGEN_KEY_HEX];
    kgen_key source; /* digests are as long as keys */
    timed_kernel *kernel = calloc(1, sizeof *kernel), *known;
    (void)file_bytes;
    if (!kernel) return 1;
    kgen_source_digest(source.bytes, entry->source, entry->source_size);
    kgen_key_hex(digest, &source);
    name_kernel(kernel->name, digest, entry->target);
    snprintf(kernel->spec, sizeof kernel->spec, "%s", entry->spec);
    kernel->key = entry->key;
    HASH_FIND_STR(r->kernels, kernel->name, known);
    if (!known) HASH_ADD_STR(r->kernels, name, kernel);
    int lost = kernel->lost;
    if (known || lost) free(kernel);
    return lost;
}

/* ---- one kernel -------------------------------------------------------------- */

/* *same: the code of `kernel` is what its spec is built to now. */
static kgen_status compare(int *same, restamp *r, const timed_kernel *kernel, const kgen_job *job,
                           kgen_error *err) {
    const kgen_build_options options = {.size = sizeof options, .workers = 1};
    kgen_job_result built = {0};
    kgen_entry *old = NULL;
    int found = 0;
    kgen_status status = kgen_cache_get(r->before, &old, &found, &kernel->key, err);
    if (status == KGEN_OK && found) status = kgen_build(r->now, job, 1, &options, &built, err);
    *same = status == KGEN_OK && found && kgen_code_same(old, built.entry);
    kgen_entry_free(old);
    kgen_entry_free(built.entry);
    return status;
}

static int is_line_of(const char *line, const kgen_spec *spec) {
    char print[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(print, spec);
    return strcmp(print, line) == 0;
}

/* Puts the digest of today in place of `digest` where the code is the same;
 * *why is NULL then. spec: the only one the kernel may be of, or NULL. */
static kgen_status stamp(char digest[65], const char **why, restamp *r, const kgen_spec *spec,
                         const kgen_target *target, kgen_error *err) {
    char name[96];
    timed_kernel *kernel;
    kgen_job job = {.target = target};
    int same;
    name_kernel(name, digest, target->name);
    HASH_FIND_STR(r->kernels, name, kernel);
    *why = "no code object of it in the cache";
    if (!kernel) return KGEN_OK;
    KGEN_TRY(kgen_spec_parse(&job.spec, kernel->spec, err));
    *why = "its digest is that of another spec";
    if (spec && !is_line_of(kernel->spec, spec)) return KGEN_OK;
    *why = "other machine code now";
    KGEN_TRY(compare(&same, r, kernel, &job, err));
    if (!same) return KGEN_OK;
    *why = NULL;
    return kgen_tuning_row_digest(digest, &job.spec, target, err);
}

/* ---- rows and files ----------------------------------------------------------- */

/* *is_new: the row has the digests of today, and had others. */
static kgen_status stamp_row(int *is_new, restamp *r, kgen_tuning_row *row, const char *place,
                             kgen_error *err) {
    const char *why = NULL, *what = "kernel";
    kgen_tuning_row old = *row;
    int stale;
    *is_new = 0;
    KGEN_TRY(kgen_tuning_row_stale(&stale, row, err));
    r->valid += !stale;
    if (!stale) return KGEN_OK;
    KGEN_TRY(stamp(row->kernel, &why, r, &row->spec, row->target, err));
    if (!why) {
        what = "default_kernel";
        KGEN_TRY(stamp(row->default_kernel, &why, r, NULL, row->target, err));
    }
    *is_new = !why;
    r->stamped += !why;
    r->stale += why != NULL;
    if (why) {
        char line[KGEN_SPEC_LINE_MAX];
        kgen_spec_print(line, &row->spec);
        fprintf(stderr, "kgen: note: %s: %s: %s: %s @%s\n", place, what, why, line,
                row->target->name);
        *row = old;
    }
    return KGEN_OK;
}

/* `line` with the digests of `row`, of the same length as those it has. */
static void write_digests(char *line, const kgen_tuning_row *row) {
    static const char *const keys[] = {"\"kernel\":\"", "\"default_kernel\":\""};
    const char *const digests[] = {row->kernel, row->default_kernel};
    for (int i = 0; i < 2; i++) {
        char *at = strstr(line, keys[i]);
        if (at) memcpy(at + strlen(keys[i]), digests[i], strlen(digests[i]));
    }
}

static kgen_status stamp_lines(restamp *r, char *text, const char *path, kgen_error *err) {
    size_t number = 1;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, number++) {
        char place[64];
        kgen_tuning_row row;
        int is_new = 0;
        snprintf(place, sizeof place, "%.40s:%zu", path, number);
        *end = 0;
        KGEN_TRY(kgen_tuning_row_parse(&row, line, err));
        KGEN_TRY(stamp_row(&is_new, r, &row, place, err));
        if (is_new) write_digests(line, &row);
        *end = '\n';
    }
    return KGEN_OK;
}

static kgen_status replace(const char *path, const char *text, size_t size, kgen_error *err) {
    char temp[1024];
    snprintf(temp, sizeof temp, "%.1000s.tmp", path);
    FILE *file = fopen(temp, "wb");
    int failed = !file || fwrite(text, 1, size, file) != size;
    if (file && fclose(file) != 0) failed = 1;
    if (!failed && rename(temp, path) == 0) return KGEN_OK;
    return kgen_fail(err, KGEN_E_IO, "%s: cannot be replaced: %s", path, strerror(errno));
}

static kgen_status stamp_file(restamp *r, const char *path, kgen_error *err) {
    char *text;
    size_t size, stamped = r->stamped;
    KGEN_TRY(kgen_tuning_rows_read(&text, &size, path, err));
    kgen_status status = stamp_lines(r, text, path, err);
    if (status == KGEN_OK && r->stamped > stamped) status = replace(path, text, size, err);
    free(text);
    return status;
}

static kgen_status run(restamp *r, const char *before, char **files, int count, kgen_error *err) {
    KGEN_TRY(kgen_cache_open(&r->before, before, err));
    KGEN_TRY(kgen_cache_open(&r->now, NULL, err));
    KGEN_TRY(kgen_cache_each(r->before, "", add_kernel, r, err));
    for (int i = 0; i < count; i++) KGEN_TRY(stamp_file(r, files[i], err));
    printf("%zu valid, %zu stamped again, %zu stale\n", r->valid, r->stamped, r->stale);
    return KGEN_OK;
}

static void free_kernels(restamp *r) {
    timed_kernel *kernel, *next;
    HASH_ITER(hh, r->kernels, kernel, next) {
        HASH_DEL(r->kernels, kernel);
        free(kernel);
    }
    kgen_cache_close(r->before);
    kgen_cache_close(r->now);
}

kgen_status kgen__restamp(const char *before, char **files, int count, kgen_error *err) {
    restamp r = {0};
    kgen_status status = run(&r, before, files, count, err);
    free_kernels(&r);
    return status;
}

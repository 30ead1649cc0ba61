/* Files, manifests and lists of jobs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* A failed allocation in uthash is an error, not an exit. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->lost = 1)
#include <uthash.h>

enum { NAME_MAX_BYTES = KGEN_SPEC_LINE_MAX + 40 };

struct kgen__job_name {
    UT_hash_handle hh;
    int lost; /* the table had no room for it */
    char text[NAME_MAX_BYTES];
};

static kgen_status read_stream(FILE *file, char **out, size_t *size, const char *path,
                               kgen_error *err) {
    size_t limit = KGEN__FILE_MAX_BYTES;
    char *text = malloc(limit + 2); /* one byte to see that there is more, and a NUL */
    if (!text) return kgen_fail(err, KGEN_E_NOMEM, "%s: no memory to read it", path);
    *size = fread(text, 1, limit + 1, file);
    if (ferror(file) || *size > limit) {
        free(text);
        return ferror(file)
                   ? kgen_fail(err, KGEN_E_IO, "%s: cannot read: %s", path, strerror(errno))
                   : kgen_fail(err, KGEN_E_CONFIG, "%s: more than %zu bytes", path, limit);
    }
    text[*size] = 0;
    *out = text;
    return KGEN_OK;
}

kgen_status kgen__input_read(char **out, size_t *size, const char *path, kgen_error *err) {
    if (strcmp(path, "-") == 0) return read_stream(stdin, out, size, "standard input", err);
    FILE *file = fopen(path, "rb");
    if (!file) return kgen_fail(err, KGEN_E_IO, "%s: cannot open: %s", path, strerror(errno));
    kgen_status status = read_stream(file, out, size, path, err);
    fclose(file);
    return status;
}

static kgen_status grow(kgen__jobs *jobs, kgen_error *err) {
    if (jobs->count < jobs->capacity) return KGEN_OK;
    size_t capacity = jobs->capacity ? 2 * jobs->capacity : 32;
    kgen_job *list = realloc(jobs->list, capacity * sizeof *list);
    if (!list) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", capacity);
    jobs->list = list;
    jobs->capacity = capacity;
    return KGEN_OK;
}

kgen_status kgen__jobs_add(kgen__jobs *jobs, const kgen_spec *spec, const kgen_target *target,
                           kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen__job_name *name, *known;
    if (!jobs->unchecked) KGEN_TRY(kgen_spec_validate(spec, target, err));
    KGEN_TRY(grow(jobs, err));
    name = malloc(sizeof *name);
    if (!name) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a job");
    kgen_spec_print(line, spec);
    snprintf(name->text, sizeof name->text, "%s @%s", line, target->name);
    HASH_FIND_STR(jobs->names, name->text, known);
    if (known) {
        free(name);
        return KGEN_OK;
    }
    name->lost = 0;
    HASH_ADD_STR(jobs->names, text, name);
    if (name->lost) {
        free(name);
        return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", jobs->count);
    }
    jobs->list[jobs->count++] = (kgen_job){*spec, target};
    return KGEN_OK;
}

static kgen_status add_variants(kgen__jobs *jobs, const kgen_job *job, const kgen_tuning *db,
                                kgen_error *err) {
    kgen_spec *specs = NULL;
    size_t count = 0;
    /* What the default needs is said where it is built. */
    if (kgen_tuning_variants(&specs, &count, db, &job->spec, job->target, NULL) != KGEN_OK)
        return KGEN_OK;
    kgen_status status = KGEN_OK;
    for (size_t i = 1; i < count && status == KGEN_OK; i++) /* [0] is the default: the job itself */
        status = kgen__jobs_add(jobs, &specs[i], job->target, err);
    free(specs);
    return status;
}

kgen_status kgen__jobs_add_variants(kgen__jobs *jobs, kgen_error *err) {
    size_t count = jobs->count;
    kgen_tuning *db;
    KGEN_TRY(kgen_tuning_open(&db, NULL, err));
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < count && status == KGEN_OK; i++) {
        const kgen_job job = jobs->list[i]; /* the list moves as it grows */
        status = add_variants(jobs, &job, db, err);
    }
    kgen_tuning_close(db);
    return status;
}

char *kgen__trim(char *text) {
    static const char blank[] = " \t\r";
    text += strspn(text, blank);
    size_t length = strlen(text);
    while (length && strchr(blank, text[length - 1])) text[--length] = 0;
    return text;
}

kgen_status kgen__jobs_add_line(kgen__jobs *jobs, const char *line, const kgen__archs *archs,
                                kgen_error *err) {
    char text[NAME_MAX_BYTES];
    kgen_spec spec;
    const kgen_target *target;
    if (strlen(line) >= sizeof text)
        return kgen_fail(err, KGEN_E_SPEC, "%.40s...: longer than %d bytes", line,
                         NAME_MAX_BYTES - 1);
    memcpy(text, line, strlen(line) + 1);
    char *at = strchr(text, '@');
    if (at) *at = 0;
    KGEN_TRY(kgen_spec_parse(&spec, kgen__trim(text), err));
    if (at) {
        KGEN_TRY(kgen_target_find(&target, kgen__trim(at + 1), err));
        return kgen__jobs_add(jobs, &spec, target, err);
    }
    for (size_t i = 0; i < archs->count; i++)
        KGEN_TRY(kgen__jobs_add(jobs, &spec, archs->list[i], err));
    return KGEN_OK;
}

static kgen_status add_lines(kgen__jobs *jobs, char *text, const char *path,
                             const kgen__archs *archs, kgen_error *err) {
    size_t number = 0;
    for (char *line = text; line; number++) {
        kgen_error why;
        char *next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "#")] = 0;
        char *job = kgen__trim(line);
        kgen_status status = *job ? kgen__jobs_add_line(jobs, job, archs, &why) : KGEN_OK;
        if (status != KGEN_OK)
            return kgen_fail(err, status, "%s:%zu: %s", path, number + 1, why.text);
        line = next;
    }
    return KGEN_OK;
}

kgen_status kgen__jobs_add_manifest(kgen__jobs *jobs, const char *path, const kgen__archs *archs,
                                    kgen_error *err) {
    char *text;
    size_t size;
    KGEN_TRY(kgen__input_read(&text, &size, path, err));
    kgen_status status = strlen(text) == size
                             ? add_lines(jobs, text, path, archs, err)
                             : kgen_fail(err, KGEN_E_SPEC, "%s: not a text file", path);
    free(text);
    return status;
}

void kgen__jobs_keep_shard(kgen__jobs *jobs, const kgen__shard *shard) {
    size_t kept = 0;
    if (!shard->parts) return;
    for (size_t i = (size_t)shard->part - 1; i < jobs->count; i += (size_t)shard->parts)
        jobs->list[kept++] = jobs->list[i];
    jobs->count = kept;
}

void kgen__jobs_free(kgen__jobs *jobs) {
    kgen__job_name *name, *next;
    HASH_ITER(hh, jobs->names, name, next) {
        HASH_DEL(jobs->names, name);
        free(name);
    }
    free(jobs->list);
    memset(jobs, 0, sizeof *jobs);
}

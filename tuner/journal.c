/* The journal in memory, event by event, and the file that it is read from and
 * appended to. A last line without its newline was cut off and is dropped. */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- what lines say -------------------------------------------------------- */

static const char *text_of(const json_t *line, const char *key) {
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

static void copy_text(char *out, size_t size, const json_t *line, const char *key) {
    snprintf(out, size, "%s", text_of(line, key));
}

static kgen__journal_kernel *note_kernel(kgen__journal *journal, const json_t *line) {
    kgen__journal_kernel *k;
    const char *name = text_of(line, "kernel");
    HASH_FIND_STR(journal->kernels, name, k);
    if (k || !*name || !(k = calloc(1, sizeof *k))) return k;
    copy_text(k->kernel, sizeof k->kernel, line, "kernel");
    HASH_ADD_STR(journal->kernels, kernel, k);
    if (!k->lost) return k;
    free(k);
    return NULL;
}

static kgen__journal_job *note_job(kgen__journal *journal, const json_t *line) {
    kgen__journal_job *job;
    const char *id = text_of(line, "job");
    HASH_FIND_STR(journal->jobs, id, job);
    if (job || !*id || !(job = calloc(1, sizeof *job))) return job;
    copy_text(job->id, sizeof job->id, line, "job");
    HASH_ADD_STR(journal->jobs, id, job);
    if (!job->lost) return job;
    free(job);
    return NULL;
}

static kgen__journal_times *note_times(kgen__journal *journal, const json_t *line) {
    kgen__journal_job *job = note_job(journal, line);
    kgen__journal_times *t = NULL;
    const char *kernel = text_of(line, "kernel");
    if (!job || !*kernel) return NULL;
    HASH_FIND_STR(job->times, kernel, t);
    if (t || !(t = calloc(1, sizeof *t))) return t;
    copy_text(t->kernel, sizeof t->kernel, line, "kernel");
    HASH_ADD_STR(job->times, kernel, t);
    if (!t->lost) return t;
    free(t);
    return NULL;
}

static void on_environment(kgen__journal *journal, const json_t *line) {
    json_t *where = json_deep_copy(json_object_get(line, "environment"));
    json_object_del(where, "date");
    journal->current = journal->any_environment || json_equal(where, journal->environment);
    json_decref(where);
}

static void on_job(kgen__journal *journal, const json_t *line) {
    kgen__journal_job *job = note_job(journal, line);
    if (!job) return;
    copy_text(job->spec, sizeof job->spec, line, "spec");
    copy_text(job->target, sizeof job->target, line, "target");
    copy_text(job->family_choice, sizeof job->family_choice, line, "default");
    json_unpack((json_t *)line, "{s:i, s:i, s:i}", "batch", &job->problem.batch, "context",
                &job->problem.context, "heads", &job->problem.heads);
}

static void on_candidate(kgen__journal *journal, const json_t *line) {
    kgen__journal_times *t = note_times(journal, line);
    if (!t) return;
    copy_text(t->spec, sizeof t->spec, line, "spec");
    double seconds = json_number_value(json_object_get(line, "compile_s"));
    if (seconds > t->compile_s) t->compile_s = seconds; /* of a cached one 0 */
}

static void on_verified(kgen__journal *journal, const json_t *line) {
    kgen__journal_kernel *k = note_kernel(journal, line);
    if (!k) return;
    k->verified = 1;
    k->verify_s = json_number_value(json_object_get(line, "seconds"));
}

static void on_dropped(kgen__journal *journal, const json_t *line) {
    kgen__journal_kernel *k = note_kernel(journal, line);
    if (k) copy_text(k->dropped, sizeof k->dropped, line, "reason");
}

static void on_times(kgen__journal *journal, const json_t *line) {
    kgen__journal_times *t = note_times(journal, line);
    double us = json_number_value(json_object_get(line, "us"));
    if (!t || us <= 0) return;
    if (t->count == t->capacity) {
        int capacity = t->capacity ? 2 * t->capacity : 16;
        double *list = realloc(t->us, (size_t)capacity * sizeof *list);
        if (!list) return; /* it is measured again */
        t->us = list;
        t->capacity = capacity;
    }
    t->us[t->count++] = us;
    t->seconds += json_number_value(json_object_get(line, "seconds"));
}

static void on_result(kgen__journal *journal, const json_t *line) {
    kgen__journal_job *job = note_job(journal, line);
    if (!job) return;
    json_decref(job->result);
    job->result = json_deep_copy(line);
}

static const struct {
    const char *event;
    void (*note)(kgen__journal *journal, const json_t *line);
} notes[] = {
    {"environment", on_environment}, {"job", on_job},         {"candidate", on_candidate},
    {"verified", on_verified},       {"dropped", on_dropped}, {"times", on_times},
    {"result", on_result},
};

static void take(kgen__journal *journal, const char *text, size_t length) {
    json_t *line = json_loadb(text, length, 0, NULL);
    const char *event = text_of(line, "event");
    if (!*event) journal->bad++;
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++)
        if (strcmp(notes[i].event, event) == 0 &&
            (journal->current || notes[i].note == on_environment))
            notes[i].note(journal, line);
    json_decref(line);
}

/* --- the file ---------------------------------------------------------------- */

static kgen_status io_fail(const kgen__journal *journal, const char *what, kgen_error *err) {
    return kgen_fail(err, KGEN_E_IO, "journal %s: %s: %s", journal->path, what, strerror(errno));
}

static void make_folders(const char *path) {
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = folder + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(folder, 0700); /* whether it is there shows when the file is opened */
        *at = '/';
    }
}

static kgen_status read_text(kgen__journal *journal, char **text, size_t *size, kgen_error *err) {
    struct stat info;
    *size = 0;
    if (fstat(journal->fd, &info)) return io_fail(journal, "cannot read", err);
    if (!S_ISREG(info.st_mode))
        return kgen_fail(err, KGEN_E_IO, "journal %s: no plain file", journal->path);
    *text = malloc((size_t)info.st_size + 1);
    if (!*text) return kgen_fail(err, KGEN_E_NOMEM, "journal %s: no memory", journal->path);
    while (*size < (size_t)info.st_size) {
        ssize_t got = pread(journal->fd, *text + *size, (size_t)info.st_size - *size, (off_t)*size);
        if (got <= 0) break;
        *size += (size_t)got;
    }
    return KGEN_OK;
}

static kgen_status take_file(kgen__journal *journal, size_t *whole, kgen_error *err) {
    char *text = NULL;
    size_t size, at = 0;
    kgen_status status = read_text(journal, &text, &size, err);
    while (status == KGEN_OK && at < size) {
        char *end = memchr(text + at, '\n', size - at);
        if (!end) break;
        take(journal, text + at, (size_t)(end - text) - at);
        at = (size_t)(end - text) + 1;
    }
    *whole = at;
    free(text);
    return status;
}

static kgen_status open_file(kgen__journal *journal, int flags, kgen_error *err) {
    size_t whole;
    int writes = flags != O_RDONLY;
    journal->fd = open(journal->path, flags | O_CLOEXEC, 0600);
    if (journal->fd < 0) return io_fail(journal, "cannot open", err);
    if (writes && flock(journal->fd, LOCK_EX | LOCK_NB))
        return kgen_fail(err, KGEN_E_IO, "journal %s: another run writes it; give --journal",
                         journal->path);
    KGEN_TRY(take_file(journal, &whole, err));
    if (writes && ftruncate(journal->fd, (off_t)whole))
        return io_fail(journal, "cannot drop the line that was cut off", err);
    return KGEN_OK;
}

static json_t *environment_json(const kgen_environment *e) {
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:s}", "device", e->device, "driver",
                     e->driver, "toolchain", e->toolchain, "compute_units", e->compute_units,
                     "clock_mhz", e->clock_mhz, "memory_mhz", e->memory_mhz, "date", e->date);
}

static kgen_status begin(kgen__journal *journal, const kgen_environment *environment,
                         kgen_error *err) {
    json_t *where = environment_json(environment);
    json_t *line = json_pack("{s:s, s:O}", "event", "environment", "environment", where);
    char *text = json_dumps(line, JSON_COMPACT);
    kgen_status status = text ? kgen__journal_add(journal, text, err)
                              : kgen_fail(err, KGEN_E_NOMEM, "journal: no memory");
    free(text);
    json_decref(line);
    json_decref(where);
    return status;
}

static kgen_status make(kgen__journal **out, const char *path, kgen_error *err) {
    kgen__journal *journal = calloc(1, sizeof *journal);
    if (!journal) return kgen_fail(err, KGEN_E_NOMEM, "journal: no memory");
    journal->fd = -1;
    if (path && strlen(path) >= sizeof journal->path) {
        free(journal);
        return kgen_fail(err, KGEN_E_IO, "journal %.80s...: path too long", path);
    }
    snprintf(journal->path, sizeof journal->path, "%s", path ? path : "");
    *out = journal;
    return KGEN_OK;
}

kgen_status kgen__journal_open(kgen__journal **out, const char *path,
                               const kgen_environment *environment, kgen_error *err) {
    kgen__journal *journal = NULL;
    KGEN_TRY(make(&journal, path, err));
    journal->environment = environment_json(environment);
    json_object_del(journal->environment, "date");
    if (path) make_folders(path);
    kgen_status status = path ? open_file(journal, O_RDWR | O_CREAT | O_APPEND, err) : KGEN_OK;
    if (status == KGEN_OK) status = begin(journal, environment, err);
    if (status == KGEN_OK)
        *out = journal;
    else
        kgen__journal_close(journal);
    return status;
}

kgen_status kgen__journal_read(kgen__journal **out, const char *path, kgen_error *err) {
    kgen__journal *journal = NULL;
    KGEN_TRY(make(&journal, path, err));
    journal->any_environment = journal->current = 1;
    kgen_status status = open_file(journal, O_RDONLY, err);
    if (status == KGEN_OK && journal->bad)
        status =
            kgen_fail(err, KGEN_E_CONFIG, "journal %s: %d lines are no events", path, journal->bad);
    if (status == KGEN_OK)
        *out = journal;
    else
        kgen__journal_close(journal);
    return status;
}

kgen_status kgen__journal_add(kgen__journal *journal, const char *line, kgen_error *err) {
    size_t length = strlen(line);
    take(journal, line, length);
    if (journal->fd < 0) return KGEN_OK;
    char *text = malloc(length + 1);
    if (!text) return kgen_fail(err, KGEN_E_NOMEM, "journal: no memory");
    memcpy(text, line, length);
    text[length] = '\n';
    ssize_t written = write(journal->fd, text, length + 1);
    free(text);
    return written == (ssize_t)length + 1 ? KGEN_OK : io_fail(journal, "cannot write", err);
}

void kgen__journal_detach(kgen__journal *journal) {
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = -1;
}

static void free_job(kgen__journal_job *job) {
    kgen__journal_times *t, *next;
    HASH_ITER(hh, job->times, t, next) {
        HASH_DEL(job->times, t);
        free(t->us);
        free(t);
    }
    json_decref(job->result);
    free(job);
}

void kgen__journal_close(kgen__journal *journal) {
    kgen__journal_kernel *k, *next_kernel;
    kgen__journal_job *job, *next_job;
    if (!journal) return;
    HASH_ITER(hh, journal->kernels, k, next_kernel) {
        HASH_DEL(journal->kernels, k);
        free(k);
    }
    HASH_ITER(hh, journal->jobs, job, next_job) {
        HASH_DEL(journal->jobs, job);
        free_job(job);
    }
    json_decref(journal->environment);
    if (journal->fd >= 0) close(journal->fd);
    free(journal);
}

/* --- questions ----------------------------------------------------------------- */

void kgen__journal_id(char out[17], const kgen_spec *spec, const kgen_problem *problem,
                      const kgen_target *target) {
    char line[KGEN_SPEC_LINE_MAX], text[KGEN_SPEC_LINE_MAX + 80];
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a: a name, not a proof */
    kgen_spec_print(line, spec);
    snprintf(text, sizeof text, "%s@%s/%d/%d/%d", line, target->name, problem->batch,
             problem->context, problem->heads);
    for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
}

const kgen__journal_kernel *kgen__journal_kernel_of(const kgen__journal *journal,
                                                    const char *kernel) {
    kgen__journal_kernel *found;
    HASH_FIND_STR(journal->kernels, kernel, found);
    return found;
}

const kgen__journal_job *kgen__journal_job_of(const kgen__journal *journal, const char *id) {
    kgen__journal_job *found;
    HASH_FIND_STR(journal->jobs, id, found);
    return found;
}

const kgen__journal_times *kgen__journal_times_of(const kgen__journal_job *job,
                                                  const char *kernel) {
    kgen__journal_times *found = NULL;
    if (job) HASH_FIND_STR(job->times, kernel, found);
    return found;
}

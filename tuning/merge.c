/* Rows into a file: all or nothing, one row for each key, under a lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* uthash ends the process when it runs out of memory, unless told otherwise. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(item) ((item)->lost = 1)
#include <uthash.h>

#include "cache/files.h"
#include "gen/buf.h"
#include "db.h"

enum {
    KEY_MAX_BYTES = KGEN_SPEC_LINE_MAX + sizeof(kgen_environment) + 96,
    LOCK_WAIT_MS = 5000, /* merging takes milliseconds */
    LOCK_TURN_MS = 20,
};

/* --- rows by key ----------------------------------------------------------- */

typedef struct line_entry {
    UT_hash_handle hh;
    char *text;
    char date[sizeof((kgen_environment *)0)->date];
    int is_new; /* of the text to merge, not of the file */
    int lost;   /* the table had no memory for it */
    char key[];
} line_entry;

typedef struct merger {
    line_entry *rows;
    kgen__buf bad;
    kgen_merge_counts counts;
} merger;

/* All that says which measurement a row is; the rest is its result. */
static void row_key(char out[KEY_MAX_BYTES], const kgen_tuning_row *row) {
    const kgen_environment *e = &row->environment;
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec shape = row->spec;
    kgen_spec_open_tuning(&shape);
    kgen_spec_print(line, &shape);
    snprintf(out, KEY_MAX_BYTES, "%s\n%s\n%d %d %d\n%s\n%s\n%s", line, row->target->name,
             row->problem.batch, row->problem.context, row->problem.heads, e->device, e->driver,
             e->toolchain);
}

/* Dates are equal only of one measurement, or of clocks that say nothing; then
 * the text decides, so that the order of merging does not. */
static int is_newer(const line_entry *known, const char *date, const char *text) {
    int order = strcmp(date, known->date);
    return order > 0 || (order == 0 && strcmp(text, known->text) > 0);
}

static kgen_status no_memory(kgen_error *err) {
    return kgen_fail(err, KGEN_E_NOMEM, "no memory to merge rows");
}

static kgen_status add_row(merger *m, const kgen_tuning_row *row, const char *line, size_t length,
                           int is_new, kgen_error *err) {
    char key[KEY_MAX_BYTES];
    line_entry *entry = NULL;
    row_key(key, row);
    char *text = strndup(line, length);
    if (!text) return no_memory(err);
    HASH_FIND_STR(m->rows, key, entry);
    if (entry && !is_newer(entry, row->environment.date, text)) {
        m->counts.kept += (size_t)is_new;
        free(text);
        return KGEN_OK;
    }
    if (entry) {
        m->counts.replaced += (size_t)(is_new && !entry->is_new);
        m->counts.kept += (size_t)(is_new && entry->is_new);
        free(entry->text);
    } else if ((entry = calloc(1, sizeof *entry + strlen(key) + 1))) {
        memcpy(entry->key, key, strlen(key) + 1);
        HASH_ADD_STR(m->rows, key, entry);
        if (entry->lost) {
            free(entry);
            free(text);
            return no_memory(err);
        }
        m->counts.added += (size_t)is_new;
    } else {
        free(text);
        return no_memory(err);
    }
    entry->text = text;
    entry->is_new |= is_new;
    memcpy(entry->date, row->environment.date, sizeof entry->date);
    return KGEN_OK;
}

/* Lines that are no rows: kept of the file, refused of what is merged. */
static kgen_status add_text(merger *m, const char *text, size_t size, int is_new, kgen_error *err) {
    kgen__lines lines = {.next = text, .end = text + size};
    const char *line;
    size_t length;
    while (kgen__lines_next(&lines, &line, &length)) {
        kgen_tuning_row row;
        kgen_error why;
        kgen_status status = kgen__line_parse(&row, line, length, &why);
        if (status == KGEN_OK) {
            KGEN_TRY(add_row(m, &row, line, length, is_new, err));
        } else if (is_new) {
            return kgen_fail(err, status, "line %zu: %s; nothing was changed", lines.number,
                             why.text);
        } else {
            kgen__buf_add(&m->bad, line, length);
            kgen__buf_add(&m->bad, "\n", 1);
        }
    }
    return KGEN_OK;
}

static void merger_free(merger *m) {
    line_entry *entry, *next;
    HASH_ITER(hh, m->rows, entry, next) {
        HASH_DEL(m->rows, entry);
        free(entry->text);
        free(entry);
    }
    free(m->bad.text);
}

static int by_text(const line_entry *a, const line_entry *b) { return strcmp(a->text, b->text); }

static kgen_status make_text(merger *m, char **text, size_t *size, kgen_error *err) {
    kgen__buf buf = {0};
    HASH_SORT(m->rows, by_text);
    for (const line_entry *e = m->rows; e; e = e->hh.next) {
        kgen__buf_add(&buf, e->text, strlen(e->text));
        kgen__buf_add(&buf, "\n", 1);
    }
    if (m->bad.size) kgen__buf_add(&buf, m->bad.text, m->bad.size);
    buf.failed |= m->bad.failed;
    return kgen__buf_take(&buf, text, size, err);
}

/* --- the file -------------------------------------------------------------- */

static kgen_status fail_file(const char *path, const char *what, int reason, kgen_error *err) {
    return kgen_fail(err, KGEN_E_IO, "%s: cannot %s: %s", path, what, strerror(reason));
}

/* The lock is a file beside the one that is replaced; the kernel frees it. */
static kgen_status lock(int *out, const char *path, kgen_error *err) {
    static const struct timespec turn = {0, LOCK_TURN_MS * 1000000L};
    char name[PATH_MAX];
    if ((size_t)snprintf(name, sizeof name, "%s.lock", path) >= sizeof name)
        return fail_file(path, "lock", ENAMETOOLONG, err);
    int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return fail_file(name, "open", errno, err);
    int waited = 0;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int reason = errno, busy = reason == EWOULDBLOCK || reason == EINTR;
        if (busy && waited < LOCK_WAIT_MS) {
            nanosleep(&turn, NULL);
            waited += LOCK_TURN_MS;
            continue;
        }
        close(fd);
        return busy ? kgen_fail(err, KGEN_E_IO, "%s: another process has held it for %d s", name,
                                LOCK_WAIT_MS / 1000)
                    : fail_file(name, "lock", reason, err);
    }
    *out = fd;
    return KGEN_OK;
}

/* Under the lock, so that one name for the new file is enough. */
static kgen_status replace(const char *path, const char *text, size_t size, kgen_error *err) {
    struct stat old;
    char temp[PATH_MAX];
    snprintf(temp, sizeof temp, "%s.tmp", path); /* as long as .lock: it fits */
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return fail_file(temp, "open", errno, err);
    int failed = stat(path, &old) == 0 && fchmod(fd, old.st_mode & 0777) != 0;
    failed = failed || kgen__write_all(fd, text, size) || fsync(fd);
    int reason = errno;
    if (close(fd) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    if (!failed && rename(temp, path) != 0) {
        failed = 1;
        reason = errno;
    }
    if (!failed) return KGEN_OK;
    unlink(temp);
    return fail_file(path, "write", reason, err);
}

static kgen_status merge_locked(merger *m, const char *path, const char *rows_text, size_t size,
                                kgen_error *err) {
    char *old = NULL, *text = NULL;
    size_t old_size = 0, text_size = 0;
    kgen_status status = KGEN_OK;
    if (access(path, F_OK) == 0 || errno != ENOENT)
        status = kgen__rows_file_read(&old, &old_size, path, err);
    if (status == KGEN_OK) status = add_text(m, old ? old : "", old_size, 0, err);
    if (status == KGEN_OK) status = add_text(m, rows_text, size, 1, err);
    if (status == KGEN_OK) status = make_text(m, &text, &text_size, err);
    if (status == KGEN_OK) status = replace(path, text, text_size, err);
    free(old);
    free(text);
    return status;
}

/* Links are followed, so that the file they name is the one that is replaced. */
static kgen_status real_path(char out[PATH_MAX], const char *path, kgen_error *err) {
    if (realpath(path, out)) return KGEN_OK;
    if (errno != ENOENT) return fail_file(path, "open", errno, err);
    if ((size_t)snprintf(out, PATH_MAX, "%s", path) >= PATH_MAX)
        return fail_file(path, "open", ENAMETOOLONG, err);
    char *slash = strrchr(out, '/');
    if (!slash || slash == out) return KGEN_OK;
    *slash = 0;
    (void)kgen__make_dirs(out); /* whether it mattered, the lock shows */
    *slash = '/';
    return KGEN_OK;
}

kgen_status kgen_tuning_rows_merge(kgen_merge_counts *counts, const char *path,
                                   const char *rows_text, size_t size, kgen_error *err) {
    merger dry = {0}, m = {0};
    char file[PATH_MAX];
    int fd = -1;
    kgen_status status = add_text(&dry, rows_text, size, 1, err); /* before anything is made */
    merger_free(&dry);
    KGEN_TRY(status);
    KGEN_TRY(real_path(file, path, err));
    KGEN_TRY(lock(&fd, file, err));
    status = merge_locked(&m, file, rows_text, size, err);
    close(fd);
    merger_free(&m);
    if (status == KGEN_OK) *counts = m.counts;
    return status;
}

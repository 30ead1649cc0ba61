/* The folder of a cache. Every step starts from an open directory and follows no
 * symbolic link below it. */
#define _GNU_SOURCE
#include "folder.h"
#include "files.h"
#include "layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#define TEMP_PREFIX ".tmp-"

enum { TEMP_KEPT_S = 3600 }; /* longer than any publish takes */

int kgen__is_foreign(const struct stat *st) { return st->st_uid != geteuid() && st->st_uid != 0; }

int kgen__is_trusted(const struct stat *st) {
    return S_ISREG(st->st_mode) && !kgen__is_foreign(st) && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* ---- folders --------------------------------------------------------------- */

static int open_dir(int at, const char *name, int flags) {
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && !kgen__is_foreign(&st)) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

int kgen__folder_open_sub(int root, const char *name, int create) {
    if (create && mkdirat(root, name, 0700) != 0 && errno != EEXIST) return -1;
    return open_dir(root, name, O_NOFOLLOW);
}

int kgen__folder_open(const char *dir, int create) {
    int fd = open_dir(AT_FDCWD, dir, 0);
    if (fd >= 0 || errno != ENOENT || !create) return fd;
    int reason = kgen__make_dirs(dir);
    fd = open_dir(AT_FDCWD, dir, 0);
    if (fd < 0 && reason) errno = reason;
    return fd;
}

kgen_status kgen__fail_write(const char *dir, int reason, kgen_error *err) {
    static const struct {
        int reason;
        const char *hint;
    } hints[] = {
        {EPERM, " (folders and files must be owned by this user or root, and files be writable by "
                "their owner only)"},
        {EMFILE, " (this process has no descriptor left: raise `ulimit -n`)"},
        {EFBIG, " (over the limit of this process: raise `ulimit -f`)"},
    };
    const char *hint = "";
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (hints[i].reason == reason) hint = hints[i].hint;
    return kgen_fail(err, KGEN_E_IO, "cache: cannot write into %s: %s%s", dir, strerror(reason),
                     hint);
}

/* ---- places ---------------------------------------------------------------- */

void kgen__place_name(kgen__place *at, const kgen_key *key, const char *suffix) {
    kgen_key_hex(at->hex, key);
    snprintf(at->name, sizeof at->name, "%s%s", at->hex + KGEN__SHARD_DIGITS, suffix);
}

int kgen__place_open(kgen__place *at, const char *dir, const kgen_key *key, const char *suffix,
                     int create) {
    kgen__place_name(at, key, suffix);
    char shard[KGEN__SHARD_DIGITS + 1] = {at->hex[0], at->hex[1], 0};
    at->shard = -1;
    at->root = kgen__folder_open(dir, create);
    if (at->root >= 0) at->shard = kgen__folder_open_sub(at->root, shard, create);
    return at->shard >= 0 ? 0 : -1;
}

void kgen__place_close(kgen__place *at) {
    if (at->shard >= 0) close(at->shard);
    if (at->root >= 0) close(at->root);
}

static int read_file(int fd, uint8_t **bytes, size_t *size) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !kgen__is_trusted(&st) || st.st_size > KGEN__FILE_MAX) return -1;
    *size = (size_t)st.st_size;
    *bytes = malloc(*size + 1);
    if (*bytes && kgen__read_all(fd, *bytes, *size) == *size) return 0;
    free(*bytes);
    *bytes = NULL;
    return -1;
}

int kgen__place_read(const kgen__place *at, uint8_t **bytes, size_t *size) {
    int fd = openat(at->shard, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    int failed = read_file(fd, bytes, size);
    close(fd);
    return failed;
}

/* ---- publishing ------------------------------------------------------------ */

static int is_temp(const struct dirent *file) {
    return strncmp(file->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0;
}

void kgen__sweep_temps(const kgen__place *at) {
    struct dirent **files = NULL;
    struct stat now, st;
    if (fstatat(at->shard, at->name, &now, AT_SYMLINK_NOFOLLOW) != 0) return;
    int count = scandirat(at->shard, ".", &files, is_temp, NULL);
    time_t oldest = now.st_mtime - TEMP_KEPT_S;
    for (int i = 0; i < count; i++) {
        if (fstatat(at->shard, files[i]->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime < oldest)
            unlinkat(at->shard, files[i]->d_name, 0);
        free(files[i]);
    }
    free(files);
}

/* Some file systems keep neither owner nor mode: no reader would take the file. */
static int keeps_trust(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return -1;
    if (kgen__is_trusted(&st)) return 0;
    errno = EPERM;
    return -1;
}

/* 0, or -1 with errno and no file left. */
static int write_temp(int shard, const char *name, const void *bytes, size_t size, int durable) {
    int fd = openat(shard, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    int failed = keeps_trust(fd) || kgen__write_all(fd, bytes, size) || (durable && fsync(fd));
    int reason = errno;
    if (close(fd) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    if (!failed) return 0;
    unlinkat(shard, name, 0);
    errno = reason;
    return -1;
}

int kgen__place_publish(const kgen__place *at, const void *bytes, size_t size, int durable) {
    char temp[sizeof TEMP_PREFIX + 16];
    snprintf(temp, sizeof temp, TEMP_PREFIX "%08x%08x", randombytes_random(), randombytes_random());
    if (write_temp(at->shard, temp, bytes, size, durable) != 0) return -1;
    if (renameat(at->shard, temp, at->shard, at->name) == 0) return 0;
    int reason = errno;
    unlinkat(at->shard, temp, 0);
    errno = reason;
    return -1;
}

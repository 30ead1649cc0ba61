/* The directory layer: <dir>/<2 hex>/<62 hex>.kgen, one file an entry.
 *
 * There are no locks. An entry is written under a name that no reader looks at,
 * flushed, and renamed: readers see none or a whole one, and the last of several
 * writers stays. Files are read with read(), never mapped: a file that shrinks
 * on a network file system would end the process. Every step starts from the
 * open directory and follows no symbolic link below it. */
#define _GNU_SOURCE
#include "files.h"
#include "layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#define QUARANTINE "quarantine"
#define SUFFIX ".kgen"
#define TEMP_PREFIX ".tmp-"

enum {
    SHARD_DIGITS = 2,
    NAME_DIGITS = KGEN_KEY_HEX - 1 - SHARD_DIGITS,
    NAME_MAX_BYTES = NAME_DIGITS + sizeof SUFFIX,
    TEMP_KEPT_S = 3600, /* longer than any publish takes */
};

struct kgen__store {
    char *dir;
    kgen_cache_stats *stats;
};

/* Where the entry of a key lives; -1 for a directory that is not open. */
typedef struct place {
    int root, shard;
    char hex[KGEN_KEY_HEX];
    char name[NAME_MAX_BYTES];
} place;

/* ------------------------------------------------------------------------ *
 * directories
 * ------------------------------------------------------------------------ */

/* Others could have put into it what they like. Publishing asks the same, so
 * that nothing is written that no reader would take. */
static int is_foreign(const struct stat *st) { return st->st_uid != geteuid() && st->st_uid != 0; }

static int is_trusted_file(const struct stat *st) {
    return S_ISREG(st->st_mode) && !is_foreign(st) && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* -1 with errno on failure. The cache directory itself may be a link that the
 * user made; what is below it may not. */
static int open_dir(int at, const char *name, int flags) {
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && !is_foreign(&st)) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static int open_subdir(int root, const char *name, int create) {
    if (create && mkdirat(root, name, 0700) != 0 && errno != EEXIST) return -1;
    return open_dir(root, name, O_NOFOLLOW);
}

static int open_root(const kgen__store *store, int create) {
    int fd = open_dir(AT_FDCWD, store->dir, 0);
    if (fd >= 0 || errno != ENOENT || !create) return fd;
    int reason = kgen__make_dirs(store->dir);
    fd = open_dir(AT_FDCWD, store->dir, 0);
    if (fd < 0 && reason) errno = reason;
    return fd;
}

static void place_close(place *at) {
    if (at->shard >= 0) close(at->shard);
    if (at->root >= 0) close(at->root);
}

static void place_name(place *at, const kgen_key *key) {
    kgen_key_hex(at->hex, key);
    snprintf(at->name, sizeof at->name, "%s" SUFFIX, at->hex + SHARD_DIGITS);
}

/* 0, or -1 with errno; close it either way. */
static int place_open(place *at, const kgen__store *store, const kgen_key *key, int create) {
    place_name(at, key);
    char shard[SHARD_DIGITS + 1] = {at->hex[0], at->hex[1], 0};
    at->shard = -1;
    at->root = open_root(store, create);
    if (at->root >= 0) at->shard = open_subdir(at->root, shard, create);
    return at->shard >= 0 ? 0 : -1;
}

/* Could a directory be made at `path`, which does not exist? */
static int can_make(const char *path) {
    char parent[PATH_MAX];
    if ((size_t)snprintf(parent, sizeof parent, "%s", path) >= sizeof parent) return 0;
    do {
        char *slash = strrchr(parent, '/');
        if (!slash) return 0;
        slash[slash == parent] = 0;
        if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0) return 1;
    } while (errno == ENOENT && parent[1]);
    return 0;
}

const char *kgen__store_dir(const kgen__store *store) {
    int fd = open_root(store, 0);
    int usable = fd >= 0 || (errno == ENOENT && can_make(store->dir));
    if (fd >= 0) close(fd);
    return usable ? store->dir : NULL;
}

/* ------------------------------------------------------------------------ *
 * reading
 * ------------------------------------------------------------------------ */

/* Out of the way of readers; at most one bad file a key is kept. Not when the
 * name has meanwhile been given to another file: that one may be sound. */
static void set_aside(const kgen__store *store, const place *at, const struct stat *seen) {
    struct stat now;
    char name[KGEN_KEY_HEX + sizeof SUFFIX];
    if (fstatat(at->shard, at->name, &now, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (now.st_ino != seen->st_ino || now.st_dev != seen->st_dev) return;
    kgen__count(&store->stats->quarantined);
    int quarantine = open_subdir(at->root, QUARANTINE, 1);
    if (quarantine < 0) return;
    snprintf(name, sizeof name, "%s" SUFFIX, at->hex);
    (void)renameat(at->shard, at->name, quarantine, name);
    close(quarantine);
}

/* How much was read: less than `size` where the file ends before. */
static size_t read_all(int fd, uint8_t *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, bytes + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    return done;
}

static kgen__verdict read_entry(int fd, const struct stat *st, kgen_entry **out,
                                const kgen_key *key) {
    if (!is_trusted_file(st) || st->st_size > KGEN__FILE_MAX) return KGEN__BAD;
    size_t size = (size_t)st->st_size;
    uint8_t *bytes = malloc(size + 1);
    if (!bytes) return KGEN__NO_MEMORY;
    kgen__verdict verdict = kgen__entry_decode(out, bytes, read_all(fd, bytes, size), key);
    free(bytes);
    return verdict;
}

/* *out stays NULL for a miss. What cannot be opened is a miss; what may not be
 * believed is one too, and is set aside. */
static kgen_status load(const kgen__store *store, const place *at, kgen_entry **out,
                        size_t *file_bytes, const kgen_key *key, kgen_error *err) {
    struct stat st;
    kgen__verdict verdict = KGEN__OTHER;
    /* O_NONBLOCK: a pipe in the place of a file must not hold us up. */
    int fd = openat(at->shard, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0)
        verdict = read_entry(fd, &st, out, key);
    else if (fd < 0 && errno != ENOENT &&
             fstatat(at->shard, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !is_trusted_file(&st))
        verdict = KGEN__BAD;
    if (verdict == KGEN__BAD) set_aside(store, at, &st);
    if (verdict == KGEN__GOOD) *file_bytes = (size_t)st.st_size;
    if (fd >= 0) close(fd);
    if (verdict != KGEN__NO_MEMORY) return KGEN_OK;
    return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory to read entry %s", at->hex);
}

static kgen_status store_get(void *self, kgen_entry **out, const kgen_key *key, kgen_error *err) {
    place at;
    size_t file_bytes = 0;
    kgen_status status = KGEN_OK;
    if (place_open(&at, self, key, 0) == 0) status = load(self, &at, out, &file_bytes, key, err);
    place_close(&at);
    return status;
}

/* ------------------------------------------------------------------------ *
 * publishing
 * ------------------------------------------------------------------------ */

static int is_temp(const struct dirent *file) {
    return strncmp(file->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0;
}

/* What writers that were killed have left. */
static void sweep_temps(int shard) {
    struct dirent **files = NULL;
    int count = scandirat(shard, ".", &files, is_temp, NULL);
    time_t oldest = time(NULL) - TEMP_KEPT_S;
    for (int i = 0; i < count; i++) {
        struct stat st;
        if (fstatat(shard, files[i]->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime < oldest)
            unlinkat(shard, files[i]->d_name, 0);
        free(files[i]);
    }
    free(files);
}

/* Some file systems keep neither owner nor mode: no reader would take the file. */
static int keeps_trust(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return -1;
    if (is_trusted_file(&st)) return 0;
    errno = EPERM;
    return -1;
}

/* 0, or -1 with errno and no file left. */
static int write_temp(int shard, const char *name, const uint8_t *bytes, size_t size) {
    int fd = openat(shard, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    int failed = keeps_trust(fd) || kgen__write_all(fd, bytes, size) || fsync(fd);
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

/* 0, or -1 with errno. */
static int publish(const place *at, const uint8_t *bytes, size_t size) {
    char temp[sizeof TEMP_PREFIX + 16];
    snprintf(temp, sizeof temp, TEMP_PREFIX "%08x%08x", randombytes_random(), randombytes_random());
    if (write_temp(at->shard, temp, bytes, size) != 0) return -1;
    if (renameat(at->shard, temp, at->shard, at->name) == 0) return 0;
    int reason = errno;
    unlinkat(at->shard, temp, 0);
    errno = reason;
    return -1;
}

static kgen_status fail_write(const kgen__store *store, const place *at, int reason,
                              kgen_error *err) {
    const char *hint = reason == EPERM ? " (folders and files must be owned by this user or root, "
                                         "and files be writable by their owner only)"
                                       : "";
    return kgen_fail(err, KGEN_E_IO, "cache: cannot write %s/%.2s/%s: %s%s", store->dir, at->hex,
                     at->name, strerror(reason), hint);
}

static kgen_status store_put(void *self, const kgen_entry *entry, kgen_error *err) {
    kgen__store *store = self;
    uint8_t *bytes = NULL;
    size_t size = 0;
    place at;
    KGEN_TRY(kgen__entry_encode(&bytes, &size, entry, err));
    int failed = place_open(&at, store, &entry->key, 1) || publish(&at, bytes, size);
    kgen_status status = KGEN_OK;
    if (failed) {
        status = fail_write(store, &at, errno, err);
    } else {
        kgen__count(&store->stats->published);
        sweep_temps(at.shard);
    }
    place_close(&at);
    free(bytes);
    return status;
}

/* ------------------------------------------------------------------------ *
 * listing
 * ------------------------------------------------------------------------ */

typedef struct walk {
    kgen__store *store;
    const char *prefix; /* lower case */
    int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user);
    void *user;
    int root;
    int stopped;
} walk;

static int is_hex(const char *name, size_t digits) {
    return strspn(name, "0123456789abcdef") == digits;
}

static int is_shard(const struct dirent *file) {
    return is_hex(file->d_name, SHARD_DIGITS) && !file->d_name[SHARD_DIGITS];
}

static int is_entry(const struct dirent *file) {
    return is_hex(file->d_name, NAME_DIGITS) && strcmp(file->d_name + NAME_DIGITS, SUFFIX) == 0;
}

/* alphasort would follow the locale. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static kgen_status visit_file(walk *on, int shard, const char *shard_name, const char *name,
                              kgen_error *err) {
    place at = {.root = on->root, .shard = shard};
    char hex[KGEN_KEY_HEX];
    kgen_key key;
    kgen_entry *entry = NULL;
    size_t file_bytes = 0;
    snprintf(hex, sizeof hex, "%.2s%.62s", shard_name, name);
    if (strncmp(hex, on->prefix, strlen(on->prefix)) != 0) return KGEN_OK;
    KGEN_TRY(kgen_key_parse(&key, hex, err));
    place_name(&at, &key);
    KGEN_TRY(load(on->store, &at, &entry, &file_bytes, &key, err));
    if (!entry) return KGEN_OK;
    free(entry->code);
    entry->code = NULL;
    on->stopped = on->visit(entry, file_bytes, on->user) != 0;
    kgen_entry_free(entry);
    return KGEN_OK;
}

static kgen_status visit_shard(walk *on, const char *name, kgen_error *err) {
    size_t digits = strnlen(on->prefix, SHARD_DIGITS);
    if (strncmp(name, on->prefix, digits) != 0) return KGEN_OK;
    struct dirent **files = NULL;
    kgen_status status = KGEN_OK;
    int shard = open_subdir(on->root, name, 0);
    if (shard < 0) return KGEN_OK;
    int count = scandirat(shard, ".", &files, is_entry, by_name);
    for (int i = 0; i < count; i++) {
        if (status == KGEN_OK && !on->stopped)
            status = visit_file(on, shard, name, files[i]->d_name, err);
        free(files[i]);
    }
    free(files);
    close(shard);
    return status;
}

static kgen_status fail_list(const kgen__store *store, kgen_error *err) {
    return kgen_fail(err, KGEN_E_IO, "cache: cannot read %s: %s", store->dir, strerror(errno));
}

kgen_status kgen__store_each(kgen__store *store, const char *prefix,
                             int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user),
                             void *user, kgen_error *err) {
    struct dirent **shards = NULL;
    kgen_status status = KGEN_OK;
    walk on = {store, prefix, visit, user, open_root(store, 0), 0};
    if (on.root < 0) return errno == ENOENT ? KGEN_OK : fail_list(store, err);
    int count = scandirat(on.root, ".", &shards, is_shard, by_name);
    if (count < 0) status = fail_list(store, err);
    for (int i = 0; i < count; i++) {
        if (status == KGEN_OK && !on.stopped) status = visit_shard(&on, shards[i]->d_name, err);
        free(shards[i]);
    }
    free(shards);
    close(on.root);
    return status;
}

/* ------------------------------------------------------------------------ *
 * open, close
 * ------------------------------------------------------------------------ */

kgen_status kgen__store_open(kgen__store **out, const char *dir, kgen_cache_stats *stats,
                             kgen_error *err) {
    kgen__store *store = calloc(1, sizeof *store);
    if (store) store->dir = strdup(dir);
    if (!store || !store->dir) {
        free(store);
        return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for a directory");
    }
    store->stats = stats;
    *out = store;
    return KGEN_OK;
}

static void store_close(void *self) {
    kgen__store *store = self;
    free(store->dir);
    free(store);
}

const kgen__layer_ops kgen__store_ops = {
    .hits = offsetof(kgen_cache_stats, hits_user),
    .keeps_hits = 0,
    .get = store_get,
    .put = store_put,
    .close = store_close,
};

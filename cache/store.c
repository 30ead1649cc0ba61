/* The directory layer: <dir>/<2 hex>/<62 hex>.kgen, one file an entry.
 *
 * There are no locks. An entry is written under a name that no reader looks at,
 * flushed, and renamed: readers see none or a whole one, and the last of several
 * writers stays. Files are read with read(), never mapped: a file that shrinks
 * on a network file system would end the process. Every step starts from the
 * open directory and follows no symbolic link below it. */
#define _GNU_SOURCE
#include "files.h"
#include "folder.h"
#include "layer.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

/* O_NONBLOCK: a pipe in the place of a file must not hold us up. */
enum { READ_FLAGS = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

struct kgen__store {
    char *dir;
    kgen_cache_stats *stats;
};

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

const char *kgen__store_path(const kgen__store *store) { return store->dir; }

const char *kgen__store_dir(const kgen__store *store) {
    int fd = kgen__folder_open(store->dir, 0);
    int usable = fd >= 0 || (errno == ENOENT && can_make(store->dir));
    if (fd >= 0) close(fd);
    return usable ? store->dir : NULL;
}

/* ------------------------------------------------------------------------ *
 * reading
 * ------------------------------------------------------------------------ */

/* Out of the way of readers; at most one bad file a key is kept, and every folder that stands
 * in the place of one. Not when the name has meanwhile been given to another file: that one may
 * be sound. */
static void set_aside(const kgen__store *store, const kgen__place *at, const struct stat *seen) {
    struct stat now;
    char name[KGEN_KEY_HEX + sizeof KGEN__ENTRY_SUFFIX + 9];
    if (fstatat(at->shard, at->name, &now, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (now.st_ino != seen->st_ino || now.st_dev != seen->st_dev) return;
    kgen__count(&store->stats->quarantined);
    int quarantine = kgen__folder_open_sub(at->root, KGEN__QUARANTINE, 1);
    if (quarantine < 0) return;
    snprintf(name, sizeof name, "%s" KGEN__ENTRY_SUFFIX, at->hex);
    if (renameat(at->shard, at->name, quarantine, name) != 0) {
        snprintf(name, sizeof name, "%s" KGEN__ENTRY_SUFFIX ".%08x", at->hex, randombytes_random());
        (void)renameat(at->shard, at->name, quarantine, name);
    }
    close(quarantine);
}

static kgen__verdict read_entry(int fd, const struct stat *st, kgen_entry **out,
                                const kgen_key *key) {
    if (!kgen__is_trusted(st) || st->st_size > KGEN__FILE_MAX) return KGEN__BAD;
    size_t size = (size_t)st->st_size;
    uint8_t *bytes = malloc(size + 1);
    if (!bytes) return KGEN__NO_MEMORY;
    kgen__verdict verdict = kgen__entry_decode(out, bytes, kgen__read_all(fd, bytes, size), key);
    free(bytes);
    return verdict;
}

static int fetch(void *from, void *out, size_t at, size_t size) {
    const int *fd = from;
    return kgen__read_at(*fd, out, at, size) == size;
}

/* What is not sound as code is judged whole. */
static kgen__verdict read_code(int fd, const struct stat *st, kgen_entry **out,
                               const kgen_key *key) {
    if (!kgen__is_trusted(st)) return KGEN__BAD;
    kgen__verdict verdict = kgen__entry_fetch(out, fetch, &fd, (size_t)st->st_size, key, NULL);
    return verdict == KGEN__GOOD ? verdict : read_entry(fd, st, out, key);
}

/* *out stays NULL for a miss. What cannot be opened is a miss; what may not be
 * believed is one too, and is set aside. */
static kgen_status load(const kgen__store *store, const kgen__place *at, kgen_entry **out,
                        struct stat *seen, const kgen_key *key, int code_only, kgen_error *err) {
    kgen__verdict verdict = KGEN__OTHER;
    int fd = openat(at->shard, at->name, READ_FLAGS);
    if (fd >= 0 && fstat(fd, seen) == 0)
        verdict = (code_only ? read_code : read_entry)(fd, seen, out, key);
    else if (fd < 0 && errno != ENOENT &&
             fstatat(at->shard, at->name, seen, AT_SYMLINK_NOFOLLOW) == 0 &&
             !kgen__is_trusted(seen))
        verdict = KGEN__BAD;
    if (verdict == KGEN__BAD) set_aside(store, at, seen);
    if (fd >= 0) close(fd);
    if (verdict != KGEN__NO_MEMORY) return KGEN_OK;
    return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory to read entry %s", at->hex);
}

static kgen_status store_get(void *self, kgen_entry **out, const kgen_key *key, int code_only,
                             kgen_error *err) {
    const kgen__store *store = self;
    kgen__place at;
    struct stat seen;
    kgen_status status = KGEN_OK;
    if (kgen__place_open(&at, store->dir, key, KGEN__ENTRY_SUFFIX, 0) == 0)
        status = load(store, &at, out, &seen, key, code_only, err);
    if (*out) kgen__stamp(&at, &seen);
    kgen__place_close(&at);
    return status;
}

/* A system layer is nobody's to mend: what is bad there is a miss and stays. */
static kgen_status system_get(void *self, kgen_entry **out, const kgen_key *key, int code_only,
                              kgen_error *err) {
    const kgen__store *store = self;
    kgen__place at;
    struct stat st;
    kgen__verdict verdict = KGEN__OTHER;
    int fd = kgen__place_open(&at, store->dir, key, KGEN__ENTRY_SUFFIX, 0) == 0
                 ? openat(at.shard, at.name, READ_FLAGS)
                 : -1;
    if (fd >= 0 && fstat(fd, &st) == 0)
        verdict = (code_only ? read_code : read_entry)(fd, &st, out, key);
    if (fd >= 0) close(fd);
    kgen__place_close(&at);
    if (verdict != KGEN__NO_MEMORY) return KGEN_OK;
    return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory to read an entry");
}

/* ------------------------------------------------------------------------ *
 * publishing
 * ------------------------------------------------------------------------ */

static kgen_status store_put(void *self, const kgen_entry *entry, kgen_error *err) {
    kgen__store *store = self;
    uint8_t *bytes = NULL;
    size_t size = 0;
    kgen__place at;
    KGEN_TRY(kgen__entry_encode(&bytes, &size, entry, err));
    int failed = kgen__place_open(&at, store->dir, &entry->key, KGEN__ENTRY_SUFFIX, 1) ||
                 kgen__place_publish(&at, bytes, size, 1);
    kgen_status status = KGEN_OK;
    if (failed) {
        status = kgen__fail_write(store->dir, errno, err);
    } else {
        kgen__count(&store->stats->published);
        kgen__sweep_temps(&at);
    }
    kgen__place_close(&at);
    free(bytes);
    return status;
}

/* ------------------------------------------------------------------------ *
 * listing
 * ------------------------------------------------------------------------ */

typedef struct listing {
    const kgen__store *store;
    int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user);
    void *user;
} listing;

static kgen_status list_file(const kgen__place *at, const kgen_key *key, int *stop, void *user,
                             kgen_error *err) {
    const listing *l = user;
    kgen_entry *entry = NULL;
    struct stat seen;
    KGEN_TRY(load(l->store, at, &entry, &seen, key, 0, err));
    if (!entry) return KGEN_OK;
    free(entry->code);
    entry->code = NULL;
    *stop = l->visit(entry, (size_t)seen.st_size, l->user) != 0;
    kgen_entry_free(entry);
    return KGEN_OK;
}

kgen_status kgen__store_each(kgen__store *store, const char *prefix,
                             int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user),
                             void *user, kgen_error *err) {
    listing l = {store, visit, user};
    kgen__walk walk = {.dir = store->dir, .prefix = prefix, .file = list_file, .user = &l};
    return kgen__walk_run(&walk, err);
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

static int store_find(void *self, kgen_key *key, const kgen_key *recipe) {
    const kgen__store *store = self;
    return kgen__recipe_read(store->dir, recipe, key);
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
    .find = store_find,
    .close = store_close,
};

const kgen__layer_ops kgen__system_ops = {
    .hits = offsetof(kgen_cache_stats, hits_system),
    .get = system_get,
    .find = store_find,
    .close = store_close,
};

/* Eviction: of the user directory, the entries that were not used for longest. A hit stamps
 * its file, at most once an hour, for access times are not kept everywhere. */
#define _GNU_SOURCE
#include "layer.h"
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STAMP_S = 3600, LIVE_S = 2 * STAMP_S };

typedef struct item {
    kgen_key key;
    ino_t inode;
    struct timespec used;
    uint64_t bytes; /* on the disk */
} item;

typedef struct items {
    item *list;
    size_t count, capacity;
} items;

void kgen__stamp(const kgen__place *at, const struct stat *seen) {
    if (time(NULL) - seen->st_mtime < STAMP_S) return;
    (void)utimensat(at->shard, at->name, NULL, AT_SYMLINK_NOFOLLOW); /* read-only: no eviction */
}

/* ---- what is there ------------------------------------------------------------ */

static kgen_status add_item(const kgen__place *at, const kgen_key *key, int *stop, void *user,
                            kgen_error *err) {
    items *all = user;
    struct stat st;
    (void)stop;
    if (fstatat(at->shard, at->name, &st, AT_SYMLINK_NOFOLLOW) != 0) return KGEN_OK;
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 256;
        item *more = realloc(all->list, capacity * sizeof *more);
        if (!more) return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for %zu names", capacity);
        all->list = more;
        all->capacity = capacity;
    }
    all->list[all->count++] = (item){*key, st.st_ino, st.st_mtim, (uint64_t)st.st_blocks * 512};
    return KGEN_OK;
}

static int by_use(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return memcmp(&x->key, &y->key, sizeof x->key);
}

/* ---- removing ------------------------------------------------------------------- */

/* Not when it was used, or written again, since it was looked at. 1: it is gone. */
static int remove_item(const char *dir, const item *it) {
    kgen__place at;
    struct stat now;
    int gone = kgen__place_open(&at, dir, &it->key, KGEN__ENTRY_SUFFIX, 0) == 0 &&
               fstatat(at.shard, at.name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
               now.st_ino == it->inode && now.st_mtim.tv_sec == it->used.tv_sec &&
               now.st_mtim.tv_nsec == it->used.tv_nsec && unlinkat(at.shard, at.name, 0) == 0;
    kgen__place_close(&at);
    return gone;
}

static int is_over(const kgen_prune_options *o, const kgen_prune_counts *c) {
    uint64_t bytes = c->bytes - c->removed_bytes, entries = c->entries - c->removed;
    return (o->max_bytes && bytes > o->max_bytes) || (o->max_entries && entries > o->max_entries);
}

static int is_old(const kgen_prune_options *o, const item *it, time_t now) {
    return o->unused_s && (uint64_t)(now - it->used.tv_sec) > o->unused_s && now > it->used.tv_sec;
}

/* The list is sorted: what comes later was used later. */
static void remove_items(const char *dir, const items *all, const kgen_prune_options *o,
                         kgen_prune_counts *counts) {
    time_t now = time(NULL);
    for (size_t i = 0; i < all->count; i++) {
        const item *it = &all->list[i];
        if (!is_over(o, counts) && !is_old(o, it, now)) break;
        if (o->keep_s && now - it->used.tv_sec < (time_t)o->keep_s) break;
        if (!o->dry_run && !remove_item(dir, it)) continue;
        counts->removed++;
        counts->removed_bytes += it->bytes;
    }
}

/* ---- what is left over ------------------------------------------------------------ */

/* A note whose entry is gone says nothing any more. */
static kgen_status drop_note(const kgen__place *at, const kgen_key *recipe, int *stop, void *user,
                             kgen_error *err) {
    const char *dir = user;
    kgen__place entry;
    kgen_key key;
    (void)recipe, (void)stop, (void)err;
    if (!kgen__recipe_read_at(at, &key)) return KGEN_OK;
    int there = kgen__place_open(&entry, dir, &key, KGEN__ENTRY_SUFFIX, 0) == 0 &&
                faccessat(entry.shard, entry.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    kgen__place_close(&entry);
    if (!there) unlinkat(at->shard, at->name, 0);
    return KGEN_OK;
}

static void empty_quarantine(const char *dir) {
    int root = kgen__folder_open(dir, 0);
    int fd = root >= 0 ? kgen__folder_open_sub(root, KGEN__QUARANTINE, 0) : -1;
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; list && (e = readdir(list));)
        if (e->d_name[0] != '.') unlinkat(dirfd(list), e->d_name, 0);
    if (list)
        closedir(list);
    else if (fd >= 0)
        close(fd);
    if (root >= 0) close(root);
}

static kgen_status drop_rest(const char *dir, kgen_error *err) {
    kgen__walk notes = {.dir = dir,
                        .prefix = "",
                        .suffix = KGEN__NOTE_SUFFIX,
                        .file = drop_note,
                        .user = (void *)(uintptr_t)dir};
    empty_quarantine(dir);
    return kgen__walk_run(&notes, err);
}

/* ---- both ----------------------------------------------------------------------------- */

kgen_status kgen__prune(const char *dir, const kgen_prune_options *o, kgen_prune_counts *counts,
                        kgen_error *err) {
    items all = {0};
    kgen__walk walk = {.dir = dir, .prefix = "", .file = add_item, .user = &all};
    memset(counts, 0, sizeof *counts);
    kgen_status status = kgen__walk_run(&walk, err);
    if (status == KGEN_OK) {
        counts->entries = all.count;
        for (size_t i = 0; i < all.count; i++) counts->bytes += all.list[i].bytes;
        if (all.count) qsort(all.list, all.count, sizeof *all.list, by_use);
        remove_items(dir, &all, o, counts);
    }
    free(all.list);
    return status == KGEN_OK && !o->dry_run && counts->removed ? drop_rest(dir, err) : status;
}

/* ---- the caps of the environment ---------------------------------------------------------- */

static kgen_status take_cap(uint64_t *out, const char *name, kgen_error *err) {
    const char *text = secure_getenv(name);
    char *end;
    *out = 0;
    if (!text || !*text) return KGEN_OK;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno) return KGEN_OK;
    return kgen_fail(err, KGEN_E_ARG, "%s=%.60s: a number expected, 0: no cap", name, text);
}

kgen_status kgen__caps_take(kgen_prune_options *out, kgen_error *err) {
    *out = (kgen_prune_options){.size = sizeof *out, .keep_s = LIVE_S};
    KGEN_TRY(take_cap(&out->max_bytes, "KGEN_CACHE_MAX_BYTES", err));
    return take_cap(&out->max_entries, "KGEN_CACHE_MAX_ENTRIES", err);
}

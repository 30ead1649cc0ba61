/* The walk over a folder: shards and files in the order of their names. */
#define _GNU_SOURCE
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_hex(const char *name, size_t digits) {
    return strspn(name, "0123456789abcdef") == digits;
}

static int is_shard(const struct dirent *file) {
    return is_hex(file->d_name, KGEN__SHARD_DIGITS) && !file->d_name[KGEN__SHARD_DIGITS];
}

static int has_name(const struct dirent *file) { return is_hex(file->d_name, KGEN__NAME_DIGITS); }

/* alphasort would follow the locale. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static kgen_status visit_file(const kgen__walk *walk, const kgen__place *shard, const char *name,
                              int *stop, kgen_error *err) {
    const char *suffix = walk->suffix ? walk->suffix : KGEN__ENTRY_SUFFIX;
    kgen__place at = *shard;
    kgen_key key;
    if (strcmp(name + KGEN__NAME_DIGITS, suffix) != 0) return KGEN_OK;
    snprintf(at.hex, sizeof at.hex, "%.2s%.62s", shard->hex, name);
    if (strncmp(at.hex, walk->prefix, strlen(walk->prefix)) != 0) return KGEN_OK;
    KGEN_TRY(kgen_key_parse(&key, at.hex, err));
    kgen__place_name(&at, &key, suffix);
    return walk->file(&at, &key, stop, walk->user, err);
}

static kgen_status visit_shard(kgen__walk *walk, int root, const char *name, int *stop,
                               kgen_error *err) {
    size_t digits = strnlen(walk->prefix, KGEN__SHARD_DIGITS);
    if (strncmp(name, walk->prefix, digits) != 0) return KGEN_OK;
    struct dirent **files = NULL;
    kgen_status status = KGEN_OK;
    kgen__place shard = {.root = root, .shard = kgen__folder_open_sub(root, name, 0)};
    walk->refused += shard.shard < 0;
    if (shard.shard < 0) return KGEN_OK;
    snprintf(shard.hex, sizeof shard.hex, "%.2s", name);
    int count = scandirat(shard.shard, ".", &files, has_name, by_name);
    walk->refused += count < 0;
    for (int i = 0; i < count; i++) {
        if (status == KGEN_OK && !*stop)
            status = visit_file(walk, &shard, files[i]->d_name, stop, err);
        free(files[i]);
    }
    free(files);
    close(shard.shard);
    return status;
}

static kgen_status fail_list(const kgen__walk *walk, kgen_error *err) {
    return kgen_fail(err, KGEN_E_IO, "cache: cannot read %s: %s", walk->dir, strerror(errno));
}

kgen_status kgen__walk_run(kgen__walk *walk, kgen_error *err) {
    struct dirent **shards = NULL;
    kgen_status status = KGEN_OK;
    int stop = 0, root = kgen__folder_open(walk->dir, 0);
    if (root < 0) return errno == ENOENT ? KGEN_OK : fail_list(walk, err);
    int count = scandirat(root, ".", &shards, is_shard, by_name);
    if (count < 0) status = fail_list(walk, err);
    for (int i = 0; i < count; i++) {
        if (status == KGEN_OK && !stop)
            status = visit_shard(walk, root, shards[i]->d_name, &stop, err);
        free(shards[i]);
    }
    free(shards);
    close(root);
    return status;
}

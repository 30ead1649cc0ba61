/* Every entry's file of a folder, in key order. */
#ifndef KGEN_CACHE_WALK_H
#define KGEN_CACHE_WALK_H

#include "folder.h"

typedef struct kgen__walk {
    const char *dir;
    const char *prefix; /* of the key, lower-case hex */
    const char *suffix; /* of the files; NULL: entries */
    /* at->root and at->shard are open; at->name is the file's. *stop: no more. */
    kgen_status (*file)(const kgen__place *at, const kgen_key *key, int *stop, void *user,
                        kgen_error *err);
    void *user;
    size_t refused; /* out: folders that are not this user's, or cannot be read */
} kgen__walk;

/* A folder that is not there has no files. */
kgen_status kgen__walk_run(kgen__walk *walk, kgen_error *err);

#endif

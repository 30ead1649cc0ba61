/* The folder of a cache, as the files of cache/ walk it: which of its parts may be
 * believed, where a key lives, how a file is published. */
#ifndef KGEN_CACHE_FOLDER_H
#define KGEN_CACHE_FOLDER_H

#include <kgen/cache.h>

#include <sys/stat.h>

enum {
    KGEN__SHARD_DIGITS = 2,
    KGEN__NAME_DIGITS = KGEN_KEY_HEX - 1 - KGEN__SHARD_DIGITS,
    KGEN__SUFFIX_MAX = 8,
    KGEN__NAME_MAX = KGEN__NAME_DIGITS + KGEN__SUFFIX_MAX,
};

#define KGEN__ENTRY_SUFFIX ".kgen"
#define KGEN__NOTE_SUFFIX ".made"
#define KGEN__QUARANTINE "quarantine"

/* Others could have put into it what they like: neither this user's nor root's. */
int kgen__is_foreign(const struct stat *st);
/* A plain file that nobody else can write. */
int kgen__is_trusted(const struct stat *st);

/* -1 with errno. `create`: with its parents, 0700. The folder itself may be a link
 * that the user made; what is below it may not. */
int kgen__folder_open(const char *dir, int create);
int kgen__folder_open_sub(int root, const char *name, int create);

/* Which step failed does not matter to anybody; why does. */
kgen_status kgen__fail_write(const char *dir, int reason, kgen_error *err);

/* Where the file of a key lives: <2 hex>/<62 hex><suffix>. -1: not open. */
typedef struct kgen__place {
    int root, shard;
    char hex[KGEN_KEY_HEX];
    char name[KGEN__NAME_MAX];
} kgen__place;

void kgen__place_name(kgen__place *at, const kgen_key *key, const char *suffix);
/* 0, or -1 with errno; close it either way. */
int kgen__place_open(kgen__place *at, const char *dir, const kgen_key *key, const char *suffix,
                     int create);
void kgen__place_close(kgen__place *at);

/* Under a name that no reader looks at, then renamed: readers see none or a whole
 * one. `durable`: flushed first. 0, or -1 with errno and no file left. */
int kgen__place_publish(const kgen__place *at, const void *bytes, size_t size, int durable);
/* A file that may be believed, whole: free(). 0, or -1. */
int kgen__place_read(const kgen__place *at, uint8_t **bytes, size_t *size);
/* Removes what writers that were killed have left in the shard of what was just published: by
 * that file's date, for this process may have another clock than those that write there. */
void kgen__sweep_temps(const kgen__place *at);

#endif

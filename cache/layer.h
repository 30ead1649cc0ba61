/* What the files of cache/ share. Nothing outside cache/ and its tests includes
 * this. A layer is a row of functions. kgen_cache_open makes two of
 * them: the memory of the process, and a folder. */
#ifndef KGEN_CACHE_LAYER_H
#define KGEN_CACHE_LAYER_H

#include <kgen/cache.h>

enum {
    /* Hashed into every key and written into every entry: raise it when the
     * key's fields or the entry format change, so that two formats never meet
     * under one key. */
    KGEN__SCHEMA = 5,
    KGEN__CODE_MAX = 64 << 20,
    KGEN__SOURCE_MAX = 16 << 20,
    KGEN__HEAD_MAX = 4096, /* all of an entry before its code */
    KGEN__DIGEST = 32,
    KGEN__FILE_MAX = KGEN__CODE_MAX + 2 * KGEN__SOURCE_MAX,
};

/* What a file that claims to be an entry turned out to be. */
typedef enum kgen__verdict {
    KGEN__GOOD,
    KGEN__BAD,       /* damaged, of another key, or for another architecture */
    KGEN__OTHER,     /* sound, but written by a version that knows more */
    KGEN__NO_MEMORY, /* says nothing about the file */
} kgen__verdict;

/* entry.c -----------------------------------------------------------------
 * check: may this entry be stored? E_ARG or E_TARGET names the field.
 * encode: *out is `*size` bytes to free(). decode: never reads past `size`
 * bytes and believes none of them before length and digest agree. */
kgen_status kgen__entry_check(const kgen_entry *entry, kgen_error *err);
kgen_status kgen__entry_encode(uint8_t **out, size_t *size, const kgen_entry *entry,
                               kgen_error *err);
kgen__verdict kgen__entry_decode(kgen_entry **out, const uint8_t *bytes, size_t size,
                                 const kgen_key *key);
/* Of what stands before the code, and of the code. */
void kgen__code_digest(uint8_t out[KGEN__DIGEST], const uint8_t *head, size_t head_size,
                       const uint8_t *code, size_t code_size);
/* What the index of a bundle says of an entry: BLAKE2b of all but its source, for which the
 * digest that ends the file stands, so that a signature vouches for code that is read alone.
 * 0: `bytes` are no entry of this key. */
int kgen__entry_seal(uint8_t out[KGEN__DIGEST], const uint8_t *bytes, size_t size,
                     const kgen_key *key);
/* Only what stands before the code; `got` bytes of a file of `size`. */
kgen__verdict kgen__entry_head(kgen_entry *out, size_t *code_at, const uint8_t *bytes, size_t got,
                               size_t size, const kgen_key *key);
/* 1: `size` bytes of a file from `at` on are in `out`. */
typedef int kgen__fetch(void *from, void *out, size_t at, size_t size);
/* The head and the code of a file of `size` bytes, proved by their own digest, and by a seal
 * where one is given: the source stays NULL and is not read. */
kgen__verdict kgen__entry_fetch(kgen_entry **out, kgen__fetch *fetch, void *from, size_t size,
                                const kgen_key *key, const uint8_t *seal);
/* NULL: out of memory. code_only: without its source, which another copy may lack too. */
kgen_entry *kgen__entry_copy(const kgen_entry *entry, int code_only);

/* One layer. get: *out == NULL with KGEN_OK is a miss. Thread-safe. */
typedef struct kgen__layer_ops {
    size_t hits;    /* offset of its hit counter in kgen_cache_stats */
    int keeps_hits; /* takes a copy of what a farther layer found */
    int is_far;     /* every nearer layer takes a copy of what it found */
    /* code_only: the source is not wanted, and may be there all the same. */
    kgen_status (*get)(void *self, kgen_entry **out, const kgen_key *key, int code_only,
                       kgen_error *err);
    kgen_status (*put)(void *self, const kgen_entry *entry, kgen_error *err); /* NULL: read-only */
    /* 1: *key is the key that the last build had for `recipe`. NULL: does not know. */
    int (*find)(void *self, kgen_key *key, const kgen_key *recipe);
    void (*close)(void *self);
} kgen__layer_ops;

/* memory.c */
typedef struct kgen__memory kgen__memory;
extern const kgen__layer_ops kgen__memory_ops;
kgen_status kgen__memory_open(kgen__memory **out, kgen_error *err);

/* store.c: the directory layer. `dir` is absolute and need not exist yet;
 * `stats` outlives the store and takes its counts. */
typedef struct kgen__store kgen__store;
extern const kgen__layer_ops kgen__store_ops;
extern const kgen__layer_ops kgen__system_ops; /* the same, but nothing is written */
kgen_status kgen__store_open(kgen__store **out, const char *dir, kgen_cache_stats *stats,
                             kgen_error *err);
/* The directory, usable or not. */
const char *kgen__store_path(const kgen__store *store);
/* The directory, or NULL while it can be neither read nor made. */
const char *kgen__store_dir(const kgen__store *store);
kgen_status kgen__store_each(kgen__store *store, const char *prefix,
                             int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user),
                             void *user, kgen_error *err);

/* heads.c, health.c */
kgen_status kgen__heads_each(const char *dir, const char *prefix,
                             int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user),
                             void *user, kgen_error *err);
kgen_status kgen__heads_count(const char *dir, kgen_cache_health *health, kgen_error *err);
int kgen__folder_test(const char *dir); /* 0: an entry could be saved; else errno */
kgen_status kgen__folder_examine(const char *dir, kgen_cache_health *out, kgen_error *err);

/* layer_open.c: a bundle or a folder, to read. */
kgen_status kgen__layer_open(const kgen__layer_ops **ops, void **self, const char *path,
                             kgen_cache_stats *stats, kgen_error *err);

/* prune.c. stamp: it was used. caps: what the environment allows; live entries stay. */
struct kgen__place;
struct stat;
void kgen__stamp(const struct kgen__place *at, const struct stat *seen);
kgen_status kgen__prune(const char *dir, const kgen_prune_options *options,
                        kgen_prune_counts *counts, kgen_error *err);
kgen_status kgen__caps_take(kgen_prune_options *out, kgen_error *err);

/* use_counts.c. read: 0 when there are none. add: 0 when it could not. */
int kgen__counts_read(const char *dir, kgen_cache_use *out);
int kgen__counts_add(const char *dir, const kgen_cache_stats *more);

/* lock.c: a descriptor to close(), KGEN_LOCK_BUSY or KGEN_LOCK_NONE. *probe: -1, or what asks
 * whether a lock is still held in one call; to close() at the end. */
int kgen__lock_take(const char *dir, int *probe, const kgen_key *key);
int kgen__lock_is_held(const int *probe, const kgen_key *key);
void kgen__lock_await(const int *probe, const kgen_key *key, int ms);
void kgen__lock_free(int lock, const kgen_key *key);

/* key.c. What a compiler sees of a source. */
void kgen__source_tokens(uint8_t out[KGEN_SOURCE_DIGEST_BYTES], const kgen_source *source);

/* key.c, recipe.c. read: 1 when there is one. write: 0, or -1 with errno. */
void kgen__recipe_make(kgen_key *out, const kgen_source *source, const char *const *flags,
                       size_t flag_count);
int kgen__recipe_read(const char *dir, const kgen_key *recipe, kgen_key *key);
int kgen__recipe_read_at(const struct kgen__place *at, kgen_key *key);
int kgen__recipe_write(const char *dir, const kgen_key *recipe, const kgen_key *key);

static inline void kgen__count(uint64_t *counter) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

#endif

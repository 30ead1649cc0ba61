/* The code-object cache: content-addressed, one file an entry, checked before
 * use. Layers, nearest first: memory; bundles and folders that others made
 * (<kgen/bundle.h>), which are only read; the user directory; a server.
 *
 * Thread-safe. Processes share a directory without locks for correctness:
 * entries are published by rename, a loser of a race uses its own bytes. */
#ifndef KGEN_CACHE_H
#define KGEN_CACHE_H

#include "source.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KGEN_KEY_BYTES = 32, KGEN_KEY_HEX = 65 };

typedef struct kgen_key {
    uint8_t bytes[KGEN_KEY_BYTES];
} kgen_key;

/* Read from the code object's metadata after every build. -1: unknown. */
typedef struct kgen_resources {
    int32_t vgprs, agprs, sgprs;      /* registers a lane / a wave */
    int32_t vgpr_spills, sgpr_spills; /* registers */
    int32_t scratch_bytes;            /* a lane */
    int32_t lds_bytes;                /* a workgroup */
    int32_t workgroup_size;           /* lanes */
    int32_t wave_size;
    int32_t kernarg_bytes;
    int32_t code_bytes;     /* machine code of the entry */
    int32_t waves_per_simd; /* occupancy the above allow */
} kgen_resources;

typedef struct kgen_build_record {
    uint32_t compile_ms;
    uint64_t unix_time;
    char toolchain[64]; /* "hiprtc 7.2 <build-id prefix>" */
} kgen_build_record;

/* One compiled kernel. `code` is what the driver takes. */
typedef struct kgen_entry {
    kgen_key key;
    char spec[KGEN_SPEC_LINE_MAX];
    char target[32];
    char symbol[KGEN_SYMBOL_MAX];
    kgen_resources resources;
    kgen_build_record record;
    uint8_t *code;
    size_t code_size;
    char *source; /* NUL-terminated; NULL: KGEN_GET_CODE */
    size_t source_size;
    /* Of the source's tokens; set by a look-up, not read by a put. */
    uint8_t source_digest[KGEN_SOURCE_DIGEST_BYTES];
} kgen_entry;

typedef struct kgen_cache kgen_cache;

typedef struct kgen_cache_stats {
    uint64_t hits_memory, hits_user, misses, published, quarantined, hits_bundle, hits_system;
    uint64_t hits_remote, remote_failures; /* look-ups and publications that failed */
    /* Why kgen_build did not find what it was asked for: never built, or without a compiler
     * no telling; built by another compiler only; built, and the entry is gone or refused. */
    uint64_t misses_new, misses_compiler, misses_gone;
} kgen_cache_stats;

/* The counts of all processes that used the user directory. */
typedef struct kgen_cache_use {
    uint64_t since; /* seconds of 1970 */
    kgen_cache_stats stats;
} kgen_cache_use;

/* dir: NULL means $KGEN_CACHE_DIR, else $XDG_CACHE_HOME/kgen, else
 * ~/.cache/kgen. It is made (0700) at the first publish. "" means memory
 * only. No readable or writable directory is not an error: the cache then
 * works from memory, and kgen_cache_dir returns NULL. */
KGEN_API kgen_status kgen_cache_open(kgen_cache **out, const char *dir, kgen_error *err);
KGEN_API void kgen_cache_close(kgen_cache *cache);
KGEN_API const char *kgen_cache_dir(const kgen_cache *cache);
KGEN_API kgen_cache_stats kgen_cache_get_stats(const kgen_cache *cache);

/* 0: nobody has counted. */
KGEN_API int kgen_cache_get_use(const kgen_cache *cache, kgen_cache_use *out);
/* Adds what is new of this cache's counts to those of the user directory, as kgen_build and
 * kgen_cache_close do. Nothing is written where only layers of others were hit. */
KGEN_API void kgen_cache_note_use(kgen_cache *cache);

/* key = BLAKE2b-256 over the schema number, kgen_source_digest of the text and,
 * each behind its length, flags in order, target name, toolchain identity. */
KGEN_API void kgen_key_make(kgen_key *out, const kgen_source *source, const char *const *flags,
                            size_t flag_count, const char *toolchain_id);
KGEN_API void kgen_key_hex(char out[KGEN_KEY_HEX], const kgen_key *key);
/* Parses 64 hex digits. */
KGEN_API kgen_status kgen_key_parse(kgen_key *out, const char *hex, kgen_error *err);

/* Where look-ups go, nearest first: the memory, what KGEN_CACHE_LAYERS names, the user
 * directory, the server of KGEN_CACHE_REMOTE. 0: no layer `i`. */
typedef struct kgen_cache_layer {
    const char *path; /* "": the memory */
    const char *kind; /* "memory", "bundle", "folder", "user", "remote", "refused" */
    const char *why;  /* refused: why; else "" */
} kgen_cache_layer;
KGEN_API int kgen_cache_layer_at(const kgen_cache *cache, size_t i, kgen_cache_layer *out);

/* Found: *out is a copy that the caller frees, *found = 1. A corrupt,
 * truncated or foreign-owned file is set aside under quarantine/, counted, and
 * reported as a miss. */
KGEN_API kgen_status kgen_cache_get(kgen_cache *cache, kgen_entry **out, int *found,
                                    const kgen_key *key, kgen_error *err);
/* How a look-up is done: all of these that are set. */
enum {
    KGEN_GET_NEAR = 1, /* the remote layer is not asked */
    KGEN_GET_CODE = 2, /* only what a device gets is read and proved; the source is NULL */
};
KGEN_API kgen_status kgen_cache_get_as(kgen_cache *cache, kgen_entry **out, int *found,
                                       const kgen_key *key, int how, kgen_error *err);
/* Stores in memory, and in the user directory where there is one. An
 * unwritable directory is KGEN_E_IO here: the memory layer has the entry. */
KGEN_API kgen_status kgen_cache_put(kgen_cache *cache, const kgen_entry *entry, kgen_error *err);
/* Without a compiler there is no key. Found: what the last build with a compiler had of
 * this source, these flags and its target. */
KGEN_API kgen_status kgen_cache_get_made(kgen_cache *cache, kgen_entry **out, int *found,
                                         const kgen_source *source, const char *const *flags,
                                         size_t flag_count, int how, kgen_error *err);
/* Says so for the next time: `key` is what the compiler of today makes of them. */
KGEN_API void kgen_cache_note_made(kgen_cache *cache, const kgen_source *source,
                                   const char *const *flags, size_t flag_count,
                                   const kgen_key *key);
/* 1: a layer's note of them says `key`. */
KGEN_API int kgen_cache_was_made(kgen_cache *cache, const kgen_source *source,
                                 const char *const *flags, size_t flag_count, const kgen_key *key);

/* Counts why `key` is not there; NULL: there is no compiler, and so no key. */
KGEN_API void kgen_cache_note_miss(kgen_cache *cache, const kgen_source *source,
                                   const char *const *flags, size_t flag_count,
                                   const kgen_key *key);

/* Single flight: a lock saves work and guards nothing. A descriptor for kgen_cache_unlock (or
 * close(), which wakes nobody), or one of these: another one compiles this key; there is no
 * folder to lock in. */
enum { KGEN_LOCK_BUSY = -1, KGEN_LOCK_NONE = -2 };
KGEN_API int kgen_cache_lock(kgen_cache *cache, const kgen_key *key);
KGEN_API void kgen_cache_unlock(int lock, const kgen_key *key);
/* After KGEN_LOCK_BUSY. 1: it still is. await: sleeps until it is free, `ms` at most. */
KGEN_API int kgen_cache_is_locked(const kgen_cache *cache, const kgen_key *key);
KGEN_API void kgen_cache_await(const kgen_cache *cache, const kgen_key *key, int ms);

/* Entries of the user directory whose hex key starts with `prefix` ("" = all),
 * in key order, without their code (code == NULL); visit returns non-zero to
 * stop. */
KGEN_API kgen_status kgen_cache_each(kgen_cache *cache, const char *prefix,
                                     int (*visit)(const kgen_entry *entry, size_t file_bytes,
                                                  void *user),
                                     void *user, kgen_error *err);
/* The same by the heads of the files: fast, no source, and only for people to read, for
 * no digest is looked at. */
KGEN_API kgen_status kgen_cache_list(kgen_cache *cache, const char *prefix,
                                     int (*visit)(const kgen_entry *entry, size_t file_bytes,
                                                  void *user),
                                     void *user, kgen_error *err);

/* What the user directory is good for: an entry is written for a test, and removed. */
typedef struct kgen_cache_health {
    uint64_t entries, bytes;
    uint64_t refused;       /* files and folders of others, links, damaged heads */
    int open_to_others;     /* the directory can be written by others */
    kgen_error cannot_save; /* status KGEN_OK: entries can be saved */
    kgen_error remote;      /* status KGEN_OK: none, or it answers */
} kgen_cache_health;
KGEN_API kgen_status kgen_cache_examine(kgen_cache *cache, kgen_cache_health *out, kgen_error *err);

/* Least recently used first. 0: no such limit. */
typedef struct kgen_prune_options {
    size_t size; /* sizeof(kgen_prune_options) */
    uint64_t max_bytes, max_entries;
    uint64_t unused_s; /* remove what nobody used for so long */
    uint64_t keep_s;   /* never what was used within this; uses are known by the hour */
    int dry_run;
} kgen_prune_options;

typedef struct kgen_prune_counts {
    uint64_t entries, bytes; /* that were there; bytes as the disk counts */
    uint64_t removed, removed_bytes;
} kgen_prune_counts;

/* An entry that is used, or written again, meanwhile stays. */
KGEN_API kgen_status kgen_cache_prune(kgen_cache *cache, const kgen_prune_options *options,
                                      kgen_prune_counts *counts, kgen_error *err);
/* The same with KGEN_CACHE_MAX_BYTES and KGEN_CACHE_MAX_ENTRIES, as kgen_build does when it
 * has compiled; what was used in the last two hours stays. */
KGEN_API kgen_status kgen_cache_trim(kgen_cache *cache, kgen_error *err);
KGEN_API void kgen_entry_free(kgen_entry *entry);

#ifdef __cplusplus
}
#endif
#endif

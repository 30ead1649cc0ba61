/* Bundles: many entries in one file, for an image or a system folder. KGEN_CACHE_LAYERS names
 * bundles and folders, separated by colons, that every cache looks into before the user's. */
#ifndef KGEN_BUNDLE_H
#define KGEN_BUNDLE_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kgen_bundle_options {
    size_t size;          /* sizeof(kgen_bundle_options) */
    const char *key_file; /* NULL: not signed. Else 64 hex digits, the seed of an Ed25519 key */
    /* NULL: all. Else 1: this entry, without code and source, belongs into it. */
    int (*wanted)(const kgen_entry *entry, void *user);
    void *user;
} kgen_bundle_options;

typedef struct kgen_bundle_counts {
    uint64_t entries, bytes; /* taken */
    uint64_t bad;            /* damaged, refused or not to be read: left out */
    char public_key[65];     /* hex; "": not signed */
} kgen_bundle_counts;

/* Writes `path` from sources, each a bundle or a cache folder; of a key in several the first
 * counts. The same entries are the same bytes. */
KGEN_API kgen_status kgen_bundle_write(kgen_bundle_counts *counts, const char *path,
                                       const char *const *sources, size_t source_count,
                                       const kgen_bundle_options *options, kgen_error *err);
/* Into a cache folder. shared: readable by every user, as a system layer. */
KGEN_API kgen_status kgen_bundle_unpack(kgen_bundle_counts *counts, const char *path,
                                        const char *dir, int shared, kgen_error *err);
/* Every byte of a bundle or a cache folder. KGEN_E_IO when any is bad. */
KGEN_API kgen_status kgen_bundle_verify(kgen_bundle_counts *counts, const char *path,
                                        kgen_error *err);
/* The sound entries of a bundle or a cache folder, whole, in no order; visit returns non-zero
 * to stop. */
KGEN_API kgen_status kgen_bundle_each(const char *path,
                                      int (*visit)(const kgen_entry *entry, void *user), void *user,
                                      kgen_error *err);
/* A new key: 64 hex digits into a file that only its owner reads, which must not exist. */
KGEN_API kgen_status kgen_bundle_key_make(char public_key[65], const char *path, kgen_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* Where the entries of a bundle come from: cache folders and other bundles. */
#ifndef KGEN_CACHE_SOURCES_H
#define KGEN_CACHE_SOURCES_H

#include "bundle_parts.h"

typedef struct kgen__source {
    const char *path;
    kgen__bundle *bundle; /* NULL: a folder */
    size_t bad;           /* of what was asked for so far: damaged, refused, or not to be read */
} kgen__source;

kgen_status kgen__source_open(kgen__source *out, const char *path, kgen_error *err);
void kgen__source_close(kgen__source *source);

/* What has a name there, not looked at yet. An entry's note is NULL; of a note, `key` is the
 * recipe. 1 from `visit` stops with KGEN_E_NOMEM. */
typedef int kgen__source_visit(const kgen_key *key, const kgen_key *note, void *user);
kgen_status kgen__source_each(kgen__source *source, kgen__source_visit *visit, void *user,
                              kgen_error *err);
/* The bytes of a sound entry and what they say. KGEN_OK with *entry NULL: it is bad, or in a folder
 * and of another version. Free both. */
kgen_status kgen__source_read(kgen__source *source, const kgen_key *key, uint8_t **bytes,
                              size_t *size, kgen_entry **entry, kgen_error *err);

#endif

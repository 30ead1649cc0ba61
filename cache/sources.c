/* Folders and bundles, seen as one: names first, bytes later. */
#define _GNU_SOURCE
#include "sources.h"
#include "walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

kgen_status kgen__source_open(kgen__source *out, const char *path, kgen_error *err) {
    struct stat st;
    *out = (kgen__source){path, NULL, 0};
    if (stat(path, &st) != 0) return kgen_fail(err, KGEN_E_IO, "%.600s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return KGEN_OK;
    return kgen__bundle_open(&out->bundle, path, secure_getenv("KGEN_BUNDLE_KEY"),
                             KGEN__BUNDLE_AUTO, err);
}

void kgen__source_close(kgen__source *source) { kgen__bundle_close(source->bundle); }

/* ---- names ----------------------------------------------------------------- */

typedef struct naming {
    kgen__source *source;
    kgen__source_visit *visit;
    void *user;
} naming;

static kgen_status on_entry(const kgen__place *at, const kgen_key *key, int *stop, void *user,
                            kgen_error *err) {
    const naming *n = user;
    (void)at, (void)stop;
    if (!n->visit(key, NULL, n->user)) return KGEN_OK;
    return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory for its index");
}

static kgen_status on_note(const kgen__place *at, const kgen_key *recipe, int *stop, void *user,
                           kgen_error *err) {
    const naming *n = user;
    kgen_key key;
    int readable = kgen__recipe_read_at(at, &key);
    (void)stop;
    n->source->bad += !readable;
    if (!readable || !n->visit(recipe, &key, n->user)) return KGEN_OK;
    return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory for its index");
}

static kgen_status each_file(naming *n, kgen_error *err) {
    kgen__walk entries = {.dir = n->source->path, .prefix = "", .file = on_entry, .user = n};
    kgen__walk notes = {.dir = n->source->path,
                        .prefix = "",
                        .suffix = KGEN__NOTE_SUFFIX,
                        .file = on_note,
                        .user = n};
    KGEN_TRY(kgen__walk_run(&entries, err));
    n->source->bad += entries.refused;
    return kgen__walk_run(&notes, err);
}

static kgen_status each_slot(naming *n, kgen_error *err) {
    kgen__slot slot;
    kgen_key key;
    for (uint64_t i = 0; i >> kgen__bundle_about(n->source->bundle)->bits == 0; i++) {
        if (!kgen__bundle_slot(n->source->bundle, i, &slot))
            return kgen_fail(err, KGEN_E_IO, "bundle %.600s: %s", n->source->path, strerror(errno));
        if (kgen__slot_is_empty(&slot)) continue;
        memcpy(key.bytes, slot.value, sizeof key.bytes);
        if (n->visit(&slot.key, slot.size ? NULL : &key, n->user))
            return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory for its index");
    }
    return KGEN_OK;
}

kgen_status kgen__source_each(kgen__source *source, kgen__source_visit *visit, void *user,
                              kgen_error *err) {
    naming n = {source, visit, user};
    return source->bundle ? each_slot(&n, err) : each_file(&n, err);
}

/* ---- bytes ------------------------------------------------------------------- */

static kgen__verdict read_file(const char *dir, const kgen_key *key, uint8_t **bytes, size_t *size,
                               kgen_entry **entry) {
    kgen__place at;
    int found = kgen__place_open(&at, dir, key, KGEN__ENTRY_SUFFIX, 0) == 0 &&
                kgen__place_read(&at, bytes, size) == 0;
    kgen__place_close(&at);
    return found ? kgen__entry_decode(entry, *bytes, *size, key) : KGEN__BAD;
}

static kgen__verdict read_slot(kgen__bundle *bundle, const kgen_key *key, uint8_t **bytes,
                               size_t *size, kgen_entry **entry) {
    kgen__slot slot;
    if (!kgen__bundle_look(bundle, key, &slot) ||
        kgen__bundle_bytes(bundle, &slot, bytes, NULL) != KGEN_OK)
        return KGEN__BAD;
    *size = (size_t)slot.size;
    return kgen__bundle_decode(entry, &slot, *bytes);
}

kgen_status kgen__source_read(kgen__source *source, const kgen_key *key, uint8_t **bytes,
                              size_t *size, kgen_entry **entry, kgen_error *err) {
    *bytes = NULL;
    *entry = NULL;
    kgen__verdict verdict = source->bundle ? read_slot(source->bundle, key, bytes, size, entry)
                                           : read_file(source->path, key, bytes, size, entry);
    if (verdict == KGEN__GOOD) return KGEN_OK;
    source->bad += verdict == KGEN__BAD || source->bundle;
    free(*bytes);
    *bytes = NULL;
    return verdict == KGEN__NO_MEMORY ? kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory") : KGEN_OK;
}

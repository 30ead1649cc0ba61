/* Unpacking and verifying: every entry of a source, one by one. */
#define _GNU_SOURCE
#include "folder.h"
#include "sources.h"

#include <kgen/bundle.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct taking {
    kgen__source source;
    const char *dir; /* NULL: only looked at */
    int shared, stopped;
    int (*visit)(const kgen_entry *entry, void *user); /* NULL: nobody */
    void *user;
    kgen_bundle_counts *counts;
    kgen_status status;
    kgen_error *err;
} taking;

/* What every user may read; the folders are made 0700. */
static int open_to_readers(const kgen__place *at) {
    return fchmod(at->root, 0755) || fchmod(at->shard, 0755) ||
           fchmodat(at->shard, at->name, 0644, 0);
}

static kgen_status put_entry(const taking *t, const kgen_key *key, const uint8_t *bytes,
                             size_t size) {
    kgen__place at;
    int failed = kgen__place_open(&at, t->dir, key, KGEN__ENTRY_SUFFIX, 1) ||
                 kgen__place_publish(&at, bytes, size, 1) || (t->shared && open_to_readers(&at));
    int reason = errno;
    kgen__place_close(&at);
    return failed ? kgen__fail_write(t->dir, reason, t->err) : KGEN_OK;
}

static kgen_status put_note(const taking *t, const kgen_key *recipe, const kgen_key *key) {
    kgen__place at;
    if (kgen__recipe_write(t->dir, recipe, key) != 0)
        return kgen__fail_write(t->dir, errno, t->err);
    if (!t->shared) return KGEN_OK;
    int failed =
        kgen__place_open(&at, t->dir, recipe, KGEN__NOTE_SUFFIX, 0) || open_to_readers(&at);
    int reason = errno;
    kgen__place_close(&at);
    return failed ? kgen__fail_write(t->dir, reason, t->err) : KGEN_OK;
}

static kgen_status take_entry(taking *t, const kgen_key *key) {
    uint8_t *bytes;
    size_t size = 0;
    kgen_entry *entry;
    KGEN_TRY(kgen__source_read(&t->source, key, &bytes, &size, &entry, t->err));
    kgen_status status = entry && t->dir ? put_entry(t, key, bytes, size) : KGEN_OK;
    t->counts->entries += entry != NULL;
    t->counts->bytes += entry ? size : 0;
    if (entry && t->visit) t->stopped = t->visit(entry, t->user) != 0;
    kgen_entry_free(entry);
    free(bytes);
    return status;
}

static int take(const kgen_key *key, const kgen_key *note, void *user) {
    taking *t = user;
    t->status = !note ? take_entry(t, key) : t->dir ? put_note(t, key, note) : KGEN_OK;
    return t->status != KGEN_OK || t->stopped;
}

static kgen_status take_all(taking *t, const char *path, kgen_error *err) {
    kgen_error stopped;
    memset(t->counts, 0, sizeof *t->counts);
    t->err = err;
    KGEN_TRY(kgen__source_open(&t->source, path, err));
    kgen_status status = kgen__source_each(&t->source, take, t, &stopped);
    t->counts->bad = t->source.bad;
    if (status != KGEN_OK && t->status == KGEN_OK && !t->stopped)
        t->status = kgen_fail(err, status, "%s", stopped.text);
    return t->status;
}

kgen_status kgen_bundle_unpack(kgen_bundle_counts *counts, const char *path, const char *dir,
                               int shared, kgen_error *err) {
    taking t = {.dir = dir, .shared = shared, .counts = counts};
    kgen_status status = take_all(&t, path, err);
    kgen__source_close(&t.source);
    return status;
}

kgen_status kgen_bundle_each(const char *path, int (*visit)(const kgen_entry *entry, void *user),
                             void *user, kgen_error *err) {
    kgen_bundle_counts counts;
    taking t = {.visit = visit, .user = user, .counts = &counts};
    kgen_status status = take_all(&t, path, err);
    kgen__source_close(&t.source);
    return status;
}

static kgen_status verify_bundle(const taking *t, kgen_error *err) {
    const kgen__bundle_head *head = kgen__bundle_about(t->source.bundle);
    KGEN_TRY(kgen__bundle_check(t->source.bundle, err));
    if (!sodium_is_zero(head->signature, sizeof head->signature))
        sodium_bin2hex(t->counts->public_key, sizeof t->counts->public_key, head->public_key,
                       sizeof head->public_key);
    return t->counts->entries + t->counts->bad == head->entries
               ? KGEN_OK
               : kgen_fail(err, KGEN_E_IO, "bundle %.600s: entries are missing", t->source.path);
}

kgen_status kgen_bundle_verify(kgen_bundle_counts *counts, const char *path, kgen_error *err) {
    taking t = {.counts = counts};
    kgen_status status = take_all(&t, path, err);
    if (status == KGEN_OK && t.source.bundle) status = verify_bundle(&t, err);
    kgen__source_close(&t.source);
    if (status == KGEN_OK && counts->bad)
        status = kgen_fail(err, KGEN_E_IO, "%.600s: %llu of %llu entries are damaged or refused",
                           path, (unsigned long long)counts->bad,
                           (unsigned long long)(counts->bad + counts->entries));
    return status;
}

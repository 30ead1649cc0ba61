/* Writing a bundle: names are collected and sorted, then entries are copied one by one, so
 * that the same entries are the same bytes and only the index lies in memory. */
#define _GNU_SOURCE
#include "files.h"
#include "sources.h"

#include <kgen/bundle.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SOURCES_MAX = 64 };

typedef struct piece {
    kgen__slot slot; /* of an entry: at and size once it is written */
    int source, is_note;
} piece;

typedef struct writer {
    kgen_bundle_options options;
    kgen_bundle_counts *counts;
    kgen__source sources[SOURCES_MAX];
    int source_count, source; /* the one whose names are collected */
    piece *pieces;
    size_t count, capacity;
    char temp[PATH_MAX];
    int fd;
    uint64_t at;
    FILE *manifest;
    char *manifest_text;
    size_t manifest_size;
    kgen__bundle_head head;
} writer;

static kgen_status io_fail(const writer *w, kgen_error *err) {
    return kgen_fail(err, KGEN_E_IO, "bundle: cannot write %.600s: %s", w->temp, strerror(errno));
}

/* ---- names ------------------------------------------------------------------- */

static int add_piece(const kgen_key *key, const kgen_key *note, void *user) {
    writer *w = user;
    if (w->count == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 256;
        piece *more = realloc(w->pieces, capacity * sizeof *more);
        if (!more) return 1;
        w->pieces = more;
        w->capacity = capacity;
    }
    piece *p = &w->pieces[w->count++];
    *p = (piece){.slot.key = *key, .source = w->source, .is_note = note != NULL};
    if (note) memcpy(p->slot.value, note->bytes, sizeof p->slot.value);
    return 0;
}

/* Entries first, so that a note can be asked whether its entry is there. */
static int by_name(const void *a, const void *b) {
    const piece *x = a, *y = b;
    if (x->is_note != y->is_note) return x->is_note - y->is_note;
    int order = memcmp(&x->slot.key, &y->slot.key, sizeof x->slot.key);
    return order ? order : x->source - y->source;
}

static void drop_doubles(writer *w) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++) {
        const piece *last = kept ? &w->pieces[kept - 1] : NULL;
        if (last && last->is_note == w->pieces[i].is_note &&
            memcmp(&last->slot.key, &w->pieces[i].slot.key, sizeof last->slot.key) == 0)
            continue;
        w->pieces[kept++] = w->pieces[i];
    }
    w->count = kept;
}

static kgen_status collect(writer *w, const char *const *paths, size_t count, kgen_error *err) {
    if (count > SOURCES_MAX)
        return kgen_fail(err, KGEN_E_ARG, "bundle: %zu sources, at most %d", count, SOURCES_MAX);
    for (size_t i = 0; i < count; i++) {
        kgen__source *source = &w->sources[i];
        w->source = (int)i;
        KGEN_TRY(kgen__source_open(source, paths[i], err));
        w->source_count++;
        KGEN_TRY(kgen__source_each(source, add_piece, w, err));
    }
    if (w->count) qsort(w->pieces, w->count, sizeof *w->pieces, by_name);
    drop_doubles(w);
    return KGEN_OK;
}

/* ---- entries ------------------------------------------------------------------- */

static int write_padded(writer *w, const uint8_t *bytes, size_t size) {
    static const uint8_t zeros[KGEN__BUNDLE_ALIGN];
    size_t padding = (size_t)(-w->at % KGEN__BUNDLE_ALIGN);
    if (kgen__write_all(w->fd, zeros, padding) || kgen__write_all(w->fd, bytes, size)) return -1;
    w->at += padding + size;
    return 0;
}

static void note_entry(writer *w, const kgen_entry *entry) {
    char hex[KGEN_KEY_HEX];
    kgen_key_hex(hex, &entry->key);
    fprintf(w->manifest, "%s %s @%s # %s\n", hex, entry->spec, entry->target,
            entry->record.toolchain);
}

static kgen_status copy_entry(writer *w, piece *p, kgen_error *err) {
    uint8_t *bytes;
    size_t size;
    kgen_entry *entry;
    kgen_status status = KGEN_OK;
    KGEN_TRY(kgen__source_read(&w->sources[p->source], &p->slot.key, &bytes, &size, &entry, err));
    if (entry && (!w->options.wanted || w->options.wanted(entry, w->options.user))) {
        if (write_padded(w, bytes, size) != 0) status = io_fail(w, err);
        p->slot.at = w->at - size;
        p->slot.size = size;
        kgen__entry_seal(p->slot.value, bytes, size, &p->slot.key);
        note_entry(w, entry);
        w->head.entries++;
        w->counts->bytes += size;
    }
    kgen_entry_free(entry);
    free(bytes);
    return status;
}

/* Pieces are sorted: entries, then notes. */
static const piece *find_entry(const writer *w, size_t entries, const uint8_t *key) {
    piece wanted = {.is_note = 0};
    memcpy(wanted.slot.key.bytes, key, KGEN_KEY_BYTES);
    size_t low = 0, high = entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = memcmp(&w->pieces[middle].slot.key, &wanted.slot.key, sizeof wanted.slot.key);
        if (order == 0) return w->pieces[middle].slot.size ? &w->pieces[middle] : NULL;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static kgen_status copy_entries(writer *w, kgen_error *err) {
    size_t entries = 0;
    while (entries < w->count && !w->pieces[entries].is_note)
        KGEN_TRY(copy_entry(w, &w->pieces[entries++], err));
    for (size_t i = entries; i < w->count; i++) {
        w->pieces[i].slot.at = find_entry(w, entries, w->pieces[i].slot.value) != NULL;
        w->head.notes += w->pieces[i].slot.at;
    }
    return KGEN_OK;
}

/* ---- index, manifest, head --------------------------------------------------------- */

static void put_slot(uint8_t *index, uint32_t bits, const kgen__slot *slot) {
    uint64_t mask = ((uint64_t)1 << bits) - 1, at = kgen__slot_first(&slot->key, bits);
    kgen__slot there;
    for (;; at = (at + 1) & mask) {
        kgen__slot_take(&there, index + at * KGEN__BUNDLE_SLOT);
        if (kgen__slot_is_empty(&there)) break;
    }
    kgen__slot_put(index + at * KGEN__BUNDLE_SLOT, slot);
}

/* Half empty: a look-up meets one or two slots. */
static kgen_status make_index(writer *w, uint8_t **out, kgen_error *err) {
    uint64_t used = w->head.entries + w->head.notes;
    w->head.bits = 4;
    while ((uint64_t)1 << w->head.bits < 2 * used) w->head.bits++;
    if (w->head.bits > KGEN__BUNDLE_BITS_MAX)
        return kgen_fail(err, KGEN_E_UNSUPPORTED, "bundle: %llu entries, at most %d",
                         (unsigned long long)w->head.entries, 1 << (KGEN__BUNDLE_BITS_MAX - 2));
    *out = calloc(1, (size_t)kgen__bundle_index_bytes(&w->head));
    if (!*out) return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory for its index");
    for (size_t i = 0; i < w->count; i++) {
        kgen__slot slot = w->pieces[i].slot;
        int is_used = w->pieces[i].is_note ? slot.at != 0 : slot.size != 0;
        if (is_used) put_slot(*out, w->head.bits, &slot);
    }
    return KGEN_OK;
}

static kgen_status sign(writer *w, kgen_error *err) {
    uint8_t seed[crypto_sign_SEEDBYTES], secret[crypto_sign_SECRETKEYBYTES];
    char hex[2 * sizeof seed + 2] = "";
    const char *path = w->options.key_file;
    if (!path) return KGEN_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd >= 0 ? read(fd, hex, sizeof hex - 1) : -1;
    int reason = errno;
    if (fd >= 0) close(fd);
    if (got < 0) return kgen_fail(err, KGEN_E_IO, "key %.600s: %s", path, strerror(reason));
    hex[strcspn(hex, "\n")] = 0;
    size_t bytes = 0;
    int good = sodium_hex2bin(seed, sizeof seed, hex, strlen(hex), NULL, &bytes, NULL) == 0 &&
               bytes == sizeof seed;
    if (good) {
        crypto_sign_seed_keypair(w->head.public_key, secret, seed);
        crypto_sign_detached(w->head.signature, NULL, w->head.digest, sizeof w->head.digest,
                             secret);
        sodium_bin2hex(w->counts->public_key, sizeof w->counts->public_key, w->head.public_key,
                       sizeof w->head.public_key);
    }
    sodium_memzero(hex, sizeof hex);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(secret, sizeof secret);
    return good ? KGEN_OK : kgen_fail(err, KGEN_E_ARG, "key %.600s: 64 hex digits expected", path);
}

static kgen_status finish_parts(writer *w, const uint8_t *index, kgen_error *err) {
    uint8_t head[KGEN__BUNDLE_HEAD];
    crypto_generichash_state state;
    size_t index_bytes = (size_t)kgen__bundle_index_bytes(&w->head);
    if (write_padded(w, index, index_bytes) != 0 ||
        kgen__write_all(w->fd, w->manifest_text, w->manifest_size) != 0)
        return io_fail(w, err);
    w->head.index_at = w->at - index_bytes;
    w->head.manifest_at = w->at;
    w->head.manifest_size = w->manifest_size;
    w->head.file_size = w->at + w->manifest_size;
    kgen__bundle_digest_head(&state, &w->head);
    crypto_generichash_update(&state, index, index_bytes);
    crypto_generichash_update(&state, (const uint8_t *)w->manifest_text, w->manifest_size);
    crypto_generichash_final(&state, w->head.digest, sizeof w->head.digest);
    KGEN_TRY(sign(w, err));
    kgen__bundle_head_put(head, &w->head);
    if (lseek(w->fd, 0, SEEK_SET) != 0 || kgen__write_all(w->fd, head, sizeof head) != 0 ||
        fchmod(w->fd, 0644) != 0 || fsync(w->fd) != 0)
        return io_fail(w, err);
    return KGEN_OK;
}

static kgen_status write_parts(writer *w, kgen_error *err) {
    static const uint8_t empty[KGEN__BUNDLE_HEAD];
    uint8_t *index = NULL;
    w->head.version = KGEN__BUNDLE_VERSION;
    if (write_padded(w, empty, sizeof empty) != 0) return io_fail(w, err);
    KGEN_TRY(copy_entries(w, err));
    if (fflush(w->manifest) != 0) return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory");
    kgen_status status = make_index(w, &index, err);
    if (status == KGEN_OK) status = finish_parts(w, index, err);
    free(index);
    w->counts->entries = w->head.entries;
    for (int i = 0; i < w->source_count; i++) w->counts->bad += w->sources[i].bad;
    return status;
}

/* ---- the file ------------------------------------------------------------------------ */

/* Beside `path`, then renamed: a reader of the old one keeps it. */
static kgen_status write_file(writer *w, const char *path, kgen_error *err) {
    if ((size_t)snprintf(w->temp, sizeof w->temp, "%s.tmp-%08x", path, randombytes_random()) >=
        sizeof w->temp)
        return kgen_fail(err, KGEN_E_IO, "bundle %.600s: %s", path, strerror(ENAMETOOLONG));
    w->fd = open(w->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (w->fd < 0) return io_fail(w, err);
    kgen_status status = write_parts(w, err);
    if (status == KGEN_OK && rename(w->temp, path) != 0) status = io_fail(w, err);
    if (status != KGEN_OK) unlink(w->temp);
    close(w->fd);
    return status;
}

static void release(writer *w) {
    for (int i = 0; i < w->source_count; i++) kgen__source_close(&w->sources[i]);
    if (w->manifest) fclose(w->manifest);
    free(w->manifest_text);
    free(w->pieces);
    free(w);
}

kgen_status kgen_bundle_write(kgen_bundle_counts *counts, const char *path,
                              const char *const *sources, size_t source_count,
                              const kgen_bundle_options *options, kgen_error *err) {
    writer *w = calloc(1, sizeof *w);
    memset(counts, 0, sizeof *counts);
    if (w) w->manifest = open_memstream(&w->manifest_text, &w->manifest_size);
    if (!w || !w->manifest) {
        free(w);
        return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory");
    }
    w->counts = counts;
    kgen_status status =
        kgen_struct_take(&w->options, sizeof w->options, options, "kgen_bundle_options", err);
    if (status == KGEN_OK) status = collect(w, sources, source_count, err);
    if (status == KGEN_OK) status = write_file(w, path, err);
    release(w);
    return status;
}

kgen_status kgen_bundle_key_make(char public_key[65], const char *path, kgen_error *err) {
    uint8_t seed[crypto_sign_SEEDBYTES], secret[crypto_sign_SECRETKEYBYTES];
    uint8_t public_bytes[crypto_sign_PUBLICKEYBYTES];
    char hex[2 * sizeof seed + 1];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return kgen_fail(err, KGEN_E_IO, "key %.600s: %s", path, strerror(errno));
    randombytes_buf(seed, sizeof seed);
    crypto_sign_seed_keypair(public_bytes, secret, seed);
    sodium_bin2hex(hex, sizeof hex, seed, sizeof seed);
    sodium_bin2hex(public_key, 65, public_bytes, sizeof public_bytes);
    int failed = kgen__write_all(fd, hex, strlen(hex)) || kgen__write_all(fd, "\n", 1);
    int reason = errno;
    failed |= close(fd) != 0;
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(secret, sizeof secret);
    sodium_memzero(hex, sizeof hex);
    return failed ? kgen_fail(err, KGEN_E_IO, "key %.600s: %s", path, strerror(reason)) : KGEN_OK;
}

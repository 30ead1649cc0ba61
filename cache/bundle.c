/* Reading a bundle: as a layer, slot by slot, and whole to verify it. */
#define _GNU_SOURCE
#include "bundle_parts.h"
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

struct kgen__bundle {
    char *path;
    int fd;
    const uint8_t *mapped; /* NULL: read */
    kgen__bundle_head head;
    int is_pinned; /* believed for its signature */
};

static kgen_status refuse(const kgen__bundle *b, const char *why, kgen_error *err) {
    return kgen_fail(err, KGEN_E_IO, "bundle %.600s: %s", b->path, why);
}

/* ---- bytes ----------------------------------------------------------------- */

/* 0, or -1 with errno. */
static int read_at(const kgen__bundle *b, void *out, uint64_t at, size_t size) {
    uint8_t *to = out;
    if (b->mapped) {
        memcpy(out, b->mapped + at, size);
        return 0;
    }
    while (size > 0) {
        ssize_t got = pread(b->fd, to, size, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            if (got == 0) errno = EIO;
            return -1;
        }
        to += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

/* A file that shrinks there would end the process that has it mapped. */
static int is_remote(int fd) {
    static const uint32_t types[] = {
        0x6969 /* nfs */,        0xff534d42 /* cifs */, 0xfe534d42 /* smb2 */,
        0x517b /* smb */,        0x65735546 /* fuse */, 0x01021997 /* 9p */,
        0x0bd00bd0 /* lustre */, 0x00c36400 /* ceph */, 0x47504653 /* gpfs */,
        0x19830326 /* beegfs */, 0x5346414f /* afs */,  0x01161970 /* gfs2 */,
    };
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) return 1;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if ((uint32_t)fs.f_type == types[i]) return 1;
    return 0;
}

static void map_bundle(kgen__bundle *b, kgen__bundle_access access) {
    if (access == KGEN__BUNDLE_READ || is_remote(b->fd)) return;
    void *at = mmap(NULL, (size_t)b->head.file_size, PROT_READ, MAP_PRIVATE, b->fd, 0);
    if (at != MAP_FAILED) b->mapped = at;
}

/* ---- may it be believed ------------------------------------------------------ */

/* Of the head, the index and the manifest. */
static int digest_of(const kgen__bundle *b, uint8_t out[KGEN__BUNDLE_DIGEST]) {
    uint8_t buffer[1 << 14];
    crypto_generichash_state state;
    kgen__bundle_digest_head(&state, &b->head);
    for (uint64_t at = b->head.index_at; at < b->head.file_size;) {
        uint64_t left = b->head.file_size - at;
        size_t size = left < sizeof buffer ? (size_t)left : sizeof buffer;
        if (read_at(b, buffer, at, size) != 0) return -1;
        crypto_generichash_update(&state, buffer, size);
        at += size;
    }
    crypto_generichash_final(&state, out, KGEN__BUNDLE_DIGEST);
    return 0;
}

static int is_among(const char *trusted, const uint8_t key[crypto_sign_PUBLICKEYBYTES]) {
    char hex[2 * crypto_sign_PUBLICKEYBYTES + 1];
    sodium_bin2hex(hex, sizeof hex, key, crypto_sign_PUBLICKEYBYTES);
    for (const char *at = trusted; *at;) {
        size_t length = strcspn(at, ":");
        if (length == sizeof hex - 1 && strncasecmp(at, hex, length) == 0) return 1;
        at += length + (at[length] == ':');
    }
    return 0;
}

static const char *check_signature(const kgen__bundle *b, const char *trusted) {
    uint8_t digest[KGEN__BUNDLE_DIGEST];
    if (sodium_is_zero(b->head.signature, sizeof b->head.signature))
        return "not signed, and KGEN_BUNDLE_KEY asks for it";
    if (!is_among(trusted, b->head.public_key)) return "signed by a key that KGEN_BUNDLE_KEY lacks";
    if (digest_of(b, digest) != 0) return strerror(errno);
    if (memcmp(digest, b->head.digest, sizeof digest) != 0) return "its digest does not agree";
    return crypto_sign_verify_detached(b->head.signature, digest, sizeof digest,
                                       b->head.public_key) == 0
               ? NULL
               : "its signature does not agree";
}

/* A signature says more than an owner. */
static const char *check_owner(const struct stat *st, const char *trusted) {
    if (!S_ISREG(st->st_mode)) return "no plain file";
    if (trusted || kgen__is_trusted(st)) return NULL;
    return kgen__is_foreign(st) ? "it belongs to neither this user nor root"
                                : "it can be written by others";
}

static kgen_status check_file(kgen__bundle *b, const char *trusted, kgen__bundle_access access,
                              kgen_error *err) {
    struct stat st;
    uint8_t head[KGEN__BUNDLE_HEAD];
    if (fstat(b->fd, &st) != 0) return refuse(b, strerror(errno), err);
    const char *why = check_owner(&st, trusted);
    if (!why && st.st_size < KGEN__BUNDLE_HEAD) why = "no bundle";
    if (!why && read_at(b, head, 0, sizeof head) != 0) why = strerror(errno);
    if (!why) why = kgen__bundle_head_take(&b->head, head, (uint64_t)st.st_size);
    if (!why) map_bundle(b, access);
    if (!why && trusted) why = check_signature(b, trusted);
    b->is_pinned = trusted != NULL;
    return why ? refuse(b, why, err) : KGEN_OK;
}

/* ---- open, close --------------------------------------------------------------- */

kgen_status kgen__bundle_open(kgen__bundle **out, const char *path, const char *trusted,
                              kgen__bundle_access access, kgen_error *err) {
    kgen__bundle *b = calloc(1, sizeof *b);
    if (b) b->path = strdup(path);
    if (!b || !b->path) {
        free(b);
        return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory");
    }
    b->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    kgen_status status =
        b->fd < 0 ? refuse(b, strerror(errno), err) : check_file(b, trusted, access, err);
    if (status == KGEN_OK)
        *out = b;
    else
        kgen__bundle_close(b);
    return status;
}

void kgen__bundle_close(kgen__bundle *b) {
    if (!b) return;
    if (b->mapped) munmap((void *)(uintptr_t)b->mapped, (size_t)b->head.file_size);
    if (b->fd >= 0) close(b->fd);
    free(b->path);
    free(b);
}

const kgen__bundle_head *kgen__bundle_about(const kgen__bundle *b) { return &b->head; }

/* ---- slots ------------------------------------------------------------------------ */

int kgen__bundle_slot(kgen__bundle *b, uint64_t i, kgen__slot *out) {
    uint8_t bytes[KGEN__BUNDLE_SLOT];
    if (i >> b->head.bits ||
        read_at(b, bytes, b->head.index_at + i * KGEN__BUNDLE_SLOT, sizeof bytes) != 0)
        return 0;
    kgen__slot_take(out, bytes);
    return 1;
}

/* A made-up index may have no empty slot: each is looked at once. */
int kgen__bundle_look(kgen__bundle *b, const kgen_key *key, kgen__slot *out) {
    uint64_t count = (uint64_t)1 << b->head.bits, first = kgen__slot_first(key, b->head.bits);
    for (uint64_t i = 0; i < count; i++) {
        if (!kgen__bundle_slot(b, (first + i) & (count - 1), out) || kgen__slot_is_empty(out))
            return 0;
        if (memcmp(&out->key, key, sizeof *key) == 0) return 1;
    }
    return 0;
}

static int is_inside(const kgen__bundle *b, const kgen__slot *slot) {
    return slot->size > 0 && slot->size <= KGEN__FILE_MAX && slot->at >= KGEN__BUNDLE_HEAD &&
           slot->at <= b->head.index_at && slot->size <= b->head.index_at - slot->at;
}

kgen_status kgen__bundle_bytes(kgen__bundle *b, const kgen__slot *slot, uint8_t **out,
                               kgen_error *err) {
    *out = NULL;
    if (!is_inside(b, slot)) return refuse(b, "a slot leads out of the file", err);
    *out = malloc((size_t)slot->size);
    if (!*out) return kgen_fail(err, KGEN_E_NOMEM, "bundle: no %zu bytes", (size_t)slot->size);
    if (read_at(b, *out, slot->at, (size_t)slot->size) == 0) return KGEN_OK;
    free(*out);
    *out = NULL;
    return refuse(b, strerror(errno), err);
}

/* The slot has the seal, so a signed index vouches for the entry. */
kgen__verdict kgen__bundle_decode(kgen_entry **out, const kgen__slot *slot, const uint8_t *bytes) {
    uint8_t seal[KGEN__DIGEST];
    if (!kgen__entry_seal(seal, bytes, (size_t)slot->size, &slot->key) ||
        memcmp(seal, slot->value, sizeof seal) != 0)
        return KGEN__BAD;
    return kgen__entry_decode(out, bytes, (size_t)slot->size, &slot->key);
}

/* ---- the layer ---------------------------------------------------------------------- */

typedef struct in_bundle {
    const kgen__bundle *bundle;
    uint64_t at;
} in_bundle;

static int fetch(void *from, void *out, size_t at, size_t size) {
    const in_bundle *in = from;
    return read_at(in->bundle, out, in->at + at, size) == 0;
}

static kgen__verdict take(kgen__bundle *b, kgen_entry **out, const kgen__slot *slot,
                          int code_only) {
    uint8_t *bytes;
    if (code_only && is_inside(b, slot)) {
        in_bundle from = {b, slot->at};
        return kgen__entry_fetch(out, fetch, &from, (size_t)slot->size, &slot->key,
                                 b->is_pinned ? slot->value : NULL);
    }
    if (kgen__bundle_bytes(b, slot, &bytes, NULL) != KGEN_OK) return KGEN__BAD;
    kgen__verdict verdict = kgen__bundle_decode(out, slot, bytes);
    free(bytes);
    return verdict;
}

static kgen_status bundle_get(void *self, kgen_entry **out, const kgen_key *key, int code_only,
                              kgen_error *err) {
    kgen__bundle *b = self;
    kgen__slot slot;
    if (!kgen__bundle_look(b, key, &slot)) return KGEN_OK;
    kgen__verdict verdict = take(b, out, &slot, code_only);
    if (verdict != KGEN__NO_MEMORY) return KGEN_OK;
    return kgen_fail(err, KGEN_E_NOMEM, "bundle: no memory to read an entry");
}

static int bundle_find(void *self, kgen_key *key, const kgen_key *recipe) {
    kgen__slot slot;
    if (!kgen__bundle_look(self, recipe, &slot) || slot.size != 0) return 0;
    memcpy(key->bytes, slot.value, sizeof key->bytes);
    return 1;
}

static void bundle_close(void *self) { kgen__bundle_close(self); }

const kgen__layer_ops kgen__bundle_ops = {
    .hits = offsetof(kgen_cache_stats, hits_bundle),
    .get = bundle_get,
    .find = bundle_find,
    .close = bundle_close,
};

/* ---- all of it ------------------------------------------------------------------------- */

/* A signature that is there has to agree, whoever's it is. */
kgen_status kgen__bundle_check(const kgen__bundle *b, kgen_error *err) {
    uint8_t digest[KGEN__BUNDLE_DIGEST];
    if (digest_of(b, digest) != 0) return refuse(b, strerror(errno), err);
    if (memcmp(digest, b->head.digest, sizeof digest) != 0)
        return refuse(b, "its digest does not agree", err);
    if (!sodium_is_zero(b->head.signature, sizeof b->head.signature) &&
        crypto_sign_verify_detached(b->head.signature, digest, sizeof digest, b->head.public_key) !=
            0)
        return refuse(b, "its signature does not agree", err);
    return KGEN_OK;
}

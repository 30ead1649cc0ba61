/* One file with many entries, to ship and to read only.
 *
 *   head        magic, version, sizes; digest of index and manifest; key and signature
 *   entries     as their files are, each at a multiple of 64
 *   index       2^bits slots, open addressing: what begins with these bits is near
 *   manifest    text, an entry a line
 *
 * An entry proves itself (length, digest, key), so a look-up reads one slot and one
 * entry. The index is digested where a signature is asked for, and by kgen verify. */
#ifndef KGEN_CACHE_BUNDLE_PARTS_H
#define KGEN_CACHE_BUNDLE_PARTS_H

#include "layer.h"

#include <sodium.h>

enum {
    KGEN__BUNDLE_VERSION = 2,
    KGEN__BUNDLE_DIGEST = 32,
    KGEN__BUNDLE_HEAD = 256,
    KGEN__BUNDLE_SLOT = 80,
    KGEN__BUNDLE_BITS_MAX = 26,
    KGEN__BUNDLE_ALIGN = 64,
};

/* A slot: key[32]  value[32]  at u64  size u64. Of an entry, value is its
 * seal. Of a note, `size` is 0 and value the key that its recipe had. Empty: zeros. */
typedef struct kgen__slot {
    kgen_key key;
    uint8_t value[KGEN__BUNDLE_DIGEST];
    uint64_t at, size;
} kgen__slot;

/* Little-endian in the file, in this order; zeros up to KGEN__BUNDLE_HEAD. */
typedef struct kgen__bundle_head {
    uint32_t version, bits;
    uint64_t entries, notes, index_at, manifest_at, manifest_size, file_size;
    uint8_t digest[KGEN__BUNDLE_DIGEST]; /* of the head to here, index and manifest */
    uint8_t public_key[crypto_sign_PUBLICKEYBYTES];
    uint8_t signature[crypto_sign_BYTES]; /* of the digest; zeros: not signed */
} kgen__bundle_head;

/* bundle_format.c */
void kgen__bundle_head_put(uint8_t out[KGEN__BUNDLE_HEAD], const kgen__bundle_head *head);
/* NULL: sound as far as a head can be; else what is wrong. */
const char *kgen__bundle_head_take(kgen__bundle_head *out, const uint8_t in[KGEN__BUNDLE_HEAD],
                                   uint64_t file_size);
void kgen__slot_put(uint8_t out[KGEN__BUNDLE_SLOT], const kgen__slot *slot);
void kgen__slot_take(kgen__slot *out, const uint8_t in[KGEN__BUNDLE_SLOT]);
int kgen__slot_is_empty(const kgen__slot *slot);
/* The slot where a look-up of `key` begins. */
uint64_t kgen__slot_first(const kgen_key *key, uint32_t bits);
uint64_t kgen__bundle_index_bytes(const kgen__bundle_head *head);
/* What the digest of the head starts with. */
void kgen__bundle_digest_head(crypto_generichash_state *state, const kgen__bundle_head *head);

typedef struct kgen__bundle kgen__bundle;
extern const kgen__layer_ops kgen__bundle_ops;

typedef enum kgen__bundle_access {
    KGEN__BUNDLE_AUTO, /* mapped from a local disk, read from a network */
    KGEN__BUNDLE_READ, /* never mapped */
} kgen__bundle_access;

/* trusted: hex of the public keys that may have signed, separated by colons; NULL: a
 * bundle is believed by its owner, as an entry is. */
kgen_status kgen__bundle_open(kgen__bundle **out, const char *path, const char *trusted,
                              kgen__bundle_access access, kgen_error *err);
void kgen__bundle_close(kgen__bundle *bundle);
const kgen__bundle_head *kgen__bundle_about(const kgen__bundle *bundle);
/* Slot `i` of the index. 0: past its end. */
int kgen__bundle_slot(kgen__bundle *bundle, uint64_t i, kgen__slot *out);
/* 1: the slot of this key. */
int kgen__bundle_look(kgen__bundle *bundle, const kgen_key *key, kgen__slot *out);
/* The bytes of an entry: free(). */
kgen_status kgen__bundle_bytes(kgen__bundle *bundle, const kgen__slot *slot, uint8_t **out,
                               kgen_error *err);
/* The entry in them, when they are what the index says. */
kgen__verdict kgen__bundle_decode(kgen_entry **out, const kgen__slot *slot, const uint8_t *bytes);
/* Digest and signature of head, index and manifest; not the entries. */
kgen_status kgen__bundle_check(const kgen__bundle *bundle, kgen_error *err);

#endif

/* The numbers of a bundle, to bytes and back. */
#include "bundle_parts.h"

#include <string.h>

static const uint8_t magic[8] = {'k', 'g', 'b', 'u', 'n', 'd', '\n', 0x1a};

static uint8_t *put(uint8_t *at, uint64_t number, int width) {
    for (int i = 0; i < width; i++) *at++ = (uint8_t)(number >> (8 * i));
    return at;
}

static uint64_t take(const uint8_t **at, int width) {
    uint64_t number = 0;
    for (int i = 0; i < width; i++) number |= (uint64_t)*(*at)++ << (8 * i);
    return number;
}

/* clang-format off */
#define HEAD_NUMBERS(X)                                                                           \
    X(version, 4, uint32_t) X(bits, 4, uint32_t) X(entries, 8, uint64_t) X(notes, 8, uint64_t)    \
    X(index_at, 8, uint64_t) X(manifest_at, 8, uint64_t) X(manifest_size, 8, uint64_t)            \
    X(file_size, 8, uint64_t)
#define HEAD_BYTES(X) X(digest) X(public_key) X(signature)
/* clang-format on */

enum {
#define ADD(name, width, type) +width
    NUMBERS = 8 HEAD_NUMBERS(ADD) /* with the magic */
#undef ADD
};

void kgen__bundle_head_put(uint8_t out[KGEN__BUNDLE_HEAD], const kgen__bundle_head *head) {
    uint8_t *at = out + sizeof magic;
    memset(out, 0, KGEN__BUNDLE_HEAD);
    memcpy(out, magic, sizeof magic);
#define PUT(name, width, type) at = put(at, head->name, width);
    HEAD_NUMBERS(PUT)
#undef PUT
#define PUT(name)                              \
    memcpy(at, head->name, sizeof head->name); \
    at += sizeof head->name;
    HEAD_BYTES(PUT)
#undef PUT
}

static const char *check(const kgen__bundle_head *head, uint64_t file_size) {
    if (head->version != KGEN__BUNDLE_VERSION) return "of another version";
    if (head->file_size != file_size) return "its length is not what it says";
    if (head->bits < 1 || head->bits > KGEN__BUNDLE_BITS_MAX) return "size of the index";
    uint64_t index = kgen__bundle_index_bytes(head);
    if (head->index_at < KGEN__BUNDLE_HEAD || head->index_at > file_size ||
        index > file_size - head->index_at || head->manifest_at != head->index_at + index ||
        head->manifest_size != file_size - head->manifest_at)
        return "places of index and manifest";
    if (head->entries > index || head->notes > index ||
        (head->entries + head->notes) * KGEN__BUNDLE_SLOT >= index)
        return "number of entries"; /* a slot is free, so that a look-up ends */
    return NULL;
}

const char *kgen__bundle_head_take(kgen__bundle_head *out, const uint8_t in[KGEN__BUNDLE_HEAD],
                                   uint64_t file_size) {
    const uint8_t *at = in + sizeof magic;
    if (memcmp(in, magic, sizeof magic) != 0) return "no bundle";
#define TAKE(name, width, type) out->name = (type)take(&at, width);
    HEAD_NUMBERS(TAKE)
#undef TAKE
#define TAKE(name)                           \
    memcpy(out->name, at, sizeof out->name); \
    at += sizeof out->name;
    HEAD_BYTES(TAKE)
#undef TAKE
    return check(out, file_size);
}

void kgen__bundle_digest_head(crypto_generichash_state *state, const kgen__bundle_head *head) {
    uint8_t bytes[KGEN__BUNDLE_HEAD];
    kgen__bundle_head_put(bytes, head);
    crypto_generichash_init(state, NULL, 0, KGEN__BUNDLE_DIGEST);
    crypto_generichash_update(state, bytes, NUMBERS);
}

void kgen__slot_put(uint8_t out[KGEN__BUNDLE_SLOT], const kgen__slot *slot) {
    memcpy(out, slot->key.bytes, KGEN_KEY_BYTES);
    memcpy(out + KGEN_KEY_BYTES, slot->value, sizeof slot->value);
    put(put(out + KGEN_KEY_BYTES + sizeof slot->value, slot->at, 8), slot->size, 8);
}

void kgen__slot_take(kgen__slot *out, const uint8_t in[KGEN__BUNDLE_SLOT]) {
    const uint8_t *at = in + KGEN_KEY_BYTES + sizeof out->value;
    memcpy(out->key.bytes, in, KGEN_KEY_BYTES);
    memcpy(out->value, in + KGEN_KEY_BYTES, sizeof out->value);
    out->at = take(&at, 8);
    out->size = take(&at, 8);
}

/* A note has size 0, and a key of zeros nobody has. */
int kgen__slot_is_empty(const kgen__slot *slot) {
    return slot->size == 0 && sodium_is_zero(slot->key.bytes, sizeof slot->key.bytes);
}

uint64_t kgen__slot_first(const kgen_key *key, uint32_t bits) {
    const uint8_t *at = key->bytes;
    return take(&at, 8) & (((uint64_t)1 << bits) - 1);
}

uint64_t kgen__bundle_index_bytes(const kgen__bundle_head *head) {
    return (uint64_t)KGEN__BUNDLE_SLOT << head->bits;
}

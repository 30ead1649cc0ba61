/* Keys: what decides the bytes of a code object, and nothing else. */
#include "layer.h"

#include <string.h>

#include <sodium.h>

/* The length goes first, so that ("ab","c") and ("a","bc") differ. */
static void add_number(crypto_generichash_state *state, uint64_t number) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(number >> (8 * i));
    crypto_generichash_update(state, bytes, sizeof bytes);
}

static void add_field(crypto_generichash_state *state, const char *text, size_t size) {
    add_number(state, size);
    crypto_generichash_update(state, (const unsigned char *)text, size);
}

static void add_string(crypto_generichash_state *state, const char *text) {
    add_field(state, text, strlen(text));
}

void kgen__source_tokens(uint8_t out[KGEN_SOURCE_DIGEST_BYTES], const kgen_source *source) {
    if (source->has_digest)
        memcpy(out, source->digest, sizeof source->digest);
    else
        kgen_source_digest(out, source->text, source->size);
}

/* What is left of a key without its compiler. */
static void add_recipe(crypto_generichash_state *state, const kgen_source *source,
                       const char *const *flags, size_t flag_count) {
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES];
    kgen__source_tokens(digest, source);
    add_number(state, KGEN__SCHEMA);
    crypto_generichash_update(state, digest, sizeof digest);
    add_number(state, flag_count);
    for (size_t i = 0; i < flag_count; i++) add_string(state, flags[i]);
    add_string(state, source->target->name);
}

void kgen_key_make(kgen_key *out, const kgen_source *source, const char *const *flags,
                   size_t flag_count, const char *toolchain_id) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, KGEN_KEY_BYTES);
    add_recipe(&state, source, flags, flag_count);
    add_string(&state, toolchain_id);
    crypto_generichash_final(&state, out->bytes, KGEN_KEY_BYTES);
}

void kgen__recipe_make(kgen_key *out, const kgen_source *source, const char *const *flags,
                       size_t flag_count) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, KGEN_KEY_BYTES);
    add_recipe(&state, source, flags, flag_count);
    crypto_generichash_final(&state, out->bytes, KGEN_KEY_BYTES);
}

void kgen_key_hex(char out[KGEN_KEY_HEX], const kgen_key *key) {
    sodium_bin2hex(out, KGEN_KEY_HEX, key->bytes, KGEN_KEY_BYTES);
}

kgen_status kgen_key_parse(kgen_key *out, const char *hex, kgen_error *err) {
    enum { DIGITS = KGEN_KEY_HEX - 1 };
    size_t length = strlen(hex), digits = strspn(hex, "0123456789abcdefABCDEF");
    if (digits != length)
        return kgen_fail(err, KGEN_E_ARG, "key=%.80s: character %zu is not a hex digit", hex,
                         digits + 1);
    if (length != DIGITS)
        return kgen_fail(err, KGEN_E_ARG, "key=%.80s: %zu hex digits, a key has %d", hex, length,
                         DIGITS);
    sodium_hex2bin(out->bytes, KGEN_KEY_BYTES, hex, length, NULL, NULL, NULL);
    return KGEN_OK;
}

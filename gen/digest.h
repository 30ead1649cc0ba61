/* The digest of a source while it is put together. */
#ifndef KGEN_GEN_DIGEST_H
#define KGEN_GEN_DIGEST_H

#include <kgen/source.h>

#include <sodium.h>

#include "templates.h"

enum { KGEN__CONSTANTS_MAX = 192, KGEN__CONSTANT_SLOTS = 1024, KGEN__DIGEST_CHUNK = 4096 };

typedef struct kgen__constant {
    const char *name;
    size_t length;
    int used;
} kgen__constant;

typedef struct kgen__digest {
    const char *prelude, *mark; /* the caller's, and its end */
    kgen__constant constants[KGEN__CONSTANTS_MAX];
    size_t constant_count;
    uint8_t slots[KGEN__CONSTANT_SLOTS]; /* by hash, open addressing; index + 1, 0: free */
    int in_directive;                    /* the last piece ended there */
    crypto_generichash_state state;
    unsigned char chunk[KGEN__DIGEST_CHUNK];
    size_t used;
} kgen__digest;

/* `prelude` stays until the end. Then the pieces, in order. */
void kgen__digest_begin(kgen__digest *d, const char *prelude, size_t size);
void kgen__digest_piece(kgen__digest *d, const kgen__piece *piece);
void kgen__digest_end(kgen__digest *d, uint8_t out[KGEN_SOURCE_DIGEST_BYTES]);

#endif

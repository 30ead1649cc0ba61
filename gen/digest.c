/* The digest of a source text covers what a compiler sees of it: its tokens,
 * and where a preprocessor directive ends. Comments, blank space and #line marks
 * are left out, and so are constants of the prelude that nothing reads: a value
 * that a parameter may now have, or a parameter that no template reads yet, is
 * no other kernel. The build has read the tokens of templates: a source that is put
 * together of their pieces has the digest that its text has, sooner. */
#include "digest.h"

#include <string.h>

#include "tokens.h"

enum { SLOTS = KGEN__CONSTANT_SLOTS, CHUNK = KGEN__DIGEST_CHUNK, SHORT = 4 };

/* --- constants of the prelude ----------------------------------------------- */

static const char head[] = "constexpr int ";

typedef struct kgen__constant constant;
typedef struct kgen__digest digest;

/* The slot of a name, or the free one where it belongs. Fewer names than slots. */
static uint8_t *slot_of(digest *d, const char *name, size_t length) {
    uint32_t hash = 0;
    for (size_t i = 0; i < length; i++) hash = hash * 31 + (unsigned char)name[i];
    for (;; hash++) {
        uint8_t *slot = &d->slots[hash % SLOTS];
        const constant *k = *slot ? &d->constants[*slot - 1] : NULL;
        if (!k || (k->length == length && memcmp(k->name, name, length) == 0)) return slot;
    }
}

/* The name on a line `constexpr int NAME = value;`, which begins with a capital letter, or NULL. */
static const char *name_on(const char *line, const char *end) {
    size_t before = sizeof head - 1;
    if ((size_t)(end - line) <= before || memcmp(line, head, before) != 0) return NULL;
    return kgen__is_capital(line[before]) ? line + before : NULL;
}

static void find_constants(digest *d) {
    const char *newline;
    for (const char *line = d->prelude; line < d->mark; line = newline + 1) {
        const char *name = name_on(line, d->mark);
        if (name && d->constant_count < KGEN__CONSTANTS_MAX) {
            size_t length = kgen__token_length(name, d->mark);
            d->constants[d->constant_count] = (constant){name, length, 0};
            *slot_of(d, name, length) = (uint8_t)++d->constant_count;
        }
        newline = memchr(line, '\n', (size_t)(d->mark - line));
        if (!newline) return;
    }
}

static void mark_used(digest *d, const char *token, size_t length) {
    uint8_t slot = kgen__is_capital(*token) ? *slot_of(d, token, length) : 0;
    if (slot && d->constants[slot - 1].name != token) d->constants[slot - 1].used = 1;
}

/* 1: `token`, of the prelude, begins the line of a constant that nothing reads. */
static int is_unused(digest *d, const char *token) {
    const char *name = name_on(token, d->mark);
    uint8_t slot = name ? *slot_of(d, name, kgen__token_length(name, d->mark)) : 0;
    return slot && !d->constants[slot - 1].used;
}

/* --- tokens ------------------------------------------------------------------- */

static void put(digest *d, const void *bytes, size_t size) {
    const unsigned char *from = bytes;
    if (size > CHUNK - d->used) {
        crypto_generichash_update(&d->state, d->chunk, d->used);
        d->used = 0;
    }
    if (size > CHUNK) {
        crypto_generichash_update(&d->state, from, size);
        return;
    }
    unsigned char *to = d->chunk + d->used;
    d->used += size;
    if (size > SHORT)
        memcpy(to, from, size);
    else /* sooner than a call, for most tokens */
        while (size--) *to++ = *from++;
}

static void put_token(digest *d, const kgen__tokens *r, const char *token, size_t length) {
    if (r->ended) put(d, "\n", 1);
    put(d, token, length);
    if (!kgen__tokens_touch(r)) put(d, " ", 1);
}

static void put_text(digest *d, const char *text, const char *end) {
    const char *token;
    size_t length;
    for (kgen__tokens r = {.at = text, .end = end}; (length = kgen__tokens_next(&r, &token));) {
        put_token(d, &r, token, length);
        mark_used(d, token, length);
    }
}

/* Behind all that may read its constants. */
static void put_prelude(digest *d) {
    const char *token;
    size_t length;
    for (kgen__tokens r = {.at = d->prelude, .end = d->mark};
         (length = kgen__tokens_next(&r, &token));)
        mark_used(d, token, length);
    for (kgen__tokens r = {.at = d->prelude, .end = d->mark};
         (length = kgen__tokens_next(&r, &token));) {
        if (!is_unused(d, token)) {
            put_token(d, &r, token, length);
            continue;
        }
        if (r.ended) put(d, "\n", 1);
        r.at = memchr(token, '\n', (size_t)(d->mark - token));
    }
}

/* --- the digest ----------------------------------------------------------------- */

void kgen__digest_begin(kgen__digest *d, const char *prelude, size_t size) {
    memset(d, 0, sizeof *d);
    d->prelude = prelude;
    d->mark = prelude + size;
    find_constants(d);
    crypto_generichash_init(&d->state, NULL, 0, KGEN_SOURCE_DIGEST_BYTES);
}

void kgen__digest_piece(kgen__digest *d, const kgen__piece *piece) {
    if (d->in_directive && piece->tokens_size) put(d, "\n", 1);
    if (piece->tokens_size) d->in_directive = piece->ends_directive;
    put(d, piece->tokens, piece->tokens_size);
    for (const char *name = piece->names; *name;) {
        size_t length = strlen(name);
        mark_used(d, name, length);
        name += length + 1;
    }
}

void kgen__digest_end(kgen__digest *d, uint8_t out[KGEN_SOURCE_DIGEST_BYTES]) {
    put_prelude(d);
    crypto_generichash_update(&d->state, d->chunk, d->used);
    crypto_generichash_final(&d->state, out, KGEN_SOURCE_DIGEST_BYTES);
}

/* The prelude is what stands before the first #line mark. */
void kgen_source_digest(uint8_t out[KGEN_SOURCE_DIGEST_BYTES], const char *text, size_t size) {
    kgen__digest d;
    const char *mark = memmem(text, size, "\n#line ", 7);
    size_t prelude = mark ? (size_t)(mark + 1 - text) : 0;
    kgen__digest_begin(&d, text, prelude);
    put_text(&d, text + prelude, text + size);
    kgen__digest_end(&d, out);
}

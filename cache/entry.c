/* The entry format. One entry is one file, all numbers little-endian:
 *
 *   magic[8]  schema u32  elf mach u32  file size u64  key[32]
 *   code size u64  source size u64  packed source size u64
 *   compile ms u32  unix time u64  digest of the source's tokens [32]  resources i32 each
 *   target, symbol, toolchain, spec: length u16 and bytes
 *   code  BLAKE2b-256 of all before the code and of the code's mark
 *   zstd(source)  BLAKE2b-256 of everything before
 *
 * What a device gets is proved by the first digest, and the rest is not read for it. The mark is
 * XXH3 of 128 bits, twenty times as fast as BLAKE2b: it finds damage, which does not choose its
 * bytes. Neither digest is a secret: who may write the folder can write both anew, and against
 * others there is the seal of a signed bundle, BLAKE2b of all that a device gets.
 * Magic, schema, file size and the digest at the end never move: a reader of any
 * version can tell a sound entry of another version from a damaged one. */
#include "layer.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL /* a header alone, as uthash: nothing to install beside the library */
#include <sodium.h>
#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { MAGIC = 8, DIGEST = KGEN__DIGEST, STRINGS = 4, ZSTD_LEVEL = 3 };

static const uint8_t magic[MAGIC] = {'k', 'g', 'e', 'n', '\r', '\n', 0x1a, 0};

/* clang-format off */
/* Their order in the file. */
#define RESOURCE_TABLE(X)                                                                         \
    X(vgprs) X(agprs) X(sgprs) X(vgpr_spills) X(sgpr_spills) X(scratch_bytes) X(lds_bytes)        \
    X(workgroup_size) X(wave_size) X(kernarg_bytes) X(code_bytes) X(waves_per_simd)

#define STRING_TABLE(X)                                                                           \
    X(target, entry->target) X(symbol, entry->symbol)                                             \
    X(toolchain, entry->record.toolchain) X(spec, entry->spec)
/* clang-format on */

/* Bytes before the first string. */
enum {
#define ADD_RESOURCE(field) +4
    HEADER = MAGIC + 4 + 4 + 8 + KGEN_KEY_BYTES + 3 * 8 + 4 + 8 +
             KGEN_SOURCE_DIGEST_BYTES RESOURCE_TABLE(ADD_RESOURCE),
#undef ADD_RESOURCE
    SMALLEST = HEADER + 2 * STRINGS + 2 * DIGEST,
};

/* ------------------------------------------------------------------------ *
 * checks
 * ------------------------------------------------------------------------ */

/* EF_AMDGPU_MACH of a 64-bit AMDGPU ELF, 0 when it is anything else. */
static uint32_t code_mach(const uint8_t *code, size_t size) {
    static const uint8_t ident[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB};
    if (size < sizeof(Elf64_Ehdr) || memcmp(code, ident, sizeof ident) != 0) return 0;
    const uint8_t *machine = code + offsetof(Elf64_Ehdr, e_machine);
    if ((machine[0] | machine[1] << 8) != EM_AMDGPU) return 0;
    return code[offsetof(Elf64_Ehdr, e_flags)]; /* the mach is the low byte */
}

static kgen_status check_strings(const kgen_entry *entry, kgen_error *err) {
#define CHECK_STRING(name, field)        \
    if (!memchr(field, 0, sizeof field)) \
        return kgen_fail(err, KGEN_E_ARG, #name ": no end within %zu bytes", sizeof field);
    STRING_TABLE(CHECK_STRING)
#undef CHECK_STRING
    return KGEN_OK;
}

kgen_status kgen__entry_check(const kgen_entry *entry, kgen_error *err) {
    const kgen_target *target = NULL;
    KGEN_TRY(check_strings(entry, err));
    if (!entry->code || entry->code_size == 0 || entry->code_size > KGEN__CODE_MAX)
        return kgen_fail(err, KGEN_E_ARG, "code: %zu bytes at %p, must be 1 to %d bytes",
                         entry->code_size, (void *)entry->code, KGEN__CODE_MAX);
    if ((!entry->source && entry->source_size > 0) || entry->source_size > KGEN__SOURCE_MAX)
        return kgen_fail(err, KGEN_E_ARG, "source: %zu bytes at %p, must be at most %d bytes",
                         entry->source_size, (void *)entry->source, KGEN__SOURCE_MAX);
    KGEN_TRY(kgen_target_find(&target, entry->target, err));
    uint32_t mach = code_mach(entry->code, entry->code_size);
    if (target->elf_mach && mach != (uint32_t)target->elf_mach)
        return kgen_fail(err, KGEN_E_ARG, "code: ELF mach 0x%02x, target %s has 0x%02x",
                         (unsigned)mach, target->name, (unsigned)target->elf_mach);
    return KGEN_OK;
}

/* ------------------------------------------------------------------------ *
 * writing
 * ------------------------------------------------------------------------ */

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size) {
    if (size) memcpy(at, bytes, size);
    return at + size;
}

static uint8_t *put_number(uint8_t *at, uint64_t number, int width) {
    for (int i = 0; i < width; i++) *at++ = (uint8_t)(number >> (8 * i));
    return at;
}

/* Of what stands before it. */
static uint8_t *put_digest(uint8_t *at, const uint8_t *begin) {
    crypto_generichash(at, DIGEST, begin, (size_t)(at - begin), NULL, 0);
    return at + DIGEST;
}

void kgen__code_digest(uint8_t out[KGEN__DIGEST], const uint8_t *head, size_t head_size,
                       const uint8_t *code, size_t code_size) {
    XXH128_canonical_t mark;
    crypto_generichash_state state;
    XXH128_canonicalFromHash(&mark, XXH3_128bits(code, code_size));
    crypto_generichash_init(&state, NULL, 0, DIGEST);
    crypto_generichash_update(&state, head, head_size);
    crypto_generichash_update(&state, mark.digest, sizeof mark.digest);
    crypto_generichash_final(&state, out, DIGEST);
}

static uint8_t *put_string(uint8_t *at, const char *text) {
    size_t length = strlen(text);
    at = put_number(at, length, 2);
    return put_bytes(at, text, length);
}

static size_t strings_size(const kgen_entry *entry) {
    size_t size = 0;
#define ADD_STRING(name, field) size += 2 + strlen(field);
    STRING_TABLE(ADD_STRING)
#undef ADD_STRING
    return size;
}

static uint8_t *put_header(uint8_t *at, const kgen_entry *entry, size_t packed_size,
                           size_t file_size) {
    at = put_bytes(at, magic, MAGIC);
    at = put_number(at, KGEN__SCHEMA, 4);
    at = put_number(at, code_mach(entry->code, entry->code_size), 4);
    at = put_number(at, file_size, 8);
    at = put_bytes(at, entry->key.bytes, KGEN_KEY_BYTES);
    at = put_number(at, entry->code_size, 8);
    at = put_number(at, entry->source_size, 8);
    at = put_number(at, packed_size, 8);
    at = put_number(at, entry->record.compile_ms, 4);
    at = put_number(at, entry->record.unix_time, 8);
    at = put_bytes(at, entry->source_digest, sizeof entry->source_digest);
#define PUT_RESOURCE(field) at = put_number(at, (uint32_t)entry->resources.field, 4);
    RESOURCE_TABLE(PUT_RESOURCE)
#undef PUT_RESOURCE
#define PUT_STRING(name, field) at = put_string(at, field);
    STRING_TABLE(PUT_STRING)
#undef PUT_STRING
    return at;
}

static kgen_status pack_source(uint8_t **out, size_t *size, const kgen_entry *entry,
                               kgen_error *err) {
    size_t bound = ZSTD_compressBound(entry->source_size);
    uint8_t *packed = malloc(bound);
    if (!packed) return kgen_fail(err, KGEN_E_NOMEM, "cache: no %zu bytes for a source", bound);
    const char *source = entry->source ? entry->source : "";
    size_t got = ZSTD_compress(packed, bound, source, entry->source_size, ZSTD_LEVEL);
    if (ZSTD_isError(got)) {
        free(packed);
        return kgen_fail(err, KGEN_E_NOMEM, "cache: zstd: %s", ZSTD_getErrorName(got));
    }
    *out = packed;
    *size = got;
    return KGEN_OK;
}

kgen_status kgen__entry_encode(uint8_t **out, size_t *size, const kgen_entry *entry,
                               kgen_error *err) {
    uint8_t *packed = NULL;
    size_t packed_size = 0;
    KGEN_TRY(pack_source(&packed, &packed_size, entry, err));
    size_t total = HEADER + strings_size(entry) + entry->code_size + DIGEST + packed_size + DIGEST;
    uint8_t *bytes = malloc(total);
    if (bytes) {
        uint8_t *at = put_header(bytes, entry, packed_size, total);
        kgen__code_digest(at + entry->code_size, bytes, (size_t)(at - bytes), entry->code,
                          entry->code_size);
        at = put_bytes(at, entry->code, entry->code_size) + DIGEST;
        at = put_bytes(at, packed, packed_size);
        put_digest(at, bytes);
    }
    free(packed);
    if (!bytes) return kgen_fail(err, KGEN_E_NOMEM, "cache: no %zu bytes for an entry", total);
    *out = bytes;
    *size = total;
    return KGEN_OK;
}

/* ------------------------------------------------------------------------ *
 * reading
 * ------------------------------------------------------------------------ */

/* Once `bad`, every further read gives nothing. */
typedef struct reader {
    const uint8_t *at;
    size_t left;
    int bad;
} reader;

static const uint8_t *take(reader *in, uint64_t size) {
    if (in->bad || size > in->left) {
        in->bad = 1;
        return NULL;
    }
    const uint8_t *bytes = in->at;
    in->at += size;
    in->left -= (size_t)size;
    return bytes;
}

static uint64_t take_number(reader *in, int width) {
    const uint8_t *bytes = take(in, (uint64_t)width);
    uint64_t number = 0;
    for (int i = 0; bytes && i < width; i++) number |= (uint64_t)bytes[i] << (8 * i);
    return number;
}

/* They are printed on terminals: a forged entry must not write to one. */
static int is_printable(const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (bytes[i] < ' ' || bytes[i] > '~') return 0;
    return 1;
}

static void take_string(reader *in, char *out, size_t capacity) {
    size_t length = (size_t)take_number(in, 2);
    const uint8_t *bytes = take(in, length);
    if (!bytes || length >= capacity || !is_printable(bytes, length)) {
        in->bad = 1;
        return;
    }
    memcpy(out, bytes, length); /* the entry was zeroed: the end is there */
}

/* Behind the code stands its digest. */
static int is_code_sound(const kgen_entry *entry, const uint8_t *head, size_t head_size,
                         const uint8_t *code) {
    uint8_t digest[DIGEST];
    kgen__code_digest(digest, head, head_size, code, entry->code_size);
    return memcmp(digest, code + entry->code_size, DIGEST) == 0;
}

/* Length and digest, from the places that never move. */
static int is_sound(const uint8_t *bytes, size_t size) {
    uint8_t digest[DIGEST];
    if (size < SMALLEST || size > KGEN__FILE_MAX || memcmp(bytes, magic, MAGIC) != 0) return 0;
    reader in = {bytes + MAGIC + 4 + 4, 8, 0};
    if (take_number(&in, 8) != size) return 0;
    crypto_generichash(digest, DIGEST, bytes, size - DIGEST, NULL, 0);
    return memcmp(digest, bytes + size - DIGEST, DIGEST) == 0;
}

static kgen__verdict unpack_source(kgen_entry *entry, const uint8_t *packed, size_t packed_size) {
    entry->source = malloc(entry->source_size + 1);
    if (!entry->source) return KGEN__NO_MEMORY;
    size_t got = ZSTD_decompress(entry->source, entry->source_size, packed, packed_size);
    if (ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation) return KGEN__NO_MEMORY;
    if (got != entry->source_size) return KGEN__BAD;
    entry->source[entry->source_size] = 0;
    return KGEN__GOOD;
}

static void take_resources(reader *in, kgen_resources *out) {
#define TAKE_RESOURCE(field) out->field = (int32_t)(uint32_t)take_number(in, 4);
    RESOURCE_TABLE(TAKE_RESOURCE)
#undef TAKE_RESOURCE
}

static int are_sizes_sound(const kgen_entry *entry) {
    return entry->code_size > 0 && entry->code_size <= KGEN__CODE_MAX &&
           entry->source_size <= KGEN__SOURCE_MAX;
}

static kgen__verdict take_payload(reader *in, const uint8_t *begin, kgen_entry *entry,
                                  uint64_t packed_size) {
    const uint8_t *code = take(in, (uint64_t)entry->code_size + DIGEST);
    const uint8_t *packed = take(in, packed_size);
    if (in->bad || in->left > 0 || !are_sizes_sound(entry)) return KGEN__BAD;
    if (!is_code_sound(entry, begin, (size_t)(code - begin), code)) return KGEN__BAD;
    entry->code = malloc(entry->code_size);
    if (!entry->code) return KGEN__NO_MEMORY;
    memcpy(entry->code, code, entry->code_size);
    return unpack_source(entry, packed, (size_t)packed_size);
}

/* The code must be for the architecture that the entry and its name say. */
static kgen__verdict check_arch(const kgen_entry *entry, uint32_t stored_mach) {
    const kgen_target *target = NULL;
    if (kgen_target_find(&target, entry->target, NULL) != KGEN_OK) return KGEN__OTHER;
    uint32_t mach = code_mach(entry->code, entry->code_size);
    if (stored_mach != mach) return KGEN__BAD;
    return target->elf_mach && mach != (uint32_t)target->elf_mach ? KGEN__BAD : KGEN__GOOD;
}

typedef struct head_rest {
    uint32_t mach;
    uint64_t packed_size;
    size_t code_at; /* of the file */
} head_rest;

/* All before the code. */
static kgen__verdict take_head(kgen_entry *entry, head_rest *rest, reader *in,
                               const kgen_key *key) {
    if (take_number(in, 4) != KGEN__SCHEMA) return KGEN__OTHER;
    rest->mach = (uint32_t)take_number(in, 4);
    take_number(in, 8); /* file size: seen before */
    const uint8_t *stored_key = take(in, KGEN_KEY_BYTES);
    if (!stored_key || memcmp(stored_key, key->bytes, KGEN_KEY_BYTES) != 0) return KGEN__BAD;
    entry->key = *key;
    entry->code_size = (size_t)take_number(in, 8);
    entry->source_size = (size_t)take_number(in, 8);
    rest->packed_size = take_number(in, 8);
    entry->record.compile_ms = (uint32_t)take_number(in, 4);
    entry->record.unix_time = take_number(in, 8);
    const uint8_t *made_of = take(in, sizeof entry->source_digest);
    if (made_of) memcpy(entry->source_digest, made_of, sizeof entry->source_digest);
    take_resources(in, &entry->resources);
#define TAKE_STRING(name, field) take_string(in, field, sizeof field);
    STRING_TABLE(TAKE_STRING)
#undef TAKE_STRING
    return in->bad ? KGEN__BAD : KGEN__GOOD;
}

static kgen__verdict decode_into(kgen_entry *entry, const uint8_t *bytes, size_t size,
                                 const kgen_key *key) {
    head_rest rest;
    reader in = {bytes + MAGIC, size - MAGIC - DIGEST, 0};
    kgen__verdict verdict = take_head(entry, &rest, &in, key);
    if (verdict == KGEN__GOOD) verdict = take_payload(&in, bytes, entry, rest.packed_size);
    return verdict == KGEN__GOOD ? check_arch(entry, rest.mach) : verdict;
}

static int are_places_sound(const kgen_entry *entry, const head_rest *rest, size_t size) {
    return are_sizes_sound(entry) && rest->packed_size <= size &&
           rest->code_at + entry->code_size + rest->packed_size + 2 * DIGEST == size;
}

_Static_assert(HEADER + 2 * STRINGS + KGEN_SPEC_LINE_MAX + KGEN_SYMBOL_MAX + 32 + 64 <=
                   KGEN__HEAD_MAX,
               "a head fits");

static kgen__verdict read_head(kgen_entry *out, head_rest *rest, const uint8_t *bytes, size_t got,
                               size_t size, const kgen_key *key) {
    if (got < SMALLEST || memcmp(bytes, magic, MAGIC) != 0) return KGEN__BAD;
    reader length = {bytes + MAGIC + 4 + 4, 8, 0}, in = {bytes + MAGIC, got - MAGIC, 0};
    if (take_number(&length, 8) != size) return KGEN__BAD;
    memset(out, 0, sizeof *out);
    kgen__verdict verdict = take_head(out, rest, &in, key);
    rest->code_at = (size_t)(in.at - bytes);
    return verdict;
}

kgen__verdict kgen__entry_head(kgen_entry *out, size_t *code_at, const uint8_t *bytes, size_t got,
                               size_t size, const kgen_key *key) {
    head_rest rest = {0};
    kgen__verdict verdict = read_head(out, &rest, bytes, got, size, key);
    *code_at = rest.code_at;
    return verdict;
}

/* `code` with the digest behind it; `ending` is the digest of the file. */
static void seal_of(uint8_t out[DIGEST], const uint8_t *head, size_t head_size, const uint8_t *code,
                    size_t code_size, const uint8_t *ending) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, DIGEST);
    crypto_generichash_update(&state, head, head_size);
    crypto_generichash_update(&state, code, code_size + DIGEST);
    crypto_generichash_update(&state, ending, DIGEST);
    crypto_generichash_final(&state, out, DIGEST);
}

int kgen__entry_seal(uint8_t out[KGEN__DIGEST], const uint8_t *bytes, size_t size,
                     const kgen_key *key) {
    kgen_entry head;
    head_rest rest = {0};
    if (read_head(&head, &rest, bytes, size, size, key) != KGEN__GOOD ||
        !are_places_sound(&head, &rest, size))
        return 0;
    seal_of(out, bytes, rest.code_at, bytes + rest.code_at, head.code_size, bytes + size - DIGEST);
    return 1;
}

/* What a look-up reads a file by. */
typedef struct fetching {
    kgen__fetch *fetch;
    void *from;
    size_t size;
    const uint8_t *seal; /* NULL: none is asked for */
} fetching;

static int is_sealed(const kgen_entry *entry, const head_rest *rest, const uint8_t *head,
                     const fetching *f) {
    uint8_t ending[DIGEST], seal[DIGEST];
    if (!f->seal) return 1;
    if (!f->fetch(f->from, ending, f->size - DIGEST, DIGEST)) return 0;
    seal_of(seal, head, rest->code_at, entry->code, entry->code_size, ending);
    return memcmp(seal, f->seal, DIGEST) == 0;
}

/* The code of the head at the start of `head`, `got` bytes of which have been read. */
static kgen__verdict fetch_code(kgen_entry *entry, const head_rest *rest, const uint8_t *head,
                                size_t got, const fetching *f) {
    size_t wanted = entry->code_size + DIGEST, begun = got - rest->code_at;
    if (begun > wanted) begun = wanted;
    entry->code = malloc(wanted);
    if (!entry->code) return KGEN__NO_MEMORY;
    memcpy(entry->code, head + rest->code_at, begun);
    if (begun < wanted && !f->fetch(f->from, entry->code + begun, got, wanted - begun))
        return KGEN__BAD;
    if (!is_code_sound(entry, head, rest->code_at, entry->code)) return KGEN__BAD;
    if (!is_sealed(entry, rest, head, f)) return KGEN__BAD;
    return check_arch(entry, rest->mach);
}

static kgen__verdict fetch_into(kgen_entry *entry, const fetching *f, const kgen_key *key) {
    uint8_t head[KGEN__HEAD_MAX];
    head_rest rest = {0};
    size_t got = f->size < sizeof head ? f->size : sizeof head;
    if (f->size > KGEN__FILE_MAX || !f->fetch(f->from, head, 0, got)) return KGEN__BAD;
    kgen__verdict verdict = read_head(entry, &rest, head, got, f->size, key);
    if (verdict != KGEN__GOOD) return verdict;
    if (!are_places_sound(entry, &rest, f->size)) return KGEN__BAD;
    return fetch_code(entry, &rest, head, got, f);
}

kgen__verdict kgen__entry_fetch(kgen_entry **out, kgen__fetch *fetch, void *from, size_t size,
                                const kgen_key *key, const uint8_t *seal) {
    const fetching f = {fetch, from, size, seal};
    kgen_entry *entry = calloc(1, sizeof *entry);
    if (!entry) return KGEN__NO_MEMORY;
    kgen__verdict verdict = fetch_into(entry, &f, key);
    if (verdict == KGEN__GOOD)
        *out = entry;
    else
        kgen_entry_free(entry);
    return verdict;
}

kgen__verdict kgen__entry_decode(kgen_entry **out, const uint8_t *bytes, size_t size,
                                 const kgen_key *key) {
    if (!is_sound(bytes, size)) return KGEN__BAD;
    kgen_entry *entry = calloc(1, sizeof *entry);
    if (!entry) return KGEN__NO_MEMORY;
    kgen__verdict verdict = decode_into(entry, bytes, size, key);
    if (verdict == KGEN__GOOD)
        *out = entry;
    else
        kgen_entry_free(entry);
    return verdict;
}

/* ------------------------------------------------------------------------ *
 * entries in memory
 * ------------------------------------------------------------------------ */

static char *copy_source(const kgen_entry *entry) {
    char *copy = malloc(entry->source_size + 1);
    if (!copy) return NULL;
    if (entry->source_size) memcpy(copy, entry->source, entry->source_size);
    copy[entry->source_size] = 0;
    return copy;
}

kgen_entry *kgen__entry_copy(const kgen_entry *entry, int code_only) {
    kgen_entry *copy = malloc(sizeof *copy);
    int has_source = !code_only && (entry->source || !entry->source_size);
    if (!copy) return NULL;
    *copy = *entry;
    copy->code = malloc(entry->code_size);
    copy->source = has_source ? copy_source(entry) : NULL;
    if (!copy->code || (has_source && !copy->source)) {
        kgen_entry_free(copy);
        return NULL;
    }
    memcpy(copy->code, entry->code, entry->code_size);
    return copy;
}

void kgen_entry_free(kgen_entry *entry) {
    if (!entry) return;
    free(entry->code);
    free(entry->source);
    free(entry);
}

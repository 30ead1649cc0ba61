/* The cache as its users meet it: restarts, damaged files, races, killed writers,
 * read-only and missing directories. Files are damaged from outside. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <cmocka.h>
#include <sodium.h>
#include <xxhash.h>

#include <kgen/cache.h>

#include "cache/folder.h"
#include "cache/layer.h"
#include "seed.h"

enum { PATH_BYTES = 512, NOBODY = 65534, MACH_GFX942 = 0x4c, MACH_GFX950 = 0x4f };

/* Places in a file of schema 5; the strings are target, symbol, toolchain, spec. */
enum {
    AT_SCHEMA = 8,
    AT_MACH = 12,
    AT_FILE_SIZE = 16,
    AT_KEY = 24,
    AT_CODE_SIZE = 56,
    AT_SOURCE_SIZE = 64,
    AT_PACKED_SIZE = 72,
    AT_STRINGS = 172,
    AT_SYMBOL = AT_STRINGS + 2 + 6, /* after "gfx942" */
    SYMBOL_LENGTH = 24,
    DIGEST_BYTES = 32,
};

static unsigned seed;
static char scratch[] = "/tmp/kgen-test-cache-XXXXXX";
static char dir[PATH_BYTES]; /* fresh for every test, not made yet */

static int fresh_dir(void **state) {
    static int number;
    (void)state;
    snprintf(dir, sizeof dir, "%s/%d", scratch, number++);
    return 0;
}

/* ---- entries -------------------------------------------------------------- */

static void random_bytes(void *out, size_t size) {
    uint8_t *at = out;
    for (size_t i = 0; i < size; i++) at[i] = (uint8_t)(rand() >> 7);
}

static void random_text(char *out, size_t size) {
    for (size_t i = 0; i < size; i++) out[i] = (char)('a' + rand() % 26);
    out[size] = 0;
}

static kgen_key random_key(void) {
    kgen_key key;
    random_bytes(key.bytes, sizeof key.bytes);
    return key;
}

/* The head of a code object as the compiler makes it. */
static void write_elf(uint8_t *code, unsigned mach) {
    Elf64_Ehdr head = {.e_machine = EM_AMDGPU, .e_flags = 0x500 | mach};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    memcpy(code, &head, sizeof head);
}

/* Every field random; for gfx942. */
static kgen_entry *make_entry(size_t code_size, size_t source_size) {
    kgen_entry *entry = calloc(1, sizeof *entry);
    assert_non_null(entry);
    entry->key = random_key();
    strcpy(entry->spec, "attn:phase=decode,q=bf16,kv=fp8,d=128,g=8");
    strcpy(entry->target, "gfx942");
    random_text(entry->symbol, SYMBOL_LENGTH);
    random_bytes(&entry->resources, sizeof entry->resources);
    random_bytes(&entry->record, offsetof(kgen_build_record, toolchain));
    random_text(entry->record.toolchain, 20);
    entry->code = malloc(code_size);
    entry->code_size = code_size;
    random_bytes(entry->code, code_size);
    write_elf(entry->code, MACH_GFX942);
    entry->source = malloc(source_size + 1);
    entry->source_size = source_size;
    random_text(entry->source, source_size);
    return entry;
}

static kgen_entry *small_entry(void) { return make_entry(sizeof(Elf64_Ehdr) + 16, 20); }

static void assert_same_entry(const kgen_entry *a, const kgen_entry *b) {
    assert_memory_equal(&a->key, &b->key, sizeof a->key);
    assert_string_equal(a->spec, b->spec);
    assert_string_equal(a->target, b->target);
    assert_string_equal(a->symbol, b->symbol);
    assert_memory_equal(&a->resources, &b->resources, sizeof a->resources);
    assert_int_equal(a->record.compile_ms, b->record.compile_ms);
    assert_true(a->record.unix_time == b->record.unix_time);
    assert_string_equal(a->record.toolchain, b->record.toolchain);
    assert_int_equal(a->source_size, b->source_size);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->code_size, b->code_size);
    assert_memory_equal(a->code, b->code, a->code_size);
}

/* ---- caches --------------------------------------------------------------- */

static kgen_cache *open_cache(const char *where) {
    kgen_cache *cache = NULL;
    kgen_error err = {0};
    kgen_status status = kgen_cache_open(&cache, where, &err);
    if (status != KGEN_OK) fail_msg("open: %s", err.text);
    return cache;
}

static void put_ok(kgen_cache *cache, const kgen_entry *entry) {
    kgen_error err = {0};
    if (kgen_cache_put(cache, entry, &err) != KGEN_OK) fail_msg("put: %s", err.text);
}

static void publish(const kgen_entry *entry) {
    kgen_cache *cache = open_cache(dir);
    put_ok(cache, entry);
    kgen_cache_close(cache);
}

static void assert_hit(kgen_cache *cache, const kgen_entry *expected) {
    kgen_entry *got = NULL;
    int found = 0;
    assert_int_equal(kgen_cache_get(cache, &got, &found, &expected->key, NULL), KGEN_OK);
    assert_int_equal(found, 1);
    assert_same_entry(got, expected);
    kgen_entry_free(got);
}

static void assert_miss(kgen_cache *cache, const kgen_key *key) {
    kgen_entry *got = (kgen_entry *)cache;
    int found = 1;
    kgen_error err = {.text = "as it was"};
    assert_int_equal(kgen_cache_get(cache, &got, &found, key, &err), KGEN_OK);
    assert_int_equal(found, 0);
    assert_null(got);
    assert_string_equal(err.text, "as it was");
}

/* ---- files ---------------------------------------------------------------- */

static void entry_path(char out[PATH_BYTES], const kgen_key *key) {
    char hex[KGEN_KEY_HEX];
    kgen_key_hex(hex, key);
    snprintf(out, PATH_BYTES, "%.300s/%.2s/%s.kgen", dir, hex, hex + 2);
}

static void shard_path(char out[PATH_BYTES], const kgen_key *key) {
    entry_path(out, key);
    *strrchr(out, '/') = 0;
}

static void quarantine_path(char out[PATH_BYTES], const kgen_key *key) {
    char hex[KGEN_KEY_HEX];
    kgen_key_hex(hex, key);
    snprintf(out, PATH_BYTES, "%.300s/quarantine/%s.kgen", dir, hex);
}

static int is_there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    struct stat st;
    assert_int_equal(fstat(fileno(file), &st), 0);
    *size = (size_t)st.st_size;
    uint8_t *bytes = malloc(*size + 1);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

/* A new file, as a damaged disk or a copy would show it. */
static void write_file(const char *path, const uint8_t *bytes, size_t size) {
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0) fail_msg("cannot make %s", path);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

/* As the header of entry.c says: not by what writes it. */
static void put_code_digest(uint8_t *bytes, size_t code_at, size_t code_size) {
    uint8_t text[KGEN__HEAD_MAX + sizeof(XXH128_canonical_t)];
    XXH128_canonical_t mark;
    XXH128_canonicalFromHash(&mark, XXH3_128bits(bytes + code_at, code_size));
    memcpy(text, bytes, code_at);
    memcpy(text + code_at, mark.digest, sizeof mark.digest);
    crypto_generichash(bytes + code_at + code_size, DIGEST_BYTES, text, code_at + sizeof mark, NULL,
                       0);
}

/* Where the code's digest stands; 0: nowhere. */
static size_t code_digest_at(const uint8_t *bytes, size_t size, size_t *code_size) {
    static kgen_entry head;
    kgen_key key;
    size_t code_at;
    *code_size = 0;
    if (size < AT_STRINGS) return 0;
    memcpy(key.bytes, bytes + AT_KEY, sizeof key.bytes);
    if (kgen__entry_head(&head, &code_at, bytes, size < KGEN__HEAD_MAX ? size : KGEN__HEAD_MAX,
                         size, &key) != KGEN__GOOD)
        return 0;
    size_t left = size - code_at;
    *code_size = head.code_size;
    return left >= 2 * DIGEST_BYTES && head.code_size <= left - 2 * DIGEST_BYTES
               ? code_at + head.code_size
               : 0;
}

/* Both digests are made right. */
static void seal(uint8_t *bytes, size_t size) {
    size_t code_size, at = code_digest_at(bytes, size, &code_size);
    if (at) put_code_digest(bytes, at - code_size, code_size);
    size -= DIGEST_BYTES;
    crypto_generichash(bytes + size, DIGEST_BYTES, bytes, size, NULL, 0);
}

/* A process that has not seen the entry before finds the file at its place
 * unusable: a miss, set aside, counted once, and gone the next time. */
static void assert_refused(const kgen_key *key) {
    char path[PATH_BYTES], aside[PATH_BYTES];
    entry_path(path, key);
    quarantine_path(aside, key);
    kgen_cache *cache = open_cache(dir);
    assert_miss(cache, key);
    assert_int_equal(kgen_cache_get_stats(cache).quarantined, 1);
    assert_false(is_there(path));
    assert_true(is_there(aside));
    assert_miss(cache, key);
    kgen_cache_stats stats = kgen_cache_get_stats(cache);
    assert_int_equal(stats.quarantined, 1);
    assert_int_equal(stats.misses, 2);
    assert_int_equal(stats.hits_user + stats.hits_memory, 0);
    kgen_cache_close(cache);
    remove(aside);
}

static void assert_file_refused(const kgen_key *key, const uint8_t *bytes, size_t size) {
    char path[PATH_BYTES];
    entry_path(path, key);
    write_file(path, bytes, size);
    assert_refused(key);
}

/* ---- keys ----------------------------------------------------------------- */

static char text[] = "__global__ void k();\n";
static const char *const two_flags[] = {"-O3", "-std=c++17"};

static kgen_source make_source(const char *target) {
    kgen_source source = {.text = text, .size = strlen(text), .symbol = "k", .workgroup_size = 256};
    assert_int_equal(kgen_target_find(&source.target, target, NULL), KGEN_OK);
    return source;
}

static kgen_key key_of(const char *body, size_t size, const char *target, const char *const *flags,
                       size_t flag_count, const char *toolchain) {
    kgen_source source = make_source(target);
    kgen_key key;
    source.text = (char *)body;
    source.size = size;
    kgen_key_make(&key, &source, flags, flag_count, toolchain);
    return key;
}

static void assert_all_differ(const kgen_key *keys, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (memcmp(&keys[i], &keys[j], sizeof keys[i]) == 0)
                fail_msg("keys %zu and %zu are the same", j, i);
}

static void every_field_changes_the_key(void **state) {
    (void)state;
    static const char *const swapped[] = {"-std=c++17", "-O3"};
    static const char *const other[] = {"-O3", "-std=c++18"};
    static const char *const three[] = {"-O3", "-std=c++17", ""};
    size_t size = strlen(text);
    const kgen_key keys[] = {
        key_of(text, size, "gfx942", two_flags, 2, "id"),
        key_of(text, size - 2, "gfx942", two_flags, 2, "id"),
        key_of("__global__ void l();\n", size, "gfx942", two_flags, 2, "id"),
        key_of(text, size, "gfx950", two_flags, 2, "id"),
        key_of(text, size, "gfx942", swapped, 2, "id"),
        key_of(text, size, "gfx942", other, 2, "id"),
        key_of(text, size, "gfx942", three, 3, "id"),
        key_of(text, size, "gfx942", two_flags, 1, "id"),
        key_of(text, size, "gfx942", NULL, 0, "id"),
        key_of(text, size, "gfx942", two_flags, 2, "ie"),
        key_of(text, size, "gfx942", two_flags, 2, ""),
    };
    assert_all_differ(keys, sizeof keys / sizeof keys[0]);
}

static void fields_do_not_run_together(void **state) {
    (void)state;
    static const char *const ab_c[] = {"ab", "c"}, *const a_bc[] = {"a", "bc"};
    static const char *const abc[] = {"abc"}, *const a_b_c[] = {"a", "b", "c"};
    const kgen_key keys[] = {
        key_of("x", 1, "gfx942", ab_c, 2, "t"),     key_of("x", 1, "gfx942", a_bc, 2, "t"),
        key_of("x", 1, "gfx942", abc, 1, "t"),      key_of("x", 1, "gfx942", a_b_c, 3, "t"),
        key_of("xa", 2, "gfx942", ab_c + 1, 1, ""), key_of("x", 1, "gfx942", ab_c, 1, ""),
        key_of("x", 1, "gfx942", ab_c, 1, "c"),     key_of("xabc", 4, "gfx942", NULL, 0, ""),
        key_of("x\0abc", 5, "gfx942", NULL, 0, ""), key_of("x", 1, "gfx942", NULL, 0, "abc"),
    };
    assert_all_differ(keys, sizeof keys / sizeof keys[0]);
}

static size_t append(uint8_t *out, const void *bytes, size_t size, int with_length) {
    size_t used = 0;
    for (int i = 0; with_length && i < 8; i++) out[used++] = (uint8_t)(size >> (8 * i));
    memcpy(out + used, bytes, size);
    return used + size;
}

/* Caches are shared between versions: a change here must raise the schema. */
static void the_key_is_what_the_header_says(void **state) {
    (void)state;
    uint8_t all[256] = {5}; /* schema 5 in 8 bytes */
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES];
    static const uint8_t flag_count[8] = {2};
    kgen_key expected, key = key_of(text, strlen(text), "gfx942", two_flags, 2, "id");
    size_t used = 8;
    kgen_source_digest(digest, text, strlen(text));
    used += append(all + used, digest, sizeof digest, 0);
    used += append(all + used, flag_count, sizeof flag_count, 0);
    used += append(all + used, "-O3", 3, 1);
    used += append(all + used, "-std=c++17", 10, 1);
    used += append(all + used, "gfx942", 6, 1);
    used += append(all + used, "id", 2, 1);
    crypto_generichash(expected.bytes, sizeof expected.bytes, all, used, NULL, 0);
    assert_memory_equal(&key, &expected, sizeof key);
}

static void the_spec_is_not_in_the_key(void **state) {
    (void)state;
    kgen_source a = make_source("gfx942"), b = a;
    kgen_key key_a, key_b;
    memset(&b.spec, 1, sizeof b.spec);
    kgen_key_make(&key_a, &a, two_flags, 2, "id");
    kgen_key_make(&key_b, &b, two_flags, 2, "id");
    assert_memory_equal(&key_a, &key_b, sizeof key_a);
}

static void hex_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        kgen_key key = random_key(), back;
        char hex[KGEN_KEY_HEX];
        kgen_key_hex(hex, &key);
        assert_int_equal(strspn(hex, "0123456789abcdef"), 64);
        assert_int_equal(kgen_key_parse(&back, hex, NULL), KGEN_OK);
        assert_memory_equal(&key, &back, sizeof key);
        for (char *at = hex; *at; at++)
            if (*at >= 'a') *at = (char)(*at - 'a' + 'A');
        memset(&back, 0, sizeof back);
        assert_int_equal(kgen_key_parse(&back, hex, NULL), KGEN_OK);
        assert_memory_equal(&key, &back, sizeof key);
    }
}

static void bad_hex_is_refused(void **state) {
    (void)state;
    kgen_key key = random_key(), out = key;
    char hex[KGEN_KEY_HEX], longer[KGEN_KEY_HEX + 1];
    kgen_error err = {0};
    kgen_key_hex(hex, &key);
    snprintf(longer, sizeof longer, "%s0", hex);
    assert_int_equal(kgen_key_parse(&out, longer, &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "65"));
    assert_int_equal(kgen_key_parse(&out, "", &err), KGEN_E_ARG);
    static const char bad[] = "g/:@`G \n";
    for (size_t i = 0; bad[i]; i++) {
        size_t at = (size_t)rand() % 64;
        char kept = hex[at];
        hex[at] = bad[i];
        assert_int_equal(kgen_key_parse(&out, hex, &err), KGEN_E_ARG);
        assert_non_null(strstr(err.text, "key="));
        hex[at] = kept;
    }
    hex[63] = 0;
    assert_int_equal(kgen_key_parse(&out, hex, &err), KGEN_E_ARG);
    assert_memory_equal(&out, &key, sizeof key);
}

/* ---- round trips ---------------------------------------------------------- */

static void round_trip(void **state) {
    (void)state;
    static const size_t sizes[][2] = {{64, 0}, {65, 1}, {4096, 5000}, {300000, 200000}};
    kgen_cache *cache = open_cache(dir);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        kgen_entry *entry = make_entry(sizes[i][0], sizes[i][1]);
        assert_miss(cache, &entry->key);
        put_ok(cache, entry);
        assert_hit(cache, entry); /* from memory */
        kgen_cache *second = open_cache(dir);
        assert_hit(second, entry); /* from the file */
        assert_hit(second, entry); /* kept by the memory layer */
        kgen_cache_stats stats = kgen_cache_get_stats(second);
        assert_int_equal(stats.hits_user, 1);
        assert_int_equal(stats.hits_memory, 1);
        assert_int_equal(stats.misses + stats.published + stats.quarantined, 0);
        kgen_cache_close(second);
        kgen_entry_free(entry);
    }
    kgen_cache_stats stats = kgen_cache_get_stats(cache);
    assert_int_equal(stats.hits_memory, 4);
    assert_int_equal(stats.misses, 4);
    assert_int_equal(stats.published, 4);
    assert_int_equal(stats.hits_user + stats.quarantined, 0);
    kgen_cache_close(cache);
}

static void every_target_round_trips(void **state) {
    (void)state;
    kgen_cache *cache = open_cache(dir);
    for (size_t i = 0; i < kgen_target_count(); i++) {
        const kgen_target *target = kgen_target_at(i);
        kgen_entry *entry = small_entry();
        snprintf(entry->target, sizeof entry->target, "%s", target->name);
        if (target->elf_mach)
            write_elf(entry->code, (unsigned)target->elf_mach);
        else
            memset(entry->code, 0x7f, entry->code_size);
        put_ok(cache, entry);
        kgen_cache *second = open_cache(dir);
        assert_hit(second, entry);
        kgen_cache_close(second);
        kgen_entry_free(entry);
    }
    kgen_cache_close(cache);
}

static void what_get_returns_is_the_callers(void **state) {
    (void)state;
    kgen_cache *cache = open_cache("");
    kgen_entry *entry = small_entry(), *got = NULL;
    int found = 0;
    put_ok(cache, entry);
    assert_int_equal(kgen_cache_get(cache, &got, &found, &entry->key, NULL), KGEN_OK);
    memset(got->code, 0, got->code_size);
    memset(got->source, 'x', got->source_size);
    memset(got->symbol, 'x', 4);
    assert_hit(cache, entry);
    kgen_entry *kept = make_entry(64, 0); /* a copy taken at put, too */
    put_ok(cache, kept);
    kept->code[63] ^= 1;
    kgen_entry_free(got);
    assert_int_equal(kgen_cache_get(cache, &got, &found, &kept->key, NULL), KGEN_OK);
    assert_int_equal(got->code[63] ^ 1, kept->code[63]);
    kgen_entry_free(got);
    kgen_entry_free(kept);
    kgen_entry_free(entry);
    kgen_cache_close(cache);
}

static void the_last_put_stays(void **state) {
    (void)state;
    kgen_entry *first = small_entry(), *second = make_entry(900, 700);
    second->key = first->key;
    kgen_cache *cache = open_cache(dir);
    put_ok(cache, first);
    put_ok(cache, second);
    assert_hit(cache, second);
    kgen_cache *other = open_cache(dir);
    assert_hit(other, second);
    kgen_cache_close(other);
    kgen_cache_close(cache);
    kgen_entry_free(first);
    kgen_entry_free(second);
}

static long peak_kib(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static void putting_again_does_not_grow(void **state) {
    (void)state;
    enum { PUTS = 300, ENTRY_KIB = 2048, SPARE_KIB = 400 * 1024 }; /* ASan keeps 256 MiB back */
    kgen_cache *cache = open_cache("");
    kgen_entry *entry = make_entry(ENTRY_KIB * 1024, 0);
    put_ok(cache, entry);
    long before = peak_kib();
    for (int i = 0; i < PUTS; i++) put_ok(cache, entry);
    assert_true(peak_kib() - before < SPARE_KIB);
    kgen_cache_close(cache);
    kgen_entry_free(entry);
}

static void files_are_private(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES], shard[PATH_BYTES], deep[PATH_BYTES];
    struct stat st;
    snprintf(deep, sizeof deep, "%.300s/a/b//", dir);
    snprintf(dir, sizeof dir, "%s", deep);
    mode_t umask_was = umask(0);
    publish(entry);
    umask(umask_was);
    entry_path(path, &entry->key);
    shard_path(shard, &entry->key);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(shard, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    kgen_entry_free(entry);
}

/* ---- damage --------------------------------------------------------------- */

static void every_flipped_byte_is_refused(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES];
    size_t size = 0;
    publish(entry);
    entry_path(path, &entry->key);
    uint8_t *bytes = read_file(path, &size);
    for (size_t i = 0; i < size; i++) {
        uint8_t flip = (uint8_t)(1 + rand() % 255);
        bytes[i] ^= flip;
        assert_file_refused(&entry->key, bytes, size);
        bytes[i] ^= flip;
    }
    write_file(path, bytes, size); /* and undamaged it is a hit again */
    kgen_cache *cache = open_cache(dir);
    assert_hit(cache, entry);
    kgen_cache_close(cache);
    free(bytes);
    kgen_entry_free(entry);
}

/* What a device gets has a digest of its own: nothing behind it is looked at. */
static void only_the_code_is_read(void **state) {
    (void)state;
    kgen_entry *entry = make_entry(5000, 3000), *got;
    char path[PATH_BYTES];
    size_t size = 0;
    int found;
    publish(entry);
    entry_path(path, &entry->key);
    uint8_t *bytes = read_file(path, &size);
    size_t code_size, end = code_digest_at(bytes, size, &code_size) + DIGEST_BYTES;
    assert_in_range(end, AT_STRINGS + entry->code_size, size - DIGEST_BYTES);
    for (int i = 0; i < 300; i++) {
        size_t at = i & 1 ? (size_t)rand() % end : end + (size_t)rand() % (size - end);
        bytes[at] ^= 1;
        write_file(path, bytes, size);
        bytes[at] ^= 1;
        kgen_cache *cache = open_cache(dir);
        assert_int_equal(kgen_cache_get_as(cache, &got, &found, &entry->key, KGEN_GET_CODE, NULL),
                         KGEN_OK);
        assert_int_equal(found, at >= end);
        assert_int_equal(kgen_cache_get_stats(cache).quarantined, !found);
        if (found) assert_memory_equal(got->code, entry->code, entry->code_size);
        if (found) assert_null(got->source);
        kgen_entry_free(got);
        assert_miss(cache, &entry->key); /* neither the memory nor the file has all of it */
        kgen_cache_close(cache);
    }
    write_file(path, bytes, size);
    kgen_cache *cache = open_cache(dir);
    for (int i = 0; i < 3; i++) { /* the file, the file again, and the memory of a whole look-up */
        assert_int_equal(kgen_cache_get_as(cache, &got, &found, &entry->key, KGEN_GET_CODE, NULL),
                         KGEN_OK);
        assert_int_equal(found, 1);
        assert_null(got->source);
        assert_int_equal(got->source_size, entry->source_size);
        assert_int_not_equal(kgen_cache_put(cache, got, NULL), KGEN_OK);
        kgen_entry_free(got);
        if (i) assert_hit(cache, entry);
    }
    kgen_cache_stats stats = kgen_cache_get_stats(cache);
    assert_int_equal(stats.hits_user, 3);
    assert_int_equal(stats.hits_memory, 2);
    kgen_cache_close(cache);
    free(bytes);
    kgen_entry_free(entry);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES];
    size_t size = 0;
    publish(entry);
    entry_path(path, &entry->key);
    uint8_t *bytes = read_file(path, &size);
    for (size_t i = 0; i < size; i++) assert_file_refused(&entry->key, bytes, i);
    bytes = realloc(bytes, size + 64);
    random_bytes(bytes + size, 64);
    for (size_t i = 1; i <= 64; i++) assert_file_refused(&entry->key, bytes, size + i);
    free(bytes);
    kgen_entry_free(entry);
}

/* Lengths and counts that a digest vouches for must not lead astray either:
 * the sanitizers watch. */
static void sealed_nonsense_is_survived(void **state) {
    (void)state;
    kgen_entry *entry = make_entry(200, 300);
    char path[PATH_BYTES], aside[PATH_BYTES];
    size_t size = 0;
    publish(entry);
    entry_path(path, &entry->key);
    quarantine_path(aside, &entry->key);
    uint8_t *bytes = read_file(path, &size), *copy = malloc(size);
    for (int i = 0; i < 3000; i++) {
        memcpy(copy, bytes, size);
        for (int changes = 1 + rand() % 3; changes > 0; changes--)
            copy[(size_t)rand() % (size - DIGEST_BYTES)] = (uint8_t)(rand() % 4 ? rand() : 255);
        size_t kept = rand() % 4 ? size : (size_t)rand() % size;
        if (kept >= DIGEST_BYTES) seal(copy, kept);
        write_file(path, copy, kept);
        kgen_cache *cache = open_cache(dir);
        kgen_entry *got = NULL;
        int found = 0;
        assert_int_equal(kgen_cache_get(cache, &got, &found, &entry->key, NULL), KGEN_OK);
        if (found) assert_memory_equal(&got->key, &entry->key, sizeof got->key);
        kgen_entry_free(got);
        kgen_cache_close(cache);
        unlink(aside);
    }
    free(copy);
    free(bytes);
    kgen_entry_free(entry);
}

/* Each lie alone, with a digest that fits it. */
static void sealed_lies_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t at;
        int add;
    } lies[] = {{AT_FILE_SIZE, 1},    {AT_FILE_SIZE, -1},   {AT_FILE_SIZE + 7, 1},
                {AT_CODE_SIZE, 1},    {AT_CODE_SIZE, -1},   {AT_CODE_SIZE + 7, 0x7f},
                {AT_SOURCE_SIZE, 1},  {AT_SOURCE_SIZE, -1}, {AT_SOURCE_SIZE + 7, 0x7f},
                {AT_PACKED_SIZE, 1},  {AT_PACKED_SIZE, -1}, {AT_PACKED_SIZE + 7, -1},
                {AT_STRINGS, 1},      {AT_STRINGS + 1, -1}, {AT_SYMBOL + 1, 1},
                {AT_SYMBOL + 2, -'a'}};
    kgen_entry *entry = make_entry(sizeof(Elf64_Ehdr) + 16, 20);
    char path[PATH_BYTES];
    size_t size = 0;
    entry->symbol[0] = 'a'; /* the last lie ends the symbol where it begins */
    publish(entry);
    entry_path(path, &entry->key);
    uint8_t *bytes = read_file(path, &size);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint8_t was = bytes[lies[i].at];
        bytes[lies[i].at] = (uint8_t)(was + lies[i].add);
        seal(bytes, size);
        assert_file_refused(&entry->key, bytes, size);
        bytes[lies[i].at] = was;
    }
    free(bytes);
    kgen_entry_free(entry);
}

/* The file with `count` letters put in at `at`, its size told and sealed. */
static uint8_t *widen(const uint8_t *bytes, size_t size, size_t at, size_t count) {
    uint8_t *wide = malloc(size + count);
    memcpy(wide, bytes, at);
    memset(wide + at, 'x', count);
    memcpy(wide + at + count, bytes + at, size - at);
    for (int i = 0; i < 8; i++) wide[AT_FILE_SIZE + i] = (uint8_t)((size + count) >> (8 * i));
    seal(wide, size + count);
    return wide;
}

static void sealed_surplus_is_refused(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES];
    size_t size = 0, most = KGEN_SYMBOL_MAX - 1 - SYMBOL_LENGTH;
    publish(entry);
    entry_path(path, &entry->key);
    uint8_t *bytes = read_file(path, &size);
    uint8_t *wide = widen(bytes, size, size - DIGEST_BYTES, 1); /* belongs to nothing */
    assert_file_refused(&entry->key, wide, size + 1);
    free(wide);
    bytes[AT_SYMBOL] = KGEN_SYMBOL_MAX; /* one more than the field holds with its end */
    wide = widen(bytes, size, AT_SYMBOL + 2, most + 1);
    assert_file_refused(&entry->key, wide, size + most + 1);
    free(wide);
    bytes[AT_SYMBOL] = KGEN_SYMBOL_MAX - 1;
    wide = widen(bytes, size, AT_SYMBOL + 2, most);
    write_file(path, wide, size + most);
    kgen_cache *cache = open_cache(dir);
    kgen_entry *got = NULL;
    int found = 0;
    assert_int_equal(kgen_cache_get(cache, &got, &found, &entry->key, NULL), KGEN_OK);
    assert_int_equal(found, 1);
    assert_int_equal(strlen(got->symbol), KGEN_SYMBOL_MAX - 1);
    kgen_entry_free(got);
    kgen_cache_close(cache);
    free(wide);
    free(bytes);
    kgen_entry_free(entry);
}

/* A sound file of a later version is not ours to judge: a miss, left alone. */
static void another_version_is_left_alone(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES];
    size_t size = 0;
    publish(entry);
    entry_path(path, &entry->key);
    uint8_t *bytes = read_file(path, &size);
    bytes[AT_SCHEMA]++;
    seal(bytes, size);
    write_file(path, bytes, size);
    kgen_cache *cache = open_cache(dir);
    assert_miss(cache, &entry->key);
    assert_int_equal(kgen_cache_get_stats(cache).quarantined, 0);
    assert_true(is_there(path));
    put_ok(cache, entry);
    kgen_cache_close(cache);
    cache = open_cache(dir);
    assert_hit(cache, entry);
    kgen_cache_close(cache);
    free(bytes);
    kgen_entry_free(entry);
}

static uint8_t *find_bytes(uint8_t *in, size_t size, const void *what, size_t length) {
    uint8_t *at = memmem(in, size, what, length);
    assert_non_null(at);
    return at;
}

static void a_wrong_architecture_is_refused(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES];
    size_t size = 0;
    publish(entry);
    entry_path(path, &entry->key);
    uint8_t *bytes = read_file(path, &size);
    uint8_t *code = find_bytes(bytes, size, entry->code, entry->code_size);
    static const size_t places[] = {0, EI_CLASS, EI_DATA, offsetof(Elf64_Ehdr, e_machine),
                                    offsetof(Elf64_Ehdr, e_flags)};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        code[places[i]] ^= 3; /* gfx942 0x4c becomes gfx950 0x4f */
        seal(bytes, size);
        assert_file_refused(&entry->key, bytes, size);
        code[places[i]] ^= 3;
    }
    bytes[AT_MACH] = MACH_GFX950;
    seal(bytes, size);
    assert_file_refused(&entry->key, bytes, size);
    /* The entry's own note and the code agree, the name does not. */
    code[offsetof(Elf64_Ehdr, e_flags)] = MACH_GFX950;
    seal(bytes, size);
    assert_file_refused(&entry->key, bytes, size);
    memcpy(find_bytes(bytes, size, "gfx942", 6), "gfx950", 6);
    seal(bytes, size);
    write_file(path, bytes, size); /* now all three agree */
    kgen_cache *cache = open_cache(dir);
    kgen_entry *got = NULL;
    int found = 0;
    assert_int_equal(kgen_cache_get(cache, &got, &found, &entry->key, NULL), KGEN_OK);
    assert_int_equal(found, 1);
    kgen_entry_free(got);
    kgen_cache_close(cache);
    free(bytes);
    kgen_entry_free(entry);
}

static void an_entry_under_another_name_is_refused(void **state) {
    (void)state;
    kgen_entry *a = small_entry(), *b = small_entry();
    char path[PATH_BYTES];
    size_t size = 0;
    publish(a);
    publish(b); /* makes the folder */
    entry_path(path, &a->key);
    uint8_t *bytes = read_file(path, &size);
    assert_file_refused(&b->key, bytes, size);
    kgen_cache *cache = open_cache(dir);
    assert_hit(cache, a);
    kgen_cache_close(cache);
    free(bytes);
    kgen_entry_free(a);
    kgen_entry_free(b);
}

/* ---- what stands in the place of a file ----------------------------------- */

static void links_pipes_and_folders_are_refused(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES], elsewhere[PATH_BYTES + 8];
    publish(entry);
    entry_path(path, &entry->key);
    snprintf(elsewhere, sizeof elsewhere, "%s.else", path);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0); /* to a sound entry */
    assert_refused(&entry->key);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_refused(&entry->key);
    assert_int_equal(mkfifo(path, 0600), 0); /* and does not hang */
    assert_refused(&entry->key);
    for (int i = 0; i < 3; i++) { /* folders with something in them do not take a name over */
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(elsewhere, sizeof elsewhere, "%s/in", path);
        assert_int_equal(mkdir(elsewhere, 0700), 0);
        assert_refused(&entry->key);
    }
    publish(entry);
    kgen_cache *cache = open_cache(dir);
    assert_hit(cache, entry);
    kgen_cache_close(cache);
    kgen_entry_free(entry);
}

/* A folder below the cache that is a link is neither read nor written. */
static void linked_folders_are_not_followed(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char shard[PATH_BYTES], elsewhere[PATH_BYTES + 8];
    kgen_error err = {0};
    publish(entry);
    shard_path(shard, &entry->key);
    snprintf(elsewhere, sizeof elsewhere, "%s.else", shard);
    assert_int_equal(rename(shard, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, shard), 0);
    kgen_cache *cache = open_cache(dir);
    assert_miss(cache, &entry->key);
    assert_int_equal(kgen_cache_put(cache, entry, &err), KGEN_E_IO);
    assert_non_null(strstr(err.text, dir));
    assert_hit(cache, entry); /* memory has it */
    kgen_cache_close(cache);
    kgen_entry_free(entry);
}

/* The cache directory itself may be a link: users put it on a larger disk. */
static void the_directory_may_be_a_link(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char real[PATH_BYTES + 8];
    snprintf(real, sizeof real, "%s.real", dir);
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, dir), 0);
    publish(entry);
    kgen_cache *cache = open_cache(dir);
    assert_hit(cache, entry);
    kgen_cache_close(cache);
    kgen_entry_free(entry);
}

static void files_others_can_write_are_refused(void **state) {
    (void)state;
    static const mode_t modes[] = {0620, 0602, 0666};
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES];
    entry_path(path, &entry->key);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        publish(entry);
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_refused(&entry->key);
    }
    kgen_entry_free(entry);
}

static void foreign_owners_are_refused(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can give files away: skipped\n");
        skip();
    }
    kgen_entry *entry = small_entry();
    char path[PATH_BYTES], shard[PATH_BYTES];
    kgen_error err = {0};
    publish(entry);
    entry_path(path, &entry->key);
    shard_path(shard, &entry->key);
    const char *folders[] = {shard, dir};
    for (size_t i = 0; i < 2; i++) { /* sound file in a folder of somebody else */
        assert_int_equal(chown(folders[i], 12345, 12345), 0);
        kgen_cache *cache = open_cache(dir);
        assert_miss(cache, &entry->key);
        assert_int_equal(kgen_cache_put(cache, entry, &err), KGEN_E_IO);
        assert_non_null(strstr(err.text, "owned by"));
        kgen_cache_close(cache);
        assert_int_equal(chown(folders[i], 0, 0), 0);
    }
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_refused(&entry->key);
    kgen_entry_free(entry);
}

/* ---- directories that cannot be used -------------------------------------- */

static void assert_put_fails_but_memory_has_it(const char *where, const char *reason) {
    kgen_entry *entry = small_entry();
    kgen_cache *cache = open_cache(where);
    kgen_error err = {0};
    assert_int_equal(kgen_cache_put(cache, entry, &err), KGEN_E_IO);
    assert_int_equal(err.status, KGEN_E_IO);
    if (!strstr(err.text, where) || !strstr(err.text, reason))
        fail_msg("\"%s\" does not name %s and %s", err.text, where, reason);
    assert_hit(cache, entry);
    assert_int_equal(kgen_cache_get_stats(cache).published, 0);
    kgen_cache_close(cache);
    kgen_entry_free(entry);
}

static void an_impossible_directory_is_named(void **state) {
    (void)state;
    char below_file[PATH_BYTES], too_long[5000];
    int fd = open(dir, O_WRONLY | O_CREAT, 0600);
    close(fd);
    snprintf(below_file, sizeof below_file, "%.300s/x", dir);
    assert_put_fails_but_memory_has_it("/dev/null/x", "Not a directory");
    assert_put_fails_but_memory_has_it(below_file, "Not a directory");
    assert_put_fails_but_memory_has_it(dir, "Not a directory");
    memset(too_long, 'a', sizeof too_long);
    memcpy(too_long, "/tmp/", 5);
    too_long[sizeof too_long - 1] = 0;
    kgen_cache *cache = open_cache(too_long);
    kgen_entry *entry = small_entry();
    assert_int_equal(kgen_cache_put(cache, entry, NULL), KGEN_E_IO);
    assert_null(kgen_cache_dir(cache));
    kgen_entry_free(entry);
    kgen_cache_close(cache);
    cache = open_cache("/dev/null/x");
    assert_null(kgen_cache_dir(cache));
    kgen_cache_close(cache);
}

/* Root may write everywhere, so it is somebody else for this. */
static int become_nobody(void **state) {
    if (fresh_dir(state) != 0 || mkdir(dir, 0700) != 0) return -1;
    if (geteuid() != 0) return 0;
    return chmod(scratch, 0755) || chown(dir, NOBODY, NOBODY) || seteuid(NOBODY);
}

static int become_again(void **state) {
    (void)state;
    return seteuid(getuid());
}

static void a_read_only_directory_is_read(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char shard[PATH_BYTES], below[PATH_BYTES + 8];
    publish(entry);
    shard_path(shard, &entry->key);
    snprintf(below, sizeof below, "%s/x/y", dir);
    assert_int_equal(chmod(shard, 0500), 0);
    assert_int_equal(chmod(dir, 0500), 0);
    kgen_cache *cache = open_cache(dir);
    assert_string_equal(kgen_cache_dir(cache), dir);
    assert_hit(cache, entry);
    assert_int_equal(kgen_cache_put(cache, entry, NULL), KGEN_E_IO);
    kgen_cache_close(cache);
    assert_put_fails_but_memory_has_it(dir, "Permission denied");
    assert_put_fails_but_memory_has_it(below, "Permission denied");
    cache = open_cache(below);
    assert_null(kgen_cache_dir(cache)); /* it cannot be made */
    kgen_cache_close(cache);
    assert_int_equal(chmod(dir, 0), 0);
    cache = open_cache(dir);
    assert_null(kgen_cache_dir(cache)); /* it cannot be read */
    assert_miss(cache, &entry->key);
    kgen_cache_close(cache);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(chmod(shard, 0700), 0);
    kgen_entry_free(entry);
}

/* Runs in a child whose files may not grow: a disk that is full. */
static int put_on_a_full_disk(const kgen_entry *entry) {
    struct rlimit limit = {1000, 1000};
    kgen_cache *cache = NULL;
    kgen_error err = {0};
    signal(SIGXFSZ, SIG_IGN);
    if (kgen_cache_open(&cache, dir, NULL) != KGEN_OK || setrlimit(RLIMIT_FSIZE, &limit)) return 1;
    kgen_status status = kgen_cache_put(cache, entry, &err);
    kgen_cache_close(cache);
    return status == KGEN_E_IO && strstr(err.text, "File too large") ? 0 : 2;
}

static size_t files_left;
static int count_file(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)path, (void)st, (void)ftw;
    files_left += type != FTW_D && type != FTW_DP;
    return 0;
}

static size_t count_files(const char *below) {
    files_left = 0;
    nftw(below, count_file, 16, FTW_PHYS);
    return files_left;
}

static void assert_child_ok(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("child ended with status 0x%x", (unsigned)status);
}

static void a_full_disk_leaves_nothing(void **state) {
    (void)state;
    kgen_entry *entry = make_entry(20000, 100);
    pid_t child = fork();
    if (child == 0) _exit(put_on_a_full_disk(entry));
    assert_child_ok(child);
    assert_int_equal(count_files(dir), 0);
    kgen_entry_free(entry);
}

/* ---- which directory ------------------------------------------------------ */

static void set_env(const char *kgen_dir, const char *xdg, const char *home) {
    const char *names[] = {"KGEN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
    const char *values[] = {kgen_dir, xdg, home};
    for (int i = 0; i < 3; i++) {
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
    }
}

static void assert_dir(const char *argument, const char *expected) {
    kgen_cache *cache = open_cache(argument);
    const char *got = kgen_cache_dir(cache);
    if (!expected)
        assert_null(got);
    else if (!got || strcmp(got, expected) != 0)
        fail_msg("directory is %s, not %s", got ? got : "none", expected);
    kgen_cache_close(cache);
}

static void the_environment_names_the_directory(void **state) {
    (void)state;
    char a[PATH_BYTES + 8], b[PATH_BYTES + 8], c[PATH_BYTES + 8], expected[PATH_BYTES + 32];
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    snprintf(c, sizeof c, "%s/c", dir);
    set_env(a, b, c);
    assert_dir(dir, dir);
    assert_dir(NULL, a);
    set_env(NULL, b, c);
    snprintf(expected, sizeof expected, "%s/kgen", b);
    assert_dir(NULL, expected);
    set_env(NULL, NULL, c);
    snprintf(expected, sizeof expected, "%s/.cache/kgen", c);
    assert_dir(NULL, expected);
    set_env(NULL, "relative", c);
    assert_dir(NULL, expected);
    set_env(NULL, "", c);
    assert_dir(NULL, expected);
    set_env("", b, c);
    assert_dir(NULL, NULL);
    set_env(NULL, NULL, NULL);
    assert_dir(NULL, NULL);
    set_env(NULL, NULL, "/dev/null");
    assert_dir(NULL, NULL);
    assert_false(is_there(dir)); /* opening makes nothing */
}

static void a_relative_directory_stays_where_it_was(void **state) {
    (void)state;
    char was[PATH_BYTES];
    kgen_entry *entry = small_entry();
    assert_non_null(getcwd(was, sizeof was));
    assert_int_equal(chdir(scratch), 0);
    kgen_cache *cache = open_cache(strrchr(dir, '/') + 1);
    assert_int_equal(chdir("/"), 0);
    put_ok(cache, entry);
    kgen_cache_close(cache);
    assert_int_equal(chdir(was), 0);
    cache = open_cache(dir);
    assert_hit(cache, entry);
    kgen_cache_close(cache);
    kgen_entry_free(entry);
}

static int count_visit(const kgen_entry *entry, size_t file_bytes, void *user) {
    (void)entry, (void)file_bytes;
    ++*(int *)user;
    return 0;
}

static void without_a_directory_memory_serves(void **state) {
    (void)state;
    const char *arguments[] = {"", NULL};
    set_env(NULL, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        kgen_cache *cache = open_cache(arguments[i]);
        kgen_entry *entry = small_entry();
        int visits = 0;
        assert_null(kgen_cache_dir(cache));
        assert_miss(cache, &entry->key);
        put_ok(cache, entry);
        assert_hit(cache, entry);
        assert_int_equal(kgen_cache_each(cache, "", count_visit, &visits, NULL), KGEN_OK);
        assert_int_equal(visits, 0);
        kgen_cache_stats stats = kgen_cache_get_stats(cache);
        assert_int_equal(stats.hits_memory, 1);
        assert_int_equal(stats.published, 0);
        kgen_cache_close(cache);
        kgen_entry_free(entry);
    }
}

static void a_removed_directory_is_made_again(void **state) {
    (void)state;
    kgen_entry *a = small_entry(), *b = small_entry();
    char gone[PATH_BYTES + 8];
    kgen_cache *cache = open_cache(dir);
    put_ok(cache, a);
    snprintf(gone, sizeof gone, "%s.gone", dir);
    assert_int_equal(rename(dir, gone), 0);
    put_ok(cache, b);
    kgen_cache_close(cache);
    cache = open_cache(dir);
    assert_miss(cache, &a->key);
    assert_hit(cache, b);
    kgen_cache_close(cache);
    kgen_entry_free(a);
    kgen_entry_free(b);
}

/* ---- entries that are not taken ------------------------------------------- */

static void assert_not_taken(kgen_cache *cache, const kgen_entry *entry, kgen_status expected,
                             const char *named) {
    kgen_error err = {0};
    assert_int_equal(kgen_cache_put(cache, entry, &err), expected);
    if (!strstr(err.text, named)) fail_msg("\"%s\" does not name %s", err.text, named);
    assert_miss(cache, &entry->key);
}

static void bad_entries_are_not_taken(void **state) {
    (void)state;
    kgen_entry *good = small_entry(), bad;
    kgen_cache *cache = open_cache(dir);
#define NOT_TAKEN(change, status, named) \
    bad = *good;                         \
    change;                              \
    assert_not_taken(cache, &bad, status, named)
    NOT_TAKEN(bad.code = NULL, KGEN_E_ARG, "code");
    NOT_TAKEN(bad.code_size = 0, KGEN_E_ARG, "code");
    NOT_TAKEN(bad.code_size = (64 << 20) + 1, KGEN_E_ARG, "67108864");
    NOT_TAKEN(bad.source = NULL, KGEN_E_ARG, "source");
    NOT_TAKEN(bad.source_size = (16 << 20) + 1, KGEN_E_ARG, "16777216");
    NOT_TAKEN(memset(bad.spec, 'x', sizeof bad.spec), KGEN_E_ARG, "spec");
    NOT_TAKEN(memset(bad.symbol, 'x', sizeof bad.symbol), KGEN_E_ARG, "symbol");
    NOT_TAKEN(memset(bad.target, 'x', sizeof bad.target), KGEN_E_ARG, "target");
    NOT_TAKEN(memset(bad.record.toolchain, 'x', 64), KGEN_E_ARG, "toolchain");
    NOT_TAKEN(strcpy(bad.target, "gfx000"), KGEN_E_TARGET, "gfx000");
    NOT_TAKEN(strcpy(bad.target, "gfx950"), KGEN_E_ARG, "0x4f");
#undef NOT_TAKEN
    assert_false(is_there(dir));
    kgen_cache_close(cache);
    kgen_entry_free(good);
}

/* ---- several at once ------------------------------------------------------ */

enum { WRITERS = 16, SHARED_KEYS = 4, ROUNDS = 20, KEYS = SHARED_KEYS + WRITERS };

/* Every byte of it tells who wrote it. */
static void fill_writers_entry(kgen_entry *entry, int writer) {
    snprintf(entry->target, sizeof entry->target, "cpu:cdna3");
    snprintf(entry->symbol, sizeof entry->symbol, "w%d", writer);
    entry->resources.vgprs = writer;
    entry->code_size = 20000 + (size_t)writer * 777;
    entry->source_size = 10000 + (size_t)writer * 333;
    memset(entry->code, writer, entry->code_size);
    memset(entry->source, 'a' + writer, entry->source_size);
    entry->source[entry->source_size] = 0;
}

static int is_all(const void *bytes, size_t size, int value) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        if (at[i] != value) return 0;
    return 1;
}

static int is_of_one_writer(const kgen_entry *entry) {
    int writer = entry->resources.vgprs;
    char symbol[16];
    snprintf(symbol, sizeof symbol, "w%d", writer);
    return writer >= 0 && writer < WRITERS && strcmp(entry->symbol, symbol) == 0 &&
           entry->code_size == 20000 + (size_t)writer * 777 &&
           entry->source_size == 10000 + (size_t)writer * 333 &&
           is_all(entry->code, entry->code_size, writer) &&
           is_all(entry->source, entry->source_size, 'a' + writer);
}

/* 0: missed, 1: whole, -1: anything that must not be. Nothing from memory. */
static int read_whole(const kgen_key *key) {
    kgen_cache *cache = NULL;
    kgen_entry *got = NULL;
    int found = 0;
    if (kgen_cache_open(&cache, dir, NULL) != KGEN_OK) return -1;
    kgen_status status = kgen_cache_get(cache, &got, &found, key, NULL);
    int ok = status == KGEN_OK && kgen_cache_get_stats(cache).quarantined == 0 &&
             (!found || is_of_one_writer(got));
    kgen_entry_free(got);
    kgen_cache_close(cache);
    return ok ? found : -1;
}

/* A child: its exit code. */
static int write_and_read(int writer, const kgen_key *keys) {
    kgen_entry *entry = make_entry(40000, 20000);
    kgen_cache *cache = NULL;
    int wrote[KEYS] = {0};
    srand(seed + (unsigned)writer);
    fill_writers_entry(entry, writer);
    if (kgen_cache_open(&cache, dir, NULL) != KGEN_OK) return 1;
    for (int i = 0; i < ROUNDS; i++) {
        int mine = rand() % 4 ? rand() % SHARED_KEYS : SHARED_KEYS + writer;
        int theirs = rand() % KEYS;
        entry->key = keys[mine];
        if (kgen_cache_put(cache, entry, NULL) != KGEN_OK) return 2;
        wrote[mine] = 1;
        if (read_whole(&keys[mine]) != 1) return 3;
        if (read_whole(&keys[theirs]) < wrote[theirs]) return 4;
    }
    kgen_cache_close(cache);
    kgen_entry_free(entry);
    return 0;
}

static void sixteen_processes_share_a_directory(void **state) {
    (void)state;
    kgen_key keys[KEYS];
    pid_t children[WRITERS];
    for (int i = 0; i < KEYS; i++) keys[i] = random_key();
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        if (children[i] == 0) _exit(write_and_read(i, keys));
    }
    for (int i = 0; i < WRITERS; i++) assert_child_ok(children[i]);
    size_t present = 0;
    for (int i = 0; i < KEYS; i++) present += read_whole(&keys[i]) == 1;
    assert_true(present >= 1);
    assert_int_equal(count_files(dir), present + 1); /* that of counts: nothing is set aside */
}

typedef struct thread_job {
    kgen_cache *cache;
    const kgen_key *keys;
    int writer, failed;
} thread_job;

static void *thread_main(void *user) {
    thread_job *job = user;
    kgen_entry *entry = make_entry(40000, 20000), *got = NULL;
    fill_writers_entry(entry, job->writer);
    for (int i = 0; i < 200; i++) {
        int found = 0;
        entry->key = job->keys[(i * 7 + job->writer) % SHARED_KEYS];
        if (i % 8 == 0 && kgen_cache_put(job->cache, entry, NULL) != KGEN_OK) job->failed = 1;
        if (kgen_cache_get(job->cache, &got, &found, &job->keys[i % SHARED_KEYS], NULL) != KGEN_OK)
            job->failed = 1;
        if (found && !is_of_one_writer(got)) job->failed = 1;
        kgen_entry_free(got);
    }
    kgen_entry_free(entry);
    return NULL;
}

static void threads_share_a_cache(void **state) {
    (void)state;
    enum { THREADS = 8 };
    kgen_key keys[SHARED_KEYS];
    pthread_t threads[THREADS];
    thread_job jobs[THREADS];
    kgen_cache *cache = open_cache("");
    for (int i = 0; i < SHARED_KEYS; i++) keys[i] = random_key();
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (thread_job){cache, keys, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].failed, 0);
    }
    kgen_cache_stats stats = kgen_cache_get_stats(cache);
    assert_int_equal(stats.hits_memory + stats.misses, THREADS * 200);
    kgen_cache_close(cache);
}

static void publish_until_killed(const kgen_key *key) {
    kgen_entry *entry = make_entry(40000, 20000);
    kgen_cache *cache = NULL;
    if (kgen_cache_open(&cache, dir, NULL) != KGEN_OK) _exit(1);
    entry->key = *key;
    for (int i = 0;; i++) {
        fill_writers_entry(entry, i % WRITERS);
        if (kgen_cache_put(cache, entry, NULL) != KGEN_OK) _exit(1);
    }
}

static void a_killed_writer_harms_nobody(void **state) {
    (void)state;
    enum { KILLS = 60 };
    kgen_key key = random_key();
    int found = 0, visits = 0;
    for (int i = 0; i < KILLS; i++) {
        pid_t child = fork();
        if (child == 0) publish_until_killed(&key);
        for (int ms = 0; i == 0 && ms < 20000 && read_whole(&key) == 0; ms++) usleep(1000);
        usleep((useconds_t)(rand() % 15000));
        kill(child, SIGKILL);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        int now = read_whole(&key);
        assert_true(now >= found); /* never broken, and never lost again */
        found = now;
    }
    assert_int_equal(found, 1);
    size_t left = count_files(dir) - 2; /* the entry, and the counts */
    print_message("%d writers killed, %zu temporary files left\n", KILLS, left);
    assert_true(left <= KILLS);
    kgen_cache *cache = open_cache(dir);
    assert_int_equal(kgen_cache_each(cache, "", count_visit, &visits, NULL), KGEN_OK);
    assert_int_equal(visits, 1);
    kgen_cache_close(cache);
}

static void old_temporary_files_are_removed(void **state) {
    (void)state;
    kgen_entry *entry = small_entry();
    char shard[PATH_BYTES], old[PATH_BYTES + 16], fresh[PATH_BYTES + 16], other[PATH_BYTES + 16];
    publish(entry);
    shard_path(shard, &entry->key);
    snprintf(old, sizeof old, "%s/.tmp-old", shard);
    snprintf(fresh, sizeof fresh, "%s/.tmp-new", shard);
    snprintf(other, sizeof other, "%s/other", shard);
    const char *paths[] = {old, fresh, other};
    time_t now = time(NULL);
    const time_t ages[] = {3700, 3500, 10000};
    for (int i = 0; i < 3; i++) {
        struct timespec times[2] = {{.tv_sec = now - ages[i]}, {.tv_sec = now - ages[i]}};
        write_file(paths[i], (const uint8_t *)"half", 4);
        assert_int_equal(utimensat(AT_FDCWD, paths[i], times, 0), 0);
    }
    publish(entry);
    assert_false(is_there(old));
    assert_true(is_there(fresh)); /* its writer may be at work */
    assert_true(is_there(other)); /* not ours */
    /* What was just published has the date of the file system's clock; this one is behind. */
    kgen__place at;
    const struct timespec behind[2] = {{.tv_sec = now - 7200}, {.tv_sec = now - 7200}};
    const struct timespec young[2] = {{.tv_sec = now - 7300}, {.tv_sec = now - 7300}};
    assert_int_equal(kgen__place_open(&at, dir, &entry->key, KGEN__ENTRY_SUFFIX, 0), 0);
    assert_int_equal(utimensat(at.shard, at.name, behind, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, fresh, young, 0), 0);
    kgen__sweep_temps(&at);
    assert_true(is_there(fresh));
    kgen__place_close(&at);
    kgen_entry_free(entry);
}

/* ---- listing -------------------------------------------------------------- */

enum { LISTED = 60 };

typedef struct listing {
    kgen_key keys[LISTED];
    size_t count, stop_at;
} listing;

static int note_visit(const kgen_entry *entry, size_t file_bytes, void *user) {
    listing *seen = user;
    char path[PATH_BYTES];
    struct stat st;
    assert_null(entry->code);
    assert_string_equal(entry->target, "gfx942");
    entry_path(path, &entry->key);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, file_bytes);
    assert_true(seen->count < LISTED);
    seen->keys[seen->count++] = entry->key;
    return seen->count == seen->stop_at;
}

static int by_key(const void *a, const void *b) { return memcmp(a, b, sizeof(kgen_key)); }

/* Three first bytes only: folders with many entries, and with few. */
static void publish_many(kgen_key *keys) {
    static const uint8_t first[] = {0x00, 0x7a, 0xff};
    kgen_cache *cache = open_cache(dir);
    for (int i = 0; i < LISTED; i++) {
        kgen_entry *entry = small_entry();
        entry->key.bytes[0] = first[i % 3];
        put_ok(cache, entry);
        keys[i] = entry->key;
        kgen_entry_free(entry);
    }
    kgen_cache_close(cache);
    qsort(keys, LISTED, sizeof *keys, by_key);
}

static listing list(kgen_cache *cache, const char *prefix, size_t stop_at) {
    listing seen = {.stop_at = stop_at};
    assert_int_equal(kgen_cache_each(cache, prefix, note_visit, &seen, NULL), KGEN_OK);
    return seen;
}

static void entries_are_listed_in_order(void **state) {
    (void)state;
    kgen_key keys[LISTED];
    char hex[KGEN_KEY_HEX], prefix[KGEN_KEY_HEX];
    publish_many(keys);
    kgen_cache *cache = open_cache(dir);
    listing seen = list(cache, "", 0);
    assert_int_equal(seen.count, LISTED);
    assert_memory_equal(seen.keys, keys, sizeof keys);
    assert_int_equal(list(cache, "", 7).count, 7);
    assert_int_equal(list(cache, "", 25).count, 25);
    assert_int_equal(list(cache, "7", 0).count, LISTED / 3);
    assert_int_equal(list(cache, "7A", 0).count, LISTED / 3);
    assert_int_equal(list(cache, "7b", 0).count, 0);
    for (int digits = 1; digits <= 64; digits++) {
        size_t expected = 0;
        kgen_key_hex(hex, &keys[LISTED / 2]);
        snprintf(prefix, sizeof prefix, "%.*s", digits, hex);
        for (int i = 0; i < LISTED; i++) {
            kgen_key_hex(hex, &keys[i]);
            expected += strncmp(hex, prefix, (size_t)digits) == 0;
        }
        assert_int_equal(list(cache, prefix, 0).count, expected);
    }
    kgen_cache_close(cache);
}

static void listing_skips_what_is_no_entry(void **state) {
    (void)state;
    kgen_key keys[LISTED];
    char shard[PATH_BYTES], path[PATH_BYTES + 80];
    static const char *const strays[] = {".tmp-0123456789abcdef", "x.kgen", "README", "00"};
    publish_many(keys);
    shard_path(shard, &keys[0]);
    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", shard, strays[i]);
        write_file(path, (const uint8_t *)"stray", 5);
    }
    entry_path(path, &keys[1]);
    write_file(path, (const uint8_t *)"damaged", 7);
    kgen_cache *cache = open_cache(dir);
    assert_int_equal(list(cache, "", 0).count, LISTED - 1);
    assert_int_equal(kgen_cache_get_stats(cache).quarantined, 1);
    assert_int_equal(list(cache, "", 0).count, LISTED - 1);
    assert_int_equal(kgen_cache_get_stats(cache).quarantined, 1);
    kgen_cache_close(cache);
}

static void bad_prefixes_and_directories(void **state) {
    (void)state;
    static const char *const bad[] = {"g", "7z", " 7", "7a/", "../"};
    char hex[KGEN_KEY_HEX + 1];
    kgen_error err = {0};
    int visits = 0;
    kgen_cache *cache = open_cache(dir);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kgen_cache_each(cache, bad[i], count_visit, &visits, &err), KGEN_E_ARG);
        assert_non_null(strstr(err.text, bad[i]));
    }
    memset(hex, '0', 65);
    hex[65] = 0;
    assert_int_equal(kgen_cache_each(cache, hex, count_visit, &visits, &err), KGEN_E_ARG);
    assert_int_equal(kgen_cache_each(cache, "", count_visit, &visits, &err), KGEN_OK);
    kgen_cache_close(cache);
    cache = open_cache("/dev/null/x");
    assert_int_equal(kgen_cache_each(cache, "", count_visit, &visits, &err), KGEN_E_IO);
    assert_non_null(strstr(err.text, "/dev/null/x"));
    kgen_cache_close(cache);
    assert_int_equal(visits, 0);
}

/* ---- main ----------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_field_changes_the_key),
        TEST(fields_do_not_run_together),
        TEST(the_key_is_what_the_header_says),
        TEST(the_spec_is_not_in_the_key),
        TEST(hex_round_trip),
        TEST(bad_hex_is_refused),
        TEST(round_trip),
        TEST(every_target_round_trips),
        TEST(what_get_returns_is_the_callers),
        TEST(the_last_put_stays),
        TEST(putting_again_does_not_grow),
        TEST(files_are_private),
        TEST(every_flipped_byte_is_refused),
        TEST(only_the_code_is_read),
        TEST(every_truncation_is_refused),
        TEST(sealed_nonsense_is_survived),
        TEST(sealed_lies_are_refused),
        TEST(sealed_surplus_is_refused),
        TEST(another_version_is_left_alone),
        TEST(a_wrong_architecture_is_refused),
        TEST(an_entry_under_another_name_is_refused),
        TEST(links_pipes_and_folders_are_refused),
        TEST(linked_folders_are_not_followed),
        TEST(the_directory_may_be_a_link),
        TEST(files_others_can_write_are_refused),
        TEST(foreign_owners_are_refused),
        TEST(an_impossible_directory_is_named),
        cmocka_unit_test_setup_teardown(a_read_only_directory_is_read, become_nobody, become_again),
        TEST(a_full_disk_leaves_nothing),
        TEST(the_environment_names_the_directory),
        TEST(a_relative_directory_stays_where_it_was),
        TEST(without_a_directory_memory_serves),
        TEST(a_removed_directory_is_made_again),
        TEST(bad_entries_are_not_taken),
        TEST(sixteen_processes_share_a_directory),
        TEST(threads_share_a_cache),
        TEST(a_killed_writer_harms_nobody),
        TEST(old_temporary_files_are_removed),
        TEST(entries_are_listed_in_order),
        TEST(listing_skips_what_is_no_entry),
        TEST(bad_prefixes_and_directories),
    };
    seed = (unsigned)test_seed();
    srand(seed);
    if (!mkdtemp(scratch)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}

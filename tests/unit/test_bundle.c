/* Bundles: what was packed is found and nothing else, whatever happened to the file. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <kgen/bundle.h>

#include "cache/bundle_parts.h"
#include "seed.h"

enum { PATH_BYTES = 128, NOBODY = 65534 };

static char folder[] = "/tmp/kgen-test-bundle-XXXXXX";
static char dir[PATH_BYTES], path[PATH_BYTES + 8], other[PATH_BYTES + 8];
static const char *const flags[] = {"-flag"};

static int fresh(void **state) {
    static int number;
    (void)state;
    snprintf(dir, sizeof dir, "%s/%d", folder, number++);
    snprintf(path, sizeof path, "%s.kgb", dir);
    snprintf(other, sizeof other, "%s.2.kgb", dir);
    unsetenv("KGEN_BUNDLE_KEY");
    return 0;
}

/* ---- entries ------------------------------------------------------------------ */

/* A kernel of no family: its text has its number. */
typedef struct kernel {
    char text[64];
    kgen_source source;
    kgen_entry entry;
    uint8_t code[300];
} kernel;

static void make_kernel(kernel *k, int number) {
    const kgen_target *target;
    memset(k, 0, sizeof *k);
    assert_int_equal(kgen_target_find(&target, "cpu:cdna3", NULL), KGEN_OK);
    snprintf(k->text, sizeof k->text, "int kernel_%d;", number);
    k->source.text = k->text;
    k->source.size = strlen(k->text);
    k->source.target = target;
    kgen_key_make(&k->entry.key, &k->source, flags, 1, "a compiler");
    strcpy(k->entry.target, target->name);
    snprintf(k->entry.symbol, sizeof k->entry.symbol, "kernel_%d", number);
    snprintf(k->entry.spec, sizeof k->entry.spec, "family:number=%d", number);
    for (size_t i = 0; i < sizeof k->code; i++) k->code[i] = (uint8_t)(number + rand());
    k->entry.code = k->code;
    k->entry.code_size = 1 + (size_t)rand() % sizeof k->code;
    k->entry.source = k->text;
    k->entry.source_size = k->source.size;
}

static void put(const char *where, const kernel *kernels, int count) {
    kgen_cache *cache;
    assert_int_equal(kgen_cache_open(&cache, where, NULL), KGEN_OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(kgen_cache_put(cache, &kernels[i].entry, NULL), KGEN_OK);
        kgen_cache_note_made(cache, &kernels[i].source, flags, 1, &kernels[i].entry.key);
    }
    kgen_cache_close(cache);
}

static int is_same(const kgen_entry *a, const kgen_entry *b) {
    return a->code_size == b->code_size && memcmp(a->code, b->code, a->code_size) == 0 &&
           strcmp(a->spec, b->spec) == 0 && strcmp(a->symbol, b->symbol) == 0;
}

static void pack(const char *out, const char *from, const char *key_file) {
    const kgen_bundle_options options = {.size = sizeof options, .key_file = key_file};
    const char *const sources[] = {from};
    kgen_bundle_counts counts;
    kgen_error err = {0};
    if (kgen_bundle_write(&counts, out, sources, 1, &options, &err) != KGEN_OK)
        fail_msg("pack: %s", err.text);
    assert_int_equal(counts.bad, 0);
}

/* By key and by what it was made of. 1: found, and it is `k`; 0: not found; -1: another. */
static int look_as(kgen_cache *cache, const kernel *k, int by_recipe, int how) {
    kgen_entry *entry = NULL;
    int found = 0;
    kgen_status status =
        by_recipe ? kgen_cache_get_made(cache, &entry, &found, &k->source, flags, 1, how, NULL)
                  : kgen_cache_get_as(cache, &entry, &found, &k->entry.key, how, NULL);
    assert_int_equal(status, KGEN_OK);
    int result = !found ? 0 : is_same(entry, &k->entry) ? 1 : -1;
    kgen_entry_free(entry);
    return result;
}

static int look(kgen_cache *cache, const kernel *k, int by_recipe) {
    return look_as(cache, k, by_recipe, 0);
}

/* Whole, or its code alone. */
static int look_somehow(kgen_cache *cache, const kernel *k) {
    return look_as(cache, k, rand() & 1, rand() & 1 ? KGEN_GET_CODE : 0);
}

/* A cache of `layers` alone. */
static kgen_cache *open_layers(const char *layers) {
    kgen_cache *cache;
    setenv("KGEN_CACHE_LAYERS", layers, 1);
    assert_int_equal(kgen_cache_open(&cache, "", NULL), KGEN_OK);
    unsetenv("KGEN_CACHE_LAYERS");
    return cache;
}

static void assert_refused(const char *layers, const char *why) {
    kgen_cache *cache = open_layers(layers);
    kgen_cache_layer layer;
    assert_int_equal(kgen_cache_layer_at(cache, 1, &layer), 1);
    assert_string_equal(layer.kind, "refused");
    if (!strstr(layer.why, why)) fail_msg("\"%s\" does not say \"%s\"", layer.why, why);
    kgen_cache_close(cache);
}

/* ---- files ---------------------------------------------------------------------- */

static uint8_t *read_file(const char *from, size_t *size) {
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void write_file(const char *to, const uint8_t *bytes, size_t size) {
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(to, 0644), 0);
}

/* ---- what was packed is found ------------------------------------------------------ */

static void what_was_packed_is_found(void **state) {
    enum { KERNELS = 40 };
    static kernel kernels[KERNELS + 1];
    kgen_bundle_counts counts;
    (void)state;
    for (int i = 0; i <= KERNELS; i++) make_kernel(&kernels[i], i);
    put(dir, kernels, KERNELS);
    pack(path, dir, NULL);
    pack(other, dir, NULL);
    size_t size, again;
    uint8_t *a = read_file(path, &size), *b = read_file(other, &again);
    assert_int_equal(size, again); /* the same entries are the same bytes */
    assert_memory_equal(a, b, size);
    free(a);
    free(b);
    assert_int_equal(kgen_bundle_verify(&counts, path, NULL), KGEN_OK);
    assert_int_equal(counts.entries, KERNELS);
    kgen_cache *cache = open_layers(path);
    for (int i = 0; i <= KERNELS; i++) {
        assert_int_equal(look(cache, &kernels[i], i & 1), i < KERNELS);
        assert_int_equal(look(cache, &kernels[i], 1), i < KERNELS);
    }
    kgen_cache_stats stats = kgen_cache_get_stats(cache);
    assert_int_equal(stats.hits_bundle, KERNELS); /* then from memory */
    assert_int_equal(stats.published, 0);
    kgen_cache_close(cache);
}

/* Mapped and read are one: the second is for network file systems. */
static void a_bundle_is_read_where_it_is_not_mapped(void **state) {
    kernel k;
    kgen__bundle *bundle;
    (void)state;
    make_kernel(&k, 1);
    put(dir, &k, 1);
    pack(path, dir, NULL);
    for (int access = KGEN__BUNDLE_AUTO; access <= KGEN__BUNDLE_READ; access++) {
        kgen_entry *entry = NULL;
        assert_int_equal(kgen__bundle_open(&bundle, path, NULL, (kgen__bundle_access)access, NULL),
                         KGEN_OK);
        assert_int_equal(kgen__bundle_ops.get(bundle, &entry, &k.entry.key, 0, NULL), KGEN_OK);
        assert_true(entry && is_same(entry, &k.entry));
        kgen_entry_free(entry);
        kgen__bundle_close(bundle);
    }
}

/* Bundle, then folder, then the user's, by the order of the variable. */
static void the_first_layer_counts(void **state) {
    kernel first, second;
    char layers[3 * PATH_BYTES], merged[PATH_BYTES + 16];
    kgen_bundle_counts counts;
    (void)state;
    make_kernel(&first, 1);
    make_kernel(&second, 1); /* the same key, other code */
    second.entry.code_size = first.entry.code_size + 1;
    put(dir, &first, 1);
    pack(path, dir, NULL);
    put(dir, &second, 1);
    snprintf(layers, sizeof layers, "%s::%s", path, dir);
    kgen_cache *cache = open_layers(layers);
    assert_int_equal(look(cache, &first, 0), 1);
    kgen_cache_close(cache);
    snprintf(layers, sizeof layers, "%s:%s", dir, path);
    cache = open_layers(layers);
    assert_int_equal(look(cache, &second, 1), 1);
    assert_int_equal(kgen_cache_get_stats(cache).hits_system, 1);
    kgen_cache_close(cache);
    snprintf(merged, sizeof merged, "%s.merged", dir);
    const char *const sources[] = {path, dir};
    assert_int_equal(kgen_bundle_write(&counts, merged, sources, 2, NULL, NULL), KGEN_OK);
    assert_int_equal(counts.entries, 1);
    cache = open_layers(merged);
    assert_int_equal(look(cache, &first, 0), 1);
    kgen_cache_close(cache);
}

/* ---- damage ------------------------------------------------------------------------- */

/* Nothing that is not what was packed, from a file with any byte changed. */
static void no_damage_is_taken(void **state) {
    enum { KERNELS = 2 };
    kernel kernels[KERNELS];
    kgen_bundle_counts counts;
    size_t size, seen = 0;
    (void)state;
    for (int i = 0; i < KERNELS; i++) make_kernel(&kernels[i], i);
    put(dir, kernels, KERNELS);
    pack(path, dir, NULL);
    uint8_t *bytes = read_file(path, &size);
    for (size_t at = 0; at < size; at++) {
        uint8_t flip = (uint8_t)(1 << rand() % 8);
        bytes[at] ^= flip;
        write_file(other, bytes, size);
        bytes[at] ^= flip;
        kgen_cache *cache = open_layers(other);
        for (int i = 0; i < KERNELS; i++) assert_true(look_somehow(cache, &kernels[i]) >= 0);
        kgen_cache_close(cache);
        seen += kgen_bundle_verify(&counts, other, NULL) == KGEN_E_IO;
    }
    print_message("%zu of %zu flipped bytes are seen, the others are padding\n", seen, size);
    assert_true(seen > size - 2 * KGEN__BUNDLE_ALIGN - KGEN__BUNDLE_HEAD);
    for (size_t cut = 0; cut < size; cut += 1 + (size_t)rand() % 16) {
        write_file(other, bytes, cut);
        assert_refused(other, other);
    }
    free(bytes);
}

/* An index that somebody made up: no slot is empty, and all lead somewhere else. */
static void a_made_up_index_ends(void **state) {
    enum { ROUNDS = 60 };
    kernel k, missing;
    kgen__bundle_head head;
    size_t size;
    (void)state;
    make_kernel(&k, 1);
    make_kernel(&missing, 2);
    put(dir, &k, 1);
    pack(path, dir, NULL);
    uint8_t *bytes = read_file(path, &size);
    assert_null(kgen__bundle_head_take(&head, bytes, size));
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < 1u << head.bits; i++) {
            static const uint64_t numbers[] = {0, 1, 256, 1 << 20, 1ull << 62, UINT64_MAX};
            kgen__slot slot = {.at = numbers[rand() % 6], .size = numbers[1 + rand() % 5]};
            for (size_t b = 0; b < sizeof slot.key; b++) slot.key.bytes[b] = (uint8_t)rand();
            if (i % 5 == 0) slot.key = k.entry.key;
            kgen__slot_put(bytes + head.index_at + i * KGEN__BUNDLE_SLOT, &slot);
        }
        write_file(other, bytes, size);
        kgen_cache *cache = open_layers(other);
        assert_int_equal(look(cache, &missing, round & 1), 0);
        assert_true(look(cache, &k, 0) >= 0);
        kgen_cache_close(cache);
    }
    free(bytes);
}

/* ---- who may have made it -------------------------------------------------------------- */

static void a_pinned_key_asks_for_its_signature(void **state) {
    kernel k;
    char key[PATH_BYTES + 8], second[PATH_BYTES + 8], public_key[65], second_key[65], both[132];
    size_t size;
    (void)state;
    make_kernel(&k, 1);
    put(dir, &k, 1);
    snprintf(key, sizeof key, "%s.key", dir);
    snprintf(second, sizeof second, "%s.key2", dir);
    assert_int_equal(kgen_bundle_key_make(public_key, key, NULL), KGEN_OK);
    assert_int_equal(kgen_bundle_key_make(public_key, key, NULL), KGEN_E_IO); /* never over one */
    pack(other, dir, NULL);
    assert_int_equal(unlink(key), 0);
    assert_int_equal(kgen_bundle_key_make(public_key, key, NULL), KGEN_OK);
    assert_int_equal(kgen_bundle_key_make(second_key, second, NULL), KGEN_OK);
    pack(path, dir, key);
    setenv("KGEN_BUNDLE_KEY", second_key, 1);
    assert_refused(path, "signed by a key that KGEN_BUNDLE_KEY lacks");
    assert_refused(other, "not signed");
    snprintf(both, sizeof both, "%s:%s", second_key, public_key);
    setenv("KGEN_BUNDLE_KEY", both, 1);
    assert_int_equal(chmod(path, 0666), 0); /* its owner and mode do not matter any more */
    kgen_cache *cache = open_layers(path);
    assert_int_equal(look(cache, &k, 0), 1);
    kgen_cache_close(cache);
    uint8_t *bytes = read_file(path, &size);
    for (int i = 0; i < 200; i++) { /* no byte of what is signed can be another */
        size_t at = (size_t)rand() % size;
        bytes[at] ^= 0x10;
        write_file(other, bytes, size);
        bytes[at] ^= 0x10;
        cache = open_layers(other);
        assert_true(look_somehow(cache, &k) >= 0);
        kgen_cache_close(cache);
    }
    bytes[size - 2] ^= 1; /* of the manifest */
    write_file(other, bytes, size);
    assert_refused(other, "its digest does not agree");
    free(bytes);
}

/* Another code or symbol, with every digest of the entry made right. */
static void forge(uint8_t *entry, size_t size, const kgen_key *key, int symbol) {
    kgen_entry head;
    size_t code_at = 0;
    assert_int_equal(kgen__entry_head(&head, &code_at, entry, size, size, key), KGEN__GOOD);
    uint8_t *name = memmem(entry, code_at, head.symbol, strlen(head.symbol)),
            *code = entry + code_at;
    *(symbol ? name : code + (size_t)rand() % head.code_size) ^= 1;
    kgen__code_digest(code + head.code_size, entry, code_at, code, head.code_size);
    size -= KGEN__DIGEST;
    crypto_generichash(entry + size, KGEN__DIGEST, entry, size, NULL, 0);
}

/* A sound entry of the same key that is not the one that was signed. */
static void a_signed_index_vouches_for_code(void **state) {
    kernel k;
    char key[PATH_BYTES + 8], public_key[65];
    kgen__bundle *bundle;
    kgen__slot slot;
    kgen_bundle_counts counts;
    size_t size;
    (void)state;
    make_kernel(&k, 1);
    put(dir, &k, 1);
    snprintf(key, sizeof key, "%s.key", dir);
    assert_int_equal(kgen_bundle_key_make(public_key, key, NULL), KGEN_OK);
    pack(path, dir, key);
    assert_int_equal(kgen__bundle_open(&bundle, path, public_key, KGEN__BUNDLE_AUTO, NULL), 0);
    assert_int_equal(kgen__bundle_look(bundle, &k.entry.key, &slot), 1);
    kgen__bundle_close(bundle);
    for (int i = 0; i < 20; i++) {
        uint8_t *bytes = read_file(path, &size);
        forge(bytes + slot.at, (size_t)slot.size, &k.entry.key, i & 1);
        write_file(other, bytes, size);
        free(bytes);
        setenv("KGEN_BUNDLE_KEY", public_key, 1);
        kgen_cache *cache = open_layers(other);
        for (int n = 0; n < 4; n++)
            assert_int_equal(look_as(cache, &k, n & 1, n & 2 ? KGEN_GET_CODE : 0), 0);
        kgen_cache_close(cache);
        assert_int_equal(kgen_bundle_verify(&counts, other, NULL), KGEN_E_IO);
        assert_int_equal(counts.bad, 1);
        unsetenv("KGEN_BUNDLE_KEY");
        assert_int_equal(kgen_bundle_unpack(&counts, other, dir, 0, NULL), KGEN_OK);
        assert_int_equal(counts.bad, 1);
    }
}

static void a_refused_layer_says_why(void **state) {
    kernel k;
    char linked[PATH_BYTES + 8];
    (void)state;
    make_kernel(&k, 1);
    put(dir, &k, 1);
    pack(path, dir, NULL);
    assert_int_equal(chmod(path, 0664), 0);
    assert_refused(path, "it can be written by others");
    assert_refused("relative.kgb", "an absolute path expected");
    assert_refused("/no/such/bundle", "No such file");
    snprintf(linked, sizeof linked, "%s.pipe", dir);
    assert_int_equal(mkfifo(linked, 0600), 0);
    assert_refused(linked, "no plain file");
    write_file(other, (const uint8_t *)"text", 4);
    assert_refused(other, "no bundle");
    if (geteuid() != 0) return;
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_refused(path, "it belongs to neither this user nor root");
    assert_int_equal(chown(dir, 12345, 12345), 0);
    assert_refused(dir, "it belongs to neither this user nor root");
    assert_int_equal(chown(dir, 0, 0), 0);
}

/* Published for all: another user reads it, and cannot read a private one. */
static void a_shared_folder_is_for_all(void **state) {
    kernel k;
    char layers[PATH_BYTES + 16];
    kgen_bundle_counts counts;
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped, not root\n");
        skip();
    }
    make_kernel(&k, 1);
    put(dir, &k, 1);
    pack(path, dir, NULL);
    assert_int_equal(chmod(folder, 0755), 0);
    for (int shared = 0; shared < 2; shared++) {
        snprintf(layers, sizeof layers, "%s.shared%d", dir, shared);
        assert_int_equal(kgen_bundle_unpack(&counts, path, layers, shared, NULL), KGEN_OK);
        assert_int_equal(counts.entries, 1);
        pid_t child = fork();
        if (child == 0) {
            if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0) _exit(9);
            kgen_cache *cache = open_layers(layers);
            int found = look(cache, &k, 0) == 1 && look(cache, &k, 1) == 1;
            kgen_cache_close(cache);
            _exit(found);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), shared);
    }
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    srand((unsigned)test_seed());
#define TEST(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        TEST(what_was_packed_is_found),
        TEST(a_bundle_is_read_where_it_is_not_mapped),
        TEST(the_first_layer_counts),
        TEST(no_damage_is_taken),
        TEST(a_made_up_index_ends),
        TEST(a_pinned_key_asks_for_its_signature),
        TEST(a_signed_index_vouches_for_code),
        TEST(a_refused_layer_says_why),
        TEST(a_shared_folder_is_for_all),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

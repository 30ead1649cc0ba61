/* Files that another machine wrote. Lengths and digests are made right, so that what is behind
 * them is reached: whoever makes a file up can do that too. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include <kgen/kgen.h>
#include <sodium.h>

#include "cache/bundle_parts.h"
#include "cache/remote.h"
#include "compile/unit.h"
#include "runtime/capture/capture_format.h"

enum { DIGEST = 32, SIZE_AT = 16, KEY_AT = 24 };

/* Of an entry and of a capture: 8 bytes, two u32, the size, ..., the digest. */
static void make_right(uint8_t *bytes, size_t size) {
    for (int i = 0; i < 8; i++) bytes[SIZE_AT + i] = (uint8_t)(size >> (8 * i));
    crypto_generichash(bytes + size - DIGEST, DIGEST, bytes, size - DIGEST, NULL, 0);
}

static uint8_t *copy_of(const uint8_t *data, size_t size) {
    uint8_t *bytes = malloc(size ? size : 1);
    memcpy(bytes, data, size);
    return bytes;
}

/* ---- entries ------------------------------------------------------------------------- */

/* What can be stored is read again as what it was. */
static void check_entry(const kgen_entry *entry) {
    kgen_error err;
    kgen_entry *again = NULL, *copy = kgen__entry_copy(entry, 0);
    uint8_t *bytes;
    size_t size;
    if (kgen__entry_check(entry, &err) == KGEN_OK) {
        if (kgen__entry_encode(&bytes, &size, entry, &err) != KGEN_OK ||
            kgen__entry_decode(&again, bytes, size, &entry->key) != KGEN__GOOD ||
            again->code_size != copy->code_size)
            fuzz_wrong("an entry written and read", entry->spec);
        free(bytes);
    }
    kgen_entry_free(again);
    kgen_entry_free(copy);
}

static int fetch(void *from, void *out, size_t at, size_t size) {
    memcpy(out, (const uint8_t *)from + at, size);
    return 1;
}

void fuzz_entry(const uint8_t *data, size_t size) {
    kgen_key key;
    kgen_entry *entry = NULL, *code = NULL, head;
    size_t code_at, got = size < KGEN__HEAD_MAX ? size : KGEN__HEAD_MAX;
    if (size < KEY_AT + sizeof key + DIGEST) return;
    uint8_t *bytes = copy_of(data, size);
    make_right(bytes, size);
    memcpy(&key, bytes + KEY_AT, sizeof key);
    if (kgen__entry_head(&head, &code_at, bytes, got, size, &key) == KGEN__GOOD &&
        head.code_size <= size && code_at + head.code_size + 2 * DIGEST <= size) {
        const uint8_t *code_bytes = bytes + code_at;
        kgen__code_digest(bytes + code_at + head.code_size, bytes, code_at, code_bytes,
                          head.code_size);
        make_right(bytes, size);
    }
    kgen__verdict verdict = kgen__entry_decode(&entry, bytes, size, &key);
    if (verdict == KGEN__GOOD &&
        (kgen__entry_fetch(&code, fetch, bytes, size, &key, NULL) != KGEN__GOOD ||
         memcmp(code->code, entry->code, entry->code_size) != 0))
        fuzz_wrong("the code of an entry", entry->spec);
    kgen_entry_free(code);
    code = NULL;
    kgen__entry_fetch(&code, fetch, bytes, size, &key, NULL);
    kgen_entry_free(code);
    if ((verdict == KGEN__GOOD) != (entry != NULL)) fuzz_wrong("verdict of an entry", "");
    if (entry) check_entry(entry);
    kgen_entry_free(entry);
    free(bytes);
}

/* ---- bundles ------------------------------------------------------------------------- */

static void read_bundle(kgen__bundle *bundle) {
    kgen_error err;
    kgen__slot slot, found;
    uint8_t *bytes;
    for (uint64_t i = 0; i < 64 && kgen__bundle_slot(bundle, i, &slot); i++) {
        kgen_entry *entry = NULL;
        kgen_key key;
        kgen__bundle_look(bundle, &slot.key, &found);
        kgen__bundle_ops.find(bundle, &key, &slot.key);
        kgen__bundle_ops.get(bundle, &entry, &slot.key, i & 1, &err);
        kgen_entry_free(entry);
        if (kgen__bundle_bytes(bundle, &slot, &bytes, &err) == KGEN_OK) free(bytes);
    }
    kgen__bundle_check(bundle, &err);
}

/* The first byte says how it is read. */
void fuzz_bundle(const uint8_t *data, size_t size) {
    kgen__bundle *bundle;
    kgen_error err;
    kgen__bundle_head head;
    if (size < 1 + KGEN__BUNDLE_HEAD) return;
    uint8_t *bytes = copy_of(data + 1, size - 1);
    kgen__bundle_access access = data[0] & 1 ? KGEN__BUNDLE_READ : KGEN__BUNDLE_AUTO;
    if (!kgen__bundle_head_take(&head, bytes, size - 1)) {
        crypto_generichash_state state;
        kgen__bundle_digest_head(&state, &head);
        crypto_generichash_update(&state, bytes + head.index_at, size - 1 - head.index_at);
        crypto_generichash_final(&state, head.digest, sizeof head.digest);
        kgen__bundle_head_put(bytes, &head);
    }
    const char *path = fuzz_file(bytes, size - 1);
    if (kgen__bundle_open(&bundle, path, NULL, access, &err) == KGEN_OK) {
        read_bundle(bundle);
        kgen__bundle_close(bundle);
    }
    free(bytes);
}

/* ---- captures ------------------------------------------------------------------------ */

void fuzz_capture(const uint8_t *data, size_t size) {
    kgen_capture *capture;
    kgen_error err;
    if (size < KGEN__CAPTURE_FIXED + DIGEST) return;
    uint8_t *bytes = copy_of(data, size);
    make_right(bytes, size);
    if (kgen_capture_load(&capture, fuzz_file(bytes, size), &err) == KGEN_OK)
        kgen_capture_free(capture);
    free(bytes);
}

/* ---- code objects: a byte says of which target and kernel ------------------------------ */

void fuzz_object(const uint8_t *data, size_t size) {
    static const char *const names[] = {"gfx942", "sm_90", "cpu:cdna3", "gfx1100"};
    static const char *const symbols[] = {"kg_draft_lens", "kernel", "kg_cache_locs_p1",
                                          "kg_assign_locs"};
    const kgen_target *target;
    kgen_resources resources;
    kgen_error err;
    if (size < 1) return;
    uint8_t *bytes = copy_of(data + 1, size - 1);
    if (kgen_target_find(&target, names[data[0] & 3], &err) != KGEN_OK)
        fuzz_wrong("no target", names[data[0] & 3]);
    if (kgen__inspect(&resources, target, symbols[data[0] >> 2 & 3], 256, 0, bytes, size - 1,
                      &err) == KGEN_OK)
        kgen__gate(&resources, target, 256, 0, 0, &err);
    free(bytes);
}

/* ---- what a server says --------------------------------------------------------------- */

void fuzz_remote(const uint8_t *data, size_t size) {
    kgen__answer answer, again;
    uint8_t text[KGEN__ANSWER_MAX];
    uint8_t *bytes = copy_of(data, size);
    if (kgen__answer_take(&answer, bytes, size)) {
        size_t length = kgen__answer_put(text, &answer);
        if (answer.size > KGEN__FILE_MAX || !kgen__answer_take(&again, text, length) ||
            again.size != answer.size || memcmp(again.digest, answer.digest, sizeof again.digest))
            fuzz_wrong("an answer written and read", "");
    }
    free(bytes);
}

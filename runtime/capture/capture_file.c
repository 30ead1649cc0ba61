/* The file of a capture, all numbers little-endian:
 *
 *   magic[8]  version u32  header size u32  file size u64
 *   header: JSON, see docs/capture.md
 *   blobs: zstd frames, in the order of the header
 *   BLAKE2b-256 of everything before
 *
 * Magic, version, file size and the digest at the end never move. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#include <kgen/kgen.h>
#include <sodium.h>

#include "runtime/args_rows.h"
#include "capture_parts.h"
#include "capture_format.h"

extern char **environ;

/* ---- header ------------------------------------------------------------------- */

static json_t *place_json(const kgen_capture_place *place) {
    return json_pack("[iI]", (int)place->region, (json_int_t)place->offset);
}

static json_t *sizes_json(const int64_t *sizes, int32_t count) {
    json_t *list = json_array();
    for (int32_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer((json_int_t)sizes[i]));
    return list;
}

/* An empty one may have no data: its sizes are said, and no place. */
static json_t *tensors_json(const kgen_args *args, const kgen__regions *regions) {
    json_t *all = json_object();
    for (int i = 0; i < kgen_args_count(args); i++) {
        const kgen_tensor *t = kgen_args_tensor(args, i);
        int is_placed = regions->place[i].region >= 0;
        if (!is_placed && (t->rank < 1 || kgen__tensor_elements(t) != 0)) continue;
        json_t *row =
            json_pack("{s:s, s:s, s:o, s:o}", "dtype", kgen_dtype_name(t->dtype), "layout",
                      kgen_layout_name(t->layout), "shape", sizes_json(t->shape, t->rank), "stride",
                      sizes_json(t->stride, t->rank));
        if (is_placed) json_object_set_new(row, "place", place_json(&regions->place[i]));
        json_object_set_new(all, kgen_args_name(args, i), row);
    }
    return all;
}

/* Bits, so that a float is what it was. */
static json_t *numbers_json(const kgen_args *args) {
    json_t *all = json_object();
    for (const kgen__number_row *n = kgen__args_rows_in(args)->numbers; n->name; n++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)args->any + n->offset, n->size); /* little-endian hosts */
        json_object_set_new(all, n->name, json_integer((json_int_t)bits));
    }
    return all;
}

static json_t *regions_json(const kgen__regions *regions) {
    json_t *all = json_array();
    for (size_t i = 0; i < regions->count; i++) {
        const kgen__region *r = &regions->list[i];
        json_array_append_new(all,
                              json_pack("{s:i, s:i, s:i}", "phase", (int)(r->start % KGEN__PHASE),
                                        "before", (int)r->before, "after", (int)r->after));
    }
    return all;
}

static json_t *addresses_json(const kgen__regions *regions) {
    json_t *all = json_array();
    for (size_t i = 0; i < regions->address_count; i++)
        json_array_append_new(all, json_pack("{s:o, s:o}", "word",
                                             place_json(&regions->addresses[i].word), "at",
                                             place_json(&regions->addresses[i].at)));
    return all;
}

static json_t *blobs_json(const kgen__blobs *blobs) {
    json_t *all = json_array();
    for (size_t i = 0; i < blobs->count; i++)
        json_array_append_new(all, json_pack("{s:I, s:I}", "size", (json_int_t)blobs->list[i].size,
                                             "packed", (json_int_t)blobs->list[i].packed_size));
    return all;
}

/* Text that is not UTF-8 is left out: JSON could not hold it. */
static json_t *environment_json(void) {
    json_t *all = json_object();
    for (char **entry = environ; *entry; entry++) {
        char name[64];
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "KGEN_", 5) != 0 || length >= sizeof name) continue;
        memcpy(name, *entry, length);
        name[length] = 0;
        json_t *text = (*entry)[length] ? json_string(*entry + length + 1) : NULL;
        if (text) json_object_set_new(all, name, text);
    }
    return all;
}

static char *header_text(const kgen_kernel *kernel, const kgen_args *args,
                         const kgen__regions *regions, const kgen__blobs *blobs) {
    char line[KGEN_SPEC_LINE_MAX], symbol[KGEN_SYMBOL_MAX], key[KGEN_KEY_HEX];
    const kgen_context *ctx = kernel->ctx;
    kgen_spec_print(line, &kernel->spec);
    kgen_spec_symbol(symbol, &kernel->spec);
    kgen_key_hex(key, &kernel->key);
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "kgen",
        KGEN_VERSION, "spec", line, "symbol", symbol, "key", key, "target", ctx->target->name,
        "device", ctx->api->label(ctx->device), "toolchain", kernel->toolchain, "time",
        (json_int_t)(time(NULL) > 0 ? time(NULL) : 0), "environment", environment_json(), "numbers",
        numbers_json(args), "tensors", tensors_json(args, regions), "regions",
        regions_json(regions), "addresses", addresses_json(regions), "blobs", blobs_json(blobs));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

/* ---- writing ------------------------------------------------------------------- */

typedef struct writer {
    int fd, failed; /* failed: errno */
    crypto_generichash_state digest;
} writer;

static void put(writer *out, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    crypto_generichash_update(&out->digest, at, size);
    while (size > 0 && !out->failed) {
        ssize_t done = write(out->fd, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            out->failed = errno;
            return;
        }
        at += done;
        size -= (size_t)done;
    }
}

static void put_number(writer *out, uint64_t number, int width) {
    uint8_t bytes[8];
    for (int i = 0; i < width; i++) bytes[i] = (uint8_t)(number >> (8 * i));
    put(out, bytes, (size_t)width);
}

static void put_all(writer *out, const char *header, const kgen__blobs *blobs) {
    static const uint8_t magic[KGEN__CAPTURE_MAGIC_BYTES] = KGEN__CAPTURE_MAGIC;
    uint8_t digest[KGEN__DIGEST_BYTES];
    size_t size = KGEN__CAPTURE_FIXED + strlen(header) + KGEN__DIGEST_BYTES;
    for (size_t i = 0; i < blobs->count; i++) size += blobs->list[i].packed_size;
    crypto_generichash_init(&out->digest, NULL, 0, KGEN__DIGEST_BYTES);
    put(out, magic, sizeof magic);
    put_number(out, KGEN__CAPTURE_VERSION, 4);
    put_number(out, strlen(header), 4);
    put_number(out, size, 8);
    put(out, header, strlen(header));
    for (size_t i = 0; i < blobs->count; i++)
        put(out, blobs->list[i].packed, blobs->list[i].packed_size);
    crypto_generichash_final(&out->digest, digest, sizeof digest);
    put(out, digest, sizeof digest);
}

/* Activations are nobody else's business: 0600. */
static int write_file(const char *path, const char *header, const kgen__blobs *blobs) {
    writer out = {.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (out.fd < 0) return errno;
    put_all(&out, header, blobs);
    if (!out.failed && fsync(out.fd) != 0) out.failed = errno;
    if (close(out.fd) != 0 && !out.failed) out.failed = errno;
    if (out.failed) unlink(path);
    return out.failed;
}

kgen_status kgen__capture_write(const char *path, const kgen_kernel *kernel, const kgen_args *args,
                                const kgen__regions *regions, const kgen__blobs *blobs,
                                kgen_error *err) {
    char temp[KGEN__CAPTURE_PATH_MAX + 8];
    char *header = header_text(kernel, args, regions, blobs);
    if (!header) return kgen_fail(err, KGEN_E_NOMEM, "capture: no memory for a header");
    snprintf(temp, sizeof temp, "%s.part", path);
    int reason = write_file(temp, header, blobs);
    free(header);
    if (!reason && rename(temp, path) != 0) {
        reason = errno;
        unlink(temp);
    }
    return reason ? kgen_fail(err, KGEN_E_IO, "%.600s: %s", path, strerror(reason)) : KGEN_OK;
}

/* A capture from its file, and on a device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <sodium.h>
#include <zstd.h>

#include "runtime/args_rows.h"
#include "capture_parts.h"
#include "capture_format.h"
#include "runtime/checks.h"

/* ---- file ------------------------------------------------------------------------ */

typedef struct file {
    const char *path;
    uint8_t *bytes;
    size_t size, header_size;
} file;

static kgen_status damaged(const file *in, const char *what, kgen_error *err) {
    return kgen_fail(err, KGEN_E_IO, "%.600s: damaged capture: %s", in->path, what);
}

#define SOUND(condition, what)                           \
    do {                                                 \
        if (!(condition)) return damaged(in, what, err); \
    } while (0)

static uint64_t number_at(const uint8_t *at, int width) {
    uint64_t number = 0;
    for (int i = 0; i < width; i++) number |= (uint64_t)at[i] << (8 * i);
    return number;
}

static int read_all(int fd, uint8_t *bytes, size_t size) {
    while (size > 0) {
        ssize_t got = read(fd, bytes, size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? errno : ENODATA;
        bytes += got;
        size -= (size_t)got;
    }
    return 0;
}

static kgen_status read_open(file *in, int fd, kgen_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return kgen_fail(err, KGEN_E_IO, "%.600s: %s", in->path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size < KGEN__CAPTURE_FIXED + KGEN__DIGEST_BYTES ||
        (uint64_t)st.st_size > 2 * KGEN__CAPTURE_BYTES_MAX)
        return kgen_fail(err, KGEN_E_IO, "%.600s: no capture", in->path);
    in->size = (size_t)st.st_size;
    in->bytes = malloc(in->size);
    if (!in->bytes) return kgen_fail(err, KGEN_E_NOMEM, "%.600s: no %zu bytes", in->path, in->size);
    int reason = read_all(fd, in->bytes, in->size);
    return reason ? kgen_fail(err, KGEN_E_IO, "%.600s: %s", in->path, strerror(reason)) : KGEN_OK;
}

static kgen_status read_file(file *in, kgen_error *err) {
    int fd = open(in->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* no pipe is waited for */
    if (fd < 0) return kgen_fail(err, KGEN_E_IO, "%.600s: %s", in->path, strerror(errno));
    kgen_status status = read_open(in, fd, err);
    close(fd);
    return status;
}

static kgen_status check_file(file *in, kgen_error *err) {
    static const uint8_t magic[KGEN__CAPTURE_MAGIC_BYTES] = KGEN__CAPTURE_MAGIC;
    uint8_t digest[KGEN__DIGEST_BYTES];
    const uint8_t *at = in->bytes + sizeof magic;
    size_t body = in->size - KGEN__DIGEST_BYTES;
    if (memcmp(in->bytes, magic, sizeof magic) != 0)
        return kgen_fail(err, KGEN_E_IO, "%.600s: no capture", in->path);
    uint64_t version = number_at(at, 4);
    SOUND(number_at(at + 8, 8) == in->size, "its length is not what it says");
    crypto_generichash(digest, sizeof digest, in->bytes, body, NULL, 0);
    SOUND(memcmp(digest, in->bytes + body, sizeof digest) == 0, "its digest does not agree");
    if (version != KGEN__CAPTURE_VERSION)
        return kgen_fail(err, KGEN_E_IO, "%.600s: a capture of format %llu, this version reads %d",
                         in->path, (unsigned long long)version, KGEN__CAPTURE_VERSION);
    in->header_size = (size_t)number_at(at + 4, 4);
    SOUND(in->header_size <= body - KGEN__CAPTURE_FIXED &&
              in->header_size <= KGEN__CAPTURE_HEADER_MAX,
          "header size");
    return KGEN_OK;
}

/* ---- header ---------------------------------------------------------------------- */

/* The digest keeps chance away; what follows keeps a file that was made up from
 * doing more than failing. */
static kgen_status take_text(char *out, size_t size, const file *in, const json_t *root,
                             const char *key, kgen_error *err) {
    const char *text = json_string_value(json_object_get(root, key));
    SOUND(text && strlen(text) < size, key);
    memcpy(out, text, strlen(text) + 1);
    return KGEN_OK;
}

static int take_integer(int64_t *out, const json_t *value, int64_t low, int64_t high) {
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= low && *out <= high;
}

static kgen_status take_environment(kgen_capture *c, const file *in, json_t *root,
                                    kgen_error *err) {
    json_t *all = json_object_get(root, "environment"), *value;
    const char *name;
    size_t size = 1, used = 0;
    SOUND(json_is_object(all), "environment");
    json_object_foreach(all, name, value) {
        SOUND(json_is_string(value), "environment");
        size += strlen(name) + json_string_length(value) + 2;
    }
    c->environment = calloc(1, size);
    if (!c->environment) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    json_object_foreach(all, name, value)
        used += (size_t)snprintf(c->environment + used, size - used, "%s=%s\n", name,
                                 json_string_value(value));
    return KGEN_OK;
}

static kgen_status take_about(kgen_capture *c, const file *in, json_t *root, kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX], key[KGEN_KEY_HEX];
    kgen_error why;
    int64_t when;
    KGEN_TRY(take_text(line, sizeof line, in, root, "spec", err));
    KGEN_TRY(take_text(c->symbol, sizeof c->symbol, in, root, "symbol", err));
    KGEN_TRY(take_text(c->target, sizeof c->target, in, root, "target", err));
    KGEN_TRY(take_text(c->device, sizeof c->device, in, root, "device", err));
    KGEN_TRY(take_text(c->toolchain, sizeof c->toolchain, in, root, "toolchain", err));
    KGEN_TRY(take_text(c->version, sizeof c->version, in, root, "kgen", err));
    KGEN_TRY(take_text(key, sizeof key, in, root, "key", err));
    SOUND(kgen_key_parse(&c->key, key, &why) == KGEN_OK, "key");
    SOUND(take_integer(&when, json_object_get(root, "time"), 0, INT64_MAX), "time");
    c->unix_time = (uint64_t)when;
    if (kgen_spec_parse(&c->spec, line, &why) != KGEN_OK)
        return kgen_fail(err, why.status, "%.300s: %.600s", in->path, why.text);
    kgen_args_init(&c->args, &c->room, &c->spec);
    return take_environment(c, in, root, err);
}

/* ---- blobs and regions ------------------------------------------------------------- */

static kgen_status unpack(uint8_t **out, const file *in, const uint8_t *packed, size_t packed_size,
                          size_t size, kgen_error *err) {
    SOUND(ZSTD_getFrameContentSize(packed, packed_size) == size, "size of a blob");
    *out = malloc(size ? size : 1);
    if (!*out) return kgen_fail(err, KGEN_E_NOMEM, "%.600s: no %zu bytes", in->path, size);
    SOUND(ZSTD_decompress(*out, size, packed, packed_size) == size, "a blob");
    return KGEN_OK;
}

/* A few bytes of zstd can say that they are gigabytes: what a capture may not have taken is
 * not unpacked either. Each byte may be there twice, before the launch and after it. */
static kgen_status check_total(const file *in, const json_t *list, kgen_error *err) {
    uint64_t max, total = 0;
    size_t i;
    json_t *row;
    KGEN_TRY(kgen__capture_max(&max, err));
    json_array_foreach(list, i, row) {
        int64_t size;
        SOUND(take_integer(&size, json_object_get(row, "size"), 0, KGEN__CAPTURE_BYTES_MAX * 2),
              "blobs");
        total += (uint64_t)size;
        if (total / 2 <= max) continue;
        return kgen_fail(err, KGEN_E_IO,
                         "%.600s: more than %llu bytes of a launch; KGEN_CAPTURE_MAX raises that",
                         in->path, (unsigned long long)max);
    }
    return KGEN_OK;
}

/* sizes: of the blobs, by the caller. */
static kgen_status take_blobs(kgen_capture *c, size_t *sizes, const file *in, const json_t *list,
                              kgen_error *err) {
    const uint8_t *at = in->bytes + KGEN__CAPTURE_FIXED + in->header_size;
    size_t left = in->size - KGEN__CAPTURE_FIXED - in->header_size - KGEN__DIGEST_BYTES;
    KGEN_TRY(check_total(in, list, err));
    for (size_t i = 0; i < c->blob_count; i++) {
        const json_t *row = json_array_get(list, i);
        int64_t size, packed;
        take_integer(&size, json_object_get(row, "size"), 0, INT64_MAX); /* checked before */
        SOUND(take_integer(&packed, json_object_get(row, "packed"), 1, (int64_t)left), "blobs");
        KGEN_TRY(unpack(&c->blobs[i], in, at, (size_t)packed, (size_t)size, err));
        sizes[i] = (size_t)size;
        at += packed;
        left -= (size_t)packed;
    }
    SOUND(left == 0, "bytes behind the last blob");
    return KGEN_OK;
}

static kgen_status take_regions(kgen_capture *c, const size_t *sizes, const file *in,
                                const json_t *list, kgen_error *err) {
    int64_t last = (int64_t)c->blob_count - 1;
    for (size_t i = 0; i < c->region_count; i++) {
        const json_t *row = json_array_get(list, i);
        int64_t before, after, phase;
        SOUND(take_integer(&before, json_object_get(row, "before"), 0, last), "regions");
        SOUND(take_integer(&after, json_object_get(row, "after"), 0, last), "regions");
        SOUND(take_integer(&phase, json_object_get(row, "phase"), 0, KGEN__PHASE - 1), "regions");
        SOUND(sizes[before] == sizes[after], "regions");
        c->regions[i] =
            (kgen_capture_region){sizes[before], (size_t)phase, c->blobs[before], c->blobs[after]};
    }
    return KGEN_OK;
}

static kgen_status take_memory(kgen_capture *c, const file *in, const json_t *root,
                               kgen_error *err) {
    const json_t *blobs = json_object_get(root, "blobs"),
                 *regions = json_object_get(root, "regions");
    SOUND(json_is_array(blobs) && json_array_size(blobs) <= 2 * KGEN__REGIONS_MAX, "blobs");
    SOUND(json_is_array(regions) && json_array_size(regions) <= KGEN__REGIONS_MAX, "regions");
    size_t count = json_array_size(blobs), region_count = json_array_size(regions);
    size_t *sizes = calloc(count + 1, sizeof *sizes);
    c->blobs = calloc(count + 1, sizeof *c->blobs);
    c->regions = calloc(region_count + 1, sizeof *c->regions);
    kgen_status status = KGEN_OK;
    if (!sizes || !c->blobs || !c->regions)
        status = kgen_fail(err, KGEN_E_NOMEM, "%.600s: out of memory", in->path);
    if (status == KGEN_OK) {
        c->blob_count = count;
        c->region_count = region_count;
        status = take_blobs(c, sizes, in, blobs, err);
    }
    if (status == KGEN_OK) status = take_regions(c, sizes, in, regions, err);
    free(sizes);
    return status;
}

/* ---- tensors ----------------------------------------------------------------------- */

/* low, end: of what lies there, relative to the place. */
static int take_place(kgen_capture_place *out, const kgen_capture *c, const json_t *pair,
                      kgen__extent extent) {
    int64_t region, offset;
    if (!json_is_array(pair) || json_array_size(pair) != 2 ||
        !take_integer(&region, json_array_get(pair, 0), 0, (int64_t)c->region_count - 1) ||
        !take_integer(&offset, json_array_get(pair, 1), 0, INT64_MAX))
        return 0;
    *out = (kgen_capture_place){(int32_t)region, (size_t)offset};
    int64_t size = (int64_t)c->regions[region].size;
    return offset <= size && offset + extent.low >= 0 && extent.end <= size - offset;
}

static int find_name(const char *(*name_of)(int), int count, const json_t *text) {
    const char *name = json_string_value(text);
    for (int i = 0; name && i < count; i++)
        if (strcmp(name_of(i), name) == 0) return i;
    return -1;
}

static const char *dtype_at(int i) { return kgen_dtype_name((kgen_dtype)i); }
static const char *layout_at(int i) { return kgen_layout_name((kgen_layout)i); }

static int take_sizes(int64_t *out, int32_t *rank, const json_t *list) {
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count < 1 || count > KGEN_TENSOR_RANK_MAX) return 0;
    for (size_t i = 0; i < count; i++)
        if (!take_integer(&out[i], json_array_get(list, i), INT64_MIN, INT64_MAX)) return 0;
    *rank = (int32_t)count;
    return 1;
}

static kgen_status take_tensor(kgen_capture *c, int index, const file *in, const json_t *row,
                               kgen_error *err) {
    enum { DTYPES = KGEN_DTYPE_I4 + 1, LAYOUTS = KGEN_CONV_DS + 1 };
    const char *name = kgen_args_name(&c->args, index);
    kgen_tensor *t = kgen_args_tensor(&c->args, index);
    kgen__extent extent;
    int32_t strides;
    c->place[index].region = -1;
    if (!row) return KGEN_OK;
    int dtype = find_name(dtype_at, DTYPES, json_object_get(row, "dtype"));
    int layout = find_name(layout_at, LAYOUTS, json_object_get(row, "layout"));
    SOUND(dtype >= 0 && layout >= 0, name);
    t->dtype = (kgen_dtype)dtype;
    t->layout = (kgen_layout)layout;
    SOUND(take_sizes(t->shape, &t->rank, json_object_get(row, "shape")) &&
              take_sizes(t->stride, &strides, json_object_get(row, "stride")) && strides == t->rank,
          name);
    if (!json_object_get(row, "place")) {
        SOUND(kgen__tensor_elements(t) == 0, name);
        return KGEN_OK;
    }
    SOUND(kgen__tensor_extent(&extent, name, t, NULL) == KGEN_OK, name);
    SOUND(take_place(&c->place[index], c, json_object_get(row, "place"), extent), name);
    return KGEN_OK;
}

static kgen_status take_args(kgen_capture *c, const file *in, const json_t *root, kgen_error *err) {
    const json_t *numbers = json_object_get(root, "numbers");
    const json_t *tensors = json_object_get(root, "tensors");
    int count = kgen_args_count(&c->args);
    for (const kgen__number_row *n = kgen__args_rows_of(&c->spec)->numbers; n->name; n++) {
        int64_t bits;
        SOUND(take_integer(&bits, json_object_get(numbers, n->name), INT64_MIN, INT64_MAX),
              n->name);
        memcpy((char *)c->args.any + n->offset, &bits, n->size); /* little-endian hosts */
    }
    SOUND(json_is_object(tensors), "tensors");
    for (int i = 0; i < count; i++)
        KGEN_TRY(take_tensor(c, i, in, json_object_get(tensors, kgen_args_name(&c->args, i)), err));
    return KGEN_OK;
}

static kgen_status take_addresses(kgen_capture *c, const file *in, const json_t *root,
                                  kgen_error *err) {
    const json_t *list = json_object_get(root, "addresses");
    SOUND(json_is_array(list) && json_array_size(list) <= KGEN__ADDRESSES_MAX, "addresses");
    c->addresses = calloc(json_array_size(list) + 1, sizeof *c->addresses);
    if (!c->addresses) return kgen_fail(err, KGEN_E_NOMEM, "%.600s: out of memory", in->path);
    c->address_count = json_array_size(list);
    for (size_t i = 0; i < c->address_count; i++) {
        const json_t *row = json_array_get(list, i);
        kgen_capture_address *a = &c->addresses[i];
        kgen__extent word = {0, sizeof(int64_t)}, nothing = {0, 0};
        SOUND(take_place(&a->word, c, json_object_get(row, "word"), word) &&
                  take_place(&a->at, c, json_object_get(row, "at"), nothing),
              "addresses");
    }
    return KGEN_OK;
}

static kgen_status decode(kgen_capture *c, const file *in, kgen_error *err) {
    json_t *root = json_loadb((const char *)in->bytes + KGEN__CAPTURE_FIXED, in->header_size,
                              JSON_REJECT_DUPLICATES, NULL);
    SOUND(json_is_object(root), "header");
    kgen_status status = take_about(c, in, root, err);
    if (status == KGEN_OK) status = take_memory(c, in, root, err);
    if (status == KGEN_OK) status = take_args(c, in, root, err);
    if (status == KGEN_OK) status = take_addresses(c, in, root, err);
    json_decref(root);
    return status;
}

kgen_status kgen_capture_load(kgen_capture **out, const char *path, kgen_error *err) {
    file in = {.path = path};
    kgen_capture *c = calloc(1, sizeof *c);
    if (!c) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    kgen_status status = read_file(&in, err);
    if (status == KGEN_OK) status = check_file(&in, err);
    if (status == KGEN_OK) status = decode(c, &in, err);
    free(in.bytes);
    if (status == KGEN_OK)
        *out = c;
    else
        kgen_capture_free(c);
    return status;
}

void kgen_capture_free(kgen_capture *c) {
    if (!c) return;
    for (size_t i = 0; i < c->blob_count; i++) free(c->blobs[i]);
    free(c->blobs);
    free(c->regions);
    free(c->addresses);
    free(c->environment);
    free(c);
}

/* ---- what to launch ------------------------------------------------------------------ */

void kgen_capture_spec(kgen_spec *out, const kgen_capture *capture, const kgen_target *target,
                       int keep_tuning) {
    *out = capture->spec;
    if (keep_tuning > 0) return;
    if (keep_tuning == 0 && strcmp(target->name, capture->target) == 0) return;
    kgen_spec_open_tuning(out);
}

void kgen_capture_args(kgen_args *out, kgen_args_room *room, const kgen_capture *capture,
                       void *const *base) {
    kgen_args_copy(out, room, &capture->args);
    for (int i = 0; i < kgen_args_count(out); i++) {
        const kgen_capture_place *place = &capture->place[i];
        if (place->region < 0) continue;
        kgen_args_tensor(out, i)->data = (char *)base[place->region] + place->offset;
    }
}

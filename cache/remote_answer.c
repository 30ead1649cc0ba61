/* As much of the protocol buffers of bazel's remote execution API as names one file:
 *
 *   ActionResult { output_files = 2: OutputFile { path = 1, digest = 2: Digest { hash = 1: hex,
 *                                                                       size_bytes = 2 } } } */
#include "remote.h"

#include <string.h>

#include <sodium.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, HEX = 2 * KGEN__SHA256 };

#define FILE_NAME "kernel.kgen"

/* ---- writing ------------------------------------------------------------------------ */

static uint8_t *put_varint(uint8_t *at, uint64_t number) {
    for (; number > 0x7f; number >>= 7) *at++ = (uint8_t)(number | 0x80);
    *at++ = (uint8_t)number;
    return at;
}

static uint8_t *put_bytes(uint8_t *at, int field, const void *bytes, size_t size) {
    at = put_varint(at, (uint64_t)field << 3 | BYTES);
    at = put_varint(at, size);
    memcpy(at, bytes, size);
    return at + size;
}

size_t kgen__answer_put(uint8_t out[KGEN__ANSWER_MAX], const kgen__answer *answer) {
    char hex[HEX + 1];
    uint8_t digest[HEX + 32], file[sizeof digest + 64];
    sodium_bin2hex(hex, sizeof hex, answer->digest, sizeof answer->digest);
    uint8_t *at = put_bytes(digest, 1, hex, HEX);
    at = put_varint(put_varint(at, 2 << 3 | VARINT), answer->size);
    size_t digest_size = (size_t)(at - digest);
    at = put_bytes(file, 1, FILE_NAME, strlen(FILE_NAME));
    at = put_bytes(at, 2, digest, digest_size);
    return (size_t)(put_bytes(out, 2, file, (size_t)(at - file)) - out);
}

/* ---- reading: nothing is believed ----------------------------------------------------- */

typedef struct message {
    const uint8_t *at, *end;
} message;

/* 0: no number there. */
static int take_varint(message *in, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return 1;
    }
    return 0;
}

typedef struct field {
    uint64_t number, varint;
    int type;
    message bytes;
} field;

/* 0: the end, or no field. */
static int take_field(message *in, field *out) {
    uint64_t tag, length = 0;
    if (in->at == in->end || !take_varint(in, &tag)) return 0;
    out->number = tag >> 3;
    out->type = (int)(tag & 7);
    if (out->type == VARINT) return take_varint(in, &out->varint);
    if (out->type == FIXED64) length = 8;
    if (out->type == FIXED32) length = 4;
    if (out->type == BYTES && !take_varint(in, &length)) return 0;
    if (!length && out->type != BYTES) return 0; /* a type that ended long ago */
    if (length > (uint64_t)(in->end - in->at)) return 0;
    out->bytes = (message){in->at, in->at + length};
    in->at += length;
    return 1;
}

/* 1: *out is the first field of bytes with this number. */
static int find_bytes(message in, uint64_t number, message *out) {
    field f;
    while (take_field(&in, &f)) {
        if (f.number != number || f.type != BYTES) continue;
        *out = f.bytes;
        return 1;
    }
    return 0;
}

static int take_digest(kgen__answer *out, message digest) {
    message hash;
    field f;
    size_t got;
    int has_size = 0;
    if (!find_bytes(digest, 1, &hash) || hash.end - hash.at != HEX ||
        sodium_hex2bin(out->digest, sizeof out->digest, (const char *)hash.at, HEX, NULL, &got,
                       NULL) != 0 ||
        got != sizeof out->digest)
        return 0;
    while (take_field(&digest, &f)) {
        if (f.number != 2 || f.type != VARINT) continue;
        out->size = f.varint;
        has_size = 1;
    }
    return has_size && out->size > 0 && out->size <= KGEN__FILE_MAX;
}

int kgen__answer_take(kgen__answer *out, const uint8_t *bytes, size_t size) {
    message all = {bytes, bytes + size}, file, digest;
    return find_bytes(all, 2, &file) && find_bytes(file, 2, &digest) && take_digest(out, digest);
}

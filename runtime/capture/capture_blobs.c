/* Contents of regions: packed, and equal ones kept once. */
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <zstd.h>

#include "capture_parts.h"

/* A capture waits for it: fast, and caches of zeros still become small. */
enum { ZSTD_LEVEL = 1 };

static kgen_status pack(kgen__blob *blob, const void *bytes, kgen_error *err) {
    size_t bound = ZSTD_compressBound(blob->size);
    blob->packed = malloc(bound);
    if (!blob->packed) return kgen_fail(err, KGEN_E_NOMEM, "capture: no %zu bytes", bound);
    size_t got = ZSTD_compress(blob->packed, bound, bytes, blob->size, ZSTD_LEVEL);
    if (ZSTD_isError(got)) {
        free(blob->packed);
        return kgen_fail(err, KGEN_E_NOMEM, "capture: zstd: %s", ZSTD_getErrorName(got));
    }
    uint8_t *fitting = realloc(blob->packed, got);
    if (fitting) blob->packed = fitting;
    blob->packed_size = got;
    return KGEN_OK;
}

kgen_status kgen__blobs_add(kgen__blobs *blobs, int32_t *index, const void *bytes, size_t size,
                            kgen_error *err) {
    kgen__blob blob = {.size = size};
    crypto_generichash(blob.digest, KGEN__DIGEST_BYTES, bytes, size, NULL, 0);
    for (size_t i = 0; i < blobs->count; i++)
        if (blobs->list[i].size == size &&
            memcmp(blobs->list[i].digest, blob.digest, sizeof blob.digest) == 0) {
            *index = (int32_t)i;
            return KGEN_OK;
        }
    kgen__blob *list = realloc(blobs->list, (blobs->count + 1) * sizeof *list);
    if (!list) return kgen_fail(err, KGEN_E_NOMEM, "capture: out of memory");
    blobs->list = list;
    KGEN_TRY(pack(&blob, bytes, err));
    *index = (int32_t)blobs->count;
    list[blobs->count++] = blob;
    return KGEN_OK;
}

void kgen__blobs_free(kgen__blobs *blobs) {
    for (size_t i = 0; i < blobs->count; i++) free(blobs->list[i].packed);
    free(blobs->list);
    memset(blobs, 0, sizeof *blobs);
}

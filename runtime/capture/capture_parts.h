/* Saving launches, below <kgen/capture.h>.
 *   capture.c          decides whether a launch is saved, and saves it
 *   capture_regions.c  finds the memory that the launch reads and writes
 *   capture_blobs.c    stores each stretch of memory once
 *   capture_file.c     writes and reads the file's parts
 *   capture_load.c     reads a file back into host memory
 *   capture_upload.c   puts it on a device */
#ifndef KGEN_RUNTIME_CAPTURE_CAPTURE_PARTS_H
#define KGEN_RUNTIME_CAPTURE_CAPTURE_PARTS_H

#include <kgen/capture.h>

#include "runtime/context.h"

enum {
    KGEN__CAPTURE_VERSION = 1,
    KGEN__DIGEST_BYTES = 32,
    KGEN__PHASE = 256, /* what allocations are aligned to */
    KGEN__ADDRESSES_MAX = 1 << 16,
    KGEN__REGIONS_MAX = KGEN_ARGS_TENSORS_MAX + KGEN__ADDRESSES_MAX,
};

/* ---- regions --------------------------------------------------------------- */

typedef struct kgen__region {
    uintptr_t start;
    size_t size;
    int32_t before, after; /* blobs */
} kgen__region;

typedef struct kgen__regions {
    kgen__region *list;
    size_t count;
    kgen_capture_place place[KGEN_ARGS_TENSORS_MAX];
    kgen_capture_address *addresses;
    size_t address_count;
    size_t bytes; /* of all */
} kgen__regions;

/* First and last byte of a tensor relative to its data, both 0 without
 * elements. KGEN_E_ARG for a type, rank or span that no tensor has. */
typedef struct kgen__extent {
    int64_t low, end;
} kgen__extent;
kgen_status kgen__tensor_extent(kgen__extent *out, const char *name, const kgen_tensor *t,
                                kgen_error *err);

/* Reads from the device where tensors hold addresses. Also after a failure:
 * kgen__regions_free. */
kgen_status kgen__regions_find(kgen__regions *out, const kgen_kernel *kernel, const kgen_args *args,
                               kgen_error *err);
void kgen__regions_free(kgen__regions *regions);

/* Most bytes of one launch's memory, to save and to load: $KGEN_CAPTURE_MAX. */
kgen_status kgen__capture_max(uint64_t *out, kgen_error *err);

/* ---- blobs ----------------------------------------------------------------- */

typedef struct kgen__blob {
    uint8_t digest[KGEN__DIGEST_BYTES]; /* of the bytes */
    uint8_t *packed;                    /* zstd */
    size_t packed_size, size;
} kgen__blob;

typedef struct kgen__blobs {
    kgen__blob *list;
    size_t count;
} kgen__blobs;

/* Index of the blob of these bytes; equal ones are kept once. */
kgen_status kgen__blobs_add(kgen__blobs *blobs, int32_t *index, const void *bytes, size_t size,
                            kgen_error *err);
void kgen__blobs_free(kgen__blobs *blobs);

/* ---- file ------------------------------------------------------------------ */

/* Writes beside `path` and renames. */
kgen_status kgen__capture_write(const char *path, const kgen_kernel *kernel, const kgen_args *args,
                                const kgen__regions *regions, const kgen__blobs *blobs,
                                kgen_error *err);

/* ---- the launch path ------------------------------------------------------- */

/* NULL with KGEN_OK where the environment asks for nothing. */
kgen_status kgen__capture_open(kgen__capture **out, kgen_error *err);
void kgen__capture_close(kgen__capture *capture);
/* A kernel that goes away; capture may be NULL. */
void kgen__capture_forget(kgen__capture *capture, const kgen_kernel *kernel);

/* Around a launch that is about to succeed. begin gives NULL where it is not to
 * be saved, or cannot be; it never fails, it warns. What is not NULL holds a
 * lock until end, which writes the file. */
typedef struct kgen__taking kgen__taking;
kgen__taking *kgen__capture_begin(const kgen_kernel *kernel, const kgen_args *args,
                                  kgen_stream stream);
void kgen__capture_end(kgen__taking *taking, kgen_status launched);

#endif

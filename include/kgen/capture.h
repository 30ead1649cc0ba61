/* Launches that were saved, to be launched again: on another day, device or
 * version, by `kgen check --replay`, `kgen tune --replay` or a program.
 *
 * With KGEN_CAPTURE=glob[,glob] in the environment of kgen_open, launches whose
 * kernel symbol or spec line matches are written to files, inputs and outputs
 * alike; docs/capture.md has the variables and the format. Without it a launch
 * costs one look at a pointer more. */
#ifndef KGEN_CAPTURE_H
#define KGEN_CAPTURE_H

#include "runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory that one or more tensors lie in: views that overlap share a region,
 * so that they still do when it is put somewhere else. */
typedef struct kgen_capture_region {
    size_t size;           /* bytes; 0: tensors without elements */
    size_t phase;          /* its first byte was `phase` past a multiple of 256 */
    const uint8_t *before; /* what the launch found */
    const uint8_t *after;  /* what it left */
} kgen_capture_region;

typedef struct kgen_capture_place {
    int32_t region; /* -1: the kernel is not given this tensor */
    size_t offset;  /* of its first element */
} kgen_capture_place;

/* An address that the launch read from memory (pools of kv_compact): the eight
 * bytes at `word` hold that of `at`. */
typedef struct kgen_capture_address {
    kgen_capture_place word, at;
} kgen_capture_address;

/* One launch. To be read only. */
typedef struct kgen_capture {
    kgen_spec spec; /* resolved for `target` */
    char symbol[KGEN_SYMBOL_MAX];
    char target[32];    /* "gfx942" */
    char device[128];   /* its label */
    char toolchain[64]; /* that made the kernel */
    char version[16];   /* of kgen */
    kgen_key key;       /* of the code object */
    uint64_t unix_time;
    char *environment; /* KGEN_* variables, "NAME=value\n" each */
    kgen_args args;    /* shapes, strides and numbers, in `room`; no data, no workspace */
    kgen_args_room room;
    kgen_capture_place place[KGEN_ARGS_TENSORS_MAX]; /* by args.h */
    kgen_capture_region *regions;
    size_t region_count;
    kgen_capture_address *addresses;
    size_t address_count;
    uint8_t **blobs; /* what regions point into */
    size_t blob_count;
} kgen_capture;

/* Nothing of a file is believed before its length and digest agree, and every
 * tensor lies in its region. KGEN_E_IO: no capture, damaged, or of another
 * version. KGEN_E_SPEC: of a spec that this version does not know.
 * *out: kgen_capture_free. */
KGEN_API kgen_status kgen_capture_load(kgen_capture **out, const char *path, kgen_error *err);
KGEN_API void kgen_capture_free(kgen_capture *capture);

/* The spec to prepare for `target`: shape keys are kept; tuning keys with
 * keep_tuning 1, with 0 on the target of the capture alone, with -1 never. What
 * is not kept is open again. */
KGEN_API void kgen_capture_spec(kgen_spec *out, const kgen_capture *capture,
                                const kgen_target *target, int keep_tuning);
/* Arguments in `room` whose tensors lie at base[region] + offset. */
KGEN_API void kgen_capture_args(kgen_args *out, kgen_args_room *room, const kgen_capture *capture,
                                void *const *base);

/* The regions of a capture on a device. The capture and the context outlive it. */
typedef struct kgen_upload kgen_upload;

/* Allocates, and writes what the launch found. *out: kgen_upload_free. */
KGEN_API kgen_status kgen_upload_make(kgen_upload **out, kgen_context *ctx,
                                      const kgen_capture *capture, kgen_error *err);
KGEN_API void kgen_upload_free(kgen_upload *upload);
/* For kgen_workspace_size and kgen_launch, in memory of the upload; the workspace is
 * the caller's. */
KGEN_API kgen_args kgen_upload_args(const kgen_upload *upload);
/* Writes what the launch found again; no launch may be under way. */
KGEN_API kgen_status kgen_upload_reset(kgen_upload *upload, kgen_error *err);
/* Reads a region, region->size bytes. Addresses in it come back as they were in
 * the capture, unless a launch changed them. */
KGEN_API kgen_status kgen_upload_read(const kgen_upload *upload, size_t region, void *out,
                                      kgen_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* Spec -> source text: the exact bytes that are hashed, compiled and shown. */
#ifndef KGEN_SOURCE_H
#define KGEN_SOURCE_H

#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KGEN_SOURCE_DIGEST_BYTES = 32 };

typedef struct kgen_source {
    char *text;                   /* NUL-terminated; no path, no date, the same everywhere */
    size_t size;                  /* bytes without the NUL */
    char symbol[KGEN_SYMBOL_MAX]; /* the one extern "C" entry */
    kgen_spec spec;               /* resolved */
    const kgen_target *target;
    int32_t workgroup_size; /* lanes of a workgroup the code was written for */
    int32_t lds_bytes;      /* LDS that a launch gives a workgroup; 0: the code says it itself */
    /* Of kgen_source_digest, of the text as it was rendered. 0: not known. */
    int has_digest;
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES];
} kgen_source;

/* Resolves `spec` for `target` and renders it. Pure and thread-safe.
 * *out: release with kgen_source_free (safe on a zeroed struct). */
KGEN_API kgen_status kgen_source_render(kgen_source *out, const kgen_spec *spec,
                                        const kgen_target *target, kgen_error *err);
/* All of it but the text, which is NULL: what a look-up needs, sooner. */
KGEN_API kgen_status kgen_source_name(kgen_source *out, const kgen_spec *spec,
                                      const kgen_target *target, kgen_error *err);
/* The text of a named source. */
KGEN_API kgen_status kgen_source_write(kgen_source *source, kgen_error *err);
KGEN_API void kgen_source_free(kgen_source *source);

/* Of what a compiler sees in `text`: comments, blank space, #line marks and
 * constants that nothing reads do not change it. */
KGEN_API void kgen_source_digest(uint8_t out[KGEN_SOURCE_DIGEST_BYTES], const char *text,
                                 size_t size);

#ifdef __cplusplus
}
#endif
#endif

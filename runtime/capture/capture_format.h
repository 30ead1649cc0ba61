/* What the writer and the reader of captures agree on. */
#ifndef KGEN_RUNTIME_CAPTURE_CAPTURE_FORMAT_H
#define KGEN_RUNTIME_CAPTURE_CAPTURE_FORMAT_H

#define KGEN__CAPTURE_MAGIC {'k', 'g', 'c', 'a', 'p', '\r', '\n', 0x1a}

enum {
    KGEN__CAPTURE_MAGIC_BYTES = 8,
    KGEN__CAPTURE_FIXED = KGEN__CAPTURE_MAGIC_BYTES + 4 + 4 + 8, /* before the header */
    KGEN__CAPTURE_HEADER_MAX = 64 << 20,
    KGEN__CAPTURE_PATH_MAX = 4096,
};

/* Of one launch, and of a file that is read: a damaged size asks for no more. */
#define KGEN__CAPTURE_BYTES_MAX ((uint64_t)1 << 38)

#endif

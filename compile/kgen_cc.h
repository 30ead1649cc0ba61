/* What kgen and its helper process kgen-cc say to each other. Numbers are in
 * the machine's own byte order: both ends run on it.
 *
 *   request (stdin)   magic, library, path, name, flag count, flags, source
 *   reply   (stdout)  magic, status, log bytes, code bytes, log, code
 *
 * Numbers are uint32_t; a string is its length, then its bytes. To comgr `name`
 * is the isa and `source` machine code; the reply's code is the listing. */
#ifndef KGEN_COMPILE_KGEN_CC_H
#define KGEN_COMPILE_KGEN_CC_H

#define KGEN__CC_MAGIC 0x3143474bu /* "KGC1" */
#define KGEN__CC_MAX_BYTES (64u << 20)
#define KGEN__CC_MAX_FLAGS 256u

typedef enum kgen__cc_library {
    KGEN__CC_HIPRTC,
    KGEN__CC_NVRTC,
    KGEN__CC_COMPILERS,
    KGEN__CC_COMGR = KGEN__CC_COMPILERS,
    KGEN__CC_LIBRARIES,
} kgen__cc_library;

typedef enum kgen__cc_status {
    KGEN__CC_OK,
    KGEN__CC_ERROR,      /* the log says why */
    KGEN__CC_NO_LIBRARY, /* the log is dlerror()'s text */
} kgen__cc_status;

enum { KGEN__CC_EXIT_USAGE = 64, KGEN__CC_EXIT_NO_PROGRAM = 127 };

#endif

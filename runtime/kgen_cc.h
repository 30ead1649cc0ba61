/* What kgen and its helper process kgen-cc say to each other. Numbers are in
 * the machine's own byte order: both ends run on it.
 *
 *   request (stdin)   magic, library, path, name, flag count, flags, source
 *   reply   (stdout)  magic, status, log bytes, code bytes, log, code
 *
 * Numbers are uint32_t; a string is its length, then its bytes. To comgr `name`
 * is the isa and `source` machine code; the reply's code is the listing.    */
#ifndef KGEN_RUNTIME_KGEN_CC_H
#define KGEN_RUNTIME_KGEN_CC_H

#define KGEN_CC_MAGIC 0x3143474bu /* "KGC1"                                  */
#define KGEN_CC_MAX_BYTES (64u << 20)
#define KGEN_CC_MAX_FLAGS 256u

typedef enum kgen_cc_library {
    KGEN_CC_HIPRTC,
    KGEN_CC_NVRTC,
    KGEN_CC_COMPILERS,
    KGEN_CC_COMGR = KGEN_CC_COMPILERS,
    KGEN_CC_LIBRARIES,
} kgen_cc_library;

typedef enum kgen_cc_status {
    KGEN_CC_OK,
    KGEN_CC_ERROR,      /* the log says why                                  */
    KGEN_CC_NO_LIBRARY, /* the log is dlerror()'s text                       */
} kgen_cc_status;

enum { KGEN_CC_EXIT_USAGE = 64, KGEN_CC_EXIT_NO_PROGRAM = 127 };

#endif

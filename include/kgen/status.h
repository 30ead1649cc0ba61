/* Status codes and error text. Every fallible call returns a kgen_status and
 * takes a `kgen_error *err` that may be NULL. The caller owns it; one per
 * thread is enough. On failure the text names the field, the value and the
 * bound in one line; on success it is left as it was. */
#ifndef KGEN_STATUS_H
#define KGEN_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KGEN_API __attribute__((visibility("default")))
#define KGEN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define KGEN_API
#define KGEN_PRINTF(fmt, args)
#endif

/* name, text, exit code of the `kgen` command */
#define KGEN_STATUS_TABLE(X)                                \
    X(OK, "ok", 0)                                          \
    X(E_SPEC, "bad spec", 2)                                \
    X(E_UNSUPPORTED, "unsupported combination", 3)          \
    X(E_ARG, "bad argument", 4)                             \
    X(E_CONFIG, "bad model config", 5)                      \
    X(E_TARGET, "unknown architecture", 6)                  \
    X(E_TOOLCHAIN, "no usable toolchain", 7)                \
    X(E_COMPILE, "compilation failed", 8)                   \
    X(E_BUDGET, "resource gate failed", 9)                  \
    X(E_NOT_CACHED, "kernel not prepared", 10)              \
    X(E_CAPTURE, "not allowed while a stream captures", 11) \
    X(E_DEVICE, "device error", 12)                         \
    X(E_IO, "input/output error", 13)                       \
    X(E_NOMEM, "out of memory", 14)                         \
    X(E_MISMATCH, "results differ from the reference", 15)  \
    X(E_INTERNAL, "internal error", 16)                     \
    X(E_CANCELLED, "cancelled", 17)

typedef enum kgen_status {
#define KGEN_STATUS_ENUM(name, text, code) KGEN_##name,
    KGEN_STATUS_TABLE(KGEN_STATUS_ENUM)
#undef KGEN_STATUS_ENUM
        KGEN_STATUS_COUNT
} kgen_status;

typedef struct kgen_error {
    kgen_status status;
    char text[1024];
} kgen_error;

/* Static strings; never NULL, also for values out of range. Thread-safe. */
KGEN_API const char *kgen_status_name(kgen_status status); /* "KGEN_E_SPEC" */
KGEN_API const char *kgen_status_text(kgen_status status); /* "bad spec" */
KGEN_API int kgen_status_exit_code(kgen_status status);

/* Writes the text into *err (may be NULL) and returns `status`. Long text is
 * cut, never overrun. */
KGEN_API kgen_status kgen_fail(kgen_error *err, kgen_status status, const char *fmt, ...)
    KGEN_PRINTF(3, 4);

/* Takes a struct of the caller's that begins with its size (kgen.h) into *out, of
 * out_size bytes. NULL is a struct of zeros. KGEN_E_ARG: the size is not set, or
 * bytes that this version does not know are. `name` is for the text. */
KGEN_API kgen_status kgen_struct_take(void *out, size_t out_size, const void *theirs,
                                      const char *name, kgen_error *err);

/* Forwards a failure unchanged. */
#define KGEN_TRY(expr)                                            \
    do {                                                          \
        kgen_status kgen_try_status_ = (expr);                    \
        if (kgen_try_status_ != KGEN_OK) return kgen_try_status_; \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif

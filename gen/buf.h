/* Growable text with a sticky failure: emitters return nothing, the owner
 * checks once in kgen__buf_take. Numbers are locale-free (integers only). */
#ifndef KGEN_GEN_BUF_H
#define KGEN_GEN_BUF_H

#include <kgen/status.h>
#include <stddef.h>

typedef struct kgen__buf {
    char *text;
    size_t size, capacity;
    int failed;
} kgen__buf;

void kgen__buf_add(kgen__buf *buf, const void *bytes, size_t size);
void kgen__buf_printf(kgen__buf *buf, const char *fmt, ...) KGEN_PRINTF(2, 3);
/* Hands over the NUL-terminated text and empties the buffer. */
kgen_status kgen__buf_take(kgen__buf *buf, char **text, size_t *size, kgen_error *err);

#endif

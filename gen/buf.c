/* Growable text: an addition that fails is remembered, and later ones do nothing. */
#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int reserve(kgen__buf *buf, size_t extra) {
    size_t need = buf->size + extra + 1;
    if (buf->failed) return 0;
    if (need <= buf->capacity) return 1;
    size_t capacity = buf->capacity ? buf->capacity : 1024;
    while (capacity < need) capacity *= 2;
    char *text = realloc(buf->text, capacity);
    buf->failed = !text;
    if (!text) return 0;
    buf->text = text;
    buf->capacity = capacity;
    return 1;
}

void kgen__buf_add(kgen__buf *buf, const void *bytes, size_t size) {
    if (!reserve(buf, size)) return;
    memcpy(buf->text + buf->size, bytes, size);
    buf->size += size;
    buf->text[buf->size] = 0;
}

void kgen__buf_printf(kgen__buf *buf, const char *fmt, ...) {
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof line)
        buf->failed = 1;
    else
        kgen__buf_add(buf, line, (size_t)n);
}

kgen_status kgen__buf_take(kgen__buf *buf, char **text, size_t *size, kgen_error *err) {
    kgen__buf taken = *buf;
    memset(buf, 0, sizeof *buf);
    if (!taken.failed && reserve(&taken, 0)) {
        taken.text[taken.size] = 0;
        *text = taken.text;
        if (size) *size = taken.size;
        return KGEN_OK;
    }
    free(taken.text);
    return kgen_fail(err, KGEN_E_NOMEM, "text of %zu bytes: out of memory", taken.size);
}

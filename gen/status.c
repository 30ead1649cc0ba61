/* Names of the status codes, and the line of text that goes with a failure. */
#include <kgen/kgen.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct status_row {
    const char *name;
    const char *text;
    int exit_code;
} status_row;

static const status_row status_table[] = {
#define STATUS_ROW(name, text, code) {"KGEN_" #name, text, code},
    KGEN_STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
};

static const status_row *row_of(kgen_status status) {
    static const status_row unknown = {"KGEN_UNKNOWN", "unknown status", 1};
    unsigned index = (unsigned)status;
    return index < KGEN_STATUS_COUNT ? &status_table[index] : &unknown;
}

const char *kgen_status_name(kgen_status status) { return row_of(status)->name; }
const char *kgen_status_text(kgen_status status) { return row_of(status)->text; }
int kgen_status_exit_code(kgen_status status) { return row_of(status)->exit_code; }

const char *kgen_version(void) { return KGEN_VERSION; }

kgen_status kgen_fail(kgen_error *err, kgen_status status, const char *fmt, ...) {
    if (!err) return status;
    va_list ap;
    va_start(ap, fmt);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    return status;
}

kgen_status kgen_struct_take(void *out, size_t out_size, const void *theirs, const char *name,
                             kgen_error *err) {
    size_t size = out_size;
    memset(out, 0, out_size);
    if (theirs) memcpy(&size, theirs, sizeof size);
    if (size <= sizeof size)
        return kgen_fail(err, KGEN_E_ARG, "%s.size=%zu: sizeof(%s) expected", name, size, name);
    for (size_t i = out_size; i < size; i++)
        if (((const unsigned char *)theirs)[i])
            return kgen_fail(err, KGEN_E_ARG,
                             "%s.size=%zu: byte %zu is set, this version knows %zu bytes", name,
                             size, i, out_size);
    if (theirs) memcpy(out, theirs, size < out_size ? size : out_size);
    memcpy(out, &out_size, sizeof out_size);
    return KGEN_OK;
}

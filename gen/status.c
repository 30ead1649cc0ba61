/* Names of the status codes, and the line of text that goes with a failure. */
#include <kgen/status.h>

#include <stdarg.h>
#include <stdio.h>

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

kgen_status kgen_fail(kgen_error *err, kgen_status status, const char *fmt, ...) {
    if (!err) return status;
    va_list ap;
    va_start(ap, fmt);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    return status;
}

/* Text, line by line: a file of rows is read whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db.h"

/* --- files ---------------------------------------------------------------- */

static kgen_status grow(char **text, size_t *room, size_t used, kgen_error *err) {
    if (used + 1 < *room) return KGEN_OK; /* 1: a NUL behind the text */
    size_t room_now = *room ? 2 * *room : 1 << 16;
    char *more = realloc(*text, room_now);
    if (!more) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu bytes", room_now);
    *text = more;
    *room = room_now;
    return KGEN_OK;
}

static kgen_status read_text(int fd, char **out, size_t *size, const char *path, kgen_error *err) {
    char *text = NULL;
    size_t room = 0, used = 0;
    kgen_status status;
    while ((status = grow(&text, &room, used, err)) == KGEN_OK) {
        ssize_t got = read(fd, text + used, room - used - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            status = kgen_fail(err, KGEN_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got <= 0) break;
        used += (size_t)got;
        if (used > KGEN__ROWS_TEXT_MAX) {
            status =
                kgen_fail(err, KGEN_E_CONFIG, "%s: more than %d bytes", path, KGEN__ROWS_TEXT_MAX);
            break;
        }
    }
    if (status == KGEN_OK) {
        text[used] = 0;
        *out = text;
        *size = used;
    } else {
        free(text);
    }
    return status;
}

static kgen_status read_path(char **text, size_t *size, const char *path, int flags,
                             kgen_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0) return kgen_fail(err, KGEN_E_IO, "%s: cannot open: %s", path, strerror(errno));
    kgen_status status = read_text(fd, text, size, path, err);
    close(fd);
    return status;
}

/* Somebody named it: a pipe is waited for. */
kgen_status kgen_tuning_rows_read(char **text, size_t *size, const char *path, kgen_error *err) {
    if (strcmp(path, "-") == 0) return read_text(STDIN_FILENO, text, size, "standard input", err);
    return read_path(text, size, path, 0, err);
}

kgen_status kgen__rows_file_read(char **text, size_t *size, const char *path, kgen_error *err) {
    return read_path(text, size, path, O_NONBLOCK, err);
}

/* --- lines ---------------------------------------------------------------- */

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

int kgen__lines_next(kgen__lines *lines, const char **line, size_t *length) {
    while (lines->next < lines->end) {
        const char *begin = lines->next;
        const char *newline = memchr(begin, '\n', (size_t)(lines->end - begin));
        const char *end = newline ? newline : lines->end;
        lines->next = newline ? newline + 1 : lines->end;
        lines->number++;
        while (begin < end && is_blank(*begin)) begin++;
        while (begin < end && is_blank(end[-1])) end--;
        if (begin == end) continue;
        *line = begin;
        *length = (size_t)(end - begin);
        return 1;
    }
    return 0;
}

kgen_status kgen__line_parse(kgen_tuning_row *out, const char *line, size_t length,
                             kgen_error *err) {
    char text[KGEN_TUNING_LINE_MAX];
    if (length >= sizeof text)
        return kgen_fail(err, KGEN_E_CONFIG, "row: %zu bytes, at most %zu", length,
                         sizeof text - 1);
    if (memchr(line, 0, length))
        return kgen_fail(err, KGEN_E_CONFIG, "row: has a NUL byte; not text");
    memcpy(text, line, length);
    text[length] = 0;
    return kgen_tuning_row_parse(out, text, err);
}

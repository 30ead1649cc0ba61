/* Reads a source text as a compiler does before it parses. */
#include "tokens.h"

#include <string.h>

/* Of ASCII, in every locale: bits of the letters below; other bytes are none of them. */
enum { BLANK = 1, WORD = 2, DIGIT = 4, UPPER = 8 };

/* clang-format off */
static const unsigned char kinds[256] =
    "@@@@@@@@@AAAAA@@" "@@@@@@@@@@@@@@@@" "A@@@@@@@@@@@@@@@" "FFFFFFFFFF@@@@@@"
    "@JJJJJJJJJJJJJJJ" "JJJJJJJJJJJ@@@@B" "@BBBBBBBBBBBBBBB" "BBBBBBBBBBB@@@@@";
/* clang-format on */

static int is(int kind, char c) { return kinds[(unsigned char)c] & kind; }

/* Two bytes that are one operator; of three, the first two are one as well. */
static int joins(char a, char b) {
    if (b == '=') return a && strchr("+-*/%&|^<>=!", a);
    return (a == b && a && strchr("+-&|<>:#.", a)) || (a == '-' && b == '>');
}

static size_t number_length(const char *p, size_t left) {
    size_t n = 1;
    while (n < left && (is(WORD, p[n]) || p[n] == '.' || p[n] == '\'' ||
                        ((p[n] == '+' || p[n] == '-') && strchr("eEpP", p[n - 1]))))
        n++;
    return n;
}

size_t kgen__token_length(const char *p, const char *end) {
    size_t left = (size_t)(end - p), n = 1;
    if (is(DIGIT, *p) || (*p == '.' && left > 1 && is(DIGIT, p[1]))) return number_length(p, left);
    if (is(WORD, *p)) {
        while (n < left && is(WORD, p[n])) n++;
    } else if (*p == '"' || *p == '\'') {
        while (n < left && p[n] != *p) n += p[n] == '\\' && n + 1 < left ? 2 : 1;
        n += n < left;
    } else {
        while (n < left && n < 3 && joins(p[n - 1], p[n])) n++;
    }
    return n;
}

/* At the start of a comment, or of a backslash that joins two lines: past it. 0: of neither. */
static int skip_comment(kgen__tokens *r) {
    size_t left = (size_t)(r->end - r->at);
    const char *stop;
    if (left < 2) return 0;
    if (memcmp(r->at, "//", 2) == 0) {
        stop = memchr(r->at, '\n', left);
        r->at = stop ? stop : r->end;
    } else if (memcmp(r->at, "/*", 2) == 0) {
        stop = memmem(r->at + 2, left - 2, "*/", 2);
        r->at = stop ? stop + 2 : r->end;
    } else if (memcmp(r->at, "\\\n", 2) == 0) {
        r->at += 2;
    } else {
        return 0;
    }
    return 1;
}

/* Past blanks and comments. A line ends a directive unless a backslash joins it
 * to the next. */
static void skip_blank(kgen__tokens *r) {
    for (; r->at < r->end; r->at++) {
        while ((*r->at == '/' || *r->at == '\\') && skip_comment(r))
            if (r->at == r->end) return;
        if (!is(BLANK, *r->at)) return;
        if (*r->at != '\n') continue;
        r->ended |= r->in_directive;
        r->in_directive = 0;
    }
}

size_t kgen__tokens_next(kgen__tokens *r, const char **token) {
    static const char line[] = "#line ";
    r->ended = 0;
    skip_blank(r);
    while ((size_t)(r->end - r->at) >= sizeof line && *r->at == '#' &&
           memcmp(r->at, line, sizeof line - 1) == 0) {
        const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        r->at = stop ? stop : r->end;
        skip_blank(r);
    }
    if (r->at == r->end) return 0;
    if (*r->at == '#' && !r->in_directive) r->in_directive = 1, r->words = 0;
    r->words++;
    *token = r->at;
    size_t length = kgen__token_length(r->at, r->end);
    r->at += length;
    return length;
}

int kgen__is_capital(char c) { return is(UPPER, c); }

int kgen__tokens_touch(const kgen__tokens *r) {
    return r->in_directive && r->words == 3 && r->at < r->end && *r->at == '(';
}

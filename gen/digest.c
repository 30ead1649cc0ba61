/* The digest of a source text covers what a compiler sees of it: its tokens,
 * and where a preprocessor directive ends. Comments, blank space and #line marks
 * are left out, and so are constants of the prelude that nothing reads: a value
 * that a parameter may now have, or a parameter that no template reads yet, is
 * no other kernel. Templates have no raw strings. */
#include <kgen/source.h>

#include <ctype.h>
#include <string.h>

#include <sodium.h>

enum { CONSTANTS_MAX = 192, CHUNK = 1024 };

/* --- tokens --------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    int in_directive, words; /* of the directive, so far */
    int ended;               /* a directive, before the token read last */
} reader;

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Two bytes that are one operator; of three, the first two are one as well. */
static int joins(char a, char b) {
    if (b == '=') return a && strchr("+-*/%&|^<>=!", a);
    return (a && a == b && strchr("+-&|<>:#.", a)) || (a == '-' && b == '>');
}

static size_t token_length(const char *p, const char *end) {
    size_t left = (size_t)(end - p), n = 1;
    int number =
        isdigit((unsigned char)*p) || (*p == '.' && left > 1 && isdigit((unsigned char)p[1]));
    if (number || is_word(*p)) {
        while (n < left && (is_word(p[n]) || (number && (p[n] == '.' || p[n] == '\'')) ||
                            (number && (p[n] == '+' || p[n] == '-') && strchr("eEpP", p[n - 1]))))
            n++;
    } else if (*p == '"' || *p == '\'') {
        while (n < left && p[n] != *p) n += p[n] == '\\' && n + 1 < left ? 2 : 1;
        n += n < left;
    } else {
        while (n < left && n < 3 && joins(p[n - 1], p[n])) n++;
    }
    return n;
}

/* Past blanks and comments. A line ends a directive unless a backslash joins it
 * to the next. */
static void skip_blank(reader *r) {
    while (r->at < r->end) {
        size_t left = (size_t)(r->end - r->at);
        const char *stop = NULL;
        if (left > 1 && memcmp(r->at, "//", 2) == 0) {
            stop = memchr(r->at, '\n', left);
            r->at = stop ? stop : r->end;
        } else if (left > 1 && memcmp(r->at, "/*", 2) == 0) {
            stop = memmem(r->at + 2, left - 2, "*/", 2);
            r->at = stop ? stop + 2 : r->end;
        } else if (left > 1 && memcmp(r->at, "\\\n", 2) == 0) {
            r->at += 2;
        } else if (isspace((unsigned char)*r->at)) {
            r->ended |= *r->at == '\n' && r->in_directive;
            r->in_directive &= *r->at++ != '\n';
        } else {
            return;
        }
    }
}

/* The next token and its length; 0 at the end. */
static size_t next_token(reader *r, const char **token) {
    static const char line[] = "#line ";
    r->ended = 0;
    skip_blank(r);
    while ((size_t)(r->end - r->at) >= sizeof line && memcmp(r->at, line, sizeof line - 1) == 0) {
        const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        r->at = stop ? stop : r->end;
        skip_blank(r);
    }
    if (r->at == r->end) return 0;
    if (*r->at == '#' && !r->in_directive) r->in_directive = 1, r->words = 0;
    r->words++;
    *token = r->at;
    size_t length = token_length(r->at, r->end);
    r->at += length;
    return length;
}

/* --- constants of the prelude ----------------------------------------------- */

typedef struct constant {
    const char *name;
    size_t length;
    int used;
} constant;

typedef struct constants {
    constant list[CONSTANTS_MAX];
    size_t count;
} constants;

/* Lines `constexpr int NAME = value;` before the first #line mark. */
static void find_constants(constants *c, const char *text, const char *end) {
    static const char head[] = "constexpr int ";
    const char *mark = memmem(text, (size_t)(end - text), "\n#line ", 7);
    c->count = 0;
    for (const char *line = text; mark && line < mark && c->count < CONSTANTS_MAX;) {
        const char *name = line + sizeof head - 1;
        if (strncmp(line, head, sizeof head - 1) == 0)
            c->list[c->count++] = (constant){name, token_length(name, end), 0};
        line = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
    }
}

static void mark_used(constants *c, const char *token, size_t length) {
    for (size_t i = 0; i < c->count; i++) {
        constant *k = &c->list[i];
        if (k->length == length && k->name != token && memcmp(k->name, token, length) == 0)
            k->used = 1;
    }
}

/* 1: the token `constexpr` begins the line of a constant that nothing reads. */
static int is_unused(const constants *c, const char *token) {
    for (size_t i = 0; i < c->count; i++)
        if (c->list[i].name == token + sizeof "constexpr int " - 1) return !c->list[i].used;
    return 0;
}

/* --- the digest ------------------------------------------------------------- */

typedef struct writer {
    crypto_generichash_state state;
    unsigned char chunk[CHUNK];
    size_t used;
} writer;

static void put(writer *w, const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (w->used == CHUNK) {
            crypto_generichash_update(&w->state, w->chunk, CHUNK);
            w->used = 0;
        }
        w->chunk[w->used++] = (unsigned char)bytes[i];
    }
}

/* `#define F(x)` has arguments, `#define F (x)` has a value: there a blank counts. */
static int is_macro_with_arguments(const reader *r) {
    return r->in_directive && r->words == 3 && r->at < r->end && *r->at == '(';
}

void kgen_source_digest(uint8_t out[KGEN_SOURCE_DIGEST_BYTES], const char *text, size_t size) {
    constants c;
    writer w = {.used = 0};
    const char *end = text + size, *token;
    size_t length;
    find_constants(&c, text, end);
    for (reader r = {.at = text, .end = end}; (length = next_token(&r, &token)) != 0;)
        mark_used(&c, token, length);
    crypto_generichash_init(&w.state, NULL, 0, KGEN_SOURCE_DIGEST_BYTES);
    for (reader r = {.at = text, .end = end}; (length = next_token(&r, &token)) != 0;) {
        if (r.ended) put(&w, "\n", 1);
        if (is_unused(&c, token)) {
            r.at = memchr(token, '\n', (size_t)(end - token));
            continue;
        }
        put(&w, token, length);
        if (!is_macro_with_arguments(&r)) put(&w, " ", 1);
    }
    crypto_generichash_update(&w.state, w.chunk, w.used);
    crypto_generichash_final(&w.state, out, KGEN_SOURCE_DIGEST_BYTES);
}

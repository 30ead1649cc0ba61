/* The digest of a source text covers what a compiler sees of it: its tokens,
 * and where a preprocessor directive ends. Comments, blank space and #line marks
 * are left out, and so are constants of the prelude that nothing reads: a value
 * that a parameter may now have, or a parameter that no template reads yet, is
 * no other kernel. Templates have no raw strings. */
#include <kgen/source.h>

#include <string.h>

#include <sodium.h>

enum { CONSTANTS_MAX = 192, SLOTS = 1024, CHUNK = 4096, SHORT = 4 };

/* --- tokens --------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    int in_directive, words; /* of the directive, so far */
    int ended;               /* a directive, before the token read last */
} reader;

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

static size_t token_length(const char *p, const char *end) {
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
static int skip_comment(reader *r) {
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
static void skip_blank(reader *r) {
    for (; r->at < r->end; r->at++) {
        while ((*r->at == '/' || *r->at == '\\') && skip_comment(r))
            if (r->at == r->end) return;
        if (!is(BLANK, *r->at)) return;
        if (*r->at != '\n') continue;
        r->ended |= r->in_directive;
        r->in_directive = 0;
    }
}

/* The next token and its length; 0 at the end. */
static size_t next_token(reader *r, const char **token) {
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
    size_t length = token_length(r->at, r->end);
    r->at += length;
    return length;
}

/* --- constants of the prelude ----------------------------------------------- */

static const char head[] = "constexpr int ";

typedef struct constant {
    const char *name;
    size_t length;
    int used;
} constant;

typedef struct constants {
    constant list[CONSTANTS_MAX];
    size_t count;
    uint8_t slots[SLOTS]; /* by hash, open addressing; index + 1, 0: free */
} constants;

/* The slot of a name, or the free one where it belongs. Fewer names than slots. */
static uint8_t *slot_of(constants *c, const char *name, size_t length) {
    uint32_t hash = 0;
    for (size_t i = 0; i < length; i++) hash = hash * 31 + (unsigned char)name[i];
    for (;; hash++) {
        uint8_t *slot = &c->slots[hash % SLOTS];
        const constant *k = *slot ? &c->list[*slot - 1] : NULL;
        if (!k || (k->length == length && memcmp(k->name, name, length) == 0)) return slot;
    }
}

/* Lines `constexpr int NAME = value;` before the first #line mark, where it
 * begins is returned. Names begin with a capital letter. */
static const char *find_constants(constants *c, const char *text, const char *end) {
    const char *mark = memmem(text, (size_t)(end - text), "\n#line ", 7);
    memset(c, 0, sizeof *c);
    for (const char *line = text; mark && line < mark && c->count < CONSTANTS_MAX;) {
        const char *name = line + sizeof head - 1;
        if (strncmp(line, head, sizeof head - 1) == 0 && is(UPPER, *name)) {
            size_t length = token_length(name, end);
            c->list[c->count] = (constant){name, length, 0};
            *slot_of(c, name, length) = (uint8_t)++c->count;
        }
        line = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
    }
    return mark ? mark + 1 : text;
}

static void mark_used(constants *c, const char *token, size_t length) {
    uint8_t slot = is(UPPER, *token) ? *slot_of(c, token, length) : 0;
    if (slot && c->list[slot - 1].name != token) c->list[slot - 1].used = 1;
}

/* 1: `token`, which lies before `mark`, begins the line of a constant that
 * nothing reads. */
static int is_unused(constants *c, const char *token, const char *mark) {
    const char *name = token + sizeof head - 1;
    if (name >= mark || memcmp(token, head, sizeof head - 1) != 0 || !is(UPPER, *name)) return 0;
    uint8_t slot = *slot_of(c, name, token_length(name, mark));
    return slot && !c->list[slot - 1].used;
}

/* --- the digest ------------------------------------------------------------- */

typedef struct writer {
    crypto_generichash_state state;
    unsigned char chunk[CHUNK];
    size_t used;
} writer;

static void put(writer *w, const char *bytes, size_t size) {
    if (size > CHUNK - w->used) {
        crypto_generichash_update(&w->state, w->chunk, w->used);
        w->used = 0;
    }
    if (size > CHUNK) {
        crypto_generichash_update(&w->state, (const unsigned char *)bytes, size);
        return;
    }
    unsigned char *to = w->chunk + w->used;
    w->used += size;
    if (size > SHORT)
        memcpy(to, bytes, size);
    else /* sooner than a call, for most tokens */
        while (size--) *to++ = (unsigned char)*bytes++;
}

/* `#define F(x)` has arguments, `#define F (x)` has a value: there a blank counts. */
static int is_macro_with_arguments(const reader *r) {
    return r->in_directive && r->words == 3 && r->at < r->end && *r->at == '(';
}

/* The tokens of [text, end), and which constants they read; not those of
 * constants that nothing has read, where this is not the whole. */
static void put_tokens(writer *w, constants *c, const char *text, const char *end, int whole) {
    const char *token;
    size_t length;
    for (reader r = {.at = text, .end = end}; (length = next_token(&r, &token)) != 0;) {
        if (r.ended) put(w, "\n", 1);
        if (!whole && is_unused(c, token, end)) {
            r.at = memchr(token, '\n', (size_t)(end - token));
            continue;
        }
        mark_used(c, token, length);
        put(w, token, length);
        if (!is_macro_with_arguments(&r)) put(w, " ", 1);
    }
}

void kgen_source_digest(uint8_t out[KGEN_SOURCE_DIGEST_BYTES], const char *text, size_t size) {
    constants c;
    writer w = {.used = 0};
    const char *end = text + size, *mark = find_constants(&c, text, end), *token;
    size_t length;
    crypto_generichash_init(&w.state, NULL, 0, KGEN_SOURCE_DIGEST_BYTES);
    put_tokens(&w, &c, mark, end, 1);
    for (reader r = {.at = text, .end = mark}; (length = next_token(&r, &token)) != 0;)
        mark_used(&c, token, length);
    put_tokens(&w, &c, text, mark, 0);
    crypto_generichash_update(&w.state, w.chunk, w.used);
    crypto_generichash_final(&w.state, out, KGEN_SOURCE_DIGEST_BYTES);
}

/* The text form of a case. The family's table holds the keys; lists and words
 * are the only ones with code of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_family.h"

/* Decimals are kept in millionths, so that text and value are one to one. */
enum { DECIMAL_PLACES = 6, KEYS_MAX = 64 };

static const kgen__check_family *family_of(const kgen__case *c) {
    return kgen__check_family_of(c->spec.family);
}

static void *field(const kgen__case *c, const kgen__case_key *key) {
    return (char *)c + key->offset;
}

/* ---- numbers, without the locale ------------------------------------------ */

/* Reads digits; 0 when there are none or the number does not fit. */
static int take_digits(const char **text, uint64_t *out) {
    const char *start = *text;
    uint64_t value = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        uint64_t digit = (uint64_t)(**text - '0');
        if (value > (UINT64_MAX - digit) / 10) return 0;
        value = value * 10 + digit;
    }
    *out = value;
    return *text > start;
}

static int take_decimal(const char *text, double *out) {
    int negative = *text == '-';
    uint64_t whole, millionths = 0;
    text += negative;
    if (!take_digits(&text, &whole) || whole > 1000000000u) return 0;
    if (*text == '.') {
        const char *start = ++text;
        if (!take_digits(&text, &millionths) || text - start > DECIMAL_PLACES) return 0;
        for (long places = text - start; places < DECIMAL_PLACES; places++) millionths *= 10;
    }
    double value = ((double)whole * 1e6 + (double)millionths) / 1e6;
    *out = negative ? -value : value;
    return *text == 0;
}

static void print_decimal(char out[32], double value) {
    double size = value < 0 ? -value : value;
    uint64_t millionths = (uint64_t)(size * 1e6 + 0.5);
    int used = snprintf(out, 32, "%s%llu.%06llu", value < 0 ? "-" : "",
                        (unsigned long long)(millionths / 1000000),
                        (unsigned long long)(millionths % 1000000));
    while (out[used - 1] == '0') out[--used] = 0;
    if (out[used - 1] == '.') out[--used] = 0;
}

/* ---- lists ---------------------------------------------------------------- */

static int take_span(const char **text, const kgen__case_key *key, kgen__span *out) {
    uint64_t low, high;
    int drawn = strncmp(*text, "rand:", 5) == 0;
    if (drawn) *text += 5;
    if (!take_digits(text, &low)) return 0;
    high = low;
    if (drawn) {
        if (strncmp(*text, "..", 2) != 0) return 0;
        *text += 2;
        if (!take_digits(text, &high)) return 0;
    }
    *out = (kgen__span){(int32_t)low, (int32_t)high};
    return low <= high && high <= (uint64_t)key->high;
}

static kgen_status take_spans(kgen__span *out, int32_t *count, const kgen__case_key *key,
                              const char *text, kgen_error *err) {
    const char *at = text;
    for (*count = 0; *count < KGEN__CASE_SEQS_MAX;) {
        if (!take_span(&at, key, &out[*count]))
            return kgen_fail(err, KGEN_E_ARG,
                             "%s=%.60s: term %d must be a number or rand:low..high of 0..%d",
                             key->name, text, *count + 1, key->high);
        (*count)++;
        if (*at == 0) return KGEN_OK;
        if (*at++ != ',')
            return kgen_fail(err, KGEN_E_ARG, "%s=%.60s: ',' expected after term %d", key->name,
                             text, *count);
    }
    return kgen_fail(err, KGEN_E_ARG, "%s: more than %d terms", key->name, KGEN__CASE_SEQS_MAX);
}

static int all_equal(const kgen__span *spans, int32_t count) {
    for (int32_t i = 1; i < count; i++)
        if (spans[i].low != spans[0].low || spans[i].high != spans[0].high) return 0;
    return 1;
}

static int print_spans(char *out, size_t size, const kgen__span *spans, int32_t count) {
    size_t used = 0;
    int32_t shown = all_equal(spans, count) ? 1 : count;
    for (int32_t i = 0; i < shown && used < size; i++) {
        const char *comma = i ? "," : "";
        int drawn = spans[i].low != spans[i].high;
        used += drawn ? (size_t)snprintf(out + used, size - used, "%srand:%d..%d", comma,
                                         spans[i].low, spans[i].high)
                      : (size_t)snprintf(out + used, size - used, "%s%d", comma, spans[i].low);
    }
    return (int)used;
}

/* ---- parse ---------------------------------------------------------------- */

typedef struct parser {
    kgen__case c;
    int32_t terms[KEYS_MAX]; /* given, of lists */
    uint64_t seen;           /* a bit a key */
} parser;

static kgen_status take_integer(parser *p, const kgen__case_key *key, const char *text,
                                kgen_error *err) {
    uint64_t value;
    const char *at = text;
    if (!take_digits(&at, &value) || *at || value < (uint64_t)key->low ||
        value > (uint64_t)key->high)
        return kgen_fail(err, KGEN_E_ARG, "%s=%.40s: must be %d..%d", key->name, text, key->low,
                         key->high);
    *(int32_t *)field(&p->c, key) = (int32_t)value;
    return KGEN_OK;
}

static kgen_status take_word(parser *p, const kgen__case_key *key, const char *text,
                             kgen_error *err) {
    for (int32_t i = 0; key->words[i]; i++) {
        if (strcmp(text, key->words[i]) != 0) continue;
        *(int32_t *)field(&p->c, key) = i;
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_ARG, "%s=%.40s: must be %s", key->name, text, key->list);
}

static kgen_status take_value(parser *p, int32_t index, const char *text, kgen_error *err) {
    const kgen__case_key *key = &family_of(&p->c)->keys[index];
    const char *at = text;
    switch (key->kind) {
    case KGEN__KEY_INTEGER:
        return take_integer(p, key, text, err);
    case KGEN__KEY_WORD:
        return take_word(p, key, text, err);
    case KGEN__KEY_SPANS:
        return take_spans(field(&p->c, key), &p->terms[index], key, text, err);
    case KGEN__KEY_DECIMAL:
        if (take_decimal(text, field(&p->c, key))) return KGEN_OK;
        return kgen_fail(err, KGEN_E_ARG, "%s=%.40s: must be a decimal of at most %d places",
                         key->name, text, DECIMAL_PLACES);
    case KGEN__KEY_SEED:
        if (take_digits(&at, field(&p->c, key)) && !*at) return KGEN_OK;
        return kgen_fail(err, KGEN_E_ARG, "%s=%.40s: must be 0..2^64-1", key->name, text);
    }
    return kgen_fail(err, KGEN_E_INTERNAL, "%s: no such kind", key->name);
}

static kgen_status take_pair(parser *p, char *pair, kgen_error *err) {
    char *equals = strchr(pair, '=');
    if (!equals) return kgen_fail(err, KGEN_E_ARG, "'%.40s': key=value expected", pair);
    *equals = 0;
    const kgen__check_family *family = family_of(&p->c);
    for (int32_t i = 0; i < family->key_count; i++) {
        if (strcmp(family->keys[i].name, pair) != 0) continue;
        if (p->seen >> i & 1) return kgen_fail(err, KGEN_E_ARG, "%s: given twice", pair);
        p->seen |= (uint64_t)1 << i;
        return take_value(p, i, equals + 1, err);
    }
    return kgen_fail(err, KGEN_E_ARG, "%.40s=%.40s: no such key of a case", pair, equals + 1);
}

/* One term serves every sequence. */
static kgen_status spread(kgen__span *spans, int32_t given, int32_t seqs, const char *name,
                          kgen_error *err) {
    if (given != 1 && given != seqs)
        return kgen_fail(err, KGEN_E_ARG, "%s: %d terms for seqs=%d", name, given, seqs);
    for (int32_t i = given; i < seqs; i++) spans[i] = spans[0];
    return KGEN_OK;
}

static int seqs_given(const parser *p) {
    const kgen__check_family *family = family_of(&p->c);
    for (int32_t i = 0; i < family->key_count; i++)
        if (family->keys[i].offset == offsetof(kgen__case, seqs)) return p->seen >> i & 1;
    return 0;
}

/* Without seqs=, the longest list says how many sequences there are. */
static kgen_status settle_lists(parser *p, kgen_error *err) {
    const kgen__check_family *family = family_of(&p->c);
    int32_t most = 1;
    for (int32_t i = 0; i < family->key_count; i++) {
        const kgen__case_key *key = &family->keys[i];
        if (key->kind != KGEN__KEY_SPANS) continue;
        if (!p->terms[i]) {
            if (!family->implied(field(&p->c, key), &p->c, key))
                return kgen_fail(err, KGEN_E_ARG, "%s: missing", key->name);
            p->terms[i] = 1;
        }
        if (p->terms[i] > most) most = p->terms[i];
    }
    if (!seqs_given(p)) p->c.seqs = most;
    for (int32_t i = 0; i < family->key_count; i++) {
        const kgen__case_key *key = &family->keys[i];
        if (key->kind == KGEN__KEY_SPANS)
            KGEN_TRY(spread(field(&p->c, key), p->terms[i], p->c.seqs, key->name, err));
    }
    return KGEN_OK;
}

static kgen_status settle(parser *p, kgen_error *err) {
    KGEN_TRY(settle_lists(p, err));
    return family_of(&p->c)->settle(&p->c, err);
}

static kgen_status parse_pairs(parser *p, char *text, kgen_error *err) {
    char *rest = NULL;
    for (char *pair = strtok_r(text, " \t\r\n", &rest); pair;
         pair = strtok_r(NULL, " \t\r\n", &rest))
        KGEN_TRY(take_pair(p, pair, err));
    return settle(p, err);
}

static void set_initial(kgen__case *c) {
    const kgen__check_family *family = family_of(c);
    for (int32_t i = 0; i < family->key_count; i++) {
        const kgen__case_key *key = &family->keys[i];
        if (key->kind == KGEN__KEY_DECIMAL) *(double *)field(c, key) = key->initial;
        if (key->kind == KGEN__KEY_INTEGER) *(int32_t *)field(c, key) = (int32_t)key->initial;
    }
}

/* line: a writable copy */
static kgen_status parse_line(parser *p, char *line, kgen_error *err) {
    char *bar = strchr(line, '|');
    char *spec = line + strspn(line, " \t");
    if (!bar) return kgen_fail(err, KGEN_E_ARG, "'%.60s': '<spec> | key=value ...' expected", line);
    *bar = 0;
    for (char *end = bar; end > spec && (end[-1] == ' ' || end[-1] == '\t');) *--end = 0;
    KGEN_TRY(kgen_spec_parse(&p->c.spec, spec, err));
    KGEN_TRY(kgen_spec_validate(&p->c.spec, NULL, err));
    set_initial(&p->c);
    return parse_pairs(p, bar + 1, err);
}

kgen_status kgen__case_parse(kgen__case *out, const char *line, kgen_error *err) {
    if (strlen(line) >= KGEN__CASE_LINE_MAX)
        return kgen_fail(err, KGEN_E_ARG, "case: longer than %d bytes", KGEN__CASE_LINE_MAX - 1);
    parser *p = calloc(1, sizeof *p);
    char *copy = strdup(line);
    kgen_status status =
        p && copy ? parse_line(p, copy, err) : kgen_fail(err, KGEN_E_NOMEM, "case: out of memory");
    if (status == KGEN_OK) *out = p->c;
    free(p);
    free(copy);
    return status;
}

/* ---- print ---------------------------------------------------------------- */

static int is_initial(const kgen__case *c, const kgen__case_key *key) {
    const void *at = field(c, key);
    kgen__span implied;
    switch (key->kind) {
    case KGEN__KEY_INTEGER:
        return *(const int32_t *)at == (int32_t)key->initial;
    case KGEN__KEY_WORD:
        return *(const int32_t *)at == 0;
    case KGEN__KEY_DECIMAL:
        return *(const double *)at == key->initial;
    case KGEN__KEY_SEED:
        return *(const uint64_t *)at == 0;
    case KGEN__KEY_SPANS:
        return c->seqs == 0 || (all_equal(at, c->seqs) && family_of(c)->implied(&implied, c, key) &&
                                ((const kgen__span *)at)->low == implied.low &&
                                ((const kgen__span *)at)->high == implied.high);
    }
    return 0;
}

static int print_value(char *out, size_t size, const kgen__case *c, const kgen__case_key *key) {
    const void *at = field(c, key);
    char text[32];
    switch (key->kind) {
    case KGEN__KEY_INTEGER:
        return snprintf(out, size, "%d", *(const int32_t *)at);
    case KGEN__KEY_WORD:
        return snprintf(out, size, "%s", key->words[*(const int32_t *)at]);
    case KGEN__KEY_DECIMAL:
        print_decimal(text, *(const double *)at);
        return snprintf(out, size, "%s", text);
    case KGEN__KEY_SEED:
        return snprintf(out, size, "%llu", (unsigned long long)*(const uint64_t *)at);
    case KGEN__KEY_SPANS:
        return print_spans(out, size, at, c->seqs);
    }
    return 0;
}

void kgen__case_print(char out[KGEN__CASE_LINE_MAX], const kgen__case *c) {
    const kgen__check_family *family = family_of(c);
    kgen_spec_print(out, &c->spec);
    size_t used = strlen(out);
    used += (size_t)snprintf(out + used, KGEN__CASE_LINE_MAX - used, " |");
    for (int32_t i = 0; i < family->key_count && used < KGEN__CASE_LINE_MAX; i++) {
        const kgen__case_key *key = &family->keys[i];
        if (is_initial(c, key)) continue;
        used += (size_t)snprintf(out + used, KGEN__CASE_LINE_MAX - used, " %s=", key->name);
        if (used < KGEN__CASE_LINE_MAX)
            used += (size_t)print_value(out + used, KGEN__CASE_LINE_MAX - used, c, key);
    }
}

/* ---- draw, files ------------------------------------------------------------ */

void kgen__case_draw(kgen__case *c, uint64_t seed) {
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, 0);
    c->seed = seed;
    const kgen__check_family *family = family_of(c);
    for (int32_t i = 0; i < c->seqs * family->key_count; i++) {
        const kgen__case_key *key = &family->keys[i % family->key_count];
        if (key->kind != KGEN__KEY_SPANS) continue;
        kgen__span *span = (kgen__span *)field(c, key) + i / family->key_count;
        span->low = span->high = (int32_t)kgen__rng_range(&rng, span->low, span->high);
    }
}

kgen_status kgen__case_default(kgen__case *c, const kgen_spec *spec, int heads, kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX + 256];
    kgen_spec_print(line, spec);
    size_t used = strlen(line);
    used += (size_t)snprintf(line + used, sizeof line - used, " | ");
    kgen__check_family_of(spec->family)->alone(line + used, sizeof line - used, spec, heads);
    return kgen__case_parse(c, line, err);
}

enum { HEADS_ALONE = 2 }; /* KV heads of a spec without shapes */

kgen_status kgen__case_read(kgen__case *c, const char *line, kgen_error *err) {
    kgen_spec spec;
    if (strchr(line, '|')) return kgen__case_parse(c, line, err);
    KGEN_TRY(kgen_spec_parse(&spec, line, err));
    return kgen__case_default(c, &spec, HEADS_ALONE, err);
}

/* Without what is blank on either side. */
static char *trim(char *line) {
    line += strspn(line, " \t\r\n");
    for (char *end = line + strlen(line); end > line && strchr(" \t\r\n", end[-1]);) *--end = 0;
    return line;
}

/* A file that is no list of cases must not fill the memory. */
enum { FILE_LINE_MAX = 2 * KGEN__CASE_LINE_MAX, FILE_CASES_MAX = 20000 };

static kgen_status add_case(kgen__case **cases, size_t *count, const char *line, kgen_error *err) {
    if (*count == FILE_CASES_MAX)
        return kgen_fail(err, KGEN_E_ARG, "more than %d cases", FILE_CASES_MAX);
    if ((*count & (*count + 1)) == 0) {
        kgen__case *grown = realloc(*cases, (2 * *count + 2) * sizeof *grown);
        if (!grown) return kgen_fail(err, KGEN_E_NOMEM, "%zu cases: out of memory", *count);
        *cases = grown;
    }
    KGEN_TRY(kgen__case_read(&(*cases)[*count], line, err));
    (*count)++;
    return KGEN_OK;
}

/* 1: a line; 0: there is none; -1: it does not fit. */
static int read_line(char line[FILE_LINE_MAX], FILE *file) {
    size_t used = 0;
    int c;
    while ((c = getc(file)) != EOF && c != '\n') {
        if (used + 1 == FILE_LINE_MAX) return -1;
        line[used++] = (char)c;
    }
    line[used] = 0;
    return used > 0 || c == '\n';
}

static kgen_status read_cases(kgen__case **cases, size_t *count, FILE *file, const char *path,
                              kgen_error *err) {
    char line[FILE_LINE_MAX];
    kgen_error inner = {KGEN_OK, ""};
    kgen_status status = KGEN_OK;
    int got;
    for (int number = 1; status == KGEN_OK && (got = read_line(line, file)) != 0; number++) {
        if (got < 0)
            return kgen_fail(err, KGEN_E_ARG, "%.200s:%d: longer than %zu bytes", path, number,
                             sizeof line - 1);
        char *comment = strchr(line, '#');
        if (comment) *comment = 0;
        char *trimmed = trim(line);
        if (!*trimmed) continue;
        status = add_case(cases, count, trimmed, &inner);
        if (status != KGEN_OK)
            kgen_fail(err, status, "%.200s:%d: %.700s", path, number, inner.text);
    }
    if (status == KGEN_OK && ferror(file))
        status = kgen_fail(err, KGEN_E_IO, "%.200s: read error", path);
    return status;
}

kgen_status kgen__cases_load(kgen__case **cases, size_t *count, const char *path, kgen_error *err) {
    FILE *file = fopen(path, "r");
    *cases = NULL;
    *count = 0;
    if (!file) return kgen_fail(err, KGEN_E_IO, "%.200s: can not be opened", path);
    kgen_status status = read_cases(cases, count, file, path, err);
    fclose(file);
    if (status == KGEN_OK) return KGEN_OK;
    free(*cases);
    *cases = NULL;
    *count = 0;
    return status;
}

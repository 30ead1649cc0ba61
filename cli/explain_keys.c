/* kgen explain KEY KEY: why two kernels of the cache are two. What decides a key is compared
 * in its order, as far as an entry keeps it. */
#include <string.h>

#include "cli.h"

typedef struct line {
    const char *text;
    int length, number;
} line;

static int next_line(line *at) {
    const char *begin =
        at->number ? at->text + at->length + (at->text[at->length] == '\n') : at->text;
    if (!*begin) return 0;
    *at = (line){begin, (int)strcspn(begin, "\n"), at->number + 1};
    return 1;
}

/* 1: the sources differ in tokens, and the first line that does was printed. */
static int explain_sources(const kgen_entry *a, const kgen_entry *b) {
    uint8_t x[KGEN_SOURCE_DIGEST_BYTES], y[KGEN_SOURCE_DIGEST_BYTES];
    line p = {a->source, 0, 0}, q = {b->source, 0, 0};
    kgen_source_digest(x, a->source, a->source_size);
    kgen_source_digest(y, b->source, b->source_size);
    if (memcmp(x, y, sizeof x) == 0) return 0;
    int more_p, more_q;
    do {
        more_p = next_line(&p);
        more_q = next_line(&q);
    } while (more_p && more_q && p.length == q.length &&
             memcmp(p.text, q.text, (size_t)p.length) == 0);
    printf("source    line %d: %.*s\n          line %d: %.*s\n", p.number, more_p ? p.length : 0,
           p.text, q.number, more_q ? q.length : 0, q.text);
    return 1;
}

static int explain_texts(const char *what, const char *a, const char *b) {
    if (strcmp(a, b) == 0) return 0;
    printf("%-9s %s\n          %s\n", what, a, b);
    return 1;
}

static void explain_entries(const kgen_entry *a, const kgen_entry *b) {
    if (memcmp(&a->key, &b->key, sizeof a->key) == 0) {
        printf("one kernel: %s @%s\n", a->spec, a->target);
        return;
    }
    int said = explain_texts("spec", a->spec, b->spec);
    said |= explain_texts("arch", a->target, b->target);
    said |= explain_sources(a, b);
    said |= explain_texts("compiler", a->record.toolchain, b->record.toolchain);
    if (!said) printf("flags     the same source, arch and compiler: other flags\n");
}

kgen_status kgen__explain_keys(const char *first, const char *second, const char *cache_dir,
                               kgen_error *err) {
    kgen_cache *cache = NULL;
    kgen_entry *a = NULL, *b = NULL;
    kgen_status status = kgen_cache_open(&cache, cache_dir, err);
    if (status == KGEN_OK) status = kgen__entry_find(&a, cache, first, err);
    if (status == KGEN_OK) status = kgen__entry_find(&b, cache, second, err);
    if (status == KGEN_OK) explain_entries(a, b);
    kgen_entry_free(a);
    kgen_entry_free(b);
    kgen_cache_close(cache);
    return status;
}

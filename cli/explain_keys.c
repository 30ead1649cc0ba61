/* kgen explain KEY KEY: why two kernels of the cache are two. What decides a key is compared
 * in its order, as far as an entry keeps it. */
#include <string.h>

#include "cli.h"

enum { LINE_MAX_BYTES = 4096 };

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

static void add(json_t *list, const char *what, const char *a, const char *b) {
    json_array_append_new(list,
                          json_pack("{s:s, s:s, s:s}", "what", what, "first", a, "second", b));
}

static void add_texts(json_t *list, const char *what, const char *a, const char *b) {
    if (strcmp(a, b) != 0) add(list, what, a, b);
}

/* The first line that differs, where the sources do in tokens. */
static void add_sources(json_t *list, const kgen_entry *a, const kgen_entry *b) {
    char x[LINE_MAX_BYTES], y[LINE_MAX_BYTES];
    line p = {a->source, 0, 0}, q = {b->source, 0, 0};
    if (memcmp(a->source_digest, b->source_digest, sizeof a->source_digest) == 0) return;
    int more_p, more_q;
    do {
        more_p = next_line(&p);
        more_q = next_line(&q);
    } while (more_p && more_q && p.length == q.length &&
             memcmp(p.text, q.text, (size_t)p.length) == 0);
    snprintf(x, sizeof x, "line %d: %.*s", p.number, more_p ? p.length : 0, p.text);
    snprintf(y, sizeof y, "line %d: %.*s", q.number, more_q ? q.length : 0, q.text);
    add(list, "source", x, y);
}

static json_t *differences(const kgen_entry *a, const kgen_entry *b) {
    json_t *list = json_array();
    if (memcmp(&a->key, &b->key, sizeof a->key) == 0) return list;
    add_texts(list, "spec", a->spec, b->spec);
    add_texts(list, "arch", a->target, b->target);
    add_sources(list, a, b);
    add_texts(list, "compiler", a->record.toolchain, b->record.toolchain);
    if (!json_array_size(list))
        add(list, "flags", "the same source, arch and compiler: other flags", "");
    return list;
}

static const char *text_of(const json_t *row, const char *key) {
    return json_string_value(json_object_get(row, key));
}

static kgen_status print(const kgen_entry *a, const kgen_entry *b, int json, kgen_error *err) {
    json_t *list = differences(a, b);
    if (json) {
        if (!kgen__json_print(json_pack("{s:o}", "differences", list))) return KGEN_OK;
        return kgen_fail(err, KGEN_E_IO, "standard output: cannot be written");
    }
    if (!json_array_size(list)) printf("one kernel: %s @%s\n", a->spec, a->target);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        printf("%-9s %s\n", text_of(row, "what"), text_of(row, "first"));
        if (*text_of(row, "second")) printf("          %s\n", text_of(row, "second"));
    }
    json_decref(list);
    return KGEN_OK;
}

kgen_status kgen__explain_keys(const char *first, const char *second, const char *cache_dir,
                               int json, kgen_error *err) {
    kgen_cache *cache = NULL;
    kgen_entry *a = NULL, *b = NULL;
    kgen_status status = kgen_cache_open(&cache, cache_dir, err);
    if (status == KGEN_OK) status = kgen__entry_find(&a, cache, first, err);
    if (status == KGEN_OK) status = kgen__entry_find(&b, cache, second, err);
    if (status == KGEN_OK) status = print(a, b, json, err);
    kgen_entry_free(a);
    kgen_entry_free(b);
    kgen_cache_close(cache);
    return status;
}

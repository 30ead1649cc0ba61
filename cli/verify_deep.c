/* kgen verify --deep: is each entry what it says, and does a compilation still make it? */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "check/check.h"
#include "cli.h"

typedef struct walking {
    kgen__deep *deep;
    kgen__rng rng;
    kgen_key *sample; /* of those that may be compiled again, each as likely as another */
    size_t wanted, taken, seen;
} walking;

static void note_wrong(kgen__deep *deep, const kgen_entry *entry, const kgen_error *why) {
    char hex[KGEN_KEY_HEX];
    kgen_error err;
    kgen_key_hex(hex, &entry->key);
    json_array_append_new(deep->wrong,
                          json_pack("{s:s, s:s, s:s, s:s}", "key", hex, "spec", entry->spec, "arch",
                                    entry->target, "why", why->text));
    kgen_fail(&err, why->status, "%.12s %.400s @%s: %s", hex, entry->spec, entry->target,
              why->text);
    int code = kgen__cli_fail(&err);
    if (!deep->code) deep->code = code;
}

static void consider(walking *w, const kgen_entry *entry) {
    size_t at =
        w->taken < w->wanted ? w->taken++ : (size_t)kgen__rng_range(&w->rng, 0, (int64_t)w->seen);
    w->seen++;
    if (at < w->wanted) w->sample[at] = entry->key;
}

static int examine(const kgen_entry *entry, void *user) {
    walking *w = user;
    kgen_error why;
    int current;
    w->deep->examined++;
    if (kgen_entry_examine(entry, &current, &why) != KGEN_OK)
        note_wrong(w->deep, entry, &why);
    else if (current)
        consider(w, entry);
    w->deep->current += (size_t)current;
    return 0;
}

static int rebuild(const kgen_entry *entry, void *user) {
    walking *w = user;
    kgen_error why;
    size_t i = 0;
    int rebuilt;
    while (i < w->taken && memcmp(&w->sample[i], &entry->key, sizeof entry->key) != 0) i++;
    if (i == w->taken) return 0;
    if (kgen_entry_rebuild(entry, &rebuilt, &why) != KGEN_OK) note_wrong(w->deep, entry, &why);
    w->deep->rebuilt += (size_t)rebuilt;
    return 0;
}

static kgen_status walk(walking *w, const char *path, kgen_error *err) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = 1;
    kgen__rng_seed(&w->rng, seed, 0);
    w->sample = calloc(w->wanted + 1, sizeof *w->sample);
    if (!w->sample) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu keys", w->wanted);
    kgen_status status = kgen_bundle_each(path, examine, w, err);
    if (status == KGEN_OK && w->taken) status = kgen_bundle_each(path, rebuild, w, err);
    free(w->sample);
    return status;
}

void kgen__verify_deep(kgen__deep *deep, const char *path, size_t wanted) {
    walking w = {.deep = deep, .wanted = wanted};
    kgen_error err;
    *deep = (kgen__deep){.wrong = json_array()};
    if (walk(&w, path, &err) != KGEN_OK) deep->code = kgen__cli_fail(&err);
}

void kgen__deep_print(const kgen__deep *deep) {
    printf("  %zu examined, %zu written by this version, %zu compiled again, %zu wrong\n",
           deep->examined, deep->current, deep->rebuilt, json_array_size(deep->wrong));
}

json_t *kgen__deep_json(const kgen__deep *deep) {
    return json_pack("{s:I, s:I, s:I, s:O}", "examined", (json_int_t)deep->examined, "current",
                     (json_int_t)deep->current, "rebuilt", (json_int_t)deep->rebuilt, "wrong",
                     deep->wrong);
}

/* The cache: a short table of layers, nearest first. A hit is copied into the
 * nearer layers that keep hits; a put goes into every layer that can be written. */
#define _GNU_SOURCE
#include "bundle_parts.h"
#include "remote.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS_MAX = 19 }; /* 16 of others */

typedef struct layer {
    const kgen__layer_ops *ops; /* NULL: refused */
    void *self;
    char *path, *why; /* NULL: none */
} layer;

struct kgen_cache {
    layer layers[LAYERS_MAX];
    size_t layer_count;
    kgen__store *store;            /* also a layer; NULL: memory only */
    kgen_cache_stats stats, noted; /* noted: what the folder's counts have of them */
    pthread_mutex_t noting;
    int probe;               /* of kgen__lock_take */
    kgen_prune_options caps; /* of the environment */
};

/* ------------------------------------------------------------------------ *
 * which directory
 * ------------------------------------------------------------------------ */

/* A relative variable would mean another place after a chdir: not used. */
static const char *absolute_env(const char *name) {
    const char *value = secure_getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

/* *out: free() it; NULL when there is no directory. -1: out of memory. */
static int default_dir(char **out) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"XDG_CACHE_HOME", "kgen"}, {"HOME", ".cache/kgen"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *base = absolute_env(places[i].variable);
        if (base) return asprintf(out, "%s/%s", base, places[i].below) < 0 ? -1 : 0;
    }
    return 0;
}

/* Made absolute now: the process may change its directory later. */
static int given_dir(char **out, const char *dir) {
    if (!dir[0]) return 0;
    char *here = dir[0] == '/' ? NULL : get_current_dir_name();
    int made = asprintf(out, "%s%s%s", here ? here : "", here ? "/" : "", dir);
    free(here);
    return made < 0 ? -1 : 0;
}

static kgen_status find_dir(char **out, const char *dir, kgen_error *err) {
    if (!dir) dir = secure_getenv("KGEN_CACHE_DIR");
    *out = NULL;
    if ((dir ? given_dir(out, dir) : default_dir(out)) != 0)
        return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for a path");
    return KGEN_OK;
}

/* ------------------------------------------------------------------------ *
 * open, close
 * ------------------------------------------------------------------------ */

static layer *add_layer(kgen_cache *cache, const kgen__layer_ops *ops, void *self) {
    layer *added = &cache->layers[cache->layer_count++];
    *added = (layer){.ops = ops, .self = self};
    return added;
}

static kgen_status add_other(kgen_cache *cache, const char *path, size_t length, kgen_error *err) {
    kgen_error why = {KGEN_OK, ""};
    layer *added = add_layer(cache, NULL, NULL);
    added->path = strndup(path, length);
    if (!added->path) return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for a path");
    const kgen__layer_ops *ops = NULL;
    if (kgen__layer_open(&ops, &added->self, added->path, &cache->stats, &why) == KGEN_OK)
        added->ops = ops;
    else if (!(added->why = strdup(why.text)))
        return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for a path");
    return KGEN_OK;
}

/* Paths between colons; an empty one is nothing. */
static kgen_status add_others(kgen_cache *cache, kgen_error *err) {
    const char *at = secure_getenv("KGEN_CACHE_LAYERS");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        if (cache->layer_count + 2 == LAYERS_MAX)
            return kgen_fail(err, KGEN_E_ARG, "KGEN_CACHE_LAYERS: more than %d paths",
                             LAYERS_MAX - 3);
        if (length) KGEN_TRY(add_other(cache, at, length, err));
        at += length + (at[length] == ':');
    }
    return KGEN_OK;
}

/* A password is not shown. */
static char *label_of(const char *url) {
    const char *host = strstr(url, "://"), *at = host ? strrchr(host, '@') : NULL;
    char *label;
    if (!at) return strdup(url);
    return asprintf(&label, "%.*s%s", (int)(host + 3 - url), url, at + 1) < 0 ? NULL : label;
}

static kgen_status add_remote(kgen_cache *cache, kgen_error *err) {
    const char *url = secure_getenv("KGEN_CACHE_REMOTE"),
               *write = secure_getenv("KGEN_CACHE_REMOTE_WRITE");
    kgen_error why = {KGEN_OK, ""};
    kgen__remote *remote = NULL;
    if (!url || !*url) return KGEN_OK;
    layer *added = add_layer(cache, NULL, NULL);
    added->path = label_of(url);
    if (!added->path) return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for a path");
    if (kgen__remote_open(&remote, url, &cache->stats, &why) == KGEN_OK) {
        added->ops = write && strcmp(write, "1") == 0 ? &kgen__remote_write_ops : &kgen__remote_ops;
        added->self = remote;
    } else if (asprintf(&added->why, "KGEN_CACHE_REMOTE %.200s: %s", added->path, why.text) < 0) {
        added->why = NULL;
        return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for a path");
    }
    return KGEN_OK;
}

static kgen_status open_layers(kgen_cache *cache, const char *dir, kgen_error *err) {
    kgen__memory *memory = NULL;
    KGEN_TRY(kgen__caps_take(&cache->caps, err));
    KGEN_TRY(kgen__memory_open(&memory, err));
    add_layer(cache, &kgen__memory_ops, memory);
    KGEN_TRY(add_others(cache, err));
    if (dir) {
        KGEN_TRY(kgen__store_open(&cache->store, dir, &cache->stats, err));
        add_layer(cache, &kgen__store_ops, cache->store);
    }
    return add_remote(cache, err);
}

kgen_status kgen_cache_open(kgen_cache **out, const char *dir, kgen_error *err) {
    char *path = NULL;
    /* Then it takes this machine's vector instructions. */
    if (sodium_init() < 0) return kgen_fail(err, KGEN_E_INTERNAL, "cache: no libsodium");
    KGEN_TRY(find_dir(&path, dir, err));
    kgen_cache *cache = calloc(1, sizeof *cache);
    if (cache) {
        pthread_mutex_init(&cache->noting, NULL);
        cache->probe = -1;
    }
    kgen_status status =
        cache ? open_layers(cache, path, err) : kgen_fail(err, KGEN_E_NOMEM, "cache: no memory");
    free(path);
    if (status == KGEN_OK)
        *out = cache;
    else
        kgen_cache_close(cache);
    return status;
}

void kgen_cache_close(kgen_cache *cache) {
    if (!cache) return;
    kgen_cache_note_use(cache);
    pthread_mutex_destroy(&cache->noting);
    if (cache->probe >= 0) close(cache->probe);
    for (size_t i = 0; i < cache->layer_count; i++) {
        const layer *at = &cache->layers[i];
        if (at->ops) at->ops->close(at->self);
        free(at->path);
        free(at->why);
    }
    free(cache);
}

const char *kgen_cache_dir(const kgen_cache *cache) {
    return cache->store ? kgen__store_dir(cache->store) : NULL;
}

kgen_cache_stats kgen_cache_get_stats(const kgen_cache *cache) {
    kgen_cache_stats out;
    const uint64_t *from = (const uint64_t *)&cache->stats;
    uint64_t *to = (uint64_t *)&out;
    for (size_t i = 0; i < sizeof out / sizeof *to; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    return out;
}

/* A restart that finds everything in layers of others writes nothing. */
static int is_worth_a_note(const kgen_cache_stats *s) {
    return s->hits_user + s->hits_remote + s->published + s->quarantined + s->misses_new +
               s->misses_compiler + s->misses_gone >
           0;
}

void kgen_cache_note_use(kgen_cache *cache) {
    if (!cache->store) return;
    pthread_mutex_lock(&cache->noting);
    kgen_cache_stats now = kgen_cache_get_stats(cache), more = now;
    const uint64_t *noted = (const uint64_t *)&cache->noted;
    uint64_t *at = (uint64_t *)&more;
    for (size_t i = 0; i < sizeof more / sizeof *at; i++) at[i] -= noted[i];
    if (is_worth_a_note(&more) && kgen__counts_add(kgen__store_path(cache->store), &more))
        cache->noted = now;
    pthread_mutex_unlock(&cache->noting);
}

int kgen_cache_get_use(const kgen_cache *cache, kgen_cache_use *out) {
    memset(out, 0, sizeof *out);
    return cache->store && kgen__counts_read(kgen__store_path(cache->store), out);
}

/* ------------------------------------------------------------------------ *
 * get, put, each
 * ------------------------------------------------------------------------ */

/* Failure to keep a copy costs a read the next time, nothing else. Code that goes to a device is
 * read as fast from a file as it would be copied, and is not asked for again soon: only what
 * comes from afar is kept of it. */
static void keep_hit(kgen_cache *cache, size_t found_in, const kgen_entry *entry, int code_only) {
    for (size_t i = 0; i < found_in; i++) {
        const layer *near = &cache->layers[i];
        if (!near->ops || !near->ops->put) continue;
        if ((near->ops->keeps_hits && !code_only) || cache->layers[found_in].ops->is_far)
            (void)near->ops->put(near->self, entry, NULL);
    }
}

kgen_status kgen_cache_get_as(kgen_cache *cache, kgen_entry **out, int *found, const kgen_key *key,
                              int how, kgen_error *err) {
    *out = NULL;
    *found = 0;
    for (size_t i = 0; i < cache->layer_count; i++) {
        const layer *at = &cache->layers[i];
        if (!at->ops || (at->ops->is_far && (how & KGEN_GET_NEAR))) continue;
        KGEN_TRY(at->ops->get(at->self, out, key, how & KGEN_GET_CODE, err));
        if (!*out) continue;
        kgen__count((uint64_t *)((char *)&cache->stats + at->ops->hits));
        keep_hit(cache, i, *out, how & KGEN_GET_CODE);
        *found = 1;
        return KGEN_OK;
    }
    kgen__count(&cache->stats.misses);
    return KGEN_OK;
}

kgen_status kgen_cache_get(kgen_cache *cache, kgen_entry **out, int *found, const kgen_key *key,
                           kgen_error *err) {
    return kgen_cache_get_as(cache, out, found, key, 0, err);
}

kgen_status kgen_cache_put(kgen_cache *cache, const kgen_entry *entry, kgen_error *err) {
    KGEN_TRY(kgen__entry_check(entry, err));
    kgen_entry whole = *entry;
    kgen_source_digest(whole.source_digest, entry->source ? entry->source : "", entry->source_size);
    kgen_status first = KGEN_OK;
    for (size_t i = 0; i < cache->layer_count; i++) {
        const layer *at = &cache->layers[i];
        if (!at->ops || !at->ops->put) continue;
        kgen_status status = at->ops->put(at->self, &whole, first == KGEN_OK ? err : NULL);
        if (first == KGEN_OK) first = status;
    }
    return first;
}

/* A note may be old, or forged: the entry itself says what it was made of. */
static int is_made_of(const kgen_entry *entry, const kgen_source *source) {
    uint8_t wanted[KGEN_SOURCE_DIGEST_BYTES];
    if (strcmp(entry->target, source->target->name) != 0) return 0;
    kgen__source_tokens(wanted, source);
    return memcmp(entry->source_digest, wanted, sizeof wanted) == 0;
}

kgen_status kgen_cache_get_made(kgen_cache *cache, kgen_entry **out, int *found,
                                const kgen_source *source, const char *const *flags,
                                size_t flag_count, int how, kgen_error *err) {
    kgen_key recipe, key;
    *out = NULL;
    *found = 0;
    kgen__recipe_make(&recipe, source, flags, flag_count);
    for (size_t i = 0; i < cache->layer_count; i++) {
        const layer *at = &cache->layers[i];
        if (!at->ops || !at->ops->find || !at->ops->find(at->self, &key, &recipe)) continue;
        KGEN_TRY(kgen_cache_get_as(cache, out, found, &key, how, err));
        if (*found && is_made_of(*out, source)) return KGEN_OK;
        kgen_entry_free(*out);
        *out = NULL;
        *found = 0;
    }
    return KGEN_OK;
}

static int is_noted(kgen_cache *cache, const kgen_key *recipe, const kgen_key *key) {
    kgen_key known;
    for (size_t i = 0; i < cache->layer_count; i++) {
        const layer *at = &cache->layers[i];
        if (at->ops && at->ops->find && at->ops->find(at->self, &known, recipe) &&
            memcmp(&known, key, sizeof known) == 0)
            return 1;
    }
    return 0;
}

int kgen_cache_was_made(kgen_cache *cache, const kgen_source *source, const char *const *flags,
                        size_t flag_count, const kgen_key *key) {
    kgen_key recipe;
    kgen__recipe_make(&recipe, source, flags, flag_count);
    return is_noted(cache, &recipe, key);
}

void kgen_cache_note_made(kgen_cache *cache, const kgen_source *source, const char *const *flags,
                          size_t flag_count, const kgen_key *key) {
    kgen_key recipe;
    kgen__recipe_make(&recipe, source, flags, flag_count);
    if (cache->store && !is_noted(cache, &recipe, key))
        (void)kgen__recipe_write(kgen__store_path(cache->store), &recipe, key);
}

/* The nearest note of what it is made of tells. */
void kgen_cache_note_miss(kgen_cache *cache, const kgen_source *source, const char *const *flags,
                          size_t flag_count, const kgen_key *key) {
    kgen_key recipe, known;
    uint64_t *reason = &cache->stats.misses_new;
    if (key) kgen__recipe_make(&recipe, source, flags, flag_count);
    for (size_t i = 0; key && i < cache->layer_count; i++) {
        const layer *at = &cache->layers[i];
        if (!at->ops || !at->ops->find || !at->ops->find(at->self, &known, &recipe)) continue;
        int is_same = memcmp(&known, key, sizeof known) == 0;
        reason = is_same ? &cache->stats.misses_gone : &cache->stats.misses_compiler;
        if (is_same) break;
    }
    kgen__count(reason);
}

int kgen_cache_lock(kgen_cache *cache, const kgen_key *key) {
    if (!cache->store) return KGEN_LOCK_NONE;
    return kgen__lock_take(kgen__store_path(cache->store), &cache->probe, key);
}

int kgen_cache_is_locked(const kgen_cache *cache, const kgen_key *key) {
    return kgen__lock_is_held(&cache->probe, key);
}

void kgen_cache_await(const kgen_cache *cache, const kgen_key *key, int ms) {
    kgen__lock_await(&cache->probe, key, ms);
}

void kgen_cache_unlock(int lock, const kgen_key *key) {
    if (lock >= 0) kgen__lock_free(lock, key);
}

static kgen_status check_prefix(char out[KGEN_KEY_HEX], const char *prefix, kgen_error *err) {
    size_t length = strlen(prefix);
    if (length >= KGEN_KEY_HEX || strspn(prefix, "0123456789abcdefABCDEF") != length)
        return kgen_fail(err, KGEN_E_ARG, "prefix=%.80s: must be at most %d hex digits", prefix,
                         KGEN_KEY_HEX - 1);
    for (size_t i = 0; i <= length; i++)
        out[i] = (char)(prefix[i] >= 'A' && prefix[i] <= 'F' ? prefix[i] + ('a' - 'A') : prefix[i]);
    return KGEN_OK;
}

kgen_status kgen_cache_each(kgen_cache *cache, const char *prefix,
                            int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user),
                            void *user, kgen_error *err) {
    char lower[KGEN_KEY_HEX];
    KGEN_TRY(check_prefix(lower, prefix, err));
    return cache->store ? kgen__store_each(cache->store, lower, visit, user, err) : KGEN_OK;
}

kgen_status kgen_cache_list(kgen_cache *cache, const char *prefix,
                            int (*visit)(const kgen_entry *entry, size_t file_bytes, void *user),
                            void *user, kgen_error *err) {
    char lower[KGEN_KEY_HEX];
    KGEN_TRY(check_prefix(lower, prefix, err));
    if (!cache->store) return KGEN_OK;
    return kgen__heads_each(kgen__store_path(cache->store), lower, visit, user, err);
}

kgen_status kgen_cache_examine(kgen_cache *cache, kgen_cache_health *out, kgen_error *err) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < cache->layer_count; i++)
        if (cache->layers[i].ops && cache->layers[i].ops->is_far)
            (void)kgen__remote_test(cache->layers[i].self, &out->remote);
    if (cache->store) return kgen__folder_examine(kgen__store_path(cache->store), out, err);
    kgen_fail(&out->cannot_save, KGEN_E_IO,
              "cache: no folder: KGEN_CACHE_DIR is empty, or neither it, XDG_CACHE_HOME nor HOME "
              "is an absolute path");
    return KGEN_OK;
}

int kgen_cache_layer_at(const kgen_cache *cache, size_t i, kgen_cache_layer *out) {
    static const struct {
        const kgen__layer_ops *ops;
        const char *kind;
    } kinds[] = {{NULL, "refused"},
                 {&kgen__memory_ops, "memory"},
                 {&kgen__bundle_ops, "bundle"},
                 {&kgen__system_ops, "folder"},
                 {&kgen__store_ops, "user"},
                 {&kgen__remote_ops, "remote"},
                 {&kgen__remote_write_ops, "remote"}};
    if (i >= cache->layer_count) return 0;
    const layer *at = &cache->layers[i];
    *out = (kgen_cache_layer){at->path ? at->path : "", "", at->why ? at->why : ""};
    if (at->ops == &kgen__store_ops) out->path = kgen__store_path(cache->store);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (kinds[k].ops == at->ops) out->kind = kinds[k].kind;
    return 1;
}

kgen_status kgen_cache_prune(kgen_cache *cache, const kgen_prune_options *options,
                             kgen_prune_counts *counts, kgen_error *err) {
    kgen_prune_options taken;
    memset(counts, 0, sizeof *counts);
    KGEN_TRY(kgen_struct_take(&taken, sizeof taken, options, "kgen_prune_options", err));
    if (!cache->store) return KGEN_OK;
    return kgen__prune(kgen__store_path(cache->store), &taken, counts, err);
}

kgen_status kgen_cache_trim(kgen_cache *cache, kgen_error *err) {
    kgen_prune_counts counts;
    if (!cache->caps.max_bytes && !cache->caps.max_entries) return KGEN_OK;
    return kgen_cache_prune(cache, &cache->caps, &counts, err);
}

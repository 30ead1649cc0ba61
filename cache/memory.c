/* The memory layer: a table of entries behind one mutex. */
#include "layer.h"

#include <pthread.h>
#include <stdlib.h>

/* uthash ends the process when it runs out of memory, unless told otherwise. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(item) ((item)->lost = 1)
#include <uthash.h>

typedef struct item {
    kgen_entry *entry;
    int lost; /* the table had no room for it */
    UT_hash_handle hh;
} item;

struct kgen__memory {
    pthread_mutex_t mutex;
    item *items;
};

kgen_status kgen__memory_open(kgen__memory **out, kgen_error *err) {
    kgen__memory *memory = calloc(1, sizeof *memory);
    if (!memory) return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for a table");
    pthread_mutex_init(&memory->mutex, NULL);
    *out = memory;
    return KGEN_OK;
}

static void memory_close(void *self) {
    kgen__memory *memory = self;
    item *at, *next;
    HASH_ITER(hh, memory->items, at, next) {
        HASH_DEL(memory->items, at);
        kgen_entry_free(at->entry);
        free(at);
    }
    pthread_mutex_destroy(&memory->mutex);
    free(memory);
}

static item *find(kgen__memory *memory, const kgen_key *key) {
    item *found = NULL;
    HASH_FIND(hh, memory->items, key->bytes, KGEN_KEY_BYTES, found);
    return found;
}

/* An entry that was read without its source is none for who wants that. */
static kgen_status memory_get(void *self, kgen_entry **out, const kgen_key *key, int code_only,
                              kgen_error *err) {
    kgen__memory *memory = self;
    pthread_mutex_lock(&memory->mutex);
    item *found = find(memory, key);
    if (found && !code_only && !found->entry->source) found = NULL;
    if (found) *out = kgen__entry_copy(found->entry, code_only);
    pthread_mutex_unlock(&memory->mutex);
    if (found && !*out) return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for an entry");
    return KGEN_OK;
}

/* Takes `copy` over when it returns 1. */
static int add(kgen__memory *memory, kgen_entry *copy) {
    item *fresh = calloc(1, sizeof *fresh);
    if (!fresh) return 0;
    fresh->entry = copy;
    HASH_ADD_KEYPTR(hh, memory->items, copy->key.bytes, KGEN_KEY_BYTES, fresh);
    if (!fresh->lost) return 1;
    free(fresh);
    return 0;
}

static void drop(kgen__memory *memory, item *old) {
    HASH_DEL(memory->items, old);
    kgen_entry_free(old->entry);
    free(old);
}

static kgen_status memory_put(void *self, const kgen_entry *entry, kgen_error *err) {
    kgen__memory *memory = self;
    kgen_entry *copy = kgen__entry_copy(entry, 0);
    int added = 0;
    if (copy) {
        pthread_mutex_lock(&memory->mutex);
        item *old = find(memory, &entry->key);
        if (old) drop(memory, old);
        added = add(memory, copy);
        pthread_mutex_unlock(&memory->mutex);
    }
    if (added) return KGEN_OK;
    kgen_entry_free(copy);
    return kgen_fail(err, KGEN_E_NOMEM, "cache: no memory for an entry");
}

const kgen__layer_ops kgen__memory_ops = {
    .hits = offsetof(kgen_cache_stats, hits_memory),
    .keeps_hits = 1,
    .get = memory_get,
    .put = memory_put,
    .close = memory_close,
};

/* kgen_find: open addressing over entries that never change, but for the kernel
 * they lead to, and never go away before the table does. A reader sees an entry
 * whole or not at all; a table that grows is replaced, and the old one kept for
 * those who still read it. */
#include "find.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 64 };

typedef struct entry {
    uint64_t hash;
    kgen_problem problem;
    kgen_spec spec;
    _Atomic(kgen_kernel *) kernel; /* NULL: it was released */
} entry;

typedef struct slots {
    struct slots *older;
    size_t count, used; /* count: a power of two, at least twice what is used */
    _Atomic(entry *) at[];
} slots;

struct kgen__finder {
    _Atomic(slots *) now;
};

/* A spec's own bytes: the rest of the union says nothing. */
static const size_t spec_bytes[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = sizeof(kgen_##name##_spec),
#include <kgen/families.def>
};

#define KGEN_FAMILY(name, NAME)                                                \
    _Static_assert(sizeof(kgen_##name##_spec) % 4 == 0 &&                      \
                       offsetof(kgen_spec, name) == offsetof(kgen_spec, attn), \
                   "specs are words that begin at one place");
#include <kgen/families.def>

static const unsigned char *bytes_of(const kgen_spec *spec) {
    return (const unsigned char *)&spec->attn;
}

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t word_at(const unsigned char *bytes, size_t size) {
    uint64_t word = 0;
    memcpy(&word, bytes, size);
    return word;
}

/* Four sums at once: a look-up waits for nothing but this. */
static uint64_t hash_of(const kgen_spec *spec, const kgen_problem *problem) {
    const unsigned char *bytes = bytes_of(spec);
    size_t size = spec_bytes[spec->family], i = 0;
    uint64_t a = mix(spec->family, (uint64_t)problem->batch << 32 | (uint32_t)problem->context);
    uint64_t b = (uint64_t)problem->heads, c = 1, d = 2;
    for (; i + 32 <= size; i += 32) {
        a = mix(a, word_at(bytes + i, 8));
        b = mix(b, word_at(bytes + i + 8, 8));
        c = mix(c, word_at(bytes + i + 16, 8));
        d = mix(d, word_at(bytes + i + 24, 8));
    }
    for (; i < size; i += 4) a = mix(a, word_at(bytes + i, 4));
    return mix(mix(a, b), mix(c, d));
}

static int is_same(const entry *e, uint64_t hash, const kgen_spec *spec,
                   const kgen_problem *problem) {
    return e->hash == hash && e->spec.family == spec->family &&
           memcmp(&e->problem, problem, sizeof *problem) == 0 &&
           memcmp(bytes_of(&e->spec), bytes_of(spec), spec_bytes[spec->family]) == 0;
}

/* The entry, or NULL and the free place where it belongs. */
static entry *look_up(const slots *s, uint64_t hash, const kgen_spec *spec,
                      const kgen_problem *problem, size_t *place) {
    entry *e;
    size_t i = hash & (s->count - 1);
    for (; (e = atomic_load_explicit(&s->at[i], memory_order_acquire));
         i = (i + 1) & (s->count - 1))
        if (is_same(e, hash, spec, problem)) break;
    *place = i;
    return e;
}

kgen_kernel *kgen__finder_get(const kgen__finder *finder, const kgen_spec *spec,
                              const kgen_problem *problem) {
    size_t place;
    if ((unsigned)spec->family >= KGEN_FAMILY_COUNT) return NULL;
    const slots *s = atomic_load_explicit(&finder->now, memory_order_acquire);
    const entry *e = look_up(s, hash_of(spec, problem), spec, problem, &place);
    return e ? atomic_load_explicit(&e->kernel, memory_order_acquire) : NULL;
}

/* ---- writing ------------------------------------------------------------------ */

static slots *new_slots(size_t count) {
    slots *s = calloc(1, sizeof *s + count * sizeof s->at[0]);
    if (s) s->count = count;
    return s;
}

static void insert(slots *s, entry *e) {
    size_t place;
    look_up(s, e->hash, &e->spec, &e->problem, &place);
    atomic_store_explicit(&s->at[place], e, memory_order_release);
    s->used++;
}

/* Makes room for one more. 0: out of memory. */
static int make_room(kgen__finder *finder) {
    slots *old = atomic_load_explicit(&finder->now, memory_order_relaxed);
    if (2 * (old->used + 1) <= old->count) return 1;
    slots *s = new_slots(2 * old->count);
    if (!s) return 0;
    for (size_t i = 0; i < old->count; i++) {
        entry *e = atomic_load_explicit(&old->at[i], memory_order_relaxed);
        if (e) insert(s, e);
    }
    s->older = old;
    atomic_store_explicit(&finder->now, s, memory_order_release);
    return 1;
}

kgen_status kgen__finder_make(kgen__finder **out, kgen_error *err) {
    kgen__finder *finder = calloc(1, sizeof *finder);
    slots *s = finder ? new_slots(SLOTS_FIRST) : NULL;
    if (!s) {
        free(finder);
        return kgen_fail(err, KGEN_E_NOMEM, "table of kernels: out of memory");
    }
    atomic_store(&finder->now, s);
    *out = finder;
    return KGEN_OK;
}

kgen_status kgen__finder_put(kgen__finder *finder, const kgen_spec *spec,
                             const kgen_problem *problem, kgen_kernel *kernel, int replace,
                             kgen_error *err) {
    size_t place;
    uint64_t hash = hash_of(spec, problem);
    entry *e = look_up(atomic_load(&finder->now), hash, spec, problem, &place);
    if (e) {
        if (replace || !atomic_load(&e->kernel)) atomic_store(&e->kernel, kernel);
        return KGEN_OK;
    }
    e = calloc(1, sizeof *e);
    if (!e || !make_room(finder)) {
        free(e);
        return kgen_fail(err, KGEN_E_NOMEM, "table of kernels: out of memory");
    }
    e->hash = hash;
    e->problem = *problem;
    e->spec = *spec;
    atomic_init(&e->kernel, kernel);
    insert(atomic_load(&finder->now), e);
    return KGEN_OK;
}

/* Says nothing about tuning, nor about a size: any kernel of these shapes will do. */
static int takes_any(const entry *e) {
    static const kgen_problem unknown;
    kgen_spec open = e->spec;
    kgen_spec_open_tuning(&open);
    return memcmp(bytes_of(&open), bytes_of(&e->spec), spec_bytes[open.family]) == 0 &&
           memcmp(&e->problem, &unknown, sizeof unknown) == 0;
}

void kgen__finder_forget(kgen__finder *finder, const kgen_kernel *kernel, kgen_kernel *heir) {
    slots *s = atomic_load(&finder->now);
    for (size_t i = 0; i < s->count; i++) {
        entry *e = atomic_load(&s->at[i]);
        if (e && atomic_load(&e->kernel) == kernel)
            atomic_store(&e->kernel, takes_any(e) ? heir : NULL);
    }
}

void kgen__finder_free(kgen__finder *finder) {
    if (!finder) return;
    slots *s = atomic_load(&finder->now);
    for (size_t i = 0; i < s->count; i++) free(atomic_load(&s->at[i]));
    for (slots *older; s; s = older) {
        older = s->older;
        free(s);
    }
    free(finder);
}

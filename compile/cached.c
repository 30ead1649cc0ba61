/* What the cache has of a job: by its key, or without a compiler by what it was made of. */
#include "unit.h"

#include <string.h>

static size_t count_of(const char *const *flags) {
    size_t count = 0;
    while (flags[count]) count++;
    return count;
}

void kgen__wanted_key(kgen__wanted *wanted) {
    kgen_key_make(&wanted->key, wanted->source, wanted->flags, count_of(wanted->flags),
                  wanted->toolchain->id);
}

/* In the order in which compilers are looked for, with the flags that each would get. What
 * cannot be read is compiled, so its error is not kept. */
static int get_made(const kgen__wanted *wanted, kgen_entry **out) {
    int found = 0;
    for (int c = KGEN_TOOLCHAIN_HIPRTC; c <= KGEN_TOOLCHAIN_NVRTC && !found; c++) {
        const char *const *flags = kgen_target_flags(wanted->source->target, (kgen_compiler)c);
        size_t count = count_of(flags);
        if (count && kgen_cache_get_made(wanted->cache, out, &found, wanted->source, flags, count,
                                         wanted->how, NULL) != KGEN_OK)
            found = 0;
    }
    return found;
}

static int get_by_key(const kgen__wanted *wanted, kgen_entry **out) {
    int found = 0;
    return kgen_cache_get_as(wanted->cache, out, &found, &wanted->key, wanted->how, NULL) ==
               KGEN_OK &&
           found;
}

int kgen__lookup(const kgen__wanted *wanted, kgen_entry **out, kgen_error *err) {
    *out = NULL;
    if (!(wanted->toolchain ? get_by_key(wanted, out) : get_made(wanted, out))) {
        *out = NULL;
        return 0;
    }
    const kgen_source *source = wanted->source;
    if (kgen__gate(&(*out)->resources, source->target, source->workgroup_size,
                   kgen_spec_occupancy(&source->spec), wanted->allow_spills, err) == KGEN_OK)
        return 1;
    kgen_entry_free(*out);
    *out = NULL;
    return 1;
}

void kgen__lookup_missed(const kgen__wanted *wanted) {
    kgen_cache_note_miss(wanted->cache, wanted->source, wanted->flags,
                         wanted->toolchain ? count_of(wanted->flags) : 0,
                         wanted->toolchain ? &wanted->key : NULL);
}

void kgen__lookup_note(const kgen__wanted *wanted) {
    kgen_cache_note_made(wanted->cache, wanted->source, wanted->flags, count_of(wanted->flags),
                         &wanted->key);
}

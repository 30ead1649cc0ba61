/* The table behind kgen_find, with handles that are only numbers: what is found,
 * and threads that look while it grows. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "runtime/find.h"
#include "seed.h"

enum { SPECS = 3000, READERS = 3 };

static const kgen_problem unknown;
static kgen__rng rng;
static char handles[SPECS]; /* a kernel is an address here */

static kgen_kernel *handle(int i) { return (kgen_kernel *)(void *)&handles[i]; }

/* The i-th spec: all differ, and the rest of the union is noise. */
static kgen_spec spec_at(int i) {
    kgen_spec spec;
    memset(&spec, i * 31 + 7, sizeof spec);
    spec.family = i % 2 ? KGEN_FAMILY_SCATTER : KGEN_FAMILY_ATTN;
    if (i % 2) {
        memset(&spec.scatter, 0, sizeof spec.scatter);
        spec.scatter.page = i / 2;
    } else {
        memset(&spec.attn, 0, sizeof spec.attn);
        spec.attn.head_dim = i / 2 % 50;
        spec.attn.group = i / 100;
    }
    return spec;
}

static kgen__finder *made(void) {
    kgen__finder *finder;
    assert_int_equal(kgen__finder_make(&finder, NULL), KGEN_OK);
    return finder;
}

static void put(kgen__finder *finder, int i, int replace, kgen_kernel *kernel) {
    kgen_spec spec = spec_at(i);
    assert_int_equal(kgen__finder_put(finder, &spec, &unknown, kernel, replace, NULL), KGEN_OK);
}

static kgen_kernel *get(const kgen__finder *finder, int i) {
    kgen_spec spec = spec_at(i), noisy = spec;
    size_t used = i % 2 ? sizeof spec.scatter : sizeof spec.attn;
    memset((char *)&noisy.attn + used, 0x5a, sizeof noisy - offsetof(kgen_spec, attn) - used);
    kgen_kernel *found = kgen__finder_get(finder, &spec, &unknown);
    assert_ptr_equal(kgen__finder_get(finder, &noisy, &unknown), found);
    return found;
}

static void test_all_are_found(void **state) {
    kgen__finder *finder = made();
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        assert_null(get(finder, i));
        put(finder, i, 0, handle(i));
    }
    for (int i = 0; i < SPECS; i++) assert_ptr_equal(get(finder, i), handle(i));
    kgen__finder_free(finder);
    kgen__finder_free(NULL);
}

static void test_problems_and_precedence(void **state) {
    kgen__finder *finder = made();
    const kgen_problem eight = {8, 1024, 2}, swapped = {1024, 8, 2};
    kgen_spec spec = spec_at(4), none = spec;
    (void)state;
    put(finder, 4, 0, handle(0));
    put(finder, 4, 0, handle(1)); /* there is one */
    assert_ptr_equal(get(finder, 4), handle(0));
    put(finder, 4, 1, handle(2));
    assert_ptr_equal(get(finder, 4), handle(2));
    assert_null(kgen__finder_get(finder, &spec, &eight));
    assert_int_equal(kgen__finder_put(finder, &spec, &eight, handle(3), 0, NULL), KGEN_OK);
    assert_ptr_equal(kgen__finder_get(finder, &spec, &eight), handle(3));
    assert_null(kgen__finder_get(finder, &spec, &swapped));
    kgen__finder_forget(finder, handle(2), handle(6));
    assert_ptr_equal(get(finder, 4), handle(6)); /* no tuning key is set */
    kgen__finder_forget(finder, handle(3), handle(6));
    assert_null(kgen__finder_get(finder, &spec, &eight));
    kgen__finder_forget(finder, handle(6), NULL);
    assert_null(get(finder, 4));
    put(finder, 4, 0, handle(5)); /* in the place of what was forgotten */
    assert_ptr_equal(get(finder, 4), handle(5));
    none.family = KGEN_FAMILY_COUNT;
    assert_null(kgen__finder_get(finder, &none, &unknown));
    none.family = (kgen_family_id)-1;
    assert_null(kgen__finder_get(finder, &none, &unknown));
    kgen__finder_free(finder);
}

/* ---- threads ------------------------------------------------------------------- */

typedef struct race {
    kgen__finder *finder;
    atomic_int published, stop; /* specs below `published` have been put */
    atomic_long wrong, looks;
} race;

static void *look(void *user) {
    race *r = user;
    unsigned draw = (unsigned)(uintptr_t)&draw >> 4;
    while (!atomic_load(&r->stop)) {
        int below = atomic_load(&r->published);
        draw = draw * 1664525u + 1013904223u;
        int i = (int)(draw >> 8) % SPECS;
        kgen_spec spec = spec_at(i);
        kgen_kernel *found = kgen__finder_get(r->finder, &spec, &unknown);
        int forgotten = i % 7 == 0; /* comes and goes */
        if (found ? found != handle(i) : i < below && !forgotten) atomic_fetch_add(&r->wrong, 1);
        atomic_fetch_add(&r->looks, 1);
    }
    return NULL;
}

static void test_readers_while_it_grows(void **state) {
    race r = {.finder = made()};
    pthread_t readers[READERS];
    (void)state;
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, look, &r), 0);
    for (int i = 0; i < SPECS; i++) {
        put(r.finder, i, 0, handle(i));
        atomic_store(&r.published, i + 1);
        if (i % 7 == 0) kgen__finder_forget(r.finder, handle(i), NULL);
        if (i % 14 == 0) put(r.finder, i, 0, handle(i));
    }
    while (atomic_load(&r.looks) == 0) sched_yield(); /* readers begin when they may */
    atomic_store(&r.stop, 1);
    for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
    assert_int_equal(atomic_load(&r.wrong), 0);
    kgen__finder_free(r.finder);
}

/* Specs that differ in one word, a bit or two apart, as real ones do. */
static void test_neighbours_differ(void **state) {
    kgen__finder *finder = made();
    (void)state;
    for (int n = 0; n < SPECS; n++) {
        kgen_spec spec, near;
        memset(&spec, 0, sizeof spec);
        int words = (int)(sizeof spec.attn / 4);
        for (int w = 0; w < words; w++)
            ((int32_t *)&spec.attn)[w] = (int32_t)kgen__rng_range(&rng, -1, 512);
        near = spec;
        ((int32_t *)&near.attn)[kgen__rng_range(&rng, 0, words - 1)] ^=
            1 << kgen__rng_range(&rng, 0, 30);
        assert_int_equal(kgen__finder_put(finder, &spec, &unknown, handle(n), 0, NULL), KGEN_OK);
        assert_ptr_equal(kgen__finder_get(finder, &spec, &unknown), handle(n));
        assert_null(kgen__finder_get(finder, &near, &unknown));
    }
    kgen__finder_free(finder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_found),
        cmocka_unit_test(test_problems_and_precedence),
        cmocka_unit_test(test_neighbours_differ),
        cmocka_unit_test(test_readers_while_it_grows),
    };
    kgen__rng_seed(&rng, test_seed(), 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

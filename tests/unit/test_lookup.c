/* What kgen_build takes out of a cache: the gate of a compilation is the gate of a hit,
 * and without a compiler the last one's object is taken, not any. Nothing is compiled. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <kgen/build.h>

#include "compile/unit.h"
#include "seed.h"

static const char *const flags[] = {"-one", "-two"};
static const char line[] = "scatter:op=draft_lens";
static char folder[] = "/tmp/kgen-test-lookup-XXXXXX";
static char dir[64];

static const kgen_target *target_of(const char *name) {
    const kgen_target *target = NULL;
    assert_int_equal(kgen_target_find(&target, name, NULL), KGEN_OK);
    return target;
}

static kgen_job job_of(const char *spec) {
    kgen_job job = {.target = target_of("cpu:cdna3")};
    assert_int_equal(kgen_spec_parse(&job.spec, spec, NULL), KGEN_OK);
    return job;
}

static kgen_source source_of(const char *spec) {
    kgen_source source = {0};
    kgen_job job = job_of(spec);
    assert_int_equal(kgen_source_render(&source, &job.spec, job.target, NULL), KGEN_OK);
    return source;
}

static int fresh(void **state) {
    static int number;
    (void)state;
    snprintf(dir, sizeof dir, "%s/%d", folder, number++);
    return 0;
}

static kgen_cache *open_cache(void) {
    kgen_cache *cache = NULL;
    assert_int_equal(kgen_cache_open(&cache, dir, NULL), KGEN_OK);
    return cache;
}

/* An entry of `source` whose code says who made it. */
static void put(kgen_cache *cache, const kgen_key *key, const kgen_source *source, int maker,
                int scratch_bytes) {
    uint8_t code[16];
    memset(code, maker, sizeof code);
    kgen_entry entry = {.key = *key,
                        .resources = {.scratch_bytes = scratch_bytes, .workgroup_size = -1},
                        .code = code,
                        .code_size = sizeof code,
                        .source = source->text,
                        .source_size = source->size};
    strcpy(entry.target, source->target->name);
    strcpy(entry.symbol, source->symbol);
    kgen_error err = {0};
    if (kgen_cache_put(cache, &entry, &err) != KGEN_OK) fail_msg("put: %s", err.text);
}

static kgen_status build_with(kgen_cache *cache, const kgen_build_options *options,
                              kgen_job_result *result) {
    kgen_job job = job_of(line);
    return kgen_build(cache, &job, 1, options, result, NULL);
}

/* --allow-spills of one user must not disarm the gate of the next. */
static void a_hit_that_spills_is_refused(void **state) {
    (void)state;
    kgen_key key;
    kgen_job job = job_of(line);
    kgen_source source = source_of(line);
    kgen_job_result result;
    if (kgen_job_key(&key, &job, NULL) != KGEN_OK) {
        print_message("skipped, no clang\n");
        kgen_source_free(&source);
        skip();
    }
    const kgen_build_options rows[] = {
        {.size = sizeof rows[0], .allow_spills = 1},
        {.size = sizeof rows[0]},
        {.size = sizeof rows[0], .only_cached = 1},
        {.size = sizeof rows[0], .offline = 1},
        {.size = sizeof rows[0], .offline = 1, .allow_spills = 1},
    };
    kgen_cache *cache = open_cache();
    put(cache, &key, &source, 1, 16);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kgen_status status = build_with(cache, &rows[i], &result);
        assert_int_equal(status, rows[i].allow_spills ? KGEN_OK : KGEN_E_BUDGET);
        assert_int_equal(result.outcome, status == KGEN_OK ? KGEN_JOB_CACHED : KGEN_JOB_FAILED);
        if (status != KGEN_OK) assert_non_null(strstr(result.error.text, "16 bytes of scratch"));
        assert_true((result.entry == NULL) == (status != KGEN_OK));
        kgen_entry_free(result.entry);
    }
    kgen_cache_close(cache);
    kgen_source_free(&source);
}

/* 0: not found, else who made it. */
static int made(kgen_cache *cache, const kgen_source *source, size_t flag_count) {
    kgen_entry *entry = NULL;
    int found = 0;
    assert_int_equal(kgen_cache_get_made(cache, &entry, &found, source, flags, flag_count, 0, NULL),
                     KGEN_OK);
    int maker = found ? entry->code[0] : 0;
    assert_true(found || !entry);
    kgen_entry_free(entry);
    return maker;
}

/* Seven compilers made it: the one that was asked last decides, and no other flags. */
static void the_last_compiler_decides(void **state) {
    (void)state;
    enum { MAKERS = 7 };
    kgen_key keys[MAKERS];
    kgen_source source = source_of(line);
    kgen_cache *cache = open_cache();
    for (int i = 0; i < MAKERS; i++) {
        char id[16];
        snprintf(id, sizeof id, "clang %d", i);
        kgen_key_make(&keys[i], &source, flags, 2, id);
        put(cache, &keys[i], &source, 1 + i, 0);
        if (i == 0) assert_int_equal(made(cache, &source, 2), 0); /* nothing says so yet */
        kgen_cache_note_made(cache, &source, flags, 2, &keys[i]);
        assert_int_equal(made(cache, &source, 2), 1 + i);
    }
    int again = rand() % MAKERS;
    kgen_cache_note_made(cache, &source, flags, 2, &keys[again]);
    kgen_cache_close(cache);
    cache = open_cache(); /* another process */
    assert_int_equal(made(cache, &source, 2), 1 + again);
    assert_int_equal(made(cache, &source, 1), 0);
    kgen_cache_close(cache);
    kgen_source_free(&source);
}

/* A note may point at another kernel's object, or be damaged. */
static void a_note_that_lies_is_a_miss(void **state) {
    (void)state;
    kgen_key key;
    char command[160];
    kgen_source source = source_of(line), other = source_of("scatter:op=cache_locs");
    kgen_cache *cache = open_cache();
    kgen_key_make(&key, &other, flags, 2, "clang");
    put(cache, &key, &other, 1, 0);
    kgen_cache_note_made(cache, &source, flags, 2, &key);
    assert_int_equal(made(cache, &source, 2), 0);
    kgen_key_make(&key, &source, flags, 2, "clang");
    put(cache, &key, &source, 2, 0);
    kgen_cache_note_made(cache, &source, flags, 2, &key);
    assert_int_equal(made(cache, &source, 2), 2);
    snprintf(command, sizeof command,
             "for f in %s/*/*.made; do printf x | dd of=$f bs=1 seek=%d "
             "conv=notrunc status=none; done",
             dir, rand() % 64);
    assert_int_equal(system(command), 0);
    assert_int_equal(made(cache, &source, 2), 0);
    kgen_cache_note_made(cache, &source, flags, 2, &key);
    assert_int_equal(made(cache, &source, 2), 2);
    kgen_cache_close(cache);
    kgen_source_free(&source);
    kgen_source_free(&other);
}

/* Offline looks for no compiler, with or without one there. */
static void offline_is_what_was_made(void **state) {
    (void)state;
    kgen_key key;
    kgen_job_result result;
    kgen_source source = source_of(line);
    const char *const *real = kgen_target_flags(source.target, KGEN_TOOLCHAIN_CLANG);
    size_t count = 0;
    while (real[count]) count++;
    const kgen_build_options offline = {.size = sizeof offline, .offline = 1};
    kgen_cache *cache = open_cache();
    kgen_key_make(&key, &source, real, count, "a compiler that nobody has");
    put(cache, &key, &source, 3, 0);
    assert_int_equal(build_with(cache, &offline, &result), KGEN_E_NOT_CACHED);
    kgen_cache_note_made(cache, &source, real, count, &key);
    assert_int_equal(build_with(cache, &offline, &result), KGEN_OK);
    assert_int_equal(result.outcome, KGEN_JOB_CACHED);
    assert_int_equal(result.entry->code[0], 3);
    kgen_entry_free(result.entry);
    kgen_cache_close(cache);
    kgen_source_free(&source);
}

/* Two threads of one process exclude each other as two processes do. */
static void a_lock_is_of_one_key(void **state) {
    (void)state;
    kgen_cache *a = open_cache(), *b = open_cache();
    kgen_key key = {{1}}, other = {{2}};
    int held = kgen_cache_lock(a, &key), next;
    assert_true(held > 2);
    assert_int_equal(kgen_cache_lock(b, &key), KGEN_LOCK_BUSY);
    assert_int_equal(kgen_cache_lock(a, &key), KGEN_LOCK_BUSY);
    assert_true((next = kgen_cache_lock(b, &other)) > 2);
    close(held);
    assert_true((held = kgen_cache_lock(b, &key)) > 2);
    assert_int_equal(kgen_cache_lock(a, &key), KGEN_LOCK_BUSY); /* asked by what asked before */
    close(held);
    assert_true((held = kgen_cache_lock(a, &key)) > 2);
    close(held);
    close(next);
    kgen_cache_close(a);
    kgen_cache_close(b);
    assert_int_equal(kgen_cache_open(&a, "", NULL), KGEN_OK);
    assert_int_equal(kgen_cache_lock(a, &key), KGEN_LOCK_NONE);
    kgen_cache_close(a);
}

typedef struct sleeper {
    kgen_cache *cache;
    const kgen_key *key;
    double slept; /* seconds */
} sleeper;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *sleep_on(void *of) {
    enum { LONG_MS = 20000 };
    sleeper *s = of;
    double start = seconds_now();
    while (kgen_cache_is_locked(s->cache, s->key)) kgen_cache_await(s->cache, s->key, LONG_MS);
    s->slept = seconds_now() - start;
    return NULL;
}

/* Long before its time, and whether it sleeps yet or not. */
static void who_waits_is_woken(void **state) {
    enum { SLEEPERS = 6, ROUNDS = 20 };
    (void)state;
    kgen_cache *holder = open_cache();
    sleeper all[SLEEPERS];
    pthread_t threads[SLEEPERS];
    for (int round = 0; round < ROUNDS; round++) {
        const kgen_key key = {{(uint8_t)rand(), (uint8_t)rand()}};
        int held = kgen_cache_lock(holder, &key);
        assert_true(held >= 0);
        for (int i = 0; i < SLEEPERS; i++) {
            all[i] = (sleeper){.cache = open_cache(), .key = &key};
            assert_int_equal(kgen_cache_is_locked(all[i].cache, &key), 0); /* it has not asked */
            assert_int_equal(kgen_cache_lock(all[i].cache, &key), KGEN_LOCK_BUSY);
            assert_int_equal(kgen_cache_is_locked(all[i].cache, &key), 1);
            assert_int_equal(pthread_create(&threads[i], NULL, sleep_on, &all[i]), 0);
        }
        usleep((useconds_t)(rand() % 3000));
        kgen_cache_unlock(held, &key);
        for (int i = 0; i < SLEEPERS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(all[i].slept < 10);
            kgen_cache_close(all[i].cache);
        }
    }
    kgen_cache_unlock(KGEN_LOCK_NONE, &(kgen_key){{0}});
    kgen_cache_close(holder);
}

/* Nobody wakes it where the lock went with its process, and where the file is too small. */
static void a_sleep_ends_by_its_time(void **state) {
    char path[128];
    (void)state;
    const kgen_key key = {{1}};
    kgen_cache *a = open_cache(), *b = open_cache();
    int held = kgen_cache_lock(a, &key);
    assert_int_equal(kgen_cache_lock(b, &key), KGEN_LOCK_BUSY);
    for (int small = 0; small < 2; small++) {
        snprintf(path, sizeof path, "%s/lock", dir);
        if (small) assert_int_equal(truncate(path, 0), 0);
        double start = seconds_now();
        kgen_cache_await(b, &key, 30);
        assert_true(seconds_now() - start > 0.02);
        assert_int_equal(kgen_cache_is_locked(b, &key), 1);
    }
    close(held);
    kgen_cache_await(b, &key, 20000); /* it sees that the lock is free */
    assert_int_equal(kgen_cache_is_locked(b, &key), 0);
    kgen_cache_close(a);
    kgen_cache_close(b);
}

/* A control group allows less than the machine has. */
static void a_control_group_is_obeyed(void **state) {
    static const struct {
        const char *memory, *used, *cpu;
        int workers;
    } rows[] = {
        {"max\n", "0\n", "max 100000\n", 64},
        {"4294967296\n", "0\n", "max 100000\n", 4},
        {"4294967296\n", "2147483648\n", "max 100000\n", 2},
        {"4294967296\n", "5000000000\n", "max 100000\n", 1},
        {"max\n", "0\n", "250000 100000\n", 3},
        {"4294967296\n", "0\n", "100 100000\n", 1},
        {"", "", "", 64},
        {"junk", "junk", "junk", 64},
    };
    char path[128];
    (void)state;
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const files[][2] = {{"memory.max", rows[i].memory},
                                        {"memory.current", rows[i].used},
                                        {"cpu.max", rows[i].cpu}};
        for (size_t f = 0; f < 3; f++) {
            snprintf(path, sizeof path, "%s/%s", dir, files[f][0]);
            FILE *file = fopen(path, "w");
            assert_non_null(file);
            fputs(files[f][1], file);
            fclose(file);
        }
        assert_int_equal(kgen__group_workers(dir, 64), rows[i].workers);
    }
    assert_int_equal(kgen__group_workers("/no/such/group", 7), 7);
    assert_true(kgen__default_workers() >= 1);
}

typedef struct heard {
    int beats;
    size_t waiting;
} heard;

static void on_beat(size_t running, size_t waiting, void *user) {
    heard *h = user;
    h->beats++;
    h->waiting = waiting;
    assert_int_equal(running, 0);
}

static int after_two_beats(void *user) { return ((heard *)user)->beats >= 2; }

/* Whoever waits for another process hears that it goes on. */
static void waiting_is_heard(void **state) {
    (void)state;
    kgen_key key;
    kgen_job job = job_of(line);
    kgen_job_result result;
    heard h = {0};
    if (kgen_job_key(&key, &job, NULL) != KGEN_OK) {
        print_message("skipped, no clang\n");
        skip();
    }
    kgen_cache *cache = open_cache();
    const kgen_build_options options = {
        .size = sizeof options, .heartbeat = on_beat, .cancel = after_two_beats, .user = &h};
    int held = kgen_cache_lock(cache, &key);
    assert_true(held >= 0);
    assert_int_equal(build_with(cache, &options, &result), KGEN_E_CANCELLED);
    assert_int_equal(h.waiting, 1);
    close(held);
    kgen_cache_close(cache);
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    srand((unsigned)test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_hit_that_spills_is_refused, fresh),
        cmocka_unit_test_setup(the_last_compiler_decides, fresh),
        cmocka_unit_test_setup(a_note_that_lies_is_a_miss, fresh),
        cmocka_unit_test_setup(offline_is_what_was_made, fresh),
        cmocka_unit_test_setup(a_lock_is_of_one_key, fresh),
        cmocka_unit_test_setup(who_waits_is_woken, fresh),
        cmocka_unit_test_setup(a_sleep_ends_by_its_time, fresh),
        cmocka_unit_test_setup(a_control_group_is_obeyed, fresh),
        cmocka_unit_test_setup(waiting_is_heard, fresh),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

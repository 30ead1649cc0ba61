/* Eviction: what was not used for longest goes, what is used stays, and many entries cost
 * a look-up nothing. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <kgen/cache.h>

#include "cache/folder.h"
#include "cache/layer.h"
#include "seed.h"

enum { PATH_BYTES = 160, HOUR = 3600 };

static char folder[64];
static char dir[96];
static const char *const flags[] = {"-flag"};

static int fresh(void **state) {
    static int number;
    (void)state;
    snprintf(dir, sizeof dir, "%s/%d", folder, number++);
    return 0;
}

/* ---- entries --------------------------------------------------------------------- */

static kgen_source source_of(char text[64], int number) {
    const kgen_target *target = NULL;
    assert_int_equal(kgen_target_find(&target, "cpu:cdna3", NULL), KGEN_OK);
    snprintf(text, 64, "int kernel_%d;", number);
    return (kgen_source){.text = text, .size = strlen(text), .target = target};
}

static kgen_key key_of(int number) {
    char text[64];
    kgen_key key;
    kgen_source source = source_of(text, number);
    kgen_key_make(&key, &source, flags, 1, "a compiler");
    return key;
}

/* Without flushing: a hundred thousand are made here. */
static void make_file(int number, size_t code_size) {
    char text[64];
    uint8_t *bytes, code[40000] = {1};
    size_t size;
    kgen__place at;
    kgen_source source = source_of(text, number);
    kgen_entry entry = {.key = key_of(number),
                        .spec = "family:key=1",
                        .target = "cpu:cdna3",
                        .symbol = "kernel",
                        .code = code,
                        .code_size = code_size,
                        .source = text,
                        .source_size = source.size};
    kgen_source_digest(entry.source_digest, text, source.size);
    assert_int_equal(kgen__entry_encode(&bytes, &size, &entry, NULL), KGEN_OK);
    assert_int_equal(kgen__place_open(&at, dir, &entry.key, KGEN__ENTRY_SUFFIX, 1), 0);
    assert_int_equal(kgen__place_publish(&at, bytes, size, 0), 0);
    kgen__place_close(&at);
    free(bytes);
}

static void path_of(char out[PATH_BYTES], int number) {
    char hex[KGEN_KEY_HEX];
    kgen_key key = key_of(number);
    kgen_key_hex(hex, &key);
    snprintf(out, PATH_BYTES, "%s/%.2s/%s.kgen", dir, hex, hex + 2);
}

static void set_used(int number, time_t seconds_ago) {
    char path[PATH_BYTES];
    const struct timespec then = {.tv_sec = time(NULL) - seconds_ago};
    path_of(path, number);
    const struct timespec times[2] = {then, then};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static int is_there(int number) {
    char path[PATH_BYTES];
    path_of(path, number);
    return access(path, F_OK) == 0;
}

static kgen_cache *open_cache(void) {
    kgen_cache *cache = NULL;
    kgen_error err = {0};
    if (kgen_cache_open(&cache, dir, &err) != KGEN_OK) fail_msg("open: %s", err.text);
    return cache;
}

static void get(int number, int expected) {
    kgen_entry *entry = NULL;
    int found = 0;
    kgen_key key = key_of(number);
    kgen_cache *cache = open_cache();
    assert_int_equal(kgen_cache_get(cache, &entry, &found, &key, NULL), KGEN_OK);
    assert_int_equal(found, expected);
    kgen_entry_free(entry);
    kgen_cache_close(cache);
}

static kgen_prune_counts prune(kgen_prune_options options) {
    kgen_prune_counts counts;
    kgen_cache *cache = open_cache();
    options.size = sizeof options;
    assert_int_equal(kgen_cache_prune(cache, &options, &counts, NULL), KGEN_OK);
    kgen_cache_close(cache);
    return counts;
}

/* ---- which ones go ------------------------------------------------------------------ */

enum { ENTRIES = 60, LARGEST = 64 << 10 };

/* order[0] was used longest ago. */
static void make_many(int order[ENTRIES]) {
    for (int i = 0; i < ENTRIES; i++) order[i] = i;
    for (int i = ENTRIES - 1; i > 0; i--) {
        int j = rand() % (i + 1), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
    for (int i = 0; i < ENTRIES; i++) make_file(i, 1 + (size_t)rand() % 30000);
    for (int i = 0; i < ENTRIES; i++) set_used(order[i], (ENTRIES - i) * HOUR);
}

static void the_oldest_go_by_count(void **state) {
    int order[ENTRIES], kept = 1 + rand() % (ENTRIES - 1);
    (void)state;
    make_many(order);
    const kgen_prune_options options = {.max_entries = (uint64_t)kept, .dry_run = 1};
    kgen_prune_counts dry = prune(options);
    for (int i = 0; i < ENTRIES; i++) assert_true(is_there(i));
    kgen_prune_counts counts = prune((kgen_prune_options){.max_entries = (uint64_t)kept});
    assert_memory_equal(&dry, &counts, sizeof dry);
    assert_int_equal(counts.entries, ENTRIES);
    assert_int_equal(counts.removed, ENTRIES - kept);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(is_there(order[i]), i >= ENTRIES - kept);
    assert_int_equal(prune((kgen_prune_options){.max_entries = (uint64_t)kept}).removed, 0);
}

static void the_oldest_go_by_size(void **state) {
    int order[ENTRIES], first = 0;
    (void)state;
    make_many(order);
    uint64_t most = 1 + (uint64_t)rand() % 900000;
    kgen_prune_counts counts = prune((kgen_prune_options){.max_bytes = most});
    assert_true(counts.bytes - counts.removed_bytes <= most);
    while (first < ENTRIES && !is_there(order[first])) first++;
    for (int i = first; i < ENTRIES; i++) assert_true(is_there(order[i]));
    assert_int_equal(counts.removed, first);
    /* and no more than it takes: the last one that went was too much */
    if (first > 0) assert_true(counts.bytes - counts.removed_bytes + LARGEST > most);
}

static void the_unused_go(void **state) {
    int order[ENTRIES];
    (void)state;
    make_many(order);
    prune((kgen_prune_options){.unused_s = 20 * HOUR + HOUR / 2});
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(is_there(order[i]), i >= ENTRIES - 20);
}

/* A hit counts as a use, at most one write an hour. */
static void a_hit_is_a_use(void **state) {
    char path[PATH_BYTES];
    struct stat st;
    (void)state;
    for (int i = 0; i < 3; i++) make_file(i, 100);
    set_used(0, 9 * HOUR);
    set_used(1, 5 * HOUR);
    set_used(2, HOUR / 2);
    for (int i = 0; i < 3; i += 2) get(i, 1);
    path_of(path, 2);
    assert_int_equal(stat(path, &st), 0);
    assert_true(time(NULL) - st.st_mtime >= HOUR / 2); /* not written again */
    prune((kgen_prune_options){.max_entries = 2});
    assert_int_equal(is_there(0), 1);
    assert_int_equal(is_there(1), 0);
    assert_int_equal(is_there(2), 1);
}

/* What is left of an entry that went: its note. */
static void notes_go_with_their_entries(void **state) {
    char text[64];
    (void)state;
    kgen_cache *cache = open_cache();
    for (int i = 0; i < 2; i++) {
        kgen_source source = source_of(text, i);
        kgen_key key = key_of(i);
        make_file(i, 100);
        kgen_cache_note_made(cache, &source, flags, 1, &key);
    }
    set_used(0, HOUR);
    prune((kgen_prune_options){.max_entries = 1});
    for (int i = 0; i < 2; i++) {
        kgen_entry *entry = NULL;
        int found = 0;
        kgen_source source = source_of(text, i);
        kgen_key recipe, key;
        kgen__recipe_make(&recipe, &source, flags, 1);
        assert_int_equal(kgen__recipe_read(dir, &recipe, &key), i);
        assert_int_equal(kgen_cache_get_made(cache, &entry, &found, &source, flags, 1, 0, NULL),
                         KGEN_OK);
        assert_int_equal(found, i);
        kgen_entry_free(entry);
    }
    kgen_cache_close(cache);
}

/* A cap of the environment never takes what is in use. */
static void a_cap_keeps_what_is_live(void **state) {
    int order[ENTRIES];
    (void)state;
    make_many(order);
    for (int i = ENTRIES - 5; i < ENTRIES; i++) set_used(order[i], HOUR);
    setenv("KGEN_CACHE_MAX_ENTRIES", "3", 1);
    kgen_cache *cache = open_cache();
    assert_int_equal(kgen_cache_trim(cache, NULL), KGEN_OK);
    kgen_cache_close(cache);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(is_there(order[i]), i >= ENTRIES - 5);
    setenv("KGEN_CACHE_MAX_ENTRIES", "3G", 1);
    kgen_error err = {0};
    assert_int_equal(kgen_cache_open(&cache, dir, &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "KGEN_CACHE_MAX_ENTRIES=3G"));
    unsetenv("KGEN_CACHE_MAX_ENTRIES");
}

/* ---- how long it takes --------------------------------------------------------------- */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int count_one(const kgen_entry *entry, size_t file_bytes, void *user) {
    (void)entry, (void)file_bytes;
    ++*(int *)user;
    return 0;
}

/* The median of look-ups, by key and by what was made. */
static double look_up_us(int count) {
    enum { LOOKS = 201 };
    double times[LOOKS];
    for (int i = 0; i < LOOKS; i++) {
        kgen_key key = key_of(rand() % count);
        kgen_entry *entry = NULL;
        int found = 0;
        kgen_cache *cache = open_cache();
        double begin = now_us();
        assert_int_equal(kgen_cache_get(cache, &entry, &found, &key, NULL), KGEN_OK);
        times[i] = now_us() - begin;
        assert_int_equal(found, 1);
        kgen_entry_free(entry);
        kgen_cache_close(cache);
        for (int j = i; j > 0 && times[j] < times[j - 1]; j--) {
            double swapped = times[j];
            times[j] = times[j - 1];
            times[j - 1] = swapped;
        }
    }
    return times[LOOKS / 2];
}

/* ---- what it was good for -------------------------------------------------------- */

static void miss(kgen_cache *cache, int number, const kgen_key *key) {
    char text[64];
    kgen_source source = source_of(text, number);
    kgen_cache_note_miss(cache, &source, flags, 1, key);
}

static kgen_cache_stats used(void) {
    kgen_cache_use use;
    kgen_cache *cache = open_cache();
    int there = kgen_cache_get_use(cache, &use);
    assert_int_equal(there, use.since != 0);
    kgen_cache_close(cache);
    return use.stats;
}

static void a_process_of_many(int misses) {
    kgen_cache *cache;
    if (kgen_cache_open(&cache, dir, NULL) != KGEN_OK) _exit(1);
    for (int i = 0; i < misses; i++) {
        miss(cache, 3, NULL);
        kgen_cache_note_use(cache);
    }
    kgen_cache_close(cache);
    _exit(0);
}

/* Why is counted; a file that is damaged, or a link, is not believed. Of processes that count
 * at once none is held up, and what is written stays whole. */
static void counts_of_many(void **state) {
    enum { PROCESSES = 6, MISSES = 20 };
    char path[PATH_BYTES], text[64];
    (void)state;
    make_file(1, 100);
    snprintf(path, sizeof path, "%s/counts", dir);
    kgen_cache *cache = open_cache();
    kgen_source source = source_of(text, 1);
    kgen_key made = key_of(1), other = key_of(2);
    kgen_cache_note_made(cache, &source, flags, 1, &made);
    kgen_cache_note_use(cache);
    assert_int_not_equal(access(path, F_OK), 0); /* nothing was looked up */
    miss(cache, 1, &made);
    miss(cache, 1, &other);
    miss(cache, 2, &other);
    miss(cache, 1, NULL);
    kgen_cache_close(cache);
    kgen_cache_stats stats = used();
    assert_int_equal(stats.misses_gone, 1);
    assert_int_equal(stats.misses_compiler, 1);
    assert_int_equal(stats.misses_new, 2);

    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0) a_process_of_many(MISSES);
    for (int status, i = 0; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    stats = used();
    assert_in_range(stats.misses_new, 3, 2 + PROCESSES * MISSES);
    assert_int_equal(stats.misses_gone, 1);

    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(used().misses_new, 0);
    cache = open_cache();
    miss(cache, 1, NULL);
    kgen_cache_close(cache);
    assert_int_equal(used().misses_new, 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    cache = open_cache();
    miss(cache, 1, NULL);
    kgen_cache_close(cache);
    assert_int_equal(used().misses_new, 0);
    snprintf(path, sizeof path, "%s/elsewhere", dir);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* In the full form up to a hundred thousand entries. */
static void many_entries_cost_nothing(void **state) {
    const char *level = getenv("KGEN_TEST_LEVEL");
    int most = level && strcmp(level, "full") == 0 ? 100000 : 2000, made = 0;
    double first = 0;
    (void)state;
    for (int count = 100; count <= most; count *= count < 2000 ? 20 : 50) {
        int listed = 0;
        while (made < count) make_file(made++, 2000);
        double look = look_up_us(count), begin = now_us();
        kgen_cache *cache = open_cache();
        double open = now_us() - begin;
        begin = now_us();
        assert_int_equal(kgen_cache_list(cache, "", count_one, &listed, NULL), KGEN_OK);
        double list = now_us() - begin;
        begin = now_us();
        kgen_prune_counts counts = prune((kgen_prune_options){.max_entries = 1u << 30});
        double walk = now_us() - begin;
        kgen_cache_close(cache);
        print_message("%6d entries: open %.0f us, look-up %.0f us, list %.1f ms, prune %.1f ms\n",
                      count, open, look, list / 1e3, walk / 1e3);
        assert_int_equal(listed, count);
        assert_int_equal(counts.entries, count);
        if (first == 0) first = look;
        assert_true(look < 10 * first + 200);
        assert_true(open < 10000);               /* nothing is looked at */
        assert_true(list < 1e6 + 200.0 * count); /* 10^5: 21 s at the very most, on a busy disk */
    }
    double begin = now_us();
    kgen_prune_counts counts = prune((kgen_prune_options){.max_entries = (uint64_t)made / 2});
    print_message("%6d entries evicted in %.1f ms\n", made / 2, (now_us() - begin) / 1e3);
    assert_int_equal(counts.removed, made / 2);
}

static int make_folder(void **state) {
    (void)state;
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/kgen-test-prune-XXXXXX", base);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    srand((unsigned)test_seed());
#define TEST(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        TEST(the_oldest_go_by_count),
        TEST(the_oldest_go_by_size),
        TEST(the_unused_go),
        TEST(a_hit_is_a_use),
        TEST(notes_go_with_their_entries),
        TEST(a_cap_keeps_what_is_live),
        TEST(counts_of_many),
        TEST(many_entries_cost_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

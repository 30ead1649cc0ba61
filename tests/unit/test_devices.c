/* Two devices in one process: each thread checks kernels on its own, and one
 * thread on both in turn. KGEN_TEST_DEVICES=hip:0,hip:1 names them; else two GPUs
 * of the machine, where it has them; else two cpu devices of other wave sizes. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "seed.h"

enum { DEVICES = 2, ROUNDS = 4 };

static char names[DEVICES][64];
static kgen_context *contexts[DEVICES];
static uint64_t seed;

static const char *const lines[] = {
    "attn:phase=verify,d=64,g=4,t=3 | lens=40,9,130 qlens=3,1,2 hkv=2",
    "scatter:op=draft_lens | seqs=9 lens=rand:0..90 tokens=4 steps=3 pads=2",
    "kv_gather:d=64,kv=fp8 | lens=33,16 hkv=2",
};
enum { LINES = sizeof lines / sizeof lines[0] };

static int open_both(const char *first, const char *second, kgen_error *err) {
    const char *const wanted[] = {first, second};
    for (int i = 0; i < DEVICES; i++) {
        const kgen_open_options options = {
            .size = sizeof options, .device = wanted[i], .tuning = ""};
        contexts[i] = NULL;
        if (kgen_open(&contexts[i], &options, err) == KGEN_OK) {
            snprintf(names[i], sizeof names[i], "%s", wanted[i]);
            continue;
        }
        if (i) kgen_close(contexts[0]);
        return 0;
    }
    return 1;
}

static int open_devices(kgen_error *err) {
    static const char *const pairs[][DEVICES] = {
        {"hip:0", "hip:1"}, {"cuda:0", "cuda:1"}, {"cpu:cdna3", "cpu:rdna4"}};
    char text[128];
    const char *given = getenv("KGEN_TEST_DEVICES");
    if (given && *given) {
        snprintf(text, sizeof text, "%s", given);
        char *comma = strchr(text, ',');
        if (comma) *comma = 0;
        return open_both(text, comma ? comma + 1 : "", err);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (open_both(pairs[i][0], pairs[i][1], err)) return 1;
    return 0;
}

/* ---- one check ------------------------------------------------------------------ */

static kgen_status check_line(kgen_context *ctx, const char *line, uint64_t from, int replays,
                              kgen_error *err) {
    const kgen__check_options options = {.replays = replays};
    kgen__check_result result;
    kgen__case *c = malloc(sizeof *c);
    if (!c) return kgen_fail(err, KGEN_E_NOMEM, "no case");
    kgen_status status = kgen__case_parse(c, line, err);
    if (status == KGEN_OK) {
        c->seed = from;
        status = kgen__check_run(&result, ctx, c, &options, err);
    }
    free(c);
    return status;
}

static void test_in_turn(void **state) {
    (void)state;
    for (int n = 0; n < LINES; n++)
        for (int i = 0; i < 2 * DEVICES; i++) {
            kgen_error err;
            if (check_line(contexts[i % DEVICES], lines[n], seed + (uint64_t)i, 0, &err) != KGEN_OK)
                fail_msg("%s: %s", names[i % DEVICES], err.text);
        }
}

/* ---- a thread each ---------------------------------------------------------------- */

typedef struct worker {
    kgen_context *ctx;
    uint64_t seed;
    kgen_status status;
    kgen_error err;
} worker;

/* Eager launches and graphs by turns. */
static void *work(void *user) {
    worker *w = user;
    for (int i = 0; i < ROUNDS && w->status == KGEN_OK; i++)
        w->status =
            check_line(w->ctx, lines[i % LINES], w->seed + (uint64_t)i, i % 2 ? 3 : 0, &w->err);
    return NULL;
}

static void test_at_once(void **state) {
    worker workers[DEVICES] = {{.ctx = contexts[0], .seed = seed},
                               {.ctx = contexts[1], .seed = seed + 100}};
    pthread_t threads[DEVICES];
    (void)state;
    for (int i = 0; i < DEVICES; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < DEVICES; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < DEVICES; i++)
        if (workers[i].status != KGEN_OK) fail_msg("%s: %s", names[i], workers[i].err.text);
}

/* ---- what belongs to one ------------------------------------------------------------ */

static void test_kernels_are_of_one_device(void **state) {
    kgen_error err;
    kgen_spec spec;
    kgen_kernel *kernels[DEVICES];
    (void)state;
    assert_int_equal(kgen_spec_parse(&spec, "scatter:op=keep_locs", &err), KGEN_OK);
    for (int i = 0; i < DEVICES; i++) {
        assert_null(kgen_find(contexts[i], &spec, NULL));
        if (kgen_prepare(contexts[i], &spec, 1, &kernels[i], &err) != KGEN_OK)
            fail_msg("%s: %s", names[i], err.text);
        assert_ptr_equal(kgen_find(contexts[i], &spec, NULL), kernels[i]);
    }
    assert_ptr_not_equal(kernels[0], kernels[1]);
    kgen_kernel_release(kernels[0]);
    assert_null(kgen_find(contexts[0], &spec, NULL));
    assert_ptr_equal(kgen_find(contexts[1], &spec, NULL), kernels[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_are_of_one_device),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_at_once),
    };
    kgen_error err = {KGEN_OK, ""};
    seed = test_seed();
    if (!open_devices(&err)) {
        print_message("%s\n", err.text);
        return 1;
    }
    print_message("%s and %s\n", kgen_context_device(contexts[0]),
                  kgen_context_device(contexts[1]));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < DEVICES; i++) kgen_close(contexts[i]);
    return failed;
}

/* kgen_prepare, kgen_find and kgen_kernel_release on the cpu device, with the real
 * compiler: each request has its own end, prepared kernels are found at any time. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <kgen/kgen.h>

#include "check/check.h"
#include "did.h"

#define DEVICE "cpu:cdna3"

static char folder[] = "/tmp/kgen-prepare-XXXXXX";
static kgen_context *shared; /* compiles into the tests' cache */

static kgen_context *opened(kgen_mode mode, const char *cache) {
    char dir[256];
    kgen_context *ctx = NULL;
    snprintf(dir, sizeof dir, "%s/%s", folder, cache ? cache : "");
    const kgen_open_options options = {.size = sizeof options,
                                       .device = DEVICE,
                                       .cache_dir = cache ? dir : NULL,
                                       .mode = mode,
                                       .tuning = ""};
    DO(kgen_open(&ctx, &options, &did));
    return ctx;
}

static kgen_spec spec_of(const char *line) {
    kgen_spec spec;
    DO(kgen_spec_parse(&spec, line, &did));
    return spec;
}

static kgen_request request_of(const char *line) {
    return (kgen_request){.size = sizeof(kgen_request), .spec = spec_of(line)};
}

static kgen_kernel *prepared(kgen_context *ctx, const char *line) {
    kgen_spec spec = spec_of(line);
    kgen_kernel *kernel = NULL;
    DO(kgen_prepare(ctx, &spec, 1, &kernel, &did));
    return kernel;
}

static kgen_kernel *found(kgen_context *ctx, const char *line) {
    kgen_spec spec = spec_of(line);
    return kgen_find(ctx, &spec, NULL);
}

/* Small kernels, compiled in a moment. */
#define ONE "scatter:op=draft_lens"
#define TWO "scatter:op=keep_locs"
#define THREE "scatter:op=bonus_tokens"

/* ---- each request has its own end ------------------------------------------------ */

typedef struct seen {
    size_t calls, total;
    const kgen_request *requests;
    size_t cancel_after; /* calls; 0: never */
} seen;

static void on_progress(const kgen_request *request, size_t done, size_t total, void *user) {
    seen *s = user;
    s->calls++;
    s->total = total;
    assert_int_equal(done, s->calls);
    assert_true(request >= s->requests && request < s->requests + total);
    assert_true((request->kernel != NULL) == (request->error.status == KGEN_OK));
}

static int on_cancel(void *user) {
    const seen *s = user;
    return s->cancel_after && s->calls >= s->cancel_after;
}

static void test_others_survive(void **state) {
    (void)state;
    kgen_request requests[] = {request_of(ONE), request_of("attn:d=64,g=2"), request_of(TWO),
                               request_of(ONE)};
    seen s = {.requests = requests};
    const kgen_prepare_options options = {
        .size = sizeof options, .progress = on_progress, .user = &s};
    kgen_error err;
    requests[1].spec.attn.group = 1 << 20;
    requests[0].error.status = KGEN_E_IO; /* of an earlier use */
    assert_int_equal(kgen_prepare_for(shared, requests, 4, &options, &err), KGEN_E_SPEC);
    assert_memory_equal(err.text, "request 2 of 4: g=1048576: ", 27);
    assert_null(requests[1].kernel);
    assert_string_equal(requests[1].error.text, err.text + 16);
    for (int i = 0; i < 4; i++)
        if (i != 1 && (!requests[i].kernel || requests[i].error.status != KGEN_OK))
            fail_msg("request %d: %s", i, requests[i].error.text);
    assert_ptr_equal(requests[0].kernel, requests[3].kernel);
    assert_int_equal(s.calls, 4);
    assert_int_equal(s.total, 4);

    kgen_spec specs[2] = {requests[1].spec, requests[2].spec};
    kgen_kernel *kernels[2] = {requests[0].kernel, NULL};
    assert_int_equal(kgen_prepare(shared, specs, 2, kernels, &err), KGEN_E_SPEC);
    assert_null(kernels[0]);
    assert_ptr_equal(kernels[1], requests[2].kernel);
    DO(kgen_prepare(shared, NULL, 0, NULL, &did));
}

static void test_misses_are_named_each(void **state) {
    (void)state;
    kgen_context *ctx = opened(KGEN_MODE_AUTO, "some");
    prepared(ctx, TWO);
    kgen_close(ctx);
    static const kgen_mode modes[] = {KGEN_MODE_STRICT, KGEN_MODE_OFFLINE};
    for (int m = 0; m < 2; m++) {
        ctx = opened(modes[m], "some");
        kgen_request requests[] = {request_of(ONE), request_of(TWO), request_of(THREE)};
        assert_int_equal(kgen_prepare_for(ctx, requests, 3, NULL, &did), KGEN_E_NOT_CACHED);
        assert_memory_equal(did.text, "request 1 of 3: no code object of scatter:", 42);
        assert_non_null(requests[1].kernel);
        assert_int_equal(requests[1].compiled, 0);
        assert_non_null(strstr(requests[0].error.text, "kgen build 'scatter:op=draft_lens"));
        assert_non_null(strstr(requests[2].error.text, "kgen build 'scatter:op=bonus_tokens"));
        kgen_close(ctx);
    }
}

static void test_sizes_of_requests(void **state) {
    (void)state;
    struct {
        kgen_request known;
        char later[64];
    } later[2] = {{.known = request_of(ONE)}, {.known = request_of(TWO)}};
    kgen_error err;
    for (int i = 0; i < 2; i++) later[i].known.size = sizeof later[i];
    DO(kgen_prepare_for(shared, &later[0].known, 2, NULL, &did));
    assert_ptr_equal(later[1].known.kernel, prepared(shared, TWO));
    later[1].known.size = sizeof(kgen_request);
    assert_int_equal(kgen_prepare_for(shared, &later[0].known, 2, NULL, &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "request 2: kgen_request.size="));
    later[0].known.size = 0;
    assert_int_equal(kgen_prepare_for(shared, &later[0].known, 1, NULL, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "request 1: kgen_request.size=0: sizeof(kgen_request) expected");
    const kgen_prepare_options options = {.workers = 1};
    assert_int_equal(kgen_prepare_for(shared, NULL, 0, &options, &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "kgen_prepare_options.size=0"));
}

static void test_compiled_or_not(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        kgen_context *ctx = opened(KGEN_MODE_AUTO, "fresh");
        kgen_request requests[] = {request_of(ONE), request_of(TWO)};
        DO(kgen_prepare_for(ctx, requests, 2, NULL, &did));
        for (int i = 0; i < 2; i++) assert_int_equal(requests[i].compiled, round == 0);
        DO(kgen_prepare_for(ctx, requests, 2, NULL, &did));
        for (int i = 0; i < 2; i++) assert_int_equal(requests[i].compiled, 0);
        kgen_close(ctx);
    }
}

/* ---- cancel ----------------------------------------------------------------------- */

static void test_cancel_between(void **state) {
    (void)state;
    kgen_context *ctx = opened(KGEN_MODE_AUTO, "cancel");
    kgen_request requests[] = {request_of(ONE), request_of(TWO), request_of(THREE)};
    seen s = {.requests = requests, .cancel_after = 1};
    const kgen_prepare_options options = {.size = sizeof options,
                                          .workers = 1,
                                          .progress = on_progress,
                                          .cancel = on_cancel,
                                          .user = &s};
    assert_int_equal(kgen_prepare_for(ctx, requests, 3, &options, &did), KGEN_E_CANCELLED);
    int prepared_ones = 0;
    for (int i = 0; i < 3; i++) {
        prepared_ones += requests[i].kernel != NULL;
        if (!requests[i].kernel) assert_int_equal(requests[i].error.status, KGEN_E_CANCELLED);
    }
    assert_int_equal(prepared_ones, 1);
    assert_int_equal(s.calls, 3);
    s = (seen){.requests = requests}; /* the rest, later */
    DO(kgen_prepare_for(ctx, requests, 3, &options, &did));
    kgen_close(ctx);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double began;

static int after_half_a_second(void *user) {
    (void)user;
    return seconds() - began > 0.5;
}

/* A compiler that never ends is ended, with everything it started. */
static void test_cancel_within(void **state) {
    (void)state;
    char script[256], *before = getenv("KGEN_CLANG") ? strdup(getenv("KGEN_CLANG")) : NULL;
    snprintf(script, sizeof script, "%s/clang", folder);
    FILE *file = fopen(script, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n[ \"$1\" = --version ] && echo 'clang version 19.1.7' && exit\n"
                  "sleep 300\n");
    fclose(file);
    assert_int_equal(chmod(script, 0700), 0);
    setenv("KGEN_CLANG", script, 1);
    kgen_context *ctx = opened(KGEN_MODE_AUTO, "never-filled");
    kgen_request requests[] = {request_of(ONE), request_of(TWO), request_of(THREE)};
    const kgen_prepare_options options = {
        .size = sizeof options, .workers = 2, .cancel = after_half_a_second};
    began = seconds();
    kgen_status status = kgen_prepare_for(ctx, requests, 3, &options, &did);
    double took = seconds() - began;
    if (before)
        setenv("KGEN_CLANG", before, 1);
    else
        unsetenv("KGEN_CLANG");
    free(before);
    kgen_close(ctx);
    if (status != KGEN_E_CANCELLED) fail_msg("status %d: %s", (int)status, did.text);
    for (int i = 0; i < 3; i++) assert_int_equal(requests[i].error.status, KGEN_E_CANCELLED);
    if (took < 0.5 || took > 20) fail_msg("cancelled after %.1f s", took);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* ---- find ---------------------------------------------------------------------------- */

#define SMALL "attn:d=64,g=2,kv=fp8"

static void test_find(void **state) {
    (void)state;
    kgen_context *ctx = opened(KGEN_MODE_AUTO, NULL);
    kgen_spec other = spec_of("gdn:layout=flat");
    assert_null(found(ctx, SMALL));
    assert_null(kgen_find(ctx, &other, NULL));
    kgen_kernel *two = prepared(ctx, SMALL ",waves=2");
    assert_ptr_equal(found(ctx, SMALL), two); /* the only one of these shapes */
    kgen_kernel *plain = prepared(ctx, SMALL);
    assert_ptr_not_equal(plain, two);
    assert_ptr_equal(found(ctx, SMALL), plain); /* as it was asked for */
    assert_ptr_equal(found(ctx, SMALL ",waves=2"), two);
    assert_ptr_equal(prepared(ctx, SMALL ",waves=2"), two);
    assert_ptr_equal(found(ctx, SMALL), plain); /* still */
    kgen_spec resolved = *kgen_kernel_spec(two);
    assert_ptr_equal(kgen_find(ctx, &resolved, NULL), two);
    resolved = *kgen_kernel_spec(plain); /* its shapes: fp8 is one type by now */
    assert_int_equal(resolved.attn.kv, KGEN_DTYPE_E4M3FNUZ);
    resolved.attn.waves = resolved.attn.row_tiles = resolved.attn.occupancy = 0;
    resolved.attn.v_split = 0;
    assert_ptr_equal(kgen_find(ctx, &resolved, NULL), plain);
    resolved.attn.kv = KGEN_DTYPE_E4M3FN;
    assert_null(kgen_find(ctx, &resolved, NULL));
    assert_null(found(ctx, SMALL ",waves=1"));
    assert_null(found(ctx, SMALL ",lse=1"));
    kgen_spec spec = spec_of(SMALL);
    const kgen_problem never_asked = {3, 100, 1};
    assert_ptr_equal(kgen_find(ctx, &spec, &never_asked), plain);
    kgen_close(ctx);
}

static void test_release(void **state) {
    (void)state;
    kgen_context *ctx = opened(KGEN_MODE_AUTO, NULL);
    kgen_kernel *plain = prepared(ctx, SMALL), *two = prepared(ctx, SMALL ",waves=2");
    kgen_kernel_release(NULL);
    kgen_kernel_release(plain);
    assert_ptr_equal(found(ctx, SMALL), two); /* the one that is left */
    assert_ptr_equal(found(ctx, SMALL ",waves=2"), two);
    kgen_kernel_release(two);
    assert_null(found(ctx, SMALL));
    assert_null(found(ctx, SMALL ",waves=2"));
    plain = prepared(ctx, SMALL);
    assert_ptr_equal(found(ctx, SMALL), plain);
    kgen__case c; /* and it runs */
    DO(kgen__case_parse(&c, SMALL " | lens=40,9 hkv=2", &did));
    DO(kgen__check_run(&(kgen__check_result){0}, ctx, &c, NULL, &did));
    assert_ptr_equal(found(ctx, SMALL), plain);
    kgen_close(ctx);
}

/* ---- while a stream captures ------------------------------------------------------------ */

typedef struct capturer {
    pthread_barrier_t barrier;
    kgen_stream stream;
} capturer;

/* A thread that captures, as an engine's does. */
static void *capture(void *user) {
    capturer *c = user;
    kgen_graph *graph = NULL;
    kgen_error err;
    if (kgen_graph_begin(shared, c->stream, &err) != KGEN_OK) abort();
    pthread_barrier_wait(&c->barrier);
    pthread_barrier_wait(&c->barrier);
    if (kgen_graph_end(shared, c->stream, &graph, &err) != KGEN_OK) abort();
    kgen_graph_free(graph);
    return NULL;
}

static void test_while_a_stream_captures(void **state) {
    (void)state;
    capturer c;
    pthread_t thread;
    kgen_stream quiet;
    kgen_kernel *one = prepared(shared, ONE);
    assert_int_equal(pthread_barrier_init(&c.barrier, NULL, 2), 0);
    DO(kgen_stream_create(shared, &c.stream, &did));
    DO(kgen_stream_create(shared, &quiet, &did));
    assert_int_equal(pthread_create(&thread, NULL, capture, &c), 0);
    pthread_barrier_wait(&c.barrier);

    kgen_prepare_options options = {.size = sizeof options, .stream = c.stream};
    kgen_request requests[] = {request_of(ONE), request_of("scatter:op=kv_splits")};
    kgen_status both = kgen_prepare_for(shared, requests, 2, &options, &did);
    kgen_kernel *again = found(shared, ONE);
    options.stream = quiet; /* it is not this stream that captures */
    kgen_request beside = request_of("scatter:op=kv_splits");
    kgen_error why = {KGEN_OK, ""};
    kgen_status aside = kgen_prepare_for(shared, &beside, 1, &options, &why);

    pthread_barrier_wait(&c.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&c.barrier);
    assert_int_equal(both, KGEN_E_CAPTURE);
    assert_string_equal(requests[1].error.text,
                        "kgen_prepare: the stream captures; prepare every kernel before");
    assert_ptr_equal(requests[0].kernel, one); /* prepared before: no driver is needed */
    assert_null(requests[1].kernel);
    assert_ptr_equal(again, one);
    if (aside != KGEN_OK) fail_msg("%s", why.text);
    options.stream = c.stream; /* captures no more */
    DO(kgen_prepare_for(shared, requests, 2, &options, &did));
    kgen_stream_destroy(shared, c.stream);
    kgen_stream_destroy(shared, quiet);
}

/* ---- threads ------------------------------------------------------------------------------ */

enum { ROUNDS = 40, THREADS = 3 };

typedef struct worker {
    kgen_context *ctx;
    const char *comes_and_goes;
    int wrong;
} worker;

/* Prepares and releases a kernel of its own beside one that all share. */
static void *work(void *user) {
    worker *w = user;
    kgen_spec mine, all;
    kgen_error err;
    if (kgen_spec_parse(&mine, w->comes_and_goes, &err) || kgen_spec_parse(&all, SMALL, &err))
        w->wrong++;
    for (int i = 0; i < ROUNDS; i++) {
        kgen_spec specs[2] = {all, mine};
        kgen_kernel *kernels[2];
        w->wrong += kgen_prepare(w->ctx, specs, 2, kernels, &err) != KGEN_OK;
        w->wrong += kgen_find(w->ctx, &all, NULL) != kernels[0];
        w->wrong += kgen_find(w->ctx, &mine, NULL) != kernels[1];
        kgen_kernel_release(kernels[1]);
        w->wrong += kgen_find(w->ctx, &mine, NULL) != NULL;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    static const char *const own[THREADS] = {ONE, TWO, THREE};
    kgen_context *ctx = opened(KGEN_MODE_AUTO, NULL);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.ctx = ctx, .comes_and_goes = own[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    kgen_close(ctx);
}

/* ---- frame ---------------------------------------------------------------------------------- */

static int drop(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_survive),
        cmocka_unit_test(test_misses_are_named_each),
        cmocka_unit_test(test_sizes_of_requests),
        cmocka_unit_test(test_compiled_or_not),
        cmocka_unit_test(test_cancel_between),
        cmocka_unit_test(test_cancel_within),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_while_a_stream_captures),
        cmocka_unit_test(test_threads),
    };
    kgen_toolchain toolchain;
    const kgen_target *target;
    kgen_error err;
    if (kgen_target_find(&target, DEVICE, &err) != KGEN_OK ||
        kgen_toolchain_find(&toolchain, target, &err) != KGEN_OK) {
        print_message("skipped, %s\n", err.text);
        return 77;
    }
    if (!mkdtemp(folder)) return 1;
    shared = opened(KGEN_MODE_AUTO, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kgen_close(shared);
    nftw(folder, drop, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}

/* What captures of an engine have to bear: in each of the driver's modes another thread prepares,
 * loads, launches, unloads, opens and closes meanwhile, and what is missing leaves them valid;
 * replays follow the lengths; what graphs hold stays loaded. KGEN_TEST_DEVICE=hip:0 names the
 * device; else it is a cpu device, or a GPU of another driver, whose captures are kgen's own. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/check.h"
#include "did.h"
#include "seed.h"
#include "world.h"

enum { SEQS = 2, COLUMNS = 4, PAGE = 16, PAGES = 9, D = 64, GROUP = 2, OUT = SEQS * GROUP * D };

#define LINE "attn:phase=decode,d=64,g=2,page=16,layout=nhd"

static const char *device;
static kgen__rng rng;

/* ---- captures as an engine makes them ------------------------------------------------- */

/* Calls of the HIP library that kgen uses; it is loaded already. */
typedef struct hip_calls {
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*state)(void *stream, int *state);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream);
    int (*exec_free)(void *exec);
    int (*graph_free)(void *graph);
} hip_calls;

static hip_calls hip; /* begin: NULL where captures are kgen's */

typedef struct capture {
    kgen_graph *own;
    void *graph, *exec;
} capture;

static void load_hip(const kgen_context *ctx) {
    static const char *const names[] = {"hipStreamBeginCapture", "hipStreamEndCapture",
                                        "hipStreamIsCapturing",  "hipGraphInstantiateWithFlags",
                                        "hipGraphLaunch",        "hipGraphExecDestroy",
                                        "hipGraphDestroy"};
    void *library =
        strncmp(device, "hip", 3) == 0 ? dlopen(kgen_context_driver(ctx), RTLD_NOW) : NULL;
    for (size_t i = 0; library && i < sizeof names / sizeof names[0]; i++) {
        void *call = dlsym(library, names[i]);
        assert_non_null(call);
        memcpy((char *)&hip + i * sizeof call, &call, sizeof call);
    }
}

static void begin(world *w, int mode) {
    if (hip.begin)
        assert_int_equal(hip.begin(w->stream, mode), 0);
    else
        DO(kgen_graph_begin(w->ctx, w->stream, &did));
}

static void end(world *w, capture *c) {
    memset(c, 0, sizeof *c);
    if (!hip.begin) {
        DO(kgen_graph_end(w->ctx, w->stream, &c->own, &did));
        return;
    }
    int state = 0;
    assert_int_equal(hip.state(w->stream, &state), 0);
    assert_int_equal(state, 1); /* active, not invalidated */
    assert_int_equal(hip.end(w->stream, &c->graph), 0);
    assert_int_equal(hip.instantiate(&c->exec, c->graph, 0), 0);
}

static void replay(world *w, capture *c) {
    if (hip.begin)
        assert_int_equal(hip.launch(c->exec, w->stream), 0);
    else
        DO(kgen_graph_launch(c->own, w->stream, &did));
    DO(kgen_stream_sync(w->ctx, w->stream, &did));
}

/* Engines keep the instance alone. */
static void forget_graph(capture *c) {
    if (c->graph) assert_int_equal(hip.graph_free(c->graph), 0);
    c->graph = NULL;
}

static void forget(capture *c) {
    kgen_graph_free(c->own);
    if (c->exec) assert_int_equal(hip.exec_free(c->exec), 0);
    forget_graph(c);
}

/* ---- a decode ------------------------------------------------------------------------- */

typedef struct decode {
    world w;
    kgen_kernel *kernel;
    kgen_attn_args attn;
    kgen_args args;
    uint16_t out[OUT];
} decode;

static kgen_tensor random_rows(world *w, int layout, int64_t count, int64_t tokens, int64_t heads) {
    size_t values = (size_t)(count * tokens * heads) * D;
    uint16_t *bits = malloc(values * sizeof *bits);
    assert_non_null(bits);
    for (size_t i = 0; i < values; i++)
        bits[i] = (uint16_t)kgen__number_encode(KGEN_DTYPE_BF16, kgen__rng_normal(&rng));
    kgen_tensor t = layout ? WORLD_PUT(w, KGEN_DTYPE_BF16, layout, bits, count, tokens, heads, D)
                           : WORLD_PUT(w, KGEN_DTYPE_BF16, 0, bits, count, heads, D);
    free(bits);
    return t;
}

static void draw_lengths(decode *d) {
    int32_t lengths[SEQS];
    for (int s = 0; s < SEQS; s++)
        lengths[s] = (int32_t)kgen__rng_range(&rng, 0, COLUMNS * (int64_t)PAGE);
    DO(kgen_memory_write(d->w.ctx, d->attn.seq_lens.data, lengths, sizeof lengths, &did));
}

static void make_decode(decode *d) {
    int32_t table[SEQS * COLUMNS];
    memset(d, 0, sizeof *d);
    world_open_on(&d->w, device);
    for (int i = 0; i < SEQS * COLUMNS; i++)
        table[i] = (int32_t)kgen__rng_range(&rng, 0, PAGES - 1);
    d->kernel = world_prepare(&d->w, LINE);
    d->attn = (kgen_attn_args){
        .q = random_rows(&d->w, 0, SEQS, 1, GROUP),
        .k = random_rows(&d->w, KGEN_LAYOUT_NHD, PAGES, PAGE, 1),
        .v = random_rows(&d->w, KGEN_LAYOUT_NHD, PAGES, PAGE, 1),
        .out = WORLD_PUT(&d->w, KGEN_DTYPE_BF16, 0, NULL, SEQS, GROUP, D),
        .block_table = WORLD_PUT(&d->w, KGEN_DTYPE_I32, 0, table, SEQS, COLUMNS),
        .seq_lens = WORLD_PUT(&d->w, KGEN_DTYPE_I32, 0, NULL, SEQS),
        .softmax_scale = 0.125f,
    };
    d->args = world_args(&d->w, d->kernel, &d->attn);
    draw_lengths(d);
    DO(kgen_stream_sync(d->w.ctx, d->w.stream, &did));
}

/* What a launch or a replay (NULL: a launch) leaves of poison. */
static const uint16_t *outcome(decode *d, capture *c) {
    memset(d->out, 0xff, sizeof d->out);
    DO(kgen_memory_write(d->w.ctx, d->attn.out.data, d->out, sizeof d->out, &did));
    if (c) {
        replay(&d->w, c);
    } else {
        DO(kgen_launch(d->kernel, &d->args, d->w.stream, &did));
        DO(kgen_stream_sync(d->w.ctx, d->w.stream, &did));
    }
    DO(kgen_memory_read(d->w.ctx, d->out, d->attn.out.data, sizeof d->out, &did));
    return d->out;
}

static void assert_same(decode *d, capture *c, int round) {
    uint16_t eager[OUT];
    memcpy(eager, outcome(d, NULL), sizeof eager);
    if (memcmp(eager, outcome(d, c), sizeof eager) != 0)
        fail_msg("replay %d: other bits than a launch's", round);
}

/* ---- what another thread does meanwhile ----------------------------------------------- */

typedef struct beside {
    pthread_barrier_t barrier;
    decode *d;
    const char *failed;
    kgen_error err;
} beside;

#define TRY(call)                \
    do {                         \
        if ((call) != KGEN_OK) { \
            b->failed = #call;   \
            return;              \
        }                        \
    } while (0)

/* Compiles where the cache has none, loads, is found, and is unloaded again. */
static void come_and_go(beside *b, kgen_context *ctx, const char *line) {
    kgen_kernel *kernel = NULL;
    kgen_spec spec;
    TRY(kgen_spec_parse(&spec, line, &b->err));
    TRY(kgen_prepare(ctx, &spec, 1, &kernel, &b->err));
    if (kgen_find(ctx, &spec, NULL) != kernel) b->failed = "kgen_find";
    kgen_kernel_release(kernel);
}

/* Another context of the device has the captured kernel too, and takes it away. */
static void open_and_close(beside *b) {
    const kgen_open_options options = {.size = sizeof options, .device = device};
    kgen_context *ctx = NULL;
    void *memory = NULL;
    TRY(kgen_open(&ctx, &options, &b->err));
    come_and_go(b, ctx, LINE);
    if (kgen_memory_alloc(ctx, &memory, 4096, &b->err) != KGEN_OK) b->failed = "kgen_memory_alloc";
    kgen_memory_free(ctx, memory);
    kgen_close(ctx);
}

static void *work(void *user) {
    beside *b = user;
    pthread_barrier_wait(&b->barrier); /* the other one captures */
    come_and_go(b, b->d->w.ctx, "scatter:op=kv_splits");
    if (!b->failed) come_and_go(b, b->d->w.ctx, "kv_write:d=64,page=16,layout=nhd");
    if (!b->failed) open_and_close(b);
    pthread_barrier_wait(&b->barrier);
    return NULL;
}

/* ---- the tests ------------------------------------------------------------------------ */

/* In the capturing thread: a kernel that is not there, and a launch that is refused. */
static void miss(decode *d) {
    kgen_error err = {KGEN_OK, ""};
    kgen_request request = {.size = sizeof request};
    const kgen_prepare_options options = {.size = sizeof options, .stream = d->w.stream};
    kgen_attn_args wrong = d->attn;
    const kgen_args args = {.family = KGEN_FAMILY_ATTN, .attn = &wrong};
    wrong.k.data = NULL;
    DO(kgen_spec_parse(&request.spec, "attn:phase=decode,d=32,g=1,page=16,layout=nhd", &did));
    assert_null(kgen_find(d->w.ctx, &request.spec, NULL));
    assert_int_equal(kgen_prepare_for(d->w.ctx, &request, 1, &options, &err), KGEN_E_CAPTURE);
    assert_int_equal(kgen_launch(d->kernel, &args, d->w.stream, &err), KGEN_E_ARG);
}

static void test_every_mode(void **state) {
    static const char *const modes[] = {"global", "thread-local", "relaxed"};
    (void)state;
    decode d;
    make_decode(&d);
    load_hip(d.w.ctx);
    outcome(&d, NULL);
    for (int mode = 0; mode < (hip.begin ? 3 : 1); mode++) {
        beside b = {.d = &d};
        pthread_t thread;
        capture c;
        assert_int_equal(pthread_barrier_init(&b.barrier, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, work, &b), 0);
        begin(&d.w, mode);
        pthread_barrier_wait(&b.barrier);
        kgen_status launched = kgen_launch(d.kernel, &d.args, d.w.stream, &did);
        pthread_barrier_wait(&b.barrier); /* it is done */
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&b.barrier);
        if (b.failed)
            fail_msg("%s: %s: %s", hip.begin ? modes[mode] : device, b.failed, b.err.text);
        world_must(launched, &did);
        miss(&d);
        end(&d.w, &c);
        for (int round = 0; round < 3; round++) {
            assert_same(&d, &c, round);
            open_and_close(&b); /* while the graph lives */
            assert_null(b.failed);
            draw_lengths(&d);
        }
        forget(&c);
        print_message("%s\n", hip.begin ? modes[mode] : device);
    }
    world_close(&d.w);
}

/* A driver may say that a graph is gone some time after it is. */
static void assert_reclaimed(kgen_context *ctx) {
    for (int ms = 0; kgen_context_reclaim(ctx); ms++) {
        assert_in_range(ms, 0, 10000);
        usleep(1000);
    }
}

/* Released, its context closed: what a graph holds is there until the graph is gone. */
static void test_graphs_hold_kernels(void **state) {
    (void)state;
    const kgen_open_options options = {.size = sizeof options, .device = device};
    decode d;
    capture one, two;
    kgen_context *other = NULL;
    kgen_kernel *kernel = NULL;
    make_decode(&d);
    load_hip(d.w.ctx);
    outcome(&d, NULL);
    DO(kgen_open(&other, &options, &did));
    DO(kgen_prepare(other, kgen_kernel_spec(d.kernel), 1, &kernel, &did));
    DO(kgen_launch(kernel, &d.args, d.w.stream, &did)); /* asks where the memory lies */
    begin(&d.w, 1);
    DO(kgen_launch(d.kernel, &d.args, d.w.stream, &did));
    DO(kgen_graph_hold(d.w.ctx, &d.kernel, 1, d.w.stream, &did));
    end(&d.w, &one);
    begin(&d.w, 1);
    DO(kgen_graph_hold(other, NULL, 0, d.w.stream, &did));
    DO(kgen_launch(kernel, &d.args, d.w.stream, &did));
    end(&d.w, &two);
    forget_graph(&one);
    forget_graph(&two);
    kgen_kernel_release(d.kernel);
    assert_int_equal(kgen_context_reclaim(d.w.ctx), 1);
    kgen_close(other);
    d.kernel = world_prepare(&d.w, LINE); /* a new one */
    for (int round = 0; round < 3; round++) {
        draw_lengths(&d);
        assert_same(&d, &one, round);
        assert_same(&d, &two, round);
    }
    forget(&one);
    assert_reclaimed(d.w.ctx);
    forget(&two);
    world_close(&d.w);
}

static long resident_kib(void) {
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * 4;
}

static int rounds_wanted(void) {
    if (hip.begin) return 20; /* may be emulated */
    if (test_level() == LEVEL_FAST) return 200;
    if (test_level() == LEVEL_NORMAL) return 2000;
    return test_is_sanitized() ? 5000 : 100000;
}

/* Each replay with lengths of its own, among them 0; memory stays. */
static void test_lengths_change(void **state) {
    (void)state;
    decode d;
    capture c;
    make_decode(&d);
    load_hip(d.w.ctx);
    outcome(&d, NULL);
    begin(&d.w, 1);
    DO(kgen_launch(d.kernel, &d.args, d.w.stream, &did));
    end(&d.w, &c);
    const int rounds = rounds_wanted();
    long before = 0;
    for (int round = 0; round < rounds; round++) {
        draw_lengths(&d);
        assert_same(&d, &c, round);
        if (round == rounds / 10) before = resident_kib();
    }
    long grown = resident_kib() - before;
    print_message("%d replays, %ld KiB more\n", rounds, grown);
    if (!test_is_sanitized()) assert_in_range(grown < 0 ? 0 : grown, 0, 4096);
    forget(&c);
    world_close(&d.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mode),
        cmocka_unit_test(test_graphs_hold_kernels),
        cmocka_unit_test(test_lengths_change),
    };
    device = getenv("KGEN_TEST_DEVICE");
    if (!device || !*device) device = "cpu:cdna3";
    kgen__rng_seed(&rng, test_seed(), 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Launches of gdn on the cpu device that a single case cannot show: slots far
 * apart, counters, threads, a thousand steps, shared prefixes, drafts, graphs.
 * Tensors lie in host memory. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "check/check_gdn.h"
#include "did.h"
#include "seed.h"

enum { CDNA3, SM90, DEVICES };

static const char *const devices[DEVICES] = {"cpu:cdna3", "cpu:sm90"};
static kgen_context *contexts[DEVICES];
static uint64_t seed;
static kgen__rng rng;

/* ---- a case, ready to launch ------------------------------------------------ */

typedef struct rig {
    kgen_context *ctx;
    kgen_kernel *kernel;
    kgen_stream stream;
    kgen__data data;
    kgen_args args; /* of data, with a workspace */
    kgen_args_room room;
    void *workspace;
    const char *line;
} rig;

static void *new_workspace(rig *r, kgen_stream stream) {
    void *workspace = NULL;
    size_t bytes;
    DO(kgen_workspace_size(r->kernel, &r->args, &bytes, &did));
    r->args.workspace_bytes = bytes;
    if (bytes == 0) return NULL;
    DO(kgen_memory_alloc(r->ctx, &workspace, bytes, &did));
    memset(workspace, 0xff, bytes);
    DO(kgen_workspace_init(r->ctx, workspace, bytes, stream, &did));
    return workspace;
}

static void make_rig(rig *r, int device, const char *line) {
    kgen__case c;
    memset(r, 0, sizeof *r);
    r->ctx = contexts[device];
    r->line = line;
    DO(kgen__case_parse(&c, line, &did));
    kgen__case_draw(&c, kgen__rng_next(&rng) >> 32);
    DO(kgen_prepare(r->ctx, &c.spec, 1, &r->kernel, &did));
    DO(kgen_stream_create(r->ctx, &r->stream, &did));
    DO(kgen__data_make(&r->data, &c, kgen_kernel_spec(r->kernel), &did));
    DO(kgen__data_fill(&r->data, c.seed, &did));
    kgen_args_copy(&r->args, &r->room, &r->data.args);
    r->args.workspace = r->workspace = new_workspace(r, r->stream);
}

static void free_rig(rig *r) {
    kgen_memory_free(r->ctx, r->workspace);
    kgen_stream_destroy(r->ctx, r->stream);
    kgen__data_free(&r->data);
}

static void run(rig *r) {
    DO(kgen_launch(r->kernel, &r->args, r->stream, &did));
    DO(kgen_stream_sync(r->ctx, r->stream, &did));
}

/* From the first contents of everything that is read and written. */
static void launch(rig *r) {
    kgen__data_poison_outputs(&r->data);
    run(r);
}

static void compare(rig *r) {
    kgen__check_result result;
    kgen_error why = {KGEN_OK, ""};
    if (kgen__data_compare(&result, &r->data, &why) != KGEN_OK)
        fail_msg("%s: %s (seed %" PRIu64 ")", r->line, why.text, seed);
}

/* All that a launch may write, guards included, one behind the other. */
static unsigned char *outputs_of(const rig *r) {
    unsigned char *copy = NULL;
    size_t size = 0;
    for (int i = 0; i < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_GDN}); i++) {
        const kgen__slot *slot = &r->data.slot[i];
        if (!slot->bytes || slot->role == KGEN_USE_IN) continue;
        copy = realloc(copy, size + slot->size);
        assert_non_null(copy);
        memcpy(copy + size, slot->bytes, slot->size);
        size += slot->size;
    }
    assert_true(size > 0);
    return copy;
}

static void assert_outputs(const rig *r, const unsigned char *want, const char *what) {
    for (int i = 0; i < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_GDN}); i++) {
        const kgen__slot *slot = &r->data.slot[i];
        if (!slot->bytes || slot->role == KGEN_USE_IN) continue;
        size_t at = 0;
        while (at < slot->size && slot->bytes[at] == want[at]) at++;
        if (at < slot->size)
            fail_msg("%s: %s: other bits in %s at byte %zu (seed %" PRIu64 ")", r->line, what,
                     kgen__slot_name(&(kgen_args){.family = KGEN_FAMILY_GDN}, i), at, seed);
        want += slot->size;
    }
}

static void assert_counters_at_rest(const rig *r) {
    DO(kgen_workspace_check(r->ctx, r->workspace, r->args.workspace_bytes, r->stream, &did));
}

static kgen__gdn_seq sequence(const rig *r, int64_t n) {
    return kgen__gdn_sequence(&r->data.spec.gdn, r->data.args.gdn, n);
}

static const kgen_tensor *tensor(rig *r, int slot) {
    return kgen__slot_tensor(&r->data.args, slot);
}

/* A part is a slot, a line or a row: what lies behind the first index. */
static size_t part_bytes(const kgen_tensor *t) {
    int64_t last = 0;
    for (int i = 1; i < t->rank; i++) last += (t->shape[i] - 1) * t->stride[i];
    return (size_t)(last + 1) * (size_t)kgen_dtype_size(t->dtype);
}

static char *part_of(const kgen_tensor *t, int64_t part) {
    return (char *)t->data + part * t->stride[0] * kgen_dtype_size(t->dtype);
}

/* ---- addresses -------------------------------------------------------------- */

static const int pools[] = {STATE, CONV_STATE, BUFFER, CONV_WINDOWS, RING_K, RING_U, RING_DECAY};
enum { POOLS = sizeof pools / sizeof pools[0], POOL_ROOM = 1 << 20 };

static void copy_parts(const kgen_tensor *to, const kgen_tensor *from) {
    for (int64_t i = 0; i < from->shape[0]; i++)
        memcpy(part_of(to, i), part_of(from, i), part_bytes(from));
}

/* Moves every pool to `region`, with `step` bytes between its parts. */
static void spread(rig *r, char *region, int64_t step) {
    for (int i = 0; i < POOLS; i++) {
        kgen_tensor *t = kgen__slot_tensor(&r->args, pools[i]);
        if (!t->data) continue;
        assert_true(part_bytes(t) <= POOL_ROOM);
        t->data = region + (ptrdiff_t)i * POOL_ROOM;
        t->stride[0] = step / kgen_dtype_size(t->dtype);
        copy_parts(t, tensor(r, pools[i]));
    }
}

static void gather(rig *r) {
    for (int i = 0; i < POOLS; i++) {
        const kgen_tensor *t = kgen__slot_tensor(&r->args, pools[i]);
        if (t->data) copy_parts(tensor(r, pools[i]), t);
    }
}

static int64_t furthest_slot(const rig *r) {
    int64_t most = 0;
    for (int64_t n = 0; n < r->data.shape.seqs; n++) {
        kgen__gdn_seq q = sequence(r, n);
        if (q.live && q.read > most) most = q.read;
    }
    return most;
}

static int64_t most_parts(rig *r) {
    int64_t most = 0;
    for (int i = 0; i < POOLS; i++) {
        const kgen_tensor *t = tensor(r, pools[i]);
        if (t->data && t->shape[0] > most) most = t->shape[0];
    }
    return most;
}

static void check_far(const char *line, int64_t step) {
    rig r;
    make_rig(&r, CDNA3, line);
    launch(&r);
    compare(&r);
    unsigned char *want = outputs_of(&r);
    assert_true(furthest_slot(&r) * step > (int64_t)1 << 32);
    kgen__data_poison_outputs(&r.data);
    size_t bytes = (size_t)(most_parts(&r) * step);
    char *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) {
        print_message("skipped: %zu bytes of address space are not to be had\n", bytes);
        free(want);
        free_rig(&r);
        skip();
    }
    spread(&r, region, step);
    run(&r);
    gather(&r);
    assert_outputs(&r, want, "parts far from each other");
    munmap(region, bytes);
    free(want);
    free_rig(&r);
}

#define HEADS "hk=1,hv=2,dk=64,dv=64"

/* Byte offsets past 2^32; products, and strides, that are negative in 32 bits. */
static void test_pools_beyond_4_gib(void **state) {
    (void)state;
    static const char *const lines[] = {
        "gdn:layout=flat," HEADS " | seqs=4",
        "gdn:layout=flat," HEADS ",idx=i64,cl=ds,state=bf16,sl=kv | seqs=4",
        "gdn:layout=flat," HEADS ",index=pair | seqs=4",
        "gdn:fuse=c,layout=flat," HEADS " | seqs=4",
        "gdn:layout=flat," HEADS ",t=3,index=spec,accept=1,save=slots,idx=i64 | seqs=3 acc=1,2,3",
        "gdn:layout=flat," HEADS ",t=3,save=buffer | seqs=4 lines=1",
        "gdn:layout=flat," HEADS ",save=replay,ring=4 | seqs=4 ring=0,2,3,4",
    };
    static const int64_t steps[] = {((int64_t)1 << 31) + 8192, ((int64_t)1 << 32) + 4096,
                                    ((int64_t)1 << 33) + 4096};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (int k = 0; k < 3; k++) check_far(lines[i], steps[k]);
}

/* ---- counters --------------------------------------------------------------- */

/* Several workgroups read a window of queries and keys; the last one writes. */
static const char *const sharers[] = {
    "gdn:layout=flat,hk=1,hv=4,dk=64,dv=64 | seqs=5 pads=2 tail=1",
    "gdn:fuse=d,layout=interleaved,hk=2,hv=4,dk=64,dv=64,vb=2,waves=1,el=32 | seqs=3",
    "gdn:fuse=d,layout=flat,hk=1,hv=1,dk=64,dv=64,vb=4,waves=1,el=16 | seqs=3 pads=1",
    "gdn:layout=flat," HEADS ",t=4,index=spec,accept=1,save=slots,varlen=1"
    " | lens=4,0,1,3,2 acc=2,1,4,0,6 tail=1",
    "gdn:layout=flat," HEADS ",index=pair | seqs=4 pads=1 wpads=1",
};
enum { SHARERS = sizeof sharers / sizeof sharers[0], REPEATS = 200 };

static void test_counters_come_to_rest(void **state) {
    (void)state;
    for (int i = 0; i < SHARERS; i++) {
        rig r;
        make_rig(&r, CDNA3, sharers[i]);
        assert_true(r.args.workspace_bytes > 0);
        launch(&r);
        assert_counters_at_rest(&r);
        compare(&r);
        unsigned char *want = outputs_of(&r);
        for (int k = 0; k < REPEATS; k++) {
            launch(&r);
            assert_outputs(&r, want, "another launch on the same workspace");
        }
        assert_counters_at_rest(&r);
        free(want);
        free_rig(&r);
    }
}

/* ---- threads ---------------------------------------------------------------- */

enum { HALVES = 2, ROUNDS = 50 };
static const int shared[] = {STATE, CONV_STATE, OUT};
enum { SHARED = sizeof shared / sizeof shared[0] };

/* Some sequences of a rig, with a stream and a workspace of their own. */
typedef struct half {
    rig *r;
    kgen_args args;
    kgen_args_room room;
    kgen_stream stream;
    int64_t first, count;
    unsigned char *const *want; /* [SHARED] */
    pthread_barrier_t *gate;
    int wrong, failed;
} half;

static void make_half(half *h, rig *r, int64_t first, int64_t count) {
    static const int rows[] = {QKVZ, BA, X, SLOTS, OUT};
    *h = (half){.r = r, .first = first, .count = count};
    kgen_args_copy(&h->args, &h->room, &r->args);
    DO(kgen_stream_create(r->ctx, &h->stream, &did));
    h->args.workspace = new_workspace(r, h->stream);
    DO(kgen_stream_sync(r->ctx, h->stream, &did));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kgen_tensor *t = kgen__slot_tensor(&h->args, rows[i]);
        if (!t->data) continue;
        t->data = part_of(t, first);
        t->shape[0] = count;
    }
}

/* Gives what the half writes its first contents, or looks whether it is right. */
static int go_over(const half *h, int is_check) {
    int wrong = 0;
    for (int64_t n = h->first; n < h->first + h->count; n++)
        for (int i = 0; i < SHARED; i++) {
            const kgen__slot *slot = &h->r->data.slot[shared[i]];
            const kgen_tensor *t = tensor(h->r, shared[i]);
            if (!t->data) continue;
            char *part = part_of(t, shared[i] == OUT ? n : sequence(h->r, n).read);
            size_t at = (size_t)((unsigned char *)part - slot->bytes), bytes = part_bytes(t);
            if (is_check)
                wrong += memcmp(part, h->want[i] + at, bytes) != 0;
            else if (slot->before)
                memcpy(part, slot->before + at, bytes);
            else
                memset(part, 0xff, bytes);
        }
    return wrong;
}

static kgen_status launch_half(const half *h) {
    kgen_status status = kgen_launch(h->r->kernel, &h->args, h->stream, NULL);
    return status == KGEN_OK ? kgen_stream_sync(h->r->ctx, h->stream, NULL) : status;
}

static void *run_half(void *user) {
    half *h = user;
    for (int i = 0; i < ROUNDS; i++) {
        go_over(h, 0);
        pthread_barrier_wait(h->gate);
        h->failed += launch_half(h) != KGEN_OK;
        h->wrong += go_over(h, 1);
    }
    return NULL;
}

static void keep_shared(rig *r, unsigned char *want[SHARED]) {
    for (int i = 0; i < SHARED; i++) {
        const kgen__slot *slot = &r->data.slot[shared[i]];
        want[i] = slot->bytes ? malloc(slot->size) : NULL;
        if (!slot->bytes) continue;
        assert_non_null(want[i]);
        memcpy(want[i], slot->bytes, slot->size);
    }
}

static void run_both(half halves[HALVES]) {
    pthread_barrier_t gate;
    pthread_t threads[HALVES];
    assert_int_equal(pthread_barrier_init(&gate, NULL, HALVES), 0);
    for (int i = 0; i < HALVES; i++) {
        halves[i].gate = &gate;
        assert_int_equal(pthread_create(&threads[i], NULL, run_half, &halves[i]), 0);
    }
    for (int i = 0; i < HALVES; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&gate);
}

/* One pool, two streams, slots that differ. */
static void check_threads(const char *line) {
    rig r;
    half halves[HALVES];
    unsigned char *want[SHARED];
    make_rig(&r, CDNA3, line);
    int64_t seqs = r.data.shape.seqs, cut = kgen__rng_range(&rng, 2, seqs - 2);
    for (int i = 0; i < HALVES; i++) make_half(&halves[i], &r, i ? cut : 0, i ? seqs - cut : cut);
    kgen__data_poison_outputs(&r.data);
    for (int i = 0; i < HALVES; i++) assert_int_equal(launch_half(&halves[i]), KGEN_OK);
    compare(&r);
    keep_shared(&r, want);
    for (int i = 0; i < HALVES; i++) halves[i].want = want;
    run_both(halves);
    for (int i = 0; i < HALVES; i++) {
        if (halves[i].failed || halves[i].wrong)
            fail_msg("%s: thread %d: %d launches failed, %d parts are wrong (seed %" PRIu64 ")",
                     line, i, halves[i].failed, halves[i].wrong, seed);
        kgen_stream_destroy(r.ctx, halves[i].stream);
        kgen_memory_free(r.ctx, halves[i].args.workspace);
    }
    compare(&r);
    for (int i = 0; i < SHARED; i++) free(want[i]);
    free_rig(&r);
}

static void test_two_threads(void **state) {
    (void)state;
    check_threads("gdn:layout=flat,hk=1,hv=4,dk=64,dv=64 | seqs=12 extra=2");
    check_threads("gdn:fuse=d,layout=interleaved,hk=2,hv=4,dk=64,dv=64,vb=2,waves=2,el=16"
                  " | seqs=9");
    check_threads("gdn:fuse=a,layout=flat,hk=1,hv=1,dk=64,dv=64,o=f32 | seqs=12");
}

/* ---- a thousand steps -------------------------------------------------------- */

enum { WIDE = 64, STATE_SIZE = WIDE * WIDE, STEPS = 1000 };

typedef struct drift {
    rig r;
    int64_t slot;
    double exact[STATE_SIZE];   /* in double */
    double rounded[STATE_SIZE]; /* rounded to the state's type at every step */
    double o_exact[WIDE], o_rounded[WIDE];
    double o_worst, state_worst;     /* over the largest of the state */
    double got_error, rounded_error; /* sums of squares, of the state */
    double o_got_error, o_rounded_error;
} drift;

typedef struct token {
    double q[WIDE], k[WIDE], v[WIDE], decay, beta;
} token;

static double load(const kgen_tensor *t, int64_t at) {
    return kgen__number_load(t->dtype, t->data, at);
}

static void store(const kgen_tensor *t, int64_t at, double value) {
    kgen__number_store(t->dtype, t->data, at, value);
}

static void normalise(double *x, const kgen_tensor *row, int64_t first, double eps, double scale) {
    double sum = eps;
    for (int i = 0; i < WIDE; i++) sum += load(row, first + i) * load(row, first + i);
    for (int i = 0; i < WIDE; i++) x[i] = load(row, first + i) / sqrt(sum) * scale;
}

/* New inputs for the device, and what they mean. */
static void draw_token(token *x, const kgen_gdn_args *a) {
    for (int i = 0; i < 3 * WIDE; i++) store(&a->x, i, 0.7 * kgen__rng_normal(&rng));
    for (int i = 0; i < 2; i++) store(&a->ba, i, kgen__rng_normal(&rng));
    normalise(x->q, &a->x, 0, (double)a->l2_eps, (double)a->q_scale);
    normalise(x->k, &a->x, WIDE, (double)a->l2_eps, 1);
    for (int i = 0; i < WIDE; i++) x->v[i] = load(&a->x, 2 * WIDE + i);
    x->beta = 1 / (1 + exp(-load(&a->ba, 0)));
    x->decay = exp(-exp(load(&a->a_log, 0)) * log1p(exp(load(&a->ba, 1) + load(&a->dt_bias, 0))));
}

/* S = decay S; u = beta (v - S k); S = S + u k^T; o = S q. */
static void step(double *s, double *o, const token *x) {
    for (int v = 0; v < WIDE; v++) {
        double *row = s + v * WIDE, sum = 0;
        for (int k = 0; k < WIDE; k++) {
            row[k] *= x->decay;
            sum += row[k] * x->k[k];
        }
        o[v] = 0;
        for (int k = 0; k < WIDE; k++) {
            row[k] += x->beta * (x->v[v] - sum) * x->k[k];
            o[v] += row[k] * x->q[k];
        }
    }
}

static void round_state(double *s, kgen_dtype dtype) {
    for (int i = 0; i < STATE_SIZE; i++)
        s[i] = (double)kgen__number_decode(dtype, kgen__number_encode(dtype, s[i]));
}

static double square(double x) { return x * x; }

static void measure(drift *d) {
    const kgen_gdn_args *a = d->r.data.args.gdn;
    double largest = 0, state_error = 0, o_error = 0;
    int64_t base = d->slot * a->state.stride[0];
    for (int i = 0; i < STATE_SIZE; i++) {
        double got = load(&a->state, base + i);
        largest = fmax(largest, fabs(d->exact[i]));
        state_error = fmax(state_error, fabs(got - d->exact[i]));
        d->got_error += square(got - d->exact[i]);
        d->rounded_error += square(d->rounded[i] - d->exact[i]);
    }
    for (int i = 0; i < WIDE; i++) {
        double got = load(&a->out, i);
        if (!isfinite(got)) fail_msg("%s: out is %g (seed %" PRIu64 ")", d->r.line, got, seed);
        o_error = fmax(o_error, fabs(got - d->o_exact[i]));
        d->o_got_error += square(got - d->o_exact[i]);
        d->o_rounded_error += square(d->o_rounded[i] - d->o_exact[i]);
    }
    d->state_worst = fmax(d->state_worst, state_error / largest);
    d->o_worst = fmax(d->o_worst, o_error / largest);
}

static void start_drift(drift *d, int device, const char *line) {
    make_rig(&d->r, device, line);
    const kgen_gdn_args *a = d->r.data.args.gdn;
    d->slot = sequence(&d->r, 0).read;
    /* A decay near 1 keeps errors for long. */
    store(&a->a_log, 0, -6 + 2 * kgen__rng_uniform(&rng));
    for (int i = 0; i < STATE_SIZE; i++)
        d->exact[i] = d->rounded[i] = load(&a->state, d->slot * a->state.stride[0] + i);
}

static drift *drifted(int device, const char *line) {
    drift *d = calloc(1, sizeof *d);
    assert_non_null(d);
    start_drift(d, device, line);
    for (int i = 0; i < STEPS; i++) {
        token x;
        draw_token(&x, d->r.data.args.gdn);
        run(&d->r);
        step(d->exact, d->o_exact, &x);
        step(d->rounded, d->o_rounded, &x);
        round_state(d->rounded, (kgen_dtype)d->r.data.spec.gdn.state);
        measure(d);
    }
    return d;
}

#define DRIFT "gdn:fuse=a,layout=flat,hk=1,hv=1,dk=64,dv=64,o=f32"

static void check_f32_drift(int device) {
    drift *d = drifted(device, DRIFT " | seqs=1 extremes=0");
    print_message("%s: f32 state: error of o %.2g, of the state %.2g\n", devices[device],
                  d->o_worst, d->state_worst);
    if (!(d->o_worst <= 1e-5) || !(d->state_worst <= 1e-5))
        fail_msg("%s: o %g, state %g of the state's largest (seed %" PRIu64 ")", d->r.line,
                 d->o_worst, d->state_worst, seed);
    free_rig(&d->r);
    free(d);
}

static void check_bf16_drift(int device) {
    drift *d = drifted(device, DRIFT ",state=bf16 | seqs=1 extremes=0");
    double state = sqrt(d->got_error / d->rounded_error);
    double o = sqrt(d->o_got_error / d->o_rounded_error);
    print_message("%s: bf16 state: error over that of rounding alone: o %.3f, state %.3f\n",
                  devices[device], o, state);
    assert_true(d->rounded_error > 0 && d->o_rounded_error > 0);
    if (!(fabs(log2(state)) <= 1) || !(fabs(log2(o)) <= 1))
        fail_msg("%s: o %g, state %g times the error of rounding (seed %" PRIu64 ")", d->r.line, o,
                 state, seed);
    free_rig(&d->r);
    free(d);
}

static void test_a_thousand_steps(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        check_f32_drift(i);
        check_bf16_drift(i);
    }
}

/* ---- prefixes ----------------------------------------------------------------- */

static void assert_read_slots_kept(rig *r) {
    static const int kept[] = {STATE, CONV_STATE};
    for (int64_t n = 0; n < r->data.shape.seqs; n++) {
        kgen__gdn_seq q = sequence(r, n);
        assert_true(q.live && q.write >= 0 && q.read != q.write);
        for (int i = 0; i < 2; i++) {
            const kgen__slot *slot = &r->data.slot[kept[i]];
            const kgen_tensor *t = tensor(r, kept[i]);
            if (!t->data) continue;
            size_t at = (size_t)((unsigned char *)part_of(t, q.read) - slot->bytes);
            size_t to = (size_t)((unsigned char *)part_of(t, q.write) - slot->bytes);
            if (memcmp(slot->bytes + at, slot->before + at, part_bytes(t)))
                fail_msg("%s: the %s that sequence %lld reads has changed (seed %" PRIu64 ")",
                         r->line, kgen__slot_name(&(kgen_args){.family = KGEN_FAMILY_GDN}, kept[i]),
                         (long long)n, seed);
            assert_memory_not_equal(slot->bytes + to, slot->before + to, part_bytes(t));
        }
    }
}

/* All sequences go on from the slot that the first one reads. */
static void share_prefix(rig *r) {
    const kgen_gdn_args *a = r->data.args.gdn;
    int64_t first = sequence(r, 0).read;
    for (int64_t n = 0; n < r->data.shape.seqs; n++) {
        int64_t at = n * a->slots.stride[0];
        if (a->read_col.data) at += kgen__int_load(&a->read_col, n) * a->slots.stride[1];
        kgen__int_store(&a->slots, at, first);
        assert_int_equal(sequence(r, n).read, first);
    }
}

static void test_prefixes_stay(void **state) {
    (void)state;
    static const char *const lines[] = {
        "gdn:layout=flat," HEADS ",index=pair | seqs=5",
        "gdn:fuse=d,layout=interleaved," HEADS ",state=bf16,index=pair,idx=i64"
        " | seqs=5 slotpad=1",
        "gdn:fuse=a,layout=flat," HEADS ",t=3,varlen=1,index=pair | lens=3,1,2",
        "gdn:layout=flat," HEADS ",index=blocks | seqs=5 scols=3 idxpad=1",
        "gdn:fuse=c,layout=flat," HEADS ",t=2,index=blocks | seqs=4 scols=1",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        rig r;
        make_rig(&r, CDNA3, lines[i]);
        for (int is_shared = 0; is_shared < 2; is_shared++) {
            if (is_shared) share_prefix(&r);
            launch(&r);
            compare(&r);
            assert_read_slots_kept(&r);
        }
        free_rig(&r);
    }
}

/* ---- drafts ------------------------------------------------------------------- */

typedef struct draft_case {
    const char *draft, *single;
    double relative; /* to the largest of an output row, of a state */
} draft_case;

/* Nothing is rounded on the way, so that errors stay small. */
#define DRAFTS "gdn:layout=flat," HEADS ",o=f32,convr=0,or=0"
#define DRAFTS_D "gdn:fuse=d,layout=interleaved,hk=1,hv=3,dk=64,dv=64,o=f32,convr=0,cl=ds"
#define VLLM ",index=spec,accept=1,save=slots"

static const draft_case draft_cases[] = {
    {DRAFTS ",t=4" VLLM " | seqs=3 acc=rand:1..4 extremes=0", DRAFTS " | seqs=3 extremes=0", 1e-5},
    {DRAFTS_D ",t=3" VLLM " | seqs=2 acc=rand:1..3 extremes=0", DRAFTS_D " | seqs=2 extremes=0",
     1e-5},
    {DRAFTS ",t=4,state=bf16,sr=1" VLLM " | seqs=3 acc=rand:1..4 extremes=0",
     DRAFTS ",state=bf16 | seqs=3 extremes=0", 0x1p-6},
};

static void copy_weights(rig *to, const rig *from) {
    static const int weights[] = {CONV_WEIGHT, A_LOG, DT_BIAS, NORM_WEIGHT};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        const kgen__slot *source = &from->data.slot[weights[i]], *sink = &to->data.slot[weights[i]];
        assert_int_equal(source->size, sink->size);
        if (source->bytes) memcpy(sink->bytes, source->bytes, source->size);
    }
}

/* What the first draft starts from is what the single steps start from. */
static void copy_start(rig *single, rig *draft) {
    const kgen_tensor *from = tensor(draft, CONV_STATE), *to = tensor(single, CONV_STATE);
    kgen__gdn_dims d = kgen__gdn_dims_of(&draft->data.spec.gdn);
    for (int64_t n = 0; n < draft->data.shape.seqs; n++) {
        kgen__gdn_seq p = sequence(draft, n), q = sequence(single, n);
        memcpy(part_of(tensor(single, STATE), q.read), part_of(tensor(draft, STATE), p.read),
               part_bytes(tensor(draft, STATE)));
        for (int64_t channel = 0; channel < d.c; channel++)
            for (int64_t i = 0; i < d.w - 1; i++)
                store(to, kgen__gdn_conv_at(to, q.conv_read, channel, i),
                      load(from, kgen__gdn_conv_at(from, p.conv_read, channel, p.offset + i)));
    }
    kgen__data_remember(&single->data);
}

static void assert_close(const kgen_tensor *got, int64_t got_part, const kgen_tensor *want,
                         int64_t want_part, const draft_case *c, int accepted, int64_t t) {
    int64_t count = (int64_t)part_bytes(want) / kgen_dtype_size(want->dtype);
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = load(got, got_part * got->stride[0] + i);
        double y = load(want, want_part * want->stride[0] + i);
        if (!isfinite(x)) worst = INFINITY;
        largest = fmax(largest, fabs(y));
        worst = fmax(worst, fabs(x - y));
    }
    if (!(worst <= c->relative * largest))
        fail_msg("%s: accepted %d, token %lld, %s: off by %g of %g (seed %" PRIu64 ")", c->draft,
                 accepted, (long long)t, got->rank == 3 ? "out" : "state", worst, largest, seed);
}

/* Token t of every sequence as a single step. */
static void step_alone(rig *single, rig *draft, int64_t t) {
    static const int rows[] = {QKVZ, BA};
    int64_t tokens = draft->data.spec.gdn.tokens;
    for (int64_t n = 0; n < draft->data.shape.seqs; n++)
        for (int i = 0; i < 2; i++)
            memcpy(part_of(tensor(single, rows[i]), n),
                   part_of(tensor(draft, rows[i]), n * tokens + t),
                   part_bytes(tensor(draft, rows[i])));
    run(single);
}

/* The draft's launch against single steps of its tokens. */
static void follow(rig *single, rig *draft, const draft_case *c, int accepted) {
    const kgen_gdn_spec *s = &draft->data.spec.gdn;
    for (int64_t t = 0; t < s->tokens; t++) {
        step_alone(single, draft, t);
        for (int64_t n = 0; n < draft->data.shape.seqs; n++) {
            int64_t slot = kgen__gdn_token_slot(s, draft->data.args.gdn, n, t);
            assert_close(tensor(draft, OUT), n * s->tokens + t, tensor(single, OUT), n, c, accepted,
                         t);
            assert_close(tensor(draft, STATE), slot, tensor(single, STATE),
                         sequence(single, n).read, c, accepted, t);
        }
    }
}

static void draw_rows(rig *r) {
    static const int rows[] = {QKVZ, BA};
    for (int i = 0; i < 2; i++) {
        const kgen_tensor *t = tensor(r, rows[i]);
        for (int64_t k = 0; k < t->shape[0] * t->shape[1]; k++)
            store(t, k, 0.7 * kgen__rng_normal(&rng));
    }
}

/* A second draft, after `accepted` tokens of the first one, whose outcome is
 * what the pools of `draft` begin with. Their rows are left as they were. */
static void check_accepted(rig *single, rig *draft, const draft_case *c, int accepted) {
    unsigned char *rows[2];
    static const int inputs[] = {QKVZ, BA};
    kgen__data_poison_outputs(&single->data);
    for (int t = 0; t < accepted; t++) step_alone(single, draft, t);
    for (int i = 0; i < 2; i++) {
        const kgen__slot *slot = &draft->data.slot[inputs[i]];
        rows[i] = malloc(slot->size);
        assert_non_null(rows[i]);
        memcpy(rows[i], slot->bytes, slot->size);
    }
    draw_rows(draft);
    for (int64_t n = 0; n < draft->data.shape.seqs; n++)
        kgen__int_store(tensor(draft, ACCEPTED), n, accepted);
    launch(draft);
    follow(single, draft, c, accepted);
    for (int i = 0; i < 2; i++) {
        memcpy(draft->data.slot[inputs[i]].bytes, rows[i], draft->data.slot[inputs[i]].size);
        free(rows[i]);
    }
}

static void check_drafts(const draft_case *c) {
    rig draft, single;
    make_rig(&draft, CDNA3, c->draft);
    make_rig(&single, CDNA3, c->single);
    copy_weights(&single, &draft);
    copy_start(&single, &draft);
    launch(&draft);
    compare(&draft);
    follow(&single, &draft, c, 0);
    kgen__data_remember(&draft.data);
    for (int accepted = 1; accepted <= draft.data.spec.gdn.tokens; accepted++)
        check_accepted(&single, &draft, c, accepted);
    free_rig(&single);
    free_rig(&draft);
}

static void test_drafts_are_single_steps(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof draft_cases / sizeof draft_cases[0]; i++)
        check_drafts(&draft_cases[i]);
}

/* ---- graphs ------------------------------------------------------------------- */

enum { REPLAYS = 300 };
typedef enum batch { ANY, ALL_PADDING, NO_TOKENS } batch;

static kgen_graph *captured(rig *r) {
    kgen_graph *graph = NULL;
    kgen__data_poison_outputs(&r->data);
    unsigned char *poison = outputs_of(r);
    DO(kgen_graph_begin(r->ctx, r->stream, &did));
    DO(kgen_launch(r->kernel, &r->args, r->stream, &did));
    DO(kgen_graph_end(r->ctx, r->stream, &graph, &did));
    assert_outputs(r, poison, "a capture runs nothing");
    free(poison);
    return graph;
}

static batch draw_batch(rig *r, int round) {
    const kgen_gdn_args *a = r->data.args.gdn;
    batch kind = round % 10 == 3 ? ALL_PADDING : round % 10 == 6 ? NO_TOKENS : ANY;
    DO(kgen__data_refill(&r->data, &rng, &did));
    for (int64_t n = 0; n < a->slots.shape[0]; n++) {
        int64_t columns = a->slots.rank == 2 ? a->slots.shape[1] : 1;
        for (int64_t i = 0; kind == ALL_PADDING && i < columns; i++)
            kgen__int_store(&a->slots, n * a->slots.stride[0] + i * a->slots.stride[1], -1);
        if (kind == NO_TOKENS) kgen__int_store(&a->cu_seqlens, n + 1, 0);
    }
    if (kind == NO_TOKENS) kgen__int_store(&a->cu_seqlens, 0, 0);
    return kind;
}

/* No state changes, and every row of the output is zero. */
static void assert_nothing_done(rig *r) {
    static const int kept[] = {STATE, CONV_STATE};
    for (int i = 0; i < 2; i++) {
        const kgen__slot *slot = &r->data.slot[kept[i]];
        if (slot->bytes) assert_memory_equal(slot->bytes, slot->before, slot->size);
    }
    const kgen_tensor *out = tensor(r, OUT);
    for (int64_t row = 0; row < out->shape[0]; row++)
        for (size_t i = 0; i < part_bytes(out); i++) assert_int_equal(part_of(out, row)[i], 0);
}

static void check_graph(int device, const char *line) {
    rig r;
    make_rig(&r, device, line);
    kgen_graph *graph = captured(&r);
    for (int i = 0; i < REPLAYS; i++) {
        batch kind = draw_batch(&r, i);
        launch(&r);
        if (i % 10 == 0) compare(&r);
        if (kind != ANY) assert_nothing_done(&r);
        unsigned char *want = outputs_of(&r);
        kgen__data_poison_outputs(&r.data);
        DO(kgen_graph_launch(graph, r.stream, &did));
        DO(kgen_stream_sync(r.ctx, r.stream, &did));
        assert_outputs(&r, want, "a launch and a replay");
        free(want);
    }
    assert_counters_at_rest(&r);
    kgen_graph_free(graph);
    free_rig(&r);
}

static void test_a_graph_follows_the_batch(void **state) {
    (void)state;
    check_graph(CDNA3, "gdn:layout=flat," HEADS ",t=3,varlen=1" VLLM
                       " | seqs=4 lens=3 pads=1 wpads=1 tail=2 scols=1");
    check_graph(SM90, "gdn:fuse=d,layout=interleaved," HEADS ",t=2,varlen=1,accept=1,idx=i64"
                      " | seqs=4 lens=2 pads=1 tail=1");
}

/* ---- NaN --------------------------------------------------------------------- */

/* One whose upper half rounding up would carry over to a number, wherever 32 bits come in. */
static void check_wide_nan(const char *line, size_t tensor_offset) {
    rig r;
    make_rig(&r, CDNA3, line);
    kgen_gdn_args *a = r.args.gdn;
    const kgen_tensor *poisoned = (const kgen_tensor *)((const char *)a + tensor_offset);
    int64_t slot = kgen__int_load(&a->slots, 0), count = 0;
    memset(poisoned->data, 0xff, kgen__tensor_bytes(poisoned));
    launch(&r);
    const kgen_tensor *state = &a->state;
    int64_t size = state->shape[1] * state->shape[2] * state->shape[3];
    for (int64_t i = 0; i < size; i++) count += isnan(load(state, slot * state->stride[0] + i));
    if (count < size)
        fail_msg("%s: %" PRId64 " of %" PRId64 " elements of the state are numbers (seed %" PRIu64
                 ")",
                 line, size - count, size, seed);
    free_rig(&r);
}

static void test_wide_nan_stays(void **state) {
    (void)state;
    static const char floats[] =
        "gdn:layout=flat," HEADS ",state=bf16,cs=f32,cw=f32,ab=f32,dt=f32 | seqs=1";
    check_wide_nan(floats, offsetof(kgen_gdn_args, a_log));
    check_wide_nan(floats, offsetof(kgen_gdn_args, dt_bias));
    check_wide_nan(floats, offsetof(kgen_gdn_args, conv_weight));
    check_wide_nan("gdn:fuse=a,layout=presplit,qkv=split,x=fp16," HEADS ",state=bf16 | seqs=1",
                   offsetof(kgen_gdn_args, v));
}

/* ---- in place --------------------------------------------------------------- */

/* Rows become what another tensor would have held, and the window moves on alike. */
static void test_a_convolution_in_place(void **state) {
    rig r;
    (void)state;
    make_rig(&r, CDNA3, "gdn:fuse=c,layout=presplit,ch=70,t=3 | seqs=3");
    kgen_gdn_args *a = r.args.gdn;
    launch(&r);
    compare(&r);
    size_t row = (size_t)a->x.shape[1] * 2, rows = (size_t)a->x.shape[0];
    unsigned char *want = malloc(rows * row);
    assert_non_null(want);
    for (size_t i = 0; i < rows; i++)
        memcpy(want + i * row, (char *)a->out.data + i * (size_t)a->out.stride[0] * 2, row);
    a->out = a->x;
    a->out.layout = KGEN_LAYOUT_NONE;
    launch(&r);
    for (size_t i = 0; i < rows; i++)
        assert_memory_equal((char *)a->x.data + i * (size_t)a->x.stride[0] * 2, want + i * row,
                            row);
    free(want);
    a->out.data = (char *)a->x.data + 2;
    kgen_error err;
    assert_int_equal(kgen_launch_check(r.kernel, &r.args, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "x: overlaps out, which the kernel writes");
    free_rig(&r);
}

/* ---- frame -------------------------------------------------------------------- */

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        kgen_error err = {KGEN_OK, ""};
        kgen_toolchain tc;
        const kgen_target *target;
        kgen_open_options options = {.size = sizeof options, .device = devices[i]};
        if (kgen_target_find(&target, devices[i], &err) == KGEN_OK &&
            kgen_toolchain_find(&tc, target, &err) == KGEN_OK &&
            kgen_open(&contexts[i], &options, &err) == KGEN_OK)
            continue;
        print_message("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++) kgen_close(contexts[i]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pools_beyond_4_gib),
        cmocka_unit_test(test_counters_come_to_rest),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_a_thousand_steps),
        cmocka_unit_test(test_prefixes_stay),
        cmocka_unit_test(test_drafts_are_single_steps),
        cmocka_unit_test(test_a_graph_follows_the_batch),
        cmocka_unit_test(test_wide_nan_stays),
        cmocka_unit_test(test_a_convolution_in_place),
    };
    seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

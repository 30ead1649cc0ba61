/* A workspace that is unfit is noticed: never prepared, of another version, left by
 * an aborted launch, or another launch in it. No output stays unwritten. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "runtime/context.h"
#include "templates/kg/core/workspace_head.h"
#include "did.h"

enum { CONTEXTS = 2, SEQS = 3 };

static kgen_context *contexts[CONTEXTS];
static uint64_t seed;
static kgen__rng rng;

/* Of its three sequences, workgroups share the first and the last. */
#define ATTN "attn:d=64,g=2,page=16,layout=nhd,lse=1 | lens=2000,3,1500"
#define GDN "gdn:layout=flat,hk=1,hv=4,dk=64,dv=64 | seqs=3"

typedef struct rig {
    kgen_context *ctx;
    kgen_kernel *kernel;
    kgen__data data;
    kgen_args args;
    kgen_args_room room;
    struct kg_workspace *head;
    int32_t error[SEQS];
} rig;

static void make(rig *r, kgen_context *ctx, const char *line) {
    kgen__case c;
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    DO(kgen__case_parse(&c, line, &did));
    kgen__case_draw(&c, kgen__rng_next(&rng) >> 32);
    DO(kgen_prepare(ctx, &c.spec, 1, &r->kernel, &did));
    DO(kgen__data_make(&r->data, &c, kgen_kernel_spec(r->kernel), &did));
    DO(kgen__data_fill(&r->data, c.seed, &did));
    kgen_args_copy(&r->args, &r->room, &r->data.args);
    if (r->args.family == KGEN_FAMILY_ATTN)
        r->args.attn->error = kgen_tensor_dense(r->error, KGEN_DTYPE_I32, 1, (int64_t[]){SEQS});
    DO(kgen_workspace_size(r->kernel, &r->args, &r->args.workspace_bytes, &did));
    DO(kgen_memory_alloc(ctx, &r->args.workspace, r->args.workspace_bytes, &did));
    r->head = r->args.workspace;
}

static void prepare(const rig *r) {
    DO(kgen_workspace_init(r->ctx, r->args.workspace, r->args.workspace_bytes, NULL, &did));
}

static kgen_status look(const rig *r) {
    did.text[0] = 0;
    return kgen_workspace_check(r->ctx, r->args.workspace, r->args.workspace_bytes, NULL, &did);
}

static void launch(rig *r) {
    kgen__data_poison_outputs(&r->data);
    memset(r->error, 0, sizeof r->error);
    DO(kgen_launch(r->kernel, &r->args, NULL, &did));
    DO(kgen_stream_sync(r->ctx, NULL, &did));
}

static int is_right(rig *r) {
    kgen__check_result result;
    return kgen__data_compare(&result, &r->data, &did) == KGEN_OK;
}

static void assert_fit(rig *r) {
    prepare(r);
    assert_int_equal(look(r), KGEN_OK);
    for (int i = 0; i < 3; i++) {
        launch(r);
        if (!is_right(r)) fail_msg("%s (seed %" PRIu64 ")", did.text, seed);
        for (int s = 0; s < SEQS; s++) assert_int_equal(r->error[s], 0);
        DO(look(r));
    }
}

static void unmake(rig *r) {
    kgen_memory_free(r->ctx, r->args.workspace);
    kgen__data_free(&r->data);
}

/* ---- what a launch finds --------------------------------------------------- */

static void fill_random(rig *r) {
    for (size_t i = 0; i < r->args.workspace_bytes; i++)
        ((unsigned char *)r->args.workspace)[i] = (unsigned char)kgen__rng_next(&rng);
}
static void fill_zeros(rig *r) { memset(r->args.workspace, 0, r->args.workspace_bytes); }
static void fill_ones(rig *r) { memset(r->args.workspace, 0xff, r->args.workspace_bytes); }
static void fill_old(rig *r) {
    memset(r->args.workspace, KG_WORKSPACE_BYTE - 1, r->args.workspace_bytes);
}
/* As prepared for counters of 32 bits: its second half was never touched. */
static void fill_half(rig *r) {
    fill_zeros(r);
    memset(r->args.workspace, KG_WORKSPACE_BYTE, 128);
}
/* Some workgroups of a launch counted, then it was gone: of whichever items. */
static void abort_launch(rig *r) {
    uint64_t ticket = (uint32_t)kgen__rng_next(&rng) | 1u, count = 1 + kgen__rng_next(&rng) % 2;
    prepare(r);
    size_t counters = sizeof r->head->arrived / sizeof r->head->arrived[0];
    for (size_t i = 0; i < counters; i++) r->head->arrived[i] += count * (ticket << 32 | 1);
}

static void (*const unfit[])(rig *) = {fill_random, fill_zeros, fill_ones,
                                       fill_old,    fill_half,  abort_launch};
enum { UNFIT = sizeof unfit / sizeof unfit[0] };

/* Right before and after; in each unfit workspace a launch leaves what `assert_left` wants, if any,
 * and the host learns of it. */
static void assert_each_noticed(kgen_context *ctx, const char *line, void (*assert_left)(rig *)) {
    rig r;
    make(&r, ctx, line);
    assert_fit(&r);
    for (int i = 0; i < UNFIT; i++) {
        unfit[i](&r);
        launch(&r);
        if (assert_left) assert_left(&r);
        assert_int_equal(look(&r), KGEN_E_ARG);
        assert_non_null(strstr(did.text, "a launch found it damaged"));
    }
    assert_fit(&r);
    unmake(&r);
}

/* Rows of shared sequences are NaN, not what stood there; the others are right. */
static void assert_noticed(const rig *r) {
    const kgen_tensor *out = &r->data.args.attn->out, *lse = &r->data.args.attn->lse;
    for (int s = 0; s < SEQS; s++) {
        int shared = s != 1;
        assert_int_equal(r->error[s], shared ? KGEN_ATTN_WORKSPACE : 0);
        for (int64_t i = 0; i < 2 * 64; i++)
            assert_int_equal(
                isnan(kgen__number_load(out->dtype, out->data, s * out->stride[0] + i)) != 0,
                shared);
        for (int64_t h = 0; h < 2; h++)
            assert_int_equal(isnan(((float *)lse->data)[h * lse->stride[0] + s]) != 0, shared);
    }
}

static void test_attention_notices(void **state) {
    rig r;
    (void)state;
    make(&r, contexts[0], ATTN);
    assert_fit(&r);
    for (int i = 0; i < UNFIT; i++) {
        unfit[i](&r);
        assert_int_equal(look(&r), KGEN_E_ARG);
        for (int again = 0; again < 2; again++) {
            memset(r.data.args.attn->out.data, 0, SEQS * 2 * 64 * 2);
            memset(r.data.args.attn->lse.data, 0, SEQS * 2 * 4);
            memset(r.error, 0, sizeof r.error);
            DO(kgen_launch(r.kernel, &r.args, NULL, &did));
            assert_noticed(&r);
        }
        assert_int_equal(look(&r), KGEN_E_ARG);
        assert_non_null(strstr(did.text, "a launch found it damaged"));
    }
    r.args.attn->error = (kgen_tensor){0};
    fill_random(&r);
    launch(&r);
    assert_int_equal(look(&r), KGEN_E_ARG);
    r.args.attn->error = kgen_tensor_dense(r.error, KGEN_DTYPE_I32, 1, (int64_t[]){SEQS});
    assert_fit(&r);
    unmake(&r);
}

/* ---- work that is drawn -------------------------------------------------------- */

/* More whole items than workgroups (kg/attn/lots_nvidia.h): in which order they come is all that
 * the workspace says. */
#define DRAWN                                                                            \
    "attn:phase=extend,d=64,g=2,page=16,layout=nhd,lse=1,waves=8,occ=1 | lens=60,40,20 " \
    "qlens=60,20,1 hkv=60"

static void open_drawn(kgen_context **ctx) {
    const kgen_open_options options = {.size = sizeof options, .device = "cpu:sm90"};
    DO(kgen_open(ctx, &options, &did));
}

/* Whatever stood there, each item is computed. */
static void assert_done(rig *r) {
    if (!is_right(r)) fail_msg("%s (seed %" PRIu64 ")", did.text, seed);
    assert_int_equal((r->error[0] | r->error[1] | r->error[2]), KGEN_ATTN_WORKSPACE);
}
static void test_drawn_work_is_done(void **state) {
    kgen_context *ctx;
    (void)state;
    open_drawn(&ctx);
    assert_each_noticed(ctx, DRAWN, assert_done);
    kgen_close(ctx);
}

/* One token over many keys beside two prompts: it is drawn in three pieces, which are merged. */
#define PIECES                                                                               \
    "attn:phase=extend,d=64,g=2,page=16,layout=nhd,lse=1,waves=8,occ=1 | lens=2100,100,100 " \
    "qlens=1,100,100 hkv=1"

/* What is merged is NaN, not what stood there. */
static void assert_unmerged(rig *r) {
    const kgen_tensor *out = &r->data.args.attn->out;
    assert_int_equal(r->error[0], KGEN_ATTN_WORKSPACE);
    for (int64_t n = 0; n < 2 * 64; n++)
        assert_true(isnan(kgen__number_load(out->dtype, out->data, n)));
}
static void test_drawn_pieces_are_noticed(void **state) {
    kgen_context *ctx;
    (void)state;
    open_drawn(&ctx);
    assert_each_noticed(ctx, PIECES, assert_unmerged);
    kgen_close(ctx);
}

static void test_gdn_notices(void **state) {
    (void)state;
    assert_each_noticed(contexts[0], GDN, NULL);
}

/* ---- the host's look --------------------------------------------------------- */

static void test_check(void **state) {
    rig r;
    (void)state;
    make(&r, contexts[0], ATTN);
    prepare(&r);
    DO(look(&r));
    r.head->arrived[77] ^= 1;
    assert_int_equal(look(&r), KGEN_E_ARG);
    assert_non_null(strstr(did.text, "workspace: byte 872 is 74: not prepared"));
    assert_int_equal(kgen_workspace_check(r.ctx, r.head, 4096, NULL, &did), KGEN_E_ARG);
    assert_string_equal(did.text, "workspace: 4096 bytes, 2097408 needed");
    assert_int_equal(kgen_workspace_check(r.ctx, NULL, 1 << 22, NULL, &did), KGEN_E_ARG);
    assert_string_equal(did.text, "workspace: no memory");
    unmake(&r);
}

/* ---- two streams ------------------------------------------------------------- */

enum { ROUNDS = 2000 };

typedef struct user {
    rig r;
    pthread_barrier_t *gate;
    int failed;
} user;

static void *run(void *of) {
    user *u = of;
    for (int i = 0; i < ROUNDS; i++) {
        if (pthread_barrier_wait(u->gate) == PTHREAD_BARRIER_SERIAL_THREAD)
            memset(u->r.head, KG_WORKSPACE_BYTE, sizeof *u->r.head);
        pthread_barrier_wait(u->gate);
        u->failed += kgen_launch(u->r.kernel, &u->r.args, NULL, NULL) != KGEN_OK;
        u->failed += kgen_stream_sync(u->r.ctx, NULL, NULL) != KGEN_OK;
        pthread_barrier_wait(u->gate);
        if (u->r.head->broken == 0) break; /* both see it */
    }
    return NULL;
}

/* Both launch at once until somebody notices. */
static void run_two(const char *first, const char *second) {
    pthread_barrier_t gate;
    pthread_t threads[2];
    user users[2];
    memset(users, 0, sizeof users);
    pthread_barrier_init(&gate, NULL, 2);
    make(&users[0].r, contexts[0], first);
    make(&users[1].r, contexts[1], second);
    rig *large = &users[users[1].r.args.workspace_bytes > users[0].r.args.workspace_bytes].r;
    for (int i = 0; i < 2; i++) {
        users[i].gate = &gate;
        users[i].r.head = large->head;
    }
    void *own[2] = {users[0].r.args.workspace, users[1].r.args.workspace};
    users[0].r.args.workspace = users[1].r.args.workspace = large->head;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &users[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(users[0].failed + users[1].failed, 0);
    assert_int_equal(large->head->broken, 0);
    for (int i = 0; i < 2; i++) {
        users[i].r.args.workspace = own[i];
        unmake(&users[i].r);
    }
    pthread_barrier_destroy(&gate);
}

static void test_two_streams(void **state) {
    (void)state;
    run_two(ATTN, ATTN);
    run_two(ATTN, "attn:d=128,g=8,page=16,layout=nhd,lse=1 | lens=700,900,30");
    run_two(GDN, GDN);
    run_two(ATTN, GDN);
}

/* ---- one long sequence --------------------------------------------------------- */

/* A workgroup that has a part of an item leaves the sums of its rows: two places each. */
static int wrote_sums(const rig *r, uint32_t group) {
    size_t bytes = 2 * (size_t)r->kernel->counts.attn.rows * 2 * sizeof(float);
    const unsigned char *sums = (const unsigned char *)(r->head + 1) + group * bytes;
    for (size_t i = 0; i < bytes; i++)
        if (sums[i] != KG_WORKSPACE_BYTE) return 1;
    return 0;
}

/* Batch 1 keeps every compute unit busy, whatever the number of KV heads. */
static void test_one_long_sequence_is_split_over_all_units(void **state) {
    static const int heads[] = {1, 2, 3, 5};
    const kgen_open_options options = {.size = sizeof options, .device = "cpu:rdna3"};
    kgen_context *ctx;
    (void)state;
    DO(kgen_open(&ctx, &options, &did));
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        char line[128];
        rig r;
        snprintf(line, sizeof line, "attn:d=64,g=2 | lens=5000 hkv=%d", heads[i]);
        make(&r, ctx, line);
        r.args.attn->error = (kgen_tensor){0};
        prepare(&r);
        launch(&r);
        if (!is_right(&r)) fail_msg("%s: %s (seed %" PRIu64 ")", line, did.text, seed);
        uint32_t groups = r.kernel->config.grid;
        assert_true(groups >= (uint32_t)kgen_context_target(ctx)->typical_cus);
        for (uint32_t group = 0; group < groups; group++)
            if (!wrote_sums(&r, group)) fail_msg("%s: workgroup %u has no keys", line, group);
        unmake(&r);
    }
    kgen_close(ctx);
}

/* ---- fixture ------------------------------------------------------------------ */

static int open_devices(void **state) {
    kgen_open_options options = {.size = sizeof options, .device = "cpu:cdna3"};
    (void)state;
    seed = kgen__seed_fresh();
    kgen__rng_seed(&rng, seed, 0);
    print_message("seed %" PRIu64 "\n", seed);
    for (int i = 0; i < CONTEXTS; i++)
        if (kgen_open(&contexts[i], &options, &did) != KGEN_OK) {
            print_message("skipped: %s\n", did.text);
            return -1;
        }
    return 0;
}

static int close_devices(void **state) {
    (void)state;
    for (int i = 0; i < CONTEXTS; i++) kgen_close(contexts[i]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_notices),
        cmocka_unit_test(test_drawn_work_is_done),
        cmocka_unit_test(test_drawn_pieces_are_noticed),
        cmocka_unit_test(test_gdn_notices),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_two_streams),
        cmocka_unit_test(test_one_long_sequence_is_split_over_all_units),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

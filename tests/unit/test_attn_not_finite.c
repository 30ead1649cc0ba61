/* A query row that holds what is no number, over an e4m3 cache. The row is NaN, as it is by the
 * formula in f32, and all others have the bits that they have without it. On CDNA rows become
 * sums of 8-bit floats by powers of two that are cut from their bits; on other isas a row with
 * an infinity whose scores are all -inf is one without keys. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check_family.h"
#include "did.h"
#include "seed.h"

static uint64_t seed;

static int take_seed(void **state) {
    (void)state;
    seed = test_seed();
    return 0;
}

/* A batch with numbers, and what a launch of it gave. */
typedef struct batch {
    kgen_context *ctx;
    kgen__data data;
    kgen_kernel *kernel;
    kgen_args args;
    unsigned char *out;
    float *lse;
} batch;

static void launch(batch *b) {
    kgen__data_poison_outputs(&b->data);
    DO(kgen_launch(b->kernel, &b->args, NULL, &did));
    DO(kgen_stream_sync(b->ctx, NULL, &did));
}

static void make(batch *b, kgen_context *ctx, const char *line) {
    kgen__case c;
    kgen_spec spec;
    DO(kgen__case_parse(&c, line, &did));
    kgen__case_draw(&c, seed);
    b->ctx = ctx;
    DO(kgen_prepare(ctx, &c.spec, 1, &b->kernel, &did));
    DO(kgen_spec_resolve(&spec, &c.spec, kgen_context_target(ctx), &did));
    DO(kgen__data_make(&b->data, &c, &spec, &did));
    DO(kgen__data_fill(&b->data, seed, &did));
    b->args = b->data.args;
    DO(kgen_workspace_size(b->kernel, &b->args, &b->args.workspace_bytes, &did));
    DO(kgen_memory_alloc(ctx, &b->args.workspace, b->args.workspace_bytes, &did));
    DO(kgen_workspace_init(ctx, b->args.workspace, b->args.workspace_bytes, NULL, &did));
    const kgen_attn_args *a = b->args.attn;
    size_t out_bytes = kgen__tensor_bytes(&a->out), lse_bytes = kgen__tensor_bytes(&a->lse);
    launch(b);
    b->out = malloc(out_bytes);
    b->lse = malloc(lse_bytes);
    assert_true(b->out && b->lse);
    memcpy(b->out, a->out.data, out_bytes);
    memcpy(b->lse, a->lse.data, lse_bytes);
}

static void drop(batch *b) {
    kgen_memory_free(b->ctx, b->args.workspace);
    kgen__data_free(&b->data);
    free(b->out);
    free(b->lse);
}

/* A row: its output, bf16, and its sum. */
typedef struct row {
    int64_t size;
    const uint16_t *out;
    float lse;
} row;

static row row_of(const kgen_attn_args *a, int64_t token, int64_t head) {
    const uint16_t *out = a->out.data;
    const float *lse = a->lse.data;
    return (row){a->out.shape[2], out + token * a->out.stride[0] + head * a->out.stride[1],
                 lse[head * a->lse.stride[0] + token]};
}

static int is_nan_row(row r) {
    int64_t d = 0;
    while (d < r.size && isnan(kgen__number_decode(KGEN_DTYPE_BF16, r.out[d]))) d++;
    return d == r.size && isnan(r.lse);
}

static int is_empty_row(row r) {
    int64_t d = 0;
    while (d < r.size && r.out[d] == 0) d++;
    return d == r.size && isinf(r.lse) && r.lse < 0;
}

static int is_same_row(const batch *b, int64_t token, int64_t head) {
    const kgen_attn_args *a = b->args.attn;
    row now = row_of(a, token, head);
    int64_t at = now.out - (const uint16_t *)a->out.data;
    return !memcmp(now.out, b->out + at * 2, (size_t)now.size * 2) &&
           !memcmp(&now.lse, b->lse + head * a->lse.stride[0] + token, sizeof now.lse);
}

/* What is no number, at any one place of the queries. */
static void check_place(batch *b, const char *line, kgen__rng *rng, int all_nan) {
    static const uint16_t values[] = {0x7fc0, 0xff81, 0x7f80, 0xff80};
    const kgen_attn_args *a = b->args.attn;
    const kgen_tensor *q = &a->q;
    int64_t token = kgen__rng_range(rng, 0, q->shape[0] - 1);
    int64_t head = kgen__rng_range(rng, 0, q->shape[1] - 1);
    int64_t dim = kgen__rng_range(rng, 0, q->shape[2] - 1);
    uint16_t *at = (uint16_t *)q->data + token * q->stride[0] + head * q->stride[1] + dim;
    uint16_t was = *at;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        *at = values[i];
        launch(b);
        row r = row_of(a, token, head);
        if (!is_nan_row(r) && (all_nan || i < 2 || !is_empty_row(r)))
            fail_msg("%s: %04x gives %04x and lse %g", line, *at, r.out[0], (double)r.lse);
        for (int64_t t = 0; t < q->shape[0]; t++)
            for (int64_t h = 0; h < q->shape[1]; h++)
                if ((t != token || h != head) && !is_same_row(b, t, h))
                    fail_msg("%s: token %d head %d changes with token %d head %d", line, (int)t,
                             (int)h, (int)token, (int)head);
    }
    *at = was;
}

/* Rows that workgroups share, and of one key, with which an infinity gives one score: -inf with
 * one of both signs. Queries in registers and in LDS. */
static const char *const lines[] = {
    "attn:kv=fp8,d=128,g=8,page=16,lse=1 | lens=90,33,3000 hkv=2 poison=0",
    "attn:kv=fp8,d=64,g=4,page=16,lse=1 | lens=1 poison=0",
    "attn:phase=verify,t=4,kv=fp8,d=64,g=4,page=16,lse=1 | lens=70,40 qlens=4,2 poison=0",
    "attn:phase=verify,t=4,kv=fp8,d=256,g=8,page=16,lse=1 | lens=70,40 qlens=4,2 poison=0",
};

static void one_row_alone(void **state) {
    static const char *const devices[] = {"cpu:cdna3", "cpu:cdna4", "cpu:rdna4", "cpu:sm90"};
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
        kgen_open_options options = {.size = sizeof options, .device = devices[d]};
        kgen_context *ctx;
        kgen__rng rng;
        kgen__rng_seed(&rng, seed, d);
        if (kgen_open(&ctx, &options, &did) != KGEN_OK) {
            print_message("skipped: %s\n", did.text);
            continue;
        }
        for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
            if (!test_takes(seed, d + i, 1, 2)) continue; /* devices other lines */
            batch b;
            make(&b, ctx, lines[i]);
            check_place(&b, lines[i], &rng, d < 2);
            drop(&b);
        }
        kgen_close(ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_row_alone)};
    return cmocka_run_group_tests(tests, take_seed, NULL);
}

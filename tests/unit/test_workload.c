/* Workloads and the clock: any spec at any size is accepted by its launch, numbers
 * stay numbers, bytes are those of a formula by hand; what is refused; medians. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <kgen/probe.h>

#include "check/check.h"
#include "workload/workload.h"
#include "note_device.h"
#include "seed.h"

static kgen__rng rng;

static const char *const personas[] = {"cpu:cdna3", "cpu:sm90"};

static void must(kgen_status status, const kgen_error *err) {
    if (status != KGEN_OK) fail_msg("%s", err->text);
}

static kgen_context *open_cpu(const char *device) {
    const kgen_open_options options = {.size = sizeof options, .device = device};
    kgen_context *ctx;
    kgen_error err;
    must(kgen_open(&ctx, &options, &err), &err);
    return ctx;
}

static kgen_spec random_spec(kgen_family_id family, const kgen_target *target) {
    kgen__case *c = malloc(sizeof *c);
    kgen_spec spec;
    kgen_error err;
    assert_non_null(c);
    must(kgen__case_random(c, family, &rng, target, 0, &err), &err);
    spec = c->spec;
    free(c);
    return spec;
}

static kgen_problem random_problem(const kgen_spec *spec) {
    kgen_problem p = {.batch = (int32_t)kgen__rng_range(&rng, 1, 6),
                      .context = (int32_t)kgen__rng_range(&rng, 1, 90),
                      .heads = (int32_t)kgen__rng_range(&rng, 1, 3)};
    if (spec->family == KGEN_FAMILY_ATTN) p.context += spec->attn.q_tokens;
    if (spec->family == KGEN_FAMILY_MLA) p.context += spec->mla.q_tokens;
    if (spec->family == KGEN_FAMILY_INDEXER) p.context += spec->indexer.q_tokens;
    if (spec->family == KGEN_FAMILY_KV_WRITE || spec->family == KGEN_FAMILY_KV_GATHER)
        p.batch *= 17;
    if (kgen__rng_range(&rng, 0, 3) == 0 && spec->family != KGEN_FAMILY_ATTN) p.heads = 0;
    return p;
}

static int has_workload(const kgen_spec *spec) {
    static const int32_t ops[] = {KGEN_OP_SPEC_PREPARE, KGEN_OP_PAGE_TABLE_REQUESTS,
                                  KGEN_OP_PAGE_TABLE_RAGGED, KGEN_OP_DRAFT_LENS,
                                  KGEN_OP_CACHE_LOCS};
    if (spec->family != KGEN_FAMILY_SCATTER) return 1;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (spec->scatter.op == ops[i]) return 1;
    return 0;
}

/* ---- every spec: a device that takes note ------------------------------------- */

static void expect_accepted(const kgen__workload *work, const kgen_spec *spec,
                            const kgen_target *target, const char *line) {
    static _Alignas(256) char workspace[256]; /* never touched: the launch only takes note */
    kgen_context ctx = {.api = &note, .target = target};
    kgen_kernel kernel = {.ctx = &ctx, .config = {.grid = 8, .block = 64}};
    kgen_error err;
    must(kgen_spec_resolve(&kernel.spec, spec, target, &err), &err);
    kgen__launch_bind(&kernel);
    for (int set = 0; set < kgen__workload_sets(work); set++) {
        kgen_args args;
        kgen_args_room room;
        kgen__workload_args(&args, &room, work, set);
        must(kgen_workspace_size(&kernel, &args, &args.workspace_bytes, &err), &err);
        args.workspace = args.workspace_bytes ? workspace : NULL;
        noted.launches = 0;
        if (kgen_launch(&kernel, &args, NULL, &err) != KGEN_OK || noted.launches != 1)
            fail_msg("%s, set %d: %s", line, set, noted.launches ? "launched twice" : err.text);
    }
}

static void check_any(kgen_context *ctx, kgen_family_id family, int *made) {
    const kgen_target *target = kgen_context_target(ctx);
    kgen_spec spec = random_spec(family, target);
    kgen_problem problem = random_problem(&spec);
    const kgen__workload_options options = {.cold_bytes = kgen__rng_range(&rng, 1, 200000),
                                            .seed = 7};
    char line[KGEN_SPEC_LINE_MAX];
    kgen__workload *work;
    kgen_error err;
    kgen_spec_print(line, &spec);
    kgen_status status = kgen__workload_make(&work, ctx, &spec, &problem, &options, &err);
    if (!has_workload(&spec)) {
        assert_int_equal(status, KGEN_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "op="));
        return;
    }
    if (status != KGEN_OK) fail_msg("%s: %s", line, err.text);
    assert_true(kgen__workload_bytes(work) > 0);
    assert_true(kgen__workload_read_bytes(work) > 0);
    assert_true(kgen__workload_read_bytes(work) < kgen__workload_bytes(work));
    int32_t op = spec.indexer.op;
    int has_products =
        family == KGEN_FAMILY_ATTN || family == KGEN_FAMILY_MLA ||
        (family == KGEN_FAMILY_INDEXER && (op == KGEN_INDEX_DECODE || op == KGEN_INDEX_PREFILL));
    assert_int_equal(kgen__workload_flops(work) > 0, has_products);
    expect_accepted(work, &spec, target, line);
    kgen__workload_free(work);
    (*made)++;
}

static void test_every_spec_has_a_workload(void **state) {
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        kgen_context *ctx = open_cpu(personas[p]);
        for (int family = 0; family < KGEN_FAMILY_COUNT; family++) {
            int made = 0, wanted = test_level() == LEVEL_FULL ? 1000 : 40;
            while (made < wanted) check_any(ctx, (kgen_family_id)family, &made);
        }
        kgen_close(ctx);
    }
}

/* ---- kernels that run ------------------------------------------------------------ */

static void expect_finite(kgen_context *ctx, const kgen_tensor *t, const char *name,
                          const char *line) {
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) count *= t->shape[i];
    size_t bytes = (size_t)count * (size_t)kgen_dtype_size(t->dtype);
    void *copy = malloc(bytes + 1);
    kgen_error err;
    assert_non_null(copy);
    must(kgen_memory_read(ctx, copy, t->data, bytes, &err), &err);
    for (int64_t i = 0; i < count; i++) {
        double x = kgen__number_load(t->dtype, copy, i);
        int is_masked = x == (double)-INFINITY && strcmp(name, "logits") == 0;
        if (!isfinite(x) && !is_masked)
            fail_msg("%s: %s[%lld] is no number", line, name, (long long)i);
    }
    free(copy);
}

static int is_float(kgen_dtype dtype) {
    return dtype == KGEN_DTYPE_F32 || (dtype >= KGEN_DTYPE_BF16 && dtype <= KGEN_DTYPE_E5M2);
}

/* All but caches that a kv_write has filled in part, and their scales. */
/* What a launch leaves of it was never written. */
static int is_written_in_part(const kgen_spec *spec, const char *name) {
    int is_cache = strstr(name, "cache") || strstr(name, "scale");
    if (spec->family == KGEN_FAMILY_KV_WRITE) return is_cache;
    if (spec->family != KGEN_FAMILY_INDEXER) return 0;
    return spec->indexer.op == KGEN_INDEX_WRITE ? is_cache : !spec->indexer.clean;
}

static void expect_numbers(kgen_context *ctx, const kgen__workload *work, int set,
                           const kgen_spec *spec, const char *line) {
    kgen_args args;
    kgen_args_room room;
    kgen__workload_args(&args, &room, work, set);
    for (int i = 0; i < kgen__slot_count(&args); i++) {
        const kgen_tensor *t = kgen__slot_tensor(&args, i);
        const char *name = kgen__slot_name(&args, i);
        if (!t->data || !is_float(t->dtype)) continue;
        if (is_written_in_part(spec, name)) continue;
        expect_finite(ctx, t, name, line);
    }
}

static void run_random(kgen_context *ctx, kgen_family_id family) {
    kgen_spec spec;
    do spec = random_spec(family, kgen_context_target(ctx));
    while (!has_workload(&spec));
    kgen_problem problem = random_problem(&spec);
    const kgen__workload_options options = {.cold_bytes = kgen__rng_range(&rng, 1, 50000)};
    char line[KGEN_SPEC_LINE_MAX];
    kgen_kernel *kernel;
    kgen__workload *work;
    kgen__timer *timer;
    kgen_error err;
    double us = 0;
    kgen_spec_print(line, &spec);
    must(kgen_prepare(ctx, &spec, 1, &kernel, &err), &err);
    must(kgen__workload_make(&work, ctx, &spec, &problem, &options, &err), &err);
    if (kgen__timer_make(&timer, work, kernel, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    for (int i = 0; i < 2; i++) {
        must(kgen__timer_sample(&us, timer, &err), &err);
        assert_true(us > 0 && isfinite(us));
    }
    for (int set = 0; set < kgen__workload_sets(work); set++)
        expect_numbers(ctx, work, set, &spec, line);
    kgen__timer_free(timer);
    kgen__workload_free(work);
}

/* A family on one persona at random; at level full on both, again and again. */
static void test_kernels_run_over_workloads(void **state) {
    kgen_context *ctx[2];
    (void)state;
    for (size_t p = 0; p < 2; p++) ctx[p] = open_cpu(personas[p]);
    for (int family = 0; family < KGEN_FAMILY_COUNT; family++)
        for (int i = 0; i < (test_level() == LEVEL_FULL ? 16 : 1); i++)
            run_random(ctx[kgen__rng_range(&rng, 0, 1)], (kgen_family_id)family);
    for (size_t p = 0; p < 2; p++) kgen_close(ctx[p]);
}

/* A state that is updated again and again stays within bounds, keys that are not
 * normalised included. */
static void test_recurrences_do_not_grow(void **state) {
    static const char *const lines[] = {
        "gdn:fuse=a,layout=flat,hk=1,hv=1,dk=64,dv=64,state=fp16,l2=0",
        "gdn:fuse=e,layout=flat,hk=1,hv=1,dk=64,dv=64,l2=0,bias=1",
        "gdn:fuse=a,layout=flat,hk=1,hv=1,dk=64,dv=64,state=fp16,save=replay,ring=4",
    };
    (void)state;
    kgen_context *ctx = open_cpu("cpu:cdna3");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const kgen_problem problem = {.batch = 3};
        const kgen__workload_options options = {.cold_bytes = 1};
        kgen_spec spec;
        kgen_kernel *kernel;
        kgen__workload *work;
        kgen__timer *timer;
        kgen_error err;
        double us;
        must(kgen_spec_parse(&spec, lines[i], &err), &err);
        must(kgen_prepare(ctx, &spec, 1, &kernel, &err), &err);
        must(kgen__workload_make(&work, ctx, &spec, &problem, &options, &err), &err);
        must(kgen__timer_make(&timer, work, kernel, &err), &err);
        for (int n = 0; n < 200; n++) must(kgen__timer_sample(&us, timer, &err), &err);
        expect_numbers(ctx, work, 0, &spec, lines[i]);
        kgen__timer_free(timer);
        kgen__workload_free(work);
    }
    kgen_close(ctx);
}

/* ---- two timers on one workload --------------------------------------------------------- */

static void read_out(kgen_context *ctx, const kgen__workload *work, int set, uint16_t *out,
                     size_t bytes) {
    kgen_args args;
    kgen_args_room room;
    kgen_error err;
    kgen__workload_args(&args, &room, work, set);
    must(kgen_memory_read(ctx, out, args.attn->out.data, bytes, &err), &err);
}

static void test_timers_do_not_disturb_each_other(void **state) {
    enum { BATCH = 2, CONTEXT = 300, ELEMENTS = BATCH * 2 * 4 * 64 };
    static const char *const lines[] = {"attn:d=64,g=4,waves=1", "attn:d=64,g=4,waves=4,occ=2"};
    static uint16_t alone[2][ELEMENTS], mixed[ELEMENTS];
    const kgen_problem problem = {.batch = BATCH, .context = CONTEXT, .heads = 2};
    const kgen__workload_options options = {.cold_bytes = 1,
                                            .seed = 1 + kgen__rng_next(&rng) % 1000};
    kgen_context *ctx = open_cpu("cpu:cdna3");
    kgen_kernel *kernels[2];
    kgen_spec specs[2];
    kgen__timer *timers[2];
    kgen__workload *work;
    kgen_error err;
    double us;
    (void)state;
    for (int i = 0; i < 2; i++) must(kgen_spec_parse(&specs[i], lines[i], &err), &err);
    must(kgen_prepare(ctx, specs, 2, kernels, &err), &err);
    must(kgen__workload_make(&work, ctx, &specs[0], &problem, &options, &err), &err);
    for (int i = 0; i < 2; i++) {
        must(kgen__timer_make(&timers[i], work, kernels[i], &err), &err);
        read_out(ctx, work, 0, alone[i], sizeof mixed);
    }
    for (int i = 0; i < 8; i++) {
        int which = (int)kgen__rng_range(&rng, 0, 1);
        must(kgen__timer_sample(&us, timers[which], &err), &err);
        read_out(ctx, work, 0, mixed, sizeof mixed);
        assert_memory_equal(mixed, alone[which], sizeof mixed);
    }
    for (int i = 0; i < 2; i++) kgen__timer_free(timers[i]);
    kgen__workload_free(work);
    kgen_close(ctx);
}

/* Sets are different data: their outputs differ. The seed repeats them. */
static void test_sets_and_seeds(void **state) {
    enum { ELEMENTS = 2 * 2 * 4 * 64 };
    static uint16_t out[3][ELEMENTS];
    const kgen_problem problem = {.batch = 2, .context = 40, .heads = 2};
    kgen_context *ctx = open_cpu("cpu:cdna3");
    kgen_kernel *kernel;
    kgen_spec spec;
    kgen_error err;
    (void)state;
    must(kgen_spec_parse(&spec, "attn:d=64,g=4", &err), &err);
    must(kgen_prepare(ctx, &spec, 1, &kernel, &err), &err);
    for (int turn = 0; turn < 2; turn++) {
        const kgen__workload_options options = {.cold_bytes = 200000, .seed = 11};
        kgen__workload *work;
        kgen__timer *timer;
        must(kgen__workload_make(&work, ctx, &spec, &problem, &options, &err), &err);
        assert_int_equal(kgen__workload_sets(work), ceil(200000 / kgen__workload_bytes(work)));
        must(kgen__timer_make(&timer, work, kernel, &err), &err);
        read_out(ctx, work, 0, out[turn], sizeof out[0]);
        read_out(ctx, work, 1, out[2], sizeof out[0]);
        assert_memory_not_equal(out[2], out[turn], sizeof out[0]);
        kgen__timer_free(timer);
        kgen__workload_free(work);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    kgen_close(ctx);
}

/* ---- bytes by hand -------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    const char *line;
    kgen_problem problem;
    double read, written, flops;
} counted[] = {
    /* K and V, queries, table entries; outputs */
    {"attn:d=128,g=8,page=16", {2, 100, 3}, 2 * 100 * 3 * 256 * 2 + 2 * 24 * 128 * 2 + 2 * 7 * 4,
     2 * 24 * 128 * 2, 2.0 * 2 * 100 * 24 * 256},
    /* a window: 16 + 1 keys for two tokens, on pages 5 and 6 of 7 */
    {"attn:phase=verify,t=2,d=64,g=4,page=16,kv=e5m2,descale=token,window=16,table=i64,lse=1",
     {3, 100, 2}, 3 * 17 * 2 * (128 + 8) + 6 * 8 * 64 * 2 + 3 * 2 * 8,
     6 * 8 * 64 * 2 + 6 * 8 * 4, 2.0 * 3 * 17 * 2 * 4 * 2 * 128},
    /* states twice, gates, rows */
    {"gdn:fuse=a,layout=flat,hk=2,hv=4,state=f32", {5, 0, 0},
     5 * (4 * 128 * 128 * 4 + 8 * 2 + 1024 * 2), 5 * (4 * 128 * 128 * 4 + 512 * 2), 0},
    /* a window of three inputs in and out, z too */
    {"gdn:fuse=e,layout=flat,hk=2,hv=4,state=bf16", {5, 0, 0},
     5 * (4 * 128 * 128 * 2 + 1024 * 3 * 2 + (1024 + 512) * 2 + 8 * 2),
     5 * (4 * 128 * 128 * 2 + 1024 * 3 * 2 + 512 * 2), 0},
    /* a state a token; windows of which the last one is complete */
    {"gdn:fuse=d,layout=flat,hk=2,hv=4,state=f32,t=3,index=spec,accept=1,save=slots", {5, 0, 0},
     5 * (4 * 128 * 128 * 4 + 1024 * 3 * 2 + 3 * 1024 * 2 + 3 * 8 * 2),
     5 * (3 * 4 * 128 * 128 * 4 + 1024 * 5 * 2 + 3 * 512 * 2), 0},
    /* rings of 0 1 2 0 1 entries; of those with 1 + 2 > 2 and 2 + 2 > 2 states go out */
    {"gdn:fuse=a,layout=flat,hk=1,hv=1,state=f32,t=2,save=replay,ring=2", {5, 0, 0},
     5 * (128 * 128 * 4 + 2 * 384 * 2 + 2 * 2 * 2) + 4 * (256 * 4 + 4),
     3 * 128 * 128 * 4 + 10 * (256 * 4 + 4) + 10 * 128 * 2, 0},
    {"kv_write:layout=nhd,slots=i32", {40, 0, 4}, 40 * (4 * 256 * 2 + 4), 40 * 4 * 256 * 2, 0},
    {"kv_write:layout=hnd,kv=i8,scale=token,rope=neox,rq=1,remap=i32", {40, 0, 4},
     40 * (4 * 256 * 2 + 8 + 4 + 8 + 32 * 128 * 2), 40 * (4 * 256 + 4 * 8 + 32 * 128 * 2), 0},
    /* heads are 8; sequences of 100 tokens: 3 tables of 7 pages */
    {"kv_gather:layout=nhd,kv=e5m2,descale=token", {250, 100, 0},
     250 * 8 * (256 + 8) + 3 * 7 * 4, 250 * 8 * 256 * 2, 0},
    {"attn_merge:x=bf16,o=f32", {10, 0, 4}, 40 * 2 * (256 + 4), 40 * (512 + 4), 0},
    {"attn_merge:x=f32,o=fp8,d=64,parts=stack,lse=th", {10, 7, 4},
     40 * 7 * (256 + 4), 40 * (64 + 4), 0},
    {"indexer:op=write", {40, 0, 0}, 40 * (128 * 2 + 8), 40 * 132, 0},
    {"indexer:op=gather,page=16,table=i64", {250, 100, 0}, 250 * 132 + 3 * 7 * 8, 250 * 132, 0},
    {"indexer:op=decode,h=8,t=2", {3, 100, 0},
     3 * (100 * 132 + 2 * 8 * 132 + 2 * 4), 3 * 2 * 100 * 4, 2. * 3 * 2 * 100 * 8 * 128},
    {"indexer:op=prefill,h=8", {10, 100, 0}, 100 * 132 + 10 * 8 * 132, 10 * 100 * 4,
     2. * 10 * 100 * 8 * 128},
    {"indexer:op=topk,t=2", {3, 100, 0}, 3 * 2 * 100 * 4, 3 * 2 * 2048 * 4, 0},
    {"scatter:op=draft_lens,sliced=1", {10, 64, 0}, 10 * 12, 10 * (4 + 3 * 4 + 3 * 8), 0},
    {"scatter:op=cache_locs", {10, 64, 0}, 10 * (4 + 8 + 4 * 4), 10 * 4 * 8, 0},
    /* 64 63 .. 57 64 63 tokens and four: of 16 a page 5 blocks of 68 .. 65 tokens, 4 of fewer */
    {"scatter:op=page_table_requests,page=16", {10, 64, 0},
     10 * (4 + 8) + (6 * 5 + 4 * 4) * 4, 10 * 5 * 4, 0},
    {"scatter:op=page_table_requests,page=16,tail=keep", {10, 64, 0},
     10 * (4 + 8) + (6 * 5 + 4 * 4) * 4, (6 * 5 + 4 * 4) * 4, 0},
};
/* clang-format on */

static void test_bytes_are_those_of_a_formula(void **state) {
    kgen_context *ctx = open_cpu("cpu:cdna3");
    (void)state;
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        const kgen__workload_options options = {.cold_bytes = 1};
        kgen__workload *work;
        kgen_spec spec;
        kgen_error err;
        must(kgen_spec_parse(&spec, counted[i].line, &err), &err);
        must(kgen__workload_make(&work, ctx, &spec, &counted[i].problem, &options, &err), &err);
        double read = kgen__workload_read_bytes(work), written = kgen__workload_bytes(work) - read;
        if (read != counted[i].read || written != counted[i].written)
            fail_msg("%s: %.0f read, %.0f written, %.0f and %.0f expected", counted[i].line, read,
                     written, counted[i].read, counted[i].written);
        assert_true(kgen__workload_flops(work) == counted[i].flops);
        assert_int_equal(kgen__workload_sets(work), 1);
        kgen__workload_free(work);
    }
    kgen_close(ctx);
}

/* ---- refusals --------------------------------------------------------------------------- */

static const struct {
    const char *line;
    kgen_problem problem;
    kgen_status status;
    const char *words;
} refused[] = {
    {"attn:", {0, 100, 8}, KGEN_E_ARG, "batch=0, at least 1"},
    {"attn:", {-1, 100, 8}, KGEN_E_ARG, "batch=-1, at least 1"},
    {"attn:", {1, 0, 8}, KGEN_E_ARG, "context=0, at least 1"},
    {"attn:phase=verify,t=5", {1, 4, 8}, KGEN_E_ARG, "context=4, at least 5"},
    {"attn:", {1, 100, 0}, KGEN_E_ARG, "heads=0, at least 1"},
    {"attn:", {1, 100, -2}, KGEN_E_ARG, "heads=-2"},
    {"kv_write:", {1, -1, 8}, KGEN_E_ARG, "context=-1"},
    {"scatter:op=cache_locs", {1, 0, 0}, KGEN_E_ARG, "context=0, at least 1"},
    {"scatter:op=cache_locs", {65536, 65536, 0}, KGEN_E_ARG, "at most 2^31-1 slots"},
    {"scatter:op=tree_build", {1, 100, 0}, KGEN_E_UNSUPPORTED, "op=tree_build"},
    {"scatter:op=kv_compact", {1, 100, 0}, KGEN_E_UNSUPPORTED, "op=kv_compact"},
    {"attn:", {1 << 20, 1 << 20, 64}, KGEN_E_NOMEM, "batch=1048576, context=1048576, heads=64"},
    {"attn:", {INT32_MAX, INT32_MAX, INT32_MAX}, KGEN_E_NOMEM, "batch=2147483647"},
    {"gdn:layout=flat", {1 << 24, 0, 0}, KGEN_E_NOMEM, "batch=16777216"},
    {"kv_write:", {INT32_MAX, 0, 64}, KGEN_E_NOMEM, "heads=64"},
    {"kv_gather:", {INT32_MAX, 0, 0}, KGEN_E_NOMEM, "heads=8"},
    {"attn_merge:", {INT32_MAX, 0, 0}, KGEN_E_NOMEM, "heads=32"},
    {"indexer:op=decode,t=5", {1, 4, 0}, KGEN_E_ARG, "context=4, at least 5"},
    {"indexer:op=topk", {INT32_MAX / 64, 1 << 20, 0}, KGEN_E_NOMEM, "context=1048576"},
    {"scatter:op=spec_prepare", {60000, 30000, 0}, KGEN_E_NOMEM, "context=30000"},
};

static void test_problems_that_are_refused(void **state) {
    kgen_context *ctx = open_cpu("cpu:cdna3");
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        kgen__workload *work = NULL;
        kgen_spec spec;
        kgen_error err;
        must(kgen_spec_parse(&spec, refused[i].line, &err), &err);
        kgen_status status =
            kgen__workload_make(&work, ctx, &spec, &refused[i].problem, NULL, &err);
        if (status != refused[i].status || !strstr(err.text, refused[i].words))
            fail_msg("%s: %s, not '%s'", refused[i].line, status == KGEN_OK ? "made" : err.text,
                     refused[i].words);
        assert_null(work);
    }
    kgen__workload_free(NULL);
    kgen__timer_free(NULL);
    kgen_close(ctx);
}

/* A kernel of another shape is refused by its launch, before anything is timed. */
static void test_a_kernel_that_does_not_fit(void **state) {
    const kgen_problem problem = {.batch = 1, .context = 20, .heads = 1};
    const kgen__workload_options options = {.cold_bytes = 1};
    static const char *const lines[] = {"attn:d=64,g=1", "attn:d=64,g=1,page=32", "kv_gather:d=64"};
    kgen_context *ctx = open_cpu("cpu:cdna3");
    kgen_kernel *kernels[3];
    kgen_spec specs[3];
    kgen__workload *work;
    kgen_error err;
    (void)state;
    for (int i = 0; i < 3; i++) must(kgen_spec_parse(&specs[i], lines[i], &err), &err);
    must(kgen_prepare(ctx, specs, 3, kernels, &err), &err);
    must(kgen__workload_make(&work, ctx, &specs[0], &problem, &options, &err), &err);
    for (int i = 1; i < 3; i++) {
        kgen__timer *timer = NULL;
        assert_int_equal(kgen__timer_make(&timer, work, kernels[i], &err), KGEN_E_ARG);
        assert_null(timer);
    }
    kgen__workload_free(work);
    kgen_close(ctx);
}

/* The driver's call alone, as often as asked, behind the checks of a launch. */
static void test_probe_of_launches(void **state) {
    const kgen_problem problem = {.batch = 3, .heads = 2};
    const kgen__workload_options options = {.cold_bytes = 1};
    kgen_context *cpu = open_cpu("cpu:cdna3");
    kgen_context ctx = {.api = &note, .target = kgen_context_target(cpu)};
    kgen_kernel kernel = {.ctx = &ctx, .config = {.grid = 8, .block = 64}};
    kgen__workload *work;
    kgen_spec spec;
    kgen_args args;
    kgen_args_room room;
    kgen_error err;
    (void)state;
    must(kgen_spec_parse(&spec, "kv_write:", &err), &err);
    must(kgen_spec_resolve(&kernel.spec, &spec, ctx.target, &err), &err);
    kgen__launch_bind(&kernel);
    must(kgen__workload_make(&work, cpu, &spec, &problem, &options, &err), &err);
    kgen__workload_args(&args, &room, work, 0);
    noted.launches = 0;
    must(kgen_probe_launch(&kernel, &args, NULL, 7, &err), &err);
    assert_int_equal(noted.launches, 7);
    args.kv_write->k.shape[1]++;
    assert_int_equal(kgen_probe_launch(&kernel, &args, NULL, 7, &err), KGEN_E_ARG);
    assert_int_equal(noted.launches, 7);
    kgen__workload_free(work);
    kgen_close(cpu);
}

/* ---- statistics --------------------------------------------------------------------------- */

/* Ranks of the 95 % interval of a median, from the tables of order statistics. */
static const struct {
    int count, low, high;
} ranks[] = {{1, 1, 1},    {2, 1, 2},    {5, 1, 5},     {6, 1, 6},        {8, 1, 8},   {9, 2, 8},
             {10, 2, 9},   {12, 3, 10},  {15, 4, 12},   {17, 5, 13},      {20, 6, 15}, {25, 8, 18},
             {30, 10, 21}, {50, 18, 33}, {100, 40, 61}, {2000, 956, 1045}};

static void test_medians(void **state) {
    static double samples[2000];
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        int count = ranks[i].count;
        kgen__timing t;
        for (int n = 0; n < count; n++) samples[n] = n + 1;
        for (int n = count - 1; n > 0; n--) {
            int j = (int)kgen__rng_range(&rng, 0, n);
            double kept = samples[n];
            samples[n] = samples[j];
            samples[j] = kept;
        }
        kgen__timing_of(&t, samples, count);
        assert_true(t.us == (1 + count) / 2.0);
        if (t.low != ranks[i].low || t.high != ranks[i].high)
            fail_msg("%d samples: ranks %g to %g, %d to %d expected", count, t.low, t.high,
                     ranks[i].low, ranks[i].high);
        assert_true(t.best == 1);
        assert_int_equal(t.samples, count);
    }
}

/* The interval of the median holds it in 95 % of all runs, or a little more. */
static void test_the_interval_covers(void **state) {
    enum { RUNS = 4000, COUNT = 15 };
    int covered = 0;
    (void)state;
    for (int run = 0; run < RUNS; run++) {
        double samples[COUNT];
        kgen__timing t;
        for (int i = 0; i < COUNT; i++) samples[i] = -log(1 - kgen__rng_uniform(&rng));
        kgen__timing_of(&t, samples, COUNT);
        covered += t.low <= log(2.0) && log(2.0) <= t.high;
    }
    if (covered < 0.945 * RUNS || covered > 0.985 * RUNS)
        fail_msg("%d of %d intervals hold the median, 96.5 %% expected", covered, RUNS);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void test_limits(void **state) {
    kgen__limits limits = {0};
    kgen_error err;
    kgen_context *ctx = open_cpu("cpu:cdna3");
    (void)state;
    must(kgen__limits_measure(&limits, ctx, 20000, &err), &err);
    assert_true(limits.read > 0 && isfinite(limits.read));
    assert_true(limits.copy > 0 && isfinite(limits.copy));
    kgen_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_spec_has_a_workload),
        cmocka_unit_test(test_kernels_run_over_workloads),
        cmocka_unit_test(test_recurrences_do_not_grow),
        cmocka_unit_test(test_timers_do_not_disturb_each_other),
        cmocka_unit_test(test_sets_and_seeds),
        cmocka_unit_test(test_bytes_are_those_of_a_formula),
        cmocka_unit_test(test_problems_that_are_refused),
        cmocka_unit_test(test_a_kernel_that_does_not_fit),
        cmocka_unit_test(test_probe_of_launches),
        cmocka_unit_test(test_medians),
        cmocka_unit_test(test_the_interval_covers),
        cmocka_unit_test(test_limits),
    };
    uint64_t seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

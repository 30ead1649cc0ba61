/* Attention over lengths, offsets and page numbers that are wrong: nothing outside
 * a tensor is read or written, what can be computed is right, and the error words
 * say which sequence has what. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "check/check.h"
#include "did.h"

enum { D = 64, HQ = 4, HKV = 2, PAGE = 16, POOL = 6, COLUMNS = 3, SEQS = 3, TOKENS = 12, T = 4 };
enum { ROW = HQ * D, KEYS = HKV * D, GUARD = 2 };

static kgen_context *ctx;

static int open_device(void **state) {
    kgen_open_options options = {.size = sizeof options, .device = "cpu:cdna3"};
    (void)state;
    if (kgen_open(&ctx, &options, &did) == KGEN_OK) return 0;
    print_message("skipped: %s\n", did.text);
    return -1;
}

static int close_device(void **state) {
    (void)state;
    kgen_close(ctx);
    return 0;
}

/* ---- a launch ------------------------------------------------------------ */

/* The pools end where memory that may be touched ends, and begin where it does. */
typedef struct rig {
    uint16_t *k, *v;
    uint16_t q[TOKENS * ROW], out[(TOKENS + GUARD) * ROW];
    float lse[HQ * TOKENS];
    int32_t table[SEQS * COLUMNS], lens[SEQS], cu[SEQS + 1], error[SEQS];
    kgen_args args;
    kgen_args_room room;
} rig;

static uint16_t *fenced(size_t bytes) {
    size_t unit = 4096, whole = (bytes + unit - 1) / unit * unit;
    char *p = mmap(NULL, whole + 2 * unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + unit, whole, PROT_READ | PROT_WRITE), 0);
    return (uint16_t *)(void *)(p + unit + whole - bytes);
}

static kgen_tensor tensor(void *p, kgen_dtype dtype, int rank, int64_t a, int64_t b, int64_t c,
                          int64_t d) {
    return kgen_tensor_dense(p, dtype, rank, (const int64_t[]){a, b, c, d});
}

static void fill(uint16_t *p, size_t count, kgen__rng *rng) {
    for (size_t i = 0; i < count; i++)
        p[i] = (uint16_t)kgen__number_encode(KGEN_DTYPE_BF16, kgen__rng_normal(rng));
}

static void make(rig *r) {
    static const int32_t table[] = {5, 0, 1, 2, 3, 4, 4, 5, 0}, lens[] = {40, 33, 20};
    static const int32_t cu[] = {0, 4, 8, 12};
    size_t pool = (size_t)POOL * PAGE * KEYS;
    kgen__rng rng;
    memset(r, 0, sizeof *r);
    kgen__rng_seed(&rng, 7, 0);
    r->k = fenced(pool * 2);
    r->v = fenced(pool * 2);
    fill(r->k, pool, &rng);
    fill(r->v, pool, &rng);
    fill(r->q, TOKENS * ROW, &rng);
    memcpy(r->table, table, sizeof table);
    memcpy(r->lens, lens, sizeof lens);
    memcpy(r->cu, cu, sizeof cu);
    r->args = (kgen_args){.family = KGEN_FAMILY_ATTN, .attn = &r->room.attn};
    kgen_attn_args *a = r->args.attn;
    a->q = tensor(r->q, KGEN_DTYPE_BF16, 3, TOKENS, HQ, D, 0);
    a->out = tensor(r->out, KGEN_DTYPE_BF16, 3, TOKENS, HQ, D, 0);
    a->k = tensor(r->k, KGEN_DTYPE_BF16, 4, POOL, PAGE, HKV, D);
    a->v = tensor(r->v, KGEN_DTYPE_BF16, 4, POOL, PAGE, HKV, D);
    a->k.layout = a->v.layout = KGEN_LAYOUT_NHD;
    a->block_table = tensor(r->table, KGEN_DTYPE_I32, 2, SEQS, COLUMNS, 0, 0);
    a->seq_lens = tensor(r->lens, KGEN_DTYPE_I32, 1, SEQS, 0, 0, 0);
    a->cu_seqlens_q = tensor(r->cu, KGEN_DTYPE_I32, 1, SEQS + 1, 0, 0, 0);
    a->lse = tensor(r->lse, KGEN_DTYPE_F32, 2, HQ, TOKENS, 0, 0);
    a->error = tensor(r->error, KGEN_DTYPE_I32, 1, SEQS, 0, 0, 0);
    a->softmax_scale = 0.125f;
}

/* The kernel of a line, and a workspace for it, which the caller frees. */
static kgen_kernel *prepare(rig *r, const char *line) {
    kgen_spec spec;
    kgen_kernel *kernel = NULL;
    size_t bytes;
    DO(kgen_spec_parse(&spec, line, &did));
    DO(kgen_prepare(ctx, &spec, 1, &kernel, &did));
    DO(kgen_workspace_size(kernel, &r->args, &bytes, &did));
    DO(kgen_memory_alloc(ctx, &r->args.workspace, bytes, &did));
    r->args.workspace_bytes = bytes;
    DO(kgen_workspace_init(ctx, r->args.workspace, bytes, NULL, &did));
    return kernel;
}

static void launch(rig *r, const kgen_kernel *kernel) {
    memset(r->out, 0x7f, sizeof r->out);
    memset(r->error, 0, sizeof r->error);
    DO(kgen_launch(kernel, &r->args, NULL, &did));
    DO(kgen_stream_sync(ctx, NULL, &did));
    for (size_t i = TOKENS * ROW; i < sizeof r->out / 2; i++) assert_int_equal(r->out[i], 0x7f7f);
}

static void run(rig *r, const char *line) {
    launch(r, prepare(r, line));
    kgen_memory_free(ctx, r->args.workspace);
}

#define VERIFY "attn:phase=verify,d=64,g=2,t=4,page=16,layout=nhd,lse=1"
#define EXTEND "attn:phase=extend,d=64,g=2,page=16,layout=nhd,lse=1"
#define DECODE "attn:d=64,g=2,page=16,layout=nhd,lse=1"

/* Rows first .. end - 1 as another launch has them. */
static void assert_rows(const rig *r, const rig *want, int first, int end) {
    assert_memory_equal(r->out + first * ROW, want->out + first * ROW,
                        (size_t)(end - first) * ROW * 2);
}

/* The first `end` rows, added up in another order. */
static void assert_close(const rig *r, const rig *want, int end) {
    for (int i = 0; i < end * ROW; i++) {
        double got = (double)kgen__number_decode(KGEN_DTYPE_BF16, r->out[i]);
        double exact = (double)kgen__number_decode(KGEN_DTYPE_BF16, want->out[i]);
        assert_true(fabs(got - exact) <= 0.02 * fabs(exact) + 0.01);
    }
}

static void assert_zeros(const rig *r, int first, int end) {
    for (int i = first * ROW; i < end * ROW; i++) assert_int_equal(r->out[i], 0);
    for (int h = 0; h < HQ; h++)
        for (int t = first; t < end; t++) assert_true(isinf(r->lse[h * TOKENS + t]));
}

static void assert_errors(const rig *r, int a, int b, int c) {
    assert_int_equal(r->error[0], a);
    assert_int_equal(r->error[1], b);
    assert_int_equal(r->error[2], c);
}

/* ---- the tests ------------------------------------------------------------ */

/* Ten tokens of one sequence: the first four stand where they are, the context is
 * that of all ten. */
static void test_more_tokens_than_t(void **state) {
    rig r, want;
    (void)state;
    make(&r);
    make(&want);
    memcpy(r.cu, (const int32_t[]){0, 10, 11, 12}, sizeof r.cu);
    run(&r, VERIFY);
    memcpy(want.cu, (const int32_t[]){0, 10, 11, 12}, sizeof want.cu);
    run(&want, "attn:phase=verify,d=64,g=2,t=10,page=16,layout=nhd,lse=1,waves=4,mt=1");
    assert_close(&r, &want, T);
    assert_zeros(&r, T, 10);
    assert_errors(&r, KGEN_ATTN_TOKENS, 0, 0);
    assert_errors(&want, 0, 0, 0);
}

static void test_rows_outside(void **state) {
    static const int32_t wrong[][SEQS + 1] = {{0, 4, 8, 14}, {0, 4, 8, 1 << 30}, {0, 4, 8, 3}};
    rig good;
    (void)state;
    make(&good);
    run(&good, VERIFY);
    assert_errors(&good, 0, 0, 0);
    for (int i = 0; i < 3; i++) {
        rig r;
        make(&r);
        memcpy(r.cu, wrong[i], sizeof r.cu);
        run(&r, VERIFY);
        assert_errors(&r, 0, 0, KGEN_ATTN_ROWS);
        assert_rows(&r, &good, 0, 8);
    }
}

static void test_lengths_beyond_the_table(void **state) {
    static const int32_t lengths[] = {COLUMNS * PAGE + 1, 1 << 30, INT32_MAX};
    rig good;
    (void)state;
    make(&good);
    run(&good, VERIFY);
    for (int i = 0; i < 3; i++) {
        rig r;
        make(&r);
        r.lens[1] = lengths[i];
        run(&r, VERIFY);
        assert_errors(&r, 0, KGEN_ATTN_LENGTH, 0);
        assert_rows(&r, &good, 0, 4);
        assert_zeros(&r, 4, 8);
        assert_rows(&r, &good, 8, 12);
    }
}

static void test_pages_outside_the_pool(void **state) {
    static const int32_t pages[] = {POOL, -1, INT32_MAX, INT32_MIN};
    rig good;
    (void)state;
    make(&good);
    run(&good, VERIFY);
    for (int i = 0; i < 4; i++) {
        rig r;
        make(&r);
        r.table[2 * COLUMNS + 1] = pages[i];
        r.table[0 * COLUMNS + 2] = i == 0 ? POOL : r.table[2];
        r.table[2 * COLUMNS + 2] = pages[i]; /* not used: 20 keys are two pages */
        run(&r, VERIFY);
        assert_errors(&r, i == 0 ? KGEN_ATTN_PAGE : 0, 0, KGEN_ATTN_PAGE);
        assert_rows(&r, &good, 4, 8);
    }
}

/* An engine that has no cache yet: whatever its lengths and its table say, no key is read. */
static void test_a_pool_without_pages(void **state) {
    static const char *const lines[] = {
        VERIFY, EXTEND, DECODE,
        "attn:phase=extend,d=64,g=2,page=16,layout=nhd,lse=1,window=rt,keep=2"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        rig r;
        make(&r);
        kgen_attn_args *a = r.args.attn;
        int tokens = i == 2 ? SEQS : TOKENS;
        a->q.shape[0] = a->out.shape[0] = a->lse.shape[1] = tokens;
        if (i == 2) a->cu_seqlens_q = (kgen_tensor){0};
        if (i == 3) a->window = 8;
        a->k.data = a->v.data = NULL;
        a->k.shape[0] = a->v.shape[0] = 0;
        run(&r, lines[i]);
        assert_zeros(&r, 0, tokens);
        assert_errors(&r, KGEN_ATTN_LENGTH, KGEN_ATTN_LENGTH, KGEN_ATTN_LENGTH);
    }
}

static void test_a_latent_pool_without_pages(void **state) {
    static const char *const lines[] = {"mla:phase=verify,l=512,r=64,h=1,t=4,page=16",
                                        "mla:phase=decode,l=512,r=64,h=4,page=1,sparse=1"};
    (void)state;
    for (int sparse = 0; sparse < 2; sparse++) {
        rig r;
        make(&r);
        int tokens = sparse ? 1 : 4, heads = sparse ? 4 : 1, seqs = sparse ? 1 : SEQS;
        kgen_mla_args a = {.softmax_scale = 0.125f, .seq_lens = r.args.attn->seq_lens};
        a.q = tensor(r.k, KGEN_DTYPE_BF16, 3, tokens, heads, 576, 0);
        a.out = tensor(r.out, KGEN_DTYPE_BF16, 3, tokens, heads, 512, 0);
        a.cache = tensor(NULL, KGEN_DTYPE_BF16, 3, 0, sparse ? 1 : PAGE, 576, 0);
        a.seq_lens.shape[0] = seqs;
        memcpy(r.cu, (const int32_t[]){0, 1, 3, 4}, sizeof r.cu);
        if (!sparse) a.cu_seqlens_q = tensor(r.cu, KGEN_DTYPE_I32, 1, SEQS + 1, 0, 0, 0);
        *(sparse ? &a.slots : &a.block_table) =
            tensor(r.table, KGEN_DTYPE_I32, 2, seqs, COLUMNS * SEQS / seqs, 0, 0);
        r.lens[0] = 9;
        r.args = (kgen_args){.family = KGEN_FAMILY_MLA, .mla = &a};
        run(&r, lines[sparse]);
        for (int i = 0; i < tokens * heads * 512; i++) assert_int_equal(r.out[i], 0);
    }
}

static void test_decode(void **state) {
    rig r;
    (void)state;
    make(&r);
    r.args.attn->q.shape[0] = r.args.attn->out.shape[0] = r.args.attn->lse.shape[1] = SEQS;
    r.args.attn->cu_seqlens_q = (kgen_tensor){0};
    r.lens[0] = 1000;
    r.table[COLUMNS] = 99;
    run(&r, DECODE);
    assert_errors(&r, KGEN_ATTN_LENGTH, KGEN_ATTN_PAGE, 0);
    for (int i = 0; i < ROW; i++) assert_int_equal(r.out[i], 0);
}

/* What the caller says is checked before anything is launched. */
static void test_lengths_that_the_caller_knows(void **state) {
    rig r;
    (void)state;
    make(&r);
    kgen_kernel *kernel = prepare(&r, VERIFY);
    r.args.attn->max_q_len = T;
    r.args.attn->max_kv_len = COLUMNS * PAGE;
    DO(kgen_launch(kernel, &r.args, NULL, &did));
    DO(kgen_stream_sync(ctx, NULL, &did));
    r.args.attn->max_q_len = T + 1;
    assert_int_equal(kgen_launch(kernel, &r.args, NULL, &did), KGEN_E_ARG);
    assert_string_equal(did.text, "max_q_len=5: kernel built for t=4");
    r.args.attn->max_q_len = 0;
    r.args.attn->max_kv_len = COLUMNS * PAGE + 1;
    assert_int_equal(kgen_launch(kernel, &r.args, NULL, &did), KGEN_E_ARG);
    assert_string_equal(did.text, "max_kv_len=49: block_table has pages for 48 keys");
    kgen_memory_free(ctx, r.args.workspace);
}

/* Sequences enough, and keys that a table could have, for units of several blocks: what
 * is computed stays the same. */
static void test_units_of_several_blocks(void **state) {
    enum { MANY = 40 };
    static int32_t lens[MANY], cu[MANY + 1];
    rig r, want;
    (void)state;
    make(&r);
    make(&want);
    run(&want, EXTEND);
    for (int i = 0; i < MANY; i++) {
        lens[i] = i < SEQS ? want.lens[i] : 0;
        cu[i + 1] = i < SEQS ? want.cu[i + 1] : TOKENS;
    }
    kgen_attn_args *a = r.args.attn;
    a->seq_lens = tensor(lens, KGEN_DTYPE_I32, 1, MANY, 0, 0, 0);
    a->cu_seqlens_q = tensor(cu, KGEN_DTYPE_I32, 1, MANY + 1, 0, 0, 0);
    a->error = (kgen_tensor){0};
    a->block_table.shape[0] = MANY;
    a->block_table.shape[1] = 1 << 27;
    run(&r, EXTEND);
    assert_rows(&r, &want, 0, TOKENS);
}

#define CASCADE "attn:phase=extend,d=64,g=4,page=16,layout=nhd,lse=1,waves=1,mt=1,cascade=1"

/* All sequences share their first 32 keys, and have one KV head. */
static void make_group(rig *r) {
    static int32_t seqs[] = {0, SEQS}, keys[] = {2 * PAGE};
    make(r);
    for (int s = 0; s < SEQS; s++) {
        memmove(r->table + s * COLUMNS, r->table, 2 * sizeof r->table[0]);
        r->lens[s] = COLUMNS * PAGE;
    }
    kgen_attn_args *a = r->args.attn;
    a->k.shape[2] = a->v.shape[2] = 1;
    a->prefix_seqs = tensor(seqs, KGEN_DTYPE_I32, 1, 2, 0, 0, 0);
    a->prefix_lens = tensor(keys, KGEN_DTYPE_I32, 1, 1, 0, 0, 0);
}

/* Offsets that fall give tokens 1 to 11 to sequences 0 and 2, which count their row blocks
 * at the same places: those rows mean nothing. Others are right, the sequence that falls
 * is named, and the workspace serves what follows or says that it is unfit. */
static void test_offsets_that_fall_in_a_group(void **state) {
    static const int32_t falls[] = {0, TOKENS, 1, TOKENS}, sound[] = {0, TOKENS, TOKENS, TOKENS};
    rig r, want;
    (void)state;
    make_group(&want);
    memcpy(want.cu, sound, sizeof sound);
    run(&want, CASCADE);
    assert_errors(&want, 0, 0, 0);
    make_group(&r);
    kgen_kernel *kernel = prepare(&r, CASCADE);
    for (int round = 0; round < 8; round++) {
        memcpy(r.cu, round % 2 ? sound : falls, sizeof falls);
        launch(&r, kernel);
        int unfit = kgen_workspace_check(ctx, r.args.workspace, r.args.workspace_bytes, NULL,
                                         &did) != KGEN_OK;
        int said = (r.error[0] | r.error[1] | r.error[2]) & KGEN_ATTN_WORKSPACE;
        if (said) assert_true(unfit);
        assert_int_equal(r.error[1] & ~KGEN_ATTN_WORKSPACE, round % 2 ? 0 : KGEN_ATTN_ROWS);
        if (!said) assert_close(&r, &want, round % 2 ? TOKENS : 1);
        if (unfit)
            DO(kgen_workspace_init(ctx, r.args.workspace, r.args.workspace_bytes, NULL, &did));
    }
    kgen_memory_free(ctx, r.args.workspace);
}

/* More tokens than the line of work counts are refused before anything is touched. */
static void test_too_much_work(void **state) {
    static const int64_t tokens[] = {INT32_MAX / 2, 1 << 24};
    static const char *const said[] = {"rows of a KV head", "pieces of work"};
    rig r;
    (void)state;
    make(&r);
    kgen_kernel *kernel = prepare(&r, EXTEND);
    kgen_attn_args *a = r.args.attn;
    for (int i = 0; i < 2; i++) {
        int64_t heads = i ? 1 << 14 : HQ;
        a->q = tensor((void *)((uintptr_t)1 << 45), KGEN_DTYPE_BF16, 3, tokens[i], heads, D, 0);
        a->out = tensor((void *)((uintptr_t)1 << 46), KGEN_DTYPE_BF16, 3, tokens[i], heads, D, 0);
        a->lse = tensor((void *)((uintptr_t)1 << 47), KGEN_DTYPE_F32, 2, heads, tokens[i], 0, 0);
        a->k.shape[2] = a->v.shape[2] = heads / 2;
        assert_int_equal(kgen_launch(kernel, &r.args, NULL, &did), KGEN_E_ARG);
        if (!strstr(did.text, said[i])) fail_msg("%s", did.text);
    }
    kgen_memory_free(ctx, r.args.workspace);
}

/* Words that are added to would change what the launch reads. */
static void test_error_words_apart(void **state) {
    rig r;
    (void)state;
    make(&r);
    kgen_kernel *kernel = prepare(&r, VERIFY);
    r.args.attn->error.data = r.lens;
    assert_int_equal(kgen_launch(kernel, &r.args, NULL, &did), KGEN_E_ARG);
    assert_string_equal(did.text, "seq_lens: overlaps error, which the kernel writes");
    kgen_memory_free(ctx, r.args.workspace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_tokens_than_t),
        cmocka_unit_test(test_rows_outside),
        cmocka_unit_test(test_lengths_beyond_the_table),
        cmocka_unit_test(test_pages_outside_the_pool),
        cmocka_unit_test(test_a_pool_without_pages),
        cmocka_unit_test(test_a_latent_pool_without_pages),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_lengths_that_the_caller_knows),
        cmocka_unit_test(test_units_of_several_blocks),
        cmocka_unit_test(test_offsets_that_fall_in_a_group),
        cmocka_unit_test(test_too_much_work),
        cmocka_unit_test(test_error_words_apart),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}

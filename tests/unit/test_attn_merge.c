/* attn_merge: every argument that is refused, and what may lie on what. Then the long
 * way of a context, written, gathered, attended in chunks and merged, beside one launch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "seed.h"
#include "world.h"

static kgen__rng rng;

/* ---- refusals ------------------------------------------------------------------ */

enum { TOKENS = 40, HEADS = 4, DIM = 64, PARTS = 3 };

#define PAIR "attn_merge:x=bf16,d=64"
#define NARROW "attn_merge:x=bf16,o=fp8,d=64,lse=th"
#define STACK "attn_merge:x=f32,d=64,parts=stack"

static kgen_tensor at(int place, int32_t dtype, int32_t rank, const int64_t *shape) {
    return kgen_tensor_dense((void *)(uintptr_t)((uint64_t)place << 32), (kgen_dtype)dtype, rank,
                             shape);
}

#define AT(place, dtype, ...)                                            \
    at(place, dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
       (const int64_t[]){__VA_ARGS__})

static kgen_tensor sums_at(int place, const kgen_attn_merge_spec *s) {
    return s->lse == KGEN_LSE_TH ? AT(place, KGEN_DTYPE_F32, TOKENS, HEADS)
                                 : AT(place, KGEN_DTYPE_F32, HEADS, TOKENS);
}

static kgen_attn_merge_args arguments(const kgen_attn_merge_spec *s) {
    kgen_attn_merge_args a = {.out = AT(5, s->out, TOKENS, HEADS, DIM), .lse = sums_at(6, s)};
    if (kgen_dtype_size((kgen_dtype)s->out) == 1) a.out_scale = AT(7, KGEN_DTYPE_F32, 1);
    if (s->parts == KGEN_PARTS_STACK) {
        a.stacked = AT(1, s->x, PARTS, TOKENS, HEADS, DIM);
        a.stacked_lse = AT(2, KGEN_DTYPE_F32, PARTS, HEADS, TOKENS);
        return a;
    }
    a.prefix = AT(1, s->x, TOKENS, HEADS, DIM);
    a.suffix = AT(2, s->x, TOKENS, HEADS, DIM);
    a.prefix_lse = sums_at(3, s);
    a.suffix_lse = sums_at(4, s);
    return a;
}

/* What one tensor must not be. */
typedef enum change {
    NO_DATA,
    GIVEN,
    DTYPE,
    SHAPE0,
    SHAPE1,
    STRIDE0,
    LAST,
    SHIFT,   /* by 4 bytes */
    SAME,    /* takes the address of `other` */
    SHIFTED, /* the same, 1024 bytes further */
    SLOPED,  /* the same with another stride */
    FLAT,    /* its parts lie in each other */
    TAIL,    /* the number */
    HUGE0,
} change;

typedef struct bad {
    const char *line;
    size_t offset; /* of the tensor */
    change change;
    size_t other;
    const char *says; /* NULL: it is right */
} bad;

#define M(field) offsetof(kgen_attn_merge_args, field)

static const bad bads[] = {
    {PAIR, M(prefix), NO_DATA, 0, "prefix: no data"},
    {PAIR, M(prefix), DTYPE, 0, "prefix: dtype i64, kernel built for bf16"},
    {PAIR, M(suffix), SHAPE0, 0, "suffix: shape[0]=39, 40 expected"},
    {PAIR, M(suffix), SHAPE1, 0, "suffix: shape[1]=5, 4 expected"},
    {PAIR, M(prefix), STRIDE0, 0, "prefix: stride[0]=257 elements is not a multiple of 16 bytes"},
    {PAIR, M(suffix), LAST, 0, "suffix: stride[2]=2, 1 expected"},
    {PAIR, M(suffix), SHIFT, 0, "suffix: address"},
    {PAIR, M(prefix_lse), SHAPE0, 0, "prefix_lse: shape[0]=3, 4 expected"},
    {PAIR, M(suffix_lse), LAST, 0, "suffix_lse: stride[1]=2, 1 expected"},
    {PAIR, M(suffix_lse), NO_DATA, 0, "suffix_lse: no data"},
    {PAIR, M(out), DTYPE, 0, "out: dtype i64, kernel built for bf16"},
    {PAIR, M(out), SHIFT, 0, "out: address"},
    {PAIR, M(out), FLAT, 0, "out: stride[0]=0, at least"},
    {PAIR, M(lse), FLAT, 0, "lse: stride[0]=0, at least"},
    {PAIR, M(lse), SHAPE1, 0, "lse: shape[1]=41, 40 expected"},
    {PAIR, M(stacked), GIVEN, 0, "stacked: given, kernel built without it"},
    {PAIR, M(out_scale), GIVEN, 0, "out_scale: given, kernel built without it"},
    {PAIR, 0, TAIL, 41, "tail=41: the batch has 40 tokens"},
    {PAIR, 0, TAIL, (size_t)-1, "tail=-1: at least 0"},
    {STACK, M(stacked), HUGE0, 0, "stacked: shape[0]=2147483648, at most"},
    {STACK, M(stacked_lse), SHAPE0, 0, "stacked_lse: shape[0]=2, 3 expected"},
    {STACK, M(prefix), GIVEN, 0, "prefix: given, kernel built without it"},
    {NARROW, M(out_scale), NO_DATA, 0, "out_scale: no data"},
    {NARROW, M(out), SHIFT, 0, "out: address 0x500000004 is not a multiple of 8 bytes"},
    {NARROW, M(suffix_lse), SHAPE0, 0, "suffix_lse: shape[0]=39, 40 expected"},
    /* on each other */
    {PAIR, M(out), SAME, M(prefix), NULL},
    {PAIR, M(out), SAME, M(suffix), NULL},
    {PAIR, M(lse), SAME, M(suffix_lse), NULL},
    {PAIR, M(suffix), SAME, M(prefix), NULL},
    {PAIR, M(out), SHIFTED, M(prefix), "prefix: overlaps out, which the kernel writes; in place"},
    {PAIR, M(out), SLOPED, M(suffix), "suffix: overlaps out"},
    {PAIR, M(out), SAME, M(prefix_lse), "prefix_lse: overlaps out"},
    {PAIR, M(lse), SHIFTED, M(prefix_lse), NULL}, /* past its end */
    {PAIR, M(lse), SLOPED, M(prefix_lse), "prefix_lse: overlaps lse"},
    {PAIR, M(lse), SAME, M(suffix), "suffix: overlaps lse"},
    {PAIR, M(lse), SAME, M(out), "lse: overlaps out"},
    {NARROW, M(out), SAME, M(prefix), "prefix: overlaps out"},
    {NARROW, M(out_scale), SAME, M(out), "out_scale: overlaps out"},
    {NARROW, M(out_scale), SAME, M(lse), "out_scale: overlaps lse"},
    {STACK, M(out), SAME, M(stacked), NULL},
    {STACK, M(out), SHIFTED, M(stacked), "stacked: overlaps out"},
    {STACK, M(lse), SAME, M(stacked_lse), NULL},
};

static void spoil(kgen_attn_merge_args *a, const bad *b) {
    kgen_tensor *t = (kgen_tensor *)((char *)a + b->offset);
    const kgen_tensor *other =
        (const kgen_tensor *)((char *)a + (b->change == TAIL ? 0 : b->other));
    switch (b->change) {
    case NO_DATA:
        t->data = NULL;
        break;
    case GIVEN:
        *t = AT(9, KGEN_DTYPE_F32, 1);
        break;
    case DTYPE:
        t->dtype = KGEN_DTYPE_I64;
        break;
    case SHAPE0:
        t->shape[0]--;
        break;
    case SHAPE1:
        t->shape[1]++;
        break;
    case STRIDE0:
        t->stride[0]++;
        break;
    case LAST:
        t->stride[t->rank - 1] = 2;
        break;
    case SHIFT:
        t->data = (char *)t->data + 4;
        break;
    case SLOPED:
        t->stride[0] *= 2;
        t->data = other->data;
        break;
    case SAME:
        t->data = other->data;
        break;
    case SHIFTED:
        t->data = (char *)other->data + 1024;
        break;
    case FLAT:
        t->stride[0] = 0;
        break;
    case TAIL:
        a->tail = (int32_t)b->other;
        break;
    case HUGE0:
        t->shape[0] = (int64_t)INT32_MAX + 1;
        break;
    }
}

static kgen_kernel *prepared(world *w, const char *line) {
    kgen_spec spec;
    kgen_kernel *kernel;
    kgen_error err;
    world_must(kgen_spec_parse(&spec, line, &err), &err);
    world_must(kgen_prepare(w->ctx, &spec, 1, &kernel, &err), &err);
    return kernel;
}

static void check_bad(kgen_kernel *kernel, const bad *b, kgen_attn_merge_args *a) {
    kgen_error err = {KGEN_OK, ""};
    kgen_args args = {.family = KGEN_FAMILY_ATTN_MERGE, .any = a};
    kgen_status status = kgen_launch_check(kernel, &args, &err);
    if (!b->says && status != KGEN_OK) fail_msg("%s: %s", b->line, err.text);
    if (!b->says) return;
    if (status == KGEN_OK) fail_msg("%s: no '%s'", b->line, b->says);
    assert_int_equal(status, KGEN_E_ARG);
    if (!strstr(err.text, b->says))
        fail_msg("%s: '%s' does not say '%s'", b->line, err.text, b->says);
}

static void test_bad_arguments_are_refused(void **state) {
    (void)state;
    world w;
    world_open(&w);
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        kgen_kernel *kernel = prepared(&w, bads[i].line);
        kgen_attn_merge_args a = arguments(&kgen_kernel_spec(kernel)->attn_merge);
        const bad right = {.line = bads[i].line};
        check_bad(kernel, &right, &a);
        spoil(&a, &bads[i]);
        check_bad(kernel, &bads[i], &a);
    }
    world_close(&w);
}

/* A stack whose parts lie in each other, counts that are too large, another part. */
static void test_stacks(void **state) {
    (void)state;
    world w;
    world_open(&w);
    kgen_kernel *kernel = prepared(&w, STACK);
    const kgen_attn_merge_spec *s = &kgen_kernel_spec(kernel)->attn_merge;
    kgen_attn_merge_args a = arguments(s);
    a.out.data = (char *)a.stacked.data + 2 * a.stacked.stride[0] * 4;
    check_bad(kernel, &(bad){.line = STACK}, &a);
    a.out.data = (char *)a.stacked.data + a.stacked.stride[0] * 4 + 16;
    check_bad(kernel, &(bad){.line = STACK, .says = "stacked: overlaps out"}, &a);
    a = arguments(s);
    a.stacked.stride[0] = 0; /* one part thrice: to read, not to write */
    check_bad(kernel, &(bad){.line = STACK}, &a);
    a.out.data = a.stacked.data;
    check_bad(kernel, &(bad){.line = STACK, .says = "stacked: stride[0]=0, at least"}, &a);
    a = arguments(s);
    a.stacked.shape[0] = a.stacked_lse.shape[0] = 0;
    check_bad(kernel, &(bad){.line = STACK, .says = "stacked: shape[0]=0 parts, at least 1"}, &a);
    a = arguments(s);
    a.stacked.shape[2] = a.out.shape[1] = a.stacked_lse.shape[1] = a.lse.shape[0] = 0;
    check_bad(kernel, &(bad){.line = STACK, .says = "stacked: shape[2]=0 heads, at least 1"}, &a);
    a = arguments(s);
    a.stacked.shape[1] = a.out.shape[0] = a.stacked_lse.shape[2] = a.lse.shape[1] = 1 << 29;
    a.stacked_lse.stride[1] = a.lse.stride[0] = 1 << 29;
    check_bad(kernel,
              &(bad){.line = STACK,
                     .says = "stacked: 536870912 tokens of 4 heads, at most 1073741823 rows"},
              &a);
    world_close(&w);
}

/* ---- the long way and the short one ------------------------------------------------ */

enum {
    SEQS = 2,
    PAGE = 16,
    PAGES = 6,
    KV_HEADS = 2,
    QUERIES = 4,
    CHUNK = 16, /* tokens of a context's first chunk */
    MOST = 96,  /* tokens of all sequences, at most */
};

#define SHAPE "d=64,g=2"
#define PAGED ",page=16,layout=nhd,lse=1"
#define DENSE ",page=1,layout=nhd,lse=1"

/* Whole sequences: `context` cached tokens, and `fresh` ones. */
static const int32_t contexts[SEQS] = {37, 20}, fresh[SEQS] = {9, 5};

typedef struct model {
    world w;
    uint16_t q[MOST][QUERIES][DIM], k[MOST][KV_HEADS][DIM], v[MOST][KV_HEADS][DIM];
    int32_t tokens, first[SEQS + 1]; /* of a sequence in q, k, v */
    kgen_tensor k_cache, v_cache, table;
} model;

typedef struct answer {
    int32_t rows;
    uint16_t out[MOST][QUERIES][DIM];
    float lse[QUERIES * MOST]; /* [QUERIES][rows] */
} answer;

/* Rows of sequences, from..end of each, as one tensor; and where they begin. */
typedef struct rows_t {
    kgen_tensor rows, ends;
    int32_t count;
} rows_t;

static rows_t take(model *m, const void *all, int32_t heads, const int32_t *from,
                   const int32_t *end) {
    size_t size = (size_t)heads * DIM * sizeof(uint16_t);
    char *copy = malloc(MOST * size);
    rows_t r = {.count = 0};
    int32_t ends[SEQS + 1] = {0};
    assert_non_null(copy);
    for (int s = 0; s < SEQS; s++) {
        int32_t count = end[s] - from[s];
        memcpy(copy + (size_t)r.count * size,
               (const char *)all + (size_t)(m->first[s] + from[s]) * size, (size_t)count * size);
        ends[s + 1] = r.count += count;
    }
    r.rows = WORLD_PUT(&m->w, KGEN_DTYPE_BF16, 0, copy, r.count, heads, DIM);
    r.ends = WORLD_PUT(&m->w, KGEN_DTYPE_I32, 0, ends, SEQS + 1);
    free(copy);
    return r;
}

static void random_rows(uint16_t *rows, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        rows[i] = (uint16_t)kgen__number_encode(KGEN_DTYPE_BF16, kgen__rng_normal(&rng));
}

/* All tokens into pages out of order. */
static void write_cache(model *m) {
    static const int32_t table[SEQS][3] = {{5, 2, 0}, {1, 4, 3}};
    static const int32_t none[SEQS] = {0};
    int64_t slots[MOST];
    int32_t end[SEQS];
    for (int s = 0; s < SEQS; s++) {
        end[s] = m->first[s + 1] - m->first[s];
        for (int i = 0; i < end[s]; i++)
            slots[m->first[s] + i] = table[s][i / PAGE] * PAGE + i % PAGE;
    }
    m->table = WORLD_PUT(&m->w, KGEN_DTYPE_I32, 0, table, SEQS, 3);
    m->k_cache =
        WORLD_PUT(&m->w, KGEN_DTYPE_BF16, KGEN_LAYOUT_NHD, NULL, PAGES, PAGE, KV_HEADS, DIM);
    m->v_cache =
        WORLD_PUT(&m->w, KGEN_DTYPE_BF16, KGEN_LAYOUT_NHD, NULL, PAGES, PAGE, KV_HEADS, DIM);
    kgen_kv_write_args args = {.k = take(m, m->k, KV_HEADS, none, end).rows,
                               .v = take(m, m->v, KV_HEADS, none, end).rows,
                               .slots = WORLD_PUT(&m->w, KGEN_DTYPE_I64, 0, slots, m->tokens),
                               .k_cache = m->k_cache,
                               .v_cache = m->v_cache};
    world_run(&m->w, "kv_write:d=64,page=16,layout=nhd", &args);
}

static void make_model(model *m) {
    memset(m, 0, sizeof *m);
    world_open(&m->w);
    for (int s = 0; s < SEQS; s++) m->first[s + 1] = m->tokens += contexts[s] + fresh[s];
    random_rows(&m->q[0][0][0], sizeof m->q / sizeof(uint16_t));
    random_rows(&m->k[0][0][0], sizeof m->k / sizeof(uint16_t));
    random_rows(&m->v[0][0][0], sizeof m->v / sizeof(uint16_t));
    write_cache(m);
}

/* Outputs of that many rows, not yet written. */
typedef struct results {
    kgen_tensor out, lse;
} results;

static results fresh_results(model *m, int32_t rows) {
    return (results){WORLD_PUT(&m->w, KGEN_DTYPE_BF16, 0, NULL, rows, QUERIES, DIM),
                     WORLD_PUT(&m->w, KGEN_DTYPE_F32, 0, NULL, QUERIES, rows)};
}

static void read_back(model *m, answer *a, results r) {
    kgen_error err;
    a->rows = (int32_t)r.out.shape[0];
    size_t rows = (size_t)a->rows;
    world_must(kgen_memory_read(m->w.ctx, a->out, r.out.data, rows * sizeof a->out[0], &err), &err);
    world_must(kgen_memory_read(m->w.ctx, a->lse, r.lse.data, rows * QUERIES * sizeof(float), &err),
               &err);
}

static const float scale = 0.125f;

/* Queries from..end of each sequence over its pages. */
static results extend(model *m, const int32_t *from, const int32_t *end) {
    rows_t q = take(m, m->q, QUERIES, from, end);
    results r = fresh_results(m, q.count);
    kgen_attn_args args = {.q = q.rows,
                           .k = m->k_cache,
                           .v = m->v_cache,
                           .out = r.out,
                           .block_table = m->table,
                           .seq_lens = WORLD_PUT(&m->w, KGEN_DTYPE_I32, 0, end, SEQS),
                           .cu_seqlens_q = q.ends,
                           .lse = r.lse,
                           .softmax_scale = scale};
    world_run(&m->w, "attn:phase=extend," SHAPE PAGED, &args);
    return r;
}

/* The same over keys without pages. */
static kgen_attn_args dense_args(const rows_t *q, rows_t *k, rows_t *v, results r) {
    rows_t *const cached[] = {k, v};
    for (int i = 0; i < 2; i++) {
        kgen_tensor *t = &cached[i]->rows;
        *t = (kgen_tensor){t->data,
                           t->dtype,
                           KGEN_LAYOUT_NHD,
                           4,
                           {t->shape[0], 1, KV_HEADS, DIM},
                           {t->stride[0], t->stride[0], DIM, 1}};
    }
    return (kgen_attn_args){.q = q->rows,
                            .k = k->rows,
                            .v = v->rows,
                            .out = r.out,
                            .cu_seqlens_k = k->ends,
                            .cu_seqlens_q = q->ends,
                            .lse = r.lse,
                            .softmax_scale = scale};
}
static results dense(model *m, rows_t q, rows_t k, rows_t v, int causal) {
    results r = fresh_results(m, q.count);
    kgen_attn_args args = dense_args(&q, &k, &v, r);
    world_run(&m->w,
              causal ? "attn:phase=prefill," SHAPE DENSE
                     : "attn:phase=prefill,causal=0," SHAPE DENSE,
              &args);
    return r;
}

/* Cached tokens from..end of each sequence. */
static void gather(model *m, rows_t *k, rows_t *v, const int32_t *from, const int32_t *end) {
    *k = take(m, m->k, KV_HEADS, from, end); /* its ends; the rows come from the cache */
    *v = *k;
    k->rows = WORLD_PUT(&m->w, KGEN_DTYPE_BF16, 0, NULL, k->count, KV_HEADS, DIM);
    v->rows = WORLD_PUT(&m->w, KGEN_DTYPE_BF16, 0, NULL, k->count, KV_HEADS, DIM);
    kgen_kv_gather_args args = {.k_cache = m->k_cache,
                                .v_cache = m->v_cache,
                                .block_table = m->table,
                                .cu_seqlens = k->ends,
                                .seq_lens = WORLD_PUT(&m->w, KGEN_DTYPE_I32, 0, end, SEQS),
                                .starts = WORLD_PUT(&m->w, KGEN_DTYPE_I32, 0, from, SEQS),
                                .k = k->rows,
                                .v = v->rows};
    world_run(&m->w, "kv_gather:d=64,page=16,layout=nhd", &args);
}

/* Into the first of them. */
static void merge(model *m, results into, results other) {
    kgen_attn_merge_args args = {.prefix = into.out,
                                 .prefix_lse = into.lse,
                                 .suffix = other.out,
                                 .suffix_lse = other.lse,
                                 .out = into.out,
                                 .lse = into.lse};
    world_run(&m->w, PAIR, &args);
}

/* Outputs were rounded to bf16 a few times on one way, once on the other. */
static void compare(const char *what, const answer *a, const answer *b) {
    double squares = 0, wrong = 0, off = 0;
    assert_int_equal(a->rows, b->rows);
    for (int n = 0; n < a->rows * QUERIES * DIM; n++) {
        double x = (double)kgen__number_decode(KGEN_DTYPE_BF16, (&a->out[0][0][0])[n]);
        double y = (double)kgen__number_decode(KGEN_DTYPE_BF16, (&b->out[0][0][0])[n]);
        if (!(fabs(x - y) <= 0.02 + 0.02 * fabs(x)))
            fail_msg("%s: element %d is %g and %g", what, n, x, y);
        squares += x * x;
        wrong += (x - y) * (x - y);
    }
    for (int n = 0; n < a->rows * QUERIES; n++)
        off = fmax(off, fabs((double)(a->lse[n] - b->lse[n])));
    print_message("%s: relative error %.2g, of lse %.2g\n", what, sqrt(wrong / squares), off);
    assert_true(wrong <= squares * 6e-3 * 6e-3);
    assert_true(off <= 1e-3);
}

static void test_write_gather_attend_merge_agree_with_one_launch(void **state) {
    (void)state;
    static model m;
    static answer one, whole, merged;
    int32_t none[SEQS] = {0}, chunk[SEQS] = {CHUNK, CHUNK}, end[SEQS];
    rows_t k, v;
    make_model(&m);
    for (int s = 0; s < SEQS; s++) end[s] = contexts[s] + fresh[s];
    read_back(&m, &one, extend(&m, contexts, end));
    rows_t q = take(&m, m.q, QUERIES, contexts, end);
    read_back(
        &m, &whole,
        dense(&m, q, take(&m, m.k, KV_HEADS, none, end), take(&m, m.v, KV_HEADS, none, end), 1));
    gather(&m, &k, &v, none, chunk);
    results parts = dense(&m, q, k, v, 0);
    gather(&m, &k, &v, chunk, contexts);
    merge(&m, parts, dense(&m, q, k, v, 0));
    merge(&m, parts,
          dense(&m, q, take(&m, m.k, KV_HEADS, contexts, end),
                take(&m, m.v, KV_HEADS, contexts, end), 1));
    read_back(&m, &merged, parts);
    compare("dense attention", &one, &whole);
    compare("gathered and merged", &one, &merged);
    world_close(&m.w);
}

/* Rows from..end of each sequence of `all`, which has the whole ones. */
static void pick(answer *out, const model *m, const answer *all, const int32_t *from,
                 const int32_t *end) {
    int32_t rows = 0, at = 0;
    for (int s = 0; s < SEQS; s++) rows += end[s] - from[s];
    for (int s = 0; s < SEQS; s++)
        for (int32_t i = from[s]; i < end[s]; i++, at++) {
            memcpy(out->out[at], all->out[m->first[s] + i], sizeof out->out[0]);
            for (int h = 0; h < QUERIES; h++)
                out->lse[h * rows + at] = all->lse[h * all->rows + m->first[s] + i];
        }
    out->rows = rows;
}

static void test_prefill_in_chunks_is_prefill_at_once(void **state) {
    (void)state;
    static model m;
    static answer once, part, chunk;
    int32_t cut[SEQS + 2][SEQS] = {{0, 0}, {CHUNK, CHUNK - 1}, {0}, {0}};
    make_model(&m);
    for (int s = 0; s < SEQS; s++) {
        cut[2][s] = contexts[s];
        cut[3][s] = contexts[s] + fresh[s];
    }
    read_back(&m, &once,
              dense(&m, take(&m, m.q, QUERIES, cut[0], cut[3]),
                    take(&m, m.k, KV_HEADS, cut[0], cut[3]),
                    take(&m, m.v, KV_HEADS, cut[0], cut[3]), 1));
    for (int n = 0; n < 3; n++) {
        read_back(&m, &chunk, extend(&m, cut[n], cut[n + 1]));
        pick(&part, &m, &once, cut[n], cut[n + 1]);
        compare("a chunk", &part, &chunk);
    }
    world_close(&m.w);
}

/* Places of a block's rows are 32-bit bytes. */
static void test_rows_too_far_apart(void **state) {
    (void)state;
    static model m;
    const int32_t none[SEQS] = {0};
    make_model(&m);
    rows_t q = take(&m, m.q, QUERIES, none, fresh), k = take(&m, m.k, KV_HEADS, none, fresh), v = k;
    kgen_attn_args rows = dense_args(&q, &k, &v, fresh_results(&m, q.count));
    kgen_kernel *kernel = world_prepare(&m.w, "attn:phase=prefill," SHAPE DENSE);
    kgen_tensor *const cached[] = {&rows.k, &rows.v};
    static const char *const says[] = {"k: stride[0]=16777216 elements, 0 to 16777215",
                                       "v: stride[0]=-16777216 elements, 0 to 16777215"};
    for (int i = 0; i < 2; i++) {
        kgen_error err;
        int64_t stride = cached[i]->stride[0];
        cached[i]->stride[0] = i ? -(1 << 24) : 1 << 24;
        kgen_args args = world_args(&m.w, kernel, &rows);
        assert_int_equal(kgen_launch(kernel, &args, m.w.stream, &err), KGEN_E_ARG);
        assert_string_equal(err.text, says[i]);
        cached[i]->stride[0] = stride;
    }
    world_close(&m.w);
}

int main(void) {
    kgen__rng_seed(&rng, test_seed(), 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_write_gather_attend_merge_agree_with_one_launch),
        cmocka_unit_test(test_prefill_in_chunks_is_prefill_at_once),
        cmocka_unit_test(test_rows_too_far_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

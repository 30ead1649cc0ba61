/* mla: every argument that is refused, and the absorbed formula against the heads that it
 * stands for. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check_mla.h"
#include "case_rig.h"
#include "seed.h"

static kgen__rng rng;

/* ---- refusals ---------------------------------------------------------------- */

static void set_page(kgen_mla_args *a) { grow(&a->cache, 1, 32); }
static void set_width(kgen_mla_args *a) { a->cache.shape[2] = 64; }
static void set_far(kgen_mla_args *a) { a->cache.stride[1] = INT32_MAX; }
static void set_heads(kgen_mla_args *a) { a->q.shape[1] = 4; }
static void set_tokens(kgen_mla_args *a) { a->q.shape[0] = a->out.shape[0] = INT32_MAX; }
static void set_one_more(kgen_mla_args *a) { a->q.shape[0] = a->out.shape[0] = 3; }
static void set_lens(kgen_mla_args *a) { grow(&a->seq_lens, 0, INT32_MAX); }
static void set_columns(kgen_mla_args *a) { a->block_table.shape[1] = 0; }
static void set_q_len(kgen_mla_args *a) { a->max_q_len = 4; }
static void set_kv_len(kgen_mla_args *a) { a->max_kv_len = 100; }
static void set_scale(kgen_mla_args *a) { a->softmax_scale = 0; }
static void set_type(kgen_mla_args *a) { a->cache.dtype = KGEN_DTYPE_FP16; }
static void set_out(kgen_mla_args *a) { a->out.stride[1] = 40; }
static void set_apart(kgen_mla_args *a) { a->cache.stride[0] += 8; }
static void set_words(kgen_mla_args *a) { a->words.shape[1] = 2; }
static void set_many(kgen_mla_args *a) {
    grow(&a->seq_lens, 0, 1 << 19), grow(&a->block_table, 0, 1 << 19);
}

#define DECODE "mla:l=64,r=16,h=5,page=16 | lens=20,40"
#define VERIFY "mla:phase=verify,t=3,l=64,r=16,h=5,page=16 | lens=20,40 qlens=3"
#define TREE "mla:phase=tree,t=3,l=64,r=16,h=5,page=16 | lens=20,40 qlens=3"
#define SPARSE "mla:sparse=1,l=64,r=16,h=5,page=1 | lens=20,40 page=16"
#define ROWS "mla:l=128,r=16,h=5,page=16,rows=fp8 | lens=20,40"
#define FLAT "mla:l=64,r=16,h=5,page=16,flat=1 | lens=20,40"
#define ANY_PAGE "mla:l=64,r=16,h=5,page=x16 | lens=20,40 page=16"
#define SMALL "mla:l=64,r=16,h=5,page=1 | lens=20,40"

static void swap_page(kgen_mla_args *a) { grow(&a->cache, 1, 20); }
static void many_rows(kgen_mla_args *a) { grow(&a->cu_seqlens_q, 0, (1 << 19) + 1), set_many(a); }

static const struct {
    const char *line;
    void (*spoil)(kgen_mla_args *a);
    const char *says;
} refusals[] = {
    {DECODE, set_page, "cache: pages of 32 tokens, kernel built for page=16"},
    {DECODE, set_width, "cache: shape[2]=64"},
    {DECODE, set_far, "cache: stride[1]="},
    {ROWS, set_width, "cache: shape[2]=64, 176 expected"},
    {ROWS, set_page, "cache: pages of 32 tokens, kernel built for page=16"},
    {ROWS, set_type, "cache: dtype fp16, kernel built for u8"},
    {SMALL, set_page, "cache: pages of 32 tokens, kernel built for page=1"},
    {ANY_PAGE, swap_page, "cache: pages of 20 tokens, a multiple of 16"},
    {DECODE, set_heads, "q: shape[1]=4"},
    {VERIFY, set_tokens, "q: shape[0]=2147483647 tokens, at most"},
    {VERIFY, set_lens, "seq_lens: shape[0]=2147483647 sequences, at most"},
    {DECODE, set_one_more, "phase=decode has one for each of 2 sequences"},
    {DECODE, set_columns, "block_table: shape[1]=0, at least 1"},
    {VERIFY, set_q_len, "max_q_len=4: kernel built for t=3"},
    {DECODE, set_kv_len, "max_kv_len=100: block_table has pages for 48 keys"},
    {FLAT, set_kv_len, "max_kv_len=100: kv_indices has pages for 80 keys"},
    {SPARSE, set_apart,
     "cache: stride[0]=1288, with sparse=1 pages lie one behind the other: 1280"},
    {SPARSE, set_kv_len, "max_kv_len=100: slots has pages for 40 keys"},
    {TREE, set_words, "words: shape[1]=2"},
    {DECODE, set_scale, "softmax_scale"},
    {DECODE, set_type, "cache"},
    {DECODE, set_out, "out: stride[1]=40"},
    {VERIFY, many_rows, "seq_lens: 524288 sequences of 1 KV heads and 1 row blocks, at most"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        rig *r = accepted(refusals[i].line);
        refusals[i].spoil(r->data.args.mla);
        check_refusal(r, refusals[i].line, refusals[i].says);
    }
}

/* A workspace of the wrong size, and a pool as engines also pass it. */
static void test_workspace_and_forms(void **state) {
    (void)state;
    rig *r = rig_of(DECODE);
    kgen_tensor *cache = &r->data.args.mla->cache;
    r->data.args.workspace_bytes--;
    assert_int_equal(launch(r), KGEN_E_ARG);
    r->data.args.workspace_bytes++;
    cache->rank = 4;
    cache->shape[3] = cache->shape[2], cache->stride[3] = cache->stride[2];
    cache->shape[2] = 1, cache->stride[2] = cache->shape[3];
    if (launch(r) != KGEN_OK) fail_msg("%s", did.text);
    assert_int_equal(noted.launches, 1);
    free_rig(r);
}

/* Of a captured launch. */
static void test_lists_are_looked_at(void **state) {
    (void)state;
    rig *r = rig_of(SPARSE);
    kgen_mla_args *a = r->data.args.mla;
    int32_t *slots = a->slots.data, *lens = a->seq_lens.data;
    DO(kgen__mla_sound(&r->kernel.spec, &r->data.args, &did));
    slots[3] = (int32_t)(a->cache.shape[0] * a->cache.shape[1]);
    assert_int_not_equal(kgen__mla_sound(&r->kernel.spec, &r->data.args, &did), KGEN_OK);
    if (!strstr(did.text, "slots[0][3]=")) fail_msg("%s", did.text);
    slots[3] = -7;
    lens[1] = (int32_t)a->slots.shape[1] + 1;
    assert_int_not_equal(kgen__mla_sound(&r->kernel.spec, &r->data.args, &did), KGEN_OK);
    if (!strstr(did.text, "seq_lens[1]=")) fail_msg("%s", did.text);
    lens[1]--;
    DO(kgen__mla_sound(&r->kernel.spec, &r->data.args, &did));
    free_rig(r);
}

/* ---- the absorbed formula ------------------------------------------------------
 *
 * A head h of the model has its own keys and values, made from the latent c of a token:
 * k = [W_k[h] c | rope part], v = W_v[h] c. With q' = W_k[h]^T q the same scores come from
 * the latent itself, and W_v[h] applied to the output gives the same output. */
enum { HEADS = 3, NOPE = 12, ROPE = 16, LATENT = 32, VALUE = 10, KEYS = 21, PAGE = 16 };

typedef struct model {
    double w_k[HEADS][NOPE][LATENT], w_v[HEADS][VALUE][LATENT];
    double q_nope[HEADS][NOPE], q_rope[HEADS][ROPE];
    double c[KEYS][LATENT], k_rope[KEYS][ROPE];
} model;

static void fill(double *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = kgen__rng_normal(&rng);
}

/* As the model was trained: heads of NOPE + ROPE. */
static void unabsorbed(double out[VALUE], const model *m, int h, double scale) {
    double p[KEYS], total = 0;
    memset(out, 0, VALUE * sizeof *out);
    for (int t = 0; t < KEYS; t++) {
        double s = 0;
        for (int i = 0; i < NOPE; i++) {
            double k = 0;
            for (int j = 0; j < LATENT; j++) k += m->w_k[h][i][j] * m->c[t][j];
            s += m->q_nope[h][i] * k;
        }
        for (int i = 0; i < ROPE; i++) s += m->q_rope[h][i] * m->k_rope[t][i];
        total += p[t] = exp(scale * s);
    }
    for (int t = 0; t < KEYS; t++)
        for (int i = 0; i < VALUE; i++)
            for (int j = 0; j < LATENT; j++) out[i] += p[t] / total * m->w_v[h][i][j] * m->c[t][j];
}

/* Numbers that fp16 has, so that both formulas see the same. */
static double rounded(double x) {
    return kgen__number_decode(KGEN_DTYPE_FP16, kgen__number_encode(KGEN_DTYPE_FP16, x));
}

static void absorb(const kgen_mla_args *a, const model *m, const int32_t *page) {
    for (int h = 0; h < HEADS; h++)
        for (int j = 0; j < LATENT + ROPE; j++) {
            double q = j < LATENT ? 0 : m->q_rope[h][j - LATENT];
            for (int i = 0; i < NOPE && j < LATENT; i++) q += m->w_k[h][i][j] * m->q_nope[h][i];
            kgen__number_store(KGEN_DTYPE_FP16, a->q.data, h * a->q.stride[1] + j, q);
        }
    for (int t = 0; t < KEYS; t++)
        for (int j = 0; j < LATENT + ROPE; j++)
            kgen__number_store(KGEN_DTYPE_FP16, a->cache.data,
                               page[t / PAGE] * a->cache.stride[0] + t % PAGE * a->cache.stride[1] +
                                   j,
                               j < LATENT ? m->c[t][j] : m->k_rope[t][j - LATENT]);
}

static void round_all(double *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = rounded(x[i]);
}

static void test_absorbed_is_unabsorbed(void **state) {
    (void)state;
    rig *r = rig_of("mla:q=fp16,kv=fp16,l=32,r=16,h=3,page=16 | lens=21 poison=0");
    kgen_mla_args *a = r->data.args.mla;
    kgen__data *attn = malloc(sizeof *attn);
    kgen__attn_answer answer;
    model m;
    fill(&m.w_k[0][0][0], sizeof m / sizeof(double));
    round_all(&m.c[0][0], sizeof m.c / sizeof(double));
    round_all(&m.k_rope[0][0], sizeof m.k_rope / sizeof(double));
    a->softmax_scale = 0.02f;
    absorb(a, &m, a->block_table.data);
    kgen__mla_as_attn(attn, &r->data, &a->cache);
    DO(kgen__attn_reference(&answer, &attn->spec, attn->args.attn, &did));
    for (int h = 0; h < HEADS; h++) {
        double want[VALUE];
        unabsorbed(want, &m, h, (double)a->softmax_scale);
        for (int i = 0; i < VALUE; i++) {
            double got = 0;
            for (int j = 0; j < LATENT; j++) got += m.w_v[h][i][j] * answer.out[h * LATENT + j];
            /* fp16 queries: 2^-11 of scores around 1 */
            if (fabs(got - want[i]) > 0.02 * (1 + fabs(want[i])))
                fail_msg("head %d, dim %d: %.9g, must be %.9g", h, i, got, want[i]);
        }
    }
    kgen__attn_free(&answer);
    free(attn);
    free_rig(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_workspace_and_forms),
        cmocka_unit_test(test_lists_are_looked_at),
        cmocka_unit_test(test_absorbed_is_unabsorbed),
    };
    kgen__rng_seed(&rng, test_seed(), 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The indexer: every argument that is refused, and how logits are cut into items. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check_indexer.h"
#include "templates/kg/indexer/indexer_packed.h"
#include "case_rig.h"

/* ---- refusals ---------------------------------------------------------------- */

static void set_page(kgen_indexer_args *a) {
    grow(&a->cache, 1, 32), grow(&a->scales, 1, 32), a->cache.stride[0] = 1 << 20;
    a->scales.stride[0] = 1 << 18;
}
static void set_odd_page(kgen_indexer_args *a) {
    set_page(a), a->cache.shape[1] = a->scales.shape[1] = 20;
}
static void set_pages(kgen_indexer_args *a) {
    grow(&a->cache, 0, INT32_MAX), grow(&a->scales, 0, INT32_MAX);
}
static void set_near(kgen_indexer_args *a) { a->cache.stride[0] = 64; }
static void set_scales(kgen_indexer_args *a) { a->scales.stride[0] = 1; }
static void set_odd(kgen_indexer_args *a) { a->cache.stride[0] += 4; }
static void set_odder(kgen_indexer_args *a) { a->cache.stride[0] += 2; }
static void set_on_cache(kgen_indexer_args *a) { a->k.data = a->cache.data; }
static void set_on_scales(kgen_indexer_args *a) { a->k.data = (char *)a->scales.data - 32; }
static void set_dim(kgen_indexer_args *a) { a->k.shape[1] = 64; }
static void set_rows(kgen_indexer_args *a) { grow(&a->slots, 0, INT32_MAX); }
static void set_ends(kgen_indexer_args *a) { a->cu_seqlens.shape[0] = 0; }
static void set_gathered(kgen_indexer_args *a) { grow(&a->keys, 0, INT32_MAX); }
static void set_table(kgen_indexer_args *a) { a->block_table.shape[0] = 1; }
static void set_keys(kgen_indexer_args *a) { a->keys.data = a->cache.data; }
static void set_tokens(kgen_indexer_args *a) {
    grow(&a->q, 0, 3), grow(&a->weights, 0, 3), grow(&a->logits, 0, 3);
}
static void set_queries(kgen_indexer_args *a) { grow(&a->q, 0, INT32_MAX); }
static void set_heads(kgen_indexer_args *a) { a->q.shape[1] = 4; }
static void set_lens(kgen_indexer_args *a) { grow(&a->seq_lens, 0, INT32_MAX); }
static void set_logits(kgen_indexer_args *a) { a->logits.data = a->q.data; }
static void set_columns(kgen_indexer_args *a) {
    grow(&a->logits, 1, INT32_MAX), a->logits.stride[0] = (int64_t)1 << 40;
}
static void set_few(kgen_indexer_args *a) { a->logits.shape[1]--; }
/* Behind all addresses that a process has: so many logits reach far. */
static void set_many(kgen_indexer_args *a) {
    enum { MANY = 1 << 20, WIDE = 1 << 23 };
    grow(&a->seq_lens, 0, MANY), grow(&a->block_table, 0, MANY);
    grow(&a->q, 0, MANY), grow(&a->weights, 0, MANY);
    a->logits.data = (void *)((uintptr_t)1 << 50);
    a->logits.shape[0] = MANY, a->logits.shape[1] = a->logits.stride[0] = WIDE;
}
static void set_row_tokens(kgen_indexer_args *a) {
    grow(&a->logits, 0, 3), grow(&a->indices, 0, 3);
}
static void set_indices(kgen_indexer_args *a) { a->indices.data = a->logits.data; }
static void set_requests(kgen_indexer_args *a) { a->requests = a->seq_lens; }

#define WRITE "indexer:op=write,page=16 | lens=20,40"
#define WRITE_1 "indexer:op=write,page=1 | lens=20,40"
#define WRITE_ANY "indexer:op=write,page=x16 | lens=20,40"
#define GATHER "indexer:op=gather,page=16 | lens=20,40"
#define DECODE "indexer:op=decode,h=5,page=16 | lens=20,40"
#define PREFILL "indexer:op=prefill,h=5 | lens=20,40 qlens=2"
#define TOPK "indexer:op=topk | lens=20,40"

static const struct {
    const char *line;
    void (*spoil)(kgen_indexer_args *a);
    const char *says;
} refusals[] = {
    {WRITE, set_page, "cache: pages of 32 tokens, kernel built for page=16"},
    {WRITE_ANY, set_odd_page, "cache: pages of 20 tokens, a multiple of 16 up to 65536"},
    {WRITE, set_pages, "cache: 2147483647 pages of 16 tokens, at most 2^31-1 slots"},
    {WRITE, set_near, "cache: stride[0]=64"},
    {WRITE, set_scales, "scales: stride[0]=1"},
    {WRITE, set_odd, "cache: stride[0]=2116 elements is not a multiple of 16 bytes"},
    {WRITE_1, set_odder, "cache: stride[0]=134 elements is not a multiple of 4 bytes"},
    {WRITE, set_on_cache, "k: overlaps cache, which the kernel writes"},
    {WRITE, set_on_scales, "k: overlaps"},
    {WRITE, set_dim, "k: shape[1]=64, 128 expected"},
    {WRITE, set_rows, "slots: shape[0]=2147483647, at most"},
    {GATHER, set_ends, "cu_seqlens: shape[0]=0, one more than there are sequences"},
    {GATHER, set_gathered, "keys: shape[0]=2147483647, at most"},
    {GATHER, set_table, "block_table: shape[0]=1"},
    {GATHER, set_keys, "cache: overlaps keys, which the kernel writes"},
    {DECODE, set_tokens, "q: shape[0]=3 tokens, t=1 of 2 sequences are 2"},
    {DECODE, set_queries, "q: shape[0]=2147483647, at most"},
    {DECODE, set_heads, "q: shape[1]=4, 5 expected"},
    {DECODE, set_lens, "seq_lens: shape[0]=2147483647, at most"},
    {DECODE, set_logits, "q: overlaps logits, which the kernel writes"},
    {DECODE, set_columns, "logits: shape[1]=2147483647, at most"},
    {DECODE, set_page, "cache: pages of 32 tokens, kernel built for page=16"},
    {DECODE, set_many, "logits: 1048576 tokens of 8388608 columns, 4294967296 pieces of work"},
    {PREFILL, set_few, "logits: shape[1]=59 columns, at least 60 keys"},
    {TOPK, set_row_tokens, "logits: shape[0]=3 tokens, t=1 of 2 sequences are 2"},
    {TOPK, set_indices, "logits: overlaps indices, which the kernel writes"},
    {TOPK, set_requests, "requests: given, kernel built without it"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        rig *r = accepted(refusals[i].line);
        refusals[i].spoil(r->data.args.indexer);
        check_refusal(r, refusals[i].line, refusals[i].says);
    }
}

/* ---- how a launch is cut --------------------------------------------------------- */

/* Every block of tokens meets every column once, by no more workgroups than are resident,
 * in chunks that all waves fill. */
static void test_items_cover_all_logits(void **state) {
    static const char *const lines[] = {
        "indexer:op=decode,h=5,page=16 | lens=20,5000 cols=3",
        "indexer:op=decode,h=64,t=5,page=16 | lens=900 cols=3",
        "indexer:op=prefill,h=64 | lens=700 qlens=7 cols=3",
    };
    const struct kg_indexer_args *packed = (const struct kg_indexer_args *)noted.packed;
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        rig *r = rig_of(lines[i]);
        const kgen_indexer_spec *s = &r->kernel.spec.indexer;
        DO(launch(r));
        assert_int_equal(noted.size, sizeof *packed);
        int64_t grid = noted.config.grid,
                tokens = s->op == KGEN_INDEX_DECODE ? s->q_tokens : packed->tokens;
        int64_t blocks = (tokens + s->together - 1) / s->together;
        if (s->op == KGEN_INDEX_DECODE) blocks *= packed->seqs;
        int64_t chunks = (packed->width + packed->chunk - 1) / packed->chunk;
        assert_int_equal(packed->blocks, blocks);
        assert_int_equal(packed->items, blocks * chunks);
        assert_int_equal(packed->chunk % (s->waves * s->tiles * 32), 0);
        assert_true(grid <= 8 && grid <= packed->items && packed->groups == grid);
        free_rig(r);
    }
}

/* Nothing to choose, and nobody to choose for. */
static void test_empty_launches(void **state) {
    static const char *const lines[] = {
        "indexer:op=topk | lens=20,40 k=0",
        "indexer:op=decode,h=5,page=16 | seqs=0 lens=1",
        "indexer:op=write,page=16 | seqs=0 lens=1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        rig *r = rig_of(lines[i]);
        DO(launch(r));
        assert_int_equal(noted.launches, 0);
        free_rig(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_items_cover_all_logits),
        cmocka_unit_test(test_empty_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

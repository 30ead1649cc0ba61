/* The scatter family against vectors: those of the engines' own tests, those of
 * an independent implementation, and a server's life under delta=1. */
#include "scatter_rig.h"

#include "scatter_vectors.h"
#include "seed.h"

static kgen__rng rng;

static int64_t below(int64_t n) { return n > 0 ? kgen__rng_range(&rng, 0, n - 1) : 0; }

/* The reference alone, on the same arrays. */
static void refer(const char *line, const kgen__scatter_all *a, int64_t rows) {
    kgen_spec spec;
    DO(kgen_spec_parse(&spec, line, &did));
    kgen_scatter_args args;
    kgen__scatter_pack(&args, &spec.scatter, a);
    kgen__scatter_reference(&spec, &args, rows);
}

/* ---- page tables, upstream's example -------------------------------- */

enum { S = SENTINEL };

static const int32_t t1_slots[3][24] = {
    {0},
    {8, 9, 10, 11, 20, 21, 22, 23, 4, 5, 6, 7, 12, 13, 14, 15},
    {16, 17, 18, 19, 24, 25, 26, 27},
};

static void t1_mapping(int64_t map[64]) {
    static const int64_t from[] = {4, 12, 16, 24}, to[] = {40, 8, 4, 12};
    memset(map, 0, 64 * sizeof *map);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) map[from[i] + k] = to[i] + k;
}

#define T1_KEEP 2, 5, 1, 3, S, S, 4, 6, S, S, S, S
#define T1_WINDOW_KEEP 0, 0, 10, 2, S, S, 1, 3, S, S, S, S

static void check_t1(const char *line, kgen__scatter_all *a) {
    int32_t table[12], window[12];
    fill32(table, 12, S);
    fill32(window, 12, S);
    a->table = M32(table, 2, 6);
    a->swa_table = M32(window, 2, 6);
    run(line, a);
    SAME(table, T1_KEEP);
    SAME(window, T1_WINDOW_KEEP);
    fill32(table, 12, S);
    fill32(window, 12, S);
    refer(line, a, 2);
    SAME(table, T1_KEEP);
    SAME(window, T1_WINDOW_KEEP);
}

static void test_t1_requests(void **state) {
    const int64_t requests[] = {1, 2};
    const int32_t lens[] = {9, 3};
    int64_t map[64];
    (void)state;
    t1_mapping(map);
    kgen__scatter_all a = {.lens = V32(lens, 2),
                           .requests = V64(requests, 2),
                           .tokens = 4,
                           .req_to_token = M32(t1_slots, 3, 24),
                           .mapping = V64(map, 64)};
    check_t1("scatter:op=page_table_requests,page=4,swa=1,tail=keep,pick=first", &a);
    check_t1("scatter:op=page_table_requests,page=4,swa=1,tail=keep", &a);
}

static void test_t1_ragged(void **state) {
    const int32_t indptr[] = {0, 13, 20};
    int32_t flat[20];
    int64_t map[64];
    (void)state;
    t1_mapping(map);
    memcpy(flat, t1_slots[1], 13 * sizeof *flat);
    memcpy(flat + 13, t1_slots[2], 7 * sizeof *flat);
    kgen__scatter_all a = {
        .indptr = V32(indptr, 3), .slots = V32(flat, 20), .mapping = V64(map, 64)};
    check_t1("scatter:op=page_table_ragged,page=4,swa=1,tail=keep,pick=first", &a);
    check_t1("scatter:op=page_table_ragged,page=4,swa=1,tail=keep", &a);
}

/* ---- drafts with branches ------------------------------------------- */

static int32_t t2_row[32];

static kgen__scatter_all t2_args(void) {
    static const int32_t lens[] = {6}, starts[] = {100, 120, 140, 160, 180};
    static const int64_t requests[] = {0};
    for (int i = 0; i < 20; i++) t2_row[i] = starts[i / 4] + i % 4;
    return (kgen__scatter_all){.lens = V32(lens, 1),
                               .requests = V64(requests, 1),
                               .steps = 3,
                               .topk = 2,
                               .req_to_token = M32(t2_row, 1, 32)};
}

static void test_t2_draft_indices(void **state) {
    int32_t indices[3 * 20], ends[3 * 3];
    kgen__scatter_all a = t2_args();
    (void)state;
    fill32(indices, 60, S);
    a.indices = M32(indices, 3, 20);
    a.kv_indptr = M32(ends, 3, 3);
    run("scatter:op=draft_kv_indices,page=4", &a);
    SAME(ends, 0, 7, 14, 0, 8, 16, 0, 9, 18);
    int32_t *last = indices + 40;
    SAME(last, 100, 101, 102, 103, 120, 121, 122, 123, 140, 100, 101, 102, 103, 120, 121, 162, 163,
         180, S, S);
}

static void check_t2_pages(const char *line, const int32_t want[6]) {
    int32_t table[3 * 2 * 4];
    kgen__scatter_all a = t2_args();
    a.table = kgen_tensor_dense(table, KGEN_DTYPE_I32, 3, (const int64_t[]){3, 2, 4});
    run(line, &a);
    for (int k = 0; k < 2; k++)
        for (int j = 0; j < 4; j++)
            assert_int_equal(table[16 + 4 * k + j], j < 3 ? want[3 * k + j] : 0);
}

static void test_t2_draft_pages(void **state) {
    (void)state;
    check_t2_pages("scatter:op=draft_page_table,page=4,pick=first",
                   (const int32_t[]){25, 30, 35, 25, 30, 45}); /* the second branch is wrong */
    check_t2_pages("scatter:op=draft_page_table,page=4", (const int32_t[]){25, 30, 35, 25, 40, 45});
}

/* ---- splits, trees, verify, lengths --------------------------------- */

static void check_splits(const int32_t *lens, int count, int groups, int heads, int kv_heads,
                         int most, int units, const int32_t *want) {
    int32_t got[32];
    kgen__scatter_all a = {.lens = V32(lens, count),
                           .counts = V32(got, count * groups),
                           .groups = groups,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .max_splits = most,
                           .compute_units = units};
    for (int pass = 0; pass < 2; pass++) {
        fill32(got, 32, S);
        if (pass)
            refer("scatter:op=kv_splits", &a, count);
        else
            run("scatter:op=kv_splits", &a);
        for (int i = 0; i < count * groups; i++) assert_int_equal(got[i], want[i]);
        assert_int_equal(got[count * groups], S);
    }
}

static void test_t3_splits(void **state) {
    const int32_t lens[] = {1000, 1000, 100000}, same[] = {4096, 4096, 4096, 4096};
    (void)state;
    check_splits(lens, 3, 1, 32, 8, 16, 304, (const int32_t[]){1, 1, 16});
    check_splits(same, 4, 1, 16, 1, 16, 256, (const int32_t[]){16, 16, 16, 16});
    const int32_t none[] = {0, 0}; /* the engine's formula divides by this */
    check_splits(none, 2, 1, 16, 1, 16, 256, (const int32_t[]){0, 0});
}

static const int64_t t4_parents[] = {-1, 0, 1, 2, 4}, t4_selected[] = {0, 1, 2, 4, 6};
static const int32_t t4_lens[] = {7};

static void test_t4_tree(void **state) {
    int64_t positions[6], index[6], next[6], sibling[6];
    int32_t words[6];
    (void)state;
    kgen__scatter_all a = {.lens = V32(t4_lens, 1),
                           .selected = M64(t4_selected, 1, 5),
                           .parents = M64(t4_parents, 1, 5),
                           .positions_out = V64(positions, 6),
                           .tree_index = M64(index, 1, 6),
                           .next_token = M64(next, 1, 6),
                           .next_sibling = M64(sibling, 1, 6),
                           .words = M32(words, 1, 6),
                           .tokens = 6,
                           .topk = 2};
    run("scatter:op=tree_build", &a);
    SAME(words, 1, 3, 5, 11, 21, 43);
    SAME(positions, 7, 8, 8, 9, 9, 10);
    SAME(next, 1, 3, 4, 5, -1, -1);
    SAME(sibling, -1, 2, -1, -1, -1, -1);
    SAME(index, 0, 1, 2, 3, 4, 5);
}

/* The three forms of a mask say the same, and lead back to the same tree. */
static void test_masks_agree(void **state) {
    int64_t positions[6], index[6], next[6], sibling[6];
    uint8_t qlen[36], full[6 * 13], small[6];
    (void)state;
    kgen__scatter_all a = {.lens = V32(t4_lens, 1),
                           .selected = M64(t4_selected, 1, 5),
                           .parents = M64(t4_parents, 1, 5),
                           .positions_out = V64(positions, 6),
                           .tree_index = M64(index, 1, 6),
                           .next_token = M64(next, 1, 6),
                           .next_sibling = M64(sibling, 1, 6),
                           .tokens = 6,
                           .topk = 2};
    a.mask_out = kgen_tensor_dense(qlen, KGEN_DTYPE_U8, 3, (const int64_t[]){1, 6, 6});
    run("scatter:op=tree_build,mask=qlen", &a);
    a.mask_out = vector_of(full, KGEN_DTYPE_U8, 78);
    run("scatter:op=tree_build,mask=full", &a);
    for (int j = 0; j < 6; j++) {
        for (int c = 0; c < 7; c++) assert_int_equal(full[13 * j + c], 1);
        assert_memory_equal(full + 13 * j + 7, qlen + 6 * j, 6);
    }
    kgen__scatter_all m = {.lens = a.lens,
                           .mask = vector_of(full, KGEN_DTYPE_U8, 78),
                           .tokens = 6,
                           .words = rows_of(small, KGEN_DTYPE_U8, 1, 6, 6)};
    run("scatter:op=tree_mask,mask=full,word=u8", &m);
    SAME(small, 1, 3, 5, 11, 21, 43);
    fill64(next, 6, 99);
    fill64(sibling, 6, 99);
    a.words = m.words;
    run("scatter:op=tree_from_mask,word=u8", &a);
    SAME(positions, 7, 8, 8, 9, 9, 10);
    SAME(next, 1, 3, 4, 5, -1, -1);
    SAME(sibling, -1, 2, -1, -1, -1, -1);
}

static void test_t5_verify(void **state) {
    const int64_t tokens[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12};
    const int64_t next[] = {1, 2, -1, 4, 5, -1, 4, 2, 3, -1, 5, -1};
    const int64_t sibling[] = {-1, 3, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1};
    const int64_t targets[] = {3, 18, 18, 4, 5, 18, 11, 18, 18, 18, 12, 18};
    int32_t predicts[12], index[8], count[2];
    (void)state;
    kgen__scatter_all a = {.tokens_in = M64(tokens, 2, 6),
                           .targets_in = M64(targets, 2, 6),
                           .next_token = M64(next, 2, 6),
                           .next_sibling = M64(sibling, 2, 6),
                           .predicts = M32(predicts, 2, 6),
                           .accept_index = M32(index, 2, 4),
                           .accept_count = V32(count, 2),
                           .tokens = 6};
    for (int pass = 0; pass < 2; pass++) {
        fill32(predicts, 12, S);
        fill32(index, 8, S);
        if (pass)
            refer("scatter:op=tree_verify", &a, 2);
        else
            run("scatter:op=tree_verify", &a);
        SAME(predicts, 3, -1, -1, 4, 5, 18, 11, -1, -1, -1, 12, 18);
        SAME(index, 0, 3, 4, 5, 6, 10, 11, -1);
        SAME(count, 3, 2);
    }
}

/* A chain: candidate i with target i - 1, up to the first miss. */
static void test_a_chain_is_a_tree_without_links(void **state) {
    const int64_t tokens[] = {9, 1, 2, 3, 9, 5, 6, 7}, targets[] = {1, 2, 8, 3, 4, 6, 7, 0};
    int32_t predicts[8], index[8], count[2];
    (void)state;
    kgen__scatter_all a = {.tokens_in = M64(tokens, 2, 4),
                           .targets_in = M64(targets, 2, 4),
                           .predicts = M32(predicts, 2, 4),
                           .accept_index = M32(index, 2, 4),
                           .accept_count = V32(count, 2),
                           .tokens = 4};
    run("scatter:op=tree_verify", &a);
    SAME(predicts, 1, 2, 8, -1, 4, -1, -1, -1);
    SAME(index, 0, 1, 2, -1, 4, -1, -1, -1);
    SAME(count, 2, 0);
}

/* Rows: all stay; the second is refused; no draft; padding. */
static void test_greedy_rejection(void **state) {
    const int32_t ends[] = {2, 5, 5, 99};
    const int64_t drafts[] = {4, 5, 6, 7, 8}, targets[] = {4, 5, 6, 9, 8}, bonus[] = {1, 2, 3, 99};
    int32_t predicts[16], count[4], live = 3;
    (void)state;
    kgen__scatter_all a = {.live = V32(&live, 1),
                           .draft_ends = V32(ends, 4),
                           .drafts = V64(drafts, 5),
                           .targets_in = V64(targets, 5),
                           .bonus = V64(bonus, 4),
                           .predicts = M32(predicts, 4, 4),
                           .accept_count = V32(count, 4)};
    run("scatter:op=reject", &a);
    SAME(predicts, 4, 5, 1, -1, 6, 9, -1, -1, 3, -1, -1, -1, -1, -1, -1, -1);
    SAME(count, 2, 1, 0, 0);
}

/* Draft 1 of {.25, .5, .25}, which the drafter had at {.5, .5, 0} or, without its
 * probabilities, at 1. */
static void test_rejection_by_uniforms(void **state) {
    const int32_t ends[] = {1};
    const int64_t drafts[] = {1}, bonus[] = {7};
    float probs[] = {0.25f, 0.5f, 0.25f}, drafted[] = {0.5f, 0.5f, 0}, coin = 0.99f, last = 0;
    float noise[] = {1, 1e-9f, 0.5f};
    int32_t predicts[2], count[1];
    (void)state;
    kgen__scatter_all a = {.draft_ends = V32(ends, 1),
                           .drafts = V64(drafts, 1),
                           .bonus = V64(bonus, 1),
                           .probs = rows_of(probs, KGEN_DTYPE_F32, 1, 3, 3),
                           .draft_probs = rows_of(drafted, KGEN_DTYPE_F32, 1, 3, 3),
                           .coins = vector_of(&coin, KGEN_DTYPE_F32, 1),
                           .final_coins = vector_of(&last, KGEN_DTYPE_F32, 1),
                           .noise = rows_of(noise, KGEN_DTYPE_F32, 1, 3, 3),
                           .predicts = M32(predicts, 1, 2),
                           .accept_count = V32(count, 1)};
    run("scatter:op=reject,sampling=1", &a);
    SAME(predicts, 1, 7); /* p / q is 1 */
    SAME(count, 1);
    drafted[1] = 0.75f;
    run("scatter:op=reject,sampling=1", &a);
    SAME(predicts, 2, -1); /* of 2 alone the target has more */
    drafted[1] = 0;        /* a draft that its own model excludes */
    run("scatter:op=reject,sampling=1,race=1", &a);
    SAME(predicts, 1, -1); /* more / noise is 0, 5e8, .5 */
    SAME(count, 0);
    a.draft_probs.data = NULL;
    coin = 0.5f;
    run("scatter:op=reject,sampling=1", &a);
    SAME(predicts, 1, 7);
    coin = 0.6f;
    last = 0.6f; /* the other half: 0, then 2 */
    run("scatter:op=reject,sampling=1", &a);
    SAME(predicts, 2, -1);
    last = 0.4f;
    run("scatter:op=reject,sampling=1", &a);
    SAME(predicts, 0, -1);
    run("scatter:op=reject,sampling=1,race=1", &a);
    SAME(predicts, 2, -1); /* .25 / 1, nothing, .25 / .5 */
}

/* copy_blocks: source and target are pages of one cache. */
static void test_pages_of_one_cache(void **state) {
    const int64_t pairs[] = {0, 2, 3, 1};
    uint8_t cache[4][16];
    (void)state;
    for (int i = 0; i < 4; i++) memset(cache[i], 10 * i, sizeof cache[i]);
    kgen__scatter_all a = {.pairs = M64(pairs, 2, 2),
                           .rows_in = rows_of(cache, KGEN_DTYPE_U8, 4, 16, 16),
                           .rows_out = rows_of(cache, KGEN_DTYPE_U8, 4, 16, 16)};
    run("scatter:op=copy_pages,unit=1", &a);
    for (int i = 0; i < 16; i++) {
        const uint8_t got[] = {cache[0][i], cache[1][i], cache[2][i], cache[3][i]};
        SAME(got, 0, 30, 0, 30);
    }
}

/* One child with all the mass is always taken; one without any never, and the
 * last token is then drawn from the others. */
static void test_sampling_by_uniforms(void **state) {
    const int64_t tokens[] = {0, 3}, next[] = {1, -1}, sibling[] = {-1, -1};
    float probs[2][4] = {{0, 0, 0, 1}, {0.25f, 0.25f, 0.5f, 0}}, coins[] = {0.5f, 0.5f};
    float last = 0.49f;
    int32_t predicts[2], index[2], count[1];
    (void)state;
    kgen__scatter_all a = {
        .tokens_in = M64(tokens, 1, 2),
        .next_token = M64(next, 1, 2),
        .tokens = 2,
        .next_sibling = M64(sibling, 1, 2),
        .predicts = M32(predicts, 1, 2),
        .accept_index = M32(index, 1, 2),
        .accept_count = V32(count, 1),
        .probs = kgen_tensor_dense(probs, KGEN_DTYPE_F32, 3, (const int64_t[]){1, 2, 4}),
        .coins = rows_of(coins, KGEN_DTYPE_F32, 1, 2, 2),
        .final_coins = vector_of(&last, KGEN_DTYPE_F32, 1),
        .threshold_single = 1.0f,
        .threshold_acc = 1.0f};
    run("scatter:op=tree_verify,sampling=1", &a);
    SAME(predicts, 3, 1); /* 0.49 lies in the second quarter */
    SAME(index, 0, 1);
    probs[0][3] = 0.25f;
    probs[0][1] = 0.75f;
    last = 0.1f;
    run("scatter:op=tree_verify,sampling=1", &a);
    SAME(predicts, 1, -1);
    SAME(index, 0, -1);
    SAME(count, 0);
    a.threshold_acc = 0; /* any probability is enough */
    run("scatter:op=tree_verify,sampling=1", &a);
    SAME(predicts, 3);
    SAME(index, 0, 1);
    probs[0][3] = 0; /* none is not, */
    run("scatter:op=tree_verify,sampling=1", &a);
    SAME(predicts, 1, -1);
    a.threshold_single = 0; /* but where all are accepted */
    run("scatter:op=tree_verify,sampling=1", &a);
    SAME(predicts, 3);
    SAME(index, 0, 1);
}

static void test_t6_draft_lengths(void **state) {
    const int32_t lens[] = {104, 104, 104, 104}, valid[] = {100, 100, 100, 100};
    const int32_t accepted[] = {2, 1, 4, 3};
    int32_t first[4], steps[8];
    int64_t positions[8];
    (void)state;
    kgen__scatter_all a = {.lens = V32(lens, 4),
                           .valid = V32(valid, 4),
                           .steps = 2,
                           .tokens = 4,
                           .accepted = V32(accepted, 4),
                           .seq_lens = V32(first, 4),
                           .pad_len = 4,
                           .step_lens = M32(steps, 2, 4),
                           .positions_out = M64(positions, 2, 4),
                           .max_len = 105};
    for (int pass = 0; pass < 3; pass++) { /* again: nothing accumulates */
        run("scatter:op=draft_lens,sliced=1", &a);
        SAME(first, 102, 101, 104, 103);
        SAME(steps, 103, 102, 105, 104, 104, 103, 105, 105);
        SAME(positions, 102, 101, 104, 103, 103, 102, 104, 104);
        run("scatter:op=draft_lens", &a);
        SAME(first, 104, 104, 104, 104);
        SAME(lens, 104, 104, 104, 104);
    }
}

/* Rows of extends do not read `accepted`, padded rows see at least themselves. */
static void test_draft_lengths_of_extends_and_padding(void **state) {
    const int32_t lens[] = {50, 2, 7, S}, valid[] = {S, 1, 3, S}, accepted[] = {S, 1, 99, S};
    const int32_t extends = 1, live = 3;
    int32_t first[4], steps[4], error = 0;
    int64_t positions[4];
    (void)state;
    kgen__scatter_all a = {.lens = V32(lens, 4),
                           .valid = V32(valid, 4),
                           .steps = 1,
                           .tokens = 4,
                           .accepted = V32(accepted, 4),
                           .extends = V32(&extends, 1),
                           .live = V32(&live, 1),
                           .error = V32(&error, 1),
                           .pad_len = 4,
                           .seq_lens = V32(first, 4),
                           .step_lens = M32(steps, 1, 4),
                           .positions_out = M64(positions, 1, 4),
                           .max_len = 1000};
    run("scatter:op=draft_lens", &a);
    SAME(first, 50, 4, 7, 4); /* a warm-up row of 2 keys has 4 queries */
    SAME(steps, 51, 3, 8, 4);
    SAME(positions, 50, 2, 7, 0);
    assert_int_equal(error, KGEN_SCATTER_COUNT);
    run("scatter:op=draft_lens,sliced=1", &a);
    SAME(first, 50, 1, 7, 4);
}

/* ---- an independent implementation's vectors ------------------------ */

static void check_page_vector(const struct page_vector *v, int reference) {
    int32_t row[8], window[8], indptr[] = {0, v->count};
    char line[160];
    fill32(row, 8, -99);
    fill32(window, 8, -99);
    snprintf(line, sizeof line, "scatter:op=page_table_ragged,page=%d,tail=keep,swa=%d%s", v->page,
             v->swa, v->first ? ",pick=first" : "");
    kgen__scatter_all a = {.indptr = V32(indptr, 2),
                           .slots = V32(v->slots, v->count),
                           .table = M32(row, 1, v->width),
                           .swa_table = M32(window, 1, v->width),
                           .mapping = V64(v->mapping, 64)};
    if (reference)
        refer(line, &a, 1);
    else
        run(line, &a);
    for (int j = 0; j < v->width; j++) {
        assert_int_equal(row[j], v->row[j]);
        if (v->swa) assert_int_equal(window[j], v->window[j]);
    }
}

/* As engines take it: lengths and positions move on where they are. */
static void test_a_draft_step_in_place(void **state) {
    static const int32_t table[2][2] = {{5, 6}, {7, 8}};
    int32_t lens[2] = {7, 16};
    int64_t positions[2] = {6, 15}, locs[2];
    kgen__scatter_all a = {.lens = V32(lens, 2),
                           .positions = V64(positions, 2),
                           .block_table = M32(table, 2, 2),
                           .seq_lens = V32(lens, 2),
                           .positions_out = V64(positions, 2),
                           .locs = V64(locs, 2),
                           .max_len = 20};
    (void)state;
    for (int step = 0; step < 4; step++) run("scatter:op=eagle_step,page=16", &a);
    SAME(lens, 11, 20);
    SAME(positions, 10, 19);
    SAME(locs, 5 * 16 + 10, 8 * 16 + 3);
}

static void test_page_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof page_vectors / sizeof page_vectors[0]; i++)
        for (int reference = 0; reference < 2; reference++)
            check_page_vector(&page_vectors[i], reference);
}

static void check_draft_vector(const struct draft_vector *v, int reference) {
    int32_t indices[3 * 80], ends[3 * 7], rows = 2 * v->topk;
    char line[80];
    fill32(indices, 240, S);
    snprintf(line, sizeof line, "scatter:op=draft_kv_indices,page=%d", v->page);
    kgen__scatter_all a = {.lens = V32(v->lens, 2),
                           .requests = V64(v->requests, 2),
                           .req_to_token = M32(v->slots, 3, 80),
                           .steps = v->steps,
                           .topk = v->topk,
                           .indices = M32(indices, v->steps, 80),
                           .kv_indptr = M32(ends, v->steps, rows + 1)};
    if (reference)
        refer(line, &a, 2);
    else
        run(line, &a);
    const int32_t *last = indices + 80 * (v->steps - 1), *end = ends + (rows + 1) * (v->steps - 1);
    for (int i = 0; i <= rows; i++) assert_int_equal(end[i], v->indptr[i]);
    for (int i = 0; i < end[rows]; i++) assert_int_equal(last[i], v->indices[i]);
    for (int i = end[rows]; i < 80; i++) assert_int_equal(last[i], S);
}

static void test_draft_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof draft_vectors / sizeof draft_vectors[0]; i++)
        for (int reference = 0; reference < 2; reference++)
            check_draft_vector(&draft_vectors[i], reference);
}

static void test_split_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof split_vectors / sizeof split_vectors[0]; i++) {
        const struct split_vector *v = &split_vectors[i];
        check_splits(v->lens, v->count, v->groups, v->heads, v->kv_heads, v->max_splits,
                     v->compute_units, v->splits);
    }
}

static void check_tree_vector(const struct tree_vector *v, int reference) {
    int64_t positions[12], index[12], next[12], sibling[12], d = v->tokens;
    int32_t words[12];
    kgen__scatter_all a = {.lens = V32(&v->length, 1),
                           .selected = M64(v->selected, 1, d - 1),
                           .topk = v->topk,
                           .parents = M64(v->parents, 1, v->parent_count),
                           .positions_out = V64(positions, d),
                           .tree_index = M64(index, 1, d),
                           .next_token = M64(next, 1, d),
                           .tokens = v->tokens,
                           .next_sibling = M64(sibling, 1, d),
                           .words = M32(words, 1, d)};
    if (reference)
        refer("scatter:op=tree_build", &a, 1);
    else
        run("scatter:op=tree_build", &a);
    for (int64_t j = 0; j < d; j++) {
        assert_int_equal(words[j], v->words[j]);
        assert_int_equal(positions[j], v->positions[j]);
        assert_int_equal(next[j], v->next[j]);
        assert_int_equal(sibling[j], v->sibling[j]);
    }
}

static void test_tree_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof tree_vectors / sizeof tree_vectors[0]; i++)
        for (int reference = 0; reference < 2; reference++)
            check_tree_vector(&tree_vectors[i], reference);
}

/* The row stands second: its indices begin at D. */
static void check_verify_vector(const struct verify_vector *v, int reference) {
    int64_t d = v->tokens, tokens[20] = {0}, targets[20] = {0}, next[20], sibling[20];
    int32_t predicts[20], accepted[12], count[2];
    fill64(next, 20, -1);
    fill64(sibling, 20, -1);
    memcpy(tokens + d, v->candidates, (size_t)d * sizeof *tokens);
    memcpy(targets + d, v->targets, (size_t)d * sizeof *targets);
    memcpy(next + d, v->next, (size_t)d * sizeof *next);
    memcpy(sibling + d, v->sibling, (size_t)d * sizeof *sibling);
    kgen__scatter_all a = {.tokens_in = M64(tokens, 2, d),
                           .targets_in = M64(targets, 2, d),
                           .next_token = M64(next, 2, d),
                           .next_sibling = M64(sibling, 2, d),
                           .predicts = M32(predicts, 2, d),
                           .tokens = v->tokens,
                           .accept_index = M32(accepted, 2, v->columns),
                           .accept_count = V32(count, 2)};
    if (reference)
        refer("scatter:op=tree_verify", &a, 2);
    else
        run("scatter:op=tree_verify", &a);
    for (int64_t j = 0; j < d; j++) assert_int_equal(predicts[d + j], v->predicts[j]);
    for (int i = 0; i < v->columns; i++) assert_int_equal(accepted[v->columns + i], v->accepted[i]);
    assert_int_equal(count[1], v->count);
}

static void test_verify_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof verify_vectors / sizeof verify_vectors[0]; i++)
        for (int reference = 0; reference < 2; reference++)
            check_verify_vector(&verify_vectors[i], reference);
}

/* ---- lengths at the edges of pages, blocks and workgroups ----------- */

/* Whole buffers, sentinels included, against the reference. */
static void check_lengths(int page, const int32_t *lens, int rows, int swa) {
    int64_t most = 0, stride, columns, map_size;
    for (int n = 0; n < rows; n++) most = lens[n] > most ? lens[n] : most;
    columns = most + 8;
    map_size = columns * 2;
    stride = columns / page + 9;
    size_t cells = (size_t)(rows * stride + 16);
    int32_t *slots = malloc((size_t)(rows * columns) * 4), *tables = malloc(cells * 4 * 4);
    int64_t *map = malloc((size_t)map_size * 8), requests[8];
    assert_true(slots && tables && map);
    for (int64_t i = 0; i < rows * columns; i++)
        slots[i] = (int32_t)(i % columns + below(2) * (columns / page) * page);
    for (int64_t i = 0; i < map_size; i++) map[i] = (i * 7) % map_size;
    for (int n = 0; n < rows; n++) requests[n] = rows - 1 - n;
    fill32(tables, (int64_t)cells * 4, SENTINEL);
    for (int pass = 0; pass < 2; pass++) {
        int32_t *table = tables + (size_t)pass * 2 * cells + 8, *window = table + cells;
        char line[96];
        kgen__scatter_all a = {.lens = V32(lens, rows),
                               .requests = V64(requests, rows),
                               .req_to_token = M32(slots, rows, columns),
                               .tokens = 4,
                               .mapping = V64(map, map_size),
                               .table = rows_of(table, KGEN_DTYPE_I32, rows, stride - 2, stride),
                               .swa_table =
                                   rows_of(window, KGEN_DTYPE_I32, rows, stride - 1, stride)};
        snprintf(line, sizeof line, "scatter:op=page_table_requests,page=%d,swa=%d", page, swa);
        if (pass)
            refer(line, &a, rows);
        else
            run(line, &a);
    }
    assert_memory_equal(tables, tables + 2 * cells, cells * 2 * 4);
    free(slots);
    free(tables);
    free(map);
}

static void test_lengths_at_edges(void **state) {
    static const int pages[] = {1, 16, 64, 128};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        int p = pages[i];
        const int32_t small[] = {0, 1, p - 1, p, p + 1, 511, 512, 513};
        const int32_t large[] = {8191, 8192, 8193, 100000, 33, 4096};
        check_lengths(p, small, 8, i % 2);
        check_lengths(p, large, 6, (int)below(2));
        check_lengths(p, large + 3, 1, 1);
    }
}

/* ---- delta: a server's life ----------------------------------------- */

enum { ROWS = 7, REQUESTS = 12, COLUMNS = 200, WIDTH = 72, PAGE_TOKENS = 4, DRAFTS = 4 };

typedef struct server {
    int32_t slots[REQUESTS * COLUMNS], lens[ROWS], live;
    int64_t ids[ROWS], requests[ROWS], next_id, state[ROWS * 3];
    int32_t table[ROWS * WIDTH], fresh[ROWS * WIDTH];
    int32_t seq_lens[ROWS], qo[ROWS + 1], kv[ROWS + 1];
    int64_t locs[ROWS * DRAFTS], positions[ROWS * DRAFTS];
} server;

/* New slots from column `from` on, page by page: those of drafts change. */
static void allocate(server *s, int64_t request, int64_t from) {
    for (int64_t c = from; c < COLUMNS; c++) {
        int32_t *row = s->slots + request * COLUMNS;
        int64_t base = c % PAGE_TOKENS ? row[c - 1] / PAGE_TOKENS * PAGE_TOKENS
                                       : (1 + below(1000)) * PAGE_TOKENS;
        row[c] = (int32_t)(base + c % PAGE_TOKENS);
    }
}

static void admit(server *s, int n) {
    s->ids[n] = s->next_id++;
    s->lens[n] = (int32_t)below(120);
    allocate(s, s->requests[n], 0);
}

static void step_server(server *s) {
    s->live = (int32_t)below(ROWS + 1);
    for (int n = 0; n < ROWS; n++) {
        int64_t what = below(12);
        if (what == 0 || s->lens[n] > 180) {
            admit(s, n);
        } else if (what == 1) { /* rows change places */
            int other = (int)below(ROWS);
            int64_t id = s->ids[n], request = s->requests[n];
            int32_t held = s->lens[n];
            s->ids[n] = s->ids[other], s->requests[n] = s->requests[other];
            s->lens[n] = s->lens[other];
            s->ids[other] = id, s->requests[other] = request, s->lens[other] = held;
        } else if (what == 2) { /* taken back */
            s->lens[n] -= (int32_t)below(s->lens[n] / 2 + 1);
            allocate(s, s->requests[n], s->lens[n]);
        } else {
            s->lens[n] += 1 + (int32_t)below(DRAFTS);
            allocate(s, s->requests[n], (s->lens[n] + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS);
        }
    }
}

static kgen__scatter_all server_args(server *s, int32_t *table) {
    return (kgen__scatter_all){.live = V32(&s->live, 1),
                               .lens = V32(s->lens, ROWS),
                               .requests = V64(s->requests, ROWS),
                               .req_to_token = M32(s->slots, REQUESTS, COLUMNS),
                               .table = M32(table, ROWS, WIDTH),
                               .ids = V64(s->ids, ROWS),
                               .state = M64(s->state, ROWS, 3),
                               .tokens = DRAFTS,
                               .pad_len = DRAFTS,
                               .fill = -1,
                               .seq_lens = V32(s->seq_lens, ROWS),
                               .qo_indptr = V32(s->qo, ROWS + 1),
                               .kv_indptr = V32(s->kv, ROWS + 1),
                               .locs = V64(s->locs, ROWS * DRAFTS),
                               .positions_out = V64(s->positions, ROWS * DRAFTS)};
}

/* A captured delta launch, replayed while the batch grows and shrinks, leaves
 * the table that a launch without memory writes. */
static void test_delta_is_the_full_table(void **state) {
    server *s = calloc(1, sizeof *s);
    (void)state;
    assert_non_null(s);
    fill64(s->state, ROWS * 3, -1);
    fill32(s->table, ROWS * WIDTH, SENTINEL);
    for (int n = 0; n < ROWS; n++) s->requests[n] = n;
    for (int n = 0; n < ROWS; n++) admit(s, n);
    s->live = ROWS;
    kgen__scatter_all whole = server_args(s, s->fresh);
    kgen__scatter_all ours = server_args(s, s->table);
    kgen_scatter_args scatter;
    kgen_args args = {.family = KGEN_FAMILY_SCATTER, .scatter = &scatter};
    kgen_kernel *delta = kernel_of("scatter:op=spec_prepare,page=4,delta=1");
    kgen__scatter_pack(&scatter, &kgen_kernel_spec(delta)->scatter, &ours);
    kgen_kernel *full = kernel_of("scatter:op=spec_prepare,page=4");
    kgen_graph *graph;
    DO(kgen_graph_begin(ctx, stream, &did));
    DO(kgen_launch(delta, &args, stream, &did));
    DO(kgen_graph_end(ctx, stream, &graph, &did));
    for (int step = 0; step < 200; step++) {
        DO(kgen_graph_launch(graph, stream, &did));
        DO(kgen_stream_sync(ctx, stream, &did));
        int32_t last = s->kv[s->live];
        launch(full, &whole);
        assert_int_equal(last, s->kv[s->live]);
        for (int i = 0; i < ROWS * WIDTH; i++)
            if (s->table[i] != s->fresh[i])
                fail_msg("step %d: table[%d][%d] is %d, must be %d", step, i / WIDTH, i % WIDTH,
                         s->table[i], s->fresh[i]);
        step_server(s);
    }
    kgen_graph_free(graph);
    free(s);
}

/* And it does so by writing what changed alone: cells before the committed
 * pages of the step before are not touched. */
static void test_delta_writes_only_changes(void **state) {
    server *s = calloc(1, sizeof *s);
    (void)state;
    assert_non_null(s);
    fill64(s->state, ROWS * 3, -1);
    for (int n = 0; n < ROWS; n++) s->requests[n] = n;
    for (int n = 0; n < ROWS; n++) admit(s, n);
    for (int n = 0; n < ROWS; n++) s->lens[n] = 40 + n;
    s->live = ROWS;
    kgen__scatter_all a = server_args(s, s->table);
    run("scatter:op=spec_prepare,page=4,delta=1", &a);
    fill32(s->table, ROWS * WIDTH, SENTINEL);
    for (int n = 0; n < ROWS; n++) s->lens[n] += 3;
    run("scatter:op=spec_prepare,page=4,delta=1", &a);
    for (int n = 0; n < ROWS; n++)
        for (int j = 0; j < WIDTH; j++) {
            int blocks = (s->lens[n] + DRAFTS + 3) / 4, touched = j >= (40 + n) / 4 && j < blocks;
            assert_int_equal(s->table[n * WIDTH + j] != SENTINEL, touched);
        }
    free(s);
}

/* ---- movement ------------------------------------------------------- */

/* Accepted rows move to the front, in pools of their own, by address. */
static void test_compaction_moves_all_pools(void **state) {
    enum { SLOTS = 12, BYTES = 32 };
    uint8_t *pools[2];
    const int64_t sources[] = {4, 6, 7, -1}, targets[] = {4, 5, 6, 7};
    int64_t addresses[2];
    (void)state;
    for (int p = 0; p < 2; p++) {
        pools[p] = aligned_alloc(16, SLOTS * BYTES);
        assert_non_null(pools[p]);
        for (int i = 0; i < SLOTS * BYTES; i++) pools[p][i] = (uint8_t)(i / BYTES + 100 * p);
        addresses[p] = (int64_t)(uintptr_t)pools[p];
    }
    kgen__scatter_all a = {.pools = V64(addresses, 2),
                           .sources = M64(sources, 1, 4),
                           .targets = M64(targets, 1, 4),
                           .slot_count = SLOTS,
                           .pieces = 1,
                           .page_bytes = 4 * BYTES,
                           .token_bytes = BYTES,
                           .piece_bytes = BYTES};
    run("scatter:op=kv_compact,page=4", &a);
    static const int want[SLOTS] = {0, 1, 2, 3, 4, 6, 7, 7, 8, 9, 10, 11};
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < SLOTS * BYTES; i++)
            assert_int_equal(pools[p][i], (uint8_t)(want[i / BYTES] + 100 * p));
        free(pools[p]);
    }
}

/* A cache of every layout: what one slot, head and dim holds is told by its place
 * in [NB][..]; the numbers of a launch are those of scatter_args.h. */
enum { PAGE = 32, PAGES = 3, HEADS = 3, DIM = 64, LAYERS = 2, MOVES = 9 };

static int64_t at_nhd(int64_t p, int64_t s, int64_t h, int64_t d, int64_t x) {
    (void)x;
    return ((p * PAGE + s) * HEADS + h) * DIM + d;
}

static int64_t at_hnd(int64_t p, int64_t s, int64_t h, int64_t d, int64_t x) {
    (void)x;
    return ((p * HEADS + h) * PAGE + s) * DIM + d;
}

static int64_t at_packed_k(int64_t p, int64_t s, int64_t h, int64_t d, int64_t x) {
    return (((p * HEADS + h) * (DIM / x) + d / x) * PAGE + s) * x + d % x;
}

static int64_t at_xpacked_v(int64_t p, int64_t s, int64_t h, int64_t d, int64_t x) {
    (void)x;
    return ((p * HEADS + h) * DIM + d) * PAGE + s;
}

static int64_t at_shuffled_v(int64_t p, int64_t s, int64_t h, int64_t d, int64_t x) {
    return (((p * HEADS + h) * (PAGE / x) + s / x) * DIM + d) * x + s % x;
}

static const struct move_form {
    const char *name;
    int64_t (*at)(int64_t p, int64_t s, int64_t h, int64_t d, int64_t x);
    int64_t token_bytes, piece_bytes, pieces, piece_stride; /* of elements of 2 bytes */
    int by_element, grouped;
} move_forms[] = {
    {"nhd", at_nhd, HEADS *DIM * 2, HEADS *DIM * 2, 1, 0, 0, 0},
    {"hnd", at_hnd, DIM * 2, DIM * 2, HEADS, PAGE *DIM * 2, 0, 0},
    {"packed K", at_packed_k, 16, 16, HEADS *DIM / 8, 16 * PAGE, 0, 0},
    {"xpacked V", at_xpacked_v, 2, 2, HEADS *DIM, PAGE * 2, 1, 0},
    {"shuffled V", at_shuffled_v, 2, 2, DIM, 16, 1, 1},
};

/* Bytes of one element: what stands for an element in move_forms is halved. */
static void numbers_of(kgen__scatter_all *a, char line[KGEN_SPEC_LINE_MAX],
                       const struct move_form *form, int64_t bytes) {
    int by_chunk = form->at == at_packed_k;
    a->page_bytes = PAGE * HEADS * DIM * bytes;
    a->token_bytes = by_chunk ? 16 : form->token_bytes / 2 * bytes;
    a->piece_bytes = by_chunk ? 16 : form->piece_bytes / 2 * bytes;
    a->pieces = (int32_t)(by_chunk ? HEADS * DIM * bytes / 16 : form->pieces);
    a->piece_stride =
        by_chunk || form->grouped ? form->piece_stride : form->piece_stride / 2 * bytes;
    a->group_bytes = 16 * DIM;
    a->slot_count = PAGE * PAGES;
    snprintf(line, KGEN_SPEC_LINE_MAX, "scatter:op=kv_compact,page=%d,unit=%d,pack=%d", PAGE,
             form->by_element ? (int)bytes : 16, form->grouped ? (int)(16 / bytes) : 1);
}

/* Moves of two rows whose slots lie anywhere: a target is no later source. */
static void random_moves(int64_t *sources, int64_t *targets, int64_t slots) {
    int64_t order[PAGE * PAGES];
    for (int64_t i = 0; i < slots; i++) order[i] = i;
    for (int64_t i = slots - 1; i > 0; i--) {
        int64_t k = below(i + 1), held = order[i];
        order[i] = order[k];
        order[k] = held;
    }
    for (int i = 0; i < 2 * MOVES; i++) {
        sources[i] = below(7) ? order[2 * i] : -1;
        targets[i] = below(7) ? order[2 * i + 1] : order[2 * i];
        if (i % MOVES && below(2)) targets[i] = order[2 * i - 2]; /* read by the move before */
    }
}

static void expect_moves(uint8_t *want, const struct move_form *form, const int64_t *sources,
                         const int64_t *targets, int64_t bytes) {
    for (int i = 0; i < 2 * MOVES; i++)
        for (int64_t h = 0; h < HEADS && sources[i] >= 0; h++)
            for (int64_t d = 0; d < DIM; d++) {
                int64_t from = form->at(sources[i] / PAGE, sources[i] % PAGE, h, d, 16 / bytes);
                int64_t to = form->at(targets[i] / PAGE, targets[i] % PAGE, h, d, 16 / bytes);
                memmove(want + to * bytes, want + from * bytes, (size_t)bytes);
            }
}

static void check_form(const struct move_form *form, int64_t bytes) {
    char line[KGEN_SPEC_LINE_MAX];
    int64_t sources[2 * MOVES], targets[2 * MOVES], pools[LAYERS * HEADS];
    int64_t layer = (int64_t)PAGES * PAGE * HEADS * DIM * bytes;
    int each = form->grouped ? HEADS : 1;
    uint8_t *cache = aligned_alloc(16, (size_t)(LAYERS * layer)),
            *want = malloc((size_t)(LAYERS * layer));
    assert_non_null(cache);
    assert_non_null(want);
    for (int64_t i = 0; i < LAYERS * layer; i++) want[i] = cache[i] = (uint8_t)below(256);
    for (int i = 0; i < LAYERS * each; i++)
        pools[i] = i / each * layer + i % each * PAGE * DIM * bytes;
    random_moves(sources, targets, PAGE * PAGES);
    for (int i = 0; i < LAYERS; i++) expect_moves(want + i * layer, form, sources, targets, bytes);

    kgen__scatter_all a = {.pool = vector_of(cache, KGEN_DTYPE_U8, LAYERS * layer),
                           .pools = V64(pools, LAYERS * each),
                           .sources = M64(sources, 2, MOVES),
                           .targets = M64(targets, 2, MOVES)};
    numbers_of(&a, line, form, bytes);
    run(line, &a);
    for (int64_t i = 0; i < LAYERS * layer; i++)
        if (cache[i] != want[i])
            fail_msg("%s, %s: byte %lld is %d, %d expected", form->name, line, (long long)i,
                     cache[i], want[i]);
    free(cache);
    free(want);
}

static void test_compaction_of_every_layout(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof move_forms / sizeof move_forms[0]; i++)
        for (int64_t bytes = 1; bytes <= 2; bytes++) check_form(&move_forms[i], bytes);
}

int main(void) {
    uint64_t seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t1_requests),
        cmocka_unit_test(test_t1_ragged),
        cmocka_unit_test(test_t2_draft_indices),
        cmocka_unit_test(test_t2_draft_pages),
        cmocka_unit_test(test_t3_splits),
        cmocka_unit_test(test_t4_tree),
        cmocka_unit_test(test_masks_agree),
        cmocka_unit_test(test_t5_verify),
        cmocka_unit_test(test_greedy_rejection),
        cmocka_unit_test(test_rejection_by_uniforms),
        cmocka_unit_test(test_pages_of_one_cache),
        cmocka_unit_test(test_a_chain_is_a_tree_without_links),
        cmocka_unit_test(test_sampling_by_uniforms),
        cmocka_unit_test(test_t6_draft_lengths),
        cmocka_unit_test(test_draft_lengths_of_extends_and_padding),
        cmocka_unit_test(test_a_draft_step_in_place),
        cmocka_unit_test(test_page_vectors),
        cmocka_unit_test(test_draft_vectors),
        cmocka_unit_test(test_split_vectors),
        cmocka_unit_test(test_tree_vectors),
        cmocka_unit_test(test_verify_vectors),
        cmocka_unit_test(test_lengths_at_edges),
        cmocka_unit_test(test_delta_is_the_full_table),
        cmocka_unit_test(test_delta_writes_only_changes),
        cmocka_unit_test(test_compaction_moves_all_pools),
        cmocka_unit_test(test_compaction_of_every_layout),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}

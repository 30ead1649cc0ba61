/* Twelve ways in which loops like these have gone wrong in engines. Each test has
 * the naive loop, shows that its check refuses what the loop makes, and that the
 * kernel passes. */
#include "scatter_rig.h"

#include <sys/mman.h>

static int divide_up(int n, int d) { return (n + d - 1) / d; }

/* A naive page table, as one of the engines builds it: `rows` of one stride. */
static void naive_table(int32_t *table, int64_t stride, const int32_t *slots, int64_t columns,
                        const int32_t *lens, int rows, int page) {
    for (int n = 0; n < rows; n++)
        for (int j = 0; j < divide_up(lens[n], page); j++)
            table[n * stride + j] = slots[n * columns + j * page] / page;
}

static kgen__scatter_all table_args(const int32_t *lens, const int64_t *requests, int rows,
                                    const int32_t *slots, int64_t columns, kgen_tensor table) {
    return (kgen__scatter_all){.lens = V32(lens, rows),
                               .requests = V64(requests, rows),
                               .req_to_token = M32(slots, rows, columns),
                               .table = table};
}

static const int64_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void count_up(int32_t *slots, int64_t count, int32_t first) {
    for (int64_t i = 0; i < count; i++) slots[i] = first + (int32_t)i;
}

/* ---- H1: what an earlier, longer replay left stays behind ----------- */

static int tail_is_clear(const int32_t *table, int first, int width) {
    for (int j = first; j < width; j++)
        if (table[j] != 0) return 0;
    return 1;
}

static void test_h1_stale_tails(void **state) {
    enum { WIDTH = 8 };
    int32_t slots[2 * 32], naive[2 * WIDTH] = {0}, ours[2 * WIDTH] = {0}, lens[2], live;
    (void)state;
    count_up(slots, 64, 64);
    kgen__scatter_all a = table_args(lens, in_order, 2, slots, 32, M32(ours, 2, WIDTH));
    a.live = V32(&live, 1);
    for (int step = 0; step < 2; step++) { /* a batch of two long rows, then one short */
        lens[0] = step ? 5 : 30;
        lens[1] = 30;
        live = step ? 1 : 2;
        naive_table(naive, WIDTH, slots, 32, lens, live, 4);
        run("scatter:op=page_table_requests,page=4", &a);
    }
    assert_false(tail_is_clear(naive, 2, WIDTH));
    assert_false(tail_is_clear(naive + WIDTH, 0, WIDTH));
    assert_true(tail_is_clear(ours, 2, WIDTH));
    assert_true(tail_is_clear(ours + WIDTH, 0, WIDTH));
    assert_int_equal(ours[1], naive[1]);
}

/* ---- H2: one stride for two tables ---------------------------------- */

static int rows_hold(const int32_t *table, int64_t stride, const int32_t *want) {
    return table[0] == want[0] && table[stride] == want[1];
}

static void test_h2_two_strides(void **state) {
    const int32_t lens[] = {4, 4}, want[] = {20, 21};
    int32_t slots[8], table[2 * 5], naive[2 * 9] = {0}, window[2 * 9] = {0};
    int64_t map[64];
    (void)state;
    count_up(slots, 8, 8);
    for (int i = 0; i < 64; i++) map[i] = 72 + i; /* page 2 -> 20 */
    for (int n = 0; n < 2; n++) naive[n * 5] = (int32_t)(map[slots[4 * n]] / 4);
    kgen__scatter_all a =
        table_args(lens, in_order, 2, slots, 4, rows_of(table, KGEN_DTYPE_I32, 2, 4, 5));
    a.mapping = V64(map, 64);
    a.swa_table = rows_of(window, KGEN_DTYPE_I32, 2, 6, 9);
    run("scatter:op=page_table_requests,page=4,swa=1", &a);
    assert_false(rows_hold(naive, 9, want));
    assert_true(rows_hold(window, 9, want));
}

/* ---- H3: more blocks than the row has columns ----------------------- */

static int second_row_is_its_own(const int32_t *table, int width, int32_t first) {
    return table[width] == first && table[2 * width] == (int32_t)SENTINEL;
}

static void test_h3_rows_are_cut_at_the_width(void **state) {
    enum { WIDTH = 4 };
    const int32_t lens[] = {10, 20}; /* the second needs five columns */
    int32_t slots[2 * 24], naive[3 * WIDTH + 8], ours[3 * WIDTH + 8], error = 0;
    (void)state;
    count_up(slots, 48, 100);
    fill32(naive, 3 * WIDTH + 8, SENTINEL);
    fill32(ours, 3 * WIDTH + 8, SENTINEL);
    naive_table(naive, WIDTH, slots, 24, lens, 2, 4);
    kgen__scatter_all a = table_args(lens, in_order, 2, slots, 24, M32(ours, 2, WIDTH));
    a.error = V32(&error, 1);
    run("scatter:op=page_table_requests,page=4", &a);
    assert_false(second_row_is_its_own(naive, WIDTH, 31));
    assert_true(second_row_is_its_own(ours, WIDTH, 31));
    assert_int_equal(error, KGEN_SCATTER_WIDTH);
}

/* ---- H4: negative slots, and what lies before the mapping ----------- */

static int holes_stay(const int32_t *window) { return window[0] == -1 && window[1] == 5; }

static void test_h4_negative_slots(void **state) {
    enum { BEFORE = 2 };
    const int32_t slots[] = {-1, 3}, lens[] = {2};
    int64_t memory[BEFORE + 8];
    int32_t naive[2], window[2], table[2], error = 0;
    (void)state;
    for (int i = 0; i < BEFORE + 8; i++) memory[i] = i < BEFORE ? 777 : i;
    const int64_t *map = memory + BEFORE;
    for (int j = 0; j < 2; j++) naive[j] = (int32_t)map[slots[j]];
    kgen__scatter_all a = table_args(lens, in_order, 1, slots, 2, M32(table, 1, 2));
    a.mapping = V64(map, 8);
    a.swa_table = M32(window, 1, 2);
    a.error = V32(&error, 1);
    run("scatter:op=page_table_requests,swa=1", &a);
    assert_false(holes_stay(naive));
    assert_true(holes_stay(window));
    assert_int_equal(table[0], -1);
    assert_int_equal(error, 0); /* a hole is no error; a slot outside mapping is */
    a.mapping = V64(map, 3);
    run("scatter:op=page_table_requests,swa=1", &a);
    assert_int_equal(window[1], -1);
    assert_int_equal(error, KGEN_SCATTER_MAPPING);
}

/* ---- H5: the page of a block's first token -------------------------- */

/* Branch 1 wrote its drafts, tokens 6 and 7, on page 40. */
static int drafts_are_found(const int32_t *table) { return table[1] == 40; }

static void test_h5_the_last_token_names_the_page(void **state) {
    const int32_t slots[] = {100, 101, 102, 103, 120, 121, 162, 163, 180}, indptr[] = {0, 9};
    int32_t naive[3], table[3];
    (void)state;
    for (int j = 0; j < 3; j++) naive[j] = slots[4 * j] / 4;
    kgen__scatter_all a = {
        .slots = V32(slots, 9), .indptr = V32(indptr, 2), .table = M32(table, 1, 3)};
    run("scatter:op=page_table_ragged,page=4", &a);
    assert_false(drafts_are_found(naive));
    assert_true(drafts_are_found(table));
}

/* ---- H6: rows that begin inside a page ------------------------------ */

/* Token t of the row is found at table[(t + offset) / 4]. */
static int tokens_are_found(const int32_t *table, const int32_t *slots, int count, int offset) {
    for (int t = 0; t < count; t++)
        if (table[(t + offset) / 4] != slots[t] / 4 || (t + offset) % 4 != slots[t] % 4) return 0;
    return 1;
}

static void test_h6_rows_that_are_not_aligned(void **state) {
    const int32_t slots[] = {42, 43, 8, 9, 10, 11, 24}, indptr[] = {0, 7};
    int32_t naive[4], table[4], offset[1];
    (void)state;
    for (int j = 0; j < 2; j++) naive[j] = slots[4 * j] / 4;
    kgen__scatter_all a = {.slots = V32(slots, 7),
                           .indptr = V32(indptr, 2),
                           .table = M32(table, 1, 4),
                           .row_offsets = V32(offset, 1)};
    assert_false(tokens_are_found(naive, slots, 7, 0));
    static const char *const lines[] = {
        "scatter:op=page_table_ragged,page=4,unaligned=1",
        "scatter:op=page_table_ragged,page=4,unaligned=1,pick=first"};
    for (int i = 0; i < 2; i++) {
        run(lines[i], &a);
        assert_int_equal(offset[0], 2);
        assert_true(tokens_are_found(table, slots, 7, 2));
        assert_int_equal(table[3], 0);
    }
}

/* ---- H7: request times row, beyond 31 bits -------------------------- */

static void test_h7_rows_beyond_2_to_the_31(void **state) {
    const int64_t stride = (int64_t)1 << 30, request = 3;
    const size_t bytes = (size_t)(4 * stride) * 4;
    const int32_t lens[] = {5};
    int32_t table[5], naive[5];
    (void)state;
    int32_t *slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slots == MAP_FAILED) skip();
    count_up(slots + 3 * stride, 8, 50);
    uint32_t wrapped = (uint32_t)request * (uint32_t)stride; /* in 32 bits: negative */
    for (int j = 0; j < 5; j++) naive[j] = (int32_t)wrapped < 0 ? 0 : slots[wrapped + (uint32_t)j];
    kgen__scatter_all a = {.lens = V32(lens, 1),
                           .requests = V64(&request, 1),
                           .req_to_token = rows_of(slots, KGEN_DTYPE_I32, 4, 8, stride),
                           .table = M32(table, 1, 5)};
    run("scatter:op=page_table_requests", &a);
    assert_int_not_equal(naive[0], 50);
    SAME(table, 50, 51, 52, 53, 54);
    munmap(slots, bytes);
}

/* ---- H8: one kernel for all strides, widths and batches ------------- */

static int columns_hold(const int32_t *table, int64_t stride, int rows, const int32_t *slots,
                        int64_t columns) {
    for (int n = 0; n < rows; n++)
        if (table[n * stride] != slots[n * columns] / 4) return 0;
    return 1;
}

static void test_h8_shapes_are_run_time_values(void **state) {
    static const int32_t lens[] = {4, 4, 4, 4, 4, 4, 4, 4};
    enum { FIRST_STRIDE = 8 }; /* what a kernel built for the first call knows */
    int32_t slots[8 * 32];
    kgen_kernel *kernel = kernel_of("scatter:op=page_table_requests,page=4");
    (void)state;
    count_up(slots, 256, 40);
    for (int i = 0; i < 3; i++) {
        const int rows = 2 + 3 * i;
        const int64_t stride = 8 + 5 * i, columns = 32 - 8 * i;
        int32_t table[8 * 20] = {0}, naive[8 * 20] = {0};
        for (int n = 0; n < rows; n++) naive[n * FIRST_STRIDE] = slots[n * columns] / 4;
        kgen__scatter_all a = table_args(lens, in_order, rows, slots, columns,
                                         rows_of(table, KGEN_DTYPE_I32, rows, 6, stride));
        launch(kernel, &a);
        assert_int_equal(columns_hold(naive, stride, rows, slots, columns), i == 0);
        assert_true(columns_hold(table, stride, rows, slots, columns));
    }
    assert_ptr_equal(kernel, kernel_of("scatter:op=page_table_requests,page=4"));
}

/* ---- H9: 32-bit slots into 64-bit locations ------------------------- */

static void test_h9_narrow_slots_wide_locations(void **state) {
    const int32_t lens[] = {3, 0, 1};
    int32_t slots[3 * 4] = {10, 11, 12, 13, 20, 21, 22, 23, -1, 31, 32, 33};
    const int64_t want[] = {12, -1, -1};
    int64_t naive[3], ours[3];
    (void)state;
    fill64(naive, 3, 0x5a5a5a5a5a5a5a5a);
    fill64(ours, 3, 0x5a5a5a5a5a5a5a5a);
    for (int n = 0; n < 3; n++) { /* half of the element, of little-endian machines */
        int32_t slot = lens[n] > 0 ? slots[4 * n + lens[n] - 1] : -1;
        memcpy(&naive[n], &slot, sizeof slot);
    }
    kgen__scatter_all a = {.lens = V32(lens, 3),
                           .requests = V64(in_order, 3),
                           .req_to_token = M32(slots, 3, 4),
                           .locs = V64(ours, 3)};
    run("scatter:op=cache_locs,form=last", &a);
    assert_memory_not_equal(naive, want, sizeof want);
    assert_memory_equal(ours, want, sizeof want);
}

/* ---- H10: lengths and tables by two widths -------------------------- */

/* Every token that the lengths speak of has a page. */
static int pages_cover(const int32_t *seq_lens, const int32_t *table, int width, int rows) {
    for (int n = 0; n < rows; n++)
        for (int j = 0; j < divide_up(seq_lens[n], 4); j++)
            if (table[n * width + j] <= 0) return 0;
    return 1;
}

static void test_h10_one_width_for_lengths_and_pages(void **state) {
    enum { WIDTH = 8 };
    const int32_t lens[] = {5, 9};
    int32_t slots[2 * 32], naive[2 * WIDTH] = {0}, table[2 * WIDTH], seq_lens[2], qo[3], kv[3];
    int64_t locs[8], positions[8];
    (void)state;
    count_up(slots, 64, 64);
    const int32_t verified[] = {5 + 3, 9 + 3}, attended[] = {5 + 4, 9 + 4};
    naive_table(naive, WIDTH, slots, 32, verified, 2, 4);
    kgen__scatter_all a = table_args(lens, in_order, 2, slots, 32, M32(table, 2, WIDTH));
    a.tokens = 4;
    a.pad_len = 4;
    a.seq_lens = V32(seq_lens, 2);
    a.qo_indptr = V32(qo, 3);
    a.kv_indptr = V32(kv, 3);
    a.locs = V64(locs, 8);
    a.positions_out = V64(positions, 8);
    run("scatter:op=spec_prepare,page=4", &a);
    assert_false(pages_cover(attended, naive, WIDTH, 2));
    assert_true(pages_cover(seq_lens, table, WIDTH, 2));
    SAME(seq_lens, 9, 13);
    SAME(qo, 0, 4, 8);
    SAME(kv, 0, 9, 22);
    SAME(positions, 5, 6, 7, 8, 9, 10, 11, 12);
    SAME(locs, 69, 70, 71, 72, 105, 106, 107, 108);
}

/* ---- H11: a loop as long as a length that is garbage ---------------- */

/* The naive loop has that many turns; the row ends where the output does. */
static void test_h11_lengths_of_garbage(void **state) {
    enum { FLAT = 8 };
    static const int64_t garbage[] = {1ll << 40, INT64_MAX, INT64_MAX};
    int32_t slots[2 * FLAT], out[3 * FLAT], ends[3 * 4], error;
    (void)state;
    count_up(slots, 2 * FLAT, 100);
    for (int i = 0; i < 3; i++) {
        const int64_t lens[] = {3, garbage[i]}, starts[] = {0, i == 2 ? INT64_MAX : 3, 0};
        kgen__scatter_all a = {.lens = V64(lens, 2),
                               .requests = V64(in_order, 2),
                               .req_to_token = M32(slots, 2, FLAT),
                               .indptr = V64(starts, 3),
                               .indices = V32(out, FLAT)};
        a.error = V32(&error, 1);
        error = 0;
        fill32(out, 3 * FLAT, SENTINEL);
        run("scatter:op=kv_indices,len=i64", &a);
        assert_true(error & KGEN_SCATTER_CAPACITY);
        SAME(out, 100, 101, 102);
        assert_int_equal(out[3], i == 2 ? SENTINEL : 108);
        assert_int_equal(out[FLAT], SENTINEL);
        a.indptr = (kgen_tensor){0};
        a.topk = 1;
        a.steps = 3;
        a.indices = M32(out, 3, FLAT);
        a.kv_indptr = M32(ends, 3, 3);
        error = 0;
        run("scatter:op=draft_kv_indices,len=i64", &a);
        assert_true(error & KGEN_SCATTER_CAPACITY);
        SAME(out, 100, 101, 102);
    }
}

/* ---- H12: a pool that begins outside of the memory it is said to be in ---- */

static void test_h12_pools_outside(void **state) {
    enum { SLOTS = 4, UNIT = 16, BYTES = 2 * SLOTS * UNIT };
    static const int64_t begins[] = {-UNIT, SLOTS * UNIT + UNIT, 1ll << 62, SLOTS * UNIT};
    const int64_t sources[] = {3}, targets[] = {1};
    uint8_t memory[UNIT + BYTES + UNIT], *pool = memory + UNIT;
    int32_t error;
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (size_t b = 0; b < sizeof memory; b++) memory[b] = (uint8_t)(b / UNIT);
        kgen__scatter_all a = {.pool = vector_of(pool, KGEN_DTYPE_U8, BYTES),
                               .pools = V64(&begins[i], 1),
                               .sources = M64(sources, 1, 1),
                               .targets = M64(targets, 1, 1),
                               .page_bytes = UNIT,
                               .token_bytes = UNIT,
                               .piece_bytes = UNIT,
                               .piece_stride = UNIT,
                               .pieces = 1,
                               .slot_count = SLOTS};
        a.error = V32(&error, 1);
        error = 0;
        run("scatter:op=kv_compact", &a);
        assert_int_equal(error, i == 3 ? 0 : KGEN_SCATTER_CAPACITY);
        for (size_t b = 0; b < sizeof memory; b++) {
            size_t unit = b / UNIT, moved = 1 + SLOTS + 1;
            assert_int_equal(memory[b], i == 3 && unit == moved ? moved + 2 : unit);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_h1_stale_tails),
        cmocka_unit_test(test_h2_two_strides),
        cmocka_unit_test(test_h3_rows_are_cut_at_the_width),
        cmocka_unit_test(test_h4_negative_slots),
        cmocka_unit_test(test_h5_the_last_token_names_the_page),
        cmocka_unit_test(test_h6_rows_that_are_not_aligned),
        cmocka_unit_test(test_h7_rows_beyond_2_to_the_31),
        cmocka_unit_test(test_h8_shapes_are_run_time_values),
        cmocka_unit_test(test_h9_narrow_slots_wide_locations),
        cmocka_unit_test(test_h10_one_width_for_lengths_and_pages),
        cmocka_unit_test(test_h11_lengths_of_garbage),
        cmocka_unit_test(test_h12_pools_outside),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}

/* The time model: listings by hand and of real kernels, bytes, and what every
 * prediction must obey. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gen/gdn.h"
#include "runtime/kv_pack.h"
#include "predict/device_row.h"
#include "predict/listing.h"
#include "seed.h"

enum { ROUNDS = 400 };

static int between(int low, int high) { return low + rand() % (high - low + 1); }

static const kgen_target *target_of(const char *name) {
    const kgen_target *t;
    assert_int_equal(kgen_target_find(&t, name, NULL), KGEN_OK);
    return t;
}

static kgen_spec spec_of(const char *line) {
    kgen_spec spec;
    kgen_error err;
    if (kgen_spec_parse(&spec, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    return spec;
}

/* ---- listings by hand ---------------------------------------------------- */

/* Lines are instructions of 4 bytes from offset 0; "@3" in one is the operand
 * of a branch to line 3, as the hardware counts. *out: kgen__listing_free. */
static kgen_status parse(kgen__listing *out, const char *const *lines, kgen_isa isa,
                         kgen_error *err) {
    char text[8192];
    size_t used = 0;
    for (int n = 0; lines[n]; n++) {
        const char *at = strchr(lines[n], '@');
        int words = at ? atoi(at + 1) - n - 1 : 0;
        used += (size_t)snprintf(text + used, sizeof text - used, "%6x: %.*s", 4 * n,
                                 (int)(at ? at - lines[n] : (long)strlen(lines[n])), lines[n]);
        if (at) used += (size_t)snprintf(text + used, sizeof text - used, "%d", words & 0xffff);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", n % 2 ? " // x\n" : "\n");
    }
    assert_true(used < sizeof text);
    return kgen__listing_parse(out, text, isa, err);
}

static kgen__mix mix_of(const char *const *lines, kgen_isa isa) {
    kgen__listing l;
    kgen_error err;
    kgen__mix mix;
    if (parse(&l, lines, isa, &err) != KGEN_OK) fail_msg("%s", err.text);
    kgen__listing_mix(&mix, &l, kgen__listing_hottest(&l), isa < KGEN_ISA_RDNA3 ? 64 : 32);
    kgen__listing_free(&l);
    return mix;
}

typedef struct op_case {
    const char *line;
    kgen_isa isa;
    int op, bytes, cycles;
} op_case;

static void test_opcodes(void **state) {
    static const op_case cases[] = {
        {"v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], 0", KGEN_ISA_CDNA3, KGEN__OP_MATRIX, 0,
         16},
        {"v_mfma_f32_16x16x16_bf16_1k a[0:3]", KGEN_ISA_CDNA2, KGEN__OP_MATRIX, 0, 32},
        {"v_mfma_f32_32x32x8_f16 a[0:15]", KGEN_ISA_CDNA3, KGEN__OP_MATRIX, 0, 32},
        {"v_mfma_f32_16x16x32_bf16 v[0:3]", KGEN_ISA_CDNA4, KGEN__OP_MATRIX, 0, 16},
        {"v_mfma_f32_16x16x128_f8f6f4 v[0:3]", KGEN_ISA_CDNA4, KGEN__OP_MATRIX, 0, 32},
        {"v_mfma_f32_32x32x2_f32 v[0:15]", KGEN_ISA_CDNA3, KGEN__OP_MATRIX, 0, 64},
        {"v_smfmac_f32_16x16x32_bf16 v[0:3]", KGEN_ISA_CDNA3, KGEN__OP_MATRIX, 0, 16},
        {"v_wmma_f32_16x16x16_bf16 v[0:7]", KGEN_ISA_RDNA3, KGEN__OP_MATRIX, 0, 32},
        {"v_wmma_f32_16x16x16_bf16 v[0:7]", KGEN_ISA_RDNA4, KGEN__OP_MATRIX, 0, 16},
        {"v_wmma_f32_16x16x16_fp8_fp8 v[0:7]", KGEN_ISA_RDNA4, KGEN__OP_MATRIX, 0, 8},
        {"v_exp_f32_e32 v0, v1", KGEN_ISA_CDNA3, KGEN__OP_VALU, 0, 16},
        {"v_rcp_f32_e32 v0, v1", KGEN_ISA_RDNA4, KGEN__OP_VALU, 0, 4},
        {"v_mul_lo_u32 v0, v1, v2", KGEN_ISA_CDNA3, KGEN__OP_VALU, 0, 16},
        {"v_pk_fma_f32 v[0:1], v[2:3]", KGEN_ISA_CDNA3, KGEN__OP_VALU, 0, 4},
        {"v_dual_mov_b32 v6, 0 :: v_dual_mov_b32 v7, 0", KGEN_ISA_RDNA3, KGEN__OP_VALU, 0, 1},
        {"v_nop", KGEN_ISA_CDNA3, KGEN__OP_WAIT, 0, 0},
        {"global_load_dwordx4 v[0:3], v[4:5], off", KGEN_ISA_CDNA3, KGEN__OP_LOAD, 16, 0},
        {"global_load_dwordx3 v[0:2], v[4:5], off", KGEN_ISA_CDNA3, KGEN__OP_LOAD, 12, 0},
        {"global_load_b128 v[0:3], v[4:5], off", KGEN_ISA_RDNA4, KGEN__OP_LOAD, 16, 0},
        {"global_load_b64 v[0:1], v[4:5], off", KGEN_ISA_RDNA4, KGEN__OP_LOAD, 8, 0},
        {"global_load_d16_hi_b16 v0, v[4:5], off", KGEN_ISA_RDNA4, KGEN__OP_LOAD, 2, 0},
        {"global_load_short_d16 v0, v[4:5], off", KGEN_ISA_CDNA3, KGEN__OP_LOAD, 2, 0},
        {"global_load_ubyte v0, v[4:5], off", KGEN_ISA_CDNA3, KGEN__OP_LOAD, 1, 0},
        {"buffer_load_dwordx2 v[0:1], v4, s[0:3], 0 offen", KGEN_ISA_CDNA3, KGEN__OP_LOAD, 8, 0},
        {"global_load_lds_dwordx4 v[0:1], off", KGEN_ISA_CDNA4, KGEN__OP_LOAD, 16, 0},
        {"buffer_load_dword v4, s[0:3], 0 offen lds", KGEN_ISA_CDNA3, KGEN__OP_LOAD, 4, 0},
        {"global_load_tr_b128 v[0:3], v[4:5], off", KGEN_ISA_RDNA4, KGEN__OP_LOAD, 16, 0},
        {"global_store_dwordx4 v[0:1], v[2:5], off", KGEN_ISA_CDNA3, KGEN__OP_STORE, 16, 0},
        {"global_store_b16 v[0:1], v2, off", KGEN_ISA_RDNA3, KGEN__OP_STORE, 2, 0},
        {"global_atomic_add v0, v1, v2, s[0:1]", KGEN_ISA_CDNA3, KGEN__OP_STORE, 4, 0},
        {"buffer_wbl2 sc1", KGEN_ISA_CDNA3, KGEN__OP_WAIT, 0, 0},
        {"ds_read_b128 v[0:3], v4", KGEN_ISA_CDNA3, KGEN__OP_LDS, 0, 0},
        {"s_load_dwordx8 s[0:7], s[8:9], 0x0", KGEN_ISA_CDNA3, KGEN__OP_SCALAR, 0, 0},
        {"s_add_u32 s0, s1, s2", KGEN_ISA_CDNA3, KGEN__OP_SCALAR, 0, 0},
        {"s_barrier", KGEN_ISA_CDNA3, KGEN__OP_WAIT, 0, 0},
        {"s_delay_alu instid0(VALU_DEP_1)", KGEN_ISA_RDNA3, KGEN__OP_WAIT, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *lines[] = {cases[i].line, "s_endpgm", NULL};
        kgen__listing l;
        assert_int_equal(parse(&l, lines, cases[i].isa, NULL), KGEN_OK);
        const kgen__instruction *c = &l.code[0];
        if (c->op != cases[i].op || c->bytes != cases[i].bytes || c->cycles != cases[i].cycles)
            fail_msg("%s: op %d, %d bytes, %d cycles", cases[i].line, c->op, c->bytes, c->cycles);
        kgen__listing_free(&l);
    }
}

static void test_waits(void **state) {
    static const struct {
        const char *line;
        int allowed;
    } cases[] = {{"s_waitcnt vmcnt(3)", 3},         {"s_waitcnt vmcnt(12) lgkmcnt(0)", 12},
                 {"s_waitcnt lgkmcnt(0)", -1},      {"s_waitcnt_depctr va_vdst(0)", -1},
                 {"s_waitcnt_vscnt null, 0x0", -1}, {"s_wait_loadcnt 0x7", 7},
                 {"s_wait_loadcnt_dscnt 0x305", 3}, {"s_wait_dscnt 0x0", -1},
                 {"s_wait_storecnt_dscnt 0x0", -1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *lines[] = {cases[i].line, "s_waitcnt vmcnt(9)", "s_endpgm", NULL};
        kgen__listing l;
        assert_int_equal(parse(&l, lines, KGEN_ISA_CDNA3, NULL), KGEN_OK);
        if (l.code[0].allowed != cases[i].allowed)
            fail_msg("%s: %d", cases[i].line, l.code[0].allowed);
        kgen__listing_free(&l);
    }
}

/* Two loops in one; the inner has the data. A block behind the end jumps back
 * into it: that is no loop of its own. */
static void test_nested_loops(void **state) {
    static const char *const lines[] = {
        "s_mov_b32 s0, 0",
        "global_load_dword v0, v[0:1], off", /* 1: outer */
        "v_mov_b32_e32 v1, 0",
        "global_load_dwordx4 v[4:7], v[0:1], off", /* 3: inner */
        "s_cbranch_vccnz @10",
        "v_add_f32_e32 v1, v2, v3", /* 5: back from the block behind */
        "s_waitcnt vmcnt(0)",
        "s_cbranch_scc1 @3",
        "s_cbranch_scc0 @1",
        "s_endpgm",
        "v_exp_f32_e32 v1, v2", /* 10: seldom */
        "s_branch @5",
        "s_code_end",
        NULL};
    (void)state;
    kgen__listing l;
    kgen_error err;
    assert_int_equal(parse(&l, lines, KGEN_ISA_CDNA3, &err), KGEN_OK);
    assert_int_equal(l.count, 12);
    assert_int_equal(l.loop_count, 2);
    const kgen__loop *hot = kgen__listing_hottest(&l);
    assert_non_null(hot);
    assert_int_equal(hot->depth, 2);
    assert_int_equal(l.blocks[hot->header].first, 3);
    kgen__mix m;
    kgen__listing_mix(&m, &l, hot, 64);
    assert_int_equal(m.instructions, 7); /* lines 3 to 7, 10, 11 */
    assert_int_equal(m.valu, 2);
    assert_int_equal(m.loads, 1);
    assert_int_equal(m.wide_loads, 1);
    assert_int_equal(m.load_bytes, 1024);
    assert_int_equal(m.in_flight_bytes, 1024);
    assert_true(m.valu_cycles == 20);
    kgen__listing_mix(&m, &l, NULL, 64);
    assert_int_equal(m.instructions, 12);
    kgen__listing_free(&l);
}

/* A loop entered in its middle has its header there. */
static void test_entered_in_the_middle(void **state) {
    static const char *const lines[] = {"s_branch @3",
                                        "v_add_f32_e32 v1, v2, v3", /* 1 */
                                        "v_add_f32_e32 v1, v2, v3",
                                        "global_load_dwordx4 v[4:7], v[0:1], off", /* 3 */
                                        "s_waitcnt vmcnt(0)",
                                        "s_cbranch_scc1 @1",
                                        "s_endpgm",
                                        NULL};
    (void)state;
    kgen__mix m = mix_of(lines, KGEN_ISA_CDNA3);
    assert_int_equal(m.looped, 1);
    assert_int_equal(m.instructions, 5);
}

/* Matrix products mark the hot loop, whatever is loaded elsewhere. */
static void test_hot_loop(void **state) {
    static const char *const matrix[] = {
        "global_load_dwordx4 v[4:7], v[0:1], off", /* 0: more loads, deeper */
        "global_load_dwordx4 v[8:11], v[0:1], off",
        "global_load_dwordx4 v[12:15], v[0:1], off",
        "s_cbranch_scc1 @0",
        "global_load_dwordx4 v[4:7], v[0:1], off", /* 4 */
        "s_waitcnt vmcnt(0)",
        "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]",
        "s_cbranch_scc1 @4",
        "s_endpgm",
        NULL};
    static const char *const indices[] = {
        "global_load_dword v4, v[0:1], off", /* 0: a search through indices */
        "s_waitcnt vmcnt(0)",
        "s_cbranch_scc1 @0",
        "global_load_dwordx4 v[4:7], v[0:1], off",
        "s_waitcnt vmcnt(0)",
        "s_endpgm",
        NULL};
    (void)state;
    kgen__mix m = mix_of(matrix, KGEN_ISA_CDNA3);
    assert_int_equal(m.matrix, 1);
    assert_int_equal(m.loads, 1);
    assert_true(m.matrix_cycles == 16);
    m = mix_of(indices, KGEN_ISA_CDNA3);
    assert_int_equal(m.looped, 0);
    assert_int_equal(m.loads, 2);
}

typedef struct flight_case {
    const char *what;
    kgen_isa isa;
    int bytes;
    const char *lines[16];
} flight_case;

static void test_in_flight(void **state) {
    static const flight_case cases[] = {
        {"all of a turn is waited for",
         KGEN_ISA_CDNA3,
         2048,
         {"global_load_dwordx4 v[0:3], v[8:9], off", "global_load_dwordx4 v[4:7], v[8:9], off",
          "s_waitcnt vmcnt(0)", "s_cbranch_scc1 @0", "s_endpgm"}},
        {"one at a time",
         KGEN_ISA_CDNA3,
         1024,
         {"global_load_dwordx4 v[0:3], v[8:9], off", "s_waitcnt vmcnt(0)",
          "global_load_dwordx4 v[4:7], v[8:9], off", "s_waitcnt vmcnt(0)", "s_cbranch_scc1 @0",
          "s_endpgm"}},
        {"a wait in the next turn",
         KGEN_ISA_CDNA3,
         4096,
         {"global_load_dwordx4 v[0:3], v[8:9], off", "s_waitcnt vmcnt(1)",
          "global_load_dwordx4 v[4:7], v[8:9], off", "global_load_dwordx4 v[4:7], v[8:9], off",
          "s_cbranch_scc1 @0", "s_endpgm"}},
        {"a store counts on gfx9",
         KGEN_ISA_CDNA3,
         1024,
         {"global_load_dwordx4 v[0:3], v[8:9], off", "global_store_dword v[8:9], v0, off",
          "s_waitcnt vmcnt(1)", "global_load_dwordx4 v[4:7], v[8:9], off", "s_waitcnt vmcnt(0)",
          "s_cbranch_scc1 @0", "s_endpgm"}},
        {"and not on gfx11",
         KGEN_ISA_RDNA3,
         1024,
         {"global_load_b128 v[0:3], v[8:9], off", "global_store_b32 v[8:9], v0, off",
          "s_waitcnt vmcnt(1)", "global_load_b128 v[4:7], v[8:9], off", "s_waitcnt vmcnt(0)",
          "s_cbranch_scc1 @0", "s_endpgm"}},
        {"gfx12",
         KGEN_ISA_RDNA4,
         1536,
         {"global_load_b128 v[0:3], v[8:9], off", "global_load_b128 v[4:7], v[8:9], off",
          "s_wait_dscnt 0x0", "global_load_b128 v[4:7], v[8:9], off", "s_wait_loadcnt_dscnt 0x100",
          "s_wait_loadcnt 0x0", "s_cbranch_scc1 @0", "s_endpgm"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kgen__mix m = mix_of(cases[i].lines, cases[i].isa);
        assert_int_equal(m.looped, 1);
        if (m.in_flight_bytes != cases[i].bytes)
            fail_msg("%s: %d bytes, not %d", cases[i].what, m.in_flight_bytes, cases[i].bytes);
    }
}

/* ---- the way of a turn, and its pace -------------------------------------------------- */

#define LOAD "global_load_dwordx4 v[0:3], v[8:9], off"
#define ADD "v_add_f32 v0, v0, v1"
#define MFMA "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], 0"

/* "gfx942": what its hot loop is, turn by turn. */
static kgen__mix pace_of(const char *const *lines, const char *arch) {
    const kgen_target *target = target_of(arch);
    kgen__listing l;
    kgen__path path;
    kgen_error err;
    kgen__mix mix;
    if (parse(&l, lines, target->isa, &err) != KGEN_OK) fail_msg("%s", err.text);
    const kgen__loop *loop = kgen__listing_hottest(&l);
    kgen__listing_mix(&mix, &l, loop, target->wave_size);
    assert_int_equal(kgen__listing_path(&path, &l, loop, &err), KGEN_OK);
    assert_int_equal(kgen__predict_pace(&mix, &path, target, &err), KGEN_OK);
    kgen__path_free(&path);
    kgen__listing_free(&l);
    return mix;
}

typedef struct way_case {
    const char *what;
    int steps;
    const char *lines[12];
} way_case;

static void test_ways(void **state) {
    static const way_case cases[] = {
        {"round masks",
         4,
         {LOAD, "s_cbranch_scc0 @4", ADD, ADD, MFMA, "s_cbranch_scc1 @0", "s_endpgm"}},
        {"through products",
         5,
         {LOAD, "s_cbranch_scc0 @4", MFMA, ADD, "s_cbranch_scc1 @0", "s_endpgm"}},
        {"the shorter of two without",
         4,
         {MFMA, "s_cbranch_scc0 @5", ADD, ADD, "s_branch @6", ADD, "s_cbranch_scc1 @0",
          "s_endpgm"}},
        {"no loop", 4, {LOAD, "s_cbranch_scc0 @4", ADD, ADD, ADD, "s_endpgm"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kgen__listing l;
        kgen__path path;
        kgen_error err;
        assert_int_equal(parse(&l, cases[i].lines, KGEN_ISA_CDNA3, &err), KGEN_OK);
        assert_int_equal(kgen__listing_path(&path, &l, kgen__listing_hottest(&l), &err), KGEN_OK);
        if (path.count != cases[i].steps)
            fail_msg("%s: %d instructions, not %d", cases[i].what, path.count, cases[i].steps);
        kgen__path_free(&path);
        kgen__listing_free(&l);
    }
}

static void assert_near(double got, double wanted, const char *what) {
    if (!(fabs(got - wanted) <= 0.02 * wanted)) fail_msg("%s: %.9g, not %.9g", what, got, wanted);
}

static void test_paces(void **state) {
    static const char *const vector[] = {ADD, ADD, ADD, "s_cbranch_scc1 @0", "s_endpgm", NULL};
    static const char *const both[] = {MFMA, ADD, ADD, ADD, "s_cbranch_scc1 @0", "s_endpgm", NULL};
    static const char *const wmma[] = {"v_wmma_f32_16x16x16_bf16 v[0:7], v[8:15], v[16:23], v[0:7]",
                                       ADD, "s_cbranch_scc1 @0", "s_endpgm", NULL};
    static const char *const waits[] = {LOAD, "s_waitcnt vmcnt(0)", "s_cbranch_scc1 @0", "s_endpgm",
                                        NULL};
    static const char *const ahead[] = {LOAD, "s_waitcnt vmcnt(4)", "s_cbranch_scc1 @0", "s_endpgm",
                                        NULL};
    const double us = 1e-6 * 1e6 / 1250; /* a cycle of gfx942 while memory is busy */
    (void)state;
    kgen__mix m = pace_of(vector, "gfx942");
    assert_near(m.turn_us[0], 20 * us, "a wave issues every four cycles"); /* all of the code */
    assert_near(m.turn_us[7], 8 * 12 * us, "waves share the vector unit");
    m = pace_of(both, "gfx942");
    assert_near(m.turn_us[1], 2 * 16 * us, "products leave the vector unit to others");
    assert_near(m.turn_us[7], 8 * 16 * us, "and share their own");
    double cycles = pace_of(wmma, "gfx1100").matrix_cycles;
    m = pace_of(wmma, "gfx1100");
    assert_near(m.turn_us[7] * 2300, 8 * (cycles + 1), "RDNA multiplies in the vector unit");
    m = pace_of(waits, "gfx942");
    assert_true(m.turn_us[0] > 0.5 && m.turn_us[0] < 0.7); /* the latency of an idle memory */
    assert_near(m.turn_flight[0], 1024, "one load under way");
    assert_true(4 / m.turn_us[3] > 2 / m.turn_us[0]); /* others wait beside it */
    kgen__mix deep = pace_of(ahead, "gfx942");
    assert_true(deep.turn_us[0] < 0.5 * m.turn_us[0] && deep.turn_flight[0] > 3 * 1024);
    assert_true(deep.alone_us < 0.6 * deep.turn_us[0]); /* the latency of an idle memory, over 5 */
    m = pace_of(vector, "gfx942");
    assert_near(m.alone_us, m.turn_us[0], "nothing is shared");
}

/* More waves do more, and none more than the memory gives. */
static void check_paces(const kgen__mix *m, const char *arch) {
    const kgen_target *target = target_of(arch);
    const kgen__device_row *device;
    assert_int_equal(kgen__device_find(&device, target, NULL), KGEN_OK);
    for (int n = 0; n < KGEN__PACES; n++) {
        double turns = (n + 1) / m->turn_us[n] * target->simds * target->typical_cus;
        if (turns * m->turn_bytes > 1.03 * device->achievable)
            fail_msg("%s, %d waves: %.9g bytes a us", arch, n + 1, turns * m->turn_bytes);
        if (n > 0 && (n + 1) / m->turn_us[n] < 0.9 * n / m->turn_us[n - 1])
            fail_msg("%s: %d waves do less than %d", arch, n + 1, n);
    }
}

static void test_bad_listings(void **state) {
    static const char *const nowhere[] = {"s_cbranch_scc1 @9", "s_endpgm", NULL};
    static const struct {
        const char *text, *words;
    } cases[] = {{"", "no instruction"},
                 {"a kernel:\n\n", "no instruction"},
                 {"0: s_nop 0\n0: s_endpgm\n", "they must rise"},
                 {"8: s_nop 0\n4: s_endpgm\n", "they must rise"},
                 {"0: s_nop 0\n4: s_branch 65533\n", "no instruction begins"}};
    kgen__listing l;
    kgen_error err;
    (void)state;
    assert_int_equal(parse(&l, nowhere, KGEN_ISA_CDNA3, &err), KGEN_E_COMPILE);
    assert_non_null(strstr(err.text, "the branch at 0 goes to 24"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(kgen__listing_parse(&l, cases[i].text, KGEN_ISA_CDNA3, &err),
                         KGEN_E_COMPILE);
        if (!strstr(err.text, cases[i].words)) fail_msg("%zu: %s", i, err.text);
    }
}

/* Random branches: blocks, dominators and loops must hold together. */
static void test_random_listings(void **state) {
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char lines[48][48];
        const char *list[49];
        int count = between(1, 48);
        for (int i = 0; i < count; i++) {
            static const char *const kinds[] = {"s_branch @%d",        "s_cbranch_scc1 @%d",
                                                "s_cbranch_execz @%d", "global_load_dwordx4 v%d",
                                                "v_add_f32 v%d",       "s_endpgm // %d"};
            int kind = between(0, 5);
            snprintf(lines[i], sizeof lines[i], kinds[kind], between(0, count - 1));
            list[i] = lines[i];
        }
        list[count] = NULL;
        kgen__listing l;
        kgen_error err;
        if (parse(&l, list, KGEN_ISA_CDNA3, &err) != KGEN_OK) fail_msg("%s", err.text);
        for (int32_t i = 0; i < l.loop_count; i++) {
            const kgen__loop *loop = &l.loops[i];
            int32_t sum = 0;
            for (int32_t b = 0; b < l.block_count; b++) {
                sum += loop->has[b];
                if (!loop->has[b]) continue;
                int32_t up = b; /* the header dominates all of its loop */
                while (up != loop->header && up != l.blocks[up].dominator)
                    up = l.blocks[up].dominator;
                assert_int_equal(up, loop->header);
                assert_true(l.blocks[b].loop >= 0);
                assert_true(l.loops[l.blocks[b].loop].depth >= loop->depth);
            }
            assert_int_equal(sum, loop->blocks);
        }
        kgen__mix m;
        kgen__listing_mix(&m, &l, kgen__listing_hottest(&l), 64);
        assert_true(m.instructions <= (int32_t)l.count);
        assert_true(m.in_flight_bytes <= 2 * m.load_bytes);
        kgen__listing_free(&l);
    }
}

/* ---- bytes --------------------------------------------------------------- */

typedef struct bytes_case {
    const char *spec;
    kgen_problem problem;
    double read, written;
} bytes_case;

/* By hand, from what <kgen/..._args.h> say is read and written. */
/* long: a row a family and form */
static void test_bytes(void **state) {
    static const bytes_case cases[] = {
        {"attn:d=128,g=8",
         {2, 100, 4},
         2 * 4 * 100 * 256 * 2. + 2 * 32 * 128 * 2 + 2 * (4 + 7 * 4),
         2 * 32 * 128 * 2.},
        {"attn:d=128,dv=64,g=2,kv=fp8,page=64,lse=1,table=i64",
         {1, 65, 1},
         65 * 192. + 2 * 128 * 2 + 4 + 2 * 8 + 8,
         2 * 64 * 2 + 2 * 4.},
        {"attn:phase=verify,t=3,window=10,d=64,g=1",
         {1, 1000, 1},
         12 * 128 * 2. + 3 * 64 * 2 + 4 + 4,
         3 * 64 * 2.},
        {"attn:d=64,kv=fp8,descale=token",
         {1, 16, 1},
         16 * 128. + 64 * 2 + 8 + 2 * 16 * 4,
         64 * 2.},
        {"gdn:layout=flat,fuse=a,hk=2,hv=4",
         {3, 0, 0},
         3 * (8 + 4 * 65536. + 1024 * 2 + 2 * 4 * 2) + 4 * 4 + 4 * 2,
         3 * (4 * 65536. + 512 * 2)},
        {"gdn:layout=flat,hk=2,hv=4,state=bf16",
         {1, 0, 0},
         8 + 4 * 32768. + 3 * 2048 + 2048 + 16 + 1024 + 1024 * 4 * 2 + 4 * 4 + 8 + 256,
         4 * 32768. + 3 * 2048 + 1024},
        {"gdn:layout=flat,fuse=a,hk=2,hv=4,t=4,save=slots,index=spec,accept=1",
         {1, 0, 0},
         8 + 4 * 65536. + 4 * (2048 + 16) + 16 + 8,
         4 * (4 * 65536. + 1024)},
        {"gdn:layout=flat,fuse=c,hk=2,hv=4",
         {1, 0, 0},
         8 + 3 * 2048. + 2048 + 8192,
         3 * 2048. + 2048},
        {"kv_write:kv=fp8", {5, 0, 2}, 5 * (2 * 256 * 2. + 8), 5 * 2 * 256.},
        {"kv_write:kv=i8,scale=token,remap=i32,rope=neox",
         {5, 0, 2},
         5 * (2 * 256 * 2. + 8 + 4 + 8 + 128 * 4),
         5 * (2 * 256. + 16)},
        {"kv_gather:kv=bf16", {20, 0, 2}, 20 * 2 * 256 * 2. + 2 * 4, 20 * 2 * 256 * 2.},
        {"attn_merge:x=bf16,o=f32", {7, 0, 3}, 21 * 2 * 260., 21 * 516.},
        {"attn_merge:x=f32,o=fp8,d=64,parts=stack", {7, 5, 3}, 21 * 5 * 260., 21 * 68.},
        {"mla:kv=fp8,h=12,lse=1",
         {3, 100, 0},
         3 * (100 * 576. + 12 * 576 * 2 + 4 + 2 * 4),
         3 * 12 * (512 * 2. + 4)},
        {"indexer:op=write", {5, 0, 0}, 5 * (256 + 8.), 5 * 132.},
        {"indexer:op=gather,page=16", {20, 0, 0}, 20 * 132. + 2 * 4, 20 * 132.},
        {"indexer:op=decode,h=8,t=2,page=16",
         {3, 100, 0},
         3 * (100 * 132. + 2 * 8 * 132 + 7 * 4),
         3 * 2 * 100 * 4.},
        {"indexer:op=prefill,h=8", {10, 100, 0}, 100 * 132. + 10 * 8 * 132, 10 * 100 * 4.},
        {"indexer:op=topk", {3, 100, 0}, 3 * 100 * 4., 3 * 2048 * 4.},
        {"scatter:op=kv_indices", {3, 50, 0}, 3 * (50 * 4 + 24.), 3 * (50 * 4 + 24.)},
        {"scatter:op=spec_prepare,page=16,swa=1",
         {3, 50, 0},
         3 * (4 * 4 + 24 + 4 * 8.),
         3 * (4 * 4 + 24 + 4 * 4.)},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kgen_spec spec = spec_of(cases[i].spec);
        kgen_error err;
        double read, written;
        if (kgen__predict_bytes(&read, &written, &spec, &cases[i].problem, &err) != KGEN_OK)
            fail_msg("%s: %s", cases[i].spec, err.text);
        if (read != cases[i].read || written != cases[i].written)
            fail_msg("%s: %.0f and %.0f, not %.0f and %.0f", cases[i].spec, read, written,
                     cases[i].read, cases[i].written);
    }
}

static void test_no_bytes(void **state) {
    static const struct {
        const char *spec;
        kgen_problem problem;
        kgen_status status;
        const char *words;
    } cases[] = {
        {"attn:d=128", {0, 100, 1}, KGEN_E_ARG, "batch=0"},
        {"attn:d=128", {1, 0, 1}, KGEN_E_ARG, "context=0"},
        {"attn:d=128", {1, 100, 0}, KGEN_E_ARG, "heads=0"},
        {"kv_write:kv=fp8", {1, 0, 0}, KGEN_E_ARG, "heads=0"},
        {"gdn:layout=flat", {-1, 0, 0}, KGEN_E_ARG, "batch=-1"},
        {"kv_write:rope=neox,rq=1", {1, 0, 1}, KGEN_E_UNSUPPORTED, "rq=1"},
        {"scatter:op=kv_compact", {1, 10, 1}, KGEN_E_UNSUPPORTED, "op=kv_compact"},
        {"scatter:op=tree_build", {1, 10, 1}, KGEN_E_UNSUPPORTED, "op=tree_build"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kgen_spec spec = spec_of(cases[i].spec);
        kgen_error err;
        double read, written;
        assert_int_equal(kgen__predict_bytes(&read, &written, &spec, &cases[i].problem, &err),
                         cases[i].status);
        if (!strstr(err.text, cases[i].words)) fail_msg("%s: %s", cases[i].spec, err.text);
    }
}

/* ---- what every prediction obeys ------------------------------------------ */

static const struct {
    const char *name;
    int has_model;
} archs[] = {
#define TIMES(...) 1
#define NO_TIMES 0
#define KGEN_TARGET(name, vendor, isa, fp8, by_default, flags, numbers, times) {name, times},
#include <kgen/targets.def>
};

static const kgen_target *random_target(void) {
    int i;
    do {
        i = between(0, (int)(sizeof archs / sizeof archs[0]) - 1);
    } while (!archs[i].has_model);
    return target_of(archs[i].name);
}

static const char *const specs[] = {"attn:d=128,g=8",
                                    "attn:d=64,g=4,kv=fp8",
                                    "attn:phase=verify,t=4,d=128,g=8",
                                    "gdn:layout=flat,fuse=a",
                                    "gdn:layout=flat",
                                    "kv_write:kv=fp8",
                                    "kv_gather:kv=bf16",
                                    "scatter:op=kv_indices",
                                    "attn_merge:x=f32,o=bf16",
                                    "mla:phase=verify,t=2,h=12",
                                    "indexer:op=decode",
                                    "indexer:op=topk"};

/* A launch by chance: of kernels that could be. */
typedef struct launch {
    const kgen_target *target;
    kgen_spec spec;
    kgen__mix mix;
    kgen_resources resources;
    kgen_problem problem;
} launch;

static launch random_launch(void) {
    launch l = {.target = random_target()};
    l.spec = spec_of(specs[between(0, (int)(sizeof specs / sizeof specs[0]) - 1)]);
    int loads = between(1, 24), lanes = l.target->wave_size;
    l.mix = (kgen__mix){.looped = 1, .instructions = 300, .loads = loads, .wide_loads = loads};
    l.mix.load_bytes = loads * 16 * lanes;
    l.mix.in_flight_bytes = between(1, loads) * 16 * lanes;
    l.mix.valu_cycles = between(0, 2000);
    l.mix.matrix_cycles = between(0, 500);
    l.resources.workgroup_size = lanes * (1 << between(0, 3));
    l.resources.waves_per_simd = between(1, l.target->max_waves);
    l.problem = (kgen_problem){between(1, 300), between(1, 40000), between(1, 16)};
    return l;
}

static kgen__prediction estimate(const launch *l) {
    kgen__prediction p;
    kgen_error err;
    if (kgen__predict_estimate(&p, &l->mix, &l->resources, &l->spec, l->target, &l->problem,
                               &err) != KGEN_OK)
        fail_msg("%s", err.text);
    return p;
}

static void test_never_faster_than_the_memory(void **state) {
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        launch l = random_launch();
        kgen__prediction p = estimate(&l);
        assert_true(p.us > p.bytes / p.peak);
        assert_true(p.us >= p.bytes / p.achievable + p.fixed_us - 1e-9 * p.us);
        assert_true(p.memory_us >= p.bytes / p.achievable * (1 - 1e-9));
        assert_true(p.bandwidth > 0 && p.bandwidth <= p.achievable && p.achievable < p.peak);
        assert_true(p.us >= p.memory_us && p.us >= p.valu_us && p.us >= p.matrix_us);
        assert_true(p.workgroups >= 1);
    }
}

static void test_fewer_bytes_in_flight(void **state) {
    (void)state;
    int lower = 0;
    for (int i = 0; i < ROUNDS; i++) {
        launch l = random_launch();
        kgen__prediction whole = estimate(&l);
        l.mix.in_flight_bytes /= 2;
        kgen__prediction half = estimate(&l);
        assert_true(half.bandwidth <= whole.bandwidth && half.memory_us >= whole.memory_us);
        if (whole.in_flight_per_cu > whole.in_flight_target) continue;
        assert_true(half.bandwidth < whole.bandwidth && half.memory_us > whole.memory_us);
        lower++;
    }
    assert_true(lower > ROUNDS / 10);
}

/* Of its time, the least that more work may take: weights, the indexer's queries and
 * pages that are not full are read once, and more workgroups share them. */
static double least_of(kgen_family_id family) {
    if (family == KGEN_FAMILY_GDN || family == KGEN_FAMILY_INDEXER) return 0.9;
    return family == KGEN_FAMILY_KV_GATHER || family == KGEN_FAMILY_KV_WRITE ? 0.99 : 1 - 1e-9;
}

static void check_more(const launch *l, const launch *more, double least) {
    kgen__prediction before = estimate(l), after = estimate(more);
    /* Parts of latent attention are merged together from some number on, and then there are several
     * times as many. */
    if (l->spec.family == KGEN_FAMILY_MLA && after.workgroups > before.workgroups) least = 0.25;
    if (after.us < least * before.us)
        fail_msg("%s, family %d: b%d c%d h%d %.9g us, b%d c%d h%d %.9g us", l->target->name,
                 l->spec.family, l->problem.batch, l->problem.context, l->problem.heads, before.us,
                 more->problem.batch, more->problem.context, more->problem.heads, after.us);
}

static void test_more_work_takes_longer(void **state) {
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        launch l = random_launch();
        double least = least_of(l.spec.family);
        launch more = l;
        more.problem.batch += between(1, 2 * l.problem.batch);
        check_more(&l, &more, least);
        more = l;
        more.problem.context += between(1, 2 * l.problem.context);
        check_more(&l, &more, least);
        more = l;
        more.problem.heads += between(1, 8);
        check_more(&l, &more, least);
        more = l;
        more.problem.batch = 100000; /* more than fits any device at once */
        assert_true(estimate(&more).us > estimate(&l).us);
        more = l;
        more.mix.valu_cycles = 1e9;
        assert_string_equal(estimate(&more).bound, "valu");
        more.mix.matrix_cycles = 1e10;
        assert_string_equal(estimate(&more).bound, "matrix");
    }
}

/* The model counts workgroups as the launch does. */
static void test_workgroups(void **state) {
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        launch l = random_launch();
        kgen_spec r;
        kgen_error err;
        assert_int_equal(kgen_spec_resolve(&r, &l.spec, l.target, NULL), KGEN_OK);
        int64_t want = -1, more = 0, rows = l.problem.batch;
        if (r.family == KGEN_FAMILY_GDN) want = rows * kgen__gdn_groups(&r.gdn, l.target);
        if (r.family == KGEN_FAMILY_KV_GATHER) {
            kgen__kv_shape shape = kgen__kv_gather_geometry(&r.kv_gather);
            l.resources.workgroup_size = r.kv_gather.waves * l.target->wave_size;
            kgen__kv_counts counts = kgen__kv_counts_of(&shape, l.target);
            int64_t tokens = counts.packed ? counts.x : 0;
            assert_int_equal(kgen__count_groups(&want, &counts, 0, 0, rows, l.problem.heads, &err),
                             KGEN_OK);
            assert_int_equal(
                kgen__count_groups(&more, &counts, 1, tokens, rows, l.problem.heads, &err),
                KGEN_OK);
        }
        if (want < 0) continue;
        int32_t got = estimate(&l).workgroups;
        if (got < want + more - 1 || got > want + more)
            fail_msg("family %d: %d workgroups, not %lld", r.family, got, (long long)(want + more));
    }
}

static void test_no_model(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        launch l = random_launch();
        kgen__prediction p;
        kgen_error err;
        const char *words[] = {"arch=sm_90", "arch=cpu:cdna3", "waves_per_simd=-1"};
        if (i == 0) l.target = target_of("sm_90");
        if (i == 1) l.target = target_of("cpu:cdna3");
        if (i == 2) l.resources.waves_per_simd = -1;
        assert_int_equal(
            kgen__predict_estimate(&p, &l.mix, &l.resources, &l.spec, l.target, &l.problem, &err),
            KGEN_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, words[i]));
    }
}

/* ---- real kernels -------------------------------------------------------- */

typedef struct real_case {
    const char *spec;
    int matrix, looped; /* -1: either */
    int least_flight;   /* bytes of a wave */
} real_case;

static const real_case reals[] = {
    {"attn:phase=decode,q=bf16,kv=bf16,d=128,g=8,page=16", 1, 1, 4096},
    {"attn:phase=decode,q=bf16,kv=fp8,d=128,g=8,page=16", 1, 1, 2048},
    {"gdn:layout=flat,fuse=a", 0, -1, 7680},
    {"kv_gather:kv=bf16", 0, 0, 512},
    {"attn_merge:x=bf16", 0, 1, 2048},
};

enum { REALS = sizeof reals / sizeof reals[0], REAL_ARCHS = 3 };

static void check_real(const real_case *c, const kgen_job *job, const kgen_entry *entry) {
    const kgen_problem large = {64, 8192, 8}, small = {1, 8192, 8};
    kgen__prediction p, one;
    kgen_error err;
    if (kgen__predict(&p, entry, &job->spec, job->target, &large, &err) != KGEN_OK)
        fail_msg("%s @%s: %s", c->spec, job->target->name, err.text);
    assert_int_equal(kgen__predict_estimate(&one, &p.mix, &entry->resources, &job->spec,
                                            job->target, &small, &err),
                     KGEN_OK);
    const kgen__mix *m = &p.mix;
    print_message("%s @%s: %.1f us, %s, %d instructions and %d bytes a turn\n", c->spec,
                  job->target->name, p.us, p.bound, m->instructions, m->load_bytes);
    assert_int_equal(m->matrix > 0, c->matrix);
    if (c->looped >= 0) assert_int_equal(m->looped, c->looped);
    assert_true(m->wide_loads > 0 && m->valu > 0);
    assert_true(m->in_flight_bytes >= c->least_flight);
    assert_true(one.us < p.us && one.workgroups <= p.workgroups);
    assert_int_equal(m->instructions,
                     m->valu + m->matrix + m->scalar + m->lds + m->wait + m->loads + m->stores);
    if (job->spec.family == KGEN_FAMILY_ATTN) /* 512 MB and more: limited by memory */
        assert_true(p.bytes / p.us > 0.8 * p.achievable);
    assert_non_null(strstr(p.assumptions, job->target->name));
    check_paces(m, job->target->name);
    assert_true(p.mean_in_flight > 0 && p.mean_in_flight <= 1.01 * p.in_flight_per_cu);
}

static void test_real_kernels(void **state) {
    static const char *const names[REAL_ARCHS] = {"gfx942", "gfx950", "gfx1201"};
    kgen_job jobs[REALS * REAL_ARCHS];
    kgen_job_result results[REALS * REAL_ARCHS];
    kgen_build_options options = {.size = sizeof options, .workers = 2};
    kgen_toolchain toolchain;
    kgen_cache *cache;
    kgen_error err;
    (void)state;
    if (kgen_toolchain_find(&toolchain, target_of("gfx942"), &err) != KGEN_OK ||
        toolchain.compiler != KGEN_TOOLCHAIN_HIPRTC) {
        print_message("skipped: no hipRTC\n");
        skip();
    }
    assert_int_equal(kgen_cache_open(&cache, NULL, NULL), KGEN_OK);
    for (int i = 0; i < REALS * REAL_ARCHS; i++)
        jobs[i] = (kgen_job){spec_of(reals[i / REAL_ARCHS].spec), target_of(names[i % REAL_ARCHS])};
    if (kgen_build(cache, jobs, REALS * REAL_ARCHS, &options, results, &err) != KGEN_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < REALS * REAL_ARCHS; i++) {
        check_real(&reals[i / REAL_ARCHS], &jobs[i], results[i].entry);
        kgen_entry_free(results[i].entry);
    }
    kgen_cache_close(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opcodes),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_nested_loops),
        cmocka_unit_test(test_entered_in_the_middle),
        cmocka_unit_test(test_hot_loop),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_paces),
        cmocka_unit_test(test_bad_listings),
        cmocka_unit_test(test_random_listings),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_bytes),
        cmocka_unit_test(test_never_faster_than_the_memory),
        cmocka_unit_test(test_fewer_bytes_in_flight),
        cmocka_unit_test(test_more_work_takes_longer),
        cmocka_unit_test(test_workgroups),
        cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_real_kernels),
    };
    unsigned seed = (unsigned)test_seed();
    srand(seed);
    return cmocka_run_group_tests_name("predict", tests, NULL, NULL);
}

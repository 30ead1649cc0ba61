/* The cpu device, with small kernels that clang compiles while the test runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/device.h"
#include "seed.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

static const kgen__device_api *const api = &kgen__device_cpu;

/* What templates/kg/core/machine_cpu.h says, in short. */
static const char prelude[] =
    "struct lane_t { unsigned thread, lane, wave, group, groups, block;\n"
    "                unsigned char *lds, *exchange; unsigned long *named; };\n"
    "struct ops_t { lane_t *(*self)(); void (*wave_sync)(); void (*barrier)();\n"
    "               void (*cluster_barrier)(); unsigned char *(*peer_lds)(unsigned);\n"
    "               void (*await)(const unsigned long *, unsigned);\n"
    "               void (*copy)(void *, const void *, unsigned); void (*copies_end)();\n"
    "               void (*copies_done)(unsigned); void (*all_copies_done)();\n"
    "               void (*later)(void (*)(const void *), const void *, unsigned); };\n"
    "static const ops_t *ops;\n"
    "extern \"C\" void kg_cpu_bind(const ops_t *o) { ops = o; }\n"
    "struct params_t { unsigned *a, *b; unsigned n, m; };\n"
    "#define KERNEL extern \"C\" void test_kernel(const params_t *p)\n"
    "#define ME const lane_t &me = *ops->self()\n";

typedef struct params {
    uint32_t *a, *b;
    uint32_t n, m;
} params;

typedef struct kernel {
    kgen_entry entry;
    void *module, *function;
} kernel;

typedef struct bench {
    kgen__device *device;
    kgen_error err;
} bench;

static char folder[] = "/tmp/kgen-cpu-XXXXXX";
static int have_clang;
static unsigned seed;

/* ---- compiling ---------------------------------------------------------- */

static int run_clang(const char *source, const char *object, const char *flag) {
    const char *program = getenv("KGEN_CLANG") ? getenv("KGEN_CLANG") : "clang";
    pid_t child = fork();
    if (child == 0) {
        execlp(program, program, "-x", "c++", "-std=c++17", "-O2", "-g", "-fPIC", "-shared",
               "-nostdlib", "-fno-exceptions", source, "-o", object, flag, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void read_file(const char *path, kgen_entry *entry) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    entry->code_size = (size_t)ftell(file);
    rewind(file);
    entry->code = malloc(entry->code_size);
    assert_int_equal(fread(entry->code, 1, entry->code_size, file), entry->code_size);
    fclose(file);
}

static void compile_text(kernel *k, const char *head, const char *body, const char *target,
                         const char *flag) {
    char source[64], object[64];
    if (!have_clang) {
        print_message("skipped: no clang here to compile kernels (KGEN_CLANG names one)\n");
        skip();
    }
    memset(k, 0, sizeof *k);
    snprintf(source, sizeof source, "%s/k.cpp", folder);
    snprintf(object, sizeof object, "%s/k.so", folder);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    fprintf(file, "%s%s\n", head, body);
    fclose(file);
    assert_int_equal(run_clang(source, object, flag), 0);
    read_file(object, &k->entry);
    unlink(source);
    unlink(object);
    snprintf(k->entry.symbol, sizeof k->entry.symbol, "test_kernel");
    snprintf(k->entry.target, sizeof k->entry.target, "%s", target);
}

static void compile_flag(kernel *k, const char *body, const char *target, const char *flag) {
    compile_text(k, prelude, body, target, flag);
}

static void open_device(bench *b, const char *persona) {
    memset(b, 0, sizeof *b);
    assert_int_equal(api->open(&b->device, 0, persona, &b->err), KGEN_OK);
}

static void load(bench *b, kernel *k) {
    kgen_status status = api->load(b->device, &k->entry, &k->module, &k->function, &b->err);
    if (status != KGEN_OK) fail_msg("load: %s", b->err.text);
    free(k->entry.code); /* the module keeps what it needs */
    k->entry.code = NULL;
}

static void build(bench *b, kernel *k, const char *body) {
    compile_flag(k, body, api->target(b->device)->name, "-O2");
    load(b, k);
}

static void drop(bench *b, kernel *k) { api->unload(b->device, k->module); }

static kgen_status launch_clusters(bench *b, const kernel *k, uint32_t cluster, uint32_t grid,
                                   uint32_t block, const params *p) {
    kgen__launch_config config = {grid, block, 0, cluster};
    return api->launch(b->device, k->function, config, p, sizeof *p, NULL, &b->err);
}

static kgen_status launch(bench *b, const kernel *k, uint32_t grid, uint32_t block, const params *p,
                          kgen_stream stream) {
    kgen__launch_config config = {.grid = grid, .block = block};
    return api->launch(b->device, k->function, config, p, sizeof *p, stream, &b->err);
}

static void launch_ok(bench *b, const kernel *k, uint32_t grid, uint32_t block, const params *p) {
    if (launch(b, k, grid, block, p, NULL) != KGEN_OK) fail_msg("launch: %s", b->err.text);
}

static uint32_t *words(bench *b, size_t count) {
    void *memory = NULL;
    assert_int_equal(api->alloc(b->device, &memory, count * 4, &b->err), KGEN_OK);
    return memory;
}

/* ---- kernels ------------------------------------------------------------ */

static const char ids_kernel[] =
    "KERNEL { ME; unsigned i = (me.group * me.block + me.thread) * 4;\n"
    "  p->a[i] = me.thread; p->a[i + 1] = me.lane; p->a[i + 2] = me.wave;\n"
    "  p->a[i + 3] = me.groups; }";

static void check_ids(const char *persona, uint32_t grid, uint32_t block) {
    bench b;
    kernel k;
    open_device(&b, persona);
    build(&b, &k, ids_kernel);
    uint32_t wave = (uint32_t)api->target(b.device)->wave_size;
    params p = {words(&b, (size_t)grid * block * 4), NULL, 0, 0};
    launch_ok(&b, &k, grid, block, &p);
    for (uint32_t i = 0; i < grid * block; i++) {
        assert_int_equal(p.a[i * 4], i % block);
        assert_int_equal(p.a[i * 4 + 1], i % block % wave);
        assert_int_equal(p.a[i * 4 + 2], i % block / wave);
        assert_int_equal(p.a[i * 4 + 3], grid);
    }
    api->release(b.device, p.a);
    drop(&b, &k);
    api->close(b.device);
}

static void lanes_know_where_they_are(void **state) {
    (void)state;
    check_ids("cdna3", 7, 256);
    check_ids("rdna4", 3, 96);
    check_ids("sm90", 1, 33); /* a wave that is not full */
    check_ids(NULL, 2, 1024);
}

static const char reduce_kernel[] =
    "KERNEL { ME; unsigned *s = (unsigned *)me.lds; unsigned was = s[me.thread];\n"
    "  bool clean = was == ~0u || was == 0x47474747u;\n"
    "  ops->barrier(); s[me.thread] = p->a[me.group * me.block + me.thread] + !clean;\n"
    "  for (unsigned d = me.block / 2; d; d /= 2) { ops->barrier();\n"
    "    if (me.thread < d) s[me.thread] += s[me.thread + d]; }\n"
    "  ops->barrier(); if (me.thread == 0) p->b[me.group] = s[0]; }";

static void barriers_reduce_through_lds(void **state) {
    (void)state;
    enum { GRID = 33, BLOCK = 1024 };
    bench b;
    kernel k;
    open_device(&b, "cdna3");
    build(&b, &k, reduce_kernel);
    params p = {words(&b, GRID * BLOCK), words(&b, GRID), 0, 0};
    for (uint32_t i = 0; i < GRID * BLOCK; i++) p.a[i] = (uint32_t)rand() % 1000;
    for (int round = 0; round < 3; round++) {
        memset(p.b, 0xff, GRID * 4);
        launch_ok(&b, &k, GRID, BLOCK, &p);
        for (uint32_t g = 0; g < GRID; g++) {
            uint32_t sum = 0;
            for (uint32_t i = 0; i < BLOCK; i++) sum += p.a[g * BLOCK + i];
            assert_int_equal(p.b[g], sum);
        }
    }
    api->release(b.device, p.a);
    api->release(b.device, p.b);
    drop(&b, &k);
    api->close(b.device);
}

/* Live lanes turn their numbers around, n times; lanes >= m return early. */
static const char exchange_kernel[] =
    "KERNEL { ME; if (me.lane >= p->m) return;\n"
    "  unsigned live = p->m, value = me.thread;\n"
    "  for (unsigned i = 0; i < p->n; i++) {\n"
    "    *(unsigned *)(me.exchange + me.lane * 256) = value; ops->wave_sync();\n"
    "    value = *(unsigned *)(me.exchange + (live - 1 - me.lane) * 256); ops->wave_sync(); }\n"
    "  p->a[me.group * me.block + me.thread] = value; }";

static void check_exchange(const char *persona, uint32_t block, uint32_t times, uint32_t live) {
    bench b;
    kernel k;
    open_device(&b, persona);
    build(&b, &k, exchange_kernel);
    uint32_t wave = (uint32_t)api->target(b.device)->wave_size;
    params p = {words(&b, 5 * block), NULL, times, live};
    launch_ok(&b, &k, 5, block, &p);
    for (uint32_t i = 0; i < 5 * block; i++) {
        uint32_t thread = i % block, lane = thread % wave;
        uint32_t other = times % 2 ? thread - lane + live - 1 - lane : thread;
        assert_int_equal(p.a[i], lane < live ? other : UINT32_MAX);
    }
    api->release(b.device, p.a);
    drop(&b, &k);
    api->close(b.device);
}

static void waves_exchange(void **state) {
    (void)state;
    check_exchange("cdna3", 1024, 9, 64);
    check_exchange("rdna3", 64, 4, 32);
}

/* Behind the text of a kernel of gfx950: each lane stores what p->a has of it, and reads the
 * place that p->b names. */
#define TURNED_KERNEL(read)                                                                      \
    "extern \"C\" void test_kernel(const void *params) {\n"                                      \
    "  struct of_t { u32 *a, *b; }; const of_t *p = (const of_t *)params;\n"                     \
    "  u32 lane = kg::lane_id(), got[2], *a = p->a + lane * 2; u8 *lds = kg_ops->self()->lds;\n" \
    "  ((u32 *)lds)[lane * 2] = a[0]; ((u32 *)lds)[lane * 2 + 1] = a[1];\n"                      \
    "  kg::barrier(); kg::" read "(got, lds + p->b[lane] * 8); kg::barrier();\n"                 \
    "  a[0] = got[0]; a[1] = got[1]; }"

/* ds_read_b64_tr_b16, as docs/attention.md has it: of sixteen lanes, which lane's address the four
 * numbers of a lane come from. Of those that lie there it gets number lane % 4. */
static const uint8_t asked_by[16][4] = {
    {0, 4, 8, 12},  {0, 4, 8, 12},  {0, 4, 8, 12},  {0, 4, 8, 12},  {1, 5, 9, 13},  {1, 5, 9, 13},
    {1, 5, 9, 13},  {1, 5, 9, 13},  {2, 6, 10, 14}, {2, 6, 10, 14}, {2, 6, 10, 14}, {2, 6, 10, 14},
    {3, 7, 11, 15}, {3, 7, 11, 15}, {3, 7, 11, 15}, {3, 7, 11, 15}};

static void compile_turned(kernel *k, const char *text, const kgen_target *target) {
    kgen_spec spec;
    kgen_source source = {0};
    kgen_error err;
    assert_int_equal(kgen_spec_parse(&spec, "attn:phase=extend", &err), KGEN_OK);
    assert_int_equal(kgen_source_render(&source, &spec, target, &err), KGEN_OK);
    compile_text(k, source.text, text, target->name, "-O1");
    kgen_source_free(&source);
}

/* was: the 512 bytes that lay in LDS. from: by which lane's address each lane read. got: what it
 * has then. */
typedef struct turned {
    uint8_t was[512], got[512];
    uint32_t from[64];
} turned;

static void turn(turned *t, const char *text) {
    bench b;
    kernel k;
    open_device(&b, "cdna4");
    compile_turned(&k, text, api->target(b.device));
    load(&b, &k);
    params p = {words(&b, 128), words(&b, 64), 0, 0};
    for (int i = 0; i < 512; i++) t->was[i] = (uint8_t)rand();
    memcpy(p.a, t->was, sizeof t->was);
    for (int lane = 0; lane < 64; lane++) t->from[lane] = p.b[lane] = (uint32_t)rand() % 64;
    launch_ok(&b, &k, 1, 64, &p);
    memcpy(t->got, p.a, sizeof t->got);
    api->release(b.device, p.a);
    api->release(b.device, p.b);
    drop(&b, &k);
    api->close(b.device);
}

static void lds_turns_values_as_gfx950_does(void **state) {
    (void)state;
    turned t;
    turn(&t, TURNED_KERNEL("read_turned"));
    for (int lane = 0; lane < 64; lane++)
        for (int n = 0; n < 4; n++) {
            uint32_t from = t.from[lane / 16 * 16 + asked_by[lane % 16][n]];
            assert_memory_equal(t.got + lane * 8 + n * 2, t.was + from * 8 + lane % 4 * 2, 2);
        }
}

/* ds_read_b64_tr_b8: two lanes ask for a row of sixteen codes, and a lane gets one of each of the
 * eight rows. */
static void lds_turns_codes_as_gfx950_does(void **state) {
    (void)state;
    turned t;
    turn(&t, TURNED_KERNEL("read_turned_codes"));
    for (int lane = 0; lane < 64; lane++)
        for (int n = 0; n < 8; n++) {
            uint32_t from = t.from[lane / 16 * 16 + 2 * n + lane % 16 / 8];
            assert_int_equal(t.got[lane * 8 + n], t.was[from * 8 + lane % 8]);
        }
}

static void lanes_may_return_early(void **state) {
    (void)state;
    check_exchange("cdna3", 256, 5, 1 + (uint32_t)rand() % 63);
    check_exchange("sm90", 128, 3, 1);
}

/* Lanes leave one by one between syncs and barriers, whole waves as well. */
static const char leave_kernel[] =
    "KERNEL { ME; unsigned i = 0;\n"
    "  for (; i < me.thread % p->n; i++) { ops->barrier(); ops->wave_sync(); }\n"
    "  p->a[me.group * me.block + me.thread] = i; }";

static void barriers_count_live_lanes(void **state) {
    (void)state;
    bench b;
    kernel k;
    open_device(&b, "cdna4");
    build(&b, &k, leave_kernel);
    params p = {words(&b, 4 * 512), NULL, 1 + (uint32_t)rand() % 300, 0};
    launch_ok(&b, &k, 4, 512, &p);
    for (uint32_t i = 0; i < 4 * 512; i++) assert_int_equal(p.a[i], i % 512 % p.n);
    api->release(b.device, p.a);
    drop(&b, &k);
    api->close(b.device);
}

/* Each workgroup leaves numbers, n times, which others of its cluster read. */
static const char cluster_kernel[] =
    "KERNEL { ME; unsigned *s = (unsigned *)me.lds, sum = 0;\n"
    "  for (unsigned i = 0; i < p->n; i++) { s[me.thread] = me.group * 1000 + me.thread + i;\n"
    "    for (unsigned n = 0; n < me.group % p->m; n++) ops->barrier();\n" /* no two alike */
    "    ops->cluster_barrier();\n"
    "    for (unsigned r = 0; r < p->m; r++)\n"
    "      sum += ((unsigned *)ops->peer_lds(r))[(me.thread + 1) % me.block] * (r + 1);\n"
    "    ops->cluster_barrier(); }\n"
    "  p->a[me.group * me.block + me.thread] = sum; }";

static void check_clusters(uint32_t cluster, uint32_t grid, uint32_t block) {
    bench b;
    kernel k;
    open_device(&b, "sm90");
    build(&b, &k, cluster_kernel);
    params p = {words(&b, (size_t)grid * block), NULL, 3, cluster};
    if (launch_clusters(&b, &k, cluster, grid, block, &p) != KGEN_OK) fail_msg("%s", b.err.text);
    for (uint32_t i = 0; i < grid * block; i++) {
        uint32_t first = i / block / cluster * cluster, next = (i % block + 1) % block, sum = 0;
        for (uint32_t n = 0; n < p.n; n++)
            for (uint32_t r = 0; r < cluster; r++) sum += ((first + r) * 1000 + next + n) * (r + 1);
        assert_int_equal(p.a[i], sum);
    }
    api->release(b.device, p.a);
    drop(&b, &k);
    api->close(b.device);
}

static void clusters_read_each_others_lds(void **state) {
    (void)state;
    check_clusters(8, 8 * (1 + (uint32_t)rand() % 5), 256);
    check_clusters(16, 32, 64);
    check_clusters(2, 14, 33);
    check_clusters(1, 3, 64);
}

/* Three waves take turns: each waits until the one before it has turned its gate's phase, in LDS or
 * among the named. Who has none left meets the workgroup. */
static const char turns_kernel[] =
    "KERNEL { ME; unsigned long *gate = p->m ? me.named : (unsigned long *)me.lds;\n"
    "  unsigned *sum = (unsigned *)(me.lds + 64);\n"
    "  if (me.thread == 0) *sum = 0, gate[0] = 1UL << 63, gate[1] = gate[2] = 0;\n"
    "  ops->barrier();\n"
    "  for (unsigned n = 0; n < p->n + me.wave; n++) {\n"
    "    if (n >= p->n) break;\n"
    "    ops->wave_sync(); ops->await(gate + me.wave, n % 2);\n"
    "    if (me.lane == 0) *sum = *sum * 3 + me.wave;\n"
    "    ops->wave_sync();\n"
    "    if (me.lane == 0) gate[(me.wave + 1) % 3] ^= 1UL << 63;\n"
    "  }\n"
    "  ops->barrier();\n"
    "  if (me.thread == 0) p->a[me.group] = *sum; }";

static void waves_wait_at_gates(void **state) {
    (void)state;
    for (uint32_t named = 0; named < 2; named++) {
        bench b;
        kernel k;
        open_device(&b, "sm90");
        build(&b, &k, turns_kernel);
        params p = {words(&b, 5), NULL, 1 + (uint32_t)rand() % 9, named};
        uint32_t sum = 0;
        for (uint32_t i = 0; i < 3 * p.n; i++) sum = sum * 3 + i % 3;
        launch_ok(&b, &k, 5, 96, &p);
        for (uint32_t i = 0; i < 5; i++) assert_int_equal(p.a[i], sum);
        api->release(b.device, p.a);
        drop(&b, &k);
        api->close(b.device);
    }
}

/* What a launch of `groups` workgroups finds: one or the other, both somewhere. */
static void both_are_found(const char *text, uint32_t groups, uint32_t one, uint32_t other) {
    bench b;
    kernel k;
    open_device(&b, "sm90");
    build(&b, &k, text);
    params p = {words(&b, groups * 64), words(&b, 1), 0, 0};
    int found[2] = {0, 0};
    p.b[0] = 1 + (uint32_t)rand() % 99;
    launch_ok(&b, &k, groups, 64, &p);
    for (uint32_t i = 0; i < groups * 64; i++) {
        assert_true(p.a[i] == one || p.a[i] == other);
        found[p.a[i] == one]++;
    }
    assert_true(found[0] > 0 && found[1] > 0);
    api->release(b.device, p.a);
    api->release(b.device, p.b);
    drop(&b, &k);
    api->close(b.device);
}

/* Wave 0 opens a gate and passes one that is open before it writes what wave 1, behind the first,
 * reads: neither is always ahead. */
static const char race_kernel[] =
    "KERNEL { ME; unsigned long *gate = (unsigned long *)me.lds;\n"
    "  unsigned *word = (unsigned *)(me.lds + 64);\n"
    "  if (me.thread == 0) *word = 0, gate[0] = 0, gate[1] = 1UL << 63;\n"
    "  ops->barrier();\n"
    "  if (me.wave == 0) {\n"
    "    if (me.lane == 0) gate[0] = 1UL << 63;\n"
    "    ops->wave_sync(); ops->await(gate + 1, 0);\n"
    "    if (me.lane == 0) *word = 1;\n"
    "  } else {\n"
    "    ops->wave_sync(); ops->await(gate, 0);\n"
    "    if (me.lane == 0) word[1] = *word;\n"
    "  }\n"
    "  ops->barrier(); p->a[me.group * 64 + me.thread] = word[1]; }";

static void waves_race(void **state) {
    (void)state;
    both_are_found(race_kernel, 200, 0, 1);
}

/* NaN, or a large number. */
static const char poison_kernel[] =
    "KERNEL { ME; p->a[me.group * 64 + me.thread] = ((unsigned *)me.lds)[me.thread]; }";

static void lds_is_poisoned_in_two_ways(void **state) {
    (void)state;
    both_are_found(poison_kernel, 200, ~0u, 0x47474747);
}

/* What a lane has of copies before it waits, behind those of the first group, behind all. */
static const char copy_kernel[] =
    "KERNEL { ME; unsigned *to = (unsigned *)me.lds + me.thread, seen = 0;\n"
    "  to[0] = to[64] = 0;\n"
    "  ops->copy(to, p->b, 4); ops->copies_end(); ops->copy(to + 64, p->b, 4);\n"
    "  seen = to[0] == p->b[0]; ops->copies_done(0);\n"
    "  seen |= (to[0] == p->b[0]) << 1 | (to[64] == p->b[0]) << 2; ops->all_copies_done();\n"
    "  p->a[me.group * 64 + me.thread] = seen | (to[64] == p->b[0]) << 3; }";

static void copies_come_when_they_are_waited_for(void **state) {
    (void)state;
    enum { AT_ONCE = 15, WHEN_WAITED_FOR = 10 };
    both_are_found(copy_kernel, 64, AT_ONCE, WHEN_WAITED_FOR);
}

/* An errand that writes a word and opens a gate: what is there before, and behind the gate. */
static const char errand_kernel[] =
    "struct its { unsigned *word; unsigned long *gate; };\n"
    "static void run(const void *what) {\n"
    "  const its &x = *(const its *)what; *x.word = 1; *x.gate ^= 1UL << 63; }\n"
    "KERNEL { ME; its x = {(unsigned *)(me.lds + 64), (unsigned long *)me.lds};\n"
    "  unsigned *seen = x.word + 1;\n"
    "  if (me.thread == 0) {\n"
    "    *x.word = 0, *x.gate = 0; ops->later(run, &x, sizeof x); *seen = *x.word;\n"
    "  }\n"
    "  ops->barrier(); ops->await(x.gate, 0);\n"
    "  p->a[me.group * 64 + me.thread] = *seen | *x.word << 1; }";

static void errands_are_run_by_themselves(void **state) {
    (void)state;
    enum { AT_ONCE = 3, LATER = 2 };
    both_are_found(errand_kernel, 64, AT_ONCE, LATER);
}

/* Wave 1 waits for what nobody says, and wave 0 at the barrier, or, m, at a barrier of its own. */
static const char shut_kernel[] =
    "KERNEL { ME; unsigned long *gate = (unsigned long *)(me.lds + 8 * p->n);\n"
    "  if (me.thread == 0) *gate = 0;\n"
    "  ops->barrier();\n"
    "  if (me.wave == 1) ops->await(gate, 0);\n"
    "  else if (p->m) ops->await(me.named + p->m, 0);\n"
    "  else ops->barrier(); }";

static void a_gate_that_stays_shut_is_an_error(void **state) {
    (void)state;
    bench b;
    kernel k;
    char place[64];
    open_device(&b, "sm90");
    build(&b, &k, shut_kernel);
    params p = {NULL, NULL, (uint32_t)rand() % 99, 0};
    assert_int_equal(launch(&b, &k, 2, 64, &p, NULL), KGEN_E_DEVICE);
    assert_non_null(strstr(b.err.text, "wave 0 waits at the barrier while wave 1 waits at a gate"));
    snprintf(place, sizeof place, "(byte %u of LDS)", 8 * p.n);
    assert_non_null(strstr(b.err.text, place));
    p.m = 1 + (uint32_t)rand() % 15;
    assert_int_equal(launch(&b, &k, 2, 64, &p, NULL), KGEN_E_DEVICE);
    snprintf(place, sizeof place, "barrier %u", p.m);
    assert_non_null(strstr(b.err.text, place));
    drop(&b, &k);
    api->close(b.device);
}

/* Wave 1 of group n meets the workgroup where others meet the cluster; waves of groups from m on
 * are not there. */
static const char lost_kernel[] =
    "KERNEL { ME; if (me.group >= p->m) return;\n"
    "  if (me.group == p->n && me.wave == 1) ops->barrier(); else ops->cluster_barrier(); }";

static void a_wave_that_misses_its_cluster_is_an_error(void **state) {
    (void)state;
    bench b;
    kernel k;
    char place[64];
    open_device(&b, "sm90");
    build(&b, &k, lost_kernel);
    params p = {NULL, NULL, (uint32_t)rand() % 8, 8};
    assert_int_equal(launch_clusters(&b, &k, 4, 8, 96, &p), KGEN_E_DEVICE);
    snprintf(place, sizeof place, "workgroup %u: wave 1 waits at the barrier while wave ", p.n);
    assert_non_null(strstr(b.err.text, place));
    assert_non_null(strstr(b.err.text, "waits at the cluster's barrier"));
    p = (params){NULL, NULL, 99, 6}; /* who is gone is not waited for */
    assert_int_equal(launch_clusters(&b, &k, 4, 8, 96, &p), KGEN_OK);
    assert_int_equal(launch_clusters(&b, &k, 17, 17, 96, &p), KGEN_E_ARG);
    assert_non_null(strstr(b.err.text, "cluster=17, must be 0 to 16"));
    assert_int_equal(launch_clusters(&b, &k, 4, 10, 96, &p), KGEN_E_ARG);
    assert_non_null(strstr(b.err.text, "divide the grid of 10 workgroups"));
    drop(&b, &k);
    api->close(b.device);
}

/* The last workgroup to arrive adds up what all have written; b[1]: who. */
static const char last_kernel[] =
    "KERNEL { ME; unsigned *s = (unsigned *)me.lds;\n"
    "  if (me.thread == 0) { p->a[me.group] = me.group + 1;\n"
    "    s[0] = __atomic_fetch_add(&p->b[0], 1, __ATOMIC_ACQ_REL); }\n"
    "  ops->barrier(); if (s[0] + 1 != me.groups || me.thread) return;\n"
    "  unsigned sum = 0; for (unsigned i = 0; i < me.groups; i++) sum += p->a[i];\n"
    "  p->b[0] = 0; p->b[1] = me.group; p->b[2] = sum; }";

static void the_last_workgroup_merges(void **state) {
    (void)state;
    enum { GRID = 50, ROUNDS = 40 };
    bench b;
    kernel k;
    uint32_t seen = 0, last = UINT32_MAX;
    open_device(&b, "cdna3");
    build(&b, &k, last_kernel);
    params p = {words(&b, GRID), words(&b, 3), 0, 0};
    assert_int_equal(api->fill(b.device, p.b, 0, 12, NULL, &b.err), KGEN_OK);
    for (int i = 0; i < ROUNDS; i++) {
        memset(p.a, 0xff, GRID * 4);
        launch_ok(&b, &k, GRID, 64, &p);
        assert_int_equal(p.b[0], 0);
        assert_int_equal(p.b[2], GRID * (GRID + 1) / 2);
        seen += p.b[1] != last;
        last = p.b[1];
    }
    assert_true(seen > 2); /* the order is random */
    api->release(b.device, p.a);
    api->release(b.device, p.b);
    drop(&b, &k);
    api->close(b.device);
}

static const char order_kernel[] =
    "KERNEL { ME; if (me.thread == 0)\n"
    "  p->a[__atomic_fetch_add(p->b, 1, __ATOMIC_RELAXED)] = me.group; }";

static void record_order(uint32_t *order, uint32_t grid) {
    bench b;
    kernel k;
    open_device(&b, "cdna3");
    build(&b, &k, order_kernel);
    params p = {words(&b, grid), words(&b, 1), 0, 0};
    p.b[0] = 0;
    launch_ok(&b, &k, grid, 64, &p);
    memcpy(order, p.a, grid * 4);
    api->release(b.device, p.a);
    api->release(b.device, p.b);
    drop(&b, &k);
    api->close(b.device);
}

static void a_seed_repeats_the_order(void **state) {
    (void)state;
    uint32_t first[100], again[100], other[100], hits[100] = {0};
    setenv("KGEN_CPU_THREADS", "1", 1);
    setenv("KGEN_CPU_SEED", "7", 1);
    record_order(first, 100);
    record_order(again, 100);
    setenv("KGEN_CPU_SEED", "8", 1);
    record_order(other, 100);
    unsetenv("KGEN_CPU_SEED");
    unsetenv("KGEN_CPU_THREADS");
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    for (int i = 0; i < 100; i++) hits[first[i]]++;
    for (int i = 0; i < 100; i++) assert_int_equal(hits[i], 1);
}

static const char first_kernel[] =
    "KERNEL { ME; if (me.lane < 2 || me.lane > 61)\n"
    "  p->a[__atomic_fetch_add(p->b, 1, __ATOMIC_RELAXED)] = me.thread; }";

/* What only works in one order of lanes or waves must not pass every time. */
static void lanes_run_in_either_direction(void **state) {
    (void)state;
    enum { WAVES = 4, ROUNDS = 64 };
    uint32_t upwards = 0, began = 0;
    bench b;
    kernel k;
    open_device(&b, "cdna3");
    build(&b, &k, first_kernel);
    params p = {words(&b, WAVES * 4), words(&b, 1), 0, 0};
    for (int i = 0; i < ROUNDS; i++) {
        p.b[0] = 0;
        launch_ok(&b, &k, 1, WAVES * 64, &p);
        assert_int_equal(p.b[0], WAVES * 4);
        upwards += p.a[0] < p.a[1];
        began |= 1u << p.a[0] / 64;
    }
    assert_in_range(upwards, 1, ROUNDS - 1);
    assert_int_equal(began, (1 << WAVES) - 1);
    api->release(b.device, p.a);
    api->release(b.device, p.b);
    drop(&b, &k);
    api->close(b.device);
}

/* ---- failures ----------------------------------------------------------- */

static const char diverge_kernel[] =
    "KERNEL { ME; bool odd = me.group == p->n && me.thread == p->m;\n"
    "  if (odd) ops->barrier(); else ops->wave_sync();\n"
    "  if (odd) ops->wave_sync(); else ops->barrier(); }";

static void divergence_is_an_error(void **state) {
    (void)state;
    char place[64];
    bench b;
    kernel k;
    open_device(&b, "cdna3");
    build(&b, &k, diverge_kernel);
    for (int i = 0; i < 6; i++) {
        params p = {NULL, NULL, (uint32_t)rand() % 20, (uint32_t)rand() % 256};
        assert_int_equal(launch(&b, &k, 20, 256, &p, NULL), KGEN_E_DEVICE);
        assert_int_equal(b.err.status, KGEN_E_DEVICE);
        snprintf(place, sizeof place, "workgroup %u, wave %u: lane %u waits at the barrier", p.n,
                 p.m / 64, p.m % 64);
        assert_non_null(strstr(b.err.text, place));
        p.n = 99; /* no lane diverges: the device still works */
        launch_ok(&b, &k, 20, 256, &p);
    }
    drop(&b, &k);
    api->close(b.device);
}

static void bad_code_is_refused(void **state) {
    (void)state;
    bench b;
    kernel k;
    void *module, *function;
    open_device(&b, "cdna3");
    compile_flag(&k, ids_kernel, "cpu:cdna3", "-O2");
    kgen_entry good = k.entry, bad = good;
#define REFUSED(status, words)                                                              \
    do {                                                                                    \
        assert_int_equal(api->load(b.device, &bad, &module, &function, &b.err), status);    \
        if (!strstr(b.err.text, words)) fail_msg("\"%s\" lacks \"%s\"", b.err.text, words); \
        bad = good;                                                                         \
    } while (0)
    snprintf(bad.symbol, sizeof bad.symbol, "another_kernel");
    REFUSED(KGEN_E_DEVICE, "another_kernel");
    snprintf(bad.target, sizeof bad.target, "gfx942");
    REFUSED(KGEN_E_DEVICE, "gfx942, the device is cpu:cdna3");
    bad.code_size = 0;
    REFUSED(KGEN_E_DEVICE, "(0 bytes)");
    bad.code_size = good.code_size / 2;
    REFUSED(KGEN_E_DEVICE, "test_kernel");
    bad.code_size = 1000;
    REFUSED(KGEN_E_DEVICE, "cut short");
    uint8_t *noise = malloc(good.code_size);
    for (size_t i = 0; i < good.code_size; i++) noise[i] = (uint8_t)rand();
    bad.code = noise;
    REFUSED(KGEN_E_DEVICE, "not a 64-bit shared object");
    memcpy(noise, good.code, 64);
    bad.code = noise;
    REFUSED(KGEN_E_DEVICE, "test_kernel");
    free(noise);
#undef REFUSED
    free(good.code);
    api->close(b.device);
}

static void a_kernel_without_bind_is_refused(void **state) {
    (void)state;
    bench b;
    kernel k;
    void *module, *function;
    open_device(&b, "cdna3");
    compile_flag(&k, ids_kernel, "cpu:cdna3", "-Dkg_cpu_bind=other_bind");
    assert_int_equal(api->load(b.device, &k.entry, &module, &function, &b.err), KGEN_E_DEVICE);
    assert_non_null(strstr(b.err.text, "kg_cpu_bind"));
    free(k.entry.code);
    api->close(b.device);
}

static void bad_requests_are_refused(void **state) {
    (void)state;
    bench b;
    kernel k;
    params p = {0};
    kgen__device *none = NULL;
    open_device(&b, "rdna3");
    assert_int_equal(api->open(&none, 0, "z80", &b.err), KGEN_E_TARGET);
    assert_int_equal(api->open(&none, 1, "cdna3", &b.err), KGEN_E_DEVICE);
    setenv("KGEN_CPU_THREADS", "many", 1);
    assert_int_equal(api->open(&none, 0, "cdna3", &b.err), KGEN_E_ARG);
    assert_non_null(strstr(b.err.text, "KGEN_CPU_THREADS=many"));
    setenv("KGEN_CPU_THREADS", "0", 1);
    assert_int_equal(api->open(&none, 0, "cdna3", &b.err), KGEN_E_ARG);
    unsetenv("KGEN_CPU_THREADS");
    assert_null(none);
    build(&b, &k, ids_kernel);
    assert_int_equal(launch(&b, &k, 0, 64, &p, NULL), KGEN_E_ARG);
    assert_int_equal(launch(&b, &k, 1, 0, &p, NULL), KGEN_E_ARG);
    assert_int_equal(launch(&b, &k, 1, 1025, &p, NULL), KGEN_E_ARG);
    assert_non_null(strstr(b.err.text, "block=1025"));
    drop(&b, &k);
    api->close(b.device);
}

/* ---- graphs ------------------------------------------------------------- */

static const char add_kernel[] = "KERNEL { ME; unsigned i = me.group * me.block + me.thread;\n"
                                 "  p->b[i] += p->a[i] * p->n; }";

static void graphs_replay_on_changed_memory(void **state) {
    (void)state;
    enum { N = 512 };
    bench b;
    kernel k;
    kgen_stream stream;
    void *graph = NULL;
    open_device(&b, "cdna3");
    build(&b, &k, add_kernel);
    assert_int_equal(api->stream_create(b.device, &stream, &b.err), KGEN_OK);
    params p = {words(&b, N), words(&b, N), 3, 0};
    assert_int_equal(api->graph_begin(b.device, stream, &b.err), KGEN_OK);
    assert_int_equal(api->fill(b.device, p.b, 0, N * 4, stream, &b.err), KGEN_OK);
    assert_int_equal(launch(&b, &k, N / 128, 128, &p, stream), KGEN_OK);
    p.n = 5;
    assert_int_equal(launch(&b, &k, N / 128, 128, &p, stream), KGEN_OK);
    p.n = 1000; /* the graph has its own copy */
    assert_int_equal(api->graph_end(b.device, stream, &graph, &b.err), KGEN_OK);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(p.b[i], UINT32_MAX); /* nothing ran */
    for (int round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < N; i++) p.a[i] = (uint32_t)rand();
        assert_int_equal(api->graph_launch(b.device, graph, stream, &b.err), KGEN_OK);
        assert_int_equal(api->stream_sync(b.device, stream, &b.err), KGEN_OK);
        for (uint32_t i = 0; i < N; i++) assert_int_equal(p.b[i], p.a[i] * 8);
    }
    api->graph_free(b.device, graph);
    api->stream_destroy(b.device, stream);
    api->release(b.device, p.a);
    api->release(b.device, p.b);
    drop(&b, &k);
    api->close(b.device);
}

typedef struct outsider {
    bench *b;
    kgen_status status;
} outsider;

static void *alloc_and_free(void *arg) {
    outsider *o = arg;
    void *memory = NULL;
    kgen_error err;
    o->status = api->alloc(o->b->device, &memory, 64, &err);
    api->release(o->b->device, memory);
    return NULL;
}

static void expect_guard(bench *b, kgen_status status, const char *call) {
    assert_int_equal(status, KGEN_E_CAPTURE);
    if (!strstr(b->err.text, call)) fail_msg("\"%s\" does not name %s", b->err.text, call);
}

static void captures_are_guarded(void **state) {
    (void)state;
    bench b;
    kernel k, spare;
    kgen_stream stream, second;
    void *graph = NULL, *empty = NULL, *memory = NULL;
    uint32_t word = 0;
    outsider out = {&b, KGEN_E_INTERNAL};
    pthread_t thread;
    open_device(&b, "cdna3");
    build(&b, &k, add_kernel);
    compile_flag(&spare, add_kernel, "cpu:cdna3", "-O2");
    uint32_t *a = words(&b, 1);
    assert_int_equal(api->stream_create(b.device, &stream, &b.err), KGEN_OK);
    assert_int_equal(api->stream_create(b.device, &second, &b.err), KGEN_OK);
    assert_int_equal(api->graph_end(b.device, stream, &graph, &b.err), KGEN_E_ARG);
    assert_int_equal(api->graph_begin(b.device, NULL, &b.err), KGEN_E_ARG);
    assert_int_equal(api->graph_begin(b.device, second, &b.err), KGEN_OK);
    assert_int_equal(api->graph_end(b.device, second, &empty, &b.err), KGEN_OK);
    assert_false(api->capturing(b.device, NULL));
    assert_int_equal(api->graph_begin(b.device, stream, &b.err), KGEN_OK);
    assert_true(api->capturing(b.device, stream));
    assert_true(api->capturing(b.device, NULL));
    assert_false(api->capturing(b.device, second));
    expect_guard(&b, api->alloc(b.device, &memory, 4, &b.err), "alloc");
    expect_guard(&b, api->write(b.device, a, &word, 4, &b.err), "write");
    expect_guard(&b, api->read(b.device, &word, a, 4, &b.err), "read");
    expect_guard(&b, api->load(b.device, &spare.entry, &memory, &memory, &b.err), "load");
    expect_guard(&b, api->stream_sync(b.device, stream, &b.err), "stream_sync");
    expect_guard(&b, api->graph_begin(b.device, stream, &b.err), "graph_begin");
    expect_guard(&b, api->graph_launch(b.device, empty, stream, &b.err), "graph_launch");
    assert_int_equal(api->graph_launch(b.device, empty, second, &b.err), KGEN_OK);
    pthread_create(&thread, NULL, alloc_and_free, &out);
    pthread_join(thread, NULL);
    assert_int_equal(out.status, KGEN_OK); /* a thread that does not capture */
    assert_int_equal(api->graph_end(b.device, stream, &graph, &b.err), KGEN_OK);
    assert_false(api->capturing(b.device, NULL));
    assert_int_equal(api->read(b.device, &word, a, 4, &b.err), KGEN_OK);
    assert_int_equal(word, UINT32_MAX); /* neither zero nor write came through */
    assert_int_equal(api->graph_begin(b.device, second, &b.err), KGEN_OK);
    api->stream_destroy(b.device, second); /* drops the capture */
    assert_false(api->capturing(b.device, NULL));
    assert_int_equal(api->graph_begin(b.device, stream, &b.err), KGEN_OK);
    api->graph_free(b.device, graph);
    api->graph_free(b.device, empty);
    api->release(b.device, a);
    free(spare.entry.code);
    drop(&b, &k);
    api->close(b.device); /* with `stream` still capturing */
}

/* ---- threads, memory, loading ------------------------------------------- */

typedef struct user {
    bench *b;
    const kernel *k;
    int wrong;
} user;

static void *launch_much(void *arg) {
    enum { N = 2048 };
    user *u = arg;
    bench b = {u->b->device, {0}};
    void *memory[2] = {NULL, NULL};
    kgen_stream stream = NULL;
    for (int i = 0; i < 2; i++) u->wrong |= api->alloc(b.device, &memory[i], N * 4, &b.err);
    u->wrong |= api->stream_create(b.device, &stream, &b.err);
    params p = {memory[0], memory[1], 0, 0};
    for (uint32_t i = 0; i < N; i++) p.a[i] = i;
    for (int round = 0; round < 60 && !u->wrong; round++) {
        u->wrong |= launch(&b, u->k, N / 256, 256, &p, stream);
        for (uint32_t g = 0; g < N / 256; g++)
            u->wrong |= p.b[g] != 256 * (256 * g) + 255 * 256 / 2;
    }
    api->stream_destroy(b.device, stream);
    for (int i = 0; i < 2; i++) api->release(b.device, memory[i]);
    return NULL;
}

static void threads_may_launch_at_once(void **state) {
    (void)state;
    enum { THREADS = 5 };
    bench b[2];
    kernel k[2];
    user users[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < 2; i++) {
        open_device(&b[i], i ? "rdna4" : "cdna3");
        build(&b[i], &k[i], reduce_kernel);
    }
    for (int i = 0; i < THREADS; i++) {
        users[i] = (user){&b[i % 2], &k[i % 2], 0};
        assert_int_equal(pthread_create(&threads[i], NULL, launch_much, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(users[i].wrong);
    }
    for (int i = 0; i < 2; i++) {
        drop(&b[i], &k[i]);
        api->close(b[i].device);
    }
}

static void modules_do_not_mix(void **state) {
    (void)state;
    enum { MODULES = 12 };
    char body[128];
    bench b;
    kernel k[MODULES];
    open_device(&b, "cdna3");
    params p = {words(&b, 1), NULL, 0, 0};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MODULES; i++) {
            snprintf(body, sizeof body, "KERNEL { p->a[0] = %d; }", i + round * 100);
            build(&b, &k[i], body);
            if (i % 3 == 2) drop(&b, &k[i]); /* descriptor numbers come back */
        }
        for (int i = 0; i < MODULES; i++) {
            if (i % 3 == 2) continue;
            launch_ok(&b, &k[i], 1, 1, &p);
            assert_int_equal(p.a[0], i + round * 100);
            drop(&b, &k[i]);
        }
    }
    api->release(b.device, p.a);
    api->close(b.device);
}

static void memory_is_poisoned_and_exact(void **state) {
    (void)state;
    bench b;
    open_device(&b, "cdna3");
    for (size_t bytes = 1; bytes < 5000; bytes += 1 + (size_t)rand() % 700) {
        void *memory = NULL;
        assert_int_equal(api->alloc(b.device, &memory, bytes, &b.err), KGEN_OK);
        unsigned char *at = memory, *copy = malloc(bytes);
        assert_int_equal((uintptr_t)at % 256, 0);
        assert_int_equal(api->read(b.device, copy, at, bytes, &b.err), KGEN_OK);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(copy[i], 0xff);
        memset(copy, 0x5a, bytes);
        assert_int_equal(api->write(b.device, at, copy, bytes, &b.err), KGEN_OK);
        assert_memory_equal(at, copy, bytes);
#ifdef WITH_ASAN
        assert_true(__asan_address_is_poisoned(at - 1));
        assert_false(__asan_address_is_poisoned(at + bytes - 1));
        assert_true(__asan_address_is_poisoned(at + bytes));
#endif
        free(copy);
        api->release(b.device, memory);
    }
    void *nothing = &b;
    assert_int_equal(api->alloc(b.device, &nothing, 0, &b.err), KGEN_OK);
    assert_null(nothing);
#ifndef WITH_ASAN /* which ends the program there by itself */
    assert_int_equal(api->alloc(b.device, &nothing, SIZE_MAX / 2, &b.err), KGEN_E_NOMEM);
    assert_null(nothing);
#endif
    api->release(b.device, NULL);
    api->close(b.device);
}

#ifdef WITH_ASAN
/* n: where a lane stores, m: 0 in a, 1 in LDS, 2 in the exchange. */
static const char overrun_kernel[] =
    "KERNEL { ME; unsigned char *at = p->m == 0 ? (unsigned char *)p->a :\n"
    "  p->m == 1 ? me.lds : me.exchange; if (me.thread == 70) at[p->n] = 0; }";

static int overrun_dies(bench *b, const kernel *k, const params *p) {
    pid_t child = fork();
    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY);
        dup2(quiet, 2);
        _exit(launch(b, k, 1, 128, p, NULL) == KGEN_OK ? 0 : 3);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void overruns_of_kernels_are_seen(void **state) {
    (void)state;
    bench b;
    kernel k;
    open_device(&b, "cdna3");
    compile_flag(&k, overrun_kernel, "cpu:cdna3", "-fsanitize=address");
    if (api->load(b.device, &k.entry, &k.module, &k.function, &b.err) != KGEN_OK) {
        print_message("skipped: clang's and this program's sanitizers do not fit: %s\n",
                      b.err.text);
        free(k.entry.code);
        api->close(b.device);
        skip();
    }
    free(k.entry.code);
    uint32_t sizes[] = {13 * 4, 65536, 64 * 256};
    params p = {words(&b, 13), NULL, 0, 0};
    for (p.m = 0; p.m < 3; p.m++) {
        p.n = sizes[p.m] - 1;
        assert_false(overrun_dies(&b, &k, &p));
        p.n = sizes[p.m];
        assert_true(overrun_dies(&b, &k, &p));
    }
    api->release(b.device, p.a);
    drop(&b, &k);
    api->close(b.device);
}
#endif

/* ---- speed -------------------------------------------------------------- */

static const char spin_kernel[] =
    "KERNEL { for (unsigned i = 0; i < p->n; i++) ops->wave_sync(); }";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void switches_are_counted(void **state) {
    (void)state;
    static const uint32_t blocks[] = {64, 256, 1024};
    bench b;
    kernel k;
    setenv("KGEN_CPU_THREADS", "1", 1);
    open_device(&b, "cdna3");
    unsetenv("KGEN_CPU_THREADS");
    build(&b, &k, spin_kernel);
    for (int i = 0; i < 3; i++) {
        params p = {NULL, NULL, 400000 / blocks[i], 0};
        launch_ok(&b, &k, 1, blocks[i], &p);
        double start = now();
        launch_ok(&b, &k, 4, blocks[i], &p);
        print_message("block %4u: %.1f million fiber switches a second\n", blocks[i],
                      4e-6 * blocks[i] * p.n / (now() - start));
    }
    drop(&b, &k);
    api->close(b.device);
}

static int set_up(void **state) {
    (void)state;
    seed = (unsigned)test_seed();
    srand(seed);
    if (!mkdtemp(folder)) return -1;
    char source[64], object[64];
    snprintf(source, sizeof source, "%s/probe.cpp", folder);
    snprintf(object, sizeof object, "%s/probe.so", folder);
    FILE *file = fopen(source, "w");
    if (!file) return -1;
    fclose(file);
    have_clang = run_clang(source, object, "-O2") == 0;
    unlink(source);
    unlink(object);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_know_where_they_are),
        cmocka_unit_test(barriers_reduce_through_lds),
        cmocka_unit_test(waves_exchange),
        cmocka_unit_test(lds_turns_values_as_gfx950_does),
        cmocka_unit_test(lds_turns_codes_as_gfx950_does),
        cmocka_unit_test(lanes_may_return_early),
        cmocka_unit_test(barriers_count_live_lanes),
        cmocka_unit_test(clusters_read_each_others_lds),
        cmocka_unit_test(waves_wait_at_gates),
        cmocka_unit_test(waves_race),
        cmocka_unit_test(lds_is_poisoned_in_two_ways),
        cmocka_unit_test(copies_come_when_they_are_waited_for),
        cmocka_unit_test(errands_are_run_by_themselves),
        cmocka_unit_test(a_gate_that_stays_shut_is_an_error),
        cmocka_unit_test(a_wave_that_misses_its_cluster_is_an_error),
        cmocka_unit_test(the_last_workgroup_merges),
        cmocka_unit_test(a_seed_repeats_the_order),
        cmocka_unit_test(lanes_run_in_either_direction),
        cmocka_unit_test(divergence_is_an_error),
        cmocka_unit_test(bad_code_is_refused),
        cmocka_unit_test(a_kernel_without_bind_is_refused),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(graphs_replay_on_changed_memory),
        cmocka_unit_test(captures_are_guarded),
        cmocka_unit_test(threads_may_launch_at_once),
        cmocka_unit_test(modules_do_not_mix),
        cmocka_unit_test(memory_is_poisoned_and_exact),
#ifdef WITH_ASAN
        cmocka_unit_test(overruns_of_kernels_are_seen),
#endif
        cmocka_unit_test(switches_are_counted),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

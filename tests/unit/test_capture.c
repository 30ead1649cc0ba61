/* Captured launches: saved as KGEN_CAPTURE asks, read back, launched again on the
 * same device and on another, and what of all that must fail. Tensors of the
 * launches that are captured lie in host memory, which the cpu device takes. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "check/check.h"
#include "runtime/args_rows.h"
#include "runtime/capture/capture_format.h"
#include "did.h"
#include "seed.h"

static const char *const devices[] = {"cpu:cdna3", "cpu:sm90"};
enum { DEVICES = 2, PATH_BYTES = 512, DIGEST = 32 };

static uint64_t seed;
static kgen__rng rng;
static char folder[64];

/* ---- environment and files ----------------------------------------------------- */

static const char *const variables[] = {"KGEN_CAPTURE", "KGEN_CAPTURE_DIR", "KGEN_CAPTURE_SKIP",
                                        "KGEN_CAPTURE_COUNT", "KGEN_CAPTURE_MAX"};

static void clear_environment(void) {
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    setenv("KGEN_CAPTURE_DIR", folder, 1);
}

/* What the contexts told since it was last emptied. */
static char heard[4096];

static void hear(kgen_log_level level, const char *text, void *user) {
    size_t used = strlen(heard);
    assert_ptr_equal(user, heard);
    assert_null(strchr(text, '\n'));
    snprintf(heard + used, sizeof heard - used, "%s%s\n",
             level == KGEN_LOG_WARNING ? "warning: " : "", text);
}

static kgen_context *open_device(const char *device, const char *globs) {
    const kgen_open_options options = {
        .size = sizeof options, .device = device, .log = hear, .log_user = heard};
    kgen_context *ctx = NULL;
    if (globs) setenv("KGEN_CAPTURE", globs, 1);
    DO(kgen_open(&ctx, &options, &did));
    unsetenv("KGEN_CAPTURE");
    return ctx;
}

static int is_file(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* Files in the folder; the last one's path, and all are removed where wanted. */
static int count_files(char path[PATH_BYTES], int remove_them) {
    struct dirent **files = NULL;
    int count = scandir(folder, &files, is_file, alphasort);
    for (int i = 0; i < count; i++) {
        char name[PATH_BYTES];
        snprintf(name, sizeof name, "%s/%s", folder, files[i]->d_name);
        if (path) memcpy(path, name, sizeof name);
        if (remove_them) unlink(name);
        free(files[i]);
    }
    free(files);
    return count;
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

/* ---- a case, ready to launch ------------------------------------------------------ */

typedef struct rig {
    kgen_context *ctx;
    kgen_kernel *kernel;
    kgen_stream stream;
    kgen__data data;
    kgen_args args;
    kgen_args_room room;
    char line[KGEN__CASE_LINE_MAX];
} rig;

static void make_rig(rig *r, const char *device, const char *globs, const kgen__case *drawn) {
    memset(r, 0, sizeof *r);
    kgen__case_print(r->line, drawn);
    r->ctx = open_device(device, globs);
    DO(kgen_prepare(r->ctx, &drawn->spec, 1, &r->kernel, &did));
    DO(kgen__data_make(&r->data, drawn, kgen_kernel_spec(r->kernel), &did));
    DO(kgen__data_fill(&r->data, drawn->seed, &did));
    kgen__data_poison_outputs(&r->data);
    DO(kgen_stream_create(r->ctx, &r->stream, &did));
    kgen_args_copy(&r->args, &r->room, &r->data.args);
    DO(kgen_workspace_size(r->kernel, &r->args, &r->args.workspace_bytes, &did));
    if (!r->args.workspace_bytes) return;
    DO(kgen_memory_alloc(r->ctx, &r->args.workspace, r->args.workspace_bytes, &did));
    DO(kgen_workspace_init(r->ctx, r->args.workspace, r->args.workspace_bytes, r->stream, &did));
}

static void make_line_rig(rig *r, const char *device, const char *globs, const char *line) {
    kgen__case c;
    DO(kgen__case_parse(&c, line, &did));
    kgen__case_draw(&c, kgen__rng_next(&rng) >> 32 | 1);
    make_rig(r, device, globs, &c);
}

static void launch(rig *r) { DO(kgen_launch(r->kernel, &r->args, r->stream, &did)); }

static void free_rig(rig *r) {
    kgen__data_free(&r->data);
    kgen_memory_free(r->ctx, r->args.workspace);
    kgen_stream_destroy(r->ctx, r->stream);
    kgen_close(r->ctx);
}

/* Captures one launch of a case: the file's path. */
static void capture_line(char path[PATH_BYTES], const char *device, const char *line) {
    rig *r = malloc(sizeof *r);
    make_line_rig(r, device, "*", line);
    launch(r);
    free_rig(r);
    free(r);
    assert_int_equal(count_files(path, 0), 1);
}

static kgen_capture *load_line(const char *device, const char *line) {
    char path[PATH_BYTES];
    kgen_capture *c = NULL;
    capture_line(path, device, line);
    DO(kgen_capture_load(&c, path, &did));
    count_files(NULL, 1);
    return c;
}

static kgen_status replay(kgen__replay_result *result, const char *device, const kgen_capture *c,
                          kgen_error *err) {
    kgen_context *ctx = open_device(device, NULL);
    kgen_status status = kgen__replay_run(result, ctx, c, NULL, err);
    kgen_close(ctx);
    return status;
}

/* ---- the rows --------------------------------------------------------------------- */

/* Marks what a row covers; each byte once. */
static size_t cover(char *covered, const char *name, size_t offset, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (covered[offset + i]++) fail_msg("%s: in two rows", name);
    return size;
}

/* A member without a row would be lost in every capture. */
static void check_rows(const kgen_spec *spec, size_t whole) {
    kgen_args args;
    kgen_args_room room;
    kgen_args_init(&args, &room, spec);
    const kgen__args_rows *rows = kgen__args_rows_in(&args);
    char *covered = calloc(1, rows->args_bytes);
    size_t count = 0;
    int tensors = 0;
    for (int i = 0; i < rows->row_count; i++) {
        if (rows->rows[i].flags & KGEN__ROW_FORM) continue;
        count += cover(covered, rows->rows[i].name, rows->rows[i].offset, sizeof(kgen_tensor));
        assert_string_equal(rows->rows[i].name, kgen_args_name(&args, tensors++));
    }
    for (const kgen__number_row *n = rows->numbers; n->name; n++)
        count += cover(covered, n->name, n->offset, n->size);
    /* 4 bytes between or behind numbers are padding, more would be a member */
    assert_true(whole - count <= 8 && whole >= count);
    assert_int_equal(kgen_args_count(&args), tensors);
    assert_null(kgen_args_name(&args, -1));
    free(covered);
}

static void test_every_member_has_a_row(void **state) {
    static const size_t sizes[] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = sizeof(kgen_##name##_args),
#include <kgen/families.def>
    };
    (void)state;
    for (int f = 0; f < KGEN_FAMILY_COUNT; f++)
        if (f != KGEN_FAMILY_SCATTER)
            check_rows(&(kgen_spec){.family = (kgen_family_id)f}, sizes[f]);
#define KGEN_OP(ID, number, name)                                                      \
    check_rows(&(kgen_spec){.family = KGEN_FAMILY_SCATTER, .scatter = {.op = number}}, \
               sizeof(kgen_##name##_args) + 2 * sizeof(kgen_tensor));
#include <kgen/scatter_ops.def>
    assert_int_equal(kgen_args_count(&(kgen_args){.family = KGEN_FAMILY_COUNT}), 0);
}

/* ---- capture, load, replay --------------------------------------------------------- */

/* Not every spec has a kernel on every target. */
static kgen_status covers(const kgen_capture *c, const char *device) {
    const kgen_target *target;
    kgen_spec spec;
    DO(kgen_target_find(&target, device, &did));
    kgen_capture_spec(&spec, c, target, 0);
    return kgen_spec_validate(&spec, target, NULL);
}

/* A launch was captured: 0 where there was nothing to launch. */
static int round_trip(kgen_family_id family, int device, const kgen_target *target) {
    char path[PATH_BYTES];
    kgen_capture *c = NULL;
    kgen__replay_result result;
    kgen__case *drawn = malloc(sizeof *drawn);
    rig *r = malloc(sizeof *r);
    DO(kgen__case_random(drawn, family, &rng, target, 0, &did));
    if (family == KGEN_FAMILY_ATTN) drawn->attn.bad = 0; /* a replay refuses such inputs */
    if (family == KGEN_FAMILY_MLA) drawn->mla.bad = 0;
    if (family == KGEN_FAMILY_GDN) drawn->gdn.astray = 0;
    kgen__case_draw(drawn, kgen__rng_next(&rng) >> 32 | 1);
    make_rig(r, devices[device], "*", drawn);
    launch(r);
    int count = count_files(path, 0);
    if (count) {
        DO(kgen_capture_load(&c, path, &did));
        kgen_status status = kgen__replay_run(&result, r->ctx, c, NULL, &did);
        if (status != KGEN_OK || !result.same_bits || !result.has_reference)
            fail_msg("%s on %s: %s, same bits %d", r->line, devices[device], did.text,
                     result.same_bits);
        kgen_status wanted = covers(c, devices[1 - device]);
        status = replay(&result, devices[1 - device], c, &did);
        if (status != wanted)
            fail_msg("%s of %s on %s: %s", r->line, devices[device], devices[1 - device], did.text);
        if (status == KGEN_OK) assert_true(result.captured_right && result.replay_right);
    }
    kgen_capture_free(c);
    count_files(NULL, 1);
    free_rig(r);
    free(r);
    free(drawn);
    return count;
}

static void test_every_family(void **state) {
    int wanted = test_level() == LEVEL_FULL ? 10 : 1;
    (void)state;
    for (int device = 0; device < DEVICES; device++) {
        const kgen_target *target;
        if (!test_takes(seed, (uint64_t)device, 1, DEVICES)) continue;
        DO(kgen_target_find(&target, devices[device], &did));
        for (int f = 0; f < KGEN_FAMILY_COUNT; f++)
            for (int n = 0, tries = 0; n < wanted; tries++) {
                assert_true(tries < 20 * wanted);
                n += round_trip((kgen_family_id)f, device, target);
            }
    }
}

static void test_what_is_told(void **state) {
    char symbol[KGEN_SYMBOL_MAX], line[KGEN_SPEC_LINE_MAX], again[KGEN_SPEC_LINE_MAX];
    kgen_spec spec, resolved;
    const kgen_target *target;
    (void)state;
    setenv("KGEN_CAPTURE_COUNT", "1", 1);
    kgen_capture *c = load_line("cpu:cdna3", "attn:d=64,g=2 | lens=40,9 hkv=2 scale=0.3");
    DO(kgen_spec_parse(&spec, "attn:d=64,g=2", &did));
    DO(kgen_target_find(&target, "cpu:cdna3", &did));
    DO(kgen_spec_resolve(&resolved, &spec, target, &did));
    kgen_spec_print(line, &resolved);
    kgen_spec_print(again, &c->spec);
    assert_string_equal(line, again);
    kgen_spec_symbol(symbol, &resolved);
    assert_string_equal(c->symbol, symbol);
    assert_string_equal(c->target, "cpu:cdna3");
    assert_non_null(strstr(c->device, "cpu:cdna3"));
    assert_non_null(strstr(c->toolchain, "clang"));
    assert_non_null(strstr(c->environment, "KGEN_CAPTURE_COUNT=1\n"));
    assert_float_equal(c->args.attn->softmax_scale, 0.3f, 0);
    assert_int_equal(c->args.attn->q.shape[0], 2);
    assert_null(c->args.attn->q.data);
    kgen_capture_spec(&spec, c, target, 0);
    assert_int_equal(spec.attn.waves, resolved.attn.waves);
    DO(kgen_target_find(&target, "cpu:sm90", &did));
    kgen_capture_spec(&spec, c, target, 0);
    assert_int_equal(spec.attn.waves, 0);
    kgen_capture_spec(&spec, c, target, 1);
    assert_int_equal(spec.attn.waves, resolved.attn.waves);
    kgen_capture_free(c);
    clear_environment();
}

/* ---- memory ---------------------------------------------------------------------------- */

static const kgen_capture_place *place_of(const kgen_capture *c, const char *name) {
    for (int i = 0; i < kgen_args_count(&c->args); i++)
        if (strcmp(kgen_args_name(&c->args, i), name) == 0) return &c->place[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void test_aliases_stay(void **state) {
    kgen__replay_result result;
    (void)state;
    kgen_capture *c = load_line("cpu:cdna3", "attn:d=64,g=2 | lens=40,9 hkv=2 packed=1");
    assert_int_equal(place_of(c, "k")->region, place_of(c, "v")->region);
    assert_int_equal(place_of(c, "v")->offset - place_of(c, "k")->offset, 64 * 2);
    assert_int_not_equal(place_of(c, "q")->region, place_of(c, "k")->region);
    DO(replay(&result, "cpu:cdna3", c, &did));
    kgen_capture_free(c);

    c = load_line("cpu:sm90", "kv_write:d=64,rope=neox,rq=1 | lens=5,3 cached=9 hkv=2 qh=2 "
                              "packed=1 inplace=1");
    assert_int_equal(place_of(c, "k_cache")->region, place_of(c, "v_cache")->region);
    assert_int_equal(place_of(c, "q")->region, place_of(c, "q_out")->region);
    assert_int_equal(place_of(c, "q")->offset, place_of(c, "q_out")->offset);
    DO(replay(&result, "cpu:sm90", c, &did));
    assert_true(result.same_bits && result.replay_right);
    kgen_context *ctx = open_device("cpu:sm90", NULL);
    kgen_upload *upload = NULL;
    DO(kgen_upload_make(&upload, ctx, c, &did));
    kgen_args args = kgen_upload_args(upload);
    assert_ptr_equal(args.kv_write->q.data, args.kv_write->q_out.data);
    assert_int_equal((char *)args.kv_write->v_cache.data - (char *)args.kv_write->k_cache.data,
                     64 * 2);
    kgen_upload_free(upload);
    kgen_close(ctx);
    kgen_capture_free(c);
}

/* Gives region `i` an outcome of its own, to be changed. */
static uint8_t *own_outcome(kgen_capture *c, size_t i, uint8_t **kept) {
    *kept = malloc(c->regions[i].size + 1);
    memcpy(*kept, c->regions[i].after, c->regions[i].size);
    c->regions[i].after = *kept;
    return *kept;
}

/* Slot by slot into a block of pages. */
static void move_slots(kgen_tensor *t, char *block, size_t page) {
    size_t size = (size_t)kgen_dtype_size(t->dtype);
    size_t each = (size_t)(t->shape[1] * t->stride[1]) * size;
    for (int64_t n = 0; n < t->shape[0]; n++)
        memcpy(block + (size_t)n * page, (char *)t->data + (size_t)(n * t->stride[0]) * size, each);
    t->data = block;
    t->stride[0] = (int64_t)(page / size);
}

/* A page holds a slot of the convolution state and one of the recurrent state, as
 * engines lay them out: each lies in the gaps of the other, and both are written. */
static void test_states_that_interleave(void **state) {
    enum { CONV_AT = 64, STATE_AT = 4096, PAGE = STATE_AT + 2 * 64 * 64 * 4 + 128 };
    char path[PATH_BYTES];
    kgen_capture *c = NULL;
    kgen__replay_result result;
    rig *r = malloc(sizeof *r);
    (void)state;
    make_line_rig(r, "cpu:cdna3", "*",
                  "gdn:fuse=e,layout=flat,hk=1,hv=2,dk=64,dv=64,state=f32 | "
                  "seqs=3 extra=1");
    kgen_gdn_args *a = r->args.gdn;
    size_t bytes = (size_t)a->state.shape[0] * PAGE;
    char *block = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(block, 0x3c, bytes);
    assert_true(CONV_AT + a->conv_state.shape[1] * a->conv_state.stride[1] *
                              kgen_dtype_size(a->conv_state.dtype) <=
                STATE_AT);
    move_slots(&a->conv_state, block + CONV_AT, PAGE);
    move_slots(&a->state, block + STATE_AT, PAGE);
    launch(r);
    assert_int_equal(count_files(path, 0), 1);
    DO(kgen_capture_load(&c, path, &did));
    count_files(NULL, 1);
    const kgen_capture_place *conv = place_of(c, "conv_state"), *whole = place_of(c, "state");
    assert_int_equal(conv->region, whole->region);
    assert_int_equal(whole->offset - conv->offset, STATE_AT - CONV_AT);
    DO(replay(&result, "cpu:cdna3", c, &did));
    assert_true(result.same_bits && result.has_reference && result.replay_right);
    DO(replay(&result, "cpu:sm90", c, &did));
    uint8_t *kept, *after = own_outcome(c, (size_t)conv->region, &kept);
    after[whole->offset + 2 * 64 * 64 * 4 + 1] ^= 1; /* between two slots */
    assert_int_equal(replay(&result, "cpu:cdna3", c, &did), KGEN_E_MISMATCH);
    assert_non_null(strstr(did.text, "must stay"));
    free(kept);
    kgen_capture_free(c);
    free(block);
    free_rig(r);
    free(r);
}

/* The rig's launch, which one file has and whose replay is right. */
static kgen_capture *capture_right_launch(rig *r) {
    char path[PATH_BYTES];
    kgen__replay_result result;
    kgen_capture *c = NULL;
    launch(r);
    assert_int_equal(count_files(path, 0), 1);
    DO(kgen_capture_load(&c, path, &did));
    count_files(NULL, 1);
    DO(replay(&result, "cpu:cdna3", c, &did));
    assert_true(result.same_bits && result.has_reference && result.replay_right);
    return c;
}

/* [T][H D], as engines have outputs, is compared as [T][H][D]: also a wrong one is seen. */
static void check_joined(const char *line, size_t out_at) {
    kgen__replay_result result;
    rig *r = malloc(sizeof *r);
    make_line_rig(r, "cpu:cdna3", "*", line);
    kgen_tensor *out = (kgen_tensor *)((char *)r->args.any + out_at);
    out->rank = 2;
    out->shape[1] *= out->shape[2];
    out->stride[1] = 1;
    kgen_capture *c = capture_right_launch(r);
    const kgen_capture_place *place = place_of(c, "out");
    uint8_t *kept, *after = own_outcome(c, (size_t)place->region, &kept);
    after[place->offset + (size_t)out->shape[1] * 2 - 1] ^= 0x40; /* an exponent */
    assert_int_equal(replay(&result, "cpu:cdna3", c, &did), KGEN_E_MISMATCH);
    free(kept);
    kgen_capture_free(c);
    free_rig(r);
    free(r);
}

static void test_joined_outputs(void **state) {
    (void)state;
    check_joined("attn:d=64,g=2 | lens=40,9 hkv=2 qpad=2", offsetof(kgen_attn_args, out));
    check_joined("mla:l=128,r=64,h=2,page=16 | lens=40,9", offsetof(kgen_mla_args, out));
    check_joined("gdn:fuse=a,layout=presplit,hk=1,hv=2,dk=64,dv=64 | seqs=3 outpad=8",
                 offsetof(kgen_gdn_args, out));
}

/* A pool without pages, of which torch gives no address, is of its type and sizes all the same. */
static void test_empty_tensors_stay(void **state) {
    rig *r = malloc(sizeof *r);
    (void)state;
    make_line_rig(r, "cpu:cdna3", "*", "attn:d=64,g=2 | lens=0,0 hkv=2");
    kgen_attn_args *a = r->args.attn;
    a->k.data = a->v.data = NULL;
    a->k.shape[0] = a->v.shape[0] = 0;
    kgen_capture_free(capture_right_launch(r));
    free_rig(r);
    free(r);
}

/* The outputs are poisoned alike, and inputs are what they were. */
static void test_equal_bytes_are_kept_once(void **state) {
    (void)state;
    kgen_capture *c = load_line("cpu:cdna3", "kv_gather:d=64 | cached=40,9 lens=20,9 hkv=2");
    const kgen_capture_region *k = &c->regions[place_of(c, "k")->region];
    const kgen_capture_region *v = &c->regions[place_of(c, "v")->region];
    const kgen_capture_region *cache = &c->regions[place_of(c, "k_cache")->region];
    assert_ptr_not_equal(k, v);
    assert_int_equal(k->size, v->size);
    assert_ptr_equal(k->before, v->before);
    assert_ptr_not_equal(k->after, v->after);
    assert_ptr_equal(cache->before, cache->after);
    kgen_capture_free(c);
}

/* kv_compact whose pools are addresses: memory that no tensor names. */
static void test_pools_by_address(void **state) {
    enum { SLOTS = 6, TOKEN = 32, POOLS = 2, POOL = SLOTS * TOKEN, APART = POOL + 64 };
    static const int32_t from[] = {2, 4, -1}, to[] = {1, 2, 3};
    _Alignas(16) static uint8_t pools[POOLS * APART];
    int64_t addresses[POOLS] = {(int64_t)(intptr_t)pools, (int64_t)(intptr_t)&pools[APART]};
    const int64_t shape[] = {1, 3}, two = POOLS;
    kgen_context *ctx = open_device("cpu:cdna3", "*");
    kgen__replay_result result;
    kgen_capture *c = NULL;
    kgen_kernel *kernel;
    kgen_spec spec;
    char path[PATH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof pools; i++) pools[i] = (uint8_t)kgen__rng_next(&rng);
    DO(kgen_spec_parse(&spec, "scatter:op=kv_compact,loc=i32", &did));
    DO(kgen_prepare(ctx, &spec, 1, &kernel, &did));
    kgen_args args;
    kgen_args_room room;
    kgen_args_init(&args, &room, &spec);
    args.scatter->kv_compact = (kgen_kv_compact_args){
        .pools = kgen_tensor_dense(addresses, KGEN_DTYPE_I64, 1, &two),
        .sources = kgen_tensor_dense((void *)(uintptr_t)from, KGEN_DTYPE_I32, 2, shape),
        .targets = kgen_tensor_dense((void *)(uintptr_t)to, KGEN_DTYPE_I32, 2, shape),
        .slot_count = SLOTS,
        .page_bytes = TOKEN,
        .token_bytes = TOKEN,
        .piece_bytes = TOKEN,
        .pieces = 1};
    DO(kgen_launch(kernel, &args, NULL, &did));
    assert_int_equal(count_files(path, 0), 1);
    DO(kgen_capture_load(&c, path, &did));
    count_files(NULL, 1);
    assert_int_equal(c->address_count, POOLS);
    assert_int_equal(c->regions[c->addresses[1].at.region].size, POOL);
    memset(pools, 0, sizeof pools); /* the replay has pools of its own */
    DO(kgen__replay_run(&result, ctx, c, NULL, &did));
    assert_true(result.same_bits && result.has_reference && result.replay_right);
    for (size_t i = 0; i < sizeof pools; i++) assert_int_equal(pools[i], 0);
    c->blobs[c->blob_count - 1][0] ^= 1; /* what is in no tensor is judged too */
    assert_int_equal(kgen__replay_run(&result, ctx, c, NULL, &did), KGEN_E_MISMATCH);
    kgen_capture_free(c);
    kgen_close(ctx);
}

/* ---- wrong launches ----------------------------------------------------------------------- */

static const char *const small_cases[] = {
    "attn:d=64,g=2,lse=1 | lens=40,9 hkv=2",
    "gdn:layout=flat,hk=1,hv=2,dk=64,dv=64 | seqs=2",
    "scatter:op=page_table_requests | seqs=3 lens=20,33,5",
    "kv_write:d=64,kv=e4m3fn | lens=5,3 cached=9 hkv=2",
    "kv_gather:d=64 | cached=40,9 lens=20,9 hkv=2",
    "attn_merge:d=64 | tokens=9 heads=2",
};
enum { CASES = sizeof small_cases / sizeof small_cases[0] };

static void expect_wrong(const kgen_capture *c, const char *line, const char *words) {
    kgen__replay_result result;
    kgen_error err = {KGEN_OK, ""};
    kgen_status status = replay(&result, "cpu:cdna3", c, &err);
    if (status != KGEN_E_MISMATCH || result.captured_right || !result.replay_right ||
        result.same_bits ||
        !strstr(err.text, "the captured launch was wrong, the replay is right") ||
        (words && !strstr(err.text, words)))
        fail_msg("%s: status %d, %s; %s expected", line, (int)status, err.text,
                 words ? words : "a mismatch");
}

static void test_altered_outcomes_are_found(void **state) {
    (void)state;
    for (int n = 0; n < CASES; n++) {
        kgen_capture *c = load_line("cpu:cdna3", small_cases[n]);
        int written = 0, unwritten = 0;
        for (size_t i = 0; i < c->region_count; i++) {
            kgen_capture_region *r = &c->regions[i], saved = *r;
            uint8_t *kept, *after = own_outcome(c, i, &kept);
            int changed = saved.before != saved.after;
            if (changed && !written++) { /* everything that was written */
                for (size_t at = 0; at < r->size; at++)
                    if (after[at] != r->before[at]) after[at] = (uint8_t)~after[at];
                expect_wrong(c, small_cases[n], NULL);
            } else if (!changed && r->size && !unwritten++) { /* one byte that was not */
                after[kgen__rng_range(&rng, 0, (int64_t)r->size - 1)] ^= 0x10;
                expect_wrong(c, small_cases[n], "must stay");
            }
            *r = saved;
            free(kept);
        }
        assert_true(written && unwritten);
        kgen_capture_free(c);
    }
}

/* Numbers that would lead a kernel out of its tensors. */
static void test_inputs_that_lead_astray(void **state) {
    static const struct {
        const char *line, *tensor, *words;
        int32_t index, value;
    } rows[] = {
        {"attn:d=64,g=2 | lens=40,9 hkv=2", "block_table", "block_table[0][1]=1000", 1, 1000},
        {"attn:d=64,g=2 | lens=40,9 hkv=2", "block_table", "block_table[0][0]=-1", 0, -1},
        {"attn:d=64,g=2 | lens=40,9 hkv=2", "seq_lens", "seq_lens[1]=99999", 1, 99999},
        {"attn:phase=verify,d=64,g=2,t=3 | lens=40,9 hkv=2", "cu_seqlens_q", "cu_seqlens_q[1]=5", 1,
         5},
        {"gdn:layout=flat,hk=1,hv=2,dk=64,dv=64,t=2,varlen=1,save=slots,index=spec,accept=1 | "
         "seqs=2",
         "cu_seqlens", "cu_seqlens[2]=1", 2, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kgen__replay_result result;
        kgen_error err = {KGEN_OK, ""};
        kgen_capture *c = load_line("cpu:cdna3", rows[i].line);
        const kgen_capture_place *place = place_of(c, rows[i].tensor);
        uint8_t *bytes = (uint8_t *)(uintptr_t)c->regions[place->region].before;
        memcpy(bytes + place->offset + (size_t)rows[i].index * 4, &rows[i].value, 4);
        kgen_status status = replay(&result, "cpu:cdna3", c, &err);
        if (status != KGEN_E_ARG || !strstr(err.text, rows[i].words))
            fail_msg("%s: status %d, %s", rows[i].words, (int)status, err.text);
        kgen_capture_free(c);
    }
}

/* ---- damaged files -------------------------------------------------------------------------- */

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 64);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static kgen_status load_bytes(const uint8_t *bytes, size_t size, kgen_capture **out,
                              kgen_error *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/.damaged", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(bytes, 1, size, file);
    fclose(file);
    *out = NULL;
    return kgen_capture_load(out, path, err);
}

static void expect_damaged(const uint8_t *bytes, size_t size, const char *how, size_t at) {
    kgen_capture *c;
    kgen_error err = {KGEN_OK, ""};
    kgen_status status = load_bytes(bytes, size, &c, &err);
    if (status != KGEN_E_IO || !strstr(err.text, "capture"))
        fail_msg("%s at %zu: status %d, %s", how, at, (int)status, err.text);
}

static void test_damaged_files(void **state) {
    enum { FLIPS = 300, CUTS = 100 };
    char path[PATH_BYTES];
    kgen_capture *c;
    size_t size;
    (void)state;
    capture_line(path, "cpu:cdna3", small_cases[2]);
    uint8_t *bytes = read_file(path, &size);
    count_files(NULL, 1);
    DO(load_bytes(bytes, size, &c, &did));
    kgen_capture_free(c);
    for (int i = 0; i < FLIPS; i++) { /* the first bytes one by one, then anywhere */
        size_t at = i < 64 ? (size_t)i : (size_t)kgen__rng_range(&rng, 0, (int64_t)size - 1);
        uint8_t bit = (uint8_t)(1 << kgen__rng_range(&rng, 0, 7));
        bytes[at] ^= bit;
        expect_damaged(bytes, size, "a flipped bit", at);
        bytes[at] ^= bit;
    }
    for (int i = 0; i < CUTS; i++) {
        size_t at = i < 64 ? (size_t)i : (size_t)kgen__rng_range(&rng, 0, (int64_t)size - 1);
        expect_damaged(bytes, at, "a cut", at);
    }
    bytes[size] = 0;
    expect_damaged(bytes, size + 1, "a byte more", size);
    assert_int_equal(kgen_capture_load(&c, folder, &did), KGEN_E_IO);
    assert_int_equal(kgen_capture_load(&c, "/no/such/file", &did), KGEN_E_IO);
    free(bytes);
}

static void seal(uint8_t *bytes, size_t size) {
    crypto_generichash(bytes + size - DIGEST, DIGEST, bytes, size - DIGEST, NULL, 0);
}

/* Headers that somebody made up, with a digest that agrees: nothing but refusals,
 * and what is taken can be launched, judged, and lies in its regions. */
static void test_made_up_headers(void **state) {
    enum { ROUNDS = 200 };
    static const char letters[] = "0123456789-\"[],";
    kgen_context *ctx = open_device("cpu:cdna3", NULL);
    int taken = 0, refused = 0;
    (void)state;
    for (int n = 0; n < CASES; n++) {
        char path[PATH_BYTES];
        kgen_capture *c;
        size_t size;
        capture_line(path, "cpu:cdna3", small_cases[n]);
        uint8_t *bytes = read_file(path, &size);
        count_files(NULL, 1);
        uint32_t header = bytes[12] | (uint32_t)bytes[13] << 8 | (uint32_t)bytes[14] << 16;
        char *text = (char *)bytes + KGEN__CAPTURE_FIXED, *numbers = strstr(text, "\"numbers\"");
        int64_t first = numbers - text;
        for (int i = 0; i < ROUNDS / CASES; i++) {
            char *at = text + kgen__rng_range(&rng, first, (int64_t)header - 1), kept = *at;
            if (kept < '0' || kept > '9') continue;
            *at = letters[kgen__rng_range(&rng, 0, (int64_t)sizeof letters - 2)];
            seal(bytes, size);
            kgen_error err = {KGEN_OK, ""};
            if (load_bytes(bytes, size, &c, &err) == KGEN_OK) {
                kgen__replay_result result;
                kgen__replay_run(&result, ctx, c, NULL, &err);
                kgen_capture_free(c);
                taken++;
            } else {
                refused++;
            }
            *at = kept;
        }
        free(bytes);
    }
    kgen_close(ctx);
    assert_true(taken > 0 && refused > 0);
}

static void test_headers_that_ask_for_too_much(void **state) {
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"\"blobs\":[{\"size\":", "\"blobs\":[{\"size\":9"},
        {"\"spec\":\"scatter:", "\"spec\":\"scatterx"},
        {"\"regions\":[{\"phase\":", "\"regions\":[{\"phase\":9999"},
        {"\"place\":[", "\"place\":[9"},
        {"\"shape\":[", "\"shape\":[99999"},
        {"\"dtype\":\"i", "\"dtype\":\"x"},
        {"\"environment\":{", "\"environment\":{\"KGEN_X\":1,"},
        {"\"numbers\":{", "\"numbersx\":{"},
    };
    char path[PATH_BYTES];
    size_t size;
    (void)state;
    capture_line(path, "cpu:cdna3", small_cases[2]);
    uint8_t *bytes = read_file(path, &size);
    count_files(NULL, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t from = strlen(rows[i].from), to = strlen(rows[i].to), more = to - from;
        uint8_t *changed = malloc(size + more);
        const uint8_t *at = memmem(bytes, size, rows[i].from, from);
        assert_non_null(at);
        size_t before = (size_t)(at - bytes);
        memcpy(changed, bytes, before);
        memcpy(changed + before, rows[i].to, to);
        memcpy(changed + before + to, at + from, size - before - from);
        uint64_t header = 0, total = size + more;
        memcpy(&header, changed + 12, 4);
        header += more;
        memcpy(changed + 12, &header, 4);
        memcpy(changed + 16, &total, 8);
        seal(changed, total);
        kgen_capture *c;
        kgen_error err = {KGEN_OK, ""};
        kgen_status status = load_bytes(changed, total, &c, &err);
        if (status != KGEN_E_IO && status != KGEN_E_SPEC)
            fail_msg("%s: status %d, %s", rows[i].to, (int)status, err.text);
        free(changed);
    }
    bytes[8] = 7; /* a format of tomorrow */
    seal(bytes, size);
    kgen_capture *c;
    assert_int_equal(load_bytes(bytes, size, &c, &did), KGEN_E_IO);
    assert_non_null(strstr(did.text, "format 7"));
    free(bytes);
}

/* zstd says gigabytes in a few bytes: the sum of what a file declares is bounded first. */
static void test_a_bomb_is_not_unpacked(void **state) {
    char path[PATH_BYTES];
    kgen_capture *c;
    size_t size;
    (void)state;
    capture_line(path, "cpu:cdna3", small_cases[2]);
    uint8_t *bytes = read_file(path, &size);
    count_files(NULL, 1);
    setenv("KGEN_CAPTURE_MAX", "16", 1);
    kgen_status status = load_bytes(bytes, size, &c, &did);
    unsetenv("KGEN_CAPTURE_MAX");
    assert_int_equal(status, KGEN_E_IO);
    assert_non_null(strstr(did.text, "more than 16 bytes of a launch; KGEN_CAPTURE_MAX"));
    free(bytes);
}

/* ---- what is captured --------------------------------------------------------------------- */

static const char *const plain_case = "attn:d=64,g=2 | lens=40,9 hkv=2";

static void test_globs(void **state) {
    static const struct {
        const char *globs;
        int files;
    } rows[] = {
        {"kg_gdn_*", 0},        {"kg_attn_*", 1},   {"attn:*", 1}, {"*d=64?*g=2*", 1},
        {"kg_gdn_*,attn:*", 1}, {"kg_attn_*,*", 1}, {"attn", 0},   {"*d=128*", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rig *r = malloc(sizeof *r);
        make_line_rig(r, "cpu:cdna3", rows[i].globs, plain_case);
        launch(r);
        launch(r);
        if (count_files(NULL, 1) != rows[i].files)
            fail_msg("%s: %d files expected", rows[i].globs, rows[i].files);
        free_rig(r);
        free(r);
    }
}

/* Launches of a kernel, and how many of them are saved. */
static void test_skip_and_count(void **state) {
    static const struct {
        const char *skip, *count;
        int launches, files;
    } rows[] = {
        {"0", "1", 3, 1}, {"1", "1", 1, 0}, {"1", "1", 4, 1}, {"2", "3", 4, 2}, {"0", "9", 4, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rig *r = malloc(sizeof *r);
        setenv("KGEN_CAPTURE_SKIP", rows[i].skip, 1);
        setenv("KGEN_CAPTURE_COUNT", rows[i].count, 1);
        make_line_rig(r, "cpu:cdna3", "*", plain_case);
        for (int n = 0; n < rows[i].launches; n++) launch(r);
        assert_int_equal(count_files(NULL, 1), rows[i].files);
        free_rig(r);
        free(r);
    }
    clear_environment();
}

static void test_a_launch_too_large(void **state) {
    rig *r = malloc(sizeof *r);
    (void)state;
    setenv("KGEN_CAPTURE_MAX", "1K", 1);
    make_line_rig(r, "cpu:cdna3", "*", plain_case);
    heard[0] = 0;
    launch(r);
    launch(r);
    assert_int_equal(count_files(NULL, 1), 0);
    assert_int_equal(count_of(heard, "warning"), 1);
    assert_non_null(strstr(heard, "KGEN_CAPTURE_MAX"));
    assert_non_null(strstr(heard, "1024"));
    kgen__check_result result;
    DO(kgen__data_compare(&result, &r->data, &did)); /* launched all the same */
    free_rig(r);
    free(r);
    clear_environment();
}

static void test_a_folder_that_went_away(void **state) {
    char gone[PATH_BYTES];
    rig *r = malloc(sizeof *r);
    (void)state;
    snprintf(gone, sizeof gone, "%s/gone", folder);
    mkdir(gone, 0700);
    setenv("KGEN_CAPTURE_DIR", gone, 1);
    make_line_rig(r, "cpu:cdna3", "*", plain_case);
    rmdir(gone);
    heard[0] = 0;
    launch(r);
    assert_int_equal(count_of(heard, "warning"), 1);
    assert_non_null(strstr(heard, gone));
    free_rig(r);
    free(r);
    clear_environment();
}

static void test_graphs_are_not_captured(void **state) {
    kgen_graph *graph = NULL;
    rig *r = malloc(sizeof *r);
    (void)state;
    make_line_rig(r, "cpu:cdna3", "*", plain_case);
    heard[0] = 0;
    DO(kgen_graph_begin(r->ctx, r->stream, &did));
    launch(r);
    launch(r);
    DO(kgen_graph_end(r->ctx, r->stream, &graph, &did));
    DO(kgen_graph_launch(graph, r->stream, &did));
    assert_int_equal(count_files(NULL, 1), 0);
    assert_int_equal(count_of(heard, "warning"), 1);
    assert_non_null(strstr(heard, "kg_attn_decode"));
    assert_non_null(strstr(heard, "eager"));
    launch(r); /* that one is still to be had */
    assert_int_equal(count_files(NULL, 1), 1);
    kgen_graph_free(graph);
    free_rig(r);
    free(r);
}

static void test_bad_variables(void **state) {
    static const char *const rows[][2] = {
        {"KGEN_CAPTURE_SKIP", "-1"},
        {"KGEN_CAPTURE_SKIP", "x"},
        {"KGEN_CAPTURE_SKIP", "1K"},
        {"KGEN_CAPTURE_COUNT", "0"},
        {"KGEN_CAPTURE_COUNT", "1.5"},
        {"KGEN_CAPTURE_COUNT", "99999999999999999999999"},
        {"KGEN_CAPTURE_MAX", "0"},
        {"KGEN_CAPTURE_MAX", "2T"},
        {"KGEN_CAPTURE_MAX", "9999999G"},
        {"KGEN_CAPTURE_MAX", "1KB"},
        {"KGEN_CAPTURE_MAX", " 1"},
        {"KGEN_CAPTURE_DIR", "/no/such/folder"},
        {"KGEN_CAPTURE_DIR", "README.md"},
        {"KGEN_CAPTURE", "a,,b"},
        {"KGEN_CAPTURE", ",a"},
        {"KGEN_CAPTURE", "a,"},
    };
    const kgen_open_options options = {.size = sizeof options, .device = "cpu:cdna3"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kgen_context *ctx = NULL;
        kgen_error err = {KGEN_OK, ""};
        char setting[PATH_BYTES];
        setenv("KGEN_CAPTURE", "*", 1);
        setenv(rows[i][0], rows[i][1], 1);
        snprintf(setting, sizeof setting, "%s=%s", rows[i][0], rows[i][1]);
        kgen_status status = kgen_open(&ctx, &options, &err);
        if (status != KGEN_E_ARG || !strstr(err.text, setting))
            fail_msg("%s: status %d, %s", setting, (int)status, err.text);
        clear_environment();
    }
    setenv("KGEN_CAPTURE_SKIP", "x", 1); /* asked for nothing: nothing to complain about */
    kgen_close(open_device("cpu:cdna3", NULL));
    kgen_close(open_device("cpu:cdna3", ""));
    clear_environment();
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kgen-capture-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    clear_environment();
    return 0;
}

static int tear_down(void **state) {
    char path[PATH_BYTES];
    static const char *const hidden[] = {".damaged", ".stderr"};
    (void)state;
    count_files(NULL, 1);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, hidden[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_member_has_a_row),
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_aliases_stay),
        cmocka_unit_test(test_states_that_interleave),
        cmocka_unit_test(test_joined_outputs),
        cmocka_unit_test(test_empty_tensors_stay),
        cmocka_unit_test(test_equal_bytes_are_kept_once),
        cmocka_unit_test(test_pools_by_address),
        cmocka_unit_test(test_altered_outcomes_are_found),
        cmocka_unit_test(test_inputs_that_lead_astray),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_made_up_headers),
        cmocka_unit_test(test_headers_that_ask_for_too_much),
        cmocka_unit_test(test_a_bomb_is_not_unpacked),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_skip_and_count),
        cmocka_unit_test(test_a_launch_too_large),
        cmocka_unit_test(test_a_folder_that_went_away),
        cmocka_unit_test(test_graphs_are_not_captured),
        cmocka_unit_test(test_bad_variables),
    };
    seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

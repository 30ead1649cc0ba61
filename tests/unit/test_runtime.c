/* Open, prepare, launch on the cpu device, with the real compiler: what works,
 * and every argument that a launch refuses. Tensors lie in host memory. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <kgen/kgen.h>

#include "check/check.h"
#include "did.h"
#include "seed.h"

#define DEVICE "cpu:cdna3"

enum { HEAD_BYTES = 256 + (1 << 21) };

static uint64_t seed;
static kgen_context *shared; /* compiles into the tests' cache */
static char folder[] = "/tmp/kgen-runtime-XXXXXX";

/* ---- a case, ready to launch --------------------------------------------- */

typedef struct rig {
    kgen_context *ctx;
    kgen_kernel *kernel;
    kgen_stream stream;
    kgen__data data;
    kgen_args args; /* of data, with a workspace */
    kgen_args_room room;
    void *workspace;
} rig;

/* Has everything that a spec can have. */
#define ALL                                                                                        \
    "attn:phase=verify,kv=fp8,o=fp8,d=64,g=2,t=4,page=x16,layout=hnd,table=i64,window=rt,keep=rt," \
    "softcap=1,alibi=1,sinks=1,gate=bf16,spans=1,lse=1,descale=token"
#define PLAIN "attn:d=64,g=2"
#define SHUFFLE "attn:q=fp8,d=64,g=2,page=32,layout=shuffle,kv=fp8,descale=head"
#define XPACKED "attn:d=64,g=2,layout=xpacked"
#define ONE "attn:d=64,page=1"

static const char *const cases[] = {
    PLAIN " | lens=50,0,17 hkv=2 cols=3",
    ALL " | lens=70,33,2 qlens=4,0,3 hkv=2 page=32 window=20 tail=2 cols=2 kds=token vds=htoken",
    SHUFFLE " | lens=40,65 hkv=2 kds=seq vds=head",
    XPACKED " | lens=40,65 hkv=2",
    ONE " | lens=5,9 hkv=3",
};

static kgen__case case_of(const char *line) {
    kgen__case c;
    kgen_error err;
    if (kgen__case_parse(&c, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    kgen__case_draw(&c, seed);
    return c;
}

static void refill(rig *r, const int32_t *lens, const int32_t *qlens, uint64_t from) {
    DO(kgen__attn_data_fill(&r->data, lens, qlens, from, &did));
}

static void refill_first(rig *r, const kgen__case *c) {
    int32_t lens[KGEN__CASE_SEQS_MAX], qlens[KGEN__CASE_SEQS_MAX];
    for (int32_t s = 0; s < c->seqs; s++) {
        lens[s] = c->attn.lens[s].high;
        qlens[s] = c->attn.qlens[s].high;
    }
    refill(r, lens, qlens, c->seed);
}

static kgen_kernel *prepared(kgen_context *ctx, const kgen_spec *spec) {
    kgen_kernel *kernel = NULL;
    DO(kgen_prepare(ctx, spec, 1, &kernel, &did));
    assert_non_null(kernel);
    return kernel;
}

static void make_workspace(rig *r) {
    size_t bytes;
    DO(kgen_workspace_size(r->kernel, &r->args, &bytes, &did));
    DO(kgen_memory_alloc(r->ctx, &r->workspace, bytes, &did));
    DO(kgen_workspace_init(r->ctx, r->workspace, bytes, r->stream, &did));
    r->args.workspace = r->workspace;
    r->args.workspace_bytes = bytes;
}

static void make_rig(rig *r, kgen_context *ctx, const char *line) {
    kgen__case c = case_of(line);
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    r->kernel = prepared(ctx, &c.spec);
    DO(kgen_stream_create(ctx, &r->stream, &did));
    DO(kgen__data_make(&r->data, &c, kgen_kernel_spec(r->kernel), &did));
    refill_first(r, &c);
    kgen_args_copy(&r->args, &r->room, &r->data.args);
    make_workspace(r);
}

static void free_rig(rig *r) {
    kgen_memory_free(r->ctx, r->workspace);
    kgen_stream_destroy(r->ctx, r->stream);
    kgen__data_free(&r->data);
}

static void launch(rig *r) {
    kgen__data_poison_outputs(&r->data);
    DO(kgen_launch(r->kernel, &r->args, r->stream, &did));
    DO(kgen_stream_sync(r->ctx, r->stream, &did));
}

static void compare(rig *r) {
    kgen__attn_answer answer;
    kgen__check_result result;
    DO(kgen__attn_reference(&answer, &r->data.spec, r->data.args.attn, &did));
    kgen_error why = {KGEN_OK, ""};
    kgen_status status = kgen__attn_compare(&result, &r->data, &answer, &why);
    kgen__attn_free(&answer);
    if (status != KGEN_OK) fail_msg("%s (seed %" PRIu64 ")", why.text, seed);
}

/* Both outputs with their guards, one behind the other. */
static unsigned char *outputs_of(const rig *r, size_t *size) {
    unsigned char *copy = NULL;
    *size = 0;
    for (int i = 0; i < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_ATTN}); i++) {
        const kgen__slot *slot = &r->data.slot[i];
        if (!slot->bytes || slot->role == KGEN_USE_IN) continue;
        copy = realloc(copy, *size + slot->size);
        assert_non_null(copy);
        memcpy(copy + *size, slot->bytes, slot->size);
        *size += slot->size;
    }
    assert_true(*size > 0);
    return copy;
}

static void assert_outputs(const rig *r, const unsigned char *want, const char *what) {
    size_t size;
    unsigned char *got = outputs_of(r, &size);
    int same = memcmp(got, want, size) == 0;
    free(got);
    if (!same) fail_msg("%s: other bits (seed %" PRIu64 ")", what, seed);
}

static void assert_counters_at_rest(const rig *r) {
    DO(kgen_workspace_check(r->ctx, r->workspace, HEAD_BYTES, r->stream, &did));
}

/* ---- what works ---------------------------------------------------------- */

static void test_open_prepare_launch_close(void **state) {
    (void)state;
    kgen_context *ctx = NULL;
    kgen_open_options options = {.size = sizeof options, .device = DEVICE};
    DO(kgen_open(&ctx, &options, &did));
    assert_string_equal(kgen_context_target(ctx)->name, DEVICE);
    assert_memory_equal(kgen_context_device(ctx), DEVICE, strlen(DEVICE));
    assert_non_null(kgen_context_cache(ctx));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig r;
        make_rig(&r, ctx, cases[i]);
        launch(&r);
        compare(&r);
        assert_counters_at_rest(&r);
        assert_true(kgen_kernel_resources(r.kernel)->code_bytes > 0);
        free_rig(&r);
    }
    kgen_close(ctx);
    kgen_close(NULL);
}

/* The same kernel asked for in two ways is one kernel. */
static void test_prepare_keeps_kernels(void **state) {
    (void)state;
    kgen_spec specs[3];
    kgen_kernel *kernels[3] = {NULL, NULL, NULL};
    DO(kgen_spec_parse(&specs[0], "attn:d=64,g=2", &did));
    DO(kgen_spec_parse(&specs[1], "attn:d=64,page=1", &did));
    DO(kgen_spec_parse(&specs[2], "attn:g=2,d=64,dv=64,o=bf16", &did));
    DO(kgen_prepare(shared, specs, 3, kernels, &did));
    assert_ptr_equal(kernels[0], kernels[2]);
    assert_ptr_not_equal(kernels[0], kernels[1]);
    assert_ptr_equal(prepared(shared, &specs[1]), kernels[1]);
    assert_int_equal(kgen_kernel_spec(kernels[0])->attn.v_dim, 64);
    DO(kgen_prepare(shared, NULL, 0, NULL, &did));
}

/* Numbers of a checkpoint become what a launch reads. */
static void test_scales_of_the_host(void **state) {
    const float scales[] = {0.5f, 3, 1e-30f}, bad[] = {1, 0, INFINITY, -1, NAN};
    float got[3];
    kgen_tensor t = {0};
    (void)state;
    DO(kgen_scales_upload(shared, &t, scales, 3, &did));
    assert_true(t.dtype == KGEN_DTYPE_F32 && t.rank == 1 && t.shape[0] == 3 && t.stride[0] == 1);
    DO(kgen_memory_read(shared, got, t.data, sizeof got, &did));
    assert_memory_equal(got, scales, sizeof got);
    kgen_memory_free(shared, t.data);
    for (int i = 1; i < 5; i++) {
        kgen_tensor none = {0};
        assert_int_equal(kgen_scales_upload(shared, &none, bad + i, 1, &did), KGEN_E_ARG);
        assert_non_null(strstr(did.text, "finite and above 0"));
        assert_null(none.data);
    }
    assert_int_equal(kgen_scales_upload(shared, &t, scales, 0, &did), KGEN_E_ARG);
    assert_string_equal(did.text, "scales: 0, at least 1");
}

static void test_nothing_to_do(void **state) {
    (void)state;
    rig r;
    make_rig(&r, shared, cases[0]);
    size_t size;
    unsigned char *before = outputs_of(&r, &size);
    r.args.attn->q.shape[0] = r.args.attn->out.shape[0] = r.args.attn->seq_lens.shape[0] = 0;
    r.args.attn->block_table.shape[0] = 0;
    DO(kgen_launch(r.kernel, &r.args, r.stream, &did));
    assert_outputs(&r, before, "a launch of nothing");
    free(before);
    free_rig(&r);
}

/* A window of everything, on rows that see no key too. */
static void test_the_widest_window(void **state) {
    (void)state;
    rig r;
    make_rig(&r, shared, cases[1]);
    int32_t lens[] = {70, 1, 0}, qlens[] = {4, 1, 3};
    r.args.attn->window = r.data.args.attn->window = INT32_MAX;
    refill(&r, lens, qlens, seed + 1);
    launch(&r);
    compare(&r);
    free_rig(&r);
}

/* ---- refusals of a launch ------------------------------------------------ */

typedef enum change_kind {
    DATA, /* value 0: NULL, else moved by so many bytes */
    DTYPE,
    TAG,
    RANK,
    SHAPE,
    STRIDE,
    SCALE, /* value / 2; -999 NaN, 999 infinity */
    SOFTCAP,
    WINDOW,
    KEEP,
    MEMORY, /* the workspace: as DATA */
    BYTES,  /* of the workspace; negative: so many less */
} change_kind;

typedef struct refusal {
    const char *name;
    change_kind kind;
    int index;
    long long value;
    const char *says;
} refusal;

/* PLAIN: S=3, T=3, Hq=4, Hkv=2, D=64, pages of 16 (dense [NB][16][2][64]). */
static const refusal plain_refusals[] = {
    {"q", DATA, 0, 0, "q: no data"},
    {"q", DATA, 0, 1, "is not a multiple of 2 bytes"},
    {"q", DATA, 0, 8, "is not a multiple of 16 bytes"},
    {"q", DTYPE, 0, KGEN_DTYPE_FP16, "q: dtype fp16, kernel built for bf16"},
    {"q", DTYPE, 0, 77, "q: dtype unknown, kernel built for bf16"},
    {"q", RANK, 0, 2, "q: rank 2, 3 expected"},
    {"q", SHAPE, 0, -1, "q: shape[0]=-1, at least 0"},
    {"q", SHAPE, 0, 4, "q: shape[0]=4 tokens, phase=decode has one for each of 3 sequences"},
    {"q", SHAPE, 0, 1LL << 31, "q: shape[0]=2147483648, at most 2^31-1"},
    {"q", SHAPE, 1, 0, "q: shape[1]=0 heads, a multiple of g=2 expected"},
    {"q", SHAPE, 1, 3, "q: shape[1]=3 heads, a multiple of g=2 expected"},
    {"q", SHAPE, 1, 6, "out: shape[1]=4, 6 expected"},
    {"q", SHAPE, 2, 128, "q: shape[2]=128, 64 expected"},
    {"q", STRIDE, 2, 2, "q: stride[2]=2, 1 expected"},
    {"q", STRIDE, 0, 260, "q: stride[0]=260 elements is not a multiple of 16 bytes"},
    {"q", STRIDE, 1, 68, "q: stride[1]=68 elements is not a multiple of 16 bytes"},
    {"seq_lens", DATA, 0, 0, "seq_lens: no data"},
    {"seq_lens", DATA, 0, 2, "is not a multiple of 4 bytes"},
    {"seq_lens", DTYPE, 0, KGEN_DTYPE_I64, "seq_lens: dtype i64, kernel built for i32"},
    {"seq_lens", RANK, 0, 2, "seq_lens: rank 2, 1 expected"},
    {"seq_lens", SHAPE, 0, -3, "seq_lens: shape[0]=-3, at least 0"},
    {"seq_lens", SHAPE, 0, 2, "q: shape[0]=3 tokens, phase=decode has one for each of 2 sequences"},
    {"seq_lens", SHAPE, 0, 1 << 30, "seq_lens: shape[0]=1073741824 sequences, at most 1073741823"},
    {"seq_lens", STRIDE, 0, 2, "seq_lens: stride[0]=2, 1 expected"},
    {"k", DATA, 0, 0, "k: no data"},
    {"k", DATA, 0, 2, "is not a multiple of 16 bytes"},
    {"k", TAG, 0, KGEN_LAYOUT_HND, "k: layout is hnd, kernel built for nhd"},
    {"k", TAG, 0, KGEN_LAYOUT_NONE, "k: layout is none, kernel built for nhd"},
    {"k", TAG, 0, 99, "k: layout is unknown, kernel built for nhd"},
    {"k", DTYPE, 0, KGEN_DTYPE_E4M3FN, "k: dtype e4m3fn, kernel built for bf16"},
    {"k", RANK, 0, 5, "k: rank 5, 4 expected"},
    {"k", SHAPE, 1, 32, "k: pages of 32 tokens, kernel built for page=16"},
    {"k", SHAPE, 2, 4, "k: shape[2]=4, 2 expected"},
    {"k", SHAPE, 3, 128, "k: shape[3]=128, 64 expected"},
    {"k", STRIDE, 3, 2, "k: stride[3]=2, 1 expected"},
    {"k", STRIDE, 0, 2052, "k: stride[0]=2052 elements is not a multiple of 16 bytes"},
    {"k", STRIDE, 1, 132, "k: stride[1]=132 elements is not a multiple of 16 bytes"},
    {"k", STRIDE, 2, 66, "k: stride[2]=66 elements is not a multiple of 16 bytes"},
    {"k", STRIDE, 1, 1 << 27, "k: a page spans 4294967296 bytes of one head, at most 2^31-1"},
    {"k", STRIDE, 1, -128, "k: a page spans -4096 bytes of one head"},
    {"k", STRIDE, 1, 1LL << 60, "k: stride[1]=1152921504606846976 elements, at most 1073741823"},
    {"v", DATA, 0, 0, "v: no data"},
    {"v", DATA, 0, 8, "is not a multiple of 16 bytes"},
    {"v", TAG, 0, KGEN_LAYOUT_SHUFFLE, "v: layout is shuffle, kernel built for nhd"},
    {"v", DTYPE, 0, KGEN_DTYPE_FP16, "v: dtype fp16, kernel built for bf16"},
    {"v", RANK, 0, 3, "v: rank 3, 4 expected"},
    {"v", SHAPE, 0, 1, "v: shape[0]=1, "},
    {"v", SHAPE, 1, 8, "v: pages of 8 tokens, kernel built for page=16"},
    {"v", SHAPE, 2, 1, "v: shape[2]=1, 2 expected"},
    {"v", SHAPE, 3, 80, "v: shape[3]=80, 64 expected"},
    {"v", STRIDE, 3, 0, "v: stride[3]=0, 1 expected"},
    {"v", STRIDE, 0, 2050, "v: stride[0]=2050 elements is not a multiple of 16 bytes"},
    {"v", STRIDE, 1, -(1LL << 40), "v: stride[1]=-1099511627776 elements, at most 1073741823"},
    {"block_table", DATA, 0, 0, "block_table: no data"},
    {"block_table", DATA, 0, 2, "is not a multiple of 4 bytes"},
    {"block_table", DTYPE, 0, KGEN_DTYPE_I64, "block_table: dtype i64, kernel built for i32"},
    {"block_table", RANK, 0, 1, "block_table: rank 1, 2 expected"},
    {"block_table", SHAPE, 0, 2, "block_table: shape[0]=2, at least 3 expected"},
    {"block_table", SHAPE, 1, 0, "block_table: shape[1]=0, at least 1"},
    {"block_table", STRIDE, 1, 2, "block_table: stride[1]=2, 1 expected"},
    {"out", DATA, 0, 0, "out: no data"},
    {"out", DATA, 0, 2, "is not a multiple of 4 bytes"},
    {"out", DTYPE, 0, KGEN_DTYPE_F32, "out: dtype f32, kernel built for bf16"},
    {"out", RANK, 0, 2, "out: rank 2, 3 expected"},
    {"out", SHAPE, 0, 2, "out: shape[0]=2, 3 expected"},
    {"out", SHAPE, 1, 2, "out: shape[1]=2, 4 expected"},
    {"out", SHAPE, 2, 32, "out: shape[2]=32, 64 expected"},
    {"out", STRIDE, 2, 2, "out: stride[2]=2, 1 expected"},
    {"out", STRIDE, 0, 257, "out: stride[0]=257 elements is not a multiple of 4 bytes"},
    {"out", STRIDE, 1, 65, "out: stride[1]=65 elements is not a multiple of 4 bytes"},
    {"softmax_scale", SCALE, 0, 0, "softmax_scale=0: finite and above 0"},
    {"softmax_scale", SCALE, 0, -2, "softmax_scale=-1: finite and above 0"},
    {"softmax_scale", SCALE, 0, 999, "softmax_scale=inf: finite and above 0"},
    {"softmax_scale", SCALE, 0, -999, "nan: finite and above 0"},
    {"workspace", MEMORY, 0, 0, "workspace: no memory"},
    {"workspace", MEMORY, 0, 128, "is not a multiple of 256 bytes"},
    {"workspace", BYTES, 0, -1, "workspace: "},
    {"workspace", BYTES, 0, 0, "workspace: 0 bytes, "},
};

/* ALL: S=3, T=9, Hq=4, Hkv=2, D=64, pages of 32 (dense [NB][2][32][64]). */
static const refusal all_refusals[] = {
    {"k", DTYPE, 0, KGEN_DTYPE_FP8, "k: dtype fp8, kernel built for e4m3fnuz"},
    {"k", SHAPE, 2, 24, "k: pages of 24 tokens, a multiple of 16 up to 65536 expected"},
    {"k", SHAPE, 2, 0, "k: pages of 0 tokens, a multiple of 16 up to 65536 expected"},
    {"k", SHAPE, 2, 65552, "k: pages of 65552 tokens, a multiple of 16 up to 65536 expected"},
    {"v", SHAPE, 2, 48, "v: pages of 48 tokens, k has 32"},
    {"k", SHAPE, 1, 1, "k: shape[1]=1, 2 expected"},
    {"cu_seqlens_q", DATA, 0, 0, "cu_seqlens_q: no data"},
    {"cu_seqlens_q", DATA, 0, 1, "is not a multiple of 4 bytes"},
    {"cu_seqlens_q", DTYPE, 0, KGEN_DTYPE_I64, "cu_seqlens_q: dtype i64, kernel built for i32"},
    {"cu_seqlens_q", RANK, 0, 2, "cu_seqlens_q: rank 2, 1 expected"},
    {"cu_seqlens_q", SHAPE, 0, 3, "cu_seqlens_q: shape[0]=3, 4 expected"},
    {"cu_seqlens_q", SHAPE, 0, 5, "cu_seqlens_q: shape[0]=5, 4 expected"},
    {"cu_seqlens_q", STRIDE, 0, 2, "cu_seqlens_q: stride[0]=2, 1 expected"},
    {"block_table", DTYPE, 0, KGEN_DTYPE_I32, "block_table: dtype i32, kernel built for i64"},
    {"block_table", DATA, 0, 4, "is not a multiple of 8 bytes"},
    {"out", DATA, 0, 1, "is not a multiple of 4 bytes"},
    {"out", DTYPE, 0, KGEN_DTYPE_E4M3FN, "out: dtype e4m3fn, kernel built for e4m3fnuz"},
    {"out_scale", DATA, 0, 0, "out_scale: no data"},
    {"out_scale", DATA, 0, 2, "is not a multiple of 4 bytes"},
    {"out_scale", DTYPE, 0, KGEN_DTYPE_BF16, "out_scale: dtype bf16, kernel built for f32"},
    {"out_scale", RANK, 0, 2, "out_scale: rank 2, 1 expected"},
    {"out_scale", SHAPE, 0, 4, "out_scale: shape[0]=4, 1 expected"},
    {"span_ends", DATA, 0, 0, "span_ends: no data"},
    {"span_ends", DTYPE, 0, KGEN_DTYPE_I64, "span_ends: dtype i64, kernel built for i32"},
    {"span_ends", SHAPE, 0, 3, "span_ends: shape[0]=3, 9 expected"},
    {"gate", DATA, 0, 0, "gate: no data"},
    {"gate", DATA, 0, 4, "is not a multiple of 8 bytes"},
    {"gate", DTYPE, 0, KGEN_DTYPE_FP16, "gate: dtype fp16, kernel built for bf16"},
    {"gate", SHAPE, 1, 2, "gate: shape[1]=2, 4 expected"},
    {"gate", SHAPE, 2, 32, "gate: shape[2]=32, 64 expected"},
    {"gate", STRIDE, 1, 66, "gate: stride[1]=66 elements is not a multiple of 8 bytes"},
    {"lse", DATA, 0, 0, "lse: no data"},
    {"lse", DATA, 0, 2, "is not a multiple of 4 bytes"},
    {"lse", DTYPE, 0, KGEN_DTYPE_BF16, "lse: dtype bf16, kernel built for f32"},
    {"lse", RANK, 0, 1, "lse: rank 1, 2 expected"},
    {"lse", SHAPE, 0, 9, "lse: shape[0]=9, 4 expected"},
    {"lse", SHAPE, 1, 4, "lse: shape[1]=4, 9 expected"},
    {"lse", STRIDE, 1, 4, "lse: stride[1]=4, 1 expected"},
    {"softcap", SOFTCAP, 0, 0, "softcap=0: finite and above 0"},
    {"softcap", SOFTCAP, 0, -60, "softcap=-30: finite and above 0"},
    {"softcap", SOFTCAP, 0, 999, "softcap=inf: finite and above 0"},
    {"softcap", SOFTCAP, 0, -999, "nan: finite and above 0"},
    {"window", WINDOW, 0, 0, "window=0: at least 1"},
    {"window", WINDOW, 0, -1, "window=-1: at least 1"},
    {"keep", KEEP, 0, 0, "keep=0: at least 1"},
    {"alibi_slopes", DATA, 0, 0, "alibi_slopes: no data"},
    {"alibi_slopes", DTYPE, 0, KGEN_DTYPE_FP16, "alibi_slopes: dtype fp16, kernel built for f32"},
    {"alibi_slopes", RANK, 0, 2, "alibi_slopes: rank 2, 1 expected"},
    {"alibi_slopes", SHAPE, 0, 2, "alibi_slopes: shape[0]=2, 4 expected"},
    {"alibi_slopes", STRIDE, 0, 4, "alibi_slopes: stride[0]=4, 1 expected"},
    {"sinks", DATA, 0, 0, "sinks: no data"},
    {"sinks", DTYPE, 0, KGEN_DTYPE_BF16, "sinks: dtype bf16, kernel built for f32"},
    {"sinks", RANK, 0, 3, "sinks: rank 3, 1 expected"},
    {"sinks", SHAPE, 0, 8, "sinks: shape[0]=8, 4 expected"},
    {"sinks", STRIDE, 0, -1, "sinks: stride[0]=-1, 1 expected"},
    {"k_descale", DATA, 0, 0, "k_descale: no data"},
    {"k_descale", DATA, 0, 2, "is not a multiple of 4 bytes"},
    {"k_descale", DTYPE, 0, KGEN_DTYPE_BF16, "k_descale: dtype bf16, kernel built for f32"},
    {"k_descale", RANK, 0, 2, "k_descale: rank 2, 3 expected"},
    {"k_descale", TAG, 0, KGEN_LAYOUT_NONE, "k_descale: layout is none; tag it nhd for"},
    {"k_descale", TAG, 0, KGEN_LAYOUT_SHUFFLE, "k_descale: layout is shuffle; tag it nhd for"},
    {"k_descale", TAG, 0, KGEN_LAYOUT_HND, "k_descale: shape[2]=2, 32 expected"},
    {"k_descale", SHAPE, 0, 1, "k_descale: shape[0]=1, "},
    {"k_descale", SHAPE, 1, 16, "k_descale: shape[1]=16, 32 expected"},
    {"k_descale", SHAPE, 2, 1, "k_descale: shape[2]=1, 2 expected"},
    {"v_descale", DATA, 0, 0, "v_descale: no data"},
    {"v_descale", DTYPE, 0, KGEN_DTYPE_I32, "v_descale: dtype i32, kernel built for f32"},
    {"v_descale", RANK, 0, 1, "v_descale: rank 1, 3 expected"},
    {"v_descale", TAG, 0, KGEN_LAYOUT_XPACKED, "v_descale: layout is xpacked; tag it nhd for"},
    {"v_descale", TAG, 0, KGEN_LAYOUT_NHD, "v_descale: shape[1]=2, 32 expected"},
    {"v_descale", SHAPE, 2, 48, "v_descale: shape[2]=48, 32 expected"},
};

/* SHUFFLE: S=2, Hq=4, Hkv=2, D=64, x=16, pages of 32, K [NB][2][4][32][16],
 * V [NB][2][2][64][16], k_descale [2][2], v_descale [2], q_descale [1]. */
static const refusal shuffle_refusals[] = {
    {"k", RANK, 0, 4, "k: rank 4, 5 expected"},
    {"k", SHAPE, 2, 8, "k: shape[2]=8, 4 expected"},
    {"k", SHAPE, 3, 16, "k: pages of 16 tokens, kernel built for page=32"},
    {"k", SHAPE, 4, 8, "k: shape[4]=8, 16 expected"},
    {"k", STRIDE, 4, 2, "k: stride[4]=2, 1 expected"},
    {"k", STRIDE, 3, 32, "k: stride[3]=32, 16 expected"},
    {"k", STRIDE, 2, 520, "k: stride[2]=520 elements is not a multiple of 16 bytes"},
    {"k", STRIDE, 2, 1LL << 32, "k: stride[2]=4294967296 elements, at most 2147483647"},
    {"v", SHAPE, 2, 4, "v: pages of 64 tokens, kernel built for page=32"},
    {"v", SHAPE, 3, 128, "v: shape[3]=128, 64 expected"},
    {"v", SHAPE, 4, 8, "v: shape[4]=8, 16 expected"},
    {"v", STRIDE, 4, 2, "v: stride[4]=2, 1 expected"},
    {"v", STRIDE, 3, 24, "v: stride[3]=24 elements is not a multiple of 16 bytes"},
    {"v", STRIDE, 3, 1LL << 31, "v: stride[3]=2147483648 elements, at most 2147483647"},
    {"v", STRIDE, 2, 1032, "v: stride[2]=1032 elements is not a multiple of 16 bytes"},
    {"k_descale", DATA, 0, 0, "k_descale: no data"},
    {"k_descale", DTYPE, 0, KGEN_DTYPE_FP16, "k_descale: dtype fp16, kernel built for f32"},
    {"k_descale", RANK, 0, 3, "k_descale: rank 3, 1 expected"},
    {"k_descale", SHAPE, 0, 3, "k_descale: shape[0]=3, 2 expected"},
    {"k_descale", SHAPE, 1, 1, "k_descale: shape[1]=1, 2 expected"},
    {"v_descale", SHAPE, 0, 4, "v_descale: shape[0]=4, 2 expected"},
    {"v_descale", RANK, 0, 5, "v_descale: rank 5, 1 expected"},
    {"q", DTYPE, 0, KGEN_DTYPE_BF16, "q: dtype bf16, kernel built for e4m3fnuz"},
    {"q_descale", DATA, 0, 0, "q_descale: no data"},
    {"q_descale", DTYPE, 0, KGEN_DTYPE_BF16, "q_descale: dtype bf16, kernel built for f32"},
    {"q_descale", RANK, 0, 3, "q_descale: rank 3, 1 expected"},
    {"q_descale", SHAPE, 0, 4, "q_descale: shape[0]=4, 2 expected"},
};

/* XPACKED: S=2, Hkv=2, D=64, x=8, pages of 16, V [NB][2][64][16]. */
static const refusal xpacked_refusals[] = {
    {"k", TAG, 0, KGEN_LAYOUT_SHUFFLE, "k: layout is shuffle, kernel built for xpacked"},
    {"k", SHAPE, 2, 4, "k: shape[2]=4, 8 expected"},
    {"k", STRIDE, 3, 16, "k: stride[3]=16, 8 expected"},
    {"v", RANK, 0, 5, "v: rank 5, 4 expected"},
    {"v", SHAPE, 2, 16, "v: shape[2]=16, 64 expected"},
    {"v", SHAPE, 3, 64, "v: pages of 64 tokens, kernel built for page=16"},
    {"v", STRIDE, 3, 2, "v: stride[3]=2, 1 expected"},
    {"v", STRIDE, 2, 20, "v: stride[2]=20 elements is not a multiple of 16 bytes"},
    {"v", STRIDE, 2, 1LL << 31, "v: stride[2]=2147483648 elements, at most 1073741823"},
};

static const refusal one_refusals[] = {
    {"k", SHAPE, 1, 16, "k: pages of 16 tokens, kernel built for page=1"},
    {"v", SHAPE, 1, 16, "v: pages of 16 tokens, kernel built for page=1"},
};

static float odd_float(long long value) {
    return value == 999 ? INFINITY : value == -999 ? NAN : (float)value / 2;
}

static kgen_tensor *tensor_named(kgen_args *args, const char *name) {
    for (int i = 0; i < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_ATTN}); i++)
        if (strcmp(kgen__slot_name(&(kgen_args){.family = KGEN_FAMILY_ATTN}, i), name) == 0)
            return kgen__slot_tensor(args, i);
    fail_msg("%s: no such tensor", name);
    return NULL;
}

static void *moved(void *memory, long long bytes) { return bytes ? (char *)memory + bytes : NULL; }

static void change_tensor(kgen_tensor *t, const refusal *row) {
    switch (row->kind) {
    case DATA:
        t->data = moved(t->data, row->value);
        break;
    case DTYPE:
        t->dtype = (kgen_dtype)row->value;
        break;
    case TAG:
        t->layout = (kgen_layout)row->value;
        break;
    case RANK:
        t->rank = (int32_t)row->value;
        break;
    case SHAPE:
        t->shape[row->index] = row->value;
        break;
    default:
        t->stride[row->index] = row->value;
    }
}

static void change(kgen_args *args, const refusal *row) {
    switch (row->kind) {
    case SCALE:
        args->attn->softmax_scale = odd_float(row->value);
        break;
    case SOFTCAP:
        args->attn->softcap = odd_float(row->value);
        break;
    case WINDOW:
        args->attn->window = (int32_t)row->value;
        break;
    case KEEP:
        args->attn->keep = (int32_t)row->value;
        break;
    case MEMORY:
        args->workspace = moved(args->workspace, row->value);
        break;
    case BYTES:
        args->workspace_bytes = (size_t)row->value + (row->value < 0 ? args->workspace_bytes : 0);
        break;
    default:
        change_tensor(tensor_named(args, row->name), row);
    }
}

static void check_refusal(rig *r, const refusal *row, const unsigned char *poison) {
    kgen_args args;
    kgen_args_room room;
    kgen_args_copy(&args, &room, &r->args);
    kgen_error err = {KGEN_OK, ""};
    change(&args, row);
    kgen_status status = kgen_launch(r->kernel, &args, r->stream, &err);
    if (status != KGEN_E_ARG || err.status != KGEN_E_ARG)
        fail_msg("not refused: '%s' (%s)", row->says, kgen_status_name(status));
    if (!strstr(err.text, row->says)) fail_msg("'%s' does not say '%s'", err.text, row->says);
    if (row->kind == DATA && row->value)
        assert_int_equal(strncmp(err.text, row->name, strlen(row->name)), 0);
    assert_null(strchr(err.text, '\n'));
    assert_outputs(r, poison, row->says);
    assert_int_equal(kgen_launch(r->kernel, &args, r->stream, NULL), KGEN_E_ARG);
}

/* Before and after, the arguments are right and give the right answer. */
static void check_refusals(int index, const refusal *rows, size_t count) {
    rig r;
    size_t size;
    make_rig(&r, shared, cases[index]);
    launch(&r);
    compare(&r);
    kgen__data_poison_outputs(&r.data);
    unsigned char *poison = outputs_of(&r, &size);
    for (size_t i = 0; i < count; i++) check_refusal(&r, &rows[i], poison);
    assert_counters_at_rest(&r);
    launch(&r);
    compare(&r);
    free(poison);
    free_rig(&r);
}

#define REFUSALS(name, index)                                               \
    static void test_refusals_##name(void **state) {                        \
        (void)state;                                                        \
        check_refusals(index, name##_refusals,                              \
                       sizeof name##_refusals / sizeof name##_refusals[0]); \
    }
REFUSALS(plain, 0)
REFUSALS(all, 1)
REFUSALS(shuffle, 2)
REFUSALS(xpacked, 3)
REFUSALS(one, 4)

/* One scale for all heads, and scales of any stride, are fine. */
static void test_descale_shapes(void **state) {
    (void)state;
    static const char *const shapes[] = {"one", "head", "seq"};
    for (int i = 0; i < 9; i++) {
        rig r;
        char line[256];
        snprintf(line, sizeof line, SHUFFLE " | lens=40,65 hkv=2 kds=%s vds=%s", shapes[i % 3],
                 shapes[i / 3]);
        make_rig(&r, shared, line);
        launch(&r);
        compare(&r);
        free_rig(&r);
    }
}

static void check_workspace_size(const rig *r, int64_t seqs, int64_t heads, const char *says) {
    kgen_args args;
    kgen_args_room room;
    kgen_args_copy(&args, &room, &r->args);
    size_t bytes = 77;
    kgen_error err = {KGEN_OK, ""};
    args.attn->seq_lens.shape[0] = seqs;
    args.attn->q.shape[1] = heads;
    kgen_status status = kgen_workspace_size(r->kernel, &args, &bytes, &err);
    if (!says) {
        assert_int_equal(status, KGEN_OK);
        assert_true(bytes > HEAD_BYTES);
        return;
    }
    assert_int_equal(status, KGEN_E_ARG);
    assert_int_equal(bytes, 77);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
}

static void test_workspace_limits(void **state) {
    (void)state;
    rig r;
    kgen_error err;
    make_rig(&r, shared, cases[0]); /* g=2: one row block */
    check_workspace_size(&r, 0, 0, NULL);
    check_workspace_size(&r, 1 << 17, 4, NULL);
    check_workspace_size(&r, (1 << 17) + 1, 4,
                         "131073 sequences of 2 KV heads and 1 row blocks, at most 262144");
    check_workspace_size(&r, -1, 4, "seq_lens: -1 sequences");
    check_workspace_size(&r, 1, -4, "1 sequences of -2 KV heads");
    check_workspace_size(&r, INT64_MAX, 4, "at most 262144");
    check_workspace_size(&r, 1LL << 40, 1LL << 40, "at most 262144");
    rig c;
    make_rig(&c, shared, "attn:cascade=1,d=64,g=2 | lens=40 hkv=2");
    check_workspace_size(&c, 1 << 16, 4, NULL);
    check_workspace_size(&c, 1 << 17, 4, "131072 row blocks of 2 KV heads, at most");
    check_workspace_size(&c, -1, 4, "more than there are counters for");
    free_rig(&c);
    assert_int_equal(kgen_workspace_init(shared, NULL, 1 << 21, r.stream, &err), KGEN_E_ARG);
    assert_int_equal(kgen_workspace_init(shared, r.workspace, 4096, r.stream, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "workspace: 4096 bytes, 2097408 needed");
    free_rig(&r);
}

/* More work items than counters is refused by the launch too. */
static void test_launch_counts_its_items(void **state) {
    (void)state;
    rig r;
    size_t size;
    kgen_error err;
    make_rig(&r, shared, cases[0]);
    unsigned char *before = outputs_of(&r, &size);
    kgen_args args;
    kgen_args_room room;
    kgen_args_copy(&args, &room, &r.args);
    args.attn->q.shape[0] = args.attn->out.shape[0] = 1 << 18;
    args.attn->seq_lens.shape[0] = args.attn->block_table.shape[0] = 1 << 18;
    args.attn->out.data =
        (char *)args.attn->out.data + ((int64_t)1 << 40); /* apart from the rest */
    assert_int_equal(kgen_launch(r.kernel, &args, r.stream, &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "seq_lens: 262144 sequences of 2 KV heads"));
    assert_outputs(&r, before, "too many sequences");
    free(before);
    free_rig(&r);
}

/* ---- modes --------------------------------------------------------------- */

/* The variables that lead to a toolchain, each to nowhere. */
static const char *const ways[] = {
    "KGEN_CLANG",       "KGEN_BIN_DIR",    "KGEN_CC", "KGEN_ROCM_PATH",
    "KGEN_ROCM_PREFIX", "KGEN_NVRTC_PATH", "PATH"};
enum { WAYS = sizeof ways / sizeof ways[0] };

static void hide_toolchains(char *saved[WAYS]) {
    for (int i = 0; i < WAYS; i++) {
        const char *value = getenv(ways[i]);
        saved[i] = value ? strdup(value) : NULL;
        setenv(ways[i], "/nonexistent", 1);
    }
}

static void show_toolchains(char *saved[WAYS]) {
    for (int i = 0; i < WAYS; i++) {
        if (saved[i])
            setenv(ways[i], saved[i], 1);
        else
            unsetenv(ways[i]);
        free(saved[i]);
    }
}

static kgen_context *opened(kgen_mode mode, const char *cache_dir) {
    kgen_context *ctx = NULL;
    kgen_open_options options = {
        .size = sizeof options, .device = DEVICE, .cache_dir = cache_dir, .mode = mode};
    DO(kgen_open(&ctx, &options, &did));
    return ctx;
}

static void private_cache(char out[256], const char *name) {
    snprintf(out, 256, "%s/%s", folder, name);
}

static kgen_spec spec_of(const char *line) {
    kgen_spec spec;
    DO(kgen_spec_parse(&spec, line, &did));
    return spec;
}

static void check_miss(kgen_context *ctx, const char *nearest) {
    kgen_spec spec = spec_of("attn:d=64,g=3");
    kgen_kernel *kernel = NULL;
    kgen_error err;
    char want[1024];
    assert_int_equal(kgen_prepare(ctx, &spec, 1, &kernel, &err), KGEN_E_NOT_CACHED);
    assert_null(kernel);
    static const char full[] = "attn:phase=decode,q=bf16,kv=bf16,o=bf16,d=64,dv=64,g=3,page=16,"
                               "layout=nhd,descale=none,waves=4,mt=1,vs=1,occ=2";
    snprintf(want, sizeof want,
             "no code object of %s for " DEVICE "; nearest prepared: %s; build it with: kgen build "
             "'%s' --arch " DEVICE,
             full, nearest, full);
    assert_string_equal(err.text, want);
}

static void test_strict_mode(void **state) {
    (void)state;
    char dir[256], near[KGEN_SPEC_LINE_MAX];
    private_cache(dir, "strict");
    kgen_spec specs[2] = {spec_of("attn:d=64,g=2"), spec_of("attn:d=64,page=1,lse=1")};
    kgen_kernel *kernels[2];
    kgen_context *ctx = opened(KGEN_MODE_AUTO, dir);
    DO(kgen_prepare(ctx, specs, 2, kernels, &did));
    kgen_close(ctx);

    ctx = opened(KGEN_MODE_STRICT, dir);
    check_miss(ctx, "none");
    DO(kgen_prepare(ctx, specs, 2, kernels, &did));
    kgen_spec_print(near, kgen_kernel_spec(kernels[0]));
    check_miss(ctx, near);
    assert_int_equal(kgen_cache_get_stats(kgen_context_cache(ctx)).published, 0);
    kgen_close(ctx);
}

static void test_offline_mode(void **state) {
    (void)state;
    char dir[256], *saved[WAYS];
    rig r;
    kgen_error err;
    private_cache(dir, "offline");
    kgen_spec spec = spec_of(PLAIN), other = spec_of("attn:d=64,g=5");
    kgen_context *ctx = opened(KGEN_MODE_AUTO, dir);
    prepared(ctx, &spec);
    kgen_close(ctx);

    hide_toolchains(saved);
    kgen_kernel *kernel = NULL;
    ctx = opened(KGEN_MODE_AUTO, dir); /* no compiler can be reached */
    kgen_status no_compiler = kgen_prepare(ctx, &other, 1, &kernel, &err);
    kgen_close(ctx);
    ctx = opened(KGEN_MODE_OFFLINE, dir);
    kgen_status miss = kgen_prepare(ctx, &other, 1, &kernel, &err);
    make_rig(&r, ctx, cases[0]);
    show_toolchains(saved);
    assert_int_equal(no_compiler, KGEN_E_TOOLCHAIN);
    assert_int_equal(miss, KGEN_E_NOT_CACHED);
    assert_non_null(strstr(err.text, "kgen build 'attn:"));
    launch(&r);
    compare(&r);
    free_rig(&r);
    kgen_close(ctx);
}

static void test_offline_without_a_cache(void **state) {
    (void)state;
    char dir[256];
    kgen_kernel *kernel = NULL;
    kgen_spec spec = spec_of(PLAIN);
    private_cache(dir, "never-made");
    const char *dirs[] = {dir, ""};
    for (int i = 0; i < 2; i++) {
        kgen_context *ctx = opened(KGEN_MODE_OFFLINE, dirs[i]);
        assert_int_equal(kgen_prepare(ctx, &spec, 1, &kernel, NULL), KGEN_E_NOT_CACHED);
        kgen_close(ctx);
    }
    assert_int_not_equal(access(dir, F_OK), 0);
}

static int warnings; /* told by `opened_loud` */

static void count_warnings(kgen_log_level level, const char *text, void *user) {
    assert_int_equal(level, KGEN_LOG_WARNING);
    assert_memory_equal(text, "compiled attn:", 14);
    assert_ptr_equal(user, &warnings);
    warnings++;
}

/* Bytes that reach a file descriptor while the specs are prepared in mode WARN. */
static long bytes_written(int fd, kgen_context *ctx, const kgen_spec *specs, size_t count) {
    char path[256];
    kgen_kernel *kernels[4];
    private_cache(path, "written");
    fflush(NULL);
    int saved = dup(fd), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(file, fd);
    kgen_status status = kgen_prepare(ctx, specs, count, kernels, NULL);
    fflush(NULL);
    long bytes = (long)lseek(file, 0, SEEK_END);
    dup2(saved, fd);
    close(saved);
    close(file);
    assert_int_equal(status, KGEN_OK);
    return bytes;
}

/* Each compile is told to the log, and to nothing else. */
static void test_warn_mode(void **state) {
    (void)state;
    char dir[256];
    private_cache(dir, "warn");
    kgen_spec specs[3] = {spec_of(PLAIN), spec_of(ONE), spec_of("attn:d=64,g=2,lse=1")};
    kgen_open_options options = {.size = sizeof options,
                                 .device = DEVICE,
                                 .cache_dir = dir,
                                 .mode = KGEN_MODE_WARN,
                                 .log = count_warnings,
                                 .log_user = &warnings};
    static const int told[] = {1, 1, 3, 3};
    kgen_context *ctx = NULL;
    warnings = 0;
    DO(kgen_open(&ctx, &options, &did));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(bytes_written(i % 2 + 1, ctx, specs, i < 2 ? 1 : 3), 0);
        assert_int_equal(warnings, told[i]);
    }
    kgen_close(ctx);
    DO(kgen_open(&ctx, &options, &did));
    DO(kgen_prepare(ctx, specs, 3, (kgen_kernel *[3]){0}, &did)); /* from the cache */
    assert_int_equal(warnings, 3);
    kgen_close(ctx);
    ctx = opened(KGEN_MODE_WARN, ""); /* nobody listens */
    DO(kgen_prepare(ctx, specs, 1, (kgen_kernel *[1]){0}, &did));
    assert_int_equal(warnings, 3);
    kgen_close(ctx);
}

static void test_device_names(void **state) {
    (void)state;
    static const struct {
        const char *device;
        kgen_status status;
        const char *says;
    } rows[] = {
        {"tpu", KGEN_E_DEVICE, "device=tpu: unknown; known are hip[:N], cuda[:N], cpu[:persona]"},
        {"hi", KGEN_E_DEVICE, "device=hi: unknown"},
        {"CPU", KGEN_E_DEVICE, "device=CPU: unknown"},
        {":", KGEN_E_DEVICE, "device=:: unknown"},
        {"hip:x", KGEN_E_DEVICE, "device=hip:x: device number 0..1023 expected"},
        {"hip:-1", KGEN_E_DEVICE, "device=hip:-1: device number"},
        {"hip: 1", KGEN_E_DEVICE, "device=hip: 1: device number"},
        {"hip:+1", KGEN_E_DEVICE, "device=hip:+1: device number"},
        {"cuda:1024", KGEN_E_DEVICE, "device=cuda:1024: device number"},
        {"cuda:99999999999999999999", KGEN_E_DEVICE, "device number 0..1023"},
        {"cpu:z80", KGEN_E_TARGET, "arch=cpu:z80: unknown; known are"},
        {"cpu:cdna3:1", KGEN_E_TARGET, "arch=cpu:cdna3:1: unknown"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kgen_open_options options = {.size = sizeof options, .device = rows[i].device};
        kgen_context *ctx = NULL;
        kgen_error err;
        assert_int_equal(kgen_open(&ctx, &options, &err), rows[i].status);
        if (!strstr(err.text, rows[i].says))
            fail_msg("'%s' does not say '%s'", err.text, rows[i].says);
        assert_null(ctx);
    }
    static const char *const good[] = {"cpu", "cpu:", "cpu:cdna3", "cpu:rdna3"};
    for (int i = 0; i < 4; i++) {
        kgen_open_options options = {.size = sizeof options, .device = good[i]};
        kgen_context *ctx = NULL;
        DO(kgen_open(&ctx, &options, &did));
        assert_string_equal(kgen_context_target(ctx)->name, i < 3 ? DEVICE : "cpu:rdna3");
        kgen_close(ctx);
    }
}

/* Without a name the variable decides, then the GPU; success is silent. */
static void test_default_device(void **state) {
    (void)state;
    kgen_context *ctx = NULL;
    kgen_error err = {KGEN_E_IO, "as it was"};
    setenv("KGEN_DEVICE", "cpu:cdna4", 1);
    assert_int_equal(kgen_open(&ctx, NULL, &err), KGEN_OK);
    assert_string_equal(kgen_context_target(ctx)->name, "cpu:cdna4");
    assert_string_equal(kgen_context_driver(ctx), "");
    kgen_close(ctx);
    assert_int_equal(err.status, KGEN_E_IO);
    assert_string_equal(err.text, "as it was");
    setenv("KGEN_DEVICE", "abacus", 1);
    assert_int_equal(kgen_open(&ctx, NULL, NULL), KGEN_E_DEVICE);
    unsetenv("KGEN_DEVICE");
    ctx = NULL;
    setenv("KGEN_HIP_LIB", "/nonexistent/libamdhip64.so", 1);
    setenv("KGEN_CUDA_LIB", "/nonexistent/libcuda.so", 1);
    kgen_status status = kgen_open(&ctx, NULL, &err); /* never the cpu device */
    unsetenv("KGEN_HIP_LIB");
    unsetenv("KGEN_CUDA_LIB");
    assert_int_equal(status, KGEN_E_DEVICE);
    assert_null(ctx);
    static const char *const says[] = {
        "no GPU that kgen can use: hip: ", "/nonexistent/libamdhip64",
        "; cuda: ", "/nonexistent/libcuda", "Without a GPU: device cpu:cdna3"};
    for (int i = 0; i < 5; i++) assert_non_null(strstr(err.text, says[i]));
}

/* The size decides what is read of a struct that a caller fills. */
static void test_sizes_of_options(void **state) {
    (void)state;
    struct {
        kgen_open_options known;
        char later[8];
    } options = {.known = {.device = DEVICE}};
    kgen_context *ctx = NULL;
    kgen_error err;
    assert_int_equal(kgen_open(&ctx, &options.known, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "kgen_open_options.size=0: sizeof(kgen_open_options) expected");
    options.known.size = sizeof options; /* of a later header; what it adds is not used */
    DO(kgen_open(&ctx, &options.known, &did));
    kgen_close(ctx);
    ctx = NULL;
    options.later[3] = 1;
    assert_int_equal(kgen_open(&ctx, &options.known, &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "is set, this version knows"));
    options.known.size = offsetof(kgen_open_options, driver); /* of an earlier one */
    options.known.driver = "/never/looked/at";
    DO(kgen_open(&ctx, &options.known, &did));
    kgen_close(ctx);
    options.known.size = sizeof options.known;
    assert_int_equal(kgen_open(&ctx, &options.known, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "driver=/never/looked/at: device cpu:cdna3 has none");
    assert_string_equal(kgen_version(), KGEN_VERSION);
}

/* ---- a broken cache ------------------------------------------------------ */

/* Turns one byte over in the middle of every entry file; returns their number. */
static int spoil_entries(const char *dir) {
    int spoilt = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        struct stat st;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.200s", dir, e->d_name);
        if (stat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) {
            spoilt += spoil_entries(path);
        } else if (strstr(e->d_name, ".kgen")) {
            long place = st.st_size / 8; /* in the code: the source behind it is not read */
            FILE *file = fopen(path, "r+b");
            assert_non_null(file);
            fseek(file, place, SEEK_SET);
            int byte = getc(file);
            fseek(file, place, SEEK_SET);
            putc(byte ^ 0x10, file);
            assert_int_equal(fclose(file), 0);
            spoilt++;
        }
    }
    closedir(d);
    return spoilt;
}

static void test_a_corrupt_entry_is_built_again(void **state) {
    (void)state;
    char dir[256];
    rig r;
    private_cache(dir, "corrupt");
    kgen_spec spec = spec_of(PLAIN);
    kgen_context *ctx = opened(KGEN_MODE_AUTO, dir);
    prepared(ctx, &spec);
    kgen_close(ctx);
    assert_int_equal(spoil_entries(dir), 1);

    ctx = opened(KGEN_MODE_AUTO, dir);
    make_rig(&r, ctx, cases[0]);
    kgen_cache_stats stats = kgen_cache_get_stats(kgen_context_cache(ctx));
    assert_int_equal(stats.quarantined, 1);
    assert_int_equal(stats.published, 1);
    launch(&r);
    compare(&r);
    free_rig(&r);
    kgen_close(ctx);

    ctx = opened(KGEN_MODE_STRICT, dir); /* whole again */
    prepared(ctx, &spec);
    kgen_close(ctx);
}

/* ---- one workspace, many kernels ----------------------------------------- */

static void test_kernels_share_a_workspace(void **state) {
    (void)state;
    rig a, b;
    make_rig(&a, shared, "attn:d=96,g=20,lse=1 | lens=150,1,70,0,33 hkv=2");
    make_rig(&b, shared, cases[1]);
    rig *large = a.args.workspace_bytes > b.args.workspace_bytes ? &a : &b;
    rig *small = large == &a ? &b : &a;
    assert_true(large->args.workspace_bytes != small->args.workspace_bytes);
    small->args.workspace = large->args.workspace;
    small->args.workspace_bytes = large->args.workspace_bytes;
    small->stream = large->stream;
    size_t size;
    unsigned char *first[2] = {NULL, NULL};
    for (int round = 0; round < 6; round++) {
        rig *order[2] = {round % 2 ? &a : &b, round % 2 ? &b : &a};
        for (int i = 0; i < 2; i++) {
            unsigned char **kept = &first[order[i] == &b];
            launch(order[i]);
            compare(order[i]);
            assert_counters_at_rest(large);
            if (*kept)
                assert_outputs(order[i], *kept, "another turn");
            else
                *kept = outputs_of(order[i], &size);
        }
    }
    free(first[0]);
    free(first[1]);
    small->stream = NULL;
    free_rig(&a);
    free_rig(&b);
}

/* ---- addresses ----------------------------------------------------------- */

/* Gives a tensor of pages a step of `step` bytes between them, from `base`. */
static void spread(kgen_tensor *t, char *base, int64_t step, size_t page_bytes) {
    int64_t old = t->stride[0] * kgen_dtype_size(t->dtype);
    for (int64_t page = 0; page < t->shape[0]; page++)
        memcpy(base + page * step, (char *)t->data + page * old, page_bytes);
    t->data = base;
    t->stride[0] = step / kgen_dtype_size(t->dtype);
}

static void check_far_pages(const char *line) {
    const int64_t step = ((int64_t)1 << 32) + 4096;
    rig r;
    make_rig(&r, shared, line);
    launch(&r);
    compare(&r);
    size_t size;
    unsigned char *want = outputs_of(&r, &size);
    size_t k_bytes =
        (size_t)r.args.attn->k.stride[0] * (size_t)kgen_dtype_size(r.args.attn->k.dtype);
    size_t v_bytes =
        (size_t)r.args.attn->v.stride[0] * (size_t)kgen_dtype_size(r.args.attn->v.dtype);
    size_t bytes = (size_t)((r.args.attn->k.shape[0] - 1) * step) + (1 << 20);
    assert_true(bytes > (size_t)8 << 30 && k_bytes < 1 << 19 && v_bytes < 1 << 19);
    char *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) {
        print_message("skipped: %zu bytes of address space are not to be had\n", bytes);
        free(want);
        free_rig(&r);
        skip();
    }
    spread(&r.args.attn->k, region, step, k_bytes);
    spread(&r.args.attn->v, region + (1 << 19), step, v_bytes);
    launch(&r);
    assert_outputs(&r, want, "pages more than 4 GiB apart");
    munmap(region, bytes);
    free(want);
    free_rig(&r);
}

/* aiter's 32-bit strides, and page numbers cut to 16 bits (ATOM#702, attn.txt has those). */
static void test_addresses_beyond_4_gib(void **state) {
    (void)state;
    check_far_pages(PLAIN " | lens=32 hkv=2");
    check_far_pages("attn:d=64,g=2,page=32,layout=shuffle,kv=fp8,descale=head | lens=60 hkv=2");
    check_far_pages(XPACKED " | lens=30 hkv=2");
    check_far_pages(ONE " | lens=2 hkv=3");
}

/* Every page but number 0 is 4 TiB away or more, where nothing is mapped. */
static void test_entries_past_the_end_are_not_followed(void **state) {
    (void)state;
    static const char *const lines[] = {PLAIN " | lens=16,3,0,9 hkv=2 cols=6",
                                        SHUFFLE " | lens=32,17,0,1 hkv=2 cols=6",
                                        XPACKED " | lens=16,8,0,7 hkv=2 cols=6"};
    for (int n = 0; n < 3; n++) {
        rig r;
        size_t size;
        make_rig(&r, shared, lines[n]);
        int32_t *table = r.args.attn->block_table.data;
        int64_t row = r.args.attn->block_table.stride[0],
                columns = r.args.attn->block_table.shape[1];
        for (int64_t s = 0; s < r.args.attn->seq_lens.shape[0]; s++) table[s * row] = table[0];
        launch(&r);
        unsigned char *want = outputs_of(&r, &size);
        kgen_tensor *caches[] = {&r.args.attn->k, &r.args.attn->v};
        for (int i = 0; i < 2; i++) {
            int page_size = kgen_dtype_size(caches[i]->dtype);
            caches[i]->data = (char *)caches[i]->data + table[0] * caches[i]->stride[0] * page_size;
            caches[i]->stride[0] = ((int64_t)1 << 42) / page_size;
        }
        for (int64_t s = 0; s < r.args.attn->seq_lens.shape[0]; s++)
            for (int64_t c = 0; c < columns; c++) {
                int live = c == 0 && ((int32_t *)r.args.attn->seq_lens.data)[s] > 0;
                table[s * row + c] = live ? 0 : c % 2 ? -1 : INT32_MAX;
            }
        launch(&r);
        assert_outputs(&r, want, "with garbage past the end of the tables");
        free(want);
        free_rig(&r);
    }
}

/* Pages that a window has left behind may be gone, too. */
/* But for the first page, which has the kept keys. */
static void test_entries_before_the_window_are_not_followed(void **state) {
    (void)state;
    rig r;
    size_t size;
    make_rig(&r, shared,
             ALL " | lens=200,96 qlens=3,1 hkv=2 page=32 window=20 cols=2 kds=token "
                 "vds=token");
    launch(&r);
    compare(&r);
    unsigned char *want = outputs_of(&r, &size);
    int64_t *table = r.args.attn->block_table.data, row = r.args.attn->block_table.stride[0];
    const int32_t lens[] = {200, 96}, first[] = {200 - 3 - 20 + 1, 96 - 20};
    for (int s = 0; s < 2; s++)
        for (int64_t c = 0; c < r.args.attn->block_table.shape[1]; c++)
            if ((c > 0 && c < first[s] / 32) || c >= (lens[s] + 31) / 32)
                table[s * row + c] = c % 2 ? -((int64_t)1 << 40) : (int64_t)1 << 40;
    launch(&r);
    assert_outputs(&r, want, "with garbage outside the window");
    free(want);
    free_rig(&r);
}

/* ---- threads ------------------------------------------------------------- */

enum { THREADS = 2, THREAD_LAUNCHES = 40 };

typedef struct runner {
    rig r;
    unsigned char *want;
    size_t size;
    int wrong, failed;
} runner;

static void *run_many(void *user) {
    runner *t = user;
    for (int i = 0; i < THREAD_LAUNCHES; i++) {
        kgen__data_poison_outputs(&t->r.data);
        if (kgen_launch(t->r.kernel, &t->r.args, t->r.stream, NULL) != KGEN_OK ||
            kgen_stream_sync(t->r.ctx, t->r.stream, NULL) != KGEN_OK) {
            t->failed++;
            continue;
        }
        size_t at = 0;
        for (int s = 0; s < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_ATTN}); s++) {
            const kgen__slot *slot = &t->r.data.slot[s];
            if (!slot->bytes || slot->role == KGEN_USE_IN) continue;
            t->wrong += memcmp(slot->bytes, t->want + at, slot->size) != 0;
            at += slot->size;
        }
    }
    return NULL;
}

/* Two streams, one kernel in both, then another in each. */
static void check_threads(const char *const lines[THREADS]) {
    runner runners[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        runners[i] = (runner){.wrong = 0};
        make_rig(&runners[i].r, shared, lines[i]);
        launch(&runners[i].r);
        compare(&runners[i].r);
        runners[i].want = outputs_of(&runners[i].r, &runners[i].size);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &runners[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(runners[i].failed, 0);
        assert_int_equal(runners[i].wrong, 0);
        free(runners[i].want);
        free_rig(&runners[i].r);
    }
}

static void test_two_threads(void **state) {
    (void)state;
    check_threads((const char *[]){PLAIN " | lens=90,20 hkv=2", PLAIN " | lens=9,200,50 hkv=1"});
    check_threads((const char *[]){cases[1], cases[2]});
}

/* ---- graphs -------------------------------------------------------------- */

static kgen_graph *captured(rig *r) {
    kgen_graph *graph = NULL;
    DO(kgen_graph_begin(r->ctx, r->stream, &did));
    DO(kgen_launch(r->kernel, &r->args, r->stream, &did));
    DO(kgen_graph_end(r->ctx, r->stream, &graph, &did));
    return graph;
}

static void replay(rig *r, kgen_graph *graph) {
    kgen__data_poison_outputs(&r->data);
    DO(kgen_graph_launch(graph, r->stream, &did));
    DO(kgen_stream_sync(r->ctx, r->stream, &did));
}

/* Drafts inside a captured graph (vllm#52816, sglang#39517): each replay takes the drafts,
 * lengths and pages of its step, none among them, and gives what a launch gives. */
static void test_a_graph_follows_the_lengths(void **state) {
    (void)state;
    static const int32_t lens[][3] = {{70, 33, 2}, {1, 0, 2}, {0, 0, 0}, {64, 33, 0}, {17, 32, 2}};
    static const int32_t qlens[][3] = {{4, 0, 3}, {1, 0, 2}, {0, 0, 0}, {4, 4, 0}, {0, 4, 1}};
    rig r;
    make_rig(&r, shared, cases[1]);
    kgen__data_poison_outputs(&r.data);
    size_t size;
    unsigned char *poison = outputs_of(&r, &size);
    kgen_graph *graph = captured(&r);
    assert_outputs(&r, poison, "a capture runs nothing");
    free(poison);
    for (int i = 0; i < 5; i++) {
        refill(&r, lens[i], qlens[i], seed + (uint64_t)i);
        replay(&r, graph);
        compare(&r);
        unsigned char *want = outputs_of(&r, &size);
        launch(&r);
        assert_outputs(&r, want, "a launch and a replay");
        free(want);
    }
    kgen_graph_free(graph);
    free_rig(&r);
}

/* Sanitized kernels take twenty times as long. */
static int replays_wanted(void) {
    if (test_level() == LEVEL_FAST) return 100;
    if (test_level() == LEVEL_NORMAL) return 1000;
    return test_is_sanitized() ? 5000 : 100000;
}

static void test_replays_repeat(void **state) {
    (void)state;
    rig r;
    size_t size;
    int count = replays_wanted();
    make_rig(&r, shared, PLAIN " | lens=150,3 hkv=1"); /* cut over several workgroups */
    kgen_graph *graph = captured(&r);
    replay(&r, graph);
    compare(&r);
    unsigned char *want = outputs_of(&r, &size);
    for (int i = 0; i < count; i++) {
        replay(&r, graph);
        assert_outputs(&r, want, "a replay");
    }
    assert_counters_at_rest(&r);
    print_message("%d replays\n", count);
    free(want);
    kgen_graph_free(graph);
    free_rig(&r);
}

/* ---- frame --------------------------------------------------------------- */

static int set_up(void **state) {
    (void)state;
    kgen_error err;
    kgen_toolchain tc;
    const kgen_target *target;
    kgen_open_options options = {.size = sizeof options, .device = DEVICE};
    if (kgen_target_find(&target, DEVICE, &err) != KGEN_OK ||
        kgen_toolchain_find(&tc, target, &err) != KGEN_OK ||
        kgen_open(&shared, &options, &err) != KGEN_OK) {
        print_message("%s\n", err.text);
        return -1;
    }
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    char command[256];
    (void)state;
    kgen_close(shared);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_prepare_launch_close),
        cmocka_unit_test(test_prepare_keeps_kernels),
        cmocka_unit_test(test_scales_of_the_host),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_the_widest_window),
        cmocka_unit_test(test_refusals_plain),
        cmocka_unit_test(test_refusals_all),
        cmocka_unit_test(test_refusals_shuffle),
        cmocka_unit_test(test_refusals_xpacked),
        cmocka_unit_test(test_refusals_one),
        cmocka_unit_test(test_descale_shapes),
        cmocka_unit_test(test_workspace_limits),
        cmocka_unit_test(test_launch_counts_its_items),
        cmocka_unit_test(test_strict_mode),
        cmocka_unit_test(test_offline_mode),
        cmocka_unit_test(test_offline_without_a_cache),
        cmocka_unit_test(test_warn_mode),
        cmocka_unit_test(test_device_names),
        cmocka_unit_test(test_default_device),
        cmocka_unit_test(test_sizes_of_options),
        cmocka_unit_test(test_a_corrupt_entry_is_built_again),
        cmocka_unit_test(test_kernels_share_a_workspace),
        cmocka_unit_test(test_addresses_beyond_4_gib),
        cmocka_unit_test(test_entries_past_the_end_are_not_followed),
        cmocka_unit_test(test_entries_before_the_window_are_not_followed),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_a_graph_follows_the_lengths),
        cmocka_unit_test(test_replays_repeat),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

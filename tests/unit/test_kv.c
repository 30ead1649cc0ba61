/* kv_write and kv_gather: every argument that is refused, what comes back of
 * what was written, and attention over it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "note_device.h"
#include "seed.h"
#include "world.h"

static uint64_t seed;
static kgen__rng rng;

/* ---- refusals ------------------------------------------------------------- */

typedef struct rig {
    kgen_context ctx;
    kgen_kernel kernel;
    kgen_args args;
    kgen_args_room room;
} rig;

static void make_kernel(rig *r, const char *line) {
    kgen_spec spec;
    kgen_error err;
    memset(r, 0, sizeof *r);
    r->ctx.api = &note;
    r->kernel.ctx = &r->ctx;
    if (kgen_target_find(&r->ctx.target, "cpu:cdna3", &err) != KGEN_OK ||
        kgen_spec_parse(&spec, line, &err) != KGEN_OK ||
        kgen_spec_resolve(&r->kernel.spec, &spec, r->ctx.target, &err) != KGEN_OK)
        fail_msg("%s: %s", line, err.text);
    kgen__launch_bind(&r->kernel);
    r->args.family = spec.family;
    r->args.any = &r->room;
}

static kgen_tensor at(int place, int32_t dtype, int32_t layout, int32_t rank,
                      const int64_t *shape) {
    kgen_tensor t = kgen_tensor_dense((void *)(uintptr_t)((uint64_t)place << 32), (kgen_dtype)dtype,
                                      rank, shape);
    t.layout = (kgen_layout)layout;
    return t;
}

#define AT(place, dtype, layout, ...)                                            \
    at(place, dtype, layout, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
       (const int64_t[]){__VA_ARGS__})

enum { ROWS = 40, PAGES = 9, PAGE = 16, HEADS = 4, QUERIES = 8, DIM = 64, POSITIONS = 100 };

static kgen_tensor cache_at(int place, int32_t layout, int32_t kv, int is_v) {
    int64_t x = 16 / kgen_dtype_size((kgen_dtype)kv);
    int64_t row = DIM / kgen_dtype_values((kgen_dtype)kv);
    if (layout == KGEN_LAYOUT_NHD) return AT(place, kv, layout, PAGES, PAGE, HEADS, row);
    if (layout == KGEN_LAYOUT_HND) return AT(place, kv, layout, PAGES, HEADS, PAGE, row);
    if (!is_v) return AT(place, kv, layout, PAGES, HEADS, DIM / x, PAGE, x);
    return layout == KGEN_LAYOUT_SHUFFLE ? AT(place, kv, layout, PAGES, HEADS, PAGE / x, DIM, x)
                                         : AT(place, kv, layout, PAGES, HEADS, DIM, PAGE);
}

static kgen_tensor scale_at(int place, int32_t scale) {
    if (scale == KGEN_DESCALE_HEAD) return AT(place, KGEN_DTYPE_F32, 0, HEADS);
    return AT(place, KGEN_DTYPE_F32, KGEN_LAYOUT_NHD, PAGES, PAGE, HEADS);
}

/* Values of 256 dims with a scale a block, in nhd. */
static void widen(kgen_tensor *v, kgen_tensor *cache, kgen_tensor *scale) {
    *v = AT(13, v->dtype, 0, v->shape[0], HEADS, 4 * DIM);
    *cache = AT(14, cache->dtype, KGEN_LAYOUT_NHD, PAGES, PAGE, HEADS, 4 * DIM);
    *scale = AT(15, KGEN_DTYPE_F32, 0, PAGES, PAGE, HEADS, 2);
}

static void make_write(rig *r, const char *line) {
    make_kernel(r, line);
    const kgen_kv_write_spec *s = &r->kernel.spec.kv_write;
    kgen_kv_write_args *a = r->args.kv_write;
    a->k = AT(1, s->x, 0, ROWS + 2, HEADS, DIM);
    a->v = AT(2, s->x, 0, ROWS, HEADS, DIM);
    a->slots = AT(3, s->slots ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, 0, ROWS);
    int blocks = s->scale == KGEN_DESCALE_BLOCK;
    a->k_cache = cache_at(4, s->layout, blocks ? s->x : s->kv, 0);
    a->v_cache = cache_at(5, s->layout, s->kv, 1);
    if (blocks) widen(&a->v, &a->v_cache, &a->v_scale);
    if (s->scale != KGEN_DESCALE_NONE && !blocks) {
        a->k_scale = scale_at(6, s->scale);
        a->v_scale = scale_at(7, s->scale);
    }
    if (s->remap) a->remap = AT(8, s->remap == 2 ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, 0, 500);
    a->first_slot = 0;
    if (!s->rope) return;
    a->positions = AT(9, s->positions ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, 0, ROWS);
    int64_t width = s->table_full ? s->rope_dim : s->rope_dim / 2;
    a->cos = AT(10, s->table, 0, POSITIONS, width);
    a->sin = AT(11, s->table, 0, POSITIONS, width);
    if (s->rope_q) a->q = a->q_out = AT(12, s->x, 0, ROWS, QUERIES, DIM);
}

static void make_gather(rig *r, const char *line) {
    make_kernel(r, line);
    const kgen_kv_gather_spec *s = &r->kernel.spec.kv_gather;
    kgen_kv_gather_args *a = r->args.kv_gather;
    int blocks = s->descale == KGEN_DESCALE_BLOCK;
    a->k_cache = cache_at(4, s->layout, blocks ? s->out : s->kv, 0);
    a->v_cache = cache_at(5, s->layout, s->kv, 1);
    a->block_table = AT(1, s->table ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, 0, 3, 5);
    kgen_dtype lens = s->len_type ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32;
    a->cu_seqlens = AT(2, s->cu_type ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, 0, 4);
    a->seq_lens = AT(3, lens, 0, 3);
    if (s->from == KGEN_FROM_START) a->starts = AT(6, lens, 0, 3);
    if (s->descale != KGEN_DESCALE_NONE && !blocks) {
        a->k_descale = scale_at(7, s->descale);
        a->v_descale = scale_at(8, s->descale);
    }
    a->k = AT(9, s->out, 0, ROWS, HEADS, DIM);
    a->v = AT(10, s->out, 0, ROWS, HEADS, DIM);
    if (blocks) widen(&a->v, &a->v_cache, &a->v_descale);
}

static void make(rig *r, const char *line) {
    (strncmp(line, "kv_write", 8) == 0 ? make_write : make_gather)(r, line);
}

static void refuse(rig *r, const char *line, const char *says) {
    kgen_error err = {KGEN_OK, ""};
    noted.launches = 0;
    if (kgen_launch(&r->kernel, &r->args, NULL, &err) == KGEN_OK)
        fail_msg("%s: no '%s'", line, says);
    assert_int_equal(err.status, KGEN_E_ARG);
    assert_int_equal(noted.launches, 0);
    if (!strstr(err.text, says)) fail_msg("%s: '%s' does not say '%s'", line, err.text, says);
}

#define NHD "kv_write:d=64,layout=nhd"
#define SHUFFLE "kv_write:d=64,layout=shuffle,kv=e4m3fn,scale=token"
#define XPACKED "kv_write:d=64,layout=xpacked,kv=i8,scale=row,remap=i64,slots=i32"
#define HND "kv_write:d=64,layout=hnd,kv=e5m2,scale=head,remap=i32"
#define AL4 "kv_write:d=64,layout=nhd,al=4,rope=neox,tw=full,rq=1"
#define AL2 "kv_write:d=64,layout=hnd,al=2"
#define G_AL4 "kv_gather:d=64,layout=nhd,al=4,len=i64,cu=i64"
#define BLOCKS "kv_write:d=64,dv=256,layout=nhd,kv=e4m3fn,scale=block"
#define G_BLOCKS "kv_gather:d=64,dv=256,layout=nhd,kv=e4m3fn,descale=block"
#define NHD4 "kv_write:d=64,layout=nhd,kv=i4"
#define G_HND4 "kv_gather:d=64,layout=hnd,kv=i4"
#define ROPE "kv_write:d=64,layout=nhd,rope=neox,rd=32,rq=1,ct=bf16"
#define X16 "kv_write:d=64,layout=nhd,page=x16"
#define G_NHD "kv_gather:d=64,layout=nhd"
#define G_SHUFFLE "kv_gather:d=64,layout=shuffle,kv=e4m3fn,table=i64,descale=token"
#define G_END "kv_gather:d=64,layout=hnd,kv=i8,from=end"
#define G_XPACKED "kv_gather:d=64,layout=xpacked,kv=bf16"

static const char *const lines[] = {NHD,       SHUFFLE, XPACKED,   HND,  ROPE,   X16,    G_NHD,
                                    G_SHUFFLE, G_END,   G_XPACKED, NHD4, G_HND4, BLOCKS, G_BLOCKS};
enum { LINES = sizeof lines / sizeof lines[0] };

static void test_valid_arguments_are_launched(void **state) {
    (void)state;
    for (int i = 0; i < LINES; i++) {
        rig r;
        kgen_error err;
        make(&r, lines[i]);
        noted.launches = 0;
        if (kgen_launch(&r.kernel, &r.args, NULL, &err) != KGEN_OK)
            fail_msg("%s: %s", lines[i], err.text);
        assert_int_equal(noted.launches, 1);
    }
}

/* Two dims in a byte: half as many elements, which may come as plain bytes. */
static void test_pairs_of_dims(void **state) {
    (void)state;
    rig r;
    kgen_error err;
    make(&r, NHD4);
    r.args.kv_write->k_cache.dtype = r.args.kv_write->v_cache.dtype = KGEN_DTYPE_U8;
    noted.launches = 0;
    assert_int_equal(kgen_launch(&r.kernel, &r.args, NULL, &err), KGEN_OK);
    assert_int_equal(noted.launches, 1);
    r.args.kv_write->k_cache = AT(4, KGEN_DTYPE_I4, KGEN_LAYOUT_NHD, PAGES, PAGE, HEADS, DIM);
    refuse(&r, NHD4, "k_cache: shape[3]=64, 32 expected");
}

/* What one field must not be. */
typedef enum change {
    NO_DATA,
    DTYPE,
    RANK,
    SHAPE0,
    SHAPE1,
    SHAPE2,
    STRIDE0,
    STRIDE1,
    LAST,
    TAG,
    SHIFT,
    SAME,
    HUGE0
} change;

typedef struct bad {
    const char *line;
    size_t offset; /* of the tensor in the struct of its family */
    change change;
    size_t other; /* SAME: takes the address of this tensor */
    const char *says;
} bad;

#define W(field) offsetof(kgen_kv_write_args, field)
#define G(field) offsetof(kgen_kv_gather_args, field)

static kgen_tensor *tensor_at(rig *r, size_t offset) {
    return (kgen_tensor *)((char *)r->args.any + offset);
}

static void spoil(rig *r, const bad *b) {
    kgen_tensor *t = tensor_at(r, b->offset);
    switch (b->change) {
    case NO_DATA:
        t->data = NULL;
        break;
    case DTYPE:
        t->dtype = t->dtype == KGEN_DTYPE_F32 ? KGEN_DTYPE_I64 : KGEN_DTYPE_F32;
        break;
    case RANK:
        t->rank--;
        break;
    case SHAPE0:
        t->shape[0]--;
        break;
    case SHAPE1:
        t->shape[1]++;
        break;
    case SHAPE2:
        t->shape[2]++;
        break;
    case STRIDE0:
        t->stride[0]++;
        break;
    case STRIDE1:
        t->stride[1]++;
        break;
    case LAST:
        t->stride[t->rank - 1] = 2;
        break;
    case TAG:
        t->layout = t->layout == KGEN_LAYOUT_HND ? KGEN_LAYOUT_SHUFFLE : KGEN_LAYOUT_NONE;
        break;
    case SHIFT:
        t->data = (char *)t->data + 2;
        break;
    case SAME:
        t->data = (char *)tensor_at(r, b->other)->data + 64;
        break;
    case HUGE0:
        t->shape[0] = (int64_t)INT32_MAX + 1;
        break;
    }
}

static const bad bads[] = {
    {NHD, W(k), NO_DATA, 0, "k: no data"},
    {NHD, W(k), DTYPE, 0, "k: dtype f32, kernel built for bf16"},
    {NHD, W(k), RANK, 0, "k: rank 2, 3 expected"},
    {NHD, W(v), SHAPE0, 0, "v: shape[0]=39, at least 40 expected"},
    {NHD, W(v), SHAPE1, 0, "v: shape[1]=5, 4 expected"},
    {NHD, W(k), SHAPE2, 0, "k: shape[2]=65, 64 expected"},
    {NHD, W(k), STRIDE0, 0, "k: stride[0]=257 elements is not a multiple of 16 bytes"},
    {NHD, W(v), LAST, 0, "v: stride[2]=2, 1 expected"},
    {NHD, W(k), SHIFT, 0, "k: address"},
    {NHD, W(slots), DTYPE, 0, "slots: dtype f32, kernel built for i64"},
    {NHD, W(slots), LAST, 0, "slots: stride[0]=2, 1 expected"},
    {NHD, W(slots), HUGE0, 0, "slots: shape[0]=2147483648, at most"},
    {XPACKED, W(slots), DTYPE, 0, "slots: dtype f32, kernel built for i32"},
    {NHD, W(k_cache), NO_DATA, 0, "k_cache: no data"},
    {NHD, W(k_cache), DTYPE, 0, "k_cache: dtype f32, kernel built for bf16"},
    {NHD, W(k_cache), TAG, 0, "k_cache: layout is none, kernel built for nhd"},
    {HND, W(v_cache), TAG, 0, "v_cache: layout is shuffle, kernel built for hnd"},
    {NHD, W(k_cache), SHAPE0, 0, "v_cache: shape[0]=9, 8 expected"},
    {NHD, W(k_cache), SHAPE1, 0, "k_cache: pages of 17 tokens, kernel built for page=16"},
    {X16, W(k_cache), SHAPE1, 0, "k_cache: pages of 17 tokens, a multiple of 16"},
    {SHUFFLE, W(v_cache), SHAPE2, 0, "v_cache: pages of 32 tokens, kernel built for page=16"},
    {SHUFFLE, W(k_cache), SHAPE1, 0, "k_cache: shape[1]=5, 4 expected"},
    {NHD, W(v_cache), STRIDE1, 0, "v_cache: stride[1]=257 elements is not a multiple of 16"},
    {NHD, W(v_cache), SHIFT, 0, "v_cache: address"},
    {NHD, W(v_cache), SAME, W(k), "k: overlaps v_cache, which the kernel writes"},
    {NHD, W(k), SAME, W(k_cache), "k: overlaps k_cache, which the kernel writes"},
    {NHD, W(v), SAME, W(k_cache), "v: overlaps k_cache"},
    {HND, W(k_scale), NO_DATA, 0, "k_scale: no data"},
    {BLOCKS, W(v_scale), NO_DATA, 0, "v_scale: no data"},
    {BLOCKS, W(v_scale), SHAPE0, 0, "v_scale: shape[0]=8, 9 expected"},
    {BLOCKS, W(v_scale), SHAPE2, 0, "v_scale: shape[2]=5, 4 expected"},
    {BLOCKS, W(v_scale), LAST, 0, "v_scale: stride[3]=2, 1 expected"},
    {BLOCKS, W(k_cache), DTYPE, 0, "k_cache: dtype f32, kernel built for bf16"},
    {BLOCKS, W(v_cache), SHAPE1, 0, "v_cache: pages of 17 tokens, kernel built for page=16"},
    {G_BLOCKS, G(v_descale), SHAPE1, 0, "v_descale: shape[1]=17, 16 expected"},
    {G_BLOCKS, G(k_cache), DTYPE, 0, "k_cache: dtype f32, kernel built for bf16"},
    {NHD4, W(v_scale), NO_DATA, 0, "v_scale: no data"},
    {NHD4, W(k_cache), DTYPE, 0, "k_cache: dtype f32, kernel built for i4"},
    {G_HND4, G(k_descale), NO_DATA, 0, "k_descale: no data"},
    {G_HND4, G(v_cache), SHAPE2, 0, "v_cache: pages of 17 tokens, kernel built for page=16"},
    {HND, W(k_scale), SHAPE0, 0, "k_scale: shape[0]=3, 4 expected"},
    {HND, W(v_scale), DTYPE, 0, "v_scale: dtype i64, kernel built for f32"},
    {SHUFFLE, W(k_scale), TAG, 0, "k_scale: layout is none; tag it nhd"},
    {SHUFFLE, W(k_scale), SHAPE0, 0, "k_scale: shape[0]=8, 9 expected"},
    {SHUFFLE, W(v_scale), SHAPE1, 0, "v_scale: shape[1]=17, 16 expected"},
    {XPACKED, W(v_scale), SHAPE2, 0, "v_scale: shape[2]=5, 4 expected"},
    {XPACKED, W(remap), DTYPE, 0, "remap: dtype f32, kernel built for i64"},
    {HND, W(remap), DTYPE, 0, "remap: dtype f32, kernel built for i32"},
    {HND, W(remap), LAST, 0, "remap: stride[0]=2, 1 expected"},
    {ROPE, W(positions), SHAPE0, 0, "positions: shape[0]=39, 40 expected"},
    {ROPE, W(positions), DTYPE, 0, "positions: dtype f32, kernel built for i64"},
    {ROPE, W(cos), DTYPE, 0, "cos: dtype f32, kernel built for bf16"},
    {ROPE, W(cos), SHAPE1, 0, "cos: shape[1]=17, 16 expected"},
    {ROPE, W(sin), SHAPE0, 0, "sin: shape[0]=99, 100 expected"},
    {ROPE, W(sin), SHIFT, 0, "sin: address"},
    {ROPE, W(q), SHAPE0, 0, "q: shape[0]=39, at least 40 expected"},
    {ROPE, W(q_out), SHAPE1, 0, "q_out: shape[1]=9, 8 expected"},
    {ROPE, W(q_out), SAME, W(q), "q: overlaps q_out, which the kernel writes"},
    {AL4, W(k), STRIDE0, 0, "k: stride[0]=257 elements is not a multiple of 4 bytes"},
    {AL4, W(q), SHIFT, 0, "q: address"},
    {AL4, W(k_cache), STRIDE1, 0, "k_cache: stride[1]=257 elements is not a multiple of 4"},
    {AL4, W(cos), SHAPE1, 0, "cos: shape[1]=65, 64 expected"},
    {G_AL4, G(v), SHIFT, 0, "v: address"},
    {G_AL4, G(v_cache), SHIFT, 0, "v_cache: address"},
    {G_AL4, G(seq_lens), DTYPE, 0, "seq_lens: dtype f32, kernel built for i64"},
    {G_AL4, G(cu_seqlens), DTYPE, 0, "cu_seqlens: dtype f32, kernel built for i64"},
    {G_NHD, G(k), DTYPE, 0, "k: dtype f32, kernel built for bf16"},
    {G_NHD, G(k), SHAPE0, 0, "v: shape[0]=40, 39 expected"},
    {G_NHD, G(v), SHAPE1, 0, "v: shape[1]=5, 4 expected"},
    {G_NHD, G(v), STRIDE0, 0, "v: stride[0]=257 elements is not a multiple of 16 bytes"},
    {G_NHD, G(k), SAME, G(k_cache), "k_cache: overlaps k, which the kernel writes"},
    {G_NHD, G(v), SAME, G(v_cache), "v_cache: overlaps v"},
    {G_NHD, G(block_table), DTYPE, 0, "block_table: dtype f32, kernel built for i32"},
    {G_SHUFFLE, G(block_table), DTYPE, 0, "block_table: dtype f32, kernel built for i64"},
    {G_NHD, G(block_table), SHAPE0, 0, "block_table: shape[0]=2, at least 3 expected"},
    {G_NHD, G(block_table), LAST, 0, "block_table: stride[1]=2, 1 expected"},
    {G_NHD, G(cu_seqlens), SHAPE0, 0, "cu_seqlens: shape[0]=3, 4 expected"},
    {G_NHD, G(seq_lens), DTYPE, 0, "seq_lens: dtype f32, kernel built for i32"},
    {G_NHD, G(starts), SHAPE0, 0, "starts: shape[0]=2, 3 expected"},
    {G_END, G(k_descale), SHAPE0, 0, "k_descale: shape[0]=3, 4 expected"},
    {G_SHUFFLE, G(v_descale), TAG, 0, "v_descale: layout is none; tag it nhd"},
    {G_SHUFFLE, G(k_cache), TAG, 0, "k_cache: layout is none, kernel built for shuffle"},
    {G_XPACKED, G(v_cache), SHAPE1, 0, "v_cache: shape[1]=5, 4 expected"},
};

static void test_bad_tensors_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        rig r;
        make(&r, bads[i].line);
        spoil(&r, &bads[i]);
        refuse(&r, bads[i].line, bads[i].says);
    }
}

/* Rows of latent attention are gathered as columns of one tensor. */
static void test_columns_of_one_row(void **state) {
    (void)state;
    rig r;
    make(&r, G_NHD);
    kgen_tensor *k = &r.args.kv_gather->k, *v = &r.args.kv_gather->v;
    k->stride[0] = v->stride[0] = 512;
    v->data = (char *)k->data + 512;
    noted.launches = 0;
    assert_int_equal(kgen_launch(&r.kernel, &r.args, NULL, NULL), KGEN_OK);
    assert_int_equal(noted.launches, 1);
    v->data = (char *)k->data + 496;
    refuse(&r, G_NHD, "v: overlaps k, which the kernel writes");
    v->data = (char *)k->data + 528; /* its rows end in the next ones of k */
    refuse(&r, G_NHD, "v: overlaps k");
    v->data = (char *)k->data + 512;
    v->stride[0] = 528;
    refuse(&r, G_NHD, "v: overlaps k");
}

static void test_other_guards(void **state) {
    (void)state;
    rig r;
    make(&r, NHD);
    r.args.kv_write->first_slot = -1;
    refuse(&r, NHD, "first_slot=-1: at least 0");
    make(&r, NHD);
    r.args.kv_write->v_cache.data = r.args.kv_write->k_cache.data;
    refuse(&r, NHD, "v_cache: the address of k_cache");
    make(&r, NHD); /* no page: nowhere to write, and torch gives such tensors no address */
    r.args.kv_write->k_cache.data = r.args.kv_write->v_cache.data = NULL;
    r.args.kv_write->k_cache.shape[0] = r.args.kv_write->v_cache.shape[0] = 0;
    noted.launches = 0;
    assert_int_equal(kgen_launch(&r.kernel, &r.args, NULL, NULL), KGEN_OK);
    make(&r, NHD);
    r.args.kv_write->k_cache.stride[0] = 512;
    refuse(&r, NHD, "k_cache: stride[0]=512, at least 4096, or its parts overlap");
    make(&r, SHUFFLE);
    r.args.kv_write->k_scale.stride[2] = 0;
    refuse(&r, SHUFFLE, "k_scale: stride[2]=0");
    make(&r, XPACKED);
    r.args.kv_write->k_scale.stride[2] = 0; /* one entry for all heads */
    noted.launches = 0;
    assert_int_equal(kgen_launch(&r.kernel, &r.args, NULL, NULL), KGEN_OK);
    assert_int_equal(noted.launches, 1);
    make(&r, ROPE);
    r.args.kv_write->q_out.stride[0] *= 2;
    refuse(&r, ROPE, "q_out: stride 1024, 64, in place q has 512, 64");
    r.args.kv_write->q.shape[0] = r.args.kv_write->q_out.shape[0] =
        0; /* no rows: nothing in place */
    r.args.kv_write->slots.shape[0] = r.args.kv_write->positions.shape[0] = 0;
    r.args.kv_write->q.data = r.args.kv_write->q_out.data = NULL;
    assert_int_equal(kgen_launch(&r.kernel, &r.args, NULL, NULL), KGEN_OK);
    make(&r, ROPE); /* one head has no stride */
    r.args.kv_write->q.shape[1] = r.args.kv_write->q_out.shape[1] = 1;
    r.args.kv_write->q_out.stride[1] = 512;
    assert_int_equal(kgen_launch(&r.kernel, &r.args, NULL, NULL), KGEN_OK);
    make(&r, NHD);
    r.args.kv_write->k_cache.shape[0] = r.args.kv_write->v_cache.shape[0] = (int64_t)1 << 28;
    refuse(&r, NHD, "at most 2^31-1 slots");
    make(&r, G_NHD);
    r.args.kv_gather->v.data = r.args.kv_gather->k.data;
    refuse(&r, G_NHD, "v: overlaps k, which the kernel writes");
    make(&r, G_NHD);
    r.args.family = KGEN_FAMILY_KV_WRITE;
    refuse(&r, G_NHD, "args: family kv_write, kernel built for kv_gather");
    make(&r, G_NHD);
    r.args.kv_gather = NULL;
    refuse(&r, G_NHD, "args: kv_gather is NULL, where the arguments of the family are expected");
    size_t bytes;
    assert_int_equal(kgen_workspace_size(&r.kernel, &r.args, &bytes, NULL), KGEN_E_ARG);
}

/* ---- there and back ---------------------------------------------------------- */

enum { TOKENS = 37, SEQ_PAGES = 3 };

typedef struct trip {
    const char *layout, *kv, *scale;
    int32_t layout_id, kv_id, scale_id;
    double relative; /* error of one rounding */
} trip;

#define LAYOUTS(kv, scale, kv_id, scale_id, relative)                             \
    {"nhd", kv, scale, KGEN_LAYOUT_NHD, kv_id, scale_id, relative},               \
        {"hnd", kv, scale, KGEN_LAYOUT_HND, kv_id, scale_id, relative},           \
        {"shuffle", kv, scale, KGEN_LAYOUT_SHUFFLE, kv_id, scale_id, relative}, { \
        "xpacked", kv, scale, KGEN_LAYOUT_XPACKED, kv_id, scale_id, relative      \
    }

static const trip trips[] = {
    LAYOUTS("bf16", "none", KGEN_DTYPE_BF16, KGEN_DESCALE_NONE, 0),
    LAYOUTS("e4m3fnuz", "head", KGEN_DTYPE_E4M3FNUZ, KGEN_DESCALE_HEAD, 1.0 / 16),
    LAYOUTS("e4m3fn", "token", KGEN_DTYPE_E4M3FN, KGEN_DESCALE_TOKEN, 1.0 / 16),
    LAYOUTS("e5m2", "row", KGEN_DTYPE_E5M2, KGEN_DESCALE_ROW, 1.0 / 8),
    LAYOUTS("i8", "token", KGEN_DTYPE_I8, KGEN_DESCALE_TOKEN, 1.0 / 127),
    {"nhd", "i4", "token", KGEN_LAYOUT_NHD, KGEN_DTYPE_I4, KGEN_DESCALE_TOKEN, 1.0 / 7},
    {"hnd", "i4", "token", KGEN_LAYOUT_HND, KGEN_DTYPE_I4, KGEN_DESCALE_TOKEN, 1.0 / 7},
};

/* Each format in some layouts, the same ones in each test: they share kernels. */
static int is_drawn(size_t i) { return test_takes(seed, i + i / 4, 2, 4); }

typedef struct stored {
    kgen_tensor k, v, slots, k_cache, v_cache, k_scale, v_scale, table, lens, cu;
    uint16_t k_in[TOKENS * HEADS * DIM], v_in[TOKENS * HEADS * DIM];
} stored;

static kgen_tensor cache_in(world *w, const trip *t, int is_v) {
    kgen_tensor shape = cache_at(1, t->layout_id, t->kv_id, is_v);
    return world_put(w, t->kv_id, t->layout_id, NULL, shape.rank, shape.shape);
}

/* One sequence of TOKENS tokens in three pages out of order. */
static void fill(world *w, stored *d, const trip *t) {
    static const int32_t pages[SEQ_PAGES] = {5, 2, 7}, len = TOKENS;
    static const int32_t ends[2] = {0, TOKENS};
    int64_t slots[TOKENS];
    float unit[HEADS] = {0.02f, 0.03f, 0.04f, 0.05f};
    for (int i = 0; i < TOKENS * HEADS * DIM; i++) {
        d->k_in[i] = (uint16_t)kgen__number_encode(KGEN_DTYPE_BF16, kgen__rng_normal(&rng));
        d->v_in[i] = (uint16_t)kgen__number_encode(KGEN_DTYPE_BF16, kgen__rng_normal(&rng));
    }
    for (int i = 0; i < TOKENS; i++) slots[i] = pages[i / PAGE] * PAGE + i % PAGE;
    d->k = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, d->k_in, TOKENS, HEADS, DIM);
    d->v = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, d->v_in, TOKENS, HEADS, DIM);
    d->slots = WORLD_PUT(w, KGEN_DTYPE_I64, 0, slots, TOKENS);
    d->k_cache = cache_in(w, t, 0);
    d->v_cache = cache_in(w, t, 1);
    d->table = WORLD_PUT(w, KGEN_DTYPE_I32, 0, pages, 1, SEQ_PAGES);
    d->lens = WORLD_PUT(w, KGEN_DTYPE_I32, 0, &len, 1);
    d->cu = WORLD_PUT(w, KGEN_DTYPE_I32, 0, ends, 2);
    d->k_scale = d->v_scale = (kgen_tensor){0};
    if (t->scale_id == KGEN_DESCALE_HEAD) {
        d->k_scale = WORLD_PUT(w, KGEN_DTYPE_F32, 0, unit, HEADS);
        d->v_scale = WORLD_PUT(w, KGEN_DTYPE_F32, 0, unit, HEADS);
    } else if (t->scale_id != KGEN_DESCALE_NONE) {
        d->k_scale = WORLD_PUT(w, KGEN_DTYPE_F32, KGEN_LAYOUT_NHD, NULL, PAGES, PAGE, HEADS);
        d->v_scale = WORLD_PUT(w, KGEN_DTYPE_F32, KGEN_LAYOUT_HND, NULL, PAGES, HEADS, PAGE);
    }
}

static void write_all(world *w, const stored *d, const trip *t) {
    char line[KGEN_SPEC_LINE_MAX];
    snprintf(line, sizeof line, "kv_write:d=64,layout=%s,kv=%s,scale=%s", t->layout, t->kv,
             t->scale);
    kgen_kv_write_args args = {.k = d->k,
                               .v = d->v,
                               .slots = d->slots,
                               .k_cache = d->k_cache,
                               .v_cache = d->v_cache,
                               .k_scale = d->k_scale,
                               .v_scale = d->v_scale};
    world_run(w, line, &args);
}

static const char *descale_of(const trip *t) {
    return t->scale_id == KGEN_DESCALE_ROW ? "token" : t->scale;
}

/* Of a value and the largest of its row: half a step of the format, twice rounded. */
static double bound(const trip *t, double value, double amax) {
    if (t->kv_id == KGEN_DTYPE_I8 || t->kv_id == KGEN_DTYPE_I4)
        return amax * t->relative + fabs(value) / 256;
    return t->relative ? fabs(value) * (t->relative + 1.0 / 256) + amax * 1e-3 : 0;
}

static void compare_rows(const trip *t, const uint16_t *want, const uint16_t *got) {
    for (int row = 0; row < TOKENS * HEADS; row++) {
        double amax = 0;
        for (int i = row * DIM; i < (row + 1) * DIM; i++)
            amax = fmax(amax, fabs((double)kgen__number_decode(KGEN_DTYPE_BF16, want[i])));
        for (int i = row * DIM; i < (row + 1) * DIM; i++) {
            double a = (double)kgen__number_decode(KGEN_DTYPE_BF16, want[i]);
            double b = (double)kgen__number_decode(KGEN_DTYPE_BF16, got[i]);
            if (!(fabs(a - b) <= bound(t, a, amax)))
                fail_msg("%s, %s, %s: element %d was %g, comes back as %g", t->layout, t->kv,
                         t->scale, i, a, b);
        }
    }
}

static void check_trip(world *w, const trip *t) {
    static stored d;
    static uint16_t k[TOKENS * HEADS * DIM], v[TOKENS * HEADS * DIM];
    char line[KGEN_SPEC_LINE_MAX];
    kgen_error err;
    fill(w, &d, t);
    write_all(w, &d, t);
    snprintf(line, sizeof line, "kv_gather:d=64,layout=%s,kv=%s,descale=%s", t->layout, t->kv,
             descale_of(t));
    kgen_kv_gather_args args = {.k_cache = d.k_cache,
                                .v_cache = d.v_cache,
                                .block_table = d.table,
                                .cu_seqlens = d.cu,
                                .seq_lens = d.lens,
                                .k_descale = d.k_scale,
                                .v_descale = d.v_scale,
                                .k = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, NULL, TOKENS, HEADS, DIM),
                                .v = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, NULL, TOKENS, HEADS, DIM)};
    world_run(w, line, &args);
    world_must(kgen_memory_read(w->ctx, k, args.k.data, sizeof k, &err), &err);
    world_must(kgen_memory_read(w->ctx, v, args.v.data, sizeof v, &err), &err);
    compare_rows(t, d.k_in, k);
    compare_rows(t, d.v_in, v);
}

/* Rows before cu_seqlens[0] are nobody's: zeros, the others as they were. */
static void check_first_rows(world *w) {
    enum { BEFORE = 3 };
    const trip t = {"shuffle",         "bf16", "none", KGEN_LAYOUT_SHUFFLE, KGEN_DTYPE_BF16,
                    KGEN_DESCALE_NONE, 0};
    static const int32_t ends[2] = {BEFORE, TOKENS};
    static stored d;
    static uint16_t k[TOKENS][HEADS * DIM], v[TOKENS][HEADS * DIM];
    kgen_error err;
    fill(w, &d, &t);
    write_all(w, &d, &t);
    kgen_kv_gather_args args = {.k_cache = d.k_cache,
                                .v_cache = d.v_cache,
                                .block_table = d.table,
                                .cu_seqlens = WORLD_PUT(w, KGEN_DTYPE_I32, 0, ends, 2),
                                .seq_lens = d.lens,
                                .k = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, NULL, TOKENS, HEADS, DIM),
                                .v = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, NULL, TOKENS, HEADS, DIM)};
    world_run(w, "kv_gather:d=64,layout=shuffle", &args);
    world_must(kgen_memory_read(w->ctx, k, args.k.data, sizeof k, &err), &err);
    world_must(kgen_memory_read(w->ctx, v, args.v.data, sizeof v, &err), &err);
    for (int row = 0; row < TOKENS; row++)
        for (int i = 0; i < HEADS * DIM; i++) {
            int from = (row - BEFORE) * HEADS * DIM + i, none = row < BEFORE;
            assert_int_equal(k[row][i], none ? 0 : d.k_in[none ? 0 : from]);
            assert_int_equal(v[row][i], none ? 0 : d.v_in[none ? 0 : from]);
        }
}

static void test_rows_before_the_first_sequence(void **state) {
    (void)state;
    world w;
    world_open(&w);
    check_first_rows(&w);
    world_close(&w);
}

static void test_what_is_written_comes_back(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trips / sizeof trips[0]; i++) {
        if (!is_drawn(i)) continue;
        world w;
        world_open(&w);
        check_trip(&w, &trips[i]);
        world_close(&w);
    }
}

/* ---- attention over it ------------------------------------------------------- */

/* In double over the values as they were before they were stored. */
static void attend(double out[QUERIES][DIM], const uint16_t *q, const stored *d, double scale) {
    for (int h = 0; h < QUERIES; h++) {
        double p[TOKENS], sum = 0, top = -1e30;
        int head = h / (QUERIES / HEADS);
        for (int t = 0; t < TOKENS; t++) {
            p[t] = 0;
            for (int i = 0; i < DIM; i++)
                p[t] += (double)kgen__number_decode(KGEN_DTYPE_BF16, q[h * DIM + i]) *
                        (double)kgen__number_decode(KGEN_DTYPE_BF16,
                                                    d->k_in[(t * HEADS + head) * DIM + i]);
            p[t] *= scale;
            top = fmax(top, p[t]);
        }
        for (int t = 0; t < TOKENS; t++) sum += p[t] = exp(p[t] - top);
        for (int i = 0; i < DIM; i++) {
            out[h][i] = 0;
            for (int t = 0; t < TOKENS; t++)
                out[h][i] += p[t] / sum *
                             (double)kgen__number_decode(KGEN_DTYPE_BF16,
                                                         d->v_in[(t * HEADS + head) * DIM + i]);
        }
    }
}

/* Root mean square of the error over that of the output: a share of the error
 * of one element, which is random in the sum over the keys. */
static void check_attention(world *w, const trip *t) {
    static stored d;
    uint16_t q[QUERIES * DIM], got[QUERIES * DIM];
    double want[QUERIES][DIM], error = 0, size = 0;
    char line[KGEN_SPEC_LINE_MAX];
    kgen_error err;
    fill(w, &d, t);
    write_all(w, &d, t);
    for (int i = 0; i < QUERIES * DIM; i++)
        q[i] = (uint16_t)kgen__number_encode(KGEN_DTYPE_BF16, kgen__rng_normal(&rng));
    snprintf(line, sizeof line, "attn:phase=decode,d=64,g=2,page=16,layout=%s,kv=%s,descale=%s",
             t->layout, t->kv, descale_of(t));
    kgen_attn_args args = {.q = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, q, 1, QUERIES, DIM),
                           .k = d.k_cache,
                           .v = d.v_cache,
                           .out = WORLD_PUT(w, KGEN_DTYPE_BF16, 0, NULL, 1, QUERIES, DIM),
                           .block_table = d.table,
                           .seq_lens = d.lens,
                           .k_descale = d.k_scale,
                           .v_descale = d.v_scale,
                           .softmax_scale = 0.125f};
    world_run(w, line, &args);
    world_must(kgen_memory_read(w->ctx, got, args.out.data, sizeof got, &err), &err);
    attend(want, q, &d, 0.125);
    for (int i = 0; i < QUERIES * DIM; i++) {
        double wanted = want[i / DIM][i % DIM];
        error += pow((double)kgen__number_decode(KGEN_DTYPE_BF16, got[i]) - wanted, 2);
        size += wanted * wanted;
    }
    double share = sqrt(error / size), most = 1.5 * t->relative + 1.0 / 128;
    if (!(share <= most))
        fail_msg("%s, %s, %s: attention is off by %.3g of its size, at most %.3g", t->layout, t->kv,
                 t->scale, share, most);
}

static void test_attention_over_what_is_written(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trips / sizeof trips[0]; i++) {
        if (!is_drawn(i)) continue;
        world w;
        world_open(&w);
        check_attention(&w, &trips[i]);
        world_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_arguments_are_launched),
        cmocka_unit_test(test_pairs_of_dims),
        cmocka_unit_test(test_bad_tensors_are_refused),
        cmocka_unit_test(test_columns_of_one_row),
        cmocka_unit_test(test_other_guards),
        cmocka_unit_test(test_what_is_written_comes_back),
        cmocka_unit_test(test_rows_before_the_first_sequence),
        cmocka_unit_test(test_attention_over_what_is_written),
    };
    seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

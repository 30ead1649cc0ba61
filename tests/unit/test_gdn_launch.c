/* Launches of the gdn family as far as the driver call: what is packed for the
 * kernel, and every argument that is refused. Nothing here is dereferenced, so
 * tensors are addresses alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "gen/gdn.h"
#include "templates/kg/gdn/gdn_packed.h"
#include "note_device.h"
#include "seed.h"

enum { GIVEN_MAX = 32 };

static kgen__rng rng;

static int64_t below(int64_t n) { return kgen__rng_range(&rng, 0, n - 1); }

static const struct kg_gdn_args *const seen = (const struct kg_gdn_args *)noted.packed;

/* ---- valid arguments ------------------------------------------------------ */

typedef enum given_flag { MAY_MISS = 1, ANY_STRIDE = 2, ANY_TAG = 4 } given_flag;

typedef struct given {
    const char *name;
    size_t offset;
    int flags;
} given;

typedef struct rig {
    kgen_context ctx;
    kgen_kernel kernel;
    kgen_args args;
    kgen_args_room room;
    given given[GIVEN_MAX];
    int count;
    int64_t seqs, rows, slots, lines;
} rig;

static kgen_tensor *tensor_at(rig *r, size_t offset) {
    return (kgen_tensor *)((char *)r->args.gdn + offset);
}

/* The first `free` strides get room between their parts. */
static kgen_tensor *give(rig *r, given what, kgen_dtype dtype, int32_t layout, int32_t free,
                         int32_t rank, const int64_t *shape) {
    kgen_tensor *t = tensor_at(r, what.offset);
    void *address = (void *)((uintptr_t)(r->count + 1) << 42); /* further than any is large */
    *t = kgen_tensor_dense(address, dtype, rank, shape);
    t->layout = (kgen_layout)layout;
    for (int32_t i = free - 1; i >= 0; i--)
        t->stride[i] = (i + 1 < rank ? t->stride[i + 1] * t->shape[i + 1] : 1) + 16 * below(4);
    assert_true(r->count < GIVEN_MAX);
    r->given[r->count++] = what;
    return t;
}

#define WHAT(tensor, flags) ((given){#tensor, offsetof(kgen_gdn_args, tensor), flags})
#define GIVE(r, tensor, flags, dtype, layout, free, ...)            \
    give(r, WHAT(tensor, flags), (kgen_dtype)(dtype), layout, free, \
         sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static int has_conv(const kgen_gdn_spec *s) { return s->fuse >= KGEN_FUSE_C; }
static int has_step(const kgen_gdn_spec *s) { return s->fuse != KGEN_FUSE_C; }
static int has_norm(const kgen_gdn_spec *s) {
    return s->fuse == KGEN_FUSE_B || s->fuse == KGEN_FUSE_E;
}
static int64_t channels_of(const kgen_gdn_spec *s) { return kgen__gdn_channels(s); }
static int64_t decays_of(const kgen_gdn_spec *s) {
    return s->v_heads * (s->gate == KGEN_GATE_GDN ? 1 : s->k_dim);
}

static void give_inputs(rig *r, const kgen_gdn_spec *s) {
    int64_t rows = (s->varlen ? r->rows : r->seqs * s->tokens) + below(3);
    int64_t z = s->v_heads * s->v_dim;
    int packed = s->layout != KGEN_ROWS_PRESPLIT;
    if (packed && (has_conv(s) || has_norm(s)))
        GIVE(r, qkvz, 0, s->x, s->layout, 1, rows, channels_of(s) + z);
    if (packed && has_step(s)) GIVE(r, ba, 0, s->ab, s->layout, 1, rows, 2 * s->v_heads);
    if (!has_conv(s) && !s->qkv) GIVE(r, x, ANY_TAG, s->x, 0, 1, rows, channels_of(s));
    if (s->qkv) {
        GIVE(r, q, ANY_TAG, s->x, 0, 2, rows, s->k_heads, s->k_dim);
        GIVE(r, k, ANY_TAG, s->x, 0, 2, rows, s->k_heads, s->k_dim);
        GIVE(r, v, ANY_TAG, s->x, 0, 2, rows, s->v_heads, s->v_dim);
    }
    if (!packed && has_conv(s)) GIVE(r, x, 0, s->x, s->layout, 1, rows, channels_of(s));
    if (!packed && has_norm(s)) GIVE(r, z, ANY_TAG, s->x, 0, 1, rows, z);
    if (!packed && has_step(s)) {
        GIVE(r, b, ANY_TAG, s->ab, 0, 1, rows, s->v_heads);
        GIVE(r, a, ANY_TAG, s->ab, 0, 1, rows, decays_of(s));
    }
}

static void give_weights(rig *r, const kgen_gdn_spec *s) {
    if (has_conv(s))
        GIVE(r, conv_weight, ANY_TAG, s->conv_weight, 0, 0, channels_of(s), s->conv_width);
    if (s->conv_bias) GIVE(r, conv_bias, ANY_TAG, s->conv_weight, 0, 0, channels_of(s));
    if (has_step(s) && !s->raw_gates) {
        GIVE(r, a_log, ANY_TAG, s->a_log, 0, 0, s->v_heads);
        GIVE(r, dt_bias, ANY_TAG, s->dt_bias, 0, 0, decays_of(s));
    }
    if (has_norm(s)) GIVE(r, norm_weight, ANY_TAG, s->norm, 0, 0, s->v_dim);
}

static void give_pools(rig *r, const kgen_gdn_spec *s) {
    int64_t times = s->conv_width - 1 + (s->accept ? s->tokens - 1 : 0) + below(3);
    int64_t far = s->state_layout == KGEN_STATE_VK ? s->v_dim : s->k_dim, c = channels_of(s);
    int64_t near = s->state_layout == KGEN_STATE_VK ? s->k_dim : s->v_dim;
    if (has_conv(s) && s->conv_layout == KGEN_CONV_SD)
        GIVE(r, conv_state, 0, s->conv_state, KGEN_CONV_SD, 2, r->slots, times, c);
    if (has_conv(s) && s->conv_layout == KGEN_CONV_DS)
        GIVE(r, conv_state, 0, s->conv_state, KGEN_CONV_DS, 2, r->slots, c, times);
    if (has_step(s))
        GIVE(r, state, 0, s->state, s->state_layout, 1, r->slots, s->v_heads, far, near);
    if (s->save != KGEN_SAVE_BUFFER) return;
    int64_t steps = s->tokens + below(2);
    if (has_step(s))
        GIVE(r, buffer, 0, s->state, s->state_layout, 2, r->lines, steps, s->v_heads, far, near);
    if (has_conv(s) && s->conv_layout == KGEN_CONV_SD)
        GIVE(r, conv_windows, MAY_MISS, s->conv_state, KGEN_CONV_SD, 3, r->lines, steps,
             s->conv_width - 1, c);
    if (has_conv(s) && s->conv_layout == KGEN_CONV_DS)
        GIVE(r, conv_windows, MAY_MISS, s->conv_state, KGEN_CONV_DS, 3, r->lines, steps, c,
             s->conv_width - 1);
    GIVE(r, lines, MAY_MISS | ANY_TAG, KGEN_DTYPE_I32, 0, 0, r->seqs);
}

static void give_rings(rig *r, const kgen_gdn_spec *s) {
    int64_t rows = s->ring + s->tokens + below(3);
    if (s->save != KGEN_SAVE_REPLAY) return;
    GIVE(r, ring_k, ANY_TAG, s->state, 0, 1, r->slots, rows, s->k_heads, s->k_dim);
    GIVE(r, ring_u, ANY_TAG, s->state, 0, 1, r->slots, rows, s->v_heads, s->v_dim);
    if (s->gate == KGEN_GATE_GDN)
        GIVE(r, ring_decay, ANY_TAG, KGEN_DTYPE_F32, 0, 1, r->slots, rows, s->v_heads);
    else
        GIVE(r, ring_decay, ANY_TAG, KGEN_DTYPE_F32, 0, 1, r->slots, rows, s->v_heads, s->k_dim);
    GIVE(r, ring_start, ANY_TAG, KGEN_DTYPE_I32, 0, 0, r->seqs);
    GIVE(r, ring_len, ANY_TAG, KGEN_DTYPE_I32, 0, 0, r->seqs);
}

static void give_numbers(rig *r, const kgen_gdn_spec *s) {
    int type = s->index_type ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, loose = ANY_TAG | ANY_STRIDE;
    int blocks = s->index == KGEN_INDEX_BLOCKS;
    if (blocks || s->index == KGEN_INDEX_SPEC)
        GIVE(r, slots, loose, type, 0, 2, r->seqs, s->tokens + below(3));
    else
        GIVE(r, slots, loose, type, 0, 1, r->seqs);
    if (s->index == KGEN_INDEX_PAIR && s->save == KGEN_SAVE_SLOTS)
        GIVE(r, write_slots, loose, type, 0, 2, r->seqs, s->tokens + below(3));
    else if (s->index == KGEN_INDEX_PAIR)
        GIVE(r, write_slots, loose, type, 0, 1, r->seqs);
    if (blocks) {
        GIVE(r, read_col, ANY_TAG, KGEN_DTYPE_I32, 0, 0, r->seqs);
        GIVE(r, write_col, ANY_TAG, KGEN_DTYPE_I32, 0, 0, r->seqs);
    }
    int accepted = s->accept_type ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32;
    int cu = s->cu_type ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32;
    if (s->accept) GIVE(r, accepted, ANY_TAG, accepted, 0, 0, r->seqs);
    if (s->varlen) GIVE(r, cu_seqlens, ANY_TAG, cu, 0, 0, r->seqs + 1);
    if (s->tree) GIVE(r, parents, ANY_TAG, KGEN_DTYPE_I32, 0, 1, r->seqs, s->tokens);
    GIVE(r, has_initial, MAY_MISS | ANY_TAG, KGEN_DTYPE_I32, 0, 0, r->seqs);
}

static void give_outputs(rig *r, const kgen_gdn_spec *s) {
    int64_t z = s->v_heads * s->v_dim;
    if (has_step(s))
        GIVE(r, out, ANY_TAG, s->out, 0, 2, r->rows, s->v_heads, s->v_dim);
    else
        GIVE(r, out, ANY_TAG, s->out, 0, 1, r->rows, channels_of(s));
    if (kgen_dtype_size((kgen_dtype)s->out) == 1)
        GIVE(r, out_scale, ANY_TAG | ANY_STRIDE, KGEN_DTYPE_F32, 0, 2, r->rows, z / 128);
    if (has_step(s) || s->layout == KGEN_ROWS_PRESPLIT) return;
    GIVE(r, ba, 0, s->x, s->layout, 1, r->rows, 2 * s->v_heads);
    GIVE(r, z_out, MAY_MISS | ANY_TAG, s->x, 0, 1, r->rows, z);
    GIVE(r, b_out, MAY_MISS | ANY_TAG, s->x, 0, 1, r->rows, s->v_heads);
    GIVE(r, a_out, MAY_MISS | ANY_TAG, s->x, 0, 1, r->rows, s->v_heads);
}

static void give_floats(kgen_gdn_args *a, const kgen_gdn_spec *s) {
    a->q_scale = has_step(s) ? 0.125f : 0;
    a->l2_eps = has_step(s) && s->l2norm ? 1e-6f : 0;
    a->norm_eps = 0;
    a->lower_bound = s->gate == KGEN_GATE_KDA_BOUND ? -5.0f : 0;
    a->pad_slot = s->sentinel == KGEN_SENTINEL_VALUE ? 77 : 0;
}

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
}

static void make_sized(rig *r, const char *line, int64_t seqs, int64_t rows) {
    make_kernel(r, line);
    const kgen_gdn_spec *s = &r->kernel.spec.gdn;
    r->seqs = seqs;
    r->rows = seqs * s->tokens + rows;
    r->slots = 5 + below(20);
    r->lines = seqs + below(3);
    r->args.family = KGEN_FAMILY_GDN;
    r->args.gdn = &r->room.gdn;
    r->args.workspace = (void *)(uintptr_t)4096;
    r->args.workspace_bytes = KGEN__HEAD_BYTES;
    give_inputs(r, s);
    give_weights(r, s);
    give_pools(r, s);
    give_rings(r, s);
    give_numbers(r, s);
    give_outputs(r, s);
    give_floats(r->args.gdn, s);
}

static void make_rig(rig *r, const char *line) { make_sized(r, line, 2 + below(8), below(4)); }

#define E "gdn:fuse=e,layout=interleaved,hk=2,hv=4,dk=64"
#define E_FLAT                                                                      \
    "gdn:fuse=e,layout=flat,hk=2,hv=6,dv=64,sl=kv,x=fp16,ab=f32,cw=f32,bias=1,t=3," \
    "varlen=1,accept=1,index=spec,save=slots,idx=i64,pad=value"
#define E_PRE "gdn:fuse=e,layout=presplit,hk=2,hv=2,gate=kda_bound,cl=ds,cs=f32,o=fp8,l2=0"
#define D_TREE "gdn:fuse=d,layout=flat,hk=2,hv=4,dk=64,t=4,save=buffer,tree=1,state=bf16,cl=ds"
#define D_RING "gdn:fuse=d,layout=interleaved,hk=2,hv=4,dk=64,t=2,save=replay,ring=8,state=bf16"
#define D_KRING "gdn:fuse=d,layout=presplit,hk=2,hv=4,dk=64,save=replay,ring=4,gate=kda"
#define A "gdn:fuse=a,layout=flat,hk=2,hv=4,dk=64,t=2,index=pair,save=slots"
#define A_PRE "gdn:fuse=a,layout=presplit,hk=1,hv=3,index=pair,save=buffer,t=2"
#define A_RAW "gdn:fuse=a,layout=presplit,hk=2,hv=4,dk=64,raw=1,ab=f32"
#define A_SPLIT "gdn:fuse=a,layout=presplit,hk=2,hv=4,dk=64,qkv=split,t=2,varlen=1,cu=i64"
#define B "gdn:fuse=b,layout=interleaved,hk=2,hv=4,index=blocks"
#define C "gdn:fuse=c,layout=interleaved,hk=2,hv=4,dk=64,t=2,accept=1"
#define C_FLAT "gdn:fuse=c,layout=flat,hk=2,hv=4,save=buffer,t=2,w=2"
#define C_PRE "gdn:fuse=c,layout=presplit,hk=2,hv=4,index=pair,cl=ds"
#define C_ODD "gdn:fuse=c,layout=presplit,ch=13,t=2,accept=1,acc=i64,bias=1"

static const char *const lines[] = {E,     E_FLAT,  E_PRE, D_TREE, D_RING, D_KRING, A,    A_PRE,
                                    A_RAW, A_SPLIT, B,     C,      C_FLAT, C_PRE,   C_ODD};
enum { LINES = sizeof lines / sizeof lines[0] };

static void launch(rig *r) {
    kgen_error err;
    memset(&noted, 0, sizeof noted);
    if (kgen_launch(&r->kernel, &r->args, NULL, &err) != KGEN_OK) fail_msg("%s", err.text);
}

static void refuse(const rig *r, const char *says) {
    kgen_error err = {KGEN_OK, ""};
    kgen_args before = r->args;
    kgen_args_room all = r->room;
    memset(&noted, 0, sizeof noted);
    if (kgen_launch(&r->kernel, &r->args, NULL, &err) == KGEN_OK) fail_msg("no '%s'", says);
    assert_int_equal(err.status, KGEN_E_ARG);
    if (strncmp(err.text, says, strlen(says)) != 0)
        fail_msg("'%s' does not begin with '%s'", err.text, says);
    assert_int_equal(noted.launches, 0);
    assert_memory_equal(&before, &r->args, sizeof before);
    assert_memory_equal(&all, &r->room, sizeof all);
}

/* ---- what goes to the kernel ---------------------------------------------- */

static void test_valid_arguments_are_launched(void **state) {
    (void)state;
    for (int i = 0; i < LINES; i++) {
        rig r;
        make_rig(&r, lines[i]);
        const kgen_gdn_spec *s = &r.kernel.spec.gdn;
        launch(&r);
        assert_int_equal(noted.launches, 1);
        assert_int_equal(noted.size, sizeof(struct kg_gdn_args));
        int64_t groups = has_step(s) ? s->v_heads * s->v_blocks : kgen__gdn_groups(s, r.ctx.target);
        assert_int_equal(noted.config.grid, r.seqs * groups);
        assert_int_equal(seen->seqs, r.seqs);
        assert_int_equal(seen->rows, r.rows);
        assert_int_equal(seen->slot_count, r.slots);
    }
}

static void assert_at(const void *pointer, long long stride, const kgen_tensor *t) {
    assert_ptr_equal(pointer, t->data);
    assert_int_equal(stride, t->stride[0]);
}

static void test_inputs_are_where_the_layout_has_them(void **state) {
    (void)state;
    static const char *const packed[] = {E, E_FLAT};
    const kgen_gdn_args *a;
    rig r;
    for (int i = 0; i < 2; i++) {
        make_rig(&r, packed[i]);
        a = r.args.gdn;
        launch(&r);
        assert_at(seen->x, seen->x_row, &a->qkvz);
        assert_at(seen->z, seen->z_row, &a->qkvz);
        assert_at(seen->b, seen->b_row, &a->ba);
        assert_at(seen->a, seen->a_row, &a->ba);
    }
    make_rig(&r, E_PRE);
    a = r.args.gdn;
    launch(&r);
    assert_at(seen->x, seen->x_row, &a->x);
    assert_at(seen->z, seen->z_row, &a->z);
    assert_at(seen->b, seen->b_row, &a->b);
    assert_at(seen->a, seen->a_row, &a->a);
    assert_at(seen->out_scale, seen->scale_row, &a->out_scale);
    assert_int_equal(seen->scale_group, a->out_scale.stride[1]);
    make_rig(&r, B);
    a = r.args.gdn;
    launch(&r);
    assert_at(seen->x, seen->x_row, &a->x);
    assert_at(seen->z, seen->z_row, &a->qkvz);
    assert_at(seen->b, seen->b_row, &a->ba);
    make_rig(&r, A);
    launch(&r);
    assert_at(seen->x, seen->x_row, &r.args.gdn->x);
    assert_null(seen->z);
    make_rig(&r, A_SPLIT);
    a = r.args.gdn;
    launch(&r);
    assert_at(seen->q, seen->q_row, &a->q);
    assert_at(seen->k, seen->k_row, &a->k);
    assert_at(seen->v, seen->v_row, &a->v);
    assert_int_equal(seen->v_head, a->v.stride[1]);
    assert_null(seen->x);
}

static void test_copies_are_made_where_there_is_room(void **state) {
    (void)state;
    rig r;
    make_rig(&r, C);
    kgen_gdn_args *a = r.args.gdn;
    launch(&r);
    assert_at(seen->z_out, seen->z_out_row, &a->z_out);
    assert_at(seen->b_out, seen->b_out_row, &a->b_out);
    assert_at(seen->a_out, seen->a_out_row, &a->a_out);
    assert_at(seen->z, seen->z_row, &a->qkvz);
    assert_at(seen->b, seen->b_row, &a->ba);
    assert_at(seen->a, seen->a_row, &a->ba);
    a->z_out.data = a->b_out.data = a->a_out.data = NULL;
    refuse(&r, "ba: given, and neither b_out nor a_out"); /* read for copies alone */
    a->ba.data = NULL;
    launch(&r);
    assert_true(!seen->z_out && !seen->b_out && !seen->a_out);
    assert_true(!seen->z && !seen->b && !seen->a);
    make_rig(&r, C_PRE);
    launch(&r);
    assert_true(!seen->z_out && !seen->b_out && !seen->a_out);
}

static void test_pools_and_numbers(void **state) {
    (void)state;
    rig r;
    make_rig(&r, E_FLAT);
    const kgen_gdn_args *a = r.args.gdn;
    const struct kg_gdn_args *d = seen;
    launch(&r);
    assert_at(d->conv_state, d->conv_slot, &a->conv_state);
    assert_int_equal(d->conv_step, a->conv_state.stride[1]);
    assert_int_equal(d->conv_columns, a->conv_state.shape[1]);
    assert_at(d->state, d->state_slot, &a->state);
    assert_at(d->slots, d->slots_row, &a->slots);
    assert_int_equal(d->slots_col, a->slots.stride[1]);
    assert_int_equal(d->slot_columns, a->slots.shape[1]);
    assert_at(d->out, d->out_row, &a->out);
    assert_int_equal(d->out_head, a->out.stride[1]);
    assert_true(d->q_scale == a->q_scale && d->l2_eps == a->l2_eps && d->norm_eps == 0.0f);
    assert_int_equal(d->pad_slot, 77);
    assert_ptr_equal(d->accepted, a->accepted.data);
    assert_ptr_equal(d->cu_seqlens, a->cu_seqlens.data);
    assert_ptr_equal(d->has_initial, a->has_initial.data);
    assert_ptr_equal(d->conv_weight, a->conv_weight.data);
    assert_ptr_equal(d->conv_bias, a->conv_bias.data);
    assert_ptr_equal(d->a_log, a->a_log.data);
    assert_ptr_equal(d->dt_bias, a->dt_bias.data);
    assert_ptr_equal(d->norm_weight, a->norm_weight.data);
    assert_ptr_equal(d->workspace, r.args.workspace);
    assert_true(!d->buffer && !d->parents && !d->ring_k && !d->write_slots && !d->out_scale);
    make_rig(&r, A);
    launch(&r);
    assert_at(d->write_slots, d->write_row, &a->write_slots);
    assert_int_equal(d->write_step, a->write_slots.stride[1]);
    assert_int_equal(d->slot_columns, 1);
    assert_null(d->workspace);
    make_rig(&r, B);
    launch(&r);
    assert_ptr_equal(d->read_col, a->read_col.data);
    assert_ptr_equal(d->write_col, a->write_col.data);
}

static void test_buffers_and_rings(void **state) {
    (void)state;
    rig r;
    make_rig(&r, D_TREE);
    const kgen_gdn_args *a = r.args.gdn;
    const struct kg_gdn_args *d = seen;
    launch(&r);
    assert_at(d->buffer, d->buffer_line, &a->buffer);
    assert_int_equal(d->buffer_token, a->buffer.stride[1]);
    assert_at(d->conv_windows, d->window_line, &a->conv_windows);
    assert_int_equal(d->window_token, a->conv_windows.stride[1]);
    assert_int_equal(d->window_step, a->conv_windows.stride[2]);
    assert_int_equal(d->line_count, r.lines);
    assert_ptr_equal(d->lines, a->lines.data);
    assert_at(d->parents, d->parents_row, &a->parents);
    assert_int_equal(d->conv_step, a->conv_state.stride[1]);
    assert_int_equal(d->conv_columns, a->conv_state.shape[2]);
    make_rig(&r, D_RING);
    launch(&r);
    assert_at(d->ring_k, d->ring_k_slot, &a->ring_k);
    assert_at(d->ring_u, d->ring_u_slot, &a->ring_u);
    assert_at(d->ring_decay, d->ring_decay_slot, &a->ring_decay);
    assert_int_equal(d->ring_rows, a->ring_k.shape[1]);
    assert_ptr_equal(d->ring_start, a->ring_start.data);
    assert_ptr_equal(d->ring_len, a->ring_len.data);
}

static void test_rows_without_sequences_are_zeroed(void **state) {
    (void)state;
    for (int i = 0; i < LINES; i++) {
        rig r;
        make_sized(&r, lines[i], 0, 3);
        launch(&r);
        assert_int_equal(noted.launches, 1);
        assert_int_equal(seen->seqs, 0);
        assert_int_equal(seen->rows, 3);
        uint32_t groups = noted.config.grid;
        make_sized(&r, lines[i], 1, 0);
        launch(&r);
        assert_int_equal(noted.config.grid, groups);
        make_sized(&r, lines[i], 0, 0);
        launch(&r);
        assert_int_equal(noted.launches, 0);
    }
}

/* ---- refusals -------------------------------------------------------------- */

static void assert_refused(rig *r, const given *g, const char *what) {
    char says[96];
    snprintf(says, sizeof says, "%s: %s", g->name, what);
    refuse(r, says);
}

static void refuse_tags(rig *r, const given *g) {
    kgen_tensor *t = tensor_at(r, g->offset), good = *t;
    char what[64];
    for (int tag = KGEN_LAYOUT_NONE; tag <= KGEN_CONV_DS + 1; tag++) {
        t->layout = (kgen_layout)tag;
        snprintf(what, sizeof what, "layout is %s, kernel built for %s",
                 kgen_layout_name(t->layout), kgen_layout_name(good.layout));
        if (g->flags & ANY_TAG || t->layout == good.layout)
            launch(r);
        else
            assert_refused(r, g, what);
    }
    *t = good;
}

static void refuse_shapes(rig *r, const given *g) {
    kgen_tensor *t = tensor_at(r, g->offset), good = *t;
    char what[64];
    for (int i = 0; i < good.rank; i++) {
        t->shape[i] = -1;
        snprintf(what, sizeof what, "shape[%d]=-1, at least 0", i);
        assert_refused(r, g, what);
        *t = good;
        /* of two bytes, the second may lie INT64_MAX behind the first */
        if (good.shape[i] <= 2 && kgen_dtype_size(good.dtype) == 1) continue;
        if (good.shape[i] <= 1) continue;
        t->stride[i] = INT64_MAX;
        snprintf(what, sizeof what, "shape[%d]=%lld of stride", i, (long long)good.shape[i]);
        assert_refused(r, g, what);
        t->stride[i] = INT64_MIN;
        assert_refused(r, g, what);
        *t = good;
    }
    if (good.shape[good.rank - 1] > 1 && !(g->flags & ANY_STRIDE)) {
        t->stride[good.rank - 1] = 2;
        snprintf(what, sizeof what, "stride[%d]=2, 1 expected", good.rank - 1);
        assert_refused(r, g, what);
        *t = good;
    }
}

/* What holds for every tensor of every spec. */
static void test_each_tensor_is_checked(void **state) {
    (void)state;
    for (int i = 0; i < LINES; i++) {
        rig r;
        make_rig(&r, lines[i]);
        for (int n = 0; n < r.count; n++) {
            const given *g = &r.given[n];
            kgen_tensor *t = tensor_at(&r, g->offset), good = *t;
            t->data = NULL;
            if (g->flags & MAY_MISS)
                launch(&r);
            else
                assert_refused(&r, g, "no data");
            *t = good;
            t->dtype = good.dtype == KGEN_DTYPE_I32 ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32;
            assert_refused(&r, g, "dtype i");
            *t = good;
            t->rank += below(2) ? 1 : -1;
            assert_refused(&r, g, "rank ");
            *t = good;
            t->data = (char *)t->data + 1;
            if (kgen_dtype_size(t->dtype) > 1) assert_refused(&r, g, "address ");
            *t = good;
            refuse_tags(&r, g);
            refuse_shapes(&r, g);
        }
        launch(&r);
    }
}

typedef enum change { SHAPE, STRIDE, SHIFT, TAG, TYPE, NUMBER } change;

#define AT(field) offsetof(kgen_gdn_args, field)

static const struct {
    const char *line;
    size_t offset;
    change change;
    int index;
    double value;
    const char *says;
} refusals[] = {
    /* the classical bugs: sizes are equal, the order is not */
    {E, AT(qkvz), TAG, 0, KGEN_ROWS_FLAT, "qkvz: layout is flat, kernel built for interleaved"},
    {E, AT(ba), TAG, 0, KGEN_ROWS_FLAT, "ba: layout is flat, kernel built for interleaved"},
    {E_FLAT, AT(qkvz), TAG, 0, KGEN_ROWS_INTERLEAVED,
     "qkvz: layout is interleaved, kernel built for flat"},
    {E_PRE, AT(x), TAG, 0, KGEN_LAYOUT_NONE, "x: layout is none, kernel built for presplit"},
    {B, AT(state), TAG, 0, KGEN_STATE_KV, "state: layout is kv, kernel built for vk"},
    {E, AT(conv_state), TAG, 0, KGEN_CONV_DS, "conv_state: layout is ds, kernel built for sd"},
    {E_FLAT, AT(cu_seqlens), SHAPE, 0, 1, "cu_seqlens: shape[0]=1, "},
    /* types */
    {E_FLAT, AT(ba), TYPE, 0, KGEN_DTYPE_FP16, "ba: dtype fp16, kernel built for f32"},
    {E_FLAT, AT(qkvz), TYPE, 0, KGEN_DTYPE_BF16, "qkvz: dtype bf16, kernel built for fp16"},
    {E_FLAT, AT(conv_weight), TYPE, 0, KGEN_DTYPE_FP16,
     "conv_weight: dtype fp16, kernel built for f32"},
    {E_FLAT, AT(slots), TYPE, 0, KGEN_DTYPE_I32, "slots: dtype i32, kernel built for i64"},
    {E, AT(slots), TYPE, 0, KGEN_DTYPE_I64, "slots: dtype i64, kernel built for i32"},
    {E, AT(state), TYPE, 0, KGEN_DTYPE_BF16, "state: dtype bf16, kernel built for f32"},
    {E_PRE, AT(conv_state), TYPE, 0, KGEN_DTYPE_BF16,
     "conv_state: dtype bf16, kernel built for f32"},
    {E_PRE, AT(out), TYPE, 0, KGEN_DTYPE_E4M3FN, "out: dtype e4m3fn, kernel built for e4m3fnuz"},
    {D_RING, AT(ring_k), TYPE, 0, KGEN_DTYPE_F32, "ring_k: dtype f32, kernel built for bf16"},
    {C, AT(b_out), TYPE, 0, KGEN_DTYPE_F32, "b_out: dtype f32, kernel built for bf16"},
    /* inputs */
    {E, AT(qkvz), SHAPE, 0, 1, "qkvz: shape[0]=1, at least "},
    {E, AT(qkvz), SHAPE, 1, 1279, "qkvz: shape[1]=1279, 1280 expected"},
    {E, AT(ba), SHAPE, 0, 1, "ba: shape[0]=1, at least "},
    {E, AT(ba), SHAPE, 1, 4, "ba: shape[1]=4, 8 expected"},
    {E_PRE, AT(x), SHAPE, 1, 767, "x: shape[1]=767, 768 expected"},
    {E_PRE, AT(z), SHAPE, 1, 768, "z: shape[1]=768, 256 expected"},
    {E_PRE, AT(b), SHAPE, 1, 4, "b: shape[1]=4, 2 expected"},
    {E_PRE, AT(a), SHAPE, 1, 2, "a: shape[1]=2, 256 expected"},
    {A, AT(x), SHAPE, 0, 3, "x: shape[0]=3, at least "},
    {A, AT(x), SHAPE, 1, 1280, "x: shape[1]=1280, 768 expected"},
    {A_SPLIT, AT(q), SHAPE, 0, 3, "q: shape[0]=3, at least "},
    {A_SPLIT, AT(k), SHAPE, 1, 4, "k: shape[1]=4, 2 expected"},
    {A_SPLIT, AT(v), SHAPE, 2, 64, "v: shape[2]=64, 128 expected"},
    {A_SPLIT, AT(k), STRIDE, 1, 66, "k: stride[1]=66 elements is not a multiple of 8 bytes"},
    {A_SPLIT, AT(cu_seqlens), TYPE, 0, KGEN_DTYPE_I32,
     "cu_seqlens: dtype i32, kernel built for i64"},
    {C_ODD, AT(accepted), TYPE, 0, KGEN_DTYPE_I32, "accepted: dtype i32, kernel built for i64"},
    {C_ODD, AT(x), SHAPE, 1, 16, "x: shape[1]=16, 13 expected"},
    {A_PRE, AT(a), SHAPE, 1, 384, "a: shape[1]=384, 3 expected"},
    /* weights */
    {E, AT(conv_weight), SHAPE, 0, 1280, "conv_weight: shape[0]=1280, 768 expected"},
    {E, AT(conv_weight), SHAPE, 1, 3, "conv_weight: shape[1]=3, 4 expected"},
    {E, AT(conv_weight), STRIDE, 0, 8, "conv_weight: stride[0]=8, 4 expected"},
    {E_FLAT, AT(conv_bias), SHAPE, 0, 4, "conv_bias: shape[0]=4, 896 expected"},
    {E, AT(a_log), SHAPE, 0, 2, "a_log: shape[0]=2, 4 expected"},
    {E, AT(dt_bias), SHAPE, 0, 2, "dt_bias: shape[0]=2, 4 expected"},
    {E_PRE, AT(dt_bias), SHAPE, 0, 2, "dt_bias: shape[0]=2, 256 expected"},
    {E, AT(norm_weight), SHAPE, 0, 512, "norm_weight: shape[0]=512, 128 expected"},
    /* pools */
    {E, AT(state), SHAPE, 0, 1, "state: shape[0]=1, "},
    {E, AT(state), SHAPE, 1, 2, "state: shape[1]=2, 4 expected"},
    {E, AT(state), SHAPE, 2, 64, "state: shape[2]=64, 128 expected"},
    {E, AT(state), SHAPE, 3, 128, "state: shape[3]=128, 64 expected"},
    {E_FLAT, AT(state), SHAPE, 2, 64, "state: shape[2]=64, 128 expected"},
    {E, AT(state), STRIDE, 1, 8208, "state: stride[1]=8208, 8192 expected"},
    {E, AT(state), STRIDE, 2, 80, "state: stride[2]=80, 64 expected"},
    {E, AT(state), STRIDE, 0, 32770, "state: stride[0]=32770 elements is not a multiple of 16"},
    {E, AT(state), STRIDE, 0, 16, "state: stride[0]=16, at least 32768, or its parts overlap"},
    {E, AT(state), STRIDE, 0, -32768, "state: stride[0]=-32768, at least 32768"},
    {E, AT(state), SHIFT, 0, 8, "state: address 0x"},
    {A, AT(state), SHAPE, 0, 0x1p31, "state: shape[0]=2147483648, at most 2^31-1"},
    {C, AT(conv_state), SHAPE, 0, 0x1p31, "conv_state: shape[0]=2147483648, at most 2^31-1"},
    {E, AT(conv_state), SHAPE, 1, 2, "conv_state: 2 time columns, w=4 needs at least 3"},
    {C, AT(conv_state), SHAPE, 1, 3,
     "conv_state: 3 time columns, w=4 with accept=1 needs at least 4"},
    {E, AT(conv_state), SHAPE, 1, 0x1p31, "conv_state: shape[1]=2147483648, at most 2^31-1"},
    {E, AT(conv_state), SHAPE, 2, 1280, "conv_state: shape[2]=1280, 768 expected"},
    {E_PRE, AT(conv_state), SHAPE, 2, 2, "conv_state: 2 time columns, w=4 needs at least 3"},
    {E_PRE, AT(conv_state), SHAPE, 1, 4, "conv_state: shape[1]=4, 768 expected"},
    {E_PRE, AT(conv_state), STRIDE, 1, 2, "conv_state: stride[1]=2, at least "},
    {E, AT(conv_state), STRIDE, 1, 764, "conv_state: stride[1]=764, at least 768"},
    {E, AT(conv_state), STRIDE, 0, 0, "conv_state: stride[0]=0, at least 768"},
    /* numbers of slots */
    {E, AT(slots), SHAPE, 0, 0x1p31, "slots: shape[0]=2147483648, at most 2^31-1"},
    {E_FLAT, AT(slots), SHAPE, 1, 2, "slots: shape[1]=2 columns, at least 3"},
    {E_FLAT, AT(slots), SHAPE, 1, 0x1p31, "slots: shape[1]=2147483648, at most 2^31-1"},
    {B, AT(slots), SHAPE, 1, 0, "slots: shape[1]=0 columns, at least 1"},
    {A, AT(write_slots), SHAPE, 0, 1, "write_slots: shape[0]=1, "},
    {A, AT(write_slots), SHAPE, 1, 1, "write_slots: shape[1]=1, at least 2 expected"},
    {A_PRE, AT(write_slots), SHAPE, 0, 1, "write_slots: shape[0]=1, "},
    {B, AT(read_col), SHAPE, 0, 1, "read_col: shape[0]=1, "},
    {B, AT(write_col), SHAPE, 0, 1, "write_col: shape[0]=1, "},
    {C, AT(accepted), SHAPE, 0, 1, "accepted: shape[0]=1, "},
    {D_TREE, AT(parents), SHAPE, 0, 1, "parents: shape[0]=1, "},
    {D_TREE, AT(parents), SHAPE, 1, 5, "parents: shape[1]=5, 4 expected"},
    {E, AT(has_initial), SHAPE, 0, 1, "has_initial: shape[0]=1, "},
    /* per-token states */
    {D_TREE, AT(buffer), SHAPE, 1, 3, "buffer: shape[1]=3, at least 4 expected"},
    {D_TREE, AT(buffer), SHAPE, 2, 2, "buffer: shape[2]=2, 4 expected"},
    {D_TREE, AT(buffer), SHAPE, 3, 64, "buffer: shape[3]=64, 128 expected"},
    {D_TREE, AT(buffer), SHAPE, 4, 128, "buffer: shape[4]=128, 64 expected"},
    {D_TREE, AT(buffer), SHAPE, 0, 0x1p31, "buffer: shape[0]=2147483648, at most 2^31-1"},
    {D_TREE, AT(buffer), STRIDE, 1, 32772, "buffer: stride[1]=32772 elements is not a multiple"},
    {D_TREE, AT(buffer), STRIDE, 1, 8192, "buffer: stride[1]=8192, at least 32768"},
    {D_TREE, AT(buffer), SHIFT, 0, 4, "buffer: address 0x"},
    {D_TREE, AT(conv_windows), SHAPE, 0, 1, "conv_windows: shape[0]=1, "},
    {D_TREE, AT(conv_windows), SHAPE, 1, 3, "conv_windows: shape[1]=3, at least 4 expected"},
    {D_TREE, AT(conv_windows), SHAPE, 2, 512, "conv_windows: shape[2]=512, 768 expected"},
    {D_TREE, AT(conv_windows), SHAPE, 3, 4, "conv_windows: shape[3]=4, 3 expected"},
    {C_FLAT, AT(conv_windows), SHAPE, 2, 3, "conv_windows: shape[2]=3, 1 expected"},
    {D_TREE, AT(lines), SHAPE, 0, 1, "lines: shape[0]=1, "},
    {D_RING, AT(ring_k), SHAPE, 0, 1, "ring_k: shape[0]=1, "},
    {D_RING, AT(ring_k), SHAPE, 1, 0x1p31, "ring_k: shape[1]=2147483648, at most 2^31-1"},
    {D_RING, AT(ring_k), SHAPE, 2, 4, "ring_k: shape[2]=4, 2 expected"},
    {D_RING, AT(ring_k), SHAPE, 3, 128, "ring_k: shape[3]=128, 64 expected"},
    {D_RING, AT(ring_k), STRIDE, 1, 256, "ring_k: stride[1]=256, 128 expected"},
    {D_RING, AT(ring_k), SHIFT, 0, 4, "ring_k: address 0x"},
    {D_RING, AT(ring_u), SHAPE, 1, 3, "ring_u: shape[1]=3, "},
    {D_RING, AT(ring_u), SHAPE, 2, 2, "ring_u: shape[2]=2, 4 expected"},
    {D_RING, AT(ring_u), SHAPE, 3, 64, "ring_u: shape[3]=64, 128 expected"},
    {D_RING, AT(ring_u), SHIFT, 0, 4, "ring_u: address 0x"},
    {D_RING, AT(ring_decay), SHAPE, 1, 3, "ring_decay: shape[1]=3, "},
    {D_RING, AT(ring_decay), SHAPE, 2, 2, "ring_decay: shape[2]=2, 4 expected"},
    {D_KRING, AT(ring_decay), SHAPE, 3, 128, "ring_decay: shape[3]=128, 64 expected"},
    {D_RING, AT(ring_decay), SHIFT, 0, 4, "ring_decay: address 0x"},
    {D_KRING, AT(ring_decay), SHIFT, 0, 4, "ring_decay: address 0x"},
    {D_RING, AT(ring_start), SHAPE, 0, 1, "ring_start: shape[0]=1, "},
    {D_RING, AT(ring_len), SHAPE, 0, 1, "ring_len: shape[0]=1, "},
    /* out */
    {A, AT(out), SHAPE, 0, 1, "out: shape[0]=1 rows, "},
    {E, AT(out), SHAPE, 0, 0x1p31, "out: shape[0]=2147483648, at most 2^31-1"},
    {E, AT(out), SHAPE, 1, 2, "out: shape[1]=2, 4 expected"},
    {E, AT(out), SHAPE, 2, 64, "out: shape[2]=64, 128 expected"},
    {E, AT(out), STRIDE, 1, 64, "out: stride[1]=64, at least 128, or its parts overlap"},
    {C, AT(out), SHAPE, 1, 512, "out: shape[1]=512, 768 expected"},
    {C, AT(out), STRIDE, 0, 767, "out: stride[0]=767, at least 768, or its parts overlap"},
    {E_PRE, AT(out_scale), SHAPE, 0, 1, "out_scale: shape[0]=1, "},
    {E_PRE, AT(out_scale), SHAPE, 1, 1, "out_scale: shape[1]=1, 2 expected"},
    {C, AT(z_out), SHAPE, 0, 1, "z_out: shape[0]=1, "},
    {C, AT(z_out), SHAPE, 1, 4, "z_out: shape[1]=4, 512 expected"},
    {C, AT(b_out), SHAPE, 1, 8, "b_out: shape[1]=8, 4 expected"},
    {C, AT(a_out), SHAPE, 1, 8, "a_out: shape[1]=8, 4 expected"},
    {C, AT(ba), SHAPE, 1, 4, "ba: shape[1]=4, 8 expected"},
    /* floats */
    {E, AT(q_scale), NUMBER, 0, 0, "q_scale=0: finite and not 0"},
    {E, AT(q_scale), NUMBER, 0, NAN, "q_scale=nan"},
    {E, AT(q_scale), NUMBER, 0, INFINITY, "q_scale=inf"},
    {E, AT(l2_eps), NUMBER, 0, -1, "l2_eps=-1: finite, at least 0"},
    {E, AT(l2_eps), NUMBER, 0, INFINITY, "l2_eps=inf"},
    {E, AT(norm_eps), NUMBER, 0, -1, "norm_eps=-1: finite, at least 0"},
    {B, AT(norm_eps), NUMBER, 0, NAN, "norm_eps=nan"},
    {E_PRE, AT(lower_bound), NUMBER, 0, 0, "lower_bound=0: finite and below 0"},
    {E_PRE, AT(lower_bound), NUMBER, 0, -INFINITY, "lower_bound=-inf"},
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

static void apply(rig *r, size_t offset, change kind, int index, double value) {
    kgen_tensor *t = tensor_at(r, offset);
    switch (kind) {
    case SHAPE:
        t->shape[index] = (int64_t)value;
        break;
    case STRIDE:
        t->stride[index] = (int64_t)value;
        break;
    case SHIFT:
        t->data = (char *)t->data + (int)value;
        break;
    case TAG:
        t->layout = (kgen_layout)value;
        break;
    case TYPE:
        t->dtype = (kgen_dtype)value;
        break;
    case NUMBER:
        *(float *)((char *)r->args.gdn + offset) = (float)value;
    }
}

static void test_refusals(void **state) {
    (void)state;
    for (int i = 0; i < REFUSALS; i++) {
        rig r;
        make_sized(&r, refusals[i].line, 3 + below(6), below(4));
        launch(&r);
        apply(&r, refusals[i].offset, refusals[i].change, refusals[i].index, refusals[i].value);
        refuse(&r, refusals[i].says);
    }
}

static void test_ring_has_room_for_this_launch(void **state) {
    (void)state;
    rig r;
    make_rig(&r, D_RING);
    kgen_gdn_args *a = r.args.gdn;
    int64_t k[] = {r.slots, 9, 2, 64}, u[] = {r.slots, 9, 4, 128}, decay[] = {r.slots, 9, 4};
    a->ring_k = kgen_tensor_dense(a->ring_k.data, KGEN_DTYPE_BF16, 4, k);
    a->ring_u = kgen_tensor_dense(a->ring_u.data, KGEN_DTYPE_BF16, 4, u);
    a->ring_decay = kgen_tensor_dense(a->ring_decay.data, KGEN_DTYPE_F32, 3, decay);
    refuse(&r, "ring_k: shape[1]=9, at least ring=8 and t=2");
    k[1] = u[1] = decay[1] = 10;
    a->ring_k = kgen_tensor_dense(a->ring_k.data, KGEN_DTYPE_BF16, 4, k);
    a->ring_u = kgen_tensor_dense(a->ring_u.data, KGEN_DTYPE_BF16, 4, u);
    a->ring_decay = kgen_tensor_dense(a->ring_decay.data, KGEN_DTYPE_F32, 3, decay);
    launch(&r);
    assert_int_equal(seen->ring_rows, 10);
}

static void test_lines_are_needed_where_there_are_few(void **state) {
    (void)state;
    rig r;
    make_sized(&r, D_TREE, 4, 0);
    kgen_gdn_args *a = r.args.gdn;
    a->buffer.shape[0] = a->conv_windows.shape[0] = 3;
    launch(&r);
    assert_int_equal(seen->line_count, 3);
    a->lines.data = NULL;
    refuse(&r, "buffer: shape[0]=3 lines for 4 sequences, and no data in lines");
    make_sized(&r, C_FLAT, 4, 0);
    a->conv_windows.shape[0] = 3;
    a->lines.data = NULL;
    refuse(&r, "conv_windows: shape[0]=3 lines for 4 sequences");
    a->conv_windows.data = NULL;
    launch(&r);
    assert_int_equal(seen->line_count, 0);
}

static void test_rows_must_hold_every_sequence(void **state) {
    (void)state;
    rig r;
    make_sized(&r, A, 5, 0);
    r.args.gdn->slots.shape[0] = 6;
    refuse(&r, "out: shape[0]=10 rows, 6 sequences of t=2 have 12");
    make_sized(&r, E_FLAT, 3, 0);
    r.args.gdn->cu_seqlens.shape[0] = 3;
    refuse(&r, "cu_seqlens: shape[0]=3, 4 expected");
    r.args.gdn->cu_seqlens.shape[0] = 5;
    refuse(&r, "cu_seqlens: shape[0]=5, 4 expected");
    r.args.gdn->cu_seqlens.shape[0] = 4;
    launch(&r);
}

/* ---- workspace, counts, families -------------------------------------------- */

static void test_workspace(void **state) {
    (void)state;
    kgen_error err;
    size_t bytes;
    rig r;
    make_rig(&r, E);
    assert_int_equal(kgen_workspace_size(&r.kernel, &r.args, &bytes, &err), KGEN_OK);
    assert_int_equal(bytes, KGEN__HEAD_BYTES);
    r.args.workspace_bytes--;
    refuse(&r, "workspace: 2097407 bytes, 2097408 needed");
    r.args.workspace_bytes++;
    r.args.workspace = (char *)r.args.workspace + 128;
    refuse(&r, "workspace: address 0x1080 is not a multiple of 256 bytes");
    r.args.workspace = NULL;
    refuse(&r, "workspace: no memory");
    make_rig(&r, A);
    assert_int_equal(kgen_workspace_size(&r.kernel, &r.args, &bytes, &err), KGEN_OK);
    assert_int_equal(bytes, 0);
    r.args.workspace = NULL;
    r.args.workspace_bytes = 0;
    launch(&r);
    assert_null(seen->workspace);
}

static void test_counts_have_bounds(void **state) {
    (void)state;
    kgen_error err;
    size_t bytes;
    rig r;
    make_sized(&r, E, 1 << 17, 0);
    launch(&r);
    make_sized(&r, E, (1 << 17) + 1, 0);
    refuse(&r, "slots: shape[0]=131073 sequences of hk=2, at most 131072");
    assert_int_equal(kgen_workspace_size(&r.kernel, &r.args, &bytes, &err), KGEN_E_ARG);
    make_sized(&r, "gdn:fuse=a,layout=flat,hk=256,hv=256", (1 << 23) - 1, 0);
    launch(&r);
    assert_true(noted.config.grid > 0 && noted.config.grid % 256 == 0);
    make_sized(&r, "gdn:fuse=a,layout=flat,hk=256,hv=256", 1 << 23, 0);
    refuse(&r, "slots: shape[0]=8388608 sequences of ");
}

static void test_other_families_are_refused(void **state) {
    (void)state;
    rig r;
    make_rig(&r, E);
    r.args.family = KGEN_FAMILY_ATTN;
    refuse(&r, "args: family attn, kernel built for gdn");
    make_kernel(&r, "attn:");
    memset(&r.args, 0, sizeof r.args);
    r.args.family = KGEN_FAMILY_GDN;
    refuse(&r, "args: family gdn, kernel built for attn");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_arguments_are_launched),
        cmocka_unit_test(test_inputs_are_where_the_layout_has_them),
        cmocka_unit_test(test_copies_are_made_where_there_is_room),
        cmocka_unit_test(test_pools_and_numbers),
        cmocka_unit_test(test_buffers_and_rings),
        cmocka_unit_test(test_rows_without_sequences_are_zeroed),
        cmocka_unit_test(test_each_tensor_is_checked),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ring_has_room_for_this_launch),
        cmocka_unit_test(test_lines_are_needed_where_there_are_few),
        cmocka_unit_test(test_rows_must_hold_every_sequence),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_counts_have_bounds),
        cmocka_unit_test(test_other_families_are_refused),
    };
    uint64_t seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

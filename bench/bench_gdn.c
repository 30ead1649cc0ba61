/* Times gdn kernels (see bench.h): states of different slots in every set. The
 * rate counts states, convolution windows and activations, in and out.      */
#include "bench.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {
    "a-f32:fuse=a,layout=flat,hk=16,hv=32,state=f32",
    "a-bf16:fuse=a,layout=flat,hk=16,hv=32,state=bf16",
    "e-f32:fuse=e,layout=flat,hk=16,hv=32,state=f32",
    "e-bf16:fuse=e,layout=flat,hk=16,hv=32,state=bf16",
    "d-f32:fuse=d,layout=flat,hk=16,hv=32,state=f32",
    "c:fuse=c,layout=flat,hk=16,hv=32",
    "e-f32-tp8:fuse=e,layout=flat,hk=2,hv=4,state=f32",
    "a-f32-tp8:fuse=a,layout=flat,hk=2,hv=4,state=f32",
    "e-f32-48:fuse=e,layout=flat,hk=16,hv=48,state=f32",
    "e-t4-f32:fuse=e,layout=flat,hk=16,hv=32,state=f32,t=4,index=spec,accept=1,save=slots",
};
static const int batches[] = {1, 8, 32, 64, 128, 256, 512};
enum { KINDS = sizeof kinds / sizeof kinds[0], BATCHES = sizeof batches / sizeof batches[0] };

static const char *name_of(size_t row) {
    static char name[64];
    const char *kind = kinds[row / BATCHES];
    snprintf(name, sizeof name, "%.*s-%d", (int)strcspn(kind, ":"), kind, batches[row % BATCHES]);
    return name;
}

static void spec_of(char out[KGEN_SPEC_LINE_MAX], size_t row) {
    snprintf(out, KGEN_SPEC_LINE_MAX, "gdn%s", strchr(kinds[row / BATCHES], ':'));
}

/* --- data --------------------------------------------------------------- */

typedef struct shape {
    const kgen_gdn_spec *spec;
    int64_t seqs, rows, keys, values, channels, slots, columns, conv_columns;
} shape;

static shape shape_of(bench *b, int batch) {
    const kgen_gdn_spec *s = &b->spec->gdn;
    shape n = {.spec = s, .seqs = batch, .rows = (int64_t)batch * s->tokens};
    n.keys = (int64_t)s->k_heads * s->k_dim;
    n.values = (int64_t)s->v_heads * s->v_dim;
    n.channels = 2 * n.keys + n.values;
    n.columns = s->index == KGEN_INDEX_SPEC ? s->tokens : 1;
    n.conv_columns = s->conv_width - 1 + (s->accept ? s->tokens - 1 : 0);
    double state = (double)n.values * s->k_dim * kgen_dtype_size((kgen_dtype)s->state);
    double conv = (double)n.channels * 2 * n.conv_columns;
    int with_conv = s->fuse >= KGEN_GDN_C, with_state = s->fuse != KGEN_GDN_C;
    b->bytes = (double)batch * (with_state * (1 + n.columns) * state + with_conv * 2 * conv) +
               (double)n.rows * 2 * (n.channels + (with_state ? 2 : 1) * n.values);
    b->sets = bench_sets(b->bytes, 256);
    n.slots = n.seqs * n.columns * b->sets;
    b->set_step = n.seqs * n.columns;
    return n;
}

static kgen_status make_inputs(bench *b, const shape *n, kgen_error *err) {
    kgen_gdn_args *a = &b->args.gdn;
    const kgen_gdn_spec *s = n->spec;
    kgen_dtype x = (kgen_dtype)s->x;
    int64_t row[2] = {n->rows, 2 * n->keys + 2 * n->values}, ba[2] = {n->rows, 2 * s->v_heads};
    int64_t channels[2] = {n->rows, n->channels}, weight[2] = {n->channels, s->conv_width};
    int64_t heads = s->v_heads, dim = s->v_dim, out[3] = {n->rows, s->v_heads, s->v_dim};
    KGEN_TRY(bench_tensor(b, &a->qkvz, x, 2, row, err));
    KGEN_TRY(bench_tensor(b, &a->ba, x, 2, ba, err));
    KGEN_TRY(bench_tensor(b, &a->x, x, 2, channels, err));
    KGEN_TRY(bench_tensor(b, &a->conv_weight, x, 2, weight, err));
    KGEN_TRY(bench_tensor(b, &a->a_log, KGEN_F32, 1, &heads, err));
    KGEN_TRY(bench_tensor(b, &a->dt_bias, x, 1, &heads, err));
    KGEN_TRY(bench_tensor(b, &a->norm_weight, x, 1, &dim, err));
    a->qkvz.layout = a->ba.layout = (kgen_layout)s->layout;
    return s->fuse == KGEN_GDN_C ? bench_tensor(b, &a->out, x, 2, channels, err)
                                 : bench_tensor(b, &a->out, (kgen_dtype)s->out, 3, out, err);
}

static kgen_status make_state(bench *b, const shape *n, kgen_error *err) {
    kgen_gdn_args *a = &b->args.gdn;
    const kgen_gdn_spec *s = n->spec;
    int64_t state[4] = {n->slots, s->v_heads, s->v_dim, s->k_dim};
    int64_t conv[3] = {n->slots, n->conv_columns, n->channels};
    int64_t slots[2] = {n->seqs, n->columns};
    void *memory;
    KGEN_TRY(bench_tensor(b, &a->conv_state, (kgen_dtype)s->x, 3, conv, err));
    if (s->fuse != KGEN_GDN_C)
        KGEN_TRY(bench_tensor(b, &a->state, (kgen_dtype)s->state, 4, state, err));
    a->state.layout = (kgen_layout)s->state_layout;
    a->conv_state.layout = KGEN_SD;
    KGEN_TRY(bench_shuffled(b, &memory, n->slots, err));
    a->slots = kgen_tensor_dense(memory, KGEN_I32, s->index == KGEN_INDEX_SPEC ? 2 : 1, slots);
    if (!s->accept) return KGEN_OK;
    int32_t ones[512];
    for (int i = 0; i < 512; i++) ones[i] = 1;
    KGEN_TRY(bench_ints(b, &memory, ones, (size_t)n->seqs, err));
    a->accepted = kgen_tensor_dense(memory, KGEN_I32, 1, &n->seqs);
    return KGEN_OK;
}

static kgen_status make(bench *b, size_t row, kgen_error *err) {
    shape n = shape_of(b, batches[row % BATCHES]);
    b->args.family = KGEN_GDN;
    KGEN_TRY(make_inputs(b, &n, err));
    KGEN_TRY(make_state(b, &n, err));
    b->args.gdn.q_scale = 0.08838835f;
    b->args.gdn.l2_eps = b->args.gdn.norm_eps = 1e-6f;
    return bench_workspace(b, err);
}

static void select_set(kgen_args *args, const bench *b, int set) {
    args->gdn.slots.data = (int32_t *)b->args.gdn.slots.data + set * b->set_step;
}

int main(int argc, char **argv) {
    bench_family family = {"bench_gdn", KINDS * BATCHES, name_of, spec_of, make, select_set};
    return bench_main(&family, argc, argv);
}

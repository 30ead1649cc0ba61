/* Attention launches: arguments against spec, the packed argument struct, the
 * workspace. Nothing here allocates, locks or waits. */
#include <math.h>
#include <string.h>

#include "gen/attn.h"
#include "templates/kg/attn/attn_packed.h"
#include "checks.h"
#include "kv_layout.h"
#include "launch.h"

enum { MOST_TOKENS = INT32_MAX / 2 };
/* So that a position less the window is a number. */
enum { MOST_WINDOW = INT32_MAX - 64 };

typedef struct kg_attn_args device_args;

/* What the checks learn and the packing needs. */
typedef struct shape {
    int64_t seqs, tokens, kv_heads, q_heads;
} shape;

static kgen_status check_queries(const kgen_attn_spec *s, const kgen_attn_args *a, shape *n,
                                 kgen_error *err) {
    KGEN_TRY(kgen__check_type("q", &a->q, (kgen_dtype)s->q, 3, err));
    KGEN_TRY(kgen__check_type("seq_lens", &a->seq_lens, KGEN_DTYPE_I32, 1, err));
    n->tokens = a->q.shape[0];
    n->q_heads = a->q.shape[1];
    n->seqs = a->seq_lens.shape[0];
    n->kv_heads = n->q_heads / s->group;
    NEED(n->q_heads > 0 && n->q_heads % s->group == 0,
         "q: shape[1]=%lld heads, a multiple of g=%d expected", (long long)n->q_heads, s->group);
    NEED(n->tokens <= MOST_TOKENS, "q: shape[0]=%lld tokens, at most %d", (long long)n->tokens,
         MOST_TOKENS);
    NEED(n->seqs <= MOST_TOKENS, "seq_lens: shape[0]=%lld sequences, at most %d",
         (long long)n->seqs, MOST_TOKENS);
    KGEN_TRY(kgen__check_dim("q", &a->q, 2, s->head_dim, err));
    KGEN_TRY(kgen__check_unit_stride("q", &a->q, 2, 1, err));
    KGEN_TRY(kgen__check_alignment("q", &a->q, 2, 16, err));
    KGEN_TRY(kgen__check_unit_stride("seq_lens", &a->seq_lens, 0, 1, err));
    if (s->phase == KGEN_PHASE_VERIFY)
        return kgen__check_vector("cu_seqlens_q", &a->cu_seqlens_q, KGEN_DTYPE_I32, n->seqs + 1,
                                  err);
    NEED(n->tokens == n->seqs,
         "q: shape[0]=%lld tokens, phase=decode has one for each of %lld "
         "sequences",
         (long long)n->tokens, (long long)n->seqs);
    return KGEN_OK;
}

static kgen_status check_output(const kgen_attn_spec *s, const kgen_attn_args *a, const shape *n,
                                kgen_error *err) {
    KGEN_TRY(kgen__check_type("out", &a->out, (kgen_dtype)s->out, 3, err));
    KGEN_TRY(kgen__check_dim("out", &a->out, 0, n->tokens, err));
    KGEN_TRY(kgen__check_dim("out", &a->out, 1, n->q_heads, err));
    KGEN_TRY(kgen__check_dim("out", &a->out, 2, s->v_dim, err));
    KGEN_TRY(kgen__check_unit_stride("out", &a->out, 2, 1, err));
    KGEN_TRY(kgen__check_alignment("out", &a->out, 2, 4, err));
    if (kgen_dtype_size((kgen_dtype)s->out) == 1)
        KGEN_TRY(kgen__check_vector("out_scale", &a->out_scale, KGEN_DTYPE_F32, 1, err));
    if (!s->lse) return KGEN_OK;
    KGEN_TRY(kgen__check_type("lse", &a->lse, KGEN_DTYPE_F32, 2, err));
    KGEN_TRY(kgen__check_dim("lse", &a->lse, 0, n->q_heads, err));
    KGEN_TRY(kgen__check_dim("lse", &a->lse, 1, n->tokens, err));
    return kgen__check_unit_stride("lse", &a->lse, 1, 1, err);
}

static kgen_status check_table(const kgen_attn_spec *s, const kgen_attn_args *a, const shape *n,
                               kgen_error *err) {
    const kgen_tensor *t = &a->block_table;
    KGEN_TRY(
        kgen__check_type("block_table", t, s->table ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32, 2, err));
    KGEN_TRY(kgen__check_dim("block_table", t, 0, n->seqs, err));
    NEED(t->shape[1] >= 1, "block_table: shape[1]=%lld, at least 1", (long long)t->shape[1]);
    return kgen__check_unit_stride("block_table", t, 1, 1, err);
}

static kgen_status check_features(const kgen_attn_spec *s, const kgen_attn_args *a, const shape *n,
                                  kgen_error *err) {
    NEED(isfinite(a->softmax_scale) && a->softmax_scale > 0, "softmax_scale=%g: finite and above 0",
         (double)a->softmax_scale);
    if (s->softcap)
        NEED(isfinite(a->softcap) && a->softcap > 0, "softcap=%g: finite and above 0",
             (double)a->softcap);
    if (s->window == KGEN_WINDOW_RT) NEED(a->window >= 1, "window=%d: at least 1", a->window);
    if (s->alibi)
        KGEN_TRY(
            kgen__check_vector("alibi_slopes", &a->alibi_slopes, KGEN_DTYPE_F32, n->q_heads, err));
    if (s->sinks) KGEN_TRY(kgen__check_vector("sinks", &a->sinks, KGEN_DTYPE_F32, n->q_heads, err));
    return KGEN_OK;
}

/* --- workspace ---------------------------------------------------------- */

typedef struct workspace {
    size_t sums, outs, bytes; /* offsets, size */
} workspace;

static workspace layout_workspace(const kgen_kernel *kernel) {
    kgen__attn_geometry geometry = kgen__attn_geometry_of(&kernel->spec.attn, kernel->ctx->target);
    size_t rows = 2 * (size_t)kernel->config.grid * (size_t)geometry.rows;
    workspace w;
    w.sums = KGEN__COUNTER_BYTES;
    size_t sums = rows * 2 * sizeof(float), unit = KGEN__WORKSPACE_ALIGNMENT;
    w.outs = w.sums + (sums + unit - 1) / unit * unit;
    w.bytes = w.outs + rows * (size_t)kernel->spec.attn.v_dim * sizeof(float);
    return w;
}

static kgen_status check_counters(const kgen_kernel *kernel, int64_t seqs, int64_t kv_heads,
                                  kgen_error *err) {
    kgen__attn_geometry geometry = kgen__attn_geometry_of(&kernel->spec.attn, kernel->ctx->target);
    int64_t most = KGEN__COUNTER_BYTES / (int64_t)sizeof(int32_t);
    NEED(seqs >= 0 && seqs <= most && kv_heads >= 0 && kv_heads <= most &&
             seqs * kv_heads * geometry.row_blocks <= most,
         "seq_lens: %lld sequences of %lld KV heads and %d row blocks, at most %lld in all",
         (long long)seqs, (long long)kv_heads, geometry.row_blocks, (long long)most);
    return KGEN_OK;
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    const kgen_attn_args *a = &args->attn;
    int64_t kv_heads = a->q.shape[1] / kernel->spec.attn.group;
    KGEN_TRY(check_counters(kernel, a->seq_lens.shape[0], kv_heads, err));
    *bytes = layout_workspace(kernel).bytes;
    return KGEN_OK;
}

/* --- pack --------------------------------------------------------------- */

static void pack_cache(device_args *d, const kgen_attn_args *a, const kgen__kv *kv) {
    const kgen__kv_dims *k = kgen__kv_dims_of(kv->layout, 0), *v = kgen__kv_dims_of(kv->layout, 1);
    d->k = a->k.data;
    d->v = a->v.data;
    d->k_page = a->k.stride[0] * kv->size;
    d->v_page = a->v.stride[0] * kv->size;
    d->k_head = a->k.stride[k->head] * kv->size;
    d->v_head = a->v.stride[v->head] * kv->size;
    d->k_token = (int)(a->k.stride[k->page] * kv->size);
    d->v_token = d->v_chunk = (int)(a->v.stride[v->page] * kv->size);
    d->k_chunk = (int)(a->k.stride[k->dim] * kv->size);
    d->v_dim_stride = (int)(a->v.stride[v->dim] * kv->size);
    d->page = (int)kv->page;
    uint64_t groups = kv->page >= 16 ? (uint64_t)kv->page / 16 : 1;
    d->page_magic = (((uint64_t)1 << 36) + groups - 1) / groups;
}

static void pack_rest(device_args *d, const kgen_attn_spec *s, const kgen_attn_args *a,
                      const shape *n) {
    int q_size = kgen_dtype_size(a->q.dtype), out_size = kgen_dtype_size(a->out.dtype);
    d->q = a->q.data;
    d->out = a->out.data;
    d->lse = a->lse.data;
    d->table = a->block_table.data;
    d->seq_lens = a->seq_lens.data;
    d->cu_seqlens = a->cu_seqlens_q.data;
    d->k_descale = a->k_descale.data;
    d->v_descale = a->v_descale.data;
    d->out_scale = a->out_scale.data;
    d->alibi = a->alibi_slopes.data;
    d->sinks = a->sinks.data;
    d->q_token = a->q.stride[0] * q_size;
    d->q_head = a->q.stride[1] * q_size;
    d->out_token = a->out.stride[0] * out_size;
    d->out_head = a->out.stride[1] * out_size;
    d->lse_head = a->lse.stride[0];
    d->table_row = a->block_table.stride[0];
    d->num_seqs = (int)n->seqs;
    d->num_tokens = (int)n->tokens;
    d->kv_heads = (int)n->kv_heads;
    d->window = a->window < MOST_WINDOW ? a->window : MOST_WINDOW;
    d->scale = a->softmax_scale * 1.4426950408889634f;
    d->softcap = s->softcap ? a->softcap * 1.4426950408889634f : 1.0f;
}

static kgen_status pack_args(device_args *d, const kgen_kernel *kernel, const kgen_attn_args *a,
                             kgen_error *err) {
    const kgen_attn_spec *s = &kernel->spec.attn;
    shape n = {0};
    KGEN_TRY(check_queries(s, a, &n, err));
    kgen__kv kv = kgen__kv_of(s->layout, s->kv, s->page, n.kv_heads);
    KGEN_TRY(kgen__check_cache(&kv, "k", 0, &a->k, s->head_dim, err));
    KGEN_TRY(kgen__check_cache(&kv, "v", 1, &a->v, s->v_dim, err));
    KGEN_TRY(kgen__check_dim("v", &a->v, 0, a->k.shape[0], err));
    KGEN_TRY(check_table(s, a, &n, err));
    KGEN_TRY(check_output(s, a, &n, err));
    KGEN_TRY(check_features(s, a, &n, err));
    KGEN_TRY(kgen__check_descale(&kv, s->descale, "k_descale", &a->k_descale, a->k.shape[0], n.seqs,
                                 d->k_descale_stride, err));
    KGEN_TRY(kgen__check_descale(&kv, s->descale, "v_descale", &a->v_descale, a->v.shape[0], n.seqs,
                                 d->v_descale_stride, err));
    KGEN_TRY(check_counters(kernel, n.seqs, n.kv_heads, err));
    pack_cache(d, a, &kv);
    pack_rest(d, s, a, &n);
    return KGEN_OK;
}

static kgen_status pack_workspace(device_args *d, const kgen_kernel *kernel, const kgen_args *a,
                                  kgen_error *err) {
    workspace w = layout_workspace(kernel);
    char *base = a->workspace;
    KGEN_TRY(kgen__check_workspace(base, a->workspace_bytes, w.bytes, err));
    d->arrived = (int *)base;
    d->partial_ml = (float *)(base + w.sums);
    d->partial_out = (float *)(base + w.outs);
    d->workgroups = (int)kernel->config.grid;
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    device_args *d = packed;
    KGEN_TRY(pack_args(d, kernel, &args->attn, err));
    KGEN_TRY(pack_workspace(d, kernel, args, err));
    *grid = d->num_tokens ? kernel->config.grid : 0;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_attn = {sizeof(device_args), workspace_bytes, pack};

/* Attention launches: arguments against spec, the packed argument struct, the
 * workspace. Nothing here allocates, locks or waits. */
#include <string.h>

#include "gen/attn.h"
#include "attn_pack.h"
#include "checks.h"
#include "kv_layout.h"
#include "launch.h"

enum { MOST_TOKENS = INT32_MAX / 2 };

typedef struct kg_attn_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

#define FAMILY attn
#define SPEC kgen_attn_spec
#define ARGS kgen_attn_args
#define ARGS_DEF <kgen/attn_args.def>
#include "args_table.h"

#define TO(name) (offsetof(device_args, name) + 1)

static const kgen__place places[TENSORS] = {
    [TENSOR_Q] = {TO(q), {TO(q_token), TO(q_head)}, 1},
    [TENSOR_OUT] = {TO(out), {TO(out_token), TO(out_head)}, 1},
    [TENSOR_TABLE] = {TO(table), {TO(table_row)}, 0},
    [TENSOR_INDPTR] = {TO(indptr), {0}, 0},
    [TENSOR_INDICES] = {TO(table), {0}, 0},
    [TENSOR_SEQ_LENS] = {TO(seq_lens), {0}, 0},
    [TENSOR_CU] = {TO(cu_seqlens), {0}, 0},
    [TENSOR_CU_K] = {TO(seq_lens), {0}, 0},
    [TENSOR_MASKS] = {TO(words), {TO(words_row)}, 0},
    [TENSOR_CAUSAL] = {TO(causal), {0}, 0},
    [TENSOR_OUT_SCALE] = {TO(out_scale), {0}, 0},
    [TENSOR_SPAN_ENDS] = {TO(span_ends), {0}, 0},
    [TENSOR_PREFIX_LENS] = {TO(prefix_lens), {0}, 0},
    [TENSOR_PREFIX_SEQS] = {TO(prefix_seqs), {0}, 0},
    [TENSOR_GATE] = {TO(gate), {TO(gate_token), TO(gate_head)}, 1},
    [TENSOR_ALIBI] = {TO(alibi), {0}, 0},
    [TENSOR_SINKS] = {TO(sinks), {0}, 0},
    [TENSOR_LSE] = {TO(lse), {TO(lse_row)}, 0},
    [TENSOR_ERROR] = {TO(error), {0}, 0},
};

/* Queries say how many heads and tokens there are, lengths how many sequences. */
static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    const kgen_attn_spec *s = &spec->attn;
    const kgen_attn_phase *phase = kgen_attn_phase_of(s->phase);
    NEED(!phase->dense || size[SIZE_ENDS_K] >= 1, "cu_seqlens_k: shape[0]=%lld, at least 1",
         (long long)size[SIZE_ENDS_K]);
    if (phase->dense) size[SIZE_S] = size[SIZE_ENDS_K] - 1;
    NEED(size[SIZE_HQ] > 0 && size[SIZE_HQ] % s->group == 0,
         "q: shape[1]=%lld heads, a multiple of g=%d expected", (long long)size[SIZE_HQ], s->group);
    NEED(size[SIZE_T] <= MOST_TOKENS, "q: shape[0]=%lld tokens, at most %d",
         (long long)size[SIZE_T], MOST_TOKENS);
    NEED(size[SIZE_S] <= MOST_TOKENS, "seq_lens: shape[0]=%lld sequences, at most %d",
         (long long)size[SIZE_S], MOST_TOKENS);
    NEED(phase->ragged || size[SIZE_T] == size[SIZE_S],
         "q: shape[0]=%lld tokens, phase=%s has one for each of %lld sequences",
         (long long)size[SIZE_T], phase->name, (long long)size[SIZE_S]);
    size[SIZE_ENDS] = size[SIZE_S] + 1;
    NEED(!s->cascade || size[SIZE_PREFIXES] <= MOST_TOKENS,
         "prefix_lens: shape[0]=%lld groups, at most %d", (long long)size[SIZE_PREFIXES],
         MOST_TOKENS);
    size[SIZE_ENDS_P] = size[SIZE_PREFIXES] + 1;
    return KGEN_OK;
}

static const kgen__args_rows args_rows = {ARGS_ROWS, .places = places, .derive = derive};

static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    (void)spec;
    return &args_rows;
}

static kgen_status check_lengths(const kgen_attn_spec *s, const kgen_attn_args *a, int table_keys,
                                 kgen_error *err) {
    const kgen_attn_phase *phase = kgen_attn_phase_of(s->phase);
    return kgen__attn_check_lengths(a->max_q_len, phase->bounded ? s->q_tokens : INT32_MAX,
                                    a->max_kv_len, table_keys,
                                    phase->dense ? "k"
                                    : s->flat    ? "kv_indices"
                                                 : "block_table",
                                    err);
}

static void settle(kgen_kernel *kernel) {
    kernel->counts.attn = kgen__attn_geometry_of(&kernel->spec.attn, kernel->ctx->target);
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    const kgen_attn_args *a = args->attn;
    const kgen_attn_spec *s = &kernel->spec.attn;
    int64_t page = s->page ? s->page : a->k.shape[kgen__kv_dims_of(s->layout, 0)->page];
    kgen__attn_work work = {.seqs = a->seq_lens.shape[0],
                            .tokens = a->q.shape[0],
                            .kv_heads = a->q.shape[1] / s->group,
                            .keys = kgen__attn_most_keys(a->block_table.shape[1], page),
                            .group = s->group,
                            .v_dim = s->v_dim};
    return kgen__attn_workspace_bytes(bytes, kernel, &work, err);
}

/* --- pack --------------------------------------------------------------- */

static void pack_addresses(device_args *d, const kgen_attn_args *a) {
    d->k = a->k.data;
    d->v = a->v.data;
    d->q_descale = a->q_descale.data;
    d->k_descale = a->k_descale.data;
    d->v_descale = a->v_descale.data;
}

static void pack_cache(device_args *d, const kgen_attn_args *a, const kgen__kv *kv) {
    const kgen__kv_dims *k = kgen__kv_dims_of(kv->layout, 0), *v = kgen__kv_dims_of(kv->layout, 1);
    d->k_page = a->k.stride[0] * kv->size;
    d->v_page = a->v.stride[0] * kv->size;
    d->k_head = a->k.stride[k->head] * kv->size;
    d->v_head = a->v.stride[v->head] * kv->size;
    d->k_token = (int)(a->k.stride[k->page] * kv->size);
    d->v_token = d->v_chunk = (int)(a->v.stride[v->page] * kv->size);
    d->k_chunk = (int)(a->k.stride[k->dim] * kv->size);
    d->v_dim_stride = (int)(a->v.stride[v->dim] * kv->size);
    d->page = (int)kv->page;
    d->last_page = (int)(a->k.shape[0] > 0 ? a->k.shape[0] - 1 : 0);
    if (kv->spec_page != KGEN_PAGE_X16) return; /* kernels divide by what they know */
    d->page_magic = kgen__attn_page_magic(kv->page);
}

static void pack_numbers(device_args *d, const kgen_attn_spec *s, const kgen_attn_args *a,
                         const int64_t *size) {
    int dense = kgen_attn_phase_of(s->phase)->dense;
    int64_t pages = dense ? a->k.shape[0] : s->flat ? size[SIZE_ENTRIES] : size[SIZE_PAGES];
    if (a->k.shape[0] == 0) pages = 0; /* whatever lengths say: a pool that has no last page */
    d->table_keys = kgen__attn_most_keys(pages, d->page);
    if (s->flat) d->table_row = pages;
    d->num_seqs = (int)size[SIZE_S];
    d->num_tokens = (int)size[SIZE_T];
    d->num_prefixes = s->cascade ? (int)size[SIZE_PREFIXES] : 0;
    d->kv_heads = (int)size[SIZE_HQ] / s->group;
    d->window = kgen__attn_window_of(a->window);
    d->keep = kgen__attn_window_of(a->keep);
    d->right = a->right < MOST_TOKENS ? a->right : MOST_TOKENS;
    d->scale = a->softmax_scale * KGEN__LOG2E;
    d->softcap = s->softcap ? a->softcap * KGEN__LOG2E : 1.0f;
}

/* Places of keys without pages are 32-bit bytes, of two blocks' rows (kg/attn/buffer_lines.h). */
static kgen_status check_dense(const char *name, const kgen_tensor *t, int size, kgen_error *err) {
    enum { ROWS = 64 };
    int64_t most = INT32_MAX / ROWS / size;
    NEED(t->shape[0] <= 1 || (t->stride[0] >= 0 && t->stride[0] <= most),
         "%s: stride[0]=%lld elements, 0 to %lld", name, (long long)t->stride[0], (long long)most);
    return KGEN_OK;
}

static kgen_status pack_caches(device_args *d, const kgen_attn_spec *s, const kgen_attn_args *a,
                               const int64_t *size, kgen_error *err) {
    int64_t seqs = size[SIZE_S];
    kgen__kv kv = kgen__kv_of(s->layout, s->kv, s->page, size[SIZE_HQ] / s->group);
    KGEN_TRY(kgen__check_cache(&kv, "k", 0, &a->k, s->head_dim, err));
    KGEN_TRY(kgen__check_cache(&kv, "v", 1, &a->v, s->v_dim, err));
    KGEN_TRY(kgen__check_dim("v", &a->v, 0, a->k.shape[0], err));
    if (kgen_attn_phase_of(s->phase)->dense) {
        KGEN_TRY(check_dense("k", &a->k, kv.size, err));
        KGEN_TRY(check_dense("v", &a->v, kv.size, err));
    }
    KGEN_TRY(kgen__check_descale(&kv, s->descale, "k_descale", &a->k_descale, a->k.shape[0], seqs,
                                 d->k_descale_stride, err));
    KGEN_TRY(kgen__check_descale(&kv, s->descale, "v_descale", &a->v_descale, a->v.shape[0], seqs,
                                 d->v_descale_stride, err));
    if (kgen_dtype_size((kgen_dtype)s->q) == 1)
        KGEN_TRY(kgen__check_descale(&kv, KGEN_DESCALE_HEAD, "q_descale", &a->q_descale, 0, seqs,
                                     d->q_descale_stride, err));
    pack_addresses(d, a);
    pack_cache(d, a, &kv);
    return KGEN_OK;
}

static kgen_status pack_args(device_args *d, const kgen_kernel *kernel, const kgen_attn_args *a,
                             kgen_error *err) {
    const kgen_attn_spec *s = &kernel->spec.attn;
    int64_t size[KGEN__SIZES_MAX];
    KGEN_TRY(kgen__args_take(d, size, &kernel->binding, &kernel->spec, a, err));
    int padded = !s->flat && !kgen_attn_phase_of(s->phase)->dense;
    NEED(!padded || size[SIZE_PAGES] >= 1, "block_table: shape[1]=%lld, at least 1",
         (long long)size[SIZE_PAGES]);
    KGEN_TRY(pack_caches(d, s, a, size, err));
    pack_numbers(d, s, a, size);
    return check_lengths(s, a, d->table_keys, err);
}

/* Where blocks of keys are more than the line of work counts, several are a unit. */
static kgen_status pack_line(device_args *d, const kgen__attn_geometry *geometry, int32_t group,
                             kgen_error *err) {
    if (geometry->row_blocks && !geometry->joins) return KGEN_OK;
    int64_t most = INT32_MAX, blocks = d->table_keys / geometry->block_keys + 1;
    blocks *= geometry->waves; /* a unit is a block for one wave's rows */
    int64_t rows = (int64_t)d->num_tokens * group, cost = geometry->item_cost + 2;
    NEED(rows <= INT32_MAX - 4096, "q: %d tokens of g=%d heads, at most %d rows of a KV head",
         d->num_tokens, group, INT32_MAX - 4096);
    int64_t lines = (int64_t)d->num_seqs + d->num_prefixes;
    int64_t items = d->kv_heads * ((1 + geometry->joins) * rows / geometry->rows + lines);
    NEED(items <= most / (cost + 1), "q: %lld pieces of work in %d tokens, at most %lld",
         (long long)items, d->num_tokens, (long long)(most / (cost + 1)));
    while (!geometry->row_blocks && items * (cost + (blocks >> d->unit_shift)) > most)
        d->unit_shift++;
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    device_args *d = packed;
    KGEN_TRY(pack_args(d, kernel, args->attn, err));
    KGEN_TRY(pack_line(d, &kernel->counts.attn, kernel->spec.attn.group, err));
    KGEN_TRY(kgen__attn_pack_workspace(d, kernel, kernel->spec.attn.group, kernel->spec.attn.v_dim,
                                       args, err));
    *grid = d->num_tokens ? kernel->config.grid : 0;
    return KGEN_OK;
}

static int again(void *packed, const kgen_kernel *kernel, const kgen_args *args,
                 const kgen__stretch *at) {
    const kgen_attn_spec *s = &kernel->spec.attn;
    (void)at;
    pack_addresses(packed, args->attn);
    return kgen__attn_pack_workspace(packed, kernel, s->group, s->v_dim, args, NULL) == KGEN_OK;
}

const kgen__launcher kgen__launch_attn = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .settle = settle,
    .workspace_bytes = workspace_bytes,
    .pack = pack,
    .again = again,
};

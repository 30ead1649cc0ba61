/* Launches of mla: arguments against spec, packed as attention's kernels take them.
 * Nothing here allocates, locks or waits. */
#include "gen/mla.h"
#include "templates/kg/mla/mla_shape.h"
#include "attn_pack.h"
#include "checks.h"
#include "kv_layout.h"

enum { MOST_TOKENS = INT32_MAX / 2 };

typedef struct kg_attn_args device_args;

#define FAMILY mla
#define SPEC kgen_mla_spec
#define ARGS kgen_mla_args
#define ARGS_DEF <kgen/mla_args.def>
#include "args_table.h"

#define TO(name) (offsetof(device_args, name) + 1)

static const kgen__place places[TENSORS] = {
    [TENSOR_Q] = {TO(q), {TO(q_token), TO(q_head)}, 1},
    [TENSOR_OUT] = {TO(out), {TO(out_token), TO(out_head)}, 1},
    [TENSOR_TABLE] = {TO(table), {TO(table_row)}, 0},
    [TENSOR_LISTS] = {TO(table), {TO(table_row)}, 0},
    [TENSOR_INDPTR] = {TO(indptr), {0}, 0},
    [TENSOR_INDICES] = {TO(table), {0}, 0},
    [TENSOR_SEQ_LENS] = {TO(seq_lens), {0}, 0},
    [TENSOR_CU] = {TO(cu_seqlens), {0}, 0},
    [TENSOR_MASKS] = {TO(words), {TO(words_row)}, 0},
    [TENSOR_DESCALE] = {TO(k_descale), {0}, 0},
    [TENSOR_OUT_SCALE] = {TO(out_scale), {0}, 0},
    [TENSOR_SINKS] = {TO(sinks), {0}, 0},
    [TENSOR_LSE] = {TO(lse), {TO(lse_row)}, 0},
    [TENSOR_ERROR] = {TO(error), {0}, 0},
};

static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    int decode = spec->mla.phase == KGEN_MLA_DECODE;
    NEED(size[SIZE_T] <= MOST_TOKENS, "q: shape[0]=%lld tokens, at most %d",
         (long long)size[SIZE_T], MOST_TOKENS);
    NEED(size[SIZE_S] <= MOST_TOKENS, "seq_lens: shape[0]=%lld sequences, at most %d",
         (long long)size[SIZE_S], MOST_TOKENS);
    NEED(!decode || size[SIZE_T] == size[SIZE_S],
         "q: shape[0]=%lld tokens, phase=decode has one for each of %lld sequences",
         (long long)size[SIZE_T], (long long)size[SIZE_S]);
    size[SIZE_ENDS] = size[SIZE_S] + 1;
    return KGEN_OK;
}

static const kgen__args_rows args_rows = {ARGS_ROWS, .places = places, .derive = derive};

static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    (void)spec;
    return &args_rows;
}

/* --- pack --------------------------------------------------------------- */

/* The pool as a cache of one KV head. */
static kgen_tensor pool_of(const kgen_tensor *cache) {
    int joined = cache->rank == 3;
    kgen_tensor t = *cache;
    t.rank = 4;
    t.layout = KGEN_LAYOUT_NHD;
    if (!joined) return t;
    t.shape[2] = 1;
    t.stride[2] = cache->stride[1];
    t.shape[3] = cache->shape[2];
    t.stride[3] = cache->stride[2];
    return t;
}

/* Slots count through all pages. */
static kgen_status join_pages(kgen_tensor *pool, kgen_error *err) {
    NEED(pool->shape[0] < 2 || pool->stride[0] == pool->shape[1] * pool->stride[1],
         "cache: stride[0]=%lld, with sparse=1 pages lie one behind the other: %lld",
         (long long)pool->stride[0], (long long)(pool->shape[1] * pool->stride[1]));
    pool->shape[0] *= pool->shape[1];
    pool->stride[0] = pool->stride[1];
    pool->shape[1] = 1;
    return KGEN_OK;
}

/* Beside those with a place. */
static void pack_addresses(device_args *d, const kgen_mla_args *a) {
    d->k = a->cache.data;
    d->v_descale = d->k_descale;
}

static kgen_status pack_cache(device_args *d, const kgen_mla_spec *s, const kgen_mla_args *a,
                              kgen_error *err) {
    kgen__kv kv = kgen__kv_of(KGEN_LAYOUT_NHD, s->rows ? KGEN_DTYPE_U8 : s->kv, s->page, 1);
    int64_t width = s->rows ? kg_mla_row_bytes(s->latent, s->rope) : s->latent + s->rope;
    kgen_tensor pool = pool_of(&a->cache);
    if (s->sparse) KGEN_TRY(join_pages(&pool, err));
    KGEN_TRY(kgen__check_cache(&kv, "cache", 0, &pool, width, err));
    pack_addresses(d, a);
    d->k_page = pool.stride[0] * kv.size;
    d->k_token = (int)(pool.stride[1] * kv.size);
    d->page = (int)kv.page;
    d->last_page = (int)(pool.shape[0] > 0 ? pool.shape[0] - 1 : 0);
    if (s->page != KGEN_PAGE_X16) return KGEN_OK; /* kernels divide by what they know */
    d->page_magic = kgen__attn_page_magic(kv.page);
    return KGEN_OK;
}

static kgen_status pack_numbers(device_args *d, const kgen_mla_spec *s, const kgen_mla_args *a,
                                const int64_t *size, kgen_error *err) {
    const char *list = s->flat ? "kv_indices" : s->sparse ? "slots" : "block_table";
    int64_t pages = size[s->flat ? SIZE_ENTRIES : s->sparse ? SIZE_LIST : SIZE_PAGES];
    NEED(s->flat || pages >= 1, "%s: shape[1]=%lld, at least 1", list, (long long)pages);
    if (a->cache.shape[0] == 0) pages = 0; /* whatever lengths say: a pool that has no last page */
    d->table_keys = kgen__attn_most_keys(pages, d->page);
    if (s->flat) d->table_row = pages;
    d->num_seqs = (int)size[SIZE_S];
    d->num_tokens = (int)size[SIZE_T];
    d->kv_heads = 1;
    d->window = kgen__attn_window_of(a->window);
    d->scale = a->softmax_scale * KGEN__LOG2E;
    return kgen__attn_check_lengths(a->max_q_len, s->q_tokens, a->max_kv_len, d->table_keys, list,
                                    err);
}

static void settle(kgen_kernel *kernel) {
    kernel->counts.attn = kgen__mla_geometry_of(&kernel->spec.mla, kernel->ctx->target);
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    const kgen_mla_spec *s = &kernel->spec.mla;
    const kgen_mla_args *a = args->mla;
    int64_t page = s->page ? s->page : a->cache.shape[1];
    const kgen_tensor *pages = s->sparse ? &a->slots : &a->block_table;
    kgen__attn_work work = {.seqs = a->seq_lens.shape[0],
                            .kv_heads = 1,
                            .keys = kgen__attn_most_keys(pages->shape[1], page),
                            .v_dim = s->latent};
    return kgen__attn_workspace_bytes(bytes, kernel, &work, err);
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_mla_spec *s = &kernel->spec.mla;
    const kgen_mla_args *a = args->mla;
    device_args *d = packed;
    int64_t size[KGEN__SIZES_MAX];
    KGEN_TRY(kgen__args_take(d, size, &kernel->binding, &kernel->spec, a, err));
    KGEN_TRY(pack_cache(d, s, a, err));
    KGEN_TRY(pack_numbers(d, s, a, size, err));
    KGEN_TRY(kgen__attn_pack_workspace(d, kernel, 1, s->latent, args, err));
    *grid = d->num_tokens ? kernel->config.grid : 0;
    return KGEN_OK;
}

static int again(void *packed, const kgen_kernel *kernel, const kgen_args *args,
                 const kgen__stretch *at) {
    (void)at;
    pack_addresses(packed, args->mla);
    return kgen__attn_pack_workspace(packed, kernel, 1, kernel->spec.mla.latent, args, NULL) ==
           KGEN_OK;
}

const kgen__launcher kgen__launch_mla = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .settle = settle,
    .workspace_bytes = workspace_bytes,
    .pack = pack,
    .again = again,
};

/* Launches of the indexer: arguments against spec, the packed argument struct. Nothing
 * here allocates, locks or waits. */
#include "gen/indexer.h"
#include "templates/kg/indexer/indexer_packed.h"
#include "templates/kg/indexer/indexer_shape.h"
#include "checks.h"
#include "kv_layout.h"
#include "kv_pack.h"

typedef struct kg_indexer_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

enum { MOST_ROWS = INT32_MAX / 64, MOST_COLUMNS = INT32_MAX / 2 };

#define FAMILY indexer
#define SPEC kgen_indexer_spec
#define ARGS kgen_indexer_args
#define ARGS_DEF <kgen/indexer_args.def>
#include "args_table.h"

#define TO(name) (offsetof(device_args, name) + 1)

static const kgen__place places[TENSORS] = {
    [TENSOR_NEW] = {TO(k), {TO(k_row)}, 1},
    [TENSOR_SLOTS] = {TO(slots), {0}, 0},
    [TENSOR_CACHE] = {TO(cache), {TO(cache_page), TO(cache_token)}, 1},
    [TENSOR_SCALES] = {TO(scales), {TO(scales_page)}, 0},
    [TENSOR_TABLE] = {TO(table), {TO(table_row)}, 0},
    [TENSOR_CU] = {TO(cu_seqlens), {0}, 0},
    [TENSOR_SEQ_LENS] = {TO(seq_lens), {0}, 0},
    [TENSOR_Q] = {TO(q), {TO(q_token), TO(q_head)}, 1},
    [TENSOR_WEIGHTS] = {TO(weights), {TO(weights_row)}, 0},
    [TENSOR_KEYS] = {TO(keys), {TO(keys_row)}, 1},
    [TENSOR_KEY_SCALES] = {TO(key_scales), {0}, 0},
    [TENSOR_STARTS] = {TO(starts), {0}, 0},
    [TENSOR_STOPS] = {TO(ends), {0}, 0},
    [TENSOR_LOGITS] = {TO(logits), {TO(logits_row)}, 0},
    [TENSOR_REQUESTS] = {TO(requests), {0}, 0},
    [TENSOR_INDICES] = {TO(indices), {TO(indices_row)}, 0},
};

/* --- sizes -------------------------------------------------------------------- */

static kgen_status check_most(const char *what, int64_t count, int64_t most, kgen_error *err) {
    NEED(count <= most, "%s=%lld, at most %lld", what, (long long)count, (long long)most);
    return KGEN_OK;
}

/* Of a gather, cu_seqlens says how many sequences there are; of rows with ranges nothing does,
 * and the table has those that `requests` names. */
static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    const kgen_indexer_spec *s = &spec->indexer;
    if (s->op == KGEN_INDEX_GATHER) {
        NEED(size[SIZE_ENDS] >= 1, "cu_seqlens: shape[0]=0, one more than there are sequences");
        size[SIZE_S] = size[SIZE_ENDS] - 1;
    }
    if (s->op == KGEN_INDEX_TOPK && s->ranges) size[SIZE_S] = 0;
    KGEN_TRY(check_most("seq_lens: shape[0]", size[SIZE_S], MOST_ROWS, err));
    KGEN_TRY(check_most(s->op == KGEN_INDEX_WRITE  ? "slots: shape[0]"
                        : s->op == KGEN_INDEX_TOPK ? "logits: shape[0]"
                                                   : "q: shape[0]",
                        size[SIZE_T], MOST_ROWS, err));
    return check_most("keys: shape[0]", size[SIZE_R], MOST_ROWS, err);
}

static const kgen__args_rows args_rows = {ARGS_ROWS, .places = places, .derive = derive};

static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    (void)spec;
    return &args_rows;
}

/* --- checks that rows can not say ----------------------------------------------- */

static kgen_status check_pages(int64_t page, int64_t pages, const kgen_indexer_spec *s,
                               kgen_error *err) {
    if (s->page != KGEN_PAGE_X16)
        NEED(page == s->page, "cache: pages of %lld tokens, kernel built for page=%d",
             (long long)page, s->page);
    NEED(s->page != KGEN_PAGE_X16 || (page >= 16 && page % 16 == 0 && page <= 65536),
         "cache: pages of %lld tokens, a multiple of 16 up to 65536 expected", (long long)page);
    NEED(pages <= INT32_MAX / page, "cache: %lld pages of %lld tokens, at most 2^31-1 slots",
         (long long)pages, (long long)page);
    return KGEN_OK;
}

static kgen_status check_pool(const kgen_indexer_args *a, const kgen_indexer_spec *s,
                              kgen_error *err) {
    if (s->op != KGEN_INDEX_WRITE && s->op != KGEN_INDEX_GATHER && s->op != KGEN_INDEX_DECODE)
        return KGEN_OK;
    KGEN_TRY(check_pages(a->cache.shape[1], a->cache.shape[0], s, err));
    if (s->op != KGEN_INDEX_WRITE) return KGEN_OK;
    KGEN_TRY(kgen__check_distinct("cache", &a->cache, err));
    KGEN_TRY(kgen__check_distinct("scales", &a->scales, err));
    KGEN_TRY(kgen__check_apart("k", &a->k, "cache", &a->cache, err));
    return kgen__check_apart("k", &a->k, "scales", &a->scales, err);
}

/* Tokens of sequences; of top-k, where lengths say what a row has. */
static kgen_status check_tokens(const int64_t *size, const kgen_indexer_spec *s, kgen_error *err) {
    int whole = s->op == KGEN_INDEX_DECODE || (s->op == KGEN_INDEX_TOPK && !s->ranges);
    int64_t want = size[SIZE_S] * s->q_tokens;
    KGEN_TRY(check_most("logits: shape[1]", size[SIZE_L], MOST_COLUMNS, err));
    NEED(!whole || size[SIZE_T] == want,
         "%s: shape[0]=%lld tokens, t=%d of %lld sequences are %lld",
         s->op == KGEN_INDEX_TOPK ? "logits" : "q", (long long)size[SIZE_T], s->q_tokens,
         (long long)size[SIZE_S], (long long)want);
    NEED(s->op != KGEN_INDEX_PREFILL || size[SIZE_L] >= size[SIZE_R],
         "logits: shape[1]=%lld columns, at least %lld keys", (long long)size[SIZE_L],
         (long long)size[SIZE_R]);
    return KGEN_OK;
}

/* --- packing ---------------------------------------------------------------------- */

static int at_least_0(int64_t size) { return size < 0 ? 0 : (int)size; }

static void pack_numbers(device_args *d, const kgen_indexer_spec *s, const kgen_indexer_args *a,
                         const int64_t *size) {
    int64_t page = a->cache.data ? a->cache.shape[1] : s->page ? s->page : 1;
    d->tokens = at_least_0(size[SIZE_T]);
    d->seqs = at_least_0(size[SIZE_S]);
    d->rows = at_least_0(size[SIZE_R]);
    d->pages = at_least_0(size[SIZE_NB]);
    d->columns = at_least_0(size[SIZE_PAGES]);
    d->table_rows = a->block_table.data ? (int)a->block_table.shape[0] : 0;
    d->width = at_least_0(size[SIZE_L]);
    d->chosen = at_least_0(size[SIZE_K]);
    d->page = (int)page;
    d->by_page = kgen__divisor(page);
}

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Chunks of columns: as few as leave each workgroup that the device holds an item, for an
 * item begins with bringing its queries into LDS. `most` of them at once. */
static kgen_status cut_logits(device_args *d, uint32_t *grid, const kgen_kernel *kernel,
                              kgen_error *err) {
    enum { CHUNK = 2048, ITEMS = 2 };
    const kgen_indexer_spec *s = &kernel->spec.indexer;
    int64_t step = kgen__indexer_group_keys(s, kernel->ctx->target), resident = *grid;
    int64_t tokens = s->op == KGEN_INDEX_DECODE ? s->q_tokens : d->tokens;
    int64_t parts = (tokens + s->together - 1) / s->together;
    int64_t blocks = s->op == KGEN_INDEX_DECODE ? parts * d->seqs : parts;
    int64_t chunk = round_up(blocks * d->width / (ITEMS * (resident > 0 ? resident : 1)) + 1, step);
    int64_t most = round_up(CHUNK, step);
    if (chunk > most) chunk = most;
    int64_t chunks = (d->width + chunk - 1) / chunk, items = chunks * blocks;
    NEED(items <= INT32_MAX, "logits: %d tokens of %d columns, %lld pieces of work, at most 2^31-1",
         d->tokens, d->width, (long long)items);
    d->blocks = (int)blocks;
    d->chunk = (int)chunk;
    d->items = (int)items;
    d->by_blocks = kgen__divisor(blocks > 0 ? blocks : 1);
    *grid = (uint32_t)(items < resident ? items : resident);
    d->groups = (int)*grid;
    return KGEN_OK;
}

static kgen_status count_groups(device_args *d, uint32_t *grid, const kgen_kernel *kernel,
                                kgen_error *err) {
    const kgen_indexer_spec *s = &kernel->spec.indexer;
    int64_t lanes = s->head_dim / KG_INDEX_PIECE;
    int64_t group = (int64_t)s->waves * kernel->ctx->target->wave_size;
    if (s->op == KGEN_INDEX_DECODE || s->op == KGEN_INDEX_PREFILL)
        return cut_logits(d, grid, kernel, err);
    int64_t rows = s->op == KGEN_INDEX_GATHER ? d->rows : d->tokens;
    if (s->op == KGEN_INDEX_TOPK && !d->chosen) rows = 0;
    *grid = (uint32_t)(s->op == KGEN_INDEX_TOPK ? rows : (rows * lanes + group - 1) / group);
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_indexer_spec *s = &kernel->spec.indexer;
    const kgen_indexer_args *a = args->indexer;
    device_args *d = packed;
    int64_t size[KGEN__SIZES_MAX];
    KGEN_TRY(kgen__args_take(d, size, &kernel->binding, &kernel->spec, a, err));
    KGEN_TRY(check_pool(a, s, err));
    KGEN_TRY(check_tokens(size, s, err));
    pack_numbers(d, s, a, size);
    return count_groups(d, grid, kernel, err);
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    (void)kernel, (void)args, (void)err;
    *bytes = 0;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_indexer = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .workspace_bytes = workspace_bytes,
    .pack = pack,
};

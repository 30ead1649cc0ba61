/* Launches of the scatter family: arguments against spec, the packed argument
 * struct, grids from capacities. Nothing here allocates, locks or waits. */
#include <string.h>

#include "gen/scatter.h"
#include "templates/kg/scatter/scatter_packed.h"
#include "checks.h"
#include "launch.h"
#include "scatter_pools.h"

typedef struct kg_scatter_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

#define FAMILY scatter
#define SPEC kgen_scatter_spec
#define ARGS kgen_scatter_args
#define ARGS_DEF <kgen/scatter_args.def>
#define ROWS_OF_OPS
#include "args_table.h"

/* --- the rows of each op --------------------------------------------------- */

#define TO(name) (offsetof(device_args, name) + 1)

/* Every op has live and error. */
#define KGEN_OP_ARGS(ID, op)                                                                 \
    static const kgen__row op##_rows[] = {                                                   \
        KGEN__ROW("live", live, 0, TO(live), 0, FIXED(I32), NO_TAG, (ONE), 0, ALWAYS, IN,    \
                  OPTIONAL, "rows n >= live[0] are padding")                                 \
            KGEN__ROW("error", error, 0, TO(error), 0, FIXED(I32), NO_TAG, (ONE), 0, ALWAYS, \
                      INOUT, OPTIONAL | APART, "bits of kgen_scatter_error are added")
#define KGEN_TENSOR(op, field, ...) KGEN__ROW(#field, op.field, 0, TO(field), 0, __VA_ARGS__)
#define KGEN_FORM(op, field, ...) \
    KGEN__ROW(#field, op.field, 0, TO(field), KGEN__ROW_FORM, __VA_ARGS__)
#define KGEN_OP_END(ID, op) \
    }                       \
    ;
#include ARGS_DEF

#define KGEN_OP_ARGS(ID, op) static const kgen__number_row op##_numbers[] = {
#define KGEN_NUMBER(op, field, type, when, rule, doc) \
    {#field, #type, doc, offsetof(ARGS, op.field), sizeof(type), when, rule, TO(field)},
#define KGEN_OP_END(ID, op)             \
    {NULL, NULL, NULL, 0, 0, 0, ANY, 0} \
    }                                   \
    ;
#include ARGS_DEF

/* Strides of the tensors that have some, by rank. */
static const struct {
    size_t pointer;
    int rank;
    size_t strides[3];
} steps[] = {
    {TO(table), 2, {TO(table_row)}},
    {TO(block_table), 2, {TO(block_table_row)}},
    {TO(accept_index), 2, {TO(accept_index_row)}},
    {TO(sources), 2, {TO(sources_row)}},
    {TO(tokens_in), 2, {TO(tokens_in_row)}},
    {TO(words), 2, {TO(words_row)}},
    {TO(req_to_token), 2, {TO(req_to_token_row)}},
    {TO(table), 3, {TO(table_step), TO(table_row)}},
    {TO(swa_table), 2, {TO(swa_table_row)}},
    {TO(indices), 2, {TO(indices_step)}},
    {TO(step_lens), 2, {TO(step_lens_step)}},
    {TO(kv_indptr), 2, {TO(kv_indptr_step)}},
    {TO(positions_out), 2, {TO(positions_out_step)}},
    {TO(selected), 2, {TO(selected_row)}},
    {TO(parents), 2, {TO(parents_row)}},
    {TO(tree_index), 2, {TO(tree_index_row)}},
    {TO(next_token), 2, {TO(next_token_row)}},
    {TO(next_sibling), 2, {TO(next_sibling_row)}},
    {TO(mask), 3, {TO(mask_row), TO(mask_step)}},
    {TO(mask_out), 3, {TO(mask_out_row), TO(mask_out_step)}},
    {TO(mask), 2, {TO(mask_row)}},
    {TO(mask_out), 2, {TO(mask_out_row)}},
    {TO(targets_in), 2, {TO(targets_in_row)}},
    {TO(probs), 2, {TO(probs_row)}},
    {TO(draft_probs), 2, {TO(draft_probs_row)}},
    {TO(noise), 2, {TO(noise_row)}},
    {TO(probs), 3, {TO(probs_row), TO(probs_step)}},
    {TO(coins), 2, {TO(coins_row)}},
    {TO(predicts), 2, {TO(predicts_row)}},
    {TO(targets), 2, {TO(targets_row)}},
    {TO(step_starts), 2, {TO(step_starts_step)}},
    {TO(pairs), 2, {TO(pairs_row)}},
    {TO(rows_in), 2, {TO(rows_in_row)}},
    {TO(rows_out), 2, {TO(rows_out_row)}},
};

static kgen__place place_of(const kgen__row *row) {
    kgen__place place = {.pointer = row->pointer};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i].pointer == row->pointer && steps[i].rank == row->rank)
            memcpy(place.strides, steps[i].strides, sizeof place.strides);
    return place;
}

/* --- sizes ------------------------------------------------------------------- */

static void counted(int64_t *size, const void *packed) {
    const device_args *d = packed;
    size[SIZE_D] = d->tokens;
    size[SIZE_D1] = d->tokens - 1;
    size[SIZE_S] = d->steps;
    size[SIZE_K] = d->topk;
    size[SIZE_G] = d->groups;
}

/* Sizes that follow from how many rows there are. */
static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    int64_t rows = size[SIZE_N];
    (void)spec, (void)err;
    size[SIZE_N1] = rows + 1;
    size[SIZE_ND] = rows * size[SIZE_D];
    size[SIZE_NK] = rows * size[SIZE_K];
    size[SIZE_NK1] = rows * size[SIZE_K] + 1;
    size[SIZE_NG] = rows * size[SIZE_G];
    return KGEN_OK;
}

static const kgen__args_rows op_rows[] = {
    [0] = {.conditions = conditions_of},
#define KGEN_OP(ID, number, op)                                                   \
    [number] = {.args_bytes = sizeof(ARGS),                                       \
                .sizes = size_rows,                                               \
                .whens = when_texts,                                              \
                .rows = op##_rows,                                                \
                .numbers = op##_numbers,                                          \
                .size_count = SIZES,                                              \
                .when_count = WHENS,                                              \
                .row_count = sizeof op##_rows / sizeof op##_rows[0],              \
                .number_count = sizeof op##_numbers / sizeof op##_numbers[0] - 1, \
                .conditions = conditions_of,                                      \
                .given = given_sizes,                                             \
                .counted = counted,                                               \
                .place_of = place_of,                                             \
                .forward = 1,                                                     \
                .derive = derive},
#include <kgen/scatter_ops.def>
};

/* Of no op: no rows. */
static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    size_t op = (size_t)spec->scatter.op;
    return &op_rows[op < sizeof op_rows / sizeof op_rows[0] ? op : 0];
}

/* --- checks that rows can not say ---------------------------------------------- */

static kgen_status check_prepare(const device_args *d, const kgen_scatter_spec *s,
                                 const int64_t *size, kgen_error *err) {
    int64_t needed = size[SIZE_ND], have = size[SIZE_T];
    NEED(d->pad_len >= d->tokens, "pad_len=%lld: at least tokens=%d, or a padded row sees no key",
         d->pad_len, d->tokens);
    NEED(s->ragged || have < 0 || have >= needed,
         "%s: shape[0]=%lld, %lld rows of tokens=%d need %lld", s->locs ? "locs" : "positions_out",
         (long long)have, (long long)size[SIZE_N], d->tokens, (long long)needed);
    return KGEN_OK;
}

static kgen_status check_lens(const device_args *d, const kgen_scatter_spec *s, kgen_error *err) {
    int32_t least = s->sliced ? 1 : d->tokens;
    NEED(d->pad_len >= least, "pad_len=%lld: at least %d, or a padded row sees no key", d->pad_len,
         least);
    return KGEN_OK;
}

/* Flat outputs whose size follows from the rows. */
static kgen_status check_flat(const device_args *d, const kgen_scatter_spec *s, const int64_t *size,
                              kgen_error *err) {
    int64_t rows_in = size[SIZE_N], have = size[SIZE_T], needed = have;
    if (s->op == KGEN_OP_ACCEPT_LOCS)
        needed = rows_in * size[SIZE_COLUMNS];
    else if (s->form == KGEN_FORM_UNIFORM)
        needed = rows_in * d->tokens;
    else if (s->form == KGEN_FORM_DRAFT)
        needed = rows_in * d->topk * d->steps;
    else if (s->form == KGEN_FORM_LAST)
        needed = rows_in;
    NEED(have == needed, "locs: shape[0]=%lld, %lld expected", (long long)have, (long long)needed);
    return KGEN_OK;
}

static kgen_status check_words(const device_args *d, const kgen_scatter_spec *s, kgen_error *err) {
    int32_t bits = 8 * kgen_dtype_size((kgen_dtype)s->word);
    int words = s->op == KGEN_OP_TREE_MASK || s->mask == KGEN_MASK_WORDS;
    NEED(!words || d->tokens <= bits, "tokens=%d: words of %d bits hold at most %d", d->tokens,
         bits, bits);
    return KGEN_OK;
}

static kgen_status check_verify(const device_args *d, const int64_t *size, kgen_error *err) {
    NEED(!d->next_token == !d->next_sibling,
         "%s: no data, but %s has; a tree has both, a chain none",
         d->next_token ? "next_sibling" : "next_token",
         d->next_token ? "next_token" : "next_sibling");
    NEED(size[SIZE_COLUMNS] >= 1, "accept_index: shape[1]=%lld, at least 1",
         (long long)size[SIZE_COLUMNS]);
    return KGEN_OK;
}

static kgen_status check_move(const device_args *d, const kgen_scatter_spec *s, kgen_error *err) {
    const long long bytes[] = {d->page_bytes, d->token_bytes, d->piece_bytes, d->piece_stride,
                               d->group_bytes};
    static const char *const names[] = {"page_bytes", "token_bytes", "piece_bytes", "piece_stride",
                                        "group_bytes"};
    for (int i = 0; i < 5; i++)
        NEED(bytes[i] % s->unit == 0, "%s=%lld: not a multiple of unit=%d", names[i], bytes[i],
             s->unit);
    return KGEN_OK;
}

/* Units are loaded whole. */
static kgen_status check_units(const kgen_tensor *in, const kgen_tensor *out, int32_t unit,
                               kgen_error *err) {
    NEED(in->shape[1] % unit == 0, "rows_in: shape[1]=%lld: not a multiple of unit=%d",
         (long long)in->shape[1], unit);
    KGEN_TRY(kgen__check_alignment("rows_in", in, 1, unit, err));
    return kgen__check_alignment("rows_out", out, 1, unit, err);
}

/* Pages of one cache, or of two that share nothing. */
static kgen_status check_caches(const kgen_copy_pages_args *a, kgen_error *err) {
    const kgen_tensor *in = &a->rows_in, *out = &a->rows_out;
    int same = in->data == out->data && in->stride[0] == out->stride[0];
    if (!same) KGEN_TRY(kgen__check_apart("rows_in", in, "rows_out", out, err));
    return kgen__check_apart("pairs", &a->pairs, "rows_out", out, err);
}

static kgen_status check_bytes(const kgen_scatter_args *a, const kgen_scatter_spec *s,
                               kgen_error *err) {
    if (s->op == KGEN_OP_GATHER_ROWS)
        return check_units(&a->gather_rows.rows_in, &a->gather_rows.rows_out, s->unit, err);
    if (s->op == KGEN_OP_COPY_PAGES) KGEN_TRY(check_caches(&a->copy_pages, err));
    if (s->op == KGEN_OP_COPY_PAGES)
        return check_units(&a->copy_pages.rows_in, &a->copy_pages.rows_out, s->unit, err);
    return KGEN_OK;
}

static kgen_status check_rest(const device_args *d, const kgen_scatter_spec *s, const int64_t *size,
                              kgen_error *err) {
    switch ((kgen_scatter_op)s->op) {
    case KGEN_OP_SPEC_PREPARE:
        return check_prepare(d, s, size, err);
    case KGEN_OP_DRAFT_LENS:
        return check_lens(d, s, err);
    case KGEN_OP_CACHE_LOCS:
    case KGEN_OP_ASSIGN_LOCS:
    case KGEN_OP_ACCEPT_LOCS:
        return check_flat(d, s, size, err);
    case KGEN_OP_SLOT_MAPPING:
        NEED(d->cp_rank < d->cp_size, "cp_rank=%d: below cp_size=%d", d->cp_rank, d->cp_size);
        return KGEN_OK;
    case KGEN_OP_TREE_BUILD:
    case KGEN_OP_TREE_FROM_MASK:
    case KGEN_OP_TREE_MASK:
        return check_words(d, s, err);
    case KGEN_OP_TREE_VERIFY:
        return check_verify(d, size, err);
    case KGEN_OP_KV_COMPACT:
        return check_move(d, s, err);
    case KGEN_OP_REJECT:
        NEED(!d->greedy || d->targets_in, "targets_in: no data, but greedy has");
        NEED(size[SIZE_COLUMNS] >= 1, "predicts: shape[1]=%lld, at least 1",
             (long long)size[SIZE_COLUMNS]);
        return KGEN_OK;
    default:
        return KGEN_OK;
    }
}

/* --- pack ---------------------------------------------------------------- */

static void pack_sizes(device_args *d, const int64_t *found) {
    int64_t size[SIZES];
    for (int i = 0; i < SIZES; i++) size[i] = found[i] < 0 ? 0 : found[i];
    d->rows = (int)size[SIZE_N];
    d->request_rows = size[SIZE_R];
    d->row_columns = size[SIZE_C];
    d->map_size = size[SIZE_M];
    d->width = size[SIZE_W];
    d->swa_width = size[SIZE_W2];
    d->flat = size[SIZE_F];
    d->capacity = size[SIZE_T];
    d->accept_width = (int)size[SIZE_COLUMNS];
    d->parents_width = (int)size[SIZE_PW];
    d->move_width = (int)size[SIZE_MOVES];
    d->pool_count = (int)size[SIZE_POOLS];
    d->rows_in_count = size[SIZE_RI];
    d->rows_out_count = found[SIZE_RO] < 0 ? d->rows : size[SIZE_RO];
    d->row_bytes = size[SIZE_RB];
    if (size[SIZE_V]) d->vocab = (int)size[SIZE_V];
}

/* Bytes; INT64_MAX where they do not fit. */
static int64_t further(int64_t at, int64_t n, int64_t step) {
    int64_t bytes;
    if (__builtin_mul_overflow(n, step, &bytes) || __builtin_add_overflow(at, bytes, &at))
        return INT64_MAX;
    return at;
}

/* From a page's first byte to the farthest of its slots 0 .. last. */
static int64_t inside_page(const kgen_scatter_spec *s, const kgen_kv_compact_args *a,
                           int64_t last) {
    if (s->pack == 1) return further(0, last, a->token_bytes);
    int64_t group = last / s->pack, at = further(0, group, a->group_bytes);
    int64_t here = further(at, last % s->pack, a->token_bytes);
    int64_t before = further(at - a->group_bytes, s->pack - 1, a->token_bytes);
    return group > 0 && before > here ? before : here;
}

/* Where a pool may begin at most, so that its last slot is inside. */
static int64_t pool_room(const kgen_scatter_spec *s, const kgen_kv_compact_args *a) {
    int64_t last = a->slot_count - 1, page = last / s->page;
    if (!a->pool.data || last < 0) return INT64_MAX;
    int64_t end = further(inside_page(s, a, last % s->page), page, a->page_bytes);
    int64_t whole = page ? further(inside_page(s, a, s->page - 1), page - 1, a->page_bytes) : 0;
    if (whole > end) end = whole;
    end = further(further(end, a->pieces - 1, a->piece_stride), 1, a->piece_bytes);
    return a->pool.shape[0] >= end ? a->pool.shape[0] - end : -1;
}

/* --- grid ------------------------------------------------------------------ */

enum { LANES = KGEN__SCATTER_LANES, TILE = LANES * KG_SCATTER_CELLS };

/* Workgroups of one row whose length only the device knows, at most. */
enum { ROW_TILES = 32 };

static int64_t tiles_of(int64_t columns, int64_t each) {
    return columns > 0 ? (columns + each - 1) / each : 1;
}

static int64_t prepare_groups(device_args *d, const kgen_scatter_spec *s) {
    int64_t tokens = 0, tables = 0;
    if (s->locs || s->pos) tokens = s->ragged ? d->rows + 1 : tiles_of(d->capacity, LANES);
    if (s->pages) tables = s->delta ? d->rows : (int64_t)d->rows * d->tiles;
    d->token_groups = tokens > INT32_MAX ? INT32_MAX : (int)tokens;
    return 1 + tokens + tables;
}

/* Workgroups of a row, and of a launch. */
static int64_t count_tiles(const device_args *d, const kgen_scatter_spec *s) {
    int64_t wide = d->width > d->swa_width ? d->width : d->swa_width;
    int64_t most = tiles_of(d->row_columns, TILE);
    if (s->op == KGEN_OP_KV_COMPACT) return tiles_of(d->piece_bytes / s->unit * d->pieces, LANES);
    if (s->op == KGEN_OP_GATHER_ROWS || s->op == KGEN_OP_COPY_PAGES)
        return tiles_of(d->row_bytes / s->unit, LANES);
    if (s->op != KGEN_OP_KV_INDICES && s->op != KGEN_OP_DRAFT_KV_INDICES)
        return tiles_of(wide, TILE);
    return most > ROW_TILES ? ROW_TILES : most;
}

static int64_t count_groups(device_args *d, const kgen_scatter_spec *s) {
    int64_t n = d->rows, tiles = count_tiles(d, s);
    d->tiles = tiles > INT32_MAX ? INT32_MAX : (int)tiles;
    switch ((kgen_scatter_op)s->op) {
    case KGEN_OP_SPEC_PREPARE:
        return prepare_groups(d, s);
    case KGEN_OP_PAGE_TABLE_RAGGED:
    case KGEN_OP_PAGE_TABLE_REQUESTS:
        return n * tiles;
    case KGEN_OP_DRAFT_PAGE_TABLE:
        return n * d->topk * d->steps * tiles;
    case KGEN_OP_DRAFT_KV_INDICES:
        return 1 + n * d->topk * tiles;
    case KGEN_OP_KV_INDICES:
        return 1 + n * tiles;
    case KGEN_OP_SLOT_MAPPING:
    case KGEN_OP_CACHE_LOCS:
        return n + 1;
    case KGEN_OP_ASSIGN_LOCS:
    case KGEN_OP_TREE_BUILD:
    case KGEN_OP_TREE_FROM_MASK:
    case KGEN_OP_TREE_MASK:
    case KGEN_OP_TREE_VERIFY:
    case KGEN_OP_REJECT:
        return n;
    case KGEN_OP_KV_COMPACT:
        return n * d->pool_count * tiles;
    case KGEN_OP_GATHER_ROWS:
    case KGEN_OP_COPY_PAGES:
        return n * tiles;
    case KGEN_OP_CHUNK_CONTEXT:
        return d->steps;
    case KGEN_OP_WINDOW_LENS:
    case KGEN_OP_ACCEPT_LOCS:
    case KGEN_OP_KEEP_LOCS:
    case KGEN_OP_KV_SPLITS:
        return 1;
    default:
        return tiles_of(n, LANES);
    }
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    (void)kernel, (void)args, (void)err;
    *bytes = 0;
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_scatter_spec *s = &kernel->spec.scatter;
    const kgen_scatter_args *a = args->scatter;
    device_args *d = packed;
    int64_t size[KGEN__SIZES_MAX];
    NEED((int32_t)a->op == s->op, "args: op %d, kernel built for op=%s", (int)a->op,
         kgen__scatter_op_name(s));
    KGEN_TRY(kgen__args_take(d, size, &kernel->binding, &kernel->spec, a, err));
    pack_sizes(d, size);
    if (s->op == KGEN_OP_TREE_VERIFY && d->threshold_acc < 1e-9f) d->threshold_acc = 1e-9f;
    if (s->op == KGEN_OP_KV_COMPACT) d->pool_room = pool_room(s, &a->kv_compact);
    KGEN_TRY(check_rest(d, s, size, err));
    KGEN_TRY(check_bytes(a, s, err));
    int64_t groups = count_groups(d, s);
    NEED(groups <= INT32_MAX, "op=%s: %d rows need %lld workgroups, at most 2^31-1",
         kgen__scatter_op_name(s), d->rows, (long long)groups);
    *grid = (uint32_t)groups;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_scatter = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .workspace_bytes = workspace_bytes,
    .pack = pack,
    .addresses = kgen__scatter_addresses,
};

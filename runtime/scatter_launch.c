/* Launches of the scatter family: arguments against spec, the packed argument
 * struct, grids from capacities. Nothing here allocates, locks or waits. */
#include <stddef.h>
#include <string.h>

#include "gen/scatter.h"
#include "templates/kg/scatter/scatter_packed.h"
#include "checks.h"
#include "launch.h"

typedef struct kg_scatter_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

/* --- what a spec asks for ------------------------------------------------ */

#define OP(name) (1u << KGEN_OP_##name)
#define ANY_OP (~0u)

/* Conditions; a row of the table below holds when all of its own do. */
enum {
    SWA = 1 << 0,
    STARTS = 1 << 1,
    UNALIGNED = 1 << 2,
    RAGGED = 1 << 3,
    ACCEPT = 1 << 4,
    SEQ = 1 << 5,
    QO = 1 << 6,
    KV = 1 << 7,
    PAGES = 1 << 8,
    LOCS = 1 << 9,
    POS = 1 << 10,
    DELTA = 1 << 11,
    SLOTS = 1 << 12, /* slots are read */
    READS_STARTS = 1 << 13,
    READS_LENS = 1 << 14,
    GREEDY = 1 << 15,
    SAMPLING = 1 << 16,
    WORDS = 1 << 17,
    QLEN = 1 << 18,
    FULL = 1 << 19,
};

static int32_t when(int condition, int32_t yes, int32_t no) { return condition ? yes : no; }

static int32_t conditions_of(const kgen_scatter_spec *s) {
    static const int32_t masks[] = {WORDS, QLEN, FULL};
    int prepare = s->op == KGEN_OP_SPEC_PREPARE;
    int uniform = s->form == KGEN_FORM_UNIFORM, ragged = s->form == KGEN_FORM_RAGGED;
    return when(s->swa, SWA, 0) | when(s->starts, STARTS, 0) | when(s->unaligned, UNALIGNED, 0) |
           when(s->ragged, RAGGED, 0) | when(s->accept, ACCEPT, 0) | when(s->seq, SEQ, 0) |
           when(s->qo, QO, 0) | when(s->kv, KV, 0) | when(s->pages, PAGES, 0) |
           when(s->locs, LOCS, 0) | when(s->pos, POS, 0) | when(s->delta, DELTA, 0) |
           when(!prepare || s->pages || s->locs, SLOTS, 0) |
           when(uniform || ragged, READS_STARTS, 0) | when(uniform, 0, READS_LENS) |
           when(s->sampling, SAMPLING, GREEDY) | masks[s->mask];
}

typedef enum type_id {
    LEN,
    REQ,
    SLOT,
    MAP,
    TABLE,
    OUT,
    LOC,
    TOKEN,
    LINK,
    WORD,
    I32,
    I64,
    U8,
    F32,
    TYPES
} type_id;

/* Sizes of dimensions. Those below DEFINED are what the first tensor that has
 * one says, those below DERIVED follow from the arguments, the rest from both. */
typedef enum size_id {
    N,
    R,
    C,
    M,
    W,
    W2,
    F,
    T,
    BYTES,
    COLUMNS,
    PW,
    MOVES,
    POOLS,
    V,
    DEFINED,
    ONE = DEFINED,
    TWO,
    THREE,
    D,
    D1,
    S,
    DERIVED,
    N1 = DERIVED,
    ND,
    NK,
    NK1,
    NG,
    SIZES,
    LEAST = 0x40, /* at least as many */
} size_id;

typedef struct wanted {
    uint32_t op;
    int32_t conditions;
    kgen_dtype type[TYPES];
    int64_t size[SIZES];
} wanted;

static kgen_dtype wide(int32_t i64) { return i64 ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32; }

static void want(wanted *w, const kgen_scatter_spec *s, const kgen_scatter_args *a) {
    const kgen_dtype types[TYPES] = {
        [LEN] = wide(s->len),         [REQ] = wide(s->req),     [SLOT] = wide(s->slot),
        [MAP] = wide(s->map),         [TABLE] = wide(s->table), [OUT] = wide(s->out),
        [LOC] = wide(s->loc),         [TOKEN] = wide(s->token), [LINK] = wide(s->link),
        [WORD] = (kgen_dtype)s->word, [I32] = KGEN_DTYPE_I32,   [I64] = KGEN_DTYPE_I64,
        [U8] = KGEN_DTYPE_U8,         [F32] = KGEN_DTYPE_F32};
    w->op = 1u << s->op;
    w->conditions = conditions_of(s);
    memcpy(w->type, types, sizeof types);
    for (int i = 0; i < SIZES; i++) w->size[i] = -1;
    w->size[ONE] = 1;
    w->size[TWO] = 2;
    w->size[THREE] = 3;
    w->size[D] = a->tokens;
    w->size[D1] = a->tokens - 1;
    w->size[S] = a->steps;
}

/* Sizes that follow from how many rows there are. */
static void derive(wanted *w, const kgen_scatter_args *a) {
    int64_t rows = w->size[N];
    w->size[N1] = rows + 1;
    w->size[ND] = rows * a->tokens;
    w->size[NK] = rows * a->topk;
    w->size[NK1] = rows * a->topk + 1;
    w->size[NG] = rows * a->groups;
}

/* --- the tensors --------------------------------------------------------- */

enum { OPTIONAL = 1, WRITTEN = 2, DENSE = 4 };

/* A tensor and where it goes: its first strides are the caller's, the last
 * dimension is contiguous. Those with N rows come before those of N + 1. */
typedef struct row {
    const char *name;
    size_t offset, pointer;
    uint32_t ops;
    int32_t conditions;
    type_id type;
    int32_t rank, flags;
    uint8_t dims[3];
    size_t strides[2];
} row;

#define TENSOR(name) #name, offsetof(kgen_scatter_args, name), offsetof(device_args, name)
#define TO(name) offsetof(device_args, name)

enum {
    REQUESTS = OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE) | OP(DRAFT_PAGE_TABLE) |
               OP(DRAFT_KV_INDICES) | OP(KV_INDICES) | OP(CACHE_LOCS) | OP(ASSIGN_LOCS),
    PAGE_TABLES = OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE),
    LENGTHS = OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE) | OP(DRAFT_PAGE_TABLE) |
              OP(DRAFT_KV_INDICES) | OP(KV_INDICES) | OP(DRAFT_LENS) | OP(EAGLE_STEP) |
              OP(KEEP_LOCS) | OP(EVICT_MASK) | OP(KV_SPLITS) | OP(TREE_BUILD) | OP(TREE_FROM_MASK),
    BUILDS = OP(TREE_BUILD) | OP(TREE_FROM_MASK),
};

/* clang-format off */
static const row rows[] = {
    {TENSOR(live), ANY_OP, 0, I32, 1, OPTIONAL, {ONE}, {0}},
    {TENSOR(error), ANY_OP, 0, I32, 1, OPTIONAL | WRITTEN, {ONE}, {0}},
    /* N is what the first of these says */
    {TENSOR(lens), LENGTHS, 0, LEN, 1, 0, {N}, {0}},
    {TENSOR(requests), REQUESTS, SLOTS, REQ, 1, 0, {N}, {0}},
    {TENSOR(lens), OP(CACHE_LOCS) | OP(ASSIGN_LOCS), READS_LENS, LEN, 1, 0, {N}, {0}},
    {TENSOR(table), OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE), PAGES,
     TABLE, 2, WRITTEN, {N, W}, {TO(table_row)}},
    {TENSOR(block_table), OP(SLOT_MAPPING) | OP(EAGLE_STEP), 0, SLOT, 2, 0, {N, W},
     {TO(block_table_row)}},
    {TENSOR(accept_index), OP(ACCEPT_LOCS), 0, OUT, 2, 0, {N, COLUMNS}, {TO(accept_index_row)}},
    {TENSOR(sources), OP(KV_COMPACT), 0, LOC, 2, 0, {N, MOVES}, {TO(sources_row)}},
    {TENSOR(draft_ends), OP(PADDED_INPUTS), 0, LEN, 1, 0, {N}, {0}},
    {TENSOR(tokens_in), OP(NEXT_TOKEN) | OP(BONUS_TOKENS) | OP(TREE_VERIFY), 0, TOKEN, 2, 0,
     {N, D}, {TO(tokens_in_row)}},
    {TENSOR(words), OP(TREE_BUILD) | OP(TREE_MASK), 0, WORD, 2, WRITTEN, {N, D}, {TO(words_row)}},
    {TENSOR(words), OP(TREE_FROM_MASK), WORDS, WORD, 2, 0, {N, D}, {TO(words_row)}},
    /* who and where */
    {TENSOR(lens), OP(TREE_MASK), FULL, LEN, 1, 0, {N}, {0}},
    {TENSOR(starts), OP(PAGE_TABLE_REQUESTS) | OP(KV_INDICES), STARTS, LEN, 1, 0, {N}, {0}},
    {TENSOR(starts), OP(CACHE_LOCS) | OP(ASSIGN_LOCS), READS_STARTS, LEN, 1, 0, {N}, {0}},
    {TENSOR(valid), OP(DRAFT_LENS), 0, LEN, 1, 0, {N}, {0}},
    {TENSOR(q_lens), OP(SPEC_PREPARE), RAGGED, LEN, 1, 0, {N}, {0}},
    {TENSOR(accepted), OP(SPEC_PREPARE), ACCEPT, I32, 1, 0, {N}, {0}},
    {TENSOR(accepted), OP(DRAFT_LENS) | OP(PADDED_INPUTS) | OP(BONUS_TOKENS) | OP(KEEP_LOCS), 0,
     I32, 1, 0, {N}, {0}},
    {TENSOR(extends), OP(DRAFT_LENS), 0, I32, 1, OPTIONAL, {ONE}, {0}},
    {TENSOR(req_to_token), REQUESTS & ~OP(ASSIGN_LOCS), SLOTS, SLOT, 2, 0, {R, C},
     {TO(req_to_token_row)}},
    {TENSOR(req_to_token), OP(ASSIGN_LOCS), 0, SLOT, 2, WRITTEN, {R, C}, {TO(req_to_token_row)}},
    {TENSOR(mapping), PAGE_TABLES | OP(KV_INDICES), SWA, MAP, 1, 0, {M}, {0}},
    {TENSOR(indptr), OP(PAGE_TABLE_RAGGED) | OP(KV_INDICES) | OP(SLOT_MAPPING) |
     OP(PADDED_INPUTS), 0, LEN, 1, 0, {N1}, {0}},
    {TENSOR(slots), OP(PAGE_TABLE_RAGGED), 0, SLOT, 1, 0, {F}, {0}},
    {TENSOR(positions), OP(SLOT_MAPPING), 0, LOC, 1, 0, {T}, {0}},
    {TENSOR(positions), OP(EAGLE_STEP), 0, LOC, 1, 0, {N}, {0}},
    {TENSOR(rejected), OP(SLOT_MAPPING), 0, U8, 1, OPTIONAL, {T}, {0}},
    {TENSOR(ids), OP(SPEC_PREPARE), DELTA, I64, 1, 0, {N}, {0}},
    {TENSOR(state), OP(SPEC_PREPARE), DELTA, I64, 2, WRITTEN | DENSE, {N, THREE}, {0}},
    /* tables and indices */
    {TENSOR(table), OP(DRAFT_PAGE_TABLE), 0, TABLE, 3, WRITTEN, {S, NK, W},
     {TO(table_step), TO(table_row)}},
    {TENSOR(swa_table), PAGE_TABLES, SWA | PAGES, TABLE, 2, WRITTEN, {N, W2},
     {TO(swa_table_row)}},
    {TENSOR(row_offsets), OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS), UNALIGNED, I32, 1,
     WRITTEN, {N}, {0}},
    {TENSOR(indices), OP(KV_INDICES), 0, TABLE, 1, WRITTEN, {F}, {0}},
    {TENSOR(indices), OP(DRAFT_KV_INDICES), 0, TABLE, 2, WRITTEN, {S, F}, {TO(indices_step)}},
    {TENSOR(seq_lens), OP(SPEC_PREPARE), SEQ, OUT, 1, WRITTEN, {N}, {0}},
    {TENSOR(seq_lens), OP(DRAFT_LENS) | OP(EAGLE_STEP), 0, OUT, 1, WRITTEN, {N}, {0}},
    {TENSOR(step_lens), OP(DRAFT_LENS), 0, OUT, 2, WRITTEN, {S, N}, {TO(step_lens_step)}},
    {TENSOR(qo_indptr), OP(SPEC_PREPARE), QO, OUT, 1, WRITTEN, {N1}, {0}},
    {TENSOR(kv_indptr), OP(SPEC_PREPARE), KV, OUT, 1, WRITTEN, {N1}, {0}},
    {TENSOR(kv_indptr), OP(DRAFT_KV_INDICES), 0, OUT, 2, WRITTEN, {S, NK1},
     {TO(kv_indptr_step)}},
    {TENSOR(locs), OP(SPEC_PREPARE), LOCS, LOC, 1, WRITTEN, {T}, {0}},
    {TENSOR(swa_locs), OP(SPEC_PREPARE), LOCS | SWA, LOC, 1, WRITTEN, {T}, {0}},
    {TENSOR(positions_out), OP(SPEC_PREPARE), POS, LOC, 1, WRITTEN, {T}, {0}},
    {TENSOR(positions_out), OP(DRAFT_LENS), 0, LOC, 2, WRITTEN, {S, N},
     {TO(positions_out_step)}},
    {TENSOR(positions_out), OP(EAGLE_STEP), 0, LOC, 1, WRITTEN, {N}, {0}},
    {TENSOR(positions_out), BUILDS, 0, LOC, 1, WRITTEN, {ND}, {0}},
    {TENSOR(locs), OP(CACHE_LOCS) | OP(SLOT_MAPPING), 0, LOC, 1, WRITTEN, {T}, {0}},
    {TENSOR(locs), OP(ASSIGN_LOCS), 0, LOC, 1, 0, {T}, {0}},
    {TENSOR(locs), OP(EAGLE_STEP), 0, LOC, 1, WRITTEN, {N}, {0}},
    {TENSOR(locs), OP(KEEP_LOCS), 0, LOC, 1, WRITTEN, {ND}, {0}},
    {TENSOR(locs), OP(ACCEPT_LOCS), 0, LOC, 1, WRITTEN, {T}, {0}},
    /* after verify */
    {TENSOR(source_locs), OP(ACCEPT_LOCS), 0, LOC, 1, 0, {F}, {0}},
    {TENSOR(source_locs), OP(KEEP_LOCS), 0, LOC, 1, 0, {ND}, {0}},
    {TENSOR(free_locs), OP(KEEP_LOCS), 0, LOC, 1, WRITTEN, {ND}, {0}},
    {TENSOR(counts), OP(PADDED_INPUTS) | OP(NEXT_TOKEN), 0, OUT, 1, WRITTEN, {N}, {0}},
    {TENSOR(counts), OP(ACCEPT_LOCS), 0, OUT, 1, WRITTEN, {ONE}, {0}},
    {TENSOR(counts), OP(KEEP_LOCS), 0, OUT, 1, WRITTEN, {TWO}, {0}},
    {TENSOR(counts), OP(KV_SPLITS), 0, OUT, 1, WRITTEN, {NG}, {0}},
    {TENSOR(sample_index), OP(PADDED_INPUTS), 0, OUT, 1, WRITTEN, {N}, {0}},
    {TENSOR(backup), OP(NEXT_TOKEN), 0, TOKEN, 1, 0, {N}, {0}},
    {TENSOR(discarded), OP(NEXT_TOKEN), 0, U8, 1, OPTIONAL, {N}, {0}},
    {TENSOR(next), OP(NEXT_TOKEN) | OP(BONUS_TOKENS), 0, TOKEN, 1, WRITTEN, {N}, {0}},
    /* trees */
    {TENSOR(selected), OP(TREE_BUILD), 0, LINK, 2, 0, {N, D1}, {TO(selected_row)}},
    {TENSOR(parents), OP(TREE_BUILD), 0, LINK, 2, 0, {N, PW}, {TO(parents_row)}},
    {TENSOR(tree_index), BUILDS, 0, LINK, 2, WRITTEN, {N, D}, {TO(tree_index_row)}},
    {TENSOR(next_token), BUILDS, 0, LINK, 2, WRITTEN, {N, D}, {TO(next_token_row)}},
    {TENSOR(next_sibling), BUILDS, 0, LINK, 2, WRITTEN, {N, D}, {TO(next_sibling_row)}},
    {TENSOR(next_token), OP(TREE_VERIFY), 0, LINK, 2, OPTIONAL, {N, D}, {TO(next_token_row)}},
    {TENSOR(next_sibling), OP(TREE_VERIFY), 0, LINK, 2, OPTIONAL, {N, D},
     {TO(next_sibling_row)}},
    {TENSOR(mask), OP(TREE_FROM_MASK) | OP(TREE_MASK), QLEN, U8, 3, 0, {N, D, D},
     {TO(mask_row), TO(mask_step)}},
    {TENSOR(mask), OP(TREE_MASK), FULL, U8, 1, 0, {F}, {0}},
    {TENSOR(mask_out), OP(TREE_BUILD), QLEN, U8, 3, WRITTEN, {N, D, D},
     {TO(mask_out_row), TO(mask_out_step)}},
    {TENSOR(mask_out), OP(TREE_BUILD), FULL, U8, 1, WRITTEN, {F}, {0}},
    {TENSOR(mask), OP(EVICT_MASK), 0, U8, 2, 0, {N, D}, {TO(mask_row)}},
    {TENSOR(mask_out), OP(EVICT_MASK), 0, U8, 2, WRITTEN, {N, D}, {TO(mask_out_row)}},
    {TENSOR(targets_in), OP(TREE_VERIFY), GREEDY, TOKEN, 2, 0, {N, D}, {TO(targets_in_row)}},
    {TENSOR(probs), OP(TREE_VERIFY), SAMPLING, F32, 3, 0, {N, D, V},
     {TO(probs_row), TO(probs_step)}},
    {TENSOR(coins), OP(TREE_VERIFY), SAMPLING, F32, 2, 0, {N, D}, {TO(coins_row)}},
    {TENSOR(final_coins), OP(TREE_VERIFY), SAMPLING, F32, 1, 0, {N}, {0}},
    {TENSOR(predicts), OP(TREE_VERIFY), 0, OUT, 2, WRITTEN, {N, D}, {TO(predicts_row)}},
    {TENSOR(accept_index), OP(TREE_VERIFY), 0, OUT, 2, WRITTEN, {N, COLUMNS},
     {TO(accept_index_row)}},
    {TENSOR(accept_count), OP(TREE_VERIFY), 0, OUT, 1, WRITTEN, {N}, {0}},
    /* movement */
    {TENSOR(targets), OP(KV_COMPACT), 0, LOC, 2, 0, {N, MOVES}, {TO(targets_row)}},
    {TENSOR(pool), OP(KV_COMPACT), 0, U8, 1, OPTIONAL | WRITTEN, {BYTES}, {0}},
    {TENSOR(pools), OP(KV_COMPACT), 0, I64, 1, 0, {POOLS}, {0}},
};
/* clang-format on */
enum { TABLE_ROWS = sizeof rows / sizeof rows[0] };

/* The words of tree_build are written with mask=words only. */
static int holds(const row *r, const wanted *w) {
    if (!(r->ops & w->op) || (r->conditions & w->conditions) != r->conditions) return 0;
    return strcmp(r->name, "words") != 0 || !(w->op & OP(TREE_BUILD)) || w->conditions & WORDS;
}

/* --- overlap ------------------------------------------------------------- */

typedef struct place {
    const char *name;
    uintptr_t first, end;
    uint64_t row, width; /* bytes, of rank 2 */
    int written;
} place;

enum { PLACES = 40 };

static place place_of(const row *r, const kgen_tensor *t) {
    uint64_t size = (uint64_t)kgen_dtype_size(t->dtype), span = size;
    place p = {.name = r->name, .first = (uintptr_t)t->data, .written = r->flags & WRITTEN};
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] == 0) span = 0;
        if (span) span += (uint64_t)(t->shape[i] - 1) * (uint64_t)t->stride[i] * size;
    }
    p.end = p.first + span;
    if (t->rank == 2) p.row = (uint64_t)t->stride[0] * size;
    p.width = t->rank == 2 ? (uint64_t)t->shape[1] * size : 0;
    return p;
}

/* Two tables may lie beside each other in rows of one allocation. */
static int overlap(const place *a, const place *b) {
    if (a->first >= b->end || b->first >= a->end) return 0;
    if (!a->row || a->row != b->row) return 1;
    const place *low = a->first <= b->first ? a : b, *high = low == a ? b : a;
    uint64_t apart = (high->first - low->first) % a->row;
    return apart < low->width || apart + high->width > a->row;
}

static kgen_status check_overlap(const place *places, int count, kgen_error *err) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            NEED(!(places[i].written || places[j].written) || !overlap(&places[i], &places[j]),
                 "%s: overlaps %s; an output has memory of its own",
                 places[i].written ? places[i].name : places[j].name,
                 places[i].written ? places[j].name : places[i].name);
    return KGEN_OK;
}

/* --- checks -------------------------------------------------------------- */

static kgen_status check_size(const row *r, const kgen_tensor *t, int i, wanted *w,
                              const kgen_scatter_args *a, kgen_error *err) {
    int64_t *size = &w->size[r->dims[i]], got = t->shape[i];
    if (*size < 0 && r->dims[i] < DEFINED) {
        NEED(got <= INT32_MAX || (r->dims[i] != N && r->dims[i] < COLUMNS),
             "%s: shape[%d]=%lld, at most 2^31-1", r->name, i, (long long)got);
        *size = got;
        if (r->dims[i] == N) derive(w, a);
        return KGEN_OK;
    }
    return kgen__check_dim(r->name, t, i, *size, err);
}

/* Rows that are written do not lie in each other; columns are contiguous. */
static kgen_status check_strides(const row *r, const kgen_tensor *t, kgen_error *err) {
    int64_t dense = t->shape[r->rank - 1];
    KGEN_TRY(kgen__check_unit_stride(r->name, t, r->rank - 1, 1, err));
    for (int i = r->rank - 2; i >= 0; i--) {
        NEED(t->stride[i] >= (r->flags & WRITTEN ? dense : 0) || t->shape[i] <= 1,
             "%s: stride[%d]=%lld, at least %lld", r->name, i, (long long)t->stride[i],
             (long long)(r->flags & WRITTEN ? dense : 0));
        if (r->flags & DENSE) KGEN_TRY(kgen__check_unit_stride(r->name, t, i, dense, err));
        dense = t->stride[i] * t->shape[i];
    }
    return KGEN_OK;
}

static kgen_status take(device_args *d, const row *r, const kgen_tensor *t, wanted *w,
                        const kgen_scatter_args *a, kgen_error *err) {
    KGEN_TRY(kgen__check_type(r->name, t, w->type[r->type], r->rank, err));
    for (int i = 0; i < r->rank; i++) KGEN_TRY(check_size(r, t, i, w, a, err));
    KGEN_TRY(kgen__check_span(r->name, t, err));
    KGEN_TRY(check_strides(r, t, err));
    memcpy((char *)d + r->pointer, &t->data, sizeof t->data);
    for (int i = 0; i < 2 && r->strides[i]; i++) {
        long long stride = t->stride[i];
        memcpy((char *)d + r->strides[i], &stride, sizeof stride);
    }
    return KGEN_OK;
}

static kgen_status take_rows(device_args *d, const kgen_scatter_args *a, wanted *w,
                             kgen_error *err) {
    place places[PLACES];
    int count = 0;
    for (const row *r = rows; r < rows + TABLE_ROWS; r++) {
        const kgen_tensor *t = (const kgen_tensor *)((const char *)a + r->offset);
        if (!holds(r, w) || (r->flags & OPTIONAL && !t->data)) continue;
        KGEN_TRY(take(d, r, t, w, a, err));
        NEED(count < PLACES, "%s: more than %d tensors", r->name, PLACES);
        places[count++] = place_of(r, t);
    }
    return check_overlap(places, count, err);
}

/* --- numbers --------------------------------------------------------------- */

/* Bounds of the numbers that an op reads. */
static const struct {
    const char *name;
    size_t offset;
    uint32_t ops;
    int32_t low, high;
} numbers[] = {
#define NUMBER(name, ops, low, high) {#name, offsetof(kgen_scatter_args, name), ops, low, high}
    NUMBER(tokens, OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE) | OP(CACHE_LOCS) | OP(ASSIGN_LOCS), 0,
           1 << 20),
    NUMBER(tokens,
           OP(DRAFT_LENS) | OP(NEXT_TOKEN) | OP(BONUS_TOKENS) | OP(KEEP_LOCS) | OP(EVICT_MASK), 1,
           1 << 20),
    NUMBER(tokens, BUILDS | OP(TREE_MASK) | OP(TREE_VERIFY), 1, 64),
    NUMBER(steps, OP(DRAFT_LENS) | OP(DRAFT_PAGE_TABLE) | OP(DRAFT_KV_INDICES), 1, 1 << 16),
    NUMBER(topk, OP(DRAFT_PAGE_TABLE) | OP(DRAFT_KV_INDICES) | OP(TREE_BUILD), 1, 1 << 16),
    NUMBER(vocab, OP(NEXT_TOKEN), 1, INT32_MAX),
    NUMBER(cp_size, OP(SLOT_MAPPING), 1, 1 << 16),
    NUMBER(cp_rank, OP(SLOT_MAPPING), 0, 1 << 16),
    NUMBER(cp_interleave, OP(SLOT_MAPPING), 1, 1 << 16),
    NUMBER(groups, OP(KV_SPLITS), 1, 1 << 16),
    NUMBER(heads, OP(KV_SPLITS), 1, 1 << 16),
    NUMBER(kv_heads, OP(KV_SPLITS), 1, 1 << 16),
    NUMBER(max_splits, OP(KV_SPLITS), 1, 1 << 16),
    NUMBER(compute_units, OP(KV_SPLITS), 1, 1 << 16),
    NUMBER(pieces, OP(KV_COMPACT), 1, 1 << 24),
#undef NUMBER
};

static kgen_status check_numbers(const kgen_scatter_args *a, const wanted *w, kgen_error *err) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int32_t value = *(const int32_t *)((const char *)a + numbers[i].offset);
        NEED(!(numbers[i].ops & w->op) || (value >= numbers[i].low && value <= numbers[i].high),
             "%s=%d: must be %d..%d", numbers[i].name, value, numbers[i].low, numbers[i].high);
    }
    return KGEN_OK;
}

static kgen_status check_prepare(const kgen_scatter_args *a, const wanted *w, kgen_error *err) {
    int64_t needed = w->size[ND], have = w->size[T];
    NEED(a->pad_len >= a->tokens, "pad_len=%lld: at least tokens=%d, or a padded row sees no key",
         (long long)a->pad_len, a->tokens);
    NEED(w->conditions & RAGGED || have < 0 || have >= needed,
         "%s: shape[0]=%lld, %lld rows of tokens=%d need %lld",
         w->conditions & LOCS ? "locs" : "positions_out", (long long)have, (long long)w->size[N],
         a->tokens, (long long)needed);
    return KGEN_OK;
}

static kgen_status check_lens(const kgen_scatter_spec *s, const kgen_scatter_args *a,
                              kgen_error *err) {
    int32_t least = s->sliced ? 1 : a->tokens;
    NEED(a->pad_len >= least, "pad_len=%lld: at least %d, or a padded row sees no key",
         (long long)a->pad_len, least);
    NEED(a->max_len >= 1, "max_len=%lld: at least 1", (long long)a->max_len);
    return KGEN_OK;
}

/* Flat outputs whose size follows from the rows. */
static kgen_status check_flat(const kgen_scatter_spec *s, const kgen_scatter_args *a,
                              const wanted *w, kgen_error *err) {
    int64_t rows_in = w->size[N], have = w->size[T], needed = 0;
    if (w->op & OP(ACCEPT_LOCS))
        needed = rows_in * w->size[COLUMNS];
    else if (s->form == KGEN_FORM_UNIFORM)
        needed = rows_in * a->tokens;
    else if (s->form == KGEN_FORM_DRAFT)
        needed = rows_in * a->topk * a->steps;
    else if (s->form == KGEN_FORM_LAST)
        needed = rows_in;
    else
        return KGEN_OK;
    if (w->op & OP(CACHE_LOCS) && s->form == KGEN_FORM_DRAFT)
        NEED(a->topk >= 1 && a->steps >= 1, "topk=%d, steps=%d: at least 1", a->topk, a->steps);
    NEED(have == needed, "locs: shape[0]=%lld, %lld expected", (long long)have, (long long)needed);
    return KGEN_OK;
}

static kgen_status check_tree(const kgen_scatter_spec *s, const kgen_scatter_args *a,
                              const wanted *w, kgen_error *err) {
    int32_t bits = 8 * kgen_dtype_size((kgen_dtype)s->word);
    int words = w->op & OP(TREE_MASK) || (w->op & BUILDS && s->mask == KGEN_MASK_WORDS);
    NEED(!words || a->tokens <= bits, "tokens=%d: words of %d bits hold at most %d", a->tokens,
         bits, bits);
    if (!(w->op & OP(TREE_VERIFY))) return KGEN_OK;
    NEED(!a->next_token.data == !a->next_sibling.data,
         "%s: no data, but %s has; a tree has both, a chain none",
         a->next_token.data ? "next_sibling" : "next_token",
         a->next_token.data ? "next_token" : "next_sibling");
    NEED(w->size[COLUMNS] >= 1, "accept_index: shape[1]=%lld, at least 1",
         (long long)w->size[COLUMNS]);
    NEED(!s->sampling || (a->threshold_single > 0 && a->threshold_acc > 0),
         "threshold_single=%g, threshold_acc=%g: must be positive", (double)a->threshold_single,
         (double)a->threshold_acc);
    return KGEN_OK;
}

static kgen_status check_move(const kgen_scatter_spec *s, const kgen_scatter_args *a,
                              kgen_error *err) {
    const int64_t bytes[] = {a->page_bytes, a->token_bytes, a->piece_bytes, a->piece_stride,
                             a->group_bytes};
    static const char *const names[] = {"page_bytes", "token_bytes", "piece_bytes", "piece_stride",
                                        "group_bytes"};
    for (int i = 0; i < (s->pack > 1 ? 5 : 4); i++)
        NEED(bytes[i] >= 0 && bytes[i] % s->unit == 0, "%s=%lld: not a multiple of unit=%d",
             names[i], (long long)bytes[i], s->unit);
    NEED(a->piece_bytes > 0 && a->piece_bytes <= INT32_MAX, "piece_bytes=%lld: must be 1..2^31-1",
         (long long)a->piece_bytes);
    NEED(a->slot_count >= 0, "slot_count=%lld: at least 0", (long long)a->slot_count);
    return KGEN_OK;
}

static kgen_status check_rest(const kgen_scatter_spec *s, const kgen_scatter_args *a,
                              const wanted *w, kgen_error *err) {
    NEED(!(w->op & OP(KV_INDICES)) || a->padding >= 0, "padding=%lld: at least 0",
         (long long)a->padding);
    NEED(!(w->op & OP(EAGLE_STEP)) || a->max_len >= 1, "max_len=%lld: at least 1",
         (long long)a->max_len);
    NEED(!(w->op & OP(SLOT_MAPPING)) || a->cp_rank < a->cp_size, "cp_rank=%d: below cp_size=%d",
         a->cp_rank, a->cp_size);
    if (w->op & OP(SPEC_PREPARE)) return check_prepare(a, w, err);
    if (w->op & OP(DRAFT_LENS)) return check_lens(s, a, err);
    if (w->op & (OP(CACHE_LOCS) | OP(ASSIGN_LOCS) | OP(ACCEPT_LOCS)))
        return check_flat(s, a, w, err);
    if (w->op & OP(KV_COMPACT)) return check_move(s, a, err);
    return check_tree(s, a, w, err);
}

/* --- pack ---------------------------------------------------------------- */

static int64_t size_or_0(const wanted *w, size_id size) {
    return w->size[size] < 0 ? 0 : w->size[size];
}

static void pack_sizes(device_args *d, const wanted *w) {
    d->rows = (int)size_or_0(w, N);
    d->request_rows = size_or_0(w, R);
    d->row_columns = size_or_0(w, C);
    d->map_size = size_or_0(w, M);
    d->width = size_or_0(w, W);
    d->swa_width = size_or_0(w, W2);
    d->flat = size_or_0(w, F);
    d->capacity = size_or_0(w, T);
    d->accept_width = (int)size_or_0(w, COLUMNS);
    d->parents_width = (int)size_or_0(w, PW);
    d->move_width = (int)size_or_0(w, MOVES);
    d->pool_count = (int)size_or_0(w, POOLS);
}

/* Bytes; INT64_MAX where they do not fit. */
static int64_t further(int64_t at, int64_t n, int64_t step) {
    int64_t bytes;
    if (__builtin_mul_overflow(n, step, &bytes) || __builtin_add_overflow(at, bytes, &at))
        return INT64_MAX;
    return at;
}

/* From a page's first byte to the farthest of its slots 0 .. last. */
static int64_t inside_page(const kgen_scatter_spec *s, const kgen_scatter_args *a, int64_t last) {
    if (s->pack == 1) return further(0, last, a->token_bytes);
    int64_t group = last / s->pack, at = further(0, group, a->group_bytes);
    int64_t here = further(at, last % s->pack, a->token_bytes);
    int64_t before = further(at - a->group_bytes, s->pack - 1, a->token_bytes);
    return group > 0 && before > here ? before : here;
}

/* Where a pool may begin at most, so that its last slot is inside. */
static int64_t pool_room(const kgen_scatter_spec *s, const kgen_scatter_args *a) {
    int64_t last = a->slot_count - 1, page = last / s->page;
    if (!a->pool.data || last < 0) return INT64_MAX;
    int64_t end = further(inside_page(s, a, last % s->page), page, a->page_bytes);
    int64_t whole = page ? further(inside_page(s, a, s->page - 1), page - 1, a->page_bytes) : 0;
    if (whole > end) end = whole;
    end = further(further(end, a->pieces - 1, a->piece_stride), 1, a->piece_bytes);
    return a->pool.shape[0] >= end ? a->pool.shape[0] - end : -1;
}

static void pack_numbers(device_args *d, const kgen_scatter_args *a, const wanted *w) {
    d->fill = a->fill;
    d->pad_len = a->pad_len;
    d->padding = a->padding;
    d->max_len = a->max_len;
    d->tokens = a->tokens;
    d->steps = a->steps;
    d->topk = a->topk;
    d->vocab = w->op & OP(TREE_VERIFY) ? (int)size_or_0(w, V) : a->vocab;
    d->cp_size = a->cp_size;
    d->cp_rank = a->cp_rank;
    d->cp_interleave = a->cp_interleave;
    d->groups = a->groups;
    d->heads = a->heads;
    d->kv_heads = a->kv_heads;
    d->max_splits = a->max_splits;
    d->compute_units = a->compute_units;
    d->threshold_single = a->threshold_single;
    d->threshold_acc = a->threshold_acc;
    d->slot_count = a->slot_count;
    d->page_bytes = a->page_bytes;
    d->group_bytes = a->group_bytes;
    d->token_bytes = a->token_bytes;
    d->piece_bytes = a->piece_bytes;
    d->piece_stride = a->piece_stride;
    d->pieces = a->pieces;
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

static int64_t count_groups(device_args *d, const kgen_scatter_spec *s, const wanted *w) {
    int64_t n = d->rows, wide = d->width > d->swa_width ? d->width : d->swa_width;
    int64_t tiles = tiles_of(wide, TILE), most = tiles_of(d->row_columns, TILE);
    most = most > ROW_TILES ? ROW_TILES : most;
    if (w->op & (OP(KV_INDICES) | OP(DRAFT_KV_INDICES))) tiles = most;
    if (w->op & OP(KV_COMPACT)) tiles = tiles_of(d->piece_bytes / s->unit * d->pieces, LANES);
    d->tiles = tiles > INT32_MAX ? INT32_MAX : (int)tiles;
    if (w->op & OP(SPEC_PREPARE)) return prepare_groups(d, s);
    if (w->op & (OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS))) return n * tiles;
    if (w->op & OP(DRAFT_PAGE_TABLE)) return n * d->topk * d->steps * tiles;
    if (w->op & OP(DRAFT_KV_INDICES)) return 1 + n * d->topk * tiles;
    if (w->op & OP(KV_INDICES)) return 1 + n * tiles;
    if (w->op & (OP(SLOT_MAPPING) | OP(CACHE_LOCS))) return n + 1;
    if (w->op & (OP(ASSIGN_LOCS) | BUILDS | OP(TREE_MASK) | OP(TREE_VERIFY))) return n;
    if (w->op & OP(KV_COMPACT)) return n * d->pool_count * tiles;
    if (w->op & (OP(ACCEPT_LOCS) | OP(KEEP_LOCS) | OP(KV_SPLITS))) return 1;
    return tiles_of(n, LANES);
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
    const kgen_scatter_args *a = &args->scatter;
    device_args *d = packed;
    wanted w;
    memset(d, 0, sizeof *d);
    want(&w, s, a);
    KGEN_TRY(check_numbers(a, &w, err));
    KGEN_TRY(take_rows(d, a, &w, err));
    KGEN_TRY(check_rest(s, a, &w, err));
    pack_sizes(d, &w);
    pack_numbers(d, a, &w);
    if (w.op & OP(KV_COMPACT)) d->pool_room = pool_room(s, a);
    int64_t groups = count_groups(d, s, &w);
    NEED(groups <= INT32_MAX, "op=%s: %d rows need %lld workgroups, at most 2^31-1",
         kgen__scatter_op_name(s), d->rows, (long long)groups);
    *grid = (uint32_t)groups;
    return KGEN_OK;
}

const kgen__launcher kgen__launch_scatter = {NULL, sizeof(device_args), workspace_bytes, pack};

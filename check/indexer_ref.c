/* The reference of the indexer, an element at a time, from the formulas in
 * <kgen/indexer_args.h>. All but the logits is exact. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_indexer.h"

typedef struct world {
    const kgen__data *data;
    kgen__answer *answer;
    kgen_args args; /* of what a launch finds */
    kgen_args_room room;
    const kgen_indexer_args *a;
    const kgen_indexer_spec *s;
    int64_t page; /* tokens */
} world;

/* Element `index` of slot `slot` must have these bits. */
static void expect_bits(const world *w, int slot, int64_t index, uint32_t bits) {
    const kgen__slot *s = &w->data->slot[slot];
    int size = kgen_dtype_size(kgen__slot_tensor(&w->data->args, slot)->dtype);
    unsigned char *at = w->answer->image[s->view_of].bytes + s->offset + index * size;
    for (int i = 0; i < size; i++) at[i] = (unsigned char)(bits >> 8 * i);
}

static void expect_float(const world *w, int slot, int64_t index, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    expect_bits(w, slot, index, bits);
}

static double number(const kgen_tensor *t, int64_t at) {
    return kgen__number_load(t->dtype, t->data, at);
}

/* ---- pages --------------------------------------------------------------------- */

typedef struct place_t {
    int64_t page, slot; /* page -1: nowhere */
} place_t;

static place_t place_of(const world *w, int64_t row, int64_t token) {
    const kgen_tensor *t = &w->a->block_table;
    place_t p = {-1, token % w->page};
    if (row < 0 || row >= t->shape[0] || token / w->page >= t->shape[1]) return p;
    p.page = kgen__int_load(t, row * t->stride[0] + token / w->page);
    int64_t end = w->a->cache.data ? w->a->cache.shape[0] : INT64_MAX;
    if (p.page < 0 || p.page >= end) p.page = -1;
    return p;
}

static int64_t code_at(const world *w, place_t p) {
    return p.page * w->a->cache.stride[0] + p.slot * w->a->cache.stride[1];
}
static int64_t scale_at(const world *w, place_t p) {
    return p.page * w->a->scales.stride[0] + p.slot;
}

/* ---- write, gather ------------------------------------------------------------- */

static float scale_of(const world *w, int64_t row) {
    float amax = 1e-4f;
    for (int64_t d = 0; d < w->s->head_dim; d++) {
        double x = fabs(number(&w->a->k, row * w->a->k.stride[0] + d));
        if (x > (double)amax) amax = (float)fmin(x, (double)FLT_MAX);
    }
    float scale = amax / (w->s->kv == KGEN_DTYPE_E4M3FNUZ ? 224.0f : 448.0f);
    int exponent;
    if (!w->s->pow2) return scale;
    return frexpf(scale, &exponent) == 0.5f ? scale : ldexpf(1, exponent);
}

static void write_key(const world *w, int64_t row) {
    int64_t slot = kgen__int_load(&w->a->slots, row);
    if (slot < 0 || slot >= w->a->cache.shape[0] * w->page) return;
    place_t p = {slot / w->page, slot % w->page};
    float scale = scale_of(w, row);
    expect_float(w, I_SCALES, scale_at(w, p), scale);
    for (int64_t d = 0; d < w->s->head_dim; d++) {
        float x = (float)number(&w->a->k, row * w->a->k.stride[0] + d) / scale;
        expect_bits(w, I_CACHE, code_at(w, p) + d,
                    kgen__number_encode((kgen_dtype)w->s->kv, (double)x));
    }
}

static void gather_key(const world *w, int64_t row) {
    const kgen_indexer_args *a = w->a;
    int64_t seqs = a->cu_seqlens.shape[0] - 1, n = 0;
    while (n < seqs && row >= kgen__int_load(&a->cu_seqlens, n + 1)) n++;
    place_t p = {-1, 0};
    if (n < seqs && row >= kgen__int_load(&a->cu_seqlens, 0))
        p = place_of(w, n, row - kgen__int_load(&a->cu_seqlens, n));
    const unsigned char *codes = a->cache.data;
    for (int64_t d = 0; d < w->s->head_dim; d++)
        expect_bits(w, I_KEYS, row * a->keys.stride[0] + d,
                    p.page < 0 ? 0 : codes[code_at(w, p) + d]);
    float scale = p.page < 0 ? 0 : (float)number(&a->scales, scale_at(w, p));
    expect_float(w, I_KEY_SCALES, row, scale);
}

/* ---- logits --------------------------------------------------------------------- */

typedef struct range_t {
    int64_t start, end;
} range_t;

static int64_t within(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

/* Columns of query token `row`, of `most` that there are. */
static range_t range_of(const world *w, int64_t row, int64_t most) {
    const kgen_indexer_args *a = w->a;
    int64_t t = w->s->q_tokens;
    if (a->starts.data) {
        int64_t start = within(kgen__int_load(&a->starts, row), 0, most);
        return (range_t){start, within(kgen__int_load(&a->ends, row), start, most)};
    }
    return (range_t){0, within(kgen__int_load(&a->seq_lens, row / t) - t + 1 + row % t, 0, most)};
}

/* Where key `column` is, its codes and its scale; 0: nowhere. */
typedef struct cached_t {
    const kgen_tensor *codes;
    int64_t at;
    double scale;
} cached_t;

static int find_key(cached_t *k, const world *w, int64_t row, int64_t column) {
    const kgen_indexer_args *a = w->a;
    if (w->s->op == KGEN_INDEX_PREFILL) {
        *k = (cached_t){&a->keys, column * a->keys.stride[0], number(&a->key_scales, column)};
        return 1;
    }
    place_t p = place_of(w, row / w->s->q_tokens, column);
    if (p.page < 0) return 0;
    *k = (cached_t){&a->cache, code_at(w, p), number(&a->scales, scale_at(w, p))};
    return 1;
}

/* Products are exact. Sums are off by half a step here and there, some by a whole one where
 * hardware cuts off: together by the root of their number. */
static void expect_logit(const world *w, int64_t row, int64_t column, const cached_t *k) {
    const kgen_indexer_args *a = w->a;
    kgen__image *image = &w->answer->image[I_LOGITS];
    int64_t at = row * a->logits.stride[0] + column;
    double sum = 0, sizes = 0;
    for (int64_t h = 0; h < w->s->heads; h++) {
        double dot = 0, dots = 0, weight = number(&a->weights, row * a->weights.stride[0] + h);
        for (int64_t d = 0; d < w->s->head_dim; d++) {
            double x = number(&a->q, row * a->q.stride[0] + h * a->q.stride[1] + d) *
                       number(k->codes, k->at + d);
            dot += x, dots += fabs(x);
        }
        sum += weight * fmax(dot, 0);
        sizes += fabs(weight) * dots;
    }
    image->want[at] = sum * k->scale;
    image->tolerance[at] =
        (float)(sizes * k->scale * (16 + sqrt(w->s->head_dim + w->s->heads)) * 0x1p-23 + 0x1p-120);
}

static void expect_logits(const world *w, int64_t row) {
    const kgen_indexer_args *a = w->a;
    kgen__image *image = &w->answer->image[I_LOGITS];
    int prefill = w->s->op == KGEN_INDEX_PREFILL;
    range_t r = range_of(w, row, prefill ? a->keys.shape[0] : a->logits.shape[1]);
    for (int64_t i = 0; i < a->logits.shape[1]; i++) {
        int64_t at = row * a->logits.stride[0] + i;
        cached_t k;
        if (i >= r.start && i < r.end && find_key(&k, w, row, i)) {
            expect_logit(w, row, i, &k);
        } else if (w->s->clean) {
            image->want[at] = -INFINITY;
            image->tolerance[at] = 0;
        }
    }
}

/* ---- top-k ---------------------------------------------------------------------- */

typedef struct candidate {
    float x;
    int64_t index;
} candidate;

static int larger_first(const void *p, const void *q) {
    const candidate *a = p, *b = q;
    if (a->x != b->x) return a->x > b->x ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}
static int by_index(const void *p, const void *q) {
    const candidate *a = p, *b = q;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int64_t told(const world *w, int64_t row, range_t r, int64_t index) {
    const kgen_indexer_args *a = w->a;
    if (w->s->to == KGEN_TO_INDEX) return index;
    if (w->s->to == KGEN_TO_COLUMN) return r.start + index;
    int64_t m = a->requests.data ? kgen__int_load(&a->requests, row) : row / w->s->q_tokens;
    place_t p = place_of(w, m, index);
    return p.page < 0 ? -1 : p.page * w->page + p.slot;
}

static kgen_status choose(const world *w, int64_t row, kgen_error *err) {
    const kgen_indexer_args *a = w->a;
    range_t r = range_of(w, row, a->logits.shape[1]);
    int64_t count = r.end - r.start, most = a->indices.shape[1];
    candidate *all = malloc((size_t)(count + 1) * sizeof *all);
    if (!all) return kgen_fail(err, KGEN_E_NOMEM, "%lld logits: out of memory", (long long)count);
    for (int64_t i = 0; i < count; i++)
        all[i] = (candidate){(float)number(&a->logits, row * a->logits.stride[0] + r.start + i), i};
    qsort(all, (size_t)count, sizeof *all, larger_first);
    int64_t chosen = count < most ? count : most;
    qsort(all, (size_t)chosen, sizeof *all, by_index);
    for (int64_t i = 0; i < most; i++)
        expect_bits(w, I_INDICES, row * a->indices.stride[0] + i,
                    (uint32_t)(i < chosen ? told(w, row, r, all[i].index) : -1));
    free(all);
    return KGEN_OK;
}

/* ---- all ------------------------------------------------------------------------ */

static kgen_status answer_row(const world *w, int64_t row, kgen_error *err) {
    switch ((kgen_index_op)w->s->op) {
    case KGEN_INDEX_WRITE:
        write_key(w, row);
        return KGEN_OK;
    case KGEN_INDEX_GATHER:
        gather_key(w, row);
        return KGEN_OK;
    case KGEN_INDEX_TOPK:
        return choose(w, row, err);
    default:
        expect_logits(w, row);
        return KGEN_OK;
    }
}

kgen_status kgen__indexer_reference(kgen__answer *answer, const kgen__data *data, kgen_error *err) {
    world w = {.data = data, .answer = answer, .s = &data->spec.indexer};
    kgen_status status = kgen__answer_make(answer, &w.args, &w.room, data, err);
    w.a = w.args.indexer;
    w.page = w.a->cache.data ? w.a->cache.shape[1] : w.s->page;
    int64_t rows = w.s->op == KGEN_INDEX_WRITE    ? w.a->slots.shape[0]
                   : w.s->op == KGEN_INDEX_GATHER ? w.a->keys.shape[0]
                                                  : w.a->logits.shape[0];
    for (int64_t row = 0; status == KGEN_OK && row < rows; row++) status = answer_row(&w, row, err);
    if (status != KGEN_OK) kgen__answer_free(answer);
    return status;
}

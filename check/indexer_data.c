/* The tensors of a case of the indexer. Keys that nobody sees, pages of nobody and rows
 * of nobody are poison. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_indexer.h"

typedef struct extents {
    int64_t seqs, tokens, rows, page, pages, columns, width;
    int64_t most_pages; /* of a sequence */
} extents;

static int64_t pages_of(int64_t length, int64_t page) { return (length + page - 1) / page; }

static int has_queries_a_sequence(const kgen_indexer_spec *s) {
    return s->op == KGEN_INDEX_DECODE || (s->op == KGEN_INDEX_TOPK && !s->ranges);
}

static extents measure(const kgen__data *data) {
    const kgen__indexer_case *c = &data->shape.indexer;
    const kgen_indexer_spec *s = &data->spec.indexer;
    extents e = {.seqs = data->shape.seqs, .pages = 1 + c->extra, .rows = c->tail};
    int64_t longest = 0, queries = 0;
    e.page = s->page == KGEN_PAGE_X16 ? c->page : s->page;
    for (int64_t n = 0; n < e.seqs; n++) {
        int64_t length = c->lens[n].high, pages = pages_of(length, e.page);
        e.rows += length;
        e.pages += pages;
        queries += c->qlens[n].high;
        if (length > longest) longest = length;
        if (pages > e.most_pages) e.most_pages = pages;
    }
    int ranges = s->op == KGEN_INDEX_PREFILL || s->ranges;
    e.tokens = s->op == KGEN_INDEX_WRITE   ? e.rows
               : has_queries_a_sequence(s) ? e.seqs * s->q_tokens
                                           : queries + c->tail;
    e.columns = e.most_pages + c->cols % 3;
    e.width = (ranges ? e.rows : longest) + c->cols;
    return e;
}

/* Of a row of the caller's stride: so many units of 16 bytes more. */
static void pad_row(kgen_tensor *t, int64_t units) {
    int64_t size = kgen_dtype_size(t->dtype);
    if (t->rank == 2) kgen__tensor_pad(t, (int64_t[]){units * (size < 16 ? 16 / size : 1), 0});
    if (t->rank == 3) kgen__tensor_pad(t, (int64_t[]){units * 16, 0, 0});
}

/* Codes of a page, then its scales. */
static void shape_pool(kgen__data *data, const extents *e) {
    const kgen__indexer_case *c = &data->shape.indexer;
    kgen_indexer_args *a = data->args.indexer;
    int64_t dim = data->spec.indexer.head_dim, codes = e->page * dim;
    int64_t page = codes + 4 * e->page + 16 * c->pad;
    if (!a->cache.rank) return;
    data->slot[I_CACHE].offset = c->off ? 16 : 0;
    if (c->apart) {
        a->cache.stride[0] += 16 * c->pad;
        a->scales.stride[0] += c->pad;
        return;
    }
    a->cache.stride[0] = page;
    a->scales.stride[0] = page / 4;
    data->slot[I_CACHE].size = (size_t)(page * e->pages);
    data->slot[I_SCALES].view_of = I_CACHE;
    data->slot[I_SCALES].offset = data->slot[I_CACHE].offset + (size_t)codes;
}

kgen_status kgen__indexer_shape(kgen__data *data, kgen_error *err) {
    const kgen__indexer_case *c = &data->shape.indexer;
    kgen_indexer_args *a = data->args.indexer;
    extents e = measure(data);
    const kgen_arg_size sizes[] = {{"T", e.tokens}, {"S", e.seqs},    {"R", e.rows},
                                   {"NB", e.pages}, {"page", e.page}, {"pages", e.columns},
                                   {"L", e.width},  {"K", c->k},      {"S+1", e.seqs + 1}};
    KGEN_TRY(kgen__data_shape(data, sizes, sizeof sizes / sizeof sizes[0],
                              c->named ? 0 : (uint64_t)1 << I_REQUESTS, err));
    kgen_tensor *const padded[] = {&a->k,      &a->q,       &a->weights,    &a->keys,
                                   &a->logits, &a->indices, &a->block_table};
    for (size_t i = 0; i < sizeof padded / sizeof padded[0]; i++)
        if (padded[i]->rank) pad_row(padded[i], c->rowpad);
    static const int movable[] = {I_NEW, I_Q, I_KEYS};
    for (size_t i = 0; i < sizeof movable / sizeof movable[0]; i++)
        data->slot[movable[i]].offset = c->off ? 16 : 0;
    shape_pool(data, &e);
    return KGEN_OK;
}

/* ---- contents ------------------------------------------------------------------ */

typedef struct filler {
    kgen__data *data;
    kgen_indexer_args *a;
    const kgen_indexer_spec *s;
    const kgen__indexer_case *c;
    extents e;
    int32_t lens[KGEN__CASE_SEQS_MAX], qlens[KGEN__CASE_SEQS_MAX];
    int64_t *order; /* pages */
    kgen__rng rng;
} filler;

static int64_t draw(filler *f, int64_t low, int64_t high) {
    return kgen__rng_range(&f->rng, low, high);
}
static int is_bad(filler *f) { return draw(f, 0, 15) < f->c->bad; }

static void store(kgen_tensor *t, int64_t at, double x) {
    kgen__number_store(t->dtype, t->data, at, x);
}

/* ---- pages ------------------------------------------------------------------ */

static void fill_key(filler *f, kgen_tensor *codes, int64_t at, kgen_tensor *scale, int64_t entry) {
    for (int64_t d = 0; d < f->s->head_dim; d++)
        store(codes, at + d, 3 * kgen__rng_normal(&f->rng));
    store(scale, entry, 0.01 + kgen__rng_uniform(&f->rng));
}

/* The tokens of each sequence, and what leads to them. */
static void fill_pages(filler *f) {
    kgen_tensor *t = &f->a->block_table;
    const int64_t nowhere[] = {-1, INT32_MIN, f->e.pages, INT32_MAX};
    int64_t dealt = 0;
    for (int64_t i = 0; t->data && i < t->shape[0] * t->stride[0] && t->shape[1]; i++)
        if (i % t->stride[0] < t->shape[1]) kgen__int_store(t, i, nowhere[draw(f, 0, 3)]);
    for (int64_t n = 0; n < f->e.seqs; n++)
        for (int64_t i = 0; i < pages_of(f->lens[n], f->e.page); i++, dealt++) {
            int64_t page = f->order[dealt];
            if (t->data && !is_bad(f)) kgen__int_store(t, n * t->stride[0] + i, page);
            for (int64_t slot = 0; f->a->cache.data && slot < f->e.page; slot++)
                if (i * f->e.page + slot < f->lens[n])
                    fill_key(f, &f->a->cache, page * f->a->cache.stride[0] + slot * f->s->head_dim,
                             &f->a->scales, page * f->a->scales.stride[0] + slot);
        }
}

/* Pages of top-k may have any number that is not below 0. */
static void fill_any_pages(filler *f) {
    kgen_tensor *t = &f->a->block_table;
    for (int64_t n = 0; n < t->shape[0]; n++)
        for (int64_t i = 0; i < t->shape[1]; i++)
            kgen__int_store(t, n * t->stride[0] + i, is_bad(f) ? -1 : draw(f, 0, 100000));
}

/* ---- new keys ----------------------------------------------------------------- */

static double element(filler *f) {
    static const double extremes[] = {0, -0.0, 3e4, -3e4, 1e-7, 1e30, INFINITY, -INFINITY, NAN};
    if (draw(f, 0, 199) == 0) return extremes[draw(f, 0, 8)];
    return kgen__rng_normal(&f->rng);
}

static void fill_new(filler *f) {
    kgen_indexer_args *a = f->a;
    int64_t row = 0, dealt = 0, end = f->e.pages * f->e.page;
    const int64_t nowhere[] = {-1, -9, end, end + 3, INT32_MAX, INT32_MIN};
    for (int64_t i = 0; i < a->slots.shape[0]; i++) kgen__int_store(&a->slots, i, nowhere[i % 6]);
    for (int64_t n = 0; n < f->e.seqs; n++) {
        for (int64_t i = 0; i < f->lens[n]; i++, row++) {
            double scale = kgen__chance(&f->rng, 1) ? 1e-5 : 1;
            if (!is_bad(f))
                kgen__int_store(&a->slots, row,
                                f->order[dealt + i / f->e.page] * f->e.page + i % f->e.page);
            for (int64_t d = 0; d < f->s->head_dim; d++)
                store(&a->k, row * a->k.stride[0] + d, scale * element(f));
        }
        dealt += pages_of(f->lens[n], f->e.page);
    }
}

/* ---- queries, ranges ------------------------------------------------------------- */

static void fill_queries(filler *f) {
    kgen_indexer_args *a = f->a;
    for (int64_t t = 0; t < a->q.shape[0]; t++)
        for (int64_t h = 0; h < f->s->heads; h++) {
            store(&a->weights, t * a->weights.stride[0] + h, 0.1 * kgen__rng_normal(&f->rng));
            for (int64_t d = 0; d < f->s->head_dim; d++)
                store(&a->q, t * a->q.stride[0] + h * a->q.stride[1] + d,
                      kgen__rng_normal(&f->rng));
        }
}

/* Rows of a sequence see its keys up to their own; some see nothing, some begin later. */
static void fill_ranges(filler *f) {
    int64_t first = 0, row = 0, tokens = f->a->starts.shape[0];
    for (int64_t n = 0; n < f->e.seqs; n++) {
        for (int64_t i = 0; i < f->qlens[n] && row < tokens; i++, row++) {
            int64_t end = first + f->lens[n] - (f->qlens[n] - 1 - i);
            kgen__int_store(&f->a->starts, row, is_bad(f) ? draw(f, -3, first + 5) : first);
            kgen__int_store(&f->a->ends, row, is_bad(f) ? draw(f, -3, f->e.width + 3) : end);
        }
        first += f->lens[n];
    }
    for (; row < tokens; row++) {
        kgen__int_store(&f->a->starts, row, 0);
        kgen__int_store(&f->a->ends, row, 0);
    }
}

/* Ranges may lead to any of them. */
static void fill_gathered(filler *f) {
    kgen_indexer_args *a = f->a;
    for (int64_t i = 0; i < a->keys.shape[0]; i++)
        fill_key(f, &a->keys, i * a->keys.stride[0], &a->key_scales, i);
}

/* Of top-k: finite numbers, infinities, zeros of both signs, many that are equal. */
static void fill_logits(filler *f) {
    kgen_tensor *t = &f->a->logits;
    static const double some[] = {0, -0.0, -INFINITY, INFINITY};
    for (int64_t row = 0; row < t->shape[0]; row++)
        for (int64_t i = 0; i < t->shape[1]; i++) {
            double x = kgen__rng_normal(&f->rng);
            if (f->c->values) x = (double)draw(f, 1, f->c->values) - 2;
            if (draw(f, 0, 63) == 0) x = some[draw(f, 0, 3)];
            store(t, row * t->stride[0] + i, x);
        }
}

static void fill_indices(filler *f) {
    kgen_indexer_args *a = f->a;
    int64_t row = 0;
    for (int64_t n = 0; n < f->e.seqs; n++) {
        if (a->cu_seqlens.data) kgen__int_store(&a->cu_seqlens, n, row);
        if (a->seq_lens.data) kgen__int_store(&a->seq_lens, n, f->lens[n]);
        row += f->lens[n];
    }
    if (a->cu_seqlens.data) kgen__int_store(&a->cu_seqlens, f->e.seqs, row);
    for (int64_t i = 0; a->requests.data && i < a->requests.shape[0]; i++)
        kgen__int_store(&a->requests, i, draw(f, is_bad(f) ? -1 : 0, f->e.seqs));
}

static kgen_status fill_all(filler *f, kgen_error *err) {
    kgen_indexer_args *a = f->a;
    for (int i = 0; i < KGEN__INDEXER_SLOTS; i++) {
        kgen_dtype dtype = kgen__slot_tensor(&f->data->args, i)->dtype;
        if (f->data->slot[i].role != KGEN_USE_OUT && dtype != KGEN_DTYPE_I32 &&
            dtype != KGEN_DTYPE_I64)
            kgen__slot_cover(f->data, i, &f->rng, f->c->poison);
    }
    f->order = malloc((size_t)f->e.pages * sizeof *f->order);
    if (!f->order) return kgen_fail(err, KGEN_E_NOMEM, "pages: out of memory");
    for (int64_t i = 0; i < f->e.pages; i++) f->order[i] = i;
    for (int64_t i = f->e.pages - 1; i > 0; i--) {
        int64_t j = draw(f, 0, i), kept = f->order[i];
        f->order[i] = f->order[j], f->order[j] = kept;
    }
    fill_indices(f);
    if (f->s->op == KGEN_INDEX_WRITE) fill_new(f);
    if (f->s->op == KGEN_INDEX_GATHER || f->s->op == KGEN_INDEX_DECODE) fill_pages(f);
    if (f->s->op == KGEN_INDEX_TOPK && a->block_table.data) fill_any_pages(f);
    if (f->s->op == KGEN_INDEX_PREFILL) fill_gathered(f);
    if (f->s->op == KGEN_INDEX_TOPK) fill_logits(f);
    if (a->q.data) fill_queries(f);
    if (a->starts.data) fill_ranges(f);
    free(f->order);
    kgen__data_remember(f->data);
    kgen__data_poison_outputs(f->data);
    return KGEN_OK;
}

static kgen_status start(filler **out, kgen__data *data, kgen_error *err) {
    filler *f = calloc(1, sizeof *f);
    if (!f) return kgen_fail(err, KGEN_E_NOMEM, "check: out of memory");
    f->data = data;
    f->a = data->args.indexer;
    f->s = &data->spec.indexer;
    f->c = &data->shape.indexer;
    f->e = measure(data);
    *out = f;
    return KGEN_OK;
}

kgen_status kgen__indexer_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    filler *f;
    KGEN_TRY(start(&f, data, err));
    kgen__rng_seed(&f->rng, seed, 1);
    for (int64_t n = 0; n < f->e.seqs; n++) {
        f->lens[n] = f->c->lens[n].high;
        f->qlens[n] = f->c->qlens[n].high;
    }
    kgen_status status = fill_all(f, err);
    free(f);
    return status;
}

/* Shorter sequences, and fewer query tokens of each. */
kgen_status kgen__indexer_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    filler *f;
    KGEN_TRY(start(&f, data, err));
    kgen__rng_seed(&f->rng, kgen__rng_next(rng), 1);
    for (int64_t n = 0; n < f->e.seqs; n++) {
        f->lens[n] = (int32_t)draw(f, 0, f->c->lens[n].high);
        f->qlens[n] = (int32_t)draw(f, 0, f->c->qlens[n].high);
    }
    kgen_status status = fill_all(f, err);
    free(f);
    return status;
}

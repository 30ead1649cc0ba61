/* The tensors of a case of mla: shaped here, filled and judged as attention's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_attn.h"
#include "check_mla.h"

/* ---- shapes --------------------------------------------------------------- */

typedef struct extents {
    int64_t tokens, pages, page, columns, entries; /* sparse: a page is what a slot is */
} extents;

static extents measure(const kgen__data *data) {
    const kgen__mla_case *c = &data->shape.mla;
    const kgen_mla_spec *s = &data->spec.mla;
    extents e = {.page = s->page == KGEN_PAGE_X16 ? c->page : s->page, .pages = 1 + c->extra};
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        int64_t pages = (c->lens[n].high + e.page - 1) / e.page;
        e.tokens += s->phase != KGEN_MLA_DECODE ? c->qlens[n].high : 1;
        e.pages += pages;
        e.entries += pages + c->cols;
        if (pages > e.columns) e.columns = pages;
    }
    e.tokens += c->tail;
    e.columns += c->cols;
    if (e.columns == 0) e.columns = 1;
    return e;
}

static void pad_rows(kgen_tensor *t, int dim, int32_t units) {
    int64_t pad[3] = {0};
    pad[dim] = units * (16 / kgen_dtype_size(t->dtype));
    kgen__tensor_pad(t, pad);
}

kgen_status kgen__mla_shape(kgen__data *data, kgen_error *err) {
    const kgen__mla_case *c = &data->shape.mla;
    const kgen_mla_spec *s = &data->spec.mla;
    kgen_mla_args *a = data->args.mla;
    extents e = measure(data);
    int64_t seqs = data->shape.seqs;
    const kgen_arg_size sizes[] = {{"T", e.tokens},
                                   {"S", seqs},
                                   {"S+1", seqs + 1},
                                   {"NB", s->sparse ? (e.pages + c->page - 1) / c->page : e.pages},
                                   {"page", s->sparse ? c->page : e.page},
                                   {"pages", e.columns},
                                   {"list", e.columns},
                                   {"entries", e.entries}};
    if (e.tokens < 1)
        return kgen_fail(err, KGEN_E_ARG, "qlens: %lld query tokens, at least 1",
                         (long long)e.tokens);
    KGEN_TRY(kgen__data_shape(data, sizes, sizeof sizes / sizeof sizes[0],
                              c->bad ? 0 : (uint64_t)1 << MLA_ERROR, err));
    pad_rows(&a->q, 0, c->qpad);
    pad_rows(&a->out, 0, c->qpad);
    pad_rows(&a->cache, 1, c->pad);
    kgen__tensor_pad(&a->block_table, (int64_t[]){c->rowpad, 0});
    data->slot[MLA_Q].offset = data->slot[MLA_CACHE].offset = c->off ? 16 : 0;
    kgen__tensor_pad(&a->slots, (int64_t[]){c->rowpad, 0});
    kgen__tensor_pad(&a->words, (int64_t[]){c->rowpad, 0});
    a->softmax_scale = (float)(c->scale > 0 ? c->scale : 1 / sqrt(s->latent + s->rope));
    if (s->window == KGEN_WINDOW_RT) a->window = c->window;
    return KGEN_OK;
}

/* ---- contents, and what a launch must leave --------------------------------- */

/* The same launch as attention sees it: large, so not on the stack. */
typedef struct borrowed {
    kgen__data attn;
    kgen_tensor pool; /* rows as numbers */
} borrowed;

static void give_back(borrowed *b, const kgen__data *data) {
    if (data->spec.mla.rows) free(b->pool.data);
    free(b);
}

static kgen_status borrow(borrowed **out, const kgen__data *data, kgen_error *err) {
    const kgen_tensor *cache = &data->args.mla->cache;
    borrowed *b = malloc(sizeof *b);
    if (!b) return kgen_fail(err, KGEN_E_NOMEM, "case: out of memory");
    kgen_status status =
        data->spec.mla.rows ? kgen__mla_pool(&b->pool, &data->spec.mla, cache, err) : KGEN_OK;
    if (status == KGEN_OK)
        kgen__mla_as_attn(&b->attn, data, data->spec.mla.rows ? &b->pool : cache);
    else
        free(b);
    *out = b;
    return status;
}

/* Of each list about a quarter has no slot. */
static void fill_holes(kgen__data *data, uint64_t seed) {
    const kgen_tensor *t = &data->args.mla->slots;
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, MLA_LISTS);
    for (int64_t row = 0; data->spec.mla.sparse && row < t->shape[0]; row++)
        for (int64_t n = 0; n < t->shape[1]; n++)
            if (kgen__chance(&rng, 2)) kgen__int_store(t, row * t->stride[0] + n, -1);
}

/* What attention has filled, as the cache has it. */
static void finish(kgen__data *data, borrowed *b, uint64_t seed) {
    if (data->spec.mla.rows)
        kgen__mla_rows_write(&data->args.mla->cache, &data->spec.mla, &b->pool, seed);
    give_back(b, data);
    fill_holes(data, seed);
}

kgen_status kgen__mla_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    borrowed *b;
    KGEN_TRY(borrow(&b, data, err));
    kgen_status status = kgen__attn_fill(&b->attn, seed, err);
    finish(data, b, seed);
    return status;
}

kgen_status kgen__mla_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    borrowed *b;
    KGEN_TRY(borrow(&b, data, err));
    kgen_status status = kgen__attn_refill(&b->attn, rng, err);
    finish(data, b, kgen__rng_next(rng));
    return status;
}

static kgen_status sound_lists(const kgen_mla_args *a, kgen_error *err) {
    int64_t slots = a->cache.shape[0] * a->cache.shape[1];
    for (int64_t t = 0; t < a->slots.shape[0]; t++) {
        int64_t count = kgen__int_load(&a->seq_lens, t), most = a->slots.shape[1];
        KGEN__SOUND(count <= most, "seq_lens[%lld]=%lld: slots has %lld", (long long)t,
                    (long long)count, (long long)most);
        for (int64_t n = 0; n < count; n++) {
            int64_t slot = kgen__int_load(&a->slots, t * a->slots.stride[0] + n);
            KGEN__SOUND(slot < slots, "slots[%lld][%lld]=%lld: at most %lld", (long long)t,
                        (long long)n, (long long)slot, (long long)slots - 1);
        }
    }
    return KGEN_OK;
}

kgen_status kgen__mla_sound(const kgen_spec *spec, const kgen_args *args, kgen_error *err) {
    kgen_spec attn;
    kgen_args seen;
    kgen_args_room room;
    if (spec->mla.sparse) return sound_lists(args->mla, err);
    kgen__mla_attn_spec(&attn, &spec->mla);
    kgen_args_init(&seen, &room, &attn);
    kgen__mla_attn_args(seen.attn, &spec->mla, args->mla, &args->mla->cache);
    return kgen__attn_sound(&attn, &seen, err);
}

/* ---- the answer in images ----------------------------------------------------- */

static void expect(kgen__image *image, int64_t at, double want, double tolerance) {
    image->want[at] = want;
    image->tolerance[at] = (float)tolerance;
}

static double saturated(kgen_dtype dtype, double value) {
    double most = kgen__number_max(dtype);
    return kgen_dtype_size(dtype) == 1 ? fmax(-most, fmin(most, value)) : value;
}

/* Of a token that two sequences have, nobody knows which is last: what is there, is right. */
static void accept(kgen__image *image, const kgen__slot *slot, int64_t at, int64_t count,
                   kgen_dtype dtype) {
    size_t size = (size_t)kgen_dtype_size(dtype), from = slot->offset + (size_t)at * size;
    memcpy(image->bytes + from, slot->bytes + from, (size_t)count * size);
}

static void expect_out(kgen__answer *out, const kgen__data *data, const kgen__attn_answer *a,
                       int64_t token, int64_t head) {
    const kgen_tensor *t = &data->args.mla->out;
    int64_t at = token * t->stride[0] + head * t->stride[1];
    if (a->claims[token] > 1)
        return accept(&out->image[MLA_OUT], &data->slot[MLA_OUT], at, a->v_dim, t->dtype);
    for (int64_t d = 0; d < a->v_dim; d++) {
        int64_t i = (token * a->heads + head) * a->v_dim + d;
        expect(&out->image[MLA_OUT], at + d, saturated(t->dtype, a->out[i]), a->out_tol[i]);
    }
}

static void expect_lse(kgen__answer *out, const kgen__data *data, const kgen__attn_answer *a,
                       int64_t token, int64_t head) {
    const kgen_tensor *t = &data->args.mla->lse;
    int64_t i = head * a->tokens + token;
    int by_token = data->spec.mla.lse == KGEN_LSE_TH;
    int64_t at = by_token ? token * t->stride[0] + head : head * t->stride[0] + token;
    if (a->claims[token] > 1)
        return accept(&out->image[MLA_LSE], &data->slot[MLA_LSE], at, 1, t->dtype);
    expect(&out->image[MLA_LSE], at, a->lse[i], a->lse_tol[i]);
}

static void expect_errors(kgen__answer *out, const kgen__data *data, const kgen__attn_answer *a) {
    const kgen__slot *slot = &data->slot[MLA_ERROR];
    kgen__image *image = &out->image[MLA_ERROR];
    for (int64_t s = 0; slot->before && s < a->seqs; s++) {
        int32_t *word = (int32_t *)(image->bytes + slot->offset) + s;
        *word |= a->wrong[s];
    }
}

/* Lists without what has no slot, which is what attention takes; *room is the caller's. */
static kgen_status close_holes(kgen_attn_args *a, void **room, kgen_error *err) {
    kgen_tensor from = a->block_table, counts = a->seq_lens;
    int64_t rows = from.shape[0], row = from.stride[0];
    size_t before = (size_t)rows * sizeof(int64_t);
    *room = malloc(before + (size_t)(rows * row) * (size_t)kgen_dtype_size(from.dtype) + 1);
    if (!*room) return kgen_fail(err, KGEN_E_NOMEM, "case: out of memory");
    a->seq_lens.data = *room;
    a->block_table.data = (char *)*room + before;
    for (int64_t t = 0; t < rows; t++) {
        int64_t kept = 0, count = kgen__int_load(&counts, t);
        int inside = count <= from.shape[1]; /* else there are no keys */
        for (int64_t n = 0; !inside && n < from.shape[1]; n++)
            kgen__int_store(&a->block_table, t * row + n, kgen__int_load(&from, t * row + n));
        for (int64_t n = 0; inside && n < count; n++) {
            int64_t slot = kgen__int_load(&from, t * row + n);
            if (slot >= 0) kgen__int_store(&a->block_table, t * row + kept++, slot);
        }
        kgen__int_store(&a->seq_lens, t, inside ? kept : count);
    }
    return KGEN_OK;
}

/* attention's answer to what a launch finds. */
static kgen_status ask(kgen__attn_answer *a, const kgen_spec *spec, const kgen_mla_spec *s,
                       const kgen_mla_args *before, kgen_error *err) {
    kgen_attn_args attn;
    kgen_tensor pool = before->cache;
    void *lists = NULL;
    if (s->rows) {
        KGEN_TRY(kgen__mla_pool(&pool, s, &before->cache, err));
        kgen__mla_rows_read(&pool, s, &before->cache);
    }
    kgen__mla_attn_args(&attn, s, before, &pool);
    kgen_status status = s->sparse ? close_holes(&attn, &lists, err) : KGEN_OK;
    if (status == KGEN_OK) status = kgen__attn_reference(a, spec, &attn, err);
    if (s->rows) free(pool.data);
    free(lists);
    return status;
}

kgen_status kgen__mla_answer(kgen__answer *out, const kgen__data *data, kgen_error *err) {
    kgen_spec spec;
    kgen_args before;
    kgen_args_room room;
    kgen__attn_answer a;
    KGEN_TRY(kgen__answer_make(out, &before, &room, data, err));
    kgen__mla_attn_spec(&spec, &data->spec.mla);
    KGEN_TRY(ask(&a, &spec, &data->spec.mla, before.mla, err));
    for (int64_t token = 0; token < a.tokens; token++)
        for (int64_t head = 0; head < a.heads && a.claims[token]; head++) {
            expect_out(out, data, &a, token, head);
            if (spec.attn.lse) expect_lse(out, data, &a, token, head);
        }
    expect_errors(out, data, &a);
    kgen__attn_free(&a);
    return KGEN_OK;
}

/* The tensors of a case of kv_write. Pages of nobody, rows that are skipped and
 * rows past those with slots are poison; the caches are compared whole. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_kv.h"

typedef struct extents {
    kgen__cache_plan plan;
    int64_t tokens, entries; /* rows with slots, of the remap table */
} extents;

static int64_t pages_of(int64_t length, int64_t page) { return (length + page - 1) / page; }

static extents measure(const kgen__data *data) {
    const kgen__kv_write_case *c = &data->shape.kv_write;
    const kgen_kv_write_spec *s = &data->spec.kv_write;
    int64_t page = s->page == KGEN_PAGE_X16 ? c->kv.page : s->page;
    extents e = {{c->reserved + 1 + c->kv.extra, page, c->kv.hkv, s->head_dim, s->v_dim, c->kv.pad,
                  c->kv.packed},
                 c->kv.tail,
                 0};
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        e.tokens += c->lens[n].high;
        e.plan.pages += pages_of((int64_t)c->cached[n].high + c->lens[n].high, page);
    }
    if (s->remap) e.entries = 2 * e.plan.pages * page + 3;
    return e;
}

/* Rows of cos and sin are multiples of 16 bytes. */
static void pad_table(kgen_tensor *t, int64_t pad) {
    int64_t unit = 16 / kgen_dtype_size(t->dtype), over = t->shape[1] % unit;
    kgen__tensor_pad(t, (int64_t[]){(over ? unit - over : 0) + pad * unit, 0});
}

/* Of tokens, rows behind those with slots too. */
static void widen_rows(kgen__data *data, kgen_tensor *t) {
    const kgen__kv_write_case *c = &data->shape.kv_write;
    t->shape[0] += c->rows;
    kgen__kv_pad_rows(t, &c->kv, data->spec.kv_write.align);
}

static void shape_rope(kgen__data *data) {
    const kgen__kv_write_case *c = &data->shape.kv_write;
    const kgen_kv_write_spec *s = &data->spec.kv_write;
    kgen_kv_write_args *a = data->args.kv_write;
    if (!s->rope) return;
    pad_table(&a->cos, c->kv.pad);
    pad_table(&a->sin, 0);
    if (!s->rope_q) return;
    widen_rows(data, &a->q);
    a->q_out = a->q;
    if (!c->inplace) return;
    data->slot[W_Q].role = KGEN_USE_INOUT;
    data->slot[W_Q_OUT].view_of = W_Q;
}

/* Of scale=row, all heads may share an entry. */
static void shape_scale(kgen_tensor *t, const kgen__data *data, const extents *e, int32_t shape) {
    const kgen_kv_write_spec *s = &data->spec.kv_write;
    kgen__kv_scale(t, &e->plan, s->scale, shape, 0);
    if (s->scale != KGEN_DESCALE_ROW || !data->shape.kv_write.onescale) return;
    int head = t->layout == KGEN_LAYOUT_NHD ? 2 : 1;
    t->stride[head] = 0;
    t->stride[3 - head] = 1;
    t->stride[0] = e->plan.page;
}

/* The least that the spec allows, but no part of an element. */
static size_t offset_of(kgen__data *data, int slot) {
    size_t align = (size_t)data->spec.kv_write.align;
    size_t size = (size_t)kgen_dtype_size(kgen__slot_tensor(&data->args, slot)->dtype);
    return align > size ? align : size;
}

kgen_status kgen__kv_write_shape(kgen__data *data, kgen_error *err) {
    const kgen__kv_write_case *c = &data->shape.kv_write;
    kgen_kv_write_args *a = data->args.kv_write;
    extents e = measure(data);
    const kgen_arg_size sizes[] = {{"T", e.tokens},
                                   {"Hkv", c->kv.hkv},
                                   {"Hq", (int64_t)c->kv.hkv * c->qh},
                                   {"entries", e.entries},
                                   {"positions", c->positions}};
    KGEN_TRY(kgen__data_shape(data, sizes, sizeof sizes / sizeof sizes[0], 0, err));
    widen_rows(data, &a->k);
    widen_rows(data, &a->v);
    kgen__cache_shape(&a->k_cache, &e.plan, KGEN__SIDE_K);
    kgen__cache_shape(&a->v_cache, &e.plan, KGEN__SIDE_V);
    shape_scale(&a->k_scale, data, &e, c->kv.kds);
    shape_scale(&a->v_scale, data, &e, c->kv.vds);
    a->first_slot = c->reserved * e.plan.page;
    shape_rope(data);
    static const int movable[] = {W_K, W_V, W_K_CACHE, W_V_CACHE, W_COS, W_SIN, W_Q, W_Q_OUT};
    for (size_t i = 0; i < sizeof movable / sizeof movable[0]; i++)
        data->slot[movable[i]].offset = !c->kv.off ? 0
                                        : movable[i] == W_COS || movable[i] == W_SIN
                                            ? 16
                                            : offset_of(data, movable[i]);
    if (data->spec.kv_write.scale == KGEN_DESCALE_BLOCK)
        kgen__kv_blocks(data, &e.plan, W_K_CACHE, W_V_CACHE, W_V_SCALE);
    else
        kgen__cache_pack(data, &e.plan, W_K_CACHE, W_V_CACHE);
    return KGEN_OK;
}

/* ---- slots ------------------------------------------------------------------- */

typedef struct filler {
    kgen__data *data;
    kgen_kv_write_args *a;
    const int32_t *lens;
    uint64_t seed;
    int64_t page, pool, first_page, tokens; /* tokens: of sequences */
    int64_t *order;                         /* pages */
    int64_t *slots;                         /* of rows, before the remap */
} filler;

static kgen__rng stream(const filler *f, int slot) {
    kgen__rng rng;
    kgen__rng_seed(&rng, f->seed, (uint64_t)slot + 1);
    return rng;
}

/* Pages that are not reserved, dealt in random order; a sequence's new tokens
 * follow each other in its pages. */
static void deal_slots(filler *f) {
    const kgen__kv_write_case *c = &f->data->shape.kv_write;
    int64_t row = 0, dealt = 0;
    for (int32_t n = 0; n < f->data->shape.seqs; n++) {
        for (int64_t i = 0; i < f->lens[n]; i++, row++) {
            int64_t at = c->cached[n].high + i;
            f->slots[row] = f->order[dealt + at / f->page] * f->page + at % f->page;
        }
        dealt += pages_of((int64_t)c->cached[n].high + c->lens[n].high, f->page);
    }
    f->tokens = row;
}

static void spread_slots(filler *f) {
    kgen__rng rng = stream(f, W_SLOTS);
    for (int64_t i = f->tokens - 1; f->data->shape.kv_write.spread && i > 0; i--) {
        int64_t j = kgen__rng_range(&rng, 0, i), kept = f->slots[i];
        f->slots[i] = f->slots[j];
        f->slots[j] = kept;
    }
}

/* Below 0, past the pool, reserved: whatever means that a row is skipped. */
static int64_t no_slot(const filler *f, kgen__rng *rng) {
    int64_t end = f->pool * f->page, reserved = f->a->first_slot;
    const int64_t some[] = {-1, -1, -1, end, end + 5, INT32_MAX, INT32_MIN, -2};
    const int64_t wide[] = {(int64_t)1 << 32, -((int64_t)1 << 40), INT64_MIN, INT64_MAX};
    if (reserved > 0 && kgen__chance(rng, 3)) return kgen__rng_range(rng, 0, reserved - 1);
    if (f->a->slots.dtype == KGEN_DTYPE_I64 && !f->a->remap.data && kgen__chance(rng, 2))
        return wide[kgen__rng_range(rng, 0, 3)];
    return some[kgen__rng_range(rng, 0, 7)];
}

static void skip_slots(filler *f) {
    kgen__rng rng = stream(f, W_Q_OUT);
    for (int64_t i = 0; i < f->a->slots.shape[0]; i++)
        if (i >= f->tokens || kgen__chance(&rng, f->data->shape.kv_write.skips))
            f->slots[i] = no_slot(f, &rng);
}

/* A row's slot becomes an entry of the table that leads to it. Entries of nobody
 * lead to sentinels; rows that are skipped may also lie outside the table. */
static kgen_status remap_slots(filler *f, kgen_error *err) {
    kgen_tensor *t = &f->a->remap;
    kgen__rng rng = stream(f, W_REMAP);
    int64_t *order, outside[] = {-1, -7, t->shape[0], t->shape[0] + 9, INT32_MAX, INT32_MIN};
    if (!t->data) return KGEN_OK;
    KGEN_TRY(kgen__kv_shuffled(&order, &rng, t->shape[0], err));
    for (int64_t i = 0; i < t->shape[0]; i++) kgen__int_store(t, i, kgen__chance(&rng, 4) ? 0 : -1);
    for (int64_t i = 0; i < t->shape[0] && f->a->first_slot == 0; i++) kgen__int_store(t, i, -1);
    for (int64_t i = 0; i < f->a->slots.shape[0]; i++) {
        int64_t end = f->pool * f->page, slot = f->slots[i];
        int skipped = slot < f->a->first_slot || slot >= end;
        kgen__int_store(t, order[i], slot);
        f->slots[i] =
            skipped && kgen__chance(&rng, 4) ? outside[kgen__rng_range(&rng, 0, 5)] : order[i];
    }
    free(order);
    return KGEN_OK;
}

static kgen_status fill_slots(filler *f, kgen_error *err) {
    deal_slots(f);
    spread_slots(f);
    skip_slots(f);
    KGEN_TRY(remap_slots(f, err));
    for (int64_t i = 0; i < f->a->slots.shape[0]; i++)
        kgen__int_store(&f->a->slots, i, f->slots[i]);
    return KGEN_OK;
}

/* ---- numbers ------------------------------------------------------------------- */

static void cover(filler *f, int index) {
    kgen__rng rng = stream(f, KGEN__KV_WRITE_SLOTS + index);
    kgen__slot_cover(f->data, index, &rng, f->data->shape.kv_write.kv.poison);
}

/* Mostly normal; now and then a zero, what saturates, an infinity, a NaN. */
static double random_element(const filler *f, kgen__rng *rng) {
    static const double extremes[] = {0.0,   -0.0,     3e4,       -3e4,  1e-7, 1e30,
                                      -1e30, INFINITY, -INFINITY, 1e-30, NAN};
    enum { EXTREMES = sizeof extremes / sizeof extremes[0] };
    double std = f->data->shape.kv_write.xstd;
    if (f->data->shape.kv_write.extremes && kgen__rng_range(rng, 0, 99) == 0)
        return extremes[kgen__rng_range(rng, 0, EXTREMES - 1)];
    return std * kgen__rng_normal(rng);
}

static void fill_rows(filler *f, int index) {
    kgen_tensor *t = kgen__slot_tensor(&f->data->args, index);
    kgen__rng rng = stream(f, index);
    int64_t rows = index == W_Q ? f->a->slots.shape[0] : f->tokens; /* q: skipped ones too */
    cover(f, index);
    for (int64_t row = 0; t->data && row < rows; row++)
        for (int64_t head = 0; head < t->shape[1]; head++) {
            int64_t first = row * t->stride[0] + head * t->stride[1];
            double scale = kgen__chance(&rng, 1) ? 1e-3 : 1;
            for (int64_t i = 0; i < t->shape[2]; i++)
                kgen__number_store(t->dtype, t->data, first + i, scale * random_element(f, &rng));
        }
}

static void fill_scale(filler *f, int index) {
    kgen_tensor *t = kgen__slot_tensor(&f->data->args, index);
    kgen__rng rng = stream(f, index);
    double most = kgen__number_max((kgen_dtype)f->data->spec.kv_write.kv);
    if (!t->data) return;
    cover(f, index);
    for (int64_t i = 0; t->rank == 1 && i < t->shape[0]; i++)
        kgen__number_store(KGEN_DTYPE_F32, t->data, i,
                           (0.5 + kgen__rng_uniform(&rng)) * (most < 200 ? 0.05 : 0.02));
}

/* Positions outside the table now and then. */
static void fill_rope(filler *f) {
    kgen_kv_write_args *a = f->a;
    kgen__rng rng = stream(f, W_POSITIONS);
    if (!a->positions.data) return;
    cover(f, W_COS);
    cover(f, W_SIN);
    for (int64_t i = 0; i < a->positions.shape[0]; i++) {
        const int64_t bad[] = {-1, a->cos.shape[0], INT32_MAX, INT32_MIN};
        kgen__int_store(&a->positions, i,
                        kgen__rng_range(&rng, 0, 15) == 0
                            ? bad[kgen__rng_range(&rng, 0, 3)]
                            : kgen__rng_range(&rng, 0, a->cos.shape[0] - 1));
    }
    for (int64_t p = 0; p < a->cos.shape[0]; p++)
        for (int64_t i = 0; i < a->cos.shape[1]; i++) {
            double angle = 6.283 * kgen__rng_uniform(&rng);
            kgen__number_store(a->cos.dtype, a->cos.data, p * a->cos.stride[0] + i, cos(angle));
            kgen__number_store(a->sin.dtype, a->sin.data, p * a->sin.stride[0] + i, sin(angle));
        }
}

static kgen_status fill(kgen__data *data, const int32_t *lens, uint64_t seed, kgen_error *err) {
    const kgen__kv_write_case *c = &data->shape.kv_write;
    extents e = measure(data);
    filler f = {.data = data,
                .a = data->args.kv_write,
                .lens = lens,
                .seed = seed,
                .page = e.plan.page,
                .pool = e.plan.pages,
                .first_page = c->reserved};
    kgen__rng rng = stream(&f, W_K_CACHE);
    KGEN_TRY(kgen__kv_shuffled(&f.order, &rng, f.pool - f.first_page, err));
    for (int64_t i = 0; i < f.pool - f.first_page; i++) f.order[i] += f.first_page;
    f.slots = malloc((size_t)(e.tokens + 1) * sizeof *f.slots);
    kgen_status status =
        f.slots ? fill_slots(&f, err) : kgen_fail(err, KGEN_E_NOMEM, "slots: out of memory");
    free(f.order);
    free(f.slots);
    KGEN_TRY(status);
    for (int i = W_K_CACHE; i <= W_V_CACHE; i++) cover(&f, i);
    fill_rows(&f, W_K);
    fill_rows(&f, W_V);
    fill_rows(&f, W_Q);
    fill_scale(&f, W_K_SCALE);
    fill_scale(&f, W_V_SCALE);
    fill_rope(&f);
    kgen__data_remember(data);
    kgen__data_poison_outputs(data);
    return KGEN_OK;
}

kgen_status kgen__kv_write_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX];
    for (int32_t n = 0; n < data->shape.seqs; n++) lens[n] = data->shape.kv_write.lens[n].high;
    return fill(data, lens, seed, err);
}

/* Batches that shrink and grow again: the rows past them are skipped. */
kgen_status kgen__kv_write_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX];
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        int32_t most = data->shape.kv_write.lens[n].high;
        lens[n] = kgen__chance(rng, 3) ? most : (int32_t)kgen__rng_range(rng, 0, most);
    }
    return fill(data, lens, kgen__rng_next(rng), err);
}

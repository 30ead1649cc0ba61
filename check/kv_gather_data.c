/* The tensors of a case of kv_gather. Tokens that no row asks for, pages of
 * nobody and table entries past a sequence are poison. */
#include <stdlib.h>
#include <string.h>

#include "check_kv.h"

typedef struct extents {
    kgen__cache_plan plan;
    int64_t rows, columns;
} extents;

static int64_t pages_of(int64_t length, int64_t page) { return (length + page - 1) / page; }

static extents measure(const kgen__data *data) {
    const kgen__kv_gather_case *c = &data->shape.kv_gather;
    const kgen_kv_gather_spec *s = &data->spec.kv_gather;
    int64_t page = s->page == KGEN_PAGE_X16 ? c->kv.page : s->page;
    extents e = {{1 + c->kv.extra, page, c->kv.hkv, s->head_dim, s->v_dim, c->kv.pad, c->kv.packed},
                 c->kv.tail,
                 1};
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        int64_t pages = pages_of(c->cached[n].high, page);
        e.rows += c->lens[n].high;
        e.plan.pages += pages;
        if (pages > e.columns) e.columns = pages;
    }
    e.columns += c->cols;
    return e;
}

kgen_status kgen__kv_gather_shape(kgen__data *data, kgen_error *err) {
    const kgen__kv_gather_case *c = &data->shape.kv_gather;
    const kgen_kv_gather_spec *s = &data->spec.kv_gather;
    kgen_kv_gather_args *a = data->args.kv_gather;
    extents e = measure(data);
    int64_t seqs = data->shape.seqs;
    const kgen_arg_size sizes[] = {
        {"S", seqs}, {"S+1", seqs + 1}, {"R", e.rows}, {"Hkv", c->kv.hkv}, {"pages", e.columns}};
    if (!c->nostart && s->from == KGEN_FROM_END)
        for (int32_t n = 0; n < data->shape.seqs; n++)
            if (c->starts[n].high) return kgen_fail(err, KGEN_E_ARG, "starts: from=end has none");
    KGEN_TRY(kgen__data_shape(data, sizes, sizeof sizes / sizeof sizes[0],
                              c->nostart ? (uint64_t)1 << G_STARTS : 0, err));
    kgen__cache_shape(&a->k_cache, &e.plan, KGEN__SIDE_K);
    kgen__cache_shape(&a->v_cache, &e.plan, KGEN__SIDE_V);
    kgen__kv_scale(&a->k_descale, &e.plan, s->descale, c->kv.kds, seqs);
    kgen__kv_scale(&a->v_descale, &e.plan, s->descale, c->kv.vds, seqs);
    kgen__tensor_pad(&a->block_table, (int64_t[]){c->idxpad, 0});
    kgen__kv_pad_rows(&a->k, &c->kv, s->align);
    kgen__kv_pad_rows(&a->v, &c->kv, s->align);
    static const int movable[] = {G_K_CACHE, G_V_CACHE, G_K, G_V};
    for (size_t i = 0; i < sizeof movable / sizeof movable[0]; i++)
        data->slot[movable[i]].offset = c->kv.off ? (size_t)s->align : 0;
    if (s->descale == KGEN_DESCALE_BLOCK)
        kgen__kv_blocks(data, &e.plan, G_K_CACHE, G_V_CACHE, G_V_DESCALE);
    else
        kgen__cache_pack(data, &e.plan, G_K_CACHE, G_V_CACHE);
    return KGEN_OK;
}

/* ---- contents ---------------------------------------------------------------- */

typedef struct filler {
    kgen__data *data;
    kgen_kv_gather_args *a;
    const int32_t *lens, *cached, *starts;
    uint64_t seed;
    int64_t page, pages;
    int64_t *order;
} filler;

static kgen__rng stream(const filler *f, int slot) {
    kgen__rng rng;
    kgen__rng_seed(&rng, f->seed, (uint64_t)slot + 1);
    return rng;
}

static void cover(filler *f, int index) {
    kgen__rng rng = stream(f, KGEN__KV_GATHER_SLOTS + index);
    kgen__slot_cover(f->data, index, &rng, f->data->shape.kv_gather.kv.poison);
}

static void fill_lengths(filler *f) {
    int64_t row = 0;
    for (int32_t n = 0; n < f->data->shape.seqs; n++) {
        kgen__int_store(&f->a->cu_seqlens, n, row);
        kgen__int_store(&f->a->seq_lens, n, f->cached[n]);
        if (f->a->starts.data) kgen__int_store(&f->a->starts, n, f->starts[n]);
        row += f->lens[n];
    }
    kgen__int_store(&f->a->cu_seqlens, f->data->shape.seqs, row);
}

/* Entries past a sequence, and between rows, lead nowhere. */
static void fill_table(filler *f) {
    kgen_tensor *t = &f->a->block_table;
    kgen__rng rng = stream(f, G_TABLE);
    const int64_t nowhere[] = {-1, INT32_MAX, INT32_MIN, f->pages};
    size_t entries = kgen__tensor_bytes(t) / (size_t)kgen_dtype_size(t->dtype);
    int64_t dealt = 0;
    for (size_t i = 0; i < entries; i++)
        kgen__int_store(t, (int64_t)i, nowhere[kgen__rng_range(&rng, 0, 3)]);
    for (int32_t n = 0; n < f->data->shape.seqs; n++)
        for (int64_t i = 0; i < pages_of(f->cached[n], f->page); i++)
            kgen__int_store(t, n * t->stride[0] + i, f->order[dealt++]);
}

/* Any code that is a number. */
static uint32_t random_code(kgen_dtype kv, kgen__rng *rng) {
    if (kgen_dtype_size(kv) == 2) return kgen__number_encode(kv, kgen__rng_normal(rng));
    uint32_t code = (uint32_t)kgen__rng_next(rng) & 0xffu;
    float value = kgen__number_decode(kv, code);
    return value - value == 0 ? code : 0x11;
}

static void fill_token(filler *f, kgen__rng *rng, int index, kgen__cache_at at) {
    kgen_tensor *t = kgen__slot_tensor(&f->data->args, index);
    const kgen_kv_gather_spec *s = &f->data->spec.kv_gather;
    kgen__cache_side side = index == G_K_CACHE ? KGEN__SIDE_K : KGEN__SIDE_V;
    kgen_tensor *scale = side == KGEN__SIDE_K ? &f->a->k_descale : &f->a->v_descale;
    int64_t dim = side == KGEN__SIDE_K ? s->head_dim : s->v_dim;
    int size = kgen_dtype_size(t->dtype);
    for (at.head = 0; at.head < f->data->shape.kv_gather.kv.hkv; at.head++) {
        for (int64_t d = 0; d < dim; d++) {
            uint16_t code = (uint16_t)random_code(t->dtype, rng);
            int64_t element = kgen__cache_index(t, side, at, d) / kgen_dtype_values(t->dtype);
            memcpy((char *)t->data + element * size, &code, (size_t)size);
        }
        if (scale->rank == 3)
            kgen__number_store(KGEN_DTYPE_F32, scale->data, kgen__descale_index(scale, at, 0),
                               0.01 + kgen__rng_uniform(rng));
        for (int64_t i = 0; scale->rank == 4 && i < scale->shape[3]; i++)
            kgen__number_store(KGEN_DTYPE_F32, scale->data,
                               at.page * scale->stride[0] + at.slot * scale->stride[1] +
                                   at.head * scale->stride[2] + i,
                               0.01 + kgen__rng_uniform(rng));
    }
}

/* The tokens that rows ask for. */
static void fill_cache(filler *f) {
    kgen__rng k = stream(f, G_K_CACHE), v = stream(f, G_V_CACHE);
    for (int32_t n = 0; n < f->data->shape.seqs; n++) {
        int end = f->data->spec.kv_gather.from == KGEN_FROM_END;
        int64_t first = end ? f->cached[n] - f->lens[n] : f->a->starts.data ? f->starts[n] : 0;
        for (int64_t token = first; token < first + f->lens[n] && token < f->cached[n]; token++) {
            if (token < 0) continue;
            int64_t entry = n * f->a->block_table.stride[0] + token / f->page;
            kgen__cache_at at = {kgen__int_load(&f->a->block_table, entry), token % f->page, 0};
            fill_token(f, &k, G_K_CACHE, at);
            fill_token(f, &v, G_V_CACHE, at);
        }
    }
}

static void fill_descale(filler *f, int index) {
    kgen_tensor *t = kgen__slot_tensor(&f->data->args, index);
    kgen__rng rng = stream(f, index);
    if (!t->data) return;
    cover(f, index);
    int64_t count = (int64_t)kgen__tensor_bytes(t) / 4;
    for (int64_t i = 0; t->rank < 3 && i < count; i++)
        kgen__number_store(KGEN_DTYPE_F32, t->data, i, 0.01 + kgen__rng_uniform(&rng));
}

static kgen_status fill(kgen__data *data, const int32_t *lens, const int32_t *cached,
                        const int32_t *starts, uint64_t seed, kgen_error *err) {
    extents e = measure(data);
    filler f = {.data = data,
                .a = data->args.kv_gather,
                .lens = lens,
                .cached = cached,
                .starts = starts,
                .seed = seed,
                .page = e.plan.page,
                .pages = e.plan.pages};
    kgen__rng rng = stream(&f, G_K);
    KGEN_TRY(kgen__kv_shuffled(&f.order, &rng, f.pages, err));
    cover(&f, G_K_CACHE);
    cover(&f, G_V_CACHE);
    fill_descale(&f, G_K_DESCALE);
    fill_descale(&f, G_V_DESCALE);
    fill_lengths(&f);
    fill_table(&f);
    fill_cache(&f);
    free(f.order);
    kgen__data_poison_outputs(data);
    return KGEN_OK;
}

kgen_status kgen__kv_gather_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX], cached[KGEN__CASE_SEQS_MAX], starts[KGEN__CASE_SEQS_MAX];
    const kgen__kv_gather_case *c = &data->shape.kv_gather;
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        lens[n] = c->lens[n].high;
        cached[n] = c->cached[n].high;
        starts[n] = c->starts[n].high;
    }
    return fill(data, lens, cached, starts, seed, err);
}

kgen_status kgen__kv_gather_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX], cached[KGEN__CASE_SEQS_MAX], starts[KGEN__CASE_SEQS_MAX];
    const kgen__kv_gather_case *c = &data->shape.kv_gather;
    int64_t left = data->args.kv_gather->k.shape[0];
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        cached[n] = (int32_t)kgen__rng_range(rng, 0, c->cached[n].high);
        lens[n] = (int32_t)kgen__rng_range(rng, 0, left < cached[n] + 3 ? left : cached[n] + 3);
        starts[n] = (int32_t)kgen__rng_range(rng, 0, cached[n]);
        left -= lens[n];
    }
    return fill(data, lens, cached, starts, kgen__rng_next(rng), err);
}

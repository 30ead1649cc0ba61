/* The references of kv_write and kv_gather, an element at a time, from the
 * formulas in their argument headers. Both are exact: every byte of the caches,
 * scales and rows is expected to be what it is here, but for the sign of a gathered zero. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "check_kv.h"

typedef struct world {
    const kgen__data *data;
    kgen__answer *answer;
    kgen_args args; /* of what a launch finds */
    kgen_args_room room;
} world;

/* Element `index` of slot `slot` must have these bits. */
static void expect(const world *w, int slot, int64_t index, uint32_t bits) {
    const kgen__slot *s = &w->data->slot[slot];
    kgen_dtype dtype = kgen__slot_tensor(&w->data->args, slot)->dtype;
    int size = kgen_dtype_size(dtype), values = kgen_dtype_values(dtype);
    unsigned char *at = w->answer->image[s->view_of].bytes + s->offset + index / values * size;
    if (values > 1) bits = index % 2 ? (*at & 15u) | bits << 4 : (*at & 0xf0u) | bits;
    for (int i = 0; i < size; i++) at[i] = (unsigned char)(bits >> 8 * i);
}

/* Zero of either sign: AMD's compiler rounds a product to fp16 by an fma that adds +0. */
static void expect_a_zero(const world *w, int slot, int64_t index) {
    kgen__image *image = &w->answer->image[w->data->slot[slot].view_of];
    image->want[index] = 0;
    image->tolerance[index] = 0;
}

/* What is computed: where that is no number, any NaN, since nobody says which one comes out of a
 * rotation or a rounding. */
static void expect_result(const world *w, int slot, int64_t index, uint32_t bits) {
    const kgen__slot *s = &w->data->slot[slot];
    kgen_dtype dtype = kgen__slot_tensor(&w->data->args, slot)->dtype;
    kgen__image *image = &w->answer->image[s->view_of];
    expect(w, slot, index, bits);
    if (kgen_dtype_values(dtype) > 1 || !isnan(kgen__number_decode(dtype, bits))) return;
    index += (int64_t)(s->offset - image->offset) / kgen_dtype_size(dtype);
    image->want[index] = NAN;
    image->tolerance[index] = 0;
}

static void expect_float(const world *w, int slot, int64_t index, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    expect(w, slot, index, bits);
}

static uint32_t bits_at(const kgen_tensor *t, int64_t index) {
    int size = kgen_dtype_size(t->dtype), values = kgen_dtype_values(t->dtype);
    uint32_t bits = 0;
    memcpy(&bits, (const char *)t->data + index / values * size, (size_t)size);
    return bits >> (index % values * 4);
}

/* ---- kv_write: one row ---------------------------------------------------------- */

enum { MOST_DIMS = 1024, BLOCK = 128 };

typedef struct row_t {
    int64_t row, slot;
    kgen__cache_at at;
} row_t;

static int64_t slot_of(const kgen_kv_write_args *a, int64_t row, int64_t page) {
    int64_t n = kgen__int_load(&a->slots, row);
    if (a->remap.data) {
        if (n < 0 || n >= a->remap.shape[0]) return -1;
        n = kgen__int_load(&a->remap, n);
    }
    return n < a->first_slot || n < 0 || n >= a->k_cache.shape[0] * page ? -1 : n;
}

static float entry_of(const kgen_tensor *t, int64_t row, int64_t column) {
    return (float)kgen__number_load(t->dtype, t->data, row * t->stride[0] + column);
}

/* The elements of a head, rotated where they do. 0: outside the tables. */
static int elements_of(uint32_t out[MOST_DIMS], const world *w, const kgen_tensor *t, int64_t row,
                       int64_t head, int rotates) {
    const kgen_kv_write_spec *s = &w->data->spec.kv_write;
    const kgen_kv_write_args *a = w->args.kv_write;
    int64_t first = row * t->stride[0] + head * t->stride[1], half = s->rope_dim / 2;
    for (int64_t d = 0; d < t->shape[2]; d++) out[d] = bits_at(t, first + d);
    if (!rotates) return 1;
    int64_t p = kgen__int_load(&a->positions, row);
    if (p < 0 || p >= a->cos.shape[0]) return 0;
    for (int64_t i = 0; i < half; i++) {
        int64_t low = s->rope == KGEN_ROPE_NEOX ? i : 2 * i;
        int64_t high = s->rope == KGEN_ROPE_NEOX ? i + half : 2 * i + 1;
        float x = kgen__number_decode(t->dtype, out[low]);
        float y = kgen__number_decode(t->dtype, out[high]);
        int64_t at[] = {s->table_full ? low : i, s->table_full ? high : i};
        float yn = y * entry_of(&a->sin, p, at[0]), xn = x * entry_of(&a->sin, p, at[1]);
        out[low] = kgen__number_encode(t->dtype, (double)fmaf(x, entry_of(&a->cos, p, at[0]), -yn));
        out[high] = kgen__number_encode(t->dtype, (double)fmaf(y, entry_of(&a->cos, p, at[1]), xn));
    }
    return 1;
}

static float amax_of(const uint32_t *elements, int64_t count, kgen_dtype dtype, float amax) {
    for (int64_t d = 0; d < count; d++) {
        float value = fabsf(kgen__number_decode(dtype, elements[d]));
        if (value > amax) amax = value;
    }
    return amax;
}

static float scale_for(int32_t kv, float amax) {
    float scale = fminf(amax, FLT_MAX) / (float)kgen__number_max((kgen_dtype)kv);
    return fmaxf(scale, 1e-6f);
}

static float block_scale(const kgen_kv_write_spec *s, float amax) {
    int exponent;
    if (!s->pow2) return scale_for(s->kv, amax);
    float quotient = fminf(amax, FLT_MAX) / (float)kgen__number_max((kgen_dtype)s->kv);
    float part = frexpf(quotient, &exponent); /* in [0.5, 1), or 0 */
    return fmaxf(ldexpf(1, part == 0.5f ? exponent - 1 : exponent), 0x1p-13f);
}

/* The scale of the block that element d of a head lies in. */
static int64_t block_index(const kgen_tensor *t, kgen__cache_at at, int64_t d) {
    return at.page * t->stride[0] + at.slot * t->stride[1] + at.head * t->stride[2] +
           d / BLOCK * t->stride[3];
}

static void write_blocks(const world *w, kgen__cache_at at, const uint32_t *x) {
    const kgen_kv_write_spec *s = &w->data->spec.kv_write;
    const kgen_kv_write_args *a = w->args.kv_write;
    for (int64_t d = 0; d < s->v_dim; d++) {
        float scale = block_scale(s, amax_of(x + d / BLOCK * BLOCK, BLOCK, a->v.dtype, 0));
        double value = (double)(kgen__number_decode(a->v.dtype, x[d]) / scale);
        expect_float(w, W_V_SCALE, block_index(&a->v_scale, at, d), scale);
        expect(w, W_V_CACHE, kgen__cache_index(&a->v_cache, KGEN__SIDE_V, at, d),
               kgen__number_encode((kgen_dtype)s->kv, value));
    }
}

static void write_side(const world *w, const row_t *r, kgen__cache_side side) {
    const kgen_kv_write_spec *s = &w->data->spec.kv_write;
    const kgen_kv_write_args *a = w->args.kv_write;
    int v = side == KGEN__SIDE_V, rotates = s->rope && !v;
    const kgen_tensor *t = v ? &a->v : &a->k, *cache = v ? &a->v_cache : &a->k_cache;
    const kgen_tensor *scales = v ? &a->v_scale : &a->k_scale;
    uint32_t x[MOST_DIMS];
    float all = 0;
    for (int64_t head = 0; head < t->shape[1]; head++)
        if (elements_of(x, w, t, r->row, head, rotates))
            all = amax_of(x, t->shape[2], t->dtype, all);
    for (int64_t head = 0; head < t->shape[1]; head++) {
        kgen__cache_at at = {r->at.page, r->at.slot, head};
        float scale = 1;
        if (!elements_of(x, w, t, r->row, head, rotates)) return;
        if (v && s->scale == KGEN_DESCALE_BLOCK) {
            write_blocks(w, at, x);
            continue;
        }
        if (s->scale == KGEN_DESCALE_HEAD)
            scale = (float)kgen__number_load(KGEN_DTYPE_F32, scales->data,
                                             kgen__descale_index(scales, at, 0));
        if (s->scale == KGEN_DESCALE_ROW) scale = scale_for(s->kv, all);
        if (s->scale == KGEN_DESCALE_TOKEN)
            scale = scale_for(s->kv, amax_of(x, t->shape[2], t->dtype, 0));
        if (s->scale == KGEN_DESCALE_ROW || s->scale == KGEN_DESCALE_TOKEN)
            expect_float(w, W_K_SCALE + v, kgen__descale_index(scales, at, 0), scale);
        for (int64_t d = 0; d < t->shape[2]; d++) {
            uint32_t code = x[d];
            int64_t at_code = kgen__cache_index(cache, side, at, d);
            if (s->kv != s->x && s->scale != KGEN_DESCALE_BLOCK)
                code = kgen__number_encode((kgen_dtype)s->kv,
                                           (double)(kgen__number_decode(t->dtype, x[d]) / scale));
            if ((rotates && d < s->rope_dim) || s->x == KGEN_DTYPE_F32)
                expect_result(w, W_K_CACHE + v, at_code, code);
            else
                expect(w, W_K_CACHE + v, at_code, code);
        }
    }
}

static void rotate_query(const world *w, int64_t row) {
    const kgen_kv_write_args *a = w->args.kv_write;
    uint32_t x[MOST_DIMS];
    for (int64_t head = 0; head < a->q.shape[1]; head++) {
        int inside = elements_of(x, w, &a->q, row, head, 1);
        for (int64_t d = 0; d < a->q.shape[2]; d++)
            expect_result(w, W_Q_OUT, row * a->q_out.stride[0] + head * a->q_out.stride[1] + d,
                          inside ? x[d] : 0);
    }
}

kgen_status kgen__kv_write_reference(kgen__answer *answer, const kgen__data *data,
                                     kgen_error *err) {
    world w = {.data = data, .answer = answer};
    kgen_status status = kgen__answer_make(answer, &w.args, &w.room, data, err);
    const kgen_kv_write_args *a = w.args.kv_write;
    int64_t page = kgen__cache_page(&a->k_cache);
    for (int64_t row = 0; status == KGEN_OK && row < a->slots.shape[0]; row++) {
        int64_t slot = slot_of(a, row, page);
        row_t r = {row, slot, {slot / page, slot % page, 0}};
        if (slot >= 0) write_side(&w, &r, KGEN__SIDE_K);
        if (slot >= 0) write_side(&w, &r, KGEN__SIDE_V);
        if (data->spec.kv_write.rope_q) rotate_query(&w, row);
    }
    if (status != KGEN_OK) kgen__answer_free(answer);
    return status;
}

/* ---- kv_gather ------------------------------------------------------------------ */

/* Where the token of a row is; page -1 where the row is zeros. */
static kgen__cache_at token_at(const world *w, int64_t row, int64_t *seq) {
    const kgen_kv_gather_args *a = w->args.kv_gather;
    int64_t page = kgen__cache_page(&a->k_cache), n = 0, seqs = a->seq_lens.shape[0];
    kgen__cache_at none = {-1, 0, 0};
    while (n < seqs && row >= kgen__int_load(&a->cu_seqlens, n + 1)) n++;
    *seq = n;
    if (n == seqs) return none;
    int64_t first = kgen__int_load(&a->cu_seqlens, n), cached = kgen__int_load(&a->seq_lens, n);
    int64_t count = kgen__int_load(&a->cu_seqlens, n + 1) - first;
    if (row < first) return none; /* before the first sequence */
    int64_t start = a->starts.data ? kgen__int_load(&a->starts, n) : 0;
    if (w->data->spec.kv_gather.from == KGEN_FROM_END) start = cached - count;
    int64_t token = start + row - first, column = token / page;
    if (token < 0 || token >= cached || column >= a->block_table.shape[1]) return none;
    int64_t number = kgen__int_load(&a->block_table, n * a->block_table.stride[0] + column);
    if (number < 0 || number >= a->k_cache.shape[0]) return none;
    return (kgen__cache_at){number, token % page, 0};
}

static void gather_side(const world *w, int64_t row, kgen__cache_at at, int64_t seq,
                        kgen__cache_side side) {
    const kgen_kv_gather_args *a = w->args.kv_gather;
    int v = side == KGEN__SIDE_V;
    const kgen_tensor *out = v ? &a->v : &a->k, *cache = v ? &a->v_cache : &a->k_cache;
    const kgen_tensor *scales = v ? &a->v_descale : &a->k_descale;
    for (at.head = 0; at.head < out->shape[1]; at.head++) {
        int64_t first = row * out->stride[0] + at.head * out->stride[1];
        float scale = 1;
        int blocks = w->data->spec.kv_gather.descale == KGEN_DESCALE_BLOCK;
        if (scales->data && at.page >= 0 && !blocks)
            scale = (float)kgen__number_load(KGEN_DTYPE_F32, scales->data,
                                             kgen__descale_index(scales, at, seq));
        for (int64_t d = 0; d < out->shape[2]; d++) {
            uint32_t bits = 0;
            if (at.page >= 0) bits = bits_at(cache, kgen__cache_index(cache, side, at, d));
            if (at.page >= 0 && blocks && v)
                scale = (float)kgen__number_load(KGEN_DTYPE_F32, scales->data,
                                                 block_index(scales, at, d));
            if (at.page >= 0 && kgen_dtype_size(cache->dtype) == 1) {
                float value = kgen__number_decode(cache->dtype, bits) * scale;
                bits = kgen__number_encode(out->dtype, (double)value);
                if (value == 0) expect_a_zero(w, G_K + v, first + d);
            }
            expect(w, G_K + v, first + d, bits);
        }
    }
}

kgen_status kgen__kv_gather_reference(kgen__answer *answer, const kgen__data *data,
                                      kgen_error *err) {
    world w = {.data = data, .answer = answer};
    kgen_status status = kgen__answer_make(answer, &w.args, &w.room, data, err);
    for (int64_t row = 0; status == KGEN_OK && row < w.args.kv_gather->k.shape[0]; row++) {
        int64_t seq = 0;
        kgen__cache_at at = token_at(&w, row, &seq);
        gather_side(&w, row, at, seq, KGEN__SIDE_K);
        gather_side(&w, row, at, seq, KGEN__SIDE_V);
    }
    if (status != KGEN_OK) kgen__answer_free(answer);
    return status;
}

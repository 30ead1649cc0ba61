/* The tensors of a case of attn_merge. What lies between rows is poison, and so is
 * the data of parts that say of no keys. */
#include <math.h>

#include "check_attn_merge.h"

/* ---- where things are -------------------------------------------------------- */

int64_t kgen__merge_parts(const kgen_spec *spec, const kgen_attn_merge_args *a) {
    return spec->attn_merge.parts == KGEN_PARTS_STACK ? a->stacked.shape[0] : 2;
}

kgen__merge_part kgen__merge_part_of(const kgen_spec *spec, const kgen_attn_merge_args *a,
                                     int64_t n) {
    if (spec->attn_merge.parts == KGEN_PARTS_STACK)
        return (kgen__merge_part){&a->stacked, &a->stacked_lse, n * a->stacked.stride[0],
                                  n * a->stacked_lse.stride[0]};
    return (kgen__merge_part){n ? &a->suffix : &a->prefix, n ? &a->suffix_lse : &a->prefix_lse, 0,
                              0};
}

int64_t kgen__merge_row(const kgen_tensor *t, int64_t token, int64_t head) {
    return token * t->stride[t->rank - 3] + head * t->stride[t->rank - 2];
}

int64_t kgen__merge_sum(const kgen_spec *spec, const kgen_tensor *t, int64_t token, int64_t head) {
    int th = spec->attn_merge.lse == KGEN_LSE_TH;
    return (th ? token : head) * t->stride[t->rank - 2] + (th ? head : token);
}

/* ---- shape ------------------------------------------------------------------- */

enum { UNIT = 8 }; /* elements that paddings are counted in */

static void pad_rows(kgen_tensor *t, const kgen__attn_merge_case *c) {
    int token = t->rank - 3, head = t->rank - 2;
    int outer = c->swap ? head : token, inner = c->swap ? token : head;
    if (!t->rank) return;
    t->stride[inner] = t->shape[t->rank - 1] + c->headpad * UNIT;
    t->stride[outer] = t->stride[inner] * t->shape[inner] + c->rowpad * UNIT;
    if (t->rank == 4) t->stride[0] = t->stride[outer] * t->shape[outer] + c->rowpad * UNIT;
}

static void pad_sums(kgen_tensor *t, const kgen__attn_merge_case *c) {
    if (t->rank)
        kgen__tensor_pad(t, t->rank == 3 ? (const int64_t[]){c->lsepad, c->lsepad, 0}
                                         : (const int64_t[]){c->lsepad, 0});
}

/* `slot` is part n of `base`, whose bytes it then shares. */
static void lie_on(kgen__data *data, int slot, int base, int64_t first) {
    size_t size = (size_t)kgen_dtype_size(kgen__slot_tensor(&data->args, base)->dtype);
    data->slot[base].role = KGEN_USE_INOUT;
    data->slot[slot].view_of = base;
    data->slot[slot].offset = data->slot[base].offset + (size_t)first * size;
}

static void place_outputs(kgen__data *data) {
    const kgen__attn_merge_case *c = &data->shape.attn_merge;
    const kgen_attn_merge_args *a = data->args.attn_merge;
    int stack = data->spec.attn_merge.parts == KGEN_PARTS_STACK;
    kgen__merge_part p = kgen__merge_part_of(&data->spec, a, c->inplace - 1);
    kgen__merge_part l = kgen__merge_part_of(&data->spec, a, c->inlse - 1);
    int rows = stack ? M_STACKED : c->inplace == 1 ? M_PREFIX : M_SUFFIX;
    int sums = stack ? M_STACKED_LSE : c->inlse == 1 ? M_PREFIX_LSE : M_SUFFIX_LSE;
    if (c->inplace) lie_on(data, M_OUT, rows, p.x_first);
    if (c->inlse) lie_on(data, M_LSE, sums, l.lse_first);
}

kgen_status kgen__attn_merge_shape(kgen__data *data, kgen_error *err) {
    const kgen__attn_merge_case *c = &data->shape.attn_merge;
    kgen_attn_merge_args *a = data->args.attn_merge;
    const kgen_arg_size sizes[] = {{"N", c->parts}, {"T", c->tokens}, {"H", c->heads}};
    KGEN_TRY(kgen__data_shape(data, sizes, sizeof sizes / sizeof sizes[0],
                              c->nolse ? (uint64_t)1 << M_LSE : 0, err));
    kgen_tensor *const rows[] = {&a->prefix, &a->suffix, &a->stacked, &a->out};
    kgen_tensor *const sums[] = {&a->prefix_lse, &a->suffix_lse, &a->stacked_lse, &a->lse};
    static const int movable[] = {M_PREFIX, M_SUFFIX, M_STACKED, M_OUT};
    for (int i = 0; i < 4; i++) {
        pad_rows(rows[i], c);
        pad_sums(sums[i], c);
        data->slot[movable[i]].offset = c->off ? 16 : 0;
    }
    a->tail = c->tail;
    place_outputs(data);
    return KGEN_OK;
}

/* ---- contents ------------------------------------------------------------------ */

static kgen__rng stream(uint64_t seed, int slot) {
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, (uint64_t)slot + 1);
    return rng;
}

static void fill_row(kgen__data *data, kgen__merge_part p, int64_t token, int64_t head,
                     kgen__rng *rng) {
    int64_t first = p.x_first + kgen__merge_row(p.x, token, head);
    for (int64_t d = 0; d < data->spec.attn_merge.head_dim; d++)
        kgen__number_store(p.x->dtype, p.x->data, first + d, kgen__rng_normal(rng));
}

/* Rows of no keys keep the poison; of a token of the tail the last part is read. */
static void fill_part(kgen__data *data, int64_t n, kgen__rng *rng) {
    const kgen__attn_merge_case *c = &data->shape.attn_merge;
    const kgen_attn_merge_args *a = data->args.attn_merge;
    kgen__merge_part p = kgen__merge_part_of(&data->spec, a, n);
    int last = n == kgen__merge_parts(&data->spec, a) - 1;
    for (int64_t token = 0; token < c->tokens; token++)
        for (int64_t head = 0; head < c->heads; head++) {
            int empty = kgen__chance(rng, c->empty), alone = token >= c->tokens - c->tail;
            double lse = kgen__rng_normal(rng) * c->spread;
            if (empty) lse = kgen__chance(rng, 2) ? INFINITY : -INFINITY;
            kgen__number_store(KGEN_DTYPE_F32, p.lse->data,
                               p.lse_first + kgen__merge_sum(&data->spec, p.lse, token, head), lse);
            if (!c->garbage || (alone ? last : !empty)) fill_row(data, p, token, head, rng);
        }
}

kgen_status kgen__attn_merge_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    kgen_attn_merge_args *a = data->args.attn_merge;
    (void)err;
    for (int i = 0; i < KGEN__ATTN_MERGE_SLOTS; i++) {
        kgen__rng rng = stream(seed, KGEN__ATTN_MERGE_SLOTS + i);
        if (data->slot[i].role != KGEN_USE_OUT) kgen__slot_cover(data, i, &rng, 1);
    }
    for (int64_t n = 0; n < kgen__merge_parts(&data->spec, a); n++) {
        kgen__rng rng = stream(seed, 3 * KGEN__ATTN_MERGE_SLOTS + (int)n);
        fill_part(data, n, &rng);
    }
    if (a->out_scale.data) {
        kgen__rng rng = stream(seed, M_OUT_SCALE);
        kgen__number_store(KGEN_DTYPE_F32, a->out_scale.data, 0, 0.01 + kgen__rng_uniform(&rng));
    }
    kgen__data_remember(data);
    kgen__data_poison_outputs(data);
    return KGEN_OK;
}

kgen_status kgen__attn_merge_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    return kgen__attn_merge_fill(data, kgen__rng_next(rng), err);
}

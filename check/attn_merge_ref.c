/* The reference of attn_merge in double, a row at a time, from the formula in
 * <kgen/attn_merge_args.h>. */
#include <math.h>

#include "check_attn_merge.h"

/* Relative errors of 32-bit arithmetic: of a sum of few terms, of exp2 and of
 * log2. An exponent of size x is off by x such steps. */
#define SUM_ERROR 0x1p-20
#define CALL_ERROR 0x1p-21
#define STEP_ERROR 0x1p-22
#define TINY 0x1p-120

typedef struct world {
    const kgen__data *data;
    kgen__answer *answer;
    kgen_args args; /* of what a launch finds */
    kgen_args_room room;
    int64_t parts;
} world;

typedef struct sums_t {
    double top, weights, error; /* error: relative, the worst weight's */
} sums_t;

static double lse_of(const world *w, int64_t n, int64_t token, int64_t head) {
    kgen__merge_part p = kgen__merge_part_of(&w->data->spec, w->args.attn_merge, n);
    return kgen__number_load(KGEN_DTYPE_F32, p.lse->data,
                             p.lse_first + kgen__merge_sum(&w->data->spec, p.lse, token, head));
}

/* What a part's sum counts as. */
static double counted(double lse) { return lse == INFINITY ? -INFINITY : lse; }

static double weight_of(double lse, double top) { return lse == -INFINITY ? 0 : exp(lse - top); }

static sums_t sums_of(const world *w, int64_t token, int64_t head) {
    sums_t s = {-INFINITY, 0, 0};
    for (int64_t n = 0; n < w->parts; n++) s.top = fmax(s.top, counted(lse_of(w, n, token, head)));
    for (int64_t n = 0; n < w->parts; n++) {
        double lse = counted(lse_of(w, n, token, head)), weight = weight_of(lse, s.top);
        s.weights += weight;
        if (weight > 0) s.error = fmax(s.error, CALL_ERROR + (s.top - lse) * STEP_ERROR);
    }
    return s;
}

/* Element `at` of the output in slot `slot`, or in what that lies on. */
static void expect(const world *w, int slot, int64_t at, double value, double error) {
    const kgen__slot *s = &w->data->slot[slot];
    const kgen_tensor *t = kgen__slot_tensor(&w->data->args, slot);
    kgen__image *image = &w->answer->image[s->view_of];
    int64_t size = kgen_dtype_size(t->dtype);
    at += ((int64_t)s->offset - (int64_t)image->offset) / size;
    double most = size == 1 ? kgen__number_max(t->dtype) : INFINITY;
    image->want[at] = fmax(-most, fmin(most, value));
    image->tolerance[at] = (float)error;
}

static void expect_dim(const world *w, sums_t s, int64_t token, int64_t head, int64_t d) {
    const kgen_attn_merge_args *a = w->args.attn_merge;
    const kgen_tensor *out = &a->out;
    double scale = a->out_scale.data ? kgen__number_load(KGEN_DTYPE_F32, a->out_scale.data, 0) : 1;
    double sum = 0, sizes = 0;
    for (int64_t n = 0; n < w->parts; n++) {
        kgen__merge_part p = kgen__merge_part_of(&w->data->spec, a, n);
        double weight = weight_of(counted(lse_of(w, n, token, head)), s.top);
        if (weight == 0) continue;
        double x = kgen__number_load(p.x->dtype, p.x->data,
                                     p.x_first + kgen__merge_row(p.x, token, head) + d);
        sum += weight * x;
        sizes += weight * fabs(x);
    }
    double by = s.weights > 0 ? 1 / (s.weights * scale) : 0;
    double error = sizes * by * (2 * s.error + SUM_ERROR) + (s.weights > 0 ? TINY : 0);
    if (s.weights > 0) error += kgen__number_half_ulp(out->dtype, fabs(sum * by) + error);
    expect(w, M_OUT, kgen__merge_row(out, token, head) + d, sum * by, error * 1.000001);
}

/* A token of the tail: rounded once, or not at all. */
static void expect_alone(const world *w, int64_t token, int64_t head) {
    const kgen_attn_merge_args *a = w->args.attn_merge;
    kgen__merge_part p = kgen__merge_part_of(&w->data->spec, a, w->parts - 1);
    double scale = a->out_scale.data ? kgen__number_load(KGEN_DTYPE_F32, a->out_scale.data, 0) : 1;
    for (int64_t d = 0; d < w->data->spec.attn_merge.head_dim; d++) {
        double x = kgen__number_load(p.x->dtype, p.x->data,
                                     p.x_first + kgen__merge_row(p.x, token, head) + d);
        double blur = a->out_scale.data ? fabs(x / scale) * SUM_ERROR : 0;
        double half = kgen__number_half_ulp(a->out.dtype, fabs(x / scale) + blur);
        int same = a->out.dtype == p.x->dtype;
        expect(w, M_OUT, kgen__merge_row(&a->out, token, head) + d, x / scale,
               same ? 0 : blur + half);
    }
    if (a->lse.data)
        expect(w, M_LSE, kgen__merge_sum(&w->data->spec, &a->lse, token, head),
               lse_of(w, w->parts - 1, token, head), 0);
}

static void expect_row(const world *w, int64_t token, int64_t head) {
    const kgen_attn_merge_args *a = w->args.attn_merge;
    if (token >= a->out.shape[0] - a->tail) {
        expect_alone(w, token, head);
        return;
    }
    sums_t s = sums_of(w, token, head);
    for (int64_t d = 0; d < w->data->spec.attn_merge.head_dim; d++)
        expect_dim(w, s, token, head, d);
    if (!a->lse.data) return;
    double lse = s.weights > 0 ? s.top + log(s.weights) : -INFINITY;
    double error = s.weights > 0 ? 2 * s.error + SUM_ERROR + 2 * fabs(lse) * STEP_ERROR : 0;
    expect(w, M_LSE, kgen__merge_sum(&w->data->spec, &a->lse, token, head), lse, error);
}

kgen_status kgen__attn_merge_reference(kgen__answer *answer, const kgen__data *data,
                                       kgen_error *err) {
    world w = {.data = data, .answer = answer};
    kgen_status status = kgen__answer_make(answer, &w.args, &w.room, data, err);
    w.parts = kgen__merge_parts(&data->spec, w.args.attn_merge);
    const kgen_tensor *out = &w.args.attn_merge->out;
    for (int64_t token = 0; status == KGEN_OK && token < out->shape[0]; token++)
        for (int64_t head = 0; head < out->shape[1]; head++) expect_row(&w, token, head);
    if (status != KGEN_OK) kgen__answer_free(answer);
    return status;
}

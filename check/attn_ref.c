/* Paged attention in double, from the formula in <kgen/args.h>. The tolerance
 * follows from what a kernel has to round: P to 16 bits for the second product,
 * some values as well, and the output to its type; everything else is 32-bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_extent.h"
#include "attn_layout.h"

/* One 32-bit sum of up to a few hundred terms, and one fast exp or tanh. */
#define SUM_ERROR 0x1p-20
/* Smallest step of a fp16 probability. */
#define FP16_STEP 0x1p-24
/* A row's mean square error over its expectation: with one visible key the two
 * roundings may be worst at once, 2 instead of sqrt(2). */
#define RMS_MARGIN 1.5

/* Weighted values, of a dim. */
typedef struct sums {
    double out;    /* sum p v */
    double size;   /* sum p |v| */
    double square; /* sum p^2 v^2 */
    double second; /* sum p v^2 */
    double blur;   /* sum p |v| blur */
    double plain;  /* sum |v|, of what a rounded weight meets */
} sums;

/* A key and its value, read once for all rows of a sequence that see it. */
typedef struct cached {
    int there;
    double k_descale, v_descale;
} cached;

typedef struct row {
    const kgen_attn_spec *spec;
    const kgen_attn_args *args;
    int64_t seq, token, head, kv_head;
    kgen__attn_extent extent;
    int64_t index;      /* of the token in its sequence */
    int64_t position;   /* in the sequence */
    int64_t first, end; /* visible keys, but for those from `kept` to `behind` */
    int64_t kept, behind;
    int64_t page_tokens;
    double *score; /* [end - first], then weights */
    double *blur;  /* [end - first], what 32-bit leaves open of a score */
    double *q;     /* [head_dim] */
    sums *sums;    /* [v_dim] */
    double max, total;
    double all;   /* sum p */
    double top;   /* of scales of tokens in sight, the largest; 1 without */
    cached *keys; /* of the sequence's KV head */
    float *numbers;
} row;

/* A page outside the pool is its last one; of a number, 32 bits count. */
static kgen__cache_at locate(const row *r, int64_t key) {
    int64_t seq = key < r->extent.shared ? r->extent.leader : r->seq;
    int64_t page = (uint32_t)kgen__attn_page(r->args, seq, key / r->page_tokens);
    int64_t last = r->args->k.shape[0] - 1;
    return (kgen__cache_at){page < last ? page : last, key % r->page_tokens, r->kv_head};
}

static double descale_at(const row *r, const kgen_tensor *t, kgen__cache_at at) {
    if (!t->data || r->spec->descale == KGEN_DESCALE_IGNORE) return 1.0;
    return kgen__number_load(KGEN_DTYPE_F32, t->data, kgen__descale_index(t, at, r->seq));
}

/* What f32 queries are rounded to: the type of the cache, fp16 where that has 8 bits. */
static double query_rounding(const row *r) {
    if (r->spec->q != KGEN_DTYPE_F32) return 0;
    return r->args->k.dtype == KGEN_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

static double query_descale(const row *r) {
    const kgen_tensor *t = &r->args->q_descale;
    kgen__cache_at at = {0, 0, r->kv_head};
    if (!t->data) return 1.0;
    return kgen__number_load(KGEN_DTYPE_F32, t->data, kgen__descale_index(t, at, r->seq));
}

/* size: of what was added up; rounding: of a query */
typedef struct score {
    double value, size, rounding;
} score;

static void cap(score *s, double c) {
    s->value = c * tanh(s->value / c);
    s->size += c;
}

static int is_tree(const row *r) { return kgen_attn_phase_of(r->spec->phase)->tree; }

static int64_t place_of(const row *r, int64_t key) {
    return is_tree(r) ? kgen__attn_place(r->spec, r->args, &r->extent, r->seq, key) : key;
}

static void lean(score *s, const row *r, int64_t key) {
    const kgen_tensor *slopes = &r->args->alibi_slopes;
    double slope = kgen__number_load(KGEN_DTYPE_F32, slopes->data, r->head * slopes->stride[0]);
    double away = (double)(place_of(r, key) - place_of(r, r->position));
    if (r->spec->alibi == KGEN_ALIBI_SQRT) away = away < 0 ? -sqrt(-away) : 0;
    double bias = slope * away;
    s->value += bias;
    s->size += fabs(bias);
}

/* Every type's numbers are floats. head_dim of the key, then v_dim of the value. */
static float *numbers_of(const row *r, int64_t key) {
    return r->numbers + key * (r->spec->head_dim + r->args->out.shape[2]);
}

static void read_cache(const row *r, int64_t key) {
    const kgen_attn_args *a = r->args;
    cached *c = &r->keys[key];
    if (c->there) return;
    kgen__cache_at at = locate(r, key);
    float *x = numbers_of(r, key);
    for (int64_t d = 0; d < r->spec->head_dim; d++)
        *x++ = (float)kgen__number_load(a->k.dtype, a->k.data,
                                        kgen__cache_index(&a->k, KGEN__SIDE_K, at, d));
    for (int64_t d = 0; d < a->out.shape[2]; d++)
        *x++ = (float)kgen__number_load(a->v.dtype, a->v.data,
                                        kgen__cache_index(&a->v, KGEN__SIDE_V, at, d));
    *c = (cached){1, descale_at(r, &a->k_descale, at), descale_at(r, &a->v_descale, at)};
}

static void read_query(row *r) {
    const kgen_tensor *q = &r->args->q;
    int64_t at = r->token * q->stride[0] + r->head * q->stride[1];
    for (int64_t d = 0; d < r->spec->head_dim; d++)
        r->q[d] = kgen__number_load(q->dtype, q->data, at + d * q->stride[2]);
}

static void score_key(row *r, int64_t key) {
    const kgen_attn_args *a = r->args;
    const float *k = numbers_of(r, key);
    double dot = 0, size = 0;
    read_cache(r, key);
    for (int64_t d = 0; d < r->spec->head_dim; d++) {
        double term = r->q[d] * (double)k[d];
        dot += term;
        size += fabs(term);
    }
    double factor = (double)a->softmax_scale * r->keys[key].k_descale * query_descale(r);
    score s = {factor * dot, fabs(factor) * size, query_rounding(r) * fabs(factor) * size};
    if (r->spec->softcap && !r->spec->cap_last) cap(&s, a->softcap);
    if (r->spec->alibi) lean(&s, r, key);
    if (r->spec->cap_last) cap(&s, a->softcap);
    r->score[key - r->first] = s.value;
    r->blur[key - r->first] = SUM_ERROR * s.size + s.rounding;
}

static double sink_of(const row *r) {
    if (!r->spec->sinks) return -INFINITY;
    const kgen_tensor *sinks = &r->args->sinks;
    return kgen__number_load(KGEN_DTYPE_F32, sinks->data, r->head * sinks->stride[0]);
}

static int sees(const row *r, int64_t key) {
    if (is_tree(r)) return kgen__attn_in_tree(r->spec, r->args, &r->extent, r->seq, r->index, key);
    return key < r->kept || key >= r->behind;
}

/* Scores of the visible keys become weights relative to the largest. */
static void weigh(row *r) {
    double sink = sink_of(r);
    r->max = sink;
    for (int64_t key = r->first; key < r->end; key++) {
        score_key(r, key);
        if (!sees(r, key)) r->score[key - r->first] = -INFINITY;
        r->max = fmax(r->max, r->score[key - r->first]);
    }
    r->total = r->max > -INFINITY ? exp(sink - r->max) : 0;
    for (int64_t i = 0; i < r->end - r->first; i++) {
        r->score[i] = exp(r->score[i] - r->max);
        r->total += r->score[i];
    }
}

/* Relative error of a probability rounded to the narrower 16-bit type. */
static double weight_error(const kgen_attn_args *a) {
    return a->q.dtype == KGEN_DTYPE_BF16 || a->k.dtype == KGEN_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

/* Long queries over few dims: rounded as well may be values, times their token's scale, and what
 * weights are divided by, the sum of them as they are rounded. */
static int rounds_more(const row *r) {
    const kgen_attn_spec *s = r->spec;
    int few = s->head_dim + s->v_dim <= 128, many = !kgen_attn_phase_of(s->phase)->bounded;
    return few && many;
}
static double value_error(const row *r) {
    int scaled = r->spec->descale == KGEN_DESCALE_TOKEN && r->args->q.dtype == KGEN_DTYPE_BF16;
    return scaled && rounds_more(r) ? weight_error(r->args) : 0;
}

/* Kernels may compute in fp16, whose smallest step then bounds a probability's
 * error from below, unless queries and cache are both bf16: of the largest, in which its token's
 * scale may be. */
static double weight_step(const kgen_attn_args *a) {
    return a->q.dtype == KGEN_DTYPE_BF16 && a->k.dtype == KGEN_DTYPE_BF16 ? 0 : FP16_STEP;
}

/* Visible keys one after the other, so that each is looked up once. */
static void add_up(row *r) {
    int64_t v_dim = r->args->out.shape[2];
    int by_token = r->spec->descale == KGEN_DESCALE_TOKEN;
    memset(r->sums, 0, (size_t)v_dim * sizeof *r->sums);
    r->all = 0;
    r->top = by_token ? 0 : 1;
    for (int64_t key = r->first; key < r->end; key++) {
        if (!sees(r, key)) continue;
        const float *value = numbers_of(r, key) + r->spec->head_dim;
        double p = r->score[key - r->first] / r->total, blur = r->blur[key - r->first];
        double descale = r->keys[key].v_descale;
        r->all += p;
        if (by_token) r->top = fmax(r->top, fabs(descale));
        for (int64_t d = 0; d < v_dim; d++) {
            sums *t = &r->sums[d];
            double v = descale * (double)value[d], pv = p * v;
            t->out += pv;
            t->size += fabs(pv);
            t->square += pv * pv;
            t->second += pv * v;
            t->blur += fabs(pv) * blur;
            /* A token's scale is in the weight before that is rounded. */
            t->plain += fabs(by_token ? (double)value[d] : v);
        }
    }
}
/* Of values that are `factor` times as large. */
static sums scaled(const sums *t, double factor) {
    double size = fabs(factor), square = factor * factor;
    return (sums){factor * t->out,    size * t->size, square * t->square,
                  square * t->second, size * t->blur, size * t->plain};
}

static double mean_blur(const row *r) {
    double sum = 0;
    for (int64_t i = 0; i < r->end - r->first; i++)
        if (r->score[i] > 0) sum += r->score[i] / r->total * r->blur[i];
    return sum + SUM_ERROR * (r->spec->sinks ? fabs(sink_of(r)) : 0);
}

/* 1, or the sigmoid of the gate. */
static double gate_of(const row *r, int64_t d) {
    const kgen_tensor *t = &r->args->gate;
    if (!t->data) return 1;
    int64_t at = r->token * t->stride[0] + r->head * t->stride[1] + d * t->stride[2];
    return 1 / (1 + exp(-kgen__number_load(t->dtype, t->data, at)));
}

/* What weights' errors e move: sum p e v, and over a rounded sum sum p e (v - out), which Cauchy's
 * inequality bounds. */
static double weighed(const row *r, const sums *t) {
    if (!rounds_more(r) || r->spec->lse) return t->size;
    double spread = t->second - 2 * t->out * t->out + t->out * t->out * r->all;
    return fmax(t->size, sqrt(fmax(spread, 0) * r->all));
}

static void write_element(kgen__attn_answer *answer, const row *r, int64_t d, double scale,
                          double blur) {
    int64_t at = (r->token * answer->heads + r->head) * answer->v_dim + d;
    double weight = weight_error(r->args), value = value_error(r);
    sums t = scaled(&r->sums[d], scale * gate_of(r, d));
    double other = (r->spec->gate ? 2 : 1) * SUM_ERROR * t.size + t.blur + blur * fabs(t.out) +
                   weight_step(r->args) * r->top * t.plain / r->total;
    double bound = weight * weighed(r, &t) + value * t.size + other;
    double rounding = kgen__number_half_ulp(r->args->out.dtype, fabs(t.out) + bound);
    answer->out[at] = t.out;
    answer->out_tol[at] = bound + rounding;
    answer->out_rms[at] = RMS_MARGIN * sqrt((weight * weight + value * value) * t.square +
                                            other * other + rounding * rounding);
}

static void write_row(kgen__attn_answer *answer, row *r) {
    const kgen_tensor *out_scale = &r->args->out_scale;
    double scale = out_scale->data ? 1 / kgen__number_load(KGEN_DTYPE_F32, out_scale->data, 0) : 1;
    int64_t at = r->head * answer->tokens + r->token;
    read_query(r);
    weigh(r);
    add_up(r);
    double blur = mean_blur(r);
    for (int64_t d = 0; d < answer->v_dim; d++) write_element(answer, r, d, scale, blur);
    answer->lse[at] = r->max + log(r->total);
    answer->lse_tol[at] = 2 * blur + 4 * SUM_ERROR * (1 + fabs(answer->lse[at]));
}

static void claim(kgen__attn_answer *answer, int64_t from, int64_t end) {
    for (int64_t i = from; i < end; i++) answer->claims[i]++;
}

/* From the first key that the token sees, if there is one, to the last. */
static void narrow(row *r) {
    while (r->first < r->end && !sees(r, r->first)) r->first++;
    while (r->first < r->end && !sees(r, r->end - 1)) r->end--;
}

/* Token i of a sequence, its heads of one KV head. */
static void write_token(kgen__attn_answer *answer, row *r, int64_t i) {
    const kgen_attn_args *a = r->args;
    r->index = i;
    r->token = r->extent.start + i;
    r->position = r->extent.keys - r->extent.count + i;
    kgen__attn_sight see =
        kgen__attn_sight_of(r->spec, a, r->seq, r->token, r->position, r->extent.keys);
    r->kept = kgen__attn_kept(r->spec, a);
    r->behind = see.first;
    r->first = r->kept ? 0 : see.first;
    r->end = see.end;
    narrow(r);
    if (r->end <= r->first) return;
    int64_t group = r->spec->group, first = r->kv_head * group;
    for (r->head = first; r->head < first + group && r->head < answer->heads; r->head++)
        write_row(answer, r);
}

static void sequence(kgen__attn_answer *answer, row *r) {
    const kgen_attn_phase *phase = kgen_attn_phase_of(r->spec->phase);
    kgen__attn_extent e = kgen__attn_extent_of(r->spec, r->args, r->seq);
    int64_t most = phase->bounded && r->spec->q_tokens < e.count ? r->spec->q_tokens : e.count;
    answer->wrong[r->seq] = e.wrong;
    claim(answer, e.start, e.start + e.count);
    r->extent = e;
    for (r->kv_head = 0; r->kv_head * r->spec->group < answer->heads; r->kv_head++) {
        for (int64_t key = 0; key < e.keys; key++) r->keys[key].there = 0;
        for (int64_t i = 0; i < most; i++) write_token(answer, r, i);
    }
}

/* Tokens behind the last sequence, unless the offsets fall there. */
static void padding(kgen__attn_answer *answer, const kgen_attn_spec *spec,
                    const kgen_attn_args *args) {
    if (!kgen_attn_phase_of(spec->phase)->ragged) return;
    int64_t used = kgen__attn_offset(args, answer->seqs);
    int64_t before = answer->seqs ? kgen__attn_offset(args, answer->seqs - 1) : 0;
    if (used >= (before > 0 ? before : 0)) claim(answer, used, answer->tokens);
}

static int64_t longest(const kgen_attn_spec *spec, const kgen_attn_args *args) {
    int64_t most = 1;
    for (int64_t s = 0; s < kgen__attn_seqs(args); s++) {
        int64_t keys = kgen__attn_extent_of(spec, args, s).keys;
        if (keys > most) most = keys;
    }
    return most;
}

static int allocate(kgen__attn_answer *answer) {
    size_t rows = (size_t)(answer->tokens * answer->heads);
    size_t count = rows * (size_t)answer->v_dim;
    answer->out = calloc(count, sizeof(double));
    answer->out_tol = calloc(count, sizeof(double));
    answer->out_rms = calloc(count, sizeof(double));
    answer->lse = calloc(rows, sizeof(double));
    answer->lse_tol = calloc(rows, sizeof(double));
    answer->claims = calloc((size_t)answer->tokens + 1, sizeof *answer->claims);
    answer->wrong = calloc((size_t)answer->seqs + 1, sizeof *answer->wrong);
    for (size_t i = 0; answer->lse && i < rows; i++) answer->lse[i] = -INFINITY;
    return answer->out && answer->out_tol && answer->out_rms && answer->lse && answer->lse_tol &&
           answer->claims && answer->wrong;
}

static int allocate_row(row *r) {
    size_t keys = (size_t)longest(r->spec, r->args), v_dim = (size_t)r->args->out.shape[2];
    size_t head_dim = (size_t)r->spec->head_dim;
    r->score = malloc(keys * sizeof *r->score);
    r->blur = malloc(keys * sizeof *r->blur);
    r->q = malloc(head_dim * sizeof *r->q);
    r->sums = malloc(v_dim * sizeof *r->sums);
    r->keys = malloc(keys * sizeof *r->keys);
    r->numbers = malloc(keys * (head_dim + v_dim) * sizeof *r->numbers);
    return r->score && r->blur && r->q && r->sums && r->keys && r->numbers;
}
static void free_row(row *r) {
    free(r->score);
    free(r->blur);
    free(r->q);
    free(r->sums);
    free(r->keys);
    free(r->numbers);
}

kgen_status kgen__attn_reference(kgen__attn_answer *answer, const kgen_spec *spec,
                                 const kgen_attn_args *args, kgen_error *err) {
    row r = {.spec = &spec->attn, .args = args, .page_tokens = kgen__cache_page(&args->k)};
    *answer = (kgen__attn_answer){.tokens = args->q.shape[0],
                                  .heads = args->q.shape[1],
                                  .v_dim = args->out.shape[2],
                                  .seqs = kgen__attn_seqs(args)};
    int ready = allocate(answer) && allocate_row(&r);
    for (r.seq = 0; ready && r.seq < answer->seqs; r.seq++) sequence(answer, &r);
    if (ready) padding(answer, &spec->attn, args);
    free_row(&r);
    if (ready) return KGEN_OK;
    kgen__attn_free(answer);
    return kgen_fail(err, KGEN_E_NOMEM, "reference of %lld tokens, %lld heads: out of memory",
                     (long long)args->q.shape[0], (long long)args->q.shape[1]);
}

void kgen__attn_free(kgen__attn_answer *answer) {
    free(answer->out);
    free(answer->out_tol);
    free(answer->out_rms);
    free(answer->lse);
    free(answer->lse_tol);
    free(answer->claims);
    free(answer->wrong);
    *answer = (kgen__attn_answer){0};
}

/* The judge, judged: number formats against a search over all codes, the
 * reference against an independent float kernel, and that kernel with faults,
 * each of which must be found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <kgen/params.h>

#include "check/check.h"
#include "seed.h"

#define CASES "tests/cases/attn.txt"

static uint64_t run_seed;
static kgen__rng rng;

/* ---- number formats ------------------------------------------------------- */

typedef struct format_facts {
    kgen_dtype dtype;
    uint32_t half; /* codes without a sign */
    int mantissa, bias;
    double most, least;
    uint32_t first_odd; /* first code that is no finite number */
} format_facts;

static const format_facts facts[] = {
    {KGEN_DTYPE_BF16, 0x8000, 7, 127, 0x1.fep127, 0x1p-133, 0x7f80},
    {KGEN_DTYPE_FP16, 0x8000, 10, 15, 65504, 0x1p-24, 0x7c00},
    {KGEN_DTYPE_E4M3FN, 0x80, 3, 7, 448, 0x1p-9, 0x7f},
    {KGEN_DTYPE_E4M3FNUZ, 0x80, 3, 8, 240, 0x1p-10, 0x80},
    {KGEN_DTYPE_E5M2, 0x80, 2, 15, 57344, 0x1p-16, 0x7c},
};
enum { FORMATS = sizeof facts / sizeof facts[0] };

/* By the definition, with doubling instead of bit fields. */
static double plain_value(const format_facts *f, uint32_t code) {
    int exponent = (int)(code / (1u << f->mantissa));
    double value = (double)(code % (1u << f->mantissa)) / (double)(1u << f->mantissa);
    if (exponent > 0) value += 1;
    int power = (exponent > 0 ? exponent : 1) - f->bias;
    for (; power > 0; power--) value *= 2;
    for (; power < 0; power++) value /= 2;
    return value;
}

/* The nearest finite code by bisection over all of them. */
static uint32_t nearest_code(const format_facts *f, double size) {
    uint32_t low = 0, high = f->first_odd - 1;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (plain_value(f, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - plain_value(f, low), above = plain_value(f, high) - size;
    if (below == above) return low % 2 ? high : low;
    return below < above ? low : high;
}

/* Every code comes back but that of -128, which nothing is rounded to. */
static void integers_round_trip(void **state) {
    const kgen_dtype dtype = KGEN_DTYPE_I8;
    (void)state;
    for (int n = -128; n <= 127; n++) {
        assert_true(kgen__number_decode(dtype, (uint32_t)n & 0xff) == n);
        assert_int_equal((int8_t)kgen__number_encode(dtype, n), n < -127 ? -127 : n);
        int even = n % 2 == 0 ? n : n + 1; /* of the two that are as near */
        if (n < 127)
            assert_int_equal((int8_t)kgen__number_encode(dtype, n + 0.5),
                             even < -127 ? -127 : even);
    }
    for (uint32_t code = 1; code < 16; code++) {
        assert_true(kgen__number_decode(KGEN_DTYPE_I4, code) == (double)code - 8);
        assert_int_equal(kgen__number_encode(KGEN_DTYPE_I4, (double)code - 8), code);
    }
    uint8_t pair = 0;
    kgen__number_store(KGEN_DTYPE_I4, &pair, 0, -9);
    kgen__number_store(KGEN_DTYPE_I4, &pair, 1, 2.5);
    assert_int_equal(pair, 0xa1);
    assert_true(kgen__number_load(KGEN_DTYPE_I4, &pair, 1) == 2);
    assert_int_equal(kgen__number_encode(dtype, INFINITY), 127);
    assert_int_equal((int8_t)kgen__number_encode(dtype, -1e30), -127);
    assert_int_equal(kgen__number_encode(dtype, NAN), 0);
    assert_true(kgen__number_max(dtype) == 127 && kgen__number_half_ulp(dtype, 5) == 0.5);
}

static void numbers_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format_facts *f = &facts[i];
        for (uint32_t code = 0; code < f->first_odd; code++) {
            double value = kgen__number_decode(f->dtype, code);
            assert_true(value == plain_value(f, code));
            assert_int_equal(kgen__number_encode(f->dtype, value), code);
            if (code == 0 && f->dtype == KGEN_DTYPE_E4M3FNUZ) continue;
            double negative = kgen__number_decode(f->dtype, code | f->half);
            assert_true(negative == -value && signbit(negative));
            assert_int_equal(kgen__number_encode(f->dtype, negative), code | f->half);
        }
        assert_true(kgen__number_max(f->dtype) == f->most);
        assert_true(kgen__number_decode(f->dtype, 1) == f->least);
    }
}

static void numbers_beyond_finite(void **state) {
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format_facts *f = &facts[i];
        int saturates = f->half == 0x80;
        for (uint32_t code = f->first_odd; code < f->half; code++) {
            int infinite = code == f->first_odd && f->dtype != KGEN_DTYPE_E4M3FN;
            assert_true(infinite ? isinf(kgen__number_decode(f->dtype, code))
                                 : isnan(kgen__number_decode(f->dtype, code)));
        }
        double big[] = {f->most * 1.2, f->most * 1e10, INFINITY};
        for (int n = 0; n < 3; n++) {
            double got = kgen__number_decode(f->dtype, kgen__number_encode(f->dtype, -big[n]));
            assert_true(got == (saturates ? -f->most : -INFINITY));
        }
        assert_true(isnan(kgen__number_decode(f->dtype, kgen__number_encode(f->dtype, NAN))));
        for (uint32_t pick = 0; pick < 3000; pick++)
            assert_false(
                isfinite(kgen__number_decode(f->dtype, kgen__number_poison(f->dtype, pick))));
    }
    assert_true(isnan(kgen__number_decode(KGEN_DTYPE_E4M3FNUZ, 0x80)));
    assert_int_equal(kgen__number_encode(KGEN_DTYPE_E4M3FNUZ, -0.0), 0);
    assert_int_equal(kgen__number_encode(KGEN_DTYPE_E4M3FN, -0.0), 0x80);
}

static void check_rounding(const format_facts *f, double size) {
    uint32_t want = nearest_code(f, size);
    if (size > f->most) return;
    assert_int_equal(kgen__number_encode(f->dtype, size), want);
    double error = fabs(plain_value(f, want) - size);
    assert_true(error <= kgen__number_half_ulp(f->dtype, size));
}

static void numbers_round_to_even(void **state) {
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format_facts *f = &facts[i];
        for (int n = 0; n < 20000; n++) {
            int power = (int)kgen__rng_range(&rng, -f->bias - f->mantissa - 2, f->bias + 1);
            check_rounding(f, ldexp(1 + kgen__rng_uniform(&rng), power));
        }
        for (uint32_t code = 0; code + 1 < f->first_odd; code++) /* every tie */
            check_rounding(f, (plain_value(f, code) + plain_value(f, code + 1)) / 2);
    }
    for (int n = 0; n < 20000; n++) { /* the usual integer trick */
        float value = (float)ldexp(kgen__rng_normal(&rng), (int)kgen__rng_range(&rng, -130, 120));
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint32_t want = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        assert_int_equal(kgen__number_encode(KGEN_DTYPE_BF16, value), want);
        assert_int_equal(kgen__number_encode(KGEN_DTYPE_F32, value), bits);
    }
}

static void random_numbers(void **state) {
    (void)state;
    kgen__rng a, b, c;
    uint64_t seed = kgen__rng_next(&rng);
    kgen__rng_seed(&a, seed, 1);
    kgen__rng_seed(&b, seed, 1);
    kgen__rng_seed(&c, seed, 2);
    double sum = 0, square = 0;
    int same = 0;
    for (int i = 0; i < 40000; i++) {
        double value = kgen__rng_normal(&a);
        assert_true(value == kgen__rng_normal(&b));
        same += value == kgen__rng_normal(&c);
        assert_true(fabs(value) < 3.5);
        sum += value;
        square += value * value;
        int64_t in = kgen__rng_range(&a, -3, 4);
        assert_true(in == kgen__rng_range(&b, -3, 4) && in >= -3 && in <= 4);
    }
    assert_true(same < 20);
    assert_true(fabs(sum / 40000) < 0.03 && fabs(square / 40000 - 1) < 0.05);
    kgen__rng_seed(&a, 1, 0); /* fixed for ever: cases are reproduced by seed */
    assert_true(kgen__rng_next(&a) == UINT64_C(0xee127fe613436e33));
}

/* ---- an independent kernel, with faults ------------------------------------- */

enum {
    WINDOW_LESS = 1,
    WINDOW_MORE = 2,
    NO_SINK = 4,
    NO_SOFTCAP = 8,
    NO_ALIBI = 16,
    ALIBI_ORIGIN = 32,
    NO_K_DESCALE = 64,
    FIRST_K_DESCALE = 128,
    LAST_KEY = 256,
    WRONG_HEAD = 512,
    NOT_CAUSAL = 1024,
    TRUNCATE_OUT = 2048,
    LOW_P = 4096,
    WRONG_SCALE = 8192,
    ONE_V_DESCALE = 16384,
    CAP_FIRST = 32768,
    NO_Q_DESCALE = 65536,
    NO_GATE = 131072,
    NO_KEPT = 1 << 18,
    CHUNK_MORE = 1 << 19,
    PLAIN_ALIBI = 1 << 20,
    NO_SPANS = 1 << 21,
};

typedef struct walk {
    kgen__data *data;
    int faults;
    int64_t seq, page_tokens, hkv;
    int64_t context, length; /* of the sequence */
    int64_t start;           /* its first token */
} walk;

/* Offsets by the letter of the layouts, for caches without any padding. */
static int64_t dense_offset(const walk *w, int value, int64_t page, int64_t slot, int64_t head,
                            int64_t d) {
    const kgen_attn_spec *s = &w->data->spec.attn;
    int64_t D = value ? s->v_dim : s->head_dim, P = w->page_tokens, H = w->hkv;
    int64_t x = 16 / kgen_dtype_size((kgen_dtype)s->kv);
    switch (s->layout) {
    case KGEN_LAYOUT_NHD:
        return ((page * P + slot) * H + head) * D + d;
    case KGEN_LAYOUT_HND:
        return ((page * H + head) * P + slot) * D + d;
    default:
        if (!value) return (((page * H + head) * (D / x) + d / x) * P + slot) * x + d % x;
        if (s->layout == KGEN_LAYOUT_XPACKED) return ((page * H + head) * D + d) * P + slot;
        return (((page * H + head) * (P / x) + slot / x) * D + d) * x + slot % x;
    }
}

static int64_t whole_at(const kgen_tensor *t, int64_t i) {
    return t->dtype == KGEN_DTYPE_I64 ? ((int64_t *)t->data)[i] : ((int32_t *)t->data)[i];
}

static int64_t page_at(const kgen_attn_args *a, int64_t seq, int64_t n) {
    if (a->cu_seqlens_k.data) return whole_at(&a->cu_seqlens_k, seq) + n;
    if (!a->block_table.data) return whole_at(&a->kv_indices, whole_at(&a->kv_indptr, seq) + n);
    return whole_at(&a->block_table, seq * a->block_table.stride[0] + n);
}

static float cached(const walk *w, int value, int64_t key, int64_t head, int64_t d) {
    const kgen_attn_args *a = w->data->args.attn;
    int64_t page = page_at(a, w->seq, key / w->page_tokens);
    const kgen_tensor *t = value ? &a->v : &a->k;
    return (float)kgen__number_load(t->dtype, t->data,
                                    dense_offset(w, value, page, key % w->page_tokens, head, d));
}

static float scale_of(const walk *w, int value, int64_t key, int64_t head) {
    const kgen_attn_args *a = w->data->args.attn;
    const kgen_tensor *t = value ? &a->v_descale : &a->k_descale;
    int32_t shape = value ? w->data->shape.attn.vds : w->data->shape.attn.kds;
    if (!t->data || w->data->spec.attn.descale == KGEN_DESCALE_IGNORE) return 1;
    if (!value && w->faults & NO_K_DESCALE) return 1;
    const float *scale = t->data;
    int64_t page = page_at(a, w->seq, key / w->page_tokens);
    int64_t slot = key % w->page_tokens;
    if (w->faults & (value ? ONE_V_DESCALE : FIRST_K_DESCALE) && t->rank < 3) return scale[0];
    if (shape == KGEN__SCALE_AUTO) shape = t->rank == 3 ? KGEN__SCALE_TOKEN : KGEN__SCALE_ONE;
    switch (shape) {
    case KGEN__SCALE_HEAD:
        return scale[head];
    case KGEN__SCALE_SEQ:
        return scale[w->seq * w->hkv + head];
    case KGEN__SCALE_TOKEN:
        return scale[(page * w->page_tokens + slot) * w->hkv + head];
    case KGEN__SCALE_HTOKEN:
        return scale[(page * w->hkv + head) * w->page_tokens + slot];
    default:
        return scale[0];
    }
}

static float query_scale(const walk *w, int64_t head) {
    const float *scale = w->data->args.attn->q_descale.data;
    int32_t shape = w->data->shape.attn.qds;
    if (!scale || w->faults & NO_Q_DESCALE) return 1;
    return scale[shape == KGEN__SCALE_HEAD  ? head
                 : shape == KGEN__SCALE_SEQ ? w->seq * w->hkv + head
                                            : 0];
}

/* The word of a token of the tree at `key`; where the key stands. */
static uint64_t word_at(const walk *w, int64_t key) {
    const kgen_tensor *t = &w->data->args.attn->words;
    size_t size = (size_t)kgen_dtype_size(t->dtype);
    uint64_t word = 0;
    memcpy(&word, (char *)t->data + (size_t)(w->seq * t->stride[0] + key - w->context) * size,
           size);
    return word;
}

static int64_t place(const walk *w, int64_t key) {
    if (!w->data->args.attn->words.data || key < w->context) return key;
    return w->context + __builtin_popcountll(word_at(w, key)) - 1;
}

/* Of a chunk and those before it, by counting them. */
static int in_chunks(const walk *w, int64_t position, int64_t key) {
    const kgen_attn_spec *s = &w->data->spec.attn;
    int64_t back = s->lookback + (w->faults & CHUNK_MORE ? 1 : 0);
    if (!s->chunk) return 1;
    for (int64_t start = 0; start + s->chunk <= position; start += s->chunk)
        if (key >= start && key < start + s->chunk && (position - start) / s->chunk > back)
            return 0;
    return 1;
}

static int sees(const walk *w, int64_t position, int64_t key) {
    const kgen_attn_args *a = w->data->args.attn;
    const kgen_attn_spec *s = &w->data->spec.attn;
    int64_t window = s->window == KGEN_WINDOW_RT ? a->window : s->window;
    int64_t right = s->right == KGEN_WINDOW_RT ? a->right : s->right;
    int causal = s->causal == KGEN_CAUSAL_SEQ ? ((uint8_t *)a->causal.data)[w->seq] : s->causal;
    if (window > 0) window += (w->faults & WINDOW_MORE ? 1 : 0) - (w->faults & WINDOW_LESS ? 1 : 0);
    if (key >= w->length - (w->faults & LAST_KEY ? 1 : 0)) return 0;
    int64_t keep = s->keep == KGEN_WINDOW_RT ? a->keep : s->keep;
    int kept = keep > 0 && place(w, key) < keep && !(w->faults & NO_KEPT);
    if (!kept && s->window && place(w, position) - place(w, key) >= window) return 0;
    if (!kept && !in_chunks(w, place(w, position), place(w, key))) return 0;
    if (w->faults & NOT_CAUSAL) return 1;
    if (a->words.data) return key < w->context || word_at(w, position) >> (key - w->context) & 1;
    if (causal && a->span_ends.data && !(w->faults & NO_SPANS) &&
        key <= ((int32_t *)a->span_ends.data)[w->start + position - w->context])
        return 1;
    if (causal) return key <= position - (w->faults & LAST_KEY ? 1 : 0);
    return !right || key - position < right;
}

static float lean(const walk *w, float away) {
    if (w->data->spec.attn.alibi != KGEN_ALIBI_SQRT || w->faults & PLAIN_ALIBI) return away;
    return away < 0 ? -sqrtf(-away) : 0;
}

static float score(const walk *w, int64_t token, int64_t h, int64_t position, int64_t key) {
    const kgen_attn_args *a = w->data->args.attn;
    const kgen_attn_spec *s = &w->data->spec.attn;
    int64_t head = w->faults & WRONG_HEAD ? h % w->hkv : h / s->group;
    float dot = 0;
    for (int64_t d = 0; d < s->head_dim; d++)
        dot += (float)kgen__number_load(a->q.dtype, a->q.data,
                                        token * a->q.stride[0] + h * s->head_dim + d) *
               cached(w, 0, key, head, d);
    dot *= a->softmax_scale * scale_of(w, 0, key, head) * query_scale(w, head);
    if (w->faults & WRONG_SCALE) dot *= 1.03f;
    int cap_last = s->cap_last && !(w->faults & CAP_FIRST);
    int cap = s->softcap && !(w->faults & NO_SOFTCAP);
    if (cap && !cap_last) dot = a->softcap * tanhf(dot / a->softcap);
    if (s->alibi && !(w->faults & NO_ALIBI))
        dot += ((float *)a->alibi_slopes.data)[h] *
               lean(w, (float)(place(w, key) -
                               (w->faults & ALIBI_ORIGIN ? w->context : place(w, position))));
    if (cap && cap_last) dot = a->softcap * tanhf(dot / a->softcap);
    return dot;
}

static float round_p(const walk *w, float p) {
    const kgen_attn_args *a = w->data->args.attn;
    kgen_dtype dtype = a->q.dtype;
    if (kgen_dtype_size(dtype) != 2)
        dtype = kgen_dtype_size(a->k.dtype) == 2 ? a->k.dtype : KGEN_DTYPE_FP16;
    if (w->faults & LOW_P) dtype = KGEN_DTYPE_E5M2;
    return kgen__number_decode(dtype, kgen__number_encode(dtype, p));
}

static float gate_at(const walk *w, int64_t token, int64_t h, int64_t d) {
    const kgen_tensor *t = &w->data->args.attn->gate;
    if (!t->data || w->faults & NO_GATE) return 1;
    int64_t at = token * t->stride[0] + h * t->stride[1] + d;
    return 1 / (1 + expf(-(float)kgen__number_load(t->dtype, t->data, at)));
}

static void put_out(const walk *w, int64_t at, float value) {
    const kgen_tensor *out = &w->data->args.attn->out;
    if (w->faults & TRUNCATE_OUT)
        value *= 1 - 2 * ldexpf(1, out->dtype == KGEN_DTYPE_BF16 ? -8 : -11);
    kgen__number_store(out->dtype, out->data, at, value);
}

/* The exponent of the greatest of the scales of tokens that a row sees: weights have these in them,
 * and are rounded near 1. */
static int lift_of(const walk *w, int64_t position, int64_t head) {
    float most = 0;
    if (w->data->args.attn->v_descale.rank != 3) return 0;
    for (int64_t key = 0; key < w->length; key++)
        if (sees(w, position, key)) most = fmaxf(most, fabsf(scale_of(w, 1, key, head)));
    return most > 0 ? ilogbf(most) : 0;
}

static void imitate_row(const walk *w, int64_t token, int64_t h, int64_t position) {
    const kgen_attn_args *a = w->data->args.attn;
    const kgen_attn_spec *s = &w->data->spec.attn;
    int empty = 1;
    float sink = s->sinks && !(w->faults & NO_SINK) ? ((float *)a->sinks.data)[h] : -INFINITY;
    float most = sink, total = 0, acc[512] = {0};
    for (int64_t key = 0; key < w->length; key++)
        if (sees(w, position, key)) {
            most = fmaxf(most, score(w, token, h, position, key));
            empty = 0;
        }
    int64_t head = w->faults & WRONG_HEAD ? h % w->hkv : h / s->group;
    int lift = lift_of(w, position, head);
    for (int64_t key = 0; key < w->length; key++) {
        if (!sees(w, position, key)) continue;
        float p = expf(score(w, token, h, position, key) - most);
        total += p;
        p *= a->v_descale.rank == 3 ? scale_of(w, 1, key, head) : 1;
        p = ldexpf(round_p(w, ldexpf(p, -lift)), lift);
        for (int64_t d = 0; d < s->v_dim; d++)
            acc[d] += p * cached(w, 1, key, head, d) *
                      (a->v_descale.rank == 3 ? 1 : scale_of(w, 1, key, head));
    }
    if (most > -INFINITY) total += expf(sink - most);
    float scale = a->out_scale.data ? 1 / *(float *)a->out_scale.data : 1;
    for (int64_t d = 0; d < s->v_dim; d++)
        put_out(w, token * a->out.stride[0] + h * s->v_dim + d,
                empty ? 0 : acc[d] / total * scale * gate_at(w, token, h, d));
    if (a->lse.data)
        ((float *)a->lse
             .data)[s->lse == KGEN_LSE_TH ? token * a->q.shape[1] + h : h * a->q.shape[0] + token] =
            empty ? -INFINITY : most + logf(total);
}

/* Tokens of no sequence have no key. */
static void imitate(kgen__data *data, int faults) {
    const kgen_attn_args *a = data->args.attn;
    walk w = {.data = data, .faults = faults, .hkv = data->shape.attn.hkv};
    int layout = data->spec.attn.layout;
    w.page_tokens = a->k.shape[layout == KGEN_LAYOUT_NHD ? 1 : layout == KGEN_LAYOUT_HND ? 2 : 3];
    const kgen_tensor *cu = &a->cu_seqlens_q;
    int64_t token = 0;
    for (w.seq = 0; w.seq < data->shape.seqs; w.seq++) {
        int64_t fresh = cu->data ? whole_at(cu, w.seq + 1) - whole_at(cu, w.seq) : 1;
        const kgen_tensor *ends = &a->cu_seqlens_k;
        w.length = ends->data ? whole_at(ends, w.seq + 1) - whole_at(ends, w.seq)
                              : whole_at(&a->seq_lens, w.seq);
        w.context = w.length - fresh;
        w.start = token;
        for (int64_t i = 0; i < fresh; i++, token++)
            for (int64_t h = 0; h < a->q.shape[1]; h++) imitate_row(&w, token, h, w.context + i);
    }
    w.length = 0;
    for (; token < a->q.shape[0]; token++)
        for (int64_t h = 0; h < a->q.shape[1]; h++) imitate_row(&w, token, h, -1);
}

/* ---- helpers ------------------------------------------------------------------ */

typedef struct trial {
    kgen__case c;
    kgen__data data;
    kgen__attn_answer answer;
    kgen__check_result result;
    kgen_error err;
    char line[KGEN__CASE_LINE_MAX];
} trial;

static trial *trial_of(const kgen__case *c, uint64_t seed) {
    const kgen_target *target;
    kgen_spec spec;
    int32_t lens[KGEN__CASE_SEQS_MAX], qlens[KGEN__CASE_SEQS_MAX];
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->c = *c;
    kgen__case_draw(&t->c, seed);
    kgen__case_print(t->line, &t->c);
    assert_int_equal(kgen_target_find(&target, "cpu:cdna3", &t->err), KGEN_OK);
    if (kgen_spec_resolve(&spec, &c->spec, target, &t->err) != KGEN_OK ||
        kgen__data_make(&t->data, &t->c, &spec, &t->err) != KGEN_OK)
        fail_msg("%s: %s", t->line, t->err.text);
    for (int32_t s = 0; s < c->seqs; s++) {
        lens[s] = t->c.attn.lens[s].low;
        qlens[s] = t->c.attn.qlens[s].low;
    }
    assert_int_equal(kgen__attn_data_fill(&t->data, lens, qlens, seed, &t->err), KGEN_OK);
    assert_int_equal(kgen__attn_reference(&t->answer, &t->data.spec, t->data.args.attn, &t->err),
                     KGEN_OK);
    return t;
}

static trial *trial_line(const char *line, uint64_t seed) {
    kgen__case *c = malloc(sizeof *c);
    kgen_error err = {KGEN_OK, ""};
    assert_non_null(c);
    if (kgen__case_parse(c, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    trial *t = trial_of(c, seed);
    free(c);
    return t;
}

static void trial_free(trial *t) {
    kgen__attn_free(&t->answer);
    kgen__data_free(&t->data);
    free(t);
}

/* The float kernel knows dense caches and sound lengths only. */
static void make_dense(kgen__case *c) { c->attn.packed = c->attn.pad = c->attn.bad = 0; }

static void must_pass(trial *t) {
    imitate(&t->data, 0);
    if (kgen__attn_compare(&t->result, &t->data, &t->answer, &t->err) != KGEN_OK)
        fail_msg("%s: %s", t->line, t->err.text);
}

/* ---- the reference --------------------------------------------------------------- */

static void honest_kernels_pass(void **state) {
    (void)state;
    kgen__case *cases, c;
    size_t count;
    kgen_error err = {KGEN_OK, ""};
    if (kgen__cases_load(&cases, &count, CASES, &err) != KGEN_OK) fail_msg("%s", err.text);
    double worst = 0, worst_rms = 0;
    for (size_t i = 0; i < count + 60; i++) {
        if (!test_takes(run_seed, i, 1, 3)) continue;
        if (i < count)
            c = cases[i];
        else
            assert_int_equal(kgen__case_random(&c, KGEN_FAMILY_ATTN, &rng, NULL, 100, &err),
                             KGEN_OK);
        make_dense(&c);
        trial *t = trial_of(&c, kgen__rng_next(&rng));
        must_pass(t);
        worst = fmax(worst, t->result.max_ratio);
        worst_rms = fmax(worst_rms, t->result.rms_ratio);
        trial_free(t);
    }
    free(cases);
    print_message("honest kernels: error %.3f tolerances, rows %.3f\n", worst, worst_rms);
    assert_true(worst > 0.2 && worst_rms > 0.2); /* neither bound is far away */
}

static const struct {
    int fault;
    const char *line;
} faults[] = {
    {WINDOW_LESS, "attn:d=128,g=4,window=128 | lens=300"},
    {WINDOW_MORE, "attn:d=128,g=4,window=128 | lens=300"},
    {WINDOW_MORE, "attn:d=64,g=1,window=rt | lens=390 window=389"},
    {WINDOW_LESS, "attn:d=64,g=2,window=64,o=fp8,kv=fp8 | lens=65,300"},
    {WINDOW_LESS, "attn:phase=verify,t=4,q=fp16,kv=fp16,d=64,g=2,window=33 | lens=100"},
    {NO_SINK, "attn:d=64,g=8,sinks=1 | lens=33,400"},
    {NO_SINK, "attn:d=64,g=8,sinks=1 | lens=1"},
    {NO_SOFTCAP, "attn:d=128,g=2,softcap=1 | lens=100 softcap=5"},
    {NO_SOFTCAP, "attn:d=256,g=2,softcap=1 | lens=300 softcap=2"},
    {NO_ALIBI, "attn:d=64,g=4,alibi=1 | lens=50"},
    {CAP_FIRST, "attn:d=64,g=4,softcap=1,alibi=1,order=alibi | lens=100 softcap=3"},
    {ALIBI_ORIGIN, "attn:phase=verify,t=4,d=64,g=4,alibi=1,lse=1 | lens=50"},
    {NO_K_DESCALE, "attn:kv=fp8,d=64,g=4 | lens=100"},
    {FIRST_K_DESCALE, "attn:kv=fp8,d=64,g=4 | lens=100 hkv=4 kds=head"},
    {FIRST_K_DESCALE, "attn:kv=fp8,d=64,g=4 | lens=100,100 kds=seq"},
    {ONE_V_DESCALE, "attn:kv=fp8,d=64,g=4 | lens=100 hkv=4 vds=head"},
    {NO_Q_DESCALE, "attn:q=fp8,kv=fp8,d=64,g=4 | lens=100"},
    {NO_GATE, "attn:gate=bf16,d=64,g=4 | lens=100"},
    {NO_KEPT, "attn:d=64,g=4,window=20,keep=4 | lens=100"},
    {CHUNK_MORE, "attn:phase=verify,t=4,d=64,g=2,chunk=32,lookback=1 | lens=100"},
    {PLAIN_ALIBI, "attn:d=64,g=4,alibi=sqrt | lens=100"},
    {NO_SPANS, "attn:phase=verify,t=16,d=64,g=2,spans=1 | lens=60"},
    {LAST_KEY, "attn:d=128,g=8 | lens=400"},
    {LAST_KEY, "attn:q=fp16,kv=fp16,d=128,g=8 | lens=17"},
    {WRONG_HEAD, "attn:d=64,g=3 | lens=40 hkv=3"},
    {NOT_CAUSAL, "attn:phase=verify,t=3,d=64,g=2 | lens=90"},
    {TRUNCATE_OUT, "attn:d=128,g=8 | lens=300"},
    {LOW_P, "attn:d=128,g=8 | lens=300"},
    {WRONG_SCALE, "attn:d=128,g=8 | lens=300"},
};

/* Keys behind their queries that spans show in the only sequence: one alone may weigh nothing. */
static int64_t shown_by_spans(const trial *t) {
    int64_t tokens = t->data.args.attn->q.shape[0], length = t->data.shape.attn.lens[0].low;
    int64_t shown = 0;
    for (int64_t i = 0; i < tokens; i++) {
        int64_t position = length - tokens + i;
        int64_t end = ((int32_t *)t->data.args.attn->span_ends.data)[i];
        int64_t last = end < length ? end : length - 1;
        shown += last > position ? last - position : 0;
    }
    return shown;
}

/* A descale near what stands in its place hides that it is not read. */
static int can_show(const trial *t, int fault) {
    const kgen_tensor *k = &t->data.args.attn->k_descale;
    const float *scale = k->data;
    if (fault == NO_SPANS) return shown_by_spans(t) >= 8;
    if (fault == NO_Q_DESCALE) scale = t->data.args.attn->q_descale.data;
    if (fault == NO_K_DESCALE || fault == NO_Q_DESCALE) return fabsf(scale[0] - 1) > 0.15f;
    if (fault != FIRST_K_DESCALE) return 1;
    float most = 0;
    for (int64_t i = 1; i < k->shape[0] * k->stride[0]; i++)
        most = fmaxf(most, fabsf(scale[i] - scale[0]));
    return most > 0.15f;
}

static trial *trial_that_shows(const char *line, int fault) {
    trial *t = trial_line(line, kgen__rng_next(&rng));
    while (!can_show(t, fault)) {
        trial_free(t);
        t = trial_line(line, kgen__rng_next(&rng));
    }
    return t;
}

static void faults_are_found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        for (int n = 0; n < 3; n++) {
            trial *t = trial_that_shows(faults[i].line, faults[i].fault);
            must_pass(t);
            imitate(&t->data, faults[i].fault);
            if (kgen__attn_compare(&t->result, &t->data, &t->answer, &t->err) != KGEN_E_MISMATCH)
                fail_msg("fault %d not found: %s: %.3f %.3f", faults[i].fault, t->line,
                         t->result.max_ratio, t->result.rms_ratio);
            trial_free(t);
        }
    }
}

static kgen_status compare_after(trial *t, int slot, size_t byte, unsigned char value) {
    unsigned char *at = &t->data.slot[slot].bytes[byte], old = *at;
    *at = value;
    kgen_status status = kgen__attn_compare(&t->result, &t->data, &t->answer, &t->err);
    *at = old;
    return status;
}

static int slot_named(const trial *t, const char *name) {
    for (int i = 0; i < kgen_args_count(&t->data.args); i++)
        if (strcmp(kgen_args_name(&t->data.args, i), name) == 0) return i;
    fail_msg("no tensor %s", name);
    return -1;
}

/* Guards, gaps between tokens, padding tokens, NaN, elements never written. */
static void writes_are_watched(void **state) {
    (void)state;
    trial *t = trial_line(
        "attn:phase=verify,t=2,d=64,g=2,lse=1 | lens=20,0,9 qlens=2,1,1 tail=1 qpad=1", 7);
    int out = slot_named(t, "out"), lse = slot_named(t, "lse");
    must_pass(t);
    size_t size = t->data.slot[out].size, row = 2 * 64 * 2;
    assert_int_equal(compare_after(t, out, KGEN__GUARD_BYTES - 1, 1), KGEN_E_MISMATCH);
    assert_int_equal(compare_after(t, out, size - KGEN__GUARD_BYTES, 1), KGEN_E_MISMATCH);
    assert_int_equal(compare_after(t, out, KGEN__GUARD_BYTES + row, 1), KGEN_E_MISMATCH);
    assert_int_equal(compare_after(t, lse, 0, 1), KGEN_E_MISMATCH);
    assert_int_equal(compare_after(t, lse, t->data.slot[lse].size - 1, 1), KGEN_E_MISMATCH);
    size_t padding = KGEN__GUARD_BYTES + 4 * (row + 16), empty = KGEN__GUARD_BYTES + 2 * (row + 16);
    assert_int_equal(compare_after(t, out, padding, 1), KGEN_E_MISMATCH);
    assert_int_equal(compare_after(t, out, empty, 1), KGEN_E_MISMATCH);
    uint16_t nan = 0x7fc0;
    memcpy(&t->data.slot[out].bytes[KGEN__GUARD_BYTES], &nan, sizeof nan);
    assert_int_equal(kgen__attn_compare(&t->result, &t->data, &t->answer, &t->err),
                     KGEN_E_MISMATCH);
    kgen__data_poison_outputs(&t->data);
    assert_int_equal(kgen__attn_compare(&t->result, &t->data, &t->answer, &t->err),
                     KGEN_E_MISMATCH);
    trial_free(t);
}

/* Does what the reference asks for. */
static void obey(trial *t) {
    const kgen_attn_args *a = t->data.args.attn;
    kgen__data_poison_outputs(&t->data);
    for (int64_t token = 0; token < t->answer.tokens; token++)
        for (int64_t h = 0; h < t->answer.heads && t->answer.claims[token] == 1; h++) {
            int64_t row = token * t->answer.heads + h, at = token * a->out.stride[0] + h * 64;
            for (int64_t d = 0; d < 64; d++)
                kgen__number_store(a->out.dtype, a->out.data, at + d, t->answer.out[row * 64 + d]);
            kgen__number_store(KGEN_DTYPE_F32, a->lse.data, h * a->lse.stride[0] + token,
                               t->answer.lse[h * t->answer.tokens + token]);
        }
    for (int64_t s = 0; s < t->answer.seqs; s++)
        ((int32_t *)a->error.data)[s] |= t->answer.wrong[s];
}

static void must_see(trial *t, unsigned char *bytes, size_t at) {
    obey(t);
    bytes[at] ^= 1;
    if (kgen__attn_compare(&t->result, &t->data, &t->answer, &t->err) != KGEN_E_MISMATCH)
        fail_msg("%s: byte %zu passed", t->line, at);
}

/* Tokens of nobody stay, error words gain what is wrong and nothing else. */
static void out_of_bounds_is_judged(void **state) {
    (void)state;
    int32_t seen = 0;
    int strangers = 0;
    for (int n = 0; n < 40; n++) {
        trial *t = trial_line("attn:phase=verify,t=2,d=64,g=2,lse=1 | lens=20,0,9,33 qlens=2,1,2,2 "
                              "tail=1 qpad=1 bad=8",
                              kgen__rng_next(&rng));
        const kgen_attn_args *a = t->data.args.attn;
        obey(t);
        if (kgen__attn_compare(&t->result, &t->data, &t->answer, &t->err) != KGEN_OK)
            fail_msg("%s: %s", t->line, t->err.text);
        for (int s = 0; s < 4; s++) {
            seen |= t->answer.wrong[s];
            must_see(t, a->error.data, (size_t)s * 4);
        }
        for (int64_t token = 0; token < t->answer.tokens; token++) {
            if (t->answer.claims[token]) continue;
            strangers++;
            must_see(t, a->out.data, (size_t)(token * a->out.stride[0] + 64) * 2);
            must_see(t, a->lse.data, (size_t)(token + a->lse.stride[0]) * 4);
        }
        trial_free(t);
    }
    assert_int_equal(seen, KGEN_ATTN_TOKENS | KGEN_ATTN_ROWS | KGEN_ATTN_LENGTH | KGEN_ATTN_PAGE);
    assert_true(strangers > 10);
}

/* Contents depend on the seed and the lengths only: whatever the layout, the
 * page, the padding, the answer is the same bits. */
static void layouts_agree(void **state) {
    (void)state;
    static const char *const variants[] = {
        "page=16,layout=nhd | lens=40,1,97 hkv=3",
        "page=1,layout=nhd | lens=40,1,97 hkv=3 pad=2",
        "page=16,layout=hnd | lens=40,1,97 hkv=3 rowpad=3",
        "page=544,layout=hnd | lens=40,1,97 hkv=3 packed=1 off=1",
        "page=x16,layout=nhd | lens=40,1,97 hkv=3 packed=2 page=48",
        "page=32,layout=nhd | lens=40,1,97 hkv=3 packed=3 qpad=2",
        "page=16,layout=hnd,table=i64 | lens=40,1,97 hkv=3 packed=3 pad=1",
        "page=32,layout=shuffle | lens=40,1,97 hkv=3",
        "page=16,layout=shuffle | lens=40,1,97 hkv=3 packed=1 pad=1",
        "page=16,layout=xpacked | lens=40,1,97 hkv=3",
        "page=144,layout=xpacked | lens=40,1,97 hkv=3 packed=1",
    };
    static const char *const kinds[] = {"q=bf16,kv=bf16", "q=fp16,kv=e4m3fnuz", "q=bf16,kv=e5m2"};
    for (int k = 0; k < 3; k++) {
        trial *first = NULL;
        for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
            char line[300];
            snprintf(line, sizeof line, "attn:%s,d=96,dv=64,g=2,lse=1,%s", kinds[k], variants[i]);
            trial *t = trial_line(line, 99);
            size_t rows = (size_t)(t->answer.tokens * t->answer.heads);
            if (!first) {
                first = t;
                continue;
            }
            assert_memory_equal(t->answer.out, first->answer.out, rows * 64 * sizeof(double));
            assert_memory_equal(t->answer.lse, first->answer.lse, rows * sizeof(double));
            trial_free(t);
        }
        trial_free(first);
    }
}

/* One key: the output is its value, lse its score. */
static void single_key(void **state) {
    (void)state;
    trial *t = trial_line("attn:kv=fp8,d=64,g=2,lse=1,o=e4m3fnuz | lens=1 oscale=0.5", 5);
    const kgen_attn_args *a = t->data.args.attn;
    int64_t page = ((int32_t *)a->block_table.data)[0];
    double kd = *(float *)a->k_descale.data, vd = *(float *)a->v_descale.data;
    for (int64_t h = 0; h < 2; h++) {
        double dot = 0;
        for (int64_t d = 0; d < 64; d++) {
            double v = kgen__number_load(a->v.dtype, a->v.data, page * a->v.stride[0] + d);
            assert_true(fabs(t->answer.out[h * 64 + d] - v * vd / 0.5) < 1e-12);
            dot += kgen__number_load(a->q.dtype, a->q.data, h * 64 + d) *
                   kgen__number_load(a->k.dtype, a->k.data, page * a->k.stride[0] + d);
        }
        assert_true(fabs(t->answer.lse[h] - dot * kd * 0.125) < 1e-6);
    }
    trial_free(t);
}

/* A sink only scales: out shrinks by exp(lse_before - lse_after). */
static void sinks_scale(void **state) {
    (void)state;
    trial *with = trial_line("attn:d=64,g=2,lse=1,sinks=1 | lens=50,3", 11);
    trial *without = trial_line("attn:d=64,g=2,lse=1 | lens=50,3", 11);
    for (int64_t row = 0; row < 4; row++) {
        int64_t at = row % 2 * 2 + row / 2; /* [T][H] -> [H][T] */
        double sink = ((float *)with->data.args.attn->sinks.data)[row % 2];
        double before = without->answer.lse[at], after = with->answer.lse[at];
        assert_true(fabs(exp(after) - exp(before) - exp(sink)) < 1e-9 * exp(after));
        for (int64_t d = 0; d < 64; d++)
            assert_true(fabs(with->answer.out[row * 64 + d] -
                             without->answer.out[row * 64 + d] * exp(before - after)) < 1e-12);
    }
    trial_free(with);
    trial_free(without);
}

/* Row i of a verify step is a decode step of the shorter sequence. */
static void verify_is_decode(void **state) {
    (void)state;
    trial *verify = trial_line(
        "attn:phase=verify,t=3,d=64,g=2,lse=1,window=9,softcap=1,alibi=1 | lens=40 qlens=3", 21);
    for (int32_t i = 0; i < 3; i++) {
        kgen_attn_args args = *verify->data.args.attn;
        kgen_spec spec = verify->data.spec;
        kgen__attn_answer answer;
        int32_t length = 38 + i;
        int64_t one = 1;
        spec.attn.phase = KGEN_PHASE_DECODE;
        args.seq_lens = kgen_tensor_dense(&length, KGEN_DTYPE_I32, 1, &one);
        args.q.data = (char *)args.q.data + i * args.q.stride[0] * 2;
        args.q.shape[0] = 1;
        assert_int_equal(kgen__attn_reference(&answer, &spec, &args, NULL), KGEN_OK);
        assert_memory_equal(answer.out, verify->answer.out + i * 128, 128 * sizeof(double));
        assert_true(answer.lse[0] == verify->answer.lse[i]);
        assert_true(answer.lse[1] == verify->answer.lse[3 + i]);
        kgen__attn_free(&answer);
    }
    trial_free(verify);
}

/* Scores far beyond where (e^a - e^-a)/(e^a + e^-a) is NaN. */
static void softcap_saturates(void **state) {
    (void)state;
    trial *t = trial_line("attn:d=128,g=1,softcap=1,lse=1 | lens=30 scale=500 softcap=3", 3);
    assert_true(fabs(t->answer.lse[0]) < 3 + log(30) + 1e-9);
    trial_free(t);
}

/* Everything that no row sees is NaN in these, so a stray read shows; and no
 * tolerance is looser than what the peers' tests allow. */
static void answers_are_finite_and_tight(void **state) {
    (void)state;
    for (int n = 0; n < 80; n++) {
        kgen__case c;
        assert_int_equal(kgen__case_random(&c, KGEN_FAMILY_ATTN, &rng, NULL, 150, NULL), KGEN_OK);
        c.attn.scale = c.attn.bad = 0;
        trial *t = trial_of(&c, kgen__rng_next(&rng));
        const kgen_attn_spec *s = &t->data.spec.attn;
        double loose = kgen_dtype_size((kgen_dtype)s->kv) == 1 ? 0.15 : 0.015;
        if (s->q == KGEN_DTYPE_F32) loose = 0.5; /* rounded: by the size of what is added up */
        for (int64_t i = 0; i < t->answer.tokens * t->answer.heads * t->answer.v_dim; i++) {
            double out = t->answer.out[i], tolerance = t->answer.out_tol[i];
            assert_true(isfinite(out) && isfinite(tolerance) && tolerance >= 0);
            if (kgen_dtype_size((kgen_dtype)s->out) == 2 && tolerance > loose + 0.01 * fabs(out))
                fail_msg("%s: tolerance %g at %g", t->line, tolerance, out);
        }
        for (int64_t i = 0; i < t->answer.tokens * t->answer.heads; i++)
            assert_false(isnan(t->answer.lse[i]) || t->answer.lse[i] == INFINITY);
        trial_free(t);
    }
}

/* ---- cases --------------------------------------------------------------------------- */

static void same_after_print(const kgen__case *c) {
    char line[KGEN__CASE_LINE_MAX], copy[KGEN__CASE_LINE_MAX];
    kgen__case back;
    kgen_error err = {KGEN_OK, ""};
    memset(&back, 0, sizeof back);
    kgen__case_print(line, c);
    if (kgen__case_parse(&back, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    kgen__case_print(copy, &back);
    assert_string_equal(line, copy);
    size_t lists = (size_t)c->seqs * sizeof c->attn.lens[0];
    assert_memory_equal(&back.attn.lens, &c->attn.lens, lists);
    assert_memory_equal(&back.attn.qlens, &c->attn.qlens, lists);
    assert_memory_equal(&back.attn.hkv, &c->attn.hkv,
                        sizeof c->attn - offsetof(kgen__attn_case, hkv));
    assert_int_equal(back.seed, c->seed);
}

static void cases_round_trip(void **state) {
    (void)state;
    kgen__case c;
    for (int i = 0; i < 500; i++) {
        assert_int_equal(kgen__case_random(&c, KGEN_FAMILY_ATTN, &rng, NULL, 0, NULL), KGEN_OK);
        c.attn.sink = -1.5;
        c.seed = kgen__rng_next(&rng);
        same_after_print(&c);
    }
    const char *line =
        "attn:phase=verify,t=4 | lens=rand:1..300,7 qlens=rand:0..4,4 oscale=0.000001";
    assert_int_equal(kgen__case_parse(&c, line, NULL), KGEN_OK);
    assert_int_equal(c.seqs, 2);
    assert_int_equal(c.attn.lens[0].high, 300);
    assert_true(c.attn.oscale == 0.000001);
    same_after_print(&c);
    int seen_low = 0;
    for (int i = 0; i < 200; i++) {
        kgen__case drawn = c, twin = c;
        uint64_t seed = kgen__rng_next(&rng);
        kgen__case_draw(&drawn, seed);
        kgen__case_draw(&twin, seed);
        assert_memory_equal(&drawn, &twin, sizeof drawn);
        assert_true(drawn.attn.lens[0].low >= 1 && drawn.attn.lens[0].low <= 300);
        assert_true(drawn.attn.qlens[0].low <= 4 && drawn.attn.lens[1].low == 7);
        seen_low += drawn.attn.lens[0].low < 100;
    }
    assert_true(seen_low > 10 && seen_low < 190);
}

static void bad_cases_are_refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"attn:d=64", "<spec> |"},
        {"attn:d=65 | lens=1", "d=65"},
        {"attn: | hkv=2", "lens: missing"},
        {"attn: | lens=1 lens=2", "given twice"},
        {"attn: | lens=", "term 1"},
        {"attn: | lens=1,x", "term 2"},
        {"attn: | lens=-1", "term 1"},
        {"attn: | lens=rand:5..3", "term 1"},
        {"attn: | lens=rand:5", "term 1"},
        {"attn: | lens=99999999", "term 1"},
        {"attn: | lens=1,2 seqs=3", "2 terms for seqs=3"},
        {"attn: | lens=1 hkv=0", "hkv=0"},
        {"attn: | lens=1 hkv=1x", "hkv=1x"},
        {"attn: | lens=1 hkv=99999999999999999999999", "hkv="},
        {"attn: | lens=1 colour=2", "no such key"},
        {"attn: | lens=1 packed", "key=value"},
        {"attn: | lens=1 scale=1e3", "scale=1e3"},
        {"attn: | lens=1 scale=0.1234567", "places"},
        {"attn: | lens=1 scale=-1", "positive"},
        {"attn: | lens=1 kds=many", "kds=many"},
        {"attn: | lens=1 qlens=2", "qlens"},
        {"attn: | lens=1 tail=1", "tail"},
        {"attn:phase=verify,t=2 | lens=9 qlens=3", "qlens"},
        {"attn:page=x16 | lens=9 page=24", "page=24"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kgen__case c, before;
        kgen_error err = {KGEN_OK, ""};
        memset(&c, 0x5a, sizeof c);
        before = c;
        if (kgen__case_parse(&c, bad[i][0], &err) == KGEN_OK) fail_msg("accepted: %s", bad[i][0]);
        if (!strstr(err.text, bad[i][1])) fail_msg("%s: %s", bad[i][0], err.text);
        assert_memory_equal(&c, &before, sizeof c);
    }
    static const char *const misfits[] = {"attn:kv=fp8 | lens=1 kds=token",
                                          "attn:kv=fp8,descale=token | lens=1 vds=head",
                                          "attn:layout=shuffle | lens=1 packed=2"};
    for (int i = 0; i < 3; i++) {
        kgen__case c;
        kgen__data data;
        kgen_spec spec;
        const kgen_target *target;
        assert_int_equal(kgen_target_find(&target, "cpu", NULL), KGEN_OK);
        assert_int_equal(kgen__case_parse(&c, misfits[i], NULL), KGEN_OK);
        assert_int_equal(kgen_spec_resolve(&spec, &c.spec, target, NULL), KGEN_OK);
        assert_int_equal(kgen__data_make(&data, &c, &spec, NULL), KGEN_E_ARG);
    }
}

static void random_cases_cover_the_grid(void **state) {
    (void)state;
    static const int32_t groups[] = {1,  2,  3,  4,  5,  6,  7,  8,  10,
                                     12, 14, 16, 24, 32, 48, 64, 71, 128};
    static const int32_t pages[] = {0,    1,   2,   4,   8,   16,  32,  64,   128,  256,
                                    1024, 144, 272, 528, 544, 672, 784, 1056, 1568, 1600};
    int group[129] = {0}, layout[5] = {0}, kds[6] = {0}, t[65] = {0};
    int kv[KGEN_DTYPE_COUNT] = {0}, out[KGEN_DTYPE_COUNT] = {0};
    int asymmetric = 0, empty = 0;
    char *page = calloc(1, 65537);
    assert_non_null(page);
    for (int i = 0; i < 4000; i++) {
        kgen__case c;
        assert_int_equal(kgen__case_random(&c, KGEN_FAMILY_ATTN, &rng, NULL, 0, NULL), KGEN_OK);
        const kgen_attn_spec *s = &c.spec.attn;
        group[s->group]++;
        page[s->page] = 1;
        layout[s->layout]++;
        kv[s->kv]++;
        out[s->out]++;
        kds[c.attn.kds]++;
        t[s->q_tokens]++;
        asymmetric += s->head_dim == 192 && s->v_dim == 128;
        for (int32_t n = 0; n < c.seqs; n++) empty += c.attn.lens[n].low == 0;
    }
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) assert_true(group[groups[i]]);
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) assert_true(page[pages[i]]);
    for (int i = 1; i <= 4; i++) assert_true(layout[i]);
    for (int i = KGEN_DTYPE_BF16; i <= KGEN_DTYPE_FP8; i++) assert_true(kv[i] && out[i]);
    for (int i = 0; i < KGEN__SCALE_COUNT; i++) assert_true(kds[i]);
    for (int i = 1; i <= 16; i++) assert_true(t[i]);
    assert_true(asymmetric && empty);
    free(page);
}

/* A parameter that no random case sets would never be checked: every word of a
 * parameter is drawn, and of numbers at least two. */
static void random_cases_draw_every_parameter(void **state) {
    enum { DRAWS = 4000, PARAMS = 64, WORDS = 64 };
    (void)state;
    for (int family = 0; family < KGEN_FAMILY_COUNT; family++) {
        int32_t first[PARAMS];
        int varied[PARAMS] = {0}, words[PARAMS][WORDS] = {{0}}, count = kgen_param_count(family);
        assert_in_range(count, 1, PARAMS);
        for (int i = 0; i < DRAWS; i++) {
            kgen__case c;
            assert_int_equal(kgen__case_random(&c, family, &rng, NULL, 0, NULL), KGEN_OK);
            for (int p = 0; p < count; p++) {
                const kgen_param *param = kgen_param_at(family, p);
                int32_t value = kgen_param_get(&c.spec, param);
                if (i == 0) first[p] = value;
                varied[p] |= value != first[p];
                for (int w = 0; param->symbols[w].name; w++)
                    words[p][w] |= param->symbols[w].value == value;
            }
        }
        for (int p = 0; p < count; p++) {
            const kgen_param *param = kgen_param_at(family, p);
            if (param->role != KGEN_ROLE_SHAPE) continue;
            if (!varied[p]) fail_msg("%s: %s is never drawn", kgen_family_name(family), param->key);
            for (int w = 0; param->symbols[w].name; w++)
                if (!words[p][w])
                    fail_msg("%s: %s=%s is never drawn", kgen_family_name(family), param->key,
                             param->symbols[w].name);
        }
    }
}

static void the_file_of_cases(void **state) {
    (void)state;
    kgen__case *cases;
    size_t count;
    kgen_error err = {KGEN_OK, ""};
    static char line[KGEN__CASE_LINE_MAX], other[KGEN__CASE_LINE_MAX];
    if (kgen__cases_load(&cases, &count, CASES, &err) != KGEN_OK) fail_msg("%s", err.text);
    assert_true(count >= 75);
    for (size_t i = 0; i < count; i++) {
        same_after_print(&cases[i]);
        kgen__case_print(line, &cases[i]);
        for (int32_t s = 0; s < cases[i].seqs; s++)
            if (cases[i].attn.lens[s].high > 700) fail_msg("%s: too long for the cpu device", line);
        for (size_t j = 0; j < i; j++) {
            kgen__case_print(other, &cases[j]);
            if (strcmp(line, other) == 0) fail_msg("twice: %s", line);
        }
    }
    free(cases);
    assert_int_equal(kgen__cases_load(&cases, &count, "tests/cases/none", &err), KGEN_E_IO);
    assert_null(cases);
    assert_int_equal(kgen__cases_load(&cases, &count, "/dev/zero", &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "/dev/zero:1: longer than 49151 bytes"));
    assert_null(cases);
}

/* Memory ends later than patience: a list is bounded, and an unfinished last line counts. */
static void too_many_cases(void **state) {
    kgen__case *cases;
    kgen_error err;
    size_t count;
    (void)state;
    for (int more = 0; more < 2; more++) {
        char path[] = "/tmp/kgen-test-cases-XXXXXX";
        int fd = mkstemp(path);
        FILE *file = fdopen(fd, "w");
        assert_non_null(file);
        for (int i = 0; i < 20000 + more; i++)
            fprintf(file, "%sscatter:op=draft_lens", i ? "\n" : "");
        fclose(file);
        kgen_status status = kgen__cases_load(&cases, &count, path, &err);
        unlink(path);
        assert_int_equal(status, more ? KGEN_E_ARG : KGEN_OK);
        assert_int_equal(count, more ? 0 : 20000);
        free(cases);
    }
    assert_non_null(strstr(err.text, ":20001: more than 20000 cases"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_round_trip),
        cmocka_unit_test(integers_round_trip),
        cmocka_unit_test(numbers_beyond_finite),
        cmocka_unit_test(numbers_round_to_even),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(honest_kernels_pass),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(writes_are_watched),
        cmocka_unit_test(out_of_bounds_is_judged),
        cmocka_unit_test(layouts_agree),
        cmocka_unit_test(single_key),
        cmocka_unit_test(sinks_scale),
        cmocka_unit_test(verify_is_decode),
        cmocka_unit_test(softcap_saturates),
        cmocka_unit_test(answers_are_finite_and_tight),
        cmocka_unit_test(cases_round_trip),
        cmocka_unit_test(bad_cases_are_refused),
        cmocka_unit_test(random_cases_cover_the_grid),
        cmocka_unit_test(random_cases_draw_every_parameter),
        cmocka_unit_test(the_file_of_cases),
        cmocka_unit_test(too_many_cases),
    };
    run_seed = test_seed();
    kgen__rng_seed(&rng, run_seed, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

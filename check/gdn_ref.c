/* Gated DeltaNet in double, from the formulas in <kgen/gdn_args.h>. Beside each
 * value stands how far a right kernel may be from it: 32-bit arithmetic on
 * these magnitudes, and where something is rounded, what may round elsewhere. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_gdn.h"

/* Relative errors: of a 32-bit sum of a head's terms, of one fast function. */
#define SUM_ERROR 0x1p-20
#define CALL_ERROR 0x1p-21
/* Error of log(1 + e^x) where 1 + e^x loses e^x. */
#define LOG_ERROR 0x1p-22
/* Below this 32-bit numbers may be flushed. */
#define TINY 0x1p-126

typedef struct num {
    double v, e; /* value, error */
} num;

typedef struct plane {
    double *v, *e;
} plane;

typedef struct world {
    const kgen_gdn_spec *spec;
    kgen_gdn_args a; /* INOUT tensors as they were before */
    kgen__gdn_dims d;
    kgen__answer *answer;
    int64_t n;
    kgen__gdn_seq seq;
    plane y;     /* [t][C], what the recurrence reads */
    plane state; /* [t + 1][V][K]: before the first token, after each */
    plane o;     /* [V] */
    double *memory;
} world;

/* ---- expectations ------------------------------------------------------------ */

static void expect(const world *w, int slot, const kgen_tensor *t, int64_t at, num x) {
    kgen__image *image = &w->answer->image[slot];
    double size = fabs(x.v) + x.e;
    image->want[at] = x.v;
    image->tolerance[at] = (float)((x.e + kgen__number_half_ulp(t->dtype, size)) * 1.000001 + TINY);
}

static void expect_exact(const world *w, int slot, const kgen_tensor *t, int64_t at, double value) {
    kgen__image *image = &w->answer->image[slot];
    kgen__number_store(t->dtype, image->bytes + image->offset, at, value);
    image->tolerance[at] = -1;
}

static double limited(kgen_dtype dtype, double x) {
    double most = kgen__number_max(dtype);
    return dtype == KGEN_DTYPE_FP16 || kgen_dtype_size(dtype) == 1 ? fmax(-most, fmin(most, x)) : x;
}

/* A state saturates in fp16. */
static num limited_num(kgen_dtype dtype, num x) {
    double low = limited(dtype, x.v - x.e), high = limited(dtype, x.v + x.e);
    double v = limited(dtype, x.v);
    return (num){v, fmax(high - v, v - low)};
}

/* What a rounding in the middle may give: the neighbours too where x is near
 * the edge between them. */
static num rounded(int32_t type, num x) {
    kgen_dtype dtype = (kgen_dtype)type;
    double v = kgen__number_decode(dtype, kgen__number_encode(dtype, x.v));
    double low = kgen__number_decode(dtype, kgen__number_encode(dtype, x.v - x.e));
    double high = kgen__number_decode(dtype, kgen__number_encode(dtype, x.v + x.e));
    return (num){v, fmax(high - v, v - low)};
}

/* ---- functions --------------------------------------------------------------- */

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static num num_sigmoid(num x) {
    double s = sigmoid(x.v);
    double low = sigmoid(x.v - x.e), high = sigmoid(x.v + x.e);
    return (num){s, fmax(high - s, s - low) + CALL_ERROR * s + 4 * TINY};
}

static num silu(num x) {
    num s = num_sigmoid(x);
    return (num){x.v * s.v, fabs(x.v) * s.e + s.v * x.e + CALL_ERROR * fabs(x.v * s.v)};
}

static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

static num num_softplus(num x) {
    double y = softplus(x.v);
    return (num){y, sigmoid(x.v) * x.e + CALL_ERROR * y + LOG_ERROR};
}

static num num_exp(num x) {
    double y = exp(x.v);
    return (num){y, y * (expm1(x.e) + CALL_ERROR * (1 + fabs(x.v))) + TINY};
}

/* 1 / sqrt(x + eps), x a sum that is not negative. */
static num rsqrt_of(num x, double eps) {
    double v = 1 / sqrt(x.v + eps);
    double low = 1 / sqrt(x.v + x.e + eps), high = 1 / sqrt(fmax(x.v - x.e, 0) + eps);
    return (num){v, fmax(high - v, v - low) + CALL_ERROR * v};
}

static double load(const kgen_tensor *t, int64_t at) {
    return kgen__number_load(t->dtype, t->data, at);
}

/* ---- inputs ------------------------------------------------------------------ */

/* Raw input of a channel, as the convolution state keeps it. */
static double raw_input(const world *w, int64_t t, int64_t channel) {
    int packed = w->spec->layout != KGEN_ROWS_PRESPLIT;
    const kgen_tensor *x = packed ? &w->a.qkvz : &w->a.x;
    int64_t column = packed ? kgen__gdn_column(&w->d, w->spec->layout, channel) : channel;
    double value = load(x, (w->seq.first + t) * x->stride[0] + column);
    return rounded(w->spec->conv_state, (num){value, 0}).v;
}

static double history(const world *w, int64_t channel, int64_t back) {
    int64_t time = kgen__gdn_time(w->spec, &w->a, &w->seq, w->d.w - 1 - back);
    if (w->seq.fresh) return 0;
    return load(&w->a.conv_state,
                kgen__gdn_conv_at(&w->a.conv_state, w->seq.conv_read, channel, time));
}

/* The inputs of token t: its own, then those before it, w in all. */
static void window_of(const world *w, double *window, int64_t t, int64_t channel) {
    int64_t back = 0;
    for (int64_t j = 0; j < w->d.w; j++) {
        if (t >= 0) {
            window[j] = raw_input(w, t, channel);
            t = kgen__gdn_parent(w->spec, &w->a, w->n, t);
        } else {
            window[j] = history(w, channel, ++back);
        }
    }
}

static num convolved(const world *w, const double *window, int64_t channel) {
    num sum = {w->spec->conv_bias ? load(&w->a.conv_bias, channel) : 0, 0};
    double size = fabs(sum.v);
    for (int64_t j = 0; j < w->d.w; j++) {
        double term = window[j] * load(&w->a.conv_weight, channel * w->d.w + w->d.w - 1 - j);
        sum.v += term;
        size += fabs(term);
    }
    sum.e = CALL_ERROR * size;
    num y = w->spec->conv_act ? silu(sum) : sum;
    int rounds = kgen__gdn_has_step(w->spec) && w->spec->conv_round;
    return rounds ? rounded(w->spec->x, y) : y;
}

static void save_window(const world *w, const double *window, int64_t t, int64_t channel) {
    const kgen_tensor *c = &w->a.conv_windows;
    if (w->spec->save != KGEN_SAVE_BUFFER || !c->data || w->seq.line < 0) return;
    for (int64_t j = 0; j < w->d.w - 1; j++) { /* oldest first */
        int64_t time = w->d.w - 2 - j;
        int64_t first = c->layout == KGEN_CONV_DS ? channel : time;
        int64_t second = c->layout == KGEN_CONV_DS ? time : channel;
        expect_exact(w, CONV_WINDOWS, c,
                     w->seq.line * c->stride[0] + t * c->stride[1] + first * c->stride[2] +
                         second * c->stride[3],
                     window[j]);
    }
}

/* Every input in its column; of a sequence without a state the zeros before, too. */
static void turn_window(const world *w, int64_t channel) {
    int64_t old = w->d.w - 1;
    for (int64_t m = w->seq.fresh ? 0 : old; m < old + w->seq.count; m++)
        expect_exact(w, CONV_STATE, &w->a.conv_state,
                     kgen__gdn_conv_at(&w->a.conv_state, w->seq.conv_write, channel,
                                       kgen__gdn_time(w->spec, &w->a, &w->seq, m)),
                     m < old ? 0 : raw_input(w, m - old, channel));
}

/* accept=0: the last w - 1 inputs. accept=1: all but the oldest of them. */
static void move_window(const world *w, int64_t channel) {
    const kgen_gdn_spec *s = w->spec;
    int64_t old = w->d.w - 1, skip = s->accept ? 1 : w->seq.count;
    int moves =
        s->save != KGEN_SAVE_NONE && (s->save != KGEN_SAVE_BUFFER || s->index == KGEN_INDEX_PAIR);
    if (!moves || w->seq.conv_write < 0) return;
    if (s->circular) {
        turn_window(w, channel);
        return;
    }
    for (int64_t i = skip; i < old + w->seq.count; i++) {
        double value = i < old ? history(w, channel, old - i) : raw_input(w, i - old, channel);
        expect_exact(w, CONV_STATE, &w->a.conv_state,
                     kgen__gdn_conv_at(&w->a.conv_state, w->seq.conv_write, channel, i - skip),
                     value);
    }
}

static void convolve(world *w) {
    double window[8];
    for (int64_t channel = 0; channel < w->d.c; channel++) {
        for (int64_t t = 0; t < w->seq.count; t++) {
            window_of(w, window, t, channel);
            num y = convolved(w, window, channel);
            w->y.v[t * w->d.c + channel] = y.v;
            w->y.e[t * w->d.c + channel] = y.e;
            save_window(w, window, t, channel);
        }
        move_window(w, channel);
    }
}

static void read_inputs(world *w) {
    for (int64_t t = 0; t < w->seq.count; t++)
        for (int64_t f = 0; f < w->d.c; f++) {
            int64_t at;
            const kgen_tensor *x = kgen__gdn_input(&at, w->spec, &w->a, &w->d, w->seq.first + t, f);
            w->y.v[t * w->d.c + f] = load(x, at);
            w->y.e[t * w->d.c + f] = 0;
        }
}

/* ---- gates ------------------------------------------------------------------- */

static double b_input(const world *w, int64_t row, int64_t hv) {
    if (w->spec->layout == KGEN_ROWS_PRESPLIT) return load(&w->a.b, row * w->a.b.stride[0] + hv);
    return load(&w->a.ba, row * w->a.ba.stride[0] + kgen__gdn_b_column(&w->d, w->spec->layout, hv));
}

static double a_input(const world *w, int64_t row, int64_t hv, int64_t i) {
    if (w->spec->layout == KGEN_ROWS_PRESPLIT)
        return load(&w->a.a, row * w->a.a.stride[0] + hv * w->d.decays + i);
    return load(&w->a.ba, row * w->a.ba.stride[0] + kgen__gdn_a_column(&w->d, w->spec->layout, hv));
}

static num decay_of(const world *w, int64_t t, int64_t hv, int64_t i) {
    if (w->spec->raw_gates) return num_exp((num){a_input(w, w->seq.first + t, hv, i), 0});
    double a_log = load(&w->a.a_log, hv);
    double x = a_input(w, w->seq.first + t, hv, i) + load(&w->a.dt_bias, hv * w->d.decays + i);
    double rate = exp(a_log), rate_error = CALL_ERROR * (1 + fabs(a_log));
    num shifted = {x, 0x1p-23 * fabs(x)}, g;
    if (w->spec->gate == KGEN_GATE_KDA_BOUND) {
        num y = num_sigmoid((num){rate * x, rate * shifted.e + fabs(rate * x) * rate_error});
        double bound = fabs((double)w->a.lower_bound);
        g = (num){-bound * y.v, bound * (y.e + CALL_ERROR * y.v)};
    } else {
        num y = num_softplus(shifted);
        g = (num){-rate * y.v, rate * y.e + rate * y.v * rate_error};
    }
    return num_exp(g);
}

static num beta_of(const world *w, int64_t t, int64_t hv) {
    num b = {b_input(w, w->seq.first + t, hv), 0};
    num beta = w->spec->raw_gates ? b : num_sigmoid(b);
    return w->spec->beta_round ? rounded(w->spec->x, beta) : beta;
}

/* ---- recurrence -------------------------------------------------------------- */

enum { K_MAX = 256 };

typedef struct token {
    num q[K_MAX], k[K_MAX], decay[K_MAX];
    double kq_size; /* sum |k q| */
    num beta;
    const double *v, *ve;
} token;

/* A query or key: normalised, scaled. */
static void take_vector(const world *w, num *out, int64_t t, int64_t channel, double scale) {
    const double *v = w->y.v + t * w->d.c + channel, *e = w->y.e + t * w->d.c + channel;
    num squares = {0, 0}, factor = {1, 0};
    for (int64_t i = 0; i < w->d.k; i++) {
        squares.v += v[i] * v[i];
        squares.e += 2 * fabs(v[i]) * e[i] + e[i] * e[i];
    }
    squares.e += SUM_ERROR * squares.v;
    if (w->spec->l2norm) factor = rsqrt_of(squares, (double)w->a.l2_eps);
    for (int64_t i = 0; i < w->d.k; i++) {
        double x = v[i] * factor.v * scale;
        out[i] =
            (num){x, fabs(scale) * (fabs(v[i]) * factor.e + factor.v * e[i] + e[i] * factor.e) +
                         CALL_ERROR * fabs(x)};
    }
}

static void take_token(const world *w, token *x, int64_t t, int64_t hv) {
    int64_t h = w->spec->head_map ? hv % w->d.hk : hv / w->d.g;
    take_vector(w, x->q, t, h * w->d.k, (double)w->a.q_scale);
    take_vector(w, x->k, t, w->d.kd + h * w->d.k, 1);
    for (int64_t i = 0; i < w->d.k; i++)
        x->decay[i] = i < w->d.decays ? decay_of(w, t, hv, i) : x->decay[0];
    x->beta = beta_of(w, t, hv);
    x->v = w->y.v + t * w->d.c + 2 * w->d.kd + hv * w->d.v;
    x->ve = w->y.e + t * w->d.c + 2 * w->d.kd + hv * w->d.v;
    x->kq_size = 0;
    for (int64_t i = 0; i < w->d.k; i++) x->kq_size += fabs(x->k[i].v * x->q[i].v);
}

/* S = decay S of one row; returns S k. */
static num decay_row(const world *w, const token *x, double *s, double *e) {
    num sum = {0, 0};
    double size = 0;
    for (int64_t i = 0; i < w->d.k; i++) {
        e[i] = e[i] * x->decay[i].v + (fabs(s[i]) + e[i]) * x->decay[i].e;
        s[i] *= x->decay[i].v;
        sum.v += s[i] * x->k[i].v;
        sum.e += e[i] * fabs(x->k[i].v) + (fabs(s[i]) + e[i]) * x->k[i].e;
        size += fabs(s[i] * x->k[i].v);
    }
    sum.e += SUM_ERROR * size;
    return sum;
}

/* S += u k^T of one row; returns S q. */
static num update_row(const world *w, const token *x, double *s, double *e, num u) {
    num sum = {0, 0};
    double size = fabs(u.v) * x->kq_size;
    for (int64_t i = 0; i < w->d.k; i++) {
        double product = u.v * x->k[i].v;
        size += fabs(s[i] * x->q[i].v);
        e[i] += fabs(u.v) * x->k[i].e + fabs(x->k[i].v) * u.e + u.e * x->k[i].e +
                CALL_ERROR * (fabs(s[i]) + fabs(product));
        s[i] += product;
        sum.v += s[i] * x->q[i].v;
        sum.e += e[i] * fabs(x->q[i].v) + (fabs(s[i]) + e[i]) * x->q[i].e;
    }
    sum.e += SUM_ERROR * size;
    return sum;
}

static int64_t ring_row(const world *w, int64_t i) {
    return (w->seq.ring_start + i) % w->a.ring_k.shape[1];
}

static void append_update(const world *w, int64_t t, int64_t hv, int64_t v, num u) {
    const kgen_tensor *r = &w->a.ring_u;
    if (w->spec->save != KGEN_SAVE_REPLAY) return;
    int64_t at = w->seq.read * r->stride[0] + ring_row(w, w->seq.ring_len + t) * r->stride[1];
    expect(w, RING_U, r, at + hv * w->d.v + v, limited_num(r->dtype, u));
}

static void append_token(const world *w, const token *x, int64_t t, int64_t hv) {
    const kgen_tensor *k = &w->a.ring_k, *decay = &w->a.ring_decay;
    int64_t h = w->spec->head_map ? hv % w->d.hk : hv / w->d.g;
    if (w->spec->save != KGEN_SAVE_REPLAY) return;
    int64_t row = ring_row(w, w->seq.ring_len + t);
    for (int64_t i = 0; i < w->d.k; i++)
        expect(w, RING_K, k, w->seq.read * k->stride[0] + row * k->stride[1] + h * w->d.k + i,
               x->k[i]);
    for (int64_t i = 0; i < w->d.decays; i++)
        expect(w, RING_DECAY, decay,
               w->seq.read * decay->stride[0] + row * decay->stride[1] + hv * w->d.decays + i,
               x->decay[i]);
}

/* One token: state `into`, which holds the state before, and o. */
static void step(const world *w, plane into, int64_t t, int64_t hv) {
    token x;
    take_token(w, &x, t, hv);
    append_token(w, &x, t, hv);
    for (int64_t v = 0; v < w->d.v; v++) {
        double *s = into.v + v * w->d.k, *e = into.e + v * w->d.k;
        num sk = decay_row(w, &x, s, e);
        double rest = x.v[v] - sk.v;
        num u = {x.beta.v * rest, 0};
        double rest_error = x.ve[v] + sk.e + CALL_ERROR * (fabs(x.v[v]) + fabs(sk.v));
        u.e = x.beta.v * rest_error + x.beta.e * (fabs(rest) + rest_error) + CALL_ERROR * fabs(u.v);
        append_update(w, t, hv, v, u);
        num o = update_row(w, &x, s, e, u);
        w->o.v[v] = o.v;
        w->o.e[v] = o.e;
    }
}

/* ---- states ------------------------------------------------------------------ */

static plane state_after(const world *w, int64_t t) {
    int64_t at = (t + 1) * w->d.v * w->d.k;
    return (plane){w->state.v + at, w->state.e + at};
}

static void read_state(const world *w, int64_t hv) {
    plane s = state_after(w, -1);
    const kgen_tensor *t = &w->a.state;
    for (int64_t v = 0; v < w->d.v; v++)
        for (int64_t k = 0; k < w->d.k; k++) {
            int64_t at = w->seq.read * t->stride[0] + kgen__gdn_state_at(w->spec, hv, v, k);
            s.v[v * w->d.k + k] = w->seq.fresh ? 0 : load(t, at);
            s.e[v * w->d.k + k] = 0;
        }
}

static void write_state(const world *w, int slot, const kgen_tensor *t, int64_t base, int64_t hv,
                        plane s) {
    for (int64_t v = 0; v < w->d.v; v++)
        for (int64_t k = 0; k < w->d.k; k++) {
            num x = {s.v[v * w->d.k + k], s.e[v * w->d.k + k]};
            expect(w, slot, t, base + kgen__gdn_state_at(w->spec, hv, v, k),
                   limited_num(t->dtype, x));
        }
}

static void write_slot(const world *w, int64_t slot, int64_t hv, int64_t t) {
    if (slot >= 0)
        write_state(w, STATE, &w->a.state, slot * w->a.state.stride[0], hv, state_after(w, t));
}

/* The state as a pool of its type would give it back. */
static void round_state(const world *w, plane s) {
    kgen_dtype dtype = (kgen_dtype)w->spec->state;
    if (dtype == KGEN_DTYPE_F32) return;
    for (int64_t i = 0; i < w->d.v * w->d.k; i++) {
        num x = rounded(dtype, limited_num(dtype, (num){s.v[i], s.e[i]}));
        s.v[i] = x.v;
        s.e[i] = x.e;
    }
}

static void apply_entry(const world *w, plane s, int64_t i, int64_t hv) {
    const kgen_gdn_args *a = &w->a;
    int64_t h = w->spec->head_map ? hv % w->d.hk : hv / w->d.g, row = ring_row(w, i);
    int64_t k_row = w->seq.read * a->ring_k.stride[0] + row * a->ring_k.stride[1] + h * w->d.k;
    int64_t u_row = w->seq.read * a->ring_u.stride[0] + row * a->ring_u.stride[1] + hv * w->d.v;
    int64_t decay_row_at =
        w->seq.read * a->ring_decay.stride[0] + row * a->ring_decay.stride[1] + hv * w->d.decays;
    for (int64_t v = 0; v < w->d.v; v++) {
        double u = load(&a->ring_u, u_row + v);
        for (int64_t k = 0; k < w->d.k; k++) {
            int64_t at = v * w->d.k + k;
            double decay = load(&a->ring_decay, decay_row_at + (w->d.decays > 1 ? k : 0));
            double product = u * load(&a->ring_k, k_row + k);
            s.e[at] = s.e[at] * decay + CALL_ERROR * (fabs(s.v[at] * decay) + fabs(product));
            s.v[at] = s.v[at] * decay + product;
        }
    }
}

/* The state that token t starts from. A parent that is not the token before
 * comes from the buffer, rounded as it is there. */
static void take_parent(const world *w, int64_t t) {
    int64_t parent = kgen__gdn_parent(w->spec, &w->a, w->n, t);
    plane from = state_after(w, parent), into = state_after(w, t);
    size_t bytes = (size_t)(w->d.v * w->d.k) * sizeof(double);
    memcpy(into.v, from.v, bytes);
    memcpy(into.e, from.e, bytes);
    if (parent >= 0 && (w->spec->state_round || parent != t - 1)) round_state(w, into);
}

static void keep_state(const world *w, int64_t t, int64_t hv) {
    const kgen_tensor *b = &w->a.buffer;
    if (w->spec->save == KGEN_SAVE_SLOTS)
        write_slot(w, kgen__gdn_token_slot(w->spec, &w->a, w->n, t), hv, t);
    if (w->spec->save == KGEN_SAVE_BUFFER && w->seq.line >= 0)
        write_state(w, BUFFER, b, w->seq.line * b->stride[0] + t * b->stride[1], hv,
                    state_after(w, t));
}

/* ---- outputs ----------------------------------------------------------------- */

static double z_input(const world *w, int64_t row, int64_t i) {
    if (w->spec->layout == KGEN_ROWS_PRESPLIT) return load(&w->a.z, row * w->a.z.stride[0] + i);
    return load(&w->a.qkvz,
                row * w->a.qkvz.stride[0] + kgen__gdn_column(&w->d, w->spec->layout, w->d.c + i));
}

/* The gated norm, in place. */
static void norm(const world *w, int64_t t, int64_t hv) {
    num mean = {0, 0};
    for (int64_t i = 0; i < w->d.v; i++) {
        num o = {w->o.v[i], w->o.e[i]};
        if (w->spec->o_round) o = rounded(w->spec->x, o);
        w->o.v[i] = o.v;
        w->o.e[i] = o.e;
        mean.v += o.v * o.v / (double)w->d.v;
        mean.e += (2 * fabs(o.v) * o.e + o.e * o.e) / (double)w->d.v;
    }
    mean.e += SUM_ERROR * mean.v;
    num r = rsqrt_of(mean, (double)w->a.norm_eps);
    for (int64_t i = 0; i < w->d.v; i++) {
        double z = z_input(w, w->seq.first + t, hv * w->d.v + i), gate = sigmoid(z);
        double factor = load(&w->a.norm_weight, i) * (w->spec->out_gate ? gate : z * gate);
        double y = w->o.v[i] * r.v * factor;
        w->o.e[i] = fabs(factor) * (w->o.e[i] * (r.v + r.e) + fabs(w->o.v[i]) * r.e) +
                    4 * CALL_ERROR * fabs(y);
        w->o.v[i] = y;
    }
}

/* A group so small that 32-bit numbers may be flushed has any scale up to 1. */
static int is_flushed(num top) { return top.v > 0 && top.v - top.e < 0x1p-100; }

/* Groups of 128: the largest becomes the type's largest number. */
static void quantise(const world *w, int64_t row, int64_t hv) {
    const kgen_tensor *t = &w->a.out_scale;
    double most = kgen__number_max((kgen_dtype)w->spec->out);
    for (int64_t first = 0; first < w->d.v; first += 128) {
        num top = {0, 0};
        for (int64_t i = first; i < first + 128; i++) {
            top.v = fmax(top.v, fabs(w->o.v[i]));
            top.e = fmax(top.e, w->o.e[i]);
        }
        num scale = {top.v > 0 ? top.v / most : 1, top.e / most + CALL_ERROR * top.v / most};
        if (is_flushed(top)) scale = (num){0.5, 0.5};
        expect(w, OUT_SCALE, t, row * t->stride[0] + (hv * w->d.v + first) / 128 * t->stride[1],
               scale);
        for (int64_t i = first; i < first + 128; i++) {
            double y = w->o.v[i] / scale.v, e = w->o.e[i] / scale.v;
            w->o.e[i] = is_flushed(top) ? most : e + fabs(y) * (scale.e / scale.v + CALL_ERROR);
            w->o.v[i] = y;
        }
    }
}

static void write_output(const world *w, int64_t t, int64_t hv) {
    const kgen_tensor *out = &w->a.out;
    int64_t row = w->seq.first + t;
    if (kgen__gdn_has_norm(w->spec)) norm(w, t, hv);
    if (w->a.out_scale.data) quantise(w, row, hv);
    for (int64_t i = 0; i < w->d.v; i++) {
        num o = {w->o.v[i], w->o.e[i]};
        if (kgen_dtype_size(out->dtype) == 1) o = limited_num(out->dtype, o);
        expect(w, OUT, out, row * out->stride[0] + hv * out->stride[1] + i, o);
    }
}

/* ---- sequences --------------------------------------------------------------- */

static void head(world *w, int64_t hv) {
    const kgen_gdn_spec *s = w->spec;
    read_state(w, hv);
    for (int64_t i = 0; s->save == KGEN_SAVE_REPLAY && i < w->seq.ring_len; i++)
        apply_entry(w, state_after(w, -1), i, hv);
    if (w->seq.folds) write_slot(w, w->seq.write, hv, -1);
    for (int64_t t = 0; t < w->seq.count; t++) {
        take_parent(w, t);
        step(w, state_after(w, t), t, hv);
        keep_state(w, t, hv);
        write_output(w, t, hv);
    }
    if (s->save == KGEN_SAVE_FINAL || (s->save == KGEN_SAVE_BUFFER && s->index == KGEN_INDEX_PAIR))
        write_slot(w, w->seq.write, hv, w->seq.count - 1);
}

/* Copies of z, b and a in fuse=c; zeros where nothing is live. */
static void copied_row(const world *w, int64_t row, int live) {
    const kgen_gdn_args *a = &w->a;
    for (int64_t i = 0; a->z_out.data && i < w->d.vd; i++)
        expect_exact(w, Z_OUT, &a->z_out, row * a->z_out.stride[0] + i,
                     live ? z_input(w, row, i) : 0);
    for (int64_t i = 0; i < w->d.hv; i++) {
        if (a->b_out.data)
            expect_exact(w, B_OUT, &a->b_out, row * a->b_out.stride[0] + i,
                         live ? b_input(w, row, i) : 0);
        if (a->a_out.data)
            expect_exact(w, A_OUT, &a->a_out, row * a->a_out.stride[0] + i,
                         live ? a_input(w, row, i, 0) : 0);
    }
}

static void unpacked_row(const world *w, int64_t row) {
    const kgen_gdn_args *a = &w->a;
    for (int64_t f = 0; f < w->d.c; f++) {
        int64_t at = (row - w->seq.first) * w->d.c + f;
        expect(w, OUT, &a->out, row * a->out.stride[0] + f, (num){w->y.v[at], w->y.e[at]});
    }
    copied_row(w, row, 1);
}

static void zero_row(const world *w, int64_t row) {
    const kgen_tensor *out = &w->a.out, *scale = &w->a.out_scale;
    int64_t heads = kgen__gdn_has_step(w->spec) ? w->d.hv : 1;
    int64_t each = kgen__gdn_has_step(w->spec) ? w->d.v : w->d.c;
    for (int64_t i = 0; i < heads * each; i++)
        expect_exact(w, OUT, out,
                     row * out->stride[0] + (heads > 1 ? i / each * out->stride[1] : 0) + i % each,
                     0);
    for (int64_t i = 0; scale->data && i < scale->shape[1]; i++)
        expect_exact(w, OUT_SCALE, scale, row * scale->stride[0] + i * scale->stride[1], 0);
    if (!kgen__gdn_has_step(w->spec)) copied_row(w, row, 0);
}

static void sequence(world *w) {
    w->seq = kgen__gdn_sequence(w->spec, &w->a, w->n);
    for (int64_t t = 0; t < w->seq.count && !w->seq.live; t++) zero_row(w, w->seq.first + t);
    if (!w->seq.live || w->seq.count == 0) return;
    if (kgen__gdn_has_conv(w->spec))
        convolve(w);
    else
        read_inputs(w);
    for (int64_t hv = 0; kgen__gdn_has_step(w->spec) && hv < w->d.hv; hv++) head(w, hv);
    for (int64_t t = 0; !kgen__gdn_has_step(w->spec) && t < w->seq.count; t++)
        unpacked_row(w, w->seq.first + t);
}

/* ---- the whole --------------------------------------------------------------- */

static kgen_status make_planes(world *w, kgen_error *err) {
    int64_t y = w->spec->tokens * w->d.c, head_size = w->d.v * w->d.k;
    int64_t states = (w->spec->tokens + 1) * head_size;
    w->memory = malloc((size_t)(2 * (y + states + w->d.v)) * sizeof(double));
    if (!w->memory) return kgen_fail(err, KGEN_E_NOMEM, "reference: out of memory");
    w->y = (plane){w->memory, w->memory + y};
    w->state = (plane){w->memory + 2 * y, w->memory + 2 * y + states};
    w->o = (plane){w->memory + 2 * (y + states), w->memory + 2 * (y + states) + w->d.v};
    return KGEN_OK;
}

static void padding_rows(const world *w, int64_t seqs) {
    int64_t used = seqs * w->spec->tokens, before = 0;
    if (w->spec->varlen) {
        before = kgen__gdn_begin(&w->a, 0);
        used = kgen__gdn_begin(&w->a, seqs);
    }
    for (int64_t row = 0; row < w->a.out.shape[0]; row++)
        if (row < before || row >= used) zero_row(w, row);
}

kgen_status kgen__gdn_reference(kgen__answer *answer, const kgen_spec *spec, const kgen__data *data,
                                kgen_error *err) {
    world w = {.spec = &spec->gdn, .d = kgen__gdn_dims_of(&spec->gdn), .answer = answer};
    kgen_args args;
    kgen_args_room room;
    kgen_status status = kgen__answer_make(answer, &args, &room, data, err);
    w.a = *args.gdn;
    if (status == KGEN_OK) status = make_planes(&w, err);
    int64_t seqs = data->args.gdn->slots.shape[0];
    if (status == KGEN_OK) padding_rows(&w, seqs);
    for (w.n = 0; status == KGEN_OK && w.n < seqs; w.n++) sequence(&w);
    free(w.memory);
    if (status != KGEN_OK) kgen__answer_free(answer);
    return status;
}

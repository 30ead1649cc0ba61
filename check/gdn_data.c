/* The tensors of a case of gdn. All that no token may look at is poison: rows
 * of nobody and of sequences that are not computed, slots, columns and ring
 * entries that are not read, states of sequences that begin with zeros. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_gdn.h"

_Static_assert((int)KGEN__GDN_SLOTS <= (int)KGEN__SLOT_MAX, "slots");

/* ---- shapes --------------------------------------------------------------- */

typedef struct shaper {
    kgen__data *data;
    const kgen__gdn_case *c;
    const kgen_gdn_spec *s;
    kgen_gdn_args *a;
    kgen__gdn_dims d;
    int64_t seqs, rows, read;  /* rows of outputs, of inputs */
    int64_t each, pool, lines; /* slots of a sequence, of all */
} shaper;

static int64_t columns_of(const kgen_gdn_spec *s, const kgen__gdn_case *c) {
    return (s->index == KGEN_INDEX_SPEC ? s->tokens : 2) + c->scols;
}

/* Slots that a sequence may need, all different. */
static int64_t slots_of(const kgen_gdn_spec *s, const kgen__gdn_case *c) {
    if (c->same) return 1;
    if (s->index == KGEN_INDEX_SPEC) return columns_of(s, c);
    if (s->index == KGEN_INDEX_ONE) return 1;
    return s->save == KGEN_SAVE_SLOTS ? 1 + s->tokens : 2;
}

static int64_t units(const shaper *p, int32_t dtype) {
    return (int64_t)p->c->slotpad * (16 / kgen_dtype_size((kgen_dtype)dtype));
}

/* What is read in pieces of four elements keeps to them. */
enum { PIECE = 4 };

static void pad(kgen_tensor *t, int64_t first, int64_t second, int64_t third) {
    kgen__tensor_pad(t, (int64_t[KGEN_TENSOR_RANK_MAX]){first, second, third});
}

/* Where a row wants so much at least, the case has more. */
static void lengthen(kgen_tensor *t, int dimension, int64_t more) {
    if (t->rank > dimension) t->shape[dimension] += more;
}

/* Optional tensors that the case goes without. */
static uint64_t absent(const shaper *p) {
    const struct {
        int id, there;
    } optional[] = {{HAS_INITIAL, p->c->init},     {LINES, p->c->lines},
                    {CONV_WINDOWS, p->c->windows}, {BA, kgen__gdn_has_step(p->s) || p->c->copies},
                    {Z_OUT, p->c->copies},         {B_OUT, p->c->copies},
                    {A_OUT, p->c->copies}};
    uint64_t mask = 0;
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (!optional[i].there) mask |= (uint64_t)1 << optional[i].id;
    return mask;
}

static kgen_status shape_tensors(shaper *p, kgen_error *err) {
    const kgen_gdn_spec *s = p->s;
    const kgen_arg_size sizes[] = {{"N", p->seqs},
                                   {"N+1", p->seqs + 1},
                                   {"T", p->rows},
                                   {"R", p->read},
                                   {"slots", p->pool},
                                   {"columns", columns_of(s, p->c)},
                                   {"L", p->d.w - 1 + (s->accept ? s->tokens - 1 : 0) + p->c->cols},
                                   {"P", s->ring + s->tokens + p->c->rows},
                                   {"lines", p->lines}};
    return kgen__data_shape(p->data, sizes, sizeof sizes / sizeof sizes[0], absent(p), err);
}

/* Queries, keys and values apart have room between their heads. */
static void pad_inputs(shaper *p) {
    kgen_gdn_args *a = p->a;
    int64_t row = p->c->rowpad, head = PIECE * (int64_t)p->c->headpad;
    int pieces = p->d.c % PIECE == 0; /* else every element stands for itself */
    pad(&a->qkvz, PIECE * row, 0, 0);
    pad(&a->ba, row, 0, 0);
    pad(&a->x, (pieces ? PIECE : 1) * row, 0, 0);
    pad(&a->q, PIECE * row, head, 0);
    pad(&a->k, PIECE * row * 2, head, 0);
    pad(&a->v, PIECE * row * 3, head, 0);
    pad(&a->z, row, 0, 0);
    pad(&a->b, row, 0, 0);
    pad(&a->a, row, 0, 0);
}

/* b and a as parts of rows that hold the heads of other ranks too. */
static void widen(shaper *p) {
    kgen_gdn_args *a = p->a;
    kgen__slot *slot = p->data->slot;
    if (!p->c->wide || !a->b.rank) return;
    size_t size = (size_t)kgen_dtype_size(a->b.dtype);
    int64_t first_b = p->d.hv + 1, first_a = first_b + 2 * p->d.hv;
    a->b.stride[0] = a->a.stride[0] = first_a + a->a.shape[1] + p->d.hv + p->c->rowpad;
    slot[A].view_of = B;
    slot[A].offset = (size_t)first_a * size;
    slot[B].offset = (size_t)first_b * size;
    slot[B].size = (size_t)(first_a - first_b) * size + kgen__tensor_bytes(&a->a);
}

static void pad_pools(shaper *p) {
    const kgen_gdn_spec *s = p->s;
    kgen_gdn_args *a = p->a;
    int64_t state = units(p, s->state), window = p->c->slotpad;
    int pieces = s->conv_layout == KGEN_CONV_SD && p->d.c % PIECE == 0;
    int64_t conv = window * (pieces ? PIECE : 1);
    lengthen(&a->buffer, 1, p->c->steps);
    lengthen(&a->conv_windows, 1, p->c->steps);
    pad(&a->state, state, 0, 0);
    pad(&a->buffer, state, state, 0);
    pad(&a->conv_state, conv, conv, 0);
    pad(&a->conv_windows, window, window, window);
}

/* A ring's slot stride is a multiple of 16 bytes. */
static void pad_ring(kgen_tensor *t, int64_t slotpad) {
    if (!t->rank) return;
    int64_t unit = 16 / kgen_dtype_size(t->dtype), over = t->stride[0] % unit;
    pad(t, (over ? unit - over : 0) + slotpad * unit, 0, 0);
}

static void pad_table(const shaper *p, kgen_tensor *t) {
    int64_t step = p->c->idxstep - 1;
    pad(t, t->rank == 2 ? p->c->idxpad : step, step, 0);
}

static void pad_indices(shaper *p) {
    kgen_gdn_args *a = p->a;
    lengthen(&a->write_slots, 1, p->c->scols);
    pad_table(p, &a->slots);
    pad_table(p, &a->write_slots);
    pad(&a->parents, p->c->idxpad, 0, 0);
    pad_ring(&a->ring_k, p->c->slotpad);
    pad_ring(&a->ring_u, p->c->slotpad);
    pad_ring(&a->ring_decay, p->c->slotpad);
}

/* Scales of groups lie in either order. */
static void pad_outputs(shaper *p) {
    kgen_gdn_args *a = p->a;
    int64_t more = p->c->outpad;
    pad(&a->out, more, kgen__gdn_has_step(p->s) ? p->c->headpad : 0, 0);
    pad(&a->out_scale, more, 0, 0);
    if (p->c->scalet) {
        a->out_scale.stride[0] = 1;
        a->out_scale.stride[1] = p->rows + more;
    }
    pad(&a->z_out, more, 0, 0);
    pad(&a->b_out, more, 0, 0);
    pad(&a->a_out, more, 0, 0);
}

/* The least by which a tensor may begin further into its memory, in elements. */
static size_t least_offset(const shaper *p, int i) {
    if (p->d.c % PIECE) return 1;
    if (i == CONV_STATE) return p->s->conv_layout == KGEN_CONV_SD ? PIECE : 1;
    return i == QKVZ || i == X || i == Q || i == K || i == V || i == CONV_WEIGHT || i == CONV_BIAS
               ? PIECE
               : 1;
}

static void move_off(shaper *p) {
    static const int movable[] = {
        QKVZ, BA,          X,         Q,     K,       V,           Z,          B,
        A,    CONV_WEIGHT, CONV_BIAS, A_LOG, DT_BIAS, NORM_WEIGHT, CONV_STATE, CONV_WINDOWS,
        OUT,  OUT_SCALE,   Z_OUT,     B_OUT, A_OUT};
    for (size_t i = 0; p->c->off && i < sizeof movable / sizeof movable[0]; i++) {
        kgen__slot *slot = &p->data->slot[movable[i]];
        kgen_tensor *t = kgen__slot_tensor(&p->data->args, movable[i]);
        if (!t->rank) continue;
        slot->offset += least_offset(p, movable[i]) * (size_t)kgen_dtype_size(t->dtype);
    }
}

static void choose_numbers(shaper *p) {
    kgen__rng rng;
    kgen__rng_seed(&rng, p->data->shape.seed, 2000);
    int step = kgen__gdn_has_step(p->s);
    if (step) p->a->q_scale = (float)(1 / sqrt((double)p->d.k));
    if (step && p->s->l2norm) p->a->l2_eps = 1e-6f;
    if (kgen__gdn_has_norm(p->s)) p->a->norm_eps = 1e-6f;
    if (p->s->gate == KGEN_GATE_KDA_BOUND) p->a->lower_bound = -5;
    int64_t pads[] = {-1, 0, 1, p->pool - 1, 1000000};
    if (p->s->sentinel == KGEN_SENTINEL_VALUE) p->a->pad_slot = pads[kgen__rng_range(&rng, 0, 4)];
}

kgen_status kgen__gdn_shape(kgen__data *data, kgen_error *err) {
    shaper p = {.data = data,
                .c = &data->shape.gdn,
                .s = &data->spec.gdn,
                .a = data->args.gdn,
                .d = kgen__gdn_dims_of(&data->spec.gdn),
                .seqs = data->shape.seqs};
    for (int64_t n = 0; n < p.seqs; n++) p.read += p.c->lens[n].high;
    p.rows = p.read + p.c->tail;
    if (p.s->varlen) p.read = p.rows;
    if (p.s->index == KGEN_INDEX_BLOCKS && p.c->same && p.c->wpads)
        return kgen_fail(err, KGEN_E_ARG,
                         "wpads=%d: with same=1 and index=blocks the write slot is the read slot",
                         p.c->wpads);
    p.each = slots_of(p.s, p.c);
    p.pool = 2 + p.seqs * p.each + p.c->extra;
    p.lines = p.seqs + (p.c->lines ? 2 : 0);
    KGEN_TRY(shape_tensors(&p, err));
    pad_inputs(&p);
    widen(&p);
    pad_pools(&p);
    pad_indices(&p);
    pad_outputs(&p);
    move_off(&p);
    choose_numbers(&p);
    return KGEN_OK;
}

/* ---- slots and other integers ------------------------------------------------ */

typedef struct filler {
    kgen__data *data;
    const kgen__gdn_case *c;
    const kgen_gdn_spec *s;
    kgen_gdn_args *a;
    kgen__gdn_dims d;
    uint64_t seed;
    int64_t seqs, pool;
    const int32_t *lens, *accepted, *ring;
    int64_t *order; /* slots that may live, in random order */
    double *heads;  /* [2 Hk + Hv] what multiplies a sequence's inputs */
} filler;

static kgen__rng stream(const filler *f, int slot) {
    kgen__rng rng;
    kgen__rng_seed(&rng, f->seed, (uint64_t)slot + 1);
    return rng;
}

static int64_t sentinel(const filler *f, kgen__rng *rng) {
    int64_t pool = f->pool;
    const int64_t some[] = {-1, -1, pool, pool + 7, INT32_MAX, INT32_MIN, -2};
    const int64_t wide[] = {(int64_t)1 << 33, -((int64_t)1 << 40), INT64_MIN, INT64_MAX};
    if (f->s->sentinel == KGEN_SENTINEL_NONPOS && kgen__chance(rng, 4)) return 0;
    if (f->s->sentinel == KGEN_SENTINEL_VALUE && kgen__chance(rng, 4)) return f->a->pad_slot;
    if (f->s->index_type && kgen__chance(rng, 3)) return wide[kgen__rng_range(rng, 0, 3)];
    return some[kgen__rng_range(rng, 0, 6)];
}

/* The slots that live ones are dealt from: neither the first nor a pad. */
static void shuffle_slots(filler *f) {
    kgen__rng rng = stream(f, STATE);
    int64_t count = 0;
    for (int64_t i = f->s->sentinel == KGEN_SENTINEL_NONPOS; i < f->pool; i++)
        if (f->s->sentinel != KGEN_SENTINEL_VALUE || i != f->a->pad_slot) f->order[count++] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = kgen__rng_range(&rng, 0, i), slot = f->order[i];
        f->order[i] = f->order[j];
        f->order[j] = slot;
    }
}

/* `count` of `among` things, at random. */
static int chosen(kgen__rng *rng, int64_t *count, int64_t *among) {
    int yes = kgen__rng_range(rng, 1, *among) <= *count;
    *count -= yes;
    (*among)--;
    return yes;
}

/* Entry `column` of a vector or table. */
static void put(const kgen_tensor *t, int64_t n, int64_t column, int64_t value) {
    kgen__int_store(t, n * t->stride[0] + (t->rank == 2 ? column * t->stride[1] : 0), value);
}

static void clear_ints(kgen__data *data, int slot) {
    const kgen_tensor *t = kgen__slot_tensor(&data->args, slot);
    if (!t->data) return;
    int64_t entries = (int64_t)(kgen__tensor_bytes(t) / (size_t)kgen_dtype_size(t->dtype));
    for (int64_t i = 0; i < entries; i++)
        kgen__int_store(t, i, t->dtype == KGEN_DTYPE_I64 ? (int64_t)1 << 40 : INT32_MAX);
}

static void fill_blocks(filler *f, kgen__rng *rng, int64_t n, const int64_t *slot, int bad,
                        int no_write) {
    int64_t columns = f->a->slots.shape[1], read = kgen__rng_range(rng, 0, columns - 1);
    int64_t write = (read + kgen__rng_range(rng, 1, columns - 1)) % columns;
    if (f->c->same) write = read;
    put(&f->a->read_col, n, 0, read);
    put(&f->a->write_col, n, 0, write);
    put(&f->a->slots, n, write, no_write ? sentinel(f, rng) : slot[f->c->same ? 0 : 1]);
    put(&f->a->slots, n, read, bad ? sentinel(f, rng) : slot[0]);
}

/* One of the columns past the first is no slot where no_write. */
static void fill_columns(filler *f, kgen__rng *rng, const kgen_tensor *t, int64_t n,
                         const int64_t *slot, int no_write) {
    int64_t columns = t->shape[1], hole = kgen__rng_range(rng, 1, columns - 1);
    for (int64_t i = 0; i < columns; i++) {
        int exists = i < f->s->tokens || t == &f->a->slots;
        if (!exists) continue;
        int64_t value = slot[f->c->same ? 0 : i];
        put(t, n, i, no_write && i == hole ? sentinel(f, rng) : value);
    }
}

static void fill_sequence_slots(filler *f, kgen__rng *rng, int64_t n, int bad, int no_write) {
    const int64_t *slot = f->order + n * slots_of(f->s, f->c);
    int other = f->c->same ? 0 : 1;
    kgen_gdn_args *a = f->a;
    if (f->s->index == KGEN_INDEX_BLOCKS) {
        fill_blocks(f, rng, n, slot, bad, no_write);
        return;
    }
    if (f->s->index == KGEN_INDEX_SPEC) {
        fill_columns(f, rng, &a->slots, n, slot, no_write);
        for (int64_t i = 0; bad && i < a->slots.shape[1]; i++)
            put(&a->slots, n, i, sentinel(f, rng));
        return;
    }
    put(&a->slots, n, 0, bad ? sentinel(f, rng) : slot[0]);
    if (a->write_slots.rank == 2) fill_columns(f, rng, &a->write_slots, n, slot + other, no_write);
    if (a->write_slots.rank == 1)
        put(&a->write_slots, n, 0, no_write ? sentinel(f, rng) : slot[other]);
}

static void fill_slots(filler *f) {
    kgen__rng rng = stream(f, SLOTS);
    int64_t bad = f->c->pads < f->seqs ? f->c->pads : f->seqs, left = f->seqs;
    int64_t holes = f->c->wpads < f->seqs ? f->c->wpads : f->seqs, rest = f->seqs;
    clear_ints(f->data, SLOTS);
    clear_ints(f->data, WRITE_SLOTS);
    shuffle_slots(f);
    for (int64_t n = 0; n < f->seqs; n++) {
        int dead = chosen(&rng, &bad, &left), hole = chosen(&rng, &holes, &rest);
        fill_sequence_slots(f, &rng, n, dead, hole);
    }
}

static void fill_tree(filler *f, int64_t n) {
    kgen__rng rng = stream(f, PARENTS);
    for (int64_t i = 0; i < n; i++) kgen__rng_next(&rng);
    for (int64_t t = 0; f->s->tree && t < f->s->tokens; t++)
        put(&f->a->parents, n, t, t < f->lens[n] ? kgen__rng_range(&rng, -1, t - 1) : INT32_MAX);
}

static void fill_lines(filler *f) {
    kgen__rng rng = stream(f, LINES);
    int64_t *line = f->order + f->pool, count = f->a->lines.data ? f->seqs + 2 : 0;
    for (int64_t i = 0; i < count; i++) line[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = kgen__rng_range(&rng, 0, i), kept = line[i];
        line[i] = line[j];
        line[j] = kept;
    }
    for (int64_t n = 0; f->a->lines.data && n < f->seqs; n++) put(&f->a->lines, n, 0, line[n]);
}

/* Numbers that 32 bits do not hold would be good ones if they were cut. */
static int64_t accepted_value(const filler *f, int64_t n) {
    if (f->accepted[n] != KGEN__CASE_LENGTH_MAX) return f->accepted[n];
    return f->s->accept_type ? ((int64_t)1 << 32) + 1 : INT32_MAX;
}

static int64_t stray_rows(const filler *f) {
    return f->s->cu_type ? (int64_t)1 << 32 : f->a->out.shape[0] + 1;
}

static void fill_integers(filler *f) {
    kgen_gdn_args *a = f->a;
    kgen__rng rng = stream(f, HAS_INITIAL), ring = stream(f, RING_START);
    kgen__rng turn = stream(f, CACHE_SEQLENS);
    int64_t rows = 0;
    for (int64_t n = 0; n < f->seqs; n++) {
        if (a->cu_seqlens.data) put(&a->cu_seqlens, n, 0, rows);
        rows += f->lens[n];
        if (a->accepted.data) put(&a->accepted, n, 0, accepted_value(f, n));
        if (a->has_initial.data) put(&a->has_initial, n, 0, kgen__chance(&rng, 4) ? 1 : 0);
        if (a->cache_seqlens.data) put(&a->cache_seqlens, n, 0, (int32_t)kgen__rng_next(&turn));
        if (a->ring_len.data) put(&a->ring_len, n, 0, f->ring[n]);
        if (a->ring_start.data)
            put(&a->ring_start, n, 0, kgen__rng_range(&ring, 0, 3 * a->ring_k.shape[1]));
        fill_tree(f, n);
    }
    if (f->c->astray) rows += stray_rows(f);
    if (a->cu_seqlens.data) put(&a->cu_seqlens, f->seqs, 0, rows);
    fill_lines(f);
    fill_slots(f);
}

/* ---- numbers ----------------------------------------------------------------- */

static void store(const kgen_tensor *t, int64_t at, double value) {
    double most = kgen__number_max(t->dtype);
    kgen__number_store(t->dtype, t->data, at, fmax(-most, fmin(most, value)));
}

static void fill_weights(filler *f) {
    kgen_gdn_args *a = f->a;
    kgen__rng rng = stream(f, CONV_WEIGHT);
    int extremes = f->c->extremes;
    for (int64_t i = 0; a->conv_weight.data && i < f->d.c * f->d.w; i++)
        store(&a->conv_weight, i, 0.5 * kgen__rng_normal(&rng));
    for (int64_t i = 0; a->conv_bias.data && i < f->d.c; i++)
        store(&a->conv_bias, i, 0.3 * kgen__rng_normal(&rng));
    for (int64_t i = 0; a->a_log.data && i < f->d.hv; i++) {
        double log_rate = -3 + 4 * kgen__rng_uniform(&rng);
        if (extremes && kgen__chance(&rng, 1)) log_rate = kgen__chance(&rng, 4) ? -8 : 3;
        store(&a->a_log, i, log_rate);
    }
    for (int64_t i = 0; a->dt_bias.data && i < f->d.hv * f->d.decays; i++)
        store(&a->dt_bias, i, 0.5 * kgen__rng_normal(&rng));
    for (int64_t i = 0; a->norm_weight.data && i < f->d.v; i++)
        store(&a->norm_weight, i, 1 + 0.2 * kgen__rng_normal(&rng));
}

/* Now and then a head's queries or keys are zero, or its values huge. Keys that
 * are not normalised have a length near 1, or the state would grow. */
static void choose_heads(filler *f, kgen__rng *rng) {
    int64_t keys = 2 * f->d.hk;
    double key = f->s->l2norm ? f->c->xstd : 1 / sqrt((double)f->d.k);
    for (int64_t i = 0; i < keys + f->d.hv; i++) {
        f->heads[i] = i < f->d.hk || i >= keys ? f->c->xstd : key;
        if (!f->c->extremes || kgen__rng_range(rng, 0, 15)) continue;
        f->heads[i] = i < keys ? 0 : f->c->vmax;
    }
}

static double head_scale(const filler *f, int64_t channel) {
    if (channel < 2 * f->d.kd) return f->heads[channel / f->d.k];
    return f->heads[2 * f->d.hk + (channel - 2 * f->d.kd) / f->d.v];
}

/* Betas up to 2 keep the length of a state whose keys are normalised. */
static double beta_value(const filler *f, kgen__rng *rng) {
    static const double betas[] = {0, 1, 2};
    double beta = kgen__rng_uniform(rng);
    if (!f->c->extremes || !kgen__chance(rng, 1)) return beta;
    return betas[kgen__rng_range(rng, 0, f->s->l2norm ? 2 : 1)];
}

static double log_decay(const filler *f, kgen__rng *rng) {
    static const double logs[] = {-100, -20, -1e-3, 0};
    double log = -2 * kgen__rng_uniform(rng);
    if (!f->c->extremes || !kgen__chance(rng, 1)) return log;
    return logs[kgen__rng_range(rng, 0, 3)];
}

static double b_value(const filler *f, kgen__rng *rng) {
    if (f->s->raw_gates) return beta_value(f, rng);
    double b = kgen__rng_normal(rng);
    return f->c->extremes && kgen__chance(rng, 1) ? (b < 0 ? -100 : 100) : b;
}

static double a_value(const filler *f, kgen__rng *rng, int64_t i) {
    static const double sums[] = {-100, -20, 0, 19.9, 20.1, 100};
    if (f->s->raw_gates) return log_decay(f, rng);
    double a = kgen__rng_normal(rng);
    const kgen_tensor *dt = &f->a->dt_bias;
    if (!f->c->extremes || !dt->data || !kgen__chance(rng, 1)) return a;
    return sums[kgen__rng_range(rng, 0, 5)] - kgen__number_load(dt->dtype, dt->data, i);
}

static void fill_gates(filler *f, kgen__rng *rng, int64_t row) {
    kgen_gdn_args *a = f->a;
    int32_t layout = f->s->layout;
    for (int64_t hv = 0; hv < f->d.hv; hv++) {
        int64_t ba = row * a->ba.stride[0];
        if (a->ba.data) {
            store(&a->ba, ba + kgen__gdn_b_column(&f->d, layout, hv), b_value(f, rng));
            store(&a->ba, ba + kgen__gdn_a_column(&f->d, layout, hv), a_value(f, rng, hv));
            continue;
        }
        if (a->b.data) store(&a->b, row * a->b.stride[0] + hv, b_value(f, rng));
        for (int64_t i = hv * f->d.decays; a->a.data && i < (hv + 1) * f->d.decays; i++)
            store(&a->a, row * a->a.stride[0] + i, a_value(f, rng, i));
    }
}

static void fill_row(filler *f, kgen__rng *rng, int64_t row) {
    kgen_gdn_args *a = f->a;
    int packed = a->qkvz.data != NULL, conv = kgen__gdn_has_conv(f->s);
    for (int64_t i = 0; i < f->d.c; i++) {
        double x = head_scale(f, i) * kgen__rng_normal(rng);
        int64_t at;
        if (a->x.data || a->q.data) {
            const kgen_tensor *t = kgen__gdn_input(&at, f->s, a, &f->d, row, i);
            store(t, at, x);
        }
        if (packed && conv)
            store(&a->qkvz, row * a->qkvz.stride[0] + kgen__gdn_column(&f->d, f->s->layout, i), x);
    }
    for (int64_t i = 0; i < f->d.vd; i++) {
        double z = kgen__rng_normal(rng);
        if (a->z.data) store(&a->z, row * a->z.stride[0] + i, z);
        if (packed)
            store(&a->qkvz,
                  row * a->qkvz.stride[0] + kgen__gdn_column(&f->d, f->s->layout, f->d.c + i), z);
    }
    fill_gates(f, rng, row);
}

static void fill_state(filler *f, kgen__rng *rng, const kgen__gdn_seq *q) {
    const kgen_tensor *t = &f->a->state, *c = &f->a->conv_state;
    int64_t elements = f->d.hv * f->d.v * f->d.k;
    for (int64_t i = 0; t->data && i < elements; i++)
        store(t, q->read * t->stride[0] + i, f->c->sstd * kgen__rng_normal(rng));
    for (int64_t channel = 0; c->data && channel < f->d.c; channel++)
        for (int64_t i = 0; i < f->d.w - 1; i++)
            store(c, kgen__gdn_conv_at(c, q->conv_read, channel, kgen__gdn_time(f->s, f->a, q, i)),
                  head_scale(f, channel) * kgen__rng_normal(rng));
}

static void fill_ring(filler *f, kgen__rng *rng, const kgen__gdn_seq *q) {
    kgen_gdn_args *a = f->a;
    if (!a->ring_k.data) return;
    for (int64_t n = 0; n < q->ring_len; n++) {
        int64_t row = (q->ring_start + n) % a->ring_k.shape[1];
        int64_t k = q->read * a->ring_k.stride[0] + row * a->ring_k.stride[1];
        int64_t u = q->read * a->ring_u.stride[0] + row * a->ring_u.stride[1];
        int64_t g = q->read * a->ring_decay.stride[0] + row * a->ring_decay.stride[1];
        for (int64_t i = 0; i < f->d.kd; i++)
            store(&a->ring_k, k + i, kgen__rng_normal(rng) / sqrt((double)f->d.k));
        for (int64_t i = 0; i < f->d.vd; i++)
            store(&a->ring_u, u + i, f->c->xstd * kgen__rng_normal(rng));
        for (int64_t i = 0; i < f->d.hv * f->d.decays; i++)
            store(&a->ring_decay, g + i, 1 - 0.5 * kgen__rng_uniform(rng));
    }
}

static void fill_sequence(filler *f, int64_t n) {
    kgen__gdn_seq q = kgen__gdn_sequence(f->s, f->a, n);
    kgen__rng rng;
    kgen__rng_seed(&rng, f->seed, 100 + (uint64_t)n);
    if (!q.live || q.count == 0) return;
    choose_heads(f, &rng);
    for (int64_t t = 0; t < q.count; t++) fill_row(f, &rng, q.first + t);
    if (!q.fresh) fill_state(f, &rng, &q);
    fill_ring(f, &rng, &q);
}

/* ---- the whole ----------------------------------------------------------------- */

static void cover_all(filler *f) {
    for (int i = 0; i < KGEN__GDN_SLOTS; i++) {
        kgen_dtype dtype = kgen__slot_tensor(&f->data->args, i)->dtype;
        kgen__rng rng = stream(f, KGEN__GDN_SLOTS + i);
        if (dtype == KGEN_DTYPE_I32 || dtype == KGEN_DTYPE_I64 || !f->data->slot[i].bytes) continue;
        kgen__slot_cover(f->data, i, &rng, f->c->poison);
    }
}

static kgen_status fill(kgen__data *data, const int32_t *lens, const int32_t *accepted,
                        const int32_t *ring, uint64_t seed, kgen_error *err) {
    const kgen_gdn_args *a = data->args.gdn;
    filler f = {.data = data,
                .c = &data->shape.gdn,
                .s = &data->spec.gdn,
                .a = data->args.gdn,
                .d = kgen__gdn_dims_of(&data->spec.gdn),
                .seed = seed,
                .seqs = data->shape.seqs,
                .pool = a->state.rank ? a->state.shape[0] : a->conv_state.shape[0],
                .lens = lens,
                .accepted = accepted,
                .ring = ring};
    f.order = malloc((size_t)(f.pool + f.seqs + 2) * sizeof *f.order);
    f.heads = malloc((size_t)(2 * f.d.hk + f.d.hv) * sizeof *f.heads);
    if (f.order && f.heads) {
        cover_all(&f);
        fill_integers(&f);
        fill_weights(&f);
        for (int64_t n = 0; n < f.seqs; n++) fill_sequence(&f, n);
        kgen__data_remember(data);
        kgen__data_poison_outputs(data);
    }
    int filled = f.order && f.heads;
    free(f.order);
    free(f.heads);
    return filled ? KGEN_OK
                  : kgen_fail(err, KGEN_E_NOMEM, "%lld slots: out of memory", (long long)f.pool);
}

kgen_status kgen__gdn_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX], accepted[KGEN__CASE_SEQS_MAX], ring[KGEN__CASE_SEQS_MAX];
    const kgen__gdn_case *c = &data->shape.gdn;
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        lens[n] = c->lens[n].high;
        accepted[n] = c->accepted[n].high;
        ring[n] = c->ring[n].high;
    }
    return fill(data, lens, accepted, ring, seed, err);
}

/* Other lengths, rings and accepted counts, now and then one past a bound. */
kgen_status kgen__gdn_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    int32_t lens[KGEN__CASE_SEQS_MAX], accepted[KGEN__CASE_SEQS_MAX], ring[KGEN__CASE_SEQS_MAX];
    const kgen_gdn_spec *s = &data->spec.gdn;
    int64_t left = data->args.gdn->out.shape[0];
    for (int32_t n = 0; n < data->shape.seqs; n++) {
        int64_t most = left < s->tokens ? left : s->tokens;
        lens[n] = s->varlen ? (int32_t)kgen__rng_range(rng, 0, most) : s->tokens;
        left -= lens[n];
        accepted[n] = (int32_t)kgen__rng_range(rng, 1, s->tokens);
        if (kgen__chance(rng, 1)) accepted[n] = kgen__chance(rng, 4) ? 0 : s->tokens + 40;
        ring[n] = (int32_t)kgen__rng_range(rng, 0, s->ring);
    }
    return fill(data, lens, accepted, ring, kgen__rng_next(rng), err);
}

/* Workloads of Gated DeltaNet: every set has slots, rows, windows and lines of its
 * own, slots at random places of one pool.
 *
 * A launch runs thousands of times over the same states, so the recurrence must
 * contract: keys are normalised, or small (l2=0). Counted are states, windows,
 * ring entries and rows, in and out; not weights, which all sequences share,
 * slot numbers, or what a tree reads back of states it has just written.
 *
 * What a step leaves open is set as in the middle of a service: accepted counts
 * run through all there are; rings are filled evenly from empty to full, so a
 * few of them fold; with index=blocks a sequence stays in its block. */
#include <math.h>
#include <stdlib.h>

#include "workload_family.h"

enum { RING_UNIT = 4 }; /* rows of a ring, so that its decays fill 16 bytes */

typedef struct gdn_shape {
    const kgen_gdn_spec *s;
    int conv, norm, step, replay, buffer, pair;
    int64_t seqs, rows;             /* of a set */
    int64_t keys, values, channels; /* of a row */
    int64_t decays;                 /* of a head */
    int64_t times;                  /* columns of a convolution slot */
    int64_t each, pool;             /* slots of a sequence, of all sets */
    int32_t *slots;                 /* of all sets, in random order */
} gdn_shape;

static double size_of(int32_t dtype) { return kgen_dtype_size((kgen_dtype)dtype); }

/* Slots of a sequence. */
static int64_t slots_of(const kgen_gdn_spec *s) {
    if (s->index == KGEN_INDEX_SPEC) return s->tokens;
    if (s->index != KGEN_INDEX_PAIR) return 1;
    return s->save == KGEN_SAVE_SLOTS ? 1 + s->tokens : 2;
}

static gdn_shape shape_of(const kgen__workload *work) {
    const kgen_gdn_spec *s = &work->spec.gdn;
    gdn_shape n = {.s = s,
                   .conv = s->fuse >= KGEN_FUSE_C,
                   .step = s->fuse != KGEN_FUSE_C,
                   .norm = s->fuse == KGEN_FUSE_B || s->fuse == KGEN_FUSE_E,
                   .replay = s->save == KGEN_SAVE_REPLAY,
                   .buffer = s->save == KGEN_SAVE_BUFFER,
                   .pair = s->index == KGEN_INDEX_PAIR,
                   .seqs = work->problem.batch};
    n.rows = n.seqs * s->tokens;
    n.keys = (int64_t)s->k_heads * s->k_dim;
    n.values = (int64_t)s->v_heads * s->v_dim;
    n.channels = s->channels ? s->channels : 2 * n.keys + n.values;
    n.decays = s->gate == KGEN_GATE_GDN ? 1 : s->k_dim;
    n.times = s->conv_width - 1 + (s->accept ? s->tokens - 1 : 0);
    n.each = slots_of(s);
    n.pool = 1 + n.seqs * n.each * work->sets; /* the first: engines keep it for padding */
    return n;
}

/* ---- what is counted -------------------------------------------------------------- */

typedef struct traffic {
    double read, written; /* of all sequences */
} traffic;

static int64_t ring_of(const gdn_shape *n, int64_t seq) { return seq % (n->s->ring + 1); }

/* Rings, and the states of those that fold. */
static traffic ring_traffic(const gdn_shape *n, double state) {
    double entry = (double)(n->keys + n->values) * size_of(n->s->state) +
                   (double)(n->s->v_heads * n->decays) * sizeof(float);
    traffic t = {0, (double)n->rows * entry};
    for (int64_t seq = 0; seq < n->seqs; seq++) {
        t.read += (double)ring_of(n, seq) * entry;
        if (ring_of(n, seq) + n->s->tokens > n->s->ring) t.written += state;
    }
    return t;
}

static traffic state_traffic(const gdn_shape *n) {
    double state = (double)n->values * n->s->k_dim * size_of(n->s->state), seqs = (double)n->seqs;
    const double kept[] = {
        /* states written of a sequence */
        [KGEN_SAVE_FINAL] = 1,
        [KGEN_SAVE_SLOTS] = n->s->tokens,
        [KGEN_SAVE_BUFFER] = n->s->tokens + n->pair,
        [KGEN_SAVE_NONE] = 0,
        [KGEN_SAVE_REPLAY] = 0,
    };
    traffic t = {0, 0};
    if (!n->step) return t;
    if (n->replay) t = ring_traffic(n, state);
    t.read += seqs * state;
    t.written += seqs * kept[n->s->save] * state;
    return t;
}

static traffic window_traffic(const gdn_shape *n) {
    double column = (double)n->channels * size_of(n->s->conv_state), seqs = (double)n->seqs;
    double window = column * (n->s->conv_width - 1);
    traffic t = {0, 0};
    if (!n->conv) return t;
    t.read = seqs * window;
    if (n->buffer)
        t.written = (double)n->rows * window + (n->pair ? seqs * window : 0);
    else if (n->s->save != KGEN_SAVE_NONE)
        t.written =
            n->s->accept ? seqs * column * (n->s->conv_width - 2 + n->s->tokens) : seqs * window;
    return t;
}

static traffic row_traffic(const gdn_shape *n) {
    const kgen_gdn_spec *s = n->s;
    double gates = n->step ? (double)s->v_heads * (1 + (double)n->decays) * size_of(s->ab) : 0;
    double in = (double)(n->channels + (n->norm ? n->values : 0)) * size_of(s->x) + gates;
    double out = (double)(n->step ? n->values : n->channels) * size_of(s->out);
    if (size_of(s->out) == 1) out += (double)n->values / 128 * sizeof(float);
    return (traffic){(double)n->rows * in, (double)n->rows * out};
}

static kgen_status plan(kgen__workload *work, kgen_error *err) {
    (void)err;
    gdn_shape n = shape_of(work);
    const traffic parts[] = {state_traffic(&n), window_traffic(&n), row_traffic(&n)};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        work->read_bytes += parts[i].read;
        work->bytes += parts[i].read + parts[i].written;
    }
    return KGEN_OK;
}

/* ---- rows, weights, outputs ---------------------------------------------------------------- */

/* Keys that the kernel does not normalise. */
static kgen__content inputs_of(const kgen_gdn_spec *s) {
    return s->l2norm ? KGEN__SIGNED : KGEN__SMALL;
}

/* fuse=c would only copy b and a: it goes without. */
static kgen_status make_rows(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    kgen_gdn_args *a = work->args.gdn;
    kgen__content x = inputs_of(n->s);
    const kgen__content_row rows[] = {
        {&a->q, KGEN__EACH_SET, x},
        {&a->k, KGEN__EACH_SET, x},
        {&a->v, KGEN__EACH_SET, x},
        {&a->qkvz, KGEN__EACH_SET, x},
        {&a->x, KGEN__EACH_SET, x},
        {&a->z, KGEN__EACH_SET, x},
        {&a->b, KGEN__EACH_SET, n->s->raw_gates ? KGEN__POSITIVE : x},
        {&a->a, KGEN__EACH_SET, n->s->raw_gates ? KGEN__NEGATIVE : x},
        {&a->conv_bias, KGEN__SHARED, x},
        {&a->a_log, KGEN__SHARED, x},
        {&a->dt_bias, KGEN__SHARED, x},
        {&a->norm_weight, KGEN__SHARED, x},
        {&a->conv_weight, KGEN__SHARED, KGEN__SIGNED},
        {&a->out, KGEN__EACH_SET, KGEN__NOTHING},
        {&a->out_scale, KGEN__EACH_SET, KGEN__NOTHING},
    };
    if (n->step) KGEN_TRY(kgen__workload_row(work, &a->ba, KGEN__EACH_SET, x, err));
    return kgen__workload_rows(work, rows, sizeof rows / sizeof rows[0], err);
}

/* ---- states ---------------------------------------------------------------------------- */

static kgen_status make_pools(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    kgen_gdn_args *a = work->args.gdn;
    const kgen__content_row rows[] = {
        {&a->state, KGEN__SHARED, KGEN__SIGNED},
        {&a->conv_state, KGEN__SHARED, inputs_of(n->s)},
        {&a->buffer, KGEN__EACH_SET, KGEN__NOTHING},
        {&a->conv_windows, KGEN__EACH_SET, KGEN__NOTHING},
        {&a->ring_k, KGEN__SHARED, KGEN__SMALL},
        {&a->ring_u, KGEN__SHARED, KGEN__SIGNED},
        {&a->ring_decay, KGEN__SHARED, KGEN__POSITIVE},
    };
    return kgen__workload_rows(work, rows, sizeof rows / sizeof rows[0], err);
}

static void fill_ring_lens(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = ring_of(user, i);
}

static void fill_ring_starts(int64_t *values, int64_t count, int set, void *user) {
    const gdn_shape *n = user;
    for (int64_t i = 0; i < count; i++) values[i] = (i + set) % (n->s->ring + n->s->tokens);
}

/* ---- indices ------------------------------------------------------------------------------ */

/* Slot `i` of sequence `seq`. */
static int64_t slot_at(const gdn_shape *n, int set, int64_t seq, int64_t i) {
    return 1 + n->slots[((int64_t)set * n->seqs + seq) * n->each + i];
}

static void fill_slots(int64_t *values, int64_t count, int set, void *user) {
    const gdn_shape *n = user;
    int64_t columns = count / n->seqs;
    int spec = n->s->index == KGEN_INDEX_SPEC;
    for (int64_t i = 0; i < count; i++)
        values[i] = slot_at(n, set, i / columns, spec ? i % columns : 0);
}

static void fill_write_slots(int64_t *values, int64_t count, int set, void *user) {
    const gdn_shape *n = user;
    int64_t columns = count / n->seqs;
    for (int64_t i = 0; i < count; i++) values[i] = slot_at(n, set, i / columns, 1 + i % columns);
}

static void fill_zeros(int64_t *values, int64_t count, int set, void *user) {
    (void)set, (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = 0;
}

static void fill_accepted(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = 1 + i % ((const gdn_shape *)user)->s->tokens;
}

static void fill_ends(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i * ((const gdn_shape *)user)->s->tokens;
}

/* Two tokens after each. */
static void fill_parents(int64_t *values, int64_t count, int set, void *user) {
    int64_t tokens = ((const gdn_shape *)user)->s->tokens;
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = i % tokens ? (i % tokens - 1) / 2 : -1;
}

static kgen_status make_indices(kgen__workload *work, gdn_shape *n, kgen_error *err) {
    kgen_gdn_args *a = work->args.gdn;
    const kgen__fill_row rows[] = {
        {&a->ring_start, KGEN__SHARED, fill_ring_starts},
        {&a->ring_len, KGEN__SHARED, fill_ring_lens},
        {&a->slots, KGEN__EACH_SET, fill_slots},
        {&a->write_slots, KGEN__EACH_SET, fill_write_slots},
        {&a->read_col, KGEN__SHARED, fill_zeros},
        {&a->write_col, KGEN__SHARED, fill_zeros},
        {&a->accepted, KGEN__SHARED, fill_accepted},
        {&a->cu_seqlens, KGEN__SHARED, fill_ends},
        {&a->cache_seqlens, KGEN__SHARED, fill_ends},
        {&a->parents, KGEN__SHARED, fill_parents},
    };
    return kgen__workload_rows_ints(work, rows, sizeof rows / sizeof rows[0], n, err);
}

static void set_numbers(kgen_gdn_args *a, const gdn_shape *n) {
    if (n->step) a->q_scale = (float)(1 / sqrt((double)n->s->k_dim));
    if (n->step && n->s->l2norm) a->l2_eps = 1e-6f;
    if (n->norm) a->norm_eps = 1e-6f;
    if (n->s->gate == KGEN_GATE_KDA_BOUND) a->lower_bound = -5;
    if (n->s->sentinel == KGEN_SENTINEL_VALUE) a->pad_slot = -1;
}

static kgen_status make(kgen__workload *work, kgen_error *err) {
    gdn_shape n = shape_of(work);
    const kgen_gdn_spec *s = n.s;
    const kgen_arg_size sizes[] = {
        {"N", n.seqs},     {"N+1", n.seqs + 1},
        {"T", n.rows},     {"R", n.rows},
        {"slots", n.pool}, {"columns", s->index == KGEN_INDEX_SPEC ? s->tokens : 2},
        {"L", n.times},    {"P", kgen__divide_up(s->ring + s->tokens, RING_UNIT) * RING_UNIT},
        {"lines", n.seqs}};
    work->sizes = sizes;
    work->size_count = sizeof sizes / sizeof sizes[0];
    KGEN_TRY(make_pools(work, &n, err)); /* the largest first: they may not fit */
    KGEN_TRY(make_rows(work, &n, err));
    KGEN_TRY(kgen__workload_shuffled(&n.slots, work, n.pool - 1, err));
    kgen_status status = make_indices(work, &n, err);
    set_numbers(work->args.gdn, &n);
    free(n.slots);
    return status;
}

static const kgen_problem problems[] = {{1, 0, 0}, {8, 0, 0}, {64, 0, 0}, {256, 0, 0}};

const kgen__workload_family kgen__workload_gdn = {
    .plan = plan,
    .make = make,
    .batch = "slots",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
};

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
    int conv, norm, step, packed, replay, buffer, pair;
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
                   .packed = s->layout != KGEN_ROWS_PRESPLIT,
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

/* ---- rows and weights ---------------------------------------------------------------- */

/* Keys that the kernel does not normalise. */
static kgen__content inputs_of(const kgen_gdn_spec *s) {
    return s->l2norm ? KGEN__SIGNED : KGEN__SMALL;
}

/* Queries, keys and values in tensors of their own. */
static kgen_status make_split(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    const int64_t keys[] = {n->rows, s->k_heads, s->k_dim};
    const int64_t values[] = {n->rows, s->v_heads, s->v_dim};
    const struct {
        kgen_tensor *t;
        const int64_t *shape;
    } parts[] = {{&a->q, keys}, {&a->k, keys}, {&a->v, values}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && s->qkv; i++)
        KGEN_TRY(kgen__workload_tensor(work, parts[i].t, KGEN__EACH_SET, 3, parts[i].shape,
                                       inputs_of(s), err));
    return KGEN_OK;
}

static kgen_status make_inputs(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    kgen__content x = inputs_of(s);
    const struct {
        kgen_tensor *t;
        int wanted;
        int64_t width;
        kgen__content content;
    } rows[] = {
        {&a->qkvz, n->packed && (n->conv || n->norm), n->channels + n->values, x},
        {&a->ba, n->packed && n->step, 2 * (int64_t)s->v_heads, x},
        {&a->x, (!n->packed || !n->conv) && !s->qkv, n->channels, x},
        {&a->z, !n->packed && n->norm, n->values, x},
        {&a->b, !n->packed && n->step, s->v_heads, s->raw_gates ? KGEN__POSITIVE : x},
        {&a->a, !n->packed && n->step, s->v_heads * n->decays, s->raw_gates ? KGEN__NEGATIVE : x},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int64_t shape[] = {n->rows, rows[i].width};
        if (!rows[i].wanted) continue;
        KGEN_TRY(
            kgen__workload_tensor(work, rows[i].t, KGEN__EACH_SET, 2, shape, rows[i].content, err));
    }
    return KGEN_OK;
}

static kgen_status make_weights(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    const int64_t conv[] = {n->channels, s->conv_width};
    const struct {
        kgen_tensor *t;
        int wanted;
        int64_t length;
    } vectors[] = {
        {&a->conv_bias, s->conv_bias, n->channels},
        {&a->a_log, n->step && !s->raw_gates, s->v_heads},
        {&a->dt_bias, n->step && !s->raw_gates, s->v_heads * n->decays},
        {&a->norm_weight, n->norm, s->v_dim},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        if (vectors[i].wanted)
            KGEN_TRY(kgen__workload_tensor(work, vectors[i].t, KGEN__SHARED, 1, &vectors[i].length,
                                           inputs_of(s), err));
    if (!n->conv) return KGEN_OK;
    return kgen__workload_tensor(work, &a->conv_weight, KGEN__SHARED, 2, conv, KGEN__SIGNED, err);
}

static kgen_status make_outputs(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    const int64_t conv[] = {n->rows, n->channels}, out[] = {n->rows, s->v_heads, s->v_dim};
    const int64_t scale[] = {n->rows, n->values / 128};
    KGEN_TRY(kgen__workload_tensor(work, &a->out, KGEN__EACH_SET, n->step ? 3 : 2,
                                   n->step ? out : conv, KGEN__NOTHING, err));
    if (kgen_dtype_size((kgen_dtype)s->out) > 1) return KGEN_OK;
    return kgen__workload_tensor(work, &a->out_scale, KGEN__EACH_SET, 2, scale, KGEN__NOTHING, err);
}

/* ---- states ---------------------------------------------------------------------------- */

static kgen_status make_pools(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    int vk = s->state_layout == KGEN_STATE_VK, sd = s->conv_layout == KGEN_CONV_SD;
    const int64_t state[] = {n->pool, s->v_heads, vk ? s->v_dim : s->k_dim,
                             vk ? s->k_dim : s->v_dim};
    const int64_t conv[] = {n->pool, sd ? n->times : n->channels, sd ? n->channels : n->times};
    if (n->step)
        KGEN_TRY(kgen__workload_tensor(work, &a->state, KGEN__SHARED, 4, state, KGEN__SIGNED, err));
    if (!n->conv) return KGEN_OK;
    KGEN_TRY(kgen__workload_tensor(work, &a->conv_state, KGEN__SHARED, 3, conv, inputs_of(s), err));
    return KGEN_OK;
}

static kgen_status make_buffers(kgen__workload *work, const gdn_shape *n, kgen_error *err) {
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    int vk = s->state_layout == KGEN_STATE_VK, sd = s->conv_layout == KGEN_CONV_SD;
    int64_t window = s->conv_width - 1;
    const int64_t states[] = {n->seqs, s->tokens, s->v_heads, vk ? s->v_dim : s->k_dim,
                              vk ? s->k_dim : s->v_dim};
    const int64_t windows[] = {n->seqs, s->tokens, sd ? window : n->channels,
                               sd ? n->channels : window};
    if (!n->buffer) return KGEN_OK;
    if (n->step)
        KGEN_TRY(
            kgen__workload_tensor(work, &a->buffer, KGEN__EACH_SET, 5, states, KGEN__NOTHING, err));
    if (!n->conv) return KGEN_OK;
    KGEN_TRY(kgen__workload_tensor(work, &a->conv_windows, KGEN__EACH_SET, 4, windows,
                                   KGEN__NOTHING, err));
    return KGEN_OK;
}

static void fill_ring_lens(int64_t *values, int64_t count, int set, void *user) {
    (void)set;
    for (int64_t i = 0; i < count; i++) values[i] = ring_of(user, i);
}

static void fill_ring_starts(int64_t *values, int64_t count, int set, void *user) {
    const gdn_shape *n = user;
    for (int64_t i = 0; i < count; i++) values[i] = (i + set) % (n->s->ring + n->s->tokens);
}

static kgen_status make_rings(kgen__workload *work, gdn_shape *n, kgen_error *err) {
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    int64_t rows = (s->ring + s->tokens + RING_UNIT - 1) / RING_UNIT * RING_UNIT;
    const int64_t k[] = {n->pool, rows, s->k_heads, s->k_dim};
    const int64_t u[] = {n->pool, rows, s->v_heads, s->v_dim};
    const int64_t decay[] = {n->pool, rows, s->v_heads, s->k_dim};
    if (!n->replay) return KGEN_OK;
    KGEN_TRY(kgen__workload_tensor(work, &a->ring_k, KGEN__SHARED, 4, k, KGEN__SMALL, err));
    KGEN_TRY(kgen__workload_tensor(work, &a->ring_u, KGEN__SHARED, 4, u, KGEN__SIGNED, err));
    KGEN_TRY(kgen__workload_tensor(work, &a->ring_decay, KGEN__SHARED, n->decays > 1 ? 4 : 3, decay,
                                   KGEN__POSITIVE, err));
    KGEN_TRY(kgen__workload_ints(work, &a->ring_start, KGEN__SHARED, 1, &n->seqs, fill_ring_starts,
                                 n, err));
    return kgen__workload_ints(work, &a->ring_len, KGEN__SHARED, 1, &n->seqs, fill_ring_lens, n,
                               err);
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
    const kgen_gdn_spec *s = n->s;
    kgen_gdn_args *a = work->args.gdn;
    int spec = s->index == KGEN_INDEX_SPEC, blocks = s->index == KGEN_INDEX_BLOCKS;
    int slots = s->save == KGEN_SAVE_SLOTS;
    const struct {
        kgen_tensor *t;
        int wanted, rank;
        int64_t shape[2];
        kgen__owner owner;
        kgen__integers *fill;
    } rows[] = {
        {&a->slots,
         1,
         spec || blocks ? 2 : 1,
         {n->seqs, spec ? s->tokens : 2},
         KGEN__EACH_SET,
         fill_slots},
        {&a->write_slots,
         n->pair,
         slots ? 2 : 1,
         {n->seqs, s->tokens},
         KGEN__EACH_SET,
         fill_write_slots},
        {&a->read_col, blocks, 1, {n->seqs}, KGEN__SHARED, fill_zeros},
        {&a->write_col, blocks, 1, {n->seqs}, KGEN__SHARED, fill_zeros},
        {&a->accepted, s->accept, 1, {n->seqs}, KGEN__SHARED, fill_accepted},
        {&a->cu_seqlens, s->varlen, 1, {n->seqs + 1}, KGEN__SHARED, fill_ends},
        {&a->parents, s->tree, 2, {n->seqs, s->tokens}, KGEN__SHARED, fill_parents},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].wanted)
            KGEN_TRY(kgen__workload_ints(work, rows[i].t, rows[i].owner, rows[i].rank,
                                         rows[i].shape, rows[i].fill, n, err));
    return KGEN_OK;
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
    KGEN_TRY(make_pools(work, &n, err)); /* the largest first: they may not fit */
    KGEN_TRY(make_buffers(work, &n, err));
    KGEN_TRY(make_rings(work, &n, err));
    KGEN_TRY(make_split(work, &n, err));
    KGEN_TRY(make_inputs(work, &n, err));
    KGEN_TRY(make_weights(work, &n, err));
    KGEN_TRY(make_outputs(work, &n, err));
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

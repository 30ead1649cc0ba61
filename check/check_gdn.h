/* The parts of gdn's row in the table of families, and where things are. */
#ifndef KGEN_CHECK_CHECK_GDN_H
#define KGEN_CHECK_CHECK_GDN_H

#include "check_family.h"

enum {
#define KGEN_TENSOR(ID, ...) ID,
#include <kgen/gdn_args.def>
    KGEN__GDN_SLOTS
};

kgen_status kgen__gdn_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                             int64_t budget, kgen_error *err);
kgen_status kgen__gdn_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__gdn_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__gdn_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);
kgen_status kgen__gdn_sound(const kgen_spec *spec, const kgen_args *args, kgen_error *err);

/* ---- levels ------------------------------------------------------------------ */

static inline int kgen__gdn_has_conv(const kgen_gdn_spec *s) { return s->fuse >= KGEN_FUSE_C; }
static inline int kgen__gdn_has_step(const kgen_gdn_spec *s) { return s->fuse != KGEN_FUSE_C; }
static inline int kgen__gdn_has_norm(const kgen_gdn_spec *s) {
    return s->fuse == KGEN_FUSE_B || s->fuse == KGEN_FUSE_E;
}
static inline int kgen__gdn_per_channel(const kgen_gdn_spec *s) { return s->gate != KGEN_GATE_GDN; }

/* ---- rows -------------------------------------------------------------------- */

typedef struct kgen__gdn_dims {
    int64_t hk, hv, g, k, v, w;
    int64_t kd, vd, c; /* all keys, all values, channels */
    int64_t decays;    /* of a token and head */
} kgen__gdn_dims;

static inline kgen__gdn_dims kgen__gdn_dims_of(const kgen_gdn_spec *s) {
    kgen__gdn_dims d = {
        .hk = s->k_heads, .hv = s->v_heads, .k = s->k_dim, .v = s->v_dim, .w = s->conv_width};
    d.g = d.hv / d.hk;
    d.kd = d.hk * d.k;
    d.vd = d.hv * d.v;
    d.c = s->channels ? s->channels : 2 * d.kd + d.vd;
    d.decays = kgen__gdn_per_channel(s) ? d.k : 1;
    return d;
}

/* Column of canonical channel f of [q_all | k_all | v_all | z_all]. */
static inline int64_t kgen__gdn_column(const kgen__gdn_dims *d, int32_t layout, int64_t f) {
    if (layout != KGEN_ROWS_INTERLEAVED) return f;
    int64_t group = 2 * d->k + 2 * d->g * d->v;
    if (f < d->kd) return f / d->k * group + f % d->k;
    f -= d->kd;
    if (f < d->kd) return f / d->k * group + d->k + f % d->k;
    f -= d->kd;
    int64_t z = f >= d->vd, head = f % d->vd / d->v;
    return head / d->g * group + 2 * d->k + z * d->g * d->v + head % d->g * d->v + f % d->v;
}

/* What a recurrence reads in row `row` as channel f of [q_all | k_all | v_all], and where. */
static inline const kgen_tensor *kgen__gdn_input(int64_t *at, const kgen_gdn_spec *s,
                                                 const kgen_gdn_args *a, const kgen__gdn_dims *d,
                                                 int64_t row, int64_t f) {
    const kgen_tensor *parts[] = {&a->q, &a->k, &a->v}, *t = parts[f < d->kd       ? 0
                                                                   : f < 2 * d->kd ? 1
                                                                                   : 2];
    if (!s->qkv) {
        *at = row * a->x.stride[0] + f;
        return &a->x;
    }
    int64_t inside = t == &a->v ? f - 2 * d->kd : f % d->kd, dim = t == &a->v ? d->v : d->k;
    *at = row * t->stride[0] + inside / dim * t->stride[1] + inside % dim;
    return t;
}

/* Columns of b and a in a row of ba. */
static inline int64_t kgen__gdn_b_column(const kgen__gdn_dims *d, int32_t layout, int64_t hv) {
    return layout == KGEN_ROWS_INTERLEAVED ? hv / d->g * 2 * d->g + hv % d->g : hv;
}
static inline int64_t kgen__gdn_a_column(const kgen__gdn_dims *d, int32_t layout, int64_t hv) {
    return layout == KGEN_ROWS_INTERLEAVED ? hv / d->g * 2 * d->g + d->g + hv % d->g : d->hv + hv;
}

/* ---- sequences --------------------------------------------------------------- */

/* What a launch makes of sequence n. Slots that do not exist are -1. */
typedef struct kgen__gdn_seq {
    int64_t first, count; /* rows */
    int live;             /* is computed */
    int fresh;            /* begins with zeros */
    int64_t read, write;  /* slots of the state */
    int64_t conv_read, conv_write;
    int64_t offset; /* column where the window begins */
    int64_t line;   /* of the buffer, or -1 */
    int64_t ring_start, ring_len;
    int folds;
} kgen__gdn_seq;

kgen__gdn_seq kgen__gdn_sequence(const kgen_gdn_spec *spec, const kgen_gdn_args *a, int64_t n);
/* Row where sequence n begins, inside of out's (varlen=1). */
int64_t kgen__gdn_begin(const kgen_gdn_args *a, int64_t n);
/* The slot of the state after token t, save=slots; -1: none. */
int64_t kgen__gdn_token_slot(const kgen_gdn_spec *spec, const kgen_gdn_args *a, int64_t n,
                             int64_t t);
/* The token before token t in a tree, else t - 1; -1: the stored state. */
int64_t kgen__gdn_parent(const kgen_gdn_spec *spec, const kgen_gdn_args *a, int64_t n, int64_t t);
/* Element of a slot of the state, the convolution state, a window. */
int64_t kgen__gdn_state_at(const kgen_gdn_spec *spec, int64_t hv, int64_t v, int64_t k);
/* The column of the m-th input of the history. */
int64_t kgen__gdn_time(const kgen_gdn_spec *spec, const kgen_gdn_args *a, const kgen__gdn_seq *q,
                       int64_t m);
int64_t kgen__gdn_conv_at(const kgen_tensor *t, int64_t slot, int64_t channel, int64_t time);

#endif

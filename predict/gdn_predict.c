/* Gated DeltaNet: bytes of a launch, and how the kernel cuts it. */
#include <math.h>

#include "predict_family.h"
#include "templates/kg/gdn/gdn_shape.h"

/* --- bytes ---------------------------------------------------------------- */

/* Sizes of one gdn launch, in bytes. */
typedef struct gdn_sizes {
    double state;    /* of a sequence */
    double ring_row; /* of a token */
    double channels, values, key_gates;
    int conv, step, norm;
} gdn_sizes;

static gdn_sizes gdn_sizes_of(const kgen_gdn_spec *s) {
    double keys = (double)s->k_heads * s->k_dim, values = (double)s->v_heads * s->v_dim;
    double state = kgen__size_of(s->state, 0);
    gdn_sizes z = {.values = values, .channels = s->channels ? s->channels : 2 * keys + values};
    z.conv = s->fuse == KGEN_FUSE_C || s->fuse == KGEN_FUSE_D || s->fuse == KGEN_FUSE_E;
    z.step = s->fuse != KGEN_FUSE_C;
    z.norm = s->fuse == KGEN_FUSE_B || s->fuse == KGEN_FUSE_E;
    z.state = values * s->k_dim * state;
    z.key_gates = (double)s->v_heads * (s->gate ? s->k_dim : 1);
    z.ring_row = (keys + values) * state + z.key_gates * 4;
    return z;
}

/* save=replay: half a ring is read, and a state written once a ring. */
static kgen__traffic gdn_state(const kgen_gdn_spec *s, const gdn_sizes *z) {
    kgen__traffic t = {z->state, 0};
    switch ((kgen_gdn_save)s->save) {
    case KGEN_SAVE_FINAL:
        t.written = z->state;
        break;
    case KGEN_SAVE_SLOTS:
    case KGEN_SAVE_BUFFER:
        t.written = s->tokens * z->state;
        break;
    case KGEN_SAVE_NONE:
        break;
    case KGEN_SAVE_REPLAY:
        t.read += s->ring / 2.0 * z->ring_row;
        t.written = s->tokens * (z->ring_row + z->state / s->ring);
        break;
    }
    return t;
}

/* Windows of the convolution, of a sequence. */
static kgen__traffic gdn_windows(const kgen_gdn_spec *s, const gdn_sizes *z) {
    double column = z->channels * kgen__size_of(s->conv_state, s->x), width = s->conv_width - 1;
    kgen__traffic t = {width * column, width * column};
    if (s->accept) t.written = (width - 1 + s->tokens) * column;
    if (s->save == KGEN_SAVE_BUFFER) t.written = s->tokens * width * column;
    if (s->save == KGEN_SAVE_NONE) t.written = 0;
    return t;
}

/* Activations in and out, of a token. */
static kgen__traffic gdn_rows(const kgen_gdn_spec *s, const gdn_sizes *z) {
    double x = kgen__size_of(s->x, 0), ab = kgen__size_of(s->ab, s->x);
    kgen__traffic t = {z->channels * x, z->channels * x};
    if (!z->step) return t;
    t.written = z->values * kgen__size_of(s->out, s->x);
    if (kgen__size_of(s->out, s->x) == 1) t.written += z->values / 128 * 4;
    t.read += (z->key_gates + s->v_heads) * ab;
    if (z->norm) t.read += z->values * x;
    return t;
}

static double gdn_weights(const kgen_gdn_spec *s, const gdn_sizes *z) {
    double bytes = 0;
    if (z->conv)
        bytes += z->channels * (s->conv_width + s->conv_bias) * kgen__size_of(s->conv_weight, s->x);
    if (z->step && !s->raw_gates)
        bytes += s->v_heads * kgen__size_of(s->a_log, 0) +
                 z->key_gates * kgen__size_of(s->dt_bias, s->x);
    if (z->norm) bytes += s->v_dim * kgen__size_of(s->norm, s->x);
    return bytes;
}

static kgen_status bytes(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *p,
                         kgen_error *err) {
    (void)err;
    const kgen_gdn_spec *s = &spec->gdn;
    gdn_sizes z = gdn_sizes_of(s);
    kgen__traffic none = {0, 0}, rows = gdn_rows(s, &z), t = {8, 0}; /* 8: slots */
    kgen__traffic state = z.step ? gdn_state(s, &z) : none;
    kgen__traffic windows = z.conv ? gdn_windows(s, &z) : none;
    t.read += state.read + windows.read + s->tokens * rows.read;
    t.written += state.written + windows.written + s->tokens * rows.written;
    t.read = p->batch * t.read + gdn_weights(s, &z);
    t.written *= p->batch;
    *out = t;
    return KGEN_OK;
}

/* --- workgroups ----------------------------------------------------------- */

static double groups_of(const kgen_gdn_spec *s, const kgen_target *target) {
    int channels =
        s->channels ? s->channels : kg_gdn_channels(s->k_heads, s->k_dim, s->v_heads, s->v_dim);
    int blocks = s->fuse == KGEN_FUSE_C ? 0 : s->v_blocks;
    return kg_gdn_groups(s->v_heads, blocks, channels, s->waves * target->wave_size);
}

static void cut(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                const kgen_problem *p) {
    w->groups = p->batch * groups_of(&spec->gdn, target);
}

const kgen__predict_family kgen__predict_gdn = {
    .bytes = bytes,
    .cut = cut,
    .reads = 2,
    .cycles = 3000,
};

/* Attention: bytes of a launch, and how the kernel cuts it. */
#include <math.h>

#include "predict_family.h"
#include "templates/kg/attn/attn_shape.h"

/* --- bytes ---------------------------------------------------------------- */

static double tokens_of(const kgen_attn_spec *s, const kgen_problem *p) {
    return kgen_attn_fresh_tokens(s, p->context);
}

/* Keys of a sequence that some query sees. A window given at launch is not
 * known here: all of the context counts. */
static double visible(const kgen_attn_spec *s, const kgen_problem *p) {
    double most = (double)s->window + tokens_of(s, p) - 1, keys = p->context;
    return s->window > 0 && most < keys ? most : keys;
}

static kgen_status bytes(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *p,
                         kgen_error *err) {
    (void)err;
    const kgen_attn_spec *s = &spec->attn;
    double seqs = p->batch, heads = p->heads, keys = visible(s, p);
    double dv = s->v_dim ? s->v_dim : s->head_dim, cached = kgen__size_of(s->kv, 0);
    double rows = seqs * tokens_of(s, p) * heads * s->group;
    int32_t descale = s->descale ? s->descale : cached == 1 ? KGEN_DESCALE_HEAD : KGEN_DESCALE_NONE;
    kgen__traffic t = {seqs * heads * keys * (s->head_dim + dv) * cached,
                       rows * dv * kgen__size_of(s->out, s->q)};
    t.read += rows * s->head_dim * kgen__size_of(s->q, 0);
    if (s->gate) t.read += rows * dv * kgen__size_of(s->gate, 0);
    t.read += seqs * (kgen__index_bytes(s->len) +
                      kgen__pages_of(keys, s->page) * kgen__index_bytes(s->table));
    if (descale == KGEN_DESCALE_HEAD) t.read += 2 * heads * 4;
    if (descale == KGEN_DESCALE_TOKEN) t.read += 2 * seqs * heads * keys * 4;
    if (s->alibi) t.read += heads * s->group * 4;
    if (s->sinks) t.read += heads * s->group * 4;
    if (s->lse) t.written += rows * 4;
    *out = t;
    return KGEN_OK;
}

/* --- workgroups ----------------------------------------------------------- */

/* Waves that share values load the keys each, and every block of query rows
 * loads both. Queries and results count as if they went through the loop: they
 * are few, and what has more of them must not look better spread. */
static double looped(const kgen_spec *spec, const kgen_problem *p, const kgen__traffic *t) {
    const kgen_attn_spec *s = &spec->attn;
    double fresh = tokens_of(s, p), passes = ceil(s->group * fresh / (16.0 * s->row_tiles));
    /* A row block in the middle sees the keys before it and half of the new ones. */
    if (s->causal && !kgen_attn_phase_of(s->phase)->bounded) passes *= 1 - fresh / 2 / p->context;
    double loads = passes * (s->head_dim * s->v_split + s->v_dim) / (s->head_dim + s->v_dim);
    return (t->read + t->written) * loads;
}

static int32_t resident(const kgen_spec *spec) { return spec->attn.occupancy; }

/* A turn is a block of one wave; there are no more workgroups than are resident. */
static void cut(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                const kgen_problem *p) {
    double least = kg_attn_least_blocks(spec->attn.waves) * spec->attn.v_split,
           items = (double)p->batch * p->heads;
    (void)target;
    w->groups = fmax(1, fmin(w->turns / least, w->resident));
    w->merged = w->turns / items > least;
}

const kgen__predict_family kgen__predict_attn = {
    .context = 1,
    .heads = 1,
    .bytes = bytes,
    .looped = looped,
    .resident = resident,
    .cut = cut,
    .reads = 3,
    .cycles = 5200,
    .merge = 4700,
};

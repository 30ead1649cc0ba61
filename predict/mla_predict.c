/* Latent attention: bytes of a launch, and how the kernel cuts it. */
#include <math.h>

#include "predict_family.h"
#include "templates/kg/attn/attn_shape.h"
#include "templates/kg/mla/mla_shape.h"

static double row_of(const kgen_mla_spec *s) {
    return s->rows ? kg_mla_row_bytes(s->latent, s->rope)
                   : (s->latent + s->rope) * kgen__size_of(s->kv, 0);
}

/* Keys of a sequence that some query sees. A window given at launch is not known here. */
static double visible(const kgen_mla_spec *s, const kgen_problem *p) {
    double most = (double)s->window + s->q_tokens - 1, keys = p->context;
    return s->window > 0 && most < keys ? most : keys;
}

static kgen_status bytes(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *p,
                         kgen_error *err) {
    (void)err;
    const kgen_mla_spec *s = &spec->mla;
    double seqs = p->batch, keys = visible(s, p), width = s->latent + s->rope;
    double rows = seqs * s->q_tokens * s->heads;
    kgen__traffic t = {seqs * keys * row_of(s), rows * s->latent * kgen__size_of(s->out, s->q)};
    t.read += rows * width * kgen__size_of(s->q, 0);
    t.read += seqs * (kgen__index_bytes(s->len) +
                      kgen__pages_of(keys, s->page) * kgen__index_bytes(s->table));
    if (s->sinks) t.read += s->heads * 4;
    if (s->lse) t.written += rows * 4;
    *out = t;
    return KGEN_OK;
}

/* Every block of rows goes through the cache once. */
static double looped(const kgen_spec *spec, const kgen_problem *p, const kgen__traffic *t) {
    const kgen_mla_spec *s = &spec->mla;
    (void)p;
    return (t->read + t->written) * ceil(s->heads * s->q_tokens / (16.0 * s->row_tiles));
}

static int32_t resident(const kgen_spec *spec) { return spec->mla.occupancy; }

/* A turn is a wave's part of a block. */
static void cut(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                const kgen_problem *p) {
    const kgen_mla_spec *s = &spec->mla;
    int wave_keys = target->wave_size == 64 ? 32 : 16,
        columns = target->isa == KGEN_ISA_SM90 ? 8 : 16;
    int rows = kg_attn_rows(s->row_tiles, columns), width = s->latent + s->rope;
    int row_bytes = width * (int)kgen__size_of(s->kv, 0);
    double items = p->batch * kg_attn_row_blocks(s->heads, s->q_tokens, rows);
    double blocks = w->turns / s->waves / items; /* of one */
    double cost = kg_attn_merge_blocks(rows, s->latent, wave_keys, row_bytes);
    double least = fmax(kg_attn_least_blocks(1), sqrt(blocks * cost));
    double together = (double)KG_ATTN_LEAST_TOGETHER / wave_keys;
    if (fmin(w->resident / items, blocks / together) >=
        kg_attn_many_together(8 * (int)kgen__size_of(s->kv, 0)))
        least = together;
    w->groups = fmax(1, fmin(blocks * items / least, w->resident));
    w->merged = blocks > least;
}

const kgen__predict_family kgen__predict_mla = {
    .context = 1,
    .bytes = bytes,
    .looped = looped,
    .resident = resident,
    .cut = cut,
    .reads = 3,
    .cycles = 5200,
    .merge = 4700,
};

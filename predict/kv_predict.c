/* kv_write and kv_gather: bytes of a launch, and how the kernels cut it. */
#include <math.h>

#include "predict_family.h"
#include "templates/kg/kv/kv_shape.h"

/* --- bytes ---------------------------------------------------------------- */

static kgen_status write_bytes(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *p,
                               kgen_error *err) {
    const kgen_kv_write_spec *s = &spec->kv_write;
    double heads = p->heads, dv = s->v_dim ? s->v_dim : s->head_dim, rd = s->rope_dim;
    kgen__traffic t = {heads * (s->head_dim + dv) * kgen__size_of(s->x, 0),
                       heads * (s->head_dim + dv) * kgen__size_of(s->kv, 0)};
    if (s->scale == KGEN_DESCALE_BLOCK)
        t.written += heads * (s->head_dim * (kgen__size_of(s->x, 0) - 1) + dv / KG_KV_BLOCK * 4);
    if (s->rope_q)
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "rq=1: the problem does not say how many query heads rotate");
    t.read += kgen__index_bytes(s->slots);
    if (s->remap) t.read += kgen__index_bytes(s->remap - 1); /* i32, i64 */
    if (s->rope)
        t.read +=
            kgen__index_bytes(s->positions) + (rd ? rd : s->head_dim) * kgen__size_of(s->table, 0);
    if (s->scale == KGEN_DESCALE_TOKEN || s->scale == KGEN_DESCALE_ROW) t.written += 2 * heads * 4;
    t.read *= p->batch;
    t.written *= p->batch;
    *out = t;
    return KGEN_OK;
}

static kgen_status gather_bytes(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *p,
                                kgen_error *err) {
    (void)err;
    const kgen_kv_gather_spec *s = &spec->kv_gather;
    double heads = p->heads, dv = s->v_dim ? s->v_dim : s->head_dim, rows = p->batch;
    kgen__traffic t = {rows * heads * (s->head_dim + dv) * kgen__size_of(s->kv, 0),
                       rows * heads * (s->head_dim + dv) * kgen__size_of(s->out, 0)};
    if (s->descale == KGEN_DESCALE_BLOCK)
        t.read +=
            rows * heads * (s->head_dim * (kgen__size_of(s->out, 0) - 1) + dv / KG_KV_BLOCK * 4);
    t.read += kgen__pages_of(rows, s->page) * kgen__index_bytes(s->table);
    if (s->descale == KGEN_DESCALE_TOKEN) t.read += 2 * rows * heads * 4;
    *out = t;
    return KGEN_OK;
}

/* --- workgroups ----------------------------------------------------------- */

/* A lane moves `turns` chunks of the cache. */
static double groups_of(double rows, double dims, int32_t kv, int32_t turns, double lanes) {
    return fmax(1, rows * dims * kgen__size_of(kv, 0) / (KG_KV_CHUNK * turns * lanes));
}

static void cut_write(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                      const kgen_problem *p) {
    const kgen_kv_write_spec *s = &spec->kv_write;
    w->groups = groups_of((double)p->batch * p->heads, s->head_dim + s->v_dim, s->kv, s->turns,
                          w->waves * target->wave_size);
}

static void cut_gather(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                       const kgen_problem *p) {
    const kgen_kv_gather_spec *s = &spec->kv_gather;
    w->groups = groups_of((double)p->batch * p->heads, s->head_dim + s->v_dim, s->kv, s->turns,
                          w->waves * target->wave_size);
}

const kgen__predict_family kgen__predict_kv_write = {
    .heads = 1,
    .bytes = write_bytes,
    .cut = cut_write,
    .reads = 2,
    .cycles = 500,
};

const kgen__predict_family kgen__predict_kv_gather = {
    .heads = 1,
    .bytes = gather_bytes,
    .cut = cut_gather,
    .reads = 3,
    .cycles = 500,
};

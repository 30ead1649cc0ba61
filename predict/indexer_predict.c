/* The indexer: bytes of a launch, and how its kernels cut it. What `batch` and `context`
 * are: workload/workload_indexer.c. */
#include <math.h>

#include "predict_family.h"
#include "templates/kg/indexer/indexer_shape.h"

enum { CHOSEN = 2048 };

static double key_bytes(const kgen_indexer_spec *s) { return s->head_dim + 4; }

static double tokens_of(const kgen_indexer_spec *s, const kgen_problem *p) {
    int ragged = s->op == KGEN_INDEX_PREFILL || s->ranges;
    return (double)p->batch * (ragged ? 1 : s->q_tokens);
}

static kgen_status bytes(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *p,
                         kgen_error *err) {
    const kgen_indexer_spec *s = &spec->indexer;
    double batch = p->batch, context = p->context, tokens = tokens_of(s, p);
    double pages = kgen__pages_of(context, s->page) * kgen__index_bytes(s->table);
    int caches = s->op == KGEN_INDEX_WRITE || s->op == KGEN_INDEX_GATHER;
    if (!caches && p->context < 1)
        return kgen_fail(err, KGEN_E_ARG, "context=%d: keys of a row, at least 1", p->context);
    kgen__traffic t = {batch * key_bytes(s), batch * key_bytes(s)};
    if (s->op == KGEN_INDEX_GATHER)
        t.read += kgen__pages_of(batch, s->page) * kgen__index_bytes(s->table);
    if (s->op == KGEN_INDEX_WRITE)
        t.read = batch * (s->head_dim * kgen__size_of(s->x, 0) + kgen__index_bytes(s->slots));
    if (s->op == KGEN_INDEX_TOPK) t = (kgen__traffic){tokens * context * 4, tokens * CHOSEN * 4};
    if (s->op == KGEN_INDEX_DECODE || s->op == KGEN_INDEX_PREFILL) {
        t.read = tokens * s->heads * (s->head_dim + 4.0) + context * key_bytes(s);
        if (s->op == KGEN_INDEX_DECODE)
            t.read += (batch - 1) * context * key_bytes(s) + batch * pages;
        t.written = tokens * context * 4;
    }
    *out = t;
    return KGEN_OK;
}

static void cut(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                const kgen_problem *p) {
    const kgen_indexer_spec *s = &spec->indexer;
    double lanes = (double)s->waves * target->wave_size, tokens = tokens_of(s, p);
    double keys = (double)s->waves * s->tiles * (target->wave_size == 64 ? 32 : 16);
    if (s->op == KGEN_INDEX_TOPK)
        w->groups = tokens;
    else if (s->op == KGEN_INDEX_WRITE || s->op == KGEN_INDEX_GATHER)
        w->groups = p->batch * ((double)s->head_dim / KG_INDEX_PIECE) / lanes;
    else /* a tile that is not full takes as long as a full one */
        w->groups = fmin(w->resident, tokens / s->together * fmax(1, p->context / keys));
    w->groups = fmax(1, w->groups);
}

const kgen__predict_family kgen__predict_indexer = {
    .bytes = bytes,
    .cut = cut,
    .reads = 3,
    .cycles = 1500,
};

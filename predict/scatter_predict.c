/* scatter: bytes of a launch, and how the kernels cut it. */
#include <math.h>

#include "predict_family.h"

/* The ops whose work follows from sequences and context: page tables and lists
 * of slots. Lengths, prefix sums and the new tokens' slots are a few words a
 * request and are left out. */
static kgen_status bytes(kgen__traffic *t, const kgen_spec *spec, const kgen_problem *p,
                         kgen_error *err) {
    const kgen_scatter_spec *s = &spec->scatter;
    double slot = kgen__index_bytes(s->slot), entry = kgen__index_bytes(s->table), cells;
    char line[KGEN_SPEC_LINE_MAX];
    switch ((kgen_scatter_op)s->op) {
    case KGEN_OP_PAGE_TABLE_RAGGED:
    case KGEN_OP_PAGE_TABLE_REQUESTS:
    case KGEN_OP_SPEC_PREPARE:
        cells = kgen__pages_of(p->context, s->page);
        break;
    case KGEN_OP_KV_INDICES:
        cells = p->context;
        break;
    default:
        kgen_spec_print(line, spec);
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "%s: the bytes of this op do not follow from batch and context", line);
    }
    if (s->op == KGEN_OP_SPEC_PREPARE && !s->pages) cells = 0;
    t->read = p->batch * (cells * slot + 3 * 8.0);
    t->written = p->batch * (cells * entry + 3 * 8.0);
    if (!s->swa) return KGEN_OK;
    t->read += p->batch * cells * kgen__index_bytes(s->map);
    t->written += p->batch * cells * entry;
    return KGEN_OK;
}

static void cut(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                const kgen_problem *p) {
    (void)spec, (void)target;
    w->groups = fmax(p->batch, w->turns / w->waves);
}

const kgen__predict_family kgen__predict_scatter = {
    .context = 1,
    .bytes = bytes,
    .cut = cut,
    .reads = 3,
    .cycles = 1000,
};

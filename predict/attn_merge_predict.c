/* attn_merge: bytes of a launch, and how the kernel cuts it. */
#include "predict_family.h"
#include "templates/kg/attn_merge/attn_merge_shape.h"

static double rows_of(const kgen_problem *p) { return (double)p->batch * p->heads; }

/* context: the parts of a stack. */
static kgen_status bytes(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *p,
                         kgen_error *err) {
    const kgen_attn_merge_spec *s = &spec->attn_merge;
    double parts = s->parts == KGEN_PARTS_STACK ? p->context : 2;
    if (parts < 1)
        return kgen_fail(err, KGEN_E_ARG, "context=%d: parts of the stack, at least 1", p->context);
    *out = (kgen__traffic){rows_of(p) * parts * (s->head_dim * kgen__size_of(s->x, 0) + 4),
                           rows_of(p) * (s->head_dim * kgen__size_of(s->out, s->x) + 4)};
    return KGEN_OK;
}

static void cut(kgen__work *w, const kgen_spec *spec, const kgen_target *target,
                const kgen_problem *p) {
    const kgen_attn_merge_spec *s = &spec->attn_merge;
    double each = s->turns * kg_merge_rows(s->head_dim, s->waves * target->wave_size);
    w->groups = rows_of(p) / each;
    if (w->groups < 1) w->groups = 1;
}

const kgen__predict_family kgen__predict_attn_merge = {
    .heads = 1,
    .bytes = bytes,
    .cut = cut,
    .reads = 2,
    .cycles = 300,
};

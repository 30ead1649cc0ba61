/* Tuning keys of gdn by the size of the problem: whether its sequences are few. */
#include "gdn.h"
#include "gdn_keys.h"

/* Up to how many value heads (of all sequences) a compute unit batch=few is the
 * faster: where the table of docs/performance.md has stars. */
static const int32_t few_heads[2][2][2] = {
    /* [several tokens][norm][16-bit state] */
    {{8, 2}, {1, 2}},
    {{32, 32}, {2, 1}},
};

void kgen__gdn_suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target) {
    kgen_gdn_spec *s = &spec->gdn;
    int32_t parts = kgen__gdn_parts(s);
    if (s->batch || !problem->batch || !(parts & KGEN__GDN_RECURRENCE)) return;
    int64_t heads = (int64_t)problem->batch * s->v_heads;
    int norm = (parts & KGEN__GDN_NORM) != 0;
    int64_t few = few_heads[s->tokens > 1][norm][s->state != KGEN_DTYPE_F32];
    s->batch = heads <= few * target->typical_cus ? KGEN__GDN_BATCH_FEW : KGEN__GDN_BATCH_MANY;
}

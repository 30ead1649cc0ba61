#include "kg/prelude/prelude_mla.h"
// Multi-head latent attention: all heads of a token share one cached row, whose first
// columns are the values as well. Heads are rows, any number of them. One launch, split
// over the keys, merged by the last workgroup to arrive. Formula and arguments:
// <kgen/mla_args.h>.
//
// A workgroup takes rows (token x head) and a segment of the keys, whose rows lie in LDS
// for both products: memory is read once for all rows of a row block.
#include "kg/attn/attn_run.h"
#include "kg/mla/mla_loop.h"

KG_ENTRY(kg_attn_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::prepare_stage(KG_ARGS(kg_attn_args, args), lds);
    kg::run<kg::run_segment>(KG_ARGS(kg_attn_args, args), lds);
}

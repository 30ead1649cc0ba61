#include "kg/prelude/prelude_scatter.h"
// Trees of drafts: build, masks, verify; chains of drafts: verify. A workgroup has
// one request's tree or chain.
// Rules and arguments: <kgen/scatter_args.h>.
#include "kg/scatter/scatter_reject.h"
#include "kg/scatter/scatter_verify.h"

namespace kg {

KG_DEV void run(args_t a, u8 *lds) {
    if constexpr (OP == OP_TREE_MASK)
        run_tree_mask(a, (i64 *)lds);
    else if constexpr (OP == OP_TREE_VERIFY)
        run_verify(a, lds);
    else if constexpr (OP == OP_REJECT)
        run_reject(a, lds);
    else
        run_tree(a, lds);
}

} // namespace kg

KG_ENTRY(kg_scatter_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_scatter_args, args), lds);
}

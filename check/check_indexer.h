/* The parts of the indexer's row in the table of families. */
#ifndef KGEN_CHECK_CHECK_INDEXER_H
#define KGEN_CHECK_CHECK_INDEXER_H

#include "check_family.h"

enum {
#define KGEN_TENSOR(ID, ...) I_##ID,
#include <kgen/indexer_args.def>
    KGEN__INDEXER_SLOTS
};

kgen_status kgen__indexer_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                 int64_t budget, kgen_error *err);
kgen_status kgen__indexer_shape(kgen__data *data, kgen_error *err);
kgen_status kgen__indexer_fill(kgen__data *data, uint64_t seed, kgen_error *err);
kgen_status kgen__indexer_refill(kgen__data *data, kgen__rng *rng, kgen_error *err);
kgen_status kgen__indexer_reference(kgen__answer *answer, const kgen__data *data, kgen_error *err);

#endif

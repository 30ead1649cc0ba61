/* Specs of family indexer: which rows of a latent cache a query sees. Part of spec.h. */
#ifndef KGEN_INDEXER_SPEC_H
#define KGEN_INDEXER_SPEC_H

#include <stdint.h>

typedef enum kgen_index_op {
    KGEN_INDEX_WRITE = 0,
    KGEN_INDEX_GATHER = 1,
    KGEN_INDEX_DECODE = 2,
    KGEN_INDEX_PREFILL = 3,
    KGEN_INDEX_TOPK = 4,
} kgen_index_op;

/* What top-k says of a column that it chose. */
typedef enum kgen_index_to {
    KGEN_TO_INDEX = 0,
    KGEN_TO_COLUMN = 1,
    KGEN_TO_SLOT = 2,
} kgen_index_to;

typedef struct kgen_indexer_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "indexer_params.def"
#undef KGEN_PARAM
} kgen_indexer_spec;

#endif

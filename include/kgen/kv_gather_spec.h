/* Specs of family kv_gather: cached keys and values out of it. Part of spec.h. */
#ifndef KGEN_KV_GATHER_SPEC_H
#define KGEN_KV_GATHER_SPEC_H

#include <stdint.h>

/* START: row i of a sequence is token starts[s] + i. END: the rows are the last
 * tokens of the sequence, as a sliding window wants them. */
typedef enum kgen_kv_from { KGEN_FROM_START = 0, KGEN_FROM_END = 1 } kgen_kv_from;

typedef struct kgen_kv_gather_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "kv_gather_params.def"
#undef KGEN_PARAM
} kgen_kv_gather_spec;

#endif

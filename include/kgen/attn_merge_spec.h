/* Specs of family attn_merge: partial results of attention as one. Part of spec.h. */
#ifndef KGEN_ATTN_MERGE_SPEC_H
#define KGEN_ATTN_MERGE_SPEC_H

#include <stdint.h>

/* PAIR: two tensors, each with strides of its own. STACK: one tensor, whose first
 * dimension says how many there are. */
typedef enum kgen_merge_parts { KGEN_PARTS_PAIR = 0, KGEN_PARTS_STACK = 1 } kgen_merge_parts;

typedef struct kgen_attn_merge_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "attn_merge_params.def"
#undef KGEN_PARAM
} kgen_attn_merge_spec;

#endif

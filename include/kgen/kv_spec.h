/* The specs of kv_write and kv_gather; part of spec.h. */
#ifndef KGEN_KV_SPEC_H
#define KGEN_KV_SPEC_H

#include <stdint.h>

/* How rotary pairs lie in a head. NEOX: (i, i + rd/2). INTERLEAVED: (2i, 2i+1). */
typedef enum kgen_kv_rope {
    KGEN_ROPE_OFF = 0,
    KGEN_ROPE_NEOX = 1,
    KGEN_ROPE_INTERLEAVED = 2,
} kgen_kv_rope;

/* Type of the table that slots go through first. */
typedef enum kgen_kv_remap {
    KGEN_REMAP_OFF = 0,
    KGEN_REMAP_I32 = 1,
    KGEN_REMAP_I64 = 2,
} kgen_kv_remap;

/* START: row i of a sequence is token starts[s] + i. END: the rows are the last
 * tokens of the sequence, as a sliding window wants them. */
typedef enum kgen_kv_from { KGEN_FROM_START = 0, KGEN_FROM_END = 1 } kgen_kv_from;

typedef struct kgen_kv_write_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "kv_write_params.def"
#undef KGEN_PARAM
} kgen_kv_write_spec;

typedef struct kgen_kv_gather_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "kv_gather_params.def"
#undef KGEN_PARAM
} kgen_kv_gather_spec;

#endif

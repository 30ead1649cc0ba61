/* Specs of family kv_write: new keys and values into a cache. Part of spec.h. */
#ifndef KGEN_KV_WRITE_SPEC_H
#define KGEN_KV_WRITE_SPEC_H

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

typedef struct kgen_kv_write_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "kv_write_params.def"
#undef KGEN_PARAM
} kgen_kv_write_spec;

#endif

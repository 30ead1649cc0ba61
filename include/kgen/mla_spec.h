/* Specs of family mla: multi-head latent attention. Part of spec.h. */
#ifndef KGEN_MLA_SPEC_H
#define KGEN_MLA_SPEC_H

#include <stdint.h>

typedef enum kgen_mla_phase {
    KGEN_MLA_DECODE = 0, /* a token a sequence */
    KGEN_MLA_VERIFY = 1, /* up to t, as cu_seqlens_q says */
    KGEN_MLA_TREE = 2,   /* the same, with a mask among them */
} kgen_mla_phase;

typedef struct kgen_mla_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "mla_params.def"
#undef KGEN_PARAM
} kgen_mla_spec;

#endif

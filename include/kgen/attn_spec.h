/* Specs of family attn: paged attention. Part of spec.h. */
#ifndef KGEN_ATTN_SPEC_H
#define KGEN_ATTN_SPEC_H

#include <stdint.h>

#include "status.h"

typedef enum kgen_phase {
#define KGEN_ATTN_PHASE(name, NAME, ...) KGEN_PHASE_##NAME,
#include "attn_phases.def"
    KGEN_PHASE_COUNT
} kgen_phase;

/* A row of attn_phases.def. */
typedef struct kgen_attn_phase {
    const char *name;
    const char *template_name;
    int32_t most_tokens;
    int32_t bounded, ragged, tree, dense;
} kgen_attn_phase;

/* NULL out of range. */
KGEN_API const kgen_attn_phase *kgen_attn_phase_of(int32_t phase);

typedef struct kgen_attn_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "attn_params.def"
#undef KGEN_PARAM
} kgen_attn_spec;

/* Query tokens of a sequence with `context` keys, new ones included, where a problem
 * is timed: t, or in phases without bound the last 2048, a chunk of a prompt. */
KGEN_API int32_t kgen_attn_fresh_tokens(const kgen_attn_spec *spec, int32_t context);

#endif

/* Who fills the open tuning keys of attention, in this order. */
#ifndef KGEN_GEN_ATTN_KEYS_H
#define KGEN_GEN_ATTN_KEYS_H

#include <kgen/tuning.h>

/* By the size of the problem, where a row speaks of it (kgen__family's `suit`). */
void kgen__attn_suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target);

/* What is open then, from the target. */
void kgen__attn_fill_keys(kgen_attn_spec *spec, const kgen_target *target);

#endif

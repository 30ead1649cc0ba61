/* Who fills open tuning keys of mla by the size of the problem. */
#ifndef KGEN_GEN_MLA_SUIT_H
#define KGEN_GEN_MLA_SUIT_H

#include <kgen/tuning.h>

/* Where a row speaks of it (kgen__family's `suit`). */
void kgen__mla_suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target);

#endif

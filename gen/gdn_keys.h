/* Who fills the open tuning keys of gdn, in this order. */
#ifndef KGEN_GEN_GDN_KEYS_H
#define KGEN_GEN_GDN_KEYS_H

#include <kgen/tuning.h>

/* Sequences that the other keys are chosen for. */
typedef enum kgen__gdn_batch {
    KGEN__GDN_BATCH_AUTO,
    KGEN__GDN_BATCH_FEW,
    KGEN__GDN_BATCH_MANY,
} kgen__gdn_batch;

/* By the size of the problem: few or many sequences (kgen__family's `suit`). */
void kgen__gdn_suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target);

/* What is open then, from the target. */
void kgen__gdn_fill_keys(kgen_gdn_spec *spec, const kgen_target *target);

#endif

/* Which kernels a search may choose from: every value of a family's tuning keys
 * that its parameter tables name and its conditions allow.                   */
#ifndef KGEN_TUNE_SPACE_H
#define KGEN_TUNE_SPACE_H

#include <kgen/kgen.h>

enum { KGEN_SPACE_KEYS = 8 };

/* Why a combination is none, before anything is compiled.                   */
typedef enum kgen_prune {
    KGEN_PRUNE_RULE,  /* the family's conditions                             */
    KGEN_PRUNE_LANES, /* more lanes than a workgroup may have                */
    KGEN_PRUNE_WAVES, /* more waves than a compute unit holds                */
    KGEN_PRUNE_SAME,  /* resolved, the source of another                     */
    KGEN_PRUNE_COUNT
} kgen_prune;

const char *kgen_prune_name(kgen_prune reason);

typedef struct kgen_candidate {
    kgen_spec spec;              /* resolved                                 */
    char kernel[65];             /* digest of its source                     */
    int16_t at[KGEN_SPACE_KEYS]; /* of each key, which of its values         */
    int32_t distance;            /* from the family's own choice             */
} kgen_candidate;

typedef struct kgen_space {
    kgen_candidate *list; /* the family's own choice, then nearest to it first */
    int count, keys;
    int considered; /* combinations                                          */
    int pruned[KGEN_PRUNE_COUNT];
} kgen_space;

/* Keys that the spec sets stay, but for the first candidate: that is what a row
 * would replace, the family's choice for the problem (NULL: not known) with all
 * keys open. A preset of other keys (gdn's batch) is no key of the search. Of a
 * range, the powers of two and the default's neighbours stand for all.
 * *out: kgen_space_free.                                                    */
kgen_status kgen_space_make(kgen_space *out, const kgen_spec *spec, const kgen_problem *problem,
                            const kgen_target *target, kgen_error *err);
/* Fills places and distances and sorts all but the first, which is the family's
 * own choice: for a list of another origin.                                 */
void kgen_space_arrange(kgen_space *space);
void kgen_space_free(kgen_space *space);

/* The keys of the search, "waves=8,occ=2"; cut to the room there is.         */
void kgen_space_keys(char *out, size_t size, const kgen_candidate *candidate);

/* Steps from one to the other, over all keys.                               */
int kgen_space_distance(const kgen_space *space, int a, int b);

#endif

/* Which kernels a search may choose from: every value of a family's tuning keys
 * that its parameter tables name and its conditions allow. */
#ifndef KGEN_TUNER_SPACE_H
#define KGEN_TUNER_SPACE_H

#include <kgen/kgen.h>
#include <kgen/params.h>

enum { KGEN__SPACE_KEYS = 8 };

/* Why a combination is none, before anything is compiled. */
typedef enum kgen__prune {
    KGEN__PRUNE_RULE,  /* the family's conditions */
    KGEN__PRUNE_LANES, /* more lanes than a workgroup may have */
    KGEN__PRUNE_WAVES, /* more waves than a compute unit holds */
    KGEN__PRUNE_SAME,  /* resolved, the source of another */
    KGEN__PRUNE_COUNT
} kgen__prune;

const char *kgen__prune_name(kgen__prune reason);

typedef struct kgen__candidate {
    kgen_spec spec;               /* resolved */
    char kernel[65];              /* digest of its source */
    int16_t at[KGEN__SPACE_KEYS]; /* of each key, which of its values */
    int32_t distance;             /* from the family's own choice */
} kgen__candidate;

typedef struct kgen__space {
    kgen__candidate *list; /* the family's own choice, then nearest to it first */
    int count, keys;
    int considered; /* combinations */
    int pruned[KGEN__PRUNE_COUNT];
} kgen__space;

/* Keys that the spec sets stay, but for the first candidate: that is what a row
 * would replace, the family's choice for the problem (NULL: not known) with all
 * keys open. A preset of other keys (gdn's batch) is no key of the search. Of a
 * range, the powers of two and the default's neighbours stand for all.
 * *out: kgen__space_free. */
kgen_status kgen__space_make(kgen__space *out, const kgen_spec *spec, const kgen_problem *problem,
                             const kgen_target *target, kgen_error *err);
/* Whether the parameter is a key of the search. */
int kgen__space_searches(const kgen_param *param);
/* Whether it may choose the spec, *resolved; else *why not. */
int kgen__space_allows(kgen_spec *resolved, kgen__prune *why, const kgen_spec *spec,
                       const kgen_target *target);
/* Fills places and distances and sorts all but the first, which is the family's
 * own choice: for a list of another origin. */
void kgen__space_arrange(kgen__space *space);
void kgen__space_free(kgen__space *space);

/* The keys of the search, "waves=8,occ=2"; cut to the room there is. */
void kgen__space_keys(char *out, size_t size, const kgen__candidate *candidate);

/* Steps from one to the other, over all keys. */
int kgen__space_distance(const kgen__space *space, int a, int b);

#endif

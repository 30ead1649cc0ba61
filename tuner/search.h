/* Which candidates are timed, how often, and which one wins. Knows nothing of
 * devices: times come from an evaluator. With the same times and the same seed
 * a search takes the same way, so an interrupted one is repeated from its
 * journal. */
#ifndef KGEN_TUNER_SEARCH_H
#define KGEN_TUNER_SEARCH_H

#include "workload/workload.h"
#include "space.h"

/* Fewer have no 95 % interval of their median: nothing is decided by them. */
enum { KGEN__SAMPLES_LEAST = 6 };

typedef struct kgen__evaluator {
    void *user;
    /* Makes candidates ready to be timed. usable[i] = 0: it never is. */
    kgen_status (*prepare)(void *user, int *usable, const int *candidates, int count,
                           kgen_error *err);
    /* One sample in microseconds; below 0: the candidate is out. */
    kgen_status (*sample)(void *user, double *us, int candidate, kgen_error *err);
    /* Seconds left. NULL: no limit. */
    double (*left)(void *user);
} kgen__evaluator;

typedef struct kgen__strategy kgen__strategy;

/* exhaustive: every candidate, in rounds.
 * random: a random part of them, the same way.
 * halving: a part of them gets few samples, the worse half goes, and again;
 * candidates near the winners join; what is left is timed beside the default
 * until the answer is sure. */
kgen_status kgen__strategy_find(const kgen__strategy **out, const char *name, kgen_error *err);
const char *kgen__strategy_name(const kgen__strategy *strategy);
size_t kgen__strategy_count(void);
const kgen__strategy *kgen__strategy_at(size_t index);

typedef struct kgen__search_options {
    const kgen__strategy *strategy; /* NULL: halving */
    uint64_t seed;
    int samples; /* of one candidate, about as many as needed; 0: 30 */
    int chunk;   /* candidates made ready at once; 0: 16 */
} kgen__search_options;

typedef struct kgen__search_result {
    int best;                    /* 0: the family's own choice. -1: that has no time */
    int default_out;             /* 1: it was dropped */
    int fastest;                 /* by its median, sure or not */
    kgen__timing us, default_us; /* of `best`, of the default */
    int finished;                /* 0: time ran out */
    int tried;                   /* candidates with a time */
    int dropped;
    int samples; /* in all */
} kgen__search_result;

/* A candidate replaces the default only when its median is at least 3 % below
 * and the two intervals do not overlap. */
kgen_status kgen__search_run(kgen__search_result *out, const kgen__space *space,
                             const kgen__evaluator *evaluator, const kgen__search_options *options,
                             kgen_error *err);

#endif

/* Which candidates are timed, how often, and which one wins. Knows nothing of
 * devices: times come from an evaluator. With the same times and the same seed
 * a search takes the same way, so an interrupted one is repeated from its
 * journal.                                                                  */
#ifndef KGEN_TUNE_SEARCH_H
#define KGEN_TUNE_SEARCH_H

#include "../load/load.h"
#include "space.h"

/* Fewer have no 95 % interval of their median: nothing is decided by them.   */
enum { KGEN_SAMPLES_LEAST = 6 };

typedef struct kgen_evaluator {
    void *user;
    /* Makes candidates ready to be timed. usable[i] = 0: it never is.       */
    kgen_status (*prepare)(void *user, int *usable, const int *candidates, int count,
                           kgen_error *err);
    /* One sample in microseconds; below 0: the candidate is out.            */
    kgen_status (*sample)(void *user, double *us, int candidate, kgen_error *err);
    /* Seconds left. NULL: no limit.                                         */
    double (*left)(void *user);
} kgen_evaluator;

typedef struct kgen_strategy kgen_strategy;

/* exhaustive: every candidate, in rounds.
 * random: a random part of them, the same way.
 * halving: a part of them gets few samples, the worse half goes, and again;
 * candidates near the winners join; what is left is timed beside the default
 * until the answer is sure.                                                 */
kgen_status kgen_strategy_find(const kgen_strategy **out, const char *name, kgen_error *err);
const char *kgen_strategy_name(const kgen_strategy *strategy);
size_t kgen_strategy_count(void);
const kgen_strategy *kgen_strategy_at(size_t index);

typedef struct kgen_search_options {
    const kgen_strategy *strategy; /* NULL: halving                          */
    uint64_t seed;
    int samples; /* of one candidate, about as many as needed; 0: 30         */
    int chunk;   /* candidates made ready at once; 0: 16                     */
} kgen_search_options;

typedef struct kgen_search_result {
    int best;       /* 0: the family's own choice. -1: that has no time       */
    int default_out; /* 1: it was dropped                                    */
    int fastest;    /* by its median, sure or not                            */
    kgen_timing us, default_us; /* of `best`, of the default                 */
    int finished;   /* 0: time ran out                                       */
    int tried;      /* candidates with a time                                */
    int dropped;
    int samples;    /* in all                                                */
} kgen_search_result;

/* A candidate replaces the default only when its median is at least 3 % below
 * and the two intervals do not overlap.                                     */
kgen_status kgen_search_run(kgen_search_result *out, const kgen_space *space,
                            const kgen_evaluator *evaluator, const kgen_search_options *options,
                            kgen_error *err);

#endif

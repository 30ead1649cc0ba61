/* A crew runs the workgroups of a launch on several threads, in random order.
 * Any number of threads may launch at once. */
#ifndef KGEN_DEVICE_CPU_CREW_H
#define KGEN_DEVICE_CPU_CREW_H

#include "team.h"

typedef struct kgen__crew kgen__crew;

/* threads: how many run workgroups, the launching one included. */
kgen_status kgen__crew_create(kgen__crew **out, const kgen_target *persona, unsigned threads,
                              uint64_t seed, kgen_error *err);
/* No launch may be running. */
void kgen__crew_free(kgen__crew *crew);
/* Returns when all workgroups are done, or one has failed and the others have
 * stopped. */
kgen_status kgen__crew_launch(kgen__crew *crew, const kgen__cpu_work *work, kgen_error *err);

#endif

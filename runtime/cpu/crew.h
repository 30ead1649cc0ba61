/* A crew runs the workgroups of a launch on several threads, in random order.
 * Any number of threads may launch at once.                                 */
#ifndef KGEN_CPU_CREW_H
#define KGEN_CPU_CREW_H

#include "team.h"

typedef struct kgen_crew kgen_crew;

/* threads: how many run workgroups, the launching one included.             */
kgen_status kgen__crew_create(kgen_crew **out, const kgen_target *persona, unsigned threads,
                              uint64_t seed, kgen_error *err);
/* No launch may be running. */
void kgen__crew_free(kgen_crew *crew);
/* Returns when all workgroups are done, or one has failed and the others have
 * stopped.                                                                  */
kgen_status kgen__crew_launch(kgen_crew *crew, const kgen_cpu_work *work, kgen_error *err);

#endif

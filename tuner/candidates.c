/* Candidates through kgen_build, all of a chunk in parallel. */
#include <stdlib.h>

#include "run.h"

kgen_status kgen__candidates_build(kgen_job_result *results, kgen_cache *cache,
                                   const kgen__space *space, const int *candidates, int count,
                                   const kgen_target *target, const kgen_build_options *options,
                                   kgen_error *err) {
    kgen_job *jobs = calloc((size_t)count, sizeof *jobs);
    if (!jobs) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %d jobs", count);
    for (int i = 0; i < count; i++) jobs[i] = (kgen_job){space->list[candidates[i]].spec, target};
    kgen_build(cache, jobs, (size_t)count, options, results, NULL);
    free(jobs);
    for (int i = 0; i < count; i++) {
        const kgen_error *why = &results[i].error;
        if (results[i].outcome != KGEN_JOB_FAILED) continue;
        if (why->status != KGEN_E_TOOLCHAIN && why->status != KGEN_E_NOMEM) continue;
        kgen_status status = kgen_fail(err, why->status, "%s", why->text);
        kgen__candidates_free(results, count);
        return status;
    }
    return KGEN_OK;
}

void kgen__candidates_free(kgen_job_result *results, int count) {
    for (int i = 0; i < count; i++) {
        kgen_entry_free(results[i].entry);
        results[i].entry = NULL;
    }
}

kgen__drop kgen__drop_of_build(const kgen_job_result *result) {
    return result->error.status == KGEN_E_BUDGET ? KGEN__DROP_GATE : KGEN__DROP_COMPILE;
}

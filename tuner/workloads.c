/* The workloads of workload/workload.h as the tuner's table. */
#include "tuner.h"

/* The emulated device times nothing that a cache could spoil. */
static kgen_status make(void **workload, kgen_context *ctx, const kgen__tuner_job *job,
                        kgen_error *err) {
    int emulated = kgen_context_target(ctx)->vendor == KGEN_VENDOR_CPU;
    const kgen__workload_options options = {.cold_bytes = emulated ? 1 : 0};
    if (job->capture)
        return kgen__workload_replay((kgen__workload **)workload, ctx, job->capture, &options, err);
    return kgen__workload_make((kgen__workload **)workload, ctx, &job->spec, &job->problem,
                               &options, err);
}

static void free_workload(void *workload) { kgen__workload_free(workload); }

static kgen_status timer_make(void **timer, void *workload, const kgen_kernel *kernel,
                              kgen_error *err) {
    return kgen__timer_make((kgen__timer **)timer, workload, kernel, err);
}

static kgen_status timer_sample(double *us, void *timer, kgen_error *err) {
    return kgen__timer_sample(us, timer, err);
}

static void timer_free(void *timer) { kgen__timer_free(timer); }

const kgen__tuner_workloads kgen__tuner_own_workloads = {make, free_workload, timer_make,
                                                         timer_sample, timer_free};

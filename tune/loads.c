/* The loads of load/load.h as the tuner's table. */
#include "tuner.h"

/* The emulated device times nothing that a cache could spoil. */
static kgen_status make(void **load, kgen_context *ctx, const kgen_tune_job *job,
                        kgen_error *err) {
    int emulated = kgen_context_target(ctx)->vendor == KGEN_VENDOR_CPU;
    const kgen_load_options options = {.cold_bytes = emulated ? 1 : 0};
    if (job->capture)
        return kgen_load_replay((kgen_load **)load, ctx, job->capture, &options, err);
    return kgen_load_make((kgen_load **)load, ctx, &job->spec, &job->problem, &options, err);
}

static void free_load(void *load) { kgen_load_free(load); }

static kgen_status timer_make(void **timer, void *load, const kgen_kernel *kernel,
                              kgen_error *err) {
    return kgen_timer_make((kgen_timer **)timer, load, kernel, err);
}

static kgen_status timer_sample(double *us, void *timer, kgen_error *err) {
    return kgen_timer_sample(us, timer, err);
}

static void timer_free(void *timer) { kgen_timer_free(timer); }

const kgen_tune_loads kgen_tune_own_loads = {make, free_load, timer_make, timer_sample,
                                             timer_free};

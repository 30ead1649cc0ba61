/* Prepare: specs -> loaded kernels. Everything slow happens here. */
#include <kgen/params.h>
#include <kgen/probe.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gen/family.h"
#include "runtime/capture/capture_parts.h"
#include "find.h"
#include "launch.h"

static const kgen_problem unknown;

/* One call. Of the requests that no kernel is prepared for, the lists below have
 * one element each, in the same order. */
typedef struct preparation {
    kgen_context *ctx;
    kgen_prepare_options options;
    char *requests; /* the caller's, `step` bytes each */
    size_t step, count, done;
    size_t missing, *index; /* of the request */
    kgen_job *jobs;
    kgen_tuning_match *matches;
    kgen_job_result *results;
} preparation;

static kgen_request *request_at(const preparation *p, size_t index) {
    return (kgen_request *)(void *)(p->requests + index * p->step);
}

/* --- the message of a miss ---------------------------------------------- */

/* why: of the layer that was refused, or nothing. */
static kgen_status fail_miss(kgen_context *ctx, const kgen_spec *spec, const char *why,
                             kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX], near[KGEN_SPEC_LINE_MAX] = "none";
    pthread_mutex_lock(&ctx->lock);
    const kgen_kernel *best = ctx->kernels;
    for (const kgen_kernel *k = ctx->kernels; k; k = k->next)
        if (kgen_spec_difference(spec, &k->spec) < kgen_spec_difference(spec, &best->spec))
            best = k;
    if (best) kgen_spec_print(near, &best->spec);
    pthread_mutex_unlock(&ctx->lock);
    kgen_spec_print(line, spec);
    return kgen_fail(err, KGEN_E_NOT_CACHED,
                     "no code object of %s for %s; nearest prepared: %s; build it with: "
                     "kgen build '%s' --arch %s%s",
                     line, ctx->target->name, near, line, ctx->target->name, why ? why : "");
}

/* --- load --------------------------------------------------------------- */

/* Workgroups that are resident at once. Kernels that cut their work into equal
 * parts launch no more of them. */
static uint32_t resident_workgroups(const kgen_context *ctx, const kgen_kernel *kernel) {
    const kgen_target *t = ctx->target;
    int32_t waves = (int32_t)kernel->config.block / t->wave_size;
    int32_t fit = kernel->resources.waves_per_simd * t->simds / waves;
    int32_t wanted = kgen_spec_occupancy(&kernel->spec);
    int32_t per_unit = fit > 0 && fit < wanted ? fit : wanted;
    uint32_t all = (uint32_t)(per_unit * ctx->api->compute_units(ctx->device));
    uint32_t cluster = kernel->config.cluster; /* whole ones, one at least */
    return !cluster ? all : all < cluster ? cluster : all / cluster * cluster;
}

/* Clusters stand on neighbouring units, and do not fill them all. */
static void fit_grid(kgen_context *ctx, kgen_kernel *kernel) {
    kgen__launch_config *config = &kernel->config;
    config->grid = resident_workgroups(ctx, kernel);
    if (!config->cluster || !ctx->api->resident_clusters) return;
    int clusters = ctx->api->resident_clusters(ctx->device, kernel->function, *config);
    uint32_t most = (uint32_t)(clusters > 0 ? clusters : 0) * config->cluster;
    if (most && most < config->grid) config->grid = most;
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

double kgen_probe_load_us(const kgen_kernel *kernel) { return kernel->load_us; }

static kgen_status load_entry(kgen_kernel **out, kgen_context *ctx, const kgen_spec *resolved,
                              const kgen_tuning_match *match, const kgen_entry *entry,
                              kgen_error *err) {
    kgen_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel) return kgen_fail(err, KGEN_E_NOMEM, "kernel: out of memory");
    double start = now_us();
    kgen_status status =
        ctx->api->load(ctx->device, entry, &kernel->module, &kernel->function, err);
    if (status != KGEN_OK) {
        free(kernel);
        return status;
    }
    kernel->load_us = now_us() - start;
    kernel->ctx = ctx;
    kernel->spec = *resolved;
    kgen__launch_bind(kernel);
    kernel->match = *match;
    kernel->resources = entry->resources;
    kernel->key = entry->key;
    memcpy(kernel->toolchain, entry->record.toolchain, sizeof kernel->toolchain);
    kernel->config.block = (uint32_t)kgen_spec_lanes(resolved, ctx->target);
    if (kernel->resources.lds_bytes > ctx->target->lds_bytes)
        kernel->config.lds = (uint32_t)kernel->resources.lds_bytes;
    kernel->config.cluster = (uint32_t)kgen_spec_cluster(resolved);
    fit_grid(ctx, kernel);
    kernel->next = ctx->kernels;
    ctx->kernels = kernel;
    *out = kernel;
    return KGEN_OK;
}

/* By its whole spec and by what was asked for, which may say fp8 for one of several
 * types; by either's shapes where no other kernel is found by them. */
static kgen_status index_request(kgen_context *ctx, const kgen_request *request,
                                 kgen_kernel *kernel, kgen_error *err) {
    kgen_spec open = request->spec, resolved = kernel->spec;
    kgen_spec_open_tuning(&open);
    kgen_spec_open_tuning(&resolved);
    int is_open = memcmp(&open, &request->spec, sizeof open) == 0;
    KGEN_TRY(kgen__finder_put(ctx->finder, &kernel->spec, &unknown, kernel, 1, err));
    KGEN_TRY(kgen__finder_put(ctx->finder, &resolved, &unknown, kernel, 0, err));
    KGEN_TRY(kgen__finder_put(ctx->finder, &resolved, &request->problem, kernel, is_open, err));
    KGEN_TRY(kgen__finder_put(ctx->finder, &request->spec, &request->problem, kernel, 1, err));
    KGEN_TRY(kgen__finder_put(ctx->finder, &request->spec, &unknown, kernel, 0, err));
    return kgen__finder_put(ctx->finder, &open, &unknown, kernel, 0, err);
}

static void drop(kgen_kernel *kernel) {
    kgen_context *ctx = kernel->ctx;
    kgen_kernel **link = &ctx->kernels;
    while (*link != kernel) link = &(*link)->next;
    *link = kernel->next;
    kgen_kernel *heir = ctx->kernels;
    while (heir && !kgen_spec_same_shape(&heir->spec, &kernel->spec)) heir = heir->next;
    kgen__finder_forget(ctx->finder, kernel, heir);
    kgen__capture_forget(ctx->capture, kernel);
    kgen__retire(kernel);
}

/* --- one request -------------------------------------------------------- */

/* The last of a request: its error is what it is by now. */
static void settle(preparation *p, size_t index, kgen_kernel *kernel) {
    kgen_request *request = request_at(p, index);
    request->kernel = kernel;
    p->done++;
    if (p->options.progress) p->options.progress(request, p->done, p->count, p->options.user);
}

static void settle_failure(preparation *p, size_t index, const kgen_error *why) {
    request_at(p, index)->error = *why;
    settle(p, index, NULL);
}

/* A kernel of another thread, or of the same spec twice, is found by now. */
static kgen_kernel *take_entry(preparation *p, size_t job, const kgen_entry *entry) {
    kgen_context *ctx = p->ctx;
    kgen_request *request = request_at(p, p->index[job]);
    const kgen_spec *resolved = &p->jobs[job].spec;
    kgen_status status = KGEN_OK;
    pthread_mutex_lock(&ctx->lock);
    kgen_kernel *kernel = kgen__finder_get(ctx->finder, resolved, &unknown);
    int known = kernel != NULL;
    kgen__reclaim(ctx);
    if (!known)
        status = load_entry(&kernel, ctx, resolved, &p->matches[job], entry, &request->error);
    if (status == KGEN_OK) status = index_request(ctx, request, kernel, &request->error);
    if (status != KGEN_OK && kernel && !known) drop(kernel);
    pthread_mutex_unlock(&ctx->lock);
    return status == KGEN_OK ? kernel : NULL;
}

/* Where a kernel is not cached and cannot be compiled: that of the device's family. */
static void take_generic(preparation *p, size_t job) {
    const kgen_context *ctx = p->ctx;
    kgen_job_result *result = &p->results[job];
    const kgen_request *request = request_at(p, p->index[job]);
    kgen_status why = result->error.status;
    if (result->outcome != KGEN_JOB_FAILED || (why != KGEN_E_NOT_CACHED && why != KGEN_E_TOOLCHAIN))
        return;
    const kgen_build_options options = {
        .size = sizeof options, .only_cached = 1, .offline = 1, .code_only = 1};
    kgen_job generic = {.target = kgen_target_generic(ctx->target)};
    kgen_tuning_match match;
    kgen_job_result found;
    if (!generic.target ||
        kgen_tuning_resolve(&generic.spec, &match, ctx->tuning, &request->spec, &request->problem,
                            generic.target, ctx->device_name, NULL) != KGEN_OK ||
        kgen_build(ctx->cache, &generic, 1, &options, &found, NULL) != KGEN_OK ||
        found.outcome != KGEN_JOB_CACHED)
        return;
    p->jobs[job].spec = generic.spec;
    p->matches[job] = match;
    *result = found;
}

/* Of a job that kgen_build, or the cache, is done with. The entry is not needed
 * any longer. */
static void settle_job(preparation *p, size_t job) {
    kgen_job_result *result = &p->results[job];
    kgen_request *request = request_at(p, p->index[job]);
    kgen_kernel *kernel = NULL;
    char line[KGEN_SPEC_LINE_MAX];
    take_generic(p, job);
    if (result->outcome == KGEN_JOB_FAILED && result->error.status == KGEN_E_NOT_CACHED)
        fail_miss(p->ctx, &p->jobs[job].spec, strstr(result->error.text, "; refused: "),
                  &request->error);
    else if (result->outcome == KGEN_JOB_FAILED)
        request->error = result->error;
    else
        kernel = take_entry(p, job, result->entry);
    request->compiled = result->outcome == KGEN_JOB_BUILT;
    if (request->compiled && p->ctx->mode == KGEN_MODE_WARN) {
        kgen_spec_print(line, &p->jobs[job].spec);
        kgen__log(p->ctx, KGEN_LOG_WARNING, "compiled %s for %s", line, p->ctx->target->name);
    }
    kgen_entry_free(result->entry);
    result->entry = NULL;
    settle(p, p->index[job], kernel);
}

/* --- all that are missing ----------------------------------------------- */

static void job_done(const kgen_job_result *result, const kgen_job *job, size_t done, size_t total,
                     void *user) {
    preparation *p = user;
    (void)result, (void)done, (void)total;
    settle_job(p, (size_t)(job - p->jobs));
}

static int is_cancelled(void *user) {
    const preparation *p = user;
    return p->options.cancel && p->options.cancel(p->options.user);
}

/* Compiles what is not cached where the mode allows, and loads each as it comes. */
static void build(preparation *p) {
    const kgen_build_options options = {.size = sizeof options,
                                        .workers = p->options.workers,
                                        .only_cached = p->ctx->mode == KGEN_MODE_STRICT,
                                        .offline = p->ctx->mode == KGEN_MODE_OFFLINE,
                                        .code_only = 1,
                                        .progress = job_done,
                                        .cancel = p->options.cancel ? is_cancelled : NULL,
                                        .user = p};
    size_t before = p->done;
    kgen_error why;
    kgen_status status = kgen_build(p->ctx->cache, p->jobs, p->missing, &options, p->results, &why);
    if (status == KGEN_OK || p->done > before) return;
    for (size_t i = 0; i < p->missing; i++) settle_failure(p, p->index[i], &why);
}

/* --- which are missing -------------------------------------------------- */

static kgen_kernel *find_and_index(kgen_context *ctx, const kgen_spec *resolved,
                                   kgen_request *request) {
    pthread_mutex_lock(&ctx->lock);
    kgen_kernel *kernel = kgen__finder_get(ctx->finder, resolved, &unknown);
    if (kernel && index_request(ctx, request, kernel, &request->error) != KGEN_OK) kernel = NULL;
    pthread_mutex_unlock(&ctx->lock);
    return kernel;
}

/* Sixteen workgroups find room side by side on a whole GPU; on a part of one so many as every GPU
 * with clusters has. What the caller says stays. */
static void fit_cluster(const kgen_context *ctx, kgen_spec *spec, const kgen_spec *asked) {
    enum { EVERYWHERE = 8 };
    if (kgen_spec_cluster(spec) <= EVERYWHERE || kgen_spec_cluster(asked)) return;
    if (ctx->api->compute_units(ctx->device) >= ctx->target->typical_cus) return;
    kgen_param_set(spec, kgen__param_named(spec->family, "cluster"), EVERYWHERE);
}

static void resolve(preparation *p, size_t index) {
    kgen_context *ctx = p->ctx;
    kgen_request *request = request_at(p, index);
    kgen_job *job = &p->jobs[p->missing];
    request->kernel = NULL;
    request->compiled = 0;
    memset(&request->error, 0, sizeof request->error);
    job->target = ctx->target;
    kgen_status status =
        kgen_tuning_resolve(&job->spec, &p->matches[p->missing], ctx->tuning, &request->spec,
                            &request->problem, ctx->target, ctx->device_name, &request->error);
    if (status == KGEN_OK) fit_cluster(ctx, &job->spec, &request->spec);
    kgen_kernel *kernel = status == KGEN_OK ? find_and_index(ctx, &job->spec, request) : NULL;
    if (kernel || request->error.status != KGEN_OK)
        settle(p, index, kernel);
    else
        p->index[p->missing++] = index;
}

static int is_known(const kgen_problem *problem) { return problem->batch || problem->context; }

/* Read when a problem is first named. */
static kgen_status open_tuning(const preparation *p, kgen_error *err) {
    kgen_context *ctx = p->ctx;
    int wanted = 0;
    for (size_t i = 0; i < p->count && !wanted; i++) wanted = is_known(&request_at(p, i)->problem);
    if (!wanted) return KGEN_OK;
    pthread_mutex_lock(&ctx->lock);
    kgen_status status =
        ctx->tuning ? KGEN_OK : kgen_tuning_open(&ctx->tuning, ctx->tuning_file, err);
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

static kgen_status make_lists(preparation *p, kgen_error *err) {
    p->index = calloc(p->count, sizeof *p->index);
    p->jobs = calloc(p->count, sizeof *p->jobs);
    p->matches = calloc(p->count, sizeof *p->matches);
    p->results = calloc(p->count, sizeof *p->results);
    return p->index && p->jobs && p->matches && p->results
               ? KGEN_OK
               : kgen_fail(err, KGEN_E_NOMEM, "%zu requests: out of memory", p->count);
}

static void prepare_missing(preparation *p) {
    kgen_context *ctx = p->ctx;
    kgen_error why;
    if (p->options.stream && ctx->api->capturing(ctx->device, p->options.stream)) {
        kgen_fail(&why, KGEN_E_CAPTURE,
                  "kgen_prepare: the stream captures; prepare every kernel before");
        for (size_t i = 0; i < p->missing; i++) settle_failure(p, p->index[i], &why);
    } else {
        build(p);
    }
}

static kgen_status first_failure(const preparation *p, kgen_error *err) {
    for (size_t i = 0; i < p->count; i++) {
        const kgen_error *why = &request_at(p, i)->error;
        if (why->status == KGEN_OK) continue;
        if (p->count == 1) return kgen_fail(err, why->status, "%s", why->text);
        return kgen_fail(err, why->status, "request %zu of %zu: %s", i + 1, p->count, why->text);
    }
    return KGEN_OK;
}

static kgen_status run(preparation *p, kgen_error *err) {
    KGEN_TRY(make_lists(p, err));
    KGEN_TRY(open_tuning(p, err));
    for (size_t i = 0; i < p->count; i++) resolve(p, i);
    if (p->missing) prepare_missing(p);
    return first_failure(p, err);
}

/* --- public ------------------------------------------------------------- */

static kgen_status check_sizes(const preparation *p, kgen_error *err) {
    for (size_t i = 0; i < p->count; i++) {
        size_t size = request_at(p, i)->size;
        if (size < sizeof(kgen_request))
            return kgen_fail(err, KGEN_E_ARG,
                             "request %zu: kgen_request.size=%zu: sizeof(kgen_request) expected",
                             i + 1, size);
        if (size != p->step)
            return kgen_fail(err, KGEN_E_ARG,
                             "request %zu: kgen_request.size=%zu, the first has %zu", i + 1, size,
                             p->step);
    }
    return KGEN_OK;
}

kgen_status kgen_prepare_for(kgen_context *ctx, kgen_request *requests, size_t count,
                             const kgen_prepare_options *options, kgen_error *err) {
    preparation p = {.ctx = ctx, .count = count};
    KGEN_TRY(kgen_struct_take(&p.options, sizeof p.options, options, "kgen_prepare_options", err));
    if (!count) return KGEN_OK;
    p.requests = (char *)requests;
    p.step = requests->size;
    KGEN_TRY(check_sizes(&p, err));
    kgen_status status = run(&p, err);
    free(p.index);
    free(p.jobs);
    free(p.matches);
    free(p.results);
    return status;
}

kgen_status kgen_prepare(kgen_context *ctx, const kgen_spec *specs, size_t count,
                         kgen_kernel **kernels, kgen_error *err) {
    kgen_request *requests = calloc(count ? count : 1, sizeof *requests);
    if (!requests) return kgen_fail(err, KGEN_E_NOMEM, "%zu requests: out of memory", count);
    for (size_t i = 0; i < count; i++) {
        requests[i].size = sizeof requests[i];
        requests[i].spec = specs[i];
    }
    kgen_status status = kgen_prepare_for(ctx, requests, count, NULL, err);
    for (size_t i = 0; i < count; i++) kernels[i] = requests[i].kernel;
    free(requests);
    return status;
}

kgen_kernel *kgen_find(const kgen_context *ctx, const kgen_spec *spec,
                       const kgen_problem *problem) {
    kgen_kernel *kernel = problem ? kgen__finder_get(ctx->finder, spec, problem) : NULL;
    return kernel ? kernel : kgen__finder_get(ctx->finder, spec, &unknown);
}

void kgen_kernel_release(kgen_kernel *kernel) {
    if (!kernel) return;
    kgen_context *ctx = kernel->ctx;
    pthread_mutex_lock(&ctx->lock);
    drop(kernel);
    pthread_mutex_unlock(&ctx->lock);
}

const kgen_spec *kgen_kernel_spec(const kgen_kernel *kernel) { return &kernel->spec; }
const kgen_resources *kgen_kernel_resources(const kgen_kernel *kernel) {
    return &kernel->resources;
}
const kgen_tuning_match *kgen_kernel_match(const kgen_kernel *kernel) { return &kernel->match; }

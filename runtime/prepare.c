/* Prepare: specs -> loaded kernels. Everything slow happens here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

/* --- which entry -------------------------------------------------------- */

typedef struct find_state {
    const kgen_source *source;
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES]; /* of its text */
    kgen_key key;
    int found;
} find_state;

static int same_source(const kgen_entry *entry, size_t file_bytes, void *user) {
    find_state *find = user;
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES];
    (void)file_bytes;
    if (strcmp(entry->target, find->source->target->name) != 0 || !entry->source ||
        strcmp(entry->symbol, find->source->symbol) != 0)
        return 0;
    kgen_source_digest(digest, entry->source, entry->source_size);
    if (memcmp(digest, find->digest, sizeof digest) != 0) return 0;
    find->key = entry->key;
    find->found = 1;
    return 1;
}

/* Offline: no toolchain may be looked for, so the entry is found by its source. */
static kgen_status find_offline(kgen_context *ctx, const kgen_job *job, kgen_entry **out,
                                int *found, kgen_error *err) {
    kgen_source source;
    find_state find = {.source = &source};
    *found = 0;
    KGEN_TRY(kgen_source_render(&source, &job->spec, job->target, err));
    kgen_source_digest(find.digest, source.text, source.size);
    kgen_status status = kgen_cache_each(ctx->cache, "", same_source, &find, err);
    kgen_source_free(&source);
    if (status != KGEN_OK || !find.found) return status;
    return kgen_cache_get(ctx->cache, out, found, &find.key, err);
}

static kgen_status find_cached(kgen_context *ctx, const kgen_job *job, kgen_entry **out, int *found,
                               kgen_error *err) {
    kgen_key key;
    if (ctx->mode == KGEN_MODE_OFFLINE) return find_offline(ctx, job, out, found, err);
    KGEN_TRY(kgen_job_key(&key, job, err));
    return kgen_cache_get(ctx->cache, out, found, &key, err);
}

/* --- the message of a miss ---------------------------------------------- */

static kgen_status fail_miss(const kgen_context *ctx, const kgen_spec *spec, kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX], near[KGEN_SPEC_LINE_MAX] = "none";
    const kgen_kernel *best = ctx->kernels;
    for (const kgen_kernel *k = ctx->kernels; k; k = k->next)
        if (kgen_spec_difference(spec, &k->spec) < kgen_spec_difference(spec, &best->spec))
            best = k;
    if (best) kgen_spec_print(near, &best->spec);
    kgen_spec_print(line, spec);
    return kgen_fail(err, KGEN_E_NOT_CACHED,
                     "no code object of %s for %s; nearest prepared: %s; build it with: "
                     "kgen build '%s' --arch %s",
                     line, ctx->target->name, near, line, ctx->target->name);
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
    return (uint32_t)(per_unit * ctx->api->compute_units(ctx->device));
}

static kgen_status load_entry(kgen_context *ctx, const kgen_spec *resolved,
                              const kgen_tuning_match *match, const kgen_entry *entry,
                              int32_t block, kgen_error *err) {
    kgen_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel) return kgen_fail(err, KGEN_E_NOMEM, "kernel: out of memory");
    kgen_status status =
        ctx->api->load(ctx->device, entry, &kernel->module, &kernel->function, err);
    if (status != KGEN_OK) {
        free(kernel);
        return status;
    }
    kernel->ctx = ctx;
    kernel->spec = *resolved;
    kgen__launch_bind(kernel);
    kernel->match = *match;
    kernel->resources = entry->resources;
    kernel->key = entry->key;
    memcpy(kernel->toolchain, entry->record.toolchain, sizeof kernel->toolchain);
    kernel->config.block = (uint32_t)block;
    kernel->config.grid = resident_workgroups(ctx, kernel);
    kernel->next = ctx->kernels;
    ctx->kernels = kernel;
    return KGEN_OK;
}

static kgen_kernel *find_kernel(const kgen_context *ctx, const kgen_spec *resolved) {
    for (kgen_kernel *k = ctx->kernels; k; k = k->next)
        if (kgen_spec_equal(resolved, &k->spec)) return k;
    return NULL;
}

static void say_built(const kgen_job_result *result, const kgen_job *job, size_t done, size_t total,
                      void *user) {
    char line[KGEN_SPEC_LINE_MAX];
    (void)done, (void)total;
    if (result->outcome != KGEN_JOB_BUILT) return;
    kgen_spec_print(line, &job->spec);
    kgen__log(user, KGEN_LOG_WARNING, "compiled %s for %s", line, job->target->name);
}

static kgen_status build(kgen_context *ctx, const kgen_job *jobs, size_t count,
                         kgen_job_result *results, kgen_error *err) {
    kgen_build_options options = {.size = sizeof options,
                                  .progress = ctx->mode == KGEN_MODE_WARN ? say_built : NULL,
                                  .user = ctx};
    return kgen_build(ctx->cache, jobs, count, &options, results, err);
}

static kgen_status obtain(kgen_context *ctx, const kgen_job *job, kgen_entry **entry,
                          kgen_error *err) {
    int found = 0;
    KGEN_TRY(find_cached(ctx, job, entry, &found, err));
    if (found) return KGEN_OK;
    if (ctx->mode == KGEN_MODE_STRICT || ctx->mode == KGEN_MODE_OFFLINE)
        return fail_miss(ctx, &job->spec, err);
    kgen_job_result result = {0};
    kgen_status status = build(ctx, job, 1, &result, err);
    *entry = result.entry;
    return status;
}

static kgen_status prepare_one(kgen_context *ctx, const kgen_job *job,
                               const kgen_tuning_match *match, kgen_error *err) {
    kgen_entry *entry = NULL;
    int32_t block = kgen_spec_lanes(&job->spec, job->target);
    KGEN_TRY(obtain(ctx, job, &entry, err));
    kgen_status status = load_entry(ctx, &job->spec, match, entry, block, err);
    kgen_entry_free(entry);
    return status;
}

/* --- public ------------------------------------------------------------- */

/* Compiles all that is missing at once, in parallel. */
static kgen_status build_missing(kgen_context *ctx, const kgen_job *jobs, size_t count,
                                 kgen_error *err) {
    if (count < 2 || (ctx->mode != KGEN_MODE_AUTO && ctx->mode != KGEN_MODE_WARN)) return KGEN_OK;
    kgen_job_result *results = calloc(count, sizeof *results);
    if (!results) return kgen_fail(err, KGEN_E_NOMEM, "%zu jobs: out of memory", count);
    kgen_status status = build(ctx, jobs, count, results, err);
    for (size_t i = 0; i < count; i++) kgen_entry_free(results[i].entry);
    free(results);
    return status;
}

/* What is asked for, resolved. Lists of `count`. */
typedef struct wanted {
    kgen_job *jobs;
    kgen_tuning_match *matches;
    size_t count;
} wanted;

static kgen_status prepare_jobs(kgen_context *ctx, const wanted *w, kgen_kernel **kernels,
                                kgen_error *err) {
    KGEN_TRY(build_missing(ctx, w->jobs, w->count, err));
    for (size_t i = 0; i < w->count; i++) {
        kernels[i] = find_kernel(ctx, &w->jobs[i].spec);
        if (kernels[i]) continue;
        KGEN_TRY(prepare_one(ctx, &w->jobs[i], &w->matches[i], err));
        kernels[i] = ctx->kernels;
    }
    return KGEN_OK;
}

static int is_known(const kgen_problem *problem) { return problem->batch || problem->context; }

static kgen_status open_tuning(kgen_context *ctx, const kgen_request *requests, size_t count,
                               kgen_error *err) {
    for (size_t i = 0; i < count && !ctx->tuning; i++)
        if (is_known(&requests[i].problem))
            KGEN_TRY(kgen_tuning_open(&ctx->tuning, ctx->tuning_file, err));
    return KGEN_OK;
}

static kgen_status resolve(kgen_context *ctx, wanted *w, const kgen_request *requests,
                           kgen_error *err) {
    w->jobs = calloc(w->count, sizeof *w->jobs);
    w->matches = calloc(w->count, sizeof *w->matches);
    if (!w->jobs || !w->matches)
        return kgen_fail(err, KGEN_E_NOMEM, "%zu jobs: out of memory", w->count);
    KGEN_TRY(open_tuning(ctx, requests, w->count, err));
    for (size_t i = 0; i < w->count; i++) {
        w->jobs[i].target = ctx->target;
        KGEN_TRY(kgen_tuning_resolve(&w->jobs[i].spec, &w->matches[i], ctx->tuning,
                                     &requests[i].spec, &requests[i].problem, ctx->target,
                                     ctx->device_name, err));
    }
    return KGEN_OK;
}

kgen_status kgen_prepare_for(kgen_context *ctx, const kgen_request *requests, size_t count,
                             kgen_kernel **kernels, kgen_error *err) {
    wanted w = {.count = count};
    if (ctx->api->capturing(ctx->device, NULL))
        return kgen_fail(err, KGEN_E_CAPTURE,
                         "kgen_prepare: a stream captures; prepare every kernel before");
    if (!count) return KGEN_OK;
    if (requests->size != sizeof *requests)
        return kgen_fail(err, KGEN_E_ARG, "kgen_request.size=%zu: sizeof(kgen_request) expected",
                         requests->size);
    kgen_status status = resolve(ctx, &w, requests, err);
    if (status == KGEN_OK) status = prepare_jobs(ctx, &w, kernels, err);
    free(w.jobs);
    free(w.matches);
    return status;
}

kgen_status kgen_prepare(kgen_context *ctx, const kgen_spec *specs, size_t count,
                         kgen_kernel **kernels, kgen_error *err) {
    kgen_request *requests = calloc(count ? count : 1, sizeof *requests);
    if (!requests) return kgen_fail(err, KGEN_E_NOMEM, "%zu jobs: out of memory", count);
    for (size_t i = 0; i < count; i++)
        requests[i] = (kgen_request){.size = sizeof requests[i], .spec = specs[i]};
    kgen_status status = kgen_prepare_for(ctx, requests, count, kernels, err);
    free(requests);
    return status;
}

const kgen_spec *kgen_kernel_spec(const kgen_kernel *kernel) { return &kernel->spec; }
const kgen_resources *kgen_kernel_resources(const kgen_kernel *kernel) {
    return &kernel->resources;
}
const kgen_tuning_match *kgen_kernel_match(const kgen_kernel *kernel) { return &kernel->match; }

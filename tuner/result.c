/* What a search has found, as a row and as JSON; reasons, dates, clocks. */
#include <string.h>
#include <time.h>

#include "run.h"

static const char *const drop_names[] = {
    [KGEN__DROP_GATE] = "gate",   [KGEN__DROP_COMPILE] = "compile",
    [KGEN__DROP_SLOW] = "slow",   [KGEN__DROP_MISMATCH] = "mismatch",
    [KGEN__DROP_HUNG] = "hung",   [KGEN__DROP_CRASHED] = "crashed",
    [KGEN__DROP_ERROR] = "error",
};

const char *kgen__drop_name(kgen__drop reason) { return drop_names[reason]; }

kgen__drop kgen__drop_find(const char *name) {
    for (int i = 0; i < KGEN__DROP_COUNT; i++)
        if (strcmp(drop_names[i], name) == 0) return (kgen__drop)i;
    return KGEN__DROP_ERROR;
}

double kgen__tuner_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void kgen__date_now(char out[24]) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

int kgen__result_counts(const kgen__search_result *found) {
    return found->best >= 0 && found->default_us.samples >= KGEN__SAMPLES_LEAST;
}

kgen_status kgen__result_row(char out[KGEN_TUNING_LINE_MAX], const kgen__tuner_job *job,
                             const kgen__space *space, const kgen__search_result *found,
                             uint64_t seed, const kgen_target *target,
                             const kgen_environment *environment, kgen_error *err) {
    const kgen__candidate *best = &space->list[found->best];
    kgen_tuning_row row = {.spec = best->spec,
                           .target = target,
                           .problem = job->problem,
                           .us = found->us.us,
                           .low = found->us.low,
                           .high = found->us.high,
                           .default_us = found->default_us.us,
                           .samples = found->us.samples,
                           .seed = seed,
                           .environment = *environment};
    memcpy(row.kernel, best->kernel, sizeof row.kernel);
    memcpy(row.default_kernel, space->list[0].kernel, sizeof row.default_kernel);
    kgen__date_now(row.environment.date);
    return kgen_tuning_row_print(out, &row, err);
}

/* ---- JSON -------------------------------------------------------------------- */

static json_t *result_of(const char *id, const kgen__tuner_job *job) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &job->spec);
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i}", "event", "result", "job", id, "spec", line,
                     "batch", job->problem.batch, "context", job->problem.context, "heads",
                     job->problem.heads);
}

json_t *kgen__result_failed(const char *id, const kgen__tuner_job *job, const char *text) {
    json_t *result = result_of(id, job);
    json_object_set_new(result, "outcome", json_string("failed"));
    json_object_set_new(result, "text", json_string(text));
    return result;
}

static json_t *dropped_json(const int dropped[KGEN__DROP_COUNT]) {
    json_t *counts = json_object();
    for (int i = 0; i < KGEN__DROP_COUNT; i++)
        if (dropped[i]) json_object_set_new(counts, drop_names[i], json_integer(dropped[i]));
    return counts;
}

static void add_times(json_t *result, const kgen__space *space, const kgen__search_result *found) {
    char line[KGEN_SPEC_LINE_MAX], keys[160];
    kgen_spec_print(line, &space->list[found->best].spec);
    kgen__space_keys(keys, sizeof keys, &space->list[found->best]);
    json_t *times = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:i}", "choice", line, "keys",
                              keys, "kernel", space->list[found->best].kernel, "us", found->us.us,
                              "low", found->us.low, "high", found->us.high, "default_us",
                              found->default_us.us, "samples", found->us.samples);
    json_object_update(result, times);
    json_decref(times);
}

json_t *kgen__result_json(const char *id, const kgen__tuner_job *job, const kgen__space *space,
                          const kgen__search_result *found, const int dropped[KGEN__DROP_COUNT],
                          const char *row) {
    json_t *result = result_of(id, job);
    const char *outcome = !row ? "unfinished" : found->best ? "tuned" : "default";
    json_t *more = json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:o}", "outcome", outcome, "default",
                             space->list[0].kernel, "finished", found->finished, "candidates",
                             space->count, "tried", found->tried, "all_samples", found->samples,
                             "dropped", dropped_json(dropped));
    json_object_update(result, more);
    json_decref(more);
    if (kgen__result_counts(found)) add_times(result, space, found);
    if (row) json_object_set_new(result, "row", json_string(row));
    return result;
}

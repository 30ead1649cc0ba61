/* Tuning without a device: candidates are compiled and ranked by predict/. And
 * the list of candidates, which needs neither. */
#include <stdlib.h>
#include <string.h>

#include "predict/predict.h"
#include "run.h"

typedef struct ranking {
    const kgen__tuner_settings *set;
    const kgen_target *target;
    kgen_cache *cache;
    const kgen__tuner_job *job;
    kgen__space space;
    double *us; /* by candidate */
    double deadline;
    int dropped[KGEN__DROP_COUNT];
} ranking;

static kgen_status accept(ranking *m, int candidate, int *usable, const kgen_job_result *result,
                          kgen_error *err) {
    kgen__prediction p;
    *usable = 0;
    if (result->outcome == KGEN_JOB_FAILED) {
        m->dropped[kgen__drop_of_build(result)]++;
        return KGEN_OK;
    }
    KGEN_TRY(kgen__predict(&p, result->entry, &m->space.list[candidate].spec, m->target,
                           &m->job->problem, err));
    m->us[candidate] = p.us;
    *usable = 1;
    return KGEN_OK;
}

static kgen_status prepare(void *user, int *usable, const int *candidates, int count,
                           kgen_error *err) {
    ranking *m = user;
    const kgen_build_options options = {.size = sizeof options, .workers = m->set->workers};
    kgen_job_result *results = calloc((size_t)count, sizeof *results);
    if (!results) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %d candidates", count);
    kgen_status status = kgen__candidates_build(results, m->cache, &m->space, candidates, count,
                                                m->target, &options, err);
    for (int i = 0; i < count && status == KGEN_OK; i++)
        status = accept(m, candidates[i], &usable[i], &results[i], err);
    kgen__candidates_free(results, count);
    free(results);
    return status;
}

static kgen_status sample(void *user, double *us, int candidate, kgen_error *err) {
    const ranking *m = user;
    (void)err;
    *us = m->us[candidate];
    return KGEN_OK;
}

static double left(void *user) { return ((ranking *)user)->deadline - kgen__tuner_clock(); }

static kgen_status environment_of(kgen_environment *out, const kgen_target *target,
                                  kgen_error *err) {
    kgen_toolchain toolchain;
    KGEN_TRY(kgen_toolchain_find(&toolchain, target, err));
    memset(out, 0, sizeof *out);
    snprintf(out->device, sizeof out->device, "prediction");
    snprintf(out->driver, sizeof out->driver, "none");
    snprintf(out->toolchain, sizeof out->toolchain, "%s", toolchain.id);
    out->compute_units = target->typical_cus;
    return KGEN_OK;
}

static kgen_status conclude(json_t **result, ranking *m, kgen__search_result *found,
                            kgen_error *err) {
    char row[KGEN_TUNING_LINE_MAX], id[17];
    kgen_environment environment;
    kgen_merge_counts counts;
    int known = kgen__result_counts(found);
    kgen__journal_id(id, &m->job->spec, &m->job->problem, m->target);
    found->us.samples = 0; /* nothing was timed */
    if (known) {
        KGEN_TRY(environment_of(&environment, m->target, err));
        KGEN_TRY(kgen__result_row(row, m->job, &m->space, found, m->set->search.seed, m->target,
                                  &environment, err));
        if (m->set->out)
            KGEN_TRY(kgen_tuning_rows_merge(&counts, m->set->out, row, strlen(row), err));
    }
    *result = found->default_out
                  ? kgen__result_failed(id, m->job, "the family's own choice does not compile")
                  : kgen__result_json(id, m->job, &m->space, found, m->dropped, known ? row : NULL);
    return KGEN_OK;
}

static kgen_status predict_job(json_t **result, ranking *m, kgen_error *err) {
    kgen__search_result found;
    kgen__evaluator evaluator = {m, prepare, sample, m->deadline < 0 ? NULL : left};
    KGEN_TRY(kgen__space_make(&m->space, &m->job->spec, &m->job->problem, m->target, err));
    m->us = calloc((size_t)m->space.count, sizeof *m->us);
    kgen_status status =
        m->us ? KGEN_OK
              : kgen_fail(err, KGEN_E_NOMEM, "no memory for %d candidates", m->space.count);
    if (status == KGEN_OK)
        status = kgen__search_run(&found, &m->space, &evaluator, &m->set->search, err);
    if (status == KGEN_OK) status = conclude(result, m, &found, err);
    free(m->us);
    kgen__space_free(&m->space);
    return status;
}

static void show(const kgen__tuner_settings *set, size_t done, double start) {
    if (!set->progress) return;
    char line[KGEN_SPEC_LINE_MAX] = "";
    kgen__tuner_progress p = {.jobs = set->count,
                              .done = done,
                              .stage = "compile",
                              .seconds = kgen__tuner_clock() - start,
                              .left = -1};
    if (done < set->count) {
        kgen_spec_print(line, &set->jobs[done].spec);
        p.spec = line;
        p.problem = set->jobs[done].problem;
    }
    if (set->budget >= 0) p.left = set->budget - p.seconds;
    set->progress(&p, set->user);
}

/* A job that no prediction covers is named; no compiler ends the run. */
static kgen_status predict_all(json_t *results, const kgen__tuner_settings *set,
                               const kgen_target *target, kgen_cache *cache, kgen_error *err) {
    double start = kgen__tuner_clock();
    for (size_t i = 0; i < set->count; i++) {
        double now = kgen__tuner_clock();
        ranking m = {.set = set, .target = target, .cache = cache, .job = &set->jobs[i]};
        json_t *result = NULL;
        kgen_error why;
        m.deadline =
            set->budget < 0 ? -1 : now + (start + set->budget - now) / (double)(set->count - i);
        show(set, i, start);
        kgen_status status = predict_job(&result, &m, &why);
        if (status == KGEN_E_TOOLCHAIN || status == KGEN_E_IO || status == KGEN_E_NOMEM)
            return kgen_fail(err, status, "%s", why.text);
        char id[17];
        kgen__journal_id(id, &m.job->spec, &m.job->problem, target);
        if (status != KGEN_OK) result = kgen__result_failed(id, m.job, why.text);
        json_array_append_new(results, result);
    }
    show(set, set->count, start);
    return KGEN_OK;
}

kgen_status kgen__tuner_predict(json_t **report, const kgen__tuner_settings *settings,
                                const kgen_target *target, kgen_error *err) {
    kgen_cache *cache;
    KGEN_TRY(kgen_cache_open(&cache, settings->cache_dir, err));
    double start = kgen__tuner_clock();
    json_t *results = json_array();
    kgen_status status = predict_all(results, settings, target, cache, err);
    kgen_cache_close(cache);
    if (status == KGEN_OK)
        *report =
            json_pack("{s:s, s:s, s:I, s:s?, s:f, s:O}", "device", "prediction", "arch",
                      target->name, "seed", (json_int_t)settings->search.seed, "out", settings->out,
                      "seconds", kgen__tuner_clock() - start, "results", results);
    json_decref(results);
    return status;
}

/* ---- the list ------------------------------------------------------------------- */

static json_t *space_json(const kgen__tuner_job *job, const kgen__space *space) {
    char line[KGEN_SPEC_LINE_MAX];
    json_t *pruned = json_object(), *list = json_array();
    for (int i = 0; i < KGEN__PRUNE_COUNT; i++)
        if (space->pruned[i])
            json_object_set_new(pruned, kgen__prune_name((kgen__prune)i),
                                json_integer(space->pruned[i]));
    for (int i = 0; i < space->count; i++) {
        kgen_spec_print(line, &space->list[i].spec);
        json_array_append_new(list, json_string(line));
    }
    kgen_spec_print(line, &job->spec);
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:o, s:o}", "spec", line, "batch",
                     job->problem.batch, "context", job->problem.context, "heads",
                     job->problem.heads, "considered", space->considered, "pruned", pruned,
                     "candidates", list);
}

kgen_status kgen__tuner_list(json_t **report, const kgen__tuner_settings *settings,
                             const kgen_target *target, kgen_error *err) {
    json_t *jobs = json_array();
    for (size_t i = 0; i < settings->count; i++) {
        kgen__space space;
        const kgen__tuner_job *job = &settings->jobs[i];
        kgen_status status = kgen__space_make(&space, &job->spec, &job->problem, target, err);
        if (status != KGEN_OK) {
            json_decref(jobs);
            return status;
        }
        json_array_append_new(jobs, space_json(job, &space));
        kgen__space_free(&space);
    }
    *report = json_pack("{s:s, s:o}", "arch", target->name, "jobs", jobs);
    return KGEN_OK;
}

/* The worker: compiles, verifies and times candidates, and says what it does.
 * Everything that may hang or crash happens here. */
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "predict/predict.h"
#include "run.h"
#include "watch.h"

enum { CHECK_HEADS = 2 };
static const double FAR_SLOWER = 2; /* than the best prediction: not tried */

typedef struct work {
    kgen__run *run;
    kgen_context *ctx;
    int fd;
    double deadline; /* of this job */
    const kgen__tuner_job *job;
    char id[17];
    const kgen__journal_job *known;
    kgen__space space;
    const kgen__tuner_workloads *workloads;
    void *workload;
    void **timers; /* by candidate */
    int *replayed; /* samples taken from the journal */
    double least_predicted;
    int dropped[KGEN__DROP_COUNT];
} work;

/* ---- what is said ------------------------------------------------------------ */

static kgen_status say_text(const work *w, const char *text, kgen_error *err) {
    if (!text) return kgen_fail(err, KGEN_E_NOMEM, "worker: no memory");
    return kgen__watch_say(w->fd, text) ? KGEN_OK
                                        : kgen_fail(err, KGEN_E_IO, "worker: nobody listens");
}

/* *text: free() it; NULL: no memory. Releases the line. */
static char *text_of(json_t *line) {
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    return text;
}

static kgen_status say(const work *w, json_t *line, kgen_error *err) {
    char *text = text_of(line);
    kgen_status status = say_text(w, text, err);
    free(text);
    return status;
}

/* What holds for a kernel whatever the problem: this worker's own copy of the
 * journal hears of it too, so that no later job asks again. */
static kgen_status say_for_good(const work *w, json_t *line, kgen_error *err) {
    char *text = text_of(line);
    kgen_status status = text ? kgen__journal_add(w->run->journal, text, err) : KGEN_OK;
    if (status == KGEN_OK) status = say_text(w, text, err);
    free(text);
    return status;
}

static kgen_status say_stage(const work *w, const char *stage, kgen_error *err) {
    return say(w, json_pack("{s:s, s:s}", "event", "stage", "stage", stage), err);
}

static kgen_status say_kernel(const work *w, const char *event, int candidate, kgen_error *err) {
    return say(
        w, json_pack("{s:s, s:s}", "event", event, "kernel", w->space.list[candidate].kernel), err);
}

static kgen_status drop(work *w, int candidate, kgen__drop reason, const char *text,
                        kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &w->space.list[candidate].spec);
    w->dropped[reason]++;
    return say_for_good(w,
                        json_pack("{s:s, s:s, s:s, s:s, s:s}", "event", "dropped", "kernel",
                                  w->space.list[candidate].kernel, "reason",
                                  kgen__drop_name(reason), "spec", line, "text", text),
                        err);
}

/* ---- ready to be timed --------------------------------------------------------- */

/* After a driver failed, all that follows in this process would. */
static int ends_worker(kgen_status status) {
    return status == KGEN_E_DEVICE || status == KGEN_E_IO;
}

static kgen_status verify(work *w, int candidate, int *usable, kgen_error *err) {
    const kgen__candidate *c = &w->space.list[candidate];
    const kgen__journal_kernel *known = kgen__journal_kernel_of(w->run->journal, c->kernel);
    kgen__check_result result;
    kgen_error why;
    if (known && known->verified) return KGEN_OK;
    kgen__case *test = malloc(sizeof *test);
    if (!test) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a case");
    double start = kgen__tuner_clock();
    kgen_status status = say_kernel(w, "begin", candidate, err);
    if (status != KGEN_OK) {
        free(test);
        return status;
    }
    status = kgen__case_default(test, &c->spec, CHECK_HEADS, &why);
    if (status == KGEN_OK) status = kgen__check_run(&result, w->ctx, test, NULL, &why);
    free(test);
    if (status == KGEN_OK)
        return say_for_good(w,
                            json_pack("{s:s, s:s, s:f}", "event", "verified", "kernel", c->kernel,
                                      "seconds", kgen__tuner_clock() - start),
                            err);
    *usable = 0;
    if (ends_worker(status)) return kgen_fail(err, status, "%s", why.text);
    kgen__drop reason = status == KGEN_E_MISMATCH ? KGEN__DROP_MISMATCH : KGEN__DROP_ERROR;
    return drop(w, candidate, reason, why.text, err);
}

/* predict/ knows AMD's kernels; of others it says so. */
static int is_far_slower(work *w, int candidate, const kgen_entry *entry) {
    kgen__prediction p;
    const kgen_target *target = w->run->device->target;
    if (w->run->set->keep_slow || target->vendor != KGEN_VENDOR_AMD) return 0;
    if (kgen__predict(&p, entry, &w->space.list[candidate].spec, target, &w->job->problem, NULL) !=
        KGEN_OK)
        return 0;
    if (w->least_predicted <= 0 || p.us < w->least_predicted) w->least_predicted = p.us;
    return candidate != 0 && p.us > FAR_SLOWER * w->least_predicted;
}

/* What the build says of one candidate. */
static kgen_status accept_build(work *w, int candidate, int *usable, const kgen_job_result *result,
                                kgen_error *err) {
    *usable = 0;
    if (result->outcome == KGEN_JOB_FAILED)
        return drop(w, candidate, kgen__drop_of_build(result), result->error.text, err);
    if (is_far_slower(w, candidate, result->entry)) {
        w->dropped[KGEN__DROP_SLOW]++;
        return KGEN_OK;
    }
    *usable = 1;
    char line[KGEN_SPEC_LINE_MAX];
    const kgen__candidate *c = &w->space.list[candidate];
    if (kgen__journal_times_of(w->known, c->kernel)) return KGEN_OK;
    double seconds = result->entry->record.compile_ms * 1e-3;
    kgen_spec_print(line, &c->spec);
    return say(w,
               json_pack("{s:s, s:s, s:s, s:s, s:f}", "event", "candidate", "job", w->id, "kernel",
                         c->kernel, "spec", line, "compile_s", seconds),
               err);
}

/* What is known to be out already needs no compiler. */
static int still_in(work *w, int *list, int *usable, const int *candidates, int count) {
    int left = 0;
    for (int i = 0; i < count; i++) {
        const kgen__journal_kernel *known =
            kgen__journal_kernel_of(w->run->journal, w->space.list[candidates[i]].kernel);
        usable[i] = !(known && known->dropped[0]);
        if (usable[i])
            list[left++] = i;
        else
            w->dropped[kgen__drop_find(known->dropped)]++;
    }
    return left;
}

static void compiled_one(const kgen_job_result *result, const kgen_job *job, size_t done,
                         size_t total, void *user) {
    (void)result, (void)job, (void)done, (void)total;
    say_stage(user, "compile", NULL);
}

static kgen_status compile_list(work *w, kgen_job_result *results, const int *candidates, int count,
                                kgen_error *err) {
    const kgen_build_options options = {.size = sizeof options,
                                        .workers = w->run->set->workers,
                                        .progress = compiled_one,
                                        .user = w};
    KGEN_TRY(say_stage(w, "compile", err));
    return kgen__candidates_build(results, kgen_context_cache(w->ctx), &w->space, candidates, count,
                                  w->run->device->target, &options, err);
}

static kgen_status prepare(void *user, int *usable, const int *candidates, int count,
                           kgen_error *err) {
    work *w = user;
    kgen_job_result *results = calloc((size_t)count, sizeof *results);
    int *list = calloc(2 * (size_t)count, sizeof *list), *chosen = list + count;
    kgen_status status = KGEN_OK;
    if (!results || !list) {
        status = kgen_fail(err, KGEN_E_NOMEM, "no memory for %d candidates", count);
        goto out;
    }
    int left = still_in(w, list, usable, candidates, count);
    for (int i = 0; i < left; i++) chosen[i] = candidates[list[i]];
    if (left) status = compile_list(w, results, chosen, left, err);
    for (int i = 0; i < left && status == KGEN_OK; i++)
        status = accept_build(w, chosen[i], &usable[list[i]], &results[i], err);
    kgen__candidates_free(results, left);
    for (int i = 0; i < left && status == KGEN_OK; i++)
        if (usable[list[i]]) status = verify(w, chosen[i], &usable[list[i]], err);
out:
    free(results);
    free(list);
    return status;
}

/* ---- samples ------------------------------------------------------------------- */

static kgen_status timed(work *w, double *us, int candidate, kgen_error *err) {
    const kgen_spec *spec = &w->space.list[candidate].spec;
    if (!w->timers[candidate]) {
        kgen_kernel *kernel;
        KGEN_TRY(kgen_prepare(w->ctx, spec, 1, &kernel, err));
        KGEN_TRY(w->workloads->timer_make(&w->timers[candidate], w->workload, kernel, err));
    }
    return w->workloads->timer_sample(us, w->timers[candidate], err);
}

static kgen_status sample(void *user, double *us, int candidate, kgen_error *err) {
    work *w = user;
    const char *kernel = w->space.list[candidate].kernel;
    const kgen__journal_times *t = kgen__journal_times_of(w->known, kernel);
    kgen_error why;
    if (t && w->replayed[candidate] < t->count) {
        *us = t->us[w->replayed[candidate]++];
        return KGEN_OK;
    }
    double start = kgen__tuner_clock();
    KGEN_TRY(say_kernel(w, "visit", candidate, err));
    kgen_status status = timed(w, us, candidate, &why);
    if (ends_worker(status)) return kgen_fail(err, status, "%s", why.text);
    if (status == KGEN_OK)
        return say(w,
                   json_pack("{s:s, s:s, s:s, s:f, s:f}", "event", "times", "job", w->id, "kernel",
                             kernel, "us", *us, "seconds", kgen__tuner_clock() - start),
                   err);
    *us = -1;
    return drop(w, candidate, KGEN__DROP_ERROR, why.text, err);
}

static double left(void *user) {
    const work *w = user;
    return w->deadline - kgen__tuner_clock();
}

/* ---- a job --------------------------------------------------------------------- */

static kgen_status say_job(work *w, size_t index, kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX];
    const kgen_problem *p = &w->job->problem;
    kgen_spec_print(line, &w->job->spec);
    return say(w,
               json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:i}", "event", "job",
                         "job", w->id, "index", (int)index, "spec", line, "target",
                         w->run->device->target->name, "default", w->space.list[0].kernel,
                         "candidates", w->space.count, "batch", p->batch, "context", p->context,
                         "heads", p->heads),
               err);
}

/* A result that the journal has, of the kernels that there are today. */
static const json_t *known_result(const work *w) {
    const json_t *result = w->known ? w->known->result : NULL;
    const char *family = json_string_value(json_object_get(result, "default"));
    const char *kernel = json_string_value(json_object_get(result, "kernel"));
    if (!json_is_true(json_object_get(result, "finished")) || !kernel || !family) return NULL;
    if (!json_object_get(result, "row") || strcmp(family, w->space.list[0].kernel) != 0)
        return NULL;
    for (int i = 0; i < w->space.count; i++)
        if (strcmp(w->space.list[i].kernel, kernel) == 0) return result;
    return NULL;
}

static kgen_status say_result(work *w, const kgen__search_result *found, kgen_error *err) {
    char row[KGEN_TUNING_LINE_MAX];
    int counts = kgen__result_counts(found);
    if (found->default_out)
        return say(w, kgen__result_failed(w->id, w->job, "the family's own choice was dropped"),
                   err);
    if (counts)
        KGEN_TRY(kgen__result_row(row, w->job, &w->space, found, w->run->set->search.seed,
                                  w->run->device->target, &w->run->device->environment, err));
    return say(w,
               kgen__result_json(w->id, w->job, &w->space, found, w->dropped, counts ? row : NULL),
               err);
}

static kgen_status search(work *w, kgen_error *err) {
    const kgen__run *run = w->run;
    kgen__evaluator evaluator = {w, prepare, sample, w->deadline < 0 ? NULL : left};
    kgen__search_result found;
    if (w->deadline < 0 || left(w) > 0) {
        KGEN_TRY(say_stage(w, "workload", err));
        KGEN_TRY(w->workloads->make(&w->workload, w->ctx, w->job, err));
    }
    KGEN_TRY(kgen__search_run(&found, &w->space, &evaluator, &run->set->search, err));
    return say_result(w, &found, err);
}

static kgen_status make_room(work *w, kgen_error *err) {
    w->timers = calloc((size_t)w->space.count, sizeof *w->timers);
    w->replayed = calloc((size_t)w->space.count, sizeof *w->replayed);
    return w->timers && w->replayed
               ? KGEN_OK
               : kgen_fail(err, KGEN_E_NOMEM, "no memory for %d candidates", w->space.count);
}

static void finish_job(work *w) {
    for (int i = 0; w->timers && i < w->space.count; i++)
        if (w->timers[i]) w->workloads->timer_free(w->timers[i]);
    free(w->timers);
    free(w->replayed);
    if (w->workload) w->workloads->free(w->workload);
    kgen__space_free(&w->space);
}

static kgen_status run_job(work *w, size_t index, kgen_error *err) {
    const kgen_target *target = w->run->device->target;
    KGEN_TRY(kgen__space_make(&w->space, &w->job->spec, &w->job->problem, target, err));
    w->known = kgen__journal_job_of(w->run->journal, w->id);
    KGEN_TRY(say_job(w, index, err));
    const json_t *known = known_result(w);
    if (known) {
        json_t *again = json_deep_copy(known);
        json_object_set_new(again, "again", json_true());
        return say(w, again, err);
    }
    KGEN_TRY(make_room(w, err));
    return search(w, err);
}

/* What is left of the time, in equal parts for the jobs that are left. */
static double deadline_of(const kgen__run *run, size_t jobs_left) {
    double now = kgen__tuner_clock();
    if (run->deadline < 0) return -1;
    return now + (run->deadline - now) / (double)jobs_left;
}

static kgen_status run_jobs(kgen__run *run, kgen_context *ctx, int fd, kgen_error *err) {
    const kgen__tuner_settings *set = run->set;
    size_t jobs_left = 0;
    for (size_t i = 0; i < set->count; i++) jobs_left += !run->done[i];
    for (size_t i = 0; i < set->count; i++) {
        size_t index = run->order[i];
        kgen_error why;
        work w = {.run = run,
                  .ctx = ctx,
                  .fd = fd,
                  .job = &set->jobs[index],
                  .workloads = set->workloads ? set->workloads : &kgen__tuner_own_workloads};
        if (run->done[index]) continue;
        w.deadline = deadline_of(run, jobs_left--);
        kgen__journal_id(w.id, &w.job->spec, &w.job->problem, run->device->target);
        kgen_status status = run_job(&w, index, &why);
        int fatal = ends_worker(status) || status == KGEN_E_TOOLCHAIN;
        if (status != KGEN_OK && !fatal)
            status = say(&w, kgen__result_failed(w.id, w.job, why.text), &why);
        finish_job(&w);
        if (status != KGEN_OK) return kgen_fail(err, status, "%s", why.text);
    }
    return KGEN_OK;
}

int kgen__worker(kgen__run *run, int fd) {
    const kgen_open_options options = {
        .size = sizeof options, .device = run->set->device, .cache_dir = run->set->cache_dir};
    kgen_context *ctx = NULL;
    kgen_error err;
    kgen_status status = kgen_open(&ctx, &options, &err);
    if (status == KGEN_OK) status = run_jobs(run, ctx, fd, &err);
    if (status != KGEN_OK) {
        const work w = {.fd = fd};
        say(&w,
            json_pack("{s:s, s:i, s:s}", "event", "broken", "status", (int)status, "text",
                      err.text),
            NULL);
        _Exit(1); /* a driver that failed may not close either */
    }
    kgen_close(ctx);
    return 0;
}

/* The run: who watches the workers, writes the journal, and merges the rows. */
#include "tuner.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/predict.h"
#include "run.h"
#include "watch.h"

static const double PATIENCE_S = 120; /* for what is no candidate: opening, workloads */
static const double NO_LIMIT = -1;    /* compilers have a limit of their own */

typedef struct watcher {
    kgen__run run; /* first: what a worker gets */
    kgen__tuner_progress progress;
    json_t *results;
    char spec[KGEN_SPEC_LINE_MAX];
    char job[17]; /* in work; empty: none */
    size_t index;
    char kernel[65]; /* that would be to blame; empty: none */
    kgen_error broken;
} watcher;

static const char *text_of(const json_t *line, const char *key) {
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

static int int_of(const json_t *line, const char *key) {
    return (int)json_integer_value(json_object_get(line, key));
}

static void tell(const watcher *w, const char *fmt, ...) KGEN_PRINTF(2, 3);
static void tell(const watcher *w, const char *fmt, ...) {
    char text[1600];
    va_list ap;
    if (!w->run.set->say) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    w->run.set->say(text, w->run.set->user);
}

static void show(watcher *w) {
    const kgen__tuner_settings *set = w->run.set;
    double now = kgen__tuner_clock();
    w->progress.seconds = now - w->run.start;
    w->progress.left = w->run.deadline < 0 ? -1 : w->run.deadline - now;
    if (set->progress) set->progress(&w->progress, set->user);
}

/* ---- events ------------------------------------------------------------------- */

static kgen_status on_job(watcher *w, const json_t *line, kgen_error *err) {
    (void)err;
    snprintf(w->job, sizeof w->job, "%s", text_of(line, "job"));
    snprintf(w->spec, sizeof w->spec, "%s", text_of(line, "spec"));
    w->index = (size_t)int_of(line, "index");
    w->kernel[0] = 0;
    w->progress.spec = w->spec;
    w->progress.problem = w->run.set->jobs[w->index].problem;
    w->progress.stage = "space";
    w->progress.candidates = int_of(line, "candidates");
    w->progress.tried = w->progress.dropped = w->progress.samples = 0;
    return KGEN_OK;
}

static kgen_status on_stage(watcher *w, const json_t *line, kgen_error *err) {
    (void)err;
    w->kernel[0] = 0;
    w->progress.stage = strcmp(text_of(line, "stage"), "workload") == 0 ? "workload" : "compile";
    return KGEN_OK;
}

static kgen_status on_begin(watcher *w, const json_t *line, kgen_error *err) {
    (void)err;
    w->progress.stage = "verify";
    snprintf(w->kernel, sizeof w->kernel, "%s", text_of(line, "kernel"));
    return KGEN_OK;
}

static kgen_status on_visit(watcher *w, const json_t *line, kgen_error *err) {
    on_begin(w, line, err);
    w->progress.stage = "time";
    return KGEN_OK;
}

static kgen_status on_answer(watcher *w, const json_t *line, kgen_error *err) {
    (void)err;
    w->kernel[0] = 0;
    w->progress.tried += strcmp(text_of(line, "event"), "verified") == 0;
    w->progress.samples += strcmp(text_of(line, "event"), "times") == 0;
    return KGEN_OK;
}

static kgen_status on_dropped(watcher *w, const json_t *line, kgen_error *err) {
    on_answer(w, line, err);
    w->progress.dropped++;
    if (strcmp(text_of(line, "reason"), kgen__drop_name(KGEN__DROP_MISMATCH)) == 0)
        tell(w, "%s: WRONG RESULTS, dropped: %s", text_of(line, "spec"), text_of(line, "text"));
    else if (strcmp(text_of(line, "reason"), kgen__drop_name(KGEN__DROP_GATE)) != 0)
        tell(w, "%s: dropped: %s", text_of(line, "spec"), text_of(line, "text"));
    return KGEN_OK;
}

static kgen_status on_result(watcher *w, const json_t *line, kgen_error *err) {
    const char *row = text_of(line, "row");
    kgen_merge_counts counts;
    w->run.done[w->index] = 1;
    w->progress.done++;
    w->job[0] = w->kernel[0] = 0;
    json_array_append_new(w->results, json_deep_copy(line));
    if (!*row || !w->run.set->out) return KGEN_OK;
    return kgen_tuning_rows_merge(&counts, w->run.set->out, row, strlen(row), err);
}

static kgen_status on_broken(watcher *w, const json_t *line, kgen_error *err) {
    (void)err;
    kgen_fail(&w->broken, (kgen_status)int_of(line, "status"), "%s", text_of(line, "text"));
    return KGEN_OK;
}

static kgen_status on_candidate(watcher *w, const json_t *line, kgen_error *err) {
    (void)w, (void)line, (void)err;
    return KGEN_OK;
}

/* waits: how long after it the next event may take. */
typedef enum waits { COMPILER, PATIENTLY, A_CANDIDATE } waits;
/* clang-format off */
static const struct {
    const char *event;
    kgen_status (*on)(watcher *w, const json_t *line, kgen_error *err);
    int kept; /* in the journal */
    waits waits;
} events[] = {
    {"job", on_job, 1, PATIENTLY},          {"stage", on_stage, 0, COMPILER},
    {"candidate", on_candidate, 1, PATIENTLY}, {"begin", on_begin, 1, A_CANDIDATE},
    {"verified", on_answer, 1, PATIENTLY},  {"visit", on_visit, 0, A_CANDIDATE},
    {"times", on_answer, 1, PATIENTLY},     {"dropped", on_dropped, 1, PATIENTLY},
    {"result", on_result, 1, PATIENTLY},    {"broken", on_broken, 0, PATIENTLY},
};
/* clang-format on */

static double seconds_after(const watcher *w, size_t row) {
    double timeout = w->run.set->timeout;
    double patience = timeout > PATIENCE_S ? timeout : PATIENCE_S;
    if (events[row].waits == A_CANDIDATE) return timeout;
    if (events[row].waits == COMPILER && strcmp(w->progress.stage, "workload") != 0)
        return NO_LIMIT;
    return patience;
}

static kgen_status heard_event(watcher *w, double *seconds, const char *text, const json_t *line,
                               kgen_error *err) {
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (strcmp(events[i].event, text_of(line, "event")) != 0) continue;
        if (events[i].kept && !json_object_get(line, "again"))
            KGEN_TRY(kgen__journal_add(w->run.journal, text, err));
        KGEN_TRY(events[i].on(w, line, err));
        *seconds = seconds_after(w, i);
        show(w);
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_INTERNAL, "worker: an unknown event: %.80s", text);
}

static kgen_status heard(void *user, double *seconds, char *text, kgen_error *err) {
    json_t *line = json_loads(text, 0, NULL);
    kgen_status status = heard_event(user, seconds, text, line, err);
    json_decref(line);
    return status;
}

/* ---- a worker that ended -------------------------------------------------------- */

static kgen_status add_event(watcher *w, json_t *line, kgen_error *err) {
    double seconds;
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    kgen_status status = text ? heard_event(w, &seconds, text, line, err)
                              : kgen_fail(err, KGEN_E_NOMEM, "no memory for an event");
    free(text);
    json_decref(line);
    return status;
}

static void why_it_ended(char *text, size_t size, const watcher *w, kgen__watch_end end,
                         const char *how) {
    if (end == KGEN__WATCH_HUNG)
        snprintf(text, size, "no answer in %g s while it was %s; its worker was ended",
                 w->kernel[0] ? w->run.set->timeout : PATIENCE_S,
                 strcmp(w->progress.stage, "verify") == 0 ? "verified" : "timed");
    else if (w->broken.text[0])
        snprintf(text, size, "%s", w->broken.text);
    else
        snprintf(text, size, "its worker ended with %s", how);
}

static void spec_of(char out[KGEN_SPEC_LINE_MAX], const watcher *w) {
    const kgen__journal_job *job = kgen__journal_job_of(w->run.journal, w->job);
    const kgen__journal_times *t = kgen__journal_times_of(job, w->kernel);
    snprintf(out, KGEN_SPEC_LINE_MAX, "%s", t ? t->spec : w->spec);
}

/* The next worker leaves out what this one fell over. */
static kgen_status blame(watcher *w, kgen__watch_end end, const char *how, kgen_error *err) {
    char text[1100], spec[KGEN_SPEC_LINE_MAX];
    kgen__drop reason = end == KGEN__WATCH_HUNG ? KGEN__DROP_HUNG : KGEN__DROP_CRASHED;
    int general = w->broken.status == KGEN_E_TOOLCHAIN || w->broken.status == KGEN_E_IO;
    why_it_ended(text, sizeof text, w, end, how);
    if (!w->job[0] || general)
        return kgen_fail(err, w->broken.text[0] ? w->broken.status : KGEN_E_DEVICE,
                         w->broken.text[0] ? "%s" : "device: %s", text);
    if (!w->kernel[0]) {
        tell(w, "%s: given up: %s", w->spec, text);
        return add_event(w, kgen__result_failed(w->job, &w->run.set->jobs[w->index], text), err);
    }
    spec_of(spec, w);
    return add_event(w,
                     json_pack("{s:s, s:s, s:s, s:s, s:s}", "event", "dropped", "kernel", w->kernel,
                               "reason", kgen__drop_name(reason), "spec", spec, "text", text),
                     err);
}

/* A worker that outlives its run for a moment must not hold the journal. */
static int work(void *user, int fd) {
    kgen__run *run = &((watcher *)user)->run;
    kgen__journal_detach(run->journal);
    return kgen__worker(run, fd);
}

static kgen_status run_workers(watcher *w, kgen_error *err) {
    const kgen__watch watch = {w, work, heard, PATIENCE_S};
    kgen__watch_end end;
    char how[96];
    while (w->progress.done < w->run.set->count) {
        w->job[0] = w->kernel[0] = w->broken.text[0] = 0;
        w->broken.status = KGEN_OK;
        KGEN_TRY(kgen__watch_run(&end, how, sizeof how, &watch, err));
        if (end == KGEN__WATCH_DONE) break;
        KGEN_TRY(blame(w, end, how, err));
    }
    return KGEN_OK;
}

/* ---- the run --------------------------------------------------------------------- */

static double bytes_of(const kgen__tuner_job *job) {
    double read, written;
    if (kgen__predict_bytes(&read, &written, &job->spec, &job->problem, NULL) != KGEN_OK) return 0;
    return read + written;
}

/* The cheapest first: they are done whatever the budget. */
static void order_jobs(size_t *order, const kgen__tuner_settings *set) {
    for (size_t i = 0; i < set->count; i++) {
        size_t at = i;
        double bytes = bytes_of(&set->jobs[i]);
        for (; at > 0 && bytes_of(&set->jobs[order[at - 1]]) > bytes; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static json_t *report_of(const watcher *w) {
    const kgen__tuner_settings *set = w->run.set;
    return json_pack("{s:s, s:s, s:s, s:I, s:s?, s:s?, s:f, s:O}", "device",
                     w->run.device->environment.device, "arch", w->run.device->target->name,
                     "search",
                     set->search.strategy ? kgen__strategy_name(set->search.strategy) : "halving",
                     "seed", (json_int_t)set->search.seed, "out", set->out, "journal", set->journal,
                     "seconds", kgen__tuner_clock() - w->run.start, "results", w->results);
}

static kgen_status run_all(json_t **report, watcher *w, kgen_error *err) {
    const kgen__tuner_settings *set = w->run.set;
    KGEN_TRY(kgen__journal_open(&w->run.journal, set->journal, &w->run.device->environment, err));
    order_jobs(w->run.order, set);
    KGEN_TRY(run_workers(w, err));
    *report = report_of(w);
    return *report ? KGEN_OK : kgen_fail(err, KGEN_E_NOMEM, "no memory for the report");
}

kgen_status kgen__tuner_run(json_t **report, const kgen__tuner_settings *settings,
                            const kgen__tuner_device *device, kgen_error *err) {
    size_t count = settings->count ? settings->count : 1;
    watcher *w = calloc(1, sizeof *w);
    if (!w) return kgen_fail(err, KGEN_E_NOMEM, "no memory for a run");
    w->run = (kgen__run){.set = settings,
                         .device = device,
                         .start = kgen__tuner_clock(),
                         .deadline = -1,
                         .order = calloc(count, sizeof *w->run.order),
                         .done = calloc(count, sizeof *w->run.done)};
    if (settings->budget >= 0) w->run.deadline = w->run.start + settings->budget;
    w->progress.jobs = settings->count;
    w->progress.stage = "open";
    w->results = json_array();
    kgen_status status = w->run.order && w->run.done && w->results
                             ? run_all(report, w, err)
                             : kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", count);
    kgen__journal_close(w->run.journal);
    json_decref(w->results);
    free(w->run.order);
    free(w->run.done);
    free(w);
    return status;
}

/* Strategies on recorded times: no device, no compiler. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "run.h"

typedef struct recorded {
    const kgen__journal_times *times;
    double us;      /* median of all samples */
    double ready_s; /* compiling and verifying */
    double sample_s;
} recorded;

typedef struct simulation {
    const kgen__journal *journal;
    kgen__space space;
    recorded *record; /* by candidate */
    int best;
    kgen__rng rng;
    double ready_s, sample_s; /* spent */
} simulation;

static kgen_status prepare(void *user, int *usable, const int *candidates, int count,
                           kgen_error *err) {
    simulation *s = user;
    (void)err;
    for (int i = 0; i < count; i++) {
        usable[i] = 1;
        s->ready_s += s->record[candidates[i]].ready_s;
    }
    return KGEN_OK;
}

/* Any of its samples. */
static kgen_status sample(void *user, double *us, int candidate, kgen_error *err) {
    simulation *s = user;
    const recorded *r = &s->record[candidate];
    (void)err;
    *us = r->times->us[kgen__rng_range(&s->rng, 0, r->times->count - 1)];
    s->sample_s += r->sample_s;
    return KGEN_OK;
}

/* ---- a job of the journal as a space --------------------------------------------- */

static int is_usable(const kgen__journal *journal, const kgen__journal_times *t) {
    const kgen__journal_kernel *k = kgen__journal_kernel_of(journal, t->kernel);
    return t->count >= KGEN__SAMPLES_LEAST && !(k && k->dropped[0]);
}

static kgen_status add(kgen__space *space, const kgen__journal_times *t, kgen_error *err) {
    kgen__candidate *c = &space->list[space->count];
    memset(c, 0, sizeof *c);
    KGEN_TRY(kgen_spec_parse(&c->spec, t->spec, err));
    memcpy(c->kernel, t->kernel, sizeof c->kernel);
    space->count++;
    return KGEN_OK;
}

static kgen_status fill_space(simulation *s, const kgen__journal_job *job, kgen_error *err) {
    const kgen__journal_times *t;
    size_t room = HASH_COUNT(job->times);
    s->space.list = calloc(room + 1, sizeof *s->space.list);
    s->record = calloc(room + 1, sizeof *s->record);
    if (!s->space.list || !s->record)
        return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu candidates", room);
    t = kgen__journal_times_of(job, job->family_choice);
    if (!t || !is_usable(s->journal, t)) return KGEN_OK; /* nothing to compare with */
    KGEN_TRY(add(&s->space, t, err));
    for (t = job->times; t; t = t->hh.next)
        if (strcmp(t->kernel, job->family_choice) != 0 && is_usable(s->journal, t))
            KGEN_TRY(add(&s->space, t, err));
    kgen__space_arrange(&s->space);
    return KGEN_OK;
}

static kgen_status fill_records(simulation *s, const kgen__journal_job *job, kgen_error *err) {
    for (int i = 0; i < s->space.count; i++) {
        recorded *r = &s->record[i];
        const kgen__journal_times *t = kgen__journal_times_of(job, s->space.list[i].kernel);
        const kgen__journal_kernel *k = kgen__journal_kernel_of(s->journal, t->kernel);
        kgen__timing timing;
        double *us = malloc((size_t)t->count * sizeof *us);
        if (!us) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %d samples", t->count);
        memcpy(us, t->us, (size_t)t->count * sizeof *us);
        kgen__timing_of(&timing, us, t->count);
        free(us);
        *r = (recorded){t, timing.us, t->compile_s + (k ? k->verify_s : 0), t->seconds / t->count};
        if (r->us < s->record[s->best].us) s->best = i;
    }
    return KGEN_OK;
}

/* ---- strategies ---------------------------------------------------------------- */

typedef struct scores {
    double gap, worst_gap, samples, all; /* shares of the exhaustive time */
    int within;                          /* 3 % of the best */
} scores;

static kgen_status try_once(scores *score, simulation *s, const kgen__search_options *search,
                            kgen_error *err) {
    const kgen__evaluator evaluator = {s, prepare, sample, NULL};
    kgen__search_result found;
    double ready_s = 0, sample_s = 0;
    int samples = search->samples ? search->samples : 30;
    s->ready_s = s->sample_s = 0;
    kgen__rng_seed(&s->rng, search->seed, 1);
    KGEN_TRY(kgen__search_run(&found, &s->space, &evaluator, search, err));
    for (int i = 0; i < s->space.count; i++) {
        ready_s += s->record[i].ready_s;
        sample_s += samples * s->record[i].sample_s;
    }
    double gap = s->record[found.fastest].us / s->record[s->best].us - 1;
    score->gap += gap;
    if (gap > score->worst_gap) score->worst_gap = gap;
    score->within += gap <= 0.03;
    score->samples += sample_s > 0 ? s->sample_s / sample_s : 0;
    score->all += ready_s + sample_s > 0 ? (s->ready_s + s->sample_s) / (ready_s + sample_s) : 0;
    return KGEN_OK;
}

static kgen_status try_strategy(json_t **out, simulation *s, const kgen__strategy *strategy,
                                const kgen__search_options *search, int repeats, kgen_error *err) {
    scores score = {0};
    kgen__search_options options = *search;
    options.strategy = strategy;
    for (int i = 0; i < repeats; i++) {
        KGEN_TRY(try_once(&score, s, &options, err));
        options.seed++;
    }
    *out = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "search", kgen__strategy_name(strategy),
                     "gap", score.gap / repeats, "worst_gap", score.worst_gap, "within_3_percent",
                     (double)score.within / repeats, "sample_time", score.samples / repeats,
                     "all_time", score.all / repeats);
    return KGEN_OK;
}

static kgen_status simulate_job(json_t *results, simulation *s, const kgen__journal_job *job,
                                const kgen__search_options *search, int repeats, kgen_error *err) {
    KGEN_TRY(fill_space(s, job, err));
    if (!s->space.count) return KGEN_OK;
    KGEN_TRY(fill_records(s, job, err));
    json_t *tried = json_array();
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < kgen__strategy_count() && status == KGEN_OK; i++) {
        json_t *one;
        status = try_strategy(&one, s, kgen__strategy_at(i), search, repeats, err);
        if (status == KGEN_OK) json_array_append_new(tried, one);
    }
    json_array_append_new(results,
                          json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:o}", "spec",
                                    job->spec, "arch", job->target, "batch", job->problem.batch,
                                    "context", job->problem.context, "heads", job->problem.heads,
                                    "candidates", s->space.count, "best_us", s->record[s->best].us,
                                    "default_us", s->record[0].us, "strategies", tried));
    return status;
}

kgen_status kgen__tuner_simulate(json_t **report, const char *path,
                                 const kgen__search_options *search, int repeats, kgen_error *err) {
    kgen__journal *journal;
    json_t *results = json_array();
    kgen_status status = kgen__journal_read(&journal, path, err);
    if (status != KGEN_OK) {
        json_decref(results);
        return status;
    }
    for (kgen__journal_job *job = journal->jobs; job && status == KGEN_OK; job = job->hh.next) {
        simulation s = {.journal = journal};
        status = simulate_job(results, &s, job, search, repeats, err);
        kgen__space_free(&s.space);
        free(s.record);
    }
    if (status == KGEN_OK && !json_array_size(results))
        status = kgen_fail(err, KGEN_E_CONFIG,
                           "journal %s: no job whose default was timed %d times or more", path,
                           KGEN__SAMPLES_LEAST);
    if (status == KGEN_OK)
        *report = json_pack("{s:s, s:I, s:i, s:O}", "journal", path, "seed",
                            (json_int_t)search->seed, "repeats", repeats, "results", results);
    json_decref(results);
    kgen__journal_close(journal);
    return status;
}

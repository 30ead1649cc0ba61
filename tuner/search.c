/* The three strategies. A candidate is unseen, running, or out; all strategies
 * sample the running ones in turn and differ in who joins and who leaves. */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include <kgen/tuning_rows.h>

enum {
    SAMPLES = 30, /* of a candidate, where the settings name no number */
    CHUNK = 16,   /* candidates that are prepared together, likewise */
    CHUNK_MAX = 256,
    ROOM = 8,      /* an arm keeps at most ROOM times the samples of a candidate */
    FEW = 3,       /* samples of each candidate between two halvings */
    FINALISTS = 4, /* candidates that are timed beside the default to the end */
};

/* How many candidates are tried. `halving` starts with FIRST, or with one in
 * FIRST_PART of a large space; then JOIN at a time join. It stops when JOIN_IDLE
 * groups in a row have brought no faster one, or when it has tried both
 * TRIED_LEAST candidates and one in TRIED_PART. `random` tries RANDOM_FIRST, or
 * one in FIRST_PART. */
enum {
    FIRST = 12,
    FIRST_PART = 24,
    RANDOM_FIRST = 24,
    JOIN = 4,
    JOIN_IDLE = 6,
    TRIED_LEAST = 28,
    TRIED_PART = 5,
};
static const double NARROW = 0.02; /* width of an interval that needs no more samples */

typedef enum state { UNSEEN, RUNNING, BEATEN, OUT } state;

typedef struct arm {
    state state;
    double *us; /* in the order they were taken */
    int count;
    int final; /* of them, those before the finals */
    kgen__timing timing;
} arm;

typedef struct search {
    const kgen__space *space;
    const kgen__evaluator *evaluator;
    int samples, chunk;
    kgen__rng rng;
    arm *arms;
    int *list; /* room for every candidate */
    double *scratch;
    int most; /* samples that an arm has room for */
    int taken, late;
    kgen_error *err;
} search;

struct kgen__strategy {
    const char *name;
    kgen_status (*run)(search *s);
};

/* --- samples -------------------------------------------------------------- */

static int out_of_time(search *s) {
    const kgen__evaluator *e = s->evaluator;
    if (!s->late && e->left) s->late = e->left(e->user) <= 0;
    return s->late;
}

static kgen_status visit(search *s, int candidate) {
    arm *a = &s->arms[candidate];
    double us = -1;
    if (a->count == s->most) return KGEN_OK;
    KGEN_TRY(s->evaluator->sample(s->evaluator->user, &us, candidate, s->err));
    if (us < 0) {
        a->state = OUT;
        return KGEN_OK;
    }
    a->us[a->count++] = us;
    s->taken++;
    memcpy(s->scratch, a->us, (size_t)a->count * sizeof *a->us);
    kgen__timing_of(&a->timing, s->scratch, a->count);
    return KGEN_OK;
}

static void shuffle(search *s, int *list, int count) {
    for (int i = count - 1; i > 0; i--) {
        int j = (int)kgen__rng_range(&s->rng, 0, i), swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
}

static int collect(const search *s, int *list, state wanted) {
    int count = 0;
    for (int i = 0; i < s->space->count; i++)
        if (s->arms[i].state == wanted) list[count++] = i;
    return count;
}

/* Every running candidate once, in random order: what changes in the device
 * while they are timed hits all alike. */
static kgen_status round_of_all(search *s) {
    int count = collect(s, s->list, RUNNING);
    int first = s->arms[0].count == 0; /* without the default nothing can be said */
    shuffle(s, s->list + first, count - first);
    for (int i = 0; i < count && !out_of_time(s); i++) KGEN_TRY(visit(s, s->list[i]));
    return KGEN_OK;
}

static kgen_status rounds(search *s, int count) {
    for (int i = 0; i < count && !out_of_time(s); i++) KGEN_TRY(round_of_all(s));
    return KGEN_OK;
}

/* Half of the time that is left is for samples. */
static kgen_status make_ready(search *s, const int *candidates, int count) {
    const kgen__evaluator *e = s->evaluator;
    double reserve = e->left ? e->left(e->user) / 2 : 0;
    int usable[CHUNK_MAX];
    for (int done = 0; done < count; done += s->chunk) {
        int n = count - done < s->chunk ? count - done : s->chunk;
        if (out_of_time(s)) return KGEN_OK;
        if (done && e->left && e->left(e->user) < reserve) return KGEN_OK;
        KGEN_TRY(e->prepare(e->user, usable, candidates + done, n, s->err));
        for (int i = 0; i < n; i++) s->arms[candidates[done + i]].state = usable[i] ? RUNNING : OUT;
        if (s->arms[0].state == OUT) return KGEN_OK;
    }
    return KGEN_OK;
}

/* --- who is left ---------------------------------------------------------- */

static int faster(const search *s, int a, int b) {
    return s->arms[a].timing.us < s->arms[b].timing.us;
}

/* Running candidates with a time, the fastest first. */
static int ranking(const search *s, int *list) {
    int count = 0, all = collect(s, list, RUNNING);
    for (int i = 0; i < all; i++) {
        int candidate = list[i], at = count;
        if (!s->arms[candidate].count) continue;
        for (; at > 0 && faster(s, candidate, list[at - 1]); at--) list[at] = list[at - 1];
        list[at] = candidate;
        count++;
    }
    return count;
}

/* Keeps the better half, and who may still be the best. The default stays. */
static int drop_half(search *s) {
    int count = ranking(s, s->list), keep = (count + 1) / 2, dropped = 0;
    if (keep < FINALISTS) keep = FINALISTS;
    for (int i = keep; i < count; i++) {
        arm *a = &s->arms[s->list[i]];
        int sure = a->timing.low > s->arms[s->list[0]].timing.high || a->count >= s->samples;
        if (s->list[i] == 0 || !sure) continue;
        a->state = BEATEN;
        dropped++;
    }
    return dropped;
}

static kgen_status halve(search *s) {
    while (ranking(s, s->list) > FINALISTS + 1 && !out_of_time(s)) {
        int before = s->taken;
        KGEN_TRY(rounds(s, FEW));
        if (!drop_half(s) && s->taken == before) return KGEN_OK;
    }
    return KGEN_OK;
}

/* --- who joins ------------------------------------------------------------
 * Unseen candidates join by two rules in turn: those nearest to the fastest one,
 * and those to which the effects of single keys give the least time. */

enum { PLACES = 32, SWEEPS = 4 };

/* log(time) as a sum over keys, fitted to what has been timed. */
typedef struct effects {
    double at[KGEN__SPACE_KEYS][PLACES];
    double mean;
} effects;

static double effect_sum(const effects *e, const kgen__candidate *c, int keys, int without) {
    double sum = e->mean;
    for (int k = 0; k < keys; k++)
        if (k != without) sum += e->at[k][c->at[k] % PLACES];
    return sum;
}

/* Each key's effects are what the others leave over, a little pulled to 0. */
static void fit_key(effects *e, const search *s, int key) {
    double sum[PLACES] = {0}, count[PLACES] = {0};
    for (int i = 0; i < s->space->count; i++) {
        const kgen__candidate *c = &s->space->list[i];
        if (!s->arms[i].count) continue;
        sum[c->at[key] % PLACES] +=
            log(s->arms[i].timing.us) - effect_sum(e, c, s->space->keys, key);
        count[c->at[key] % PLACES] += 1;
    }
    for (int p = 0; p < PLACES; p++) e->at[key][p] = sum[p] / (count[p] + 0.5);
}

static void fit(effects *e, const search *s) {
    double sum = 0, count = 0;
    memset(e, 0, sizeof *e);
    for (int i = 0; i < s->space->count; i++) {
        if (!s->arms[i].count) continue;
        sum += log(s->arms[i].timing.us);
        count += 1;
    }
    e->mean = count ? sum / count : 0;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int k = 0; k < s->space->keys; k++) fit_key(e, s, k);
}

/* Writes at most JOIN unseen candidates to `found` and returns how many. */
static int joiners(search *s, int *found) {
    effects e;
    int near = 0, best = ranking(s, s->list) ? s->list[0] : 0;
    int unseen = collect(s, s->list, UNSEEN);
    shuffle(s, s->list, unseen);
    fit(&e, s);
    for (; near < JOIN && near < unseen; near++) {
        int least = -1;
        double least_score = 0;
        for (int i = 0; i < unseen; i++) {
            int c = s->list[i];
            if (c < 0) continue;
            double score = near % 2 ? kgen__space_distance(s->space, c, best)
                                    : effect_sum(&e, &s->space->list[c], s->space->keys, -1);
            if (least >= 0 && score >= least_score) continue;
            least = i;
            least_score = score;
        }
        found[near] = s->list[least];
        s->list[least] = -1;
    }
    return near;
}

/* --- the finals ----------------------------------------------------------- */

/* Are the samples that were taken in turn with the default's enough to tell how
 * the fastest compares with it? */
static int is_sure(search *s, int best) {
    const arm *a = &s->arms[best], *base = &s->arms[0];
    int count = a->count - a->final, pairs = base->count - base->final;
    kgen__timing ratio;
    if (pairs < count) count = pairs;
    if (count < KGEN__SAMPLES_LEAST) return 0;
    if (best == 0) return base->timing.high - base->timing.low < NARROW * base->timing.us;
    for (int i = 0; i < count; i++) s->scratch[i] = a->us[a->final + i] / base->us[base->final + i];
    kgen__timing_of(&ratio, s->scratch, count);
    return ratio.high - ratio.low < NARROW * ratio.us;
}

static void keep_finalists(search *s) {
    int count = ranking(s, s->list);
    for (int i = FINALISTS; i < count; i++)
        if (s->list[i]) s->arms[s->list[i]].state = BEATEN;
    for (int i = 0; i < s->space->count; i++) s->arms[i].final = s->arms[i].count;
}

static kgen_status finals(search *s) {
    keep_finalists(s);
    for (int i = 0; i < s->samples && !out_of_time(s); i++) {
        KGEN_TRY(round_of_all(s));
        if (ranking(s, s->list) == 0 || is_sure(s, s->list[0])) return KGEN_OK;
    }
    return KGEN_OK;
}

/* --- strategies ----------------------------------------------------------- */

/* The default, those nearest to it, and as many at random; all when they are
 * few. */
static int pick_part(search *s, int *picked, int least, int with_nearest) {
    int count = s->space->count, part = count / FIRST_PART;
    if (part < least) part = count < least ? count : least;
    int nearest = part == count ? count : with_nearest ? part / 4 : 1;
    for (int i = 0; i < count; i++) picked[i] = i;
    shuffle(s, picked + nearest, count - nearest);
    return part;
}

static kgen_status run_part(search *s, int count) {
    KGEN_TRY(make_ready(s, s->list, count));
    return rounds(s, s->samples);
}

static kgen_status run_exhaustive(search *s) { return run_part(s, collect(s, s->list, UNSEEN)); }

static kgen_status run_random(search *s) {
    return run_part(s, pick_part(s, s->list, RANDOM_FIRST, 0));
}

static int seen(const search *s) { return s->space->count - collect(s, s->list, UNSEEN); }

/* Others join as long as that helps, and while most have not been looked at. */
static kgen_status run_halving(search *s) {
    int found[JOIN], best = 0, idle = 0;
    int most =
        s->space->count / TRIED_PART > TRIED_LEAST ? s->space->count / TRIED_PART : TRIED_LEAST;
    KGEN_TRY(make_ready(s, s->list, pick_part(s, s->list, FIRST, 1)));
    KGEN_TRY(rounds(s, FEW));
    while (!out_of_time(s) && s->arms[0].state == RUNNING) {
        KGEN_TRY(halve(s));
        if (!ranking(s, s->list)) return KGEN_OK;
        idle = s->list[0] == best ? idle + 1 : 0;
        best = s->list[0];
        int count = idle < JOIN_IDLE && seen(s) < most ? joiners(s, found) : 0;
        if (!count) break;
        KGEN_TRY(make_ready(s, found, count));
        KGEN_TRY(rounds(s, FEW));
    }
    return finals(s);
}

static const kgen__strategy strategies[] = {
    {"halving", run_halving},
    {"random", run_random},
    {"exhaustive", run_exhaustive},
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

size_t kgen__strategy_count(void) { return STRATEGIES; }
const kgen__strategy *kgen__strategy_at(size_t index) {
    return index < STRATEGIES ? &strategies[index] : NULL;
}
const char *kgen__strategy_name(const kgen__strategy *strategy) { return strategy->name; }

kgen_status kgen__strategy_find(const kgen__strategy **out, const char *name, kgen_error *err) {
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strcmp(strategies[i].name, name) != 0) continue;
        *out = &strategies[i];
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_ARG, "search=%.40s: one of halving, random, exhaustive expected",
                     name);
}

/* --- the result ----------------------------------------------------------- */

static int beats_default(const kgen__timing *t, const kgen__timing *base) {
    return t->samples >= KGEN__SAMPLES_LEAST && base->samples >= KGEN__SAMPLES_LEAST &&
           t->us * KGEN_TUNING_GAIN <= base->us && t->high < base->low;
}

static void conclude(kgen__search_result *out, search *s) {
    const arm *base = &s->arms[0];
    *out = (kgen__search_result){.best = -1,
                                 .fastest = -1,
                                 .finished = !s->late,
                                 .samples = s->taken,
                                 .default_out = base->state == OUT};
    for (int i = 0; i < s->space->count; i++) {
        out->tried += s->arms[i].count > 0;
        out->dropped += s->arms[i].state == OUT;
    }
    if (base->state == OUT || base->count == 0) return;
    int count = ranking(s, s->list);
    out->best = out->fastest = 0;
    for (int i = 0; i < count; i++) {
        if (s->arms[s->list[i]].count < s->arms[0].count / 2) continue; /* came late */
        out->fastest = s->list[i];
        break;
    }
    if (beats_default(&s->arms[out->fastest].timing, &base->timing)) out->best = out->fastest;
    out->us = s->arms[out->best].timing;
    out->default_us = base->timing;
}

static kgen_status allocate(search *s) {
    size_t count = (size_t)s->space->count, most = (size_t)s->most;
    s->arms = calloc(count, sizeof *s->arms);
    s->list = calloc(count, sizeof *s->list);
    s->scratch = calloc(most, sizeof *s->scratch);
    double *us = calloc(count * most, sizeof *us);
    if (!s->arms || !s->list || !s->scratch || !us) {
        free(us);
        return kgen_fail(s->err, KGEN_E_NOMEM, "no memory for %zu candidates", count);
    }
    for (size_t i = 0; i < count; i++) s->arms[i].us = us + i * most;
    return KGEN_OK;
}

kgen_status kgen__search_run(kgen__search_result *out, const kgen__space *space,
                             const kgen__evaluator *evaluator, const kgen__search_options *options,
                             kgen_error *err) {
    const kgen__strategy *strategy = options->strategy ? options->strategy : &strategies[0];
    search s = {.space = space,
                .evaluator = evaluator,
                .samples = options->samples ? options->samples : SAMPLES,
                .chunk = options->chunk ? options->chunk : CHUNK,
                .err = err};
    if (s.chunk > CHUNK_MAX) s.chunk = CHUNK_MAX;
    s.most = ROOM * s.samples;
    kgen__rng_seed(&s.rng, options->seed, 0);
    kgen_status status = allocate(&s);
    if (status == KGEN_OK) status = strategy->run(&s);
    if (status == KGEN_OK) conclude(out, &s);
    if (s.arms) free(s.arms[0].us);
    free(s.arms);
    free(s.list);
    free(s.scratch);
    return status;
}

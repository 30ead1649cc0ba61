/* The tuner: spaces of candidates, strategies on simulated times, journals, and
 * whole runs on the cpu device with workers that really hang, crash and are
 * killed. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/check.h"
#include "compile/unit.h"
#include <kgen/params.h>
#include "tuner/run.h"
#include "tuner/watch.h"
#include "seed.h"

static uint64_t seed;
static char scratch[] = "/tmp/kgen-test-tune-XXXXXX";

#define OK(call) assert_int_equal_text((call), KGEN_OK, err.text)
static void assert_int_equal_text(int got, int want, const char *text) {
    if (got != want) print_error("%s\n", text);
    assert_int_equal(got, want);
}

static const kgen_target *target_of(const char *name) {
    const kgen_target *target;
    kgen_error err;
    OK(kgen_target_find(&target, name, &err));
    return target;
}

static kgen_spec spec_of(const char *line) {
    kgen_spec spec;
    kgen_error err;
    OK(kgen_spec_parse(&spec, line, &err));
    return spec;
}

static const kgen_problem some = {8, 2048, 8};

static kgen__space space_of(const char *line, const char *arch) {
    kgen__space space;
    kgen_error err;
    kgen_spec spec = spec_of(line);
    OK(kgen__space_make(&space, &spec, &some, target_of(arch), &err));
    return space;
}

/* ---- spaces --------------------------------------------------------------------- */

/* clang-format off */
static const char *const lines[] = {
    "attn:d=128,g=8",       "attn:d=64,g=4,kv=fp8,waves=4", "attn:phase=verify,t=4,d=128,g=8,occ=1",
    "gdn:layout=flat",      "gdn:fuse=a,layout=flat,sl=kv", "gdn:fuse=c,layout=flat",
    "gdn:layout=flat,batch=few,waves=8", "scatter:op=slot_mapping", "kv_write:",
    "kv_gather:kv=fp8,turns=1"};
/* clang-format on */
static const char *const archs[] = {"gfx942", "gfx1201", "sm_90"};
enum { LINES = sizeof lines / sizeof *lines, ARCHS = sizeof archs / sizeof *archs };

/* Set keys stay, but in the family's own choice. */
static void check_keeps(const kgen_spec *asked, const kgen_spec *candidate) {
    for (int i = 0; i < kgen_param_count(asked->family); i++) {
        const kgen_param *p = kgen_param_at(asked->family, i);
        if (p->role != KGEN_ROLE_TUNE || kgen_param_get(asked, p) == p->initial) continue;
        assert_int_equal(kgen_param_get(candidate, p), kgen_param_get(asked, p));
    }
}

static void check_candidate(const kgen__candidate *c, const kgen_target *target) {
    kgen_spec again;
    kgen_error err;
    char one[KGEN_SPEC_LINE_MAX], two[KGEN_SPEC_LINE_MAX], digest[65];
    OK(kgen_spec_resolve(&again, &c->spec, target, &err));
    kgen_spec_print(one, &c->spec);
    kgen_spec_print(two, &again);
    assert_string_equal(one, two);
    OK(kgen_tuning_row_digest(digest, &c->spec, target, &err));
    assert_string_equal(digest, c->kernel);
    assert_true(kgen_spec_lanes(&c->spec, target) <= 1024);
}

static void every_candidate_is_allowed(void **state) {
    (void)state;
    for (int l = 0; l < LINES; l++) {
        for (int a = 0; a < ARCHS; a++) {
            if (!test_takes(seed, (uint64_t)(l + a), ARCHS, 2 * ARCHS)) continue;
            const kgen_target *target = target_of(archs[a]);
            kgen__space space = space_of(lines[l], archs[a]);
            kgen_spec asked = spec_of(lines[l]);
            for (int i = 0; i < space.count; i++) {
                check_candidate(&space.list[i], target);
                if (i) check_keeps(&asked, &space.list[i].spec);
                for (int j = 0; j < i; j++)
                    assert_string_not_equal(space.list[i].kernel, space.list[j].kernel);
                if (i > 1) assert_true(space.list[i].distance >= space.list[i - 1].distance);
            }
            kgen__space_free(&space);
        }
    }
}

/* The first is what prepare takes when there is no row. */
static void the_default_comes_first(void **state) {
    (void)state;
    for (int l = 0; l < LINES; l++) {
        if (!test_takes(seed, (uint64_t)l, 2, 2)) continue;
        kgen__space space = space_of(lines[l], "sm_90");
        kgen_spec asked = spec_of(lines[l]), own;
        kgen_tuning_match match;
        kgen_error err;
        char one[KGEN_SPEC_LINE_MAX], two[KGEN_SPEC_LINE_MAX];
        kgen_spec_open_tuning(&asked);
        OK(kgen_tuning_resolve(&own, &match, NULL, &asked, &some, target_of("sm_90"), NULL, &err));
        kgen_spec_print(one, &own);
        kgen_spec_print(two, &space.list[0].spec);
        assert_string_equal(one, two);
        kgen__space_free(&space);
    }
}

static void sizes_are_as_expected(void **state) {
    (void)state;
    kgen__space scatter = space_of("scatter:op=slot_mapping", "sm_90");
    kgen__space fixed = space_of("attn:d=128,g=8,waves=4,mt=1,vs=1,occ=1", "sm_90");
    kgen__space open = space_of("attn:d=128,g=8", "sm_90");
    kgen__space gdn = space_of("gdn:fuse=a,layout=flat", "sm_90");
    assert_int_equal(scatter.count, 1); /* no tuning key at all */
    assert_true(fixed.count <= 2);      /* the default and that one */
    assert_true(open.count > 100 && open.count < 3500);
    assert_true(gdn.count > 100 && gdn.pruned[KGEN__PRUNE_RULE] > 0);
    assert_true(open.pruned[KGEN__PRUNE_LANES] > 0 && open.pruned[KGEN__PRUNE_WAVES] > 0);
    int presets = 0;
    for (int i = 0; i < gdn.count; i++)
        presets += gdn.list[i].spec.gdn.batch != gdn.list[0].spec.gdn.batch;
    assert_int_equal(presets, 0);
    kgen__space *all[] = {&scatter, &fixed, &open, &gdn};
    for (int i = 0; i < 4; i++) kgen__space_free(all[i]);
}

static void a_bad_spec_is_refused(void **state) {
    (void)state;
    kgen__space space;
    kgen_error err;
    kgen_spec spec = spec_of("kv_write:");
    spec.kv_write.waves = 99;
    assert_int_equal(kgen__space_make(&space, &spec, &some, target_of("sm_90"), &err), KGEN_E_SPEC);
    assert_non_null(strstr(err.text, "waves=99"));
}

/* ---- simulated times --------------------------------------------------------------- */

typedef struct sim {
    const kgen__space *space;
    double *us;
    int *refused; /* by candidate: 1 not usable, 2 fails when it is timed */
    double noise, outliers;
    double spent, seconds, limit; /* seconds a sample takes; limit: 0 none */
    kgen__rng rng;
    uint64_t trace; /* of what was asked for */
    int *visits;
} sim;

static kgen_status sim_prepare(void *user, int *usable, const int *candidates, int count,
                               kgen_error *err) {
    sim *s = user;
    (void)err;
    for (int i = 0; i < count; i++) {
        usable[i] = s->refused[candidates[i]] != 1;
        s->trace = s->trace * 31 + (uint64_t)candidates[i] + 7;
    }
    return KGEN_OK;
}

static kgen_status sim_sample(void *user, double *us, int candidate, kgen_error *err) {
    sim *s = user;
    (void)err;
    assert_int_not_equal(s->refused[candidate], 1);
    *us = s->us[candidate] * (1 + s->noise * fabs(kgen__rng_normal(&s->rng)));
    if (kgen__rng_uniform(&s->rng) < s->outliers) *us *= 1.3;
    s->spent += *us;
    s->trace = s->trace * 31 + (uint64_t)candidate;
    s->visits[candidate]++;
    if (s->refused[candidate] == 2) *us = -1;
    return KGEN_OK;
}

static double sim_left(void *user) {
    sim *s = user;
    return s->limit - s->seconds * s->spent;
}

static sim sim_of(const kgen__space *space, uint64_t numbers) {
    sim s = {.space = space, .noise = 0.015, .outliers = 0.03};
    s.us = calloc((size_t)space->count, sizeof *s.us);
    s.refused = calloc((size_t)space->count, sizeof *s.refused);
    s.visits = calloc((size_t)space->count, sizeof *s.visits);
    kgen__rng_seed(&s.rng, numbers, 1);
    return s;
}

static void sim_free(sim *s) {
    free(s->us);
    free(s->refused);
    free(s->visits);
}

/* A bowl over the keys with an optimum of its own, bent by pairs of keys, rough
 * by 4 %: what measured spaces look like. Returns the best. */
static int draw_times(sim *s, kgen__rng *rng) {
    double at[KGEN__SPACE_KEYS], weight[KGEN__SPACE_KEYS], bend = 0.1 * kgen__rng_uniform(rng);
    int best = 0;
    for (int k = 0; k < s->space->keys; k++) {
        at[k] = kgen__rng_uniform(rng) * 5;
        weight[k] = 0.02 + 0.15 * kgen__rng_uniform(rng);
    }
    for (int i = 0; i < s->space->count; i++) {
        const int16_t *place = s->space->list[i].at;
        double slow = 0.04 * fabs(kgen__rng_normal(rng));
        for (int k = 0; k < s->space->keys; k++) {
            double x = place[k] - at[k];
            slow += weight[k] * x * x;
            if (k) slow += bend * weight[k] * fabs(x) * fabs(place[k - 1] - at[k - 1]);
        }
        s->us[i] = 10 * (1 + slow);
        if (s->us[i] < s->us[best]) best = i;
    }
    return best;
}

static kgen__search_result search_of(sim *s, const char *name, uint64_t number, int samples) {
    kgen__evaluator evaluator = {s, sim_prepare, sim_sample, s->limit != 0 ? sim_left : NULL};
    kgen__search_options options = {.seed = number, .samples = samples};
    kgen__search_result found;
    kgen_error err;
    OK(kgen__strategy_find(&options.strategy, name, &err));
    OK(kgen__search_run(&found, s->space, &evaluator, &options, &err));
    return found;
}

static double exhaustive_us(const sim *s, int samples) {
    double sum = 0;
    for (int i = 0; i < s->space->count; i++) sum += samples * s->us[i];
    return sum;
}

static void halving_is_close_in_a_fifth_of_the_time(void **state) {
    (void)state;
    enum { SAMPLES = 30 };
    const int runs = test_is_sanitized() ? 15 : 60;
    static const char *const specs[] = {"attn:d=128,g=8", "gdn:layout=flat",
                                        "gdn:fuse=a,layout=flat", "kv_write:"};
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, 2);
    for (int k = 0; k < 4; k++) {
        kgen__space space = space_of(specs[k], "sm_90");
        int close = 0;
        double part = 0;
        for (int run = 0; run < runs; run++) {
            sim s = sim_of(&space, kgen__rng_next(&rng));
            int best = draw_times(&s, &rng);
            kgen__search_result found = search_of(&s, "halving", kgen__rng_next(&rng), SAMPLES);
            /* a choice within 3 % of the default is left to the default */
            close +=
                s.us[found.best] <= 1.03 * s.us[best] || s.us[found.fastest] <= 1.03 * s.us[best];
            part += s.spent / exhaustive_us(&s, SAMPLES) / runs;
            sim_free(&s);
        }
        print_message("%s: %d candidates, %d of %d within 3 %%, %.1f %% of the time\n", specs[k],
                      space.count, close, runs, 100 * part);
        assert_true(close >= runs * 4 / 5);
        assert_true(part <= 0.2);
        kgen__space_free(&space);
    }
}

static void exhaustive_finds_the_best(void **state) {
    (void)state;
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, 3);
    kgen__space space = space_of("kv_write:", "sm_90");
    for (int run = 0; run < 10; run++) {
        sim s = sim_of(&space, kgen__rng_next(&rng));
        int best = draw_times(&s, &rng);
        kgen__search_result found = search_of(&s, "exhaustive", 1, 20);
        assert_true(s.us[found.fastest] <= 1.02 * s.us[best]);
        assert_int_equal(found.tried, space.count);
        assert_int_equal(found.samples, 20 * space.count);
        assert_true(found.finished);
        sim_free(&s);
    }
    kgen__space_free(&space);
}

static void what_was_dropped_never_wins(void **state) {
    (void)state;
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, 4);
    kgen__space space = space_of("attn:d=128,g=8", "sm_90");
    for (size_t run = 0; run < 30; run++) {
        const char *name = kgen__strategy_name(kgen__strategy_at(run % kgen__strategy_count()));
        sim s = sim_of(&space, kgen__rng_next(&rng));
        draw_times(&s, &rng);
        for (int i = 1; i < space.count; i++) {
            s.refused[i] = (int)kgen__rng_range(&rng, 0, 2);
            if (s.refused[i]) s.us[i] *= 0.3; /* a wrong kernel may well be fast */
        }
        kgen__search_result found = search_of(&s, name, run, 10);
        assert_true(found.best >= 0 && found.fastest >= 0);
        assert_int_equal(s.refused[found.best], 0);
        assert_int_equal(s.refused[found.fastest], 0);
        assert_true(found.dropped > 0);
        sim_free(&s);
    }
    kgen__space_free(&space);
}

static void without_the_default_there_is_no_choice(void **state) {
    (void)state;
    kgen__space space = space_of("kv_write:", "sm_90");
    for (int how = 1; how <= 2; how++) {
        for (size_t i = 0; i < kgen__strategy_count(); i++) {
            sim s = sim_of(&space, seed);
            for (int c = 0; c < space.count; c++) s.us[c] = 10;
            s.refused[0] = how;
            kgen__search_result found =
                search_of(&s, kgen__strategy_name(kgen__strategy_at(i)), seed, 10);
            assert_int_equal(found.best, -1);
            assert_true(found.default_out);
            assert_false(kgen__result_counts(&found));
            sim_free(&s);
        }
    }
    kgen__space_free(&space);
}

/* 2 % faster is not faster; 5 % is, unless the noise hides it. */
static void only_a_sure_gain_replaces_the_default(void **state) {
    (void)state;
    enum { TRIES = 16 };
    static const struct {
        double us, noise;
        int least, most; /* times of TRIES that it replaces the default */
    } rows[] = {{9.8, 0.001, 0, 0},
                {9.5, 0.001, TRIES, TRIES},
                {9.5, 0.5, 0, TRIES / 4},
                {11, 0.001, 0, 0}};
    kgen__space space = space_of("kv_write:", "sm_90");
    int replaced[4] = {0};
    for (size_t i = 0; i < 4 * TRIES; i++) {
        size_t r = i / TRIES;
        sim s = sim_of(&space, seed + i);
        for (int c = 0; c < space.count; c++) s.us[c] = 20;
        s.us[0] = 10;
        s.us[5] = rows[r].us;
        s.noise = rows[r].noise;
        s.outliers = 0;
        kgen__search_result found = search_of(&s, "exhaustive", seed, 12);
        assert_true(found.best == 0 || found.best == 5);
        replaced[r] += found.best == 5;
        if (found.best == 0) assert_true(found.us.us == found.default_us.us);
        sim_free(&s);
    }
    for (size_t r = 0; r < 4; r++) assert_in_range(replaced[r], rows[r].least, rows[r].most);
    kgen__space_free(&space);
}

/* Without noise the least number of samples decides; with much, all are taken. */
static void samples_end_when_the_answer_is_sure(void **state) {
    (void)state;
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, 5);
    kgen__space space = space_of("attn:d=128,g=8", "sm_90");
    sim quiet = sim_of(&space, 1), loud = sim_of(&space, 1);
    draw_times(&quiet, &rng);
    memcpy(loud.us, quiet.us, (size_t)space.count * sizeof *loud.us);
    quiet.noise = quiet.outliers = 0;
    loud.noise = 0.3;
    search_of(&quiet, "halving", seed, 200);
    search_of(&loud, "halving", seed, 200);
    print_message("samples of the default: %d without noise, %d with\n", quiet.visits[0],
                  loud.visits[0]);
    assert_true(quiet.visits[0] < 180);
    assert_true(loud.visits[0] > 200);
    sim_free(&quiet);
    sim_free(&loud);
    kgen__space_free(&space);
}

static void the_same_seed_takes_the_same_way(void **state) {
    (void)state;
    kgen__space space = space_of("attn:d=128,g=8", "sm_90");
    for (size_t i = 0; i < kgen__strategy_count(); i++) {
        uint64_t traces[3];
        for (int run = 0; run < 3; run++) {
            kgen__rng rng;
            kgen__rng_seed(&rng, seed, 6);
            sim s = sim_of(&space, seed);
            draw_times(&s, &rng);
            search_of(&s, kgen__strategy_name(kgen__strategy_at(i)), seed + (run == 2), 10);
            traces[run] = s.trace;
            sim_free(&s);
        }
        assert_true(traces[0] == traces[1]);
        assert_true(traces[0] != traces[2]);
    }
    kgen__space_free(&space);
}

static void time_runs_out(void **state) {
    (void)state;
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, 7);
    kgen__space space = space_of("attn:d=128,g=8", "sm_90");
    for (size_t i = 0; i < kgen__strategy_count(); i++) {
        const char *name = kgen__strategy_name(kgen__strategy_at(i));
        sim none = sim_of(&space, seed), little = sim_of(&space, seed);
        draw_times(&none, &rng);
        memcpy(little.us, none.us, (size_t)space.count * sizeof *none.us);
        none.limit = -1;
        kgen__search_result found = search_of(&none, name, seed, 10);
        assert_int_equal(found.best, -1);
        assert_int_equal(found.samples, 0);
        assert_false(found.finished || found.default_out);
        little.seconds = 1;
        little.limit = 600;
        found = search_of(&little, name, seed, 30);
        assert_false(found.finished);
        assert_true(little.visits[0] > 0);
        assert_true(little.spent < 700);
        sim_free(&none);
        sim_free(&little);
    }
    kgen__space_free(&space);
}

static void strategies_have_names(void **state) {
    (void)state;
    const kgen__strategy *found;
    kgen_error err;
    assert_int_equal(kgen__strategy_find(&found, "annealing", &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "search=annealing"));
    assert_int_equal(kgen__strategy_count(), 3);
    assert_null(kgen__strategy_at(3));
}

/* ---- watched workers ---------------------------------------------------------------- */

typedef struct act {
    int (*work)(int fd);
    int heard, fail_at;
} act;

static int work_act(void *user, int fd) { return ((act *)user)->work(fd); }

static kgen_status hear_act(void *user, double *seconds, char *line, kgen_error *err) {
    act *a = user;
    *seconds = 1;
    assert_int_equal(strncmp(line, "line ", 5), 0);
    return ++a->heard == a->fail_at ? kgen_fail(err, KGEN_E_IO, "enough") : KGEN_OK;
}

static int two_lines(int fd) {
    return !(kgen__watch_say(fd, "line 1") && kgen__watch_say(fd, "line 2"));
}
static int then_fails(int fd) { return two_lines(fd) + 3; }
static int then_hangs(int fd) {
    two_lines(fd);
    while (pause() < 0) continue;
    return 0;
}
static int then_aborts(int fd) {
    two_lines(fd);
    raise(SIGKILL);
    return 0;
}

static void a_worker_is_watched(void **state) {
    (void)state;
    static const struct {
        int (*work)(int fd);
        int fail_at;
        kgen__watch_end end;
        const char *how;
    } rows[] = {{two_lines, 0, KGEN__WATCH_DONE, "exit code 0"},
                {then_fails, 0, KGEN__WATCH_DIED, "exit code 3"},
                {then_hangs, 0, KGEN__WATCH_HUNG, "signal 9"},
                {then_aborts, 0, KGEN__WATCH_DIED, "signal 9"},
                {then_hangs, 1, KGEN__WATCH_STOP, "signal 9"}};
    for (size_t i = 0; i < 5; i++) {
        act a = {rows[i].work, 0, rows[i].fail_at};
        const kgen__watch watch = {&a, work_act, hear_act, 5};
        kgen__watch_end end;
        kgen_error err;
        char how[96];
        kgen_status status = kgen__watch_run(&end, how, sizeof how, &watch, &err);
        assert_int_equal(status, rows[i].fail_at ? KGEN_E_IO : KGEN_OK);
        assert_int_equal(end, rows[i].end);
        assert_non_null(strstr(how, rows[i].how));
        assert_int_equal(a.heard, rows[i].fail_at ? rows[i].fail_at : 2);
    }
}

/* ---- journals ------------------------------------------------------------------------- */

static kgen_environment environment_of(const char *device) {
    kgen_environment e = {.driver = "d", .toolchain = "t", .date = "2026-01-01T00:00:00Z"};
    snprintf(e.device, sizeof e.device, "%s", device);
    return e;
}

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static const char *const story[] = {
    "{\"event\":\"job\",\"job\":\"j\",\"spec\":\"kv_write:\",\"target\":\"sm_90\","
    "\"default\":\"k1\",\"batch\":3,\"context\":0,\"heads\":2}",
    "{\"event\":\"candidate\",\"job\":\"j\",\"kernel\":\"k1\",\"spec\":\"kv_write:waves=4\","
    "\"compile_s\":0.5}",
    "{\"event\":\"verified\",\"kernel\":\"k1\",\"seconds\":0.25}",
    "{\"event\":\"times\",\"job\":\"j\",\"kernel\":\"k1\",\"us\":7.5,\"seconds\":0.125}",
    "{\"event\":\"times\",\"job\":\"j\",\"kernel\":\"k1\",\"us\":8.5,\"seconds\":0.125}",
    "{\"event\":\"dropped\",\"kernel\":\"k2\",\"reason\":\"hung\"}",
};

static void check_story(const kgen__journal *journal) {
    const kgen__journal_job *job = kgen__journal_job_of(journal, "j");
    const kgen__journal_times *t = kgen__journal_times_of(job, "k1");
    assert_non_null(t);
    assert_int_equal(job->problem.batch, 3);
    assert_string_equal(job->family_choice, "k1");
    assert_int_equal(t->count, 2);
    assert_true(t->us[0] == 7.5 && t->us[1] == 8.5 && t->compile_s == 0.5);
    assert_true(kgen__journal_kernel_of(journal, "k1")->verified);
    assert_string_equal(kgen__journal_kernel_of(journal, "k2")->dropped, "hung");
}

static void a_journal_remembers(void **state) {
    (void)state;
    kgen_environment here = environment_of("here"), there = environment_of("there");
    kgen__journal *journal, *second;
    kgen_error err;
    const char *path = path_of("a/new/folder/journal");
    OK(kgen__journal_open(&journal, path, &here, &err));
    for (size_t i = 0; i < sizeof story / sizeof *story; i++)
        OK(kgen__journal_add(journal, story[i], &err));
    check_story(journal);
    assert_int_equal(kgen__journal_open(&second, path, &here, &err), KGEN_E_IO); /* locked */
    assert_non_null(strstr(err.text, "another run"));
    kgen__journal_close(journal);

    FILE *file = fopen(path, "a"); /* killed while it wrote */
    fputs("{\"event\":\"times\",\"job\":\"j\",\"kern", file);
    fclose(file);
    snprintf(here.date, sizeof here.date, "2027-02-02T02:02:02Z"); /* another day */
    OK(kgen__journal_open(&journal, path, &here, &err));
    check_story(journal);
    kgen__journal_close(journal);
    OK(kgen__journal_read(&journal, path, &err));
    check_story(journal);
    kgen__journal_close(journal);

    OK(kgen__journal_open(&journal, path, &there, &err)); /* times hold in their own place */
    assert_null(kgen__journal_job_of(journal, "j"));
    assert_null(kgen__journal_kernel_of(journal, "k1"));
    kgen__journal_close(journal);
}

static void bad_journals_are_refused(void **state) {
    (void)state;
    kgen__journal *journal;
    kgen_error err;
    const char *path = path_of("no-journal");
    assert_int_equal(kgen__journal_read(&journal, path, &err), KGEN_E_IO);
    FILE *file = fopen(path, "w");
    fputs("this is no journal\n", file);
    fclose(file);
    assert_int_equal(kgen__journal_read(&journal, path, &err), KGEN_E_CONFIG);
    kgen_environment here = environment_of("here");
    assert_int_equal(kgen__journal_open(&journal, "/dev/null/journal", &here, &err), KGEN_E_IO);
}

/* ---- whole runs on the cpu device ------------------------------------------------------ */

/* Workloads whose times are those of a table over the tuning keys: no clock, so that
 * runs can be compared. What happens besides is really done by the worker. */
typedef enum mischief { NOTHING, HANGS, CRASHES, FAILS, KILLS_THE_RUN } mischief;

static struct play {
    int turns, occ; /* the candidate that ... */
    mischief what;
    int after; /* so many samples of the worker */
} play[4];
static int samples_of_worker;

static kgen_status play_make(void **workload, kgen_context *ctx, const kgen__tuner_job *job,
                             kgen_error *err) {
    (void)ctx;
    if (job->problem.batch == 13) return kgen_fail(err, KGEN_E_UNSUPPORTED, "13 is not made");
    *workload = malloc(1);
    return KGEN_OK;
}

static kgen_status play_timer(void **timer, void *workload, const kgen_kernel *kernel,
                              kgen_error *err) {
    kgen_spec *spec = malloc(sizeof *spec);
    (void)workload, (void)err;
    *spec = *kgen_kernel_spec(kernel);
    *timer = spec;
    return KGEN_OK;
}

static void misbehave(mischief what) {
    if (what == HANGS)
        while (1) pause();
    if (what == CRASHES) raise(SIGKILL); /* abort would print */
    if (what == KILLS_THE_RUN) {
        kill(getppid(), SIGKILL);
        while (1) pause();
    }
}

static kgen_status play_sample(double *us, void *timer, kgen_error *err) {
    const kgen_kv_write_spec *s = &((const kgen_spec *)timer)->kv_write;
    samples_of_worker++;
    for (int i = 0; i < 4; i++) {
        if (play[i].turns && play[i].turns != s->turns) continue;
        if (play[i].occ && play[i].occ != s->occupancy) continue;
        if (samples_of_worker <= play[i].after) continue;
        misbehave(play[i].what);
        if (play[i].what == FAILS) return kgen_fail(err, KGEN_E_DEVICE, "the device is gone");
    }
    *us = 100.0 - 10 * s->turns - s->occupancy + 0.01 * (samples_of_worker % 7);
    return KGEN_OK;
}

static const kgen__tuner_workloads play_workloads = {play_make, free, play_timer, play_sample,
                                                     free};

static void no_answers(const char *text, void *user) { snprintf(user, 4096, "%s", text); }

typedef struct stage {
    kgen__tuner_device device;
    kgen__tuner_job jobs[4];
    kgen__tuner_settings set;
    char out[256], journal[256], said[4096];
} stage;

/* Nine candidates beside the default. */
static int set_up(stage *s, const char *name) {
    kgen_error err;
    kgen_spec spec = spec_of("kv_write:d=64,waves=4");
    memset(s, 0, sizeof *s);
    memset(play, 0, sizeof play);
    if (kgen__tuner_probe(&s->device, "cpu:sm90", &err) != KGEN_OK) {
        print_message("skipped: %s\n", err.text);
        return 0;
    }
    snprintf(s->out, sizeof s->out, "%s/%s.rows", scratch, name);
    snprintf(s->journal, sizeof s->journal, "%s/%s.journal", scratch, name);
    for (int i = 0; i < 4; i++) s->jobs[i] = (kgen__tuner_job){spec, {16 + 16 * i, 0, 2}, NULL};
    s->set = (kgen__tuner_settings){.jobs = s->jobs,
                                    .count = 1,
                                    .device = "cpu:sm90",
                                    .out = s->out,
                                    .journal = s->journal,
                                    .budget = -1,
                                    .timeout = 5,
                                    .workloads = &play_workloads,
                                    .say = no_answers,
                                    .user = s->said,
                                    .search = {.seed = seed, .samples = 6}};
    return 1;
}

static json_t *run_of(stage *s) {
    kgen_error err;
    json_t *report;
    OK(kgen__tuner_run(&report, &s->set, &s->device, &err));
    return report;
}

static const json_t *result_at(const json_t *report, size_t index) {
    return json_array_get(json_object_get(report, "results"), index);
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static int count_of(const json_t *result, const char *reason) {
    return (int)json_integer_value(json_object_get(json_object_get(result, "dropped"), reason));
}

static int events_in(const char *path, const char *event) {
    char line[8192], wanted[64];
    int count = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    snprintf(wanted, sizeof wanted, "{\"event\":\"%s\"", event);
    while (fgets(line, sizeof line, file)) count += strncmp(line, wanted, strlen(wanted)) == 0;
    fclose(file);
    return count;
}

static kgen_tuning_row row_in(const char *path) {
    char *text;
    size_t size;
    kgen_tuning_row row;
    kgen_error err;
    OK(kgen_tuning_rows_read(&text, &size, path, &err));
    text[strcspn(text, "\n")] = 0;
    OK(kgen_tuning_row_parse(&row, text, &err));
    free(text);
    return row;
}

static void a_run_finds_the_fastest(void **state) {
    stage s;
    (void)state;
    if (!set_up(&s, "plain")) skip();
    json_t *report = run_of(&s);
    const json_t *result = result_at(report, 0);
    assert_string_equal(text_of(result, "outcome"), "tuned");
    assert_string_equal(text_of(result, "keys"), "waves=4,turns=4,few=1,occ=16");
    json_decref(report);

    kgen_tuning_row row = row_in(s.out);
    assert_int_equal(row.spec.kv_write.turns, 4);
    assert_int_equal(row.problem.batch, 16);
    assert_true(row.us * 1.03 <= row.default_us && row.high < row.default_us);
    assert_string_equal(row.environment.device, "cpu:sm90");
    assert_string_not_equal(row.kernel, row.default_kernel);

    int times = events_in(s.journal, "times"); /* a second run measures nothing */
    report = run_of(&s);
    assert_string_equal(text_of(result_at(report, 0), "outcome"), "tuned");
    assert_int_equal(events_in(s.journal, "times"), times);
    assert_int_equal(events_in(s.journal, "result"), 1);
    json_decref(report);
}

static void hung_and_crashed_candidates_are_left_out(void **state) {
    stage s;
    (void)state;
    if (!set_up(&s, "mischief")) skip();
    s.set.timeout = 4;
    s.set.search.strategy = kgen__strategy_at(2);
    play[0] = (struct play){4, 16, HANGS, 0};
    play[1] = (struct play){4, 8, CRASHES, 0};
    play[2] = (struct play){2, 16, FAILS, 0};
    json_t *report = run_of(&s);
    const json_t *result = result_at(report, 0);
    assert_int_equal(count_of(result, "hung"), 1);
    assert_int_equal(count_of(result, "crashed"), 2);
    assert_string_equal(text_of(result, "outcome"), "tuned");
    const char *keys = text_of(result, "keys");
    assert_int_equal(strncmp(keys, "waves=4,turns=4,", 16), 0);
    assert_string_not_equal(keys, "waves=4,turns=4,few=1,occ=16");
    assert_string_not_equal(keys, "waves=4,turns=4,few=1,occ=8");
    assert_true(strlen(s.said) > 0);
    json_decref(report);
}

/* Rotates half of what the spec says, as a compiler's mistake would. */
static void compile_wrong(uint8_t **code, size_t *size, const kgen_spec *spec,
                          const kgen_target *target) {
    kgen_source source;
    kgen_toolchain tc;
    kgen_error err;
    uint32_t ms;
    OK(kgen_source_render(&source, spec, target, &err));
    OK(kgen_toolchain_find(&tc, target, &err));
    char *dim = strstr(source.text, "constexpr int ROPE_DIM = 64;");
    assert_non_null(dim);
    memcpy(strchr(dim, '6'), "32", 2);
    kgen__unit unit = {.toolchain = &tc,
                       .flags = kgen_target_flags(target, tc.compiler),
                       .source = source.text,
                       .source_size = source.size,
                       .spec = "wrong",
                       .arch = target->name};
    OK(kgen__compile(&unit, code, size, &ms, &err));
    kgen_source_free(&source);
}

/* The entry of one candidate gets wrong code under its own symbol. */
static void plant_wrong_code(const char *dir, const kgen_spec *victim, const kgen_target *target) {
    kgen_cache *cache;
    kgen_error err;
    kgen_job job = {*victim, target};
    kgen_job_result result;
    uint8_t *code;
    OK(kgen_cache_open(&cache, dir, &err));
    OK(kgen_build(cache, &job, 1, NULL, &result, &err));
    kgen_entry wrong = *result.entry;
    compile_wrong(&code, &wrong.code_size, victim, target);
    wrong.code = code;
    OK(kgen_cache_put(cache, &wrong, &err));
    free(code);
    kgen_entry_free(result.entry);
    kgen_cache_close(cache);
}

static void wrong_results_are_dropped_loudly(void **state) {
    static const char line[] = "kv_write:d=64,rope=neox,waves=4,occ=2";
    stage s;
    (void)state;
    if (!set_up(&s, "wrong")) skip();
    char dir[256];
    snprintf(dir, sizeof dir, "%s", path_of("wrong-cache"));
    s.jobs[0].spec = spec_of(line);
    s.set.cache_dir = dir;
    kgen__space space = space_of(line, "cpu:sm90");
    for (int i = 0; i < space.count; i++) {
        const kgen_spec *victim = &space.list[i].spec;
        if (victim->kv_write.turns == 4 && victim->kv_write.waves == 4)
            plant_wrong_code(dir, victim, s.device.target);
    }
    kgen__space_free(&space);
    json_t *report = run_of(&s);
    const json_t *result = result_at(report, 0);
    assert_int_equal(count_of(result, "mismatch"), 1);
    assert_null(strstr(text_of(result, "keys"), "turns=4"));
    assert_non_null(strstr(s.said, "WRONG RESULTS"));
    assert_non_null(strstr(s.said, "reproduce: kgen check"));
    json_decref(report);
}

/* The default has no time: the kernel is named, others are tuned all the same. */
static void a_default_that_hangs_fails_its_kernel_only(void **state) {
    stage s;
    (void)state;
    if (!set_up(&s, "default")) skip();
    s.jobs[0] = (kgen__tuner_job){spec_of("kv_write:d=64,waves=4,turns=1,occ=1"), {16, 0, 2}, NULL};
    s.jobs[1] =
        (kgen__tuner_job){spec_of("kv_write:d=128,waves=4,turns=1,occ=1"), {16, 0, 2}, NULL};
    s.jobs[2].problem.batch = 13;
    s.set.count = 3;
    s.set.timeout = 4;
    kgen__space space = space_of("kv_write:d=64,waves=4,turns=1,occ=1", "cpu:sm90");
    play[0] = (struct play){space.list[0].spec.kv_write.turns,
                            space.list[0].spec.kv_write.occupancy, HANGS, 0};
    kgen__space other = space_of("kv_write:d=128,waves=4,turns=1,occ=1", "cpu:sm90");
    int differs = other.list[0].spec.kv_write.turns != play[0].turns ||
                  other.list[0].spec.kv_write.occupancy != play[0].occ;
    kgen__space_free(&space);
    kgen__space_free(&other);
    json_t *report = run_of(&s);
    int failed = 0;
    for (size_t i = 0; i < 3; i++)
        failed += !strcmp(text_of(result_at(report, i), "outcome"), "failed");
    assert_int_equal(json_array_size(json_object_get(report, "results")), 3);
    assert_int_equal(failed, differs ? 2 : 3);
    json_decref(report);
}

/* kill -9 in the middle: the same result as without, and nothing measured twice. */
static void a_killed_run_goes_on(void **state) {
    stage s;
    (void)state;
    if (!set_up(&s, "whole")) skip();
    json_t *whole = run_of(&s);
    int times = events_in(s.journal, "times");
    set_up(&s, "killed");
    /* At least three; a run may die before it has written what its worker measured. */
    for (int kills = 0; kills < 3 || (kills < 30 && !events_in(s.journal, "times")); kills++) {
        pid_t run = fork();
        if (run == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            play[0] = (struct play){0, 0, KILLS_THE_RUN, 1 + (int)((seed + (uint64_t)kills) % 9)};
            json_t *report;
            kgen__tuner_run(&report, &s.set, &s.device, NULL);
            _exit(0);
        }
        int end;
        assert_int_equal(waitpid(run, &end, 0), run);
        assert_true(WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL);
    }
    int before = events_in(s.journal, "times");
    assert_true(before > 0 && before < times);
    samples_of_worker = 0;
    json_t *report = run_of(&s);
    /* A sample that died with its run is taken again, and may come out otherwise: the
     * search then takes a few more, or fewer. */
    int after = events_in(s.journal, "times");
    print_message("%d samples, %d of them before the last kill; %d without kills\n", after, before,
                  times);
    assert_true(after > times - times / 4 && after < times + times / 4);
    assert_string_equal(text_of(result_at(report, 0), "keys"),
                        text_of(result_at(whole, 0), "keys"));
    assert_string_equal(text_of(result_at(report, 0), "outcome"), "tuned");
    json_decref(report);
    json_decref(whole);
}

static void without_time_everything_stays(void **state) {
    stage s;
    (void)state;
    if (!set_up(&s, "no-time")) skip();
    s.set.count = 4;
    s.set.budget = 0;
    json_t *report = run_of(&s);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(text_of(result_at(report, i), "outcome"), "unfinished");
    assert_int_not_equal(access(s.out, F_OK), 0);
    json_decref(report);
    s.set.budget = -1; /* more time: the same journal is finished */
    report = run_of(&s);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(text_of(result_at(report, i), "outcome"), "tuned");
    json_decref(report);
}

static void a_device_that_is_not_there_is_said(void **state) {
    kgen__tuner_device device;
    kgen_error err;
    (void)state;
    assert_int_equal(kgen__tuner_probe(&device, "cpu:none", &err), KGEN_E_TARGET);
    assert_int_equal(kgen__tuner_probe(&device, "gpu:0", &err), KGEN_E_DEVICE);
    assert_non_null(strstr(err.text, "gpu:0"));
}

static void recorded_times_are_searched(void **state) {
    stage s;
    kgen_error err;
    json_t *report;
    (void)state;
    if (!set_up(&s, "record")) skip();
    s.set.search.strategy = kgen__strategy_at(2);
    json_decref(run_of(&s));
    const kgen__search_options search = {.seed = seed};
    OK(kgen__tuner_simulate(&report, s.journal, &search, 5, &err));
    const json_t *result = result_at(report, 0);
    json_t *strategies = json_object_get(result, "strategies");
    assert_int_equal(json_array_size(strategies), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_array_get(strategies, i);
        if (strcmp(text_of(one, "search"), "random") != 0) /* may miss the best of so few */
            assert_true(json_number_value(json_object_get(one, "worst_gap")) < 0.01);
        assert_true(json_number_value(json_object_get(one, "all_time")) > 0);
    }
    json_decref(report);
    assert_int_equal(kgen__tuner_simulate(&report, path_of("none"), &search, 5, &err), KGEN_E_IO);
}

int main(void) {
    seed = test_seed();
    if (!mkdtemp(scratch)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_candidate_is_allowed),
        cmocka_unit_test(the_default_comes_first),
        cmocka_unit_test(sizes_are_as_expected),
        cmocka_unit_test(a_bad_spec_is_refused),
        cmocka_unit_test(halving_is_close_in_a_fifth_of_the_time),
        cmocka_unit_test(exhaustive_finds_the_best),
        cmocka_unit_test(what_was_dropped_never_wins),
        cmocka_unit_test(without_the_default_there_is_no_choice),
        cmocka_unit_test(only_a_sure_gain_replaces_the_default),
        cmocka_unit_test(samples_end_when_the_answer_is_sure),
        cmocka_unit_test(the_same_seed_takes_the_same_way),
        cmocka_unit_test(time_runs_out),
        cmocka_unit_test(strategies_have_names),
        cmocka_unit_test(a_worker_is_watched),
        cmocka_unit_test(a_journal_remembers),
        cmocka_unit_test(bad_journals_are_refused),
        cmocka_unit_test(a_device_that_is_not_there_is_said),
        cmocka_unit_test(a_run_finds_the_fastest),
        cmocka_unit_test(hung_and_crashed_candidates_are_left_out),
        cmocka_unit_test(wrong_results_are_dropped_loudly),
        cmocka_unit_test(a_default_that_hangs_fails_its_kernel_only),
        cmocka_unit_test(a_killed_run_goes_on),
        cmocka_unit_test(without_time_everything_stays),
        cmocka_unit_test(recorded_times_are_searched),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    return system(command) || failed;
}

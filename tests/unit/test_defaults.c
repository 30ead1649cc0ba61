/* Whoever names no tuning key gets a kernel: what is chosen for random specs, and for sizes of
 * their problems, compiles for a GPU of every isa, and the resource gate takes 99 of 100. The
 * compiler's registers are foretold by formulas (gen/attn_needs.c), and specs are too many for
 * these to be right of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "check/check.h"
#include "seed.h"

enum { SPECS = 24 };

static kgen__rng rng;

/* Half of them are attention, whose forms are most. */
static kgen_family_id draw_family(void) {
    int64_t n = kgen__rng_range(&rng, 0, 2 * KGEN_FAMILY_COUNT - 1);
    return n < KGEN_FAMILY_COUNT ? (kgen_family_id)n : KGEN_FAMILY_ATTN;
}

static void draw(kgen_job *job, const kgen_target *target) {
    kgen__case c;
    kgen_error err;
    kgen_spec *variants = NULL;
    size_t count = 0;
    if (kgen__case_random(&c, draw_family(), &rng, target, 0, &err) != KGEN_OK)
        fail_msg("%s", err.text);
    kgen_spec_open_tuning(&c.spec);
    if (kgen_tuning_variants(&variants, &count, NULL, &c.spec, target, &err) != KGEN_OK)
        fail_msg("%s", err.text);
    job->target = target;
    job->spec = count ? variants[kgen__rng_next(&rng) % count] : c.spec;
    free(variants);
}

/* How many were refused. */
static int refused(const kgen_job *jobs, const kgen_job_result *results) {
    int count = 0;
    for (int i = 0; i < SPECS; i++) {
        char line[KGEN_SPEC_LINE_MAX];
        kgen_entry_free(results[i].entry);
        if (results[i].outcome != KGEN_JOB_FAILED) continue;
        kgen_spec_print(line, &jobs[i].spec);
        print_message("%s on %s: %s\n", line, jobs[i].target->name, results[i].error.text);
        count++;
    }
    return count;
}

static int check_target(const kgen_target *target) {
    kgen_job jobs[SPECS];
    kgen_job_result results[SPECS];
    const kgen_build_options options = {.size = sizeof options};
    for (int i = 0; i < SPECS; i++) draw(&jobs[i], target);
    kgen_build(NULL, jobs, SPECS, &options, results, NULL);
    return refused(jobs, results);
}

/* One of the GPUs of an isa, another in each run. */
static const kgen_target *draw_target(kgen_isa isa) {
    const kgen_target *drawn = NULL;
    uint64_t seen = 0;
    for (size_t i = 0; i < kgen_target_count(); i++) {
        const kgen_target *t = kgen_target_at(i);
        if (t->isa == isa && t->vendor != KGEN_VENDOR_CPU && kgen__rng_next(&rng) % ++seen == 0)
            drawn = t;
    }
    return drawn;
}

static void test_what_is_chosen_builds(void **state) {
    (void)state;
    int bad = 0, drawn = 0;
    if (test_level() != LEVEL_FULL) skip();
    for (kgen_isa isa = 0; isa < KGEN_ISA_COUNT; isa++) {
        const kgen_target *target = draw_target(isa);
        kgen_toolchain tc;
        kgen_error err;
        if (kgen_toolchain_find(&tc, target, &err) == KGEN_OK)
            bad += check_target(target), drawn += SPECS;
        else
            print_message("skipped: %s\n", err.text);
    }
    print_message("%d of %d refused\n", bad, drawn);
    assert_in_range(bad, 0, drawn / 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_chosen_builds)};
    kgen__rng_seed(&rng, test_seed(), 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

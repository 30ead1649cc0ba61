/* Families as rows: every one is whole, and an id that is none crashes nothing.
 * The verbs on two specs, and the public view of the parameters. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kgen/kgen.h>
#include <kgen/params.h>
#include <kgen/tuning_rows.h>

#include "check/check_family.h"
#include "gen/family.h"
#include "predict/predict_family.h"
#include "runtime/launch.h"
#include "workload/workload_family.h"
#include "seed.h"

static kgen__rng rng;

static const kgen_target *target(void) {
    const kgen_target *found = NULL;
    assert_int_equal(kgen_target_find(&found, "gfx942", NULL), KGEN_OK);
    return found;
}

static kgen_spec random_spec(kgen_family_id id) {
    static kgen__case c;
    kgen_error err;
    if (kgen__case_random(&c, id, &rng, NULL, 0, &err) != KGEN_OK) fail_msg("%s", err.text);
    return c.spec;
}

/* ---- every family is whole ------------------------------------------------- */

static void check_whole(kgen_family_id id, const kgen__launcher *launcher) {
    const kgen__family *f = kgen__family_of(id);
    assert_true(f->params && f->param_count && (f->template_name || f->template_of));
    assert_true(f->applicable && f->defaults && f->launch_shape && f->occupancy && f->symbol);
    assert_true(launcher->pack && launcher->workspace_bytes);
    assert_in_range(launcher->packed_bytes, 1, KGEN__PACKED_MAX);
    const kgen__check_family *c = kgen__check_family_of(id);
    assert_true(c->keys && c->implied && c->settle && c->random && c->alone && c->shape);
    assert_true(c->fill && c->refill && !c->answer != !c->compare);
    const kgen__workload_family *w = kgen__workload_family_of(id);
    assert_true(w->plan && w->make && w->batch && w->problems && w->problem_count);
    const kgen__predict_family *p = NULL;
    assert_int_equal(kgen__predict_family_of(&p, id, NULL), KGEN_OK);
    assert_true(p->bytes && p->cut && p->reads && p->cycles > 0);
    kgen_scatter_args scatter = {.op = KGEN_OP_SPEC_PREPARE};
    kgen_args args = {.family = id, .any = id == KGEN_FAMILY_SCATTER ? &scatter : NULL};
    assert_in_range(kgen_args_count(&args), 1, KGEN_ARGS_TENSORS_MAX);
}

static void test_every_family_is_whole(void **state) {
    (void)state;
#define KGEN_FAMILY(name, NAME) check_whole(KGEN_FAMILY_##NAME, &kgen__launch_##name);
#include <kgen/families.def>
}

/* ---- ids that are none ------------------------------------------------------- */

static void check_spec_calls(const kgen_spec *none) {
    char line[KGEN_SPEC_LINE_MAX], symbol[KGEN_SYMBOL_MAX];
    kgen_spec out = *none;
    kgen_source source;
    assert_int_equal(kgen_spec_validate(none, NULL, NULL), KGEN_E_SPEC);
    assert_int_equal(kgen_spec_validate(none, target(), NULL), KGEN_E_SPEC);
    assert_int_equal(kgen_spec_resolve(&out, none, target(), NULL), KGEN_E_SPEC);
    assert_int_equal(kgen_source_render(&source, none, target(), NULL), KGEN_E_SPEC);
    kgen_spec_print(line, none);
    assert_string_equal(line, "unknown:");
    kgen_spec_symbol(symbol, none);
    assert_string_equal(symbol, "");
    assert_int_equal(kgen_spec_lanes(none, target()), 0);
    assert_int_equal(kgen_spec_occupancy(none), 0);
    kgen_spec_open_tuning(&out);
    assert_memory_equal(&out, none, sizeof out);
    assert_true(kgen_spec_equal(&out, none));
    out.family = KGEN_FAMILY_ATTN;
    assert_false(kgen_spec_equal(&out, none));
    assert_false(kgen_spec_equal(none, &out));
    assert_false(kgen_spec_same_shape(none, &out));
}

static void check_family_calls(kgen_family_id none) {
    kgen_args args = {.family = none};
    char *text;
    assert_string_equal(kgen_family_name(none), "unknown");
    assert_int_equal(kgen_spec_help(&text, none, NULL), KGEN_E_SPEC);
    assert_int_equal(kgen_param_count(none), 0);
    assert_null(kgen_param_at(none, 0));
    assert_int_equal(kgen_args_count(&args), 0);
    assert_null(kgen_args_tensor(&args, 0));
    assert_null(kgen_args_name(&args, 0));
    assert_int_equal(kgen_args_use(&args, 0), KGEN_USE_IN);
}

static void check_tuning_calls(const kgen_spec *none) {
    char line[KGEN_TUNING_LINE_MAX], digest[65];
    const kgen_problem one = {1, 1, 1};
    kgen_tuning_row row = {.spec = *none, .target = target(), .problem = one};
    kgen_tuning_match match;
    kgen_spec out, *list;
    size_t count;
    int stale;
    assert_int_equal(kgen_tuning_resolve(&out, &match, NULL, none, &one, target(), NULL, NULL),
                     KGEN_E_SPEC);
    assert_int_equal(kgen_tuning_variants(&list, &count, NULL, none, target(), NULL), KGEN_E_SPEC);
    assert_int_equal(kgen_tuning_row_digest(digest, none, target(), NULL), KGEN_E_SPEC);
    assert_int_equal(kgen_tuning_row_stale(&stale, &row, NULL), KGEN_E_SPEC);
    assert_int_not_equal(kgen_tuning_row_print(line, &row, NULL), KGEN_OK);
}

static void check_other_rooms(const kgen_spec *none) {
    static kgen__case c;
    const kgen_problem one = {1, 1, 1}, *problems;
    const kgen_job job = {.spec = *none, .target = target()};
    kgen_key key;
    double read, written;
    assert_int_equal(kgen_job_key(&key, &job, NULL), KGEN_E_SPEC);
    assert_int_equal(kgen__case_random(&c, none->family, &rng, NULL, 0, NULL), KGEN_E_ARG);
    assert_int_equal(kgen__predict_bytes(&read, &written, none, &one, NULL), KGEN_E_ARG);
    assert_int_equal(kgen__workload_problems(&problems, none->family), 0);
    assert_int_equal(kgen__workload_heads(none->family, 8), 0);
    assert_int_equal(kgen__workload_reads(none->family), 0);
}

/* In every call that takes one. */
static void test_ids_that_are_none(void **state) {
    (void)state;
    static const int ids[] = {
        KGEN_FAMILY_COUNT, KGEN_FAMILY_COUNT + 1, 1 << 20, INT_MAX, -1, INT_MIN};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        kgen_spec none = random_spec((kgen_family_id)(i % KGEN_FAMILY_COUNT));
        none.family = (kgen_family_id)ids[i];
        check_spec_calls(&none);
        check_family_calls(none.family);
        check_tuning_calls(&none);
        check_other_rooms(&none);
    }
}

/* A spec of zeros is attn with every key missing. */
static void test_specs_of_zeros(void **state) {
    (void)state;
    kgen_spec zeros;
    char line[KGEN_SPEC_LINE_MAX];
    memset(&zeros, 0, sizeof zeros);
    assert_int_equal(kgen_spec_validate(&zeros, NULL, NULL), KGEN_E_SPEC);
    kgen_spec_print(line, &zeros);
    assert_int_equal(strncmp(line, "attn:", 5), 0);
    kgen_spec_symbol(line, &zeros);
}

/* ---- two specs ----------------------------------------------------------------- */

static int tuning_keys(kgen_family_id id) {
    int count = 0;
    for (int i = 0; i < kgen_param_count(id); i++)
        count += kgen_param_at(id, i)->role == KGEN_ROLE_TUNE;
    return count;
}

/* One parameter changed: that is the difference, and the shape's if it is one of shape. */
static void check_one_change(const kgen_spec *a, int index) {
    const kgen_param *param = kgen_param_at(a->family, index);
    kgen_spec b = *a;
    kgen_param_set(&b, param, kgen_param_get(a, param) + 1);
    assert_int_equal(kgen_param_get(&b, param), kgen_param_get(a, param) + 1);
    assert_int_equal(kgen_spec_difference(a, &b), 1);
    assert_false(kgen_spec_equal(a, &b));
    assert_int_equal(kgen_spec_same_shape(a, &b), param->role == KGEN_ROLE_TUNE);
}

static void check_opened(const kgen_spec *a) {
    kgen_spec tuned = *a;
    for (int i = 0; i < kgen_param_count(a->family); i++) {
        const kgen_param *param = kgen_param_at(a->family, i);
        if (param->role == KGEN_ROLE_TUNE) kgen_param_set(&tuned, param, param->initial + 1);
    }
    kgen_spec open = tuned;
    kgen_spec_open_tuning(&open);
    assert_int_equal(kgen_spec_difference(&open, &tuned), tuning_keys(a->family));
    assert_true(kgen_spec_same_shape(&open, a));
    for (int i = 0; i < kgen_param_count(a->family); i++) {
        const kgen_param *param = kgen_param_at(a->family, i);
        if (param->role == KGEN_ROLE_TUNE)
            assert_int_equal(kgen_param_get(&open, param), param->initial);
    }
}

static void test_two_specs(void **state) {
    (void)state;
    for (kgen_family_id id = 0; id < KGEN_FAMILY_COUNT; id++) {
        kgen_spec a = random_spec(id), same = a;
        assert_true(kgen_spec_equal(&a, &same) && kgen_spec_same_shape(&a, &same));
        for (int i = 0; i < kgen_param_count(id); i++) check_one_change(&a, i);
        check_opened(&a);
        same.family = (kgen_family_id)((id + 1) % KGEN_FAMILY_COUNT);
        assert_int_equal(kgen_spec_difference(&a, &same), kgen_param_count(id) + 1);
        assert_null(kgen_param_at(id, -1));
        assert_null(kgen_param_at(id, kgen_param_count(id)));
    }
}

/* ---- tensors of a case come from their rows ---------------------------------- */

/* A row's size that a case does not know is refused by name; what the spec says of
 * a size needs no case. */
static void test_sizes_that_no_case_knows(void **state) {
    const kgen_arg_size rows[] = {{"S", 2}, {"S+1", 3}, {"R", 5}, {"Hkv", 4}, {"pages", 6}};
    const size_t count = sizeof rows / sizeof rows[0];
    static kgen__data data;
    kgen_error err = {KGEN_OK, ""};
    (void)state;
    const char line[] = "kv_gather:kv=bf16,o=bf16,d=64,page=16,layout=nhd";
    assert_int_equal(kgen_spec_parse(&data.spec, line, &err), KGEN_OK);
    kgen_args_init(&data.args, &data.room, &data.spec);
    assert_int_equal(kgen__data_shape(&data, rows, count - 1, 0, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "block_table: shape[1]=pages: not among the sizes");
    assert_int_equal(kgen__data_shape(&data, rows, count, 0, &err), KGEN_OK);
    const kgen_tensor *k = &data.room.kv_gather.k;
    assert_true(k->dtype == KGEN_DTYPE_BF16 && k->rank == 3);
    assert_true(k->shape[0] == 5 && k->shape[1] == 4 && k->shape[2] == 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_is_whole),    cmocka_unit_test(test_ids_that_are_none),
        cmocka_unit_test(test_specs_of_zeros),           cmocka_unit_test(test_two_specs),
        cmocka_unit_test(test_sizes_that_no_case_knows),
    };
    uint64_t seed = test_seed();
    kgen__rng_seed(&rng, seed, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The arguments of launches, all families: what a kernel was not built for is
 * refused by name. Driven by the rows of <family>_args.def. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "runtime/launch.h"
#include "seed.h"

enum { SPECS = 60, MORE_SPECS = 3000 };

static kgen_error did;
static uint64_t seed;

#define DO(call) \
    if ((call) != KGEN_OK) fail_msg("%s", did.text)

/* ---- a kernel that is never loaded, and valid arguments for it ---------------- */

typedef struct rig {
    kgen_context ctx;
    kgen_kernel kernel;
    kgen__data data;
    kgen_args args;
    char line[KGEN__CASE_LINE_MAX];
    void *memory;
} rig;

static void make_case(rig *r, kgen__case *c, uint64_t drawn) {
    memset(r, 0, sizeof *r);
    DO(kgen_target_find(&r->ctx.target, "cpu:cdna3", &did));
    r->kernel.ctx = &r->ctx;
    r->kernel.config.grid = 8;
    kgen__case_draw(c, drawn);
    kgen__case_print(r->line, c);
    DO(kgen_spec_resolve(&r->kernel.spec, &c->spec, r->ctx.target, &did));
    kgen__launch_bind(&r->kernel);
    DO(kgen__data_make(&r->data, c, &r->kernel.spec, &did));
    r->args = r->data.args;
    DO(kgen_workspace_size(&r->kernel, &r->args, &r->args.workspace_bytes, &did));
    r->memory = aligned_alloc(256, r->args.workspace_bytes + 256);
    r->args.workspace = r->memory;
    if (kgen_launch_check(&r->kernel, &r->args, &did) != KGEN_OK)
        fail_msg("%s: %s", r->line, did.text);
}

static void make_random(rig *r, kgen_family_id family, kgen__rng *rng) {
    const kgen_target *target;
    kgen__case c;
    DO(kgen_target_find(&target, "cpu:cdna3", &did));
    DO(kgen__case_random(&c, family, rng, target, 0, &did));
    make_case(r, &c, kgen__rng_next(rng));
}

static void free_rig(rig *r) {
    free(r->memory);
    kgen__data_free(&r->data);
}

static void refuse(const rig *r, const char *name, const char *says) {
    kgen_error err = {KGEN_OK, ""};
    if (kgen_launch_check(&r->kernel, &r->args, &err) == KGEN_OK)
        fail_msg("%s: %s is ignored", r->line, name);
    assert_int_equal(err.status, KGEN_E_ARG);
    if (strncmp(err.text, name, strlen(name)) != 0 || !strstr(err.text, says))
        fail_msg("%s: '%s' is not '%s%s'", r->line, err.text, name, says);
}

/* ---- nothing is ignored --------------------------------------------------------- */

/* Of each row of a family: how often a kernel without it was asked. */
static void refuse_tensors(rig *r, const kgen__args_rows *rows, int *asked) {
    for (int i = 0; i < rows->row_count; i++) {
        const kgen__row *row = &rows->rows[i];
        if (row->flags & KGEN__ROW_FORM || kgen__args_wants(rows, &r->kernel.spec, row->id))
            continue;
        kgen_tensor *t = (kgen_tensor *)((char *)&r->args.attn + row->offset), none = *t;
        assert_null(t->data);
        *t = kgen_tensor_dense(r, KGEN_DTYPE_F32, 1, (const int64_t[]){1});
        refuse(r, row->name, ": given, kernel built without it");
        *t = none;
        asked[row->id]++;
    }
}

static void refuse_numbers(rig *r, const kgen__args_rows *rows, int *asked) {
    uint32_t holds = rows->conditions(&r->kernel.spec);
    for (int i = 0; i < rows->number_count; i++) {
        const kgen__number_row *row = &rows->numbers[i];
        char *at = (char *)&r->args.attn + row->offset;
        if ((row->when & holds) == row->when) continue;
        *at = 1;
        refuse(r, row->name, ": kernel built without it, 0 expected");
        *at = 0;
        asked[i]++;
    }
}

/* What has met no kernel without it; every gdn kernel has slots and out. */
static const char *missing(const kgen__args_rows *rows, const int *tensors, const int *numbers) {
    for (int i = 0; i < rows->row_count; i++) {
        const char *name = rows->rows[i].name;
        int always = strcmp(name, "slots") == 0 || strcmp(name, "out") == 0;
        if (rows->rows[i].when && !always && !tensors[rows->rows[i].id]) return name;
    }
    for (int i = 0; i < rows->number_count; i++)
        if (rows->numbers[i].when && !numbers[i]) return rows->numbers[i].name;
    return NULL;
}

static const kgen__launcher *const launchers[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = &kgen__launch_##name,
#include <kgen/families.def>
};

/* Every optional argument of a family meets a kernel that was built without it. */
static void test_nothing_is_ignored(void **state) {
    (void)state;
    for (int family = 0; family < KGEN_FAMILY_COUNT; family++) {
        const kgen__args_rows *rows = launchers[family]->rows;
        if (!rows) continue;
        int tensors[KGEN_ARGS_TENSORS_MAX] = {0}, numbers[KGEN__SIZES_MAX] = {0};
        kgen__rng rng;
        kgen__rng_seed(&rng, seed, (uint64_t)family);
        for (int i = 0; i < SPECS || (i < MORE_SPECS && missing(rows, tensors, numbers)); i++) {
            rig r;
            make_random(&r, (kgen_family_id)family, &rng);
            refuse_tensors(&r, rows, tensors);
            refuse_numbers(&r, rows, numbers);
            free_rig(&r);
        }
        if (missing(rows, tensors, numbers))
            fail_msg("%s: %s met no kernel without it", kgen_family_name((kgen_family_id)family),
                     missing(rows, tensors, numbers));
    }
}

int main(void) {
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_ignored),
    };
    return cmocka_run_group_tests_name("args", tests, NULL, NULL);
}

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

enum { SPECS = 200, MORE_SPECS = 3000 };

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

/* Of a family, or an op of scatter: how often each row met a kernel without it. */
typedef struct meeting {
    const kgen__args_rows *rows;
    int tensors[KGEN__BOUND_MAX + 8], numbers[KGEN__SIZES_MAX];
} meeting;

static meeting meetings[40];

static meeting *meeting_of(const kgen__args_rows *rows) {
    meeting *m = meetings;
    while (m->rows && m->rows != rows) m++;
    m->rows = rows;
    return m;
}

static void refuse_tensors(rig *r, meeting *m) {
    for (int i = 0; i < m->rows->row_count; i++) {
        const kgen__row *row = &m->rows->rows[i];
        if (kgen__args_row(m->rows, &r->kernel.spec, row->offset)) continue;
        kgen_tensor *t = (kgen_tensor *)((char *)&r->args.attn + row->offset), none = *t;
        assert_null(t->data);
        *t = kgen_tensor_dense(r, KGEN_DTYPE_F32, 1, (const int64_t[]){1});
        refuse(r, row->name, ": given, kernel built without it");
        *t = none;
        m->tensors[i]++;
    }
}

static void refuse_numbers(rig *r, meeting *m) {
    uint32_t holds = m->rows->conditions(&r->kernel.spec);
    for (int i = 0; i < m->rows->number_count; i++) {
        const kgen__number_row *row = &m->rows->numbers[i];
        char *at = (char *)&r->args.attn + row->offset;
        if ((row->when & holds) == row->when) continue;
        *at = 1;
        refuse(r, row->name, ": kernel built without it, 0 expected");
        *at = 0;
        m->numbers[i]++;
    }
}

/* Some form of these is in every spec. */
static int is_always(const char *name) {
    static const char *const names[] = {"slots", "out", "mask"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return 1;
    return 0;
}

/* What has met no kernel without it. */
static const char *missing(const meeting *m) {
    for (int i = 0; i < m->rows->row_count; i++)
        if (m->rows->rows[i].when && !is_always(m->rows->rows[i].name) && !m->tensors[i])
            return m->rows->rows[i].name;
    for (int i = 0; i < m->rows->number_count; i++)
        if (m->rows->numbers[i].when && !m->numbers[i]) return m->rows->numbers[i].name;
    return NULL;
}

static const char *any_missing(void) {
    for (meeting *m = meetings; m->rows; m++)
        if (missing(m)) return missing(m);
    return NULL;
}

/* Every optional argument of a family meets a kernel that was built without it. */
static void test_nothing_is_ignored(void **state) {
    (void)state;
    for (int family = 0; family < KGEN_FAMILY_COUNT; family++) {
        kgen__rng rng;
        kgen__rng_seed(&rng, seed, (uint64_t)family);
        for (int i = 0; i < SPECS || (i < MORE_SPECS && any_missing()); i++) {
            rig r;
            make_random(&r, (kgen_family_id)family, &rng);
            meeting *m = meeting_of(kgen__args_rows_of(&r.kernel.spec));
            refuse_tensors(&r, m);
            refuse_numbers(&r, m);
            free_rig(&r);
        }
        if (any_missing())
            fail_msg("%s: %s met no kernel without it", kgen_family_name((kgen_family_id)family),
                     any_missing());
    }
}

int main(void) {
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_ignored),
    };
    return cmocka_run_group_tests_name("args", tests, NULL, NULL);
}

/* A kernel that is never loaded, with the arguments of a case as `kgen check` makes them; a
 * launch is noted. */
#ifndef KGEN_TESTS_UNIT_CASE_RIG_H
#define KGEN_TESTS_UNIT_CASE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "did.h"
#include "note_device.h"

typedef struct rig {
    kgen_context ctx;
    kgen_kernel kernel;
    kgen__data data;
    void *workspace;
} rig;

static inline rig *rig_of(const char *line) {
    rig *r = calloc(1, sizeof *r);
    kgen__case *c = malloc(sizeof *c);
    const kgen_target *target;
    assert_true(r && c);
    DO(kgen_target_find(&target, "gfx942", &did));
    DO(kgen__case_parse(c, line, &did));
    kgen__case_draw(c, 1);
    r->ctx = (kgen_context){.api = &note, .target = target};
    r->kernel = (kgen_kernel){.ctx = &r->ctx, .config = {.grid = 8, .block = 256}};
    DO(kgen_spec_resolve(&r->kernel.spec, &c->spec, target, &did));
    kgen__launch_bind(&r->kernel);
    DO(kgen__data_make(&r->data, c, &r->kernel.spec, &did));
    DO(kgen__data_fill(&r->data, 1, &did));
    kgen_args *args = &r->data.args;
    DO(kgen_workspace_size(&r->kernel, args, &args->workspace_bytes, &did));
    if (args->workspace_bytes)
        assert_int_equal(posix_memalign(&r->workspace, 256, args->workspace_bytes), 0);
    args->workspace = r->workspace;
    free(c);
    return r;
}

static inline void free_rig(rig *r) {
    free(r->workspace);
    kgen__data_free(&r->data);
    free(r);
}

static inline kgen_status launch(rig *r) {
    noted.launches = 0;
    did.text[0] = 0;
    return kgen_launch(&r->kernel, &r->data.args, NULL, &did);
}

/* What grows goes where nothing else is, or what is refused first may be that it reaches into
 * an output. No launch reads it. */
static inline void grow(kgen_tensor *t, int dim, int64_t count) {
    static int places;
    t->data = (void *)(uintptr_t)((1 + (uint64_t)(++places & 15)) << 42);
    t->shape[dim] = count;
}

/* For arguments that pass, of which a test then changes one thing. */
static inline rig *accepted(const char *line) {
    rig *r = rig_of(line);
    if (launch(r) != KGEN_OK || noted.launches != 1) fail_msg("%s: %s", line, did.text);
    return r;
}
/* Ends `r`. */
static inline void check_refusal(rig *r, const char *line, const char *says) {
    if (launch(r) != KGEN_E_ARG || noted.launches || !strstr(did.text, says))
        fail_msg("%s: '%s' does not say '%s'", line, did.text, says);
    free_rig(r);
}

#endif

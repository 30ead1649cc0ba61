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
#include "runtime/checks.h"
#include "templates/kg/attn/attn_packed.h"
#include "templates/kg/gdn/gdn_packed.h"
#include "did.h"
#include "note_device.h"
#include "seed.h"

enum { SPECS = 200, MORE_SPECS = 60000 }; /* a rare one in 700 specs */

static uint64_t seed;

/* ---- a device that does not know one address -------------------------------------- */

static const void *unknown;

static int knows(kgen__device *device, const void *memory) {
    (void)device;
    return memory != unknown;
}
static const char *label(const kgen__device *device) {
    (void)device;
    return "the device";
}

static const kgen__device_api api = {
    .name = "none", .reaches = knows, .label = label, .launch = note_launch};

/* ---- a kernel that is never loaded, and valid arguments for it ---------------- */

typedef struct rig {
    kgen_context ctx;
    kgen_kernel kernel;
    kgen__data data;
    kgen_args args;
    kgen_args_room room;
    char line[KGEN__CASE_LINE_MAX];
    void *memory;
} rig;

static void make_case(rig *r, kgen__case *c, uint64_t drawn) {
    memset(r, 0, sizeof *r);
    DO(kgen_target_find(&r->ctx.target, "cpu:cdna3", &did));
    r->ctx.api = &api;
    r->kernel.ctx = &r->ctx;
    r->kernel.config.grid = 8;
    kgen__case_draw(c, drawn);
    kgen__case_print(r->line, c);
    DO(kgen_spec_resolve(&r->kernel.spec, &c->spec, r->ctx.target, &did));
    kgen__launch_bind(&r->kernel);
    DO(kgen__data_make(&r->data, c, &r->kernel.spec, &did));
    kgen_args_copy(&r->args, &r->room, &r->data.args);
    DO(kgen_workspace_size(&r->kernel, &r->args, &r->args.workspace_bytes, &did));
    assert_int_equal(posix_memalign(&r->memory, 256, r->args.workspace_bytes + 256), 0);
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

enum { ROWS_MAX = 2 * KGEN__BOUND_MAX };

/* Of a family, or an op of scatter: how often each row met a kernel without it. */
typedef struct meeting {
    const kgen__args_rows *rows;
    int tensors[ROWS_MAX], held[ROWS_MAX], numbers[KGEN__SIZES_MAX];
    int specs; /* met; how many of them hold a row: held */
} meeting;

static meeting meetings[40];

static meeting *meeting_of(const kgen__args_rows *rows) {
    meeting *m = meetings;
    while (m->rows && m->rows != rows) m++;
    m->rows = rows;
    return m;
}

static void refuse_tensors(rig *r, meeting *m) {
    assert_true(m->rows->row_count <= ROWS_MAX);
    m->specs++;
    for (int i = 0; i < m->rows->row_count; i++) {
        const kgen__row *row = &m->rows->rows[i];
        const kgen__row *held = kgen__args_row(m->rows, &r->kernel.spec, row->offset);
        m->held[i] += held == row;
        if (held) continue;
        kgen_tensor *t = (kgen_tensor *)((char *)r->args.attn + row->offset), none = *t;
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
        char *at = (char *)r->args.attn + row->offset;
        if ((row->when & holds) == row->when) continue;
        *at = 1;
        refuse(r, row->name, ": kernel built without it, 0 expected");
        *at = 0;
        m->numbers[i]++;
    }
}

/* A tensor of several forms may have one in every spec. */
static int is_always(const meeting *m, int at) {
    int forms = 0, held = 0;
    for (int i = 0; i < m->rows->row_count; i++) {
        if (m->rows->rows[i].offset != m->rows->rows[at].offset) continue;
        held += m->held[i];
        forms++;
    }
    return forms > 1 && held == m->specs;
}

/* What has met no kernel without it. */
static const char *missing(const meeting *m) {
    for (int i = 0; i < m->rows->row_count; i++)
        if (m->rows->rows[i].when && !is_always(m, i) && !m->tensors[i])
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

/* Each tensor of each kernel, and the workspace, in memory that the device cannot read. */
static void test_memory_of_the_host_is_refused(void **state) {
    (void)state;
    for (int family = 0; family < KGEN_FAMILY_COUNT; family++) {
        kgen__rng rng;
        kgen__rng_seed(&rng, seed, 100 + (uint64_t)family);
        int tried = 0;
        for (int i = 0; i < SPECS / 8; i++) {
            rig r;
            make_random(&r, (kgen_family_id)family, &rng);
            const kgen__binding *b = &r.kernel.binding;
            for (int n = 0; n < b->count; n++) {
                kgen_tensor *t = (kgen_tensor *)((char *)r.args.any + b->bound[n].row->offset);
                unknown = t->data;
                if (!t->data || !kgen__tensor_elements(t)) continue;
                /* the first of those that share an address is named */
                refuse(&r, "", " is memory of the host, which the device cannot read");
                tried++;
            }
            unknown = r.args.workspace;
            if (r.args.workspace_bytes) refuse(&r, "workspace", ": address ");
            unknown = NULL;
            free_rig(&r);
        }
        assert_true(tried > SPECS / 8);
    }
}

/* ---- tensors as engines have them ----------------------------------------------- */

static void make_line(rig *r, const char *line) {
    kgen__case c;
    DO(kgen__case_parse(&c, line, &did));
    make_case(r, &c, 7);
}

static void take(const rig *r, const char *what) {
    if (kgen_launch_check(&r->kernel, &r->args, &did) != KGEN_OK)
        fail_msg("%s: %s", what, did.text);
}

/* [T][H][D] dense as [T][H D]. */
static void join(kgen_tensor *t) {
    t->shape[1] *= t->shape[2];
    t->stride[1] = 1;
    t->rank = 2;
}

#define ATTN "attn:phase=verify,kv=fp8,o=fp8,d=64,g=2,t=4,page=16,layout=nhd"

static void test_scalars_and_joined_outputs(void **state) {
    (void)state;
    rig r;
    make_line(&r, ATTN " | lens=20,30 qlens=3,4 hkv=2");
    kgen_attn_args *a = r.args.attn;
    a->k_descale = a->v_descale = a->out_scale; /* [1] */
    take(&r, "one element");
    a->out_scale.rank = a->k_descale.rank = 0;
    a->v_descale = (kgen_tensor){.data = a->v_descale.data,
                                 .dtype = KGEN_DTYPE_F32,
                                 .rank = 2,
                                 .shape = {1, 1},
                                 .stride = {1, 1}};
    take(&r, "0-d and [1][1]");
    join(&a->out);
    take(&r, "[T][H D]");
    a->out.shape[1]--;
    refuse(&r, "out", "rank 2, 3 expected");
    a->out.shape[1]++;
    a->out.stride[1] = 2; /* would need a copy */
    refuse(&r, "out", "rank 2, 3 expected");
    free_rig(&r);
    make_line(&r, "gdn:fuse=e,layout=flat,hk=1,hv=2,dk=64,dv=64 | seqs=2");
    join(&r.args.gdn->out);
    take(&r, "gdn [T][Hv V]");
    kgen_tensor *w = &r.args.gdn->conv_weight;
    w->shape[2] = w->shape[1], w->stride[2] = 1;
    w->shape[1] = 1, w->rank = 3;
    take(&r, "[C][1][w]");
    w->shape[1] = 2;
    refuse(&r, "conv_weight", "rank 3, 2 expected");
    free_rig(&r);
}

static void test_caches_of_bytes_and_longer_tables(void **state) {
    (void)state;
    rig r;
    make_line(&r, ATTN " | lens=20,30 qlens=3,4 hkv=2");
    kgen_attn_args *a = r.args.attn;
    a->k.dtype = a->v.dtype = KGEN_DTYPE_U8;
    take(&r, "fp8 caches as bytes");
    a->k.stride[0] += 256; /* pages with room between them */
    a->v.stride[0] += 512;
    take(&r, "padded pages");
    a->block_table.shape[0] += 5;
    take(&r, "a table with more rows");
    a->block_table.shape[0] = 1;
    refuse(&r, "block_table", "shape[0]=1, at least 2 expected");
    free_rig(&r);
    make_line(&r, "attn:d=64,g=2 | lens=20,30 hkv=2");
    r.args.attn->k.dtype = KGEN_DTYPE_U8;
    refuse(&r, "k", "dtype u8, kernel built for bf16");
    free_rig(&r);
}

/* q, k and v of one projection; rows that are not contiguous need a copy. */
static void test_views_of_one_projection(void **state) {
    (void)state;
    rig r;
    make_line(&r, "kv_write:d=64 | lens=5,3 cached=9 hkv=2");
    kgen_kv_write_args *a = r.args.kv_write;
    a->k.stride[0] = a->v.stride[0] = 8 * 64;
    a->k.data = (void *)((uintptr_t)1 << 46); /* apart from all that is there */
    a->v.data = (char *)a->k.data + (size_t)2 * 64 * 2;
    take(&r, "parts of rows");
    a->k.stride[2] = 2;
    refuse(&r, "k", "stride[2]=2, 1 expected");
    free_rig(&r);
}

static void empty(kgen_tensor *t, int dim) {
    t->shape[dim] = 0;
    t->data = NULL;
}

static void test_empty_tensors_have_no_address(void **state) {
    (void)state;
    rig r;
    make_line(&r, "attn:d=64,g=2 | lens=20 hkv=2");
    kgen_attn_args *a = r.args.attn;
    empty(&a->q, 0);
    empty(&a->out, 0);
    empty(&a->seq_lens, 0);
    empty(&a->block_table, 0);
    take(&r, "no sequences");
    a->seq_lens.shape[0] = 1;
    refuse(&r, "seq_lens", "no data");
    free_rig(&r);
    make_line(&r, "scatter:op=page_table_requests,page=4 | seqs=3 lens=20,33,5");
    kgen_page_table_requests_args *p = &r.args.scatter->page_table_requests;
    empty(&p->lens, 0);
    empty(&p->requests, 0);
    empty(&p->table, 0);
    take(&r, "no requests");
    free_rig(&r);
}

/* ---- what is remembered of the last launch ------------------------------------------ */

/* The number of a launch is another each time. */
static void drop_ticket(kgen_family_id family) {
    size_t at = family == KGEN_FAMILY_GDN ? offsetof(struct kg_gdn_args, ticket)
                                          : offsetof(struct kg_attn_args, ticket);
    if (family == KGEN_FAMILY_GDN || family == KGEN_FAMILY_ATTN || family == KGEN_FAMILY_MLA)
        memset(noted.packed + at, 0, sizeof(uint32_t));
}

static struct noted launch(rig *r, kgen_status *status, kgen_error *err) {
    memset(&noted, 0, sizeof noted);
    memset(err, 0, sizeof *err);
    *status = kgen_launch(&r->kernel, &r->args, NULL, err);
    if (noted.size) drop_ticket(r->kernel.spec.family);
    return noted;
}

static void forget(rig *r) { memset(&r->kernel.memo, 0, sizeof r->kernel.memo); }

/* A launch after another says and packs what it does alone. */
static void compare_ways(rig *r, const char *what) {
    kgen_status again, alone;
    kgen_error why_again, why_alone;
    const struct noted a = launch(r, &again, &why_again);
    forget(r);
    const struct noted b = launch(r, &alone, &why_alone);
    if (again != alone || strcmp(why_again.text, why_alone.text) != 0)
        fail_msg("%s: %s: '%s' after a launch, '%s' alone", r->line, what, why_again.text,
                 why_alone.text);
    if (memcmp(&a, &b, sizeof a) != 0)
        fail_msg("%s: %s: packs other bytes after a launch", r->line, what);
}

/* Of none too. */
static void *beyond(const void *address, uint64_t bytes) {
    return (void *)((uintptr_t)address + bytes);
}

static kgen_tensor *draw_tensor(const rig *r, kgen__rng *rng) {
    const kgen__binding *b = &r->kernel.binding;
    int i = (int)(kgen__rng_next(rng) % (uint64_t)b->count);
    return (kgen_tensor *)((char *)r->args.any + b->bound[i].offset);
}

/* One thing of a launch becomes another. */
static const char *change(rig *r, kgen__rng *rng) {
    const kgen__binding *b = &r->kernel.binding;
    kgen_tensor *t = draw_tensor(r, rng);
    const kgen_tensor *other = draw_tensor(r, rng);
    const uint64_t drawn = kgen__rng_next(rng);
    const int dim = (int)((drawn >> 8) % KGEN_TENSOR_RANK_MAX);
    const int64_t step = (drawn >> 16 & 1) ? 1 : -1;
    switch (drawn % 11) {
    case 0:
        t->data = beyond(t->data, 4096 * (1 + (drawn >> 8 & 7)));
        return "an address";
    case 1:
        t->data = beyond(t->data, UINT64_C(1) << (drawn >> 8 & 3));
        return "how an address is aligned";
    case 2:
        t->data = beyond(other->data, (drawn >> 8 & 1) * 16);
        return "the address of another";
    case 3:
        t->data = t->data ? NULL : (void *)r;
        return "no address, or one";
    case 4:
        t->shape[dim] += step;
        return "a size";
    case 5:
        t->stride[dim] += step;
        return "a stride";
    case 6:
        t->rank += (int32_t)step;
        return "a rank";
    case 7:
        t->dtype = (kgen_dtype)(drawn >> 8 & 7);
        return "a type";
    case 8:
        t->layout = (kgen_layout)(drawn >> 8 & 7);
        return "a layout";
    case 9:
        r->args.workspace_bytes = 0;
        return "no workspace";
    default:
        if (!b->number_count) return "nothing";
        memcpy((char *)r->args.any + b->numbers[drawn % (uint64_t)b->number_count].offset,
               &(int32_t){(int32_t)(drawn >> 40)}, sizeof(int32_t));
        return "a number";
    }
}

static void test_after_a_launch_as_alone(void **state) {
    enum { CHANGES = 150 };
    (void)state;
    for (int family = 0; family < KGEN_FAMILY_COUNT; family++) {
        kgen__rng rng;
        kgen__rng_seed(&rng, seed, 200 + (uint64_t)family);
        for (int i = 0; i < SPECS / 4; i++) {
            rig r;
            kgen_args_room room;
            kgen_args good;
            make_random(&r, (kgen_family_id)family, &rng);
            kgen_args_copy(&good, &room, &r.args);
            for (int n = 0; n < CHANGES; n++) {
                kgen_status status;
                kgen_args_copy(&r.args, &r.room, &good);
                forget(&r);
                launch(&r, &status, &did);
                if (status != KGEN_OK) fail_msg("%s: %s", r.line, did.text);
                compare_ways(&r, change(&r, &rng));
            }
            free_rig(&r);
        }
    }
}

/* Another layer of an engine: only the long way remembers. */
static void test_other_addresses_take_the_short_way(void **state) {
    static const char *const lines[] = {"attn:d=64,g=2 | lens=20,30 hkv=2",
                                        "gdn:layout=flat,fuse=e | lens=1,1",
                                        "kv_write:d=64 | lens=5,3 cached=9 hkv=2"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        rig r;
        make_line(&r, lines[i]);
        const kgen__accepted *was = &r.kernel.memo.accepted[0];
        kgen_tensor *t = (kgen_tensor *)((char *)r.args.any + r.kernel.binding.bound[0].offset);
        char *first = t->data;
        assert_ptr_equal(was->tensor.data, first);
        t->data = (void *)((uintptr_t)1 << 46); /* apart from all that is there */
        take(&r, "another address");
        assert_ptr_equal(was->tensor.data, first);
        t->shape[t->rank - 1] += 1;
        assert_int_not_equal(kgen_launch_check(&r.kernel, &r.args, &did), KGEN_OK);
        assert_ptr_equal(was->tensor.data, first);
        free_rig(&r);
    }
}

int main(void) {
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_ignored),
        cmocka_unit_test(test_memory_of_the_host_is_refused),
        cmocka_unit_test(test_scalars_and_joined_outputs),
        cmocka_unit_test(test_caches_of_bytes_and_longer_tables),
        cmocka_unit_test(test_views_of_one_projection),
        cmocka_unit_test(test_empty_tensors_have_no_address),
        cmocka_unit_test(test_after_a_launch_as_alone),
        cmocka_unit_test(test_other_addresses_take_the_short_way),
    };
    return cmocka_run_group_tests_name("args", tests, NULL, NULL);
}

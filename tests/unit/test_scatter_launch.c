/* Every argument that a launch of scatter refuses, and every contradiction of
 * its specs. Nothing is launched, so that tensors are addresses alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "check/scatter_all.h"
#include "templates/kg/scatter/scatter_packed.h"
#include "note_device.h"
#include "seed.h"

/* ---- valid arguments of each op ------------------------------------- */

typedef struct rig {
    kgen_context ctx;
    kgen_kernel kernel;
    kgen__scatter_all all; /* packed by try_launch */
} rig;

static kgen_tensor tensor(int number, kgen_dtype dtype, int32_t rank, const int64_t *shape) {
    return kgen_tensor_dense((void *)((uintptr_t)(number + 1) << 24), dtype, rank, shape);
}

#define T(number, dtype, ...)                                                              \
    tensor(number, KGEN_DTYPE_##dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
           (const int64_t[]){__VA_ARGS__})

/* Everything that some op wants, of 6 rows, D = 4, S = 3, K = 2. */
/* long: a member a line */
static kgen__scatter_all everything(void) {
    return (kgen__scatter_all){.live = T(0, I32, 1),
                               .error = T(1, I32, 1),
                               .lens = T(2, I32, 6),
                               .starts = T(3, I32, 6),
                               .valid = T(4, I32, 6),
                               .q_lens = T(5, I32, 6),
                               .accepted = T(6, I32, 6),
                               .requests = T(7, I64, 6),
                               .req_to_token = T(8, I32, 9, 100),
                               .mapping = T(9, I64, 50),
                               .indptr = T(10, I32, 7),
                               .slots = T(11, I32, 80),
                               .block_table = T(12, I32, 6, 20),
                               .positions = T(13, I64, 24),
                               .ids = T(14, I64, 6),
                               .state = T(15, I64, 6, 3),
                               .table = T(16, I32, 6, 20),
                               .swa_table = T(17, I32, 6, 22),
                               .row_offsets = T(18, I32, 6),
                               .indices = T(19, I32, 90),
                               .seq_lens = T(20, I32, 6),
                               .step_lens = T(21, I32, 3, 6),
                               .qo_indptr = T(22, I32, 7),
                               .kv_indptr = T(23, I32, 7),
                               .locs = T(24, I64, 24),
                               .swa_locs = T(25, I64, 24),
                               .positions_out = T(26, I64, 24),
                               .source_locs = T(27, I64, 24),
                               .free_locs = T(28, I64, 24),
                               .accept_index = T(29, I32, 6, 4),
                               .accept_count = T(30, I32, 6),
                               .predicts = T(31, I32, 6, 4),
                               .counts = T(32, I32, 6),
                               .draft_ends = T(33, I32, 6),
                               .sample_index = T(34, I32, 6),
                               .tokens_in = T(35, I64, 6, 4),
                               .targets_in = T(36, I64, 6, 4),
                               .backup = T(37, I64, 6),
                               .next = T(38, I64, 6),
                               .selected = T(39, I64, 6, 3),
                               .parents = T(40, I64, 6, 5),
                               .tree_index = T(41, I64, 6, 4),
                               .next_token = T(42, I64, 6, 4),
                               .next_sibling = T(43, I64, 6, 4),
                               .words = T(44, I32, 6, 4),
                               .mask = T(45, U8, 6, 4, 4),
                               .mask_out = T(46, U8, 6, 4, 4),
                               .probs = T(47, F32, 6, 4, 30),
                               .coins = T(48, F32, 6, 4),
                               .final_coins = T(49, F32, 6),
                               .pools = T(50, I64, 5),
                               .sources = T(51, I64, 6, 4),
                               .targets = T(52, I64, 6, 4),
                               .row_index = T(53, I64, 6),
                               .pairs = T(54, I64, 6, 2),
                               .rows_in = T(55, U8, 9, 32),
                               .rows_out = T(56, U8, 6, 32),
                               .step_starts = T(57, I32, 3, 6),
                               .starts_out = T(58, I32, 6),
                               .drafts = T(59, I64, 24),
                               .bonus = T(60, I64, 6),
                               .draft_probs = T(61, F32, 24, 30),
                               .noise = T(62, F32, 6, 30),
                               .greedy = T(63, U8, 6),
                               .chunk = 16,
                               .window = 16,
                               .pad_len = 4,
                               .max_len = 99,
                               .tokens = 4,
                               .steps = 3,
                               .topk = 2,
                               .vocab = 30,
                               .cp_size = 1,
                               .cp_interleave = 1,
                               .groups = 1,
                               .heads = 8,
                               .kv_heads = 2,
                               .max_splits = 8,
                               .compute_units = 100,
                               .threshold_single = 1,
                               .threshold_acc = 1,
                               .slot_count = 24,
                               .page_bytes = 64,
                               .token_bytes = 16,
                               .piece_bytes = 16,
                               .piece_stride = 64,
                               .pieces = 1};
}

/* Where ops disagree on a shape. */
static void reshape(kgen__scatter_all *a, const kgen_scatter_spec *s) {
    switch (s->op) {
    case KGEN_OP_DRAFT_PAGE_TABLE:
        a->table = T(16, I32, 3, 12, 20);
        break;
    case KGEN_OP_DRAFT_KV_INDICES:
        a->indices = T(19, I32, 3, 90);
        a->kv_indptr = T(23, I32, 3, 13);
        break;
    case KGEN_OP_CHUNK_CONTEXT:
        a->kv_indptr = T(23, I32, 3, 7);
        break;
    case KGEN_OP_DRAFT_LENS:
        a->positions_out = T(26, I64, 3, 6);
        break;
    case KGEN_OP_CACHE_LOCS:
        if (s->form == KGEN_FORM_DRAFT) a->locs = T(24, I64, 36);
        if (s->form == KGEN_FORM_LAST) a->locs = T(24, I64, 6);
        break;
    case KGEN_OP_EAGLE_STEP:
        a->positions = T(13, I64, 6);
        a->positions_out = T(26, I64, 6);
        a->locs = T(24, I64, 6);
        break;
    case KGEN_OP_ACCEPT_LOCS:
        a->counts = T(32, I32, 1);
        break;
    case KGEN_OP_KEEP_LOCS:
        a->counts = T(32, I32, 2);
        break;
    case KGEN_OP_EVICT_MASK:
        a->mask = T(45, U8, 6, 4);
        a->mask_out = T(46, U8, 6, 4);
        break;
    case KGEN_OP_TREE_BUILD:
        if (s->mask == KGEN_MASK_FULL) a->mask_out = T(46, U8, 900);
        break;
    case KGEN_OP_TREE_MASK:
        if (s->mask == KGEN_MASK_FULL) a->mask = T(45, U8, 900);
        break;
    case KGEN_OP_REJECT:
        a->targets_in = T(36, I64, 24);
        a->probs = T(47, F32, 24, 30);
        a->coins = T(48, F32, 24);
        break;
    case KGEN_OP_PAGE_TABLE_REQUESTS:
        if (s->by_request) a->lens = T(2, I32, 9);
        break;
    case KGEN_OP_SLOT_MAPPING:
        if (s->by_request) a->block_table = T(12, I32, 8, 20);
        break;
    default:
        break;
    }
}

static void make(rig *r, const char *line) {
    kgen_spec spec;
    kgen_error err;
    memset(r, 0, sizeof *r);
    if (kgen_spec_parse(&spec, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    assert_int_equal(kgen_target_find(&r->ctx.target, "cpu:cdna3", &err), KGEN_OK);
    r->ctx.api = &note;
    r->kernel.ctx = &r->ctx;
    if (kgen_spec_resolve(&r->kernel.spec, &spec, r->ctx.target, &err) != KGEN_OK)
        fail_msg("%s: %s", line, err.text);
    kgen__launch_bind(&r->kernel);
    r->all = everything();
    reshape(&r->all, &spec.scatter);
}

static const char *const lines[] = {
    "scatter:op=page_table_ragged,page=16,swa=1,unaligned=1",
    "scatter:op=page_table_requests,page=16,swa=1,starts=1,unaligned=1",
    "scatter:op=spec_prepare,page=16,swa=1,delta=1,accept=1",
    "scatter:op=spec_prepare,ragged=1",
    "scatter:op=draft_page_table,page=4",
    "scatter:op=draft_kv_indices,page=4",
    "scatter:op=kv_indices,swa=1,starts=1",
    "scatter:op=draft_lens",
    "scatter:op=cache_locs",
    "scatter:op=cache_locs,form=ragged",
    "scatter:op=cache_locs,form=draft,page=4",
    "scatter:op=cache_locs,form=last",
    "scatter:op=assign_locs",
    "scatter:op=assign_locs,form=ragged",
    "scatter:op=slot_mapping,page=16",
    "scatter:op=eagle_step,page=16",
    "scatter:op=padded_inputs",
    "scatter:op=next_token",
    "scatter:op=bonus_tokens",
    "scatter:op=accept_locs",
    "scatter:op=keep_locs,page=16",
    "scatter:op=evict_mask,page=16",
    "scatter:op=kv_splits",
    "scatter:op=tree_build",
    "scatter:op=tree_build,mask=qlen",
    "scatter:op=tree_build,mask=full",
    "scatter:op=tree_from_mask,mask=qlen",
    "scatter:op=tree_from_mask",
    "scatter:op=tree_mask,mask=full",
    "scatter:op=tree_mask,mask=qlen",
    "scatter:op=tree_verify",
    "scatter:op=tree_verify,sampling=1",
    "scatter:op=kv_compact,page=4",
    "scatter:op=chunk_context",
    "scatter:op=window_lens",
    "scatter:op=gather_rows",
    "scatter:op=copy_pages",
    "scatter:op=page_table_requests,byreq=1",
    "scatter:op=slot_mapping,page=16,byreq=1",
    "scatter:op=reject",
    "scatter:op=reject,sampling=1",
    "scatter:op=reject,sampling=1,race=1",
};
enum { LINES = sizeof lines / sizeof lines[0] };

static kgen_status try_launch(rig *r, kgen_error *err) {
    kgen_scatter_args scatter;
    kgen_args args = {.family = KGEN_FAMILY_SCATTER, .scatter = &scatter};
    noted.launches = 0;
    err->text[0] = 0;
    kgen__scatter_pack(&scatter, &r->kernel.spec.scatter, &r->all);
    kgen_status status = kgen_launch(&r->kernel, &args, NULL, err);
    if (noted.launches) assert_int_equal(noted.size, sizeof(struct kg_scatter_args));
    assert_int_equal(noted.launches, status == KGEN_OK && r->all.lens.shape[0] > 0);
    return status;
}

static void test_valid_arguments_are_launched(void **state) {
    (void)state;
    for (size_t i = 0; i < LINES; i++) {
        rig r;
        kgen_error err;
        make(&r, lines[i]);
        if (try_launch(&r, &err) != KGEN_OK) fail_msg("%s: %s", lines[i], err.text);
        assert_true(noted.config.grid > 0);
    }
}

/* ---- every tensor, whatever the op ---------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} tensors[] = {
#define X(name) {#name, offsetof(kgen__scatter_all, name)}
    X(live),         X(error),         X(lens),        X(starts),       X(valid),
    X(q_lens),       X(accepted),      X(requests),    X(req_to_token), X(mapping),
    X(indptr),       X(slots),         X(block_table), X(positions),    X(ids),
    X(state),        X(table),         X(swa_table),   X(row_offsets),  X(indices),
    X(seq_lens),     X(step_lens),     X(qo_indptr),   X(kv_indptr),    X(locs),
    X(swa_locs),     X(positions_out), X(source_locs), X(free_locs),    X(accept_index),
    X(accept_count), X(predicts),      X(counts),      X(draft_ends),   X(sample_index),
    X(tokens_in),    X(targets_in),    X(backup),      X(next),         X(selected),
    X(parents),      X(tree_index),    X(next_token),  X(next_sibling), X(words),
    X(mask),         X(mask_out),      X(probs),       X(coins),        X(final_coins),
    X(pools),        X(sources),       X(targets),     X(row_index),    X(pairs),
    X(rows_in),      X(rows_out),      X(step_starts), X(starts_out),   X(drafts),
    X(bonus),        X(noise),
#undef X
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

static kgen_tensor *tensor_at(rig *r, size_t i) {
    return (kgen_tensor *)((char *)&r->all + tensors[i].offset);
}

typedef enum change { OTHER_TYPE, OTHER_RANK, ONE_MORE, STRIDED, ODD_ADDRESS, NO_DATA } change;

static void apply(kgen_tensor *t, change what) {
    if (what == OTHER_TYPE) t->dtype = KGEN_DTYPE_BF16;
    if (what == OTHER_RANK) t->rank++;
    if (what == ONE_MORE) t->shape[0]++;
    if (what == STRIDED) t->stride[t->rank - 1] = 2;
    if (what == ODD_ADDRESS) t->data = (char *)t->data + 1;
    if (what == NO_DATA) t->data = NULL;
}

/* A tensor is read by the op when a wrong type is refused; then all else that
 * is wrong with it is refused too, by its name. */
static int check_tensor(const char *line, size_t i) {
    rig r;
    kgen_error err;
    char start[40];
    make(&r, line);
    apply(tensor_at(&r, i), OTHER_TYPE);
    if (try_launch(&r, &err) == KGEN_OK) return 0;
    snprintf(start, sizeof start, "%s: ", tensors[i].name);
    if (strncmp(err.text, start, strlen(start)) != 0) fail_msg("%s: %s", line, err.text);
    for (int what = OTHER_RANK; what <= NO_DATA; what++) {
        make(&r, line);
        kgen_tensor *t = tensor_at(&r, i);
        int wide = kgen_dtype_size(t->dtype) > 1, optional = i < 2;
        if ((what == ODD_ADDRESS && !wide) || (what == NO_DATA && optional)) continue;
        if (what == STRIDED && t->shape[t->rank - 1] <= 1) continue;
        if (what == ONE_MORE) continue; /* see below */
        apply(t, (change)what);
        if (try_launch(&r, &err) != KGEN_E_ARG || strlen(err.text) == 0)
            fail_msg("%s: %s with change %d is launched", line, tensors[i].name, what);
    }
    return 1;
}

static void test_every_tensor_is_checked(void **state) {
    int used[TENSORS] = {0};
    (void)state;
    for (size_t n = 0; n < LINES; n++)
        for (size_t i = 0; i < TENSORS; i++) used[i] |= check_tensor(lines[n], i);
    for (size_t i = 0; i < TENSORS; i++)
        if (!used[i]) fail_msg("%s is read by no op", tensors[i].name);
}

/* An output must not begin inside any other tensor of the launch. */
static void test_outputs_do_not_overlap(void **state) {
    uint64_t seed = test_seed();
    (void)state;
    for (size_t n = 0; n < LINES; n++) {
        int refused = 0;
        if (!test_takes(seed, n, 1, 4)) continue;
        for (size_t i = 0; i < TENSORS; i++)
            for (size_t j = 0; j < TENSORS; j++) {
                rig r;
                kgen_error err;
                make(&r, lines[n]);
                if (i == j || kgen_dtype_size(tensor_at(&r, i)->dtype) == 1) continue;
                tensor_at(&r, i)->data = tensor_at(&r, j)->data;
                refused += try_launch(&r, &err) != KGEN_OK && strstr(err.text, ": overlaps ");
            }
        if (!refused) fail_msg("%s: no output is missed", lines[n]);
    }
}

/* Lengths are an input of the drafts' lengths: never the place of the result. */
static void test_lengths_are_not_corrected_in_place(void **state) {
    rig r;
    kgen_error err;
    (void)state;
    make(&r, "scatter:op=draft_lens,sliced=1");
    r.all.seq_lens.data = r.all.lens.data;
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "lens: overlaps seq_lens, which the kernel writes");
}

/* Nor that of the other result, or of a piece of itself. */
static void test_a_draft_step_is_whole_in_place(void **state) {
    rig r;
    kgen_error err;
    (void)state;
    make(&r, "scatter:op=eagle_step,page=16");
    r.all.seq_lens.data = (char *)r.all.lens.data + 4;
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "lens: overlaps seq_lens, which the kernel writes");
    make(&r, "scatter:op=eagle_step,page=16");
    r.all.positions_out.data = r.all.locs.data;
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "positions_out: overlaps locs, which the kernel writes");
    make(&r, "scatter:op=eagle_step,page=16");
    r.all.positions_out.data = r.all.positions.data;
    r.all.seq_lens.data = r.all.lens.data;
    r.all.positions.shape[0] = r.all.positions_out.shape[0] = r.all.locs.shape[0] = 6;
    assert_int_equal(try_launch(&r, &err), KGEN_OK);
}

/* Two tables may be the halves of the rows of one allocation. */
static void test_tables_may_lie_beside_each_other(void **state) {
    rig r;
    kgen_error err;
    (void)state;
    make(&r, "scatter:op=page_table_requests,page=16,swa=1");
    kgen__scatter_all *a = &r.all;
    a->table.stride[0] = a->swa_table.stride[0] = 64;
    a->swa_table.data = (int32_t *)a->table.data + 20;
    assert_int_equal(try_launch(&r, &err), KGEN_OK);
    a->swa_table.data = (int32_t *)a->table.data + 19;
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
    a->swa_table.data = (int32_t *)a->table.data + 43; /* its end meets the next row */
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
}

/* ---- one by one ----------------------------------------------------- */

#define NUMBER(field, value) offsetof(kgen__scatter_all, field), sizeof everything().field, value

static const struct {
    const char *line;
    size_t offset, size;
    int64_t value;
    const char *message;
} numbers[] = {
    {"op=page_table_requests", NUMBER(tokens, -1), "tokens=-1: must be 0..1048576"},
    {"op=spec_prepare", NUMBER(pad_len, 3),
     "pad_len=3: at least tokens=4, or a padded row sees no key"},
    {"op=spec_prepare,pos=0", NUMBER(locs.shape[0], 23),
     "locs: shape[0]=23, 6 rows of tokens=4 need 24"},
    {"op=spec_prepare", NUMBER(seq_lens.shape[0], 7), "seq_lens: shape[0]=7, 6 expected"},
    {"op=spec_prepare", NUMBER(qo_indptr.shape[0], 6), "qo_indptr: shape[0]=6, 7 expected"},
    {"op=spec_prepare", NUMBER(positions_out.shape[0], 30),
     "positions_out: shape[0]=30, 24 expected"},
    {"op=spec_prepare,delta=1", NUMBER(state.stride[0], 4), "state: stride[0]=4, 3 expected"},
    {"op=page_table_ragged", NUMBER(indptr.shape[0], 6), "indptr: shape[0]=6, 7 expected"},
    {"op=page_table_requests", NUMBER(requests.shape[0], 5), "requests: shape[0]=5, 6 expected"},
    {"op=page_table_requests", NUMBER(table.shape[0], 5), "table: shape[0]=5, 6 expected"},
    {"op=page_table_requests", NUMBER(table.stride[0], 19),
     "table: stride[0]=19, at least 20, or its parts overlap"},
    {"op=page_table_requests", NUMBER(req_to_token.stride[0], -1),
     "req_to_token: stride[0]=-1, at least 0"},
    {"op=page_table_requests", NUMBER(live.shape[0], 2), "live: shape[0]=2, 1 expected"},
    {"op=draft_page_table", NUMBER(table.shape[0], 2), "table: shape[0]=2, 3 expected"},
    {"op=draft_page_table", NUMBER(table.shape[1], 6), "table: shape[1]=6, 12 expected"},
    {"op=draft_page_table", NUMBER(topk, 0), "topk=0: must be 1..65536"},
    {"op=draft_kv_indices", NUMBER(steps, 0), "steps=0: must be 1..65536"},
    {"op=draft_kv_indices", NUMBER(kv_indptr.shape[1], 12), "kv_indptr: shape[1]=12, 13 expected"},
    {"op=kv_indices", NUMBER(padding, -1), "padding=-1: at least 0"},
    {"op=draft_lens", NUMBER(pad_len, 3), "pad_len=3: at least 4, or a padded row sees no key"},
    {"op=draft_lens,sliced=1", NUMBER(pad_len, 0),
     "pad_len=0: at least 1, or a padded row sees no key"},
    {"op=draft_lens", NUMBER(max_len, 0), "max_len=0: at least 1"},
    {"op=draft_lens", NUMBER(tokens, 0), "tokens=0: must be 1..1048576"},
    {"op=cache_locs", NUMBER(locs.shape[0], 25), "locs: shape[0]=25, 24 expected"},
    {"op=cache_locs,form=draft", NUMBER(topk, 0), "topk=0: must be 1..65536"},
    {"op=cache_locs,form=last", NUMBER(locs.shape[0], 5), "locs: shape[0]=5, 6 expected"},
    {"op=assign_locs", NUMBER(locs.shape[0], 23), "locs: shape[0]=23, 24 expected"},
    {"op=slot_mapping", NUMBER(cp_rank, 1), "cp_rank=1: below cp_size=1"},
    {"op=slot_mapping", NUMBER(cp_size, 0), "cp_size=0: must be 1..65536"},
    {"op=slot_mapping", NUMBER(cp_interleave, 0), "cp_interleave=0: must be 1..65536"},
    {"op=slot_mapping", NUMBER(positions.shape[0], 25), "locs: shape[0]=24, 25 expected"},
    {"op=eagle_step", NUMBER(max_len, 0), "max_len=0: at least 1"},
    {"op=next_token", NUMBER(vocab, 0), "vocab=0: must be 1..2147483647"},
    {"op=next_token", NUMBER(tokens_in.shape[1], 5), "tokens_in: shape[1]=5, 4 expected"},
    {"op=accept_locs", NUMBER(locs.shape[0], 23), "locs: shape[0]=23, 24 expected"},
    {"op=accept_locs", NUMBER(counts.shape[0], 2), "counts: shape[0]=2, 1 expected"},
    {"op=keep_locs", NUMBER(free_locs.shape[0], 23), "free_locs: shape[0]=23, 24 expected"},
    {"op=kv_splits", NUMBER(max_splits, 0), "max_splits=0: must be 1..65536"},
    {"op=kv_splits", NUMBER(kv_heads, 0), "kv_heads=0: must be 1..65536"},
    {"op=kv_splits", NUMBER(groups, 2), "counts: shape[0]=6, 12 expected"},
    {"op=tree_build", NUMBER(tokens, 65), "tokens=65: must be 1..64"},
    {"op=tree_build", NUMBER(selected.shape[1], 4), "selected: shape[1]=4, 3 expected"},
    {"op=tree_build", NUMBER(positions_out.shape[0], 23),
     "positions_out: shape[0]=23, 24 expected"},
    {"op=tree_mask,mask=qlen", NUMBER(mask.shape[2], 5), "mask: shape[2]=5, 4 expected"},
    {"op=tree_verify", NUMBER(next_token.data, 0),
     "next_token: no data, but next_sibling has; a tree has both, a chain none"},
    {"op=tree_verify", NUMBER(next_sibling.data, 0),
     "next_sibling: no data, but next_token has; a tree has both, a chain none"},
    {"op=tree_verify", NUMBER(accept_index.shape[1], 0), "accept_index: shape[1]=0, at least 1"},
    {"op=tree_verify,sampling=1", NUMBER(threshold_acc, 0xbf800000),
     "threshold_acc=-1: finite, at least 0"},
    {"op=tree_verify,sampling=1", NUMBER(threshold_single, 0xbf800000),
     "threshold_single=-1: finite, at least 0"},
    {"op=kv_compact", NUMBER(page_bytes, 24), "page_bytes=24: not a multiple of unit=16"},
    {"op=kv_compact", NUMBER(piece_bytes, 0), "piece_bytes=0: must be 1..2147483647"},
    {"op=kv_compact", NUMBER(pieces, 0), "pieces=0: must be 1..16777216"},
    {"op=kv_compact", NUMBER(slot_count, -1), "slot_count=-1: at least 0"},
    {"op=kv_compact,page=16,unit=2,pack=8", NUMBER(group_bytes, 33),
     "group_bytes=33: not a multiple of unit=2"},
    {"op=kv_compact,page=16,unit=2,pack=8", NUMBER(group_bytes, -2), "group_bytes=-2: at least 0"},
    {"op=chunk_context", NUMBER(chunk, 0), "chunk=0: must be 1..1099511627776"},
    {"op=chunk_context", NUMBER(steps, 2), "step_starts: shape[0]=3, 2 expected"},
    {"op=chunk_context", NUMBER(kv_indptr.shape[1], 6), "kv_indptr: shape[1]=6, 7 expected"},
    {"op=window_lens", NUMBER(window, -1), "window=-1: must be 0..1099511627776"},
    {"op=gather_rows", NUMBER(rows_out.shape[1], 33), "rows_out: shape[1]=33, 32 expected"},
    {"op=gather_rows", NUMBER(rows_in.stride[0], 40),
     "rows_in: stride[0]=40 elements is not a multiple of 16 bytes"},
    {"op=gather_rows", NUMBER(rows_out.data, 8),
     "rows_out: address 0x8 is not a multiple of 16 bytes"},
    {"op=copy_pages", NUMBER(pairs.shape[1], 3), "pairs: shape[1]=3, 2 expected"},
    {"op=copy_pages", NUMBER(rows_in.data, 57 << 24 | 32),
     "rows_in: overlaps rows_out, which the kernel writes"},
    {"op=copy_pages", NUMBER(pairs.data, 57 << 24),
     "pairs: overlaps rows_out, which the kernel writes"},
    {"op=page_table_requests,byreq=1", NUMBER(lens.shape[0], 6),
     "req_to_token: shape[0]=9, 6 expected"},
    {"op=slot_mapping,byreq=1", NUMBER(requests.shape[0], 5), "indptr: shape[0]=7, 6 expected"},
    {"op=reject", NUMBER(predicts.shape[1], 0), "predicts: shape[1]=0, at least 1"},
    {"op=reject", NUMBER(targets_in.shape[0], 23), "targets_in: shape[0]=23, 24 expected"},
    {"op=reject,sampling=1", NUMBER(targets_in.data, 0), "targets_in: no data, but greedy has"},
    {"op=reject,sampling=1", NUMBER(draft_probs.shape[1], 29),
     "draft_probs: shape[1]=29, 30 expected"},
    {"op=reject,sampling=1,race=1", NUMBER(noise.shape[0], 5), "noise: shape[0]=5, 6 expected"},
    {"op=copy_pages", NUMBER(rows_out.stride[0], 40),
     "rows_out: stride[0]=40 elements is not a multiple of 16 bytes"},
};

static void test_numbers_and_shapes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        rig r;
        kgen_error err;
        char line[96];
        snprintf(line, sizeof line, "scatter:%s", numbers[i].line);
        make(&r, line);
        memcpy((char *)&r.all + numbers[i].offset, &numbers[i].value, numbers[i].size);
        assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
        assert_string_equal(err.text, numbers[i].message);
    }
}

static void test_rows_are_whole_units(void **state) {
    rig r;
    kgen_error err;
    (void)state;
    make(&r, "scatter:op=gather_rows");
    r.all.rows_in = T(55, U8, 9, 24);
    r.all.rows_out = T(56, U8, 6, 24);
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "rows_in: shape[1]=24: not a multiple of unit=16");
    make(&r, "scatter:op=gather_rows,unit=8");
    r.all.rows_in = T(55, U8, 9, 24);
    r.all.rows_out = T(56, U8, 6, 24);
    assert_int_equal(try_launch(&r, &err), KGEN_OK);
}

static void test_words_hold_the_tree(void **state) {
    rig r;
    kgen_error err;
    (void)state;
    make(&r, "scatter:op=tree_mask,mask=qlen,word=u8");
    r.all.tokens = 9;
    r.all.words = T(44, U8, 6, 9);
    r.all.mask = T(45, U8, 6, 9, 9);
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "tokens=9: words of 8 bits hold at most 8");
}

/* The grid follows from shapes alone, and counts past 31 bits are refused. */
static void test_grids(void **state) {
    rig r;
    kgen_error err;
    (void)state;
    make(&r, "scatter:op=page_table_requests,page=16");
    assert_int_equal(try_launch(&r, &err), KGEN_OK);
    assert_int_equal(noted.config.grid, 6);
    r.all.table = T(60, I32, 6, 1025);
    assert_int_equal(try_launch(&r, &err), KGEN_OK);
    assert_int_equal(noted.config.grid, 12);
    int64_t rows = 1 << 20, width = (int64_t)1 << 33;
    r.all.lens = T(2, I32, rows);
    r.all.requests = T(1 << 10, I64, rows);
    r.all.table = T(1 << 11, I32, rows, width);
    assert_int_equal(try_launch(&r, &err), KGEN_E_ARG);
    assert_non_null(strstr(err.text, "workgroups, at most 2^31-1"));
    make(&r, "scatter:op=page_table_requests,page=16");
    r.all.lens = T(2, I32, 0);
    r.all.requests = T(7, I64, 0);
    r.all.table = T(16, I32, 0, 20);
    assert_int_equal(try_launch(&r, &err), KGEN_OK);
    assert_int_equal(noted.launches, 0); /* no rows, nothing to do */
}

/* ---- specs ---------------------------------------------------------- */

static const struct {
    const char *line, *message;
} specs[] = {
    {"scatter", "op: missing; give one of "},
    {"scatter:op=page_table", "op=page_table: unknown value; allowed: "},
    {"scatter:op=page_table_ragged,page=24",
     "page=24: neither a power of two nor a multiple of 16"},
    {"scatter:op=page_table_ragged,page=3", "page=3: neither"},
    {"scatter:op=page_table_ragged,page=0", "page=0: out of bounds; nearest is 1"},
    {"scatter:op=page_table_ragged,starts=1",
     "starts: op=page_table_ragged does not read it; leave it out"},
    {"scatter:op=page_table_ragged,map=i32", "map: swa=0 reads no mapping; leave it out"},
    {"scatter:op=draft_lens,page=16", "page: op=draft_lens does not read it; leave it out"},
    {"scatter:op=cache_locs,page=16", "page=16: only form=draft reads it; leave it out"},
    {"scatter:op=assign_locs,form=last", "form: op=assign_locs writes uniform or ragged columns"},
    {"scatter:op=spec_prepare,seq=0,qo=0,kv=0,pages=0,locs=0,pos=0",
     "op=spec_prepare: seq, qo, kv, pages, locs and pos are all 0; nothing to do"},
    {"scatter:op=spec_prepare,pages=0,delta=1", "delta=1: pages=0 writes no table"},
    {"scatter:op=spec_prepare,pages=0,locs=0,swa=1", "swa=1: pages=0 and locs=0 read no slot"},
    {"scatter:op=spec_prepare,pages=0,tail=keep", "pages=0: no table; leave tail and pick out"},
    {"scatter:op=tree_mask", "mask=words: op=tree_mask makes words of qlen or full"},
    {"scatter:op=tree_build,mask=full,word=u8",
     "word: mask=qlen and mask=full have bytes; leave it out"},
    {"scatter:op=tree_from_mask,mask=full", "mask=full: op=tree_from_mask reads qlen or words"},
    {"scatter:op=kv_compact,unit=3", "unit=3: out of bounds; nearest is 2"},
    {"scatter:op=kv_compact,page=4,pack=8", "pack=8: does not divide page=4"},
    {"scatter:op=kv_compact,page=16,pack=3", "pack=3: out of bounds; nearest is 2"},
    {"scatter:op=evict_mask,page=16,pack=8", "pack: op=evict_mask does not read it; leave it out"},
};

static void test_contradictions_of_specs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        kgen_spec spec;
        kgen_error err = {KGEN_OK, ""};
        kgen_status status = kgen_spec_parse(&spec, specs[i].line, &err);
        if (status == KGEN_OK) status = kgen_spec_validate(&spec, NULL, &err);
        if (status != KGEN_E_SPEC ||
            strncmp(err.text, specs[i].message, strlen(specs[i].message)) != 0)
            fail_msg("%s: %s", specs[i].line, err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_arguments_are_launched),
        cmocka_unit_test(test_every_tensor_is_checked),
        cmocka_unit_test(test_outputs_do_not_overlap),
        cmocka_unit_test(test_lengths_are_not_corrected_in_place),
        cmocka_unit_test(test_a_draft_step_is_whole_in_place),
        cmocka_unit_test(test_tables_may_lie_beside_each_other),
        cmocka_unit_test(test_numbers_and_shapes),
        cmocka_unit_test(test_rows_are_whole_units),
        cmocka_unit_test(test_words_hold_the_tree),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_contradictions_of_specs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

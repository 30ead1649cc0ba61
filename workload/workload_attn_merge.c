/* Workloads of attn_merge: `batch` tokens; of a stack, `context` parts. Every set
 * has tensors of its own. Counted are rows and sums, once each. */
#include "workload_family.h"

enum { DEFAULT_HEADS = 32, DEFAULT_PARTS = 4 };

static kgen_status plan(kgen__workload *work, kgen_error *err) {
    const kgen_attn_merge_spec *s = &work->spec.attn_merge;
    int stack = s->parts == KGEN_PARTS_STACK;
    (void)err;
    if (!work->problem.heads) work->problem.heads = DEFAULT_HEADS;
    if (stack && !work->problem.context) work->problem.context = DEFAULT_PARTS;
    double rows = (double)work->problem.batch * work->problem.heads;
    double parts = stack ? work->problem.context : 2;
    work->read_bytes =
        rows * parts * (s->head_dim * kgen_dtype_size((kgen_dtype)s->x) + (int)sizeof(float));
    work->bytes = work->read_bytes +
                  rows * (s->head_dim * kgen_dtype_size((kgen_dtype)s->out) + (int)sizeof(float));
    return KGEN_OK;
}

static kgen_status make(kgen__workload *work, kgen_error *err) {
    kgen_attn_merge_args *a = work->args.attn_merge;
    const kgen_arg_size sizes[] = {
        {"N", work->problem.context}, {"T", work->problem.batch}, {"H", work->problem.heads}};
    kgen_tensor *const in[] = {&a->prefix,     &a->suffix,     &a->stacked,
                               &a->prefix_lse, &a->suffix_lse, &a->stacked_lse};
    work->sizes = sizes;
    work->size_count = sizeof sizes / sizeof sizes[0];
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
        KGEN_TRY(kgen__workload_row(work, in[i], KGEN__EACH_SET, KGEN__SIGNED, err));
    KGEN_TRY(kgen__workload_row(work, &a->out, KGEN__EACH_SET, KGEN__NOTHING, err));
    KGEN_TRY(kgen__workload_row(work, &a->lse, KGEN__EACH_SET, KGEN__NOTHING, err));
    return kgen__workload_row(work, &a->out_scale, KGEN__SHARED, KGEN__POSITIVE, err);
}

static const kgen_problem problems[] = {{64, 0, 0}, {2048, 0, 0}};

const kgen__workload_family kgen__workload_attn_merge = {
    .plan = plan,
    .make = make,
    .batch = "out",
    .heads = "out",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .usual_heads = DEFAULT_HEADS,
};

/* What the memory of a device can do, measured with kernels of our own.
 *
 * Each limit is the best of a few rows, because none is the fastest everywhere.
 * Reading: attention, which streams keys and values and writes next to nothing;
 * no other family only reads. Copying: the recurrence of Gated DeltaNet, which
 * updates 64 KiB blocks in place (on an H200 within a few percent of the best
 * plain copy), and both directions of the paged cache. On an H200 a kernel that
 * does nothing but read or copy is about 5 % faster: so near a share of 1 the
 * kernels that are judged are as good as those they are judged by. */
#include <stdlib.h>

#include "workload_family.h"

enum { SAMPLES = 9, HEADS = 8, CONTEXT = 8192 };

typedef struct limit_row {
    int is_copy;
    const char *spec;
    double unit; /* bytes of one sequence or token: a first guess of the batch */
    int32_t context;
} limit_row;

static const limit_row rows[] = {
    {0, "attn:phase=decode,d=128,g=8,page=16,layout=nhd", 4096.0 * CONTEXT, CONTEXT},
    {0, "attn:phase=decode,d=128,g=8,page=64,layout=hnd", 4096.0 * CONTEXT, CONTEXT},
    {1, "gdn:fuse=a,layout=flat,hk=2,hv=4,state=f32", 5.3e5, 0},
    {1, "kv_gather:layout=nhd,page=64", 8192, 0},
    {1, "kv_write:layout=nhd,page=64", 8192, 0},
};

/* Fewer bytes than a sequence has: a shorter one. */
static kgen_problem problem_of(const limit_row *row, double bytes) {
    double batch = bytes / row->unit;
    kgen_problem p = {.batch = 1, .context = row->context, .heads = HEADS};
    if (batch >= 1)
        p.batch = batch < 1 << 24 ? (int32_t)batch : 1 << 24;
    else if (row->context * batch >= 1)
        p.context = (int32_t)(row->context * batch);
    return p;
}

static kgen_status sample(double *rate, kgen__timer *timer, const kgen__workload *work,
                          kgen_error *err) {
    double us[SAMPLES];
    kgen__timing timing;
    for (int i = 0; i < SAMPLES; i++) KGEN_TRY(kgen__timer_sample(&us[i], timer, err));
    kgen__timing_of(&timing, us, SAMPLES);
    *rate = kgen__workload_bytes(work) / timing.us;
    return KGEN_OK;
}

static kgen_status measure(double *rate, kgen_context *ctx, const limit_row *row, double bytes,
                           kgen_error *err) {
    const kgen__workload_options options = {.cold_bytes = bytes};
    kgen_problem problem = problem_of(row, bytes);
    kgen_spec spec;
    kgen_kernel *kernel;
    kgen__workload *work = NULL;
    kgen__timer *timer = NULL;
    KGEN_TRY(kgen_spec_parse(&spec, row->spec, err));
    KGEN_TRY(kgen_prepare(ctx, &spec, 1, &kernel, err));
    KGEN_TRY(kgen__workload_make(&work, ctx, &spec, &problem, &options, err));
    kgen_status status = kgen__timer_make(&timer, work, kernel, err);
    if (status == KGEN_OK) status = sample(rate, timer, work, err);
    kgen__timer_free(timer);
    kgen__workload_free(work);
    return status;
}

kgen_status kgen__limits_measure(kgen__limits *out, kgen_context *ctx, double bytes,
                                 kgen_error *err) {
    double best[2] = {0, 0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double rate;
        KGEN_TRY(measure(&rate, ctx, &rows[i], bytes, err));
        if (rate > best[rows[i].is_copy]) best[rows[i].is_copy] = rate;
    }
    *out = (kgen__limits){.read = best[0], .copy = best[1]};
    return KGEN_OK;
}

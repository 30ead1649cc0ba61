/* A workload of a captured launch: the tensors as the launch found them. */
#include <stdlib.h>
#include <string.h>

#include "workload_family.h"

enum { COPIES_MAX = 64 };

/* ---- the workload --------------------------------------------------------------- */

static int copies_of(const kgen_capture *capture, const kgen__workload_options *options) {
    double bytes = 1;
    for (size_t i = 0; i < capture->region_count; i++) bytes += (double)capture->regions[i].size;
    return kgen__workload_sets_for(bytes, options ? options->cold_bytes : 0, COPIES_MAX);
}

kgen_status kgen__workload_replay(kgen__workload **out, kgen_context *ctx,
                                  const kgen_capture *capture,
                                  const kgen__workload_options *options, kgen_error *err) {
    kgen__workload *work = calloc(1, sizeof *work);
    if (!work) return kgen_fail(err, KGEN_E_NOMEM, "workload: out of memory");
    work->ctx = ctx;
    work->sets = copies_of(capture, options);
    work->uploads = calloc((size_t)work->sets, sizeof *work->uploads);
    kgen_status status = work->uploads ? kgen_stream_create(ctx, &work->stream, err)
                                       : kgen_fail(err, KGEN_E_NOMEM, "workload: out of memory");
    for (int i = 0; i < work->sets && status == KGEN_OK; i++)
        status = kgen_upload_make(&work->uploads[i], ctx, capture, err);
    if (status == KGEN_OK) {
        work->args = kgen_upload_args(work->uploads[0]);
        *out = work;
    } else {
        kgen__workload_free(work);
    }
    return status;
}

/* ---- its size --------------------------------------------------------------- */

/* -1: the launch had none. */
static int tensor_of(const kgen_capture *capture, const char *name) {
    const kgen_args *args = &capture->args;
    for (int i = 0; name && i < kgen_args_count(args); i++)
        if (strcmp(kgen_args_name(args, i), name) == 0 && capture->place[i].region >= 0) return i;
    return -1;
}

static int32_t dimension(const kgen_capture *capture, const char *name, int dim) {
    int tensor = tensor_of(capture, name);
    if (tensor < 0) return 0;
    const kgen_tensor *t = kgen_args_tensor(&capture->args, tensor);
    return dim < t->rank ? (int32_t)t->shape[dim] : 0;
}

static int32_t mean(const kgen_capture *capture, const char *name) {
    int tensor = tensor_of(capture, name);
    if (tensor < 0) return 0;
    const kgen_tensor *t = kgen_args_tensor(&capture->args, tensor);
    const kgen_capture_place *place = &capture->place[tensor];
    const uint8_t *bytes = capture->regions[place->region].before + place->offset;
    double sum = 0;
    for (int64_t i = 0; i < t->shape[0]; i++) {
        const uint8_t *at = bytes + i * t->stride[0] * kgen_dtype_size(t->dtype);
        int32_t narrow;
        int64_t wide;
        memcpy(&narrow, at, sizeof narrow);
        if (t->dtype == KGEN_DTYPE_I64)
            memcpy(&wide, at, sizeof wide);
        else
            wide = narrow;
        sum += (double)wide;
    }
    return t->shape[0] > 0 ? (int32_t)(sum / (double)t->shape[0] + 0.5) : 0;
}

void kgen__workload_problem(kgen_problem *out, const kgen_capture *capture) {
    const kgen__workload_family *row = kgen__workload_family_of(capture->args.family);
    out->batch = dimension(capture, row->batch, 0);
    out->context = mean(capture, row->lengths);
    out->heads = dimension(capture, row->heads, 1);
    if (row->group) out->heads /= row->group(&capture->spec);
}

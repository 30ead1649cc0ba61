/* A captured launch, launched again: its bits against those of the capture,
 * and both against the reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay_compare.h"

typedef struct rig {
    kgen_context *ctx;
    const kgen_capture *capture;
    kgen__replay_result *result;
    kgen_kernel *kernel;
    kgen_upload *upload;
    kgen_stream stream;
    kgen_args args;
    unsigned char **captured, **outcome; /* by region */
    kgen__replay_check check;
} rig;

static kgen_status no_memory(kgen_error *err) {
    return kgen_fail(err, KGEN_E_NOMEM, "replay: out of memory");
}

/* ---- the launch ------------------------------------------------------------------ */

static kgen_status prepare(rig *r, int keep_tuning, kgen_error *err) {
    kgen_spec spec;
    kgen_capture_spec(&spec, r->capture, kgen_context_target(r->ctx), keep_tuning);
    KGEN_TRY(kgen_prepare(r->ctx, &spec, 1, &r->kernel, err));
    KGEN_TRY(kgen_upload_make(&r->upload, r->ctx, r->capture, err));
    KGEN_TRY(kgen_stream_create(r->ctx, &r->stream, err));
    r->args = kgen_upload_args(r->upload);
    KGEN_TRY(kgen_workspace_size(r->kernel, &r->args, &r->args.workspace_bytes, err));
    if (!r->args.workspace_bytes) return KGEN_OK;
    KGEN_TRY(kgen_memory_alloc(r->ctx, &r->args.workspace, r->args.workspace_bytes, err));
    return kgen_workspace_init(r->ctx, r->args.workspace, r->args.workspace_bytes, r->stream, err);
}

static kgen_status launch(rig *r, kgen_error *err) {
    const kgen_capture *c = r->capture;
    KGEN_TRY(kgen_launch(r->kernel, &r->args, r->stream, err));
    KGEN_TRY(kgen_stream_sync(r->ctx, r->stream, err));
    for (size_t i = 0; i < c->region_count; i++)
        KGEN_TRY(kgen_upload_read(r->upload, i, r->outcome[i], err));
    return KGEN_OK;
}

/* Outcomes lie as the regions did: their tensors are read like any others. */
static kgen_status make_outcomes(rig *r, kgen_error *err) {
    const kgen_capture *c = r->capture;
    r->captured = calloc(c->region_count + 1, sizeof *r->captured);
    r->outcome = calloc(c->region_count + 1, sizeof *r->outcome);
    if (!r->captured || !r->outcome) return no_memory(err);
    for (size_t i = 0; i < c->region_count; i++) {
        r->captured[i] = malloc(c->regions[i].size + 1);
        r->outcome[i] = malloc(c->regions[i].size + 1);
        if (!r->captured[i] || !r->outcome[i]) return no_memory(err);
        memcpy(r->captured[i], c->regions[i].after, c->regions[i].size);
    }
    return KGEN_OK;
}

static void release(rig *r) {
    for (size_t i = 0; r->captured && i < r->capture->region_count; i++) free(r->captured[i]);
    for (size_t i = 0; r->outcome && i < r->capture->region_count; i++) free(r->outcome[i]);
    free(r->captured);
    free(r->outcome);
    if (r->args.workspace) kgen_memory_free(r->ctx, r->args.workspace);
    if (r->stream) kgen_stream_destroy(r->ctx, r->stream);
    kgen_upload_free(r->upload);
    kgen__replay_check_free(&r->check);
}

/* ---- the verdict ------------------------------------------------------------------- */

static int same_bits(const rig *r) {
    for (size_t i = 0; i < r->capture->region_count; i++)
        if (memcmp(r->captured[i], r->outcome[i], r->capture->regions[i].size) != 0) return 0;
    return 1;
}

static kgen_status compare_one(int *right, kgen__check_result *result, rig *r,
                               unsigned char *const *outcome, kgen_error *err) {
    kgen_status status = kgen__replay_check_look(result, &r->check, outcome, err);
    *right = status == KGEN_OK;
    return status == KGEN_E_MISMATCH ? KGEN_OK : status;
}

static kgen_status by_reference(rig *r, kgen_error *err) {
    kgen__replay_result *v = r->result;
    KGEN_TRY(kgen__replay_check_answer(&r->check, err));
    KGEN_TRY(compare_one(&v->captured_right, &v->captured, r, r->captured, err));
    if (!v->same_bits) return compare_one(&v->replay_right, &v->replay, r, r->outcome, err);
    v->replay = v->captured;
    v->replay_right = v->captured_right;
    return KGEN_OK;
}

static kgen_status verdict(const kgen__replay_result *v, kgen_error *err) {
    const char *captured = v->captured.message, *replay = v->replay.message;
    if (!v->has_reference)
        return v->same_bits ? KGEN_OK
                            : kgen_fail(err, KGEN_E_MISMATCH,
                                        "the replay gives other bits; there "
                                        "is no reference for negative strides");
    if (v->captured_right && v->replay_right) return KGEN_OK;
    if (v->same_bits)
        return kgen_fail(err, KGEN_E_MISMATCH,
                         "the captured launch was wrong, and the replay "
                         "repeats it bit for bit: %.800s",
                         captured);
    if (v->replay_right)
        return kgen_fail(err, KGEN_E_MISMATCH,
                         "the captured launch was wrong, the replay is right: captured %.800s",
                         captured);
    if (v->captured_right)
        return kgen_fail(err, KGEN_E_MISMATCH,
                         "the replay is wrong, the captured launch was right: %.800s", replay);
    return kgen_fail(err, KGEN_E_MISMATCH,
                     "the captured launch was wrong: %.400s; so is the replay, otherwise: %.400s",
                     captured, replay);
}

static kgen_status steps(rig *r, int keep_tuning, kgen_error *err) {
    KGEN_TRY(make_outcomes(r, err));
    KGEN_TRY(kgen__replay_check_make(&r->check, r->capture, err));
    KGEN_TRY(prepare(r, keep_tuning, err));
    KGEN_TRY(kgen_launch_check(r->kernel, &r->args, err));
    KGEN_TRY(kgen__replay_check_sound(&r->check, err));
    KGEN_TRY(launch(r, err));
    r->result->same_bits = same_bits(r);
    r->result->has_reference = kgen__replay_check_can(&r->check);
    if (r->result->has_reference) KGEN_TRY(by_reference(r, err));
    return verdict(r->result, err);
}

kgen_status kgen__replay_run(kgen__replay_result *result, kgen_context *ctx,
                             const kgen_capture *capture, const kgen__replay_options *options,
                             kgen_error *err) {
    rig r = {.ctx = ctx, .capture = capture, .result = result};
    memset(result, 0, sizeof *result);
    kgen_status status = steps(&r, options && options->keep_tuning, err);
    release(&r);
    return status;
}

/* A case on a device. The same tensors, exact in size, go to the device; the
 * kernel runs, runs again, and where wanted runs out of a graph with other
 * lengths; every time the outputs are compared with the reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_family.h"

typedef struct rig {
    kgen_context *ctx;
    kgen_kernel *kernel;
    kgen_stream stream;
    kgen_graph *graph;
    kgen__data data;
    kgen_args args; /* on the device */
    kgen_args_room room;
    int slots; /* of the family */
    void *memory[KGEN__SLOT_MAX];
    unsigned char *first[KGEN__SLOT_MAX]; /* outputs of an earlier launch */
    kgen__check_result *result;
} rig;

static int is_output(const rig *b, int slot) {
    return b->data.slot[slot].bytes && b->data.slot[slot].role != KGEN_USE_IN;
}

/* ---- memory --------------------------------------------------------------- */

static kgen_status allocate(rig *b, kgen_error *err) {
    kgen_args_copy(&b->args, &b->room, &b->data.args);
    for (int i = 0; i < b->slots; i++) {
        const kgen__slot *slot = &b->data.slot[i];
        kgen_tensor *t = kgen__slot_tensor(&b->args, i);
        if (!t->data) continue;
        if (slot->bytes) KGEN_TRY(kgen_memory_alloc(b->ctx, &b->memory[i], slot->size, err));
        t->data = (char *)b->memory[slot->view_of] + slot->offset;
        if (!is_output(b, i)) continue;
        b->first[i] = malloc(slot->size);
        if (!b->first[i])
            return kgen_fail(err, KGEN_E_NOMEM, "%zu bytes: out of memory", slot->size);
    }
    return KGEN_OK;
}

/* The workspace is handed over dirty: only kgen_workspace_init makes it fit. */
static kgen_status make_workspace(rig *b, kgen_error *err) {
    size_t bytes = 0;
    KGEN_TRY(kgen_workspace_size(b->kernel, &b->args, &bytes, err));
    b->args.workspace_bytes = bytes;
    if (bytes == 0) return KGEN_OK;
    unsigned char *dirt = malloc(bytes);
    if (!dirt) return kgen_fail(err, KGEN_E_NOMEM, "workspace: %zu bytes: out of memory", bytes);
    memset(dirt, 0xff, bytes);
    kgen_status status = kgen_memory_alloc(b->ctx, &b->args.workspace, bytes, err);
    if (status == KGEN_OK) status = kgen_memory_write(b->ctx, b->args.workspace, dirt, bytes, err);
    free(dirt);
    KGEN_TRY(status);
    return kgen_workspace_init(b->ctx, b->args.workspace, bytes, b->stream, err);
}

static void release(rig *b) {
    kgen_graph_free(b->graph);
    for (int i = 0; i < b->slots; i++) {
        if (b->memory[i]) kgen_memory_free(b->ctx, b->memory[i]);
        free(b->first[i]);
    }
    if (b->args.workspace) kgen_memory_free(b->ctx, b->args.workspace);
    if (b->stream) kgen_stream_destroy(b->ctx, b->stream);
    kgen__data_free(&b->data);
}

static kgen_status upload(rig *b, int outputs_only, kgen_error *err) {
    KGEN_TRY(kgen_stream_sync(b->ctx, b->stream, err));
    for (int i = 0; i < b->slots; i++) {
        const kgen__slot *slot = &b->data.slot[i];
        if (slot->bytes && (is_output(b, i) || !outputs_only))
            KGEN_TRY(kgen_memory_write(b->ctx, b->memory[i], slot->bytes, slot->size, err));
    }
    return KGEN_OK;
}

static kgen_status download(rig *b, kgen_error *err) {
    KGEN_TRY(kgen_stream_sync(b->ctx, b->stream, err));
    for (int i = 0; i < b->slots; i++)
        if (is_output(b, i))
            KGEN_TRY(kgen_memory_read(b->ctx, b->data.slot[i].bytes, b->memory[i],
                                      b->data.slot[i].size, err));
    return KGEN_OK;
}

/* ---- launches -------------------------------------------------------------- */

static kgen_status launch(rig *b, int replay, kgen_error *err) {
    kgen__data_poison_outputs(&b->data);
    KGEN_TRY(upload(b, 1, err));
    KGEN_TRY(replay ? kgen_graph_launch(b->graph, b->stream, err)
                    : kgen_launch(b->kernel, &b->args, b->stream, err));
    return download(b, err);
}

static kgen_status mismatch(rig *b, const char *what, kgen_error *err) {
    snprintf(b->result->message, sizeof b->result->message, "%s", what);
    return kgen_fail(err, KGEN_E_MISMATCH, "%s", what);
}

static void keep_outputs(rig *b) {
    for (int i = 0; i < b->slots; i++)
        if (is_output(b, i)) memcpy(b->first[i], b->data.slot[i].bytes, b->data.slot[i].size);
}

static kgen_status same_outputs(rig *b, const char *what, kgen_error *err) {
    char text[160];
    for (int i = 0; i < b->slots; i++) {
        if (!is_output(b, i)) continue;
        size_t at = 0, size = b->data.slot[i].size;
        while (at < size && b->first[i][at] == b->data.slot[i].bytes[at]) at++;
        if (at == size) continue;
        snprintf(text, sizeof text, "%s: %s differs at byte %zu, guard of %d included", what,
                 kgen__slot_name(&b->args, i), at, KGEN__GUARD_BYTES);
        return mismatch(b, text, err);
    }
    return KGEN_OK;
}

static kgen_status inputs_unchanged(rig *b, kgen_error *err) {
    char text[160];
    for (int i = 0; i < b->slots; i++) {
        const kgen__slot *slot = &b->data.slot[i];
        if (!slot->bytes || is_output(b, i)) continue;
        unsigned char *back = malloc(slot->size);
        if (!back) return kgen_fail(err, KGEN_E_NOMEM, "%zu bytes: out of memory", slot->size);
        kgen_status status = kgen_memory_read(b->ctx, back, b->memory[i], slot->size, err);
        int same = status == KGEN_OK && memcmp(back, slot->bytes, slot->size) == 0;
        free(back);
        KGEN_TRY(status);
        snprintf(text, sizeof text, "the kernel wrote into %s", kgen__slot_name(&b->args, i));
        if (!same) return mismatch(b, text, err);
    }
    return KGEN_OK;
}

/* Keeps the worst of what was seen so far. */
static void merge_result(kgen__check_result *into, const kgen__check_result *from) {
    double rms = from->rms_ratio > into->rms_ratio ? from->rms_ratio : into->rms_ratio;
    double most = from->max_abs > into->max_abs ? from->max_abs : into->max_abs;
    if (!into->tensor[0] || from->max_ratio > into->max_ratio) *into = *from;
    into->rms_ratio = rms;
    into->max_abs = most;
}

static kgen_status compare(rig *b, kgen_error *err) {
    kgen__check_result now;
    kgen_status status = kgen__data_compare(&now, &b->data, err);
    if (status == KGEN_OK)
        merge_result(b->result, &now);
    else
        *b->result = now;
    return status;
}

static kgen_status eager(rig *b, kgen_error *err) {
    KGEN_TRY(upload(b, 0, err));
    KGEN_TRY(launch(b, 0, err));
    keep_outputs(b);
    KGEN_TRY(compare(b, err));
    return inputs_unchanged(b, err);
}

/* A second launch over the same workspace finds its counters at zero, or
 * gives other bits. */
static kgen_status again(rig *b, kgen_error *err) {
    KGEN_TRY(launch(b, 0, err));
    return same_outputs(b, "a second launch gave another result", err);
}

/* ---- graphs ----------------------------------------------------------------- */

static kgen_status capture(rig *b, kgen_error *err) {
    KGEN_TRY(kgen_graph_begin(b->ctx, b->stream, err));
    kgen_status launched = kgen_launch(b->kernel, &b->args, b->stream, err);
    kgen_status ended =
        kgen_graph_end(b->ctx, b->stream, &b->graph, launched == KGEN_OK ? err : NULL);
    return launched == KGEN_OK ? ended : launched;
}

static kgen_status replays(rig *b, int count, kgen_error *err) {
    static const uint64_t lengths_stream = 1000;
    kgen__rng rng;
    kgen__rng_seed(&rng, b->data.shape.seed, lengths_stream);
    KGEN_TRY(capture(b, err));
    for (int i = 0; i < count; i++) {
        KGEN_TRY(kgen__data_refill(&b->data, &rng, err));
        KGEN_TRY(eager(b, err));
        KGEN_TRY(launch(b, 1, err));
        KGEN_TRY(same_outputs(b, "a replayed graph gave another result than a launch", err));
    }
    return KGEN_OK;
}

/* Fit for the next launch, of any kernel. */
static kgen_status workspace_fit(rig *b, kgen_error *err) {
    kgen_error why;
    if (!b->args.workspace ||
        kgen_workspace_check(b->ctx, b->args.workspace, b->args.workspace_bytes, b->stream, &why) ==
            KGEN_OK)
        return KGEN_OK;
    snprintf(b->result->message, sizeof b->result->message, "after the launches: %.400s", why.text);
    return kgen_fail(err, KGEN_E_MISMATCH, "%s", b->result->message);
}

/* ---- the run ---------------------------------------------------------------- */

static kgen_status steps(rig *b, const kgen__case *c, int count, kgen_error *err) {
    KGEN_TRY(kgen_prepare(b->ctx, &c->spec, 1, &b->kernel, err));
    KGEN_TRY(kgen__data_make(&b->data, c, kgen_kernel_spec(b->kernel), err));
    KGEN_TRY(kgen__data_fill(&b->data, c->seed, err));
    KGEN_TRY(kgen_stream_create(b->ctx, &b->stream, err));
    KGEN_TRY(allocate(b, err));
    KGEN_TRY(make_workspace(b, err));
    KGEN_TRY(eager(b, err));
    KGEN_TRY(again(b, err));
    if (count > 0) KGEN_TRY(replays(b, count, err));
    return workspace_fit(b, err);
}

/* The line that brings the mismatch back. A device's label begins with the
 * name that opens it; what it is follows after a space. */
static kgen_status report(const rig *b, const kgen__case *c, int count, kgen_error *err) {
    char replay_option[32] = "";
    char *line = malloc(KGEN__CASE_LINE_MAX);
    if (!line) return KGEN_E_MISMATCH;
    kgen__case seedless = *c;
    seedless.seed = 0;
    kgen__case_print(line, &seedless);
    if (count > 0) snprintf(replay_option, sizeof replay_option, " --replays %d", count);
    const char *device = kgen_context_device(b->ctx);
    kgen_fail(err, KGEN_E_MISMATCH,
              "%.400s; reproduce: kgen check '%s' --device %.*s --seed %llu%s", b->result->message,
              line, (int)strcspn(device, " "), device, (unsigned long long)c->seed, replay_option);
    free(line);
    return KGEN_E_MISMATCH;
}

kgen_status kgen__check_run(kgen__check_result *result, kgen_context *ctx, const kgen__case *c,
                            const kgen__check_options *options, kgen_error *err) {
    rig *b = calloc(1, sizeof *b);
    kgen__case *drawn = malloc(sizeof *drawn);
    int count = options ? options->replays : 0;
    kgen_status status = KGEN_E_NOMEM;
    memset(result, 0, sizeof *result);
    if (!b || !drawn) {
        kgen_fail(err, KGEN_E_NOMEM, "check: out of memory");
        goto out;
    }
    *drawn = *c;
    kgen__case_draw(drawn, c->seed ? c->seed : kgen__seed_fresh());
    b->ctx = ctx;
    b->result = result;
    kgen_args_init(&b->args, &b->room, &c->spec);
    b->slots = kgen__slot_count(&b->args);
    status = steps(b, drawn, count, err);
    if (status == KGEN_E_MISMATCH) status = report(b, drawn, count, err);
    release(b);
out:
    free(b);
    free(drawn);
    return status;
}

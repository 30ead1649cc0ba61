/* Open and close, and the small part of the driver that programs share. */
#define _GNU_SOURCE
#include "tuning/db.h"
#include "runtime/capture/capture_parts.h"
#include "find.h"

#include <kgen/probe.h>

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const kgen__device_api *const devices[] = {&kgen__device_hip, &kgen__device_cuda,
                                                  &kgen__device_cpu};
enum { DEVICES = sizeof devices / sizeof devices[0] };

/* "hip:1" -> api and what follows the colon. */
static const kgen__device_api *device_named(const char *text, const char **rest) {
    size_t length = strcspn(text, ":");
    *rest = text[length] ? text + length + 1 : "";
    for (size_t i = 0; i < DEVICES; i++)
        if (strlen(devices[i]->name) == length && strncmp(devices[i]->name, text, length) == 0)
            return devices[i];
    return NULL;
}

static kgen_status open_named(kgen_context *ctx, const char *text, const char *driver,
                              kgen_error *err) {
    const char *rest;
    ctx->api = device_named(text, &rest);
    if (!ctx->api)
        return kgen_fail(err, KGEN_E_DEVICE,
                         "device=%.60s: unknown; known are hip[:N], cuda[:N], cpu[:persona]", text);
    if (ctx->api == &kgen__device_cpu && driver && *driver)
        return kgen_fail(err, KGEN_E_ARG, "driver=%.300s: device %.60s has none", driver, text);
    if (ctx->api == &kgen__device_cpu) return ctx->api->open(&ctx->device, 0, rest, err);
    long ordinal = strtol(rest, NULL, 10);
    if (rest[strspn(rest, "0123456789")] || ordinal > 1023)
        return kgen_fail(err, KGEN_E_DEVICE, "device=%.60s: device number 0..1023 expected", text);
    return ctx->api->open(&ctx->device, (int)ordinal, driver, err);
}

/* The first that has kernels: a processor's own small GPU may stand before the one that
 * was bought for this. The error is that of the first. */
static kgen_status open_first(kgen_context *ctx, const char *api, const char *driver,
                              kgen_error *err) {
    kgen_error other;
    kgen_status status = open_named(ctx, api, driver, err), next = status;
    for (int i = 1; next == KGEN_E_TARGET; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s:%d", api, i);
        next = open_named(ctx, name, driver, &other);
    }
    return next == KGEN_OK ? KGEN_OK : status;
}

/* Nobody named a device: a GPU, or what stands in the way of each. */
static kgen_status open_gpu(kgen_context *ctx, const char *driver, kgen_error *err) {
    kgen_error hip, cuda;
    if (open_first(ctx, "hip", driver, &hip) == KGEN_OK) return KGEN_OK;
    if (open_first(ctx, "cuda", driver, &cuda) == KGEN_OK) return KGEN_OK;
    return kgen_fail(
        err, KGEN_E_DEVICE,
        "no GPU that kgen can use: %.300s; %.300s. Without a GPU: device cpu:cdna3, or "
        "KGEN_DEVICE=cpu:cdna3",
        hip.text, cuda.text);
}

static kgen_status open_device(kgen_context *ctx, const kgen_open_options *o, kgen_error *err) {
    const char *wanted = o->device ? o->device : secure_getenv("KGEN_DEVICE");
    return wanted && *wanted ? open_named(ctx, wanted, o->driver, err)
                             : open_gpu(ctx, o->driver, err);
}

/* The label is "cuda:0 <name> (<details>)", or of the cpu "<name> (<details>)". */
static void name_device(kgen_context *ctx) {
    const char *name = ctx->api->label(ctx->device), *end = NULL;
    if (ctx->api != &kgen__device_cpu) name += strcspn(name, " ");
    name += strspn(name, " ");
    for (const char *at = name; (at = strstr(at, " (")); at++) end = at;
    size_t length = end ? (size_t)(end - name) : strlen(name);
    snprintf(ctx->device_name, sizeof ctx->device_name, "%.*s", (int)length, name);
}

kgen_status kgen_open(kgen_context **out, const kgen_open_options *options, kgen_error *err) {
    kgen_open_options o;
    KGEN_TRY(kgen_struct_take(&o, sizeof o, options, "kgen_open_options", err));
    kgen_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return kgen_fail(err, KGEN_E_NOMEM, "context: out of memory");
    kgen__sweep_closed();
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->mode = o.mode;
    ctx->log = o.log;
    ctx->log_user = o.log_user;
    kgen_status status = open_device(ctx, &o, err);
    if (status == KGEN_OK) {
        ctx->target = ctx->api->target(ctx->device);
        name_device(ctx);
        status = kgen_cache_open(&ctx->cache, o.cache_dir, err);
    }
    if (status == KGEN_OK) ctx->tuning_file = kgen__tuning_file(o.tuning);
    if (status == KGEN_OK) status = kgen__finder_make(&ctx->finder, err);
    if (status == KGEN_OK) status = kgen__capture_open(&ctx->capture, err);
    if (status == KGEN_OK)
        *out = ctx;
    else
        kgen_close(ctx);
    return status;
}

void kgen_close(kgen_context *ctx) {
    if (!ctx) return;
    kgen__finder_free(ctx->finder);
    kgen_tuning_close(ctx->tuning);
    free(ctx->tuning_file);
    kgen__capture_close(ctx->capture);
    if (ctx->cache) kgen_cache_close(ctx->cache);
    kgen__close_device(ctx);
    kgen__sweep_closed();
}

const kgen_target *kgen_context_target(const kgen_context *ctx) { return ctx->target; }
const char *kgen_context_device(const kgen_context *ctx) { return ctx->api->label(ctx->device); }
const char *kgen_context_device_name(const kgen_context *ctx) { return ctx->device_name; }
const char *kgen_context_driver(const kgen_context *ctx) { return ctx->api->library(ctx->device); }
kgen_cache *kgen_context_cache(kgen_context *ctx) { return ctx->cache; }

void kgen__log(const kgen_context *ctx, kgen_log_level level, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    if (!ctx->log) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ctx->log(level, text, ctx->log_user);
}

kgen_status kgen_probe_load(kgen_context *ctx, const kgen_entry *entry, kgen_error *err) {
    void *module, *function;
    KGEN_TRY(ctx->api->load(ctx->device, entry, &module, &function, err));
    ctx->api->unload(ctx->device, module);
    return KGEN_OK;
}

/* --- driver ------------------------------------------------------------- */

kgen_status kgen_memory_alloc(kgen_context *ctx, void **out, size_t bytes, kgen_error *err) {
    return ctx->api->alloc(ctx->device, out, bytes, err);
}

void kgen_memory_free(kgen_context *ctx, void *memory) {
    if (memory) ctx->api->release(ctx->device, memory);
}

kgen_status kgen_memory_write(kgen_context *ctx, void *dst, const void *src, size_t bytes,
                              kgen_error *err) {
    return ctx->api->write(ctx->device, dst, src, bytes, err);
}

kgen_status kgen_memory_read(kgen_context *ctx, void *dst, const void *src, size_t bytes,
                             kgen_error *err) {
    return ctx->api->read(ctx->device, dst, src, bytes, err);
}

kgen_status kgen_scales_upload(kgen_context *ctx, kgen_tensor *out, const float *scales,
                               int32_t count, kgen_error *err) {
    const int64_t shape = count;
    void *memory = NULL;
    if (count < 1) return kgen_fail(err, KGEN_E_ARG, "scales: %d, at least 1", count);
    for (int32_t i = 0; i < count; i++)
        if (!(scales[i] > 0 && scales[i] <= FLT_MAX))
            return kgen_fail(err, KGEN_E_ARG, "scales[%d]=%g: finite and above 0", i,
                             (double)scales[i]);
    KGEN_TRY(kgen_memory_alloc(ctx, &memory, (size_t)count * sizeof *scales, err));
    kgen_status status =
        kgen_memory_write(ctx, memory, scales, (size_t)count * sizeof *scales, err);
    if (status == KGEN_OK)
        *out = kgen_tensor_dense(memory, KGEN_DTYPE_F32, 1, &shape);
    else
        kgen_memory_free(ctx, memory);
    return status;
}

kgen_status kgen_stream_create(kgen_context *ctx, kgen_stream *out, kgen_error *err) {
    return ctx->api->stream_create(ctx->device, out, err);
}

void kgen_stream_destroy(kgen_context *ctx, kgen_stream stream) {
    ctx->api->stream_destroy(ctx->device, stream);
}

kgen_status kgen_stream_sync(kgen_context *ctx, kgen_stream stream, kgen_error *err) {
    return ctx->api->stream_sync(ctx->device, stream, err);
}

kgen_status kgen_graph_begin(kgen_context *ctx, kgen_stream stream, kgen_error *err) {
    return ctx->api->graph_begin(ctx->device, stream, err);
}

kgen_status kgen_graph_end(kgen_context *ctx, kgen_stream stream, kgen_graph **out,
                           kgen_error *err) {
    kgen_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return kgen_fail(err, KGEN_E_NOMEM, "graph: out of memory");
    graph->ctx = ctx;
    kgen_status status = ctx->api->graph_end(ctx->device, stream, &graph->graph, err);
    if (status == KGEN_OK)
        *out = graph;
    else
        free(graph);
    return status;
}

kgen_status kgen_graph_launch(kgen_graph *graph, kgen_stream stream, kgen_error *err) {
    return graph->ctx->api->graph_launch(graph->ctx->device, graph->graph, stream, err);
}

void kgen_graph_free(kgen_graph *graph) {
    if (!graph) return;
    graph->ctx->api->graph_free(graph->ctx->device, graph->graph);
    free(graph);
}

/* Graphs hold kernels: a module from which a captured launch runs stays loaded while the
 * graph lives. The driver says when one is gone, in the midst of its own work, where
 * nothing may be unloaded; so that is counted, and done by a later call of kgen's. */
#include <stdatomic.h>
#include <stdlib.h>

#include "context.h"

typedef struct hold {
    size_t count;
    kgen_kernel *kernels[];
} hold;

/* A kernel may be freed by another thread as soon as it is let go of. */
static void let_go(void *held) {
    hold *h = held;
    for (size_t i = 0; i < h->count; i++)
        atomic_fetch_sub_explicit(&h->kernels[i]->holds, 1, memory_order_release);
    free(h);
}

static kgen_status list_given(hold *h, const kgen_context *ctx, kgen_kernel *const *kernels,
                              size_t count, kgen_error *err) {
    for (size_t i = 0; i < count; i++)
        if (!kernels[i] || kernels[i]->ctx != ctx)
            return kgen_fail(err, KGEN_E_ARG, "kernels[%zu]: %s", i,
                             kernels[i] ? "of another context" : "none");
    for (size_t i = 0; i < count; i++) h->kernels[h->count++] = kernels[i];
    return KGEN_OK;
}

/* Under the lock: none of them is released meanwhile. */
static kgen_status make_hold(hold **out, const kgen_context *ctx, kgen_kernel *const *kernels,
                             size_t count, kgen_error *err) {
    if (!kernels) {
        count = 0;
        for (const kgen_kernel *k = ctx->kernels; k; k = k->next) count++;
    }
    hold *h = calloc(1, sizeof *h + count * sizeof h->kernels[0]);
    kgen_status status = KGEN_OK;
    if (!h) return kgen_fail(err, KGEN_E_NOMEM, "hold of %zu kernels: out of memory", count);
    if (kernels)
        status = list_given(h, ctx, kernels, count, err);
    else
        for (kgen_kernel *k = ctx->kernels; k; k = k->next) h->kernels[h->count++] = k;
    for (size_t i = 0; i < h->count; i++) atomic_fetch_add(&h->kernels[i]->holds, 1);
    if (status == KGEN_OK)
        *out = h;
    else
        free(h);
    return status;
}

kgen_status kgen_graph_hold(kgen_context *ctx, kgen_kernel *const *kernels, size_t count,
                            kgen_stream stream, kgen_error *err) {
    hold *h = NULL;
    pthread_mutex_lock(&ctx->lock);
    kgen_status status = make_hold(&h, ctx, kernels, count, err);
    pthread_mutex_unlock(&ctx->lock);
    return status == KGEN_OK ? ctx->api->graph_hold(ctx->device, stream, let_go, h, err) : status;
}

/* ---- what is unloaded when ---------------------------------------------------------- */

size_t kgen__reclaim(kgen_context *ctx) {
    size_t held = 0;
    for (kgen_kernel **link = &ctx->retired; *link;) {
        kgen_kernel *kernel = *link;
        if (atomic_load_explicit(&kernel->holds, memory_order_acquire)) {
            held++;
            link = &kernel->next;
            continue;
        }
        *link = kernel->next;
        ctx->api->unload(ctx->device, kernel->module);
        free(kernel);
    }
    return held;
}

void kgen__retire(kgen_kernel *kernel) {
    kernel->next = kernel->ctx->retired;
    kernel->ctx->retired = kernel;
    kgen__reclaim(kernel->ctx);
}

size_t kgen_context_reclaim(kgen_context *ctx) {
    pthread_mutex_lock(&ctx->lock);
    size_t held = kgen__reclaim(ctx);
    pthread_mutex_unlock(&ctx->lock);
    return held;
}

/* ---- closed contexts ---------------------------------------------------------------- */

static pthread_mutex_t closed_lock = PTHREAD_MUTEX_INITIALIZER;
static kgen_context *closed; /* with kernels that graphs hold */

static void finish(kgen_context *ctx) {
    if (ctx->device) ctx->api->close(ctx->device);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

void kgen__close_device(kgen_context *ctx) {
    kgen_kernel **end = &ctx->retired;
    while (*end) end = &(*end)->next;
    *end = ctx->kernels;
    ctx->kernels = NULL;
    if (!kgen__reclaim(ctx)) {
        finish(ctx);
        return;
    }
    pthread_mutex_lock(&closed_lock);
    ctx->next_closed = closed;
    closed = ctx;
    pthread_mutex_unlock(&closed_lock);
}

void kgen__sweep_closed(void) {
    pthread_mutex_lock(&closed_lock);
    for (kgen_context **link = &closed; *link;) {
        kgen_context *ctx = *link;
        if (kgen__reclaim(ctx)) {
            link = &ctx->next_closed;
            continue;
        }
        *link = ctx->next_closed;
        finish(ctx);
    }
    pthread_mutex_unlock(&closed_lock);
}

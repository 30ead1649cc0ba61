/* Launch: arguments against spec, then one driver call. Nothing here
 * allocates, locks or waits, unless the environment asked for captures. */
#include "launch.h"

#include <stdatomic.h>

#include <kgen/probe.h>

#include <string.h>

#include "runtime/capture/capture_parts.h"
#include "checks.h"

/* A launch that is saved takes seconds; the others are not to pay for it. */
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

static const kgen__launcher *const launchers[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = &kgen__launch_##name,
#include <kgen/families.def>
};

const kgen__args_rows *kgen__args_rows_of(const kgen_spec *spec) {
    return launchers[spec->family]->rows_of(spec);
}

void kgen__launch_bind(kgen_kernel *kernel) {
    const kgen__launcher *launcher = launchers[kernel->spec.family];
    memset(&kernel->memo, 0, sizeof kernel->memo);
    kgen__args_bind(&kernel->binding, launcher->rows_of(&kernel->spec), &kernel->spec);
    if (launcher->settle) launcher->settle(kernel);
}

static kgen_status check_family(const kgen_kernel *kernel, const kgen_args *args, kgen_error *err) {
    NEED(args->family == kernel->spec.family, "args: family %s, kernel built for %s",
         kgen_family_name(args->family), kgen_family_name(kernel->spec.family));
    NEED(args->any, "args: %s is NULL, where the arguments of the family are expected",
         kgen_family_name(args->family));
    return KGEN_OK;
}

uint32_t kgen__launch_ticket(void) {
    static _Atomic uint32_t taken;
    uint32_t ticket;
    do ticket = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed) + 1;
    while (UNLIKELY(!ticket));
    return ticket;
}

kgen_status kgen__launch_addresses(int *tensor, size_t *bytes, const kgen_kernel *kernel,
                                   const kgen_args *args, kgen_error *err) {
    const kgen__launcher *launcher = launchers[kernel->spec.family];
    *tensor = -1;
    return launcher->addresses ? launcher->addresses(tensor, bytes, kernel, args, err) : KGEN_OK;
}

kgen_status kgen_workspace_size(const kgen_kernel *kernel, const kgen_args *args, size_t *bytes,
                                kgen_error *err) {
    KGEN_TRY(check_family(kernel, args, err));
    return launchers[args->family]->workspace_bytes(bytes, kernel, args, err);
}

/* Everything but the driver's call. */
typedef struct packed {
    _Alignas(16) char bytes[KGEN__PACKED_MAX];
    size_t size;
    kgen__launch_config config; /* a grid of 0 launches nothing */
} packed;

/* The long way, when anything but addresses is not as it was. */
static kgen_status pack_anew(packed *p, const kgen__launcher *launcher, const kgen_kernel *kernel,
                             const kgen_args *args, kgen_error *err) {
    kgen__memo *memo = &((kgen_kernel *)kernel)->memo;
    p->config.grid = kernel->config.grid;
    memset(p->bytes, 0, p->size);
    KGEN_TRY(launcher->pack(p->bytes, &p->config.grid, kernel, args, err));
    if (launcher->again)
        kgen__args_remember(memo, &kernel->binding, args->any, p->bytes, p->size, p->config.grid);
    return KGEN_OK;
}

static inline kgen_status pack(packed *p, const kgen_kernel *kernel, const kgen_args *args,
                               kgen_error *err) {
    kgen__stretch at[KGEN__BOUND_MAX];
    kgen__memo *memo = &((kgen_kernel *)kernel)->memo;
    KGEN_TRY(check_family(kernel, args, err));
    const kgen__launcher *launcher = launchers[args->family];
    p->config = kernel->config;
    p->size = launcher->packed_bytes;
    if (launcher->again &&
        kgen__args_again(p->bytes, p->size, &p->config.grid, at, memo, &kernel->binding,
                         args->any) &&
        launcher->again(p->bytes, kernel, args, at))
        return KGEN_OK;
    return pack_anew(p, launcher, kernel, args, err);
}

/* --- memory ---------------------------------------------------------------- */

static kgen_status check_memory(const kgen_context *ctx, const char *name, const void *memory,
                                kgen_error *err) {
    NEED(ctx->api->reaches(ctx->device, memory),
         "%s: address %p is memory of the host, which %s cannot read", name, memory,
         ctx->api->label(ctx->device));
    return KGEN_OK;
}

/* A tensor of the host would be a fault of the device, and with it the context's end. */
static kgen_status check_reach(const kgen_kernel *kernel, const kgen_args *args, kgen_error *err) {
    const kgen__binding *b = &kernel->binding;
    if (!kernel->ctx->api->reaches) return KGEN_OK;
    for (int i = 0; i < b->count; i++) {
        const kgen_tensor *t =
            (const kgen_tensor *)((const char *)args->any + b->bound[i].row->offset);
        if (t->data && kgen__tensor_elements(t))
            KGEN_TRY(check_memory(kernel->ctx, b->bound[i].row->name, t->data, err));
    }
    return args->workspace && args->workspace_bytes
               ? check_memory(kernel->ctx, "workspace", args->workspace, err)
               : KGEN_OK;
}

/* Drivers take about as long for one address as for a launch: a kernel's first launch
 * asks, which is where a tensor that was never moved to the device shows. */
static kgen_status check_first(const kgen_kernel *kernel, const kgen_args *args, kgen_error *err) {
    KGEN_TRY(check_reach(kernel, args, err));
    atomic_store_explicit(&((kgen_kernel *)kernel)->reached, 1, memory_order_relaxed);
    return KGEN_OK;
}

kgen_status kgen_launch_check(const kgen_kernel *kernel, const kgen_args *args, kgen_error *err) {
    packed p;
    KGEN_TRY(pack(&p, kernel, args, err));
    return check_reach(kernel, args, err);
}

kgen_status kgen_launch(const kgen_kernel *kernel, const kgen_args *args, kgen_stream stream,
                        kgen_error *err) {
    const kgen_context *ctx = kernel->ctx;
    kgen__taking *taking = NULL;
    packed p;
    KGEN_TRY(pack(&p, kernel, args, err));
    if (p.config.grid == 0) return KGEN_OK;
    if (UNLIKELY(!atomic_load_explicit(&kernel->reached, memory_order_relaxed)))
        KGEN_TRY(check_first(kernel, args, err));
    if (UNLIKELY(ctx->capture)) taking = kgen__capture_begin(kernel, args, stream);
    kgen_status status =
        ctx->api->launch(ctx->device, kernel->function, p.config, p.bytes, p.size, stream, err);
    if (UNLIKELY(taking)) kgen__capture_end(taking, status);
    return status;
}

kgen_status kgen_probe_launch(const kgen_kernel *kernel, const kgen_args *args, kgen_stream stream,
                              int count, kgen_error *err) {
    const kgen_context *ctx = kernel->ctx;
    packed p;
    KGEN_TRY(pack(&p, kernel, args, err));
    for (int i = 0; i < count && p.config.grid; i++)
        KGEN_TRY(ctx->api->launch(ctx->device, kernel->function, p.config, p.bytes, p.size, stream,
                                  err));
    return KGEN_OK;
}

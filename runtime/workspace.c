/* The workspace: prepared once, looked at whenever the caller wants. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "launch.h"

kgen_status kgen__check_workspace(const void *memory, size_t bytes, size_t needed,
                                  kgen_error *err) {
    NEED(memory, "workspace: no memory");
    NEED((uintptr_t)memory % KGEN__WORKSPACE_ALIGNMENT == 0,
         "workspace: address %p is not a multiple of %d bytes", memory, KGEN__WORKSPACE_ALIGNMENT);
    NEED(bytes >= needed, "workspace: %zu bytes, %zu needed", bytes, needed);
    return KGEN_OK;
}

kgen_status kgen_workspace_init(kgen_context *ctx, void *memory, size_t bytes, kgen_stream stream,
                                kgen_error *err) {
    KGEN_TRY(kgen__check_workspace(memory, bytes, KGEN__HEAD_BYTES, err));
    return ctx->api->fill(ctx->device, memory, KG_WORKSPACE_BYTE, KGEN__HEAD_BYTES, stream, err);
}

/* Launches leave their ticket. */
static int changes(size_t byte) {
    size_t owner = offsetof(struct kg_workspace, owner);
    return byte >= owner && byte < owner + sizeof(unsigned);
}

/* All else is as it was prepared. */
static kgen_status check_head(const struct kg_workspace *found, kgen_error *err) {
    const unsigned char *bytes = (const unsigned char *)found;
    NEED(found->broken != 0, "workspace: a launch found it damaged, or another launch in it; "
                             "kgen_workspace_init makes it fit again");
    for (size_t i = 0; i < sizeof *found; i++)
        NEED(bytes[i] == KG_WORKSPACE_BYTE || changes(i),
             "workspace: byte %zu is %u: not prepared by kgen_workspace_init of this version, "
             "damaged, or a launch is under way in it",
             i, bytes[i]);
    return KGEN_OK;
}

kgen_status kgen_workspace_check(kgen_context *ctx, const void *memory, size_t bytes,
                                 kgen_stream stream, kgen_error *err) {
    KGEN_TRY(kgen__check_workspace(memory, bytes, KGEN__HEAD_BYTES, err));
    KGEN_TRY(ctx->api->stream_sync(ctx->device, stream, err));
    struct kg_workspace *found = malloc(sizeof *found);
    if (!found) return kgen_fail(err, KGEN_E_NOMEM, "workspace: %zu bytes", sizeof *found);
    kgen_status status = ctx->api->read(ctx->device, found, memory, sizeof *found, err);
    if (status == KGEN_OK) status = check_head(found, err);
    free(found);
    return status;
}

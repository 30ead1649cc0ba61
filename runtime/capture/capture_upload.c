/* A capture on a device. Regions begin as far past a multiple of 256 bytes as
 * they did, and end with their last byte. */
#include <stdlib.h>
#include <string.h>

#include "capture_parts.h"

struct kgen_upload {
    kgen_context *ctx;
    const kgen_capture *capture;
    void **memory, **base; /* allocations, and the regions in them */
    kgen_args args;        /* in `room` */
    kgen_args_room room;
};

static kgen_status allocate(kgen_upload *u, kgen_error *err) {
    const kgen_capture *c = u->capture;
    for (size_t i = 0; i < c->region_count; i++) {
        size_t size = c->regions[i].size ? c->regions[i].size : 1; /* still has an address */
        KGEN_TRY(kgen_memory_alloc(u->ctx, &u->memory[i], c->regions[i].phase + size, err));
        u->base[i] = (char *)u->memory[i] + c->regions[i].phase;
    }
    return KGEN_OK;
}

static char *device_place(const kgen_upload *u, const kgen_capture_place *place) {
    return (char *)u->base[place->region] + place->offset;
}

kgen_status kgen_upload_reset(kgen_upload *u, kgen_error *err) {
    const kgen_capture *c = u->capture;
    for (size_t i = 0; i < c->region_count; i++)
        KGEN_TRY(
            kgen_memory_write(u->ctx, u->base[i], c->regions[i].before, c->regions[i].size, err));
    for (size_t i = 0; i < c->address_count; i++) {
        int64_t address = (int64_t)(intptr_t)device_place(u, &c->addresses[i].at);
        KGEN_TRY(kgen_memory_write(u->ctx, device_place(u, &c->addresses[i].word), &address,
                                   sizeof address, err));
    }
    return KGEN_OK;
}

kgen_status kgen_upload_make(kgen_upload **out, kgen_context *ctx, const kgen_capture *capture,
                             kgen_error *err) {
    kgen_upload *u = calloc(1, sizeof *u);
    if (!u) return kgen_fail(err, KGEN_E_NOMEM, "upload: out of memory");
    *u = (kgen_upload){.ctx = ctx,
                       .capture = capture,
                       .memory = calloc(capture->region_count + 1, sizeof *u->memory),
                       .base = calloc(capture->region_count + 1, sizeof *u->base)};
    kgen_status status = u->memory && u->base
                             ? allocate(u, err)
                             : kgen_fail(err, KGEN_E_NOMEM, "upload: out of memory");
    if (status == KGEN_OK) status = kgen_upload_reset(u, err);
    if (status == KGEN_OK) {
        kgen_capture_args(&u->args, &u->room, capture, u->base);
        *out = u;
    } else {
        kgen_upload_free(u);
    }
    return status;
}

void kgen_upload_free(kgen_upload *u) {
    if (!u) return;
    for (size_t i = 0; u->memory && i < u->capture->region_count; i++)
        kgen_memory_free(u->ctx, u->memory[i]);
    free(u->memory);
    free(u->base);
    free(u);
}

kgen_args kgen_upload_args(const kgen_upload *u) { return u->args; }

kgen_status kgen_upload_read(const kgen_upload *u, size_t region, void *out, kgen_error *err) {
    const kgen_capture *c = u->capture;
    if (region >= c->region_count)
        return kgen_fail(err, KGEN_E_ARG, "region=%zu: the capture has %zu", region,
                         c->region_count);
    KGEN_TRY(kgen_memory_read(u->ctx, out, u->base[region], c->regions[region].size, err));
    for (size_t i = 0; i < c->address_count; i++) {
        const kgen_capture_place *word = &c->addresses[i].word;
        int64_t address = (int64_t)(intptr_t)device_place(u, &c->addresses[i].at);
        char *at = (char *)out + word->offset;
        if (word->region != (int32_t)region || memcmp(at, &address, sizeof address) != 0) continue;
        memcpy(at, c->regions[region].before + word->offset, sizeof address);
    }
    return KGEN_OK;
}

/* A device that launches nothing and takes note of what it was given last. */
#ifndef KGEN_TESTS_UNIT_NOTE_DEVICE_H
#define KGEN_TESTS_UNIT_NOTE_DEVICE_H

#include <string.h>

#include "device/device.h"
#include "runtime/launch.h"

static struct noted {
    int launches;
    kgen__launch_config config;
    size_t size;
    _Alignas(16) char packed[KGEN__PACKED_MAX];
} noted;

static kgen_status note_launch(kgen__device *device, void *function, kgen__launch_config config,
                               const void *packed, size_t size, kgen_stream stream,
                               kgen_error *err) {
    (void)device, (void)function, (void)stream, (void)err;
    noted.launches++;
    noted.config = config;
    noted.size = size;
    memcpy(noted.packed, packed, size);
    return KGEN_OK;
}

static const kgen__device_api note = {.name = "note", .launch = note_launch};

#endif

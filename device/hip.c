/* The names of the HIP runtime's calls, and what differs from CUDA. */
#include "dl.h"

#include <ctype.h>
#include <string.h>

enum {
    INTEGRATED = 16, /* hipDeviceAttribute_t, HIP 5 and later */
    MULTIPROCESSOR_COUNT = 63,
    PAGEABLE_MEMORY_ACCESS = 65,
    LAUNCH_END = 3, /* HIP_LAUNCH_PARAM_END */
    /* hipDeviceProp_t begins with `char name[256]` and has 1472 bytes in HIP 6
     * and 7; the rest is room for later ones. */
    PROPERTIES_NAME = 256,
    PROPERTIES_BYTES = 16384,
};

static const char *const libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so",
                                        NULL};

#define CALL KGEN__DL_SYMBOL
static const kgen__dl_symbol symbols[] = {
    CALL("hipInit", init),
    CALL("hipGetDeviceCount", device_count),
    CALL("hipDeviceGet", device_get),
    CALL("hipDeviceGetName", device_name),
    CALL("hipDeviceGetAttribute", device_attribute),
    CALL("hipDrvGetErrorName", error_name),
    CALL("hipDrvGetErrorString", error_string),
    CALL("hipModuleLoadData", module_load),
    CALL("hipModuleUnload", module_unload),
    CALL("hipModuleGetFunction", module_function),
    CALL("hipModuleLaunchKernel", launch),
    CALL("hipMalloc", alloc),
    CALL("hipFree", release),
    CALL("hipMemcpyHtoD", write),
    CALL("hipMemcpyDtoH", read),
    CALL("hipMemsetAsync", fill),
    CALL("hipStreamCreateWithFlags", stream_create),
    CALL("hipStreamDestroy", stream_destroy),
    CALL("hipStreamSynchronize", stream_sync),
    CALL("hipStreamIsCapturing", stream_capturing),
    CALL("hipStreamBeginCapture", capture_begin),
    CALL("hipStreamEndCapture", capture_end),
    CALL("hipStreamGetCaptureInfo_v2", capture_info),
    CALL("hipThreadExchangeStreamCaptureMode", capture_mode),
    CALL("hipUserObjectCreate", object_create),
    CALL("hipUserObjectRelease", object_release),
    CALL("hipGraphRetainUserObject", graph_retain),
    CALL("hipGraphDestroy", graph_destroy),
    CALL("hipGraphInstantiateWithFlags", graph_instantiate),
    CALL("hipGraphLaunch", graph_launch),
    CALL("hipGraphExecDestroy", exec_destroy),
    CALL("hipPointerGetAttribute", pointer_attribute),
    CALL("hipGetLastError", hip.last_error),
    CALL("hipGetDevicePropertiesR0600", hip.properties),
    CALL("hipGetDevice", hip.device_current),
    CALL("hipSetDevice", hip.device_set),
};
#undef CALL

static int is_arch(const char *text) {
    return memcmp(text, "gfx", 3) == 0 && isxdigit((unsigned char)text[3]) &&
           isxdigit((unsigned char)text[4]) && isxdigit((unsigned char)text[5]);
}

/* gcnArchName ("gfx942:sramecc+:xnack-") is looked for, since its place is not
 * the same in all versions; the device's name, which may say anything, is
 * skipped. */
static int hip_arch(const kgen__device *device, char *out, size_t size) {
    char properties[PROPERTIES_BYTES] = {0};
    int code = device->calls.hip.properties(properties, device->ordinal);
    if (code) return code;
    for (size_t i = PROPERTIES_NAME; i + size < sizeof properties; i++) {
        if (!is_arch(properties + i)) continue;
        memcpy(out, properties + i, size - 1);
        out[size - 1] = 0;
        out[strcspn(out, ":")] = 0;
        break;
    }
    return 0;
}

static int hip_enter(const kgen__device *device, void **saved) {
    int current = device->ordinal;
    int code = device->calls.hip.device_current(&current);
    *saved = (void *)(intptr_t)current;
    if (code || current == device->ordinal) return code;
    return device->calls.hip.device_set(device->ordinal);
}

static void hip_leave(const kgen__device *device, void *saved) {
    int before = (int)(intptr_t)saved;
    if (before != device->ordinal) device->calls.hip.device_set(before);
}

static void hip_forget(const kgen__device *device) { device->calls.hip.last_error(); }

const kgen__dl_driver kgen__hip_driver = {
    .name = "hip",
    .library_env = "KGEN_HIP_LIB",
    .stem = "libamdhip64",
    .libraries = libraries,
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof symbols[0],
    .units_attribute = MULTIPROCESSOR_COUNT,
    .pageable_attribute = PAGEABLE_MEMORY_ACCESS,
    .integrated_attribute = INTEGRATED,
    .launch_end = LAUNCH_END,
    .arch = hip_arch,
    .enter = hip_enter,
    .leave = hip_leave,
    .forget = hip_forget,
};

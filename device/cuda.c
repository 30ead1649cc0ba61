/* The names of the CUDA driver's calls, and what differs from HIP. */
#include "dl.h"

#include <stdio.h>

enum {
    MULTIPROCESSOR_COUNT = 16, /* CUdevice_attribute */
    MAX_DYNAMIC_SHARED = 8,    /* CUfunction_attribute */
    LARGE_CLUSTERS = 14,       /* of more than eight workgroups */
    INTEGRATED = 18,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
    PAGEABLE_MEMORY_ACCESS = 88,
    LAUNCH_END = 0, /* CU_LAUNCH_PARAM_END */
};

static const char *const libraries[] = {"libcuda.so.1", "libcuda.so", NULL};

#define CALL KGEN__DL_SYMBOL
static const kgen__dl_symbol symbols[] = {
    CALL("cuInit", init),
    CALL("cuDeviceGetCount", device_count),
    CALL("cuDeviceGet", device_get),
    CALL("cuDeviceGetName", device_name),
    CALL("cuDeviceGetAttribute", device_attribute),
    CALL("cuGetErrorName", error_name),
    CALL("cuGetErrorString", error_string),
    CALL("cuModuleLoadData", module_load),
    CALL("cuModuleUnload", module_unload),
    CALL("cuModuleGetFunction", module_function),
    CALL("cuLaunchKernel", launch),
    CALL("cuMemAlloc_v2", alloc),
    CALL("cuMemFree_v2", release),
    CALL("cuMemcpyHtoD_v2", write),
    CALL("cuMemcpyDtoH_v2", read),
    CALL("cuMemsetD8Async", fill),
    CALL("cuStreamCreate", stream_create),
    CALL("cuStreamDestroy_v2", stream_destroy),
    CALL("cuStreamSynchronize", stream_sync),
    CALL("cuStreamIsCapturing", stream_capturing),
    CALL("cuStreamBeginCapture_v2", capture_begin),
    CALL("cuStreamEndCapture", capture_end),
    CALL("cuStreamGetCaptureInfo_v2", capture_info),
    CALL("cuThreadExchangeStreamCaptureMode", capture_mode),
    CALL("cuUserObjectCreate", object_create),
    CALL("cuUserObjectRelease", object_release),
    CALL("cuGraphRetainUserObject", graph_retain),
    CALL("cuGraphDestroy", graph_destroy),
    CALL("cuGraphInstantiateWithFlags", graph_instantiate),
    CALL("cuGraphLaunch", graph_launch),
    CALL("cuGraphExecDestroy", exec_destroy),
    CALL("cuPointerGetAttribute", pointer_attribute),
    CALL("cuDevicePrimaryCtxRetain", cuda.context_retain),
    CALL("cuDevicePrimaryCtxRelease_v2", cuda.context_release),
    CALL("cuCtxPushCurrent_v2", cuda.context_push),
    CALL("cuCtxPopCurrent_v2", cuda.context_pop),
    CALL("cuFuncSetAttribute", cuda.function_attribute),
    CALL("cuOccupancyMaxActiveClusters", cuda.active_clusters),
};
#undef CALL

static int cuda_arch(const kgen__device *device, char *out, size_t size) {
    int major = 0, minor = 0;
    int code = device->calls.device_attribute(&major, CAPABILITY_MAJOR, device->handle);
    if (!code) code = device->calls.device_attribute(&minor, CAPABILITY_MINOR, device->handle);
    snprintf(out, size, "sm_%d%d", major, minor);
    return code;
}

/* The primary context is the one that the CUDA runtime and engines use. */
static int cuda_start(kgen__device *device) {
    return device->calls.cuda.context_retain(&device->context, device->handle);
}

static void cuda_stop(kgen__device *device) {
    if (device->context) device->calls.cuda.context_release(device->handle);
}

static int cuda_enter(const kgen__device *device, void **saved) {
    (void)saved; /* the driver keeps a stack */
    return device->calls.cuda.context_push(device->context);
}

static void cuda_leave(const kgen__device *device, void *saved) {
    void *popped = NULL;
    (void)saved;
    device->calls.cuda.context_pop(&popped);
}

static int cuda_allow(const kgen__device *device, void *function, int lds_bytes) {
    int code = device->calls.cuda.function_attribute(function, LARGE_CLUSTERS, 1);
    if (code || !lds_bytes) return code;
    return device->calls.cuda.function_attribute(function, MAX_DYNAMIC_SHARED, lds_bytes);
}

/* CUlaunchConfig. Code with clusters says itself how large they are: no attributes. */
typedef struct cuda_launch {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
} cuda_launch;

static int cuda_clusters(const kgen__device *device, void *function,
                         const kgen__launch_config *config, int *count) {
    const cuda_launch launch = {
        .grid = {config->grid, 1, 1}, .block = {config->block, 1, 1}, .shared = config->lds};
    return device->calls.cuda.active_clusters(count, function, &launch);
}

const kgen__dl_driver kgen__cuda_driver = {
    .name = "cuda",
    .library_env = "KGEN_CUDA_LIB",
    .stem = "libcuda",
    .libraries = libraries,
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof symbols[0],
    .units_attribute = MULTIPROCESSOR_COUNT,
    .pageable_attribute = PAGEABLE_MEMORY_ACCESS,
    .integrated_attribute = INTEGRATED,
    .launch_end = LAUNCH_END,
    .start = cuda_start,
    .stop = cuda_stop,
    .arch = cuda_arch,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .allow = cuda_allow,
    .clusters = cuda_clusters,
};

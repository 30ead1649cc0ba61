/* A HIP driver without a GPU: it remembers what it was asked, and computes
 * nothing. Two devices; the architecture is $MOCK_ARCH, of the second $MOCK_ARCH_1,
 * else gfx942; with $MOCK_INTEGRATED both use the host's memory, with $MOCK_CAPTURES
 * somebody captures all the time. */
#include "mock_hip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum {
    ARCH_AT = 1160, /* of gcnArchName in hipDeviceProp_t */
    PAGEABLE = 65,  /* hipDeviceAttribute_t */
    INTEGRATED = 16,
    FLAGS_AT = 48, /* of e_flags in an ELF header */
    INVALID_VALUE = 1,
    ALLOCATIONS = 64,
};

static struct {
    char *begin;
    size_t bytes;
} allocations[ALLOCATIONS];

static __thread int current;

static __thread int thread_mode; /* 0: global */
static int current_device(void) { return current; }
static int current_mode(void) { return thread_mode; }

API mock_hip mock_hip_state = {.current = current_device, .mode = current_mode};

#define STATE (&mock_hip_state)

API int hipInit(unsigned flags) {
    STATE->inits++;
    return (int)flags;
}

API int hipGetDeviceCount(int *count) {
    *count = MOCK_DEVICES;
    return 0;
}

API int hipDeviceGet(int *handle, int ordinal) {
    *handle = ordinal;
    return 0;
}

API int hipDeviceGetName(char *name, int size, int handle) {
    snprintf(name, (size_t)size, "Mock %d", handle);
    return 0;
}

API int hipDeviceGetAttribute(int *value, int attribute, int handle) {
    (void)handle;
    *value = attribute == PAGEABLE     ? STATE->pageable
             : attribute == INTEGRATED ? STATE->integrated || getenv("MOCK_INTEGRATED")
                                       : 304;
    return 0;
}

API int hipDrvGetErrorName(int code, const char **text) {
    *text = "mockError";
    return code * 0;
}

API int hipDrvGetErrorString(int code, const char **text) {
    *text = "the mock driver says so";
    return code * 0;
}

API int hipGetDevicePropertiesR0600(void *properties, int ordinal) {
    const char *arch = getenv(ordinal ? "MOCK_ARCH_1" : "MOCK_ARCH");
    char *at = properties;
    memset(at, 0, 1472);
    snprintf(at, 256, "Mock %d", ordinal);
    snprintf(at + ARCH_AT, 256, "%s", arch ? arch : "gfx942:sramecc+:xnack-");
    return 0;
}

API int hipGetDevice(int *ordinal) {
    *ordinal = current;
    return 0;
}

API int hipSetDevice(int ordinal) {
    current = ordinal;
    return 0;
}

/* What a capture in global mode forbids to threads that did not leave that mode. */
static int is_forbidden(void) { return STATE->capturing && STATE->global && thread_mode == 0; }

API int hipThreadExchangeStreamCaptureMode(int *mode) {
    int was = thread_mode;
    thread_mode = *mode;
    *mode = was;
    return 0;
}

API int hipModuleLoadData(void **module, const void *image) {
    if (is_forbidden() || getenv("MOCK_CAPTURES")) return 900;
    STATE->mach = ((const unsigned char *)image)[FLAGS_AT];
    STATE->loads[current]++;
    *module = malloc(sizeof(int));
    *(int *)*module = current;
    return 0;
}

API int hipModuleUnload(void *module) {
    STATE->unloads[current]++;
    free(module);
    return 0;
}

API int hipModuleGetFunction(void **function, void *module, const char *name) {
    (void)name;
    *function = module;
    return 0;
}

API int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, void *stream,
                              void **params, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)params, (void)extra;
    if (*(const int *)function != current) return 101; /* as HIP 7.2 does */
    STATE->launches[current]++;
    STATE->launched_on = stream;
    if (shared > STATE->lds) STATE->lds = shared;
    return 0;
}

API int hipMalloc(void **out, size_t bytes) {
    int i = 0;
    if (is_forbidden()) return 900;
    while (i < ALLOCATIONS && allocations[i].begin) i++;
    if (i == ALLOCATIONS || posix_memalign(out, 256, bytes)) return 2;
    allocations[i].begin = *out;
    allocations[i].bytes = bytes;
    return 0;
}

API int hipPointerGetAttribute(void *value, int attribute, void *memory) {
    (void)value, (void)attribute;
    STATE->asked++;
    for (int i = 0; i < ALLOCATIONS; i++)
        if ((char *)memory >= allocations[i].begin &&
            (char *)memory < allocations[i].begin + allocations[i].bytes)
            return 0;
    STATE->last_error = INVALID_VALUE;
    return INVALID_VALUE;
}

API int hipGetLastError(void) {
    int code = STATE->last_error;
    STATE->last_error = 0;
    return code;
}

API int hipFree(void *memory) {
    for (int i = 0; i < ALLOCATIONS; i++)
        if (allocations[i].begin == memory) allocations[i].begin = NULL;
    free(memory);
    return 0;
}

API int hipMemcpyHtoD(void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
    return 0;
}

API int hipMemcpyDtoH(void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
    return 0;
}

API int hipMemsetAsync(void *dst, int value, size_t bytes, void *stream) {
    (void)stream;
    memset(dst, value, bytes);
    return 0;
}

API int hipStreamCreateWithFlags(void **stream, unsigned flags) {
    (void)flags;
    *stream = malloc(8);
    return 0;
}

API int hipStreamDestroy(void *stream) {
    free(stream);
    return 0;
}

API int hipStreamSynchronize(void *stream) {
    (void)stream;
    return 0;
}

API int hipStreamIsCapturing(void *stream, int *status) {
    *status = stream && stream == STATE->capturing;
    return 0;
}

typedef struct object {
    void (*gone)(void *held);
    void *held;
    unsigned references;
} object;

/* A graph, or an instance of one. */
typedef struct graph {
    object *owned; /* one is all that is remembered */
} graph;

static graph *captured;

API int hipStreamBeginCapture(void *stream, int mode) {
    (void)mode;
    STATE->capturing = stream;
    captured = calloc(1, sizeof *captured);
    return 0;
}

API int hipStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **out,
                                   const void **dependencies, size_t *count) {
    (void)id, (void)dependencies, (void)count;
    *status = stream == STATE->capturing;
    *out = captured;
    return 0;
}

API int hipStreamEndCapture(void *stream, void **out) {
    (void)stream;
    STATE->capturing = NULL;
    *out = captured;
    captured = NULL;
    return 0;
}

API int hipUserObjectCreate(void **out, void *held, void (*gone)(void *held), unsigned references,
                            unsigned flags) {
    object *o = malloc(sizeof *o);
    *o = (object){gone, held, references};
    *out = o;
    return flags == 1 ? 0 : INVALID_VALUE;
}

API int hipUserObjectRelease(void *handle, unsigned references) {
    object *o = handle;
    o->references -= references;
    if (o->references) return 0;
    o->gone(o->held);
    free(o);
    return 0;
}

API int hipGraphRetainUserObject(void *handle, void *owned, unsigned references, unsigned flags) {
    if (STATE->retain_fails) return INVALID_VALUE;
    ((graph *)handle)->owned = owned;
    return references == 1 && flags == 1 ? 0 : INVALID_VALUE;
}

API int hipGraphDestroy(void *handle) {
    graph *g = handle;
    if (g->owned) hipUserObjectRelease(g->owned, 1);
    free(g);
    return 0;
}

API int hipGraphInstantiateWithFlags(void **exec, void *handle, unsigned long long flags) {
    graph *instance = malloc(sizeof *instance);
    *instance = *(graph *)handle;
    if (instance->owned) instance->owned->references++;
    *exec = instance;
    return (int)flags;
}

API int hipGraphLaunch(void *exec, void *stream) {
    (void)exec, (void)stream;
    return 0;
}

API int hipGraphExecDestroy(void *exec) { return hipGraphDestroy(exec); }

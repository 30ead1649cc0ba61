/* A device is one table of functions: hip, cuda (both by dlopen) and cpu.
 * Everything above this line of the runtime is vendor-free. */
#ifndef KGEN_DEVICE_DEVICE_H
#define KGEN_DEVICE_DEVICE_H

#include <kgen/runtime.h>

typedef struct kgen__device kgen__device;

typedef struct kgen__launch_config {
    uint32_t grid;    /* workgroups, one dimension */
    uint32_t block;   /* lanes of a workgroup */
    uint32_t lds;     /* bytes that the launch gives a workgroup */
    uint32_t cluster; /* workgroups that meet; code of a GPU says so itself. 0: each by itself */
} kgen__launch_config;

typedef struct kgen__device_api {
    const char *name; /* "hip" */
    /* Opens device `ordinal`. what: of hip and cuda the driver library, NULL for
     * the usual one; of cpu the persona ("cdna3"). KGEN_E_DEVICE when the driver
     * or the device is not there, saying which. */
    kgen_status (*open)(kgen__device **out, int ordinal, const char *what, kgen_error *err);
    void (*close)(kgen__device *device);
    /* Code object -> loaded function. The module copies or keeps `code` by
     * itself. Checks that the object's arch fits the device. */
    kgen_status (*load)(kgen__device *device, const kgen_entry *entry, void **module,
                        void **function, kgen_error *err);
    void (*unload)(kgen__device *device, void *module);
    /* One driver call; `params` is the packed POD argument struct. */
    kgen_status (*launch)(kgen__device *device, void *function, kgen__launch_config config,
                          const void *params, size_t params_bytes, kgen_stream stream,
                          kgen_error *err);
    kgen_status (*alloc)(kgen__device *device, void **out, size_t bytes, kgen_error *err);
    void (*release)(kgen__device *device, void *memory);
    kgen_status (*write)(kgen__device *device, void *dst, const void *src, size_t bytes,
                         kgen_error *err);
    kgen_status (*read)(kgen__device *device, void *dst, const void *src, size_t bytes,
                        kgen_error *err);
    /* memset in stream order; may be captured. */
    kgen_status (*fill)(kgen__device *device, void *dst, int value, size_t bytes,
                        kgen_stream stream, kgen_error *err);
    kgen_status (*stream_create)(kgen__device *device, kgen_stream *out, kgen_error *err);
    void (*stream_destroy)(kgen__device *device, kgen_stream stream);
    kgen_status (*stream_sync)(kgen__device *device, kgen_stream stream, kgen_error *err);
    /* 1 while `stream` captures (NULL: any stream this device made). */
    int (*capturing)(kgen__device *device, kgen_stream stream);
    kgen_status (*graph_begin)(kgen__device *device, kgen_stream stream, kgen_error *err);
    kgen_status (*graph_end)(kgen__device *device, kgen_stream stream, void **graph,
                             kgen_error *err);
    kgen_status (*graph_launch)(kgen__device *device, void *graph, kgen_stream stream,
                                kgen_error *err);
    void (*graph_free)(kgen__device *device, void *graph);
    /* gone(held) is called once: when the graph that `stream` captures and all that is
     * made of it are gone, by any thread, which must not call the driver; at once where
     * this fails. KGEN_E_ARG: the stream does not capture. */
    kgen_status (*graph_hold)(kgen__device *device, kgen_stream stream, void (*gone)(void *held),
                              void *held, kgen_error *err);
    /* What the device is: target by arch name, compute units, a label. */
    const kgen_target *(*target)(const kgen__device *device);
    int (*compute_units)(const kgen__device *device);
    /* Clusters of config.cluster workgroups that are resident at once. 0: the device does not say.
     * NULL: as many as its units have room for. */
    int (*resident_clusters)(kgen__device *device, void *function, kgen__launch_config config);
    const char *(*label)(const kgen__device *device);
    /* 0: the driver does not know this memory, and the device cannot read what it
     * does not know. NULL: nobody can tell. Slow: off the launch path. */
    int (*reaches)(kgen__device *device, const void *memory);
    const char *(*library)(const kgen__device *device); /* path of the driver, or "" */
} kgen__device_api;

extern const kgen__device_api kgen__device_hip;
extern const kgen__device_api kgen__device_cuda;
extern const kgen__device_api kgen__device_cpu;

#endif

/* A driver library that is opened while the program runs. HIP and CUDA name
 * the same calls with the same shapes (handles are pointers, results are
 * ints, 0 is success), so one implementation serves both; what differs is the
 * names, how an architecture is told, and what makes a device current. */
#ifndef KGEN_DEVICE_DL_H
#define KGEN_DEVICE_DL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"

typedef struct kgen__dl_calls {
    int (*init)(unsigned flags);
    int (*device_count)(int *count);
    int (*device_get)(int *handle, int ordinal);
    int (*device_name)(char *name, int size, int handle);
    int (*device_attribute)(int *value, int attribute, int handle);
    int (*error_name)(int code, const char **text);
    int (*error_string)(int code, const char **text);
    int (*module_load)(void **module, const void *image);
    int (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                  void *stream, void **params, void **extra);
    int (*alloc)(void **out, size_t bytes);
    int (*release)(void *memory);
    int (*write)(void *dst, const void *src, size_t bytes);
    int (*read)(void *dst, const void *src, size_t bytes);
    /* CUDA's value is an unsigned char: the same register, and ours is 0. */
    int (*fill)(void *dst, int value, size_t bytes, void *stream);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_sync)(void *stream);
    int (*stream_capturing)(void *stream, int *status);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*capture_info)(void *stream, int *status, unsigned long long *id, void **graph,
                        const void **dependencies, size_t *count);
    int (*capture_mode)(int *mode); /* of this thread; swaps it */
    int (*object_create)(void **object, void *held, void (*gone)(void *held), unsigned references,
                         unsigned flags);
    int (*object_release)(void *object, unsigned references);
    int (*graph_retain)(void *graph, void *object, unsigned references, unsigned flags);
    int (*graph_destroy)(void *graph);
    int (*graph_instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_launch)(void *exec, void *stream);
    int (*exec_destroy)(void *exec);
    int (*pointer_attribute)(void *value, int attribute, void *memory);
    union {
        struct {
            int (*properties)(void *properties, int ordinal);
            int (*device_current)(int *ordinal);
            int (*device_set)(int ordinal);
            int (*last_error)(void); /* and forgets it */
        } hip;
        struct {
            int (*context_retain)(void **context, int handle);
            int (*context_release)(int handle);
            int (*context_push)(void *context);
            int (*context_pop)(void **context);
            int (*function_attribute)(void *function, int attribute, int value);
            int (*active_clusters)(int *count, void *function, const void *launch);
        } cuda;
    };
} kgen__dl_calls;

typedef struct kgen__dl_symbol {
    const char *name;
    size_t offset; /* in kgen__dl_calls */
} kgen__dl_symbol;

#define KGEN__DL_SYMBOL(name, member) {name, offsetof(kgen__dl_calls, member)}

typedef struct kgen__dl_driver {
    const char *name;               /* "hip" */
    const char *library_env;        /* names one library, instead of: */
    const char *stem;               /* how its file name begins: "libamdhip64" */
    const char *const *libraries;   /* NULL-terminated, in this order */
    const kgen__dl_symbol *symbols; /* one for every call */
    size_t symbol_count;
    int units_attribute;      /* how many compute units */
    int pageable_attribute;   /* 1: the device reads all memory of the host */
    int integrated_attribute; /* 1: its memory is that of the host */
    uintptr_t launch_end;     /* ends the `extra` list of a launch */
    /* Driver codes below are 0 or an error of the driver. May be NULL. */
    int (*start)(kgen__device *device);
    void (*stop)(kgen__device *device);
    int (*arch)(const kgen__device *device, char *out, size_t size);
    /* Makes the device current in this thread; leave restores what was. */
    int (*enter)(const kgen__device *device, void **saved);
    void (*leave)(const kgen__device *device, void *saved);
    /* Launches of the function may give a workgroup so much LDS, 0: what it has by itself, and
     * have clusters as large as the device has them. May be NULL. */
    int (*allow)(const kgen__device *device, void *function, int lds_bytes);
    /* Clusters of the function that are resident at once. May be NULL. */
    int (*clusters)(const kgen__device *device, void *function, const kgen__launch_config *config,
                    int *count);
    /* What a failed call leaves behind for others to find. May be NULL. */
    void (*forget)(const kgen__device *device);
} kgen__dl_driver;

typedef struct kgen__dl_stream kgen__dl_stream;

enum { KGEN__DL_PATH_MAX = 1024 };

struct kgen__device {
    const kgen__dl_driver *driver;
    kgen__dl_calls calls;
    int ordinal;
    int handle;    /* of the driver, for the device */
    void *context; /* cuda */
    const kgen_target *target;
    int compute_units;
    int reads_host;           /* all of it, as if it were its own */
    kgen__dl_stream *streams; /* made by stream_create; under the lock */
    pthread_mutex_t lock;
    char label[160];
    char library[KGEN__DL_PATH_MAX]; /* the path of the driver */
};

/* dl_library.c: the driver library, opened and never closed. *path: of it. named:
 * NULL for the usual one, "" too. KGEN_E_DEVICE says where was looked. */
kgen_status kgen__dl_library(void **out, char path[KGEN__DL_PATH_MAX],
                             const kgen__dl_driver *driver, const char *named, kgen_error *err);

extern const kgen__dl_driver kgen__hip_driver;
extern const kgen__dl_driver kgen__cuda_driver;

#endif

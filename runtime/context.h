/* The runtime's own state, shared by its files. */
#ifndef KGEN_RUNTIME_CONTEXT_H
#define KGEN_RUNTIME_CONTEXT_H

#include "device/device.h"
#include "gen/attn.h"
#include "gen/kv.h"
#include "args_again.h"

#include <pthread.h>

/* What KGEN_CAPTURE asks for (capture.h). */
typedef struct kgen__capture kgen__capture;

/* What launches count with of kv_write and kv_gather. */
typedef struct kgen__kv_counts {
    kgen__kv_shape shape;
    int32_t packed, x, block; /* packed V; elements of 16 bytes; rows side by side */
    int32_t lanes[2];         /* of a row of K, of V */
    int32_t wave_heads;       /* packed V: that a wave has side by side */
    int32_t slices;           /* of so many heads */
    int64_t threads;          /* of a workgroup */
} kgen__kv_counts;

struct kgen_kernel {
    kgen_context *ctx;
    kgen_kernel *next;
    kgen_spec spec; /* resolved */
    kgen_tuning_match match;
    kgen_resources resources;
    kgen_key key;
    char toolchain[64];
    void *module, *function;
    double load_us; /* what the driver took for that */
    kgen__binding binding;
    kgen__memo memo;
    union {
        kgen__attn_geometry attn; /* attn, mla */
        kgen__kv_counts kv;
    } counts;                   /* settled with the binding */
    kgen__launch_config config; /* grid: the most workgroups worth launching */
    _Atomic int reached;        /* a launch had memory that the device can read */
    _Atomic size_t holds;       /* of graphs */
};

struct kgen_context {
    const kgen__device_api *api;
    kgen__device *device;
    const kgen_target *target;
    kgen_cache *cache;
    char *tuning_file;   /* settled by kgen_open, for kgen_tuning_open */
    kgen_tuning *tuning; /* NULL until a problem is first named: reading costs
                            a start more than the rest of it */
    char device_name[128];
    kgen_mode mode;
    pthread_mutex_t lock; /* of the next three and of tuning; finders read without it */
    kgen_kernel *kernels;
    kgen_kernel *retired; /* released, and held by graphs when last looked at */
    struct kgen__finder *finder;
    kgen__capture *capture; /* NULL: no launch is saved */
    kgen_log log;           /* NULL: nobody listens */
    void *log_user;
    kgen_context *next_closed; /* of those that graphs keep */
};

/* hold.c. The first two under the context's lock: unloads what is retired and not
 * held, and says how many are left; the same of one kernel that nothing finds. */
size_t kgen__reclaim(kgen_context *ctx);
void kgen__retire(kgen_kernel *kernel);
/* Unloads all kernels, then closes the device: now, or when graphs let go of them. */
void kgen__close_device(kgen_context *ctx);
/* What graphs have let go of since. */
void kgen__sweep_closed(void);

/* One line to the context's log. */
void kgen__log(const kgen_context *ctx, kgen_log_level level, const char *fmt, ...)
    KGEN_PRINTF(3, 4);

struct kgen_graph {
    kgen_context *ctx;
    void *graph;
};

#endif

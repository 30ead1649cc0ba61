/* Prepare once, then only find and launch.
 *
 *   kgen_open -> kgen_prepare(specs) -> kgen_find, kgen_launch ... -> kgen_close */
#ifndef KGEN_RUNTIME_H
#define KGEN_RUNTIME_H

#include "args.h"
#include "build.h"
#include "tuning.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kgen_context kgen_context;
typedef struct kgen_kernel kgen_kernel;
typedef void *kgen_stream; /* hipStream_t, CUstream, or a cpu stream */

typedef enum kgen_mode {
    KGEN_MODE_AUTO,    /* prepare compiles what is missing */
    KGEN_MODE_WARN,    /* the same, and tells the log each time */
    KGEN_MODE_STRICT,  /* a miss is KGEN_E_NOT_CACHED with the line that fixes it */
    KGEN_MODE_OFFLINE, /* the same, and the compiler is never touched */
} kgen_mode;

typedef enum kgen_log_level { KGEN_LOG_INFO, KGEN_LOG_WARNING } kgen_log_level;
/* One line without a newline. Called by the thread that called kgen; must not
 * call kgen with the same context. */
typedef void (*kgen_log)(kgen_log_level level, const char *text, void *user);

typedef struct kgen_open_options {
    size_t size;           /* sizeof(kgen_open_options) */
    const char *device;    /* "hip:0", "cuda:0", "cpu:cdna3"; NULL: $KGEN_DEVICE
                              or the GPU: the first of hip and cuda. The cpu
                              device emulates a GPU, and is never a default */
    const char *cache_dir; /* as kgen_cache_open */
    kgen_mode mode;
    const char *tuning; /* as kgen_tuning_open: the user's file; NULL: where
                              it usually is; "": no tuning database */
    const char *driver; /* the libamdhip64 or libcuda to use; NULL: $KGEN_HIP_LIB
                           or $KGEN_CUDA_LIB, or the one that the process has
                           loaded, or the system's */
    kgen_log log;       /* NULL: nothing is told. The library itself never
                           writes to stdout or stderr */
    void *log_user;
} kgen_open_options;

/* options may be NULL. *out: kgen_close. Not on the launch path. KGEN_E_DEVICE
 * says what was looked for and found, KGEN_E_TARGET that there are no kernels for the
 * GPU that was named; of a machine whose GPU is not named the first is taken that has
 * kernels. A driver library that the process has
 * loaded is used, whoever brought it: streams and memory of one copy mean
 * nothing to another. Of two loaded copies one must be named. A process may open
 * several devices, and one device several times. */
KGEN_API kgen_status kgen_open(kgen_context **out, const kgen_open_options *options,
                               kgen_error *err);
/* Unloads every kernel. No stream may still use or capture one. */
KGEN_API void kgen_close(kgen_context *ctx);

KGEN_API const kgen_target *kgen_context_target(const kgen_context *ctx);
/* "cuda:0 NVIDIA H200 (sm_90, 132 units)" */
KGEN_API const char *kgen_context_device(const kgen_context *ctx);
/* Of it what names the device, as rows of the tuning database do: "NVIDIA H200". */
KGEN_API const char *kgen_context_device_name(const kgen_context *ctx);
/* The driver library in use, as a path; "" of the cpu device. */
KGEN_API const char *kgen_context_driver(const kgen_context *ctx);
KGEN_API kgen_cache *kgen_context_cache(kgen_context *ctx);

/* Resolves, builds if the mode allows, loads, and gets the functions of all
 * specs; kernels[i] belongs to the context. A spec that fails does not keep the
 * others from being prepared: kernels[i] is NULL where it failed, and the status
 * and text are those of the first. This is kgen_prepare_for with problems that
 * are not known and no options. Thread-safe. */
KGEN_API kgen_status kgen_prepare(kgen_context *ctx, const kgen_spec *specs, size_t count,
                                  kgen_kernel **kernels, kgen_error *err);

/* A spec for a problem of about that size: open tuning keys are filled by the
 * tuning database (tuning.h), whose files are settled by kgen_open and read when a
 * problem is first named. Ask once for each size that is to have its own kernel
 * (a graph of batch 8, one of 64), and leave open what varies (its context). */
typedef struct kgen_request {
    size_t size; /* sizeof(kgen_request), in all of an array */
    kgen_spec spec;
    kgen_problem problem; /* 0: not known */
    /* What became of it: */
    kgen_kernel *kernel; /* the context's; NULL where it failed */
    int32_t compiled;    /* 1: now; 0: it was in the cache, or prepared before */
    kgen_error error;    /* its own; status KGEN_OK where it did not fail */
} kgen_request;

typedef struct kgen_prepare_options {
    size_t size;
    kgen_stream stream; /* the caller's: while it captures nothing is compiled or
                           loaded (KGEN_E_CAPTURE); NULL: none is asked */
    int workers;        /* as kgen_build_options */
    /* May be NULL. Called by this thread, for each request when it is settled. */
    void (*progress)(const kgen_request *request, size_t done, size_t total, void *user);
    /* May be NULL; asked about 20 times a second. Not 0: compilers are ended, and
     * what is not prepared by then is KGEN_E_CANCELLED. */
    int (*cancel)(void *user);
    void *user;
} kgen_prepare_options;

/* Compiles in parallel what is not in the cache, loads each as it comes, and fills
 * every request's results. Requests whose kernels are prepared need neither
 * driver nor compiler, also while a stream captures. KGEN_OK: all are prepared;
 * else the first failure. Thread-safe. */
KGEN_API kgen_status kgen_prepare_for(kgen_context *ctx, kgen_request *requests, size_t count,
                                      const kgen_prepare_options *options, kgen_error *err);

/* A prepared kernel, or NULL: never builds, loads or waits, takes no lock, and may
 * be called by any thread at any time, also during capture. Found by a spec as it
 * was asked for, by a kernel's resolved spec, and by either with its tuning keys
 * open. problem: as it was asked for; NULL, or one that was not asked for: the
 * kernel of the problem that is not known, else the first of that spec. */
KGEN_API kgen_kernel *kgen_find(const kgen_context *ctx, const kgen_spec *spec,
                                const kgen_problem *problem);

/* Unloads a kernel; kgen_find forgets it, and a later prepare makes a new one.
 * The caller knows that no launch of it is under way, and that no thread still has
 * the handle. Graphs that hold it (kgen_graph_hold) keep it loaded until they are
 * gone; others must not be launched again. NULL may be released; kgen_close
 * releases all. */
KGEN_API void kgen_kernel_release(kgen_kernel *kernel);
/* Between the begin and the end of a capture, the engine's own or kgen_graph_begin's:
 * the graph that `stream` captures holds these kernels of the context (NULL: all that
 * are prepared by now), and so does what is instantiated or cloned of it. What was
 * released or closed in the meantime is unloaded by the next release, prepare, open,
 * close or kgen_context_reclaim after the last of them is gone: drivers do not let it
 * be done at once, and may say so a little later. KGEN_E_ARG: the stream does not
 * capture. Any thread. */
KGEN_API kgen_status kgen_graph_hold(kgen_context *ctx, kgen_kernel *const *kernels, size_t count,
                                     kgen_stream stream, kgen_error *err);
/* Unloads what was released and is held no longer. How many released kernels graphs
 * still hold. Any thread. */
KGEN_API size_t kgen_context_reclaim(kgen_context *ctx);

KGEN_API const kgen_spec *kgen_kernel_spec(const kgen_kernel *kernel);
/* Why it has that spec: of the first request that led to this kernel. */
KGEN_API const kgen_tuning_match *kgen_kernel_match(const kgen_kernel *kernel);
KGEN_API const kgen_resources *kgen_kernel_resources(const kgen_kernel *kernel);

/* Bytes of workspace for launches of these capacities, from the shapes in
 * `args` (its pointers are not read). 0: none is needed. Depends on the device. */
KGEN_API kgen_status kgen_workspace_size(const kgen_kernel *kernel, const kgen_args *args,
                                         size_t *bytes, kgen_error *err);
/* Prepares the counters at the start of a workspace, in stream order. Once for
 * each workspace: launches leave them so. A workspace may serve many kernels, in
 * one stream: launches in it may not overlap.
 *
 * What launches notice, each for the work that several of its workgroups share:
 * surely    a workspace that was never prepared, was zeroed, or was prepared by a
 *           version with another layout; one that an aborted launch left; another
 *           launch that counts in the same counter at the same time
 * nearly    another launch in the workspace that counts elsewhere: not if it began
 *           within the last moments of this one
 * A launch of attention then sets KGEN_ATTN_WORKSPACE in `error` and leaves NaN where
 * workgroups share an item; whole items that they draw are right. A launch of gdn does
 * not move the convolution window. Both make kgen_workspace_check fail until the
 * workspace is prepared again. */
KGEN_API kgen_status kgen_workspace_init(kgen_context *ctx, void *workspace, size_t bytes,
                                         kgen_stream stream, kgen_error *err);
/* Waits for the stream and reads the counters. KGEN_E_ARG: a launch found the
 * workspace unfit since it was prepared, or the counters are not as that or a
 * launch leaves them. Off the launch path, and not while the stream captures. */
KGEN_API kgen_status kgen_workspace_check(kgen_context *ctx, const void *workspace, size_t bytes,
                                          kgen_stream stream, kgen_error *err);

/* Checks the arguments against the spec (a mismatch is KGEN_E_ARG naming the
 * tensor, the value and the bound, and nothing is launched), then one driver
 * call. No lock, no allocation, no synchronisation, no compile. Safe in a
 * captured graph: the grid depends on the shapes, lengths are read on the
 * device. A kernel's first launch asks the driver whether the device can read the
 * tensors. Thread-safe for different streams. */
KGEN_API kgen_status kgen_launch(const kgen_kernel *kernel, const kgen_args *args,
                                 kgen_stream stream, kgen_error *err);

/* The checks of kgen_launch alone, and those of its first launch: memory of the
 * host that the driver does not know is refused by name, where the device cannot
 * read it. Each address is a question to the driver. */
KGEN_API kgen_status kgen_launch_check(const kgen_kernel *kernel, const kgen_args *args,
                                       kgen_error *err);

/* A small part of the driver, so that one program (kgen check, the tests, the
 * examples) runs on hip, cuda and cpu alike. Engines bring their own. */
KGEN_API kgen_status kgen_memory_alloc(kgen_context *ctx, void **out, size_t bytes,
                                       kgen_error *err);
KGEN_API void kgen_memory_free(kgen_context *ctx, void *memory);
KGEN_API kgen_status kgen_memory_write(kgen_context *ctx, void *dst, const void *src, size_t bytes,
                                       kgen_error *err);
KGEN_API kgen_status kgen_memory_read(kgen_context *ctx, void *dst, const void *src, size_t bytes,
                                      kgen_error *err);
/* Numbers of the host (scales of a checkpoint, a Python float) as the [count] f32
 * tensor of the device that k_scale, k_descale, out_scale and the like are: once,
 * when a model is loaded, since a launch reads them where they are. count is 1 for a
 * tensor, the heads for one each. They must be finite and above 0. out->data is the
 * caller's: kgen_memory_free. Not while a stream captures. */
KGEN_API kgen_status kgen_scales_upload(kgen_context *ctx, kgen_tensor *out, const float *scales,
                                        int32_t count, kgen_error *err);
KGEN_API kgen_status kgen_stream_create(kgen_context *ctx, kgen_stream *out, kgen_error *err);
KGEN_API void kgen_stream_destroy(kgen_context *ctx, kgen_stream stream);
KGEN_API kgen_status kgen_stream_sync(kgen_context *ctx, kgen_stream stream, kgen_error *err);
typedef struct kgen_graph kgen_graph;
KGEN_API kgen_status kgen_graph_begin(kgen_context *ctx, kgen_stream stream, kgen_error *err);
KGEN_API kgen_status kgen_graph_end(kgen_context *ctx, kgen_stream stream, kgen_graph **out,
                                    kgen_error *err);
KGEN_API kgen_status kgen_graph_launch(kgen_graph *graph, kgen_stream stream, kgen_error *err);
KGEN_API void kgen_graph_free(kgen_graph *graph);

#ifdef __cplusplus
}
#endif
#endif

/* The cpu device: kernels are shared objects that a crew of threads runs with the
 * wave size and LDS of the GPU that the persona names. Memory is the program's,
 * and a launch is done when it returns. */
#define _GNU_SOURCE
#include "device/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "crew.h"
#include "graph.h"
#include "module.h"

enum { ALIGNMENT = 256, POISON = 0xff, THREADS_DEFAULT = 4, THREADS_MAX = 64 };

typedef struct cpu_stream {
    struct cpu_stream *next;
    kgen__cpu_graph *recording; /* NULL: not capturing */
    pthread_t owner;            /* who began to capture */
} cpu_stream;

struct kgen__device {
    const kgen_target *target;
    kgen__crew *crew;
    pthread_mutex_t lock;
    cpu_stream *streams;  /* under the lock, as what they record */
    atomic_int capturing; /* streams */
    char label[96];
};

/* A number from the environment; `fallback` where it is not set. */
static kgen_status env_number(const char *name, uint64_t low, uint64_t high, uint64_t fallback,
                              uint64_t *out, kgen_error *err) {
    const char *text = secure_getenv(name);
    char *end = NULL;
    *out = fallback;
    if (!text || !*text) return KGEN_OK;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*end || errno || text[0] == '-' || *out < low || *out > high)
        return kgen_fail(err, KGEN_E_ARG, "%s=%.40s: must be a number from %llu to %llu", name,
                         text, (unsigned long long)low, (unsigned long long)high);
    return KGEN_OK;
}

static uint64_t default_threads(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > THREADS_DEFAULT ? THREADS_DEFAULT : (uint64_t)cores;
}

static uint64_t fresh_seed(void) {
    uint32_t seed = 0;
    return getrandom(&seed, sizeof seed, 0) == sizeof seed ? seed : 1;
}

static void cpu_close(kgen__device *device) {
    while (device->streams) {
        cpu_stream *stream = device->streams;
        device->streams = stream->next;
        kgen__cpu_graph_free(stream->recording);
        free(stream);
    }
    if (device->crew) kgen__crew_free(device->crew);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static kgen_status start(kgen__device *device, const char *persona, kgen_error *err) {
    char name[32];
    uint64_t threads, seed;
    if (!persona) persona = "";
    snprintf(name, sizeof name, "cpu%s%s", *persona ? ":" : "", persona);
    KGEN_TRY(kgen_target_find(&device->target, name, err));
    KGEN_TRY(env_number("KGEN_CPU_THREADS", 1, THREADS_MAX, default_threads(), &threads, err));
    KGEN_TRY(env_number("KGEN_CPU_SEED", 0, UINT64_MAX, fresh_seed(), &seed, err));
    snprintf(device->label, sizeof device->label, "%s (threads %u, seed %llu)",
             device->target->name, (unsigned)threads, (unsigned long long)seed);
    return kgen__crew_create(&device->crew, device->target, (unsigned)threads, seed, err);
}

static kgen_status cpu_open(kgen__device **out, int ordinal, const char *persona, kgen_error *err) {
    if (ordinal != 0)
        return kgen_fail(err, KGEN_E_DEVICE, "cpu:%d: there is one cpu device, number 0", ordinal);
    kgen__device *device = calloc(1, sizeof *device);
    if (!device) return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory");
    pthread_mutex_init(&device->lock, NULL);
    kgen_status status = start(device, persona, err);
    if (status != KGEN_OK) {
        cpu_close(device);
        return status;
    }
    *out = device;
    return KGEN_OK;
}

/* As HIP and CUDA do in thread-local mode: the thread that captures may not
 * make calls that a graph cannot hold; other threads may. */
static kgen_status refuse_capture(kgen__device *device, const char *call, kgen_error *err) {
    int found = 0;
    if (!atomic_load(&device->capturing)) return KGEN_OK;
    pthread_mutex_lock(&device->lock);
    for (const cpu_stream *s = device->streams; s; s = s->next)
        found |= s->recording && pthread_equal(s->owner, pthread_self());
    pthread_mutex_unlock(&device->lock);
    return found ? kgen_fail(err, KGEN_E_CAPTURE, "%s: %s is not allowed while a stream captures",
                             device->target->name, call)
                 : KGEN_OK;
}

static kgen_status cpu_load(kgen__device *device, const kgen_entry *entry, void **module,
                            void **function, kgen_error *err) {
    KGEN_TRY(refuse_capture(device, "load", err));
    if (strcmp(entry->target, device->target->name) != 0)
        return kgen_fail(err, KGEN_E_DEVICE, "%s was built for %s, the device is %s", entry->symbol,
                         entry->target, device->target->name);
    return kgen__cpu_module_load(entry, module, function, err);
}

static void cpu_unload(kgen__device *device, void *module) {
    (void)device;
    kgen__cpu_module_unload(module);
}

static kgen_status check_config(kgen__launch_config config, kgen_error *err) {
    if (config.grid == 0)
        return kgen_fail(err, KGEN_E_ARG, "launch: grid=0, must be at least 1 workgroup");
    if (config.block == 0 || config.block > KGEN__CPU_BLOCK_MAX)
        return kgen_fail(err, KGEN_E_ARG, "launch: block=%u, must be 1 to %d lanes", config.block,
                         KGEN__CPU_BLOCK_MAX);
    if (config.cluster > KGEN__CPU_CLUSTER_MAX || (config.cluster && config.grid % config.cluster))
        return kgen_fail(err, KGEN_E_ARG,
                         "launch: cluster=%u, must be 0 to %d and divide the grid of %u workgroups",
                         config.cluster, KGEN__CPU_CLUSTER_MAX, config.grid);
    return KGEN_OK;
}

static kgen_status cpu_launch(kgen__device *device, void *function, kgen__launch_config config,
                              const void *params, size_t params_bytes, kgen_stream stream,
                              kgen_error *err) {
    const cpu_stream *s = stream;
    unsigned cluster = config.cluster ? config.cluster : 1;
    kgen__cpu_work work = {NULL, params, config.grid, config.block, cluster};
    KGEN_TRY(check_config(config, err));
    memcpy(&work.body, &function, sizeof work.body);
    if (s && s->recording)
        return kgen__cpu_graph_add_launch(s->recording, &work, params_bytes, err);
    return kgen__crew_launch(device->crew, &work, err);
}

static kgen_status cpu_alloc(kgen__device *device, void **out, size_t bytes, kgen_error *err) {
    KGEN_TRY(refuse_capture(device, "alloc", err));
    void *memory = NULL;
    if (bytes && posix_memalign(&memory, ALIGNMENT, bytes) != 0)
        return kgen_fail(err, KGEN_E_NOMEM, "%s: cannot allocate %zu bytes", device->target->name,
                         bytes);
    if (bytes) memset(memory, POISON, bytes);
    *out = memory;
    return KGEN_OK;
}

static void cpu_release(kgen__device *device, void *memory) {
    (void)device;
    free(memory);
}

static kgen_status cpu_write(kgen__device *device, void *dst, const void *src, size_t bytes,
                             kgen_error *err) {
    KGEN_TRY(refuse_capture(device, "write", err));
    if (bytes) memcpy(dst, src, bytes);
    return KGEN_OK;
}

static kgen_status cpu_read(kgen__device *device, void *dst, const void *src, size_t bytes,
                            kgen_error *err) {
    KGEN_TRY(refuse_capture(device, "read", err));
    if (bytes) memcpy(dst, src, bytes);
    return KGEN_OK;
}

static kgen_status cpu_fill(kgen__device *device, void *dst, int value, size_t bytes,
                            kgen_stream stream, kgen_error *err) {
    const cpu_stream *s = stream;
    (void)device;
    if (bytes == 0) return KGEN_OK;
    if (s && s->recording) return kgen__cpu_graph_add_fill(s->recording, dst, value, bytes, err);
    memset(dst, value, bytes);
    return KGEN_OK;
}

static kgen_status cpu_stream_create(kgen__device *device, kgen_stream *out, kgen_error *err) {
    cpu_stream *s = calloc(1, sizeof *s);
    if (!s) return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory for a stream");
    pthread_mutex_lock(&device->lock);
    s->next = device->streams;
    device->streams = s;
    pthread_mutex_unlock(&device->lock);
    *out = s;
    return KGEN_OK;
}

static void set_recording(kgen__device *device, cpu_stream *s, kgen__cpu_graph *graph) {
    pthread_mutex_lock(&device->lock);
    s->recording = graph;
    s->owner = pthread_self();
    pthread_mutex_unlock(&device->lock);
    atomic_fetch_add(&device->capturing, graph ? 1 : -1);
}

static void cpu_stream_destroy(kgen__device *device, kgen_stream stream) {
    cpu_stream *s = stream;
    if (!s) return;
    if (s->recording) {
        kgen__cpu_graph_free(s->recording);
        set_recording(device, s, NULL);
    }
    pthread_mutex_lock(&device->lock);
    cpu_stream **link = &device->streams;
    while (*link && *link != s) link = &(*link)->next;
    if (*link) *link = s->next;
    pthread_mutex_unlock(&device->lock);
    free(s);
}

static kgen_status refuse_recording(const kgen__device *device, const cpu_stream *s,
                                    const char *call, kgen_error *err) {
    return s && s->recording
               ? kgen_fail(err, KGEN_E_CAPTURE, "%s: %s is not allowed on a stream that captures",
                           device->target->name, call)
               : KGEN_OK;
}

/* Nothing to wait for: launches are done when they return. */
static kgen_status cpu_stream_sync(kgen__device *device, kgen_stream stream, kgen_error *err) {
    return refuse_recording(device, stream, "stream_sync", err);
}

static int cpu_capturing(kgen__device *device, kgen_stream stream) {
    const cpu_stream *s = stream;
    return s ? s->recording != NULL : atomic_load(&device->capturing) > 0;
}

static kgen_status cpu_graph_begin(kgen__device *device, kgen_stream stream, kgen_error *err) {
    cpu_stream *s = stream;
    kgen__cpu_graph *graph = NULL;
    if (!s) return kgen_fail(err, KGEN_E_ARG, "graph_begin: the default stream cannot capture");
    KGEN_TRY(refuse_recording(device, s, "graph_begin", err));
    KGEN_TRY(kgen__cpu_graph_create(&graph, err));
    set_recording(device, s, graph);
    return KGEN_OK;
}

static kgen_status cpu_graph_end(kgen__device *device, kgen_stream stream, void **graph,
                                 kgen_error *err) {
    cpu_stream *s = stream;
    if (!s || !s->recording)
        return kgen_fail(err, KGEN_E_ARG, "graph_end: the stream does not capture");
    *graph = s->recording;
    set_recording(device, s, NULL);
    return KGEN_OK;
}

static kgen_status cpu_graph_launch(kgen__device *device, void *graph, kgen_stream stream,
                                    kgen_error *err) {
    KGEN_TRY(refuse_recording(device, stream, "graph_launch", err));
    return kgen__cpu_graph_run(graph, device->crew, err);
}

static void cpu_graph_free(kgen__device *device, void *graph) {
    (void)device;
    kgen__cpu_graph_free(graph);
}

static kgen_status cpu_graph_hold(kgen__device *device, kgen_stream stream,
                                  void (*gone)(void *held), void *held, kgen_error *err) {
    const cpu_stream *s = stream;
    (void)device;
    if (s && s->recording) return kgen__cpu_graph_add_hold(s->recording, gone, held, err);
    gone(held);
    return kgen_fail(err, KGEN_E_ARG, "graph_hold: the stream does not capture");
}

static const kgen_target *cpu_target(const kgen__device *device) { return device->target; }
static int cpu_compute_units(const kgen__device *device) { return device->target->typical_cus; }
static const char *cpu_label(const kgen__device *device) { return device->label; }

static const char *cpu_library(const kgen__device *device) {
    (void)device;
    return "";
}

const kgen__device_api kgen__device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .load = cpu_load,
    .unload = cpu_unload,
    .launch = cpu_launch,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .write = cpu_write,
    .read = cpu_read,
    .fill = cpu_fill,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_sync = cpu_stream_sync,
    .capturing = cpu_capturing,
    .graph_begin = cpu_graph_begin,
    .graph_end = cpu_graph_end,
    .graph_launch = cpu_graph_launch,
    .graph_free = cpu_graph_free,
    .graph_hold = cpu_graph_hold,
    .target = cpu_target,
    .compute_units = cpu_compute_units,
    .label = cpu_label,
    .library = cpu_library,
};

/* One implementation of a device over the driver calls that HIP and CUDA have in
 * common. Every call that belongs to a device makes it current and then restores
 * what was current before, because the engine has its own device set. */
#include "dl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values that HIP and CUDA share. */
enum {
    CODE_NO_MEMORY = 2,
    CODE_OTHER_DEVICE = 101, /* HIP: the function's is not current */
    CODE_NO_CONTEXT = 201,
    CODE_BAD_HANDLE = 400, /* also: of a device that is not current */
    CODE_CAPTURE_FIRST = 900,
    CODE_CAPTURE_LAST = 908,
    POINTER_MEMORY_TYPE = 2,
    STREAM_NON_BLOCKING = 1,
    CAPTURE_THREAD_LOCAL = 1,
    CAPTURE_ACTIVE = 1,
    OBJECT_NO_SYNC = 1, /* the one value: nobody can wait for the destructor */
    RETAIN_MOVE = 1,    /* the graph takes the caller's reference */
    EXTRA_POINTER = 1,
    EXTRA_SIZE = 2,
};

struct kgen__dl_stream {
    struct kgen__dl_stream *next;
    kgen_stream stream;
};

typedef struct dl_module {
    void *loaded;
    uint8_t code[]; /* HIP reads it until the module is unloaded */
} dl_module;

/* ---- the library -------------------------------------------------------- */

static kgen_status load_calls(kgen__device *device, const char *named, kgen_error *err) {
    const kgen__dl_driver *driver = device->driver;
    void *library = NULL;
    KGEN_TRY(kgen__dl_library(&library, device->library, driver, named, err));
    for (size_t i = 0; i < driver->symbol_count; i++) {
        const kgen__dl_symbol *symbol = &driver->symbols[i];
        void *address = dlsym(library, symbol->name);
        if (!address)
            return kgen_fail(err, KGEN_E_DEVICE, "%s: %.300s is too old: no %s", driver->name,
                             device->library, symbol->name);
        memcpy((char *)&device->calls + symbol->offset, &address, sizeof address);
    }
    return KGEN_OK;
}

static const char *call_name(const kgen__dl_driver *driver, size_t offset) {
    for (size_t i = 0; i < driver->symbol_count; i++)
        if (driver->symbols[i].offset == offset) return driver->symbols[i].name;
    return "a call";
}

static kgen_status status_of(int code) {
    if (code == CODE_NO_MEMORY) return KGEN_E_NOMEM;
    return code >= CODE_CAPTURE_FIRST && code <= CODE_CAPTURE_LAST ? KGEN_E_CAPTURE : KGEN_E_DEVICE;
}

static kgen_status driver_error(const kgen__device *device, int code, const char *call,
                                kgen_error *err) {
    const char *name = NULL, *text = NULL;
    device->calls.error_name(code, &name);
    device->calls.error_string(code, &text);
    return kgen_fail(err, status_of(code), "%s:%d: %s: %s (%d): %s", device->driver->name,
                     device->ordinal, call, name ? name : "unknown error", code,
                     text ? text : "no text");
}

static kgen_status check(const kgen__device *device, int code, size_t call, kgen_error *err) {
    return code ? driver_error(device, code, call_name(device->driver, call), err) : KGEN_OK;
}

/* A driver call whose device is current already, or does not matter. */
#define CALL(device, err, member, ...) \
    check(device, (device)->calls.member(__VA_ARGS__), offsetof(kgen__dl_calls, member), err)

static kgen_status enter(const kgen__device *device, void **saved, kgen_error *err) {
    int code = device->driver->enter(device, saved);
    return code ? driver_error(device, code, "making the device current", err) : KGEN_OK;
}

typedef struct inside {
    void *saved;
    int mode;
} inside;

/* With the device current. While another thread captures in global mode, as engines do,
 * drivers refuse loads and allocations to every thread that has not said that captures of
 * others do not concern it, and the capture is spoilt. */
static kgen_status come_in(const kgen__device *device, inside *in, kgen_error *err) {
    in->mode = CAPTURE_THREAD_LOCAL;
    KGEN_TRY(enter(device, &in->saved, err));
    device->calls.capture_mode(&in->mode);
    return KGEN_OK;
}

static void go_out(const kgen__device *device, inside *in) {
    device->calls.capture_mode(&in->mode);
    device->driver->leave(device, in->saved);
}

/* A driver call between the two; `status` is its result. */
#define CALL_INSIDE(status, device, err, member, ...)        \
    do {                                                     \
        inside in_;                                          \
        status = come_in(device, &in_, err);                 \
        if (status == KGEN_OK) {                             \
            status = CALL(device, err, member, __VA_ARGS__); \
            go_out(device, &in_);                            \
        }                                                    \
    } while (0)

/* ---- open and close ----------------------------------------------------- */

static kgen_status find_device(kgen__device *device, kgen_error *err) {
    int count = 0;
    KGEN_TRY(CALL(device, err, init, 0));
    KGEN_TRY(CALL(device, err, device_count, &count));
    if (device->ordinal < 0 || device->ordinal >= count)
        return kgen_fail(err, KGEN_E_DEVICE, "%s:%d: there are %d devices", device->driver->name,
                         device->ordinal, count);
    return CALL(device, err, device_get, &device->handle, device->ordinal);
}

static kgen_status identify(kgen__device *device, kgen_error *err) {
    const kgen__dl_driver *driver = device->driver;
    char arch[64] = "", name[64] = "";
    int integrated = 0;
    int code = driver->arch(device, arch, sizeof arch);
    if (code) return driver_error(device, code, "asking for the architecture", err);
    if (kgen_target_find(&device->target, arch, NULL) != KGEN_OK)
        return kgen_fail(err, KGEN_E_TARGET, "%s:%d is %s, which kgen has no kernels for",
                         driver->name, device->ordinal, arch[0] ? arch : "of no known kind");
    KGEN_TRY(CALL(device, err, device_name, name, sizeof name - 1, device->handle));
    KGEN_TRY(CALL(device, err, device_attribute, &device->compute_units, driver->units_attribute,
                  device->handle));
    KGEN_TRY(CALL(device, err, device_attribute, &device->reads_host, driver->pageable_attribute,
                  device->handle));
    KGEN_TRY(CALL(device, err, device_attribute, &integrated, driver->integrated_attribute,
                  device->handle));
    if (device->compute_units < 1)
        return kgen_fail(err, KGEN_E_DEVICE, "%s:%d says it has %d compute units", driver->name,
                         device->ordinal, device->compute_units);
    snprintf(device->label, sizeof device->label, "%s:%d %s (%s, %d units%s)", driver->name,
             device->ordinal, name, device->target->name, device->compute_units,
             integrated ? ", memory of the host" : "");
    return KGEN_OK;
}

static kgen_status start(kgen__device *device, const char *library, kgen_error *err) {
    KGEN_TRY(load_calls(device, library, err));
    KGEN_TRY(find_device(device, err));
    KGEN_TRY(identify(device, err));
    int code = device->driver->start ? device->driver->start(device) : 0;
    return code ? driver_error(device, code, "starting the device", err) : KGEN_OK;
}

static void dl_close(kgen__device *device);

static kgen_status dl_open(kgen__device **out, const kgen__dl_driver *driver, int ordinal,
                           const char *library, kgen_error *err) {
    kgen__device *device = calloc(1, sizeof *device);
    if (!device) return kgen_fail(err, KGEN_E_NOMEM, "%s:%d: no memory", driver->name, ordinal);
    device->driver = driver;
    device->ordinal = ordinal;
    pthread_mutex_init(&device->lock, NULL);
    kgen_status status = start(device, library, err);
    if (status != KGEN_OK) {
        dl_close(device);
        return status;
    }
    *out = device;
    return KGEN_OK;
}

static kgen_status hip_open(kgen__device **out, int ordinal, const char *library, kgen_error *err) {
    return dl_open(out, &kgen__hip_driver, ordinal, library, err);
}

static kgen_status cuda_open(kgen__device **out, int ordinal, const char *library,
                             kgen_error *err) {
    return dl_open(out, &kgen__cuda_driver, ordinal, library, err);
}

/* ---- modules and launches ----------------------------------------------- */

static kgen_status load_module(kgen__device *device, const kgen_entry *entry, dl_module *module,
                               void **function, kgen_error *err) {
    KGEN_TRY(CALL(device, err, module_load, &module->loaded, module->code));
    kgen_status status =
        CALL(device, err, module_function, function, module->loaded, entry->symbol);
    /* More than a kernel has without asking. */
    int32_t lds =
        entry->resources.lds_bytes > device->target->lds_bytes ? entry->resources.lds_bytes : 0;
    if (status == KGEN_OK && device->driver->allow)
        status = check(device, device->driver->allow(device, *function, lds),
                       offsetof(kgen__dl_calls, cuda.function_attribute), err);
    if (status != KGEN_OK) device->calls.module_unload(module->loaded);
    return status;
}

static kgen_status dl_load(kgen__device *device, const kgen_entry *entry, void **out,
                           void **function, kgen_error *err) {
    inside in;
    const kgen_target *generic = kgen_target_generic(device->target);
    if (strcmp(entry->target, device->target->name) != 0 &&
        (!generic || strcmp(entry->target, generic->name) != 0))
        return kgen_fail(err, KGEN_E_DEVICE, "%s was built for %s, the device %s:%d is %s",
                         entry->symbol, entry->target, device->driver->name, device->ordinal,
                         device->target->name);
    if (!entry->code || entry->code_size == 0)
        return kgen_fail(err, KGEN_E_DEVICE, "%s: the code object is empty", entry->symbol);
    dl_module *module = malloc(sizeof *module + entry->code_size + 1);
    if (!module) return kgen_fail(err, KGEN_E_NOMEM, "%s: no memory to load", entry->symbol);
    memcpy(module->code, entry->code, entry->code_size);
    module->code[entry->code_size] = 0; /* PTX is text */
    kgen_status status = come_in(device, &in, err);
    if (status == KGEN_OK) {
        status = load_module(device, entry, module, function, err);
        go_out(device, &in);
    }
    if (status == KGEN_OK)
        *out = module;
    else
        free(module);
    return status;
}

static void dl_unload(kgen__device *device, void *handle) {
    dl_module *module = handle;
    kgen_status status;
    CALL_INSIDE(status, device, NULL, module_unload, module->loaded);
    (void)status;
    free(module);
}

static int launch_once(const kgen__device *device, void *function, kgen__launch_config config,
                       const void *params, size_t params_bytes, kgen_stream stream) {
    void *extra[] = {(void *)(uintptr_t)EXTRA_POINTER, (void *)(uintptr_t)params,
                     (void *)(uintptr_t)EXTRA_SIZE, &params_bytes,
                     (void *)device->driver->launch_end};
    return device->calls.launch(function, config.grid, 1, 1, config.block, 1, 1, config.lds, stream,
                                NULL, extra);
}

static int is_elsewhere(int code) {
    return code == CODE_NO_CONTEXT || code == CODE_BAD_HANDLE || code == CODE_OTHER_DEVICE;
}

/* Where the device is current, as in an engine's thread, one driver call is all. The
 * default stream, a thread that never used a device and, of HIP, one that uses another
 * need it made current. */
static kgen_status dl_launch(kgen__device *device, void *function, kgen__launch_config config,
                             const void *params, size_t params_bytes, kgen_stream stream,
                             kgen_error *err) {
    int code = CODE_NO_CONTEXT;
    if (stream) code = launch_once(device, function, config, params, params_bytes, stream);
    if (is_elsewhere(code)) {
        void *saved = NULL;
        if (stream && device->driver->forget) device->driver->forget(device);
        KGEN_TRY(enter(device, &saved, err));
        code = launch_once(device, function, config, params, params_bytes, stream);
        device->driver->leave(device, saved);
    }
    return check(device, code, offsetof(kgen__dl_calls, launch), err);
}

/* ---- memory ------------------------------------------------------------- */

static kgen_status dl_alloc(kgen__device *device, void **out, size_t bytes, kgen_error *err) {
    kgen_status status = KGEN_OK;
    void *memory = NULL;
    if (bytes) CALL_INSIDE(status, device, err, alloc, &memory, bytes);
    if (status == KGEN_OK) *out = memory;
    return status;
}

static void dl_release(kgen__device *device, void *memory) {
    kgen_status status;
    if (!memory) return;
    CALL_INSIDE(status, device, NULL, release, memory);
    (void)status;
}

/* The copy may still be on its way from a staging buffer when the driver
 * returns, and streams that do not block would not wait for it. */
static kgen_status write_inside(kgen__device *device, void *dst, const void *src, size_t bytes,
                                kgen_error *err) {
    KGEN_TRY(CALL(device, err, write, dst, src, bytes));
    return CALL(device, err, stream_sync, NULL);
}

static kgen_status dl_write(kgen__device *device, void *dst, const void *src, size_t bytes,
                            kgen_error *err) {
    inside in;
    if (!bytes) return KGEN_OK;
    KGEN_TRY(come_in(device, &in, err));
    kgen_status status = write_inside(device, dst, src, bytes, err);
    go_out(device, &in);
    return status;
}

static kgen_status dl_read(kgen__device *device, void *dst, const void *src, size_t bytes,
                           kgen_error *err) {
    kgen_status status = KGEN_OK;
    if (bytes) CALL_INSIDE(status, device, err, read, dst, src, bytes);
    return status;
}

/* Drivers have no type for memory that they did not make and were not shown. An
 * engine that asks HIP for its last error must not hear of this question. */
static int dl_reaches(kgen__device *device, const void *memory) {
    void *saved = NULL;
    uint64_t type = 0;
    if (device->reads_host || device->driver->enter(device, &saved) != 0) return 1;
    int code =
        device->calls.pointer_attribute(&type, POINTER_MEMORY_TYPE, (void *)(uintptr_t)memory);
    if (code && device->driver->forget) device->driver->forget(device);
    device->driver->leave(device, saved);
    return code == 0;
}

static kgen_status dl_fill(kgen__device *device, void *dst, int value, size_t bytes,
                           kgen_stream stream, kgen_error *err) {
    kgen_status status = KGEN_OK;
    if (bytes) CALL_INSIDE(status, device, err, fill, dst, value, bytes, stream);
    return status;
}

/* ---- streams and graphs ------------------------------------------------- */

static kgen_status dl_stream_create(kgen__device *device, kgen_stream *out, kgen_error *err) {
    kgen_status status;
    kgen__dl_stream *node = calloc(1, sizeof *node);
    if (!node)
        return kgen_fail(err, KGEN_E_NOMEM, "%s:%d: no memory for a stream", device->driver->name,
                         device->ordinal);
    CALL_INSIDE(status, device, err, stream_create, &node->stream, STREAM_NON_BLOCKING);
    if (status != KGEN_OK) {
        free(node);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    node->next = device->streams;
    device->streams = node;
    pthread_mutex_unlock(&device->lock);
    *out = node->stream;
    return KGEN_OK;
}

static void dl_stream_destroy(kgen__device *device, kgen_stream stream) {
    kgen_status status;
    pthread_mutex_lock(&device->lock);
    kgen__dl_stream **link = &device->streams, *node;
    while (*link && (*link)->stream != stream) link = &(*link)->next;
    node = *link;
    if (node) *link = node->next;
    pthread_mutex_unlock(&device->lock);
    free(node);
    if (!stream) return;
    CALL_INSIDE(status, device, NULL, stream_destroy, stream);
    (void)status;
}

static kgen_status dl_stream_sync(kgen__device *device, kgen_stream stream, kgen_error *err) {
    kgen_status status;
    CALL_INSIDE(status, device, err, stream_sync, stream);
    return status;
}

static void dl_close(kgen__device *device) {
    while (device->streams) dl_stream_destroy(device, device->streams->stream);
    if (device->driver->stop) device->driver->stop(device);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static int stream_captures(const kgen__device *device, kgen_stream stream) {
    int state = 0;
    return device->calls.stream_capturing(stream, &state) == 0 && state != 0;
}

static int any_captures(kgen__device *device) {
    int found = 0;
    pthread_mutex_lock(&device->lock);
    for (const kgen__dl_stream *s = device->streams; s && !found; s = s->next)
        found = stream_captures(device, s->stream);
    pthread_mutex_unlock(&device->lock);
    return found;
}

static int dl_capturing(kgen__device *device, kgen_stream stream) {
    void *saved = NULL;
    if (device->driver->enter(device, &saved) != 0) return 0;
    int found = stream ? stream_captures(device, stream) : any_captures(device);
    device->driver->leave(device, saved);
    return found;
}

static kgen_status dl_graph_begin(kgen__device *device, kgen_stream stream, kgen_error *err) {
    kgen_status status;
    if (!stream)
        return kgen_fail(err, KGEN_E_ARG, "graph_begin: the default stream cannot capture");
    CALL_INSIDE(status, device, err, capture_begin, stream, CAPTURE_THREAD_LOCAL);
    return status;
}

static kgen_status finish_graph(kgen__device *device, kgen_stream stream, void **exec,
                                kgen_error *err) {
    void *graph = NULL;
    if (!stream || !stream_captures(device, stream))
        return kgen_fail(err, KGEN_E_ARG, "graph_end: the stream does not capture");
    KGEN_TRY(CALL(device, err, capture_end, stream, &graph));
    kgen_status status = CALL(device, err, graph_instantiate, exec, graph, 0);
    device->calls.graph_destroy(graph);
    return status;
}

static kgen_status dl_graph_end(kgen__device *device, kgen_stream stream, void **graph,
                                kgen_error *err) {
    void *saved = NULL;
    KGEN_TRY(enter(device, &saved, err));
    kgen_status status = finish_graph(device, stream, graph, err);
    device->driver->leave(device, saved);
    return status;
}

static kgen_status dl_graph_launch(kgen__device *device, void *graph, kgen_stream stream,
                                   kgen_error *err) {
    kgen_status status;
    CALL_INSIDE(status, device, err, graph_launch, graph, stream);
    return status;
}

static void dl_graph_free(kgen__device *device, void *graph) {
    kgen_status status;
    if (!graph) return;
    CALL_INSIDE(status, device, NULL, exec_destroy, graph);
    (void)status;
}

/* What the graph owns, its instances and clones own too; that is the drivers' own rule. */
static kgen_status hold_inside(kgen__device *device, void *graph, void (*gone)(void *held),
                               void *held, kgen_error *err) {
    void *object = NULL;
    kgen_status status = CALL(device, err, object_create, &object, held, gone, 1, OBJECT_NO_SYNC);
    if (status != KGEN_OK) {
        gone(held);
        return status;
    }
    status = CALL(device, err, graph_retain, graph, object, 1, RETAIN_MOVE);
    if (status != KGEN_OK) device->calls.object_release(object, 1); /* calls gone */
    return status;
}

static kgen_status capture_of(kgen__device *device, kgen_stream stream, void **graph,
                              kgen_error *err) {
    int state = 0;
    if (stream) KGEN_TRY(CALL(device, err, capture_info, stream, &state, NULL, graph, NULL, NULL));
    return state == CAPTURE_ACTIVE
               ? KGEN_OK
               : kgen_fail(err, KGEN_E_ARG, "graph_hold: the stream does not capture");
}

static kgen_status dl_graph_hold(kgen__device *device, kgen_stream stream, void (*gone)(void *held),
                                 void *held, kgen_error *err) {
    inside in;
    void *graph = NULL;
    kgen_status status = come_in(device, &in, err);
    if (status == KGEN_OK) {
        status = capture_of(device, stream, &graph, err);
        if (status == KGEN_OK) {
            status = hold_inside(device, graph, gone, held, err);
            held = NULL; /* it is gone, or the graph's */
        }
        go_out(device, &in);
    }
    if (held) gone(held);
    return status;
}

static const kgen_target *dl_target(const kgen__device *device) { return device->target; }
static int dl_compute_units(const kgen__device *device) { return device->compute_units; }

static int dl_resident_clusters(kgen__device *device, void *function, kgen__launch_config config) {
    int count = 0;
    inside in;
    if (!device->driver->clusters || come_in(device, &in, NULL) != KGEN_OK) return 0;
    if (device->driver->clusters(device, function, &config, &count)) count = 0;
    go_out(device, &in);
    return count;
}

static const char *dl_label(const kgen__device *device) { return device->label; }
static const char *dl_library(const kgen__device *device) { return device->library; }

/* clang-format off */
#define DL_API(driver_name, open_function)                                                  \
    {                                                                                       \
        .name = driver_name, .open = open_function, .close = dl_close, .load = dl_load,     \
        .unload = dl_unload, .launch = dl_launch, .alloc = dl_alloc, .release = dl_release, \
        .write = dl_write, .read = dl_read, .fill = dl_fill,                                \
        .stream_create = dl_stream_create, .stream_destroy = dl_stream_destroy,             \
        .stream_sync = dl_stream_sync, .capturing = dl_capturing,                           \
        .graph_begin = dl_graph_begin, .graph_end = dl_graph_end,                           \
        .graph_launch = dl_graph_launch, .graph_free = dl_graph_free,                       \
        .graph_hold = dl_graph_hold, .target = dl_target,                                   \
        .compute_units = dl_compute_units, .resident_clusters = dl_resident_clusters,       \
        .label = dl_label, .library = dl_library, .reaches = dl_reaches,                    \
    }
/* clang-format on */

const kgen__device_api kgen__device_hip = DL_API("hip", hip_open);
const kgen__device_api kgen__device_cuda = DL_API("cuda", cuda_open);

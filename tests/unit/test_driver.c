/* Which driver library is used, and what is asked of it, on a HIP driver that
 * computes nothing. Libraries stay loaded, so each scenario is a process of its
 * own: this program again, with the scenario's name. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <kgen/kgen.h>

#include "tests/mock/mock_hip.h"

static char folder[] = "/tmp/kgen-driver-XXXXXX";
static const char *program;

/* ---- in the scenario's process ------------------------------------------------ */

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            printf("line %d: %s; last error: %s\n", __LINE__, #condition, err.text); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static kgen_error err;
static kgen_context *ctx;

static kgen_status open_with(const char *device, const char *driver) {
    const kgen_open_options options = {
        .size = sizeof options, .device = device, .driver = driver, .tuning = ""};
    ctx = NULL;
    return kgen_open(&ctx, &options, &err);
}

static int says(const char *text) { return strstr(err.text, text) != NULL; }

/* As an engine does it. */
static mock_hip *engine_loads(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    mock_hip *state = library ? dlsym(library, "mock_hip_state") : NULL;
    CHECK(state);
    return state;
}

static int is_loaded(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library != NULL;
}

static int uses(const char *path) {
    char real[2][4096];
    return realpath(path, real[0]) && realpath(kgen_context_driver(ctx), real[1]) &&
           strcmp(real[0], real[1]) == 0;
}

/* The system has version 7, the engine brought version 6 under any name. */
static void a_loaded_soname(void) {
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    CHECK(open_with("hip:1", NULL) == KGEN_OK);
    CHECK(uses(MOCK_HIP_6) && engine->inits == 1);
    CHECK(!is_loaded("libamdhip64.so.7"));
    kgen_close(ctx);
    CHECK(open_with("hip", "") == KGEN_OK); /* again: still one */
    CHECK(uses(MOCK_HIP_6) && engine->inits == 2);
    kgen_close(ctx);
}

static void a_loaded_wheel(void) {
    mock_hip *engine = engine_loads("libamdhip64-1f2e3d4c.so");
    CHECK(open_with(NULL, NULL) == KGEN_OK);
    CHECK(engine->inits == 1 && strstr(kgen_context_driver(ctx), "/libamdhip64-1f2e3d4c.so"));
    CHECK(!is_loaded("libamdhip64.so.7"));
    kgen_close(ctx);
}

/* Not a driver, whatever its name begins with. */
static void a_loaded_tool(void) {
    mock_hip *tool = engine_loads("libamdhip64-tool.so"), *engine = engine_loads(MOCK_HIP_6);
    CHECK(open_with("hip:0", NULL) == KGEN_OK && uses(MOCK_HIP_6));
    CHECK(tool->inits == 0 && engine->inits == 1);
    kgen_close(ctx);
}

/* It has the driver's SONAME, and the driver itself is loaded as well. */
static void a_loaded_profiler(void) {
    mock_hip *profiler = engine_loads("libamdhip64-injection.so"),
             *driver = engine_loads("libamdhip64-1f2e3d4c.so");
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    CHECK(strstr(kgen_context_driver(ctx), "/libamdhip64-injection.so"));
    CHECK(profiler->inits == 1 && driver->inits == 0);
    kgen_close(ctx);
}

static void nothing_loaded(void) {
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    CHECK(strstr(kgen_context_driver(ctx), "/libamdhip64.so.7"));
    kgen_close(ctx);
}

static void two_copies(void) {
    char named[4096];
    mock_hip *wheel = engine_loads("libamdhip64-1f2e3d4c.so"), *six = engine_loads(MOCK_HIP_6);
    CHECK(open_with("hip:0", NULL) == KGEN_E_DEVICE && !ctx);
    CHECK(says("has loaded") && says(MOCK_HIP_6) && says("libamdhip64-1f2e3d4c.so"));
    CHECK(says("kgen_open_options.driver or KGEN_HIP_LIB") && wheel->inits + six->inits == 0);
    CHECK(open_with("hip:0", MOCK_HIP_6) == KGEN_OK && uses(MOCK_HIP_6) && six->inits == 1);
    kgen_close(ctx);
    snprintf(named, sizeof named, "%s/libamdhip64-1f2e3d4c.so", getenv("LD_LIBRARY_PATH"));
    setenv("KGEN_HIP_LIB", named, 1);
    CHECK(open_with("hip:0", NULL) == KGEN_OK && uses(named) && wheel->inits == 1);
    kgen_close(ctx);
    CHECK(open_with("hip:0", MOCK_HIP_6) == KGEN_OK && uses(MOCK_HIP_6)); /* before the variable */
    kgen_close(ctx);
}

static void bad_names(void) {
    CHECK(open_with("hip:0", "/none/such.so") == KGEN_E_DEVICE && says("hip: /none/such.so"));
    CHECK(open_with("hip:0", "libm.so.6") == KGEN_E_DEVICE && says("is too old: no hipInit"));
    CHECK(open_with("cpu", MOCK_HIP_6) == KGEN_E_ARG && says("device cpu has none"));
    CHECK(open_with("hip:2", MOCK_HIP_6) == KGEN_E_DEVICE && says("hip:2: there are 2 devices"));
}

/* A GPU that kgen has nothing for is named; the cpu device does not step in. */
static void an_unknown_gpu(void) {
    setenv("MOCK_ARCH", "gfx801", 1);
    setenv("MOCK_ARCH_1", "gfx802", 1);
    CHECK(open_with(NULL, NULL) == KGEN_E_DEVICE && !ctx);
    CHECK(says("no GPU that kgen can use: hip:0 is gfx801") && says("cuda: "));
    CHECK(says("Without a GPU: device cpu:cdna3, or KGEN_DEVICE=cpu:cdna3"));
    CHECK(open_with("hip:0", NULL) == KGEN_E_TARGET && says("kgen has no kernels for"));
}

/* Nobody named one: the second is taken, and it is the one that the second is. */
static void an_unknown_gpu_first(void) {
    setenv("MOCK_ARCH", "gfx801", 1);
    setenv("MOCK_ARCH_1", "gfx1201", 1);
    CHECK(open_with(NULL, NULL) == KGEN_OK);
    CHECK(strstr(kgen_context_device(ctx), "hip:1 Mock 1 (gfx1201"));
    kgen_close(ctx);
}

/* ---- what is asked of it ---- */

#define LINE "scatter:op=draft_lens"

/* 0: there is no compiler for it, which is not this test's business. */
static int prepare_line(kgen_request *request, const char *line, kgen_stream stream) {
    const kgen_prepare_options options = {.size = sizeof options, .stream = stream};
    request->size = sizeof *request;
    CHECK(kgen_spec_parse(&request->spec, line, &err) == KGEN_OK);
    return kgen_prepare_for(ctx, request, 1, &options, &err) != KGEN_E_TOOLCHAIN;
}
static int prepare(kgen_request *request, kgen_stream stream) {
    return prepare_line(request, LINE, stream);
}

/* The guard asks about the engine's own stream, which kgen did not make. */
static void an_engine_captures(void) {
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    int streams[2];
    kgen_request request = {0};
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    engine->capturing = &streams[0];
    engine->global = 1; /* in another thread: this one may load and allocate all the same */
    void *memory = NULL;
    CHECK(kgen_memory_alloc(ctx, &memory, 64, &err) == KGEN_OK && engine->mode() == 0);
    kgen_memory_free(ctx, memory);
    if (!prepare(&request, &streams[0])) return;
    CHECK(err.status == KGEN_E_CAPTURE && says("the stream captures") && !request.kernel);
    CHECK(engine->loads[0] == 0);
    CHECK(prepare(&request, &streams[1]) && request.kernel && engine->loads[0] == 1);
    CHECK(engine->mode() == 0);
    kgen_kernel *kernel = request.kernel;
    CHECK(prepare(&request, &streams[0]) && request.kernel == kernel); /* prepared by now */
    CHECK(kgen_find(ctx, &request.spec, NULL) == kernel && engine->loads[0] == 1);
    kgen_kernel_release(kernel);
    CHECK(engine->unloads[0] == 1 && !kgen_find(ctx, &request.spec, NULL));
    CHECK(prepare(&request, &streams[0]) && request.error.status == KGEN_E_CAPTURE);
    kgen_close(ctx);
    CHECK(engine->loads[0] == 1 && engine->unloads[0] == 1);
}

/* Of the kernels that are prepared, or of one. */
static kgen_graph *holding(kgen_kernel *const *kernels, kgen_stream stream) {
    kgen_graph *graph = NULL;
    CHECK(kgen_graph_begin(ctx, stream, &err) == KGEN_OK);
    CHECK(kgen_graph_hold(ctx, kernels, 1, stream, &err) == KGEN_OK);
    CHECK(kgen_graph_end(ctx, stream, &graph, &err) == KGEN_OK);
    return graph;
}

/* The driver says when a graph is gone where nothing may be unloaded: a later call does it. */
static void graphs_hold_kernels(void) {
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    kgen_request request = {0};
    kgen_stream stream;
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    if (!prepare(&request, NULL)) return;
    CHECK(kgen_stream_create(ctx, &stream, &err) == KGEN_OK);
    kgen_graph *graph = holding(&request.kernel, stream), *second = holding(NULL, stream);
    kgen_kernel_release(request.kernel);
    CHECK(engine->unloads[0] == 0 && kgen_context_reclaim(ctx) == 1);
    CHECK(!kgen_find(ctx, &request.spec, NULL));
    kgen_graph_free(graph);
    CHECK(kgen_context_reclaim(ctx) == 1 && engine->unloads[0] == 0); /* the other one's */
    kgen_graph_free(second);
    CHECK(engine->unloads[0] == 0 && kgen_context_reclaim(ctx) == 0 && engine->unloads[0] == 1);
    CHECK(prepare(&request, NULL) && request.kernel && engine->loads[0] == 2);
    graph = holding(&request.kernel, stream);
    kgen_kernel_release(request.kernel);
    kgen_graph_free(graph);
    CHECK(prepare(&request, NULL) && engine->loads[0] == 3 && engine->unloads[0] == 2);
    graph = holding(NULL, stream); /* outlives the context */
    kgen_close(ctx);
    CHECK(engine->unloads[0] == 2 && kgen_graph_launch(graph, stream, &err) == KGEN_OK);
    CHECK(open_with("hip:0", NULL) == KGEN_OK && engine->unloads[0] == 2);
    kgen_graph_free(graph);
    kgen_close(ctx);
    CHECK(engine->unloads[0] == 3);
}

static void what_cannot_be_held(void) {
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    kgen_request request = {0};
    kgen_stream stream;
    kgen_kernel *none = NULL;
    kgen_graph *graph = NULL;
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    if (!prepare(&request, NULL)) return;
    CHECK(kgen_stream_create(ctx, &stream, &err) == KGEN_OK);
    CHECK(kgen_graph_hold(ctx, NULL, 0, NULL, &err) == KGEN_E_ARG && says("does not capture"));
    CHECK(kgen_graph_hold(ctx, &request.kernel, 1, stream, &err) == KGEN_E_ARG);
    CHECK(says("graph_hold: the stream does not capture"));
    CHECK(kgen_graph_begin(ctx, stream, &err) == KGEN_OK);
    CHECK(kgen_graph_hold(ctx, &none, 1, stream, &err) == KGEN_E_ARG && says("kernels[0]: none"));
    kgen_context *first = ctx;
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    CHECK(kgen_graph_hold(ctx, &request.kernel, 1, stream, &err) == KGEN_E_ARG);
    CHECK(says("kernels[0]: of another context"));
    kgen_close(ctx);
    ctx = first;
    engine->retain_fails = 1;
    CHECK(kgen_graph_hold(ctx, &request.kernel, 1, stream, &err) == KGEN_E_DEVICE);
    CHECK(says("hipGraphRetainUserObject: mockError (1)"));
    CHECK(kgen_graph_end(ctx, stream, &graph, &err) == KGEN_OK);
    kgen_kernel_release(request.kernel);
    CHECK(engine->unloads[0] == 1); /* nothing of it is held */
    kgen_graph_free(graph);
    kgen_close(ctx);
}

typedef struct lengths {
    kgen_args_room room;
    char *memory; /* of the device */
} lengths;

/* Draft lengths of four rows. */
static kgen_args lengths_of(lengths *l, const kgen_spec *spec) {
    const int64_t shape[2] = {1, 4};
    kgen_args args;
    void *memory;
    CHECK(kgen_memory_alloc(ctx, &memory, 6 * 32, &err) == KGEN_OK);
    l->memory = memory;
    kgen_args_init(&args, &l->room, spec);
    kgen_draft_lens_args *a = &args.scatter->draft_lens;
    kgen_tensor *const tensors[] = {&a->lens,     &a->valid,     &a->accepted,
                                    &a->seq_lens, &a->step_lens, &a->positions_out};
    for (int i = 0; i < 6; i++)
        *tensors[i] =
            kgen_tensor_dense(l->memory + 32 * i, KGEN_DTYPE_I32, 1 + i / 4, shape + 1 - i / 4);
    a->positions_out.dtype = KGEN_DTYPE_I64;
    a->tokens = a->steps = 1;
    a->pad_len = 1;
    a->max_len = 64;
    return args;
}

/* A tensor that was never moved to the device is refused before it is a fault. */
static void memory_of_the_host(void) {
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    kgen_request request = {0};
    int32_t host[4] = {0};
    lengths room;
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    if (!prepare(&request, NULL)) return;
    kgen_args args = lengths_of(&room, &request.spec);
    kgen_tensor *valid = &args.scatter->draft_lens.valid;
    void *memory = valid->data;
    valid->data = host;
    for (int i = 0; i < 2; i++) {
        CHECK(kgen_launch(request.kernel, &args, NULL, &err) == KGEN_E_ARG);
        CHECK(says("valid: address 0x") && says("memory of the host, which hip:0 Mock 0"));
        CHECK(engine->last_error == 0 && engine->launches[0] == 0);
    }
    valid->data = memory;
    CHECK(kgen_launch(request.kernel, &args, NULL, &err) == KGEN_OK);
    int asked = engine->asked;
    CHECK(kgen_launch(request.kernel, &args, NULL, &err) == KGEN_OK && engine->asked == asked);
    valid->data = host;
    CHECK(kgen_launch_check(request.kernel, &args, &err) == KGEN_E_ARG);
    kgen_memory_free(ctx, room.memory);
    kgen_close(ctx);
    engine->pageable = 1; /* such a device reads everything */
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    if (!prepare(&request, NULL)) return;
    args = lengths_of(&room, &request.spec);
    args.scatter->draft_lens.valid.data = host;
    CHECK(kgen_launch(request.kernel, &args, NULL, &err) == KGEN_OK);
    kgen_memory_free(ctx, room.memory);
    kgen_close(ctx);
}

/* A decode of sequences with `pages` pages each. The mock computes nothing, so all inputs
 * lie in the same memory, behind the output. */
enum { OUTPUT_BYTES = 64 * 8 * 256 * 2, INPUT_BYTES = 64 * 8192 * 4 };
static void launch_decode(const kgen_kernel *kernel, char *memory, int64_t seqs, int64_t pages) {
    kgen_args_room room;
    kgen_args args;
    size_t bytes;
    kgen_args_init(&args, &room, kgen_kernel_spec(kernel));
    kgen_attn_args *a = args.attn;
    const int64_t rows[] = {seqs, 8, 256}, cache[] = {2, 16, 1, 256}, table[] = {seqs, pages};
    a->out = kgen_tensor_dense(memory, KGEN_DTYPE_BF16, 3, rows);
    memory += OUTPUT_BYTES;
    a->q = kgen_tensor_dense(memory, KGEN_DTYPE_BF16, 3, rows);
    a->k = a->v = kgen_tensor_dense(memory, KGEN_DTYPE_BF16, 4, cache);
    a->k.layout = a->v.layout = KGEN_LAYOUT_NHD;
    a->block_table = kgen_tensor_dense(memory, KGEN_DTYPE_I32, 2, table);
    a->seq_lens = kgen_tensor_dense(memory, KGEN_DTYPE_I32, 1, &seqs);
    a->softmax_scale = 1;
    CHECK(kgen_workspace_size(kernel, &args, &bytes, &err) == KGEN_OK);
    CHECK(kgen_memory_alloc(ctx, &args.workspace, bytes, &err) == KGEN_OK);
    args.workspace_bytes = bytes;
    CHECK(kgen_launch(kernel, &args, NULL, &err) == KGEN_OK);
    kgen_memory_free(ctx, args.workspace);
}

/* aiter#4329, vllm#48723: one short request passes, and under load a larger split asks for
 * more LDS than gfx1201 has. Here both are one kernel, whose LDS is known when it is
 * prepared, and no launch asks for more. */
static void lds_at_the_largest_split(void) {
    static const char line[] = "attn:d=256,g=8,page=16";
    kgen_request few = {.problem = {1, 100, 1}}, many = {.problem = {64, 131072, 1}};
    void *memory;
    setenv("MOCK_ARCH", "gfx1201", 1);
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    CHECK(open_with("hip:0", NULL) == KGEN_OK);
    if (!prepare_line(&few, line, NULL)) return;
    CHECK(prepare_line(&many, line, NULL) && few.kernel && many.kernel == few.kernel);
    const kgen_resources *r = kgen_kernel_resources(few.kernel);
    CHECK(r->lds_bytes > 0 && r->lds_bytes <= kgen_context_target(ctx)->lds_bytes);
    CHECK(kgen_memory_alloc(ctx, &memory, OUTPUT_BYTES + INPUT_BYTES, &err) == KGEN_OK);
    launch_decode(few.kernel, memory, 1, 7);
    launch_decode(many.kernel, memory, 64, 8192);
    CHECK(engine->launches[0] == 2 && engine->lds == 0);
    kgen_memory_free(ctx, memory);
    kgen_close(ctx);
}

/* Each context loads and launches on its own device, whatever is current. */
static void two_devices(void) {
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    kgen_context *both[MOCK_DEVICES];
    kgen_request request[MOCK_DEVICES] = {{0}, {0}};
    for (int i = 0; i < MOCK_DEVICES; i++) {
        CHECK(open_with(i ? "hip:1" : "hip:0", NULL) == KGEN_OK);
        both[i] = ctx;
    }
    for (int i = 0; i < MOCK_DEVICES; i++) {
        ctx = both[i];
        if (!prepare(&request[i], NULL)) return;
        CHECK(request[i].kernel && engine->loads[i] == 1 && engine->current() == 0);
        CHECK(kgen_find(both[i], &request[i].spec, NULL) == request[i].kernel);
    }
    CHECK(request[0].kernel != request[1].kernel);
    lengths room;
    kgen_args args = lengths_of(&room, &request[0].spec);
    int64_t memory;
    for (int i = MOCK_DEVICES - 1; i >= 0; i--) { /* the default stream is the current device's */
        CHECK(kgen_launch(request[i].kernel, &args, NULL, &err) == KGEN_OK);
        CHECK(engine->launches[i] == 1 && engine->current() == 0);
    }
    kgen_close(both[0]);
    CHECK(engine->unloads[0] == 1 && engine->unloads[1] == 0);
    CHECK(kgen_launch(request[1].kernel, &args, &memory, &err) == KGEN_OK);
    CHECK(engine->launched_on == &memory);
    CHECK(engine->asked == 12); /* each kernel once, tensor by tensor */
    kgen_memory_free(ctx, room.memory);
    kgen_close(both[1]);
}

/* 0: there is no compiler for it. */
static int build_for(kgen_cache *cache, const char *arch) {
    kgen_job job;
    kgen_job_result result;
    CHECK(kgen_spec_parse(&job.spec, LINE, &err) == KGEN_OK);
    CHECK(kgen_target_find(&job.target, arch, &err) == KGEN_OK);
    kgen_status status = kgen_build(cache, &job, 1, NULL, &result, &err);
    kgen_entry_free(result.entry);
    CHECK(status == KGEN_OK || status == KGEN_E_TOOLCHAIN);
    return status == KGEN_OK;
}

static kgen_status open_strict(const char *device, const char *cache_dir) {
    const kgen_open_options options = {.size = sizeof options,
                                       .device = device,
                                       .cache_dir = cache_dir,
                                       .tuning = "",
                                       .mode = KGEN_MODE_STRICT};
    return kgen_open(&ctx, &options, &err);
}

/* Two parts of two families beside each other: one has the object of its family, the
 * other none; an object of its own comes first. */
static void objects_of_a_family(void) {
    char dir[] = "/tmp/kgen-family-XXXXXX", command[64];
    CHECK(mkdtemp(dir));
    setenv("MOCK_ARCH", "gfx1103", 1);
    setenv("MOCK_ARCH_1", "gfx1201", 1);
    mock_hip *engine = engine_loads(MOCK_HIP_6);
    engine->integrated = 1;
    kgen_context *first;
    kgen_request request[3] = {{0}, {0}, {0}};
    CHECK(open_strict("hip:0", dir) == KGEN_OK);
    CHECK(strstr(kgen_context_device(ctx), "(gfx1103, 304 units, memory of the host)"));
    first = ctx;
    if (build_for(kgen_context_cache(ctx), "gfx11-generic")) {
        CHECK(prepare(&request[0], NULL) && request[0].kernel && engine->mach == 0x54);
        CHECK(open_strict("hip:1", dir) == KGEN_OK);
        CHECK(prepare(&request[1], NULL) && !request[1].kernel);
        CHECK(strstr(request[1].error.text, "--arch gfx1201"));
        kgen_close(ctx);
        CHECK(build_for(kgen_context_cache(first), "gfx1103"));
        CHECK(open_strict("hip:0", dir) == KGEN_OK);
        CHECK(prepare(&request[2], NULL) && request[2].kernel && engine->mach == 0x44);
        kgen_close(ctx);
    }
    kgen_close(first);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    CHECK(system(command) == 0);
}

static const struct scenario {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"a_loaded_soname", a_loaded_soname},
    {"a_loaded_wheel", a_loaded_wheel},
    {"a_loaded_tool", a_loaded_tool},
    {"a_loaded_profiler", a_loaded_profiler},
    {"nothing_loaded", nothing_loaded},
    {"two_copies", two_copies},
    {"bad_names", bad_names},
    {"an_unknown_gpu", an_unknown_gpu},
    {"an_unknown_gpu_first", an_unknown_gpu_first},
    {"an_engine_captures", an_engine_captures},
    {"graphs_hold_kernels", graphs_hold_kernels},
    {"what_cannot_be_held", what_cannot_be_held},
    {"two_devices", two_devices},
    {"objects_of_a_family", objects_of_a_family},
    {"memory_of_the_host", memory_of_the_host},
    {"lds_at_the_largest_split", lds_at_the_largest_split},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static int run_scenario(const char *name) {
    for (int i = 0; i < SCENARIOS; i++) {
        if (strcmp(scenarios[i].name, name) != 0) continue;
        scenarios[i].run();
        return 0;
    }
    printf("%s: no such scenario\n", name);
    return 1;
}

/* ---- in this one --------------------------------------------------------------- */

static void test_scenario(void **state) {
    const struct scenario *scenario = *state;
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("LD_LIBRARY_PATH", folder, 1);
        unsetenv("KGEN_DEVICE");
        setenv("KGEN_CUDA_LIB", "/none/libcuda.so", 1);
        execl(program, program, scenario->name, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("%s: status %d", scenario->name, status);
}

static const struct {
    const char *library, *name;
} copied[] = {{MOCK_HIP, "libamdhip64.so.7"},
              {MOCK_HIP, "libamdhip64-1f2e3d4c.so"},
              {MOCK_HIP, "libamdhip64-tool.so"},
              {MOCK_HIP_6, "libamdhip64-injection.so"}};
enum { COPIED = sizeof copied / sizeof copied[0] };

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    for (int i = 0; i < COPIED; i++) {
        char command[8192];
        snprintf(command, sizeof command, "cp '%s' '%s/%s'", copied[i].library, folder,
                 copied[i].name);
        assert_int_equal(system(command), 0);
    }
    return 0;
}

static int tear_down(void **state) {
    char path[256];
    (void)state;
    for (int i = 0; i < COPIED; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, copied[i].name);
        unlink(path);
    }
    return rmdir(folder);
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[SCENARIOS];
    if (argc > 1) return run_scenario(argv[1]);
    program = argv[0];
    for (int i = 0; i < SCENARIOS; i++)
        tests[i] = (struct CMUnitTest){.name = scenarios[i].name,
                                       .test_func = test_scenario,
                                       .initial_state = (void *)(uintptr_t)&scenarios[i]};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

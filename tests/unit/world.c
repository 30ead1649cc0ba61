/* The device of world.h. */
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void world_must(kgen_status status, const kgen_error *err) {
    if (status != KGEN_OK) fail_msg("%s", err->text);
}

void world_open(world *w) { world_open_on(w, "cpu:cdna3"); }

void world_open_on(world *w, const char *device) {
    kgen_error err;
    kgen_open_options options = {.size = sizeof options, .device = device, .mode = KGEN_MODE_AUTO};
    memset(w, 0, sizeof *w);
    world_must(kgen_open(&w->ctx, &options, &err), &err);
    world_must(kgen_stream_create(w->ctx, &w->stream, &err), &err);
}

void world_close(world *w) {
    while (w->count > 0) kgen_memory_free(w->ctx, w->memory[--w->count]);
    kgen_stream_destroy(w->ctx, w->stream);
    kgen_close(w->ctx);
}

kgen_tensor world_put(world *w, int32_t dtype, int32_t layout, const void *from, int32_t rank,
                      const int64_t *shape) {
    kgen_tensor t = kgen_tensor_dense(NULL, (kgen_dtype)dtype, rank, shape);
    size_t bytes = (size_t)(shape[0] * t.stride[0] * kgen_dtype_size((kgen_dtype)dtype));
    kgen_error err;
    unsigned char *poison = malloc(bytes);
    assert_non_null(poison);
    assert_in_range(w->count, 0, sizeof w->memory / sizeof w->memory[0] - 1);
    memset(poison, 0xff, bytes);
    world_must(kgen_memory_alloc(w->ctx, &t.data, bytes, &err), &err);
    world_must(kgen_memory_write(w->ctx, t.data, from ? from : poison, bytes, &err), &err);
    free(poison);
    w->memory[w->count++] = t.data;
    t.layout = (kgen_layout)layout;
    return t;
}

kgen_kernel *world_prepare(world *w, const char *line) {
    kgen_spec spec;
    kgen_kernel *kernel;
    kgen_error err;
    world_must(kgen_spec_parse(&spec, line, &err), &err);
    world_must(kgen_prepare(w->ctx, &spec, 1, &kernel, &err), &err);
    return kernel;
}

kgen_args world_args(world *w, kgen_kernel *kernel, void *any) {
    kgen_args args = {.any = any, .family = kgen_kernel_spec(kernel)->family};
    kgen_error err;
    world_must(kgen_workspace_size(kernel, &args, &args.workspace_bytes, &err), &err);
    if (!args.workspace_bytes) return args;
    args.workspace = WORLD_PUT(w, KGEN_DTYPE_F32, 0, NULL, (int64_t)args.workspace_bytes / 4).data;
    world_must(kgen_workspace_init(w->ctx, args.workspace, args.workspace_bytes, w->stream, &err),
               &err);
    return args;
}

void world_run(world *w, const char *line, void *any) {
    kgen_kernel *kernel = world_prepare(w, line);
    kgen_args args = world_args(w, kernel, any);
    kgen_error err;
    world_must(kgen_launch(kernel, &args, w->stream, &err), &err);
    world_must(kgen_stream_sync(w->ctx, w->stream, &err), &err);
}

/* A device with tensors, and launches on it, for tests that follow data from
 * one kernel to the next. Whatever fails there ends the test. */
#ifndef KGEN_TESTS_UNIT_WORLD_H
#define KGEN_TESTS_UNIT_WORLD_H

#include <kgen/kgen.h>

typedef struct world {
    kgen_context *ctx;
    kgen_stream stream;
    void *memory[96];
    int count;
} world;

void world_must(kgen_status status, const kgen_error *err);
void world_open(world *w); /* the cpu device */
void world_open_on(world *w, const char *device);
void world_close(world *w);

/* A dense tensor with these contents, or poison. */
kgen_tensor world_put(world *w, int32_t dtype, int32_t layout, const void *from, int32_t rank,
                      const int64_t *shape);

#define WORLD_PUT(w, dtype, layout, from, ...)                                            \
    world_put(w, dtype, layout, from, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
              (const int64_t[]){__VA_ARGS__})

kgen_kernel *world_prepare(world *w, const char *line);
/* any: the arguments of the family. With a workspace that is fit for the kernel. */
kgen_args world_args(world *w, kgen_kernel *kernel, void *any);
/* Returns when the launch is done. */
void world_run(world *w, const char *line, void *any);

#endif

/* What the C benches share: device memory that is freed together, random
 * contents, graph replay over rotating cold data, the rows and the options.
 *
 *   bench_<family> [--device NAME] [--cache-dir D] [--tune KEYS] [ROW ...]
 *
 * --tune appends tuning keys to every spec ("waves=4,occ=2"). On the cpu device
 * a bench shows that it works and little else.                              */
#ifndef KGEN_BENCH_H
#define KGEN_BENCH_H

#include <kgen/kgen.h>

enum { BENCH_MEMORY_MAX = 32 };

typedef struct bench {
    kgen_context *ctx;
    kgen_kernel *kernel;
    kgen_stream stream;
    const kgen_spec *spec; /* resolved                                       */
    kgen_args args;
    void *memory[BENCH_MEMORY_MAX];
    int memory_count;
    double bytes; /* that one launch must move                               */
    int sets;     /* of data, at least 1 GB in all where memory allows       */
    int64_t set_step;
} bench;

typedef struct bench_family {
    const char *program;
    size_t rows;
    const char *(*name)(size_t row);
    /* The spec line without tuning keys.                                    */
    void (*spec)(char out[KGEN_SPEC_LINE_MAX], size_t row);
    /* Fills bytes, sets and args.                                           */
    kgen_status (*make)(bench *b, size_t row, kgen_error *err);
    /* Turns args to set `set`.                                              */
    void (*select)(kgen_args *args, const bench *b, int set);
} bench_family;

int bench_main(const bench_family *family, int argc, char **argv);

/* `count` random values of magnitude up to 1.                               */
kgen_status bench_random(bench *b, void **out, kgen_dtype dtype, size_t count, kgen_error *err);
/* The same as a dense tensor.                                               */
kgen_status bench_tensor(bench *b, kgen_tensor *out, kgen_dtype dtype, int32_t rank,
                         const int64_t *shape, kgen_error *err);
kgen_status bench_alloc(bench *b, void **out, size_t bytes, kgen_error *err);
kgen_status bench_ints(bench *b, void **out, const int32_t *values, size_t count,
                       kgen_error *err);
/* 0 .. count-1 in random order.                                             */
kgen_status bench_shuffled(bench *b, void **out, int64_t count, kgen_error *err);
/* Sets of `bytes` so that together they are cold, `most` at most.           */
int bench_sets(double bytes, int most);
/* The workspace that args ask for.                                          */
kgen_status bench_workspace(bench *b, kgen_error *err);

#endif

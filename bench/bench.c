#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPLAYS = 8 };
static const double COLD_BYTES = 1.0e9; /* more than any last-level cache    */

static uint64_t random_state = 0x9e3779b97f4a7c15u;
static uint32_t random32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/* --- memory ------------------------------------------------------------- */

kgen_status bench_alloc(bench *b, void **out, size_t bytes, kgen_error *err) {
    if (b->memory_count == BENCH_MEMORY_MAX)
        return kgen_fail(err, KGEN_E_INTERNAL, "bench: more than %d allocations",
                         BENCH_MEMORY_MAX);
    KGEN_TRY(kgen_memory_alloc(b->ctx, out, bytes, err));
    b->memory[b->memory_count++] = *out;
    return KGEN_OK;
}

/* 16-bit patterns that are numbers below 1 as bf16 and as fp16; pairs of them
 * as f32; 8-bit ones below 1 in every format. */
static void fill_block(uint8_t *block, size_t bytes, int size) {
    for (size_t i = 0; i < bytes; i += 2) {
        uint16_t wide = (uint16_t)(0x3c00u + random32() % 0x380u + (random32() & 1) * 0x8000u);
        uint16_t narrow = (uint16_t)(random32() & 0xb7b7u);
        uint16_t value = size == 1 ? narrow : wide;
        memcpy(block + i, &value, 2);
    }
}

kgen_status bench_random(bench *b, void **out, kgen_dtype dtype, size_t count, kgen_error *err) {
    enum { BLOCK = 1 << 22 };
    size_t bytes = count * (size_t)kgen_dtype_size(dtype);
    uint8_t *block = malloc(BLOCK);
    if (!block) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    fill_block(block, bytes < BLOCK ? (bytes + 1) / 2 * 2 : BLOCK, kgen_dtype_size(dtype));
    kgen_status status = bench_alloc(b, out, bytes, err);
    for (size_t at = 0; status == KGEN_OK && at < bytes; at += BLOCK)
        status = kgen_memory_write(b->ctx, (uint8_t *)*out + at, block,
                                   bytes - at < BLOCK ? bytes - at : BLOCK, err);
    free(block);
    return status;
}

kgen_status bench_tensor(bench *b, kgen_tensor *out, kgen_dtype dtype, int32_t rank,
                         const int64_t *shape, kgen_error *err) {
    void *memory;
    size_t count = 1;
    for (int32_t i = 0; i < rank; i++) count *= (size_t)shape[i];
    KGEN_TRY(bench_random(b, &memory, dtype, count, err));
    *out = kgen_tensor_dense(memory, dtype, rank, shape);
    return KGEN_OK;
}

kgen_status bench_ints(bench *b, void **out, const int32_t *values, size_t count,
                       kgen_error *err) {
    KGEN_TRY(bench_alloc(b, out, count * sizeof *values, err));
    return kgen_memory_write(b->ctx, *out, values, count * sizeof *values, err);
}

kgen_status bench_shuffled(bench *b, void **out, int64_t count, kgen_error *err) {
    int32_t *values = malloc((size_t)count * sizeof *values);
    if (!values) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (int64_t i = 0; i < count; i++) values[i] = (int32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)random32() % (i + 1);
        int32_t swap = values[i];
        values[i] = values[j];
        values[j] = swap;
    }
    kgen_status status = bench_ints(b, out, values, (size_t)count, err);
    free(values);
    return status;
}

int bench_sets(double bytes, int most) {
    double sets = COLD_BYTES / bytes + 1;
    return sets < 4 ? 4 : sets > most ? most : (int)sets;
}

kgen_status bench_workspace(bench *b, kgen_error *err) {
    KGEN_TRY(kgen_workspace_size(b->kernel, &b->args, &b->args.workspace_bytes, err));
    if (b->args.workspace_bytes == 0) return KGEN_OK;
    KGEN_TRY(bench_alloc(b, &b->args.workspace, b->args.workspace_bytes, err));
    return kgen_workspace_init(b->ctx, b->args.workspace, b->args.workspace_bytes, b->stream, err);
}

/* --- timing ------------------------------------------------------------- */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* One graph launches every set twice, so that a replay is long beside its own
 * start; the best of several replays is reported. */
static kgen_status capture(bench *b, const bench_family *family, kgen_graph **graph,
                           kgen_error *err) {
    KGEN_TRY(kgen_stream_sync(b->ctx, b->stream, err));
    KGEN_TRY(kgen_graph_begin(b->ctx, b->stream, err));
    kgen_status status = KGEN_OK;
    for (int i = 0; i < 2 * b->sets && status == KGEN_OK; i++) {
        kgen_args args = b->args;
        family->select(&args, b, i % b->sets);
        status = kgen_launch(b->kernel, &args, b->stream, err);
    }
    kgen_status ended = kgen_graph_end(b->ctx, b->stream, graph, err);
    return status != KGEN_OK ? status : ended;
}

static kgen_status replay(bench *b, kgen_graph *graph, double *us, kgen_error *err) {
    *us = 1e30;
    for (int i = 0; i <= REPLAYS; i++) {
        double start = now_us();
        KGEN_TRY(kgen_graph_launch(graph, b->stream, err));
        KGEN_TRY(kgen_stream_sync(b->ctx, b->stream, err));
        double each = (now_us() - start) / (2 * b->sets);
        if (i > 0 && each < *us) *us = each;
    }
    return KGEN_OK;
}

static kgen_status time_row(bench *b, const bench_family *family, size_t row, double *us,
                            kgen_error *err) {
    kgen_graph *graph = NULL;
    KGEN_TRY(family->make(b, row, err));
    KGEN_TRY(capture(b, family, &graph, err));
    kgen_status status = replay(b, graph, us, err);
    kgen_graph_free(graph);
    return status;
}

/* --- rows --------------------------------------------------------------- */

static kgen_status run_row(bench *b, const bench_family *family, size_t row, const char *tune,
                           kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX], whole[KGEN_SPEC_LINE_MAX];
    kgen_spec spec;
    double us = 0;
    family->spec(line, row);
    if (snprintf(whole, sizeof whole, "%s%s%s", line, *tune ? "," : "", tune) >= (int)sizeof whole)
        return kgen_fail(err, KGEN_E_SPEC, "--tune: spec line above %d bytes", KGEN_SPEC_LINE_MAX);
    KGEN_TRY(kgen_spec_parse(&spec, whole, err));
    KGEN_TRY(kgen_prepare(b->ctx, &spec, 1, &b->kernel, err));
    b->spec = kgen_kernel_spec(b->kernel);
    kgen_status status = time_row(b, family, row, &us, err);
    while (b->memory_count > 0) kgen_memory_free(b->ctx, b->memory[--b->memory_count]);
    if (status != KGEN_OK) return status;
    printf("%-18s %9.2f us  %7.3f TB/s  %3d registers  %s\n", family->name(row), us,
           b->bytes / us * 1e-6, kgen_kernel_resources(b->kernel)->vgprs, tune);
    fflush(stdout);
    return KGEN_OK;
}

static int wanted(const char *name, char **names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return 1;
    return count == 0;
}

int bench_main(const bench_family *family, int argc, char **argv) {
    kgen_open_options options = {0};
    const char *tune = "";
    bench b = {0};
    kgen_error err = {0};
    int at = 1, failed = 0;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--device") == 0) options.device = argv[at + 1];
        if (strcmp(argv[at], "--cache-dir") == 0) options.cache_dir = argv[at + 1];
        if (strcmp(argv[at], "--tune") == 0) tune = argv[at + 1];
    }
    if (kgen_open(&b.ctx, &options, &err) || kgen_stream_create(b.ctx, &b.stream, &err)) {
        fprintf(stderr, "%s: %s\n", family->program, err.text);
        return kgen_status_exit_code(err.status);
    }
    printf("%s\n", kgen_context_device(b.ctx));
    for (size_t i = 0; i < family->rows; i++) {
        bench fresh = {.ctx = b.ctx, .stream = b.stream};
        if (!wanted(family->name(i), argv + at, argc - at)) continue;
        if (run_row(&fresh, family, i, tune, &err) == KGEN_OK) continue;
        fprintf(stderr, "%s: %s\n", family->name(i), err.text);
        failed = kgen_status_exit_code(err.status);
    }
    kgen_stream_destroy(b.ctx, b.stream);
    kgen_close(b.ctx);
    return failed;
}

/* Times attention kernels by graph replay over rotating cold caches, through
 * the public API only. Rows: a spec line and a shape. Prints microseconds a
 * launch and the rate at which keys and values were read.
 *
 *   bench_attn [--device NAME] [--cache-dir D] [--tune KEYS] [ROW-SUBSTRING ...]
 *
 * --tune appends tuning keys to every spec ("waves=4,occ=2"). On the cpu device
 * it shows that it works and little else.                                   */
#include <kgen/kgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SETS = 64, MOST_ALLOCATIONS = 16, REPLAYS = 8 };
static const double COLD_BYTES = 1.0e9; /* more than any last-level cache    */

typedef struct row {
    const char *name, *spec; /* the spec without tuning keys                 */
    int q_heads, batch;
    int64_t context;
} row;

#define D128 "q=bf16,kv=bf16,d=128,g=8,page=16,layout=nhd"
#define D128F8 "q=bf16,kv=fp8,d=128,g=8,page=16,layout=nhd"
#define D256 "q=bf16,kv=bf16,d=256,g=8,page=64,layout=nhd"

static const row rows[] = {
    {"1x2k", "attn:phase=decode," D128, 64, 1, 2048},
    {"1x8k", "attn:phase=decode," D128, 64, 1, 8192},
    {"1x64k", "attn:phase=decode," D128, 64, 1, 65536},
    {"4x8k", "attn:phase=decode," D128, 64, 4, 8192},
    {"8x8k", "attn:phase=decode," D128, 64, 8, 8192},
    {"32x4k", "attn:phase=decode," D128, 64, 32, 4096},
    {"64x8k", "attn:phase=decode," D128, 64, 64, 8192},
    {"128x2k", "attn:phase=decode," D128, 64, 128, 2048},
    {"fp8-8x8k", "attn:phase=decode," D128F8, 64, 8, 8192},
    {"fp8-64x8k", "attn:phase=decode," D128F8, 64, 64, 8192},
    {"verify4-1x8k", "attn:phase=verify,t=4," D128, 64, 1, 8192},
    {"verify4-8x8k", "attn:phase=verify,t=4," D128, 64, 8, 8192},
    {"verify4-32x8k", "attn:phase=verify,t=4," D128, 64, 32, 8192},
    {"verify1-32x8k", "attn:phase=decode," D128, 64, 32, 8192},
    {"d256-8x8k", "attn:phase=decode," D256, 16, 8, 8192},
    {"d256-64x8k", "attn:phase=decode," D256, 16, 64, 8192},
    {"window128-32x8k", "attn:phase=decode,q=bf16,kv=bf16,d=64,g=8,page=16,layout=nhd,window=128",
     64, 32, 8192},
};

/* --- one row's data ----------------------------------------------------- */

typedef struct data {
    kgen_context *ctx;
    kgen_kernel *kernel;
    kgen_stream stream;
    const kgen_attn_spec *spec;
    kgen_attn_args args;
    void *memory[MOST_ALLOCATIONS]; /* freed together                        */
    int memory_count;
    int sets;        /* block tables over different pages                    */
    int64_t table_stride;
    double bytes;    /* of keys and values that one launch must read         */
} data;

static uint64_t random_state = 0x9e3779b97f4a7c15u;
static uint32_t random32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static kgen_status allocate(data *d, void **out, size_t bytes, kgen_error *err) {
    KGEN_TRY(kgen_memory_alloc(d->ctx, out, bytes, err));
    d->memory[d->memory_count++] = *out;
    return KGEN_OK;
}

/* Device memory filled from a block of random values between -1 and 1. */
static kgen_status random_values(data *d, void **out, kgen_dtype dtype, size_t count,
                                 kgen_error *err) {
    enum { BLOCK = 1 << 22 };
    size_t bytes = count * (size_t)kgen_dtype_size(dtype);
    uint8_t *block = malloc(BLOCK);
    if (!block) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (size_t i = 0; i < BLOCK; i += 2) {
        uint16_t sixteen = (uint16_t)(0x3c00u + random32() % 0x380u + (random32() & 1) * 0x8000u);
        uint16_t eight = (uint16_t)(random32() & 0xb7b7u);
        uint16_t value = kgen_dtype_size(dtype) == 2 ? sixteen : eight;
        memcpy(block + i, &value, 2);
    }
    kgen_status status = allocate(d, out, bytes, err);
    for (size_t at = 0; status == KGEN_OK && at < bytes; at += BLOCK)
        status = kgen_memory_write(d->ctx, (uint8_t *)*out + at, block,
                                   bytes - at < BLOCK ? bytes - at : BLOCK, err);
    free(block);
    return status;
}

static kgen_status ints(data *d, void **out, const int32_t *values, size_t count,
                        kgen_error *err) {
    KGEN_TRY(allocate(d, out, count * sizeof *values, err));
    return kgen_memory_write(d->ctx, *out, values, count * sizeof *values, err);
}

/* Every set's sequences own different pages, in random order. */
static kgen_status make_tables(data *d, int64_t pages, int64_t total, void **out,
                               kgen_error *err) {
    int32_t *table = malloc((size_t)total * sizeof *table);
    if (!table) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (int64_t i = 0; i < total; i++) table[i] = (int32_t)i;
    for (int64_t i = total - 1; i > 0; i--) {
        int64_t j = (int64_t)random32() % (i + 1);
        int32_t swap = table[i];
        table[i] = table[j];
        table[j] = swap;
    }
    d->table_stride = pages;
    kgen_status status = ints(d, out, table, (size_t)total, err);
    free(table);
    return status;
}

static kgen_status make_lengths(data *d, const row *r, kgen_error *err) {
    int32_t *values = malloc((size_t)(r->batch + 1) * sizeof *values);
    void *memory = NULL;
    int64_t seqs = r->batch, ends = seqs + 1;
    if (!values) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (int i = 0; i < r->batch; i++) values[i] = (int32_t)r->context;
    kgen_status status = ints(d, &memory, values, (size_t)seqs, err);
    d->args.seq_lens = kgen_tensor_dense(memory, KGEN_I32, 1, &seqs);
    for (int i = 0; i <= r->batch; i++) values[i] = i * d->spec->q_tokens;
    if (status == KGEN_OK) status = ints(d, &memory, values, (size_t)ends, err);
    d->args.cu_seqlens_q = kgen_tensor_dense(memory, KGEN_I32, 1, &ends);
    free(values);
    return status;
}

static void count_bytes(data *d, const row *r) {
    const kgen_attn_spec *s = d->spec;
    int64_t keys = s->window > 0 && s->window < r->context ? s->window : r->context;
    d->bytes = (double)keys * r->batch * (r->q_heads / s->group) * (s->head_dim + s->v_dim) *
               kgen_dtype_size((kgen_dtype)s->kv);
    double sets = COLD_BYTES / d->bytes + 1;
    d->sets = sets < 4 ? 4 : sets > MOST_SETS ? MOST_SETS : (int)sets;
}

static kgen_status make_cache(data *d, const row *r, kgen_error *err) {
    const kgen_attn_spec *s = d->spec;
    int64_t heads = r->q_heads / s->group, pages = r->context / s->page;
    int64_t total = pages * r->batch * d->sets, table_shape[2] = {r->batch, pages}, one = 1;
    int64_t k_shape[4] = {total, s->page, heads, s->head_dim};
    int64_t v_shape[4] = {total, s->page, heads, s->v_dim};
    void *k, *v, *table, *scale;
    float unit = 0.5f;
    size_t slots = (size_t)(total * s->page * heads);
    KGEN_TRY(random_values(d, &k, (kgen_dtype)s->kv, slots * (size_t)s->head_dim, err));
    KGEN_TRY(random_values(d, &v, (kgen_dtype)s->kv, slots * (size_t)s->v_dim, err));
    KGEN_TRY(make_tables(d, pages, total, &table, err));
    KGEN_TRY(allocate(d, &scale, sizeof unit, err));
    KGEN_TRY(kgen_memory_write(d->ctx, scale, &unit, sizeof unit, err));
    d->args.k = kgen_tensor_dense(k, (kgen_dtype)s->kv, 4, k_shape);
    d->args.v = kgen_tensor_dense(v, (kgen_dtype)s->kv, 4, v_shape);
    d->args.k.layout = d->args.v.layout = (kgen_layout)s->layout;
    d->args.block_table = kgen_tensor_dense(table, KGEN_I32, 2, table_shape);
    d->args.k_descale = d->args.v_descale = kgen_tensor_dense(scale, KGEN_F32, 1, &one);
    return KGEN_OK;
}

static kgen_status make_rest(data *d, const row *r, kgen_error *err) {
    const kgen_attn_spec *s = d->spec;
    int64_t tokens = (int64_t)r->batch * s->q_tokens;
    int64_t q_shape[3] = {tokens, r->q_heads, s->head_dim};
    int64_t out_shape[3] = {tokens, r->q_heads, s->v_dim};
    size_t rows_count = (size_t)(tokens * r->q_heads);
    void *q, *out;
    KGEN_TRY(random_values(d, &q, (kgen_dtype)s->q, rows_count * (size_t)s->head_dim, err));
    KGEN_TRY(random_values(d, &out, (kgen_dtype)s->out, rows_count * (size_t)s->v_dim, err));
    d->args.q = kgen_tensor_dense(q, (kgen_dtype)s->q, 3, q_shape);
    d->args.out = kgen_tensor_dense(out, (kgen_dtype)s->out, 3, out_shape);
    d->args.softmax_scale = 0.08838835f;
    KGEN_TRY(kgen_workspace_size(d->kernel, &d->args, &d->args.workspace_bytes, err));
    KGEN_TRY(allocate(d, &d->args.workspace, d->args.workspace_bytes, err));
    return kgen_workspace_init(d->ctx, d->args.workspace, d->args.workspace_bytes, d->stream, err);
}

static kgen_status make_data(data *d, const row *r, kgen_error *err) {
    count_bytes(d, r);
    KGEN_TRY(make_lengths(d, r, err));
    KGEN_TRY(make_cache(d, r, err));
    return make_rest(d, r, err);
}

/* --- timing ------------------------------------------------------------- */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* One graph launches every set twice, so that a replay is long beside its own
 * start; the best of several replays is reported. */
static kgen_status capture(data *d, kgen_graph **graph, int *launches, kgen_error *err) {
    int32_t *table = d->args.block_table.data;
    int64_t set_size = d->args.block_table.shape[0] * d->table_stride;
    *launches = d->sets * 2;
    KGEN_TRY(kgen_stream_sync(d->ctx, d->stream, err));
    KGEN_TRY(kgen_graph_begin(d->ctx, d->stream, err));
    kgen_status status = KGEN_OK;
    for (int i = 0; i < *launches && status == KGEN_OK; i++) {
        kgen_attn_args args = d->args;
        args.block_table.data = table + (i % d->sets) * set_size;
        status = kgen_launch(d->kernel, &args, d->stream, err);
    }
    kgen_status ended = kgen_graph_end(d->ctx, d->stream, graph, err);
    return status != KGEN_OK ? status : ended;
}

static kgen_status replay(data *d, kgen_graph *graph, int launches, double *us, kgen_error *err) {
    *us = 1e30;
    for (int i = 0; i <= REPLAYS; i++) {
        double start = now_us();
        KGEN_TRY(kgen_graph_launch(graph, d->stream, err));
        KGEN_TRY(kgen_stream_sync(d->ctx, d->stream, err));
        double each = (now_us() - start) / launches;
        if (i > 0 && each < *us) *us = each;
    }
    return KGEN_OK;
}

static kgen_status time_row(data *d, const row *r, double *us, kgen_error *err) {
    kgen_graph *graph = NULL;
    int launches;
    KGEN_TRY(make_data(d, r, err));
    KGEN_TRY(capture(d, &graph, &launches, err));
    kgen_status status = replay(d, graph, launches, us, err);
    kgen_graph_free(graph);
    return status;
}

static kgen_status run_row(kgen_context *ctx, kgen_stream stream, const row *r, const char *tune,
                           kgen_error *err) {
    char line[KGEN_SPEC_LINE_MAX];
    data d = {.ctx = ctx, .stream = stream};
    kgen_spec spec;
    double us = 0;
    snprintf(line, sizeof line, "%s%s%s", r->spec, *tune ? "," : "", tune);
    KGEN_TRY(kgen_spec_parse(&spec, line, err));
    KGEN_TRY(kgen_prepare(ctx, &spec, 1, &d.kernel, err));
    d.spec = &kgen_kernel_spec(d.kernel)->attn;
    kgen_status status = time_row(&d, r, &us, err);
    while (d.memory_count > 0) kgen_memory_free(ctx, d.memory[--d.memory_count]);
    if (status != KGEN_OK) return status;
    printf("%-16s %9.2f us  %7.3f TB/s  %3d registers  %s\n", r->name, us, d.bytes / us * 1e-6,
           kgen_kernel_resources(d.kernel)->vgprs, tune);
    fflush(stdout);
    return KGEN_OK;
}

static int wanted(const row *r, char **names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(r->name, names[i]) == 0) return 1;
    return count == 0;
}

int main(int argc, char **argv) {
    kgen_open_options options = {0};
    const char *tune = "";
    kgen_context *ctx = NULL;
    kgen_stream stream = NULL;
    kgen_error err = {0};
    int at = 1, failed = 0;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--device") == 0) options.device = argv[at + 1];
        if (strcmp(argv[at], "--cache-dir") == 0) options.cache_dir = argv[at + 1];
        if (strcmp(argv[at], "--tune") == 0) tune = argv[at + 1];
    }
    if (kgen_open(&ctx, &options, &err) || kgen_stream_create(ctx, &stream, &err)) {
        fprintf(stderr, "bench_attn: %s\n", err.text);
        return kgen_status_exit_code(err.status);
    }
    printf("%s\n", kgen_context_device(ctx));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!wanted(&rows[i], argv + at, argc - at)) continue;
        if (run_row(ctx, stream, &rows[i], tune, &err) == KGEN_OK) continue;
        fprintf(stderr, "%s: %s\n", rows[i].name, err.text);
        failed = kgen_status_exit_code(err.status);
    }
    kgen_stream_destroy(ctx, stream);
    kgen_close(ctx);
    return failed;
}

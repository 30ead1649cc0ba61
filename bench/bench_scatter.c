/* Times scatter kernels (see bench.h): 256 requests of up to 32k tokens, 4 new
 * ones each. Every set has a req_to_token and tables of its own, so slots come
 * from memory, as after the layers of a model. The rate counts slots and pages
 * that a launch must read and write.                                        */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, CONTEXT = 32768, NEW = 4, COLUMNS = CONTEXT + 64, SETS = 16, STEPS = 3 };

static const char *const kinds[] = {
    "prepare-p16:op=spec_prepare,page=16",
    "prepare-p1:op=spec_prepare,page=1",
    "prepare-p16-delta:op=spec_prepare,page=16,delta=1",
    "prepare-p1-delta:op=spec_prepare,page=1,delta=1",
    "prepare-p16-swa:op=spec_prepare,page=16,swa=1",
    "prepare-p16-swa-delta:op=spec_prepare,page=16,swa=1,delta=1",
    "prepare-lens:op=spec_prepare,pages=0",
    "table-p16:op=page_table_requests,page=16",
    "table-p1:op=page_table_requests,page=1",
    "table-p16-keep:op=page_table_requests,page=16,tail=keep",
    "draft-lens:op=draft_lens,sliced=1",
    "cache-locs:op=cache_locs",
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const char *name_of(size_t row) {
    static char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(kinds[row], ":"), kinds[row]);
    return name;
}

static void spec_of(char out[KGEN_SPEC_LINE_MAX], size_t row) {
    snprintf(out, KGEN_SPEC_LINE_MAX, "scatter%s", strchr(kinds[row], ':'));
}

/* --- data --------------------------------------------------------------- */

static uint32_t random_state = 0x2545f491u;
static uint32_t random32(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* The slots of all requests, page by page; a set after the other. */
static kgen_status make_slots(bench *b, const kgen_scatter_spec *s, kgen_error *err) {
    const int64_t shape[] = {BATCH, COLUMNS}, count = (int64_t)BATCH * COLUMNS;
    int32_t *slots = malloc((size_t)count * sizeof *slots), pages = BATCH * CONTEXT / s->page;
    void *memory;
    if (!slots) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (int64_t i = 0; i < count; i++) {
        int64_t inside = i % COLUMNS % s->page;
        slots[i] = inside ? slots[i - 1] + 1 : (int32_t)(random32() % (uint32_t)pages) * s->page;
    }
    kgen_status status = bench_alloc(b, &memory, (size_t)count * SETS * sizeof *slots, err);
    for (int set = 0; set < SETS && status == KGEN_OK; set++)
        status = kgen_memory_write(b->ctx, (int32_t *)memory + set * count, slots,
                                   (size_t)count * sizeof *slots, err);
    free(slots);
    b->args.scatter.req_to_token = kgen_tensor_dense(memory, KGEN_I32, 2, shape);
    return status;
}

/* Requests in random order, of 28k to 32k tokens. */
static kgen_status make_rows(bench *b, kgen_error *err) {
    kgen_scatter_args *a = &b->args.scatter;
    const int64_t rows = BATCH;
    int32_t lens[BATCH], accepted[BATCH];
    int64_t requests[BATCH];
    void *memory[4];
    for (int n = 0; n < BATCH; n++) {
        lens[n] = CONTEXT - NEW - (int32_t)(random32() % 4096);
        requests[n] = (n * 37 + 11) % BATCH;
        accepted[n] = 1 + (int32_t)(random32() % NEW);
    }
    KGEN_TRY(bench_ints(b, &memory[0], lens, BATCH, err));
    KGEN_TRY(bench_ints(b, &memory[1], accepted, BATCH, err));
    KGEN_TRY(bench_alloc(b, &memory[2], sizeof requests, err));
    KGEN_TRY(kgen_memory_write(b->ctx, memory[2], requests, sizeof requests, err));
    a->lens = a->valid = a->starts = kgen_tensor_dense(memory[0], KGEN_I32, 1, &rows);
    a->accepted = kgen_tensor_dense(memory[1], KGEN_I32, 1, &rows);
    a->requests = a->ids = kgen_tensor_dense(memory[2], KGEN_I64, 1, &rows);
    return KGEN_OK;
}

static kgen_status make_mapping(bench *b, const kgen_scatter_spec *s, kgen_error *err) {
    const int64_t count = (int64_t)BATCH * CONTEXT;
    int64_t *map;
    void *memory;
    if (!s->swa) return KGEN_OK;
    map = malloc((size_t)count * sizeof *map);
    if (!map) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (int64_t i = 0; i < count; i++) map[i] = (i * 16 + i % 16) % count;
    kgen_status status = bench_alloc(b, &memory, (size_t)count * sizeof *map, err);
    if (status == KGEN_OK)
        status = kgen_memory_write(b->ctx, memory, map, (size_t)count * sizeof *map, err);
    free(map);
    b->args.scatter.mapping = kgen_tensor_dense(memory, KGEN_I64, 1, &count);
    return status;
}

/* One tensor of its own in each set where `sets` is SETS. */
static kgen_status make_output(bench *b, kgen_tensor *t, kgen_dtype dtype, int32_t rank,
                               const int64_t *shape, int sets, kgen_error *err) {
    size_t bytes = (size_t)(rank > 1 ? shape[0] * shape[1] : shape[0]);
    void *memory;
    bytes *= (size_t)kgen_dtype_size(dtype);
    KGEN_TRY(bench_alloc(b, &memory, bytes * (size_t)sets, err));
    *t = kgen_tensor_dense(memory, dtype, rank, shape);
    return KGEN_OK;
}

static kgen_status make_outputs(bench *b, const kgen_scatter_spec *s, kgen_error *err) {
    kgen_scatter_args *a = &b->args.scatter;
    const int64_t rows = BATCH, ends = BATCH + 1, tokens = BATCH * NEW;
    const int64_t table[] = {BATCH, (CONTEXT + s->page - 1) / s->page}, steps[] = {STEPS, BATCH};
    const int64_t state[] = {BATCH, 3};
    int lens = s->op == KGEN_DRAFT_LENS;
    KGEN_TRY(make_output(b, &a->seq_lens, KGEN_I32, 1, &rows, 1, err));
    KGEN_TRY(make_output(b, &a->qo_indptr, KGEN_I32, 1, &ends, 1, err));
    KGEN_TRY(make_output(b, &a->kv_indptr, KGEN_I32, 1, &ends, 1, err));
    KGEN_TRY(make_output(b, &a->locs, KGEN_I64, 1, &tokens, 1, err));
    KGEN_TRY(make_output(b, &a->swa_locs, KGEN_I64, 1, &tokens, 1, err));
    KGEN_TRY(make_output(b, &a->step_lens, KGEN_I32, 2, steps, 1, err));
    KGEN_TRY(make_output(b, &a->positions_out, KGEN_I64, lens ? 2 : 1, lens ? steps : &tokens, 1,
                         err));
    KGEN_TRY(make_output(b, &a->state, KGEN_I64, 2, state, SETS, err));
    KGEN_TRY(make_output(b, &a->table, KGEN_I32, 2, table, SETS, err));
    return make_output(b, &a->swa_table, KGEN_I32, 2, table, SETS, err);
}

static double bytes_of(const kgen_scatter_spec *s) {
    double pages = (double)BATCH * (CONTEXT - 2048) / s->page;
    double cells = (double)BATCH * CONTEXT / s->page, rows = BATCH * (8 + 4 * 5 + NEW * 20);
    if (s->op == KGEN_DRAFT_LENS) return BATCH * (3 * 4 + STEPS * 12);
    if (s->op == KGEN_CACHE_LOCS) return BATCH * (12 + NEW * 12);
    if (!s->pages || s->delta) return rows;
    return (pages * 4 + (s->tail == KGEN_TAIL_KEEP ? pages : cells) * 4) * (1 + s->swa) +
           (s->op == KGEN_SPEC_PREPARE ? rows : BATCH * 12);
}

static kgen_status make(bench *b, size_t row, kgen_error *err) {
    const kgen_scatter_spec *s = &b->spec->scatter;
    kgen_scatter_args *a = &b->args.scatter;
    (void)row;
    b->args.family = KGEN_SCATTER;
    b->bytes = bytes_of(s);
    b->sets = SETS;
    a->tokens = NEW;
    a->pad_len = NEW;
    a->steps = STEPS;
    a->max_len = CONTEXT;
    KGEN_TRY(make_rows(b, err));
    KGEN_TRY(make_mapping(b, s, err));
    KGEN_TRY(make_outputs(b, s, err));
    return s->op == KGEN_DRAFT_LENS ? KGEN_OK : make_slots(b, s, err);
}

static void turn(kgen_tensor *t, int set) {
    int64_t each = t->shape[0] * t->stride[0] * kgen_dtype_size(t->dtype);
    if (t->data) t->data = (char *)t->data + set * each;
}

static void select_set(kgen_args *args, const bench *b, int set) {
    (void)b;
    turn(&args->scatter.req_to_token, set);
    turn(&args->scatter.table, set);
    turn(&args->scatter.swa_table, set);
    turn(&args->scatter.state, set);
}

int main(int argc, char **argv) {
    bench_family family = {"bench_scatter", KINDS, name_of, spec_of, make, select_set};
    return bench_main(&family, argc, argv);
}

/* Times kv_write and kv_gather (see bench.h): rows and pages of different places
 * in every set, pages in random order, tokens of a page one after another. The
 * rate counts what is read and what is written, once each.                  */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, PAGE = 16, MOST_SETS = 64, Q_HEADS = 64, POSITIONS = 4096 };

static const char *const kinds[] = {
    "write-nhd:kv_write:layout=nhd,slots=i32",
    "write-hnd:kv_write:layout=hnd,slots=i32",
    "write-shuffle:kv_write:layout=shuffle,slots=i32",
    "write-xpacked:kv_write:layout=xpacked,slots=i32",
    "write-nhd-fp8:kv_write:layout=nhd,kv=fp8,slots=i32",
    "write-shuffle-fp8:kv_write:layout=shuffle,kv=fp8,slots=i32",
    "write-nhd-token:kv_write:layout=nhd,kv=fp8,scale=token,slots=i32",
    "write-shuffle-token:kv_write:layout=shuffle,kv=fp8,scale=token,slots=i32",
    "write-nhd-row:kv_write:layout=nhd,kv=fp8,scale=row,slots=i32",
    "write-nhd-i8:kv_write:layout=nhd,kv=i8,scale=token,slots=i32",
    "write-nhd-rope:kv_write:layout=nhd,slots=i32,rope=neox,pos=i32",
    "write-nhd-rope-q:kv_write:layout=nhd,slots=i32,rope=neox,rq=1,pos=i32",
    "gather-nhd:kv_gather:layout=nhd",
    "gather-shuffle:kv_gather:layout=shuffle",
    "gather-nhd-fp8:kv_gather:layout=nhd,kv=fp8",
    "gather-shuffle-fp8:kv_gather:layout=shuffle,kv=fp8",
    "gather-nhd-token:kv_gather:layout=nhd,kv=fp8,descale=token",
};
static const int counts[] = {1, 64, 512, 2048, 8192, 32768};
enum { KINDS = sizeof kinds / sizeof kinds[0], COUNTS = sizeof counts / sizeof counts[0] };

static const char *name_of(size_t row) {
    static char name[64];
    const char *kind = kinds[row / COUNTS];
    snprintf(name, sizeof name, "%.*s-%d", (int)strcspn(kind, ":"), kind, counts[row % COUNTS]);
    return name;
}

static void spec_of(char out[KGEN_SPEC_LINE_MAX], size_t row) {
    snprintf(out, KGEN_SPEC_LINE_MAX, "%s,d=128,page=%d", strchr(kinds[row / COUNTS], ':') + 1,
             PAGE);
}

/* What both specs say. */
typedef struct plan {
    kgen_dtype x, kv;
    int32_t layout, scale;
    int64_t dim, rows, total, pages; /* rows: of a set; total: of all sets   */
    int queries, rope;
} plan;

static plan plan_of(bench *b, int64_t rows) {
    const kgen_kv_write_spec *w = &b->spec->kv_write;
    const kgen_kv_gather_spec *g = &b->spec->kv_gather;
    plan p = {(kgen_dtype)w->x, (kgen_dtype)w->kv, w->layout, w->scale, w->head_dim, rows, 0, 0,
              w->rope_q, w->rope};
    if (b->spec->family == KGEN_KV_GATHER)
        p = (plan){(kgen_dtype)g->out, (kgen_dtype)g->kv, g->layout, g->descale, g->head_dim, rows,
                   0, 0, 0, 0};
    double elements = (double)rows * HEADS * 2 * (double)p.dim;
    b->bytes = elements * (kgen_dtype_size(p.x) + kgen_dtype_size(p.kv));
    if (p.queries) b->bytes += (double)rows * Q_HEADS * (double)p.dim * 2 * kgen_dtype_size(p.x);
    b->sets = bench_sets(b->bytes, MOST_SETS);
    p.pages = (rows + PAGE - 1) / PAGE;
    b->set_step = rows;
    p.total = rows * b->sets;
    p.pages *= b->sets;
    return p;
}

/* --- data --------------------------------------------------------------- */

static kgen_status make_cache(bench *b, const plan *p, kgen_tensor *t, int is_v, kgen_error *err) {
    int64_t x = 16 / kgen_dtype_size(p->kv);
    const struct {
        int32_t rank;
        int64_t shape[5];
    } shapes[][2] = {
        [KGEN_NHD] = {{4, {p->pages, PAGE, HEADS, p->dim}}, {4, {p->pages, PAGE, HEADS, p->dim}}},
        [KGEN_HND] = {{4, {p->pages, HEADS, PAGE, p->dim}}, {4, {p->pages, HEADS, PAGE, p->dim}}},
        [KGEN_SHUFFLE] = {{5, {p->pages, HEADS, p->dim / x, PAGE, x}},
                          {5, {p->pages, HEADS, PAGE / x, p->dim, x}}},
        [KGEN_XPACKED] = {{5, {p->pages, HEADS, p->dim / x, PAGE, x}},
                          {4, {p->pages, HEADS, p->dim, PAGE}}},
    };
    KGEN_TRY(bench_tensor(b, t, p->kv, shapes[p->layout][is_v].rank,
                          shapes[p->layout][is_v].shape, err));
    t->layout = (kgen_layout)p->layout;
    return KGEN_OK;
}

static kgen_status make_scale(bench *b, const plan *p, kgen_tensor *t, kgen_error *err) {
    int64_t one = 1, all[3] = {p->pages, PAGE, HEADS};
    int token = p->scale == KGEN_DESCALE_TOKEN || p->scale == KGEN_DESCALE_ROW;
    if (p->scale == KGEN_DESCALE_NONE) return KGEN_OK;
    KGEN_TRY(bench_tensor(b, t, KGEN_F32, token ? 3 : 1, token ? all : &one, err));
    float unit = 0.5f;
    t->layout = token ? KGEN_NHD : KGEN_LAYOUT_NONE;
    return kgen_memory_write(b->ctx, t->data, &unit, sizeof unit, err);
}

static kgen_status make_rows(bench *b, const plan *p, kgen_tensor *t, int64_t heads,
                             kgen_error *err) {
    int64_t shape[3] = {p->total, heads, p->dim};
    KGEN_TRY(bench_tensor(b, t, p->x, 3, shape, err));
    t->shape[0] = p->rows;
    return KGEN_OK;
}

/* Pages in random order; a row's slot follows that of the row before. */
static kgen_status make_slots(bench *b, const plan *p, kgen_error *err) {
    int32_t *pages = malloc((size_t)p->pages * sizeof *pages);
    int32_t *slots = malloc((size_t)p->total * sizeof *slots);
    void *memory = NULL, *shuffled = NULL;
    kgen_status status = pages && slots ? bench_shuffled(b, &shuffled, p->pages, err)
                                        : kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    if (status == KGEN_OK)
        status = kgen_memory_read(b->ctx, pages, shuffled, (size_t)p->pages * sizeof *pages, err);
    int64_t set_pages = p->pages / b->sets;
    for (int64_t i = 0; status == KGEN_OK && i < p->total; i++)
        slots[i] = pages[i / p->rows * set_pages + i % p->rows / PAGE] * PAGE +
                   (int32_t)(i % p->rows % PAGE);
    if (status == KGEN_OK) status = bench_ints(b, &memory, slots, (size_t)p->total, err);
    b->args.kv_write.slots = kgen_tensor_dense(memory, KGEN_I32, 1, &p->rows);
    free(pages);
    free(slots);
    return status;
}

static kgen_status make_rope(bench *b, const plan *p, kgen_error *err) {
    kgen_kv_write_args *a = &b->args.kv_write;
    int64_t shape[2] = {POSITIONS, p->dim / 2};
    int32_t *positions = malloc((size_t)p->total * sizeof *positions);
    void *memory = NULL;
    if (!positions) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (int64_t i = 0; i < p->total; i++) positions[i] = (int32_t)(i % POSITIONS);
    kgen_status status = bench_ints(b, &memory, positions, (size_t)p->total, err);
    free(positions);
    KGEN_TRY(status);
    a->positions = kgen_tensor_dense(memory, KGEN_I32, 1, &p->rows);
    KGEN_TRY(bench_tensor(b, &a->cos, KGEN_F32, 2, shape, err));
    KGEN_TRY(bench_tensor(b, &a->sin, KGEN_F32, 2, shape, err));
    if (p->queries) KGEN_TRY(make_rows(b, p, &a->q, Q_HEADS, err));
    a->q_out = a->q;
    return KGEN_OK;
}

static kgen_status make_write(bench *b, const plan *p, kgen_error *err) {
    kgen_kv_write_args *a = &b->args.kv_write;
    KGEN_TRY(make_rows(b, p, &a->k, HEADS, err));
    KGEN_TRY(make_rows(b, p, &a->v, HEADS, err));
    KGEN_TRY(make_cache(b, p, &a->k_cache, 0, err));
    KGEN_TRY(make_cache(b, p, &a->v_cache, 1, err));
    KGEN_TRY(make_scale(b, p, &a->k_scale, err));
    KGEN_TRY(make_scale(b, p, &a->v_scale, err));
    KGEN_TRY(make_slots(b, p, err));
    return p->rope ? make_rope(b, p, err) : KGEN_OK;
}

/* Sequences of 1024 tokens, or one. */
static kgen_status make_gather(bench *b, const plan *p, kgen_error *err) {
    enum { LENGTH = 1024, MOST_SEQS = 64 };
    kgen_kv_gather_args *a = &b->args.kv_gather;
    int64_t seqs = (p->rows + LENGTH - 1) / LENGTH, ends = seqs + 1, columns;
    int32_t ends_of[MOST_SEQS + 1] = {0}, lens[MOST_SEQS];
    void *memory;
    columns = (p->rows / seqs + PAGE - 1) / PAGE;
    for (int64_t i = 0; i < seqs; i++) {
        lens[i] = (int32_t)(p->rows / seqs);
        ends_of[i + 1] = ends_of[i] + lens[i];
    }
    KGEN_TRY(make_cache(b, p, &a->k_cache, 0, err));
    KGEN_TRY(make_cache(b, p, &a->v_cache, 1, err));
    KGEN_TRY(make_scale(b, p, &a->k_descale, err));
    KGEN_TRY(make_scale(b, p, &a->v_descale, err));
    KGEN_TRY(make_rows(b, p, &a->k, HEADS, err));
    KGEN_TRY(make_rows(b, p, &a->v, HEADS, err));
    KGEN_TRY(bench_ints(b, &memory, ends_of, (size_t)ends, err));
    a->cu_seqlens = kgen_tensor_dense(memory, KGEN_I32, 1, &ends);
    KGEN_TRY(bench_ints(b, &memory, lens, (size_t)seqs, err));
    a->seq_lens = kgen_tensor_dense(memory, KGEN_I32, 1, &seqs);
    KGEN_TRY(bench_shuffled(b, &memory, p->pages, err));
    a->block_table = kgen_tensor_dense(memory, KGEN_I32, 2, (int64_t[]){seqs, columns});
    return KGEN_OK;
}

static kgen_status make(bench *b, size_t row, kgen_error *err) {
    plan p = plan_of(b, counts[row % COUNTS]);
    b->args.family = b->spec->family;
    return b->spec->family == KGEN_KV_WRITE ? make_write(b, &p, err) : make_gather(b, &p, err);
}

static void step(kgen_tensor *t, int64_t rows) {
    if (t->data) t->data = (char *)t->data + rows * t->stride[0] * kgen_dtype_size(t->dtype);
}

static void select_set(kgen_args *args, const bench *b, int set) {
    int64_t rows = set * b->set_step;
    kgen_kv_write_args *w = &args->kv_write;
    kgen_kv_gather_args *g = &args->kv_gather;
    if (args->family == KGEN_KV_WRITE) {
        kgen_tensor *stepped[] = {&w->k, &w->v, &w->slots, &w->positions, &w->q, &w->q_out};
        for (size_t i = 0; i < sizeof stepped / sizeof stepped[0]; i++) step(stepped[i], rows);
        return;
    }
    step(&g->k, rows);
    step(&g->v, rows);
    g->block_table.data = (int32_t *)g->block_table.data +
                          set * ((b->set_step + PAGE - 1) / PAGE);
}

int main(int argc, char **argv) {
    bench_family family = {"bench_kv", KINDS * COUNTS, name_of, spec_of, make, select_set};
    return bench_main(&family, argc, argv);
}

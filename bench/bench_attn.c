/* Times attention kernels (see bench.h). The rate counts keys and values. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_SETS = 64 };

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

static kgen_status make_lengths(bench *b, const row *r, kgen_error *err) {
    int32_t *values = malloc((size_t)(r->batch + 1) * sizeof *values);
    void *memory = NULL;
    int64_t seqs = r->batch, ends = seqs + 1;
    if (!values) return kgen_fail(err, KGEN_E_NOMEM, "bench: out of memory");
    for (int i = 0; i < r->batch; i++) values[i] = (int32_t)r->context;
    kgen_status status = bench_ints(b, &memory, values, (size_t)seqs, err);
    b->args.attn.seq_lens = kgen_tensor_dense(memory, KGEN_I32, 1, &seqs);
    for (int i = 0; i <= r->batch; i++) values[i] = i * b->spec->attn.q_tokens;
    if (status == KGEN_OK) status = bench_ints(b, &memory, values, (size_t)ends, err);
    b->args.attn.cu_seqlens_q = kgen_tensor_dense(memory, KGEN_I32, 1, &ends);
    free(values);
    return status;
}

static void count_bytes(bench *b, const row *r) {
    const kgen_attn_spec *s = &b->spec->attn;
    int64_t keys = s->window > 0 && s->window < r->context ? s->window : r->context;
    b->bytes = (double)keys * r->batch * (r->q_heads / s->group) * (s->head_dim + s->v_dim) *
               kgen_dtype_size((kgen_dtype)s->kv);
    b->sets = bench_sets(b->bytes, MOST_SETS);
}

static kgen_status make_cache(bench *b, const row *r, kgen_error *err) {
    const kgen_attn_spec *s = &b->spec->attn;
    int64_t heads = r->q_heads / s->group, pages = r->context / s->page;
    int64_t total = pages * r->batch * b->sets, table_shape[2] = {r->batch, pages}, one = 1;
    int64_t k_shape[4] = {total, s->page, heads, s->head_dim};
    int64_t v_shape[4] = {total, s->page, heads, s->v_dim};
    void *k, *v, *table, *scale;
    float unit = 0.5f;
    size_t slots = (size_t)(total * s->page * heads);
    KGEN_TRY(bench_random(b, &k, (kgen_dtype)s->kv, slots * (size_t)s->head_dim, err));
    KGEN_TRY(bench_random(b, &v, (kgen_dtype)s->kv, slots * (size_t)s->v_dim, err));
    KGEN_TRY(bench_shuffled(b, &table, total, err));
    KGEN_TRY(bench_alloc(b, &scale, sizeof unit, err));
    KGEN_TRY(kgen_memory_write(b->ctx, scale, &unit, sizeof unit, err));
    b->set_step = pages * r->batch;
    b->args.attn.k = kgen_tensor_dense(k, (kgen_dtype)s->kv, 4, k_shape);
    b->args.attn.v = kgen_tensor_dense(v, (kgen_dtype)s->kv, 4, v_shape);
    b->args.attn.k.layout = b->args.attn.v.layout = (kgen_layout)s->layout;
    b->args.attn.block_table = kgen_tensor_dense(table, KGEN_I32, 2, table_shape);
    b->args.attn.k_descale = b->args.attn.v_descale = kgen_tensor_dense(scale, KGEN_F32, 1, &one);
    return KGEN_OK;
}

static kgen_status make_rest(bench *b, const row *r, kgen_error *err) {
    const kgen_attn_spec *s = &b->spec->attn;
    int64_t tokens = (int64_t)r->batch * s->q_tokens;
    int64_t q_shape[3] = {tokens, r->q_heads, s->head_dim};
    int64_t out_shape[3] = {tokens, r->q_heads, s->v_dim};
    size_t rows_count = (size_t)(tokens * r->q_heads);
    void *q, *out;
    KGEN_TRY(bench_random(b, &q, (kgen_dtype)s->q, rows_count * (size_t)s->head_dim, err));
    KGEN_TRY(bench_random(b, &out, (kgen_dtype)s->out, rows_count * (size_t)s->v_dim, err));
    b->args.attn.q = kgen_tensor_dense(q, (kgen_dtype)s->q, 3, q_shape);
    b->args.attn.out = kgen_tensor_dense(out, (kgen_dtype)s->out, 3, out_shape);
    b->args.attn.softmax_scale = 0.08838835f;
    return bench_workspace(b, err);
}

static kgen_status make(bench *b, size_t index, kgen_error *err) {
    const row *r = &rows[index];
    b->args.family = KGEN_ATTN;
    count_bytes(b, r);
    KGEN_TRY(make_lengths(b, r, err));
    KGEN_TRY(make_cache(b, r, err));
    return make_rest(b, r, err);
}

static void select_set(kgen_args *args, const bench *b, int set) {
    args->attn.block_table.data = (int32_t *)b->args.attn.block_table.data + set * b->set_step;
}

static const char *name_of(size_t index) { return rows[index].name; }
static void spec_of(char out[KGEN_SPEC_LINE_MAX], size_t index) {
    snprintf(out, KGEN_SPEC_LINE_MAX, "%s", rows[index].spec);
}

int main(int argc, char **argv) {
    bench_family family = {"bench_attn", sizeof rows / sizeof rows[0], name_of, spec_of, make,
                           select_set};
    return bench_main(&family, argc, argv);
}

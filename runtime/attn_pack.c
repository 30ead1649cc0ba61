/* What attn and mla pack alike. */
#include "attn_pack.h"

#include "templates/kg/attn/attn_shape.h"
#include "checks.h"

int kgen__attn_most_keys(int64_t pages, int64_t page) {
    /* So that the blocks behind the last key have numbers. */
    enum { MOST_KEYS = INT32_MAX - 65536 };
    int64_t keys = 0;
    int over = __builtin_mul_overflow(pages, page, &keys);
    return over || keys > MOST_KEYS ? MOST_KEYS : (int)keys;
}

uint64_t kgen__attn_page_magic(int64_t page) {
    uint64_t groups = (uint64_t)page / 16;
    return (((uint64_t)1 << 36) + groups - 1) / groups;
}

int kgen__attn_window_of(int32_t window) {
    enum { MOST_WINDOW = INT32_MAX - 64 };
    return window < MOST_WINDOW ? window : MOST_WINDOW;
}

kgen_status kgen__attn_check_lengths(int32_t max_q_len, int32_t most_q, int32_t max_kv_len,
                                     int keys, const char *pages, kgen_error *err) {
    NEED(max_q_len <= most_q, "max_q_len=%d: kernel built for t=%d", max_q_len, most_q);
    NEED(max_kv_len <= keys, "max_kv_len=%d: %s has pages for %d keys", max_kv_len, pages, keys);
    return KGEN_OK;
}

/* --- workspace ---------------------------------------------------------- */

typedef struct workspace {
    size_t sums, outs, joined_sums, joined_outs, bytes; /* offsets, size */
} workspace;

static size_t aligned(size_t bytes) {
    size_t unit = KGEN__WORKSPACE_ALIGNMENT;
    return (bytes + unit - 1) / unit * unit;
}

/* Partial results: two a workgroup, or where parts are fixed one each. */
static int64_t results_of(const kgen_kernel *kernel, const kgen__attn_work *work) {
    const kgen__attn_geometry *geometry = &kernel->counts.attn;
    if (!geometry->part_keys) return 2 * (int64_t)kernel->config.grid;
    int64_t parts = kg_attn_parts(work->keys, geometry->part_keys);
    return parts < 2 ? 0 : parts * work->seqs * work->kv_heads * geometry->row_blocks;
}

static workspace layout_workspace(const kgen_kernel *kernel, const kgen__attn_work *work) {
    const kgen__attn_geometry *geometry = &kernel->counts.attn;
    size_t rows = (size_t)(results_of(kernel, work) * geometry->rows), joined = 0;
    size_t sum = 2 * sizeof(float), out = (size_t)work->v_dim * sizeof(float);
    size_t maps = (size_t)geometry->maps + (size_t)geometry->own_maps * kernel->config.grid;
    if (geometry->joins) joined = 2 * (size_t)(work->tokens * work->kv_heads * work->group);
    workspace w;
    w.sums = aligned(KGEN__HEAD_BYTES + maps * KG_ATTN_MAP_BYTES);
    w.outs = w.sums + aligned(rows * sum);
    w.joined_sums = w.outs + (joined ? aligned(rows * out) : rows * out);
    w.joined_outs = w.joined_sums + (joined ? aligned(joined * sum) : 0);
    w.bytes = w.joined_outs + joined * out;
    return w;
}

/* A counter a workgroup, and one a row block of a sequence and KV head (kg/attn/join.h). */
static kgen_status check_joins(const kgen_kernel *kernel, const kgen__attn_work *work,
                               kgen_error *err) {
    const kgen__attn_geometry *geometry = &kernel->counts.attn;
    int64_t most = KGEN__COUNTERS - (int64_t)kernel->config.grid, tokens = work->tokens;
    int64_t each = geometry->row_blocks ? geometry->row_blocks : 1;
    NEED(tokens >= 0 && tokens <= INT32_MAX && work->kv_heads >= 0 && work->kv_heads <= most &&
             work->seqs >= 0 && work->seqs <= most,
         "q: %lld tokens of %lld KV heads in %lld sequences, more than there are counters for",
         (long long)tokens, (long long)work->kv_heads, (long long)work->seqs);
    int64_t blocks = work->seqs * each;
    if (!geometry->row_blocks) blocks += tokens * work->group / geometry->rows + 1;
    NEED(blocks <= most / (work->kv_heads ? work->kv_heads : 1),
         "q: %lld row blocks of %lld KV heads, at most %lld in all with cascade=1",
         (long long)blocks, (long long)work->kv_heads, (long long)most);
    return KGEN_OK;
}

static kgen_status check_counters(const kgen_kernel *kernel, const kgen__attn_work *work,
                                  kgen_error *err) {
    const kgen__attn_geometry *geometry = &kernel->counts.attn;
    int64_t most = KGEN__COUNTERS, seqs = work->seqs, kv_heads = work->kv_heads;
    if (geometry->joins) return check_joins(kernel, work, err);
    if (!geometry->row_blocks) return KGEN_OK; /* a counter a workgroup */
    NEED(seqs >= 0 && seqs <= most && kv_heads >= 0 && kv_heads <= most &&
             seqs * kv_heads * geometry->row_blocks <= most,
         "seq_lens: %lld sequences of %lld KV heads and %d row blocks, at most %lld in all",
         (long long)seqs, (long long)kv_heads, geometry->row_blocks, (long long)most);
    int64_t results = results_of(kernel, work);
    NEED(!geometry->part_keys || results <= INT32_MAX,
         "block_table: %lld parts of %d keys in all rows, at most 2^31-1", (long long)results,
         geometry->part_keys);
    return KGEN_OK;
}

kgen_status kgen__attn_workspace_bytes(size_t *bytes, const kgen_kernel *kernel,
                                       const kgen__attn_work *work, kgen_error *err) {
    KGEN_TRY(check_counters(kernel, work, err));
    *bytes = layout_workspace(kernel, work).bytes;
    return KGEN_OK;
}

kgen_status kgen__attn_pack_workspace(struct kg_attn_args *d, const kgen_kernel *kernel,
                                      int32_t group, int32_t v_dim, const kgen_args *args,
                                      kgen_error *err) {
    kgen__attn_work work = {d->num_seqs, d->num_tokens, d->kv_heads, d->table_keys, group, v_dim};
    KGEN_TRY(check_counters(kernel, &work, err));
    workspace w = layout_workspace(kernel, &work);
    char *base = args->workspace;
    KGEN_TRY(kgen__check_workspace(base, args->workspace_bytes, w.bytes, err));
    d->workspace = args->workspace;
    d->ticket = kgen__launch_ticket();
    d->partial_ml = (float *)(base + w.sums);
    d->partial_out = (float *)(base + w.outs);
    d->joined_ml = (float *)(base + w.joined_sums);
    d->joined_out = (float *)(base + w.joined_outs);
    d->workgroups = (int)kernel->config.grid;
    return KGEN_OK;
}

/* What attn and mla pack alike. */
#include "attn_pack.h"

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
    size_t sums, outs, bytes; /* offsets, size */
} workspace;

static workspace layout_workspace(const kgen_kernel *kernel, int32_t v_dim) {
    size_t rows = 2 * (size_t)kernel->config.grid * (size_t)kernel->counts.attn.rows;
    workspace w;
    w.sums = KGEN__HEAD_BYTES;
    size_t sums = rows * 2 * sizeof(float), unit = KGEN__WORKSPACE_ALIGNMENT;
    w.outs = w.sums + (sums + unit - 1) / unit * unit;
    w.bytes = w.outs + rows * (size_t)v_dim * sizeof(float);
    return w;
}

static kgen_status check_counters(const kgen__attn_geometry *geometry, int64_t seqs,
                                  int64_t kv_heads, kgen_error *err) {
    int64_t most = KGEN__COUNTERS;
    if (!geometry->row_blocks) return KGEN_OK; /* a counter a workgroup */
    NEED(seqs >= 0 && seqs <= most && kv_heads >= 0 && kv_heads <= most &&
             seqs * kv_heads * geometry->row_blocks <= most,
         "seq_lens: %lld sequences of %lld KV heads and %d row blocks, at most %lld in all",
         (long long)seqs, (long long)kv_heads, geometry->row_blocks, (long long)most);
    return KGEN_OK;
}

kgen_status kgen__attn_workspace_bytes(size_t *bytes, const kgen_kernel *kernel, int32_t v_dim,
                                       int64_t seqs, int64_t kv_heads, kgen_error *err) {
    KGEN_TRY(check_counters(&kernel->counts.attn, seqs, kv_heads, err));
    *bytes = layout_workspace(kernel, v_dim).bytes;
    return KGEN_OK;
}

kgen_status kgen__attn_pack_workspace(struct kg_attn_args *d, const kgen_kernel *kernel,
                                      int32_t v_dim, const kgen_args *args, kgen_error *err) {
    KGEN_TRY(check_counters(&kernel->counts.attn, d->num_seqs, d->kv_heads, err));
    workspace w = layout_workspace(kernel, v_dim);
    char *base = args->workspace;
    KGEN_TRY(kgen__check_workspace(base, args->workspace_bytes, w.bytes, err));
    d->workspace = args->workspace;
    d->ticket = kgen__launch_ticket();
    d->partial_ml = (float *)(base + w.sums);
    d->partial_out = (float *)(base + w.outs);
    d->workgroups = (int)kernel->config.grid;
    return KGEN_OK;
}

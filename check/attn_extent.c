/* The extents of sequences, from the rules in <kgen/attn_args.h>. */
#include "attn_extent.h"

#include "attn_layout.h"

int64_t kgen__attn_window(const kgen_attn_spec *spec, const kgen_attn_args *args) {
    if (spec->window == KGEN_WINDOW_RT) return args->window;
    return spec->window > 0 ? spec->window : -1;
}

int64_t kgen__attn_kept(const kgen_attn_spec *spec, const kgen_attn_args *args) {
    return spec->keep == KGEN_WINDOW_RT ? args->keep : spec->keep;
}

int64_t kgen__attn_first(const kgen_attn_spec *spec, const kgen_attn_args *args, int64_t position) {
    int64_t window = kgen__attn_window(spec, args), first = 0;
    if (spec->chunk && position >= 0)
        first = (position / spec->chunk - spec->lookback) * spec->chunk;
    if (window > 0) first = position + 1 - window;
    return first > 0 ? first : 0;
}

static int is_causal(const kgen_attn_spec *spec, const kgen_attn_args *args, int64_t seq) {
    if (spec->causal != KGEN_CAUSAL_SEQ) return spec->causal;
    return ((const uint8_t *)args->causal.data)[seq] != 0;
}

kgen__attn_sight kgen__attn_sight_of(const kgen_attn_spec *spec, const kgen_attn_args *args,
                                     int64_t seq, int64_t token, int64_t position, int64_t keys) {
    int64_t right = spec->right == KGEN_WINDOW_RT ? args->right : spec->right;
    kgen__attn_sight see = {0, keys};
    if (kgen_attn_phase_of(spec->phase)->tree) return see;
    if (is_causal(spec, args, seq)) {
        int64_t span = spec->spans ? kgen__int_load(&args->span_ends, token) : position;
        if (span >= keys) span = keys - 1;
        see.end = (span > position ? span : position) + 1;
    } else if (right > 0 && position + right < keys)
        see.end = position + right;
    see.first = kgen__attn_first(spec, args, position);
    return see;
}

/* Numbers of 64 bits count as the nearest of 32. */
static int64_t number(const kgen_tensor *t, int64_t index) {
    int64_t x = kgen__int_load(t, index);
    return x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x;
}

int64_t kgen__attn_seqs(const kgen_attn_args *a) {
    return a->cu_seqlens_k.data ? a->cu_seqlens_k.shape[0] - 1 : a->seq_lens.shape[0];
}

kgen__attn_pages kgen__attn_pages_of(const kgen_attn_args *a, int64_t seq) {
    const kgen_tensor *cu = &a->cu_seqlens_k;
    if (cu->data) {
        int64_t from = number(cu, seq), to = number(cu, seq + 1);
        int sound = from >= 0 && to >= from && to <= a->k.shape[0];
        return (kgen__attn_pages){NULL, from, sound ? to - from : -1};
    }
    const kgen_tensor *padded = &a->block_table;
    if (padded->data) return (kgen__attn_pages){padded, seq * padded->stride[0], padded->shape[1]};
    int64_t first = number(&a->kv_indptr, seq), end = number(&a->kv_indptr, seq + 1);
    int inside = first >= 0 && end >= first && end <= a->kv_indices.shape[0];
    return (kgen__attn_pages){&a->kv_indices, first, inside ? end - first : 0};
}

int64_t kgen__attn_page(const kgen_attn_args *a, int64_t seq, int64_t column) {
    kgen__attn_pages pages = kgen__attn_pages_of(a, seq);
    if (!pages.table) return pages.first + column;
    return kgen__int_load(pages.table, pages.first + column);
}

int64_t kgen__attn_offset(const kgen_attn_args *args, int64_t index) {
    return number(&args->cu_seqlens_q, index);
}

uint64_t kgen__attn_mask(const kgen_attn_args *args, int64_t seq, int64_t i) {
    int bits = 8 * kgen_dtype_size(args->words.dtype);
    uint64_t mask = (uint64_t)kgen__int_load(&args->words, seq * args->words.stride[0] + i);
    return bits == 64 ? mask : mask & (((uint64_t)1 << bits) - 1);
}

int64_t kgen__attn_place(const kgen_attn_spec *spec, const kgen_attn_args *args,
                         const kgen__attn_extent *e, int64_t seq, int64_t key) {
    int64_t context = e->keys - e->count, node = key - context, depth = 0;
    if (node < 0 || node >= e->count || node >= spec->q_tokens) return key;
    for (uint64_t mask = kgen__attn_mask(args, seq, node); mask; mask &= mask - 1) depth++;
    return context + (depth ? depth - 1 : 0);
}

int kgen__attn_in_tree(const kgen_attn_spec *spec, const kgen_attn_args *args,
                       const kgen__attn_extent *e, int64_t seq, int64_t i, int64_t key) {
    int64_t context = e->keys - e->count, node = key - context;
    int64_t place = kgen__attn_place(spec, args, e, seq, key);
    int64_t own = kgen__attn_place(spec, args, e, seq, context + i);
    int64_t window = kgen__attn_window(spec, args), kept = kgen__attn_kept(spec, args);
    int64_t first = kgen__attn_first(spec, args, own);
    /* With more tokens than keys, places lie before the start: windows measure paths there,
     * too, and the first chunk has no bound. */
    if (window > 0) first = own + 1 - window;
    int bounded = window > 0 || first > 0;
    if (bounded && place < first && !(kept > 0 && place < kept)) return 0;
    return node < 0 || (node < 64 && kgen__attn_mask(args, seq, i) >> node & 1);
}

static void queries(kgen__attn_extent *e, const kgen_attn_args *a, int64_t seq) {
    int64_t start = kgen__attn_offset(a, seq), end = kgen__attn_offset(a, seq + 1);
    int inside = start >= 0 && end >= start && end <= a->q.shape[0];
    e->start = start;
    e->count = inside ? end - start : 0;
    if (!inside) e->wrong |= KGEN_ATTN_ROWS;
}

/* The pages of all keys that some query of the sequence sees. */
static int leads_out(const kgen__attn_extent *e, const kgen_attn_spec *spec,
                     const kgen_attn_args *a, int64_t seq) {
    int64_t page = kgen__cache_page(&a->k), kept = kgen__attn_kept(spec, a);
    int64_t first = kgen__attn_first(spec, a, e->keys - e->count);
    for (int64_t i = 0; e->keys > 0 && i <= (e->keys - 1) / page; i++) {
        if (i < first / page && i * page >= kept) continue;
        int64_t at = kgen__attn_page(a, seq, i);
        if (at < 0 || at >= a->k.shape[0]) return 1;
    }
    return 0;
}

typedef struct prefix {
    int64_t first, end; /* sequences */
    int64_t keys;
} prefix;

static int64_t start_of(const kgen_attn_args *a, int64_t seq) {
    return a->cu_seqlens_q.data ? kgen__attn_offset(a, seq) : seq;
}

/* The group that has a sequence and lies in the batch; none: no sequences. */
static prefix prefix_of(const kgen_attn_args *a, int64_t seq) {
    for (int64_t p = 0; p < a->prefix_lens.shape[0]; p++) {
        prefix g = {kgen__int_load(&a->prefix_seqs, p), kgen__int_load(&a->prefix_seqs, p + 1),
                    kgen__int_load(&a->prefix_lens, p)};
        if (g.first < 0 || seq < g.first || seq >= g.end || g.end > kgen__attn_seqs(a)) continue;
        int64_t start = start_of(a, g.first), end = start_of(a, g.end);
        if (start >= 0 && end > start && end <= a->q.shape[0]) return g;
    }
    return (prefix){0};
}

static int same_pages(const kgen_attn_args *a, int64_t seq, int64_t other, int64_t keys) {
    int64_t page = kgen__cache_page(&a->k);
    for (int64_t i = 0; i * page < keys; i++)
        if (kgen__attn_page(a, seq, i) != kgen__attn_page(a, other, i)) return 0;
    return 1;
}

/* Keys in whole 32s are shared, by sequences that have them all before their queries. */
static void share(kgen__attn_extent *e, const kgen_attn_args *a, int64_t seq) {
    enum { STEP = 32 };
    prefix g = prefix_of(a, seq);
    int64_t keys = g.keys / STEP * STEP;
    if (g.end == 0 || e->count == 0 || g.keys == 0) return;
    int64_t held = kgen__attn_pages_of(a, g.first).count * kgen__cache_page(&a->k);
    int inside = e->start >= start_of(a, g.first) && e->start + e->count <= start_of(a, g.end);
    int has = keys >= 0 && keys <= held && keys <= e->keys - e->count && inside;
    if (has && keys > 0) e->shared = keys;
    e->leader = g.first;
    if ((!has && keys != 0) || (has && !same_pages(a, seq, g.first, keys)))
        e->wrong |= KGEN_ATTN_PREFIX;
}

kgen__attn_extent kgen__attn_extent_of(const kgen_attn_spec *spec, const kgen_attn_args *a,
                                       int64_t seq) {
    kgen__attn_extent e = {.start = seq, .count = 1};
    int64_t most = kgen__attn_pages_of(a, seq).count * kgen__cache_page(&a->k);
    e.keys = a->cu_seqlens_k.data ? most : number(&a->seq_lens, seq);
    if (a->cu_seqlens_k.data && most < 0) e.wrong |= KGEN_ATTN_LENGTH;
    if (kgen_attn_phase_of(spec->phase)->ragged) queries(&e, a, seq);
    if (kgen_attn_phase_of(spec->phase)->bounded && e.count > spec->q_tokens)
        e.wrong |= KGEN_ATTN_TOKENS;
    if (e.keys > most) e.wrong |= KGEN_ATTN_LENGTH;
    if (e.keys < 0 || e.keys > most) e.keys = 0;
    if (leads_out(&e, spec, a, seq)) e.wrong |= KGEN_ATTN_PAGE;
    if (spec->cascade) share(&e, a, seq);
    return e;
}

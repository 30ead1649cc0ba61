/* The tensors of a case of scatter. Padded rows hold numbers that no launch may
 * look at; outputs begin as poison, tables of delta=1 as what is there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_scatter.h"

/* ---- sizes ---------------------------------------------------------- */

enum { START_MOST = 20, POOL_SLOTS_EXTRA = 7, BRANCH_TOKENS = 64 };

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int has(const kgen__case *c, uint32_t ops) { return ops >> c->spec.scatter.op & 1; }

/* New tokens of row n. */
static int64_t fresh(const kgen__case *c, int64_t n) {
    return c->spec.scatter.ragged ? c->scatter.qlens[n].high : c->scatter.tokens;
}

static int64_t draft_span(const kgen__case *c) {
    int64_t page = c->spec.scatter.page, each = c->scatter.steps;
    if (page > 1 && c->scatter.topk > 1) each = (kgen__divide_up(each, page) + 1) * page;
    return c->scatter.topk * each;
}

static void size_flats(kgen__scatter_dims *d, const kgen__case *c, int64_t lens, int64_t qlens) {
    const kgen_scatter_spec *s = &c->spec.scatter;
    d->flat = d->entries = lens;
    if (s->op == KGEN_OP_SPEC_PREPARE) d->entries = s->ragged ? qlens : d->n * d->d;
    if (s->op == KGEN_OP_SLOT_MAPPING) d->entries = qlens + 2;
    if (s->op == KGEN_OP_DRAFT_KV_INDICES) d->entries = lens * d->k + d->n * d->k * d->s;
    if (s->op == KGEN_OP_KV_INDICES) d->entries += 3 * d->n + 5;
    if (s->op == KGEN_OP_ACCEPT_LOCS) d->entries = d->n * d->accept;
    if (s->op == KGEN_OP_REJECT) d->entries = d->n * d->s + c->scatter.cols + c->scatter.cut;
    if (has(c, KGEN__OP(CACHE_LOCS) | KGEN__OP(ASSIGN_LOCS))) {
        const int64_t sizes[] = {d->n * d->d, lens, d->n * d->k * d->s, d->n};
        d->entries = sizes[s->form];
    }
    if (has(c, KGEN__OP(TREE_BUILD) | KGEN__OP(TREE_MASK)))
        d->entries = d->d * (lens + d->n * d->d);
    int fixed = has(c, KGEN__OP(CACHE_LOCS) | KGEN__OP(ASSIGN_LOCS)) && s->form != KGEN_FORM_RAGGED;
    if (s->op == KGEN_OP_ACCEPT_LOCS || (s->op == KGEN_OP_SPEC_PREPARE && !s->ragged)) fixed = 1;
    if (!fixed) d->entries = most(d->entries - c->scatter.cut, 0);
    if (s->op == KGEN_OP_SPEC_PREPARE) d->entries += c->scatter.cols;
    d->flat = s->op == KGEN_OP_ACCEPT_LOCS ? d->n * d->d : d->flat + c->scatter.cols;
}

kgen__scatter_dims kgen__scatter_dims_of(const kgen__case *c) {
    kgen__scatter_dims d = {
        .n = c->seqs, .d = c->scatter.tokens, .s = c->scatter.steps, .k = c->scatter.topk};
    int64_t longest = 0, lens = 0, qlens = 0, page = c->spec.scatter.page;
    for (int64_t n = 0; n < d.n; n++) {
        lens += c->scatter.lens[n].high;
        qlens += c->scatter.qlens[n].high;
        longest = most(longest, c->scatter.lens[n].high + fresh(c, n));
    }
    if (has(c, KGEN__OP(DRAFT_PAGE_TABLE))) longest += d.s;
    d.accept = d.s + 1;
    d.parents = d.k * (d.s - 1) + 1;
    d.moves = d.s + 2;
    d.pools = 3;
    d.requests = d.n + c->scatter.extra + 1;
    d.columns = longest + START_MOST + draft_span(c) + c->scatter.tokens;
    if (c->scatter.bad) d.columns = most(d.columns - START_MOST - draft_span(c), 1);
    d.map = (kgen__divide_up(d.columns, page) + POOL_SLOTS_EXTRA) * page;
    d.width = most(kgen__divide_up(longest + page, page) + c->scatter.cols - c->scatter.cut, 1);
    size_flats(&d, c, lens, qlens);
    return d;
}

/* ---- shapes --------------------------------------------------------- */

#define OP(name) KGEN__OP(name)

enum {
    BY_COLUMN = OP(CACHE_LOCS) | OP(ASSIGN_LOCS),
    PACKED = OP(DRAFT_KV_INDICES) | OP(KV_INDICES) | OP(TREE_BUILD) | OP(TREE_MASK),
};

/* Which of the tensors that may be missing are there. */
static int is_there(const kgen__case *c, const kgen_arg *arg) {
    if (!arg->optional || strcmp(arg->name, "error") == 0 || strcmp(arg->name, "pool") == 0)
        return 1;
    return strcmp(arg->name, "live") == 0 ? c->scatter.live : (int)(c->seed & 1);
}

/* Numbers of the launch, from the seed; groups is returned. */
static int32_t choose_numbers(kgen__data *data, kgen__scatter_dims *d) {
    kgen__scatter_all all, *a = &all;
    const kgen_scatter_spec *s = &data->spec.scatter;
    kgen__rng rng;
    kgen__rng_seed(&rng, data->shape.seed, 1);
    all = (kgen__scatter_all){.tokens = (int32_t)d->d,
                              .steps = (int32_t)d->s,
                              .topk = (int32_t)d->k,
                              .vocab = data->shape.scatter.vocab};
    a->fill = KGEN__PICK(&rng, -1, 0, 7, 12345);
    a->pad_len = a->tokens + KGEN__PICK(&rng, 0, 1, 5) + 1;
    a->padding = KGEN__PICK(&rng, 0, 1, 9, 300);
    a->max_len = kgen__rng_range(&rng, 1, d->width * s->page + 3);
    a->cp_size = KGEN__PICK(&rng, 1, 1, 2, 3);
    a->cp_rank = (int32_t)kgen__rng_range(&rng, 0, a->cp_size - 1);
    a->cp_interleave = KGEN__PICK(&rng, 1, 1, 2, 4);
    a->groups = KGEN__PICK(&rng, 1, 2, 3);
    a->kv_heads = KGEN__PICK(&rng, 1, 2, 8);
    a->heads = a->kv_heads * KGEN__PICK(&rng, 1, 4, 20);
    a->max_splits = KGEN__PICK(&rng, 1, 8, 16);
    a->compute_units = KGEN__PICK(&rng, 4, 132, 304);
    a->threshold_single = (float)KGEN__PICK(&rng, 0, 1, 3, 10) / 10.0f;
    a->threshold_acc = (float)KGEN__PICK(&rng, 0, 3, 10) / 10.0f;
    a->pieces = KGEN__PICK(&rng, 1, 3, 300);
    a->piece_bytes = (int64_t)s->unit * KGEN__PICK(&rng, 1, 2, 17);
    a->token_bytes = a->piece_bytes + s->unit;
    /* Without groups the pieces of a page lie one after another, else those of a group. */
    a->piece_stride = a->token_bytes * (s->pack > 1 ? s->pack : s->page);
    a->group_bytes = a->piece_stride * a->pieces + s->unit;
    a->page_bytes =
        s->pack > 1 ? a->group_bytes * (s->page / s->pack) : a->piece_stride * a->pieces;
    a->slot_count = d->n * d->moves + 5;
    d->pool_bytes = d->pools * kgen__divide_up(a->slot_count, s->page) * a->page_bytes;
    a->chunk = KGEN__PICK(&rng, 1, 16, 100, 5000);
    a->window = KGEN__PICK(&rng, 0, 1, 16, 128);
    kgen__scatter_pack(data->args.scatter, s, a);
    return a->groups;
}

/* What addresses and strides are multiples of, in elements. */
static int64_t grain_of(const kgen__case *c, const kgen_arg *arg) {
    return arg->rank == 2 && strcmp(arg->size[1], "RB") == 0 ? c->spec.scatter.unit : 1;
}

/* 16-byte rows now and then, an element further with off=1. */
static void pad_tensor(kgen__data *data, const kgen_arg *arg, int index) {
    const kgen__case *c = &data->shape;
    int64_t grain = grain_of(c, arg), pads[KGEN_TENSOR_RANK_MAX] = {0};
    int dense = strcmp(arg->name, "state") == 0;
    for (int32_t i = 0; i < arg->rank - 1 && !dense; i++) pads[i] = c->scatter.rowpad * grain;
    kgen__tensor_pad(kgen__slot_tensor(&data->args, index), pads);
    if (c->scatter.off && strcmp(arg->name, "pool") != 0)
        data->slot[index].offset = (size_t)(kgen_dtype_size(arg->dtype) * grain);
}

static kgen_status shape_by_rows(kgen__data *data, const kgen__scatter_dims *d, int32_t groups,
                                 uint64_t absent, kgen_error *err) {
    const kgen__case *c = &data->shape;
    const kgen_arg_size sizes[] = {{"N", d->n},
                                   {"N+1", d->n + 1},
                                   {"R", d->requests},
                                   {"C", d->columns},
                                   {"M", d->map},
                                   {"W", d->width},
                                   {"W2", d->width + 3},
                                   {"F", has(c, PACKED) ? d->entries : d->flat},
                                   {"T", d->entries},
                                   {"D", d->d},
                                   {"D-1", d->d - 1},
                                   {"S", d->s},
                                   {"N K", d->n * d->k},
                                   {"N K + 1", d->n * d->k + 1},
                                   {"N D", d->n * d->d},
                                   {"depth", d->accept},
                                   {"PW", d->parents},
                                   {"A", d->moves},
                                   {"B", d->pools},
                                   {"bytes", d->pool_bytes},
                                   {"RI", d->requests + 3},
                                   {"RO", d->n + 3},
                                   {"RB", (int64_t)c->spec.scatter.unit * (c->scatter.cols + 1)},
                                   {"V", c->scatter.vocab},
                                   {"N G", d->n * groups}};
    return kgen__data_shape(data, sizes, sizeof sizes / sizeof sizes[0], absent, err);
}

kgen_status kgen__scatter_shape(kgen__data *data, kgen_error *err) {
    kgen__scatter_dims d = kgen__scatter_dims_of(&data->shape);
    int32_t groups = choose_numbers(data, &d);
    int count = kgen_args_count(&data->args);
    uint64_t absent = 0;
    kgen_arg arg;
    for (int i = 0; i < count; i++) {
        kgen_args_want(&arg, &data->spec, i);
        if (!is_there(&data->shape, &arg)) absent |= (uint64_t)1 << i;
    }
    KGEN_TRY(shape_by_rows(data, &d, groups, absent, err));
    for (int i = 0; i < count; i++)
        if (kgen_args_want(&arg, &data->spec, i) && !(absent >> i & 1)) pad_tensor(data, &arg, i);
    return KGEN_OK;
}

int64_t kgen__scatter_rows(const kgen_args *args, const kgen_spec *spec) {
    for (int i = 0; i < kgen_args_count(args); i++) {
        const kgen_tensor *t = kgen__slot_tensor(args, i);
        kgen_arg arg;
        if (!kgen_args_want(&arg, spec, i) || !t->data) continue;
        if (strcmp(arg.size[0], "N") == 0) return t->shape[0];
        if (strcmp(arg.size[0], "N+1") == 0) return t->shape[0] - 1;
    }
    return 0;
}

/* ---- contents ------------------------------------------------------- */

typedef struct filler {
    kgen__data *data;
    const kgen__case *c;
    const kgen_scatter_spec *s;
    kgen__scatter_all *a, all; /* a: all */
    kgen__scatter_dims d;
    kgen__rng rng;
    int64_t live;
    int64_t lens[KGEN__CASE_SEQS_MAX], qlens[KGEN__CASE_SEQS_MAX];
} filler;

static int64_t draw(filler *f, int64_t low, int64_t high) {
    return high < low ? low : kgen__rng_range(&f->rng, low, high);
}

static int is_bad(filler *f) { return draw(f, 0, 15) < f->c->scatter.bad; }

static void put(const kgen_tensor *t, int64_t at, int64_t value) {
    int size = kgen_dtype_size(t->dtype);
    if (size == 1)
        ((uint8_t *)t->data)[at] = (uint8_t)value;
    else if (size == 2)
        ((uint16_t *)t->data)[at] = (uint16_t)value;
    else
        kgen__int_store(t, at, value);
}

static void put2(const kgen_tensor *t, int64_t row, int64_t column, int64_t value) {
    put(t, row * t->stride[0] + column, value);
}

/* What padded rows hold. */
static int64_t junk(const kgen_tensor *t) {
    return t->dtype == KGEN_DTYPE_I64   ? INT64_MAX / 3
           : t->dtype == KGEN_DTYPE_I32 ? INT32_MAX
                                        : 0xa5;
}

/* [N] numbers of low .. high; rows of nobody hold junk. */
static void fill_vector(filler *f, const kgen_tensor *t, int64_t low, int64_t high) {
    for (int64_t n = 0; t->data && n < t->shape[0]; n++)
        put(t, n, n < f->live || t->shape[0] != f->d.n ? draw(f, low, high) : junk(t));
}

static void fill_rows(filler *f, const kgen_tensor *t, int64_t low, int64_t high) {
    for (int64_t n = 0; t->data && n < t->shape[0]; n++)
        for (int64_t i = 0; i < t->shape[1]; i++)
            put2(t, n, i, n < f->live || t->shape[0] != f->d.n ? draw(f, low, high) : junk(t));
}

static void fill_lens(filler *f, const kgen_tensor *t, const int64_t *lens) {
    for (int64_t n = 0; t->data && n < f->d.n; n++) {
        put(t, n, n < f->live ? lens[n] : junk(t));
        if (n < f->live && is_bad(f) && draw(f, 0, 1)) put(t, n, -draw(f, 0, 3));
    }
}

/* Slots page by page, as allocators give them. */
static void fill_slots(filler *f, const kgen_tensor *t, int64_t first, int64_t count) {
    int64_t page = f->s->page, pages = f->d.map / page, base = 0;
    int64_t phase = f->s->unaligned ? draw(f, 0, page - 1) : 0;
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || (i + phase) % page == 0) base = draw(f, 0, pages - 1) * page;
        int64_t slot = base + (i + phase) % page;
        if (f->c->scatter.bad && draw(f, 0, 63) == 0) slot = draw(f, 0, 1) ? -1 : f->d.map + 3;
        put(t, first + i, slot);
    }
}

static void fill_requests(filler *f) {
    const kgen_tensor *t = &f->a->requests, *rows = &f->a->req_to_token;
    int64_t first = draw(f, 0, f->d.requests - 1);
    for (int64_t n = 0; t->data && n < f->d.n; n++) {
        int64_t request = (first + n) % f->d.requests;
        const int64_t wrong[] = {-1, f->d.requests, INT32_MAX, INT32_MIN};
        if (is_bad(f) && draw(f, 0, 3) == 0) request = wrong[draw(f, 0, 3)];
        put(t, n, n < f->live ? request : junk(t));
    }
    for (int64_t n = 0; rows->data && n < f->d.requests; n++)
        fill_slots(f, rows, n * rows->stride[0], f->d.columns);
}

/* Lengths where the requests say. */
static void fill_request_lens(filler *f) {
    const kgen_tensor *t = &f->a->lens;
    if (!f->s->by_request || !t->data) return;
    for (int64_t n = 0; n < t->shape[0]; n++) put(t, n, junk(t));
    for (int64_t n = 0; n < f->live; n++) {
        int64_t request = kgen__int_load(&f->a->requests, n);
        if (request >= 0 && request < t->shape[0])
            put(t, request, is_bad(f) ? -draw(f, 0, 3) : f->lens[n]);
    }
}

/* Prefix sums of some lengths, with gaps up to `gap`. */
static void fill_indptr(filler *f, const int64_t *lens, int64_t more, int64_t gap) {
    const kgen_tensor *t = &f->a->indptr;
    int64_t at = 0;
    for (int64_t n = 0; t->data && n <= f->d.n; n++) {
        put(t, n, n <= f->live ? at : junk(t));
        if (n < f->live) at += lens[n] + more + draw(f, 0, gap);
    }
}

static void fill_mapping(filler *f) {
    const kgen_tensor *t = &f->a->mapping;
    int64_t page = f->s->page, base = 0;
    for (int64_t i = 0; t->data && i < t->shape[0]; i++) {
        if (i % page == 0) base = draw(f, 0, 3) ? draw(f, 0, t->shape[0] / page) * page : 0;
        put(t, i, base ? base + i % page : 0);
        if (i + 1 == t->shape[0] || is_bad(f)) put(t, i, -draw(f, 1, 2));
    }
}

/* What a launch before may have left: the row of the same request, or another. */
static void fill_state(filler *f) {
    const kgen__scatter_all *a = f->a;
    for (int64_t n = 0; a->state.data && n < f->d.n; n++) {
        int64_t id = draw(f, 0, 1000), held = draw(f, 0, f->lens[n]);
        int again = draw(f, 0, 7) < f->c->scatter.again, unknown = draw(f, 0, 3) == 0;
        put(&a->ids, n, n < f->live ? id : junk(&a->ids));
        if (!again) id = draw(f, 0, 1) ? 2000 : id;
        put2(&a->state, n, 0, unknown ? -1 : id);
        put2(&a->state, n, 1, unknown ? -1 : again ? held : f->lens[n] + draw(f, -1, 9));
        put2(&a->state, n, 2, unknown ? -1 : draw(f, 0, f->d.width + 2));
    }
}

/* ---- trees ---------------------------------------------------------- */

enum { NODES = 64 };

/* Flat ids of step i >= 1 are K + (i-1) K^2 + rank K + child. */
static void fill_candidates(filler *f, int64_t n) {
    int64_t k = f->d.k, s = f->d.s, count = 0, picked[NODES], parent[16 * 64 + 1];
    parent[0] = -1;
    for (int64_t g = 1; g < f->d.parents; g++) {
        int64_t step = (g - 1) / k + 1;
        parent[g] = step == 1 ? g - 1 : k + (step - 2) * k * k + draw(f, 0, k * k - 1);
        put2(&f->a->parents, n, g, parent[g]);
    }
    put2(&f->a->parents, n, 0, -1);
    int64_t ids = s > 1 ? k + (s - 1) * k * k : k, left = f->d.d - 1;
    for (int64_t id = 0; id < ids && count < left; id++) {
        int known = id < k;
        for (int64_t i = 0; i < count && !known; i++) known = picked[i] == parent[id / k];
        if (known && (draw(f, 0, 2) || ids - id <= left - count)) picked[count++] = id;
    }
    for (int64_t i = 0; i < left; i++) {
        int64_t id = i < count ? picked[i] : ids + i;
        put2(&f->a->selected, n, i, is_bad(f) ? draw(f, -2, ids + 5) : id);
    }
}

/* A random tree's parents. */
static void fill_parents(filler *f, int64_t parent[NODES]) {
    parent[0] = -1;
    for (int64_t j = 1; j < f->d.d; j++) parent[j] = draw(f, most(0, j - 4), j - 1);
}

static void fill_links(filler *f, int64_t n, const int64_t parent[NODES]) {
    const kgen__scatter_all *a = f->a;
    for (int64_t j = 0; j < f->d.d; j++) {
        int64_t child = -1, sibling = -1;
        for (int64_t i = f->d.d - 1; i > j; i--) {
            if (parent[i] == j) child = i;
            if (parent[i] == parent[j]) sibling = i;
        }
        if (is_bad(f)) child = draw(f, -3, f->d.d + 1);
        if (is_bad(f)) sibling = draw(f, -3, f->d.d + 1);
        if (a->next_token.data) put2(&a->next_token, n, j, child);
        if (a->next_sibling.data) put2(&a->next_sibling, n, j, sibling);
    }
}

/* Most nodes' target is one of their children's candidates. */
static void fill_candidate_tokens(filler *f, int64_t n, const int64_t parent[NODES]) {
    const kgen__scatter_all *a = f->a;
    int64_t token[NODES], vocab = f->c->scatter.vocab;
    for (int64_t j = 0; j < f->d.d; j++) {
        token[j] = is_bad(f) ? draw(f, -2, vocab + 2) : draw(f, 0, vocab - 1);
        put2(&a->tokens_in, n, j, token[j]);
        if (a->targets_in.data) put2(&a->targets_in, n, j, draw(f, 0, vocab - 1));
    }
    for (int64_t j = 1; a->targets_in.data && j < f->d.d; j++)
        if (draw(f, 0, 3))
            put2(&a->targets_in, n, a->next_token.data ? parent[j] : j - 1, token[j]);
}

static void fill_probs(filler *f) {
    const kgen_tensor *p = &f->a->probs, *coins = &f->a->coins;
    int64_t vocab = f->c->scatter.vocab;
    for (int64_t row = 0; p->data && row < f->d.n * f->d.d; row++) {
        int64_t n = row / f->d.d, j = row % f->d.d;
        float *out = (float *)p->data + n * p->stride[0] + j * p->stride[1];
        double sum = 0;
        for (int64_t v = 0; v < vocab; v++) {
            double x = kgen__rng_uniform(&f->rng);
            out[v] = (float)(x * x * x * x * x);
            sum += out[v];
        }
        for (int64_t v = 0; v < vocab; v++) out[v] = (float)(out[v] / sum);
        ((float *)coins->data)[n * coins->stride[0] + j] =
            (float)kgen__rng_uniform(&f->rng) * 0.99f;
        ((float *)f->a->final_coins.data)[n] = (float)kgen__rng_uniform(&f->rng) * 0.99f;
    }
}

/* A row of probabilities, a quarter of them 0, the others powers of some number; now
 * and then all the same. */
static void fill_distribution(filler *f, const kgen_tensor *t, int64_t row) {
    float *out = (float *)t->data + row * t->stride[0];
    int same = draw(f, 0, 7) == 0;
    double sum = 0;
    for (int64_t v = 0; v < t->shape[1]; v++) {
        double x = same ? 1 : kgen__rng_uniform(&f->rng);
        out[v] = draw(f, 0, 3) ? (float)(x * x * x * x) : 0;
        sum += out[v];
    }
    for (int64_t v = 0; v < t->shape[1] && sum > 0; v++) out[v] = (float)(out[v] / sum);
}

/* Drafts that the target has, more often than not, and one that does not exist. */
static void fill_chains(filler *f) {
    const kgen__scatter_all *a = f->a;
    int64_t vocab = f->c->scatter.vocab;
    for (int64_t i = 0; i < a->drafts.shape[0]; i++) {
        int64_t token = is_bad(f) ? draw(f, -2, vocab + 2) : draw(f, 0, vocab - 1);
        put(&a->drafts, i, token);
        if (a->targets_in.data)
            put(&a->targets_in, i, draw(f, 0, 3) ? token : draw(f, 0, vocab - 1));
        if (!a->probs.data) continue;
        fill_distribution(f, &a->probs, i);
        if (a->draft_probs.data) fill_distribution(f, &a->draft_probs, i);
        int likely = token >= 0 && token < vocab && draw(f, 0, 3);
        if (likely) ((float *)a->probs.data)[i * a->probs.stride[0] + token] = 0.9f;
        ((float *)a->coins.data)[i] = (float)kgen__rng_uniform(&f->rng) * 0.99f;
    }
    fill_vector(f, &a->bonus, 0, vocab - 1);
    fill_vector(f, &a->greedy, 0, 1);
    for (int64_t n = 0; n < f->d.n; n++) {
        if (a->final_coins.data)
            ((float *)a->final_coins.data)[n] = (float)kgen__rng_uniform(&f->rng) * 0.99f;
        for (int64_t v = 0; a->noise.data && v < vocab; v++)
            ((float *)a->noise.data)[n * a->noise.stride[0] + v] =
                (float)-log(1e-9 + kgen__rng_uniform(&f->rng));
    }
}

static void fill_mask(filler *f, int64_t n, const int64_t parent[NODES]) {
    const kgen_tensor *mask = &f->a->mask, *words = &f->a->words;
    uint64_t bits[NODES];
    for (int64_t j = 0; j < f->d.d; j++) {
        bits[j] = (uint64_t)1 << j | (j ? bits[parent[j]] : 0);
        uint64_t row = is_bad(f) ? kgen__rng_next(&f->rng) : bits[j];
        if (words->data) put2(words, n, j, (int64_t)row);
        for (int64_t c = 0; mask->data && mask->rank == 3 && c < f->d.d; c++)
            put(mask, n * mask->stride[0] + j * mask->stride[1] + c, (int64_t)(row >> c & 1));
    }
}

static void fill_trees(filler *f) {
    int64_t parent[NODES];
    int masks = has(f->c, OP(TREE_FROM_MASK) | OP(TREE_MASK));
    for (int64_t n = 0; n < f->d.n && f->d.d <= NODES; n++) {
        fill_parents(f, parent);
        if (has(f->c, OP(TREE_BUILD))) fill_candidates(f, n);
        if (has(f->c, OP(TREE_VERIFY))) {
            fill_links(f, n, parent);
            fill_candidate_tokens(f, n, parent);
        }
        if (masks && (f->s->op == KGEN_OP_TREE_FROM_MASK || f->s->mask == KGEN_MASK_QLEN))
            fill_mask(f, n, parent);
    }
    for (int64_t i = 0;
         f->s->op == KGEN_OP_TREE_MASK && f->s->mask == KGEN_MASK_FULL && i < f->d.entries; i++)
        put(&f->a->mask, i, draw(f, 0, 1));
    fill_probs(f);
}

/* ---- movement ------------------------------------------------------- */

/* Where no pool can begin: one that fitted would lie over another, and what moves there over
 * what moves in that. */
static int64_t bad_begin(filler *f, int64_t begin) {
    int64_t far = INT64_C(1) << draw(f, 0, 61);
    if (f->s->unit > 1 && draw(f, 0, 2) == 0) return begin + 1;
    return draw(f, 0, 1) ? -far : f->d.pool_bytes + far;
}

/* Row n moves among the slots n A .. n A + A - 1: targets in their order,
 * sources ascending too and never before their target. */
static void fill_moves(filler *f) {
    const kgen__scatter_all *a = f->a;
    int64_t moves = f->d.moves;
    for (int64_t n = 0; a->sources.data && n < f->d.n; n++) {
        int64_t from = 0;
        for (int64_t i = 0; i < moves; i++) {
            from = most(i, from + draw(f, 0, 2));
            int none = from >= moves || draw(f, 0, 7) == 0;
            int64_t wrong = draw(f, 0, 1) ? -1 : a->slot_count + draw(f, 0, 3);
            put2(&a->sources, n, i, none ? -1 : is_bad(f) ? wrong : n * moves + from);
            put2(&a->targets, n, i, n * moves + i);
            from++;
        }
    }
    for (int64_t b = 0; a->pools.data && b < f->d.pools; b++) {
        int64_t begin = b * (f->d.pool_bytes / f->d.pools);
        put(&a->pools, b, is_bad(f) ? bad_begin(f, begin) : begin);
    }
    for (int64_t i = 0; a->pool.data && i < f->d.pool_bytes; i++)
        ((uint8_t *)a->pool.data)[i] = (uint8_t)kgen__rng_next(&f->rng);
}

/* A row of low .. high, or one that none of `count` is. */
static int64_t draw_row(filler *f, int64_t low, int64_t high, int64_t count) {
    if (is_bad(f)) return draw(f, 0, 1) ? count + draw(f, 0, 3) : -draw(f, 2, 9);
    return draw(f, low, high);
}

static void fill_copies(filler *f) {
    const kgen__scatter_all *a = f->a;
    const kgen_tensor *in = &a->rows_in, *index = &a->row_index, *pairs = &a->pairs;
    for (int64_t n = 0; in->data && n < in->shape[0]; n++)
        for (int64_t i = 0; i < in->shape[1]; i++)
            put2(in, n, i, (int64_t)(kgen__rng_next(&f->rng) & 0xff));
    for (int64_t n = 0; n < f->d.n; n++) {
        int mine = n < f->live;
        if (index->data)
            put(index, n, mine ? draw_row(f, -1, in->shape[0] - 1, in->shape[0]) : junk(index));
        if (!pairs->data) continue;
        int64_t from = draw_row(f, -1, in->shape[0] - 1, in->shape[0]);
        int64_t to = draw_row(f, n + 2, n + 2, a->rows_out.shape[0]);
        put2(pairs, n, 0, mine ? from : junk(pairs));
        put2(pairs, n, 1, mine ? to : junk(pairs));
    }
}

/* ---- all ------------------------------------------------------------ */

static void fill_counts(filler *f) {
    int64_t low = f->s->op == KGEN_OP_SPEC_PREPARE || f->s->op == KGEN_OP_KEEP_LOCS ? 0 : 1;
    int64_t high = f->s->op == KGEN_OP_KEEP_LOCS ? f->d.d - 1 : f->d.d, end = 0;
    fill_vector(f, &f->a->accepted, low, high);
    for (int64_t n = 0; f->a->accepted.data && n < f->live; n++)
        if (is_bad(f)) /* cut to 32 bits, the second would be a good one */
            put(&f->a->accepted, n,
                f->s->accept_type && draw(f, 0, 1) ? ((int64_t)1 << 32) + 1
                                                   : draw(f, -2, f->d.d + 3));
    for (int64_t n = 0; f->a->draft_ends.data && n < f->d.n; n++) {
        int reject = f->s->op == KGEN_OP_REJECT;
        int64_t drafts = draw(f, 0, reject ? f->d.s : 4);
        end += drafts;
        put(&f->a->draft_ends, n, n < f->live ? end : junk(&f->a->draft_ends));
        if (!reject) put(&f->a->accepted, n, draw(f, 0, drafts + 1));
        if (reject && n < f->live && is_bad(f))
            put(&f->a->draft_ends, n, draw(f, 0, 1) ? -1 : end + f->d.entries);
    }
}

static void fill_columns(filler *f) {
    const kgen__scatter_all *a = f->a;
    fill_vector(f, &a->starts, 0, START_MOST);
    for (int64_t n = 0; a->starts.data && a->lens.data && has(f->c, BY_COLUMN) && n < f->live; n++)
        put(&a->starts, n, draw(f, 0, f->lens[n]));
    if (!f->s->by_request) fill_lens(f, &a->lens, f->lens);
    fill_lens(f, &a->q_lens, f->qlens);
    fill_vector(f, &a->valid, 0, f->d.width);
    fill_vector(f, &a->extends, 0, f->live);
    fill_requests(f);
    fill_request_lens(f);
    fill_mapping(f);
    if (a->slots.data) fill_slots(f, &a->slots, 0, f->d.flat);
    if (f->s->op == KGEN_OP_PAGE_TABLE_RAGGED) fill_indptr(f, f->lens, 0, 0);
    if (f->s->op == KGEN_OP_KV_INDICES) fill_indptr(f, f->lens, 0, 3);
    if (f->s->op == KGEN_OP_SLOT_MAPPING) fill_indptr(f, f->qlens, 0, 0);
    if (f->s->op == KGEN_OP_PADDED_INPUTS) fill_indptr(f, f->qlens, 5, 0);
    fill_rows(f, &a->block_table, -1, 3000);
    int64_t positions = f->d.width * f->s->page * a->cp_size;
    fill_vector(f, &a->positions, f->c->scatter.bad ? -1 : 0,
                positions - 1 + (f->c->scatter.bad ? 9 : 0));
    fill_vector(f, &a->rejected, 0, 1);
    if (f->s->op == KGEN_OP_ASSIGN_LOCS) fill_vector(f, &a->locs, 0, f->d.map);
}

static void fill_all(filler *f) {
    const kgen__scatter_all *a = f->a;
    for (int i = 0; i < KGEN__SLOT_MAX; i++)
        if (f->data->slot[i].bytes) memset(f->data->slot[i].bytes, 0x3c, f->data->slot[i].size);
    if (a->live.data) put(&a->live, 0, f->live);
    put(&a->error, 0, 1 << 20); /* bits that are set stay */
    fill_columns(f);
    fill_counts(f);
    fill_state(f);
    fill_vector(f, &a->backup, 0, 9);
    fill_vector(f, &a->discarded, 0, 1);
    if (f->s->op != KGEN_OP_TREE_VERIFY) fill_rows(f, &a->tokens_in, -1, f->c->scatter.vocab);
    fill_vector(f, &a->source_locs, 0, 1 << 20);
    int64_t beyond = f->c->scatter.bad ? 2 : 0;
    if (f->s->op == KGEN_OP_ACCEPT_LOCS) fill_rows(f, &a->accept_index, -1, f->d.flat - 1 + beyond);
    if (f->s->op == KGEN_OP_EVICT_MASK) fill_rows(f, &a->mask, 0, 1);
    if (f->s->op >= KGEN_OP_TREE_BUILD && f->s->op <= KGEN_OP_TREE_VERIFY) fill_trees(f);
    if (f->s->op == KGEN_OP_REJECT) fill_chains(f);
    fill_moves(f);
    fill_copies(f);
    kgen__data_remember(f->data);
}

static void start(filler *f, kgen__data *data) {
    memset(f, 0, sizeof *f);
    f->data = data;
    f->c = &data->shape;
    f->s = &data->spec.scatter;
    kgen__scatter_unpack(&f->all, data->args.scatter);
    f->a = &f->all;
    f->d = kgen__scatter_dims_of(f->c);
    f->d.pool_bytes = f->a->pool.shape[0];
    f->live = f->d.n;
    if (f->c->scatter.live) f->live = most(f->d.n - f->c->scatter.pads, 0);
}

kgen_status kgen__scatter_fill(kgen__data *data, uint64_t seed, kgen_error *err) {
    filler *f = malloc(sizeof *f);
    if (!f) return kgen_fail(err, KGEN_E_NOMEM, "check: out of memory");
    start(f, data);
    kgen__rng_seed(&f->rng, seed, 2);
    for (int64_t n = 0; n < f->d.n; n++) {
        f->lens[n] = data->shape.scatter.lens[n].high;
        f->qlens[n] = data->shape.scatter.qlens[n].high;
    }
    fill_all(f);
    free(f);
    return KGEN_OK;
}

/* Shorter rows, and a batch that grew or shrank. */
kgen_status kgen__scatter_refill(kgen__data *data, kgen__rng *rng, kgen_error *err) {
    filler *f = malloc(sizeof *f);
    if (!f) return kgen_fail(err, KGEN_E_NOMEM, "check: out of memory");
    start(f, data);
    f->rng = *rng;
    for (int64_t n = 0; n < f->d.n; n++) {
        f->lens[n] = draw(f, 0, data->shape.scatter.lens[n].high);
        f->qlens[n] = draw(f, 0, data->shape.scatter.qlens[n].high);
    }
    if (f->c->scatter.live) f->live = draw(f, 0, f->d.n);
    fill_all(f);
    *rng = f->rng;
    free(f);
    return KGEN_OK;
}

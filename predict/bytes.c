/* Bytes that one launch must move: each tensor once, caches cold. What a launch
 * may find in a cache (weights, page tables) is counted as well; it is little. */
#include "predict.h"

typedef struct traffic {
    double read, written;
} traffic;

static double size_of(int32_t dtype, int32_t instead) {
    return kgen_dtype_size((kgen_dtype)(dtype ? dtype : instead));
}

static double index_bytes(int32_t wide) { return wide ? 8 : 4; }

static double pages_of(double tokens, int32_t page) {
    double size = page == KGEN_PAGE_X16 ? 16 : page, whole = (double)(int64_t)(tokens / size);
    return whole * size < tokens ? whole + 1 : whole;
}

/* --- attention ------------------------------------------------------------ */

/* Keys of a sequence that some query sees. A window given at launch is not
 * known here: all of the context counts. */
static double visible(const kgen_attn_spec *s, const kgen_problem *p) {
    double most = (double)s->window + s->q_tokens - 1, keys = p->context;
    return s->window > 0 && most < keys ? most : keys;
}

static traffic attn_bytes(const kgen_spec *spec, const kgen_problem *p) {
    const kgen_attn_spec *s = &spec->attn;
    double seqs = p->batch, heads = p->heads, keys = visible(s, p);
    double dv = s->v_dim ? s->v_dim : s->head_dim, cached = size_of(s->kv, 0);
    double rows = seqs * s->q_tokens * heads * s->group;
    int32_t descale = s->descale ? s->descale : cached == 1 ? KGEN_DESCALE_HEAD : KGEN_DESCALE_NONE;
    traffic t = {seqs * heads * keys * (s->head_dim + dv) * cached,
                 rows * dv * size_of(s->out, s->q)};
    t.read += rows * s->head_dim * size_of(s->q, 0);
    t.read += seqs * (4 + pages_of(keys, s->page) * index_bytes(s->table));
    if (descale == KGEN_DESCALE_HEAD) t.read += 2 * heads * 4;
    if (descale == KGEN_DESCALE_TOKEN) t.read += 2 * seqs * heads * keys * 4;
    if (s->alibi) t.read += heads * s->group * 4;
    if (s->sinks) t.read += heads * s->group * 4;
    if (s->lse) t.written += rows * 4;
    return t;
}

/* --- gdn ------------------------------------------------------------------ */

/* Sizes of one gdn launch, in bytes. */
typedef struct gdn_sizes {
    double state;    /* of a sequence */
    double ring_row; /* of a token */
    double channels, values, key_gates;
    int conv, step, norm;
} gdn_sizes;

static gdn_sizes gdn_sizes_of(const kgen_gdn_spec *s) {
    double keys = (double)s->k_heads * s->k_dim, values = (double)s->v_heads * s->v_dim;
    double state = size_of(s->state, 0);
    gdn_sizes z = {.values = values, .channels = 2 * keys + values};
    z.conv = s->fuse == KGEN_FUSE_C || s->fuse == KGEN_FUSE_D || s->fuse == KGEN_FUSE_E;
    z.step = s->fuse != KGEN_FUSE_C;
    z.norm = s->fuse == KGEN_FUSE_B || s->fuse == KGEN_FUSE_E;
    z.state = values * s->k_dim * state;
    z.key_gates = (double)s->v_heads * (s->gate ? s->k_dim : 1);
    z.ring_row = (keys + values) * state + z.key_gates * 4;
    return z;
}

/* save=replay: half a ring is read, and a state written once a ring. */
static traffic gdn_state(const kgen_gdn_spec *s, const gdn_sizes *z) {
    traffic t = {z->state, 0};
    switch ((kgen_gdn_save)s->save) {
    case KGEN_SAVE_FINAL:
        t.written = z->state;
        break;
    case KGEN_SAVE_SLOTS:
    case KGEN_SAVE_BUFFER:
        t.written = s->tokens * z->state;
        break;
    case KGEN_SAVE_NONE:
        break;
    case KGEN_SAVE_REPLAY:
        t.read += s->ring / 2.0 * z->ring_row;
        t.written = s->tokens * (z->ring_row + z->state / s->ring);
        break;
    }
    return t;
}

/* Windows of the convolution, of a sequence. */
static traffic gdn_windows(const kgen_gdn_spec *s, const gdn_sizes *z) {
    double column = z->channels * size_of(s->conv_state, s->x), width = s->conv_width - 1;
    traffic t = {width * column, width * column};
    if (s->accept) t.written = (width - 1 + s->tokens) * column;
    if (s->save == KGEN_SAVE_BUFFER) t.written = s->tokens * width * column;
    if (s->save == KGEN_SAVE_NONE) t.written = 0;
    return t;
}

/* Activations in and out, of a token. */
static traffic gdn_rows(const kgen_gdn_spec *s, const gdn_sizes *z) {
    double x = size_of(s->x, 0), ab = size_of(s->ab, s->x);
    traffic t = {z->channels * x, z->channels * x};
    if (!z->step) return t;
    t.written = z->values * size_of(s->out, s->x);
    if (size_of(s->out, s->x) == 1) t.written += z->values / 128 * 4;
    t.read += (z->key_gates + s->v_heads) * ab;
    if (z->norm) t.read += z->values * x;
    return t;
}

static double gdn_weights(const kgen_gdn_spec *s, const gdn_sizes *z) {
    double bytes = 0;
    if (z->conv)
        bytes += z->channels * (s->conv_width + s->conv_bias) * size_of(s->conv_weight, s->x);
    if (z->step)
        bytes += s->v_heads * size_of(s->a_log, 0) + z->key_gates * size_of(s->dt_bias, s->x);
    if (z->norm) bytes += s->v_dim * size_of(s->norm, s->x);
    return bytes;
}

static traffic gdn_bytes(const kgen_spec *spec, const kgen_problem *p) {
    const kgen_gdn_spec *s = &spec->gdn;
    gdn_sizes z = gdn_sizes_of(s);
    traffic none = {0, 0}, rows = gdn_rows(s, &z), t = {8, 0}; /* 8: slots */
    traffic state = z.step ? gdn_state(s, &z) : none;
    traffic windows = z.conv ? gdn_windows(s, &z) : none;
    t.read += state.read + windows.read + s->tokens * rows.read;
    t.written += state.written + windows.written + s->tokens * rows.written;
    t.read = p->batch * t.read + gdn_weights(s, &z);
    t.written *= p->batch;
    return t;
}

/* --- kv ------------------------------------------------------------------- */

static traffic kv_write_bytes(const kgen_spec *spec, const kgen_problem *p) {
    const kgen_kv_write_spec *s = &spec->kv_write;
    double heads = p->heads, dv = s->v_dim ? s->v_dim : s->head_dim, rd = s->rope_dim;
    traffic t = {heads * (s->head_dim + dv) * size_of(s->x, 0),
                 heads * (s->head_dim + dv) * size_of(s->kv, 0)};
    t.read += index_bytes(s->slots);
    if (s->remap) t.read += index_bytes(s->remap - 1); /* i32, i64 */
    if (s->rope)
        t.read += index_bytes(s->positions) + (rd ? rd : s->head_dim) * size_of(s->table, 0);
    if (s->scale == KGEN_DESCALE_TOKEN || s->scale == KGEN_DESCALE_ROW) t.written += 2 * heads * 4;
    t.read *= p->batch;
    t.written *= p->batch;
    return t;
}

static traffic kv_gather_bytes(const kgen_spec *spec, const kgen_problem *p) {
    const kgen_kv_gather_spec *s = &spec->kv_gather;
    double heads = p->heads, dv = s->v_dim ? s->v_dim : s->head_dim, rows = p->batch;
    traffic t = {rows * heads * (s->head_dim + dv) * size_of(s->kv, 0),
                 rows * heads * (s->head_dim + dv) * size_of(s->out, 0)};
    t.read += pages_of(rows, s->page) * index_bytes(s->table);
    if (s->descale == KGEN_DESCALE_TOKEN) t.read += 2 * rows * heads * 4;
    return t;
}

/* --- scatter -------------------------------------------------------------- */

/* The ops whose work follows from sequences and context: page tables and lists
 * of slots. Lengths, prefix sums and the new tokens' slots are a few words a
 * request and are left out. */
static kgen_status scatter_bytes(traffic *t, const kgen_spec *spec, const kgen_problem *p,
                                 kgen_error *err) {
    const kgen_scatter_spec *s = &spec->scatter;
    double slot = index_bytes(s->slot), entry = index_bytes(s->table), cells;
    char line[KGEN_SPEC_LINE_MAX];
    switch ((kgen_scatter_op)s->op) {
    case KGEN_OP_PAGE_TABLE_RAGGED:
    case KGEN_OP_PAGE_TABLE_REQUESTS:
    case KGEN_OP_SPEC_PREPARE:
        cells = pages_of(p->context, s->page);
        break;
    case KGEN_OP_KV_INDICES:
        cells = p->context;
        break;
    default:
        kgen_spec_print(line, spec);
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "%s: the bytes of this op do not follow from batch and context", line);
    }
    if (s->op == KGEN_OP_SPEC_PREPARE && !s->pages) cells = 0;
    t->read = p->batch * (cells * slot + 3 * 8.0);
    t->written = p->batch * (cells * entry + 3 * 8.0);
    if (!s->swa) return KGEN_OK;
    t->read += p->batch * cells * index_bytes(s->map);
    t->written += p->batch * cells * entry;
    return KGEN_OK;
}

/* --- all ------------------------------------------------------------------ */

typedef struct family_row {
    traffic (*bytes)(const kgen_spec *spec, const kgen_problem *problem); /* NULL: scatter */
    int context, heads; /* 1: the problem must say */
} family_row;

static const family_row families[KGEN_FAMILY_COUNT] = {
    [KGEN_FAMILY_ATTN] = {attn_bytes, 1, 1},
    [KGEN_FAMILY_GDN] = {gdn_bytes, 0, 0},
    [KGEN_FAMILY_SCATTER] = {NULL, 1, 0},
    [KGEN_FAMILY_KV_WRITE] = {kv_write_bytes, 0, 1},
    [KGEN_FAMILY_KV_GATHER] = {kv_gather_bytes, 0, 1},
};

static kgen_status check(const kgen_spec *spec, const kgen_problem *p, kgen_error *err) {
    const char *family = kgen_family_name(spec->family);
    const family_row *row = &families[spec->family];
    if (p->batch < 1)
        return kgen_fail(err, KGEN_E_ARG, "batch=%d: at least 1 for family %s", p->batch, family);
    if (row->context && p->context < 1)
        return kgen_fail(err, KGEN_E_ARG, "context=%d: at least 1 for family %s", p->context,
                         family);
    if (row->heads && p->heads < 1)
        return kgen_fail(err, KGEN_E_ARG, "heads=%d: at least 1 KV head for family %s", p->heads,
                         family);
    if (spec->family == KGEN_FAMILY_KV_WRITE && spec->kv_write.rope_q)
        return kgen_fail(err, KGEN_E_UNSUPPORTED,
                         "rq=1: the problem does not say how many query heads rotate");
    return KGEN_OK;
}

kgen_status kgen__predict_bytes(double *read, double *written, const kgen_spec *spec,
                                const kgen_problem *problem, kgen_error *err) {
    traffic t = {0, 0};
    KGEN_TRY(check(spec, problem, err));
    if (spec->family == KGEN_FAMILY_SCATTER)
        KGEN_TRY(scatter_bytes(&t, spec, problem, err));
    else
        t = families[spec->family].bytes(spec, problem);
    *read = t.read;
    *written = t.written;
    return KGEN_OK;
}

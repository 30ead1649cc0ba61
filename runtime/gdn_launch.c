/* Gated DeltaNet launches: arguments against spec, the packed argument struct.
 * Nothing here allocates, locks or waits. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "gen/gdn.h"
#include "templates/kg/gdn/gdn_packed.h"
#include "templates/kg/gdn/gdn_shape.h"
#include "checks.h"
#include "launch.h"

typedef struct kg_gdn_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");

/* --- what a spec and its arguments ask for ------------------------------- */

/* Conditions; a row of the table below holds when all of its own do. */
enum {
    CONV = KGEN__GDN_CONV,
    STEP = KGEN__GDN_RECURRENCE,
    NORM = KGEN__GDN_NORM,
    NO_CONV = 1 << 3,
    PACKED = 1 << 4, /* interleaved or flat rows */
    PRESPLIT = 1 << 5,
    READS_Z = 1 << 6, /* for the norm, or to be copied */
    READS_B = 1 << 7,
    READS_A = 1 << 8,
    COPIES = 1 << 9,
    BIAS = 1 << 10,
    SD = 1 << 11,
    DS = 1 << 12,
    SLOT_VECTOR = 1 << 13,
    SLOT_TABLE = 1 << 14,
    WRITE_VECTOR = 1 << 15,
    WRITE_TABLE = 1 << 16,
    BLOCKS = 1 << 17,
    ACCEPT = 1 << 18,
    VARLEN = 1 << 19,
    TREE = 1 << 20,
    BUFFER = 1 << 21,
    REPLAY = 1 << 22,
    HEAD_DECAY = 1 << 23,
    CHANNEL_DECAY = 1 << 24,
    SCALED = 1 << 25,
    CONV_ONLY = 1 << 26,
};

typedef enum type_id { X, AB, CW, ALOG, DT, NW, CS, STATE, OUT, INDEX, I32, F32, TYPES } type_id;
typedef enum tag_id { NO_TAG, IN_TAG, CONV_TAG, STATE_TAG, TAGS } tag_id;

/* Sizes of dimensions. Those below DEFINED are what the first tensor that has
 * one says; the others follow from the spec. */
typedef enum size_id {
    N,
    T,
    SLOTS,
    COLUMNS,
    L,
    P,
    LINES,
    DEFINED,
    READ = DEFINED, /* rows that are read */
    ENDS,
    TOKENS,
    QKVZ,
    BA,
    C,
    Z,
    HK,
    HV,
    K,
    V,
    DECAY,
    MAJOR,
    MINOR,
    W,
    FAR,
    NEAR,
    GROUPS,
    SIZES,
    LEAST = 0x40, /* at least as many */
} size_id;

typedef struct wanted {
    int32_t conditions;
    kgen_dtype type[TYPES];
    int32_t tag[TAGS];
    int64_t size[SIZES];
} wanted;

static int32_t when(int condition, int32_t yes, int32_t no) { return condition ? yes : no; }

static int32_t copies_of(const kgen_gdn_args *a) {
    return COPIES | when(!!a->z_out.data, READS_Z, 0) | when(!!a->b_out.data, READS_B, 0) |
           when(!!a->a_out.data, READS_A, 0);
}

static int32_t conditions_of(const kgen_gdn_spec *s, const kgen_gdn_args *a) {
    int32_t parts = kgen__gdn_parts(s);
    int table = s->index == KGEN_INDEX_SPEC || s->index == KGEN_INDEX_BLOCKS;
    int pair = s->index == KGEN_INDEX_PAIR, packed = s->layout != KGEN_ROWS_PRESPLIT;
    return parts | when(parts & CONV, 0, NO_CONV) | when(packed, PACKED, PRESPLIT) |
           when(parts & NORM, READS_Z, 0) | when(parts & STEP, READS_B | READS_A, 0) |
           when(s->fuse == KGEN_FUSE_C && packed, copies_of(a), 0) | when(s->conv_bias, BIAS, 0) |
           when(parts & CONV, when(s->conv_layout == KGEN_CONV_SD, SD, DS), 0) |
           when(table, SLOT_TABLE, SLOT_VECTOR) |
           when(pair, when(s->save == KGEN_SAVE_SLOTS, WRITE_TABLE, WRITE_VECTOR), 0) |
           when(s->index == KGEN_INDEX_BLOCKS, BLOCKS, 0) | when(s->accept, ACCEPT, 0) |
           when(s->varlen, VARLEN, 0) | when(s->tree, TREE, 0) |
           when(s->save == KGEN_SAVE_BUFFER, BUFFER, 0) |
           when(s->save == KGEN_SAVE_REPLAY, REPLAY, 0) |
           when(s->gate == KGEN_GATE_GDN, HEAD_DECAY, CHANNEL_DECAY) |
           when(kgen_dtype_size((kgen_dtype)s->out) == 1, SCALED, 0) |
           when(s->fuse == KGEN_FUSE_C, CONV_ONLY, 0);
}

static void want_types(wanted *w, const kgen_gdn_spec *s) {
    const int32_t types[TYPES] = {[X] = s->x,
                                  [AB] = s->ab ? s->ab : s->x,
                                  [CW] = s->conv_weight,
                                  [ALOG] = s->a_log,
                                  [DT] = s->dt_bias,
                                  [NW] = s->norm,
                                  [CS] = s->conv_state,
                                  [STATE] = s->state,
                                  [OUT] = s->out,
                                  [INDEX] = s->index_type ? KGEN_DTYPE_I64 : KGEN_DTYPE_I32,
                                  [I32] = KGEN_DTYPE_I32,
                                  [F32] = KGEN_DTYPE_F32};
    const int32_t tags[TAGS] = {
        [IN_TAG] = s->layout, [CONV_TAG] = s->conv_layout, [STATE_TAG] = s->state_layout};
    for (int i = 0; i < TYPES; i++) w->type[i] = (kgen_dtype)types[i];
    memcpy(w->tag, tags, sizeof tags);
}

static void want_sizes(wanted *w, const kgen_gdn_spec *s) {
    int64_t channels = kgen__gdn_channels(s), z = (int64_t)s->v_heads * s->v_dim;
    int vk = s->state_layout == KGEN_STATE_VK, sd = s->conv_layout == KGEN_CONV_SD;
    const int64_t sizes[SIZES] = {
        [N] = -1,
        [T] = -1,
        [SLOTS] = -1,
        [COLUMNS] = -1,
        [L] = -1,
        [P] = -1,
        [LINES] = -1,
        [TOKENS] = s->tokens,
        [QKVZ] = channels + z,
        [BA] = 2 * (int64_t)s->v_heads,
        [C] = channels,
        [Z] = z,
        [HK] = s->k_heads,
        [HV] = s->v_heads,
        [K] = s->k_dim,
        [V] = s->v_dim,
        [W] = s->conv_width,
        [GROUPS] = z / 128,
        [DECAY] = s->gate == KGEN_GATE_GDN ? s->v_heads : (int64_t)s->v_heads * s->k_dim,
        [MAJOR] = vk ? s->v_dim : s->k_dim,
        [MINOR] = vk ? s->k_dim : s->v_dim,
        [FAR] = sd ? s->conv_width - 1 : channels,
        [NEAR] = sd ? channels : s->conv_width - 1};
    memcpy(w->size, sizes, sizeof sizes);
}

/* --- the tensors --------------------------------------------------------- */

/* ALIGNED: to 16 bytes. PIECES: to KG_GDN_PIECE elements. */
enum { OPTIONAL = 1, WRITTEN = 2, ALIGNED = 4, PIECES = 8 };

/* A tensor and where it goes. The first `free` strides are the caller's, the
 * rest is dense; `strides` are where the first ones go (0: nowhere). */
typedef struct row {
    const char *name;
    size_t offset;
    int32_t conditions;
    type_id type;
    tag_id tag;
    int32_t rank, free, flags;
    uint8_t dims[KGEN_TENSOR_RANK_MAX];
    size_t pointer, strides[3];
} row;

#define TENSOR(name) #name, offsetof(kgen_gdn_args, name)
#define TO(name) offsetof(device_args, name)

/* How many sequences and rows there are stands in the first ones. */
enum { FIRST = 4 };

/* clang-format off */
static const row rows[] = {
    {TENSOR(slots), SLOT_VECTOR, INDEX, NO_TAG, 1, 1, 0, {N}, TO(slots), {TO(slots_row)}},
    {TENSOR(slots), SLOT_TABLE, INDEX, NO_TAG, 2, 2, 0, {N, COLUMNS}, TO(slots),
     {TO(slots_row), TO(slots_col)}},
    {TENSOR(out), STEP, OUT, NO_TAG, 3, 2, WRITTEN, {T, HV, V}, TO(out),
     {TO(out_row), TO(out_head)}},
    {TENSOR(out), CONV_ONLY, OUT, NO_TAG, 2, 1, WRITTEN, {T, C}, TO(out), {TO(out_row)}},
    /* in */
    {TENSOR(qkvz), PACKED | CONV, X, IN_TAG, 2, 1, PIECES, {READ | LEAST, QKVZ}, TO(x),
     {TO(x_row)}},
    {TENSOR(qkvz), PACKED | READS_Z, X, IN_TAG, 2, 1, 0, {READ | LEAST, QKVZ}, TO(z),
     {TO(z_row)}},
    {TENSOR(ba), PACKED | READS_B, AB, IN_TAG, 2, 1, 0, {READ | LEAST, BA}, TO(b), {TO(b_row)}},
    {TENSOR(ba), PACKED | READS_A, AB, IN_TAG, 2, 1, 0, {READ | LEAST, BA}, TO(a), {TO(a_row)}},
    {TENSOR(x), PRESPLIT | CONV, X, IN_TAG, 2, 1, PIECES, {READ | LEAST, C}, TO(x),
     {TO(x_row)}},
    {TENSOR(x), NO_CONV, X, NO_TAG, 2, 1, PIECES, {READ | LEAST, C}, TO(x), {TO(x_row)}},
    {TENSOR(z), PRESPLIT | NORM, X, NO_TAG, 2, 1, 0, {READ | LEAST, Z}, TO(z), {TO(z_row)}},
    {TENSOR(b), PRESPLIT | STEP, AB, NO_TAG, 2, 1, 0, {READ | LEAST, HV}, TO(b), {TO(b_row)}},
    {TENSOR(a), PRESPLIT | STEP, AB, NO_TAG, 2, 1, 0, {READ | LEAST, DECAY}, TO(a), {TO(a_row)}},
    /* weights */
    {TENSOR(conv_weight), CONV, CW, NO_TAG, 2, 0, PIECES, {C, W}, TO(conv_weight), {0}},
    {TENSOR(conv_bias), BIAS, CW, NO_TAG, 1, 0, PIECES, {C}, TO(conv_bias), {0}},
    {TENSOR(a_log), STEP, ALOG, NO_TAG, 1, 0, 0, {HV}, TO(a_log), {0}},
    {TENSOR(dt_bias), STEP, DT, NO_TAG, 1, 0, 0, {DECAY}, TO(dt_bias), {0}},
    {TENSOR(norm_weight), NORM, NW, NO_TAG, 1, 0, 0, {V}, TO(norm_weight), {0}},
    /* state */
    {TENSOR(conv_state), SD, CS, CONV_TAG, 3, 2, WRITTEN | PIECES, {SLOTS, L, C},
     TO(conv_state), {TO(conv_slot), TO(conv_step)}},
    {TENSOR(conv_state), DS, CS, CONV_TAG, 3, 2, WRITTEN, {SLOTS, C, L}, TO(conv_state),
     {TO(conv_slot), TO(conv_step)}},
    {TENSOR(state), STEP, STATE, STATE_TAG, 4, 1, WRITTEN | ALIGNED, {SLOTS, HV, MAJOR, MINOR},
     TO(state), {TO(state_slot)}},
    {TENSOR(write_slots), WRITE_VECTOR, INDEX, NO_TAG, 1, 1, 0, {N}, TO(write_slots),
     {TO(write_row)}},
    {TENSOR(write_slots), WRITE_TABLE, INDEX, NO_TAG, 2, 2, 0, {N, TOKENS | LEAST},
     TO(write_slots), {TO(write_row), TO(write_step)}},
    {TENSOR(read_col), BLOCKS, I32, NO_TAG, 1, 0, 0, {N}, TO(read_col), {0}},
    {TENSOR(write_col), BLOCKS, I32, NO_TAG, 1, 0, 0, {N}, TO(write_col), {0}},
    {TENSOR(accepted), ACCEPT, I32, NO_TAG, 1, 0, 0, {N}, TO(accepted), {0}},
    {TENSOR(cu_seqlens), VARLEN, I32, NO_TAG, 1, 0, 0, {ENDS}, TO(cu_seqlens), {0}},
    {TENSOR(parents), TREE, I32, NO_TAG, 2, 1, 0, {N, TOKENS}, TO(parents), {TO(parents_row)}},
    {TENSOR(has_initial), 0, I32, NO_TAG, 1, 0, OPTIONAL, {N}, TO(has_initial), {0}},
    /* per-token states */
    {TENSOR(buffer), BUFFER | STEP, STATE, STATE_TAG, 5, 2, WRITTEN | ALIGNED,
     {LINES, TOKENS | LEAST, HV, MAJOR, MINOR}, TO(buffer), {TO(buffer_line), TO(buffer_token)}},
    {TENSOR(conv_windows), BUFFER | CONV, CS, CONV_TAG, 4, 3, OPTIONAL | WRITTEN,
     {LINES, TOKENS | LEAST, FAR, NEAR}, TO(conv_windows),
     {TO(window_line), TO(window_token), TO(window_step)}},
    {TENSOR(lines), BUFFER, I32, NO_TAG, 1, 0, OPTIONAL, {N}, TO(lines), {0}},
    {TENSOR(ring_k), REPLAY, STATE, NO_TAG, 4, 1, WRITTEN | ALIGNED, {SLOTS, P, HK, K},
     TO(ring_k), {TO(ring_k_slot)}},
    {TENSOR(ring_u), REPLAY, STATE, NO_TAG, 4, 1, WRITTEN | ALIGNED, {SLOTS, P, HV, V},
     TO(ring_u), {TO(ring_u_slot)}},
    {TENSOR(ring_decay), REPLAY | HEAD_DECAY, F32, NO_TAG, 3, 1, WRITTEN | ALIGNED,
     {SLOTS, P, HV}, TO(ring_decay), {TO(ring_decay_slot)}},
    {TENSOR(ring_decay), REPLAY | CHANNEL_DECAY, F32, NO_TAG, 4, 1, WRITTEN | ALIGNED,
     {SLOTS, P, HV, K}, TO(ring_decay), {TO(ring_decay_slot)}},
    {TENSOR(ring_start), REPLAY, I32, NO_TAG, 1, 0, 0, {N}, TO(ring_start), {0}},
    {TENSOR(ring_len), REPLAY, I32, NO_TAG, 1, 0, 0, {N}, TO(ring_len), {0}},
    /* out */
    {TENSOR(out_scale), SCALED, F32, NO_TAG, 2, 2, 0, {T, GROUPS}, TO(out_scale),
     {TO(scale_row), TO(scale_group)}},
    {TENSOR(z_out), COPIES, X, NO_TAG, 2, 1, OPTIONAL | WRITTEN, {T, Z}, TO(z_out),
     {TO(z_out_row)}},
    {TENSOR(b_out), COPIES, AB, NO_TAG, 2, 1, OPTIONAL | WRITTEN, {T, HV}, TO(b_out),
     {TO(b_out_row)}},
    {TENSOR(a_out), COPIES, AB, NO_TAG, 2, 1, OPTIONAL | WRITTEN, {T, HV}, TO(a_out),
     {TO(a_out_row)}},
};
/* clang-format on */
enum { TABLE_ROWS = sizeof rows / sizeof rows[0] };

/* --- checks -------------------------------------------------------------- */

/* Counts of sequences, rows, slots and so on travel to the device as int. */
static kgen_status check_size(const row *r, const kgen_tensor *t, int i, wanted *w,
                              kgen_error *err) {
    int64_t *want = &w->size[r->dims[i] & ~LEAST], got = t->shape[i];
    if (*want < 0) {
        NEED(got <= INT32_MAX, "%s: shape[%d]=%lld, at most 2^31-1", r->name, i, (long long)got);
        *want = got;
    }
    if (!(r->dims[i] & LEAST)) return kgen__check_dim(r->name, t, i, *want, err);
    NEED(got >= *want, "%s: shape[%d]=%lld, at least %lld expected", r->name, i, (long long)got,
         (long long)*want);
    return KGEN_OK;
}

/* Dense behind the free strides; what is written must not lie in itself. */
static kgen_status check_strides(const row *r, const kgen_tensor *t, kgen_error *err) {
    int64_t dense = 1;
    for (int i = r->rank - 1; i >= r->free; i--) {
        KGEN_TRY(kgen__check_unit_stride(r->name, t, i, dense, err));
        dense *= t->shape[i];
    }
    for (int i = 0; i < r->free && r->flags & WRITTEN; i++)
        NEED(t->stride[i] >= dense || t->shape[i] <= 1,
             "%s: stride[%d]=%lld, at least %lld, or its parts overlap", r->name, i,
             (long long)t->stride[i], (long long)dense);
    int bytes = r->flags & ALIGNED  ? 16
                : r->flags & PIECES ? KG_GDN_PIECE * kgen_dtype_size(t->dtype)
                                    : 0;
    return bytes ? kgen__check_alignment(r->name, t, r->free, bytes, err) : KGEN_OK;
}

static kgen_status check_tensor(const row *r, const kgen_tensor *t, wanted *w, kgen_error *err) {
    KGEN_TRY(kgen__check_type(r->name, t, w->type[r->type], r->rank, err));
    if (r->tag) KGEN_TRY(kgen__check_layout(r->name, t, w->tag[r->tag], err));
    for (int i = 0; i < r->rank; i++) KGEN_TRY(check_size(r, t, i, w, err));
    KGEN_TRY(kgen__check_span(r->name, t, err));
    return check_strides(r, t, err);
}

/* Checks the rows first .. end - 1 that this spec has, and packs them. */
static kgen_status take_rows(device_args *d, int first, int end, const kgen_gdn_args *a, wanted *w,
                             kgen_error *err) {
    for (const row *r = rows + first; r < rows + end; r++) {
        const kgen_tensor *t = (const kgen_tensor *)((const char *)a + r->offset);
        if ((r->conditions & w->conditions) != r->conditions) continue;
        if (r->flags & OPTIONAL && !t->data) continue;
        KGEN_TRY(check_tensor(r, t, w, err));
        memcpy((char *)d + r->pointer, &t->data, sizeof t->data);
        for (int i = 0; i < 3 && r->strides[i]; i++) {
            long long stride = t->stride[i];
            memcpy((char *)d + r->strides[i], &stride, sizeof stride);
        }
    }
    return KGEN_OK;
}

static kgen_status check_batch(const kgen_gdn_spec *s, wanted *w, kgen_error *err) {
    int64_t seqs = w->size[N], read = s->varlen ? w->size[T] : seqs * s->tokens;
    NEED(read <= w->size[T], "out: shape[0]=%lld rows, %lld sequences of t=%d have %lld",
         (long long)w->size[T], (long long)seqs, s->tokens, (long long)read);
    w->size[READ] = read;
    w->size[ENDS] = seqs + 1;
    int64_t columns = s->index == KGEN_INDEX_SPEC ? s->tokens : 1;
    NEED(w->size[COLUMNS] < 0 || w->size[COLUMNS] >= columns,
         "slots: shape[1]=%lld columns, at least %lld", (long long)w->size[COLUMNS],
         (long long)columns);
    return KGEN_OK;
}

/* What the tensors that say their own size must have. */
static kgen_status check_sizes(const kgen_gdn_spec *s, const kgen_gdn_args *a, const wanted *w,
                               kgen_error *err) {
    int64_t columns = s->conv_width - 1 + (s->accept ? s->tokens - 1 : 0);
    int64_t ring = (int64_t)s->ring + s->tokens, have = w->size[LINES];
    NEED(w->size[L] < 0 || w->size[L] >= columns,
         "conv_state: %lld time columns, w=%d%s needs at least %lld", (long long)w->size[L],
         s->conv_width, s->accept ? " with accept=1" : "", (long long)columns);
    NEED(w->size[P] < 0 || w->size[P] >= ring, "ring_k: shape[1]=%lld, at least ring=%d and t=%d",
         (long long)w->size[P], s->ring, s->tokens);
    NEED(have < 0 || a->lines.data || have >= w->size[N],
         "%s: shape[0]=%lld lines for %lld sequences, and no data in lines",
         w->conditions & STEP ? "buffer" : "conv_windows", (long long)have, (long long)w->size[N]);
    return KGEN_OK;
}

static kgen_status check_numbers(const kgen_gdn_spec *s, const kgen_gdn_args *a, const wanted *w,
                                 kgen_error *err) {
    int step = w->conditions & STEP;
    NEED(!step || (isfinite(a->q_scale) && a->q_scale != 0), "q_scale=%g: finite and not 0",
         (double)a->q_scale);
    NEED(!step || !s->l2norm || (isfinite(a->l2_eps) && a->l2_eps >= 0),
         "l2_eps=%g: finite, at least 0", (double)a->l2_eps);
    NEED(!(w->conditions & NORM) || (isfinite(a->norm_eps) && a->norm_eps >= 0),
         "norm_eps=%g: finite, at least 0", (double)a->norm_eps);
    NEED(s->gate != KGEN_GATE_KDA_BOUND || (isfinite(a->lower_bound) && a->lower_bound < 0),
         "lower_bound=%g: finite and below 0", (double)a->lower_bound);
    return KGEN_OK;
}

/* --- workspace ----------------------------------------------------------- */

static kgen_status check_counters(const kgen_gdn_spec *s, int64_t seqs, kgen_error *err) {
    int64_t most = KGEN__COUNTER_BYTES / (int64_t)sizeof(int32_t) / s->k_heads;
    NEED(!kgen__gdn_needs_counters(s) || seqs <= most,
         "slots: shape[0]=%lld sequences of hk=%d, at most %lld", (long long)seqs, s->k_heads,
         (long long)most);
    return KGEN_OK;
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    const kgen_gdn_spec *s = &kernel->spec.gdn;
    KGEN_TRY(check_counters(s, args->gdn.slots.shape[0], err));
    *bytes = kgen__gdn_needs_counters(s) ? KGEN__COUNTER_BYTES : 0;
    return KGEN_OK;
}

/* --- pack ---------------------------------------------------------------- */

static int count_of(const wanted *w, size_id size) {
    return w->size[size] < 0 ? 0 : (int)w->size[size];
}

static void pack_numbers(device_args *d, const kgen_gdn_args *a, const wanted *w) {
    d->pad_slot = a->pad_slot;
    d->seqs = count_of(w, N);
    d->rows = count_of(w, T);
    d->slot_count = count_of(w, SLOTS);
    d->slot_columns = w->conditions & SLOT_TABLE ? count_of(w, COLUMNS) : 1;
    d->conv_columns = count_of(w, L);
    d->line_count = count_of(w, LINES);
    d->ring_rows = count_of(w, P);
    d->q_scale = a->q_scale;
    d->l2_eps = a->l2_eps;
    d->norm_eps = a->norm_eps;
    d->lower_bound = a->lower_bound;
}

static kgen_status pack_workspace(device_args *d, const kgen_gdn_spec *s, const kgen_args *args,
                                  kgen_error *err) {
    if (!kgen__gdn_needs_counters(s)) return KGEN_OK;
    KGEN_TRY(check_counters(s, d->seqs, err));
    d->arrived = args->workspace;
    return kgen__check_workspace(args->workspace, args->workspace_bytes, KGEN__COUNTER_BYTES, err);
}

/* Without sequences the rows are zeroed all the same. */
static kgen_status count_groups(uint32_t *grid, const kgen_kernel *kernel, const device_args *d,
                                kgen_error *err) {
    int64_t groups = kgen__gdn_groups(&kernel->spec.gdn, kernel->ctx->target);
    NEED(d->seqs <= INT32_MAX / groups,
         "slots: shape[0]=%d sequences of %lld workgroups, at most "
         "2^31-1 in all",
         d->seqs, (long long)groups);
    *grid = d->rows ? (uint32_t)(groups * (d->seqs ? d->seqs : 1)) : 0;
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_gdn_spec *s = &kernel->spec.gdn;
    const kgen_gdn_args *a = &args->gdn;
    device_args *d = packed;
    wanted w = {.conditions = conditions_of(s, a)};
    memset(d, 0, sizeof *d);
    want_types(&w, s);
    want_sizes(&w, s);
    KGEN_TRY(take_rows(d, 0, FIRST, a, &w, err));
    KGEN_TRY(check_batch(s, &w, err));
    KGEN_TRY(take_rows(d, FIRST, TABLE_ROWS, a, &w, err));
    KGEN_TRY(check_sizes(s, a, &w, err));
    KGEN_TRY(check_numbers(s, a, &w, err));
    pack_numbers(d, a, &w);
    KGEN_TRY(pack_workspace(d, s, args, err));
    return count_groups(grid, kernel, d, err);
}

const kgen__launcher kgen__launch_gdn = {sizeof(device_args), workspace_bytes, pack};

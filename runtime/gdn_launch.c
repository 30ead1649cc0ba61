/* Gated DeltaNet launches: arguments against spec, the packed argument struct.
 * Nothing here allocates, locks or waits. */
#include <string.h>

#include "gen/gdn.h"
#include "templates/kg/gdn/gdn_packed.h"
#include "templates/kg/gdn/gdn_shape.h"
#include "checks.h"
#include "launch.h"

typedef struct kg_gdn_args device_args;

_Static_assert(sizeof(device_args) <= KGEN__PACKED_MAX, "packed arguments fit");
_Static_assert(KG_GDN_PIECE == 4, "PIECES of gdn_args.def");

#define FAMILY gdn
#define SPEC kgen_gdn_spec
#define ARGS kgen_gdn_args
#define ARGS_DEF <kgen/gdn_args.def>
#include "args_table.h"

#define TO(name) (offsetof(device_args, name) + 1)

/* qkvz and ba go where their parts go: pack_packed. */
static const kgen__place places[TENSORS] = {
    [TENSOR_X] = {TO(x), {TO(x_row)}, 0},
    [TENSOR_Q] = {TO(q), {TO(q_row), TO(q_head)}, 0},
    [TENSOR_K] = {TO(k), {TO(k_row), TO(k_head)}, 0},
    [TENSOR_V] = {TO(v), {TO(v_row), TO(v_head)}, 0},
    [TENSOR_Z] = {TO(z), {TO(z_row)}, 0},
    [TENSOR_B] = {TO(b), {TO(b_row)}, 0},
    [TENSOR_A] = {TO(a), {TO(a_row)}, 0},
    [TENSOR_CONV_WEIGHT] = {TO(conv_weight), {0}, 0},
    [TENSOR_CONV_BIAS] = {TO(conv_bias), {0}, 0},
    [TENSOR_A_LOG] = {TO(a_log), {0}, 0},
    [TENSOR_DT_BIAS] = {TO(dt_bias), {0}, 0},
    [TENSOR_NORM_WEIGHT] = {TO(norm_weight), {0}, 0},
    [TENSOR_CONV_STATE] = {TO(conv_state), {TO(conv_slot), TO(conv_step)}, 0},
    [TENSOR_STATE] = {TO(state), {TO(state_slot)}, 0},
    [TENSOR_SLOTS] = {TO(slots), {TO(slots_row), TO(slots_col)}, 0},
    [TENSOR_WRITE_SLOTS] = {TO(write_slots), {TO(write_row), TO(write_step)}, 0},
    [TENSOR_READ_COL] = {TO(read_col), {0}, 0},
    [TENSOR_WRITE_COL] = {TO(write_col), {0}, 0},
    [TENSOR_ACCEPTED] = {TO(accepted), {0}, 0},
    [TENSOR_CU] = {TO(cu_seqlens), {0}, 0},
    [TENSOR_CACHE_SEQLENS] = {TO(read_col), {0}, 0},
    [TENSOR_PARENTS] = {TO(parents), {TO(parents_row)}, 0},
    [TENSOR_HAS_INITIAL] = {TO(has_initial), {0}, 0},
    [TENSOR_BUFFER] = {TO(buffer), {TO(buffer_line), TO(buffer_token)}, 0},
    [TENSOR_CONV_WINDOWS] = {TO(conv_windows),
                             {TO(window_line), TO(window_token), TO(window_step)},
                             0},
    [TENSOR_LINES] = {TO(lines), {0}, 0},
    [TENSOR_RING_K] = {TO(ring_k), {TO(ring_k_slot)}, 0},
    [TENSOR_RING_U] = {TO(ring_u), {TO(ring_u_slot)}, 0},
    [TENSOR_RING_DECAY] = {TO(ring_decay), {TO(ring_decay_slot)}, 0},
    [TENSOR_RING_START] = {TO(ring_start), {0}, 0},
    [TENSOR_RING_LEN] = {TO(ring_len), {0}, 0},
    [TENSOR_OUT] = {TO(out), {TO(out_row), TO(out_head)}, 0},
    [TENSOR_OUT_SCALE] = {TO(out_scale), {TO(scale_row), TO(scale_group)}, 0},
    [TENSOR_Z_OUT] = {TO(z_out), {TO(z_out_row)}, 0},
    [TENSOR_B_OUT] = {TO(b_out), {TO(b_out_row)}, 0},
    [TENSOR_A_OUT] = {TO(a_out), {TO(a_out_row)}, 0},
};

/* --- checks that rows can not say ---------------------------------------- */

/* Slots and out say how many sequences and rows there are. */
static kgen_status derive(int64_t *size, const kgen_spec *spec, kgen_error *err) {
    const kgen_gdn_spec *s = &spec->gdn;
    int64_t seqs = size[SIZE_N], read = s->varlen ? size[SIZE_T] : seqs * s->tokens;
    int64_t columns = s->index == KGEN_INDEX_SPEC ? s->tokens : 1;
    NEED(read <= size[SIZE_T], "out: shape[0]=%lld rows, %lld sequences of t=%d have %lld",
         (long long)size[SIZE_T], (long long)seqs, s->tokens, (long long)read);
    NEED(size[SIZE_COLUMNS] < 0 || size[SIZE_COLUMNS] >= columns,
         "slots: shape[1]=%lld columns, at least %lld", (long long)size[SIZE_COLUMNS],
         (long long)columns);
    size[SIZE_READ] = read;
    size[SIZE_ENDS] = seqs + 1;
    return KGEN_OK;
}

static const kgen__args_rows args_rows = {ARGS_ROWS, .places = places, .derive = derive};

static const kgen__args_rows *rows_of(const kgen_spec *spec) {
    (void)spec;
    return &args_rows;
}

/* What the tensors that say their own size must have. */
static kgen_status check_sizes(const kgen_gdn_spec *s, const kgen_gdn_args *a, const int64_t *size,
                               kgen_error *err) {
    int64_t columns = s->conv_width - 1 + (s->accept ? s->tokens - 1 : 0);
    int64_t ring = (int64_t)s->ring + s->tokens, have = size[SIZE_LINES];
    NEED(size[SIZE_L] < 0 || size[SIZE_L] >= columns,
         "conv_state: %lld time columns, w=%d%s needs at least %lld", (long long)size[SIZE_L],
         s->conv_width, s->accept ? " with accept=1" : "", (long long)columns);
    NEED(size[SIZE_P] < 0 || size[SIZE_P] >= ring,
         "ring_k: shape[1]=%lld, at least ring=%d and t=%d", (long long)size[SIZE_P], s->ring,
         s->tokens);
    NEED(have < 0 || a->lines.data || have >= size[SIZE_N],
         "%s: shape[0]=%lld lines for %lld sequences, and no data in lines",
         s->fuse == KGEN_FUSE_C ? "conv_windows" : "buffer", (long long)have,
         (long long)size[SIZE_N]);
    return KGEN_OK;
}

/* fuse=c reads ba for its copies alone. */
static kgen_status check_copies(const kgen_gdn_spec *s, const kgen_gdn_args *a, kgen_error *err) {
    int copies = a->b_out.data || a->a_out.data;
    if (s->fuse != KGEN_FUSE_C || s->layout == KGEN_ROWS_PRESPLIT) return KGEN_OK;
    NEED(copies || !a->ba.data, "ba: given, and neither b_out nor a_out");
    NEED(!copies || a->ba.data, "ba: no data");
    return KGEN_OK;
}

/* --- workspace ----------------------------------------------------------- */

static kgen_status check_counters(const kgen_gdn_spec *s, int64_t seqs, kgen_error *err) {
    int64_t most = KGEN__COUNTERS / s->k_heads;
    NEED(!kgen__gdn_needs_counters(s) || seqs <= most,
         "slots: shape[0]=%lld sequences of hk=%d, at most %lld", (long long)seqs, s->k_heads,
         (long long)most);
    return KGEN_OK;
}

static kgen_status workspace_bytes(size_t *bytes, const kgen_kernel *kernel, const kgen_args *args,
                                   kgen_error *err) {
    const kgen_gdn_spec *s = &kernel->spec.gdn;
    KGEN_TRY(check_counters(s, args->gdn->slots.shape[0], err));
    *bytes = kgen__gdn_needs_counters(s) ? KGEN__HEAD_BYTES : 0;
    return KGEN_OK;
}

/* --- pack ---------------------------------------------------------------- */

/* Rows that hold several parts are the tensor of each that is read. */
static void pack_packed(device_args *d, const kgen_gdn_spec *s, const kgen_gdn_args *a) {
    int norm = s->fuse == KGEN_FUSE_B || s->fuse == KGEN_FUSE_E;
    if (s->layout == KGEN_ROWS_PRESPLIT) return;
    if (s->fuse >= KGEN_FUSE_C) d->x = a->qkvz.data, d->x_row = a->qkvz.stride[0];
    if (norm || a->z_out.data) d->z = a->qkvz.data, d->z_row = a->qkvz.stride[0];
    if (!a->ba.data) return;
    d->b = d->a = a->ba.data;
    d->b_row = d->a_row = a->ba.stride[0];
}

static int count_of(int64_t size) { return size < 0 ? 0 : (int)size; }

static void pack_numbers(device_args *d, const kgen_gdn_args *a, const int64_t *size) {
    d->pad_slot = a->pad_slot;
    d->seqs = count_of(size[SIZE_N]);
    d->rows = count_of(size[SIZE_T]);
    d->slot_count = count_of(size[SIZE_SLOTS]);
    d->slot_columns = size[SIZE_COLUMNS] < 0 ? 1 : (int)size[SIZE_COLUMNS];
    d->conv_columns = count_of(size[SIZE_L]);
    d->line_count = count_of(size[SIZE_LINES]);
    d->ring_rows = count_of(size[SIZE_P]);
    d->q_scale = a->q_scale;
    d->l2_eps = a->l2_eps;
    d->norm_eps = a->norm_eps;
    d->lower_bound = a->lower_bound;
}

static kgen_status pack_workspace(device_args *d, const kgen_gdn_spec *s, const kgen_args *args,
                                  kgen_error *err) {
    if (!kgen__gdn_needs_counters(s)) return KGEN_OK;
    KGEN_TRY(check_counters(s, d->seqs, err));
    d->workspace = args->workspace;
    d->ticket = kgen__launch_ticket();
    return kgen__check_workspace(args->workspace, args->workspace_bytes, KGEN__HEAD_BYTES, err);
}

/* Without sequences the rows are zeroed all the same. */
static kgen_status count_groups(uint32_t *grid, const kgen_kernel *kernel, const device_args *d,
                                kgen_error *err) {
    int64_t groups = kgen__gdn_groups(&kernel->spec.gdn, kernel->ctx->target);
    NEED(d->seqs <= INT32_MAX / groups,
         "slots: shape[0]=%d sequences of %lld workgroups, at most 2^31-1 in all", d->seqs,
         (long long)groups);
    *grid = d->rows ? (uint32_t)(groups * (d->seqs ? d->seqs : 1)) : 0;
    return KGEN_OK;
}

static kgen_status pack(void *packed, uint32_t *grid, const kgen_kernel *kernel,
                        const kgen_args *args, kgen_error *err) {
    const kgen_gdn_spec *s = &kernel->spec.gdn;
    const kgen_gdn_args *a = args->gdn;
    device_args *d = packed;
    int64_t size[KGEN__SIZES_MAX];
    KGEN_TRY(kgen__args_take(d, size, &kernel->binding, &kernel->spec, a, err));
    KGEN_TRY(check_sizes(s, a, size, err));
    KGEN_TRY(check_copies(s, a, err));
    pack_packed(d, s, a);
    pack_numbers(d, a, size);
    KGEN_TRY(pack_workspace(d, s, args, err));
    return count_groups(grid, kernel, d, err);
}

static int again(void *packed, const kgen_kernel *kernel, const kgen_args *args,
                 const kgen__stretch *at) {
    (void)at;
    pack_packed(packed, &kernel->spec.gdn, args->gdn);
    return pack_workspace(packed, &kernel->spec.gdn, args, NULL) == KGEN_OK;
}

const kgen__launcher kgen__launch_gdn = {
    .rows_of = rows_of,
    .packed_bytes = sizeof(device_args),
    .workspace_bytes = workspace_bytes,
    .pack = pack,
    .again = again,
};

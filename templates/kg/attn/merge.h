// From the waves' accumulators to the output: waves meet in LDS, workgroups in
// the workspace, where the last to arrive merges and puts the counter back.
#pragma once
#include "kg/attn/clusters.h"
#include "kg/attn/together.h"
#include "kg/attn/whole_rows.h"

namespace kg {

// --- waves ------------------------------------------------------------------

// Of the waves with the same rows each has a maximum and a sum of every row: so far apart.
KG_DEV int rows_of_keys(const role_t &role) {
    return UNBOUNDED ? WAVES / role.keys * WAVE_ROWS : ROWS;
}
KG_DEV sums_t *sums_at(u8 *lds, const role_t &role) { return (sums_t *)(lds + LDS_ML) + role.row; }
KG_DEV void note_sums(const float (&m)[ROW_TILES][COLS], const float (&l)[ROW_TILES][COLS],
                      sums_t *ml, int rows, const role_t &role, int lane) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        float sum = column_sum(l[t][c]);
        if (role.v == 0 && is_speaker(lane))
            ml[role.key * rows + t * NI + lane_column(lane, c)] = sums_t{m[t][c], sum};
    }
}

// Publishes the waves' sums, brings every accumulator to the common maximum.
KG_DEV void meet_sums(float (&m)[ROW_TILES][COLS], float (&l)[ROW_TILES][COLS],
                      acc_t (&o)[ROW_TILES][O_TILES], u8 *lds, const role_t &role) {
    int lane = (int)late_lane(), rows = rows_of_keys(role);
    bool speaks = is_speaker(lane);
    int speaker = role.key * V_SPLIT + role.v;
    sums_t *total = (sums_t *)(lds + LDS_TOTAL) + role.row, *ml = sums_at(lds, role);
    note_sums(m, l, ml, rows, role, lane);
    barrier();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        int row = t * NI + lane_column(lane, c);
        sums_t all = {-INFINITE, 0.0f};
        KG_UNROLL for (int w = 0; w < WAVES; w++) if (w < role.keys) all.maximum =
            fmax(all.maximum, ml[w * rows + row].maximum);
        KG_UNROLL for (int w = 0; w < WAVES; w++) if (w < role.keys) all.sum +=
            ml[w * rows + row].sum * weight(ml[w * rows + row].maximum, all.maximum);
        if (speaker == t % (role.keys * V_SPLIT) && speaks) total[row] = all;
        float factor = weight(m[t][c], all.maximum);
        KG_UNROLL for (int n = 0; n < O_TILES; n++) KG_UNROLL for (int r = c; r < O_REGS; r += COLS)
            o[t][n][r] *= factor;
    }
}

// sm_90: neighbours in the lane's first place store at once, and are a multiple of four banks apart
// in each column: of every other one two quads change places. What a dim there differs by.
KG_DEV int swap_of(int dim) {
    if constexpr (!IS_SM90 || BY_TILES || V_LANE_DIMS < 8) return 0;
    return dim / V_LANE_DIMS % 2 * 4;
}

// A lane's accumulators of one column and chunk are adjacent dims: stored four
// at a time.
KG_DEV void write_chunk(const acc_t *o, float *mine, int chunk, int cols) {
    int lane = (int)late_lane();
    KG_UNROLL for (int line = 0; line < O_REGS / VROWS; line++) {
        int column = lane_column(lane, line % COLS) - cols;
        float *to = mine + column * ROUND_STRIDE + o_dim(chunk * CHUNK_TILES, o_row(lane, line));
        int swap = swap_of(o_dim(0, o_row(lane, line)));
        if (column < 0 || column >= ROUND_COLS) continue;
        KG_UNROLL for (int dim = 0; dim < V_LANE_DIMS; dim += 4) {
            quad_t quad;
            KG_UNROLL for (int j = 0; j < 4; j++) quad.x[j] =
                o[chunk * CHUNK_TILES + (dim + j) / VROWS][line + (dim + j) % VROWS * COLS];
            *(quad_t *)(to + (dim ^ swap)) = quad;
        }
    }
}

KG_DEV void write_tile(const acc_t &o, float *mine, int tile, int cols) {
    int lane = (int)late_lane();
    KG_UNROLL for (int r = 0; r < O_REGS; r++) {
        int column = lane_column(lane, r % COLS) - cols;
        if (column >= 0 && column < ROUND_COLS)
            mine[column * ROUND_STRIDE + o_dim(tile, o_row(lane, r))] = o[r];
    }
}

KG_DEV void write_round(const acc_t (&o)[O_TILES], u8 *lds, int wave, int round, int cols) {
    float *mine = (float *)(lds + LDS_O) + wave * ROUND_COLS * ROUND_STRIDE;
    const acc_t *from = o + round * ROUND_TILES;
    if constexpr (BY_TILES)
        KG_UNROLL for (int n = 0; n < ROUND_TILES; n++) write_tile(from[n], mine, n, cols);
    else
        KG_UNROLL for (int n = 0; n < ROUND_TILES / CHUNK_TILES; n++)
            write_chunk(from, mine, n, cols);
}

KG_DEV const quad_t *quad_of_wave(const u8 *lds, int wave, int column, int v_wave, int dim) {
    const float *from = (const float *)(lds + LDS_O) +
                        ((wave * V_SPLIT + v_wave) * ROUND_COLS + column) * ROUND_STRIDE + dim;
    return (const quad_t *)from;
}
// Of the `keys` waves with the same rows, the first of which is `first`.
KG_DEV void sum_waves(float (&x)[4], const u8 *lds, int first, int keys, int column, int v_wave,
                      int dim) {
    KG_UNROLL for (int j = 0; j < 4; j++) x[j] = 0;
    KG_UNROLL for (int w = 0; w < WAVES; w++) {
        if (w >= keys) break;
        quad_t quad = *quad_of_wave(lds, first + w, column, v_wave, dim);
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] += quad.x[j];
    }
}

// --- rows -------------------------------------------------------------------

// Four dims of a row, for the others of the cluster or as they are.
template <class F>
KG_DEV void emit_quad(args_t a, const segment_t &g, row_t row, u32 slot, u8 *lds, int place,
                      int dim, float (&x)[4], const F &factor_of) {
    if constexpr (CLUSTER != 0)
        give_quad(lds, place, dim, x);
    else
        pass_quad(a, g, row, slot, place, dim, x, factor_of);
}

KG_DEV void emit_sum(args_t a, const segment_t &g, row_t row, u32 slot, u8 *lds, int place,
                     sums_t total) {
    if constexpr (CLUSTER != 0)
        give_sum(lds, place, total);
    else
        pass_sum(a, g, row, slot, place, total);
}

// Reads what the waves wrote in a round; final output or partial result.
KG_DEV void emit_round(args_t a, const segment_t &g, const role_t &role, u32 slot, u8 *lds,
                       int round, int first_row) {
    constexpr int QUADS = ROUND_DIMS / 4;
    int all = (UNBOUNDED ? WAVES / role.keys : 1) * ROUND_COLS * V_SPLIT * QUADS;
    const sums_t *totals = (const sums_t *)(lds + LDS_TOTAL);
    KG_LOOP for (int n = (int)late_thread(); n < all; n += KG_WORKGROUP) {
        int at = n / (V_SPLIT * QUADS), rest = n % (V_SPLIT * QUADS);
        int group = UNBOUNDED ? at / ROUND_COLS : 0, column = UNBOUNDED ? at % ROUND_COLS : at;
        int place = group * WAVE_ROWS + first_row + column; // in the row block
        int v_wave = rest / QUADS, dim = rest % QUADS * 4;
        int out_dim = v_wave * SLICE_DIMS + round * ROUND_DIMS + dim;
        row_t row = row_at(g, place);
        if (!row.exists || out_dim >= V_DIM) continue;
        float x[4];
        sum_waves(x, lds, group * role.keys, role.keys, column, v_wave, dim);
        emit_quad(a, g, row, slot, lds, place, out_dim, x,
                  [&] { return factor_of_row(a, g, row, totals[place]); });
    }
}

// sm_90: what waves have of a row is weighed as it is added: they meet once less.
struct wave_weights_t {
    float of[WAVES];
    sums_t total;
};
KG_DEV wave_weights_t weights_of_row(const u8 *lds, const role_t &role, int place) {
    const sums_t *ml = (const sums_t *)(lds + LDS_ML) + place;
    wave_weights_t w;
    sums_t each[WAVES];
    w.total = sums_t{-INFINITE, 0.0f};
    KG_UNROLL for (int n = 0; n < WAVES; n++) {
        each[n] = n < role.keys ? ml[n * rows_of_keys(role)] : sums_t{-INFINITE, 0.0f};
        w.total.maximum = fmax(w.total.maximum, each[n].maximum);
    }
    KG_UNROLL for (int n = 0; n < WAVES; n++) {
        w.of[n] = weight(each[n].maximum, w.total.maximum);
        w.total.sum += each[n].sum * w.of[n];
    }
    return w;
}
KG_DEV void weigh_waves(float (&x)[4], const wave_weights_t &weights, const u8 *lds, int first,
                        int keys, int column, int v_wave, int dim) {
    KG_UNROLL for (int j = 0; j < 4; j++) x[j] = 0;
    KG_UNROLL for (int w = 0; w < WAVES; w++) {
        if (w >= keys) break;
        quad_t quad = *quad_of_wave(lds, first + w, column, v_wave, dim ^ swap_of(dim));
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] += quad.x[j] * weights.of[w];
    }
}

// Lanes that share a row of a round, eight at least, as many as read LDS at once; each has so many
// quads of it, some of them at once.
constexpr int QUADS_OF_ROW = V_SPLIT * ROUND_DIMS / 4;
constexpr int lanes_of_quads(int lanes) {
    return lanes * 2 * ROUND_COLS > (int)KG_WORKGROUP || lanes >= QUADS_OF_ROW
               ? lanes
               : lanes_of_quads(lanes * 2);
}
constexpr int QUAD_LANES = lanes_of_quads(8);
constexpr int QUADS_OF_LANE = ceil_div(QUADS_OF_ROW, QUAD_LANES);
constexpr int QUADS_AT_ONCE = QUADS_OF_LANE % 4 ? 1 : 4;
KG_DEV void emit_row(args_t a, const segment_t &g, const role_t &role, u32 slot, u8 *lds, int round,
                     int first, int column, int place) {
    constexpr int BATCH = QUADS_AT_ONCE;
    row_t row = row_at(g, place);
    wave_weights_t weights = weights_of_row(lds, role, place);
    KG_LOOP for (int begin = 0; begin < QUADS_OF_LANE; begin += BATCH) {
        float x[BATCH][4];
        int out_dim[BATCH]; // V_DIM: none
        KG_UNROLL for (int i = 0; i < BATCH; i++) {
            int quad = (begin + i) * QUAD_LANES + (int)late_thread() % QUAD_LANES;
            int v_wave = quad / (ROUND_DIMS / 4), dim = quad % (ROUND_DIMS / 4) * 4;
            out_dim[i] =
                quad < QUADS_OF_ROW ? v_wave * SLICE_DIMS + round * ROUND_DIMS + dim : V_DIM;
            if (out_dim[i] < V_DIM)
                weigh_waves(x[i], weights, lds, first, role.keys, column, v_wave, dim);
        }
        KG_UNROLL for (int i = 0; i < BATCH; i++) {
            if (out_dim[i] >= V_DIM) continue;
            emit_quad(a, g, row, slot, lds, place, out_dim[i], x[i],
                      [&] { return factor_of_row(a, g, row, weights.total); });
            if (out_dim[i] == 0) emit_sum(a, g, row, slot, lds, place, weights.total);
        }
    }
}
KG_DEV void emit_weighed(args_t a, const segment_t &g, const role_t &role, u32 slot, u8 *lds,
                         int round, int first_row) {
    int all = (UNBOUNDED ? WAVES / role.keys : 1) * ROUND_COLS;
    KG_LOOP for (int n = (int)late_thread() / QUAD_LANES; n < all; n += KG_WORKGROUP / QUAD_LANES) {
        int group = UNBOUNDED ? n / ROUND_COLS : 0, column = UNBOUNDED ? n % ROUND_COLS : n;
        int place = group * WAVE_ROWS + first_row + column; // in the row block
        if (row_exists(g, place))
            emit_row(a, g, role, slot, lds, round, group * role.keys, column, place);
    }
}

KG_DEV void emit_sums(args_t a, const segment_t &g, u32 slot, u8 *lds) {
    const sums_t *totals = (const sums_t *)(lds + LDS_TOTAL);
    KG_LOOP for (int n = (int)late_thread(); n < ROWS; n += KG_WORKGROUP) {
        row_t row = row_at(g, n);
        sums_t total = totals[n];
        if (row.exists) emit_sum(a, g, row, slot, lds, n, total);
    }
}

// ROWS_OF_A: a lane's four dims of a tile, which follow one another, and the first of them.
KG_DEV int quad_of_tile(float (&x)[4], const acc_t &o) {
    int lane = (int)late_lane(), row = o_row(lane, 0);
    KG_UNROLL for (int j = 0; j < 4; j++) x[j] = o[j];
    // Two pairs, eight dims apart: neighbours have the dims between, and exchange one.
    bool odd = lane_grp(lane) % 2 != 0;
    float gives[2] = {odd ? x[0] : x[2], odd ? x[1] : x[3]}, gets[2];
    KG_UNROLL for (int j = 0; j < 2; j++) gets[j] =
        float_of(shuffle(bits_of(gives[j]), (u32)(lane ^ 1)));
    KG_UNROLL for (int j = 0; j < 2; j++) {
        x[j] = odd ? gets[j] : x[j];
        x[2 + j] = odd ? x[2 + j] : gets[j];
    }
    return odd ? row - 2 + 8 : row;
}

// A row's dims from `first` on.
KG_DEV void emit_quads(args_t a, const segment_t &g, row_t row, u32 slot, u8 *lds, int place,
                       int first, const acc_t (&o)[O_TILES], float factor) {
    constexpr int LAST_DIMS = V_DIM - (V_SPLIT - 1) * SLICE_DIMS; // of a row's last slice
    constexpr int BATCH = O_TILES % 4 ? 1 : 4; // what lanes exchange waits for stores before it
    KG_UNROLL for (int begin = 0; begin < O_TILES; begin += BATCH) {
        float x[BATCH][4];
        int dim[BATCH];
        KG_UNROLL for (int i = 0; i < BATCH; i++) dim[i] =
            first + o_dim(begin + i, quad_of_tile(x[i], o[begin + i]));
        KG_UNROLL for (int i = 0; i < BATCH; i++) {
            bool inside = (begin + i + 1) * 16 <= LAST_DIMS || dim[i] < V_DIM;
            if (row.exists && inside)
                emit_quad(a, g, row, slot, lds, place, dim[i], x[i], [&] { return factor; });
        }
    }
}

// Each wave has rows of its own, with all their keys, and a slice of their dims.
// total_of(t): the lane's row of tile t. What lanes exchange waits for stores: sums go first.
template <class F>
KG_DEV void emit_own(const F &total_of, const acc_t (&o)[ROW_TILES][O_TILES], args_t a,
                     const segment_t &g, const role_t &role, u32 slot, u8 *lds) {
    sums_t total[ROW_TILES];
    float factor[ROW_TILES];
    int first = role.row + lane_column((int)late_lane(), 0);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        row_t row = row_at(g, first + t * NI);
        total[t] = total_of(t);
        factor[t] = row.exists ? factor_of_row(a, g, row, total[t]) : 0.0f;
    }
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        if (!row_exists(g, role.row + t * NI)) break;
        int place = first + t * NI;
        row_t row = row_at(g, place);
        if (STORES_WHOLE && is_whole(g))
            store_whole(a, row, o[t], factor[t]);
        else
            emit_quads(a, g, row, slot, lds, place, role.v * SLICE_DIMS, o[t], factor[t]);
        if (row.exists && role.v == 0 && is_speaker((int)late_lane()))
            emit_sum(a, g, row, slot, lds, place, total[t]);
    }
}

// --- the whole way ----------------------------------------------------------

// sm_90: in rounds of as many row tiles as LDS has room for.
KG_DEV void emit_at_once(const float (&m)[ROW_TILES][COLS], const float (&l)[ROW_TILES][COLS],
                         const acc_t (&o)[ROW_TILES][O_TILES], args_t a, const segment_t &g,
                         const role_t &role, u32 slot, u8 *lds, int wave) {
    constexpr int TILES = ceil_div(ROUND_COLS, NI);
    note_sums(m, l, sums_at(lds, role), rows_of_keys(role), role, (int)late_lane());
    if constexpr (KEY_QUEUE != 0) barrier(); // where others' blocks lie values are put
    KG_UNROLL for (int first = 0; first < WAVE_ROWS; first += ROUND_COLS) {
        if (!row_exists(g, first)) continue;
        KG_UNROLL for (int round = 0; round < ROUNDS; round++) {
            KG_UNROLL for (int t = first / NI; t < first / NI + TILES; t++)
                write_round(o[t], lds, wave, round, first - t * NI);
            barrier();
            emit_weighed(a, g, role, slot, lds, round, first);
            barrier();
        }
    }
}

// Waves that share their rows meet in rounds of some columns and value dims.
KG_DEV void emit_together(float (&m)[ROW_TILES][COLS], float (&l)[ROW_TILES][COLS],
                          acc_t (&o)[ROW_TILES][O_TILES], args_t a, const segment_t &g,
                          const role_t &role, u32 slot, u8 *lds, int wave) {
    if constexpr (IS_SM90) return emit_at_once(m, l, o, a, g, role, slot, lds, wave);
    meet_sums(m, l, o, lds, role);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
        KG_UNROLL for (int cols = 0; cols < NI; cols += ROUND_COLS) {
        if (!row_exists(g, t * NI + cols)) continue;
        KG_UNROLL for (int round = 0; round < ROUNDS; round++) {
            write_round(o[t], lds, wave, round, cols);
            barrier();
            emit_round(a, g, role, slot, lds, round, t * NI + cols);
            barrier();
        }
    }
    emit_sums(a, g, slot, lds);
}

// The workgroup's part of an item is where others find it, or final: who comes last merges.
KG_DEV void settle_item(args_t a, const segment_t &g, cut_t cut, u8 *lds, int wave) {
    if (RUNS_AHEAD && g.whole) return; // groups of waves need not meet
    if (RUNS_AHEAD && has_few_rows(g)) return settle_few(a, g, cut, lds, wave);
    arrival_t how = ARRIVED;
    share_t share = {0, 0};
    wave = merging(wave);
    if (!g.whole) {
        share = share_of(a, cut, g);
        if (merge_together(parts_of(share)))
            how = settle_together(a, g, cut, share, counter_of(a, g, share), lds, wave);
        else
            how = arrive(a, g, share, lds);
        if (how != ARRIVED)
            merge_parts(a, g, cut, share, wave, how == ARRIVED_LAST ? 0.0f : float_of(0x7fc00000),
                        lds);
        if (how == ARRIVED_AMISS && late_thread() == 0) report_workspace(a, g.seq.index);
    }
    if constexpr (PARKS_SEGMENT) share.first = parked(share.first);
    if constexpr (CASCADE)
        if (is_joined(g) && (g.whole || how != ARRIVED)) join(a, g, lds, wave);
    if constexpr (PARKS_SEGMENT) share.first = fetched(share.first);
    meet_rows();
    // After all has been read: who else counts here until then is noticed.
    if (how == ARRIVED_LAST && late_thread() == 0)
        store(counter_of(a, g, share), COUNTER_AT_REST<u64>);
}

// A cluster's part is settled when it goes on (kg/attn/attn_run.h).
KG_DEV void finish_item(args_t a, const segment_t &g, cut_t cut, u8 *lds, int wave) {
    if constexpr (CLUSTER != 0)
        merge_in_cluster(a, g, partial_slot(cut, part_of(cut), g.item_start), lds, wave);
    else
        settle_item(a, g, cut, lds, wave);
}

KG_DEV void reduce_and_store(float (&m)[ROW_TILES][COLS], float (&l)[ROW_TILES][COLS],
                             acc_t (&o)[ROW_TILES][O_TILES], args_t a, const segment_t &g,
                             cut_t cut, u8 *lds, int wave) {
    wave = (int)opaque_uniform((u32)wave); // nothing of it is worked out before the key loop
    cut.each = opaque_uniform(cut.each);
    u32 part = PARTED || is_drawn(cut)    ? g.part
               : CASCADE || BY_LINES != 0 ? opaque_uniform(part_of(cut))
                                          : part_of(cut);
    u32 slot = partial_slot(cut, part, g.item_start);
    role_t role = role_of(g, wave);
    if constexpr (SENDS) await_inboxes();
    if constexpr (BY_MATRICES)
        emit_own([&](int t) { return sums_t{m[t][0], column_sum(l[t][0])}; }, o, a, g, role, slot,
                 lds);
    else
        emit_together(m, l, o, a, g, role, slot, lds, wave);
    finish_item(a, g, cut, lds, wave);
}

// --- rows that nobody computes, and what is wrong with the inputs ------------

// Tokens first .. end - 1: zeros, lse -inf. `wave` of `waves`.
KG_DEV void clear_tokens(args_t a, int first, int end, i64 wave, i64 waves) {
    int heads = a.kv_heads * GROUP;
    const float zero[4] = {0, 0, 0, 0};
    i64 rows = (i64)(end - first) * heads;
    KG_LOOP for (i64 n = wave; n < rows; n += waves) {
        row_t row = {true, first + (int)(n / heads), (int)(n % heads)};
        KG_LOOP for (int dim = (int)late_lane() * 4; dim < V_DIM; dim += WAVE * 4)
            store_out(a, row, dim, zero);
        if (late_lane() == 0) store_lse(a, row, sums_t{-INFINITE, 0.0f});
    }
}

KG_DEV i64 page_in(const u8 *row, int index) {
    return TABLE_I64 ? load((const i64 *)row + index) : load((const i32 *)row + index);
}
KG_DEV bool is_page(args_t a, const u8 *row, int index) {
    i64 page = page_in(row, index);
    return (SPARSE || page >= 0) && page <= a.last_page; // a list says below 0: none
}

// A wave looks at the pages that a sequence uses.
KG_DEV int page_errors(args_t a, const seq_t &s) {
    if constexpr (DENSE) return 0;
    keys_t keys = {s.first_key, s.kv_len - 1, nullptr, a.page, a.last_page, a.page_magic, 0, 0};
    const u8 *row = table_of(a, s.index);
    bool bad = false;
    int end = s.kv_len > 0 ? page_index(keys, keys.last) + 1 : 0;
    int first = CASCADE ? 0 : page_index(keys, s.first_key), kept = 0;
    if constexpr (KEEP != 0) kept = page_index(keys, keep_of(a) - 1) + 1;
    KG_LOOP for (int n = (kept ? 0 : first) + (int)late_lane(); n < end;
                 n += WAVE) if (n < kept || n >= first) bad |= !is_page(a, row, n);
    return any(bad) ? BAD_PAGE : 0;
}

// A sequence of a group has the pages of its prefix, and those of its first sequence.
KG_DEV int prefix_errors(args_t a, const seq_t &s, const extent_t &e) {
    if (a.num_prefixes < 1 || e.count == 0) return 0;
    group_t g = group_at(a, e.group);
    if (!is_member(g, s.index) || load(a.prefix_lens + e.group) == 0) return 0;
    if (e.shared == 0 && g.keys != 0) return BAD_PREFIX;
    keys_t keys = {0, g.keys - 1, nullptr, a.page, a.last_page, a.page_magic, 0, 0};
    const u8 *row = table_of(a, s.index), *first = table_of(a, g.first);
    int end = g.keys > 0 ? page_index(keys, keys.last) + 1 : 0;
    bool bad = false;
    KG_LOOP for (int n = (int)late_lane(); n < end; n += WAVE) bad |=
        page_in(row, n) != page_in(first, n);
    return any(bad) ? BAD_PREFIX : 0;
}

KG_DEV void report(args_t a, const seq_t &s, const extent_t &e) {
    int bits = !UNBOUNDED && e.count > Q_TOKENS ? BAD_TOKENS : 0;
    int length = length_of(a, s.index);
    if (DENSE ? length < 0 : length > keys_held(a, s.index)) bits |= BAD_LENGTH;
    if constexpr (RAGGED) {
        int first = offset_of(a, s.index, 0), end = offset_of(a, s.index, 1);
        if (first < 0 || end < first || end > a.num_tokens) bits |= BAD_ROWS;
    }
    bits |= page_errors(a, s);
    if constexpr (CASCADE) bits |= prefix_errors(a, s, e);
    if (bits && late_lane() == 0) atomic_or(a.error + s.index, bits);
}

// Each wave of all has some of the sequences: tokens past those that are computed. part: the
// workgroup's number.
// Then tokens past the last sequence.
KG_DEV void finish(args_t a, u32 part) {
    i64 wave = (i64)part * MEETING_WAVES + wave_id(), waves = (i64)a.workgroups * MEETING_WAVES;
    if (!RAGGED && !a.error) return;
    KG_LOOP for (i64 n = wave; n < a.num_seqs; n += waves) {
        extent_t e = extent_of(a, CASCADE ? (int)opaque((u32)n) : (int)n);
        if constexpr (RAGGED && !UNBOUNDED)
            clear_tokens(a, e.start + smaller(Q_TOKENS, e.count), e.start + e.count, 0, 1);
        int line = CASCADE ? a.num_prefixes + (int)n : (int)n;
        if (a.error) report(a, seq_from(a, line, e), e);
    }
    if constexpr (RAGGED) {
        int used = offset_of(a, a.num_seqs, 0);
        int before = a.num_seqs ? offset_of(a, a.num_seqs, -1) : 0;
        // An end before all tokens says nothing of those behind it.
        if (used >= larger(before, 0)) clear_tokens(a, used, a.num_tokens, wave, waves);
    }
}

} // namespace kg

// From the waves' accumulators to the output: waves meet in LDS, workgroups in
// the workspace, where the last to arrive merges and puts the counter back.
#pragma once
#include "kg/attn/softmax.h"
#include "kg/core/arrival.h"

namespace kg {

// Ids that the optimiser cannot compute from before the key loop: what it would
// hoist from here would sit in registers all through it.
KG_DEV u32 late_lane() { return opaque(lane_id()); }
KG_DEV u32 late_thread() { return opaque(thread_id()); }

constexpr int ALL_WAVES = WAVES * V_SPLIT;

constexpr int LEAST_TILES = PACKED ? 1 : CHUNK_TILES;
constexpr kg_attn_lds LDS = kg_attn_lds_of(Q_LDS_BYTES, WAVES, V_SPLIT, WAVE_ROWS, ROWS, O_TILES,
                                           LEAST_TILES, kg_attn_round_most(IS_SM90));
constexpr int ROUND_COLS = LDS.round_columns;
constexpr int ROUND_TILES = LDS.round_tiles;
constexpr int ROUND_DIMS = ROUND_TILES * 16;
constexpr int ROUND_STRIDE = ROUND_DIMS + KG_ATTN_ROUND_PAD; // floats between columns
constexpr int ROUNDS = O_TILES / ROUND_TILES;

constexpr int LDS_ML = LDS.sums;      // [waves with the same rows][rows] maximum, sum
constexpr int LDS_TOTAL = LDS.totals; // [ROWS] maximum, sum
constexpr int LDS_FLAG = LDS.flag;
constexpr int LDS_O = LDS.round; // [ALL_WAVES][ROUND_COLS][ROUND_STRIDE]
// A stage is done with when waves meet, but for what they say of their rows.
constexpr int LDS_STAGE = LDS.round;
constexpr int LDS_USED = larger(LDS.bytes, LDS_STAGE + STAGE_BYTES);
static_assert(LDS_USED <= KG_LDS_BYTES, "workgroup needs more LDS than the target has");

struct sums_t {
    float maximum, sum;
};
struct alignas(16) quad_t {
    float x[4];
}; // LDS in 16-byte accesses

// exp2(m - top), 0 for rows that saw nothing
KG_DEV float weight(float m, float top) { return m == -INFINITE ? 0.0f : exp2(m - top); }

KG_DEV void add_sums(sums_t &total, sums_t part) {
    float top = fmax(total.maximum, part.maximum);
    total.sum = total.sum * weight(total.maximum, top) + part.sum * weight(part.maximum, top);
    total.maximum = top;
}

// --- output -----------------------------------------------------------------

struct row_t {
    bool exists;
    int token, head; // of the batch
};

KG_DEV row_t row_at(const segment_t &g, int row) {
    int at = g.row_block * ROWS + row;
    return row_t{row_exists(g, row), g.seq.q_start + at / GROUP, g.kv_head * GROUP + at % GROUP};
}

// The sink enters once, here; rows that see no key stay empty.
KG_DEV void add_sink(sums_t &total, args_t a, int head) {
    if constexpr (SINKS != 0)
        if (total.maximum != -INFINITE) add_sums(total, sums_t{load(a.sinks + head) * LOG2E, 1.0f});
}

// What accumulators relative to `top` are multiplied by.
KG_DEV float output_factor(sums_t total, float top, args_t a, const segment_t &g) {
    if (!(total.sum > 0.0f) && total.sum == total.sum) return 0.0f;
    float factor = weight(top, total.maximum) / total.sum;
    factor *= head_descale(a.v_descale, a.v_descale_stride, g);
    if constexpr (OUT_8BIT) factor /= load(a.out_scale);
    return factor;
}

KG_DEV void store_out(args_t a, row_t row, int dim, const float (&x)[4]) {
    u8 *p = (u8 *)a.out + row.token * a.out_token + row.head * a.out_head;
    if constexpr (OUT_DTYPE == DTYPE_F32) {
        KG_UNROLL for (int j = 0; j < 4; j++) store((float *)p + dim + j, x[j]);
        return;
    }
    u32 lo = pack_out(x[0], x[1]), hi = pack_out(x[2], x[3]);
    if constexpr (OUT_8BIT)
        store((u32 *)(p + dim), lo | hi << 16);
    else {
        store((u32 *)(p + dim * 2), lo);
        store((u32 *)(p + dim * 2 + 4), hi);
    }
}

// Last of all: what is merged is not gated yet. A row without keys stays zero whatever
// its gate holds.
KG_DEV void gate_out(args_t a, row_t row, int dim, float (&x)[4]) {
    if constexpr (GATE != 0) {
        constexpr int WORDS = GATE == DTYPE_F32 ? 4 : 2;
        const u8 *p = (const u8 *)a.gate + row.token * a.gate_token + row.head * a.gate_head;
        u32 w[WORDS];
        load_words(w, p + dim * WORDS);
        KG_UNROLL for (int j = 0; j < 4; j++) {
            u32 half = w[j * WORDS / 4] >> (WORDS == 2 ? j % 2 * 16 : 0);
            float gate = GATE == DTYPE_F32    ? float_of(half)
                         : GATE == DTYPE_FP16 ? f16_to_f32(half & 0xffffu)
                                              : bf16_to_f32(half & 0xffffu);
            float open = rcp(1.0f + exp2(-LOG2E * gate));
            x[j] = x[j] == 0.0f ? 0.0f : x[j] * open;
        }
    }
}

KG_DEV void store_lse(args_t a, row_t row, sums_t total) {
    if constexpr (LSE != 0) {
        bool empty = total.maximum == -INFINITE;
        int outer = LSE == LSE_TH ? row.token : row.head;
        int inner = LSE == LSE_TH ? row.head : row.token;
        store(a.lse + outer * a.lse_row + inner,
              empty ? -INFINITE : (total.maximum + log2(total.sum)) * LN2);
    }
}

// --- waves ------------------------------------------------------------------

KG_DEV float *partial_row(args_t a, u32 slot, int row) {
    return a.partial_out + ((u64)slot * ROWS + (u64)row) * V_DIM;
}
KG_DEV sums_t *partial_sums(args_t a, u32 slot) {
    return (sums_t *)a.partial_ml + (u64)slot * ROWS;
}

// Publishes the waves' sums, brings every accumulator to the common maximum.
KG_DEV void meet_sums(float (&m)[ROW_TILES][COLS], float (&l)[ROW_TILES][COLS],
                      acc_t (&o)[ROW_TILES][O_TILES], u8 *lds, const role_t &role) {
    int lane = (int)late_lane(), rows = WAVES / role.keys * WAVE_ROWS;
    bool speaks = lane < NI / COLS; // one lane for each column
    int speaker = role.key * V_SPLIT + role.v;
    sums_t *total = (sums_t *)(lds + LDS_TOTAL) + role.row;
    sums_t *ml = (sums_t *)(lds + LDS_ML) + role.row;
    if constexpr (!UNBOUNDED) rows = ROWS;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        float sum = column_sum(l[t][c]);
        if (role.v == 0 && speaks)
            ml[role.key * rows + t * NI + lane_column(lane, c)] = sums_t{m[t][c], sum};
    }
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

// A lane's accumulators of one column and chunk are adjacent dims: stored four
// at a time.
KG_DEV void write_chunk(const acc_t *o, float *mine, int chunk, int cols) {
    int lane = (int)late_lane();
    KG_UNROLL for (int line = 0; line < O_REGS / VROWS; line++) {
        int column = lane_column(lane, line % COLS) - cols;
        float *to = mine + column * ROUND_STRIDE + o_dim(chunk * CHUNK_TILES, o_row(lane, line));
        if (column < 0 || column >= ROUND_COLS) continue;
        KG_UNROLL for (int dim = 0; dim < V_LANE_DIMS; dim += 4) {
            quad_t quad;
            KG_UNROLL for (int j = 0; j < 4; j++) quad.x[j] =
                o[chunk * CHUNK_TILES + (dim + j) / VROWS][line + (dim + j) % VROWS * COLS];
            *(quad_t *)(to + dim) = quad;
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
    if constexpr (PACKED)
        KG_UNROLL for (int n = 0; n < ROUND_TILES; n++) write_tile(from[n], mine, n, cols);
    else
        KG_UNROLL for (int n = 0; n < ROUND_TILES / CHUNK_TILES; n++)
            write_chunk(from, mine, n, cols);
}

// Of the `keys` waves with the same rows, the first of which is `first`.
KG_DEV void sum_waves(float (&x)[4], const u8 *lds, int first, int keys, int column, int v_wave,
                      int dim) {
    KG_UNROLL for (int j = 0; j < 4; j++) x[j] = 0;
    KG_UNROLL for (int w = 0; w < WAVES; w++) {
        if (w >= keys) break;
        const float *from =
            (const float *)(lds + LDS_O) +
            (((first + w) * V_SPLIT + v_wave) * ROUND_COLS + column) * ROUND_STRIDE + dim;
        quad_t quad = *(const quad_t *)from;
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] += quad.x[j];
    }
}

// Reads what the waves wrote in a round; final output or partial result.
KG_DEV void emit_round(args_t a, const segment_t &g, const role_t &role, u32 slot, const u8 *lds,
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
        if (!g.whole) {
            store_words(partial_row(a, slot, place) + out_dim, x);
            continue;
        }
        sums_t total = totals[place];
        float top = total.maximum;
        add_sink(total, a, row.head);
        float factor = output_factor(total, top, a, g);
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] = factor == 0.0f ? 0.0f : x[j] * factor;
        gate_out(a, row, out_dim, x);
        store_out(a, row, out_dim, x);
    }
}

KG_DEV void emit_sums(args_t a, const segment_t &g, u32 slot, const u8 *lds) {
    const sums_t *totals = (const sums_t *)(lds + LDS_TOTAL);
    KG_LOOP for (int n = (int)late_thread(); n < ROWS; n += KG_WORKGROUP) {
        row_t row = row_at(g, n);
        sums_t total = totals[n];
        if (!row.exists) continue;
        if (!g.whole) {
            store(&partial_sums(a, slot)[n].maximum, total.maximum);
            store(&partial_sums(a, slot)[n].sum, total.sum);
            continue;
        }
        add_sink(total, a, row.head);
        store_lse(a, row, total);
    }
}

// --- workgroups -------------------------------------------------------------

// Where items are without number, that of the first workgroup to share it: it has one
// item that it begins and does not end.
KG_DEV u64 *counter_of(args_t a, const segment_t &g, share_t share) {
    if constexpr (UNBOUNDED) return a.workspace->arrived + share.first;
    return a.workspace->arrived + ((i64)g.seq.index * a.kv_heads + g.kv_head) * ROW_BLOCKS +
           g.row_block;
}

// Each workgroup says whose launch it is. Where launches overlap, those that did
// not say so last find it out.
KG_DEV void take_workspace(args_t a) {
    if (thread_id() == 0) atomic_store(&a.workspace->owner, a.ticket);
}

KG_DEV arrival_t arrive(args_t a, const segment_t &g, share_t share, u8 *lds) {
    int *flag = (int *)(lds + LDS_FLAG);
    release_device();
    barrier();
    if (late_thread() == 0) {
        u32 owner = atomic_load(&a.workspace->owner);
        u64 before = atomic_add(counter_of(a, g, share), counted<u64>(a.ticket));
        arrival_t how = arrival_of(before, a.ticket, share.last - share.first + 1);
        *flag = owner == a.ticket ? how : ARRIVED_AMISS;
    }
    barrier();
    arrival_t how = (arrival_t)*flag;
    acquire_device();
    return how;
}

KG_DEV void report_workspace(args_t a, const segment_t &g) {
    if (late_thread() != 0) return;
    call_broken(a.workspace);
    if (a.error) atomic_or(a.error + g.seq.index, BAD_WORKSPACE);
}

// The sums of one row in `count` parts, one part a lane.
KG_DEV sums_t load_sums(args_t a, cut_t cut, u32 part, u32 count, u32 item_start, int row) {
    sums_t none = {-INFINITE, 0.0f};
    if (late_lane() >= count) return none;
    const sums_t *p = partial_sums(a, partial_slot(cut, part + late_lane(), item_start)) + row;
    return sums_t{load_shared(&p->maximum), load_shared(&p->sum)};
}

KG_DEV sums_t total_of(sums_t mine) {
    KG_UNROLL for (u32 m = 1; m < (u32)WAVE; m *= 2) {
        u32 from = late_lane() ^ m;
        sums_t other = {float_of(shuffle(bits_of(mine.maximum), from)),
                        float_of(shuffle(bits_of(mine.sum), from))};
        add_sums(mine, other);
    }
    return mine;
}

// x = sum of weight x partial row over `count` parts; lane n has the weight of
// part n. All loads of a batch are in flight before the first is used.
constexpr u32 MERGE_BATCH = IS_SM90 && OCCUPANCY == 1 ? 16 : 8;
KG_DEV void add_parts(float (&x)[4], args_t a, cut_t cut, u32 part, u32 count, u32 item_start,
                      int row, int dim, float weight_of_lane) {
    KG_LOOP for (u32 n = 0; n < count; n += MERGE_BATCH) {
        float y[MERGE_BATCH][4];
        KG_UNROLL for (u32 j = 0; j < MERGE_BATCH; j++) {
            u32 at = part + (n + j < count ? n + j : count - 1);
            load_shared(y[j], partial_row(a, partial_slot(cut, at, item_start), row) + dim);
        }
        KG_UNROLL for (u32 j = 0; j < MERGE_BATCH; j++) {
            float w = float_of(shuffle(bits_of(weight_of_lane), n + j < WAVE ? n + j : 0));
            w = n + j < count ? w : 0.0f;
            KG_UNROLL for (int i = 0; i < 4; i++) x[i] += w == 0.0f ? 0.0f : w * y[j][i];
        }
    }
}

// A wave merges one row: parts in batches of a wave, dims four a lane. amiss: 0, or
// NaN, which everything then is.
KG_DEV void merge_row(args_t a, const segment_t &g, cut_t cut, share_t share, int row, row_t at,
                      float amiss) {
    sums_t total = {-INFINITE, 0.0f}, mine = total;
    u32 parts = share.last - share.first + 1;
    KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
        mine = load_sums(a, cut, share.first + n, parts - n, g.item_start, row);
        add_sums(total, mine);
    }
    total = total_of(total);
    total.maximum += amiss;
    float top = total.maximum;
    add_sink(total, a, at.head);
    float factor = output_factor(total, top, a, g);
    KG_LOOP for (int dims = 0; dims < V_DIM; dims += WAVE * 4) {
        int dim = dims + (int)late_lane() * 4, safe = dim < V_DIM ? dim : 0;
        float x[4] = {0, 0, 0, 0};
        KG_LOOP for (u32 n = 0; n < parts; n += WAVE) {
            u32 count = parts - n < (u32)WAVE ? parts - n : (u32)WAVE;
            if (parts > (u32)WAVE)
                mine = load_sums(a, cut, share.first + n, count, g.item_start, row);
            add_parts(x, a, cut, share.first + n, count, g.item_start, row, safe,
                      weight(mine.maximum, top));
        }
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] = factor == 0.0f ? 0.0f : x[j] * factor;
        if (dim >= V_DIM) continue;
        gate_out(a, at, dim, x);
        store_out(a, at, dim, x);
    }
    if (late_lane() == 0) store_lse(a, at, total);
}

KG_DEV void merge_parts(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                        float amiss) {
    KG_LOOP for (int row = wave; row < ROWS; row += ALL_WAVES) {
        row_t at = row_at(g, row);
        if (at.exists) merge_row(a, g, cut, share, row, at, amiss);
    }
}

// --- the whole way ----------------------------------------------------------

KG_DEV void reduce_and_store(float (&m)[ROW_TILES][COLS], float (&l)[ROW_TILES][COLS],
                             acc_t (&o)[ROW_TILES][O_TILES], args_t a, const segment_t &g,
                             cut_t cut, u8 *lds, int wave) {
    wave = (int)opaque_uniform((u32)wave); // nothing of it is worked out before the key loop
    cut.each = opaque_uniform(cut.each);
    u32 slot = partial_slot(cut, group_id(), g.item_start);
    role_t role = role_of(g, wave);
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
    arrival_t how = ARRIVED;
    share_t share = {0, 0};
    if (!g.whole) {
        share = share_of(cut, g);
        how = arrive(a, g, share, lds);
        if (how != ARRIVED)
            merge_parts(a, g, cut, share, wave, how == ARRIVED_LAST ? 0.0f : float_of(0x7fc00000));
        if (how == ARRIVED_AMISS) report_workspace(a, g);
    }
    barrier();
    // After all has been read: who else counts here until then is noticed.
    if (how == ARRIVED_LAST && late_thread() == 0)
        store(counter_of(a, g, share), COUNTER_AT_REST<u64>);
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

KG_DEV bool is_page(args_t a, const u8 *row, int index) {
    i64 page = TABLE_I64 ? load((const i64 *)row + index) : load((const i32 *)row + index);
    return page >= 0 && page <= a.last_page;
}

// A wave looks at the pages that a sequence uses.
KG_DEV int page_errors(args_t a, const seq_t &s) {
    if constexpr (DENSE) return 0;
    keys_t keys = {s.first_key, s.kv_len - 1, nullptr, a.page, a.last_page, a.page_magic, 0, 0};
    const u8 *row = table_of(a, s.index);
    bool bad = false;
    int end = s.kv_len > 0 ? page_index(keys, keys.last) + 1 : 0;
    int first = page_index(keys, s.first_key), kept = 0;
    if constexpr (KEEP != 0) kept = page_index(keys, keep_of(a) - 1) + 1;
    KG_LOOP for (int n = (kept ? 0 : first) + (int)late_lane(); n < end;
                 n += WAVE) if (n < kept || n >= first) bad |= !is_page(a, row, n);
    return any(bad) ? BAD_PAGE : 0;
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
    if (bits && late_lane() == 0) atomic_or(a.error + s.index, bits);
}

// Each wave of all has some of the sequences: tokens past those that are computed.
// Then tokens past the last sequence.
KG_DEV void finish(args_t a) {
    i64 wave = (i64)group_id() * ALL_WAVES + wave_id(), waves = (i64)a.workgroups * ALL_WAVES;
    if (!RAGGED && !a.error) return;
    KG_LOOP for (i64 n = wave; n < a.num_seqs; n += waves) {
        extent_t e = extent_of(a, (int)n);
        if constexpr (RAGGED && !UNBOUNDED)
            clear_tokens(a, e.start + smaller(Q_TOKENS, e.count), e.start + e.count, 0, 1);
        if (a.error) report(a, seq_from(a, (int)n, e), e);
    }
    if constexpr (RAGGED) {
        int used = offset_of(a, a.num_seqs, 0);
        int before = a.num_seqs ? offset_of(a, a.num_seqs, -1) : 0;
        if (used >= before) clear_tokens(a, larger(used, 0), a.num_tokens, wave, waves);
    }
}

} // namespace kg

// Latent attention on sm_90: rows of sets of keys lie in LDS as matrices, of which groups of four
// waves multiply. The first group works out scores, the second brings keys, and both weigh values.
//
//   S^T = K Q^T        keys are the 64 rows of a product, query rows its columns: there are as many
//                      as the workgroup has, in steps of 8
//   P = exp2(S - m)    each wave of the first group has a block of keys; P goes through LDS
//   O^T += V^T P^T     64 columns of values are the rows of a product, from the same LDS
//
// so the units do no work for heads that are not there, and memory has a set to bring all the time.
#pragma once
#include "kg/attn/attn_run.h"
#include "kg/mla/mla_operands_nvidia.h"

namespace kg {

typedef float judged_t[ROW_TILES][S_REGS];

// --- LDS ---------------------------------------------------------------------------

constexpr int SETS_AT = STAGE.queries, P_AT = SETS_AT + SLOTS * SET_BYTES,
              SUMS_AT = P_AT + STAGE.weights;
static_assert(STAGE.bytes == STAGE_BYTES, "as gen/ counts it");

constexpr int READ_SLOTS = BRINGERS ? KG_MLA_SLOTS : 0;

// What waves say of rows lies before the stage: tops of the first group's waves where sums will
// be; what sums are multiplied with; what queries were divided by; whose tops have risen.
struct said_t {
    float *tops, *alpha, *up;
    sums_t *totals; // when all is done, in place of the last two
    u32 *risen;
    segment_t *segment; // waits, while registers are short
    gate_t *there;      // copies of each slot
    gate_t *read;       // BRINGERS: and who has read them
    u32 *rows;          // ... and which of a block's rows there are
};
KG_DEV said_t said_in(u8 *lds) {
    float *rest = (float *)(lds + LDS.round);
    u32 *risen = (u32 *)(rest + 2 * ROWS);
    gate_t *there = (gate_t *)(risen + 4), *read = there + KG_MLA_SLOTS;
    u32 *rows = (u32 *)(read + READ_SLOTS);
    return said_t{(float *)lds,   rest,  rest + ROWS,
                  (sums_t *)rest, risen, (segment_t *)(rows + 2 * READ_SLOTS),
                  there,          read,  rows};
}
static_assert(LDS.round + ROWS * 8 + 16 + KG_MLA_SLOTS * 8 + READ_SLOTS * 16 +
                      (int)sizeof(segment_t) <=
                  LDS_STAGE,
              "room there");
static_assert(LDS.flag >= ROWS * 16, "tops of four waves");

// --- queries ------------------------------------------------------------------------

// Of 8 columns of a row, as they are.
KG_DEV u32 offset_of_columns(int row, u32 piece) {
    return piece / 8 * Q_MATRIX + (u32)row * 128 + (piece ^ (u32)row) % 8 * 16;
}
KG_DEV void put_columns(u8 *queries, int row, u32 piece, const u32 *w) {
    if (CODES && (!BLOCKED || (int)piece * 8 < V_DIM))
        return put_turned_columns(queries, row, piece, w);
    *(line_t *)(queries + offset_of_columns(row, piece)) = line_t{{w[0], w[1], w[2], w[3]}};
}

// Row tile `t`, by one wave.
KG_DEV void put_queries(u8 *queries, const said_t &said, args_t a, const segment_t &g, int t) {
    u32 w[K_CHUNKS][Q_WORDS];
    int lane = (int)opaque(lane_id()), row = t * NI + lane_i(lane);
    load_q_row(w, a, g, row, 0);
    if constexpr (SCALED_Q) {
        float up = q_to_f16(w);
        if (lane_grp(lane) == 0) said.up[row] = up;
    }
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) KG_UNROLL for (int n = 0; n < Q_WORDS; n += 4) {
        u32 piece = (u32)(c * K_DIMS + lane_grp(lane) * QX) / 8 + (u32)n / 4;
        if ((int)piece * 8 < HEAD_DIM) put_columns(queries, row, piece, w[c] + n);
    }
}

// Of 64 rows, as they are, some by each wave: past the registers, while pages are looked up.
constexpr bool COPIES_Q = PAIRED && !SCALED_Q;
KG_DEV void copy_queries(u8 *queries, args_t a, const segment_t &g, int wave) {
    constexpr int Q_PIECES = HEAD_DIM / 8, EACH = ROWS / ALL_WAVES;
    KG_LOOP for (int row = wave * EACH; row < (wave + 1) * EACH; row++) {
        const u8 *from = q_row(a, g, row);
        bool exists = row_exists(g, row);
        KG_UNROLL for (int n = 0; n < Q_PIECES; n += WAVE) {
            int piece = n + (int)lane_id();
            if (piece >= Q_PIECES) break;
            u8 *to = queries + offset_of_columns(row, (u32)piece);
            if (exists)
                copy_16(to, from + piece * 16);
            else
                *(line_t *)to = line_t{};
        }
    }
    copies_end();
}

// --- products -----------------------------------------------------------------------

KG_DEV void score_set(acc_t (&s)[ROW_TILES][1], const u8 *set, const u8 *queries) {
    matrix_t keys = matrix_at(set), rows = matrix_at(queries);
    products_begin();
    KG_UNROLL for (int step = 0; step < HEAD_DIM / 16; step++) multiply_rows_of<false>(
        s, 0, further(keys, (u32)(step / 4 * MATRIX_OF_SET + step % 4 * 32)),
        further(rows, (u32)(step / 4 * Q_MATRIX + step % 4 * 32)), step != 0);
    products_end();
}

KG_DEV void weigh_set(weighed_t &o, const u8 *set, const u8 *p, int group) {
    matrix_t weights = matrix_at(p);
    products_begin();
    KG_UNROLL for (int n = 0; n < V_TILES; n++) {
        matrix_t values = matrix_at(set + matrix_of_values(group, n) * MATRIX_OF_SET);
        KG_UNROLL for (int b = 0; b < SET_BLOCKS_OF; b++)
            multiply_rows_of<true>(o, n, further(values, (u32)(b * TOK * 128)),
                                   further(weights, (u32)(b * TOK * 2)), true);
    }
    products_end();
    products_done<0>();
    settle_tiles(o);
}
KG_DEV void weigh(weighed_t &o, const u8 *set, const u8 *p, int group, int part) {
    if constexpr (THROUGH_REGISTERS)
        weigh_through_registers(o, set, p, group, part);
    else
        weigh_set(o, set, p, group);
}

// --- scores to probabilities -----------------------------------------------------------

// Scores of the wave's block, the one at `start`. exists: in the segment.
KG_DEV void judge(judged_t &s, const acc_t (&dots)[ROW_TILES][1], const head_t &head,
                  const keys_t &keys, const said_t &said, int start, bool exists,
                  const bool (&there)[KROWS]) {
    const token_scale_t none = {};
    int lane = (int)lane_id();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        scale_scores(s[t], dots[t][0], head, t, start, none);
        if constexpr (SCALED_Q)
            KG_UNROLL for (int r = 0; r < S_REGS; r++) s[t][r] *=
                said.up[t * NI + lane_column(lane, r % COLS)];
    }
    if (!SPARSE && exists && !is_edge(head, start, TOK)) return;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        mask_scores(s[t], head, t, start, keys);
        KG_UNROLL for (int r = 0; r < S_REGS; r++) s[t][r] =
            exists && there[r / COLS] ? s[t][r] : -INFINITE;
    }
}

// Whether some score of the wave makes a maximum rise.
KG_DEV bool exceeds_any(const judged_t &s, const column_t &m) {
    bool exceeds = false;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        float top[COLS];
        KG_UNROLL for (int c = 0; c < COLS; c++) top[c] = s[t][c];
        exceeds |= find_tops(top, m, t, s[t]);
    }
    return any(exceeds);
}

KG_DEV void say_tops(const judged_t &s, const said_t &said, int part) {
    int lane = (int)lane_id();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        float top[COLS];
        KG_UNROLL for (int c = 0; c < COLS; c++) top[c] = s[t][c];
        raise_tops(top, s[t]);
        KG_UNROLL for (int c = 0; c < COLS; c++) {
            top[c] = column_max(top[c]);
            if (is_speaker(lane)) said.tops[part * ROWS + t * NI + lane_column(lane, c)] = top[c];
        }
    }
}
// All waves of the group find the same.
KG_DEV void raise_all(column_t &m, column_t &l, const said_t &said, int part) {
    int lane = (int)lane_id();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        int row = t * NI + lane_column(lane, c);
        float top = said.tops[row];
        KG_UNROLL for (int w = 1; w < 4; w++) top = fmax(top, said.tops[w * ROWS + row]);
        float alpha = raise_column(m[t][c], l[t][c], top);
        if (part == 0 && is_speaker(lane)) said.alpha[row] = alpha;
    }
}

KG_DEV void put_weights(u8 *p, const column_t &m, column_t &l, judged_t &s, int part) {
    u32 w[ROW_TILES][2];
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        scores_to_p(m, l, t, s[t]);
        KG_UNROLL for (int half = 0; half < 2; half++) w[t][half] =
            pack_compute(s[t][half * COLS], s[t][half * COLS + 1]);
    }
    put_turned(p, w, part);
    show_lds();
}

KG_DEV void scale_weighed(weighed_t &o, const said_t &said) {
    int lane = (int)lane_id();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        float alpha = said.alpha[t * NI + lane_column(lane, c)];
        KG_UNROLL for (int n = 0; n < V_TILES; n++) KG_UNROLL for (int r = c; r < O_REGS; r += COLS)
            o[t][n][r] *= alpha;
    }
}

// --- the way through a segment ----------------------------------------------------------

KG_DEV bool is_empty(const segment_t &g) { return g.block >= g.block_end || g.see.last < 0; }

// Whether the lane's keys of the block at `start` have a slot.
KG_DEV void look_for_slots(bool (&there)[KROWS], const keys_t &keys, int start) {
    KG_UNROLL for (int row = 0; row < KROWS; row++) {
        there[row] = true;
        if constexpr (SPARSE != 0)
            there[row] = page_number(keys, start + k_token(lane_i((int)lane_id()), row)) >= 0;
    }
}

KG_DEV bool any_risen(const said_t &said) {
    return (said.risen[0] | said.risen[1] | said.risen[2] | said.risen[3]) != 0;
}

// What the first group makes of a set, up to its scores.
KG_DEV void judge_set(judged_t &s, const column_t &m, const head_t &head, const keys_t &keys,
                      const said_t &said, const u8 *set, const u8 *queries, u8 *sums, int block,
                      int end, int group, int part) {
    acc_t dots[ROW_TILES][1];
    bool there[KROWS];
    int start = (block + part) * TOK;
    if constexpr (!THROUGH_REGISTERS) score_set(dots, set, queries);
    look_for_slots(there, keys, start);
    if constexpr (THROUGH_REGISTERS) {
        score_through_registers(dots, set, queries, sums, group, part);
        if (group != 0) return;
    } else {
        products_done<0>();
        settle_tiles(dots);
    }
    judge(s, dots, head, keys, said, start, block + part < end, there);
    bool exceeds = exceeds_any(s, m);
    if (lane_id() == 0) said.risen[part] = exceeds;
}

// Before the first set: queries, and the copies of as many as there is room for.
KG_DEV void start_segment(bringer_t &next, args_t a, const segment_t &g, const head_t &head,
                          const keys_t &keys, const said_t &said, u8 *stage, int wave) {
    if (thread_id() == 0) {
        KG_UNROLL for (int n = 0; n < SLOTS; n++) gate_begin(said.there + n, 4 * WAVE);
        if constexpr (BOXED) show_lds();
    }
    barrier();
    if (wave < 4) {
        KG_LOOP for (int t = wave; t < ROW_TILES; t += 4) put_queries(stage, said, a, g, t);
        show_lds();
    } else {
        next.page = page_of_lane(keys, next);
        read_map_of(a);
        KG_LOOP for (int n = 0; n < SLOTS; n++)
            bring_set(stage + SETS_AT + n * SET_BYTES, said.there + n, next, head, keys, a);
    }
    barrier();
}

// Both groups go through the segment together. The first waits for a set, whose weights it says
// before the other weighs values; the other then brings another set in its place.
KG_DEV void attend(column_t &m, column_t &l, weighed_t &o, args_t a, const segment_t &g,
                   const head_t &head, const keys_t &keys, u8 *lds, int wave) {
    if (is_empty(g)) return;
    u8 *stage = lds + LDS_STAGE, *p = stage + P_AT;
    said_t said = said_in(lds);
    int part = wave % 4, group = wave / 4, end = g.block_end;
    int first = INVARIANT ? g.block / SET_BLOCKS_OF * SET_BLOCKS_OF : g.block;
    bringer_t next = {first, end, part, 0};
    start_segment(next, a, g, head, keys, said, stage, wave);
    u32 slot = 0, time = 0; // that sets have been in it
    KG_LOOP for (int block = first; block < end; block += SET_BLOCKS_OF) {
        u8 *set = stage + SETS_AT + slot * SET_BYTES;
        judged_t s;
        bool judges = group == 0 || BOTH_SCORE;
        await_there(said.there + slot, time, judges);
        if (judges)
            judge_set(s, m, head, keys, said, set, stage, stage + SUMS_AT, block, end, group, part);
        meet_first(group == 0);
        if (group == 0 && any_risen(said)) {
            say_tops(s, said, part);
            meet_first(true);
            raise_all(m, l, said, part);
        }
        if (group == 0) put_weights(p, m, l, s, part);
        barrier(); // the weights are there
        if (any_risen(said)) scale_weighed(o, said);
        weigh(o, set, p, group, part);
        barrier(); // and have been read, with their set
        if (group != 0) bring_set(set, said.there + slot, next, head, keys, a);
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
        time += slot == 0;
    }
    if (thread_id() == 0) KG_UNROLL for (int n = 0; n < SLOTS; n++) gate_end(said.there + n);
}

// --- rows ----------------------------------------------------------------------------

// Rows meet in LDS, in place of the stage.
constexpr int ROW_FLOATS = PEER_STRIDE;
static_assert(ROWS * ROW_FLOATS * 4 <= STAGE_BYTES, "all rows at once");

KG_DEV void put_rows(float *rows, const weighed_t &o, int wave) {
    int lane = (int)late_lane(), group = wave / 4;
    KG_UNROLL for (int n = 0; n < V_TILES; n++) KG_UNROLL for (int r = 0; r < O_REGS; r++) {
        int dim = (group * V_TILES + n) * 64 + wave % 4 * 16 + o_column(lane, r);
        if (dim >= V_DIM) continue;
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
            rows[(t * NI + lane_column(lane, r % COLS)) * ROW_FLOATS + dim] = o[t][n][r];
    }
}
// Each wave of the first group has sums of its own keys.
KG_DEV void put_sums(const said_t &said, const column_t &l, int part) {
    int lane = (int)late_lane();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        float sum = column_sum(l[t][c]);
        if (is_speaker(lane)) said.tops[part * ROWS + t * NI + lane_column(lane, c)] = sum;
    }
}
KG_DEV void add_up(const said_t &said, const column_t &m) {
    int lane = (int)late_lane();
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        int row = t * NI + lane_column(lane, c);
        float sum = 0;
        KG_UNROLL for (int w = 0; w < 4; w++) sum += said.tops[w * ROWS + row];
        if (is_speaker(lane)) said.totals[row] = sums_t{m[t][c], sum};
    }
}

KG_DEV void emit_rows(args_t a, const segment_t &g, u32 slot, u8 *lds, const float *rows,
                      const said_t &said) {
    constexpr int QUADS = V_DIM / 4;
    int quads = CLUSTER && !SENDS ? 0 : ROWS * QUADS; // others of a cluster read them here
    KG_LOOP for (int n = (int)late_thread(); n < quads; n += KG_WORKGROUP) {
        int place = n / QUADS, dim = n % QUADS * 4;
        row_t row = row_at(g, place);
        if (!row.exists) break; // nor do those behind it
        quad_t quad = *(const quad_t *)(rows + place * ROW_FLOATS + dim);
        emit_quad(a, g, row, slot, lds, place, dim, quad.x,
                  [&] { return factor_of_row(a, g, row, said.totals[place]); });
    }
    KG_LOOP for (int n = (int)late_thread(); n < ROWS; n += KG_WORKGROUP) {
        row_t row = row_at(g, n);
        if (row.exists) emit_sum(a, g, row, slot, lds, n, said.totals[n]);
    }
}

KG_DEV void run_matrices(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    column_t m, l;
    weighed_t o;
    g.kv_head = 0; // there is one
    head_t head = head_of(a, g, role_of(g, wave));
    keys_t keys = keys_of(a, g);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        KG_UNROLL for (int c = 0; c < COLS; c++) m[t][c] = -INFINITE, l[t][c] = 0;
        KG_UNROLL for (int n = 0; n < V_TILES; n++) o[t][n] = acc_t{};
    }
    said_t said = said_in(lds);
    if (thread_id() == 0) *said.segment = g;
    attend(m, l, o, a, g, head, keys, lds, wave);
    float *rows = (float *)(lds + LDS_STAGE);
    barrier(); // the stage has been read
    if constexpr (SENDS) offer_inbox();
    g = *said.segment;
    cut = parked_work(lds, wave).cut;
    put_rows(rows, o, wave);
    if (wave < 4) put_sums(said, l, wave);
    barrier();
    if (wave == 0) add_up(said, m);
    barrier();
    if constexpr (SENDS) await_inboxes();
    u32 part = PARTED ? g.part : part_of(cut);
    emit_rows(a, g, partial_slot(cut, part, g.item_start), lds, rows, said);
    finish_item(a, g, cut, lds, wave);
}

} // namespace kg

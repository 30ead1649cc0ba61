// Latent attention of 64 query rows over 8-bit caches on sm_90 (PAIRED, BRINGERS). Three groups of
// four waves; of a set of 64 keys:
//
//   third group         codes come from memory into registers, and become numbers in LDS, once
//                       for both products
//   first group         S1 = Q K1^T    P1 = exp2(S1 - m)        O_left += P1 V1_left
//   second group                       O_right += P0 V0_right
//
// so the units multiply for the second group while the first has a softmax. As
// kg/mla/mla_pairs_nvidia.h else. Groups have unlike numbers of registers.
#pragma once
#include "kg/mla/mla_pairs_nvidia.h"

namespace kg {

// Of a lane: as the kernel begins; of each group.
constexpr int COMMON_REGISTERS = 168, SCORING_REGISTERS = 216, TAKING_REGISTERS = 176,
              BRINGING_REGISTERS = 112;
static_assert(!BRINGERS || (ALL_WAVES == 8 && BRINGERS == 4), "two groups of three");
static_assert(SCORING_REGISTERS + TAKING_REGISTERS + BRINGING_REGISTERS <= 3 * COMMON_REGISTERS,
              "no more");

// --- halves of sets -------------------------------------------------------------------

KG_DEV gate_t *read_of(const said_t &said, int slot, int half) {
    return said.read + 2 * slot + half;
}
// The rope part of 656-byte rows is copied, which is counted by itself.
constexpr bool COPIES_ROPE = BLOCKED && HEAD_DIM > V_DIM;
KG_DEV void begin_halves(const said_t &said) {
    KG_UNROLL for (int n = 0; n < 4; n++) {
        gate_begin(said.there + n, (COPIES_ROPE && n % 2 == 0 ? 2 : 1) * 4 * WAVE);
        gate_begin(said.read + n, 4);
    }
    show_lds();
}
KG_DEV void end_halves(const said_t &said) {
    KG_UNROLL for (int n = 0; n < 4; n++) {
        gate_end(said.there + n);
        gate_end(said.read + n);
    }
}

// --- rows that are not there -----------------------------------------------------------

KG_DEV void say_rows(const said_t &said, int slot, int part, u32 rows) {
    if (SPARSE && lane_id() == 0) said.rows[slot * SET_BLOCKS_OF + part] = rows;
}
// Of the set in `slot`.
template <int B>
KG_DEV void hide_missing(float (&s)[B][ROW_TILES][S_REGS], const said_t &said, int slot) {
    if constexpr (SPARSE == 0) return;
    constexpr u32 ALL_ROWS = (1u << TOK) - 1;
    KG_UNROLL for (int b = 0; b < B; b++) {
        u32 rows = said.rows[slot * SET_BLOCKS_OF + b];
        if ((rows & ALL_ROWS) == ALL_ROWS) continue;
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
            KG_UNROLL for (int r = 0; r < S_REGS;
                           r++) if (!(rows >> s_token((int)lane_id(), r) & 1)) s[b][t][r] =
                -INFINITE;
    }
}

// --- pieces: 16 codes of a row -----------------------------------------------------------
// Four lanes share two rows of the wave's block, eight apart, and of each have every fourth piece.
// Eight lanes store four pieces of a row and four of the next one: in 16 bits every other 16 bytes
// of 128, which are the other ones of the next.

constexpr int LANE_ROWS = 2, FURTHER_ROW = TOK / LANE_ROWS; // rows from one to the other
static_assert(!BRINGERS || FURTHER_ROW * 4 == WAVE, "all lanes");
constexpr int HALF_PIECES = larger(V_DIM / 32, 4), LANE_PIECES = HALF_PIECES / 4; // of a row
constexpr int ROPE_PIECES = BLOCKED ? 0 : (HEAD_DIM - V_DIM) / 16;
constexpr int LANE_ROPE = larger(ceil_div(ROPE_PIECES, 4), 1);
constexpr int SCALES = BLOCKED ? V_DIM / KG_MLA_BLOCK : 0;

KG_DEV int first_row() { return (int)(opaque(lane_id()) / 4); }
KG_DEV int first_piece() { return (int)(opaque(lane_id()) % 4); }
// Of so many pieces of a row, the lane's n'th, behind its first; or the last there is.
template <int PIECES> KG_DEV int further_piece(int n) {
    return PIECES % 4 == 0 ? 4 * n : smaller(4 * n, PIECES - 1 - first_piece());
}

// What is on its way, of a half that follows. Of rows, where the lane's first piece lies.
struct codes_t {
    u32 codes[LANE_ROWS][LANE_PIECES][4], rope[LANE_ROWS][LANE_ROPE][4];
    float scales[LANE_ROWS][larger(SCALES, 1)];
    u64 rows[LANE_ROWS];
    u32 there; // which of the block's rows there are
};
KG_DEV void fetch_16(u32 (&w)[4], u64 row, int at) {
    KG_UNROLL for (int j = 0; j < 4 && SPARSE; j++) w[j] = 0;
    if (SPARSE && !row) return;
    load_plain(w, (const u8 *)row + at); // no other load stays behind the fence before it
}
KG_DEV void fetch_codes(codes_t &c, int half) {
    KG_UNROLL for (int r = 0; r < LANE_ROWS; r++) KG_UNROLL for (int n = 0; n < LANE_PIECES; n++)
        fetch_16(c.codes[r][n], c.rows[r], (half * HALF_PIECES + 4 * n) * 16);
}
KG_DEV void fetch_rope(codes_t &c) {
    KG_UNROLL for (int r = 0; r < LANE_ROWS; r++)
        KG_UNROLL for (int n = 0; n < ceil_div(ROPE_PIECES, 4); n++)
            fetch_16(c.rope[r][n], c.rows[r], V_DIM + further_piece<ROPE_PIECES>(n) * 16);
}
// Of all blocks of a row.
KG_DEV void fetch_scales(codes_t &c) {
    KG_UNROLL for (int r = 0; r < LANE_ROWS; r++) KG_UNROLL for (int n = 0; n < SCALES; n += 4) {
        u32 w[4];
        fetch_16(w, c.rows[r], V_DIM + n * 4 - first_piece() * 16);
        KG_UNROLL for (int i = n; i < smaller(n + 4, SCALES); i++) c.scales[r][i] =
            float_of(w[i % 4]);
    }
}

// Four codes.
KG_DEV void codes_to_numbers(u32 (&x)[2], u32 codes, float scale) {
    if constexpr (BLOCKED)
        codes_to_pairs(x, codes, scale, scale);
    else
        bytes_to_compute(x, codes);
}
// Into 32 bytes of a row of the set.
KG_DEV void put_numbers(u8 *set, u32 at, const u32 (&codes)[4], float scale) {
    scale = BLOCKED ? short_nan(scale) : 1.0f;
    KG_UNROLL for (u32 half = 0; half < 2; half++) {
        u32 low[2], high[2];
        codes_to_numbers(low, codes[2 * half], scale);
        codes_to_numbers(high, codes[2 * half + 1], scale);
        *(line_t *)(set + (at ^ half * 16)) = line_t{{low[0], low[1], high[0], high[1]}};
    }
}
KG_DEV void put_rope(u8 *set, const codes_t &c, int row) {
    KG_UNROLL for (int r = 0; r < LANE_ROWS; r++)
        KG_UNROLL for (int n = 0; n < ceil_div(ROPE_PIECES, 4); n++) {
        int piece = first_piece() + further_piece<ROPE_PIECES>(n);
        put_numbers(set, offset_in_set(row + r * FURTHER_ROW, V_DIM / 8 + 2 * piece), c.rope[r][n],
                    1.0f);
    }
}
// Numbers, as they are.
KG_DEV void copy_rope(u8 *set, gate_t *there, const codes_t &c, int row, const head_t &h) {
    constexpr int PIECES = (HEAD_DIM - V_DIM) / 8;
    KG_UNROLL for (int r = 0; r < LANE_ROWS; r++)
        KG_UNROLL for (int n = 0; n < ceil_div(PIECES, 4); n++) {
        int further = further_piece<PIECES>(n), piece = first_piece() + further;
        copy_piece(place_of(set, row + r * FURTHER_ROW, V_DIM / 8 + piece), c.rows[r],
                   piece_place(CODE_PIECES) + further * 16, h);
    }
    gate_arrive_copied(there);
}

// --- the way through a segment -------------------------------------------------------------

// The rows that follow, of which each lane finds one, and what comes first of them.
KG_DEV void take_lane_rows(codes_t &c, bringer_t &b, const head_t &h, const keys_t &keys) {
    u64 row = lane_row(b, h, keys);
    go_on(b, keys);
    if constexpr (SPARSE != 0) c.there = (u32)ballot(row != 0);
    KG_UNROLL for (int r = 0; r < LANE_ROWS; r++) {
        c.rows[r] = row_of(row, first_row() + r * FURTHER_ROW);
        if (!SPARSE || c.rows[r]) c.rows[r] += (u32)first_piece() * 16;
    }
    fetch_scales(c);
    fetch_codes(c, 0);
}

// Rows of the set behind those on their way, as memory takes longer than a half does. Two lanes
// have a row.
KG_DEV void bring_rows_near(const bringer_t &b, const head_t &h, const keys_t &keys) {
    constexpr int BYTES = BLOCKED ? kg_mla_row_bytes(V_DIM, HEAD_DIM - V_DIM) : HEAD_DIM;
    u64 row = lane_row(b, h, keys);
    int lane = (int)lane_id() / TOK * 128;
    KG_UNROLL for (int at = 0; at < BYTES; at += 256) if (row && lane + at < BYTES)
        bring_near((const u8 *)row + lane + at);
}

// A half of a set. Nothing may be on its way meanwhile: showing LDS would wait for it.
template <int HALF> KG_DEV void put_half(u8 *set, gate_t *there, codes_t &c, int row) {
    constexpr int FIRST = HALF * HALF_PIECES;
    u32 first = offset_in_set(row, 2 * first_piece()) + FIRST / 4 * MATRIX_OF_SET;
    // In a loop: no more become numbers at once than registers hold.
    KG_LOOP for (int r = 0; r < LANE_ROWS; r++) {
        KG_UNROLL for (int n = 0; n < LANE_PIECES; n++) {
            int block = BLOCKED ? (FIRST / 4 + n) / (KG_MLA_BLOCK / 64) : 0;
            put_numbers(set, first + (u32)(n * MATRIX_OF_SET), c.codes[0][n],
                        r == 0 ? c.scales[0][block] : c.scales[1][block]);
            KG_UNROLL for (int j = 0; j < 4; j++) c.codes[0][n][j] = c.codes[1][n][j];
        }
        first += FURTHER_ROW * 128;
    }
    if constexpr (HALF == 1) put_rope(set, c, row);
    show_lds();
    gate_arrive(there);
}

// What lay in the half before.
KG_DEV void await_read(const said_t &said, int slot, int half, u32 time) {
    await_there(read_of(said, slot, half), time, true);
}
KG_DEV void bring_set(codes_t &c, bringer_t &b, const head_t &h, const keys_t &keys,
                      const said_t &said, u8 *set, int slot, u32 time) {
    int row = b.part * TOK + first_row();
    if (time > 0) await_read(said, slot, 0, time - 1);
    say_rows(said, slot, b.part, c.there);
    if constexpr (COPIES_ROPE) copy_rope(set, there_of(said, slot, 0), c, row, h);
    put_half<0>(set, there_of(said, slot, 0), c, row);
    fetch_codes(c, 1);
    fetch_rope(c);
    bring_rows_near(b, h, keys);
    if (time > 0) await_read(said, slot, 1, time - 1);
    put_half<1>(set, there_of(said, slot, 1), c, row);
    take_lane_rows(c, b, h, keys);
}

KG_DEV void bring_sets(bringer_t b, const head_t &h, const keys_t &keys, u8 *lds) {
    codes_t c;
    int end = b.end, first = b.block;
    u32 time = 0, slot = 0; // that sets have been in it
    b.page = page_of_lane(keys, b);
    take_lane_rows(c, b, h, keys);
    barrier(); // queries are there
    KG_LOOP for (int block = first; block < end; block += SET_BLOCKS_OF) {
        u8 *at = lds_again(lds);
        bring_set(c, b, h, keys, said_in(at), set_of(at + LDS_STAGE, (int)slot), (int)slot, time);
        time += slot;
        slot ^= 1;
    }
}

// --- the first group ------------------------------------------------------------------------

template <int T>
KG_DEV void take_left(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], pairs_t w, args_t a,
                      const head_t &head, const keys_t &keys, const said_t &said, int end) {
    KG_LOOP for (int block = w.next.block; block < end; block += SET_BLOCKS_OF) {
        int set = (block - w.next.block) / SET_BLOCKS_OF, slot = set % 2;
        acc_t dots[T][SET_BLOCKS_OF];
        float alpha[T], scores[SET_BLOCKS_OF][T][S_REGS];
        weights_t p;
        KG_UNROLL for (int half = 0; half < 2; half++) {
            await_there(there_of(said, slot, half), (u32)set / 2, true);
            score_half(dots, half_of(half), set_at(w, slot), w.stage);
        }
        products_done<0>();
        settle(dots);
        if (set != 0) meet_others(false);
        bool risen = to_probabilities(
            scores, alpha, m, l, dots, a, head, keys, block, end, nullptr,
            [&](float(&s)[SET_BLOCKS_OF][T][S_REGS]) { hide_missing(s, said, slot); });
        pack_set(p, scores, true);
        w.part = wave_again() % 4;
        if (set != 0) hear(1, w.part); // those of the set before have been read
        say_weights(p, m, w, said);
        say(0, w.part);
        if (risen) scale_rows(o, alpha);
        weigh_half(o, p, set_at(w, slot), 0);
        weighed(o, p);
        wave_has_read(read_of(said, slot, 0));
    }
}

// --- the second -----------------------------------------------------------------------------

template <int T>
KG_DEV void take_right(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], pairs_t w,
                       const said_t &said, int end) {
    int slot = 0;
    KG_LOOP for (int block = w.next.block; block < end; block += SET_BLOCKS_OF) {
        bool more = block + SET_BLOCKS_OF < end;
        w.part = wave_again() % 4;
        hear(0, w.part);
        hear_tops(m, l, o, w, said);
        if (more)
            meet_others(true); // the first has its next scores: nobody waits for these products
        weights_t p;
        hear_weights(p, w);
        if (more) say(1, w.part); // each is heard once
        weigh_half(o, p, set_at(w, slot), 1);
        weighed(o, p);
        wave_has_read(read_of(said, slot, 1));
        slot ^= 1;
    }
}

// --- all ------------------------------------------------------------------------------------

KG_DEV pairs_t pairs_of(const segment_t &g, u8 *lds, int wave) {
    int first = INVARIANT ? g.block / SET_BLOCKS_OF * SET_BLOCKS_OF : g.block, part = wave % 4;
    return pairs_t{lds + LDS_STAGE, part, wave / 4, {first, g.block_end, part, 0}};
}

// By one of the groups. Sums stay where a lane has more registers: nothing that waits for rows
// stands behind a branch.
template <int GROUP, int T>
KG_DEV void take_codes(args_t a, segment_t &g, cut_t cut, const said_t &said, u8 *lds, int wave) {
    column_t m, l;
    acc_t o[T][O_TILES];
    head_t head = head_of(a, g, role_of(g, wave));
    pairs_t w = pairs_of(g, lds, wave);
    bool empty = is_empty(g);
    if (!empty) {
        ask_for_queries(w, a, g, wave);
        put_all_queries(w, a, g, head, said, wave);
    }
    clear(m, l, o);
    if (!empty && GROUP == 0) take_left(m, l, o, w, a, head, keys_of(a, g), said, g.block_end);
    if (!empty && GROUP == 1) take_right(m, l, o, w, said, g.block_end);
    barrier();
    wave = wave_again();
    emit_pairs(m, l, o, a, g, cut, role_of(g, wave), said, lds, wave);
}

KG_DEV void bring_codes(args_t a, const segment_t &g, u8 *lds, int wave) {
    pairs_t w = pairs_of(g, lds, wave);
    if (!is_empty(g)) bring_sets(w.next, head_of(a, g, role_of(g, wave)), keys_of(a, g), lds);
    barrier();
    barrier(); // sums are there
}

template <int T> KG_DEV void run_codes(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    lds = lds_again(lds);
    said_t said = said_in(lds);
    g.kv_head = 0; // there is one
    if (late_thread() == 0) {
        *said.segment = g;
        begin_halves(said);
    }
    barrier();
    wave = wave_again(); // what follows from it has no registers before
    g = *said.segment;
    if (wave < 4) {
        more_registers<SCORING_REGISTERS>();
        take_codes<0, T>(a, g, cut, said, lds, wave);
        fewer_registers<COMMON_REGISTERS>();
    } else if (wave < ALL_WAVES) {
        more_registers<TAKING_REGISTERS>();
        take_codes<1, T>(a, g, cut, said, lds, wave);
        fewer_registers<COMMON_REGISTERS>();
    } else {
        fewer_registers<BRINGING_REGISTERS>();
        bring_codes(a, g, lds, wave);
        more_registers<COMMON_REGISTERS>();
    }
    wave = wave_again();
    g = *said.segment;
    if (late_thread() == 0) end_halves(said);
    finish_item(a, g, parked_work(lds, wave).cut, lds, wave);
}

} // namespace kg

// Caches of codes for long queries on sm_90: the group of waves that brings sets makes numbers of
// them (BRINGERS). Codes come in boxes into raw slots, as many sets ahead as there are, and are
// asked for where others just have been read. Scales of tokens come beside them.
#pragma once
#include "kg/attn/bring_sets_nvidia.h"

namespace kg {

// --- codes to numbers ------------------------------------------------------------------
// Four lanes have four pieces of a row, the next four those of a row of which the number differs in
// bits 0 and 2: these eight meet all banks, both as they read and as they write. A lane has two
// pieces of its row, four from one to the other, and those of the row beside it. Of 4 bits a piece
// has half a row of a matrix, so of four lanes two have the row beside, of eight four have one of
// which bits 1 and 2 differ.

constexpr u32 NEXT_ROW = 128 | 16, FURTHER_PIECE = 64; // bits of an offset that change
constexpr int NEXT_TURN = BRINGERS * TOK * 128;
KG_DEV piece_t raw_piece(const u8 *raw, u32 from, u32 n) {
    return *(const piece_t *)(raw + (from ^ n % 2 * NEXT_ROW ^ n / 2 * FURTHER_PIECE));
}
KG_DEV void put_numbers(u8 *to, u32 put, u32 n, const piece_t &codes) {
    u32 out[4 * NEW_PIECES];
    convert_words<4>(out, codes.w);
    to += n / 2 * (NEW_PIECES / 2 * MATRIX_BYTES);
    put ^= n % 2 * NEXT_ROW;
    KG_UNROLL for (u32 i = 0; i < (u32)NEW_PIECES; i++) put_piece(to + (put ^ i * 16), out + i * 4);
}
// The wave's blocks of a set. Each piece is read as that one is converted whose registers it takes.
template <int PIECES> KG_DEV void convert_blocks(u8 *to, const u8 *raw, int wave) {
    constexpr u32 LANES = ceil_div(PIECES * NEW_PIECES, 8) * 8 / NEW_PIECES; // whole matrices
    u32 lane = opaque(lane_id()); // what follows from it has no registers elsewhere
    if (LANES < 4 && lane % 4 >= LANES) return;
    u32 row = lane / 8 % 2 * 2 ^ lane / 16 * 8;
    row ^= KV_4BIT ? lane / 4 % 2 * 6 ^ lane / 2 % 2 : lane / 4 % 2 * 5;
    u32 piece = lane % 4 * NEW_PIECES; // the first that the lane makes
    u32 from = matrix_offset(row, lane % 4, 0), put = matrix_offset(row, piece, 0);
    raw += wave * (TOK * 128), to += wave * (TOK * 128);
    KG_LOOP for (int first = 0; first < PIECES; first += 8) {
        bool whole = ceil_div(PIECES, 4) % 2 == 0 || first + 4 < PIECES; // else the first two
        piece_t in[4];
        KG_UNROLL for (u32 n = 0; n < 4; n++) if (n < 2 || whole) in[n] = raw_piece(raw, from, n);
        KG_UNROLL for (int turn = 0; turn < TURNS; turn++) KG_UNROLL for (u32 n = 0; n < 4; n++) {
            if (n >= 2 && !whole) continue;
            piece_t codes = in[n];
            if (turn + 1 < TURNS) in[n] = raw_piece(raw + (turn + 1) * NEXT_TURN, from, n);
            put_numbers(to + turn * NEXT_TURN, put, n, codes);
        }
        raw += MATRIX_BYTES, to += NEW_PIECES * MATRIX_BYTES;
    }
}

// --- the way through a segment ------------------------------------------------------------

constexpr int RAW_SLOTS = SETS.slots, RAW_BLOCKS = RAW_SLOTS * SET_BLOCKS;

// Where a set's keys, or values, come to and become numbers.
struct half_t {
    u8 *raw, *numbers;
    gate_t *raw_there, *there;
    const gate_t *read;
};
KG_DEV half_t keys_half(const ring_t &r, u32 set) {
    u32 slot = set % SLOTS, raw = set % RAW_SLOTS;
    return {raw_slot(r, (int)raw), k_slot(r, (int)slot), &r.gates->raw_keys[raw],
            &r.gates->keys_there[slot], &r.gates->keys_read[slot]};
}
KG_DEV half_t values_half(const ring_t &r, u32 set) {
    u32 slot = set % SLOTS, raw = set % RAW_SLOTS;
    return {raw_slot(r, (int)raw) + RAW_KEYS, v_slot(r, (int)slot), &r.gates->raw_values[raw],
            &r.gates->values_there[slot], &r.gates->values_read[slot]};
}
// BRINGS_SCALES: of a set's tokens, a lane of one. Of values, too, since scores become
// probabilities while values are still to come: all are there when the keys are. 0 where no row
// sees the token, or what lies there would weigh values with it.
KG_DEV void bring_scales(const ring_t &r, u32 set, args_t a, const head_t &h, const keys_t &keys,
                         i32 page, int block, int wave) {
    if constexpr (!BRINGS_SCALES) return;
    int lane = (int)opaque(lane_id()), turn = smaller(lane / TOK, TURNS - 1), row = lane % TOK;
    int part = wave + turn * BRINGERS, token = first_token(keys, block, part) + row;
    i32 its = (i32)shuffle((u32)page, (u32)turn);
    u32 id = (u32)inside_pool(keys, DENSE ? page_number(keys, token) : its);
    float *to = scales_of_set(r, set) + part * TOK + place_of_scale(row);
    if (token >= keys.first && token <= keys.last) {
        copy_4(to, address_of_scale(a, h, keys, id, token, true));
        copy_4(to + SET_KEYS, address_of_scale(a, h, keys, id, token, false));
    } else {
        to[0] = to[SET_KEYS] = 0;
    }
}
template <int PIECES>
KG_DEV void bring_raw(const half_t &half, const cache_t &c, const keys_t &keys, i32 page, int block,
                      int wave) {
    bring_blocks<PIECES>(half.raw, half.raw_there, c, keys, places_of(keys, page, block, wave),
                         block, wave);
}
template <int PIECES> KG_DEV void convert_half(const half_t &half, u32 set, int wave) {
    gate_await(half.raw_there, set / RAW_SLOTS);
    gate_await(half.read, set / SLOTS + 1); // the time before this one
    convert_blocks<PIECES>(half.numbers, half.raw, wave);
    show_lds();
    gate_arrive(half.there);
    meet_wave(); // all have read what is raw
}

// As bring_sets.
KG_DEV void bring_codes(bringer_t &b, args_t a, const segment_t &g, u8 *lds) {
    head_t h = head_of(a, g, role_of(g, 0));
    keys_t keys = keys_of(a, g);
    ring_t r = {lds + LDS_STAGE};
    r.gates = gates_of(lds);
    int first = first_set(g), end = g.block_end;
    i32 page = page_of_turn(keys, first, b.wave), v_page = 0;
    KG_LOOP for (int n = 0; n < RAW_SLOTS; n++) {
        int block = first + n * SET_BLOCKS;
        u32 set = b.sets + (u32)n;
        i32 next = page_of_turn(keys, block + SET_BLOCKS, b.wave);
        if (block < end) {
            bring_scales(r, set, a, h, keys, page, block, b.wave);
            bring_raw<K_PIECES>(keys_half(r, set), cache_of(a, h, 0), keys, page, block, b.wave);
            bring_raw<V_PIECES>(values_half(r, set), cache_of(a, h, 1), keys, page, block, b.wave);
        }
        page = next;
    }
    KG_LOOP for (int block = first; block < end + SET_BLOCKS; block += SET_BLOCKS) {
        int ahead = block + RAW_BLOCKS;
        u32 set = b.sets;
        if (block < end) {
            half_t half = keys_half(r, set);
            convert_half<K_PIECES>(half, set, b.wave);
            if (ahead < end) {
                bring_scales(r, set + RAW_SLOTS, a, h, keys, page, ahead, b.wave);
                bring_raw<K_PIECES>(half, cache_of(a, h, 0), keys, page, ahead, b.wave);
            }
            b.sets++;
        }
        if (block == first) {
            bring_queries(a, lds, b);
        } else {
            half_t half = values_half(r, set - 1);
            convert_half<V_PIECES>(half, set - 1, b.wave);
            if (ahead - SET_BLOCKS < end)
                bring_raw<V_PIECES>(half, cache_of(a, h, 1), keys, v_page, ahead - SET_BLOCKS,
                                    b.wave);
        }
        v_page = page;
        page = page_of_turn(keys, ahead + SET_BLOCKS, b.wave);
    }
}

} // namespace kg

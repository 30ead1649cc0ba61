// Long queries by way of LDS: keys and values of some blocks lie there for all waves of the
// workgroup, and the next ones are on their way. This is what is alike wherever they come so:
// each wave brings some tokens of a set, a lane a piece of 16 bytes of several of them.
//
// buffer_nvidia.h has them copied past the registers, as matrices, with which groups of four
// waves multiply; buffer_lines.h has them come through registers, as lines, of which each wave
// loads operands. A function of the same name, attend_buffered, is the way through a segment.
#pragma once
#include "kg/attn/softmax.h"

namespace kg {

constexpr int SET_KEYS = SET_BLOCKS * TOK;
// That a wave brings at once.
constexpr int WAVE_KEYS =
    KEY_QUEUE ? TOK : smaller(TOK, ceil_div(SET_KEYS, BRINGERS ? BRINGERS : ROW_WAVES));
constexpr int K_PIECES = HEAD_DIM * KV_BITS / 128, V_PIECES = V_DIM * KV_BITS / 128;
constexpr int NEW_PIECES = 16 / KV_BITS; // of LDS, that one of the cache becomes
static_assert(!BUFFERED || TOK % WAVE_KEYS == 0, "a wave's keys are one block's");

// The first token that the wave brings of the set that begins with `block`.
KG_DEV int first_token(const keys_t &keys, int block, int wave) {
    u32 first = (u32)(wave * WAVE_KEYS);
    return block_start(keys, block + (int)(first / TOK)) + (int)(first % TOK);
}
// The page of the key that the lane stands for.
KG_DEV i32 set_page(const keys_t &keys, int block, int wave) {
    int key = SHARED_ID ? 0 : (int)(lane_id() % WAVE_KEYS);
    return page_number(keys, first_token(keys, block, wave) + key);
}

// Lanes that share a row, and rows that they bring at once.
constexpr int lanes_of_row(int pieces) { return kg_attn_lanes_of_row(pieces, WAVE); }
constexpr int rows_at_once(int pieces) { return kg_attn_at_once(pieces, WAVE, WAVE_KEYS); }

// Of rows of PIECES pieces a lane brings its row, of the wave's, and every n-th behind it, and of
// these its pieces. A lane too many brings the last piece, or row, again.
template <int PIECES> KG_DEV int row_of_lane(int lane = (int)lane_id()) {
    return smaller(lane / lanes_of_row(PIECES), rows_at_once(PIECES) - 1);
}
template <int PIECES> KG_DEV u32 piece_of_lane(int first, int lane = (int)lane_id()) {
    return (u32)smaller(first + lane % lanes_of_row(PIECES), PIECES - 1);
}

// W words of the cache, elements in order.
template <int W> KG_DEV void convert_words(u32 (&out)[W * 16 / KV_BITS], const u32 (&in)[W]) {
    if constexpr (KV_4BIT && IS_SM90) {
        KG_UNROLL for (int n = 0; n < W; n++) {
            u32 x[4];
            int4_in_order(x, in[n]);
            KG_UNROLL for (int j = 0; j < 4; j++) out[4 * n + j] = x[j];
        }
        return;
    }
    to_compute<W>(out, in);
    if constexpr (KV_4BIT && !INT4_IN_ORDER) KG_UNROLL for (int n = 0; n < W * 4; n += 4) {
            u32 x[4];
            KG_UNROLL for (int j = 0; j < 4; j++) x[j] = out[n + j];
            KG_UNROLL for (int j = 0; j < 4; j++) out[n + j] =
                byte_perm(x[j % 2 * 2], x[j % 2 * 2 + 1], j / 2 ? 0x07060302 : 0x05040100);
        }
}

} // namespace kg

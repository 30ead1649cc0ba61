// A line of LDS is a token's keys, or values, as 16-bit numbers: of keys on every isa.
#pragma once
#include "kg/attn/buffer.h"

namespace kg {

constexpr int K_LINE = SETS.k / SET_KEYS; // bytes

// Words of DIM dims of a token that a lane brings at once: 16 bytes, or 8 where few lanes would
// have something to bring, and to convert, or rows of more than one page would come at once.
template <int DIM> constexpr int words_at_once() {
    int pieces = DIM * KV_BITS / 128, lanes = rows_at_once(pieces) * lanes_of_row(pieces);
    return KV_4BIT && (2 * lanes <= WAVE || rows_at_once(pieces) > 16) ? 2 : 4;
}
template <int DIM> constexpr int PIECES_OF = DIM * KV_BITS / (32 * words_at_once<DIM>());

// A wave's keys, or values, of a set, on their way.
template <int DIM> struct rows_t {
    static constexpr int PIECES = PIECES_OF<DIM>, WORDS = words_at_once<DIM>();
    u32 w[WAVE_KEYS / rows_at_once(PIECES)][WORDS];
};

// With few dims the vector unit is what a block waits for: where one instruction makes bf16 of two
// floats, values lie in LDS times their token's scale, rounded (docs/attention.md). Else all
// probabilities take that.
constexpr bool FEW_DIMS = HEAD_DIM + V_DIM <= 128;
constexpr bool SCALED_VALUES = TURNED && FEW_DIMS && DESCALE == DESCALE_TOKEN && !COMPUTE_F16;

// There probabilities are summed by a product with ones, as they are after rounding, and every lane
// has its row's sum. Not where somebody asks for the sum, which is to be more exact, nor where
// probabilities have the values' scales.
constexpr bool ROW_SUMS =
    TURNED && FEW_DIMS && LSE == 0 && (DESCALE != DESCALE_TOKEN || SCALED_VALUES);

// There int8 keys are left too great as well, by INT8_ZEROS, which makes each score too great by as
// many times the sum of its row's queries: what a row's base begins with. Values are not: that
// would be more than what they add up to.
constexpr bool BIASED_KEYS =
    ROW_SUMS && KV_DTYPE == DTYPE_I8 && COMPUTE_F16 && SOFTCAP == 0 && ALIBI == 0;

template <bool IS_KEYS, int W>
KG_DEV void convert_words(u32 (&out)[W * 16 / KV_BITS], const u32 (&in)[W]) {
    if constexpr (!IS_KEYS || !BIASED_KEYS) return convert_words(out, in);
    KG_UNROLL for (int i = 0; i < W; i++) {
        u32 pairs[2];
        int8_biased(pairs, in[i]);
        KG_UNROLL for (int j = 0; j < 2; j++) out[(2 * i + j) % (W * 16 / KV_BITS)] = pairs[j];
    }
}

// Half of a wave's lanes have the scales of the keys that it brings, half those of the values.
KG_DEV float value_scale(float scale, int row) {
    return float_of(shuffle(bits_of(scale), (u32)(WAVE_KEYS + row)));
}

// The values of a word as floats.
template <int N> KG_DEV void word_floats(float (&out)[N], u32 word) {
    if constexpr (KV_4BIT)
        int4_values(out, word);
    else if constexpr (KV_INTEGER)
        int8_values(out, word);
    else
        fp8_floats(out, word);
}
template <int W>
KG_DEV void scaled_words(u32 (&out)[W * 16 / KV_BITS], const u32 (&in)[W], float scale) {
    constexpr int PAIRS = 16 / KV_BITS;
    KG_UNROLL for (int i = 0; i < W; i++) {
        float x[2 * PAIRS];
        word_floats(x, in[i]);
        KG_UNROLL for (int j = 0; j < PAIRS; j++) {
            pair_t pair = pair_t{x[2 * j], x[2 * j + 1]} * pair_of(scale);
            out[i * PAIRS + j] = pack_bf16(pair[0], pair[1]);
        }
    }
}

// Into LDS, where the set's lines of LINE bytes begin. line_of(token): of a block's, its place.
// scale: as fetch_scale has it.
template <bool IS_KEYS, int LINE, int DIM, class F>
KG_DEV void put_lines(u8 *lines, const rows_t<DIM> &rows, float scale, int wave, const F &line_of) {
    constexpr int PIECES = rows_t<DIM>::PIECES, AT_ONCE = rows_at_once(PIECES);
    constexpr int NEW_WORDS = rows_t<DIM>::WORDS * 16 / KV_BITS;
    int first = wave * WAVE_KEYS;
    u8 *block = lines + first / TOK * (TOK * LINE) + piece_of_lane<PIECES>(0) * (NEW_WORDS * 4);
    KG_UNROLL for (int n = 0; n < WAVE_KEYS; n += AT_ONCE) {
        int token = first % TOK + row_of_lane<PIECES>() + n;
        u32 w[NEW_WORDS];
        if constexpr (!IS_KEYS && SCALED_VALUES)
            scaled_words(w, rows.w[n / AT_ONCE], value_scale(scale, row_of_lane<PIECES>() + n));
        else
            convert_words<IS_KEYS>(w, rows.w[n / AT_ONCE]);
        u8 *to = block + line_of(token) * LINE;
        KG_UNROLL for (int j = 0; j < NEW_WORDS; j += 4) * (piece_t *)(to + j * 4) =
            piece_t{{w[j], w[j + 1], w[j + 2], w[j + 3]}};
    }
}

} // namespace kg

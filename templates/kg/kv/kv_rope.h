// Rotation by position.
#pragma once
#include "kg/kv/kv_slot.h"

namespace kg {

constexpr int ROPE_HALF = ROPE_DIM / 2;
constexpr int ROPE_CHUNKS = ROPE_DIM / X;                          // of keys
constexpr int ROPE_HALVES = ROPE == ROPE_NEOX ? ROPE_HALF / X : 0; // from a chunk to its other

// The row of the tables, or -1.
KG_DEV i64 position_of(args_t a, int row) {
    i64 p = load_index<POS_I64>(a.positions, row);
    return p < 0 || p >= a.positions_end ? -1 : p;
}

// N entries of a row, from entry `first`.
template <int N> KG_DEV void load_entries(float (&out)[N], const void *base, i64 row, int first) {
    constexpr int BYTES = TABLE_DTYPE == DTYPE_F32 ? 4 : 2, WORDS = N * BYTES / 4;
    constexpr int STEP = WORDS < 4 ? WORDS : 4;
    const u8 *p = (const u8 *)base + row + first * BYTES;
    KG_UNROLL for (int i = 0; i < WORDS; i += STEP) {
        u32 w[STEP];
        load_words(w, p + i * 4);
        KG_UNROLL for (int j = 0; j < STEP; j++) {
            if constexpr (TABLE_DTYPE == DTYPE_F32) {
                out[i + j] = float_of(w[j]);
            } else {
                float pair[2];
                unpack<TABLE_DTYPE == DTYPE_FP16 ? DTYPE_FP16 : DTYPE_BF16>(pair, w[j]);
                out[2 * (i + j)] = pair[0], out[2 * (i + j) + 1] = pair[1];
            }
        }
    }
}

// a cos - b sin, and b cos + a sin, as kv_write_args.h says them.
KG_DEV float turn_low(float x, float y, float c, float s) { return fma(x, c, -(y * s)); }
KG_DEV float turn_high(float x, float y, float c, float s) { return fma(y, c, x * s); }

// Two chunks that are halves of pairs: entries first .. first + N - 1 (neox).
template <int N>
KG_DEV void rotate_halves(float (&x)[N], float (&y)[N], args_t a, i64 position, int first) {
    float c[N], s[N];
    load_entries(c, a.cos, position * a.cos_row, first);
    load_entries(s, a.sin, position * a.sin_row, first);
    if constexpr (TABLE_FULL) {
        float far_c[N], far_s[N];
        load_entries(far_c, a.cos, position * a.cos_row, first + ROPE_HALF);
        load_entries(far_s, a.sin, position * a.sin_row, first + ROPE_HALF);
        KG_UNROLL for (int i = 0; i < N; i++) {
            float low = x[i], high = y[i];
            x[i] = turn_low(low, high, c[i], s[i]);
            y[i] = turn_high(low, high, far_c[i], far_s[i]);
        }
        return;
    }
    KG_UNROLL for (int i = 0; i < N; i++) {
        float low = x[i], high = y[i];
        x[i] = turn_low(low, high, c[i], s[i]);
        y[i] = turn_high(low, high, c[i], s[i]);
    }
}

// A chunk of pairs, the first of them entry `first` (interleaved).
template <int N> KG_DEV void rotate_pairs(float (&x)[N], args_t a, i64 position, int first) {
    constexpr int EACH = TABLE_FULL ? 1 : 2; // dims of an entry
    float c[N / EACH], s[N / EACH];
    load_entries(c, a.cos, position * a.cos_row, first * 2 / EACH);
    load_entries(s, a.sin, position * a.sin_row, first * 2 / EACH);
    KG_UNROLL for (int i = 0; i < N; i += 2) {
        float low = x[i], high = x[i + 1];
        x[i] = turn_low(low, high, c[i / EACH], s[i / EACH]);
        x[i + 1] = turn_high(low, high, c[(i + 1) / EACH], s[(i + 1) / EACH]);
    }
}

} // namespace kg

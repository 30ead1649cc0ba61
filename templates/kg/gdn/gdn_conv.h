// The causal convolution of PIECE neighbouring channels over the tokens of a
// sequence. History: OLD inputs from before this launch, then one a token.
#pragma once
#include "kg/gdn/gdn_num.h"
#include "kg/gdn/gdn_sequence.h"

namespace kg {

constexpr int TAPS = HAS_CONV ? CONV_WIDTH : 1;
constexpr int CONV_WORDS = words_of(CONV_DTYPE);
constexpr int WEIGHT_WORDS = words_of(CONV_W_DTYPE);

// Where a piece of a token's row is; the same for all tokens but for their row.
struct row_t {
    const void *base;
    i64 stride;
    int column;
};

KG_DEV bool has_channel(int channel) { return WHOLE_PIECES || channel < CHANNELS; }

// As loaded: nothing is computed before the state's loads are on their way.
struct channels_t {
    u32 x[TOKENS][words_of(X_DTYPE)];
    u32 old[OLD + 1][CONV_WORDS];
    u32 weight[TAPS * WEIGHT_WORDS]; // [PIECE][TAPS]
    u32 bias[WEIGHT_WORDS];
};

KG_DEV i64 conv_at(i64 slot, i64 slot_stride, i64 step, int channel, int time) {
    bool ds = CONV_LAYOUT == CONV_DS;
    return slot * slot_stride + (ds ? channel * step + time : time * step + channel);
}

// Elements at, at + step, ... of which there are `count` (no more than PIECE), as if
// they had been loaded together.
template <int DTYPE>
KG_DEV void load_apart(u32 *words, const void *base, i64 at, i64 step, int count) {
    constexpr int WORDS = words_of(DTYPE);
    KG_UNROLL for (int w = 0; w < WORDS; w++) words[w] = 0;
    KG_UNROLL for (int e = 0; e < PIECE; e++) {
        u32 bits = WHOLE_PIECES || e < count ? load_bits<DTYPE>(base, at + e * step) : 0;
        words[e * WORDS / PIECE] |= bits << (WORDS == 2 ? e % 2 * 16 : 0);
    }
}

// The column of the m-th input of the history, m at most OLD.
KG_DEV int column_of(args_t a, const seq_t &s, int m) {
    if constexpr (!CIRCULAR) return s.offset + m;
    int column = s.offset - OLD + m;
    return column < 0 ? column + a.conv_columns : column;
}

KG_DEV void load_old(channels_t &c, args_t a, const seq_t &s, int channel) {
    KG_UNROLL for (int i = 0; i < OLD; i++) {
        i64 at = conv_at(s.conv_read, a.conv_slot, a.conv_step, channel, column_of(a, s, i));
        if constexpr (CONV_LAYOUT == CONV_SD && WHOLE_PIECES)
            load_plain(c.old[i], address<CONV_DTYPE>(a.conv_state, at, 0));
        else
            load_apart<CONV_DTYPE>(c.old[i], a.conv_state, at,
                                   CONV_LAYOUT == CONV_DS ? a.conv_step : 1, CHANNELS - channel);
    }
}

// Of the last piece, elements that there are.
KG_DEV void load_last(channels_t &c, args_t a, const seq_t &s, int channel) {
    int left = CHANNELS - channel;
    KG_UNROLL for (int t = 0; t < TOKENS; t++)
        load_apart<X_DTYPE>(c.x[t], a.x, row_of(s, t) * a.x_row + channel, 1, left);
    load_old(c, a, s, channel);
    KG_UNROLL for (int i = 0; i < TAPS; i++)
        load_apart<CONV_W_DTYPE>(c.weight + i * WEIGHT_WORDS, a.conv_weight,
                                 (i64)channel * TAPS + i * PIECE, 1, left * TAPS - i * PIECE);
    if constexpr (CONV_BIAS) load_apart<CONV_W_DTYPE>(c.bias, a.conv_bias, channel, 1, left);
}

KG_DEV void load_channels(channels_t &c, args_t a, const seq_t &s, int channel, row_t from) {
    if constexpr (!WHOLE_PIECES) return load_last(c, a, s, channel);
    KG_UNROLL for (int t = 0; t < TOKENS; t++)
        load_words(c.x[t], address<X_DTYPE>(from.base, row_of(s, t) * from.stride, from.column));
    if constexpr (!HAS_CONV) return;
    load_old(c, a, s, channel);
    KG_UNROLL for (int i = 0; i < TAPS; i++) {
        u32 w[WEIGHT_WORDS];
        load_words(w, address<CONV_W_DTYPE>(a.conv_weight, channel * TAPS, i * PIECE));
        KG_UNROLL for (int n = 0; n < WEIGHT_WORDS; n++) c.weight[i * WEIGHT_WORDS + n] = w[n];
    }
    if constexpr (CONV_BIAS) load_words(c.bias, address<CONV_W_DTYPE>(a.conv_bias, channel, 0));
}

// A sequence without a state begins behind zeros.
KG_DEV void clear_old(channels_t &c) {
    KG_UNROLL for (int i = 0; i < OLD; i++) KG_UNROLL for (int w = 0; w < CONV_WORDS; w++)
        c.old[i][w] = 0;
}

// Input `e` of the piece, the m-th of the history, in the type of the state.
KG_DEV float input(const channels_t &c, int m, int e) {
    if (m < OLD) return element<CONV_DTYPE>(c.old[m], e);
    float x = element<X_DTYPE>(c.x[m - OLD], e);
    return HAS_CONV && CONV_DTYPE != X_DTYPE ? rounded<CONV_DTYPE>(x) : x;
}

KG_DEV float convolved(const channels_t &c, const float (&taps)[TAPS], int e) {
    float y = CONV_BIAS ? element<CONV_W_DTYPE>(c.bias, e) : 0.0f;
    KG_UNROLL for (int i = 0; i < TAPS; i++) y +=
        element<CONV_W_DTYPE>(c.weight, e * TAPS + i) * taps[i];
    if constexpr (CONV_SILU) y = silu(y);
    if constexpr (CONV_DTYPE != DTYPE_BF16 || CONV_W_DTYPE != DTYPE_BF16) y = with_short_nan(y);
    return CONV_ROUND || !HAS_STEP ? rounded<X_DTYPE>(y) : y;
}

KG_DEV void store_window(args_t a, i64 line, int t, int channel, const float (&taps)[TAPS]) {
    if (!a.conv_windows || !is_line(a, line)) return;
    if (!has_channel(channel)) return;
    KG_UNROLL for (int i = 0; i < OLD; i++) {
        i64 at = conv_at(line, a.window_line, a.window_step, channel, i) + t * a.window_token;
        store_as<CONV_DTYPE>(a.conv_windows, at, 0, taps[i + 1]);
    }
}

// Tokens in a chain: `y` of token t goes to y[t * step].
KG_DEV void convolve_chain(float *y, int step, const channels_t &c, args_t a, const seq_t &s,
                           int channel, int e, bool windows) {
    i64 line = SAVE == SAVE_BUFFER ? line_of(a, s.index) : -1;
    KG_UNROLL for (int t = 0; t < TOKENS; t++) {
        float taps[TAPS];
        KG_UNROLL for (int i = 0; i < TAPS; i++) taps[i] = input(c, t + i, e);
        y[t * step] = convolved(c, taps, e);
        if (SAVE == SAVE_BUFFER && windows && t < s.count) store_window(a, line, t, channel, taps);
    }
}

// The inputs that token `t` sees: itself, its ancestors, then the stored window.
KG_DEV void ancestors(float (&taps)[TAPS], const float *x, int step, const channels_t &c, args_t a,
                      const seq_t &s, int t, int e) {
    float old[OLD + 1];
    KG_UNROLL for (int i = 0; i < OLD; i++) old[i] = input(c, i, e);
    taps[OLD] = x[t * step];
    int parent = parent_of(a, s.index, t);
    KG_UNROLL for (int i = OLD - 1; i >= 0; i--) {
        if (parent >= 0) {
            taps[i] = x[parent * step];
            parent = parent_of(a, s.index, parent);
        } else {
            taps[i] = old[OLD - 1];
            KG_UNROLL for (int m = OLD - 1; m > 0; m--) old[m] = old[m - 1];
        }
    }
}

// Tokens in a tree. The last goes first: y[t] replaces x[t], which only later
// tokens look at.
KG_DEV void convolve_tree(float *y, int step, const channels_t &c, args_t a, const seq_t &s,
                          int channel, int e, bool windows) {
    i64 line = line_of(a, s.index);
    KG_UNROLL for (int t = 0; t < TOKENS; t++) y[t * step] = input(c, OLD + t, e);
    KG_LOOP for (int t = s.count - 1; t >= 0; t--) {
        float taps[TAPS];
        ancestors(taps, y, step, c, a, s, t, e);
        y[t * step] = convolved(c, taps, e);
        if (windows) store_window(a, line, t, channel, taps);
    }
}

// y: LDS, one row a token, the piece's channels side by side. `windows`: this
// lane keeps the channels' windows.
KG_DEV void convolve(float *y, int step, channels_t &c, args_t a, const seq_t &s, int channel,
                     bool windows) {
    if (s.fresh) clear_old(c);
    KG_UNROLL for (int e = 0; e < PIECE; e++) if constexpr (TREE)
        convolve_tree(y + e, step, c, a, s, channel + e, e, windows);
    else convolve_chain(y + e, step, c, a, s, channel + e, e, windows);
}

// --- the window moves on ------------------------------------------------------

constexpr bool MOVES_WINDOW =
    HAS_CONV && SAVE != SAVE_NONE && (SAVE != SAVE_BUFFER || INDEX == INDEX_PAIR);

KG_DEV void store_inputs(args_t a, i64 at, const channels_t &c, int m, int count) {
    float x[PIECE];
    KG_UNROLL for (int e = 0; e < PIECE; e++) x[e] = input(c, m, e);
    if constexpr (CONV_LAYOUT == CONV_DS || !WHOLE_PIECES) {
        i64 step = CONV_LAYOUT == CONV_DS ? a.conv_step : 1;
        KG_UNROLL for (int e = 0; e < PIECE; e++) if (WHOLE_PIECES || e < count)
            store_as<CONV_DTYPE>(a.conv_state, at + e * step, 0, x[e]);
    } else {
        u32 w[CONV_WORDS];
        encode_piece<CONV_DTYPE>(w, x);
        store_words((u8 *)a.conv_state + at * bytes_of(CONV_DTYPE), w);
    }
}

// Inputs stay where they are. A sequence without a state writes its zeros, too.
KG_DEV void turn_window(const channels_t &c, args_t a, const seq_t &s, int channel, i64 at,
                        i64 step) {
    int from = s.fresh ? 0 : OLD, end = OLD + s.count, column = column_of(a, s, 0);
    KG_UNROLL for (int m = 0; m < HISTORY; m++) {
        if (m >= from && m < end && m + a.conv_columns >= end)
            store_inputs(a, at + column * step, c, m, CHANNELS - channel);
        column = column + 1 < a.conv_columns ? column + 1 : 0;
    }
}

// Writes the stored window as it is after this launch.
KG_DEV void move_window(const channels_t &c, args_t a, const seq_t &s, int channel) {
    if (!MOVES_WINDOW || !is_slot(a, s.conv_write)) return;
    i64 at = conv_at(s.conv_write, a.conv_slot, a.conv_step, channel, 0);
    i64 step = CONV_LAYOUT == CONV_DS ? 1 : a.conv_step;
    if constexpr (CIRCULAR) return turn_window(c, a, s, channel, at, step);
    int from = ACCEPT ? 1 : s.count, end = OLD + s.count;
    KG_UNROLL for (int m = 0; m < HISTORY; m++) if (m >= from && m < end)
        store_inputs(a, at + (m - from) * step, c, m, CHANNELS - channel);
}

} // namespace kg

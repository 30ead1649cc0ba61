// Scores: scale, softcap, ALiBi, mask; all in log2 units.
#pragma once
#include "kg/attn/tile.h"

namespace kg {

// The running maximum moves when a score exceeds it by this much: P stays below
// 2^8, well inside every compute type, and most blocks need no cross-lane step.
constexpr float RESCALE_AT = 8.0f;

struct token_scale_t {
    float k[LANE_SCALES ? S_REGS : 1], v[LANE_SCALES ? S_REGS : 1];
};

// LIFTS: of values whose scales of tokens enter weights of fp16 the steps of its smallest numbers
// would be coarse, where these scales are small. So maxima count with a power of two of a key's
// scale: weights, not probabilities, then end near 1, and what sums of both are relative to is
// still one number. Of scales that are next to nothing this is not asked.
struct lift_t {
    float by, power; // in log2 units, and 2 to that
};
KG_DEV lift_t lift_of(float scale) {
    constexpr int LEAST = -40, MOST = 126, BIAS = 127;
    int by = (int)(bits_of(scale) << 1 >> 24) - BIAS;
    by = larger(smaller(by, MOST), LEAST);
    return lift_t{(float)by, float_of((u32)(by + BIAS) << 23)};
}
// Of the lane's scores of a block.
constexpr bool LIFTS_EACH = LIFTS && LANE_SCALES;
constexpr int LIFTED = LIFTS_EACH ? S_REGS : 1;
struct lifts_t {
    lift_t of[LIFTED];
};
KG_DEV lifts_t lifts_of(const token_scale_t &scale) {
    lifts_t lifts = {};
    if constexpr (LIFTS_EACH)
        KG_UNROLL for (int r = 0; r < S_REGS; r++) lifts.of[r % LIFTED] = lift_of(scale.v[r]);
    return lifts;
}
typedef float block_scores_t[S_REGS];
KG_DEV const block_scores_t &lifted(block_scores_t &x, const block_scores_t &s,
                                    const lifts_t &lifts) {
    if constexpr (!LIFTS_EACH) return s;
    KG_UNROLL for (int r = 0; r < S_REGS; r++) x[r] = s[r] + lifts.of[r % LIFTED].by;
    return x;
}

KG_DEV float column_max(float x) {
    int lane = (int)lane_id();
    KG_UNROLL for (int m = COLUMN_STEP; m < COLUMN_STEP * WAVE * COLS / NI; m *= 2) x =
        fmax(x, float_of(shuffle(bits_of(x), (u32)(lane ^ m))));
    return x;
}
KG_DEV float column_sum(float x) {
    int lane = (int)lane_id();
    KG_UNROLL for (int m = COLUMN_STEP; m < COLUMN_STEP * WAVE * COLS / NI; m *= 2) x +=
        float_of(shuffle(bits_of(x), (u32)(lane ^ m)));
    return x;
}

KG_DEV keys_t keys_of(args_t a, const segment_t &g) {
    keys_t keys;
    keys.first = g.see.first;
    keys.last = larger(g.see.last, 0);
    keys.table = DENSE ? nullptr : table_of(a, g.seq.index);
    keys.dense = DENSE ? uniform(dense_key(a, g.seq.index, 0)) : 0;
    keys.page = a.page;
    keys.last_page = a.last_page;
    keys.magic = a.page_magic;
    if (KEEP != 0) keys.first = (int)opaque((u32)keys.first); // scalars are scarce
    keys.keep = KEEP == WINDOW_RT ? (int)opaque((u32)a.keep) : KEEP;
    return keys;
}

KG_DEV float head_descale(const float *p, const KG_CONSTANT long long (&stride)[3],
                          const segment_t &g) {
    if constexpr (DESCALE != DESCALE_HEAD)
        return 1.0f;
    else
        return load(p + g.seq.index * stride[0] + g.kv_head * stride[2]);
}

// Queries of 8 bits have one, too.
KG_DEV float query_descale(args_t a, const segment_t &g) {
    return load(a.q_descale + g.seq.index * a.q_descale_stride[0] +
                g.kv_head * a.q_descale_stride[2]);
}

// What the scores of a sequence and KV head are multiplied with.
KG_DEV float score_scale(args_t a, const segment_t &g) {
    float scale = a.scale / INT4_UP * head_descale(a.k_descale, a.k_descale_stride, g);
    if constexpr (Q_8BIT) scale *= query_descale(a, g);
    return scale;
}

// Of a row of a group: its sequence is the last that begins at or before its token.
KG_DEV float row_scale(args_t a, const segment_t &g, int row) {
    segment_t of_seq = g;
    group_t group = group_of_wave(a, g.seq.line);
    int token = g.seq.q_start + (g.row_block * ROWS + row) / GROUP, low = group.first,
        high = group.end;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (start_of(a, middle) <= token)
            low = middle;
        else
            high = middle;
    }
    of_seq.seq.index = low;
    return score_scale(a, of_seq);
}

KG_DEV void column_facts(head_t &h, args_t a, const segment_t &g, const role_t &role, float scale) {
    int lane = (int)opaque(lane_id()); // no row's condition is kept for the next segment
    bool shared = CASCADE && g.seq.shared < 0;
    h.first_row = g.row_block * ROWS + role.row;
    h.context = g.seq.context;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        int row = t * NI + lane_column(lane, c);
        h.scale[t][c] = scale;
        if (shared && (DESCALE == DESCALE_HEAD || Q_8BIT))
            h.scale[t][c] = row_scale(a, g, role.row + row);
        h.slope[t][c] = 0;
        if constexpr (SPANS != 0) {
            int token = g.seq.q_start + (h.first_row + row) / GROUP;
            int end = row_exists(g, role.row + row) ? load(a.span_ends + token) : 0;
            h.span_end[SPANS ? t : 0][c] = smaller(end, g.seq.kv_len - 1);
        }
        if constexpr (TREE != 0)
            h.mask[t][c] = row_exists(g, role.row + row) && !shared
                               ? mask_at(h.words, (h.first_row + row) / GROUP)
                               : 0;
        if constexpr (ALIBI != 0)
            if (row_exists(g, role.row + row))
                h.slope[t][c] =
                    load(a.alibi + g.kv_head * GROUP + (h.first_row + row) % GROUP) * LOG2E;
    }
}

// At or behind the block's rows, or all rows; a word with bits that no path has is as
// deep as a word can be.
KG_DEV int last_position(const segment_t &g) {
    if constexpr (TREE != 0) return g.seq.context + MASK_BITS - 1;
    if constexpr (!UNBOUNDED) return g.seq.kv_len - 1;
    return g.seq.context + smaller(((g.row_block + 1) * ROWS - 1) / GROUP, g.seq.q_len - 1);
}

KG_DEV head_t head_of(args_t a, const segment_t &g, const role_t &role) {
    head_t h;
    h.index = g.kv_head;
    h.k = (const u8 *)a.k + g.kv_head * a.k_head;
    h.v = (const u8 *)a.v + g.kv_head * a.v_head;
    h.k_page = a.k_page, h.v_page = a.v_page;
    h.k_token = a.k_token, h.v_token = a.v_token;
    h.k_chunk = a.k_chunk, h.v_chunk = a.v_chunk, h.v_dim_stride = a.v_dim_stride;
    h.softcap = float_of(opaque(bits_of(a.softcap))); // scalars are scarcer than vectors
    h.window = window_of(a);
    if (RIGHT == WINDOW_RT || TREE) h.window = (int)opaque((u32)h.window);
    h.right = RIGHT == WINDOW_RT ? (int)opaque((u32)a.right) : RIGHT;
    h.causal = g.seq.causal;
    h.words = words_of(a, g.seq.index);
    h.words_end = g.seq.context + g.seq.q_len;
    // The rows of the block differ in position: the earliest sees the fewest
    // late keys, the latest the fewest early ones.
    bool tree = TREE && !(CASCADE && g.seq.shared < 0);
    h.safe_last =
        tree ? g.seq.context - 1 : last_key(a, g.seq, (g.row_block * ROWS + role.row) / GROUP);
    h.safe_first = CHUNK != 0    ? chunk_start(last_position(g))
                   : WINDOW != 0 ? last_position(g) + 1 - h.window
                                 : 0;
    column_facts(h, a, g, role, score_scale(a, g));
    return h;
}

// The greatest product is the greatest score where no scale is negative: the row's queries are
// instead. None is 0, or what is masked would be scaled to NaN.
KG_DEV void turn_row(float &scale, u32 (&row)[K_CHUNKS][Q_WORDS]) {
    u32 sign = scale < 0 ? 0x80008000u : 0;
    if (any(sign != 0))
        KG_UNROLL for (int n = 0; n < K_CHUNKS * Q_WORDS; n++) row[n / Q_WORDS][n % Q_WORDS] ^=
            sign;
    scale = scale == 0 ? 1e-30f : scale < 0 ? -scale : scale;
}
KG_DEV void scale_q(head_t &h, q_frag_t &q) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < COLS; c++) {
        h.scale[t][c] *= q.scale[t][c];
        if constexpr (SCALES_LATE && MAY_TURN) turn_row(h.scale[t][c], q.w[t]);
    }
}

KG_DEV void load_token_scales(token_scale_t &scale, args_t args, const head_t &h,
                              const keys_t &keys, const ids_t &ids, int start) {
    if constexpr (LANE_SCALES) {
        constexpr bool as_keys = COLS > 1; // a lane's scores belong to its key rows
        args_t a = reread(args);           // sixteen scalars that the loop need not keep
        int lane = (int)lane_id();
        KG_UNROLL for (int r = 0; r < S_REGS; r++) {
            int row = as_keys ? r / COLS : r, n = SMALL_PAGE ? row : 0;
            int token = start + s_token(lane, r);
            int base =
                as_keys ? start + k_token(lane_i(lane), n) : start + TPL * lane_grp(lane) + n;
            int slot = slot_of(keys, token, SHARED_ID ? start : base);
            i64 page = inside_pool(keys, as_keys ? ids.k[as_keys ? n : 0] : ids.v[as_keys ? 0 : n]);
            scale.k[r] = load(a.k_descale + page * a.k_descale_stride[0] +
                              slot * a.k_descale_stride[1] + h.index * a.k_descale_stride[2]);
            scale.v[r] = load(a.v_descale + page * a.v_descale_stride[0] +
                              slot * a.v_descale_stride[1] + h.index * a.v_descale_stride[2]);
        }
    }
}

// Where the lane's own scale is, of a key or a value of page `id`.
KG_DEV const float *address_of_scale(args_t a, const head_t &h, const keys_t &keys, u32 id,
                                     int token, bool is_key) {
    i64 by_page = is_key ? a.k_descale_stride[0] : a.v_descale_stride[0];
    i64 by_slot = is_key ? a.k_descale_stride[1] : a.v_descale_stride[1];
    i64 head = h.index * (is_key ? a.k_descale_stride[2] : a.v_descale_stride[2]);
    const float *from = (is_key ? a.k_descale : a.v_descale) + head;
    u32 slot = (u32)slot_of(keys, token, token);
    return from + (i64)((u64)id * (u64)by_page + (u64)slot * (u64)by_slot); // no signs
}
KG_DEV float scale_of_lane(args_t a, const head_t &h, const keys_t &keys, u32 id, int token,
                           bool is_key) {
    return load(address_of_scale(a, h, keys, id, token, is_key));
}

// Of whole pages a lane asks for one scale of the block, half of them for those of keys, and has
// those of its scores from the others.
constexpr bool SPREADS_SCALES = BY_PAGE || (IS_SM90 && SHARED_ID);
KG_DEV void load_page_scales(token_scale_t &scale, args_t args, const head_t &h, const keys_t &keys,
                             const ids_t &ids, int start) {
    if constexpr (!LANE_SCALES) return;
    args_t a = reread(args); // sixteen scalars that the loop need not keep
    int lane = (int)lane_id(), token = start + lane % TOK;
    u32 first = (u32)ids.k[0], last = (u32)ids.k[K_IDS - 1];
    u32 id = lane / 16 % 2 != 0 ? last : first;
    if constexpr (!BY_PAGE) id = (u32)inside_pool(keys, (i32)id); // scalars are
    scale.k[0] = scale_of_lane(a, h, keys, id, token, lane / TOK % 2 == 0);
}
KG_DEV void spread_page_scales(token_scale_t &scale) {
    if constexpr (!SPREADS_SCALES || !LANE_SCALES) return;
    u32 mine = bits_of(scale.k[0]);
    KG_UNROLL for (int r = 0; r < S_REGS; r++) {
        u32 at = (u32)token_at(s_token((int)lane_id(), r));
        scale.k[r % (LANE_SCALES ? S_REGS : 1)] = float_of(shuffle(mine, at));
        scale.v[r % (LANE_SCALES ? S_REGS : 1)] = float_of(shuffle(mine, at + TOK));
    }
}

// c tanh(x / c) = c - 2c / (1 + e^(2x/c)): saturates, never NaN.
KG_DEV float soft_cap(float x, float cap) {
    return cap - 2.0f * cap * rcp(1.0f + exp2(x * (2.0f * LOG2E) * rcp(cap)));
}

// Position of the lane's column in the sequence. Computed where it is needed, at
// the edges, rather than held in registers all along.
KG_DEV int position_of(const head_t &h, int lane, int t, int c) {
    if constexpr (TREE != 0) return h.context + depth_of(h.mask[TREE ? t : 0][c]);
    return h.context + (h.first_row + t * NI + lane_column(lane, c)) / GROUP;
}

// Of a key; those of the tree stand at their depth.
KG_DEV int key_position(const head_t &h, int token) {
    if (TREE == 0 || token < h.context || token < 0 || token >= h.words_end) return token;
    return h.context + depth_of(mask_at(h.words, token - h.context));
}

// The edge before a query, at which kept keys do not end.
KG_DEV bool reaches(const head_t &h, const keys_t &keys, int position, int token) {
    if (KEEP != 0 && token < keys.keep) return true;
    // Of a tree with more tokens than its sequence has keys, places lie before the start.
    if constexpr (CHUNK != 0)
        return token >= chunk_start(position) || (TREE != 0 && chunk_start(position) == 0);
    return WINDOW == 0 || position - token < h.window;
}

// In registers of numbers, not of conditions: those are pairs of scalars.
KG_DEV bool tree_visible(const head_t &h, const keys_t &keys, mask_t mask, int position,
                         int token) {
    int node = token - h.context;
    u32 seen = (u32)(mask >> (node & (MASK_BITS - 1))) & 1u;
    seen = node < MASK_BITS && token <= keys.last ? seen : 0;
    seen = opaque(node < 0 ? 1u : seen);
    if constexpr (!SEES_START) seen = reaches(h, keys, position, key_position(h, token)) ? seen : 0;
    return seen != 0;
}

// last: that a causal query sees.
KG_DEV bool visible(const head_t &h, const keys_t &keys, int position, int last, int token) {
    if constexpr (!RAGGED)
        return token <= keys.last && (token >= keys.first || (KEEP != 0 && token < keys.keep));
    else if (CAUSAL != 1 && !h.causal)
        return token <= keys.last && reaches(h, keys, position, token) &&
               (RIGHT == 0 || token - position < h.right);
    else
        return token <= last && reaches(h, keys, position, token);
}

// What a slope is multiplied by, of a key so far behind its query.
KG_DEV float lean_of(int behind) {
    if constexpr (ALIBI != ALIBI_SQRT) return (float)behind;
    float before = (float)larger(-behind, 0);
    return -before * rsqrt(fmax(before, 1.0f));
}

// Products that have been added up.
KG_DEV float score(const float (&s)[S_REGS], int reg) { return s[reg]; }

template <class T>
KG_DEV void scale_scores(float (&s)[S_REGS], const T &dot, const head_t &h, int t, int start,
                         const token_scale_t &scale) {
    int lane = (int)opaque(lane_id()); // or the positions of one tile wait for the next
    KG_UNROLL for (int r = 0; r < S_REGS; r++) {
        int c = r % COLS, token = start + token_at(s_token(lane, r));
        s[r] = score(dot, r) * h.scale[t][c];
        if constexpr (LANE_SCALES) s[r] *= scale.k[r];
        if constexpr (SOFTCAP != 0 && !CAP_LAST) s[r] = soft_cap(s[r], h.softcap);
        if constexpr (ALIBI != 0)
            s[r] += h.slope[t][c] * lean_of(key_position(h, token) - position_of(h, lane, t, c));
        if constexpr (CAP_LAST != 0) s[r] = soft_cap(s[r], h.softcap);
    }
}

// Whether some row does not see some of `keys` keys from `start` on.
KG_DEV bool is_edge(const head_t &h, int start, int keys) {
    return start + keys - 1 > h.safe_last || start < h.safe_first;
}

KG_DEV void mask_scores(float (&s)[S_REGS], const head_t &h, int t, int start, const keys_t &keys) {
    int lane = (int)opaque(lane_id()); // or the masks of one tile wait for the next
    KG_UNROLL for (int r = 0; r < S_REGS; r++) {
        int c = r % COLS, token = start + token_at(s_token(lane, r)),
            position = position_of(h, lane, t, c);
        int last = SPANS ? larger(h.span_end[SPANS ? t : 0][c], position) : position;
        bool seen = TREE ? tree_visible(h, keys, h.mask[TREE ? t : 0][c], position, token)
                         : visible(h, keys, position, last, token);
        if (!seen) s[r] = -INFINITE;
    }
}

template <class T>
KG_DEV void finish_scores(float (&s)[S_REGS], const T &dot, const head_t &h, int t, int start,
                          const keys_t &keys, const token_scale_t &scale) {
    scale_scores(s, dot, h, t, start, scale);
    if (is_edge(h, start, TOK)) mask_scores(s, h, t, start, keys);
}

KG_DEV void scale_p(float (&p)[S_REGS], const token_scale_t &scale) {
    if constexpr (LANE_SCALES) KG_UNROLL for (int r = 0; r < S_REGS; r++) p[r] *= scale.v[r];
}

// --- running sums ------------------------------------------------------------

// A wave's share of its rows: maximum and sum of what it has seen, and the
// weighted values. Locals, not members of one struct: the compiler then keeps
// each in registers.
typedef float column_t[ROW_TILES][COLS];
typedef acc_t values_t[ROW_TILES][O_TILES];

KG_DEV void clear(column_t &m, column_t &l, values_t &o) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        KG_UNROLL for (int c = 0; c < COLS; c++) m[t][c] = -INFINITE, l[t][c] = 0;
        KG_UNROLL for (int n = 0; n < O_TILES; n++) o[t][n] = acc_t{};
    }
}

// The greatest scores of a tile in this lane.
KG_DEV void raise_tops(float (&top)[COLS], const float (&s)[S_REGS]) {
    KG_UNROLL for (int c = 0; c < COLS; c++) KG_UNROLL for (int r = c; r < S_REGS; r += COLS)
        top[c] = fmax(top[c], s[r]);
}

// With those of `s`; whether the running maximum of tile `t` needs them.
KG_DEV bool find_tops(float (&top)[COLS], const column_t &m, int t, const float (&s)[S_REGS]) {
    bool exceeds = false;
    raise_tops(top, s);
    KG_UNROLL for (int c = 0; c < COLS; c++) exceeds |= top[c] > m[t][c] + RESCALE_AT;
    return exceeds;
}

// Returns what the weighted values are to be multiplied with.
KG_DEV float raise_column(float &m, float &l, float top) {
    float raised = fmax(m, column_max(top));
    // Not with the other rows: what they are must not show.
    if (INVARIANT && !(raised > m + RESCALE_AT)) raised = m;
    float alpha = m == -INFINITE ? 0.0f : exp2(m - raised);
    m = raised;
    l *= alpha;
    return alpha;
}
template <int N> KG_DEV void scale_column(acc_t (&o)[N], int c, float alpha) {
    KG_UNROLL for (int n = 0; n < N; n++) KG_UNROLL for (int r = c; r < O_REGS; r += COLS)
        o[n][r] *= alpha;
}
// more: tiles that are weighted as the values are.
template <class... ACC>
KG_DEV void raise_tile(column_t &m, column_t &l, values_t &o, int t, const float (&top)[COLS],
                       ACC &...more) {
    KG_UNROLL for (int c = 0; c < COLS; c++) {
        float alpha = raise_column(m[t][c], l[t][c], top[c]);
        scale_column(o[t], c, alpha);
        (scale_column(more, c, alpha), ...);
    }
}

// Moves the running maximum of tile `t` when some score needs it.
template <class... ACC>
KG_DEV void raise_maximum(column_t &m, column_t &l, values_t &o, int t, const float (&s)[S_REGS],
                          ACC &...more) {
    float top[COLS];
    KG_UNROLL for (int c = 0; c < COLS; c++) top[c] = s[c];
    if (any(find_tops(top, m, t, s))) raise_tile(m, l, o, t, top, more...);
}

#if KG_WAVE == 64 // whose lanes compute two at once
KG_DEV void scores_to_p(const column_t &m, column_t &l, int t, float (&s)[S_REGS]) {
    pair_t top = pair_of(m[t][0] == -INFINITE ? 0.0f : m[t][0]), sum = {0, 0};
    KG_UNROLL for (int r = 0; r < S_REGS; r += 2) {
        pair_t x = pair_t{s[r], s[r + 1]} - top;
        s[r] = exp2(x[0]), s[r + 1] = exp2(x[1]);
        sum = sum + pair_t{s[r], s[r + 1]};
    }
    l[t][0] += sum[0] + sum[1];
}
#else
KG_DEV void scores_to_p(const column_t &m, column_t &l, int t, float (&s)[S_REGS]) {
    KG_UNROLL for (int r = 0; r < S_REGS; r++) {
        float top = m[t][r % COLS];
        s[r] = exp2(s[r] - (top == -INFINITE ? 0.0f : top));
        l[t][r % COLS] += s[r];
    }
}
#endif

} // namespace kg

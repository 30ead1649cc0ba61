// Long queries on CDNA and RDNA: a set of some blocks of keys and values lies in LDS for all waves
// of the workgroup, and the next one is on its way there through registers. It comes while this
// one's products are computed, and is converted once for all waves.
//
// A line of LDS is a token's keys, or values, as 16-bit numbers (lines_of_tokens.h). How they are
// read, and values turned, is a matter of the isa: lines_permuted.h, lines_turned.h, lines_dims.h.
#pragma once
#include "kg/attn/lines.h"

namespace kg {

// --- from memory to LDS -------------------------------------------------------

// Rows of one page, of tokens `start` and those behind it: scalars say where they are, and
// to a lane its row is a number of bytes between two bounds.
template <int PIECES, int BYTES>
KG_DEV const u8 *near_row(const u8 *from, int token_bytes, const keys_t &keys, int start, int row) {
    constexpr int MOST = 32; // rows
    int first = clamp_token(keys, start), slot = slot_of(keys, start, start);
    int most = smaller(larger(keys.last - first, 0), MOST) * token_bytes, least = 0;
    u32 at = (u32)(row * token_bytes);
    if constexpr (!SEES_START) { // both bounds as scalars, an instruction each
        least = smaller(first - smaller(start, first), MOST) * token_bytes;
        most += least;
        at = at > (u32)least ? at : (u32)least;
    }
    at = at < (u32)most ? at : (u32)most;
    return from + ((i64)((u32)slot * (u32)token_bytes) - least) +
           (at + piece_of_lane<PIECES>(0) * (u32)BYTES);
}
// The lane's piece of a row, whose page it asks for by the lane that stands for the row.
template <int PIECES, int BYTES>
KG_DEV const u8 *far_row(const u8 *from, i64 page_bytes, int token_bytes, const keys_t &keys,
                         i32 page, int start, int key) {
    i64 id = inside_pool(keys, (i32)shuffle((u32)page, (u32)key));
    u32 slot = (u32)slot_of(keys, start + key, start + key / 16 * 16);
    return from + id * page_bytes + (i64)(slot * (u32)token_bytes) +
           piece_of_lane<PIECES>(0) * (u32)BYTES;
}

// Of the wave's rows, that of the lane's piece n / rows_at_once.
template <int PIECES, bool IS_KEYS> KG_DEV int row_of_piece(int n) {
    constexpr int AT_ONCE = rows_at_once(PIECES);
    if constexpr (IS_KEYS || !TOKENS_FOLLOW) return row_of_lane<PIECES>() + n;
    return row_of_lane<PIECES>() * (WAVE_KEYS / AT_ONCE) + n / AT_ONCE;
}

// `page`: as set_page has it.
template <bool IS_KEYS, int DIM>
KG_DEV void fetch_rows(rows_t<DIM> &rows, const u8 *from, i64 page_bytes, int token_bytes,
                       const keys_t &keys, i32 page, int start) {
    constexpr int PIECES = rows_t<DIM>::PIECES, BYTES = rows_t<DIM>::WORDS * 4;
    constexpr int AT_ONCE = rows_at_once(PIECES);
    KG_UNROLL for (int n = 0; n < WAVE_KEYS; n += AT_ONCE) {
        const u8 *p;
        int row = row_of_piece<PIECES, IS_KEYS>(n % 16);
        if constexpr (DENSE && KEEP == 0) { // all keys are one page's
            int from_key = start + n / 16 * 16;
            i64 id = inside_pool(keys, keys.dense + clamp_token(keys, from_key));
            p = near_row<PIECES, BYTES>(from + id * page_bytes, (int)page_bytes, keys, from_key,
                                        row);
        } else if constexpr (!SMALL_PAGE && KEEP == 0 && 16 % AT_ONCE == 0) {
            i64 id = inside_pool(keys, (i32)read_lane((u32)page, (u32)(n / 16 * 16)));
            p = near_row<PIECES, BYTES>(from + id * page_bytes, token_bytes, keys,
                                        start + n / 16 * 16, row);
        } else {
            p = far_row<PIECES, BYTES>(from, page_bytes, token_bytes, keys, page, start,
                                       row + n / 16 * 16);
        }
        load_words(rows.w[n / AT_ONCE], p);
    }
}

// --- a block -------------------------------------------------------------------

// What the scaled scores of a row are too great by: its product with keys that are zero. A row of
// infinite queries may see no key.
KG_DEV float score_bias(const q_frag_t &q, const head_t &head, int t) {
    if constexpr (!BIASED_KEYS) return 0;
    scores_t s = {};
    u32 zeros[KROWS][K_WORDS];
    KG_UNROLL for (int row = 0; row < KROWS; row++) KG_UNROLL for (int j = 0; j < K_WORDS; j++)
        zeros[row][j] = INT8_ZEROS;
    KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
        u32 query[K_WORDS];
        KG_UNROLL for (int j = 0; j < K_WORDS; j++) query[j] = q.w[Q_IN_LDS ? 0 : t][c][j];
        mma_qk(s, zeros, query);
    }
    float bias = score(s, 0) * head.scale[t][0];
    // By its bits: bias - bias may become one step with the product, and is its rounding then.
    return (bits_of(bias) & 0x7f800000u) != 0x7f800000u ? bias : 0;
}

// Of one row tile: what its exponents are relative to, and the sum of a lane's probabilities
// (or of its row's) beyond which that moves. Below zero as long as no row has seen a key: any sum
// is beyond.
struct level_t {
    float base, most;
};
constexpr float MOST_SUM = 256; // so none exceeds 2^8

// Scales of a set's tokens: half of a wave's lanes ask for those of the keys that it brings, half
// for those of the values. They lie behind the values, those of keys first.
KG_DEV float fetch_scale(args_t args, const head_t &h, const keys_t &keys, i32 page, int start) {
    static_assert(!BUFFERED || 2 * WAVE_KEYS <= WAVE, "a lane for each scale");
    if constexpr (DESCALE != DESCALE_TOKEN) return 0;
    args_t a = reread(args);
    int lane = (int)lane_id(), token = start + lane % WAVE_KEYS;
    u32 id = (u32)inside_pool(keys, page);
    return scale_of_lane(a, h, keys, id, token, lane / WAVE_KEYS % 2 == 0);
}
// Of keys times the row's, where that is one for all rows.
// Scores are scaled, and nothing else but a slope.
constexpr bool LEANS = ALIBI != 0 && ALIBI != ALIBI_SQRT;
constexpr bool PLAIN = SOFTCAP == 0 && (ALIBI == 0 || LEANS);
constexpr bool ONE_SCALE = DESCALE == DESCALE_TOKEN && PLAIN && !SCALED_Q && !CASCADE;
KG_DEV void put_scale(u8 *lines, float scale, const head_t &h, int wave) {
    if constexpr (DESCALE != DESCALE_TOKEN) return;
    int lane = (int)lane_id(), kind = lane / WAVE_KEYS % 2;
    if (ONE_SCALE && kind == 0) scale *= h.scale[0][0];
    ((float *)lines)[kind * SET_KEYS + wave * WAVE_KEYS + lane % WAVE_KEYS] = short_nan(scale);
}
// Of the lane's scores of the block whose scales begin at `lines`.
template <int N> KG_DEV void read_scales(float (&scale)[N], const u8 *lines) {
    KG_UNROLL for (int r = 0; r + 3 < N; r += 4) {
        piece_t some = *(const piece_t *)(lines + (s_token((int)lane_id(), 0) + r) * 4);
        KG_UNROLL for (int j = 0; j < 4; j++) scale[r + j] = float_of(some.w[j]);
    }
}
KG_DEV void read_scales(token_scale_t &scale, const u8 *lines) {
    if constexpr (DESCALE != DESCALE_TOKEN) return;
    order_here(); // registers are for products, then for scales
    read_scales(scale.k, lines);
    if constexpr (!SCALED_VALUES) read_scales(scale.v, lines + SET_KEYS * 4);
}

// What a row's scores of tokens that follow one another are added to: less their base, and leaning.
// Slopes grow from token to token, and only where they begin is worked out for each row.
struct lean_t {
    pair_t now, step;
};
KG_DEV lean_t lean_from(const head_t &head, int t, int start, float base) {
    if constexpr (!(PLAIN && LEANS)) return lean_t{pair_of(-base), pair_of(0)};
    int lane = (int)lane_id();
    int behind = start + s_token(lane, 0) - position_of(head, lane, t, 0);
    float slope = head.slope[t][0], from = slope * (float)behind - base;
    return lean_t{pair_t{from, from + slope}, pair_of(2 * slope)};
}

// x = the scores less their base.
KG_DEV void lower_scores(float (&x)[S_REGS], const scores_t &dot, const head_t &head, int t,
                         int start, const token_scale_t &scale, float base) {
    constexpr bool TOKEN = DESCALE == DESCALE_TOKEN;
    if constexpr (!PLAIN) scale_scores(x, dot, head, t, start, scale);
    lean_t lean = lean_from(head, t, start, base);
    KG_UNROLL for (int r = 0; r < S_REGS; r += 2) {
        pair_t y = {x[r], x[r + 1]}, by = pair_of(head.scale[t][0]);
        if constexpr (PLAIN) y = pair_t{score(dot, r), score(dot, r + 1)};
        if constexpr (PLAIN && TOKEN) {
            if constexpr (!ONE_SCALE) y = y * by;
            by = pair_t{scale.k[r], scale.k[r + 1]};
        }
        y = PLAIN ? __builtin_elementwise_fma(y, by, lean.now) : y - pair_of(base);
        if constexpr (PLAIN && LEANS) lean.now = lean.now + lean.step;
        x[r] = y[0], x[r + 1] = y[1];
    }
}

KG_DEV float row_sum(const u32 (&p)[P_WORDS]) {
    constexpr u32 TWO_ONES = COMPUTE_F16 ? 0x3c003c00 : 0x3f803f80;
    const u32 ones[4] = {TWO_ONES, TWO_ONES, TWO_ONES, TWO_ONES};
    acc_t sum = {};
    mma_pv(sum, ones, p);
    return sum[0];
}

KG_DEV float lifted_sum(const float (&y)[S_REGS], const lifts_t &lifts) {
    pair_t sum = {0, 0};
    KG_UNROLL for (int r = 0; r < S_REGS; r += 2) {
        pair_t by = {lifts.of[r % LIFTED].power, lifts.of[(r + 1) % LIFTED].power};
        sum = __builtin_elementwise_fma(pair_t{y[r], y[r + 1]}, by, sum);
    }
    return sum[0] + sum[1];
}
// Their probabilities as an operand; returns the lane's sum, or its row's. held: LIFTS, what is
// held below a bound instead of that.
KG_DEV float weights_of(u32 (&p)[P_WORDS], const float (&x)[S_REGS], const token_scale_t &scale,
                        const lifts_t &lifts, float &held) {
    float y[S_REGS];
    pair_t sum = {0, 0};
    KG_UNROLL for (int r = 0; r < S_REGS; r += 2) {
        y[r] = exp2(x[r]), y[r + 1] = exp2(x[r + 1]);
        if (!ROW_SUMS) sum = r ? sum + pair_t{y[r], y[r + 1]} : pair_t{y[r], y[r + 1]};
    }
    if constexpr (LIFTS_EACH) held = lifted_sum(y, lifts);
    if constexpr (!SCALED_VALUES) scale_p(y, scale);
    pack_p(p, y);
    return ROW_SUMS ? row_sum(p) : sum[0] + sum[1];
}

// Scores of a row relative to its greatest, where one is beyond what is held; x follows.
KG_DEV void raise_level(level_t &level, float &l, acc_t (&o)[O_TILES], float (&x)[S_REGS],
                        float sum, const lifts_t &lifts) {
    block_scores_t place;
    const block_scores_t &high = lifted(place, x, lifts);
    float top[COLS] = {high[0]};
    raise_tops(top, high);
    bool unseen = level.most < 0;
    float by = column_max(top[0]);
    if (!unseen) by = fmax(by, 0);
    // Not with the other rows: what they are must not show.
    if (INVARIANT && !(column_max(sum - level.most) > 0)) by = 0;
    level.most = by == -INFINITE ? level.most : MOST_SUM;
    float raised = level.base + (by == -INFINITE ? 0 : by);
    by = raised - level.base; // rounded as the base is
    float alpha = unseen ? 0.0f : exp2(-by);
    level.base = raised;
    l *= alpha;
    scale_column(o, 0, alpha);
    KG_UNROLL for (int r = 0; r < S_REGS; r++) x[r] -= by;
}

KG_DEV void attend_block(level_t (&level)[ROW_TILES], column_t &l, values_t &o, const queries_t &q,
                         const head_t &head, const keys_t &keys, int block, const u8 *k,
                         const u8 *v, const u8 *scales) {
    scores_t dots[ROW_TILES];
    token_scale_t scale;
    float x[ROW_TILES][S_REGS], sum[ROW_TILES], lifted_sums[ROW_TILES];
    float(&held)[ROW_TILES] = LIFTS_EACH ? lifted_sums : sum;
    u32 p[ROW_TILES][P_WORDS];
    int start = block_start(keys, block);
    bool exceeds = false;
    score_rows(dots, k, q);
    read_scales(scale, scales);
    lifts_t lifts = lifts_of(scale);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
        lower_scores(x[t], dots[t], head, t, start, scale, level[t].base);
    if (is_edge(head, start, TOK))
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mask_scores(x[t], head, t, start, keys);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        sum[t] = weights_of(p[t], x[t], scale, lifts, lifted_sums[t]);
        exceeds |= held[t] > level[t].most;
    }
    if (any(exceeds)) KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            raise_level(level[t], l[t][0], o[t], x[t], held[t], lifts);
            sum[t] = weights_of(p[t], x[t], scale, lifts, lifted_sums[t]);
        }
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) l[t][0] += sum[t];
    weigh_rows(o, v, p);
}

// --- the way through a segment ----------------------------------------------------

// Keys and values of the set that begins with `block`; returns the lane's scale.
KG_DEV float fetch_set(rows_t<HEAD_DIM> &k, rows_t<V_DIM> &v, args_t a, const head_t &h,
                       const keys_t &keys, i32 page, int block, int wave) {
    int start = first_token(keys, block, wave);
    fetch_rows<true>(k, h.k, h.k_page, h.k_token, keys, page, start);
    fetch_rows<false>(v, h.v, h.v_page, h.v_token, keys, page, start);
    return fetch_scale(a, h, keys, page, start);
}

// All waves go through the segment together; each takes of a set every n-th block, as
// the n waves with its rows share them, up to `end`.
KG_DEV void attend_buffered(column_t &m, column_t &l, values_t &o, const q_frag_t &frag, args_t a,
                            const segment_t &g, const role_t &role, const head_t &head,
                            const keys_t &keys, u8 *slots, int wave, int end) {
    if (g.block >= g.block_end || g.see.last < 0) return;
    const queries_t &q = queries_of(frag);
    rows_t<HEAD_DIM> k_rows;
    rows_t<V_DIM> v_rows;
    level_t level[ROW_TILES];
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) level[t] = level_t{score_bias(frag, head, t), -1};
    wave = (int)opaque_uniform((u32)wave); // or each segment's use of it is worked out before
    i32 page = set_page(keys, g.block, wave), next = set_page(keys, g.block + SET_BLOCKS, wave);
    int at = 0; // bytes from `slots` on
    u32 key = parked((u32)role.key), ways = parked((u32)role.keys), seen = parked((u32)end);
    float scale = fetch_set(k_rows, v_rows, a, head, keys, page, g.block, wave);
    KG_LOOP for (int block = g.block; block < g.block_end; block += SET_BLOCKS) {
        u8 *k = slots + at, *v = k + SETS.k;
        int after = block + SET_BLOCKS;
        if constexpr (SETS.slots == 1) barrier(); // of all waves, which have read the set before
        put_lines<true, K_LINE>(k, k_rows, scale, wave, [](int token) { return k_line(token); });
        put_values(v, v_rows, scale, wave);
        put_scale(v + SETS.v, scale, head, wave);
        page = next;
        next = set_page(keys, after + SET_BLOCKS, wave);
        scale = fetch_set(k_rows, v_rows, a, head, keys, page, after, wave);
        barrier();
        if constexpr (SETS.slots > 1) at = SETS.bytes / SETS.slots - at;
        int some = smaller((int)fetched(seen) - block, SET_BLOCKS), by = (int)fetched(ways);
        KG_LOOP for (int n = (int)fetched(key); n < some; n += by)
            attend_block(level, l, o, q, head, keys, block + n, k + n * TOK * K_LINE,
                         v + n * V_BLOCK, v + SETS.v + n * TOK * 4);
    }
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        m[t][0] = level[t].base - score_bias(frag, head, t);
        if (level[t].most < 0) m[t][0] = -INFINITE;
        if (ROW_SUMS && lane_grp((int)lane_id()) != 0) l[t][0] = 0; // one lane of those has it
    }
}

} // namespace kg

// Long queries on sm_90: keys and values of some blocks lie in LDS for all waves of the
// workgroup, and the next blocks are on their way there.
//
// A row of LDS is a token's keys, or values, in pieces of 16 bytes. Eight rows are read
// at a time, a piece of each: those eight lie beside each other (k_place), an odd number
// of pieces apart, so that they meet each bank once.
//
// A lane brings one piece of several rows. Where it reads and writes is worked out for
// the first; the others are steps of constants and of one product.
#pragma once
#include "kg/attn/lds_nvidia.h"
#include "kg/attn/softmax.h"

namespace kg {

constexpr int SET_KEYS = SET_BLOCKS * TOK;
constexpr int WAVE_KEYS = ceil_div(SET_KEYS, WAVES); // that a wave brings
constexpr int K_PIECES = HEAD_DIM * KV_BITS / 128, V_PIECES = V_DIM * KV_BITS / 128;
static_assert(!BUFFERED || TOK % WAVE_KEYS == 0, "a wave's keys are one block's");

// Queries as pieces meet them: a lane has 4 bytes of each piece of a chunk instead of
// one piece.
KG_DEV void turn_q(q_frag_t &q) {
    constexpr int WORDS = Q_WORDS / 4; // that meet 4 bytes of keys
    u32 grp = lane_id() % 4;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
        u32 w[Q_WORDS];
        KG_UNROLL for (int n = 0; n < Q_WORDS; n++) w[n] = q.w[Q_IN_LDS ? 0 : t][c][n];
        KG_UNROLL for (u32 piece = 0; piece < 4; piece++)
            KG_UNROLL for (int n = 0; n < WORDS; n++) {
            u32 mine = 0;
            KG_UNROLL for (u32 part = 0; part < 4; part++) {
                u32 theirs = shuffle(w[(int)part * WORDS + n], lane_id() - grp + piece);
                mine = grp == part ? theirs : mine;
            }
            q.w[Q_IN_LDS ? 0 : t][c][(int)piece * WORDS + n] = mine;
        }
    }
}

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
constexpr int lanes_of_row(int pieces) {
    int lanes = 1;
    while (lanes < pieces && lanes < WAVE) lanes *= 2;
    return lanes;
}

// The wave's keys, or values, of a set. `page`: as set_page has it. What is a lane too many
// brings the last piece, or row, again.
template <int PIECES, int ROW>
KG_DEV void bring_rows(u8 *set, const u8 *from, i64 page_bytes, int token_bytes, const keys_t &keys,
                       i32 page, int block, int wave) {
    constexpr int LANES = lanes_of_row(PIECES), AT_ONCE = smaller(WAVE / LANES, WAVE_KEYS);
    int lane = (int)opaque(lane_id()), row = smaller(lane / LANES, AT_ONCE - 1);
    int place = wave * WAVE_KEYS / TOK * TOK + k_place(wave * WAVE_KEYS % TOK + row);
    int start = first_token(keys, block, wave);
    if constexpr (SHARED_ID) from = settled(from + inside_pool(keys, page) * page_bytes);
    KG_UNROLL for (int first = 0; first < PIECES; first += LANES) {
        u32 piece = (u32)smaller(first + lane % LANES, PIECES - 1) * 16u;
        u8 *to = set + (u32)(place * ROW) + piece;
        KG_UNROLL for (int n = 0; n < WAVE_KEYS; n += AT_ONCE) {
            const u8 *p = from;
            if constexpr (!SHARED_ID)
                p += inside_pool(keys, (i32)shuffle((u32)page, (u32)(row + n))) * page_bytes;
            int token = start + row + n;
            u32 slot = (u32)slot_of(keys, token, SHARED_ID ? start : token);
            copy_16(to + k_place(n) * ROW, p + (slot * (u32)token_bytes + piece));
        }
    }
}

// The head's places are worked out again for each set: registers are short.
KG_DEV void bring(u8 *set, args_t a, const head_t &h, const keys_t &keys, i32 page, int block,
                  int wave) {
    i64 head = (i64)opaque((u32)h.index);
    bring_rows<K_PIECES, K_ROW>(set, (const u8 *)a.k + head * a.k_head, a.k_page, h.k_token, keys,
                                page, block, wave);
    bring_rows<V_PIECES, V_ROW>(set + SET_KEYS * K_ROW, (const u8 *)a.v + head * a.v_head, a.v_page,
                                h.v_token, keys, page, block, wave);
}

// The lane's row of the matrices of a block that begin with piece 0. Matrix m has the
// first or second eight rows, of the one piece or the next.
template <int ROW> KG_DEV u32 matrix_row(u32 half, u32 piece) {
    return (lane_id() % 8 + 8 * half) * (u32)ROW + piece * 16;
}
// Those of piece `first`, which is even: of an odd number the last has no next.
template <int PIECES> KG_DEV int matrix_piece(int first, u32 piece) {
    return first * 16 - (first + 1 < PIECES ? 0 : (int)piece * 16);
}

KG_DEV void score_step(scores_t (&s)[ROW_TILES], const u32 *first, const u32 *second,
                       const q_frag_t &q, int chunk, int word) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        const u32 *w = q.w[Q_IN_LDS ? 0 : t][chunk] + word;
        const u32 k[KROWS][K_WORDS] = {{first[0], first[1]}, {second[0], second[1]}};
        const u32 query[K_WORDS] = {w[0], w[1]};
        mma_qk(s[t], k, query);
    }
}

// The product of one step of head_dim, or more, for one block: `w` as load_matrices has it.
KG_DEV void score_pieces(scores_t (&s)[ROW_TILES], const u32 (&w)[4], const q_frag_t &q, int n) {
    constexpr int WORDS = Q_WORDS / 4; // of 4 bytes of keys
    u32 x[4][WORDS];
    KG_UNROLL for (int m = 0; m < 4; m++) {
        const u32 word[1] = {w[m]};
        to_compute<1>(x[m], word);
    }
    int chunk = n / 4, at = n % 4 * WORDS;
    if constexpr (WORDS == 1) {
        const u32 first[2] = {x[0][0], x[2][0]}, second[2] = {x[1][0], x[3][0]};
        score_step(s, first, second, q, chunk, at);
    } else {
        KG_UNROLL for (int m = 0; m < 4 && n + m / 2 < K_PIECES; m += 2)
            KG_UNROLL for (int j = 0; j < WORDS; j += 2)
                score_step(s, x[m] + j, x[m + 1] + j, q, chunk, at + m / 2 * WORDS + j);
    }
}

// s[b][t] = K Q^T of N blocks, whose keys begin at `k`: sums that do not wait for each
// other.
template <int N>
KG_DEV void score_buffer(scores_t (&s)[N][ROW_TILES], const u8 *k, const q_frag_t &q) {
    u32 piece = lane_id() / 16;
    k += matrix_row<K_ROW>(lane_id() / 8 % 2, piece);
    KG_UNROLL for (int b = 0; b < N; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++) s[b][t] =
        scores_t{};
    KG_UNROLL for (int n = 0; n < K_PIECES; n += 2) {
        u32 w[N][4];
        KG_UNROLL for (int b = 0; b < N; b++)
            load_matrices(w[b], k + b * TOK * K_ROW + matrix_piece<K_PIECES>(n, piece));
        KG_UNROLL for (int b = 0; b < N; b++) score_pieces(s[b], w[b], q, n);
    }
}

// Two tokens' values of some dims, as they are turned, to pairs of tokens.
template <int N> KG_DEV void turned_to_compute(u32 (&out)[N], u32 x) {
    const u32 in[1] = {KV_8BIT && !KV_4BIT ? byte_perm(x, 0, 0x03010200) : x};
    to_compute<1>(out, in);
}

// O += V^T P of the block whose values begin at `v`.
KG_DEV void weigh_buffer(values_t &o, const u8 *v, const u32 (&p)[ROW_TILES][P_WORDS]) {
    constexpr int UNIT = 16 / KV_BITS;
    u32 piece = lane_id() / 8 % 2;
    v += matrix_row<V_ROW>(lane_id() / 16, piece);
    KG_UNROLL for (int n = 0; n < V_PIECES; n += 2) {
        u32 w[4], x[4][UNIT];
        load_turned(w, v + matrix_piece<V_PIECES>(n, piece));
        KG_UNROLL for (int m = 0; m < 4; m++) turned_to_compute(x[m], w[m]);
        if constexpr (UNIT == 1) {
            const u32 values[4] = {x[0][0], x[2][0], x[1][0], x[3][0]};
            KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mma_pv(o[t][n / 2], values, p[t]);
        } else {
            KG_UNROLL for (int m = 0; m < 2 && n + m < V_PIECES; m++)
                KG_UNROLL for (int j = 0; j < UNIT; j += 2) {
                const u32 values[4] = {x[m][j], x[m + 2][j], x[m][j + 1], x[m + 2][j + 1]};
                int tile = (n + m) * (UNIT / 2) + j / 2;
                KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mma_pv(o[t][tile], values, p[t]);
            }
        }
    }
}

// Scores of N blocks, ready for the exponential.
template <int N>
KG_DEV void finish_blocks(float (&s)[N][ROW_TILES][S_REGS], token_scale_t (&scale)[N],
                          const scores_t (&dots)[N][ROW_TILES], args_t a, const head_t &head,
                          const keys_t &keys, int block) {
    bool edge = false;
    KG_UNROLL for (int b = 0; b < N; b++) {
        int start = block_start(keys, block + b);
        if constexpr (DESCALE == DESCALE_TOKEN) {
            ids_t ids;
            load_ids(ids, keys, start);
            load_token_scales(scale[b], a, head, keys, ids, start);
        }
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
            scale_scores(s[b][t], dots[b][t], head, t, start, scale[b]);
        edge |= is_edge(head, start, TOK);
    }
    if (!edge) return;
    KG_UNROLL for (int b = 0; b < N; b++) KG_UNROLL for (int t = 0; t < ROW_TILES; t++)
        mask_scores(s[b][t], head, t, block_start(keys, block + b), keys);
}

// N blocks of the set.
template <int N>
KG_DEV void attend_blocks(column_t &m, column_t &l, values_t &o, const q_frag_t &q, args_t a,
                          const head_t &head, const keys_t &keys, int block, const u8 *k,
                          const u8 *v) {
    scores_t dots[N][ROW_TILES];
    token_scale_t scale[N];
    float s[N][ROW_TILES][S_REGS], top[ROW_TILES][COLS];
    u32 p[N][ROW_TILES][P_WORDS];
    bool exceeds = false;
    score_buffer(dots, k, q);
    finish_blocks(s, scale, dots, a, head, keys, block);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        KG_UNROLL for (int c = 0; c < COLS; c++) top[t][c] = s[0][t][c];
        KG_UNROLL for (int b = 1; b < N; b++) raise_tops(top[t], s[b][t]);
        exceeds |= find_tops(top[t], m, t, s[0][t]);
    }
    if (any(exceeds)) KG_UNROLL for (int t = 0; t < ROW_TILES; t++) raise_tile(m, l, o, t, top[t]);
    KG_UNROLL for (int b = 0; b < N; b++) {
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            scores_to_p(m, l, t, s[b][t]);
            scale_p(s[b][t], scale[b]);
            pack_p(p[b][t], s[b][t]);
        }
        weigh_buffer(o, v + b * TOK * V_ROW, p[b]);
    }
}

constexpr bool BY_TWO = SET_BLOCKS > 1 && kg_attn_by_two(ROW_TILES, ACC_REGS, Q_REGS);

// All waves go through the segment together; each takes of a set every n-th block, as
// the n waves with its rows share them, up to `end`.
KG_DEV void attend_buffered(column_t &m, column_t &l, values_t &o, const q_frag_t &q, args_t a,
                            const segment_t &g, const role_t &role, const head_t &head,
                            const keys_t &keys, u8 *sets, int wave, int end) {
    if (g.block >= g.block_end || g.see.last < 0) return;
    i32 page = set_page(keys, g.block, wave);
    i32 next_page = set_page(keys, g.block + SET_BLOCKS, wave);
    int at = 0; // bytes from `sets` on
    barrier();  // what lay here has been read
    bring(sets, a, head, keys, page, g.block, wave);
    copies_end();
    page = next_page;
    next_page = set_page(keys, g.block + 2 * SET_BLOCKS, wave);
    if (g.block + SET_BLOCKS < g.block_end)
        bring(sets + SET_BYTES, a, head, keys, page, g.block + SET_BLOCKS, wave);
    copies_end();
    KG_LOOP for (int block = g.block; block < g.block_end; block += SET_BLOCKS) {
        const u8 *k = sets + at, *v = k + SET_KEYS * K_ROW;
        int free = at == 0 ? 2 * SET_BYTES : at - SET_BYTES;
        copies_done<1>();
        barrier(); // of all waves, which have read the set before, too
        page = next_page;
        if (block + 2 * SET_BLOCKS < g.block_end)
            bring(sets + free, a, head, keys, page, block + 2 * SET_BLOCKS, wave);
        copies_end();
        next_page = set_page(keys, block + 3 * SET_BLOCKS, wave);
        at = at == 2 * SET_BYTES ? 0 : at + SET_BYTES;
        int n = role.key, some = smaller(end - block, SET_BLOCKS);
        if constexpr (BY_TWO)
            KG_LOOP for (; role.keys == 1 && n + 1 < some; n += 2) attend_blocks<2>(
                m, l, o, q, a, head, keys, block + n, k + n * TOK * K_ROW, v + n * TOK * V_ROW);
        KG_LOOP for (; n < some; n += role.keys) attend_blocks<1>(
            m, l, o, q, a, head, keys, block + n, k + n * TOK * K_ROW, v + n * TOK * V_ROW);
    }
}

} // namespace kg

// Few rows in a batch of long queries on sm_90, as those of a decode: what four waves multiply has
// 64 rows, of which they would fill one in sixteen. All waves have the same 16 rows instead, and
// each a block of a set, whose products are its own (mma.sync); at the end they meet in LDS.
#pragma once
#include "kg/attn/buffer_nvidia.h"
#include "kg/attn/output.h"

namespace kg {

// --- products of a block, of the wave's number in the set -------------------------

template <int T>
KG_DEV void score_block(acc_t (&s)[T][1], const q_frag_t &q, const u8 *queries, const u8 *k,
                        int block) {
    const u8 *mine = q_matrix(queries, BRINGS_Q ? block / 4 * GROUP_ROWS : 0, 0); // its group's
    tile_t keys = tile_of_columns(k + block * (TOK * 128)), rows = tile_of_rows(mine);
    KG_UNROLL for (int t = 0; t < T; t++) s[t][0] = acc_t{};
    KG_UNROLL for (int step = 0; step < HEAD_DIM / 16; step++) {
        u32 a[4];
        if constexpr (Q_IN_LDS)
            load_tile<false>(a, rows, (u32)(step / 4 * (64 * 128) + step % 4 * 32));
        else
            query_words(a, q, step);
        multiply_alone<false>(s, 0, a, keys, (u32)(step / 4 * MATRIX_BYTES + step % 4 * 32));
    }
}
template <int T>
KG_DEV void weigh_block(acc_t (&o)[T][O_TILES], const u32 (&p)[4], const u8 *v, int block) {
    tile_t values = tile_of_rows(v + block * (TOK * 128));
    KG_UNROLL for (int n = 0; n < O_TILES; n++)
        multiply_alone<true>(o, n, p, values, (u32)(n / 4 * MATRIX_BYTES + n % 4 * 32));
}

constexpr int SHARERS = smaller(WAVES, SET_BLOCKS); // waves that have a block
struct alone_t {
    static constexpr int BLOCKS = 1;
    static constexpr bool AT_ONCE = true;
};
KG_DEV int own_block(alone_t, int wave) { return wave; }
KG_DEV void take_turn(alone_t, int) {}
KG_DEV void pass_turn(alone_t, int) {}
template <int T>
KG_DEV void score_own(alone_t, acc_t (&s)[T][1], const q_frag_t &q, const u8 *queries, const u8 *k,
                      int wave) {
    if (wave < SHARERS) score_block(s, q, queries, k, wave);
}
template <int T>
KG_DEV void weigh_own(alone_t, acc_t (&o)[T][O_TILES], const u32 (&p)[1][4], const u8 *v,
                      int wave) {
    if (wave < SHARERS) weigh_block(o, p[0], v, wave);
}

// --- waves meet -----------------------------------------------------------------------

// What a wave says of its rows: its sums, then each tile's numbers, each lane its own.
template <int T> constexpr int SAID_QUADS = T * O_TILES + 1;
template <int T>
KG_DEV void say_rows(quad_t *to, const column_t &m, const column_t &l,
                     const acc_t (&o)[T][O_TILES]) {
    *to = quad_t{{m[0][0], m[T - 1][0], l[0][0], l[T - 1][0]}};
    KG_UNROLL for (int n = 0; n < T * O_TILES; n++) {
        const acc_t &x = o[n / O_TILES][n % O_TILES];
        to[(n + 1) * WAVE] = quad_t{{x[0], x[1], x[2], x[3]}};
    }
}
template <int T>
KG_DEV void add_rows(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], const quad_t *from) {
    quad_t sums = *from;
    KG_UNROLL for (int t = 0; t < T; t++) {
        float top = fmax(m[t][0], sums.x[t]);
        float mine = weight(m[t][0], top), theirs = weight(sums.x[t], top);
        m[t][0] = top;
        l[t][0] = l[t][0] * mine + sums.x[2 + t] * theirs;
        KG_UNROLL for (int n = 0; n < O_TILES; n++) {
            quad_t x = from[(t * O_TILES + n + 1) * WAVE];
            KG_UNROLL for (int r = 0; r < O_REGS; r++) o[t][n].x[r] =
                o[t][n].x[r] * mine + x.x[r] * theirs;
        }
    }
}

// The first wave gets what all have of the rows: the second half of the waves say it to the first,
// and go on; then half of those.
template <int HALF, int T>
KG_DEV void meet_first_wave(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], u8 *lds, int wave) {
    constexpr int QUADS = SAID_QUADS<T> * WAVE, MEETING = 6 + HALF; // named barrier
    static_assert(!SHARES_SETS || (T == 2 && (SHARERS - 1) * QUADS * 16 <= PARTS_BYTES),
                  "room for what waves have");
    if (wave >= 2 * HALF) return;
    quad_t *place = (quad_t *)lds + (int)lane_id();
    if (wave >= HALF) {
        say_rows(place + (wave - 1) * QUADS, m, l, o);
        say_at<2 * HALF * WAVE>(MEETING);
        return;
    }
    meet_at<2 * HALF * WAVE>(MEETING);
    add_rows(m, l, o, place + (wave + HALF - 1) * QUADS);
    if constexpr (HALF > 1) meet_first_wave<HALF / 2>(m, l, o, lds, wave);
}

// end: of the blocks that the rows see.
template <int T>
KG_DEV void attend_few(column_t &m, column_t &l, acc_t (&o)[T][O_TILES], const q_frag_t &q,
                       args_t a, const segment_t &g, const head_t &head, const keys_t &keys,
                       const u8 *queries, const ring_t &r, u8 *lds, int wave, int end) {
    if (is_empty(g)) return;
    attend_buffered(alone_t{}, m, l, o, q, a, g, head, keys, queries, r, lds + LDS_STAGE, wave,
                    wave < SHARERS ? end : g.block);
    meet_rows(); // all have read queries and values
    queries_are_read(r, wave);
    meet_first_wave<SHARERS / 2>(m, l, o, parts_at(lds, wave), wave);
}

} // namespace kg

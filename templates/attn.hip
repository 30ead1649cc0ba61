#include "kg/prelude/prelude_attn.h"
// Paged attention, decode and verify: one launch, split over the keys, merged
// by the last workgroup to arrive. Formula and arguments: <kgen/args.h>.
//
// A wave takes every WAVES-th block of keys of its workgroup's segment:
//   S = K Q^T          keys straight from memory into matrix operands
//   P = exp2(S - m)    m moves only when a score exceeds it by 2^8
//   O += V^T P^T       P is already where the second product wants it
#include "kg/attn/merge.h"
#include "kg/attn/softmax.h"
#include "kg/attn/tile.h"
#include "kg/attn/work.h"

namespace kg {

struct state_t {
    q_frag_t q;
    float m[ROW_TILES][COLS], l[ROW_TILES][COLS];
    acc_t o[ROW_TILES][O_TILES];
};

KG_DEV void clear(state_t &st) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        KG_UNROLL for (int c = 0; c < COLS; c++) st.m[t][c] = -INFINITE, st.l[t][c] = 0;
        KG_UNROLL for (int n = 0; n < O_TILES; n++) st.o[t][n] = acc_t{};
    }
}

// Moves the running maximum of tile `t` when some score needs it.
KG_DEV void raise_maximum(state_t &st, int t, const float (&s)[S_REGS]) {
    float top[COLS];
    bool exceeds = false;
    KG_UNROLL for (int c = 0; c < COLS; c++) {
        top[c] = s[c];
        KG_UNROLL for (int r = c + COLS; r < S_REGS; r += COLS) top[c] = fmax(top[c], s[r]);
        exceeds |= top[c] > st.m[t][c] + RESCALE_AT;
    }
    if (!any(exceeds)) return;
    KG_UNROLL for (int c = 0; c < COLS; c++) {
        float m = fmax(st.m[t][c], column_max(top[c]));
        float alpha = st.m[t][c] == -INFINITE ? 0.0f : exp2(st.m[t][c] - m);
        st.m[t][c] = m;
        st.l[t][c] *= alpha;
        KG_UNROLL for (int n = 0; n < O_TILES; n++) KG_UNROLL for (int r = c; r < O_REGS; r += COLS)
            st.o[t][n][r] *= alpha;
    }
}

KG_DEV void scores_to_p(state_t &st, int t, float (&s)[S_REGS]) {
    KG_UNROLL for (int r = 0; r < S_REGS; r++) {
        float m = st.m[t][r % COLS];
        s[r] = exp2(s[r] - (m == -INFINITE ? 0.0f : m));
        st.l[t][r % COLS] += s[r];
    }
}

// The wave's blocks of one segment.
KG_DEV void attend(state_t &st, args_t a, const segment_t &g, const head_t &head,
                   const keys_t &keys, int key_wave, int v_wave, const u8 *lds) {
    ids_t ids, next_ids;
    k_tile_t k;
    int block = g.block + key_wave;
    if (block >= g.block_end || g.seq.kv_len == 0) return;
    load_ids(ids, keys, block * TOK);
    load_ids(next_ids, keys, (block + WAVES) * TOK);
    load_k(k, head, keys, ids, block * TOK, 0, K_AHEAD);
    KG_LOOP for (; block < g.block_end; block += WAVES) {
        int start = block * TOK;
        v_tile_t v;
        scores_t dots[ROW_TILES];
        token_scale_t scale;
        load_v(v, head, keys, ids, start, v_wave, 0, V_AHEAD);
        load_token_scales(scale, a, head, keys, ids, start);
        score_block(dots, k, st.q, head, keys, ids, start, lds);
        ids_t far_ids;
        load_ids(far_ids, keys, start + 2 * WAVES * TOK);
        if (block + WAVES < g.block_end)
            load_k(k, head, keys, next_ids, start + WAVES * TOK, 0, K_AHEAD);
        u32 p[ROW_TILES][P_WORDS];
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            float s[S_REGS];
            finish_scores(s, dots[t], head, t, start, keys, scale);
            raise_maximum(st, t, s);
            scores_to_p(st, t, s);
            scale_p(s, scale);
            pack_p(p[t], s);
        }
        weigh_values(st.o, v, p, head, keys, ids, start, v_wave);
        ids = next_ids;
        next_ids = far_ids;
    }
}

// Arguments are read again in each phase: held across all of them they would
// not fit the scalar registers.
KG_DEV void run_segment(args_t a, const segment_t &g, cut_t cut, u8 *lds, int wave) {
    state_t st;
    head_t head = head_of(a, g);
    keys_t keys = keys_of(a, g);
    head.k = settled(head.k);
    head.v = settled(head.v);
    clear(st);
    load_q(st.q, a, g, lds, wave);
    scale_q(head, st.q);
    attend(st, a, g, head, keys, wave / V_SPLIT, wave % V_SPLIT, lds);
    reduce_and_store(st.m, st.l, st.o, reread(a), g, cut, lds, wave);
}

KG_DEV void run(args_t args, u8 *lds) {
    work_t work = work_begin(args);
    int wave = (int)wave_id();
    while (work.unit < work.end) {
        args_t a = reread(args);
        segment_t g = work_segment(work);
        if (g.block < g.block_end) run_segment(a, g, work.cut, lds, wave);
        work_advance(work, g, a);
    }
    clear_padding(reread(args));
}

} // namespace kg

KG_ENTRY(kg_attn_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_attn_args, args), lds);
}

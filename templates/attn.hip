#include "kg/prelude/prelude_attn.h"
// Paged attention: one launch, split over the keys, merged
// by the last workgroup to arrive. Formula and arguments: <kgen/args.h>.
//
// A wave takes rows, and of its workgroup's segment every n-th block of keys, as
// the n waves with the same rows share them:
//   S = K Q^T          keys straight from memory into matrix operands
//   P = exp2(S - m)    m moves only when a score exceeds it by 2^8
//   O += V^T P^T       P is already where the second product wants it
#include "kg/attn/merge.h"
#include "kg/attn/softmax.h"
#include "kg/attn/tile.h"
#include "kg/attn/work.h"

namespace kg {

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

// Moves the running maximum of tile `t` when some score needs it.
KG_DEV void raise_maximum(column_t &m, column_t &l, values_t &o, int t, const float (&s)[S_REGS]) {
    float top[COLS];
    bool exceeds = false;
    KG_UNROLL for (int c = 0; c < COLS; c++) {
        top[c] = s[c];
        KG_UNROLL for (int r = c + COLS; r < S_REGS; r += COLS) top[c] = fmax(top[c], s[r]);
        exceeds |= top[c] > m[t][c] + RESCALE_AT;
    }
    if (!any(exceeds)) return;
    KG_UNROLL for (int c = 0; c < COLS; c++) {
        float raised = fmax(m[t][c], column_max(top[c]));
        float alpha = m[t][c] == -INFINITE ? 0.0f : exp2(m[t][c] - raised);
        m[t][c] = raised;
        l[t][c] *= alpha;
        KG_UNROLL for (int n = 0; n < O_TILES; n++) KG_UNROLL for (int r = c; r < O_REGS; r += COLS)
            o[t][n][r] *= alpha;
    }
}

KG_DEV void scores_to_p(const column_t &m, column_t &l, int t, float (&s)[S_REGS]) {
    KG_UNROLL for (int r = 0; r < S_REGS; r++) {
        float top = m[t][r % COLS];
        s[r] = exp2(s[r] - (top == -INFINITE ? 0.0f : top));
        l[t][r % COLS] += s[r];
    }
}

// Behind the last block that a row of the wave sees.
KG_DEV int block_end_of(args_t a, const segment_t &g, const role_t &role) {
    if constexpr (!UNBOUNDED) return g.block_end;
    if (!row_exists(g, role.row)) return g.block;
    int row = g.row_block * ROWS + role.row + WAVE_ROWS - 1;
    int last = last_key(a, g.seq, smaller(row / GROUP, g.seq.q_len - 1));
    return last < 0 ? g.block : smaller(g.block_end, last / TOK + 1);
}

// The wave's blocks of one segment.
KG_DEV void attend(column_t &m, column_t &l, values_t &o, const q_frag_t &q, args_t a,
                   const segment_t &g, const role_t &role, const head_t &head, const keys_t &keys,
                   const u8 *lds) {
    ids_t ids, next_ids;
    k_tile_t k;
    int block = g.block + role.key, by = role.keys, end = block_end_of(a, g, role);
    if (block >= end || g.see.last < 0) return;
    load_ids(ids, keys, block * TOK);
    load_ids(next_ids, keys, (block + by) * TOK);
    load_k(k, head, keys, ids, block * TOK, 0, K_AHEAD);
    KG_LOOP for (; block < end; block += by) {
        int start = block * TOK;
        v_tile_t v;
        scores_t dots[ROW_TILES];
        token_scale_t scale;
        load_v(v, head, keys, ids, start, role.v, 0, V_AHEAD);
        load_token_scales(scale, a, head, keys, ids, start);
        score_block(dots, k, q, head, keys, ids, start, lds);
        ids_t far_ids;
        load_ids(far_ids, keys, start + 2 * by * TOK);
        if (block + by < end) load_k(k, head, keys, next_ids, start + by * TOK, 0, K_AHEAD);
        u32 p[ROW_TILES][P_WORDS];
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
            float s[S_REGS];
            finish_scores(s, dots[t], head, t, start, keys, scale);
            raise_maximum(m, l, o, t, s);
            scores_to_p(m, l, t, s);
            scale_p(s, scale);
            pack_p(p[t], s);
        }
        weigh_values(o, v, p, head, keys, ids, start, role.v);
        ids = next_ids;
        next_ids = far_ids;
    }
}

// Arguments are read again in each phase: held across all of them they would
// not fit the scalar registers.
KG_DEV void run_segment(args_t a, segment_t &g, cut_t cut, u8 *lds, int wave) {
    q_frag_t q;
    column_t m, l;
    values_t o;
    role_t role = role_of(g, wave);
    head_t head = head_of(a, g, role);
    u8 *queries = lds + (Q_IN_LDS ? role.group * Q_LDS_WORDS * 4 : 0);
    keys_t keys = keys_of(a, g);
    head.k = settled(head.k);
    head.v = settled(head.v);
    g.item_start = parked(g.item_start);
    g.item_end = parked(g.item_end);
    clear(m, l, o);
    load_q(q, a, g, role, queries);
    scale_q(head, q);
    attend(m, l, o, q, a, g, role, head, keys, queries);
    g.item_start = fetched(g.item_start);
    g.item_end = fetched(g.item_end);
    reduce_and_store(m, l, o, reread(a), g, cut, lds, wave);
}

KG_DEV void run(args_t args, u8 *lds) {
    work_t work = work_begin(args);
    int wave = (int)wave_id();
    take_workspace(args);
    while (work.unit < work.end) {
        args_t a = reread(args);
        segment_t g = work_segment(work, a);
        g.next = parked(g.next);
        work.end = parked(work.end);
        work.seq_start = parked(work.seq_start);
        if (g.shares) run_segment(a, g, work.cut, lds, wave);
        g.next = fetched(g.next);
        work.end = fetched(work.end);
        work.seq_start = fetched(work.seq_start);
        work_advance(work, g, a);
    }
    finish(reread(args));
}

} // namespace kg

KG_ENTRY(kg_attn_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_attn_args, args), lds);
}

#include "kg/prelude/prelude_gdn.h"
// Gated DeltaNet and KDA decode, from the in-projection to the gated norm, in
// one launch. Formula and arguments: <kgen/gdn_args.h>.
//
// A workgroup has one value head of one sequence, or a part of its values:
//   load    inputs, convolution windows, gates, then the state, all in flight
//   stage   convolution and gates -> LDS; the window is moved on
//   step    for each token  u = beta (v - S k),  S += u k^T,  o = S q; while one
//           part of the state is computed on, the next is in flight
//   norm    over the head's outputs, gate, quantise
#include "kg/gdn/gdn_out.h"
#include "kg/gdn/gdn_step.h"
#include "kg/gdn/gdn_unpack.h"

namespace kg {

KG_DEV void run_head(args_t a, const seq_t &s, const head_t &head, float *lds) {
    inputs_t in;
    gates_t gates;
    norm_t norm;
    words_t next[AHEAD];
    int wave = (int)wave_id();
    ring_t ring = ring_of(a, s);
    load_inputs(in, a, s, head);
    load_gates(gates, a, s, head);
    if constexpr (HAS_NORM) load_norm(norm, a, s, head);
    KG_UNROLL for (int i = 0; i < AHEAD; i++) load_state(next[i], a, s, head, place_t{wave, i});
    stage_inputs(in, a, s, head, lds);
    stage_gates(gates, a, s, lds);
    if constexpr (HAS_NORM) stage_norm(norm, s, lds);
    if constexpr (REPLAY) stage_ring(a, s, head, ring, lds);
    barrier();
    u32 before = 0;
    if constexpr (SHARED_WINDOW) before = arrive(a, s, head);
    if constexpr (REPLAY)
        if (head.split == 0) append_decays(a, s, head, ring, lds);
    token_t token;
    KG_LOOP for (int pass = 0; pass < PASSES; pass += AHEAD)
        KG_UNROLL for (int i = 0; i < AHEAD; i++) {
        tile_t tile;
        take_state(tile, next[i], s);
        take_tokens(tile, token, a, s, head, ring, lds, place_t{wave, pass + i});
        if (pass + i + AHEAD < PASSES)
            load_state(next[i], a, s, head, place_t{wave, pass + i + AHEAD});
    }
    if constexpr (SHARED_WINDOW) announce(a, s, head, returned(before), lds);
    if constexpr (HAS_NORM || SHARED_WINDOW) barrier();
    if constexpr (HAS_NORM) norm_rows(a, s, head, lds, wave);
    if constexpr (SHARED_WINDOW)
        if (lds[AT_FLAG] != 0) move_shared_windows(in, a, s, head);
}

// Workgroups of a sequence.
constexpr int PARTS = kg_gdn_groups(V_HEADS, HAS_STEP ? SPLITS : 0, CHANNELS, THREADS);

KG_DEV void run_sequence(args_t a, int n, int part, float *lds) {
    seq_t s = find_sequence(a, n);
    if (s.count <= 0) return;
    if (!s.live)
        clear_rows(a, s.first, s.first + s.count, part, PARTS);
    else if constexpr (HAS_STEP)
        run_head(a, s, head_of(part), lds);
    else
        run_unpack(a, s, part * THREADS + (int)thread_id(), lds);
}

KG_DEV void run(args_t a, u8 *lds) {
    int group = (int)group_id(), n = group / PARTS;
    if (n < a.seqs) run_sequence(a, n, group % PARTS, (float *)lds);
    clear_padding(a, group, larger(a.seqs, 1) * PARTS);
}

} // namespace kg

KG_ENTRY(kg_gdn_args, args, kg::OCCUPANCY) {
    KG_SHARED(lds);
    kg::run(KG_ARGS(kg_gdn_args, args), lds);
}

// save=replay: the slot holds an older state, a ring the normalised keys, the
// updates u and the decays of the tokens since.
#pragma once
#include "kg/gdn/gdn_stage.h"
#include "kg/gdn/gdn_state.h"

namespace kg {

struct ring_t {
    int start, length;
    bool folds; // the state after the ring's tokens goes to the slot
};

KG_DEV ring_t ring_of(args_t a, const seq_t &s) {
    ring_t r = {};
    if constexpr (REPLAY) {
        r.start = load(a.ring_start + s.index) % a.ring_rows;
        r.length = load(a.ring_len + s.index);
        r.folds = r.length + s.count > RING;
    }
    return r;
}

KG_DEV i64 ring_row(args_t a, const ring_t &r, int i) { return (r.start + i) % a.ring_rows; }

KG_DEV void stage_ring(args_t a, const seq_t &s, const head_t &head, const ring_t &r, float *lds) {
    for (int n = (int)thread_id(); n < r.length * K_DIM; n += THREADS)
        lds[AT_RING_K + n] = load_as<STATE_DTYPE>(
            a.ring_k, s.read * a.ring_k_slot + ring_row(a, r, n / K_DIM) * KEY_DIMS,
            head.h * K_DIM + n % K_DIM);
    for (int n = (int)thread_id(); n < r.length * V_BLOCK; n += THREADS)
        lds[AT_RING_U + n] = load_as<STATE_DTYPE>(
            a.ring_u, s.read * a.ring_u_slot + ring_row(a, r, n / V_BLOCK) * VALUE_DIMS,
            head.hv * V_DIM + head.split * V_BLOCK + n % V_BLOCK);
    for (int n = (int)thread_id(); n < r.length * DECAYS; n += THREADS)
        lds[AT_RING_DECAY + n] = with_short_nan(load_as<DTYPE_F32>(
            a.ring_decay,
            s.read * a.ring_decay_slot + ring_row(a, r, n / DECAYS) * (V_HEADS * DECAYS),
            head.hv * DECAYS + n % DECAYS));
}

// S = decay S + u k^T for each token of the ring.
KG_DEV void apply_ring(tile_t &tile, const ring_t &r, const float *lds, int wave, int pass) {
    KG_LOOP for (int i = 0; i < r.length; i++) {
        float k[KN], decay[KN];
        KG_UNROLL for (int n = 0; n < KN; n++) {
            k[n] = lds[AT_RING_K + i * K_DIM + k_index(n)];
            decay[n] = lds[AT_RING_DECAY + i * DECAYS + (PER_CHANNEL ? k_index(n) : 0)];
        }
        KG_UNROLL for (int l = 0; l < LOADS; l++) {
            float x[VEC];
            get(x, tile, l);
            KG_UNROLL for (int e = 0; e < VEC; e++) {
                float u = lds[AT_RING_U + i * V_BLOCK + v_index(wave, pass, v_of(l, e))];
                x[e] = x[e] * decay[k_of(l, e)] + u * k[k_of(l, e)];
            }
            set(tile, l, x);
        }
    }
}

// Token `t` behind those of the ring. One lane of each k, of the first value
// head only; one lane of each v.
KG_DEV void append_key(args_t a, const seq_t &s, const head_t &head, const ring_t &r, int t,
                       const float (&k)[KN], float scale) {
    i64 row = s.read * a.ring_k_slot + ring_row(a, r, r.length + t) * KEY_DIMS;
    KG_UNROLL for (int n = 0; n < KN; n++)
        store_as<STATE_DTYPE>(a.ring_k, row, head.h * K_DIM + k_index(n), k[n] * scale);
}
KG_DEV void append_update(args_t a, const seq_t &s, const head_t &head, const ring_t &r, int t,
                          int v, float u) {
    i64 row = s.read * a.ring_u_slot + ring_row(a, r, r.length + t) * VALUE_DIMS;
    store_as<STATE_DTYPE>(a.ring_u, row, head.hv * V_DIM + head.split * V_BLOCK + v,
                          guarded<STATE_DTYPE>(u));
}
KG_DEV void append_decays(args_t a, const seq_t &s, const head_t &head, const ring_t &r,
                          const float *lds) {
    for (int n = (int)thread_id(); n < s.count * DECAYS; n += THREADS)
        store_as<DTYPE_F32>(a.ring_decay,
                            s.read * a.ring_decay_slot +
                                ring_row(a, r, r.length + n / DECAYS) * (V_HEADS * DECAYS),
                            head.hv * DECAYS + n % DECAYS, lds[AT_DECAY + n]);
}

} // namespace kg

// The recurrence over the tokens of a sequence, for the workgroup's part of one
// value head. With sk = S k and sq = S q of the decayed state, both summed in
// one pass, u = beta (v - sk), o = sq + u (k q) and S += u k^T.
#pragma once
#include "kg/gdn/gdn_ring.h"

namespace kg {

struct token_t {
    float k[KN], q[KN]; // as staged
    float decay[KN];    // per channel, else the first
    float beta;
    float k_scale, q_scale; // that normalise, and scale q
    float kq;               // k . q, both scaled
};

KG_DEV float length_scale(args_t a, float squares) {
    return L2_NORM ? rsqrt(squares + a.l2_eps) : 1.0f;
}

KG_DEV void load_token(token_t &x, args_t a, const float *lds, int t) {
    const float *row = lds + t * STAGE;
    float sums[3] = {}; // k.k, q.q, k.q
    KG_UNROLL for (int i = 0; i < KN; i++) {
        x.q[i] = row[k_index(i)];
        x.k[i] = row[K_DIM + k_index(i)];
        x.decay[i] = lds[AT_DECAY + t * DECAYS + (PER_CHANNEL ? k_index(i) : 0)];
        sums[0] += x.k[i] * x.k[i];
        sums[1] += x.q[i] * x.q[i];
        sums[2] += x.k[i] * x.q[i];
    }
    sum_lanes<K_LOW, K_HIGH>(sums);
    x.beta = lds[AT_BETA + t];
    x.k_scale = length_scale(a, sums[0]);
    x.q_scale = length_scale(a, sums[1]) * a.q_scale;
    x.kq = sums[2] * x.k_scale * x.q_scale;
}

// sk and sq of the lane's values, before the scales of k and q.
KG_DEV void multiply(float (&sk)[VN], float (&sq)[VN], const tile_t &tile, const token_t &x) {
    KG_UNROLL for (int j = 0; j < VN; j++) sk[j] = sq[j] = 0.0f;
    float k[KN], q[KN];
    KG_UNROLL for (int i = 0; i < KN; i++) {
        k[i] = PER_CHANNEL ? x.k[i] * x.decay[i] : x.k[i];
        q[i] = PER_CHANNEL ? x.q[i] * x.decay[i] : x.q[i];
    }
    KG_UNROLL for (int l = 0; l < LOADS; l++) {
        float s[VEC];
        get(s, tile, l);
        KG_UNROLL for (int e = 0; e < VEC; e++) {
            sk[v_of(l, e)] += s[e] * k[k_of(l, e)];
            sq[v_of(l, e)] += s[e] * q[k_of(l, e)];
        }
    }
    sum_lanes<K_LOW, K_HIGH>(sk);
    sum_lanes<K_LOW, K_HIGH>(sq);
}

// S = decay S + u k^T, u with the scale of k in it.
KG_DEV void update(tile_t &tile, const token_t &x, const float (&u)[VN]) {
    KG_UNROLL for (int l = 0; l < LOADS; l++) {
        float s[VEC];
        get(s, tile, l);
        KG_UNROLL for (int e = 0; e < VEC; e++) s[e] =
            s[e] * x.decay[PER_CHANNEL ? k_of(l, e) : 0] + u[v_of(l, e)] * x.k[k_of(l, e)];
        set(tile, l, s);
    }
}

// The output of token `t`: for the norm into LDS, in the place of v.
KG_DEV void put_output(args_t a, const seq_t &s, const head_t &head, float *lds, int t, int v,
                       float o) {
    if constexpr (HAS_NORM)
        lds[t * STAGE + 2 * K_DIM + v] = O_ROUND ? rounded<X_DTYPE>(o) : o;
    else
        store_as<OUT_DTYPE>(a.out, (s.first + t) * a.out_row + head.hv * a.out_head,
                            head.split * V_BLOCK + v, o);
}

struct place_t {
    int wave, pass;
};

// `x` is loaded once where there is one token.
KG_DEV void take_token(tile_t &tile, token_t &x, args_t a, const seq_t &s, const head_t &head,
                       const ring_t &r, float *lds, place_t at, int t) {
    float sk[VN], sq[VN], u[VN];
    if (TOKENS > 1 || at.pass == 0) load_token(x, a, lds, t);
    KG_UNROLL for (int j = 0; j < VN; j++) // before outputs take their place
        u[j] = lds[t * STAGE + 2 * K_DIM + v_index(at.wave, at.pass, j)];
    multiply(sk, sq, tile, x);
    float common = PER_CHANNEL ? 1.0f : x.decay[0]; // not in sk and sq yet
    KG_UNROLL for (int j = 0; j < VN; j++) {
        u[j] = x.beta * (u[j] - common * x.k_scale * sk[j]);
        sq[j] = common * x.q_scale * sq[j] + u[j] * x.kq;
    }
    if (k_lane() == 0) {
        KG_UNROLL for (int j = 0; j < VN; j++) {
            int v = v_index(at.wave, at.pass, j);
            put_output(a, s, head, lds, t, v, sq[j]);
            if constexpr (REPLAY) append_update(a, s, head, r, t, v, u[j]);
        }
    }
    KG_UNROLL for (int j = 0; j < VN; j++) u[j] *= x.k_scale;
    update(tile, x, u);
    if constexpr (REPLAY) {
        if (at.wave == 0 && at.pass == 0 && v_lane() == 0 && first_of_group(head))
            append_key(a, s, head, r, t, x.k, x.k_scale);
    }
}

// --- where states come from and go to -----------------------------------------

// The stored state. Loaded even where the sequence has none yet: a branch around
// the loads would make everything after it wait for them.
KG_DEV void load_state(words_t &tile, args_t a, const seq_t &s, const head_t &head, place_t at) {
    load_tile(tile, head_state(a.state, s.read * a.state_slot, head.hv), at.wave, head.split,
              at.pass);
}
KG_DEV void take_state(tile_t &tile, words_t &loaded, const seq_t &s) {
    if (s.fresh) clear_tile(loaded);
    take_words(tile, loaded);
}

KG_DEV void store_slot(args_t a, i64 slot, const head_t &head, const tile_t &tile, place_t at) {
    store_tile(head_state(a.state, slot * a.state_slot, head.hv), tile, at.wave, head.split,
               at.pass);
}

KG_DEV u8 *buffer_state(args_t a, i64 line, int t, int hv) {
    return head_state(a.buffer, line * a.buffer_line + t * a.buffer_token, hv);
}

KG_DEV void keep_token(const tile_t &tile, args_t a, const seq_t &s, const head_t &head, place_t at,
                       int t) {
    if constexpr (SAVE == SAVE_SLOTS) {
        i64 slot = token_slot(a, s.index, t);
        if (is_slot(a, slot)) store_slot(a, slot, head, tile, at);
    }
    if constexpr (SAVE == SAVE_BUFFER) {
        i64 line = line_of(a, s.index);
        if (is_line(a, line))
            store_tile(buffer_state(a, line, t, head.hv), tile, at.wave, head.split, at.pass);
    }
}

// In a tree, the state that token `t` comes after: what the lane holds where that
// is the token before, which to be rounded comes from the buffer as well.
KG_DEV void take_parent(tile_t &tile, args_t a, const seq_t &s, const head_t &head, place_t at,
                        int t) {
    int parent = parent_of(a, s.index, t);
    i64 line = line_of(a, s.index);
    words_t loaded;
    bool kept = is_line(a, line);
    if (parent == t - 1 && (t == 0 || !kept || !STATE_ROUND)) return;
    if (parent < 0 || !kept) {
        load_state(loaded, a, s, head, at);
        take_state(tile, loaded, s);
    } else {
        load_tile(loaded, buffer_state(a, line, parent, head.hv), at.wave, head.split, at.pass);
        take_words(tile, loaded);
    }
}

KG_DEV void take_tokens(tile_t &tile, token_t &x, args_t a, const seq_t &s, const head_t &head,
                        const ring_t &r, float *lds, place_t at) {
    if constexpr (REPLAY) {
        apply_ring(tile, r, lds, at.wave, at.pass);
        if (r.folds && s.writes) store_slot(a, s.write, head, tile, at);
    }
    int count = TOKENS == 1 ? 1 : s.count;
    KG_LOOP for (int t = 0; t < count; t++) {
        if constexpr (TREE) take_parent(tile, a, s, head, at, t);
        take_token(tile, x, a, s, head, r, lds, at, t);
        keep_token(tile, a, s, head, at, t);
        if constexpr (STATE_ROUND && !TREE) round_tile(tile);
    }
    if constexpr (SAVE == SAVE_FINAL || (SAVE == SAVE_BUFFER && INDEX == INDEX_PAIR))
        if (s.writes) store_slot(a, s.write, head, tile, at);
}

} // namespace kg

// The gated norm of a head's outputs, its quantisation, and rows of zeros.
#pragma once
#include "kg/gdn/gdn_stage.h"

namespace kg {

constexpr int NORM_PER = ceil_div(V_DIM, WAVE); // outputs of a lane, at most
constexpr int GATE_TURNS = ceil_div(TOKENS * V_DIM, THREADS);
constexpr int GROUPS = ceil_div(V_DIM, QUANT_GROUP); // of a head

struct norm_t { // bits, as loaded
    u32 z[GATE_TURNS], weight[GATE_TURNS];
};

KG_DEV int z_column(const head_t &head) {
    if (IN_LAYOUT == ROWS_PRESPLIT) return head.hv * V_DIM;
    if (IN_LAYOUT == ROWS_FLAT) return CHANNELS + head.hv * V_DIM;
    return head.hv / GROUP * GROUP_DIMS + 2 * K_DIM + (GROUP + head.hv % GROUP) * V_DIM;
}

KG_DEV void load_norm(norm_t &n, args_t a, const seq_t &s, const head_t &head) {
    KG_UNROLL for (int i = 0; i < GATE_TURNS; i++) {
        int at = (int)thread_id() + i * THREADS, v = at % V_DIM;
        i64 row = row_of(s, smaller(at / V_DIM, TOKENS - 1));
        n.weight[i] = load_bits<NORM_DTYPE>(a.norm_weight, v);
        n.z[i] = load_bits<X_DTYPE>(a.z, row * a.z_row + z_column(head) + v);
    }
}

// What the normed outputs are multiplied by.
KG_DEV void stage_norm(const norm_t &n, const seq_t &s, float *lds) {
    KG_UNROLL for (int i = 0; i < GATE_TURNS; i++) {
        int at = (int)thread_id() + i * THREADS;
        if (at / V_DIM >= s.count) continue;
        float z = decode<X_DTYPE>(n.z[i]), gate = sigmoid(z);
        lds[AT_GATE + at] = decode<NORM_DTYPE>(n.weight[i]) * (OUT_GATE ? gate : z * gate);
    }
}

KG_DEV float largest(float x) {
    KG_UNROLL for (u32 mask = 1; mask < WAVE; mask *= 2) x =
        fmax(x, float_of(shuffle(bits_of(x), lane_id() ^ mask)));
    return x;
}

// One scale a group of 128: its largest output becomes the type's largest number.
KG_DEV void quantise(float (&o)[NORM_PER], args_t a, i64 row, const head_t &head) {
    constexpr int EACH = QUANT_GROUP / WAVE; // outputs of a lane in a group
    constexpr float MAX = OUT_DTYPE == DTYPE_E4M3FNUZ ? 240.0f : 448.0f;
    KG_UNROLL for (int g = 0; g < GROUPS; g++) {
        float top = 0;
        KG_UNROLL for (int i = g * EACH; i < (g + 1) * EACH; i++) top =
            fmax(top, o[i] < 0 ? -o[i] : o[i]);
        top = largest(top);
        float scale = top > 0 ? top / MAX : 1.0f;
        KG_UNROLL for (int i = g * EACH; i < (g + 1) * EACH; i++) o[i] /= scale;
        if (lane_id() == 0)
            store(a.out_scale + row * a.scale_row + (head.hv * GROUPS + g) * a.scale_group, scale);
    }
}

// Output `i` of the lane exists.
KG_DEV bool is_output(int i) { return V_DIM % WAVE == 0 || (int)lane_id() + i * WAVE < V_DIM; }

KG_DEV void norm_row(args_t a, const seq_t &s, const head_t &head, const float *lds, int t) {
    float o[NORM_PER], squares[1] = {0};
    KG_UNROLL for (int i = 0; i < NORM_PER; i++) {
        o[i] = is_output(i) ? lds[t * STAGE + 2 * K_DIM + (int)lane_id() + i * WAVE] : 0.0f;
        squares[0] += o[i] * o[i];
    }
    sum_lanes<1, WAVE>(squares);
    float scale = rsqrt(squares[0] * (1.0f / V_DIM) + a.norm_eps);
    KG_UNROLL for (int i = 0; i < NORM_PER; i++) if (is_output(i)) o[i] *=
        scale * lds[AT_GATE + t * V_DIM + (int)lane_id() + i * WAVE];
    if constexpr (OUT_8BIT) quantise(o, a, s.first + t, head);
    KG_UNROLL for (int i = 0; i < NORM_PER; i++) if (is_output(i)) store_as<OUT_DTYPE>(
        a.out, (s.first + t) * a.out_row + head.hv * a.out_head, (int)lane_id() + i * WAVE, o[i]);
}

KG_DEV void norm_rows(args_t a, const seq_t &s, const head_t &head, const float *lds, int wave) {
    KG_LOOP for (int t = wave; t < s.count; t += WAVES) norm_row(a, s, head, lds, t);
}

// --- zeros --------------------------------------------------------------------

constexpr int OUT_DIMS = HAS_STEP ? VALUE_DIMS : CHANNELS; // of a row

KG_DEV void clear_copy(void *out, i64 row, int count, int first, int step) {
    if (!out) return;
    for (int i = first; i < count; i += step) store((u16 *)out + row + i, (u16)0);
}

// Outputs first, first + step, ... of a row.
KG_DEV void clear_row(args_t a, i64 row, int first, int step) {
    for (int i = first; i < OUT_DIMS; i += step) {
        i64 at = HAS_STEP ? i / V_DIM * a.out_head + i % V_DIM : i;
        store_as<OUT_DTYPE>(a.out, row * a.out_row + at, 0, 0.0f);
        if (OUT_8BIT && i % QUANT_GROUP == 0)
            store(a.out_scale + row * a.scale_row + i / QUANT_GROUP * a.scale_group, 0.0f);
    }
    if constexpr (HAS_STEP || IN_LAYOUT == ROWS_PRESPLIT) return;
    clear_copy(a.z_out, row * a.z_out_row, VALUE_DIMS, first, step);
    clear_copy(a.b_out, row * a.b_out_row, V_HEADS, first, step);
    clear_copy(a.a_out, row * a.a_out_row, V_HEADS, first, step);
}

// `groups` workgroups together; this is number `group` of them.
KG_DEV void clear_rows(args_t a, int first, int end, int group, int groups) {
    for (int row = first; row < end && row < a.rows; row++)
        clear_row(a, row, group * THREADS + (int)thread_id(), groups * THREADS);
}

// Rows that belong to no sequence.
KG_DEV void clear_padding(args_t a, int group, int groups) {
    int used = a.seqs * TOKENS, before = 0;
    if constexpr (VARLEN) {
        used = a.seqs ? begin_of(a, a.seqs).row : 0;
        before = a.seqs ? begin_of(a, 0).row : 0;
    }
    clear_rows(a, 0, before, group, groups);
    clear_rows(a, used, a.rows, group, groups);
}

} // namespace kg

// What the recurrence reads, in LDS as floats: for every token its query, key,
// values and gates. Loads are issued first, the state's after them, and only
// then is anything computed: memory answers in order.
#pragma once
#include "kg/core/arrival.h"
#include "kg/gdn/gdn_conv.h"

namespace kg {

constexpr int STAGE = 2 * K_DIM + V_BLOCK;              // floats of a token
constexpr int TURNS = ceil_div(STAGE / PIECE, THREADS); // pieces of a thread
constexpr int DECAYS = PER_CHANNEL ? K_DIM : 1;
constexpr int DECAY_TURNS = ceil_div(TOKENS * DECAYS, THREADS);
constexpr int RING_ROWS = REPLAY ? RING : 0;

// Offsets in LDS, floats.
constexpr int AT_DECAY = TOKENS * STAGE;                       // [TOKENS][DECAYS]
constexpr int AT_BETA = AT_DECAY + TOKENS * DECAYS;            // [TOKENS]
constexpr int AT_RING_K = ceil_div(AT_BETA + TOKENS, 4) * 4;   // [RING][K_DIM]
constexpr int AT_RING_U = AT_RING_K + RING_ROWS * K_DIM;       // [RING][V_BLOCK]
constexpr int AT_RING_DECAY = AT_RING_U + RING_ROWS * V_BLOCK; // [RING][DECAYS]
constexpr int AT_GATE = AT_RING_DECAY + RING_ROWS * DECAYS;    // [TOKENS][V_DIM]
constexpr int AT_FLAG = AT_GATE + (HAS_NORM ? TOKENS * V_DIM : 0);
constexpr int STEP_FLOATS = AT_FLAG + 1;
constexpr int UNPACK_FLOATS = kg_gdn_unpack_floats(TREE ? TOKENS : 0, THREADS);
constexpr int LDS_USED = (HAS_STEP ? STEP_FLOATS : UNPACK_FLOATS) * 4;
static_assert(!HAS_STEP || STEP_FLOATS == kg_gdn_step_floats(TOKENS, K_DIM, V_DIM, SPLITS, HAS_NORM,
                                                             DECAYS, RING_ROWS),
              "the host counts them too");
static_assert(LDS_USED <= KG_LDS_BYTES, "workgroup needs more LDS than the target has");

// Which part of which head a workgroup has.
struct head_t {
    int h, hv, split;
};

KG_DEV head_t head_of(int group) {
    head_t head;
    head.split = group % SPLITS;
    head.hv = group / SPLITS;
    head.h = TILED ? head.hv % K_HEADS : head.hv / GROUP;
    return head;
}

// --- queries, keys, values ----------------------------------------------------

// Channel c of the workgroup: q, then k, then its values. Its number among the
// convolution's channels, and its column in a row of the input.
KG_DEV int channel_of(const head_t &head, int c) {
    if (c < K_DIM) return head.h * K_DIM + c;
    if (c < 2 * K_DIM) return KEY_DIMS + head.h * K_DIM + c - K_DIM;
    return 2 * KEY_DIMS + head.hv * V_DIM + head.split * V_BLOCK + c - 2 * K_DIM;
}
KG_DEV int column_of(const head_t &head, int c) {
    if (!HAS_CONV || IN_LAYOUT != ROWS_INTERLEAVED) return channel_of(head, c);
    int value = head.hv % GROUP * V_DIM + head.split * V_BLOCK;
    return head.hv / GROUP * GROUP_DIMS + c + (c < 2 * K_DIM ? 0 : value);
}

// Channel c of the workgroup, out of three tensors.
KG_DEV row_t split_row(args_t a, const head_t &head, int c) {
    if (c < K_DIM) return row_t{address<X_DTYPE>(a.q, head.h * a.q_head, 0), a.q_row, c};
    if (c < 2 * K_DIM)
        return row_t{address<X_DTYPE>(a.k, head.h * a.k_head, 0), a.k_row, c - K_DIM};
    int v = head.split * V_BLOCK + c - 2 * K_DIM;
    return row_t{address<X_DTYPE>(a.v, head.hv * a.v_head, 0), a.v_row, v};
}

struct inputs_t {
    channels_t piece[TURNS];
};

// First channel of the thread's piece in turn `i`.
KG_DEV int piece_at(int i) { return ((int)thread_id() + i * THREADS) * PIECE; }

KG_DEV void load_inputs(inputs_t &in, args_t a, const seq_t &s, const head_t &head) {
    KG_UNROLL for (int i = 0; i < TURNS; i++) {
        int c = piece_at(i);
        if (c >= STAGE) continue;
        row_t from = {a.x, a.x_row, column_of(head, c)};
        if constexpr (QKV_SPLIT) from = split_row(a, head, c);
        load_channels(in.piece[i], a, s, channel_of(head, c), from);
    }
}

// Several workgroups read the windows of q and k; the last of them to have done
// so moves them on. Those of v have one reader.
constexpr bool SHARED_WINDOW = MOVES_WINDOW && GROUP * SPLITS > 1;

KG_DEV bool first_of_group(const head_t &head) {
    return head.split == 0 && (TILED ? head.hv / K_HEADS : head.hv % GROUP) == 0;
}

KG_DEV void stage_inputs(inputs_t &in, args_t a, const seq_t &s, const head_t &head, float *lds) {
    KG_UNROLL for (int i = 0; i < TURNS; i++) {
        int c = piece_at(i);
        if (c >= STAGE) continue;
        if constexpr (HAS_CONV) {
            bool windows = c >= 2 * K_DIM || first_of_group(head);
            convolve(lds + c, STAGE, in.piece[i], a, s, channel_of(head, c), windows);
            if (!SHARED_WINDOW || c >= 2 * K_DIM)
                move_window(in.piece[i], a, s, channel_of(head, c));
        } else {
            KG_UNROLL for (int t = 0; t < TOKENS; t++) KG_UNROLL for (int e = 0; e < PIECE; e++)
                lds[t * STAGE + c + e] = element<X_DTYPE>(in.piece[i].x[t], e);
        }
    }
}

// Where so many waves share a SIMD that a lane has at most 64 registers, the window
// is not kept in them during the recurrence; the one workgroup that moves it on reads
// it again.
constexpr bool READS_AGAIN = WAVE == 64 && WAVES * OCCUPANCY >= 8 * KG_SIMDS;

KG_DEV void move_shared_windows(inputs_t &in, args_t a, const seq_t &s, const head_t &head) {
    KG_UNROLL for (int i = 0; i < TURNS; i++) {
        int c = piece_at(i);
        if (c >= 2 * K_DIM) continue;
        if constexpr (READS_AGAIN) {
            row_t from = {a.x, a.x_row, column_of(head, c)};
            load_channels(in.piece[i], a, s, channel_of(head, c), from);
            if (s.fresh) clear_old(in.piece[i]);
        }
        move_window(in.piece[i], a, s, channel_of(head, c));
    }
}

// After a barrier behind the last use of a window: counts this workgroup. Loads
// that have returned cannot see what the last one then writes. Thread 0 gets
// who came before.
KG_DEV u32 *counter_of(args_t a, const seq_t &s, const head_t &head) {
    static_assert(GROUP * SPLITS < 1 << COUNT_BITS<u32>, "more workgroups than a count holds");
    return (u32 *)(a.workspace->arrived + ((i64)s.index * K_HEADS + head.h));
}
KG_DEV u32 arrive(args_t a, const seq_t &s, const head_t &head) {
    if (thread_id() != 0) return 0;
    return atomic_count(counter_of(a, s, head), counted<u32>(a.ticket));
}
KG_DEV void announce(args_t a, const seq_t &s, const head_t &head, u32 before, float *lds) {
    if (thread_id() != 0) return;
    arrival_t how = arrival_of(before, a.ticket, GROUP * SPLITS);
    if (how == ARRIVED_LAST) store(counter_of(a, s, head), COUNTER_AT_REST<u32>);
    if (how == ARRIVED_AMISS) call_broken(a.workspace);
    lds[AT_FLAG] = how == ARRIVED_LAST;
}

// --- gates --------------------------------------------------------------------

struct gates_t { // bits, as loaded
    u32 a[DECAY_TURNS], dt[DECAY_TURNS];
    u32 a_log, b;
};

KG_DEV int b_column(const head_t &head) {
    if (IN_LAYOUT != ROWS_INTERLEAVED) return head.hv;
    return head.hv / GROUP * 2 * GROUP + head.hv % GROUP;
}
KG_DEV int a_column(const head_t &head) {
    if (PER_CHANNEL) return head.hv * K_DIM;
    return b_column(head) + (IN_LAYOUT == ROWS_INTERLEAVED ? GROUP
                             : IN_LAYOUT == ROWS_FLAT      ? V_HEADS
                                                           : 0);
}

KG_DEV void load_gates(gates_t &g, args_t a, const seq_t &s, const head_t &head) {
    if constexpr (!RAW_GATES) g.a_log = load_bits<ALOG_DTYPE>(a.a_log, head.hv);
    KG_UNROLL for (int i = 0; i < DECAY_TURNS; i++) {
        int n = (int)thread_id() + i * THREADS, d = n % DECAYS;
        i64 row = row_of(s, smaller(n / DECAYS, TOKENS - 1));
        g.a[i] = load_bits<AB_DTYPE>(a.a, row * a.a_row + a_column(head) + d);
        if constexpr (!RAW_GATES) g.dt[i] = load_bits<DT_DTYPE>(a.dt_bias, head.hv * DECAYS + d);
    }
    i64 row = row_of(s, smaller((int)thread_id(), TOKENS - 1));
    g.b = load_bits<AB_DTYPE>(a.b, row * a.b_row + b_column(head));
}

KG_DEV float decay_of(args_t a, float a_log, float x) {
    if constexpr (GATE == GATE_KDA_BOUND) return exp(a.lower_bound * sigmoid(exp(a_log) * x));
    return exp(-exp(a_log) * softplus(x));
}

// Decays and betas as they are.
KG_DEV void stage_raw_gates(const gates_t &g, const seq_t &s, float *lds) {
    KG_UNROLL for (int i = 0; i < DECAY_TURNS; i++) {
        int n = (int)thread_id() + i * THREADS;
        if (n / DECAYS < s.count) lds[AT_DECAY + n] = with_short_nan(exp(decode<AB_DTYPE>(g.a[i])));
    }
    if ((int)thread_id() < s.count) {
        float beta = with_short_nan(decode<AB_DTYPE>(g.b));
        lds[AT_BETA + (int)thread_id()] = BETA_ROUND ? rounded<X_DTYPE>(beta) : beta;
    }
}

KG_DEV void stage_gates(const gates_t &g, args_t a, const seq_t &s, float *lds) {
    if constexpr (RAW_GATES) return stage_raw_gates(g, s, lds);
    float a_log = decode<ALOG_DTYPE>(g.a_log);
    KG_UNROLL for (int i = 0; i < DECAY_TURNS; i++) {
        int n = (int)thread_id() + i * THREADS;
        float x = decode<AB_DTYPE>(g.a[i]) + decode<DT_DTYPE>(g.dt[i]);
        if (n / DECAYS < s.count) lds[AT_DECAY + n] = with_short_nan(decay_of(a, a_log, x));
    }
    if ((int)thread_id() < s.count) {
        float beta = with_short_nan(sigmoid(decode<AB_DTYPE>(g.b)));
        lds[AT_BETA + (int)thread_id()] = BETA_ROUND ? rounded<X_DTYPE>(beta) : beta;
    }
}

} // namespace kg

// Rows of the output, and where what leads to them lies in LDS.
#pragma once
#include "kg/attn/softmax.h"
#include "kg/core/gates.h"

namespace kg {

// Ids that the optimiser cannot compute from before the key loop: what it would
// hoist from here would sit in registers all through it.
KG_DEV u32 late_lane() { return opaque(lane_id()); }
KG_DEV u32 late_thread() { return opaque(thread_id()); }
KG_DEV u32 late_wave() { return late_thread() / WAVE; }
// Where it has no register meanwhile.
KG_DEV int wave_again() { return (int)read_lane(late_wave(), 0); }

constexpr int ALL_WAVES = WAVES * V_SPLIT; // that have rows; others bring them keys
constexpr int LAUNCHED_WAVES = ALL_WAVES + BRINGERS;
static_assert(LAUNCHED_WAVES * WAVE == KG_WORKGROUP, "as it is launched");
// Who brings keys goes its own way, or meets the others.
constexpr int MEETING_WAVES = RUNS_AHEAD ? ALL_WAVES : LAUNCHED_WAVES;
KG_DEV void meet_rows() {
    if constexpr (RUNS_AHEAD)
        meet_at<MEETING_WAVES * WAVE>(1);
    else
        barrier();
}
// Who brings keys has no row.
KG_DEV int merging(int wave) { return BRINGERS && wave >= ALL_WAVES ? ROWS : wave; }

constexpr int LEAST_TILES = BY_TILES ? PART_TILES : CHUNK_TILES;
constexpr int MOST_COLUMNS = kg_attn_round_columns(IS_SM90 && !STAGED, WAVE_ROWS);
constexpr kg_attn_lds LDS =
    RUNS_AHEAD ? kg_attn_lds_of_own_rows(Q_LDS_BYTES, O_TILES)
               : kg_attn_lds_of(Q_LDS_BYTES, WAVES, V_SPLIT, WAVE_ROWS, ROWS, O_TILES, LEAST_TILES,
                                MOST_COLUMNS, kg_attn_round_most(IS_SM90, KEY_QUEUE));
constexpr int ROUND_COLS = LDS.round_columns;
constexpr int ROUND_TILES = LDS.round_tiles;
constexpr int ROUND_DIMS = ROUND_TILES * 16;
constexpr int ROUND_STRIDE = ROUND_DIMS + KG_ATTN_ROUND_PAD; // floats between columns
constexpr int ROUNDS = O_TILES / ROUND_TILES;

constexpr int LDS_ML = LDS.sums;      // [waves with the same rows][rows] maximum, sum
constexpr int LDS_TOTAL = LDS.totals; // [ROWS] maximum, sum
constexpr int LDS_FLAG = LDS.flag;
constexpr int LDS_O = LDS.round; // [ALL_WAVES][ROUND_COLS][ROUND_STRIDE]
// A stage is done with when waves meet, but for what they say of their rows.
constexpr int LDS_STAGE = BY_MATRICES || STAGED_MATRICES
                              ? ceil_div(LDS.round, KG_ATTN_SWIZZLE) * KG_ATTN_SWIZZLE
                          : KEY_QUEUE ? kg_attn_queue_at(LDS.round)
                                      : LDS.round;
// CLUSTER: what comes from others of the cluster (kg/attn/cluster_nvidia.h); sets of keys are done
// with by then. Of latent attention a part's rows, which others read, as waves met there.
constexpr bool SENDS_ROWS = STAGED_MATRICES && kg_attn_sends_rows(ROWS, CLUSTER);
constexpr bool SENDS_OWN = CLUSTER != 0 && !STAGED; // out of registers
constexpr bool SENDS = SENDS_OWN || SENDS_ROWS;
constexpr kg_attn_inbox INBOX = kg_attn_inbox_of(ROWS, V_DIM, (int)CLUSTER_SIZE, KEY_GROUPS);
constexpr int PEER_STRIDE = V_DIM + (STAGED_MATRICES ? KG_ATTN_ROUND_PAD : 0); // floats
constexpr int PEER_BYTES = SENDS     ? INBOX.bytes
                           : CLUSTER ? kg_attn_peer_bytes(ROWS, PEER_STRIDE)
                                     : 0;
// The work and its segment wait for the end of the key loop there.
constexpr bool ALL_WAITS = BY_MATRICES || SENDS_OWN || KEY_QUEUE != 0;
constexpr int PARK_BYTES = ALL_WAITS || CROWDED ? KG_ATTN_PARK_BYTES
                           : STAGED_MATRICES    ? KG_ATTN_STAGED_PARK_BYTES
                                                : 0;
constexpr int TURN_BYTES = SENDS ? kg_attn_turn_bytes(ALL_WAVES) : 0;
constexpr int SETS_END = larger(LDS.bytes, LDS_STAGE + STAGE_BYTES);
constexpr bool APART =
    SENDS_OWN && (!BY_MATRICES ||
                  kg_attn_inbox_apart(SETS_END + ALL_WAVES * PARK_BYTES + TURN_BYTES, INBOX.bytes));
constexpr int LDS_PEER = APART ? SETS_END : LDS_STAGE + (SENDS_ROWS ? ROWS * PEER_STRIDE * 4 : 0);
constexpr int LDS_PEER_ML = LDS_PEER + (SENDS ? INBOX.sums : ROWS * PEER_STRIDE * 4);
constexpr int LDS_PARK = larger(SETS_END, LDS_PEER + PEER_BYTES); // [PARKED]
constexpr int PARKED = RUNS_AHEAD ? kg_attn_parks(ALL_WAVES, BRINGERS) : LAUNCHED_WAVES;
constexpr int LDS_ARRIVED = LDS_PARK + PARKED * PARK_BYTES;
constexpr int LDS_TURN = LDS_ARRIVED + 16; // [ALL_WAVES]
constexpr int LDS_GATES = LDS_ARRIVED + TURN_BYTES;
constexpr int LDS_USED = LDS_GATES + (RUNS_AHEAD ? KG_ATTN_GATE_BYTES : 0);
// Where parts are merged, once waves have met: where keys lay, or in a slot of that, which each
// wave has noted (RUNS_AHEAD).
constexpr int PARTS_BYTES = RUNS_AHEAD ? RING_SLOT_BYTES : STAGE_BYTES;
KG_DEV int &place_of_parts(u8 *lds, int wave) { return ((int *)(lds + LDS_GATES))[wave]; }
KG_DEV u8 *parts_at(u8 *lds, int wave) {
    return lds + LDS_STAGE + (RUNS_AHEAD ? place_of_parts(lds, wave) : 0);
}
static_assert(LDS_USED <= KG_LDS_BYTES, "workgroup needs more LDS than the target has");

// Waits in LDS while registers are short; all lanes of a wave put the same there.
static_assert(sizeof(work_t) + sizeof(segment_t) <= KG_ATTN_PARK_BYTES, "room for both");
static_assert(sizeof(work_t) <= KG_ATTN_STAGED_PARK_BYTES, "room for a wave's work");
KG_DEV work_t &parked_work(u8 *lds, int wave) {
    if constexpr (CROWDED) wave = (int)opaque_uniform((u32)wave); // no place is kept
    return *(work_t *)(lds + LDS_PARK + wave * PARK_BYTES);
}
KG_DEV segment_t &parked_segment(u8 *lds, int wave) {
    return *(segment_t *)(&parked_work(lds, wave) + 1);
}
// RUNS_AHEAD: in the place of a wave, of those that have been found some wait.
KG_DEV int park_of_segment(u32 number) { return (int)(number % KG_ATTN_FOUND); }

struct sums_t {
    float maximum, sum;
};
struct alignas(16) quad_t {
    float x[4];
}; // LDS in 16-byte accesses

// exp2(m - top), 0 for rows that saw nothing
KG_DEV float weight(float m, float top) { return m == -INFINITE ? 0.0f : exp2(m - top); }

KG_DEV void add_sums(sums_t &total, sums_t part) {
    float top = fmax(total.maximum, part.maximum);
    total.sum = total.sum * weight(total.maximum, top) + part.sum * weight(part.maximum, top);
    total.maximum = top;
}

// --- output -----------------------------------------------------------------

struct row_t {
    bool exists;
    int token, head; // of the batch
};

KG_DEV row_t row_at(const segment_t &g, int row) {
    int at = g.row_block * ROWS + row;
    return row_t{row_exists(g, row), g.seq.q_start + at / GROUP, g.kv_head * GROUP + at % GROUP};
}

// The sink enters once, here; rows that see no key stay empty.
KG_DEV void add_sink(sums_t &total, args_t a, int head) {
    if constexpr (SINKS != 0)
        if (total.maximum != -INFINITE) add_sums(total, sums_t{load(a.sinks + head) * LOG2E, 1.0f});
}

// What accumulators relative to `top` are multiplied by.
KG_DEV float output_factor(sums_t total, float top, args_t a, const segment_t &g) {
    if (!(total.sum > 0.0f) && total.sum == total.sum) return 0.0f;
    float factor = weight(top, total.maximum) / INT4_UP / total.sum;
    factor *= head_descale(a.v_descale, a.v_descale_stride, g);
    if constexpr (OUT_8BIT) factor /= load(a.out_scale);
    return factor;
}

KG_DEV void store_out(args_t a, row_t row, int dim, const float (&x)[4]) {
    u8 *p = (u8 *)a.out + row.token * a.out_token + row.head * a.out_head;
    if constexpr (OUT_DTYPE == DTYPE_F32) {
        KG_UNROLL for (int j = 0; j < 4; j++) store((float *)p + dim + j, x[j]);
        return;
    }
    u32 lo = pack_out(x[0], x[1]), hi = pack_out(x[2], x[3]);
    if constexpr (OUT_8BIT)
        store((u32 *)(p + dim), lo | hi << 16);
    else {
        store((u32 *)(p + dim * 2), lo);
        store((u32 *)(p + dim * 2 + 4), hi);
    }
}

// Last of all: what is merged is not gated yet. A row without keys stays zero whatever
// its gate holds. CDNA: of groups' rows that become 8 bits too, one's gate is asked for where it
// is; its place waits in scalars else, of which there are none.
KG_DEV args_t args_of_gate(args_t a) {
    if constexpr (WAVE == 64 && CASCADE && OUT_8BIT) return reread(a);
    return a;
}
KG_DEV void gate_out(args_t args, row_t row, int dim, float (&x)[4]) {
    if constexpr (GATE != 0) {
        args_t a = args_of_gate(args);
        constexpr int WORDS = GATE == DTYPE_F32 ? 4 : 2;
        const u8 *p = (const u8 *)a.gate + row.token * a.gate_token + row.head * a.gate_head;
        u32 w[WORDS];
        load_words(w, p + dim * WORDS);
        KG_UNROLL for (int j = 0; j < 4; j++) {
            u32 half = w[j * WORDS / 4] >> (WORDS == 2 ? j % 2 * 16 : 0);
            float gate = GATE == DTYPE_F32    ? float_of(half)
                         : GATE == DTYPE_FP16 ? f16_to_f32(half & 0xffffu)
                                              : bf16_to_f32(half & 0xffffu);
            float open = rcp(1.0f + exp2(-LOG2E * gate));
            x[j] = x[j] == 0.0f ? 0.0f : x[j] * open;
        }
    }
}

KG_DEV void store_lse(args_t a, row_t row, sums_t total) {
    if constexpr (LSE != 0) {
        // A sum that is NaN has no maximum either.
        bool empty = total.maximum == -INFINITE && total.sum == 0.0f;
        int outer = LSE == LSE_TH ? row.token : row.head;
        int inner = LSE == LSE_TH ? row.head : row.token;
        store(a.lse + outer * a.lse_row + inner,
              empty ? -INFINITE : (total.maximum + log2(total.sum)) * LN2);
    }
}

} // namespace kg

// Packed V: which head and which pairs of dims a lane has.
#pragma once
#include "kg/kv/kv_types.h"

namespace kg {

struct lane_t {
    int head, pair; // pair: in the head, in the first pass
    bool live;
};

// What a wave does not take of WAVE_HEADS heads is another slice.
template <int PASSES> KG_DEV int slices_of(int heads) {
    return kg_kv_slices(heads, V_DIM, WAVE, PASSES);
}

template <int PASSES> KG_DEV lane_t lane_of(int heads, int slice) {
    constexpr int SLICES = PARTS / PASSES;
    int lane = (int)lane_id();
    lane_t l = {slice / SLICES * WAVE_HEADS + lane / PAIR_LANES,
                slice % SLICES * (PASSES * PAIR_LANES) + lane % PAIR_LANES, true};
    if (l.head >= heads) l.head = 0, l.live = false;
    return l;
}

// Two lanes have 4 dims. So that both together touch 32 contiguous bytes of the
// cache at a time, the even one loads and stores dims 0 and 2, the odd one 1 and
// 3: from, or at, this dim and the one 2 further.
KG_DEV int swapped_dim(const lane_t &l, int pass) {
    return (l.pair + pass * PAIR_LANES) * 2 - l.pair % 2;
}

// Dims 0, 2 and 1, 3 become 0, 1 and 2, 3, or the other way round.
KG_DEV void swap_dims(u32 (&x)[2][4]) {
    bool odd = lane_id() % 2 != 0;
    KG_UNROLL for (int i = 0; i < 4; i++) {
        u32 got = shuffle(odd ? x[0][i] : x[1][i], lane_id() ^ 1u);
        x[0][i] = odd ? got : x[0][i];
        x[1][i] = odd ? x[1][i] : got;
    }
}

KG_DEV bool has_pair(const lane_t &l, int pass) {
    return l.live && (PAIRS % PAIR_LANES == 0 || l.pair + pass * PAIR_LANES < PAIRS);
}

} // namespace kg

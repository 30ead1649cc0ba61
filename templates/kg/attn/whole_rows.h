// Whole rows in 16 bits as groups of waves have them on sm_90 (BRINGERS): of each eight dims a lane
// has a pair of two rows. Stores of one instruction go to eight rows, and each row of it costs as
// much whether it gets 16 bytes or 64: so four lanes exchange pairs until each has eight dims.
#pragma once
#include "kg/attn/output.h"

namespace kg {

constexpr bool STORES_WHOLE =
    RUNS_AHEAD && GATE == 0 && (OUT_DTYPE == DTYPE_BF16 || OUT_DTYPE == DTYPE_FP16);
constexpr int EIGHTS = V_DIM / 8; // of a row's dims

// The lane's of eight dims number `n`.
KG_DEV u32 pair_of_row(const acc_t (&o)[O_TILES], int n, float factor) {
    float x[2];
    KG_UNROLL for (int j = 0; j < 2; j++) x[j] =
        factor == 0.0f ? 0.0f : o[n / 2][n % 2 * 2 + j] * factor;
    return pack_out(x[0], x[1]);
}

// Of two lanes `by` apart the lower keeps the first word and gets the other's first as its second,
// the upper keeps the second.
KG_DEV void exchange(u32 &first, u32 &second, u32 lane, u32 by) {
    bool upper = lane & by;
    u32 gets = shuffle(upper ? first : second, lane ^ by);
    first = upper ? gets : first;
    second = upper ? second : gets;
}

// Pairs of four eights, one a word, become those of one: of the lane's number among four.
KG_DEV void turn_pairs(u32 (&w)[4], u32 lane) {
    exchange(w[0], w[1], lane, 1), exchange(w[2], w[3], lane, 1);
    exchange(w[0], w[2], lane, 2), exchange(w[1], w[3], lane, 2);
}

KG_DEV u8 *place_of_row(args_t a, row_t row) {
    return (u8 *)a.out + row.token * a.out_token + row.head * a.out_head;
}
KG_DEV bool has_lines(args_t a) {
    return (((u64)a.out | (u64)a.out_token | (u64)a.out_head) & 15) == 0;
}

KG_DEV void store_whole(args_t a, row_t row, const acc_t (&o)[O_TILES], float factor) {
    u32 lane = late_lane(), mine = lane % 4;
    u8 *p = place_of_row(a, row);
    if (has_lines(a)) {
        KG_UNROLL for (int n = 0; n < EIGHTS; n += 4) {
            u32 w[4];
            KG_UNROLL for (int j = 0; j < 4; j++) w[j] =
                n + j < EIGHTS ? pair_of_row(o, n + j, factor) : 0;
            turn_pairs(w, lane);
            if (row.exists && n + (int)mine < EIGHTS) store_words(p + (n + (int)mine) * 16, w);
        }
        return;
    }
    KG_UNROLL for (int n = 0; n < EIGHTS; n++) if (row.exists)
        store((u32 *)(p + n * 16 + mine * 4), pair_of_row(o, n, factor));
}

} // namespace kg

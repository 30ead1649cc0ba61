// LDS on the cpu device; see lds_nvidia.h. Copies are done at once.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV void copy_16(u8 *lds, const u8 *p) { __builtin_memcpy(lds, p, 16); }
KG_DEV void copies_end() {}
template <int N> KG_DEV void copies_done() {}

// Where row `row` of matrix `m` begins, as its lane has said.
KG_DEV const u8 *said_row(const u32 *all, int m, int row) {
    const u32 *words = all + (8 * m + row) * EXCHANGE_WORDS;
    return (const u8 *)((u64)words[1] << 32 | words[0]);
}
KG_DEV const u32 *say_row(const u8 *row) {
    const u32 words[2] = {(u32)(u64)row, (u32)((u64)row >> 32)};
    return exchange(words, 2);
}

KG_DEV void load_matrices(u32 (&w)[4], const u8 *row) {
    const u32 *all = say_row(row);
    int i = (int)lane_id() / 4, grp = (int)lane_id() % 4;
    for (int m = 0; m < 4; m++) w[m] = ((const u32 *)said_row(all, m, i))[grp];
    exchange_done();
}
KG_DEV void load_turned(u32 (&w)[4], const u8 *row) {
    const u32 *all = say_row(row);
    int i = (int)lane_id() / 4, grp = (int)lane_id() % 4;
    for (int m = 0; m < 4; m++)
        w[m] = (u32)((const u16 *)said_row(all, m, 2 * grp))[i] |
               (u32)((const u16 *)said_row(all, m, 2 * grp + 1))[i] << 16;
    exchange_done();
}

} // namespace kg

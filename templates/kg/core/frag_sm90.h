// Fragment geometry of sm_90: mma.sync m16n8k16, warp 32. See frag_cdna.h for
// the words; here lane = 4 i + grp, a tile has 8 columns, and a lane holds two
// rows of A (i and i + 8). Key rows are gathered so that after one transposing
// movmatrix the scores are the B operand with tokens 4 grp .. 4 grp + 3.
// STAGED: keys lie in LDS in their order.
// BY_MATRICES, PAIRED: query rows are the rows of A, of which a lane has row i of each tile; scores
// are then the A operand of the second product (kg/attn/lds_nvidia.h), keys in the order of
// k_place.
// Source: PTX ISA, mma.m16n8k16, wgmma.m64nNk16 and movmatrix.
#pragma once
#include "kg/core/macros.h"

namespace kg {

constexpr int NI = 8;
constexpr int NGRP = 4;
constexpr int TOK = 16;
constexpr int KROWS = 2;
constexpr int TPL = 4;
constexpr int S_REGS = 4;
constexpr int O_REGS = 4;
constexpr bool ROWS_OF_A = BY_MATRICES != 0 || PAIRED != 0;
constexpr bool IN_ORDER = PAIRED != 0 || BRINGERS != 0; // keys of a block in LDS
constexpr int COLS = ROWS_OF_A ? 1 : 2;
constexpr int K_WORDS = 2;
constexpr int OPERAND_WORDS = K_WORDS;

KG_DEV int lane_i(int lane) { return lane / 4; }
KG_DEV int lane_grp(int lane) { return lane % 4; }
KG_DEV int lane_at(int i, int grp) { return 4 * i + grp; }
KG_DEV int k_token(int i, int row) { return STAGED ? i + 8 * row : 4 * (i / 2) + 2 * row + i % 2; }
KG_DEV int k_place(int token) {
    if constexpr (IN_ORDER) return token;
    return 8 * (token / 2 % 2) + 2 * (token / 4) + token % 2;
}
KG_DEV int s_token(int lane, int reg) {
    if constexpr (IN_ORDER) return 2 * lane_grp(lane) + reg % 2 + 8 * (reg / 2);
    return BY_MATRICES ? TPL * lane_grp(lane) + reg : k_token(lane_i(lane), reg / 2);
}
KG_DEV int o_row(int lane, int reg) {
    return ROWS_OF_A ? 2 * lane_grp(lane) + reg % 2 + 8 * (reg / 2) : lane_i(lane) + 8 * (reg / 2);
}
KG_DEV int lane_column(int lane, int c) {
    return ROWS_OF_A ? lane_i(lane) : 2 * lane_grp(lane) + c;
}
// Lanes of a column lie so far apart; the first of them speaks for it.
constexpr int COLUMN_STEP = ROWS_OF_A ? 1 : NI / COLS;
KG_DEV bool is_speaker(int lane) { return ROWS_OF_A ? lane_grp(lane) == 0 : lane < NI / COLS; }

} // namespace kg

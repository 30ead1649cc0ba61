// Fragment geometry of RDNA: WMMA 16x16x16, wave32, gfx11 and gfx12. See
// frag_cdna.h for the words. gfx11 interleaves the rows of its accumulators
// over the two half waves; the order of the key rows undoes that, so lane
// (i, grp) holds tokens 8 grp .. 8 grp + 7 of column i on both.
#pragma once
#include "kg/core/isa.h"
#include "kg/core/macros.h"

namespace kg {

constexpr int NI = 16;
constexpr int NGRP = 2;
constexpr int TOK = 16;
constexpr int KROWS = 1;
constexpr int TPL = 8;
constexpr int S_REGS = 8;
constexpr int O_REGS = 8;
constexpr int COLS = 1;
constexpr int K_WORDS = 4;
// Of an operand as the instruction takes it: gfx11 wants all of it in both half waves.
constexpr int OPERAND_WORDS = ROWS_INTERLEAVED_BY_HALF ? 8 : 4;

KG_DEV int lane_i(int lane) { return lane % 16; }
KG_DEV int lane_grp(int lane) { return lane / 16; }
KG_DEV int lane_at(int i, int grp) { return 16 * grp + i; }
KG_DEV int k_token(int i, int) { return ROWS_INTERLEAVED_BY_HALF ? 8 * (i % 2) + i / 2 : i; }
KG_DEV int k_place(int token) {
    return ROWS_INTERLEAVED_BY_HALF ? 2 * (token % 8) + token / 8 : token;
}
KG_DEV int s_token(int lane, int reg) { return 8 * lane_grp(lane) + reg; }
KG_DEV int o_row(int lane, int reg) {
    return ROWS_INTERLEAVED_BY_HALF ? 2 * reg + lane_grp(lane) : 8 * lane_grp(lane) + reg;
}
KG_DEV int lane_column(int lane, int) { return lane_i(lane); }
// Lanes of a column lie so far apart; the first of them speaks for it.
constexpr int COLUMN_STEP = NI;
KG_DEV bool is_speaker(int lane) { return lane < NI; }

} // namespace kg

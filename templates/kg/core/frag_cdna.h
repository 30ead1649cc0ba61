// Fragment geometry of CDNA: MFMA 16x16, wave64. A lane is (i, grp): i is its
// row of A and its column of B, grp its slice of K.
//
// Scores are computed transposed, S = K Q^T: rows are tokens, columns query
// rows. Key rows are gathered in the order of k_token, so that the registers of
// S hold, for lane (i, grp), tokens 8 grp .. 8 grp + 7 of column i: exactly the
// B operand of O^T = V^T P^T. Source: AMD matrix instruction calculator, and
// checked on the emulated devices.
#pragma once
#include "kg/core/macros.h"

namespace kg {

constexpr int NI = 16;     // rows of A, columns of B
constexpr int NGRP = 4;    // slices of K
constexpr int TOK = 32;    // tokens of a block
constexpr int KROWS = 2;   // key rows a lane loads
constexpr int TPL = 8;     // tokens a lane holds in a V operand
constexpr int S_REGS = 8;  // scores a lane holds of a block
constexpr int O_REGS = 4;  // accumulators a lane holds of a 16 x NI tile
constexpr int COLS = 1;    // columns a lane holds scores of
constexpr int K_WORDS = 4; // words of a key row that one step consumes
constexpr int OPERAND_WORDS = K_WORDS;

KG_DEV int lane_i(int lane) { return lane % 16; }
KG_DEV int lane_grp(int lane) { return lane / 16; }
KG_DEV int lane_at(int i, int grp) { return 16 * grp + i; }
KG_DEV int k_token(int i, int row) { return 8 * (i / 4) + 4 * row + i % 4; }
KG_DEV int k_place(int token) { return 16 * (token / 4 % 2) + 4 * (token / 8) + token % 4; }
KG_DEV int s_token(int lane, int reg) { return 8 * lane_grp(lane) + reg; }
KG_DEV int o_row(int lane, int reg) { return 4 * lane_grp(lane) + reg; }
KG_DEV int lane_column(int lane, int) { return lane_i(lane); }
// Lanes of a column lie so far apart; the first of them speaks for it.
constexpr int COLUMN_STEP = NI;
KG_DEV bool is_speaker(int lane) { return lane < NI; }

} // namespace kg

// A shuffle is as good here as any instruction.
#pragma once
#include "kg/attn/cluster_nvidia.h"
#include "kg/attn/parts_rows_nvidia.h"

namespace kg {

// Of one row a wave, registers hold as many parts.
constexpr bool MERGES_MANY = BY_MATRICES || (STAGED_MATRICES && ROWS > ALL_WAVES);

KG_DEV void merge_parts(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                        float amiss, u8 *lds) {
    if constexpr (MERGES_MANY)
        merge_many_rows(a, g, cut, share, wave, amiss, lds + LDS_STAGE);
    else
        merge_by_shuffles(a, g, cut, share, wave, amiss);
}

// Of a row that each wave has, some dims (kg/attn/together.h).
constexpr int PIECE_DIMS = WAVE * 4;
constexpr u32 PIECES_OF_ROW = ceil_div(V_DIM, PIECE_DIMS);
constexpr u32 PIECES = ceil_div(ROWS, ALL_WAVES) * PIECES_OF_ROW;
KG_DEV void merge_piece(args_t a, const segment_t &g, cut_t cut, share_t share, u32 n, int wave) {
    int row = (int)(n / PIECES_OF_ROW) * ALL_WAVES + wave;
    int dim = (int)(n % PIECES_OF_ROW) * PIECE_DIMS;
    if (row < ROWS && row_exists(g, row))
        merge_row<1>(a, g, cut, share, row, row_at(g, row), 0.0f, dim, dim + PIECE_DIMS);
}

} // namespace kg

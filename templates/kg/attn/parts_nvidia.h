// A shuffle is as good here as any instruction.
#pragma once
#include "kg/attn/cluster_nvidia.h"
#include "kg/attn/parts_rows_nvidia.h"

namespace kg {

KG_DEV void merge_parts(args_t a, const segment_t &g, cut_t cut, share_t share, int wave,
                        float amiss, u8 *lds) {
    if constexpr (MERGES_SLICES)
        merge_slice(a, g, cut, share, wave, amiss);
    else if constexpr (MERGES_MANY)
        merge_many_rows(a, g, cut, share, wave, amiss, parts_at(lds, wave));
    else
        merge_by_shuffles(a, g, cut, share, wave, amiss);
}

// Few rows are the first wave's: the others go on to the next segment.
KG_DEV void settle_few(args_t a, const segment_t &g, cut_t cut, u8 *lds, int wave) {
    if (wave > 0) return;
    share_t share = share_of(a, cut, g);
    u32 said = 0;
    meet_wave();
    if (late_lane() == 0) said = count_in(a, g, share);
    arrival_t how = (arrival_t)read_lane(said, 0);
    if (how == ARRIVED) return;
    bool amiss = how == ARRIVED_AMISS;
    merge_few_rows(a, g, cut, share, amiss ? float_of(0x7fc00000) : 0.0f, parts_at(lds, wave));
    if (amiss && late_lane() == 0) report_workspace(a, g.seq.index);
    meet_wave(); // all has been read
    if (!amiss && late_lane() == 0) store(counter_of(a, g, share), COUNTER_AT_REST<u64>);
}

// Of a row that each wave has, some dims (kg/attn/together.h), or all where rows are many.
constexpr int PIECE_DIMS = PAIRED ? V_DIM : WAVE * 4;
constexpr u32 PIECES_OF_ROW = ceil_div(V_DIM, PIECE_DIMS);
constexpr u32 PIECES = ceil_div(ROWS, ALL_WAVES) * PIECES_OF_ROW;
KG_DEV void merge_piece(args_t a, const segment_t &g, cut_t cut, share_t share, u32 n, int wave,
                        u8 *lds) {
    int row = (int)(n / PIECES_OF_ROW) * ALL_WAVES + wave;
    int dim = (int)(n % PIECES_OF_ROW) * PIECE_DIMS;
    if (row >= ROWS || !row_exists(g, row)) return;
    if constexpr (PAIRED)
        merge_rows<1>(a, g, cut, share, row, 0.0f, place_of_wave<1>(parts_at(lds, wave), wave));
    else
        merge_row<1>(a, g, cut, share, row, row_at(g, row), 0.0f, dim, dim + PIECE_DIMS);
}

} // namespace kg

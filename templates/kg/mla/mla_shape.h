/* Rows of a latent cache whose latent is quantised by blocks, for gen/, predict/, check/ and
 * kg/mla/. Plain C. A row is codes, a float a block of them, zeros up to a multiple of 16
 * bytes, and the rope part in 16 bits: 656 bytes of 512 + 64 columns. */
#pragma once
#include "kg/attn/attn_shape.h"

enum { KG_MLA_BLOCK = 128 }; /* codes of a scale */

KG_SHAPE int kg_mla_scale_bytes(int latent) { return ceil_div(latent / KG_MLA_BLOCK, 4) * 16; }
KG_SHAPE int kg_mla_row_bytes(int latent, int rope) {
    return latent + kg_mla_scale_bytes(latent) + 2 * rope;
}

/* As matrices (kg/mla/mla_bring_nvidia.h): pieces of 16 bytes that a lane of 32 has of some rows,
 * and bytes of what four waves have that waits to be converted: halves of 8 rows each, and scales
 * of 16. */
KG_SHAPE int kg_mla_pieces(int row_pieces, int rows) {
    int left = row_pieces % 32;
    int at_once = smaller(32 / kg_attn_lanes_of_row(larger(left, 1), 32), rows);
    return rows * (row_pieces / 32) + (left ? ceil_div(rows, at_once) : 0);
}
KG_SHAPE int kg_mla_raw_bytes(int row_pieces, int halves, int scale_bytes) {
    return 4 * (halves * kg_mla_pieces(row_pieces, 8) * 32 * 16 + 16 * scale_bytes);
}

/* Rows of a latent cache whose latent is quantised by blocks, for gen/, predict/, check/ and
 * kg/mla/. Plain C. A row is codes, a float a block of them, zeros up to a multiple of 16
 * bytes, and the rope part in 16 bits: 656 bytes of 512 + 64 columns. */
#pragma once
#include "kg/core/shape.h"

enum { KG_MLA_BLOCK = 128 }; /* codes of a scale */

KG_SHAPE int kg_mla_scale_bytes(int latent) { return ceil_div(latent / KG_MLA_BLOCK, 4) * 16; }
KG_SHAPE int kg_mla_row_bytes(int latent, int rope) {
    return latent + kg_mla_scale_bytes(latent) + 2 * rope;
}

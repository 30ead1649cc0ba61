/* Shape of the gdn kernels, for gen/gdn.c, predict/ and kg/gdn/. Plain C. */
#pragma once
#include "kg/core/shape.h"

/* Neighbouring elements that are loaded together, 8 or 16 bytes. */
enum { KG_GDN_PIECE = 4 };

/* Of the convolution. */
KG_SHAPE int kg_gdn_channels(int k_heads, int k_dim, int v_heads, int v_dim) {
    return 2 * k_heads * k_dim + v_heads * v_dim;
}

/* Workgroups of a sequence: a value head is cut in v_blocks; where there is no
 * recurrence (v_blocks 0), a lane has a piece of the channels. */
KG_SHAPE int kg_gdn_groups(int v_heads, int v_blocks, int channels, int threads) {
    return v_blocks ? v_heads * v_blocks : ceil_div(channels, threads * KG_GDN_PIECE);
}

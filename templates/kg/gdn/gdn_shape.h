/* Shape of the gdn kernels, for gen/gdn.c, predict/ and kg/gdn/. Plain C. */
#pragma once
#include "kg/core/shape.h"

/* Neighbouring elements that are loaded together, 8 or 16 bytes. */
enum { KG_GDN_PIECE = 4 };

/* Of the convolution. */
KG_SHAPE int kg_gdn_channels(int k_heads, int k_dim, int v_heads, int v_dim) {
    return 2 * k_heads * k_dim + v_heads * v_dim;
}

/* Floats that a workgroup stages: for every token its query, key, values, decays
 * and beta; keys, updates and decays of a ring; the gates of a norm; a flag. */
KG_SHAPE int kg_gdn_step_floats(int tokens, int k_dim, int v_dim, int v_blocks, int norm,
                                int decays, int ring) {
    int v_block = v_dim / v_blocks, staged = tokens * (2 * k_dim + v_block + decays + 1);
    return ceil_div(staged, 4) * 4 + ring * (k_dim + v_block + decays) +
           (norm ? tokens * v_dim : 0) + 1;
}
/* Without a recurrence a lane stages its piece of each token of a tree (0: no
 * tree). */
KG_SHAPE int kg_gdn_unpack_floats(int tree_tokens, int threads) {
    return larger(1, tree_tokens * threads) * KG_GDN_PIECE;
}

/* Workgroups of a sequence: a value head is cut in v_blocks; where there is no
 * recurrence (v_blocks 0), a lane has a piece of the channels. */
KG_SHAPE int kg_gdn_groups(int v_heads, int v_blocks, int channels, int threads) {
    return v_blocks ? v_heads * v_blocks : ceil_div(channels, threads * KG_GDN_PIECE);
}

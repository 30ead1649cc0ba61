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

/* As matrices on sm_90 (kg/mla/mla_bring_nvidia.h), whose rows are 128 bytes of a key: queries of
 * all rows, sets of keys as they are cached, probabilities of a set. One set is multiplied, the
 * others come: as many as there is room for beside what else a workgroup has in LDS. Row tiles are
 * of SET_COLUMNS query rows. */
enum {
    KG_MLA_SET_KEYS = 64,
    KG_MLA_SET_COLUMNS = 8,
    KG_MLA_SLOTS = 4,
    KG_MLA_STAGE_ROOM = 220 << 10
};
typedef struct kg_mla_stage {
    int queries, weights; /* bytes of all rows */
    int sums;             /* ... of scores of one of two groups of waves, where these make numbers
                             of what is cached and registers go so far */
    int set, slots;       /* bytes of a set; sets */
    int bytes;
} kg_mla_stage;
/* bits: of a column; blocked: of the rope part's. made: numbers are made of what is cached. paired:
 * a set of numbers for each of two groups of waves (kg/mla/mla_pairs_nvidia.h). */
KG_SHAPE kg_mla_stage kg_mla_stage_of(int latent, int rope, int bits, int blocked, int made,
                                      int rows, int occupancy, int paired) {
    if (paired) bits = 16, blocked = made = 0;
    int row = blocked ? latent + rope * bits / 8 : (latent + rope) * bits / 8;
    int queries = ceil_div(latent + rope, 64) * 128 * rows, weights = rows * KG_MLA_SET_KEYS * 2;
    int scales = blocked ? kg_mla_scale_bytes(latent) : 0;
    int set = KG_MLA_SET_KEYS * (ceil_div(row, 128) * 128 + scales);
    int sums = made && rows < 8 * KG_MLA_SET_COLUMNS ? rows * KG_MLA_SET_KEYS * 4 : 0;
    int room = (KG_MLA_STAGE_ROOM / occupancy - queries - weights - sums) / set;
    int slots = paired ? 2 : larger(2, smaller(room, KG_MLA_SLOTS));
    kg_mla_stage s = {queries, weights, sums, set, slots, queries + weights + sums + slots * set};
    return s;
}

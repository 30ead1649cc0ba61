/* Shape of the kv_write and kv_gather kernels, for gen/kv.c, the launchers,
 * predict/ and kg/kv/. Plain C. */
#pragma once
#include "kg/core/shape.h"

/* Bytes of the cache that a lane moves at once. */
enum { KG_KV_CHUNK = 16 };
/* Dims of a value that share a scale, where blocks have one each. */
enum { KG_KV_BLOCK = 128 };

KG_SHAPE int kg_kv_x(int kv_bits) { return 8 * KG_KV_CHUNK / kv_bits; }

/* --- rows in chunks: K, and V in natural layouts --------------------------- */

/* Where a chunk of consecutive slots is contiguous (packed K), 8 rows stand side
 * by side in a wave, so that what it moves are whole lines. */
KG_SHAPE int kg_kv_row_block(int packed) { return packed ? 8 : 1; }

/* Of 2 that divides n, up to `most`. */
KG_SHAPE int kg_kv_largest_power(int n, int most) {
    while (most > 1 && n % most != 0) most /= 2;
    return most;
}
/* Smallest of 2 that is not below n, up to `most`. */
KG_SHAPE int kg_kv_power_above(int n, int most) {
    while (most > 1 && most / 2 >= n) most /= 2;
    return most;
}

/* Lanes that share a row of `chunks`. paired: a chunk rotates with one of the
 * other half, and a lane then has both. */
KG_SHAPE int kg_kv_row_lanes(int chunks, int paired, int row_block, int wave) {
    int together = paired && chunks % 2 == 0 ? 2 : 1;
    if (paired && chunks % 2) return 1;
    return kg_kv_largest_power(chunks / together, smaller(32, wave / row_block));
}

/* --- packed V: x tokens of 2 dims of a head are a lane's -------------------- */

KG_SHAPE int kg_kv_pair_lanes(int v_dim, int wave) { return kg_kv_power_above(v_dim / 2, wave); }
/* Of a head, each of a wave or less. */
KG_SHAPE int kg_kv_parts(int v_dim, int wave) {
    return ceil_div(v_dim / 2, kg_kv_pair_lanes(v_dim, wave));
}
/* Parts that a wave takes: as many as it may, where they divide. */
KG_SHAPE int kg_kv_passes(int parts, int most) {
    return most >= parts ? parts : parts % most == 0 ? most : 1;
}

/* Parts that a wave may take. kv_write with a scale of its own needs the maximum
 * of them all. */
enum { KG_KV_GATHER_PARTS = 2 };
KG_SHAPE int kg_kv_write_parts(int by_maximum) { return by_maximum ? 64 : 1; }

/* Waves that share a block of x tokens of `heads` heads. */
KG_SHAPE int kg_kv_slices(int heads, int v_dim, int wave, int passes) {
    int wave_heads = wave / kg_kv_pair_lanes(v_dim, wave);
    return ceil_div(heads, wave_heads) * (kg_kv_parts(v_dim, wave) / passes);
}

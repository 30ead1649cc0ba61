/* Shape of the attention kernels: what gen/attn_needs.c counts by, what the launcher
 * sizes the workspace by and what kg/attn/ is built from. Plain C.
 *
 * columns: query rows of a row tile. x: cached elements of 16 bytes. A part of V
 * is what is loaded together: `columns` lanes' dims, or, of packed values and by way of
 * LDS, tiles of 16 dims. */
#pragma once
#include "kg/core/shape.h"

KG_SHAPE int kg_attn_rows(int row_tiles, int columns) {
    return row_tiles * columns;
} /* of a wave */
/* Groups of four waves that have the same rows and keys of their own, as workgroups of a cluster
 * have: as matrices by way of LDS, of sequences with few tokens. */
KG_SHAPE int kg_attn_key_groups(int waves, int by_matrices, int bounded) {
    return by_matrices && bounded ? waves / 4 : 1;
}
/* Of a row block. Where sequences have any number of tokens, and as matrices by way of LDS, waves
 * share the rows that a sequence has, and the keys as far as waves are left. */
KG_SHAPE int kg_attn_block_rows(int wave_rows, int waves, int own_rows, int key_groups) {
    return own_rows ? wave_rows * waves / key_groups : wave_rows;
}
/* Of one KV head and sequence, at most. */
KG_SHAPE int kg_attn_row_blocks(int group, int q_tokens, int rows) {
    return ceil_div(group * q_tokens, rows);
}

/* Key blocks that are worth another workgroup and its share of the merge. */
KG_SHAPE int kg_attn_least_blocks(int waves) { return 2 * waves; }
/* As matrices by way of LDS: two sets. unit_waves: waves for whose rows a block counts. */
KG_SHAPE int kg_attn_least_buffered(int unit_waves) { return 8 * unit_waves; }

/* Where an item is cut at fixed places: its parts, at most. */
KG_SHAPE int kg_attn_parts(int keys, int part_keys) { return ceil_div(keys, part_keys); }
/* Keys of a part that nobody chose: whole turns of all waves, as every other choice. */
enum { KG_ATTN_PART_STEP = 512, KG_ATTN_PART = 2048 };

/* What merging one part costs, in blocks of keys. A block takes a workgroup as long as its bytes,
 * or, of rows so many, as its products: 64 operations the time of a byte on CDNA. */
KG_SHAPE int kg_attn_merge_blocks(int rows, int v_dim, int keys, int row_bytes) {
    return ceil_div(rows * v_dim * 4, keys * larger(row_bytes, rows * v_dim / 64));
}

/* Where workgroups merge what they had together: the shortest part, in keys, and how many such make
 * it worth while, unless rows are 64. Codes take longer to become numbers. Measured on sm_90. */
enum { KG_ATTN_LEAST_TOGETHER = 256 };
KG_SHAPE int kg_attn_many_together(int kv_bits) { return kv_bits == 8 ? 24 : 40; }

/* Parts of attention on sm_90, as kg_attn_merge_blocks; measured. */
KG_SHAPE int kg_attn_merge_sm90(int by_matrices) { return by_matrices ? 2 : 1; }

/* In blocks of `keys`: about 5000 cycles at a compute unit's share of the memory
 * bandwidth. dims: of keys and values. */
KG_SHAPE int kg_attn_item_cost(int keys, int dims, int bits) {
    return ceil_div(8 * 96 * 1024, keys * dims * bits);
}
/* Of staged matrices: queries, the first set, the meeting of waves and the rows of a part take as
 * long as a dozen blocks. */
enum { KG_ATTN_STAGED_COST = 12 };
/* As matrices by way of LDS a block takes its products' time, and its waves' rows are many:
 * finishing them costs as much as two dozen blocks of 128 dims, which sooner are done where others
 * bring them. Measured. */
KG_SHAPE int kg_attn_buffered_cost(int unit_waves, int dims, int bringers) {
    return ceil_div((bringers ? 32 : 24) * unit_waves * 256, dims);
}

/* --- registers of a lane --------------------------------------------------- */

/* Value dims a lane takes from one token: the widest load that cuts v_dim evenly. staged: all
 * waves of a workgroup share them, and where the narrowest loads reach all dims, the widest
 * would leave most waves accumulating dims that there are not. */
KG_SHAPE int kg_attn_lane_dims(int v_dim, int v_split, int columns, int x, int staged) {
    int least = larger(4, x / 4);
    for (int n = x; n >= least; n /= 2)
        if (v_dim % (columns * n * v_split) == 0) return n;
    return staged && v_dim <= columns * least * v_split ? least : 8;
}
KG_SHAPE int kg_attn_part_dims(int v_dim, int v_split, int columns, int x, int tiles, int staged) {
    return tiles ? larger(16, x) : columns * kg_attn_lane_dims(v_dim, v_split, columns, x, staged);
}
/* Value dims that a wave accumulates: its slice, in whole parts. */
KG_SHAPE int kg_attn_slice_dims(int v_dim, int v_split, int part_dims) {
    return ceil_div(ceil_div(v_dim, part_dims), v_split) * part_dims;
}

KG_SHAPE int kg_attn_acc_registers(int row_tiles, int slice_dims, int columns, int wave) {
    return row_tiles * slice_dims * columns / wave;
}
/* x / 2 words for each part of head_dim, of which `groups` lanes have x elements. */
KG_SHAPE int kg_attn_q_registers(int row_tiles, int head_dim, int groups, int x) {
    return row_tiles * ceil_div(head_dim, groups * x) * (x / 2);
}
/* Dims of a row in LDS, where matrices have 64 each. */
KG_SHAPE int kg_attn_q_lds_dims(int head_dim, int by_matrices) {
    return by_matrices ? ceil_div(head_dim, 64) * 64 : head_dim;
}

/* Of K, and of V, in flight before use. wave64 has 256 registers at two workgroups a
 * compute unit, of which 64 accumulators leave all that one row tile needs, half of what two do. */
KG_SHAPE int kg_attn_ahead(int acc_registers, int row_tiles, int wave, int sm90) {
    int half = wave == 64 && acc_registers >= (row_tiles > 1 ? 64 : 65);
    return (wave == 64 || sm90 ? 64 : 32) / (half ? 2 : 1);
}
/* Of Q; more lie in LDS. ahead: of K. yields: where sixteen waves of a unit have none to spare. */
KG_SHAPE int kg_attn_q_keeps(int acc_registers, int ahead, int wave, int sm90, int buffered,
                             int bringers, int yields) {
    if (bringers || yields) return 0;
    if (buffered) return acc_registers > 96 ? 0 : 32;
    if (wave == 64) return acc_registers + 2 * ahead <= 160 ? 32 : 16;
    return sm90 ? 32 : 16;
}

/* Words of Q that each half wave may hold whole, by way of lines: more where nothing else takes
 * many. Measured. */
KG_SHAPE int kg_attn_whole_words(int bits, int cascade, int token_scales) {
    return bits < 8 || cascade || token_scales ? 32 : 64;
}

/* --- LDS ------------------------------------------------------------------- */

/* Bytes between two staged keys: what reads 16 bytes of 8 of them at a time then meets each bank
 * once. */
KG_SHAPE int kg_attn_stage_row(int bytes) { return bytes / 16 % 2 ? bytes : bytes + 16; }
/* Blocks of keys in LDS: with two, one comes while the other is weighed, and scores of the next
 * are there before. What else lies there takes less than 4 KiB. */
KG_SHAPE int kg_attn_stages(int lds_bytes, int keys_bytes, int scores_bytes) {
    return 2 * keys_bytes + scores_bytes + 4096 <= lds_bytes ? 2 : 1;
}
/* Brought by memory itself (kg/mla/mla_direct.h): groups of 128 bytes of all keys of a block, and
 * blocks: one is weighed, scores of the next are made, the third comes. */
enum { KG_ATTN_GROUP_BYTES = 128, KG_ATTN_DIRECT_STAGES = 3 };
KG_SHAPE int kg_attn_direct_keys(int keys, int bytes) {
    return keys * ceil_div(bytes, KG_ATTN_GROUP_BYTES) * KG_ATTN_GROUP_BYTES;
}
/* As many row tiles as waves: registers are short, and the last of each one's queries, x / 2 words
 * a lane, lie behind what is said. A wave has scores of one tile; of two, which read keys once,
 * where keys have 16 bits. */
KG_SHAPE int kg_attn_crowded(int row_tiles, int waves) { return row_tiles == waves && waves > 1; }
KG_SHAPE int kg_attn_wave_tiles(int crowded, int bits) { return crowded && bits == 16 ? 2 : 1; }
KG_SHAPE int kg_attn_aside_bytes(int crowded, int wave_tiles, int waves, int x, int wave) {
    return crowded ? waves * wave_tiles * wave * x * 2 : 0;
}
/* What is then said of weights: probabilities, a factor a lane, whether some are not one. */
KG_SHAPE int kg_attn_said_bytes(int row_tiles, int columns, int keys, int wave) {
    return row_tiles * (columns * keys * 2 + wave * 4) + 16;
}
/* Where rows are matrices (kg/mla/mla_shape.h), what a wave knows of its work lies behind them. */
enum { KG_ATTN_STAGED_PARK_BYTES = 84 };

/* Long queries by way of LDS: sets of some blocks of keys and values. */
typedef struct kg_attn_sets {
    int blocks;    /* of a set */
    int slots;     /* sets: one is read, the others are on their way */
    int k, v, raw; /* bytes of a slot's keys and values; of a raw slot, or of a slot's scales */
    int bytes;     /* of all slots */
} kg_attn_sets;

/* Lanes that bring a token's `pieces` of 16 bytes, and the tokens that a wave so brings at
 * once, of the `keys` that are its. */
KG_SHAPE int kg_attn_lanes_of_row(int pieces, int wave) {
    int lanes = 1;
    while (lanes < pieces && lanes < wave) lanes *= 2;
    return lanes;
}
KG_SHAPE int kg_attn_at_once(int pieces, int wave, int keys) {
    return smaller(wave / kg_attn_lanes_of_row(pieces, wave), keys);
}

/* As matrices, with which four waves multiply that have 16 query rows each. Behind the sets
 * lies what a wave knows of its work. Matrices begin at multiples of KG_ATTN_SWIZZLE bytes. */
enum { KG_ATTN_PARK_BYTES = 192, KG_ATTN_SWIZZLE = 1024 };
/* Of eight waves with rows: a third group brings their sets (kg/attn/bringers_nvidia.h). */
enum { KG_ATTN_BRINGERS = 4, KG_ATTN_GATE_BYTES = 576 };
/* What says what boxes come from: K, V and Q, for all workgroups. */
enum { KG_ATTN_MAP_BYTES = 128, KG_ATTN_MAPS = 3 };
/* Segments that it has found and others go through. */
enum { KG_ATTN_FOUND = 4 };

/* A row of LDS is 128 bytes of a token, 64 dims of 16 bits; what the cache has in other
 * types waits as it comes (raw), or in boxes, and is converted from there. */
KG_SHAPE int kg_attn_raw_bytes(int n, int head_dim, int v_dim, int bits, int boxes) {
    if (boxes) return (ceil_div(head_dim * bits, 1024) + ceil_div(v_dim * bits, 1024)) * 128 * n;
    return ceil_div(n * (head_dim + v_dim) * bits / 8, 1024) * 1024;
}
/* Scales of `keys` tokens that boxes do not bring, of keys and of values. Those of a set wait from
 * where it is asked for until its probabilities are there: as many sets as are raw, two of
 * numbers, and one of which only the keys have been read. */
enum { KG_ATTN_SCALE_SLOTS = 3 };
KG_SHAPE int kg_attn_scales_bytes(int keys) { return 2 * 4 * keys; }
KG_SHAPE kg_attn_sets kg_attn_matrices_at(int blocks, int slots, int keys, int head_dim, int v_dim,
                                          int bits, int boxes, int scale_slots) {
    int n = blocks * keys, k = ceil_div(head_dim, 64) * 128 * n, v = ceil_div(v_dim, 64) * 128 * n;
    int raw = bits < 16 ? kg_attn_raw_bytes(n, head_dim, v_dim, bits, boxes) : 0;
    int bytes = raw ? slots * raw + 2 * (k + v) : slots * (k + v);
    if (scale_slots) bytes += (slots + scale_slots) * kg_attn_scales_bytes(n);
    kg_attn_sets sets = {blocks, slots, k, v, raw, bytes};
    return sets;
}
/* As many blocks as registers, which hold scores of two sets, and LDS have room for; three
 * slots rather than two. keys: of a block. q_bytes: of queries that lie in LDS, too. */
KG_SHAPE int kg_attn_most_blocks(int acc_registers, int token_scales, int bringers) {
    if (bringers) return acc_registers > 128 ? 2 : acc_registers > 96 ? 4 : 8;
    if (token_scales) acc_registers += 48; /* a lane has those of its scores */
    return acc_registers > 160 ? 1 : acc_registers > 96 ? 2 : 4;
}
KG_SHAPE kg_attn_sets kg_attn_matrices_of(int most_blocks, int keys, int head_dim, int v_dim,
                                          int bits, int occupancy, int q_bytes, int bringers,
                                          int token_scales) {
    enum { GROUP = 232448 }; /* sm_90: of LDS, the most that one workgroup has */
    int most = (occupancy > 2 ? 69632 : 229376 / occupancy - 4096) - q_bytes;
    if (bringers)
        most = GROUP - KG_ATTN_SWIZZLE - KG_ATTN_FOUND * KG_ATTN_PARK_BYTES - KG_ATTN_GATE_BYTES -
               q_bytes;
    int least = bringers && bits < 16 ? 1 : 2; /* raw ones come a half of a slot at a time */
    int scale_slots = bringers && token_scales ? KG_ATTN_SCALE_SLOTS : 0;
    for (int blocks = most_blocks; blocks > 1; blocks /= 2)
        for (int slots = 3; slots >= least; slots--) {
            kg_attn_sets sets = kg_attn_matrices_at(blocks, slots, keys, head_dim, v_dim, bits,
                                                    bringers, scale_slots);
            if (sets.bytes <= most) return sets;
        }
    return kg_attn_matrices_at(1, 2, keys, head_dim, v_dim, bits, bringers, scale_slots);
}

/* Codes that wait for each wave: bytes of a block, and where they may begin, as the pieces of a row
 * are turned within 128 bytes. */
KG_SHAPE int kg_attn_queue_slot(int keys, int head_dim, int v_dim, int bits) {
    return keys * (head_dim + v_dim) * bits / 8;
}
KG_SHAPE int kg_attn_queue_at(int from) { return ceil_div(from, 128) * 128; }

/* How values come out of lines: turned by byte permutes, by LDS as they are read, or they lie
 * turned (kg/attn/lines_*.h). */
enum { KG_ATTN_PERMUTED, KG_ATTN_TURNED_BY_LDS, KG_ATTN_TURNED_BEFORE };

/* As lines, of which waves load operands: a token's keys, or values, as 16-bit numbers. Lines
 * of keys are an odd number of 16 bytes long; of values that LDS turns, of 32. Behind eight dims
 * of those that lie turned 16 bytes are free. Behind them the scales of the keys, and of the
 * values. */
KG_SHAPE kg_attn_sets kg_attn_lines_at(int blocks, int slots, int keys, int head_dim, int v_dim,
                                       int values, int token_scales) {
    int v_line = v_dim * 2 + (values == KG_ATTN_TURNED_BY_LDS && v_dim / 16 % 2 == 0 ? 32 : 0);
    if (values == KG_ATTN_TURNED_BEFORE) v_line += v_dim / 4;
    int n = blocks * keys, k = n * kg_attn_stage_row(head_dim * 2), v = n * v_line;
    int raw = token_scales ? 8 * n : 0;
    kg_attn_sets sets = {blocks, slots, k, v, raw, slots * (k + v + raw)};
    return sets;
}
/* Registers of a wave's keys or values on their way to `blocks` blocks of `keys`. */
KG_SHAPE int kg_attn_on_their_way(int blocks, int keys, int waves, int wave, int dim, int bits) {
    int mine = ceil_div(blocks * keys, waves);
    return 4 * (mine / kg_attn_at_once(dim * bits / 128, wave, mine));
}
/* As many blocks as there are waves, room for, and 16 registers to bring them by. A second slot,
 * where there is room, spares a barrier. lds_bytes: of the workgroup, some of which is for
 * what waves say of their rows. */
KG_SHAPE kg_attn_sets kg_attn_lines_of(int lds_bytes, int keys, int waves, int wave, int head_dim,
                                       int v_dim, int bits, int values, int token_scales) {
    int room = lds_bytes - 9216, blocks = 1;
    while (2 * blocks <= waves &&
           kg_attn_lines_at(2 * blocks, 1, keys, head_dim, v_dim, values, token_scales).bytes <=
               room &&
           kg_attn_on_their_way(2 * blocks, keys, waves, wave, head_dim, bits) +
                   kg_attn_on_their_way(2 * blocks, keys, waves, wave, v_dim, bits) <=
               16)
        blocks *= 2;
    kg_attn_sets two = kg_attn_lines_at(blocks, 2, keys, head_dim, v_dim, values, token_scales);
    if (two.bytes <= room) return two;
    return kg_attn_lines_at(blocks, 1, keys, head_dim, v_dim, values, token_scales);
}

/* Waves meet in rounds of a few query columns and some value dims, of which LDS
 * has this many bytes; sm_90 has one workgroup a unit. */
KG_SHAPE int kg_attn_round_most(int sm90, int queue) {
    return queue ? 69632 : sm90 ? 36864 : 20480;
}
/* Rows of a wave that they meet for at once, at most. */
KG_SHAPE int kg_attn_round_columns(int sm90, int rows) { return sm90 && rows > 8 ? rows : 8; }

enum { KG_ATTN_ROUND_PAD = 4 }; /* floats: spreads the columns over the banks */

/* waves: of the workgroup. tiles: of 16 value dims. */
KG_SHAPE int kg_attn_round_bytes(int waves, int columns, int tiles) {
    return waves * columns * (tiles * 16 + KG_ATTN_ROUND_PAD) * 4;
}

/* Where clusters cut keys: multiples of all sets of them. */
enum { KG_ATTN_CUT_KEYS = 64 };
/* Of a workgroup's rows, which others of its cluster read: values, and a maximum and a sum. */
KG_SHAPE int kg_attn_peer_bytes(int rows, int floats) { return rows * (floats * 4 + 8); }

/* Or what all of a cluster send to the one that merges, each workgroup's `groups` by themselves:
 * quads of values, of which a workgroup merges `quads` of each, and sums of all rows. */
typedef struct kg_attn_inbox {
    int quads;
    int sums; /* offset */
    int bytes;
} kg_attn_inbox;
KG_SHAPE kg_attn_inbox kg_attn_inbox_of(int rows, int v_dim, int cluster, int groups) {
    int quads = (rows * v_dim / 4 + cluster - 1) / cluster, parts = cluster * groups;
    int sums = parts * quads * 16;
    kg_attn_inbox box = {quads, sums, sums + (parts * rows * 8 + 15) / 16 * 16};
    return box;
}
/* Whether latent attention sends: its inbox lies behind the rows that are sent, where it has room.
 * Two read each other's rows as soon. */
KG_SHAPE int kg_attn_sends_rows(int rows, int cluster) { return rows < 64 && cluster > 2; }
/* The counter of what has come, and of each wave whose turn it is. */
KG_SHAPE int kg_attn_turn_bytes(int waves) { return 16 + (waves * 4 + 15) / 16 * 16; }
/* Whether it has a place besides the `bytes` of a workgroup, so that parts may come before sets of
 * keys are done with: where a compute unit has room for as many workgroups then. */
KG_SHAPE int kg_attn_inbox_apart(int bytes, int inbox) {
    enum { UNIT = 228 << 10, HELD = 1024 }; /* sm_90: of a unit, and of that each workgroup's */
    return UNIT / (bytes + HELD) == UNIT / (bytes + inbox + HELD);
}

typedef struct kg_attn_lds {
    int round_columns, round_tiles;
    int sums, totals, flag, round; /* offsets */
    int bytes;
} kg_attn_lds;

/* q_bytes: of Q in LDS. waves share the keys, v_split of them each the values.
 * rows: of a wave, block_rows: of the row block.
 * tiles: of a wave's slice, least_tiles of them at least in a round. Of a round:
 * as many of the columns as fit, whole tiles of 8 of them, then as many tiles as fit. */
KG_SHAPE kg_attn_lds kg_attn_lds_of(int q_bytes, int waves, int v_split, int rows, int block_rows,
                                    int tiles, int least_tiles, int columns, int round_most) {
    int all = waves * v_split, most = least_tiles;
    while (columns > 1 && kg_attn_round_bytes(all, columns, least_tiles) > round_most)
        columns = columns > 8 && columns % 16 ? 8 : columns / 2;
    for (int n = least_tiles; n <= tiles; n += least_tiles)
        if (tiles % n == 0 && kg_attn_round_bytes(all, columns, n) <= round_most) most = n;
    int totals = q_bytes + waves * rows * 8; /* maximum and sum of a row, 8 bytes */
    int flag = ceil_div(totals + block_rows * 8, 16) * 16, round = flag + 16;
    kg_attn_lds lds = {columns,
                       most,
                       q_bytes,
                       totals,
                       flag,
                       round,
                       round + kg_attn_round_bytes(all, columns, most)};
    return lds;
}

/* BRINGERS: each wave has rows of its own, of which others need no sums; and who brings sets says
 * what the work is. */
KG_SHAPE kg_attn_lds kg_attn_lds_of_own_rows(int q_bytes, int tiles) {
    kg_attn_lds lds = {1, tiles, q_bytes, q_bytes, q_bytes, q_bytes + 16, q_bytes + 16};
    return lds;
}
KG_SHAPE int kg_attn_parks(int waves, int bringers) { return bringers ? KG_ATTN_FOUND : waves; }

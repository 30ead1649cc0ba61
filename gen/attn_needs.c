/* What a kernel of attention needs of a target: how its keys and values come, what its waves share,
 * and the registers and LDS that follow. */
#include "attn_needs.h"
#include "family.h"
#include "templates/kg/attn/attn_shape.h"

/* --- what an isa gives, and what it costs ------------------------------- */

/* Which 8-bit floats are converted in integer arithmetic, among the products of
 * all row tiles. */
typedef enum conversions {
    MIXED,        /* those that are not the isa's own kind */
    WHOLLY_MIXED, /* all: it has no conversions */
    TILE_BY_TILE, /* none: the products are kept apart (kg/attn/mma_amd.h) */
} conversions;

/* Registers that lines take, beside those of keys and values on their way; measured. */
typedef struct line_costs {
    int32_t keys;           /* as keys are read */
    int32_t turned, values; /* as values are, 16 bits as they are multiplied, and others */
    int32_t cascade;        /* what of a group waits for the end of a segment */
    int32_t apart;          /* pairs 16 bits apart are put in order */
    int32_t bits4, bits8;   /* conversions */
    int32_t scale_halves;   /* of what scales of tokens take, halves that stay */
    int32_t ids;            /* page numbers of tokens stay */
    int32_t more_simds;     /* on parts with more SIMDs than the isa's others: gfx1250 has operands
                               of twice the words, half of them zero (kg/attn/mma_rdna4.h) */
    int32_t leant;          /* scores have both a cap and a slope, on such parts */
} line_costs;

/* What a wave has of its own. */
typedef struct isa_costs {
    int32_t held;  /* of a row tile's columns, those a lane holds scores of */
    int32_t fixed; /* registers of addresses, ids, conversions; measured */
    conversions fp8;
    int32_t whole;    /* lanes of a wave that hold the same operand */
    int32_t own_file; /* 1: accumulators have one, as large */
    line_costs lines;
} isa_costs;

typedef struct isa_row {
    kgen__attn_isa gives;
    isa_costs costs;
} isa_row;

/* clang-format off */
#define LINES_CDNA {8, 8, 40, 24, 32, 0, 0, 0, 1, 0, 0}
#define LINES_RDNA {0, 0, 0, 40, 0, 28, 8, 3, 0, 28, 16}
#define LINES_NONE {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define ATTN_CDNA1 {{16, 32, 4, 4, 1, 2, KGEN__BY_LINES, KG_ATTN_PERMUTED, 2, 2}, {1, 64, WHOLLY_MIXED, 1, 1, LINES_CDNA}}
#define ATTN_CDNA2 {{16, 32, 4, 4, 1, 2, KGEN__BY_LINES, KG_ATTN_PERMUTED, 2, 2}, {1, 64, WHOLLY_MIXED, 1, 0, LINES_CDNA}}
#define ATTN_CDNA3 {{16, 32, 4, 4, 1, 2, KGEN__BY_LINES, KG_ATTN_PERMUTED, 2, 2}, {1, 64, MIXED, 1, 0, LINES_CDNA}}
#define ATTN_CDNA4 {{16, 32, 4, 4, 1, 2, KGEN__BY_LINES, KG_ATTN_TURNED_BY_LDS, 2, 2}, {1, 64, MIXED, 1, 0, LINES_CDNA}}
#define ATTN_RDNA2 {{16, 16, 4, 8, 4, 2, KGEN__BY_WAVE, KG_ATTN_PERMUTED, 0, 0}, {1, 72, TILE_BY_TILE, 1, 0, LINES_NONE}}
#define ATTN_RDNA3 {{16, 16, 4, 8, 4, 2, KGEN__BY_LINES, KG_ATTN_TURNED_BEFORE, 4, 1}, {1, 72, TILE_BY_TILE, 2, 0, LINES_RDNA}}
#define ATTN_RDNA4 {{16, 16, 4, 8, 4, 2, KGEN__BY_LINES, KG_ATTN_TURNED_BEFORE, 4, 1}, {1, 64, TILE_BY_TILE, 1, 0, LINES_RDNA}}
#define ATTN_SM90 {{8, 16, 8, 8, 4, 1, KGEN__BY_MATRICES, KG_ATTN_PERMUTED, 0, 0}, {2, 66, MIXED, 1, 0, LINES_NONE}}
/* clang-format on */

static const isa_row isa_rows[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = ATTN_##NAME,
#include <kgen/targets.def>
};

const kgen__attn_isa *kgen__attn_isa_of(const kgen_target *target) {
    return &isa_rows[target->isa].gives;
}

/* --- how keys and values come, and who shares what ------------------------ */

/* Of a KV head: so many that waves better have rows of their own than keys. */
int kgen__attn_has_many_rows(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { FEW = 16 };
    if (!kgen_attn_phase_of(s->phase)->bounded) return 1;
    int fits = isa->by == KGEN__BY_MATRICES && s->v_dim <= 256 && !kgen__is_packed(s->layout);
    /* invariant: what decode computes of few rows, verify is to compute of many. */
    return fits && s->group * s->q_tokens > FEW && !s->invariant;
}

/* Matrices are multiplied with by four waves of 16 rows; wider lines find no room. */
kgen__attn_way kgen__attn_way_of(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    int shares = s->waves == 4 || (s->waves == 8 && s->cluster); /* keys: kg_attn_key_groups */
    int waves = kgen_attn_phase_of(s->phase)->bounded ? shares : s->waves % 4 == 0;
    int fits = isa->by == KGEN__BY_MATRICES ? waves && s->row_tiles == 2
                                            : s->head_dim <= 256 && s->v_dim <= 256;
    int can = kgen__attn_has_many_rows(s, isa) && !kgen__is_packed(s->layout) && s->v_split == 1;
    return fits && can ? isa->by : KGEN__BY_WAVE;
}

/* Of 8 bits, with a scale that all tokens share. */
static int has_plain_codes(const kgen_attn_spec *s) {
    return kgen__bits_of(s->kv) == 8 && s->descale != KGEN_DESCALE_TOKEN;
}

/* A third group of waves, which brings the rows of keys and values that two multiply, in boxes of a
 * page's, and makes numbers of codes that the hardware reads. Prefixes, codes of kept keys, and
 * scores with a cap and a slope have no registers left, nor with a cap has the division by 7, nor
 * have scales of tokens with spans, or where each score has a lift of its own (LIFTS in
 * kg/attn/tile.h), as it has where other rows must not show; with wide rows these have no LDS. */
int32_t kgen__attn_bringers_of(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { WIDE = 128, WIDEST = 256 };
    int capped = s->softcap && (s->alibi || s->group % 7 == 0), v_dim = kgen__attn_v_dim_of(s);
    int fits = !kgen_attn_phase_of(s->phase)->bounded && s->waves == 8 && s->occupancy == 1 &&
               !s->cascade && s->head_dim <= WIDEST && v_dim <= WIDEST && !capped;
    int boxes = kgen_attn_phase_of(s->phase)->dense || !kgen__is_small_page(s->page);
    int as_it_is =
        kgen__bits_of(s->kv) == 16 && !(s->kv == KGEN_DTYPE_BF16 && s->q == KGEN_DTYPE_FP16);
    int alone = s->invariant && (s->q != KGEN_DTYPE_BF16 || kgen__is_8bit(s->kv));
    int spare = s->head_dim <= WIDE && v_dim <= WIDE && !s->spans && !alone;
    int room = s->descale != KGEN_DESCALE_TOKEN || spare;
    int codes = kgen__bits_of(s->kv) <= 8 && s->kv != KGEN_DTYPE_E4M3FNUZ && !s->keep && room;
    return fits && boxes && (as_it_is || codes) && kgen__attn_way_of(s, isa) == KGEN__BY_MATRICES
               ? KG_ATTN_BRINGERS
               : 0;
}

/* Lines whose values need no byte permutes as they are read. */
static int is_turned(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return kgen__attn_way_of(s, isa) == KGEN__BY_LINES && isa->values != KG_ATTN_PERMUTED;
}

/* Elements of 16 bytes of what a wave loads operands from. */
static int32_t x_of(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return kgen__attn_way_of(s, isa) == KGEN__BY_LINES ? 8 : 128 / kgen__bits_of(s->kv);
}

static int32_t part_dims(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    int32_t tiles = kgen__is_packed(s->layout) || kgen__attn_way_of(s, isa) == KGEN__BY_MATRICES ||
                    is_turned(s, isa);
    return kg_attn_part_dims(s->v_dim, s->v_split, isa->columns, x_of(s, isa), tiles, 0);
}

static int32_t slice_dims(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return kg_attn_slice_dims(s->v_dim, s->v_split, part_dims(s, isa));
}

static int32_t acc_registers(const kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    return kg_attn_acc_registers(s->row_tiles, slice_dims(s, isa), isa->columns, target->wave_size);
}

/* Registers of Q, and what of them lies in LDS. */
static int32_t q_registers_of(const kgen_attn_spec *s, const kgen_target *target, int32_t dims) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int32_t groups = target->wave_size / isa->columns;
    int32_t x = kgen__attn_way_of(s, isa) == KGEN__BY_MATRICES ? 8 : x_of(s, isa);
    return kg_attn_q_registers(s->row_tiles, dims, groups, x);
}
static int32_t q_registers(const kgen_attn_spec *s, const kgen_target *target) {
    return q_registers_of(s, target, s->head_dim);
}
/* Each wave, instead of sharing the keys of the same rows. */
static int32_t has_own_rows(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return !kgen_attn_phase_of(s->phase)->bounded || kgen__attn_way_of(s, isa) == KGEN__BY_MATRICES;
}
/* 8-bit codes of several row tiles: whoever multiplies by them has no registers left for the next,
 * and each wave converts what it has. Scales of tokens come one by one, and a prefix has no pages
 * of its own. Nor have four tiles of wide values any for a tree's masks. */
static int suits_queue(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { ROWS_OF_TREES = 24, NARROW = 64 };
    int masks = kgen_attn_phase_of(s->phase)->tree && kgen__attn_v_dim_of(s) > NARROW;
    if (masks && s->group * s->q_tokens > ROWS_OF_TREES) return 0;
    int plain = kgen_attn_phase_of(s->phase)->bounded && !kgen__is_packed(s->layout) &&
                !s->cascade && !s->invariant;
    return isa->by == KGEN__BY_MATRICES && has_plain_codes(s) && plain;
}
/* Blocks of keys and values that wait in LDS for each wave (kg/attn/queue_nvidia.h): one is
 * multiplied, two are on their way. */
int32_t kgen__attn_queue_of(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { BLOCKS = 3 };
    int fits = s->row_tiles > 1 && s->v_split == 1 && kgen__attn_way_of(s, isa) == KGEN__BY_WAVE;
    return fits && suits_queue(s, isa) ? BLOCKS : 0;
}
static int32_t queue_bytes(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return kgen__attn_queue_of(s, isa) * s->waves *
           kg_attn_queue_slot(isa->keys, s->head_dim, s->v_dim, kgen__bits_of(s->kv));
}
/* Of a KV head with so many rows at least, where registers hold the sums of all. */
static int32_t all_tiles(const kgen_attn_spec *s, const kgen__attn_isa *isa, int32_t least) {
    enum { MOST = 32, WIDE = 128 };
    int32_t rows = s->group * s->q_tokens;
    int narrow = s->head_dim <= WIDE && kgen__attn_v_dim_of(s) <= WIDE;
    return narrow && rows >= least && rows <= MOST ? ceil_div(rows, isa->columns) : 0;
}
/* Row tiles of a KV head whose rows each wave has all of, with keys of its own from there: as
 * matrices half of them would be idle, and a set wait until it is converted. 0: not so. */
int32_t kgen__attn_queued_tiles(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { LEAST = 9 };
    return suits_queue(s, isa) ? all_tiles(s, isa, LEAST) : 0;
}
/* The same, of keys as they come from memory: codes with a scale a token, of which as matrices all
 * waves wait for all conversions, in registers that nothing else takes: tried on some hundred
 * specs. */
int32_t kgen__attn_own_tiles(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { LEAST = 17 };
    const kgen_attn_phase *phase = kgen_attn_phase_of(s->phase);
    int codes = kgen__bits_of(s->kv) <= 8 && s->descale == KGEN_DESCALE_TOKEN;
    int plain = phase->bounded && !phase->tree && !s->cascade && !s->invariant && !s->spans;
    int spare = !s->alibi && !kgen__is_small_page(s->page) && s->q != KGEN_DTYPE_F32;
    int crowded = s->phase == KGEN_PHASE_DECODE || s->kv == KGEN_DTYPE_E4M3FNUZ; /* floats */
    spare &= kgen__attn_is_integer(s->kv) || !crowded;
    int fits = isa->by == KGEN__BY_MATRICES && codes && plain && spare;
    return fits ? all_tiles(s, isa, LEAST) : 0;
}
static int32_t key_groups_of(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return kg_attn_key_groups(s->waves, kgen__attn_way_of(s, isa) == KGEN__BY_MATRICES,
                              kgen_attn_phase_of(s->phase)->bounded);
}

/* Codes with one scale a head, in whole pages, and nothing that takes a lane more registers. */
static int is_plain(const kgen_attn_spec *s) {
    enum { LEAST_PAGE = 16 };
    int floats = s->q == KGEN_DTYPE_F32 || s->out == KGEN_DTYPE_F32;
    int marked = s->window || s->chunk || s->softcap || s->alibi || s->gate;
    int whole = s->page >= LEAST_PAGE && !kgen__is_packed(s->layout);
    return kgen__bits_of(s->kv) == 8 && s->descale == KGEN_DESCALE_HEAD && whole && !floats &&
           !marked;
}
/* Sixteen waves of a unit over codes, and twelve of two row tiles, have registers for queries only
 * where nothing else takes them: tried on some hundred specs. */
int kgen__attn_yields_q(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    enum { CROWD = 16, LARGE = 8 };
    int32_t waves = s->waves * s->v_split;
    if (kgen__attn_queue_of(s, isa)) return s->row_tiles == 2 && waves * s->occupancy > LARGE;
    int reads_itself = isa->by == KGEN__BY_MATRICES && kgen__attn_way_of(s, isa) == KGEN__BY_WAVE &&
                       s->row_tiles == 1;
    int crowded = kgen__bits_of(s->kv) < 16 && waves * s->occupancy >= CROWD;
    return reads_itself && crowded && !(is_plain(s) && waves == LARGE);
}

/* Of a row block. */
int32_t kgen__attn_rows_of(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return kg_attn_block_rows(kg_attn_rows(s->row_tiles, isa->columns), s->waves,
                              has_own_rows(s, isa), key_groups_of(s, isa));
}
static int32_t ahead_of(const kgen_attn_spec *s, const kgen_target *target) {
    return kg_attn_ahead(acc_registers(s, target), s->row_tiles, target->wave_size,
                         target->isa == KGEN_ISA_SM90);
}
static int32_t q_in_lds(const kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int32_t sm90 = target->isa == KGEN_ISA_SM90;
    kgen__attn_way way = kgen__attn_way_of(s, isa);
    int32_t keeps = kg_attn_q_keeps(acc_registers(s, target), ahead_of(s, target),
                                    target->wave_size, sm90, way == KGEN__BY_MATRICES,
                                    kgen__attn_bringers_of(s, isa), kgen__attn_yields_q(s, isa));
    return way != KGEN__BY_LINES && q_registers(s, target) > keeps;
}

/* q: bytes of queries in LDS. */
static int32_t q_lds_bytes(const kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int32_t copies = has_own_rows(s, isa) ? s->waves : 1;
    int32_t matrices = kgen__attn_way_of(s, isa) == KGEN__BY_MATRICES;
    int32_t dims = kg_attn_q_lds_dims(s->head_dim, matrices);
    if (!q_in_lds(s, target)) return 0;
    int32_t scales = kgen__attn_queue_of(s, isa) ? 4 * kgen__attn_rows_of(s, isa) : 0;
    return q_registers_of(s, target, dims) * target->wave_size * 4 * copies + scales;
}
/* Of those who go by way of LDS. */
static kg_attn_sets sets_of(const kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    if (kgen__attn_way_of(s, isa) == KGEN__BY_LINES)
        return kg_attn_lines_of(target->lds_bytes / s->occupancy, isa->keys, s->waves,
                                target->wave_size, s->head_dim, s->v_dim, kgen__bits_of(s->kv),
                                isa->values, s->descale == KGEN_DESCALE_TOKEN);
    int32_t most = kg_attn_most_blocks(acc_registers(s, target), s->descale == KGEN_DESCALE_TOKEN,
                                       kgen__attn_bringers_of(s, isa));
    int32_t groups = key_groups_of(s, isa);
    return kg_attn_matrices_of(most, isa->keys, s->head_dim, s->v_dim, kgen__bits_of(s->kv),
                               s->occupancy * groups, q_lds_bytes(s, target) / groups,
                               kgen__attn_bringers_of(s, isa), s->descale == KGEN_DESCALE_TOKEN);
}
/* Of `dim` dims on their way to lines, as many as a set has of each token. */
static int32_t on_their_way(const kgen_attn_spec *s, const kgen_target *target, int32_t dim) {
    return kg_attn_on_their_way(sets_of(s, target).blocks, kgen__attn_isa_of(target)->keys,
                                s->waves, target->wave_size, dim, kgen__bits_of(s->kv));
}

int32_t kgen__attn_mixes_conversions(const kgen_attn_spec *s, const kgen_target *target) {
    conversions fp8 = isa_rows[target->isa].costs.fp8;
    if (!kgen__is_8bit(s->kv) || kgen__attn_is_integer(s->kv) || fp8 == TILE_BY_TILE) return 0;
    return fp8 == WHOLLY_MIXED ||
           (kgen__native_fp8(s->kv, target) == KGEN_DTYPE_E4M3FNUZ) != target->fp8_fnuz;
}

/* SCALED_VALUES and ROW_SUMS of kg/attn/lines_of_tokens.h, of few dims: no row tile holds the
 * values' scales, or adds up. */
static int scales_values(const kgen_attn_spec *s, const kgen__attn_isa *isa) {
    return isa->values == KG_ATTN_TURNED_BY_LDS && s->descale == KGEN_DESCALE_TOKEN &&
           s->q == KGEN_DTYPE_BF16 && !s->lse;
}

/* Few dims of 8 bits, in steps that hold nothing: as if they had 16. */
static int converts_lightly(const kgen_attn_spec *s, const kgen_target *target) {
    int narrow = s->head_dim + s->v_dim <= 128, scales = s->descale == KGEN_DESCALE_TOKEN;
    int edges = s->right || (s->causal == KGEN_CAUSAL_SEQ && (s->window || s->chunk));
    int light = scales ? scales_values(s, kgen__attn_isa_of(target)) : kgen__bits_of(s->kv) == 8;
    return light && narrow && !s->cascade && !s->keep && !edges &&
           !kgen__attn_mixes_conversions(s, target);
}

enum { CONVERSIONS = 28 }; /* of a row tile, where they are among its products; measured */

/* What a lane has in the key loop beside its accumulators. */
typedef struct loop_share {
    int32_t k, v; /* keys and values in flight */
    int32_t q;
    int32_t scales, ids; /* of tokens; page numbers, where each has one */
    int32_t fixed;
    int32_t tile, mixed; /* of a row tile: scores; conversions */
} loop_share;

/* Addresses, conversions, and what of a group and its sequences waits for the end of a segment,
 * where keys and values come to each wave by itself; measured. */
static int32_t fixed_by_wave(const kgen_attn_spec *s, const kgen_target *target) {
    const kgen_attn_phase *phase = kgen_attn_phase_of(s->phase);
    int32_t fixed = isa_rows[target->isa].costs.fixed;
    int wide = s->head_dim >= 256 && kgen__bits_of(s->kv) == 16 && target->isa == KGEN_ISA_RDNA3;
    if (wide && s->cascade && !phase->bounded) fixed += 40;
    if (kgen__attn_queue_of(s, kgen__attn_isa_of(target))) fixed -= 8;
    if (target->wave_size != 64) return fixed;
    if (s->keep && phase->tree && s->head_dim > 128) fixed += 40;
    /* A group's rows have their sequences' scales, each its own. */
    int rows_differ =
        s->descale == KGEN_DESCALE_HEAD || kgen__is_8bit(s->q) || s->q == KGEN_DTYPE_F32;
    if (s->cascade) return fixed + (!phase->bounded ? 28 : rows_differ ? 24 : 0) + 4 * s->softcap;
    return fixed + (s->q == KGEN_DTYPE_F32 ? 8 : 0); /* as they are rounded */
}

/* As each wave loads what it multiplies. */
static loop_share share_by_wave(const kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int32_t wave = target->wave_size, ahead = ahead_of(s, target);
    int32_t block_bits = isa->keys * kgen__bits_of(s->kv), tile = isa->columns * isa->keys / wave;
    int queued = kgen__attn_queue_of(s, isa) != 0; /* in LDS */
    return (loop_share){
        .k = queued ? 0 : smaller(ahead, s->head_dim * block_bits / 32 / wave),
        .v = queued ? 0 : smaller(ahead, slice_dims(s, isa) * block_bits / 32 / wave),
        .q = q_in_lds(s, target) ? 16 : q_registers(s, target), /* 16: being read */
        .scales = s->descale == KGEN_DESCALE_TOKEN ? 2 * tile : 0,
        .ids = kgen__is_small_page(s->page) ? 16 : 0,
        .fixed = fixed_by_wave(s, target),
        .tile = tile,
        .mixed = kgen__attn_mixes_conversions(s, target) ? CONVERSIONS : 0,
    };
}

/* By way of LDS, as numbers. */
static void share_by_matrices(loop_share *h, const kgen_attn_spec *s, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    h->k = h->v = h->mixed = 0;
    h->tile = sets_of(s, target).blocks * isa->keys * isa->columns / target->wave_size;
    h->fixed = 40;
}

/* On their way to LDS, from it, and turned by permutes, or converted. */
static void share_by_lines(loop_share *h, const kgen_attn_spec *s, const kgen_target *target) {
    const isa_costs *costs = &isa_rows[target->isa].costs;
    const line_costs *c = &costs->lines;
    int32_t bits = kgen__bits_of(s->kv), whole = costs->whole * h->q;
    int plain =
        is_turned(s, kgen__attn_isa_of(target)) && (bits == 16 || converts_lightly(s, target));
    h->k = on_their_way(s, target, s->head_dim) + c->keys;
    h->v = on_their_way(s, target, s->v_dim) + (plain ? c->turned : c->values);
    int fits = whole <= kg_attn_whole_words(bits, s->cascade, h->scales);
    h->q = fits || costs->whole == 1 ? whole : h->q + 8; /* made whole where they are multiplied */
    int leans = s->softcap && s->alibi;
    h->fixed = costs->fixed + c->cascade * s->cascade;
    h->fixed += target->simds > 2 ? c->more_simds + c->leant * leans : 0;
    h->fixed += bits == 4 ? c->bits4 : bits == 8 ? c->bits8 : 0;
    int apart = bits == 4 && s->descale != KGEN_DESCALE_TOKEN;
    if (apart && s->head_dim + s->v_dim > 128) h->fixed += c->apart;
    /* Where a row's slope begins, and how it goes on. */
    if (s->alibi && !leans) h->fixed += (bits == 4 ? 2 : 1) * s->row_tiles;
    h->fixed += h->scales * c->scale_halves / 2;
    h->ids *= kgen_attn_phase_of(s->phase)->dense && !s->keep ? 0 : c->ids;
    h->scales = 0; /* read from LDS, where there were scores */
}

/* Registers of a lane in the key loop: accumulators, queries, keys and values
 * in flight, and for each row tile its scores, probabilities and running sums. */
static int32_t registers_needed(const kgen_attn_spec *s, const kgen_target *target) {
    kgen__attn_way way = kgen__attn_way_of(s, kgen__attn_isa_of(target));
    loop_share h = share_by_wave(s, target);
    if (way == KGEN__BY_MATRICES) share_by_matrices(&h, s, target);
    if (way == KGEN__BY_LINES) share_by_lines(&h, s, target);
    int32_t facts = 4 + !!s->alibi + s->spans; /* of a column: maximum, sum, scale, position */
    int32_t held = facts * isa_rows[target->isa].costs.held;
    return acc_registers(s, target) + h.k + h.v + h.q + h.scales + h.ids + h.fixed +
           s->row_tiles * (h.tile + h.tile / 2 + held + h.mixed);
}

/* The second 256 registers of CDNA hold accumulators only, which pass through
 * the first on their way: a quarter of them is counted on. */
static int32_t registers_allowed(const kgen_attn_spec *s, const kgen_target *target) {
    int32_t all = kgen_target_lane_registers(target, s->waves * s->v_split * s->occupancy);
    int32_t plain = smaller(256, all);
    return plain + (all - plain) / 4;
}

/* q: bytes of queries that lie there. */
static int32_t lds_needed(const kgen_attn_spec *s, const kgen_target *target, int32_t q) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int32_t rows = kg_attn_rows(s->row_tiles, isa->columns), part = part_dims(s, isa) / 16;
    int32_t sm90 = target->isa == KGEN_ISA_SM90;
    kg_attn_lds lds = kg_attn_lds_of(
        q, s->waves, s->v_split, rows, kgen__attn_rows_of(s, isa), slice_dims(s, isa) / 16, part,
        kg_attn_round_columns(sm90, rows), kg_attn_round_most(sm90, kgen__attn_queue_of(s, isa)));
    int32_t bringers = kgen__attn_bringers_of(s, isa), waves = s->waves * s->v_split, peers = 0;
    int32_t groups = key_groups_of(s, isa);
    int32_t park = kg_attn_parks(waves, bringers) * KG_ATTN_PARK_BYTES;
    if (bringers) {
        lds = kg_attn_lds_of_own_rows(q, slice_dims(s, isa) / 16);
        park += KG_ATTN_GATE_BYTES;
    }
    if (s->cluster) {
        peers = kg_attn_inbox_of(kgen__attn_rows_of(s, isa), s->v_dim, s->cluster, groups).bytes;
        park += kg_attn_turn_bytes(waves);
    }
    kgen__attn_way way = kgen__attn_way_of(s, isa);
    if (way == KGEN__BY_WAVE)
        return larger(lds.bytes, kg_attn_queue_at(lds.round) + queue_bytes(s, isa)) + peers +
               (s->cluster || kgen__attn_queue_of(s, isa) ? park : 0);
    if (way == KGEN__BY_LINES) return larger(lds.bytes, lds.round + sets_of(s, target).bytes);
    int32_t stage = ceil_div(lds.round, KG_ATTN_SWIZZLE) * KG_ATTN_SWIZZLE;
    int32_t end = larger(lds.bytes, stage + groups * sets_of(s, target).bytes);
    if (kg_attn_inbox_apart(end + park, peers)) return end + peers + park;
    return larger(end, stage + peers) + park;
}

int32_t kgen__attn_lds_bytes(const kgen_attn_spec *s, const kgen_target *target) {
    return lds_needed(s, target, q_lds_bytes(s, target));
}

/* Registers and KiB of LDS beyond what there is; 0: fits. */
int32_t kgen__attn_excess(const kgen_attn_spec *s, const kgen_target *target) {
    int32_t sm90 = target->isa == KGEN_ISA_SM90;
    int32_t shared = sm90 ? 1 : s->occupancy; /* there 48 KiB are each workgroup's */
    int32_t q = q_lds_bytes(s, target);
    int32_t lds = shared * lds_needed(s, target, q) - target->lds_bytes;
    if (kgen__attn_way_of(s, kgen__attn_isa_of(target)) == KGEN__BY_MATRICES ||
        kgen__attn_queue_of(s, kgen__attn_isa_of(target)))
        lds = s->occupancy * (lds_needed(s, target, q) + target->group_lds_bytes) -
              target->unit_lds_bytes;
    int32_t registers = registers_needed(s, target) - registers_allowed(s, target);
    return larger(0, ceil_div(lds, 1024)) + larger(0, registers);
}

/* Beside accumulators that have registers of their own. */
int32_t kgen__attn_least_registers(const kgen_attn_spec *s, const kgen_target *target) {
    int32_t mixed = kgen__attn_mixes_conversions(s, target) ? CONVERSIONS : 0;
    int32_t acc = isa_rows[target->isa].costs.own_file ? acc_registers(s, target) : 0;
    return registers_needed(s, target) - acc - s->row_tiles * mixed;
}

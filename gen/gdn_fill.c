/* Open tuning keys of gdn, filled from the target: how wide a head is spread, of what divides it
 * and finds registers. */
#include "gdn.h"
#include "gdn_keys.h"
#include "gdn_needs.h"
#include "templates/kg/core/shape.h"

/* How a head of 128 x 128 is cut, and the lanes that a compute unit is to hold
 * at once. Where a workgroup has more than its lanes hold, it goes through the
 * head in turns and loads one turn ahead. Columns: f32, 16-bit state. */
typedef struct tune_row {
    int32_t elements[2], waves[2], v_blocks[2], lanes_held[2];
} tune_row;

/* Heads that are normed stay whole. Many sequences: bytes in flight and short
 * turns count. Few: the time of one head counts, so it is spread wide. The rows
 * of sm_90 are measured (docs/performance.md), the others follow from registers
 * and bytes in flight. */
/* clang-format off */
/* [few][norm] */
#define GDN_CDNA                                                                           \
    {{{{32, 32}, {4, 4}, {1, 1}, {1024, 1024}}, {{32, 32}, {4, 4}, {1, 1}, {768, 1024}}},  \
     {{{8, 8}, {4, 4}, {8, 8}, {1024, 1024}}, {{32, 32}, {8, 8}, {1, 1}, {1024, 1024}}}}
#define GDN_RDNA                                                                           \
    {{{{32, 32}, {4, 4}, {1, 1}, {512, 512}}, {{32, 32}, {4, 4}, {1, 1}, {512, 512}}},     \
     {{{16, 16}, {4, 4}, {8, 8}, {512, 512}}, {{32, 32}, {16, 16}, {1, 1}, {512, 512}}}}
#define GDN_CDNA1 GDN_CDNA
#define GDN_CDNA2 GDN_CDNA
#define GDN_CDNA3 GDN_CDNA
#define GDN_CDNA4 GDN_CDNA
#define GDN_RDNA2 GDN_RDNA
#define GDN_RDNA3 GDN_RDNA
#define GDN_RDNA4 GDN_RDNA
#define GDN_SM90                                                                           \
    {{{{16, 32}, {4, 4}, {4, 1}, {768, 512}}, {{32, 32}, {4, 4}, {1, 1}, {512, 512}}},     \
     {{{16, 32}, {4, 4}, {8, 2}, {1024, 512}}, {{16, 32}, {16, 8}, {1, 1}, {512, 512}}}}

static const tune_row tune_rows[KGEN_ISA_COUNT][2][2] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = GDN_##NAME,
#include <kgen/targets.def>
};
/* clang-format on */

/* Lanes of a contiguous row. vk: 16 where they have 16 bytes each. kv: so many
 * that a lane's share of a wave's values is not above what it is to hold. */
static int32_t choose_lanes(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t vec = kgen__gdn_vec_of(s), lanes = 8;
    if (s->state_layout == KGEN_STATE_VK) {
        for (lanes = 16; s->k_dim / vec % lanes;) lanes /= 2;
        return lanes;
    }
    int32_t most = target->max_vgprs <= 256 || s->tokens > KGEN__GDN_FEW_TOKENS ? 32 : 64;
    while (lanes > 1 &&
           (vec * lanes * s->k_dim / target->wave_size > most || s->v_dim % (vec * lanes)))
        lanes /= 2;
    return lanes;
}

/* The rows of sm_90 are measured, and its registers fewer than counted. */
static int is_measured(const kgen_gdn_spec *s, const kgen_target *target) {
    return target->isa == KGEN_ISA_SM90 && s->tokens == 1 && !s->gate && s->k_dim == 128 &&
           s->v_dim == 128 && s->state_layout == KGEN_STATE_VK && s->save == KGEN_SAVE_FINAL &&
           s->index != KGEN_INDEX_BLOCKS && s->index != KGEN_INDEX_SPEC &&
           s->conv_layout == KGEN_CONV_SD && kgen_dtype_size((kgen_dtype)s->out) == 2;
}

/* As many workgroups as are wanted and have the registers. */
static int32_t choose_occupancy(const kgen_gdn_spec *s, const kgen_target *target,
                                int32_t lanes_held) {
    int32_t wanted = lanes_held / (s->waves * target->wave_size);
    int32_t waves = target->vgpr_file / kgen__gdn_registers(s, target) * target->simds;
    if (is_measured(s, target)) return larger(1, smaller(32, wanted));
    return larger(1, smaller(32, smaller(waves / s->waves, wanted)));
}

/* What is wanted of a head that powers of two cut. */
static void want_cut(kgen_gdn_spec *s, const kgen_target *target, const tune_row *row) {
    int narrow = s->state != KGEN_DTYPE_F32;
    int32_t blocks = s->v_blocks ? s->v_blocks : 1;
    int32_t whole = s->v_dim / blocks * s->k_dim / target->wave_size; /* of a lane, one wave */
    if (!s->elements)
        s->elements =
            larger(kgen__gdn_least_elements(s, target), smaller(whole, row->elements[narrow]));
    if (!s->waves) s->waves = larger(1, smaller(row->waves[narrow], whole / s->elements));
    if (!s->v_blocks) {
        int32_t most = larger(row->v_blocks[narrow], kgen__gdn_least_blocks(s, target));
        for (s->v_blocks = most; s->v_blocks > larger(1, whole / s->elements / s->waves);)
            s->v_blocks /= 2;
    }
}

/* It divides the head and finds at most `most` registers (0: any). */
static int divides(const kgen_gdn_spec *cut, const kgen_target *target, int32_t most) {
    if (kgen__gdn_tile_fits(cut, target, NULL) != KGEN_OK) return 0;
    if (kgen__gdn_registers_fit(cut, target, NULL) != KGEN_OK) return 0;
    int32_t each = ceil_div(cut->waves, target->simds); /* waves of a SIMD */
    int32_t lack = 256 - smaller(256, target->vgpr_file / each);
    return !most || kgen__gdn_registers(cut, target) + lack <= most;
}

/* The first of fewer workgroups, waves and elements than `want` that cuts the
 * head; what `s` has stays. */
static int find_cut(kgen_gdn_spec *s, const kgen_gdn_spec *want, const kgen_target *target,
                    int32_t most) {
    int32_t least_waves = larger(1, s->waves), least_vb = larger(1, s->v_blocks);
    kgen_gdn_spec cut = *want;
    for (; cut.v_blocks >= least_vb; cut.v_blocks /= 2)
        for (cut.waves = want->waves; cut.waves >= least_waves; cut.waves--)
            for (size_t i = KGEN__GDN_ELEMENT_COUNTS; i-- > 0;) {
                cut.elements = kgen__gdn_element_counts[i];
                if (cut.elements > want->elements || cut.elements < s->elements) continue;
                if (!divides(&cut, target, most)) continue;
                *s = cut;
                return 1;
            }
    return 0;
}

/* The head is cut among lanes first, then waves, then workgroups, then turns.
 * Heads of 96 and 192 may need fewer of each than is wanted; many tokens, and
 * decays of each of many dims, more waves, which share what they load. */
static void cut_head(kgen_gdn_spec *s, const kgen_target *target, const tune_row *row) {
    kgen_gdn_spec want = *s, wide;
    want_cut(&want, target, row);
    int32_t most_waves = s->waves ? s->waves : 16;
    int crowded = s->tokens > KGEN__GDN_FEW_TOKENS || (s->gate && s->k_dim > 128);
    for (int32_t most = 256; crowded && most <= 384; most += 32)
        for (wide = want; wide.waves <= most_waves; wide.waves *= 2)
            if (find_cut(s, &wide, target, most)) return;
    if (!find_cut(s, &want, target, 0)) *s = want;
}

static void fill_step(kgen_gdn_spec *s, const kgen_target *target) {
    int narrow = s->state != KGEN_DTYPE_F32, norm = (kgen__gdn_parts(s) & KGEN__GDN_NORM) != 0;
    const tune_row *row = &tune_rows[target->isa][s->batch == KGEN__GDN_BATCH_FEW][norm];
    if (!s->batch) s->batch = KGEN__GDN_BATCH_MANY;
    if (!s->lanes) s->lanes = choose_lanes(s, target);
    cut_head(s, target, row);
    if (!s->occupancy) s->occupancy = choose_occupancy(s, target, row->lanes_held[narrow]);
}

/* Without a recurrence. A tree's tokens are staged. */
static void fill_conv(kgen_gdn_spec *s, const kgen_target *target) {
    if (!s->waves) {
        s->waves = 256 / target->wave_size;
        while (s->waves > 1 && kgen__gdn_lds_fits(s, target, NULL) != KGEN_OK) s->waves /= 2;
    }
    if (!s->occupancy) s->occupancy = s->tokens > 1 ? 2 : 4;
    s->v_blocks = s->lanes = s->elements = 0;
}

void kgen__gdn_fill_keys(kgen_gdn_spec *s, const kgen_target *target) {
    if (kgen__gdn_parts(s) & KGEN__GDN_RECURRENCE)
        fill_step(s, target);
    else
        fill_conv(s, target);
}

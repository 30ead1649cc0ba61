/* What a kernel of gdn needs of a target: which parts it has, how lanes, waves and workgroups share
 * a head, and the LDS and registers that follow. */
#include "gdn_needs.h"
#include "family.h"
#include "gdn.h"
#include "templates/kg/gdn/gdn_shape.h"

enum { CONV = KGEN__GDN_CONV, STEP = KGEN__GDN_RECURRENCE, NORM = KGEN__GDN_NORM };

static const int32_t level_parts[] = {
    [KGEN_FUSE_A] = STEP,        [KGEN_FUSE_B] = STEP | NORM,        [KGEN_FUSE_C] = CONV,
    [KGEN_FUSE_D] = CONV | STEP, [KGEN_FUSE_E] = CONV | STEP | NORM,
};

int32_t kgen__gdn_parts(const kgen_gdn_spec *spec) { return level_parts[spec->fuse]; }

/* --- how a head is cut ---------------------------------------------------- */

const int32_t kgen__gdn_element_counts[] = {8, 12, 16, 24, 32, 48, 64, 96, 128};

/* The spec itself says how. */
static int is_cut(const kgen_gdn_spec *s) {
    return (kgen__gdn_parts(s) & STEP) && s->v_blocks && s->waves && s->lanes && s->elements;
}

/* Of a head's state, one side is contiguous (K in vk, V in kv) and `lanes` lanes share it, 16 bytes
 * each. In vk the waves share the rows (V), in kv the columns (V): the sum over K stays inside a
 * wave in both. A lane has one row then (vk), or 16 bytes of each (kv). */
int32_t kgen__gdn_least_elements(const kgen_gdn_spec *s, const kgen_target *target) {
    return s->state_layout == KGEN_STATE_VK
               ? s->k_dim / s->lanes
               : kgen__gdn_vec_of(s) * s->lanes * s->k_dim / target->wave_size;
}

kgen_status kgen__gdn_tile_fits(const kgen_gdn_spec *s, const kgen_target *target,
                                kgen_error *err) {
    if (!is_cut(s)) return KGEN_OK;
    int32_t vec = kgen__gdn_vec_of(s), least = kgen__gdn_least_elements(s, target);
    int32_t values = s->v_dim / s->v_blocks; /* of a workgroup */
    int32_t at_once = s->waves * target->wave_size * s->elements / s->k_dim;
    REQUIRE(s->state_layout != KGEN_STATE_VK || s->k_dim % (s->lanes * vec) == 0,
            "lanes=%d: 16 bytes each %s a row of dk=%d", s->lanes,
            s->lanes * vec > s->k_dim ? "exceed" : "do not divide", s->k_dim);
    REQUIRE(s->state_layout == KGEN_STATE_VK || s->k_dim * s->lanes % target->wave_size == 0,
            "lanes=%d: %d rows at once do not divide dk=%d", s->lanes, target->wave_size / s->lanes,
            s->k_dim);
    REQUIRE(least <= s->elements && s->elements % least == 0,
            "el=%d: lanes=%d gives a lane %d elements at least", s->elements, s->lanes, least);
    REQUIRE(at_once <= values && values % at_once == 0,
            "waves=%d: with el=%d they take %d values at once, the workgroup has %d", s->waves,
            s->elements, at_once, values);
    int32_t turns = values / at_once;
    REQUIRE(turns == 1 || turns % 2 == 0,
            "waves=%d: with el=%d they take %d turns, which come in pairs", s->waves, s->elements,
            turns);
    return KGEN_OK;
}

/* --- LDS ------------------------------------------------------------------ */

static int32_t lds_bytes(const kgen_gdn_spec *s, const kgen_target *target, int32_t v_blocks) {
    int32_t parts = kgen__gdn_parts(s), tree = s->tree ? s->tokens : 0;
    int32_t decays = s->gate == KGEN_GATE_GDN ? 1 : s->k_dim;
    int32_t floats = parts & STEP
                         ? kg_gdn_step_floats(s->tokens, s->k_dim, s->v_dim, v_blocks,
                                              (parts & NORM) != 0, decays, s->ring)
                         : kg_gdn_unpack_floats(tree, larger(1, s->waves) * target->wave_size);
    return floats * (int32_t)sizeof(float);
}

int32_t kgen__gdn_least_blocks(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t blocks = 1, most = kgen__gdn_parts(s) & NORM ? 1 : KGEN__GDN_MOST_BLOCKS;
    while (blocks < most && lds_bytes(s, target, blocks) > target->lds_bytes) blocks *= 2;
    return blocks;
}

kgen_status kgen__gdn_lds_fits(const kgen_gdn_spec *s, const kgen_target *target, kgen_error *err) {
    int32_t blocks = s->v_blocks ? s->v_blocks : kgen__gdn_least_blocks(s, target);
    int32_t bytes = lds_bytes(s, target, blocks);
    REQUIRE(bytes <= target->lds_bytes, "t=%d: a workgroup stages %d bytes in LDS, %s has %d",
            s->tokens, bytes, target->name, target->lds_bytes);
    return KGEN_OK;
}

/* --- registers ------------------------------------------------------------ */

/* What a lane holds of a head. */
typedef struct lane_share {
    int32_t k, v;  /* of a token's k, and sums */
    int32_t words; /* of the state as it is loaded */
    int32_t next;  /* of them, the next turn's */
    int32_t turns; /* in which a token's inputs are loaded */
    int32_t taps;  /* registers of the convolution, each turn */
} lane_share;

static lane_share share_of(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t threads = s->waves * target->wave_size, least = kgen__gdn_least_elements(s, target);
    lane_share h = {.k = s->state_layout == KGEN_STATE_VK ? least : least / kgen__gdn_vec_of(s)};
    h.v = s->elements / h.k;
    h.words = s->elements * kgen_dtype_size((kgen_dtype)s->state) / 4;
    int in_turns = s->v_dim * s->k_dim / s->v_blocks > threads * s->elements;
    h.next = in_turns ? h.words : 0;
    h.turns = ceil_div(2 * s->k_dim + s->v_dim / s->v_blocks, KG_GDN_PIECE * threads);
    h.taps = kgen__gdn_parts(s) & CONV ? 2 * s->conv_width : 0;
    return h;
}

/* The state, as loaded and as floats, and its next turn; a token's k, q and decays; sums;
 * inputs. */
int32_t kgen__gdn_registers(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t several = s->tokens > 1 || s->ring;
    lane_share h = share_of(s, target);
    int32_t loaded = (s->state != KGEN_DTYPE_F32 || several) * h.words + h.next;
    enum { FIXED = 48, ROWS = 24 }; /* addresses, gates, conversions; measured */
    /* Rows of kv lie too far apart for one address. */
    int32_t addresses = s->state_layout == KGEN_STATE_KV ? (h.words + h.next) / 2 : 0;
    return s->elements + loaded + addresses + ((s->gate ? 5 : 2) + (s->ring ? 2 : 0)) * h.k +
           3 * h.v + h.turns * 2 * (s->tokens + h.taps) + (s->tree ? h.words : 0) + FIXED +
           (s->tokens > KGEN__GDN_FEW_TOKENS ? ROWS : 0);
}

/* What a lane holds at once in whatever order: less than compilers were ever seen to find
 * (docs/verification.md). */
static int32_t least_registers(const kgen_gdn_spec *s, const kgen_target *target) {
    enum { ADDRESSES = 8 };
    lane_share h = share_of(s, target);
    return s->elements + h.next + (s->gate ? 2 : 1) * h.k + h.v + 2 * h.turns * h.taps + ADDRESSES;
}

/* What comes nearer to the bound the compiler decides. */
kgen_status kgen__gdn_registers_fit(const kgen_gdn_spec *s, const kgen_target *target,
                                    kgen_error *err) {
    if (!is_cut(s)) return KGEN_OK;
    int32_t occupancy = larger(s->occupancy, 1), needed = least_registers(s, target);
    int32_t bytes = lds_bytes(s, target, s->v_blocks);
    int32_t room = kgen__lane_room(target, s->waves, occupancy, bytes);
    if (target->isa == KGEN_ISA_CDNA1) room *= 2; /* accumulators take what finds no register */
    REQUIRE(needed <= room,
            "el=%d,waves=%d,occ=%d: a lane needs %d registers at least; %s has %d for each",
            s->elements, s->waves, occupancy, needed, target->name, room);
    return KGEN_OK;
}

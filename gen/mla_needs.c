/* What a kernel of mla needs of a target: how its rows come, what waves it has, and the registers
 * and LDS that follow. */
#include "mla_needs.h"
#include "family.h"
#include "templates/kg/attn/attn_shape.h"
#include "templates/kg/mla/mla_shape.h"

/* clang-format off */
#define MLA_CDNA1 {16, 32, 4, 150, 24, 0, 2, 0, 0, 0}
#define MLA_CDNA2 {16, 32, 8, 136, 24, 24, 2, 0, 0, 0}
#define MLA_CDNA3 {16, 32, 8, 136, 24, 24, 2, 0, 0, 1}
#define MLA_CDNA4 {16, 32, 8, 136, 24, 24, 2, 0, 56, 1}
#define MLA_RDNA2 {16, 16, 8, 150, 0, 0, 8, 0, 0, 0}
#define MLA_RDNA3 {16, 16, 8, 136, 0, 7, 8, 0, 0, 0}
#define MLA_RDNA4 {16, 16, 8, 120, 0, 0, 8, 0, 0, 0}
#define MLA_SM90  {8,  16, 8, 60,  0, 8, 8, 1, 0, 1}
/* clang-format on */

static const kgen__mla_isa isa_rows[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = MLA_##NAME,
#include <kgen/targets.def>
};

const kgen__mla_isa *kgen__mla_isa_of(const kgen_target *target) { return &isa_rows[target->isa]; }

/* --- what kind of kernel it is -------------------------------------------- */

/* fp16 of bf16 is made where either meets the other. */
static int makes_fp16(const kgen_mla_spec *s) {
    return s->kv == KGEN_DTYPE_BF16 && s->q == KGEN_DTYPE_FP16;
}

/* bf16 queries become fp16, row by row. */
static int scales_queries(const kgen_mla_spec *s) {
    return s->kv == KGEN_DTYPE_FP16 && s->q == KGEN_DTYPE_BF16;
}

int kgen__mla_has_codes(const kgen_mla_spec *s) { return kgen__is_8bit(s->kv) || s->rows; }

/* Numbers of the products are made of what is cached. */
static int makes_numbers(const kgen_mla_spec *s) { return kgen__mla_has_codes(s) || makes_fp16(s); }

/* Two groups of waves take sets in turn (kg/mla/mla_pairs_nvidia.h): 64 query rows, and numbers as
 * they are cached, in pages, or of codes. Sums of 512 columns leave registers for one of what tells
 * rows apart and what tells where keys begin; found by the compiler. */
int kgen__mla_is_paired(const kgen_mla_spec *s, const kgen_target *target) {
    int besides = (s->phase != KGEN_MLA_DECODE) + (s->window != 0) + (s->invariant != 0);
    int brings = kgen__mla_has_codes(s) ? !s->window && !scales_queries(s) : !s->sparse;
    return target && target->isa == KGEN_ISA_SM90 && s->row_tiles == 8 && !makes_fp16(s) &&
           brings && s->latent % 128 == 0 && s->latent <= (besides > 1 ? 384 : 512);
}

/* A third group makes numbers of codes (kg/mla/mla_codes_nvidia.h). */
enum { BRINGERS = 4 };
int32_t kgen__mla_bringers_of(const kgen_mla_spec *s, const kgen_target *target) {
    return kgen__mla_is_paired(s, target) && kgen__mla_has_codes(s) ? BRINGERS : 0;
}

/* What lies in LDS where rows are matrices. */
int32_t kgen__mla_bytes_of_matrices(const kgen_mla_spec *s, const kgen_target *target) {
    return kg_mla_stage_of(s->latent, s->rope, 8 * kgen_dtype_size((kgen_dtype)s->kv), s->rows != 0,
                           makes_numbers(s), kg_attn_rows(s->row_tiles, KG_MLA_SET_COLUMNS),
                           s->occupancy, kgen__mla_is_paired(s, target))
        .bytes;
}

static int32_t is_soft(const kgen_mla_spec *s, const kgen_target *target) {
    int32_t codes = kgen__native_fp8(s->rows ? s->rows : s->kv, target); /* by hand: not yet */
    int own = (codes == KGEN_DTYPE_E4M3FNUZ) == target->fp8_fnuz;
    return kgen__is_8bit(codes) && !(target->fp8_converts && own);
}

static int32_t part_dims(const kgen_mla_spec *s, const kgen__mla_isa *isa, int direct) {
    int32_t x = 16 / kgen_dtype_size((kgen_dtype)s->kv);
    return kg_attn_part_dims(s->latent, s->waves, isa->columns, x, direct, !isa->matrices);
}

/* --- LDS ------------------------------------------------------------------ */

static int is_crowded(const kgen_mla_spec *s, int direct) {
    return direct && kg_attn_crowded(s->row_tiles, s->waves);
}

static int32_t aside_bytes(const kgen_mla_spec *s, const kgen_target *target) {
    int32_t bytes = kgen_dtype_size((kgen_dtype)s->kv), crowded = is_crowded(s, 1);
    int32_t tiles = kg_attn_wave_tiles(crowded, 8 * bytes);
    return kg_attn_aside_bytes(crowded, tiles, s->waves, 16 / bytes, target->wave_size);
}

static int sends_rows(const kgen_mla_spec *s) {
    return kg_attn_sends_rows(kg_attn_rows(s->row_tiles, KG_MLA_SET_COLUMNS), s->cluster);
}
/* Of rows that others of the cluster read, or are sent, as they lie where waves met. */
static int32_t peer_bytes(const kgen_mla_spec *s) {
    int32_t rows = kg_attn_rows(s->row_tiles, KG_MLA_SET_COLUMNS);
    int32_t stride = s->latent + KG_ATTN_ROUND_PAD;
    if (sends_rows(s))
        return rows * stride * 4 + kg_attn_inbox_of(rows, s->latent, s->cluster, 1).bytes;
    return s->cluster ? kg_attn_peer_bytes(rows, stride) : 0;
}

/* Rows as matrices; or a block of keys, and each wave's scores of it. */
static int32_t stage_needed(const kgen_mla_spec *s, const kgen_target *target, int direct) {
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    if (isa->matrices) return larger(kgen__mla_bytes_of_matrices(s, target), peer_bytes(s));
    int32_t bytes = kgen__mla_width_of(s) * kgen_dtype_size((kgen_dtype)s->kv);
    int32_t scores = isa->keys * s->waves * isa->columns * 4;
    if (direct)
        return KG_ATTN_DIRECT_STAGES * kg_attn_direct_keys(isa->keys, bytes) + scores +
               kg_attn_said_bytes(s->row_tiles, isa->columns, isa->keys, target->wave_size) +
               aside_bytes(s, target);
    return isa->keys * kg_attn_stage_row(bytes) + scores;
}

static int32_t lds_of(const kgen_mla_spec *s, const kgen_target *target, int direct) {
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    int32_t rows = kg_attn_rows(s->row_tiles, isa->columns);
    int32_t part = part_dims(s, isa, direct);
    int32_t slice = kg_attn_slice_dims(s->latent, s->waves, part);
    kg_attn_lds lds = kg_attn_lds_of(0, 1, s->waves, rows, rows, slice / 16, part / 16,
                                     kg_attn_round_columns(0, rows),
                                     kg_attn_round_most(target->isa == KGEN_ISA_SM90, 0));
    int32_t align = isa->matrices ? KG_ATTN_SWIZZLE : 1;
    int32_t stage = ceil_div(lds.round, align) * align;
    int32_t turns = isa->matrices && sends_rows(s) ? kg_attn_turn_bytes(s->waves) : 0;
    return larger(lds.bytes, stage + stage_needed(s, target, direct)) + turns +
           (s->waves + kgen__mla_bringers_of(s, target)) *
               (isa->matrices           ? KG_ATTN_STAGED_PARK_BYTES
                : is_crowded(s, direct) ? KG_ATTN_PARK_BYTES
                                        : 0);
}

/* Codes enter the products of scores as they are (KEYS_AS_CODES). */
static int multiplies_codes(const kgen_mla_spec *s) {
    return s->q == KGEN_DTYPE_BF16 && (s->kv == KGEN_DTYPE_FP8 || s->kv == KGEN_DTYPE_E4M3FN);
}

/* Of lists only rows with scales, as which zeros may be made; of one block they take more room as
 * they are cached than as numbers, and trees have no scalars left. */
static int brings_rows(const kgen_mla_spec *s) {
    if (s->rows) return s->latent > KG_MLA_BLOCK && s->phase != KGEN_MLA_TREE;
    return !s->sparse && (!kgen__is_8bit(s->kv) || multiplies_codes(s));
}

/* With eight waves or four, who bring eight rows each at once. Codes with as many row tiles as
 * waves: with fewer it is no faster. */
int kgen__mla_is_direct(const kgen_mla_spec *s, const kgen_target *target) {
    return kgen__mla_isa_of(target)->direct && brings_rows(s) &&
           (!kgen__mla_has_codes(s) || is_crowded(s, 1)) && s->waves % 4 == 0 &&
           lds_of(s, target, 1) <= target->lds_bytes;
}

int32_t kgen__mla_lds_needed(const kgen_mla_spec *s, const kgen_target *target) {
    return lds_of(s, target, kgen__mla_is_direct(s, target));
}

/* --- registers ------------------------------------------------------------ */

/* Registers of a lane where rows are matrices, beside those of a bf16 cache: of numbers that are
 * made of what is cached, and of queries scaled to fp16. Found by the compiler. */
static int32_t registers_of_numbers(const kgen_mla_spec *s) {
    int scaled = kgen__is_8bit(s->kv) || scales_queries(s);
    if (s->rows && s->latent > 512) return 88;
    return makes_fp16(s) || (scaled && (s->rows || s->window || kgen__mla_width_of(s) > 576)) ? 8
                                                                                              : 0;
}

/* Accumulators, scores and sums, masks; what the most tiles lack: fp16 queries over codes, and
 * windows of several tokens where boxes come to clusters. */
static int32_t registers_of_matrices(const kgen_mla_spec *s, const kgen__mla_isa *isa) {
    int32_t tiles = s->row_tiles, acc = tiles * 4 * ceil_div(s->latent, 128);
    int32_t words = s->word == KGEN_DTYPE_I64 ? 2 : 1;
    int32_t codes = kgen__is_8bit(s->kv) && words > 1 ? 8 : 0;
    int32_t masks = s->phase == KGEN_MLA_TREE ? tiles * 2 * words + 12 + codes : 0;
    int boxed = !s->rows && !kgen__is_small_page(s->page) && s->cluster < 16;
    int crowd = s->cluster && boxed && s->window && s->phase == KGEN_MLA_VERIFY;
    int32_t last =
        tiles == 8 && ((kgen__is_8bit(s->kv) && s->q == KGEN_DTYPE_FP16) || crowd) ? 8 : 0;
    return acc + tiles * 8 + masks + isa->fixed + registers_of_numbers(s) + last;
}

/* Where memory brings rows into LDS: numbers and scales on their way into products, and places of
 * small pages beside edges of several tokens. Found by the compiler. */
static int is_short_of_registers(const kgen_mla_spec *s) {
    int verify = s->phase == KGEN_MLA_VERIFY, small_page = kgen__is_small_page(s->page);
    return makes_fp16(s) || (scales_queries(s) && (s->rows || verify)) ||
           (kgen__mla_has_codes(s) && verify && s->window && small_page);
}

/* Where rows come by way of registers: of wide ones, and where they need not, of operands of
 * products twice as deep. Found by the compiler. */
static int32_t registers_of_staged(const kgen_mla_spec *s, const kgen__mla_isa *isa) {
    enum { WIDE = 512 };
    int deep = isa->direct && scales_queries(s) && s->rows;
    return (s->latent > WIDE ? isa->wide : 0) + (deep ? 8 : 0);
}

/* Registers of a lane: accumulators, its part of the queries, its pieces of the next
 * block. */
static int32_t registers_needed(const kgen_mla_spec *s, const kgen_target *target) {
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    int32_t soft = is_soft(s, target) ? isa->soft : 0;
    if (isa->matrices) return registers_of_matrices(s, isa) + soft;
    int32_t wave = target->wave_size, bytes = kgen_dtype_size((kgen_dtype)s->kv), x = 16 / bytes;
    int direct = kgen__mla_is_direct(s, target);
    int32_t part = part_dims(s, isa, direct);
    int32_t slice = kg_attn_slice_dims(s->latent, s->waves, part);
    int32_t acc = kg_attn_acc_registers(s->row_tiles, slice, isa->columns, wave);
    int32_t chunks = ceil_div(kgen__mla_width_of(s), wave / isa->columns * x);
    int32_t q = ceil_div(chunks * s->row_tiles, s->waves) * x / 2;
    if (direct) {
        int32_t tree = s->phase == KGEN_MLA_TREE ? 12 : 0;
        return acc + q + isa->direct + tree + (is_short_of_registers(s) ? 8 : 0);
    }
    int32_t row = s->rows ? kg_mla_row_bytes(s->latent, s->rope) : kgen__mla_width_of(s) * bytes;
    int32_t pieces = ceil_div(isa->keys * row / 4, s->waves * wave);
    if (s->rows) pieces += ceil_div(pieces, 4); /* a scale each */
    return acc + q + pieces + isa->fixed + soft + registers_of_staged(s, isa);
}

static int32_t registers_allowed(const kgen_mla_spec *s, const kgen_target *target) {
    return kgen_target_lane_registers(target, s->waves * s->occupancy);
}

/* --- what the line itself asks for ---------------------------------------- */

static kgen_status lds_fits(const kgen_mla_spec *least, const kgen_target *target,
                            kgen_error *err) {
    int32_t bytes = kgen__mla_lds_needed(least, target);
    int32_t each = target->unit_lds_bytes / least->occupancy - target->group_lds_bytes;
    int32_t most = kgen__mla_isa_of(target)->matrices ? each : target->lds_bytes;
    REQUIRE(bytes <= most,
            "mt=%d,waves=%d,occ=%d: a workgroup has %d bytes of LDS; %s has %d for each",
            least->row_tiles, least->waves, least->occupancy, bytes, target->name, most);
    return KGEN_OK;
}

/* The count is up to so many too high (CDNA1 has accumulators in a file of their own); what
 * comes nearer to the bound the compiler decides. Measured on five architectures. */
enum { COUNT_ERROR = 32 };

static kgen_status registers_fit(const kgen_mla_spec *least, const kgen_target *target,
                                 kgen_error *err) {
    int32_t needed = registers_needed(least, target), allowed = registers_allowed(least, target);
    REQUIRE(needed <= allowed + COUNT_ERROR,
            "mt=%d,waves=%d,occ=%d: a lane needs about %d registers; %s has %d for each",
            least->row_tiles, least->waves, least->occupancy, needed, target->name, allowed);
    return KGEN_OK;
}

static int room_for(const kgen_mla_spec *s, const kgen_target *target) {
    return lds_fits(s, target, NULL) == KGEN_OK &&
           (kgen__mla_isa_of(target)->matrices || registers_fit(s, target, NULL) == KGEN_OK);
}

/* As many as there are; fewer where only so many have room, as with rows so wide that LDS has none
 * for the scores of more. */
int32_t kgen__mla_waves_of(const kgen_mla_spec *s, const kgen_target *target) {
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    kgen_mla_spec next = *s;
    next.row_tiles = larger(s->row_tiles, 1);
    next.occupancy = larger(s->occupancy, 1);
    int32_t most = larger(isa->waves, next.row_tiles), least = larger(4, next.row_tiles);
    for (next.waves = most; next.waves >= least; next.waves /= 2)
        if (room_for(&next, target)) return next.waves;
    return most;
}

/* With the least of what it leaves open. */
kgen_status kgen__mla_fits(const kgen_mla_spec *s, const kgen_target *target, kgen_error *err) {
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    kgen_mla_spec least = *s;
    least.row_tiles = larger(s->row_tiles, 1);
    least.waves = s->waves ? s->waves : kgen__mla_waves_of(s, target);
    least.occupancy = larger(s->occupancy, 1);
    REQUIRE(!isa->matrices || least.waves == isa->waves,
            "waves=%d: on %s two groups of four waves share scores and values; %d", s->waves,
            target->name, isa->waves);
    KGEN_TRY(lds_fits(&least, target, err));
    return isa->matrices ? KGEN_OK : registers_fit(&least, target, err);
}

/* Whether registers and LDS go so far; of what is open, with what it will be. */
int kgen__mla_has_tiles(const kgen_mla_spec *s, int32_t row_tiles, const kgen_target *target) {
    kgen_mla_spec next = *s;
    next.row_tiles = row_tiles;
    if (!next.occupancy) next.occupancy = 1;
    if (!next.waves) next.waves = kgen__mla_waves_of(&next, target);
    return registers_needed(&next, target) <= registers_allowed(&next, target) &&
           kgen__mla_fits(&next, target, NULL) == KGEN_OK;
}

/* As many as there are rows for: each reads the cache once. */
int32_t kgen__mla_row_tiles_of(const kgen_mla_spec *s, const kgen_target *target) {
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    int32_t tiles = ceil_div(s->heads * s->q_tokens, isa->columns), most = s->waves, found = 1;
    if (is_soft(s, target)) most = smaller(isa->soft_mt, most);
    for (int32_t next = 2; next <= most; next *= 2)
        if (tiles > next / 2 && kgen__mla_has_tiles(s, next, target)) found = next;
    return found;
}

/* Two workgroups, where numbers are made of codes: one makes them while the other multiplies. */
int kgen__mla_holds_two(const kgen_mla_spec *s, int32_t row_tiles, const kgen_target *target) {
    kgen_mla_spec two = *s;
    two.occupancy = 2;
    int codes = kgen__mla_has_codes(s) && !registers_of_numbers(s);
    /* Slots of a list take the registers that merging together needs for two tiles. */
    int crowded = s->sparse && !s->cluster && row_tiles > 1;
    int few = kgen__mla_isa_of(target)->matrices && row_tiles <= 2 && !crowded;
    return codes && few && kgen__mla_has_tiles(&two, row_tiles, target);
}

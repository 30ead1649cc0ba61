/* Family mla: multi-head latent attention. Its kernels are built from attention's
 * templates: one KV head whose group is all heads, values that are a part of the keys. */
#include <stdio.h>

#include "family.h"
#include "mla.h"
#include "templates/kg/attn/attn_shape.h"
#include "templates/kg/mla/mla_shape.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t small_pages[] = {1, 2, 4, 8};
static const int32_t wave_counts[] = {2, 4, 8};
static const int32_t tile_counts[] = {1, 2, 4, 8};
static const int32_t cluster_sizes[] = {2, 4, 8, 16}; /* of others registers are short */

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_LATENT = RANGE(16, 640, 16);
static const kgen_domain domain_ROPE = RANGE(0, 128, 16);
static const kgen_domain domain_HEADS = RANGE(1, 128, 1);
static const kgen_domain domain_TOKENS = RANGE(1, 16, 1);
static const kgen_domain domain_PAGE = LIST_AND_RANGE(small_pages, 16, 65536, 16);
static const kgen_domain domain_WINDOW = RANGE(1, 1 << 24, 1);
static const kgen_domain domain_PARTS = RANGE(KG_ATTN_PART_STEP, 1 << 24, KG_ATTN_PART_STEP);
static const kgen_domain domain_WAVES = LIST(wave_counts);
static const kgen_domain domain_TILES = LIST(tile_counts);
static const kgen_domain domain_CLUSTER = LIST(cluster_sizes);

static const kgen_symbol symbols_none[] = {NO_SYMBOL};
SYMBOLS(phase, VALUE("decode", KGEN_MLA_DECODE), VALUE("verify", KGEN_MLA_VERIFY),
        VALUE("tree", KGEN_MLA_TREE));
SYMBOLS(q_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16));
SYMBOLS(kv_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2));
SYMBOLS(rows, VALUE("kv", 0), VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ));
SYMBOLS(o_dtype, VALUE("auto", 0), NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2));
SYMBOLS(word, NAMED("u8", DTYPE_U8), NAMED("u16", DTYPE_U16), NAMED("u32", DTYPE_I32),
        NAMED("u64", DTYPE_I64));
SYMBOLS(page, NAMED("x16", PAGE_X16));
SYMBOLS(wide, VALUE("i32", 0), VALUE("i64", 1));
SYMBOLS(window, VALUE("off", 0), NAMED("rt", WINDOW_RT));
SYMBOLS(lse, VALUE("0", 0), VALUE("1", 1), NAMED("th", LSE_TH));
SYMBOLS(invariant, VALUE("0", 0), VALUE("1", 1));
SYMBOLS(boolean, VALUE("0", 0), VALUE("1", 1));
SYMBOLS(descale, NAMED("auto", DESCALE_AUTO), NAMED("none", DESCALE_NONE),
        NAMED("head", DESCALE_HEAD));
SYMBOLS(auto0, VALUE("auto", 0));
SYMBOLS(off, VALUE("off", 0));

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, mla.field), &domain_##domain, symbols_##symbols, dflt, \
     KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/mla_params.def>
#undef KGEN_PARAM
};
/* clang-format on */

/* --- what attention's templates ask besides ------------------------------ */

static int32_t width_of(const kgen_mla_spec *s) { return s->latent + s->rope; }

FACT(width, width_of(&spec->mla))
FACT(is_ragged, spec->mla.phase != KGEN_MLA_DECODE)
FACT(is_tree, spec->mla.phase == KGEN_MLA_TREE)

static int32_t part_keys_of(const kgen_mla_spec *s) {
    return kgen__attn_part_keys(s->invariant, !s->flat);
}
FACT(part_keys, part_keys_of(&spec->mla))

/* fp16 of bf16 is made where either meets the other. */
static int makes_fp16(const kgen_mla_spec *s) {
    return s->kv == KGEN_DTYPE_BF16 && s->q == KGEN_DTYPE_FP16;
}

/* bf16 queries become fp16, row by row. */
static int scales_queries(const kgen_mla_spec *s) {
    return s->kv == KGEN_DTYPE_FP16 && s->q == KGEN_DTYPE_BF16;
}

static int has_codes(const kgen_mla_spec *s) { return kgen__is_8bit(s->kv) || s->rows; }

/* Numbers of the products are made of what is cached. */
static int makes_numbers(const kgen_mla_spec *s) { return has_codes(s) || makes_fp16(s); }

/* Two groups of waves take sets in turn (kg/mla/mla_pairs_nvidia.h): 64 query rows, and numbers as
 * they are cached, in pages, or of codes. Sums of 512 columns leave registers for one of what tells
 * rows apart and what tells where keys begin; found by the compiler. */
static int is_paired(const kgen_mla_spec *s, const kgen_target *target) {
    int besides = (s->phase != KGEN_MLA_DECODE) + (s->window != 0) + (s->invariant != 0);
    int brings = has_codes(s) ? !s->window && !scales_queries(s) : !s->sparse;
    return target && target->isa == KGEN_ISA_SM90 && s->row_tiles == 8 && !makes_fp16(s) &&
           brings && s->latent % 128 == 0 && s->latent <= (besides > 1 ? 384 : 512);
}

/* A third group makes numbers of codes (kg/mla/mla_codes_nvidia.h). */
enum { BRINGERS = 4 };
static int32_t bringers_of(const kgen_mla_spec *s, const kgen_target *target) {
    return is_paired(s, target) && has_codes(s) ? BRINGERS : 0;
}
FACT(bringers, bringers_of(&spec->mla, target))

/* Memory brings rows into LDS by itself. */
static int is_direct(const kgen_mla_spec *s, const kgen_target *target);
static int32_t direct_of(const kgen_mla_spec *s, const kgen_target *target) {
    return target && is_direct(s, target);
}
FACT(direct, direct_of(&spec->mla, target))

/* What lies in LDS where rows are matrices. */
static int32_t bytes_of_matrices(const kgen_mla_spec *s, const kgen_target *target) {
    return kg_mla_stage_of(s->latent, s->rope, 8 * kgen_dtype_size((kgen_dtype)s->kv), s->rows != 0,
                           makes_numbers(s), kg_attn_rows(s->row_tiles, KG_MLA_SET_COLUMNS),
                           s->occupancy, is_paired(s, target))
        .bytes;
}
FACT(matrices_bytes, bytes_of_matrices(&spec->mla, target))

/* Where rows are those of A, a wave has two row tiles of the block, and each of two groups a half
 * of the values; else all waves have all rows, and a part of the values each. */
FACT(paired, is_paired(&spec->mla, target))
FACT(wave_tiles, is_paired(&spec->mla, target) ? 2 : spec->mla.row_tiles)
FACT(row_waves, is_paired(&spec->mla, target) ? 4 : 1)
FACT(value_waves, is_paired(&spec->mla, target) ? spec->mla.waves / 4 : spec->mla.waves)

FACT(no, 0)
FACT(yes, 1)
FACT(nhd, KGEN_LAYOUT_NHD)
FACT(shuffle, KGEN_LAYOUT_SHUFFLE)
FACT(xpacked, KGEN_LAYOUT_XPACKED)
FACT(causal_seq, KGEN_CAUSAL_SEQ)
FACT(alibi_sqrt, KGEN_ALIBI_SQRT)
FACT(descale_token, KGEN_DESCALE_TOKEN)
FACT(float_32, KGEN_DTYPE_F32)
FACT(int_8, KGEN_DTYPE_I8)
FACT(int_4, KGEN_DTYPE_I4)

/* clang-format off */
static const kgen__fact facts[] = {
    {"HEAD_DIM", width}, {"RAGGED", is_ragged}, {"BOUNDED", yes}, {"STAGED", yes},
    {"MATRICES_BYTES", matrices_bytes}, {"PAIRED", paired}, {"BRINGERS", bringers},
    {"DIRECT", direct},
    {"ROW_TILES", wave_tiles}, {"WAVES", row_waves}, {"V_SPLIT", value_waves},
    {"LAYOUT", nhd}, {"LAYOUT_NHD", nhd}, {"LAYOUT_SHUFFLE", shuffle}, {"LAYOUT_XPACKED", xpacked},
    {"CAUSAL", yes}, {"CAUSAL_SEQ", causal_seq}, {"RIGHT", no}, {"TREE", is_tree}, {"DENSE", no},
    {"SOFTCAP", no}, {"ALIBI", no}, {"CAP_LAST", no}, {"DESCALE_TOKEN", descale_token},
        {"DTYPE_F32", float_32}, {"DTYPE_I8", int_8}, {"DTYPE_I4", int_4}, {"GATE", no},
    {"CHUNK", no}, {"LOOKBACK", no}, {"KEEP", no}, {"PART_KEYS", part_keys}, {"SPANS", no},
    {"BY_MATRICES", no}, {"BY_LINES", no}, {"KEY_QUEUE", no}, {"Q_YIELDS", no},
    {"CASCADE", no},
    {"ALIBI_SQRT", alibi_sqrt},
    {NULL, NULL}};
/* clang-format on */

/* --- what one isa gives a workgroup --------------------------------------- */

typedef struct isa_row {
    int32_t columns; /* query rows of a row tile */
    int32_t keys;    /* of a block */
    int32_t waves;
    int32_t fixed;    /* registers of addresses, conversions, operands */
    int32_t soft;     /* of conversions in integer arithmetic, beside them */
    int32_t soft_mt;  /* most row tiles with conversions in integer arithmetic, whose
                         constants fill the scalars */
    int32_t matrices; /* rows lie in LDS as matrices (kg/mla/mla_matrices_nvidia.h) */
    int32_t direct;   /* memory brings rows into LDS by itself (kg/mla/mla_direct.h); registers
                         beside those of sums and queries then */
    int32_t many;     /* units: few keys are read by row blocks of fewer rows (row_blocks_of) */
} isa_row;

/* clang-format off */
#define MLA_CDNA1 {16, 32, 4, 150, 0, 2, 0, 0, 0}
#define MLA_CDNA2 {16, 32, 8, 136, 24, 2, 0, 0, 0}
#define MLA_CDNA3 {16, 32, 8, 136, 24, 2, 0, 0, 1}
#define MLA_CDNA4 {16, 32, 8, 136, 24, 2, 0, 56, 1}
#define MLA_RDNA2 {16, 16, 8, 150, 0, 8, 0, 0, 0}
#define MLA_RDNA3 {16, 16, 8, 136, 7, 8, 0, 0, 0}
#define MLA_RDNA4 {16, 16, 8, 120, 0, 8, 0, 0, 0}
#define MLA_SM90  {8,  16, 8, 60,  8, 8, 1, 0, 1}
/* clang-format on */

static const isa_row isa_rows[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = MLA_##NAME,
#include <kgen/targets.def>
};

static int32_t is_soft(const kgen_mla_spec *s, const kgen_target *target) {
    int32_t codes = s->rows ? s->rows : s->kv;
    int own = (codes == KGEN_DTYPE_E4M3FNUZ) == target->fp8_fnuz;
    return kgen__is_8bit(codes) && !(target->fp8_converts && own);
}

static int32_t part_dims(const kgen_mla_spec *s, const isa_row *isa, int direct) {
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
    const isa_row *isa = &isa_rows[target->isa];
    if (isa->matrices) return larger(bytes_of_matrices(s, target), peer_bytes(s));
    int32_t bytes = width_of(s) * kgen_dtype_size((kgen_dtype)s->kv);
    int32_t scores = isa->keys * s->waves * isa->columns * 4;
    if (direct)
        return KG_ATTN_DIRECT_STAGES * kg_attn_direct_keys(isa->keys, bytes) + scores +
               kg_attn_said_bytes(s->row_tiles, isa->columns, isa->keys, target->wave_size) +
               aside_bytes(s, target);
    return isa->keys * kg_attn_stage_row(bytes) + scores;
}

static int32_t lds_of(const kgen_mla_spec *s, const kgen_target *target, int direct) {
    const isa_row *isa = &isa_rows[target->isa];
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
           (s->waves + bringers_of(s, target)) * (isa->matrices ? KG_ATTN_STAGED_PARK_BYTES
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
static int is_direct(const kgen_mla_spec *s, const kgen_target *target) {
    return isa_rows[target->isa].direct && brings_rows(s) && (!has_codes(s) || is_crowded(s, 1)) &&
           s->waves % 4 == 0 && lds_of(s, target, 1) <= target->lds_bytes;
}

static int32_t lds_needed(const kgen_mla_spec *s, const kgen_target *target) {
    return lds_of(s, target, is_direct(s, target));
}

static int32_t launch_lds(const kgen_spec *spec, const kgen_target *target) {
    if (!isa_rows[target->isa].matrices) return 0;
    int32_t bytes = lds_needed(&spec->mla, target);
    return bytes > target->lds_bytes ? bytes : 0;
}

/* --- registers ------------------------------------------------------------ */

/* Registers of a lane where rows are matrices, beside those of a bf16 cache: of numbers that are
 * made of what is cached, and of queries scaled to fp16. Found by the compiler. */
static int32_t registers_of_numbers(const kgen_mla_spec *s) {
    int scaled = kgen__is_8bit(s->kv) || scales_queries(s);
    if (s->rows && s->latent > 512) return 88;
    return makes_fp16(s) || (scaled && (s->rows || s->window || width_of(s) > 576)) ? 8 : 0;
}

/* Accumulators, scores and sums, masks; what the most tiles lack: fp16 queries over codes, and
 * windows of several tokens where boxes come to clusters. */
static int32_t registers_of_matrices(const kgen_mla_spec *s, const isa_row *isa) {
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
           (has_codes(s) && verify && s->window && small_page);
}

/* Registers of a lane: accumulators, its part of the queries, its pieces of the next
 * block. */
static int32_t registers_needed(const kgen_mla_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t soft = is_soft(s, target) ? isa->soft : 0;
    if (isa->matrices) return registers_of_matrices(s, isa) + soft;
    int32_t wave = target->wave_size, bytes = kgen_dtype_size((kgen_dtype)s->kv), x = 16 / bytes;
    int direct = is_direct(s, target);
    int32_t part = part_dims(s, isa, direct);
    int32_t slice = kg_attn_slice_dims(s->latent, s->waves, part);
    int32_t acc = kg_attn_acc_registers(s->row_tiles, slice, isa->columns, wave);
    int32_t chunks = ceil_div(width_of(s), wave / isa->columns * x);
    int32_t q = ceil_div(chunks * s->row_tiles, s->waves) * x / 2;
    if (direct) {
        int32_t tree = s->phase == KGEN_MLA_TREE ? 12 : 0;
        return acc + q + isa->direct + tree + (is_short_of_registers(s) ? 8 : 0);
    }
    int32_t row = s->rows ? kg_mla_row_bytes(s->latent, s->rope) : width_of(s) * bytes;
    int32_t pieces = ceil_div(isa->keys * row / 4, s->waves * wave);
    if (s->rows) pieces += ceil_div(pieces, 4); /* a scale each */
    return acc + q + pieces + isa->fixed + soft;
}

static int32_t registers_allowed(const kgen_mla_spec *s, const kgen_target *target) {
    return kgen_target_lane_registers(target, s->waves * s->occupancy);
}

/* --- what the line itself asks for ---------------------------------------- */

static kgen_status lds_fits(const kgen_mla_spec *least, const kgen_target *target,
                            kgen_error *err) {
    int32_t bytes = lds_needed(least, target);
    int32_t each = target->unit_lds_bytes / least->occupancy - target->group_lds_bytes;
    int32_t most = isa_rows[target->isa].matrices ? each : target->lds_bytes;
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
           (isa_rows[target->isa].matrices || registers_fit(s, target, NULL) == KGEN_OK);
}

/* As many as there are; fewer where only so many have room, as with rows so wide that LDS has none
 * for the scores of more. */
static int32_t waves_of(const kgen_mla_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    kgen_mla_spec next = *s;
    next.row_tiles = larger(s->row_tiles, 1);
    next.occupancy = larger(s->occupancy, 1);
    int32_t most = larger(isa->waves, next.row_tiles), least = larger(4, next.row_tiles);
    for (next.waves = most; next.waves >= least; next.waves /= 2)
        if (room_for(&next, target)) return next.waves;
    return most;
}

/* With the least of what it leaves open. */
static kgen_status fits(const kgen_mla_spec *s, const kgen_target *target, kgen_error *err) {
    const isa_row *isa = &isa_rows[target->isa];
    kgen_mla_spec least = *s;
    least.row_tiles = larger(s->row_tiles, 1);
    least.waves = s->waves ? s->waves : waves_of(s, target);
    least.occupancy = larger(s->occupancy, 1);
    REQUIRE(!isa->matrices || least.waves == isa->waves,
            "waves=%d: on %s two groups of four waves share scores and values; %d", s->waves,
            target->name, isa->waves);
    KGEN_TRY(lds_fits(&least, target, err));
    return isa->matrices ? KGEN_OK : registers_fit(&least, target, err);
}

/* --- applicable --------------------------------------------------------- */

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_mla_spec *s = &spec->mla;
    int decode = s->phase == KGEN_MLA_DECODE;
    REQUIRE(!decode || s->q_tokens == 1,
            "t=%d: phase=decode has one query token a sequence; use phase=verify", s->q_tokens);
    REQUIRE(!decode || !s->offsets, "cu=i64: phase=decode has no cu_seqlens_q");
    REQUIRE(!s->sparse || (decode && s->page == 1 && !s->flat && !s->window),
            "sparse=1: a list a query token: phase=decode,page=1, no flat, no window");
    REQUIRE(s->phase == KGEN_MLA_TREE || s->word == KGEN_DTYPE_I32, "word: phase=%s has no masks",
            decode ? "decode" : "verify");
    REQUIRE(s->phase != KGEN_MLA_TREE || s->q_tokens <= 8 * kgen_dtype_size((kgen_dtype)s->word),
            "t=%d: a word has %d bits", s->q_tokens, 8 * kgen_dtype_size((kgen_dtype)s->word));
    REQUIRE(kgen__is_8bit(s->kv) || s->descale != KGEN_DESCALE_HEAD,
            "descale: kv=%s is not quantised; only 8-bit caches take one",
            kgen_dtype_name((kgen_dtype)s->kv));
    REQUIRE(!s->rows || !kgen__is_8bit(s->kv),
            "kv=%s: rows=%s has codes of its own and is read as bf16 or fp16",
            kgen_dtype_name((kgen_dtype)s->kv), kgen_dtype_name((kgen_dtype)s->rows));
    REQUIRE(!s->rows || s->latent % KG_MLA_BLOCK == 0,
            "l=%d: rows=%s has a scale a block of %d columns; a multiple of that", s->latent,
            kgen_dtype_name((kgen_dtype)s->rows), KG_MLA_BLOCK);
    REQUIRE(s->invariant <= 1 || !s->flat,
            "invariant=%d: flat=1 says no most number of keys of a sequence, for whose parts there "
            "would be room; invariant=1 cuts none",
            s->invariant);
    KGEN_TRY(kgen__cluster_fits(s->cluster, s->invariant, target, err));
    REQUIRE(!s->waves || !s->row_tiles || s->waves % s->row_tiles == 0,
            "mt=%d: must divide waves=%d, of which each has scores of one row tile", s->row_tiles,
            s->waves);
    return target ? fits(s, target, err) : KGEN_OK;
}

/* --- defaults ----------------------------------------------------------- */

/* Whether registers and LDS go so far; of what is open, with what it will be. */
static int has_tiles(const kgen_mla_spec *s, int32_t row_tiles, const kgen_target *target) {
    kgen_mla_spec next = *s;
    next.row_tiles = row_tiles;
    if (!next.occupancy) next.occupancy = 1;
    if (!next.waves) next.waves = waves_of(&next, target);
    return registers_needed(&next, target) <= registers_allowed(&next, target) &&
           fits(&next, target, NULL) == KGEN_OK;
}

/* As many as there are rows for: each reads the cache once. */
static int32_t row_tiles_of(const kgen_mla_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t tiles = ceil_div(s->heads * s->q_tokens, isa->columns), most = s->waves, found = 1;
    if (is_soft(s, target)) most = smaller(isa->soft_mt, most);
    for (int32_t next = 2; next <= most; next *= 2)
        if (tiles > next / 2 && has_tiles(s, next, target)) found = next;
    return found;
}

/* Two workgroups, where numbers are made of codes: one makes them while the other multiplies. */
static int holds_two(const kgen_mla_spec *s, int32_t row_tiles, const kgen_target *target) {
    kgen_mla_spec two = *s;
    two.occupancy = 2;
    int codes = has_codes(s) && !registers_of_numbers(s);
    int few = isa_rows[target->isa].matrices && row_tiles <= 2;
    return codes && few && has_tiles(&two, row_tiles, target);
}

static void tune(kgen_mla_spec *s, const kgen_target *target) {
    if (!s->waves) s->waves = waves_of(s, target);
    if (!s->row_tiles) s->row_tiles = row_tiles_of(s, target);
    if (!s->occupancy) s->occupancy = holds_two(s, s->row_tiles, target) ? 2 : 1;
}

/* By half the number of sequences. */
static int has_few_keys(const kgen_problem *problem, int64_t most) {
    int64_t keys = (int64_t)problem->batch * problem->context;
    return keys && keys <= most / (((int64_t)problem->batch + 1) / 2);
}

/* Few keys are soon read, as often as it may be: row blocks of fewer rows then have more
 * workgroups merge, which many sequences do without. Measured on sm_90, predicted on CDNA
 * (docs/performance.md). */
static int32_t row_blocks_of(const kgen_problem *problem) {
    static const struct {
        int64_t keys;
        int32_t row_blocks;
    } rows[] = {{4096, 16}, {16384, 8}, {98304, 4}, {262144, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (has_few_keys(problem, rows[i].keys)) return rows[i].row_blocks;
    return 0;
}

/* Where a cluster shares each row block and merges in LDS, and longer ones are cut among clusters:
 * few are soon read. Measured on sm_90 (docs/performance.md); the first row that fits. One without
 * a cluster: workgroups by themselves are faster; without row tiles: as `suit` chooses them. */
typedef struct cluster_row {
    int32_t codes;    /* of 8-bit caches, with so many workgroups a unit; 0: of 16 bits, one */
    int64_t rows[2];  /* heads x tokens, least and most */
    int32_t batch[2]; /* least and most */
    int32_t context;  /* most; KNOWN, ANY */
    int32_t row_tiles, cluster;
} cluster_row;
enum { KNOWN = KGEN__KNOWN_CONTEXT, ANY = KGEN__ANY_CONTEXT };
static const cluster_row cluster_rows[] = {
    {0, {1, 16}, {1, 3}, 8192, 1, 16},     {0, {1, 16}, {1, 1}, 32768, 1, 8},
    {0, {1, 16}, {2, 3}, KNOWN, 2, 8},     {0, {1, 16}, {1, 3}, ANY, 2, 16},
    {0, {1, 16}, {4, 4}, 2048, 1, 8},      {0, {1, 16}, {5, 7}, 1024, 1, 8},
    {0, {1, 16}, {4, 7}, 8192, 2, 16},     {0, {1, 16}, {5, 7}, 24576, 2, 16},
    {0, {1, 16}, {4, 7}, KNOWN, 2, 8},     {0, {1, 16}, {4, 7}, ANY, 2, 16},
    {0, {1, 16}, {8, 14}, ANY, 2, 8},      {0, {1, 16}, {15, 30}, ANY, 2, 4},
    {0, {1, 16}, {31, 66}, ANY, 2, 2},

    {0, {17, 32}, {1, 3}, 8192, 2, 16},    {0, {17, 32}, {1, 2}, 24576, 2, 8},
    {0, {17, 32}, {1, 3}, ANY, 4, 16},     {0, {17, 32}, {5, 7}, 1024, 2, 8},
    {0, {17, 32}, {4, 7}, 8192, 4, 16},    {0, {17, 32}, {4, 14}, ANY, 4, 8},
    {0, {17, 32}, {15, 30}, ANY, 4, 4},    {0, {17, 32}, {31, 66}, 1024, 4, 2},
    {0, {17, 32}, {40, 66}, 8192, 4, 2},

    {0, {33, 64}, {1, 1}, 2048, 1, 8},     {0, {33, 64}, {1, 1}, 8192, 2, 16},
    {0, {33, 64}, {1, 1}, KNOWN, 4, 8},    {0, {33, 64}, {2, 3}, 24576, 4, 16},
    {0, {33, 64}, {2, 3}, 32768, 4, 8},    {0, {33, 64}, {2, 3}, KNOWN, 4, 0},
    {0, {33, 64}, {1, 3}, ANY, 4, 16},     {0, {33, 64}, {4, 7}, 6144, 4, 8},
    {0, {33, 64}, {4, 7}, 24576, 8, 16},   {0, {33, 64}, {4, 7}, KNOWN, 8, 4},
    {0, {33, 64}, {4, 4}, ANY, 4, 8},      {0, {33, 64}, {5, 7}, ANY, 8, 16},
    {0, {33, 64}, {8, 14}, 2048, 4, 4},    {0, {33, 64}, {8, 11}, 12288, 8, 8},
    {0, {33, 64}, {8, 11}, KNOWN, 8, 2},   {0, {33, 64}, {8, 14}, ANY, 8, 8},
    {0, {33, 64}, {18, 33}, 1024, 4, 2},   {0, {33, 64}, {15, 17}, 6144, 8, 4},
    {0, {33, 64}, {15, 17}, 8192, 4, 0},   {0, {33, 64}, {15, 17}, KNOWN, 8, 2},
    {0, {33, 64}, {15, 30}, ANY, 8, 4},    {0, {33, 64}, {29, 32}, 4096, 4, 2},
    {0, {33, 64}, {33, 36}, 3072, 4, 0},   {0, {33, 64}, {37, 56}, 8192, 8, 2},
    {0, {33, 64}, {37, 56}, KNOWN, 8, 0},  {0, {33, 64}, {57, 66}, 1024, 4, 0},
    {0, {33, 64}, {31, 66}, ANY, 8, 2},

    {0, {65, 128}, {1, 1}, 3072, 2, 8},    {0, {65, 128}, {1, 1}, 24576, 4, 16},
    {0, {65, 128}, {1, 1}, KNOWN, 0, 0},   {0, {65, 128}, {1, 1}, ANY, 4, 16},
    {0, {65, 128}, {2, 2}, 6144, 4, 8},    {0, {65, 128}, {2, 2}, 24576, 8, 16},
    {0, {65, 128}, {2, 2}, KNOWN, 8, 4},   {0, {65, 128}, {3, 7}, 1024, 4, 4},
    {0, {65, 128}, {2, 3}, ANY, 8, 16},    {0, {65, 128}, {4, 7}, 12288, 8, 8},
    {0, {65, 128}, {4, 7}, 24576, 8, 0},   {0, {65, 128}, {4, 4}, KNOWN, 8, 2},
    {0, {65, 128}, {5, 7}, KNOWN, 0, 0},   {0, {65, 128}, {4, 7}, ANY, 8, 8},
    {0, {65, 128}, {8, 8}, 1024, 0, 0},    {0, {65, 128}, {8, 8}, 4096, 8, 4},
    {0, {65, 128}, {8, 8}, 24576, 8, 2},   {0, {65, 128}, {9, 16}, 2048, 4, 2},
    {0, {65, 128}, {9, 14}, 8192, 8, 4},   {0, {65, 128}, {8, 14}, KNOWN, 0, 0},
    {0, {65, 128}, {8, 14}, ANY, 8, 4},    {0, {65, 128}, {17, 33}, 1024, 8, 2},
    {0, {65, 128}, {24, 33}, 4096, 8, 2},  {0, {65, 128}, {29, 33}, 8192, 8, 2},
    {0, {65, 128}, {29, 32}, KNOWN, 0, 0}, {0, {65, 128}, {29, 32}, ANY, 8, 2},

    {1, {1, 16}, {1, 3}, 6144, 1, 16},     {1, {1, 16}, {1, 1}, 24576, 1, 8},
    {1, {1, 16}, {2, 3}, KNOWN, 2, 8},     {1, {1, 16}, {1, 3}, ANY, 2, 16},
    {1, {1, 16}, {4, 7}, 8192, 2, 16},     {1, {1, 16}, {5, 7}, 24576, 2, 16},
    {1, {1, 16}, {4, 7}, KNOWN, 2, 8},     {1, {1, 16}, {4, 7}, ANY, 2, 16},
    {1, {1, 16}, {8, 14}, 1024, 2, 8},     {2, {1, 16}, {8, 14}, 8192, 2, 16},
    {2, {1, 16}, {8, 14}, ANY, 2, 8},      {2, {1, 16}, {15, 30}, 1024, 2, 4},
    {2, {1, 16}, {15, 30}, 8192, 2, 8},    {2, {1, 16}, {31, 62}, 1024, 2, 4},
    {2, {1, 16}, {48, 62}, 4096, 2, 4},    {2, {1, 16}, {54, 62}, 8192, 2, 4},
    {1, {1, 16}, {15, 30}, KNOWN, 0, 0},   {2, {1, 16}, {15, 30}, ANY, 2, 8},

    {1, {17, 32}, {1, 2}, 3072, 1, 8},     {1, {17, 32}, {1, 3}, 4096, 2, 16},
    {1, {17, 32}, {3, 3}, 8192, 2, 16},    {1, {17, 32}, {4, 4}, 3072, 2, 8},
    {1, {17, 32}, {4, 7}, 4096, 4, 16},    {1, {17, 32}, {5, 7}, 8192, 4, 16},
    {2, {17, 32}, {9, 12}, 1024, 2, 8},    {1, {17, 32}, {5, 14}, 4096, 4, 8},
    {1, {17, 32}, {9, 14}, 8192, 4, 8},    {1, {17, 32}, {15, 30}, 2048, 4, 4},
    {1, {17, 32}, {17, 30}, 4096, 4, 4},   {1, {17, 32}, {31, 66}, 1024, 4, 2},

    {1, {33, 64}, {1, 1}, 2048, 1, 8},     {1, {33, 64}, {1, 1}, 6144, 2, 16},
    {1, {33, 64}, {1, 1}, 24576, 4, 16},   {1, {33, 64}, {2, 3}, 8192, 4, 16},
    {1, {33, 64}, {1, 3}, KNOWN, 0, 0},    {1, {33, 64}, {1, 3}, ANY, 4, 16},
    {1, {33, 64}, {5, 7}, 1024, 4, 4},     {1, {33, 64}, {4, 7}, 6144, 4, 8},
    {1, {33, 64}, {5, 7}, 8192, 8, 16},    {1, {33, 64}, {8, 14}, 1024, 4, 4},
    {1, {33, 64}, {8, 14}, 24576, 8, 8},   {1, {33, 64}, {8, 9}, KNOWN, 8, 2},
    {1, {33, 64}, {4, 14}, KNOWN, 0, 0},   {1, {33, 64}, {4, 7}, ANY, 4, 8},
    {1, {33, 64}, {8, 14}, ANY, 8, 8},     {1, {33, 64}, {29, 32}, 1024, 4, 2},
    {1, {33, 64}, {15, 30}, 6144, 8, 4},   {1, {33, 64}, {15, 17}, KNOWN, 8, 2},
    {1, {33, 64}, {24, 24}, 8192, 8, 4},   {1, {33, 64}, {25, 30}, 12288, 8, 4},
    {1, {33, 64}, {18, 28}, KNOWN, 0, 0},  {1, {33, 64}, {15, 28}, ANY, 8, 4},
    {1, {33, 64}, {29, 32}, KNOWN, 8, 2},  {1, {33, 64}, {33, 36}, 1024, 8, 2},
    {1, {33, 64}, {37, 56}, 8192, 8, 2},   {1, {33, 64}, {57, 66}, ANY, 8, 2},

    {1, {65, 128}, {1, 1}, 1024, 2, 8},    {1, {65, 128}, {1, 1}, 8192, 4, 16},
    {1, {65, 128}, {3, 7}, 1024, 4, 4},    {1, {65, 128}, {2, 3}, 3072, 4, 8},
    {1, {65, 128}, {3, 3}, 6144, 8, 16},   {1, {65, 128}, {2, 3}, 6144, 4, 8},
    {1, {65, 128}, {2, 3}, 8192, 8, 16},   {1, {65, 128}, {1, 1}, KNOWN, 0, 0},
    {1, {65, 128}, {2, 3}, KNOWN, 8, 0},   {1, {65, 128}, {1, 1}, ANY, 4, 16},
    {1, {65, 128}, {2, 3}, ANY, 4, 8},     {1, {65, 128}, {4, 7}, 12288, 8, 8},
    {1, {65, 128}, {4, 7}, KNOWN, 8, 2},   {1, {65, 128}, {4, 7}, ANY, 8, 8},
    {1, {65, 128}, {8, 14}, 6144, 8, 4},   {1, {65, 128}, {15, 16}, 1024, 4, 2},
    {1, {65, 128}, {15, 16}, 2048, 8, 0},  {1, {65, 128}, {12, 15}, 8192, 8, 4},
    {1, {65, 128}, {8, 16}, KNOWN, 8, 2},  {1, {65, 128}, {8, 14}, ANY, 8, 4},
    {1, {65, 128}, {17, 33}, 8192, 8, 2},  {1, {65, 128}, {29, 32}, ANY, 8, 2},
};

static int suit_cluster(kgen_mla_spec *s, const kgen_problem *p, const kgen_target *target) {
    int64_t rows = (int64_t)s->heads * s->q_tokens;
    int open = !s->cluster && !s->row_tiles && !s->occupancy && p->batch;
    if (!isa_rows[target->isa].matrices || !open) return 0;
    for (size_t i = 0; i < sizeof cluster_rows / sizeof cluster_rows[0]; i++) {
        const cluster_row *r = &cluster_rows[i];
        if ((r->codes > 0) != has_codes(s) || rows < r->rows[0] || rows > r->rows[1]) continue;
        if (p->batch < r->batch[0] || p->batch > r->batch[1]) continue;
        if (!kgen__fits_context(r->context, p->context)) continue;
        kgen_mla_spec next = *s;
        next.cluster = r->cluster;
        if (r->row_tiles && !has_tiles(&next, r->row_tiles, target)) continue;
        if (r->codes > 1 && !holds_two(&next, r->row_tiles, target)) continue;
        s->row_tiles = r->row_tiles;
        s->cluster = r->cluster;
        s->occupancy = r->cluster ? larger(r->codes, 1) : 0;
        return s->row_tiles != 0;
    }
    return 0;
}

/* `invariant` has one kernel for all sizes. */
static void suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target) {
    enum { FEW_SEQUENCES = 4, LATENCY_SEQUENCES = 8, FEW_TILES = 4 };
    enum { FEW_TILES_KEYS = 512 << 10, FEW_TILES_CODES = 3 << 20 };
    kgen_mla_spec *s = &spec->mla;
    const isa_row *isa = &isa_rows[target->isa];
    int32_t row_blocks = row_blocks_of(problem);
    int32_t tiles = ceil_div(s->heads * s->q_tokens, isa->columns);
    int32_t few = has_codes(s) ? FEW_TILES_CODES : FEW_TILES_KEYS;
    /* Eight tiles merge twice what four do. */
    if (isa->direct && !row_blocks && tiles > FEW_TILES && has_few_keys(problem, few))
        row_blocks = tiles / FEW_TILES;
    if (!isa->many || s->invariant || suit_cluster(s, problem, target)) return;
    if (!s->occupancy && problem->batch && problem->batch <= LATENCY_SEQUENCES) s->occupancy = 1;
    if (s->row_tiles || !row_blocks) return;
    int32_t each = smaller(tiles / row_blocks, larger(FEW_TILES, tiles / 4));
    int32_t most =
        larger(problem->batch > FEW_SEQUENCES && tiles > 1 ? 2 : 1, smaller(each, isa->waves));
    for (int32_t next = 1; next <= most; next *= 2)
        if (next == 1 || has_tiles(s, next, target)) s->row_tiles = next;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    kgen_mla_spec *s = &spec->mla;
    s->kv = kgen__native_fp8(s->kv, target);
    s->rows = kgen__native_fp8(s->rows, target);
    s->out = kgen__native_fp8(s->out ? s->out : s->q, target);
    if (s->descale == KGEN_DESCALE_AUTO)
        s->descale = kgen__is_8bit(s->kv) ? KGEN_DESCALE_HEAD : KGEN_DESCALE_NONE;
    tune(s, target);
}

kgen__attn_geometry kgen__mla_geometry_of(const kgen_mla_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t rows = kg_attn_rows(s->row_tiles, isa->columns);
    int32_t dims = width_of(s) + s->latent, bytes = kgen_dtype_size((kgen_dtype)s->kv);
    return (kgen__attn_geometry){
        .rows = rows,
        .waves = 1, /* that have keys of their own */
        .row_blocks = kg_attn_row_blocks(s->heads, s->q_tokens, rows),
        .block_keys = isa->keys,
        .part_keys = part_keys_of(s),
        .item_cost =
            isa->matrices ? KG_ATTN_STAGED_COST : kg_attn_item_cost(isa->keys, dims, 8 * bytes),
    };
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return (spec->mla.waves + bringers_of(&spec->mla, target)) * target->wave_size;
}

static int32_t occupancy(const kgen_spec *spec) { return spec->mla.occupancy; }
static int32_t cluster(const kgen_spec *spec) { return spec->mla.cluster; }

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_mla_spec *s = &spec->mla;
    static const char *const phase_names[] = {
        [KGEN_MLA_DECODE] = "decode", [KGEN_MLA_VERIFY] = "verify", [KGEN_MLA_TREE] = "tree"};
    char page[16] = "x16";
    if (s->page) snprintf(page, sizeof page, "%d", s->page);
    snprintf(out, KGEN_SYMBOL_MAX, "kg_mla_%s_%s_kv%s%s%s_l%d_r%d_h%d_t%d_p%s%s%s%s%s",
             phase_names[s->phase], kgen_dtype_name((kgen_dtype)s->q),
             kgen_dtype_name((kgen_dtype)s->kv), s->rows ? "_rows" : "",
             s->rows ? kgen_dtype_name((kgen_dtype)s->rows) : "", s->latent, s->rope, s->heads,
             s->q_tokens, page, s->window ? "_window" : "", s->sparse ? "_sparse" : "",
             s->sinks ? "_sinks" : "", s->invariant ? "_invariant" : "");
}

const kgen__family kgen__family_mla = {
    .template_name = "mla.hip",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .facts = facts,
    .applicable = applicable,
    .defaults = defaults,
    .suit = suit,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .cluster = cluster,
    .launch_lds = launch_lds,
    .symbol = symbol,
};

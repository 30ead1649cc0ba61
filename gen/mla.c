/* Family mla: multi-head latent attention. Its kernels are built from attention's
 * templates: one KV head whose group is all heads, values that are a part of the keys. Files beside
 * this one say what a kernel needs (mla_needs.c) and choose by the size of the problem
 * (mla_suit.c). */
#include <stdio.h>

#include "family.h"
#include "mla.h"
#include "mla_needs.h"
#include "mla_suit.h"
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

FACT(width, kgen__mla_width_of(&spec->mla))
FACT(is_ragged, spec->mla.phase != KGEN_MLA_DECODE)
FACT(is_tree, spec->mla.phase == KGEN_MLA_TREE)

static int32_t part_keys_of(const kgen_mla_spec *s) {
    return kgen__attn_part_keys(s->invariant, !s->flat);
}
FACT(part_keys, part_keys_of(&spec->mla))

FACT(bringers, kgen__mla_bringers_of(&spec->mla, target))

static int32_t direct_of(const kgen_mla_spec *s, const kgen_target *target) {
    return target && kgen__mla_is_direct(s, target);
}
FACT(direct, direct_of(&spec->mla, target))
FACT(matrices_bytes, kgen__mla_bytes_of_matrices(&spec->mla, target))

/* Where rows are those of A, a wave has two row tiles of the block, and each of two groups a half
 * of the values; else all waves have all rows, and a part of the values each. */
FACT(paired, kgen__mla_is_paired(&spec->mla, target))
FACT(wave_tiles, kgen__mla_is_paired(&spec->mla, target) ? 2 : spec->mla.row_tiles)
FACT(row_waves, kgen__mla_is_paired(&spec->mla, target) ? 4 : 1)
FACT(value_waves, kgen__mla_is_paired(&spec->mla, target) ? spec->mla.waves / 4 : spec->mla.waves)

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
    return target ? kgen__mla_fits(s, target, err) : KGEN_OK;
}

/* --- defaults ----------------------------------------------------------- */

static void tune(kgen_mla_spec *s, const kgen_target *target) {
    if (!s->waves) s->waves = kgen__mla_waves_of(s, target);
    if (!s->row_tiles) s->row_tiles = kgen__mla_row_tiles_of(s, target);
    if (!s->occupancy) s->occupancy = kgen__mla_holds_two(s, s->row_tiles, target) ? 2 : 1;
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

/* --- launch shape and name ---------------------------------------------- */

kgen__attn_geometry kgen__mla_geometry_of(const kgen_mla_spec *s, const kgen_target *target) {
    const kgen__mla_isa *isa = kgen__mla_isa_of(target);
    int32_t rows = kg_attn_rows(s->row_tiles, isa->columns);
    int32_t dims = kgen__mla_width_of(s) + s->latent, bytes = kgen_dtype_size((kgen_dtype)s->kv);
    return (kgen__attn_geometry){
        .rows = rows,
        .waves = 1, /* that have keys of their own */
        .row_blocks = kg_attn_row_blocks(s->heads, s->q_tokens, rows),
        .block_keys = isa->keys,
        .own_maps = isa->matrices != 0,
        .part_keys = part_keys_of(s),
        .item_cost =
            isa->matrices ? KG_ATTN_STAGED_COST : kg_attn_item_cost(isa->keys, dims, 8 * bytes),
    };
}

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return (spec->mla.waves + kgen__mla_bringers_of(&spec->mla, target)) * target->wave_size;
}

static int32_t launch_lds(const kgen_spec *spec, const kgen_target *target) {
    if (!kgen__mla_isa_of(target)->matrices) return 0;
    int32_t bytes = kgen__mla_lds_needed(&spec->mla, target);
    return bytes > target->lds_bytes ? bytes : 0;
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
    .suit = kgen__mla_suit,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .cluster = cluster,
    .launch_lds = launch_lds,
    .symbol = symbol,
};

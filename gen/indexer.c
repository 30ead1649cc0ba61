/* Family indexer: a small attention that picks which rows of a latent cache a query sees.
 * Its cache, its logits and the choice of the largest are an op each. */
#include "indexer.h"

#include <stdio.h>
#include <string.h>

#include "family.h"
#include "templates/kg/indexer/indexer_shape.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t head_dims[] = {64, 128, 256};
static const int32_t small_pages[] = {1, 2, 4, 8};
static const int32_t few_counts[] = {1, 2, 4};

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_HEAD = LIST(head_dims);
static const kgen_domain domain_HEADS = RANGE(1, 128, 1);
static const kgen_domain domain_TOKENS = RANGE(1, 16, 1);
static const kgen_domain domain_PAGE = LIST_AND_RANGE(small_pages, 16, 65536, 16);
static const kgen_domain domain_WAVES = RANGE(1, 16, 1);
static const kgen_domain domain_TILES = LIST(few_counts);
static const kgen_domain domain_TOGETHER = LIST(few_counts);
static const kgen_domain domain_OCC = RANGE(1, 16, 1);

static const kgen_symbol symbols_none[] = {NO_SYMBOL};
SYMBOLS(auto0, VALUE("auto", 0));
SYMBOLS(boolean, VALUE("0", 0), VALUE("1", 1));
SYMBOLS(wide, VALUE("i32", 0), VALUE("i64", 1));
SYMBOLS(page, NAMED("x16", PAGE_X16));
SYMBOLS(x_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16), NAMED("f32", DTYPE_F32));
SYMBOLS(kv_dtype, VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ));
SYMBOLS(to, NAMED("index", TO_INDEX), NAMED("column", TO_COLUMN), NAMED("slot", TO_SLOT));
#define OP_NAMED(name, NAME) {name, KGEN_INDEX_##NAME, "OP_" #NAME}
SYMBOLS(op, OP_NAMED("write", WRITE), OP_NAMED("gather", GATHER), OP_NAMED("decode", DECODE),
        OP_NAMED("prefill", PREFILL), OP_NAMED("topk", TOPK));

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, indexer.field), &domain_##domain, symbols_##symbols, \
     dflt, KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/indexer_params.def>
#undef KGEN_PARAM
};
/* clang-format on */
enum { PARAMS = sizeof params / sizeof params[0] };

/* --- what the templates of attention and of caches ask besides ------------- */

FACT(no, 0)
FACT(nhd, KGEN_LAYOUT_NHD)
FACT(shuffle, KGEN_LAYOUT_SHUFFLE)
FACT(xpacked, KGEN_LAYOUT_XPACKED)
FACT(fp16, KGEN_DTYPE_FP16)
FACT(int_8, KGEN_DTYPE_I8)
FACT(int_4, KGEN_DTYPE_I4)
FACT(descale_none, KGEN_DESCALE_NONE)
FACT(descale_token, KGEN_DESCALE_TOKEN)
FACT(descale_block, KGEN_DESCALE_BLOCK)

FACT(head_dim, spec->indexer.head_dim)
/* Keys of a page of 1 or 2 begin at multiples of 4 bytes. */
FACT(row_align, spec->indexer.page == 1 || spec->indexer.page == 2 ? 4 : 16)

/* clang-format off */
static const kgen__fact facts[] = {
    {"Q_DTYPE", fp16}, {"OUT_DTYPE", fp16}, {"DTYPE_I8", int_8}, {"DTYPE_I4", int_4},
    {"LAYOUT", nhd}, {"LAYOUT_SHUFFLE", shuffle}, {"LAYOUT_XPACKED", xpacked}, {"WINDOW", no},
    {"CHUNK", no}, {"BY_MATRICES", no}, {"BY_LINES", no}, {"KEY_QUEUE", no}, {"PAIRED", no}, {"BRINGERS", no}, {"STAGED", no}, {"DIRECT", no}, {"DESCALE", descale_none},
    {"SCALE", descale_token}, {"DESCALE_NONE", descale_none}, {"DESCALE_TOKEN", descale_token},
    {"DESCALE_BLOCK", descale_block}, {"V_DIM", head_dim}, {"ROW_ALIGN", row_align},
    {NULL, NULL}};
/* clang-format on */

/* --- which op reads what ------------------------------------------------- */

#define OP(name) (1u << KGEN_INDEX_##name)

enum {
    LOGITS = OP(DECODE) | OP(PREFILL),
    CACHES = OP(WRITE) | OP(GATHER) | OP(DECODE),
};

static const kgen__reader readers[] = {
    {"x", OP(WRITE)},
    {"kv", CACHES | LOGITS},
    {"d", CACHES | LOGITS},
    {"h", LOGITS},
    {"t", OP(DECODE) | OP(TOPK)},
    {"page", CACHES | OP(TOPK)},
    {"pow2", OP(WRITE)},
    {"clean", LOGITS},
    {"ranges", OP(TOPK)},
    {"to", OP(TOPK)},
    {"slots", OP(WRITE)},
    {"table", OP(GATHER) | OP(DECODE) | OP(TOPK)},
    {"len", LOGITS | OP(TOPK)},
    {"cu", OP(GATHER)},
    {"tiles", LOGITS},
    {"qt", LOGITS},
};

/* --- sm_90: groups of four waves multiply keys that come by way of LDS -------- */

static int is_logits(const kgen_indexer_spec *s) { return LOGITS >> s->op & 1; }

static int by_groups(const kgen_indexer_spec *s, const kgen_target *target) {
    return target && target->isa == KGEN_ISA_SM90 && is_logits(s);
}

/* Without a target, what some target takes. */
static int32_t query_bytes(const kgen_target *target) {
    int many = !target || target->isa == KGEN_ISA_SM90;
    return many ? KG_INDEX_QUERY_SM90 : KG_INDEX_QUERY_BYTES;
}

static int32_t staged_bytes(const kgen_indexer_spec *s, const kgen_target *target) {
    return kg_index_staged_bytes(s->heads, s->head_dim, s->together, s->waves,
                                 kg_index_set_bytes(s->tiles, s->head_dim, target->wave_size));
}

static int32_t launch_lds(const kgen_spec *spec, const kgen_target *target) {
    if (!by_groups(&spec->indexer, target)) return 0;
    int32_t bytes = staged_bytes(&spec->indexer, target);
    return bytes > target->lds_bytes ? bytes : 0;
}

/* Keys of a lane, as fp16, leave room for its sums. */
static kgen_status groups_fit(const kgen_indexer_spec *s, const kgen_target *target,
                              kgen_error *err) {
    REQUIRE(s->waves % KG_INDEX_GROUP == 0,
            "waves=%d: on %s whole groups of four waves multiply keys", s->waves, target->name);
    int32_t most = smaller(2, 256 / s->head_dim);
    REQUIRE(s->tiles <= most,
            "tiles=%d: a lane holds keys of d=%d as fp16; on %s at most %d blocks", s->tiles,
            s->head_dim, target->name, most);
    return KGEN_OK;
}

/* --- applicable --------------------------------------------------------- */

const char *kgen__indexer_op_name(const kgen_indexer_spec *spec) {
    return symbols_op[spec->op].name;
}

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_indexer_spec *s = &spec->indexer;
    int topk = s->op == KGEN_INDEX_TOPK, together = s->together ? s->together : 1;
    int32_t bytes = kg_index_query_bytes(s->heads, s->head_dim), most = query_bytes(target);
    KGEN_TRY(kgen__check_readers(spec, readers, sizeof readers / sizeof readers[0],
                                 spec->indexer.op, kgen__indexer_op_name(&spec->indexer), err));
    REQUIRE(!topk || !s->ranges || s->q_tokens == 1,
            "t=%d: ranges=1 gives each row its columns; leave it out", s->q_tokens);
    REQUIRE(!topk || s->to == KGEN_TO_SLOT || (!s->table && s->page == 64),
            "%s: to=%s reads no table; leave it out", s->table ? "table" : "page",
            s->to == KGEN_TO_COLUMN ? "column" : "index");
    REQUIRE(!topk || s->page != KGEN_PAGE_X16, "page=x16: op=topk has no cache that says the page");
    REQUIRE(together * bytes <= most,
            "qt=%d: queries of h=%d, d=%d take %d bytes of LDS, at most %d", together, s->heads,
            s->head_dim, together * bytes, most);
    REQUIRE(s->op != KGEN_INDEX_DECODE || together < 2 * s->q_tokens,
            "qt=%d: a sequence has t=%d query tokens", together, s->q_tokens);
    REQUIRE(s->tiles * s->head_dim <= 512, "tiles=%d: keys of d=%d, at most %d of them fit a lane",
            s->tiles, s->head_dim, 512 / s->head_dim);
    REQUIRE(!target || s->waves * target->wave_size <= 1024,
            "waves=%d: of %d lanes, at most 1024 lanes", s->waves, target ? target->wave_size : 0);
    if (by_groups(s, target)) return groups_fit(s, target, err);
    return KGEN_OK;
}

/* --- defaults ----------------------------------------------------------- */

static int32_t block_keys(const kgen_target *target) { return target->wave_size == 64 ? 32 : 16; }

/* As many tokens as there are, as far as LDS goes. */
static int32_t together_of(const kgen_indexer_spec *s, const kgen_target *target) {
    int32_t tokens = s->op == KGEN_INDEX_PREFILL ? 4 : s->q_tokens, n = 1;
    int32_t bytes = kg_index_query_bytes(s->heads, s->head_dim);
    while (n < 4 && n < tokens && 2 * n * bytes <= query_bytes(target)) n *= 2;
    return n;
}

/* Registers of a lane: keys, scores, addresses. Measured. gfx1250, which alone of its isa
 * has four SIMDs, sums twice as many k: half of an operand is zeros. */
static int32_t registers_of(const kgen_indexer_spec *s, const kgen_target *target) {
    int32_t zeros = target->isa == KGEN_ISA_RDNA4 && target->simds == 4;
    int32_t keys = kg_index_key_registers(block_keys(target), s->head_dim, target->wave_size);
    if (by_groups(s, target)) return 92 + s->tiles * keys; /* 32 are scores of 64 heads */
    keys += zeros * keys;
    return 48 + s->tiles * (keys + 16);
}

static int32_t lds_of(const kgen_indexer_spec *s, const kgen_target *target) {
    if (by_groups(s, target)) return staged_bytes(s, target) + target->group_lds_bytes;
    return s->together * kg_index_query_bytes(s->heads, s->head_dim) + 4096;
}

static int32_t tiles_of(const kgen_indexer_spec *s, const kgen_target *target) {
    if (by_groups(s, target)) return s->head_dim < 128 ? 2 : 1;
    return s->head_dim > 128 ? 1 : 2;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    kgen_indexer_spec *s = &spec->indexer;
    int32_t registers = 48, lanes = s->op == KGEN_INDEX_TOPK ? 512 : 256;
    if (s->op != KGEN_INDEX_TOPK) s->kv = kgen__native_fp8(s->kv, target);
    if (!s->waves) s->waves = lanes / target->wave_size;
    if (is_logits(s)) {
        if (!s->tiles) s->tiles = tiles_of(s, target);
        if (!s->together) s->together = together_of(s, target);
        registers = registers_of(s, target);
    }
    int32_t groups = target->vgpr_file / registers * target->simds / s->waves;
    if (is_logits(s)) {
        int32_t lds = by_groups(s, target) ? target->unit_lds_bytes : target->lds_bytes;
        groups = smaller(groups, lds / lds_of(s, target));
    }
    if (!s->occupancy) s->occupancy = larger(smaller(groups, 4), 1);
}

int32_t kgen__indexer_group_keys(const kgen_indexer_spec *s, const kgen_target *target) {
    return s->waves * s->tiles * block_keys(target);
}

/* --- launch shape and name ---------------------------------------------- */

static const char *template_of(const kgen_spec *spec) {
    const kgen_indexer_spec *s = &spec->indexer;
    return is_logits(s)               ? "indexer_logits.hip"
           : s->op == KGEN_INDEX_TOPK ? "indexer_topk.hip"
                                      : "indexer_cache.hip";
}

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return spec->indexer.waves * target->wave_size;
}

static int32_t occupancy(const kgen_spec *spec) { return spec->indexer.occupancy; }

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_indexer_spec *s = &spec->indexer;
    const char *op = kgen__indexer_op_name(s);
    char page[16] = "x16";
    if (s->page) snprintf(page, sizeof page, "%d", s->page);
    if (s->op == KGEN_INDEX_TOPK)
        snprintf(out, KGEN_SYMBOL_MAX, "kg_index_topk_t%d%s%s", s->q_tokens,
                 s->ranges ? "_ranges" : "", s->to == KGEN_TO_SLOT ? "_slot" : "");
    else if (is_logits(s))
        snprintf(out, KGEN_SYMBOL_MAX, "kg_index_%s_%s_d%d_h%d_t%d_p%s", op,
                 kgen_dtype_name((kgen_dtype)s->kv), s->head_dim, s->heads, s->q_tokens, page);
    else
        snprintf(out, KGEN_SYMBOL_MAX, "kg_index_%s_%s_d%d_p%s", op,
                 kgen_dtype_name((kgen_dtype)s->kv), s->head_dim, page);
}

const kgen__family kgen__family_indexer = {
    .template_of = template_of,
    .params = params,
    .param_count = PARAMS,
    .facts = facts,
    .applicable = applicable,
    .defaults = defaults,
    .launch_shape = launch_shape,
    .launch_lds = launch_lds,
    .occupancy = occupancy,
    .symbol = symbol,
};

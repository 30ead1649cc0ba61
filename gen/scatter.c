/* Family scatter: page tables, metadata of speculative decoding, trees. An op is
 * a few lines of device code in the template of its group. */
#include "scatter.h"

#include <stdio.h>
#include <string.h>

#include "family.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t units[] = {1, 2, 4, 8, 16};

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_PAGE = RANGE(1, 4096, 1);
static const kgen_domain domain_UNIT = LIST(units);

static const kgen_symbol symbols_none[] = {NO_SYMBOL};
SYMBOLS(boolean, VALUE("0", 0), VALUE("1", 1));
SYMBOLS(i_type, VALUE("i32", 0), VALUE("i64", 1));
SYMBOLS(pick, VALUE("last", 0), VALUE("first", 1));
SYMBOLS(tail, NAMED("zero", TAIL_ZERO), NAMED("keep", TAIL_KEEP), NAMED("value", TAIL_VALUE));
SYMBOLS(form, NAMED("uniform", FORM_UNIFORM), NAMED("ragged", FORM_RAGGED),
        NAMED("draft", FORM_DRAFT), NAMED("last", FORM_LAST));
SYMBOLS(mask, NAMED("words", MASK_WORDS), NAMED("qlen", MASK_QLEN), NAMED("full", MASK_FULL));
SYMBOLS(word, NAMED("u8", DTYPE_U8), NAMED("u16", DTYPE_U16), NAMED("u32", DTYPE_I32),
        NAMED("u64", DTYPE_I64));
static const kgen_symbol symbols_op[] = {
#define KGEN_OP(ID, number, name) NAMED(#name, OP_##ID),
#include <kgen/scatter_ops.def>
    NO_SYMBOL};

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, scatter.field), &domain_##domain, symbols_##symbols, dflt, \
     KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/scatter_params.def>
#undef KGEN_PARAM
};
/* clang-format on */
enum { PARAMS = sizeof params / sizeof params[0] };

/* --- which op reads what ------------------------------------------------- */

#define OP(name) (1u << KGEN_OP_##name)

enum {
    TABLES = OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE),
    BLOCKS = TABLES | OP(DRAFT_PAGE_TABLE),
    ROWS = OP(PAGE_TABLE_REQUESTS) | OP(SPEC_PREPARE) | OP(DRAFT_PAGE_TABLE) |
           OP(DRAFT_KV_INDICES) | OP(KV_INDICES) | OP(CACHE_LOCS) | OP(ASSIGN_LOCS),
    VLLM = OP(SLOT_MAPPING) | OP(EAGLE_STEP),
    MOVES = OP(KV_COMPACT) | OP(GATHER_ROWS) | OP(COPY_PAGES),
    CHUNKS = OP(CHUNK_CONTEXT) | OP(WINDOW_LENS),
    COUNTS =
        OP(SPEC_PREPARE) | OP(DRAFT_LENS) | OP(PADDED_INPUTS) | OP(BONUS_TOKENS) | OP(KEEP_LOCS),
    TREES = OP(TREE_BUILD) | OP(TREE_FROM_MASK) | OP(TREE_VERIFY),
};

static const kgen__reader readers[] = {
    {"page", BLOCKS | VLLM | OP(DRAFT_KV_INDICES) | OP(KV_INDICES) | OP(CACHE_LOCS) |
                 OP(KEEP_LOCS) | OP(EVICT_MASK) | OP(KV_COMPACT)},
    {"swa", TABLES | OP(KV_INDICES)},
    {"pick", BLOCKS},
    {"tail", BLOCKS | OP(KV_INDICES)},
    {"starts", OP(PAGE_TABLE_REQUESTS) | OP(KV_INDICES)},
    {"unaligned", OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS)},
    {"ragged", OP(SPEC_PREPARE)},
    {"accept", OP(SPEC_PREPARE)},
    {"seq", OP(SPEC_PREPARE)},
    {"qo", OP(SPEC_PREPARE)},
    {"kv", OP(SPEC_PREPARE)},
    {"pages", OP(SPEC_PREPARE)},
    {"locs", OP(SPEC_PREPARE)},
    {"pos", OP(SPEC_PREPARE)},
    {"delta", OP(SPEC_PREPARE)},
    {"byreq", OP(PAGE_TABLE_REQUESTS) | OP(SLOT_MAPPING)},
    {"sliced", OP(DRAFT_LENS)},
    {"form", OP(CACHE_LOCS) | OP(ASSIGN_LOCS)},
    {"sampling", OP(TREE_VERIFY) | OP(REJECT)},
    {"race", OP(REJECT)},
    {"mask", OP(TREE_BUILD) | OP(TREE_FROM_MASK) | OP(TREE_MASK)},
    {"word", OP(TREE_BUILD) | OP(TREE_MASK) | OP(TREE_FROM_MASK)},
    {"unit", MOVES},
    {"pack", OP(KV_COMPACT)},
    {"len", ROWS | VLLM | CHUNKS | OP(PAGE_TABLE_RAGGED) | OP(DRAFT_LENS) | OP(PADDED_INPUTS) |
                OP(KEEP_LOCS) | OP(EVICT_MASK) | OP(KV_SPLITS) | OP(TREE_BUILD) |
                OP(TREE_FROM_MASK) | OP(TREE_MASK) | OP(REJECT)},
    {"req", ROWS | OP(SLOT_MAPPING)},
    {"slot", ROWS | VLLM | OP(PAGE_TABLE_RAGGED)},
    {"map", TABLES | OP(KV_INDICES)},
    {"table", BLOCKS | OP(DRAFT_KV_INDICES) | OP(KV_INDICES)},
    {"out", OP(SPEC_PREPARE) | OP(DRAFT_KV_INDICES) | OP(DRAFT_LENS) | OP(EAGLE_STEP) |
                OP(PADDED_INPUTS) | OP(NEXT_TOKEN) | OP(KEEP_LOCS) | OP(KV_SPLITS) |
                OP(ACCEPT_LOCS) | OP(TREE_VERIFY) | OP(REJECT) | CHUNKS},
    {"loc", OP(SPEC_PREPARE) | OP(DRAFT_LENS) | OP(CACHE_LOCS) | OP(ASSIGN_LOCS) | VLLM |
                OP(ACCEPT_LOCS) | OP(KEEP_LOCS) | OP(TREE_BUILD) | OP(TREE_FROM_MASK) | MOVES},
    {"token", OP(NEXT_TOKEN) | OP(BONUS_TOKENS) | OP(TREE_VERIFY) | OP(REJECT)},
    {"acc", COUNTS},
    {"target", OP(REJECT)},
    {"link", TREES},
};

/* --- applicable --------------------------------------------------------- */

const char *kgen__scatter_op_name(const kgen_scatter_spec *spec) {
    for (const kgen_symbol *s = symbols_op; s->name; s++)
        if (s->value == spec->op) return s->name;
    return "?";
}

static kgen_status check_prepare(const kgen_scatter_spec *s, kgen_error *err) {
    if (s->op != KGEN_OP_SPEC_PREPARE) return KGEN_OK;
    REQUIRE(s->seq || s->qo || s->kv || s->pages || s->locs || s->pos,
            "op=spec_prepare: seq, qo, kv, pages, locs and pos are all 0; nothing to do");
    REQUIRE(!s->delta || s->pages, "delta=1: pages=0 writes no table");
    REQUIRE(!s->swa || s->pages || s->locs, "swa=1: pages=0 and locs=0 read no slot");
    REQUIRE(s->pages || (!s->tail && !s->pick), "pages=0: no table; leave tail and pick out");
    return KGEN_OK;
}

static kgen_status check_forms(const kgen_scatter_spec *s, kgen_error *err) {
    REQUIRE(s->op != KGEN_OP_ASSIGN_LOCS || s->form <= KGEN_FORM_RAGGED,
            "form: op=assign_locs writes uniform or ragged columns");
    REQUIRE(s->op != KGEN_OP_CACHE_LOCS || s->form == KGEN_FORM_DRAFT || s->page == 1,
            "page=%d: only form=draft reads it; leave it out", s->page);
    REQUIRE(s->op != KGEN_OP_SPEC_PREPARE || s->accept || !s->accept_type,
            "acc: accept=0 reads no counts; leave it out");
    REQUIRE(s->op != KGEN_OP_SLOT_MAPPING || s->by_request || s->req,
            "req: byreq=0 reads no requests; leave it out");
    REQUIRE(!s->race || s->sampling, "race=1: sampling=0 draws no token");
    REQUIRE(s->swa || s->map, "map: swa=0 reads no mapping; leave it out");
    REQUIRE(s->op != KGEN_OP_TREE_MASK || s->mask,
            "mask=words: op=tree_mask makes words of qlen or full");
    REQUIRE(s->op != KGEN_OP_TREE_FROM_MASK || s->mask != KGEN_MASK_FULL,
            "mask=full: op=tree_from_mask reads qlen or words");
    REQUIRE(s->op == KGEN_OP_TREE_MASK || !s->mask || s->word == KGEN_DTYPE_I32,
            "word: mask=qlen and mask=full have bytes; leave it out");
    return KGEN_OK;
}

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_scatter_spec *s = &spec->scatter;
    (void)target;
    KGEN_TRY(kgen__check_readers(spec, readers, sizeof readers / sizeof readers[0],
                                 spec->scatter.op, kgen__scatter_op_name(&spec->scatter), err));
    REQUIRE((s->page & (s->page - 1)) == 0 || s->page % 16 == 0,
            "page=%d: neither a power of two nor a multiple of 16", s->page);
    REQUIRE(s->page % s->pack == 0, "pack=%d: does not divide page=%d", s->pack, s->page);
    KGEN_TRY(check_prepare(s, err));
    return check_forms(s, err);
}

/* --- template, shape, name ----------------------------------------------- */

static void defaults(kgen_spec *spec, const kgen_target *target) { (void)spec, (void)target; }

static const char *template_of(const kgen_spec *spec) {
    static const struct {
        uint32_t ops;
        const char *name;
    } groups[] = {
        {OP(PAGE_TABLE_RAGGED) | OP(PAGE_TABLE_REQUESTS) | OP(DRAFT_PAGE_TABLE),
         "scatter_pages.hip"},
        {OP(SPEC_PREPARE), "scatter_prepare.hip"},
        {TREES | OP(TREE_MASK) | OP(REJECT), "scatter_tree.hip"},
        {MOVES, "scatter_move.hip"},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i].ops >> spec->scatter.op & 1) return groups[i].name;
    return "scatter_index.hip";
}

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    (void)spec, (void)target;
    return KGEN__SCATTER_LANES;
}

static int32_t occupancy(const kgen_spec *spec) {
    (void)spec;
    return KGEN__SCATTER_OCCUPANCY;
}

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_scatter_spec *s = &spec->scatter;
    char page[16] = "", pack[16] = "";
    if (readers[0].ops >> s->op & 1) snprintf(page, sizeof page, "_p%d", s->page);
    if (s->pack > 1) snprintf(pack, sizeof pack, "_x%d", s->pack);
    snprintf(out, KGEN_SYMBOL_MAX, "kg_%s%s%s%s%s", kgen__scatter_op_name(s), page, pack,
             s->swa ? "_swa" : "", s->delta ? "_delta" : "");
}

const kgen__family kgen__family_scatter = {
    .template_of = template_of,
    .params = params,
    .param_count = PARAMS,
    .applicable = applicable,
    .defaults = defaults,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .symbol = symbol,
};

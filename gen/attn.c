/* Family attn: paged attention. Its table of parameters, what it refuses, and what a launch and a
 * template must know; files beside it say what a kernel needs (attn_needs.c) and fill tuning keys
 * (attn_suit.c by the size of the problem, then attn_fill.c). */
#include <stdio.h>
#include <string.h>

#include "attn.h"
#include "attn_keys.h"
#include "attn_needs.h"
#include "family.h"
#include "templates/kg/attn/attn_shape.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t head_dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512};
static const int32_t small_pages[] = {1, 2, 4, 8};
static const int32_t row_tile_counts[] = {1, 2, 3, 4};
static const int32_t cluster_sizes[] = {2, 3, 4, 5, 6, 7, 8, 16};

/* As large as the phase with the most tokens has them. */
union most_tokens {
#define KGEN_ATTN_PHASE(name, NAME, file, most, ...) char name[most];
#include <kgen/attn_phases.def>
};

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_HEAD = LIST(head_dims);
static const kgen_domain domain_GROUP = RANGE(1, 128, 1);
static const kgen_domain domain_TOKENS = RANGE(1, sizeof(union most_tokens), 1);
static const kgen_domain domain_PAGE = LIST_AND_RANGE(small_pages, 16, 65536, 16);
static const kgen_domain domain_WINDOW = RANGE(1, 1 << 24, 1);
static const kgen_domain domain_LOOKBACK = RANGE(1, 1023, 1);
static const kgen_domain domain_PARTS = RANGE(KG_ATTN_PART_STEP, 1 << 24, KG_ATTN_PART_STEP);
static const kgen_domain domain_WAVES = RANGE(1, 16, 1);
static const kgen_domain domain_TILES = LIST(row_tile_counts);
static const kgen_domain domain_CLUSTER = LIST(cluster_sizes);

static const kgen_symbol symbols_none[] = {NO_SYMBOL};
SYMBOLS(invariant, VALUE("0", 0), VALUE("1", 1));
static const kgen_symbol symbols_phase[] = {
#define KGEN_ATTN_PHASE(name, NAME, ...) \
    VALUE(#name, KGEN_PHASE_##NAME), /* templates ask its row */
#include <kgen/attn_phases.def>
    NO_SYMBOL};
SYMBOLS(q_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16), VALUE("fp8", KGEN_DTYPE_FP8),
        NAMED("e4m3fn", DTYPE_E4M3FN), NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2),
        NAMED("f32", DTYPE_F32));
SYMBOLS(kv_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2), NAMED("i8", DTYPE_I8),
        NAMED("i4", DTYPE_I4));
SYMBOLS(o_dtype, VALUE("auto", 0), NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2), NAMED("f32", DTYPE_F32));
SYMBOLS(layout, NAMED("nhd", LAYOUT_NHD), NAMED("hnd", LAYOUT_HND),
        NAMED("shuffle", LAYOUT_SHUFFLE), NAMED("xpacked", LAYOUT_XPACKED));
SYMBOLS(page, NAMED("x16", PAGE_X16));
SYMBOLS(table, VALUE("i32", 0), VALUE("i64", 1));
SYMBOLS(causal, VALUE("0", 0), VALUE("1", 1), NAMED("seq", CAUSAL_SEQ));
SYMBOLS(word, NAMED("u8", DTYPE_U8), NAMED("u16", DTYPE_U16), NAMED("u32", DTYPE_I32),
        NAMED("u64", DTYPE_I64));
SYMBOLS(window, VALUE("off", 0), NAMED("rt", WINDOW_RT));
SYMBOLS(right, VALUE("off", 0), NAMED("rt", WINDOW_RT));
SYMBOLS(chunk, VALUE("off", 0));
SYMBOLS(lookback, VALUE("0", 0));
SYMBOLS(keep, VALUE("off", 0), NAMED("rt", WINDOW_RT));
SYMBOLS(alibi, VALUE("0", 0), VALUE("1", 1), NAMED("sqrt", ALIBI_SQRT));
SYMBOLS(lse, VALUE("0", 0), VALUE("1", 1), NAMED("th", LSE_TH));
SYMBOLS(boolean, VALUE("0", 0), VALUE("1", 1));
SYMBOLS(gate, VALUE("off", 0), NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        NAMED("f32", DTYPE_F32));
SYMBOLS(order, VALUE("cap", 0), VALUE("alibi", 1));
SYMBOLS(descale, NAMED("auto", DESCALE_AUTO), NAMED("none", DESCALE_NONE),
        NAMED("head", DESCALE_HEAD), NAMED("token", DESCALE_TOKEN),
        NAMED("ignore", DESCALE_IGNORE));
SYMBOLS(auto0, VALUE("auto", 0));
SYMBOLS(off, VALUE("off", 0));

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, attn.field), &domain_##domain, symbols_##symbols, dflt, \
     KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/attn_params.def>
#undef KGEN_PARAM
};
/* clang-format on */

/* --- phases ------------------------------------------------------------- */

static const kgen_attn_phase phases[KGEN_PHASE_COUNT] = {
#define KGEN_ATTN_PHASE(name, NAME, ...) [KGEN_PHASE_##NAME] = {#name, __VA_ARGS__},
#include <kgen/attn_phases.def>
};

const kgen_attn_phase *kgen_attn_phase_of(int32_t phase) {
    return (uint32_t)phase < KGEN_PHASE_COUNT ? &phases[phase] : NULL;
}

int32_t kgen_attn_fresh_tokens(const kgen_attn_spec *spec, int32_t context) {
    enum { CHUNK = 2048 };
    return phases[spec->phase].bounded ? spec->q_tokens : smaller(context, CHUNK);
}

int32_t kgen__attn_part_keys(int32_t invariant, int cuts) {
    if (invariant > 1) return invariant;
    return invariant && cuts ? KG_ATTN_PART : 0;
}
/* Row blocks of many queries are enough to share out: whole items go to workgroups there.
 * A flat list has no bound for a sequence's parts. */
static int32_t part_keys_of(const kgen_attn_spec *s) {
    return kgen__attn_part_keys(s->invariant, phases[s->phase].bounded && !s->flat);
}

static const char *template_of(const kgen_spec *spec) {
    return phases[spec->attn.phase].template_name;
}

/* --- defaults ----------------------------------------------------------- */

/* What the target and other keys say. */
static void settle(kgen_attn_spec *s, const kgen_target *target) {
    s->kv = kgen__native_fp8(s->kv, target);
    s->q = kgen__native_fp8(s->q, target);
    if (!s->out) s->out = kgen__is_8bit(s->q) ? KGEN_DTYPE_BF16 : s->q;
    s->out = kgen__native_fp8(s->out, target);
    s->v_dim = kgen__attn_v_dim_of(s);
    if (s->descale == KGEN_DESCALE_AUTO)
        s->descale = s->kv == KGEN_DTYPE_I4 ? KGEN_DESCALE_TOKEN
                     : kgen__is_8bit(s->kv) ? KGEN_DESCALE_HEAD
                                            : KGEN_DESCALE_NONE;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    settle(&spec->attn, target);
    kgen__attn_fill_keys(&spec->attn, target);
}

/* --- applicable --------------------------------------------------------- */

/* The count is up to 96 too high for tuning that kgen__attn_fill_keys would not choose, without
 * conversions, which a compiler does one tile after another; what comes nearer to the bound it
 * decides. Measured on nine architectures (docs/verification.md). */
enum { COUNT_ERROR = 128 };

static kgen_status registers_fit(const kgen_attn_spec *s, const kgen_target *target,
                                 kgen_error *err) {
    int32_t needed = kgen__attn_least_registers(s, target), waves = s->waves * s->v_split;
    int32_t bytes = kgen__attn_lds_bytes(s, target);
    int32_t room = kgen__lane_room(target, waves, s->occupancy, bytes);
    REQUIRE(needed - COUNT_ERROR <= room,
            "mt=%d,vs=%d,waves=%d,occ=%d: a lane needs about %d registers; %s has %d for each",
            s->row_tiles, s->v_split, s->waves, s->occupancy, needed, target->name, room);
    return KGEN_OK;
}

static kgen_status lds_fits(const kgen_attn_spec *s, const kgen_target *target, kgen_error *err) {
    int32_t bytes = kgen__attn_lds_bytes(s, target), most = target->lds_bytes;
    if (target->isa == KGEN_ISA_SM90) most = target->unit_lds_bytes - target->group_lds_bytes;
    REQUIRE(bytes <= most, "mt=%d,vs=%d,waves=%d: a workgroup has %d bytes of LDS; %s has %d",
            s->row_tiles, s->v_split, s->waves, bytes, target->name, most);
    return KGEN_OK;
}

static kgen_status tuning_fits(const kgen_attn_spec *s, const kgen_target *target,
                               kgen_error *err) {
    if (!s->waves || !s->row_tiles || !s->v_split || !s->occupancy) return KGEN_OK; /* auto */
    kgen_attn_spec settled = *s;
    settle(&settled, target);
    KGEN_TRY(registers_fit(&settled, target, err));
    return lds_fits(&settled, target, err);
}

static int reads_descales(const kgen_attn_spec *s) {
    return s->descale == KGEN_DESCALE_HEAD || s->descale == KGEN_DESCALE_TOKEN;
}

/* How keys and values lie, and what their numbers stand for. */
static kgen_status applicable_cache(const kgen_attn_spec *s, kgen_error *err) {
    REQUIRE(!kgen__is_packed(s->layout) || !kgen__is_small_page(s->page),
            "page=%d: layout=%s packs 16 bytes of tokens; use nhd or hnd, or a page of 16 or more",
            s->page, kgen_layout_name((kgen_layout)s->layout));
    REQUIRE(s->kv != KGEN_DTYPE_I4 || !kgen__is_packed(s->layout),
            "layout=%s: kv=i4 has two dims in a byte, and packed values have two tokens there; use "
            "nhd or hnd",
            kgen_layout_name((kgen_layout)s->layout));
    REQUIRE(s->kv != KGEN_DTYPE_I4 || (s->head_dim % 32 == 0 && kgen__attn_v_dim_of(s) % 32 == 0),
            "d=%d, dv=%d: kv=i4 has 32 dims in 16 bytes; multiples of that", s->head_dim,
            kgen__attn_v_dim_of(s));
    REQUIRE(kgen__is_8bit(s->kv) || !reads_descales(s),
            "descale: kv=%s is not quantised; only 8-bit KV takes descales, ignore accepts them",
            kgen_dtype_name((kgen_dtype)s->kv));
    return KGEN_OK;
}

/* Keys of a chunk and those it looks back to. */
enum { MOST_CHUNKS = 1 << 24 };

/* Which keys there are, and which of them a query sees. */
static kgen_status applicable_keys(const kgen_attn_spec *s, const kgen_attn_phase *phase,
                                   kgen_error *err) {
    REQUIRE(phase->ragged || s->causal == 1,
            "causal=%s: phase=%s has one query token a sequence, which is the last",
            s->causal ? "seq" : "0", phase->name);
    REQUIRE(!phase->dense ||
                (s->page == 1 && s->layout == KGEN_LAYOUT_NHD && !s->flat && !s->table),
            "page: phase=%s has keys without pages: page=1,layout=nhd, no table", phase->name);
    REQUIRE(!phase->dense || !kgen__attn_is_integer(s->kv),
            "kv=%s: phase=%s has keys and values as they come, which nobody has quantised",
            kgen_dtype_name((kgen_dtype)s->kv), phase->name);
    REQUIRE(!phase->tree || s->causal == 1, "causal: phase=tree has words that say who sees whom");
    REQUIRE(phase->tree || s->word == KGEN_DTYPE_I32, "word: phase=%s has no masks", phase->name);
    REQUIRE(!phase->tree || s->q_tokens <= 8 * kgen_dtype_size((kgen_dtype)s->word),
            "t=%d: a word has %d bits", s->q_tokens, 8 * kgen_dtype_size((kgen_dtype)s->word));
    REQUIRE(!s->right || s->causal != 1, "right=%d: causal=1 shows no key behind a query",
            s->right);
    REQUIRE(!s->chunk || !s->window, "chunk=%d: a window bounds the same keys; one of them",
            s->chunk);
    REQUIRE((int64_t)s->chunk * (s->lookback + 1) <= MOST_CHUNKS,
            "chunk=%d: with lookback=%d more than %d keys", s->chunk, s->lookback, MOST_CHUNKS);
    REQUIRE(s->chunk || !s->lookback, "lookback=%d: chunk=off", s->lookback);
    REQUIRE(s->window || s->chunk || !s->keep,
            "keep: without window or chunk every query sees the first keys");
    REQUIRE(!s->spans || (phase->ragged && !phase->tree && s->causal),
            "spans: phase=%s,causal=%d has no query that a span would show more keys", phase->name,
            s->causal);
    return KGEN_OK;
}

/* What must not show of a batch, and what its sequences share. */
static kgen_status applicable_batch(const kgen_attn_spec *s, const kgen_attn_phase *phase,
                                    kgen_error *err) {
    REQUIRE(!s->invariant || !s->keep,
            "invariant: keep=%d moves with the window which waves see what", s->keep);
    REQUIRE(s->invariant <= 1 || phase->bounded,
            "invariant=%d: phase=%s does not cut the keys of a row block; invariant=1",
            s->invariant, phase->name);
    REQUIRE(s->invariant <= 1 || !s->flat,
            "invariant=%d: flat=1 says no most number of keys of a sequence, for whose parts there "
            "would be room; invariant=1 cuts none",
            s->invariant);
    if (!s->cascade) return KGEN_OK;
    REQUIRE(!phase->dense, "cascade: phase=%s has no pages that sequences share", phase->name);
    REQUIRE(!(s->window || s->chunk),
            "cascade: queries do not see a prefix whole through a window or chunks");
    REQUIRE(!s->alibi,
            "cascade: alibi leans on distances, which differ among the sequences of a prefix");
    REQUIRE(!s->invariant, "cascade: invariant, and which sequences share a prefix is the batch's");
    return KGEN_OK;
}

kgen_status kgen__cluster_fits(int32_t cluster, int32_t invariant, const kgen_target *target,
                               kgen_error *err) {
    REQUIRE(!cluster || !invariant, "cluster=%d: invariant says where keys are cut", cluster);
    REQUIRE(!cluster || !target || target->isa == KGEN_ISA_SM90,
            "cluster=%d: workgroups of %s do not read each other's LDS; off", cluster,
            target->name);
    return KGEN_OK;
}

static kgen_status applicable_cluster(const kgen_attn_spec *s, const kgen_attn_phase *phase,
                                      const kgen_target *target, kgen_error *err) {
    if (!s->cluster) return KGEN_OK;
    REQUIRE(phase->bounded, "cluster=%d: phase=%s has row blocks enough to share out", s->cluster,
            phase->name);
    REQUIRE(!s->cascade, "cluster=%d: with cascade a row has parts of two items", s->cluster);
    return kgen__cluster_fits(s->cluster, s->invariant, target, err);
}

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_attn_spec *s = &spec->attn;
    const kgen_attn_phase *phase = kgen_attn_phase_of(s->phase);
    REQUIRE(s->q_tokens <= phase->most_tokens || !phase->bounded,
            "t=%d: out of bounds; phase=%s has at most %d query tokens a sequence", s->q_tokens,
            phase->name, phase->most_tokens);
    REQUIRE(s->q_tokens == 1 || phase->bounded,
            "t=%d: phase=%s has no most number of query tokens; leave it out", s->q_tokens,
            phase->name);
    KGEN_TRY(applicable_cache(s, err));
    KGEN_TRY(applicable_keys(s, phase, err));
    KGEN_TRY(applicable_batch(s, phase, err));
    REQUIRE(!kgen__is_8bit(s->kv) || s->descale != KGEN_DESCALE_IGNORE,
            "descale=ignore: kv=%s is quantised; head, token, or none for descales of 1",
            kgen_dtype_name((kgen_dtype)s->kv));
    REQUIRE(phase->bounded || (s->waves & (s->waves - 1)) == 0,
            "waves=%d: phase=%s cuts a row block in halves; a power of two", s->waves, phase->name);
    REQUIRE(!s->offsets || phase->ragged, "cu=i64: phase=%s has no cu_seqlens_q", phase->name);
    REQUIRE(!s->cap_last || (s->softcap && s->alibi),
            "order=alibi: softcap=%d, alibi=%d; an order needs both", s->softcap, s->alibi);
    KGEN_TRY(applicable_cluster(s, phase, target, err));
    return target ? tuning_fits(s, target, err) : KGEN_OK;
}

/* --- launch shape and name ---------------------------------------------- */

kgen__attn_geometry kgen__attn_geometry_of(const kgen_attn_spec *spec, const kgen_target *target) {
    const kgen__attn_isa *isa = kgen__attn_isa_of(target);
    int32_t rows = kgen__attn_rows_of(spec, isa), dims = spec->head_dim + spec->v_dim;
    int bounded = phases[spec->phase].bounded;
    return (kgen__attn_geometry){
        .rows = rows,
        .waves = spec->waves,
        .row_blocks = bounded ? kg_attn_row_blocks(spec->group, spec->q_tokens, rows) : 0,
        .maps = kgen__attn_bringers_of(spec, isa) ? KG_ATTN_MAPS : 0,
        .joins = spec->cascade,
        .part_keys = part_keys_of(spec),
        .block_keys = isa->keys,
        .item_cost = kgen__attn_way_of(spec, isa) == KGEN__BY_MATRICES
                         ? kg_attn_buffered_cost(bounded ? 1 : spec->waves, dims,
                                                 kgen__attn_bringers_of(spec, isa))
                         : kg_attn_item_cost(isa->keys, dims, kgen__bits_of(spec->kv)),
    };
}

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    int32_t bringers = kgen__attn_bringers_of(&spec->attn, kgen__attn_isa_of(target));
    return (spec->attn.waves * spec->attn.v_split + bringers) * target->wave_size;
}

static int32_t launch_lds(const kgen_spec *spec, const kgen_target *target) {
    int32_t bytes = kgen__attn_lds_bytes(&spec->attn, target);
    return target->isa == KGEN_ISA_SM90 && bytes > target->lds_bytes ? bytes : 0;
}

/* What templates ask instead of the phase's number, and of the target. Waves read the cache, or
 * what lies in LDS for long queries; those of mla have a stage. */
FACT(part_keys, part_keys_of(&spec->attn))
FACT(is_bounded, phases[spec->attn.phase].bounded)
FACT(is_ragged, phases[spec->attn.phase].ragged)
FACT(is_tree, phases[spec->attn.phase].tree)
FACT(is_dense, phases[spec->attn.phase].dense)
FACT(by_matrices, kgen__attn_way_of(&spec->attn, kgen__attn_isa_of(target)) == KGEN__BY_MATRICES)
FACT(by_lines, kgen__attn_way_of(&spec->attn, kgen__attn_isa_of(target)) == KGEN__BY_LINES
                   ? 1 + kgen__attn_isa_of(target)->values
                   : 0)
FACT(bringers, kgen__attn_bringers_of(&spec->attn, kgen__attn_isa_of(target)))
FACT(key_queue, kgen__attn_queue_of(&spec->attn, kgen__attn_isa_of(target)))
FACT(yields, kgen__attn_yields_q(&spec->attn, kgen__attn_isa_of(target)))
FACT(no, 0)

static const kgen__fact facts[] = {{"PART_KEYS", part_keys}, {"BOUNDED", is_bounded},
                                   {"RAGGED", is_ragged},    {"TREE", is_tree},
                                   {"DENSE", is_dense},      {"STAGED", no},
                                   {"PAIRED", no},           {"BRINGERS", bringers},
                                   {"MATRICES_BYTES", no},   {"DIRECT", no},
                                   {"SPARSE", no},           {"BY_MATRICES", by_matrices},
                                   {"BY_LINES", by_lines},   {"KEY_QUEUE", key_queue},
                                   {"Q_YIELDS", yields},     {NULL, NULL}};

static int32_t occupancy(const kgen_spec *spec) { return spec->attn.occupancy; }
static int32_t cluster(const kgen_spec *spec) { return spec->attn.cluster; }

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_attn_spec *s = &spec->attn;
    char page[16] = "x16";
    if (s->page) snprintf(page, sizeof page, "%d", s->page);
    snprintf(out, KGEN_SYMBOL_MAX, "kg_attn_%s_%s_kv%s_d%d_g%d_p%s_%s%s%s%s%s%s%s%s%s",
             kgen_attn_phase_of(s->phase)->name, kgen_dtype_name((kgen_dtype)s->q),
             kgen_dtype_name((kgen_dtype)s->kv), s->head_dim, s->group, page,
             kgen_layout_name((kgen_layout)s->layout), s->causal == 1 ? "" : "_both",
             s->window || s->right || s->chunk ? "_window" : "", s->softcap ? "_softcap" : "",
             s->alibi ? "_alibi" : "", s->sinks ? "_sinks" : "", s->gate ? "_gate" : "",
             s->invariant ? "_invariant" : "", s->cascade ? "_cascade" : "");
}

const kgen__family kgen__family_attn = {
    .template_of = template_of,
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .facts = facts,
    .applicable = applicable,
    .defaults = defaults,
    .suit = kgen__attn_suit,
    .launch_shape = launch_shape,
    .launch_lds = launch_lds,
    .occupancy = occupancy,
    .cluster = cluster,
    .symbol = symbol,
};

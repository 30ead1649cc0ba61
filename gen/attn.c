/* Family attn: paged attention. */
#include <stdio.h>
#include <string.h>

#include "attn.h"
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
static int is_packed(int32_t layout) {
    return layout == KGEN_LAYOUT_SHUFFLE || layout == KGEN_LAYOUT_XPACKED;
}

static const char *template_of(const kgen_spec *spec) {
    return phases[spec->attn.phase].template_name;
}

/* --- applicable --------------------------------------------------------- */

static int is_8bit(int32_t dtype) { return kgen_dtype_size((kgen_dtype)dtype) == 1; }
static int is_integer(int32_t dtype) { return dtype == KGEN_DTYPE_I8 || dtype == KGEN_DTYPE_I4; }
static int bits_of(int32_t dtype) {
    return 8 * kgen_dtype_size((kgen_dtype)dtype) / kgen_dtype_values((kgen_dtype)dtype);
}
static int reads_descales(const kgen_attn_spec *s) {
    return s->descale == KGEN_DESCALE_HEAD || s->descale == KGEN_DESCALE_TOKEN;
}
static int32_t v_dim_of(const kgen_attn_spec *s) { return s->v_dim ? s->v_dim : s->head_dim; }

/* Keys of a chunk and those it looks back to. */
enum { MOST_CHUNKS = 1 << 24 };

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

static kgen_status registers_fit(const kgen_attn_spec *s, const kgen_target *target,
                                 kgen_error *err);

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
    REQUIRE(!is_packed(s->layout) || !kgen__is_small_page(s->page),
            "page=%d: layout=%s packs 16 bytes of tokens; use nhd or hnd, or a page of 16 or more",
            s->page, kgen_layout_name((kgen_layout)s->layout));
    REQUIRE(s->kv != KGEN_DTYPE_I4 || !is_packed(s->layout),
            "layout=%s: kv=i4 has two dims in a byte, and packed values have two tokens there; use "
            "nhd or hnd",
            kgen_layout_name((kgen_layout)s->layout));
    REQUIRE(s->kv != KGEN_DTYPE_I4 || (s->head_dim % 32 == 0 && v_dim_of(s) % 32 == 0),
            "d=%d, dv=%d: kv=i4 has 32 dims in 16 bytes; multiples of that", s->head_dim,
            v_dim_of(s));
    REQUIRE(is_8bit(s->kv) || !reads_descales(s),
            "descale: kv=%s is not quantised; only 8-bit KV takes descales, ignore accepts them",
            kgen_dtype_name((kgen_dtype)s->kv));
    REQUIRE(phase->ragged || s->causal == 1,
            "causal=%s: phase=%s has one query token a sequence, which is the last",
            s->causal ? "seq" : "0", phase->name);
    REQUIRE(!phase->dense ||
                (s->page == 1 && s->layout == KGEN_LAYOUT_NHD && !s->flat && !s->table),
            "page: phase=%s has keys without pages: page=1,layout=nhd, no table", phase->name);
    REQUIRE(!phase->dense || !is_integer(s->kv),
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
    KGEN_TRY(applicable_batch(s, phase, err));
    REQUIRE(!is_8bit(s->kv) || s->descale != KGEN_DESCALE_IGNORE,
            "descale=ignore: kv=%s is quantised; head, token, or none for descales of 1",
            kgen_dtype_name((kgen_dtype)s->kv));
    REQUIRE(phase->bounded || (s->waves & (s->waves - 1)) == 0,
            "waves=%d: phase=%s cuts a row block in halves; a power of two", s->waves, phase->name);
    REQUIRE(!s->offsets || phase->ragged, "cu=i64: phase=%s has no cu_seqlens_q", phase->name);
    REQUIRE(!s->cap_last || (s->softcap && s->alibi),
            "order=alibi: softcap=%d, alibi=%d; an order needs both", s->softcap, s->alibi);
    KGEN_TRY(applicable_cluster(s, phase, target, err));
    return target ? registers_fit(s, target, err) : KGEN_OK;
}

/* --- defaults ----------------------------------------------------------- */

/* Which 8-bit floats are converted in integer arithmetic, among the products of
 * all row tiles. */
typedef enum conversions {
    MIXED,        /* those that are not the isa's own kind */
    WHOLLY_MIXED, /* all: it has no conversions */
    TILE_BY_TILE, /* none: the products are kept apart (kg/attn/mma_amd.h) */
} conversions;

/* How keys and values of long queries come: to each wave by itself, or by way of LDS, as
 * matrices (kg/attn/buffer_nvidia.h) or as lines (kg/attn/buffer_lines.h). */
typedef enum long_queries { BY_WAVE, BY_MATRICES, BY_LINES } long_queries;

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

/* What one isa gives a wave. */
typedef struct isa_row {
    int32_t columns;   /* query rows of a row tile */
    int32_t held;      /* of them, those a lane holds scores of */
    int32_t keys;      /* of a block */
    int32_t waves;     /* that share the keys, at most */
    int32_t all_waves; /* of a workgroup whose waves also share the values */
    int32_t v_split;   /* waves that share the values, at most */
    int32_t occupancy; /* workgroups of a compute unit, at most */
    int32_t fixed;     /* registers of addresses, ids, conversions; measured */
    conversions fp8;
    long_queries by;
    int32_t values;      /* KG_ATTN_PERMUTED or another, as they come out of lines */
    int32_t line_waves;  /* of a SIMD, that share lines */
    int32_t line_groups; /* workgroups of a compute unit then, at most */
    int32_t whole;       /* lanes of a wave that hold the same operand */
    int32_t own_file;    /* 1: accumulators have one, as large */
    line_costs lines;
} isa_row;

/* clang-format off */
#define LINES_CDNA {8, 8, 40, 24, 32, 0, 0, 0, 1, 0, 0}
#define LINES_RDNA {0, 0, 0, 40, 0, 28, 8, 3, 0, 28, 16}
#define LINES_NONE {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define ATTN_CDNA1 {16, 1, 32, 4, 4, 1, 2, 64, WHOLLY_MIXED, BY_LINES, KG_ATTN_PERMUTED, 2, 2, 1, 1, LINES_CDNA}
#define ATTN_CDNA2 {16, 1, 32, 4, 4, 1, 2, 64, WHOLLY_MIXED, BY_LINES, KG_ATTN_PERMUTED, 2, 2, 1, 0, LINES_CDNA}
#define ATTN_CDNA3 {16, 1, 32, 4, 4, 1, 2, 64, MIXED, BY_LINES, KG_ATTN_PERMUTED, 2, 2, 1, 0, LINES_CDNA}
#define ATTN_CDNA4 {16, 1, 32, 4, 4, 1, 2, 64, MIXED, BY_LINES, KG_ATTN_TURNED_BY_LDS, 2, 2, 1, 0, LINES_CDNA}
#define ATTN_RDNA2 {16, 1, 16, 4, 8, 4, 2, 72, TILE_BY_TILE, BY_WAVE, KG_ATTN_PERMUTED, 0, 0, 1, 0, LINES_NONE}
#define ATTN_RDNA3 {16, 1, 16, 4, 8, 4, 2, 72, TILE_BY_TILE, BY_LINES, KG_ATTN_TURNED_BEFORE, 4, 1, 2, 0, LINES_RDNA}
#define ATTN_RDNA4 {16, 1, 16, 4, 8, 4, 2, 64, TILE_BY_TILE, BY_LINES, KG_ATTN_TURNED_BEFORE, 4, 1, 1, 0, LINES_RDNA}
#define ATTN_SM90 {8,  2, 16, 8, 8, 4, 1, 66, MIXED, BY_MATRICES, KG_ATTN_PERMUTED, 0, 0, 1, 0, LINES_NONE}
/* clang-format on */

static const isa_row isa_rows[KGEN_ISA_COUNT] = {
#define KGEN_ISA(NAME, ...) [KGEN_ISA_##NAME] = ATTN_##NAME,
#include <kgen/targets.def>
};

/* Of a KV head: so many that waves better have rows of their own than keys. */
static int has_many_rows(const kgen_attn_spec *s, const isa_row *isa) {
    enum { FEW = 16 };
    if (!phases[s->phase].bounded) return 1;
    int fits = isa->by == BY_MATRICES && s->v_dim <= 256 && !is_packed(s->layout);
    /* invariant: what decode computes of few rows, verify is to compute of many. */
    return fits && s->group * s->q_tokens > FEW && !s->invariant;
}

/* Matrices are multiplied with by four waves of 16 rows; wider lines find no room. */
static long_queries way_of(const kgen_attn_spec *s, const isa_row *isa) {
    int shares = s->waves == 4 || (s->waves == 8 && s->cluster); /* keys: kg_attn_key_groups */
    int waves = phases[s->phase].bounded ? shares : s->waves % 4 == 0;
    int fits =
        isa->by == BY_MATRICES ? waves && s->row_tiles == 2 : s->head_dim <= 256 && s->v_dim <= 256;
    int can = has_many_rows(s, isa) && !is_packed(s->layout) && s->v_split == 1;
    return fits && can ? isa->by : BY_WAVE;
}

/* A third group of waves, which brings the rows of keys and values that two multiply, in boxes of a
 * page's, and makes numbers of 8-bit codes that the hardware reads. Prefixes, scales of tokens,
 * codes of kept keys, and scores with a cap and a slope have no registers left, nor with a cap has
 * the division by 7. */
static int32_t bringers_of(const kgen_attn_spec *s, const isa_row *isa) {
    int capped = s->softcap && (s->alibi || s->group % 7 == 0);
    int fits = !phases[s->phase].bounded && s->waves == 8 && s->occupancy == 1 && !s->cascade &&
               s->head_dim <= 256 && v_dim_of(s) <= 256 && !capped;
    int boxes = phases[s->phase].dense || !kgen__is_small_page(s->page);
    int as_it_is = bits_of(s->kv) == 16 && !(s->kv == KGEN_DTYPE_BF16 && s->q == KGEN_DTYPE_FP16);
    int codes = is_8bit(s->kv) && s->kv != KGEN_DTYPE_E4M3FNUZ &&
                s->descale != KGEN_DESCALE_TOKEN && !s->keep;
    return fits && boxes && (as_it_is || codes) && way_of(s, isa) == BY_MATRICES ? KG_ATTN_BRINGERS
                                                                                 : 0;
}

/* Lines whose values need no byte permutes as they are read. */
static int is_turned(const kgen_attn_spec *s, const isa_row *isa) {
    return way_of(s, isa) == BY_LINES && isa->values != KG_ATTN_PERMUTED;
}

/* Elements of 16 bytes of what a wave loads operands from. */
static int32_t x_of(const kgen_attn_spec *s, const isa_row *isa) {
    return way_of(s, isa) == BY_LINES ? 8 : 128 / bits_of(s->kv);
}

static int32_t part_dims(const kgen_attn_spec *s, const isa_row *isa) {
    int32_t tiles = is_packed(s->layout) || way_of(s, isa) == BY_MATRICES || is_turned(s, isa);
    return kg_attn_part_dims(s->v_dim, s->v_split, isa->columns, x_of(s, isa), tiles, 0);
}

static int32_t slice_dims(const kgen_attn_spec *s, const isa_row *isa) {
    return kg_attn_slice_dims(s->v_dim, s->v_split, part_dims(s, isa));
}

static int32_t acc_registers(const kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    return kg_attn_acc_registers(s->row_tiles, slice_dims(s, isa), isa->columns, target->wave_size);
}

/* Registers of Q, and what of them lies in LDS. */
static int32_t q_registers_of(const kgen_attn_spec *s, const kgen_target *target, int32_t dims) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t groups = target->wave_size / isa->columns;
    int32_t x = way_of(s, isa) == BY_MATRICES ? 8 : x_of(s, isa);
    return kg_attn_q_registers(s->row_tiles, dims, groups, x);
}
static int32_t q_registers(const kgen_attn_spec *s, const kgen_target *target) {
    return q_registers_of(s, target, s->head_dim);
}
/* Each wave, instead of sharing the keys of the same rows. */
static int32_t has_own_rows(const kgen_attn_spec *s, const isa_row *isa) {
    return !phases[s->phase].bounded || way_of(s, isa) == BY_MATRICES;
}
/* 8-bit codes of several row tiles: whoever multiplies by them has no registers left for the next,
 * and each wave converts what it has. Scales of tokens come one by one, and a prefix has no pages
 * of its own. Nor have four tiles of wide values any for a tree's masks. */
static int suits_queue(const kgen_attn_spec *s, const isa_row *isa) {
    enum { ROWS_OF_TREES = 24, NARROW = 64 };
    int masks = phases[s->phase].tree && v_dim_of(s) > NARROW;
    if (masks && s->group * s->q_tokens > ROWS_OF_TREES) return 0;
    int codes = is_8bit(s->kv) && bits_of(s->kv) == 8 && s->descale != KGEN_DESCALE_TOKEN;
    int plain = phases[s->phase].bounded && !is_packed(s->layout) && !s->cascade && !s->invariant;
    return isa->by == BY_MATRICES && codes && plain;
}
/* Blocks of keys and values that wait in LDS for each wave (kg/attn/queue_nvidia.h): one is
 * multiplied, two are on their way. */
static int32_t queue_of(const kgen_attn_spec *s, const isa_row *isa) {
    enum { BLOCKS = 3 };
    int fits = s->row_tiles > 1 && s->v_split == 1 && way_of(s, isa) == BY_WAVE;
    return fits && suits_queue(s, isa) ? BLOCKS : 0;
}
static int32_t queue_bytes(const kgen_attn_spec *s, const isa_row *isa) {
    return queue_of(s, isa) * s->waves *
           kg_attn_queue_slot(isa->keys, s->head_dim, s->v_dim, bits_of(s->kv));
}
/* Row tiles of a KV head whose rows each wave has all of, with keys of its own from there: as
 * matrices half of them would be idle, and a set wait until it is converted. 0: not so. */
static int32_t queued_tiles(const kgen_attn_spec *s, const isa_row *isa) {
    enum { LEAST = 9, MOST = 32, WIDE = 128 };
    int32_t rows = s->group * s->q_tokens;
    int fits = suits_queue(s, isa) && s->head_dim <= WIDE && v_dim_of(s) <= WIDE;
    return fits && rows >= LEAST && rows <= MOST ? ceil_div(rows, isa->columns) : 0;
}
static int32_t key_groups_of(const kgen_attn_spec *s, const isa_row *isa) {
    return kg_attn_key_groups(s->waves, way_of(s, isa) == BY_MATRICES, phases[s->phase].bounded);
}

/* Codes with one scale a head, in whole pages, and nothing that takes a lane more registers. */
static int is_plain(const kgen_attn_spec *s) {
    enum { LEAST_PAGE = 16 };
    int floats = s->q == KGEN_DTYPE_F32 || s->out == KGEN_DTYPE_F32;
    int marked = s->window || s->chunk || s->softcap || s->alibi || s->gate;
    int whole = s->page >= LEAST_PAGE && !is_packed(s->layout);
    return bits_of(s->kv) == 8 && s->descale == KGEN_DESCALE_HEAD && whole && !floats && !marked;
}
/* Sixteen waves of a unit over codes, and twelve of two row tiles, have registers for queries only
 * where nothing else takes them: tried on some hundred specs. */
static int yields_q(const kgen_attn_spec *s, const isa_row *isa) {
    enum { CROWD = 16, LARGE = 8 };
    int32_t waves = s->waves * s->v_split;
    if (queue_of(s, isa)) return s->row_tiles == 2 && waves * s->occupancy > LARGE;
    int reads_itself = isa->by == BY_MATRICES && way_of(s, isa) == BY_WAVE && s->row_tiles == 1;
    int crowded = bits_of(s->kv) < 16 && waves * s->occupancy >= CROWD;
    return reads_itself && crowded && !(is_plain(s) && waves == LARGE);
}

/* Of a row block. */
static int32_t rows_of(const kgen_attn_spec *s, const isa_row *isa) {
    return kg_attn_block_rows(kg_attn_rows(s->row_tiles, isa->columns), s->waves,
                              has_own_rows(s, isa), key_groups_of(s, isa));
}
static int32_t ahead_of(const kgen_attn_spec *s, const kgen_target *target) {
    return kg_attn_ahead(acc_registers(s, target), s->row_tiles, target->wave_size,
                         target->isa == KGEN_ISA_SM90);
}
static int32_t q_in_lds(const kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t sm90 = target->isa == KGEN_ISA_SM90;
    long_queries way = way_of(s, isa);
    int32_t keeps =
        kg_attn_q_keeps(acc_registers(s, target), ahead_of(s, target), target->wave_size, sm90,
                        way == BY_MATRICES, bringers_of(s, isa), yields_q(s, isa));
    return way != BY_LINES && q_registers(s, target) > keeps;
}

/* q: bytes of queries in LDS. */
static int32_t q_lds_bytes(const kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t copies = has_own_rows(s, isa) ? s->waves : 1;
    int32_t matrices = way_of(s, isa) == BY_MATRICES;
    int32_t dims = kg_attn_q_lds_dims(s->head_dim, matrices);
    if (!q_in_lds(s, target)) return 0;
    int32_t scales = queue_of(s, isa) ? 4 * rows_of(s, isa) : 0;
    return q_registers_of(s, target, dims) * target->wave_size * 4 * copies + scales;
}
/* Of those who go by way of LDS. */
static kg_attn_sets sets_of(const kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    if (way_of(s, isa) == BY_LINES)
        return kg_attn_lines_of(target->lds_bytes / s->occupancy, isa->keys, s->waves,
                                target->wave_size, s->head_dim, s->v_dim, bits_of(s->kv),
                                isa->values, s->descale == KGEN_DESCALE_TOKEN);
    int32_t most = kg_attn_most_blocks(acc_registers(s, target), s->descale == KGEN_DESCALE_TOKEN,
                                       bringers_of(s, isa));
    int32_t groups = key_groups_of(s, isa);
    return kg_attn_matrices_of(most, isa->keys, s->head_dim, s->v_dim, bits_of(s->kv),
                               s->occupancy * groups, q_lds_bytes(s, target) / groups,
                               bringers_of(s, isa));
}
/* Of `dim` dims on their way to lines, as many as a set has of each token. */
static int32_t on_their_way(const kgen_attn_spec *s, const kgen_target *target, int32_t dim) {
    return kg_attn_on_their_way(sets_of(s, target).blocks, isa_rows[target->isa].keys, s->waves,
                                target->wave_size, dim, bits_of(s->kv));
}

static int32_t mixes_conversions(const kgen_attn_spec *s, const kgen_target *target) {
    conversions fp8 = isa_rows[target->isa].fp8;
    if (!is_8bit(s->kv) || is_integer(s->kv) || fp8 == TILE_BY_TILE) return 0;
    return fp8 == WHOLLY_MIXED || (s->kv == KGEN_DTYPE_E4M3FNUZ) != target->fp8_fnuz;
}

/* SCALED_VALUES and ROW_SUMS of kg/attn/lines_of_tokens.h, of few dims: no row tile holds the
 * values' scales, or adds up. */
static int scales_values(const kgen_attn_spec *s, const isa_row *isa) {
    return isa->values == KG_ATTN_TURNED_BY_LDS && s->descale == KGEN_DESCALE_TOKEN &&
           s->q == KGEN_DTYPE_BF16 && !s->lse;
}

/* Few dims of 8 bits, in steps that hold nothing: as if they had 16. */
static int converts_lightly(const kgen_attn_spec *s, const kgen_target *target) {
    int narrow = s->head_dim + s->v_dim <= 128, scales = s->descale == KGEN_DESCALE_TOKEN;
    int edges = s->right || (s->causal == KGEN_CAUSAL_SEQ && (s->window || s->chunk));
    int light = scales ? scales_values(s, &isa_rows[target->isa]) : bits_of(s->kv) == 8;
    return light && narrow && !s->cascade && !s->keep && !edges && !mixes_conversions(s, target);
}

enum { CONVERSIONS = 28 }; /* of a row tile, where they are among its products; measured */

/* Registers of a lane in the key loop: accumulators, queries, keys and values
 * in flight, and for each row tile its scores, probabilities and running sums. */
static int32_t registers_needed(const kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t wave = target->wave_size, bits = bits_of(s->kv);
    int32_t tile = isa->columns * isa->keys / wave, acc = acc_registers(s, target);
    int32_t ahead = ahead_of(s, target);
    int32_t k = smaller(ahead, s->head_dim * isa->keys * bits / 32 / wave);
    int32_t v = smaller(ahead, slice_dims(s, isa) * isa->keys * bits / 32 / wave);
    int32_t q = q_in_lds(s, target) ? 16 : q_registers(s, target); /* 16: being read */
    int32_t facts = 4 + !!s->alibi + s->spans; /* of a column: maximum, sum, scale, position */
    int32_t scales = s->descale == KGEN_DESCALE_TOKEN ? 2 * tile : 0;
    int32_t ids = kgen__is_small_page(s->page) ? 16 : 0; /* page numbers, one a token */
    int32_t mixed = mixes_conversions(s, target) ? CONVERSIONS : 0;
    int32_t fixed = isa->fixed;
    /* What of a group and its sequences waits for the end of a segment; measured. */
    int32_t wide = s->head_dim >= 256 && bits == 16 && target->isa == KGEN_ISA_RDNA3;
    if (wide && s->cascade && !phases[s->phase].bounded) fixed += 40;
    /* A group's rows have their sequences' scales, each its own; measured, as the others are. */
    int rows_differ = s->descale == KGEN_DESCALE_HEAD || is_8bit(s->q) || s->q == KGEN_DTYPE_F32;
    if (wave == 64 && s->keep && phases[s->phase].tree && s->head_dim > 128) fixed += 40;
    if (wave == 64 && s->cascade) {
        fixed += !phases[s->phase].bounded ? 28 : rows_differ ? 24 : 0;
        fixed += 4 * s->softcap;
    } else if (wave == 64 && s->q == KGEN_DTYPE_F32) {
        fixed += 8; /* as they are rounded */
    }
    if (queue_of(s, isa)) k = 0, v = 0, fixed -= 8; /* in LDS */
    if (way_of(s, isa) == BY_MATRICES) {
        k = 0, v = 0, mixed = 0; /* in LDS, as numbers */
        tile = sets_of(s, target).blocks * isa->keys * isa->columns / wave;
        fixed = 40;
    }
    if (way_of(s, isa) == BY_LINES) {
        const line_costs *c = &isa->lines;
        /* On their way to LDS, from it, and turned by permutes, or converted. */
        int plain = is_turned(s, isa) && (bits == 16 || converts_lightly(s, target));
        k = on_their_way(s, target, s->head_dim) + c->keys;
        v = on_their_way(s, target, s->v_dim) + (plain ? c->turned : c->values);
        int leans = s->softcap && s->alibi;
        fixed = isa->fixed + c->cascade * s->cascade;
        fixed += target->simds > 2 ? c->more_simds + c->leant * leans : 0;
        fixed += bits == 4 ? c->bits4 : bits == 8 ? c->bits8 : 0;
        int apart = bits == 4 && s->descale != KGEN_DESCALE_TOKEN;
        if (apart && s->head_dim + s->v_dim > 128) fixed += c->apart;
        int32_t whole = isa->whole * q;
        int fits = whole <= kg_attn_whole_words(bits, s->cascade, scales);
        q = fits || isa->whole == 1 ? whole : q + 8; /* made whole where they are multiplied */
        /* Where a row's slope begins, and how it goes on. */
        if (s->alibi && !leans) fixed += (bits == 4 ? 2 : 1) * s->row_tiles;
        fixed += scales * c->scale_halves / 2;
        ids *= phases[s->phase].dense && !s->keep ? 0 : c->ids;
        scales = 0; /* read from LDS, where there were scores */
    }
    return acc + k + v + q + scales + ids + fixed +
           s->row_tiles * (tile + tile / 2 + facts * isa->held + mixed);
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
    const isa_row *isa = &isa_rows[target->isa];
    int32_t rows = kg_attn_rows(s->row_tiles, isa->columns), part = part_dims(s, isa) / 16;
    int32_t sm90 = target->isa == KGEN_ISA_SM90;
    kg_attn_lds lds = kg_attn_lds_of(
        q, s->waves, s->v_split, rows, rows_of(s, isa), slice_dims(s, isa) / 16, part,
        kg_attn_round_columns(sm90, rows), kg_attn_round_most(sm90, queue_of(s, isa)));
    int32_t bringers = bringers_of(s, isa), waves = s->waves * s->v_split, peers = 0;
    int32_t groups = key_groups_of(s, isa);
    int32_t park = kg_attn_parks(waves, bringers) * KG_ATTN_PARK_BYTES;
    if (bringers) {
        lds = kg_attn_lds_of_own_rows(q, slice_dims(s, isa) / 16);
        park += KG_ATTN_GATE_BYTES;
    }
    if (s->cluster) {
        peers = kg_attn_inbox_of(rows_of(s, isa), s->v_dim, s->cluster, groups).bytes;
        park += kg_attn_turn_bytes(waves);
    }
    long_queries way = way_of(s, isa);
    if (way == BY_WAVE)
        return larger(lds.bytes, kg_attn_queue_at(lds.round) + queue_bytes(s, isa)) + peers +
               (s->cluster || queue_of(s, isa) ? park : 0);
    if (way == BY_LINES) return larger(lds.bytes, lds.round + sets_of(s, target).bytes);
    int32_t stage = ceil_div(lds.round, KG_ATTN_SWIZZLE) * KG_ATTN_SWIZZLE;
    int32_t end = larger(lds.bytes, stage + groups * sets_of(s, target).bytes);
    if (kg_attn_inbox_apart(end + park, peers)) return end + peers + park;
    return larger(end, stage + peers) + park;
}

static int32_t launch_lds(const kgen_spec *spec, const kgen_target *target) {
    int32_t bytes = lds_needed(&spec->attn, target, q_lds_bytes(&spec->attn, target));
    return target->isa == KGEN_ISA_SM90 && bytes > target->lds_bytes ? bytes : 0;
}

/* Registers and KiB of LDS beyond what there is; 0: fits. */
static int32_t excess(const kgen_attn_spec *s, const kgen_target *target) {
    int32_t sm90 = target->isa == KGEN_ISA_SM90;
    int32_t shared = sm90 ? 1 : s->occupancy; /* there 48 KiB are each workgroup's */
    int32_t q = q_lds_bytes(s, target);
    int32_t lds = shared * lds_needed(s, target, q) - target->lds_bytes;
    if (way_of(s, &isa_rows[target->isa]) == BY_MATRICES || queue_of(s, &isa_rows[target->isa]))
        lds = s->occupancy * (lds_needed(s, target, q) + target->group_lds_bytes) -
              target->unit_lds_bytes;
    int32_t registers = registers_needed(s, target) - registers_allowed(s, target);
    return larger(0, ceil_div(lds, 1024)) + larger(0, registers);
}

/* Of a sequence, where the phase sets no bound. */
enum { MANY_TOKENS = 256 };

/* What a KV head's rows read: every row block reads all keys and values, and
 * every wave that shares the values reads all keys. Fewer than two waves a SIMD
 * leave latencies uncovered: a quarter more. */
static int32_t traffic(const kgen_attn_spec *s, const kgen_target *target) {
    int32_t rows = rows_of(s, &isa_rows[target->isa]);
    int32_t tokens = phases[s->phase].bounded && !s->cascade ? s->q_tokens : MANY_TOKENS;
    int32_t reads =
        kg_attn_row_blocks(s->group, tokens, rows) * (s->head_dim * s->v_split + s->v_dim);
    int32_t waves = s->waves * s->v_split * s->occupancy;
    /* Each wave reads for itself what all could share. */
    const isa_row *isa = &isa_rows[target->isa];
    int should = isa->by == BY_MATRICES && has_many_rows(s, isa) && s->v_dim <= 256;
    if (should && way_of(s, isa) == BY_WAVE) reads *= s->waves;
    return waves < 2 * target->simds ? reads * 5 : reads * 4;
}

/* Waves that share values read keys for themselves: only where values are too wide to
 * come by way of LDS. */
static int32_t most_splits(const kgen_attn_spec *s, const isa_row *isa) {
    kgen_attn_spec whole = *s;
    whole.v_split = 1;
    if (!whole.waves) whole.waves = 4;
    if (!whole.row_tiles) whole.row_tiles = 2;
    return way_of(&whole, isa) == BY_MATRICES && s->v_dim <= 256 ? 1 : isa->v_split;
}

/* The candidate numbered `n`, keeping what the spec asks for. */
static kgen_attn_spec candidate(const kgen_attn_spec *s, const isa_row *isa, int n) {
    kgen_attn_spec c = *s;
    if (!c.v_split) c.v_split = smaller(most_splits(s, isa), 1 << n / 8 % 3);
    if (!c.row_tiles) c.row_tiles = 1 + n / 2 % 4;
    if (!c.occupancy) c.occupancy = smaller(isa->occupancy, 2 - n % 2);
    if (!c.waves) c.waves = larger(1, smaller(isa->waves, isa->all_waves / c.v_split) >> n / 24);
    return c;
}

/* 1: a candidate before this one is the same, because the spec or the target leaves no choice. */
static int is_repeated(const kgen_attn_spec *s, int32_t splits, int n) {
    return (s->occupancy && n % 2) || (s->row_tiles && n / 2 % 4) || (s->waves && n / 24) ||
           (n / 8 % 3 && 1 << n / 8 % 3 > splits);
}

/* Of the choices whose registers and LDS fit, the one that reads least. */
static kgen_attn_spec best_candidate(const kgen_attn_spec *s, const kgen_target *target) {
    /* v_split 1 2 4, row_tiles 1..4, occupancy 2 1; all waves, a half, a quarter */
    const isa_row *isa = &isa_rows[target->isa];
    int settled = s->v_split && s->row_tiles && s->occupancy && s->waves;
    int candidates = settled ? 1 : has_many_rows(s, isa) ? 3 * 4 * 2 * 3 : 3 * 4 * 2;
    kgen_attn_spec best = candidate(s, isa, 0);
    int32_t least = candidates > 1 ? excess(&best, target) : 0;
    int32_t splits = s->v_split ? 1 : most_splits(s, isa);
    for (int n = 1; n < candidates; n++) {
        if (is_repeated(s, splits, n)) continue;
        kgen_attn_spec next = candidate(s, isa, n);
        int32_t over = excess(&next, target);
        if (over > least || (over == least && traffic(&next, target) >= traffic(&best, target)))
            continue;
        best = next;
        least = over;
    }
    return best;
}

/* Of a query, at most; 0: all. */
static int32_t seen_keys(const kgen_attn_spec *s) {
    return s->chunk ? s->chunk * (s->lookback + 1) : s->window;
}
static int sees_few_keys(const kgen_attn_spec *s) {
    int32_t seen = seen_keys(s);
    return seen > 0 && seen <= 1024;
}

/* Conversions of 8-bit caches, short windows and long queries are bound by latency:
 * on sm_90 two or three small workgroups then beat one large one
 * (docs/performance.md). How many; 0: one as it comes. */
static int32_t small_groups(const kgen_attn_spec *s, const kgen_target *target) {
    if (target->isa != KGEN_ISA_SM90 || s->waves || s->occupancy || mixes_conversions(s, target))
        return 0;
    int narrow = s->v_dim <= 128 || (phases[s->phase].bounded && bits_of(s->kv) == 16);
    if (queued_tiles(s, &isa_rows[target->isa])) return 2;
    if (has_many_rows(s, &isa_rows[target->isa])) return narrow ? 2 : 0;
    return is_8bit(s->kv) || sees_few_keys(s) ? 3 : 0;
}

/* A short window of one token: with a wave for each of its blocks none takes two turns. */
static int32_t waves_of_window(const kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t blocks = s->window > 0 ? ceil_div(s->window - 1, isa->keys) + 1 : 0;
    int32_t fits = target->wave_size == 64 && blocks > isa->waves && blocks <= isa->waves + 2;
    int32_t free = !s->waves && s->v_split <= 1 && !s->keep && !s->invariant;
    return s->phase == KGEN_PHASE_DECODE && free && fits ? blocks : 0;
}

/* Each wave of one workgroup of all converts half of what it would as one of two. */
static int converts_dearly(const kgen_attn_spec *s) {
    return s->descale == KGEN_DESCALE_TOKEN || is_integer(s->kv);
}

/* Lines are for several waves of a SIMD, of which one has products while another has exponentials:
 * of two workgroups, where those find room, a set is not too short for it and converting it not too
 * dear. */
static int tune_lines(kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    for (int32_t n = 0; n < isa->line_groups && !s->waves && !s->occupancy; n++) {
        int32_t occupancy = converts_dearly(s) ? 1 + n : isa->line_groups - n;
        kgen_attn_spec two = *s;
        two.occupancy = occupancy;
        two.waves = isa->line_waves * target->simds / occupancy;
        if (!two.v_split) two.v_split = 1;
        two = best_candidate(&two, target);
        if (way_of(&two, isa) != BY_LINES || excess(&two, target)) continue;
        *s = two;
        return 1;
    }
    return 0;
}

/* As many as small_groups says, unless a bounded number of rows would be cut for it, of which each
 * block reads all keys. */
static int tune_small(kgen_attn_spec *s, const kgen_target *target) {
    enum { SLACK = 8 }; /* by which the count of registers is known to be high */
    kgen_attn_spec small = *s;
    small.occupancy = small_groups(s, target);
    if (!small.occupancy) return 0;
    small.waves = 4;
    if (!s->row_tiles && !s->v_split) small.row_tiles = queued_tiles(s, &isa_rows[target->isa]);
    small = best_candidate(&small, target);
    int32_t rows = phases[s->phase].bounded ? s->group * s->q_tokens : 0;
    int reads_again = way_of(&small, &isa_rows[target->isa]) == BY_WAVE && !sees_few_keys(s) &&
                      rows > rows_of(&small, &isa_rows[target->isa]);
    if (reads_again || small.v_split != 1 || excess(&small, target) > SLACK) return 0;
    *s = small;
    return 1;
}

static void tune(kgen_attn_spec *s, const kgen_target *target) {
    if (tune_lines(s, target) || tune_small(s, target)) return;
    kgen_attn_spec best = best_candidate(s, target), wide = *s;
    wide.waves = waves_of_window(s, target);
    if (wide.waves) {
        wide.occupancy = best.occupancy;
        wide = best_candidate(&wide, target);
        if (excess(&wide, target) == 0) best = wide;
    }
    *s = best;
}

/* By the size of the problem: what hides latency where a launch has little to do, and keeps memory
 * busy where items are many. Measured (docs/performance.md); the first row that fits. */
typedef struct size_row {
    int32_t bits, lds, dims; /* of a cached value; a way: 0, 1 by LDS, or below; least head_dim */
    int64_t pairs[2];        /* sequences x KV heads, least and most */
    int64_t context[2];      /* of a sequence, least and most */
    int64_t work;            /* least pairs x context */
    int64_t products;        /* most pairs x pairs x rows x context */
    int32_t waves, row_tiles, v_split, occupancy;
} size_row;

/* Pairs: few; less than one for most of 132 compute units; one for each; less than two for most. */
enum { FEW_PAIRS = 16, UNITS_IDLE = 112, ONE_EACH = 132, TWO_EACH = 199 };
enum { TWO_OF_EACH = 2 * ONE_EACH, THREE_OF_EACH = 3 * ONE_EACH, FOUR_OF_EACH = 4 * ONE_EACH };
enum { SHORT = 512 };  /* window, which has a rule of its own (small_groups) */
enum { USUAL = 8192 }; /* keys of a sequence, where nobody says */
/* Codes of up to 32 rows, and what more waves of a unit than else have registers for: twelve over
 * 16 bits, over codes sixteen, in two workgroups or in four as well, of two row tiles twelve. What
 * no row says of these is as of others, as matrices and not. */
enum { QUEUED = 2, LEAN = 3, LEANEST = 4, TWO_TILES = 5 };
#define ANY INT64_MAX
static const size_row size_rows[] = {
    /* eight waves that convert for themselves, unless there is much to multiply */
    {8, 0, 16, {1, FEW_PAIRS}, {1, ANY}, 1, ANY, 8, 0, 0, 0},
    {8, 1, 16, {1, FEW_PAIRS}, {1, ANY}, 1, 1 << 26, 8, 0, 0, 0},
    /* sixteen waves of a unit convert faster than twelve, unless those have an item each; in four
     * workgroups where the last round of items fills most of these */
    {8, LEAN, 16, {TWO_OF_EACH + 1, THREE_OF_EACH}, {1, 2048}, 1, ANY, 4, 1, 1, 3},
    {8, LEANEST, 16, {THREE_OF_EACH + 1, FOUR_OF_EACH}, {1, 1024}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {449, FOUR_OF_EACH}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {6 * ONE_EACH + 1, ANY}, {1, 512}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {913, 2 * FOUR_OF_EACH}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {1401, 3 * FOUR_OF_EACH}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEANEST, 16, {1761, ANY}, {1, 4096}, 1, ANY, 4, 1, 1, 4},
    {8, LEAN, 16, {FEW_PAIRS + 1, ANY}, {1, ANY}, 1, ANY, 8, 1, 1, 2},
    /* a set of keys more under way */
    {16, 1, 16, {1, FEW_PAIRS}, {1, ANY}, 1, ANY, 4, 2, 1, 1},
    /* two heads have a line of memory, which parts of items would read twice: whole ones */
    {4, 0, 16, {UNITS_IDLE + 1, ONE_EACH}, {1, ANY}, 1, ANY, 8, 0, 1, 1},
    /* smaller workgroups */
    {16, 0, 128, {FEW_PAIRS + 1, UNITS_IDLE}, {1, ANY}, 32768, ANY, 4, 0, 1, 2},
    {16, 0, 128, {ONE_EACH + 1, TWO_EACH}, {1, 768}, 32768, ANY, 4, 0, 1, 2},
    {16, 0, 16, {TWO_EACH + 1, ANY}, {129, ANY}, 32768, ANY, 4, 0, 1, 2},
};
#undef ANY

/* Few items are soon read; finding them, and merging parts through memory, takes as long. A cluster
 * of workgroups shares each then and merges in LDS, and longer ones are cut among clusters. 7 of
 * sixteen and 15 of eight find room where units hold one workgroup; of two 14 of sixteen, 30 of
 * eight, 32 of seven, 39 of six, 47 of five, 62 of four, 79 of three, 132 of two; 198 of two where
 * they hold three, 264 where four. Measured (docs/performance.md); the first row that fits. One
 * without a cluster: workgroups by themselves are faster. */
typedef struct cluster_row {
    int32_t bits, lds, dims; /* 8: also fewer, ANY_BITS, JUST_8; as above; most head_dim */
    int32_t rows[2];         /* of a KV head, least and most */
    int64_t items[2];        /* sequences x KV heads x row blocks, least and most */
    int32_t context;         /* most keys of one; KNOWN, ANY_KEYS */
    int32_t waves, row_tiles, v_split, occupancy, cluster;
} cluster_row;
enum { ANY_BITS = 0, JUST_8 = -8, KNOWN = KGEN__KNOWN_CONTEXT, ANY_KEYS = KGEN__ANY_CONTEXT };
static const cluster_row cluster_rows[] = {
    {8, TWO_TILES, 128, {9, 16}, {4, 7}, 1024, 4, 2, 1, 3, 16},
    {8, TWO_TILES, 128, {9, 16}, {8, 8}, 2048, 4, 2, 1, 3, 8},
    {8, TWO_TILES, 128, {9, 16}, {8, 8}, KNOWN, 4, 2, 1, 3, 16},
    {8, TWO_TILES, 128, {9, 16}, {9, 16}, 3072, 4, 2, 1, 3, 8},
    {8, TWO_TILES, 128, {9, 16}, {9, 16}, 16384, 4, 2, 1, 3, 16},
    {8, TWO_TILES, 128, {9, 16}, {17, 30}, 4096, 4, 2, 1, 3, 8},
    {8, TWO_TILES, 128, {9, 16}, {32, 32}, 2048, 4, 2, 1, 3, 6},
    {8, TWO_TILES, 128, {9, 16}, {64, 64}, 2048, 4, 2, 1, 3, 4},
    {8, TWO_TILES, 128, {9, 16}, {80, 99}, 1024, 4, 2, 1, 3, 2},
    {8, TWO_TILES, 128, {9, 16}, {128, 128}, 1024, 4, 2, 1, 3, 2},
    {8, TWO_TILES, 128, {9, 16}, {133, 198}, KNOWN, 4, 2, 1, 3, 2},
    {ANY_BITS, 0, 128, {9, 16}, {9, 16}, 8192, 4, 2, 1, 1, 8},
    {ANY_BITS, 0, 128, {9, 16}, {17, 30}, 16384, 4, 2, 1, 2, 8},
    {ANY_BITS, 0, 128, {9, 16}, {31, 32}, 2048, 4, 2, 1, 2, 6},
    {ANY_BITS, 0, 128, {9, 16}, {31, 32}, ANY_KEYS, 4, 2, 1, 2, 7},
    {ANY_BITS, 0, 128, {9, 16}, {33, 47}, 16384, 4, 2, 1, 2, 5},
    {ANY_BITS, 0, 128, {9, 16}, {48, 60}, 8192, 4, 2, 1, 2, 4},
    {ANY_BITS, 0, 128, {9, 16}, {61, 72}, 8192, 4, 2, 1, 2, 3},
    {ANY_BITS, 0, 128, {9, 16}, {73, 99}, 2048, 4, 2, 1, 2, 2},
    {ANY_BITS, 0, 128, {9, 16}, {100, 128}, 4096, 4, 2, 1, 2, 2},
    {ANY_BITS, 0, 128, {9, 16}, {9, 128}, KNOWN, 0, 0, 0, 0, 0},
    {ANY_BITS, 0, 128, {9, 16}, {9, 30}, ANY_KEYS, 4, 2, 1, 2, 8},
    {ANY_BITS, 0, 128, {9, 16}, {33, 47}, ANY_KEYS, 4, 2, 1, 2, 5},
    {ANY_BITS, 0, 128, {9, 16}, {48, 60}, ANY_KEYS, 4, 2, 1, 2, 4},
    {ANY_BITS, 0, 128, {9, 16}, {61, 72}, ANY_KEYS, 4, 2, 1, 2, 3},
    {ANY_BITS, 0, 128, {9, 16}, {73, 128}, ANY_KEYS, 4, 2, 1, 2, 2},

    {16, 0, 128, {1, 8}, {1, 7}, 1024, 4, 1, 1, 2, 16},
    {16, 0, 128, {1, 16}, {1, 7}, 32768, 8, 0, 1, 1, 16},
    {16, 0, 128, {1, 16}, {1, 7}, KNOWN, 8, 0, 1, 1, 8},
    {16, 0, 128, {1, 16}, {1, 7}, ANY_KEYS, 8, 0, 1, 1, 16},
    {16, LEAN, 128, {1, 8}, {8, 8}, 5120, 8, 0, 1, 1, 8},
    {16, LEAN, 128, {1, 8}, {8, 8}, 20480, 6, 1, 1, 2, 16},
    {16, 0, 128, {1, 16}, {8, 8}, 12288, 8, 0, 1, 1, 8},
    {16, 0, 128, {1, 8}, {9, 16}, 2048, 4, 1, 1, 2, 8},
    {16, 0, 128, {1, 8}, {9, 16}, 8192, 4, 1, 1, 2, 16},
    {16, 0, 128, {1, 8}, {17, 32}, 32768, 4, 1, 1, 2, 8},
    {16, 0, 128, {1, 8}, {33, 40}, ANY_KEYS, 4, 1, 1, 2, 6},
    {16, 0, 128, {1, 8}, {33, 64}, 16384, 4, 1, 1, 2, 4},
    {16, LEAN, 64, {1, 8}, {65, 96}, 8192, 4, 1, 1, 3, 4},
    {16, LEAN, 128, {1, 8}, {65, 88}, 2048, 4, 1, 1, 3, 4},
    {16, LEAN, 128, {1, 8}, {81, 96}, 8192, 4, 1, 1, 3, 3},
    {16, 0, 128, {1, 8}, {65, 80}, 8192, 4, 1, 1, 2, 3},
    {16, 0, 128, {1, 8}, {81, 99}, 2048, 4, 1, 1, 2, 2},
    {16, 0, 128, {1, 8}, {100, 128}, 4096, 4, 1, 1, 2, 2},
    {16, 0, 128, {1, 8}, {65, 128}, KNOWN, 0, 0, 0, 0, 0},
    {16, LEAN, 128, {1, 8}, {133, 198}, ANY_KEYS, 4, 1, 1, 3, 2},
    {16, LEAN, 64, {1, 8}, {265, 396}, 4096, 4, 1, 1, 3, 0},
    {16, LEAN, 128, {1, 8}, {265, 396}, 4096, 4, 1, 1, 3, 2},
    {16, 0, 256, {1, 16}, {1, 2}, ANY_KEYS, 4, 0, 2, 1, 16},
    {16, 0, 256, {1, 16}, {3, 7}, 16384, 4, 0, 2, 1, 16},
    {16, 0, 256, {1, 16}, {8, 8}, 6144, 4, 0, 2, 1, 8},
    {16, 0, 256, {1, 8}, {9, 16}, 3072, 2, 1, 2, 2, 8},
    {16, 0, 256, {1, 16}, {3, 64}, KNOWN, 0, 0, 0, 0, 0},
    {16, 0, 128, {1, 16}, {8, 8}, ANY_KEYS, 8, 0, 1, 1, 8},
    {16, 0, 256, {1, 16}, {3, 8}, ANY_KEYS, 4, 0, 2, 1, 8},
    {16, 0, 128, {1, 8}, {9, 32}, ANY_KEYS, 4, 1, 1, 2, 8},
    {16, 0, 128, {1, 8}, {33, 64}, ANY_KEYS, 4, 1, 1, 2, 4},
    {16, 0, 128, {1, 8}, {65, 80}, ANY_KEYS, 4, 1, 1, 2, 3},
    {16, 0, 128, {1, 8}, {81, 128}, ANY_KEYS, 4, 1, 1, 2, 2},

    {JUST_8, LEAN, 128, {1, 8}, {1, 7}, 1024, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {1, 7}, 6144, 8, 1, 1, 2, 16},
    {JUST_8, LEAN, 128, {1, 8}, {8, 8}, 2048, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {8, 8}, 24576, 8, 1, 1, 2, 16},
    {JUST_8, LEAN, 128, {1, 8}, {8, 8}, KNOWN, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {9, 15}, 6144, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {9, 14}, 24576, 8, 1, 1, 2, 16},
    {8, LEAN, 128, {1, 8}, {17, 30}, 1024, 4, 1, 1, 2, 8},
    {8, LEAN, 128, {1, 8}, {17, 30}, 8192, 8, 1, 1, 2, 8},
    {8, LEAN, 128, {1, 8}, {31, 32}, 2048, 4, 1, 1, 2, 8},
    {8, LEAN, 128, {1, 8}, {31, 32}, 8192, 8, 1, 1, 2, 7},
    {8, LEAN, 128, {1, 8}, {32, 32}, 20480, 8, 1, 1, 2, 0},
    {8, LEAN, 128, {1, 8}, {33, 40}, 1024, 4, 1, 1, 2, 6},
    {8, LEAN, 128, {1, 8}, {33, 39}, 8192, 8, 1, 1, 2, 6},
    {8, LEAN, 128, {1, 8}, {41, 47}, 1024, 8, 1, 1, 2, 4},
    {8, LEAN, 128, {1, 8}, {40, 47}, 32768, 8, 1, 1, 2, 5},
    {8, LEAN, 128, {1, 8}, {48, 60}, 16384, 8, 1, 1, 2, 4},
    {8, LEAN, 128, {1, 8}, {53, 60}, 32768, 8, 1, 1, 2, 4},
    {8, LEAN, 128, {1, 8}, {61, 66}, 2048, 8, 1, 1, 2, 2},
    {8, LEAN, 128, {1, 8}, {61, 66}, 16384, 8, 1, 1, 2, 3},
    {8, LEAN, 128, {1, 8}, {67, 79}, ANY_KEYS, 8, 1, 1, 2, 3},
    {8, LEAN, 128, {1, 8}, {80, 88}, 4096, 8, 1, 1, 2, 2},
    {8, LEAN, 128, {1, 8}, {89, 132}, ANY_KEYS, 8, 1, 1, 2, 2},
    {8, LEANEST, 64, {1, 8}, {133, 232}, 8192, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {133, 224}, 1024, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {133, 216}, 2048, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {165, 216}, 3072, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {189, 232}, 4096, 4, 1, 1, 4, 2},
    {8, LEANEST, 128, {1, 8}, {217, 232}, 6144, 4, 1, 1, 4, 2},
    {4, LEAN, 128, {1, 8}, {133, 199}, ANY_KEYS, 8, 1, 1, 2, 2},
    {8, 0, 256, {1, 16}, {1, 7}, 1024, 8, 0, 1, 1, 8},
    {8, 0, 256, {1, 16}, {1, 2}, 8192, 8, 0, 1, 1, 16},
    {8, 0, 256, {1, 16}, {3, 7}, 24576, 8, 0, 1, 1, 16},
    {JUST_8, LEAN, 128, {1, 8}, {1, 2}, 24576, 8, 1, 1, 2, 8},
    {JUST_8, LEAN, 128, {1, 8}, {2, 7}, KNOWN, 8, 1, 1, 2, 16},
    {8, 0, 256, {1, 16}, {1, 2}, KNOWN, 8, 0, 1, 1, 8},
    {8, 0, 128, {1, 8}, {3, 7}, KNOWN, 4, 1, 1, 3, 8},
    {8, 0, 256, {1, 16}, {1, 7}, ANY_KEYS, 8, 0, 1, 1, 16},
    {8, 0, 256, {1, 16}, {8, 8}, 8192, 8, 0, 1, 1, 8},
    {8, 0, 128, {1, 8}, {9, 16}, 1024, 4, 1, 1, 3, 8},
    {8, 0, 128, {1, 8}, {9, 16}, 24576, 4, 1, 1, 3, 16},
    {8, LEAN, 128, {1, 8}, {16, 16}, KNOWN, 8, 1, 1, 2, 0},
    {8, 0, 128, {1, 8}, {9, 16}, KNOWN, 4, 1, 1, 3, 8},
    {8, 0, 128, {1, 8}, {17, 32}, 16384, 4, 1, 1, 2, 8},
    {8, 0, 128, {1, 8}, {33, 40}, 16384, 4, 1, 1, 2, 6},
    {8, 0, 128, {1, 8}, {33, 64}, 4096, 4, 1, 1, 2, 4},
    {8, 0, 128, {1, 8}, {65, 99}, 1024, 4, 1, 1, 2, 2},
    {8, 0, 128, {1, 8}, {100, 119}, 2048, 4, 1, 1, 2, 2},
    {8, 0, 128, {1, 8}, {120, 128}, 4096, 4, 1, 1, 2, 2},
    {8, 0, 256, {1, 16}, {1, 64}, KNOWN, 0, 0, 0, 0, 0},
    {8, 0, 128, {1, 8}, {8, 16}, ANY_KEYS, 4, 1, 1, 3, 16},
    {8, 0, 128, {1, 8}, {17, 32}, ANY_KEYS, 4, 1, 1, 3, 8},
    {8, 0, 128, {1, 8}, {33, 40}, ANY_KEYS, 4, 1, 1, 2, 6},
    {8, 0, 128, {1, 8}, {33, 64}, ANY_KEYS, 4, 1, 1, 3, 4},

    {16, 1, 128, {1, 128}, {1, 2}, ANY_KEYS, 4, 2, 1, 1, 16},
    {16, 1, 128, {1, 128}, {3, 4}, 32768, 4, 2, 1, 1, 16},
    {16, 1, 128, {1, 128}, {5, 8}, 1024, 4, 2, 1, 1, 8},
    {16, 1, 128, {1, 128}, {5, 8}, 24576, 4, 2, 1, 1, 16},
    {16, 1, 128, {1, 128}, {3, 8}, KNOWN, 4, 2, 1, 2, 8},
    {16, 1, 128, {1, 128}, {3, 8}, ANY_KEYS, 4, 2, 1, 2, 16},
    {16, 1, 128, {1, 128}, {9, 16}, 2048, 4, 2, 1, 2, 8},
    {16, 1, 128, {1, 128}, {9, 15}, ANY_KEYS, 8, 2, 1, 1, 8},
    {16, 1, 128, {1, 128}, {16, 16}, ANY_KEYS, 8, 2, 1, 1, 6},
    {16, 1, 128, {1, 128}, {17, 30}, 1024, 4, 2, 1, 2, 4},
    {16, 1, 128, {1, 128}, {17, 30}, ANY_KEYS, 4, 2, 1, 2, 8},
    {16, 1, 128, {1, 128}, {31, 32}, 2048, 4, 2, 1, 2, 6},
    {16, 1, 128, {1, 128}, {31, 32}, ANY_KEYS, 4, 2, 1, 2, 7},
    {16, 1, 128, {1, 128}, {33, 47}, ANY_KEYS, 4, 2, 1, 2, 5},
    {16, 1, 128, {1, 128}, {48, 60}, ANY_KEYS, 4, 2, 1, 2, 4},
    {16, 1, 128, {1, 128}, {61, 66}, ANY_KEYS, 8, 2, 1, 1, 2},
    {16, 1, 128, {1, 128}, {67, 72}, ANY_KEYS, 4, 2, 1, 2, 3},
    {16, 1, 128, {1, 128}, {73, 94}, 4096, 4, 2, 1, 2, 2},
    {16, 1, 128, {1, 128}, {95, 109}, 16384, 4, 2, 1, 2, 2},
    {16, 1, 128, {1, 128}, {73, 109}, KNOWN, 0, 0, 0, 0, 0},
    {16, 1, 128, {1, 128}, {73, 128}, ANY_KEYS, 4, 2, 1, 2, 2},
    {16, 1, 256, {1, 128}, {1, 2}, ANY_KEYS, 4, 2, 1, 1, 16},
    {16, 1, 256, {1, 128}, {3, 14}, 4096, 4, 2, 1, 1, 8},
    {16, 1, 256, {1, 128}, {3, 14}, ANY_KEYS, 8, 2, 1, 1, 8},
    {16, 1, 256, {1, 128}, {15, 16}, 4096, 4, 2, 1, 2, 8},
    {16, 1, 256, {1, 128}, {16, 16}, 16384, 8, 2, 1, 1, 6},
    {16, 1, 256, {1, 128}, {15, 16}, KNOWN, 8, 2, 1, 1, 8},
    {16, 1, 256, {1, 128}, {15, 30}, 8192, 4, 2, 1, 2, 8},
    {16, 1, 256, {1, 128}, {31, 32}, 16384, 4, 2, 1, 2, 7},
    {16, 1, 256, {1, 128}, {33, 47}, 16384, 4, 2, 1, 2, 5},
    {16, 1, 256, {1, 128}, {48, 60}, 16384, 4, 2, 1, 2, 4},
    {16, 1, 256, {1, 128}, {61, 66}, ANY_KEYS, 8, 2, 1, 1, 2},
    {16, 1, 256, {1, 128}, {95, 132}, ANY_KEYS, 4, 2, 1, 2, 2},

    {8, QUEUED, 128, {17, 32}, {8, 8}, 2048, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {8, 8}, 6144, 8, 4, 1, 1, 8},
    {8, QUEUED, 128, {17, 32}, {1, 8}, 16384, 4, 4, 1, 2, 16},
    {8, QUEUED, 128, {25, 32}, {8, 8}, 65536, 4, 4, 1, 2, 4},
    {8, QUEUED, 128, {17, 32}, {8, 8}, KNOWN, 8, 4, 1, 1, 0},
    {8, QUEUED, 128, {17, 32}, {9, 30}, 1024, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {9, 15}, ANY_KEYS, 8, 4, 1, 1, 8},
    {8, QUEUED, 128, {17, 32}, {16, 16}, 2048, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {25, 32}, {16, 16}, 24576, 8, 4, 1, 1, 6},
    {8, QUEUED, 128, {25, 32}, {16, 16}, KNOWN, 8, 4, 1, 1, 0},
    {8, QUEUED, 128, {17, 32}, {16, 16}, ANY_KEYS, 8, 4, 1, 1, 6},
    {8, QUEUED, 128, {17, 32}, {17, 30}, 16384, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {31, 32}, ANY_KEYS, 4, 4, 1, 2, 7},
    {8, QUEUED, 128, {17, 32}, {33, 47}, 16384, 4, 4, 1, 2, 5},
    {8, QUEUED, 128, {17, 32}, {48, 60}, 16384, 4, 4, 1, 2, 4},
    {8, QUEUED, 128, {17, 32}, {61, 66}, ANY_KEYS, 8, 4, 1, 1, 2},
    {8, QUEUED, 128, {17, 32}, {67, 72}, 16384, 4, 4, 1, 2, 3},
    {8, QUEUED, 128, {17, 32}, {73, 103}, 2048, 4, 4, 1, 2, 2},
    {8, QUEUED, 128, {17, 32}, {104, 132}, ANY_KEYS, 4, 4, 1, 2, 2},
    {8, QUEUED, 128, {17, 32}, {17, 103}, KNOWN, 0, 0, 0, 0, 0},
    {8, QUEUED, 128, {17, 32}, {17, 30}, ANY_KEYS, 4, 4, 1, 2, 8},
    {8, QUEUED, 128, {17, 32}, {33, 47}, ANY_KEYS, 4, 4, 1, 2, 5},
    {8, QUEUED, 128, {17, 32}, {48, 60}, ANY_KEYS, 4, 4, 1, 2, 4},
    {8, QUEUED, 128, {17, 32}, {67, 72}, ANY_KEYS, 4, 4, 1, 2, 3},
    {8, QUEUED, 128, {17, 32}, {17, 103}, ANY_KEYS, 0, 0, 0, 0, 0},

    {8, 1, 128, {1, 128}, {1, 2}, ANY_KEYS, 4, 2, 1, 2, 16},
    {8, 1, 128, {1, 128}, {3, 8}, 8192, 4, 2, 1, 2, 16},
    {8, 1, 128, {1, 128}, {9, 16}, 6144, 4, 2, 1, 2, 8},
    {8, 1, 128, {1, 128}, {17, 30}, 8192, 4, 2, 1, 2, 8},
    {4, 1, 128, {1, 128}, {31, 32}, 6144, 4, 2, 1, 2, 6},
    {4, 1, 128, {1, 128}, {31, 32}, ANY_KEYS, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {31, 32}, 2048, 4, 2, 1, 2, 6},
    {8, 1, 128, {1, 128}, {31, 32}, 16384, 4, 2, 1, 2, 7},
    {8, 1, 128, {1, 128}, {33, 47}, 2048, 4, 2, 1, 2, 4},
    {8, 1, 128, {1, 128}, {33, 47}, 4096, 4, 2, 1, 2, 5},
    {8, 1, 128, {1, 128}, {48, 60}, 4096, 4, 2, 1, 2, 4},
    {8, 1, 128, {1, 128}, {61, 66}, ANY_KEYS, 8, 2, 1, 1, 2},
    {8, 1, 128, {1, 128}, {67, 103}, 1024, 4, 2, 1, 2, 2},
    {8, 1, 128, {1, 128}, {104, 119}, 2048, 4, 2, 1, 2, 2},
    {8, 1, 128, {1, 128}, {120, 124}, 8192, 4, 2, 1, 2, 2},
    {8, 1, 128, {1, 128}, {125, 128}, ANY_KEYS, 4, 2, 1, 2, 2},
    {8, 1, 64, {1, 128}, {3, 16}, 24576, 0, 0, 0, 0, 0},
    {4, 1, 128, {1, 128}, {3, 16}, 24576, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {8, 8}, 24576, 4, 2, 1, 2, 4},
    {4, 1, 128, {1, 128}, {9, 16}, KNOWN, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {9, 15}, ANY_KEYS, 8, 2, 1, 1, 8},
    {8, 1, 128, {1, 128}, {16, 16}, ANY_KEYS, 8, 2, 1, 1, 6},
    {8, 1, 128, {1, 128}, {3, 7}, 24576, 0, 0, 0, 0, 0},
    {8, 1, 128, {1, 128}, {3, 8}, ANY_KEYS, 4, 2, 1, 2, 8},
    {8, 1, 256, {1, 128}, {3, 14}, 2048, 8, 2, 1, 1, 8},
    {8, 1, 256, {1, 128}, {15, 30}, 2048, 4, 2, 1, 2, 8},
    {8, 1, 256, {1, 128}, {61, 66}, 2048, 8, 2, 1, 1, 2},
};

/* Sequences x KV heads. */
static int64_t pairs_of(const kgen_problem *p) { return (int64_t)p->batch * p->heads; }

/* As what a way goes where no row says anything of it; -1: nothing else. */
static const int32_t else_as[] = {
    -1, -1, [QUEUED] = 1, [LEAN] = 0, [LEANEST] = LEAN, [TWO_TILES] = 0};

/* Whether a row of the rule is of what goes some way. */
static int goes_as(int32_t of_row, int32_t lds) {
    while (lds >= 0 && lds != of_row) lds = else_as[lds];
    return lds == of_row;
}

static int suit_cluster(kgen_attn_spec *s, const kgen_problem *p, const isa_row *isa, int lds,
                        int bits) {
    enum { MATRIX_ROWS = 64, MOST_TILES = 4 }; /* of a row block; queued: as many as there are */
    int64_t rows = (int64_t)s->group * s->q_tokens;
    int64_t blocks = lds ? (rows + MATRIX_ROWS - 1) / MATRIX_ROWS : 1;
    int64_t pairs = pairs_of(p);
    int64_t items = pairs > INT64_MAX / blocks ? INT64_MAX : pairs * blocks;
    int32_t dims = larger(s->head_dim, s->v_dim);
    if (s->cascade || !items) return 0;
    for (size_t i = 0; i < sizeof cluster_rows / sizeof cluster_rows[0]; i++) {
        const cluster_row *r = &cluster_rows[i];
        int fits = r->bits == bits || (r->bits == 8 && bits < 8) || r->bits == -bits ||
                   r->bits == ANY_BITS;
        if (!fits || !goes_as(r->lds, lds) || dims > r->dims) continue;
        if (rows < r->rows[0] || rows > r->rows[1] || items < r->items[0] || items > r->items[1])
            continue;
        if (!kgen__fits_context(r->context, p->context)) continue;
        if (!r->waves) return 0;
        s->waves = r->waves;
        s->row_tiles = r->row_tiles == MOST_TILES ? queued_tiles(s, isa) : r->row_tiles;
        s->v_split = r->v_split;
        s->occupancy = r->occupancy;
        s->cluster = r->cluster;
        return 1;
    }
    return 0;
}

/* Prompts that have row blocks enough for large workgroups, by the keys of a sequence, or, where
 * the waves that multiply convert, too, of all KV heads. Measured. */
static int has_long_prompts(const kgen_problem *p, int brings) {
    enum { LEAST = 1 << 9, CONVERTED = 1 << 16 };
    if (brings) return p->context >= LEAST;
    return pairs_of(p) > (CONVERTED - 1) / p->context;
}

/* Rows that boxes of 128 bytes bring without a rest, or of codes, which small workgroups convert
 * for half as many rows. */
static int suits_decodes(const kgen_attn_spec *s) {
    enum { WIDE = 96 };
    return is_8bit(s->kv) ? s->head_dim >= WIDE : s->head_dim % 64 == 0;
}

/* Prompts: groups of four waves that share keys, which a third brings. Where sequences are many
 * some may be decodes beside a prompt, which not all rows suit. */
static void suit_long(kgen_attn_spec *s, const kgen_problem *p, const isa_row *isa) {
    enum { MOST_SEQUENCES = 16, LEAST_WINDOW = 512 };
    kgen_attn_spec groups = *s;
    groups.waves = 8, groups.row_tiles = 2, groups.v_split = 1, groups.occupancy = 1;
    int floats = is_8bit(s->kv) && !is_integer(s->kv) && !s->cascade;
    int brings = bringers_of(&groups, isa) != 0;
    int32_t seen = seen_keys(s);
    if (!brings && !floats) return;
    if (s->head_dim > 128 || s->v_dim > 128 || s->invariant) return;
    if (p->batch > MOST_SEQUENCES && !(brings && suits_decodes(s))) return;
    if ((seen > 0 && seen < LEAST_WINDOW) || !p->context) return;
    if (has_long_prompts(p, brings)) *s = groups;
}

static int is_of_size(const size_row *f, const kgen_attn_spec *s, const kgen_problem *p) {
    int64_t pairs = pairs_of(p), rows = (int64_t)s->group * s->q_tokens;
    if (pairs < f->pairs[0] || pairs > f->pairs[1] || s->head_dim < f->dims) return 0;
    if (p->context < f->context[0] || p->context > f->context[1]) return 0;
    return pairs > (f->work - 1) / p->context && pairs <= f->products / rows / p->context / pairs;
}

/* LEAN, LEANEST, TWO_TILES or none, by what has registers: tried on some hundred specs. */
static int leanness(const kgen_attn_spec *s, const isa_row *isa) {
    int small = kgen__is_small_page(s->page), bits = bits_of(s->kv);
    int scales = s->descale == KGEN_DESCALE_TOKEN || bits < 8;
    if (queued_tiles(s, isa) == 2) return TWO_TILES;
    if (s->group * s->q_tokens > isa->columns) return 0;
    if (bits == 16) return small && (s->alibi || s->softcap) ? 0 : LEAN;
    int native = bits <= 8 && s->kv != KGEN_DTYPE_E4M3FNUZ;
    if (!native || s->phase != KGEN_PHASE_DECODE || s->cascade) return 0;
    int packed = is_packed(s->layout) && (scales || s->softcap || s->gate);
    int crowded = (s->alibi != 0) + packed + (small && scales);
    if (crowded > (bits == 8)) return 0;
    return crowded ? LEAN : LEANEST;
}

static void suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target) {
    kgen_attn_spec *s = &spec->attn;
    const isa_row *isa = &isa_rows[target->isa];
    int tuned = s->waves || s->row_tiles || s->v_split || s->occupancy || s->cluster;
    if (isa->by != BY_MATRICES || tuned || !problem->batch) return;
    if (!phases[s->phase].bounded) suit_long(s, problem, isa);
    if (!phases[s->phase].bounded || s->invariant) return;
    int32_t most = seen_keys(s);
    if (most > 0 && most < SHORT) return;
    kgen_problem seen = *problem;
    if (most > 0) seen.context = seen.context ? smaller(seen.context, most) : most;
    int lds = has_many_rows(s, isa), bits = bits_of(s->kv);
    if (lds && queued_tiles(s, isa)) lds = QUEUED;
    if (!lds) lds = leanness(s, isa);
    if (suit_cluster(s, &seen, isa, lds, bits) || s->head_dim > 128 || s->v_dim > 128) return;
    if (!seen.context) seen.context = USUAL;
    for (size_t i = 0; i < sizeof size_rows / sizeof size_rows[0]; i++) {
        const size_row *f = &size_rows[i];
        int fits = f->bits == bits || (f->lds >= LEAN && bits < 8);
        if (!fits || !goes_as(f->lds, lds) || !is_of_size(f, s, &seen)) continue;
        s->waves = f->waves;
        s->row_tiles = f->row_tiles;
        s->v_split = f->v_split;
        s->occupancy = f->occupancy;
        return;
    }
}

/* What the target and other keys say. */
static void settle(kgen_attn_spec *s, const kgen_target *target) {
    s->kv = kgen__native_fp8(s->kv, target);
    s->q = kgen__native_fp8(s->q, target);
    if (!s->out) s->out = is_8bit(s->q) ? KGEN_DTYPE_BF16 : s->q;
    s->out = kgen__native_fp8(s->out, target);
    s->v_dim = v_dim_of(s);
    if (s->descale == KGEN_DESCALE_AUTO)
        s->descale = s->kv == KGEN_DTYPE_I4 ? KGEN_DESCALE_TOKEN
                     : is_8bit(s->kv)       ? KGEN_DESCALE_HEAD
                                            : KGEN_DESCALE_NONE;
}

/* The count is up to 96 too high for tuning that `tune` would not choose, without conversions,
 * which a compiler does one tile after another; what comes nearer to the bound it decides.
 * Measured on nine architectures (docs/verification.md). */
enum { COUNT_ERROR = 128 };

/* Beside accumulators that have registers of their own. */
static int32_t least_needed(const kgen_attn_spec *s, const kgen_target *target) {
    int32_t mixed = mixes_conversions(s, target) ? CONVERSIONS : 0;
    int32_t acc = isa_rows[target->isa].own_file ? acc_registers(s, target) : 0;
    return registers_needed(s, target) - acc - s->row_tiles * mixed;
}

static kgen_status registers_fit(const kgen_attn_spec *s, const kgen_target *target,
                                 kgen_error *err) {
    if (!s->waves || !s->row_tiles || !s->v_split || !s->occupancy) return KGEN_OK; /* auto */
    kgen_attn_spec settled = *s;
    settle(&settled, target);
    int32_t needed = least_needed(&settled, target), waves = s->waves * s->v_split;
    int32_t bytes = lds_needed(&settled, target, q_lds_bytes(&settled, target));
    int32_t room = kgen__lane_room(target, waves, s->occupancy, bytes);
    REQUIRE(needed - COUNT_ERROR <= room,
            "mt=%d,vs=%d,waves=%d,occ=%d: a lane needs about %d registers; %s has %d for each",
            s->row_tiles, s->v_split, s->waves, s->occupancy, needed, target->name, room);
    return KGEN_OK;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    settle(&spec->attn, target);
    tune(&spec->attn, target);
}

kgen__attn_geometry kgen__attn_geometry_of(const kgen_attn_spec *spec, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t rows = rows_of(spec, isa), dims = spec->head_dim + spec->v_dim;
    int bounded = phases[spec->phase].bounded;
    return (kgen__attn_geometry){
        .rows = rows,
        .waves = spec->waves,
        .row_blocks = bounded ? kg_attn_row_blocks(spec->group, spec->q_tokens, rows) : 0,
        .maps = bringers_of(spec, isa) != 0,
        .joins = spec->cascade,
        .part_keys = part_keys_of(spec),
        .block_keys = isa->keys,
        .item_cost =
            way_of(spec, isa) == BY_MATRICES
                ? kg_attn_buffered_cost(bounded ? 1 : spec->waves, dims, bringers_of(spec, isa))
                : kg_attn_item_cost(isa->keys, dims, bits_of(spec->kv)),
    };
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    int32_t bringers = bringers_of(&spec->attn, &isa_rows[target->isa]);
    return (spec->attn.waves * spec->attn.v_split + bringers) * target->wave_size;
}

/* What templates ask instead of the phase's number, and of the target. Waves read the cache, or
 * what lies in LDS for long queries; those of mla have a stage. */
FACT(part_keys, part_keys_of(&spec->attn))
FACT(is_bounded, phases[spec->attn.phase].bounded)
FACT(is_ragged, phases[spec->attn.phase].ragged)
FACT(is_tree, phases[spec->attn.phase].tree)
FACT(is_dense, phases[spec->attn.phase].dense)
FACT(by_matrices, way_of(&spec->attn, &isa_rows[target->isa]) == BY_MATRICES)
FACT(by_lines,
     way_of(&spec->attn, &isa_rows[target->isa]) == BY_LINES ? 1 + isa_rows[target->isa].values : 0)
FACT(bringers, bringers_of(&spec->attn, &isa_rows[target->isa]))
FACT(key_queue, queue_of(&spec->attn, &isa_rows[target->isa]))
FACT(yields, yields_q(&spec->attn, &isa_rows[target->isa]))
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
    .suit = suit,
    .launch_shape = launch_shape,
    .launch_lds = launch_lds,
    .occupancy = occupancy,
    .cluster = cluster,
    .symbol = symbol,
};

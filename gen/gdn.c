/* Family gdn: Gated DeltaNet and KDA decode, from the in-projection to the
 * gated norm, at five fuse levels. */
#include "gdn.h"

#include <stdio.h>
#include <string.h>

#include "family.h"
#include "templates/kg/gdn/gdn_shape.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t head_dims[] = {64, 96, 128, 192, 256};
static const int32_t powers[] = {1, 2, 4, 8};
static const int32_t lane_counts[] = {1, 2, 4, 8, 16, 32};
static const int32_t element_counts[] = {8, 12, 16, 24, 32, 48, 64, 96, 128};
enum {
    POWERS = sizeof powers / sizeof powers[0],
    ELEMENT_COUNTS = sizeof element_counts / sizeof element_counts[0],
};

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_HEADS = RANGE(1, 256, 1);
static const kgen_domain domain_CHANNELS = RANGE(1, 1 << 16, 1);
static const kgen_domain domain_HEAD = LIST(head_dims);
static const kgen_domain domain_WIDTH = RANGE(2, 5, 1);
static const kgen_domain domain_TOKENS = RANGE(1, 16, 1);
static const kgen_domain domain_RING = RANGE(0, 16, 1);
static const kgen_domain domain_BLOCKS = LIST(powers);
static const kgen_domain domain_WAVES = RANGE(1, 16, 1);
static const kgen_domain domain_LANES = LIST(lane_counts);
static const kgen_domain domain_ELEMENTS = LIST(element_counts);
static const kgen_domain domain_OCC = RANGE(1, 32, 1);

static const kgen_symbol symbols_none[] = {NO_SYMBOL};
SYMBOLS(auto0, VALUE("auto", 0));
SYMBOLS(boolean, VALUE("0", 0), VALUE("1", 1));
SYMBOLS(fuse, NAMED("a", FUSE_A), NAMED("b", FUSE_B), NAMED("c", FUSE_C), NAMED("d", FUSE_D),
        NAMED("e", FUSE_E));
SYMBOLS(layout, NAMED("interleaved", ROWS_INTERLEAVED), NAMED("flat", ROWS_FLAT),
        NAMED("presplit", ROWS_PRESPLIT));
SYMBOLS(channels, VALUE("heads", 0));
SYMBOLS(qkv, VALUE("row", 0), VALUE("split", 1));
SYMBOLS(x_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16), NAMED("f32", DTYPE_F32));
SYMBOLS(f_dtype, NAMED("f32", DTYPE_F32), NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16));
SYMBOLS(auto_dtype, VALUE("auto", 0), NAMED("f32", DTYPE_F32), NAMED("bf16", DTYPE_BF16),
        NAMED("fp16", DTYPE_FP16));
SYMBOLS(o_dtype, VALUE("auto", 0), NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        NAMED("f32", DTYPE_F32), VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ));
SYMBOLS(state_layout, NAMED("vk", STATE_VK), NAMED("kv", STATE_KV));
SYMBOLS(conv_layout, NAMED("sd", CONV_SD), NAMED("ds", CONV_DS));
SYMBOLS(map, VALUE("grouped", 0), VALUE("tiled", 1));
enum { BATCH_AUTO, FEW, MANY };
SYMBOLS(batch, VALUE("auto", BATCH_AUTO), VALUE("few", FEW), VALUE("many", MANY));
SYMBOLS(act, VALUE("silu", 1), VALUE("none", 0));
SYMBOLS(gate, NAMED("gdn", GATE_GDN), NAMED("kda", GATE_KDA), NAMED("kda_bound", GATE_KDA_BOUND));
SYMBOLS(out_gate, VALUE("silu", 0), VALUE("sigmoid", 1));
SYMBOLS(index, NAMED("one", INDEX_ONE), NAMED("pair", INDEX_PAIR), NAMED("spec", INDEX_SPEC),
        NAMED("blocks", INDEX_BLOCKS));
SYMBOLS(index_type, VALUE("i32", 0), VALUE("i64", 1));
SYMBOLS(sentinel, NAMED("neg", SENTINEL_NEG), NAMED("nonpos", SENTINEL_NONPOS),
        NAMED("value", SENTINEL_VALUE));
SYMBOLS(save, NAMED("final", SAVE_FINAL), NAMED("slots", SAVE_SLOTS), NAMED("buffer", SAVE_BUFFER),
        NAMED("none", SAVE_NONE), NAMED("replay", SAVE_REPLAY));

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, gdn.field), &domain_##domain, symbols_##symbols, dflt, \
     KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/gdn_params.def>
#undef KGEN_PARAM
};
/* clang-format on */
enum { PARAMS = sizeof params / sizeof params[0] };

/* --- levels ------------------------------------------------------------- */

enum { CONV = KGEN__GDN_CONV, STEP = KGEN__GDN_RECURRENCE, NORM = KGEN__GDN_NORM };

static const int32_t level_parts[] = {
    [KGEN_FUSE_A] = STEP,        [KGEN_FUSE_B] = STEP | NORM,        [KGEN_FUSE_C] = CONV,
    [KGEN_FUSE_D] = CONV | STEP, [KGEN_FUSE_E] = CONV | STEP | NORM,
};

int32_t kgen__gdn_parts(const kgen_gdn_spec *spec) { return level_parts[spec->fuse]; }

int64_t kgen__gdn_channels(const kgen_gdn_spec *s) {
    if (s->channels) return s->channels;
    return kg_gdn_channels(s->k_heads, s->k_dim, s->v_heads, s->v_dim);
}

/* Parameters that only some parts read: elsewhere they keep their default. */
static const struct {
    const char *key;
    int32_t parts;
} part_rows[] = {
    {"w", CONV},     {"cl", CONV},       {"cs", CONV},    {"cw", CONV},    {"bias", CONV},
    {"act", CONV},   {"circular", CONV}, {"convr", CONV}, {"sl", STEP},    {"gate", STEP},
    {"raw", STEP},   {"ab", STEP},       {"alog", STEP},  {"dt", STEP},    {"l2", STEP},
    {"map", STEP},   {"betar", STEP},    {"sr", STEP},    {"ring", STEP},  {"or", NORM},
    {"ogate", NORM}, {"nw", NORM},       {"state", STEP}, {"batch", STEP}, {"vb", STEP},
    {"lanes", STEP}, {"el", STEP},
};

/* --- applicable --------------------------------------------------------- */

static const char *name_in(const kgen_symbol *symbols, int32_t value) {
    for (; symbols->name; symbols++)
        if (symbols->value == value) return symbols->name;
    return "?";
}

static const char *level_of(const kgen_gdn_spec *s) { return name_in(symbols_fuse, s->fuse); }
static const char *save_of(const kgen_gdn_spec *s) { return name_in(symbols_save, s->save); }
static const char *index_of(const kgen_gdn_spec *s) { return name_in(symbols_index, s->index); }

/* What a level does not read must stay as it is: the same kernel has one name. */
static kgen_status check_parts(const kgen_spec *spec, kgen_error *err) {
    int32_t parts = kgen__gdn_parts(&spec->gdn);
    for (size_t i = 0; i < sizeof part_rows / sizeof part_rows[0]; i++) {
        const kgen_param *param = kgen__param_named(KGEN_FAMILY_GDN, part_rows[i].key);
        REQUIRE((part_rows[i].parts & parts) || kgen_param_get(spec, param) == param->initial,
                "%s: fuse=%s has no %s; leave it out", param->key, level_of(&spec->gdn),
                part_rows[i].parts & CONV   ? "convolution"
                : part_rows[i].parts & STEP ? "recurrence"
                                            : "norm");
    }
    return KGEN_OK;
}

static kgen_status check_heads(const kgen_gdn_spec *s, kgen_error *err) {
    REQUIRE(s->v_heads % s->k_heads == 0, "hv=%d: no multiple of hk=%d", s->v_heads, s->k_heads);
    REQUIRE(!s->head_map || s->layout != KGEN_ROWS_INTERLEAVED,
            "map=tiled: layout=interleaved keeps a key head's value heads together");
    REQUIRE(s->gate == KGEN_GATE_GDN || s->layout == KGEN_ROWS_PRESPLIT,
            "layout=%s: gate=%s has a decay a channel, which only layout=presplit carries",
            kgen_layout_name((kgen_layout)s->layout), name_in(symbols_gate, s->gate));
    return KGEN_OK;
}

/* Rows of their own, and convolutions without heads. */
static kgen_status check_rows(const kgen_gdn_spec *s, kgen_error *err) {
    REQUIRE(!s->qkv || !(kgen__gdn_parts(s) & CONV),
            "qkv=split: fuse=%s convolves one row; use a or b", level_of(s));
    REQUIRE(s->x != KGEN_DTYPE_F32 || s->fuse == KGEN_FUSE_C,
            "x=f32: fuse=%s reads 16-bit rows; only a convolution alone (c) takes f32",
            level_of(s));
    REQUIRE(s->x != KGEN_DTYPE_F32 || s->layout == KGEN_ROWS_PRESPLIT,
            "x=f32: layout=%s is the row of a 16-bit projection; use presplit",
            kgen_layout_name((kgen_layout)s->layout));
    if (!s->channels) return KGEN_OK;
    REQUIRE(s->fuse == KGEN_FUSE_C, "ch=%d: fuse=%s has the channels of its heads; use c",
            s->channels, level_of(s));
    REQUIRE(s->layout == KGEN_ROWS_PRESPLIT, "ch=%d: layout=%s has heads; use presplit",
            s->channels, kgen_layout_name((kgen_layout)s->layout));
    static const char *const keys[] = {"hk", "hv", "dk", "dv"};
    const kgen_spec spec = {.family = KGEN_FAMILY_GDN, .gdn = *s};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const kgen_param *param = kgen__param_named(KGEN_FAMILY_GDN, keys[i]);
        REQUIRE(kgen_param_get(&spec, param) == param->initial,
                "%s: ch=%d has no heads; leave it out", keys[i], s->channels);
    }
    return KGEN_OK;
}

static kgen_status check_types(const kgen_gdn_spec *s, kgen_error *err) {
    REQUIRE(s->accept || !s->accept_type, "acc: accept=0 reads no counts; leave it out");
    REQUIRE(s->varlen || !s->cu_type, "cu: varlen=0 reads no cu_seqlens; leave it out");
    return KGEN_OK;
}

/* Gates that come as they are. */
static kgen_status check_raw(const kgen_gdn_spec *s, kgen_error *err) {
    if (!s->raw_gates) return KGEN_OK;
    REQUIRE(s->layout == KGEN_ROWS_PRESPLIT,
            "raw=1: layout=%s has rows of b and a; log decays and betas are presplit",
            kgen_layout_name((kgen_layout)s->layout));
    REQUIRE(s->gate != KGEN_GATE_KDA_BOUND, "gate=kda_bound: raw=1 has decays as they are");
    REQUIRE(s->a_log == KGEN_DTYPE_F32, "alog: raw=1 has no A_log; leave it out");
    REQUIRE(!s->dt_bias, "dt: raw=1 has no dt_bias; leave it out");
    return KGEN_OK;
}

static kgen_status check_output(const kgen_gdn_spec *s, kgen_error *err) {
    int quantised = s->out && kgen_dtype_size((kgen_dtype)s->out) == 1;
    REQUIRE(!quantised || (kgen__gdn_parts(s) & NORM),
            "o=%s: fuse=%s has no norm; 8-bit outputs are quantised after it",
            name_in(symbols_o_dtype, s->out), level_of(s));
    REQUIRE(!quantised || s->v_dim % 128 == 0, "dv=%d: 8-bit outputs have a scale for 128 values",
            s->v_dim);
    REQUIRE(s->fuse != KGEN_FUSE_C || !s->out || s->out == s->x,
            "o=%s: the convolution's output has the type of x", name_in(symbols_o_dtype, s->out));
    return KGEN_OK;
}

static kgen_status check_slots(const kgen_gdn_spec *s, kgen_error *err) {
    int spec = s->index == KGEN_INDEX_SPEC, buffer = s->save == KGEN_SAVE_BUFFER;
    REQUIRE(!spec || s->accept, "index=spec: reads by accepted count; give accept=1");
    REQUIRE(!spec || s->save == KGEN_SAVE_SLOTS,
            "save=%s: index=spec writes a slot a token; give save=slots", save_of(s));
    REQUIRE(s->save != KGEN_SAVE_SLOTS || spec || s->index == KGEN_INDEX_PAIR,
            "index=%s: save=slots needs a slot a token; use spec or pair", index_of(s));
    REQUIRE(!buffer || s->index == KGEN_INDEX_ONE || s->index == KGEN_INDEX_PAIR,
            "index=%s: save=buffer leaves the pool alone, or with pair writes the last state; use "
            "one or pair",
            index_of(s));
    REQUIRE(!s->tree || buffer,
            "save=%s: tree=1 takes its parents' states from the buffer; give save=buffer",
            save_of(s));
    REQUIRE(!s->tree || s->index == KGEN_INDEX_ONE, "index=%s: tree=1 has no last state; use one",
            index_of(s));
    REQUIRE(!s->tree || !s->accept, "accept=1: tree=1 begins at the stored window");
    REQUIRE(!buffer || !s->accept, "accept=1: save=buffer leaves the stored window alone");
    return KGEN_OK;
}

/* Tokens that may be taken back, and states beside the pool, have windows of their own. */
static kgen_status check_circular(const kgen_gdn_spec *s, kgen_error *err) {
    if (!s->circular) return KGEN_OK;
    REQUIRE(!s->accept, "accept=1: circular=1 keeps no inputs of tokens that were not accepted");
    REQUIRE(s->index == KGEN_INDEX_ONE,
            "index=%s: circular=1 writes into the slot it reads; use one", index_of(s));
    REQUIRE(s->save == KGEN_SAVE_FINAL || s->save == KGEN_SAVE_NONE,
            "save=%s: circular=1 keeps inputs in their columns; use final or none", save_of(s));
    return KGEN_OK;
}

static kgen_status check_replay(const kgen_gdn_spec *s, kgen_error *err) {
    int replay = s->save == KGEN_SAVE_REPLAY;
    REQUIRE(replay || !s->ring, "ring=%d: save=%s keeps no ring", s->ring, save_of(s));
    REQUIRE(!replay || (kgen__gdn_parts(s) & STEP), "save=replay: fuse=c has no recurrence");
    REQUIRE(!replay || s->ring >= s->tokens, "ring=%d: save=replay keeps at least t=%d tokens",
            s->ring, s->tokens);
    REQUIRE(!replay || s->index == KGEN_INDEX_ONE,
            "index=%s: save=replay reads and writes one slot; use one", index_of(s));
    REQUIRE(!replay || (s->k_dim <= 128 && s->v_dim <= 128),
            "dk=%d, dv=%d: save=replay has the ring in LDS, for heads of at most 128", s->k_dim,
            s->v_dim);
    return KGEN_OK;
}

/* A lane's share of one head's state (see tile_of). */
static kgen_status check_tile(const kgen_gdn_spec *s, const kgen_target *target, kgen_error *err);
static kgen_status check_lds(const kgen_gdn_spec *s, const kgen_target *target, kgen_error *err);
static kgen_status check_registers(const kgen_gdn_spec *s, const kgen_target *target,
                                   kgen_error *err);

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_gdn_spec *s = &spec->gdn;
    KGEN_TRY(check_parts(spec, err));
    KGEN_TRY(check_heads(s, err));
    KGEN_TRY(check_rows(s, err));
    KGEN_TRY(check_types(s, err));
    KGEN_TRY(check_raw(s, err));
    KGEN_TRY(check_output(s, err));
    KGEN_TRY(check_slots(s, err));
    KGEN_TRY(check_circular(s, err));
    KGEN_TRY(check_replay(s, err));
    REQUIRE(!(kgen__gdn_parts(s) & NORM) || s->v_blocks <= 1,
            "vb=%d: fuse=%s norms a head in one workgroup", s->v_blocks, level_of(s));
    if (!target) return KGEN_OK;
    KGEN_TRY(check_tile(s, target, err));
    KGEN_TRY(check_lds(s, target, err));
    return check_registers(s, target, err);
}

/* --- tile --------------------------------------------------------------- */

/* Of a head's state, `long_side` elements are contiguous (K in vk, V in kv) and
 * LANES lanes share them, 16 bytes each. In vk the waves share the rows (V), in
 * kv the columns (V): the sum over K stays inside a wave in both. */
typedef struct tile {
    int32_t vec;     /* elements of 16 bytes */
    int32_t v;       /* values of a workgroup */
    int32_t wave_v;  /* least values a wave takes at once */
    int32_t wave_el; /* elements a lane holds of those */
} tile;

static tile tile_of(const kgen_gdn_spec *s, const kgen_target *target) {
    tile t = {.vec = 16 / kgen_dtype_size((kgen_dtype)s->state), .v = s->v_dim / s->v_blocks};
    t.wave_v = s->state_layout == KGEN_STATE_VK ? target->wave_size / s->lanes : s->lanes * t.vec;
    t.wave_el = t.wave_v * s->k_dim / target->wave_size;
    return t;
}

/* Of a head, by the spec itself. */
static int is_cut(const kgen_gdn_spec *s) {
    return (kgen__gdn_parts(s) & STEP) && s->v_blocks && s->waves && s->lanes && s->elements;
}

static kgen_status check_tile(const kgen_gdn_spec *s, const kgen_target *target, kgen_error *err) {
    if (!is_cut(s)) return KGEN_OK;
    tile t = tile_of(s, target);
    int32_t at_once = s->waves * target->wave_size * s->elements / s->k_dim;
    REQUIRE(s->state_layout != KGEN_STATE_VK || s->k_dim % (s->lanes * t.vec) == 0,
            "lanes=%d: 16 bytes each %s a row of dk=%d", s->lanes,
            s->lanes * t.vec > s->k_dim ? "exceed" : "do not divide", s->k_dim);
    REQUIRE(s->state_layout == KGEN_STATE_VK || s->k_dim * s->lanes % target->wave_size == 0,
            "lanes=%d: %d rows at once do not divide dk=%d", s->lanes, target->wave_size / s->lanes,
            s->k_dim);
    REQUIRE(t.wave_el <= s->elements && s->elements % t.wave_el == 0,
            "el=%d: lanes=%d gives a lane %d elements at least", s->elements, s->lanes, t.wave_el);
    REQUIRE(at_once <= t.v && t.v % at_once == 0,
            "waves=%d: with el=%d they take %d values at once, the workgroup has %d", s->waves,
            s->elements, at_once, t.v);
    int32_t turns = t.v / at_once;
    REQUIRE(turns == 1 || turns % 2 == 0,
            "waves=%d: with el=%d they take %d turns, which come in pairs", s->waves, s->elements,
            turns);
    return KGEN_OK;
}

/* --- LDS ---------------------------------------------------------------- */

static int32_t lds_bytes(const kgen_gdn_spec *s, const kgen_target *target, int32_t v_blocks) {
    int32_t parts = kgen__gdn_parts(s), tree = s->tree ? s->tokens : 0;
    int32_t decays = s->gate == KGEN_GATE_GDN ? 1 : s->k_dim;
    int32_t floats = parts & STEP
                         ? kg_gdn_step_floats(s->tokens, s->k_dim, s->v_dim, v_blocks,
                                              (parts & NORM) != 0, decays, s->ring)
                         : kg_gdn_unpack_floats(tree, larger(1, s->waves) * target->wave_size);
    return floats * (int32_t)sizeof(float);
}

/* The fewest workgroups of a head whose tokens fit into LDS; normed heads stay
 * whole. */
static int32_t least_blocks(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t blocks = 1, most = kgen__gdn_parts(s) & NORM ? 1 : powers[POWERS - 1];
    while (blocks < most && lds_bytes(s, target, blocks) > target->lds_bytes) blocks *= 2;
    return blocks;
}

static kgen_status check_lds(const kgen_gdn_spec *s, const kgen_target *target, kgen_error *err) {
    int32_t blocks = s->v_blocks ? s->v_blocks : least_blocks(s, target);
    int32_t bytes = lds_bytes(s, target, blocks);
    REQUIRE(bytes <= target->lds_bytes, "t=%d: a workgroup stages %d bytes in LDS, %s has %d",
            s->tokens, bytes, target->name, target->lds_bytes);
    return KGEN_OK;
}

/* --- defaults ----------------------------------------------------------- */

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

/* auto is x where the level reads the parameter. */
static int32_t or_x(int32_t dtype, int32_t parts, const kgen_gdn_spec *s) {
    return dtype || !(kgen__gdn_parts(s) & parts) ? dtype : s->x;
}

/* Above as many, their inputs are most of what a lane holds. */
enum { FEW_TOKENS = 8 };

/* Lanes of a contiguous row. vk: 16 where they have 16 bytes each. kv: so many
 * that a lane's share of a wave's values is not above what it is to hold. */
static int32_t choose_lanes(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t vec = 16 / kgen_dtype_size((kgen_dtype)s->state), lanes = 8;
    if (s->state_layout == KGEN_STATE_VK) {
        for (lanes = 16; s->k_dim / vec % lanes;) lanes /= 2;
        return lanes;
    }
    int32_t most = target->max_vgprs <= 256 || s->tokens > FEW_TOKENS ? 32 : 64;
    while (lanes > 1 &&
           (vec * lanes * s->k_dim / target->wave_size > most || s->v_dim % (vec * lanes)))
        lanes /= 2;
    return lanes;
}

/* The fewest elements a lane can hold: one row (vk), or 16 bytes of each (kv). */
static int32_t least_elements(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t vec = 16 / kgen_dtype_size((kgen_dtype)s->state);
    return s->state_layout == KGEN_STATE_VK ? s->k_dim / s->lanes
                                            : vec * s->lanes * s->k_dim / target->wave_size;
}

/* What a lane holds of a head. */
typedef struct lane_share {
    int32_t k, v;  /* of a token's k, and sums */
    int32_t words; /* of the state as it is loaded */
    int32_t next;  /* of them, the next turn's */
    int32_t turns; /* in which a token's inputs are loaded */
    int32_t taps;  /* registers of the convolution, each turn */
} lane_share;

static lane_share share_of(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t threads = s->waves * target->wave_size, least = least_elements(s, target);
    int32_t size = kgen_dtype_size((kgen_dtype)s->state);
    lane_share h = {.k = s->state_layout == KGEN_STATE_VK ? least : least * size / 16};
    h.v = s->elements / h.k;
    h.words = s->elements * size / 4;
    int in_turns = s->v_dim * s->k_dim / s->v_blocks > threads * s->elements;
    h.next = in_turns ? h.words : 0;
    h.turns = ceil_div(2 * s->k_dim + s->v_dim / s->v_blocks, KG_GDN_PIECE * threads);
    h.taps = kgen__gdn_parts(s) & CONV ? 2 * s->conv_width : 0;
    return h;
}

/* Registers of a lane: the state, as loaded and as floats, and its next turn; a
 * token's k, q and decays; sums; inputs. */
static int32_t registers(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t several = s->tokens > 1 || s->ring;
    lane_share h = share_of(s, target);
    int32_t loaded = (s->state != KGEN_DTYPE_F32 || several) * h.words + h.next;
    enum { FIXED = 48, ROWS = 24 }; /* addresses, gates, conversions; measured */
    /* Rows of kv lie too far apart for one address. */
    int32_t addresses = s->state_layout == KGEN_STATE_KV ? (h.words + h.next) / 2 : 0;
    return s->elements + loaded + addresses + ((s->gate ? 5 : 2) + (s->ring ? 2 : 0)) * h.k +
           3 * h.v + h.turns * 2 * (s->tokens + h.taps) + (s->tree ? h.words : 0) + FIXED +
           (s->tokens > FEW_TOKENS ? ROWS : 0);
}

/* What a lane holds at once in whatever order: less than compilers were ever seen to find
 * (docs/verification.md). */
static int32_t least_registers(const kgen_gdn_spec *s, const kgen_target *target) {
    enum { ADDRESSES = 8 };
    lane_share h = share_of(s, target);
    return s->elements + h.next + (s->gate ? 2 : 1) * h.k + h.v + 2 * h.turns * h.taps + ADDRESSES;
}

/* What comes nearer to the bound the compiler decides. */
static kgen_status check_registers(const kgen_gdn_spec *s, const kgen_target *target,
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
    int32_t waves = target->vgpr_file / registers(s, target) * target->simds;
    if (is_measured(s, target)) return larger(1, smaller(32, wanted));
    return larger(1, smaller(32, smaller(waves / s->waves, wanted)));
}

/* What is wanted of a head that powers of two cut. */
static void want_cut(kgen_gdn_spec *s, const kgen_target *target, const tune_row *row) {
    int narrow = s->state != KGEN_DTYPE_F32;
    int32_t blocks = s->v_blocks ? s->v_blocks : 1;
    int32_t whole = s->v_dim / blocks * s->k_dim / target->wave_size; /* of a lane, one wave */
    if (!s->elements)
        s->elements = larger(least_elements(s, target), smaller(whole, row->elements[narrow]));
    if (!s->waves) s->waves = larger(1, smaller(row->waves[narrow], whole / s->elements));
    if (!s->v_blocks) {
        int32_t most = larger(row->v_blocks[narrow], least_blocks(s, target));
        for (s->v_blocks = most; s->v_blocks > larger(1, whole / s->elements / s->waves);)
            s->v_blocks /= 2;
    }
}

/* The first of fewer workgroups, waves and elements than `want` that cuts the
 * head, in at most `most` registers (0: any); what `s` has stays. */
static int find_cut(kgen_gdn_spec *s, const kgen_gdn_spec *want, const kgen_target *target,
                    int32_t most) {
    int32_t least_waves = larger(1, s->waves), least_vb = larger(1, s->v_blocks);
    kgen_gdn_spec cut = *want;
    for (; cut.v_blocks >= least_vb; cut.v_blocks /= 2)
        for (cut.waves = want->waves; cut.waves >= least_waves; cut.waves--)
            for (size_t i = ELEMENT_COUNTS; i-- > 0;) {
                cut.elements = element_counts[i];
                if (cut.elements > want->elements || cut.elements < s->elements) continue;
                if (check_tile(&cut, target, NULL) != KGEN_OK) continue;
                if (check_registers(&cut, target, NULL) != KGEN_OK) continue;
                int32_t each = ceil_div(cut.waves, target->simds); /* waves of a SIMD */
                int32_t lack = 256 - smaller(256, target->vgpr_file / each);
                if (most && registers(&cut, target) + lack > most) continue;
                *s = cut;
                return 1;
            }
    return 0;
}

/* The head is cut among lanes first, then waves, then workgroups, then turns.
 * Heads of 96 and 192 may need fewer of each than is wanted; many tokens more
 * waves, which share what they load. */
static void cut_head(kgen_gdn_spec *s, const kgen_target *target, const tune_row *row) {
    kgen_gdn_spec want = *s, wide;
    want_cut(&want, target, row);
    int32_t most_waves = s->waves ? s->waves : 16;
    for (int32_t most = 256; s->tokens > FEW_TOKENS && most <= 384; most += 32)
        for (wide = want; wide.waves <= most_waves; wide.waves *= 2)
            if (find_cut(s, &wide, target, most)) return;
    if (!find_cut(s, &want, target, 0)) *s = want;
}

static void tune(kgen_gdn_spec *s, const kgen_target *target) {
    int narrow = s->state != KGEN_DTYPE_F32, norm = (kgen__gdn_parts(s) & NORM) != 0;
    const tune_row *row = &tune_rows[target->isa][s->batch == FEW][norm];
    if (!s->batch) s->batch = MANY;
    if (!s->lanes) s->lanes = choose_lanes(s, target);
    cut_head(s, target, row);
    if (!s->occupancy) s->occupancy = choose_occupancy(s, target, row->lanes_held[narrow]);
}

/* Up to how many value heads (of all sequences) a compute unit batch=few is the
 * faster: where the table of docs/performance.md has stars. */
static const int32_t few_heads[2][2][2] = {
    /* [several tokens][norm][16-bit state] */
    {{8, 2}, {1, 2}},
    {{32, 32}, {2, 1}},
};

static void suit(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target) {
    kgen_gdn_spec *s = &spec->gdn;
    int norm = (kgen__gdn_parts(s) & NORM) != 0;
    if (s->batch || !problem->batch || !(kgen__gdn_parts(s) & STEP)) return;
    int64_t heads = (int64_t)problem->batch * s->v_heads;
    int64_t few = few_heads[s->tokens > 1][norm][s->state != KGEN_DTYPE_F32];
    s->batch = heads <= few * target->typical_cus ? FEW : MANY;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    kgen_gdn_spec *s = &spec->gdn;
    s->out = kgen__native_fp8(or_x(s->out, CONV | STEP, s), target);
    s->conv_state = or_x(s->conv_state, CONV, s);
    s->conv_weight = or_x(s->conv_weight, CONV, s);
    s->ab = or_x(s->ab, STEP, s);
    if (!s->raw_gates) s->dt_bias = or_x(s->dt_bias, STEP, s);
    s->norm = or_x(s->norm, NORM, s);
    if (kgen__gdn_parts(s) & STEP) {
        tune(s, target);
        return;
    }
    if (!s->waves) { /* a tree's tokens are staged */
        s->waves = 256 / target->wave_size;
        while (s->waves > 1 && check_lds(s, target, NULL) != KGEN_OK) s->waves /= 2;
    }
    if (!s->occupancy) s->occupancy = s->tokens > 1 ? 2 : 4;
    s->v_blocks = s->lanes = s->elements = 0;
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return spec->gdn.waves * target->wave_size;
}

static int32_t occupancy(const kgen_spec *spec) { return spec->gdn.occupancy; }

int64_t kgen__gdn_groups(const kgen_gdn_spec *s, const kgen_target *target) {
    int32_t blocks = kgen__gdn_parts(s) & STEP ? s->v_blocks : 0;
    return kg_gdn_groups(s->v_heads, blocks, (int)kgen__gdn_channels(s),
                         s->waves * target->wave_size);
}

int kgen__gdn_needs_counters(const kgen_gdn_spec *s) {
    int32_t parts = kgen__gdn_parts(s);
    int moved =
        s->save == KGEN_SAVE_BUFFER ? s->index == KGEN_INDEX_PAIR : s->save != KGEN_SAVE_NONE;
    return (parts & CONV) && (parts & STEP) && moved && s->v_heads / s->k_heads * s->v_blocks > 1;
}

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_gdn_spec *s = &spec->gdn;
    char tokens[16] = "";
    if (s->tokens > 1) snprintf(tokens, sizeof tokens, "_t%d", s->tokens);
    snprintf(out, KGEN_SYMBOL_MAX, "kg_gdn_%s_%s_%s_hk%d_hv%d_k%d_v%d_state%s_%s%s%s%s%s%s",
             level_of(s), kgen_layout_name((kgen_layout)s->layout),
             kgen_dtype_name((kgen_dtype)s->x), s->k_heads, s->v_heads, s->k_dim, s->v_dim,
             kgen_dtype_name((kgen_dtype)s->state), kgen_layout_name((kgen_layout)s->state_layout),
             tokens, s->save ? "_" : "", s->save ? save_of(s) : "", s->gate ? "_" : "",
             s->gate ? name_in(symbols_gate, s->gate) : "");
}

const kgen__family kgen__family_gdn = {
    .template_name = "gdn.hip",
    .params = params,
    .param_count = PARAMS,
    .applicable = applicable,
    .defaults = defaults,
    .suit = suit,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .symbol = symbol,
};

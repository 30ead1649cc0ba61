/* Family gdn: Gated DeltaNet and KDA decode, from the in-projection to the gated norm, at five fuse
 * levels. Its table of parameters, what it refuses, and what a launch must know; files beside it
 * say what a kernel needs (gdn_needs.c) and fill tuning keys (gdn_suit.c by the size of the
 * problem, then gdn_fill.c). */
#include "gdn.h"

#include <stdio.h>
#include <string.h>

#include "family.h"
#include "gdn_keys.h"
#include "gdn_needs.h"
#include "templates/kg/gdn/gdn_shape.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t head_dims[] = {64, 96, 128, 192, 256};
static const int32_t block_counts[] = {1, 2, 4, KGEN__GDN_MOST_BLOCKS};
static const int32_t lane_counts[] = {1, 2, 4, 8, 16, 32};

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_HEADS = RANGE(1, 256, 1);
static const kgen_domain domain_CHANNELS = RANGE(1, 1 << 16, 1);
static const kgen_domain domain_HEAD = LIST(head_dims);
static const kgen_domain domain_WIDTH = RANGE(2, 5, 1);
static const kgen_domain domain_TOKENS = RANGE(1, 16, 1);
static const kgen_domain domain_RING = RANGE(0, 16, 1);
static const kgen_domain domain_BLOCKS = LIST(block_counts);
static const kgen_domain domain_WAVES = RANGE(1, 16, 1);
static const kgen_domain domain_LANES = LIST(lane_counts);
static const kgen_domain domain_ELEMENTS = LIST(kgen__gdn_element_counts);
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
SYMBOLS(batch, VALUE("auto", KGEN__GDN_BATCH_AUTO), VALUE("few", KGEN__GDN_BATCH_FEW),
        VALUE("many", KGEN__GDN_BATCH_MANY));
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

/* --- which level reads what ------------------------------------------------ */

enum { CONV = KGEN__GDN_CONV, STEP = KGEN__GDN_RECURRENCE, NORM = KGEN__GDN_NORM };

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
    KGEN_TRY(kgen__gdn_tile_fits(s, target, err));
    KGEN_TRY(kgen__gdn_lds_fits(s, target, err));
    return kgen__gdn_registers_fit(s, target, err);
}

/* --- defaults ----------------------------------------------------------- */

/* auto is x where the level reads the parameter. */
static int32_t or_x(int32_t dtype, int32_t parts, const kgen_gdn_spec *s) {
    return dtype || !(kgen__gdn_parts(s) & parts) ? dtype : s->x;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    kgen_gdn_spec *s = &spec->gdn;
    s->out = kgen__native_fp8(or_x(s->out, CONV | STEP, s), target);
    s->conv_state = or_x(s->conv_state, CONV, s);
    s->conv_weight = or_x(s->conv_weight, CONV, s);
    s->ab = or_x(s->ab, STEP, s);
    if (!s->raw_gates) s->dt_bias = or_x(s->dt_bias, STEP, s);
    s->norm = or_x(s->norm, NORM, s);
    kgen__gdn_fill_keys(s, target);
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return spec->gdn.waves * target->wave_size;
}

static int32_t occupancy(const kgen_spec *spec) { return spec->gdn.occupancy; }

int64_t kgen__gdn_channels(const kgen_gdn_spec *s) {
    if (s->channels) return s->channels;
    return kg_gdn_channels(s->k_heads, s->k_dim, s->v_heads, s->v_dim);
}

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
    .suit = kgen__gdn_suit,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .symbol = symbol,
};

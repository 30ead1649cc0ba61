/* Family attn: paged attention, phases decode and verify. */
#include <stdio.h>
#include <string.h>

#include "attn.h"
#include "family.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t head_dims[] = {64, 80, 96, 112, 128, 192, 256, 512};
static const int32_t row_tile_counts[] = {1, 2, 3, 4};

#define LIST(values) {0, 0, 0, values, sizeof values / sizeof values[0]}
#define RANGE(min, max, step) {min, max, step, NULL, 0}

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_HEAD = LIST(head_dims);
static const kgen_domain domain_GROUP = RANGE(1, 32, 1);
static const kgen_domain domain_TOKENS = RANGE(1, 16, 1);
static const kgen_domain domain_PAGE = RANGE(16, 65536, 16);
static const kgen_domain domain_WINDOW = RANGE(1, 1 << 24, 1);
static const kgen_domain domain_WAVES = RANGE(1, 16, 1);
static const kgen_domain domain_TILES = LIST(row_tile_counts);

#define SYMBOLS(name, ...) static const kgen_symbol symbols_##name[] = {__VA_ARGS__, {NULL, 0}}

static const kgen_symbol symbols_none[] = {{NULL, 0}};
SYMBOLS(phase, {"decode", KGEN_DECODE}, {"verify", KGEN_VERIFY});
SYMBOLS(q_dtype, {"bf16", KGEN_BF16}, {"fp16", KGEN_FP16});
SYMBOLS(kv_dtype, {"bf16", KGEN_BF16}, {"fp16", KGEN_FP16}, {"fp8", KGEN_FP8},
        {"e4m3fn", KGEN_E4M3FN}, {"e4m3fnuz", KGEN_E4M3FNUZ}, {"e5m2", KGEN_E5M2});
SYMBOLS(o_dtype, {"auto", 0}, {"bf16", KGEN_BF16}, {"fp16", KGEN_FP16}, {"fp8", KGEN_FP8},
        {"e4m3fn", KGEN_E4M3FN}, {"e4m3fnuz", KGEN_E4M3FNUZ}, {"e5m2", KGEN_E5M2});
SYMBOLS(layout, {"nhd", KGEN_NHD}, {"hnd", KGEN_HND}, {"shuffle", KGEN_SHUFFLE},
        {"xpacked", KGEN_XPACKED});
SYMBOLS(page, {"x16", KGEN_PAGE_X16}, {"1", 1});
SYMBOLS(table, {"i32", 0}, {"i64", 1});
SYMBOLS(window, {"off", 0}, {"rt", KGEN_WINDOW_RT});
SYMBOLS(boolean, {"0", 0}, {"1", 1});
SYMBOLS(descale, {"auto", KGEN_DESCALE_AUTO}, {"none", KGEN_DESCALE_NONE},
        {"head", KGEN_DESCALE_HEAD}, {"token", KGEN_DESCALE_TOKEN});
SYMBOLS(auto0, {"auto", 0});

static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, attn.field), &domain_##domain, symbols_##symbols, dflt, \
     KGEN_##role, KGEN_##print, doc},
#include <kgen/attn_params.def>
#undef KGEN_PARAM
};

/* --- applicable --------------------------------------------------------- */

static int is_8bit(int32_t dtype) { return kgen_dtype_size((kgen_dtype)dtype) == 1; }
static int is_packed(int32_t layout) { return layout == KGEN_SHUFFLE || layout == KGEN_XPACKED; }
static int32_t v_dim_of(const kgen_attn_spec *s) { return s->v_dim ? s->v_dim : s->head_dim; }

#define REQUIRE(condition, ...) \
    if (!(condition)) return kgen_fail(err, KGEN_E_SPEC, __VA_ARGS__)

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_attn_spec *s = &spec->attn;
    REQUIRE(s->phase != KGEN_DECODE || s->q_tokens == 1,
            "t=%d: phase=decode has 1 query token a sequence; use phase=verify", s->q_tokens);
    REQUIRE(!is_packed(s->layout) || s->page != 1,
            "page=1: layout=%s packs 16 bytes of tokens; use nhd or hnd, or a page of 16 or more",
            kgen_layout_name((kgen_layout)s->layout));
    REQUIRE(is_8bit(s->kv) || s->descale == KGEN_DESCALE_AUTO || s->descale == KGEN_DESCALE_NONE,
            "descale: kv=%s is not quantised; only 8-bit KV takes descales",
            kgen_dtype_name((kgen_dtype)s->kv));
    REQUIRE(s->v_dim <= s->head_dim, "dv=%d: greater than d=%d", s->v_dim, s->head_dim);
    (void)target;
    return KGEN_OK;
}

/* --- defaults ----------------------------------------------------------- */

/* What one isa gives a wave: query columns of a row tile, and the row tiles
 * and value dims whose accumulators fit its registers. */
typedef struct isa_row {
    int32_t columns;
    int32_t waves;
    int32_t acc_regs;  /* accumulator registers a lane may spend              */
    int32_t wave_size;
} isa_row;

static const isa_row isa_rows[] = {
    [KGEN_ISA_CDNA2] = {16, 4, 128, 64}, [KGEN_ISA_CDNA3] = {16, 4, 128, 64},
    [KGEN_ISA_CDNA4] = {16, 4, 128, 64}, [KGEN_ISA_RDNA3] = {16, 4, 64, 32},
    [KGEN_ISA_RDNA4] = {16, 4, 64, 32},  [KGEN_ISA_SM90] = {8, 8, 128, 32},
};

static int32_t native_fp8(int32_t dtype, const kgen_target *target) {
    return dtype != KGEN_FP8 ? dtype : target->fp8_fnuz ? KGEN_E4M3FNUZ : KGEN_E4M3FN;
}

/* Value dims are split over waves until one row tile fits, then row tiles are
 * added while they fit. */
static void tune(kgen_attn_spec *s, const kgen_target *target) {
    const isa_row *isa = &isa_rows[target->isa];
    int32_t rows = s->group * s->q_tokens;
    int32_t tiles = (rows + isa->columns - 1) / isa->columns;
    int32_t tile_regs = (s->v_dim + 63) / 64 * 64 * isa->columns / isa->wave_size;
    int32_t split = s->v_split;
    if (!split)
        for (split = 1; split < 4 && (tile_regs / split > isa->acc_regs ||
                                      s->head_dim / split > 256 * isa->wave_size / 64);)
            split *= 2;
    int32_t fit = isa->acc_regs * split / tile_regs;
    int32_t fitting = fit < 1 ? 1 : fit > 4 ? 4 : fit;
    s->v_split = split;
    if (!s->row_tiles) s->row_tiles = tiles < fitting ? tiles : fitting;
    if (!s->waves) s->waves = isa->waves;
    if (!s->occupancy) s->occupancy = target->vendor == KGEN_VENDOR_NVIDIA ? 1 : 2;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    kgen_attn_spec *s = &spec->attn;
    s->kv = native_fp8(s->kv, target);
    s->out = native_fp8(s->out ? s->out : s->q, target);
    s->v_dim = v_dim_of(s);
    if (s->descale == KGEN_DESCALE_AUTO)
        s->descale = is_8bit(s->kv) ? KGEN_DESCALE_HEAD : KGEN_DESCALE_NONE;
    tune(s, target);
}

kgen_attn_geometry kgen__attn_geometry(const kgen_attn_spec *spec, const kgen_target *target) {
    int32_t rows = spec->row_tiles * isa_rows[target->isa].columns;
    kgen_attn_geometry geometry = {rows, (spec->group * spec->q_tokens + rows - 1) / rows};
    return geometry;
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return spec->attn.waves * spec->attn.v_split * target->wave_size;
}

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_attn_spec *s = &spec->attn;
    char page[16] = "x16";
    if (s->page) snprintf(page, sizeof page, "%d", s->page);
    snprintf(out, KGEN_SYMBOL_MAX, "kg_attn_%s_%s_kv%s_d%d_g%d_p%s_%s%s%s%s%s",
             s->phase == KGEN_DECODE ? "decode" : "verify", kgen_dtype_name((kgen_dtype)s->q),
             kgen_dtype_name((kgen_dtype)s->kv), s->head_dim, s->group, page,
             kgen_layout_name((kgen_layout)s->layout), s->window ? "_window" : "",
             s->softcap ? "_softcap" : "", s->alibi ? "_alibi" : "", s->sinks ? "_sinks" : "");
}

const kgen_family kgen__family_attn = {
    .name = "attn",
    .template_name = "attn.hip",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .applicable = applicable,
    .defaults = defaults,
    .launch_shape = launch_shape,
    .symbol = symbol,
};

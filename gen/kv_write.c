/* Family kv_write: new keys and values into a paged cache. */
#include <stdio.h>

#include "family.h"
#include "kv.h"
#include "kv_params.h"
#include "templates/kg/kv/kv_shape.h"

/* --- the parameter table ------------------------------------------------ */

static const kgen_domain domain_ROPE = RANGE(16, 512, 16);

static const int32_t few_counts[] = {1, 64, 256, 1024};
static const kgen_domain domain_FEW = LIST(few_counts);
SYMBOLS(boolean, VALUE("0", 0), VALUE("1", 1));
SYMBOLS(index, VALUE("i32", 0), VALUE("i64", 1));
SYMBOLS(x_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16), NAMED("f32", DTYPE_F32));
SYMBOLS(f_dtype, NAMED("f32", DTYPE_F32), NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16));
SYMBOLS(scale, NAMED("auto", DESCALE_AUTO), NAMED("none", DESCALE_NONE),
        NAMED("head", DESCALE_HEAD), NAMED("token", DESCALE_TOKEN), NAMED("row", DESCALE_ROW),
        NAMED("block", DESCALE_BLOCK));
SYMBOLS(table_width, VALUE("half", 0), VALUE("full", 1));
SYMBOLS(remap, VALUE("off", KGEN_REMAP_OFF), NAMED("i32", REMAP_I32), NAMED("i64", REMAP_I64));
SYMBOLS(rope, NAMED("off", ROPE_OFF), NAMED("neox", ROPE_NEOX),
        NAMED("interleaved", ROPE_INTERLEAVED));

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, kv_write.field), &domain_##domain, symbols_##symbols, \
     dflt, KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/kv_write_params.def>
#undef KGEN_PARAM
};
/* clang-format on */

/* --- applicable --------------------------------------------------------- */

kgen__kv_shape kgen__kv_write_geometry(const kgen_kv_write_spec *s) {
    int32_t v_dim = s->v_dim ? s->v_dim : s->head_dim;
    int32_t rope_dim = s->rope_dim ? s->rope_dim : s->head_dim;
    return (kgen__kv_shape){s->kv,
                            s->head_dim,
                            v_dim,
                            s->page,
                            s->layout,
                            s->scale,
                            s->waves,
                            s->turns,
                            s->rope == KGEN_ROPE_NEOX ? rope_dim / 2 : 0,
                            kg_kv_write_parts(s->scale == KGEN_DESCALE_TOKEN),
                            kgen_dtype_size((kgen_dtype)s->x) / 2};
}

static kgen_status check_rope(const kgen_kv_write_spec *s, kgen_error *err) {
    kgen__kv_shape shape = kgen__kv_write_geometry(s);
    int32_t dims = s->rope_dim ? s->rope_dim : s->head_dim, x = kgen__kv_x(&shape);
    REQUIRE(s->rope || !s->rope_dim, "rd=%d: rope=off rotates nothing; leave it out", s->rope_dim);
    REQUIRE(s->rope || !s->rope_q, "rq=1: rope=off rotates nothing; leave it out");
    REQUIRE(s->rope || s->table == KGEN_DTYPE_F32, "ct: rope=off reads no table; leave it out");
    REQUIRE(s->rope || !s->table_full, "tw: rope=off reads no table; leave it out");
    REQUIRE(s->rope || s->positions == 1, "pos: rope=off reads no positions; leave it out");
    REQUIRE(!s->rope || dims <= s->head_dim, "rd=%d: greater than d=%d", dims, s->head_dim);
    REQUIRE(s->rope != KGEN_ROPE_NEOX || dims % (2 * x) == 0,
            "rd=%d: rope=neox pairs 16-byte pieces of the cache; a multiple of %d expected", dims,
            2 * x);
    return KGEN_OK;
}

/* What follows from the shape alone. */
static void fill_shape(kgen_kv_write_spec *s) {
    s->scale = kgen__kv_granularity(s->kv, s->scale);
    if (!s->v_dim) s->v_dim = s->head_dim;
    if (s->rope && !s->rope_dim) s->rope_dim = s->head_dim;
}

/* Packed values: by groups of tokens, or row by row where there are few. */
static int written_two_ways(const kgen_kv_write_spec *s) {
    kgen__kv_shape shape = kgen__kv_write_geometry(s);
    return kgen__kv_packed(&shape) && s->scale != KGEN_DESCALE_ROW;
}

/* Halves of odd heads are one lane's. f32 rows with a maximum of their own are too many for
 * the 256 registers of a lane of 32. */
static kgen_status check_registers(const kgen_kv_write_spec *s, const kgen_target *target,
                                   kgen_error *err) {
    kgen_kv_write_spec whole = *s;
    fill_shape(&whole);
    kgen__kv_shape shape = kgen__kv_write_geometry(&whole);
    int32_t most = whole.scale == KGEN_DESCALE_ROW ? 64 : 96; /* row: several pieces are held */
    int32_t words = kgen__kv_piece_words(&shape, target, kgen__kv_x(&shape));
    REQUIRE(s->x != KGEN_DTYPE_F32 || whole.scale < KGEN_DESCALE_TOKEN || target->wave_size > 32 ||
                words <= most,
            "x=f32: with d=%d, rope=neox and written scales a lane holds %d words, at most %d",
            s->head_dim, words, most);
    return KGEN_OK;
}

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_kv_write_spec *s = &spec->kv_write;
    kgen__kv_shape shape = kgen__kv_write_geometry(s);
    KGEN_TRY(kgen__kv_applicable(&shape, s->x, "x", err));
    KGEN_TRY(kgen__kv_check_blocks(&shape, s->x, "x", err));
    KGEN_TRY(kgen__kv_check_align(&shape, s->align, err));
    REQUIRE(!s->pow2 || s->scale == KGEN_DESCALE_BLOCK,
            "pow2=1: only the scales of scale=block are rounded to powers of two");
    REQUIRE(s->scale != KGEN_DESCALE_ROW || s->turns <= 1,
            "turns=%d: scale=row takes rows one after another", s->turns);
    REQUIRE(s->few <= 1 || written_two_ways(s),
            "few=%d: only packed values (layout=shuffle, xpacked) without scale=row can be "
            "written row by row",
            s->few);
    int32_t most = (target ? 8 * target->wave_size : 512) / shape.pair_words;
    REQUIRE(s->scale != KGEN_DESCALE_TOKEN || !kgen__kv_packed(&shape) || shape.v_dim <= most,
            "dv=%d: scale=token with layout=%s holds the tokens of a head in registers; at most %d",
            shape.v_dim, kgen_layout_name((kgen_layout)s->layout), most);
    if (target) KGEN_TRY(check_registers(s, target, err));
    return check_rope(s, err);
}

/* --- defaults ----------------------------------------------------------- */

/* What sm_90 wants where the conversions are instructions, so that nothing
 * spills (docs/performance.md). Packed values: looking for groups of tokens
 * takes long, so many small workgroups. scale=row: every wave waits for its row. */
typedef struct sm90_row {
    int32_t packed, scale; /* scale 0: given, or none */
    int32_t piece;         /* words of a lane's piece of a row and its rotation, at most */
    int32_t waves, turns, occupancy; /* 0: as elsewhere */
} sm90_row;

static const sm90_row sm90_rows[] = {
    {1, 0, INT32_MAX, 0, 0, 4},
    {1, KGEN_DESCALE_TOKEN, INT32_MAX, 4, 2, 5},
    {0, KGEN_DESCALE_ROW, 16, 4, 0, 8},
};

static const sm90_row *sm90_row_of(const kgen_kv_write_spec *s, const kgen_target *target,
                                   int packed, int32_t piece) {
    int native = s->kv == KGEN_DTYPE_E4M3FN || s->kv == KGEN_DTYPE_E5M2 || s->kv == KGEN_DTYPE_I8;
    int32_t scale = s->scale >= KGEN_DESCALE_TOKEN ? s->scale : 0;
    for (size_t i = 0; i < sizeof sm90_rows / sizeof sm90_rows[0]; i++)
        if (target->isa == KGEN_ISA_SM90 && native && s->x != KGEN_DTYPE_F32 &&
            sm90_rows[i].packed == packed && sm90_rows[i].scale == scale &&
            piece <= sm90_rows[i].piece)
            return &sm90_rows[i];
    return NULL;
}

static int32_t or_else(int32_t chosen, int32_t other) { return chosen ? chosen : other; }

static void defaults(kgen_spec *spec, const kgen_target *target) {
    kgen_kv_write_spec *s = &spec->kv_write;
    s->kv = kgen__native_fp8(s->kv, target);
    fill_shape(s);
    kgen__kv_shape shape = kgen__kv_write_geometry(s);
    int32_t words = kgen__kv_x(&shape) / 2 * shape.pair_words; /* of a chunk as it comes in */
    int32_t extra = s->rope == KGEN_ROPE_NEOX ? 8 * words : s->rope ? 4 * words : 0;
    if (s->table_full) extra *= 2;
    int32_t piece = kgen__kv_piece_words(&shape, target, words) + extra;
    int packed = kgen__kv_packed(&shape), token = packed && s->scale == KGEN_DESCALE_TOKEN;
    const sm90_row none = {0}, *row = sm90_row_of(s, target, packed, piece);
    if (!row) row = &none;
    int32_t turns = s->scale == KGEN_DESCALE_ROW ? 1 : kgen__kv_turns(&shape, target, words);
    s->turns = or_else(s->turns, or_else(row->turns, turns));
    s->waves = or_else(s->waves, or_else(row->waves, (token ? 128 : 256) / target->wave_size));
    s->few = or_else(s->few, written_two_ways(s) ? 256 : 1);
    if (s->occupancy) return;
    shape = kgen__kv_write_geometry(s);
    s->occupancy = kgen__kv_occupancy(&shape, target, words, extra);
    if (s->occupancy > 1 && row->occupancy) s->occupancy = row->occupancy;
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return spec->kv_write.waves * target->wave_size;
}

static int32_t occupancy(const kgen_spec *spec) { return spec->kv_write.occupancy; }

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    static const char *const scales[] = {"", "", "", "_token", "_row", "", "_block"};
    static const char *const ropes[] = {"", "_neox", "_interleaved"};
    const kgen_kv_write_spec *s = &spec->kv_write;
    char page[16] = "x16";
    if (s->page) snprintf(page, sizeof page, "%d", s->page);
    snprintf(out, KGEN_SYMBOL_MAX, "kg_kv_write_%s_kv%s_d%d_v%d_p%s_%s%s%s%s",
             kgen_dtype_name((kgen_dtype)s->x), kgen_dtype_name((kgen_dtype)s->kv), s->head_dim,
             s->v_dim ? s->v_dim : s->head_dim, page, kgen_layout_name((kgen_layout)s->layout),
             scales[s->scale], ropes[s->rope], s->remap ? "_remap" : "");
}

const kgen__family kgen__family_kv_write = {
    .template_name = "kv_write.hip",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .applicable = applicable,
    .defaults = defaults,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .symbol = symbol,
};

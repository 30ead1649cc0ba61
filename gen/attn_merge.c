/* Family attn_merge: partial results of attention as one. */
#include <stdio.h>

#include "family.h"
#include "templates/kg/attn_merge/attn_merge_shape.h"

/* --- the parameter table ------------------------------------------------ */

static const int32_t turn_counts[] = {1, 2, 4};

static const kgen_domain domain_NONE = RANGE(0, 0, 0);
static const kgen_domain domain_HEAD = RANGE(KG_MERGE_DIMS, 512, KG_MERGE_DIMS);
static const kgen_domain domain_WAVES = RANGE(1, 16, 1);
static const kgen_domain domain_TURNS = LIST(turn_counts);
static const kgen_domain domain_OCC = RANGE(1, 16, 1);

static const kgen_symbol symbols_none[] = {NO_SYMBOL};
SYMBOLS(auto0, VALUE("auto", 0));
SYMBOLS(x_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16), NAMED("f32", DTYPE_F32));
SYMBOLS(o_dtype, VALUE("auto", 0), NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16),
        NAMED("f32", DTYPE_F32), VALUE("fp8", KGEN_DTYPE_FP8), NAMED("e4m3fn", DTYPE_E4M3FN),
        NAMED("e4m3fnuz", DTYPE_E4M3FNUZ), NAMED("e5m2", DTYPE_E5M2));
SYMBOLS(parts, NAMED("pair", PARTS_PAIR), NAMED("stack", PARTS_STACK));
SYMBOLS(lse, VALUE("1", 1), NAMED("th", LSE_TH));

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, attn_merge.field), &domain_##domain, symbols_##symbols, \
     dflt, KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/attn_merge_params.def>
#undef KGEN_PARAM
};
/* clang-format on */

/* --- applicable --------------------------------------------------------- */

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen_attn_merge_spec *s = &spec->attn_merge;
    enum { LEAST_WAVE = 32 };
    int32_t lanes = kg_merge_lanes(s->head_dim);
    (void)target;
    REQUIRE(!s->waves || s->waves * LEAST_WAVE >= lanes,
            "waves=%d: a row of d=%d has %d lanes; a workgroup takes at least one", s->waves,
            s->head_dim, lanes);
    return KGEN_OK;
}

/* --- defaults ----------------------------------------------------------- */

static int32_t words_of(int32_t dtype) {
    return KG_MERGE_DIMS * kgen_dtype_size((kgen_dtype)dtype) / 4;
}

/* Registers of a lane: addresses, and of each turn what is loaded and summed. */
static int32_t registers_of(const kgen_attn_merge_spec *s) {
    enum { FIXED = 56 };
    int32_t batch = kg_merge_batch(s->parts == KGEN_PARTS_STACK);
    int32_t turn = batch * (words_of(s->x) + 1) + KG_MERGE_DIMS + 8;
    return FIXED + s->turns * turn;
}

static void defaults(kgen_spec *spec, const kgen_target *target) {
    enum { LANES = 256, MOST_WORDS = 16 }; /* in flight */
    kgen_attn_merge_spec *s = &spec->attn_merge;
    s->out = kgen__native_fp8(s->out ? s->out : s->x, target);
    int32_t batch = kg_merge_batch(s->parts == KGEN_PARTS_STACK);
    if (!s->waves) s->waves = LANES / target->wave_size;
    if (!s->turns) s->turns = 2 * batch * words_of(s->x) <= MOST_WORDS ? 2 : 1;
    int32_t groups = target->vgpr_file / registers_of(s) * target->simds / s->waves;
    if (!s->occupancy) s->occupancy = larger(smaller(groups, 8), 1);
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return spec->attn_merge.waves * target->wave_size;
}

static int32_t occupancy(const kgen_spec *spec) { return spec->attn_merge.occupancy; }

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_attn_merge_spec *s = &spec->attn_merge;
    snprintf(out, KGEN_SYMBOL_MAX, "kg_attn_merge_%s_%s_d%d%s%s", kgen_dtype_name((kgen_dtype)s->x),
             kgen_dtype_name((kgen_dtype)s->out), s->head_dim,
             s->parts == KGEN_PARTS_STACK ? "_stack" : "", s->lse == KGEN_LSE_TH ? "_th" : "");
}

const kgen__family kgen__family_attn_merge = {
    .template_name = "attn_merge.hip",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .applicable = applicable,
    .defaults = defaults,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .symbol = symbol,
};

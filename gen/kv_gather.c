/* Family kv_gather: cached keys and values into dense rows. */
#include <stdio.h>

#include "family.h"
#include "kv.h"
#include "kv_params.h"
#include "templates/kg/kv/kv_shape.h"

/* --- the parameter table ------------------------------------------------ */

SYMBOLS(x_dtype, NAMED("bf16", DTYPE_BF16), NAMED("fp16", DTYPE_FP16));
SYMBOLS(table, VALUE("i32", 0), VALUE("i64", 1));
SYMBOLS(scale, NAMED("auto", DESCALE_AUTO), NAMED("none", DESCALE_NONE),
        NAMED("head", DESCALE_HEAD), NAMED("token", DESCALE_TOKEN), NAMED("block", DESCALE_BLOCK));
SYMBOLS(from, NAMED("start", FROM_START), NAMED("end", FROM_END));

/* clang-format off */
static const kgen_param params[] = {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) \
    {#key, #CONST, offsetof(kgen_spec, kv_gather.field), &domain_##domain, symbols_##symbols, \
     dflt, KGEN_ROLE_##role, KGEN_PRINT_##print, doc},
#include <kgen/kv_gather_params.def>
#undef KGEN_PARAM
};
/* clang-format on */

/* --- applicable --------------------------------------------------------- */

kgen__kv_shape kgen__kv_gather_geometry(const kgen_kv_gather_spec *s) {
    int32_t v_dim = s->v_dim ? s->v_dim : s->head_dim;
    return (kgen__kv_shape){s->kv,     s->head_dim,        v_dim,    s->page,
                            s->layout, s->descale,         s->waves, s->turns,
                            0,         KG_KV_GATHER_PARTS, 1};
}

static kgen_status applicable(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    kgen__kv_shape shape = kgen__kv_gather_geometry(&spec->kv_gather);
    (void)target;
    KGEN_TRY(kgen__kv_applicable(&shape, spec->kv_gather.out, "o", err));
    KGEN_TRY(kgen__kv_check_blocks(&shape, spec->kv_gather.out, "o", err));
    return kgen__kv_check_align(&shape, spec->kv_gather.align, err);
}

/* --- defaults ----------------------------------------------------------- */

static void defaults(kgen_spec *spec, const kgen_target *target) {
    kgen_kv_gather_spec *s = &spec->kv_gather;
    s->kv = kgen__native_fp8(s->kv, target);
    s->descale = kgen__kv_granularity(s->kv, s->descale);
    if (!s->v_dim) s->v_dim = s->head_dim;
    kgen__kv_shape shape = kgen__kv_gather_geometry(s);
    enum { WORDS = 4 }; /* of a chunk as it is cached */
    if (!s->turns) s->turns = kgen__kv_turns(&shape, target, WORDS);
    if (!s->waves) s->waves = 256 / target->wave_size;
    shape = kgen__kv_gather_geometry(s);
    if (!s->occupancy) s->occupancy = kgen__kv_occupancy(&shape, target, WORDS, 0);
}

/* --- launch shape and name ---------------------------------------------- */

static int32_t launch_shape(const kgen_spec *spec, const kgen_target *target) {
    return spec->kv_gather.waves * target->wave_size;
}

static int32_t occupancy(const kgen_spec *spec) { return spec->kv_gather.occupancy; }

static void symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen_kv_gather_spec *s = &spec->kv_gather;
    char page[16] = "x16";
    if (s->page) snprintf(page, sizeof page, "%d", s->page);
    snprintf(out, KGEN_SYMBOL_MAX, "kg_kv_gather_kv%s_%s_d%d_v%d_p%s_%s%s%s",
             kgen_dtype_name((kgen_dtype)s->kv), kgen_dtype_name((kgen_dtype)s->out), s->head_dim,
             s->v_dim ? s->v_dim : s->head_dim, page, kgen_layout_name((kgen_layout)s->layout),
             s->descale == KGEN_DESCALE_TOKEN   ? "_token"
             : s->descale == KGEN_DESCALE_BLOCK ? "_block"
                                                : "",
             s->from ? "_end" : "");
}

const kgen__family kgen__family_kv_gather = {
    .template_name = "kv_gather.hip",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .applicable = applicable,
    .defaults = defaults,
    .launch_shape = launch_shape,
    .occupancy = occupancy,
    .symbol = symbol,
};

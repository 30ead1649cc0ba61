/* What kv_write and kv_gather share: checks, defaults and geometry. */
#include "family.h"
#include "kv.h"
#include "templates/kg/kv/kv_shape.h"

kgen_status kgen__kv_applicable(const kgen__kv_shape *s, int32_t x, const char *x_key,
                                kgen_error *err) {
    if (!kgen__is_8bit(s->kv) && s->kv != x && x != KGEN_DTYPE_F32)
        return kgen_fail(err, KGEN_E_SPEC,
                         "kv=%s: %s=%s; a 16-bit cache is copied, with its own type",
                         kgen_dtype_name((kgen_dtype)s->kv), x_key, kgen_dtype_name((kgen_dtype)x));
    if (!kgen__is_8bit(s->kv) && s->scale != KGEN_DESCALE_AUTO && s->scale != KGEN_DESCALE_NONE)
        return kgen_fail(err, KGEN_E_SPEC, "kv=%s: not quantised; only 8-bit caches take scales",
                         kgen_dtype_name((kgen_dtype)s->kv));
    if (kgen__is_packed(s->layout) && kgen_dtype_values((kgen_dtype)s->kv) > 1)
        return kgen_fail(err, KGEN_E_SPEC,
                         "layout=%s: kv=%s has two dims in a byte, and packed values have two "
                         "tokens there; use nhd or hnd",
                         kgen_layout_name((kgen_layout)s->layout),
                         kgen_dtype_name((kgen_dtype)s->kv));
    if (s->head_dim % kgen__kv_x(s) || s->v_dim % kgen__kv_x(s))
        return kgen_fail(err, KGEN_E_SPEC,
                         "d=%d, dv=%d: kv=%s has %d dims in 16 bytes; multiples "
                         "of that",
                         s->head_dim, s->v_dim, kgen_dtype_name((kgen_dtype)s->kv), kgen__kv_x(s));
    if (kgen__is_packed(s->layout) && s->page != KGEN_PAGE_X16 && s->page < 16)
        return kgen_fail(err, KGEN_E_SPEC,
                         "page=%d: layout=%s packs 16 bytes of tokens; use nhd or hnd, or a page "
                         "of 16 or more",
                         s->page, kgen_layout_name((kgen_layout)s->layout));
    return KGEN_OK;
}

kgen_status kgen__kv_check_blocks(const kgen__kv_shape *s, int32_t x, const char *x_key,
                                  kgen_error *err) {
    if (s->scale != KGEN_DESCALE_BLOCK) return KGEN_OK;
    if (s->kv == KGEN_DTYPE_I8 || s->kv == KGEN_DTYPE_I4)
        return kgen_fail(err, KGEN_E_SPEC, "kv=%s: blocks with a scale each are of 8-bit floats",
                         kgen_dtype_name((kgen_dtype)s->kv));
    if (x == KGEN_DTYPE_F32)
        return kgen_fail(err, KGEN_E_SPEC,
                         "%s=f32: beside blocks with a scale each keys are 16-bit", x_key);
    if (kgen__is_packed(s->layout))
        return kgen_fail(err, KGEN_E_SPEC,
                         "layout=%s: blocks with a scale each lie in rows; use nhd or hnd",
                         kgen_layout_name((kgen_layout)s->layout));
    if (s->v_dim % KG_KV_BLOCK)
        return kgen_fail(err, KGEN_E_SPEC, "dv=%d: a scale is of %d dims; a multiple of that",
                         s->v_dim, KG_KV_BLOCK);
    return KGEN_OK;
}

kgen_status kgen__kv_check_align(const kgen__kv_shape *s, int32_t align, kgen_error *err) {
    if (align < 16 && kgen__is_packed(s->layout))
        return kgen_fail(err, KGEN_E_SPEC,
                         "al=%d: layout=%s packs 16 bytes of tokens; use nhd or hnd", align,
                         kgen_layout_name((kgen_layout)s->layout));
    return KGEN_OK;
}

int32_t kgen__kv_granularity(int32_t kv, int32_t scale) {
    if (scale != KGEN_DESCALE_AUTO) return scale;
    if (kv == KGEN_DTYPE_I4) return KGEN_DESCALE_TOKEN;
    return kgen__is_8bit(kv) ? KGEN_DESCALE_HEAD : KGEN_DESCALE_NONE;
}

/* --- geometry ------------------------------------------------------------ */

int32_t kgen__kv_x(const kgen__kv_shape *s) { return kg_kv_x(kgen__bits_of(s->kv)); }
int kgen__kv_packed(const kgen__kv_shape *s) { return kgen__is_packed(s->layout); }
int32_t kgen__kv_row_block(const kgen__kv_shape *s) {
    return kg_kv_row_block(kgen__is_packed(s->layout));
}

int32_t kgen__kv_row_lanes(const kgen__kv_shape *s, const kgen_target *target, int is_v) {
    int32_t chunks = (is_v ? s->v_dim : s->head_dim) / kgen__kv_x(s);
    return kg_kv_row_lanes(chunks, !is_v && s->halves, kgen__kv_row_block(s), target->wave_size);
}

int64_t kgen__kv_slices(const kgen__kv_shape *s, const kgen_target *target, int64_t heads) {
    int32_t wave = target->wave_size;
    return kg_kv_slices((int)heads, s->v_dim, wave,
                        kg_kv_passes(kg_kv_parts(s->v_dim, wave), s->parts));
}

/* --- tuning -------------------------------------------------------------- */

int32_t kgen__kv_piece_words(const kgen__kv_shape *s, const kgen_target *target, int32_t words) {
    int32_t x = kgen__kv_x(s);
    int32_t k = s->head_dim / x / kgen__kv_row_lanes(s, target, 0);
    int32_t v = kgen__kv_packed(s) ? 1 : s->v_dim / x / kgen__kv_row_lanes(s, target, 1);
    return (k > v ? k : v) * words;
}

/* Two pieces while a lane has at most 64 bytes in flight; one where lanes wait
 * for each other's maxima. */
int32_t kgen__kv_turns(const kgen__kv_shape *s, const kgen_target *target, int32_t words) {
    enum { MOST_WORDS = 16 };
    return s->scale != KGEN_DESCALE_TOKEN &&
                   2 * kgen__kv_piece_words(s, target, words) <= MOST_WORDS
               ? 2
               : 1;
}

/* Two workgroups a compute unit where their registers are sure to fit. */
int32_t kgen__kv_occupancy(const kgen__kv_shape *s, const kgen_target *target, int32_t words,
                           int32_t extra) {
    /* Addresses, places, conversions; of many chunks, several are converted at once. Measured. */
    enum { ROWS = 96, TOKENS = 80, MANY = 32 };
    int32_t x = kgen__kv_x(s), parts = kg_kv_parts(s->v_dim, target->wave_size);
    int32_t piece = s->turns * kgen__kv_piece_words(s, target, words);
    int32_t rows = ROWS + (piece > MANY ? 3 : 1) * piece + extra;
    int32_t at_once = kg_kv_passes(parts, s->parts);
    int32_t tokens = TOKENS + (at_once > 2 ? 2 * at_once + 2 : at_once + 1) * x * s->pair_words;
    if (s->scale == KGEN_DESCALE_TOKEN) tokens += x * s->pair_words; /* maxima */
    int32_t registers = kgen__kv_packed(s) && tokens > rows ? tokens : rows;
    int32_t groups = target->vgpr_file / registers * target->simds / s->waves;
    return groups < 1 ? 1 : groups > 16 ? 16 : groups;
}

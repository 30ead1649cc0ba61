/* Every spec that the look-up can give. */
#include <stdlib.h>
#include <string.h>

#include "gen/family.h"
#include "db.h"

typedef struct variants {
    kgen_spec *list;
    size_t count, room;
} variants;

static kgen_status add(variants *v, const kgen_spec *spec, kgen_error *err) {
    for (size_t i = 0; i < v->count; i++)
        if (kgen_spec_equal(&v->list[i], spec)) return KGEN_OK;
    if (v->count == v->room) {
        size_t room = v->room ? 2 * v->room : 8;
        kgen_spec *list = realloc(v->list, room * sizeof *list);
        if (!list) return kgen_fail(err, KGEN_E_NOMEM, "tuning: no memory for %zu specs", room);
        v->list = list;
        v->room = room;
    }
    v->list[v->count++] = *spec;
    return KGEN_OK;
}

/* 0, 1, 2, 3, 4, 6, 8, 12 ... 2^bits, INT32_MAX */
#define SIZES(bits) (2 * (bits) + 2)
static int32_t size_at(int32_t place, int32_t bits) {
    if (place > 2 * bits) return INT32_MAX;
    if (place < 2) return place;
    return place % 2 ? 3 << (place / 2 - 1) : 1 << place / 2;
}

/* The plain default first; then what the size of the problem makes of it, at the sizes that
 * gen/family.h promises: 0, powers of two, what lies between these, and the greatest. Three, five
 * and nine heads: items between. */
static kgen_status add_rules(variants *v, const kgen_spec *spec, const kgen_target *target,
                             kgen_error *err) {
    enum { BATCHES = SIZES(KGEN__SUIT_BATCH_BITS), CONTEXTS = SIZES(KGEN__SUIT_CONTEXT_BITS) };
    enum { HEADS = 7 };
    static const int32_t heads[HEADS] = {0, 1, 3, 5, 8, 9, INT32_MAX};
    kgen_spec resolved;
    KGEN_TRY(kgen_spec_resolve(&resolved, spec, target, err));
    KGEN_TRY(add(v, &resolved, err));
    if (!kgen__family_of(spec->family)->suit) return KGEN_OK;
    for (int32_t i = 0; i < BATCHES * CONTEXTS * HEADS; i++) {
        const kgen_problem problem = {size_at(i / HEADS / CONTEXTS, KGEN__SUIT_BATCH_BITS),
                                      size_at(i / HEADS % CONTEXTS, KGEN__SUIT_CONTEXT_BITS),
                                      heads[i % HEADS]};
        KGEN_TRY(kgen__family_rule(&resolved, spec, &problem, target, err));
        KGEN_TRY(add(v, &resolved, err));
    }
    return KGEN_OK;
}

static kgen_status add_row(variants *v, const kgen_tuning_row *row, const kgen_spec *spec,
                           const kgen_target *target, kgen_error *err) {
    kgen__verdict_of_row says;
    int stale;
    if (row->target != target || !kgen_spec_same_shape(&row->spec, &v->list[0]) ||
        !kgen__spec_keeps(&row->spec, spec))
        return KGEN_OK;
    KGEN_TRY(kgen_tuning_row_stale(&stale, row, err));
    if (stale) return KGEN_OK;
    KGEN_TRY(kgen__row_verdict(&says, row, err));
    return says == KGEN__ROW_SPEC ? add(v, &row->spec, err) : KGEN_OK;
}

kgen_status kgen_tuning_variants(kgen_spec **specs, size_t *count, const kgen_tuning *db,
                                 const kgen_spec *spec, const kgen_target *target,
                                 kgen_error *err) {
    variants v = {0};
    kgen_status status = add_rules(&v, spec, target, err);
    for (size_t l = 0; db && l < db->count; l++)
        for (size_t i = 0; i < db->layers[l].count && status == KGEN_OK; i++)
            status = add_row(&v, &db->layers[l].rows[i], spec, target, err);
    if (status == KGEN_OK) {
        *specs = v.list;
        *count = v.count;
    } else {
        free(v.list);
    }
    return status;
}

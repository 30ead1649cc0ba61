/* Bytes that one launch must move: each tensor once, caches cold. What a launch
 * may find in a cache (weights, page tables) is counted as well; it is little. */
#include "predict_family.h"

static const kgen__predict_family *const families[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = &kgen__predict_##name,
#include <kgen/families.def>
};

kgen_status kgen__predict_family_of(const kgen__predict_family **out, kgen_family_id family,
                                    kgen_error *err) {
    if ((unsigned)family >= KGEN_FAMILY_COUNT)
        return kgen_fail(err, KGEN_E_ARG, "family=%d: unknown", (int)family);
    *out = families[family];
    return KGEN_OK;
}

static kgen_status check(const kgen__predict_family *row, const char *family, const kgen_problem *p,
                         kgen_error *err) {
    if (p->batch < 1)
        return kgen_fail(err, KGEN_E_ARG, "batch=%d: at least 1 for family %s", p->batch, family);
    if (row->context && p->context < 1)
        return kgen_fail(err, KGEN_E_ARG, "context=%d: at least 1 for family %s", p->context,
                         family);
    if (row->heads && p->heads < 1)
        return kgen_fail(err, KGEN_E_ARG, "heads=%d: at least 1 KV head for family %s", p->heads,
                         family);
    return KGEN_OK;
}

kgen_status kgen__predict_bytes(double *read, double *written, const kgen_spec *spec,
                                const kgen_problem *problem, kgen_error *err) {
    const kgen__predict_family *row = NULL;
    kgen__traffic t = {0, 0};
    KGEN_TRY(kgen__predict_family_of(&row, spec->family, err));
    KGEN_TRY(check(row, kgen_family_name(spec->family), problem, err));
    KGEN_TRY(row->bytes(&t, spec, problem, err));
    *read = t.read;
    *written = t.written;
    return KGEN_OK;
}

/* The families, and what every one of them needs. */
#include "check_family.h"

#include <string.h>

static const kgen__check_family *const judges[KGEN_FAMILY_COUNT] = {
    [KGEN_FAMILY_ATTN] = &kgen__check_family_attn,
    [KGEN_FAMILY_GDN] = &kgen__check_family_gdn,
    [KGEN_FAMILY_SCATTER] = &kgen__check_family_scatter,
    [KGEN_FAMILY_KV_WRITE] = &kgen__check_family_kv_write,
    [KGEN_FAMILY_KV_GATHER] = &kgen__check_family_kv_gather,
};

const kgen__check_family *kgen__check_family_of(kgen_family_id family) { return judges[family]; }

kgen_status kgen__case_random(kgen__case *out, kgen_family_id family, kgen__rng *rng,
                              const kgen_target *target, int64_t budget, kgen_error *err) {
    return judges[family]->random(out, rng, target, budget, err);
}

kgen_status kgen__random_spec(kgen_spec *spec, const kgen__choice *choices, size_t count,
                              void (*finish)(kgen_spec *, kgen__rng *), kgen__rng *rng,
                              const kgen_target *target, kgen_error *err) {
    enum { TRIES = 4000 };
    kgen_error last = {KGEN_OK, ""};
    kgen_spec drawn = *spec;
    for (int n = 0; n < TRIES; n++) {
        drawn = *spec;
        for (size_t i = 0; i < count; i++) {
            const kgen__choice *c = &choices[i];
            int32_t value = kgen__chance(rng, c->often)
                                ? kgen__pick(rng, c->values, (size_t)c->count)
                                : c->values[0];
            *(int32_t *)((char *)&drawn + c->offset) = value;
        }
        if (finish) finish(&drawn, rng);
        if (kgen_spec_validate(&drawn, target, &last) != KGEN_OK) continue;
        *spec = drawn;
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_INTERNAL, "no valid spec in %d draws; last: %.600s", TRIES,
                     last.text);
}

kgen_status kgen__data_compare(kgen__check_result *result, const kgen__data *data,
                               kgen_error *err) {
    const kgen__check_family *judge = judges[data->spec.family];
    kgen__answer answer;
    if (judge->compare) return judge->compare(result, data, err);
    memset(&answer, 0, sizeof answer);
    kgen_status status = judge->answer(&answer, data, err);
    if (status == KGEN_OK) status = kgen__answer_compare(result, data, &answer, err);
    kgen__answer_free(&answer);
    return status;
}

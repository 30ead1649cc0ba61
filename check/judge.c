/* The families, and what every one of them needs. */
#include "judge.h"

#include <string.h>

static const kgen_judge *const judges[KGEN_FAMILY_COUNT] = {
    [KGEN_ATTN] = &kgen__judge_attn,
    [KGEN_GDN] = &kgen__judge_gdn,
    [KGEN_SCATTER] = &kgen__judge_scatter,
    [KGEN_KV_WRITE] = &kgen__judge_kv_write,
    [KGEN_KV_GATHER] = &kgen__judge_kv_gather,
};

const kgen_judge *kgen__judge_of(kgen_family_id family) { return judges[family]; }

kgen_status kgen_case_random(kgen_case *out, kgen_family_id family, kgen_rng *rng,
                             const kgen_target *target, int64_t budget, kgen_error *err) {
    return judges[family]->random(out, rng, target, budget, err);
}

kgen_status kgen__random_spec(kgen_spec *spec, const kgen_choice *choices, size_t count,
                              void (*finish)(kgen_spec *, kgen_rng *), kgen_rng *rng,
                              const kgen_target *target, kgen_error *err) {
    enum { TRIES = 4000 };
    kgen_error last = {KGEN_OK, ""};
    kgen_spec drawn = *spec;
    for (int n = 0; n < TRIES; n++) {
        drawn = *spec;
        for (size_t i = 0; i < count; i++) {
            const kgen_choice *c = &choices[i];
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

kgen_status kgen_data_compare(kgen_check_result *result, const kgen_data *data, kgen_error *err) {
    const kgen_judge *judge = judges[data->spec.family];
    kgen_answer answer;
    if (judge->compare) return judge->compare(result, data, err);
    memset(&answer, 0, sizeof answer);
    kgen_status status = judge->answer(&answer, data, err);
    if (status == KGEN_OK) status = kgen_answer_compare(result, data, &answer, err);
    kgen_answer_free(&answer);
    return status;
}

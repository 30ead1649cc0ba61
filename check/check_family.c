/* The families, and what every one of them needs. */
#include "check_family.h"

#include <string.h>

static const kgen__check_family *const families[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = &kgen__check_family_##name,
#include <kgen/families.def>
};

const kgen__check_family *kgen__check_family_of(kgen_family_id family) {
    return (unsigned)family < KGEN_FAMILY_COUNT ? families[family] : NULL;
}

kgen_status kgen__case_random(kgen__case *out, kgen_family_id family, kgen__rng *rng,
                              const kgen_target *target, int64_t budget, kgen_error *err) {
    const kgen__check_family *row = kgen__check_family_of(family);
    if (!row) return kgen_fail(err, KGEN_E_ARG, "family=%d: unknown", (int)family);
    return row->random(out, rng, target, budget, err);
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
    const kgen__check_family *family = kgen__check_family_of(data->spec.family);
    kgen__answer answer;
    if (family->compare) return family->compare(result, data, err);
    memset(&answer, 0, sizeof answer);
    kgen_status status = family->answer(&answer, data, err);
    if (status == KGEN_OK) status = kgen__answer_compare(result, data, &answer, err);
    kgen__answer_free(&answer);
    return status;
}

kgen_status kgen__settle_page(int32_t of_spec, int32_t page, kgen_error *err) {
    if (of_spec == KGEN_PAGE_X16 && page % 16)
        return kgen_fail(err, KGEN_E_ARG, "page=%d: must be a multiple of 16", page);
    return KGEN_OK;
}

kgen_status kgen__settle_tokens(const kgen__span *lens, int32_t seqs, int32_t least, int32_t most,
                                kgen_error *err) {
    for (int32_t i = 0; i < seqs; i++)
        if (lens[i].high > most || lens[i].low < least)
            return kgen_fail(err, KGEN_E_ARG, "qlens: %d..%d of sequence %d is not in %d..%d",
                             lens[i].low, lens[i].high, i, least, most);
    return KGEN_OK;
}

kgen_status kgen__settle_tail(int32_t tail, const char *phase, kgen_error *err) {
    if (tail)
        return kgen_fail(err, KGEN_E_ARG, "tail=%d: phase=%s has a token for each sequence", tail,
                         phase);
    return KGEN_OK;
}

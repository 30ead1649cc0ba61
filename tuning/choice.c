/* Specs with open tuning keys, the family's own choice, and what a row says. */
#include <stdlib.h>
#include <string.h>

#include <kgen/source.h>
#include <sodium.h>

#include "gen/family.h"
#include "db.h"

/* --- keys ------------------------------------------------------------------ */

int kgen__spec_keeps(const kgen_spec *spec, const kgen_spec *given) {
    for (int i = 0; i < kgen_param_count(spec->family); i++) {
        const kgen_param *param = kgen_param_at(spec->family, i);
        int32_t value = kgen_param_get(given, param);
        if (param->role == KGEN_ROLE_TUNE && value != param->initial &&
            value != kgen_param_get(spec, param))
            return 0;
    }
    return 1;
}

kgen_status kgen__family_rule(kgen_spec *out, const kgen_spec *spec, const kgen_problem *problem,
                              const kgen_target *target, kgen_error *err) {
    kgen_spec suited = *spec;
    KGEN_TRY(kgen_spec_validate(spec, target, err));
    const kgen__family *family = kgen__family_of(spec->family);
    if (problem && family->suit) {
        family->suit(&suited, problem, target);
        /* The caller's own keys may leave no room for the choice. */
        if (kgen_spec_resolve(out, &suited, target, NULL) == KGEN_OK) return KGEN_OK;
    }
    return kgen_spec_resolve(out, spec, target, err);
}

/* --- rows ------------------------------------------------------------------ */

kgen_status kgen_tuning_row_digest(char out[65], const kgen_spec *resolved,
                                   const kgen_target *target, kgen_error *err) {
    kgen_source source;
    KGEN_TRY(kgen_source_name(&source, resolved, target, err));
    sodium_bin2hex(out, 2 * sizeof source.digest + 1, source.digest, sizeof source.digest);
    kgen_source_free(&source);
    return KGEN_OK;
}

kgen_status kgen_tuning_row_stale(int *stale, const kgen_tuning_row *row, kgen_error *err) {
    char digest[65];
    KGEN_TRY(kgen_tuning_row_digest(digest, &row->spec, row->target, err));
    *stale = strcmp(digest, row->kernel) != 0;
    return KGEN_OK;
}

/* A row may say that the default was best. It means the default of the day when
 * it was measured. When the family's rule chooses another kernel today, the
 * answer is the row's own spec, because that is the kernel that was measured. */
kgen_status kgen__row_verdict(kgen__verdict_of_row *out, const kgen_tuning_row *row,
                              kgen_error *err) {
    kgen_spec rule = row->spec;
    char digest[65];
    *out = KGEN__ROW_SPEC;
    if (row->default_us / row->us >= KGEN_TUNING_GAIN &&
        strcmp(row->kernel, row->default_kernel) != 0)
        return KGEN_OK;
    kgen_spec_open_tuning(&rule);
    KGEN_TRY(kgen__family_rule(&rule, &rule, &row->problem, row->target, err));
    KGEN_TRY(kgen_tuning_row_digest(digest, &rule, row->target, err));
    if (strcmp(digest, row->default_kernel) == 0) *out = KGEN__ROW_DEFAULT;
    return KGEN_OK;
}

/* The families by id: names and rules. */
#include "family.h"

static const kgen__family *const families[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = &kgen__family_##name,
#include <kgen/families.def>
};

static const char *const names[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = #name,
#include <kgen/families.def>
};

const char *kgen_family_name(kgen_family_id id) {
    return (unsigned)id < KGEN_FAMILY_COUNT ? names[id] : "unknown";
}

const char *kgen__template_of(const kgen_spec *spec) {
    const kgen__family *family = kgen__family_of(spec->family);
    return family->template_of ? family->template_of(spec) : family->template_name;
}

const kgen__family *kgen__family_of(kgen_family_id id) {
    return (unsigned)id < KGEN_FAMILY_COUNT ? families[id] : NULL;
}

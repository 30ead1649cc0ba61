#include "family.h"

static const kgen_family *const families[KGEN_FAMILY_COUNT] = {
    [KGEN_ATTN] = &kgen__family_attn,
    [KGEN_GDN] = &kgen__family_gdn,
};

const kgen_family *kgen__family(kgen_family_id id) {
    return (unsigned)id < KGEN_FAMILY_COUNT ? families[id] : NULL;
}

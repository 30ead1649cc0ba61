#include "family.h"

static const kgen_family *const families[KGEN_FAMILY_COUNT] = {
    [KGEN_ATTN] = &kgen__family_attn,
    [KGEN_GDN] = &kgen__family_gdn,
    [KGEN_SCATTER] = &kgen__family_scatter,
    [KGEN_KV_WRITE] = &kgen__family_kv_write,
    [KGEN_KV_GATHER] = &kgen__family_kv_gather,
};

const char *kgen__template_of(const kgen_spec *spec) {
    const kgen_family *family = families[spec->family];
    return family->template_of ? family->template_of(spec) : family->template_name;
}

const kgen_family *kgen__family(kgen_family_id id) {
    return (unsigned)id < KGEN_FAMILY_COUNT ? families[id] : NULL;
}

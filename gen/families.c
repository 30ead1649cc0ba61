#include "family.h"

static const kgen__family *const families[KGEN_FAMILY_COUNT] = {
    [KGEN_FAMILY_ATTN] = &kgen__family_attn,
    [KGEN_FAMILY_GDN] = &kgen__family_gdn,
    [KGEN_FAMILY_SCATTER] = &kgen__family_scatter,
    [KGEN_FAMILY_KV_WRITE] = &kgen__family_kv_write,
    [KGEN_FAMILY_KV_GATHER] = &kgen__family_kv_gather,
};

const char *kgen__template_of(const kgen_spec *spec) {
    const kgen__family *family = families[spec->family];
    return family->template_of ? family->template_of(spec) : family->template_name;
}

const kgen__family *kgen__family_of(kgen_family_id id) {
    return (unsigned)id < KGEN_FAMILY_COUNT ? families[id] : NULL;
}

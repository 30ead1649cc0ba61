/* The public view of the parameter tables. */
#include <kgen/params.h>

#include <string.h>

#include "family.h"

int kgen_param_count(kgen_family_id id) {
    const kgen__family *family = kgen__family_of(id);
    return family ? (int)family->param_count : 0;
}

const kgen_param *kgen_param_at(kgen_family_id id, int index) {
    return index >= 0 && index < kgen_param_count(id) ? &kgen__family_of(id)->params[index] : NULL;
}

int32_t kgen_param_get(const kgen_spec *spec, const kgen_param *param) {
    return *(const int32_t *)((const char *)spec + param->offset);
}

void kgen_param_set(kgen_spec *spec, const kgen_param *param, int32_t value) {
    *(int32_t *)((char *)spec + param->offset) = value;
}

const kgen_param *kgen__param_named(kgen_family_id id, const char *key) {
    for (int i = 0; i < kgen_param_count(id); i++)
        if (strcmp(kgen_param_at(id, i)->key, key) == 0) return kgen_param_at(id, i);
    return NULL;
}

kgen_status kgen__check_readers(const kgen_spec *spec, const kgen__reader *readers, size_t count,
                                int32_t op, const char *op_name, kgen_error *err) {
    for (size_t i = 0; i < count; i++) {
        const kgen_param *param = kgen__param_named(spec->family, readers[i].key);
        REQUIRE((readers[i].ops >> op & 1) || kgen_param_get(spec, param) == param->initial,
                "%s: op=%s does not read it; leave it out", param->key, op_name);
    }
    return KGEN_OK;
}

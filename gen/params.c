/* The public view of the parameter tables. */
#include <kgen/params.h>

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

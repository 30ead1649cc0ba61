/* The members of every family's arguments, from the rows of its .def file. */
#include "members.h"

#include <stddef.h>

#define TENSOR(field, use) \
    {#field, offsetof(kgen_args, FAMILY.field), sizeof(kgen_tensor), 1, KGEN_USE_##use},
#define NUMBER(field)                                                                    \
    {#field, offsetof(kgen_args, FAMILY.field), sizeof((kgen_args *)0)->FAMILY.field, 0, \
     KGEN_USE_IN},
#define END {NULL, 0, 0, 0, KGEN_USE_IN}

#define FAMILY attn
#define KGEN_TENSOR(ID, field, type, tag, shape, strides, when, use, ...) TENSOR(field, use)
#define KGEN_NUMBER(field, ...) NUMBER(field)
static const kgen__member attn_members[] = {
#include <kgen/attn_args.def>
    END};
#undef FAMILY

#define FAMILY gdn
#define KGEN_TENSOR(ID, field, type, tag, shape, strides, when, use, ...) TENSOR(field, use)
#define KGEN_NUMBER(field, ...) NUMBER(field)
static const kgen__member gdn_members[] = {
#include <kgen/gdn_args.def>
    END};
#undef FAMILY

#define FAMILY scatter
#define KGEN_TENSOR(ID, field, use) TENSOR(field, use)
#define KGEN_NUMBER(field) NUMBER(field)
static const kgen__member scatter_members[] = {
#include <kgen/scatter_args.def>
    END};
#undef KGEN_TENSOR
#undef KGEN_NUMBER
#undef FAMILY

#define FAMILY kv_write
#define KGEN_TENSOR(ID, field, type, tag, shape, strides, when, use, ...) TENSOR(field, use)
#define KGEN_NUMBER(field, ...) NUMBER(field)
static const kgen__member kv_write_members[] = {
#include <kgen/kv_write_args.def>
    END};
#undef FAMILY

#define FAMILY kv_gather
#define KGEN_TENSOR(ID, field, type, tag, shape, strides, when, use, ...) TENSOR(field, use)
#define KGEN_NUMBER(field, ...) NUMBER(field)
static const kgen__member kv_gather_members[] = {
#include <kgen/kv_gather_args.def>
    END};
#undef FAMILY

static const kgen__member *const families[KGEN_FAMILY_COUNT] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = name##_members,
#include <kgen/families.def>
};

const kgen__member *kgen__members(kgen_family_id family) {
    return (unsigned)family < KGEN_FAMILY_COUNT ? families[family] : NULL;
}

int kgen_args_count(kgen_family_id family) {
    const kgen__member *members = kgen__members(family);
    int count = 0;
    while (members && members[count].name && members[count].is_tensor) count++;
    return count;
}

static const kgen__member *member_at(kgen_family_id family, int index) {
    return index >= 0 && index < kgen_args_count(family) ? &families[family][index] : NULL;
}

kgen_tensor *kgen_args_tensor(kgen_args *args, int index) {
    const kgen__member *member = member_at(args->family, index);
    return member ? (kgen_tensor *)((char *)args + member->offset) : NULL;
}

const char *kgen_args_name(kgen_family_id family, int index) {
    const kgen__member *member = member_at(family, index);
    return member ? member->name : NULL;
}

kgen_use kgen_args_use(kgen_family_id family, int index) {
    const kgen__member *member = member_at(family, index);
    return member ? member->use : KGEN_USE_IN;
}

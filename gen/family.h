/* A kernel family is one file with this skeleton and one row of <kgen/families.def>. Where its
 * rules are many they have files beside it (docs/map.md). */
#ifndef KGEN_GEN_FAMILY_H
#define KGEN_GEN_FAMILY_H

#include <kgen/tuning.h>

#include "param_rows.h"

/* A constant of the prelude that follows from parameters, and from the target. */
typedef struct kgen__fact {
    const char *constant;
    int32_t (*of)(const kgen_spec *spec, const kgen_target *target);
} kgen__fact;
#define FACT(name, value)                                                   \
    static int32_t name(const kgen_spec *spec, const kgen_target *target) { \
        (void)spec, (void)target;                                           \
        return value;                                                       \
    }

enum { KGEN__SUIT_BATCH_BITS = 8, KGEN__SUIT_CONTEXT_BITS = 20 };

typedef struct kgen__family {
    const char *template_name;
    const char *(*template_of)(const kgen_spec *spec); /* instead, of several */
    const kgen_param *params;
    size_t param_count;
    const kgen__fact *facts; /* ends with NULL; or NULL */
    /* One condition a line, each with its message. target may be NULL. */
    kgen_status (*applicable)(const kgen_spec *spec, const kgen_target *target, kgen_error *err);
    /* Replaces auto values; the spec has passed `applicable`. */
    void (*defaults)(kgen_spec *spec, const kgen_target *target);
    /* May be NULL. Fills open tuning keys from the size of the problem, before
     * `defaults`. A number that is 0 is not known. Every choice that it can make must be
     * reachable with a batch of 0, 1, 2, 3, 4, 6, 8, 12 ... 2^KGEN__SUIT_BATCH_BITS and INT32_MAX,
     * such a context, and heads of {0, 1, 3, 5, 8, 9, INT32_MAX}: kgen_tuning_variants enumerates
     * exactly those problems. */
    void (*suit)(kgen_spec *spec, const kgen_problem *problem, const kgen_target *target);
    /* Lanes of a workgroup, for a resolved spec. */
    int32_t (*launch_shape)(const kgen_spec *spec, const kgen_target *target);
    /* LDS that a launch has to give, beyond what code can have by itself; 0: none. May be
     * NULL. */
    int32_t (*launch_lds)(const kgen_spec *spec, const kgen_target *target);
    /* Workgroups that a compute unit shall hold at once. */
    int32_t (*occupancy)(const kgen_spec *spec);
    /* Workgroups that read each other's LDS; 0: none does. May be NULL. */
    int32_t (*cluster)(const kgen_spec *spec);
    void (*symbol)(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec);
} kgen__family;

#define KGEN_FAMILY(name, NAME) extern const kgen__family kgen__family_##name;
#include <kgen/families.def>

/* The file that a spec is made from. */
const char *kgen__template_of(const kgen_spec *spec);

/* A page smaller than a block: one look-up a token (kg/attn/page.h). */
static inline int kgen__is_small_page(int32_t page) { return page != KGEN_PAGE_X16 && page < 16; }

/* Pages of 16 bytes of tokens, side by side. */
static inline int kgen__is_packed(int32_t layout) {
    return layout == KGEN_LAYOUT_SHUFFLE || layout == KGEN_LAYOUT_XPACKED;
}

/* In bytes: i4 as well, two in each. */
static inline int kgen__is_8bit(int32_t dtype) { return kgen_dtype_size((kgen_dtype)dtype) == 1; }

/* Of a value. */
static inline int kgen__bits_of(int32_t dtype) {
    return 8 * kgen_dtype_size((kgen_dtype)dtype) / kgen_dtype_values((kgen_dtype)dtype);
}

/* fp8 stands for the target's own kind. */
static inline int32_t kgen__native_fp8(int32_t dtype, const kgen_target *target) {
    return dtype != KGEN_DTYPE_FP8 ? dtype
           : target->fp8_fnuz      ? KGEN_DTYPE_E4M3FNUZ
                                   : KGEN_DTYPE_E4M3FN;
}

/* Registers that a compiler has for a lane where a compute unit is to hold so many workgroups of
 * such waves. It drops the wish where waves or their LDS find no room. INT32_MAX: not known; that
 * of sm_90 and of gfx1250, some of whose kernels have more than max_vgprs, are not held to it. */
int32_t kgen__lane_room(const kgen_target *target, int32_t waves, int32_t groups,
                        int32_t lds_bytes);

/* NULL: the family has no such key. */
const kgen_param *kgen__param_named(kgen_family_id id, const char *key);

/* A key, and a bit for each op that reads it. */
typedef struct kgen__reader {
    const char *key;
    uint32_t ops;
} kgen__reader;
/* What an op does not read must stay as it is: the same kernel has one name. */
kgen_status kgen__check_readers(const kgen_spec *spec, const kgen__reader *readers, size_t count,
                                int32_t op, const char *op_name, kgen_error *err);

/* NULL when `id` is out of range. */
const kgen__family *kgen__family_of(kgen_family_id id);

#endif

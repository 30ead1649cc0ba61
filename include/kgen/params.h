/* The parameters of a family's specs, for programs that walk over them. A
 * parameter is one row of <kgen/<family>_params.def>. */
#ifndef KGEN_PARAMS_H
#define KGEN_PARAMS_H

#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kgen_symbol {
    const char *name; /* NULL ends the list; the first name of a value prints */
    int32_t value;
    const char *constant; /* its name in the source of kernels; NULL: it has none */
} kgen_symbol;

/* Allowed numbers: those of `list`, and min..max in steps of `step`. A step of
 * 0 stands for no range. */
typedef struct kgen_domain {
    int32_t min, max, step;
    const int32_t *list;
    int32_t list_count;
} kgen_domain;

/* SHAPE: the value changes what the kernel computes. TUNE: only its speed. */
typedef enum kgen_role { KGEN_ROLE_SHAPE, KGEN_ROLE_TUNE } kgen_role;

/* When kgen_spec_print names it. DIFFERS: when it is not the initial value. */
typedef enum kgen_print { KGEN_PRINT_ALWAYS, KGEN_PRINT_DIFFERS } kgen_print;

typedef struct kgen_param {
    const char *key;      /* in the spec line */
    const char *constant; /* in the kernel's source */
    size_t offset;        /* of the int32_t in kgen_spec */
    const kgen_domain *domain;
    const kgen_symbol *symbols; /* words, allowed beside or instead of numbers */
    int32_t initial;            /* where a line does not name it */
    kgen_role role;
    kgen_print print;
    const char *doc; /* one sentence */
} kgen_param;

/* The parameters of a family, 0 .. count - 1, in the order in which they print.
 * 0 and NULL out of range. Pure. */
KGEN_API int kgen_param_count(kgen_family_id family);
KGEN_API const kgen_param *kgen_param_at(kgen_family_id family, int index);

/* The value in a spec of the parameter's family. set checks nothing:
 * kgen_spec_validate does. */
KGEN_API int32_t kgen_param_get(const kgen_spec *spec, const kgen_param *param);
KGEN_API void kgen_param_set(kgen_spec *spec, const kgen_param *param, int32_t value);

#ifdef __cplusplus
}
#endif
#endif

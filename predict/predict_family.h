/* What a family says of its launches: the bytes that one moves, and how the
 * kernel cuts its work. A family is <family>_predict.c and one row of
 * <kgen/families.def>. */
#ifndef KGEN_PREDICT_PREDICT_FAMILY_H
#define KGEN_PREDICT_PREDICT_FAMILY_H

#include "predict.h"

typedef struct kgen__traffic {
    double read, written;
} kgen__traffic;

/* How much work, in how many workgroups. */
typedef struct kgen__work {
    double turns;    /* of waves, in all */
    double groups;   /* workgroups; a part of one is one that has less to do */
    double resident; /* workgroups at once on the device */
    double waves;    /* of a workgroup */
    double bytes;
    int merged; /* items are cut between workgroups */
} kgen__work;

typedef struct kgen__predict_family {
    int context, heads; /* 1: the problem must say */
    kgen_status (*bytes)(kgen__traffic *out, const kgen_spec *spec, const kgen_problem *problem,
                         kgen_error *err);
    /* Of `traffic`, the bytes that go through the loop, each as often as it is
     * loaded. NULL: what is read, once. */
    double (*looped)(const kgen_spec *spec, const kgen_problem *problem,
                     const kgen__traffic *traffic);
    /* Workgroups of a compute unit that a launch has at most. NULL: as many as fit. */
    int32_t (*resident)(const kgen_spec *spec);
    /* Sets groups and merged; the rest of `work` is known. */
    void (*cut)(kgen__work *work, const kgen_spec *spec, const kgen_target *target,
                const kgen_problem *problem);

    /* What happens before the first data is there and after the last. */
    int reads;     /* that wait for each other: length, table, data ... */
    double cycles; /* of arithmetic and LDS, at the top clock */
    double merge;  /* cycles, where several workgroups share an item */
} kgen__predict_family;

#define KGEN_FAMILY(name, NAME) extern const kgen__predict_family kgen__predict_##name;
#include <kgen/families.def>

/* KGEN_E_ARG when `family` is out of range. */
kgen_status kgen__predict_family_of(const kgen__predict_family **out, kgen_family_id family,
                                    kgen_error *err);

/* Bytes of a value; of type 0, those of `instead`. */
static inline double kgen__size_of(int32_t dtype, int32_t instead) {
    kgen_dtype type = (kgen_dtype)(dtype ? dtype : instead);
    return kgen_dtype_size(type) / (double)kgen_dtype_values(type);
}

static inline double kgen__index_bytes(int32_t wide) { return wide ? 8 : 4; }

static inline double kgen__pages_of(double tokens, int32_t page) {
    double size = page == KGEN_PAGE_X16 ? 16 : page, whole = (double)(int64_t)(tokens / size);
    return whole * size < tokens ? whole + 1 : whole;
}

#endif
